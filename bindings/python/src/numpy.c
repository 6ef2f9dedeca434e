/* numpy.c - loam._numpy: loam's handlers as NumPy's handlers, and the default handler, which
 * NumPy's public functions cannot change.
 *
 * A loam_handler is a PyDataMem_Handler. These handlers live as long as the process, so an array
 * may be freed after everything else is gone. */
#include "binding.h"

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION /* NumPy 2 declares NEP 49 only with this */
#include <numpy/arrayobject.h>

#include "handler.h"

#define CAPSULE "mem_handler" /* the name that NumPy requires */

_Static_assert(sizeof(loam_handler) == sizeof(PyDataMem_Handler) &&
                   offsetof(loam_handler, version) == offsetof(PyDataMem_Handler, version) &&
                   offsetof(loam_handler, allocator) == offsetof(PyDataMem_Handler, allocator),
               "loam_handler and PyDataMem_Handler have the same layout");

/* ---- Capsules */

/* handler_of(tag, sites, touch): returns a capsule of the handler that allocates under the tag;
 * None is the tag "numpy.data". */
static PyObject *handler_of(PyObject *self, PyObject *arguments) {
  (void)self;
  const char *tag;
  int sites, touch;
  if (!PyArg_ParseTuple(arguments, "zpp", &tag, &sites, &touch)) return NULL;
  int flags = (sites ? HANDLER_SITES : 0) | (touch ? HANDLER_TOUCH : 0);
  const loam_handler *handler = handler_make(tag, flags);
  return handler ? PyCapsule_New((void *)handler, CAPSULE, NULL) : NULL;
}

/* set_handler(capsule): sets NumPy's handler in this context; None means NumPy's default. Returns
 * the previous one. */
static PyObject *set_handler(PyObject *self, PyObject *capsule) {
  (void)self;
  return PyDataMem_SetHandler(capsule == Py_None ? NULL : capsule);
}

/* is_ours(capsule): returns whether loam has made the capsule's handler. */
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
 * NumPy keeps the current handler in a ContextVar. A new thread and a new empty context see the
 * variable's default, and Python has no function to change a default. This code changes it: it
 * finds the one word of the object that holds the default, by its value, and replaces it. If there
 * is no such word, or more than one, the object is not as expected, and nothing is changed. */

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

/* swap_default(variable, old, new): returns True if `old` was the variable's default and `new` has
 * replaced it. */
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

/* Returns the capsule with the table of NumPy's C functions. In NumPy 2 the module that holds the
 * capsule has another name than in NumPy 1. */
static PyObject *find_functions(void) {
  PyObject *home = PyImport_ImportModule("numpy._core._multiarray_umath");
  if (!home && PyErr_ExceptionMatches(PyExc_ModuleNotFoundError)) {
    PyErr_Clear();
    home = PyImport_ImportModule("numpy.core._multiarray_umath");
  }
  PyObject *capsule = home ? PyObject_GetAttrString(home, "_ARRAY_API") : NULL;
  Py_XDECREF(home);
  return capsule;
}

/* Takes the place of import_array(), which refuses NumPy 2 in a module that was compiled with the
 * headers of NumPy 1. The functions that this file calls have the same slots in the tables of both,
 * so one wheel serves both. The capsule lives as long as NumPy, which cannot be unloaded. */
static int execute(PyObject *module) {
  (void)module;
  PyObject *capsule = find_functions();
  void **functions = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
  Py_XDECREF(capsule);
  if (!functions) return -1;
  PyArray_API = functions;
  if (PyArray_GetNDArrayCFeatureVersion() >= NPY_1_22_API_VERSION) return 0;
  PyErr_SetString(PyExc_ImportError, "loam needs NumPy 1.22 or later");
  return -1;
}

static PyModuleDef_Slot slots[] = { { Py_mod_exec, (void *)execute }, { 0, NULL } };

static PyModuleDef definition = { PyModuleDef_HEAD_INIT, .m_name = "loam._numpy",
                                  .m_methods = methods, .m_slots = slots };

PyMODINIT_FUNC PyInit__numpy(void);
PyMODINIT_FUNC PyInit__numpy(void) { return PyModuleDef_Init(&definition); }
