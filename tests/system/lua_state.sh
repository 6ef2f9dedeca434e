# lua_state.sh - the allocator of bindings/lua/README.md gives a Lua state memory of a tag: in Lua
# 5.4 and in LuaJIT, with a limit, and without a block left at the end.
. tests/system/_lib.sh
need "$CC" pkg-config
: "${LOAM_BUILD:?the folder of the build; ctest sets it}"

{
  printf '#include <lauxlib.h>\n#include <loam.h>\n#include <lualib.h>\n#include <stdio.h>\n'
  # shellcheck disable=SC2016
  sed -n '/^```c$/,/^```$/{/^```/!p}' bindings/lua/README.md
  cat << 'C'

static const char script[] =
    "local kept = {} "
    "for i = 1, 100000 do local gone = { tostring(i) } end "
    "local co = coroutine.wrap(function() for i = 1, 1e7 do kept[i] = 'text ' .. i end end) "
    "local ok, words = pcall(co) kept = nil collectgarbage() "
    "assert(not ok and words:find('not enough memory'), words)";

static void add(void *sum, const loam_stats_row *row) {
  if (row->tag[0] == 'l' && row->tag[1] == 'u') *(unsigned long *)sum += row->live_blocks;
}

int main(void) {
  unsigned long left = 0;
  loam_owner_info owner;
  lua_State *L = lua_newstate(allocate, loam_site_get("lua.script"));
  if (!L || loam_owner(L, &owner)) return fprintf(stderr, "no state: %s\n", loam_error()), 1;
  luaL_openlibs(L);
  if (luaL_dostring(L, script)) return fprintf(stderr, "%s\n", lua_tostring(L, -1)), 2;
  printf("%s %s ", owner.tag, owner.strategy);
  lua_close(L);
  loam_stats_by(LOAM_BY_TAG, add, &left);
  printf("%lu\n", left);
}
C
} > "$work/state.c"
cat > "$work/limited.lua" << 'LUA'
local scripts = loam.host { name = "scripts", limit = 4 * loam.MiB }
local plain = loam.host { name = "plain" }
return loam.policy {
  name = "limited",
  pick = function(req)
    if req.tag:under("lua") then return scripts end
    return plain
  end,
}
LUA
export LOAM_CONTROL=0 LOAM_POLICY=$work/limited.lua

ran=0
for lua in lua5.4 luajit; do
  pkg-config --exists "$lua" || continue
  # shellcheck disable=SC2046
  "$CC" -Wall -Wextra -Icore/include "$work/state.c" -o "$work/state" -L"$LOAM_BUILD" -lloam \
    $(pkg-config --cflags --libs "$lua") -Wl,-rpath,"$LOAM_BUILD" 2> "$work/log" ||
    fail "$lua: $(cat "$work/log")"
  said=$("$work/state" 2>&1) || fail "$lua: $said"
  [ "$said" = "lua.script scripts 0" ] || fail "$lua: $said"
  echo "ok: $lua"
  ran=$((ran + 1))
done
[ "$ran" -gt 0 ] || skip "no headers of Lua 5.4 or LuaJIT"
