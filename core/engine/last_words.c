/* last_words.c - last words: where the memory is when a request gets none. */
#include "engine/last_words.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "device/manager.h"
#include "device/provider.h"
#include "engine/log_line.h"
#include "engine/sums.h"
#include "heap/walk.h"
#include "os/error.h"
#include "os/sys_file.h"
#include "plan/site.h"

/* ---- Live bytes by tag and by strategy ---------------------------------------------------- */

/* At most ROWS / 2 tags and strategies together get a row, so that the table stays half empty. The
 * bytes of others are left out. The words name at most SHOWN tags and SHOWN strategies. */
enum { ROWS = 4096, SHOWN = 5 };

/* Keys of rows: the index of a tag, or the id of the family of a strategy. */
#define KEY_TAG ((uint64_t)1 << 62)
#define KEY_STRATEGY ((uint64_t)1 << 61)

/* The rows are reserved, because the system gives no memory when they are needed. A process that
 * never tells last words never touches them. One thread at a time uses them, that of `teller`. */
static LM_SPARSE lm_sums rows[ROWS];
/* 1 + lm_thread_forks in the process of the thread that tells last words; 0: no thread does. In a
 * forked child the number of the parent means no thread. */
static _Atomic uint32_t teller;

static void add(lm_sums_table *table, uint64_t key, size_t size) {
  lm_sums *row = lm_sums_get(table, key);
  row->live_blocks++;
  row->live_bytes += size;
}

static void add_block(void *ctx, lm_token token, uint32_t strategy, size_t size) {
  const loam_site *site = lm_site_at(lm_site_token_index(token));
  if (site) add(ctx, KEY_TAG | site->tag_index, size);
  add(ctx, KEY_STRATEGY | lm_strategy_at(strategy)->family->id, size);
}

/* The memory whose blocks are added up. */
typedef struct search {
  lm_sums_table table;
  int device;         /* memory of this device; HOST: all memory but that of devices */
  bool counts_asleep; /* blocks that sleep count: a limit counts them, the device has them free */
} search;

enum { HOST = -1 };

static void add_object(void *ctx, const lm_object *object) {
  search *s = ctx;
  add_block(&s->table, object->token, object->strategy, object->size);
}

/* Returns whether a block has memory of the search. Managed memory moves between the two. */
static bool is_sought(const search *s, const lm_provided *block) {
  lm_kind kind = lm_strategy_at(block->strategy)->desc.kind;
  if (s->device == HOST) return kind != LM_KIND_DEVICE;
  if (kind != LM_KIND_DEVICE && kind != LM_KIND_MANAGED) return false;
  return block->device == s->device && (s->counts_asleep || !block->is_asleep);
}

/* A nested block (record.h) is skipped: the walk of the pools counts it. */
static void add_provided(void *ctx, lm_provided *block) {
  search *s = ctx;
  if (is_sought(s, block) && !lm_pool_owns(block->base))
    add_block(&s->table, block->token, block->strategy, block->size);
}

/* ---- Words -------------------------------------------------------------------------------- */

typedef struct text {
  size_t length;
  char bytes[LM_ERROR_SIZE / 2];
} text;

/* Appends to the text. Words that do not fit are cut off. */
static void LM_PRINTF(2, 3) append(text *out, const char *format, ...) {
  va_list arguments;
  size_t room = sizeof out->bytes - out->length;
  va_start(arguments, format);
  int n = vsnprintf(out->bytes + out->length, room, format, arguments);
  va_end(arguments);
  out->length += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

static const char *tag_of(uint32_t tag_index) {
  for (uint32_t i = 0; i < lm_site_count(); i++) {
    const loam_site *site = lm_site_at(LM_SITE_FIRST + i);
    if (site && site->tag_index == tag_index) return site->where.tag;
  }
  return "";
}

static const char *name_of(uint64_t key) {
  uint32_t n = (uint32_t)key;
  return key & KEY_TAG ? tag_of(n) : lm_strategy_at(n)->desc.name;
}

/* Appends the largest tags or strategies: the rows whose key has the bit `kind`. `n` rows are
 * sorted, the largest first. */
static void append_largest(text *out, uint64_t kind, size_t n) {
  int shown = 0;
  for (size_t i = 0; i < n && shown < SHOWN; i++) {
    const lm_sums *row = &rows[i];
    if (!(row->key & kind)) continue;
    append(out, "%s'%.80s' (%" PRIu64 " bytes in %" PRIu64 " block%s)", shown++ ? ", " : " ",
           name_of(row->key), row->live_bytes, row->live_blocks, row->live_blocks == 1 ? "" : "s");
  }
}

static void find_words(text *out, const lm_request *r, int device, const lm_last_refusal *refusal) {
  search s = { { .row = rows, .size = ROWS, .is_fixed = true }, device, refusal->is_at_limit };
  lm_sums_clear(&s.table);
  if (device == HOST) lm_walk_each(add_object, &s);
  lm_provider_each(add_provided, &s);
  size_t n = lm_sums_sort(&s.table);
  append(out, "last words: no memory ");
  if (device != HOST) append(out, "on device %d ", device);
  append(out, "for size %zu under tag '%.80s'; ", r->size, r->site->where.tag);
  append(out, n ? "most is live under" : "nothing is live");
  append_largest(out, KEY_TAG, n);
  if (n) append(out, "; in the strategies");
  append_largest(out, KEY_STRATEGY, n);
  /* A limit is named by the event LOAM_EVENT_UNSERVED. */
  if (!refusal->is_at_limit) append(out, "; %s", refusal->why);
}

/* ---- Telling ------------------------------------------------------------------------------ */

/* The file of LOAM_LAST_WORDS; "" if there is none. Written before any request. */
static LM_SPARSE char path[LM_LOG_LINE_PATH];

void lm_last_words_start(const char *file) {
  if (!file || !*file) return;
  if (lm_log_line_start(file)) strcpy(path, file);
  else
    lm_error_event(LOAM_EVENT_ENVIRONMENT, 0, NULL,
                   "LOAM_LAST_WORDS=%.100s: it is not an absolute path of at most %zu bytes, so "
                   "last words are written to no file",
                   file, sizeof path - 1);
}

/* The stack of a thread may be too small for these. The thread of `teller` uses them. */
static LM_SPARSE text words;
static LM_SPARSE char line[LM_ERROR_SIZE / 2];

static void write_file(void) {
  size_t length = lm_log_line_write(line, sizeof line, words.bytes);
  int error = lm_sys_file_append(path, line, length);
  if (error)
    lm_error_event(LOAM_EVENT_ENVIRONMENT, 0, NULL, "LOAM_LAST_WORDS=%s: not written: %s", path,
                   strerror(error));
}

/* Returns the device whose memory a strategy has; HOST: it has other memory. */
static int device_of(const lm_strategy *s) {
  bool is_on_device = s->desc.kind == LM_KIND_DEVICE || s->desc.kind == LM_KIND_MANAGED;
  return is_on_device ? lm_provider_device(s->desc.device) : HOST;
}

/* Says whether a device has less free memory than a request takes, but as much in all. If it has
 * enough, the driver has failed for another reason. Drivers give memory in pieces of 2 MiB. */
static bool has_device_run_out(const lm_request *r, int device) {
  size_t free, total;
  lm_lock_suspended section = lm_thread_foreign_begin(lm_thread_self);
  bool is_known = lm_gpu_has(device) && lm_manager_memory(device, &free, &total) == LOAM_OK;
  lm_thread_foreign_end(lm_thread_self, section);
  return is_known && lm_align_up(r->size, 2 * LM_MIB) > free && r->size <= total;
}

static bool has_reserved_pages(const lm_strategy *s) {
  return s->desc.huge == LM_HUGE_2MIB || s->desc.huge == LM_HUGE_1GIB;
}

/* Says whether memory itself has run out: a request for more than all that the pools have so far
 * may just be too large. The pages that an administrator reserved have run out with any request. */
static bool has_run_out(const lm_request *r, const lm_strategy *s, int device) {
  lm_pool_figures figures;
  if (device != HOST) return has_device_run_out(r, device);
  if (has_reserved_pages(s)) return true;
  lm_pool_figures_get(&figures);
  return r->size <= figures.regions;
}

/* Makes the calling thread the one that tells. Returns false if another thread is that now. */
static bool begin_to_tell(void) {
  uint32_t now = atomic_load_explicit(&teller, memory_order_relaxed), self = 1 + lm_thread_forks;
  return now != self && atomic_compare_exchange_strong_explicit(
                            &teller, &now, self, memory_order_acquire, memory_order_relaxed);
}

static void tell(const lm_request *r, int device, const lm_last_refusal *refusal) {
  words.length = 0;
  find_words(&words, r, device, refusal);
  if (path[0]) write_file();
  lm_error_event(LOAM_EVENT_LAST_WORDS, atomic_load(&lm_site_generation), NULL, "%s", words.bytes);
}

/* A thread that finds another one at work does not use up the turn of its generation: a later
 * request tells. */
void lm_last_words_tell(const lm_request *r, const lm_last_refusal *refusal) {
  static _Atomic uint64_t told;
  lm_assert(r->site && !lm_thread_is_active());
  if (lm_thread_self->inside || lm_site_generation_is_noted(&told)) return;
  int device = device_of(refusal->strategy);
  if (!refusal->is_at_limit && !has_run_out(r, refusal->strategy, device)) return;
  if (!begin_to_tell()) return;
  if (lm_site_generation_first(&told)) tell(r, device, refusal);
  atomic_store_explicit(&teller, 0, memory_order_release);
}
