/* array.h - arrays: a type, metadata in the shape of that type, and the data.
 *
 *   block | type, data, owner | metadata | data if embedded
 *
 * An array begins with a block of its own. Views of embedded data hold a reference to that
 * block. */
#ifndef LM_ARRAY_H
#define LM_ARRAY_H

#include "array/layout.h"

/* Law: `owner` is the block that owns the data, or NULL: then the data are embedded, which means
 * that they follow the metadata in this allocation, at a multiple of 16 bytes.
 *
 * A view may select elements or fields behind pointers. Then the target of a pointer has more bytes
 * than the type of the view says. Bit n of `part_targets` is set if that is so for pointer number n
 * on the way from the array to the selected elements or fields; number 0 is the outermost. */
struct loam_array {
  loam_block block; /* an external block over the embedded data; its end is the array's end */
  loam_type *type;  /* a reference */
  char *data;
  loam_block *owner; /* a reference; NULL: the data are embedded */
  uint64_t is_readonly : 1, part_targets : LM_TYPE_DEPTH - 1;
  size_t meta[]; /* of the type: layout.h */
};

/* Data of at most so many bytes are embedded. Larger data have a block of their own. */
enum { LM_ARRAY_EMBEDDED_MAX = LM_BLOCK_EMBEDDED_MAX };

/* Makes an array whose metadata are all zero. The caller writes the metadata; if that fails, it
 * releases `block` of the array. With an `owner`, the array is over `data`, and `embedded` is not
 * used. Without an owner, the array has `embedded` bytes of zeros as its data. The array takes over
 * one reference to the type and one to the owner; they are released on failure too. Returns NULL
 * without memory. */
loam_array *lm_array_make(loam_site *site, loam_type *type, loam_block *owner, void *data,
                          size_t embedded);

/* Returns whether a block is the block with which an array begins. */
bool lm_array_is_block(const loam_block *block);

/* A value inside an array: its type, its metadata, its address, and the block that owns the memory
 * at that address. The block is not retained: the array keeps it alive. */
typedef struct lm_array_cursor {
  const loam_type *type;
  const size_t *meta;
  char *data;
  loam_block *owner;
} lm_array_cursor;

/* Returns the cursor of the whole array. */
LM_INLINE lm_array_cursor lm_array_start(const loam_array *a) {
  return (lm_array_cursor){ a->type, a->meta, a->data,
                            a->owner ? a->owner : (loam_block *)&a->block };
}

/* Moves a cursor from a pointer to the pointer's target, or from an option of a value with parts to
 * that value (lm_type_is_followed). Fails with LOAM_ESTATE if the pointer is NULL and its target
 * has bytes, or if the value is missing; the cursor is then unchanged. */
loam_status lm_array_follow(lm_array_cursor *spot);

/* Moves a cursor to the first value that cannot be followed, through any number of pointers and
 * options. Fails like lm_array_follow. */
loam_status lm_array_follow_all(lm_array_cursor *spot);

/* The elements of one dimension: `count` of them, `stride` bytes apart. `first` is the cursor of
 * the first element; its address is NULL for a var dimension without elements. */
typedef struct lm_array_row {
  size_t count;
  ptrdiff_t stride;
  lm_array_cursor first;
} lm_array_row;

/* Returns the elements of a fixed or var dimension at a cursor. */
lm_array_row lm_array_row_at(lm_array_cursor spot);

/* Fills in the elements of the dimension to which a cursor leads, through pointers if there are
 * any. Fails with LOAM_EINVAL if the value has no dimension, and like lm_array_follow. */
loam_status lm_array_dimension(lm_array_cursor spot, lm_array_row *out);

/* The bytes that the elements of fixed dimensions take, relative to the first element.
 *
 * Law: low <= 0 <= high; both are 0 if there are no elements. */
typedef struct lm_array_bounds {
  ptrdiff_t low, high; /* the first byte, and the end of the last one */
  bool is_empty;       /* there are no elements */
} lm_array_bounds;

/* Computes the bounds of an array of a type. `strides` are as for loam_array_wrap: NULL means C's
 * layout. Fails with LOAM_EINVAL if the bounds exceed the address space. */
loam_status lm_array_bounds_of(const loam_type *type, const int64_t *strides, lm_array_bounds *out);

/* Returns whether the law of lm_array_bounds holds. */
LM_INLINE bool lm_array_bounds_is_valid(const lm_array_bounds *bounds) {
  if (bounds->is_empty) return !bounds->low && !bounds->high;
  return bounds->low <= 0 && bounds->high >= 0;
}

/* Returns whether the laws of an array, its type and its metadata hold. Walks both trees: for
 * lm_verify and tests. */
bool lm_array_is_valid(const loam_array *array);

/* Fails with LOAM_ESTATE if the array is read-only. */
loam_status lm_array_check_writable(const loam_array *array);

#endif
