/* tensor.c - DLPack tensors in Python capsules. */
#include "tensor.h"

/* A consumer renames the capsule and ends the tensor itself. */
static void end_capsule(PyObject *capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor")) return;
  dl_tensor *t = PyCapsule_GetPointer(capsule, "dltensor");
  t->deleter(t);
}

/* Returns whether `device` is None or (1, 0): memory of the host. */
static bool is_host(PyObject *device) {
  int kind, number;
  if (device == Py_None) return true;
  if (!PyTuple_Check(device)) {
    PyErr_Format(PyExc_TypeError, "dl_device is a tuple of two numbers, not %s",
                 Py_TYPE(device)->tp_name);
    return false;
  }
  if (!PyArg_ParseTuple(device, "ii;dl_device is a tuple of two numbers", &kind, &number))
    return false;
  if (kind == DL_CPU && !number) return true;
  PyErr_Format(PyExc_BufferError, "dl_device %R: the memory is of the host, device (1, 0)", device);
  return false;
}

bool tensor_can_be_lent(PyObject *arguments, PyObject *keywords) {
  static const char *names[] = { "stream", "max_version", "dl_device", "copy", NULL };
  PyObject *stream = Py_None, *version, *device = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO", (char **)names, &stream, &version,
                                   &device, &copy))
    return false;
  int is_copy = PyObject_IsTrue(copy);
  if (is_copy < 0 || !is_host(device)) return false;
  if (stream != Py_None) PyErr_SetString(PyExc_BufferError, "host memory has no streams");
  else if (is_copy) PyErr_SetString(PyExc_BufferError, "loam lends memory, and copies none");
  return !PyErr_Occurred();
}

PyObject *tensor_capsule(dl_tensor *t) {
  PyObject *capsule = PyCapsule_New(t, "dltensor", end_capsule);
  if (!capsule) t->deleter(t);
  return capsule;
}
