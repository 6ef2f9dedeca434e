/* publish.h - a process obeys the policy images that are published on the board of its tree.
 *
 * A publisher in another process compiles a policy and writes its image on the board. A thread of
 * this process notices that on a slow path, because the published word is part of the key of each
 * kept decision (os/published.h). The thread copies the image to memory of this process, opens the
 * copy, which checks it wholly, and makes it live. It opens no file, starts no thread, and makes
 * system calls for memory alone. So it also works in a program that has given up its rights. */
#ifndef LM_PUBLISH_H
#define LM_PUBLISH_H

#include "os/published.h"

/* Obeys the image that was published last, and the wish for samples (lm_board_sample_wish). If the
 * image cannot be obeyed, the live policy stays, and the entry on the board has the reason. Does
 * not wait for a thread that loads a policy: returns, and a later call tries again. Does nothing
 * inside loam, and in a thread that ends. Keeps errno. The caller holds no lock and is in no active
 * section. It is usually in a guarded section, the slow call of malloc's family that it serves:
 * then a fork waits until the image is live. */
void lm_publish_obey(void);

/* Obeys a new publication, if there is one. For slow paths: two comparisons in most calls. */
LM_INLINE void lm_publish_obey_if_new(void) {
  if (lm_unlikely(lm_published_is_new())) lm_publish_obey();
}

#endif
