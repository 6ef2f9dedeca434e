/* region.h - the slots of one pool: taken from the range in regions, prepared as its strategy
 * asks, kept for reuse in two sets of free runs.
 *
 *   clean   never touched, or given back to the system since: all zero, costs no memory
 *   dirty   touched: reused first, because it is warm; kept up to a bound, beyond which it is
 *           given back to the system, as is what nobody needed for a while; who asks for that again
 *           before the next tick has the bound raised by it
 *
 * A region has no identity once it is taken: its slots join their neighbours', and whatever is
 * given back to the range is first stripped of every preparation. So an idle strategy costs address
 * space, not memory; where preparing costs memory (pages reserved, locked, faulted in), regions are
 * as small as the request allows. */
#ifndef LM_REGION_H
#define LM_REGION_H

#include "os/numa.h"
#include "pages/backing.h"
#include "pages/run.h"

/* How memory is made ready before anyone may touch it. Zeroed: plain memory. */
typedef struct lm_preparation {
  lm_backing *backing;           /* NULL: plain memory; else the file that it is in */
  const lm_placement *placement; /* NULL: wherever the kernel puts it */
  size_t page;                   /* 0: the usual; else 2 MiB or 1 GiB: pages of exactly that */
  int thp; /* transparent huge pages: 1 asked for, -1 refused, 0 nothing said */
  bool prefault, lock;
  bool registered; /* with a driver: regions come and go by pinned.c alone, each as a whole */
  bool stays;      /* emptied, but never the range's again: others may look there at any time */
} lm_preparation;

typedef struct lm_regions {
  lm_lock lock;
  lm_runs clean, dirty;
  uint32_t held;      /* slots: clean + dirty + in use */
  uint32_t idle;      /* fewest dirty slots since the last tick (decay.h): nobody needed these */
  uint32_t gone;      /* slots that were too many since the last tick, and not asked for since */
  uint32_t missed;    /* that were, and were asked for again: of so many more none is too many */
  uint32_t refused;   /* slots of a region that the system refused, of an eager kind; 0: none */
  int64_t refused_ns; /* when it did */
  const char *_Atomic why; /* it last could not be had, in words; NULL: it always could */
  _Atomic uint32_t spare;  /* slots in use of which nothing is: empty spans that stores keep */
  lm_preparation how;      /* constant */
} lm_regions;

/* `r` is zeroed memory. */
void lm_regions_init(lm_regions *r, const lm_preparation *how);
/* A run at a multiple of `align` (a power of two). *clean: whether it is known to be zero. 0: there
 * is no memory, or none of this kind. */
uint32_t lm_regions_take(lm_regions *r, uint32_t slots, size_t align, bool *clean);
/* Gives a run back, touched. */
void lm_regions_put(lm_regions *r, uint32_t slot, uint32_t slots);
/* Takes the slots that follow a run of ours, if they are free. */
bool lm_regions_extend(lm_regions *r, uint32_t slot, uint32_t slots);
/* Slots that were taken from `r` and are the range's now: moved away or decommitted. */
void lm_regions_forget(lm_regions *r, uint32_t slot, uint32_t slots);
/* Slots in use that become, or are no more, `r`'s, because what lives there changes its pool. */
void lm_regions_add_used(lm_regions *r, uint32_t slots);
void lm_regions_remove_used(lm_regions *r, uint32_t slots);
/* Slots that were taken from `r` and may still be prepared, or a hole: lm_regions_return. */
void lm_regions_give_up(lm_regions *r, uint32_t slot, uint32_t slots);
/* Gives slots back to the range, first stripped of every preparation. If the system refuses that
 * they are nobody's, and it is asked again whenever memory is given back. */
void lm_regions_return(uint32_t slot, uint32_t slots);
/* Whether there is a free run of that length that was touched. */
bool lm_regions_has_dirty(lm_regions *r, uint32_t slots);
/* Of registered memory. A region that was made elsewhere; takes a free run out that is of at most
 * *most slots and suits, which it counts down; what nobody needed since the last such call, which
 * it begins anew (*more: something else is free). */
void lm_regions_add(lm_regions *r, uint32_t slot, uint32_t slots);
uint32_t lm_regions_take_idle(lm_regions *r, uint32_t *most, lm_runs_suits *suits, int ctx,
                              uint32_t *slots);
uint32_t lm_regions_idle_slots(lm_regions *r, uint32_t *held, bool *more);
/* Gives all free runs back to the range; true if that leaves nothing. */
bool lm_regions_drain(lm_regions *r);
/* Gives back to the system all that is free. */
void lm_regions_trim(lm_regions *r);
/* Bytes that all regions have given back so far, by themselves or asked to. */
size_t lm_regions_released(void);
/* A tick: gives back what was free since the last one, at most *most slots, which it counts down.
 * True if there is younger or further memory for a later one. */
bool lm_regions_decay(lm_regions *r, uint32_t *most);
bool lm_regions_is_valid(const lm_regions *r); /* the lock held */

/* Makes `size` bytes at `at` (of the range, reserved) ready. NULL; or why it cannot, in words: then
 * what has been done of it is for lm_regions_return. */
const char *lm_region_prepare(const lm_preparation *how, void *at, size_t size);
/* A prepared range is handed out: NULL; or why it has no memory, where it must have it by then. */
const char *lm_region_populate(const lm_preparation *how, void *at, size_t size);
/* Why the last one that could not be had could not, in words. Static. */
const char *lm_regions_why(const lm_regions *r);
/* Whether preparing costs memory at once. */
bool lm_region_is_eager(const lm_preparation *how);
/* In a forked child: of a pool whose memory is a file's, gives back what was free. */
void lm_regions_fork_child(lm_regions *r);
/* Bytes of the pages it uses. */
size_t lm_region_page_size(const lm_preparation *how);

#endif
