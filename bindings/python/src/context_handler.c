/* context_handler.c - the handler (NEP 49) that a context has set for Blocks, Arrays and Arenas.
 *
 * The current handler of loam.h belongs to a thread, and all tasks of the thread share it. So the
 * package keeps the handler in a context variable, which follows tasks, and sets it in the thread
 * only around the call that makes a block. */
#include "binding.h"

#include <string.h>

#define CAPSULE "mem_handler" /* the name that NumPy gives such capsules */

static PyObject *variable; /* NULL: no context has set a handler yet */

/* Returns the capsule that this context has set, which the caller releases; NULL if it has none. */
static PyObject *find_capsule(void) {
  PyObject *capsule = NULL;
  if (variable && PyContextVar_Get(variable, NULL, &capsule)) PyErr_Clear();
  if (capsule == Py_None) Py_CLEAR(capsule);
  return capsule;
}

const loam_handler *binding_handler_begin(void) {
  PyObject *capsule = find_capsule();
  if (!capsule) return NULL;
  const loam_handler *handler = PyCapsule_GetPointer(capsule, CAPSULE);
  Py_DECREF(capsule); /* it is kept for good */
  return handler ? loam_handler_set(handler) : NULL;
}

void binding_handler_end(const loam_handler *before) {
  if (before) loam_handler_set(before);
}

const loam_handler *binding_handler(PyObject *capsule) {
  if (!PyCapsule_CheckExact(capsule)) {
    PyErr_Format(PyExc_TypeError, "a handler is a capsule \"" CAPSULE "\", not %s",
                 Py_TYPE(capsule)->tp_name);
    return NULL;
  }
  const char *name = PyCapsule_GetName(capsule);
  if (name && !strcmp(name, CAPSULE)) return PyCapsule_GetPointer(capsule, CAPSULE);
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_ValueError, "a handler is a capsule \"" CAPSULE "\", not %R", capsule);
  return NULL;
}

/* Returns whether a capsule has a handler that can be called; sets an exception if not. */
static int is_usable(PyObject *capsule) {
  const loam_handler *handler = binding_handler(capsule);
  const loam_handler *before = handler ? loam_handler_set(handler) : NULL;
  if (before) loam_handler_set(before);
  else if (handler) binding_fail(LOAM_EINVAL);
  return before != NULL;
}

static PyObject *get_handler(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  PyObject *capsule = find_capsule();
  return capsule ? capsule : Py_NewRef(Py_None);
}

/* set_handler(capsule or None): sets the handler of this context and returns the previous one. The
 * capsule is kept for good, because blocks keep their handler. */
static PyObject *set_handler(PyObject *self, PyObject *capsule) {
  if (capsule != Py_None && !is_usable(capsule)) return NULL;
  if (!variable) variable = PyContextVar_New("loam_handler", NULL);
  PyObject *before = variable ? get_handler(self, NULL) : NULL;
  PyObject *token = before ? PyContextVar_Set(variable, capsule) : NULL;
  if (!token) {
    Py_XDECREF(before);
    return NULL;
  }
  Py_DECREF(token);
  if (capsule != Py_None) Py_INCREF(capsule);
  return before;
}

PyMethodDef handler_methods[] = {
  { "get_handler", get_handler, METH_NOARGS, NULL },
  { "set_handler", set_handler, METH_O, NULL },
  { 0 },
};
