/* meta.h - the metadata of an array: a tree of the shape of its type, in words.
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
#ifndef LM_META_H
#define LM_META_H

#include "array/type.h"
#include "block/block.h"

typedef struct lm_fixed_meta {
  size_t size;
  ptrdiff_t stride;
  size_t element[];
} lm_fixed_meta;

typedef struct lm_var_meta {
  loam_block *block;
  ptrdiff_t stride, offset;
  size_t element[];
} lm_var_meta;

typedef struct lm_pointer_meta {
  loam_block *block;
  ptrdiff_t offset;
  size_t target[];
} lm_pointer_meta;

typedef struct lm_text_meta {
  loam_block *block;
} lm_text_meta;

LM_INLINE const lm_fixed_meta *lm_meta_fixed(const size_t *m) { return (const lm_fixed_meta *)m; }
LM_INLINE const lm_var_meta *lm_meta_var(const size_t *m) { return (const lm_var_meta *)m; }
LM_INLINE const lm_pointer_meta *lm_meta_pointer(const size_t *m) {
  return (const lm_pointer_meta *)m;
}
LM_INLINE const lm_text_meta *lm_meta_text(const size_t *m) { return (const lm_text_meta *)m; }

/* The first element of a row; NULL if it has none. */
LM_INLINE char *lm_meta_first(const lm_var_meta *m, const lm_piece *piece) {
  return piece->size ? piece->begin + m->offset : NULL;
}

/* The target of the pointer at `data`; false if it is NULL. What has no bytes needs no memory: the
 * empty part of an empty row, say. */
LM_INLINE bool lm_meta_follow(const loam_type *type, const lm_pointer_meta *m, const char *data,
                              const char **out) {
  const char *target = *(char *const *)data;
  *out = target ? target + m->offset : NULL;
  return target || !type->element->size;
}

/* Of a field of a struct: where it stands, and its metadata. */
LM_INLINE size_t lm_meta_offset(const size_t *m, size_t field) { return m[field]; }
LM_INLINE const size_t *lm_meta_field(const loam_type *type, const size_t *m, size_t field) {
  return m + type->fields[field].meta / sizeof *m;
}

/* Everything laid out as C does; each var dimension, pointer, string and bytes with an arena of
 * its own, under `site`, for its pieces. `meta` is zeroed; LOAM_ENOMEM leaves it with no block. */
loam_status lm_meta_init(size_t *meta, const loam_type *type, loam_site *site);

/* With a reference more to each block. */
void lm_meta_copy(size_t *to, const size_t *from, const loam_type *type);

/* Gives the references back. */
void lm_meta_finish(size_t *meta, const loam_type *type);

bool lm_meta_is_valid(const size_t *meta, const loam_type *type);

/* ---- Pieces */

/* The piece that begins at *begin becomes `size` bytes long, what is new of it zero; it may move.
 * NULL is none: 0 ends a piece, another size makes one. LOAM_ENOMEM: all is as it was. */
loam_status lm_piece_resize(loam_block *block, char **begin, size_t size);

/* Ends all pieces of a value, and theirs. */
void lm_piece_drop(const loam_type *type, const size_t *meta, char *data);

#endif
