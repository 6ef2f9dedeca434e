/* pools.c - the pools that there are: made when first asked, one a strategy; all of them at once,
 * for a fork and for their laws. */
#include "heap/pools.h"

#include "heap/sweep.h"
#include "os/decay.h"
#include "pages/range.h"
#include "pages/states.h"

lm_lock lm_pools_end_lock, lm_pools_make_lock, lm_pools_pinned_lock;

/* Whose a place in the threads is; under lm_pools_make_lock. */
static LM_SPARSE _Atomic(lm_strategy *) holder[LM_POOL_PLACES];

lm_pool *lm_pool_of(const lm_strategy *strategy) {
  /* Acquire pairs with the release in make_pool_locked. */
  return strategy ? __atomic_load_n(&strategy->pool, __ATOMIC_ACQUIRE) : NULL;
}

lm_strategy *lm_pool_holder(uint32_t place) {
  return atomic_load_explicit(&holder[place], memory_order_acquire);
}

/* The file that a pool's memory is in; NULL: it is plain memory. */
static lm_backing *backing_of(lm_pool *pool) {
  const lm_desc *desc = &pool->strategy->desc;
  bool is_file = desc->kind == LM_KIND_FILE;
  if (!is_file && desc->kind != LM_KIND_SHARED) return NULL;
  lm_backing_init(&pool->backing, is_file ? desc->dir : NULL);
  return &pool->backing;
}

lm_preparation lm_pool_prepare(const lm_desc *desc) {
  lm_preparation how = { .prefault = desc->prefault, .lock = desc->lock };
  if (desc->placement.mode != LM_BIND_DEFAULT) how.placement = &desc->placement;
  if (desc->huge == LM_HUGE_2MIB) how.page = 2 * LM_MIB;
  if (desc->huge == LM_HUGE_1GIB) how.page = LM_GIB;
  if (desc->huge == LM_HUGE_THP) how.thp = 1;
  if (desc->huge == LM_HUGE_NEVER) how.thp = -1;
  how.registered = desc->kind == LM_KIND_PINNED;
  return how;
}

static bool reserve_locked(lm_strategy *strategy) {
  if (lm_pools_place(strategy)) return true;
  for (uint32_t place = 1; place < LM_POOL_PLACES; place++) {
    if (lm_pool_holder(place)) continue;
    atomic_store_explicit(&holder[place], strategy, memory_order_release);
    atomic_store_explicit(&strategy->place, place, memory_order_release);
    return true;
  }
  return false;
}

bool lm_pool_reserve(lm_strategy *strategy) {
  if (lm_likely(lm_pools_place(strategy) != 0)) return true;
  lm_pool_start();
  lm_lock_take(&lm_pools_make_lock);
  bool done = reserve_locked(strategy);
  lm_lock_drop(&lm_pools_make_lock);
  return done;
}

static lm_pool *make_pool_locked(lm_strategy *strategy) {
  lm_pool *pool = lm_pool_of(strategy);
  if (pool || !reserve_locked(strategy)) return pool;
  pool = lm_metadata_alloc(sizeof *pool);
  if (!pool) return NULL;
  lm_preparation how = lm_pool_prepare(&strategy->desc);
  pool->strategy = strategy;
  how.backing = backing_of(pool);
  lm_regions_init(&pool->regions, &how);
  lm_large_init(&pool->large, &pool->regions, strategy->id);
  for (unsigned c = 0; c < LM_CLASSES; c++)
    lm_central_init(&pool->store[c], &pool->regions, strategy->id,
                    lm_tcache_bin_offset(lm_pools_place(strategy), c), c);
  __atomic_store_n(&strategy->pool, pool, __ATOMIC_RELEASE);
  return pool;
}

void lm_pools_forget_locked(lm_strategy *strategy) {
  lm_pool *pool = strategy->pool;
  __atomic_store_n(&strategy->pool, NULL, __ATOMIC_RELEASE);
  if (pool && pool->regions.how.backing) lm_backing_finish(&pool->backing);
  lm_metadata_free(pool);
  atomic_store_explicit(&holder[lm_pools_place(strategy)], NULL, memory_order_release);
  atomic_store_explicit(&strategy->place, 0, memory_order_release);
}

/* Somebody asks a strategy that is being retired: that is off, or, once it is closed, over in a
 * moment, in which nobody waits for this thread to leave its operation. */
static void reopen(lm_strategy *strategy) {
  uint32_t closing = LM_POOL_CLOSING;
  if (atomic_compare_exchange_strong(&strategy->retiring, &closing, LM_POOL_OPEN)) return;
  while (atomic_load(&strategy->retiring) == LM_POOL_CLOSED) lm_sys_yield();
}

/* The pool of a strategy, made if new; NULL: no memory. */
lm_pool *lm_pool_for(lm_strategy *strategy) {
  if (strategy && lm_unlikely(atomic_load_explicit(&strategy->retiring, memory_order_acquire)))
    reopen(strategy);
  lm_pool *pool = lm_pool_of(strategy);
  if (lm_likely(pool != NULL) || !strategy) return pool;
  lm_pool_start();
  lm_lock_take(&lm_pools_make_lock);
  pool = make_pool_locked(strategy);
  lm_lock_drop(&lm_pools_make_lock);
  return pool;
}

void lm_pools_each(void (*act)(lm_pool *pool)) {
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    if (lm_pools_at(id)) act(lm_pools_at(id));
}

/* Gives back all that a thread caches. Bins of a pool that has been retired are listed still, and
 * empty; under the lock, so that none is retired meanwhile. */
void lm_pools_flush(lm_thread *t) {
  lm_thread_bins *bins = lm_pool_bins_of(t);
  lm_lock_take(&lm_pools_make_lock);
  while (bins->first) {
    uint32_t place = bins->first;
    bins->first = bins->pool[place].next;
    bins->pool[place].listed = false;
    if (lm_pool_holder(place) && lm_pool_of(lm_pool_holder(place)))
      lm_tcache_flush(lm_pool_of(lm_pool_holder(place)), &bins->pool[place]);
  }
  lm_lock_drop(&lm_pools_make_lock);
}

void lm_pool_figures_get(lm_pool_figures *out) {
  out->reserved = lm_map.size;
  out->regions = lm_range_used() - lm_metadata_taken() - lm_states_taken();
  out->metadata = lm_metadata_held() + lm_states_held() + lm_range_overhead();
}

/* ---- Laws */

/* Spans of a store, counted by walking the range. */
typedef struct census {
  const lm_pool *pool;
  uint32_t slots;
  uint32_t spans[LM_CLASSES];
} census;

static void count_extents(census *c) {
  uint32_t end = (uint32_t)(atomic_load(&lm_map.top) >> LM_SLOT_SHIFT);
  for (uint32_t slot = lm_map_first(); slot < end; slot = lm_map_next(slot)) {
    const lm_span *span = lm_map_span(slot);
    uint32_t use = atomic_load(&span->use);
    if (use != LM_USE_SMALL && !lm_map_use_is_large(use)) continue;
    if (atomic_load(&span->strategy) != c->pool->strategy->id) continue;
    c->slots += atomic_load(&span->slots);
    if (use == LM_USE_SMALL) c->spans[lm_tcache_bin_class(atomic_load(&span->bin))]++;
  }
}

static bool is_pool_valid_locked(const lm_pool *pool) {
  census counted = { .pool = pool };
  const lm_regions *r = &pool->regions;
  count_extents(&counted);
  if (!lm_regions_is_valid(r)) return false;
  /* Less than held: what threads, or those that a forked child lost, had in hand. */
  if (counted.slots + r->clean.slots + r->dirty.slots > r->held) return false;
  uint32_t spare = 0;
  for (unsigned c = 0; c < LM_CLASSES; c++) {
    if (counted.spans[c] != pool->store[c].spans || !lm_central_is_valid(&pool->store[c]))
      return false;
    spare += pool->store[c].empties * lm_central_span_slots(c);
  }
  return spare == atomic_load(&r->spare);
}

/* ---- All locks at once: for fork, and to see that the laws hold */

static void lock_pool(lm_pool *pool) {
  for (unsigned c = 0; c < LM_CLASSES; c++) lm_lock_take(&pool->store[c].lock);
  lm_lock_take(&pool->large.lock);
  lm_lock_take(&pool->regions.lock);
}

static void unlock_pool(lm_pool *pool) {
  lm_lock_drop(&pool->regions.lock);
  lm_lock_drop(&pool->large.lock);
  for (unsigned c = LM_CLASSES; c-- > 0;) lm_lock_drop(&pool->store[c].lock);
}

static void renew_pool(lm_pool *pool) {
  for (unsigned c = 0; c < LM_CLASSES; c++) lm_lock_renew(&pool->store[c].lock);
  lm_lock_renew(&pool->large.lock);
  lm_lock_renew(&pool->regions.lock);
}

static void lock_all(void) {
  lm_lock_take(&lm_pools_make_lock);
  lm_pools_each(lock_pool);
}

static void unlock_all(void) {
  lm_pools_each(unlock_pool);
  lm_lock_drop(&lm_pools_make_lock);
}

/* ---- What a forked child has of pools whose memory is a file's */

static lm_pool *backed_pool(const lm_span *span) {
  uint32_t use = atomic_load(&span->use);
  if (use != LM_USE_SMALL && use != LM_USE_LARGE) return NULL;
  lm_pool *pool = lm_pools_at(atomic_load(&span->strategy));
  return pool && pool->regions.how.backing ? pool : NULL;
}

static void inherit(const lm_pool *pool, uint32_t from, uint32_t to) {
  size_t size = (size_t)(to - from) << LM_SLOT_SHIFT;
  if (pool) lm_backing_inherit(&pool->backing, lm_map_address(from), size);
}

/* The blocks stay, as a view of the parent's; neighbours of one pool at once. */
static void inherit_blocks(void) {
  lm_pool *pool = NULL;
  uint32_t slot = lm_map_first(), from = slot;
  uint32_t end = (uint32_t)(atomic_load(&lm_map.top) >> LM_SLOT_SHIFT);
  for (; slot < end; slot = lm_map_next(slot)) {
    lm_span *span = lm_map_span(slot);
    lm_pool *of = backed_pool(span);
    if (of && atomic_load(&span->use) == LM_USE_LARGE)
      atomic_store(&span->lent, LM_LARGE_LENT_INHERITED);
    if (of == pool) continue;
    inherit(pool, from, slot);
    pool = of;
    from = slot;
  }
  inherit(pool, from, slot);
}

static bool has_backed_pools(void) {
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    if (lm_pools_at(id) && lm_pools_at(id)->regions.how.backing) return true;
  return false;
}

static void leave_pool(lm_pool *pool) {
  if (!pool->regions.how.backing) return;
  lm_large_fork_child(&pool->large);
  lm_regions_fork_child(&pool->regions);
}

/* A child asks a driver for nothing, so what it has of registered memory is plain memory: blocks
 * stay what they are, and nothing is taken. */
static void close_pool(lm_pool *pool) {
  if (!pool->regions.how.registered || !pool->regions.held) return;
  atomic_store_explicit(&pool->closed, true, memory_order_relaxed);
  if (lm_thread_self)
    lm_tcache_flush(pool, &lm_pool_bins_of(lm_thread_self)->pool[lm_pools_place(pool->strategy)]);
}

static void renew_all(void) {
  lm_pools_each(renew_pool);
  lm_lock_renew(&lm_pools_make_lock);
  lm_lock_renew(&lm_pools_end_lock);
  lm_lock_renew(&lm_pools_pinned_lock);
  lm_sweep_fork_child();
  lm_pools_each(close_pool);
  if (!has_backed_pools()) return;
  inherit_blocks();
  lm_pools_each(leave_pool);
}

/* What is hooked first is locked last, and loam's own memory is below the pools. */
void lm_pool_start(void) {
  static _Atomic bool hooked;
  if (atomic_exchange_explicit(&hooked, true, memory_order_relaxed)) return;
  lm_metadata_start();
  lm_states_start();
  lm_thread_add_hooks(&(lm_thread_hooks){ lm_pools_flush, lock_all, unlock_all, renew_all });
  lm_thread_on_claim(lm_sweep_claimed_thread);
}

bool lm_pool_is_valid(void) {
  lock_all();
  bool valid = true;
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    valid = valid && (!lm_pools_at(id) || is_pool_valid_locked(lm_pools_at(id)));
  unlock_all();
  return valid && lm_states_are_valid() && lm_metadata_is_valid() && lm_range_is_valid();
}
