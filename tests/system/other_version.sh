# other_version.sh - after an upgrade, programs of the old version run on. The commands say which
# programs they cannot read, and a program that an old tree starts obeys the policy file.
#
# The test changes the number of the format in the board of a program, so the commands take it for a
# program of another version.

. tests/system/_own_user.sh
. tests/system/_lib.sh
need perl grep dd
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

live=$work/live.lua
policy_text 32 | save "$live"
mkfifo "$work/orders"

# The program runs each line of its standard input as a command, and lives until the input ends.
"$LOAM" run --watch --policy "$live" -- perl -e '$| = 1; while (<STDIN>) { system $_; print "done\n" }' \
  < "$work/orders" > "$work/said" 2> "$work/err" &
pid=$!
children=$pid
exec 9> "$work/orders"
has_row() { "$LOAM" status "$pid" > "$work/out"; }
await "no row" has_row
board=$(echo "$work"/control/*.board)

FORMAT_AT=16 # bytes before lm_board_head.version
printf '\001\000\000\000' | dd of="$board" bs=1 seek=$FORMAT_AT conv=notrunc status=none

version=$("$LOAM" --version | grep -o '[0-9.]*$')
others="$board: programs on this board have another version of loam than this command, $version,"
# says STATUS WORDS VERB... - fails unless the command ends with this status and prints these words
# on standard error.
says() {
  local wanted=$1 words=$2 got=0
  shift 2
  timeout 60 "$LOAM" "$@" > "$work/out" 2> "$work/why" || got=$?
  [ "$got" = "$wanted" ] || fail "loam $*: $got, not $wanted: $(cat "$work/out" "$work/why")"
  grep -qF -- "$words" "$work/why" || fail "loam $*: not '$words': $(cat "$work/out" "$work/why")"
}
says 0 "loam ps: $others and are not listed until they are started again" ps
says 3 "loam wait: $others and cannot be waited for until they are started again" wait --policy "$live" --timeout 100ms
says 0 "loam top: $others and are not shown until they are started again" top --count 1
says 1 "loam stats: $others and are not listed until they are started again" stats
grep -qF "no program of yours runs under this version of loam" "$work/why" || fail "stats: $(cat "$work/why")"
"$LOAM" metrics | grep -qx 'loam_boards_unreadable 1' || fail "metrics do not count the board"
echo "ok: the commands say that there are programs of another version"

why="($pid) runs under loam, but its board $board has another version of loam than this command, $version: start the program again"
says 1 "$why" status "$pid"
says 1 "$why" reload "$pid"
says 1 "$why" rebalance "$pid"
says 3 "($pid) has not seen it: its board $board has another version of loam" \
  wait --policy "$live" --timeout 100ms --pid "$pid"
echo "ok: the commands say why they cannot reach a program of another version"

# runs COMMAND - lets the program run a command, and waits until that has ended.
runs() {
  local before
  before=$(grep -c done "$work/said")
  echo "$1" >&9
  has_run() { [ "$(grep -c done "$work/said")" -gt "$before" ]; }
  await "it does not run $1" has_run
}
: > "$work/err"
policy_text 64 | save "$live"
runs "perl -e 'system qw($LOAM status), \$\$' > $work/child 2>&1"
grep -q '^policy *p64, generation 1' "$work/child" || fail "the child's policy: $(cat "$work/child")"
[ ! -s "$work/err" ] || fail "the child says: $(cat "$work/err")"
echo "ok: a program that a tree of another version starts obeys the policy file"

echo 'return nil +' | save "$live"
runs "perl -e 'print qq(runs\n)' > $work/child 2> $work/err"
[ "$(cat "$work/child")" = runs ] || fail "a bad edit stops the child: $(cat "$work/err")"
grep -q 'warning: policy refused, the built-in default is used' "$work/err" || fail "a bad edit, in silence"
echo "ok: a bad edit does not stop such a program"
exec 9>&-
