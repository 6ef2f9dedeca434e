/* entries.c - C functions whose addresses CuPy gets, and helpers that torch.c shares: the tags of
 * threads, and memory of a named device.
 *
 * The functions may be called in any thread, with the interpreter's lock or without: PyTorch frees
 * memory and runs the backward pass in threads of its own. With the lock, the tag is the tag of the
 * context, as everywhere in Python. Without the lock, it is the tag that loam.tag has left in this
 * thread, or else the tag in force everywhere. Frees need no tag: a block knows its tag. */
#include "entries.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "tags.h"

static bool is_listening;               /* entries_tell stores tags */
static _Thread_local loam_site *here;   /* the innermost tag entered in this thread */
static _Atomic(loam_site *) everywhere; /* relaxed: sites are never freed, nor changed */

EXPORT void *loam_cupy_malloc(void *param, size_t size, int device);
EXPORT void loam_cupy_free(void *param, void *ptr, int device);

/* ---- Tags */

/* Returns the site of the context's tag, or NULL. Needs the interpreter's lock; leaves no
 * exception. */
static loam_site *site_of_context(void) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *name = tags_current();
  loam_site *site = NULL;
  if (name && PyUnicode_Check(name)) {
    const char *utf8 = PyUnicode_AsUTF8(name);
    if (utf8) site = loam_site_get(utf8);
  }
  Py_XDECREF(name);
  PyErr_Restore(type, value, traceback);
  return site;
}

loam_site *entries_site(const char *otherwise) {
  loam_site *site = binding_has_lock() ? site_of_context() : here;
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

int entries_tell(PyObject *own, PyObject *all) {
  loam_site *of_all;
  if (!is_listening) return 0;
  if (site_of(all, &of_all) || site_of(own, &here)) return -1;
  atomic_store_explicit(&everywhere, of_all, memory_order_relaxed);
  return 0;
}

void entries_listen(void) { is_listening = true; }

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

static atomic_bool on_streams; /* relaxed: memory was allocated on a stream that may be destroyed */

enum { STREAM_DEFAULT = 2 }; /* the last of the driver's constants for streams that always exist */

/* CuPy calls these functions with the interpreter's lock. They release it, because the driver may
 * wait for work whose callbacks need it, and another thread may hold a lock of loam while it waits
 * for the driver. */
static PyThreadState *let_go(void) { return binding_has_lock() ? PyEval_SaveThread() : NULL; }

static void take_again(PyThreadState *state) {
  if (state) PyEval_RestoreThread(state);
}

/* `param` is a function of CuPy that returns this thread's current stream, or NULL. */
EXPORT void *loam_cupy_malloc(void *param, size_t size, int device) {
  intptr_t (*current_stream)(void) = NULL;
  memcpy(&current_stream, &param, sizeof param);
  void *stream = current_stream ? (void *)current_stream() : NULL;
  if (stream == (void *)-1) return NULL; /* CuPy's function has failed and set an exception */
  loam_site *site = entries_site("cupy.data");
  if ((uintptr_t)stream > STREAM_DEFAULT)
    atomic_store_explicit(&on_streams, true, memory_order_relaxed);
  PyThreadState *state = let_go();
  void *ptr = entries_allocate(site, size, device, stream);
  take_again(state);
  return ptr;
}

/* Returns whether a free uses the stream of the allocation. loam's own pools do not use it; a
 * driver's pools do. An array may outlive its stream. */
static bool needs_stream(const void *ptr) {
  loam_owner_info info;
  return loam_owner(ptr, &info) == LOAM_OK && (uintptr_t)info.stream > STREAM_DEFAULT &&
         strcmp(info.handler, "loam") != 0;
}

/* Frees memory for reuse on the stream of its allocation, as CuPy's own pool does. A free that
 * would use that stream is collected instead, and waits for all work of the device. */
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

/* entries_free(address): frees pinned memory. CuPy frees it when its copies have ended. */
static PyObject *entries_free(PyObject *self, PyObject *address) {
  (void)self;
  void *ptr = PyLong_AsVoidPtr(address);
  if (!ptr && PyErr_Occurred()) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  loam_free(ptr);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

/* entries_words(): returns why the last allocation of this thread failed. */
static PyObject *entries_words(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  return binding_text(loam_error());
}

/* entries_cupy(): returns the addresses of loam_cupy_malloc and loam_cupy_free. */
static PyObject *entries_cupy(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  return Py_BuildValue("NN", PyLong_FromVoidPtr((void *)loam_cupy_malloc),
                       PyLong_FromVoidPtr((void *)loam_cupy_free));
}

/* entries_capsule(capsule): returns the address of a C function that another extension module
 * exports in a capsule, if it takes no arguments and returns an intptr_t; 0 for other functions. */
static PyObject *entries_capsule(PyObject *self, PyObject *capsule) {
  (void)self;
  const char *name = PyCapsule_GetName(capsule);
  if (!name && PyErr_Occurred()) return NULL;
  bool fits = name && (!strcmp(name, "intptr_t (void)") || !strcmp(name, "intptr_t ()"));
  void *function = fits ? PyCapsule_GetPointer(capsule, name) : NULL;
  return PyErr_Occurred() ? NULL : PyLong_FromVoidPtr(function);
}

PyMethodDef entries_methods[] = {
  { "entries_cupy", entries_cupy, METH_NOARGS, NULL },
  { "entries_capsule", entries_capsule, METH_O, NULL },
  { "entries_free", entries_free, METH_O, NULL },
  { "entries_words", entries_words, METH_NOARGS, NULL },
  { 0 },
};
