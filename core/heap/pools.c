/* pools.c - the table of pools: they are made when they are first needed, one for each strategy;
 * and what goes through all of them: figures, locks, laws. */
#include "heap/pools.h"

#include "heap/pool.h"
#include "heap/tcache_slow.h"
#include "pages/range.h"
#include "pages/states.h"

lm_lock lm_pools_end_lock, lm_pools_make_lock, lm_pools_pinned_lock;

/* The strategy that has each place; written under lm_pools_make_lock. */
static LM_SPARSE _Atomic(lm_strategy *) holder[LM_POOL_PLACES];

lm_pool *lm_pool_of(const lm_strategy *strategy) {
  /* Acquire pairs with the release in make_pool_locked: the pool is complete. */
  return strategy ? __atomic_load_n(&strategy->pool, __ATOMIC_ACQUIRE) : NULL;
}

lm_strategy *lm_pool_holder(uint32_t place) {
  lm_assert(place < LM_POOL_PLACES);
  /* Acquire pairs with the release in reserve_locked. */
  return atomic_load_explicit(&holder[place], memory_order_acquire);
}

/* ---- Making and ending -------------------------------------------------------------------- */

/* Prepares the file that a pool's memory is in. NULL: the memory is in no file. */
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
  lm_assert(lm_lock_is_held(&lm_pools_make_lock));
  if (lm_pools_place(strategy)) return true;
  for (uint32_t place = 1; place < LM_POOL_PLACES; place++) {
    if (lm_pool_holder(place)) continue;
    atomic_store_explicit(&holder[place], strategy, memory_order_release);
    atomic_store_explicit(&strategy->place, place, memory_order_release);
    return true;
  }
  return false;
}

bool lm_pools_reserve(lm_strategy *strategy) {
  lm_lock_take(&lm_pools_make_lock);
  bool done = reserve_locked(strategy);
  lm_lock_drop(&lm_pools_make_lock);
  return done;
}

uint32_t lm_pools_places_left(void) {
  uint32_t left = 0;
  for (uint32_t place = 1; place < LM_POOL_PLACES; place++) left += !lm_pool_holder(place);
  return left;
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
    lm_central_init(&pool->central[c], &pool->regions, strategy->id,
                    lm_tcache_bin_offset(lm_pools_place(strategy), c), c);
  __atomic_store_n(&strategy->pool, pool, __ATOMIC_RELEASE);
  return pool;
}

void lm_pools_forget_locked(lm_strategy *strategy) {
  lm_pool *pool = strategy->pool;
  lm_assert(lm_lock_is_held(&lm_pools_make_lock) && lm_pools_place(strategy));
  lm_assert(!pool || pool->regions.held == 0);
  __atomic_store_n(&strategy->pool, NULL, __ATOMIC_RELEASE);
  if (pool && pool->regions.how.backing) lm_backing_finish(&pool->backing);
  lm_metadata_free(pool);
  atomic_store_explicit(&holder[lm_pools_place(strategy)], NULL, memory_order_release);
  atomic_store_explicit(&strategy->place, 0, memory_order_release);
}

/* Ends a retirement of the strategy, because there is a request to it. If the retirement has gone
 * too far, the thread waits for its end. That may take as long as a trim of all pools, and does
 * not wait for this thread to leave its active section. */
static void reopen(lm_strategy *strategy) {
  uint32_t closing = LM_POOL_CLOSING;
  if (atomic_compare_exchange_strong(&strategy->retiring, &closing, LM_POOL_OPEN)) return;
  for (int tries = 0; atomic_load(&strategy->retiring) == LM_POOL_CLOSED; tries++)
    lm_sys_wait_a_little(tries);
}

lm_pool *lm_pools_make(lm_strategy *strategy) {
  if (strategy && lm_unlikely(atomic_load_explicit(&strategy->retiring, memory_order_acquire)))
    reopen(strategy);
  lm_pool *pool = lm_pool_of(strategy);
  if (lm_likely(pool != NULL) || !strategy) return pool;
  lm_lock_take(&lm_pools_make_lock);
  pool = make_pool_locked(strategy);
  lm_lock_drop(&lm_pools_make_lock);
  return pool;
}

/* ---- All pools ---------------------------------------------------------------------------- */

/* Adds the objects of a size class, and subtracts the slots of its spans from *slots. */
static void add_class(lm_central *c, lm_pool_use *use, size_t *slots) {
  lm_lock_take(&c->lock);
  size_t spans = (size_t)c->spans * lm_central_span_slots(c->class_), out = c->out;
  lm_lock_drop(&c->lock);
  use->small_blocks += out;
  use->class_blocks[c->class_] += out;
  use->live_bytes += out * lm_class_size(c->class_);
  *slots -= spans < *slots ? spans : *slots;
}

/* A span that becomes empty between two readings makes the sum a little too small or too large. */
bool lm_pools_add_use(const lm_strategy *strategy, lm_pool_use *use) {
  lm_lock_take(&lm_pools_make_lock);
  lm_pool *pool = lm_pool_of(strategy);
  if (pool) {
    size_t slots = lm_regions_used(&pool->regions);
    use->held_bytes += lm_regions_memory(&pool->regions);
    for (unsigned i = 0; i < LM_CLASSES; i++) add_class(&pool->central[i], use, &slots);
    use->live_bytes += slots << LM_SLOT_SHIFT;
  }
  lm_lock_drop(&lm_pools_make_lock);
  return pool;
}

void lm_pools_each(void (*act)(lm_pool *pool)) {
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    if (lm_pools_at(id)) act(lm_pools_at(id));
}

/* The order of the locks is that in which lm_central_adopt and lm_large_adopt take two of them. */
static void lock_pool(lm_pool *pool) {
  for (unsigned c = 0; c < LM_CLASSES; c++) lm_lock_take(&pool->central[c].lock);
  lm_lock_take(&pool->large.lock);
  lm_lock_take(&pool->regions.lock);
}

static void unlock_pool(lm_pool *pool) {
  lm_lock_drop(&pool->regions.lock);
  lm_lock_drop(&pool->large.lock);
  for (unsigned c = LM_CLASSES; c-- > 0;) lm_lock_drop(&pool->central[c].lock);
}

void lm_pool_figures_get(lm_pool_figures *out) {
  out->reserved = lm_range_reserved();
  out->regions = lm_range_used() - lm_metadata_taken() - lm_states_taken();
  out->metadata = lm_metadata_held() + lm_states_held() + lm_range_overhead();
}

/* ---- Laws --------------------------------------------------------------------------------- */

/* The spans and the slots of a pool, counted by a walk over the range. */
typedef struct census {
  const lm_pool *pool;
  uint32_t slots;
  uint32_t spans[LM_CLASSES];
} census;

static void count_extents(census *c) {
  uint32_t end = lm_map_end();
  for (uint32_t slot = LM_MAP_FIRST; slot < end; slot = lm_map_next(slot)) {
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
  if (!lm_regions_is_valid(r) || !lm_large_is_valid(&pool->large)) return false;
  /* The sum is less than `held` by what threads have between two steps of an operation, also
   * threads that a forked child lost. */
  if (counted.slots + r->clean.slots + r->dirty.slots > r->held) return false;
  uint32_t spare = 0;
  for (unsigned c = 0; c < LM_CLASSES; c++) {
    if (counted.spans[c] != pool->central[c].spans || !lm_central_is_valid(&pool->central[c]))
      return false;
    spare += pool->central[c].empties * lm_central_span_slots(c);
  }
  return spare == atomic_load(&r->spare);
}

bool lm_pool_is_valid(void) {
  lm_lock_take(&lm_pools_make_lock);
  lm_pools_each(lock_pool);
  bool valid = lm_strategy_is_valid();
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    valid = valid && (!lm_pools_at(id) || is_pool_valid_locked(lm_pools_at(id)));
  lm_pools_each(unlock_pool);
  lm_lock_drop(&lm_pools_make_lock);
  return valid && lm_states_is_valid() && lm_metadata_is_valid() && lm_range_is_valid();
}
