/* test_demote.c - loam_demote: the memory that becomes cold or moves to a slower node, by tag and
 * age. loam_rebalance moves it back. */
#include "heap/age.h"
#include "rebalance_fixture.h"

static void demote(loam_demote_to to, unsigned older) {
  loam_demote_options options = {
    .size = sizeof options, .tag = "cold", .to = to, .rate = UINT64_MAX, .older_s = older
  };
  report = (struct report){ 0 };
  if (loam_demote(&options, NULL, note, NULL) != LOAM_OK) fail_msg("%s", loam_error());
}

static void load_whole(const char *policy) {
  if (loam_policy_load_text("whole", policy) != LOAM_OK) fail_msg("%s", loam_error());
}

static void cold_memory_goes_first_by_tag_and_age(void **state) {
  (void)state;
  load(PLAIN);
  char *p = filled("cold.archive", 4 * MiB), *q = filled("colder", 4 * MiB),
       *s = filled("cold", 50);
  demote(LOAM_TO_COLD, 0);
  /* The small object becomes cold only if all objects of its span are cold. */
  assert_in_range(report.moved, 4 * MiB, 4 * MiB + 64);
  assert_string_equal(strategy_of(p), "plain");
  demote(LOAM_TO_COLD, 3600);
  assert_int_equal(report.moved, 0);
  assert_int_equal(report.refused, 4 * MiB + 64);
  is_filled(p, 4 * MiB);
  loam_free(p);
  loam_free(q);
  loam_free(s);
}

/* Sets the birth of a block to half the time since the machine started. Returns its age in
 * seconds. */
static unsigned make_old(const void *p) {
  uint32_t now = (uint32_t)(lm_sys_clock_ns() / 1000000000);
  atomic_store(&lm_map.born[lm_map_slot(p)], 1 + now / 2);
  return now / 2;
}

/* A block that was freed into a thread's bin and then taken again is a new block. */
static void a_block_is_as_old_as_its_memory_is_in_use(void **state) {
  (void)state;
  load(PLAIN);
  char *old = filled("cold.old", 2 * MiB), *reused = filled("cold.reused", 300000);
  lm_age_tick();
  unsigned age_s = make_old(old);
  make_old(reused);
  assert_true(age_s > 1);
  loam_free(reused);
  char *young = filled("cold.young", 300000);
  assert_ptr_equal(young, reused);
  lm_age_tick();
  demote(LOAM_TO_COLD, age_s);
  assert_int_equal(report.moved, 2 * MiB);
  refused_as("younger");
  loam_free(old);
  loam_free(young);
}

static void what_is_demoted_to_a_node_comes_back(void **state) {
  (void)state;
  load(PLAIN);
  char *p = filled("cold", 4 * MiB);
  demote(LOAM_TO_NODE, 0); /* node 0 is the only node */
  assert_string_equal(strategy_of(p), "plain@node0");
  demote(LOAM_TO_NODE, 0);
  assert_int_equal(report.right, 4 * MiB);
  rebalance_tag("cold");
  assert_string_equal(strategy_of(p), "plain");
  is_filled(p, 4 * MiB);
  loam_free(p);
}

/* A demoted block is in a strategy without a limit, a soft limit or a shared limit. */
static void memory_with_a_soft_limit_is_demoted(void **state) {
  (void)state;
  load_whole(
      "local plain = loam.host { name = 'plain', limit = 64 * loam.MiB, soft = 32 * loam.MiB }\n"
      "return loam.policy { name = 'soft', pick = function(req) return plain end }\n");
  char *p = filled("cold", 4 * MiB);
  demote(LOAM_TO_NODE, 0);
  assert_int_equal(report.refused, 0);
  assert_string_equal(strategy_of(p), "plain@node0");
  loam_free(p);
}

/* A counted block has another kind of state than other blocks. */
static void a_counted_block_is_as_old_as_its_memory_is_in_use(void **state) {
  (void)state;
  load_whole("local plain = loam.host { name = 'plain' }\n"
             "local other = loam.host { name = 'other' }\n"
             "return loam.policy { name = 'counted', pick = function(req)\n"
             "  if req.live > 1 * loam.GiB then return other end\n"
             "  return plain\nend }\n");
  char *reused = filled("cold.counted", 300000);
  lm_age_tick();
  assert_true(make_old(reused) > 1);
  loam_free(reused);
  char *young = filled("cold.counted", 300000);
  assert_ptr_equal(young, reused);
  assert_int_equal(lm_age_of(lm_map_slot(young)), 0);
  loam_free(young);
}

static bool has_swap(void) {
  char text[4096] = "";
  size_t length;
  (void)lm_sys_read_file("/proc/swaps", text, sizeof text, &length);
  const char *rest = strchr(text, '\n'); /* the first line names the columns */
  return rest && rest[1];
}

/* Without swap, neither the span of a single object nor a large block that was touched in part is
 * paged out. */
static void without_swap_nothing_is_paged_out(void **state) {
  (void)state;
  if (has_swap()) skip();
  load(PLAIN);
  char *small = filled("cold.small", 5000), *large = loam_malloc(loam_site_get("cold.large"), MiB);
  large[0] = 1;
  demote(LOAM_TO_PAGEOUT, 0);
  assert_int_equal(report.moved, 0);
  assert_true(report.refused >= MiB + 5000);
  refused_as("is there swap");
  is_filled(small, 5000);
  loam_free(small);
  loam_free(large);
}

static void bad_arguments_are_refused(void **state) {
  (void)state;
  loam_demote_options demotion = { .size = sizeof demotion, .tag = "x", .node = 63 };
  char long_tag[257] = "";
  memset(long_tag, 'x', 256);
  assert_int_equal(loam_demote(NULL, NULL, NULL, NULL), LOAM_EINVAL);
  assert_int_equal(loam_demote(&demotion, NULL, NULL, NULL), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), "node 63"));
  demotion.node = -2;
  assert_int_equal(loam_demote(&demotion, NULL, NULL, NULL), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), "node -2: this machine has node"));
  demotion.to = (loam_demote_to)3;
  assert_int_equal(loam_demote(&demotion, NULL, NULL, NULL), LOAM_EINVAL);
  assert_string_equal(loam_error(), "loam_demote: options.to is 3; 0, 1 and 2 are possible");
  demotion.to = LOAM_TO_NODE;
  demotion.tag = long_tag;
  assert_int_equal(loam_demote(&demotion, NULL, NULL, NULL), LOAM_EINVAL);
  assert_string_equal(loam_error(), "options.tag: it has 256 bytes; at most 255 are possible");
  demotion.tag = NULL;
  assert_int_equal(loam_demote(&demotion, NULL, NULL, NULL), LOAM_EINVAL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(cold_memory_goes_first_by_tag_and_age),
    cmocka_unit_test(a_block_is_as_old_as_its_memory_is_in_use),
    cmocka_unit_test(what_is_demoted_to_a_node_comes_back),
    cmocka_unit_test(memory_with_a_soft_limit_is_demoted),
    cmocka_unit_test(a_counted_block_is_as_old_as_its_memory_is_in_use),
    cmocka_unit_test(without_swap_nothing_is_paged_out),
    cmocka_unit_test(bad_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, start_without_service, NULL);
}
