/* array.h - arrays: a type, metadata of its shape, and where the data are.
 *
 *   block | type, data, owner | metadata | data if embedded
 *
 * An array begins with a block, so that views can hold what is embedded in it. Law: the data are
 * owned by `owner`, or, where that is NULL, they stand in the array itself. */
#ifndef LM_ARRAY_H
#define LM_ARRAY_H

#include "array/meta.h"

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
bool lm_array_has(const loam_block *block);

/* Where one walks through an array: what stands at `data`. */
typedef struct lm_spot {
  const loam_type *type;
  const size_t *meta;
  char *data;
  loam_block *owner; /* of data; not retained */
} lm_spot;

LM_INLINE lm_spot lm_array_spot(const loam_array *a) {
  return (lm_spot){ a->type, a->meta, a->data, a->owner ? a->owner : (loam_block *)&a->block };
}

/* At the target of a pointer; of all pointers that come first. LOAM_ESTATE where one is NULL. */
loam_status lm_spot_follow(lm_spot *spot);
loam_status lm_spot_follow_all(lm_spot *spot);

/* The dimension that comes first, pointers to it followed: how many elements, how far apart, and
 * the place of the first. LOAM_EINVAL if there is none. */
typedef struct lm_row {
  size_t count;
  ptrdiff_t stride;
  lm_spot first; /* its data are NULL where there are no elements */
} lm_row;
loam_status lm_spot_row(lm_spot spot, lm_row *out);

/* How many bytes below and above the first one the elements of fixed dimensions reach; 0 if there
 * are none. Strides as for loam_array_wrap. */
typedef struct lm_reach {
  ptrdiff_t low, high;
  bool is_empty;
} lm_reach;
loam_status lm_reach_find(const loam_type *type, const int64_t *strides, lm_reach *out);

bool lm_array_is_valid(const loam_array *array);

/* Words for a refusal: "it is read-only"; LOAM_OK if it is not. */
loam_status lm_array_check_writable(const loam_array *array);

#endif
