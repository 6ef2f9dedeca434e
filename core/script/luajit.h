/* luajit.h - LuaJIT, which is opened at run time and called by the names of its own functions.
 *
 * libloam.so is not linked with LuaJIT, for two reasons. A host program may contain another Lua:
 * the dynamic linker could then bind a call of a lua_* function to the wrong Lua.
 * Debian's static LuaJIT also cannot be linked into a shared library. So lm_luajit_open() opens the
 * shared library and looks up each function there, in a table; the macros below make each name,
 * such as lua_call, mean an entry of that table. A file that includes this header calls
 * lm_luajit_open() before it calls any of those functions. The `loam` command is linked with a
 * static LuaJIT where the build found one (cli/luajit_linked.c). */
#ifndef LM_LUAJIT_H
#define LM_LUAJIT_H

#include <lauxlib.h>
#include <lualib.h>
#include <stdatomic.h>

#include "loam.h"
#include "os/base.h"

/* clang-format off */
#define LM_LUAJIT_LIST(X)                                                                     \
  X(luaL_error) X(luaL_loadbufferx) X(lua_atpanic) X(lua_call) X(lua_cpcall)                  \
  X(lua_createtable) X(lua_gc) X(lua_getallocf) X(lua_getfield) X(lua_gethook)                \
  X(lua_getinfo) X(lua_getstack) X(lua_gettop) X(lua_newstate) X(lua_objlen) X(lua_pcall)     \
  X(lua_pushboolean) X(lua_pushcclosure) X(lua_pushfstring) X(lua_pushinteger)                \
  X(lua_pushlightuserdata) X(lua_pushlstring) X(lua_pushnil) X(lua_pushnumber)                \
  X(lua_pushstring) X(lua_pushvalue) X(lua_rawgeti) X(lua_rawseti) X(lua_remove)              \
  X(lua_setfield) X(lua_sethook) X(lua_settop) X(lua_toboolean) X(lua_tolstring)              \
  X(lua_tonumber) X(lua_touserdata) X(lua_type) X(lua_typename) X(luaopen_base)               \
  X(luaopen_debug) X(luaopen_ffi) X(luaopen_io) X(luaopen_jit) X(luaopen_math) X(luaopen_os)  \
  X(luaopen_package) X(luaopen_string) X(luaopen_table)
/* clang-format on */

/* A pointer to each function of LM_LUAJIT_LIST, named like the function with `_` after it. */
typedef struct lm_luajit {
#define LM_LUAJIT_FIELD(name) __typeof__(name) *name##_;
  LM_LUAJIT_LIST(LM_LUAJIT_FIELD)
#undef LM_LUAJIT_FIELD
} lm_luajit;

/* Opens LuaJIT if it is not open yet. LOAM_EUNSUPPORTED: this machine has no usable LuaJIT. Any
 * thread may call it. */
loam_status lm_luajit_open(void);

/* Tells whether a program on this machine finds the shared library of LuaJIT. It looks for the
 * shared library even where this program is linked with LuaJIT. */
bool lm_luajit_is_found(void);

/* Tells the kernel that the pages of LuaJIT's file need not stay in memory, because loam will not
 * run Lua for a while. The pages are read from the file again when a thread touches them, so other
 * threads may use LuaJIT at the same time. Pages that were written to stay. */
void lm_luajit_evict(void);

/* The table; NULL: LuaJIT is not open. Stored with release (at least) when the table is complete,
 * and loaded with acquire in lm_luajit_open(). */
extern _Atomic(const lm_luajit *) lm_luajit_api;

/* The table, for a thread that has called lm_luajit_open(): the acquire there makes the relaxed
 * load here enough. */
LM_INLINE const lm_luajit *lm_luajit_get(void) {
  return atomic_load_explicit(&lm_luajit_api, memory_order_relaxed);
}

/* cli/luajit_linked.c defines LM_LUAJIT_LINKED, because it needs the names of the functions
 * themselves. */
#ifndef LM_LUAJIT_LINKED
#define luaL_error (lm_luajit_get()->luaL_error_)
#define luaL_loadbufferx (lm_luajit_get()->luaL_loadbufferx_)
#define lua_atpanic (lm_luajit_get()->lua_atpanic_)
#define lua_call (lm_luajit_get()->lua_call_)
#define lua_cpcall (lm_luajit_get()->lua_cpcall_)
#define lua_createtable (lm_luajit_get()->lua_createtable_)
#define lua_gc (lm_luajit_get()->lua_gc_)
#define lua_getallocf (lm_luajit_get()->lua_getallocf_)
#define lua_getfield (lm_luajit_get()->lua_getfield_)
#define lua_gethook (lm_luajit_get()->lua_gethook_)
#define lua_getinfo (lm_luajit_get()->lua_getinfo_)
#define lua_getstack (lm_luajit_get()->lua_getstack_)
#define lua_newstate (lm_luajit_get()->lua_newstate_)
#define lua_objlen (lm_luajit_get()->lua_objlen_)
#define lua_pcall (lm_luajit_get()->lua_pcall_)
#define lua_pushboolean (lm_luajit_get()->lua_pushboolean_)
#define lua_pushcclosure (lm_luajit_get()->lua_pushcclosure_)
#define lua_pushfstring (lm_luajit_get()->lua_pushfstring_)
#define lua_pushinteger (lm_luajit_get()->lua_pushinteger_)
#define lua_pushlightuserdata (lm_luajit_get()->lua_pushlightuserdata_)
#define lua_pushlstring (lm_luajit_get()->lua_pushlstring_)
#define lua_pushnil (lm_luajit_get()->lua_pushnil_)
#define lua_pushnumber (lm_luajit_get()->lua_pushnumber_)
#define lua_pushstring (lm_luajit_get()->lua_pushstring_)
#define lua_pushvalue (lm_luajit_get()->lua_pushvalue_)
#define lua_rawgeti (lm_luajit_get()->lua_rawgeti_)
#define lua_rawseti (lm_luajit_get()->lua_rawseti_)
#define lua_remove (lm_luajit_get()->lua_remove_)
#define lua_setfield (lm_luajit_get()->lua_setfield_)
#define lua_sethook (lm_luajit_get()->lua_sethook_)
#define lua_settop (lm_luajit_get()->lua_settop_)
#define lua_toboolean (lm_luajit_get()->lua_toboolean_)
#define lua_tolstring (lm_luajit_get()->lua_tolstring_)
#define lua_tonumber (lm_luajit_get()->lua_tonumber_)
#define lua_touserdata (lm_luajit_get()->lua_touserdata_)
#define lua_type (lm_luajit_get()->lua_type_)
#define lua_typename (lm_luajit_get()->lua_typename_)
#define luaopen_base (lm_luajit_get()->luaopen_base_)
#define luaopen_debug (lm_luajit_get()->luaopen_debug_)
#define luaopen_ffi (lm_luajit_get()->luaopen_ffi_)
#define luaopen_io (lm_luajit_get()->luaopen_io_)
#define luaopen_jit (lm_luajit_get()->luaopen_jit_)
#define luaopen_math (lm_luajit_get()->luaopen_math_)
#define luaopen_os (lm_luajit_get()->luaopen_os_)
#define luaopen_package (lm_luajit_get()->luaopen_package_)
#define luaopen_string (lm_luajit_get()->luaopen_string_)
#define luaopen_table (lm_luajit_get()->luaopen_table_)
#define lua_gettop (lm_luajit_get()->lua_gettop_)
#endif

/* Opens a standard library of Lua by its luaopen_ function. May raise a Lua error. */
LM_INLINE void lm_luajit_library(lua_State *L, lua_CFunction open, const char *name) {
  lua_pushcclosure(L, open, 0);
  lua_pushstring(L, name);
  lua_call(L, 1, 0);
}

/* Opens the standard libraries that every Lua state of loam has. May raise a Lua error. */
LM_INLINE void lm_luajit_libraries(lua_State *L) {
  lm_luajit_library(L, luaopen_base, "");
  lm_luajit_library(L, luaopen_package, LUA_LOADLIBNAME);
  lm_luajit_library(L, luaopen_table, LUA_TABLIBNAME);
  lm_luajit_library(L, luaopen_string, LUA_STRLIBNAME);
  lm_luajit_library(L, luaopen_math, LUA_MATHLIBNAME);
  lm_luajit_library(L, luaopen_debug, LUA_DBLIBNAME);
}

#endif
