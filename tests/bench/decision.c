/* decision.c - what a decision costs: loam_malloc and loam_free under policies of 1, 2, 8 and 100
 * leaves, compared with the built-in default, with a call of Lua at each allocation, and with
 * glibc.
 *
 * Lua is called in two ways. `pick` is the function that the policy has, and gets a request table
 * whose fields are set for each call. The cheapest way calls a function of two scalars that does
 * nothing but the comparisons. Both use lua_pcall, with the JIT compiler on. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdbool.h>
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

/* Calls `pick`. It is at index 2 of the stack, and the table for its request at index 3. */
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

/* Returns a Lua state with the policy of `leaves` leaves. Its stack holds the function of two
 * scalars at index 1, `pick` at 2, and a table for a request at 3. */
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
  if (luaL_dostring(
          lua, "loam = { host = function(s) return s end, policy = function(p) return p end }"))
    abort();
  if (luaL_dostring(lua, policy)) abort();
  lua_getfield(lua, 2, "pick");
  lua_replace(lua, 2);
  lua_newtable(lua);
  free(text);
  free(policy);
  return lua;
}

/* A way to allocate that is measured. The built-in default is measured first. All other ways take
 * turns in each repeat, so that a slow moment of the machine falls on all of them. */
typedef struct contender {
  const char *name;
  int leaves; /* of the policy that is loaded; 0: none is loaded */
  void (*run)(void *ctx, long n);
  bool asks_lua;
  double best[SIZES];
} contender;

static void turn(contender *c, asked *a) {
  if (c->leaves) {
    char *text = bench_policy(c->leaves);
    bench_load("bench.lua", text);
    free(text);
  }
  for (int i = 0; i < SIZES; i++) {
    a->size = sizes[i];
    double ns = bench_once(c->run, c->asks_lua ? (void *)a : (void *)&a->size,
                           c->asks_lua ? PAIRS / 10 : PAIRS);
    if (ns < c->best[i]) c->best[i] = ns;
  }
}

static void row(const char *what, const double *figure, const char *format) {
  printf("%-34s", what);
  for (int i = 0; i < SIZES; i++) printf(format, figure[i]);
  printf("\n");
}

static void difference(const char *what, const double *a, const double *b) {
  double out[SIZES];
  for (int i = 0; i < SIZES; i++) out[i] = a[i] - b[i];
  row(what, out, "%+10.1f");
}

static void ratio(const char *what, const double *a, const double *b) {
  double out[SIZES];
  for (int i = 0; i < SIZES; i++) out[i] = a[i] / b[i];
  row(what, out, "%9.2fx");
}

int main(void) {
  enum { LIBC, DEFAULT, ONE, EIGHT, HUNDRED, PICK, SCALARS, CONTENDERS };
  contender of[CONTENDERS] = {
    [LIBC] = { .name = "glibc", .run = pair_libc },
    [DEFAULT] = { .name = "loam, one leaf that asks nothing", .leaves = 1, .run = pair_loam },
    [ONE] = { .name = "loam, 2 leaves", .leaves = 2, .run = pair_loam },
    [EIGHT] = { .name = "loam, 8 leaves", .leaves = 8, .run = pair_loam },
    [HUNDRED] = { .name = "loam, 100 leaves", .leaves = 100, .run = pair_loam },
    [PICK] = { .name = "pick(req) each time, 100 leaves", .run = pair_pick, .asks_lua = true },
    [SCALARS] = { .name = "two scalars each time, 100 leaves",
                  .run = pair_scalars,
                  .asks_lua = true },
  };
  asked a = { open_lua(100), 0 };
  double base[SIZES];
  site = loam_site_get("tensor.weights");
  for (int k = 0; k < CONTENDERS; k++)
    for (int i = 0; i < SIZES; i++) of[k].best[i] = 1e300;
  contender builtin = of[DEFAULT];
  builtin.leaves = 0;
  for (int r = 0; r < bench_some(REPEATS); r++) turn(&builtin, &a);
  memcpy(base, builtin.best, sizeof base);
  for (int r = 0; r < bench_some(REPEATS); r++)
    for (int k = 0; k < CONTENDERS; k++) turn(&of[k], &a);
  lua_close(a.lua);

  printf("ns per malloc + free, first byte touched, best of %d\n%-34s", REPEATS, "size");
  for (int i = 0; i < SIZES; i++) printf("%10zu", sizes[i]);
  printf("\n");
  row("loam, built-in default", base, "%10.1f");
  for (int k = 0; k < CONTENDERS; k++) row(of[k].name, of[k].best, "%10.1f");
  printf("a decision alone, ns\n");
  difference("100 leaves, over one leaf", of[HUNDRED].best, of[DEFAULT].best);
  difference("pick(req), over 100 leaves", of[PICK].best, of[HUNDRED].best);
  difference("two scalars, over 100 leaves", of[SCALARS].best, of[HUNDRED].best);
  printf("ratios of pairs\n");
  ratio("pick(req) / loam, 100 leaves", of[PICK].best, of[HUNDRED].best);
  ratio("two scalars / loam, 100 leaves", of[SCALARS].best, of[HUNDRED].best);
  ratio("loam, 100 leaves / glibc", of[HUNDRED].best, of[LIBC].best);
  return 0;
}
