/* binding.c - helpers that all parts of the extension share. */
#include "binding.h"

#include <dlfcn.h>
#include <string.h>
/* Python 3.13 declares these functions in Python.h, one of them under a new name. */
#if PY_VERSION_HEX < 0x030d0000
#include <tracemalloc.h>
#define PyThreadState_GetUnchecked _PyThreadState_UncheckedGet
#endif

bool binding_has_lock(void) {
  PyThreadState *current = Py_IsInitialized() ? PyThreadState_GetUnchecked() : NULL;
  return current && current == PyGILState_GetThisThreadState();
}

PyObject *binding_fail(loam_status status) {
  const char *words = loam_error();
  return binding_fail_with(status, binding_text(*words ? words : loam_status_text(status)));
}

PyObject *binding_fail_with(loam_status status, PyObject *text) {
  PyObject *errors = text ? PyImport_ImportModule("loam.errors") : NULL;
  PyObject *error = errors ? PyObject_CallMethod(errors, "of_status", "iO", (int)status, text)
                           : NULL;
  if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(error);
  Py_XDECREF(text);
  Py_XDECREF(errors);
  return NULL;
}

PyObject *binding_done(loam_status status) {
  if (status) return binding_fail(status);
  Py_RETURN_NONE;
}

PyObject *binding_put(PyObject *dict, const char *key, PyObject *value) {
  if (!dict || !value || PyDict_SetItemString(dict, key, value)) Py_CLEAR(dict);
  Py_XDECREF(value);
  return dict;
}

PyObject *binding_text(const char *text) {
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

const char *binding_utf8(PyObject *text) {
  Py_ssize_t size;
  if (!PyUnicode_Check(text))
    return PyErr_Format(PyExc_TypeError, "a str is needed, not %s", Py_TYPE(text)->tp_name), NULL;
  const char *utf8 = PyUnicode_AsUTF8AndSize(text, &size);
  if (!utf8 || strlen(utf8) == (size_t)size) return utf8;
  PyErr_Format(PyExc_ValueError, "%R has a NUL", text);
  return NULL;
}

void binding_trace(const void *owner, size_t bytes) {
  (void)PyTraceMalloc_Track(BINDING_DOMAIN, (uintptr_t)owner, bytes);
}

void binding_untrace(const void *owner) {
  (void)PyTraceMalloc_Untrack(BINDING_DOMAIN, (uintptr_t)owner);
}

int binding_is_preloaded(void) {
  Dl_info found;
  void *function = dlsym(RTLD_DEFAULT, "loam_on_event");
  return function && dladdr(function, &found) && found.dli_fname &&
         strstr(found.dli_fname, "preload");
}

loam_site *binding_site(const char *tag, const char *otherwise) {
  if (tag) {
    loam_site *site = loam_site_get(tag);
    if (!site) binding_fail(LOAM_EINVAL);
    return site;
  }
  PyObject *tags = PyImport_ImportModule("loam.tags");
  PyObject *current = tags ? PyObject_CallMethod(tags, "current_tag", NULL) : NULL;
  const char *name = !current ? NULL : current == Py_None ? otherwise : PyUnicode_AsUTF8(current);
  loam_site *site = name ? loam_site_get(name) : NULL;
  if (name && !site) binding_fail(LOAM_EINVAL);
  Py_XDECREF(current);
  Py_XDECREF(tags);
  return site;
}
