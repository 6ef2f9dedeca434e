/* regions.h - the slots of one pool: taken from the range in regions, prepared as the pool's
 * strategy asks, and kept for reuse in two sets of free runs.
 *
 *   clean   never touched, or given back to the system since: all zero, costs no memory
 *   dirty   touched. Taken first, because it is in the CPU's caches and page tables. Kept up to a
 *           bound. Beyond the bound it is given back to the system, and so is what was free
 *           throughout an interval of decay (os/decay.h). If slots beyond the bound are given back
 *           and then taken again soon, the bound is raised by twice as many. A tick lowers it again
 *           if the slots lay idle. If slots that decay gave back are taken again soon, the next
 *           intervals of decay are longer.
 *
 * While memory is short for the control group (os/pressure.h), a small fixed bound holds instead.
 *
 * Soon. Slots that went back cost page faults when they are taken again, about 11 microseconds for
 * a slot. They are taken again soon if that happens within 500 microseconds for each slot given
 * back, but at least 250 ms and at most 10 s. So a program that frees and takes a peak periodically
 * either keeps it or has at most about a 50th of its time added for page faults (the argument of
 * competitive spinning and of ski rental: renting ends when it has cost as much as buying).
 *
 * Only taking from the range goes by regions. Afterwards the slots of a region join their
 * neighbours, and no record of the region is kept. Whatever goes back to the range first loses its
 * preparation. So an idle strategy costs address space and no memory. Where preparing costs memory
 * (huge pages, locked or prefaulted memory, a file with room), a region is as small as the request
 * allows. */
#ifndef LM_REGIONS_H
#define LM_REGIONS_H

#include "pages/range.h"
#include "pages/region.h"
#include "pages/run.h"

/* Slots that were given back to the system, and that are not taken again yet. */
typedef struct lm_given_back {
  uint32_t slots;
  int64_t at_ns; /* when the last of them were given back (lm_sys_clock_ns) */
} lm_given_back;

/* The slots of one pool.
 *
 * Law: clean.slots + dirty.slots <= held; idle <= dirty.slots; waits < window. */
typedef struct lm_regions {
  lm_lock lock; /* guards all fields down to `refused_ns` */
  lm_runs clean, dirty;
  uint32_t held;   /* slots that belong to the pool: clean, dirty and in use */
  uint32_t idle;   /* the smallest number of dirty slots in this interval: they are unneeded */
  uint32_t extra;  /* the bound of dirty slots is raised by this */
  uint32_t window; /* ticks that this interval of decay has */
  uint32_t waits;  /* ticks of this interval that are still to come, but the last */
  lm_given_back trimmed; /* beyond the bound */
  lm_given_back decayed; /* by decay */
  uint32_t refused;   /* slots of the last region that the system refused, if preparing costs memory
                       or time; 0: none */
  int64_t refused_ns; /* when the system refused it (lm_sys_clock_ns) */
  const char *_Atomic why; /* why the last region could not be made, static text; NULL: none failed;
                              relaxed */
  _Atomic uint32_t spare;  /* slots in use that are in empty spans of the central lists; relaxed */
  lm_preparation how;      /* constant */
} lm_regions;

/* Makes regions without a slot of zeroed memory. */
void lm_regions_init(lm_regions *r, const lm_preparation *how);

/* The functions below take the lock of `r` themselves, unless they say otherwise. Any thread may
 * call them. */

/* Takes `slots` neighbouring slots that begin at a multiple of `align` bytes (a power of two).
 * *clean becomes whether they are known to be all zero. Returns the first slot, or 0 when there is
 * no memory, or none of this kind (lm_regions_why). */
uint32_t lm_regions_take(lm_regions *r, uint32_t slots, size_t align, bool *clean);
/* Gives slots back that were taken and may have been touched. If there are then too many dirty
 * slots, gives some of these back to the system. */
void lm_regions_put(lm_regions *r, uint32_t slot, uint32_t slots);
/* Like lm_regions_put, but gives nothing back to the system. The caller may hold the lock of a
 * central list; it calls lm_regions_shed after it has dropped the lock. */
void lm_regions_put_only(lm_regions *r, uint32_t slot, uint32_t slots);
/* Gives dirty slots beyond the bound back to the system. `slots` is how many were put. In a process
 * that is not served, gives back at most twice as many, or 8 MiB, so that the call is short. */
void lm_regions_shed(lm_regions *r, uint32_t slots);
/* Takes exactly these slots if they are free: the caller has the slots before them. Returns whether
 * it did. */
bool lm_regions_extend(lm_regions *r, uint32_t slot, uint32_t slots);

/* Slots that were taken from `r` leave it and go to the range. They have no memory and no access
 * any more: they were decommitted. */
void lm_regions_forget(lm_regions *r, uint32_t slot, uint32_t slots);
/* Like lm_regions_forget, for slots that may still be prepared, or be a hole in a mapping. */
void lm_regions_give_up(lm_regions *r, uint32_t slot, uint32_t slots);
/* Slots that were taken from `r` become clean, in a mapping that joins those beside them: their
 * memory is removed, and they are prepared again. Where that costs memory or fails, or if they are
 * 64 MiB or more, they leave `r` and go to the range. */
void lm_regions_renew(lm_regions *r, uint32_t slot, uint32_t slots);
/* Removes memory and access from slots that belong to no pool, and gives them to the range. If the
 * system refuses, they are queued and tried again whenever memory is given back. */
void lm_regions_return(uint32_t slot, uint32_t slots);
/* Slots in use become slots of `r`, because the object that lives there changes its pool. */
void lm_regions_add_used(lm_regions *r, uint32_t slots);
/* Slots in use are no slots of `r` any more, for the same reason. */
void lm_regions_remove_used(lm_regions *r, uint32_t slots);

/* Returns whether there is a dirty run of at least `slots` slots. */
bool lm_regions_has_dirty(lm_regions *r, uint32_t slots);
/* Returns the bytes of all slots of `r`. */
size_t lm_regions_size(lm_regions *r);
/* Returns the bytes of the slots of `r` that are not clean: those that may have memory. */
size_t lm_regions_memory(lm_regions *r);

/* Returns the slots of `r` that are in use, empty spans too. */
uint32_t lm_regions_used(lm_regions *r);

/* Adds a region that the caller has made, as a dirty run. This and the next two functions serve
 * registered memory: device/pinned.c alone calls them. */
void lm_regions_add(lm_regions *r, uint32_t slot, uint32_t slots);
/* Serves registered memory. Takes a free run of at most *most slots that `suits` accepts out of
 * `r`, and subtracts its length from *most. Returns its first slot and sets *slots; 0: none. */
uint32_t lm_regions_take_idle(lm_regions *r, uint32_t *most, lm_runs_suits *suits, int ctx,
                              uint32_t *slots);
/* Serves registered memory. Returns the dirty slots that no request needed since the last such
 * call, and begins a new interval. *held becomes the slots of `r`, *more whether other slots are
 * free. */
uint32_t lm_regions_idle_slots(lm_regions *r, uint32_t *held, bool *more);

/* Gives all free runs back to the range. Returns whether `r` has no slot left. */
bool lm_regions_drain(lm_regions *r);
/* Gives the memory of dirty runs back to the system, the longest first, until it refuses one. */
void lm_regions_trim(lm_regions *r);
/* Returns the bytes that all regions of the process have given back so far. */
size_t lm_regions_released(void);
/* One tick of decay: gives back slots that were free since the last tick, about *most at
 * most, and subtracts their number from *most. Returns whether a later tick has more to do. */
bool lm_regions_decay(lm_regions *r, uint32_t *most);
/* Returns whether the law of `r` holds and both sets are valid. The caller holds the lock. */
bool lm_regions_is_valid(const lm_regions *r);
/* In a forked child, for a pool whose memory is in a file, when no other thread exists: gives back
 * the free slots, and the file. */
void lm_regions_fork_child(lm_regions *r);
/* Returns why the last region could not be made. Static text. Takes no lock. */
const char *lm_regions_why(const lm_regions *r);

#endif
