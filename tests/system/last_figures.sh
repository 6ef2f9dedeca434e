# last_figures.sh - `loam stats` and `loam profile` of a killed program show its last figures, which
# are on the board.
. tests/system/_lib.sh
need "$CC" grep
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

cat > "$work/three.lua" <<'LUA'
local small  = loam.host { name = "small" }
local middle = loam.host { name = "middle", limit = 64 * loam.MiB }
local large  = loam.host { name = "large" }
return loam.policy {
  name = "three",
  pick = function(req)
    if req.size >= 256 * loam.MiB and req.live > 1024 * loam.GiB then return small end
    if req.size >= 1 * loam.MiB then return large end
    if req.size >= 10000 then return middle end
    return small
  end,
}
LUA
build last.c
mkfifo "$work/out"
"$LOAM" run --policy "$work/three.lua" -- "$program" > "$work/out" 2> "$work/err" &
pid=$!
children=$pid
exec 4< "$work/out"
read -r -t 60 up <&4 || fail "the program says nothing: $(cat "$work/err")"

# figure STRATEGY KEY - prints a figure of a strategy on the board, or nothing if there is none.
figure() { sed -n "s/.*\"strategy\":\"$1\",[^}]*\"$2\":\([0-9]*\).*/\1/p" "$work/status"; }
for _ in $(seq 600); do
  "$LOAM" status "$pid" --json > "$work/status" || fail "status: $(cat "$work/status")"
  bytes=$(figure large live_bytes)
  [ "${bytes:-0}" -ge 12582912 ] && break
  sleep 0.1
done
kill -KILL "$pid"
wait "$pid" 2> "$work/why"
children=

"$LOAM" stats "$pid" --json > "$work/status" 2>&1 || fail "stats: $(cat "$work/status")"
grep -q '"state":"ended"' "$work/status" || fail "it lives: $(cat "$work/status")"
grep -q '"updated_at":[1-9]' "$work/status" || fail "no time: $(cat "$work/status")"
# within STRATEGY KEY LEAST MOST - fails unless the figure is from LEAST to MOST.
within() {
  local found
  found=$(figure "$1" "$2")
  [ "${found:-0}" -ge "$3" ] && [ "$found" -le "$4" ] || fail "$1: $2 is ${found:-missing}: $(cat "$work/status")"
}
MIB=1048576
within small live_bytes 100000 $((8 * MIB))
within small small_blocks 1000 100000
within middle live_bytes 2000000 $((16 * MIB))
within large live_bytes $((12 * MIB)) $((24 * MIB))
within large failed 0 0
grep -q '"tags":\[{"tag":"malloc.last","live_bytes":1[0-9]*}' "$work/status" ||
  fail "the tag: $(cat "$work/status")"
grep -q '"strategies_left_out":0' "$work/status" || fail "left out: $(cat "$work/status")"

"$LOAM" stats "$pid" > "$work/stats" 2>&1 || fail "stats: $(cat "$work/stats")"
grep -Eq 'its last figures, of (.* ago|just now)$' "$work/stats" || fail "no age: $(cat "$work/stats")"
for name in small middle large malloc.last; do
  grep -q "^$name .*about " "$work/stats" || fail "no $name: $(cat "$work/stats")"
done
grep -q 'UP TO' "$work/stats" && fail "classes without --by: $(cat "$work/stats")"
"$LOAM" stats "$pid" --by class > "$work/stats" 2>&1 || fail "stats --by class: $(cat "$work/stats")"
grep -Eq '^small +112 +about 1,[0-9]{3}$' "$work/stats" || fail "no class: $(cat "$work/stats")"
echo "ok: a killed program leaves the figures of its strategies and tags, with their age"

"$LOAM" profile "$pid" --format collapsed -o - > "$work/stacks" 2> "$work/why" || fail "profile: $(cat "$work/why")"
grep -Eq 'about .* live by strategy, its last figures, of (.* ago|just now)$' "$work/why" || fail "profile: $(cat "$work/why")"
[ "$(sed -n 's/^(tag not known);large //p' "$work/stacks")" = "$(figure large live_bytes)" ] || fail "profile: $(cat "$work/stacks")"
# The start of a program may leave a few bytes under the built-in default.
[ "$(grep -vc ';default ' "$work/stacks")" = 3 ] || fail "profile: $(cat "$work/stacks")"
"$LOAM" profile "$pid" --format svg -o "$work/last.svg" > "$work/said" 2>&1 || fail "profile: $(cat "$work/said")"
echo "ok: a profile of these figures"

# In a folder without other boards; the boards of 32 trees that have ended stay.
mkdir -m 700 "$work/boards"
export LOAM_CONTROL_DIR="$work/boards"
for _ in $(seq 40); do
  "$LOAM" run --policy "$work/three.lua" -- sh -c 'kill -KILL $$' 2> "$work/why" &
  pid=$!
  wait "$pid" 2> "$work/why"
  for _ in 1 2; do # the first look removes boards
    "$LOAM" status "$pid" > "$work/status" 2>&1 || fail "no figures of the last killed program: $(cat "$work/status")"
  done
done
"$LOAM" ps --all > "$work/rows" 2> "$work/why" || fail "ps: $(cat "$work/why")"
[ "$(grep -c ended "$work/rows")" -ge 32 ] || fail "too few are kept: $(cat "$work/rows")"
left=("$work/boards"/*.board)
[ "${#left[@]}" -le 33 ] || fail "${#left[@]} boards are kept"
echo "ok: of many killed programs the last ones are kept"
