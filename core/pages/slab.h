/* slab.h - pieces of one size, cut from chunks of a slot (Bonwick, "The Slab Allocator", 1994): a
 * chunk of which nothing is used goes back to the regions that it came from. */
#ifndef LM_SLAB_H
#define LM_SLAB_H

#include "pages/region.h"

typedef struct lm_chunk lm_chunk;

/* What changes it is under its owner's lock. Law: `first` lists the chunks that have an unused
 * piece or can cut one, and no others. */
typedef struct lm_slab {
  lm_chunk *first;
  /* Pieces are zeros when they are given and put, and others may look at what was one: so a new
   * chunk costs, and one is kept. */
  bool zeroed;
} lm_slab;

/* A piece of `size` bytes, a multiple of 16 and always the same; its slot's entry tells it. NULL:
 * there is no memory. *clean: whether it is known to be all zero. */
void *lm_slab_take(lm_slab *s, lm_regions *r, size_t size, bool *clean);
void lm_slab_put(lm_slab *s, lm_regions *r, void *piece);
/* Zeroes so many bytes (in whole words) of memory that others may look at meanwhile. */
void lm_slab_clear(void *at, size_t size);
bool lm_slab_is_valid(const lm_slab *s);

#endif
