/* chores.h - the periodic work of the service thread: decay of idle memory, memory pressure, gauges
 * of NUMA nodes, the age of large blocks, dead holders of shared limits, and moving live memory to
 * follow the policy.
 *
 * Only the service thread calls lm_chores_run, lm_chores_timeout_ms and lm_chores_end. */
#ifndef LM_CHORES_H
#define LM_CHORES_H

#include "os/base.h"

/* Does the work that is due now. A step of moving memory is short, so clients do not wait long. */
void lm_chores_run(void);
/* The time until work is due, in ms, if that is earlier than `timeout_ms`; else `timeout_ms`. As
 * for poll(2), -1 stands for no timeout. */
int lm_chores_timeout_ms(int timeout_ms);
/* Ends the work, because the service thread ends. A block that is half moved is brought back. */
void lm_chores_end(void);
/* Forgets the work of the service thread, which a forked child does not have. */
void lm_chores_fork_child(void);

/* Asks for live memory to be moved to where the live policy wants it. Any thread may call it. */
void lm_chores_want_applying(void);
/* The live policy leaves live blocks where they are: ends the moving that an earlier policy asked
 * for. Any thread may call it. */
void lm_chores_end_applying(void);
/* Tells whether lm_chores_want_applying was called and the moving has not begun yet. */
bool lm_chores_has_applying(void);

/* The earlier of two timeouts in ms: `a`, where -1 stands for none, and `b`, where a time in the
 * past counts as 0. */
LM_INLINE int lm_chores_earlier_ms(int a, int64_t b) {
  return a < 0 || b < a ? (int)(b < 0 ? 0 : b) : a;
}

#endif
