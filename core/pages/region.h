/* region.h - preparing memory of the range as a strategy asks: which pages, on which NUMA nodes,
 * with memory before the first touch or not. */
#ifndef LM_REGION_H
#define LM_REGION_H

#include "os/numa.h"
#include "pages/backing.h"

/* How memory is prepared before anyone may touch it. All zero: plain memory. */
typedef struct lm_preparation {
  lm_backing *backing;           /* the file that holds the memory; NULL: plain memory */
  const lm_placement *placement; /* NUMA nodes; NULL: the kernel chooses */
  size_t page;                   /* bytes of huge pages to use: 2 MiB or 1 GiB; 0: usual pages */
  int thp;         /* transparent huge pages: 1 asked for, -1 refused, 0 left to the system */
  bool prefault;   /* every page has memory before it is touched */
  bool lock;       /* locked in memory (mlock) */
  bool registered; /* with a GPU driver: device/pinned.c makes and ends the regions, as a whole */
  bool stays;      /* memory is given back to the system, but slots never to the range, since other
                      threads may read there at any time */
} lm_preparation;

/* These functions know the preparation alone. They take no lock. If the preparation has a backing,
 * the caller holds the lock of the regions in it. */

/* Prepares `size` reserved bytes at `at` in the range. Returns NULL, or a static text that says why
 * it cannot. Then lm_region_punch and lm_regions_return undo the part that was done. */
const char *lm_region_prepare(const lm_preparation *how, void *at, size_t size);
/* Gives prepared bytes their memory, if lm_region_populates says so, when they are handed out.
 * Returns NULL, or a static text that says why there is none. */
const char *lm_region_populate(const lm_preparation *how, void *at, size_t size);
/* Returns whether prepared memory gets its pages when it is handed out. True for plain memory that
 * must be on certain nodes: if these had none left at the first touch, the kernel would end the
 * process, while a request that fails can be served by the next strategy of the chain (or_else). */
bool lm_region_populates(const lm_preparation *how);
/* Removes the content of a place from the file of the preparation, if it has one: the first step to
 * undo a preparation. False: the system refuses. */
bool lm_region_punch(const lm_preparation *how, void *at, size_t size);
/* Returns whether preparing costs memory, before the memory is touched. */
bool lm_region_is_eager(const lm_preparation *how);
/* Returns whether any slots of prepared memory can be given back to the system and to the range:
 * they are in no file, and preparing them costs nothing. */
bool lm_region_is_plain(const lm_preparation *how);
/* Returns the bytes of a page of prepared memory. */
size_t lm_region_page_size(const lm_preparation *how);

/* Why there is no memory, where nothing more is known. */
extern const char lm_region_no_memory[];

#endif
