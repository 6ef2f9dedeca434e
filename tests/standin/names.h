/* names.h - the functions of the stand-in: X(name, the version that has it first, function,
 * arguments). */
#ifndef STANDIN_NAMES_H
#define STANDIN_NAMES_H

#include "cuda.h"

#define STANDIN_FUNCTIONS(X)                                                                      \
  X(cuCtxCreate, 4000, cuCtxCreate_v2, (CUcontext * out, unsigned flags, CUdevice device))        \
  X(cuCtxCreate, 12050, cuCtxCreate_v4,                                                           \
    (CUcontext * out, void *parameters, unsigned flags, CUdevice device))                         \
  X(cuCtxDestroy, 4000, cuCtxDestroy_v2, (CUcontext context))                                     \
  X(cuCtxEnablePeerAccess, 3020, cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))         \
  X(cuCtxGetApiVersion, 3020, cuCtxGetApiVersion, (CUcontext context, unsigned *out))             \
  X(cuCtxGetCurrent, 3020, cuCtxGetCurrent, (CUcontext * out))                                    \
  X(cuCtxGetDevice, 3020, cuCtxGetDevice, (CUdevice * out))                                       \
  X(cuCtxGetFlags, 3020, cuCtxGetFlags, (unsigned *out))                                          \
  X(cuCtxGetStreamPriorityRange, 3020, cuCtxGetStreamPriorityRange, (int *least, int *greatest))  \
  X(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2, (CUcontext * out))                                 \
  X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2, (CUcontext context))                             \
  X(cuCtxSetCurrent, 3020, cuCtxSetCurrent, (CUcontext context))                                  \
  X(cuCtxSynchronize, 3020, cuCtxSynchronize, (void))                                             \
  X(cuDeviceCanAccessPeer, 3020, cuDeviceCanAccessPeer,                                           \
    (int *out, CUdevice device, CUdevice peer))                                                   \
  X(cuDeviceGet, 3020, cuDeviceGet, (CUdevice * out, int ordinal))                                \
  X(cuDeviceGetAttribute, 3020, cuDeviceGetAttribute,                                             \
    (int *out, CUdevice_attribute attribute, CUdevice device))                                    \
  X(cuDeviceGetCount, 3020, cuDeviceGetCount, (int *out))                                         \
  X(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool,                                  \
    (CUmemoryPool * out, CUdevice device))                                                        \
  X(cuDeviceGetMemPool, 11020, cuDeviceGetMemPool, (CUmemoryPool * out, CUdevice device))         \
  X(cuDeviceGetName, 3020, cuDeviceGetName, (char *out, int length, CUdevice device))             \
  X(cuDeviceGetPCIBusId, 3020, cuDeviceGetPCIBusId, (char *out, int length, CUdevice device))     \
  X(cuDeviceGetUuid, 3020, cuDeviceGetUuid, (CUuuid * out, CUdevice device))                      \
  X(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2, (CUuuid * out, CUdevice device))                  \
  X(cuDevicePrimaryCtxGetState, 3020, cuDevicePrimaryCtxGetState,                                 \
    (CUdevice device, unsigned *flags, int *active))                                              \
  X(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2, (CUdevice device))            \
  X(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2, (CUdevice device))                \
  X(cuDevicePrimaryCtxRetain, 3020, cuDevicePrimaryCtxRetain, (CUcontext * out, CUdevice device)) \
  X(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2,                             \
    (CUdevice device, unsigned flags))                                                            \
  X(cuDeviceSetMemPool, 11020, cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool))          \
  X(cuDeviceTotalMem, 4000, cuDeviceTotalMem_v2, (size_t * out, CUdevice device))                 \
  X(cuDriverGetVersion, 3020, cuDriverGetVersion, (int *out))                                     \
  X(cuEventCreate, 3020, cuEventCreate, (CUevent * out, unsigned flags))                          \
  X(cuEventDestroy, 4000, cuEventDestroy_v2, (CUevent event))                                     \
  X(cuEventElapsedTime, 3020, cuEventElapsedTime, (float *out, CUevent start, CUevent stop))      \
  X(cuEventElapsedTime, 12080, cuEventElapsedTime_v2, (float *out, CUevent start, CUevent stop))  \
  X(cuEventQuery, 3020, cuEventQuery, (CUevent event))                                            \
  X(cuEventRecord, 3020, cuEventRecord, (CUevent event, CUstream handle))                         \
  X(cuEventSynchronize, 3020, cuEventSynchronize, (CUevent event))                                \
  X(cuGetErrorName, 3020, cuGetErrorName, (CUresult error, const char **out))                     \
  X(cuGetErrorString, 3020, cuGetErrorString, (CUresult error, const char **out))                 \
  X(cuGetProcAddress, 11030, cuGetProcAddress,                                                    \
    (const char *name, void **out, int version, cuuint64_t flags))                                \
  X(cuGetProcAddress, 12000, cuGetProcAddress_v2,                                                 \
    (const char *name, void **out, int version, cuuint64_t flags,                                 \
     CUdriverProcAddressQueryResult *status))                                                     \
  X(cuInit, 3020, cuInit, (unsigned flags))                                                       \
  X(cuIpcCloseMemHandle, 4010, cuIpcCloseMemHandle, (CUdeviceptr at))                             \
  X(cuIpcGetMemHandle, 4010, cuIpcGetMemHandle, (CUipcMemHandle * out, CUdeviceptr at))           \
  X(cuIpcOpenMemHandle, 11000, cuIpcOpenMemHandle_v2,                                             \
    (CUdeviceptr * out, CUipcMemHandle bytes, unsigned flags))                                    \
  X(cuLaunchHostFunc, 10000, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data))  \
  X(cuMemAddressFree, 10020, cuMemAddressFree, (CUdeviceptr at, size_t size))                     \
  X(cuMemAddressReserve, 10020, cuMemAddressReserve,                                              \
    (CUdeviceptr * out, size_t size, size_t alignment, CUdeviceptr hint,                          \
     unsigned long long flags))                                                                   \
  X(cuMemAdvise, 3020, cuMemAdvise,                                                               \
    (CUdeviceptr at, size_t size, CUmem_advise advice, CUdevice device))                          \
  X(cuMemAdvise, 12020, cuMemAdvise_v2,                                                           \
    (CUdeviceptr at, size_t size, CUmem_advise advice, CUmemLocation location))                   \
  X(cuMemAllocAsync, 11020, cuMemAllocAsync, (CUdeviceptr * out, size_t size, CUstream stream))   \
  X(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync,                                      \
    (CUdeviceptr * out, size_t size, CUmemoryPool pool, CUstream stream))                         \
  X(cuMemAllocHost, 4000, cuMemAllocHost_v2, (void **out, size_t size))                           \
  X(cuMemAllocManaged, 3020, cuMemAllocManaged, (CUdeviceptr * out, size_t size, unsigned flags)) \
  X(cuMemAlloc, 4000, cuMemAlloc_v2, (CUdeviceptr * out, size_t size))                            \
  X(cuMemCreate, 10020, cuMemCreate,                                                              \
    (CUmemGenericAllocationHandle * out, size_t size, const CUmemAllocationProp *properties,      \
     unsigned long long flags))                                                                   \
  X(cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle,                            \
    (void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,              \
     unsigned long long flags))                                                                   \
  X(cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle,                        \
    (CUmemGenericAllocationHandle * out, void *shared, CUmemAllocationHandleType type))           \
  X(cuMemFreeAsync, 11020, cuMemFreeAsync, (CUdeviceptr at, CUstream handle))                     \
  X(cuMemFreeHost, 3020, cuMemFreeHost, (void *at))                                               \
  X(cuMemFree, 4000, cuMemFree_v2, (CUdeviceptr at))                                              \
  X(cuMemGetAddressRange, 4000, cuMemGetAddressRange_v2,                                          \
    (CUdeviceptr * base, size_t * size, CUdeviceptr at))                                          \
  X(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity,                          \
    (size_t * out, const CUmemAllocationProp *properties,                                         \
     CUmemAllocationGranularity_flags option))                                                    \
  X(cuMemGetInfo, 4000, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total))                   \
  X(cuMemHostAlloc, 3020, cuMemHostAlloc, (void **out, size_t size, unsigned flags))              \
  X(cuMemHostGetDevicePointer, 4000, cuMemHostGetDevicePointer_v2,                                \
    (CUdeviceptr * out, void *at, unsigned flags))                                                \
  X(cuMemHostGetFlags, 3020, cuMemHostGetFlags, (unsigned *out, void *at))                        \
  X(cuMemHostRegister, 6050, cuMemHostRegister_v2, (void *at, size_t size, unsigned flags))       \
  X(cuMemHostUnregister, 3020, cuMemHostUnregister, (void *at))                                   \
  X(cuMemMap, 10020, cuMemMap,                                                                    \
    (CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,             \
     unsigned long long flags))                                                                   \
  X(cuMemPoolCreate, 11020, cuMemPoolCreate,                                                      \
    (CUmemoryPool * out, const CUmemPoolProps *properties))                                       \
  X(cuMemPoolDestroy, 11020, cuMemPoolDestroy, (CUmemoryPool pool))                               \
  X(cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute,                                          \
    (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))                              \
  X(cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute,                                          \
    (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))                              \
  X(cuMemPoolTrimTo, 11020, cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep))                    \
  X(cuMemPrefetchAsync, 3020, cuMemPrefetchAsync,                                                 \
    (CUdeviceptr at, size_t size, CUdevice device, CUstream handle))                              \
  X(cuMemRelease, 10020, cuMemRelease, (CUmemGenericAllocationHandle handle))                     \
  X(cuMemRetainAllocationHandle, 11000, cuMemRetainAllocationHandle,                              \
    (CUmemGenericAllocationHandle * out, void *at))                                               \
  X(cuMemSetAccess, 10020, cuMemSetAccess,                                                        \
    (CUdeviceptr at, size_t size, const CUmemAccessDesc *access, size_t count))                   \
  X(cuMemUnmap, 10020, cuMemUnmap, (CUdeviceptr at, size_t size))                                 \
  X(cuMemcpy, 3020, cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t size))                    \
  X(cuMemcpyAsync, 3020, cuMemcpyAsync,                                                           \
    (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream))                             \
  X(cuMemcpyDtoDAsync, 4000, cuMemcpyDtoDAsync_v2,                                                \
    (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream))                             \
  X(cuMemcpyDtoD, 4000, cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t size))         \
  X(cuMemcpyDtoHAsync, 4000, cuMemcpyDtoHAsync_v2,                                                \
    (void *to, CUdeviceptr from, size_t size, CUstream stream))                                   \
  X(cuMemcpyDtoH, 4000, cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t size))               \
  X(cuMemcpyHtoDAsync, 4000, cuMemcpyHtoDAsync_v2,                                                \
    (CUdeviceptr to, const void *from, size_t size, CUstream stream))                             \
  X(cuMemcpyHtoD, 4000, cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t size))         \
  X(cuMemsetD32Async, 3020, cuMemsetD32Async,                                                     \
    (CUdeviceptr at, unsigned value, size_t count, CUstream stream))                              \
  X(cuMemsetD32, 4000, cuMemsetD32_v2, (CUdeviceptr at, unsigned value, size_t count))            \
  X(cuMemsetD8Async, 3020, cuMemsetD8Async,                                                       \
    (CUdeviceptr at, unsigned char value, size_t count, CUstream stream))                         \
  X(cuMemsetD8, 4000, cuMemsetD8_v2, (CUdeviceptr at, unsigned char value, size_t count))         \
  X(cuMulticastAddDevice, 12010, cuMulticastAddDevice,                                            \
    (CUmemGenericAllocationHandle handle, CUdevice device))                                       \
  X(cuMulticastBindMem, 12010, cuMulticastBindMem,                                                \
    (CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,     \
     size_t memory_offset, size_t size, unsigned long long flags))                                \
  X(cuMulticastCreate, 12010, cuMulticastCreate,                                                  \
    (CUmemGenericAllocationHandle * out, const void *properties))                                 \
  X(cuPointerGetAttribute, 3020, cuPointerGetAttribute,                                           \
    (void *out, CUpointer_attribute attribute, CUdeviceptr at))                                   \
  X(cuPointerGetAttributes, 3020, cuPointerGetAttributes,                                         \
    (unsigned count, CUpointer_attribute *attributes, void **out, CUdeviceptr at))                \
  X(cuProfilerStart, 3020, cuProfilerStart, (void))                                               \
  X(cuProfilerStop, 3020, cuProfilerStop, (void))                                                 \
  X(cuStreamAddCallback, 3020, cuStreamAddCallback,                                               \
    (CUstream stream, CUstreamCallback callback, void *data, unsigned flags))                     \
  X(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2,                                         \
    (CUstream handle, CUstreamCaptureMode mode))                                                  \
  X(cuStreamCreate, 3020, cuStreamCreate, (CUstream * out, unsigned flags))                       \
  X(cuStreamCreateWithPriority, 3020, cuStreamCreateWithPriority,                                 \
    (CUstream * out, unsigned flags, int priority))                                               \
  X(cuStreamDestroy, 4000, cuStreamDestroy_v2, (CUstream handle))                                 \
  X(cuStreamEndCapture, 10000, cuStreamEndCapture, (CUstream handle, CUgraph * out))              \
  X(cuStreamGetCtx, 3020, cuStreamGetCtx, (CUstream handle, CUcontext * out))                     \
  X(cuStreamGetFlags, 3020, cuStreamGetFlags, (CUstream handle, unsigned *out))                   \
  X(cuStreamIsCapturing, 10000, cuStreamIsCapturing, (CUstream handle, int *out))                 \
  X(cuStreamQuery, 3020, cuStreamQuery, (CUstream handle))                                        \
  X(cuStreamSynchronize, 3020, cuStreamSynchronize, (CUstream handle))                            \
  X(cuStreamWaitEvent, 3020, cuStreamWaitEvent, (CUstream handle, CUevent event, unsigned flags)) \
  X(cuStreamWriteValue32, 12000, cuStreamWriteValue32,                                            \
    (CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags))                          \
  X(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode,                  \
    (CUstreamCaptureMode * mode))

#define STANDIN_DECLARE(name, since, function, arguments) CUresult function arguments;
STANDIN_FUNCTIONS(STANDIN_DECLARE)

#endif
