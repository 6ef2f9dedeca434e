/* arrow_import.c - imports arrays through Arrow's C data interface.
 *
 * An Arrow array is a tree of nodes. The root is imported first, and each node imports its children
 * (import_node). The result of a node is a sequence of values at equal distances in memory. A list
 * node becomes a dimension, and the values of its child become the elements of this dimension.
 *
 * Numbers and the bytes of text stay in Arrow's buffers. Only bools, numbers with missing values,
 * and indices into a dictionary that are no codes of a categorical, are copied, because loam stores
 * them in another way. For each string, and for each list of variable length, loam makes an
 * lm_piece that points to the text or the elements. */
#include <stdio.h>
#include <string.h>

#include "array/arrow.h"
#include "array/missing.h"
#include "os/error.h"

/* The values of one imported node: `count` values of type `type`. Value number i is at `first + i *
 * stride`. The struct owns a reference to `type`, a reference to `owner`, the allocation `meta`,
 * and the references to blocks in `meta`. drop_values releases all of them. */
typedef struct values {
  loam_type *type;
  size_t *meta;
  char *first;
  ptrdiff_t stride;
  size_t count;
  loam_block *owner; /* the block that owns the memory at `first` */
} values;

/* One import. All of its nodes use this struct. */
typedef struct job {
  loam_block *holder; /* the block that releases the Arrow array when it ends */
  bool may_copy;      /* the host allows copies of values that loam stores in another way */
} job;

/* The part of a node that its parent uses: `count` elements, which begin at element number `from`
 * of the node's buffers. */
typedef struct source {
  const struct ArrowSchema *schema;
  const struct ArrowArray *array;
  size_t from, count;
  unsigned depth; /* nodes above this one */
} source;

/* Fails with LOAM_EUNSUPPORTED because loam cannot import this node. `why` is the reason. */
static loam_status refuse(const source *s, const char *why) {
  char format[64];
  return lm_error(LOAM_EUNSUPPORTED, "Arrow format %s: %s",
                  lm_error_quote(format, sizeof format, s->schema->format), why);
}

/* Releases everything that `v` owns and sets `v` to zeros. */
static void drop_values(values *v) {
  if (v->type && v->meta) lm_layout_finish(v->meta, v->type);
  loam_free(v->meta);
  loam_type_release(v->type);
  loam_block_release(v->owner);
  *v = (values){ .type = NULL };
}

/* ---- Nodes -------------------------------------------------------------------------------- */

static bool has_bit(const void *bits, size_t i) {
  return ((const uint8_t *)bits)[i / 8] >> i % 8 & 1;
}

/* Returns whether element `i` has a value. In Arrow an element is missing if its validity bit is 0.
 * A node without validity bits, or with a null_count of 0, has no missing elements. */
static bool is_present(const source *s, size_t i) {
  lm_assert(i < s->count);
  bool has_bits = s->array->n_buffers && s->array->null_count;
  const void *bits = has_bits ? s->array->buffers[0] : NULL;
  return !bits || has_bit(bits, s->from + i);
}

/* Returns whether at least one of the elements is missing. */
static bool has_missing(const source *s) {
  for (size_t i = 0; s->array->null_count && i < s->count; i++)
    if (!is_present(s, i)) return true;
  return false;
}

/* Checks that a node is not too deep in the tree, so that the recursion of import_node is bounded;
 * that it has a valid length and offset, and exactly this number of buffers and of children. A
 * buffer that has no bytes may be NULL. Fails with LOAM_EINVAL. */
static loam_status check_node(const source *s, int64_t buffers, int64_t children) {
  const struct ArrowArray *a = s->array;
  if (s->depth >= LM_TYPE_DEPTH)
    return lm_error(LOAM_EINVAL, "the Arrow schema is more than %d levels deep", LM_TYPE_DEPTH);
  if (a->length < 0 || a->offset < 0 || a->length > (int64_t)LM_SIZE_MAX ||
      a->offset > (int64_t)LM_SIZE_MAX)
    return lm_error(LOAM_EINVAL, "an Arrow array of %lld elements from %lld on",
                    (long long)a->length, (long long)a->offset);
  if (a->n_buffers != buffers || a->n_children != children || s->schema->n_children != children)
    return lm_error(LOAM_EINVAL, "Arrow format \"%s\" with %lld buffers and %lld children",
                    s->schema->format, (long long)a->n_buffers, (long long)a->n_children);
  if (buffers > 1 && s->count && !a->buffers[1])
    return lm_error(LOAM_EINVAL, "Arrow format \"%s\": %zu elements and no buffer for them",
                    s->schema->format, s->count);
  return LOAM_OK;
}

/* Returns the part of child `i` that begins at the child's element `from` and has `count`
 * elements. */
static source child_of(const source *s, size_t i, size_t from, size_t count) {
  lm_assert((int64_t)i < s->array->n_children);
  const struct ArrowArray *a = s->array->children[i];
  return (source){ s->schema->children[i], a, (size_t)a->offset + from, count, s->depth + 1 };
}

/* Returns whether child `i` has at least `end` elements. */
static bool is_in_child(const source *s, size_t i, size_t end) {
  const struct ArrowArray *a = s->array->children[i];
  return a->length >= 0 && end <= (size_t)a->length;
}

/* Checks that a node and all below it lack no pointer that their counts ask for. Nodes that are too
 * deep are not looked at: check_node refuses them. */
static loam_status check_pointers(const struct ArrowSchema *schema, const struct ArrowArray *array,
                                  int depth) {
  if (!schema || !array) return lm_error(LOAM_EINVAL, "an Arrow child is NULL");
  const char *lacks = !schema->format                               ? "format"
                      : array->n_buffers > 0 && !array->buffers     ? "buffers"
                      : schema->n_children > 0 && !schema->children ? "schema's children"
                      : array->n_children > 0 && !array->children   ? "children"
                                                                    : NULL;
  if (lacks) return lm_error(LOAM_EINVAL, "an Arrow node has NULL for its %s", lacks);
  loam_status status = LOAM_OK;
  bool is_deep = depth >= LM_TYPE_DEPTH, is_pair = schema->n_children == array->n_children;
  for (int64_t i = 0; !status && !is_deep && is_pair && i < array->n_children; i++)
    status = check_pointers(schema->children[i], array->children[i], depth + 1);
  if (!status && !is_deep && schema->dictionary && array->dictionary)
    status = check_pointers(schema->dictionary, array->dictionary, depth + 1);
  return status;
}

/* Allocates zeroed metadata for the type in out->type. `made` is the status of the call that made
 * this type. If that call failed, alloc_meta returns its status and sets out->type to NULL, because
 * there is no reference that the caller would have to release. */
static loam_status alloc_meta(loam_status made, values *out) {
  if (made) {
    out->type = NULL;
    return made;
  }
  lm_assert(out->type && !out->meta);
  out->meta = loam_calloc(lm_type_site(), 1, out->type->meta + 1);
  return out->meta ? LOAM_OK : LOAM_ENOMEM;
}

/* ---- Scalars ------------------------------------------------------------------------------ */

/* Sets *out to the kind of scalar that an Arrow format means. Returns false if the format does not
 * mean a scalar of loam. */
static bool find_scalar(const char *format, loam_type_kind *out) {
  if (!format[0]) return false;
  for (int kind = 0; kind < LOAM_TYPE_STRING; kind++) {
    if (strcmp(lm_arrow_format((loam_type_kind)kind), format) != 0) continue;
    *out = (loam_type_kind)kind;
    return true;
  }
  return false;
}

/* Copies element `i` to `to`. loam marks a missing element by a special value of its type
 * (missing.h), so a missing element becomes that value. Fails with LOAM_EUNSUPPORTED if an element
 * that is not missing has that value. */
static loam_status copy_scalar(const source *s, const loam_type *value, bool has_option, size_t i,
                               char *to) {
  const char *from = s->array->buffers[1];
  if (!is_present(s, i)) {
    lm_missing_set(value, to);
    return LOAM_OK;
  }
  if (value->kind == LOAM_TYPE_BOOL) *to = has_bit(from, s->from + i);
  else memcpy(to, from + (s->from + i) * value->size, value->size);
  lm_assert(lm_type_is_scalar(value->kind) || value->kind == LOAM_TYPE_DECIMAL);
  if (has_option && lm_missing_is(value, to))
    return lm_error(LOAM_EUNSUPPORTED, "element %zu has the value that marks a missing %s", i,
                    value->text);
  return LOAM_OK;
}

/* Copies all elements into a new block, which becomes out->owner. */
static loam_status copy_scalars(const source *s, const loam_type *value, bool has_option,
                                values *out) {
  out->owner = loam_block_new(NULL, s->count * value->size);
  if (!out->owner) return LOAM_ENOMEM;
  out->first = loam_block_data(out->owner);
  loam_status status = LOAM_OK;
  for (size_t i = 0; i < s->count && !status; i++)
    status = copy_scalar(s, value, has_option, i, out->first + i * value->size);
  return status;
}

/* Returns whether the elements begin at a multiple of their alignment. */
static bool is_aligned(const source *s, const loam_type *value) {
  return !s->count || !((uintptr_t)s->array->buffers[1] & (value->align - 1));
}

/* Returns the reason why scalars have to be copied, or NULL if they can stay in Arrow's buffer. */
static const char *why_copy(const source *s, const loam_type *value, bool has_option) {
  if (has_option) return "missing values are special values in loam, which needs a copy";
  if (value->kind == LOAM_TYPE_BOOL) return "bools are bits, which needs a copy";
  return is_aligned(s, value) ? NULL : "its buffer is not aligned, which needs a copy";
}

/* Imports decimals, numbers or bools, of the type `value`, whose reference this takes over. Numbers
 * stay in Arrow's buffer. Bools, numbers of which some are
 * missing, and numbers that are not aligned are copied; if the host does not allow copies, this
 * fails. */
static loam_status import_scalars(const job *w, const source *s, loam_type *value, values *out) {
  loam_status status = check_node(s, 2, 0);
  bool has_option = !status && has_missing(s);
  out->type = value;
  if (has_option) status = lm_type_option(value, &out->type);
  else if (status) loam_type_release(value);
  status = alloc_meta(status, out);
  if (status) return status;
  out->stride = (ptrdiff_t)value->size;
  const char *why = why_copy(s, value, has_option);
  if (why) return w->may_copy ? copy_scalars(s, value, has_option, out) : refuse(s, why);
  if (s->count) out->first = (char *)s->array->buffers[1] + s->from * value->size;
  out->owner = loam_block_retain(w->holder);
  return LOAM_OK;
}

/* Imports decimals of 128 bits: "d:DIGITS,SCALE" or "d:DIGITS,SCALE,128". */
static loam_status import_decimals(const job *w, const source *s, values *out) {
  int digits, scale, bits = 128;
  int end = 0;
  loam_type *value;
  int found = sscanf(s->schema->format, "d:%3d,%3d%n,%4d%n", &digits, &scale, &end, &bits, &end);
  if (found < 2 || s->schema->format[end] || bits != 128 || digits < 1 || scale < 0)
    return refuse(s, "loam has decimals of 128 bits, with a scale of 0 or more");
  loam_status status = lm_type_decimal((size_t)digits, (size_t)scale, &value);
  return status ? status : import_scalars(w, s, value, out);
}

/* ---- Pieces ------------------------------------------------------------------------------- */

/* Returns offset `i` of a list or text node: where element `i` begins in the child or the text. The
 * buffer of offsets need not be aligned. An array without elements may have no such buffer; the
 * result is then 0. */
static size_t offset_at(const source *s, bool is_wide, size_t i) {
  const char *offsets = s->array->buffers[1];
  if (!s->count) return 0;
  int32_t narrow;
  int64_t wide;
  if (is_wide) memcpy(&wide, offsets + (s->from + i) * sizeof wide, sizeof wide);
  else memcpy(&narrow, offsets + (s->from + i) * sizeof narrow, sizeof narrow);
  return is_wide ? (size_t)wide : (size_t)narrow;
}

/* Makes an lm_piece for each element of a list or text node, in a new block. The pieces point to
 * bytes of text (`stride` is 1), or to values of the child that are `stride` bytes apart. `base` is
 * where the first element begins. The piece of a missing element is all zeros; in loam that means
 * missing text, and a missing row is marked by the byte behind its piece. */
static loam_status make_pieces(const source *s, bool is_wide, char *base, ptrdiff_t stride,
                               values *out) {
  out->owner = loam_block_zeroed(NULL, s->count * out->type->size);
  if (!out->owner) return LOAM_ENOMEM;
  char *data = out->first = loam_block_data(out->owner);
  out->stride = (ptrdiff_t)out->type->size;
  size_t first = offset_at(s, is_wide, 0);
  for (size_t i = 0; i < s->count; i++) {
    size_t begin = offset_at(s, is_wide, i), end = offset_at(s, is_wide, i + 1), size = end - begin;
    if (end < begin || end > LM_SIZE_MAX)
      return lm_error(LOAM_EINVAL, "element %zu of an Arrow array ends before it begins", i);
    lm_piece *piece = (lm_piece *)(data + (ptrdiff_t)i * out->stride);
    if (!is_present(s, i)) {
      if (out->type->kind == LOAM_TYPE_OPTION) lm_missing_set(out->type->element, (char *)piece);
      continue;
    }
    /* The base is NULL if there are no parts, and NULL + 0 is not defined in C. */
    *piece = (lm_piece){ size ? base + (ptrdiff_t)(begin - first) * stride : base, size };
  }
  return LOAM_OK;
}

/* Imports strings or bytes. The bytes of the text stay in Arrow's buffer. */
static loam_status import_text(const job *w, const source *s, loam_type_kind kind, bool is_wide,
                               values *out) {
  static char empty[1];
  loam_status status = check_node(s, 3, 0);
  if (status) return status;
  out->type = lm_type_plain(kind);
  if (has_missing(s)) status = lm_type_option(out->type, &out->type);
  status = alloc_meta(status, out);
  if (status) return status;
  ((lm_text_layout *)out->meta)->block = loam_block_retain(w->holder);
  size_t begin = offset_at(s, is_wide, 0), end = offset_at(s, is_wide, s->count);
  char *text = (char *)s->array->buffers[2];
  if (begin > end || end > LM_SIZE_MAX)
    return lm_error(LOAM_EINVAL, "Arrow text from byte %lld to byte %lld", (long long)begin,
                    (long long)end);
  if (!text && begin != end)
    return lm_error(LOAM_EINVAL, "Arrow format \"%s\": text and no buffer for it",
                    s->schema->format);
  return make_pieces(s, is_wide, begin == end ? empty : text + begin, 1, out);
}

/* ---- Dictionaries ------------------------------------------------------------------------- */

/* Returns a dictionary of a node as a source of all its values. */
static source dictionary_of(const source *s) {
  const struct ArrowArray *a = s->array->dictionary;
  return (source){ s->schema->dictionary, a, a->offset > 0 ? (size_t)a->offset : 0,
                   a->length > 0 ? (size_t)a->length : 0, s->depth + 1 };
}

/* Copies the strings of a dictionary to `letters`, each with a NUL behind it, and sets names[i] to
 * the copy of string i. Fails with LOAM_EUNSUPPORTED if a string has a NUL. */
static loam_status copy_names(const source *d, bool is_wide, const char **names, char *letters) {
  const char *text = d->array->buffers[2];
  for (size_t i = 0; i < d->count; i++) {
    size_t begin = offset_at(d, is_wide, i), size = offset_at(d, is_wide, i + 1) - begin;
    names[i] = letters;
    if (size && memchr(text + begin, 0, size))
      return refuse(d, "a value of its dictionary has a NUL byte");
    if (size) memcpy(letters, text + begin, size);
    letters[size] = 0;
    letters += size + 1;
  }
  return LOAM_OK;
}

/* Checks the offsets of the strings of a dictionary. Sets *bytes to the bytes of all strings. Fails
 * with LOAM_EINVAL if a string ends before it begins, or if there is no text for it. */
static loam_status check_names(const source *d, bool is_wide, size_t *bytes) {
  size_t begin = offset_at(d, is_wide, 0), end = offset_at(d, is_wide, d->count);
  for (size_t i = 0; i < d->count; i++)
    if (offset_at(d, is_wide, i) > offset_at(d, is_wide, i + 1))
      return lm_error(LOAM_EINVAL, "value %zu of an Arrow dictionary ends before it begins", i);
  if (end > LM_SIZE_MAX || (begin != end && !d->array->buffers[2]))
    return lm_error(LOAM_EINVAL, "an Arrow dictionary has no text up to byte %lld", (long long)end);
  *bytes = end - begin;
  return LOAM_OK;
}

/* Makes the categorical type of a node whose dictionary is `d`. A dictionary that is valid in Arrow
 * and cannot be a categorical, because a string stands twice or there is too much text, fails with
 * LOAM_EUNSUPPORTED. */
static loam_status make_categorical(const source *s, const source *d, loam_type **out) {
  const char *format = d->schema->format;
  bool is_wide = !strcmp(format, "U");
  size_t bytes = 0, repeated;
  if ((!is_wide && strcmp(format, "u") != 0) || d->schema->dictionary)
    return refuse(d, "loam imports dictionaries of strings");
  loam_status status = check_node(d, 3, 0);
  if (!status) status = check_names(d, is_wide, &bytes);
  if (status) return status;
  if (has_missing(d)) return refuse(d, "a value of its dictionary is missing");
  if (bytes > LM_TYPE_TEXT || d->count > LM_TYPE_TEXT)
    return refuse(d, "its dictionary is longer than the 65536 bytes of a type's text");
  const char **names = loam_malloc(lm_type_site(), d->count * (sizeof *names + 1) + bytes + 1);
  if (!names) return LOAM_ENOMEM;
  status = copy_names(d, is_wide, names, (char *)(names + d->count));
  bool is_ordered = s->schema->flags & ARROW_FLAG_DICTIONARY_ORDERED;
  if (!status) status = lm_type_categorical(d->count, names, is_ordered, &repeated, out);
  loam_free(names);
  return status == LOAM_EINVAL ? refuse(d, loam_error()) : status;
}

/* Reads index `i` of a node, whose indices have the kind `kind`. A negative index becomes a number
 * that is too large for a code. */
static uint64_t index_at(const source *s, loam_type_kind kind, size_t i) {
  size_t each = lm_type_plain(kind)->size;
  const char *from = (const char *)s->array->buffers[1] + (s->from + i) * each;
  union {
    int8_t i8;
    int16_t i16;
    int32_t i32;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64; /* an index of 64 bits, with a sign or without one */
  } n = { .u64 = 0 };
  memcpy(&n, from, each);
  switch (kind) {
    case LOAM_TYPE_INT8: return (uint64_t)(int64_t)n.i8;
    case LOAM_TYPE_INT16: return (uint64_t)(int64_t)n.i16;
    case LOAM_TYPE_INT32: return (uint64_t)(int64_t)n.i32;
    case LOAM_TYPE_UINT8: return n.u8;
    case LOAM_TYPE_UINT16: return n.u16;
    case LOAM_TYPE_UINT32: return n.u32;
    default: return n.u64;
  }
}

/* Checks that each index that is not missing has a value in the dictionary. `has_option` is the
 * result of has_missing. */
static loam_status check_indices(const source *s, loam_type_kind kind, const loam_type *value,
                                 bool has_option) {
  for (size_t i = 0; i < s->count; i++)
    if (index_at(s, kind, i) >= value->count && !(has_option && !is_present(s, i)))
      return lm_error(LOAM_EINVAL, "element %zu has the index %lld, and the dictionary %zu values",
                      i, (long long)index_at(s, kind, i), value->count);
  return LOAM_OK;
}

/* Copies all indices into a new block, as codes of the categorical type `value`. The block becomes
 * out->owner. */
static loam_status copy_codes(const source *s, loam_type_kind kind, const loam_type *value,
                              bool has_option, values *out) {
  out->owner = loam_block_new(NULL, s->count * value->size);
  if (!out->owner) return LOAM_ENOMEM;
  char *to = out->first = loam_block_data(out->owner);
  for (size_t i = 0; i < s->count; i++, to += value->size) {
    if (has_option && !is_present(s, i)) lm_missing_set(value, to);
    else lm_type_put_code(value, to, (uint32_t)index_at(s, kind, i));
  }
  return LOAM_OK;
}

/* Returns the reason why indices have to be copied, or NULL if they can stay in Arrow's buffer. An
 * index that has as many bytes as a code is that code: an index with a sign is not negative. */
static const char *why_copy_indices(const source *s, loam_type_kind kind, const loam_type *value,
                                    bool has_option) {
  if (lm_type_plain(kind)->size != value->size)
    return "its indices have another size than codes in loam, which needs a copy";
  return why_copy(s, value, has_option);
}

/* Imports a node with a dictionary of strings: it becomes a categorical, whose codes are the
 * indices into the dictionary. */
static loam_status import_categories(const job *w, const source *s, values *out) {
  loam_type_kind kind;
  loam_type *value;
  if (!find_scalar(s->schema->format, &kind) || kind < LOAM_TYPE_INT8 || kind > LOAM_TYPE_UINT64)
    return refuse(s, "the indices into a dictionary are integers");
  if (!s->array->dictionary)
    return lm_error(LOAM_EINVAL, "the Arrow array lacks the dictionary of its schema");
  source d = dictionary_of(s);
  loam_status status = check_node(s, 2, 0);
  if (!status) status = make_categorical(s, &d, &value);
  if (status) return status;
  out->type = value;
  bool has_option = has_missing(s);
  status = check_indices(s, kind, value, has_option);
  if (status) return status;
  if (has_option) {
    status = lm_type_option(value, &out->type);
    if (status == LOAM_EINVAL) status = refuse(s, loam_error());
  }
  status = alloc_meta(status, out);
  if (status) return status;
  out->stride = (ptrdiff_t)value->size;
  const char *why = why_copy_indices(s, kind, value, has_option);
  if (why) return w->may_copy ? copy_codes(s, kind, value, has_option, out) : refuse(s, why);
  if (s->count) out->first = (char *)s->array->buffers[1] + s->from * value->size;
  out->owner = loam_block_retain(w->holder);
  return LOAM_OK;
}

/* ---- Nodes with children ------------------------------------------------------------------ */

/* Imports a node and its children. If this fails, `out` may already own something, so the caller
 * calls drop_values in any case. */
static loam_status import_node(const job *w, const source *s, values *out);

/* out->type is the type of a dimension whose elements are the values in `element`. Allocates the
 * metadata of that type, and moves the metadata of `element` into it. `made` is the status of the
 * call that made the type: see alloc_meta. */
static loam_status wrap_values(values *element, loam_status made, values *out) {
  loam_status status = alloc_meta(made, out);
  if (status) return status;
  lm_assert(out->type->meta >= element->type->meta);
  size_t words = (out->type->meta - element->type->meta) / sizeof(size_t);
  memcpy(out->meta + words, element->meta, element->type->meta);
  memset(element->meta, 0, element->type->meta);
  return LOAM_OK;
}

/* Imports lists of different lengths: they become a var dimension. `element` receives the values of
 * the child; the caller drops it. */
static loam_status import_list(const job *w, const source *s, bool is_wide, values *element,
                               values *out) {
  loam_status status = check_node(s, 2, 1);
  if (status) return status;
  size_t begin = offset_at(s, is_wide, 0), end = offset_at(s, is_wide, s->count);
  if (begin > end || !is_in_child(s, 0, end))
    return lm_error(LOAM_EINVAL, "an Arrow list reaches beyond its child");
  source child = child_of(s, 0, begin, end - begin);
  status = import_node(w, &child, element);
  if (!status) status = lm_type_var(loam_type_retain(element->type), &out->type);
  if (!status && has_missing(s)) status = lm_type_option(out->type, &out->type);
  status = wrap_values(element, status, out);
  if (status) return status;
  lm_var_layout *m = (lm_var_layout *)out->meta;
  m->block = loam_block_retain(element->owner);
  m->stride = element->stride;
  return make_pieces(s, is_wide, element->first, element->stride, out);
}

/* Imports lists that all have `size` elements: they become a fixed dimension. `element` receives
 * the values of the child; the caller drops it. */
static loam_status import_fixed_list(const job *w, const source *s, size_t size, values *element,
                                     values *out) {
  loam_status status = check_node(s, 1, 1);
  size_t end;
  if (status) return status;
  if (has_missing(s))
    return refuse(s, "loam marks a missing row behind its elements, where Arrow has no room");
  if (!lm_mul(s->from + s->count, size, &end) || !is_in_child(s, 0, end))
    return lm_error(LOAM_EINVAL, "an Arrow list reaches beyond its child");
  source child = child_of(s, 0, s->from * size, s->count * size);
  status = import_node(w, &child, element);
  if (!status)
    status = wrap_values(element, lm_type_fixed(size, loam_type_retain(element->type), &out->type),
                         out);
  if (status) return status;
  *(lm_fixed_layout *)out->meta = (lm_fixed_layout){ size, element->stride };
  out->first = element->first;
  out->stride = (ptrdiff_t)size * element->stride;
  out->owner = loam_block_retain(element->owner);
  return LOAM_OK;
}

/* Reads the size in the format of fixed lists, "+w:SIZE". */
static bool read_size(const char *format, size_t *out) {
  size_t size = 0;
  if (strncmp(format, "+w:", 3) != 0 || !format[3]) return false;
  for (format += 3; *format; format++) {
    if (*format < '0' || *format > '9' || size > LM_SIZE_MAX) return false;
    size = 10 * size + (size_t)(*format - '0');
  }
  *out = size;
  return true;
}

/* Imports a node of lists. `element` receives the values of the child; the caller drops it. */
static loam_status import_nested(const job *w, const source *s, values *element, values *out) {
  const char *format = s->schema->format;
  size_t size;
  if (!strcmp(format, "+l") || !strcmp(format, "+L"))
    return import_list(w, s, format[1] == 'L', element, out);
  if (read_size(format, &size)) return import_fixed_list(w, s, size, element, out);
  return refuse(s, "loam imports numbers, bools, text, lists, and tables of these");
}

static loam_status import_node(const job *w, const source *s, values *out) {
  const char *format = s->schema->format;
  loam_type_kind kind;
  *out = (values){ .count = s->count };
  if (s->schema->dictionary) return import_categories(w, s, out);
  if (find_scalar(format, &kind)) return import_scalars(w, s, lm_type_plain(kind), out);
  if (format[0] == 'd') return import_decimals(w, s, out);
  if (!strcmp(format, "u") || !strcmp(format, "U"))
    return import_text(w, s, LOAM_TYPE_STRING, format[0] == 'U', out);
  if (!strcmp(format, "z") || !strcmp(format, "Z"))
    return import_text(w, s, LOAM_TYPE_BYTES, format[0] == 'Z', out);
  values element = { .type = NULL };
  loam_status status = import_nested(w, s, &element, out);
  drop_values(&element);
  return status;
}

/* ---- The root ----------------------------------------------------------------------------- */

/* Makes an array with one dimension, whose elements are the imported values. */
static loam_status make_array(values *v, loam_array **out) {
  loam_type *type;
  lm_assert(v->type && v->meta && v->owner);
  loam_status status = lm_type_fixed(v->count, loam_type_retain(v->type), &type);
  if (status) return status;
  loam_array *a = lm_array_make(v->owner->site, type, loam_block_retain(v->owner), v->first, 0);
  if (!a) return LOAM_ENOMEM;
  lm_fixed_layout *m = (lm_fixed_layout *)a->meta;
  *m = (lm_fixed_layout){ v->count, v->stride };
  lm_layout_copy(m->element, v->meta, v->type);
  *out = a;
  return LOAM_OK;
}

/* Makes the type of a table: a struct with a field for each column. Each column has memory of its
 * own, so the type is {name: pointer[n * type], ...}, where n is the number of rows. A table that
 * is valid in Arrow and has no such type, because two columns have one name or there are too many
 * columns, fails with LOAM_EUNSUPPORTED. */
static loam_status make_table_type(const source *s, const values *column, size_t count,
                                   loam_type **out) {
  loam_type **types = loam_malloc(lm_type_site(), count * (sizeof *types + sizeof(char *)));
  if (!types) return LOAM_ENOMEM;
  const char **names = (const char **)(types + count);
  loam_status status = LOAM_OK;
  size_t n = 0;
  for (; n < count && !status; n++) {
    const char *name = s->schema->children[n]->name;
    names[n] = name ? name : "";
    status = lm_type_fixed(s->count, loam_type_retain(column[n].type), &types[n]);
    if (!status) status = lm_type_pointer(types[n], &types[n]);
  }
  if (!status) status = lm_type_struct(count, names, types, out);
  else
    for (n--; n > 0; n--) loam_type_release(types[n - 1]);
  loam_free(types);
  return status == LOAM_EINVAL ? refuse(s, loam_error()) : status;
}

/* Makes the array of a table, from its imported columns. */
static loam_status make_table(const source *s, const values *column, size_t count,
                              loam_array **out) {
  loam_type *type;
  loam_status status = make_table_type(s, column, count, &type);
  if (status) return status;
  loam_array *a = lm_array_make(NULL, type, NULL, NULL, type->size);
  if (!a) return LOAM_ENOMEM;
  for (size_t i = 0; i < count; i++) {
    const lm_field *f = &type->fields[i];
    lm_assert(f->type->kind == LOAM_TYPE_POINTER && column[i].count == s->count);
    lm_pointer_layout *pointer = (lm_pointer_layout *)(a->meta + f->meta / sizeof *a->meta);
    lm_fixed_layout *fixed = (lm_fixed_layout *)pointer->target;
    a->meta[i] = f->offset;
    pointer->block = loam_block_retain(column[i].owner);
    *fixed = (lm_fixed_layout){ s->count, column[i].stride };
    lm_layout_copy(fixed->element, column[i].meta, column[i].type);
    *(char **)(a->data + f->offset) = column[i].first;
  }
  *out = a;
  return LOAM_OK;
}

/* Imports a struct node as a table: each child is a column. */
static loam_status import_table(const job *w, const source *s, loam_array **out) {
  size_t count = (size_t)s->schema->n_children;
  loam_status status = check_node(s, 1, s->schema->n_children);
  if (status) return status;
  if (s->schema->dictionary) return refuse(s, "the indices into a dictionary are integers");
  if (!count) return refuse(s, "a table without columns");
  if (has_missing(s)) return refuse(s, "a row of a table cannot be missing");
  values *column = loam_calloc(lm_type_site(), count, sizeof *column);
  if (!column) return LOAM_ENOMEM;
  for (size_t i = 0; i < count && !status; i++) {
    source child = child_of(s, i, s->from, s->count);
    status = is_in_child(s, i, s->from + s->count)
                 ? import_node(w, &child, &column[i])
                 : lm_error(LOAM_EINVAL, "column %zu of an Arrow table is too short", i + 1);
  }
  if (!status) status = make_table(s, column, count, out);
  for (size_t i = 0; i < count; i++) drop_values(&column[i]);
  loam_free(column);
  return status;
}

/* Imports the root and with it the whole tree. */
static loam_status import_root(const job *w, const source *s, loam_array **out) {
  if (!strcmp(s->schema->format, "+s")) return import_table(w, s, out);
  values v;
  loam_status status = import_node(w, s, &v);
  if (!status) status = make_array(&v, out);
  drop_values(&v);
  return status;
}

/* The destructor of the holder: releases the Arrow array, if the import succeeded and moved it into
 * the holder. */
static void release_holder(void *ptr, size_t size, void *ctx) {
  (void)ptr;
  (void)size;
  struct ArrowArray *array = ctx;
  if (array->release) array->release(array);
  loam_free(array);
}

/* Makes the holder, a block that owns the struct ArrowArray in *moved. This struct is all zeros
 * until the import succeeds; then the host's struct is moved to it. So if the import fails, the
 * holder releases nothing, and the Arrow array stays the host's. */
static loam_status make_holder(loam_block **out, struct ArrowArray **moved) {
  *moved = loam_calloc(NULL, 1, sizeof **moved);
  if (!*moved) return LOAM_ENOMEM;
  *out = loam_block_wrap(NULL, NULL, 0, release_holder, *moved);
  if (*out) return LOAM_OK;
  loam_free(*moved);
  return LOAM_ENOMEM;
}

loam_status loam_array_from_arrow(struct ArrowSchema *schema, struct ArrowArray *array,
                                  int may_copy, loam_array **out) {
  if (!schema || !array || !out)
    return lm_error_missing(!schema ? "schema" : array ? "out" : "array");
  if (!schema->release || !array->release)
    return lm_error(LOAM_EINVAL, "the Arrow %s was released", schema->release ? "array" : "schema");
  job w = { .may_copy = may_copy != 0 };
  struct ArrowArray *moved;
  loam_array *made = NULL;
  loam_status status = check_pointers(schema, array, 0);
  if (!status) status = make_holder(&w.holder, &moved);
  if (status) return status;
  source s = { schema, array, array->offset > 0 ? (size_t)array->offset : 0,
               array->length > 0 ? (size_t)array->length : 0, 0 };
  status = import_root(&w, &s, &made);
  if (!status) {
    made->is_readonly = true;
    lm_verify(lm_array_is_valid(made));
    *moved = *array;
    array->release = NULL;
    schema->release(schema);
    *out = made;
  }
  loam_block_release(w.holder);
  return status;
}
