/* native_blocks.c - handles, blocks and arenas for Lua 5.4. */
#include "native.h"

#include <string.h>

/* A handle: a full userdata with one reference to a block, an arena or an array. NULL: it is empty
 * or was released. */
typedef struct handle {
  void *p;
} handle;

/* ---- Handles */

static const char *const kinds[] = { "block", "arena", "array", NULL };
static const char *const names[] = { "loam.block", "loam.arena", "loam.array" };
enum { BLOCK, ARENA, ARRAY };

/* Empties a block's or arena's handle. It is the method release, and Lua calls it as __gc and
 * __close. */
static int release_block(lua_State *L) {
  handle *h = luaL_testudata(L, 1, names[BLOCK]);
  if (!h) h = luaL_checkudata(L, 1, names[ARENA]);
  loam_block *block = h->p;
  h->p = NULL;
  loam_block_release(block);
  return 0;
}

/* Like release_block, for an array. */
static int release_array(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, names[ARRAY]);
  loam_array *array = h->p;
  h->p = NULL;
  loam_array_release(array);
  return 0;
}

/* Raises an error for a field that a handle does not have, such as array[1]. Without it, Lua would
 * return nil. */
static int no_field(lua_State *L) {
  luaL_tolstring(L, 2, NULL);
  if (lua_isinteger(L, 2))
    return luaL_error(L, "a handle has no [%s]: use the methods get and set", lua_tostring(L, -1));
  return luaL_error(L, "a handle has no method %s", lua_tostring(L, -1));
}

/* define(kind, methods, length): declares a kind of handle. Adds the method release. */
static int define(lua_State *L) {
  int kind = luaL_checkoption(L, 1, NULL, kinds);
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 3);
  lua_pushcfunction(L, kind == ARRAY ? release_array : release_block);
  lua_pushvalue(L, -1);
  lua_setfield(L, 2, "release");
  lua_createtable(L, 0, 1); /* the metatable of the methods */
  lua_pushcfunction(L, no_field);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, 2);
  luaL_newmetatable(L, names[kind]);
  lua_pushvalue(L, 2);
  lua_setfield(L, -2, "__index");
  lua_pushvalue(L, 3);
  lua_setfield(L, -2, "__len");
  lua_pushcfunction(L, no_field);
  lua_setfield(L, -2, "__newindex");
  lua_pushvalue(L, 4);
  lua_setfield(L, -2, "__gc");
  lua_pushvalue(L, 4);
  lua_setfield(L, -2, "__close");
  return 0;
}

/* handle(kind): returns an empty handle. It is made before the object that it will hold, so that an
 * error of Lua between the two cannot lose the object. */
static int new_handle(lua_State *L) {
  int kind = luaL_checkoption(L, 1, NULL, kinds);
  handle *h = lua_newuserdatauv(L, sizeof *h, 0);
  h->p = NULL;
  luaL_setmetatable(L, names[kind]);
  return 1;
}

/* fill(handle, p): stores the pointer and returns the handle. */
static int fill(lua_State *L) {
  handle *h = lua_touserdata(L, 1);
  h->p = lua_touserdata(L, 2);
  lua_settop(L, 1);
  return 1;
}

/* raw(value, kind): returns the pointer of a handle of this kind; nil if the handle was released;
 * false if the value is no such handle. An arena is a block too. */
static int raw(lua_State *L) {
  int kind = luaL_checkoption(L, 2, NULL, kinds);
  handle *h = luaL_testudata(L, 1, names[kind]);
  if (!h && kind == BLOCK) h = luaL_testudata(L, 1, names[ARENA]);
  if (h) return native_push(L, h->p);
  lua_pushboolean(L, 0);
  return 1;
}

/* clear(handle): empties a handle without a release. */
static int clear(lua_State *L) {
  handle *h = lua_touserdata(L, 1);
  h->p = NULL;
  return 0;
}

/* ---- Blocks. Lua's side has checked that each block is live. */

static int block_new(lua_State *L) {
  loam_site *site = native_pointer(L, 1);
  return native_push(L, loam_block_new(site, native_size(L, 2)));
}

static int block_zeroed(lua_State *L) {
  loam_site *site = native_pointer(L, 1);
  return native_push(L, loam_block_zeroed(site, native_size(L, 2)));
}

static int block_aligned(lua_State *L) {
  loam_site *site = native_pointer(L, 1);
  return native_push(L, loam_block_aligned(site, native_size(L, 2), native_size(L, 3)));
}

static int block_wrap(lua_State *L) {
  loam_site *site = native_pointer(L, 1);
  void *p = native_pointer(L, 2), *code = native_pointer(L, 4);
  size_t size = native_size(L, 3);
  loam_block_dtor dtor;
  memcpy(&dtor, &code, sizeof dtor);
  return native_push(L, loam_block_wrap(site, p, size, dtor, native_pointer(L, 5)));
}

static int block_slice(lua_State *L) {
  loam_block *block = native_object(L, 1);
  return native_push(L, loam_block_slice(block, native_size(L, 2), native_size(L, 3)));
}

static int block_retain(lua_State *L) {
  return native_push(L, loam_block_retain(native_object(L, 1)));
}

static int block_data(lua_State *L) { return native_push(L, loam_block_data(native_object(L, 1))); }

static int block_typed(lua_State *L) {
  return luaL_error(L, "data(%s): pointers have no type in this Lua; LuaJIT has such pointers",
                    luaL_tolstring(L, 2, NULL));
}

static int block_size(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)loam_block_size(native_object(L, 1)));
  return 1;
}

static int block_refcount(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)loam_block_refcount(native_object(L, 1)));
  return 1;
}

static int block_tag(lua_State *L) {
  lua_pushstring(L, loam_block_tag(native_object(L, 1)));
  return 1;
}

static int block_kind(lua_State *L) {
  lua_pushinteger(L, loam_block_kind_of(native_object(L, 1)));
  return 1;
}

/* ---- Arenas */

static int arena_new(lua_State *L) {
  loam_site *site = native_pointer(L, 1);
  int flags = (int)luaL_checkinteger(L, 2);
  return native_push(L, loam_arena_new(site, flags, native_size(L, 3)));
}

static int arena_alloc(lua_State *L) {
  loam_block *arena = native_object(L, 1);
  return native_push(L, loam_arena_alloc(arena, native_size(L, 2), native_size(L, 3)));
}

static int arena_resize(lua_State *L) {
  loam_block *arena = native_object(L, 1);
  void *piece = native_pointer(L, 2);
  return native_push(L, loam_arena_resize(arena, piece, native_size(L, 3)));
}

static int arena_reset(lua_State *L) {
  return native_done(L, loam_arena_reset(native_object(L, 1)));
}

static int arena_finalize(lua_State *L) {
  return native_done(L, loam_arena_finalize(native_object(L, 1)));
}

const luaL_Reg native_blocks[] = {
  { "define", define },
  { "handle", new_handle },
  { "fill", fill },
  { "raw", raw },
  { "clear", clear },
  { "block_new", block_new },
  { "block_zeroed", block_zeroed },
  { "block_aligned", block_aligned },
  { "block_wrap", block_wrap },
  { "block_slice", block_slice },
  { "block_retain", block_retain },
  { "block_data", block_data },
  { "block_typed", block_typed },
  { "block_size", block_size },
  { "block_refcount", block_refcount },
  { "block_tag", block_tag },
  { "block_kind", block_kind },
  { "arena_new", arena_new },
  { "arena_alloc", arena_alloc },
  { "arena_resize", arena_resize },
  { "arena_reset", arena_reset },
  { "arena_finalize", arena_finalize },
  { NULL, NULL },
};
