# gauges.sh - a policy reads the free memory of NUMA nodes. `loam run` starts one small process that
# reads these figures for all programs of the tree, so the programs read no file for them.
. tests/system/_lib.sh
need "$CC" pgrep
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

build guest.c
guest=$program
build gauge.c -I"$top/core"
gauge=$program

live=$work/live.lua
# write BYTES - writes a policy that gives blocks an alignment of 4096 while node 0 has at most
# BYTES free. "write none" writes a policy that reads no gauge and aligns no block.
write() {
  {
    echo 'local plain = loam.host { name = "plain" }'
    echo 'local aligned = loam.host { name = "aligned", align = 4096 }'
    echo 'return loam.policy { name = "gauges", pick = function(req)'
    [ "$1" = none ] || echo "  if loam.node(0).free <= $1 then return aligned end"
    echo '  return plain'
    echo 'end }'
  } > "$work/next"
  mv "$work/next" "$live"
}
LITTLE='4 * loam.KiB' # less than any machine has free
ALL='4096 * loam.GiB' # more than any machine has free

# starts OPTION... -- COMMAND... - starts a program under $live, keeps its input open, and waits for
# its first line. Sets $board to its board.
starts() {
  [ -p "$work/in" ] || mkfifo "$work/in"
  : > "$work/out"
  "$LOAM" run --policy "$live" "$@" < "$work/in" > "$work/out" 2> "$work/err" &
  pid=$!
  children=$pid
  exec 3> "$work/in"
  says 'up\|plain\|aligned'
  board=$(tr '\0' '\n' < "/proc/$pid/environ" | sed -n 's/^LOAM_BOARD=//p')
  [ -e "$board" ] || fail "no board: $(cat "$work/err")"
}
# says WORD - waits until the last line of the program is WORD.
says() {
  for _ in $(seq 1200); do
    tail -n 1 "$work/out" | grep -qx "$1" && return
    sleep 0.05
  done
  fail "it does not say $1, but: $(cat "$work/out" "$work/err")"
}
ends() {
  exec 3>&-
  wait "$pid" || fail "$1: it ended with $?: $(cat "$work/err")"
  children=
  echo "ok: $1"
}
# watcher BOARD - prints the process id of the watcher of a board. The title of the watcher is as
# long as the command line was, so the name of the board may be cut off.
watcher() { pgrep -n -f "^loam-watcher ${1%-*}"; }
# keeps BYTES - writes the gauge again and again until the program has ended.
keeps() { while kill -0 "$pid" 2> "$work/why" && "$gauge" set "$board" "$1"; do sleep 0.2; done; }

write "$LITTLE"
"$guest" tell > "$work/plain" 2>&1 || fail "plain: $(cat "$work/plain")"
"$LOAM" run --policy "$live" -- "$guest" tell > "$work/told" 2>&1 || fail "tell: $(cat "$work/told")"
cmp -s "$work/plain" "$work/told" || fail "threads, descriptors: $(cat "$work/told"); plain: $(cat "$work/plain")"
echo "ok: a program whose policy reads free memory has one thread and no descriptor of loam"

starts -- "$guest" obey_confined
keeps 0 &
kill -STOP "$(watcher "$board")" || fail "no watcher runs"
ends "it obeys the figure on the board, and makes system calls for memory alone"
pkill -KILL -f "^loam-watcher ${board%-*}"

for way in edit reload; do
  write none
  option=$([ "$way" = reload ] || echo --watch)
  starts $option -- "$guest" obey_confined
  write "$ALL"
  [ "$way" = edit ] || "$LOAM" reload "$pid" "$live" > "$work/reload" 2>&1 || fail "reload: $(cat "$work/reload")"
  # A watcher takes its name after it has started.
  [ "$way" = edit ] || await "reload started no watcher" watcher "$board"
  ends "a gauge that comes by $way: the program opens no file"
done

write "$LITTLE"
starts -- "$gauge" follow
says plain
pkill -KILL -f "^loam-watcher ${board%-*}" || fail "no watcher to kill"
keeps 0 &
keeper=$!
says aligned
kill "$keeper"
says plain
ends "without a watcher the program reads the figure itself"

"$LOAM" run --help > "$work/help"
grep -q 'free memory of NUMA nodes' "$work/help" || fail "help: $(cat "$work/help")"
printf 'local h = loam.host {}\nreturn loam.policy { apply = "live", pick = function(req) return h end }\n' > "$live"
said=$("$LOAM" run --policy "$live" -- true 2>&1)
[ "$said" = "loam: the policy moves live memory, so each program gets a service thread, as with --service" ] ||
  fail "it said: $said"
echo "ok: loam run says that it turns --service on"
