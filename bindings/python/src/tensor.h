/* tensor.h - DLPack tensors in Python capsules. */
#ifndef TENSOR_H
#define TENSOR_H

#include <stdbool.h>

#include "binding.h"

/* The tensor struct of DLPack version 0, which has no version and no flags. */
typedef struct DLManagedTensor {
  void *data;
  int32_t device_kind, device;
  int32_t dimensions;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t offset;
  void *manager;
  void (*deleter)(struct DLManagedTensor *self);
} dl_tensor;

enum { DL_CPU = 1, DL_UINT = 1 };

/* Checks the arguments of __dlpack__, which are those of DLPack 1.0. A reader of that version takes
 * a tensor of version 0 too. Raises BufferError for a stream, another device and a copy. */
bool tensor_can_be_lent(PyObject *arguments, PyObject *keywords);

/* Returns a capsule that owns the tensor: the tensor ends on failure, or with the capsule unless a
 * consumer has taken it. */
PyObject *tensor_capsule(dl_tensor *t);

#endif
