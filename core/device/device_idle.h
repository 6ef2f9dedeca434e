/* device_idle.h - gives device memory and pinned memory back to the driver in a process without a
 * service thread (os/decay.h).
 *
 * A thread that frees such memory may be in an active section, where no driver may be called. So it
 * sets LM_SLOW_DEVICES for itself, and its next operation comes here: gives back what is beyond a
 * bound, so that a program which frees its peak and then sleeps keeps little of it. Every 250 ms,
 * one of the threads that free or allocate does a tick of decay here as well. */
#ifndef LM_DEVICE_IDLE_H
#define LM_DEVICE_IDLE_H

#include "os/thread.h"

/* Clears LM_SLOW_DEVICES, and gives back what can be given back now. Keeps errno. The thread is not
 * in an active section; it may be in a guarded section, which is left during the calls. */
void lm_device_idle_give_back(lm_thread *t);

/* Calls lm_device_idle_give_back if the thread has the reason for it. `t` may be NULL. For slow
 * paths. */
LM_INLINE void lm_device_idle_poll(lm_thread *t) {
  if (lm_unlikely(t &&
                  atomic_load_explicit(&t->slow_reasons, memory_order_relaxed) & LM_SLOW_DEVICES))
    lm_device_idle_give_back(t);
}

#endif
