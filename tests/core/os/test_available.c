/* test_available.c - limits of control groups and free memory of nodes, read from made-up files:
 * available.h. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "folder.h"
#include "os/available.h"
#include "os/numa.h"

static char self[64], groups[64], machine[64];

static int make_groups(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return 1;
  snprintf(self, sizeof self, "%s/self", folder);
  snprintf(groups, sizeof groups, "%s/groups", folder);
  snprintf(machine, sizeof machine, "%s/meminfo", folder);
  lm_available_pretend(self, groups, machine);
  make_folder("groups");
  make_folder("groups/a");
  make_folder("groups/a/b");
  make_folder("groups/memory");
  make_folder("groups/memory/old");
  return 0;
}

static int remove_groups(void **state) {
  lm_available_pretend("/proc/self/cgroup", "/sys/fs/cgroup", "/proc/meminfo");
  lm_numa_pretend(NULL, UINT64_MAX);
  return remove_folder(state);
}

static void without_groups_there_is_no_limit(void **state) {
  (void)state;
  uint64_t limit;
  assert_int_equal(lm_available_in_group(&limit), UINT64_MAX);
  assert_int_equal(limit, UINT64_MAX);
  assert_true(lm_available_has((size_t)1 << 40, 0));
}

static void the_tightest_of_the_groups_above_counts(void **state) {
  (void)state;
  uint64_t limit;
  write_file("self", "0::/a/b\n");
  write_file("groups/a/b/memory.max", "max\n");
  assert_int_equal(lm_available_in_group(&limit), UINT64_MAX);
  write_file("groups/a/b/memory.max", "100000000\n");
  write_file("groups/a/b/memory.current", "30000000\n");
  assert_int_equal(lm_available_in_group(&limit), 70000000);
  assert_int_equal(limit, 100000000);
  write_file("groups/a/memory.max", "200000000\n");
  write_file("groups/a/memory.current", "180000000\n");
  assert_int_equal(lm_available_in_group(&limit), 20000000);
  assert_int_equal(limit, 100000000);
  write_file("groups/a/memory.current", "210000000\n");
  assert_int_equal(lm_available_in_group(&limit), 0);
  assert_false(lm_available_has(1, 0));
}

static void what_only_caches_files_can_go(void **state) {
  (void)state;
  uint64_t limit;
  write_file("groups/a/memory.current", "180000000\n");
  write_file("groups/a/memory.stat", "anon 9\ninactive_file 50000000\nactive_file 7\n");
  assert_int_equal(lm_available_in_group(&limit), 70000000);
  assert_true(lm_available_has(60000000, 0));
  assert_false(lm_available_has(69000000, 0)); /* a little is reserved for other processes */
  /* Before the kernel kills a process, it drops files that are in use too. */
  write_file("groups/a/memory.stat", "anon 9\ninactive_file 30000000\nactive_file 20000000\n");
  assert_int_equal(lm_available_in_group(&limit), 50000000);
  assert_true(lm_available_has(60000000, 0));
}

static void a_high_mark_is_a_limit_only_where_that_is_asked(void **state) {
  (void)state;
  uint64_t limit;
  write_file("groups/a/memory.current", "30000000\n");
  write_file("groups/a/b/memory.high", "60000000\n");
  assert_int_equal(lm_available_in_group(&limit), 70000000);
  assert_int_equal(lm_available_below_high(NULL, &limit), 30000000);
  assert_int_equal(limit, 60000000);
  write_file("groups/a/b/memory.high", "max\n");
  assert_int_equal(lm_available_below_high(NULL, &limit), 70000000);
  assert_int_equal(lm_available_below_high("/no/such/file", &limit), UINT64_MAX);
}

static void stalls_are_those_of_the_nearest_group(void **state) {
  (void)state;
  char machine_stalls[64];
  snprintf(machine_stalls, sizeof machine_stalls, "%s/stalls", folder);
  lm_available_pretend_stalls(machine_stalls);
  assert_int_equal(lm_available_stalled(NULL), -1);
  write_file("stalls", "some avg10=3.99 avg60=0.50 avg300=0.10 total=12\nfull avg10=1.00\n");
  assert_int_equal(lm_available_stalled(NULL), 3);
  write_file("groups/a/memory.pressure", "some avg10=100.00 avg60=0.50 avg300=0.10 total=12\n");
  assert_int_equal(lm_available_stalled(NULL), 100);
  write_file("groups/a/b/memory.pressure", "some avg10=0.97 avg60=9.50 avg300=0.10 total=12\n");
  assert_int_equal(lm_available_stalled(NULL), 0);
  write_file("groups/a/b/memory.pressure", "no figures\n");
  assert_int_equal(lm_available_stalled(NULL), 3);
  make_folder("groups/unified");
  write_file("self", "4:memory:/old\n0::/x\n");
  write_file("groups/unified/memory.pressure", "some avg10=42.00 avg60=9.50\n");
  assert_int_equal(lm_available_stalled(NULL), 42);
  lm_available_pretend_stalls("/proc/pressure/memory");
}

/* Inside a container the path of its group is not visible: the root has the files of the
 * container. */
static void a_container_has_its_limit_at_the_root(void **state) {
  (void)state;
  uint64_t limit;
  write_file("self", "0::/docker/4f5e/x\n");
  write_file("groups/memory.max", "50000000\n");
  write_file("groups/memory.current", "10000000\n");
  assert_int_equal(lm_available_in_group(&limit), 40000000);
  write_file("self", "0::/\n");
  assert_int_equal(lm_available_in_group(&limit), 40000000);
}

static void groups_of_the_first_version_have_other_names(void **state) {
  (void)state;
  uint64_t limit;
  write_file("self", "5:cpu:/x\n4:memory:/old\n");
  write_file("groups/memory/old/memory.limit_in_bytes", "9223372036854771712\n");
  assert_int_equal(lm_available_in_group(&limit), UINT64_MAX);
  write_file("groups/memory/old/memory.limit_in_bytes", "80000000\n");
  write_file("groups/memory/old/memory.usage_in_bytes", "30000000\n");
  write_file("groups/memory/old/memory.stat", "cache 1\ntotal_inactive_file 5000000\n");
  assert_int_equal(lm_available_in_group(&limit), 55000000);
}

static void any_file_may_be_unreadable(void **state) {
  (void)state;
  uint64_t limit;
  for (long nth = 1; nth < 12; nth++) {
    lm_sys_refuse(nth);
    assert_true(lm_available_in_group(&limit) >= 50000000);
    lm_sys_refuse(0);
  }
}

static void a_node_has_room_for_less_than_is_free(void **state) {
  (void)state;
  write_file("self", "");
  make_folder("node0");
  make_folder("node1");
  write_file("online", "0-1\n");
  write_file("has_memory", "0-1\n");
  write_file("node0/meminfo", "Node 0 MemTotal: 8000000 kB\nNode 0 MemFree: 2000000 kB\n");
  write_file("node1/meminfo", "Node 1 MemTotal: 8000000 kB\nNode 1 MemFree: 3000000 kB\n"
                              "Node 1 Active(file): 400000 kB\nNode 1 Inactive(file): 600000 kB\n");
  lm_numa_pretend(folder, UINT64_MAX);
  size_t first = (size_t)2000000 << 10, second = (size_t)3500000 << 10; /* half of the file pages */
  assert_true(lm_available_has(first - (256 << 20), 1));
  assert_false(lm_available_has(first, 1)); /* a little is reserved for other processes */
  assert_true(lm_available_has(second - (256 << 20), 2));
  assert_false(lm_available_has(second, 2));
  assert_true(lm_available_has(first + (256 << 20), 3));
  assert_false(lm_available_has(first + second, 3));
  assert_true(lm_available_has(first + second, 0)); /* memory of any node */
}

static void a_machine_has_room_for_less_than_is_free_with_swap(void **state) {
  (void)state;
  size_t all = (size_t)3000000 << 10;
  write_file("meminfo", "MemTotal: 8000000 kB\nMemFree: 10 kB\nMemAvailable: 2000000 kB\n"
                        "SwapTotal: 3000000 kB\nSwapFree: 1000000 kB\n");
  assert_true(lm_available_has(all - (256 << 20), 0));
  assert_false(lm_available_has(all, 0)); /* a little is reserved for other processes */
  write_file("meminfo", "MemTotal: 8000000 kB\nMemFree: 7000000 kB\n");
  assert_true(lm_available_has(all, 0)); /* a kernel without MemAvailable */
}

/* The memory of nodes that the process may not use does not count. */
static void a_process_on_some_nodes_has_the_room_of_these(void **state) {
  (void)state;
  size_t first = (size_t)2000000 << 10;
  write_file("meminfo", "MemTotal: 16000000 kB\nMemAvailable: 9000000 kB\n");
  assert_true(lm_available_has(2 * first, 0));
  lm_numa_pretend(folder, 1);
  assert_true(lm_available_has(first - (256 << 20), 0));
  assert_false(lm_available_has(first, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(without_groups_there_is_no_limit),
    cmocka_unit_test(the_tightest_of_the_groups_above_counts),
    cmocka_unit_test(what_only_caches_files_can_go),
    cmocka_unit_test(a_high_mark_is_a_limit_only_where_that_is_asked),
    cmocka_unit_test(stalls_are_those_of_the_nearest_group),
    cmocka_unit_test(a_container_has_its_limit_at_the_root),
    cmocka_unit_test(groups_of_the_first_version_have_other_names),
    cmocka_unit_test(any_file_may_be_unreadable),
    cmocka_unit_test(a_node_has_room_for_less_than_is_free),
    cmocka_unit_test(a_machine_has_room_for_less_than_is_free_with_swap),
    cmocka_unit_test(a_process_on_some_nodes_has_the_room_of_these),
  };
  return cmocka_run_group_tests_name("available", tests, make_groups, remove_groups);
}
