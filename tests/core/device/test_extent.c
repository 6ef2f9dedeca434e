/* test_extent.c - ranges of addresses that are cut into extents, sets of extents, and the table of
 * ranges. The test needs no device, and memory at the addresses is never touched. */
#include "device/extent.h"
#include "test.h"

enum { SHIFT = 12, GRANULE = 1 << SHIFT, GRANULES = 64, SIZE = GRANULE * GRANULES };

static const uintptr_t base = (uintptr_t)1 << 40;

static void finds_an_extent_from_each_of_its_addresses(void **state) {
  static lm_extent_range r;
  lm_extent whole, rest, last;
  (void)state;
  assert_true(lm_extent_range_init(&r, base, SIZE, SHIFT, &whole));
  lm_extent_split(&whole, 3 * GRANULE, &rest);
  rest.state = LM_EXTENT_LIVE;
  lm_extent_split(&rest, 60 * GRANULE, &last);
  last.state = LM_EXTENT_HOLE;
  assert_true(lm_extent_range_is_valid(&r));
  assert_ptr_equal(lm_extent_range_find(&r, base), &whole);
  assert_ptr_equal(lm_extent_range_find(&r, base + 3 * GRANULE - 1), &whole);
  assert_ptr_equal(lm_extent_range_find(&r, base + 3 * GRANULE), &rest);
  assert_ptr_equal(lm_extent_range_find(&r, base + SIZE - 1), &last);
  assert_ptr_equal(lm_extent_range_start(&r, base + 3 * GRANULE), &rest);
  assert_null(lm_extent_range_start(&r, base + 4 * GRANULE));
  assert_null(lm_extent_range_start(&r, base + 1));
  rest.state = LM_EXTENT_HOLE;
  assert_false(lm_extent_range_is_valid(&r)); /* two neighbours are holes */
  assert_ptr_equal(lm_extent_join(&rest), &last);
  assert_ptr_equal(lm_extent_join(&whole), &rest);
  assert_true(lm_extent_range_is_valid(&r));
  lm_extent_range_finish(&r);
}

static void finds_the_range_of_an_address(void **state) {
  enum { RANGES = 3 };
  static lm_extent_range r[RANGES];
  static const int order[RANGES] = { 1, 2, 0 };
  lm_extent whole[RANGES];
  (void)state;
  for (int i = 0; i < RANGES; i++) {
    int n = order[i];
    uintptr_t at = base + (uintptr_t)(2 * n) * SIZE;
    assert_true(lm_extent_range_init(&r[n], at, SIZE, SHIFT, &whole[n]));
    assert_true(lm_extent_table_is_valid());
  }
  assert_null(lm_extent_range_of(base - 1));
  assert_ptr_equal(lm_extent_range_of(base + SIZE - 1), &r[0]);
  assert_null(lm_extent_range_of(base + SIZE));
  assert_ptr_equal(lm_extent_range_of(base + 4 * SIZE), &r[2]);
  lm_extent_range_finish(&r[1]);
  assert_null(lm_extent_range_of(base + 2 * SIZE));
  assert_true(lm_extent_table_is_valid());
  lm_extent_range_finish(&r[0]);
  lm_extent_range_finish(&r[2]);
}

/* A device of 208 GiB has so many ranges if each allocation of the driver has 16 MiB. */
static void there_may_be_many_ranges(void **state) {
  enum { RANGES = 13000 };
  static lm_extent_range r[RANGES];
  static lm_extent whole[RANGES];
  int made = 0;
  (void)state;
  while (made < RANGES && lm_extent_range_init(&r[made], base + (uintptr_t)made * GRANULE, GRANULE,
                                               SHIFT, &whole[made]))
    made++;
  assert_int_equal(made, RANGES);
  for (int i = 0; i < RANGES; i++)
    assert_ptr_equal(lm_extent_range_of(base + (uintptr_t)i * GRANULE), &r[i]);
  while (made > 0) lm_extent_range_finish(&r[--made]);
  assert_null(lm_extent_range_of(base));
}

/* A driver may return addresses again after their context has ended together with their memory. */
static void forgets_a_range_whose_addresses_come_again(void **state) {
  static lm_extent_range old, new;
  lm_extent whole[2];
  (void)state;
  assert_true(lm_extent_range_init(&old, base, SIZE, SHIFT, &whole[0]));
  assert_true(lm_extent_range_init(&new, base + SIZE / 2, SIZE, SHIFT, &whole[1]));
  assert_null(lm_extent_range_of(base));
  assert_ptr_equal(lm_extent_range_of(base + SIZE / 2), &new);
  assert_true(lm_extent_table_is_valid());
  lm_extent_range_finish(&new);
  lm_extent_range_finish(&old);
}

static void takes_the_smallest_extent_that_suffices(void **state) {
  static lm_extents set;
  static lm_extent e[4];
  static const size_t sizes[] = { 16 * LM_KIB, 20 * LM_KIB, 16 * LM_KIB, LM_MIB };
  (void)state;
  assert_null(lm_extents_fit(&set, 512));
  for (unsigned i = 0; i < LM_COUNT(e); i++) {
    e[i] = (lm_extent){ .at = base + i * LM_MIB, .size = sizes[i], .state = LM_EXTENT_FREE };
    lm_extents_put(&set, &e[i]);
    assert_true(lm_extents_is_valid(&set));
  }
  assert_ptr_equal(lm_extents_fit(&set, 16 * LM_KIB), &e[0]); /* the lowest of equal ones */
  assert_ptr_equal(lm_extents_fit(&set, 17 * LM_KIB), &e[1]);
  assert_ptr_equal(lm_extents_fit(&set, 21 * LM_KIB), &e[3]);
  assert_null(lm_extents_fit(&set, LM_MIB + 1));
  set.bytes++;
  assert_false(lm_extents_is_valid(&set));
  set.bytes--;
  for (unsigned i = 0; i < LM_COUNT(e); i++) lm_extents_remove(&set, &e[i]);
  assert_true(lm_extents_is_valid(&set));
  assert_int_equal(set.bytes, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(finds_an_extent_from_each_of_its_addresses),
    cmocka_unit_test(finds_the_range_of_an_address),
    cmocka_unit_test(there_may_be_many_ranges),
    cmocka_unit_test(forgets_a_range_whose_addresses_come_again),
    cmocka_unit_test(takes_the_smallest_extent_that_suffices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
