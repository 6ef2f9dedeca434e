/* device.c - loam as the memory manager of a Python host: the functions of loam_manager_get with a
 * tag; and the properties of devices.
 *
 * These functions release the interpreter's lock: a driver may wait for work whose callbacks need
 * it. */
#include "binding.h"

typedef loam_status (*make_fn)(const loam_manager *m, int device, size_t size, unsigned flags,
                               void **out);

static loam_status make_device(const loam_manager *m, int device, size_t size, unsigned flags,
                               void **out) {
  (void)flags;
  return m->memalloc(m->ctx, device, size, out);
}

static loam_status make_managed(const loam_manager *m, int device, size_t size, unsigned flags,
                                void **out) {
  (void)flags;
  return m->memalloc_managed(m->ctx, device, size, out);
}

static loam_status make_pinned(const loam_manager *m, int device, size_t size, unsigned flags,
                               void **out) {
  return m->memhostalloc(m->ctx, device, size, flags, out);
}

/* Arguments: a tag or None, the tag to use for None, device, size[, flags]. Returns an address. */
static PyObject *make(PyObject *args, make_fn from) {
  const char *tag, *otherwise;
  int device;
  Py_ssize_t size;
  unsigned flags = 0;
  if (!PyArg_ParseTuple(args, "zsin|I", &tag, &otherwise, &device, &size, &flags)) return NULL;
  loam_site *site = binding_site(tag, otherwise);
  if (!site) return NULL;
  void *ptr = NULL;
  loam_status status;
  Py_BEGIN_ALLOW_THREADS;
  loam_scope_enter(site);
  status = from(loam_manager_get(), device, (size_t)size, flags, &ptr);
  loam_scope_leave();
  Py_END_ALLOW_THREADS;
  return status ? binding_fail(status) : PyLong_FromVoidPtr(ptr);
}

static PyObject *manager_alloc(PyObject *self, PyObject *args) {
  (void)self;
  return make(args, make_device);
}

static PyObject *manager_managed(PyObject *self, PyObject *args) {
  (void)self;
  return make(args, make_managed);
}

static PyObject *manager_pinned(PyObject *self, PyObject *args) {
  (void)self;
  return make(args, make_pinned);
}

typedef void (*end_fn)(void *ctx, int device, void *ptr, size_t size);

/* Arguments: device, address, size. */
static PyObject *end(PyObject *args, const loam_manager *m, end_fn by) {
  int device;
  unsigned long long ptr;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(args, "iKn", &device, &ptr, &size)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  by(m->ctx, device, (void *)(uintptr_t)ptr, (size_t)size);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

/* Frees memory of any of the functions above. It is collected and given back when enough is
 * pending. */
static PyObject *manager_free(PyObject *self, PyObject *args) {
  (void)self;
  const loam_manager *m = loam_manager_get();
  return end(args, m, m->memfree);
}

/* Arguments: device, address, size, flags. */
static PyObject *manager_pin(PyObject *self, PyObject *args) {
  (void)self;
  int device;
  unsigned long long ptr;
  Py_ssize_t size;
  unsigned flags;
  if (!PyArg_ParseTuple(args, "iKnI", &device, &ptr, &size, &flags)) return NULL;
  const loam_manager *m = loam_manager_get();
  loam_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = m->mempin(m->ctx, device, (void *)(uintptr_t)ptr, (size_t)size, flags);
  Py_END_ALLOW_THREADS;
  return binding_done(status);
}

static PyObject *manager_unpin(PyObject *self, PyObject *args) {
  (void)self;
  const loam_manager *m = loam_manager_get();
  return end(args, m, m->memunpin);
}

typedef loam_status (*tell_fn)(void *ctx, int device);

static PyObject *tell(PyObject *number, const loam_manager *m, tell_fn what) {
  int device;
  if (!PyArg_Parse(number, "i", &device)) return NULL;
  loam_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = what(m->ctx, device);
  Py_END_ALLOW_THREADS;
  return binding_done(status);
}

static PyObject *manager_initialize(PyObject *self, PyObject *number) {
  (void)self;
  const loam_manager *m = loam_manager_get();
  return tell(number, m, m->initialize);
}

static PyObject *manager_reset(PyObject *self, PyObject *number) {
  (void)self;
  const loam_manager *m = loam_manager_get();
  return tell(number, m, m->reset);
}

/* Arguments: device, address. Returns the handle of an allocation, the offset of the memory in it,
 * and whether other libraries can open the handle. */
static PyObject *manager_ipc(PyObject *self, PyObject *args) {
  (void)self;
  int device;
  unsigned long long ptr;
  if (!PyArg_ParseTuple(args, "iK", &device, &ptr)) return NULL;
  const loam_manager *m = loam_manager_get();
  loam_ipc ipc;
  loam_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = m->get_ipc_handle(m->ctx, device, (void *)(uintptr_t)ptr, &ipc);
  Py_END_ALLOW_THREADS;
  if (status) return binding_fail(status);
  return Py_BuildValue("y#KN", (const char *)ipc.handle, (Py_ssize_t)sizeof ipc.handle,
                       (unsigned long long)ipc.offset, PyBool_FromLong(loam_ipc_is_plain(&ipc)));
}

/* Arguments: handle, offset, size, device. Returns the address in this process. */
static PyObject *ipc_open(PyObject *self, PyObject *args) {
  (void)self;
  const char *handle;
  Py_ssize_t length;
  unsigned long long offset, size;
  int device;
  if (!PyArg_ParseTuple(args, "y#KKi", &handle, &length, &offset, &size, &device)) return NULL;
  loam_ipc ipc = { .offset = offset, .size = size };
  if (length != (Py_ssize_t)sizeof ipc.handle)
    return PyErr_Format(PyExc_ValueError, "a handle of %zd bytes: it must have %zu", length,
                        sizeof ipc.handle);
  memcpy(ipc.handle, handle, sizeof ipc.handle);
  void *at = NULL;
  loam_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = loam_ipc_open(&ipc, device, &at);
  Py_END_ALLOW_THREADS;
  return status ? binding_fail(status) : PyLong_FromVoidPtr(at);
}

static PyObject *ipc_close(PyObject *self, PyObject *address) {
  (void)self;
  void *at = PyLong_AsVoidPtr(address);
  if (!at && PyErr_Occurred()) return NULL;
  loam_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = loam_ipc_close(at);
  Py_END_ALLOW_THREADS;
  return binding_done(status);
}

/* ---- Deferred frees */

static PyObject *defer_enter(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  loam_defer_enter();
  Py_RETURN_NONE;
}

static PyObject *defer_leave(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  loam_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = loam_defer_leave();
  Py_END_ALLOW_THREADS;
  return binding_done(status);
}

static PyObject *defer_limit(PyObject *self, PyObject *args) {
  (void)self;
  int count;
  double ratio;
  if (!PyArg_ParseTuple(args, "id", &count, &ratio)) return NULL;
  loam_defer_limit(count, ratio);
  Py_RETURN_NONE;
}

/* ---- Properties of devices */

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
  int device;
  if (!PyArg_Parse(number, "i", &device)) return NULL;
  size_t left, total;
  loam_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = loam_device_memory(device, &left, &total);
  Py_END_ALLOW_THREADS;
  return status ? binding_fail(status) : Py_BuildValue("nn", (Py_ssize_t)left, (Py_ssize_t)total);
}

static PyObject *device_info(PyObject *self, PyObject *number) {
  (void)self;
  int device;
  if (!PyArg_Parse(number, "i", &device)) return NULL;
  struct loam_device_info info;
  loam_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = loam_device_info(device, &info);
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
  int device;
  if (!PyArg_Parse(number, "i", &device)) return NULL;
  size_t bytes;
  Py_BEGIN_ALLOW_THREADS;
  bytes = loam_device_trim(device);
  Py_END_ALLOW_THREADS;
  return PyLong_FromSize_t(bytes);
}

/* Argument: a number of bytes, or None for all. */
static PyObject *device_keep(PyObject *self, PyObject *number) {
  (void)self;
  size_t bytes = number == Py_None ? SIZE_MAX : PyLong_AsSize_t(number);
  if (number != Py_None && bytes == SIZE_MAX && PyErr_Occurred()) return NULL;
  loam_device_keep(bytes);
  Py_RETURN_NONE;
}

static PyObject *device_sleep(PyObject *self, PyObject *args) {
  (void)self;
  const char *tag, *to;
  size_t bytes;
  loam_status status;
  if (!PyArg_ParseTuple(args, "zs", &tag, &to)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = loam_sleep(tag, to, &bytes);
  Py_END_ALLOW_THREADS;
  return status ? binding_fail(status) : PyLong_FromSize_t(bytes);
}

static PyObject *device_wake(PyObject *self, PyObject *group) {
  (void)self;
  const char *tag;
  size_t bytes;
  loam_status status;
  if (!PyArg_Parse(group, "z", &tag)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  status = loam_wake(tag, &bytes);
  Py_END_ALLOW_THREADS;
  return status ? binding_fail(status) : PyLong_FromSize_t(bytes);
}

static PyObject *device_asleep(PyObject *self, PyObject *group) {
  (void)self;
  const char *tag;
  size_t bytes;
  if (!PyArg_Parse(group, "z", &tag)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  bytes = loam_asleep(tag);
  Py_END_ALLOW_THREADS;
  return PyLong_FromSize_t(bytes);
}

PyMethodDef device_methods[] = {
  { "manager_initialize", manager_initialize, METH_O, NULL },
  { "manager_alloc", manager_alloc, METH_VARARGS, NULL },
  { "manager_managed", manager_managed, METH_VARARGS, NULL },
  { "manager_pinned", manager_pinned, METH_VARARGS, NULL },
  { "manager_free", manager_free, METH_VARARGS, NULL },
  { "manager_pin", manager_pin, METH_VARARGS, NULL },
  { "manager_unpin", manager_unpin, METH_VARARGS, NULL },
  { "manager_ipc", manager_ipc, METH_VARARGS, NULL },
  { "ipc_open", ipc_open, METH_VARARGS, NULL },
  { "ipc_close", ipc_close, METH_O, NULL },
  { "manager_reset", manager_reset, METH_O, NULL },
  { "defer_enter", defer_enter, METH_NOARGS, NULL },
  { "defer_leave", defer_leave, METH_NOARGS, NULL },
  { "defer_limit", defer_limit, METH_VARARGS, NULL },
  { "device_count", device_count, METH_NOARGS, NULL },
  { "device_memory", device_memory, METH_O, NULL },
  { "device_info", device_info, METH_O, NULL },
  { "device_trim", device_trim, METH_O, NULL },
  { "device_keep", device_keep, METH_O, NULL },
  { "device_sleep", device_sleep, METH_VARARGS, NULL },
  { "device_wake", device_wake, METH_O, NULL },
  { "device_asleep", device_asleep, METH_O, NULL },
  { 0 },
};
