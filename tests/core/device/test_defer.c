/* test_defer.c - frees that are collected and then done together: defer.h. The test needs no
 * device. */
#include <limits.h>

#include "device/defer.h"
#include "test.h"

static unsigned waits, ended;
static size_t ended_bytes;

static bool refuses;

static bool count_wait(int device) {
  (void)device;
  waits++;
  return !refuses;
}

static void count_end(int kind, int device, void *at, size_t size) {
  assert_int_equal(kind, 7);
  assert_int_equal(device, 1);
  assert_non_null(at);
  ended++;
  ended_bytes += size;
}

static lm_defer queue = { .before = count_wait, .end = count_end };

static int start(void **state) {
  (void)state;
  lm_defer_total(1, LM_MIB);
  loam_defer_limit(3, 0.5);
  (void)lm_defer_drain(&queue, 1);
  waits = ended = 0;
  ended_bytes = 0;
  return 0;
}

static void frees_together_above_the_limit_of_pieces(void **state) {
  char memory[4];
  (void)state;
  for (int i = 0; i < 3; i++) {
    lm_defer_free(&queue, 7, 1, &memory[i], 10);
    assert_int_equal(ended, 0);
    assert_true(lm_defer_is_valid(&queue));
  }
  lm_defer_free(&queue, 7, 1, &memory[3], 10);
  assert_int_equal(ended, 4);
  assert_int_equal(ended_bytes, 40);
  assert_int_equal(waits, 1);
  assert_true(lm_defer_is_valid(&queue));
}

static void frees_above_the_share_of_the_device(void **state) {
  char memory;
  (void)state;
  lm_defer_free(&queue, 7, 1, &memory, LM_MIB / 2);
  assert_int_equal(ended, 0);
  lm_defer_free(&queue, 7, 1, &memory, 1);
  assert_int_equal(ended, 2);
}

static void frees_nothing_while_cleanup_is_deferred(void **state) {
  char memory;
  (void)state;
  loam_defer_enter();
  for (int i = 0; i < 10; i++) lm_defer_free(&queue, 7, 1, &memory, 10);
  assert_int_equal(lm_defer_flush(&queue, -1), 0);
  assert_int_equal(ended, 0);
  assert_true(lm_defer_is_valid(&queue));
  queue.of[1].count++;
  assert_false(lm_defer_is_valid(&queue));
  queue.of[1].count--;
  assert_int_equal(loam_defer_leave(), LOAM_OK);
  assert_int_equal(ended, 10);
}

static void a_flush_frees_all_that_is_pending(void **state) {
  char memory;
  (void)state;
  lm_defer_free(&queue, 7, 1, &memory, 10);
  lm_defer_free(&queue, 7, 1, NULL, 10);
  assert_int_equal(lm_defer_flush(&queue, 0), 0);
  assert_int_equal(lm_defer_flush(&queue, -1), 10);
  assert_int_equal(ended, 1);
}

/* If the wait for the device fails, work may still use the memory. */
static void frees_nothing_if_the_device_cannot_be_waited_for(void **state) {
  char memory[5];
  (void)state;
  refuses = true;
  for (int i = 0; i < 5; i++) lm_defer_free(&queue, 7, 1, &memory[i], 10);
  assert_int_equal(lm_defer_flush(&queue, -1), 0);
  assert_int_equal(ended, 0);
  assert_true(lm_defer_is_valid(&queue));
  refuses = false;
  assert_int_equal(lm_defer_flush(&queue, 1), 50);
  assert_int_equal(ended, 5);
}

static void a_device_that_cannot_exist_has_nothing_pending(void **state) {
  char memory;
  (void)state;
  lm_defer_free(&queue, 7, 1, &memory, 10);
  assert_int_equal(lm_defer_flush(&queue, LM_DEVICES_MAX), 0);
  assert_int_equal(lm_defer_flush(&queue, INT_MAX), 0);
  assert_int_equal(lm_defer_flush(&queue, 1), 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(frees_together_above_the_limit_of_pieces, start),
    cmocka_unit_test_setup(frees_above_the_share_of_the_device, start),
    cmocka_unit_test_setup(frees_nothing_while_cleanup_is_deferred, start),
    cmocka_unit_test_setup(a_flush_frees_all_that_is_pending, start),
    cmocka_unit_test_setup(frees_nothing_if_the_device_cannot_be_waited_for, start),
    cmocka_unit_test_setup(a_device_that_cannot_exist_has_nothing_pending, start),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
