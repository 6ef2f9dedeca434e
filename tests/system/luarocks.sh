# luarocks.sh - the rock for Lua 5.4 and for LuaJIT: linted, built, installed in a tree, used, removed.
. tests/system/_lib.sh
need luarocks lua5.4 cmake
[ -f /usr/include/lua5.4/lua.h ] || skip "liblua5.4-dev is not installed"
rock=bindings/lua/loam-scm-1.rockspec
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
luarocks lint "$rock" || fail "luarocks lint"

# luarocks builds in the folder of the sources, so this test gives it a copy of the files of a
# build.
mkdir "$work/loam"
cp -r CMakeLists.txt LICENSE bindings cmake core lua "$work/loam"
cd "$work/loam" || fail "no folder"

cat > "$work/use.lua" <<'LUA'
local loam = require("loam")
local text = [[
local pages = loam.host { name = "pages", align = 4096 }
return loam.policy { name = "rock", pick = function(req) return pages end }
]]
assert(loam.policy.load_text("rock.lua", text))
local frame = assert(loam.block("frame.pixels", 100000))
frame:write("first pixel")
local rows = assert(loam.array("frame.rows", "2 * var * int32"))
assert(assert(rows:at(1)):resize(3))
assert(rows:set(7, 1, 3))
print(loam.owner(frame:data()).strategy, frame:read(0, 5), (rows:json():gsub("%s", "")))
LUA

# try VERSION PROGRAM - installs the rock for a version of Lua, uses it and removes it.
try() {
  local tree=$work/tree-$1 told
  luarocks --lua-version "$1" --tree "$tree" make "$rock" > "$work/log" 2>&1 || {
    tail -n 30 "$work/log"
    fail "luarocks make for Lua $1"
  }
  mv "$tree" "$tree-moved" # a rock is found by Lua's paths, so its tree can lie anywhere
  told=$(LUA_PATH="$tree-moved/share/lua/$1/?.lua;;" LUA_CPATH="$tree-moved/lib/lua/$1/?.so;;" \
    "$2" "$work/use.lua") || fail "the rock does not work on $2"
  [ "$told" = "pages	first	[[0,0,7],[]]" ] ||
    fail "$2: $told"
  mv "$tree-moved" "$tree"
  luarocks --lua-version "$1" --tree "$tree" remove loam > "$work/log" 2>&1 || fail "luarocks remove"
  left=$(find "$tree" -path '*loam*' -type f)
  [ -z "$left" ] || fail "left by luarocks remove: $left"
  echo "ok: a rock on $2"
}
try 5.4 lua5.4
try 5.1 "${LUAJIT:-luajit}"
