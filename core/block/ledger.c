/* ledger.c - counts blocks by kind, lists live blocks, and calls the host's callback for each
 * event.
 *
 * Each thread counts the blocks that it makes and ends; the counts of threads that ended are in
 * `counts.ended_threads`. Live blocks are listed only while the host has requested leak reports. A
 * listed block has a flag (is_listed), because blocks that were made before the list began are not
 * in it when they end. */
#include "block/ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/error.h"
#include "pages/metadata.h"
#include "plan/site.h"

/* ---- Counts ------------------------------------------------------------------------------- */

/* Law: the sum of `ended_threads` and the tallies of all threads is what blocks were made and
 * ended. The lock is held while a thread moves its tally here and while the sum is computed, so
 * that the sum counts a thread that ends exactly once. */
static struct {
  lm_lock lock;
  struct loam_block_stats ended_threads;
} counts;

/* Adds a tally to a sum. Relaxed loads: another thread may write its own tally. They pair with
 * lm_add_relaxed in block.c; a count may lack the latest blocks. */
static void add(struct loam_block_stats *sum, const lm_block_tally *tally) {
  for (int kind = 0; kind < LM_BLOCK_KINDS; kind++) {
    sum->made[kind] += __atomic_load_n(&tally->made[kind], __ATOMIC_RELAXED);
    sum->ended[kind] += __atomic_load_n(&tally->ended[kind], __ATOMIC_RELAXED);
  }
}

/* The exit hook of threads: moves the tally of a thread that ends to `ended_threads`. */
static void add_ended_thread(lm_thread *t) {
  lm_lock_take(&counts.lock);
  add(&counts.ended_threads, &t->blocks);
  for (int kind = 0; kind < LM_BLOCK_KINDS; kind++) {
    __atomic_store_n(&t->blocks.made[kind], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&t->blocks.ended[kind], 0, __ATOMIC_RELAXED);
  }
  lm_lock_drop(&counts.lock);
}

static void add_thread(lm_thread *t, void *sum) { add(sum, &t->blocks); }

loam_status loam_block_stats(struct loam_block_stats *out) {
  if (!out) return lm_error_missing("out");
  lm_lock_take(&counts.lock);
  struct loam_block_stats sum = counts.ended_threads;
  lm_thread_each(add_thread, &sum);
  lm_lock_drop(&counts.lock);
  *out = sum;
  return LOAM_OK;
}

/* ---- The host's callback ------------------------------------------------------------------ */

static struct {
  lm_lock lock; /* guards `hook`, and that blocks are watched exactly while there is a callback */
  loam_block_hook hook;
} listener;

/* True while this thread is in the callback. Blocks that the callback itself makes or releases do
 * not call it again. */
static _Thread_local bool is_in_callback __attribute__((tls_model("initial-exec")));

loam_block_hook loam_on_block(loam_block_fn callback, void *ctx) {
  lm_thread_add_fork_lock(&listener.lock);
  lm_lock_take(&listener.lock);
  loam_block_hook previous = listener.hook;
  listener.hook = (loam_block_hook){ callback, ctx };
  lm_block_watch_want(LM_BLOCK_WATCH_TELL, callback != NULL);
  lm_lock_drop(&listener.lock);
  return previous;
}

/* Calls the host's callback, if there is one, without a lock held. */
static void call_hook(loam_block_verb verb, const loam_block *b, size_t references) {
  if (is_in_callback) return;
  lm_lock_take(&listener.lock);
  loam_block_hook hook = listener.hook;
  lm_lock_drop(&listener.lock);
  if (!hook.callback) return;
  is_in_callback = true;
  lm_sys_cancel_off(); /* the thread is in the middle of making or ending a block */
  hook.callback(hook.ctx, verb, b, references);
  lm_sys_cancel_restore();
  is_in_callback = false;
}

/* ---- The list of live blocks -------------------------------------------------------------- */

/* Law: a doubly linked list; each block in it has is_listed 1. The lock guards the list and the
 * links in its blocks. */
static struct {
  lm_lock lock;
  loam_block *first;
} live;

static void add_to_list(loam_block *b) {
  lm_lock_take(&live.lock);
  lm_assert(!b->is_listed);
  b->is_listed = 1;
  b->previous = NULL;
  b->next = live.first;
  if (b->next) b->next->previous = b;
  live.first = b;
  lm_lock_drop(&live.lock);
}

static void remove_from_list(loam_block *b) {
  lm_lock_take(&live.lock);
  lm_assert(b->is_listed && (b->previous ? b->previous->next : live.first) == b);
  if (b->next) b->next->previous = b->previous;
  if (b->previous) b->previous->next = b->next;
  else live.first = b->next;
  lm_lock_drop(&live.lock);
}

/* Returns whether of each kind at least as many blocks were made as have ended. */
static bool are_counts_valid(void) {
  struct loam_block_stats sum;
  if (loam_block_stats(&sum) != LOAM_OK) return false;
  for (int kind = 0; kind < LM_BLOCK_KINDS; kind++)
    if (sum.ended[kind] > sum.made[kind]) return false;
  return true;
}

bool lm_ledger_is_valid(void) {
  bool is_valid = are_counts_valid();
  const loam_block *previous = NULL;
  lm_lock_take(&live.lock);
  for (const loam_block *b = live.first; b && is_valid; previous = b, b = b->next)
    is_valid = b->previous == previous && b->is_listed == 1 && b->site;
  lm_lock_drop(&live.lock);
  return is_valid;
}

/* Returns whether live blocks are listed. Relaxed: a block that is made while this changes may be
 * missed. */
static bool is_listing(void) {
  return atomic_load_explicit(&lm_block_watched, memory_order_relaxed) & LM_BLOCK_WATCH_LIST;
}

void lm_ledger_note(loam_block_verb verb, loam_block *b, size_t references) {
  lm_assert(b && verb >= LOAM_BLOCK_MADE && verb <= LOAM_BLOCK_ENDED);
  if (verb == LOAM_BLOCK_MADE && is_listing()) add_to_list(b);
  call_hook(verb, b, references);
  if (verb == LOAM_BLOCK_ENDED && b->is_listed) remove_from_list(b);
}

/* ---- Leaks -------------------------------------------------------------------------------- */

/* The live blocks of one tag. `tag` is NULL while there are none. */
typedef struct leak {
  const char *tag;
  uint64_t blocks, bytes;
} leak;

/* Sums the list by tag into `of_tag`, an array of `tags` zeroed elements. Slices count as blocks
 * but have no bytes of their own. */
static void sum_by_tag(leak *of_tag, uint32_t tags) {
  lm_assert(of_tag && tags);
  lm_lock_take(&live.lock);
  for (const loam_block *b = live.first; b; b = b->next) {
    if (b->site->tag_index >= tags) continue; /* a tag that is newer than the array */
    leak *sum = &of_tag[b->site->tag_index];
    sum->tag = b->site->where.tag;
    sum->blocks++;
    sum->bytes += b->kind == LOAM_BLOCK_SLICE ? 0 : b->size;
  }
  lm_lock_drop(&live.lock);
}

loam_status loam_block_leaks(loam_leak_fn callback, void *ctx) {
  if (!callback) return lm_error_missing("callback");
  if (!is_listing())
    return lm_error(LOAM_ESTATE, "blocks are not listed: loam_config.leaks and LOAM_LEAKS are 0");
  uint32_t tags = lm_site_tag_count() + 1;
  leak *of_tag = lm_metadata_alloc(tags * sizeof *of_tag);
  if (!of_tag) return lm_error(LOAM_ENOMEM, "no memory to add up the blocks of %u tags", tags);
  sum_by_tag(of_tag, tags);
  for (uint32_t i = 0; i < tags; i++)
    if (of_tag[i].blocks) callback(ctx, of_tag[i].tag, of_tag[i].blocks, of_tag[i].bytes);
  lm_metadata_free(of_tag);
  return LOAM_OK;
}

/* Prints a line to standard error. Leak reports are all that loam prints: the user who sets
 * LOAM_LEAKS has no callback in which to read them. */
static void print(const char *words) {
  char line[512];
  int n = snprintf(line, sizeof line, "loam: %s\n", words);
  size_t length = n < (int)sizeof line ? (size_t)n : sizeof line - 1;
  ssize_t written = write(STDERR_FILENO, line, length);
  (void)written;
}

/* Reports the leaked blocks of one tag as a LEAK event, or in print without a callback. */
static void report(void *ctx, const char *tag, uint64_t blocks, uint64_t bytes) {
  (void)ctx;
  char quoted[300], words[400];
  lm_error_quote(quoted, sizeof quoted, tag);
  snprintf(words, sizeof words, "never released: %" PRIu64 " block%s of tag %s, %" PRIu64 " bytes",
           blocks, blocks == 1 ? "" : "s", quoted, bytes);
  if (!lm_error_event(LOAM_EVENT_LEAK, 0, NULL, "%s", words)) print(words);
}

/* Reports leaks when the library is unloaded: after the exit handlers and destructors of the host,
 * which may still release blocks. */
static __attribute__((destructor)) void report_at_exit(void) {
  if (is_listing()) (void)loam_block_leaks(report, NULL);
}

/* Runs when the library is loaded, before a block can be made. */
static __attribute__((constructor)) void register_hooks(void) {
  lm_thread_add_hooks(&(lm_thread_hooks){ .exit = add_ended_thread });
  lm_thread_add_fork_lock(&counts.lock);
  lm_thread_add_fork_lock(&live.lock);
}
