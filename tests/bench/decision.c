/* decision.c - what a decision costs: loam_malloc + loam_free under policies of 1, 8 and 100
 * leaves, beside the built-in default, beside asking Lua at each allocation, beside glibc.
 *
 * Lua is asked in two ways: the policy's `pick` as it is written, with a request table whose fields
 * are set for each call; and as cheaply as it can be, a function of two scalars with nothing but
 * the comparisons. Both by lua_pcall, JIT on. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <string.h>

#include "bench.h"

static const size_t sizes[] = { 16, 256, 4096, 16384, 32768 };
enum { SIZES = sizeof sizes / sizeof sizes[0], PAIRS = 2000000, REPEATS = 7 };

static loam_site *site;

static void pair_loam(void *ctx, long n) {
  size_t size = *(size_t *)ctx;
  for (long i = 0; i < n; i++) {
    char *volatile p = loam_malloc(site, size);
    *p = 1;
    loam_free(p);
  }
}

static void pair_libc(void *ctx, long n) {
  size_t size = *(size_t *)ctx;
  for (long i = 0; i < n; i++) {
    char *volatile p = malloc(size);
    *p = 1;
    free(p);
  }
}

typedef struct asked {
  lua_State *lua;
  size_t size;
} asked;

static void ask_scalars(asked *a) {
  lua_pushvalue(a->lua, 1);
  lua_pushstring(a->lua, "tensor.weights");
  lua_pushnumber(a->lua, (double)a->size);
  if (lua_pcall(a->lua, 2, 1, 0)) abort();
  lua_pop(a->lua, 1);
}

static void set_number(lua_State *lua, const char *field, double value) {
  lua_pushnumber(lua, value);
  lua_setfield(lua, 3, field);
}

/* `pick` is at 2, its request at 3. */
static void ask_pick(asked *a) {
  lua_pushstring(a->lua, "tensor.weights");
  lua_setfield(a->lua, 3, "tag");
  set_number(a->lua, "size", (double)a->size);
  set_number(a->lua, "align", 16);
  set_number(a->lua, "node", 0);
  lua_pushvalue(a->lua, 2);
  lua_pushvalue(a->lua, 3);
  if (lua_pcall(a->lua, 1, 1, 0)) abort();
  lua_pop(a->lua, 1);
}

static void pair_scalars(void *ctx, long n) {
  asked *a = ctx;
  for (long i = 0; i < n; i++) {
    ask_scalars(a);
    char *volatile p = loam_malloc(site, a->size);
    *p = 1;
    loam_free(p);
  }
}

static void pair_pick(void *ctx, long n) {
  asked *a = ctx;
  for (long i = 0; i < n; i++) {
    ask_pick(a);
    char *volatile p = loam_malloc(site, a->size);
    *p = 1;
    loam_free(p);
  }
}

/* The policy of `leaves` leaves in an ordinary state: scalars at 1, pick at 2, a request at 3. */
static lua_State *open_lua(int leaves) {
  lua_State *lua = luaL_newstate();
  luaL_openlibs(lua);
  size_t room = 4096 + (size_t)leaves * 96, used = 0;
  char *text = malloc(room), *policy = bench_policy(leaves);
  if (!text) abort();
  used += (size_t)snprintf(text, room, "return function(tag, size)\n");
  for (int i = 1; i < leaves; i++)
    used += (size_t)snprintf(text + used, room - used, "if size < %d then return %d end\n",
                             i * BENCH_STEP, i % 2);
  snprintf(text + used, room - used, "return %d end", leaves % 2);
  if (luaL_dostring(lua, text)) abort();
  if (luaL_dostring(lua, "loam = { host = function(s) return s end, policy = function(p) return p end }"))
    abort();
  if (luaL_dostring(lua, policy)) abort();
  lua_getfield(lua, 2, "pick");
  lua_replace(lua, 2);
  lua_newtable(lua);
  free(text);
  free(policy);
  return lua;
}

static void row(const char *what, double *out, void (*run)(void *, long), asked *a) {
  printf("%-32s", what);
  for (int i = 0; i < SIZES; i++) {
    size_t size = sizes[i];
    if (a) a->size = size;
    out[i] = bench_best(run, a ? (void *)a : (void *)&size, a ? PAIRS / 10 : PAIRS, REPEATS);
    printf("%10.1f", out[i]);
  }
  printf("\n");
}

static void compare(const char *what, const double *a, const double *b, const char *format) {
  printf("%-32s", what);
  for (int i = 0; i < SIZES; i++) printf(format, *format == '%' && format[1] == '9' ? a[i] / b[i] : a[i] - b[i]);
  printf("\n");
}

int main(void) {
  static const int leaves[] = { 1, 8, 100 };
  double base[SIZES], under[3][SIZES], scalars[SIZES], pick[SIZES], libc[SIZES];
  site = loam_site_get("tensor.weights");
  printf("ns per malloc + free, first byte touched, best of %d\n%-32s", REPEATS, "size");
  for (int i = 0; i < SIZES; i++) printf("%10zu", sizes[i]);
  printf("\n");
  row("glibc", libc, pair_libc, NULL);
  row("loam, built-in default", base, pair_loam, NULL);
  for (int k = 0; k < 3; k++) {
    char *text = bench_policy(leaves[k]), what[32];
    bench_load("bench.lua", text);
    free(text);
    snprintf(what, sizeof what, "loam, %d leaves", leaves[k]);
    row(what, under[k], pair_loam, NULL);
  }
  for (int k = 1; k < 3; k++) {
    asked a = { open_lua(leaves[k]), 0 };
    char what[40];
    snprintf(what, sizeof what, "pick(req) each time, %d leaves", leaves[k]);
    row(what, pick, pair_pick, &a);
    snprintf(what, sizeof what, "two scalars each time, %d leaves", leaves[k]);
    row(what, scalars, pair_scalars, &a);
    lua_close(a.lua);
  }
  printf("a decision alone\n");
  compare("loam, 100 leaves, ns", under[2], base, "%+10.1f");
  compare("pick(req), 100 leaves, ns", pick, under[2], "%+10.1f");
  compare("two scalars, 100 leaves, ns", scalars, under[2], "%+10.1f");
  printf("ratios of pairs\n");
  compare("pick(req) / loam, 100 leaves", pick, under[2], "%9.1fx");
  compare("loam, 100 leaves / glibc", under[2], libc, "%9.2fx");
  return 0;
}
