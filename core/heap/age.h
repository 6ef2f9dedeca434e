/* age.h - how long large blocks have lived, at no cost to whoever allocates.
 *
 * A block that a thread takes has the mark LIVE + LM_ID_WIDE, whether it is new or comes from a bin
 * (pool.h, large.c). A round of dating, which the service thread makes now and then, gives those
 * the time and the mark LIVE + DATED; so what has been taken since is told by its mark. Blocks of
 * counted tags, whose marks are COUNTED, never come from bins: there it is told by the time, which
 * large.c resets. So an age is never more than the truth, and at most a round less. */
#ifndef LM_AGE_H
#define LM_AGE_H

#include "pages/map.h"

enum { LM_AGE_ROUND_MS = 10000 };

/* No round is needed: there were no large blocks at the last one, and none has been made since. */
extern _Atomic bool lm_age_idle;
LM_INLINE bool lm_age_is_idle(void) {
  return atomic_load_explicit(&lm_age_idle, memory_order_relaxed);
}
/* Wakes who makes the rounds. */
void lm_age_wake(void);

/* Of a block that is made, or is another now. */
LM_INLINE void lm_age_reset(uint32_t slot) {
  atomic_store_explicit(&lm_map.born[slot], 0, memory_order_relaxed);
  if (lm_unlikely(lm_age_is_idle())) lm_age_wake();
}

/* Seconds that the large block at a slot has lived; 0: less than a round, or not dated. */
uint32_t lm_age_of(uint32_t slot);
/* A round. */
void lm_age_tick(void);

#endif
