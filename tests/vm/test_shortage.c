/* test_shortage.c - tests that the next strategy of a chain serves a request when the kernel lacks
 * the memory that the first one asks for, and that the process lives on. This holds for shortages
 * that the kernel reports when loam asks for the memory. */
#include <fcntl.h>
#include <sys/stat.h>

#include "pages.h"

enum { MANY = 600 };

#define ALONE(options)                                   \
  "local a = loam.host { name = 'first', " options "}\n" \
  "return loam.policy { name = 'p', pick = function() return a end }\n"

static void *held[MANY];

/* Allocates blocks of `size` bytes and writes to them, until a block is not of the strategy `first`
 * or there is no memory. Returns how many blocks are of `first`. The blocks stay in `held`. */
static int take_until(const char *first, size_t size) {
  for (int n = 0; n < MANY; n++) {
    held[n] = loam_malloc(NULL, size);
    if (!held[n]) return n;
    memset(held[n], 1, size);
    if (strcmp(strategy_of(held[n]), first)) return n;
  }
  return MANY;
}

static void free_held(void) {
  for (int i = 0; i < MANY; i++) {
    loam_free(held[i]);
    held[i] = NULL;
  }
  loam_trim();
}

#define CHAIN(options)                                   \
  "local a = loam.host { name = 'first', " options "}\n" \
  "local b = loam.host { name = 'second' }\n"            \
  "return loam.policy { name = 'p', pick = function() return a:or_else(b) end }\n"

static uint64_t fallbacks(void) {
  struct loam_stats stats;
  assert_int_equal(loam_stats(&stats), LOAM_OK);
  return stats.fallbacks;
}

static void assert_fallback(const char *text, size_t size, int least, int most, unsigned mask) {
  uint64_t before = fallbacks();
  load_policy(text);
  int n = take_until("first", size);
  assert_in_range(n, least, most);
  for (int i = 0; i < n; i++) assert_on(held[i], size, mask);
  assert_non_null(held[n]);
  assert_string_equal(strategy_of(held[n]), "second");
  assert_int_equal(fallbacks(), before + 1);
  free_held();
  /* The blocks were given back to the system, so the first strategy can serve again. */
  void *p = loam_malloc(NULL, size);
  assert_string_equal(strategy_of(p), "first");
  loam_free(p);
}

static void a_full_node_hands_over(void **state) {
  (void)state;
  if (nodes() != 4) skip();
  run_on_node(0);
  assert_fallback(CHAIN("numa = 1"), 4 << 20, 15, 45, 1 << 1);
  assert_fallback(CHAIN("numa = { 1, 3 }"), 4 << 20, 30, 90, 1 << 1 | 1 << 3);
  assert_fallback(CHAIN("numa = 2, prefault = true"), 4 << 20, 15, 45, 1 << 2);
}

static void growth_on_a_full_node_moves_on(void **state) {
  (void)state;
  if (nodes() != 4) skip();
  load_policy(CHAIN("numa = 3"));
  char *p = loam_malloc(NULL, 8 << 20);
  memset(p, 7, 8 << 20);
  assert_string_equal(strategy_of(p), "first");
  for (size_t size = 16 << 20; size <= 256 << 20; size += 16 << 20) {
    p = loam_realloc(NULL, p, size);
    assert_non_null(p);
    assert_int_equal(p[(8 << 20) - 1], 7);
    if (!strcmp(strategy_of(p), "second")) break;
    assert_on(p, size, 1 << 3);
    memset(p, 7, size);
  }
  assert_string_equal(strategy_of(p), "second");
  loam_free(p);
  loam_trim();
}

static void small_objects_of_a_full_node_come_from_the_next(void **state) {
  (void)state;
  if (nodes() != 4) skip();
  load_policy(CHAIN("numa = 1"));
  enum { OBJECTS = 50000, SIZE = 4000 };
  static char *object[OBJECTS];
  int first = 0;
  for (int i = 0; i < OBJECTS; i++) {
    object[i] = loam_malloc(NULL, SIZE);
    assert_non_null(object[i]);
    memset(object[i], 1, SIZE);
    first += !strcmp(strategy_of(object[i]), "first");
  }
  assert_in_range(first, 15000, OBJECTS - 100);
  for (int i = 0; i < OBJECTS; i++) loam_free(object[i]);
  loam_trim();
}

static void without_huge_pages_the_next_serves(void **state) {
  (void)state;
  load_policy(CHAIN("huge = '2MiB'"));
  int n = take_until("first", 2 << 20);
  assert_int_equal(n, nodes() == 4 ? 64 : 0);
  free_held();
  if (nodes() != 4) return;
  assert_fallback(CHAIN("huge = '2MiB', numa = 1"), 2 << 20, 16, 16, 1 << 1);
  load_policy("local a = loam.host { name = 'alone', huge = '2MiB' }\n"
              "return loam.policy { name = 'p', pick = function() return a end }\n");
  assert_int_equal(take_until("alone", 2 << 20), 64);
  assert_non_null(strstr(loam_error(), "no page of 2 MiB is free"));
  free_held();
}

/* The strategy names no node, so all memory of the machine must be used up. This test runs on the
 * machine with one node, which has the least memory. */
static char last_words[512];
static void keep_last_words(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind == LOAM_EVENT_LAST_WORDS)
    snprintf(last_words, sizeof last_words, "%s", event->message);
}

/* 64 pages of 2 MiB are reserved. loam has no memory at all yet that compares with this request. */
static void without_huge_pages_the_last_words_say_so(void **state) {
  (void)state;
  if (nodes() != 4) skip();
  load_policy(ALONE("huge = '2MiB'"));
  loam_on_event(keep_last_words, NULL);
  assert_null(loam_malloc(NULL, 300 << 20));
  loam_on_event(NULL, NULL);
  if (!strstr(last_words, "; strategy 'first' cannot serve it: no page of 2 MiB is free"))
    fail_msg("last words: %s", last_words);
}

static void a_full_machine_hands_over(void **state) {
  (void)state;
  if (nodes() != 1) skip();
  assert_fallback(CHAIN("prefault = true"), 16 << 20, 10, 60, (1u << NODES_MOST) - 1);
}

/* Puts this process into a new control group that may use `limit` bytes. */
static void enter_group(const char *limit) {
  char text[32];
  mkdir("/sys/fs/cgroup/shortage", 0700);
  set("/sys/fs/cgroup/shortage/memory.max", limit);
  snprintf(text, sizeof text, "%d", (int)getpid());
  set("/sys/fs/cgroup/shortage/cgroup.procs", text);
}

static int in_small_group(void *argument) {
  enter_group("67108864");
  load_policy(argument);
  int n = take_until("first", 4 << 20);
  if (n < 5 || n > 15) return 10 + n;
  return held[n] ? 1 : 0;
}

static void a_group_at_its_limit_refuses_what_is_taken_at_once(void **state) {
  (void)state;
  assert_int_equal(run_in_child(in_small_group, (void *)(uintptr_t)ALONE("prefault = true")), 0);
  assert_int_equal(run_in_child(in_small_group, (void *)(uintptr_t)ALONE("lock = true")), 0);
  if (nodes() == 4)
    assert_int_equal(run_in_child(in_small_group, (void *)(uintptr_t)ALONE("numa = 1")), 0);
}

/* Puts this process into a new control group that may use only the nodes `mems`. */
static void enter_cpuset(const char *mems) {
  char text[32];
  mkdir("/sys/fs/cgroup/near", 0700);
  set("/sys/fs/cgroup/near/cpuset.mems", mems);
  snprintf(text, sizeof text, "%d", (int)getpid());
  set("/sys/fs/cgroup/near/cgroup.procs", text);
}

static int leaves_its_nodes(void *text) {
  load_policy(text);
  char *p = loam_malloc(NULL, 4 << 20);
  memset(p, 7, 4 << 20);
  if (strcmp(strategy_of(p), "first")) return 1;
  enter_cpuset("0-1");
  loam_trim();
  char *q = loam_malloc(NULL, 8 << 20);
  if (!q || strcmp(strategy_of(q), "second")) return 2;
  memset(q, 1, 8 << 20);
  return p[100] == 7 ? 0 : 3; /* the block keeps its contents; the kernel may have moved it */
}

static int loads_in_cpuset(void *text) {
  enter_cpuset("0-1");
  if (!loam_policy_load_text("vm.lua", text)) return 1;
  return strstr(loam_error(), "node 3") && strstr(loam_error(), "nodes 0-1") ? 0 : 2;
}

static char why[128];
static void note_why(void *ctx, const loam_placed *row) {
  (void)ctx;
  if (!strcmp(row->what, "refused")) snprintf(why, sizeof why, "%s", row->why);
}

/* The kernel moves the block when the cpuset changes, and loam cannot move it back. */
static int cannot_return(void *text) {
  loam_rebalance_options options = { .size = sizeof options, .rate = UINT64_MAX };
  load_policy(text);
  char *p = loam_malloc(NULL, 4 << 20);
  memset(p, 7, 4 << 20);
  enter_cpuset("0-1");
  if (where_is(p, 4 << 20).on[3]) return 1;
  if (loam_rebalance(&options, NULL, note_why, NULL) != LOAM_OK) return 2;
  return strcmp(why, "this process may not use its nodes, or they have no memory") ? 3 : 0;
}

static void outside_the_cpuset_no_fork_is_blamed(void **state) {
  (void)state;
  if (nodes() != 4) skip();
  assert_int_equal(run_in_child(cannot_return, (void *)(uintptr_t)ALONE("numa = 3")), 0);
  assert_int_equal(run_in_child(cannot_return, (void *)(uintptr_t)ALONE("numa = { prefer = 3 }")),
                   0);
}

static void a_node_outside_the_cpuset_hands_over(void **state) {
  (void)state;
  if (nodes() != 4) skip();
  assert_int_equal(run_in_child(leaves_its_nodes, (void *)(uintptr_t)CHAIN("numa = 3")), 0);
  assert_int_equal(run_in_child(loads_in_cpuset, (void *)(uintptr_t)CHAIN("numa = 3")), 0);
}

/* When a cpuset changes, the kernel by default renumbers the nodes of a binding by their place in
 * it: node 1 of nodes 0-3 becomes node 2 of nodes 1-3. loam must stay on node 1. */
static int keeps_its_node(void *text) {
  load_policy(text);
  char *p = loam_malloc(NULL, 1 << 20);
  memset(p, 7, 1 << 20);
  enter_cpuset("1-3");
  char *q = loam_malloc(NULL, 1 << 20);
  memset(q, 7, 1 << 20);
  spread found = where_is(q, 1 << 20);
  return found.on[1] == (1 << 20) / PAGE ? 0 : 1;
}

static void a_node_is_the_same_in_another_cpuset(void **state) {
  (void)state;
  if (nodes() != 4) skip();
  assert_int_equal(run_in_child(keeps_its_node, (void *)(uintptr_t)CHAIN("numa = 1")), 0);
}

static void find_warning(void *ctx, const char *text, size_t length) {
  static const char words[] = "no 2MiB huge pages are reserved on node 1 ";
  if (memmem(text, length, words, sizeof words - 1)) *(bool *)ctx = true;
}

/* Returns whether `loam check` warns that node 1 has no reserved huge pages. */
static bool check_warns(const char *policy) {
  static const char path[] = "/tmp/checked.lua";
  bool is_warned = false;
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(policy, file);
  fclose(file);
  assert_int_equal(loam_policy_inspect(path, "verb check", find_warning, &is_warned), LOAM_OK);
  return is_warned;
}

/* The administrator takes the reserved huge pages of node 1 away while blocks use some of them.
 * Those blocks stay; the next strategy serves new requests until the pages are reserved again. */
static void blocks_survive_removed_huge_pages(void **state) {
  (void)state;
  static const char file[] =
      "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages";
  if (nodes() != 4) skip();
  static const char policy[] = CHAIN("huge = '2MiB', numa = 1");
  load_policy(policy);
  int n = take_until("first", 6 << 20);
  assert_in_range(n, 4, 5);
  assert_false(check_warns(policy));
  set(file, "0");
  for (int i = 0; i <= n; i++) memset(held[i], 2, 6 << 20);
  free_held();
  assert_true(check_warns(policy));
  void *p = loam_malloc(NULL, 2 << 20);
  assert_string_equal(strategy_of(p), "second");
  loam_free(p);
  set(file, "16");
  lm_sys_sleep(20000000);
  p = loam_malloc(NULL, 2 << 20);
  assert_string_equal(strategy_of(p), "first");
  loam_free(p);
  loam_trim();
}

int main(void) {
  begin();
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_full_node_hands_over),
    cmocka_unit_test(growth_on_a_full_node_moves_on),
    cmocka_unit_test(small_objects_of_a_full_node_come_from_the_next),
    cmocka_unit_test(without_huge_pages_the_next_serves),
    cmocka_unit_test(without_huge_pages_the_last_words_say_so),
    cmocka_unit_test(a_group_at_its_limit_refuses_what_is_taken_at_once),
    cmocka_unit_test(a_node_outside_the_cpuset_hands_over),
    cmocka_unit_test(outside_the_cpuset_no_fork_is_blamed),
    cmocka_unit_test(a_node_is_the_same_in_another_cpuset),
    cmocka_unit_test(blocks_survive_removed_huge_pages),
    cmocka_unit_test(a_full_machine_hands_over),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
