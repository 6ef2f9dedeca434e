/* sampled.h - how the small objects that the profiler samples are allocated and freed.
 *
 * The fast paths of malloc and free refuse such an object: its entry of the decision cache has
 * served all blocks before it, and its state is SAMPLED (engine/sample.h). Without these functions
 * the slow paths would serve and free it. They do that right, but take several times as long. */
#ifndef LM_SAMPLED_H
#define LM_SAMPLED_H

#include "engine/decision.h"

/* Serves a small request whose entry holds and has served all blocks that come before the next
 * sample: takes an object, notes it as a sample, and draws how many blocks the entry may serve now.
 * Returns NULL, and has done nothing, if there is no such entry, if its bin is empty, or if
 * lm_decision_make must count the entry's blocks first. The thread is not active. */
void *lm_sampled_serve(lm_thread *t, lm_decision_key k);

/* Serves a small request for which lm_decision_serve returned NULL and set *holds: as
 * lm_decision_refill does, or as lm_sampled_serve does if that returns NULL. The thread is not
 * active. */
LM_INLINE void *lm_sampled_or_refill(lm_thread *t, lm_decision_key k) {
  void *p = lm_decision_refill(t, k);
  return p ? p : lm_sampled_serve(t, k);
}

/* Frees a small object of a pool whose state is SAMPLED, and takes it out of the table of live
 * samples. Returns false if the object is not freed: its state is another, the thread would have to
 * wait for a fork, or the thread's cache does not take the object. In the last case the object is
 * no longer a sample. The thread is active. */
bool lm_sampled_free(lm_thread *t, void *ptr, lm_located met);

#endif
