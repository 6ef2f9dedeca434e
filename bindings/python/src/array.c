/* array.c - loam.Array: loam's arrays as Python objects. array_export.c gives their memory to other
 * libraries, and array_import.c makes arrays of memory of other libraries.
 *
 * A row that is resized may move; a view of its elements would then show memory of other pieces. So
 * all Arrays that are derived from one Array share a family. The family counts its members whose
 * data stand in rows. While there is such a member, other than the Array that resizes, no row is
 * resized. An operation that has the address of an element while Python code may run (__index__ of
 * a key, a finalizer, the module decimal) counts as a member until it ends. */
#include "array.h"

#include <stdbool.h>
#include <string.h>

#include "block.h"

enum { MOST = ARRAY_MOST };

static PyTypeObject *array_type; /* there is one, because the module serves one interpreter */

static loam_array *array_of(PyObject *self) { return ((Array *)self)->array; }

static const char *type_text(PyObject *self) {
  return loam_type_text(loam_array_type(array_of(self)));
}

/* ---- Making ---- */

int array_stands_in_row(const loam_array *array) {
  struct loam_array_info info;
  return !loam_array_info(array, &info) && loam_block_kind_of(info.block) == LOAM_BLOCK_POOLED;
}

/* Makes a Python object of a family, which takes the reference to `array`. With a NULL family it
 * makes a new family. `base` may be NULL. */
static PyObject *wrap(loam_array *array, array_family *f, PyObject *base) {
  bool is_view = f;
  if (!f) f = PyMem_Calloc(1, sizeof *f);
  Array *self = f ? (Array *)array_type->tp_alloc(array_type, 0) : NULL;
  if (!self) {
    loam_array_release(array);
    if (f && !f->members) PyMem_Free(f);
    return PyErr_NoMemory();
  }
  self->array = array;
  self->family = f;
  self->is_inside = array_stands_in_row(array);
  self->is_view = is_view;
  self->base = Py_XNewRef(base);
  f->members++;
  f->inside += self->is_inside;
  return (PyObject *)self;
}

PyObject *array_wrap(loam_array *array, PyObject *base) { return wrap(array, NULL, base); }

/* Makes a view of `self`. The base of a view of a view is the Array with which it began, so that a
 * view of an element does not stay in use because another view was made of it. */
static PyObject *wrap_view(PyObject *self, loam_array *array) {
  Array *of = (Array *)self;
  return wrap(array, of->family, of->is_view ? of->base : self);
}

/* Tells tracemalloc of the array's memory, which the Array with which the family began has. */
static void trace_memory(const Array *self) {
  while (self->is_view) self = (const Array *)self->base;
  if (!self->base) binding_trace(self->array, loam_array_bytes(self->array));
}

void array_trace_copies(PyObject *self) {
  struct loam_array_info info;
  struct loam_type_info type;
  loam_array *array = array_of(self);
  if (loam_array_info(array, &info) || loam_type_info(info.type, &type)) return;
  bool is_own = info.embedded || loam_block_kind_of(info.block) != LOAM_BLOCK_EXTERNAL;
  size_t bytes = loam_array_bytes(array) - (is_own ? 0 : type.size);
  if (bytes) binding_trace(array, bytes);
}

int array_patterns(const loam_type *type) {
  struct loam_type_info info;
  int n = 0;
  for (; type && !loam_type_info(type, &info); type = info.element)
    n += info.kind == LOAM_TYPE_FIXED && info.count == LOAM_ANY;
  return n;
}

bool array_give_sizes(loam_type **type, size_t count, const size_t *shape) {
  loam_type *sized;
  loam_status status = loam_type_sized(*type, count, shape, &sized);
  if (status) return binding_fail(status), false;
  loam_type_release(*type);
  *type = sized;
  return true;
}

/* Finds the sizes of the `left` dimensions of any size that a type has. A dimension has the size of
 * the first value that shows one: an empty row shows no size of its elements. Sizes that are not
 * found keep LOAM_ANY. Returns 1 if all are found, 0 if not, -1 with an exception set. */
static int find_sizes(const loam_type *type, int left, PyObject *value, size_t *shape) {
  struct loam_type_info info;
  if (!left) return 1;
  if (value == Py_None || loam_type_info(type, &info)) return 0;
  if (info.kind == LOAM_TYPE_POINTER) return find_sizes(info.element, left, value, shape);
  Py_ssize_t n = PySequence_Size(value);
  if (n < 0) return -1;
  if (info.kind == LOAM_TYPE_FIXED && info.count == LOAM_ANY) {
    if (*shape == LOAM_ANY) *shape = (size_t)n;
    shape++;
    left--;
  }
  int found = !left;
  for (Py_ssize_t i = 0; i < n && !found; i++) {
    PyObject *item = PySequence_GetItem(value, i);
    found = item ? find_sizes(info.element, left, item, shape) : -1;
    Py_XDECREF(item);
  }
  return found;
}

/* Gives the dimensions of any size of a type the sizes that a value has. A size that the value does
 * not show is 0. `value` may be NULL. */
static bool size_by_value(loam_type **type, PyObject *value) {
  size_t shape[MOST];
  int count = array_patterns(*type);
  if (!count) return true;
  if (!value || value == Py_None) {
    binding_fail_with(LOAM_EINVAL, PyUnicode_FromFormat("type %s: the size of a `fixed *` comes "
                                                        "from a value, and there is none",
                                                        loam_type_text(*type)));
    return false;
  }
  for (int i = 0; i < count; i++) shape[i] = LOAM_ANY;
  if (find_sizes(*type, count, value, shape) < 0) return false;
  for (int i = 0; i < count; i++) shape[i] = shape[i] == LOAM_ANY ? 0 : shape[i];
  return array_give_sizes(type, (size_t)count, shape);
}

/* Assigns the value with which an array is made. None is the missing value of an option, and no
 * value for other types. */
static bool assign_first(PyObject *self, PyObject *value) {
  if (!value || (value == Py_None && array_kind(array_of(self)) != LOAM_TYPE_OPTION)) return true;
  PyObject *all = PyTuple_New(0);
  bool is_done = all && !PyObject_SetItem(self, all, value);
  Py_XDECREF(all);
  return is_done;
}

static PyObject *array_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  static const char *names[] = { "type", "value", "tag", "resizable", NULL };
  const char *text, *tag = NULL;
  PyObject *value = NULL;
  loam_type *parsed;
  loam_array *array = NULL;
  int resizable = 1;
  (void)type;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "s|Oz$p", (char **)names, &text, &value,
                                   &tag, &resizable))
    return NULL;
  if (value == Py_Ellipsis) value = NULL;
  loam_site *site = binding_site(tag, "python.array");
  if (!site) return NULL;
  loam_status status = loam_type_parse(text, &parsed);
  if (status) return binding_fail(status);
  if (!size_by_value(&parsed, value)) {
    loam_type_release(parsed);
    return NULL;
  }
  int arenas = LOAM_ARENA_ZEROED | (resizable ? LOAM_ARENA_RESIZABLE : 0);
  const loam_handler *before = binding_handler_begin();
  status = loam_array_new_in(site, parsed, arenas, &array);
  binding_handler_end(before);
  loam_type_release(parsed);
  PyObject *self = status ? binding_fail(status) : array_wrap(array, NULL);
  if (self) trace_memory((Array *)self);
  if (self && !assign_first(self, value)) Py_CLEAR(self);
  return self;
}

static void array_dealloc(PyObject *self) {
  Array *a = (Array *)self;
  PyTypeObject *type = Py_TYPE(self);
  PyObject_ClearWeakRefs(self);
  if (!a->is_view) binding_untrace(a->array);
  loam_array_release(a->array);
  a->family->inside -= a->is_inside;
  if (--a->family->members == 0) PyMem_Free(a->family);
  Py_XDECREF(a->base);
  type->tp_free(self);
  Py_DECREF(type);
}

/* ---- Resizing ---- */

void array_hold_rows(PyObject *self) { ((Array *)self)->family->inside++; }
void array_release_rows(PyObject *self) { ((Array *)self)->family->inside--; }

/* Returns whether no other member of the family stands in a row. Callers call array_hold_rows
 * before, which counts as one member: so the rows stay in place during an assignment, although it
 * may run Python code that resizes. */
static int may_resize(void *ctx) {
  const Array *self = ctx;
  Py_ssize_t others = self->family->inside - self->is_inside - 1;
  if (!others) return 1;
  PyErr_Format(PyExc_BufferError, "%zd view%s of row elements in use: no row can move", others,
               others == 1 ? "" : "s");
  return 0;
}

static int assign(PyObject *self, loam_array *array, PyObject *value) {
  array_rows rows = { may_resize, self };
  array_hold_rows(self);
  int status = array_assign(array, value, &rows);
  array_release_rows(self);
  trace_memory((Array *)self);
  return status;
}

static PyObject *array_resize(PyObject *self, PyObject *count) {
  Py_ssize_t n = PyNumber_AsSsize_t(count, PyExc_OverflowError);
  if (n == -1 && PyErr_Occurred()) return NULL;
  if (n < 0) return PyErr_Format(PyExc_ValueError, "%zd elements: it is negative", n);
  array_hold_rows(self);
  bool is_possible = may_resize(self);
  array_release_rows(self);
  loam_status status = is_possible ? loam_array_resize(array_of(self), (size_t)n) : LOAM_OK;
  trace_memory((Array *)self);
  return is_possible ? binding_done(status) : NULL;
}

/* Appends an element and assigns a value to it. If the assignment fails, the element is removed. */
static PyObject *array_append(PyObject *self, PyObject *value) {
  loam_array *array = array_of(self), *element;
  if (array_kind(array) != LOAM_TYPE_VAR)
    return PyErr_Format(PyExc_TypeError, "%s: only a row of a var dimension grows",
                        type_text(self));
  Py_ssize_t n = array_length(array);
  PyObject *count = n < 0 ? NULL : PyLong_FromSsize_t(n + 1);
  PyObject *resized = count ? array_resize(self, count) : NULL;
  Py_XDECREF(count);
  if (!resized) return NULL;
  loam_status status = loam_array_index(array, 1, &LOAM_AT(n), &element);
  bool is_done = !status && !assign(self, element, value);
  if (status) binding_fail(status);
  else loam_array_release(element);
  if (is_done) return resized;
  /* The element has to stay if the value's own Python code has kept a view of it. */
  if (((Array *)self)->family->inside == ((Array *)self)->is_inside)
    (void)loam_array_resize(array, (size_t)n);
  Py_DECREF(resized);
  return NULL;
}

/* ---- Indices ---- */

/* The state while a key is resolved, part by part. Indices after a field continue where the indices
 * before the field ended: dimensions that already have a range are skipped. */
typedef struct path {
  loam_array *now; /* a reference */
  loam_index index[MOST];
  size_t count; /* indices that are not applied yet; the first `passed` are skipped dimensions */
  size_t passed;
} path;

static bool step_to(path *p, loam_status status, loam_array *next, PyObject *error) {
  if (status == LOAM_EINVAL) PyErr_SetString(error, loam_error());
  else if (status) binding_fail(status);
  if (status) return false;
  loam_array_release(p->now);
  p->now = next;
  return true;
}

static bool follow_indices(path *p) {
  loam_array *next = NULL;
  if (p->count == p->passed) return true;
  loam_status status = loam_array_index(p->now, p->count, p->index, &next);
  size_t ranges = 0;
  for (size_t i = 0; i < p->count; i++) ranges += p->index[i].step != 0;
  for (size_t i = 0; i < ranges; i++) p->index[i] = LOAM_ALL;
  p->count = p->passed = ranges;
  return step_to(p, status, next, PyExc_IndexError);
}

static bool follow_field(path *p, PyObject *key) {
  loam_array *next = NULL;
  const char *name = binding_utf8(key);
  if (!name || !follow_indices(p)) return false;
  loam_status status = loam_array_field(p->now, name, &next);
  return step_to(p, status, next, PyExc_KeyError);
}

static bool follow_fields(path *p, PyObject *keys) {
  const char *names[MOST];
  loam_array *next = NULL;
  Py_ssize_t n = PyList_GET_SIZE(keys);
  if (n > MOST) {
    PyErr_Format(PyExc_KeyError, "%zd fields at once: at most %d", n, MOST);
    return false;
  }
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *key = PyList_GET_ITEM(keys, i);
    if (!PyUnicode_Check(key)) {
      PyErr_Format(PyExc_TypeError, "a list in a key names fields: a str is needed, not %s",
                   Py_TYPE(key)->tp_name);
      return false;
    }
    names[i] = binding_utf8(key);
    if (!names[i]) return false;
  }
  if (!follow_indices(p)) return false;
  loam_status status = loam_array_fields(p->now, (size_t)n, names, &next);
  return step_to(p, status, next, PyExc_KeyError);
}

static bool read_bound(PyObject *bound, int64_t otherwise, int64_t *out) {
  *out = otherwise;
  if (bound == Py_None) return true;
  *out = PyNumber_AsSsize_t(bound, NULL); /* clipped to the range of its type */
  if (*out == INT64_MIN) *out = INT64_MIN + 1;
  return !PyErr_Occurred();
}

static bool read_slice(PyObject *key, loam_index *out) {
  PySliceObject *s = (PySliceObject *)key;
  if (!read_bound(s->start, LOAM_OPEN, &out->start) || !read_bound(s->stop, LOAM_OPEN, &out->stop))
    return false;
  if (!read_bound(s->step, 1, &out->step)) return false;
  if (!out->step) PyErr_SetString(PyExc_ValueError, "a step of 0");
  return out->step != 0;
}

static bool read_index(PyObject *key, loam_index *out) {
  if (PySlice_Check(key)) return read_slice(key, out);
  *out = (loam_index){ PyNumber_AsSsize_t(key, PyExc_IndexError), 0, 0 };
  return !PyErr_Occurred();
}

static bool follow(path *p, PyObject *key) {
  if (PyUnicode_Check(key)) return follow_field(p, key);
  if (PyList_Check(key)) return follow_fields(p, key);
  if (p->count == MOST) {
    PyErr_Format(PyExc_IndexError, "more than %d indices", MOST);
    return false;
  }
  return read_index(key, &p->index[p->count++]);
}

/* Returns the view that a key selects, with a reference; NULL with an exception set. The caller
 * holds the rows. */
static loam_array *resolve(PyObject *self, PyObject *key) {
  path p = { .now = loam_array_retain(array_of(self)) };
  bool is_tuple = PyTuple_Check(key), is_there = true;
  Py_ssize_t n = is_tuple ? PyTuple_GET_SIZE(key) : 1;
  for (Py_ssize_t i = 0; i < n && is_there; i++)
    is_there = follow(&p, is_tuple ? PyTuple_GET_ITEM(key, i) : key);
  if (is_there) is_there = follow_indices(&p);
  if (!is_there) loam_array_release(p.now);
  return is_there ? p.now : NULL;
}

/* Returns a value for scalars and text, and a view for types with parts. Takes the reference to
 * `array`. The caller holds the rows. */
static PyObject *present(PyObject *self, loam_array *array) {
  loam_array *target;
  while (array && array_is_followed(array)) {
    loam_status status = loam_array_follow(array, &target);
    loam_array_release(array);
    if (status == LOAM_ESTATE) Py_RETURN_NONE;
    if (status) return binding_fail(status);
    array = target;
  }
  if (!array) return NULL;
  if (!array_is_value(array)) return wrap_view(self, array);
  PyObject *value = array_value(array);
  loam_array_release(array);
  return value;
}

static PyObject *array_get(PyObject *self, PyObject *key) {
  array_hold_rows(self);
  PyObject *found = present(self, resolve(self, key));
  array_release_rows(self);
  return found;
}

static PyObject *array_item(PyObject *self, Py_ssize_t i) {
  loam_array *element = NULL;
  array_hold_rows(self);
  loam_status status = loam_array_index(array_of(self), 1, &LOAM_AT(i), &element);
  if (status == LOAM_EINVAL) PyErr_SetString(PyExc_IndexError, loam_error());
  else if (status) binding_fail(status);
  PyObject *found = present(self, element);
  array_release_rows(self);
  return found;
}

static int array_set(PyObject *self, PyObject *key, PyObject *value) {
  if (!value) {
    PyErr_SetString(PyExc_TypeError, "elements cannot be deleted; a row can be resized");
    return -1;
  }
  array_hold_rows(self);
  loam_array *array = resolve(self, key);
  array_release_rows(self);
  int status = array ? assign(self, array, value) : -1;
  loam_array_release(array);
  return status;
}

static Py_ssize_t array_size(PyObject *self) { return array_length(array_of(self)); }

/* An array without a first dimension is true if the value that it presents is; a struct is. */
static int array_truth(PyObject *self) {
  array_hold_rows(self);
  PyObject *found = present(self, loam_array_retain(array_of(self)));
  int is_true = -1;
  if (found && !Py_IS_TYPE(found, array_type)) is_true = PyObject_IsTrue(found);
  else if (found && array_kind(array_of(found)) == LOAM_TYPE_STRUCT) is_true = 1;
  else if (found) {
    Py_ssize_t n = array_size(found);
    is_true = n < 0 ? -1 : n > 0;
  }
  Py_XDECREF(found);
  array_release_rows(self);
  return is_true;
}

/* Without this function an array without dimensions would be iterated as an empty one. */
static PyObject *array_iterate(PyObject *self) {
  return array_size(self) < 0 ? NULL : PySeqIter_New(self);
}

/* ---- Properties and methods ---- */

static void put_text(void *ctx, const char *text, size_t length) {
  PyObject **all = ctx;
  PyObject *part = *all ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace") : NULL;
  PyUnicode_Append(all, part);
  Py_XDECREF(part);
}

static PyObject *array_debug(PyObject *self, PyObject *none) {
  (void)none;
  PyObject *text = PyUnicode_FromString("");
  loam_status status = loam_array_repr(array_of(self), put_text, &text);
  if (!status) return text;
  Py_XDECREF(text);
  return binding_fail(status);
}

static PyObject *array_repr(PyObject *self) {
  array_hold_rows(self);
  PyObject *values = array_show(array_of(self));
  array_release_rows(self);
  PyObject *text = values ? PyUnicode_FromFormat("<loam.Array %s %U>", type_text(self), values)
                          : NULL;
  Py_XDECREF(values);
  return text;
}

/* Returns the contents of the array; NULL with an exception set. */
static PyObject *contents(PyObject *self) {
  array_hold_rows(self);
  PyObject *value = array_value(array_of(self));
  array_release_rows(self);
  return value;
}

static PyObject *array_tolist(PyObject *self, PyObject *none) {
  (void)none;
  return contents(self);
}

/* Returns how many rows an array of scalars has whose elements follow one another, so that its
 * bytes are its contents; 0 without dimensions, and -1 for all other arrays. */
static Py_ssize_t count_plain(PyObject *self) {
  Py_buffer view;
  if (array_kind(array_of(self)) == LOAM_TYPE_POINTER) return -1;
  if (PyObject_GetBuffer(self, &view, PyBUF_ND | PyBUF_FORMAT)) return PyErr_Clear(), -1;
  Py_ssize_t count = strchr(view.format, '{') ? -1 : view.ndim ? view.shape[0] : 0;
  PyBuffer_Release(&view);
  return count;
}

/* A copy is made from the contents, and has memory of its own under the tag of the data. */
static PyObject *array_reduce(PyObject *self, PyObject *protocol) {
  struct loam_array_info info;
  loam_status status = loam_array_info(array_of(self), &info);
  PyObject *copies = status ? binding_fail(status) : PyImport_ImportModule("loam.copies");
  Py_ssize_t count = copies ? count_plain(self) : -1; /* rows may grow during the import */
  PyObject *make = copies ? PyObject_GetAttrString(copies, count < 0 ? "array" : "plain") : NULL;
  PyObject *value = !make ? NULL : count < 0 ? contents(self) : block_bytes(self, protocol);
  PyObject *made = NULL;
  const char *tag = status ? NULL : loam_block_tag(info.block);
  if (value && count < 0) made = Py_BuildValue("(O(sOs))", make, type_text(self), value, tag);
  else if (value) made = Py_BuildValue("(O(sOsn))", make, type_text(self), value, tag, count);
  Py_XDECREF(value);
  Py_XDECREF(make);
  Py_XDECREF(copies);
  return made;
}

static PyObject *get_type(PyObject *self, void *none) {
  (void)none;
  return PyUnicode_FromString(type_text(self));
}

static PyObject *get_shape(PyObject *self, void *none) {
  (void)none;
  size_t shape[MOST];
  return array_shape(shape, (int)loam_array_dims(array_of(self), MOST, shape, NULL));
}

static PyObject *get_strides(PyObject *self, void *none) {
  (void)none;
  size_t shape[MOST];
  int64_t strides[MOST];
  return array_tuple(strides, (int)loam_array_dims(array_of(self), MOST, shape, strides));
}

static PyObject *get_address(PyObject *self, void *none) {
  (void)none;
  return PyLong_FromVoidPtr(loam_array_data(array_of(self)));
}

static PyObject *get_readonly(PyObject *self, void *none) {
  (void)none;
  return PyBool_FromLong(array_is_readonly(array_of(self)));
}

static PyObject *get_base(PyObject *self, void *none) {
  (void)none;
  PyObject *base = ((Array *)self)->base;
  return Py_NewRef(base ? base : Py_None);
}

/* A view holds a reference to the block of the data. Those data may stand in the array itself; then
 * that block is the array's own, and also counts the references to the array. */
static PyObject *get_refcount(PyObject *self, void *none) {
  (void)none;
  struct loam_array_info info;
  loam_status status = loam_array_info(array_of(self), &info);
  if (status) return binding_fail(status);
  size_t count = loam_block_refcount(info.block);
  return PyLong_FromSize_t(info.embedded ? count : count + info.references - 1);
}

static PyObject *get_nbytes(PyObject *self, void *none) {
  (void)none;
  return PyLong_FromSize_t(loam_array_bytes(array_of(self)));
}

static PyObject *get_transpose(PyObject *self, void *none) {
  (void)none;
  loam_array *made;
  loam_status status = loam_array_transpose(array_of(self), &made);
  return status ? binding_fail(status) : wrap_view(self, made);
}

static PyGetSetDef properties[] = {
  { "type", get_type, NULL, "The datashape, as a str.", NULL },
  { "shape", get_shape, NULL, "Sizes of the fixed dimensions at the front of the type.", NULL },
  { "strides", get_strides, NULL,
    "Bytes from one element to the next, for each dimension in shape.", NULL },
  { "address", get_address, NULL, "The address of the data.", NULL },
  { "readonly", get_readonly, NULL, "True if the memory must not be written.", NULL },
  { "T", get_transpose, NULL, "A view with the fixed dimensions at the front in reverse.", NULL },
  { "nbytes", get_nbytes, NULL,
    "Bytes of the values in place, and of all rows, text and pointer targets of the array.", NULL },
  { "base", get_base, NULL,
    "The object whose memory this Array shows: the Array of which it is a view, or the object\n"
    "from which it was made. None if the Array has memory of its own.",
    NULL },
  { "refcount", get_refcount, NULL,
    "How many hold the memory at this moment, in C and in Python: this Array, all other arrays\n"
    "that show the memory, and the users of this Array's memory, such as a memoryview.",
    NULL },
  { "__array_interface__", array_interface, NULL, "The scalars and structs, for NumPy.", NULL },
  { 0 },
};

static PyMethodDef methods[] = {
  { "from_dlpack", array_from_dlpack, METH_O | METH_CLASS,
    "from_dlpack($type, tensor, /)\n--\n\n"
    "Makes an array over the memory of an object with __dlpack__, without a copy." },
  { "from_buffer", (PyCFunction)(void (*)(void))array_from_buffer,
    METH_VARARGS | METH_KEYWORDS | METH_CLASS,
    "from_buffer($type, buffer, type=None, tag=None)\n--\n\n"
    "Makes an array over the memory of a buffer, without a copy; of a read-only buffer, a\n"
    "read-only array. The buffer's format gives the type. With `type`, a datashape, the array\n"
    "is laid out over the buffer's bytes from their beginning." },
  { "from_arrow", (PyCFunction)(void (*)(void))array_from_arrow,
    METH_VARARGS | METH_KEYWORDS | METH_CLASS,
    "from_arrow($type, array, *, copy=False, tag=None)\n--\n\n"
    "Makes a read-only array over the memory of an object with __arrow_c_array__. With `copy`,\n"
    "values that Arrow orders in another way are copied, otherwise they are refused\n"
    "(StateError). `tag` is the tag of the copies; None means the tag of the context, or else\n"
    "\"python.array\"." },
  { "resize", array_resize, METH_O,
    "resize($self, count, /)\n--\n\n"
    "Gives a row of a var dimension `count` elements; new elements are zero. BufferError while\n"
    "views of row elements are in use." },
  { "append", array_append, METH_O,
    "append($self, value, /)\n--\n\n"
    "Appends an element to a row of a var dimension. BufferError while views of row elements\n"
    "are in use." },
  { "tolist", array_tolist, METH_NOARGS,
    "tolist($self, /)\n--\n\n"
    "Returns the contents: lists for dimensions, dicts for structs, None for missing values." },
  { "debug", array_debug, METH_NOARGS,
    "debug($self, /)\n--\n\n"
    "Returns lines of text that describe the type, the metadata, the data, and each block with\n"
    "its references." },
  { "__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
    "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
    "Returns a DLPack capsule of the scalars, of version 0. BufferError for a copy, and for\n"
    "another device." },
  { "__reduce_ex__", array_reduce, METH_O,
    "__reduce_ex__($self, protocol, /)\n--\n\n"
    "For pickle and copy: a copy of the contents." },
  { "to_arrow", (PyCFunction)(void (*)(void))array_to_arrow, METH_VARARGS | METH_KEYWORDS,
    "to_arrow($self, *, copy=False)\n--\n\n"
    "Returns two capsules, Arrow's schema and array. With `copy`, values that Arrow orders in\n"
    "another way are copied, otherwise they are refused (StateError)." },
  { "__arrow_c_array__", (PyCFunction)(void (*)(void))array_arrow, METH_VARARGS | METH_KEYWORDS,
    "__arrow_c_array__($self, requested_schema=None)\n--\n\n"
    "Like to_arrow(copy=True)." },
  { "__dlpack_device__", array_dlpack_device, METH_NOARGS,
    "__dlpack_device__($self, /)\n--\n\n"
    "Returns (1, 0): host memory." },
  { 0 },
};

static const char prose[] =
    "Array(type, value=..., tag=None, *, resizable=True)\n--\n\n"
    "An array of a type. The type is a datashape, such as \"3 * var * {x: float64, y: ?int32}\".\n"
    "The array is zeroed, or holds `value`, which is an array or is made of lists and dicts. The\n"
    "value None makes an option (\"?int32\") missing, and is no value for other types. A\n"
    "dimension \"fixed *\" gets the size that the value has. `tag` says what the memory is for;\n"
    "None means the tag of the context, or else \"python.array\".\n\n"
    "Indices, slices and fields make views without a copy: a[1, 0:2], a[\"x\"], a[:, \"x\", 0],\n"
    "a[[\"y\", \"x\"]]. Assigning to a view changes the array. Other libraries can use arrays of\n"
    "scalars as buffers, through __array_interface__ and through DLPack. While views of a row's\n"
    "elements are in use, no row can be resized (BufferError).";

static PyMemberDef members[] = { BINDING_WEAK(Array), { 0 } };

static PyType_Slot slots[] = {
  { Py_tp_doc, (void *)prose },
  { Py_tp_new, (void *)array_new },
  { Py_tp_dealloc, (void *)array_dealloc },
  { Py_tp_repr, (void *)array_repr },
  { Py_tp_methods, methods },
  { Py_tp_members, members },
  { Py_tp_getset, properties },
  { Py_tp_iter, (void *)array_iterate },
  { Py_nb_bool, (void *)array_truth },
  { Py_sq_length, (void *)array_size }, /* for reversed() */
  { Py_sq_item, (void *)array_item },
  { Py_mp_length, (void *)array_size },
  { Py_mp_subscript, (void *)array_get },
  { Py_mp_ass_subscript, (void *)array_set },
  { Py_bf_getbuffer, (void *)array_getbuffer },
  { Py_bf_releasebuffer, (void *)array_releasebuffer },
  { 0, NULL },
};

static PyType_Spec spec = { .name = "loam.Array",
                            .basicsize = sizeof(Array),
                            .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                            .slots = slots };

int array_add(PyObject *module) {
  PyObject *type = PyType_FromSpec(&spec);
  int status = type ? PyModule_AddObjectRef(module, "Array", type) : -1;
  array_type = (PyTypeObject *)type; /* the module has a reference, and is never unloaded */
  return status;
}
