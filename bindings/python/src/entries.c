/* entries.c - functions of C that CuPy is told the addresses of, and what torch.c shares with them:
 * tags of threads, and memory of the device that is named.
 *
 * They may come in any thread, with the interpreter's lock or without: PyTorch frees, and runs the
 * backward pass, in threads of its own. With the lock the tag is the context's, as everywhere in
 * Python. Without it, it is the one that loam.tag left with this thread, and where it left none,
 * the one that is in force everywhere. Frees need no tag: a block knows its own. */
#include "entries.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

static PyObject *variable;              /* loam.tags' context variable */
static _Thread_local loam_site *here;   /* the innermost tag entered in this thread */
static _Atomic(loam_site *) everywhere; /* relaxed: sites are never freed, nor changed */

EXPORT void *loam_cupy_malloc(void *param, size_t size, int device);
EXPORT void loam_cupy_free(void *param, void *ptr, int device);

/* ---- Tags */

/* The context's, by the interpreter's lock; NULL: it has none. No exception is left. */
static loam_site *site_of_context(void) {
  PyObject *name = NULL, *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  loam_site *site = NULL;
  if (!PyContextVar_Get(variable, NULL, &name) && name && PyUnicode_Check(name)) {
    const char *utf8 = PyUnicode_AsUTF8(name);
    if (utf8) site = loam_site_get(utf8);
  }
  Py_XDECREF(name);
  PyErr_Restore(type, value, traceback);
  return site;
}

loam_site *entries_site(const char *otherwise) {
  loam_site *site = NULL;
  if (!Py_IsInitialized() || !PyGILState_Check()) site = here;
  else if (variable) site = site_of_context();
  if (!site) site = atomic_load_explicit(&everywhere, memory_order_relaxed);
  return site ? site : loam_site_get(otherwise);
}

static int site_of(PyObject *name, loam_site **out) {
  const char *utf8 = name == Py_None ? NULL : PyUnicode_AsUTF8(name);
  if (!utf8 && name != Py_None) return -1;
  *out = utf8 ? loam_site_get(utf8) : NULL;
  if (!utf8 || *out) return 0;
  binding_fail(LOAM_EINVAL);
  return -1;
}

/* (this context's tag or None, everyone's or None), for threads without the lock. */
static PyObject *entries_tag(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *own, *all;
  loam_site *of_all;
  if (!PyArg_ParseTuple(args, "OO", &own, &all)) return NULL;
  if (site_of(all, &of_all) || site_of(own, &here)) return NULL;
  atomic_store_explicit(&everywhere, of_all, memory_order_relaxed);
  Py_RETURN_NONE;
}

static PyObject *entries_variable(PyObject *self, PyObject *given) {
  (void)self;
  Py_INCREF(given);
  Py_XDECREF(variable);
  variable = given;
  Py_RETURN_NONE;
}

/* ---- Memory */

void *entries_allocate(loam_site *site, size_t size, int device, void *stream) {
  if (loam_device_count() == 1) return loam_device_alloc(site, size, stream);
  const loam_manager *m = loam_manager_get();
  void *ptr = NULL;
  loam_scope_enter(site);
  if (m->memalloc_async(m->ctx, device, size, stream, &ptr) != LOAM_OK) ptr = NULL;
  loam_scope_leave();
  return ptr;
}

/* ---- CuPy: CFunctionAllocator */

static atomic_bool on_streams; /* relaxed: memory was allocated on a stream that may go */

enum { STREAM_DEFAULT = 2 }; /* the last of the driver's names for streams that are always there */

/* CuPy calls these with the interpreter's lock. It is let go of: the driver may wait for work whose
 * callbacks need it, and another thread may hold one of loam's locks while it waits so. */
static PyThreadState *let_go(void) {
  return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : NULL;
}

static void take_again(PyThreadState *state) {
  if (state) PyEval_RestoreThread(state);
}

/* `param` is CuPy's own function that tells this thread's current stream, or NULL. */
EXPORT void *loam_cupy_malloc(void *param, size_t size, int device) {
  intptr_t (*current_stream)(void) = NULL;
  memcpy(&current_stream, &param, sizeof param);
  void *stream = current_stream ? (void *)current_stream() : NULL;
  if (stream == (void *)-1) return NULL; /* it could not tell, and has set an exception */
  loam_site *site = entries_site("cupy.data");
  if ((uintptr_t)stream > STREAM_DEFAULT)
    atomic_store_explicit(&on_streams, true, memory_order_relaxed);
  PyThreadState *state = let_go();
  void *ptr = entries_allocate(site, size, device, stream);
  take_again(state);
  return ptr;
}

/* An array may outlive its stream. Loam's own pools touch no stream for a free; a driver's do. */
static bool needs_stream(const void *ptr) {
  loam_owner_info info;
  return loam_owner(ptr, &info) == LOAM_OK && (uintptr_t)info.stream > STREAM_DEFAULT &&
         strcmp(info.handler, "loam") != 0;
}

/* As CuPy's own pool takes it: for reuse on the stream that it was allocated on. What would need
 * that stream waits, with others like it, for all work of the device. */
EXPORT void loam_cupy_free(void *param, void *ptr, int device) {
  (void)param;
  PyThreadState *state = let_go();
  if (atomic_load_explicit(&on_streams, memory_order_relaxed) && needs_stream(ptr)) {
    const loam_manager *m = loam_manager_get();
    m->memfree(m->ctx, device, ptr, loam_usable_size(ptr));
  } else {
    loam_free(ptr);
  }
  take_again(state);
}

/* Pinned memory, which CuPy drops when its copies have ended. */
static PyObject *entries_free(PyObject *self, PyObject *address) {
  (void)self;
  void *ptr = PyLong_AsVoidPtr(address);
  if (!ptr && PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  loam_free(ptr);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

/* Why this thread's last call of these gave no memory. */
static PyObject *entries_words(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  return binding_text(loam_error());
}

static PyObject *entries_cupy(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  return Py_BuildValue("NN", PyLong_FromVoidPtr((void *)loam_cupy_malloc),
                       PyLong_FromVoidPtr((void *)loam_cupy_free));
}

/* The address of a function that another module of C makes known: of one that takes nothing and
 * returns a number as wide as a pointer. 0: it is of another kind. */
static PyObject *entries_capsule(PyObject *self, PyObject *capsule) {
  (void)self;
  const char *name = PyCapsule_GetName(capsule);
  if (!name && PyErr_Occurred()) return NULL;
  bool fits = name && (!strcmp(name, "intptr_t (void)") || !strcmp(name, "intptr_t ()"));
  void *function = fits ? PyCapsule_GetPointer(capsule, name) : NULL;
  return PyErr_Occurred() ? NULL : PyLong_FromVoidPtr(function);
}

PyMethodDef entries_methods[] = {
  { "entries_tag", entries_tag, METH_VARARGS, NULL },
  { "entries_variable", entries_variable, METH_O, NULL },
  { "entries_cupy", entries_cupy, METH_NOARGS, NULL },
  { "entries_capsule", entries_capsule, METH_O, NULL },
  { "entries_free", entries_free, METH_O, NULL },
  { "entries_words", entries_words, METH_NOARGS, NULL },
  { 0 },
};
