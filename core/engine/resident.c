/* resident.c - how much of a process is in memory: resident.h.
 *
 * The kernel counts the pages of each mapping (os/pagemap.h). Kernels before Linux 6.7 tell them in
 * /proc/PID/smaps, which takes ten times as long. */
#include "engine/resident.h"

#include <errno.h>
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
  uint64_t *kind;     /* the field of `sum` for the last mapping; NULL: it counts in `all` alone */
  lm_descriptor pagemap; /* counts the pages of mappings; none: smaps has their figures */
  int error;             /* of a scan, as an errno value; 0: none */
} reading;

static void add(reading *r, uint64_t bytes) {
  r->sum.all += bytes;
  if (r->kind) *r->kind += bytes;
}

/* Returns the field that counts a mapping. */
static uint64_t *kind_of(reading *r, const lm_sys_mapping *m) {
  bool is_above_guard = r->is_guard && r->end == m->from && !strcmp(m->access, "rw-p");
  if (m->from >= r->from && m->from < r->to) return &r->sum.own;
  if (*m->name == '/' || !strncmp(m->name, "[v", 2)) return &r->sum.files; /* also [vdso] */
  if (m->access[2] == 'x') return &r->sum.code;
  if (!strcmp(m->name, "[stack]") || (is_above_guard && !*m->name)) return &r->sum.stacks;
  return NULL;
}

static void add_run(void *ctx, const lm_pagemap_run *run) {
  if (lm_pagemap_is_resident(run)) add(ctx, run->to - run->from);
}

/* Counts the pages of a mapping. The kernel's own mapping [vsyscall] gives EFAULT: no error. */
static void scan(reading *r, uintptr_t from, uintptr_t to) {
  int error = lm_pagemap_scan(&r->pagemap, from, to, add_run, r);
  if (error && error != EFAULT) r->error = error;
}

static void begin_mapping(reading *r, const lm_sys_mapping *m) {
  r->kind = kind_of(r, m);
  r->is_guard = !strcmp(m->access, "---p") && !*m->name;
  r->end = m->to;
  if (r->pagemap.fd >= 0) scan(r, m->from, m->to);
}

/* A line of maps or smaps begins a mapping. In smaps, other lines tell figures of the mapping
 * before. */
static void read_line(void *ctx, const char *line) {
  reading *r = ctx;
  lm_sys_mapping m;
  static const char rss[] = "Rss:";
  if (lm_sys_read_mapping(line, &m)) begin_mapping(r, &m);
  else if (!strncmp(line, rss, sizeof rss - 1))
    add(r, strtoull(line + sizeof rss - 1, NULL, 10) * LM_KIB);
}

/* Looks for a figure other than 0 of reserved huge pages in /proc/PID/status. */
static void read_reserved(void *ctx, const char *line) {
  static const char reserved[] = "HugetlbPages:";
  if (strncmp(line, reserved, sizeof reserved - 1)) return;
  *(bool *)ctx = strtoull(line + sizeof reserved - 1, NULL, 10) > 0;
}

/* Reads a file of the process, "maps" or "smaps". If `pagemap` is open, it counts the pages of each
 * mapping. Returns 0 or an errno value. */
static int read_mappings(reading *r, const char *process, const char *file) {
  char path[40];
  snprintf(path, sizeof path, "/proc/%s/%s", process, file);
  int error = lm_sys_each_line(path, read_line, r);
  return error ? error : r->error;
}

/* A scan counts reserved huge pages, which are no part of what the kernel calls resident. Only
 * smaps tells which mappings have them. */
lm_resident lm_resident_of(int pid, uintptr_t from, uintptr_t to) {
  char process[12] = "self", status[32];
  bool has_reserved = false;
  int before = errno, error = ENOTTY;
  if (pid) snprintf(process, sizeof process, "%d", pid);
  snprintf(status, sizeof status, "/proc/%s/status", process);
  (void)lm_sys_each_line(status, read_reserved, &has_reserved);
  reading r = { .from = from, .to = to, .pagemap = LM_DESCRIPTOR_NONE };
  if (!has_reserved) r.pagemap = lm_pagemap_open(pid);
  if (r.pagemap.fd >= 0) error = read_mappings(&r, process, "maps");
  lm_descriptor_close(&r.pagemap);
  if (error) {
    r = (reading){ .from = from, .to = to, .pagemap = LM_DESCRIPTOR_NONE };
    error = read_mappings(&r, process, "smaps");
  }
  errno = before;
  lm_assert(lm_resident_is_valid(&r.sum));
  return error ? (lm_resident){ 0 } : r.sum;
}

lm_resident lm_resident_read(void) {
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_acquire);
  return lm_resident_of(0, lm_map.base, lm_map.base + top);
}
