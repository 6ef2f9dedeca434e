/* policy.c - starting the engine; loading, following and inspecting policies. All functions but
 * policy_info release the interpreter's lock, so that a load does not stop other threads of the
 * program. */
#include "binding.h"

#include <stdlib.h>
#include <string.h>

/* Converts a path to the file system's bytes; *path is NULL for None. The caller releases *owner.
 * Returns 0 with an exception set. */
static int read_path(PyObject *given, PyObject **owner, const char **path) {
  *owner = NULL;
  *path = NULL;
  if (given == Py_None) return 1;
  if (!PyUnicode_FSConverter(given, owner)) return 0;
  *path = PyBytes_AS_STRING(*owner);
  return 1;
}

static PyObject *with_path(PyObject *given, loam_status (*act)(const char *path)) {
  PyObject *owner;
  const char *path;
  loam_status status;
  if (!read_path(given, &owner, &path)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = act(path);
  Py_END_ALLOW_THREADS;
  Py_XDECREF(owner);
  return binding_done(status);
}

/* start(policy, watch, control, lenient, guard_report, leaks) */
static PyObject *start(PyObject *self, PyObject *arguments) {
  (void)self;
  PyObject *given, *owner;
  loam_status status;
  loam_config config = { .size = sizeof config };
  if (!PyArg_ParseTuple(arguments, "Opippp", &given, &config.watch, &config.control,
                        &config.lenient, &config.guard_report, &config.leaks))
    return NULL;
  if (!read_path(given, &owner, &config.policy)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = loam_start(&config);
  Py_END_ALLOW_THREADS;
  Py_XDECREF(owner);
  return binding_done(status);
}

static PyObject *policy_load(PyObject *self, PyObject *path) {
  (void)self;
  return with_path(path, loam_policy_load);
}

static PyObject *policy_watch(PyObject *self, PyObject *path) {
  (void)self;
  return with_path(path, loam_policy_watch);
}

static PyObject *policy_load_text(PyObject *self, PyObject *arguments) {
  (void)self;
  const char *name, *text;
  loam_status status;
  if (!PyArg_ParseTuple(arguments, "ss", &name, &text)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = loam_policy_load_text(name, text);
  Py_END_ALLOW_THREADS;
  return binding_done(status);
}

/* ---- The answer of an inspection, collected without the interpreter's lock */

typedef struct collected {
  char *text;
  size_t length;
  int failed;
} collected;

static void collect(void *ctx, const char *text, size_t length) {
  collected *c = ctx;
  char *grown = c->failed ? NULL : realloc(c->text, c->length + length + 1);
  c->failed = !grown;
  if (!grown) return;
  memcpy(grown + c->length, text, length);
  c->text = grown;
  c->length += length;
}

static PyObject *policy_inspect(PyObject *self, PyObject *arguments) {
  (void)self;
  PyObject *given, *owner, *answer = NULL;
  const char *query, *path;
  loam_status status;
  if (!PyArg_ParseTuple(arguments, "Os", &given, &query)) return NULL;
  if (!read_path(given, &owner, &path)) return NULL;
  collected c = { 0 };
  Py_BEGIN_ALLOW_THREADS;
  status = loam_policy_inspect(path, query, collect, &c);
  Py_END_ALLOW_THREADS;
  Py_XDECREF(owner);
  if (status) binding_fail(status);
  else if (c.failed) PyErr_NoMemory();
  else answer = PyUnicode_DecodeUTF8(c.text ? c.text : "", (Py_ssize_t)c.length, "replace");
  free(c.text);
  return answer;
}

/* ---- The live policy */

static PyObject *policy_info(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  static const size_t size = sizeof(struct loam_policy_info);
  char hash[24];
  struct loam_policy_info *i = PyMem_Malloc(size);
  if (!i) return PyErr_NoMemory();
  loam_status status = loam_policy_info(i);
  PyObject *d = status ? binding_fail(status) : PyDict_New();
  d = binding_put(d, "generation", PyLong_FromUnsignedLongLong(i->generation));
  d = binding_put(d, "name", binding_text(i->name));
  d = binding_put(d, "path", binding_text(i->path));
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)i->hash);
  d = binding_put(d, "hash", binding_text(hash));
  d = binding_put(d, "loaded_at", PyFloat_FromDouble((double)i->loaded_at * 1e-9));
  d = binding_put(d, "loads", PyLong_FromUnsignedLongLong(i->loads));
  d = binding_put(d, "refused", PyLong_FromUnsignedLongLong(i->refused));
  d = binding_put(d, "last_error", binding_text(i->last_error));
  d = binding_put(d, "tags_refused", PyLong_FromUnsignedLongLong(i->tags_refused));
  d = binding_put(d, "plans", PyLong_FromUnsignedLong(i->plans));
  d = binding_put(d, "sites", PyLong_FromUnsignedLong(i->sites));
  d = binding_put(d, "watching", PyBool_FromLong(i->watching));
  PyMem_Free(i);
  return d;
}

PyMethodDef policy_methods[] = {
  { "start", start, METH_VARARGS, NULL },
  { "policy_load", policy_load, METH_O, NULL },
  { "policy_load_text", policy_load_text, METH_VARARGS, NULL },
  { "policy_watch", policy_watch, METH_O, NULL },
  { "policy_inspect", policy_inspect, METH_VARARGS, NULL },
  { "policy_info", policy_info, METH_NOARGS, NULL },
  { 0 },
};
