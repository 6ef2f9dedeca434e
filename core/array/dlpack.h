/* dlpack.h - the structures of DLPack, with the memory layout of its version 0.8. A library passes
 * a tensor to another library together with a function that deletes it. */
#ifndef LM_DLPACK_H
#define LM_DLPACK_H

#include <stdint.h>

/* Device types whose memory the CPU can read. */
enum { DL_CPU = 1, DL_CUDA_HOST = 3, DL_ROCM_HOST = 11, DL_CUDA_MANAGED = 13 };

/* Codes of element types. */
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_COMPLEX = 5, DL_BOOL = 6 };

typedef struct DLDevice {
  int32_t device_type;
  int32_t device_id;
} DLDevice;

typedef struct DLDataType {
  uint8_t code;
  uint8_t bits;   /* of one lane */
  uint16_t lanes; /* of a vector type; 1 for scalars */
} DLDataType;

typedef struct DLTensor {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides;     /* in elements; NULL: C's layout */
  uint64_t byte_offset; /* from data to the first element */
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self); /* may be NULL */
} DLManagedTensor;

#endif
