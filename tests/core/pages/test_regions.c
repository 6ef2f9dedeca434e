/* test_regions.c - the slots of one pool: clean and dirty runs, and when slots go back to the
 * system. */
#include "os/decay.h"
#include "os/poison.h"
#include "pages/metadata.h"
#include "pages/range.h"
#include "pages/regions.h"
#include "test.h"

static bool is_valid(lm_regions *r) {
  lm_lock_take(&r->lock);
  bool valid = lm_regions_is_valid(r);
  lm_lock_drop(&r->lock);
  return valid;
}

/* Returns the address of the slots. Removes their poison, so that all bytes may be used. */
static char *bytes_at(uint32_t slot, uint32_t slots) {
  lm_unpoison(lm_map_address(slot), (size_t)slots << LM_SLOT_SHIFT);
  return lm_map_address(slot);
}

static void touched_slots_are_taken_first(void **state) {
  (void)state;
  static lm_regions regions;
  bool clean;
  lm_regions_init(&regions, &(lm_preparation){ 0 });
  uint32_t slot = lm_regions_take(&regions, 10, LM_SLOT, &clean);
  assert_int_not_equal(slot, 0);
  assert_true(clean);
  assert_int_equal(bytes_at(slot, 10)[0], 0);
  assert_false(lm_regions_has_dirty(&regions, 1));
  assert_int_equal(lm_regions_memory(&regions), 10 * LM_SLOT);
  lm_regions_put(&regions, slot, 10);
  assert_true(lm_regions_has_dirty(&regions, 10));
  assert_int_equal(lm_regions_take(&regions, 10, LM_SLOT, &clean), slot);
  assert_false(clean);
  lm_regions_put(&regions, slot, 10);
  assert_true(is_valid(&regions));
  assert_true(lm_regions_drain(&regions));
  assert_int_equal(lm_regions_size(&regions), 0);
}

static void slots_that_follow_can_be_added(void **state) {
  (void)state;
  static lm_regions regions;
  bool clean;
  lm_regions_init(&regions, &(lm_preparation){ 0 });
  uint32_t slot = lm_regions_take(&regions, 40, LM_SLOT, &clean);
  lm_regions_put(&regions, slot + 10, 30);
  assert_false(lm_regions_extend(&regions, slot + 11, 1)); /* no run begins there */
  assert_true(lm_regions_extend(&regions, slot + 10, 5));
  assert_true(lm_regions_extend(&regions, slot + 15, 25));
  assert_true(is_valid(&regions));
  lm_regions_put(&regions, slot, 40);
  assert_true(lm_regions_drain(&regions));
}

static void a_tick_gives_back_what_was_free_since_the_last_one(void **state) {
  (void)state;
  enum { ALL = 128 }; /* a whole region */
  static lm_regions regions;
  bool clean;
  lm_regions_init(&regions, &(lm_preparation){ 0 });
  uint32_t slot = lm_regions_take(&regions, ALL, LM_SLOT, &clean), most = 60;
  bytes_at(slot, ALL)[0] = 1;
  lm_regions_put(&regions, slot, ALL);
  assert_true(lm_regions_decay(&regions, &most)); /* not free throughout the interval */
  assert_int_equal(most, 60);
  assert_true(lm_regions_decay(&regions, &most)); /* some slots are left for a later tick */
  assert_int_equal(most, 0);
  assert_int_equal(lm_regions_memory(&regions), (ALL - 60) * LM_SLOT);
  most = ALL;
  assert_false(lm_regions_decay(&regions, &most));
  assert_int_equal(lm_regions_memory(&regions), 0);
  assert_true(is_valid(&regions));
  assert_true(lm_regions_drain(&regions));
}

static void ticks_wait_longer_where_slots_are_soon_taken_again(void **state) {
  (void)state;
  enum { ALL = 128 };
  static lm_regions regions;
  bool clean;
  uint32_t most = 4 * ALL;
  lm_regions_init(&regions, &(lm_preparation){ 0 });
  uint32_t slot = lm_regions_take(&regions, ALL, LM_SLOT, &clean);
  lm_regions_put(&regions, slot, ALL);
  for (int i = 0; i < 2; i++) (void)lm_regions_decay(&regions, &most);
  assert_int_equal(lm_regions_memory(&regions), 0);
  slot = lm_regions_take(&regions, ALL, LM_SLOT, &clean);
  lm_regions_put(&regions, slot, ALL);
  for (int i = 0; i < 2; i++) assert_true(lm_regions_decay(&regions, &most));
  assert_int_equal(lm_regions_memory(&regions), ALL * LM_SLOT); /* two ticks are one interval */
  assert_true(is_valid(&regions));
  assert_false(lm_regions_decay(&regions, &most));
  assert_int_equal(lm_regions_memory(&regions), 0);
  assert_true(lm_regions_drain(&regions));
}

/* The system refuses to take the slots back, so they keep their memory. Slots that are taken next
 * are then no reason for a longer interval. */
static void what_a_tick_cannot_give_back_was_not_given_back_too_early(void **state) {
  (void)state;
  enum { ALL = 128 };
  static lm_regions regions;
  bool clean;
  uint32_t most = 8 * ALL;
  lm_regions_init(&regions, &(lm_preparation){ 0 });
  uint32_t slot = lm_regions_take(&regions, ALL, LM_SLOT, &clean);
  lm_regions_put(&regions, slot, ALL);
  (void)lm_regions_decay(&regions, &most);
  lm_sys_refuse(1);
  (void)lm_regions_decay(&regions, &most);
  lm_sys_refuse(0);
  assert_int_equal(most, 8 * ALL);
  assert_int_equal(lm_regions_memory(&regions), ALL * LM_SLOT);
  slot = lm_regions_take(&regions, 2 * ALL, LM_SLOT, &clean);
  assert_true(clean);
  lm_regions_put(&regions, slot, 2 * ALL);
  for (int i = 0; i < 2; i++) (void)lm_regions_decay(&regions, &most);
  assert_int_equal(lm_regions_memory(&regions), 0);
  assert_true(is_valid(&regions));
  assert_true(lm_regions_drain(&regions));
}

/* 17 slots are more than half of a huge page. */
static void small_requests_leave_no_gaps(void **state) {
  (void)state;
  enum { SLOTS = 17, REQUESTS = 200 };
  static lm_regions regions;
  uint32_t taken[REQUESTS];
  bool clean;
  lm_regions_init(&regions, &(lm_preparation){ 0 });
  for (int i = 0; i < REQUESTS; i++) {
    taken[i] = lm_regions_take(&regions, SLOTS, LM_SLOT, &clean);
    assert_int_not_equal(taken[i], 0);
  }
  assert_true(is_valid(&regions));
  assert_true(regions.held < SLOTS * REQUESTS * 3 / 2);
  for (int i = 0; i < REQUESTS; i++) lm_regions_put(&regions, taken[i], SLOTS);
  assert_true(lm_regions_drain(&regions));
}

/* Checks the law of the queue (lm_verify in regions.c) each time a run is queued or taken from the
 * queue. */
static void slots_that_the_system_refuses_to_take_are_returned_later(void **state) {
  (void)state;
  static lm_regions regions;
  lm_regions_init(&regions, &(lm_preparation){ 0 });
  uint32_t one = lm_range_take(3, LM_SLOT), apart = lm_range_take(1, LM_SLOT);
  uint32_t other = lm_range_take(5, LM_SLOT);
  size_t used = lm_range_used();
  lm_sys_refuse(1);
  lm_regions_return(one, 3);
  lm_sys_refuse(1);
  lm_regions_return(other, 5);
  lm_sys_refuse(0);
  assert_int_equal(lm_range_used(), used);
  lm_regions_trim(&regions);
  assert_int_equal(lm_range_used(), used - 8 * LM_SLOT);
  lm_regions_return(apart, 1);
  assert_true(lm_range_is_valid());
}

static void a_wrong_count_breaks_the_law(void **state) {
  (void)state;
  static lm_regions regions;
  bool clean;
  lm_regions_init(&regions, &(lm_preparation){ 0 });
  uint32_t slot = lm_regions_take(&regions, 10, LM_SLOT, &clean);
  lm_regions_put(&regions, slot, 10);
  uint32_t held = regions.held;
  assert_true(is_valid(&regions));
  regions.held = 9;
  assert_false(is_valid(&regions));
  regions.held = held;
  regions.idle = 11;
  assert_false(is_valid(&regions));
  regions.idle = 0;
  assert_true(lm_regions_drain(&regions));
}

/* A thread that reads states while their span ends must always find readable memory. */
static void memory_that_stays_can_be_read_once_it_is_given_back(void **state) {
  (void)state;
  enum { MANY = 2048 }; /* more slots than are kept */
  static lm_regions regions;
  bool clean;
  lm_regions_init(&regions, &(lm_preparation){ .stays = true });
  uint32_t slot = lm_regions_take(&regions, MANY, LM_SLOT, &clean);
  assert_int_not_equal(slot, 0);
  volatile char *at = lm_map_address(slot);
  lm_unpoison((void *)at, (size_t)MANY << LM_SLOT_SHIFT);
  at[0] = 1;
  lm_regions_put(&regions, slot, MANY);
  lm_regions_trim(&regions);
  assert_int_equal(at[0], 0);
  assert_true(regions.held >= MANY);
}

/* Clean memory counts for RLIMIT_DATA, and where the kernel does not overcommit. */
static void long_runs_leave_when_they_are_renewed(void **state) {
  (void)state;
  enum { LONG = 64 << 4, SHORT = 10 };
  static lm_regions regions;
  bool clean;
  lm_regions_init(&regions, &(lm_preparation){ 0 });
  uint32_t slot = lm_regions_take(&regions, LONG, LM_SLOT, &clean);
  uint32_t other = lm_regions_take(&regions, SHORT, LM_SLOT, &clean);
  uint32_t held = regions.held;
  lm_regions_renew(&regions, other, SHORT);
  assert_int_equal(regions.held, held);
  lm_regions_renew(&regions, slot, LONG);
  assert_int_equal(regions.held, held - LONG);
  assert_true(is_valid(&regions));
  assert_true(lm_regions_drain(&regions));
}

static int start(void **state) {
  (void)state;
  lm_metadata_start();
  lm_decay_note_served(lm_sys_clock_ns() + AN_HOUR); /* free slots stay until a tick */
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(touched_slots_are_taken_first),
    cmocka_unit_test(slots_that_follow_can_be_added),
    cmocka_unit_test(a_tick_gives_back_what_was_free_since_the_last_one),
    cmocka_unit_test(ticks_wait_longer_where_slots_are_soon_taken_again),
    cmocka_unit_test(what_a_tick_cannot_give_back_was_not_given_back_too_early),
    cmocka_unit_test(small_requests_leave_no_gaps),
    cmocka_unit_test(slots_that_the_system_refuses_to_take_are_returned_later),
    cmocka_unit_test(a_wrong_count_breaks_the_law),
    cmocka_unit_test(long_runs_leave_when_they_are_renewed),
    cmocka_unit_test(memory_that_stays_can_be_read_once_it_is_given_back),
  };
  return cmocka_run_group_tests(tests, start, NULL);
}
