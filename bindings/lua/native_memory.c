/* native_memory.c - sites, scopes and memory for Lua 5.4, as in C. */
#include "native.h"

#include <string.h>

/* ---- Sites */

static int site_get(lua_State *L) { return native_push(L, loam_site_get(luaL_checkstring(L, 1))); }

/* Returns the text of a field of the table at index 1, or NULL. The table keeps the text alive. So
 * a number is refused: the text that Lua would make of it is not in the table. */
static const char *text_field(lua_State *L, const char *name) {
  lua_getfield(L, 1, name);
  if (!lua_isnil(L, -1) && lua_type(L, -1) != LUA_TSTRING)
    luaL_error(L, "%s: a string expected, got %s", name, luaL_typename(L, -1));
  const char *text = lua_tostring(L, -1);
  lua_pop(L, 1);
  return text;
}

static int site_at(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_getfield(L, 1, "line");
  int line = (int)luaL_optinteger(L, -1, 0);
  loam_where where = { text_field(L, "tag"), text_field(L, "file"), text_field(L, "func"),
                       text_field(L, "module"), line };
  return native_push(L, loam_site_at(&where));
}

static int scope_enter(lua_State *L) {
  loam_scope_enter(native_pointer(L, 1));
  return 0;
}

static int scope_leave(lua_State *L) {
  (void)L;
  loam_scope_leave();
  return 0;
}

/* ---- Memory */

/* Returns whether a value is an address other than NULL. */
static int is_address(lua_State *L) {
  lua_pushboolean(L, lua_islightuserdata(L, 1) && lua_touserdata(L, 1));
  return 1;
}

/* Returns the name of a value's type, such as "loam.block" or "number". */
static int name_of(lua_State *L) {
  luaL_checkany(L, 1);
  if (luaL_getmetafield(L, 1, "__name") != LUA_TSTRING) lua_pushstring(L, luaL_typename(L, 1));
  return 1;
}

static int allocate(lua_State *L) {
  loam_site *site = native_pointer(L, 1);
  return native_push(L, loam_malloc(site, native_size(L, 2)));
}

static int allocate_zeroed(lua_State *L) {
  loam_site *site = native_pointer(L, 1);
  return native_push(L, loam_calloc(site, native_size(L, 2), native_size(L, 3)));
}

static int allocate_aligned(lua_State *L) {
  loam_site *site = native_pointer(L, 1);
  return native_push(L, loam_aligned_alloc(site, native_size(L, 2), native_size(L, 3)));
}

static int reallocate(lua_State *L) {
  loam_site *site = native_pointer(L, 1);
  void *p = native_pointer(L, 2);
  return native_push(L, loam_realloc(site, p, native_size(L, 3)));
}

static int free_memory(lua_State *L) {
  loam_free(native_pointer(L, 1));
  return 0;
}

static int usable_size(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)loam_usable_size(native_pointer(L, 1)));
  return 1;
}

static int owner(lua_State *L) {
  loam_owner_info info;
  if (loam_owner(native_pointer(L, 1), &info) != LOAM_OK) return native_push(L, NULL);
  lua_newtable(L);
  native_number(L, "line", (uint64_t)info.line);
  native_number(L, "generation", info.generation);
  native_number(L, "size", info.size);
  native_text(L, "tag", info.tag);
  native_text(L, "file", info.file);
  native_text(L, "func", info.func);
  native_text(L, "module", info.module);
  native_text(L, "strategy", info.strategy);
  native_text(L, "kind", info.kind);
  native_text(L, "handler", info.handler);
  native_push(L, info.base);
  lua_setfield(L, -2, "base");
  return 1;
}

/* ---- Bytes at an address */

static int at(lua_State *L) {
  char *p = native_object(L, 1);
  return native_push(L, p + luaL_checkinteger(L, 2));
}

static int read_bytes(lua_State *L) {
  const char *p = native_object(L, 1);
  lua_pushlstring(L, p, native_size(L, 2));
  return 1;
}

static int write_bytes(lua_State *L) {
  size_t size;
  void *p = native_object(L, 1);
  const char *text = luaL_checklstring(L, 2, &size);
  memcpy(p, text, size);
  return 0;
}

/* Lua's integers end below 2^63. Larger numbers are pushed, and accepted, as floats. */
static void push_uint64(lua_State *L, uint64_t value) {
  if (value <= INT64_MAX) lua_pushinteger(L, (lua_Integer)value);
  else lua_pushnumber(L, (lua_Number)value);
}

static uint64_t check_uint64(lua_State *L, int argument) {
  lua_Number value = luaL_checknumber(L, argument); /* rounded, if it is a large integer */
  int is_large = value >= 0x1p63 && !lua_isinteger(L, argument);
  return is_large ? (uint64_t)value : (uint64_t)luaL_checkinteger(L, argument);
}

/* The numbers that Lua and a datashape both have: the name, the type of C, the function that pushes
 * a number, and the function that reads one. */
#define NUMBERS(X)                                          \
  X("bool", _Bool, lua_pushboolean, lua_toboolean)          \
  X("int8", int8_t, lua_pushinteger, luaL_checkinteger)     \
  X("int16", int16_t, lua_pushinteger, luaL_checkinteger)   \
  X("int32", int32_t, lua_pushinteger, luaL_checkinteger)   \
  X("int64", int64_t, lua_pushinteger, luaL_checkinteger)   \
  X("uint8", uint8_t, lua_pushinteger, luaL_checkinteger)   \
  X("uint16", uint16_t, lua_pushinteger, luaL_checkinteger) \
  X("uint32", uint32_t, lua_pushinteger, luaL_checkinteger) \
  X("uint64", uint64_t, push_uint64, check_uint64)          \
  X("float32", float, lua_pushnumber, luaL_checknumber)     \
  X("float64", double, lua_pushnumber, luaL_checknumber)

/* load(p, kind): returns the value at p and true, or nil and false for a kind that NUMBERS
 * lacks. */
static int load(lua_State *L) {
  const void *p = native_object(L, 1);
  const char *kind = luaL_checkstring(L, 2);
#define LOAD(name, type, push, check) \
  if (!strcmp(kind, name)) {          \
    type value;                       \
    memcpy(&value, p, sizeof value);  \
    push(L, value);                   \
    lua_pushboolean(L, 1);            \
    return 2;                         \
  }
  NUMBERS(LOAD)
#undef LOAD
  lua_pushnil(L);
  lua_pushboolean(L, 0);
  return 2;
}

/* store(p, kind, value): writes the value to p. Returns false for a kind that NUMBERS lacks. */
static int store(lua_State *L) {
  void *p = native_object(L, 1);
  const char *kind = luaL_checkstring(L, 2);
#define STORE(name, type, push, check) \
  if (!strcmp(kind, name)) {           \
    type value = (type)check(L, 3);    \
    memcpy(p, &value, sizeof value);   \
    lua_pushboolean(L, 1);             \
    return 1;                          \
  }
  NUMBERS(STORE)
#undef STORE
  lua_pushboolean(L, 0);
  return 1;
}

/* Returns the text of the string value at an address. */
static int load_text(lua_State *L) {
  struct {
    const char *begin;
    size_t size;
  } text;
  memcpy(&text, native_object(L, 1), sizeof text);
  lua_pushlstring(L, text.begin ? text.begin : "", text.size);
  return 1;
}

const luaL_Reg native_memory[] = {
  { "site_get", site_get },
  { "site_at", site_at },
  { "scope_enter", scope_enter },
  { "scope_leave", scope_leave },
  { "is_address", is_address },
  { "name_of", name_of },
  { "malloc", allocate },
  { "calloc", allocate_zeroed },
  { "aligned_alloc", allocate_aligned },
  { "realloc", reallocate },
  { "free", free_memory },
  { "usable_size", usable_size },
  { "owner", owner },
  { "at", at },
  { "read", read_bytes },
  { "write", write_bytes },
  { "load", load },
  { "store", store },
  { "load_text", load_text },
  { NULL, NULL },
};
