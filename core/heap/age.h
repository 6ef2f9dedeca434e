/* age.h - how long large blocks have lived, at no cost for the threads that allocate.
 *
 * A block that a thread takes has the state LIVE + LM_ID_WIDE, whether it is new or comes from a
 * bin (tcache.h, large.c). Now and then the service thread makes a round: it gives each such block
 * the time and the state LIVE + DATED. So the state tells which blocks were taken since the last
 * round. Blocks with a counted token have the state COUNTED. For those the time alone tells, so a
 * thread that takes one resets its time, also if the block comes from a bin. An age is never more
 * than the truth, and less by one round at most. */
#ifndef LM_AGE_H
#define LM_AGE_H

#include "pages/map.h"

enum { LM_AGE_ROUND_MS = 10000 };

/* True while no round is needed: the last round found no large block, and none was made since.
 * Relaxed: a block that is missed is dated by the next round. */
extern _Atomic bool lm_age_idle;
LM_INLINE bool lm_age_is_idle(void) {
  return atomic_load_explicit(&lm_age_idle, memory_order_relaxed);
}
/* Makes the service thread do rounds again. Any thread. */
void lm_age_wake(void);

/* Begins the age of the block at a slot again, because it is new or became another block. Relaxed,
 * as all accesses to the times. */
LM_INLINE void lm_age_reset(uint32_t slot) {
  lm_assert(slot);
  atomic_store_explicit(&lm_map.born[slot], 0, memory_order_relaxed);
  if (lm_unlikely(lm_age_is_idle())) lm_age_wake();
}

/* The seconds that the large block at a slot has lived; 0: less than a round, or not known. */
uint32_t lm_age_of(uint32_t slot);
/* Makes a round over all large blocks. The calling thread holds no lock of pools. */
void lm_age_tick(void);

#endif
