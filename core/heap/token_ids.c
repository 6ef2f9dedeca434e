/* token_ids.c - takes back ids of common tokens that no live object needs.
 *
 * The ids are closed first, and a grace is waited for. By then every thread that was assigned such
 * an id has stored the state, and no thread is assigned one any more. No decision cache has such an
 * id either, because it is of an older generation.
 *
 * Then all spans are visited twice, each under the lock of its central list. That lock is also held
 * where tokens are replaced, where CACHED becomes FREE, and where FREE becomes CACHED. The first
 * visit looks for LIVE states: their ids stay. The second visit takes the other ids from the states
 * of dead objects, by compare and exchange, because a thread may take an object that it has cached.
 * Ids that no state has are vacant then.
 *
 * A span that is made during this has no state with a closed id. */
#include "heap/token_ids.h"

#include "heap/central.h"
#include "heap/pools.h"
#include "heap/tcache_slow.h"
#include "pages/map.h"

/* Takes the ids of live objects out of the set at `ctx`. */
static void keep_live(void *ctx, lm_state_cell *states, uint32_t count) {
  uint64_t *ids = ctx;
  for (uint32_t i = 0; i < count; i++) {
    lm_state state = atomic_load_explicit(&states[i], memory_order_relaxed);
    if (!lm_state_is_free(state) && !lm_state_is_cached(state))
      *ids &= ~((uint64_t)1 << state % LM_STATE_IDS);
  }
}

/* Takes the ids of the set at `ctx` from the states of dead objects. */
static void forget_dead(void *ctx, lm_state_cell *states, uint32_t count) {
  const uint64_t *ids = ctx;
  for (uint32_t i = 0; i < count; i++) {
    lm_state state = atomic_load_explicit(&states[i], memory_order_relaxed);
    lm_state without_id = lm_state_is_free(state) ? LM_STATE_FREE : LM_STATE_CACHED;
    if (*ids >> state % LM_STATE_IDS & 1 && (lm_state_is_free(state) || lm_state_is_cached(state)))
      (void)atomic_compare_exchange_strong_explicit(&states[i], &state, without_id,
                                                    memory_order_relaxed, memory_order_relaxed);
  }
}

static bool is_small(uint32_t slot) {
  return atomic_load_explicit(&lm_map_span(slot)->use, memory_order_relaxed) == LM_USE_SMALL;
}

/* Calls `look` for the states of the span at `slot`, if there is one. The span may go to another
 * central list at any moment, so this is tried again. False: the span could not be looked at. */
static bool look_at(uint32_t slot, lm_central_look_fn *look, void *ctx) {
  const lm_span *span = lm_map_span(slot);
  for (int tries = 0; is_small(slot); tries++) {
    uint32_t bin = atomic_load_explicit(&span->bin, memory_order_relaxed);
    lm_pool *pool = lm_pools_at(atomic_load_explicit(&span->strategy, memory_order_relaxed));
    if (bin && pool &&
        lm_central_show_states(&pool->central[lm_tcache_bin_class(bin)], slot, look, ctx))
      return true;
    if (tries == LM_MAP_RETRIES) return false;
    lm_sys_wait_a_little(tries);
  }
  return true;
}

static bool look_at_all(lm_central_look_fn *look, void *ctx) {
  for (uint32_t slot = LM_MAP_FIRST, end = lm_map_end(); slot < end;) {
    uint32_t next = lm_map_next(slot); /* the length of the extent seen here, or an older one */
    if (!look_at(slot, look, ctx)) return false;
    slot = next > slot ? next : slot + 1;
  }
  return true;
}

void lm_token_ids_reclaim(lm_state_wanted_fn *is_wanted) {
  uint64_t ids = lm_state_idle_ids(is_wanted);
  if (!ids) return;
  lm_assert(!(ids & lm_state_vacant_ids()));
  lm_state_close_ids(ids);
  bool done = lm_thread_grace();
  lm_lock_take(&lm_pools_end_lock);
  done = done && look_at_all(keep_live, &ids) && (!ids || look_at_all(forget_dead, &ids));
  lm_lock_drop(&lm_pools_end_lock);
  lm_state_vacate_ids(done ? ids : 0);
}
