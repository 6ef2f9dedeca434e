/* hooks.c - Python functions that are called for each block, and handlers of other libraries.
 *
 * A callback of loam may run in any thread, with or without the interpreter's lock, also while an
 * exception is set. So it takes the lock, puts the exception aside, and calls the Python function.
 * loam holds no lock then, and does not report what the function allocates and frees. */
#define _GNU_SOURCE 1
#include "binding.h"

#include <stdbool.h>
#include <unistd.h>

/* The Python functions; NULL: none. They are read and written with the interpreter's lock. */
static PyObject *memory_function, *block_function;

/* Raises an exception, whose reference it takes. */
static int raise_again(void *error) {
  PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_DECREF(error);
  return -1;
}

/* Returns whether the exception that is set is one that ends programs, such as SystemExit or
 * KeyboardInterrupt, in the main thread. Python runs signal handlers in that thread at any moment,
 * so a handler has probably raised it. */
static bool is_end(void) {
  return !PyErr_ExceptionMatches(PyExc_Exception) && gettid() == getpid();
}

/* Clears the exception that is set, and has it raised in the main thread soon after the callback of
 * loam. Returns false, with the exception set again, if that is not possible. */
static bool defer(void) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace) PyException_SetTraceback(value, trace);
  if (Py_AddPendingCall(raise_again, value)) {
    PyErr_Restore(type, value, trace);
    return false;
  }
  Py_DECREF(type);
  Py_XDECREF(trace);
  return true;
}

/* Calls a function with a tuple, which it releases. The code that allocates cannot handle an
 * exception of the function. So sys.unraisablehook reports it, unless it is to end the program. */
static void call(PyObject *function, PyObject *arguments) {
  PyObject *result = arguments ? PyObject_Call(function, arguments, NULL) : NULL;
  if (!result && !(is_end() && defer())) PyErr_WriteUnraisable(function);
  Py_XDECREF(result);
  Py_XDECREF(arguments);
}

/* The state of the interpreter around a call. */
typedef struct guard {
  PyGILState_STATE state;
  PyObject *type, *value, *trace;
} guard;

static guard enter(void) {
  guard g = { .state = PyGILState_Ensure() };
  PyErr_Fetch(&g.type, &g.value, &g.trace);
  return g;
}

static void leave(guard g) {
  PyErr_Restore(g.type, g.value, g.trace);
  PyGILState_Release(g.state);
}

static void tell_memory(void *ctx, void *from, void *to, size_t size) {
  (void)ctx;
  if (!Py_IsInitialized()) return;
  guard g = enter();
  PyObject *function = Py_XNewRef(memory_function);
  if (function)
    call(function, Py_BuildValue("(NNn)", PyLong_FromVoidPtr(from), PyLong_FromVoidPtr(to),
                                 (Py_ssize_t)size));
  Py_XDECREF(function);
  leave(g);
}

static const char *verb_text(loam_block_verb verb) {
  static const char *const texts[] = { "", "made", "retained", "released", "ended" };
  return (size_t)verb < sizeof texts / sizeof texts[0] ? texts[verb] : "";
}

static void tell_block(void *ctx, loam_block_verb verb, const loam_block *block,
                       size_t references) {
  (void)ctx;
  if (!Py_IsInitialized()) return;
  guard g = enter();
  PyObject *function = Py_XNewRef(block_function);
  if (function)
    call(function, Py_BuildValue("(sNNnn)", verb_text(verb), PyLong_FromVoidPtr((void *)block),
                                 binding_text(loam_block_tag(block)),
                                 (Py_ssize_t)loam_block_size(block), (Py_ssize_t)references));
  Py_XDECREF(function);
  leave(g);
}

/* Puts a function, or None, in the place of the present one, which it returns. */
static PyObject *swap(PyObject **place, PyObject *function) {
  PyObject *before = *place;
  *place = function == Py_None ? NULL : Py_NewRef(function);
  return before ? before : Py_NewRef(Py_None);
}

/* Under the preload library every malloc of the process is a block, also one inside the dynamic
 * linker, where no Python code can run. */
static bool may_hook(PyObject *function) {
  if (function != Py_None && !PyCallable_Check(function))
    PyErr_Format(PyExc_TypeError, "%R is not callable", function);
  else if (function != Py_None && binding_is_preloaded())
    PyErr_SetString(PyExc_RuntimeError, "under `loam run` every malloc is a block of loam: Python "
                                        "functions cannot be called for each");
  return !PyErr_Occurred();
}

/* hook_memory(function or None): returns the previous function or None. */
static PyObject *hook_memory(PyObject *self, PyObject *function) {
  (void)self;
  if (!may_hook(function)) return NULL;
  if (!memory_function && function == Py_None) Py_RETURN_NONE; /* C code may have a hook */
  PyObject *before = swap(&memory_function, function);
  loam_on_memory(memory_function ? tell_memory : NULL, NULL);
  return before;
}

/* memory_hook(): returns the function of hook_memory, or None. */
static PyObject *memory_hook(PyObject *self, PyObject *unused) {
  (void)self;
  (void)unused;
  return Py_NewRef(memory_function ? memory_function : Py_None);
}

/* hook_block(function or None): returns the previous function or None. */
static PyObject *hook_block(PyObject *self, PyObject *function) {
  (void)self;
  if (!may_hook(function)) return NULL;
  if (!block_function && function == Py_None) Py_RETURN_NONE; /* C code may have a hook */
  PyObject *before = swap(&block_function, function);
  loam_on_block(block_function ? tell_block : NULL, NULL);
  return before;
}

/* register_handler(capsule): makes the handler of a capsule "mem_handler" known to policies, and
 * returns its name. The capsule is kept for good, because blocks keep their handler. */
static PyObject *register_handler(PyObject *self, PyObject *capsule) {
  (void)self;
  const loam_handler *handler = binding_handler(capsule);
  if (!handler) return NULL;
  loam_status status = loam_handler_register(handler);
  if (status) return binding_fail(status);
  Py_INCREF(capsule);
  return binding_text(handler->name);
}

PyMethodDef hooks_methods[] = {
  { "hook_memory", hook_memory, METH_O, NULL },
  { "memory_hook", memory_hook, METH_NOARGS, NULL },
  { "hook_block", hook_block, METH_O, NULL },
  { "register_handler", register_handler, METH_O, NULL },
  { 0 },
};
