/* spare.h - memory for a thread that must not wait for a fork.
 *
 * A fork that lasts long may wait for a lock of the host or of the C library whose holder is in
 * malloc. So that thread gets a mapping of its own, outside of all pools. The blocks that it frees
 * are noted, and the first slow call after the fork frees them (api/slow_call.h). Nothing here
 * takes a lock. Spare memory is under no policy: no strategy, limit or site knows it. Any thread
 * may call these functions. */
#ifndef LM_SPARE_H
#define LM_SPARE_H

#include "os/sys.h"

/* Returns zeroed memory of at least `size` bytes; NULL: there is none, or all SPARE_BLOCKS are in
 * use. `align` is a power of two. */
void *lm_spare_alloc(size_t size, size_t align);
/* Returns the usable bytes of a spare block; 0: `ptr` is no spare block. */
size_t lm_spare_usable(const void *ptr);
/* Frees a spare block. Returns false if `ptr` is none. */
bool lm_spare_free(void *ptr);

/* How many spare blocks and noted frees there are. A thread counts an entry before it uses it, so
 * while the number is 0 no entry is used. */
extern _Atomic uint32_t lm_spare_uses __attribute__((visibility("hidden")));
LM_INLINE bool lm_spare_is_used(void) {
  return atomic_load_explicit(&lm_spare_uses, memory_order_relaxed) > 0;
}

/* Notes that `ptr` is to be freed. Returns false if no more can be noted. */
bool lm_spare_note_free(void *ptr);
/* Returns a pointer that was noted, and forgets it; NULL: there is none. */
void *lm_spare_next_noted(void);

/* In a forked child: counts the entries of both tables again. Threads of the parent change them
 * while the parent forks, and the child does not have these threads. A mapping that such a thread
 * was making or ending may stay in the child. */
void lm_spare_fork_child(void);

/* Returns whether the laws of the tables hold, while no thread changes them. */
bool lm_spare_is_valid(void);

#endif
