/* soft_limit.h - tells the host that a strategy has passed its soft limit.
 *
 * A request passes the soft limit in the middle of an allocation, where locks are held and the host
 * cannot be called. So heap/strategy.c notes it in the strategy. The thread that ends its slow call
 * next tells the host; in most cases that is the call which passed the soft limit. */
#ifndef LM_SOFT_LIMIT_H
#define LM_SOFT_LIMIT_H

#include "heap/strategy.h"
#include "os/thread.h"

/* Tells every strategy whose soft limit was passed and not yet told, as LOAM_EVENT_SOFT_LIMIT. The
 * host's callback may allocate and free. Keeps errno. */
void lm_soft_limit_tell(void);

/* lm_soft_limit_tell, if there may be such a strategy. A request of foreign code that loam calls
 * tells nothing, because loam may hold locks there. The calling thread is not active. */
LM_INLINE void lm_soft_limit_poll(void) {
  const lm_thread *t = lm_thread_self;
  if (lm_unlikely(lm_load(uint32_t, &lm_strategy_soft_passed)) && t && !t->inside)
    lm_soft_limit_tell();
}

#endif
