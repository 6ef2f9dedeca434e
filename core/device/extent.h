/* extent.h - ranges of addresses in device memory, cut into extents: their index, and sets of free
 * extents. All bookkeeping stands in host memory; device memory itself is never touched.
 *
 * The index of a range has one pointer and one bit for each granule. They are set for the granule
 * where an extent begins. So an extent is found from its start by one load, and from any address
 * inside it by a search backwards for a set bit.
 *
 * Sets are segregated by size: eight lists to a doubling. A search takes the smallest extent that
 * suffices from the list of its size, or else from the next list that has one (Wilson et al.,
 * "Dynamic storage allocation", 1995, 3.4). */
#ifndef LM_EXTENT_H
#define LM_EXTENT_H

#include "os/base.h"
#include "os/lock.h"

struct lm_stream_queue;
struct lm_device_pool;

typedef enum lm_extent_state {
  LM_EXTENT_HOLE, /* addresses that no memory is mapped to; in a set of holes */
  LM_EXTENT_FREE, /* free memory in a set, joined with its neighbours */
  LM_EXTENT_KEPT, /* free memory in a front list, not joined with its neighbours yet */
  LM_EXTENT_LIVE, /* an allocated block */
  LM_EXTENT_BUSY, /* a thread that grows or shrinks the pool works on it; in no set */
  LM_EXTENT_NODE  /* this struct describes no extent: it is a spare node */
} lm_extent_state;

/* An extent: consecutive addresses of a range, in one state. The lock of the range's pool guards
 * it.
 *
 * Law: the extents of a range follow one another without a gap and cover it. Two neighbours are
 * never both holes, and never both FREE with one queue. */
typedef struct lm_extent {
  uintptr_t at;
  size_t size;                       /* a multiple of the range's granule */
  struct lm_extent *before, *after;  /* neighbours in the range; NULL at its ends */
  struct lm_extent *next, *previous; /* in a list of a set; in a front list or a list of nodes,
                                        which use `next` alone */
  struct lm_extent_range *range;
  /* FREE, KEPT: work of this queue's stream may still use the memory; NULL: no work does. LIVE: the
   * queue that the block was allocated for. */
  struct lm_stream_queue *queue;
  uint64_t batch;    /* FREE, KEPT: the queue's batch when the memory was freed */
  uint32_t token;    /* LIVE: site and generation of the allocation */
  uint16_t strategy; /* LIVE: identity of the strategy that decided */
  uint8_t state;     /* an lm_extent_state */
  uint8_t zone;      /* LM_ZONE_SMALL or LM_ZONE_LARGE: the range's */
  uint8_t want;      /* LIVE: the lm_want of the request */
  uint8_t flags;     /* LIVE: the LM_GPU_* of the request */
  uint32_t key;      /* LIVE: the key by which other processes name the block; 0: none was made */
} lm_extent;

/* A range of addresses with the index of its extents. The lock of its pool guards it, except in
 * lm_extent_range_of. */
typedef struct lm_extent_range {
  uintptr_t base;
  size_t size;
  unsigned shift;    /* a granule is 1 << shift bytes */
  lm_extent **start; /* by granule: the extent that begins there, else NULL. NULL: the range is
                        finished */
  uint64_t *begins;  /* a bit for each granule: an extent begins there */
  struct lm_device_pool *pool;
  struct lm_extent_range *next;  /* in the list of its pool */
  struct lm_device_piece *piece; /* by granule of the device: pieces of memory mapped to the range;
                                    NULL: the range is one allocation of a manager */
  lm_extent *first;
} lm_extent_range;

/* Makes a range of `size` bytes from `base` on, with granules of 1 << shift bytes, counted from
 * `base`, which needs no alignment. `r` is zeroed or was finished. `whole` becomes the one extent
 * of the range, a hole. Then lm_extent_range_of finds the range. Returns false where there is no
 * memory for the index, or too many ranges. */
bool lm_extent_range_init(lm_extent_range *r, uintptr_t base, size_t size, unsigned shift,
                          lm_extent *whole);
/* Removes a range from the table of ranges and frees its index. The struct stays readable memory,
 * because a thread in lm_extent_range_of may still have its address. */
void lm_extent_range_finish(lm_extent_range *r);
/* Returns the range that an address is in; NULL: none. Takes no lock. The range cannot end while a
 * block in it is live; a caller that is not sure of that locks the pool and looks whether `start`
 * is set (lm_device_pool_lock_of). The struct of a range is never used for anything else. */
lm_extent_range *lm_extent_range_of(uintptr_t at);
/* Returns the extent that begins at an address of the range; NULL: none begins there. */
lm_extent *lm_extent_range_start(const lm_extent_range *r, uintptr_t at);
/* Returns the extent that an address of the range is in. Never NULL. */
lm_extent *lm_extent_range_find(const lm_extent_range *r, uintptr_t at);
/* Cuts `e` after `size` bytes. `rest`, a spare node, becomes the extent behind the cut: a copy of
 * `e` in no list. size < e->size. */
void lm_extent_split(lm_extent *e, size_t size, lm_extent *rest);
/* Joins an extent with its neighbour behind, and returns the neighbour's node, which is spare now.
 * Neither is in a set. */
lm_extent *lm_extent_join(lm_extent *e);
/* Returns whether the law of extents holds in a range. */
bool lm_extent_range_is_valid(const lm_extent_range *r);
/* Returns whether the table of ranges is sorted by address and no two ranges overlap. */
bool lm_extent_table_is_valid(void);

enum { LM_EXTENT_LISTS = 8 * 40 };

/* A set of extents that are free, or of holes.
 *
 * Law: bytes = the sum of the sizes of all extents in the lists; bit l of `filled` = list l is not
 * empty; each extent is in the list of its size. */
typedef struct lm_extents {
  size_t bytes;
  uint64_t filled[LM_EXTENT_LISTS / 64];
  lm_extent *head[LM_EXTENT_LISTS];
} lm_extents;

/* Puts an extent, which is in no set, into a set. */
void lm_extents_put(lm_extents *set, lm_extent *e);
/* Takes an extent out of the set that it is in. */
void lm_extents_remove(lm_extents *set, lm_extent *e);
/* Returns a small extent of at least `size` bytes and leaves it in the set; NULL: none was found.
 * It is the best of at most 64 extents of a list. */
lm_extent *lm_extents_fit(const lm_extents *set, size_t size);
/* Returns whether the law holds. */
bool lm_extents_is_valid(const lm_extents *set);

#endif
