/* foreign_lua.c - a program that defines functions with the names of LuaJIT's functions, like a
 * program that contains another Lua. loam must not call them. */
#include "expect.h"

#define STRANGE(name) \
  void name(void);    \
  void name(void) { expect(!#name " of another Lua is called"); }

STRANGE(lua_newstate)
STRANGE(lua_pushcclosure)
STRANGE(lua_pushlstring)
STRANGE(lua_createtable)
STRANGE(lua_setfield)
STRANGE(lua_getfield)
STRANGE(lua_rawset)
STRANGE(lua_call)
STRANGE(luaL_register)
STRANGE(luaL_findtable)
STRANGE(luaL_newmetatable)
STRANGE(luaL_loadbufferx)

int main(void) {
  free(kept(malloc(5000)));
  puts("foreign_lua: as it must be");
  return 0;
}
