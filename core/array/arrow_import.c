/* arrow_import.c - imports arrays through Arrow's C data interface.
 *
 * The nodes of Arrow's tree are imported from the root down. Each node becomes values at equal
 * distances, which are the elements of the dimension that its parent becomes. Numbers and text are
 * used where they stand. Text and lists also get pieces of loam, which point to them. */
#include <string.h>

#include "array/arrow.h"
#include "array/missing.h"
#include "os/error.h"

/* Imported values: `count` of them, `stride` bytes apart. The struct holds a reference to `type`
 * and to `owner`, and owns the allocation `meta` with the references in it. drop_values ends all
 * that. */
typedef struct values {
  loam_type *type;
  size_t *meta;
  char *first;
  ptrdiff_t stride;
  size_t count;
  loam_block *owner; /* of the memory at `first` */
} values;

/* One import, for all of its nodes. */
typedef struct job {
  loam_block *holder; /* the block that releases the Arrow array when it ends */
  bool may_copy;
} job;

/* The elements of a node that its parent uses: `count` of them, from element `from` of the buffers
 * on. */
typedef struct source {
  const struct ArrowSchema *schema;
  const struct ArrowArray *array;
  size_t from, count;
} source;

/* Fails because loam cannot import a node. */
static loam_status refuse(const source *s, const char *why) {
  char format[64];
  return lm_error(LOAM_EUNSUPPORTED, "Arrow format %s: %s",
                  lm_error_quote(format, sizeof format, s->schema->format), why);
}

/* Releases everything that `v` holds, and clears it. */
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

/* Returns whether element `i` is not missing. Without validity bits no element is missing. */
static bool is_present(const source *s, size_t i) {
  lm_assert(i < s->count);
  const void *bits = s->array->n_buffers ? s->array->buffers[0] : NULL;
  return !bits || has_bit(bits, s->from + i);
}

/* Returns whether an element is missing. */
static bool has_missing(const source *s) {
  if (!s->array->null_count) return false;
  for (size_t i = 0; i < s->count; i++)
    if (!is_present(s, i)) return true;
  return false;
}

/* Checks the length and offset of a node, and that it has so many buffers and children. */
static loam_status check_node(const source *s, int64_t buffers, int64_t children) {
  const struct ArrowArray *a = s->array;
  if (s->schema->dictionary) return refuse(s, "loam has no dictionaries");
  if (a->length < 0 || a->offset < 0 || a->length > (int64_t)LM_SIZE_MAX ||
      a->offset > (int64_t)LM_SIZE_MAX)
    return lm_error(LOAM_EINVAL, "an Arrow array of %lld elements from %lld on",
                    (long long)a->length, (long long)a->offset);
  if (a->n_buffers != buffers || a->n_children != children || s->schema->n_children != children)
    return lm_error(LOAM_EINVAL, "Arrow format \"%s\" with %lld buffers and %lld children",
                    s->schema->format, (long long)a->n_buffers, (long long)a->n_children);
  return LOAM_OK;
}

/* Returns `count` elements of child `i`, from its element `from` on. */
static source child_of(const source *s, size_t i, size_t from, size_t count) {
  lm_assert((int64_t)i < s->array->n_children);
  const struct ArrowArray *a = s->array->children[i];
  return (source){ s->schema->children[i], a, (size_t)a->offset + from, count };
}

/* Returns whether child `i` has at least `end` elements. */
static bool is_in_child(const source *s, size_t i, size_t end) {
  const struct ArrowArray *a = s->array->children[i];
  return a->length >= 0 && end <= (size_t)a->length;
}

/* Allocates zeroed metadata for out->type. `made` is the status of making that type: a failure is
 * passed through, and out->type is then no reference. */
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

/* Finds the scalar kind of an Arrow format. Returns false if there is none. */
static bool find_scalar(const char *format, loam_type_kind *out) {
  if (!format[0]) return false;
  for (int kind = 0; kind < LOAM_TYPE_STRING; kind++) {
    if (strcmp(lm_arrow_format((loam_type_kind)kind), format) != 0) continue;
    *out = (loam_type_kind)kind;
    return true;
  }
  return false;
}

/* Copies element `i` to `to`. A missing element becomes the missing value of the type. Fails if an
 * element that is present has that value. */
static loam_status copy_scalar(const source *s, const loam_type *value, bool has_option, size_t i,
                               char *to) {
  const char *from = s->array->buffers[1];
  if (!is_present(s, i)) {
    lm_missing_set(value, to);
    return LOAM_OK;
  }
  if (value->kind == LOAM_TYPE_BOOL) *to = has_bit(from, s->from + i);
  else memcpy(to, from + (s->from + i) * value->size, value->size);
  lm_assert(lm_type_is_scalar(value->kind));
  if (has_option && lm_missing_is(value, to))
    return lm_error(LOAM_EUNSUPPORTED, "element %zu has the value that marks a missing %s", i,
                    value->text);
  return LOAM_OK;
}

/* Copies all elements into a block of loam. */
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

/* Imports numbers and bools. Bools and numbers with missing values are copied. */
static loam_status import_scalars(const job *w, const source *s, loam_type_kind kind, values *out) {
  loam_type *value = lm_type_plain(kind);
  loam_status status = check_node(s, 2, 0);
  if (status) return status;
  bool has_option = has_missing(s);
  out->type = value;
  if (has_option) status = lm_type_option(value, &out->type);
  status = alloc_meta(status, out);
  if (status) return status;
  out->stride = (ptrdiff_t)value->size;
  if (has_option || kind == LOAM_TYPE_BOOL) {
    if (!w->may_copy)
      return refuse(s, has_option ? "missing values are special values in loam, which needs a copy"
                                  : "bools are bits, which needs a copy");
    return copy_scalars(s, value, has_option, out);
  }
  out->first = (char *)s->array->buffers[1] + s->from * value->size;
  out->owner = loam_block_retain(w->holder);
  if (!((uintptr_t)out->first & (value->align - 1))) return LOAM_OK;
  return refuse(s, "its buffer is not aligned");
}

/* ---- Pieces ------------------------------------------------------------------------------- */

/* Returns offset `i` of a list or text. An array without elements may have no offsets. */
static size_t offset_at(const source *s, bool is_wide, size_t i) {
  const void *offsets = s->array->buffers[1];
  if (!offsets) return 0;
  return is_wide ? (size_t)((const int64_t *)offsets)[s->from + i]
                 : (size_t)((const int32_t *)offsets)[s->from + i];
}

/* Makes a piece for each element of a list or text. The parts of the elements stand at `base`,
 * `stride` bytes apart. A missing element keeps a piece of zeros, which means missing text. */
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
    if (is_present(s, i)) piece[i] = (lm_piece){ base + (ptrdiff_t)begin * stride, end - begin };
  }
  return LOAM_OK;
}

/* Imports strings or bytes. The text stays in the buffer of Arrow. */
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
  char *text = (char *)s->array->buffers[2];
  return make_pieces(s, is_wide, text ? text : empty, 1, out);
}

/* ---- Nodes with children ------------------------------------------------------------------ */

/* Imports a node. On failure `out` may hold some values: the caller drops them. */
static loam_status import_node(const job *w, const source *s, values *out);

/* Allocates the metadata of out->type, a dimension of the imported elements, and moves the metadata
 * of the elements to their place in it. `made` is the status of making that type. */
static loam_status wrap_values(values *element, loam_status made, values *out) {
  loam_status status = alloc_meta(made, out);
  if (status) return status;
  lm_assert(out->type->meta >= element->type->meta);
  size_t words = (out->type->meta - element->type->meta) / sizeof(size_t);
  memcpy(out->meta + words, element->meta, element->type->meta);
  memset(element->meta, 0, element->type->meta);
  return LOAM_OK;
}

/* Imports lists of any lengths: a var dimension. */
static loam_status import_list(const job *w, const source *s, bool is_wide, values *element,
                               values *out) {
  loam_status status = check_node(s, 2, 1);
  if (status) return status;
  if (has_missing(s)) return refuse(s, "a row cannot be missing");
  size_t end = s->count ? offset_at(s, is_wide, s->count) : 0;
  if (!is_in_child(s, 0, end))
    return lm_error(LOAM_EINVAL, "an Arrow list reaches beyond its child");
  source child = child_of(s, 0, 0, end);
  status = import_node(w, &child, element);
  if (!status)
    status = wrap_values(element, lm_type_var(loam_type_retain(element->type), &out->type), out);
  if (status) return status;
  lm_var_layout *m = (lm_var_layout *)out->meta;
  m->block = loam_block_retain(element->owner);
  m->stride = element->stride;
  return make_pieces(s, is_wide, element->first, element->stride, out);
}

/* Imports lists of `size` elements each: a fixed dimension. */
static loam_status import_fixed_list(const job *w, const source *s, size_t size, values *element,
                                     values *out) {
  loam_status status = check_node(s, 1, 1);
  size_t end;
  if (status) return status;
  if (has_missing(s)) return refuse(s, "a row cannot be missing");
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

/* Imports lists; `element` receives the elements, and the caller drops it. */
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
  if (find_scalar(format, &kind)) return import_scalars(w, s, kind, out);
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

/* Makes an array with one dimension of the imported values. */
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

/* Makes the type {name: pointer[n * type], ...} of a table, whose columns stand in separate
 * memory. */
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
  return status;
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

/* Imports the whole tree. */
static loam_status import_root(const job *w, const source *s, loam_array **out) {
  if (!strcmp(s->schema->format, "+s")) return import_table(w, s, out);
  values v;
  loam_status status = import_node(w, s, &v);
  if (!status) status = make_array(&v, out);
  drop_values(&v);
  return status;
}

/* The destructor of the holder: releases the Arrow array, if it was moved there. */
static void release_holder(void *ptr, size_t size, void *ctx) {
  (void)ptr;
  (void)size;
  struct ArrowArray *array = ctx;
  if (array->release) array->release(array);
  loam_free(array);
}

/* Makes the holder. *moved is a zeroed Arrow struct in it, to which the host's struct is moved when
 * the import succeeds; until then the holder releases nothing. */
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
  if (!schema || !array || !out) return lm_error(LOAM_EINVAL, "schema, array or out: it is NULL");
  if (!schema->release || !array->release)
    return lm_error(LOAM_EINVAL, "the Arrow %s was released", schema->release ? "array" : "schema");
  job w = { .may_copy = may_copy != 0 };
  struct ArrowArray *moved;
  loam_array *made = NULL;
  loam_status status = make_holder(&w.holder, &moved);
  if (status) return status;
  source s = { schema, array, array->offset > 0 ? (size_t)array->offset : 0,
               array->length > 0 ? (size_t)array->length : 0 };
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
