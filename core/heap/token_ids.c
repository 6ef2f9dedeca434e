/* token_ids.c - places of common tokens that are nobody's any more.
 *
 * A place is closed, then a grace is waited for: whoever was assigned its id has stored the mark by
 * then, and nobody is any more; and no thread has a lane with it, since it is of a generation gone
 * by. All spans are gone through twice, each under its store's lock, where tokens are replaced and
 * what is CACHED becomes FREE, or FREE CACHED. First for the ids of LIVE marks: those stay. The
 * others are taken from the dead marks that have them: by compare and exchange, since a thread may
 * take what it has cached. What no mark has is vacant then.
 *
 * A span that comes meanwhile has no mark with an id that is closed. */
#include "heap/token_ids.h"

#include "heap/central.h"
#include "heap/pools.h"
#include "pages/map.h"

/* `ctx` is the ids that may be vacated yet. */
static void keep_live(void *ctx, lm_state_cell *side, uint32_t count) {
  uint64_t *ids = ctx;
  for (uint32_t i = 0; i < count; i++) {
    lm_state mark = atomic_load_explicit(&side[i], memory_order_relaxed);
    if (!lm_state_is_free(mark) && !lm_state_is_cached(mark))
      *ids &= ~((uint64_t)1 << mark % LM_STATE_IDS);
  }
}

static void forget_dead(void *ctx, lm_state_cell *side, uint32_t count) {
  const uint64_t *ids = ctx;
  for (uint32_t i = 0; i < count; i++) {
    lm_state mark = atomic_load_explicit(&side[i], memory_order_relaxed);
    lm_state nobodys = lm_state_is_free(mark) ? LM_STATE_FREE : LM_STATE_CACHED;
    if (*ids >> mark % LM_STATE_IDS & 1 && (lm_state_is_free(mark) || lm_state_is_cached(mark)))
      (void)atomic_compare_exchange_strong_explicit(&side[i], &mark, nobodys, memory_order_relaxed,
                                                    memory_order_relaxed);
  }
}

static bool is_small(uint32_t slot) {
  return atomic_load_explicit(&lm_map_span(slot)->use, memory_order_relaxed) == LM_USE_SMALL;
}

/* False: there is a span of which nothing is known. It may go to another store meanwhile. */
static bool look_at(uint32_t slot, lm_central_look_fn *look, void *ctx) {
  const lm_span *span = lm_map_span(slot);
  for (int tries = 0; is_small(slot); tries++) {
    uint32_t bin = atomic_load_explicit(&span->bin, memory_order_relaxed);
    lm_pool *pool = lm_pools_at(atomic_load_explicit(&span->strategy, memory_order_relaxed));
    if (bin && pool &&
        lm_central_show_states(&pool->store[lm_tcache_bin_class(bin)], slot, look, ctx))
      return true;
    if (tries == LM_MAP_RETRIES) return false;
    lm_sys_yield();
  }
  return true;
}

static bool look_at_all(lm_central_look_fn *look, void *ctx) {
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_acquire);
  uint32_t end = (uint32_t)(top >> LM_SLOT_SHIFT);
  for (uint32_t slot = lm_map_first(); slot < end;) {
    uint32_t next = lm_map_next(slot); /* of the extent seen here or an older one */
    if (!look_at(slot, look, ctx)) return false;
    slot = next > slot ? next : slot + 1;
  }
  return true;
}

void lm_token_ids_reclaim(lm_state_wanted_fn *is_wanted) {
  uint64_t ids = lm_state_idle_ids(is_wanted);
  if (!ids) return;
  lm_state_close_ids(ids);
  bool done = lm_thread_grace();
  lm_lock_take(&lm_pools_end_lock);
  done = done && look_at_all(keep_live, &ids) && (!ids || look_at_all(forget_dead, &ids));
  lm_lock_drop(&lm_pools_end_lock);
  lm_state_vacate_ids(done ? ids : 0);
}
