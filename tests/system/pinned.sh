# pinned.sh - unmodified programs whose buffers a policy pins, on the stand-in for a GPU's driver.
# The stand-in allocates while it is called, as a driver does.
. tests/system/_lib.sh
need "$CC"
[ -e "${LOAM_STANDIN:-}" ] || skip "this build has no stand-in for a driver"
export LOAM_CUDA_DRIVER=$LOAM_STANDIN STANDIN_LOG=$work/standin.log

cat > "$policy" <<'LUA'
local staging = loam.pinned { name = "staging", limit = 16 * loam.MiB }
local rest    = loam.host { name = "rest" }

return loam.policy {
  name = "pinned",
  pick = function(req)
    if req.size >= 256 then return staging:or_else(rest) end
    return rest
  end,
  tests = {
    { tag = "malloc.any", size = 256, expect = staging },
    { tag = "malloc.any", size = 100, expect = rest },
  },
}
LUA
"$LOAM" check "$policy" > "$work/check" 2>&1 ||
  { grep -q 'no GPU support' "$work/check" && skip "this build has no GPU support"; } ||
  fail "$(cat "$work/check")"

build threads.c && compare_runs "threads that free what others allocated" "$program"
build forks.c && compare_runs "fork, vfork and spawn from a busy process" "$program"
seq 1 60000 | sort -R --random-source=/dev/zero > "$work/numbers"
compare_runs "sort" sort -n --parallel=2 "$work/numbers"

registered=$(awk \
  '/ calls: cuMemHostRegister / { n += $NF } END { print n + 0 }' "$STANDIN_LOG")
[ "$registered" -gt 8 ] || fail "only $registered regions were registered"
! grep ' violation: ' "$STANDIN_LOG" || fail "the stand-in saw violations"
echo "ok: $registered regions were registered, and nothing was violated"
