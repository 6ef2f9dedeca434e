# guard_edit.sh - an edit adds the first guarded blocks. A running program cannot report faults in
# them, and the commands say so in one line; a program that starts later does report them. Another
# edit asks to move live memory, which a program without a service cannot do.
. tests/system/_lib.sh
need "$CC" grep
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

build misuse.c
misuse=$program
build requests_forever.c
case=$("$misuse" | awk '/^overflow/ { print $2; exit }')
[ -n "$case" ] || fail "misuse.c has no overflow: $("$misuse" | head -n 3)"
live=$work/live.lua
write() { # write FILE GUARD - writes a policy
  printf 'local s = loam.host { name = "%s", guard = %s }\n' "all" "$2" > "$work/next"
  printf 'return loam.policy { name = "guard_%s", pick = function() return s end }\n' "$2" >> "$work/next"
  mv "$work/next" "$1"
}
write "$live" false
write "$work/guard.lua" true
# starts COMMAND... - starts the command in a tree with a watched policy, and waits until it says
# "up".
starts() {
  : > "$work/out"
  : > "$work/err"
  "$LOAM" run --watch --policy "$live" -- "$@" > "$work/out" 2>> "$work/err" < "$work/in" &
  pid=$!
  children=$pid
  for _ in $(seq 600); do grep -q up "$work/out" && return; sleep 0.1; done
  fail "$*: it does not come up: $(cat "$work/err")"
}
mkfifo "$work/in"
exec 3<> "$work/in"

starts "$program" 1
write "$live" true
for _ in $(seq 600); do grep -q note "$work/err" && break; sleep 0.1; done
grep -q "^loam: note: the policy guards blocks, and process $pid was started under one" "$work/err" ||
  fail "an edit: $(cat "$work/err")"
"$LOAM" reload "$pid" "$work/guard.lua" > "$work/reload" 2>&1 || fail "reload: $(cat "$work/reload")"
grep -q "^loam: note: the policy guards blocks, and process $pid " "$work/reload" ||
  fail "reload: $(cat "$work/reload")"
kill "$pid"
wait "$pid" 2> "$work/why"
echo "ok: an edit and a reload say that a running program will not report faults"

starts "$program" 1
"$LOAM" reload "$pid" "$work/guard.lua" > "$work/reload" 2>&1 || fail "reload: $(cat "$work/reload")"
grep -q note "$work/reload" && fail "it has a handler: $(cat "$work/reload")"
printf 'local s = loam.host {}\nreturn loam.policy { apply = "live", pick = function() return s end }\n' \
  > "$work/moves.lua"
"$LOAM" reload "$pid" "$work/moves.lua" > "$work/reload" 2>&1 || fail "reload: $(cat "$work/reload")"
grep -q "^loam: note: the policy moves live memory, and these programs have no service" "$work/reload" ||
  fail "reload of a policy that moves: $(cat "$work/reload")"
kill "$pid"
wait "$pid" 2> "$work/why"
echo "ok: a reload says that live memory is not moved, and nothing of a program that reports faults"

write "$live" false
starts sh -c 'echo up; read -r line; '"'$misuse' '$case'"
"$LOAM" reload "$pid" "$work/guard.lua" > "$work/reload" 2>&1 || fail "reload: $(cat "$work/reload")"
echo go >&3
wait "$pid" 2> "$work/why"
children=
grep -q "^loam: [^ ]*\[[0-9]*\]: fault at 0x.* block of .*strategy 'all'" "$work/err" || fail "no report: $(cat "$work/err")"
echo "ok: a program that starts after the edit reports a fault"
