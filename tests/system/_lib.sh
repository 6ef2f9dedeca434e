# _lib.sh - functions that the tests of whole programs share. Each test sources this file.
#
# Each program runs twice on equal input: plain, and under a policy that uses alignment, huge pages,
# guard pages and a limit with a fallback. Its output, errors and exit status must be equal.
set -u
: "${LOAM_PRELOAD:?the path of libloam-preload.so; ctest sets it}"
CC=${CC:-gcc}
CXX=${CXX:-g++}
top=$PWD

# A sanitizer's runtime has its own malloc, and must be loaded first.
[ -z "${LOAM_SANITIZE:-}" ] || { echo "skipped: a build with a sanitizer cannot be preloaded"; exit 77; }

# loam refuses a policy that other users could write.
umask 022
work=$(mktemp -d)
children=
finish() {
  status=$?
  trap - EXIT
  for child in $children; do
    kill "$child" 2>/dev/null
    kill -CONT "$child" 2>/dev/null # a stopped program handles the signal only after it continues
  done
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() { echo "failed: $*" >&2; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
need() {
  local program
  for program; do
    command -v "$program" >/dev/null || skip "$program is not installed"
  done
}

export LOAM_CONTROL_DIR=$work/control
policy=$work/policy.lua
cat > "$policy" <<'LUA'
local MiB = loam.MiB

local small   = loam.host { name = "small", align = 32, limit = 2 * MiB }
local guarded = loam.host { name = "guarded", guard = 50 }
local large   = loam.host { name = "large", align = 64, huge = "thp", limit = 32 * MiB }
local rest    = loam.host { name = "rest", align = 64 }

return loam.policy {
  name = "system",
  pick = function(req)
    if req.size >= 1 * MiB then return large:or_else(rest) end
    if req.size >= 1000 and req.size < 2000 then return guarded:or_else(rest) end
    return small:or_else(rest)
  end,
  tests = {
    { tag = "malloc.any", size = 100, expect = small },
    { tag = "malloc.any", size = 1500, expect = guarded },
    { tag = "malloc.any", size = 3 * MiB, expect = large },
  },
}
LUA

# run_under_policy COMMAND... - runs the command, and the programs that it starts, under $policy.
run_under_policy() { env LD_PRELOAD="$LOAM_PRELOAD" LOAM_POLICY="$policy" "$@"; }

# exec_under_policy COMMAND... - replaces this shell by the command, under $policy. A subshell in
# the background calls it, so that its pid is the pid of the program.
exec_under_policy() { exec env LD_PRELOAD="$LOAM_PRELOAD" LOAM_POLICY="$policy" "$@"; }

# answer_of PID - prints the status of a host in JSON. Asks again if the host is busy.
answer_of() {
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    "$LOAM" status "$1" --json 2> "$work/why" && return
    grep -q 'did not answer' "$work/why" || break
  done
  fail "$1: $(cat "$work/why")"
}

# await WHAT COMMAND... - waits until the command succeeds. After three minutes it fails, and prints
# the last output of the command and the ends of $work/err and $work/log.
await() {
  local what=$1 end=$((SECONDS + 180)) file
  shift
  while [ "$SECONDS" -lt "$end" ]; do
    "$@" > "$work/await" 2>&1 && return
    sleep 0.05
  done
  fail "$what: $(for file in await err log; do tail -n 20 "$work/$file" 2> "$work/why"; done)"
}

# started COMMAND... - starts a program in the background, and waits until it has written "ready".
# Sets $pid to its pid; its output goes to $work/said.
started() {
  rm -f "$work/said"
  "$@" > "$work/said" 2> "$work/err" &
  pid=$!
  children="$children $pid"
  await "it does not start" is_ready_or_ended
  grep -q ready "$work/said" || fail "it has ended: $(cat "$work/err")"
}
is_ready_or_ended() { grep -q ready "$work/said" || ! kill -0 "$pid"; }
# killed - kills the program that `started` started last.
killed() {
  kill -KILL "$pid"
  wait "$pid" 2> "$work/why"
  children=" $children "
  children=${children/ $pid / }
}
# stopped PID - stops the process by a signal, and waits until the kernel says that it is stopped.
stopped() {
  kill -STOP "$1"
  await "$1 does not stop" grep '^State:.*T (stopped)' "/proc/$1/status"
}

# free_port - prints a port of the loopback interface that no program listens on.
free_port() {
  python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# save FILE - replaces the file by standard input. No reader sees a part of the new contents.
save() {
  cat > "$work/next"
  mv "$work/next" "$1"
}
# policy_text ALIGNMENT - prints a policy p<ALIGNMENT>, which gives each block that alignment.
policy_text() {
  printf 'local s = loam.host { name = "s%s", align = %s }\n' "$1" "$1"
  printf 'return loam.policy { name = "p%s", pick = function(req) return s end }\n' "$1"
}

# compare_runs WHAT COMMAND... - runs the command plain and under the policy. Fails if its output,
# errors or exit status differ.
compare_runs() {
  local what=$1 plain loam
  shift
  "$@" > "$work/plain.out" 2> "$work/plain.err" < /dev/null
  plain=$?
  run_under_policy "$@" > "$work/loam.out" 2> "$work/loam.err" < /dev/null
  loam=$?
  cmp -s "$work/plain.err" "$work/loam.err" ||
    fail "$what: its errors differ: $(diff "$work/plain.err" "$work/loam.err" | head -n 5)"
  cmp -s "$work/plain.out" "$work/loam.out" ||
    fail "$what: its output differs: $(diff -a "$work/plain.out" "$work/loam.out" | head -n 5)"
  [ "$plain" = "$loam" ] || fail "$what: exit status $loam, plain $plain"
  echo "ok: $what"
}

# expect_diff STATUS ARGUMENT... - runs `loam diff` and fails unless it ends with the exit status.
# $work/out and $work/err have its output.
expect_diff() {
  local wanted=$1 status
  shift
  "$LOAM" diff "$@" > "$work/out" 2> "$work/err"
  status=$?
  [ "$status" = "$wanted" ] || fail "loam diff $*: exit status $status: $(cat "$work/out" "$work/err")"
}

# build SOURCE [FLAG...] - compiles a program of tests/system/programs. Sets $program to its path.
build() {
  local source=$1 name=${1%%.*} compiler=$CC
  shift
  case $source in *.cc) compiler=$CXX ;; esac
  program=$work/$name
  "$compiler" -O1 -g -Wall -D_GNU_SOURCE -I"$top/core/include" -I"$top/tests/system/programs" \
    "$top/tests/system/programs/$source" -o "$program" "$@" -pthread || fail "$source does not compile"
}
