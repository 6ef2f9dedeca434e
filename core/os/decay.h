/* decay.h - when memory that is no longer used goes back to the system by itself.
 *
 * While pools keep free memory, the service thread ticks (lm_sweep_decay): each tick releases the
 * memory that was free throughout the last interval. While there is nothing to release, no thread
 * ticks. The first free that adds a MiB to the free memory then wakes the service thread. A thread
 * that frees memory loads one word, lm_decay_state:
 *
 *   ASLEEP    there is nothing to release; the service thread waits without a timeout
 *   TICKING   no memory became free since the latest tick began
 *   STIRRED   memory became free since then. In a process without a service thread the state stays
 *             STIRRED, and pages/regions.c and heap/central.c bound the free memory
 *
 * The load is relaxed, and still no free is missed. A thread calls lm_decay_stir after it dropped
 * the lock of the pool, and a tick takes that lock too. If the tick takes the lock later, the tick
 * finds the free memory. If the tick took the lock earlier, its TICKING was written before that, so
 * the load sees TICKING or a newer state. Only a pool that was made during a tick is not visited by
 * that tick; the next free in that pool is in time. */
#ifndef LM_DECAY_H
#define LM_DECAY_H

#include <stdatomic.h>

#include "os/base.h"

enum { LM_DECAY_ASLEEP, LM_DECAY_TICKING, LM_DECAY_STIRRED };
/* Free slots (together a MiB) of one kind in one pool that are worth waking the service thread. */
enum { LM_DECAY_MIN_SLOTS = 16 };

/* One of LM_DECAY_*. */
extern _Atomic uint32_t lm_decay_state;

/* For lm_decay_stir alone: sets STIRRED and wakes the service thread if the state was ASLEEP. */
void lm_decay_stir_slow(void);

/* Says that memory has become free. The caller may hold any lock, except those under which no other
 * lock is taken. */
LM_INLINE void lm_decay_stir(void) {
  if (lm_unlikely(atomic_load_explicit(&lm_decay_state, memory_order_relaxed) != LM_DECAY_STIRRED))
    lm_decay_stir_slow();
}

/* Sets the function that wakes the service thread. A thread that frees memory calls it, so it takes
 * only locks under which no other lock is taken. */
void lm_decay_set_wake(void (*wake)(void));

/* Returns whether a service thread ticked, or was woken to tick, in the last three seconds. */
bool lm_decay_is_served(void);

/* For the service thread: whether there is nothing to release, so that no tick is needed. */
bool lm_decay_is_asleep(void);

/* For the service thread: begins a tick, before it takes any lock of a pool. */
void lm_decay_begin(void);

/* For the service thread: ends a tick. `more` says that there is free memory which a later tick is
 * to release. Without it, and unless memory became free during the tick, the state becomes
 * ASLEEP. */
void lm_decay_end(bool more);

#endif
