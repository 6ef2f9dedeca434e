/* block.c - loam.Block: loam_blocks as Python objects. Other libraries use their memory as buffers,
 * through __array_interface__ and as DLPack tensors. A tensor holds a reference to the loam_block.
 * A buffer holds a reference to the Python object, and release() fails while a buffer is in use. A
 * user of __array_interface__ has to hold such a reference itself: once the interface was given,
 * release() always fails. */
#include "block.h"

#include <stdbool.h>
#include <string.h>

#include "tensor.h"

typedef struct Block {
  PyObject_HEAD loam_block *block; /* NULL once released */
  PyObject *base;                  /* whose memory it is; NULL: loam's */
  Py_ssize_t exports;              /* buffers in use; release() fails while there are any */
  bool is_given; /* __array_interface__ has given the address, whose users are not counted */
  int is_readonly;
  PyObject *weak; /* weak references to this object */
} Block;

static loam_block *block_of(PyObject *self) {
  loam_block *block = ((Block *)self)->block;
  if (!block) PyErr_SetString(PyExc_ValueError, "the block is released");
  return block;
}

/* Makes a Python object, which takes the reference to `block`. A NULL `block` raises loam's error.
 * `base` may be NULL. */
static PyObject *wrap(PyTypeObject *type, loam_block *block, PyObject *base) {
  if (!block) return binding_fail(LOAM_ENOMEM);
  Block *self = (Block *)type->tp_alloc(type, 0);
  if (self) {
    self->block = block;
    self->base = Py_XNewRef(base);
    if (!base) binding_trace(block, loam_block_size(block));
  } else loam_block_release(block);
  return (PyObject *)self;
}

/* ---- Making */

static PyObject *block_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  static const char *names[] = { "size", "tag", "zero", "align", NULL };
  Py_ssize_t size, align = 0;
  const char *tag = NULL;
  int zero = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "n|z$pn", (char **)names, &size, &tag,
                                   &zero, &align))
    return NULL;
  if (size < 0) return PyErr_Format(PyExc_ValueError, "size %zd: it is negative", size);
  if (align < 0 || (align & (align - 1)))
    return PyErr_Format(PyExc_ValueError, "align %zd: it is not a power of two", align);
  loam_site *site = binding_site(tag, "python.block");
  if (!site) return NULL;
  const loam_handler *before = binding_handler_begin();
  loam_block *block = align  ? loam_block_aligned(site, (size_t)align, (size_t)size)
                      : zero ? loam_block_zeroed(site, (size_t)size)
                             : loam_block_new(site, (size_t)size);
  binding_handler_end(before);
  if (block && align && zero) memset(loam_block_data(block), 0, (size_t)size);
  return wrap(type, block, NULL);
}

Py_buffer *block_buffer(PyObject *of) {
  Py_buffer *view = PyMem_Malloc(sizeof *view);
  if (!view) return (void *)PyErr_NoMemory();
  if (!PyObject_GetBuffer(of, view, PyBUF_FULL_RO)) return view;
  PyMem_Free(view);
  return NULL;
}

void block_buffer_end(Py_buffer *view) {
  PyBuffer_Release(view);
  PyMem_Free(view);
}

/* Releases the wrapped buffer. Any thread may release the last reference, also after the
 * interpreter has ended; then there is no buffer to release. */
static void give_back(void *ptr, size_t size, void *ctx) {
  (void)ptr;
  (void)size;
  if (!Py_IsInitialized()) return;
  PyGILState_STATE state = PyGILState_Ensure();
  block_buffer_end(ctx);
  PyGILState_Release(state);
}

loam_block *block_over(loam_site *site, Py_buffer *view, void *begin, size_t size) {
  loam_block *block = loam_block_wrap(site, begin, size, give_back, view);
  if (block) return block;
  block_buffer_end(view);
  binding_fail(LOAM_ENOMEM);
  return NULL;
}

static PyObject *block_wrap(PyObject *type, PyObject *arguments, PyObject *keywords) {
  static const char *names[] = { "buffer", "tag", NULL };
  PyObject *of;
  const char *tag = NULL;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|z", (char **)names, &of, &tag))
    return NULL;
  loam_site *site = binding_site(tag, "python.block");
  Py_buffer *view = site ? block_buffer(of) : NULL;
  if (!view) return NULL;
  if (!PyBuffer_IsContiguous(view, 'A')) {
    block_buffer_end(view);
    return PyErr_Format(PyExc_BufferError, "the buffer's bytes do not follow one another");
  }
  bool is_readonly = view->readonly;
  loam_block *block = block_over(site, view, view->buf, (size_t)view->len);
  PyObject *self = block ? wrap((PyTypeObject *)type, block, of) : NULL;
  if (self) ((Block *)self)->is_readonly = is_readonly;
  return self;
}

/* ---- Ending */

/* Releases the reference of the Python object, if it has one. */
static void end(Block *self) {
  loam_block *block = self->block;
  self->block = NULL;
  if (block && !self->base) binding_untrace(block);
  loam_block_release(block);
  Py_CLEAR(self->base);
}

static void block_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_ClearWeakRefs(self);
  end((Block *)self);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject *block_release(PyObject *self, PyObject *none) {
  (void)none;
  Block *b = (Block *)self;
  if (b->exports)
    return PyErr_Format(PyExc_BufferError, "the block is in use by %zd buffer%s", b->exports,
                        b->exports == 1 ? "" : "s");
  if (b->is_given)
    return PyErr_Format(PyExc_BufferError, "__array_interface__ has given the block's address: the "
                                           "block ends with the last reference to it");
  end(b);
  Py_RETURN_NONE;
}

/* ---- Memory for other libraries */

static int block_getbuffer(PyObject *self, Py_buffer *view, int flags) {
  loam_block *block = block_of(self);
  view->obj = NULL;
  if (!block) return -1;
  Py_ssize_t size = (Py_ssize_t)loam_block_size(block);
  if (PyBuffer_FillInfo(view, self, loam_block_data(block), size, ((Block *)self)->is_readonly,
                        flags))
    return -1;
  ((Block *)self)->exports++;
  return 0;
}

static void block_releasebuffer(PyObject *self, Py_buffer *view) {
  (void)view;
  ((Block *)self)->exports--;
}

static PyObject *block_interface(PyObject *self, void *none) {
  (void)none;
  loam_block *block = block_of(self);
  if (!block) return NULL;
  PyObject *interface = Py_BuildValue(
      "{s(n)sss(NO)si}", "shape", (Py_ssize_t)loam_block_size(block), "typestr", "|u1", "data",
      PyLong_FromVoidPtr(loam_block_data(block)), ((Block *)self)->is_readonly ? Py_True : Py_False,
      "version", 3);
  if (interface) ((Block *)self)->is_given = true;
  return interface;
}

/* A tensor and its shape. */
typedef struct lent {
  dl_tensor tensor;
  int64_t length;
} lent;

/* Any thread may call this, with or without the interpreter's lock. */
static void end_tensor(dl_tensor *t) {
  loam_block_release(t->manager);
  loam_free(t);
}

static PyObject *block_dlpack(PyObject *self, PyObject *arguments, PyObject *keywords) {
  loam_block *block = block_of(self);
  if (!block || !tensor_can_be_lent(arguments, keywords)) return NULL;
  if (((Block *)self)->is_readonly)
    return PyErr_Format(PyExc_BufferError, "the block is read-only, which a tensor cannot say");
  lent *l = loam_calloc(loam_site_get("loam.block"), 1, sizeof *l);
  if (!l) return binding_fail(LOAM_ENOMEM);
  l->length = (int64_t)loam_block_size(block);
  l->tensor = (dl_tensor){ .data = loam_block_data(block),
                           .device_kind = DL_CPU,
                           .dimensions = 1,
                           .code = DL_UINT,
                           .bits = 8,
                           .lanes = 1,
                           .shape = &l->length,
                           .manager = loam_block_retain(block),
                           .deleter = end_tensor };
  return tensor_capsule(&l->tensor);
}

static PyObject *block_dlpack_device(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  return Py_BuildValue("(ii)", DL_CPU, 0);
}

/* ---- Parts and properties */

static Py_ssize_t block_length(PyObject *self) {
  loam_block *block = block_of(self);
  return block ? (Py_ssize_t)loam_block_size(block) : -1;
}

/* block[i:j]: returns a block over a part, without a copy; it keeps the memory alive. */
static PyObject *block_slice(PyObject *self, PyObject *key) {
  Py_ssize_t start, stop, step, size = block_length(self);
  if (size < 0) return NULL;
  if (!PySlice_Check(key))
    return PyErr_Format(PyExc_TypeError, "a block has slices only: block[start:stop]");
  if (PySlice_Unpack(key, &start, &stop, &step)) return NULL;
  if (step != 1) return PyErr_Format(PyExc_ValueError, "step %zd: it must be 1", step);
  Py_ssize_t length = PySlice_AdjustIndices(size, &start, &stop, step);
  loam_block *parent = ((Block *)self)->block;
  PyObject *part = wrap(Py_TYPE(self), loam_block_slice(parent, (size_t)start, (size_t)length),
                        self);
  if (part) ((Block *)part)->is_readonly = ((Block *)self)->is_readonly;
  return part;
}

static const char *kind_text(loam_block_kind kind) {
  static const char *const texts[] = { "", "embedded", "owned", "external", "slice", "pooled" };
  return (size_t)kind < sizeof texts / sizeof texts[0] ? texts[kind] : "";
}

PyObject *block_bytes(PyObject *of, PyObject *protocol) {
  long version = PyLong_AsLong(protocol);
  if (version == -1 && PyErr_Occurred()) return NULL;
  return version < 5 ? PyBytes_FromObject(of) : PyPickleBuffer_FromObject(of);
}

/* A copy is made from the bytes, and has memory of its own under the tag. */
static PyObject *block_reduce(PyObject *self, PyObject *protocol) {
  loam_block *block = block_of(self);
  PyObject *copies = block ? PyImport_ImportModule("loam.copies") : NULL;
  PyObject *make = copies ? PyObject_GetAttrString(copies, "block") : NULL;
  PyObject *bytes = make ? block_bytes(self, protocol) : NULL;
  PyObject *made = bytes ? Py_BuildValue("(O(Os))", make, bytes, loam_block_tag(block)) : NULL;
  Py_XDECREF(bytes);
  Py_XDECREF(make);
  Py_XDECREF(copies);
  return made;
}

static PyObject *block_repr(PyObject *self) {
  loam_block *block = ((Block *)self)->block;
  if (!block) return PyUnicode_FromString("<loam.Block, released>");
  return PyUnicode_FromFormat("<loam.Block of %zu bytes, %s, tag '%s'>", loam_block_size(block),
                              kind_text(loam_block_kind_of(block)), loam_block_tag(block));
}

static PyObject *get_address(PyObject *self, void *none) {
  (void)none;
  loam_block *block = block_of(self);
  return block ? PyLong_FromVoidPtr(loam_block_data(block)) : NULL;
}

static PyObject *get_tag(PyObject *self, void *none) {
  (void)none;
  loam_block *block = block_of(self);
  return block ? binding_text(loam_block_tag(block)) : NULL;
}

static PyObject *get_kind(PyObject *self, void *none) {
  (void)none;
  loam_block *block = block_of(self);
  return block ? PyUnicode_FromString(kind_text(loam_block_kind_of(block))) : NULL;
}

static PyObject *get_refcount(PyObject *self, void *none) {
  (void)none;
  loam_block *block = block_of(self);
  return block ? PyLong_FromSize_t(loam_block_refcount(block)) : NULL;
}

static PyObject *get_base(PyObject *self, void *none) {
  (void)none;
  PyObject *base = ((Block *)self)->base;
  return Py_NewRef(base ? base : Py_None);
}

static PyObject *get_readonly(PyObject *self, void *none) {
  (void)none;
  return PyBool_FromLong(((Block *)self)->is_readonly);
}

static PyGetSetDef properties[] = {
  { "address", get_address, NULL, "The address of the data.", NULL },
  { "tag", get_tag, NULL, "The tag: what the memory is for.", NULL },
  { "kind", get_kind, NULL,
    "\"embedded\", \"owned\", \"external\" or \"slice\"; see loam_block_kind in loam.h.", NULL },
  { "refcount", get_refcount, NULL, "The number of references at this moment, in C and in Python.",
    NULL },
  { "base", get_base, NULL,
    "The object whose memory this is: the one that was wrapped, or the Block of which this is a\n"
    "part. None for memory of loam.",
    NULL },
  { "readonly", get_readonly, NULL, "True if the memory must not be written.", NULL },
  { "__array_interface__", block_interface, NULL, "The bytes, for NumPy.", NULL },
  { 0 },
};

static PyMethodDef methods[] = {
  { "wrap", (PyCFunction)(void (*)(void))block_wrap, METH_VARARGS | METH_KEYWORDS | METH_CLASS,
    "wrap($type, buffer, tag=None)\n--\n\n"
    "Makes a block over the memory of another object, which it keeps alive; of read-only\n"
    "memory, a read-only block. The bytes are in the order of the memory, also for a buffer in\n"
    "Fortran's order." },
  { "release", block_release, METH_NOARGS,
    "release($self, /)\n--\n\n"
    "Releases this object's reference now. BufferError while buffers of the block are in use,\n"
    "and once its __array_interface__ was read." },
  { "__reduce_ex__", block_reduce, METH_O,
    "__reduce_ex__($self, protocol, /)\n--\n\n"
    "For pickle and copy: a copy of the bytes." },
  { "__dlpack__", (PyCFunction)(void (*)(void))block_dlpack, METH_VARARGS | METH_KEYWORDS,
    "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
    "Returns a DLPack capsule of the bytes, of version 0. BufferError for a copy, and for\n"
    "another device." },
  { "__dlpack_device__", block_dlpack_device, METH_NOARGS,
    "__dlpack_device__($self, /)\n--\n\n"
    "Returns (1, 0): host memory." },
  { 0 },
};

static const char prose[] =
    "Block(size, tag=None, *, zero=False, align=0)\n--\n\n"
    "A block of `size` bytes with counted references. `tag` says what the memory is for; None\n"
    "means the tag of the context, or else \"python.block\". `zero` clears the memory; `align` is\n"
    "a power of two, or 0 for the default.\n\n"
    "Other libraries can use the bytes as a buffer, through __array_interface__ and through\n"
    "DLPack; each user keeps the memory alive. block[i:j] is a block over a part, without a\n"
    "copy. NoMemoryError if there is no memory, or if the policy denies it.";

static PyMemberDef members[] = { BINDING_WEAK(Block), { 0 } };

static PyType_Slot slots[] = {
  { Py_tp_doc, (void *)prose },
  { Py_tp_new, (void *)block_new },
  { Py_tp_dealloc, (void *)block_dealloc },
  { Py_tp_repr, (void *)block_repr },
  { Py_tp_methods, methods },
  { Py_tp_members, members },
  { Py_tp_getset, properties },
  { Py_mp_length, (void *)block_length },
  { Py_mp_subscript, (void *)block_slice },
  { Py_bf_getbuffer, (void *)block_getbuffer },
  { Py_bf_releasebuffer, (void *)block_releasebuffer },
  { 0, NULL },
};

static PyType_Spec spec = { .name = "loam.Block",
                            .basicsize = sizeof(Block),
                            .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                            .slots = slots };

int block_add(PyObject *module) {
  PyObject *type = PyType_FromSpec(&spec);
  int status = type ? PyModule_AddObjectRef(module, "Block", type) : -1;
  Py_XDECREF(type);
  return status;
}
