/* test_limits.c - limits of strategies under eight threads. They are never exceeded, they get back
 * all bytes that any thread frees, they hold when they are edited, and a fallback counts for the
 * strategy that served. */
#include <stdlib.h>
#include <string.h>

#include "chance.h"
#include "heap/pool.h"
#include "loam.h"
#include "test.h"

/* The threads together try to hold twice the bytes of all limits. */
enum { THREADS = 8, HELD = 128, ROUNDS = 6, STEPS = SANITIZED ? 5000 : 40000 };

/* Three strategies that fall back on each other, and one without a limit for the rest. */
enum { FIRST, SECOND, THIRD, REST, STRATEGIES };
static const char *const names[STRATEGIES] = { "first", "second", "third", "rest" };
static const size_t limits[STRATEGIES] = { 256 * LM_KIB, 400 * LM_KIB, 100000, 0 };

static const char policy[] =
    "local first = loam.host { name = 'first', limit = 256 * loam.KiB }\n"
    "local second = loam.host { name = 'second', limit = 400 * loam.KiB, align = 64 }\n"
    "local third = loam.system { name = 'third', limit = 100000 }\n"
    "local rest = loam.host { name = 'rest' }\n"
    "local no = loam.deny {}\n"
    "return loam.policy { name = 'limits', pick = function(req)\n"
    "  if req.tag:is('denied') then return first:or_else(second):or_else(no) end\n"
    "  if req.tag:is('single') then return first end\n"
    "  if req.tag:is('system') then return third end\n"
    "  return first:or_else(second):or_else(third):or_else(rest)\n"
    "end }\n";

/* After loam_trim, the service thread has no free objects on their way back: these count against
 * their limit until they are there. */
static int set_up(void **state) {
  (void)state;
  loam_trim();
  return loam_policy_load_text("limits", policy);
}

static int check_laws(void **state) {
  struct loam_stats stats;
  (void)state;
  return !loam_stats(&stats) && !stats.live_blocks && lm_pool_is_valid() ? 0 : -1;
}

/* ---- What the test itself counts */

typedef struct block {
  char *p;
  size_t size; /* usable bytes */
  int strategy;
} block;

/* Increased after a block is made, and decreased before it is freed. So they never exceed the bytes
 * and blocks that are live. */
static _Atomic int64_t live_bytes[STRATEGIES], live_blocks[STRATEGIES];
static _Atomic uint64_t passed, denied, made[STRATEGIES];

static int strategy_of(const char *name) {
  int i = 0;
  while (i < STRATEGIES && strcmp(names[i], name)) i++;
  return i;
}

static void note_made(block *b) {
  loam_owner_info owner;
  if (loam_owner(b->p, &owner)) abort();
  b->strategy = strategy_of(owner.strategy);
  b->size = owner.size;
  int64_t now = atomic_fetch_add(&live_bytes[b->strategy], (int64_t)b->size) + (int64_t)b->size;
  if (limits[b->strategy] && now > (int64_t)limits[b->strategy]) passed++;
  live_blocks[b->strategy]++;
  made[b->strategy]++;
}

static void note_gone(const block *b) {
  live_bytes[b->strategy] -= (int64_t)b->size;
  live_blocks[b->strategy]--;
}

static size_t some_size(uint64_t *seed) {
  return chance(seed, 40) ? 1 + chance(seed, 3000) : 1 + chance(seed, 60000);
}

/* ---- Threads that allocate, give each other blocks, and pause so that figures can be compared */

static _Atomic(void *) shelf[THREADS]; /* blocks for another thread to free */
static pthread_barrier_t rest;
static loam_site *sites[2]; /* the policy may deny memory to the first site, never to the other */

static void give_away(block *b, uint32_t at) {
  block *mine = malloc(sizeof *mine);
  *mine = *b;
  b->p = NULL;
  block *old = atomic_exchange(&shelf[at], mine);
  if (!old) return;
  note_gone(old);
  loam_free(old->p);
  free(old);
}

static void ask(block *b, uint64_t *seed) {
  uint32_t which = chance(seed, 2);
  b->p = chance(seed, 4) ? loam_malloc(sites[which], some_size(seed))
                         : loam_calloc(sites[which], 1, some_size(seed));
  if (b->p) note_made(b);
  else if (which == 0) denied++;
  else abort();
}

static void ask_again(block *b, uint64_t *seed) {
  note_gone(b);
  char *p = loam_realloc(NULL, b->p, some_size(seed));
  if (p) b->p = p;
  else denied++;
  note_made(b);
  made[b->strategy]--;
}

static void step(block *held, uint64_t *seed) {
  block *b = &held[chance(seed, HELD)];
  if (!b->p) ask(b, seed);
  else if (chance(seed, 5) == 0) ask_again(b, seed);
  else if (chance(seed, 3) == 0) give_away(b, chance(seed, THREADS));
  else {
    note_gone(b);
    loam_free(b->p);
    b->p = NULL;
  }
}

static void *work(void *number) {
  uint64_t seed = (uintptr_t)number + 1;
  block held[HELD] = { 0 };
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < STEPS; i++) step(held, &seed);
    pthread_barrier_wait(&rest);
    pthread_barrier_wait(&rest);
  }
  for (int i = 0; i < HELD; i++) {
    if (held[i].p) note_gone(&held[i]);
    loam_free(held[i].p);
  }
  return NULL;
}

static void check_row(void *ctx, const loam_stats_row *row) {
  int strategy = strategy_of(row->strategy);
  if (strategy == STRATEGIES) return;
  ++*(int *)ctx;
  assert_int_equal(row->live_bytes, live_bytes[strategy]);
  assert_int_equal(row->live_blocks, live_blocks[strategy]);
  assert_true(row->total_blocks >= made[strategy]);
}

static void check_figures(void) {
  struct loam_stats stats;
  int rows = 0, used = 0;
  assert_int_equal(loam_stats_by(LOAM_BY_STRATEGY, check_row, &rows), LOAM_OK);
  for (int i = 0; i < STRATEGIES; i++) used += made[i] > 0;
  assert_in_range(rows, used, STRATEGIES);
  assert_int_equal(loam_stats(&stats), LOAM_OK);
  assert_int_equal(stats.denied, denied);
  assert_int_equal(stats.failed, 0);
  assert_true(stats.fallbacks > 0 && stats.bad_frees == 0);
}

static void eight_threads_pass_no_limit_and_every_fallback_is_accounted(void **state) {
  pthread_t threads[THREADS];
  (void)state;
  pthread_barrier_init(&rest, NULL, THREADS + 1);
  sites[0] = loam_site_get("denied");
  sites[1] = loam_site_get("served");
  for (uintptr_t i = 0; i < THREADS; i++) threads[i] = start_thread(work, (void *)i);
  for (int round = 0; round < ROUNDS; round++) {
    pthread_barrier_wait(&rest);
    check_figures();
    pthread_barrier_wait(&rest);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++) {
    block *b = atomic_exchange(&shelf[i], NULL);
    if (!b) continue;
    note_gone(b);
    loam_free(b->p);
    free(b);
  }
  check_figures();
  assert_int_equal(passed, 0);
  assert_true(denied > 0);
  for (int i = 0; i < STRATEGIES; i++) assert_true(made[i] > 0);
}

/* ---- Frees give the limit back */

enum { SIZE = 1000, MOST = 4096 };
static char *taken[MOST];

/* Allocates as many blocks as the limit allows. Returns their number. One further request fails. */
static int take_all(void) {
  int n = 0;
  while (n < MOST && (taken[n] = loam_malloc(loam_site_get("single"), SIZE))) n++;
  return n;
}

static void *free_all(void *count) {
  for (int i = 0; i < *(int *)count; i++) loam_free(taken[i]);
  return NULL;
}

/* Objects in a thread's bins count against the limit, and the thread can still use them. */
static void what_a_thread_keeps_for_reuse_it_can_have_again(void **state) {
  int n = take_all(), again = n;
  (void)state;
  assert_true(n >= (int)(limits[FIRST] / (SIZE + SIZE / 4)) && n < MOST);
  free_all(&n);
  assert_int_equal(take_all(), again);
  free_all(&n);
}

static void frees_of_other_threads_give_the_whole_limit_back(void **state) {
  (void)state;
  for (int i = 0; i < 10; i++) {
    int n = take_all();
    assert_non_null(n < MOST ? taken[n - 1] : NULL);
    assert_null(loam_malloc(loam_site_get("single"), SIZE));
    pthread_join(start_thread(free_all, &n), NULL);
    int again = take_all();
    assert_int_equal(again, n);
    free_all(&again);
  }
}

static void a_failed_realloc_takes_nothing_of_a_limit(void **state) {
  int n = take_all();
  (void)state;
  for (int i = 0; i < 100; i++) assert_null(loam_realloc(NULL, taken[0], limits[FIRST]));
  loam_free(taken[--n]);
  taken[n] = loam_malloc(loam_site_get("single"), SIZE);
  assert_non_null(taken[n++]);
  free_all(&n);
}

static _Atomic bool resized;

static void *resize_throughout(void *p) {
  for (int i = 0; p && i < 20000; i++) p = loam_realloc(NULL, p, i % 2 ? 58000 : 60000);
  resized = true;
  return p;
}

/* A block counts while it is resized. So the limit never has room for a second block beside it. */
static void what_is_resized_counts_all_the_while(void **state) {
  loam_site *site = loam_site_get("system");
  void *p = loam_malloc(site, 58000), *q;
  int had = 0;
  (void)state;
  assert_non_null(p);
  pthread_t thread = start_thread(resize_throughout, p);
  while (!resized) {
    had += (q = loam_malloc(site, 45000)) != NULL;
    loam_free(q);
  }
  pthread_join(thread, &p);
  assert_non_null(p);
  loam_free(p);
  assert_int_equal(had, 0);
}

/* A program that shrinks a block cannot do anything useful about a failure. */
static void what_is_to_shrink_stays_where_there_is_no_room(void **state) {
  int n = take_all();
  (void)state;
  for (size_t size = 0; size < SIZE; size += 99) {
    memset(taken[0], (int)size, SIZE);
    assert_non_null(taken[0] = loam_realloc(NULL, taken[0], size));
    assert_true(loam_usable_size(taken[0]) >= size);
    for (size_t i = 0; i < size; i++) assert_int_equal((uint8_t)taken[0][i], size & 255);
    loam_free(taken[0]);
    assert_non_null(taken[0] = loam_malloc(loam_site_get("single"), SIZE));
  }
  free_all(&n);
}

/* ---- Limits that are edited */

static void set_limit(int kib, const char *more) {
  char text[200];
  snprintf(text, sizeof text,
           "local e = loam.host { name = 'edited', limit = %d * loam.KiB%s }\n"
           "return loam.policy { pick = function(req) return e end }\n",
           kib, more);
  assert_int_equal(loam_policy_load_text("edited", text), LOAM_OK);
}

/* Allocates blocks until a request fails. Returns the usable bytes of these blocks. */
static size_t take_more(int *n) {
  int before = *n;
  while (*n < MOST && (taken[*n] = loam_malloc(NULL, SIZE))) ++*n;
  return (size_t)(*n - before) * loam_usable_size(taken[0]);
}

static void what_lives_counts_when_a_limit_is_edited(void **state) {
  int n = 0;
  (void)state;
  set_limit(256, "");
  assert_in_range(take_more(&n), 240 * LM_KIB, 256 * LM_KIB);
  set_limit(512, "");
  assert_in_range(take_more(&n), 240 * LM_KIB, 272 * LM_KIB);
  set_limit(128, "");
  assert_int_equal(take_more(&n), 0);
  while (n > 256) loam_free(taken[--n]);
  assert_null(loam_malloc(NULL, SIZE));
  while (n > 64) loam_free(taken[--n]);
  assert_in_range(take_more(&n), 48 * LM_KIB, 64 * LM_KIB);
  assert_true(lm_pool_is_valid());
  set_limit(128, ", align = 64"); /* it differs from the old strategy in more than its limit */
  assert_in_range(take_more(&n), 112 * LM_KIB, 128 * LM_KIB);
  free_all(&n);
}

/* A block that grows in place needs room in the limit for the added bytes, and not for its whole
 * size again. This also holds after an edit of the limit. */
static void what_lives_grows_in_place_after_an_edit_of_the_limit(void **state) {
  static const char *const kinds[] = { "host", "system" };
  (void)state;
  for (size_t i = 0; i < LM_COUNT(kinds); i++) {
    char text[200];
    for (int mib = 10; mib < 13; mib++) {
      static char *p;
      snprintf(text, sizeof text,
               "local e = loam.%s { name = 'grows.%s', limit = %d * loam.MiB }\n"
               "return loam.policy { pick = function(req) return e end }\n",
               kinds[i], kinds[i], mib);
      assert_int_equal(loam_policy_load_text("grows", text), LOAM_OK);
      if (mib == 10) assert_non_null(p = loam_malloc(NULL, 6 * LM_MIB));
      size_t size = 6 * LM_MIB + (size_t)(mib - 9) * 200 * LM_KIB;
      char *q = loam_realloc(NULL, p, size);
      if (!q) fail_msg("%s, %d MiB: %s", kinds[i], mib, loam_error());
      p = q;
      loam_owner_info owner;
      assert_int_equal(loam_owner(p, &owner), LOAM_OK);
      assert_true(owner.size >= size);
      const lm_strategy *s = lm_strategy_at(lm_strategy_count() - 1);
      assert_in_range(lm_strategy_limit_used(s), size, size + size / 2);
      if (mib == 12) loam_free(p);
      if (mib == 12) assert_int_equal(lm_strategy_limit_used(s), 0);
    }
  }
}

static void note_refused(void *ctx, const loam_placed *row) {
  if (!strcmp(row->what, "refused")) *(uint64_t *)ctx += row->bytes;
}

/* When a block moves to a strategy that has its account in common with the old one, the block
 * already counts there. */
static void what_lives_moves_to_an_edited_limit_be_it_full_or_not(void **state) {
  enum { LARGE = 5 << 20 };
  loam_owner_info was, is;
  uint64_t refused = 0;
  int n = 0;
  (void)state;
  set_limit(8 << 10, "");
  char *p = loam_malloc(NULL, LARGE);
  assert_int_equal(loam_owner(p, &was), LOAM_OK);
  set_limit(3 << 10, "");
  assert_null(loam_malloc(NULL, SIZE));
  assert_int_equal(loam_rebalance(NULL, NULL, note_refused, &refused), LOAM_OK);
  assert_int_equal(loam_owner(p, &is), LOAM_OK);
  assert_int_equal(refused, 0);
  assert_int_equal(is.generation, was.generation + 1);
  assert_null(loam_malloc(NULL, SIZE));
  loam_free(p);
  loam_trim();
  assert_in_range(take_more(&n), 3 * LM_MIB - LM_MIB / 8, 3 * LM_MIB);
  free_all(&n);
}

/* Two policies move the blocks to another strategy and back. */
static void a_block_that_moves_leaves_its_limit(void **state) {
  int n = take_all(), again;
  (void)state;
  assert_int_equal(
      loam_policy_load_text("other", "local o = loam.host { name = 'other' }\n"
                                     "return loam.policy { pick = function(req) return o end }\n"),
      LOAM_OK);
  for (int i = 0; i < n; i++) assert_non_null(taken[i] = loam_realloc(NULL, taken[i], SIZE + 1));
  char *moved[MOST];
  memcpy(moved, taken, sizeof moved);
  assert_int_equal(set_up(NULL), 0);
  again = take_all();
  assert_int_equal(again, n);
  free_all(&again);
  for (int i = 0; i < n; i++) loam_free(moved[i]);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, check_laws)
  const struct CMUnitTest tests[] = {
    TEST(eight_threads_pass_no_limit_and_every_fallback_is_accounted),
    TEST(what_a_thread_keeps_for_reuse_it_can_have_again),
    TEST(frees_of_other_threads_give_the_whole_limit_back),
    TEST(a_failed_realloc_takes_nothing_of_a_limit),
    TEST(a_block_that_moves_leaves_its_limit),
    TEST(what_is_resized_counts_all_the_while),
    TEST(what_is_to_shrink_stays_where_there_is_no_room),
    TEST(what_lives_counts_when_a_limit_is_edited),
    TEST(what_lives_grows_in_place_after_an_edit_of_the_limit),
    TEST(what_lives_moves_to_an_edited_limit_be_it_full_or_not),
  };
  setenv("LOAM_CONTROL", "0", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
