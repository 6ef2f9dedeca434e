# edit.sh - a policy is edited while a program runs under `loam run --watch`: the next allocation
# obeys the edit.
. tests/system/_lib.sh
need "$CC" grep flock
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
[ -e "${LOAM_BUILD:-}/libloam.so" ] || skip "no libloam.so in LOAM_BUILD"

live=$work/live.lua
write() { # write FILE STRATEGY - writes a policy with one strategy of that name
  printf 'local s = loam.host { name = "%s" }\nreturn loam.policy {\n  name = "%s policy",\n' "$2" "$2" > "$1"
  printf '  pick = function(req) return s end,\n}\n' >> "$1"
}

build reports_owner.c -L"$LOAM_BUILD" -lloam -Wl,-rpath,"$LOAM_BUILD"
write "$live" one
mkfifo "$work/in" "$work/out"
(exec "$LOAM" run --watch --policy "$live" -- "$program") < "$work/in" > "$work/out" 2> "$work/err" &
pid=$!
children=$pid
exec 3> "$work/in" 4< "$work/out"

# ask - makes the program allocate once. Sets $strategy and $generation to its answer.
ask() {
  echo >&3
  read -r -t 60 strategy generation <&4 || fail "the program does not answer: $(cat "$work/err")"
}

# becomes STRATEGY - waits until new memory belongs to that strategy.
becomes() {
  for _ in $(seq 600); do
    ask
    [ "$strategy" = "$1" ] && return
    sleep 0.1
  done
  fail "new memory is of '$strategy', not of '$1': $("$LOAM" status "$pid")"
}

ask
[ "$strategy" = one ] || fail "at start memory is of '$strategy'"
first=$generation
echo "ok: it starts under its policy, generation $first"

write "$live" two
becomes two
[ "$generation" -gt "$first" ] || fail "generation $generation after $first"
echo "ok: an edit in place, generation $generation"

echo 'return loam.policy { pick = function(req) return nosuch end }' > "$live"
for _ in $(seq 600); do
  answer_of "$pid" > "$work/status"
  grep -q nosuch "$work/status" && break
  sleep 0.1
done
grep -q nosuch "$work/status" || fail "the refusal is not told: $(cat "$work/status")"
ask
[ "$strategy" = two ] || fail "a broken policy changed memory to '$strategy'"
echo "ok: a broken edit is refused, in words"

write "$work/next" three
mv "$work/next" "$live"
becomes three
echo "ok: a rename over it, generation $generation"

# While another publisher, such as a stopped `loam reload`, has the board, an edit is refused. The
# text of the policy is correct, so a touch of the file is enough to load it later.
exec 5< "$(ls "$LOAM_CONTROL_DIR"/*.board)"
flock 5
write "$live" five
await "nothing tells of the locked board" grep -q 'keeps it locked' "$work/err"
exec 5<&-
touch "$live"
becomes five
echo "ok: an edit that found the board locked is loaded when its file is touched"

exec 5< "$(ls "$LOAM_CONTROL_DIR"/*.board)"
flock 5
write "$live" six
told_again() { [ "$(grep -c 'keeps it locked' "$work/err")" = 2 ]; }
await "nothing tells of the board that is locked again" told_again
exec 5<&-
becomes six
echo "ok: without a touch it is tried again until it is loaded"

write "$work/other.lua" four
"$LOAM" reload "$pid" "$work/other.lua" > "$work/reload" || fail "reload: $(cat "$work/reload")"
ask
[ "$strategy" = four ] || fail "after reload memory is of '$strategy'"
echo "ok: loam reload, generation $generation"

"$LOAM" status "$pid" | grep '^attempts' > "$work/before"
"$LOAM" reload "$pid" "$work/oter.lua" > "$work/reload" 2>&1 && fail "reload took a file that is not there"
grep -q "$work/oter.lua: No such file or directory" "$work/reload" || fail "no file: $(cat "$work/reload")"
"$LOAM" status "$pid" > "$work/status"
grep -q '^last *ok' "$work/status" || fail "a wrong path counts as a refused policy: $(cat "$work/status")"
grep '^attempts' "$work/status" | diff "$work/before" - || fail "a wrong path counts as an attempt"
echo "ok: a reload with a wrong path is an error of the command alone"

echo 'not a policy' > "$work/other.lua"
"$LOAM" reload "$pid" "$work/other.lua" > "$work/reload" 2>&1 && fail "reload took a broken policy"
ask
[ "$strategy" = four ] || fail "a broken reload changed memory to '$strategy'"
echo "ok: a broken reload is refused"

"$LOAM" ps | grep -q "\<$pid\>" || fail "loam ps does not show $pid: $("$LOAM" ps)"
exec 3>&-
read -r -t 60 words <&4
[ "$words" = "all freed" ] || fail "it said '$words' at its end: $(cat "$work/err")"
wait "$pid" || fail "it ended with $?"
children=
# loam reports a refused edit in one line, and reports nothing else.
grep -v '^loam: policy refused, the last good one stays: ' "$work/err" && fail "it was told things: $(cat "$work/err")"
[ -z "$(ls "$LOAM_CONTROL_DIR" | grep -v '^kept-\|^quotas')" ] || fail "a socket is left behind: $(ls "$LOAM_CONTROL_DIR")"
echo "ok: memory of all generations is freed"
