# strange.sh - programs whose functions have the names of functions that a policy needs: another
# Lua, and another unwinder than the one by which LuaJIT raises errors.
. tests/system/_lib.sh
need "$CC"

build foreign_lua.c -rdynamic && compare_runs "another Lua in the program" "$program"

if "$CC" -x c -o "$work/unwinder" -Wl,--no-as-needed - -l:libunwind.so.8 -l:libgcc_s.so.1 \
    <<< 'int main(void) { return 0; }' 2>/dev/null; then
  compare_runs "libunwind before libgcc" "$work/unwinder"
else
  echo "not tried: libunwind8 is not installed"
fi
