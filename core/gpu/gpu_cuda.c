/* gpu_cuda.c - the operations of gpu.h by CUDA's driver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu_cuda.h"
#include "os/error.h"
#include "os/sys.h"
#include "pages/metadata.h"

enum { ATTRIBUTE_NUMA = 134 }; /* CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, since CUDA 12.2 */

/* ---- Properties of a device */

int lm_gpu_cuda_attribute(int device, int which, int otherwise) {
  int value;
  lm_assert(device >= 0 && device < LM_DEVICES_MAX);
  CUresult result = lm_gpu_cuda.DeviceGetAttribute(&value, which, lm_gpu_cuda_of[device].handle);
  return result == CUDA_SUCCESS ? value : otherwise;
}

/* Returns the NUMA node of a device: as the kernel knows it from the device's PCI slot, else as the
 * driver says. */
static int find_node(int device) {
  char bus[32], path[80], text[32];
  size_t length;
  if (lm_gpu_cuda.DeviceGetPCIBusId &&
      lm_gpu_cuda.DeviceGetPCIBusId(bus, sizeof bus, lm_gpu_cuda_of[device].handle) ==
          CUDA_SUCCESS) {
    for (char *c = bus; *c; c++)
      if (*c >= 'A' && *c <= 'F') *c += 'a' - 'A';
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus);
    if (lm_sys_read_file(path, text, sizeof text, &length) == 0 && *text != '-') return atoi(text);
  }
  return lm_gpu_cuda_attribute(device, ATTRIBUTE_NUMA, -1);
}

/* Fills in the UUID of a device, or of the part of a device that the process sees as one. */
static void find_uuid(int device, unsigned char out[16]) {
  CUuuid uuid;
  _Static_assert(sizeof uuid == 16, "gpu.h has the size of a CUuuid");
  if (lm_gpu_cuda.DeviceGetUuid &&
      lm_gpu_cuda.DeviceGetUuid(&uuid, lm_gpu_cuda_of[device].handle) == CUDA_SUCCESS)
    memcpy(out, &uuid, sizeof uuid);
}

static lm_gpu_result find_info(int device, lm_gpu_info *out) {
  lm_gpu_info found = { .has_vmm = lm_gpu_cuda_of[device].has_vmm,
                        .has_pools = lm_gpu_cuda_of[device].has_pools,
                        .has_exports = lm_gpu_cuda_of[device].has_exports,
                        .granularity = lm_gpu_cuda_of[device].granularity };
  CUdevice handle = lm_gpu_cuda_of[device].handle;
  CUresult result = lm_gpu_cuda.DeviceTotalMem(&found.total, handle);
  if (result != CUDA_SUCCESS)
    return lm_gpu_cuda_report(result, "cuDeviceTotalMem of device %d", device);
  if (lm_gpu_cuda.DeviceGetName(found.name, sizeof found.name, handle) != CUDA_SUCCESS)
    *found.name = 0;
  found.node = find_node(device);
  find_uuid(device, found.uuid);
  found.has_managed = lm_gpu_cuda_attribute(device, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0);
  *out = found;
  return LM_GPU_OK;
}

static lm_gpu_result info(int device, lm_gpu_info *out) {
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  if (!lm_gpu_cuda_has_device(device)) return LM_GPU_FAILED;
  lm_assert(out);
  lm_thread *self = lm_thread_inside_begin();
  lm_gpu_result result = find_info(device, out);
  lm_thread_inside_end(self);
  return result;
}

static lm_gpu_result memory(int device, size_t *free, size_t *total) {
  LM_GPU_CUDA_IN_DEVICE(device, lm_gpu_cuda.MemGetInfo(free, total), "cuMemGetInfo of device %d",
                        device);
}

/* ---- Memory */

static lm_gpu_result alloc(int device, size_t size, lm_devptr *out) {
  CUdeviceptr at;
  lm_gpu_cuda_scope s;
  lm_assert(out);
  if (lm_gpu_cuda_enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda.MemAlloc(&at, size);
  lm_gpu_cuda_leave(&s);
  if (result == CUDA_SUCCESS) *out = at;
  return lm_gpu_cuda_report(result, "cuMemAlloc of %zu bytes on device %d", size, device);
}

static lm_gpu_result release(int device, lm_devptr at) {
  CUresult result;
  (void)device;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  LM_GPU_CUDA_ANYWHERE(result, lm_gpu_cuda.MemFree(at));
  return lm_gpu_cuda_report_free(result, "cuMemFree", at);
}

static lm_gpu_result managed_alloc(int device, size_t size, lm_devptr *out) {
  CUdeviceptr at;
  lm_gpu_cuda_scope s;
  lm_assert(out);
  if (lm_gpu_cuda_enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda.MemAllocManaged(&at, size, CU_MEM_ATTACH_GLOBAL);
  lm_gpu_cuda_leave(&s);
  if (result == CUDA_SUCCESS) *out = at;
  return lm_gpu_cuda_report(result, "cuMemAllocManaged of %zu bytes on device %d", size, device);
}

static lm_gpu_result managed_prefer(lm_devptr at, size_t size, int device) {
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  if (device >= 0 && !lm_gpu_cuda_has_device(device)) return LM_GPU_FAILED;
  CUdevice where = device < 0 ? CU_DEVICE_CPU : lm_gpu_cuda_of[device].handle;
  CUresult result;
  LM_GPU_CUDA_ANYWHERE(
      result, lm_gpu_cuda.MemAdvise(at, size, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, where));
  return lm_gpu_cuda_report(result, "cuMemAdvise of %zu bytes to device %d", size, device);
}

static lm_gpu_result host_alloc(int device, size_t size, unsigned flags, void **out) {
  void *at;
  lm_gpu_cuda_scope s;
  unsigned wanted = (flags & LM_GPU_PORTABLE ? CU_MEMHOSTALLOC_PORTABLE : 0) |
                    (flags & LM_GPU_MAPPED ? CU_MEMHOSTALLOC_DEVICEMAP : 0) |
                    (flags & LM_GPU_WRITE_COMBINED ? CU_MEMHOSTALLOC_WRITECOMBINED : 0);
  lm_assert(out);
  if (lm_gpu_cuda_enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda.MemHostAlloc(&at, size, wanted);
  lm_gpu_cuda_leave(&s);
  if (result == CUDA_SUCCESS) *out = at;
  return lm_gpu_cuda_report(result, "cuMemHostAlloc of %zu bytes", size);
}

static lm_gpu_result host_free(void *at) {
  CUresult result;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  LM_GPU_CUDA_ANYWHERE(result, lm_gpu_cuda.MemFreeHost(at));
  return lm_gpu_cuda_report_free(result, "cuMemFreeHost", (uintptr_t)at);
}

static lm_gpu_result host_register(int device, void *at, size_t size, unsigned flags) {
  unsigned wanted = (flags & LM_GPU_PORTABLE ? CU_MEMHOSTREGISTER_PORTABLE : 0) |
                    (flags & LM_GPU_MAPPED ? CU_MEMHOSTREGISTER_DEVICEMAP : 0);
  LM_GPU_CUDA_IN_DEVICE(device, lm_gpu_cuda.MemHostRegister(at, size, wanted),
                        "cuMemHostRegister of %zu bytes at %p", size, at);
}

static lm_gpu_result host_unregister(void *at) {
  CUresult result;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  LM_GPU_CUDA_ANYWHERE(result, lm_gpu_cuda.MemHostUnregister(at));
  return lm_gpu_cuda_report_free(result, "cuMemHostUnregister", (uintptr_t)at);
}

static lm_gpu_result host_address(int device, void *at, lm_devptr *out) {
  CUdeviceptr there;
  lm_gpu_cuda_scope s;
  lm_assert(out);
  if (lm_gpu_cuda_enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda.MemHostGetDevicePointer(&there, at, 0);
  lm_gpu_cuda_leave(&s);
  if (result == CUDA_SUCCESS) *out = there;
  return lm_gpu_cuda_report(result, "cuMemHostGetDevicePointer of %p on device %d", at, device);
}

static lm_gpu_result fill(int device, lm_devptr at, int byte, size_t size, lm_stream stream) {
  LM_GPU_CUDA_IN_DEVICE(device, lm_gpu_cuda.MemsetD8Async(at, (unsigned char)byte, size, stream),
                        "cuMemsetD8Async of %zu bytes at 0x%llx", size, (unsigned long long)at);
}

static lm_gpu_result copy(int device, lm_devptr to, lm_devptr from, size_t size, lm_stream stream) {
  LM_GPU_CUDA_IN_DEVICE(device, lm_gpu_cuda.MemcpyAsync(to, from, size, stream),
                        "cuMemcpyAsync of %zu bytes from 0x%llx to 0x%llx", size,
                        (unsigned long long)from, (unsigned long long)to);
}

/* ---- Order */

static lm_gpu_result event_create(int device, lm_gpu_event *out) {
  CUevent event;
  lm_gpu_cuda_scope s;
  lm_assert(out);
  if (lm_gpu_cuda_enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda.EventCreate(&event, CU_EVENT_DISABLE_TIMING);
  lm_gpu_cuda_leave(&s);
  if (result == CUDA_SUCCESS) *out = event;
  return lm_gpu_cuda_report(result, "cuEventCreate on device %d", device);
}

/* cuStreamIsCapturing also fails for a default stream that would wait for a captured stream. Unlike
 * an event on that stream, it does not make the capture fail. */
static bool may_record(int device, lm_stream stream) {
  int status = 0;
  lm_gpu_cuda_scope s;
  if (!lm_gpu_cuda.StreamIsCapturing) return true;
  if (lm_gpu_cuda_enter(&s, device) != LM_GPU_OK) return false;
  CUresult result = lm_gpu_cuda.StreamIsCapturing(stream, &status);
  lm_gpu_cuda_leave(&s);
  return result == CUDA_SUCCESS && !status;
}

static lm_gpu_result event_record(lm_gpu_event event, int device, lm_stream stream) {
  LM_GPU_CUDA_IN_DEVICE(device, lm_gpu_cuda.EventRecord(event, stream),
                        "cuEventRecord on stream %p of device %d", stream, device);
}

static lm_gpu_result event_query(lm_gpu_event event) {
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  CUresult result;
  LM_GPU_CUDA_ANYWHERE(result, lm_gpu_cuda.EventQuery(event));
  return lm_gpu_cuda_report(result, "cuEventQuery(%p)", event);
}

static lm_gpu_result event_wait(lm_gpu_event event) {
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  CUresult result;
  LM_GPU_CUDA_ANYWHERE(result, lm_gpu_cuda.EventSynchronize(event));
  return lm_gpu_cuda_report(result, "cuEventSynchronize(%p)", event);
}

static lm_gpu_result stream_wait(int device, lm_stream stream, lm_gpu_event event) {
  LM_GPU_CUDA_IN_DEVICE(device, lm_gpu_cuda.StreamWaitEvent(stream, event, 0),
                        "cuStreamWaitEvent on stream %p of device %d", stream, device);
}

static lm_gpu_result event_destroy(lm_gpu_event event) {
  CUresult result;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  LM_GPU_CUDA_ANYWHERE(result, lm_gpu_cuda.EventDestroy(event));
  return lm_gpu_cuda_report_free(result, "cuEventDestroy", (uintptr_t)event);
}

static lm_gpu_result stream_query(int device, lm_stream stream) {
  LM_GPU_CUDA_IN_DEVICE(device, lm_gpu_cuda.StreamQuery(stream),
                        "cuStreamQuery of stream %p of device %d", stream, device);
}

/* ---- The driver's own pools */

/* Returns the pool with this threshold; NULL: none was made yet. */
static lm_gpu_cuda_pool *search_pool(int device, size_t threshold) {
  lm_gpu_cuda_pool *p = atomic_load_explicit(&lm_gpu_cuda_of[device].pools, memory_order_acquire);
  while (p && p->threshold != threshold) p = p->next;
  return p;
}

static CUresult create_pool(int device, size_t threshold, CUmemoryPool *out) {
  CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                           .location = { CU_MEM_LOCATION_TYPE_DEVICE,
                                         lm_gpu_cuda_of[device].handle } };
  cuuint64_t kept = threshold;
  CUresult result = lm_gpu_cuda.MemPoolCreate(out, &props);
  if (result != CUDA_SUCCESS) return result;
  result = lm_gpu_cuda.MemPoolSetAttribute(*out, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept);
  if (result != CUDA_SUCCESS) lm_gpu_cuda.MemPoolDestroy(*out);
  return result;
}

/* Two threads may each make a pool of one threshold at the same time. Both pools stay in the list,
 * and searches use the newer. */
static lm_gpu_result make_pool(int device, size_t threshold, lm_gpu_cuda_pool **out) {
  lm_gpu_cuda_pool *p = lm_metadata_alloc(sizeof *p);
  if (!p) {
    lm_error(LOAM_ENOMEM, "device %d: no memory to describe a pool of the driver", device);
    return LM_GPU_NO_MEMORY;
  }
  CUresult result = create_pool(device, threshold, &p->pool);
  if (result != CUDA_SUCCESS) {
    lm_metadata_free(p);
    return lm_gpu_cuda_report(result, "cuMemPoolCreate on device %d", device);
  }
  lm_assert(p->pool);
  p->threshold = threshold;
  p->next = atomic_load_explicit(&lm_gpu_cuda_of[device].pools, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&lm_gpu_cuda_of[device].pools, &p->next, p,
                                                memory_order_release, memory_order_relaxed)) {
  }
  *out = p;
  return LM_GPU_OK;
}

static lm_gpu_result has_no_pools(int device) {
  lm_error(LOAM_EUNSUPPORTED, "device %d: its driver has no stream-ordered allocation", device);
  return LM_GPU_UNSUPPORTED;
}

static lm_gpu_result pool_alloc(int device, size_t size, size_t threshold, lm_stream stream,
                                lm_devptr *out) {
  CUdeviceptr at;
  lm_gpu_cuda_scope s;
  lm_assert(out);
  if (lm_gpu_cuda_enter(&s, device) != LM_GPU_OK) return s.result;
  lm_gpu_cuda_pool *pool = search_pool(device, threshold);
  lm_gpu_result made = LM_GPU_OK;
  CUresult result = CUDA_SUCCESS;
  if (!lm_gpu_cuda_of[device].has_pools) made = has_no_pools(device);
  else if (!pool) made = make_pool(device, threshold, &pool);
  if (made == LM_GPU_OK) result = lm_gpu_cuda.MemAllocFromPoolAsync(&at, size, pool->pool, stream);
  lm_gpu_cuda_leave(&s);
  if (made != LM_GPU_OK) return made;
  if (result == CUDA_SUCCESS) *out = at;
  return lm_gpu_cuda_report(result, "cuMemAllocFromPoolAsync of %zu bytes on device %d", size,
                            device);
}

static lm_gpu_result pool_free(int device, lm_devptr at, lm_stream stream) {
  lm_gpu_cuda_scope s;
  if (lm_gpu_cuda_enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda.MemFreeAsync(at, stream);
  lm_gpu_cuda_leave(&s);
  return lm_gpu_cuda_report_free(result, "cuMemFreeAsync", at);
}

/* Enters a device, and sets *first to its first pool. NULL: the device has no pool, or cannot be
 * entered. It is not entered then, and the caller returns the result of this function. */
static lm_gpu_result enter_pools(lm_gpu_cuda_scope *s, int device, lm_gpu_cuda_pool **first) {
  *first = NULL;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  if (!lm_gpu_cuda_has_device(device)) return LM_GPU_FAILED;
  lm_gpu_cuda_pool *p = atomic_load_explicit(&lm_gpu_cuda_of[device].pools, memory_order_acquire);
  if (!p) return LM_GPU_OK;
  if (lm_gpu_cuda_enter(s, device) != LM_GPU_OK) return s->result;
  *first = p;
  return LM_GPU_OK;
}

static lm_gpu_result pool_trim(int device, size_t keep) {
  CUresult result = CUDA_SUCCESS;
  lm_gpu_cuda_scope s;
  lm_gpu_cuda_pool *p;
  lm_gpu_result entered = enter_pools(&s, device, &p);
  if (!p) return entered;
  for (; p && result == CUDA_SUCCESS; p = p->next)
    result = lm_gpu_cuda.MemPoolTrimTo(p->pool, keep);
  lm_gpu_cuda_leave(&s);
  return lm_gpu_cuda_report(result, "cuMemPoolTrimTo on device %d", device);
}

/* Adds the figures of a pool. If the highest use is set to 0, it begins at the present use. */
static CUresult add_figures(CUmemoryPool pool, bool begins, lm_gpu_pool_figures *out) {
  cuuint64_t reserved = 0, used = 0, high = 0, none = 0;
  CUresult result = lm_gpu_cuda.MemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                                    &reserved);
  if (result == CUDA_SUCCESS)
    result = lm_gpu_cuda.MemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high);
  if (result == CUDA_SUCCESS)
    result = lm_gpu_cuda.MemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
  if (result == CUDA_SUCCESS && begins)
    result = lm_gpu_cuda.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none);
  out->reserved += reserved;
  out->used += used;
  out->used_high += high > used ? high : used;
  return result;
}

static lm_gpu_result pool_figures(int device, bool begins, lm_gpu_pool_figures *out) {
  CUresult result = CUDA_SUCCESS;
  lm_gpu_cuda_scope s;
  lm_gpu_cuda_pool *p;
  *out = (lm_gpu_pool_figures){ 0 };
  lm_gpu_result entered = enter_pools(&s, device, &p);
  if (!p) return entered;
  for (; p && result == CUDA_SUCCESS; p = p->next) result = add_figures(p->pool, begins, out);
  lm_gpu_cuda_leave(&s);
  return lm_gpu_cuda_report(result, "cuMemPoolGetAttribute on device %d", device);
}

/* ---- Address ranges */

/* Returns whether an address or a size can be mapped on the device. */
LM_INLINE bool is_granular(int device, uint64_t n) {
  return device >= 0 && device < lm_gpu_cuda_count &&
         (n & (lm_gpu_cuda_of[device].granularity - 1)) == 0;
}

CUmemAllocationProp lm_gpu_cuda_prop(int device) {
  lm_assert(device >= 0 && device < LM_DEVICES_MAX);
  CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = { CU_MEM_LOCATION_TYPE_DEVICE,
                                             lm_gpu_cuda_of[device].handle } };
  if (lm_gpu_cuda_of[device].has_exports)
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

static lm_gpu_result reserve(int device, size_t size, lm_devptr *out) {
  CUdeviceptr at;
  lm_gpu_cuda_scope s;
  lm_assert(out);
  if (lm_gpu_cuda_enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda_of[device].has_vmm
                        ? lm_gpu_cuda.MemAddressReserve(&at, size, 0, 0, 0)
                        : CUDA_ERROR_NOT_SUPPORTED;
  lm_gpu_cuda_leave(&s);
  if (result == CUDA_SUCCESS) *out = at;
  return lm_gpu_cuda_report(result, "cuMemAddressReserve of %zu bytes on device %d", size, device);
}

static lm_gpu_result unreserve(lm_devptr at, size_t size) {
  CUresult result;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  LM_GPU_CUDA_ANYWHERE(result, lm_gpu_cuda.MemAddressFree(at, size));
  return lm_gpu_cuda_report_free(result, "cuMemAddressFree", at);
}

/* Maps memory to addresses and lets the device read and write it. On failure nothing is mapped. */
static CUresult map_memory(int device, lm_devptr at, size_t size,
                           CUmemGenericAllocationHandle memory) {
  CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, lm_gpu_cuda_of[device].handle },
                             CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
  lm_assert(is_granular(device, at) && is_granular(device, size) && size > 0);
  CUresult result = lm_gpu_cuda.MemMap(at, size, 0, memory, 0);
  if (result != CUDA_SUCCESS) return result;
  result = lm_gpu_cuda.MemSetAccess(at, size, &access, 1);
  if (result == CUDA_SUCCESS || lm_gpu_cuda.MemUnmap(at, size) == CUDA_SUCCESS) return result;
  return CUDA_ERROR_UNMAP_FAILED;
}

/* Makes memory that can be mapped. Some systems refuse exportable memory although the device says
 * that it can export: then the memory is made without that, and so is all later memory. */
static CUresult create_memory(int device, size_t size, CUmemGenericAllocationHandle *out) {
  CUmemAllocationProp prop = lm_gpu_cuda_prop(device);
  CUresult result = lm_gpu_cuda.MemCreate(out, size, &prop, 0);
  bool refused = result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED ||
                 result == CUDA_ERROR_INVALID_VALUE;
  if (!refused || !lm_gpu_cuda_of[device].has_exports) return result;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  result = lm_gpu_cuda.MemCreate(out, size, &prop, 0);
  if (result == CUDA_SUCCESS) lm_gpu_cuda_of[device].has_exports = false;
  return result;
}

/* Maps memory, which it takes over: on failure it is released, unless it stays mapped. */
static CUresult map_or_release(int device, lm_devptr at, size_t size,
                               CUmemGenericAllocationHandle memory, uint64_t *handle) {
  CUresult result = map_memory(device, at, size, memory);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_UNMAP_FAILED) *handle = memory;
  else lm_gpu_cuda.MemRelease(memory);
  return result;
}

static CUresult create_and_map(int device, lm_devptr at, size_t size, uint64_t *handle) {
  CUmemGenericAllocationHandle memory;
  *handle = 0;
  CUresult result = create_memory(device, size, &memory);
  return result == CUDA_SUCCESS ? map_or_release(device, at, size, memory, handle) : result;
}

static CUresult import_and_map(int device, lm_devptr at, size_t size, int fd, uint64_t *handle) {
  CUmemGenericAllocationHandle memory;
  CUresult result = lm_gpu_cuda.MemImportFromShareableHandle(
      &memory, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  return result == CUDA_SUCCESS ? map_or_release(device, at, size, memory, handle) : result;
}

static lm_gpu_result map(int device, lm_devptr at, size_t size, uint64_t *handle) {
  LM_GPU_CUDA_IN_DEVICE(device, create_and_map(device, at, size, handle),
                        "cuMemCreate of %zu bytes on device %d", size, device);
}

static lm_gpu_result unmap_only(lm_devptr at, size_t size) {
  CUresult result;
  lm_assert(size > 0);
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  LM_GPU_CUDA_ANYWHERE(result, lm_gpu_cuda.MemUnmap(at, size));
  return lm_gpu_cuda_report_free(result, "cuMemUnmap", at);
}

static lm_gpu_result end_handle(uint64_t handle) {
  CUresult result;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  LM_GPU_CUDA_ANYWHERE(result, lm_gpu_cuda.MemRelease(handle));
  return lm_gpu_cuda_report_free(result, "cuMemRelease", handle);
}

static lm_gpu_result unmap(lm_devptr at, size_t size, uint64_t handle) {
  lm_gpu_result result = unmap_only(at, size);
  return result == LM_GPU_OK ? end_handle(handle) : result;
}

static lm_gpu_result map_again(int device, lm_devptr at, size_t size, uint64_t handle) {
  LM_GPU_CUDA_IN_DEVICE(device, map_memory(device, at, size, handle),
                        "cuMemMap of %zu bytes at 0x%llx on device %d", size,
                        (unsigned long long)at, device);
}

/* ---- Memory shared with other processes */

static lm_gpu_result has_no_exports(void) {
  lm_error(LOAM_EUNSUPPORTED,
           "this driver cannot share memory that is mapped to reserved addresses");
  return LM_GPU_UNSUPPORTED;
}

static lm_gpu_result map_export(uint64_t handle, int *fd) {
  lm_assert(fd);
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  if (!lm_gpu_cuda.MemExportToShareableHandle) return has_no_exports();
  CUresult result;
  LM_GPU_CUDA_ANYWHERE(result, lm_gpu_cuda.MemExportToShareableHandle(
                                   fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return lm_gpu_cuda_report(result, "cuMemExportToShareableHandle");
}

static lm_gpu_result map_import(int device, lm_devptr at, size_t size, int fd, uint64_t *handle) {
  lm_assert(handle && fd >= 0);
  if (!lm_gpu_cuda.MemImportFromShareableHandle) return has_no_exports();
  LM_GPU_CUDA_IN_DEVICE(device, import_and_map(device, at, size, fd, handle),
                        "cuMemImportFromShareableHandle of %zu bytes on device %d", size, device);
}

static lm_gpu_result range(lm_devptr at, lm_devptr *base, size_t *size) {
  CUdeviceptr from;
  lm_assert(base && size);
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  CUresult result;
  LM_GPU_CUDA_ANYWHERE(result, lm_gpu_cuda.MemGetAddressRange(&from, size, at));
  if (result == CUDA_SUCCESS) *base = from;
  return lm_gpu_cuda_report(result, "cuMemGetAddressRange of 0x%llx", (unsigned long long)at);
}

static lm_gpu_result ipc_export(lm_devptr base, unsigned char handle[LM_GPU_IPC_SIZE]) {
  CUipcMemHandle exported;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  CUresult result;
  LM_GPU_CUDA_ANYWHERE(result, lm_gpu_cuda.IpcGetMemHandle(&exported, base));
  if (result == CUDA_SUCCESS) memcpy(handle, &exported, LM_GPU_IPC_SIZE);
  return lm_gpu_cuda_report(result, "cuIpcGetMemHandle of 0x%llx", (unsigned long long)base);
}

static lm_gpu_result ipc_open(int device, const unsigned char handle[LM_GPU_IPC_SIZE],
                              lm_devptr *out) {
  CUipcMemHandle imported;
  CUdeviceptr at;
  lm_gpu_cuda_scope s;
  _Static_assert(sizeof imported == LM_GPU_IPC_SIZE, "gpu.h has the size of a CUipcMemHandle");
  lm_assert(out);
  memcpy(&imported, handle, LM_GPU_IPC_SIZE);
  if (lm_gpu_cuda_enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda.IpcOpenMemHandle(&at, imported, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  lm_gpu_cuda_leave(&s);
  if (result == CUDA_SUCCESS) *out = at;
  return lm_gpu_cuda_report(result, "cuIpcOpenMemHandle on device %d", device);
}

static lm_gpu_result ipc_close(lm_devptr at) {
  CUresult result;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  LM_GPU_CUDA_ANYWHERE(result, lm_gpu_cuda.IpcCloseMemHandle(at));
  return lm_gpu_cuda_report_free(result, "cuIpcCloseMemHandle", at);
}

const lm_gpu_ops lm_gpu_cuda_ops = {
  .name = "cuda",
  .current = lm_gpu_cuda_current,
  .info = info,
  .memory = memory,
  .synchronize = lm_gpu_cuda_synchronize,
  .wait = lm_gpu_cuda_wait,
  .context = lm_gpu_cuda_context,
  .host_context = lm_gpu_cuda_host_context,
  .stream_context = lm_gpu_cuda_stream_context,
  .track_context = lm_gpu_cuda_track_context,
  .untrack_contexts = lm_gpu_cuda_untrack_contexts,
  .push = lm_gpu_cuda_push,
  .push_context = lm_gpu_cuda_push_context,
  .pop = lm_gpu_cuda_pop,
  .alloc = alloc,
  .release = release,
  .managed_alloc = managed_alloc,
  .managed_prefer = managed_prefer,
  .host_alloc = host_alloc,
  .host_free = host_free,
  .host_register = host_register,
  .host_unregister = host_unregister,
  .host_address = host_address,
  .fill = fill,
  .copy = copy,
  .may_record = may_record,
  .event_create = event_create,
  .event_record = event_record,
  .event_query = event_query,
  .event_wait = event_wait,
  .stream_wait = stream_wait,
  .event_destroy = event_destroy,
  .stream_query = stream_query,
  .pool_alloc = pool_alloc,
  .pool_free = pool_free,
  .pool_trim = pool_trim,
  .pool_figures = pool_figures,
  .reserve = reserve,
  .unreserve = unreserve,
  .map = map,
  .unmap = unmap,
  .unmap_only = unmap_only,
  .end_handle = end_handle,
  .map_again = map_again,
  .map_export = map_export,
  .map_import = map_import,
  .range = range,
  .ipc_export = ipc_export,
  .ipc_open = ipc_open,
  .ipc_close = ipc_close,
};