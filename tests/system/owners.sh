# owners.sh - the tag of a block is the module that called malloc, and a scope of the C interface
# wins over it.
. tests/system/_lib.sh
need "$CC"
[ -e "${LOAM_BUILD:-}/libloam.so" ] || skip "no libloam.so in LOAM_BUILD"

build plugin.c -shared -fPIC
cp "$program" "$work/first.so"
cp "$program" "$work/second-plugin.so.2.3"
build owners.c -L"$LOAM_BUILD" -lloam -Wl,-rpath,"$LOAM_BUILD" -rdynamic
run_under_policy "$program" "$work/first.so" "$work/second-plugin.so.2.3" "$work/first.so" || fail "owners"
