/* test_lock.c - a lock of four bytes: lock.h. */
#include "test.h"

#include <sys/mman.h>

#include "os/changes.h"
#include "os/lock.h"

enum { THREADS = 4, ROUNDS = 20000 };

static lm_lock lock;
static long guarded;

static void a_lock_is_held_between_take_and_drop(void **state) {
  (void)state;
  assert_true(lm_lock_is_valid(&lock) && !lm_lock_is_held(&lock));
  lm_lock_take(&lock);
  assert_true(lm_lock_is_valid(&lock) && lm_lock_is_held(&lock));
  assert_false(lm_lock_try(&lock));
  lm_lock_drop(&lock);
  assert_false(lm_lock_is_held(&lock));
  assert_true(lm_lock_try(&lock));
  assert_true(lm_lock_is_held(&lock));
  lm_lock_drop(&lock);
}

static void *add_under_the_lock(void *unused) {
  (void)unused;
  for (int i = 0; i < ROUNDS; i++) {
    lm_lock_take(&lock);
    guarded++;
    if (i % 100 == 0) sched_yield(); /* so that other threads sleep on the lock */
    lm_lock_drop(&lock);
  }
  return NULL;
}

static void one_thread_at_a_time_is_between_take_and_drop(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  guarded = 0;
  for (int i = 0; i < THREADS; i++) thread[i] = start_thread(add_under_the_lock, NULL);
  for (int i = 0; i < 1000; i++) assert_true(lm_lock_is_valid(&lock));
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  assert_int_equal(guarded, THREADS * ROUNDS);
  assert_true(lm_lock_is_valid(&lock) && !lm_lock_is_held(&lock));
}

static void a_state_above_two_is_not_valid(void **state) {
  (void)state;
  lm_lock broken = { 3 };
  assert_false(lm_lock_is_valid(&broken));
}

/* The lock must delay the cancellation. Otherwise the thread would end at pthread_testcancel or,
 * with the asynchronous type, at any instruction. */
static void *be_cancelled_under_two_locks(void *reached) {
  static lm_lock inner;
  int before;
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
  lm_lock_take(&lock);
  lm_lock_take(&inner);
  pthread_cancel(pthread_self());
  lm_lock_drop(&inner);
  *(int *)reached = 1;
  lm_lock_drop(&lock); /* the thread ends here */
  *(int *)reached = 2;
  return NULL;
}

static void a_cancelled_thread_drops_its_locks_first(void **state) {
  (void)state;
  static int reached;
  skip_if_sanitized(); /* else it would report frames of the cancelled thread */
  void *end;
  pthread_join(start_thread(be_cancelled_under_two_locks, &reached), &end);
  assert_ptr_equal(end, PTHREAD_CANCELED);
  assert_int_equal(reached, 1);
  assert_false(lm_lock_is_held(&lock));
}

/* A page that may not be written stands for a page that a child shares with its parent. */
static void a_free_lock_is_not_written_in_a_child(void **state) {
  (void)state;
  struct {
    lm_lock lock;
    lm_changes changes;
  } *page = mmap(NULL, LM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(page != MAP_FAILED);
  lm_changes_begin(&page->changes);
  atomic_store(&page->lock.state, 1);
  lm_lock_renew(&page->lock);
  lm_changes_renew(&page->changes);
  assert_false(lm_lock_is_held(&page->lock));
  assert_int_equal(page->changes, 2);
  assert_int_equal(mprotect(page, LM_PAGE, PROT_READ), 0);
  lm_lock_renew(&page->lock);
  lm_changes_renew(&page->changes);
  munmap(page, LM_PAGE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_lock_is_held_between_take_and_drop),
    cmocka_unit_test(one_thread_at_a_time_is_between_take_and_drop),
    cmocka_unit_test(a_state_above_two_is_not_valid),
    cmocka_unit_test(a_cancelled_thread_drops_its_locks_first),
    cmocka_unit_test(a_free_lock_is_not_written_in_a_child),
  };
  return cmocka_run_group_tests_name("lock", tests, NULL, NULL);
}
