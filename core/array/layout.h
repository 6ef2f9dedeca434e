/* layout.h - the metadata of an array: a tree of the shape of its type, in words.
 *
 * It says where things are, and the type what they are: two arrays of one type, one a view with
 * every other row left out, differ in their metadata alone. Depth first, for each type:
 *
 *   fixed           size, stride; then of its element
 *   var             block, stride, offset; then of its element
 *   pointer         block, offset; then of its target
 *   string, bytes   block
 *   struct          an offset for each field; then of each field
 *   option          of its value
 *   a scalar        nothing
 *
 * Law: a fixed dimension's size is its type's count. Element i of a dimension at p is at
 * p + i * stride; of a var dimension, whose lm_piece is at p, at piece.begin + offset + i * stride,
 * i < piece.size; the target of a pointer at p is at *p + offset. A block owns the memory that
 * the pieces of its place in the tree stand in; the metadata holds a reference to it. */
#ifndef LM_LAYOUT_H
#define LM_LAYOUT_H

#include "array/type.h"
#include "block/block.h"

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

/* The first element of a row; NULL if it has none. */
LM_INLINE char *lm_layout_first(const lm_var_layout *m, const lm_piece *piece) {
  return piece->size ? piece->begin + m->offset : NULL;
}

/* The target of the pointer at `data`; false if it is NULL. What has no bytes needs no memory: the
 * empty part of an empty row, say. */
LM_INLINE bool lm_layout_follow(const loam_type *type, const lm_pointer_layout *m, const char *data,
                                const char **out) {
  const char *target = *(char *const *)data;
  *out = target ? target + m->offset : NULL;
  return target || !type->element->size;
}

/* Of a field of a struct: where it stands, and its metadata. */
LM_INLINE size_t lm_layout_offset(const size_t *m, size_t field) { return m[field]; }
LM_INLINE const size_t *lm_layout_field(const loam_type *type, const size_t *m, size_t field) {
  return m + type->fields[field].meta / sizeof *m;
}

/* Everything laid out as C does; each var dimension, pointer, string and bytes with an arena of
 * its own, under `site`, for its pieces. `meta` is zeroed; LOAM_ENOMEM leaves it with no block. */
loam_status lm_layout_init(size_t *meta, const loam_type *type, loam_site *site);

/* With a reference more to each block. */
void lm_layout_copy(size_t *to, const size_t *from, const loam_type *type);

/* Gives the references back. */
void lm_layout_finish(size_t *meta, const loam_type *type);

bool lm_layout_is_valid(const size_t *meta, const loam_type *type);

/* ---- Pieces */

/* The piece that begins at *begin becomes `size` bytes long, what is new of it zero; it may move.
 * NULL is none: 0 ends a piece, another size makes one. LOAM_ENOMEM: all is as it was. */
loam_status lm_layout_piece_resize(loam_block *block, char **begin, size_t size);

/* Ends all pieces of a value, and theirs. */
void lm_layout_piece_free(const loam_type *type, const size_t *meta, char *data);

#endif
