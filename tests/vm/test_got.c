/* test_got.c - tests that the figures of loam_got_each agree with the kernel about the nodes and
 * the pages that strategies got. */
#include "pages.h"

enum { MANY = 70, LARGE = 4 << 20 };

#define POLICY(options)                                  \
  "local s = loam.host { name = 'asked', " options "}\n" \
  "return loam.policy { name = 'p', pick = function() return s end }\n"

static loam_got found;

static void keep(void *ctx, const loam_got *got) {
  (void)ctx;
  if (!strcmp(got->strategy, "asked") && got->live_bytes) found = *got;
}

static void look(void) {
  found = (loam_got){ 0 };
  assert_int_equal(loam_got_each(keep, NULL), LOAM_OK);
}

static void *held[MANY];

/* The SHORTFALL events of the strategy "asked": their number, and the words of the latest. */
static int events;
static char words[512];

static void on_event(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind != LOAM_EVENT_SHORTFALL || !strstr(event->message, "'asked'")) return;
  events++;
  snprintf(words, sizeof words, "%s", event->message);
}

static void assert_reported_once(const char *what) {
  look();
  if (events != 1 || !strstr(words, what)) fail_msg("told %d times, last: %s", events, words);
}

static spread fill(int n) {
  spread sum = { 0 };
  for (int i = 0; i < n; i++) {
    held[i] = loam_malloc(NULL, LARGE);
    assert_non_null(held[i]);
    memset(held[i], 1, LARGE);
    spread one = where_is(held[i], LARGE);
    for (int node = 0; node < NODES; node++) sum.on[node] += one.on[node];
  }
  return sum;
}

static void empty(int n) {
  for (int i = 0; i < n; i++) loam_free(held[i]);
  loam_trim();
}

static void what_spilled_over_is_counted(void **state) {
  (void)state;
  if (nodes() != 4) skip();
  load_policy(POLICY("numa = { prefer = 1 }"));
  fill(5);
  look();
  assert_int_equal(found.live_bytes, 5 * LARGE);
  assert_int_equal(found.checked_bytes, 5 * LARGE);
  assert_int_equal(found.elsewhere_bytes, 0);
  assert_int_equal(found.node_bytes[1], 5 * LARGE);
  assert_int_equal(events, 0);
  empty(5);
  spread sum = fill(MANY); /* 280 MiB; node 1 has 192 */
  long elsewhere = sum.on[0] + sum.on[2] + sum.on[3];
  assert_in_range(elsewhere, 10000, 60000);
  look();
  assert_int_equal(found.untouched_bytes, 0);
  double got = (double)found.elsewhere_bytes / (double)found.checked_bytes;
  double real = (double)elsewhere / (double)(elsewhere + sum.on[1]);
  assert_true(got > real - 0.05 && got < real + 0.05); /* loam looked at a sample */
  assert_reported_once("on nodes that it did not ask for");
  empty(MANY);
}

static void local_memory_is_judged_by_the_node_it_was_for(void **state) {
  (void)state;
  if (nodes() != 4) skip();
  load_policy(POLICY("numa = 'local'"));
  run_on_node(2);
  fill(3);
  look();
  assert_int_equal(found.elsewhere_bytes, 0);
  assert_int_equal(found.node_bytes[2], 3 * LARGE);
  /* Moves the process to node 0, as an administrator does with migratepages(8). A page that the
   * kernel is working on stays behind, so the call is repeated. */
  unsigned long from = 1 << 2, to = 1 << 0;
  int naps = 0;
  while (syscall(SYS_migrate_pages, 0, 64, &from, &to) > 0 && be_patient(&naps)) continue;
  look();
  assert_int_equal(found.elsewhere_bytes, 3 * LARGE);
  assert_int_equal(found.node_bytes[0], 3 * LARGE);
  empty(3);
}

/* Returns how many lines `loam pages` prints for the strategy "asked": one for each node. */
static int nodes_of_pages(void) {
  char line[256];
  int lines = 0;
  snprintf(line, sizeof line, "$LOAM pages %d --output /tmp/pages.svg", (int)getpid());
  FILE *out = popen(line, "r");
  assert_non_null(out);
  while (fgets(line, sizeof line, out)) lines += !strncmp(line, "asked ", 6);
  assert_int_equal(pclose(out), 0);
  return lines;
}

/* 96 MiB are more than loam_got_each looks at, so it looks at every second page on average. */
static void interleaved_memory_is_found_on_all_nodes(void **state) {
  (void)state;
  enum { BLOCKS = 24 };
  if (nodes() != 4) skip();
  load_policy(POLICY("numa = 'interleave'"));
  fill(BLOCKS);
  look();
  assert_in_range(found.checked_bytes, BLOCKS * LARGE / 3, BLOCKS * LARGE * 2 / 3);
  for (int node = 0; node < NODES; node++)
    assert_in_range(found.node_bytes[node], found.checked_bytes / 5, found.checked_bytes / 3);
  assert_int_equal(nodes_of_pages(), NODES);
  empty(BLOCKS);
}

static void small_pages_for_huge_ones_are_counted(void **state) {
  (void)state;
  static const char file[] = "/sys/kernel/mm/transparent_hugepage/enabled";
  load_policy(POLICY("huge = 'thp'"));
  fill(4);
  look();
  assert_int_equal(found.huge_asked_bytes, 4 * LARGE);
  assert_int_equal(found.huge_bytes, 4 * LARGE);
  assert_int_equal(events, 0);
  assert_int_equal(smaps(held[0], LARGE, "AnonHugePages") % 2048, 0);
  empty(4);
  set(file, "never");
  fill(4);
  look();
  assert_int_equal(found.huge_asked_bytes, 4 * LARGE);
  assert_int_equal(found.huge_bytes, 0);
  assert_reported_once("on small pages");
  empty(4);
  set(file, "madvise");
}

static int reset_events(void **state) {
  (void)state;
  events = 0;
  return 0;
}

int main(void) {
  begin();
  loam_on_event(on_event, NULL);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(what_spilled_over_is_counted, reset_events),
    cmocka_unit_test(interleaved_memory_is_found_on_all_nodes),
    cmocka_unit_test(local_memory_is_judged_by_the_node_it_was_for),
    cmocka_unit_test_setup(small_pages_for_huge_ones_are_counted, reset_events),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
