/* test_leaving.c - tests what happens when the memory of a node goes offline while a policy names
 * the node, and comes back. The memory is plugged into the machine with four nodes, as node 4. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#include "pages.h"

enum { BLOCKS = 3, EACH = 8 << 20, OBJECTS = 3000, SMALL = 300 };

static const char folder[] = "/sys/devices/system/node/node4";

/* Finds the `state` file of node 4's memory, which is a single memory block of the kernel. Returns
 * false if the node has no memory. */
static bool find_state(char *path, size_t size) {
  DIR *all = opendir(folder);
  struct dirent *one;
  bool found = false;
  while (all && !found && (one = readdir(all))) {
    found = !strncmp(one->d_name, "memory", 6) && one->d_name[6] >= '0' && one->d_name[6] <= '9';
    if (found) snprintf(path, size, "%s/%.40s/state", folder, one->d_name);
  }
  if (all) closedir(all);
  return found;
}

static bool file_has_word(const char *path, const char *word) {
  char now[20] = "";
  FILE *file = fopen(path, "r");
  bool same = file && fgets(now, sizeof now, file) && !strncmp(now, word, strcspn(now, "\n"));
  if (file) fclose(file);
  return same;
}

/* Returns whether this process may use node 4, by the kernel's list of allowed nodes. Older kernels
 * update the list a little later than the memory itself. */
static bool may_use_it(void) {
  uint64_t nodes;
  assert_int_equal(lm_sys_nodes_allowed(&nodes), 0);
  return nodes >> 4 & 1;
}

/* Brings the memory of node 4 online or offline, and waits until the list of allowed nodes agrees.
 * Repeats the write, because the kernel refuses it while it works on a page of the node. */
static void set_node_state(const char *word) {
  char path[200];
  ssize_t n = -1;
  int naps = 0;
  if (!find_state(path, sizeof path)) fail_msg("node 4 has no memory that could be turned on");
  if (file_has_word(path, word)) return;
  while (n < 0 && be_patient(&naps)) {
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    n = write(fd, word, strlen(word));
    close(fd);
  }
  if (n < 0) fail_msg("%s does not take \"%s\": %s", path, word, strerror(errno));
  while (may_use_it() != !strncmp(word, "online", 6) && be_patient(&naps)) continue;
  assert_int_equal(may_use_it(), !strncmp(word, "online", 6));
  usleep(200000); /* loam uses no figure of a node that is older than 100 ms */
}

static int set_online(void **state) {
  (void)state;
  set_node_state("online_movable");
  return 0;
}

static int set_offline(void **state) {
  (void)state;
  set_node_state("offline");
  return 0;
}

#define CHAIN(options)                                   \
  "local a = loam.host { name = 'first', " options "}\n" \
  "local b = loam.host { name = 'second', numa = 1 }\n"  \
  "return loam.policy { name = 'p', pick = function() return a:or_else(b) end }\n"

static loam_got first;

static void keep(void *ctx, const loam_got *got) {
  (void)ctx;
  if (!strcmp(got->strategy, "first")) first = *got;
}

static void look(void) {
  first = (loam_got){ 0 };
  assert_int_equal(loam_got_each(keep, NULL), LOAM_OK);
}

static uint64_t fallbacks(void) {
  struct loam_stats stats;
  assert_int_equal(loam_stats(&stats), LOAM_OK);
  return stats.fallbacks;
}

static void assert_served_by(const char *strategy, size_t size, unsigned mask) {
  char *p = filled("leaving", size);
  assert_string_equal(strategy_of(p), strategy);
  assert_on(p, size, mask);
  is_filled(p, size);
  loam_free(p);
}

/* While node 4 is gone, a strategy that is bound to it fails, and the next strategy of the chain
 * serves. Blocks that were on the node live on elsewhere, and loam counts them so. */
static void what_must_be_there_goes_to_the_next(void **state) {
  (void)state;
  char *p[BLOCKS];
  static char *object[OBJECTS];
  load_policy(CHAIN("numa = 4"));
  for (int i = 0; i < BLOCKS; i++) assert_on(p[i] = filled("leaving", EACH), EACH, 1 << 4);
  for (int i = 0; i < OBJECTS; i++) assert_on(object[i] = filled("leaving", SMALL), SMALL, 1 << 4);
  look();
  assert_int_equal(first.elsewhere_bytes, 0);
  uint64_t failed = first.failed, before = fallbacks();
  set_node_state("offline");
  for (int i = 0; i < BLOCKS; i++) {
    assert_on(p[i], EACH, 0xf);
    is_filled(p[i], EACH);
  }
  look();
  assert_true(first.elsewhere_bytes >= BLOCKS * EACH);
  for (int i = 0; i < 4; i++) assert_served_by("second", EACH, 1 << 1);
  look();
  assert_int_equal(first.failed, failed + 4);
  assert_int_equal(fallbacks(), before + 4);
  p[0] = loam_realloc(NULL, p[0], 4 * EACH);
  assert_non_null(p[0]);
  is_filled(p[0], EACH);
  assert_string_equal(strategy_of(p[0]), "second");
  for (int i = 0; i < OBJECTS; i++) {
    is_filled(object[i], SMALL);
    loam_free(object[i]);
  }
  for (int i = 0; i < BLOCKS; i++) loam_free(p[i]);
  loam_trim();
  assert_served_by("second", SMALL, 1 << 1);
  set_node_state("online_movable");
  usleep(50000); /* for 10 ms after a refusal, loam does not ask the kernel again */
  assert_served_by("first", EACH, 1 << 4);
  assert_served_by("first", SMALL, 1 << 4);
  loam_trim();
}

/* While the node is gone, its strategy does not serve from memory that it already has but has not
 * touched: the pages would come from other nodes. When the node is back, the strategy serves from
 * it. */
static void what_comes_back_is_of_the_node_again(void **state) {
  (void)state;
  load_policy(CHAIN("numa = 4"));
  char *p = filled("leaving", 1 << 20);
  assert_on(p, 1 << 20, 1 << 4);
  set_node_state("offline");
  assert_served_by("second", 1 << 20, 1 << 1);
  set_node_state("online_movable");
  usleep(50000);
  assert_served_by("first", 1 << 20, 1 << 4);
  assert_served_by("first", 2 << 20, 1 << 4);
  assert_served_by("first", SMALL, 1 << 4);
  is_filled(p, 1 << 20);
  loam_free(p);
  loam_trim();
}

/* If a strategy only prefers the node, or has others too, the other nodes serve while the node is
 * gone. No request fails. */
static void what_may_be_elsewhere_is(void **state) {
  (void)state;
  static const struct {
    const char *text;
    unsigned there, gone;
  } form[] = {
    { CHAIN("numa = { prefer = 4 }"), 1 << 4, 0xf },
    { CHAIN("numa = { 3, 4 }"), 1 << 3 | 1 << 4, 1 << 3 },
    { CHAIN("numa = 'interleave'"), 0x1f, 0xf },
    { CHAIN("numa = { weights = { [3] = 3, [4] = 1 } }"), 1 << 3 | 1 << 4, 0xf },
  };
  for (int i = 0; i < 4; i++) {
    load_policy(form[i].text);
    char *p = filled("leaving", EACH);
    assert_on(p, EACH, form[i].there);
    uint64_t before = fallbacks();
    set_node_state("offline");
    is_filled(p, EACH);
    assert_on(p, EACH, 0xf);
    assert_served_by("first", 2 * EACH, form[i].gone);
    assert_served_by("first", SMALL, 0xf);
    assert_int_equal(fallbacks(), before);
    loam_free(p);
    loam_trim();
    set_node_state("online_movable");
    assert_served_by("first", EACH, form[i].there);
  }
}

/* While the node is gone, a policy that names it is refused with a message, and the policy in force
 * stays. */
static void a_policy_that_names_it_then_is_refused(void **state) {
  (void)state;
  load_policy(CHAIN("numa = 2"));
  set_node_state("offline");
  assert_int_equal(loam_policy_load_text("vm.lua", CHAIN("numa = 4")), LOAM_EPOLICY);
  assert_non_null(strstr(loam_error(), "node 4"));
  assert_non_null(strstr(loam_error(), "nodes 0-3"));
  assert_served_by("first", EACH, 1 << 2);
  set_node_state("online_movable");
  load_policy(CHAIN("numa = 4"));
  assert_served_by("first", EACH, 1 << 4);
  /* The policy in force names node 4, and uses the node again when it is back. */
  loam_trim();
  set_node_state("offline");
  assert_int_equal(loam_policy_load_text("vm.lua", CHAIN("numa = 4, align = 32")), LOAM_EPOLICY);
  assert_served_by("second", EACH, 1 << 1);
  set_node_state("online_movable");
  usleep(50000);
  assert_served_by("first", EACH, 1 << 4);
  loam_trim();
}

static bool is_there(unsigned node) {
  char *p = filled("leaving", 1 << 20);
  bool there = where_is(p, 1 << 20).on[node] == (1 << 20) / PAGE;
  loam_free(p);
  return there;
}

/* While the node is gone, its gauge says that no memory is free. So a policy that reads the gauge
 * avoids the node, and uses it again when it is back. */
static void free_memory_of_it_steers_a_policy(void **state) {
  (void)state;
  int naps = 0;
  load_policy(
      "local a, b = loam.host { name = 'first', numa = 4 }, loam.host { name = 'b', numa = 1 }\n"
      "return loam.policy { name = 'p', pick = function(req)\n"
      "  if loam.node(4).free > 8 * loam.MiB then return a:or_else(b) end return b end }\n");
  while (!is_there(4) && be_patient(&naps)) continue;
  loam_trim();
  for (int round = 0; round < 2; round++) {
    set_node_state("offline");
    usleep(200000); /* a gauge is at most 100 ms old */
    for (int i = 0; i < 5; i++) assert_served_by("b", 1 << 20, 1 << 1);
    if (round) assert_int_equal(loam_policy_load_text("vm.lua", CHAIN("numa = 4")), LOAM_EPOLICY);
    set_node_state("online_movable");
    while (!is_there(4) && be_patient(&naps)) continue;
    assert_true(is_there(4));
    loam_trim();
  }
}

int main(void) {
  only_with_nodes(NODES);
  begin();
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_must_be_there_goes_to_the_next),
    cmocka_unit_test(what_comes_back_is_of_the_node_again),
    cmocka_unit_test(what_may_be_elsewhere_is),
    cmocka_unit_test(a_policy_that_names_it_then_is_refused),
    cmocka_unit_test(free_memory_of_it_steers_a_policy),
  };
  return cmocka_run_group_tests(tests, set_online, set_offline);
}
