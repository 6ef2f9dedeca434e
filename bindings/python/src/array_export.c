/* array_export.c - the memory of arrays for other libraries: as buffers, through
 * __array_interface__, as DLPack tensors and through Arrow's C data interface. */
#include <stdbool.h>
#include <stdlib.h>

#include "array.h"
#include "arrow.h"
#include "tensor.h"

enum { MOST = ARRAY_MOST };

static loam_array *array_of(PyObject *self) { return ((Array *)self)->array; }

/* ---- Buffers ---- */

/* An array as a buffer can describe it: fixed dimensions of values. */
typedef struct layout {
  loam_array *array; /* a reference; pointers are followed, and a row is a fixed dimension */
  int ndim;
  array_values values;
  size_t shape[MOST];
  int64_t strides[MOST];
} layout;

/* Returns the array with its pointers followed and a row of a var dimension as a fixed dimension;
 * NULL with an exception set. */
static loam_array *as_fixed(const loam_array *array) {
  loam_array *now = loam_array_retain(array), *next;
  loam_status status = LOAM_OK;
  while (!status && array_kind(now) == LOAM_TYPE_POINTER) {
    status = loam_array_follow(now, &next);
    if (!status) loam_array_release(now);
    if (!status) now = next;
  }
  if (!status && array_kind(now) == LOAM_TYPE_VAR) {
    status = loam_array_index(now, 1, &LOAM_ALL, &next);
    if (!status) loam_array_release(now);
    if (!status) now = next;
  }
  if (!status) return now;
  loam_array_release(now);
  binding_fail(status);
  return NULL;
}

/* Ends what lay_out has made. */
static void drop_layout(layout *l) {
  array_values_end(&l->values);
  loam_array_release(l->array);
}

static bool lay_out(const loam_array *array, layout *out) {
  loam_array *fixed = as_fixed(array);
  if (!fixed) return false;
  *out = (layout){ .array = fixed };
  out->ndim = (int)loam_array_dims(fixed, MOST, out->shape, out->strides);
  if (!array_describe(fixed, out->ndim, &out->values)) return true;
  loam_array_release(fixed);
  return false;
}

int array_is_readonly(const loam_array *array) {
  struct loam_array_info info;
  return !loam_array_info(array, &info) && info.readonly;
}

/* The shape and strides of a buffer, and the references that keep its memory and format alive. */
typedef struct lent {
  loam_array *array;
  PyObject *format;
  Py_ssize_t dims[2 * MOST];
} lent;

static bool is_contiguous(const layout *l) {
  int64_t stride = (int64_t)l->values.size;
  for (int i = l->ndim; i-- > 0; stride *= (int64_t)l->shape[i])
    if (l->shape[i] > 1 && l->strides[i] != stride) return false;
  return true;
}

static int check_flags(const layout *l, int flags) {
  const char *wrong = NULL;
  if (!l->values.format) wrong = "buffers have no dates and times; NumPy reads them by itself";
  if ((flags & PyBUF_WRITABLE) && array_is_readonly(l->array)) wrong = "the array is read-only";
  bool wants_fortran = (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS;
  bool wants_order = wants_fortran || (flags & PyBUF_STRIDES) != PyBUF_STRIDES ||
                     (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS ||
                     (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS;
  if (wants_order && !is_contiguous(l)) wrong = "the array's elements do not follow one another";
  if (wants_fortran && l->ndim > 1) wrong = "the array is in C order, not Fortran order";
  if (wrong) PyErr_SetString(PyExc_BufferError, wrong);
  return wrong ? -1 : 0;
}

static void fill_view(Py_buffer *view, PyObject *self, const layout *l, lent *of, int flags) {
  Py_ssize_t bytes = (Py_ssize_t)l->values.size;
  void *data = loam_array_data(l->array);
  for (int i = 0; i < l->ndim; i++) {
    of->dims[i] = (Py_ssize_t)l->shape[i];
    of->dims[MOST + i] = (Py_ssize_t)l->strides[i];
    bytes *= of->dims[i];
  }
  of->array = loam_array_retain(l->array);
  of->format = Py_NewRef(l->values.format);
  *view = (Py_buffer){ .buf = data ? data : of->dims, /* of no bytes: any address but NULL */
                       .obj = Py_NewRef(self),
                       .len = bytes,
                       .itemsize = (Py_ssize_t)l->values.size,
                       .readonly = array_is_readonly(l->array),
                       .ndim = l->ndim,
                       .internal = of };
  if (flags & PyBUF_FORMAT) view->format = (char *)PyUnicode_AsUTF8(of->format);
  if (!l->ndim) return; /* then the buffer protocol allows neither a shape nor strides */
  if (flags & PyBUF_ND) view->shape = of->dims;
  if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES) view->strides = of->dims + MOST;
}

/* Turns the TypeError of lay_out into the BufferError that users of buffers expect. */
static int fail_buffer(void) {
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_SetObject(PyExc_BufferError, value);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return -1;
}

/* Fills a buffer of an array whose rows are held. */
static int lend(PyObject *self, Py_buffer *view, int flags) {
  layout l;
  if (!lay_out(array_of(self), &l)) return fail_buffer();
  lent *of = check_flags(&l, flags) ? NULL : PyMem_Malloc(sizeof *of);
  if (of) {
    fill_view(view, self, &l, of, flags);
    ((Array *)self)->family->inside += array_stands_in_row(l.array);
  } else if (!PyErr_Occurred()) PyErr_NoMemory();
  drop_layout(&l);
  return of ? 0 : -1;
}

/* A buffer of row elements counts as a member of the family that stands in a row. */
int array_getbuffer(PyObject *self, Py_buffer *view, int flags) {
  view->obj = NULL;
  array_hold_rows(self);
  int status = lend(self, view, flags);
  array_release_rows(self);
  return status;
}

void array_releasebuffer(PyObject *self, Py_buffer *view) {
  lent *of = view->internal;
  ((Array *)self)->family->inside -= array_stands_in_row(of->array);
  loam_array_release(of->array);
  Py_DECREF(of->format);
  PyMem_Free(of);
}

PyObject *array_tuple(const int64_t *numbers, int n) {
  PyObject *tuple = PyTuple_New(n);
  for (int i = 0; i < n && tuple; i++) {
    PyObject *number = PyLong_FromLongLong(numbers[i]);
    if (number) PyTuple_SET_ITEM(tuple, i, number);
    else Py_CLEAR(tuple);
  }
  return tuple;
}

PyObject *array_shape(const size_t *shape, int n) {
  int64_t numbers[MOST];
  for (int i = 0; i < n; i++) numbers[i] = (int64_t)shape[i];
  return array_tuple(numbers, n);
}

/* Returns the dict of __array_interface__ for an array whose rows are held. An empty row has no
 * address, but NumPy takes an address of 0 for a scalar: it gets another one, where it reads
 * nothing. */
static PyObject *interface_of(PyObject *self) {
  static char nothing[16];
  layout l;
  if (!lay_out(array_of(self), &l)) return NULL;
  bool is_struct = !PyUnicode_Check(l.values.descr);
  PyObject *typestr = is_struct ? PyUnicode_FromFormat("|V%zu", l.values.size)
                                : Py_NewRef(l.values.descr);
  char *data = loam_array_data(l.array);
  PyObject *interface = Py_BuildValue("{sNsNsNs(NO)si}", "shape", array_shape(l.shape, l.ndim),
                                      "strides", array_tuple(l.strides, l.ndim), "typestr", typestr,
                                      "data", PyLong_FromVoidPtr(data ? data : nothing),
                                      array_is_readonly(l.array) ? Py_True : Py_False, "version",
                                      3);
  if (interface && is_struct && PyDict_SetItemString(interface, "descr", l.values.descr))
    Py_CLEAR(interface);
  /* The reader may keep the address only, so the count stays raised. */
  if (interface && array_stands_in_row(l.array)) ((Array *)self)->family->inside++;
  drop_layout(&l);
  return interface;
}

/* NumPy reads this attribute if there is no buffer. An AttributeError would make NumPy treat the
 * array as a list, so this raises TypeError. */
PyObject *array_interface(PyObject *self, void *none) {
  (void)none;
  array_hold_rows(self);
  PyObject *interface = interface_of(self);
  array_release_rows(self);
  return interface;
}

/* The tensor may live longer than every Array, so the rows stay in place from now on. */
PyObject *array_dlpack(PyObject *self, PyObject *arguments, PyObject *keywords) {
  struct DLManagedTensor *tensor;
  if (!tensor_can_be_lent(arguments, keywords)) return NULL;
  loam_array *fixed = as_fixed(array_of(self));
  if (!fixed) return NULL;
  loam_status status = loam_array_to_dlpack(fixed, &tensor);
  PyObject *capsule = NULL;
  if (status == LOAM_EUNSUPPORTED) PyErr_SetString(PyExc_BufferError, loam_error());
  else if (status) binding_fail(status);
  else capsule = tensor_capsule(tensor);
  if (capsule) ((Array *)self)->family->inside += array_stands_in_row(fixed);
  loam_array_release(fixed);
  return capsule;
}

PyObject *array_dlpack_device(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  return Py_BuildValue("(ii)", 1, 0);
}

/* ---- Arrow ---- */

/* A consumer moves the struct and clears `release`. */
static void end_schema(PyObject *capsule) {
  struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
  if (schema->release) schema->release(schema);
  PyMem_Free(schema);
}

static void end_array(PyObject *capsule) {
  struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
  if (array->release) array->release(array);
  PyMem_Free(array);
}

/* Returns a capsule over a struct that PyMem_Calloc made. NULL with an exception set, also for a
 * NULL `made`. */
static PyObject *arrow_capsule(void *made, const char *name, PyCapsule_Destructor end) {
  if (!made) return PyErr_NoMemory();
  PyObject *capsule = PyCapsule_New(made, name, end);
  if (!capsule) PyMem_Free(made);
  return capsule;
}

/* Like resized rows, exported rows would move; so they stay in place from now on. */
static PyObject *to_arrow(PyObject *self, int may_copy) {
  struct ArrowSchema *schema = PyMem_Calloc(1, sizeof *schema);
  struct ArrowArray *array = PyMem_Calloc(1, sizeof *array);
  PyObject *both[] = { arrow_capsule(schema, "arrow_schema", end_schema),
                       arrow_capsule(array, "arrow_array", end_array) };
  loam_status status = LOAM_ENOMEM;
  if (both[0] && both[1]) {
    status = loam_array_to_arrow(array_of(self), may_copy, schema, array);
    if (status) binding_fail(status);
  }
  if (!status) ((Array *)self)->family->inside++;
  PyObject *pair = status ? NULL : PyTuple_Pack(2, both[0], both[1]);
  Py_XDECREF(both[0]);
  Py_XDECREF(both[1]);
  return pair;
}

PyObject *array_to_arrow(PyObject *self, PyObject *arguments, PyObject *keywords) {
  static const char *names[] = { "copy", NULL };
  int may_copy = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$p", (char **)names, &may_copy))
    return NULL;
  return to_arrow(self, may_copy);
}

/* A requested schema is a wish, which Arrow's protocol lets a producer ignore. */
PyObject *array_arrow(PyObject *self, PyObject *arguments, PyObject *keywords) {
  static const char *names[] = { "requested_schema", NULL };
  PyObject *wish = Py_None;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O", (char **)names, &wish)) return NULL;
  return to_arrow(self, 1);
}
