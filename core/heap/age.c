/* age.c - how long large blocks have lived: rounds of dating. */
#include "heap/age.h"

#include "heap/strategy.h"
#include "os/decay.h"

_Atomic bool lm_age_idle = true;

/* The id that says so, in marks of large blocks, where ids mean nothing else. */
enum { DATED = 1 };

/* Seconds, from 1 on: 0 is no time. */
static uint32_t now(void) { return (uint32_t)(lm_sys_clock_ns() / 1000000000) + 1; }

/* Of plain memory. */
static bool is_large(uint32_t slot) {
  const lm_span *head = lm_map_span(slot);
  uint32_t strategy = atomic_load_explicit(&head->strategy, memory_order_relaxed);
  return lm_map_use_is_large(atomic_load_explicit(&head->use, memory_order_relaxed)) &&
         lm_strategy_at(strategy)->desc.kind == LM_KIND_HOST;
}

/* By compare and exchange: whoever frees the block at this moment may lose our mark, not we his. A
 * time that is written late is as young as the block that took the place. */
static void date(uint32_t slot, uint32_t time) {
  lm_span *head = lm_map_span(slot);
  _Atomic uint32_t *born = &lm_map.born[slot];
  lm_state fresh = LM_STATE_LIVE + LM_ID_WIDE, none = LM_STATE_COUNTED;
  lm_state mark = atomic_load_explicit(&head->mark, memory_order_relaxed);
  if (mark == fresh) {
    atomic_store_explicit(born, time, memory_order_relaxed);
    (void)atomic_compare_exchange_strong_explicit(&head->mark, &fresh, LM_STATE_LIVE + DATED,
                                                  memory_order_release, memory_order_relaxed);
  } else if (mark == none && !atomic_load_explicit(born, memory_order_relaxed)) {
    atomic_store_explicit(born, time, memory_order_relaxed);
  }
}

uint32_t lm_age_of(uint32_t slot) {
  const lm_span *head = lm_map_span(slot);
  lm_state mark = atomic_load_explicit(&head->mark, memory_order_acquire);
  uint32_t born = atomic_load_explicit(&lm_map.born[slot], memory_order_relaxed);
  bool dated = mark == LM_STATE_LIVE + DATED || mark == LM_STATE_COUNTED;
  uint32_t time = now();
  return is_large(slot) && dated && born && time > born ? time - born : 0;
}

void lm_age_wake(void) {
  atomic_store_explicit(&lm_age_idle, false, memory_order_relaxed);
  lm_decay_stir();
}

/* Idle before the walk: a block that is made behind it says otherwise. */
void lm_age_tick(void) {
  bool any = false;
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_acquire);
  uint32_t time = now(), end = (uint32_t)(top >> LM_SLOT_SHIFT);
  atomic_store_explicit(&lm_age_idle, true, memory_order_relaxed);
  for (uint32_t slot = lm_map_first(); slot < end;) {
    uint32_t next = lm_map_next(slot);
    if (is_large(slot)) {
      date(slot, time);
      any = true;
    }
    slot = next > slot ? next : slot + 1;
  }
  if (any) atomic_store_explicit(&lm_age_idle, false, memory_order_relaxed);
}
