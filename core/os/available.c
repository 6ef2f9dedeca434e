/* available.c - whether memory is available now: the free memory of nodes, and the limits of
 * control groups. cgroups(7) and the kernel's cgroup-v2.rst describe the files. */
#include "os/available.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/numa.h"
#include "os/sys.h"

enum { PATH_SIZE = 512, FILE_SIZE = 4096, LINE_SIZE = 128 };
/* Bytes that are read of memory.stat. The fields of `layout` are in its first kilobyte. */
enum { STAT_SIZE = 2048 };
/* Memory that is kept back, since other processes take memory too, and page tables need some: of a
 * node 1/NODE_SHARE, but at most NODE_SPARE_MAX; of a group GROUP_SPARE and 1/256 of the
 * request. */
enum { NODE_SHARE = 32 };
#define NODE_SPARE_MAX ((uint64_t)256 << 20)
#define GROUP_SPARE ((uint64_t)4 << 20)

static const char *self_file = "/proc/self/cgroup";
static const char *groups_folder = "/sys/fs/cgroup";
static const char *machine_file = "/proc/meminfo";
static const char *stalls_file = "/proc/pressure/memory";
static const char min_free_file[] = "/proc/sys/vm/min_free_kbytes";

#if LOAM_CHECKS >= 1
void lm_available_pretend(const char *self, const char *groups, const char *machine) {
  self_file = self;
  groups_folder = groups;
  machine_file = machine;
}

void lm_available_pretend_stalls(const char *machine) { stalls_file = machine; }
#endif

/* ---- Control groups */

/* The files of one version of control groups. */
typedef struct layout {
  const char *folder; /* under groups_folder */
  const char *limit, *used;
  const char *high; /* a limit above which the kernel makes the group slow; NULL: there is none */
  const char *inactive; /* a field of memory.stat: cached files not used for long, which can go */
  const char *active;   /* a field of memory.stat: other cached files, which can go at a price */
} layout;

static const layout unified = {
  "", "memory.max", "memory.current", "memory.high", "\ninactive_file ", "\nactive_file "
};
static const layout legacy = { "/memory", "memory.limit_in_bytes",  "memory.usage_in_bytes",
                               NULL,      "\ntotal_inactive_file ", "\ntotal_active_file " };
/* If control groups of the first version are mounted at groups_folder, systemd mounts those of the
 * second version in this folder. There they limit no memory, but have the figures of stalls. */
static const layout beside = { .folder = "/unified" };

/* Reads the beginning of a file of a group into `text`, which has `size` bytes. False if it cannot
 * be read. */
static bool read_start(const layout *l, const char *group, const char *name, char *text,
                       size_t size) {
  char path[PATH_SIZE];
  size_t length;
  int n = snprintf(path, sizeof path, "%s%s%s/%s", groups_folder, l->folder, group, name);
  return n < PATH_SIZE && lm_sys_read_file(path, text, size, &length) == 0;
}

/* Returns the limit in a file of a group; UINT64_MAX for "max" and for numbers above every
 * machine's memory. */
static uint64_t limit_in(const layout *l, const char *group, const char *name) {
  char text[LINE_SIZE];
  if (!read_start(l, group, name, text, sizeof text) || text[0] == 'm') return UINT64_MAX;
  uint64_t limit = strtoull(text, NULL, 10);
  return limit < (uint64_t)1 << 60 ? limit : UINT64_MAX;
}

/* Returns the limit of a group. `high`: memory.high counts too. */
static uint64_t group_limit(const layout *l, const char *group, bool high) {
  uint64_t limit = limit_in(l, group, l->limit);
  uint64_t lower = high && l->high ? limit_in(l, group, l->high) : UINT64_MAX;
  return lower < limit ? lower : limit;
}

/* Returns the number of a field in the text of memory.stat; 0 if the field is missing. */
static uint64_t field_of(const char *text, const char *field) {
  const char *at = strstr(text, field);
  return at ? strtoull(at + strlen(field), NULL, 10) : 0;
}

/* Returns how many bytes a group with a limit still allows. Inactive cached files count as free,
 * and with `files` all cached files do. */
static uint64_t left_in_group(const layout *l, const char *group, bool files, uint64_t limit) {
  char text[STAT_SIZE];
  if (!read_start(l, group, l->used, text, sizeof text)) return UINT64_MAX;
  uint64_t used = strtoull(text, NULL, 10), cached = 0;
  if (read_start(l, group, "memory.stat", text, sizeof text))
    cached = field_of(text, l->inactive) + (files ? field_of(text, l->active) : 0);
  used = used > cached ? used - cached : 0;
  return limit > used ? limit - used : 0;
}

/* Returns the least that a group and the groups above it allow, and lowers *limit to their lowest
 * limit. Overwrites `group`. In a container the path of the group is often not visible; then only
 * the root has files, and these are the container's. */
static uint64_t left_in_groups(const layout *l, char *group, bool high, bool files,
                               uint64_t *limit) {
  uint64_t least = UINT64_MAX;
  for (;;) {
    uint64_t most = group_limit(l, group, high);
    if (most != UINT64_MAX) {
      uint64_t left = left_in_group(l, group, files, most);
      if (left < least) least = left;
      if (most < *limit) *limit = most;
    }
    char *last = strrchr(group, '/');
    if (!last) return least;
    *last = 0;
  }
}

/* Finds the line of /proc/self/cgroup that contains `key`, such as "0::/a/b" or "5:memory:/a/b",
 * and copies the path, without a slash at its end. */
static bool find_group(const char *text, const char *key, char *group) {
  const char *at = strstr(text, key);
  if (!at) return false;
  at += strlen(key);
  size_t length = strcspn(at, "\n");
  if (length >= PATH_SIZE) return false;
  while (length && at[length - 1] == '/') length--;
  lm_assert(length < PATH_SIZE);
  memcpy(group, at, length);
  group[length] = 0;
  return true;
}

/* Finds the control group that a process is in, by the key of find_group. This function is not
 * inlined, so that its text is off the stack again when other files are read: a request for memory
 * may come here in a thread with a stack of 16 KiB. */
static LM_NOINLINE bool find_group_of(const char *self, const char *key, char *group) {
  char text[FILE_SIZE];
  size_t length;
  return !lm_sys_read_file(self, text, sizeof text, &length) && find_group(text, key, group);
}

static uint64_t left_for(const char *self, bool high, bool files, uint64_t *limit) {
  char group[PATH_SIZE];
  uint64_t left = UINT64_MAX;
  lm_assert(limit);
  *limit = UINT64_MAX;
  if (find_group_of(self, "0::", group)) left = left_in_groups(&unified, group, high, files, limit);
  if (find_group_of(self, ":memory:", group)) {
    uint64_t other = left_in_groups(&legacy, group, high, files, limit);
    if (other < left) left = other;
  }
  return left;
}

uint64_t lm_available_in_group(uint64_t *limit) { return left_for(self_file, false, false, limit); }

uint64_t lm_available_below_high(const char *self, uint64_t *limit) {
  return left_for(self ? self : self_file, true, true, limit);
}

/* ---- Stalls */

/* Returns the whole percents in the text of a file of stalls; -1: it has none. The text begins with
 * a line such as "some avg10=1.53 avg60=0.87 avg300=0.21 total=5678". */
static int percents_in(const char *text) {
  static const char start[] = "some avg10=";
  if (strncmp(text, start, sizeof start - 1)) return -1;
  unsigned long percents = strtoul(text + sizeof start - 1, NULL, 10);
  return percents < 100 ? (int)percents : 100;
}

/* Returns the stalls of a group, or of the nearest group above it that has the file. Overwrites
 * `group`. */
static int stalled_in(const layout *l, char *group) {
  char text[LINE_SIZE];
  for (;;) {
    if (read_start(l, group, "memory.pressure", text, sizeof text)) return percents_in(text);
    char *last = strrchr(group, '/');
    if (!last) return -1;
    *last = 0;
  }
}

int lm_available_stalled(const char *self) {
  char group[PATH_SIZE], copy[PATH_SIZE], text[LINE_SIZE];
  size_t length;
  int percents = -1;
  if (find_group_of(self ? self : self_file, "0::", group)) {
    snprintf(copy, sizeof copy, "%s", group);
    percents = stalled_in(&unified, copy);
    if (percents < 0) percents = stalled_in(&beside, group);
  }
  if (percents >= 0) return percents;
  return lm_sys_read_file(stalls_file, text, sizeof text, &length) ? -1 : percents_in(text);
}

/* ---- Nodes */

static uint64_t total_memory(uint64_t nodes) {
  uint64_t sum = 0;
  for (; nodes; nodes &= nodes - 1) sum += lm_numa_total((unsigned)__builtin_ctzll(nodes));
  return sum;
}

/* Returns how much the kernel keeps free on a node with `total` bytes (its "high" watermark): the
 * node's share of min_free_kbytes, times 1.5. */
static uint64_t kernel_reserve(uint64_t total) {
  char text[32];
  size_t length;
  uint64_t all = total_memory(lm_numa_nodes());
  if (!all || lm_sys_read_file(min_free_file, text, sizeof text, &length)) return 0;
  return (uint64_t)((double)strtoull(text, NULL, 10) * LM_KIB * 1.5 * (double)total / (double)all);
}

/* Returns the bytes of a node that loam leaves to others. */
static uint64_t spare_of(unsigned node) {
  lm_assert(node < LM_NODES_MAX);
  uint64_t total = lm_numa_total(node), spare = total / NODE_SHARE, reserve = kernel_reserve(total);
  if (spare > NODE_SPARE_MAX) spare = NODE_SPARE_MAX;
  return spare > reserve ? spare : reserve;
}

static uint64_t left_on(uint64_t nodes) {
  uint64_t sum = 0;
  for (; nodes; nodes &= nodes - 1) {
    unsigned node = (unsigned)__builtin_ctzll(nodes);
    uint64_t left = lm_numa_available(node), spare = spare_of(node);
    if (left > spare) sum += left - spare;
  }
  return sum;
}

/* ---- The machine */

/* Sets *out to the bytes of a field, "MemTotal:  1234 kB". Returns false if the field is
 * missing. */
static bool find_figure(const char *text, const char *field, uint64_t *out) {
  const char *at = strstr(text, field);
  if (at) *out = strtoull(at + strlen(field), NULL, 10) * LM_KIB;
  return at;
}

/* Returns how many bytes the machine has left, with memory that the kernel can free and free swap.
 * The kernel has these figures for the machine alone, so a process that may not use all nodes
 * counts its nodes. */
static uint64_t left_on_machine(void) {
  char text[FILE_SIZE];
  size_t length;
  uint64_t total, available, swap = 0;
  if (lm_numa_others()) return left_on(lm_numa_nodes());
  if (lm_sys_read_file(machine_file, text, sizeof text, &length) ||
      !find_figure(text, "MemTotal:", &total) || !find_figure(text, "MemAvailable:", &available))
    return UINT64_MAX;
  (void)find_figure(text, "SwapFree:", &swap);
  uint64_t spare = total / NODE_SHARE < NODE_SPARE_MAX ? total / NODE_SHARE : NODE_SPARE_MAX;
  return available + swap > spare ? available + swap - spare : 0;
}

bool lm_available_has(size_t bytes, uint64_t nodes) {
  uint64_t limit;
  if (nodes && left_on(nodes) < bytes) return false;
  if (!nodes && left_on_machine() < bytes) return false;
  uint64_t left = left_for(self_file, false, true, &limit);
  return left == UINT64_MAX || (left > GROUP_SPARE && left - GROUP_SPARE >= bytes + bytes / 256);
}
