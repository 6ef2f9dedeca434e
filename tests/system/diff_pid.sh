# diff_pid.sh - `loam diff --pid` counts the blocks of running programs in each region, and reads
# the policy that they obey from their board.
. tests/system/_lib.sh
need "$CC" python3 grep sed
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

build holds.c
policy=$work/prod.lua
cat > "$policy" <<'LUA'
local small, plain = loam.host { name = "small" }, loam.host { name = "plain" }
return loam.policy {
  name = "prod",
  pick = function(req)
    if req.tag:is("malloc.holds") and req.size > 32 and req.size <= 64 then return small end
    return plain
  end,
}
LUA
# next NAME CONDITION - writes a policy that denies the program's requests for which CONDITION
# holds.
next() {
  sed "s/^local small/local no = loam.deny { name = 'no' }\n&/
       s/^ *if req.tag/    if req.tag:is('malloc.holds') and $2 then return no end\n&/" "$policy" > "$work/$1.lua"
}
next whole 'req.size > 32 and req.size <= 48'
next part 'req.size > 40 and req.size <= 48'
next node 'req.size > 32 and req.size <= 48 and req.node == 1'

# holds - starts a program that allocates 1000 blocks of 48 bytes, and waits until it has them.
holds() { started "$LOAM" run --policy "$policy" -- "$program"; }
holds

# shows PATTERN - fails unless a line of the output matches.
shows() { grep -Eq "$1" "$work/out" || fail "no '$1' in: $(cat "$work/out")"; }

expect_diff 1 "$policy" "$work/whole.lua" --pid "$pid"
shows '^of [0-9,]+ blocks \(.*\) that holds \([0-9]+\) has allocated so far,$'
shows '^  1,000 \(46.9 KiB\) would be denied, in all 1,000 \(46.9 KiB\) would be decided otherwise$'
shows '^denied +malloc.holds: 33 to < 49$'
shows 'malloc.holds up to 48: 1,000 \(46.9 KiB\) so far, 1,000 \(46.9 KiB\) live$'
expect_diff 0 "$policy" "$work/whole.lua" --pid "$pid" --allow denied
expect_diff 0 "$policy" "$policy" --pid "$pid"
shows ' 0 \(0 B\) would be decided otherwise'
echo "ok: a size class that lies in a region is counted exactly"

expect_diff 1 "$policy" "$work/part.lua" --pid "$pid" --markdown
shows '0 to 1,000 \(0 B to 46.9 KiB\) would be denied'
expect_diff 1 "$policy" "$work/node.lua" --pid "$pid"
shows 'up to 48: 0 to 1,000 '
echo "ok: a size class that a region divides has two bounds"

# The file changes, but the program still obeys the old text, which is published on its board.
expect_diff 1 "$work/whole.lua" --pid "$pid"
"$LOAM" reload "$pid" > "$work/out" 2>&1 || fail "reload: $(cat "$work/out")"
cp "$policy" "$work/as_published.lua"
sed -i 's/req.size <= 64/req.size <= 128/' "$policy"
expect_diff 1 "$work/whole.lua" --pid "$pid" --json
cp "$work/out" "$work/from_board"
expect_diff 1 "$work/as_published.lua" "$work/whole.lua" --pid "$pid" --json
python3 - "$work/from_board" "$work/out" "$pid" << 'PY' || fail "the policy of the board is another one"
import json, sys
board, file = (json.load(open(path)) for path in sys.argv[1:3])
assert board["regions"] == file["regions"] and board["impact"] == file["impact"], board
impact = board["impact"]
assert impact["pids"] == [int(sys.argv[3])] and impact["unread"] == [], impact
assert impact["kinds"]["denied"]["live_blocks"] == {"least": 1000, "most": 1000}, impact
assert impact["live_blocks"] >= 1000 and impact["total_blocks"] >= 1000, impact
PY
echo "ok: without OLD, the policy is the one that the program obeys"

first=$pid
cp "$work/as_published.lua" "$policy"
holds
expect_diff 1 "$work/whole.lua" --pid "$first" --pid "$pid"
shows '^of [0-9,]+ blocks .* that 2 programs have allocated so far,$'
shows '^  2,000 \(93.8 KiB\) would be denied'
expect_diff 1 "$policy" "$work/whole.lua" --pid all
shows '^  2,000 \(93.8 KiB\) would be denied'
sed -i 's/name = "prod"/name = "prod2"/' "$policy"
holds
expect_diff 2 "$work/whole.lua" --pid all
grep -q 'obey different policies: name OLD' "$work/err" || fail "all: $(cat "$work/err")"
for one in $children; do
  kill -KILL "$one"
  wait "$one" 2> "$work/why"
done
children=
expect_diff 2 "$policy" "$work/whole.lua" --pid "$first"
grep -q "process $first has ended" "$work/err" || fail "ended: $(cat "$work/err")"
expect_diff 2 "$work/whole.lua"
grep -q 'OLD may be left out with --pid' "$work/err" || fail "no OLD: $(cat "$work/err")"
echo "ok: several programs, and programs that cannot be counted"
