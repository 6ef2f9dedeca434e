/* array.h - arrays: a type, metadata of its shape, and where the data are.
 *
 *   block | type, data, owner | metadata | data if embedded
 *
 * An array begins with a block, so that views can hold what is embedded in it. Law: the data are
 * owned by `owner`, or, where that is NULL, they stand in the array itself. */
#ifndef LM_ARRAY_H
#define LM_ARRAY_H

#include "array/layout.h"

struct loam_array {
  loam_block block; /* external, to its own embedded data */
  loam_type *type;
  char *data;
  loam_block *owner; /* NULL: embedded */
  uint32_t is_readonly;
  size_t meta[];
};

/* Data of more bytes stand apart. */
enum { LM_ARRAY_EMBEDDED_MAX = LM_BLOCK_EMBEDDED_MAX };

/* An array whose metadata are still to be written: until they are, lm_array_abandon ends it. Takes
 * over the references to the type and the owner, also when it fails. `embedded` bytes of zeros
 * stand in it where `owner` is NULL. */
loam_array *lm_array_make(loam_site *site, loam_type *type, loam_block *owner, void *data,
                          size_t embedded);
void lm_array_abandon(loam_array *array);

/* Whether the block is an array's own. */
bool lm_array_is_block(const loam_block *block);

/* Where one walks through an array: what stands at `data`. */
typedef struct lm_array_cursor {
  const loam_type *type;
  const size_t *meta;
  char *data;
  loam_block *owner; /* of data; not retained */
} lm_array_cursor;

LM_INLINE lm_array_cursor lm_array_start(const loam_array *a) {
  return (lm_array_cursor){ a->type, a->meta, a->data,
                            a->owner ? a->owner : (loam_block *)&a->block };
}

/* At the target of a pointer; of all pointers that come first. LOAM_ESTATE where one is NULL. */
loam_status lm_array_follow(lm_array_cursor *spot);
loam_status lm_array_follow_all(lm_array_cursor *spot);

/* The dimension that comes first, pointers to it followed: how many elements, how far apart, and
 * the place of the first. LOAM_EINVAL if there is none. */
typedef struct lm_array_row {
  size_t count;
  ptrdiff_t stride;
  lm_array_cursor first; /* its data are NULL where there are no elements */
} lm_array_row;
loam_status lm_array_dimension(lm_array_cursor spot, lm_array_row *out);

/* How many bytes below and above the first one the elements of fixed dimensions reach; 0 if there
 * are none. Strides as for loam_array_wrap. */
typedef struct lm_array_bounds {
  ptrdiff_t low, high;
  bool is_empty;
} lm_array_bounds;
loam_status lm_array_bounds_of(const loam_type *type, const int64_t *strides, lm_array_bounds *out);

bool lm_array_is_valid(const loam_array *array);

/* Words for a refusal: "it is read-only"; LOAM_OK if it is not. */
loam_status lm_array_check_writable(const loam_array *array);

#endif
