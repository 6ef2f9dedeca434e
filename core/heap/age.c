/* age.c - how long large blocks have lived: rounds of dating. */
#include "heap/age.h"

#include "heap/strategy.h"
#include "os/decay.h"

_Atomic bool lm_age_idle = true;

/* The id in the state of a block that has a time. Ids of large blocks have no other meaning. */
enum { DATED = 1 };

/* The time in seconds, never 0, which means that a block has no time. */
static uint32_t now(void) { return (uint32_t)(lm_sys_clock_ns() / 1000000000) + 1; }

/* Tells whether a large block of plain memory begins at the slot. */
static bool is_large(uint32_t slot) {
  const lm_span *head = lm_map_span(slot);
  uint32_t strategy = atomic_load_explicit(&head->strategy, memory_order_relaxed);
  return lm_map_use_is_large(atomic_load_explicit(&head->use, memory_order_relaxed)) &&
         lm_strategy_at(strategy)->desc.kind == LM_KIND_HOST;
}

/* Returns whether the state of a large block cannot say that the block has a time. */
static bool is_undatable(lm_state state) {
  return state == LM_STATE_COUNTED || lm_state_is_sampled(state);
}

/* Gives a block its time, if it has none yet. Compare and exchange, so that a free at this moment
 * is not overwritten. Release pairs with the acquire in lm_age_of: the time is seen with the state.
 * If the time is written too late, it belongs to the block that follows, and that is as young. */
static void date(uint32_t slot, uint32_t time) {
  lm_span *head = lm_map_span(slot);
  _Atomic uint32_t *born = &lm_map.born[slot];
  lm_assert(time > 0);
  lm_state fresh = LM_STATE_LIVE + LM_ID_WIDE;
  lm_state state = atomic_load_explicit(&head->cell, memory_order_relaxed);
  if (state == fresh) {
    atomic_store_explicit(born, time, memory_order_relaxed);
    (void)atomic_compare_exchange_strong_explicit(&head->cell, &fresh, LM_STATE_LIVE + DATED,
                                                  memory_order_release, memory_order_relaxed);
  } else if (is_undatable(state) && !atomic_load_explicit(born, memory_order_relaxed)) {
    atomic_store_explicit(born, time, memory_order_relaxed);
  }
}

uint32_t lm_age_of(uint32_t slot) {
  lm_assert(slot);
  const lm_span *head = lm_map_span(slot);
  lm_state state = atomic_load_explicit(&head->cell, memory_order_acquire);
  uint32_t born = atomic_load_explicit(&lm_map.born[slot], memory_order_relaxed);
  bool dated = state == LM_STATE_LIVE + DATED || is_undatable(state);
  uint32_t time = now();
  return is_large(slot) && dated && born && time > born ? time - born : 0;
}

void lm_age_wake(void) {
  atomic_store_explicit(&lm_age_idle, false, memory_order_relaxed);
  lm_decay_stir();
}

/* The rounds are declared idle before the walk: a block that is made behind it then ends that. */
void lm_age_tick(void) {
  bool any = false;
  uint32_t time = now(), end = lm_map_end();
  atomic_store_explicit(&lm_age_idle, true, memory_order_relaxed);
  for (uint32_t slot = LM_MAP_FIRST; slot < end;) {
    uint32_t next = lm_map_next(slot);
    if (is_large(slot)) {
      date(slot, time);
      any = true;
    }
    slot = next > slot ? next : slot + 1;
  }
  if (any) atomic_store_explicit(&lm_age_idle, false, memory_order_relaxed);
}
