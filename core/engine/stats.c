/* stats.c - totals of the blocks and bytes that were allocated, by site, strategy and size class.
 *
 * A total is a row of a table here, plus what the tallies and decision entries of threads still
 * hold. The tables are striped by site and strategy, so threads that go through many tags seldom
 * take one lock, and a row without a class is in one table with the rows that it stands in for. A
 * thread that moves a count from a tally or entry to a table holds the lock of that stripe; a
 * thread that reads the totals holds the locks of all stripes. So the reader finds each count in
 * one of the two places. */
#include "engine/stats.h"

#include "heap/pool.h"
#include "os/lock.h"

_Atomic uint64_t lm_stats_denied, lm_stats_fallbacks, lm_stats_failed, lm_stats_bad_frees;

/* ---- Stripes ------------------------------------------------------------------------------ */

enum { STRIPES = LM_STATS_STRIPES, CLASS_ROWS = LM_STATS_CLASS_ROWS / STRIPES };

/* Law: `table` has the rows of the keys whose stripe this is (stripe_of). `class_rows` of them have
 * a class, at most CLASS_ROWS. */
static LM_SPARSE lm_stats_stripe totals[STRIPES];
lm_stats_stripe *const lm_stats_outside = totals;

static lm_stats_stripe *stripe_of(uint64_t key) {
  return &totals[lm_sums_mix(lm_sums_with_class(key, 0)) >> 16 & (STRIPES - 1)];
}

/* Returns the row of a key, or the row of its site and strategy without a class. */
static lm_sums *row_locked(lm_stats_stripe *stripe, uint64_t key) {
  lm_sums_table *table = &stripe->table;
  size_t before = table->n;
  if (lm_sums_class(key) == LM_CLASS_UNKNOWN) return lm_sums_get(table, key);
  bool is_full = stripe->class_rows == CLASS_ROWS;
  lm_sums *row = is_full ? lm_sums_find(table, key) : lm_sums_get(table, key);
  stripe->class_rows += (uint32_t)(table->n - before);
  if (row && row != &table->spill) return row;
  return lm_sums_get(table, lm_sums_with_class(key, LM_CLASS_UNKNOWN));
}

static void add_locked(lm_stats_stripe *stripe, uint64_t key, uint64_t blocks, uint64_t bytes) {
  lm_assert(lm_lock_is_held(&stripe->lock) && stripe == stripe_of(key));
  lm_sums *row = row_locked(stripe, key);
  row->total_blocks += blocks;
  row->total_bytes += bytes;
}

/* ---- Which tallies and entries a thread has used ------------------------------------------ */

/* A thread notes, in 32 bits, in which 32nd parts of its tallies (or entries) it has used any. So a
 * reader does not touch the pages of the other parts, which may have no memory yet. */

/* Returns the bit of the part in which the i-th of n is. */
static uint32_t part_of(size_t i, size_t n) {
  lm_assert(i < n && n % 32 == 0);
  return 1u << i / (n / 32);
}

/* Returns the first index from i on that is in a used part; n if there is none. */
LM_INLINE int next_used(_Atomic uint32_t *parts, int i, int n) {
  uint32_t used = atomic_load_explicit(parts, memory_order_relaxed);
  int size = n / 32;
  while (i < n && !(used & part_of((size_t)i, (size_t)n))) i += size - i % size;
  return i;
}

/* Sets the bit of a part. Relaxed, and no read-modify-write: only the calling thread writes the
 * bits, and the lock of a stripe orders them before what a reader looks for. */
static void note_used(_Atomic uint32_t *parts, uint32_t part) {
  uint32_t now = atomic_load_explicit(parts, memory_order_relaxed);
  if (!(now & part)) atomic_store_explicit(parts, now | part, memory_order_relaxed);
}

/* ---- Tallies ------------------------------------------------------------------------------ */

static void empty_tally_locked(lm_stats_stripe *stripe, lm_tally *e, uint64_t key) {
  /* Acquire pairs with lm_stats_add, for the tallies of a thread that is gone. */
  uint64_t blocks = atomic_load_explicit(&e->blocks, memory_order_acquire);
  uint64_t bytes = atomic_load_explicit(&e->bytes, memory_order_acquire);
  if (!blocks && !bytes) return;
  add_locked(stripe, key, blocks, bytes);
  atomic_store_explicit(&e->blocks, 0, memory_order_relaxed);
  atomic_store_explicit(&e->bytes, 0, memory_order_relaxed);
}

void lm_stats_rekey(lm_thread *t, lm_tally *entry, uint64_t key) {
  lm_assert(entry >= t->tally && entry < t->tally + LM_TALLIES);
  uint64_t old = atomic_load_explicit(&entry->key, memory_order_relaxed);
  lm_stats_stripe *stripe = stripe_of(old);
  lm_lock_take(&stripe->lock);
  lm_changes_begin(&stripe->changes);
  note_used(&t->used_tallies, part_of((size_t)(entry - t->tally), LM_TALLIES));
  empty_tally_locked(stripe, entry, old);
  atomic_store_explicit(&entry->key, key, memory_order_relaxed);
  lm_changes_end(&stripe->changes);
  lm_lock_drop(&stripe->lock);
}

/* ---- Entries of the decision cache -------------------------------------------------------- */

/* Returns the key of what an entry counts; 0: the entry counts nothing. */
static uint64_t key_of(const lm_decision *d) {
  uint32_t site = atomic_load_explicit(&d->site, memory_order_relaxed);
  return site ? lm_stats_key(site, d->strategy, lm_class_counted_as(d->class_)) : 0;
}

/* The owning thread counts down without a lock, so a reader may miss its latest blocks. */
static uint64_t blocks_of(const lm_decision *d) { return lm_thread_served(d); }

static size_t object_size(const lm_decision *d) { return lm_class_size(d->class_); }

/* Adds the count of an entry to the totals, and lets the entry count `next` from zero. */
static void recount(lm_thread *t, lm_decision *d, lm_stats_subject next) {
  uint64_t old = key_of(d), blocks = blocks_of(d);
  lm_stats_stripe *stripe = stripe_of(old);
  lm_assert(d >= t->decision && d < t->decision + LM_DECISIONS && (old || !blocks));
  lm_lock_take(&stripe->lock);
  lm_changes_begin(&stripe->changes);
  note_used(&t->used_decisions, part_of((size_t)(d - t->decision), LM_DECISIONS));
  if (blocks) add_locked(stripe, old, blocks, blocks * object_size(d));
  __atomic_store_n(&d->start, next.stock, __ATOMIC_RELAXED);
  __atomic_store_n(&d->left, next.stock, __ATOMIC_RELAXED);
  atomic_store_explicit(&d->site, next.site, memory_order_relaxed);
  d->strategy = next.strategy;
  d->class_ = next.class_;
  if (!next.site) d->key = 0; /* else the thread might still serve from it, and count for no site */
  lm_changes_end(&stripe->changes);
  lm_lock_drop(&stripe->lock);
}

void lm_stats_reuse(lm_thread *t, lm_decision *d, lm_stats_subject next) {
  uint32_t site = atomic_load_explicit(&d->site, memory_order_relaxed);
  bool is_same = site == next.site && d->strategy == next.strategy && d->class_ == next.class_;
  bool is_full = next.stock == LM_STATS_STOCK && d->start == next.stock && d->left > d->start / 2;
  lm_assert(next.site >= LM_SITE_FIRST && next.class_ < LM_CLASSES_ALL && next.stock >= 0);
  if (!is_same || !is_full) recount(t, d, next);
}

/* ---- Threads and forks -------------------------------------------------------------------- */

/* Adds the counts of the part of the tallies that begins at `e` to the totals, and empties it. */
static void empty_tallies(lm_thread *t, lm_tally *e) {
  for (const lm_tally *end = e + LM_TALLIES / 32; e < end; e++)
    if (atomic_load_explicit(&e->key, memory_order_relaxed)) lm_stats_rekey(t, e, 0);
}

/* Adds the counts of the part of the decision cache that begins at `d` to the totals, and empties
 * it. */
static void empty_decisions(lm_thread *t, lm_decision *d) {
  for (const lm_decision *end = d + LM_DECISIONS / 32; d < end; d++)
    if (key_of(d)) recount(t, d, (lm_stats_subject){ 0 });
}

/* Adds all counts of a thread that ends to the totals, and empties its tallies and entries. A later
 * thread may get the area, and finds none of them in use. */
static void leave(lm_thread *t) {
  lm_lock_hold_cancel(); /* one guarded section instead of one for each entry */
  for (uint32_t used = t->used_tallies; used; used &= used - 1)
    empty_tallies(t, &t->tally[__builtin_ctz(used) * (LM_TALLIES / 32)]);
  for (uint32_t used = t->used_decisions; used; used &= used - 1)
    empty_decisions(t, &t->decision[__builtin_ctz(used) * (LM_DECISIONS / 32)]);
  atomic_store_explicit(&t->used_tallies, 0, memory_order_relaxed);
  atomic_store_explicit(&t->used_decisions, 0, memory_order_relaxed);
  lm_lock_allow_cancel();
}

void lm_stats_lock(void) {
  for (int i = 0; i < STRIPES; i++) lm_lock_take(&totals[i].lock);
}

void lm_stats_unlock(void) {
  for (int i = 0; i < STRIPES; i++) lm_lock_drop(&totals[i].lock);
}

/* A stripe whose count of changes stayed odd would be called inexact as long as the child lives. */
static void renew_stripes(void) {
  for (int i = 0; i < STRIPES; i++) {
    lm_changes_renew(&totals[i].changes);
    lm_lock_renew(&totals[i].lock);
  }
}

/* Sets a figure to 0. One that is 0 is not written, so that the child needs no copy of its page. */
static void clear(_Atomic uint64_t *figure) {
  if (atomic_load_explicit(figure, memory_order_relaxed))
    atomic_store_explicit(figure, 0, memory_order_relaxed);
}

/* A child counts its own requests: one that its parent could not serve is no failure of the child.
 * The counts of allocations stay, because the child has the blocks. */
static void clear_requests(void) {
  if (!(lm_stats_denied | lm_stats_fallbacks | lm_stats_failed | lm_stats_bad_frees)) return;
  clear(&lm_stats_denied);
  clear(&lm_stats_fallbacks);
  clear(&lm_stats_failed);
  clear(&lm_stats_bad_frees);
  for (uint32_t id = lm_strategy_count(); id-- > 0;) {
    lm_strategy *s = lm_strategy_at(id);
    clear(&s->failed);
    clear(&s->at_limit);
    clear(&s->served_late);
  }
}

static void fork_child(void) {
  renew_stripes();
  clear_requests();
}

void lm_stats_start(void) {
  static _Atomic bool begun;
  if (atomic_exchange_explicit(&begun, true, memory_order_relaxed)) return;
  lm_thread_add_hooks(&(lm_thread_hooks){ .exit = leave, .fork_child = fork_child });
}

/* ---- Reading ------------------------------------------------------------------------------ */

/* The argument of visit_thread. */
typedef struct visitor {
  lm_stats_visit *visit;
  void *ctx;
} visitor;

static void visit_thread(lm_thread *t, void *ctx) {
  const visitor *v = ctx;
  for (int i = 0; (i = next_used(&t->used_tallies, i, LM_TALLIES)) < LM_TALLIES; i++) {
    const lm_tally *e = &t->tally[i];
    /* Acquire pairs with lm_stats_add: the key that is read next belongs to these figures. */
    uint64_t blocks = atomic_load_explicit(&e->blocks, memory_order_acquire);
    uint64_t bytes = atomic_load_explicit(&e->bytes, memory_order_acquire);
    uint64_t key = atomic_load_explicit(&e->key, memory_order_relaxed);
    if (blocks || bytes) v->visit(v->ctx, key, blocks, bytes);
  }
  for (int i = 0; (i = next_used(&t->used_decisions, i, LM_DECISIONS)) < LM_DECISIONS; i++) {
    const lm_decision *d = &t->decision[i];
    uint64_t blocks = blocks_of(d);
    if (blocks) v->visit(v->ctx, key_of(d), blocks, blocks * object_size(d));
  }
}

void lm_stats_each_thread(lm_stats_visit *visit, void *ctx) {
  visitor v = { visit, ctx };
  lm_thread_each(visit_thread, &v);
}

static void visit_stripe(const lm_stats_stripe *stripe, lm_stats_visit *visit, void *ctx) {
  const lm_sums_table *table = &stripe->table;
  lm_assert(lm_lock_is_held(&stripe->lock));
  for (size_t i = 0; i < table->size; i++) {
    const lm_sums *row = &table->row[i];
    if (row->key) visit(ctx, row->key, row->total_blocks, row->total_bytes);
  }
  if (!lm_sums_is_empty(&table->spill))
    visit(ctx, 0, table->spill.total_blocks, table->spill.total_bytes);
}

void lm_stats_each(lm_stats_visit *visit, void *ctx) {
  for (int i = 0; i < STRIPES; i++) visit_stripe(&totals[i], visit, ctx);
}

static bool stripe_is_valid(const lm_stats_stripe *stripe) {
  const lm_sums_table *table = &stripe->table;
  bool is_valid = lm_sums_is_valid(table);
  uint32_t class_rows = 0;
  for (size_t i = 0; is_valid && i < table->size; i++) {
    uint64_t key = table->row[i].key;
    class_rows += key && lm_sums_class(key) != LM_CLASS_UNKNOWN;
    is_valid = !key || stripe_of(key) == stripe;
  }
  return is_valid && class_rows == stripe->class_rows && class_rows <= CLASS_ROWS;
}

bool lm_stats_is_valid(void) {
  bool is_valid = true;
  lm_stats_lock();
  for (int i = 0; is_valid && i < STRIPES; i++) is_valid = stripe_is_valid(&totals[i]);
  lm_stats_unlock();
  return is_valid;
}
