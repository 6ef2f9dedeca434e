/* look_owner.c - whose memory the addresses of another process are: the answer of `loam owner`.
 *
 * The command reads loam's own tables first. Then it asks the kernel: /proc/PID/smaps has the
 * mappings of the process, move_pages(2) tells the node of a page, and /proc/PID/task/TID/syscall
 * tells where the stack of a thread is that waits in the kernel. */
#include "cli/look.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/error.h"
#include "pages/metadata.h"

enum { NAME_ROOM = 512, STRING_MOST = 1024 };

/* A mapping of the process, as smaps describes it. */
typedef struct mapping {
  uintptr_t from, to; /* 0: there is none */
  uint64_t offset;    /* in the file */
  char access[5];     /* such as "r-xp" */
  char name[NAME_ROOM];
  uint64_t resident, huge, page; /* bytes in memory; of them on transparent huge pages; of a page */
} mapping;

/* An address, with the findings about it. */
typedef struct finding {
  lm_place place;
  mapping in;
  int thread; /* whose stack it is; 0: no thread's */
} finding;

typedef struct findings {
  lm_look *look;
  finding *all;
  size_t n;
  mapping now; /* that smaps describes at the moment */
} findings;

/* ---- Mappings ---- */

static void end_mapping(findings *f) {
  for (size_t i = 0; i < f->n; i++) {
    uintptr_t at = f->all[i].place.address;
    if (at >= f->now.from && at < f->now.to) f->all[i].in = f->now;
  }
  f->now = (mapping){ 0 };
}

static bool has_figure(const char *line, const char *field, uint64_t *bytes) {
  size_t length = strlen(field);
  if (strncmp(line, field, length)) return false;
  *bytes = strtoull(line + length, NULL, 10) * LM_KIB;
  return true;
}

/* A line of smaps begins a mapping, or is a figure of the mapping before. */
static void read_line(void *ctx, const char *line) {
  findings *f = ctx;
  lm_sys_mapping m;
  if (lm_sys_read_mapping(line, &m)) {
    end_mapping(f);
    f->now = (mapping){ .from = m.from, .to = m.to, .offset = m.offset };
    memcpy(f->now.access, m.access, sizeof m.access);
    snprintf(f->now.name, sizeof f->now.name, "%s", m.name);
  } else if (!has_figure(line, "Rss:", &f->now.resident) &&
             !has_figure(line, "AnonHugePages:", &f->now.huge)) {
    has_figure(line, "KernelPageSize:", &f->now.page);
  }
}

static loam_status find_mappings(findings *f) {
  char path[32];
  int pid = f->look->remote.pid;
  snprintf(path, sizeof path, "/proc/%d/smaps", pid);
  int error = lm_sys_each_line(path, read_line, f);
  end_mapping(f);
  return error ? lm_error(LOAM_EIO, "process %d: its mappings cannot be read", pid) : LOAM_OK;
}

/* ---- Stacks ---- */

/* Returns the stack pointer of a thread that waits in the kernel; 0: it runs, or has ended. The
 * last two words of the file are the stack pointer and the program counter. */
static uintptr_t stack_pointer(int pid, int thread) {
  char path[64], text[256];
  size_t length;
  snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", pid, thread);
  if (lm_sys_read_file(path, text, sizeof text, &length)) return 0;
  char *counter = strrchr(text, ' ');
  if (!counter) return 0;
  *counter = 0;
  char *pointer = strrchr(text, ' ');
  return pointer ? strtoull(pointer, NULL, 16) : 0;
}

static void note_stack(findings *f, int thread, uintptr_t pointer) {
  for (size_t i = 0; i < f->n; i++) {
    finding *found = &f->all[i];
    if (found->place.state == LM_PLACE_OUTSIDE && pointer >= found->in.from &&
        pointer < found->in.to)
      found->thread = thread;
  }
}

/* The kernel names the stack of the first thread. Stacks of others are mappings without a name. */
static void find_stacks(findings *f) {
  char path[32];
  int pid = f->look->remote.pid;
  snprintf(path, sizeof path, "/proc/%d/task", pid);
  DIR *tasks = opendir(path);
  for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
    int thread = (int)strtol(entry->d_name, NULL, 10);
    uintptr_t pointer = thread > 0 ? stack_pointer(pid, thread) : 0;
    if (pointer) note_stack(f, thread, pointer);
  }
  if (tasks) closedir(tasks);
  for (size_t i = 0; i < f->n; i++)
    if (!strcmp(f->all[i].in.name, "[stack]")) f->all[i].thread = pid;
}

/* ---- The answer ---- */

static void put_address(lm_json *out, const char *key, uintptr_t address) {
  char text[24];
  snprintf(text, sizeof text, "0x%" PRIxPTR, address);
  lm_json_text(out, key, text);
}

/* Writes a string of the process; nothing if it is empty. */
static void put_string(lm_look *look, lm_json *out, const char *key, const char *at) {
  char text[STRING_MOST] = "";
  if (at) lm_remote_text(&look->remote, (uintptr_t)at, text, sizeof text);
  if (*text) lm_json_text(out, key, text);
}

/* Writes the tag of a block, and the place in the program that requested it. */
static void put_site(lm_look *look, const lm_place *place, lm_json *out) {
  loam_site site;
  char tag[LM_TAG_MAX + 1];
  if (!lm_look_site_at(look, lm_site_token_index(place->token), &site)) return;
  lm_remote_text(&look->remote, (uintptr_t)site.where.tag, tag, sizeof tag);
  lm_json_text(out, "tag", tag);
  put_string(look, out, "module", site.where.module);
  put_string(look, out, "func", site.where.func);
  put_string(look, out, "file", site.where.file);
  if (site.where.line > 0) lm_json_int(out, "line", site.where.line);
}

static void put_block(lm_look *look, const lm_place *place, lm_json *out) {
  lm_json_text(out, "memory", place->memory);
  if (place->token != LM_TOKEN_NONE) put_site(look, place, out);
  if (place->strategy < look->strategies) {
    const lm_desc *desc = &look->strategy[place->strategy].desc;
    lm_json_text(out, "strategy", desc->name);
    lm_json_text(out, "kind", lm_strategy_kind_text(desc->kind));
  }
  lm_json_uint(out, "size", place->size);
  put_address(out, "start", place->start);
  lm_json_int(out, "offset", (int64_t)(place->address - place->start));
}

static void put_mapping(const mapping *m, uintptr_t address, lm_json *out) {
  lm_json_open(out, "mapping", '{');
  lm_json_text(out, "name", m->name);
  lm_json_text(out, "access", m->access);
  put_address(out, "start", m->from);
  lm_json_uint(out, "size", m->to - m->from);
  if (*m->name == '/') lm_json_uint(out, "file_offset", m->offset + (address - m->from));
  lm_json_close(out, '}');
}

/* Tells where the kernel put the memory at an address. Pages that were never touched have none. */
static void put_pages(const lm_look *look, const finding *found, lm_json *out) {
  const mapping *m = &found->in;
  void *page = (void *)lm_align_down(found->place.address, LM_PAGE);
  int node = -1;
  if (lm_sys_pages_of(look->remote.pid, &page, &node, 1)) return;
  if (node >= 0) lm_json_int(out, "node", node);
  if (node >= 0 && m->resident) {
    bool is_all = m->page > LM_PAGE || m->huge >= m->resident;
    lm_json_text(out, "huge", is_all ? "all" : m->huge ? "some" : "none");
  }
}

static const char *state_text(const finding *found) {
  static const char *const texts[LM_PLACE_STATES] = {
    [LM_PLACE_OUTSIDE] = "unmapped",      [LM_PLACE_LIVE] = "live",
    [LM_PLACE_CACHED] = "cached",         [LM_PLACE_FREE] = "free",
    [LM_PLACE_QUARANTINE] = "quarantine", [LM_PLACE_GUARD] = "guard",
    [LM_PLACE_METADATA] = "metadata",     [LM_PLACE_REGION] = "region",
    [LM_PLACE_CHANGING] = "changing",
  };
  if (found->place.state != LM_PLACE_OUTSIDE) return texts[found->place.state];
  if (found->thread) return "stack";
  return found->in.to ? "mapping" : texts[LM_PLACE_OUTSIDE];
}

static void put_finding(lm_look *look, const finding *found, lm_json *out) {
  const lm_place *place = &found->place;
  lm_json_open(out, NULL, '{');
  put_address(out, "address", place->address);
  lm_json_text(out, "state", state_text(found));
  if (place->memory) put_block(look, place, out);
  if (found->thread) lm_json_int(out, "thread", found->thread);
  if (found->in.to && place->state == LM_PLACE_OUTSIDE)
    put_mapping(&found->in, place->address, out);
  if (found->in.to) put_pages(look, found, out);
  lm_json_close(out, '}');
}

static loam_status find_place(lm_look *look, lm_place *place) {
  loam_status status = lm_look_find_pooled(look, place);
  if (status == LOAM_OK && place->state == LM_PLACE_OUTSIDE)
    status = lm_look_find_provided(look, place);
  if (status == LOAM_OK && place->memory && place->strategy >= look->strategies)
    status = lm_look_strategies(look);
  return status;
}

static loam_status find_all(findings *f, const uintptr_t *address) {
  loam_status status = LOAM_OK;
  for (size_t i = 0; status == LOAM_OK && i < f->n; i++) {
    f->all[i].place.address = address[i];
    status = find_place(f->look, &f->all[i].place);
  }
  if (status == LOAM_OK) status = find_mappings(f);
  if (status == LOAM_OK) find_stacks(f);
  return status;
}

static loam_status write_owner(lm_look *look, const uintptr_t *address, size_t n, lm_json *out) {
  findings f = { .look = look, .n = n, .all = lm_metadata_alloc((n + 1) * sizeof *f.all) };
  if (!f.all) return lm_error(LOAM_ENOMEM, "no memory for %zu addresses", n);
  loam_status status = find_all(&f, address);
  lm_json_open(out, NULL, '{');
  lm_json_int(out, "pid", look->remote.pid);
  lm_json_open(out, "addresses", '[');
  for (size_t i = 0; status == LOAM_OK && i < n; i++) put_finding(look, &f.all[i], out);
  lm_json_close(out, ']');
  lm_json_close(out, '}');
  lm_metadata_free(f.all);
  return status;
}

loam_status lm_look_owner(int pid, const uintptr_t *address, size_t n, lm_json *out) {
  lm_look look;
  loam_status status = lm_look_open(&look, pid);
  if (status != LOAM_OK) return status;
  status = write_owner(&look, address, n, out);
  lm_look_close(&look);
  return status;
}
