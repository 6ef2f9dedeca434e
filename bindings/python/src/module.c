/* module.c - makes loam._loam, the extension module with all functions of the Python package that
 * do not need NumPy. The functions that need NumPy are in loam._numpy (numpy.c). */
#include "array.h"
#include "binding.h"
#include "block.h"

#include <string.h>

#include "tags.h"

static PyObject *version(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  return PyUnicode_FromString(loam_version());
}

static PyObject *trim(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  size_t bytes;
  Py_BEGIN_ALLOW_THREADS;
  bytes = loam_trim();
  Py_END_ALLOW_THREADS;
  return PyLong_FromSize_t(bytes);
}

/* error_words(number): the words for an error of the system in the texts of loam. The words of
 * os.strerror depend on the locale. */
static PyObject *error_words(PyObject *self, PyObject *number) {
  (void)self;
  long error = PyLong_AsLong(number);
  if (error == -1 && PyErr_Occurred()) return NULL;
  const char *words = strerrordesc_np((int)error);
  return PyUnicode_FromString(words ? words : "");
}

static PyMethodDef own_methods[] = {
  { "error_words", error_words, METH_O, NULL },
  { "version", version, METH_NOARGS, NULL },
  { "trim", trim, METH_NOARGS,
    "trim()\n--\n\n"
    "Gives idle memory of the host back to the system, and returns the number of bytes. Most\n"
    "idle memory goes back without this call." },
  { 0 },
};

/* Returns whether the loaded libloam has the version for which the package was built; sets
 * ImportError if not. The package has its own libloam beside it, but a process loads only one
 * libloam. The host program may have loaded one of another version before. */
static int is_of_one_version(void) {
  char built[32];
  snprintf(built, sizeof built, "%d.%d.%d", LOAM_VERSION_MAJOR, LOAM_VERSION_MINOR,
           LOAM_VERSION_PATCH);
  if (!strcmp(built, loam_version())) return 1;
  PyErr_Format(PyExc_ImportError, "the package needs loam %s, but the process has loaded loam %s",
               built, loam_version());
  return 0;
}

/* Fills the module. Refuses a subinterpreter: a process has one engine, and it works with the
 * contexts and frames of the main interpreter. */
static int execute(PyObject *module) {
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_ImportError,
                    "loam serves the main interpreter of a process, not a subinterpreter");
    return -1;
  }
  if (!is_of_one_version()) return -1;
  PyMethodDef *const parts[] = { own_methods,   policy_methods,  figures_methods, events_methods,
                                 nrt_methods,   device_methods,  entries_methods, torch_methods,
                                 hooks_methods, handler_methods, tags_methods };
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    if (PyModule_AddFunctions(module, parts[i])) return -1;
  if (PyModule_AddIntConstant(module, "TRACEMALLOC_DOMAIN", BINDING_DOMAIN)) return -1;
  if (tags_add(module)) return -1;
  return block_add(module) || arena_add(module) || array_add(module) ? -1 : 0;
}

static PyModuleDef_Slot slots[] = { { Py_mod_exec, (void *)execute }, { 0, NULL } };

static PyModuleDef definition = { PyModuleDef_HEAD_INIT, .m_name = "loam._loam", .m_slots = slots };

PyMODINIT_FUNC PyInit__loam(void);
PyMODINIT_FUNC PyInit__loam(void) { return PyModuleDef_Init(&definition); }
