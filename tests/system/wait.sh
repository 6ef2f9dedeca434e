# wait.sh - `loam wait` with 100 processes: a tree of forks, and separate programs with and without
# a service. They obey an edit, refuse a broken edit, and obey the next one.

. tests/system/_own_user.sh
. tests/system/_lib.sh
need "$CC" grep
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

TREE=90
WATCHED=6
SERVED=4
ALL=$((TREE + WATCHED + SERVED))
UNKNOWN=00000000deadbeef

build requests_forever.c
live=$work/live.lua
mkdir "$work/up"

write() { policy_text "$1" | save "$live"; } # write ALIGNMENT

# starts [OPTION] WORDS... - starts a program under the policy; its process id is in $pid.
starts() {
  local option=
  case $1 in --*) option=$1 && shift ;; esac
  (exec "$LOAM" run --watch ${option:+"$option"} --policy "$live" -- "$@") > "$work/up/${#children}" 2>> "$work/err" &
  pid=$!
  children="$children $pid"
}
# waits STATUS WORDS... - fails unless `loam wait WORDS` ends with this status. Its output goes to
# $work/out, its messages about failures to $work/why.
waits() {
  local wanted=$1 got=0
  shift
  "$LOAM" wait "$@" > "$work/out" 2> "$work/why" || got=$?
  [ "$got" = "$wanted" ] || fail "loam wait $*: $got, not $wanted: $(tail -n 5 "$work/out" "$work/why")"
}
# says FILE COUNT WORDS - fails unless COUNT lines of the file contain these words.
says() {
  [ "$(grep -cF -- "$3" "$1")" = "$2" ] || fail "not $2 times '$3': $(tail -n 5 "$1")"
}
# begins WORDS... - starts `loam wait` in the background, and waits until it has blocked the signals
# that end it; by then it has read the programs' state once.
begins() {
  "$LOAM" wait "$@" > "$work/out" 2> "$work/why" &
  waiter=$!
  children="$children $waiter"
  await "it does not wait" has_looked
}
# The subshell also blocks signals before it becomes the command, so this checks for the command's
# file.
has_looked() {
  [ "/proc/$waiter/exe" -ef "$LOAM" ] && grep '^SigBlk:.*[1-9a-f]' "/proc/$waiter/status"
}
# ended STATUS - fails unless the command in the background ends with this status.
ended() {
  local got=0
  wait "$waiter" || got=$?
  [ "$got" = "$1" ] || fail "in the background: $got, not $1: $(cat "$work/out" "$work/why")"
}
# shown PID - waits until a board shows the process.
shown() { await "it is on no board" "$LOAM" status "$1"; }

write 64
waits 0 --policy "$live"
says "$work/why" 1 "no program of yours runs under loam"
waits 0 --policy "$live" --json
grep -q '"obeyed":\[\]' "$work/out" || fail "nobody obeys: $(cat "$work/out")"
echo "ok: without a program, nothing is waited for"

starts "$program" "$TREE"
tree=$pid
for _ in $(seq "$WATCHED"); do starts "$program"; done
for _ in $(seq "$SERVED"); do starts --service "$program"; done
are_up() { [ "$(cat "$work"/up/* | grep -c up)" = $((WATCHED + SERVED + 1)) ]; }
await "not all have started" are_up
waits 0 --policy "$live"
says "$work/out" 1 "$ALL programs obey"
{ printf 'kind: ConfigMap\ndata:\n  live.lua: |\n'; sed 's/^/    /' "$live"; } > "$work/configmap.yaml"
waits 0 --policy "$work/configmap.yaml"
says "$work/out" 1 "$ALL programs obey"
"$LOAM" check --json "$work/configmap.yaml" > "$work/why"
says "$work/why" 1 "\"hash\":\"$(sed 's/.* obey //' "$work/out")\""
echo "ok: the policy of a manifest is the text of its ConfigMap"

begin=$(date +%s%N)
write 128
waits 0 --policy "$live" --all --json
[ "$(grep -o '"program":"requests_forever"' "$work/out" | wc -l)" = "$ALL" ] || fail "$(cat "$work/out")"
echo "ok: $ALL processes obey, $((($(date +%s%N) - begin) / 1000000)) ms after the save"

begin=$(date +%s%N)
echo 'return loam.polcy {}' > "$work/next"
mv "$work/next" "$live"
waits 1 --policy "$live"
echo "ok: $ALL processes refuse, $((($(date +%s%N) - begin) / 1000000)) ms after the save"
says "$work/why" 1 " and $((ALL - 1)) others refused it: $live:1: field: loam has no 'polcy'"
hash=$(sed -n 's/.*programs refused //p' "$work/why")
says "$work/why" 1 "loam wait: $ALL of $ALL programs refused $hash"
"$LOAM" ps --json > "$work/ps"
[ "$(grep -o "\"refused_hash\":\"$hash\"" "$work/ps" | wc -l)" = "$ALL" ] || fail "ps: $(cat "$work/ps")"
"$LOAM" status "$tree" > "$work/status"
says "$work/status" 1 "refused, "
says "$work/status" 1 ", hash $hash"

begin=$(date +%s%N)
write 256
waits 0 --policy "$live"
says "$work/out" 1 "$ALL programs obey"
echo "ok: $ALL processes obey again, $((($(date +%s%N) - begin) / 1000000)) ms after the save"
waits 3 --hash "$hash" --timeout 0
says "$work/why" 1 " and $((ALL - 1)) others have not seen it: they have hash "

waits 3 --hash "$UNKNOWN" --timeout 300ms --json
grep -q '"timed_out":true' "$work/out" || fail "not late: $(cat "$work/out")"
[ "$(grep -o '"unseen":.*' "$work/out" | grep -o '"pid"' | wc -l)" = "$ALL" ] || fail "$(cat "$work/out")"
waits 3 --hash "$UNKNOWN" --pid "$tree" --timeout 0
says "$work/why" 1 "requests_forever ($tree) has not seen it"
echo "ok: the time ends, and those that have not seen the policy are named"

starts sleep 600
sleeper=$pid
shown "$sleeper"
write 512
waits 0 --policy "$live" --pid "$tree"
waits 0 --policy "$live" --published
says "$work/out" 1 "$((ALL + 1)) programs obey"
waits 3 --policy "$live" --pid "$tree" "$sleeper" --timeout 0
says "$work/why" 1 "published, not yet obeyed by sleep ($sleeper), which has requested no memory since"
says "$work/why" 1 " s, 1 of 2 programs obey "
echo "ok: a process that sleeps is named, and counts with --published"

begins --policy "$live"
kill "$sleeper"
ended 0
says "$work/out" 1 "$ALL programs obey"
starts sleep 600
sleeper=$pid
shown "$sleeper"
begins --hash "$UNKNOWN" --pid "$sleeper"
kill "$sleeper"
ended 3
says "$work/why" 1 "sleep ($sleeper) has ended"
waits 2 --hash "$UNKNOWN" --pid "$sleeper"
echo "ok: a process that ends is left out"

policy_text 1024 > "$work/later"
begins --policy "$work/later"
starts sleep 600
sleeper=$pid
shown "$sleeper"
mv "$work/later" "$live"
waits 0 --policy "$live" --published
sleep 0.5
kill -0 "$waiter" || fail "the program that has just started is not waited for: $(cat "$work/out")"
kill "$sleeper"
ended 0
echo "ok: a process that starts is waited for"

for signal in INT-130 TERM-143 HUP-129; do
  begins --hash "$UNKNOWN"
  kill "-${signal%-*}" "$waiter"
  ended "${signal#*-}"
done
echo "ok: Ctrl-C and other signals end it"

# If the command cannot open the boards, it must not take living programs for ended ones.
for verb in "wait --hash $UNKNOWN --timeout 0" ps; do
  got=0
  # shellcheck disable=SC2086 # several words
  (ulimit -n 5 && exec "$LOAM" $verb) > "$work/out" 2> "$work/why" || got=$?
  [ "$got" = 1 ] || fail "loam $verb without descriptors: $got: $(cat "$work/out" "$work/why")"
  says "$work/why" 1 "loam: the boards of programs cannot be read: Too many open files"
done
echo "ok: what cannot be read is not taken for ended"
