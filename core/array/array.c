/* array.c - makes arrays, finds elements in them, fills them, and returns their properties. */
#include "array/array.h"

#include <string.h>

#include "api/handler_api.h"
#include "array/missing.h"
#include "block/arena.h"
#include "engine/engine.h"
#include "os/error.h"

/* ---- Making ------------------------------------------------------------------------------- */

/* The destructor of an array's own block: runs when the last reference to the array is released.
 * Embedded data are freed with the array; a separate owner is released here. */
static void finish(void *data, size_t size, void *ctx) {
  (void)data;
  (void)size;
  loam_array *a = ctx;
  lm_layout_finish(a->meta, a->type);
  loam_type_release(a->type);
  loam_block_release(a->owner);
}

/* Returns the offset of embedded data in an array of a type. */
static size_t data_offset(const loam_type *type) {
  return lm_align_up(sizeof(loam_array) + type->meta, 16);
}

loam_array *lm_array_make(loam_site *site, loam_type *type, loam_block *owner, void *data,
                          size_t embedded) {
  lm_assert(type->meta % sizeof(size_t) == 0 && (!owner || !embedded));
  size_t head = data_offset(type);
  loam_array *a = loam_calloc(site, 1, head + (owner ? 0 : embedded));
  if (!a) {
    loam_type_release(type);
    loam_block_release(owner);
    return NULL;
  }
  a->type = type;
  a->owner = owner;
  a->data = owner ? data : (char *)a + head;
  lm_block_fill(&a->block, site, LOAM_BLOCK_EXTERNAL, a->data, owner ? 0 : embedded);
  a->block.dtor = finish;
  a->block.ctx = a;
  lm_block_made(&a->block);
  return a;
}

bool lm_array_is_block(const loam_block *block) {
  return block->kind == LOAM_BLOCK_EXTERNAL && block->dtor == finish;
}

/* Makes an array whose data have a block of their own. The metadata are still zero. */
static loam_status make_separate(loam_site *site, const loam_type *type, loam_array **out) {
  loam_block *owner = loam_block_zeroed(site, type->size);
  if (!owner) return LOAM_ENOMEM;
  *out = lm_array_make(site, loam_type_retain(type), owner, loam_block_data(owner), 0);
  return *out ? LOAM_OK : LOAM_ENOMEM;
}

/* Makes an array whose data are embedded. The metadata are still zero. */
static loam_status make_embedded(loam_site *site, const loam_type *type, loam_array **out) {
  *out = lm_array_make(site, loam_type_retain(type), NULL, NULL, type->size);
  return *out ? LOAM_OK : LOAM_ENOMEM;
}

loam_status loam_array_new(loam_site *site, const loam_type *type, loam_array **out) {
  return loam_array_new_in(site, type, LOAM_ARENA_ZEROED | LOAM_ARENA_RESIZABLE, out);
}

loam_status loam_array_new_in(loam_site *site, const loam_type *type, int arenas,
                              loam_array **out) {
  loam_array *a;
  if (!type || !out) return lm_error_missing(type ? "out" : "type");
  loam_status status = lm_type_check_sized(type);
  if (status) return status;
  if (arenas & ~(LOAM_ARENA_ZEROED | LOAM_ARENA_RESIZABLE))
    return lm_error(LOAM_EINVAL, "arenas %d: they are a sum of LOAM_ARENA_*", arenas);
  bool is_separate = lm_handler_api_for_data(&site) || type->size > LM_ARRAY_EMBEDDED_MAX;
  status = is_separate ? make_separate(site, type, &a) : make_embedded(site, type, &a);
  if (status) return status;
  status = lm_layout_init(a->meta, a->type, site, arenas);
  if (status) {
    loam_block_release(&a->block);
    return status;
  }
  lm_verify(lm_array_is_valid(a));
  *out = a;
  return LOAM_OK;
}

loam_array *loam_array_retain(const loam_array *array) {
  if (array) loam_block_retain((loam_block *)&array->block);
  return (loam_array *)array;
}

void loam_array_release(loam_array *array) {
  if (array) loam_block_release(&array->block);
}

/* ---- Arrays over existing blocks ---------------------------------------------------------- */

/* Extends the bounds of one element to `count` elements that are `stride` bytes apart. Returns
 * false if an address would overflow. */
static bool add_dimension(lm_array_bounds *r, size_t count, ptrdiff_t stride) {
  ptrdiff_t reach;
  if (!count) r->is_empty = true;
  if (!count) return true;
  if (__builtin_mul_overflow((ptrdiff_t)count - 1, stride, &reach)) return false;
  return reach < 0 ? !__builtin_add_overflow(r->low, reach, &r->low)
                   : !__builtin_add_overflow(r->high, reach, &r->high);
}

loam_status lm_array_bounds_of(const loam_type *type, const int64_t *strides,
                               lm_array_bounds *out) {
  lm_array_bounds r = { 0, 0, false };
  bool is_possible = true;
  for (; type->kind == LOAM_TYPE_FIXED && is_possible; type = type->element)
    is_possible = add_dimension(&r, type->count,
                                strides ? *strides++ : (ptrdiff_t)type->element->size);
  if (!is_possible || __builtin_add_overflow(r.high, (ptrdiff_t)type->size, &r.high) ||
      r.high > (ptrdiff_t)LM_SIZE_MAX || r.low < -(ptrdiff_t)LM_SIZE_MAX)
    return lm_error(LOAM_EINVAL, "strides: the array reaches beyond all addresses");
  *out = r.is_empty ? (lm_array_bounds){ 0, 0, true } : r;
  lm_assert(lm_array_bounds_is_valid(out));
  return LOAM_OK;
}

/* Checks that an array at `offset` of the block's data stays inside the data, which may be NULL if
 * the elements have no bytes. */
static loam_status check_bounds(const loam_block *block, size_t offset, lm_array_bounds r) {
  lm_assert(lm_array_bounds_is_valid(&r));
  size_t size = loam_block_size(block);
  if (!loam_block_data(block) && r.low < r.high)
    return lm_error(LOAM_EINVAL, "the array has elements from %td to %td: the block has no memory",
                    r.low, r.high);
  if (offset <= size && (size_t)-r.low <= offset && (size_t)r.high <= size - offset) return LOAM_OK;
  return lm_error(LOAM_EINVAL, "the array reaches from %td to %td: the block has %zu bytes",
                  (ptrdiff_t)offset + r.low, (ptrdiff_t)offset + r.high, size);
}

/* Checks that every element lies at a multiple of its type's alignment: the address of the first
 * element and all strides have to be multiples. A stride that is never used is not checked. */
static loam_status check_alignment(const loam_type *type, const char *data, const size_t *meta) {
  lm_assert(lm_is_pow2(type->align));
  size_t low = (uintptr_t)data;
  char words[LM_TYPE_WORDS];
  for (const loam_type *t = type; t->kind == LOAM_TYPE_FIXED; t = t->element) {
    const lm_fixed_layout *m = lm_layout_fixed(meta);
    if (m->size > 1) low |= (size_t)m->stride;
    meta = m->element;
  }
  if (!(low & (type->align - 1))) return LOAM_OK;
  return lm_error(LOAM_EINVAL, "%s: not all elements would stand at multiples of %zu",
                  lm_type_words(words, type), type->align);
}

/* Writes strides, one for each fixed dimension, into the metadata. */
static void set_strides(size_t *meta, const loam_type *type, const int64_t *strides) {
  for (; type->kind == LOAM_TYPE_FIXED; type = type->element) {
    lm_fixed_layout *m = (lm_fixed_layout *)meta;
    m->stride = *strides++;
    meta = m->element;
  }
}

/* Fills in the metadata of an array over `offset` bytes into a block, and checks the result. */
static loam_status set_layout(loam_array *a, const loam_block *block, size_t offset,
                              const int64_t *strides) {
  lm_array_bounds r;
  loam_status status = lm_layout_init(a->meta, a->type, NULL, 0); /* cannot fail: no pieces */
  if (!status) status = lm_array_bounds_of(a->type, strides, &r);
  if (!status) status = check_bounds(block, offset, r);
  if (status) return status;
  if (strides) set_strides(a->meta, a->type, strides);
  return check_alignment(a->type, a->data, a->meta);
}

loam_status loam_array_wrap(loam_block *block, size_t offset, const loam_type *type,
                            const int64_t *strides, loam_array **out) {
  if (!block || !type || !out) return lm_error_missing(!block ? "block" : type ? "out" : "type");
  char words[LM_TYPE_WORDS];
  if (lm_type_check_sized(type)) return LOAM_EINVAL;
  if (type->has_pieces)
    return lm_error(LOAM_EINVAL,
                    "type %s: only values that stand in the block itself can be wrapped",
                    lm_type_words(words, type));
  if (loam_block_kind_of(block) == LOAM_BLOCK_POOLED)
    return lm_error(LOAM_EINVAL, "the block is an arena: it has pieces, no data");
  char *data = lm_layout_move(loam_block_data(block), (ptrdiff_t)offset);
  loam_array *a = lm_array_make(block->site, loam_type_retain(type), loam_block_retain(block), data,
                                0);
  if (!a) return LOAM_ENOMEM;
  a->is_readonly = block->is_readonly;
  loam_status status = set_layout(a, block, offset, strides);
  if (status) {
    loam_block_release(&a->block);
    return status;
  }
  lm_verify(lm_array_is_valid(a));
  *out = a;
  return LOAM_OK;
}

/* ---- Finding elements --------------------------------------------------------------------- */

/* Moves a cursor from an option to its value, which stands in the same place. */
static loam_status follow_option(lm_array_cursor *spot) {
  char words[LM_TYPE_WORDS];
  if (lm_missing_is(spot->type->element, spot->data))
    return lm_error(LOAM_ESTATE, "%s: the value is missing", lm_type_words(words, spot->type));
  spot->type = spot->type->element;
  return LOAM_OK;
}

loam_status lm_array_follow(lm_array_cursor *spot) {
  lm_assert(lm_type_is_followed(spot->type));
  if (spot->type->kind == LOAM_TYPE_OPTION) return follow_option(spot);
  const lm_pointer_layout *m = lm_layout_pointer(spot->meta);
  char words[LM_TYPE_WORDS];
  char *target;
  if (!lm_layout_follow(spot->type, m, spot->data, &target))
    return lm_error(LOAM_ESTATE, "%s: the pointer is NULL", lm_type_words(words, spot->type));
  spot->data = target;
  if (m->block) spot->owner = m->block;
  spot->type = spot->type->element;
  spot->meta = m->target;
  return LOAM_OK;
}

loam_status lm_array_follow_all(lm_array_cursor *spot) {
  loam_status status = LOAM_OK;
  while (lm_type_is_followed(spot->type) && !status) status = lm_array_follow(spot);
  return status;
}

static lm_array_row fixed_row(lm_array_cursor spot) {
  const lm_fixed_layout *m = lm_layout_fixed(spot.meta);
  lm_assert(m->size == spot.type->count);
  lm_array_cursor first = { spot.type->element, m->element, spot.data, spot.owner };
  return (lm_array_row){ m->size, m->stride, first };
}

static lm_array_row var_row(lm_array_cursor spot) {
  const lm_var_layout *m = lm_layout_var(spot.meta);
  const lm_piece *piece = (const lm_piece *)spot.data;
  lm_array_cursor first = { spot.type->element, m->element, lm_layout_first(m, piece),
                            m->block ? m->block : spot.owner };
  return (lm_array_row){ piece->size, m->stride, first };
}

lm_array_row lm_array_row_at(lm_array_cursor spot) {
  lm_assert(spot.type->kind == LOAM_TYPE_FIXED || spot.type->kind == LOAM_TYPE_VAR);
  return spot.type->kind == LOAM_TYPE_FIXED ? fixed_row(spot) : var_row(spot);
}

loam_status lm_array_dimension(lm_array_cursor spot, lm_array_row *out) {
  *out = (lm_array_row){ 0 };
  loam_status status = lm_array_follow_all(&spot);
  if (status) return status;
  if (spot.type->kind == LOAM_TYPE_FIXED || spot.type->kind == LOAM_TYPE_VAR) {
    *out = lm_array_row_at(spot);
    return LOAM_OK;
  }
  char words[LM_TYPE_WORDS];
  return lm_error(LOAM_EINVAL, "type %s: it has no dimension", lm_type_words(words, spot.type));
}

/* Turns an index of `count` elements, perhaps a negative one, into the number of the element. */
static loam_status check_index(int64_t index, size_t count, size_t *out) {
  int64_t n = (int64_t)count, at = index < 0 ? index + n : index;
  if (at < 0 || at >= n)
    return lm_error(LOAM_EINVAL, "index %lld: there %s %zu element%s", (long long)index,
                    count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
  *out = (size_t)at;
  return LOAM_OK;
}

/* Moves a cursor from the whole array to the element at `count` indices, through all pointers. */
static loam_status walk(lm_array_cursor *spot, size_t count, const int64_t *index) {
  for (size_t i = 0; i < count; i++) {
    lm_array_row row;
    size_t at = 0;
    loam_status status = lm_array_dimension(*spot, &row);
    if (!status) status = check_index(index[i], row.count, &at);
    if (status) return status;
    *spot = row.first;
    spot->data = lm_layout_move(spot->data, (ptrdiff_t)at * row.stride);
  }
  return lm_array_follow_all(spot);
}

void *loam_array_at(const loam_array *array, size_t count, const int64_t *index) {
  if (!array || (count && !index))
    return lm_error_null("%s: it is NULL", array ? "index" : "array");
  lm_array_cursor spot = lm_array_start(array);
  return walk(&spot, count, index) ? NULL : spot.data;
}

/* ---- Filling ------------------------------------------------------------------------------ */

loam_status lm_array_check_writable(const loam_array *a) {
  return a->is_readonly
             ? lm_error(LOAM_ESTATE, "the array is read-only: its memory must not be written")
             : LOAM_OK;
}

/* Fails with LOAM_ESTATE if pieces are not in an arena, as after an import from Arrow. */
static loam_status check_pool(const loam_block *block) {
  return loam_block_kind_of(block) == LOAM_BLOCK_POOLED
             ? LOAM_OK
             : lm_error(LOAM_ESTATE, "rows and text of this array are not in an arena of loam: "
                                     "they cannot be resized");
}

/* Zeroes new elements that refer to pieces: they refer to none. A zeroed arena has done so. */
static void clear_new(const loam_block *block, const loam_type *type, char *from, size_t count) {
  if (type->has_pieces && !lm_arena_is_zeroed(block)) memset(from, 0, count * type->size);
}

/* Resizes a row. Elements that are removed free their own pieces first. */
static loam_status resize_var(const loam_type *type, const lm_var_layout *m, lm_piece *piece,
                              size_t count) {
  lm_assert(type->kind == LOAM_TYPE_VAR && piece->size <= LM_SIZE_MAX);
  size_t bytes, element_size = type->element->size;
  if (m->offset || m->stride != (ptrdiff_t)element_size)
    return lm_error(LOAM_ESTATE, "a row of selected fields: resize the row of the whole array");
  if (!lm_mul(count, element_size, &bytes) || bytes > LM_SIZE_MAX || count > LM_SIZE_MAX)
    return lm_error(LOAM_ENOMEM, "%zu elements of %zu bytes: no address space is that large", count,
                    element_size);
  size_t was = piece->size;
  if (count < was)
    lm_layout_pieces_free(type->element, m->element,
                          lm_layout_move(piece->begin, (ptrdiff_t)count * m->stride), was - count,
                          m->stride);
  loam_status status = lm_layout_piece_resize(m->block, &piece->begin, type->element->align, bytes);
  if (status && count < was) status = LOAM_OK; /* a row that shrinks can keep the larger piece */
  else if (!status && count > was)
    clear_new(m->block, type->element, piece->begin + was * element_size, count - was);
  if (!status) piece->size = count;
  return status;
}

/* Makes the target of a NULL pointer; a pointer that has a target keeps it. */
static loam_status fill_pointer(const loam_array *array, size_t count) {
  const loam_type *type = array->type;
  const lm_pointer_layout *m = lm_layout_pointer(array->meta);
  char **pointer = (char **)array->data, words[LM_TYPE_WORDS];
  lm_assert(type->kind == LOAM_TYPE_POINTER);
  if (count != 1) return lm_error(LOAM_EINVAL, "%zu elements: a pointer has one target", count);
  size_t size = type->element->size ? type->element->size : 1;
  if (*pointer) return LOAM_OK;
  if (array->part_targets & 1)
    return lm_error(LOAM_ESTATE,
                    "%s: the view shows a part of the target: make the target through the whole "
                    "array",
                    lm_type_words(words, type));
  loam_status status = lm_layout_piece_resize(m->block, pointer, type->element->align, size);
  if (!status && type->element->size) clear_new(m->block, type->element, *pointer, 1);
  return status;
}

/* Makes a missing value with parts present; its bytes are zeros. A present value is kept. */
static loam_status fill_option(loam_array *array, size_t count) {
  if (count != 1) return lm_error(LOAM_EINVAL, "%zu elements: an option has one value", count);
  lm_missing_clear(array->type->element, array->data);
  return LOAM_OK;
}

loam_status loam_array_resize(loam_array *array, size_t count) {
  if (!array) return lm_error_missing("array");
  const loam_type *type = array->type;
  lm_verify(lm_array_is_valid(array));
  char words[LM_TYPE_WORDS];
  if (type->kind != LOAM_TYPE_VAR && !lm_type_is_followed(type))
    return lm_error(LOAM_EINVAL, "type %s: only a row of a var dimension can be resized",
                    lm_type_words(words, type));
  loam_status status = lm_array_check_writable(array);
  if (type->kind == LOAM_TYPE_OPTION) return status ? status : fill_option(array, count);
  if (!status) status = check_pool(*(loam_block *const *)array->meta);
  if (status) return status;
  if (type->kind == LOAM_TYPE_POINTER) return fill_pointer(array, count);
  return resize_var(type, lm_layout_var(array->meta), (lm_piece *)array->data, count);
}

loam_status loam_array_append(loam_array *array, const void *element) {
  if (!array || !element) return lm_error_missing(array ? "element" : "array");
  const loam_type *type = array->type;
  char words[LM_TYPE_WORDS];
  if (type->kind != LOAM_TYPE_VAR)
    return lm_error(LOAM_EINVAL, "type %s: it is not a row of a var dimension",
                    lm_type_words(words, type));
  if (type->element->has_pieces)
    return lm_error(LOAM_EINVAL, "%s: resize the row and fill the new element in its place",
                    lm_type_words(words, type->element));
  lm_piece *piece = (lm_piece *)array->data;
  size_t element_size = type->element->size, last = piece->size;
  size_t within = (size_t)((uintptr_t)element - (uintptr_t)piece->begin);
  bool is_inside = within < last * element_size; /* then `element` moves when the row moves */
  loam_status status = loam_array_resize(array, last + 1);
  if (status) return status;
  memcpy(piece->begin + last * element_size, is_inside ? piece->begin + within : element,
         element_size);
  return LOAM_OK;
}

/* ---- Text ---- */

/* Returns the type of the value of an option; returns any other type unchanged. */
static const loam_type *value_type(const loam_type *type) {
  return type->kind == LOAM_TYPE_OPTION ? type->element : type;
}

/* Text of no bytes begins here: a NULL begin would mean that the text is missing. */
static char empty_text[1];

/* Replaces text by a copy of `size` bytes, in the arena `block`. */
static loam_status set_text(loam_block *block, lm_piece *piece, const char *bytes, size_t size) {
  char *begin = piece->size ? piece->begin : NULL;
  loam_status status = lm_layout_piece_resize(block, &begin, 1, size);
  if (status && size > piece->size) return status; /* shorter text can keep the larger piece */
  if (size) memcpy(begin, bytes, size);
  *piece = (lm_piece){ size ? begin : empty_text, size };
  return LOAM_OK;
}

/* Replaces a fixed string. Bytes of the string behind the new text become zeros. */
static loam_status set_fixed_string(loam_array *array, const loam_type *type, const char *bytes,
                                    size_t size) {
  size_t room = type->count;
  if (size > room)
    return lm_error(LOAM_EINVAL, "text of %zu bytes: %s has no room for it", size, type->text);
  loam_status status = lm_array_check_writable(array);
  if (status) return status;
  if (size) memcpy(array->data, bytes, size);
  memset(array->data + size, 0, room - size);
  if (type != array->type) lm_missing_clear(type, array->data);
  return LOAM_OK;
}

/* Refuses text that is the name of no category of `type`. */
static loam_status fail_no_category(const loam_type *type, const char *bytes, size_t size) {
  char text[LM_TYPE_WORDS], shown[LM_TYPE_WORDS], words[LM_TYPE_WORDS];
  size_t length = size < sizeof text ? size : sizeof text - 1;
  if (length) memcpy(text, bytes, length);
  text[length] = 0;
  return lm_error(LOAM_EINVAL, "text %s: %s has no such category",
                  lm_error_quote(shown, sizeof shown, text), lm_type_words(words, type));
}

/* Sets a categorical to the code of the category whose name is the text. */
static loam_status set_category(loam_array *array, const loam_type *type, const char *bytes,
                                size_t size) {
  uint32_t code;
  if (!lm_type_find_category(type, bytes, size, &code)) return fail_no_category(type, bytes, size);
  loam_status status = lm_array_check_writable(array);
  if (status) return status;
  lm_type_put_code(type, array->data, code);
  return LOAM_OK;
}

loam_status loam_array_set_text(loam_array *array, const char *bytes, size_t size) {
  if (!array || (size && !bytes)) return lm_error_missing(array ? "bytes" : "array");
  const loam_type *type = value_type(array->type);
  if (type->kind == LOAM_TYPE_FIXED_STRING) return set_fixed_string(array, type, bytes, size);
  if (type->kind == LOAM_TYPE_CATEGORICAL) return set_category(array, type, bytes, size);
  char words[LM_TYPE_WORDS];
  if (!lm_type_is_text(type->kind))
    return lm_error(LOAM_EINVAL, "type %s: it is not a string or bytes",
                    lm_type_words(words, array->type));
  loam_block *block = lm_layout_text(array->meta)->block;
  loam_status status = lm_array_check_writable(array);
  if (!status) status = check_pool(block);
  return status ? status : set_text(block, (lm_piece *)array->data, bytes, size);
}

/* ---- Properties --------------------------------------------------------------------------- */

const loam_type *loam_array_type(const loam_array *array) { return array ? array->type : NULL; }
void *loam_array_data(const loam_array *array) { return array ? array->data : NULL; }

size_t loam_array_dims(const loam_array *array, size_t most, size_t *shape, int64_t *strides) {
  if (!array) return 0;
  const size_t *meta = array->meta;
  size_t n = 0;
  for (const loam_type *t = array->type; t->kind == LOAM_TYPE_FIXED; t = t->element, n++) {
    const lm_fixed_layout *m = lm_layout_fixed(meta);
    if (n < most && shape) shape[n] = m->size;
    if (n < most && strides) strides[n] = m->stride;
    meta = m->element;
  }
  return n;
}

loam_status loam_array_info(const loam_array *array, struct loam_array_info *out) {
  if (!array || !out) return lm_error_missing(array ? "out" : "array");
  lm_array_cursor spot = lm_array_start(array);
  *out = (struct loam_array_info){ .type = array->type,
                                   .data = array->data,
                                   .block = spot.owner,
                                   .references = loam_block_refcount(&array->block),
                                   .embedded = !array->owner,
                                   .readonly = (int)array->is_readonly };
  return LOAM_OK;
}

/* Returns the bytes of a block that has rows, text or targets: an arena, or a copy that was made of
 * memory of Arrow. Memory that loam did not make is not counted. */
static size_t block_bytes(const loam_block *block) {
  return block && loam_block_kind_of(block) != LOAM_BLOCK_EXTERNAL ? loam_block_size(block) : 0;
}

/* Returns the bytes in the blocks of a part of an array. */
static size_t bytes_apart(const loam_type *type, const size_t *meta) {
  size_t bytes = 0;
  switch (type->kind) {
    case LOAM_TYPE_FIXED: return bytes_apart(type->element, lm_layout_fixed(meta)->element);
    case LOAM_TYPE_OPTION: return bytes_apart(type->element, meta);
    case LOAM_TYPE_VAR:
      return block_bytes(lm_layout_var(meta)->block) +
             bytes_apart(type->element, lm_layout_var(meta)->element);
    case LOAM_TYPE_POINTER:
      return block_bytes(lm_layout_pointer(meta)->block) +
             bytes_apart(type->element, lm_layout_pointer(meta)->target);
    case LOAM_TYPE_STRUCT:
      for (size_t i = 0; i < type->count; i++)
        bytes += bytes_apart(type->fields[i].type, lm_layout_field(type, meta, i));
      return bytes;
    default: return lm_type_is_text(type->kind) ? block_bytes(lm_layout_text(meta)->block) : 0;
  }
}

size_t loam_array_bytes(const loam_array *array) {
  return array ? array->type->size + bytes_apart(array->type, array->meta) : 0;
}

bool lm_array_is_valid(const loam_array *a) {
  if (!loam_block_refcount(&a->block) || !lm_type_is_valid(a->type)) return false;
  if (!lm_array_is_block(&a->block) || !lm_block_is_valid(&a->block)) return false;
  if (a->owner ? !loam_block_refcount(a->owner) : a->data != (const char *)a + data_offset(a->type))
    return false;
  return lm_layout_is_valid(a->meta, a->type);
}
