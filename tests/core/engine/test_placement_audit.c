/* test_placement_audit.c - compares where the policy placed memory with where the kernel put it, on
 * the nodes of this machine (engine/placement_audit.h). tests/vm has more such tests. */
#include "engine/placement_audit.h"
#include "engine_fixture.h"

static loam_got found;
static int rows;

static void keep(void *ctx, const loam_got *got) {
  if (strcmp(ctx, got->strategy)) return;
  rows++;
  found = *got;
}

static bool find_got(const char *name) {
  rows = 0;
  assert_int_equal(lm_placement_audit_each(keep, (void *)(uintptr_t)name), LOAM_OK);
  assert_in_range(rows, 0, 1);
  return rows;
}

static lm_strategy *placed(const char *name, lm_huge huge) {
  lm_desc desc = { .huge = huge };
  desc.placement.mode = LM_BIND_PREFERRED;
  desc.placement.nodes = lm_numa_nodes();
  return intern(desc, name);
}

static void pages_are_reported_once_and_by_node(void **state) {
  (void)state;
  skip_if_none_is_placed();
  CHAIN(placed("got.small", LM_HUGE_DEFAULT));
  static char *p[1000];
  for (int i = 0; i < 1000; i++) memset(p[i] = get(1024), 1, 1024);
  char *large = get(8 << 20);
  memset(large, 1, 1 << 20);
  assert_true(find_got("got.small"));
  size_t least = (1000 << 10) + (8 << 20);
  assert_in_range(found.live_bytes, least, least + 64 * LM_PAGE);
  if (!found.checked_bytes) {
    print_message("this kernel or container does not tell where pages are\n");
    skip();
  }
  assert_int_equal(found.checked_bytes, found.live_bytes);
  assert_in_range(found.untouched_bytes, 0, 7 << 20);
  assert_int_equal(found.elsewhere_bytes, 0);
  uint64_t sum = 0;
  for (int node = 0; node < 64; node++) sum += found.node_bytes[node];
  assert_int_equal(sum + found.untouched_bytes, found.checked_bytes);
  put(large);
  for (int i = 0; i < 1000; i++) put(p[i]);
}

static void large_strategies_are_sampled(void **state) {
  (void)state;
  skip_if_none_is_placed();
  CHAIN(placed("got.sampled", LM_HUGE_DEFAULT));
  char *p = get(512 << 20);
  assert_true(find_got("got.sampled"));
  assert_int_equal(found.live_bytes, 512 << 20);
  if (found.checked_bytes) assert_in_range(found.checked_bytes, 32 << 20, 64 << 20);
  put(p);
}

static void a_strategy_that_could_not_serve_is_reported(void **state) {
  (void)state;
  CHAIN(limited_strategy("got.tight", 100000), host("got.rest"));
  char *p = get(200000);
  assert_true(find_got("got.tight"));
  assert_int_equal(found.failed, 1);
  assert_true(find_got("got.rest"));
  assert_int_equal(found.served_late, 1);
  put(p);
  CHAIN(host("got.content"));
  put(get(100));
  assert_false(find_got("got.content"));
}

static void requests_beyond_a_limit_are_reported_across_edits(void **state) {
  (void)state;
  CHAIN(limited_strategy("got.edited", 100000), host("got.rest"));
  put(get(200000));
  CHAIN(limited_strategy("got.edited", 150000), host("got.rest"));
  put(get(200000));
  put(get(200000));
  char *p = get(100000);
  assert_true(find_got("got.edited"));
  assert_int_equal(rows, 1);
  assert_int_equal(found.failed, 3);
  assert_int_equal(found.at_limit, 3);
  assert_int_equal(found.limit, 150000);
  assert_in_range(found.limit_used, 100000, 150000);
  put(p);
  CHAIN(handler_strategy("got.nobody"), host("got.rest"));
  put(get(100));
  assert_true(find_got("got.nobody"));
  assert_int_equal(found.failed, 1);
  assert_int_equal(found.at_limit, 0);
}

/* Programs may ask for huge pages themselves, as NumPy does for its arrays. */
static void huge_pages_that_the_program_asked_for_are_reported(void **state) {
  (void)state;
  enum { SIZE = 16 << 20 };
  CHAIN(intern((lm_desc){ .huge = LM_HUGE_NEVER }, "got.never"));
  char *p = get(SIZE);
  assert_true(find_got("got.never"));
  assert_int_equal(found.huge_bytes, 0);
  if (madvise(p, SIZE, MADV_HUGEPAGE)) skip();
  memset(p, 1, SIZE);
  assert_true(find_got("got.never"));
  assert_int_equal(found.huge_asked_bytes, 0);
  if (!found.huge_bytes) print_message("this kernel gave no huge pages\n");
  else assert_in_range(found.huge_bytes, 2 << 20, SIZE);
  put(p);
}

static void huge_pages_are_reported_as_far_as_there_are(void **state) {
  (void)state;
  skip_if_none_is_placed();
  CHAIN(placed("got.huge", LM_HUGE_THP));
  char *p = get(8 << 20);
  memset(p, 1, 8 << 20);
  assert_true(find_got("got.huge"));
  assert_int_equal(found.huge_asked_bytes, 8 << 20);
  assert_in_range(found.huge_bytes, 0, 8 << 20);
  put(p);
}

/* A cache on huge pages consists of small blocks: most of its pages hold several of them. */
static void huge_pages_are_asked_for_small_blocks_too(void **state) {
  (void)state;
  skip_if_none_is_placed();
  CHAIN(placed("got.cache", LM_HUGE_THP));
  static char *p[1000];
  for (int i = 0; i < 1000; i++) memset(p[i] = get(1024), 1, 1024);
  assert_true(find_got("got.cache"));
  assert_in_range(found.live_bytes, 1000 << 10, (1000 << 10) + 64 * LM_PAGE);
  assert_int_equal(found.huge_asked_bytes, found.live_bytes);
  assert_in_range(found.huge_bytes, 0, found.live_bytes);
  for (int i = 0; i < 1000; i++) put(p[i]);
}

static void attempt(bool refused) {
  (void)refused;
  loam_status status = lm_placement_audit_each(keep, (void *)(uintptr_t) "got.huge");
  assert_true(status == LOAM_OK || status == LOAM_ENOMEM);
}

static void any_call_may_be_refused(void **state) {
  (void)state;
  skip_if_none_is_placed();
  CHAIN(placed("got.huge", LM_HUGE_THP));
  char *p = get(8 << 20);
  assert_true(refuse_each(attempt) > 0);
  put(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(pages_are_reported_once_and_by_node),
    cmocka_unit_test(large_strategies_are_sampled),
    cmocka_unit_test(a_strategy_that_could_not_serve_is_reported),
    cmocka_unit_test(requests_beyond_a_limit_are_reported_across_edits),
    cmocka_unit_test(huge_pages_that_the_program_asked_for_are_reported),
    cmocka_unit_test(huge_pages_are_reported_as_far_as_there_are),
    cmocka_unit_test(huge_pages_are_asked_for_small_blocks_too),
    cmocka_unit_test(any_call_may_be_refused),
  };
  return cmocka_run_group_tests_name("got", tests, set_up, NULL);
}
