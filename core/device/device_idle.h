/* device_idle.h - gives device memory and pinned memory back to the driver in a process without a
 * service thread (os/decay.h).
 *
 * A thread that frees such memory may be in an active section, where no driver may be called. So it
 * sets LM_SLOW_DEVICES for itself, and its next operation comes here. The thread then gives back
 * the free memory beyond a bound, so a program that frees its peak and then sleeps keeps little of
 * the peak. Every 250 ms, one of the threads that free or allocate also does a tick of decay
 * here. */
#ifndef LM_DEVICE_IDLE_H
#define LM_DEVICE_IDLE_H

#include "os/thread.h"

/* Clears LM_SLOW_DEVICES, and gives back what can be given back now. Keeps errno. The thread is not
 * in an active section; it may be in a guarded section, which is left during the calls. */
void lm_device_idle_give_back(lm_thread *t);

/* Calls lm_device_idle_give_back if the thread has the reason for it. `t` may be NULL. Slow paths
 * call this function. */
LM_INLINE void lm_device_idle_poll(lm_thread *t) {
  if (lm_unlikely(t &&
                  atomic_load_explicit(&t->slow_reasons, memory_order_relaxed) & LM_SLOW_DEVICES))
    lm_device_idle_give_back(t);
}

#endif
