/* start.h - whether loam is started, and the start that the first slow call makes. */
#ifndef LM_START_H
#define LM_START_H

#include <stdatomic.h>

#include "os/base.h"

/* While a start is made, lm_start_state is LM_START_STARTING plus LM_START_STATES times
 * lm_thread_forks (os/thread.h), which says whether this process or an ancestor makes it. */
enum { LM_START_COLD, LM_START_STARTING, LM_START_RUNNING, LM_START_STOPPED, LM_START_STATES };
extern _Atomic uint32_t lm_start_state __attribute__((visibility("hidden")));

LM_INLINE bool lm_start_is_running(void) {
  return atomic_load_explicit(&lm_start_state, memory_order_acquire) == LM_START_RUNNING;
}

/* Starts loam from the environment, unless a start was begun, or loam_stop was called. */
void lm_start_from_environment(void);

#endif
