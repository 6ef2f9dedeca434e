/* test_sums.c - the table of sums: its rows, their order, its growth, and the spill of a table that
 * may not grow. */
#include "engine/sums.h"

#include "os/sys.h"
#include "test.h"

enum { KEYS = 1000 };

static void keeps_a_row_for_each_key(void **state) {
  (void)state;
  lm_sums_table table = { 0 };
  assert_true(lm_sums_is_valid(&table));
  for (uint64_t key = 1; key <= KEYS; key++) lm_sums_get(&table, key)->live_bytes += key;
  for (uint64_t key = 1; key <= KEYS; key++) lm_sums_get(&table, key)->live_blocks++;
  assert_true(lm_sums_is_valid(&table));
  assert_int_equal(table.n, KEYS);
  for (uint64_t key = 1; key <= KEYS; key++) {
    const lm_sums *row = lm_sums_get(&table, key);
    assert_int_equal(row->live_bytes, key);
    assert_int_equal(row->live_blocks, 1);
  }
  lm_sums_finish(&table);
  assert_true(lm_sums_is_valid(&table));
}

static void sorts_by_live_bytes_then_total_bytes_then_key(void **state) {
  (void)state;
  lm_sums_table table = { 0 };
  lm_sums_get(&table, 7)->live_bytes = 10;
  lm_sums_get(&table, 5)->live_bytes = 20;
  lm_sums_get(&table, 9)->total_bytes = 99;
  lm_sums_get(&table, 3);
  lm_sums_get(&table, 2);
  assert_int_equal(lm_sums_sort(&table), 5);
  static const uint64_t keys[] = { 5, 7, 9, 2, 3 };
  for (int i = 0; i < 5; i++) assert_int_equal(table.row[i].key, keys[i]);
  lm_sums_finish(&table);
}

static void a_fixed_table_adds_to_its_spill(void **state) {
  (void)state;
  lm_sums_table table = { .is_fixed = true };
  lm_sums_get(&table, 1)->total_blocks++;
  assert_int_equal(table.spill.total_blocks, 1);
  assert_true(lm_sums_grow(&table));
  lm_sums_clear(&table);
  assert_true(lm_sums_is_empty(&table.spill));
  for (uint64_t key = 1; key <= KEYS; key++) lm_sums_get(&table, key)->total_blocks++;
  assert_int_equal(table.n + table.spill.total_blocks, KEYS);
  assert_true(lm_sums_is_valid(&table));
  lm_sums_finish(&table);
}

static void its_law_sees_a_wrong_count_and_a_wrong_place(void **state) {
  (void)state;
  lm_sums_table table = { 0 };
  lm_sums *row = lm_sums_get(&table, 1);
  table.n++;
  assert_false(lm_sums_is_valid(&table));
  table.n--;
  lm_sums *other = &table.row[((size_t)(row - table.row) + 1) % table.size];
  *other = *row;
  *row = (lm_sums){ 0 };
  assert_false(lm_sums_is_valid(&table));
  lm_sums_finish(&table);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(keeps_a_row_for_each_key),
    cmocka_unit_test(sorts_by_live_bytes_then_total_bytes_then_key),
    cmocka_unit_test(a_fixed_table_adds_to_its_spill),
    cmocka_unit_test(its_law_sees_a_wrong_count_and_a_wrong_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
