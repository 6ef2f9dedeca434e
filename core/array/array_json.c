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

/* The text is passed to the host in parts, whenever it has at least so many bytes. */
enum { FLUSH_BYTES = 32768 };

/* The text that is not passed on yet, and the function of the host that takes it. */
typedef struct out {
  lm_json json;
  loam_write_fn write;
  void *ctx;
} out;

/* Passes the text to the host if it has at least `least` bytes. */
static void flush(out *o, size_t least) {
  if (o->json.failed || o->json.length < least) return;
  o->write(o->ctx, o->json.text, o->json.length);
  lm_json_cut(&o->json, 0);
}

/* ---- Numbers ---- */

/* Writes a number or another literal that lm_json has no function for. */
static void put_literal(out *o, const char *key, const char *word) {
  lm_json_int(&o->json, key, 0); /* writes the comma and the key */
  if (o->json.failed) return;
  lm_assert(o->json.length > 0);
  lm_json_cut(&o->json, o->json.length - 1); /* the literal replaces the 0 */
  lm_json_raw(&o->json, word, strlen(word));
}

/* Replaces the decimal point of the locale, which may be several bytes, by a point. */
static void normalize_point(char *text) {
  char *from = text + strspn(text, "-0123456789"), *to = from;
  if (!*from || *from == 'e') return;
  from += strcspn(from, "0123456789e");
  *to++ = '.';
  memmove(to, from, strlen(from) + 1);
}

/* How many decimal digits a float may need. With `most` digits, the text of every number reads back
 * as the same number; fewer digits, from `least` on, are tried first. A single is read back as a
 * float, any other number as a double. */
typedef struct digits {
  int least, most;
  bool is_single;
} digits;

static const digits half_digits = { 5, 5, false }, single_digits = { 6, 9, true },
                    double_digits = { 15, 17, false };

/* Writes the shortest text, in digits, that reads back as the same number. */
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

/* The value of a half, which is binary16 of IEEE 754: 1 bit of sign, 5 of exponent, 10 of
 * fraction. */
static double half_to_double(uint16_t h) {
  unsigned exponent = h >> 10 & 31, fraction = h & 1023;
  double x = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
             : exponent == 0 ? fraction / 0x1p24
                             : (fraction + 1024) * (double)(1u << exponent) / 0x1p25;
  return h & 0x8000 ? -x : x;
}

/* Writes a complex number as an array of its real and imaginary part. */
static void put_complex(out *o, const char *key, double re, double im, const digits *d) {
  lm_json_open(&o->json, key, '[');
  put_float(o, NULL, re, d);
  put_float(o, NULL, im, d);
  lm_json_close(&o->json, ']');
}

/* The value of a C type at `data`. */
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

/* The date of a number of days since 1970-01-01, in the Gregorian calendar. The algorithm is Howard
 * Hinnant's civil_from_days: years begin in March, so that the leap day is the last of a year. */
static void put_date(char text[32], int64_t days) {
  int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097;
  int64_t of_era = z - era * 146097;
  int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
  int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
  int64_t month = (5 * of_year + 2) / 153, day = of_year - (153 * month + 2) / 5 + 1;
  month += month < 10 ? 3 : -9;
  snprintf(text, 32, "%04lld-%02d-%02d", (long long)(year + era * 400 + (month <= 2)), (int)month,
           (int)day);
}

/* The time of a number of microseconds since midnight; a fraction is shown if it is not 0. */
static void put_time(char *text, size_t room, int64_t us) {
  int64_t seconds = us / 1000000;
  int n = snprintf(text, room, "%02lld:%02d:%02d", (long long)(seconds / 3600),
                   (int)(seconds / 60 % 60), (int)(seconds % 60));
  if (us % 1000000) snprintf(text + n, room - (size_t)n, ".%06d", (int)(us % 1000000));
}

static void put_moment(out *o, const char *key, loam_type_kind kind, const char *data) {
  static const int64_t day = 86400000000;
  char text[80];
  if (kind == LOAM_TYPE_DATE) put_date(text, READ(int32_t));
  else if (kind == LOAM_TYPE_TIME) put_time(text, sizeof text, READ(int64_t));
  else {
    int64_t us = READ(int64_t), of_day = (us % day + day) % day;
    put_date(text, us / day - (us % day < 0));
    size_t length = strlen(text);
    text[length] = 'T';
    put_time(text + length + 1, sizeof text - length - 1, of_day);
  }
  lm_json_text(&o->json, key, text);
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
    case LOAM_TYPE_DATE:
    case LOAM_TYPE_TIME:
    case LOAM_TYPE_DATETIME: put_moment(o, key, kind, data); break;
    default: put_integer(o, key, kind, data);
  }
}

/* ---- Values ---- */

/* Writes the value at a cursor; `key` is the name of the value in an object;
 * outside an object it is NULL. */
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

/* A pointer is written as its target, and a NULL pointer as null. */
static void put_pointer(out *o, const char *key, lm_array_cursor spot) {
  const lm_pointer_layout *m = lm_layout_pointer(spot.meta);
  lm_array_cursor target = { spot.type->element, m->target, NULL, m->block };
  if (lm_layout_follow(spot.type, m, spot.data, &target.data)) put(o, key, target);
  else lm_json_text(&o->json, key, NULL);
}

/* A missing value is written as null. */
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
    case LOAM_TYPE_FIXED_STRING:
      lm_json_text_n(&o->json, key, spot.data, strnlen(spot.data, spot.type->count));
      break;
    default: put_scalar(o, key, spot.type->kind, spot.data);
  }
}

loam_status loam_array_json(const loam_array *array, loam_write_fn write, void *ctx) {
  if (!array || !write) return lm_error(LOAM_EINVAL, "array or write: it is NULL");
  out o = { .write = write, .ctx = ctx };
  lm_verify(lm_array_is_valid(array));
  put(&o, NULL, lm_array_start(array));
  flush(&o, 1);
  loam_status status = o.json.failed ? lm_error(LOAM_ENOMEM, "no memory for the text") : LOAM_OK;
  lm_json_finish(&o.json);
  return status;
}
