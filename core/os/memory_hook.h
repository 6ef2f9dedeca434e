/* memory_hook.h - the host's callback for each block made, resized or freed. */
#ifndef LM_MEMORY_HOOK_H
#define LM_MEMORY_HOOK_H

#include <stdatomic.h>

#include "loam.h"
#include "os/base.h"

/* Whether there is one. Most allocations and frees see no more of it than this: while it is set
 * they take the slow path, which tells. Relaxed: a call that begins beside loam_on_memory may be
 * told or not. */
extern _Atomic bool lm_memory_hook_is_set;

LM_INLINE bool lm_memory_hook_is_wanted(void) {
  return atomic_load_explicit(&lm_memory_hook_is_set, memory_order_relaxed);
}

/* Calls it, with no lock held; not for what a callback of this thread does itself. */
void lm_memory_hook_call(void *from, void *to, size_t size);

#endif
