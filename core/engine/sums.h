/* sums.h - a table of sums by key, for statistics.
 *
 * The table is open-addressed with linear probing; its memory is loam's own metadata. If there is
 * no memory for a further row, the table adds to one common row, `spill`, and the caller reports
 * that the table is incomplete. Whoever owns a table guards it: these functions take no lock. */
#ifndef LM_SUMS_H
#define LM_SUMS_H

#include "pages/class.h"

/* A row of the table. */
typedef struct lm_sums {
  uint64_t key; /* 0: the row is free */
  uint64_t live_bytes, live_blocks, total_bytes, total_blocks;
  uint64_t asleep_bytes; /* the part of live_bytes that has given its memory up: device/sleep.h */
} lm_sums;

/* A zeroed table is empty.
 *
 * Law: size is 0, or a power of two; then `row` points to `size` rows.
 *      n is the number of rows whose key is not 0, and 2 * n <= size.
 *      From the place of each key on (lm_sums_mix), no row is free before the row of that key. */
typedef struct lm_sums_table {
  lm_sums *row;
  size_t size, n;
  lm_sums spill; /* the sums of all keys that got no row; its own key is 0 */
  bool is_fixed; /* the owner holds a lock under which no memory may be allocated */
} lm_sums_table;

/* Scatters the bits of a key. */
LM_INLINE uint64_t lm_sums_mix(uint64_t key) {
  key *= 0x9e3779b97f4a7c15u; /* Fibonacci hashing: 2^64 divided by the golden ratio */
  return key ^ key >> 32;
}

/* A table by class of figures (pages/class.h) has the class in 8 bits of each key. */
enum { LM_SUMS_CLASS = 48 };
LM_INLINE unsigned lm_sums_class(uint64_t key) { return key >> LM_SUMS_CLASS & 255; }
/* Returns the key with another class. */
LM_INLINE uint64_t lm_sums_with_class(uint64_t key, unsigned class_) {
  return (key & ~((uint64_t)255 << LM_SUMS_CLASS)) | (uint64_t)class_ << LM_SUMS_CLASS;
}

/* Adds the rows of `classes` to a table in which all keys have LM_CLASS_UNKNOWN: each row there is
 * the sum over all classes. Adds the spill too. */
void lm_sums_fold(const lm_sums_table *classes, lm_sums_table *to);

/* Returns the row of a key, which is not 0. A new row has only zeros. Returns &table->spill if the
 * key has no row and there is no memory for one. */
lm_sums *lm_sums_get(lm_sums_table *table, uint64_t key);

/* Returns the row of a key, which is not 0; NULL if the key has none. */
lm_sums *lm_sums_find(const lm_sums_table *table, uint64_t key);

/* Doubles the size of the table; an empty one gets its first rows. Returns false if there is no
 * memory; the table is then unchanged. */
bool lm_sums_grow(lm_sums_table *table);

/* Makes all rows and the spill zero, and keeps the memory. */
void lm_sums_clear(lm_sums_table *table);

/* Adds the figures of `more` to a row. The key of the row stays. */
void lm_sums_add(lm_sums *row, const lm_sums *more);

/* Returns whether all figures of a row are 0. */
bool lm_sums_is_empty(const lm_sums *row);

/* Moves the rows that have a key to the front of table->row and sorts them: most live bytes first,
 * then most total bytes, then by key. Returns their number. Afterwards the law of places does not
 * hold: only lm_sums_finish may be called. Allocates nothing. */
size_t lm_sums_sort(lm_sums_table *table);

/* Frees the rows. */
void lm_sums_finish(lm_sums_table *table);

/* Returns whether the table obeys its law. For LOAM_CHECKS=2 and tests: visits all rows. */
bool lm_sums_is_valid(const lm_sums_table *table);

#endif
