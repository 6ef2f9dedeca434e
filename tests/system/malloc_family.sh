# malloc_family.sh - runs tests/bindings/test_preload.c, which calls each function of the malloc
# family: plain, to check it against glibc, and under a policy.
. tests/system/_lib.sh
need "$CC"

program=$work/test_preload
"$CC" -O1 -g -Wall -fno-builtin -D_GNU_SOURCE tests/bindings/test_preload.c -o "$program" -lcmocka ||
  fail "test_preload.c does not compile"
"$program" > "$work/out" 2>&1 || { cat "$work/out"; fail "glibc itself differs from what is tested"; }
run_under_policy "$program" || fail "the malloc family"
