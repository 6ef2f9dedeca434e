/* decision.c - what a decision costs: loam_malloc + loam_free under policies of 1, 8 and 100
 * leaves, beside the built-in default, beside asking Lua at each allocation, beside glibc.
 *
 * Lua is asked as well as it can be: one lua_pcall of the policy's comparisons, two scalar
 * arguments, no request table, JIT on. */
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

static void pair_lua(void *ctx, long n) {
  asked *a = ctx;
  for (long i = 0; i < n; i++) {
    lua_pushvalue(a->lua, 1);
    lua_pushstring(a->lua, "tensor.weights");
    lua_pushnumber(a->lua, (double)a->size);
    if (lua_pcall(a->lua, 2, 1, 0)) abort();
    char *volatile p = loam_malloc(site, a->size);
    lua_pop(a->lua, 1);
    *p = 1;
    loam_free(p);
  }
}

/* The same comparisons as the policy of `leaves` leaves, as plain Lua: tag and size in, a number out. */
static lua_State *open_lua(int leaves) {
  lua_State *lua = luaL_newstate();
  luaL_openlibs(lua);
  size_t room = 256 + (size_t)leaves * 64, used = 0;
  char *text = malloc(room);
  used += (size_t)snprintf(text, room, "return function(tag, size)\n");
  for (int i = 1; i < leaves; i++)
    used += (size_t)snprintf(text + used, room - used, "if size < %d then return %d end\n", i * 4096, i % 2);
  snprintf(text + used, room - used, "return %d end", leaves % 2);
  if (luaL_dostring(lua, text)) abort();
  free(text);
  return lua;
}

static void row(const char *what, double *out, void (*run)(void *, long), asked *a) {
  printf("%-28s", what);
  for (int i = 0; i < SIZES; i++) {
    size_t size = sizes[i];
    if (a) a->size = size;
    out[i] = bench_best(run, a ? (void *)a : (void *)&size, a ? PAIRS / 10 : PAIRS, REPEATS);
    printf("%10.1f", out[i]);
  }
  printf("\n");
}

static void compare(const char *what, const double *a, const double *b, int ratio) {
  printf("%-28s", what);
  for (int i = 0; i < SIZES; i++) printf(ratio ? "%9.1fx" : "%+10.1f", ratio ? a[i] / b[i] : a[i] - b[i]);
  printf("\n");
}

int main(void) {
  static const int leaves[] = { 1, 8, 100 };
  double base[SIZES], under[3][SIZES], lua[SIZES], libc[SIZES];
  site = loam_site_get("tensor.weights");
  printf("ns per malloc + free, first byte touched, best of %d\n%-28s", REPEATS, "size");
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
    char what[32];
    snprintf(what, sizeof what, "Lua each time, %d leaves", leaves[k]);
    row(what, lua, pair_lua, &a);
    lua_close(a.lua);
  }
  compare("100 leaves over default, ns", under[2], base, 0);
  compare("Lua each time / 100 leaves", lua, under[2], 1);
  compare("loam, 100 leaves / glibc", under[2], libc, 1);
  return 0;
}
