# pages.sh - `loam pages` draws a stopped process whose memory is known. Its figures agree with
# `loam stats` and with the kernel, its picture is XML, and a process of 100 GiB needs no more
# space.
. tests/system/_lib.sh
need "$CC" python3
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
build known_layout.c
cat > "$policy" <<'LUA'
local small, large = loam.host { name = "small" }, loam.host { name = "la<r>ge" }
return loam.policy {
  name = "halves",
  pick = function(req)
    if req.size >= 8 * loam.MiB then return large end
    return small
  end,
}
LUA

# standing WORD... - starts the program, and stops it when it has its memory.
standing() {
  started "$LOAM" run --policy "$policy" -- "$program" "$@"
  stopped "$pid"
}

cat > "$work/compare.py" <<'PY'
"""Compares the figures of `loam pages` with those of `loam stats` and with what known_layout.c does."""
import json
import sys
import xml.etree.ElementTree as ElementTree

pages, stats = (json.load(open(path)) for path in sys.argv[1:3])
picture = ElementTree.parse(sys.argv[3]).getroot()
MIB = 1 << 20


def same(what: str, a: float, b: float, slack: float = 0) -> None:
    if abs(a - b) > slack:
        sys.exit(f"{what}: {a}, not {b}")


groups = {group.get("strategy", group["what"]): group for group in pages["groups"]}
small, large, own = groups["small"], groups["la<r>ge"], groups["metadata"]
same("live bytes", pages["live_bytes"], stats["live_bytes"])
zeros = 1 * MIB if "huge_by_mapping" in pages else 0  # an old kernel counts pages of zeros
same("resident bytes", pages["resident_bytes"], stats["resident_own_bytes"], zeros)
same("metadata", own["bytes"] + pages["map_bytes"], stats["metadata_bytes"])
same("regions", sum(group["bytes"] for group in pages["groups"]) - own["bytes"],
     stats["region_bytes"])
for name in "live", "absent", "cached", "resident", "swapped", "huge", "returned":
    for group in pages["groups"]:
        sum_of_cells = sum(cell.get(name, 0) for cell in group["cells"])
        wanted = group[f"{name}_bytes"] - (group["absent_bytes"] if name == "live" else 0)
        same(f"{name} of the cells", sum_of_cells, wanted)
large_row = next(row for row in stats["rows"] if row["strategy"] == "la<r>ge")
same("live of large", large["live_bytes"], large_row["live_bytes"])
same("touched half", large["resident_bytes"], 32 * MIB, MIB)
same("untouched half", large["absent_bytes"], large["live_bytes"] - 32 * MIB, MIB)
same("the largest block", pages["largest"][0]["bytes"] % (1 << 30), 64 * MIB % (1 << 30), 4096)
live = [cell for cell in small["cells"]
        if cell["kind"] == "small" and cell["bytes"] == cell.get("resident") and "live" in cell]
half = [cell for cell in live if abs(cell["live"] / cell["bytes"] - .5) < .2]
if pages["cell_bytes"] == pages["slot_bytes"] and len(half) < .9 * len(live):
    sys.exit(f"{len(half)} of {len(live)} cells are half full")
text = " ".join(picture.itertext())
for words in "la<r>ge", "small", "known_layout, process", "policy halves, hash ", "live, not there":
    if words not in text:
        sys.exit(f"no '{words}' in the picture")
if any(node.tag.endswith(("script", "image", "use")) for node in picture.iter()):
    sys.exit("the picture needs more than itself")
print(pages["cell_bytes"], len([cell for group in pages["groups"] for cell in group["cells"]]))
PY

# shows - fails unless the picture and the figures of the process agree with `loam stats`.
shows() {
  "$LOAM" pages "$pid" --json > "$work/pages" || fail "pages --json"
  "$LOAM" stats "$pid" --json > "$work/stats" || fail "stats --json"
  "$LOAM" pages "$pid" -o "$work/out.svg" > "$work/line" || fail "pages -o"
  grep -Eq "^$work/out.svg: [0-9,]+ cells of .* in memory, [0-9]+% of it live$" "$work/line" ||
    fail "words: $(cat "$work/line")"
  grep -Eq "^la<r>ge +[0-9?]+ +3[12]\S* MiB " "$work/line" || fail "no row: $(cat "$work/line")"
  python3 "$work/compare.py" "$work/pages" "$work/stats" "$work/out.svg" > "$work/scale" ||
    fail "figures: see above"
}

standing
shows
[ "$(cut -d ' ' -f 1 "$work/scale")" = 65536 ] || fail "scale: $(cat "$work/scale")"
"$LOAM" pages "$pid" -o - > "$work/again.svg" || fail "pages -o -"
head -c 5 "$work/again.svg" | grep -q '<svg ' || fail "no picture on standard output"
(cd "$work" && "$LOAM" pages "$pid") > "$work/line" || fail "pages without -o"
[ -s "$work/known_layout-$pid.svg" ] || fail "no file of that name: $(cat "$work/line")"
"$LOAM" pages "$pid" -o "$work/absent/x.svg" 2> "$work/err" && fail "a folder that is not there"
[ "$(wc -l < "$work/err")" = 1 ] || fail "more than a line: $(cat "$work/err")"
grep -q "cannot write $work/absent/x.svg: No such file" "$work/err" || fail "$(cat "$work/err")"
if [ -w /dev/full ]; then
  "$LOAM" pages "$pid" -o /dev/full > "$work/line" 2> "$work/err" && fail "a full disk"
  grep -q 'cannot write /dev/full: No space left' "$work/err" || fail "$(cat "$work/err")"
fi
echo old > "$work/old.svg"
(ulimit -f 1; "$LOAM" pages "$pid" -o "$work/old.svg" > "$work/line" 2> "$work/err") && fail "no room"
[ "$(cat "$work/old.svg")" = old ] || fail "a picture that was not written has ended an older one"
killed
"$LOAM" pages "$pid" > "$work/line" 2>&1 && fail "a process that has ended"
grep -q 'no such process' "$work/line" || fail "words: $(cat "$work/line")"
"$LOAM" pages $$ > "$work/line" 2>&1 && fail "a shell without loam: $(cat "$work/line")"
grep -q 'it does not run under loam' "$work/line" || fail "words: $(cat "$work/line")"
echo "ok: the picture shows what the process has"

standing 100
"$LOAM" pages "$pid" --json > "$work/pages"
"$LOAM" pages "$pid" -o "$work/out.svg" > "$work/line" || fail "a process of 100 GiB"
read -r cell cells < <(python3 -c '
import json, sys
pages = json.load(open(sys.argv[1]))
assert pages["live_bytes"] > 100 << 30, pages["live_bytes"]
print(pages["cell_bytes"], sum(len(group["cells"]) for group in pages["groups"]))' "$work/pages")
[ "$cell" = 33554432 ] || fail "a cell is $cell bytes"
[ "$cells" -le 8300 ] || fail "$cells cells"
[ "$(wc -c < "$work/out.svg")" -le 1500000 ] || fail "$(wc -c < "$work/out.svg") bytes"
killed
echo "ok: a process of 100 GiB has cells of 32 MiB"
