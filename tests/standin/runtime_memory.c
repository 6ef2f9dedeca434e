/* runtime_memory.c - memory of the runtime: of devices, pinned, managed, of pools. Copies and
 * fills. */
#include <stdbool.h>
#include <string.h>

#include "runtime.h"

#define AT(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

/* ---- Device memory */

static cudaError_t take(void **out, cudaError_t result, const CUdeviceptr *at) {
  if (result == CUDA_SUCCESS) *out = (void *)(uintptr_t)*at;
  return result;
}

EXPORT cudaError_t cudaMalloc(void **out, size_t size) {
  CUdeviceptr at = 0;
  if (!out) return rt_note(CUDA_ERROR_INVALID_VALUE);
  *out = NULL;
  if (size == 0) ANSWER(CUDA_SUCCESS);
  ANSWER(take(out, cuMemAlloc_v2(&at, size), &at));
}

EXPORT cudaError_t cudaMallocManaged(void **out, size_t size, unsigned flags) {
  CUdeviceptr at = 0;
  ANSWER(take(out, cuMemAllocManaged(&at, size, flags), &at));
}

EXPORT cudaError_t cudaFree(void *at) { ANSWER(at ? cuMemFree_v2(AT(at)) : CUDA_SUCCESS); }

EXPORT cudaError_t cudaMallocAsync(void **out, size_t size, CUstream stream) {
  CUdeviceptr at = 0;
  ANSWER(take(out, cuMemAllocAsync(&at, size, stream), &at));
}

EXPORT cudaError_t cudaMallocFromPoolAsync(void **out, size_t size, CUmemoryPool pool,
                                           CUstream stream) {
  CUdeviceptr at = 0;
  ANSWER(take(out, cuMemAllocFromPoolAsync(&at, size, pool, stream), &at));
}

EXPORT cudaError_t cudaFreeAsync(void *at, CUstream stream) {
  ANSWER(cuMemFreeAsync(AT(at), stream));
}

EXPORT cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  ANSWER(cuMemGetInfo_v2(free_bytes, total));
}

/* ---- Pinned memory */

EXPORT cudaError_t cudaHostAlloc(void **out, size_t size, unsigned flags) {
  ANSWER(cuMemHostAlloc(out, size, flags));
}

EXPORT cudaError_t cudaMallocHost(void **out, size_t size) { ANSWER(cuMemHostAlloc(out, size, 0)); }
EXPORT cudaError_t cudaFreeHost(void *at) { ANSWER(at ? cuMemFreeHost(at) : CUDA_SUCCESS); }

EXPORT cudaError_t cudaHostRegister(void *at, size_t size, unsigned flags) {
  ANSWER(cuMemHostRegister_v2(at, size, flags));
}

EXPORT cudaError_t cudaHostUnregister(void *at) { ANSWER(cuMemHostUnregister(at)); }

EXPORT cudaError_t cudaHostGetDevicePointer(void **out, void *at, unsigned flags) {
  CUdeviceptr there = 0;
  ANSWER(take(out, cuMemHostGetDevicePointer_v2(&there, at, flags), &there));
}

/* ---- Pools */

EXPORT cudaError_t cudaDeviceGetDefaultMemPool(CUmemoryPool *out, int device) {
  ANSWER(cuDeviceGetDefaultMemPool(out, device));
}

EXPORT cudaError_t cudaDeviceGetMemPool(CUmemoryPool *out, int device) {
  ANSWER(cuDeviceGetMemPool(out, device));
}

EXPORT cudaError_t cudaDeviceSetMemPool(int device, CUmemoryPool pool) {
  ANSWER(cuDeviceSetMemPool(device, pool));
}

EXPORT cudaError_t cudaMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *properties) {
  ANSWER(cuMemPoolCreate(out, properties));
}

EXPORT cudaError_t cudaMemPoolDestroy(CUmemoryPool pool) { ANSWER(cuMemPoolDestroy(pool)); }

EXPORT cudaError_t cudaMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  ANSWER(cuMemPoolTrimTo(pool, keep));
}

EXPORT cudaError_t cudaMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value) {
  ANSWER(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, value));
}

EXPORT cudaError_t cudaMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value) {
  ANSWER(cuMemPoolSetAttribute(pool, (CUmemPool_attribute)attribute, value));
}

/* ---- Attributes of an address */

typedef struct pointer_attributes {
  int type; /* 0: unknown to the runtime, 1: host, 2: device, 3: managed */
  int device;
  void *of_device, *of_host;
} pointer_attributes;

EXPORT cudaError_t cudaPointerGetAttributes(pointer_attributes *out, const void *at) {
  unsigned type = 0;
  bool managed = false;
  cudaError_t result = rt_ready();
  if (result != CUDA_SUCCESS) return rt_note(result);
  *out = (pointer_attributes){ .device = -2, .of_host = (void *)(uintptr_t)at };
  if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, AT(at)) != CUDA_SUCCESS) {
    return CUDA_SUCCESS;
  }
  cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, AT(at));
  cuPointerGetAttribute(&out->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, AT(at));
  cuPointerGetAttribute(&out->of_device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, AT(at));
  out->type = managed ? 3 : (int)type;
  if (out->type == 2) out->of_host = NULL;
  return CUDA_SUCCESS;
}

/* ---- Copies and fills */

enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE };

static cudaError_t copy(void *to, const void *from, size_t size, int kind) {
  if (kind == HOST_TO_HOST) memcpy(to, from, size);
  if (kind == HOST_TO_DEVICE) return cuMemcpyHtoD_v2(AT(to), from, size);
  if (kind == DEVICE_TO_HOST) return cuMemcpyDtoH_v2(to, AT(from), size);
  if (kind == DEVICE_TO_DEVICE) return cuMemcpyDtoD_v2(AT(to), AT(from), size);
  return kind == HOST_TO_HOST ? CUDA_SUCCESS : cuMemcpy(AT(to), AT(from), size);
}

static cudaError_t copy_async(void *to, const void *from, size_t size, int kind, CUstream stream) {
  if (kind == HOST_TO_DEVICE) return cuMemcpyHtoDAsync_v2(AT(to), from, size, stream);
  if (kind == DEVICE_TO_HOST) return cuMemcpyDtoHAsync_v2(to, AT(from), size, stream);
  if (kind == DEVICE_TO_DEVICE) return cuMemcpyDtoDAsync_v2(AT(to), AT(from), size, stream);
  return cuMemcpyAsync(AT(to), AT(from), size, stream);
}

EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int kind) {
  ANSWER(copy(to, from, size, kind));
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, int kind,
                                   CUstream stream) {
  ANSWER(copy_async(to, from, size, kind, stream));
}

EXPORT cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                       size_t size, CUstream stream) {
  (void)to_device, (void)from_device;
  ANSWER(cuMemcpyDtoDAsync_v2(AT(to), AT(from), size, stream));
}

EXPORT cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device,
                                  size_t size) {
  (void)to_device, (void)from_device;
  ANSWER(cuMemcpyDtoD_v2(AT(to), AT(from), size));
}

EXPORT cudaError_t cudaMemset(void *at, int byte, size_t size) {
  ANSWER(cuMemsetD8_v2(AT(at), (unsigned char)byte, size));
}

EXPORT cudaError_t cudaMemsetAsync(void *at, int byte, size_t size, CUstream stream) {
  ANSWER(cuMemsetD8Async(AT(at), (unsigned char)byte, size, stream));
}

/* ---- Other processes */

EXPORT cudaError_t cudaIpcGetMemHandle(CUipcMemHandle *out, void *at) {
  ANSWER(cuIpcGetMemHandle(out, AT(at)));
}

EXPORT cudaError_t cudaIpcOpenMemHandle(void **out, CUipcMemHandle handle, unsigned flags) {
  CUdeviceptr at = 0;
  ANSWER(take(out, cuIpcOpenMemHandle_v2(&at, handle, flags), &at));
}

EXPORT cudaError_t cudaIpcCloseMemHandle(void *at) { ANSWER(cuIpcCloseMemHandle(AT(at))); }
