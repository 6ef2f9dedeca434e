/* available.c - whether memory can be had at once: free memory of nodes, limits of control groups,
 * whose files cgroups(7) and the kernel's cgroup-v2.rst describe. */
#include "os/available.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/numa.h"
#include "os/sys.h"

enum { PATH_SIZE = 512, FILE_SIZE = 4096 };
/* What is left over of a node and of a group: others take too, and page tables are counted. */
enum { NODE_SHARE = 32 };
#define NODE_MOST ((uint64_t)256 << 20)
#define GROUP_SPARE ((uint64_t)4 << 20)

static const char *self_file = "/proc/self/cgroup";
static const char *groups_folder = "/sys/fs/cgroup";
static const char *machine_file = "/proc/meminfo";
static const char min_free_file[] = "/proc/sys/vm/min_free_kbytes";

#if LOAM_CHECKS >= 1
void lm_available_pretend(const char *self, const char *groups, const char *machine) {
  self_file = self;
  groups_folder = groups;
  machine_file = machine;
}
#endif

/* ---- Control groups */

/* Where a version of groups keeps its figures. */
typedef struct layout {
  const char *folder; /* below groups_folder */
  const char *limit, *used;
  const char *unused; /* in memory.stat: files that nobody has used for long, which can go */
} layout;

static const layout unified = { "", "memory.max", "memory.current", "\ninactive_file " };
static const layout legacy = { "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                               "\ntotal_inactive_file " };

static bool read_group(const layout *l, const char *group, const char *name, char *text) {
  char path[PATH_SIZE];
  size_t length;
  int n = snprintf(path, sizeof path, "%s%s%s/%s", groups_folder, l->folder, group, name);
  return n < PATH_SIZE && lm_sys_read_file(path, text, FILE_SIZE, &length) == 0;
}

/* "max" is no limit, and so is what is above every machine's memory. */
static uint64_t limit_of(const layout *l, const char *group) {
  char text[FILE_SIZE];
  if (!read_group(l, group, l->limit, text) || text[0] == 'm') return UINT64_MAX;
  uint64_t limit = strtoull(text, NULL, 10);
  return limit < (uint64_t)1 << 60 ? limit : UINT64_MAX;
}

static uint64_t left_of(const layout *l, const char *group, uint64_t limit) {
  char text[FILE_SIZE];
  if (!read_group(l, group, l->used, text)) return UINT64_MAX;
  uint64_t used = strtoull(text, NULL, 10), unused = 0;
  const char *at = read_group(l, group, "memory.stat", text) ? strstr(text, l->unused) : NULL;
  if (at) unused = strtoull(at + strlen(l->unused), NULL, 10);
  used = used > unused ? used - unused : 0;
  return limit > used ? limit - used : 0;
}

/* A group and those above it; one that we cannot see has the files of what is there in its place,
 * as in a container. */
static uint64_t left_in(const layout *l, char *group, uint64_t *limit) {
  uint64_t least = UINT64_MAX;
  for (;;) {
    uint64_t most = limit_of(l, group);
    if (most != UINT64_MAX) {
      uint64_t left = left_of(l, group, most);
      if (left < least) least = left;
      if (most < *limit) *limit = most;
    }
    char *last = strrchr(group, '/');
    if (!last) return least;
    *last = 0;
  }
}

/* The path in a line of /proc/self/cgroup, "0::/a/b" or "5:memory:/a/b"; without the end "/". */
static bool find_group(const char *text, const char *mark, char *group) {
  const char *at = strstr(text, mark);
  if (!at) return false;
  at += strlen(mark);
  size_t length = strcspn(at, "\n");
  if (length >= PATH_SIZE) return false;
  while (length && at[length - 1] == '/') length--;
  memcpy(group, at, length);
  group[length] = 0;
  return true;
}

uint64_t lm_available_in_group(uint64_t *limit) {
  char text[FILE_SIZE], group[PATH_SIZE];
  size_t length;
  *limit = UINT64_MAX;
  if (lm_sys_read_file(self_file, text, sizeof text, &length)) return UINT64_MAX;
  uint64_t left = UINT64_MAX;
  if (find_group(text, "0::", group)) left = left_in(&unified, group, limit);
  if (find_group(text, ":memory:", group)) {
    uint64_t other = left_in(&legacy, group, limit);
    if (other < left) left = other;
  }
  return left;
}

/* ---- Nodes */

static uint64_t total_of(uint64_t nodes) {
  uint64_t sum = 0;
  for (; nodes; nodes &= nodes - 1) sum += lm_numa_total((unsigned)__builtin_ctzll(nodes));
  return sum;
}

/* What the kernel keeps free of a node, its "high" mark: its share of this, and half as much. */
static uint64_t kept_free(uint64_t total) {
  char text[32];
  size_t length;
  uint64_t all = total_of(lm_numa_nodes());
  if (!all || lm_sys_read_file(min_free_file, text, sizeof text, &length)) return 0;
  return (uint64_t)((double)strtoull(text, NULL, 10) * LM_KIB * 1.5 * (double)total / (double)all);
}

static uint64_t spare_of(unsigned node) {
  uint64_t total = lm_numa_total(node), spare = total / NODE_SHARE, kept = kept_free(total);
  if (spare > NODE_MOST) spare = NODE_MOST;
  return spare > kept ? spare : kept;
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

/* "MemTotal:  1234 kB" */
static bool find_figure(const char *text, const char *field, uint64_t *out) {
  const char *at = strstr(text, field);
  if (at) *out = strtoull(at + strlen(field), NULL, 10) * LM_KIB;
  return at;
}

/* With what the kernel can make free, and put into swap. It does not tell that of nodes. */
static uint64_t left_on_machine(void) {
  char text[FILE_SIZE];
  size_t length;
  uint64_t total, available, swap = 0;
  if (lm_numa_others()) return left_on(lm_numa_nodes());
  if (lm_sys_read_file(machine_file, text, sizeof text, &length) ||
      !find_figure(text, "MemTotal:", &total) || !find_figure(text, "MemAvailable:", &available))
    return UINT64_MAX;
  (void)find_figure(text, "SwapFree:", &swap);
  uint64_t spare = total / NODE_SHARE < NODE_MOST ? total / NODE_SHARE : NODE_MOST;
  return available + swap > spare ? available + swap - spare : 0;
}

bool lm_available_has(size_t bytes, uint64_t nodes) {
  uint64_t limit;
  if (nodes && left_on(nodes) < bytes) return false;
  if (!nodes && left_on_machine() < bytes) return false;
  uint64_t left = lm_available_in_group(&limit);
  return left == UINT64_MAX || (left > GROUP_SPARE && left - GROUP_SPARE >= bytes + bytes / 256);
}
