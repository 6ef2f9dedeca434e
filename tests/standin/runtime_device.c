/* runtime_device.c - the runtime's current device, attributes of devices, errors and versions. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime.h"

enum { DEVICES = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primary[DEVICES]; /* each retained once; `lock` guards them */
static _Thread_local int chosen;
static _Thread_local cudaError_t last;

cudaError_t rt_note(cudaError_t result) {
  if (result != CUDA_SUCCESS) last = result;
  return result;
}

static cudaError_t context_of(int device, CUcontext *out) {
  if (device < 0 || device >= DEVICES) return CUDA_ERROR_INVALID_DEVICE;
  cudaError_t result = cuInit(0);
  pthread_mutex_lock(&lock);
  if (result == CUDA_SUCCESS && !primary[device]) {
    result = cuDevicePrimaryCtxRetain(&primary[device], device);
  }
  *out = primary[device];
  pthread_mutex_unlock(&lock);
  return result;
}

static cudaError_t choose(int device) {
  CUcontext context;
  cudaError_t result = context_of(device, &context);
  return result ? result : cuCtxSetCurrent(context);
}

cudaError_t rt_ready(void) {
  CUcontext context = NULL;
  cudaError_t result = cuCtxGetCurrent(&context);
  if (result == CUDA_SUCCESS && context) return CUDA_SUCCESS;
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_INITIALIZED) return result;
  return choose(chosen);
}

/* ---- The current device */

EXPORT cudaError_t cudaGetDeviceCount(int *out) {
  cudaError_t result = cuInit(0);
  if (out) *out = 0;
  return rt_note(result ? result : cuDeviceGetCount(out));
}

EXPORT cudaError_t cudaGetDevice(int *out) {
  CUdevice device;
  if (!out) return rt_note(CUDA_ERROR_INVALID_VALUE);
  *out = cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : chosen;
  return CUDA_SUCCESS;
}

EXPORT cudaError_t cudaSetDevice(int device) {
  cudaError_t result = choose(device);
  if (result == CUDA_SUCCESS) chosen = device;
  return rt_note(result);
}

EXPORT cudaError_t cudaDeviceSynchronize(void) { ANSWER(cuCtxSynchronize()); }

EXPORT cudaError_t cudaDeviceCanAccessPeer(int *out, int device, int peer) {
  ANSWER(cuDeviceCanAccessPeer(out, device, peer));
}

EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  CUcontext context;
  cudaError_t result = context_of(peer, &context);
  ANSWER(result ? result : cuCtxEnablePeerAccess(context, flags));
}

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  ANSWER(cuCtxGetStreamPriorityRange(least, greatest));
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char *out, int length, int device) {
  ANSWER(cuDeviceGetPCIBusId(out, length, device));
}

/* ---- Attributes */

/* Attributes have the driver's numbers. */
EXPORT cudaError_t cudaDeviceGetAttribute(int *out, int attribute, int device) {
  ANSWER(cuDeviceGetAttribute(out, (CUdevice_attribute)attribute, device));
}

typedef struct properties {
  char name[256];
  CUuuid uuid;
  char luid[8];
  unsigned luid_device_node_mask;
  size_t total_memory, shared_memory_per_block;
  int registers_per_block, warp_size;
  size_t pitch;
  int threads_per_block, threads_dim[3], grid_size[3], clock_rate;
  size_t constant_memory;
  int major, minor;
  size_t texture_alignment, texture_pitch_alignment;
  int device_overlap, multiprocessors, has_kernel_timeout, integrated, can_map_host_memory;
  int compute_mode, texture_limits[26], surface_limits[14];
  size_t surface_alignment;
  int concurrent_kernels, has_ecc, pci_bus, pci_device, pci_domain, tcc, async_engines;
  int unified_addressing, memory_clock_rate, memory_bus_width, l2_size, l2_persisting;
  int threads_per_multiprocessor, has_stream_priorities, caches_global, caches_local;
  size_t shared_memory_per_multiprocessor;
  int registers_per_multiprocessor, managed_memory, multi_gpu_board[2], host_atomics;
  int double_ratio, pageable_access, concurrent_managed_access, compute_preemption;
  int registered_by_host_pointer, cooperative_launch[2];
  size_t shared_memory_opt_in;
  int more[4];
  size_t reserved_shared_memory;
  int host_register_supported, and_more[3], memory_pools_supported;
  int rest[71];
} properties;
_Static_assert(sizeof(properties) == 1032, "as cudaDeviceProp of CUDA 12");
_Static_assert(offsetof(properties, surface_alignment) == 568, "as cudaDeviceProp of CUDA 12");
_Static_assert(offsetof(properties, memory_pools_supported) == 744, "as cudaDeviceProp of CUDA 12");

static int attribute(int device, int which) {
  int value = 0;
  cuDeviceGetAttribute(&value, (CUdevice_attribute)which, device);
  return value;
}

EXPORT cudaError_t cudaGetDeviceProperties_v2(properties *out, int device) {
  cudaError_t result = cuInit(0);
  if (result != CUDA_SUCCESS) return rt_note(result);
  *out = (properties){ .threads_dim = { 1024, 1024, 64 }, .grid_size = { 1 << 30, 65535, 65535 } };
  result = cuDeviceGetName(out->name, (int)sizeof out->name, device);
  if (result == CUDA_SUCCESS) result = cuDeviceTotalMem_v2(&out->total_memory, device);
  if (result != CUDA_SUCCESS) return rt_note(result);
  cuDeviceGetUuid_v2(&out->uuid, device);
  out->shared_memory_per_block = out->shared_memory_per_multiprocessor = 48 << 10;
  out->registers_per_block = out->registers_per_multiprocessor = 65536;
  out->warp_size = attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  out->threads_per_block = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  out->threads_per_multiprocessor = out->threads_per_block;
  out->major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  out->minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  out->multiprocessors = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  out->can_map_host_memory = attribute(device, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  out->unified_addressing = attribute(device, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
  out->managed_memory = attribute(device, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
  out->concurrent_managed_access = attribute(device, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
  out->host_register_supported = attribute(device, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  out->registered_by_host_pointer = attribute(
      device, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
  out->memory_pools_supported = attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  out->pci_bus = attribute(device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  out->texture_alignment = out->texture_pitch_alignment = out->surface_alignment = 512;
  return CUDA_SUCCESS;
}

/* ---- Errors, versions, functions of the driver by name */

EXPORT cudaError_t cudaGetLastError(void) {
  cudaError_t result = last;
  last = CUDA_SUCCESS;
  return result;
}

EXPORT cudaError_t cudaPeekAtLastError(void) { return last; }

EXPORT const char *cudaGetErrorName(cudaError_t error) {
  const char *name;
  return cuGetErrorName(error, &name) == CUDA_SUCCESS ? name : "unrecognized error code";
}

EXPORT const char *cudaGetErrorString(cudaError_t error) {
  const char *words;
  return cuGetErrorString(error, &words) == CUDA_SUCCESS ? words : "unrecognized error code";
}

EXPORT cudaError_t cudaRuntimeGetVersion(int *out) {
  *out = RUNTIME_VERSION;
  return CUDA_SUCCESS;
}

EXPORT cudaError_t cudaDriverGetVersion(int *out) { return rt_note(cuDriverGetVersion(out)); }

EXPORT cudaError_t cudaGetDriverEntryPoint(const char *name, void **out, unsigned long long flags,
                                           CUdriverProcAddressQueryResult *status) {
  ANSWER(cuGetProcAddress_v2(name, out, RUNTIME_VERSION, flags, status));
}

EXPORT cudaError_t cudaProfilerStart(void) { ANSWER(cuProfilerStart()); }
EXPORT cudaError_t cudaProfilerStop(void) { ANSWER(cuProfilerStop()); }
