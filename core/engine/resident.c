/* resident.c - how much of a process is in memory: resident.h.
 *
 * The kernel counts the pages of each mapping (os/pagemap.h). Kernels before Linux 6.7 tell them in
 * /proc/PID/smaps, which takes ten times as long. */
#include "engine/resident.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/pagemap.h"
#include "os/sys.h"
#include "pages/map.h"

/* The state of reading the mappings: their lines come one after the other. */
typedef struct reading {
  lm_resident sum;    /* of the mappings so far */
  uintptr_t from, to; /* loam's address range */
  uintptr_t end;      /* of the last mapping */
  bool is_guard;      /* the last mapping cannot be accessed and has no file */
  uint64_t *kind;     /* the field of `sum` for the last mapping; NULL: it is of the rest */
  lm_descriptor pagemap;
} reading;

static void add(reading *r, uint64_t bytes) {
  r->sum.all += bytes;
  if (r->kind) *r->kind += bytes;
}

/* Returns the field that counts a mapping: its access ("rw-p") and path are given. */
static uint64_t *kind_of(reading *r, uintptr_t from, const char *access, const char *path) {
  bool is_above_guard = r->is_guard && r->end == from && !strncmp(access, "rw-p", 4);
  if (from >= r->from && from < r->to) return &r->sum.own;
  if (*path == '/' || !strncmp(path, "[v", 2)) return &r->sum.files; /* also [vdso], [vvar] */
  if (access[2] == 'x') return &r->sum.code;
  if (!strcmp(path, "[stack]") || (is_above_guard && !*path)) return &r->sum.stacks;
  return NULL;
}

static void add_run(void *ctx, const lm_pagemap_run *run) {
  if (lm_pagemap_is_resident(run)) add(ctx, run->to - run->from);
}

/* Reads the line that begins a mapping: "from-to access offset device inode path". Reserved huge
 * pages without a file ("/anon_hugepage") are no part of what the kernel calls resident. */
static void begin_mapping(reading *r, const char *line) {
  unsigned long from, to;
  char access[8];
  int at = 0;
  if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %n", &from, &to, access, &at) < 3 || !at) return;
  const char *path = line + at;
  r->kind = kind_of(r, from, access, path);
  r->is_guard = !strncmp(access, "---p", 4) && !*path;
  r->end = to;
  bool is_scanned = r->pagemap.fd >= 0 && strncmp(path, "/anon_hugepage", 14);
  if (is_scanned) (void)lm_pagemap_scan(&r->pagemap, from, to, add_run, r);
}

/* A line of maps or smaps begins a mapping with its addresses in lower-case hexadecimal digits. In
 * smaps, other lines tell figures of the mapping before; their names begin with a capital
 * letter. */
static void read_line(void *ctx, const char *line) {
  reading *r = ctx;
  static const char rss[] = "Rss:";
  if ((*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f')) begin_mapping(r, line);
  else if (!strncmp(line, rss, sizeof rss - 1))
    add(r, strtoull(line + sizeof rss - 1, NULL, 10) * LM_KIB);
}

static void visit_nothing(void *ctx, const lm_pagemap_run *run) {
  (void)ctx;
  (void)run;
}

/* Opens the page table of a process; none if the kernel cannot scan it. */
static lm_descriptor open_scanned(int pid) {
  lm_descriptor pagemap = lm_pagemap_open(pid);
  if (pagemap.fd >= 0 && lm_pagemap_scan(&pagemap, 0, LM_PAGE, visit_nothing, NULL))
    lm_descriptor_close(&pagemap);
  return pagemap;
}

lm_resident lm_resident_of(int pid, uintptr_t from, uintptr_t to) {
  char path[32], name[12] = "self";
  if (pid) snprintf(name, sizeof name, "%d", pid);
  reading r = { .from = from, .to = to, .pagemap = open_scanned(pid) };
  snprintf(path, sizeof path, "/proc/%s/%s", name, r.pagemap.fd >= 0 ? "maps" : "smaps");
  int error = lm_sys_each_line(path, read_line, &r);
  lm_descriptor_close(&r.pagemap);
  return error ? (lm_resident){ 0 } : r.sum;
}

lm_resident lm_resident_read(void) {
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_acquire);
  return lm_resident_of(0, lm_map.base, lm_map.base + top);
}
