# top.sh - `loam top` in a real terminal of tmux: its keys, its screen, changes of the terminal's
# size, and that it restores the terminal; and its lists and JSON for real programs.
. tests/system/_lib.sh
need "$CC" grep python3
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
build holds.c
name="malloc.$(basename "$program")"

holds() { started "$LOAM" run --policy "$policy" -- "$program"; }
holds
first=$pid
"$LOAM" top "$first" --every 100ms > "$work/list" 2>&1 || fail "list: $(cat "$work/list")"
grep -Eq '^1 process, .* live in [0-9,]+ blocks; ' "$work/list" || fail "list: $(cat "$work/list")"
grep -Eq "^$name +[0-9.]+ KiB +1,00[0-9] .*% of 2 MiB" "$work/list" || fail "$(cat "$work/list")"
"$LOAM" top "$first" --json --by process --every 100ms --count 2 > "$work/json" || fail "json"
[ "$(wc -l < "$work/json")" = 2 ] || fail "objects: $(cat "$work/json")"
grep -q "\"pid\":$first" "$work/json" || fail "json: $(cat "$work/json")"
echo "ok: a list and JSON"

rm "$work/json" # its old contents would end the wait below before the command has begun
"$LOAM" top --json --every 100ms > "$work/json" 2> "$work/err" &
top=$!
children="$children $top"
await "no object comes" grep -q '"verb":"top"' "$work/json"
kill -TERM "$top"
status=0
wait "$top" || status=$?
[ "$status" = 143 ] || fail "status $status after a signal: $(cat "$work/err")"
echo "ok: a signal ends it"

rm "$work/json"
"$LOAM" top "$first" --json --every 100ms > "$work/json" 2> "$work/err" &
top=$!
children="$children $top"
await "no object comes" grep -q '"verb":"top"' "$work/json"
kill -KILL "$first"
wait "$first" 2> "$work/why"
wait "$top" || fail "it fails when the process ends: $(cat "$work/err")"
echo "ok: it ends with the process"

(exec "$LOAM" run --policy "$policy" -- python3 -c 'while True: bytearray(200000)') 2> "$work/err" &
pid=$!
children="$children $pid"
has_rate() {
  "$LOAM" top "$pid" --json --by process --every 200ms --count 1 |
    grep -E '"rows":\[\{.*"bytes_per_s":[1-9][0-9]{5}'
}
await "no rate" has_rate
kill -KILL "$pid"
wait "$pid" 2> "$work/why"
echo "ok: a rate"

as_nobody() { setpriv --reuid=65534 --clear-groups env -u XDG_RUNTIME_DIR "$@"; }
if [ "$(id -u)" = 0 ] && as_nobody "$LOAM" --version > "$work/why" 2>&1; then
  holds
  as_nobody "$LOAM" top "$pid" > "$work/list" 2>&1 && fail "shown: $(cat "$work/list")"
  grep -q 'only root may read the memory of user 0' "$work/list" || fail "$(cat "$work/list")"
  kill -KILL "$pid"
  wait "$pid" 2> "$work/why"
  echo "ok: a process that may not be read has a reason"
fi

command -v tmux > "$work/why" || skip "tmux is not installed"
export TMUX_TMPDIR=$work
tm() { tmux -f /dev/null "$@"; }
end_all() {
  status=$?
  tm kill-server 2> "$work/why"
  (exit "$status")
  finish
}
trap end_all EXIT
await_screen() {
  local words=$1
  shift
  for _ in $(seq 600); do
    "$@" && return
    sleep 0.1
  done
  fail "$words: $(cat "$work/screen")"
}
shown() { tm capture-pane -p -t top > "$work/screen" && grep -Eq -- "$1" "$work/screen"; }
hidden() { tm capture-pane -p -t top > "$work/screen" && ! grep -Eq -- "$1" "$work/screen"; }
# shows PATTERN - waits until a line of the screen matches. lacks PATTERN - waits until no line
# does.
shows() { await_screen "the screen lacks $1" shown "$1"; }
lacks() { await_screen "the screen shows $1" hidden "$1"; }
press() { tm send-keys -t top "$@"; }
# in_shell LINE - types a line to the shell in the terminal. The shell's echo of the line has other
# quotes than its output.
in_shell() { press "$1" Enter; }
# begins - saves the settings of the terminal, and starts top in it.
begins() {
  in_shell "clear; stty -g > '$work/before'; '$LOAM' top --every 200ms $first $second; echo 'st''atus' \$?"
  shows '^loam top by tag, every 200ms'
}
# ended STATUS - fails unless top has ended with this status and the terminal has its old settings.
ended() {
  shows "^status $1\$"
  rm -f "$work/after"
  in_shell "stty -g > '$work/after.new'; mv '$work/after.new' '$work/after'"
  await "no shell after top" test -s "$work/after"
  cmp -s "$work/before" "$work/after" || fail "settings: $(cat "$work/before" "$work/after")"
  lacks '^loam top by'
}

holds
first=$pid
holds
second=$pid
tm new-session -d -s top -x 150 -y 20 "env -u LD_PRELOAD PS1='$ ' sh" || skip "tmux does not start"
begins
shows "^$name .* 2,00[0-9] .*% of 2 MiB .* 2 +[0-9.]+s"
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

tm resize-window -t top -x 80 -y 20
shows "^$name .* 2,00[0-9] .*% of 2 MiB"
echo "ok: 80 columns have room for the limit"

tm resize-window -t top -x 20 -y 5
shows '^TAG '
[ "$(wc -l < "$work/screen")" -le 5 ] || fail "$(cat "$work/screen")"
tm resize-window -t top -x 3 -y 2
sleep 0.2
tm resize-window -t top -x 160 -y 30
shows "^$name .* 2,00[0-9] "
shows '^q quit  h help'
echo "ok: a terminal of another size"

press q
ended 0
begins
press C-c
ended 0
# top_pid - prints the process id of top in the terminal.
top_pid() { pgrep -f "^$LOAM top --every 200ms $first $second\$"; }
for signal in INT TERM; do
  begins
  kill "-$signal" "$(top_pid)"
  if [ $signal = INT ]; then ended 130; else ended 143; fi
done
begins
press C-z
shows 'Stopped'
in_shell "clear; fg; echo 'st''atus' \$?"
shows '^loam top by tag'
press q
ended 0
begins
kill -SEGV "$(top_pid)"
ended 139
begins
press 4
kill -KILL "$first"
wait "$first" 2> "$work/why"
shows "^ *$first .* ended "
lacks "^ *$first "
echo "ok: a process that ends"
press q
ended 0

echo "ok: the terminal is restored after q, Ctrl-C, Ctrl-Z, signals and a crash"
