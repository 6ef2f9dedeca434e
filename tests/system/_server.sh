# _server.sh - what the tests of servers share; they source it after _lib.sh.
#
# A server runs plain, under the preload library alone, and under `loam run --watch`. In each of
# these it serves the requests of the test, and its processes have equal threads and descriptors.
ways="plain preloaded run"
live=$work/live.lua # the policy that `loam run` watches

# A test that fails leaves no process of a server behind.
made= # a folder that the test made outside its own
finish_tree() {
  status=$?
  children=$(for child in $children; do tree "$child"; done)
  [ -z "$made" ] || rmdir "$made"
  (exit "$status")
  finish
}
trap finish_tree EXIT

# write FILE NAME ALIGNMENT - saves a policy of that name, which gives each block that alignment.
write() {
  {
    echo "local s = loam.host { name = \"s\", align = $3 }"
    echo "return loam.policy { name = \"$2\", pick = function(req) return s end }"
  } | save "$1"
}

# run_as WAY COMMAND... - replaces this shell by the command, as the user that `as` is for.
as=()
run_as() {
  local way=$1
  shift
  case $way in
    plain) exec "${as[@]}" "$@" ;;
    preloaded) exec "${as[@]}" env LD_PRELOAD="$LOAM_PRELOAD" LOAM_POLICY="$policy" "$@" ;;
    run) exec "${as[@]}" "$LOAM" run --watch --policy "$live" -- "$@" ;;
  esac
}

# tree PID - prints the ids of the process and of all that descend from it.
tree() {
  local child
  echo "$1"
  for child in $(pgrep -P "$1"); do tree "$child"; done
}

# figures PID - prints a line for each process of the tree: its title, threads and descriptors.
# Files in $work/data are not counted: a server opens them when it needs them.
figures() {
  local process title
  for process in $(tree "$1"); do
    title=$(tr '\0' ' ' < "/proc/$process/cmdline" | cut -d ' ' -f 1-3 | tr -d '\n')
    echo "$title: $(ls "/proc/$process/task" | wc -l) threads," \
      "$(find "/proc/$process/fd" -type l ! -lname "$work/data/*" | wc -l) descriptors"
  done 2> "$work/why" | sort
}

# same_figures WAY PID - fails if the figures of the tree are not those of the plain server.
same_figures() {
  if [ "$1" = plain ]; then
    figures "$2" | tee "$work/plain"
  else
    await "$1: other threads or descriptors" figures_are_plain "$2"
    echo "ok: $1: threads and descriptors are as plain"
  fi
}
figures_are_plain() { figures "$1" | diff "$work/plain" -; }

# obeys PID NAME - the process has obeyed an edit, whose policy has that name.
obeys() { "$LOAM" status "$1" --json | grep -q "\"generation\":2,\"name\":\"$2\""; }

# reached WAY PID - fails unless each process of the tree has the preload library, or none if plain.
reached() {
  local process
  for process in $(tree "$2"); do
    if grep -q "${LOAM_PRELOAD##*/}" "/proc/$process/maps"; then
      [ "$1" != plain ] || fail "$process has loam"
    else
      [ "$1" = plain ] || fail "$process is without loam: $(tr '\0' ' ' < "/proc/$process/cmdline")"
    fi
  done
}
