# profile_readers.sh - other programs read the profiles of `loam profile`: Go's pprof, the npm
# packages pprof-format and speedscope, and Chromium.
#
# tests/install installs the npm packages into build-npm/ if npm is installed and reaches its
# registry. It does not install Chromium. The test names a missing program, and skips its part.
. tests/system/_lib.sh
. tests/system/_tagged.sh
need python3 grep sed timeout

start
tell take "$(hex tensor.weights)" 3000000 4
tell take "$(hex tensor.bias)" 1500 100
tell take "$(hex 'a "quoted"\ntag \377')" 100 7
profile "$pid" -o "$work/base.pb.gz"
tell free "$(hex tensor.weights)"
tell take "$(hex tensor.cache)" 2000000 3
stopped "$pid"
live=$(live)
profile "$pid" -o "$work/now.pb.gz"
profile "$pid" -o "$work/diff.pb.gz" --base "$work/base.pb.gz"
profile "$pid" -o "$work/now.json" --format speedscope
profile "$pid" -o "$work/diff.json" --format speedscope --base "$work/base.pb.gz"
profile "$pid" -o "$work/now.collapsed" --format collapsed
profile "$pid" -o "$work/now.svg" --format svg
profile "$pid" -o "$work/diff.svg" --format svg --base "$work/base.pb.gz"

# ---- Go's pprof

# pprof ARGUMENT... - runs pprof. Its output goes to $work/said. Fails if it complains.
pprof() {
  HOME=$work PPROF_TMPDIR=$work timeout 120 "$go" tool pprof "$@" > "$work/said" 2> "$work/why" < /dev/null ||
    fail "pprof $*: $(cat "$work/why")"
  [ ! -s "$work/why" ] || fail "pprof $*: $(cat "$work/why")"
}
# web - fails unless the pages of pprof -http show the profile.
web() {
  local port
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  # pprof is a child of `go tool`, so `go tool` gets its own process group.
  HOME=$work setsid "$go" tool pprof -http="127.0.0.1:$port" -no_browser "$work/now.pb.gz" > "$work/web" 2>&1 < /dev/null &
  local server=$!
  for _ in $(seq 300); do
    curl -sf "http://127.0.0.1:$port/ui/flamegraph" > "$work/page" && break
    kill -0 "$server" 2> "$work/gone" || break
    sleep 0.1
  done
  curl -sf "http://127.0.0.1:$port/ui/top?si=inuse_objects" > "$work/top"
  kill -- "-$server" 2> "$work/gone"
  grep -q 'tensor.cache' "$work/page" || fail "pprof -http: $(cat "$work/web")"
  grep -q 'tensor.bias' "$work/top" || fail "pprof -http: $(head -c 1000 "$work/top")"
}
go=$(command -v go || ls /usr/lib/go-*/bin/go 2> "$work/why" | tail -n 1)
if [ -n "$go" ]; then
  pprof -raw "$work/now.pb.gz"
  grep -q '^alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes\[dflt\]' "$work/said" || fail "types: $(cat "$work/said")"
  sum=$(awk '/^Locations/ { exit } /^ +[0-9]+ +[0-9]+ +[0-9]+ +[0-9]+:/ { sub(":", "", $4); s += $4 } END { printf "%d", s }' "$work/said")
  [ "$sum" = "$live" ] || fail "pprof counts $sum bytes, loam stats $live"
  pprof -top -unit=B -nodefraction=0 "$work/now.pb.gz"
  grep -Eq '^ +0 .* tensor.cache$' "$work/said" || fail "a tag is innermost: $(cat "$work/said")"
  grep -Eq '^ +[1-9][0-9]*B .* large$' "$work/said" || fail "no strategy is innermost: $(cat "$work/said")"
  grep -Eq '^File: tagged$' "$work/said" || fail "no program: $(cat "$work/said")"
  pprof -tags "$work/now.pb.gz"
  grep -Eq ' strategy: ' "$work/said" && grep -Eq ': tensor.cache$' "$work/said" || fail "labels: $(cat "$work/said")"
  pprof -top -unit=B -nodefraction=0 -tagfocus=tag=tensor.bias "$work/now.pb.gz"
  grep -q 'tensor.cache' "$work/said" && fail "tagfocus: $(cat "$work/said")"
  pprof -top -unit=B -nodefraction=0 -diff_base "$work/base.pb.gz" "$work/now.pb.gz"
  grep -Eq ' -[0-9]+B .* tensor.weights$' "$work/said" || fail "diff_base: $(cat "$work/said")"
  # pprof's difference and the difference of --base are equal.
  grep -E '^ .* (tensor|large|small)' "$work/said" | awk '{ print $4, $NF }' | sort > "$work/theirs"
  pprof -top -unit=B -nodefraction=0 "$work/diff.pb.gz"
  grep -E '^ .* (tensor|large|small)' "$work/said" | awk '{ print $4, $NF }' | sort > "$work/ours"
  cmp -s "$work/theirs" "$work/ours" || fail "differences: $(diff "$work/theirs" "$work/ours")"
  if command -v curl > "$work/why"; then web; else echo "skipped: pprof -http: curl is not installed"; fi
  echo "ok: go tool pprof -raw, -top, -tags, -tagfocus, -diff_base, -http"
else
  echo "skipped: go tool pprof: golang-1.19-go is not installed"
fi

# ---- npm's packages

modules=$top/build-npm/node_modules
if command -v node > "$work/why" && [ -d "$modules/pprof-format" ]; then
  cat > "$work/decode.cjs" <<'JS'
const { Profile } = require(process.argv[2]), fs = require("fs"), zlib = require("zlib");
const profile = Profile.decode(zlib.gunzipSync(fs.readFileSync(process.argv[3])));
let sum = 0n;
for (const sample of profile.sample) sum += BigInt(sample.value[3]);
console.log(String(sum), profile.stringTable.strings.includes('a "quoted"\ntag \ufffd') ||
  profile.stringTable.strings.includes('a "quoted"\ntag \u00ff'));
JS
  node "$work/decode.cjs" "$modules/pprof-format" "$work/now.pb.gz" > "$work/said" 2>&1 || fail "pprof-format: $(cat "$work/said")"
  [ "$(cat "$work/said")" = "$live true" ] || fail "pprof-format, of $live: $(cat "$work/said")"
  echo "ok: pprof-format"
else
  echo "skipped: pprof-format: tests/install could not install it from npm"
fi

pages=$modules/speedscope/dist/release
if [ -d "$pages" ] && python3 -c 'import jsonschema' 2> "$work/why"; then
  for file in now diff; do
    python3 - "$pages/file-format-schema.json" "$work/$file.json" <<'PY' || fail "$file.json against its schema"
import json, jsonschema, sys
jsonschema.validate(json.load(open(sys.argv[2])), json.load(open(sys.argv[1])))
PY
  done
  echo "ok: the schema of speedscope"
else
  echo "skipped: the schema of speedscope: tests/install could not install it from npm"
fi

# ---- Chromium

# browse FILE.html|URL - writes the text of a page, after its scripts have run, to $work/page.
browse() {
  HOME=$work timeout 120 chromium --headless --no-sandbox --disable-gpu --allow-file-access-from-files \
    --user-data-dir="$work/chromium" --virtual-time-budget=10000 --dump-dom "$1" > "$work/dom" 2> "$work/why"
  sed 's/<[^>]*>/ /g' "$work/dom" | tr -s ' \n' ' ' > "$work/page"
}
# in_speedscope FILE WORDS - opens the file in speedscope as speedscope's own command does. Fails
# unless the page shows the words.
in_speedscope() {
  python3 - "$1" > "$work/load.js" <<'PY'
import base64, json, os, sys
data = base64.b64encode(open(sys.argv[1], "rb").read()).decode()
print("speedscope.loadFileFromBase64(%s, %s)" % (json.dumps(os.path.basename(sys.argv[1])), json.dumps(data)))
PY
  browse "file://$pages/index.html#localProfilePath=$work/load.js"
  grep -q "$2" "$work/page" && ! grep -q 'went wrong' "$work/page" || fail "speedscope, $1: $(cat "$work/page")"
}
if command -v chromium > "$work/why" && browse 'data:text/html,<p>hello' && grep -q hello "$work/page"; then
  browse "file://$work/now.svg"
  grep -q 'weights\|cache' "$work/page" || fail "the picture: $(cat "$work/page")"
  grep -qi 'error' "$work/page" && fail "the picture: $(cat "$work/page")"
  browse "file://$work/diff.svg"
  grep -q 'no longer there' "$work/page" || fail "the picture of a difference: $(cat "$work/page")"
  echo "ok: Chromium shows the pictures"
  if [ -d "$pages" ]; then
    in_speedscope "$work/now.json" 'inuse_space (4/4)'
    in_speedscope "$work/diff.json" 'inuse_space: more (7/8)'
    in_speedscope "$work/now.pb.gz" 'now.pb.gz - speedscope'
    in_speedscope "$work/now.collapsed" 'now.collapsed - speedscope'
    echo "ok: speedscope in Chromium"
  fi
else
  echo "skipped: Chromium is not installed, or does not run here"
fi
