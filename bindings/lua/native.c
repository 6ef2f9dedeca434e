/* native.c - the back end of loam.lua for Lua 5.4: the module loam.native, functions of loam.h for
 * Lua. native.lua is the back end for LuaJIT, with functions of the same names. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

int native_push(lua_State *L, const void *p) {
  if (p) lua_pushlightuserdata(L, (void *)p);
  else lua_pushnil(L);
  return 1;
}

void *native_pointer(lua_State *L, int argument) {
  if (lua_isnoneornil(L, argument)) return NULL;
  luaL_checktype(L, argument, LUA_TLIGHTUSERDATA);
  return lua_touserdata(L, argument);
}

void *native_object(lua_State *L, int argument) {
  void *p = native_pointer(L, argument);
  luaL_argcheck(L, p, argument, "an address expected, got nil");
  return p;
}

size_t native_size(lua_State *L, int argument) {
  lua_Integer size = luaL_checkinteger(L, argument);
  luaL_argcheck(L, size >= 0, argument, "a size is not negative");
  return (size_t)size;
}

int native_done(lua_State *L, loam_status status) {
  lua_pushboolean(L, status == LOAM_OK);
  return 1;
}

void native_number(lua_State *L, const char *name, uint64_t value) {
  lua_pushinteger(L, (lua_Integer)value);
  lua_setfield(L, -2, name);
}

void native_text(lua_State *L, const char *name, const char *value) {
  lua_pushstring(L, value ? value : "");
  lua_setfield(L, -2, name);
}

void native_collect(void *ctx, const char *text, size_t length) {
  native_collected *c = ctx;
  char *grown = c->failed ? NULL : realloc(c->text, c->length + length + 1);
  c->failed = !grown;
  if (!grown) return;
  memcpy(grown + c->length, text, length);
  c->text = grown;
  c->length += length;
}

/* Pushes the text. It runs under lua_pcall, so that the caller can free the text when Lua has no
 * memory for the string. */
static int push_text(lua_State *L) {
  const native_collected *c = lua_touserdata(L, 1);
  lua_pushlstring(L, c->text ? c->text : "", c->length);
  return 1;
}

int native_collected_push(lua_State *L, native_collected *c, loam_status status) {
  int failed = c->failed || status != LOAM_OK;
  int raised = LUA_OK;
  if (failed) {
    lua_pushnil(L);
  } else {
    lua_pushcfunction(L, push_text);
    lua_pushlightuserdata(L, c);
    raised = lua_pcall(L, 1, 1, 0);
  }
  free(c->text);
  if (raised != LUA_OK) return lua_error(L);
  return 1;
}

/* ---- Life and policy */

/* A field of loam_config that a table may have. */
typedef struct setting {
  const char *name;
  enum { TEXT, FLAG, COUNT, BYTES } kind;
  size_t offset;
} setting;

static const setting settings[] = {
  { "policy", TEXT, offsetof(loam_config, policy) },
  { "watch", FLAG, offsetof(loam_config, watch) },
  { "control", FLAG, offsetof(loam_config, control) },
  { "lenient", FLAG, offsetof(loam_config, lenient) },
  { "control_dir", TEXT, offsetof(loam_config, control_dir) },
  { "max_leaves", COUNT, offsetof(loam_config, max_leaves) },
  { "step_ms", COUNT, offsetof(loam_config, step_ms) },
  { "step_bytes", BYTES, offsetof(loam_config, step_bytes) },
  { "guard_report", FLAG, offsetof(loam_config, guard_report) },
  { "leaks", FLAG, offsetof(loam_config, leaks) },
  { "guest", FLAG, offsetof(loam_config, guest) },
};

/* Returns an integer for a number or a boolean at the top of the stack. */
static lua_Integer number_of(lua_State *L, const char *name) {
  int is_number = 0;
  lua_Integer number = lua_isboolean(L, -1) ? lua_toboolean(L, -1)
                                            : lua_tointegerx(L, -1, &is_number);
  if (!is_number && !lua_isboolean(L, -1))
    luaL_error(L, "%s: a number or a boolean expected, got %s", name, luaL_typename(L, -1));
  return number;
}

/* Stores the value at the top of the stack in a field. A string lives as long as the table. */
static void set_field(lua_State *L, loam_config *config, const setting *s) {
  void *field = (char *)config + s->offset;
  switch (s->kind) {
    case TEXT:
      if (lua_type(L, -1) != LUA_TSTRING)
        luaL_error(L, "%s: a string expected, got %s", s->name, luaL_typename(L, -1));
      *(const char **)field = lua_tostring(L, -1);
      break;
    case FLAG: *(int *)field = (int)number_of(L, s->name); break;
    case COUNT: *(unsigned *)field = (unsigned)number_of(L, s->name); break;
    case BYTES: *(size_t *)field = (size_t)number_of(L, s->name); break;
    default: luaL_error(L, "%s: it has no kind", s->name);
  }
}

static int start(lua_State *L) {
  loam_config config = { .size = sizeof config };
  luaL_checktype(L, 1, LUA_TTABLE);
  for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
    const setting *s = settings, *end = settings + sizeof settings / sizeof *settings;
    const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "a number";
    while (s < end && strcmp(s->name, name) != 0) s++;
    if (s == end) return luaL_error(L, "loam_config has no field %s", name);
    set_field(L, &config, s);
  }
  return native_done(L, loam_start(&config));
}

static int stop(lua_State *L) {
  (void)L;
  loam_stop();
  return 0;
}

static int trim(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)loam_trim());
  return 1;
}

static int error_text(lua_State *L) {
  lua_pushstring(L, loam_error());
  return 1;
}

static int version(lua_State *L) {
  lua_pushstring(L, loam_version());
  return 1;
}

static int policy_load(lua_State *L) {
  return native_done(L, loam_policy_load(luaL_checkstring(L, 1)));
}

static int policy_load_text(lua_State *L) {
  return native_done(L, loam_policy_load_text(luaL_checkstring(L, 1), luaL_checkstring(L, 2)));
}

static int policy_watch(lua_State *L) {
  return native_done(L, loam_policy_watch(luaL_optstring(L, 1, NULL)));
}

static int policy_info(lua_State *L) {
  struct loam_policy_info info;
  char hash[24];
  loam_policy_info(&info);
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)info.hash);
  lua_newtable(L);
  native_number(L, "generation", info.generation);
  native_number(L, "loaded_at", (uint64_t)info.loaded_at);
  native_number(L, "loads", info.loads);
  native_number(L, "refused", info.refused);
  native_number(L, "last_at", (uint64_t)info.last_at);
  native_number(L, "last", (uint64_t)info.last);
  native_number(L, "tags_refused", info.tags_refused);
  native_number(L, "plans", info.plans);
  native_number(L, "sites", info.sites);
  native_number(L, "watching", (uint64_t)info.watching);
  native_text(L, "hash", hash);
  native_text(L, "name", info.name);
  native_text(L, "path", info.path);
  native_text(L, "last_error", info.last_error);
  return 1;
}

static int policy_inspect(lua_State *L) {
  const char *path = luaL_checkstring(L, 1), *query = luaL_checkstring(L, 2);
  native_collected c = { 0 };
  loam_status status = loam_policy_inspect(path, query, native_collect, &c);
  return native_collected_push(L, &c, status);
}

/* ---- The module */

static const luaL_Reg functions[] = {
  { "start", start },
  { "stop", stop },
  { "trim", trim },
  { "error", error_text },
  { "version", version },
  { "policy_load", policy_load },
  { "policy_load_text", policy_load_text },
  { "policy_watch", policy_watch },
  { "policy_info", policy_info },
  { "policy_inspect", policy_inspect },
  { NULL, NULL },
};

/* Makes the table of the module. Lua calls it when a program first requires loam.native. */
__attribute__((visibility("default"))) int luaopen_loam_native(lua_State *L);
int luaopen_loam_native(lua_State *L) {
  luaL_newlib(L, functions);
  luaL_setfuncs(L, native_memory, 0);
  luaL_setfuncs(L, native_blocks, 0);
  luaL_setfuncs(L, native_arrays, 0);
  luaL_setfuncs(L, native_figures, 0);
  native_text(L, "built", LOAM_LUA_BUILT);
  lua_pushlightuserdata(L, NULL);
  lua_setfield(L, -2, "null");
  return 1;
}
