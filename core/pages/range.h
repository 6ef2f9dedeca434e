/* range.h - the range: the address space that all memory of pools lies in, and handing out its
 * slots.
 *
 * The range is reserved once, and stays so unless a limit on the address space is below it: then
 * the range is sparse. Slots are taken from it without memory and without access; regions
 * (region.h) give them memory. */
#ifndef LM_RANGE_H
#define LM_RANGE_H

#include "os/error.h"
#include "pages/map.h"

/* Takes `slots` neighbouring slots that begin at a multiple of `align` (a power of two) bytes:
 * reserved, not accessible, without memory, an extent of LM_USE_NONE. Returns the first slot, or 0
 * when the range has no room or cannot be reserved. Any thread; takes the range's lock. */
uint32_t lm_range_take(uint32_t slots, size_t align);
/* Gives slots back that were taken. They have no memory and no access any more (lm_sys_decommit),
 * unless the range is sparse: then this call unmaps them. Any thread; takes the range's lock. */
void lm_range_put(uint32_t slot, uint32_t slots);
/* Returns whether the range is sparse: only the slots that are taken are reserved address space.
 * Once true, it stays true. */
bool lm_range_is_sparse(void);
/* Returns whether p is in the address space that loam reserved: also where no slot was taken yet,
 * and in the arrays before the range. Any p, any thread. */
bool lm_range_reserves(const void *p);

/* To be called when the limit on the process's address space (RLIMIT_AS) has changed after the
 * range was reserved. If the process has more address space than the limit, all of it in the range
 * that is not taken is given back, and the range becomes sparse. The kernel then holds loam to the
 * limit, and the host can map memory of its own under it. A free is a little slower in this process
 * after that. If the limit is higher, or the address space cannot be given back, slots are taken
 * only as far as the limit allows. A limit that cannot be read changes nothing. Any thread that is
 * in no active section; takes the range's lock. */
void lm_range_limit_changed(void);

/* Returns LOAM_EUNSUPPORTED, with the reason as the thread's error, where there is never a range:
 * where the kernel's pages are not of LM_PAGE bytes. */
loam_status lm_range_check(void);

/* Returns the bytes of the range that are taken. */
size_t lm_range_used(void);
/* Returns the bytes of the range that are reserved; 0 before the range is. */
size_t lm_range_reserved(void);
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
