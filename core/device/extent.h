/* extent.h - ranges of addresses that memory of devices stands in, cut into extents: their index,
 * and sets of free ones. Nothing of it stands in that memory, which is never touched.
 *
 * An index has a pointer and a bit for each granule: those of the granule where an extent begins.
 * So an extent is found from its start by one load, and from any address in it by looking back for
 * a bit. Sets are segregated by size, eight lists to a doubling; a search takes the smallest that
 * suffices of the list of its size, or of the next list that has one (Wilson et al., "Dynamic
 * storage allocation", 1995, 3.4). */
#ifndef LM_EXTENT_H
#define LM_EXTENT_H

#include "os/base.h"
#include "os/lock.h"

struct lm_stream_queue;
struct lm_device_pool;

typedef enum lm_extent_state {
  LM_EXTENT_HOLE, /* addresses without memory */
  LM_EXTENT_FREE, /* in a set */
  LM_EXTENT_KEPT, /* freed, and not yet joined with its neighbours */
  LM_EXTENT_LIVE,
  LM_EXTENT_BUSY, /* in the hands of one who supplies */
  LM_EXTENT_NODE  /* none: a node to make one of */
} lm_extent_state;

/* Law: the extents of a range follow one another without a gap and are it; no two neighbours are
 * holes; no two neighbours are FREE and of one queue. */
typedef struct lm_extent {
  uintptr_t at;
  size_t size;                       /* a multiple of the range's granule */
  struct lm_extent *before, *after;  /* in the range; NULL at its ends */
  struct lm_extent *next, *previous; /* in a list of a set, a list of KEPT ones, or of nodes */
  struct lm_extent_range *range;
  struct lm_stream_queue
      *queue;        /* FREE, KEPT: whose work may still use it; NULL: none is. LIVE: the
                             one it was allocated for */
  uint64_t batch;    /* FREE, KEPT: the queue's when it was freed */
  uint32_t token;    /* LIVE */
  uint16_t strategy; /* LIVE */
  uint8_t state, zone;
  uint8_t want; /* LIVE: what was asked for */
  uint32_t key; /* LIVE: other processes know it by this; 0: none does */
} lm_extent;

typedef struct lm_extent_range {
  uintptr_t base;
  size_t size;
  unsigned shift; /* of a granule */
  lm_extent **start;
  uint64_t *begins;
  struct lm_device_pool *pool;
  struct lm_extent_range *next;  /* of its cache's */
  struct lm_device_piece *piece; /* of memory mapped to it, by address; NULL: it is one piece */
  lm_extent *first;
} lm_extent_range;

/* `r` is zeroed. One extent, `whole`, is all of it. False where there is no memory for the index.
 * From then on lm_extent_range_of finds it. */
bool lm_extent_range_init(lm_extent_range *r, uintptr_t base, size_t size, unsigned shift,
                          lm_extent *whole);
void lm_extent_range_finish(lm_extent_range *r);
/* The range that an address is in; NULL: none. No lock: that it stays is the caller's to know, by
 * a live block in it. A range's memory is never another's. */
lm_extent_range *lm_extent_range_of(uintptr_t at);
/* The extent that begins at an address, or that it is in; NULL: none. */
lm_extent *lm_extent_range_start(const lm_extent_range *r, uintptr_t at);
lm_extent *lm_extent_range_find(const lm_extent_range *r, uintptr_t at);
/* Cuts what is beyond `size` off and makes `rest` of it, like it but in no list. */
void lm_extent_split(lm_extent *e, size_t size, lm_extent *rest);
/* Makes one of an extent and the one after it, whose node is free then. */
lm_extent *lm_extent_join(lm_extent *e);
bool lm_extent_range_is_valid(const lm_extent_range *r);

enum { LM_EXTENT_LISTS = 8 * 40 };

typedef struct lm_extents {
  size_t bytes;
  uint64_t filled[LM_EXTENT_LISTS / 64];
  lm_extent *head[LM_EXTENT_LISTS];
} lm_extents;

void lm_extents_put(lm_extents *set, lm_extent *e);
void lm_extents_remove(lm_extents *set, lm_extent *e);
/* The smallest found of at least `size` bytes, which stays in; NULL: none. */
lm_extent *lm_extents_fit(const lm_extents *set, size_t size);
/* The largest, within a list; NULL: none. */
lm_extent *lm_extents_largest(const lm_extents *set);
bool lm_extents_is_valid(const lm_extents *set);

#endif
