/* layout.h - the metadata of an array: sizes, strides, offsets and blocks for each part of its
 * type.
 *
 * The type of an array says which values it has. The metadata say at which addresses the values
 * are. So two arrays of one type can have different metadata: a new array of type `3 * float64` has
 * a stride of 8 bytes. A view of every second element of an array of type `6 * float64` also has
 * the type `3 * float64`, but a stride of 16 bytes.
 *
 * The metadata are one sequence of machine words. The words of the outermost type come first, and
 * the metadata of its parts follow, depth first:
 *
 *   fixed           size, stride; then the metadata of the element
 *   var             block, stride, offset; then the metadata of the element
 *   pointer         block, offset; then the metadata of the target
 *   string, bytes   block
 *   struct          an offset for each field; then the metadata of each field
 *   option          the metadata of its value
 *   a scalar        nothing
 *
 * Law: the `size` of a fixed dimension equals the `count` of its type. If a value is at address p,
 * its parts are at these addresses:
 *
 *   element i of a fixed dimension   p + i * stride
 *   element i of a var dimension     piece.begin + offset + i * stride, where `piece` is the
 *                                    lm_piece at p and i < piece.size
 *   the target of a pointer          *p + offset
 *   field i of a struct              p + the offset of field i
 *   the value of an option           p
 *
 * The data of a var dimension, a pointer, a string or bytes lie outside the value at p. `block`
 * owns the memory in which these data lie, and the metadata hold a reference to that block. */
#ifndef LM_LAYOUT_H
#define LM_LAYOUT_H

#include "array/type.h"
#include "block/block.h"

/* The words that one type has in the metadata: see the table at the head of this file. The metadata
 * of the type's part begin at `element` or `target`. */

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

/* Each of the next four functions returns the metadata at `m` as the struct of one kind of type.
 * The caller knows that a type of this kind has its metadata at `m`. */

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

/* Returns the address of the first element of a var dimension, whose data are `piece`. Returns NULL
 * if it has no elements. */
LM_INLINE char *lm_layout_first(const lm_var_layout *m, const lm_piece *piece) {
  return piece->size ? lm_layout_move(piece->begin, m->offset) : NULL;
}

/* Reads the pointer at `data`, whose type is `type`, and sets *out to the address of its target. If
 * the pointer is NULL, *out is NULL. Returns false if the pointer is NULL although its target has
 * bytes. A target without bytes, such as an array without elements, needs no memory: the result is
 * true even if the pointer is NULL. */
LM_INLINE bool lm_layout_follow(const loam_type *type, const lm_pointer_layout *m, const char *data,
                                char **out) {
  char *target = *(char *const *)data;
  *out = lm_layout_move(target, m->offset);
  return target || !type->element->size;
}

/* Returns the offset in bytes of field number `field` in a struct whose metadata are at `m`. */
LM_INLINE size_t lm_layout_offset(const size_t *m, size_t field) { return m[field]; }

/* Returns the metadata of field number `field` of a struct type whose metadata are at `m`. */
LM_INLINE const size_t *lm_layout_field(const loam_type *type, const size_t *m, size_t field) {
  lm_assert(field < type->count);
  return m + type->fields[field].meta / sizeof *m;
}

/* Writes the metadata of `type` to `meta`, which the caller has set to zeros. The strides and
 * offsets are those of C's layout of the type. For each var dimension, pointer, string and bytes in
 * the type, the function makes an arena under `site`, in which the data of that part will lie;
 * `flags` are of loam_arena_new. Fails with LOAM_ENOMEM; `meta` then holds no reference to a
 * block. */
loam_status lm_layout_init(size_t *meta, const loam_type *type, loam_site *site, int flags);

/* Copies the metadata of a type from `from` to `to`, and retains each block in the metadata. */
void lm_layout_copy(size_t *to, const size_t *from, const loam_type *type);

/* Releases each block in the metadata of a type, and sets the reference to NULL. */
void lm_layout_finish(size_t *meta, const loam_type *type);

/* Checks the part of the law that needs only the metadata: each fixed dimension has the size of its
 * type, and each block has at least one reference. Returns whether both are true. */
bool lm_layout_is_valid(const size_t *meta, const loam_type *type);

/* ---- Pieces */

/* Resizes a piece of memory of the arena `block`. The piece begins at *begin and gets `size` bytes;
 * new bytes are zero if the arena is zeroed. If the piece has to move, *begin becomes its new
 * address. If *begin is NULL, the function makes a new piece at a multiple of `alignment`. If
 * `size` is 0, it frees the piece and sets *begin to NULL. Fails with LOAM_ENOMEM, and with
 * LOAM_ESTATE for a piece of a plain arena that is not the last one; the piece and *begin are then
 * unchanged. */
loam_status lm_layout_piece_resize(loam_block *block, char **begin, size_t alignment, size_t size);

/* Frees all memory outside the value at `data` to which it refers, directly or through other such
 * memory: elements of var dimensions, targets of pointers, and text. Each row of a var dimension in
 * the value becomes empty, each pointer NULL, and each text missing. */
void lm_layout_piece_free(const loam_type *type, const size_t *meta, char *data);

/* Calls lm_layout_piece_free for `count` values, of which the first is at `at`; the values are
 * `stride` bytes apart. Values without bytes refer to nothing, however many they are. */
void lm_layout_pieces_free(const loam_type *type, const size_t *meta, char *at, size_t count,
                           ptrdiff_t stride);

#endif
