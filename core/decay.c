/* decay.c - when memory that nobody uses any more goes back to the system by itself. */
#include "decay.h"

_Atomic uint32_t lm_decay_state __attribute__((aligned(LM_CACHE_LINE))) = LM_DECAY_ASLEEP;

static _Atomic(void (*)(void)) waker;

LM_NOINLINE void lm_decay_rouse(void) {
  uint32_t before = atomic_exchange_explicit(&lm_decay_state, LM_DECAY_STIRRED,
                                             memory_order_acq_rel);
  if (before != LM_DECAY_ASLEEP) return;
  void (*wake)(void) = atomic_load_explicit(&waker, memory_order_relaxed);
  if (wake) wake();
}

/* Before it starts, a service thread looks at the state, so none is waited for meanwhile. */
void lm_decay_wake_by(void (*wake)(void)) {
  atomic_store_explicit(&waker, wake, memory_order_relaxed);
}

bool lm_decay_is_asleep(void) {
  return atomic_load_explicit(&lm_decay_state, memory_order_relaxed) == LM_DECAY_ASLEEP;
}

void lm_decay_begin(void) {
  atomic_store_explicit(&lm_decay_state, LM_DECAY_TICKING, memory_order_relaxed);
}

void lm_decay_end(bool more) {
  uint32_t ticking = LM_DECAY_TICKING;
  if (!more)
    atomic_compare_exchange_strong_explicit(&lm_decay_state, &ticking, LM_DECAY_ASLEEP,
                                            memory_order_acq_rel, memory_order_relaxed);
}
