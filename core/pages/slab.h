/* slab.h - pieces of memory of one size, cut from chunks of one slot each (Bonwick, "The Slab
 * Allocator", 1994). A chunk without a used piece goes back to the regions that it came from. */
#ifndef LM_SLAB_H
#define LM_SLAB_H

#include "pages/regions.h"

typedef struct lm_chunk lm_chunk;

/* A slab: the chunks of one size of piece. The lock of the slab's owner guards it and its chunks.
 *
 * Law: `first` begins the list of all chunks that have an unused piece or room to cut one, and of
 * no other chunk. */
typedef struct lm_slab {
  lm_chunk *first;
  /* Constant. True: other threads may read pieces at any time. So a piece is all zero when it is
   * taken and when it is put back; only the last word of an unused piece has other contents. As a
   * new chunk may have to be cleared for that, the last chunk is kept when it is unused. */
  bool zeroed;
} lm_slab;

/* Takes a piece of `size` bytes: a multiple of 16, and for one slab always the same. `r` is where
 * chunks come from, for one slab always the same. *clean becomes whether the piece is known to be
 * all zero. The entry of the piece's slot in the page map has its `size`. NULL: no memory. */
void *lm_slab_take(lm_slab *s, lm_regions *r, size_t size, bool *clean);
/* Puts a piece back. */
void lm_slab_put(lm_slab *s, lm_regions *r, void *piece);
/* Zeroes memory that other threads may read, by whole words: `size` is rounded up to 8 bytes. */
void lm_slab_clear(void *at, size_t size);
/* Returns whether the law holds, and the pieces of each listed chunk are all accounted for. */
bool lm_slab_is_valid(const lm_slab *s);

#endif
