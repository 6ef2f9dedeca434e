/* range.h - the range: the address space that all memory of pools lies in, and handing out its
 * slots.
 *
 * The range is reserved once. Slots are taken from it without memory and without access; regions
 * (region.h) give them memory. */
#ifndef LM_RANGE_H
#define LM_RANGE_H

#include "pages/map.h"

/* Takes `slots` neighbouring slots that begin at a multiple of `align` (a power of two) bytes:
 * reserved, not accessible, without memory, an extent of LM_USE_NONE. Returns the first slot, or 0
 * when the range has no room or cannot be reserved. Any thread; takes the range's lock. */
uint32_t lm_range_take(uint32_t slots, size_t align);
/* Gives slots back that were taken. They have no memory and no access any more (lm_sys_decommit).
 * Any thread; takes the range's lock. */
void lm_range_put(uint32_t slot, uint32_t slots);
/* Returns whether p is in the address space that loam reserved: also where no slot was taken yet,
 * and in the arrays before the range. Any p, any thread. */
bool lm_range_reserves(const void *p);

/* To be called when the limit on the process's address space (RLIMIT_AS) has changed. The range is
 * reserved already, so the kernel does not hold loam to the limit: from now on, slots are taken
 * only as far as the limit allows. A limit that cannot be read changes nothing. Any thread; takes
 * the range's lock. */
void lm_range_limit_changed(void);

/* Returns the bytes of the range that are taken. */
size_t lm_range_used(void);
/* The slots that are taken, for a process that reads them from outside (engine/outside.h). */
extern const _Atomic size_t *const lm_range_outside __attribute__((visibility("hidden")));
/* Returns the bytes of the entries that describe the range. */
size_t lm_range_overhead(void);

/* Returns the lock of the range, which a forked child renews. It is taken after all other locks. */
lm_lock *lm_range_lock(void);
/* Returns whether the laws of the page map (map.h) hold, the free runs are valid, and each slot
 * below the top is either taken or free. Takes the range's lock. */
bool lm_range_is_valid(void);

#endif
