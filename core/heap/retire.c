/* retire.c - ends the pools of strategies that no policy names and that hold no live block. */
#include "heap/retire.h"

#include <string.h>

#include "heap/pools.h"
#include "heap/tcache_slow.h"
#include "heap/walk.h"

/* The objects that one thread had in its bins of one pool. The bins are emptied a thread at a time,
 * because the list of threads is locked below the central lists: batches are returned after that
 * lock was released. No thread is in an operation on the pool. Law: n <= LM_CLASSES_ALL. */
typedef struct recall {
  uint32_t place, n;
  unsigned class_[LM_CLASSES_ALL];
  lm_tcache_batch batch[LM_CLASSES_ALL];
} recall;

LM_INLINE bool recall_is_valid(const recall *r) { return r->n <= LM_CLASSES_ALL; }

static void take_bins(lm_thread *t, void *ctx) {
  recall *r = ctx;
  lm_pool_bins *bins = &lm_tcache_of(t)->pool[r->place];
  if (r->n || !bins->listed) return;
  for (unsigned c = 0; c < LM_CLASSES_ALL; c++) {
    if (!lm_tcache_bin_is_open(&bins->bin[c])) continue;
    r->class_[r->n] = c;
    r->batch[r->n++] = lm_tcache_bin_close(bins, c);
  }
  lm_assert(recall_is_valid(r));
}

static void flush_bins_of_all_locked(lm_pool *pool) {
  lm_assert(lm_pools_place(pool->strategy));
  recall r = { .place = lm_pools_place(pool->strategy) };
  do {
    r.n = 0;
    lm_thread_each(take_bins, &r);
    for (uint32_t i = 0; i < r.n; i++) lm_tcache_batch_return(pool, r.class_[i], &r.batch[i]);
  } while (r.n);
}

/* Gives back all memory of a pool. False: some is left, because a thread was cancelled while it
 * held an object, or because the system refuses to take memory back. */
static bool drain_locked(lm_pool *pool) {
  bool drained = true;
  flush_bins_of_all_locked(pool);
  for (unsigned c = 0; c < LM_CLASSES; c++)
    drained = lm_central_drain(&pool->central[c]) && drained;
  lm_large_drain(&pool->large);
  return lm_regions_drain(&pool->regions) && drained;
}

static void end_locked(lm_strategy *strategy) {
  lm_assert(atomic_load(&strategy->retiring) == LM_POOL_CLOSED);
  lm_pool *pool = lm_pools_at(strategy->id);
  if (pool && (atomic_load(&pool->users) || !drain_locked(pool))) return;
  lm_pools_forget_locked(strategy);
}

/* The strategies that stay, of those that existed at lm_retire_begin.
 * Law: `stays` has `count` bytes; both are 0 while no retirement has begun. */
typedef struct roll {
  uint32_t count;
  uint8_t *stays;
} roll;

LM_INLINE bool roll_is_valid(const roll *r) { return !r->stays == !r->count; }

static roll begun;

/* Keeps the shares and twins of strategies that a policy names. */
static void keep_parts(const roll *r) {
  for (uint32_t id = 0; id < r->count; id++)
    if (r->stays[lm_strategy_whole(id)]) r->stays[id] = 1;
}

/* Keeps the strategy of live objects: a lm_walk_count. */
static void keep_live(void *ctx, uint32_t strategy, size_t size, uint32_t n) {
  roll *r = ctx;
  (void)size;
  (void)n;
  if (strategy < r->count) r->stays[strategy] = 1;
}

/* Begins to close the strategies that need not stay. True: there are some. */
static bool close_idle(const roll *r) {
  bool any = false;
  for (uint32_t id = 1; id < r->count; id++) {
    if (r->stays[id] || !lm_pools_place(lm_strategy_at(id))) continue;
    atomic_store(&lm_strategy_at(id)->retiring, LM_POOL_CLOSING);
    any = true;
  }
  return any;
}

/* Ends the pool of a closed strategy, if it can be emptied, and opens the strategy again. */
static void end(lm_strategy *strategy) {
  lm_lock_take(&lm_pools_end_lock);
  lm_lock_take(&lm_pools_make_lock);
  end_locked(strategy);
  lm_lock_drop(&lm_pools_make_lock);
  lm_lock_drop(&lm_pools_end_lock);
  atomic_store(&strategy->retiring, LM_POOL_OPEN);
}

/* Ends the strategies that got no request since they began to close and that hold no live block. A
 * strategy is closed and opened again in one guarded section: a forked child would otherwise wait
 * for ever for the thread that opens it. */
static void end_closing(const roll *r) {
  for (uint32_t id = 1; id < r->count; id++) {
    lm_strategy *strategy = lm_strategy_at(id);
    uint32_t closing = LM_POOL_CLOSING, next = r->stays[id] ? LM_POOL_OPEN : LM_POOL_CLOSED;
    lm_lock_hold_cancel();
    if (atomic_compare_exchange_strong(&strategy->retiring, &closing, next) &&
        next == LM_POOL_CLOSED)
      end(strategy);
    lm_lock_allow_cancel();
  }
}

/* Strategies begin to close first, so that a later request opens them again (lm_pools_make). After
 * the first grace no thread is in an operation that allocates from a strategy that is still
 * closing. So a strategy without a live block has none from then on. A thread may be freeing its
 * last block, and the second grace waits for that thread. */
bool lm_retire_begin(const uint8_t *used, uint32_t n) {
  lm_assert(used || n == 0);
  lm_retire_end(false);
  roll r = { .count = lm_strategy_count() };
  r.stays = lm_metadata_alloc(r.count);
  if (!r.stays) return false;
  if (n) memcpy(r.stays, used, n < r.count ? n : r.count);
  keep_parts(&r);
  if (close_idle(&r)) begun = r;
  else lm_metadata_free(r.stays);
  lm_assert(roll_is_valid(&begun));
  return begun.stays;
}

void lm_retire_look(void) {
  if (begun.stays) lm_walk_counts(keep_live, &begun);
}

void lm_retire_keep(const uint8_t *used, uint32_t n) {
  for (uint32_t id = 0; id < begun.count && id < n; id++) begun.stays[id] |= used[id];
  keep_parts(&begun);
}

void lm_retire_end(bool is_safe) {
  if (!begun.stays) return;
  if (!is_safe) memset(begun.stays, 1, begun.count);
  end_closing(&begun);
  uint8_t *stays = begun.stays;
  begun = (roll){ 0 }; /* before the free: a child that is forked in between frees nothing again */
  lm_metadata_free(stays);
}

void lm_retire_unused(const uint8_t *used, uint32_t n) {
  if (!lm_retire_begin(used, n)) return;
  bool is_safe = lm_thread_grace();
  lm_retire_look();
  lm_retire_end(is_safe && lm_thread_grace());
}
