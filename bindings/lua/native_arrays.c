/* native_arrays.c - arrays for Lua 5.4. Lua's side has checked that each array is live. */
#include "native.h"

#include <stdlib.h>

enum { DIMS = 64 };

static int made(lua_State *L, loam_status status, const loam_array *array) {
  return native_push(L, status == LOAM_OK ? array : NULL);
}

static int array_new(lua_State *L) {
  loam_site *site = native_pointer(L, 1);
  loam_type *type;
  loam_array *array = NULL;
  loam_status status = loam_type_parse(luaL_checkstring(L, 2), &type);
  if (status != LOAM_OK) return native_push(L, NULL);
  status = loam_array_new(site, type, &array);
  loam_type_release(type);
  return made(L, status, array);
}

static int array_wrap(lua_State *L) {
  loam_block *block = native_object(L, 1);
  size_t offset = native_size(L, 2);
  loam_type *type;
  loam_array *array = NULL;
  loam_status status = loam_type_parse(luaL_checkstring(L, 3), &type);
  if (status != LOAM_OK) return native_push(L, NULL);
  status = loam_array_wrap(block, offset, type, NULL, &array);
  loam_type_release(type);
  return made(L, status, array);
}

/* Returns element `at` of the list at the top of the stack; `missing` if it is nil. */
static int64_t number_at(lua_State *L, int at, int64_t missing) {
  lua_rawgeti(L, -1, at);
  int64_t number = luaL_optinteger(L, -1, missing);
  lua_pop(L, 1);
  return number;
}

/* array_index(array, parts): `parts` is a list of lists { start, stop, step } as in loam_index. */
static int array_index(lua_State *L) {
  const loam_array *array = native_object(L, 1);
  loam_index index[DIMS];
  loam_array *out = NULL;
  luaL_checktype(L, 2, LUA_TTABLE);
  size_t count = lua_rawlen(L, 2);
  luaL_argcheck(L, count <= DIMS, 2, "more than 64 indices");
  for (size_t i = 0; i < count; i++) {
    lua_rawgeti(L, 2, (lua_Integer)i + 1);
    luaL_checktype(L, -1, LUA_TTABLE);
    index[i] = (loam_index){ number_at(L, 1, INT64_MIN), number_at(L, 2, INT64_MIN),
                             number_at(L, 3, 0) };
    lua_pop(L, 1);
  }
  loam_status status = loam_array_index(array, count, index, &out);
  return made(L, status, out);
}

static int array_field(lua_State *L) {
  loam_array *out = NULL;
  loam_status status = loam_array_field(native_object(L, 1), luaL_checkstring(L, 2), &out);
  return made(L, status, out);
}

static int view(lua_State *L, loam_status (*make)(const loam_array *array, loam_array **out)) {
  loam_array *out = NULL;
  loam_status status = make(native_object(L, 1), &out);
  return made(L, status, out);
}

static int array_follow(lua_State *L) { return view(L, loam_array_follow); }
static int array_transpose(lua_State *L) { return view(L, loam_array_transpose); }
static int array_readonly(lua_State *L) { return view(L, loam_array_readonly); }

static int array_retain(lua_State *L) {
  return native_push(L, loam_array_retain(native_object(L, 1)));
}

static int array_data(lua_State *L) { return native_push(L, loam_array_data(native_object(L, 1))); }

static int array_type(lua_State *L) {
  lua_pushstring(L, loam_type_text(loam_array_type(native_object(L, 1))));
  return 1;
}

static int array_bytes(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)loam_array_bytes(native_object(L, 1)));
  return 1;
}

static int array_shape(lua_State *L) {
  size_t shape[DIMS];
  size_t dims = loam_array_dims(native_object(L, 1), DIMS, shape, NULL);
  lua_newtable(L);
  for (size_t i = 0; i < dims && i < DIMS; i++) {
    lua_pushinteger(L, (lua_Integer)shape[i]);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

static int array_is_readonly(lua_State *L) {
  struct loam_array_info info;
  loam_status status = loam_array_info(native_object(L, 1), &info);
  lua_pushboolean(L, status == LOAM_OK && info.readonly);
  return 1;
}

/* Returns the name of the category that a scalar categorical holds; nil for a code without one. */
static int array_category(lua_State *L) {
  const loam_array *array = native_object(L, 1);
  const loam_type *type = loam_array_type(array);
  struct loam_type_info info;
  struct loam_type_field field;
  loam_type_info(type, &info);
  if (info.element) loam_type_info(type = info.element, &info); /* of an option */
  const void *data = loam_array_data(array);
  size_t code = info.size == 1 ? *(const uint8_t *)data : *(const uint16_t *)data;
  if (loam_type_field(type, code, &field) != LOAM_OK) return native_push(L, NULL);
  lua_pushstring(L, field.name);
  return 1;
}

static int array_resize(lua_State *L) {
  loam_array *array = native_object(L, 1);
  return native_done(L, loam_array_resize(array, native_size(L, 2)));
}

static int array_set_text(lua_State *L) {
  size_t size;
  loam_array *array = native_object(L, 1);
  const char *text = luaL_checklstring(L, 2, &size);
  return native_done(L, loam_array_set_text(array, text, size));
}

static int array_omit(lua_State *L) { return native_done(L, loam_array_omit(native_object(L, 1))); }

static int array_is_missing(lua_State *L) {
  lua_pushboolean(L, loam_array_is_missing(native_object(L, 1)));
  return 1;
}

static int array_json(lua_State *L) {
  native_collected c = { 0 };
  loam_status status = loam_array_json(native_object(L, 1), native_collect, &c);
  return native_collected_push(L, &c, status);
}

static int array_repr(lua_State *L) {
  native_collected c = { 0 };
  loam_status status = loam_array_repr(native_object(L, 1), native_collect, &c);
  return native_collected_push(L, &c, status);
}

const luaL_Reg native_arrays[] = {
  { "array_new", array_new },
  { "array_wrap", array_wrap },
  { "array_index", array_index },
  { "array_field", array_field },
  { "array_follow", array_follow },
  { "array_transpose", array_transpose },
  { "array_readonly", array_readonly },
  { "array_retain", array_retain },
  { "array_data", array_data },
  { "array_type", array_type },
  { "array_bytes", array_bytes },
  { "array_shape", array_shape },
  { "array_is_readonly", array_is_readonly },
  { "array_category", array_category },
  { "array_resize", array_resize },
  { "array_set_text", array_set_text },
  { "array_omit", array_omit },
  { "array_is_missing", array_is_missing },
  { "array_json", array_json },
  { "array_repr", array_repr },
  { NULL, NULL },
};
