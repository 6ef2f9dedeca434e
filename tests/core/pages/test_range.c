/* test_range - the range: reserving it, and handing out its slots. */
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
  lm_map.top = top + LM_SLOT; /* one more slot, that no thread has taken */
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

/* Runs in a child, because a limit on the address space is a limit of the whole process. */
static int take_under_limit(size_t limit) {
  struct rlimit r = { limit, limit };
  if (setrlimit(RLIMIT_AS, &r)) return 1;
  size_t used, ignored, slots = 0;
  if (lm_sys_address_space(&used, &ignored)) return 1;
  while (slots < 64 * LM_MIB / LM_SLOT && lm_range_take(1, LM_SLOT)) slots++;
  if (slots < 48 || lm_map.size >= limit || !lm_range_is_valid()) return 2;
  void *rest;
  return lm_sys_map((limit - used) / 8, &rest) ? 3 : 0;
}

static void takes_less_where_address_space_is_limited(void **state) {
  (void)state;
  skip_if_sanitized();
  size_t used, ignored;
  assert_int_equal(lm_sys_address_space(&used, &ignored), 0);
  for (size_t limit = lm_align_up(used, LM_MIB) + 16 * LM_MIB; limit <= 64 * LM_GIB; limit *= 2) {
    pid_t child = fork();
    if (!child) _exit(take_under_limit(limit));
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    /* The first test needs a process that has not reserved the range. */
    cmocka_unit_test(takes_less_where_address_space_is_limited),
    cmocka_unit_test(hands_out_runs_at_any_alignment),
    cmocka_unit_test(knows_all_that_it_reserved),
    cmocka_unit_test(reuses_what_came_back),
    cmocka_unit_test(a_slot_that_is_neither_taken_nor_free_is_found),
    cmocka_unit_test(refuses_more_than_there_is),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
