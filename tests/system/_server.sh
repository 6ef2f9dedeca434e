# _server.sh - functions that the tests of servers share. They source it after _lib.sh.
#
# A server runs plain, under the preload library alone, and under `loam run --watch`. Each time it
# serves the requests of the test, and its processes have the same numbers of threads and
# descriptors.
ways="plain preloaded run"
live=$work/live.lua # the policy that `loam run` watches

# Ends all processes of a server when a test fails.
made= # a folder outside $work that the test made
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

# run_as WAY COMMAND... - replaces this shell by the command. WAY is a word of $ways; the array `as`
# is a prefix that makes another user run the command.
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

# tree PID - prints the ids of the process and of all its descendants.
tree() {
  local child
  echo "$1"
  for child in $(pgrep -P "$1"); do tree "$child"; done
}

# figures PID - prints a line for each process of the tree: its title, threads and descriptors. It
# does not count files in $work/data, which a server opens when it needs them.
figures() {
  local process title
  for process in $(tree "$1"); do
    title=$(tr '\0' ' ' < "/proc/$process/cmdline" | cut -d ' ' -f 1-3 | tr -d '\n')
    echo "$title: $(ls "/proc/$process/task" | wc -l) threads," \
      "$(find "/proc/$process/fd" -type l ! -lname "$work/data/*" | wc -l) descriptors"
  done 2> "$work/why" | sort
}

# same_figures WAY PID - fails if the tree has other figures than the plain server had.
same_figures() {
  if [ "$1" = plain ]; then
    figures "$2" | tee "$work/plain"
  else
    await "$1: other threads or descriptors" figures_are_plain "$2"
    echo "ok: $1: threads and descriptors are as plain"
  fi
}
figures_are_plain() { figures "$1" | diff "$work/plain" -; }

# obeys PID NAME - succeeds if the process obeys its second policy, which has that name.
obeys() { "$LOAM" status "$1" --json | grep -q "\"generation\":2,\"name\":\"$2\""; }

# reached WAY PID - fails unless each process of the tree has the preload library; for the plain
# way, unless no process has it.
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
