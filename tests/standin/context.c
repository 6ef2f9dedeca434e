/* context.c - devices and their attributes; primary contexts, other contexts, and each thread's
 * stack of contexts. */
#include <stdio.h>
#include <stdlib.h>

#include "state.h"

static _Thread_local CUcontext stack[STACK_MAX];
static _Thread_local int depth;
static _Thread_local unsigned stack_life; /* the stack belongs to this life of the stand-in */
static unsigned life;

/* Contexts are never freed, so that the use of a destroyed context can be detected. */
static struct {
  CUcontext *all;
  unsigned count;
} contexts;

CUresult si_of_device(int device) {
  return device >= 0 && device < si.count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static bool is_context(CUcontext context) {
  for (unsigned i = 0; i < contexts.count; i++) {
    if (contexts.all[i] == context) return true;
  }
  return false;
}

CUcontext si_current_or_null(void) {
  if (stack_life != life) depth = 0;
  stack_life = life;
  return depth ? stack[depth - 1] : NULL;
}

CUresult si_current(CUcontext *out) {
  CUcontext context = si_current_or_null();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->live) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *out = context;
  return si.devices[context->device].broken;
}

static CUresult push(CUcontext context) {
  si_current_or_null();
  if (depth == STACK_MAX) return CUDA_ERROR_INVALID_VALUE;
  stack[depth++] = context;
  return CUDA_SUCCESS;
}

static CUresult check_context(CUcontext context) {
  if (!context || !is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  return context->live ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUcontext context_new(int device, unsigned flags) {
  CUcontext context = calloc(1, sizeof *context);
  CUcontext *all = realloc(contexts.all, (contexts.count + 1) * sizeof *all);
  if (!context || !all) abort();
  contexts.all = all;
  all[contexts.count++] = context;
  context->live = true;
  context->device = device;
  context->flags = flags;
  context->legacy = si_stream_new(context, 0);
  context->legacy->hidden = true;
  return context;
}

static void context_end(CUcontext context) {
  si_drain(context, -1);
  si_blocks_end(context);
  si_streams_end(context);
  context->live = false;
  si.devices[context->device].broken = CUDA_SUCCESS;
}

void si_context_reset(void) {
  for (unsigned i = 0; i < contexts.count; i++) contexts.all[i]->live = false;
  life++;
}

/* ---- Devices ---- */

API cuDeviceGetCount(int *out) {
  ENTER();
  if (!out) LEAVE(CUDA_ERROR_INVALID_VALUE);
  *out = si.count;
  LEAVE(CUDA_SUCCESS);
}

API cuDeviceGet(CUdevice *out, int ordinal) {
  ENTER();
  if (!out) LEAVE(CUDA_ERROR_INVALID_VALUE);
  *out = ordinal;
  LEAVE(si_of_device(ordinal));
}

API cuDeviceGetName(char *out, int length, CUdevice device) {
  ENTER();
  if (!out || length < 1) LEAVE(CUDA_ERROR_INVALID_VALUE);
  snprintf(out, (size_t)length, "Stand-in device %d", device);
  LEAVE(si_of_device(device));
}

API cuDeviceGetUuid_v2(CUuuid *out, CUdevice device) {
  ENTER();
  if (!out) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (si_of_device(device)) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  memset(out->bytes, 0, sizeof out->bytes); /* programs compare all bytes */
  snprintf(out->bytes, sizeof out->bytes, "stand-in %d", si.devices[device].number);
  LEAVE(CUDA_SUCCESS);
}

/* The older function names the whole GPU. All devices of the stand-in are parts of one GPU. */
API cuDeviceGetUuid(CUuuid *out, CUdevice device) {
  CUresult result = cuDeviceGetUuid_v2(out, device);
  if (result == CUDA_SUCCESS) strcpy(out->bytes, "stand-in");
  return result;
}

API cuDeviceGetPCIBusId(char *out, int length, CUdevice device) {
  ENTER();
  if (!out || length < 1) LEAVE(CUDA_ERROR_INVALID_VALUE);
  snprintf(out, (size_t)length, "0000:%02X:00.0",
           0xe0 + (si_of_device(device) ? 0 : si.devices[device].number));
  LEAVE(si_of_device(device));
}

API cuDeviceTotalMem_v2(size_t *out, CUdevice device) {
  ENTER();
  if (!out) LEAVE(CUDA_ERROR_INVALID_VALUE);
  CUresult result = si_of_device(device);
  if (result == CUDA_SUCCESS) *out = si.devices[device].total;
  LEAVE(result);
}

static int attribute_of(int attribute, int device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 4;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return 0xe0 + si.devices[device].number;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 7;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return 5;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: return !si.lacks_managed;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: return !si.lacks_vmm;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: return !si.lacks_exports;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: return !si.lacks_pools;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: return si.devices[device].node;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID: return -1;
    default: return 0;
  }
}

API cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice device) {
  ENTER();
  if (!out || attribute < 1 || attribute > 200) LEAVE(CUDA_ERROR_INVALID_VALUE);
  CUresult result = si_of_device(device);
  if (result == CUDA_SUCCESS) *out = attribute_of((int)attribute, device);
  LEAVE(result);
}

/* ---- The primary context ---- */

API cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
  ENTER();
  CUresult result = si_of_device(device);
  if (!out || result != CUDA_SUCCESS) LEAVE(out ? result : CUDA_ERROR_INVALID_VALUE);
  struct si_gpu *of = &si.devices[device];
  if (of->broken) LEAVE(of->broken);
  if (!of->primary || !of->primary->live) {
    CUcontext old = of->primary;
    of->primary = context_new(device, old ? old->flags : 0);
    of->primary->primary = true;
    of->primary->retained = old ? old->retained : 0;
  }
  of->primary->retained++;
  *out = of->primary;
  LEAVE(CUDA_SUCCESS);
}

API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER();
  if (si_of_device(device) != CUDA_SUCCESS) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  CUcontext primary = si.devices[device].primary;
  if (!primary || primary->retained == 0) {
    si_violate("the primary context of device %d is released, but not retained", device);
    LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  }
  if (--primary->retained == 0 && primary->live) context_end(primary);
  LEAVE(CUDA_SUCCESS);
}

/* Ends the primary context. Its references remain, and each must still be released. */
API cuDevicePrimaryCtxReset_v2(CUdevice device) {
  ENTER();
  if (si_of_device(device) != CUDA_SUCCESS) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  CUcontext primary = si.devices[device].primary;
  if (primary && primary->live) context_end(primary);
  si.devices[device].broken = CUDA_SUCCESS;
  LEAVE(CUDA_SUCCESS);
}

API cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  ENTER();
  if (!flags || !active) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (si_of_device(device) != CUDA_SUCCESS) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  CUcontext primary = si.devices[device].primary;
  *active = primary && primary->live;
  *flags = primary ? primary->flags : 0;
  LEAVE(CUDA_SUCCESS);
}

API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  ENTER();
  if (si_of_device(device) != CUDA_SUCCESS) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  CUcontext primary = si.devices[device].primary;
  if (primary) primary->flags = flags;
  LEAVE(CUDA_SUCCESS);
}

/* ---- Other contexts, and the current context ---- */

API cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device) {
  ENTER();
  CUresult result = si_of_device(device);
  if (!out || result != CUDA_SUCCESS) LEAVE(out ? result : CUDA_ERROR_INVALID_VALUE);
  CUcontext context = context_new(device, flags);
  result = push(context);
  *out = context;
  LEAVE(result);
}

API cuCtxCreate_v4(CUcontext *out, void *parameters, unsigned flags, CUdevice device) {
  (void)parameters;
  return cuCtxCreate_v2(out, flags, device);
}

API cuCtxDestroy_v2(CUcontext context) {
  ENTER();
  CUresult result = check_context(context);
  if (result != CUDA_SUCCESS || context->primary) {
    si_violate("cuCtxDestroy of %p, which is %s", (void *)context,
               result == CUDA_SUCCESS ? "a primary context" : "no live context");
    LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  }
  context_end(context);
  if (si_current_or_null() == context) depth--;
  LEAVE(CUDA_SUCCESS);
}

API cuCtxPushCurrent_v2(CUcontext context) {
  ENTER();
  CUresult result = check_context(context);
  LEAVE(result == CUDA_SUCCESS ? push(context) : result);
}

API cuCtxPopCurrent_v2(CUcontext *out) {
  ENTER();
  CUcontext context = si_current_or_null();
  if (!context) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  depth--;
  if (out) *out = context;
  LEAVE(CUDA_SUCCESS);
}

API cuCtxSetCurrent(CUcontext context) {
  ENTER();
  CUresult result = context ? check_context(context) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) LEAVE(result);
  if (si_current_or_null()) depth--;
  LEAVE(context ? push(context) : CUDA_SUCCESS);
}

API cuCtxGetCurrent(CUcontext *out) {
  ENTER();
  if (!out) LEAVE(CUDA_ERROR_INVALID_VALUE);
  *out = si_current_or_null();
  LEAVE(CUDA_SUCCESS);
}

API cuCtxGetDevice(CUdevice *out) {
  ENTER();
  CUcontext context;
  CUresult result = si_current(&context);
  if (!out) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (result == CUDA_SUCCESS) *out = context->device;
  LEAVE(result);
}

API cuCtxGetFlags(unsigned *out) {
  ENTER();
  CUcontext context;
  CUresult result = si_current(&context);
  if (result == CUDA_SUCCESS && out) *out = context->flags;
  LEAVE(result);
}

API cuCtxGetApiVersion(CUcontext context, unsigned *out) {
  ENTER();
  CUresult result = context ? check_context(context) : si_current(&context);
  if (result == CUDA_SUCCESS && out) *out = 3020;
  LEAVE(result);
}

API cuCtxSynchronize(void) {
  ENTER();
  CUcontext context;
  CUresult result = si_current(&context);
  if (result == CUDA_SUCCESS) result = si_capture_of(context, NULL, "cuCtxSynchronize");
  if (result == CUDA_SUCCESS) {
    si_drain(context, -1);
    si_pool_shrink(context->device, false);
  }
  LEAVE(result);
}

API cuDeviceCanAccessPeer(int *out, CUdevice device, CUdevice peer) {
  ENTER();
  if (!out) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (si_of_device(device) || si_of_device(peer)) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  *out = device != peer && !si.lacks_peers;
  LEAVE(CUDA_SUCCESS);
}

API cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  ENTER();
  LEAVE(flags ? CUDA_ERROR_INVALID_VALUE : check_context(peer));
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  ENTER();
  CUcontext context;
  CUresult result = si_current(&context);
  if (least) *least = 0;
  if (greatest) *greatest = -1;
  LEAVE(result);
}

API cuProfilerStart(void) {
  ENTER();
  LEAVE(CUDA_SUCCESS);
}

API cuProfilerStop(void) {
  ENTER();
  LEAVE(CUDA_SUCCESS);
}

/* ---- Multicast memory: not supported, but PyTorch looks these functions up ---- */

API cuMulticastCreate(CUmemGenericAllocationHandle *out, const void *properties) {
  ENTER();
  (void)out, (void)properties;
  LEAVE(CUDA_ERROR_NOT_SUPPORTED);
}

API cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device) {
  ENTER();
  (void)handle, (void)device;
  LEAVE(CUDA_ERROR_NOT_SUPPORTED);
}

API cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                       CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
                       unsigned long long flags) {
  ENTER();
  (void)handle, (void)offset, (void)memory, (void)memory_offset, (void)size, (void)flags;
  LEAVE(CUDA_ERROR_NOT_SUPPORTED);
}
