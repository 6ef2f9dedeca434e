/* placed.h - a report by tag: bytes and blocks that were moved, right, or refused and why. */
#ifndef LM_PLACED_H
#define LM_PLACED_H

#include "plan/site.h"

/* What, and why, are static words; rows are told apart by them and by the tag. */
typedef struct lm_placed_row {
  uint32_t site; /* of the tag; 0: no row */
  const char *what, *why;
  uint64_t bytes, blocks;
} lm_placed_row;

/* Zeroed, it is empty. Under the lock of its owner. */
typedef struct lm_placed {
  lm_placed_row *row;
  uint32_t size, n;
  uint64_t moved, right, refused; /* bytes of all rows, and of those there was no memory for */
} lm_placed;

extern const char lm_placed_moved[], lm_placed_right[], lm_placed_refused[];

/* Room for so many rows more, so that the next ones take no memory; as far as there is some. */
void lm_placed_reserve(lm_placed *p, uint32_t rows);
void lm_placed_add(lm_placed *p, lm_token token, const char *what, const char *why, uint64_t bytes,
                   uint64_t blocks);
/* As far as there is memory. */
void lm_placed_copy(lm_placed *to, const lm_placed *from);
void lm_placed_each(const lm_placed *p, loam_placed_fn visit, void *ctx);
void lm_placed_clear(lm_placed *p);

#endif
