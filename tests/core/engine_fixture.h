/* engine_fixture.h - helpers that tests of the engine share: policies built without Lua, threads
 * that allocate, and a handler that counts. */
#ifndef ENGINE_FIXTURE_H
#define ENGINE_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chance.h"
#include "device/handler.h"
#include "engine/engine.h"
#include "engine/live_bytes.h"
#include "engine/owner.h"
#include "heap/sweep.h"
#include "image.h"
#include "os/error.h"
#include "pages/provided.h"
#include "test.h"

/* ---- policies without Lua ---- */

static inline lm_strategy *intern(lm_desc desc, const char *name) {
  lm_strategy *s;
  snprintf(desc.name, sizeof desc.name, "%s", name);
  assert_int_equal(lm_strategy_intern(&desc, &s), LOAM_OK);
  return s;
}

static inline lm_strategy *host(const char *name) { return intern((lm_desc){ 0 }, name); }
static inline lm_strategy *limited_strategy(const char *name, size_t limit) {
  return intern((lm_desc){ .limit = limit }, name);
}
static inline lm_strategy *handler_strategy(const char *name) {
  lm_desc desc = { .kind = LM_KIND_HANDLER };
  snprintf(desc.handler, sizeof desc.handler, "%s", name);
  return intern(desc, name);
}

/* Begins a new generation, in which `plan` decides for every site. */
static inline void set_plan(const lm_plan *plan) {
  uint64_t next = lm_site_generation + 1;
  uint32_t slot = lm_site_generation_slot(next);
  for (uint32_t i = 2; i < lm_site_count() + 2; i++) {
    loam_site *s = lm_site_at(i);
    if (plan->reads & 1u << LM_IN_LIVE) lm_live_mark(s);
    s->now[next & 1].plan = plan;
    s->now[next & 1].token = lm_site_token(s, slot);
  }
  lm_live_begin();
  lm_site_generation = next;
  lm_thread_set_slow_all(LM_SLOW_STALE);
  lm_thread_grace();
}

static const lm_plan *make_plan(const image *m) {
  lm_plan *plan;
  assert_int_equal(image_make(m, &plan), LOAM_OK);
  return plan;
}

/* Begins a generation with a plan of one leaf, a chain of n strategies. */
static inline void set_chain(int n, lm_strategy *const *members) {
  image m = { 0 };
  uint32_t ids[LM_CHAIN_MAX];
  for (int i = 0; i < n; i++) ids[i] = members[i]->id;
  image_leaf(&m, (uint32_t)n, ids);
  set_plan(make_plan(&m));
}

#define CHAIN(...)                                                            \
  set_chain(sizeof((lm_strategy *[]){ __VA_ARGS__ }) / sizeof(lm_strategy *), \
            (lm_strategy *[]){ __VA_ARGS__ })

/* Begins a generation in which requests with `input < k` get strategy `one`, and the others get
 * `other`. */
static inline void set_split_plan(unsigned input, double k, lm_strategy *one, lm_strategy *other) {
  image m = { 0 };
  int32_t a = image_leaf(&m, 1, &one->id), b = image_leaf(&m, 1, &other->id);
  image_node(&m, input, LM_CMP_LT, k, a, b);
  set_plan(make_plan(&m));
}

static loam_site *site;

/* Allocates by the engine itself, without the public functions and their fast paths. */
static inline void *alloc(loam_site *of, size_t size, size_t align, bool zero) {
  return lm_engine_serve(&(lm_request){ .site = of, .size = size, .align = align, .zero = zero },
                         NULL);
}

static inline void *engine_realloc(loam_site *of, void *p, size_t size) {
  return lm_engine_serve(&(lm_request){ .site = of, .size = size }, p);
}

static inline void begin_counting(loam_site *of) {
  lm_live_mark(of);
  lm_live_begin();
}

static inline int set_up(void **state) {
  (void)state;
  lm_engine_start();
  site = lm_site_get(&(loam_where){ "engine.test", "", "", "", 0 });
  return site ? 0 : 1;
}

static inline loam_site *tag(const char *text) {
  return lm_site_get(&(loam_where){ text, "", "", "", 0 });
}

static inline char *get(size_t size) { return alloc(site, size, 16, false); }
static inline void put(void *p) { lm_engine_free(p, SIZE_MAX, NULL); }

static inline loam_owner_info owner(const void *p) {
  loam_owner_info o = { 0 };
  assert_true(lm_owner_find(p, &o));
  return o;
}

/* Returns the used bytes that count against the limit of a strategy. First takes back the objects
 * in thread caches, so that live blocks alone are counted. */
static inline int64_t used(const lm_strategy *s) {
  lm_sweep_trim();
  return s->used;
}

/* ---- events ---- */

static int bad_frees;
static char last_words[512];
static inline void on_event(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind != LOAM_EVENT_BAD_FREE) return;
  bad_frees++;
  snprintf(last_words, sizeof last_words, "%s", event->message);
}

/* Checks that `act` on p sends one event for a bad free, with a message that contains `words`, and
 * that the event is counted once. */
static inline void expect_bad_free(void (*act)(void *p), void *p, const char *words) {
  uint64_t before = lm_stats_bad_frees;
  loam_on_event(on_event, NULL);
  bad_frees = 0;
  act(p);
  loam_on_event(NULL, NULL);
  assert_int_equal(bad_frees, 1);
  assert_int_equal(lm_stats_bad_frees, before + 1);
  if (!strstr(last_words, words)) fail_msg("\"%s\" is not in: %s", words, last_words);
}

/* ---- threads ---- */

enum { THREADS = 4 };
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
enum { SCALE = 10 };
#else
enum { SCALE = 1 };
#endif

static inline size_t some_size(uint64_t *seed) {
  return chance(seed, 50) ? 1 + chance(seed, 3000) : 1 + chance(seed, 200000);
}

/* churn() allocates, resizes and frees blocks under these tags until `stop`. A test may begin to
 * count the live bytes of a tag during that time. */
enum { TAGS = 30 };
static loam_site *racing[TAGS];
static _Atomic bool stop;

static inline void *churn(void *arg) {
  uint64_t seed = (uintptr_t)arg + 99;
  void *held[64] = { 0 };
  while (!stop) {
    void **p = &held[chance(&seed, 64)];
    loam_site *s = racing[chance(&seed, TAGS)];
    size_t size = some_size(&seed);
    if (!*p) *p = alloc(s, size, 16, false);
    else if (chance(&seed, 3) == 0) *p = engine_realloc(chance(&seed, 2) ? s : NULL, *p, size);
    else {
      put(*p);
      *p = NULL;
    }
  }
  for (int i = 0; i < 64; i++) put(held[i]);
  return NULL;
}

/* ---- contents ---- */

/* Returns the distance to the next byte that is written or checked: every byte near the start of a
 * block, and a few of the others. */
static inline size_t step_from(size_t i) { return i < 5000 ? 1 : 509; }

static inline void fill(char *p, size_t size) {
  for (size_t i = 0; i < size; i += step_from(i)) p[i] = (char)(i * 7 + size);
}

static inline void expect_contents(const char *p, size_t size, size_t least) {
  for (size_t i = 0; i < least; i += step_from(i)) assert_int_equal(p[i], (char)(i * 7 + size));
}

/* ---- a handler that counts ---- */

static size_t handler_live;

static inline void *count_malloc(void *ctx, size_t size) {
  char *p = malloc(size + 16);
  (void)ctx;
  handler_live += size;
  if (!p) return NULL;
  memcpy(p, &size, sizeof size);
  return p + 16;
}
static inline void *count_calloc(void *ctx, size_t n, size_t size) {
  return memset(count_malloc(ctx, n * size), 0, n * size);
}
static inline void count_free(void *ctx, void *p, size_t size) {
  size_t real;
  (void)ctx;
  memcpy(&real, (char *)p - 16, sizeof real);
  assert_true(size <= real && real - size <= 4096); /* alignment may have taken some of the bytes */
  handler_live -= real;
  free((char *)p - 16);
}
static int handler_reallocs;
static inline void *count_realloc(void *ctx, void *p, size_t size) {
  size_t real;
  handler_reallocs++;
  memcpy(&real, (char *)p - 16, sizeof real);
  char *q = count_malloc(ctx, size);
  memcpy(q, p, real < size ? real : size);
  count_free(ctx, p, real);
  return q;
}
static const loam_handler counting = {
  "counting", 1, { NULL, count_malloc, count_calloc, count_realloc, count_free }
};

static inline lm_strategy *counting_strategy(void) {
  assert_int_equal(loam_handler_register(&counting), LOAM_OK);
  return handler_strategy("counting");
}

#endif
