/* pages.h - asks the kernel where memory is and which pages it has. The tests of placement compare
 * loam with these answers. */
#ifndef PAGES_H
#define PAGES_H

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "../core/test.h"
#include "filled.h"
#include "loam.h"

/* NODES: the nodes of the machine with four. NODES_MOST also counts node 4, which test_leaving
 * brings online and offline. */
enum { NODES = 4, NODES_MOST = 5, PAGE = 4096 };

/* Returns how many NUMA nodes the virtual machine has, or 0 outside of it. tests/vm/run sets
 * VM_NODES in the machine. */
static inline int nodes(void) {
  const char *text = getenv("VM_NODES");
  return text ? atoi(text) : 0;
}

/* Starts loam for a test program. Skips the program outside the virtual machine. An emulated
 * machine may be slow, so a load step of a policy may take up to 60 s. */
static inline void begin(void) {
  if (!nodes()) {
    print_message("only in the virtual machine: tests/vm/run\n");
    exit(77);
  }
  loam_start(&(loam_config){ .size = sizeof(loam_config), .control = -1, .step_ms = 60000 });
}

/* Skips the program unless the machine has `n` nodes. */
static inline void only_with_nodes(int n) {
  if (nodes() == n) return;
  print_message("only on the machine with %d nodes\n", n);
  exit(77);
}

/* The pages of a range, counted by node. `other` counts the pages that are on no such node: most of
 * them have no memory. */
typedef struct spread {
  long on[NODES_MOST], other;
} spread;

static inline spread where_is(const void *at, size_t size) {
  spread found = { 0 };
  uintptr_t from = (uintptr_t)at & ~(uintptr_t)(PAGE - 1), end = (uintptr_t)at + size;
  while (from < end) {
    void *page[512];
    int status[512];
    unsigned long n = 0;
    for (; n < 512 && from < end; n++, from += PAGE) page[n] = (void *)from;
    assert_int_equal(syscall(SYS_move_pages, 0, n, page, NULL, status, 0), 0);
    for (unsigned long i = 0; i < n; i++) {
      if (status[i] >= 0 && status[i] < NODES_MOST) found.on[status[i]]++;
      else found.other++;
    }
  }
  return found;
}

/* Asserts that every page of the range has memory, on one of the nodes of `mask`. */
static inline void assert_on(const void *at, size_t size, unsigned mask) {
  spread found = where_is(at, size);
  for (int node = 0; node < NODES_MOST; node++)
    if (!(mask >> node & 1)) found.other += found.on[node];
  if (found.other)
    fail_msg("%ld of %zu pages are not on nodes %#x: %ld %ld %ld %ld %ld", found.other,
             (size + PAGE - 1) / PAGE, mask, found.on[0], found.on[1], found.on[2], found.on[3],
             found.on[4]);
}

/* Binds the thread to one CPU of the node. tests/vm/run gives node 0 the CPUs 0 and 1, node 1 the
 * CPU 2, and node 2 the CPU 3; node 3 has none. */
static inline void run_on_node(int node) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(node == 0 ? 0 : node + 1, &set);
  assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0);
}

/* Returns a field of /proc/self/smaps in kB: its sum over all mappings that overlap the range. */
static inline long smaps(const void *at, size_t size, const char *field) {
  char line[512];
  bool inside = false;
  long found = 0;
  FILE *file = fopen("/proc/self/smaps", "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    uintptr_t from, to;
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
      inside = from < (uintptr_t)at + size && (uintptr_t)at < to;
    else if (inside && !strncmp(line, field, strlen(field)) && line[strlen(field)] == ':')
      found += atol(line + strlen(field) + 1);
  }
  fclose(file);
  return found;
}

/* Writes a line to a file of the kernel, as the machine's administrator does. */
static inline void set(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  if (!file) fail_msg("%s cannot be opened", path);
  fputs(text, file);
  if (fclose(file)) fail_msg("%s does not take %s", path, text);
}

/* Returns the number in a file of the kernel, or -1 if there is no such file. */
static inline long number_in(const char *path) {
  long found = -1;
  FILE *file = fopen(path, "r");
  if (!file) return -1;
  if (fscanf(file, "%ld", &found) != 1) found = -1;
  fclose(file);
  return found;
}

/* Returns the name of the strategy that a block belongs to. */
static inline const char *strategy_of(const void *p) {
  loam_owner_info owner;
  assert_int_equal(loam_owner(p, &owner), LOAM_OK);
  return owner.strategy;
}

/* Loads a policy, which is then in force. */
static inline void load_policy(const char *text) {
  if (loam_policy_load_text("vm.lua", text)) fail_msg("%s", loam_error());
}

#endif
