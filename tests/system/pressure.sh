# pressure.sh - memory pressure. In a control group with a limit, programs give back the memory that
# they keep for reuse before the kernel kills one of them, and a policy reads the figure of the
# watcher.
. tests/system/_lib.sh
need "$CC" pgrep
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

build gauge.c -I"$top/core"
gauge=$program
build peaks.c -I"$top/core"
peaks=$program

# ---- The figure

cat > "$policy" << 'LUA'
local plain = loam.host { name = "plain" }
local aligned = loam.host { name = "aligned", align = 4096 }
return loam.policy {
  name = "pressure",
  pick = function(req)
    if loam.pressure() >= 60 then return aligned end
    return plain
  end,
  tests = {
    { tag = "a", size = 100, expect = plain },
    { tag = "a", size = 100, pressure = 59, expect = plain },
    { tag = "a", size = 100, pressure = 60, expect = aligned },
  },
}
LUA
"$LOAM" test "$policy" > "$work/out" 2>&1 || fail "loam test: $(cat "$work/out")"
"$LOAM" explain "$policy" --tag a --size 100 --pressure 60 > "$work/out" 2>&1 ||
  fail "loam explain: $(cat "$work/out")"
grep -q '^a, 100: aligned$' "$work/out" || fail "explain says: $(cat "$work/out")"
grep -q 'loam.pressure() >= 60 was true' "$work/out" || fail "explain says: $(cat "$work/out")"
echo "ok: tests of a policy and loam explain are given the figure"

mkfifo "$work/in"
"$LOAM" run --policy "$policy" -- "$gauge" follow < "$work/in" > "$work/said" 2> "$work/err" &
pid=$!
children=$pid
exec 3> "$work/in"
says() { tail -n 1 "$work/said" | grep -qx "$1"; }
await "it does not begin under no pressure" says plain
board=$(tr '\0' '\n' < "/proc/$pid/environ" | sed -n 's/^LOAM_BOARD=//p')
watcher() { pgrep -n -f "^loam-watcher ${board%-*}"; }
await "no watcher" watcher
kill -STOP "$(watcher)"
"$gauge" stall "$board" 60
await "it does not obey the figure" says aligned
"$LOAM" status "$pid" --json > "$work/status" 2>&1 || fail "loam status: $(cat "$work/status")"
grep -q '"pressure":{"stalled":60,"short":false,"alarms":0}' "$work/status" ||
  fail "loam status: $(cat "$work/status")"
"$gauge" stall "$board" 59
await "it does not obey the figure" says plain
pkill -KILL -f "^loam-watcher ${board%-*}"
exec 3>&-
wait "$pid" || fail "it ended with $?: $(cat "$work/err")"
children=
echo "ok: a program reads the figure that is on the board"

LOAM_PRESSURE=off "$LOAM" run --policy "$policy" -- true > "$work/out" 2>&1 || fail "$(cat "$work/out")"
grep -q '^loam: [^ ]*\[[0-9]*\]: warning: LOAM_PRESSURE=off: it may be 1|0; taken as 1$' "$work/out" ||
  fail "it says of LOAM_PRESSURE=off: $(cat "$work/out")"

# ---- A control group

group=
make_group() {
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    group=/sys/fs/cgroup/loam-test-$$ limit=memory.max
  else
    group=/sys/fs/cgroup/memory/loam-test-$$ limit=memory.limit_in_bytes
  fi
  if mkdir "$group" 2> "$work/why"; then
    echo 48M > "$group/$limit" 2> "$work/why" && return
    rmdir "$group"
  fi
  skip "no control group with a limit of memory can be made: $(cat "$work/why")"
}
leave_group() {
  for _ in $(seq 100); do
    rmdir "$group" 2> "$work/why" && return
    sleep 0.05
  done
  echo "$group stays: $(cat "$work/why")" >&2
}
make_group
trap 'status=$?; leave_group; (exit "$status"); finish' EXIT
[ ! -e "$group/memory.swap.max" ] || echo 0 > "$group/memory.swap.max"
[ ! -e "$group/memory.memsw.limit_in_bytes" ] || echo 48M > "$group/memory.memsw.limit_in_bytes"

printf 'local s = loam.host {}\nreturn loam.policy { pick = function() return s end }\n' > "$policy"
# within COMMAND... - runs the command in the group. Returns the status of the command.
within() { (sh -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$group" "$@" > "$work/said" 2> "$work/err"); }

# Four workers need 14 MiB in turn. The group has room for three workers that keep their memory.
LOAM_PRESSURE=0 within "$LOAM" run --watch --policy "$policy" -- "$peaks" 4 14 &&
  fail "without a reaction no worker is killed: the test shows nothing"
grep -q '^killed: [1-4]$' "$work/said" || fail "it said: $(cat "$work/said" "$work/err")"
echo "ok: without a reaction the kernel kills a worker"
within "$LOAM" run --policy "$policy" -- "$peaks" 4 14 ||
  fail "it ended with $?: $(cat "$work/said" "$work/err")"
echo "ok: with it the others give back what they keep, and every worker lives"
