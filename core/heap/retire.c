/* retire.c - a strategy that nobody names, and of which nothing lives, gives its memory back. */
#include "heap/retire.h"

#include <string.h>

#include "heap/pools.h"
#include "heap/walk.h"

/* The bins of one pool in all threads, a thread at a time: the list of threads is locked below the
 * stores. Nobody is in an operation on the pool. */
typedef struct recall {
  uint32_t place, n;
  unsigned class_[LM_CLASSES_ALL];
  lm_tcache_batch haul[LM_CLASSES_ALL];
} recall;

static void take_bins(lm_thread *t, void *ctx) {
  recall *r = ctx;
  lm_pool_bins *bins = &lm_pool_bins_of(t)->pool[r->place];
  if (r->n || !bins->listed) return;
  for (unsigned c = 0; c < LM_CLASSES_ALL; c++) {
    if (!lm_tcache_bin_is_open(&bins->bin[c])) continue;
    r->class_[r->n] = c;
    r->haul[r->n++] = lm_tcache_bin_close(bins, c);
  }
}

static void flush_bins_of_all_locked(lm_pool *pool) {
  recall r = { .place = lm_pools_place(pool->strategy) };
  do {
    r.n = 0;
    lm_thread_each(take_bins, &r);
    for (uint32_t i = 0; i < r.n; i++) lm_tcache_batch_return(pool, r.class_[i], &r.haul[i]);
  } while (r.n);
}

/* False if something of the pool is still about: an object that a thread took with it when it was
 * cancelled, or memory that the system does not take back. */
static bool drain_locked(lm_pool *pool) {
  bool drained = true;
  flush_bins_of_all_locked(pool);
  for (unsigned c = 0; c < LM_CLASSES; c++) drained = lm_central_drain(&pool->store[c]) && drained;
  lm_large_drain(&pool->large);
  return lm_regions_drain(&pool->regions) && drained;
}

static void end_locked(lm_strategy *strategy) {
  lm_pool *pool = lm_pools_at(strategy->id);
  if (pool && (atomic_load(&pool->users) || !drain_locked(pool))) return;
  lm_pools_forget_locked(strategy);
}

/* Of the strategies that there were when it began, those that are to stay. */
typedef struct roll {
  uint32_t count;
  uint8_t *stays;
} roll;

/* A share stays while a policy names the whole. */
static void keep_shares(const roll *r) {
  for (uint32_t id = 0; id < r->count; id++)
    if (r->stays[lm_strategy_whole(id)]) r->stays[id] = 1;
}

static void mark_live(void *ctx, const lm_object *object) {
  roll *r = ctx;
  if (object->strategy < r->count) r->stays[object->strategy] = 1;
}

/* Begins to close those that need not stay; whether there are any. */
static bool close_idle(const roll *r) {
  bool any = false;
  for (uint32_t id = 1; id < r->count; id++) {
    if (r->stays[id] || !lm_pools_place(lm_strategy_at(id))) continue;
    atomic_store(&lm_strategy_at(id)->retiring, LM_POOL_CLOSING);
    any = true;
  }
  return any;
}

static void end(lm_strategy *strategy) {
  lm_lock_take(&lm_pools_end_lock);
  lm_lock_take(&lm_pools_make_lock);
  end_locked(strategy);
  lm_lock_drop(&lm_pools_make_lock);
  lm_lock_drop(&lm_pools_end_lock);
  atomic_store(&strategy->retiring, LM_POOL_OPEN);
}

/* Ends those that nobody asked meanwhile and that have no live block. */
static void end_closing(const roll *r) {
  for (uint32_t id = 1; id < r->count; id++) {
    lm_strategy *strategy = lm_strategy_at(id);
    uint32_t closing = LM_POOL_CLOSING, next = r->stays[id] ? LM_POOL_OPEN : LM_POOL_CLOSED;
    if (atomic_compare_exchange_strong(&strategy->retiring, &closing, next) &&
        next == LM_POOL_CLOSED)
      end(strategy);
  }
}

/* Closed first, so that who asks from now on says so (reopen). After the grace nobody is amid an
 * operation on one that is still closing: what has no live block then gets none and frees none. */
void lm_retire_unused(const uint8_t *used, uint32_t n) {
  roll r = { .count = lm_strategy_count() };
  r.stays = lm_metadata_alloc(r.count);
  if (!r.stays) return;
  memcpy(r.stays, used, n < r.count ? n : r.count);
  keep_shares(&r);
  lm_walk_each(mark_live, &r);
  if (close_idle(&r)) {
    if (!lm_thread_grace()) memset(r.stays, 1, r.count);
    lm_walk_each(mark_live, &r);
    end_closing(&r);
  }
  lm_metadata_free(r.stays);
}
