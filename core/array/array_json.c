/* array_json.c - writes the values of an array as JSON: dimensions are arrays, structs are
 * objects. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array/array.h"
#include "array/missing.h"
#include "os/error.h"
#include "script/json.h"

/* The JSON text goes to the host in parts. A part is complete when it has at least this many
 * bytes. */
enum { FLUSH_BYTES = 32768 };

/* `json` has the text that the host did not get yet. `write` is the host's function that takes the
 * next part of the text, and `ctx` is passed to it. */
typedef struct out {
  lm_json json;
  loam_write_fn write;
  void *ctx;
} out;

/* Passes the text in `json` to the host and empties `json`, if the text has at least `least` bytes.
 * Does nothing after memory ran out. */
static void flush(out *o, size_t least) {
  if (o->json.failed || o->json.length < least) return;
  o->write(o->ctx, o->json.text, o->json.length);
  lm_json_cut(&o->json, 0);
}

/* ---- Numbers ---- */

/* Writes `word` without quotes: a float or another literal for which lm_json has no function. */
static void put_literal(out *o, const char *key, const char *word) {
  lm_json_int(&o->json, key, 0); /* the number 0, after the comma and key that JSON needs */
  if (o->json.failed) return;
  lm_assert(o->json.length > 0);
  lm_json_cut(&o->json, o->json.length - 1); /* `word` replaces the 0 */
  lm_json_raw(&o->json, word, strlen(word));
}

/* `text` is a number that snprintf wrote with the decimal separator of the locale, which may be a
 * comma or several bytes. Replaces the separator by a point, as JSON requires. */
static void normalize_point(char *text) {
  char *from = text + strspn(text, "-0123456789"), *to = from;
  if (!*from || *from == 'e') return;
  from += strcspn(from, "0123456789e");
  *to++ = '.';
  memmove(to, from, strlen(from) + 1);
}

/* How many decimal digits put_float writes for one kind of float. Any number that is written with
 * `most` digits and then read as a number of its own kind has its old value. For many numbers
 * `least` digits are enough, so put_float tries each number of digits from `least` to `most`. If
 * `is_single`, the number is read as a float for the comparison, otherwise as a double. */
typedef struct digits {
  int least, most;
  bool is_single;
} digits;

static const digits half_digits = { 5, 5, false }, single_digits = { 6, 9, true },
                    double_digits = { 15, 17, false };

/* Writes `x` with the fewest digits from d->least to d->most that give `x` again when the text is
 * read, or with d->most digits. */
static void put_float(out *o, const char *key, double x, const digits *d) {
  char text[64];
  if (isnan(x) || isinf(x)) {
    put_literal(o, key, isnan(x) ? "NaN" : x < 0 ? "-Infinity" : "Infinity");
    return;
  }
  lm_assert(d->least <= d->most && d->most < (int)sizeof text - 10);
  for (int n = d->least; n <= d->most; n++) {
    snprintf(text, sizeof text, "%.*g", n, x);
    if (d->is_single ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x) break;
  }
  normalize_point(text);
  put_literal(o, key, text);
}

/* Returns the value of a half, the format binary16 of IEEE 754: 1 bit is the sign, 5 bits are the
 * exponent and 10 bits the fraction. */
static double half_to_double(uint16_t h) {
  unsigned exponent = h >> 10 & 31, fraction = h & 1023;
  double x = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
             : exponent == 0 ? fraction / 0x1p24
                             : (fraction + 1024) * (double)(1u << exponent) / 0x1p25;
  return h & 0x8000 ? -x : x;
}

/* Writes a complex number as a JSON array of two numbers: the real and the imaginary part. */
static void put_complex(out *o, const char *key, double re, double im, const digits *d) {
  lm_json_open(&o->json, key, '[');
  put_float(o, NULL, re, d);
  put_float(o, NULL, im, d);
  lm_json_close(&o->json, ']');
}

/* Reads a value of the C type `type_` from the variable `data`, the address of the value. */
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
    case LOAM_TYPE_FLOAT16: put_float(o, key, half_to_double(READ(uint16_t)), &half_digits); break;
    case LOAM_TYPE_FLOAT32: put_float(o, key, (double)READ(float), &single_digits); break;
    case LOAM_TYPE_FLOAT64: put_float(o, key, READ(double), &double_digits); break;
    case LOAM_TYPE_COMPLEX64:
      put_complex(o, key, (double)READ(float), (double)((const float *)data)[1], &single_digits);
      break;
    case LOAM_TYPE_COMPLEX128:
      put_complex(o, key, READ(double), ((const double *)data)[1], &double_digits);
      break;
    default: put_integer(o, key, kind, data);
  }
}

/* ---- Values ---- */

/* Writes the value at a cursor. `key` is the name of the value in its JSON object, or NULL if the
 * value is not a member of an object. */
static void put(out *o, const char *key, lm_array_cursor spot);

static void put_row(out *o, const char *key, const lm_array_row *row) {
  lm_array_cursor element = row->first;
  lm_json_open(&o->json, key, '[');
  for (size_t i = 0; i < row->count && !o->json.failed; i++) {
    element.data = row->first.data + (ptrdiff_t)i * row->stride;
    put(o, NULL, element);
  }
  lm_json_close(&o->json, ']');
}

static void put_struct(out *o, const char *key, lm_array_cursor spot) {
  lm_assert(spot.type->kind == LOAM_TYPE_STRUCT);
  lm_json_open(&o->json, key, '{');
  for (size_t i = 0; i < spot.type->count; i++) {
    const lm_field *f = &spot.type->fields[i];
    lm_array_cursor field = { f->type, lm_layout_field(spot.type, spot.meta, i),
                              spot.data + lm_layout_offset(spot.meta, i), spot.owner };
    put(o, f->name, field);
  }
  lm_json_close(&o->json, '}');
}

/* Writes the target of a pointer; writes null for a NULL pointer, unless its target has no
 * bytes. */
static void put_pointer(out *o, const char *key, lm_array_cursor spot) {
  const lm_pointer_layout *m = lm_layout_pointer(spot.meta);
  lm_array_cursor target = { spot.type->element, m->target, NULL, m->block };
  if (lm_layout_follow(spot.type, m, spot.data, &target.data)) put(o, key, target);
  else lm_json_text(&o->json, key, NULL);
}

/* Writes the value of an option, or null if the value is missing. */
static void put_option(out *o, const char *key, lm_array_cursor spot) {
  lm_assert(spot.type->kind == LOAM_TYPE_OPTION);
  spot.type = spot.type->element;
  if (lm_missing_is(spot.type, spot.data)) lm_json_text(&o->json, key, NULL);
  else put(o, key, spot);
}

static void put(out *o, const char *key, lm_array_cursor spot) {
  const lm_piece *piece = (const lm_piece *)spot.data;
  flush(o, FLUSH_BYTES);
  switch (spot.type->kind) {
    case LOAM_TYPE_FIXED:
    case LOAM_TYPE_VAR: {
      lm_array_row row = lm_array_row_at(spot);
      put_row(o, key, &row);
      break;
    }
    case LOAM_TYPE_STRUCT: put_struct(o, key, spot); break;
    case LOAM_TYPE_POINTER: put_pointer(o, key, spot); break;
    case LOAM_TYPE_OPTION: put_option(o, key, spot); break;
    case LOAM_TYPE_STRING:
    case LOAM_TYPE_BYTES: lm_json_text_n(&o->json, key, piece->begin, piece->size); break;
    default: put_scalar(o, key, spot.type->kind, spot.data);
  }
}

loam_status loam_array_json(const loam_array *array, loam_write_fn write, void *ctx) {
  if (!array || !write) return lm_error(LOAM_EINVAL, "%s: it is NULL", array ? "write" : "array");
  out o = { .write = write, .ctx = ctx };
  lm_verify(lm_array_is_valid(array));
  put(&o, NULL, lm_array_start(array));
  flush(&o, 1);
  loam_status status = o.json.failed ? lm_error(LOAM_ENOMEM, "no memory for the text") : LOAM_OK;
  lm_json_finish(&o.json);
  return status;
}
