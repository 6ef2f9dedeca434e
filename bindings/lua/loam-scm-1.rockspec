-- loam-scm-1.rockspec - the module `loam` as a rock, for LuaJIT and Lua 5.4.
--
-- In a clone, at its top:  luarocks --lua-version 5.4 make bindings/lua/loam-scm-1.rockspec
rockspec_format = "3.0"
package = "loam"
version = "scm-1"
source = { url = "git+file://." }
description = {
  summary = "Memory policies for running programs",
  detailed = [[
An operator writes a policy in Lua, which decides for each allocation of a program which memory it
gets. The module allocates memory, blocks, arenas and arrays under a policy, and tells the figures.]],
  labels = { "memory" },
  license = "MIT",
}
supported_platforms = { "linux" }
dependencies = { "lua >= 5.1, < 5.5, ~= 5.2, ~= 5.3" }
build = {
  type = "cmake",
  variables = {
    CMAKE_BUILD_TYPE = "Release",
    LOAM_ROCK = "ON",
    LOAM_ROCK_LUA_DIR = "$(LUADIR)",
    LOAM_ROCK_LIB_DIR = "$(LIBDIR)",
    LOAM_ROCK_INCLUDE_DIR = "$(LUA_INCDIR)",
    LOAM_TESTS = "OFF",
    LOAM_BENCH = "OFF",
  },
}
