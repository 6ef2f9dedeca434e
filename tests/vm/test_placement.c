/* test_placement.c - tests each form of the option `numa`. The kernel says for every page on which
 * node it is: pages of small objects, of large blocks, of blocks that grew, and of memory that a
 * thread of another node gave back. */
#include <pthread.h>

#include "pages.h"

#define POLICY(options)                              \
  "local s = loam.host { name = 's', " options "}\n" \
  "return loam.policy { name = 'p', pick = function() return s end }\n"

enum { LARGE = 4 << 20, SMALL = 200, OBJECTS = 5000 };

/* ---- Checks for any placement */

static void *touched(size_t size) {
  char *p = loam_malloc(NULL, size);
  assert_non_null(p);
  return memset(p, 1, size);
}

static void large_is_on(unsigned mask) {
  void *p = touched(LARGE), *zero = loam_calloc(NULL, 1, LARGE);
  memset(zero, 1, LARGE);
  assert_on(p, LARGE, mask);
  assert_on(zero, LARGE, mask);
  loam_free(p);
  loam_free(zero);
}

static void *object[OBJECTS];

static void fill_objects(size_t size) {
  for (int i = 0; i < OBJECTS; i++) object[i] = touched(size);
}

static void free_objects(void) {
  for (int i = 0; i < OBJECTS; i++) loam_free(object[i]);
}

static void small_are_on(unsigned mask) {
  fill_objects(SMALL);
  for (int i = 0; i < OBJECTS; i++) assert_on(object[i], SMALL, mask);
  free_objects();
}

static void grown_is_on(unsigned mask) {
  void *p = touched(1 << 20), *between = touched(1 << 20);
  for (size_t size = 2 << 20; size <= 24 << 20; size *= 2) {
    p = loam_realloc(NULL, p, size);
    assert_non_null(p);
    memset(p, 2, size);
    assert_on(p, size, mask);
  }
  loam_free(p);
  loam_free(between);
}

static void all_is_on(unsigned mask) {
  large_is_on(mask);
  small_are_on(mask);
  grown_is_on(mask);
  loam_trim();
  large_is_on(mask);
  small_are_on(mask);
}

/* ---- Threads of other nodes */

typedef struct job {
  int node;
  void (*work)(unsigned mask);
  unsigned mask;
} job;

static void *run_job(void *argument) {
  const job *j = argument;
  run_on_node(j->node);
  j->work(j->mask);
  return NULL;
}

static void on_node(int node, void (*work)(unsigned mask), unsigned mask) {
  job j = { node, work, mask };
  pthread_join(start_thread(run_job, &j), NULL);
}

/* ---- The forms of the option */

static void a_number_is_that_node(void **state) {
  (void)state;
  static const char *const text[] = { POLICY("numa = 0"), POLICY("numa = 1"), POLICY("numa = 2"),
                                      POLICY("numa = 3") };
  for (int node = 0; node < NODES; node++) {
    load_policy(text[node]);
    on_node(0, all_is_on, 1u << node);
    on_node(2, all_is_on, 1u << node);
  }
}

static void a_list_is_those_nodes(void **state) {
  (void)state;
  load_policy(POLICY("numa = { 1, 3 }"));
  on_node(0, all_is_on, 1 << 1 | 1 << 3);
  on_node(2, all_is_on, 1 << 1 | 1 << 3);
}

static void a_preferred_node_is_taken_while_it_has_memory(void **state) {
  (void)state;
  load_policy(POLICY("numa = { prefer = 2 }"));
  on_node(0, all_is_on, 1 << 2);
  load_policy(POLICY("numa = { prefer = 3 }"));
  on_node(1, all_is_on, 1 << 3);
}

static spread where_objects_are(void) {
  spread sum = { 0 };
  fill_objects(PAGE);
  for (int i = 0; i < OBJECTS; i++) {
    spread one = where_is(object[i], PAGE);
    for (int node = 0; node < NODES; node++) sum.on[node] += one.on[node];
  }
  free_objects();
  return sum;
}

static void is_even(const void *p, size_t size, unsigned mask) {
  spread found = where_is(p, size);
  long pages = (long)(size / PAGE), share = pages / __builtin_popcount(mask);
  for (int node = 0; node < NODES; node++)
    assert_in_range(found.on[node], mask >> node & 1 ? share - 1 : 0,
                    mask >> node & 1 ? share + 1 : 0);
}

static void interleaved_pages_go_round(void **state) {
  (void)state;
  load_policy(POLICY("numa = 'interleave'"));
  void *p = touched(LARGE);
  is_even(p, LARGE, 0xf);
  p = loam_realloc(NULL, p, 4 * LARGE);
  memset(p, 1, 4 * LARGE);
  is_even(p, 4 * LARGE, 0xf);
  loam_free(p);
  spread sum = where_objects_are();
  for (int node = 0; node < NODES; node++)
    assert_in_range(sum.on[node], OBJECTS / 4 - OBJECTS / 50, OBJECTS / 4 + OBJECTS / 50);
}

static void in_proportion(const spread *found, long pages, const int *weight, long grain) {
  int all = 0;
  for (int node = 0; node < NODES; node++) all += weight[node];
  for (int node = 0; node < NODES; node++) {
    long share = pages * weight[node] / all;
    assert_in_range(found->on[node] + grain, share, share + 2 * grain);
  }
}

static void weights_are_the_proportions(const char *text, const int *weight, size_t size,
                                        long grain) {
  load_policy(text);
  void *p = touched(size);
  spread found = where_is(p, size);
  loam_free(p);
  in_proportion(&found, (long)(size / PAGE), weight, grain);
}

/* The weights of the policy are in proportion to the machine's own, so the kernel's weighted
 * interleaving places the pages, and the shares are exact to a page. */
static void weights_of_the_machine_are_exact(void **state) {
  (void)state;
  static const int weight[] = { 4, 2, 0, 0 };
  const char *path[] = { "/sys/kernel/mm/mempolicy/weighted_interleave/node0",
                         "/sys/kernel/mm/mempolicy/weighted_interleave/node1" };
  if (access(path[0], W_OK)) {
    print_message("this kernel has no weighted interleaving\n");
    skip();
  }
  set(path[0], "2");
  set(path[1], "1");
  weights_are_the_proportions(POLICY("numa = { weights = { [0] = 4, [1] = 2 } }"), weight, LARGE,
                              1);
  set(path[0], "1");
}

static void pages_are_shared_out_by_weight(void **state) {
  (void)state;
  static const int three_one[] = { 3, 1, 0, 0 }, rising[] = { 0, 1, 2, 4 };
  const char *text = POLICY("numa = { weights = { [0] = 3, [1] = 1 } }");
  weights_are_the_proportions(text, three_one, LARGE, 16);
  weights_are_the_proportions(text, three_one, 16 * LARGE, 256);
  text = POLICY("numa = { weights = { [1] = 1, [2] = 2, [3] = 4 } }");
  weights_are_the_proportions(text, rising, LARGE, 16);
  weights_are_the_proportions(text, rising, 16 * LARGE, 256);
}

/* Each region, and each piece that a block grows by, begins the sequence of nodes again, so the
 * shares are less exact here. */
static void weights_hold_for_small_objects_and_growth(void **state) {
  (void)state;
  static const int weight[] = { 3, 1, 0, 0 };
  load_policy(POLICY("numa = { weights = { [0] = 3, [1] = 1 } }"));
  spread found = where_objects_are();
  in_proportion(&found, OBJECTS, weight, OBJECTS / 20);
  char *p = touched(LARGE), *between = touched(LARGE);
  p = loam_realloc(NULL, p, 4 * LARGE);
  assert_non_null(p);
  memset(p, 1, 4 * LARGE);
  found = where_is(p, 4 * LARGE);
  in_proportion(&found, 4 * LARGE / PAGE, weight, 4 * LARGE / PAGE / 20);
  loam_free(p);
  loam_free(between);
}

/* ---- The placement "local": the node of the thread that allocates */

static void local_is_where_the_thread_runs(void **state) {
  (void)state;
  load_policy(POLICY("numa = 'local'"));
  for (int node = 0; node < 3; node++) on_node(node, all_is_on, 1u << node);
}

static void takes_and_keeps(unsigned mask) {
  fill_objects(SMALL);
  for (int i = 0; i < OBJECTS; i++) assert_on(object[i], SMALL, mask);
}

static void frees_and_takes(unsigned mask) {
  free_objects();
  small_are_on(mask);
}

static void local_objects_freed_elsewhere_are_not_local_there(void **state) {
  (void)state;
  load_policy(POLICY("numa = 'local'"));
  on_node(0, takes_and_keeps, 1 << 0);
  on_node(1, frees_and_takes, 1 << 1);
  on_node(0, small_are_on, 1 << 0);
  on_node(2, small_are_on, 1 << 2);
}

static void *kept;

static void takes_large(unsigned mask) {
  kept = touched(LARGE);
  assert_on(kept, LARGE, mask);
}

static void frees_and_takes_large(unsigned mask) {
  loam_free(kept);
  large_is_on(mask);
}

static void local_blocks_freed_elsewhere_are_not_local_there(void **state) {
  (void)state;
  load_policy(POLICY("numa = 'local'"));
  on_node(0, takes_large, 1 << 0);
  on_node(1, frees_and_takes_large, 1 << 1);
  on_node(2, large_is_on, 1 << 2);
  on_node(0, large_is_on, 1 << 0);
}

/* Grows the kept block. All its pages, also the new ones, are on the nodes of `mask`. */
static void grows_kept(unsigned mask) {
  kept = loam_realloc(NULL, kept, 3 * LARGE);
  memset(kept, 3, 3 * LARGE);
  assert_on(kept, 3 * LARGE, mask);
  loam_free(kept);
}

static void a_local_block_is_on_one_node_however_it_grows(void **state) {
  (void)state;
  load_policy(POLICY("numa = 'local'"));
  on_node(0, takes_large, 1 << 0);
  on_node(0, grows_kept, 1 << 0);
  on_node(2, takes_large, 1 << 2);
  on_node(2, grows_kept, 1 << 2);
}

static void a_thread_that_moves_takes_from_its_new_node(void **state) {
  (void)state;
  load_policy(POLICY("numa = 'local'"));
  run_on_node(0);
  large_is_on(1 << 0);
  loam_trim();
  run_on_node(2);
  large_is_on(1 << 2);
  fill_objects(SMALL);
  /* The first objects may come from the thread's bins, which were filled on its old node. */
  for (int i = OBJECTS / 2; i < OBJECTS; i++) assert_on(object[i], SMALL, 1 << 2);
  free_objects();
}

static void keep_live(void *ctx, const loam_stats_row *row) {
  uint64_t *sum = ctx;
  *sum += strcmp(row->strategy, "local.one") ? 0 : row->live_blocks + (1ull << 32);
}

static uint64_t live_of_it(void) {
  uint64_t sum = 0;
  assert_int_equal(loam_stats_by(LOAM_BY_STRATEGY, keep_live, &sum), LOAM_OK);
  return sum;
}

static void takes_one(unsigned index) { object[index] = touched(SMALL); }

static void local_memory_is_one_strategy_in_all_figures(void **state) {
  (void)state;
  load_policy("local s = loam.host { name = 'local.one', numa = 'local', limit = loam.MiB }\n"
              "return loam.policy { name = 'p', pick = function() return s end }\n");
  for (unsigned i = 0; i < 3; i++) on_node((int)i, takes_one, i);
  assert_int_equal(live_of_it(), 3 + (1ull << 32));
  /* The limit is for all nodes together. */
  assert_null(loam_malloc(NULL, 1 << 20));
  for (int i = 0; i < 3; i++) loam_free(object[i]);
  assert_int_equal(live_of_it() & UINT32_MAX, 0);
  void *p = loam_malloc(NULL, 800 << 10);
  assert_non_null(p);
  loam_free(p);
}

/* ---- Strategies beside each other */

static void a_page_serves_one_placement(void **state) {
  (void)state;
  load_policy(
      "local a, b = loam.host { name = 'a', numa = 1 }, loam.host { name = 'b', numa = 2 }\n"
      "return loam.policy { name = 'p', pick = function(req)\n"
      "  if req.tag:is'a' then return a end return b end }\n");
  loam_site *one = loam_site_get("a"), *other = loam_site_get("b");
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < OBJECTS; i++) {
      object[i] = loam_malloc(i & 1 ? one : other, (size_t)(50 + i % 40 * 100));
      memset(object[i], 1, 50);
    }
    for (int i = 0; i < OBJECTS; i++) assert_on(object[i], 50, i & 1 ? 1 << 1 : 1 << 2);
    free_objects();
    loam_trim();
  }
}

/* Memory that a strategy of one policy gave back gets the placement of the next policy's
 * strategy. */
static void memory_that_changes_hands_changes_its_placement(void **state) {
  (void)state;
  static const char *const text[] = { POLICY("numa = 1"), POLICY("numa = 'interleave'"),
                                      POLICY("numa = 3, huge = 'thp'"), POLICY("numa = 2") };
  static const unsigned mask[] = { 1 << 1, 0xf, 1 << 3, 1 << 2 };
  for (int i = 0; i < 8; i++) {
    load_policy(text[i % 4]);
    large_is_on(mask[i % 4]);
    small_are_on(mask[i % 4]);
    loam_trim();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_number_is_that_node),
    cmocka_unit_test(a_list_is_those_nodes),
    cmocka_unit_test(a_preferred_node_is_taken_while_it_has_memory),
    cmocka_unit_test(interleaved_pages_go_round),
    cmocka_unit_test(pages_are_shared_out_by_weight),
    cmocka_unit_test(weights_hold_for_small_objects_and_growth),
    cmocka_unit_test(weights_of_the_machine_are_exact),
    cmocka_unit_test(local_is_where_the_thread_runs),
    cmocka_unit_test(local_objects_freed_elsewhere_are_not_local_there),
    cmocka_unit_test(local_blocks_freed_elsewhere_are_not_local_there),
    cmocka_unit_test(a_local_block_is_on_one_node_however_it_grows),
    cmocka_unit_test(a_thread_that_moves_takes_from_its_new_node),
    cmocka_unit_test(local_memory_is_one_strategy_in_all_figures),
    cmocka_unit_test(a_page_serves_one_placement),
    cmocka_unit_test(memory_that_changes_hands_changes_its_placement),
  };
  only_with_nodes(4);
  begin();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
