/* layout.c - the metadata of an array, and the pieces to which its data refer. */
#include "array/layout.h"

#include <string.h>

#include "block/arena.h"
#include "os/error.h"

/* ---- The tree and its blocks */

/* Returns the address of the block in the words of the outermost type; NULL if a type of this kind
 * has no block. */
static loam_block **block_of(size_t *meta, const loam_type *type) {
  switch (type->kind) {
    case LOAM_TYPE_VAR:
    case LOAM_TYPE_POINTER:
    case LOAM_TYPE_STRING:
    case LOAM_TYPE_BYTES: return (loam_block **)meta;
    default: return NULL;
  }
}

/* Returns how many words a type with one part takes for itself. The metadata of the part follow. */
static size_t count_words(const loam_type *type) {
  lm_assert(type->meta >= type->element->meta && type->meta % sizeof(size_t) == 0);
  return (type->meta - type->element->meta) / sizeof(size_t);
}

typedef void (*visit_fn)(loam_block **block);

/* Calls `visit` with the address of each block in the metadata. */
static void each_block(size_t *meta, const loam_type *type, visit_fn visit) {
  if (!type->has_pieces) return;
  loam_block **block = block_of(meta, type);
  if (block) visit(block);
  if (type->element) each_block(meta + count_words(type), type->element, visit);
  if (type->kind != LOAM_TYPE_STRUCT) return;
  for (size_t i = 0; i < type->count; i++)
    each_block(meta + type->fields[i].meta / sizeof *meta, type->fields[i].type, visit);
}

static void retain_block(loam_block **block) { loam_block_retain(*block); }

static void release_block(loam_block **block) {
  loam_block_release(*block);
  *block = NULL;
}

void lm_layout_copy(size_t *to, const size_t *from, const loam_type *type) {
  lm_assert(to != from);
  lm_verify(lm_layout_is_valid(from, type));
  memcpy(to, from, type->meta);
  each_block(to, type, retain_block);
}

void lm_layout_finish(size_t *meta, const loam_type *type) {
  each_block(meta, type, release_block);
}

/* ---- The layout of C */

/* Like lm_layout_init, but on failure the blocks that were made stay in the metadata. */
static loam_status init(size_t *meta, const loam_type *type, loam_site *site, int flags);

static loam_status init_fields(size_t *meta, const loam_type *type, loam_site *site, int flags) {
  loam_status status = LOAM_OK;
  for (size_t i = 0; i < type->count && !status; i++) {
    const lm_field *f = &type->fields[i];
    meta[i] = f->offset;
    status = init(meta + f->meta / sizeof *meta, f->type, site, flags);
  }
  return status;
}

static loam_status init(size_t *meta, const loam_type *type, loam_site *site, int flags) {
  if (type->kind == LOAM_TYPE_STRUCT) return init_fields(meta, type, site, flags);
  if (type->kind == LOAM_TYPE_FIXED) {
    lm_fixed_layout *m = (lm_fixed_layout *)meta;
    m->size = type->count;
    m->stride = (ptrdiff_t)type->element->size;
  }
  if (type->kind == LOAM_TYPE_VAR) ((lm_var_layout *)meta)->stride = (ptrdiff_t)type->element->size;
  loam_block **block = block_of(meta, type);
  if (block) {
    lm_assert(!*block);
    *block = loam_arena_new(site, flags, 0);
    if (!*block) return LOAM_ENOMEM;
  }
  return type->element ? init(meta + count_words(type), type->element, site, flags) : LOAM_OK;
}

loam_status lm_layout_init(size_t *meta, const loam_type *type, loam_site *site, int flags) {
  loam_status status = init(meta, type, site, flags);
  if (status) lm_layout_finish(meta, type);
  return status;
}

/* ---- The law */

static bool are_valid_fields(const size_t *meta, const loam_type *type) {
  for (size_t i = 0; i < type->count; i++)
    if (!lm_layout_is_valid(lm_layout_field(type, meta, i), type->fields[i].type)) return false;
  return true;
}

bool lm_layout_is_valid(const size_t *meta, const loam_type *type) {
  if (type->kind == LOAM_TYPE_STRUCT) return are_valid_fields(meta, type);
  if (type->kind == LOAM_TYPE_FIXED && lm_layout_fixed(meta)->size != type->count) return false;
  loam_block **block = block_of((size_t *)meta, type);
  if (block && *block && !loam_block_refcount(*block)) return false;
  return !type->element || lm_layout_is_valid(meta + count_words(type), type->element);
}

/* ---- Pieces */

loam_status lm_layout_piece_resize(loam_block *block, char **begin, size_t alignment, size_t size) {
  char *piece = NULL;
  lm_assert(loam_block_kind_of(block) == LOAM_BLOCK_POOLED);
  if (!size) {
    if (*begin) lm_arena_drop(block, *begin);
  } else {
    if (*begin && !lm_arena_can_resize(block, *begin))
      return lm_error(LOAM_ESTATE, "rows and text of this array stand in a plain arena: only the "
                                   "one that was made last can be resized");
    piece = *begin ? loam_arena_resize(block, *begin, size)
                   : loam_arena_alloc(block, alignment, size);
    if (!piece) return LOAM_ENOMEM;
  }
  *begin = piece;
  return LOAM_OK;
}

void lm_layout_pieces_free(const loam_type *type, const size_t *meta, char *at, size_t count,
                           ptrdiff_t stride) {
  if (!type->has_pieces || !type->size) return;
  lm_assert(!count || at);
  for (size_t i = 0; i < count; i++)
    lm_layout_piece_free(type, meta, lm_layout_move(at, (ptrdiff_t)i * stride));
}

/* Frees the elements of a row and then the piece in which they stand; the row becomes empty. */
static void free_var(const loam_type *type, const lm_var_layout *m, lm_piece *piece) {
  if (!piece->begin) return;
  lm_assert(m->block);
  lm_layout_pieces_free(type->element, m->element, piece->begin + m->offset, piece->size,
                        m->stride);
  lm_arena_drop(m->block, piece->begin);
  *piece = (lm_piece){ NULL, 0 };
}

/* Frees the pieces of a pointer's target and then the target; the pointer becomes NULL. */
static void free_pointer(const loam_type *type, const lm_pointer_layout *m, char **pointer) {
  if (!*pointer) return;
  lm_assert(m->block);
  lm_layout_piece_free(type->element, m->target, *pointer + m->offset);
  lm_arena_drop(m->block, *pointer);
  *pointer = NULL;
}

/* Frees the bytes of text; the text becomes missing. Text without bytes has no piece. */
static void free_text(const lm_text_layout *m, lm_piece *piece) {
  if (piece->begin && piece->size) lm_arena_drop(m->block, piece->begin);
  *piece = (lm_piece){ NULL, 0 };
}

void lm_layout_piece_free(const loam_type *type, const size_t *meta, char *data) {
  if (!type->has_pieces) return;
  switch (type->kind) {
    case LOAM_TYPE_FIXED: {
      const lm_fixed_layout *m = lm_layout_fixed(meta);
      lm_layout_pieces_free(type->element, m->element, data, m->size, m->stride);
      break;
    }
    case LOAM_TYPE_STRUCT:
      for (size_t i = 0; i < type->count; i++)
        lm_layout_piece_free(type->fields[i].type, lm_layout_field(type, meta, i),
                             lm_layout_move(data, (ptrdiff_t)lm_layout_offset(meta, i)));
      break;
    case LOAM_TYPE_OPTION: lm_layout_piece_free(type->element, meta, data); break;
    case LOAM_TYPE_VAR: free_var(type, lm_layout_var(meta), (lm_piece *)data); break;
    case LOAM_TYPE_POINTER: free_pointer(type, lm_layout_pointer(meta), (char **)data); break;
    default: free_text(lm_layout_text(meta), (lm_piece *)data);
  }
}
