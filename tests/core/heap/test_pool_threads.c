/* test_pool_threads.c - pools under several threads: frees of other threads' objects, ends of
 * threads, walks and changes of tokens during allocations, forks. */
#include <string.h>

#include "cell_of.h"
#include "chance.h"
#include "heap/central.h"
#include "heap/pool.h"
#include "heap/pools.h"
#include "heap/sweep.h"
#include "heap/tcache_slow.h"
#include "heap/walk.h"
#include "test.h"

enum { THREADS = 4, TOKEN = 2, COUNTED = 3 };

enum { SCALE = SANITIZED ? 10 : 1 };

static void *take(lm_thread *t, lm_strategy *s, size_t size, lm_token token) {
  bool zeroed;
  lm_thread_enter(t);
  void *p = lm_pool_alloc(t, s, &(lm_pool_request){ size, 16, token }, &zeroed);
  lm_thread_leave(t);
  return p;
}

static bool release(lm_thread *t, void *p) {
  lm_object object;
  lm_thread_enter(t);
  bool freed = lm_tcache_give(t, p) || lm_pool_free(t, p, &object) == LM_FREE_DONE;
  lm_thread_leave(t);
  return freed;
}

static size_t some_size(uint64_t *seed) {
  return chance(seed, 200) ? 8 + chance(seed, 3000) : 8 + chance(seed, 300000);
}

/* Threads leave blocks on the shelf for other threads to free. */
enum { SHELF = 256 };
static _Atomic(void *) shelf[SHELF];
static _Atomic uint32_t wrong;

static void leave_one(lm_thread *t, void *p, uint32_t at) {
  if (p) memset(p, (int)at, 8);
  void *old = atomic_exchange(&shelf[at], p);
  if (!old) return;
  for (int i = 0; i < 8; i++) wrong += ((unsigned char *)old)[i] != (unsigned char)at;
  wrong += !release(t, old);
}

static void *exchange_blocks(void *arg) {
  lm_thread *t = lm_thread_get();
  uint64_t seed = (uintptr_t)arg;
  for (int i = 0; i < 300000 / SCALE; i++)
    leave_one(t, take(t, lm_strategy_at(0), some_size(&seed), TOKEN), chance(&seed, SHELF));
  return NULL;
}

static void clear_shelf(void) {
  lm_thread *t = lm_thread_get();
  for (uint32_t i = 0; i < SHELF; i++) leave_one(t, NULL, i);
}

static void count(void *ctx, const lm_object *o) {
  if (o->token == TOKEN || o->token == COUNTED || o->token == (COUNTED | LM_TOKEN_COUNTED))
    ++*(size_t *)ctx;
}

static size_t live(void) {
  size_t n = 0;
  lm_walk_each(count, &n);
  return n;
}

static void run_threads(int n, void *(*run)(void *)) {
  pthread_t thread[64];
  for (int i = 0; i < n; i++) thread[i] = start_thread(run, (void *)(uintptr_t)(i + 1));
  for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
}

static void frees_what_others_allocated(void **state) {
  (void)state;
  run_threads(THREADS, exchange_blocks);
  clear_shelf();
  assert_int_equal(wrong, 0);
  assert_int_equal(live(), 0);
  assert_true(lm_pool_is_valid());
}

static void *leave_a_cache(void *arg) {
  lm_thread *t = lm_thread_get();
  void *p[100];
  for (unsigned c = 0; c < LM_CLASSES; c++) {
    for (int i = 0; i < 100; i++) p[i] = take(t, lm_strategy_at(0), lm_class_size(c), TOKEN);
    for (int i = 0; i < 100; i++) wrong += !release(t, p[i]);
  }
  return arg;
}

static void takes_back_what_an_ended_thread_cached(void **state) {
  (void)state;
  lm_pool_figures before, after;
  run_threads(1, leave_a_cache);
  lm_pool_figures_get(&before);
  for (int i = 0; i < 100; i++) run_threads(1, leave_a_cache);
  lm_pool_figures_get(&after);
  assert_int_equal(wrong, 0);
  /* Threads take from different current spans, which need 8 MiB for each of them over all
   * classes. */
  assert_true(after.regions <= before.regions + (8 + 8 * LM_CENTRAL_CURRENT) * LM_MIB);
  assert_true(lm_pool_is_valid());
}

static void *serve_while_dying(void *arg) {
  lm_thread *t = lm_thread_get();
  t->dying = true;
  void *p = take(t, lm_strategy_at(0), 100, TOKEN), *q = take(t, lm_strategy_at(0), 200, TOKEN);
  wrong += !p || !q || !release(t, p) || !release(t, q) || release(t, q);
  for (unsigned c = 0; c < LM_CLASSES; c++)
    wrong += lm_tcache_bin_is_open(&lm_tcache_of(t)->pool[lm_strategy_at(0)->place].bin[c]);
  return arg;
}

static void keeps_nothing_in_a_thread_that_ends(void **state) {
  (void)state;
  run_threads(1, serve_while_dying);
  assert_int_equal(wrong, 0);
}

static _Atomic bool stop;

static void *exchange_until_told(void *arg) {
  while (!stop) exchange_blocks(arg);
  return NULL;
}

/* These objects are live during all walks. Each walk must visit each of them once. */
enum { MARKED = 3000, MARK = 99 };

static void count_marked(void *ctx, const lm_object *o) {
  if (o->token == MARK) ++*(size_t *)ctx;
}

static void a_walk_sees_each_lasting_object_once(void **state) {
  (void)state;
  static void *marked[MARKED];
  pthread_t thread[2];
  lm_thread *t = lm_thread_get();
  uint64_t seed = 11;
  stop = false;
  for (uintptr_t i = 0; i < 2; i++) thread[i] = start_thread(exchange_until_told, (void *)(i + 1));
  for (int i = 0; i < MARKED; i++) marked[i] = take(t, lm_strategy_at(0), some_size(&seed), MARK);
  for (int i = 0; i < 300 / SCALE; i++) {
    size_t n = 0;
    lm_walk_each(count_marked, &n);
    assert_int_equal(n, MARKED);
  }
  stop = true;
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < MARKED; i++) assert_true(release(t, marked[i]));
  clear_shelf();
  assert_int_equal(wrong, 0);
}

/* A small model of how the engine begins to count a tag: from some moment on, every new object has
 * a counted token. A walk gives counted tokens to the older objects. Frees of counted objects
 * subtract their bytes. */
static _Atomic lm_token now_token;
static _Atomic int64_t counted;

static bool release_counted(lm_thread *t, void *p) {
  lm_object o;
  lm_thread_enter(t);
  bool freed = lm_tcache_give(t, p);
  if (!freed) {
    freed = lm_pool_free(t, p, &o) == LM_FREE_DONE;
    if (o.token & LM_TOKEN_COUNTED) counted -= (int64_t)o.size;
  }
  lm_thread_leave(t);
  return freed;
}

static void *take_counted(lm_thread *t, size_t size) {
  lm_object o;
  bool zeroed;
  lm_thread_enter(t);
  lm_token token = now_token;
  void *p = lm_pool_alloc(t, lm_strategy_at(0), &(lm_pool_request){ size, 16, token }, &zeroed);
  if (token & LM_TOKEN_COUNTED && lm_pool_find(p, &o)) counted += (int64_t)o.size;
  lm_thread_leave(t);
  return p;
}

static void *churn_counted(void *arg) {
  enum { HELD = 100 };
  lm_thread *t = lm_thread_get();
  uint64_t seed = (uintptr_t)arg;
  void *held[HELD] = { 0 };
  while (!stop) {
    uint32_t at = chance(&seed, HELD);
    if (held[at]) wrong += !release_counted(t, held[at]);
    held[at] = take_counted(t, some_size(&seed));
  }
  for (int i = 0; i < HELD; i++)
    if (held[i]) wrong += !release_counted(t, held[i]);
  return NULL;
}

static void count_old(void *ctx, const lm_object *o) {
  (void)ctx;
  if (o->token != COUNTED) return;
  counted += (int64_t)o->size;
  if (!lm_pool_retoken(o->base, COUNTED, COUNTED | LM_TOKEN_COUNTED)) counted -= (int64_t)o->size;
}

static void re_owns_live_objects_while_they_are_freed(void **state) {
  (void)state;
  for (int round = 0; round < 20; round++) {
    pthread_t thread[2];
    stop = false;
    now_token = COUNTED;
    counted = 0;
    for (uintptr_t i = 0; i < 2; i++) thread[i] = start_thread(churn_counted, (void *)(i + 1));
    usleep(5000);
    lm_thread_set_slow_all(LM_SLOW_COUNTING);
    now_token = COUNTED | LM_TOKEN_COUNTED;
    assert_true(lm_thread_grace());
    lm_walk_each(count_old, NULL);
    lm_thread_clear_slow_all(LM_SLOW_COUNTING);
    usleep(2000);
    stop = true;
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    assert_int_equal(wrong, 0);
    assert_int_equal(counted, 0);
    assert_int_equal(live(), 0);
  }
}

static int allocate_in_child(void *arg) {
  for (uintptr_t i = 10; i < 12; i++) {
    lm_thread *t = lm_thread_get();
    uint64_t seed = i;
    for (int n = 0; n < 3000; n++)
      leave_one(t, take(t, lm_strategy_at(0), some_size(&seed), TOKEN), chance(&seed, SHELF));
  }
  /* ThreadSanitizer does not let such a child start threads. */
  if (SANITIZED) leave_a_cache(arg);
  else run_threads(1, leave_a_cache);
  clear_shelf();
  return wrong || !lm_pool_is_valid();
}

static void serves_children_forked_amid_allocations(void **state) {
  (void)state;
  pthread_t thread[2];
  stop = false;
  for (uintptr_t i = 0; i < 2; i++) thread[i] = start_thread(exchange_until_told, (void *)(i + 1));
  for (int i = 0; i < 100 / SCALE; i++) assert_int_equal(run_in_child(allocate_in_child, NULL), 0);
  stop = true;
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
  clear_shelf();
  assert_int_equal(wrong, 0);
  assert_true(lm_pool_is_valid());
}

static void *free_twice(void *arg) {
  lm_thread *t = lm_thread_get();
  lm_object o;
  for (uint32_t i = 0; i < SHELF; i++) {
    void *p = shelf[i];
    lm_thread_enter(t);
    wrong += lm_pool_free(t, p, &o) == LM_FREE_DONE;
    lm_thread_leave(t);
  }
  return arg;
}

static void one_of_two_frees_wins(void **state) {
  (void)state;
  lm_thread *t = lm_thread_get();
  for (int round = 0; round < 50; round++) {
    for (uint32_t i = 0; i < SHELF; i++) shelf[i] = take(t, lm_strategy_at(0), 64, TOKEN);
    run_threads(2, free_twice);
    assert_int_equal(wrong, SHELF);
    wrong = 0;
    for (uint32_t i = 0; i < SHELF; i++) shelf[i] = NULL;
  }
  assert_int_equal(live(), 0);
  assert_true(lm_pool_is_valid());
}

/* Two threads may free one object at one moment. Neither sees the free of the other, so the object
 * is in two bins. A sweep must put it back only once. */
static void puts_back_but_once_what_two_threads_freed_at_once(void **state) {
  (void)state;
  lm_thread *t = lm_thread_get();
  void *p = take(t, lm_strategy_at(0), 100, TOKEN),
       *neighbour = take(t, lm_strategy_at(0), 100, TOKEN);
  lm_state_cell *state_cell = cell_of(p);
  lm_state live_state = *state_cell;
  assert_true(lm_tcache_give(t, p));
  *state_cell = live_state;
  assert_true(lm_tcache_give(t, p));
  (void)lm_sweep_trim();
  assert_true(lm_state_is_free(*state_cell));
  assert_true(lm_pool_is_valid());
  assert_true(release(t, neighbour));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(frees_what_others_allocated),
    cmocka_unit_test(takes_back_what_an_ended_thread_cached),
    cmocka_unit_test(keeps_nothing_in_a_thread_that_ends),
    cmocka_unit_test(a_walk_sees_each_lasting_object_once),
    cmocka_unit_test(re_owns_live_objects_while_they_are_freed),
    cmocka_unit_test(serves_children_forked_amid_allocations),
    cmocka_unit_test(one_of_two_frees_wins),
    cmocka_unit_test(puts_back_but_once_what_two_threads_freed_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
