# advice.sh - a program calls madvise for huge pages. `huge = false` in the policy wins over that
# call, and loam changes nothing else.
. tests/system/_lib.sh
need "$CC"
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
build advises.c
"$program" > "$work/plain" || skip "this kernel gives no advice for huge pages"
grep -q '^mapping: status 0, huge 1$' "$work/plain" || skip "this kernel has no huge pages"

# with_options OPTIONS - runs the program under a policy whose strategy has these options.
with_options() {
  echo "local all = loam.host { name = 'all', $1 }" > "$work/advice.lua"
  echo "return loam.policy { name = 'advice', pick = function() return all end }" >> "$work/advice.lua"
  "$LOAM" run --policy "$work/advice.lua" -- "$program" > "$work/out" 2> "$work/err" || fail "$(cat "$work/err")"
}
says() { [ "$(cat "$work/out")" = "$1" ] || fail "not '$1': $(cat "$work/out")"; }

with_options "huge = false"
says "$(printf 'block: status 0, huge 0\nfrom before: huge 0\nmapping: status 0, huge 1')"
echo "ok: huge = false holds, for the memory of loam alone"
with_options "align = 64"
says "$(cat "$work/plain")"
with_options 'huge = "thp"'
says "$(cat "$work/plain")"
echo "ok: without it the program's advice holds"
