/* command.c - the `loam` command: a Lua state runs lua/loam/command. The state has no budget and no
 * sandbox, because it runs loam's own code. */
#include "cli/command.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/native.h"
#include "os/error.h"
#include "pages/range.h"
#include "script/core_module.h"
#include "script/luajit.h"
#include "script/vm_alloc.h"

enum { INTERNAL_ERROR = 70 }; /* EX_SOFTWARE of sysexits.h */
enum { GC_PAUSE = 400 };      /* percent: most commands end before there is much garbage */

/* The argument and the result of run_main. */
typedef struct arguments {
  int argc;
  char **argv;
  int status;
  bool lacks_memory; /* Lua found no memory for the command */
} arguments;

/* An error handler for lua_pcall: appends the traceback to the error message. */
static int with_traceback(lua_State *L) {
  lua_getfield(L, LUA_GLOBALSINDEX, "debug");
  lua_getfield(L, -1, "traceback");
  lua_pushvalue(L, 1);
  lua_pushinteger(L, 2);
  lua_call(L, 2, 1);
  return 1;
}

/* Pushes the function and the argument of this call:
 * require("loam.command").main{ [0] = "loam", "check", ... } */
static void push_main(lua_State *L, const arguments *a) {
  lua_getfield(L, LUA_GLOBALSINDEX, "require");
  lua_pushstring(L, "loam.command");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "main");
  lua_createtable(L, a->argc, 1);
  for (int i = 0; i < a->argc; i++) {
    lua_pushstring(L, a->argv[i]);
    lua_rawseti(L, -2, i);
  }
}

/* Makes require("ffi") open that library: `loam profile` and `loam metrics --listen` call libraries
 * by it. */
static void offer_ffi(lua_State *L) {
  lua_getfield(L, LUA_GLOBALSINDEX, LUA_LOADLIBNAME);
  lua_getfield(L, -1, "preload");
  lua_pushcclosure(L, luaopen_ffi, 0);
  lua_setfield(L, -2, LUA_FFILIBNAME);
  lua_settop(L, -3);
}

/* The library `jit` is not opened, so Lua code is not compiled: commands are short, and LuaJIT
 * would need longer to find code to compile than most commands run. */
static void open_libraries(lua_State *L) {
  lm_luajit_libraries(L);
  lm_luajit_library(L, luaopen_io, LUA_IOLIBNAME);
  lm_luajit_library(L, luaopen_os, LUA_OSLIBNAME);
  offer_ffi(L);
}

/* Runs the command. Called protected, by lua_cpcall. */
static int run_main(lua_State *L) {
  arguments *a = lua_touserdata(L, 1);
  lua_pushcclosure(L, with_traceback, 0);
  int handler = lua_gettop(L);
  lua_gc(L, LUA_GCSTOP, 0); /* all that is loaded here stays, so there is no garbage */
  open_libraries(L);
  lm_core_module_embed(L, &lm_command_modules);
  lm_native_open(L);
  push_main(L, a);
  lua_gc(L, LUA_GCSETPAUSE, GC_PAUSE);
  lua_gc(L, LUA_GCRESTART, -1);
  int error = lua_pcall(L, 1, 1, handler);
  a->lacks_memory = error == LUA_ERRMEM;
  if (error) return luaL_error(L, "%s", lua_tolstring(L, -1, NULL));
  a->status = (int)lua_tonumber(L, -1);
  return 0;
}

static void say(const char *text) {
  ssize_t written = write(STDERR_FILENO, text, strlen(text));
  (void)written; /* there is no other place to report to */
}

/* Writes an error to standard error. Returns the exit status. */
static int fail(const char *what, const char *words) {
  say("loam: ");
  say(what);
  say(words ? words : "an error that is not text");
  say("\n");
  return INTERNAL_ERROR;
}

/* The allocator of the Lua state (lua_Alloc). */
static void *allocate(void *ud, void *old, size_t old_size, size_t size) {
  lm_vm_alloc *heap = ud;
  lm_assert(heap);
  if (!old) return size ? lm_vm_alloc_take(heap, size) : NULL;
  if (size) return lm_vm_alloc_resize(heap, old, old_size, size);
  lm_vm_alloc_put(heap, old, old_size);
  return NULL;
}

/* Opens /dev/null for each closed descriptor from 0 to 2, so that no file of the command gets such
 * a number: messages would go into it. A read or write fails as with a closed descriptor. A program
 * that the command starts finds the descriptor closed. */
static void fill_closed(void) {
  for (int fd = 0; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0)
      (void)!open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

static void do_nothing(int signal) { (void)signal; }

/* Makes a write that RLIMIT_FSIZE forbids an error, which else ends the process by SIGXFSZ. A
 * program that the command becomes has the usual handling: execve takes handlers away. */
static void survive_long_files(void) {
  struct sigaction was, now = { .sa_handler = do_nothing };
  if (!sigaction(SIGXFSZ, NULL, &was) && was.sa_handler == SIG_DFL)
    (void)sigaction(SIGXFSZ, &now, NULL);
}

int lm_command(int argc, char **argv) {
  static lm_vm_alloc heap; /* never freed: the process ends before the state is closed */
  lm_assert(argc >= 0 && argv);
  arguments a = { .argc = argc, .argv = argv, .status = INTERNAL_ERROR };
  fill_closed();
  survive_long_files();
  if (lm_range_check() || lm_luajit_open()) return fail("", loam_error());
  lua_State *L = lm_vm_alloc_reserve(&heap) ? lua_newstate(allocate, &heap) : NULL;
  if (!lm_vm_alloc_end_reserve(&heap) || !L) return fail("", "no memory for a Lua state");
  int error = lua_cpcall(L, run_main, &a);
  if (error == LUA_ERRMEM || a.lacks_memory) return fail("", "no memory for the command");
  if (error) fail("internal error: ", lua_tolstring(L, -1, NULL));
  return a.status;
}
