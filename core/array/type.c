/* type.c - immutable trees of types with counted references.
 *
 * A retain is relaxed, because the caller holds a reference already. A release has release ordering
 * and the last release acquires: the thread that frees a type sees all that other owners did with
 * it. Plain types are static and not counted. */
#include "array/type.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/error.h"

/* ---- Plain types */

/* An initializer for each kind of LOAM_TYPE_LIST. The metadata of string and bytes are a block. */
#define SCALAR(kind_, name, bytes, alignment)                           \
  [kind_] = { .kind = kind_,                                            \
              .depth = 1,                                               \
              .size = (bytes),                                          \
              .align = (alignment),                                     \
              .meta = (kind_) >= LOAM_TYPE_STRING ? sizeof(void *) : 0, \
              .has_pieces = (kind_) >= LOAM_TYPE_STRING,                \
              .text = (name),                                           \
              .text_length = sizeof(name) - 1 },
static loam_type plain[] = { LOAM_TYPE_LIST(SCALAR) };

loam_type *lm_type_plain(loam_type_kind kind) {
  lm_require((size_t)kind < LM_COUNT(plain));
  return &plain[kind];
}

/* ---- References */

loam_site *lm_type_site(void) {
  /* The acquire load pairs with the release store below. Several threads may store, but sites are
   * interned, so they all store one address. */
  static _Atomic(loam_site *) cached;
  loam_site *site = atomic_load_explicit(&cached, memory_order_acquire);
  if (lm_likely(site != NULL)) return site;
  site = loam_site_get("loam.type");
  atomic_store_explicit(&cached, site, memory_order_release);
  return site;
}

/* Frees a type and releases its parts. */
static void destroy(loam_type *type) {
  loam_type_release(type->element);
  if (type->kind == LOAM_TYPE_STRUCT)
    for (size_t i = 0; i < type->count; i++) loam_type_release(type->fields[i].type);
  loam_free(type);
}

static bool is_counted(const loam_type *type) { return !lm_type_is_plain(type->kind); }

loam_type *loam_type_retain(const loam_type *type) {
  loam_type *t = (loam_type *)type;
  if (t && is_counted(t)) atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
  return t;
}

void loam_type_release(loam_type *type) {
  if (!type || !is_counted(type)) return;
  uint32_t before = atomic_fetch_sub_explicit(&type->refs, 1, memory_order_acq_rel);
  lm_require(before > 0);
  if (before == 1) destroy(type);
}

/* ---- Text */

/* A text that is being made. It is made twice: first only to count its length, then to write it. */
typedef struct text {
  char *out; /* where to write; NULL: only count */
  size_t length;
} text;

static void put(text *t, const char *words, size_t length) {
  if (t->out) memcpy(t->out + t->length, words, length);
  t->length += length;
}

static void put_words(text *t, const char *words) { put(t, words, strlen(words)); }

/* Returns whether a field name can stand in the text without quotes. */
static bool is_identifier(const char *name) {
  static const char digits[] = "0123456789";
  static const char others[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  return *name && !strchr(digits, *name) && name[strspn(name, others)] == 0;
}

/* Writes a name in quotes. */
static void put_quoted(text *t, const char *name) {
  put(t, "'", 1);
  for (; *name; name++) {
    if (*name == '\'' || *name == '\\') put(t, "\\", 1);
    put(t, name, 1);
  }
  put(t, "'", 1);
}

/* Writes the name of a field, in quotes if it is not an identifier. */
static void put_name(text *t, const char *name) {
  if (is_identifier(name)) put_words(t, name);
  else put_quoted(t, name);
}

static void put_struct(text *t, size_t count, const char *const *names, loam_type *const *types) {
  put(t, "{", 1);
  for (size_t i = 0; i < count; i++) {
    if (i) put(t, ", ", 2);
    put_name(t, names[i]);
    put(t, ": ", 2);
    put(t, types[i]->text, types[i]->text_length);
  }
  put(t, "}", 1);
}

static void put_categorical(text *t, size_t count, const char *const *names, bool is_ordered) {
  put_words(t, "categorical[[");
  for (size_t i = 0; i < count; i++) {
    if (i) put(t, ", ", 2);
    put_quoted(t, names[i]);
  }
  put_words(t, is_ordered ? "], ordered=True]" : "]]");
}

const char *lm_type_words(char out[LM_TYPE_WORDS], const loam_type *type) {
  if (type->text_length < LM_TYPE_WORDS) return strcpy(out, type->text);
  memcpy(out, type->text, LM_TYPE_WORDS - 4);
  strcpy(out + LM_TYPE_WORDS - 4, "...");
  return out;
}

/* ---- Types around one part */

static loam_status fail_memory(void) { return lm_error(LOAM_ENOMEM, "no memory for a type"); }

static loam_status check_limits(size_t depth, size_t length) {
  if (depth > LM_TYPE_DEPTH)
    return lm_error(LOAM_EINVAL, "the type is more than %d levels deep", LM_TYPE_DEPTH);
  if (length > LM_TYPE_TEXT)
    return lm_error(LOAM_EINVAL, "the type's text is longer than %d bytes", LM_TYPE_TEXT);
  return LOAM_OK;
}

/* Makes a type that is like `shape`, with one part, shape->element. Its text is the text of the
 * part between `before` and `after`. On failure the reference to the part stays the caller's. */
static loam_status try_make_wrapped(const loam_type *shape, const char *before, const char *after,
                                    loam_type **out) {
  const loam_type *element = shape->element;
  lm_assert(element && lm_is_pow2(shape->align) && shape->meta >= element->meta);
  size_t length = strlen(before) + element->text_length + strlen(after);
  loam_status status = check_limits(element->depth + 1, length);
  if (status) return status;
  loam_type *t = loam_malloc(lm_type_site(), sizeof *t + length + 1);
  if (!t) return fail_memory();
  *t = *shape;
  text made = { .out = (char *)(t + 1) };
  put_words(&made, before);
  put(&made, element->text, element->text_length);
  put_words(&made, after);
  lm_assert(made.length == length);
  made.out[length] = 0;
  t->text = made.out;
  t->text_length = (uint32_t)length;
  t->depth = element->depth + 1;
  atomic_store_explicit(&t->refs, 1, memory_order_relaxed);
  lm_verify(lm_type_is_valid(t));
  *out = t;
  return LOAM_OK;
}

/* Like try_make_wrapped, but releases the part on failure. */
static loam_status make_wrapped_type(const loam_type *shape, const char *before, const char *after,
                                     loam_type **out) {
  loam_status status = try_make_wrapped(shape, before, after, out);
  if (status) loam_type_release(shape->element);
  return status;
}

loam_status lm_type_fixed(size_t count, loam_type *element, loam_type **out) {
  size_t size;
  lm_assert(element && out);
  if (count > LM_SIZE_MAX || !lm_mul(count, element->size, &size) || size > LM_SIZE_MAX) {
    size_t each = element->size;
    loam_type_release(element);
    return lm_error(LOAM_EINVAL, "%zu elements of %zu bytes: no address space is that large", count,
                    each);
  }
  char before[32];
  snprintf(before, sizeof before, "%zu * ", count);
  loam_type shape = { .kind = LOAM_TYPE_FIXED,
                      .size = size,
                      .align = element->align,
                      .meta = 2 * sizeof(size_t) + element->meta,
                      .has_pieces = element->has_pieces,
                      .is_symbolic = element->is_symbolic,
                      .count = count,
                      .element = element };
  return make_wrapped_type(&shape, before, "", out);
}

loam_status lm_type_symbolic(loam_type *element, loam_type **out) {
  lm_assert(element && out);
  loam_type shape = { .kind = LOAM_TYPE_FIXED,
                      .align = element->align,
                      .meta = 2 * sizeof(size_t) + element->meta,
                      .has_pieces = element->has_pieces,
                      .is_symbolic = true,
                      .count = LOAM_ANY,
                      .element = element };
  return make_wrapped_type(&shape, "fixed * ", "", out);
}

loam_status lm_type_var(loam_type *element, loam_type **out) {
  lm_assert(element && out);
  loam_type shape = { .kind = LOAM_TYPE_VAR,
                      .size = sizeof(lm_piece),
                      .align = _Alignof(lm_piece),
                      .meta = 3 * sizeof(size_t) + element->meta,
                      .has_pieces = true,
                      .is_symbolic = element->is_symbolic,
                      .element = element };
  return make_wrapped_type(&shape, "var * ", "", out);
}

/* Makes a type without parts that is like `shape`, with a copy of the text `words`. */
static loam_status make_leaf(const loam_type *shape, const char *words, loam_type **out) {
  size_t length = strlen(words);
  loam_type *t = loam_malloc(lm_type_site(), sizeof *t + length + 1);
  if (!t) return fail_memory();
  *t = *shape;
  t->depth = 1;
  t->text = strcpy((char *)(t + 1), words);
  t->text_length = (uint32_t)length;
  atomic_store_explicit(&t->refs, 1, memory_order_relaxed);
  lm_verify(lm_type_is_valid(t));
  *out = t;
  return LOAM_OK;
}

loam_status lm_type_fixed_string(size_t count, loam_type **out) {
  char words[40];
  if (!count || count > LM_SIZE_MAX)
    return lm_error(LOAM_EINVAL, "string[%zu]: a fixed string has 1 byte or more", count);
  snprintf(words, sizeof words, "string[%zu]", count);
  loam_type shape = { .kind = LOAM_TYPE_FIXED_STRING, .size = count, .align = 1, .count = count };
  return make_leaf(&shape, words, out);
}

loam_status lm_type_decimal(size_t digits, size_t scale, loam_type **out) {
  char words[40];
  if (!digits || digits > LM_DECIMAL_DIGITS)
    return lm_error(LOAM_EINVAL, "a decimal of %zu digits: it has 1 to %d", digits,
                    LM_DECIMAL_DIGITS);
  if (scale > digits)
    return lm_error(LOAM_EINVAL, "a decimal of %zu digits, %zu of them behind the point", digits,
                    scale);
  snprintf(words, sizeof words, "decimal[%zu, %zu]", digits, scale);
  loam_type shape = { .kind = LOAM_TYPE_DECIMAL,
                      .size = 2 * sizeof(uint64_t),
                      .align = _Alignof(uint64_t),
                      .count = digits,
                      .scale = scale };
  return make_leaf(&shape, words, out);
}

loam_status lm_type_pointer(loam_type *target, loam_type **out) {
  lm_assert(target && out);
  loam_type shape = { .kind = LOAM_TYPE_POINTER,
                      .size = sizeof(void *),
                      .align = _Alignof(void *),
                      .meta = 2 * sizeof(size_t) + target->meta,
                      .has_pieces = true,
                      .is_symbolic = target->is_symbolic,
                      .element = target };
  return make_wrapped_type(&shape, "pointer[", "]", out);
}

/* Returns why a value of this type cannot be optional, or NULL if it can. */
static const char *why_no_option(const loam_type *value) {
  if (value->kind == LOAM_TYPE_OPTION) return "one \"?\" says that the value may be missing";
  if (value->kind == LOAM_TYPE_POINTER) return "a pointer may be NULL, so it needs no \"?\"";
  if (value->kind == LOAM_TYPE_CATEGORICAL && value->count == UINT8_MAX + 1)
    return "256 categories take all codes of a byte, so none is left for a missing value";
  return value->is_symbolic ? "a dimension of any size cannot be missing" : NULL;
}

loam_status lm_type_option(loam_type *value, loam_type **out) {
  lm_assert(value && out);
  const char *why = why_no_option(value);
  if (why) {
    char words[LM_TYPE_WORDS];
    lm_type_words(words, value);
    loam_type_release(value);
    return lm_error(LOAM_EINVAL, "?%s: %s", words, why);
  }
  bool has_flag = lm_type_has_flag(value->kind);
  loam_type shape = { .kind = LOAM_TYPE_OPTION,
                      .size = has_flag ? lm_align_up(value->size + 1, value->align) : value->size,
                      .align = value->align,
                      .meta = value->meta,
                      .has_pieces = value->has_pieces,
                      .element = value };
  return make_wrapped_type(&shape, "?", "", out);
}

/* ---- Structs */

/* Computes the offset of each field, as C lays out a struct, and the size, align, meta, depth and
 * has_pieces of the struct. Fails with LOAM_EINVAL if the struct is too large or too deep. */
static loam_status lay_out(loam_type *type) {
  size_t at = 0, meta = type->count * sizeof(size_t), depth = 0;
  type->align = 1;
  for (size_t i = 0; i < type->count; i++) {
    lm_field *f = &type->fields[i];
    lm_assert(lm_is_pow2(f->type->align));
    at = lm_align_up(at, f->type->align);
    f->offset = at;
    f->meta = meta;
    at += f->type->size;
    meta += f->type->meta;
    if (f->type->align > type->align) type->align = f->type->align;
    if (f->type->has_pieces) type->has_pieces = true;
    if (f->type->is_symbolic) type->is_symbolic = true;
    if (f->type->depth > depth) depth = f->type->depth;
    if (at > LM_SIZE_MAX)
      return lm_error(LOAM_EINVAL, "a struct of %zu bytes: no address space is that large", at);
  }
  type->size = lm_align_up(at, type->align);
  type->meta = meta;
  type->depth = (uint32_t)depth + 1;
  return check_limits(type->depth, 0);
}

/* Checks the number of fields and that their names differ. */
static loam_status check_names(size_t count, const char *const *names) {
  if (!count || count > LM_TYPE_FIELDS)
    return lm_error(LOAM_EINVAL, "a struct of %zu fields: it has 1 to %d", count, LM_TYPE_FIELDS);
  for (size_t i = 0; i < count; i++) {
    for (size_t k = 0; k < i; k++) {
      if (strcmp(names[i], names[k]) != 0) continue;
      char name[64];
      return lm_error(LOAM_EINVAL, "the struct has two fields %s",
                      lm_error_quote(name, sizeof name, names[i]));
    }
  }
  return LOAM_OK;
}

/* Writes the text, the names and the types of the fields into the memory behind the struct type.
 * The fields stand first, then the text of `length` bytes, then the names. */
static void fill_struct(loam_type *t, size_t length, const char *const *names, loam_type **types) {
  text made = { .out = (char *)(t->fields + t->count) };
  t->text = made.out;
  t->text_length = (uint32_t)length;
  put_struct(&made, t->count, names, types);
  lm_assert(made.length == length);
  made.out[length] = 0;
  char *name = made.out + length + 1;
  for (size_t i = 0; i < t->count; i++) {
    t->fields[i].name = strcpy(name, names[i]);
    t->fields[i].type = types[i];
    name += strlen(name) + 1;
  }
  atomic_store_explicit(&t->refs, 1, memory_order_relaxed);
}

/* Makes a struct type. On failure the references to `types` stay the caller's. */
static loam_status make_struct(size_t count, const char *const *names, loam_type **types,
                               loam_type **out) {
  loam_status status = check_names(count, names);
  if (status) return status;
  text counted = { .out = NULL };
  put_struct(&counted, count, names, types);
  status = check_limits(0, counted.length);
  if (status) return status;
  size_t bytes = sizeof(loam_type) + count * sizeof(lm_field) + counted.length + 1;
  for (size_t i = 0; i < count; i++) bytes += strlen(names[i]) + 1;
  loam_type *t = loam_malloc(lm_type_site(), bytes);
  if (!t) return fail_memory();
  *t = (loam_type){ .kind = LOAM_TYPE_STRUCT, .count = count, .fields = (lm_field *)(t + 1) };
  fill_struct(t, counted.length, names, types);
  status = lay_out(t);
  if (status) loam_free(t);
  else *out = t;
  return status;
}

loam_status lm_type_struct(size_t count, const char *const *names, loam_type **types,
                           loam_type **out) {
  loam_type *made = NULL;
  loam_status status = make_struct(count, names, types, &made);
  if (status) {
    for (size_t i = 0; i < count; i++) loam_type_release(types[i]);
    return status;
  }
  lm_verify(lm_type_is_valid(made));
  *out = made;
  return LOAM_OK;
}

long lm_type_find(const loam_type *type, const char *name) {
  lm_assert(type->kind == LOAM_TYPE_STRUCT);
  for (size_t i = 0; i < type->count; i++)
    if (!strcmp(type->fields[i].name, name)) return (long)i;
  return -1;
}

/* ---- Categories */

/* Compares two categories by name; for qsort. Equal names are ordered by code. */
static int compare_categories(const void *a, const void *b) {
  const lm_category *x = a, *y = b;
  int order = strcmp(x->name, y->name);
  return order ? order : x->code < y->code ? -1 : x->code > y->code;
}

/* Sorts the categories of a type by name, and checks that all names differ. If they do not, sets
 * *repeated to the number of the first name that is equal to an earlier one. */
static loam_status rank_categories(loam_type *t, size_t *repeated) {
  for (size_t i = 0; i < t->count; i++)
    t->ranked[i] = (lm_category){ t->categories[i], (uint32_t)i };
  qsort(t->ranked, t->count, sizeof *t->ranked, compare_categories);
  for (size_t i = 1; i < t->count; i++)
    if (!strcmp(t->ranked[i].name, t->ranked[i - 1].name) && t->ranked[i].code < *repeated)
      *repeated = t->ranked[i].code;
  if (*repeated == t->count) return LOAM_OK;
  char shown[LM_TYPE_WORDS];
  return lm_error(LOAM_EINVAL, "the categorical has a category %s already",
                  lm_error_quote(shown, sizeof shown, t->categories[*repeated]));
}

/* Writes the text and the names of the categories into the memory behind the categorical type. The
 * two tables of the categories stand first, then the text of `length` bytes, then the names. */
static void fill_categorical(loam_type *t, size_t length, const char *const *names) {
  t->ranked = (lm_category *)(t + 1);
  t->categories = (const char **)(t->ranked + t->count);
  text made = { .out = (char *)(t->categories + t->count) };
  t->text = made.out;
  t->text_length = (uint32_t)length;
  put_categorical(&made, t->count, names, t->is_ordered);
  lm_assert(made.length == length);
  made.out[length] = 0;
  char *name = made.out + length + 1;
  for (size_t i = 0; i < t->count; i++) {
    t->categories[i] = strcpy(name, names[i]);
    name += strlen(name) + 1;
  }
  atomic_store_explicit(&t->refs, 1, memory_order_relaxed);
}

loam_status lm_type_categorical(size_t count, const char *const *names, bool is_ordered,
                                size_t *repeated, loam_type **out) {
  text counted = { .out = NULL };
  *repeated = count;
  if (!count) return lm_error(LOAM_EINVAL, "a categorical without categories");
  put_categorical(&counted, count, names, is_ordered);
  loam_status status = check_limits(0, counted.length);
  if (status) return status;
  lm_assert(count <= UINT16_MAX); /* each name takes more than a byte of the text */
  size_t bytes = sizeof(loam_type) + count * (sizeof(lm_category) + sizeof(char *)) +
                 counted.length + 1;
  for (size_t i = 0; i < count; i++) bytes += strlen(names[i]) + 1;
  loam_type *t = loam_malloc(lm_type_site(), bytes);
  if (!t) return fail_memory();
  size_t size = count <= UINT8_MAX + 1 ? sizeof(uint8_t) : sizeof(uint16_t);
  *t = (loam_type){ .kind = LOAM_TYPE_CATEGORICAL,
                    .depth = 1,
                    .size = size,
                    .align = size,
                    .count = count,
                    .is_ordered = is_ordered };
  fill_categorical(t, counted.length, names);
  status = rank_categories(t, repeated);
  if (status) {
    loam_free(t);
    return status;
  }
  lm_verify(lm_type_is_valid(t));
  *out = t;
  return LOAM_OK;
}

/* Compares the `length` bytes at `name` with the name of a category, in the order of strcmp. */
static int compare_name(const char *name, size_t length, const char *category) {
  size_t other = strlen(category), least = length < other ? length : other;
  int order = least ? memcmp(name, category, least) : 0;
  return order ? order : length < other ? -1 : length > other;
}

bool lm_type_find_category(const loam_type *type, const char *name, size_t length, uint32_t *code) {
  size_t from = 0, end = type->count;
  while (from < end) {
    size_t middle = from + (end - from) / 2;
    int order = compare_name(name, length, type->ranked[middle].name);
    if (!order) *code = type->ranked[middle].code;
    if (!order) return true;
    if (order < 0) end = middle;
    else from = middle + 1;
  }
  return false;
}

/* ---- Dimensions of any size */

/* Returns to how many dimensions of a type loam_type_sized gives a size: it enters no struct. */
static size_t count_sizes(const loam_type *type) {
  size_t count = 0;
  for (; type; type = type->element)
    count += type->kind == LOAM_TYPE_FIXED && type->count == LOAM_ANY;
  return count;
}

loam_status lm_type_check_sized(const loam_type *type) {
  char words[LM_TYPE_WORDS];
  if (!type->is_symbolic) return LOAM_OK;
  if (!count_sizes(type))
    return lm_error(LOAM_EINVAL, "type %s: a `fixed *` in a struct gets no size: write a number",
                    lm_type_words(words, type));
  return lm_error(LOAM_EINVAL,
                  "type %s: an array needs the size of each `fixed *` dimension (loam_type_sized)",
                  lm_type_words(words, type));
}

/* Makes a type from `type`, in which the dimensions of any size get the sizes at *shape. Moves
 * *shape past the sizes that are used. */
static loam_status give_sizes(const loam_type *type, const size_t **shape, loam_type **out) {
  loam_type *element = NULL;
  if (!type->is_symbolic || type->kind == LOAM_TYPE_STRUCT) {
    *out = loam_type_retain(type);
    return LOAM_OK;
  }
  size_t size = type->count;
  if (type->kind == LOAM_TYPE_FIXED && size == LOAM_ANY) size = *(*shape)++;
  loam_status status = give_sizes(type->element, shape, &element);
  if (status) return status;
  if (type->kind == LOAM_TYPE_FIXED) return lm_type_fixed(size, element, out);
  return type->kind == LOAM_TYPE_VAR ? lm_type_var(element, out) : lm_type_pointer(element, out);
}

loam_status loam_type_sized(const loam_type *type, size_t count, const size_t *shape,
                            loam_type **out) {
  loam_type *made = NULL;
  char words[LM_TYPE_WORDS];
  if (!type || !out || (count && !shape)) return lm_error_missing("type, shape or out");
  if (count != count_sizes(type))
    return lm_error(LOAM_EINVAL, "type %s: the number of sizes must be %zu, not %zu",
                    lm_type_words(words, type), count_sizes(type), count);
  loam_status status = give_sizes(type, &shape, &made);
  if (!status) status = lm_type_check_sized(made);
  if (status) loam_type_release(made);
  else *out = made;
  return status;
}

/* ---- Laws */

/* Returns whether fields follow each other without overlap, and the depth of the struct is 1 more
 * than the greatest depth of them. */
static bool is_valid_struct(const loam_type *type) {
  size_t meta = type->count * sizeof(size_t), end = 0;
  uint32_t depth = 0;
  for (size_t i = 0; i < type->count; i++) {
    const lm_field *f = &type->fields[i];
    if (f->meta != meta || f->offset < end || f->offset % f->type->align) return false;
    if (!lm_type_is_valid(f->type)) return false;
    if (f->type->depth > depth) depth = f->type->depth;
    meta += f->type->meta;
    end = f->offset + f->type->size;
  }
  return type->depth == depth + 1 && type->meta == meta && type->size >= end &&
         type->size % type->align == 0;
}

/* Returns whether `ranked` has each category once, in the order of the names, which all differ. */
static bool is_valid_categorical(const loam_type *type) {
  if (!type->count || type->element || type->size != type->align) return false;
  if (type->size < sizeof(uint16_t) && type->count > UINT8_MAX + 1) return false;
  for (size_t i = 0; i < type->count; i++) {
    const lm_category *c = &type->ranked[i];
    if (c->code >= type->count || type->categories[c->code] != c->name) return false;
    if (i && strcmp(type->ranked[i - 1].name, c->name) >= 0) return false;
  }
  return true;
}

bool lm_type_is_valid(const loam_type *type) {
  if (strlen(type->text) != type->text_length || !lm_is_pow2(type->align)) return false;
  if (lm_type_is_plain(type->kind)) return type == &plain[type->kind];
  if (!atomic_load_explicit(&type->refs, memory_order_relaxed)) return false;
  if (type->kind == LOAM_TYPE_STRUCT) return is_valid_struct(type);
  if (type->kind == LOAM_TYPE_FIXED_STRING) return type->size == type->count && !type->element;
  if (type->kind == LOAM_TYPE_DECIMAL) return type->count >= type->scale && !type->element;
  if (type->kind == LOAM_TYPE_CATEGORICAL) return is_valid_categorical(type);
  return type->element && type->depth == type->element->depth + 1 &&
         lm_type_is_valid(type->element);
}

/* ---- Properties (loam.h) */

const char *loam_type_text(const loam_type *type) { return type ? type->text : ""; }

int loam_type_equal(const loam_type *a, const loam_type *b) {
  if (a == b || !a || !b) return a == b;
  return a->text_length == b->text_length && !memcmp(a->text, b->text, a->text_length);
}

loam_status loam_type_info(const loam_type *type, struct loam_type_info *out) {
  if (!type || !out) return lm_error_missing(type ? "out" : "type");
  *out = (struct loam_type_info){ .kind = type->kind,
                                  .size = type->size,
                                  .align = type->align,
                                  .count = type->count,
                                  .element = type->element,
                                  .scale = type->scale };
  return LOAM_OK;
}

/* Like loam_type_field, for a categorical type. */
static loam_status category_field(const loam_type *type, size_t index,
                                  struct loam_type_field *out) {
  if (index >= type->count)
    return lm_error(LOAM_EINVAL, "category %zu: the categorical has %zu", index, type->count);
  *out = (struct loam_type_field){ .name = type->categories[index],
                                   .type = lm_type_plain(LOAM_TYPE_STRING) };
  return LOAM_OK;
}

loam_status loam_type_field(const loam_type *type, size_t index, struct loam_type_field *out) {
  if (!type || !out) return lm_error_missing(type ? "out" : "type");
  if (type->kind == LOAM_TYPE_CATEGORICAL) return category_field(type, index, out);
  if (type->kind != LOAM_TYPE_STRUCT) {
    char words[LM_TYPE_WORDS];
    return lm_error(LOAM_EINVAL, "type %s: it is not a struct", lm_type_words(words, type));
  }
  if (index >= type->count)
    return lm_error(LOAM_EINVAL, "field %zu: the struct has %zu", index, type->count);
  const lm_field *f = &type->fields[index];
  *out = (struct loam_type_field){ .name = f->name, .type = f->type, .offset = f->offset };
  return LOAM_OK;
}
