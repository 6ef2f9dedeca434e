/* decay.c - when memory that is no longer used goes back to the system by itself: the state that
 * decay.h describes, and who is woken. */
#include "os/decay.h"

#include "os/sys.h"

_Atomic uint32_t lm_decay_state __attribute__((aligned(LM_CACHE_LINE))) = LM_DECAY_ASLEEP;

/* Wakes the service thread; NULL: there is none yet. Relaxed: the service thread looks at the state
 * before it waits for the first time, so a thread that misses the new function loses nothing. */
static _Atomic(void (*)(void)) waker;

/* When the service thread was last woken for a tick, or ticked. Relaxed: a time alone. Ticks are a
 * quarter of a second apart, so a service thread that is silent for SERVED_NS is not there. */
static _Atomic int64_t served_at_ns;
#define SERVED_NS 3000000000

static void note_served(void) {
  atomic_store_explicit(&served_at_ns, lm_sys_clock_ns(), memory_order_relaxed);
}

LM_NOINLINE void lm_decay_stir_slow(void) {
  uint32_t before = atomic_exchange_explicit(&lm_decay_state, LM_DECAY_STIRRED,
                                             memory_order_acq_rel);
  lm_assert(before <= LM_DECAY_STIRRED);
  if (before != LM_DECAY_ASLEEP) return;
  note_served();
  void (*wake)(void) = atomic_load_explicit(&waker, memory_order_relaxed);
  if (wake) wake();
}

void lm_decay_set_wake(void (*wake)(void)) {
  atomic_store_explicit(&waker, wake, memory_order_relaxed);
}

bool lm_decay_is_served(void) {
  return lm_sys_clock_ns() - atomic_load_explicit(&served_at_ns, memory_order_relaxed) < SERVED_NS;
}

bool lm_decay_is_asleep(void) {
  return atomic_load_explicit(&lm_decay_state, memory_order_relaxed) == LM_DECAY_ASLEEP;
}

/* The store is ordered before the tick's reads of the pools by the locks that the tick takes. */
void lm_decay_begin(void) {
  note_served();
  atomic_store_explicit(&lm_decay_state, LM_DECAY_TICKING, memory_order_relaxed);
}

/* Fails, and so keeps STIRRED, if memory became free during the tick. The exchange in
 * lm_decay_stir_slow and this one are on one object, so one of the two comes first. */
void lm_decay_end(bool more) {
  uint32_t ticking = LM_DECAY_TICKING;
  if (!more)
    atomic_compare_exchange_strong_explicit(&lm_decay_state, &ticking, LM_DECAY_ASLEEP,
                                            memory_order_acq_rel, memory_order_relaxed);
}
