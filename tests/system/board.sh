# board.sh - `loam ps` and `loam status` for processes that cannot answer (stopped, killed, or
# without their former rights), and for programs that use other folders or belong to other users.
. tests/system/_lib.sh
need "$CC" grep
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

NOBODY=65534
chmod 755 "$work"

build board_tree.c
mkfifo "$work/in" "$work/out"
(exec "$LOAM" run --policy "$policy" -- "$program") < "$work/in" > "$work/out" 2> "$work/err" &
pid=$!
children=$pid
exec 3> "$work/in" 4< "$work/out"
read -r -t 60 child dropped <&4 || fail "the program says nothing: $(cat "$work/err")"
children="$pid $child $dropped"

# shows PID KEY=VALUE - fails unless the status of a process in JSON has this member.
shows() {
  "$LOAM" status "$1" --json > "$work/status" 2>&1 || fail "status $1: $(cat "$work/status")"
  grep -qF "$2" "$work/status" || fail "expected $2 of $1: $(cat "$work/status")"
}

for each in $pid $child $dropped; do shows "$each" '"state":"running"'; done
[ "$(ls "$LOAM_CONTROL_DIR" | grep -c 'board$')" = 1 ] || fail "boards: $(ls "$LOAM_CONTROL_DIR")"
echo "ok: one tree has one board"

if [ "$(id -u)" = 0 ]; then
  shows "$dropped" "\"uid\":$NOBODY"
  echo "ok: a child that became another user is shown"
fi

for each in $pid $child; do
  stopped "$each"
  shows "$each" '"state":"stopped"'
  shows "$each" '"name":"system"'
done
"$LOAM" ps | grep "^ *$child " | grep -q stopped || fail "ps: $("$LOAM" ps)"
echo "ok: stopped processes are shown"

kill -KILL "$child"
await "it does not end" grep '^State:.*Z' "/proc/$child/status"
shows "$child" '"state":"ended"'
shows "$child" '"name":"system"'
"$LOAM" ps | grep -q "^ *$child " && fail "ps lists one that has ended: $("$LOAM" ps)"
"$LOAM" ps --all | grep "^ *$child " | grep -q 'ended' || fail "ps --all: $("$LOAM" ps --all)"
echo "ok: a killed process leaves its last figures"

kill -CONT "$pid"
exec 3>&-
wait "$pid" || fail "it ended with $?"
children=
shows "$child" '"state":"ended"'
[ -s "$work/err" ] && fail "it was told things: $(cat "$work/err")"
echo "ok: they stay when the tree has ended"

# other COMMAND... - runs a command that may change the variables of loam. Waits until `loam ps`
# shows its row.
other() {
  "$@" 2> "$work/err" &
  pid=$!
  children=$pid
  for _ in $(seq 100); do
    "$LOAM" ps | grep -q "^ *$pid " && return 0
    kill -0 "$pid" 2> "$work/why" || return 1
    sleep 0.1
  done
  return 1
}
ends() {
  kill "$pid"
  wait "$pid" 2> "$work/why"
  children=
}

other env -u LOAM_CONTROL_DIR -u XDG_RUNTIME_DIR "$LOAM" run --service --policy "$policy" -- sleep 600 ||
  fail "a program of another folder is not shown: $(cat "$work/err")"
"$LOAM" stats "$pid" > "$work/stats" 2>&1 || fail "it cannot be asked: $(cat "$work/stats")"
ends
echo "ok: a program that uses another folder is shown"

# shows_elsewhere FOLDER VARIABLE - starts a program whose board is in a folder that only VARIABLE
# names. A command without these variables must find the board.
anywhere() { env -u LOAM_CONTROL_DIR -u XDG_RUNTIME_DIR "$LOAM" "$@"; }
shows_elsewhere() {
  started env -u LOAM_CONTROL_DIR -u XDG_RUNTIME_DIR "$2" "$LOAM" run --policy "$policy" -- \
    bash -c 'echo ready; exec sleep 600'
  ls "$1"/*.board > "$work/log" || fail "its board is not in $1"
  anywhere ps > "$work/ps" 2>&1
  grep -q "^ *$pid .* running " "$work/ps" || fail "the board in $1 is not shown: $(cat "$work/ps")"
  anywhere reload "$pid" > "$work/reload" 2>&1 || fail "no edit reaches it: $(cat "$work/reload")"
  "$LOAM" ps | grep "^ *$pid " && fail "a command with a LOAM_CONTROL_DIR of its own shows it"
  killed
}
mkdir -m 700 "$work/home"
shows_elsewhere "$work/home/loam" "XDG_RUNTIME_DIR=$work/home"
shows_elsewhere "$work/elsewhere" "LOAM_CONTROL_DIR=$work/elsewhere"
echo "ok: a board is found in whichever folder a living process has it"

# A call that has a kept decision takes the slow path only when the thread cache is empty.
cat > "$work/limited.lua" << 'LUA'
local limited = loam.host { name = "limited", limit = 100 * loam.MiB }
return loam.policy { name = "limited", pick = function(req) return limited end }
LUA
build steady_site.c
"$LOAM" run --policy "$work/limited.lua" -- "$program" > "$work/said" 2> "$work/err" &
pid=$!
children=$pid
await "it does not grow" grep -qs grown "$work/said"
"$LOAM" status "$pid" > "$work/status" 2>&1 || fail "status: $(cat "$work/status")"
grep -Eq '^limits +limited: [34][0-9](\.[0-9]+)? MiB of 100 MiB' "$work/status" ||
  fail "expected some 40 MiB of 100: $(cat "$work/status")"
ends
echo "ok: the board has what a program holds by a kept decision"

# `loam ps` of a reader that sees all processes of the machine drops a process whose PID namespace
# has ended.
if [ "$(stat -Lc %i /proc/self/ns/pid)" = 4026531836 ] && unshare -pf --mount-proc true 2> "$work/why"; then
  unshare -pf --mount-proc "$LOAM" run --policy "$policy" -- sleep 600 &
  outer=$!
  children="$children $outer"
  is_shown() { "$LOAM" ps | grep -q "\<sleep\>.*$1"; }
  await "a process of another PID namespace is not shown" is_shown running
  kill -KILL "$(cat "/proc/$outer/task/$outer/children")"
  wait "$outer" 2> "$work/why"
  is_shown "" && fail "a process of a PID namespace that is gone is shown: $("$LOAM" ps)"
  echo "ok: a process of a PID namespace that is gone has ended"
fi

# A service with ProcSubset=pid of systemd sees no /proc/sys, and so no boot id. Outside its board is
# shown, and inside the boards that were made outside.
subset=(unshare -m sh -c 'mount -t proc -o subset=pid proc /proc && exec "$@"' sh)
if "${subset[@]}" test ! -e /proc/sys 2> "$work/why"; then
  other "${subset[@]}" "$LOAM" run --watch --policy "$policy" -- sleep 600 ||
    fail "a program without /proc/sys is not shown: $(cat "$work/err")"
  "$LOAM" reload "$pid" > "$work/out" 2>&1 || fail "it cannot be reloaded: $(cat "$work/out")"
  ends
  other "$LOAM" run --policy "$policy" -- sleep 600 || fail "it does not start: $(cat "$work/err")"
  "${subset[@]}" "$LOAM" ps > "$work/ps" 2>&1
  grep -q "^ *$pid " "$work/ps" || fail "ps without /proc/sys does not show it: $(cat "$work/ps")"
  ends
  echo "ok: boards of processes without /proc/sys are shown, and boards to them"
fi

# Containers may share the folder. A reader in another container cannot see the processes of a board,
# but it sees whether any process uses the board.
in_container() { unshare -pf --kill-child --mount-proc "$@"; }
if in_container true 2> "$work/why"; then
  in_container "$LOAM" run --policy "$policy" -- sh -c 'sh -c "kill -KILL \$\$"; :' 2> "$work/why"
  in_container "$LOAM" run --policy "$policy" -- sh -c 'echo ready; exec sleep 600' > "$work/said" &
  outer=$!
  children="$children $outer"
  await "it does not start" grep ready "$work/said"
  # A reader of another test may have a board open at this moment.
  shows_unknown() { [ "$(in_container "$LOAM" ps 2>&1 | grep "$policy" | grep -c unknown)" = "$1" ]; }
  await "a dead process is shown, or a living one is not" shows_unknown 1
  pkill -KILL -P "$outer"
  wait "$outer" 2> "$work/why"
  shows_none() { in_container "$LOAM" ps > "$work/ps" 2>&1 && ! grep -q "$policy" "$work/ps"; }
  await "a process of a container that has ended is shown" shows_none
  mkdir "$work"/{lower,upper,work,overlay}
  cat > "$work/on_overlay" << 'SH'
mount -t overlay overlay -o "lowerdir=$work/lower,upperdir=$work/upper,workdir=$work/work" "$work/overlay" || exit 0
export LOAM_CONTROL_DIR=$work/overlay/control
rm "$work/said"
unshare -pf --kill-child --mount-proc "$LOAM" run --policy "$policy" -- sh -c 'echo ready; exec sleep 600' > "$work/said" &
until grep -qs ready "$work/said"; do sleep 0.05; done
unshare -pf --mount-proc "$LOAM" ps > "$work/ps" 2>&1
kill -KILL $!
grep "$policy" "$work/ps" | grep -q unknown
SH
  work=$work LOAM=$LOAM policy=$policy unshare -m bash "$work/on_overlay" 2> "$work/why" ||
    fail "a living process is not shown where the board is on overlayfs: $(cat "$work/ps" "$work/why")"
  echo "ok: a process of another container has ended if no process uses its board"
fi

# The first process of a new PID namespace is forked, and becomes another program: it keeps its place.
if unshare -pf true 2> "$work/why"; then
  other "$LOAM" run --policy "$policy" -- unshare -pf sleep 600 || fail "unshare: $(cat "$work/err")"
  await "the first process of a PID namespace is not shown" eval '"$LOAM" ps | grep -qw sleep'
  children="$(cat "/proc/$pid/task/$pid/children") $pid"
  [ "$("$LOAM" ps | grep -cw unshare)" = 1 ] || fail "a process that is none is shown: $("$LOAM" ps)"
  kill -KILL ${children% *}
  wait "$pid" 2> "$work/why"
  children=
  echo "ok: the first process of a new PID namespace keeps its place when it becomes another program"
fi

# A process may replace its program by itself without loam, as nginx does for its successor.
started "$LOAM" run --policy "$policy" -- \
  bash -c '(exec -c bash -c "echo ready \$\$; while :; do /bin/sleep 0.1; done"); :'
successor=$(sed -n 's/^ready //p' "$work/said")
children="$successor $children"
shows "$pid" '"state":"running"'
shows "$successor" '"state":"ended"'
kill -KILL "$successor"
wait "$pid" || fail "it ended with $?: $(cat "$work/err")"
children=
echo "ok: a process that has lost loam is not shown as running"

# The watcher of an inner tree is no program of the outer tree.
other "$LOAM" run --watch --policy "$policy" -- "$LOAM" run --watch --policy "$policy" -- sleep 600 ||
  fail "a tree in a tree: $(cat "$work/err")"
await "the inner program is not shown" eval '"$LOAM" ps | grep -qw sleep'
"$LOAM" ps | awk '$2 == "loam"' | grep . && fail "a watcher is shown as a program: $("$LOAM" ps)"
ends
echo "ok: the watcher of a tree in a tree is not on the outer board"

# Some programs remove old files, such as those in /tmp. The processes of a tree still have its board.
policy_text 32 > "$work/followed.lua"
LOAM_EVENTS=stderr started "$LOAM" run --watch --policy "$work/followed.lua" -- \
  bash -c 'echo ready; while :; do sleep 0.1; done'
rm -r "$LOAM_CONTROL_DIR"
policy_text 64 | save "$work/followed.lua"
await "an edit does not reach a program whose board was removed" grep -q 'generation 2' "$work/err"
killed
echo "ok: a program obeys edits also after its board was removed"

as_nobody() { setpriv --reuid=$NOBODY --clear-groups env -u XDG_RUNTIME_DIR "$@"; }
if [ "$(id -u)" = 0 ] && as_nobody "$LOAM" --version > "$work/version" 2>&1; then
  other setpriv --reuid=$NOBODY --clear-groups env -u LOAM_CONTROL_DIR -u XDG_RUNTIME_DIR \
    "$LOAM" run --policy "$policy" -- sleep 600 || fail "root does not see it: $(cat "$work/err")"
  as_nobody "$LOAM" ps > "$work/ps" 2>&1
  grep -q "^ *$pid " "$work/ps" || fail "its user does not see it: $(cat "$work/ps")"
  ends
  other "$LOAM" run --policy "$policy" -- sleep 600 || fail "root's own: $(cat "$work/err")"
  as_nobody "$LOAM" ps > "$work/ps" 2>&1
  grep -q "^ *$pid " "$work/ps" && fail "another user sees it: $(cat "$work/ps")"
  ends
  echo "ok: root sees programs of all users, other users only their own"
fi

# This program takes all its memory soon after its start, and then needs no more.
cat > "$work/burst.c" <<'C'
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
  for (int i = 0; i < 500; i++) memset(malloc(100000), 1, 100000);
  return pause();
}
C
"$CC" -o "$work/burst" "$work/burst.c"
"$LOAM" run --policy "$work/limited.lua" -- "$work/burst" &
burst=$!
children="$children $burst"
await "it does not take its memory" grep -qE 'Rss: +[5-9][0-9]{4} kB' "/proc/$burst/smaps_rollup"
kill -KILL "$burst"
wait "$burst" 2> "$work/why"
await "its figures are those of its start: $("$LOAM" stats "$burst")" \
  sh -c '"$LOAM" stats "$0" | grep -qE "^limited +about [1-9][0-9](\.[0-9])? MiB"' "$burst"
echo "ok: the figures of a program that is killed early"
