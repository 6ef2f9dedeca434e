/* array_describe.c - the values of an array in the words of other libraries: a format of Python's
 * struct module (PEP 3118) and a description for NumPy.
 *
 * Both are made in one walk over the type. A struct is written with the offsets of its fields:
 * bytes that belong to no field are pad bytes ("4x"). A view of selected fields may have them at
 * any offset, so an offset is the distance of two addresses, and does not come from the type.
 *
 * NumPy has two descriptions of a struct. A list of (name, type, shape) has no pad bytes: NumPy
 * makes fields with the names f0, f1 and so on of entries without a name. So a struct with pad
 * bytes becomes a dict of names, types and offsets. */
#include <stdbool.h>
#include <string.h>

#include "array.h"

/* Adds text to the format. A format becomes NULL on failure, and for dates and times, for which
 * there is none. */
static void put(PyObject **format, PyObject *text) {
  if (*format && text) PyUnicode_Append(format, text);
  else Py_CLEAR(*format);
  Py_XDECREF(text);
}

static int fail(const loam_array *array, const char *why) {
  PyErr_Format(PyExc_TypeError, "%s: NumPy has scalars and structs of scalars at equal distances%s",
               loam_type_text(loam_array_type(array)), why);
  return -1;
}

/* Returns the type behind the first `ndim` dimensions. */
static const loam_type *value_type(const loam_array *array, int ndim) {
  struct loam_type_info info;
  const loam_type *type = loam_array_type(array);
  for (; ndim > 0 && !loam_type_info(type, &info); ndim--) type = info.element;
  return type;
}

static size_t size_of(const loam_type *type) {
  struct loam_type_info info;
  return loam_type_info(type, &info) ? 0 : info.size;
}

/* ---- Dimensions inside a struct ---- */

/* Finds the dimensions behind the first `ndim`. Returns their number, which is 0 for most; -1 with
 * TypeError set if their values do not follow one another, which a format cannot say. */
static int inner_dimensions(const loam_array *array, int ndim, size_t *shape) {
  int64_t strides[ARRAY_MOST];
  int all = (int)loam_array_dims(array, ARRAY_MOST, shape, strides);
  int64_t stride = (int64_t)size_of(value_type(array, all));
  for (int i = all; i-- > ndim; stride *= (int64_t)shape[i])
    if (shape[i] > 1 && strides[i] != stride) return fail(array, "");
  memmove(shape, shape + ndim, (size_t)(all - ndim) * sizeof *shape);
  return all - ndim;
}

/* Returns "(2,3)" for two dimensions. */
static PyObject *shape_text(const size_t *shape, int n) {
  PyObject *text = PyUnicode_FromString("(");
  for (int i = 0; i < n; i++) put(&text, PyUnicode_FromFormat(i ? ",%zu" : "%zu", shape[i]));
  put(&text, PyUnicode_FromString(")"));
  return text;
}

/* ---- Structs ---- */

static int describe(const loam_array *array, int ndim, array_values *out);

/* A struct that is being described: the bytes that are described so far, whether all fields stand
 * where C puts them, and whether there are bytes that belong to no field. */
typedef struct fields {
  array_values *out;
  PyObject *offsets; /* a list: the offset of each field in out->descr */
  size_t end;
  bool is_c, has_pads;
} fields;

static bool append(PyObject *list, PyObject *item) {
  bool is_done = item && !PyList_Append(list, item);
  Py_XDECREF(item);
  return is_done;
}

/* Describes bytes that belong to no field. */
static void put_pad(fields *s, size_t bytes) {
  if (!bytes) return;
  put(&s->out->format, PyUnicode_FromFormat("%zux", bytes));
  s->has_pads = true;
}

/* Adds one field, whose view is `at` and whose values are described in `value`. */
static bool put_field(fields *s, const char *name, const loam_array *at, int ndim,
                      const array_values *value) {
  size_t shape[ARRAY_MOST];
  int n = inner_dimensions(at, ndim, shape);
  if (n < 0) return false;
  if (n) put(&s->out->format, shape_text(shape, n));
  /* "=" means that no pad bytes are implied. NumPy reads it behind a shape, not before. */
  if (PyUnicode_Check(value->descr)) put(&s->out->format, PyUnicode_FromString("="));
  put(&s->out->format, Py_XNewRef(value->format));
  put(&s->out->format, PyUnicode_FromFormat(":%s:", name));
  PyObject *item = n ? Py_BuildValue("(sON)", name, value->descr, array_shape(shape, n))
                     : Py_BuildValue("(sO)", name, value->descr);
  return append(s->out->descr, item) && append(s->offsets, PyLong_FromSize_t(s->end));
}

/* Describes one field and the pad bytes before it. */
static bool describe_field(fields *s, const loam_array *array, int ndim,
                           const struct loam_type_field *f) {
  loam_array *at;
  loam_status status = loam_array_field(array, f->name, &at);
  if (status) return binding_fail(status), false;
  const char *begin = loam_array_data(array); /* NULL for an empty row, whose fields are as in C */
  size_t offset = begin ? (size_t)((const char *)loam_array_data(at) - begin) : f->offset;
  size_t shape[ARRAY_MOST], size = size_of(f->type);
  int all = (int)loam_array_dims(at, ARRAY_MOST, shape, NULL);
  array_values value;
  bool is_done = false;
  if (strchr(f->name, ':')) fail(array, "; a field's name has a colon");
  else if (offset < s->end) fail(array, "; its fields are in another order than in memory");
  else if (!describe(at, all, &value)) {
    put_pad(s, offset - s->end);
    s->end = offset;
    is_done = put_field(s, f->name, at, ndim, &value);
    array_values_end(&value);
  }
  s->is_c &= offset == f->offset;
  s->end = offset + size;
  loam_array_release(at);
  return is_done;
}

/* Replaces the list of fields by NumPy's dict of them. */
static bool use_dict(fields *s) {
  PyObject *names = PyList_New(0), *types = PyList_New(0);
  bool is_done = names && types;
  for (Py_ssize_t i = 0; is_done && i < PyList_GET_SIZE(s->out->descr); i++) {
    PyObject *field = PyList_GET_ITEM(s->out->descr, i);
    PyObject *type = PyTuple_GetSlice(field, 1, 3);
    bool has_shape = type && PyTuple_GET_SIZE(type) == 2;
    if (type && !has_shape) Py_SETREF(type, Py_NewRef(PyTuple_GET_ITEM(type, 0)));
    is_done = append(types, type) && !PyList_Append(names, PyTuple_GET_ITEM(field, 0));
  }
  PyObject *made = is_done
                       ? Py_BuildValue("{sOsOsOsn}", "names", names, "formats", types, "offsets",
                                       s->offsets, "itemsize", (Py_ssize_t)s->out->size)
                       : NULL;
  Py_XDECREF(names);
  Py_XDECREF(types);
  if (made) Py_SETREF(s->out->descr, made);
  return made != NULL;
}

static int describe_struct(const loam_array *array, int ndim, const loam_type *type, size_t count,
                           array_values *out) {
  fields s = { out, PyList_New(0), 0, true, false };
  out->format = PyUnicode_FromString("T{");
  out->descr = PyList_New(0);
  bool is_done = out->format && out->descr && s.offsets;
  for (size_t i = 0; i < count && is_done; i++) {
    struct loam_type_field f;
    is_done = !loam_type_field(type, i, &f) && describe_field(&s, array, ndim, &f);
  }
  out->size = s.is_c ? size_of(type) : s.end;
  if (is_done) put_pad(&s, out->size - s.end);
  if (is_done && s.has_pads) is_done = use_dict(&s);
  put(&out->format, PyUnicode_FromString("}"));
  Py_XDECREF(s.offsets);
  if (is_done && !PyErr_Occurred()) return 0;
  array_values_end(out);
  return -1;
}

/* ---- Values ---- */

/* A fixed string is text padded with zeros for others too. */
static int describe_fixed_string(size_t count, array_values *out) {
  out->format = PyUnicode_FromFormat("%zus", count);
  out->descr = PyUnicode_FromFormat("|S%zu", count);
  if (out->format && out->descr) return 0;
  array_values_end(out);
  return -1;
}

/* Returns what to say about a type that is no scalar of NumPy. */
static const char *why_not(const loam_type *type) {
  struct loam_type_info info = { .size = 0 };
  if (!loam_type_info(type, &info) && info.kind == LOAM_TYPE_OPTION) return why_not(info.element);
  if (info.kind == LOAM_TYPE_CATEGORICAL) return "; Arrow has categories: to_arrow()";
  if (info.kind == LOAM_TYPE_DATE) return "; it has dates of 8 bytes, and loam's have 4";
  return "; take a row or a field";
}

/* Describes the values behind the first `ndim` dimensions, of which none may be a dimension. */
static int describe(const loam_array *array, int ndim, array_values *out) {
  struct loam_type_info info = { .size = 0 };
  const loam_type *type = value_type(array, ndim);
  *out = (array_values){ .size = size_of(type) };
  if (!loam_type_info(type, &info) && info.kind == LOAM_TYPE_STRUCT)
    return describe_struct(array, ndim, type, info.count, out);
  if (info.kind == LOAM_TYPE_FIXED_STRING) return describe_fixed_string(info.count, out);
  const char *format = array_format(type), *typestr = array_typestr(type);
  if (!typestr) return fail(array, why_not(type));
  out->format = format ? PyUnicode_FromString(format) : NULL;
  out->descr = PyUnicode_FromString(typestr);
  if (out->descr && !PyErr_Occurred()) return 0;
  array_values_end(out);
  return -1;
}

int array_describe(const loam_array *array, int ndim, array_values *out) {
  return describe(array, ndim, out);
}

void array_values_end(array_values *values) {
  Py_CLEAR(values->format);
  Py_CLEAR(values->descr);
}
