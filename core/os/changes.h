/* changes.h - a count of changes, by which a process that reads a structure from outside sees that
 * the structure has changed while it was copied (cli/look.h).
 *
 * Law: the count is odd while a thread changes the structure. Only the thread that holds the
 * structure's lock writes the count. A fork waits until no thread holds the lock (os/fork_gate.h).
 * If a fork has given up waiting, the child may inherit an odd count. The next change in the child
 * makes it even, and so does lm_changes_renew. */
#ifndef LM_CHANGES_H
#define LM_CHANGES_H

#include <stdatomic.h>

#include "os/base.h"

typedef _Atomic uint32_t lm_changes;

/* Begins a change. The fence orders the odd count before the stores of the change; a reader makes
 * its copies by system calls, each of which begins after the call before it has returned. */
LM_INLINE void lm_changes_begin(lm_changes *count) {
  uint32_t now = atomic_load_explicit(count, memory_order_relaxed);
  atomic_store_explicit(count, now | 1, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
}

/* Ends a change. The release orders the stores of the change before the even count. */
LM_INLINE void lm_changes_end(lm_changes *count) {
  uint32_t now = atomic_load_explicit(count, memory_order_relaxed);
  lm_assert(now & 1);
  atomic_store_explicit(count, now + 1, memory_order_release);
}

/* Makes the count even, in a forked child that renews the structure's lock. An even count is not
 * written, as in lm_lock_renew. */
LM_INLINE void lm_changes_renew(lm_changes *count) {
  uint32_t now = atomic_load_explicit(count, memory_order_relaxed);
  if (now & 1) atomic_store_explicit(count, now + 1, memory_order_relaxed);
}

#endif
