/* tensor.h - DLPack's tensors in Python's capsules. */
#ifndef TENSOR_H
#define TENSOR_H

#include "binding.h"

/* As DLPack's version 0 lays it out: no version, no flags. */
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

/* Takes the tensor, and ends it if nobody consumes the capsule, or on failure. */
PyObject *tensor_capsule(dl_tensor *t);

#endif
