/* stats.h - statistics: totals of what was allocated, which threads tally, and live bytes, which
 * are read off the memory when a host asks (stats_query.c). Both are known by site, strategy and
 * size class.
 *
 * A thread counts the blocks that it allocates in two places of its own: in an entry of its
 * decision cache (lm_thread_served), if an entry served the block, and else in an lm_tally. An
 * entry or tally that is reused for another site, strategy or class is first added to the totals of
 * the process (stats.c).
 *
 * The usable bytes of a block decide its class: lm_class_counted_object for a block of a pool, else
 * lm_class_counted. A block that is resized without a copy stays counted in the class in which it
 * was allocated. The bytes by which it grew count in the class of its new size.
 *
 * The totals keep at most LM_STATS_CLASS_ROWS rows with a class. When they have that many, the
 * blocks of a further site, strategy and class count in a row of the site and strategy that has the
 * class LM_CLASS_UNKNOWN. So the sums by site and strategy stay exact.
 *
 * Law: for each site, strategy and class, the blocks allocated so far are the row of the totals,
 * plus the entries and tallies of all threads for that site, strategy and class. If the totals have
 * a row of LM_CLASS_UNKNOWN for a site and strategy, this holds for the sum over all classes only.
 */
#ifndef LM_STATS_H
#define LM_STATS_H

#include "engine/live_limits.h"
#include "engine/sums.h"
#include "os/changes.h"
#include "plan/site.h"

/* The key of a total: index of the site, id of the strategy from bit 32 on, and class of figures
 * (lm_sums_class). No such key is 0, because no site has the index 0. */
LM_INLINE uint64_t lm_stats_key(uint32_t site, uint32_t strategy, unsigned class_) {
  lm_assert(class_ < LM_CLASSES_COUNTED || class_ == LM_CLASS_UNKNOWN);
  return site | (uint64_t)strategy << 32 | (uint64_t)class_ << LM_SUMS_CLASS;
}
LM_INLINE uint32_t lm_stats_key_site(uint64_t key) { return (uint32_t)key; }
LM_INLINE uint32_t lm_stats_key_strategy(uint64_t key) { return (uint16_t)(key >> 32); }

/* The most rows of the totals that have a class. They take 5 MiB: a row has 40 bytes, and their
 * tables are half full. */
enum { LM_STATS_CLASS_ROWS = 1 << 16 };

/* Returns the place of the thread's tally for a key. Places are direct-mapped, so the tally may now
 * count another key (lm_stats_is_of). The classes of one site stand side by side, so a thread with
 * few sites touches few pages; 67 is odd, so that many sites fill all places. */
LM_INLINE lm_tally *lm_stats_entry(lm_thread *t, uint64_t key) {
  uint32_t at = lm_stats_key_site(key) * 67 + lm_stats_key_strategy(key) * 37;
  return &t->tally[(at + lm_sums_class(key)) & (LM_TALLIES - 1)];
}

/* Returns whether a tally of the calling thread counts this key. Relaxed: only the calling thread
 * writes the key. */
LM_INLINE bool lm_stats_is_of(lm_tally *entry, uint64_t key) {
  return atomic_load_explicit(&entry->key, memory_order_relaxed) == key;
}

/* Adds the figures of a tally to the totals, and lets the tally count `key` from zero. With the key
 * 0 the tally becomes an unused one. Called by the thread that has the tally, or for a thread that
 * is gone. Takes a lock of the totals. */
void lm_stats_rekey(lm_thread *t, lm_tally *entry, uint64_t key);

/* Adds to a figure that only the calling thread writes. The release pairs with the acquire in
 * stats.c: a thread that reads the sum then also reads the key to which the sum belongs. */
LM_INLINE void lm_stats_add(_Atomic uint64_t *sum, uint64_t more) {
  uint64_t now = atomic_load_explicit(sum, memory_order_relaxed);
  lm_assert(now + more >= now);
  atomic_store_explicit(sum, now + more, memory_order_release);
}

/* Adds blocks, of `bytes` usable bytes together, to a tally of the calling thread. */
LM_INLINE void lm_stats_count(lm_tally *entry, uint32_t blocks, size_t bytes) {
  lm_stats_add(&entry->blocks, blocks);
  lm_stats_add(&entry->bytes, bytes);
}

/* Counts blocks of `bytes` usable bytes together, which the calling thread allocated for the site,
 * strategy and class of a key. `blocks` is 0 for a block that only grew. */
LM_INLINE void lm_stats_note(lm_thread *t, uint64_t key, uint32_t blocks, size_t bytes) {
  lm_assert(lm_stats_key_site(key) >= LM_SITE_FIRST);
  lm_assert(lm_stats_key_strategy(key) < LM_STRATEGIES_MAX);
  lm_tally *e = lm_stats_entry(t, key);
  if (lm_unlikely(!lm_stats_is_of(e, key))) lm_stats_rekey(t, e, key);
  lm_stats_count(e, blocks, bytes);
}

/* The blocks that an entry of a decision cache may serve while no block is to be sampled. */
enum { LM_STATS_STOCK = INT32_MAX };

/* An entry of the decision cache counts the blocks of this site, strategy and class. */
typedef struct lm_stats_subject {
  uint32_t site; /* index; 0: nothing, and then no request finds the entry */
  uint16_t strategy;
  uint8_t class_; /* of the objects: small or large */
  int32_t stock;  /* how many blocks the entry may serve */
} lm_stats_subject;

/* Prepares an entry of the thread's decision cache to serve and count the blocks that `next` names.
 * What the entry counted before is added to the totals, unless it is of the same kind and the entry
 * can go on counting. Called by the thread that has the entry. */
void lm_stats_reuse(lm_thread *t, lm_decision *d, lm_stats_subject next);

/* Lets an entry that has served all its blocks serve `stock` more. The entry goes on counting, and
 * counts one block more, which the caller has taken from its bin. One store changes the entry, so a
 * thread that reads the count never finds a wrong one. Called by the thread that has the entry. */
LM_INLINE void lm_stats_restock(lm_decision *d, int32_t stock) {
  lm_assert(!d->left && stock >= 0 && stock < LM_STATS_STOCK - 1 - d->start);
  uint64_t both = (uint64_t)(d->start + 1 + stock) << 32 | (uint32_t)stock;
  __atomic_store_n(&d->both, both, __ATOMIC_RELAXED);
}

/* Requests that the policy denied, that a later member of a chain served, and that no member could
 * serve; and calls of free or realloc with a wrong pointer. */
extern _Atomic uint64_t lm_stats_denied, lm_stats_fallbacks, lm_stats_failed, lm_stats_bad_frees;

/* Adds 1 to such a figure. Relaxed: it publishes no other data. */
LM_INLINE void lm_stats_bump(_Atomic uint64_t *figure) {
  atomic_fetch_add_explicit(figure, 1, memory_order_relaxed);
}

/* Registers with the ends of threads and with fork. Later calls do nothing. */
void lm_stats_start(void);

/* The totals are in stripes, by a hash of site and strategy: stats.c. `changes` counts the moves of
 * a count from a tally or entry to `table` (os/changes.h). */
enum { LM_STATS_STRIPES = 16 };
typedef struct lm_stats_stripe {
  lm_lock lock; /* guards `table` and `class_rows` */
  lm_changes changes;
  lm_sums_table table;
  uint32_t class_rows; /* rows of `table` whose class is not LM_CLASS_UNKNOWN: stats.c */
} lm_stats_stripe;

/* The stripes of this process. */
extern lm_stats_stripe *const lm_stats_outside __attribute__((visibility("hidden")));

/* Reading the totals. Between lm_stats_lock and lm_stats_unlock no thread can move a count from a
 * tally or entry to the totals, so no block is missed or counted twice. lm_stats_each calls `visit`
 * for each row of the process's totals; lm_stats_each_thread for each tally and entry of each
 * thread. The second runs under the lock of the list of threads, so there `visit` must not allocate
 * memory. `key` is an lm_stats_key, or 0 for counts that the totals had no memory to keep apart. */
typedef void lm_stats_visit(void *ctx, uint64_t key, uint64_t blocks, uint64_t bytes);
void lm_stats_lock(void);
void lm_stats_unlock(void);
void lm_stats_each(lm_stats_visit *visit, void *ctx);
void lm_stats_each_thread(lm_stats_visit *visit, void *ctx);

/* Returns whether the totals obey the law of their tables. For tests: takes all locks of the
 * totals. */
bool lm_stats_is_valid(void);

/* Serve loam_stats and loam_stats_by; `out` and `callback` are not NULL. lm_stats_get fills *out.
 * lm_stats_by calls `callback` for each row, most live bytes first; LOAM_ENOMEM if there is no
 * memory for the rows. No lock is held while `callback` runs. */
loam_status lm_stats_get(struct loam_stats *out);
loam_status lm_stats_by(int keys, loam_row_fn callback, void *ctx);

/* Calls `visit` for each pair of tag and strategy, most live bytes first. `use` has the limit of
 * the strategy. `classes` has the sums of the pair by class: their keys are `key` with each class
 * (lm_sums_with_class). Returns LOAM_ENOMEM if there is no memory for the rows. No lock is held
 * while `visit` runs. */
typedef void lm_stats_row_visit(void *ctx, const loam_stats_row *row, const lm_limit_use *use,
                                const lm_sums_table *classes, uint64_t key);
loam_status lm_stats_each_row(lm_stats_row_visit *visit, void *ctx);

#endif
