# bare_clone.sh - processes that a bare clone(2) has made in a PID namespace of their own have no
# place under a process id that means nothing outside, and the tree ends with them.
. tests/system/_lib.sh
need "$CC"
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
build bare_clone.c
"$program" < /dev/null > "$work/plain" 2>&1
[ $? != 77 ] || skip "a process may make no PID namespace here"
export LOAM_CONTROL_DIR=$work/boards
policy_text 64 > "$work/p.lua"
mkfifo "$work/in"
"$LOAM" run --watch --policy "$work/p.lua" -- "$program" < "$work/in" > "$work/said" 2>&1 &
pid=$!
children=$pid
exec 3> "$work/in"
await "the program is not ready" is_ready_or_ended
"$LOAM" ps > "$work/ps" || fail "loam ps: status $?"
! grep -Eq "^ +[12] +bare_clone" "$work/ps" || fail "ids of the namespace are shown: $(cat "$work/ps")"
grep -q bare_clone "$work/ps" || fail "the program is not shown: $(cat "$work/ps")"
exec 3>&-
wait "$pid" || fail "the program: status $?"
is_over() { ! "$LOAM" ps | grep -q bare_clone; }
await "processes that have ended are shown" is_over
echo "ok: a bare clone in a PID namespace"
