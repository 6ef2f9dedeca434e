/* values.c - the contents of an array as Python values, and Python values into an array. */
#include "array.h"

#include <datetime.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* The data of a row of a var dimension, of a string and of bytes. */
typedef struct piece {
  char *begin;
  size_t size;
} piece;

static struct loam_type_info info_of(const loam_type *type) {
  struct loam_type_info info = { .kind = LOAM_TYPE_STRUCT };
  (void)loam_type_info(type, &info);
  return info;
}

loam_type_kind array_kind(const loam_array *array) { return info_of(loam_array_type(array)).kind; }

static PyObject *fail_type(const loam_type *type, const char *what, PyObject *got) {
  return PyErr_Format(PyExc_TypeError, "%s takes %s, not %s", loam_type_text(type), what,
                      Py_TYPE(got)->tp_name);
}

/* ---- Names of scalars */

typedef struct scalar {
  const char *format, *typestr;
  long long least, most; /* the range of integers, except uint64 */
} scalar;

static const scalar scalars[] = {
  [LOAM_TYPE_BOOL] = { "?", "|b1", 0, 1 },
  [LOAM_TYPE_INT8] = { "b", "|i1", INT8_MIN, INT8_MAX },
  [LOAM_TYPE_INT16] = { "h", "<i2", INT16_MIN, INT16_MAX },
  [LOAM_TYPE_INT32] = { "i", "<i4", INT32_MIN, INT32_MAX },
  [LOAM_TYPE_INT64] = { "q", "<i8", INT64_MIN, INT64_MAX },
  [LOAM_TYPE_UINT8] = { "B", "|u1", 0, UINT8_MAX },
  [LOAM_TYPE_UINT16] = { "H", "<u2", 0, UINT16_MAX },
  [LOAM_TYPE_UINT32] = { "I", "<u4", 0, UINT32_MAX },
  [LOAM_TYPE_UINT64] = { "Q", "<u8", 0, 0 },
  [LOAM_TYPE_FLOAT16] = { "e", "<f2", 0, 0 },
  [LOAM_TYPE_FLOAT32] = { "f", "<f4", 0, 0 },
  [LOAM_TYPE_FLOAT64] = { "d", "<f8", 0, 0 },
  [LOAM_TYPE_COMPLEX64] = { "Zf", "<c8", 0, 0 },
  [LOAM_TYPE_COMPLEX128] = { "Zd", "<c16", 0, 0 },
  /* Formats of buffers have no dates and times. */
  [LOAM_TYPE_DATE] = { NULL, NULL, 0, 0 }, /* a date of NumPy has 8 bytes, one of loam has 4 */
  [LOAM_TYPE_TIME] = { NULL, "<m8[us]", 0, 0 },
  [LOAM_TYPE_DATETIME] = { NULL, "<M8[us]", 0, 0 },
  [LOAM_TYPE_DATETIME_S] = { NULL, "<M8[s]", 0, 0 },
  [LOAM_TYPE_DATETIME_MS] = { NULL, "<M8[ms]", 0, 0 },
  [LOAM_TYPE_DATETIME_NS] = { NULL, "<M8[ns]", INT64_MIN, INT64_MAX },
  [LOAM_TYPE_TIMEDELTA] = { NULL, "<m8[us]", 0, 0 },
  [LOAM_TYPE_TIMEDELTA_S] = { NULL, "<m8[s]", 0, 0 },
  [LOAM_TYPE_TIMEDELTA_MS] = { NULL, "<m8[ms]", 0, 0 },
  [LOAM_TYPE_TIMEDELTA_NS] = { NULL, "<m8[ns]", INT64_MIN, INT64_MAX },
};

static bool is_float(loam_type_kind kind) {
  return kind >= LOAM_TYPE_FLOAT16 && kind <= LOAM_TYPE_COMPLEX128;
}

static const scalar *scalar_of(const loam_type *type) {
  struct loam_type_info info = info_of(type);
  if (info.kind == LOAM_TYPE_OPTION && is_float(info_of(info.element).kind))
    info = info_of(info.element);
  return info.kind <= LOAM_TYPE_TIMEDELTA_NS ? &scalars[info.kind] : NULL;
}

const char *array_format(const loam_type *type) {
  const scalar *s = scalar_of(type);
  return s ? s->format : NULL;
}

const char *array_typestr(const loam_type *type) {
  const scalar *s = scalar_of(type);
  return s ? s->typestr : NULL;
}

/* ---- From an array ---- */

#define READ(type_) (*(const type_ *)data)

static PyObject *read_number(loam_type_kind kind, const char *data) {
  switch (kind) {
    case LOAM_TYPE_BOOL: return PyBool_FromLong(READ(uint8_t));
    case LOAM_TYPE_INT8: return PyLong_FromLong(READ(int8_t));
    case LOAM_TYPE_INT16: return PyLong_FromLong(READ(int16_t));
    case LOAM_TYPE_INT32: return PyLong_FromLong(READ(int32_t));
    case LOAM_TYPE_INT64: return PyLong_FromLongLong(READ(int64_t));
    case LOAM_TYPE_UINT8: return PyLong_FromLong(READ(uint8_t));
    case LOAM_TYPE_UINT16: return PyLong_FromLong(READ(uint16_t));
    case LOAM_TYPE_UINT32: return PyLong_FromUnsignedLong(READ(uint32_t));
    case LOAM_TYPE_UINT64: return PyLong_FromUnsignedLongLong(READ(uint64_t));
    case LOAM_TYPE_FLOAT16: return PyFloat_FromDouble(PyFloat_Unpack2(data, 1));
    case LOAM_TYPE_FLOAT32: return PyFloat_FromDouble((double)READ(float));
    case LOAM_TYPE_FLOAT64: return PyFloat_FromDouble(READ(double));
    case LOAM_TYPE_COMPLEX64:
      return PyComplex_FromDoubles((double)READ(float), (double)((const float *)data)[1]);
    default: return PyComplex_FromDoubles(READ(double), ((const double *)data)[1]);
  }
}

/* ---- Dates and times ---- */

enum { EPOCH = 719163 }; /* 1970-01-01 as date.toordinal() counts */

static const long long SECOND = 1000000, DAY = 86400 * 1000000LL; /* in microseconds */

static bool is_moment(loam_type_kind kind) {
  return kind >= LOAM_TYPE_DATE && kind <= LOAM_TYPE_TIMEDELTA_NS;
}

static bool is_timedelta(loam_type_kind kind) {
  return kind >= LOAM_TYPE_TIMEDELTA && kind <= LOAM_TYPE_TIMEDELTA_NS;
}

/* Python's datetimes and timedeltas have no nanoseconds: these are integers, as in NumPy. */
static bool is_nanoseconds(loam_type_kind kind) {
  return kind == LOAM_TYPE_DATETIME_NS || kind == LOAM_TYPE_TIMEDELTA_NS;
}

static bool has_datetime(void) {
  if (!PyDateTimeAPI) PyDateTime_IMPORT;
  return PyDateTimeAPI != NULL;
}

static PyObject *epoch(void) {
  return PyDateTimeAPI->DateTime_FromDateAndTime(1970, 1, 1, 0, 0, 0, 0, Py_None,
                                                 PyDateTimeAPI->DateTimeType);
}

/* Returns how many units of a datetime or timedelta are a second. */
static long long units_of(loam_type_kind kind) {
  switch (kind) {
    case LOAM_TYPE_DATETIME_S:
    case LOAM_TYPE_TIMEDELTA_S: return 1;
    case LOAM_TYPE_DATETIME_MS:
    case LOAM_TYPE_TIMEDELTA_MS: return 1000;
    case LOAM_TYPE_DATETIME_NS:
    case LOAM_TYPE_TIMEDELTA_NS: return 1000 * SECOND;
    default: return SECOND;
  }
}

/* Returns a timedelta, or a datetime so long after 1970-01-01. */
static PyObject *read_datetime(loam_type_kind kind, long long time) {
  if (is_nanoseconds(kind)) return PyLong_FromLongLong(time);
  long long day = 86400 * units_of(kind), days = time / day - (time % day < 0);
  long long rest = (time - days * day) * (SECOND / units_of(kind));
  if (days < INT_MIN || days > INT_MAX)
    return PyErr_Format(PyExc_OverflowError, "%lld days are beyond a datetime", days);
  PyObject *since = PyDelta_FromDSU((int)days, (int)(rest / SECOND), (int)(rest % SECOND));
  if (is_timedelta(kind)) return since;
  PyObject *begin = epoch();
  PyObject *made = begin && since ? PyNumber_Add(begin, since) : NULL;
  Py_XDECREF(begin);
  Py_XDECREF(since);
  return made;
}

/* Returns a date, time or datetime; OverflowError or ValueError for one that Python cannot hold. */
static PyObject *read_moment(loam_type_kind kind, const char *data) {
  if (!has_datetime()) return NULL;
  if (kind == LOAM_TYPE_DATE)
    return PyObject_CallMethod((PyObject *)PyDateTimeAPI->DateType, "fromordinal", "L",
                               (long long)READ(int32_t) + EPOCH);
  if (kind != LOAM_TYPE_TIME) return read_datetime(kind, READ(int64_t));
  long long us = READ(int64_t);
  if (us < 0 || us >= DAY) return PyErr_Format(PyExc_OverflowError, "%lld us is not a time", us);
  long long seconds = us / SECOND;
  return PyTime_FromTime((int)(seconds / 3600), (int)(seconds / 60 % 60), (int)(seconds % 60),
                         (int)(us % SECOND));
}

Py_ssize_t array_length(const loam_array *array) {
  loam_array *whole;
  size_t shape = 0;
  loam_index all = LOAM_ALL;
  loam_status status = loam_array_index(array, 1, &all, &whole);
  if (status == LOAM_EINVAL)
    PyErr_Format(PyExc_TypeError, "%s has no len()", loam_type_text(loam_array_type(array)));
  else if (status) binding_fail(status);
  if (status) return -1;
  loam_array_dims(whole, 1, &shape, NULL);
  loam_array_release(whole);
  return (Py_ssize_t)shape;
}

/* Returns a view of an element, which the caller releases; NULL with an exception set. */
static loam_array *element_of(const loam_array *array, Py_ssize_t i) {
  loam_array *element;
  loam_index at = LOAM_AT(i);
  loam_status status = loam_array_index(array, 1, &at, &element);
  if (status) binding_fail(status);
  return status ? NULL : element;
}

/* Returns a view of a field, which the caller releases; NULL with an exception set. */
static loam_array *field_of(const loam_array *array, const char *name) {
  loam_array *field;
  loam_status status = loam_array_field(array, name, &field);
  if (status) binding_fail(status);
  return status ? NULL : field;
}

static PyObject *value_and_release(loam_array *array) {
  PyObject *value = array ? array_value(array) : NULL;
  loam_array_release(array);
  return value;
}

static PyObject *read_list(const loam_array *array) {
  Py_ssize_t n = array_length(array);
  PyObject *list = n < 0 ? NULL : PyList_New(n);
  for (Py_ssize_t i = 0; i < n && list; i++) {
    PyObject *value = value_and_release(element_of(array, i));
    if (value) PyList_SET_ITEM(list, i, value);
    else Py_CLEAR(list);
  }
  return list;
}

static PyObject *read_dict(const loam_array *array) {
  const loam_type *type = loam_array_type(array);
  PyObject *dict = PyDict_New();
  for (size_t i = 0; i < info_of(type).count && dict; i++) {
    struct loam_type_field f;
    if (loam_type_field(type, i, &f)) break;
    dict = binding_put(dict, f.name, value_and_release(field_of(array, f.name)));
  }
  return dict;
}

static PyObject *read_target(const loam_array *array) {
  loam_array *target;
  loam_status status = loam_array_follow(array, &target);
  if (status == LOAM_ESTATE) Py_RETURN_NONE;
  return status ? binding_fail(status) : value_and_release(target);
}

/* ---- Decimals ---- */

/* Returns a decimal.Decimal. loam.decimals makes it from the bytes. */
static PyObject *read_decimal(size_t scale, const char *data) {
  PyObject *module = PyImport_ImportModule("loam.decimals");
  PyObject *value = module ? PyObject_CallMethod(module, "value", "y#n", data, (Py_ssize_t)16,
                                                 (Py_ssize_t)scale)
                           : NULL;
  Py_XDECREF(module);
  return value;
}

static int write_decimal(const loam_type *type, const struct loam_type_info *info, char *data,
                         PyObject *value) {
  PyObject *module = PyImport_ImportModule("loam.decimals");
  PyObject *bytes = module ? PyObject_CallMethod(module, "bytes_of", "Onns", value,
                                                 (Py_ssize_t)info->count, (Py_ssize_t)info->scale,
                                                 loam_type_text(type))
                           : NULL;
  if (bytes) memcpy(data, PyBytes_AS_STRING(bytes), info->size);
  Py_XDECREF(bytes);
  Py_XDECREF(module);
  return bytes ? 0 : -1;
}

/* ---- Categories ---- */

/* Returns the name of a category, or the code as a number if no category has it. */
static PyObject *read_category(const loam_type *type, size_t size, const char *data) {
  struct loam_type_field category;
  size_t code = size == sizeof(uint8_t) ? READ(uint8_t) : READ(uint16_t);
  if (loam_type_field(type, code, &category)) return PyLong_FromSize_t(code);
  return PyUnicode_FromString(category.name);
}

/* ---- Values with parts ---- */

/* Returns whether an option is of a value with parts, to which loam_array_follow leads. */
static bool is_optional_compound(const struct loam_type_info *info) {
  if (info->kind != LOAM_TYPE_OPTION) return false;
  loam_type_kind kind = info_of(info->element).kind;
  return kind == LOAM_TYPE_FIXED || kind == LOAM_TYPE_VAR || kind == LOAM_TYPE_STRUCT;
}

/* Returns whether values of a type have parts: all but scalars and text, and options of these. */
static bool has_parts(const loam_type *type) {
  struct loam_type_info info = info_of(type);
  return is_optional_compound(&info) ||
         (info.kind >= LOAM_TYPE_POINTER && info.kind <= LOAM_TYPE_STRUCT);
}

bool array_is_value(const loam_array *array) { return !has_parts(loam_array_type(array)); }

bool array_is_followed(const loam_array *array) {
  struct loam_type_info info = info_of(loam_array_type(array));
  return info.kind == LOAM_TYPE_POINTER || is_optional_compound(&info);
}

PyObject *array_value(const loam_array *array) {
  struct loam_type_info info = info_of(loam_array_type(array));
  if (is_optional_compound(&info)) return read_target(array);
  const char *data = loam_array_data(array);
  const piece *text = (const piece *)data;
  const loam_type *type = loam_array_type(array);
  if (info.kind == LOAM_TYPE_OPTION) {
    if (loam_array_is_missing(array)) Py_RETURN_NONE;
    type = info.element;
    info = info_of(type);
  }
  switch (info.kind) {
    case LOAM_TYPE_STRING: return PyUnicode_DecodeUTF8(text->begin, (Py_ssize_t)text->size, NULL);
    case LOAM_TYPE_BYTES: return PyBytes_FromStringAndSize(text->begin, (Py_ssize_t)text->size);
    case LOAM_TYPE_FIXED_STRING:
      return PyUnicode_DecodeUTF8(data, (Py_ssize_t)strnlen(data, info.count), NULL);
    case LOAM_TYPE_FIXED:
    case LOAM_TYPE_VAR: return read_list(array);
    case LOAM_TYPE_STRUCT: return read_dict(array);
    case LOAM_TYPE_POINTER: return read_target(array);
    case LOAM_TYPE_DECIMAL: return read_decimal(info.scale, data);
    case LOAM_TYPE_CATEGORICAL: return read_category(type, info.size, data);
    default:
      return is_moment(info.kind) ? read_moment(info.kind, data) : read_number(info.kind, data);
  }
}

/* ---- Into an array ---- */

#define WRITE(type_, value_) (*(type_ *)data = (type_)(value_))

/* Raises an exception whose text has a value before `words`. The value's text is cut if it is long;
 * Python itself refuses to show an integer of thousands of digits. Returns -1. */
static int fail_value(PyObject *error, PyObject *value, PyObject *words) {
  enum { CHARACTERS = 60 };
  PyObject *text = words ? PyObject_Repr(value) : NULL;
  if (words && !text) {
    PyErr_Clear();
    text = PyUnicode_FromFormat("a large %s", Py_TYPE(value)->tp_name);
  }
  PyObject *begin = text ? PyUnicode_Substring(text, 0, CHARACTERS) : NULL;
  if (begin)
    PyErr_Format(error, "%U%s: %U", begin, PyUnicode_GET_LENGTH(text) > CHARACTERS ? "..." : "",
                 words);
  Py_XDECREF(begin);
  Py_XDECREF(text);
  Py_XDECREF(words);
  return -1;
}

static int write_unsigned(const loam_type *type, char *data, PyObject *value) {
  PyObject *number = PyNumber_Index(value);
  unsigned long long n = number ? PyLong_AsUnsignedLongLong(number) : 0;
  Py_XDECREF(number);
  if (!PyErr_Occurred()) {
    WRITE(uint64_t, n);
    return 0;
  }
  if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return -1;
  PyErr_Clear();
  return fail_value(PyExc_OverflowError, value,
                    PyUnicode_FromFormat("%s is from 0 to %llu", loam_type_text(type),
                                         (unsigned long long)UINT64_MAX));
}

static int write_integer(const loam_type *type, loam_type_kind kind, char *data, PyObject *value) {
  if (kind == LOAM_TYPE_UINT64) return write_unsigned(type, data, value);
  PyObject *number = PyNumber_Index(value);
  int overflow = 0;
  long long n = number ? PyLong_AsLongLongAndOverflow(number, &overflow) : 0;
  Py_XDECREF(number);
  if (PyErr_Occurred()) return -1;
  if (overflow || n < scalars[kind].least || n > scalars[kind].most)
    return fail_value(PyExc_OverflowError, value,
                      PyUnicode_FromFormat("%s is from %lld to %lld", loam_type_text(type),
                                           scalars[kind].least, scalars[kind].most));
  memcpy(data, &n, info_of(type).size); /* little endian: the low bytes are first */
  return 0;
}

/* Returns whether a float32 can hold a number; an infinity is not a large number. */
static bool fits_float(double x) { return isinf(x) || !isinf((float)x); }

/* Returns whether a float16 can hold a number. From 65520 on, numbers are rounded to infinity. */
static bool fits_half(double x) { return isinf(x) || isnan(x) || fabs(x) < 65520; }

static int fail_large(const loam_type *type, PyObject *value) {
  return fail_value(PyExc_OverflowError, value,
                    PyUnicode_FromFormat("%s has no number as large", loam_type_text(type)));
}

static int write_float(const loam_type *type, loam_type_kind kind, char *data, PyObject *value) {
  double x = PyFloat_AsDouble(value);
  if (x == -1 && PyErr_Occurred()) return -1;
  if (kind == LOAM_TYPE_FLOAT16 && !fits_half(x)) return fail_large(type, value);
  if (kind == LOAM_TYPE_FLOAT16) return PyFloat_Pack2(x, data, 1);
  if (kind == LOAM_TYPE_FLOAT32 && !fits_float(x)) return fail_large(type, value);
  if (kind == LOAM_TYPE_FLOAT32) WRITE(float, x);
  else WRITE(double, x);
  return 0;
}

static int write_complex(const loam_type *type, loam_type_kind kind, char *data, PyObject *value) {
  Py_complex z = PyComplex_AsCComplex(value);
  if (PyErr_Occurred()) return -1;
  if (kind == LOAM_TYPE_COMPLEX64 && (!fits_float(z.real) || !fits_float(z.imag)))
    return fail_large(type, value);
  if (kind == LOAM_TYPE_COMPLEX64) {
    ((float *)data)[0] = (float)z.real;
    ((float *)data)[1] = (float)z.imag;
  } else {
    ((double *)data)[0] = z.real;
    ((double *)data)[1] = z.imag;
  }
  return 0;
}

static int write_date(char *data, PyObject *value) {
  PyObject *ordinal = PyObject_CallMethod(value, "toordinal", NULL);
  long days = ordinal ? PyLong_AsLong(ordinal) : -1;
  Py_XDECREF(ordinal);
  if (PyErr_Occurred()) return -1;
  WRITE(int32_t, days - EPOCH);
  return 0;
}

/* Writes microseconds and nanoseconds in the unit of a kind: exactly, or ValueError. */
static int write_time_in(const loam_type *type, loam_type_kind kind, char *data, PyObject *value,
                         long long us, long long ns) {
  long long units = units_of(kind), written;
  bool fits;
  if (units > SECOND)
    fits = !__builtin_mul_overflow(us, units / SECOND, &written) &&
           !__builtin_add_overflow(written, ns, &written);
  else {
    fits = !ns && us % (SECOND / units) == 0;
    written = us / (SECOND / units);
  }
  if (fits) WRITE(int64_t, written);
  else PyErr_Format(PyExc_ValueError, "%R: a %s cannot hold it", value, loam_type_text(type));
  return fits ? 0 : -1;
}

static bool read_part(PyObject *delta, const char *name, long long *out) {
  PyObject *part = PyObject_GetAttrString(delta, name);
  *out = part ? PyLong_AsLongLong(part) : -1;
  Py_XDECREF(part);
  return !PyErr_Occurred();
}

/* Writes a timedelta, which belongs to `value`. It is read by its attributes, because a subclass
 * may compute these: pandas' Timedelta does, and has nanoseconds too. */
static int write_timedelta(const loam_type *type, loam_type_kind kind, char *data, PyObject *delta,
                           PyObject *value) {
  long long days, seconds, us, ns = 0;
  if (!read_part(delta, "days", &days) || !read_part(delta, "seconds", &seconds) ||
      !read_part(delta, "microseconds", &us))
    return -1;
  if (!PyDelta_CheckExact(delta) && PyObject_HasAttrString(delta, "nanoseconds") &&
      !read_part(delta, "nanoseconds", &ns))
    return -1;
  if (__builtin_mul_overflow(days, DAY, &days) ||
      __builtin_add_overflow(days, seconds * SECOND + us, &us)) {
    PyErr_Format(PyExc_OverflowError, "%R: a %s cannot hold it", value, loam_type_text(type));
    return -1;
  }
  return write_time_in(type, kind, data, value, us, ns);
}

static int fail_zone(const loam_type *type) {
  PyErr_Format(PyExc_TypeError, "%s has no time zone", loam_type_text(type));
  return -1;
}

/* Python refuses the difference if the datetime has a time zone. It is no timedelta for a datetime
 * that is none, such as pandas' NaT. */
static int write_datetime(const loam_type *type, loam_type_kind kind, char *data, PyObject *value) {
  PyObject *begin = epoch(), *since = begin ? PyNumber_Subtract(value, begin) : NULL;
  int status = -1;
  if (since && PyDelta_Check(since)) status = write_timedelta(type, kind, data, since, value);
  else if (since) fail_type(type, "a datetime", value);
  else if (begin && PyDateTime_DATE_GET_TZINFO(value) != Py_None &&
           PyErr_ExceptionMatches(PyExc_TypeError))
    fail_zone(type);
  Py_XDECREF(begin);
  Py_XDECREF(since);
  return status;
}

static int write_time(const loam_type *type, char *data, PyObject *value) {
  if (PyDateTime_TIME_GET_TZINFO(value) != Py_None) return fail_zone(type);
  long long minutes = PyDateTime_TIME_GET_HOUR(value) * 60 + PyDateTime_TIME_GET_MINUTE(value);
  WRITE(int64_t, (minutes * 60 + PyDateTime_TIME_GET_SECOND(value)) * SECOND +
                     PyDateTime_TIME_GET_MICROSECOND(value));
  return 0;
}

static int write_moment(const loam_type *type, loam_type_kind kind, char *data, PyObject *value) {
  if (!has_datetime()) return -1;
  bool is_delta = is_timedelta(kind);
  if (is_delta && PyDelta_Check(value)) return write_timedelta(type, kind, data, value, value);
  if (kind >= LOAM_TYPE_DATETIME && !is_delta && PyDateTime_Check(value))
    return write_datetime(type, kind, data, value);
  if (is_nanoseconds(kind) && PyLong_Check(value)) return write_integer(type, kind, data, value);
  if (kind == LOAM_TYPE_TIME && PyTime_Check(value)) return write_time(type, data, value);
  if (kind == LOAM_TYPE_DATE && PyDate_Check(value) && !PyDateTime_Check(value))
    return write_date(data, value);
  fail_type(type,
            kind == LOAM_TYPE_DATE   ? "a date"
            : kind == LOAM_TYPE_TIME ? "a time"
            : is_delta               ? "a timedelta"
                                     : "a datetime",
            value);
  return -1;
}

static int write_number(const loam_type *type, loam_type_kind kind, char *data, PyObject *value) {
  if (is_moment(kind)) return write_moment(type, kind, data, value);
  if (kind >= LOAM_TYPE_COMPLEX64) return write_complex(type, kind, data, value);
  if (kind >= LOAM_TYPE_FLOAT16) return write_float(type, kind, data, value);
  if (kind != LOAM_TYPE_BOOL) return write_integer(type, kind, data, value);
  bool is_other = value == Py_None || PyUnicode_Check(value) || PyBytes_Check(value);
  if (is_other) return fail_type(type, "a bool", value), -1;
  int is_true = PyObject_IsTrue(value);
  if (is_true >= 0) WRITE(uint8_t, is_true);
  return is_true < 0 ? -1 : 0;
}

static int done(loam_status status) {
  if (status) binding_fail(status);
  return status ? -1 : 0;
}

static int write_string(loam_array *array, PyObject *value) {
  Py_ssize_t size;
  if (!PyUnicode_Check(value)) {
    fail_type(loam_array_type(array), "a str", value);
    return -1;
  }
  const char *text = PyUnicode_AsUTF8AndSize(value, &size);
  return text ? done(loam_array_set_text(array, text, (size_t)size)) : -1;
}

static int write_bytes(loam_array *array, PyObject *value) {
  Py_buffer view;
  if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)) return -1;
  loam_status status = loam_array_set_text(array, view.buf, (size_t)view.len);
  PyBuffer_Release(&view);
  return done(status);
}

/* Assigns to a scalar or text, or to an option of one. */
static int write_plain(loam_array *array, const struct loam_type_info *of, bool is_option,
                       PyObject *value) {
  loam_type_kind kind = of->kind;
  const loam_type *type = loam_array_type(array);
  struct loam_array_info info;
  if (is_option && value == Py_None) return done(loam_array_omit(array));
  if (kind == LOAM_TYPE_STRING || kind == LOAM_TYPE_FIXED_STRING || kind == LOAM_TYPE_CATEGORICAL)
    return write_string(array, value);
  if (kind == LOAM_TYPE_BYTES) return write_bytes(array, value);
  if (!loam_array_info(array, &info) && info.readonly) {
    PyErr_SetString(PyExc_ValueError, "the array is read-only");
    return -1;
  }
  char *data = loam_array_data(array), before[2 * sizeof(double)];
  if (kind == LOAM_TYPE_DECIMAL) return write_decimal(type, of, data, value);
  memcpy(before, data, of->size);
  if (write_number(type, kind, data, value)) return -1;
  if (!loam_array_is_missing(array) || PyFloat_Check(value) || PyComplex_Check(value)) return 0;
  memcpy(data, before, of->size);
  PyErr_Format(PyExc_ValueError, "%R stands for a missing %s", value, loam_type_text(type));
  return -1;
}

/* Returns whether the values of a type behind its dimensions are bytes, which come from buffers. */
static bool has_bytes(const loam_type *type) {
  struct loam_type_info info = info_of(type);
  while (has_parts(type) && info.kind != LOAM_TYPE_STRUCT) {
    type = info.element;
    info = info_of(type);
  }
  return (info.kind == LOAM_TYPE_OPTION ? info_of(info.element).kind : info.kind) ==
         LOAM_TYPE_BYTES;
}

/* Returns the result of tolist() for an object that has it, such as an Array or an array of NumPy,
 * because an assignment may change the memory that it shows. Returns other objects themselves.
 * A new reference, or NULL with an exception set. */
static PyObject *detach(const loam_type *type, PyObject *value) {
  if (PyList_Check(value) || PyTuple_Check(value) || PyDict_Check(value) || has_bytes(type))
    return Py_NewRef(value);
  PyObject *method = PyObject_GetAttrString(value, "tolist");
  PyObject *list = method ? PyObject_CallNoArgs(method) : NULL;
  if (!method && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    return Py_NewRef(value);
  }
  Py_XDECREF(method);
  return list;
}

static int assign_and_release(loam_array *array, PyObject *value, const array_rows *rows) {
  int status = array && value ? array_assign(array, value, rows) : -1;
  loam_array_release(array);
  return status;
}

/* `items` is a new list, so that Python code which runs during an assignment cannot change it. */
static int write_list(loam_array *array, bool is_var, PyObject *items, const array_rows *rows) {
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items), has = is_var ? n : array_length(array);
  if (has < 0) return -1;
  if (has != n) {
    PyErr_Format(PyExc_ValueError, "%s takes %zd elements, not %zd",
                 loam_type_text(loam_array_type(array)), has, n);
    return -1;
  }
  if (is_var && (!rows->may_resize(rows->ctx) || done(loam_array_resize(array, (size_t)n))))
    return -1;
  for (Py_ssize_t i = 0; i < n && i < PySequence_Fast_GET_SIZE(items); i++)
    if (assign_and_release(element_of(array, i), PySequence_Fast_GET_ITEM(items, i), rows))
      return -1;
  return 0;
}

/* Returns a new list of the elements of a sequence, for a dimension of a type. Each element is
 * made independent of the array (detach), because assigning one may change the memory that another
 * one shows. NULL with an exception set. */
static PyObject *list_elements(const loam_type *type, PyObject *value) {
  const loam_type *element = info_of(type).element;
  bool is_text = PyUnicode_Check(value) || PyBytes_Check(value) || PyDict_Check(value);
  PyObject *items = is_text || !PySequence_Check(value) ? NULL : PySequence_List(value);
  if (!items && !PyErr_Occurred()) return fail_type(type, "a sequence", value);
  for (Py_ssize_t i = 0; items && has_parts(element) && i < PyList_GET_SIZE(items); i++) {
    PyObject *item = detach(element, PyList_GET_ITEM(items, i));
    if (!item || PyList_SetItem(items, i, item)) Py_CLEAR(items);
  }
  return items;
}

/* An array's fixed dimensions, and the type behind them. */
typedef struct extent {
  size_t ndim, shape[ARRAY_MOST];
  int64_t strides[ARRAY_MOST];
  const loam_type *type;
} extent;

static extent extent_of(const loam_array *array) {
  extent e = { .type = loam_array_type(array) };
  e.ndim = loam_array_dims(array, ARRAY_MOST, e.shape, e.strides);
  for (size_t i = 0; i < e.ndim; i++) e.type = info_of(e.type).element;
  return e;
}

/* Returns whether two formats of one size mean equal values: NumPy calls an int64 "l". */
static bool is_one_format(const char *a, const char *b) {
  static const char *const integers[] = { "bhilq", "BHILQ" };
  for (int i = 0; i < 2; i++)
    if (*a && *b && !a[1] && !b[1] && strchr(integers[i], *a) && strchr(integers[i], *b))
      return true;
  return !strcmp(a, b);
}

/* Returns whether a buffer in C order has the shape and the numbers of an array without gaps. */
static bool is_like(const extent *e, const Py_buffer *view, const char *format) {
  bool is = e->ndim <= ARRAY_MOST && (size_t)view->ndim == e->ndim &&
            (size_t)view->itemsize == info_of(e->type).size &&
            is_one_format(view->format ? view->format : "B", format);
  int64_t stride = (int64_t)view->itemsize;
  for (size_t i = e->ndim; is && i-- > 0; stride *= (int64_t)e->shape[i])
    is = (size_t)view->shape[i] == e->shape[i] && e->strides[i] == stride;
  return is;
}

/* Returns whether the class of an object has a buffer of its own. A subclass may mean other values
 * than the inherited buffer has: numpy.ma.MaskedArray leaves some out. */
static bool has_own_buffer(PyObject *value) {
  const PyTypeObject *type = Py_TYPE(value), *base = type->tp_base;
  if (!PyObject_CheckBuffer(value)) return false;
  return !base || !base->tp_as_buffer ||
         base->tp_as_buffer->bf_getbuffer != type->tp_as_buffer->bf_getbuffer;
}

/* Copies numbers from a buffer that is laid out as the array is, such as an array of NumPy. Returns
 * false for all other values, which are assigned one by one. */
static bool copy_numbers(loam_array *array, PyObject *value) {
  if (!has_own_buffer(value) || PyBytes_Check(value) || array_is_readonly(array)) return false;
  extent e = extent_of(array);
  loam_type_kind kind = info_of(e.type).kind;
  const char *format = array_format(e.type);
  if (!format || kind == LOAM_TYPE_BOOL || kind == LOAM_TYPE_OPTION) return false;
  Py_buffer view;
  if (PyObject_GetBuffer(value, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {
    PyErr_Clear();
    return false;
  }
  bool is = is_like(&e, &view, format);
  if (is) memmove(loam_array_data(array), view.buf, (size_t)view.len);
  PyBuffer_Release(&view);
  return is;
}

static int write_sequence(loam_array *array, bool is_var, PyObject *value, const array_rows *rows) {
  const loam_type *type = loam_array_type(array);
  if (!is_var && copy_numbers(array, value)) return 0;
  PyObject *detached = detach(type, value);
  PyObject *items = detached ? list_elements(type, detached) : NULL;
  int status = items ? write_list(array, is_var, items, rows) : -1;
  Py_XDECREF(items);
  Py_XDECREF(detached);
  return status;
}

/* Assigns the fields that the dict names; the other fields keep their values. */
static int write_dict(loam_array *array, PyObject *dict, const array_rows *rows) {
  PyObject *items = PyDict_Items(dict);
  int status = items ? 0 : -1;
  for (Py_ssize_t i = 0; !status && i < PyList_GET_SIZE(items); i++) {
    PyObject *item = PyList_GET_ITEM(items, i);
    PyObject *key = PyTuple_GET_ITEM(item, 0);
    const char *name = binding_utf8(key);
    loam_array *field = name ? field_of(array, name) : NULL;
    status = assign_and_release(field, PyTuple_GET_ITEM(item, 1), rows);
  }
  Py_XDECREF(items);
  return status;
}

/* Assigns all fields in order. */
static int write_tuple(loam_array *array, size_t count, PyObject *tuple, const array_rows *rows) {
  if ((size_t)PyTuple_GET_SIZE(tuple) != count) {
    PyErr_Format(PyExc_ValueError, "%s takes %zu values, not %zd",
                 loam_type_text(loam_array_type(array)), count, PyTuple_GET_SIZE(tuple));
    return -1;
  }
  for (size_t i = 0; i < count; i++) {
    struct loam_type_field f;
    if (done(loam_type_field(loam_array_type(array), i, &f))) return -1;
    PyObject *value = PyTuple_GET_ITEM(tuple, (Py_ssize_t)i);
    if (assign_and_release(field_of(array, f.name), value, rows)) return -1;
  }
  return 0;
}

static int write_struct(loam_array *array, size_t count, PyObject *value, const array_rows *rows) {
  PyObject *detached = detach(loam_array_type(array), value);
  int status = -1;
  if (!detached) return -1;
  if (PyDict_Check(detached)) status = write_dict(array, detached, rows);
  else if (PyTuple_Check(detached)) status = write_tuple(array, count, detached, rows);
  else fail_type(loam_array_type(array), "a dict or a tuple", value);
  Py_DECREF(detached);
  return status;
}

/* Assigns a value to the target of a pointer, or to an option of a value with parts. Makes the
 * target of a NULL pointer, and a missing value present. If the value is None, a NULL pointer stays
 * NULL. */
static int write_target(loam_array *array, PyObject *value, const array_rows *rows) {
  loam_array *target;
  if (value == Py_None && !*(void *const *)loam_array_data(array)) return 0;
  if (done(loam_array_resize(array, 1)) || done(loam_array_follow(array, &target))) return -1;
  return assign_and_release(target, value, rows);
}

/* Assigns to an option of a value with parts. Omitting it frees the rows in it. */
static int write_optional(loam_array *array, PyObject *value, const array_rows *rows) {
  if (value != Py_None) return write_target(array, value, rows);
  return rows->may_resize(rows->ctx) ? done(loam_array_omit(array)) : -1;
}

int array_assign(loam_array *array, PyObject *value, const array_rows *rows) {
  struct loam_type_info info = info_of(loam_array_type(array)), inner;
  if (is_optional_compound(&info)) return write_optional(array, value, rows);
  switch (info.kind) {
    case LOAM_TYPE_FIXED:
    case LOAM_TYPE_VAR: return write_sequence(array, info.kind == LOAM_TYPE_VAR, value, rows);
    case LOAM_TYPE_STRUCT: return write_struct(array, info.count, value, rows);
    case LOAM_TYPE_POINTER: return write_target(array, value, rows);
    case LOAM_TYPE_OPTION:
      inner = info_of(info.element);
      return write_plain(array, &inner, true, value);
    default: return write_plain(array, &info, false, value);
  }
}
