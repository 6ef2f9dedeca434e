/* ledger.c - how many blocks were made and ended, which are live, and who is told of each.
 *
 * Each thread counts for itself; a thread that ends leaves its counts to `gone`. The list of live
 * blocks is kept only where leaks are asked for: a block that is on it says so, so that those made
 * before can end after. */
#include "block/ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/error.h"
#include "pages/metadata.h"
#include "plan/site.h"

/* ---- Counts ------------------------------------------------------------------------------- */

/* Whoever adds up takes the lock, so that a thread that ends meanwhile is counted once. */
static struct {
  lm_lock lock;
  struct loam_block_stats gone;
} counts;

static void add(struct loam_block_stats *sum, const lm_block_tally *tally) {
  for (int kind = 0; kind < LM_BLOCK_KINDS; kind++) {
    sum->made[kind] += __atomic_load_n(&tally->made[kind], __ATOMIC_RELAXED);
    sum->ended[kind] += __atomic_load_n(&tally->ended[kind], __ATOMIC_RELAXED);
  }
}

static void leave_counts(lm_thread *t) {
  lm_lock_take(&counts.lock);
  add(&counts.gone, &t->blocks);
  for (int kind = 0; kind < LM_BLOCK_KINDS; kind++) {
    __atomic_store_n(&t->blocks.made[kind], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&t->blocks.ended[kind], 0, __ATOMIC_RELAXED);
  }
  lm_lock_drop(&counts.lock);
}

static void add_thread(lm_thread *t, void *sum) { add(sum, &t->blocks); }

loam_status loam_block_stats(struct loam_block_stats *out) {
  if (!out) return lm_error(LOAM_EINVAL, "out: it is NULL");
  lm_lock_take(&counts.lock);
  struct loam_block_stats sum = counts.gone;
  lm_thread_each(add_thread, &sum);
  lm_lock_drop(&counts.lock);
  *out = sum;
  return LOAM_OK;
}

/* ---- Telling ------------------------------------------------------------------------------ */

static struct {
  lm_lock lock;
  loam_block_hook hook;
} listener;

/* This thread is in its callback. */
static _Thread_local bool is_telling __attribute__((tls_model("initial-exec")));

loam_block_hook loam_on_block(loam_block_fn callback, void *ctx) {
  lm_thread_add_fork_lock(&listener.lock);
  lm_lock_take(&listener.lock);
  loam_block_hook previous = listener.hook;
  listener.hook = (loam_block_hook){ callback, ctx };
  lm_lock_drop(&listener.lock);
  lm_block_watch_want(LM_BLOCK_WATCH_TELL, callback != NULL);
  return previous;
}

static void tell(loam_block_verb verb, const loam_block *b, size_t references) {
  if (is_telling) return;
  lm_lock_take(&listener.lock);
  loam_block_hook hook = listener.hook;
  lm_lock_drop(&listener.lock);
  if (!hook.callback) return;
  is_telling = true;
  hook.callback(hook.ctx, verb, b, references);
  is_telling = false;
}

/* ---- The list ----------------------------------------------------------------------------- */

static struct {
  lm_lock lock;
  loam_block *first;
} live;

static void list(loam_block *b) {
  lm_lock_take(&live.lock);
  b->is_listed = 1;
  b->previous = NULL;
  b->next = live.first;
  if (b->next) b->next->previous = b;
  live.first = b;
  lm_lock_drop(&live.lock);
}

static void unlist(loam_block *b) {
  lm_lock_take(&live.lock);
  if (b->next) b->next->previous = b->previous;
  if (b->previous) b->previous->next = b->next;
  else live.first = b->next;
  lm_lock_drop(&live.lock);
}

static bool is_listing(void) {
  return atomic_load_explicit(&lm_block_watched, memory_order_relaxed) & LM_BLOCK_WATCH_LIST;
}

void lm_ledger_note(loam_block_verb verb, loam_block *b, size_t references) {
  if (verb == LOAM_BLOCK_MADE && is_listing()) list(b);
  tell(verb, b, references);
  if (verb == LOAM_BLOCK_ENDED && b->is_listed) unlist(b);
}

/* ---- Leaks -------------------------------------------------------------------------------- */

typedef struct leak {
  const char *tag;
  uint64_t blocks, bytes;
} leak;

/* Adds up the list by tag; slices have no bytes of their own. */
static void add_up(leak *of_tag, uint32_t tags) {
  lm_lock_take(&live.lock);
  for (const loam_block *b = live.first; b; b = b->next) {
    if (b->site->tag_index >= tags) continue; /* a tag that came meanwhile */
    leak *sum = &of_tag[b->site->tag_index];
    sum->tag = b->site->where.tag;
    sum->blocks++;
    sum->bytes += b->kind == LOAM_BLOCK_SLICE ? 0 : b->size;
  }
  lm_lock_drop(&live.lock);
}

loam_status loam_block_leaks(loam_leak_fn callback, void *ctx) {
  if (!callback) return lm_error(LOAM_EINVAL, "callback: it is NULL");
  if (!is_listing())
    return lm_error(LOAM_ESTATE, "blocks are not listed: loam_config.leaks and LOAM_LEAKS are 0");
  uint32_t tags = lm_site_tag_count() + 1;
  leak *of_tag = lm_metadata_alloc(tags * sizeof *of_tag);
  if (!of_tag) return lm_error(LOAM_ENOMEM, "no memory to add up the blocks of %u tags", tags);
  add_up(of_tag, tags);
  for (uint32_t i = 0; i < tags; i++)
    if (of_tag[i].blocks) callback(ctx, of_tag[i].tag, of_tag[i].blocks, of_tag[i].bytes);
  lm_metadata_free(of_tag);
  return LOAM_OK;
}

/* The one thing that loam itself prints: who asked for it by name has no other way to read it. */
static void print(const char *words) {
  char line[512];
  int n = snprintf(line, sizeof line, "loam: %s\n", words);
  size_t length = n < (int)sizeof line ? (size_t)n : sizeof line - 1;
  ssize_t written = write(STDERR_FILENO, line, length);
  (void)written;
}

static void report(void *ctx, const char *tag, uint64_t blocks, uint64_t bytes) {
  (void)ctx;
  char quoted[300], words[400];
  lm_error_quote(quoted, sizeof quoted, tag);
  snprintf(words, sizeof words, "never released: %" PRIu64 " block%s of tag %s, %" PRIu64 " bytes",
           blocks, blocks == 1 ? "" : "s", quoted, bytes);
  if (!lm_error_event(LOAM_EVENT_LEAK, 0, NULL, "%s", words)) print(words);
}

/* After the host's own exit handlers and destructors, which may release. */
static __attribute__((destructor)) void report_at_exit(void) {
  if (is_listing()) (void)loam_block_leaks(report, NULL);
}

/* When the library is loaded, before a block can be made. */
static __attribute__((constructor)) void begin(void) {
  lm_thread_add_hooks(&(lm_thread_hooks){ .exit = leave_counts });
  lm_thread_add_fork_lock(&counts.lock);
  lm_thread_add_fork_lock(&live.lock);
}
