/* layout.h - the metadata of an array: sizes, strides, offsets and blocks, in the shape of its
 * type.
 *
 * The type says what the values are, and the metadata say where they are. Two arrays of one type
 * differ only in metadata, for example when one is a view of every other row of the other.
 *
 * The metadata are an array of words. It begins with the words of the outermost type; the metadata
 * of its parts follow, depth first:
 *
 *   fixed           size, stride; then the metadata of the element
 *   var             block, stride, offset; then the metadata of the element
 *   pointer         block, offset; then the metadata of the target
 *   string, bytes   block
 *   struct          an offset for each field; then the metadata of each field
 *   option          the metadata of its value
 *   a scalar        nothing
 *
 * Law: the size of a fixed dimension equals the count of its type. Every value is at
 *
 *   element i of a fixed dimension at p   p + i * stride
 *   element i of a var dimension at p     piece.begin + offset + i * stride, where piece is the
 *                                         lm_piece at p and i < piece.size
 *   the target of a pointer at p          *p + offset
 *
 * A block in the metadata owns the memory that pieces or targets of this place in the tree stand
 * in; the metadata hold a reference to it. */
#ifndef LM_LAYOUT_H
#define LM_LAYOUT_H

#include "array/type.h"
#include "block/block.h"

/* The metadata of each kind of type, as the table above says. */

typedef struct lm_fixed_layout {
  size_t size;
  ptrdiff_t stride;
  size_t element[];
} lm_fixed_layout;

typedef struct lm_var_layout {
  loam_block *block;
  ptrdiff_t stride, offset;
  size_t element[];
} lm_var_layout;

typedef struct lm_pointer_layout {
  loam_block *block;
  ptrdiff_t offset;
  size_t target[];
} lm_pointer_layout;

typedef struct lm_text_layout {
  loam_block *block;
} lm_text_layout;

/* The metadata at `m` as those of one kind of type. */

LM_INLINE const lm_fixed_layout *lm_layout_fixed(const size_t *m) {
  return (const lm_fixed_layout *)m;
}
LM_INLINE const lm_var_layout *lm_layout_var(const size_t *m) { return (const lm_var_layout *)m; }
LM_INLINE const lm_pointer_layout *lm_layout_pointer(const size_t *m) {
  return (const lm_pointer_layout *)m;
}
LM_INLINE const lm_text_layout *lm_layout_text(const size_t *m) {
  return (const lm_text_layout *)m;
}

/* Returns the address `offset` bytes from `data`. NULL stays NULL: values without bytes need no
 * memory, and C does not define a sum with NULL, not even NULL + 0. */
LM_INLINE char *lm_layout_move(char *data, ptrdiff_t offset) { return data ? data + offset : NULL; }

/* Returns the address of the first element of a row, or NULL if the row is empty. */
LM_INLINE char *lm_layout_first(const lm_var_layout *m, const lm_piece *piece) {
  return piece->size ? lm_layout_move(piece->begin, m->offset) : NULL;
}

/* Sets *out to the address of the target of the pointer at `data`. Returns false for a NULL pointer
 * whose target has bytes. A target of no bytes needs no memory (for example the empty part of an
 * empty row): then *out may be NULL and the result is true. */
LM_INLINE bool lm_layout_follow(const loam_type *type, const lm_pointer_layout *m, const char *data,
                                char **out) {
  char *target = *(char *const *)data;
  *out = lm_layout_move(target, m->offset);
  return target || !type->element->size;
}

/* Returns the offset of a field in a struct with metadata `m`. */
LM_INLINE size_t lm_layout_offset(const size_t *m, size_t field) { return m[field]; }

/* Returns the metadata of a field of a struct with metadata `m`. */
LM_INLINE const size_t *lm_layout_field(const loam_type *type, const size_t *m, size_t field) {
  lm_assert(field < type->count);
  return m + type->fields[field].meta / sizeof *m;
}

/* Writes metadata for values that are laid out as C does. Each var dimension, pointer, string and
 * bytes gets an arena of its own under `site` for its pieces. `meta` is all zero before. On failure
 * (LOAM_ENOMEM) it holds no block. */
loam_status lm_layout_init(size_t *meta, const loam_type *type, loam_site *site);

/* Copies metadata and retains each block in it. */
void lm_layout_copy(size_t *to, const size_t *from, const loam_type *type);

/* Releases each block in the metadata and sets it to NULL. */
void lm_layout_finish(size_t *meta, const loam_type *type);

/* Returns whether the law above holds, as far as the metadata alone show it. */
bool lm_layout_is_valid(const size_t *meta, const loam_type *type);

/* ---- Pieces */

/* Resizes the piece of an arena that begins at *begin to `size` bytes; new bytes are zero. The
 * piece may move: *begin is then its new address. A NULL *begin means that there is no piece yet:
 * one is made. A `size` of 0 frees the piece and sets *begin to NULL. Fails with LOAM_ENOMEM:
 * nothing is changed. */
loam_status lm_layout_piece_resize(loam_block *block, char **begin, size_t size);

/* Frees all pieces to which the value at `data` refers, and all pieces to which those refer. */
void lm_layout_piece_free(const loam_type *type, const size_t *meta, char *data);

#endif
