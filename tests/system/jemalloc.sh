# jemalloc.sh - a program that is linked with jemalloc, and calls mallocx, dallocx and the others
# beside malloc and free, has all its memory from loam, but for arenas of its own.
. tests/system/_lib.sh
need "$CC"
ldconfig=$(command -v ldconfig || echo /sbin/ldconfig)
"$ldconfig" -p | grep -q 'libjemalloc\.so\.2' || skip "libjemalloc.so.2 is not installed"
build jemalloc.c -fno-builtin -Wl,--no-as-needed -l:libjemalloc.so.2

"$program" > "$work/out" 2>&1 || fail "jemalloc itself differs from what is tested: $(cat "$work/out")"
run_under_policy "$program" > "$work/out" 2>&1 || fail "under a policy: $?: $(cat "$work/out")"
echo "ok: blocks of malloc and of mallocx, under a policy"
LOAM_GUARD=1 run_under_policy "$program" > "$work/out" 2>&1 || fail "guarded: $?: $(cat "$work/out")"
echo "ok: each block guarded"

run_under_policy "$program" twice > "$work/out" 2>&1 && fail "a block is freed twice, and nobody says so"
grep -q "double free of .* at jemalloc+0x" "$work/out" || fail "a wrong free names no place: $(cat "$work/out")"
echo "ok: a double free by dallocx is found"
