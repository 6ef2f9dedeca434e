# profile.sh - `loam profile`: exact sums in every format, tags of any bytes, differences, ten
# thousand tags, programs that end, and files that cannot be written or read.
. tests/system/_lib.sh
. tests/system/_tagged.sh
need "$CC" python3 grep awk gzip

start
tell take "$(hex tensor.weights)" 3000000 4
tell take "$(hex tensor.bias)" 1500 100
for tag in 'a "quoted" tag' 'two\nlines;' '\377 no \200 text' '<a> & b' 'small.big'; do tell take "$(hex "$tag")" 100 7; done
stopped "$pid"

live=$(live)
profile "$pid" --format collapsed -o "$work/p.collapsed"
[ "$(awk '{ s += $NF } END { printf "%d", s }' "$work/p.collapsed")" = "$live" ] || fail "collapsed is not $live"
profile "$pid" --format speedscope -o "$work/p.json"
profile "$pid" -o "$work/p.pb.gz"
profile "$pid" --format svg --sample inuse_objects -o "$work/p.svg"
python3 - "$work" "$live" <<'PY' || fail "a format is wrong"
import gzip, json, sys, xml.etree.ElementTree as xml
work, live = sys.argv[1], int(sys.argv[2])
text = open(work + "/p.json", encoding="utf-8", errors="strict").read()
shown = json.loads(text)["profiles"]
assert [p["name"] for p in shown] == ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]
assert sum(shown[3]["weights"]) == live == shown[3]["endValue"], live
names = [f["name"] for f in json.loads(text)["shared"]["frames"]]
for name in ('a "quoted" tag', "two\\010lines;", "small.big"):
    assert name in names, names
collapsed = open(work + "/p.collapsed", encoding="utf-8", errors="strict").read().splitlines()
assert any(line.startswith("two\\010lines\\059;") for line in collapsed), collapsed
assert any(line.startswith('a "quoted" tag;') for line in collapsed), collapsed
titles = [t.text for t in xml.parse(work + "/p.svg").iter("{http://www.w3.org/2000/svg}title")]
assert any(t.startswith("tensor.weights\ninuse_objects: 4, ") for t in titles), titles
assert any(t.startswith("<a> & b\ninuse_objects: 7, ") for t in titles), titles
assert gzip.decompress(open(work + "/p.pb.gz", "rb").read())
PY
echo "ok: all formats have the live bytes of loam stats, and tags of any bytes"

kill -CONT "$pid"
tell free "$(hex tensor.weights)"
tell take "$(hex tensor.cache)" 2000000 3
profile "$pid" --base "$work/p.pb.gz" --format collapsed -o "$work/d"
grep -q '^tensor;tensor.weights;large [1-9][0-9]* 0$' "$work/d" || fail "what vanished: $(cat "$work/d")"
grep -q '^tensor;tensor.cache;large 0 [1-9][0-9]*$' "$work/d" || fail "what is new: $(cat "$work/d")"
profile "$pid" --base "$work/p.pb.gz" -o "$work/d.pb.gz"
grep -q "inuse_space .* less than in $work/p.pb.gz" "$work/said" || fail "$(cat "$work/said")"
profile "$pid" --base "$work/p.pb.gz" --format svg -o "$work/d.svg"
grep -q 'no longer there' "$work/d.svg" || fail "the picture lacks what vanished"
(cd "$work" && "$LOAM" profile "$pid" && "$LOAM" profile "$pid") > "$work/said" || fail "$(cat "$work/said")"
[ -s "$work/loam-$pid.001.pb.gz" ] && [ -s "$work/loam-$pid.002.pb.gz" ] || fail "names: $(cat "$work/said")"
echo "ok: a base is subtracted, and a file is not written over"

tell many 10000
# Each command may use 20 s of processor time and 1.5 GB of address space.
for format in pprof speedscope collapsed svg difference; do
  options="--format $format"
  [ "$format" != difference ] || options="--base $work/many.pprof"
  (ulimit -t 20 -v 1500000; exec "$LOAM" profile "$pid" $options -o "$work/many.$format") \
    > "$work/said" 2>&1 || fail "ten thousand tags as $format: $(cat "$work/said")"
  [ "$(wc -c < "$work/many.$format")" -lt 8000000 ] || fail "ten thousand tags as $format: $(wc -c < "$work/many.$format") bytes"
done
grep -q "as much as in $work/many.pprof" "$work/said" || fail "a difference of ten thousand tags: $(cat "$work/said")"
[ "$(grep -c '^many;many.part7;many.part7.number' "$work/many.collapsed")" = 100 ] || fail "a tag is missing"
[ "$(wc -c < "$work/many.svg")" -lt 200000 ] || fail "the picture has $(wc -c < "$work/many.svg") bytes"
echo "ok: ten thousand tags"

# refused STATUS WORDS ARGUMENT... - fails unless the command ends with that status and prints one
# line that gives the reason.
refused() {
  local status=$1 words=$2 got
  shift 2
  "$LOAM" profile "$pid" "$@" > "$work/said" 2> "$work/why"
  got=$?
  [ "$got" = "$status" ] || fail "loam profile $*: exit status $got: $(cat "$work/why")"
  sed -n 1p "$work/why" | grep -q "$words" || fail "loam profile $*: $(cat "$work/why")"
  [ "$status" = 2 ] || [ "$(wc -l < "$work/why")" = 1 ] || fail "loam profile $*: $(cat "$work/why")"
}
refused 1 '/dev/full: No space left' -o /dev/full
refused 1 'No such file' -o "$work/nowhere/file"
refused 1 'Is a directory' -o "$work"
refused 1 'nowhere.pb: No such file' --base "$work/nowhere.pb"
refused 1 'p.svg: no pprof profile: ' --base "$work/p.svg"
refused 1 'Is a directory' --base "$work"
head -c 100 "$work/p.pb.gz" > "$work/cut.pb.gz"
refused 1 'cut.pb.gz: no pprof profile: it is cut off' --base "$work/cut.pb.gz"
head -c 300000000 /dev/zero | gzip -1 > "$work/bomb.pb.gz"
refused 1 'bomb.pb.gz: no pprof profile: it has more than 256 MiB' --base "$work/bomb.pb.gz"
refused 2 "did you mean 'svg'" --format svgs
refused 2 'is not possible; write one of' --sample x
"$LOAM" profile "$pid" --format svg -o - > /dev/full 2> "$work/why" && fail "a full disk is no failure"
grep -q 'cannot write: No space left' "$work/why" || fail "$(cat "$work/why")"
[ -c /dev/full ] || fail "/dev/full is no device any more"
ls "$work" | grep -q '\.tmp$' && fail "a temporary file is left"
echo "ok: what cannot be read or written is told in one line"

# A program ends while `loam profile` reads it. The result is a profile, the last figures, or one
# line that gives the reason.
for _ in 1 2 3 4; do
  kill -KILL "$pid" 2> "$work/gone"
  wait "$pid" 2> "$work/gone"
  start
  tell many 2000
  kill -KILL "$pid" &
  killer=$!
  "$LOAM" profile "$pid" -o "$work/dying.pb" > "$work/said" 2> "$work/why"
  status=$?
  wait "$killer"
  [ "$status" -le 1 ] || fail "exit status $status: $(cat "$work/why")"
  [ "$status" = 0 ] || [ "$(wc -l < "$work/why")" = 1 ] || fail "exit status $status: $(cat "$work/why")"
done
echo "ok: a program that ends while it is read"
