/* tensor.c - DLPack's tensors in Python's capsules. */
#include "tensor.h"

/* A consumer renames the capsule: then the tensor is its own to end. */
static void end_capsule(PyObject *capsule) {
  if (!PyCapsule_IsValid(capsule, "dltensor")) return;
  dl_tensor *t = PyCapsule_GetPointer(capsule, "dltensor");
  t->deleter(t);
}

PyObject *tensor_capsule(dl_tensor *t) {
  PyObject *capsule = PyCapsule_New(t, "dltensor", end_capsule);
  if (!capsule) t->deleter(t);
  return capsule;
}
