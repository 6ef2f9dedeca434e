/* arena.c - loam.Arena and its pieces: many small pieces of memory that are freed together. */
#include "block.h"

#include <stdbool.h>

typedef struct Arena {
  PyObject_HEAD loam_block *block;
  bool is_changing; /* an operation has not ended; a function of loam.on_memory may run in it */
  bool is_resizable, is_final;
  void *last; /* the piece that was made last, which can always be resized; NULL: there is none */
  PyObject *weak; /* weak references to this object */
} Arena;

typedef struct Piece {
  PyObject_HEAD loam_block *arena; /* a reference: a buffer keeps all pieces alive */
  PyObject *owner;                 /* the Arena, which tells tracemalloc of the memory */
  void *data;
  Py_ssize_t size;
  Py_ssize_t exports; /* buffers in use; the piece must not move while there are any */
} Piece;

static PyTypeObject *piece_type;

/* ---- Pieces */

/* Begins an operation that changes the arena; the caller clears `is_changing` at its end. Returns
 * false with BufferError set if an earlier operation on the arena has not ended. */
static bool begin_change(Arena *arena) {
  if (arena->is_changing) {
    PyErr_SetString(PyExc_BufferError, "the arena is being changed");
    return false;
  }
  return arena->is_changing = true;
}

/* Raises StateError. loam.h returns NULL both for a wrong state and where there is no memory. */
static PyObject *fail_state(const char *words) {
  return binding_fail_with(LOAM_ESTATE, PyUnicode_FromString(words));
}

static PyObject *piece_of(PyObject *owner, void *data, Py_ssize_t size) {
  loam_block *arena = ((Arena *)owner)->block;
  if (!data) return binding_fail(LOAM_ENOMEM);
  Piece *p = (Piece *)piece_type->tp_alloc(piece_type, 0);
  if (!p) return NULL;
  p->arena = loam_block_retain(arena);
  p->owner = Py_NewRef(owner);
  p->data = data;
  p->size = size;
  binding_trace(arena, loam_block_size(arena));
  return (PyObject *)p;
}

static void piece_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  loam_block_release(((Piece *)self)->arena);
  Py_DECREF(((Piece *)self)->owner);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject *piece_resize(PyObject *self, PyObject *given) {
  Piece *p = (Piece *)self;
  Py_ssize_t size = PyLong_AsSsize_t(given);
  if (size == -1 && PyErr_Occurred()) return NULL;
  if (size < 0) return PyErr_Format(PyExc_ValueError, "size %zd: it is negative", size);
  if (p->exports)
    return PyErr_Format(PyExc_BufferError, "the piece is in use by %zd buffer%s", p->exports,
                        p->exports == 1 ? "" : "s");
  Arena *owner = (Arena *)p->owner;
  if (owner->is_final) return fail_state("the arena is finalized: no piece can be resized");
  if (!owner->is_resizable && p->data != owner->last)
    return fail_state("it is not the last piece, and the arena is not resizable");
  if (!begin_change(owner)) return NULL;
  void *data = loam_arena_resize(p->arena, p->data, (size_t)size);
  owner->is_changing = false;
  if (!data) return binding_fail(LOAM_ENOMEM);
  if (p->data == owner->last) owner->last = data;
  p->data = data;
  p->size = size;
  binding_trace(p->arena, loam_block_size(p->arena));
  Py_RETURN_NONE;
}

static int piece_getbuffer(PyObject *self, Py_buffer *view, int flags) {
  Piece *p = (Piece *)self;
  view->obj = NULL;
  if (((Arena *)p->owner)->is_changing) {
    PyErr_SetString(PyExc_BufferError, "the arena is being changed");
    return -1;
  }
  if (PyBuffer_FillInfo(view, self, p->data, p->size, 0, flags)) return -1;
  p->exports++;
  return 0;
}

static void piece_releasebuffer(PyObject *self, Py_buffer *view) {
  (void)view;
  ((Piece *)self)->exports--;
}

static Py_ssize_t piece_length(PyObject *self) { return ((Piece *)self)->size; }

static PyMethodDef piece_methods[] = {
  { "resize", piece_resize, METH_O,
    "resize($self, size, /)\n--\n\n"
    "Gives the piece a new size and keeps its contents. In an arena that is not resizable, only\n"
    "the last piece can be resized (StateError). BufferError while buffers of it are in use." },
  { 0 },
};

static PyType_Slot piece_slots[] = {
  { Py_tp_doc, (void *)"A piece of an arena: a buffer of bytes, which keeps the arena alive." },
  { Py_tp_dealloc, (void *)piece_dealloc },
  { Py_tp_methods, piece_methods },
  { Py_mp_length, (void *)piece_length },
  { Py_bf_getbuffer, (void *)piece_getbuffer },
  { Py_bf_releasebuffer, (void *)piece_releasebuffer },
  { 0, NULL },
};

static PyType_Spec piece_spec = { .name = "loam.Piece",
                                  .basicsize = sizeof(Piece),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE |
                                           Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  .slots = piece_slots };

/* ---- Arenas */

static PyObject *arena_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  static const char *names[] = { "tag", "resizable", "zero", NULL };
  const char *tag = NULL;
  int resizable = 0, zero = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|z$pp", (char **)names, &tag, &resizable,
                                   &zero))
    return NULL;
  loam_site *site = binding_site(tag, "python.block");
  if (!site) return NULL;
  int flags = (resizable ? LOAM_ARENA_RESIZABLE : 0) | (zero ? LOAM_ARENA_ZEROED : 0);
  const loam_handler *before = binding_handler_begin();
  loam_block *block = loam_arena_new(site, flags, 0);
  binding_handler_end(before);
  if (!block) return binding_fail(LOAM_ENOMEM);
  Arena *self = (Arena *)type->tp_alloc(type, 0);
  if (self) {
    self->block = block;
    self->is_resizable = resizable;
  } else loam_block_release(block);
  return (PyObject *)self;
}

static void arena_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_ClearWeakRefs(self);
  binding_untrace(((Arena *)self)->block);
  loam_block_release(((Arena *)self)->block);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject *arena_alloc(PyObject *self, PyObject *arguments, PyObject *keywords) {
  static const char *names[] = { "size", "align", NULL };
  Py_ssize_t size, align = 16;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "n|n", (char **)names, &size, &align))
    return NULL;
  if (size < 0) return PyErr_Format(PyExc_ValueError, "size %zd: it is negative", size);
  if (align <= 0 || (align & (align - 1)))
    return PyErr_Format(PyExc_ValueError, "align %zd: it is not a power of two", align);
  Arena *arena = (Arena *)self;
  if (arena->is_final) return fail_state("the arena is finalized: no piece can be allocated");
  if (!begin_change(arena)) return NULL;
  void *data = loam_arena_alloc(arena->block, (size_t)align, (size_t)size);
  arena->is_changing = false;
  if (data) arena->last = data;
  return piece_of(self, data, size);
}

static PyObject *arena_reset(PyObject *self, PyObject *none) {
  (void)none;
  loam_block *block = ((Arena *)self)->block;
  if (!begin_change((Arena *)self)) return NULL;
  loam_status status = loam_arena_reset(block);
  ((Arena *)self)->is_changing = false;
  if (!status) {
    ((Arena *)self)->is_final = false;
    ((Arena *)self)->last = NULL;
    binding_trace(block, loam_block_size(block));
  }
  return binding_done(status);
}

static PyObject *arena_finalize(PyObject *self, PyObject *none) {
  (void)none;
  if (!begin_change((Arena *)self)) return NULL;
  loam_status status = loam_arena_finalize(((Arena *)self)->block);
  ((Arena *)self)->is_changing = false;
  if (!status) ((Arena *)self)->is_final = true;
  return binding_done(status);
}

static Py_ssize_t arena_length(PyObject *self) {
  return (Py_ssize_t)loam_block_size(((Arena *)self)->block);
}

static PyObject *arena_tag(PyObject *self, void *none) {
  (void)none;
  return binding_text(loam_block_tag(((Arena *)self)->block));
}

static PyMethodDef arena_methods[] = {
  { "alloc", (PyCFunction)(void (*)(void))arena_alloc, METH_VARARGS | METH_KEYWORDS,
    "alloc($self, size, align=16)\n--\n\n"
    "Returns a new piece of `size` bytes; `align` is a power of two. StateError once the arena\n"
    "is finalized." },
  { "reset", arena_reset, METH_NOARGS,
    "reset($self, /)\n--\n\n"
    "Frees all pieces. StateError while a piece is still referenced." },
  { "finalize", arena_finalize, METH_NOARGS,
    "finalize($self, /)\n--\n\n"
    "Allows no more pieces and no more resizing until a reset, and gives spare memory back." },
  { 0 },
};

static PyGetSetDef arena_properties[] = {
  { "tag", arena_tag, NULL, "The tag: what the memory is for.", NULL },
  { 0 },
};

static const char prose[] =
    "Arena(tag=None, *, resizable=False, zero=False)\n--\n\n"
    "Many small pieces of memory under one tag, which are freed together. len(arena) is the sum\n"
    "of the pieces' sizes. `tag` None means the tag of the context, or else \"python.block\".\n\n"
    "Pieces stand one after another, and only the last piece can be resized; with `resizable`,\n"
    "every piece can. With `zero`, new bytes are zero.";

static PyMemberDef arena_members[] = { BINDING_WEAK(Arena), { 0 } };

static PyType_Slot arena_slots[] = {
  { Py_tp_doc, (void *)prose },
  { Py_tp_new, (void *)arena_new },
  { Py_tp_dealloc, (void *)arena_dealloc },
  { Py_tp_methods, arena_methods },
  { Py_tp_members, arena_members },
  { Py_tp_getset, arena_properties },
  { Py_mp_length, (void *)arena_length },
  { 0, NULL },
};

static PyType_Spec arena_spec = { .name = "loam.Arena",
                                  .basicsize = sizeof(Arena),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                                  .slots = arena_slots };

int arena_add(PyObject *module) {
  piece_type = (PyTypeObject *)PyType_FromSpec(&piece_spec);
  PyObject *type = piece_type ? PyType_FromSpec(&arena_spec) : NULL;
  int status = type ? PyModule_AddObjectRef(module, "Arena", type) : -1;
  Py_XDECREF(type);
  return status;
}
