/* gpu_cuda.h - CUDA's driver API as loam asks for it: between the files gpu_cuda*.c alone.
 *
 * Of the header only types and numbers are used: which form of a function is meant is said here, by
 * the version that brought it, so that every toolkit makes the same binary. */
#ifndef LM_GPU_CUDA_H
#define LM_GPU_CUDA_H

#include <cuda.h>
#include <stdatomic.h>

#include "gpu/gpu.h"

/* name, its suffix where libraries are asked by symbol, arguments. */
#define LM_GPU_CUDA_REQUIRED(X)                                       \
  X(DeviceGetCount, "", int *)                                        \
  X(DeviceGet, "", CUdevice *, int)                                   \
  X(DeviceGetName, "", char *, int, CUdevice)                         \
  X(DeviceTotalMem, "_v2", size_t *, CUdevice)                        \
  X(DeviceGetAttribute, "", int *, int, CUdevice)                     \
  X(DevicePrimaryCtxRetain, "", CUcontext *, CUdevice)                \
  X(DevicePrimaryCtxGetState, "", CUdevice, unsigned *, int *)        \
  X(CtxGetDevice, "", CUdevice *)                                     \
  X(CtxGetCurrent, "", CUcontext *)                                   \
  X(CtxPushCurrent, "_v2", CUcontext)                                 \
  X(CtxPopCurrent, "_v2", CUcontext *)                                \
  X(CtxSynchronize, "", void)                                         \
  X(MemGetInfo, "_v2", size_t *, size_t *)                            \
  X(MemAlloc, "_v2", CUdeviceptr *, size_t)                           \
  X(MemFree, "_v2", CUdeviceptr)                                      \
  X(MemAllocManaged, "", CUdeviceptr *, size_t, unsigned)             \
  X(MemAdvise, "", CUdeviceptr, size_t, int, CUdevice)                \
  X(MemHostAlloc, "", void **, size_t, unsigned)                      \
  X(MemFreeHost, "", void *)                                          \
  X(MemHostRegister, "_v2", void *, size_t, unsigned)                 \
  X(MemHostUnregister, "", void *)                                    \
  X(MemHostGetDevicePointer, "_v2", CUdeviceptr *, void *, unsigned)  \
  X(MemsetD8Async, "", CUdeviceptr, unsigned char, size_t, CUstream)  \
  X(MemcpyAsync, "", CUdeviceptr, CUdeviceptr, size_t, CUstream)      \
  X(EventCreate, "", CUevent *, unsigned)                             \
  X(EventRecord, "", CUevent, CUstream)                               \
  X(EventQuery, "", CUevent)                                          \
  X(EventSynchronize, "", CUevent)                                    \
  X(EventDestroy, "_v2", CUevent)                                     \
  X(StreamWaitEvent, "", CUstream, CUevent, unsigned)                 \
  X(StreamQuery, "", CUstream)                                        \
  X(StreamGetCtx, "", CUstream, CUcontext *)                          \
  X(MemGetAddressRange, "_v2", CUdeviceptr *, size_t *, CUdeviceptr)  \
  X(IpcGetMemHandle, "", CUipcMemHandle *, CUdeviceptr)               \
  X(IpcOpenMemHandle, "_v2", CUdeviceptr *, CUipcMemHandle, unsigned) \
  X(IpcCloseMemHandle, "", CUdeviceptr)                               \
  X(GetErrorName, "", CUresult, const char **)                        \
  X(GetErrorString, "", CUresult, const char **)

#define LM_GPU_CUDA_OPTIONAL(X)                                                                    \
  X(DeviceGetPCIBusId, "", char *, int, CUdevice)                                                  \
  X(StreamIsCapturing, "", CUstream, int *)                                                        \
  X(ThreadExchangeStreamCaptureMode, "", int *)                                                    \
  X(MemPoolCreate, "", CUmemoryPool *, const CUmemPoolProps *)                                     \
  X(MemPoolDestroy, "", CUmemoryPool)                                                              \
  X(MemPoolSetAttribute, "", CUmemoryPool, int, void *)                                            \
  X(MemPoolTrimTo, "", CUmemoryPool, size_t)                                                       \
  X(MemAllocFromPoolAsync, "", CUdeviceptr *, size_t, CUmemoryPool, CUstream)                      \
  X(MemFreeAsync, "", CUdeviceptr, CUstream)                                                       \
  X(MemGetAllocationGranularity, "", size_t *, const CUmemAllocationProp *, int)                   \
  X(MemAddressReserve, "", CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)         \
  X(MemAddressFree, "", CUdeviceptr, size_t)                                                       \
  X(MemCreate, "", CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,            \
    unsigned long long)                                                                            \
  X(MemRelease, "", CUmemGenericAllocationHandle)                                                  \
  X(MemMap, "", CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)     \
  X(MemUnmap, "", CUdeviceptr, size_t)                                                             \
  X(MemSetAccess, "", CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)                        \
  X(MemExportToShareableHandle, "", void *, CUmemGenericAllocationHandle, int, unsigned long long) \
  X(MemImportFromShareableHandle, "", CUmemGenericAllocationHandle *, void *, int)

/* The driver's functions; written while it is found, by one thread. */
typedef struct lm_gpu_cuda_functions {
#define DECLARE(name, suffix, ...) CUresult (*name)(__VA_ARGS__);
  LM_GPU_CUDA_REQUIRED(DECLARE)
  LM_GPU_CUDA_OPTIONAL(DECLARE)
#undef DECLARE
} lm_gpu_cuda_functions;
extern lm_gpu_cuda_functions lm_gpu_cuda;

/* A pool of the driver's for each threshold asked for; never taken off the list. */
typedef struct lm_gpu_cuda_pool {
  struct lm_gpu_cuda_pool *next;
  size_t threshold;
  CUmemoryPool pool;
} lm_gpu_cuda_pool;

typedef struct lm_gpu_cuda_device {
  CUdevice handle;
  _Atomic(CUcontext) primary; /* retained; NULL: not yet. Release pairs with acquire, or both
                                   retain it, which is nothing */
  _Atomic(lm_gpu_cuda_pool *)
      pools; /* release when it is filled in; pairs with the acquire of a search */
  bool has_vmm, has_pools;
  _Atomic bool has_exports; /* relaxed: taken away where the driver refuses it after all */
  size_t granularity;
} lm_gpu_cuda_device;
extern int lm_gpu_cuda_count;
extern lm_gpu_cuda_device lm_gpu_cuda_of[LM_DEVICES_MAX];

extern const lm_gpu_ops lm_gpu_cuda_ops;

/* Of results, for people. */
const char *lm_gpu_cuda_name(CUresult result);
const char *lm_gpu_cuda_error(CUresult result);
int lm_gpu_cuda_attribute(int device, int which, int otherwise);
/* What mapped memory of a device is. */
CUmemAllocationProp lm_gpu_cuda_prop(int device);

#endif
