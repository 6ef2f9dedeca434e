/* test_numa.c - the nodes of real and made-up machines, and the binding of ranges: numa.h. */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "folder.h"
#include "os/numa.h"

/* ---- A made-up machine: nodes 0, 1 and 3 have memory, node 2 has CPUs only, node 4 is possible
 * but does not exist. */

static void write_free(unsigned node, unsigned total_kib, unsigned free_kib) {
  char name[32], text[256];
  snprintf(name, sizeof name, "node%u/meminfo", node);
  snprintf(text, sizeof text,
           "Node %u MemTotal:       %u kB\nNode %u MemFree:        %u kB\n"
           "Node %u MemUsed:        %u kB\n",
           node, total_kib, node, free_kib, node, total_kib - free_kib);
  write_file(name, text);
}

static void write_node(unsigned node, unsigned total_kib, unsigned free_kib, const char *distance) {
  char name[32];
  snprintf(name, sizeof name, "node%u", node);
  make_folder(name);
  snprintf(name, sizeof name, "node%u/distance", node);
  write_file(name, distance);
  write_free(node, total_kib, free_kib);
}

static int make_machine(void **state) {
  (void)state;
  assert_non_null(mkdtemp(folder));
  write_file("possible", "0-4\n");
  write_file("online", "0-3\n");
  write_file("has_memory", "0-1,3\n");
  write_node(0, 4000, 1000, "10 12 20 30\n");
  write_node(1, 5000, 2000, "12 10 20 30\n");
  write_node(2, 0, 0, "20 20 10 300\n");
  write_node(3, 6000, 3000, "30 30 30 10\n");
  return 0;
}

static int pretend(void **state) {
  (void)state;
  write_free(1, 5000, 2000);
  lm_numa_pretend(folder, UINT64_MAX);
  return 0;
}

static int be_real(void **state) {
  (void)state;
  lm_numa_pretend(NULL, UINT64_MAX);
  return 0;
}

static void nodes_with_memory_are_the_nodes(void **state) {
  (void)state;
  assert_int_equal(lm_numa_nodes(), 0xb);
  assert_true(lm_numa_has(0) && lm_numa_has(1) && lm_numa_has(3));
  assert_false(lm_numa_has(2) || lm_numa_has(4) || lm_numa_has(64) || lm_numa_has(1000));
}

static void nodes_that_the_process_may_not_use_are_left_out(void **state) {
  (void)state;
  lm_numa_pretend(folder, 0x6);
  assert_int_equal(lm_numa_nodes(), 0x2);
  assert_int_equal(lm_numa_total(0), 0);
}

static void a_node_that_cannot_be_named_has_a_reason(void **state) {
  (void)state;
  char text[320];
  assert_string_equal(lm_numa_why_absent(7, text, sizeof text), "this machine has nodes 0-1,3");
  assert_string_equal(lm_numa_why_absent(1e30, text, sizeof text), "this machine has nodes 0-1,3");
  assert_string_equal(lm_numa_why_absent(2, text, sizeof text),
                      "it has no memory; this machine has nodes 0-1,3");
  assert_string_equal(lm_numa_why_absent(4, text, sizeof text),
                      "it is offline; this machine has nodes 0-1,3");
  lm_numa_pretend(folder, 0x2);
  assert_string_equal(lm_numa_why_absent(3, text, sizeof text), "this process may use node 1");
  assert_string_equal(lm_numa_why_absent(7, text, sizeof text), "this machine has nodes 0-1,3");
  write_file("has_memory", "1\n");
  lm_numa_refresh();
  assert_string_equal(lm_numa_why_absent(3, text, sizeof text),
                      "it has no memory; this machine has node 1");
  write_file("has_memory", "0-1,3\n");
}

static loam_status parse(const char *text, uint64_t *mask) {
  *mask = 0;
  return lm_numa_parse(text, mask);
}

static void a_string_names_nodes_as_numactl_does(void **state) {
  (void)state;
  uint64_t mask, nodes = lm_numa_nodes(), first = nodes & -nodes, last = nodes;
  char text[64];
  while (last & (last - 1)) last &= last - 1;
  unsigned from = (unsigned)__builtin_ctzll(first), to = (unsigned)__builtin_ctzll(last);
  assert_int_equal(parse("all", &mask), LOAM_OK);
  assert_true(mask == nodes);
  snprintf(text, sizeof text, "%u-%u", from, to);
  assert_int_equal(parse(text, &mask), LOAM_OK);
  assert_true(mask == nodes);
  snprintf(text, sizeof text, "%u,%u", to, from);
  assert_int_equal(parse(text, &mask), LOAM_OK);
  assert_true(mask == (first | last));
  assert_int_equal(parse("+0", &mask), LOAM_OK);
  assert_true(mask == first);
  snprintf(text, sizeof text, "!%u", to);
  bool has_others = nodes != last;
  assert_int_equal(parse(text, &mask), has_others ? LOAM_OK : LOAM_EUNSUPPORTED);
  assert_true(mask == (nodes & ~last));
  assert_int_equal(parse("!all", &mask), LOAM_EUNSUPPORTED);
  assert_true(!strncmp(loam_error(), "it names none of the nodes", 26) && !mask);
}

static void a_string_of_another_form_is_refused(void **state) {
  (void)state;
  static const char *const wrong[] = { "",          "!",      "+",           "near", "al",
                                       "all,0",     "+all",   "0,",          ",0",   "0-",
                                       "-0",        "0--0",   "1-0",         "00",   "0x0",
                                       " 0",        "0 ",     "+!0",         "!!0",  "99999",
                                       "netdev:lo", "file:/", "ip:127.0.0.1" };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    uint64_t mask;
    assert_int_equal(parse(wrong[i], &mask), LOAM_EINVAL);
    assert_string_equal(loam_error(), "nodes are written as 0-3, 0,2, !1, +0 or all");
    assert_true(!mask);
  }
}

static void a_string_names_only_nodes_that_are_there(void **state) {
  (void)state;
  uint64_t mask;
  assert_int_equal(parse("0,7", &mask), LOAM_EUNSUPPORTED);
  assert_string_equal(loam_error(), "node 7: this machine has nodes 0-1,3");
  assert_int_equal(parse("0-7", &mask), LOAM_EUNSUPPORTED);
  assert_string_equal(loam_error(), "node 7: this machine has nodes 0-1,3");
  assert_int_equal(parse("!2", &mask), LOAM_EUNSUPPORTED);
  assert_string_equal(loam_error(), "node 2: it has no memory; this machine has nodes 0-1,3");
  assert_int_equal(parse("+3", &mask), LOAM_EUNSUPPORTED);
  assert_string_equal(loam_error(), "+3: this process may use nodes 0-1,3, which are +0 to +2");
}

static void a_string_of_nodes_needs_libnuma(void **state) {
  (void)state;
  uint64_t mask;
  lm_numa_pretend_library("libnuma-none.so.1");
  assert_int_equal(parse("0", &mask), LOAM_EUNSUPPORTED);
  assert_non_null(
      strstr(loam_error(), "needs libnuma (Debian package libnuma1): libnuma-none.so.1"));
  lm_numa_pretend_library("libc.so.6");
  assert_int_equal(parse("0", &mask), LOAM_EUNSUPPORTED);
  assert_string_equal(loam_error(), "libc.so.6 has no numa_available");
  assert_false(lm_numa_can_parse());
  lm_numa_pretend_library("libnuma.so.1");
  assert_true(lm_numa_can_parse());
  assert_int_equal(parse("0", &mask), LOAM_OK);
}

static void nodes_come_and_go(void **state) {
  (void)state;
  write_file("has_memory", "0-1\n");
  assert_int_equal(lm_numa_nodes(), 0xb);
  lm_numa_refresh();
  assert_int_equal(lm_numa_nodes(), 0x3);
  assert_int_equal(lm_numa_total(3), 0);
  lm_sys_refuse_from(1); /* a file that cannot be read changes nothing */
  lm_numa_refresh();
  lm_sys_refuse_from(0);
  assert_int_equal(lm_numa_nodes(), 0x3);
  write_file("has_memory", "0-1,3\n");
  lm_numa_refresh();
  assert_int_equal(lm_numa_nodes(), 0xb);
  assert_int_equal(lm_numa_total(3), 6000 * 1024);
}

static void *refresh(void *arg) {
  lm_numa_refresh();
  return arg;
}

/* The thread that refreshes the nodes waits until the test opens a pipe, which stands in place of
 * the file with the distances of node 3. */
static void a_node_that_comes_is_seen_with_its_total(void **state) {
  (void)state;
  char path[320];
  pthread_t thread;
  snprintf(path, sizeof path, "%s/node3/distance", folder);
  write_file("has_memory", "0-1\n");
  lm_numa_pretend(folder, UINT64_MAX);
  write_file("has_memory", "0-1,3\n");
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkfifo(path, 0600), 0);
  assert_int_equal(pthread_create(&thread, NULL, refresh, NULL), 0);
  usleep(20000);
  bool is_early = lm_numa_has(3);
  FILE *pipe = fopen(path, "w");
  fclose(pipe);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(unlink(path), 0);
  write_file("node3/distance", "30 30 30 10\n");
  assert_false(is_early);
  assert_int_equal(lm_numa_nodes(), 0xb);
  assert_int_equal(lm_numa_total(3), 6000 * 1024);
}

static void distances_go_by_the_nodes_online(void **state) {
  (void)state;
  assert_int_equal(lm_numa_distance(0, 0), 10);
  assert_int_equal(lm_numa_distance(0, 1), 12);
  assert_int_equal(lm_numa_distance(0, 3), 30);
  assert_int_equal(lm_numa_distance(1, 0), 12);
  assert_int_equal(lm_numa_distance(2, 3), 20); /* 300 is not a valid distance */
  assert_int_equal(lm_numa_distance(7, 7), 10);
  assert_int_equal(lm_numa_distance(7, 8), 20);
  assert_int_equal(lm_numa_distance(70, 8), 20);
}

static void distances_of_another_machine_are_forgotten(void **state) {
  (void)state;
  assert_int_equal(lm_numa_distance(0, 3), 30);
  lm_numa_pretend("/no/such/folder", UINT64_MAX);
  assert_int_equal(lm_numa_distance(0, 0), 10);
  assert_int_equal(lm_numa_distance(0, 3), 20);
}

static void memory_is_reported_by_node(void **state) {
  (void)state;
  assert_int_equal(lm_numa_total(0), 4000 * 1024);
  assert_int_equal(lm_numa_total(3), 6000 * 1024);
  assert_int_equal(lm_numa_free(3), 3000 * 1024);
  assert_int_equal(lm_numa_total(2), 0);
  assert_int_equal(lm_numa_free(2), 0);
  assert_int_equal(lm_numa_free(1000), 0);
}

static void free_memory_is_at_most_100_ms_old(void **state) {
  (void)state;
  assert_int_equal(lm_numa_free(1), 2000 * 1024);
  write_free(1, 5000, 500);
  lm_sys_sleep(101000000);
  assert_int_equal(lm_numa_free(1), 500 * 1024);
}

static void free_memory_is_not_read_each_time(void **state) {
  (void)state;
  long before = lm_sys_calls();
  for (int i = 0; i < 1000; i++) (void)lm_numa_free(1);
  assert_true(lm_sys_calls() - before < 100);
}

/* Lets the process follow a board whose publisher may use nodes 0, 1 and 3. */
static void follow_board(void) {
  static lm_published_page page;
  int fd = memfd_create("page", MFD_CLOEXEC);
  lm_numa_pretend(folder, UINT64_MAX);
  lm_numa_free_publish(&page.gauges);
  assert_int_equal(write(fd, &page, sizeof page), sizeof page);
  assert_int_equal(lm_published_map(fd, 0), 0);
  close(fd);
}

static void a_node_that_others_may_use_has_nothing_free(void **state) {
  (void)state;
  follow_board();
  assert_int_equal(lm_numa_free(3), 3000 * 1024);
  lm_numa_pretend(folder, 0x2);
  for (int i = 0; i < LM_NUMA_READS; i++)
    (void)lm_numa_free(3); /* one of these readings looks at the board and finds the change */
  for (int i = 0; i < 100; i++) {
    assert_int_equal(lm_numa_free(3), 0);
    assert_int_equal(lm_numa_free(1), 2000 * 1024);
  }
  lm_published_unmap();
}

/* A fast read that finds the look due does not look itself. The look stays due until a slow
 * read. */
static void a_look_that_is_due_stays_due(void **state) {
  (void)state;
  follow_board();
  (void)lm_numa_free(0);
  for (int i = 1; i < LM_NUMA_READS; i++) assert_true(lm_numa_free_fast(0) >= 0);
  for (int i = 0; i < 3; i++) assert_true(lm_numa_free_fast(0) < 0);
  (void)lm_numa_free(0); /* looks, and begins a new count */
  assert_true(lm_numa_free_fast(0) >= 0);
  lm_published_unmap();
}

static void a_machine_without_sysfs_has_node_0(void **state) {
  (void)state;
  lm_numa_pretend("/no/such/folder", UINT64_MAX);
  assert_int_equal(lm_numa_nodes(), 1);
  assert_int_equal(lm_numa_here(), 0);
  assert_true(lm_numa_total(0) > 0);
  assert_true(lm_numa_free(0) > 0);
  assert_int_equal(lm_numa_distance(0, 0), 10);
}

static void read_machine(bool refused) {
  (void)refused;
  lm_numa_pretend(folder, UINT64_MAX);
  assert_true(lm_numa_has(0));
  (void)lm_numa_free(0);
}

static void any_file_may_be_unreadable(void **state) {
  (void)state;
  assert_true(refuse_each(read_machine) > 8);
}

static void lists_of_nodes_are_shown_as_the_kernel_does(void **state) {
  (void)state;
  char buffer[32];
  assert_string_equal(lm_numa_text(0, buffer, sizeof buffer), "");
  assert_string_equal(lm_numa_text(1, buffer, sizeof buffer), "0");
  assert_string_equal(lm_numa_text(0xb, buffer, sizeof buffer), "0-1,3");
  assert_string_equal(lm_numa_text(UINT64_MAX, buffer, sizeof buffer), "0-63");
  assert_string_equal(lm_numa_text((uint64_t)5 << 61, buffer, sizeof buffer), "61,63");
  assert_string_equal(lm_numa_text(0x5555, buffer, 6), "0,2,4");
}

/* ---- This machine */

static void this_machine_has_a_node(void **state) {
  (void)state;
  uint64_t nodes = lm_numa_nodes();
  assert_int_not_equal(nodes, 0);
  unsigned first = (unsigned)__builtin_ctzll(nodes);
  assert_true(lm_numa_total(first) > LM_MIB);
  assert_true(lm_numa_free(first) <= lm_numa_total(first));
  assert_true(lm_numa_here() < LM_NODES_MAX);
}

/* On a machine of one node, a start does not read the file: the total is the machine's. The file
 * has less if the kernel counts memory for a node only when it first uses the memory. */
static void the_total_of_the_only_node_is_that_of_the_machine(void **state) {
  (void)state;
  char path[64], text[128] = "";
  unsigned long long kib = 0;
  unsigned first = (unsigned)__builtin_ctzll(lm_numa_nodes());
  snprintf(path, sizeof path, "/sys/devices/system/node/node%u/meminfo", first);
  FILE *file = fopen(path, "r");
  if (!file) skip();
  assert_non_null(fgets(text, sizeof text, file));
  fclose(file);
  assert_int_equal(sscanf(text, "Node %*u MemTotal: %llu kB", &kib), 1);
  uint64_t total = 0, free = 0;
  assert_int_equal(lm_sys_memory(&total, &free), 0);
  bool is_only = lm_numa_only_node != LM_NUMA_SEVERAL;
  assert_true(kib * 1024 <= total);
  assert_int_equal(lm_numa_total(first), is_only ? total : kib * 1024);
}

enum { RANGE = 8 << 20 };

static char *new_range(void) {
  void *at;
  assert_int_equal(lm_sys_reserve(RANGE + 2 * LM_MIB, &at), 0);
  char *range = (char *)lm_align_up((uintptr_t)at, 2 * LM_MIB);
  assert_int_equal(lm_sys_commit(range, RANGE), 0);
  return range;
}

/* Returns the mode of the kernel's memory policy at an address and sets *nodes to the first 64
 * nodes of its mask. The mask must have MPOL_F_STATIC_NODES, so that the kernel never replaces
 * these nodes. */
static int policy_at(const void *at, uint64_t *nodes) {
  enum { BY_ADDRESS = 2, BITS = 1024, STAYS = 1 << 15 };
  uint64_t mask[BITS / 64] = { 0 };
  int mode;
  assert_int_equal(syscall(SYS_get_mempolicy, &mode, mask, BITS, at, BY_ADDRESS), 0);
  *nodes = mask[0];
  assert_true(!mask[0] || mode & STAYS);
  return mode & 0xff;
}

static void each_mode_reaches_the_kernel(void **state) {
  (void)state;
  skip_if_none_is_placed();
  static const int modes[] = { LM_BIND_PREFERRED, LM_BIND_BIND, LM_BIND_INTERLEAVE };
  uint64_t first = lm_numa_nodes() & -lm_numa_nodes(), nodes;
  for (size_t i = 0; i < LM_COUNT(modes); i++) {
    char *at = new_range();
    lm_placement placement = { .mode = modes[i], .nodes = first };
    assert_int_equal(lm_numa_bind(at, RANGE, &placement), 0);
    assert_int_equal(policy_at(at + RANGE - 1, &nodes), modes[i]);
    assert_int_equal(nodes, first);
    lm_sys_unmap(at, RANGE);
  }
}

static void local_and_default_need_no_nodes(void **state) {
  (void)state;
  skip_if_none_is_placed();
  char *at = new_range();
  uint64_t nodes;
  assert_int_equal(lm_numa_bind(at, RANGE, &(lm_placement){ .mode = LM_BIND_LOCAL }), 0);
  assert_int_equal(policy_at(at, &nodes), LM_BIND_LOCAL);
  long before = lm_sys_calls();
  assert_int_equal(lm_numa_bind(at, RANGE, &(lm_placement){ .mode = LM_BIND_DEFAULT }), 0);
  assert_int_equal(lm_sys_calls(), before);
  lm_sys_unmap(at, RANGE);
}

static void a_node_that_is_not_there_is_refused(void **state) {
  (void)state;
  skip_if_none_is_placed();
  if (lm_numa_has(63)) skip();
  char *at = new_range();
  lm_placement placement = { .mode = LM_BIND_BIND, .nodes = (uint64_t)1 << 63 };
  assert_int_equal(lm_numa_bind(at, RANGE, &placement), EINVAL);
  placement = (lm_placement){ .mode = LM_BIND_WEIGHTED };
  assert_int_equal(lm_numa_bind(at, RANGE, &placement), EINVAL);
  lm_sys_unmap(at, RANGE);
}

static void one_weight_is_one_preference(void **state) {
  (void)state;
  skip_if_none_is_placed();
  char *at = new_range();
  unsigned first = (unsigned)__builtin_ctzll(lm_numa_nodes());
  lm_placement placement = { .mode = LM_BIND_WEIGHTED };
  placement.weight[first] = 7;
  uint64_t nodes;
  assert_int_equal(lm_numa_bind(at, RANGE, &placement), 0);
  assert_int_equal(policy_at(at, &nodes), LM_BIND_PREFERRED);
  assert_int_equal(nodes, (uint64_t)1 << first);
  assert_int_equal(policy_at(at + RANGE - 1, &nodes), LM_BIND_PREFERRED);
  lm_sys_unmap(at, RANGE);
}

/* ---- Stripes by weight, without binding memory */

enum { A, B, C = 3 };

/* Adds the bytes of the range that each node gets to bytes[], and returns the number of stripes. */
static int share_out(uintptr_t at, size_t size, size_t cell, size_t bytes[LM_NODES_MAX]) {
  lm_placement placement = { .mode = LM_BIND_WEIGHTED };
  placement.weight[A] = 3;
  placement.weight[B] = 2;
  placement.weight[C] = 1;
  lm_numa_stripes runs;
  lm_numa_stripe run;
  int n = 0;
  assert_true(lm_numa_stripes_start(&runs, (void *)at, size, cell, &placement));
  for (uintptr_t expected = at;; n++, expected = run.to) {
    assert_true(lm_numa_stripes_is_valid(&runs));
    if (!lm_numa_stripes_next(&runs, &run)) {
      assert_int_equal(expected, at + size);
      return n;
    }
    assert_int_equal(run.from, expected);
    assert_true(run.to > run.from && run.node < LM_NODES_MAX);
    bytes[run.node] += run.to - run.from;
  }
}

static const uintptr_t place = (uintptr_t)1 << 40;

static void a_large_range_is_shared_out_by_weight(void **state) {
  (void)state;
  size_t bytes[LM_NODES_MAX] = { 0 };
  int runs = share_out(place, LM_GIB, 0, bytes);
  assert_true(runs <= 65);
  size_t cell = 16 * LM_MIB;
  assert_in_range(bytes[A], LM_GIB / 2 - cell, LM_GIB / 2 + cell);
  assert_in_range(bytes[B], LM_GIB / 3 - cell, LM_GIB / 3 + cell);
  assert_in_range(bytes[C], LM_GIB / 6 - cell, LM_GIB / 6 + cell);
  assert_int_equal(bytes[A] + bytes[B] + bytes[C], LM_GIB);
}

static void many_small_ranges_are_shared_out_by_weight(void **state) {
  (void)state;
  size_t bytes[LM_NODES_MAX] = { 0 }, size = 64 * LM_KIB;
  for (size_t i = 0; i < 600; i++) (void)share_out(place + i * size, size, 0, bytes);
  assert_int_equal(bytes[A], 300 * size);
  assert_int_equal(bytes[B], 200 * size);
  assert_int_equal(bytes[C], 100 * size);
}

static void runs_begin_and_end_where_huge_pages_do(void **state) {
  (void)state;
  lm_placement placement = { .mode = LM_BIND_WEIGHTED, .huge = true };
  placement.weight[A] = placement.weight[B] = 1;
  lm_numa_stripes runs;
  lm_numa_stripe run;
  assert_true(lm_numa_stripes_start(&runs, (void *)place, 32 * LM_MIB, 0, &placement));
  while (lm_numa_stripes_next(&runs, &run)) assert_int_equal(run.to - run.from, 2 * LM_MIB);
}

static void odd_places_and_sizes_are_covered_whole(void **state) {
  (void)state;
  for (size_t pages = 1; pages < 5000; pages = pages * 3 + 1) {
    size_t bytes[LM_NODES_MAX] = { 0 };
    uintptr_t at = place + 7 * pages * LM_PAGE;
    assert_true(share_out(at, pages * LM_PAGE, 0, bytes) <= 65);
    (void)share_out(at, pages * LM_PAGE, LM_GIB, bytes);
  }
}

static void a_walk_with_unpaid_credit_is_not_valid(void **state) {
  (void)state;
  lm_placement placement = { .mode = LM_BIND_WEIGHTED, .weight = { 3, 1 } };
  lm_numa_stripes runs;
  assert_true(lm_numa_stripes_start(&runs, (void *)place, LM_GIB, 0, &placement));
  assert_true(lm_numa_stripes_is_valid(&runs));
  runs.credit[1]++;
  assert_false(lm_numa_stripes_is_valid(&runs));
  runs.credit[1]--;
  placement.weight[1] = 2; /* changed during the walk */
  assert_false(lm_numa_stripes_is_valid(&runs));
}

/* libnuma's constructor reads files, which are cancellation points. */
static void *open_libnuma_when_cancelled(void *was_over) {
  pthread_cancel(pthread_self());
  (void)lm_numa_can_parse();
  *(bool *)was_over = true;
  pthread_testcancel();
  return NULL;
}

static void no_cancelled_thread_keeps_the_lock_of_the_linker(void **state) {
  (void)state;
  bool was_over = false;
  void *end;
  pthread_t thread = start_thread(open_libnuma_when_cancelled, &was_over);
  assert_int_equal(pthread_join(thread, &end), 0);
  assert_true(was_over && end == PTHREAD_CANCELED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(nodes_with_memory_are_the_nodes, pretend),
    cmocka_unit_test_setup(nodes_that_the_process_may_not_use_are_left_out, pretend),
    cmocka_unit_test_setup(a_node_that_cannot_be_named_has_a_reason, pretend),
    cmocka_unit_test_setup(a_string_of_another_form_is_refused, be_real),
    cmocka_unit_test_setup(a_string_names_only_nodes_that_are_there, pretend),
    cmocka_unit_test_setup(a_string_names_nodes_as_numactl_does, be_real),
    cmocka_unit_test_setup(a_string_of_nodes_needs_libnuma, be_real),
    cmocka_unit_test_setup(nodes_come_and_go, pretend),
    cmocka_unit_test_setup(a_node_that_comes_is_seen_with_its_total, pretend),
    cmocka_unit_test_setup(distances_go_by_the_nodes_online, pretend),
    cmocka_unit_test_setup(distances_of_another_machine_are_forgotten, pretend),
    cmocka_unit_test_setup(memory_is_reported_by_node, pretend),
    cmocka_unit_test_setup(free_memory_is_at_most_100_ms_old, pretend),
    cmocka_unit_test_setup(free_memory_is_not_read_each_time, pretend),
    cmocka_unit_test_setup(a_node_that_others_may_use_has_nothing_free, pretend),
    cmocka_unit_test(a_look_that_is_due_stays_due),
    cmocka_unit_test(a_machine_without_sysfs_has_node_0),
    cmocka_unit_test(any_file_may_be_unreadable),
    cmocka_unit_test(lists_of_nodes_are_shown_as_the_kernel_does),
    cmocka_unit_test_setup(this_machine_has_a_node, be_real),
    cmocka_unit_test_setup(the_total_of_the_only_node_is_that_of_the_machine, be_real),
    cmocka_unit_test_setup(each_mode_reaches_the_kernel, be_real),
    cmocka_unit_test_setup(local_and_default_need_no_nodes, be_real),
    cmocka_unit_test_setup(a_node_that_is_not_there_is_refused, be_real),
    cmocka_unit_test_setup(one_weight_is_one_preference, be_real),
    cmocka_unit_test(a_large_range_is_shared_out_by_weight),
    cmocka_unit_test(many_small_ranges_are_shared_out_by_weight),
    cmocka_unit_test(runs_begin_and_end_where_huge_pages_do),
    cmocka_unit_test(odd_places_and_sizes_are_covered_whole),
    cmocka_unit_test(a_walk_with_unpaid_credit_is_not_valid),
    cmocka_unit_test_setup(no_cancelled_thread_keeps_the_lock_of_the_linker, be_real),
  };
  return cmocka_run_group_tests_name("numa", tests, make_machine, remove_folder);
}
