/* test_moving.c - tests that live memory moves between nodes when a new policy says so, and that a
 * policy can decide by the free memory of a node. Runs on the machine with four nodes, and asks the
 * kernel where pages are. */
#include <sys/wait.h>

#include "heap/pool.h"
#include "loam.h"
#include "os/numa.h"
#include "pages.h"

#define MiB ((size_t)1 << 20)

static void load_text(const char *text) {
  if (loam_policy_load_text("moving.lua", text) != LOAM_OK) fail_msg("%s", loam_error());
}

static void load(const char *strategy) {
  char text[512];
  snprintf(text, sizeof text,
           "local s = %s\n"
           "return loam.policy { pick = function(req) return s end }\n",
           strategy);
  load_text(text);
}

static uint64_t free_on(int node) {
  char path[80], text[1024];
  size_t length;
  snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", node);
  assert_int_equal(lm_sys_read_file(path, text, sizeof text, &length), 0);
  return strtoull(strstr(text, "MemFree:") + 8, NULL, 10) << 10;
}

static uint64_t moved, refused;
static char why[128];
static void note(void *ctx, const loam_placed *row) {
  (void)ctx;
  if (!strcmp(row->what, "moved")) moved += row->bytes;
  if (!strcmp(row->what, "refused")) refused += row->bytes;
  if (*row->why) snprintf(why, sizeof why, "%s", row->why);
}

static void rebalance(const char *tag) {
  loam_rebalance_options options = { .size = sizeof options, .tag = tag, .rate = UINT64_MAX };
  moved = refused = 0;
  why[0] = 0;
  if (loam_rebalance(&options, NULL, note, NULL) != LOAM_OK) fail_msg("%s", loam_error());
}

static void large_blocks_go_where_the_new_policy_says(void **state) {
  (void)state;
  load("loam.host { name = 'on0', numa = 0 }");
  char *p = filled("large", 9 * MiB);
  assert_on(p, 9 * MiB, 1);
  static const struct {
    const char *strategy;
    unsigned nodes;
  } places[] = {
    { "loam.host { name = 'on1', numa = 1 }", 2 },
    { "loam.host { name = 'on3', numa = 3 }", 8 },
    { "loam.host { name = 'two', numa = { 1, 2 } }", 6 },
    { "loam.host { name = 'near', numa = { prefer = 0 } }", 1 },
  };
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    load(places[i].strategy);
    rebalance("large");
    assert_int_equal(moved, 9 * MiB);
    assert_on(p, 9 * MiB, places[i].nodes);
    is_filled(p, 9 * MiB);
  }
  loam_free(p);
}

static void interleaved_and_weighted_blocks_are_spread_again(void **state) {
  (void)state;
  load("loam.host { name = 'on0', numa = 0 }");
  char *p = filled("spread", 16 * MiB);
  load("loam.host { name = 'spread', numa = 'interleave' }");
  rebalance("spread");
  spread found = where_is(p, 16 * MiB);
  for (int node = 0; node < NODES; node++) assert_int_equal(found.on[node], 1024);
  load("loam.host { name = 'weighted', numa = { weights = { [0] = 3, [1] = 1 } } }");
  rebalance("spread");
  found = where_is(p, 16 * MiB);
  assert_in_range(found.on[0], 2900, 3250);
  assert_int_equal(found.on[0] + found.on[1], 4096);
  is_filled(p, 16 * MiB);
  loam_free(p);
}

/* Returns a filled block on huge pages of node 0. */
static char *filled_huge(const char *tag, size_t size) {
  load("loam.host { name = 'huge0', numa = 0, huge = 'thp' }");
  char *p = filled(tag, size);
  assert_int_equal(smaps(p, size, "AnonHugePages"), size / 1024);
  return p;
}

static void is_spread_evenly(const void *p, size_t size) {
  spread found = where_is(p, size);
  for (int node = 0; node < NODES; node++)
    assert_int_equal(found.on[node], (long)(size / PAGE / NODES));
}

/* To spread the 4 KiB pages of a huge page over nodes, loam must split the huge page first: the
 * kernel moves an unsplit huge page as a whole. */
static void huge_pages_are_taken_apart_to_be_spread(void **state) {
  (void)state;
  char *p = filled_huge("apart", 16 * MiB);
  load("loam.host { name = 'by page', numa = 'interleave', huge = false }");
  rebalance("apart");
  assert_int_equal(moved, 16 * MiB);
  assert_string_equal(why, "");
  is_spread_evenly(p, 16 * MiB);
  load("loam.host { name = 'huge0', numa = 0, huge = 'thp' }");
  rebalance("apart");
  load("loam.host { name = 'cells', numa = { weights = { [0] = 3, [1] = 1 } } }");
  rebalance("apart");
  spread found = where_is(p, 16 * MiB);
  assert_in_range(found.on[0], 2900, 3250);
  assert_int_equal(found.on[0] + found.on[1], 4096);
  is_filled(p, 16 * MiB);
  loam_free(p);
}

static void huge_pages_by_default_are_spread_whole(void **state) {
  (void)state;
  char *p, *small;
  set("/sys/kernel/mm/transparent_hugepage/enabled", "always");
  load("loam.host { name = 'default0', numa = 0 }");
  p = filled("default", 16 * MiB);
  small = filled("default", 200 << 10);
  load("loam.host { name = 'default spread', numa = 'interleave' }");
  rebalance("default");
  set("/sys/kernel/mm/transparent_hugepage/enabled", "madvise");
  assert_int_equal(moved, 16 * MiB + (200 << 10));
  is_spread_evenly(p, 16 * MiB);
  spread found = where_is(small, 200 << 10);
  for (int node = 0; node < NODES; node++) assert_in_range(found.on[node], 12, 13);
  is_filled(p, 16 * MiB);
  loam_free(small);
  loam_free(p);
}

/* The kernel does not move a page that several processes share. */
static void what_a_forked_process_shares_stays_until_it_is_gone(void **state) {
  (void)state;
  static const char *const wanted[] = { "1", "{ prefer = 1 }", "'interleave'" };
  int gate[2];
  load("loam.host { name = 'shared0', numa = 0 }");
  char *p = filled("shared", 4 * MiB);
  assert_int_equal(pipe(gate), 0);
  pid_t child = fork();
  if (child == 0) {
    close(gate[1]);
    _exit((int)read(gate[0], &(char){ 0 }, 1));
  }
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    char text[80];
    snprintf(text, sizeof text, "loam.host { name = 'wanted%zu', numa = %s }", i, wanted[i]);
    load(text);
    rebalance("shared");
    assert_int_equal(refused, 4 * MiB);
    assert_string_equal(why, "a forked process shares its pages");
    assert_string_equal(strategy_of(p), "shared0");
    assert_on(p, 4 * MiB, 1);
  }
  close(gate[1]);
  assert_int_equal(waitpid(child, NULL, 0), child);
  rebalance("shared");
  assert_int_equal(moved, 4 * MiB);
  is_spread_evenly(p, 4 * MiB);
  is_filled(p, 4 * MiB);
  close(gate[0]);
  loam_free(p);
}

enum { OBJECTS = 4000 };

/* When objects of a moved span are freed, the new strategy uses their pages again, on its node. */
static void small_objects_move_with_their_pages(void **state) {
  (void)state;
  static char *p[OBJECTS];
  load("loam.host { name = 'small0', numa = 0 }");
  for (int i = 0; i < OBJECTS; i++) p[i] = filled("small", 500);
  load("loam.host { name = 'small2', numa = 2 }");
  rebalance("small");
  assert_int_equal(refused, 0);
  for (int i = 0; i < OBJECTS; i++) {
    assert_on(p[i], 500, 4);
    is_filled(p[i], 500);
  }
  for (int i = 0; i < OBJECTS; i += 2) loam_free(p[i]);
  for (int i = 0; i < OBJECTS; i += 2) assert_on(p[i] = filled("small", 500), 500, 4);
  for (int i = 0; i < OBJECTS; i++) loam_free(p[i]);
  assert_true(lm_pool_is_valid());
}

static void huge_pages_move_and_stay_huge(void **state) {
  (void)state;
  char *p = filled_huge("huge", 8 * MiB);
  load("loam.host { name = 'huge1', numa = 1, huge = 'thp' }");
  rebalance("huge");
  assert_on(p, 8 * MiB, 2);
  assert_int_equal(smaps(p, 8 * MiB, "AnonHugePages"), 8 << 10);
  loam_free(p);
}

/* Blocks that move share huge pages with blocks that stay. Only the pages of the moving blocks
 * change their node. */
static void neighbours_stay_where_they_are(void **state) {
  (void)state;
  char *p[32];
  load("loam.host { name = 'next', numa = 0, huge = 'thp' }");
  for (int i = 0; i < 32; i++) p[i] = filled(i % 2 ? "odd" : "even", 128 << 10);
  load_text("local a = loam.host { name = 'next', numa = 0, huge = 'thp' }\n"
            "local b = loam.host { name = 'away', numa = 2 }\n"
            "return loam.policy { pick = function(req)\n"
            "  if req.tag:is('odd') then return b end return a end }\n");
  rebalance(NULL);
  for (int i = 0; i < 32; i++) {
    assert_on(p[i], 128 << 10, i % 2 ? 4 : 1);
    is_filled(p[i], 128 << 10);
    loam_free(p[i]);
  }
}

static void a_full_node_takes_no_more_and_nothing_is_lost(void **state) {
  (void)state;
  enum { BLOCKS = 8, EACH = 8 << 20 };
  char *p[BLOCKS];
  loam_trim();
  load("loam.host { name = 'full1', numa = 1 }");
  char *filler = filled("filler", free_on(1) - 4 * EACH);
  load("loam.host { name = 'full0', numa = 0 }");
  for (int i = 0; i < BLOCKS; i++) p[i] = filled("full", EACH);
  load("loam.host { name = 'full1', numa = 1 }");
  rebalance("full");
  if (moved < EACH || refused < EACH)
    fail_msg("%" PRIu64 " MiB moved, %" PRIu64 " refused: %s; %" PRIu64 " MiB free", moved / MiB,
             refused / MiB, why, free_on(1) / MiB);
  assert_string_equal(why, "its nodes have no room");
  for (int i = 0; i < BLOCKS; i++) {
    loam_owner_info owner;
    assert_int_equal(loam_owner(p[i], &owner), LOAM_OK);
    assert_on(p[i], EACH, strcmp(owner.strategy, "full1") ? 1 : 2);
    is_filled(p[i], EACH);
    loam_free(p[i]);
  }
  loam_free(filler);
  loam_trim();
}

static uint64_t elsewhere;
static void note_got(void *ctx, const loam_got *got) {
  if (!strcmp(got->strategy, ctx)) elsewhere = got->elsewhere_bytes;
}

static uint64_t elsewhere_of(const char *strategy) {
  elsewhere = UINT64_MAX;
  assert_int_equal(loam_got_each(note_got, (void *)(uintptr_t)strategy), LOAM_OK);
  return elsewhere;
}

/* Fills node 1, so that blocks of the strategy get pages of other nodes, then frees node 1 and
 * rebalances. loam_got_each counts pages elsewhere before it, and none after it. */
static void spills_over_and_comes_back(const char *strategy, const char *name, bool huge) {
  enum { EACH = 24 << 20, MANY = 2000 };
  static char *small[MANY];
  loam_trim();
  load("loam.host { name = 'full1', numa = 1 }");
  char *filler = filled("filler", free_on(1) - 16 * MiB);
  load(strategy);
  char *p = filled("spilled", EACH);
  for (int i = 0; i < MANY; i++) small[i] = filled("spilled", 1000);
  assert_true(elsewhere_of(name) > EACH / 8);
  loam_free(filler);
  loam_trim();
  rebalance("spilled");
  if (moved < EACH) fail_msg("%" PRIu64 " MiB moved: %s", moved / MiB, why);
  assert_int_equal(elsewhere_of(name), 0);
  if (huge) assert_true(smaps(p, EACH, "AnonHugePages") >= EACH / 2 / 1024);
  rebalance("spilled");
  assert_int_equal(moved + refused, 0);
  is_filled(p, EACH);
  loam_free(p);
  for (int i = 0; i < MANY; i++) {
    is_filled(small[i], 1000);
    loam_free(small[i]);
  }
  loam_trim();
}

static void what_spilled_over_comes_back(void **state) {
  (void)state;
  spills_over_and_comes_back("loam.host { name = 'near1', numa = { prefer = 1 } }", "near1", false);
  spills_over_and_comes_back("loam.host { name = 'huge1', numa = { prefer = 1 }, huge = 'thp' }",
                             "huge1", true);
  spills_over_and_comes_back("loam.host { name = 'part1', numa = { weights = { [1] = 1 } } }",
                             "part1", false);
  run_on_node(1);
  spills_over_and_comes_back("loam.host { name = 'here1', numa = 'local' }", "here1", false);
  run_on_node(0);
}

static void memory_is_demoted_to_the_node_without_cpus_and_back(void **state) {
  (void)state;
  load("loam.host { name = 'home', numa = 0 }");
  char *p = filled("cold.data", 6 * MiB);
  loam_demote_options options = {
    .size = sizeof options, .tag = "cold", .rate = UINT64_MAX, .node = -1
  };
  if (loam_demote(&options, NULL, NULL, NULL) != LOAM_OK) fail_msg("%s", loam_error());
  assert_on(p, 6 * MiB, 8);
  rebalance("cold");
  assert_on(p, 6 * MiB, 1);
  is_filled(p, 6 * MiB);
  loam_free(p);
}

static void demoted_memory_that_may_be_anywhere_comes_back_too(void **state) {
  (void)state;
  static const char *const strategies[] = { "loam.host { name = 'anywhere' }",
                                            "loam.host { name = 'anywhere', huge = 'thp' }",
                                            "loam.host { name = 'here', numa = 'local' }" };
  for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
    load(strategies[i]);
    char *p = filled("cold.data", 6 * MiB), *q = filled("cold.data", 1000);
    loam_demote_options options = {
      .size = sizeof options, .tag = "cold", .rate = UINT64_MAX, .node = -1
    };
    if (loam_demote(&options, NULL, NULL, NULL) != LOAM_OK) fail_msg("%s", loam_error());
    assert_on(p, 6 * MiB, 8);
    assert_on(q, 1000, 8);
    rebalance("cold");
    assert_on(p, 6 * MiB, 7);
    assert_on(q, 1000, 7);
    is_filled(p, 6 * MiB);
    is_filled(q, 1000);
    loam_free(p);
    loam_free(q);
  }
}

static void nap(long ms) { usleep((useconds_t)ms * 1000); }

static void wait_until_on(const char *p, size_t size, int node) {
  int naps = 0;
  while (where_is(p, size).on[node] != (long)(size / PAGE) && be_patient(&naps)) continue;
  assert_on(p, size, 1u << node);
}

static void a_policy_can_say_that_what_lives_follows(void **state) {
  (void)state;
  load_text("local s = loam.host { name = 'before', numa = 0 }\n"
            "return loam.policy { apply = 'live', pick = function(req) return s end }\n");
  char *p = filled("follows", 5 * MiB);
  load_text("local s = loam.host { name = 'after', numa = 1 }\n"
            "return loam.policy { apply = 'live', pick = function(req) return s end }\n");
  wait_until_on(p, 5 * MiB, 1);
  load_text("local s = loam.host { name = 'later', numa = 2 }\n"
            "return loam.policy { apply = 'new', pick = function(req) return s end }\n");
  nap(300);
  assert_on(p, 5 * MiB, 2);
  loam_free(p);
}

/* Waits until loam's gauge for node 0 is near the kernel's figure. The two may differ a little,
 * because the kernel itself takes some memory during the wait. */
static void wait_for_gauge(void) {
  enum { NEAR = 6 << 20 };
  int naps = 0;
  int64_t off;
  do {
    off = (int64_t)lm_numa_free(0) - (int64_t)free_on(0);
  } while ((off < -NEAR || off > NEAR) && be_patient(&naps));
  assert_in_range(off + NEAR, 0, 2 * NEAR);
}

/* Allocates a block under the tag "pressure". It must be on node 0 if more than `keep` bytes of
 * that node remain free by the gauge, else on node 1. Returns the node of the block. If the gauge
 * changed during the call, both nodes may be right. */
static int take_by_gauge(char **p, size_t size, uint64_t keep) {
  loam_owner_info owner;
  uint64_t before = lm_numa_free(0);
  *p = filled("pressure", size);
  uint64_t after = lm_numa_free(0);
  assert_int_equal(loam_owner(*p, &owner), LOAM_OK);
  int node = !strcmp(owner.strategy, "two");
  assert_on(*p, size, 1u << node);
  int first = before <= keep + size, last = after <= keep + size;
  if (first == last && node != first)
    fail_msg("it is on node %d: %" PRIu64 " and %" PRIu64 " MiB were free, %" PRIu64
             " are to be kept",
             node, before / MiB, after / MiB, keep / MiB);
  return node;
}

/* The policy decides by the gauge of node 0's free memory. So it goes on to node 1 before a request
 * fails or needs a fallback. */
static void when_a_node_fills_the_policy_goes_on_to_the_next(void **state) {
  (void)state;
  enum { BLOCKS = 16, EACH = 8 << 20 };
  char *p[BLOCKS], text[512];
  struct loam_stats before, after;
  loam_trim();
  uint64_t keep = free_on(0) - 9 * EACH;
  snprintf(text, sizeof text,
           "local one = loam.host { name = 'one', numa = 0 }\n"
           "local two = loam.host { name = 'two', numa = 1 }\n"
           "return loam.policy { pick = function(req)\n"
           "  if loam.node(0).free - req.size > %" PRIu64 " then return one end return two end }\n",
           keep);
  load_text(text);
  assert_int_equal(loam_stats(&before), LOAM_OK);
  int on[2] = { 0 };
  for (int i = 0; i < BLOCKS; i++) {
    wait_for_gauge();
    on[take_by_gauge(&p[i], EACH, keep)]++;
  }
  assert_true(on[0] >= 4);
  assert_true(on[1] >= 4);
  assert_int_equal(loam_stats(&after), LOAM_OK);
  assert_int_equal(after.failed, before.failed);
  assert_int_equal(after.fallbacks, before.fallbacks);
  for (int i = 0; i < BLOCKS; i++) loam_free(p[i]);
  loam_trim();
}

static void the_callers_node_and_live_bytes_decide(void **state) {
  (void)state;
  load_text("local here = { [0] = loam.host { numa = 0 }, [1] = loam.host { numa = 1 },\n"
            "  [2] = loam.host { numa = 2 }, [3] = loam.host { numa = 3 } }\n"
            "return loam.policy { pick = function(req)\n"
            "  if req.tag:is('capped') and req.live >= 4 * loam.MiB then return here[3] end\n"
            "  return here[req.node] or here[0] end }\n");
  for (int node = 0; node < 3; node++) {
    run_on_node(node);
    char *p = filled("near", 3 * MiB);
    assert_on(p, 3 * MiB, 1u << node);
    loam_free(p);
  }
  run_on_node(0);
  char *p = filled("capped", 5 * MiB), *q = filled("capped", 5 * MiB);
  assert_on(p, 5 * MiB, 1);
  assert_on(q, 5 * MiB, 8);
  loam_free(p);
  loam_free(q);
}

static int set_up(void **state) {
  (void)state;
  loam_config config = { .size = sizeof config, .step_ms = 60000 }; /* see begin() */
  only_with_nodes(NODES);
  return loam_start(&config);
}

int main(void) {
  only_with_nodes(NODES);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(large_blocks_go_where_the_new_policy_says),
    cmocka_unit_test(interleaved_and_weighted_blocks_are_spread_again),
    cmocka_unit_test(huge_pages_are_taken_apart_to_be_spread),
    cmocka_unit_test(huge_pages_by_default_are_spread_whole),
    cmocka_unit_test(what_a_forked_process_shares_stays_until_it_is_gone),
    cmocka_unit_test(small_objects_move_with_their_pages),
    cmocka_unit_test(huge_pages_move_and_stay_huge),
    cmocka_unit_test(neighbours_stay_where_they_are),
    cmocka_unit_test(a_full_node_takes_no_more_and_nothing_is_lost),
    cmocka_unit_test(what_spilled_over_comes_back),
    cmocka_unit_test(memory_is_demoted_to_the_node_without_cpus_and_back),
    cmocka_unit_test(demoted_memory_that_may_be_anywhere_comes_back_too),
    cmocka_unit_test(a_policy_can_say_that_what_lives_follows),
    cmocka_unit_test(when_a_node_fills_the_policy_goes_on_to_the_next),
    cmocka_unit_test(the_callers_node_and_live_bytes_decide),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}
