/* sweep.h - memory that nobody needs: threads give up bins that idle, and stores, regions and
 * loam's own memory give back what is free. */
#ifndef LM_SWEEP_H
#define LM_SWEEP_H

#include "os/thread.h"

/* Has threads give back what they cache of stores that have spans apart, and of pools that are
 * recalled: as far as that goes. */
void lm_sweep_recall(void);
/* Gives back to the system what holds no live object: what threads, stores and regions keep for
 * reuse. Bytes, in whole slots; what others gave back meanwhile too. The caller is not inside an
 * operation. */
size_t lm_sweep_trim(void);
/* A tick of decay.h, by the service thread: the same for what was not needed since the last one, in
 * a bounded amount. */
void lm_sweep_decay(void);

/* Pools' own: what a thread that was claimed does, and what a forked child does. */
void lm_sweep_claimed_thread(lm_thread *t);
void lm_sweep_fork_child(void);

#endif
