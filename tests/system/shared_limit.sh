# shared_limit.sh - processes of several `loam run`s share a limit. Together they never exceed it.
# When a process is killed or replaces its program, its share comes back.
. tests/system/_lib.sh
need "$CC"
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

build block_commands.c
cat > "$work/shared.lua" <<'LUA'
local kv = loam.host { name = "kv", limit = 20 * loam.MiB, shared = "kv" }
local rest = loam.host { name = "rest" }
return loam.policy { name = "shared", pick = function(req)
  return req.size >= 512 * loam.KiB and kv or rest
end }
LUA
sed 's/, limit.*"kv" }/ }/' "$work/shared.lua" > "$work/edited.lua"
LIMIT=20 # a block takes a little more than 1,000,000 bytes

# launch NAME OPTION... - starts the program under `loam run`. It reads from the pipe that the
# caller has opened, and answers in a file. Sets $pid to its process id.
launch() {
  local name=$1
  shift
  LOAM_EVENTS=none "$LOAM" run "$@" -- "$program" < "$work/$name.in" > "$work/$name.out" 2> "$work/err" &
  pid=$!
  children="$children $pid"
}
# tell NAME WORD - gives a program a command. Sets $has to its answer.
tell() {
  local name=$1 before
  before=$(wc -l < "$work/$name.out")
  echo "$2" > "$work/$name.in"
  await "$name does not answer" has_more_than "$name" "$before"
  has=$(tail -n 1 "$work/$name.out")
}
has_more_than() { [ "$(wc -l < "$work/$1.out")" -gt "$2" ]; }
has_all() {
  tell "$1" take
  [ "$has" = "$LIMIT" ]
}

for name in a b c; do mkfifo "$work/$name.in"; done
exec 4<> "$work/a.in" 5<> "$work/b.in" 6<> "$work/c.in"
launch a --watch --policy "$work/shared.lua"
a=$pid
launch b --policy "$work/shared.lua"
b=$pid
launch c --watch --policy "$work/edited.lua"
c=$pid
for name in a b c; do await "$name does not start" grep -q ready "$work/$name.out"; done

tell a 12
[ "$has" = 12 ] || fail "the first has $has of 12"
tell b take
[ "$has" = 8 ] || fail "the second has $has of 8"
"$LOAM" stats "$b" --by strategy > "$work/stats" 2>&1 || fail "$(cat "$work/stats")"
grep -q '^kv .* 95% of 20 MiB, 38% here, peak 9[5-9]%$' "$work/stats" || fail "$(cat "$work/stats")"
"$LOAM" stats "$b" --json > "$work/stats"
grep -q '"limit_used":20[0-9]*,"limit_peak":20[0-9]*,"limit_shared":"kv","limit_own":8[0-9]*' "$work/stats" || fail "$(cat "$work/stats")"
# The first has taken nothing since the second did: its peak is not less than what all use now.
"$LOAM" stats "$a" --by strategy > "$work/stats" 2>&1 || fail "$(cat "$work/stats")"
grep -q '^kv .* 95% of 20 MiB, 57% here, peak 9[5-9]%$' "$work/stats" || fail "$(cat "$work/stats")"

# The share of the killed process comes back before the shell has waited for that process.
kill -KILL "$a"
await "the share of a killed process does not come back" has_all b
wait "$a" 2> "$work/why"

# A policy is edited while the process runs. The process opens nothing, and shares the limit from
# then on.
tell b free
cp "$work/shared.lua" "$work/edited.new" && mv "$work/edited.new" "$work/edited.lua"
obeys() {
  tell c free
  "$LOAM" status "$c" --json | grep -q '"generation":2,'
}
await "the edit is not obeyed" obeys
tell c 15
[ "$has" = 15 ] || fail "the third has $has of 15"
tell b take
[ "$has" = 5 ] || fail "the second has $has of 5"

# A program replaces itself by a program without loam.
echo exec > "$work/c.in"
await "the share of another program does not come back" has_all b
grep -q '(sleep)' "/proc/$c/stat" || fail "the program has ended, and was to become another"

# A process that ends normally gives its share back too.
exec 5>&-
launch a --policy "$work/shared.lua"
await "the fourth does not start" has_more_than a 0
kill "$b" "$c"
await "what the others had does not come back" has_all a
echo "ok: processes of several trees never had more than the limit, and those that ended gave it back"
