/* test_moved.c - large blocks that grow by a move of their pages: heap/large.h. */
#include <string.h>

#include "heap/pools.h"
#include "pool_fixture.h"

static void moves_a_large_block_by_its_pages(void **state) {
  (void)state;
  size_t size = 2 * LM_MIB + 5 * LM_PAGE;
  unsigned *p = take(lm_strategy_at(0), size, 16);
  for (size_t i = 0; i < size / 4; i++) p[i] = (unsigned)i;
  for (; size < 300 * LM_MIB; size *= 3) {
    unsigned *q = lm_pool_move(p, size * 3);
    assert_non_null(q);
    lm_object o;
    assert_false(lm_pool_find(p, &o));
    assert_true(lm_pool_find(q, &o) && o.size == lm_align_up(size * 3, LM_PAGE) &&
                o.token == TOKEN);
    p = q;
    for (size_t i = 0; i < (2 * LM_MIB + 5 * LM_PAGE) / 4; i++) assert_int_equal(p[i], i);
    p[size * 3 / 4 - 1] = 1;
    assert_true(lm_pool_is_valid());
  }
  assert_int_equal(release(p), LM_FREE_DONE);
}

static void count_line(void *n, const char *line) {
  (void)line;
  ++*(int *)n;
}

static int count_mappings(void) {
  int n = 0;
  assert_int_equal(lm_sys_each_line("/proc/self/maps", count_line, &n), 0);
  return n;
}

static void a_moved_block_leaves_no_mappings_behind(void **state) {
  (void)state;
  enum { N = 64 };
  char *p[N];
  int before = count_mappings();
  for (int i = 0; i < N; i++) {
    char *small = take(lm_strategy_at(0), LM_MIB, 16);
    memset(small, 1, LM_MIB);
    p[i] = lm_pool_move(small, 2 * LM_MIB);
    assert_non_null(p[i]);
    memset(p[i], 1, 2 * LM_MIB);
    assert_true(lm_pool_resize(p[i], LM_MIB / 2));
  }
  for (int i = 0; i < N; i++) release(p[i]);
  assert_true(count_mappings() < before + N / 4);
}

/* A program that lets a buffer grow again and again would else have all of it zeroed each time. */
static void a_moved_block_with_long_mappings_keeps_its_memory(void **state) {
  (void)state;
  lm_regions *regions = &lm_pools_at(0)->regions;
  char *p = lm_pool_move(take(lm_strategy_at(0), 4 * LM_MIB, 16), 8 * LM_MIB);
  assert_non_null(p);
  size_t before = lm_regions_memory(regions);
  assert_int_equal(release(p), LM_FREE_DONE);
  assert_true(lm_regions_memory(regions) >= before);
}

static void keeps_the_alignment_of_the_strategy_when_it_moves(void **state) {
  (void)state;
  lm_strategy *aligned = intern((lm_desc){ .name = "aligned", .align = 2 * LM_MIB });
  for (int i = 0; i < 8; i++) {
    void *p = take(aligned, 3 * LM_MIB, 16), *behind = take(lm_strategy_at(0), 70000, 16);
    void *q = lm_pool_move(p, (size_t)(8 + i) * LM_MIB);
    assert_int_equal((uintptr_t)(q ? q : p) % (2 * LM_MIB), 0);
    release(behind);
    release(q ? q : p);
  }
}

static void moves_nothing_small(void **state) {
  (void)state;
  void *p = take(lm_strategy_at(0), 100, 16), *q = take(lm_strategy_at(0), 100000, 16);
  assert_null(lm_pool_move(p, 4 * LM_MIB));
  assert_null(lm_pool_move(q, 4 * LM_MIB));
  release(p);
  release(q);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, check_laws)

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(moves_a_large_block_by_its_pages),
    TEST(a_moved_block_leaves_no_mappings_behind),
    TEST(a_moved_block_with_long_mappings_keeps_its_memory),
    TEST(keeps_the_alignment_of_the_strategy_when_it_moves),
    TEST(moves_nothing_small),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
