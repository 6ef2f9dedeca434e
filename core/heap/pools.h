/* pools.h - the table of pools: one pool for each strategy that has needed memory.
 *
 * For the files that work on pools as such: tcache_slow.c, sweep.c, retire.c, pool_fork.c and
 * device/pinned.c. pool.h has the requests to a pool. */
#ifndef LM_POOLS_H
#define LM_POOLS_H

#include "heap/central.h"
#include "heap/large.h"
#include "heap/strategy.h"
#include "os/lock.h"
#include "pages/backing.h"

/* All memory of one strategy. A pool's memory never serves another strategy, except what migrate.c
 * hands over. lm_pool_is_valid checks the laws of all pools. */
typedef struct lm_pool {
  lm_strategy *strategy;
  /* These three are used for memory that is registered with a driver. Relaxed: each is a hint for
   * later operations, or is checked again under lm_pools_end_lock. */
  _Atomic bool closed;    /* in a forked child: objects are neither taken from it nor cached */
  _Atomic bool recalled;  /* threads are to give up the objects that they cache of it */
  _Atomic uint32_t users; /* threads at work on its regions, which keep it from ending */
  lm_backing backing;     /* where the memory is in a file */
  lm_regions regions;
  lm_large large;
  lm_central central[LM_CLASSES]; /* by class */
} lm_pool;

/* Held by whoever ends a pool, and by whoever goes through all pools for a long time, so that none
 * ends during that. Taken before lm_pools_make_lock. A fork waits until it is free. */
extern lm_lock lm_pools_end_lock;
/* Held while a pool is made or ended, or gets or loses the place of its bins. */
extern lm_lock lm_pools_make_lock;
/* A long lock (lm_lock_take_long): pinned.c holds it around calls of a driver. So it is taken under
 * neither of the other two. A fork does not wait for it, and a child calls no driver. */
extern lm_lock lm_pools_pinned_lock;

/* Values of lm_strategy.retiring. retire.c sets them one after the other; a request to the strategy
 * sets LM_POOL_OPEN again (lm_pools_make). */
enum { LM_POOL_OPEN, LM_POOL_CLOSING, LM_POOL_CLOSED };

/* The place of the strategy's bins in each thread; 0: it has none. Acquire pairs with the release
 * that set it, so that lm_pool_holder(place) is known too. */
LM_INLINE uint32_t lm_pools_place(const lm_strategy *strategy) {
  return atomic_load_explicit(&strategy->place, memory_order_acquire);
}
/* The strategy that has this place; NULL: none has. */
lm_strategy *lm_pool_holder(uint32_t place);

/* The pool of a strategy, which may be NULL; NULL: it has none. */
lm_pool *lm_pool_of(const lm_strategy *strategy);
/* The pool of the strategy with this id; NULL: it has none. */
LM_INLINE lm_pool *lm_pools_at(uint32_t id) { return lm_pool_of(lm_strategy_at(id)); }
/* The pool of a strategy, which is made if it is new. Ends a retirement of the strategy that is
 * under way. NULL: the strategy is NULL, there is no memory, or no place is left. lm_pool_start has
 * been called. */
lm_pool *lm_pools_make(lm_strategy *strategy);
/* Calls lm_pool_start first where that is needed; else as lm_pools_make. */
lm_pool *lm_pool_for(lm_strategy *strategy);
/* Gives the strategy's bins a place in every thread. False: all places are taken. lm_pool_start has
 * been called. */
bool lm_pools_reserve(lm_strategy *strategy);
/* The number of places that no strategy has. */
uint32_t lm_pools_places_left(void);
/* Takes from a strategy its pool, which is empty, and the place of its bins. lm_pools_make_lock is
 * held, and no thread has objects of the pool in its bins. */
void lm_pools_forget_locked(lm_strategy *strategy);

/* Calls `act` for each pool. No pool ends during the call: the caller holds one of the two locks,
 * or is in a forked child. */
void lm_pools_each(void (*act)(lm_pool *pool));
/* The figures of a pool by its counters, without a walk over its memory. */
typedef struct lm_pool_use {
  size_t live_bytes;   /* about: small objects that are not free, and the slots of large blocks */
  size_t held_bytes;   /* slots that may have memory */
  size_t small_blocks; /* small objects that are not free: live ones, and cached ones */
  size_t class_blocks[LM_CLASSES]; /* small_blocks by size class */
} lm_pool_use;

/* Adds the use of a strategy's pool to *use. Returns false if the strategy has no pool. Takes
 * lm_pools_make_lock and, one after the other, the locks of the pool. */
bool lm_pools_add_use(const lm_strategy *strategy, lm_pool_use *use);

#endif
