/* tcache.h - the bins of a thread: how they open, widen, fill, run over and are emptied. What is
 * done with one that neither is empty nor runs over is pool.h's fast path. */
#ifndef LM_TCACHE_H
#define LM_TCACHE_H

#include "heap/central.h"
#include "heap/large.h"
#include "heap/pool.h"

typedef struct lm_pool {
  lm_strategy *strategy;
  /* Of registered memory, these three; relaxed. */
  _Atomic bool closed;    /* in a forked child: nothing is taken of it, nor cached */
  _Atomic bool recalled;  /* threads are to give up what they cache of it */
  _Atomic uint32_t users; /* those at work on its regions: it does not end meanwhile */
  lm_backing backing;     /* of kinds whose memory is a file's */
  lm_regions regions;
  lm_large large;
  lm_central store[LM_CLASSES];
} lm_pool;

/* The pool of a strategy, or NULL; and made if it is new, NULL: there is no memory. */
lm_pool *lm_pool_of(const lm_strategy *strategy);
lm_pool *lm_pool_for(lm_strategy *strategy);
/* Whose the bins at a place are; NULL: nobody's. */
lm_strategy *lm_pool_holder(uint32_t place);

LM_INLINE uint32_t lm_tcache_bin_offset(uint32_t place, unsigned class_) {
  return (uint32_t)(LM_THREAD_BINS + offsetof(lm_thread_bins, pool) + place * sizeof(lm_pool_bins) +
                    offsetof(lm_pool_bins, bin) + class_ * sizeof(lm_bin));
}

LM_INLINE uint32_t lm_tcache_bin_place(uint32_t offset) {
  return (uint32_t)((offset - lm_tcache_bin_offset(0, 0)) / sizeof(lm_pool_bins));
}

LM_INLINE unsigned lm_tcache_bin_class(uint32_t offset) {
  return (unsigned)((offset - lm_tcache_bin_offset(0, 0)) % sizeof(lm_pool_bins) / sizeof(lm_bin));
}

/* One object, past the bins. */
void *lm_tcache_take_one(lm_thread *t, lm_pool *pool, unsigned class_, lm_token token);
/* Gives objects back to their store, and to the limit. */
void lm_tcache_give_back(lm_pool *pool, unsigned class_, const lm_cached_object *items, uint32_t n);
/* Whether a thread holds items in it. */
LM_INLINE bool lm_tcache_bin_is_open(const lm_bin *bin) { return bin->low != bin->high; }
/* For a bin that is neither full nor closed. */
void lm_tcache_put(lm_bin *bin, lm_cached_object item);
/* For one that is. */
void lm_tcache_overflow(lm_thread *t, uint32_t offset, lm_cached_object item);

/* What was taken out of a bin, the bin closed: n objects, and the array that they are in, behind
 * nobody's. */
typedef struct lm_tcache_batch {
  lm_cached_object *array;
  uint32_t n;
} lm_tcache_batch;

lm_tcache_batch lm_tcache_bin_close(lm_pool_bins *bins, unsigned class_);
/* Gives back what a haul has, which nobody wanted for a while, and its array. */
void lm_tcache_batch_return(lm_pool *pool, unsigned class_, const lm_tcache_batch *h);
/* Closes all bins of a pool in a thread. */
void lm_tcache_flush(lm_pool *pool, lm_pool_bins *bins);
/* Those of the calling thread, which is active, that count against the strategy's limit. */
void lm_tcache_flush_account(const lm_strategy *strategy, lm_thread *t);

LM_INLINE bool lm_tcache_pool_is_closed(const lm_pool *pool) {
  return lm_unlikely(atomic_load_explicit(&pool->closed, memory_order_relaxed));
}

#endif
