/* type.c - immutable trees of types, counted by reference. */
#include "array/type.h"

#include <stdio.h>
#include <string.h>

#include "os/error.h"

/* ---- Those without parts */

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

/* ---- Life */

loam_site *lm_type_site(void) {
  static _Atomic(loam_site *) cached; /* interned: whoever writes it writes the same */
  loam_site *site = atomic_load_explicit(&cached, memory_order_acquire);
  if (lm_likely(site != NULL)) return site;
  site = loam_site_get("loam.type");
  atomic_store_explicit(&cached, site, memory_order_release);
  return site;
}

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

/* Release and acquire: what others did with the type is before its end. */
void loam_type_release(loam_type *type) {
  if (!type || !is_counted(type)) return;
  uint32_t before = atomic_fetch_sub_explicit(&type->refs, 1, memory_order_acq_rel);
  lm_require(before > 0);
  if (before == 1) destroy(type);
}

/* ---- Text */

/* Writes if there is somewhere to write, counts in any case: each text is made twice, first to
 * learn its length. */
typedef struct text {
  char *out; /* NULL: only count */
  size_t length;
} text;

static void put(text *t, const char *words, size_t length) {
  if (t->out) memcpy(t->out + t->length, words, length);
  t->length += length;
}

static void put_words(text *t, const char *words) { put(t, words, strlen(words)); }

static bool is_identifier(const char *name) {
  static const char digits[] = "0123456789";
  static const char others[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  return *name && !strchr(digits, *name) && name[strspn(name, others)] == 0;
}

static void put_name(text *t, const char *name) {
  if (is_identifier(name)) {
    put_words(t, name);
    return;
  }
  put(t, "'", 1);
  for (; *name; name++) {
    if (*name == '\'' || *name == '\\') put(t, "\\", 1);
    put(t, name, 1);
  }
  put(t, "'", 1);
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

const char *lm_type_words(char out[LM_TYPE_WORDS], const loam_type *type) {
  if (type->text_length < LM_TYPE_WORDS) return strcpy(out, type->text);
  memcpy(out, type->text, LM_TYPE_WORDS - 4);
  strcpy(out + LM_TYPE_WORDS - 4, "...");
  return out;
}

/* ---- Making */

static loam_status fail_memory(void) { return lm_error(LOAM_ENOMEM, "no memory for a type"); }

static loam_status check_limits(size_t depth, size_t length) {
  if (depth > LM_TYPE_DEPTH)
    return lm_error(LOAM_EINVAL, "the type is more than %d levels deep", LM_TYPE_DEPTH);
  if (length > LM_TYPE_TEXT)
    return lm_error(LOAM_EINVAL, "the type's text is longer than %d bytes", LM_TYPE_TEXT);
  return LOAM_OK;
}

/* A type around one other, whose text stands between `before` and `after`. */
static loam_status make_around(const loam_type *like, const char *before, const char *after,
                               loam_type **out) {
  const loam_type *element = like->element;
  size_t length = strlen(before) + element->text_length + strlen(after);
  loam_status status = check_limits(element->depth + 1, length);
  if (status) return status;
  loam_type *t = loam_malloc(lm_type_site(), sizeof *t + length + 1);
  if (!t) return fail_memory();
  *t = *like;
  text made = { .out = (char *)(t + 1) };
  put_words(&made, before);
  put(&made, element->text, element->text_length);
  put_words(&made, after);
  made.out[length] = 0;
  t->text = made.out;
  t->text_length = (uint32_t)length;
  t->depth = element->depth + 1;
  atomic_store_explicit(&t->refs, 1, memory_order_relaxed);
  lm_verify(lm_type_is_valid(t));
  *out = t;
  return LOAM_OK;
}

/* The same, and the reference to the element is gone if it fails. */
static loam_status around(const loam_type *like, const char *before, const char *after,
                          loam_type **out) {
  loam_status status = make_around(like, before, after, out);
  if (status) loam_type_release(like->element);
  return status;
}

loam_status lm_type_fixed(size_t count, loam_type *element, loam_type **out) {
  size_t size;
  if (count > LM_SIZE_MAX || !lm_mul(count, element->size, &size) || size > LM_SIZE_MAX) {
    size_t each = element->size;
    loam_type_release(element);
    return lm_error(LOAM_EINVAL, "%zu elements of %zu bytes: no address space is that large", count,
                    each);
  }
  char before[32];
  snprintf(before, sizeof before, "%zu * ", count);
  loam_type like = { .kind = LOAM_TYPE_FIXED,
                     .size = size,
                     .align = element->align,
                     .meta = 2 * sizeof(size_t) + element->meta,
                     .has_pieces = element->has_pieces,
                     .count = count,
                     .element = element };
  return around(&like, before, "", out);
}

loam_status lm_type_var(loam_type *element, loam_type **out) {
  loam_type like = { .kind = LOAM_TYPE_VAR,
                     .size = sizeof(lm_piece),
                     .align = _Alignof(lm_piece),
                     .meta = 3 * sizeof(size_t) + element->meta,
                     .has_pieces = true,
                     .element = element };
  return around(&like, "var * ", "", out);
}

loam_status lm_type_pointer(loam_type *target, loam_type **out) {
  loam_type like = { .kind = LOAM_TYPE_POINTER,
                     .size = sizeof(void *),
                     .align = _Alignof(void *),
                     .meta = 2 * sizeof(size_t) + target->meta,
                     .has_pieces = true,
                     .element = target };
  return around(&like, "pointer[", "]", out);
}

loam_status lm_type_option(loam_type *value, loam_type **out) {
  if (!lm_type_is_plain(value->kind)) {
    char words[LM_TYPE_WORDS];
    lm_type_words(words, value);
    loam_type_release(value);
    return lm_error(LOAM_EINVAL, "?%s: only a scalar, a string or bytes can be missing", words);
  }
  loam_type like = { .kind = LOAM_TYPE_OPTION,
                     .size = value->size,
                     .align = value->align,
                     .meta = value->meta,
                     .has_pieces = value->has_pieces,
                     .element = value };
  return around(&like, "?", "", out);
}

/* ---- Structs */

/* Where each field is, as C lays it out; the whole in size, align, meta and depth. */
static loam_status lay_out(loam_type *type) {
  size_t at = 0, meta = type->count * sizeof(size_t), depth = 0;
  type->align = 1;
  for (size_t i = 0; i < type->count; i++) {
    lm_field *f = &type->fields[i];
    at = lm_align_up(at, f->type->align);
    f->offset = at;
    f->meta = meta;
    at += f->type->size;
    meta += f->type->meta;
    if (f->type->align > type->align) type->align = f->type->align;
    if (f->type->has_pieces) type->has_pieces = true;
    if (f->type->depth > depth) depth = f->type->depth;
    if (at > LM_SIZE_MAX)
      return lm_error(LOAM_EINVAL, "a struct of %zu bytes: no address space is that large", at);
  }
  type->size = lm_align_up(at, type->align);
  type->meta = meta;
  type->depth = (uint32_t)depth + 1;
  return check_limits(type->depth, 0);
}

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

static void fill_struct(loam_type *t, size_t length, const char *const *names, loam_type **types) {
  text made = { .out = (char *)(t->fields + t->count) };
  t->text = made.out;
  t->text_length = (uint32_t)length;
  put_struct(&made, t->count, names, types);
  made.out[length] = 0;
  char *name = made.out + length + 1;
  for (size_t i = 0; i < t->count; i++) {
    t->fields[i].name = strcpy(name, names[i]);
    t->fields[i].type = types[i];
    name += strlen(name) + 1;
  }
  atomic_store_explicit(&t->refs, 1, memory_order_relaxed);
}

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
  for (size_t i = 0; i < type->count; i++)
    if (!strcmp(type->fields[i].name, name)) return (long)i;
  return -1;
}

/* ---- Laws */

static bool is_valid_struct(const loam_type *type) {
  size_t meta = type->count * sizeof(size_t), end = 0;
  for (size_t i = 0; i < type->count; i++) {
    const lm_field *f = &type->fields[i];
    if (f->meta != meta || f->offset < end || f->offset % f->type->align) return false;
    if (!lm_type_is_valid(f->type)) return false;
    meta += f->type->meta;
    end = f->offset + f->type->size;
  }
  return type->meta == meta && type->size >= end && type->size % type->align == 0;
}

bool lm_type_is_valid(const loam_type *type) {
  if (strlen(type->text) != type->text_length || !lm_is_pow2(type->align)) return false;
  if (lm_type_is_plain(type->kind)) return type == &plain[type->kind];
  if (!atomic_load_explicit(&type->refs, memory_order_relaxed)) return false;
  if (type->kind == LOAM_TYPE_STRUCT) return is_valid_struct(type);
  return type->element && type->depth == type->element->depth + 1 &&
         lm_type_is_valid(type->element);
}

/* ---- loam.h */

const char *loam_type_text(const loam_type *type) { return type ? type->text : ""; }

int loam_type_equal(const loam_type *a, const loam_type *b) {
  if (a == b || !a || !b) return a == b;
  return a->text_length == b->text_length && !memcmp(a->text, b->text, a->text_length);
}

loam_status loam_type_info(const loam_type *type, struct loam_type_info *out) {
  if (!type || !out) return lm_error(LOAM_EINVAL, "type or out: it is NULL");
  *out = (struct loam_type_info){ .kind = type->kind,
                                  .size = type->size,
                                  .align = type->align,
                                  .count = type->count,
                                  .element = type->element };
  return LOAM_OK;
}

loam_status loam_type_field(const loam_type *type, size_t index, struct loam_type_field *out) {
  if (!type || !out) return lm_error(LOAM_EINVAL, "type or out: it is NULL");
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
