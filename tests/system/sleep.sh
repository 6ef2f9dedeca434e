# sleep.sh - commands make a program's device memory sleep and wake, on the stand-in for a GPU's
# driver. After that it has its old addresses and contents. The JSON has the form of its schema.
. tests/system/_lib.sh
need python3
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
[ -e "${LOAM_STANDIN:-}" ] || skip "this build has no stand-in for a driver"
python3 -c 'import jsonschema' 2> "$work/why" || skip "python3-jsonschema is not installed"
export LOAM_CUDA_DRIVER=$LOAM_STANDIN STANDIN_LOG=$work/standin.log STANDIN_MEMORY=64M

cat > "$policy" <<'LUA'
local weights = loam.device { name = "weights", pool = "sleep" }
local device, host = loam.device { name = "device" }, loam.host {}
return loam.policy {
  name = "sleep",
  pick = function(req)
    if req.tag:under("model") then return weights:or_else(host) end
    if req.tag:under("other") then return device:or_else(host) end
    return host
  end,
}
LUA
"$LOAM" check "$policy" > "$work/check" 2>&1 ||
  { grep -q 'no GPU support' "$work/check" && skip "this build has no GPU support"; } ||
  fail "$(cat "$work/check")"

cat > "$work/sleeper.py" <<'PYTHON'
import ctypes, os, sys, time
folder = sys.argv[1]
loam, cuda = ctypes.CDLL(None), ctypes.CDLL(os.environ["LOAM_CUDA_DRIVER"])
loam.loam_site_get.restype = loam.loam_device_alloc.restype = ctypes.c_void_p
loam.loam_device_alloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
loam.loam_site_get.argtypes = [ctypes.c_char_p]
context, size = ctypes.c_void_p(), 3 << 20
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
blocks = []
for tag in b"model.a", b"model.b", b"other":
    at = ctypes.c_ulonglong(loam.loam_device_alloc(loam.loam_site_get(tag), size, None))
    cuda.cuMemsetD8_v2(at, len(blocks) + 1, ctypes.c_size_t(size))
    blocks.append(at)
open(folder + "/ready", "w").close()
while not os.path.exists(folder + "/go"):
    time.sleep(0.05)
for i, at in enumerate(blocks):
    there = ctypes.create_string_buffer(size)
    if cuda.cuMemcpyDtoH_v2(there, at, ctypes.c_size_t(size)) or there.raw != bytes([i + 1]) * size:
        sys.exit(f"block {i}: other contents")
PYTHON
(LOAM_SERVICE=1 exec_under_policy python3 "$work/sleeper.py" "$work") > "$work/log" 2> "$work/err" &
pid=$!
children=$pid
await "the program does not start" test -e "$work/ready"

# says WORDS COMMAND... - fails unless the command ends with 0 and writes exactly these words.
says() {
  local words=$1 said
  shift
  said=$("$LOAM" "$@" 2>&1) || fail "loam $*: $said"
  [ "$said" = "$words" ] || fail "loam $*: $said"
}
# refuses WORDS COMMAND... - fails unless the command ends with 1 and names the reason.
refuses() {
  local words=$1 status=0
  shift
  "$LOAM" "$@" > "$work/out" 2>&1 || status=$?
  [ "$status" = 1 ] || fail "loam $*: status $status: $(cat "$work/out")"
  grep -qF "$words" "$work/out" || fail "loam $*: $(cat "$work/out")"
}
# valid COMMAND... - fails unless its JSON has the form of its schema.
valid() {
  "$LOAM" "$@" --json > "$work/out" 2> "$work/why" || true
  python3 -c 'import json, sys, jsonschema
jsonschema.validate(json.load(open(sys.argv[1])), json.load(open(sys.argv[2])))' \
    "$work/out" "lua/loam/command/schema/$1.json" > "$work/why" 2>&1 ||
    fail "loam $*: $(cat "$work/out"): $(tail -n 20 "$work/why")"
}

says "8 MiB asleep" sleep "$pid" --tag model
says "8 MiB was asleep already" sleep "$pid" --tag model
"$LOAM" stats "$pid" > "$work/out" 2>&1
grep -q 'model.a *weights (device) .* ASLEEP\|model.a *weights (device) .* 4 MiB' "$work/out" ||
  fail "loam stats: $(cat "$work/out")"
grep -q '^TAG .* ASLEEP' "$work/out" || fail "loam stats: $(cat "$work/out")"
valid stats "$pid"
grep -q '"asleep_bytes":4194304' "$work/out" || fail "no bytes are asleep: $(cat "$work/out")"
"$LOAM" top "$pid" --count 1 --every 100ms > "$work/out" 2>&1
grep -q ' live (8 MiB asleep) in ' "$work/out" && grep -q '^model.a *4 MiB *4 MiB ' "$work/out" ||
  fail "loam top: $(cat "$work/out")"
valid top "$pid" --count 1 --every 100ms
"$LOAM" metrics > "$work/out" 2>&1
grep -q "^loam_asleep_bytes{pid=\"$pid\",.*tag=\"model.a\",strategy=\"weights\",kind=\"device\"} 4194304$" \
  "$work/out" || fail "loam metrics: $(grep asleep "$work/out")"
says "4 MiB awake" wake "$pid" --tag model.a
says "4 MiB awake" wake "$pid"
says "0 B awake" wake "$pid"

mkdir "$work/a folder"
says "4 MiB asleep" sleep "$pid" --tag model.b --to "$work/a folder"
[ -z "$(ls -A "$work/a folder")" ] || fail "a file has a name: $(ls -A "$work/a folder")"
valid wake "$pid"
valid sleep "$pid" --tag model
says "8 MiB awake" wake "$pid"

refuses "strategy 'device' is not loam.device { pool = \"sleep\" }" sleep "$pid" --tag other
refuses "has no device memory of tag 'nosuch', or of a tag under it, that can sleep" \
  sleep "$pid" --tag nosuch
refuses "no file can be made in $work/absent: No such file" \
  sleep "$pid" --tag model --to "$work/absent"
valid sleep "$pid" --tag nosuch
refuses "does not run under loam" sleep 1 --tag model

touch "$work/go"
wait "$pid" || fail "the program: $(cat "$work/err")"
children=
! grep ' violation: ' "$STANDIN_LOG" || fail "the stand-in saw violations"
echo "ok: memory slept and woke by commands, with its contents"
