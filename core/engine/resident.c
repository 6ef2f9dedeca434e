/* resident.c - how much of the process is in memory: resident.h. */
#include "engine/resident.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/sys.h"
#include "pages/map.h"

/* The state of reading smaps: its lines come one after the other. */
typedef struct reading {
  lm_resident sum;    /* of the mappings so far */
  uintptr_t from, to; /* loam's address range */
  bool is_own;        /* the last mapping is in loam's address range */
} reading;

/* A line of smaps begins a mapping with its addresses in lower-case hexadecimal digits, or tells a
 * figure of the mapping before. Names of figures begin with a capital letter. */
static void read_line(void *ctx, const char *line) {
  reading *r = ctx;
  static const char rss[] = "Rss:";
  if ((*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f')) {
    char *end;
    uintptr_t from = strtoull(line, &end, 16);
    if (*end == '-') r->is_own = from >= r->from && from < r->to;
  } else if (!strncmp(line, rss, sizeof rss - 1)) {
    uint64_t bytes = strtoull(line + sizeof rss - 1, NULL, 10) * LM_KIB;
    r->sum.all += bytes;
    if (r->is_own) r->sum.own += bytes;
  }
}

static lm_resident read_file(const char *path, uintptr_t from, uintptr_t to) {
  reading r = { .from = from, .to = to };
  if (lm_sys_each_line(path, read_line, &r)) return (lm_resident){ 0 };
  return r.sum;
}

lm_resident lm_resident_read(void) {
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_acquire);
  return read_file("/proc/self/smaps", lm_map.base, lm_map.base + top);
}

lm_resident lm_resident_of(int pid, uintptr_t from, uintptr_t to) {
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/smaps", pid);
  return read_file(path, from, to);
}
