/* numpy.c - loam._numpy: loam's handlers as NumPy's, and what NumPy's public functions leave open.
 *
 * A loam_handler is a PyDataMem_Handler. Ours live as long as the process, and so an array may be
 * freed after everything else is gone. */
#include "binding.h"

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION /* NumPy 2 declares NEP 49 only where asked */
#include <numpy/arrayobject.h>

#include "handler.h"

#define CAPSULE "mem_handler" /* the name that NumPy asks for */

_Static_assert(sizeof(loam_handler) == sizeof(PyDataMem_Handler) &&
                   offsetof(loam_handler, version) == offsetof(PyDataMem_Handler, version) &&
                   offsetof(loam_handler, allocator) == offsetof(PyDataMem_Handler, allocator),
               "the layouts are one");

/* ---- Capsules */

/* handler_of(tag, sites, touch): a capsule of the handler that allocates for the tag, None for what
 * has none. */
static PyObject *handler_of(PyObject *self, PyObject *arguments) {
  (void)self;
  const char *tag;
  int sites, touch;
  if (!PyArg_ParseTuple(arguments, "zpp", &tag, &sites, &touch)) return NULL;
  int flags = (sites ? HANDLER_SITES : 0) | (touch ? HANDLER_TOUCH : 0);
  const loam_handler *handler = handler_make(tag, flags);
  return handler ? PyCapsule_New((void *)handler, CAPSULE, NULL) : NULL;
}

static PyObject *set_handler(PyObject *self, PyObject *capsule) {
  (void)self;
  return PyDataMem_SetHandler(capsule == Py_None ? NULL : capsule);
}

/* Whether a capsule's handler is one of ours. */
static PyObject *is_ours(PyObject *self, PyObject *capsule) {
  (void)self;
  const loam_handler *h = PyCapsule_GetPointer(capsule, CAPSULE);
  return h ? PyBool_FromLong(handler_is_ours(h)) : NULL;
}

static PyObject *default_handler(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  Py_INCREF(PyDataMem_DefaultHandler);
  return PyDataMem_DefaultHandler;
}

/* ---- The default of NumPy's context variable
 *
 * NumPy keeps the current handler in a ContextVar. A new thread, and a context made from nothing,
 * see the variable's default, which Python lets nobody change. Here it is changed: the one word of
 * the object that holds the default is found by its value, whatever else the object has, and
 * replaced. More than one such word, or none, is not what we know, and nothing is done. */

static PyObject **find_word(PyObject *object, const PyObject *value) {
  PyObject **word = (PyObject **)(object + 1), **found = NULL;
  PyObject **end = (PyObject **)((char *)object + Py_TYPE(object)->tp_basicsize);
  for (; word < end; word++) {
    if (*word != value) continue;
    if (found) return NULL;
    found = word;
  }
  return found;
}

/* swap_default(variable, old, new): True if `old` was its default and `new` is it now. */
static PyObject *swap_default(PyObject *self, PyObject *arguments) {
  (void)self;
  PyObject *variable, *old, *new;
  if (!PyArg_ParseTuple(arguments, "O!OO", &PyContextVar_Type, &variable, &old, &new)) return NULL;
  PyObject **word = find_word(variable, old);
  if (!word) Py_RETURN_FALSE;
  Py_INCREF(new);
  *word = new;
  Py_DECREF(old);
  Py_RETURN_TRUE;
}

/* ---- The module */

static PyMethodDef methods[] = {
  { "handler_of", handler_of, METH_VARARGS, NULL },
  { "set_handler", set_handler, METH_O, NULL },
  { "is_ours", is_ours, METH_O, NULL },
  { "default_handler", default_handler, METH_NOARGS, NULL },
  { "swap_default", swap_default, METH_VARARGS, NULL },
  { 0 },
};

static int execute(PyObject *module) {
  (void)module;
  import_array1(-1);
  return 0;
}

static PyModuleDef_Slot slots[] = { { Py_mod_exec, (void *)execute }, { 0, NULL } };

static PyModuleDef definition = { PyModuleDef_HEAD_INIT, .m_name = "loam._numpy",
                                  .m_methods = methods, .m_slots = slots };

PyMODINIT_FUNC PyInit__numpy(void);
PyMODINIT_FUNC PyInit__numpy(void) { return PyModuleDef_Init(&definition); }
