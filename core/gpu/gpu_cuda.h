/* gpu_cuda.h - the functions of CUDA's driver API that loam calls, and what loam knows of devices.
 * Only the files gpu_cuda*.c and their test include it.
 *
 * From cuda.h loam uses types and constants alone. cuda.h redirects a function name to the form
 * (such as cuMemAlloc_v2) that its own toolkit prefers; loam instead names the form here. So every
 * toolkit builds the same binary. */
#ifndef LM_GPU_CUDA_H
#define LM_GPU_CUDA_H

#include <cuda.h>
#include <stdatomic.h>

#include "gpu/gpu.h"
#include "os/thread.h"

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
  X(DeviceGetUuid, "_v2", CUuuid *, CUdevice)                                                      \
  X(StreamIsCapturing, "", CUstream, int *)                                                        \
  X(ThreadExchangeStreamCaptureMode, "", int *)                                                    \
  X(MemPoolCreate, "", CUmemoryPool *, const CUmemPoolProps *)                                     \
  X(MemPoolDestroy, "", CUmemoryPool)                                                              \
  X(MemPoolSetAttribute, "", CUmemoryPool, int, void *)                                            \
  X(MemPoolGetAttribute, "", CUmemoryPool, int, void *)                                            \
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
  _Atomic bool has_exports; /* as in lm_gpu_info. It becomes false when the driver refuses
                               exportable memory. Default ordering; it pairs with nothing */
  size_t granularity;
} lm_gpu_cuda_device;
extern int lm_gpu_cuda_count; /* devices in lm_gpu_cuda_of */
extern lm_gpu_cuda_device lm_gpu_cuda_of[LM_DEVICES_MAX];

/* Returns whether a device's law holds. */
LM_INLINE bool lm_gpu_cuda_is_valid(const lm_gpu_cuda_device *device) {
  return !device->has_vmm || lm_is_pow2(device->granularity);
}

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

/* ---- Calls in a context: gpu_cuda_context.c */

/* A thread that calls the driver is marked as inside loam until the call returns. The driver may
 * allocate while it holds locks of its own. Where loam is also the driver's malloc, a policy could
 * give such an allocation pinned memory, and loam would call the driver again from inside it. The
 * mark gives the allocation plain memory. */

/* Returns whether the device exists; if not, sets the error words. */
bool lm_gpu_cuda_has_device(int device);
/* Returns how a call ended. If it failed, sets the error words; `format` names the call, as in
 * "cuMemAlloc of 4096 bytes on device 0: CUDA_ERROR_OUT_OF_MEMORY (2), out of memory". */
lm_gpu_result lm_gpu_cuda_report(CUresult result, const char *format, ...) LM_PRINTF(2, 3);
/* Returns how a call ended that frees the object at `at`, and sets the error words. An object that
 * the driver does not know was destroyed with its context: LM_GPU_GONE. */
lm_gpu_result lm_gpu_cuda_report_free(CUresult result, const char *call, uint64_t at);

enum { LM_GPU_CUDA_RELAXED = 2 }; /* CU_STREAM_CAPTURE_MODE_RELAXED */
/* Sets the capture mode of this thread and returns the mode before. In relaxed mode this thread's
 * calls do not affect a graph that is being captured, except calls that wait for a context, an
 * event or a stream. In other modes a call that may wait
 * implicitly makes the capture fail. */
int lm_gpu_cuda_swap_mode(int mode);

/* A stretch of calls in a context of a device: from lm_gpu_cuda_enter to lm_gpu_cuda_leave. */
typedef struct lm_gpu_cuda_scope {
  lm_gpu_result result;
  CUcontext pushed; /* the context that was made current; NULL: it already was */
  int mode;         /* the thread's capture mode before */
  lm_thread *self;  /* marked as inside loam; NULL: it has no record */
} lm_gpu_cuda_scope;

/* Makes a context of the device current until lm_gpu_cuda_leave. In between, calls do not affect
 * graph capture, and the thread is marked as inside loam. Other results than LM_GPU_OK: nothing was
 * made current, the error words are set, and lm_gpu_cuda_leave must not be called. */
lm_gpu_result lm_gpu_cuda_enter(lm_gpu_cuda_scope *s, int device);
void lm_gpu_cuda_leave(const lm_gpu_cuda_scope *s);
/* Most drivers free objects without a current context. Where a driver wants one, any context works:
 * this enters the primary context of some device. Returns false if loam has retained none. */
bool lm_gpu_cuda_enter_some(lm_gpu_cuda_scope *s);

/* Makes a call in a context of the device and returns its result from the function. The arguments
 * after `call` name the call for the error words. */
#define LM_GPU_CUDA_IN_DEVICE(device, call, ...)                         \
  do {                                                                   \
    lm_gpu_cuda_scope s_;                                                \
    if (lm_gpu_cuda_enter(&s_, (device)) != LM_GPU_OK) return s_.result; \
    CUresult result_ = (call);                                           \
    lm_gpu_cuda_leave(&s_);                                              \
    return lm_gpu_cuda_report(result_, __VA_ARGS__);                     \
  } while (0)

/* Makes a call that needs no particular context, and puts how it ended into `result`. */
#define LM_GPU_CUDA_ANYWHERE(result, call)                                       \
  do {                                                                           \
    lm_gpu_cuda_scope s_;                                                        \
    lm_thread *self_ = lm_thread_inside_begin();                                 \
    int mode_ = lm_gpu_cuda_swap_mode(LM_GPU_CUDA_RELAXED);                      \
    (result) = (call);                                                           \
    if ((result) == CUDA_ERROR_INVALID_CONTEXT && lm_gpu_cuda_enter_some(&s_)) { \
      (result) = (call);                                                         \
      lm_gpu_cuda_leave(&s_);                                                    \
    }                                                                            \
    (void)lm_gpu_cuda_swap_mode(mode_);                                          \
    lm_thread_inside_end(self_);                                                 \
  } while (0)

/* The operations of gpu.h with these names. */
int lm_gpu_cuda_current(void);
void *lm_gpu_cuda_context(int device);
void *lm_gpu_cuda_host_context(int device);
void *lm_gpu_cuda_stream_context(lm_stream stream);
lm_gpu_result lm_gpu_cuda_push(int device, void **out);
lm_gpu_result lm_gpu_cuda_push_context(int device, void *context, void **out);
void lm_gpu_cuda_pop(void *pushed);
void lm_gpu_cuda_track_context(int device, void *context);
void lm_gpu_cuda_untrack_contexts(int device);
lm_gpu_result lm_gpu_cuda_synchronize(int device);
lm_gpu_result lm_gpu_cuda_wait(int device);

#endif
