# python.sh - Debian's Python with NumPy and threads, with and without its own allocator of small
# objects.
. tests/system/_lib.sh
python=/usr/bin/python3
[ -x "$python" ] || skip "$python is not installed"
"$python" -c 'import numpy' 2>/dev/null || skip "python3-numpy is not installed"

cat > "$work/script.py" <<'SCRIPT'
import json, subprocess, sys, threading
import numpy as np
rng = np.random.default_rng(1)
a = rng.integers(0, 100, (300, 300)).astype(float)
print((a @ a).sum(), np.sort(a, axis=None)[::9000])
big = np.zeros(3_000_000); big[::7] = 1; print(big.sum(), np.concatenate([big, big]).size)
out = [None] * 4
def work(i):
    x = np.arange(200_000 * (i + 1), dtype=np.int64)
    for _ in range(10):
        x = np.sort((x * 7919 + i) % 100_003)
    out[i] = int(x[::1000].sum())
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(out)
d = {str(i): list(range(i % 20)) for i in range(20_000)}
print(len(json.dumps(d)), sum(len(v) for v in json.loads(json.dumps(d)).values()))
print(subprocess.run([sys.executable, "-c", "print(sum(range(1000)))"], capture_output=True, text=True).stdout)
try:
    np.empty(1 << 60, dtype=np.uint8)
except MemoryError as e:
    print("MemoryError", e)
sys.exit(5)
SCRIPT
compare_runs "python3 with NumPy and threads" "$python" "$work/script.py"
export PYTHONMALLOC=malloc
compare_runs "the same with PYTHONMALLOC=malloc" "$python" "$work/script.py"

# Python maps memory for its small objects by itself, unless PYTHONMALLOC=malloc is set.
unset PYTHONMALLOC
cat > "$work/objects.py" <<'SCRIPT'
import time
objects = [{"n": i} for i in range(200_000)]
print("up", flush=True)
time.sleep(120)
SCRIPT

# resident OPTION... - starts the program. Prints how many MiB of its resident memory belong to
# loam, and how many to others.
resident() {
  : > "$work/up"
  "$LOAM" run --policy "$policy" "$@" -- "$python" "$work/objects.py" > "$work/up" &
  children=$!
  for _ in $(seq 600); do [ -s "$work/up" ] && break; sleep 0.1; done
  "$LOAM" stats "$children" --json > "$work/stats" || fail "no answer"
  "$LOAM" stats "$children" | grep -q "^resident .* MiB, of which .* are loam's; files .*, stacks .*, JIT code .*, others" ||
    fail "no line"
  kill "$children"
  wait "$children" 2> /dev/null
  children=
  "$python" -c 'import json, sys
s = json.load(open(sys.argv[1])); own, all = s["resident_own_bytes"], s["resident_bytes"]
others = all - own - s["resident_file_bytes"] - s["resident_stack_bytes"] - s["resident_code_bytes"]
print(own >> 20, others >> 20)' "$work/stats"
}
resident > "$work/plain"
resident --python-malloc > "$work/all"
"$python" -c 'import json, sys
s = json.load(open(sys.argv[1]))
assert s["resident_file_bytes"] > 2 << 20 and 0 < s["resident_stack_bytes"] < 8 << 20, s
assert s["resident_code_bytes"] == 0, s' "$work/stats" || fail "files, stacks and code"
read -r own others < "$work/plain"
[ "$own" -lt 20 ] && [ "$others" -ge 40 ] || fail "plain: $own MiB of loam, $others of others"
read -r own others < "$work/all"
[ "$own" -ge 40 ] || fail "--python-malloc: $own MiB of loam, $others of others"
echo "ok: memory that Python maps by itself is told, and is seen with --python-malloc"
