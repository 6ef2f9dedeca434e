/* test_decay.c - when a tick is due, and when a free wakes the service thread: decay.h. */
#include "os/decay.h"

#include "os/sys.h"
#include "test.h"

#define AN_HOUR_NS 3600000000000

static int woken;
static bool wake(void) {
  woken++;
  return false; /* there is no service thread */
}

static void a_tick_is_due_when_memory_is_free_and_its_time_has_come(void **state) {
  (void)state;
  lm_decay_begin();
  lm_decay_end(false);
  lm_decay_wait(0);
  assert_true(lm_decay_is_asleep());
  assert_false(lm_decay_is_due());
  lm_decay_stir();
  assert_true(lm_decay_is_due());
  lm_decay_wait(AN_HOUR_NS);
  assert_false(lm_decay_is_due());
  lm_decay_wait(0);
  lm_decay_note_served(lm_sys_clock_ns() + AN_HOUR_NS);
  assert_false(lm_decay_is_due());
  lm_decay_note_unserved();
  assert_true(lm_decay_is_due());
}

static void a_tick_sleeps_only_if_nothing_became_free_and_no_more_is_to_do(void **state) {
  (void)state;
  lm_decay_stir();
  lm_decay_begin();
  lm_decay_end(true);
  assert_false(lm_decay_is_asleep());
  lm_decay_begin();
  lm_decay_stir(); /* during the tick */
  lm_decay_end(false);
  assert_false(lm_decay_is_asleep());
  lm_decay_begin();
  lm_decay_end(false);
  assert_true(lm_decay_is_asleep());
}

static void free_memory_wakes_once(void **state) {
  (void)state;
  lm_decay_begin();
  lm_decay_end(false);
  lm_decay_set_wake(wake);
  lm_decay_stir();
  lm_decay_stir();
  lm_decay_begin();
  lm_decay_stir(); /* the tick runs, so its thread is awake */
  assert_int_equal(woken, 1);
  lm_decay_set_wake(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_tick_is_due_when_memory_is_free_and_its_time_has_come),
    cmocka_unit_test(a_tick_sleeps_only_if_nothing_became_free_and_no_more_is_to_do),
    cmocka_unit_test(free_memory_wakes_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
