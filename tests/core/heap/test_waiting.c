/* test_waiting.c - a thread that waits for a step of another thread sleeps after a few tries. If it
 * only yielded, a thread of a real-time priority would wait for ever for a thread of a lower
 * priority that needs the same processor. */
#include <stdlib.h>

#include "test.h"

#include "heap/pool.h"
#include "heap/pools.h"
#include "pages/map.h"

/* What the waiting thread does, and with what. */
typedef struct waiter {
  void (*run)(struct waiter *w);
  lm_thread *area;
  lm_strategy *strategy;
  void *object;
  _Atomic int tid;
  _Atomic bool may_run;
} waiter;

static void *wait_in_a_thread(void *ctx) {
  waiter *w = ctx;
  w->area = lm_thread_get();
  w->tid = lm_sys_thread_id();
  while (!w->may_run) sched_yield();
  w->run(w);
  return NULL;
}

/* Returns how often the thread has gone to sleep. A yield does not count. */
static long sleeps_of(int tid) {
  char path[64], text[4096];
  size_t length;
  snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
  assert_int_equal(lm_sys_read_file(path, text, sizeof text, &length), 0);
  const char *at = strstr(text, "\nvoluntary_ctxt_switches:");
  assert_non_null(at);
  return strtol(strchr(at, ':') + 1, NULL, 10);
}

static pthread_t begin(waiter *w, void (*run)(waiter *)) {
  w->run = run;
  pthread_t thread = start_thread(wait_in_a_thread, w);
  while (!w->tid) sched_yield();
  return thread;
}

static void expect_sleeps(waiter *w) {
  long before = sleeps_of(w->tid);
  w->may_run = true;
  for (int naps = 0; sleeps_of(w->tid) < before + 10;)
    if (!be_patient(&naps)) fail_msg("the thread waits without a sleep");
}

static void enter(waiter *w) {
  lm_thread_enter(w->area);
  lm_thread_leave(w->area);
}

static void a_thread_whose_bins_are_taken_sleeps(void **state) {
  (void)state;
  waiter w = { 0 };
  pthread_t thread = begin(&w, enter);
  lm_thread_set_slow(w.area, LM_SLOW_TAKING);
  expect_sleeps(&w);
  lm_thread_clear_slow(w.area, LM_SLOW_TAKING);
  pthread_join(thread, NULL);
}

static void find(waiter *w) {
  lm_map_object found;
  assert_true(lm_map_find(w->object, &found));
}

static void a_thread_that_finds_a_busy_object_sleeps(void **state) {
  (void)state;
  waiter w = { .object = loam_malloc(loam_site_get("busy"), 64) };
  lm_map_object found;
  assert_true(lm_map_find(w.object, &found));
  pthread_t thread = begin(&w, find);
  atomic_store(found.cell, LM_STATE_BUSY);
  expect_sleeps(&w);
  atomic_store(found.cell, found.state);
  pthread_join(thread, NULL);
  loam_free(w.object);
}

static void read_state(waiter *w) {
  assert_int_not_equal(lm_map_object_state(w->object), LM_STATE_BUSY);
}

static void a_thread_that_reads_the_state_of_a_busy_block_sleeps(void **state) {
  (void)state;
  void *block = loam_malloc(loam_site_get("busy"), 100000);
  lm_map_object found;
  assert_true(lm_map_find(block, &found) && found.large);
  waiter w = { .object = found.cell };
  pthread_t thread = begin(&w, read_state);
  atomic_store(found.cell, LM_STATE_BUSY);
  expect_sleeps(&w);
  atomic_store(found.cell, found.state);
  pthread_join(thread, NULL);
  loam_free(block);
}

static void make(waiter *w) { assert_non_null(lm_pools_make(w->strategy)); }

static void a_request_to_a_strategy_that_closes_sleeps(void **state) {
  (void)state;
  waiter w = { 0 };
  assert_int_equal(lm_strategy_intern(&(lm_desc){ .name = "closes" }, &w.strategy), LOAM_OK);
  assert_non_null(lm_pools_make(w.strategy));
  pthread_t thread = begin(&w, make);
  atomic_store(&w.strategy->retiring, LM_POOL_CLOSED);
  expect_sleeps(&w);
  atomic_store(&w.strategy->retiring, LM_POOL_OPEN);
  pthread_join(thread, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_thread_whose_bins_are_taken_sleeps),
    cmocka_unit_test(a_thread_that_finds_a_busy_object_sleeps),
    cmocka_unit_test(a_thread_that_reads_the_state_of_a_busy_block_sleeps),
    cmocka_unit_test(a_request_to_a_strategy_that_closes_sleeps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
