/* test_range.c - the range: how it is reserved, and how its slots are taken and given back. */
#include <sys/resource.h>

#include "pages/range.h"
#include "test.h"

static void hands_out_runs_at_any_alignment(void **state) {
  (void)state;
  for (size_t align = LM_SLOT; align <= LM_GIB; align *= 2) {
    uint32_t slot = lm_range_take(3, align);
    assert_int_not_equal(slot, 0);
    assert_int_equal((uintptr_t)lm_map_address(slot) % align, 0);
    assert_true(lm_map_owns(lm_map_address(slot)));
    assert_true(lm_range_is_valid());
    lm_range_put(slot, 3);
    assert_true(lm_range_is_valid());
  }
}

static void knows_all_that_it_reserved(void **state) {
  (void)state;
  uint32_t slot = lm_range_take(1, LM_SLOT);
  const char *handed = lm_map_address(slot), *last = (const char *)lm_map.base + lm_map.size - 1;
  assert_true(lm_range_reserves(handed) && lm_range_reserves(lm_map_span(slot)));
  assert_true(lm_range_reserves(last) && !lm_map_owns(last));
  assert_true(lm_range_reserves((const char *)lm_map.base - 1));
  assert_true(lm_range_reserves(lm_map_span(lm_map_slot(last))));
  assert_true(lm_range_reserves((void *)&lm_map.born[lm_map_slot(last)]));
  assert_ptr_equal(&lm_map.born[lm_map_slot(last) + 1], lm_map_span(lm_map_slot(last)));
  assert_true(lm_range_reserves((void *)lm_map.born));
  assert_false(lm_range_reserves((const char *)lm_map.born - 1) || lm_range_reserves(last + 1));
  assert_false(lm_range_reserves(NULL) || lm_range_reserves(&slot));
  lm_range_put(slot, 1);
}

static void reuses_what_came_back(void **state) {
  (void)state;
  uint32_t slot = lm_range_take(100, LM_SLOT);
  size_t top = lm_map.top, handed = lm_range_used();
  lm_range_put(slot, 100);
  assert_int_equal(lm_range_used(), handed - 100 * LM_SLOT);
  for (int i = 0; i < 1000; i++) {
    slot = lm_range_take(100, LM_SLOT);
    lm_range_put(slot, 100);
  }
  assert_int_equal(lm_map.top, top);
}

static void a_slot_that_is_neither_taken_nor_free_is_found(void **state) {
  (void)state;
  uint32_t slot = lm_range_take(2, LM_SLOT);
  size_t top = lm_map.top;
  assert_true(lm_range_is_valid());
  lm_map_extent((uint32_t)(top >> LM_SLOT_SHIFT), 1, LM_USE_NONE);
  lm_map.top = top + LM_SLOT; /* one more slot, which no thread has taken */
  assert_true(lm_map_is_valid());
  assert_false(lm_range_is_valid());
  lm_map.top = top;
  assert_true(lm_range_is_valid());
  lm_range_put(slot, 2);
}

static void refuses_more_than_there_is(void **state) {
  (void)state;
  assert_int_equal(lm_range_take((uint32_t)(lm_map.size >> LM_SLOT_SHIFT), LM_SLOT), 0);
  assert_int_equal(lm_range_take(UINT32_MAX, LM_SLOT), 0);
  assert_int_equal(lm_range_take(1, (size_t)1 << 46), 0);
  assert_true(lm_range_is_valid());
}

static bool limit_address_space(rlim_t bytes) {
  bool done = !setrlimit(RLIMIT_AS, &(struct rlimit){ bytes, RLIM_INFINITY });
  lm_range_limit_changed();
  return done;
}

static size_t address_space(void) {
  size_t used;
  return lm_sys_address_space(&used) ? 0 : used;
}

/* Takes at most `most` single slots, until there are no more, and puts them back. Returns how many
 * it took. */
static uint32_t take_and_put(uint32_t most) {
  enum { MOST = 1 << 16 };
  static uint32_t slot[MOST];
  uint32_t n = 0;
  while (n < most && n < MOST && (slot[n] = lm_range_take(1, LM_SLOT)) != 0) n++;
  for (uint32_t i = 0; i < n; i++) lm_range_put(slot[i], 1);
  return n;
}

/* Checks a condition in a function that runs in a child. If the condition does not hold, the
 * function returns a number for the line. */
#define EXPECT(what)                        \
  do {                                      \
    if (!(what)) return __LINE__ % 250 + 1; \
  } while (0)

/* A process can take all slots that a limit allows, and give them back to its other code. Each
 * value of *bytes is tried in a child, because a limit is set for a whole process. */
static int take_under_limit(void *bytes) {
  size_t more = *(size_t *)bytes, most = more < 512 * LM_MIB ? more : 512 * LM_MIB;
  void *other;
  EXPECT(limit_address_space(address_space() + more));
  uint32_t slots = take_and_put((uint32_t)(most >> LM_SLOT_SHIFT));
  EXPECT(lm_range_is_sparse() && lm_range_is_valid());
  EXPECT((size_t)slots << LM_SLOT_SHIFT >= most - most / 32 - LM_MIB);
  EXPECT(!lm_sys_map(more - more / 32 - LM_MIB, &other));
  lm_sys_unmap(other, more - more / 32 - LM_MIB);
  EXPECT(take_and_put(UINT32_MAX) >= slots);
  return 0;
}

static void takes_all_that_a_limit_on_address_space_allows(void **state) {
  (void)state;
  skip_if_sanitized();
  for (size_t more = 16 * LM_MIB; more <= 64 * LM_GIB; more *= 2)
    assert_int_equal(run_in_child(take_under_limit, &more), 0);
}

/* Another mapping is where the entries of a sparse range would be. Also, call number *refused of
 * the system fails (0: none). Then the range begins elsewhere, or is small and whole. */
static int begin_elsewhere(void *refused) {
  long nth = *(long *)refused;
  void *now;
  EXPECT(!lm_sys_reserve(LM_PAGE, &now));
  uintptr_t base = ((uintptr_t)now & ~(LM_RANGE - 1)) - LM_RANGE;
  EXPECT(!lm_sys_reserve_at((char *)base - LM_PAGE, LM_PAGE));
  EXPECT(limit_address_space(address_space() + 100 * LM_MIB));
  lm_sys_refuse(nth);
  EXPECT(lm_range_take(1, LM_SLOT) || lm_range_take(1, LM_SLOT));
  lm_sys_refuse(0);
  EXPECT(lm_range_is_valid());
  if (!nth) EXPECT(lm_range_is_sparse() && lm_map.base == base - LM_RANGE);
  return take_and_put(UINT32_MAX) > (lm_range_is_sparse() ? 1400 : 500) ? 0 : 1;
}

static void begins_where_no_other_mapping_is(void **state) {
  (void)state;
  skip_if_sanitized();
  for (long refused = 0; refused < 9; refused++)
    assert_int_equal(run_in_child(begin_elsewhere, &refused), 0);
}

static int begin_later(void *unused) {
  (void)unused;
  EXPECT(limit_address_space(address_space() + 4 * LM_PAGE));
  EXPECT(!lm_range_take(1, LM_SLOT) && !lm_range_take(1, LM_SLOT));
  EXPECT(limit_address_space(address_space() + 100 * LM_MIB));
  EXPECT(lm_range_take(1, LM_SLOT) && lm_range_is_sparse() && lm_range_is_valid());
  return take_and_put(UINT32_MAX) > 1400 ? 0 : 1;
}

static void begins_once_the_limit_has_room(void **state) {
  (void)state;
  skip_if_sanitized();
  assert_int_equal(run_in_child(begin_later, NULL), 0);
}

static int reserve_half(void *unused) {
  (void)unused;
  lm_sys_refuse(1);
  EXPECT(lm_range_take(1, LM_SLOT) && lm_range_is_valid());
  EXPECT(!lm_range_is_sparse() && lm_map.size == LM_RANGE / 2 && !lm_map.reach);
  return take_and_put(1000) == 1000 ? 0 : 1;
}

static void reserves_less_where_the_system_refuses_the_whole_range(void **state) {
  (void)state;
  skip_if_sanitized();
  assert_int_equal(run_in_child(reserve_half, NULL), 0);
}

static int shrink_and_grow(void *unused) {
  (void)unused;
  void *other;
  uint32_t kept = lm_range_take(3, LM_SLOT), peak = lm_range_take(1000, LM_SLOT);
  uint32_t last = lm_range_take(1, LM_SLOT);
  lm_range_put(peak, 1000);
  EXPECT(kept && last && address_space() > LM_RANGE);
  EXPECT(limit_address_space(100 * LM_MIB) && lm_range_is_valid());
  EXPECT(address_space() < 20 * LM_MIB); /* the free slots below the last one are gone too */
  EXPECT(lm_range_reserves(lm_map_address(kept)) && lm_range_reserves(lm_map_address(last)));
  EXPECT(!lm_range_reserves((char *)lm_map_address(last) + LM_SLOT));
  EXPECT(!lm_sys_commit(lm_map_address(kept), LM_SLOT));
  uint32_t most = take_and_put(UINT32_MAX);
  EXPECT(most > 1200 && most < 1600 && lm_range_is_valid());
  EXPECT(!lm_sys_map(50 * LM_MIB, &other)); /* other code can map the address space */
  EXPECT(take_and_put(UINT32_MAX) < most - 700);
  lm_sys_unmap(other, 50 * LM_MIB);
  EXPECT(take_and_put(UINT32_MAX) == most);
  EXPECT(limit_address_space(2 * LM_GIB) && take_and_put(16000) == 16000);
  EXPECT(limit_address_space(RLIM_INFINITY) && take_and_put(60000) == 60000);
  EXPECT(lm_range_take((uint32_t)(lm_map.size / 2 >> LM_SLOT_SHIFT), LM_SLOT));
  lm_range_put(kept, 3);
  return lm_range_is_valid() ? 0 : 1;
}

static void gives_back_what_is_not_taken_under_a_late_limit(void **state) {
  (void)state;
  skip_if_sanitized();
  assert_int_equal(run_in_child(shrink_and_grow, NULL), 0);
}

/* Other mappings are at the place where the range would continue, and in a free run. */
static int go_around_others(void *unused) {
  (void)unused;
  uint32_t peak = lm_range_take(100, LM_SLOT), last = lm_range_take(1, LM_SLOT);
  lm_range_put(peak, 100);
  EXPECT(limit_address_space(LM_GIB));
  EXPECT(!lm_sys_reserve_at(lm_map_address(peak), LM_PAGE));
  EXPECT(!lm_sys_reserve_at(lm_map_address(last + 1), LM_PAGE));
  EXPECT(lm_sys_reserve_at(lm_map_address(last + 1), LM_PAGE) == EEXIST);
  EXPECT(!lm_range_take(100, LM_SLOT) && !lm_range_take(200, LM_SLOT) && lm_range_is_valid());
  lm_sys_unmap(lm_map_address(last + 1), LM_PAGE);
  EXPECT(lm_range_take(200, LM_SLOT) == last + 1 && lm_range_is_valid());
  return 0;
}

static void leaves_mappings_of_others_alone(void **state) {
  (void)state;
  skip_if_sanitized();
  assert_int_equal(run_in_child(go_around_others, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    /* The first six tests need a process that has not reserved the range. */
    cmocka_unit_test(takes_all_that_a_limit_on_address_space_allows),
    cmocka_unit_test(begins_where_no_other_mapping_is),
    cmocka_unit_test(begins_once_the_limit_has_room),
    cmocka_unit_test(reserves_less_where_the_system_refuses_the_whole_range),
    cmocka_unit_test(gives_back_what_is_not_taken_under_a_late_limit),
    cmocka_unit_test(leaves_mappings_of_others_alone),
    cmocka_unit_test(hands_out_runs_at_any_alignment),
    cmocka_unit_test(knows_all_that_it_reserved),
    cmocka_unit_test(reuses_what_came_back),
    cmocka_unit_test(a_slot_that_is_neither_taken_nor_free_is_found),
    cmocka_unit_test(refuses_more_than_there_is),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
