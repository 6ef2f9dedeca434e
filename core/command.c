/* command.c - the `loam` command: an ordinary Lua state, all libraries, runs lua/loam/cli. */
#include "command.h"

#include <string.h>
#include <unistd.h>

#include "error.h"
#include "luajit.h"
#include "native.h"
#include "seam.h"

enum { INTERNAL_ERROR = 70 }; /* EX_SOFTWARE of sysexits.h */
enum { GC_PAUSE = 400 };      /* percent: most commands are done before there is much garbage */

typedef struct arguments {
  int argc;
  char **argv;
  int status;
} arguments;

static int with_traceback(lua_State *L) {
  lua_getfield(L, LUA_GLOBALSINDEX, "debug");
  lua_getfield(L, -1, "traceback");
  lua_pushvalue(L, 1);
  lua_pushinteger(L, 2);
  lua_call(L, 2, 1);
  return 1;
}

/* require("loam.cli").main{ [0] = "loam", "check", ... } */
static void push_main(lua_State *L, const arguments *a) {
  lua_getfield(L, LUA_GLOBALSINDEX, "require");
  lua_pushstring(L, "loam.cli");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "main");
  lua_createtable(L, a->argc, 1);
  for (int i = 0; i < a->argc; i++) {
    lua_pushstring(L, a->argv[i]);
    lua_rawseti(L, -2, i);
  }
}

static int run_main(lua_State *L) {
  arguments *a = lua_touserdata(L, 1);
  lua_pushcclosure(L, with_traceback, 0);
  int handler = lua_gettop(L);
  lua_gc(L, LUA_GCSTOP, 0); /* what is loaded here stays */
  luaL_openlibs(L);
  lm_seam_embed(L);
  lm_native_open(L);
  push_main(L, a);
  lua_gc(L, LUA_GCSETPAUSE, GC_PAUSE);
  lua_gc(L, LUA_GCRESTART, -1);
  if (lua_pcall(L, 1, 1, handler)) return luaL_error(L, "%s", lua_tolstring(L, -1, NULL));
  a->status = (int)lua_tonumber(L, -1);
  return 0;
}

static void say(const char *text) {
  ssize_t written = write(STDERR_FILENO, text, strlen(text));
  (void)written; /* nobody is left to tell */
}

static int fail(const char *what, const char *words) {
  say("loam: ");
  say(what);
  say(words ? words : "an error that is not text");
  say("\n");
  return INTERNAL_ERROR;
}

int lm_command(int argc, char **argv) {
  arguments a = { argc, argv, INTERNAL_ERROR };
  if (lm_luajit_open() != LOAM_OK) return fail("", loam_error());
  lua_State *L = luaL_newstate();
  if (!L) return fail("", "no memory for a Lua state");
  if (lua_cpcall(L, run_main, &a)) fail("internal error: ", lua_tolstring(L, -1, NULL));
  return a.status;
}
