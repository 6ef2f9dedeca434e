# guest.sh - loam adds no threads and no descriptors to a program under the preload library or `loam
# run`, and a tree of processes obeys the policies that are published on its board.
. tests/system/_lib.sh
need "$CC" unshare nsenter setpriv grep
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

chmod 755 "$work" # another user must read it
build guest.c
ulimit -Sn "$(ulimit -Hn)" 2> "$work/why"
# both WHAT COMMAND... - fails unless the command ends, under the preload library alone and under
# `loam run`, as it does without loam.
both() {
  local what=$1
  shift
  "$@" > "$work/plain" 2>&1 < /dev/null || skip_case=$?
  [ -z "${skip_case:-}" ] || { echo "skipped: $what: not possible here: $(cat "$work/plain")"; unset skip_case; return; }
  run_under_policy "$@" > "$work/out" 2>&1 < /dev/null || fail "$what, preloaded: $?: $(cat "$work/out")"
  cmp -s "$work/plain" "$work/out" || fail "$what, preloaded: $(cat "$work/out"), plain: $(cat "$work/plain")"
  "$LOAM" run --watch --policy "$policy" -- "$@" > "$work/out" 2>&1 < /dev/null ||
    fail "$what, run: $?: $(cat "$work/out")"
  cmp -s "$work/plain" "$work/out" || fail "$what, run: $(cat "$work/out"), plain: $(cat "$work/plain")"
  echo "ok: $what"
}

[ ! -e "$LOAM_CONTROL_DIR" ] || fail "the folder of boards is there already"
env LD_PRELOAD="$LOAM_PRELOAD" "$program" tell > "$work/out" || fail "preloaded: $(cat "$work/out")"
[ ! -e "$LOAM_CONTROL_DIR" ] || fail "the preload library made a folder: $(ls "$LOAM_CONTROL_DIR")"
echo "ok: the preload library alone makes no folder"

both "one thread, and its own descriptors, in a forked child too" "$program" tell
both "it closes all descriptors and opens its own" "$program" close_all
both "its children replace all descriptors" "$program" replace_all
both "a child ends by the system call exit" "$program" end_thread
both "a filter allows system calls for memory alone" "$program" confined
both "a new user namespace" unshare -Ur id -u
both "a new PID namespace" unshare -Urpf sh -c 'echo $$; exec id -u'
both "the mount namespace of another process" nsenter -t $$ -m true
[ "$(id -u)" != 0 ] || both "without rights" setpriv --reuid=65534 --clear-groups --bounding-set=-all \
  --inh-caps=-all "$program" tell

# A reader of the program's output sees the end of the output when the program ends: the watcher
# does not keep it open.
said=$("$LOAM" run --watch --policy "$policy" -- echo said 2>&1)
[ "$said" = said ] || fail "it said $said"
# wait(2) in the program does not see the watcher, even where the program is process 1.
for before in "" "unshare -Urpf --mount-proc"; do
  [ -z "$before" ] || $before true 2> "$work/why" || continue
  out=$($before "$LOAM" run --watch --policy "$policy" -- perl -e 'print wait, "\n"' 2>&1)
  [ "$out" = -1 ] || fail "wait under '$before': $out"
done
echo "ok: the watcher is no child of the program, and does not keep its output open"

live=$work/live.lua
write() { # write ALIGNMENT - writes a policy that gives each block that alignment
  printf 'local s = loam.host { name = "s%s", align = %s }\n' "$1" "$1" > "$work/next"
  printf 'return loam.policy { name = "p%s", pick = function(req) return s end }\n' "$1" >> "$work/next"
  mv "$work/next" "$live"
}

# starts WORDS... - starts guest.c under a watched policy, and waits until it says "up".
starts() {
  write 64
  : > "$work/up"
  : > "$work/err"
  "$LOAM" run --watch --policy "$live" -- "$program" "$@" > "$work/up" 2>> "$work/err" &
  pid=$!
  children=$pid
  for _ in $(seq 1200); do
    grep -q up "$work/up" && return
    sleep 0.1
  done
  fail "$*: it does not come up: $(cat "$work/err")"
}
ends() {
  wait "$pid" || fail "$1: it ended with $?: $(cat "$work/err"); $("$LOAM" status "$pid" 2>&1)"
  children=
}

starts obey_confined
write 4096
ends "a confined program"
echo "ok: a program that may make calls for memory alone obeys an edit"

starts tree 200
echo 'return loam.polcy {}' > "$work/next"
mv "$work/next" "$live"
for _ in $(seq 600); do
  grep -q polcy "$work/err" && break
  sleep 0.1
done
[ "$(grep -c polcy "$work/err")" = 1 ] || fail "a broken save: $(cat "$work/err")"
"$LOAM" status "$pid" --json > "$work/status"
grep -q '"watching":true' "$work/status" || fail "nothing watches: $(cat "$work/status")"
grep -q '"refused":1' "$work/status" || fail "the refusal is not counted: $(cat "$work/status")"
begin=$(date +%s%N)
write 4096
ends "a tree of 200 processes"
echo "ok: 200 processes obey an edit, $((($(date +%s%N) - begin) / 1000000)) ms after the save"

# Kills processes that write entries of the board, and the watcher, at any moment.
starts doomed 310
watcher=$(pgrep -n -f "^loam-watcher $live")
[ -n "$watcher" ] || fail "no watcher runs"
grep VmRSS "/proc/$watcher/status" > "$work/rss"
[ "$(tr -dc 0-9 < "$work/rss")" -lt 4096 ] || fail "the watcher has $(cat "$work/rss")"
killed=0
for round in $(seq 30); do
  for child in $(pgrep -P "$pid" | head -n 10); do
    kill -KILL "$child" && killed=$((killed + 1))
    [ $((killed % 3)) != 0 ] || write $((64 << killed % 5))
  done
  [ "$round" != 20 ] || kill -KILL "$watcher"
  "$LOAM" status "$pid" --json > "$work/status" 2>&1 || fail "round $round: $(cat "$work/status")"
  "$LOAM" ps --all > "$work/ps" 2>&1 || fail "round $round: $(cat "$work/ps")"
done
write 4096
"$LOAM" reload "$pid" "$live" > "$work/reload" 2>&1 || fail "reload: $(cat "$work/reload")"
pkill -KILL -P "$pid"
wait "$pid" 2> "$work/why"
children=
"$LOAM" status "$pid" --json > "$work/status" 2>&1 || fail "after the end: $(cat "$work/status")"
echo "ok: $killed processes and the watcher are killed, and the board can be read"
