/* arrow_import.c - Arrow's arrays as ours.
 *
 * Numbers and text are used where they stand; for text and for lists pieces are made that point at
 * them. A node becomes values at equal distances, which the node above takes for its elements. */
#include <string.h>

#include "array/arrow.h"
#include "array/missing.h"
#include "os/error.h"

/* Values of a type with its metadata, which are ours until somebody takes them. */
typedef struct values {
  loam_type *type;
  size_t *meta;
  char *first;
  ptrdiff_t stride;
  size_t count;
  loam_block *owner; /* a reference */
} values;

typedef struct work {
  loam_block *holder; /* ends what is imported */
  bool may_copy;
} work;

/* A node as seen from above: `count` of its elements from `from` on. */
typedef struct source {
  const struct ArrowSchema *schema;
  const struct ArrowArray *array;
  size_t from, count;
} source;

static loam_status refuse(const source *s, const char *why) {
  char format[64];
  return lm_error(LOAM_EUNSUPPORTED, "Arrow format %s: %s",
                  lm_error_quote(format, sizeof format, s->schema->format), why);
}

static void drop(values *v) {
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

static bool is_there(const source *s, size_t i) {
  const void *bits = s->array->n_buffers ? s->array->buffers[0] : NULL;
  return !bits || has_bit(bits, s->from + i);
}

static bool has_missing(const source *s) {
  if (!s->array->null_count) return false;
  for (size_t i = 0; i < s->count; i++)
    if (!is_there(s, i)) return true;
  return false;
}

static loam_status check_node(const source *s, int64_t buffers, int64_t children) {
  const struct ArrowArray *a = s->array;
  if (s->schema->dictionary) return refuse(s, "dictionaries are not known");
  if (a->length < 0 || a->offset < 0 || a->length > (int64_t)LM_SIZE_MAX ||
      a->offset > (int64_t)LM_SIZE_MAX)
    return lm_error(LOAM_EINVAL, "an Arrow array of %lld elements from %lld on",
                    (long long)a->length, (long long)a->offset);
  if (a->n_buffers != buffers || a->n_children != children || s->schema->n_children != children)
    return lm_error(LOAM_EINVAL, "Arrow format \"%s\" with %lld buffers and %lld children",
                    s->schema->format, (long long)a->n_buffers, (long long)a->n_children);
  return LOAM_OK;
}

static source child_of(const source *s, size_t i, size_t from, size_t count) {
  const struct ArrowArray *a = s->array->children[i];
  return (source){ s->schema->children[i], a, (size_t)a->offset + from, count };
}

static bool is_within(const source *s, size_t i, size_t end) {
  const struct ArrowArray *a = s->array->children[i];
  return a->length >= 0 && end <= (size_t)a->length;
}

/* What every node begins with: memory for the metadata of its type, which it takes. */
static loam_status set_type(loam_status made, values *out) {
  if (made) {
    out->type = NULL;
    return made;
  }
  out->meta = loam_calloc(lm_type_site(), 1, out->type->meta + 1);
  return out->meta ? LOAM_OK : LOAM_ENOMEM;
}

/* ---- Scalars ------------------------------------------------------------------------------ */

static bool find_scalar(const char *format, loam_type_kind *out) {
  if (!format[0] || format[1]) return false;
  for (int kind = 0; kind < LOAM_TYPE_STRING; kind++) {
    if (lm_arrow_letter((loam_type_kind)kind) != format[0]) continue;
    *out = (loam_type_kind)kind;
    return true;
  }
  return false;
}

static loam_status copy_one(const source *s, const loam_type *value, bool has_option, size_t i,
                            char *to) {
  const char *from = s->array->buffers[1];
  if (!is_there(s, i)) {
    lm_missing_set(value, to);
    return LOAM_OK;
  }
  if (value->kind == LOAM_TYPE_BOOL) *to = has_bit(from, s->from + i);
  else memcpy(to, from + (s->from + i) * value->size, value->size);
  if (has_option && lm_missing_is(value, to))
    return lm_error(LOAM_EUNSUPPORTED, "element %zu has the value that marks a missing %s", i,
                    value->text);
  return LOAM_OK;
}

static loam_status copy_scalars(const source *s, const loam_type *value, bool has_option,
                                values *out) {
  out->owner = loam_block_new(NULL, s->count * value->size);
  if (!out->owner) return LOAM_ENOMEM;
  out->first = loam_block_data(out->owner);
  loam_status status = LOAM_OK;
  for (size_t i = 0; i < s->count && !status; i++)
    status = copy_one(s, value, has_option, i, out->first + i * value->size);
  return status;
}

static loam_status take_scalars(const work *w, const source *s, loam_type_kind kind, values *out) {
  loam_type *value = lm_type_plain(kind);
  loam_status status = check_node(s, 2, 0);
  if (status) return status;
  bool has_option = has_missing(s);
  out->type = value;
  if (has_option) status = lm_type_option(value, &out->type);
  status = set_type(status, out);
  if (status) return status;
  out->stride = (ptrdiff_t)value->size;
  if (has_option || kind == LOAM_TYPE_BOOL) {
    if (!w->may_copy)
      return refuse(s, has_option ? "missing values are marked in the data, which needs a copy"
                                  : "bools are bits, which needs a copy");
    return copy_scalars(s, value, has_option, out);
  }
  out->first = (char *)s->array->buffers[1] + s->from * value->size;
  out->owner = loam_block_retain(w->holder);
  if (!((uintptr_t)out->first & (value->align - 1))) return LOAM_OK;
  return refuse(s, "its buffer is not aligned");
}

/* ---- Pieces ------------------------------------------------------------------------------- */

static size_t offset_at(const source *s, bool is_wide, size_t i) {
  const void *offsets = s->array->buffers[1];
  if (!offsets) return 0; /* of an array without elements */
  return is_wide ? (size_t)((const int64_t *)offsets)[s->from + i]
                 : (size_t)((const int32_t *)offsets)[s->from + i];
}

/* Pieces of what begins at `base`; a NULL base has no elements. */
static loam_status make_pieces(const source *s, bool is_wide, char *base, ptrdiff_t stride,
                               values *out) {
  out->owner = loam_block_zeroed(NULL, s->count * sizeof(lm_piece));
  if (!out->owner) return LOAM_ENOMEM;
  lm_piece *piece = loam_block_data(out->owner);
  out->first = (char *)piece;
  out->stride = sizeof *piece;
  for (size_t i = 0; i < s->count; i++) {
    size_t begin = offset_at(s, is_wide, i), end = offset_at(s, is_wide, i + 1);
    if (end < begin || end > LM_SIZE_MAX)
      return lm_error(LOAM_EINVAL, "element %zu of an Arrow array ends before it begins", i);
    if (is_there(s, i)) piece[i] = (lm_piece){ base + (ptrdiff_t)begin * stride, end - begin };
  }
  return LOAM_OK;
}

static loam_status take_text(const work *w, const source *s, loam_type_kind kind, bool is_wide,
                             values *out) {
  static char empty[1];
  loam_status status = check_node(s, 3, 0);
  if (status) return status;
  out->type = lm_type_plain(kind);
  if (has_missing(s)) status = lm_type_option(out->type, &out->type);
  status = set_type(status, out);
  if (status) return status;
  ((lm_text_layout *)out->meta)->block = loam_block_retain(w->holder);
  char *text = (char *)s->array->buffers[2];
  return make_pieces(s, is_wide, text ? text : empty, 1, out);
}

/* ---- What has parts ----------------------------------------------------------------------- */

static loam_status take(const work *w, const source *s, values *out);

/* The metadata of a dimension around the elements', which it takes. */
static loam_status wrap_type(values *element, loam_status made, values *out) {
  loam_status status = set_type(made, out);
  if (status) return status;
  size_t words = (out->type->meta - element->type->meta) / sizeof(size_t);
  memcpy(out->meta + words, element->meta, element->type->meta);
  memset(element->meta, 0, element->type->meta);
  return LOAM_OK;
}

static loam_status take_list(const work *w, const source *s, bool is_wide, values *element,
                             values *out) {
  loam_status status = check_node(s, 2, 1);
  if (status) return status;
  if (has_missing(s)) return refuse(s, "a row cannot be missing");
  size_t end = s->count ? offset_at(s, is_wide, s->count) : 0;
  if (!is_within(s, 0, end)) return lm_error(LOAM_EINVAL, "an Arrow list reaches beyond its child");
  source child = child_of(s, 0, 0, end);
  status = take(w, &child, element);
  if (!status)
    status = wrap_type(element, lm_type_var(loam_type_retain(element->type), &out->type), out);
  if (status) return status;
  lm_var_layout *m = (lm_var_layout *)out->meta;
  m->block = loam_block_retain(element->owner);
  m->stride = element->stride;
  return make_pieces(s, is_wide, element->first, element->stride, out);
}

static loam_status take_lists_of(const work *w, const source *s, size_t size, values *element,
                                 values *out) {
  loam_status status = check_node(s, 1, 1);
  size_t from, count;
  if (status) return status;
  if (has_missing(s)) return refuse(s, "a row cannot be missing");
  if (!lm_mul(s->from, size, &from) || !lm_mul(s->count, size, &count) ||
      !is_within(s, 0, from + count))
    return lm_error(LOAM_EINVAL, "an Arrow list reaches beyond its child");
  source child = child_of(s, 0, from, count);
  status = take(w, &child, element);
  if (!status)
    status = wrap_type(element, lm_type_fixed(size, loam_type_retain(element->type), &out->type),
                       out);
  if (status) return status;
  *(lm_fixed_layout *)out->meta = (lm_fixed_layout){ size, element->stride };
  out->first = element->first;
  out->stride = (ptrdiff_t)size * element->stride;
  out->owner = loam_block_retain(element->owner);
  return LOAM_OK;
}

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

static loam_status take_parts(const work *w, const source *s, values *element, values *out) {
  const char *format = s->schema->format;
  size_t size;
  if (!strcmp(format, "+l") || !strcmp(format, "+L"))
    return take_list(w, s, format[1] == 'L', element, out);
  if (read_size(format, &size)) return take_lists_of(w, s, size, element, out);
  return refuse(s, "what is known are numbers, bools, text, lists, and tables of these");
}

/* `out` is to be dropped where this fails. */
static loam_status take(const work *w, const source *s, values *out) {
  const char *format = s->schema->format;
  loam_type_kind kind;
  *out = (values){ .count = s->count };
  if (find_scalar(format, &kind)) return take_scalars(w, s, kind, out);
  if (!strcmp(format, "u") || !strcmp(format, "U"))
    return take_text(w, s, LOAM_TYPE_STRING, format[0] == 'U', out);
  if (!strcmp(format, "z") || !strcmp(format, "Z"))
    return take_text(w, s, LOAM_TYPE_BYTES, format[0] == 'Z', out);
  values element = { .type = NULL };
  loam_status status = take_parts(w, s, &element, out);
  drop(&element);
  return status;
}

/* ---- The whole ---------------------------------------------------------------------------- */

static loam_status make_rows(values *v, loam_array **out) {
  loam_type *type;
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

/* {name: pointer[n * type], ...}: the columns of a table stand each by itself. */
static loam_status type_of_table(const source *s, const values *column, size_t count,
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
  return status;
}

static loam_status make_table(const source *s, const values *column, size_t count,
                              loam_array **out) {
  loam_type *type;
  loam_status status = type_of_table(s, column, count, &type);
  if (status) return status;
  loam_array *a = lm_array_make(NULL, type, NULL, NULL, type->size);
  if (!a) return LOAM_ENOMEM;
  for (size_t i = 0; i < count; i++) {
    const lm_field *f = &type->fields[i];
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

static loam_status take_table(const work *w, const source *s, loam_array **out) {
  size_t count = (size_t)s->schema->n_children;
  loam_status status = check_node(s, 1, s->schema->n_children);
  if (status) return status;
  if (!count) return refuse(s, "a table without columns");
  if (has_missing(s)) return refuse(s, "a row of a table cannot be missing");
  values *column = loam_calloc(lm_type_site(), count, sizeof *column);
  if (!column) return LOAM_ENOMEM;
  for (size_t i = 0; i < count && !status; i++) {
    source child = child_of(s, i, s->from, s->count);
    status = is_within(s, i, s->from + s->count)
                 ? take(w, &child, &column[i])
                 : lm_error(LOAM_EINVAL, "column %zu of an Arrow table is too short", i + 1);
  }
  if (!status) status = make_table(s, column, count, out);
  for (size_t i = 0; i < count; i++) drop(&column[i]);
  loam_free(column);
  return status;
}

static loam_status take_whole(const work *w, const source *s, loam_array **out) {
  if (!strcmp(s->schema->format, "+s")) return take_table(w, s, out);
  values v;
  loam_status status = take(w, s, &v);
  if (!status) status = make_rows(&v, out);
  drop(&v);
  return status;
}

static void end_holder(void *ptr, size_t size, void *ctx) {
  (void)ptr;
  (void)size;
  struct ArrowArray *array = ctx;
  if (array->release) array->release(array);
  loam_free(array);
}

/* A block that has the array, which until then is as it was: *moved is where it goes. */
static loam_status make_holder(loam_block **out, struct ArrowArray **moved) {
  *moved = loam_calloc(NULL, 1, sizeof **moved);
  if (!*moved) return LOAM_ENOMEM;
  *out = loam_block_wrap(NULL, NULL, 0, end_holder, *moved);
  if (*out) return LOAM_OK;
  loam_free(*moved);
  return LOAM_ENOMEM;
}

loam_status loam_array_from_arrow(struct ArrowSchema *schema, struct ArrowArray *array,
                                  int may_copy, loam_array **out) {
  if (!schema || !array || !out) return lm_error(LOAM_EINVAL, "schema, array or out: it is NULL");
  if (!schema->release || !array->release)
    return lm_error(LOAM_EINVAL, "the Arrow %s was released", schema->release ? "array" : "schema");
  work w = { .may_copy = may_copy != 0 };
  struct ArrowArray *moved;
  loam_array *made = NULL;
  loam_status status = make_holder(&w.holder, &moved);
  if (status) return status;
  source s = { schema, array, array->offset > 0 ? (size_t)array->offset : 0,
               array->length > 0 ? (size_t)array->length : 0 };
  status = take_whole(&w, &s, &made);
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
