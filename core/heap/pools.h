/* pools.h - the pools that there are, for the files that go through all of them: pools.c, sweep.c,
 * retire.c. One pool a strategy; where its bins are in each thread is its place. */
#ifndef LM_POOLS_H
#define LM_POOLS_H

#include "heap/tcache.h"
#include "os/lock.h"

/* Held, before lm_pools_make_lock, by whoever ends a pool and by whoever goes through pools for
 * long: none ends under them. Fork does not wait for it. */
extern lm_lock lm_pools_end_lock;
/* Keeps pools from being made and ended at the same time, and the places of their bins. */
extern lm_lock lm_pools_make_lock;
/* pinned.c's, held around calls of a driver: so under none of these, and fork does not wait for
 * it. */
extern lm_lock lm_pools_pinned_lock;

/* Of a strategy, as lm_strategy.retiring has it: retire.c goes from one to the next, and whoever
 * asks the strategy meanwhile goes back. */
enum { LM_POOL_OPEN, LM_POOL_CLOSING, LM_POOL_CLOSED };

LM_INLINE uint32_t lm_pools_place(const lm_strategy *strategy) {
  return atomic_load_explicit(&strategy->place, memory_order_acquire);
}

LM_INLINE lm_pool *lm_pools_at(uint32_t id) { return lm_pool_of(lm_strategy_at(id)); }

void lm_pools_each(void (*act)(lm_pool *pool));
/* Takes a pool that is empty, and the place of its bins, from its strategy. */
void lm_pools_forget_locked(lm_strategy *strategy);
/* Gives back all that a thread caches. */
void lm_pools_flush(lm_thread *t);

#endif
