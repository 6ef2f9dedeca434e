# top.sh - `loam top` in a real terminal, that of tmux: keys, what the screen shows, resize, and that
# the terminal is restored; and its lists and JSON of real programs.
. tests/system/_lib.sh
need "$CC" grep python3
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
build holds.c
name="malloc.$(basename "$program")"

# Waits until a command succeeds; words are about what was waited for.
await() {
  local words=$1
  shift
  for _ in $(seq 600); do
    "$@" > "$work/why" 2>&1 && return
    sleep 0.1
  done
  fail "$words: $(cat "$work/why")"
}

started() {
  rm -f "$work/said"
  (exec "$LOAM" run --policy "$policy" -- "$program") > "$work/said" 2> "$work/err" &
  pid=$!
  children="$children $pid"
  await "it does not start" grep -q ready "$work/said"
}

started
first=$pid
"$LOAM" top --every 100ms > "$work/list" 2>&1 || fail "list: $(cat "$work/list")"
grep -Eq '^1 process, .* live in [0-9,]+ blocks; ' "$work/list" || fail "list: $(cat "$work/list")"
grep -Eq "^$name +[0-9.]+ KiB +1,00[0-9] .*% of 2 MiB" "$work/list" || fail "$(cat "$work/list")"
"$LOAM" top "$first" --json --by process --every 100ms --count 2 > "$work/json" || fail "json"
[ "$(wc -l < "$work/json")" = 2 ] || fail "objects: $(cat "$work/json")"
grep -q "\"pid\":$first" "$work/json" || fail "json: $(cat "$work/json")"
echo "ok: a list and JSON"

"$LOAM" top --json --every 100ms > "$work/json" 2> "$work/err" &
top=$!
children="$children $top"
await "no object comes" grep -q '"verb":"top"' "$work/json"
kill -INT "$top" 2> "$work/why" # a shell starts programs in the background without Ctrl-C
kill -TERM "$top"
status=0
wait "$top" || status=$?
[ "$status" = 130 ] || fail "status $status after a signal: $(cat "$work/err")"
echo "ok: a signal ends it"

"$LOAM" top "$first" --json --every 100ms > "$work/json" 2> "$work/err" &
top=$!
children="$children $top"
await "no object comes" grep -q '"verb":"top"' "$work/json"
kill -KILL "$first"
wait "$first" 2> "$work/why"
wait "$top" || fail "it fails when the process ends: $(cat "$work/err")"
echo "ok: it ends with the process"

command -v tmux > "$work/why" || skip "tmux is not installed"
export TMUX_TMPDIR=$work
tm() { tmux -f /dev/null "$@"; }
trap 'tm kill-server 2> /dev/null; finish' EXIT
shown() { tm capture-pane -p -t top > "$work/screen" && grep -Eq -- "$1" "$work/screen"; }
hidden() { tm capture-pane -p -t top > "$work/screen" && ! grep -Eq -- "$1" "$work/screen"; }
# shows PATTERN - a line of the screen matches, soon. lacks PATTERN - no line does.
shows() {
  await "screen lacks $1" shown "$1" || fail "$(cat "$work/screen")"
}
lacks() { await "screen shows $1" hidden "$1"; }
press() { tm send-keys -t top "$@"; }
# A line of the shell in the terminal. The shell's echo of it has other quotes than its output.
in_shell() { press "$1" Enter; }
# begins [ENVIRONMENT] - starts top in the terminal, whose settings are kept.
begins() {
  in_shell "clear; stty -g > '$work/before'; $* '$LOAM' top; echo 'st''atus' \$?"
  shows '^loam top by tag, every 1s'
}
# ended STATUS - top has ended with this status, and left the terminal as it was.
ended() {
  shows "^status $1\$"
  rm -f "$work/after"
  in_shell "stty -g > '$work/after.new'; mv '$work/after.new' '$work/after'"
  await "no shell after top" test -s "$work/after"
  cmp -s "$work/before" "$work/after" || fail "settings: $(cat "$work/before" "$work/after")"
  lacks '^loam top by'
}

started
first=$pid
started
tm new-session -d -s top -x 150 -y 20 "env -u LD_PRELOAD PS1='$ ' sh" || skip "tmux does not start"
begins
shows "^$name .* 2,00[0-9] .*% of 2 MiB +2 "
press g
shows '^loam top by strategy'
shows '^small .*% of 2 MiB'
press 4
shows "^ *$first +$(basename "$program") +running"
shows "PROGRAM +STATE +LIVE v"
press '>'
shows 'BLOCKS v'
press r
shows 'BLOCKS \^'
press 1 / nothing
shows '^filter: nothing_'
lacks "^$name "
press Escape
shows "^$name "
press h
shows '^  q, Ctrl-C +quit'
press x
shows "^$name "
press ' '
shows '^loam top FROZEN'
press ' '
lacks 'FROZEN'
echo "ok: keys"

tm resize-window -t top -x 20 -y 5
shows '^TAG '
[ "$(wc -l < "$work/screen")" -le 5 ] || fail "$(cat "$work/screen")"
tm resize-window -t top -x 3 -y 2
sleep 0.2
tm resize-window -t top -x 160 -y 30
shows "^$name .* 2,00[0-9] "
shows '^q quit  h help'
echo "ok: a terminal of another size"

press 4
kill -KILL "$first"
wait "$first" 2> "$work/why"
shows "^ *$first .* ended "
lacks "^ *$first "
echo "ok: a process that ends"

press q
ended 0
begins
press C-c
ended 0
for signal in INT TERM; do
  begins
  # The oldest process of this name in the terminal is the command itself.
  top=$(pgrep -f -n "^$LOAM top$")
  kill "-$signal" "$top"
  if [ $signal = INT ]; then ended 130; else ended 143; fi
done
begins
press C-z
shows 'Stopped|suspended|\$ $' || true
in_shell 'fg'
shows '^loam top by tag'
press q
ended 0
begins
kill -SEGV "$(pgrep -f -n "^$LOAM top$")"
ended 139
echo "ok: the terminal is restored after q, Ctrl-C, Ctrl-Z, signals and a crash"
