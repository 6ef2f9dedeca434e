/* gpu_cuda.h - the functions of CUDA's driver API that loam calls, and what loam knows of devices.
 * Only the files gpu_cuda*.c include it.
 *
 * From cuda.h loam uses types and constants alone. cuda.h redirects a function name to the form
 * (such as cuMemAlloc_v2) that its own toolkit prefers; loam instead names the form here. So every
 * toolkit builds the same binary. */
#ifndef LM_GPU_CUDA_H
#define LM_GPU_CUDA_H

#include <cuda.h>
#include <stdatomic.h>

#include "gpu/gpu.h"

/* Each row: the name without "cu"; the suffix of the symbol, for libraries that are searched with
 * dlsym; the arguments. loam does not use a driver that lacks one of these functions. */
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

/* Rows as above. loam asks before each call whether the driver has the function. */
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

/* Pointers to the driver's functions; NULL: the driver lacks an optional function. The thread that
 * finds the driver writes them; they are constant once lm_gpu() has returned it. */
typedef struct lm_gpu_cuda_functions {
#define DECLARE(name, suffix, ...) CUresult (*name)(__VA_ARGS__);
  LM_GPU_CUDA_REQUIRED(DECLARE)
  LM_GPU_CUDA_OPTIONAL(DECLARE)
#undef DECLARE
} lm_gpu_cuda_functions;
extern lm_gpu_cuda_functions lm_gpu_cuda;

/* One of the driver's own pools. A device has one for each threshold that loam used (rarely two,
 * where two threads made it together). It is never removed from its list. */
typedef struct lm_gpu_cuda_pool {
  struct lm_gpu_cuda_pool *next;
  size_t threshold; /* bytes that the pool keeps when a stream is synchronized */
  CUmemoryPool pool;
} lm_gpu_cuda_pool;

/* A device. Law: granularity is a power of two if has_vmm. */
typedef struct lm_gpu_cuda_device {
  CUdevice handle;
  /* The primary context; NULL: loam has not retained it. The release of the thread that retains it
   * pairs with the acquire of a thread that reads it. Two threads may both retain it: that does no
   * harm, because loam never releases it. */
  _Atomic(CUcontext) primary;
  /* The release that links a filled-in pool pairs with the acquire of a thread that searches. */
  _Atomic(lm_gpu_cuda_pool *) pools;
  bool has_vmm, has_pools;  /* as in lm_gpu_info */
  _Atomic bool has_exports; /* as in lm_gpu_info. Relaxed: it becomes false when the driver refuses
                               exportable memory, and the thread that saw that acts on it */
  size_t granularity;
} lm_gpu_cuda_device;
extern int lm_gpu_cuda_count; /* devices in lm_gpu_cuda_of */
extern lm_gpu_cuda_device lm_gpu_cuda_of[LM_DEVICES_MAX];

/* Returns whether a device's law holds. */
bool lm_gpu_cuda_is_valid(const lm_gpu_cuda_device *device);

extern const lm_gpu_ops lm_gpu_cuda_ops;

/* Return the name of a result ("CUDA_ERROR_OUT_OF_MEMORY") and its words ("out of memory"), as the
 * driver gives them. Never NULL. */
const char *lm_gpu_cuda_name(CUresult result);
const char *lm_gpu_cuda_error(CUresult result);
/* Returns attribute `which` (CU_DEVICE_ATTRIBUTE_*) of a device; `otherwise` if the driver does not
 * know it. */
int lm_gpu_cuda_attribute(int device, int which, int otherwise);
/* Returns the properties that loam requests of memory that it maps on a device: pinned to the
 * device, and exportable to other processes where the device can do so. */
CUmemAllocationProp lm_gpu_cuda_prop(int device);

#endif
