/* look_samples.c - reads the samples of another process, and where its code is mapped.
 *
 * A row of the table of stacks does not change once the count of rows includes it, except for its
 * sums, each of which stands for itself. So rows are read once, without a count of changes. */
#include <stdio.h>
#include <string.h>

#include "cli/look.h"
#include "os/error.h"
#include "pages/metadata.h"

enum {
  ROWS_AT_ONCE = 64,
  GNU_BUILD_ID = 3, /* type of the note */
  BUILD_ID_MOST = 32
};

/* ---- Stacks ---- */

/* Returns blocks as a whole number, from a sum with LM_SAMPLE_SHIFT bits of fraction. */
static uint64_t whole(_Atomic uint64_t *sum) {
  uint64_t half = (uint64_t)1 << (LM_SAMPLE_SHIFT - 1);
  return (atomic_load_explicit(sum, memory_order_relaxed) + half) >> LM_SAMPLE_SHIFT;
}

static void put_frames(const lm_stack *row, lm_json *out) {
  lm_json_open(out, "frames", '[');
  for (uint32_t i = 0; i < row->frames; i++) lm_json_uint(out, NULL, row->frame[i]);
  lm_json_close(out, ']');
}

/* Writes the frames of Python. The file follows the name, and both end with a NUL; texts that do
 * not are cut. */
static void put_python(lm_look *look, const lm_stacks *stacks, const lm_stack *row, lm_json *out) {
  char name[LM_PYTHON_TEXT], file[LM_PYTHON_TEXT];
  if (!row->python_frames) return;
  lm_json_open(out, "python", '[');
  for (uint32_t i = 0; i < row->python_frames; i++) {
    const lm_stack_python *frame = &row->python[i];
    uintptr_t at = (uintptr_t)stacks->text + frame->text % LM_STACK_TEXTS;
    lm_remote_text(&look->remote, at, name, sizeof name);
    lm_remote_text(&look->remote, at + strlen(name) + 1, file, sizeof file);
    lm_json_open(out, NULL, '{');
    lm_json_text(out, "name", frame->text ? name : "?");
    lm_json_text(out, "file", frame->text ? file : "?");
    lm_json_uint(out, "line", frame->line & ~LM_STACK_ENTRY);
    lm_json_bool(out, "is_entry", frame->line & LM_STACK_ENTRY);
    lm_json_close(out, '}');
  }
  lm_json_close(out, ']');
}

/* Writes a row; false: it breaks its law. Row 0 has no site and no strategy of its own. */
static bool put_stack(lm_look *look, const lm_stacks *stacks, lm_stack *row, lm_json *out) {
  char tag[LM_TAG_MAX + 1] = "";
  const char *strategy = NULL;
  if (row->frames > LM_STACK_FRAMES || row->python_frames > LM_PYTHON_FRAMES ||
      row->strategy >= look->strategies)
    return false;
  if (row->site && (row->site < LM_SITE_FIRST || row->site >= 1u << LM_SITE_BITS)) return false;
  uintptr_t text = row->site && row->site < look->sites ? look->site[row->site].tag : 0;
  if (text) lm_remote_text(&look->remote, text, tag, sizeof tag);
  if (row->site) strategy = look->strategy[row->strategy].family->desc.name;
  lm_json_open(out, NULL, '{');
  lm_json_text(out, "tag", row->site ? tag : NULL);
  lm_json_text(out, "strategy", strategy);
  lm_json_uint(out, "total_blocks", whole(&row->total.blocks));
  lm_json_uint(out, "total_bytes", row->total.bytes);
  lm_json_uint(out, "live_blocks", whole(&row->live.blocks));
  lm_json_uint(out, "live_bytes", row->live.bytes);
  put_frames(row, out);
  put_python(look, stacks, row, out);
  lm_json_close(out, '}');
  return true;
}

/* Writes rows [from, from + n), for which `room` has room. */
static loam_status put_some(lm_look *look, const lm_stacks *stacks, uint32_t from, uint32_t n,
                            lm_stack *room, lm_json *out) {
  uintptr_t at = (uintptr_t)stacks->row + from * sizeof *room;
  if (!lm_remote_read(&look->remote, at, room, n * sizeof *room))
    return lm_look_fail(look, "the stacks of samples cannot be read");
  for (uint32_t i = 0; i < n; i++) {
    if (!atomic_load_explicit(&room[i].total.samples, memory_order_relaxed)) continue;
    if (!put_stack(look, stacks, &room[i], out))
      return lm_look_fail(look, "a stack has a wrong site");
  }
  return LOAM_OK;
}

static loam_status put_stacks(lm_look *look, const lm_stacks *stacks, lm_json *out) {
  uint32_t count = atomic_load_explicit(&stacks->count, memory_order_relaxed);
  if (count > LM_STACKS) return lm_look_fail(look, "there are too many stacks of samples");
  lm_stack *room = lm_metadata_alloc(ROWS_AT_ONCE * sizeof *room);
  loam_status status = room ? LOAM_OK : lm_error(LOAM_ENOMEM, "samples: no memory to read them");
  lm_json_open(out, "stacks", '[');
  for (uint32_t from = 0; status == LOAM_OK && from < count; from += ROWS_AT_ONCE) {
    uint32_t n = count - from < ROWS_AT_ONCE ? count - from : ROWS_AT_ONCE;
    status = put_some(look, stacks, from, n, room, out);
  }
  lm_json_close(out, ']');
  lm_metadata_free(room);
  return status;
}

/* ---- Mapped code ---- */

/* The state of reading the list of mappings, which is read line by line. */
typedef struct mappings {
  lm_look *look;
  lm_json *out;
  /* The mapping of offset 0 that was met last: where the header of an ELF file is. */
  uintptr_t header;
  uint64_t header_inode;
  char build_id[2 * BUILD_ID_MOST + 1];
} mappings;

/* Copies the build id, if the note is one. */
static bool read_build_id(void *ctx, const lm_remote_note *note) {
  char *to = ctx;
  if (note->type != GNU_BUILD_ID || note->name_size != sizeof "GNU" ||
      memcmp(note->name, "GNU", sizeof "GNU") || note->size > BUILD_ID_MOST)
    return true;
  for (size_t i = 0; i < note->size; i++)
    snprintf(to + 2 * i, 3, "%02x", (unsigned)(unsigned char)note->desc[i]);
  return false;
}

static void put_mapping(void *ctx, const char *line) {
  mappings *m = ctx;
  lm_sys_mapping code;
  if (!lm_sys_read_mapping(line, &code)) return;
  if (!code.offset && code.inode) {
    m->header = code.from;
    m->header_inode = code.inode;
  }
  if (!strchr(code.access, 'x') || !*code.name) return;
  m->build_id[0] = 0;
  bool has_header = code.inode ? code.inode == m->header_inode : !strcmp(code.name, "[vdso]");
  if (has_header)
    (void)lm_remote_each_note(&m->look->remote, code.inode ? m->header : code.from, read_build_id,
                              m->build_id);
  lm_json_open(m->out, NULL, '{');
  lm_json_uint(m->out, "from", code.from);
  lm_json_uint(m->out, "to", code.to);
  lm_json_uint(m->out, "offset", code.offset);
  lm_json_text(m->out, "file", code.name);
  if (m->build_id[0]) lm_json_text(m->out, "build_id", m->build_id);
  lm_json_close(m->out, '}');
}

/* A process whose mappings cannot be listed has none in the answer. */
static void put_mappings(lm_look *look, lm_json *out) {
  char path[32];
  mappings m = { .look = look, .out = out };
  snprintf(path, sizeof path, "/proc/%d/maps", look->remote.pid);
  lm_json_open(out, "mappings", '[');
  (void)lm_sys_each_line(path, put_mapping, &m);
  lm_json_close(out, ']');
}

/* ---- The answer ---- */

static void put_head(lm_look *look, const lm_samples *all, lm_json *out) {
  int64_t began = (int64_t)atomic_load_explicit(&all->started_at, memory_order_relaxed);
  int64_t passed = lm_sys_clock_ns() - began;
  lm_json_int(out, "pid", look->remote.pid);
  lm_json_uint(out, "interval", all->interval);
  lm_json_bool(out, "began", began != 0);
  lm_json_int(out, "seconds", began && passed > 0 ? passed / 1000000000 : 0);
  lm_json_uint(out, "live", all->live);
  lm_json_uint(out, "live_lost", all->live_lost);
  lm_json_uint(out, "unfit", all->stacks.unfit);
  lm_json_uint(out, "skipped", all->skipped);
}

/* Sites are read after the samples, so the site of each stack is there. */
static loam_status write_samples(lm_look *look, bool is_whole, lm_json *out) {
  lm_samples all;
  if (!lm_remote_read(&look->remote, (uintptr_t)look->root.samples, &all, sizeof all))
    return lm_look_fail(look, "the samples cannot be read");
  loam_status status = is_whole ? lm_look_sites(look) : LOAM_OK;
  if (status != LOAM_OK) return status;
  lm_json_open(out, NULL, '{');
  put_head(look, &all, out);
  if (is_whole) status = put_stacks(look, &all.stacks, out);
  if (is_whole) put_mappings(look, out);
  lm_json_close(out, '}');
  return status;
}

loam_status lm_look_samples(int pid, bool is_whole, lm_json *out) {
  lm_look look;
  loam_status status = lm_look_open(&look, pid);
  if (status != LOAM_OK) return status;
  status = write_samples(&look, is_whole, out);
  lm_look_close(&look);
  return status;
}
