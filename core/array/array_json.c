/* array_json.c - writes the values of an array as JSON: dimensions are arrays, structs are
 * objects. */
#include <float.h>
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

/* Reads text as the nearest half. If two halves are equally near, returns the half with an even
 * fraction. The text must be near a finite half, and have so few digits that its double is on the
 * same side of the middle between two halves as the text. */
static double read_half(const char *text) {
  enum { PRECISION = 11, EXPONENT_MIN = -13 }; /* as frexp counts exponents */
  int exponent;
  double x = strtod(text, NULL);
  (void)frexp(x, &exponent);
  double unit = ldexp(1, (exponent > EXPONENT_MIN ? exponent : EXPONENT_MIN) - PRECISION);
  double units = fabs(x / unit), rest = units - (int)units;
  int whole = (int)units;
  if (rest > 0.5 || (rest >= 0.5 && whole % 2)) whole++;
  return copysign(whole * unit, x);
}

static double read_single(const char *text) { return (double)strtof(text, NULL); }

static double read_double(const char *text) { return strtod(text, NULL); }

/* How many decimal digits put_float writes for one floating-point format. Every number of the
 * format that is written with `most` digits and read by `read` has its old value. put_float tries
 * fewer digits first, from `least` on. It tries less than `least` digits only if the number is
 * below `normal`. Two different texts of `least` digits that are not below `normal` are read as two
 * different numbers. So if a shorter text would do, the text of `least` digits is the shorter text
 * and zeros, and %g leaves these zeros out. */
typedef struct digits {
  int least, most;
  double normal;
  double (*read)(const char *text);
} digits;

static const digits half_digits = { 3, 5, 0x1p-14, read_half },
                    single_digits = { FLT_DIG, 9, FLT_MIN, read_single },
                    double_digits = { DBL_DIG, 17, DBL_MIN, read_double };

/* Writes a number with as few digits as printf needs so that the text, when read, gives this number
 * again. For some powers of two there is a text of one digit less, which printf does not find. */
static void put_float(out *o, const char *key, double x, const digits *d) {
  char text[64];
  if (isnan(x) || isinf(x)) {
    put_literal(o, key, isnan(x) ? "NaN" : x < 0 ? "-Infinity" : "Infinity");
    return;
  }
  lm_assert(d->least <= d->most && d->most < (int)sizeof text - 10);
  for (int n = fabs(x) < d->normal ? 1 : d->least; n <= d->most; n++) {
    snprintf(text, sizeof text, "%.*g", n, x);
    if (d->read(text) == x) break;
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

/* A unit of time: so many of it are a second, and its fractions of a second have so many digits. */
typedef struct unit {
  int64_t second;
  int digits;
} unit;

static unit unit_of(loam_type_kind kind) {
  switch (kind) {
    case LOAM_TYPE_DATETIME_S: return (unit){ 1, 0 };
    case LOAM_TYPE_DATETIME_MS: return (unit){ 1000, 3 };
    case LOAM_TYPE_DATETIME_NS: return (unit){ 1000000000, 9 };
    default: return (unit){ 1000000, 6 };
  }
}

static uint64_t magnitude(int64_t time) { return time < 0 ? -(uint64_t)time : (uint64_t)time; }

/* Writes ".5" for half a second, and nothing if the time is a whole number of seconds. */
static void put_fraction(char *text, size_t room, unit u, uint64_t time) {
  *text = 0;
  if (time % (uint64_t)u.second)
    snprintf(text, room, ".%0*d", u.digits, (int)(time % (uint64_t)u.second));
}

/* Writes the time of a number of units since midnight. A time outside the day is written with
 * a sign or with more hours: "-00:00:01", "25:00:00". */
static void put_time(char *text, size_t room, unit u, int64_t time) {
  uint64_t seconds = magnitude(time) / (uint64_t)u.second;
  int n = snprintf(text, room, "%s%02llu:%02d:%02d", time < 0 ? "-" : "",
                   (unsigned long long)(seconds / 3600), (int)(seconds / 60 % 60),
                   (int)(seconds % 60));
  put_fraction(text + n, room - (size_t)n, u, magnitude(time));
}

static void put_moment(out *o, const char *key, loam_type_kind kind, const char *data) {
  unit u = unit_of(kind);
  char text[80];
  if (kind == LOAM_TYPE_DATE) put_date(text, READ(int32_t));
  else if (kind == LOAM_TYPE_TIME) put_time(text, sizeof text, u, READ(int64_t));
  else {
    int64_t day = 86400 * u.second, time = READ(int64_t), of_day = (time % day + day) % day;
    put_date(text, time / day - (time % day < 0));
    size_t length = strlen(text);
    text[length] = 'T';
    put_time(text + length + 1, sizeof text - length - 1, u, of_day);
  }
  lm_json_text(&o->json, key, text);
}

/* Writes a duration as ISO 8601 does, in seconds: "PT1.5S", or "-PT1.5S". */
static void put_duration(out *o, const char *key, loam_type_kind kind, const char *data) {
  unit u = unit_of(kind - LOAM_TYPE_TIMEDELTA + LOAM_TYPE_DATETIME);
  int64_t time = READ(int64_t);
  char text[80], fraction[16];
  put_fraction(fraction, sizeof fraction, u, magnitude(time));
  snprintf(text, sizeof text, "%sPT%llu%sS", time < 0 ? "-" : "",
           (unsigned long long)(magnitude(time) / (uint64_t)u.second), fraction);
  lm_json_text(&o->json, key, text);
}

/* Divides the number of 128 bits in `half`, the low half first, by 10; returns the remainder. */
static unsigned divide_by_ten(uint64_t half[2]) {
  unsigned rest = 0;
  for (int i = 3; i >= 0; i--) { /* 32 bits at a time, so that the remainder fits above them */
    unsigned shift = i % 2 * 32;
    uint64_t part = (uint64_t)rest << 32 | (half[i / 2] >> shift & UINT32_MAX);
    half[i / 2] = (half[i / 2] & ~((uint64_t)UINT32_MAX << shift)) | part / 10 << shift;
    rest = (unsigned)(part % 10);
  }
  return rest;
}

/* Writes a decimal as text, which keeps all digits in every reader of JSON: "-12.50". */
static void put_decimal(out *o, const char *key, const loam_type *type, const char *data) {
  uint64_t half[2];
  char text[64], *to = text + sizeof text - 1;
  memcpy(half, data, sizeof half);
  bool is_negative = half[1] >> 63;
  if (is_negative) {
    half[0] = -half[0];
    half[1] = ~half[1] + !half[0];
  }
  *to = 0;
  for (size_t n = 0; n <= type->scale || half[0] || half[1]; n++) {
    if (n && n == type->scale) *--to = '.';
    *--to = (char)('0' + divide_by_ten(half));
  }
  if (is_negative) *--to = '-';
  lm_json_text(&o->json, key, to);
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
    case LOAM_TYPE_DATETIME:
    case LOAM_TYPE_DATETIME_S:
    case LOAM_TYPE_DATETIME_MS:
    case LOAM_TYPE_DATETIME_NS: put_moment(o, key, kind, data); break;
    case LOAM_TYPE_TIMEDELTA:
    case LOAM_TYPE_TIMEDELTA_S:
    case LOAM_TYPE_TIMEDELTA_MS:
    case LOAM_TYPE_TIMEDELTA_NS: put_duration(o, key, kind, data); break;
    default: put_integer(o, key, kind, data);
  }
}

/* Writes the name of a category. A code that no category has is written as a number. */
static void put_category(out *o, const char *key, const loam_type *type, const char *data) {
  const char *name = lm_type_category(type, data);
  if (name) lm_json_text(&o->json, key, name);
  else lm_json_uint(&o->json, key, lm_type_code(type, data));
}

/* ---- Values ---- */

/* Writes the value at a cursor. `key` is the name of the value in its JSON object, or NULL if the
 * value is not a member of an object. */
static void put(out *o, const char *key, lm_array_cursor spot);

static void put_row(out *o, const char *key, const lm_array_row *row) {
  lm_array_cursor element = row->first;
  lm_json_open(&o->json, key, '[');
  for (size_t i = 0; i < row->count && !o->json.failed; i++) {
    element.data = lm_layout_move(row->first.data, (ptrdiff_t)i * row->stride);
    put(o, NULL, element);
  }
  lm_json_close(&o->json, ']');
}

static void put_struct(out *o, const char *key, lm_array_cursor spot) {
  lm_assert(spot.type->kind == LOAM_TYPE_STRUCT);
  lm_json_open(&o->json, key, '{');
  for (size_t i = 0; i < spot.type->count; i++) {
    const lm_field *f = &spot.type->fields[i];
    ptrdiff_t offset = (ptrdiff_t)lm_layout_offset(spot.meta, i);
    lm_array_cursor field = { f->type, lm_layout_field(spot.type, spot.meta, i),
                              lm_layout_move(spot.data, offset), spot.owner };
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
    case LOAM_TYPE_DECIMAL: put_decimal(o, key, spot.type, spot.data); break;
    case LOAM_TYPE_CATEGORICAL: put_category(o, key, spot.type, spot.data); break;
    case LOAM_TYPE_FIXED_STRING:
      lm_json_text_n(&o->json, key, spot.data, strnlen(spot.data, spot.type->count));
      break;
    default: put_scalar(o, key, spot.type->kind, spot.data);
  }
}

loam_status loam_array_json(const loam_array *array, loam_write_fn write, void *ctx) {
  if (!array || !write) return lm_error_missing(array ? "write" : "array");
  out o = { .write = write, .ctx = ctx };
  lm_verify(lm_array_is_valid(array));
  put(&o, NULL, lm_array_start(array));
  flush(&o, 1);
  loam_status status = o.json.failed ? lm_error(LOAM_ENOMEM, "no memory for the text") : LOAM_OK;
  lm_json_finish(&o.json);
  return status;
}
