/* stats.h - figures: totals that threads tally, live bytes read off the memory. */
#ifndef LM_STATS_H
#define LM_STATS_H

#include "plan/site.h"

/* Adds what an entry has to the totals and makes it `key`'s. */
void lm_stats_rekey(lm_thread *t, lm_tally *entry, uint64_t key);

/* The thread's entry for blocks of a site under a strategy, direct-mapped; perhaps not its yet. */
LM_INLINE lm_tally *lm_stats_entry(lm_thread *t, uint32_t site, uint32_t strategy) {
  return &t->tally[(site + strategy * 37) & (LM_TALLIES - 1)];
}
LM_INLINE uint64_t lm_stats_key(uint32_t site, uint32_t strategy) {
  return site | (uint64_t)strategy << 32;
}
LM_INLINE bool lm_stats_is_of(lm_tally *entry, uint32_t site, uint32_t strategy) {
  return atomic_load_explicit(&entry->key, memory_order_relaxed) == lm_stats_key(site, strategy);
}

/* Only this thread writes; release, so that who sees the sum sees the key that it is of. */
LM_INLINE void lm_stats_add(_Atomic uint64_t *sum, uint64_t more) {
  uint64_t now = atomic_load_explicit(sum, memory_order_relaxed);
  atomic_store_explicit(sum, now + more, memory_order_release);
}

/* Makes a lane's count that of blocks of a site that an entry serves; what it has of others is told
 * first. */
void lm_stats_reuse(lm_thread *t, lm_decision *d, uint32_t site, const lm_serve *serve);

LM_INLINE void lm_stats_count(lm_tally *entry, uint32_t blocks, size_t bytes) {
  lm_stats_add(&entry->blocks, blocks);
  lm_stats_add(&entry->bytes, bytes);
}

/* So many blocks of so many bytes in all were allocated. */
LM_INLINE void lm_stats_note(lm_thread *t, uint32_t site, uint32_t strategy, uint32_t blocks,
                             size_t bytes) {
  lm_tally *e = lm_stats_entry(t, site, strategy);
  if (lm_unlikely(!lm_stats_is_of(e, site, strategy)))
    lm_stats_rekey(t, e, lm_stats_key(site, strategy));
  lm_stats_count(e, blocks, bytes);
}

extern _Atomic uint64_t lm_stats_denied, lm_stats_fallbacks, lm_stats_failed, lm_stats_bad_frees;

LM_INLINE void lm_stats_bump(_Atomic uint64_t *figure) {
  atomic_fetch_add_explicit(figure, 1, memory_order_relaxed);
}

/* Registers with threads, once. */
void lm_stats_start(void);

/* loam_stats and loam_stats_by. */
loam_status lm_stats_get(struct loam_stats *out);
loam_status lm_stats_by(int keys, loam_row_fn callback, void *ctx);

#endif
