# _lib.sh - functions of the benches that compare allocators. They source it in the top folder of
# the tree.
#
# Each bench measures glibc, jemalloc, mimalloc and tcmalloc, as Debian packages them, and loam in
# turns, so that a busy minute of the machine falls on all of them.
me=${0##*/}
build=build-bench counting=build-counts
preload=$PWD/$build/libloam-preload.so
loam=$PWD/$build/loam

peers=(glibc jemalloc mimalloc tcmalloc)
# glibc is named too, because a program may be linked with another allocator, as Debian's
# redis-server is.
declare -A library=(
  [glibc]=libc.so.6 [jemalloc]=libjemalloc.so.2 [mimalloc]=libmimalloc.so.2
  [tcmalloc]=libtcmalloc_minimal.so.4 ["loam run"]=$preload)
declare -A package=(
  [glibc]=libc6 [jemalloc]=libjemalloc2 [mimalloc]=libmimalloc2.0 [tcmalloc]=libtcmalloc-minimal4)

# The names of allocators that the user has built and named by --also. `settings` has, by name, the
# variables that a process needs beside LD_PRELOAD, separated by commas.
also=()
declare -A settings=()

say() { printf '%s: %s\n' "$me" "$*" >&2; }
fail() { say "$@"; exit 1; }
# Prints the comment at the top of a script, which is its help.
help() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
misused() { say "$@"; help >&2; exit 2; }

# refuse WORDS... - says in one line that an argument is wrong, without the help, and exits with
# status 2.
refuse() { say "$@"; exit 2; }

# add_also ARGUMENT - adds an allocator by the argument of --also, NAME=LIBRARY[,VARIABLE=VALUE]...
# A relative LIBRARY is relative to the folder of the user, not to the script's.
add_also() {
  local name=${1%%=*} rest=${1#*=} file path
  [[ $1 == ?*=?* ]] || refuse "--also \"$1\": write NAME=LIBRARY, such as mimalloc3=/opt/lib/libmimalloc.so"
  [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9_.-]{0,10}$ ]] ||
    refuse "--also \"$1\": the name \"$name\" is not of 1 to 11 letters, digits, \"_\", \".\" and \"-\""
  [[ ! -v library[$name] && $name != loam_malloc ]] ||
    refuse "--also \"$1\": there is an allocator \"$name\" already; choose another name"
  file=${rest%%,*}
  path=$(cd "${OLDPWD:-.}" && realpath -e -- "$file" 2> /dev/null) || path=
  [ -f "$path" ] || refuse "--also \"$1\": there is no file $file"
  [[ $path != *[[:space:]:]* ]] ||
    refuse "--also \"$1\": LD_PRELOAD cannot name $path, because of its space or colon"
  [[ $rest != *,* || ${rest#*,} =~ ^[A-Za-z_][A-Za-z0-9_]*=[^,]*(,[A-Za-z_][A-Za-z0-9_]*=[^,]*)*$ ]] ||
    refuse "--also \"$1\": \"${rest#*,}\" is not VARIABLE=VALUE, or several of them with commas between"
  also+=("$name")
  library[$name]=$path
  [[ $rest != *,* ]] || settings[$name]=${rest#*,}
}

# progress - shows the present step on stderr if it is a terminal, in one line that the next step
# overwrites. milestone - writes a line if stderr is a log.
progress() { if [ -t 2 ]; then printf '\r\033[K%s: %s' "$me" "$*" >&2; fi; }
progress_ends() { if [ -t 2 ]; then printf '\r\033[K' >&2; fi; }
milestone() { if [ ! -t 2 ]; then say "$@"; fi; }

work=$(mktemp -d)
children=
finish() {
  local status=$? child
  trap - EXIT
  for child in $children; do kill "$child" 2> /dev/null && wait "$child" 2> /dev/null; done
  progress_ends
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT
trap 'say interrupted; exit 130' INT
trap 'exit 143' TERM
export LOAM_CONTROL_DIR=$work/control

# prepare_tools - installs the packages, and builds loam for release.
prepare_tools() {
  tests/install bench >&2
  say "building ($build/)"
  tests/build "$build" -DCMAKE_BUILD_TYPE=Release -DLOAM_BENCH=ON >&2
}

# prepare_counting - builds programs for valgrind, which has no room for the whole address range of
# loam (core/pages/map.h). They use a smaller range; a free of memory in another range takes a few
# instructions more.
prepare_counting() {
  tests/build "$counting" -DCMAKE_BUILD_TYPE=Release -DLOAM_BENCH=ON \
    -DCMAKE_C_FLAGS=-DLM_RANGE_SHIFT=34 >&2
}

# environment_of NAME - sets the array `environment` to the variables that give a process this
# allocator.
environment_of() {
  IFS=, read -ra environment <<< "LD_PRELOAD=${library[$1]-},${settings[$1]-}"
}

# check_serves ALLOCATOR... - fails unless a process gets each allocator by its name. If a library
# is not found, the system only warns, and the process has glibc's malloc.
check_serves() {
  local name file environment status
  for name in "$@"; do
    environment_of "$name"
    status=0
    file=$(env "${environment[@]}" "$build/bench/patterns" serves 2> "$work/serves") || status=$?
    if [[ " ${also[*]} " == *" $name "* ]]; then
      [ "$status" = 0 ] || refuse "--also $name: a program that preloads ${library[$name]} ends with" \
        "status $status: $(head -n 1 "$work/serves")"
      [ "$(realpath -- "$file")" = "${library[$name]}" ] ||
        refuse "--also $name: ${library[$name]} does not serve malloc: a program that preloads it gets" \
          "the malloc of $file"
    else
      [[ $file == *"${library[$name]}" ]] ||
        fail "under $name, malloc is that of $file; ${library[$name]} is in Debian's package" \
          "${package[$name]-of this tree, tests/build $build}"
    fi
    printf '%-11s %s\n' "$name" "$(realpath --relative-base=. "$file")"
  done
}
