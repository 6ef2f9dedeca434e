/* pool_fork.c - what pools do around fork, and when a thread ends.
 *
 * A fork waits until no other thread changes a pool (os/fork_gate.h), so the child finds every
 * list of free memory in order. It renews the locks. Memory that is in a file, or registered with a
 * driver, is the parent's: the child keeps the blocks that it inherited, and takes no further
 * memory there. */
#include "heap/pools.h"

#include "heap/pool.h"
#include "heap/sweep.h"
#include "heap/tcache_slow.h"
#include "os/fork_gate.h"
#include "os/sys_file.h"
#include "pages/states.h"

/* ---- Memory in a file --------------------------------------------------------------------- */

/* This process has inherited blocks in a file of its parent, and sees them in private mappings. Its
 * own file has nothing in the places of these blocks. */
static bool has_views;

/* The pool of an extent whose memory is in the file of this pool; NULL: it is not. */
static lm_pool *backed_pool(uint32_t slot) {
  const lm_span *span = lm_map_span(slot);
  uint32_t use = atomic_load(&span->use);
  if (use != LM_USE_SMALL && use != LM_USE_LARGE) return NULL;
  lm_pool *pool = lm_pools_at(atomic_load(&span->strategy));
  if (!pool || !pool->regions.how.backing) return NULL;
  return has_views && !lm_sys_file_is_shared(lm_map_address(slot)) ? NULL : pool;
}

/* Lets no more objects be taken from a pool or cached. The other threads' bins are emptied when
 * their areas end. */
static void close_pool(lm_pool *pool) {
  atomic_store_explicit(&pool->closed, true, memory_order_relaxed);
  if (lm_thread_self)
    lm_tcache_flush(pool, &lm_tcache_of(lm_thread_self)->pool[lm_pools_place(pool->strategy)]);
}

/* The spans of a pool have free objects. The child must not get these if it can only read them. */
static void inherit(lm_pool *pool, uint32_t from, uint32_t to) {
  size_t size = (size_t)(to - from) << LM_SLOT_SHIFT;
  lm_assert(from <= to);
  if (pool && !lm_backing_inherit(&pool->backing, lm_map_address(from), size)) close_pool(pool);
}

/* Makes the blocks that are in files private views of the parent's memory. Neighbours of one pool
 * become one view. Blocks that the parent itself has inherited are private to each process already:
 * this function leaves them alone. */
static void inherit_blocks(void) {
  lm_pool *pool = NULL;
  uint32_t slot = LM_MAP_FIRST, from = slot, end = lm_map_end();
  for (; slot < end; slot = lm_map_next(slot)) {
    lm_span *span = lm_map_span(slot);
    lm_pool *of = backed_pool(slot);
    if (of && atomic_load(&span->use) == LM_USE_LARGE)
      atomic_store(&span->lent, LM_LARGE_LENT_INHERITED);
    if (of == pool) continue;
    inherit(pool, from, slot);
    pool = of;
    from = slot;
  }
  inherit(pool, from, slot);
  has_views = true;
}

static bool has_backed_pools(void) {
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    if (lm_pools_at(id) && lm_pools_at(id)->regions.how.backing) return true;
  return false;
}

/* Gives up the free memory of a pool whose memory is in the parent's file. */
static void leave_pool(lm_pool *pool) {
  if (!pool->regions.how.backing) return;
  lm_large_fork_child(&pool->large);
  lm_regions_fork_child(&pool->regions);
}

/* ---- Registered memory -------------------------------------------------------------------- */

/* Closes a pool of registered memory. A child does not call the driver, so to the child that memory
 * is plain memory: the inherited blocks stay usable, and nothing more is taken from the pool. */
static void close_registered(lm_pool *pool) {
  if (pool->regions.how.registered && pool->regions.held) close_pool(pool);
}

/* ---- Hooks -------------------------------------------------------------------------------- */

/* A lock that is held here belongs to a thread for which the fork did not wait. Then the list may
 * be half changed. */
static void renew_central(lm_central *central) {
  lm_assert(lm_fork_gate_has_given_up() || !lm_lock_is_held(&central->lock));
  lm_lock_renew(&central->lock);
}

static void renew_pool(lm_pool *pool) {
  for (unsigned c = 0; c < LM_CLASSES; c++) renew_central(&pool->central[c]);
  lm_lock_renew(&pool->large.lock);
  lm_lock_renew(&pool->regions.lock);
}

static void renew_all(void) {
  lm_pools_each(renew_pool);
  lm_lock_renew(&lm_pools_make_lock);
  lm_lock_renew(&lm_pools_end_lock);
  lm_lock_renew(&lm_pools_pinned_lock);
  lm_sweep_fork_child();
  lm_pools_each(close_registered);
  if (!has_backed_pools()) return;
  inherit_blocks();
  lm_pools_each(leave_pool);
}

/* Hooks that are registered first are called first in a child. Pools take memory of metadata and of
 * states, so those register first. */
void lm_pool_start(void) {
  static _Atomic bool is_done;
  if (atomic_exchange_explicit(&is_done, true, memory_order_relaxed)) return;
  lm_metadata_start();
  lm_states_start();
  lm_thread_add_hooks(
      &(lm_thread_hooks){ .exit = lm_tcache_flush_thread, .fork_child = renew_all });
  lm_thread_on_claim(lm_sweep_claimed_thread);
}
