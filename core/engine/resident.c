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
  uintptr_t end;      /* of the last mapping */
  bool is_guard;      /* the last mapping cannot be accessed and has no file */
  uint64_t *kind;     /* the field of `sum` for the last mapping; NULL: it is of the rest */
} reading;

/* Returns the field that counts a mapping: its access ("rw-p") and path are given. */
static uint64_t *kind_of(reading *r, uintptr_t from, const char *access, const char *path) {
  bool is_above_guard = r->is_guard && r->end == from && !strncmp(access, "rw-p", 4);
  if (from >= r->from && from < r->to) return &r->sum.own;
  if (*path == '/' || !strncmp(path, "[v", 2)) return &r->sum.files; /* also [vdso], [vvar] */
  if (access[2] == 'x') return &r->sum.code;
  if (!strcmp(path, "[stack]") || (is_above_guard && !*path)) return &r->sum.stacks;
  return NULL;
}

/* Reads the line that begins a mapping: "from-to access offset device inode path". */
static void begin_mapping(reading *r, const char *line) {
  unsigned long from, to;
  char access[8];
  int at = 0;
  if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %n", &from, &to, access, &at) < 3 || !at) return;
  const char *path = line + at;
  r->kind = kind_of(r, from, access, path);
  r->is_guard = !strncmp(access, "---p", 4) && !*path;
  r->end = to;
}

/* A line of smaps begins a mapping with its addresses in lower-case hexadecimal digits, or tells a
 * figure of the mapping before. Names of figures begin with a capital letter. */
static void read_line(void *ctx, const char *line) {
  reading *r = ctx;
  static const char rss[] = "Rss:";
  if ((*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f')) {
    begin_mapping(r, line);
  } else if (!strncmp(line, rss, sizeof rss - 1)) {
    uint64_t bytes = strtoull(line + sizeof rss - 1, NULL, 10) * LM_KIB;
    r->sum.all += bytes;
    if (r->kind) *r->kind += bytes;
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
