/* memory_hook.h - the host's callback for each block that is made, resized or freed. */
#ifndef LM_MEMORY_HOOK_H
#define LM_MEMORY_HOOK_H

#include <stdatomic.h>

#include "loam.h"
#include "os/base.h"

/* True while the host has a callback (loam_on_memory). While it has, threads take the slow path
 * (LM_SLOW_HOOKED), which calls lm_memory_hook_call. Relaxed: an allocation that runs at the same
 * time as loam_on_memory may or may not be reported. */
extern _Atomic bool lm_memory_hook_is_set;

/* Returns lm_memory_hook_is_set. Any thread may call it. */
LM_INLINE bool lm_memory_hook_is_wanted(void) {
  return atomic_load_explicit(&lm_memory_hook_is_set, memory_order_relaxed);
}

/* Calls the host's callback, if there is one, for a block of `size` bytes that was made (`from` is
 * NULL), resized, or freed (`to` is NULL). Does nothing if this thread is in the callback already.
 * The caller holds no lock and is not in an active section. */
void lm_memory_hook_call(void *from, void *to, size_t size);

#endif
