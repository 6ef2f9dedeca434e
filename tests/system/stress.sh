# stress.sh - the malloc stressor of stress-ng, which verifies the contents of its blocks.
. tests/system/_lib.sh
need stress-ng

run() {
  "$@" stress-ng --malloc 2 --malloc-bytes 64M --malloc-max 8192 --malloc-touch \
    --malloc-pthreads 2 --verify --timeout 4 --temp-path "$work" > "$work/out" 2>&1
  status=$?
  [ "$status" = 0 ] || { cat "$work/out"; fail "stress-ng ended with $status"; }
  grep -q -i 'successful run completed\|passed: *2' "$work/out" || { cat "$work/out"; fail "stress-ng did not complete"; }
  ! grep -q -i 'fail: \|corrupt' "$work/out" || { cat "$work/out"; fail "stress-ng found an error"; }
}
run run_under_policy
echo "ok: stress-ng --malloc --verify"
