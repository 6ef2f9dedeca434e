/* tensor.c - DLPack tensors in Python capsules. */
#include "tensor.h"

/* A consumer renames the capsule and ends the tensor itself. */
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
