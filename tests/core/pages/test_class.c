/* test_class.c - size classes and the spans that hold them. */
#include "heap/central.h"
#include "pages/class.h"
#include "test.h"

static void gives_the_least_class_that_holds_a_size(void **state) {
  (void)state;
  for (size_t size = 0; size <= LM_SMALL_MAX; size++) {
    unsigned c = lm_class_of(size);
    assert_true(c < LM_CLASS_ALIGNED && lm_class_size(c) >= size);
    if (c) assert_true(lm_class_size(c - 1) < size);
    assert_in_range(size, lm_class_min_size(c), lm_class_max_size(c));
  }
}

static void wastes_a_fifth_of_a_large_object_at_most(void **state) {
  (void)state;
  for (size_t size = 129; size <= LM_SMALL_MAX; size++)
    assert_true(lm_class_size(lm_class_of(size)) - size < size / 4);
}

static void steps_by_sixteen_up_to_the_most(void **state) {
  (void)state;
  for (unsigned c = 0; c < LM_CLASSES; c++) assert_int_equal(lm_class_size(c) % 16, 0);
  assert_int_equal(lm_class_size(0), 16);
  assert_int_equal(lm_class_of(LM_SMALL_MAX), LM_CLASS_SKEWED);
  assert_int_equal(lm_class_size(LM_CLASS_SKEWED - 1), LM_SMALL_EVEN);
}

static void finds_a_class_by_the_bytes_of_its_objects(void **state) {
  (void)state;
  for (unsigned c = 0; c < LM_CLASSES; c++)
    assert_int_equal(lm_class_of_usable(lm_class_size(c)), c);
}

/* The cache line of an address within its page selects the set of a CPU cache. */
static void begins_objects_of_64_KiB_in_different_sets(void **state) {
  (void)state;
  bool taken[64] = { false };
  for (size_t i = 0; i < lm_central_span_count(LM_CLASS_SKEWED); i++) {
    size_t set = i * lm_class_size(LM_CLASS_SKEWED) % LM_PAGE / LM_CACHE_LINE;
    assert_false(taken[set]);
    taken[set] = true;
  }
}

static void has_a_class_for_every_alignment(void **state) {
  (void)state;
  for (size_t align = 16; align <= LM_PAGE; align *= 2) {
    bool found = false;
    for (unsigned c = lm_class_of(align); c < LM_CLASSES; c++)
      found = found || lm_class_size(c) % align == 0;
    assert_true(found);
  }
}

static void wastes_an_eighth_of_a_span_at_most(void **state) {
  (void)state;
  for (unsigned c = 0; c < LM_CLASSES; c++) {
    size_t bytes = (size_t)lm_central_span_slots(c) << LM_SLOT_SHIFT;
    size_t used = lm_central_span_count(c) * lm_class_size(c);
    assert_true(used <= bytes && bytes - used <= bytes / 8);
    assert_in_range(lm_central_span_count(c), 16, UINT16_MAX);
  }
}

static void groups_all_sizes_for_figures(void **state) {
  (void)state;
  size_t next = 0;
  for (unsigned c = 0; c < LM_CLASSES_COUNTED; c++) {
    /* The usable bytes of a block never select these two classes. */
    if (c == LM_CLASS_ALIGNED || c == LM_CLASSES) continue;
    size_t from = lm_class_counted_from(c), to = lm_class_counted_to(c);
    assert_int_equal(from, next);
    assert_int_equal(lm_class_counted(from), c);
    assert_int_equal(lm_class_counted(to), c);
    assert_int_equal(lm_class_counted(from + (to - from) / 2), c);
    assert_true(from < 200 || to - from <= to / 4 || to <= 4 * LM_SMALL_MAX);
    next = to + 1;
  }
  assert_int_equal(next, LM_SIZE_MAX + 1);
  assert_int_equal(lm_class_counted(SIZE_MAX), LM_CLASSES_COUNTED - 1);
  assert_int_equal(lm_class_counted_to(LM_CLASS_UNKNOWN), LM_SIZE_MAX);
  for (unsigned c = 0; c < LM_CLASSES; c++)
    assert_int_equal(lm_class_counted_object(lm_class_size(c)), lm_class_counted_as(c));
  for (unsigned c = LM_CLASSES; c < LM_CLASSES_ALL; c++)
    assert_int_equal(lm_class_counted_object((size_t)lm_class_slots(c) << 16),
                     c == LM_CLASSES ? LM_CLASS_SKEWED : c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(gives_the_least_class_that_holds_a_size),
    cmocka_unit_test(wastes_a_fifth_of_a_large_object_at_most),
    cmocka_unit_test(steps_by_sixteen_up_to_the_most),
    cmocka_unit_test(finds_a_class_by_the_bytes_of_its_objects),
    cmocka_unit_test(begins_objects_of_64_KiB_in_different_sets),
    cmocka_unit_test(has_a_class_for_every_alignment),
    cmocka_unit_test(wastes_an_eighth_of_a_span_at_most),
    cmocka_unit_test(groups_all_sizes_for_figures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
