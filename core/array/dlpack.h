/* dlpack.h - DLPack's structures as version 0.8 has them in memory: tensors passed between
 * libraries, with a function that ends them. */
#ifndef LM_DLPACK_H
#define LM_DLPACK_H

#include <stdint.h>

/* Memory that the processor can read. */
enum { DL_CPU = 1, DL_CUDA_HOST = 3, DL_ROCM_HOST = 11, DL_CUDA_MANAGED = 13 };

enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_COMPLEX = 5, DL_BOOL = 6 };

typedef struct DLDevice {
  int32_t device_type;
  int32_t device_id;
} DLDevice;

typedef struct DLDataType {
  uint8_t code;
  uint8_t bits; /* of one lane */
  uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides;     /* in elements; NULL: as C lays them out */
  uint64_t byte_offset; /* from data to the first element */
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self); /* may be NULL */
} DLManagedTensor;

#endif
