/* decay.h - when memory that is no longer used goes back to the system by itself.
 *
 * There are two ways. A process is served while a service thread ticks in it (lm_decay_is_served).
 * In other processes the threads that allocate and free give idle memory back themselves.
 *
 * With a service thread. While pools keep free memory, the service thread ticks (lm_sweep_decay):
 * each tick releases the memory that was free throughout the last interval (the decay of jemalloc).
 * While there is nothing to release, no thread ticks. The first free that adds a MiB to the free
 * memory then wakes the service thread. So does a bin that opens while the process has many threads
 * (lm_thread_are_many), because their bins may hold a MiB together.
 *
 * Without a service thread. A program may free its peak and then sleep, so most of the memory has
 * to go back during these frees. Free slots beyond a bound therefore go back in the free that
 * passes the bound (the trim threshold of glibc): pages/regions.c. Objects in bins and depots keep
 * the spans that they are in, so bins become narrower and the depot is given up while most objects
 * of a class are freed and none is allocated: heap/central.c. What a program frees and needs again
 * soon is given back once and then kept, because the bound learns from it. The rest goes back by
 * the clock: every LM_DECAY_CALLS slow calls of a thread it looks whether a tick is due, and then
 * does one step of the tick, of about half a millisecond (lm_sweep_poll). The tick also takes the
 * idle bins of threads that do nothing (heap/sweep.c). So while no thread of a process takes a slow
 * path, no more of its memory goes back. Memory of devices goes back in the
 * same two ways, by calls of the driver outside of active sections: device/device_idle.h.
 *
 * A thread that frees memory loads one word, lm_decay_state:
 *
 *   ASLEEP    there is nothing to release; the service thread waits without a timeout
 *   TICKING   no memory became free since the latest tick began
 *   STIRRED   memory became free since then
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
/* Slow calls of a thread (its bin was empty or full, or the block is large) from one look at the
 * clock to the next. A power of two. */
enum { LM_DECAY_CALLS = 16 };

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

/* Says that device memory or pinned memory has become free, like lm_decay_stir. In a process that
 * is not served, also sends the next operation of the calling thread to the slow path, where it may
 * call the driver (device/device_idle.h). Any lock may be held. */
void lm_decay_stir_devices(void);
/* Returns whether such memory became free since the last lm_decay_end_devices. */
bool lm_decay_has_devices(void);
void lm_decay_end_devices(void);

/* Sets the function that wakes the service thread, and returns false where there is none. A thread
 * that frees memory calls it, so it takes only locks under which no other lock is taken. */
void lm_decay_set_wake(bool (*wake)(void));

/* Returns whether the process keeps all free memory: the variable LOAM_KEEP is 1. Then no tick is
 * due and no free gives memory back. Memory goes back by loam_trim, by an alarm (os/pressure.h),
 * and where the system refuses more memory. Reads the environment once. */
bool lm_decay_keeps_all(void);

/* Returns whether a service thread ticked, or was woken to tick, in the last three seconds. True in
 * a process that keeps all free memory, so that threads do not give it back themselves. */
bool lm_decay_is_served(void);

/* Returns whether a thread that allocates or frees is to do a step of a tick now: the process is
 * not served, there is something to release, and lm_decay_wait set a time that has passed. */
bool lm_decay_is_due(void);
/* The next step is due `wait_ns` nanoseconds from now. */
void lm_decay_wait(int64_t wait_ns);

/* Returns whether there is nothing to release, or all is kept, so that no tick is needed. */
bool lm_decay_is_asleep(void);

/* Notes that a service thread ticks at the time `now_ns` (lm_sys_clock_ns). A test may pass a time
 * in the future: the process then counts as served until three seconds after that time. */
void lm_decay_note_served(int64_t now_ns);
/* Notes that there is no service thread: in a forked child, or in a test. */
void lm_decay_note_unserved(void);

/* Begins a tick. The caller is the thread that ticks, and takes the locks of the pools later. */
void lm_decay_begin(void);

/* Ends a tick. `more` says that there is free memory which a later tick is to release. Without it,
 * and unless memory became free during the tick, the state becomes ASLEEP. */
void lm_decay_end(bool more);

#endif
