# profile_on_event.sh - `loam profile --on` waits until a limit is nearly full, a request fails, or
# a signal ends the program, and then writes the profile. It does so also when memory has run out.
. tests/system/_lib.sh
need "$CC" mkfifo
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
build grows.c

cat > "$work/limited.lua" <<'LUA'
local kept = loam.host { name = "kept", limit = 10 * loam.MiB }
local rest = loam.host { name = "rest" }
return loam.policy {
  name = "limited",
  pick = function(req) return req.size >= loam.MiB and kept or rest end,
}
LUA

# begin [OPTION]... - starts the program, and then `loam profile` with the options.
begin() {
  rm -f "$work/in"
  mkfifo "$work/in"
  (exec "$LOAM" run --policy "$work/limited.lua" -- "$program") < "$work/in" > "$work/out" 2>> "$work/err" &
  pid=$!
  exec 3> "$work/in"
  await "it does not start" grep ready "$work/out"
  "$LOAM" profile "$pid" --format collapsed -o "$work/p" "$@" > "$work/said" 2> "$work/why" 3>&- &
  waiter=$!
  children="$pid $waiter"
  await "it does not wait" grep "waiting for process $pid" "$work/why"
}
# ended STATUS WORDS - fails unless the command ends with this status and prints these words.
ended() {
  local got=0
  wait "$waiter" || got=$?
  [ "$got" = "$1" ] || fail "it ends with $got, not $1: $(cat "$work/why")"
  grep -qF -- "$2" "$work/why" || fail "no '$2': $(cat "$work/why")"
}
grow() { for _ in $(seq "$1"); do printf g >&3; done; }
end() {
  exec 3>&-
  wait "$pid"
}
kept() { sed -n 's/.*;kept //p' "$work/p"; }

begin --on near-limit=80%
grow 7
sleep 0.5
kill -0 "$waiter" || fail "70% is taken for 80%: $(cat "$work/why")"
grow 2
ended 0 "strategy 'kept' uses"
[ "$(kept)" -ge $((8 << 20)) ] || fail "$(cat "$work/p")"
end
echo "ok: a limit that is nearly full"

begin --on failed,signal
grow 9
sleep 0.3
kill -0 "$waiter" || fail "nothing failed: $(cat "$work/why")"
grow 3
ended 0 "got no memory"
[ "$(kept)" -ge $((9 << 20)) ] || fail "$(cat "$work/p")"
end
echo "ok: a request that gets no memory"

begin --on signal --stacks 4KiB
grow 5
has_kept() { "$LOAM" stats "$pid" --json | grep kept; }
await "it has no memory" has_kept
sleep 2 # the command reads the program's state several times
kill -KILL "$pid"
ended 0 "a signal has ended the program"
grep -q ';main;' "$work/p" || fail "the program's functions have no names: $(cat "$work/p")"
[ "$(awk '{ s += $NF } END { printf "%d", s / 1048576 }' "$work/p")" -ge 4 ] || fail "$(cat "$work/p")"
end || true
echo "ok: the last look at a program that was killed"

begin --on signal
sleep 1 # the command reads the program's state
printf q >&3
ended 1 "process $pid has ended, and there was no occasion for a profile"
end || true
echo "ok: a program that ends by itself is no occasion"

"$LOAM" profile 1 --on near-limit=0% 2> "$work/why" && fail "0% is accepted"
grep -qF "loam profile: --on: 'near-limit=0%' is not possible" "$work/why" || fail "$(cat "$work/why")"
"$LOAM" profile 1 --on often 2> "$work/why" && fail "a wrong word is accepted"
grep -qF "'often' is not possible" "$work/why" || fail "$(cat "$work/why")"
echo "ok: wrong words"
