/* start.h - whether loam is started, and the start that the first slow call makes. */
#ifndef LM_START_H
#define LM_START_H

#include <stdatomic.h>

#include "os/base.h"

/* While a start is made, lm_start_state is LM_START_STARTING plus LM_START_STATES times the id of
 * the process that makes it. */
enum { LM_START_COLD, LM_START_STARTING, LM_START_RUNNING, LM_START_STOPPED, LM_START_STATES };
extern _Atomic uint32_t lm_start_state __attribute__((visibility("hidden")));

LM_INLINE bool lm_start_is_running(void) {
  return atomic_load_explicit(&lm_start_state, memory_order_relaxed) == LM_START_RUNNING;
}

/* Starts loam from the environment if nothing has started it. Then it revives the service thread in
 * a forked child, obeys a policy that was published, writes figures to the board, gives memory back
 * under memory pressure, and does the frees that were noted during a fork. Every slow request calls
 * this function first. Keeps errno. Any thread may call it, while not active. */
void lm_start_awake(void);

#endif
