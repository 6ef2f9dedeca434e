/* smaps.c - reads the mappings of a process from /proc/PID/smaps. */
#include "engine/smaps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/sys.h"
#include "pages/metadata.h"

/* The state of reading: the lines of a mapping come one after the other. */
typedef struct reading {
  lm_smaps *maps;
  uintptr_t from, to;   /* mappings that begin elsewhere are passed over */
  lm_smaps_mapping now; /* the mapping that is being read; `from` is 0: it is passed over */
} reading;

/* The kernel writes the file piece by piece. If mappings join in between, the next piece begins
 * with a mapping that contains mappings which were read before. */
static void keep(lm_smaps *maps, lm_smaps_mapping m) {
  if (m.huge > m.resident) m.huge = m.resident;
  if (!m.from || m.from >= m.to || !m.resident) return;
  while (maps->n && maps->mapping[maps->n - 1].to > m.from) maps->n--;
  if (maps->n == maps->room) {
    size_t room = maps->room ? maps->room * 2 : 256;
    lm_smaps_mapping *more = lm_metadata_realloc(maps->mapping, room * sizeof *more);
    if (!more) return;
    maps->mapping = more;
    maps->room = room;
  }
  maps->mapping[maps->n++] = m;
}

static void begin_mapping(reading *r, const char *line) {
  char *end;
  keep(r->maps, r->now);
  r->now = (lm_smaps_mapping){ .from = strtoull(line, &end, 16) };
  if (*end != '-' || r->now.from < r->from || r->now.from >= r->to) r->now.from = 0;
  else r->now.to = strtoull(end + 1, NULL, 16);
}

/* Returns the bytes that a line tells of a field; 0: the line is about something else. */
static uint64_t figure(const char *line, const char *field) {
  size_t length = strlen(field);
  return strncmp(line, field, length) ? 0 : strtoull(line + length, NULL, 10) * LM_KIB;
}

/* A line of smaps says where a mapping is, in lower-case hexadecimal digits, or tells a figure of
 * the mapping before. Rss counts no reserved huge pages (Hugetlb). */
static void read_line(void *ctx, const char *line) {
  static const char *const huge[] = { "AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:" };
  static const char *const reserved[] = { "Shared_Hugetlb:", "Private_Hugetlb:" };
  reading *r = ctx;
  if ((*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f')) begin_mapping(r, line);
  if (!r->now.from) return;
  r->now.resident += figure(line, "Rss:");
  for (size_t i = 0; i < LM_COUNT(huge); i++) r->now.huge += figure(line, huge[i]);
  for (size_t i = 0; i < LM_COUNT(reserved); i++) {
    r->now.huge += figure(line, reserved[i]);
    r->now.resident += figure(line, reserved[i]);
  }
}

static bool is_mapping_valid(const lm_smaps_mapping *m) {
  return m->from < m->to && m->huge <= m->resident && m->resident;
}

bool lm_smaps_is_valid(const lm_smaps *maps) {
  if (maps->n > maps->room || !maps->mapping != !maps->room) return false;
  for (size_t i = 0; i < maps->n; i++) {
    if (!is_mapping_valid(&maps->mapping[i])) return false;
    if (i && maps->mapping[i].from < maps->mapping[i - 1].to) return false;
  }
  return true;
}

bool lm_smaps_read(lm_smaps *maps, int pid, uintptr_t from, uintptr_t to) {
  char path[32] = "/proc/self/smaps";
  reading r = { .maps = maps, .from = from, .to = to };
  if (pid) snprintf(path, sizeof path, "/proc/%d/smaps", pid);
  bool ok = !lm_sys_each_line(path, read_line, &r);
  keep(maps, r.now);
  lm_verify(lm_smaps_is_valid(maps));
  return ok;
}

void lm_smaps_finish(lm_smaps *maps) {
  lm_metadata_free(maps->mapping);
  *maps = (lm_smaps){ 0 };
}

const lm_smaps_mapping *lm_smaps_behind(const lm_smaps *maps, uintptr_t at) {
  size_t low = 0, high = maps->n;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (maps->mapping[middle].to <= at) low = middle + 1;
    else high = middle;
  }
  return maps->mapping + low;
}
