/* decay.h - when memory that nobody uses any more goes back to the system by itself.
 *
 * While there is such memory, the service thread ticks: it releases what was free throughout an
 * interval (lm_sweep_decay). Nobody ticks where nothing is to be had, so the first put of a MiB
 * that finds it asleep wakes it. To everyone else this is one load of one word, on paths that just
 * gave back a lock:
 *
 *   ASLEEP    nothing to release; the thread waits without a timeout
 *   TICKING   nothing was put since the last tick began
 *   STIRRED   something was; also where there is no service thread, and then for good: what is
 *             kept is bounded all the same (region.c, central.c)
 *
 * No put is missed, though it loads without an ordering of its own. Either the tick takes the put's
 * lock later and finds what was put; or earlier, and then its TICKING, written before it took any
 * lock, is what the load sees, or something newer. Only a pool made amid a tick is not looked at
 * in it; its next put is in time. */
#ifndef LM_DECAY_H
#define LM_DECAY_H

#include <stdatomic.h>

#include "os/base.h"

enum { LM_DECAY_ASLEEP, LM_DECAY_TICKING, LM_DECAY_STIRRED };
/* Slots (a MiB) of one kind in one pool that are worth waking somebody for. */
enum { LM_DECAY_MIN_SLOTS = 16 };

extern _Atomic uint32_t lm_decay_state;

void lm_decay_stir_slow(void);

/* More has become free. Any lock but a leaf may be held. */
LM_INLINE void lm_decay_stir(void) {
  if (lm_unlikely(atomic_load_explicit(&lm_decay_state, memory_order_relaxed) != LM_DECAY_STIRRED))
    lm_decay_stir_slow();
}

/* What wakes the service thread; called by whoever frees, so it takes leaf locks only. */
void lm_decay_set_wake(void (*wake)(void));

/* Whether somebody ticked of late, or was just woken to. */
bool lm_decay_is_served(void);

/* The service thread's: whether a tick is wanted at all, and what stands around each. */
bool lm_decay_is_asleep(void);
void lm_decay_begin(void);
/* `more`: something will be old enough at a later tick. */
void lm_decay_end(bool more);

#endif
