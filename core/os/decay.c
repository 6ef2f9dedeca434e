/* decay.c - when memory that nobody uses any more goes back to the system by itself. */
#include "os/decay.h"

#include "os/sys.h"

_Atomic uint32_t lm_decay_state __attribute__((aligned(LM_CACHE_LINE))) = LM_DECAY_ASLEEP;

static _Atomic(void (*)(void)) waker;
/* When somebody was last woken, or ticked. Ticks are a quarter of a second apart. */
static _Atomic int64_t heard_ns;
#define PATIENCE_NS 3000000000

static void note_now(void) {
  atomic_store_explicit(&heard_ns, lm_sys_clock_ns(), memory_order_relaxed);
}

LM_NOINLINE void lm_decay_stir_slow(void) {
  uint32_t before = atomic_exchange_explicit(&lm_decay_state, LM_DECAY_STIRRED,
                                             memory_order_acq_rel);
  if (before != LM_DECAY_ASLEEP) return;
  note_now();
  void (*wake)(void) = atomic_load_explicit(&waker, memory_order_relaxed);
  if (wake) wake();
}

/* Before it starts, a service thread looks at the state, so none is waited for meanwhile. */
void lm_decay_set_wake(void (*wake)(void)) {
  atomic_store_explicit(&waker, wake, memory_order_relaxed);
}

bool lm_decay_is_served(void) {
  return lm_sys_clock_ns() - atomic_load_explicit(&heard_ns, memory_order_relaxed) < PATIENCE_NS;
}

bool lm_decay_is_asleep(void) {
  return atomic_load_explicit(&lm_decay_state, memory_order_relaxed) == LM_DECAY_ASLEEP;
}

void lm_decay_begin(void) {
  note_now();
  atomic_store_explicit(&lm_decay_state, LM_DECAY_TICKING, memory_order_relaxed);
}

void lm_decay_end(bool more) {
  uint32_t ticking = LM_DECAY_TICKING;
  if (!more)
    atomic_compare_exchange_strong_explicit(&lm_decay_state, &ticking, LM_DECAY_ASLEEP,
                                            memory_order_acq_rel, memory_order_relaxed);
}
