# diff.sh - `loam diff`: its exit status, its output, and witnesses that `loam explain` confirms.
. tests/system/_lib.sh
need python3 grep sed
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

old=$work/old.lua new=$work/new.lua
cat > "$old" <<'LUA'
local MiB = loam.MiB
local small = loam.host { name = "small", align = 64 }
local big = loam.host { name = "big", align = 4096, limit = 64 * MiB }
local no = loam.deny { name = "no" }
return loam.policy {
  name = "diff",
  pick = function(req)
    if req.tag == "two\nlines '\255" then return big end
    if req.tag:under("tensor") and req.size >= 4 * MiB then return big:or_else(small) end
    if req.tag:under("scratch") and req.align > 64 then return no end
    if req.tag == "live" and req.size + req.live > 1 * MiB then return big:or_else(small) end
    if req.func == "parse" and req.line == 7 and req.zero then return big end
    return small
  end,
}
LUA
sed 's/>= 4 \* MiB/>= 8 * MiB/; s/align > 64/align > 16/; s/> 1 \* MiB/> 2 * MiB/; s/line == 7/line == 8/
     s/then return big end/then return small end/' "$old" > "$new"

expect_diff 0 "$old" "$old"
grep -q 'every request gets equal memory' "$work/out" || fail "alike: $(cat "$work/out")"
"$LOAM" compile "$old" -o "$work/old.image" > "$work/out" || fail "loam compile: exit status $?"
expect_diff 0 "$old" "$work/old.image"
expect_diff 0 "$work/old.image" "$old" --json
"$LOAM" diff "$old" "$old" > /dev/full 2> "$work/err"
[ $? = 2 ] || fail "a full disk is not told from a difference: $(cat "$work/err")"
echo "ok: a policy is alike to itself and to its image"

expect_diff 1 "$work/old.image" "$new"
grep -q '^denied     scratch: any size$' "$work/out" || fail "denied: $(cat "$work/out")"
[ "$(sed -n 2p "$work/out" | cut -c1-6)" = denied ] || fail "denied is not first: $(cat "$work/out")"
grep -q '^moved      tensor and 1 other class: 4 MiB to < 8 MiB$' "$work/out" || fail "tensor: $(cat "$work/out")"
LC_ALL=C grep -q '[^ -~]' "$work/out" && fail "a byte is not escaped: $(cat "$work/out")"
expect_diff 1 "$old" "$new" --allow moved
expect_diff 0 "$old" "$new" --allow moved,denied
expect_diff 1 "$old" "$new" --markdown
grep -q '^| denied | scratch | any size |' "$work/out" || fail "Markdown: $(cat "$work/out")"
echo "ok: regions, newly denied ones first, and --allow"

expect_diff 1 "$old" "$new" --json
python3 - "$LOAM" "$old" "$new" "$work/out" << 'PY' || fail "a witness is not confirmed"
import json, subprocess, sys
loam, old, new, out = sys.argv[1:]
answer = json.load(open(out))
assert answer["undecided"] == 0 and answer["ok"] and not answer["alike"], answer
assert len(answer["regions"]) >= 6, answer["regions"]
for region in answer["regions"]:
    witness = region["witness"]
    tag = bytes.fromhex(witness["tag_hex"]) if "tag_hex" in witness else witness["tag"]
    if b"\n" in (tag if isinstance(tag, bytes) else tag.encode()):
        continue  # a query cannot have a tag with a line break
    words = ["--tag", tag, "--size", str(witness["size"]), "--align", str(witness["align"])]
    words += ["--zero"] if witness["zero"] else []
    for name in ("node", "live", "device", "file", "func", "module", "line"):
        words += ["--" + name, str(witness[name])] if name in witness else []
    for path, side in ((old, "old"), (new, "new")):
        run = subprocess.run([loam, "explain", path, *words, "--json"], stdout=subprocess.PIPE)
        got = json.loads(run.stdout)
        assert got["strategy"]["name"] == region[side], (region, got)
        assert got["chain"] == region[side + "_chain"], (region, got)
    assert region["sizes"]["from"] <= witness["size"] <= region["sizes"]["to"], region
PY
echo "ok: loam explain confirms the witnesses"

# refused WORDS ARGUMENT... - fails unless `loam diff` cannot read one of the policies and its first
# line gives the reason.
refused() {
  local words=$1
  shift
  expect_diff 2 "$@"
  [ ! -s "$work/out" ] || fail "loam diff $*: it says $(cat "$work/out")"
  sed -n 1p "$work/err" | grep -q "$words" || fail "loam diff $*: $(cat "$work/err")"
}
echo 'return loam.policy { pick = function(req) return nosuch end }' > "$work/broken.lua"
head -c 300 "$work/old.image" > "$work/cut.image"
refused 'nowhere.lua: .*No such file' "$old" "$work/nowhere.lua"
refused 'broken.lua:1: .*nosuch' "$work/broken.lua" "$new"
refused 'cut.image: .*300 bytes' "$work/cut.image" "$new"
refused 'is a directory' "$work" "$new"
refused 'OLD may be left out with --pid' "$old"
refused 'no kind of difference' "$old" "$new" --allow everything
expect_diff 2 "$old" "$work/nowhere.lua" --json
grep -q '"ok":false' "$work/out" || fail "JSON of a refusal: $(cat "$work/out")"
echo "ok: what cannot be read is told in one line"

# Each row of a plan contains the conditions of earlier rows. So the rows of a long chain are larger
# than a policy's heap.
{
  echo 'local s = {} for i = 0, 7 do s[i] = loam.host { name = "s" .. i } end'
  echo 'return loam.policy { name = "chain", pick = function(req)'
  for i in $(seq 350); do echo "  if req.size < $((i * 100)) then return s[$((i % 8))] end"; done
  echo '  return s[0] end }'
} > "$work/chain.lua"
"$LOAM" plan "$work/chain.lua" --tag x > "$work/out" 2>&1 || fail "plan: $(tail -3 "$work/out")"
grep -q '^tag x: 351 leaves$' "$work/out" || fail "plan: $(head -3 "$work/out")"
grep -Eq '^34900 to < 35000 +s6 +352$' "$work/out" || fail "plan: $(tail -3 "$work/out")"
echo "ok: the plan of a long chain"
