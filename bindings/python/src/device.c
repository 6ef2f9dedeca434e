/* device.c - memory of devices, pinned and managed memory, as addresses: for the modules that give
 * it to libraries.
 *
 * The interpreter's lock is let go of: a driver may wait for work whose callbacks need it. */
#include "binding.h"

static PyObject *address(const void *ptr) {
  return ptr ? PyLong_FromVoidPtr((void *)ptr) : binding_fail(LOAM_ENOMEM);
}

/* (tag or None, what it is otherwise, size, stream) */
static PyObject *device_alloc(PyObject *self, PyObject *args) {
  (void)self;
  const char *tag, *otherwise;
  Py_ssize_t size;
  unsigned long long stream = 0;
  if (!PyArg_ParseTuple(args, "zsn|K", &tag, &otherwise, &size, &stream)) return NULL;
  loam_site *site = binding_site(tag, otherwise);
  if (!site) return NULL;
  void *ptr;
  Py_BEGIN_ALLOW_THREADS;
  ptr = loam_device_alloc(site, (size_t)size, (void *)(uintptr_t)stream);
  Py_END_ALLOW_THREADS;
  return address(ptr);
}

static PyObject *managed_alloc(PyObject *self, PyObject *args) {
  (void)self;
  const char *tag, *otherwise;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(args, "zsn", &tag, &otherwise, &size)) return NULL;
  loam_site *site = binding_site(tag, otherwise);
  if (!site) return NULL;
  void *ptr;
  Py_BEGIN_ALLOW_THREADS;
  ptr = loam_managed_alloc(site, (size_t)size);
  Py_END_ALLOW_THREADS;
  return address(ptr);
}

static PyObject *pinned_alloc(PyObject *self, PyObject *args) {
  (void)self;
  const char *tag, *otherwise;
  Py_ssize_t size;
  unsigned flags = 0;
  if (!PyArg_ParseTuple(args, "zsn|I", &tag, &otherwise, &size, &flags)) return NULL;
  loam_site *site = binding_site(tag, otherwise);
  if (!site) return NULL;
  void *ptr;
  Py_BEGIN_ALLOW_THREADS;
  ptr = loam_pinned_alloc(site, (size_t)size, flags);
  Py_END_ALLOW_THREADS;
  return address(ptr);
}

/* (address, stream) of any of these. */
static PyObject *device_free(PyObject *self, PyObject *args) {
  (void)self;
  unsigned long long ptr, stream = 0;
  if (!PyArg_ParseTuple(args, "K|K", &ptr, &stream)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  loam_device_free((void *)(uintptr_t)ptr, (void *)(uintptr_t)stream);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

static PyObject *pin(PyObject *self, PyObject *args) {
  (void)self;
  unsigned long long ptr;
  Py_ssize_t size;
  unsigned flags = 0;
  if (!PyArg_ParseTuple(args, "Kn|I", &ptr, &size, &flags)) return NULL;
  loam_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = loam_pin((void *)(uintptr_t)ptr, (size_t)size, flags);
  Py_END_ALLOW_THREADS;
  return binding_done(status);
}

static PyObject *unpin(PyObject *self, PyObject *ptr) {
  (void)self;
  void *at = PyLong_AsVoidPtr(ptr);
  if (!at && PyErr_Occurred()) return NULL;
  loam_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = loam_unpin(at);
  Py_END_ALLOW_THREADS;
  return binding_done(status);
}

/* ---- What a device says */

static PyObject *device_count(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  int count;
  Py_BEGIN_ALLOW_THREADS;
  count = loam_device_count();
  Py_END_ALLOW_THREADS;
  return PyLong_FromLong(count);
}

static PyObject *device_memory(PyObject *self, PyObject *number) {
  (void)self;
  long device = PyLong_AsLong(number);
  if (device == -1 && PyErr_Occurred()) return NULL;
  size_t left, total;
  loam_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = loam_device_memory((int)device, &left, &total);
  Py_END_ALLOW_THREADS;
  return status ? binding_fail(status) : Py_BuildValue("nn", (Py_ssize_t)left, (Py_ssize_t)total);
}

static PyObject *device_info(PyObject *self, PyObject *number) {
  (void)self;
  long device = PyLong_AsLong(number);
  if (device == -1 && PyErr_Occurred()) return NULL;
  struct loam_device_info info;
  loam_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = loam_device_info((int)device, &info);
  Py_END_ALLOW_THREADS;
  if (status) return binding_fail(status);
  PyObject *d = PyDict_New();
  d = binding_put(d, "name", binding_text(info.name));
  d = binding_put(d, "total", PyLong_FromSize_t(info.total));
  d = binding_put(d, "reserved", PyLong_FromSize_t(info.reserved));
  d = binding_put(d, "used", PyLong_FromSize_t(info.used));
  d = binding_put(d, "node", PyLong_FromLong(info.node));
  d = binding_put(d, "has_ranges", PyBool_FromLong(info.has_ranges));
  d = binding_put(d, "has_pools", PyBool_FromLong(info.has_pools));
  return binding_put(d, "has_managed", PyBool_FromLong(info.has_managed));
}

static PyObject *device_trim(PyObject *self, PyObject *number) {
  (void)self;
  long device = PyLong_AsLong(number);
  if (device == -1 && PyErr_Occurred()) return NULL;
  size_t bytes;
  Py_BEGIN_ALLOW_THREADS;
  bytes = loam_device_trim((int)device);
  Py_END_ALLOW_THREADS;
  return PyLong_FromSize_t(bytes);
}

PyMethodDef device_methods[] = {
  { "device_alloc", device_alloc, METH_VARARGS, NULL },
  { "managed_alloc", managed_alloc, METH_VARARGS, NULL },
  { "pinned_alloc", pinned_alloc, METH_VARARGS, NULL },
  { "device_free", device_free, METH_VARARGS, NULL },
  { "pin", pin, METH_VARARGS, NULL },
  { "unpin", unpin, METH_O, NULL },
  { "device_count", device_count, METH_NOARGS, NULL },
  { "device_memory", device_memory, METH_O, NULL },
  { "device_info", device_info, METH_O, NULL },
  { "device_trim", device_trim, METH_O, NULL },
  { 0 },
};
