/* array_import.c - arrays over memory of other libraries: DLPack tensors, buffers and Arrow
 * arrays. */
#include <stdbool.h>

#include "array.h"
#include "arrow.h"
#include "block.h"
#include "tensor.h"

enum { MOST = ARRAY_MOST };

/* ---- DLPack ---- */

static PyObject *take_tensor(PyObject *capsule, PyObject *of) {
  loam_array *array;
  if (!PyCapsule_IsValid(capsule, "dltensor"))
    return PyErr_Format(PyExc_ValueError,
                        "%R is no DLPack tensor of version 0, or another reader "
                        "has taken it",
                        capsule);
  struct DLManagedTensor *tensor = PyCapsule_GetPointer(capsule, "dltensor");
  loam_status status = loam_array_from_dlpack(tensor, &array);
  if (status) return binding_fail(status);
  PyCapsule_SetName(capsule, "used_dltensor"); /* this object ends the tensor from now on */
  return array_wrap(array, of);
}

PyObject *array_from_dlpack(PyObject *type, PyObject *of) {
  (void)type;
  PyObject *capsule = PyObject_CallMethod(of, "__dlpack__", NULL);
  PyObject *self = capsule ? take_tensor(capsule, of) : NULL;
  Py_XDECREF(capsule);
  return self;
}

/* ---- Buffers ---- */

/* The type and the strides of an array that is to be made over a buffer. */
typedef struct plan {
  loam_type *type;  /* a reference */
  PyObject *fields; /* a tuple of the fields to select, if the struct has pad bytes; or None */
  bool has_strides;
  int64_t strides[MOST]; /* of the buffer's dimensions, then of those in the values */
  bool is_given;         /* the type is an argument, and does not come from the buffer */
} plan;

/* Returns the datashape of a buffer's dimensions and values as a str. */
static PyObject *datashape_of(const Py_buffer *view, PyObject *values) {
  PyObject *text = PyUnicode_FromString("");
  for (int i = 0; i < view->ndim && text; i++) {
    PyObject *part = PyUnicode_FromFormat("%zd * ", view->shape[i]);
    if (part) PyUnicode_Append(&text, part);
    else Py_CLEAR(text);
    Py_XDECREF(part);
  }
  if (text) PyUnicode_Append(&text, values);
  return text;
}

static bool parse(const char *text, plan *out) {
  loam_status status = text ? loam_type_parse(text, &out->type) : LOAM_OK;
  if (status) binding_fail(status);
  return text && !status;
}

/* Stores a stride for each dimension of the type. The first strides are the buffer's. Dimensions
 * in the values ("3d") come after them, and their elements follow one another. There are fewer
 * dimensions than MOST, because loam_type_parse refuses a type that is deeper. */
static void plan_strides(const Py_buffer *view, plan *out) {
  struct loam_type_info info, inner;
  const loam_type *type = out->type;
  out->has_strides = view->strides != NULL;
  for (int i = 0; i < MOST && view->strides; i++, type = info.element) {
    if (loam_type_info(type, &info) || info.kind != LOAM_TYPE_FIXED) return;
    if (loam_type_info(info.element, &inner)) return;
    out->strides[i] = i < view->ndim ? view->strides[i] : (int64_t)inner.size;
  }
}

/* Plans an array of the type that the buffer's format gives. loam.formats reads the format. */
static bool plan_by_format(const Py_buffer *view, plan *out) {
  if (view->ndim > MOST || view->suboffsets) {
    PyErr_SetString(PyExc_BufferError, "the buffer's elements do not stand in one piece of memory");
    return false;
  }
  PyObject *formats = PyImport_ImportModule("loam.formats");
  PyObject *read = formats ? PyObject_CallMethod(formats, "datashape", "snO",
                                                 view->format ? view->format : "B", view->itemsize,
                                                 view->obj ? view->obj : Py_None)
                           : NULL;
  PyObject *values, *fields;
  bool is_read = read && PyArg_ParseTuple(read, "UO", &values, &fields);
  PyObject *text = is_read ? datashape_of(view, values) : NULL;
  bool is_done = text && parse(PyUnicode_AsUTF8(text), out);
  if (is_done) plan_strides(view, out);
  if (is_done) out->fields = Py_NewRef(fields);
  Py_XDECREF(text);
  Py_XDECREF(read);
  Py_XDECREF(formats);
  return is_done;
}

/* Gives a type with one dimension of any size, at its front, the size with which it takes all bytes
 * of a buffer. Returns false with an exception set, also for other types with such dimensions. */
static bool size_by_buffer(const Py_buffer *view, loam_type **type) {
  struct loam_type_info info, element;
  int count = array_patterns(*type);
  if (!count) return true;
  bool is_first = !loam_type_info(*type, &info) && info.kind == LOAM_TYPE_FIXED &&
                  info.count == LOAM_ANY;
  if (count > 1 || !is_first || loam_type_info(info.element, &element) || !element.size) {
    binding_fail_with(LOAM_EINVAL, PyUnicode_FromFormat("type %s: a buffer gives a size to one "
                                                        "`fixed *`, at the front of the type",
                                                        loam_type_text(*type)));
    return false;
  }
  size_t size = (size_t)view->len / element.size;
  if (size * element.size == (size_t)view->len) return array_give_sizes(type, 1, &size);
  PyErr_Format(PyExc_BufferError, "type %s: the buffer has %zd bytes, no multiple of %zu",
               loam_type_text(*type), view->len, element.size);
  return false;
}

/* Plans an array of a given type over the bytes of a buffer. */
static bool plan_by_type(const Py_buffer *view, const char *type, plan *out) {
  if (!PyBuffer_IsContiguous(view, 'C')) {
    PyErr_SetString(PyExc_BufferError, "with a type, the buffer's bytes must follow one another");
    return false;
  }
  if (!parse(type, out) || !size_by_buffer(view, &out->type)) return false;
  out->fields = Py_NewRef(Py_None);
  out->is_given = true;
  return true;
}

/* Returns how many bytes of a buffer lie before its first element; negative strides lead there. */
static size_t bytes_before(const Py_buffer *view, const plan *p) {
  size_t before = 0;
  for (int i = 0; i < view->ndim && p->has_strides; i++)
    if (p->strides[i] < 0 && view->shape[i] > 1)
      before += (size_t)(-p->strides[i] * (view->shape[i] - 1));
  return before;
}

/* Returns how many bytes of a buffer begin with its first element. */
static size_t bytes_behind(const Py_buffer *view, const plan *p) {
  size_t behind = (size_t)view->itemsize;
  if (!p->has_strides) return (size_t)view->len;
  for (int i = 0; i < view->ndim; i++) {
    if (!view->shape[i]) return 0;
    if (p->strides[i] > 0) behind += (size_t)(p->strides[i] * (view->shape[i] - 1));
  }
  return behind;
}

/* Replaces an array by a read-only view of it. */
static loam_status make_readonly(loam_array **array) {
  loam_array *view;
  loam_status status = loam_array_readonly(*array, &view);
  if (status) return status;
  loam_array_release(*array);
  *array = view;
  return LOAM_OK;
}

/* Replaces an array by a view of some fields; None means all fields. */
static loam_status select_fields(loam_array **array, PyObject *fields) {
  const char *names[MOST];
  loam_array *view = NULL;
  Py_ssize_t n = fields == Py_None ? 0 : PyTuple_GET_SIZE(fields);
  if (!n) return LOAM_OK;
  if (n > MOST) {
    PyErr_Format(PyExc_BufferError, "%zd fields with bytes between them: at most %d", n, MOST);
    return LOAM_EUNSUPPORTED;
  }
  for (Py_ssize_t i = 0; i < n; i++) {
    names[i] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(fields, i));
    if (!names[i]) return LOAM_ENOMEM;
  }
  loam_status status = loam_array_fields(*array, (size_t)n, names, &view);
  if (status) return status;
  loam_array_release(*array);
  *array = view;
  return LOAM_OK;
}

/* Makes the array that is planned. The block takes the buffer over. */
static PyObject *make(loam_site *site, Py_buffer *view, const plan *p, PyObject *of) {
  size_t before = bytes_before(view, p), size = before + bytes_behind(view, p);
  bool is_readonly = view->readonly;
  loam_array *array = NULL;
  loam_block *block = block_over(site, view, (char *)view->buf - before, size);
  if (!block) return NULL;
  loam_status status = loam_array_wrap(block, before, p->type, p->has_strides ? p->strides : NULL,
                                       &array);
  loam_block_release(block);
  if (!status) status = select_fields(&array, p->fields);
  if (!status && is_readonly) status = make_readonly(&array);
  if (!status) return array_wrap(array, of);
  loam_array_release(array);
  if (PyErr_Occurred()) return NULL;
  /* The buffer itself gave the type and the strides, so they only lack alignment. */
  if (status != LOAM_EINVAL || p->is_given) return binding_fail(status);
  return PyErr_Format(PyExc_BufferError, "%s", loam_error());
}

PyObject *array_from_buffer(PyObject *type, PyObject *arguments, PyObject *keywords) {
  static const char *names[] = { "buffer", "type", "tag", NULL };
  PyObject *of, *made = NULL;
  const char *text = NULL, *tag = NULL;
  plan p = { 0 };
  (void)type;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|zz", (char **)names, &of, &text, &tag))
    return NULL;
  loam_site *site = binding_site(tag, "python.array");
  Py_buffer *view = site ? block_buffer(of) : NULL;
  if (!view) return NULL;
  if (text ? plan_by_type(view, text, &p) : plan_by_format(view, &p))
    made = make(site, view, &p, of);
  else block_buffer_end(view);
  loam_type_release(p.type);
  Py_XDECREF(p.fields);
  return made;
}

/* ---- Arrow ---- */

/* Finds the structs in the two capsules of __arrow_c_array__. */
static bool find_structs(PyObject *pair, struct ArrowSchema **schema, struct ArrowArray **array) {
  PyObject *first, *second;
  if (!PyTuple_Check(pair)) {
    PyErr_Format(PyExc_TypeError, "__arrow_c_array__ returns a tuple of two capsules, not %s",
                 Py_TYPE(pair)->tp_name);
    return false;
  }
  if (!PyArg_ParseTuple(pair, "OO", &first, &second)) return false;
  *schema = PyCapsule_GetPointer(first, "arrow_schema");
  *array = *schema ? PyCapsule_GetPointer(second, "arrow_array") : NULL;
  return *array != NULL;
}

PyObject *array_from_arrow(PyObject *type, PyObject *arguments, PyObject *keywords) {
  static const char *names[] = { "array", "copy", "tag", NULL };
  PyObject *of, *made = NULL;
  int may_copy = 0;
  const char *tag = NULL;
  struct ArrowSchema *schema;
  struct ArrowArray *given;
  loam_array *array;
  (void)type;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|$pz", (char **)names, &of, &may_copy,
                                   &tag))
    return NULL;
  loam_site *site = binding_site(tag, "python.array");
  if (!site) return NULL;
  PyObject *pair = PyTuple_Check(of) ? Py_NewRef(of)
                                     : PyObject_CallMethod(of, "__arrow_c_array__", NULL);
  if (pair && find_structs(pair, &schema, &given)) {
    loam_scope_enter(site);
    loam_status status = loam_array_from_arrow(schema, given, may_copy, &array);
    loam_scope_leave();
    made = status ? binding_fail(status) : array_wrap(array, of);
  }
  if (made) array_trace_copies(made);
  Py_XDECREF(pair);
  return made;
}
