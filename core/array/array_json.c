/* array_json.c - what an array holds, as JSON: dimensions are arrays, structs are objects. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array/array.h"
#include "array/missing.h"
#include "os/error.h"
#include "script/json.h"

/* Text goes out whenever there is this much of it. */
enum { PART = 32768 };

typedef struct out {
  lm_json json;
  loam_write_fn write;
  void *ctx;
} out;

static void pass_on(out *o, size_t least) {
  if (o->json.failed || o->json.length < least) return;
  o->write(o->ctx, o->json.text, o->json.length);
  o->json.length = 0;
}

/* ---- Numbers ---- */

/* Of which JSON knows no writing of its own. */
static void put_word(out *o, const char *key, const char *word) {
  lm_json_int(&o->json, key, 0);
  if (o->json.failed) return;
  o->json.length--; /* the word stands where the 0 stood, after comma and key */
  lm_json_raw(&o->json, word, strlen(word));
}

/* The decimal point of the locale may be more than a byte. */
static void use_point(char *text) {
  char *from = text + strspn(text, "-0123456789"), *to = from;
  if (!*from || *from == 'e') return;
  from += strcspn(from, "0123456789e");
  *to++ = '.';
  memmove(to, from, strlen(from) + 1);
}

/* As few digits as tell it from its neighbours. */
static void put_float(out *o, const char *key, double x, int least, int most, bool is_single) {
  char text[64];
  if (isnan(x) || isinf(x)) {
    put_word(o, key, isnan(x) ? "NaN" : x < 0 ? "-Infinity" : "Infinity");
    return;
  }
  for (int digits = least; digits <= most; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, x);
    if (is_single ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x) break;
  }
  use_point(text);
  put_word(o, key, text);
}

/* IEEE 754's binary16: 1 bit of sign, 5 of exponent, 10 of fraction. */
static double of_half(uint16_t h) {
  unsigned exponent = h >> 10 & 31, fraction = h & 1023;
  double x = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
             : exponent == 0 ? fraction / 0x1p24
                             : (fraction + 1024) * (double)(1u << exponent) / 0x1p25;
  return h & 0x8000 ? -x : x;
}

static void put_complex(out *o, const char *key, double re, double im, bool is_single) {
  int least = is_single ? 6 : 15, most = is_single ? 9 : 17;
  lm_json_open(&o->json, key, '[');
  put_float(o, NULL, re, least, most, is_single);
  put_float(o, NULL, im, least, most, is_single);
  lm_json_close(&o->json, ']');
}

#define READ(type_) (*(const type_ *)data)

static void put_integer(out *o, const char *key, loam_type_kind kind, const char *data) {
  switch (kind) {
    case LOAM_TYPE_INT8: lm_json_int(&o->json, key, READ(int8_t)); break;
    case LOAM_TYPE_INT16: lm_json_int(&o->json, key, READ(int16_t)); break;
    case LOAM_TYPE_INT32: lm_json_int(&o->json, key, READ(int32_t)); break;
    case LOAM_TYPE_INT64: lm_json_int(&o->json, key, READ(int64_t)); break;
    case LOAM_TYPE_UINT8: lm_json_uint(&o->json, key, READ(uint8_t)); break;
    case LOAM_TYPE_UINT16: lm_json_uint(&o->json, key, READ(uint16_t)); break;
    case LOAM_TYPE_UINT32: lm_json_uint(&o->json, key, READ(uint32_t)); break;
    default: lm_json_uint(&o->json, key, READ(uint64_t)); break;
  }
}

static void put_scalar(out *o, const char *key, loam_type_kind kind, const char *data) {
  switch (kind) {
    case LOAM_TYPE_BOOL: lm_json_bool(&o->json, key, READ(uint8_t) != 0); break;
    case LOAM_TYPE_FLOAT16: put_float(o, key, of_half(READ(uint16_t)), 5, 5, false); break;
    case LOAM_TYPE_FLOAT32: put_float(o, key, (double)READ(float), 6, 9, true); break;
    case LOAM_TYPE_FLOAT64: put_float(o, key, READ(double), 15, 17, false); break;
    case LOAM_TYPE_COMPLEX64:
      put_complex(o, key, (double)READ(float), (double)((const float *)data)[1], true);
      break;
    case LOAM_TYPE_COMPLEX128:
      put_complex(o, key, READ(double), ((const double *)data)[1], false);
      break;
    default: put_integer(o, key, kind, data);
  }
}

/* ---- Values ---- */

static void put(out *o, const char *key, const loam_type *type, const size_t *meta,
                const char *data);

static void put_row(out *o, const char *key, const loam_type *element, const size_t *meta,
                    const char *first, size_t count, ptrdiff_t stride) {
  lm_json_open(&o->json, key, '[');
  for (size_t i = 0; i < count && !o->json.failed; i++)
    put(o, NULL, element, meta, first + (ptrdiff_t)i * stride);
  lm_json_close(&o->json, ']');
}

static void put_struct(out *o, const char *key, const loam_type *type, const size_t *meta,
                       const char *data) {
  lm_json_open(&o->json, key, '{');
  for (size_t i = 0; i < type->count; i++)
    put(o, type->fields[i].name, type->fields[i].type, lm_layout_field(type, meta, i),
        data + lm_layout_offset(meta, i));
  lm_json_close(&o->json, '}');
}

static void put_pointer(out *o, const char *key, const loam_type *type, const size_t *meta,
                        const char *data) {
  const lm_pointer_layout *m = lm_layout_pointer(meta);
  const char *target;
  if (lm_layout_follow(type, m, data, &target)) put(o, key, type->element, m->target, target);
  else lm_json_text(&o->json, key, NULL);
}

static void put(out *o, const char *key, const loam_type *type, const size_t *meta,
                const char *data) {
  const lm_piece *piece = (const lm_piece *)data;
  pass_on(o, PART);
  switch (type->kind) {
    case LOAM_TYPE_FIXED: {
      const lm_fixed_layout *m = lm_layout_fixed(meta);
      put_row(o, key, type->element, m->element, data, m->size, m->stride);
      break;
    }
    case LOAM_TYPE_VAR: {
      const lm_var_layout *m = lm_layout_var(meta);
      put_row(o, key, type->element, m->element, lm_layout_first(m, piece), piece->size, m->stride);
      break;
    }
    case LOAM_TYPE_STRUCT: put_struct(o, key, type, meta, data); break;
    case LOAM_TYPE_POINTER: put_pointer(o, key, type, meta, data); break;
    case LOAM_TYPE_OPTION:
      if (lm_missing_is(type->element, data)) lm_json_text(&o->json, key, NULL);
      else put(o, key, type->element, meta, data);
      break;
    case LOAM_TYPE_STRING:
    case LOAM_TYPE_BYTES: lm_json_text_n(&o->json, key, piece->begin, piece->size); break;
    default: put_scalar(o, key, type->kind, data);
  }
}

loam_status loam_array_json(const loam_array *array, loam_write_fn write, void *ctx) {
  if (!array || !write) return lm_error(LOAM_EINVAL, "array or write: it is NULL");
  out o = { .write = write, .ctx = ctx };
  put(&o, NULL, array->type, array->meta, array->data);
  pass_on(&o, 1);
  loam_status status = o.json.failed ? lm_error(LOAM_ENOMEM, "no memory for the text") : LOAM_OK;
  lm_json_finish(&o.json);
  return status;
}
