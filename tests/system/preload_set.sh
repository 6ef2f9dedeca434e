# preload_set.sh - a program that starts with LD_PRELOAD and LOAM_POLICY set, without `loam run`,
# makes a board. So `loam ps` shows it, and `loam reload` reaches it and the programs that it
# starts.
. tests/system/_lib.sh
need "$CC" grep
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

build requests_forever.c
cd "$work" || fail "no folder $work"
policy=live.lua # a relative path
write() { # write NAME FILE - writes a policy of that name
  printf 'local s = loam.host {}\nreturn loam.policy { name = "%s", pick = function() return s end }\n' \
    "$1" > "$2"
}
write first live.lua
write second next.lua
boards() { ls "$LOAM_CONTROL_DIR" 2> "$work/why" | grep -c 'board$'; }

# shows PID TEXT - waits until the status of a process contains the text.
shows() {
  for _ in $(seq 600); do
    "$LOAM" status "$1" --json > "$work/status" 2>&1 && grep -qF "$2" "$work/status" && return
    sleep 0.1
  done
  fail "expected $2 of $1: $(cat "$work/status")"
}

env LD_PRELOAD="$LOAM_PRELOAD" "$program" 1 > "$work/up" &
children=$!
for _ in $(seq 600); do grep -q up "$work/up" && break; sleep 0.1; done
kill "$children"
wait "$children" 2> "$work/why"
children=
LOAM_CONTROL=0 run_under_policy true || fail "LOAM_CONTROL=0: $?"
[ ! -e "$LOAM_CONTROL_DIR" ] || fail "there is a folder: $(ls "$LOAM_CONTROL_DIR")"
echo "ok: without a policy, and with LOAM_CONTROL=0, nothing is made"

# The shell starts a program in another folder, and then becomes the other program. All three have
# one board.
(exec_under_policy sh -c "(cd / && exec '$program' 3 > '$work/other') & exec '$program' 2 > '$work/up'") \
  2> "$work/err" &
pid=$!
children=$pid
for _ in $(seq 600); do grep -q up "$work/up" && grep -q up "$work/other" && break; sleep 0.1; done
grep -q up "$work/other" || fail "it does not come up: $(cat "$work/up" "$work/other" "$work/err")"
other=$(pgrep -P "$pid" | head -n 1)
forked=$(pgrep -P "$pid" | tail -n 1)
children="$pid $(pgrep -P "$pid" | tr '\n' ' ')"
[ "$(boards)" = 1 ] || fail "boards: $(ls "$LOAM_CONTROL_DIR")"
[ "$(ls "/proc/$pid/task" | wc -l)" = 1 ] || fail "tasks: $(ls "/proc/$pid/task")"
ls -l "/proc/$pid/fd" > "$work/fds"
grep -q board "$work/fds" && fail "it keeps the board open: $(cat "$work/fds")"
shows "$pid" '"name":"first"'
"$LOAM" ps | grep -q "^ *$pid .*first" || fail "ps: $("$LOAM" ps)"
"$LOAM" reload "$pid" "$work/next.lua" > "$work/reload" 2>&1 || fail "reload: $(cat "$work/reload")"
grep -q '^live: generation 2' "$work/reload" || fail "reload: $(cat "$work/reload")"
for each in $pid $other $forked; do shows "$each" '"name":"second"'; done
echo "ok: one reload reaches the program, its child, and the program that it started"

write third live.lua
"$LOAM" reload "$pid" "$work/live.lua" > "$work/reload" 2>&1 || fail "reload: $(cat "$work/reload")"
shows "$other" '"name":"third"'
echo 'return loam.polcy {}' > live.lua
"$LOAM" reload "$pid" > "$work/reload" 2>&1 && fail "a broken policy: $(cat "$work/reload")"
grep -q polcy "$work/reload" || fail "a broken policy: $(cat "$work/reload")"
shows "$pid" '"name":"third"'
echo "ok: a broken policy is refused by the command"

# A program of the tree with another policy has another board.
(LOAM_BOARD=$(ls "$LOAM_CONTROL_DIR"/*.board) policy=next.lua exec_under_policy "$program" 1 > "$work/own") &
own=$!
children="$children $own"
for _ in $(seq 600); do grep -q up "$work/own" && break; sleep 0.1; done
[ "$(boards)" = 2 ] || fail "boards: $(ls "$LOAM_CONTROL_DIR")"
write fourth next.lua
"$LOAM" reload "$own" > "$work/reload" 2>&1 || fail "reload: $(cat "$work/reload")"
shows "$own" '"name":"fourth"'
shows "$pid" '"name":"third"'
echo "ok: a program with a policy of its own has a board of its own"

kill $children
wait 2> "$work/why"
children=
"$LOAM" ps > "$work/ps" 2>&1
rm -rf "$LOAM_CONTROL_DIR"
policy=next.lua
run_under_policy sh -c 'true; exec true' || fail "a shell: $?"
[ "$(boards)" = 0 ] || fail "left: $(ls "$LOAM_CONTROL_DIR")"
run_under_policy sh -c 'echo "${LOAM_BOARD##*/}"; env | grep -c ^LOAM_BOARD=' > "$work/told" || fail "a shell: $?"
grep -q 'board$' "$work/told" || fail "the board is not named: $(cat "$work/told")"
echo "ok: the last program removes the board"

# A folder that cannot be used does not stop the program.
touch "$work/file"
LOAM_CONTROL_DIR=$work/file run_under_policy true 2> "$work/err" || fail "no folder: $?"
[ ! -s "$work/err" ] || fail "no folder: $(cat "$work/err")"
LOAM_EVENTS=stderr LOAM_CONTROL_DIR=$work/file run_under_policy true 2> "$work/err"
grep -q "$work/file" "$work/err" || fail "the event is missing: $(cat "$work/err")"
echo "ok: a program runs where no board can be made"
