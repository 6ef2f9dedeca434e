/* test_memory_hook.c - the callback for each block that is made, resized or freed:
 * loam_on_memory. */
#include "loam.h"

#include <stdlib.h>

#include "duel.h"
#include "os/memory_hook.h"
#include "os/thread.h"

typedef struct hook_call {
  void *from, *to;
  size_t size;
} hook_call;

typedef struct record {
  unsigned n;
  hook_call last;
} record;

static void note(void *ctx, void *from, void *to, size_t size) {
  record *log = ctx;
  log->n++;
  log->last = (hook_call){ from, to, size };
}

/* Checks the number of calls so far and the arguments of the latest call. */
static void expect(record *log, unsigned n, void *from, void *to, size_t size) {
  assert_int_equal(log->n, n);
  assert_ptr_equal(log->last.from, from);
  assert_ptr_equal(log->last.to, to);
  assert_int_equal(log->last.size, size);
}

static void each_block_is_reported_once(void **state) {
  (void)state;
  static const size_t sizes[] = { 0, 1, 100, 5000, 40000, 3 << 20 };
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    record log = { 0 };
    size_t size = sizes[i];
    loam_on_memory(note, &log);
    void *p = loam_malloc(NULL, size);
    expect(&log, 1, NULL, p, size);
    void *q = loam_realloc(NULL, p, 2 * size + 1);
    expect(&log, 2, p, q, 2 * size + 1);
    loam_free(q);
    expect(&log, 3, q, NULL, 0);
    p = loam_calloc(NULL, 3, size);
    expect(&log, 4, NULL, p, 3 * size);
    loam_free_sized(p, 3 * size);
    expect(&log, 5, p, NULL, 0);
    p = loam_aligned_alloc(NULL, 256, size);
    expect(&log, 6, NULL, p, size);
    loam_free(p);
    p = loam_realloc(NULL, NULL, size);
    expect(&log, 8, NULL, p, size);
    loam_on_memory(NULL, NULL);
    loam_free(p);
    assert_int_equal(log.n, 8);
  }
}

static void blocks_of_a_handler_are_reported(void **state) {
  (void)state;
  record log = { 0 };
  const loam_allocator *a = &loam_handler_of(loam_site_get("hook.handler"))->allocator;
  loam_on_memory(note, &log);
  void *p = a->malloc(a->ctx, 64);
  expect(&log, 1, NULL, p, 64);
  a->free(a->ctx, p, 64);
  expect(&log, 2, p, NULL, 0);
  loam_on_memory(NULL, NULL);
}

static void failures_and_foreign_pointers_are_not_reported(void **state) {
  (void)state;
  record log = { 0 };
  int on_the_stack;
  char *p = loam_malloc(NULL, 100);
  loam_on_memory(note, &log);
  assert_null(loam_malloc(NULL, SIZE_MAX));
  assert_null(loam_calloc(NULL, SIZE_MAX, 2));
  assert_null(loam_aligned_alloc(NULL, 3, 2));
  assert_null(loam_realloc(NULL, p, SIZE_MAX));
  assert_null(loam_realloc(NULL, &on_the_stack, 10));
  loam_free(NULL);
  loam_free(&on_the_stack);
  loam_free(p + 16);
  assert_int_equal(log.n, 0);
  loam_free(p);
  loam_free(p);
  assert_int_equal(log.n, 1);
  loam_on_memory(NULL, NULL);
}

static void the_previous_hook_comes_back(void **state) {
  (void)state;
  record one = { 0 }, two = { 0 };
  loam_memory_hook before = loam_on_memory(note, &one);
  assert_true(!before.callback && !before.ctx);
  before = loam_on_memory(note, &two);
  assert_true(before.callback == note && before.ctx == &one);
  before = loam_on_memory(before.callback, before.ctx);
  assert_true(before.callback == note && before.ctx == &two);
  loam_free(loam_malloc(NULL, 10));
  assert_int_equal(one.n, 2);
  assert_int_equal(two.n, 0);
  loam_on_memory(NULL, NULL);
}

static void allocate(void *ctx, void *from, void *to, size_t size) {
  note(ctx, from, to, size);
  for (size_t n = 1; n < 1 << 20; n *= 3) loam_free(loam_malloc(NULL, n));
}

static void requests_of_the_callback_are_not_reported(void **state) {
  (void)state;
  record log = { 0 };
  loam_on_memory(allocate, &log);
  void *p = loam_malloc(NULL, 50);
  expect(&log, 1, NULL, p, 50);
  loam_free(p);
  expect(&log, 2, p, NULL, 0);
  loam_on_memory(NULL, NULL);
}

static void resign(void *ctx, void *from, void *to, size_t size) {
  note(ctx, from, to, size);
  loam_on_memory(NULL, NULL);
}

static void a_callback_may_take_itself_away(void **state) {
  (void)state;
  record log = { 0 };
  loam_on_memory(resign, &log);
  void *p = loam_malloc(NULL, 50);
  loam_free(p);
  expect(&log, 1, NULL, p, 50);
}

/* ---- Threads */

enum { THREADS = 4, TIMES = 2000 };

static void tally(void *ctx, void *from, void *to, size_t size) {
  (void)size;
  if (!from) __atomic_add_fetch((long *)ctx, 1, __ATOMIC_RELAXED);
  if (!to) __atomic_sub_fetch((long *)ctx, 1, __ATOMIC_RELAXED);
}

static void *work(void *ctx) {
  (void)ctx;
  for (size_t i = 0; i < TIMES; i++) loam_free(loam_realloc(NULL, loam_malloc(NULL, i), 2 * i));
  return NULL;
}

static void every_thread_reports(void **state) {
  (void)state;
  static long live, more;
  pthread_t thread[THREADS];
  loam_on_memory(tally, &live);
  void *kept = loam_malloc(NULL, 1);
  for (int i = 0; i < THREADS; i++) thread[i] = start_thread(work, NULL);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  assert_int_equal(live, 1);
  for (int i = 0; i < THREADS; i++) thread[i] = start_thread(work, NULL);
  for (int i = 0; i < TIMES; i++) loam_on_memory(i % 2 ? tally : NULL, &more);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  loam_on_memory(NULL, NULL);
  loam_free(kept);
}

/* Two threads set hooks at one time: one thread sets a callback, the other removes it. */
static void set_hook(void) {
  static long live;
  loam_on_memory(tally, &live);
}
static void remove_hook(void) { loam_on_memory(NULL, NULL); }

static bool is_slow_while_hooked(void) {
  return lm_memory_hook_is_wanted() == !!(lm_thread_self->slow_reasons & LM_SLOW_HOOKED);
}

static void threads_take_the_slow_path_exactly_while_there_is_a_hook(void **state) {
  (void)state;
  lm_thread_get();
  assert_int_equal(duel_count_wrong(50000, set_hook, remove_hook, is_slow_while_hooked), 0);
  remove_hook();
}

int main(void) {
  setenv("LOAM_CONTROL", "0", 1);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_block_is_reported_once),
    cmocka_unit_test(blocks_of_a_handler_are_reported),
    cmocka_unit_test(failures_and_foreign_pointers_are_not_reported),
    cmocka_unit_test(the_previous_hook_comes_back),
    cmocka_unit_test(requests_of_the_callback_are_not_reported),
    cmocka_unit_test(a_callback_may_take_itself_away),
    cmocka_unit_test(every_thread_reports),
    cmocka_unit_test(threads_take_the_slow_path_exactly_while_there_is_a_hook),
  };
  return cmocka_run_group_tests_name("hook", tests, NULL, NULL);
}
