/* manager_driver.c - the driver as a manager: each entry is one operation of gpu.h. Nothing is kept
 * or deferred here. */
#include <unistd.h>

#include "device/driver_pool.h"
#include "device/manager.h"
#include "os/error.h"

static loam_status no_driver(void) {
  return lm_error(LOAM_EUNSUPPORTED, "there is no device: %s", lm_gpu_why());
}

static loam_status initialize(void *ctx, int device) {
  (void)ctx;
  (void)device;
  return lm_gpu() ? LOAM_OK : no_driver();
}

static loam_status memalloc(void *ctx, int device, size_t size, void **out) {
  const lm_gpu_ops *gpu = lm_gpu();
  lm_devptr at = 0;
  (void)ctx;
  lm_gpu_result result = gpu ? gpu->alloc(device, size, &at) : LM_GPU_UNSUPPORTED;
  if (!gpu) return no_driver();
  if (result == LM_GPU_OK) *out = (void *)(uintptr_t)at;
  return lm_gpu_status(result);
}

static void memfree(void *ctx, int device, void *at, size_t size) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  (void)ctx;
  (void)size;
  if (gpu) (void)gpu->release(device, (uintptr_t)at);
}

static loam_status memhostalloc(void *ctx, int device, size_t size, unsigned flags, void **out) {
  const lm_gpu_ops *gpu = lm_gpu();
  (void)ctx;
  return gpu ? lm_gpu_status(gpu->host_alloc(device, size, flags, out)) : no_driver();
}

static void memhostfree(void *ctx, int device, void *at, size_t size) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  (void)ctx;
  (void)device;
  (void)size;
  if (gpu) (void)gpu->host_free(at);
}

static loam_status mempin(void *ctx, int device, void *at, size_t size, unsigned flags) {
  const lm_gpu_ops *gpu = lm_gpu();
  (void)ctx;
  return gpu ? lm_gpu_status(gpu->host_register(device, at, size, flags)) : no_driver();
}

static void memunpin(void *ctx, int device, void *at, size_t size) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  (void)ctx;
  (void)device;
  (void)size;
  if (gpu) (void)gpu->host_unregister(at);
}

static loam_status get_memory_info(void *ctx, int device, size_t *free, size_t *total) {
  const lm_gpu_ops *gpu = lm_gpu();
  (void)ctx;
  return gpu ? lm_gpu_status(gpu->memory(device, free, total)) : no_driver();
}

static loam_status get_ipc_handle(void *ctx, int device, void *at, loam_ipc *out) {
  const lm_gpu_ops *gpu = lm_gpu();
  lm_devptr base;
  size_t size;
  loam_ipc found = { .device = device, .pid = getpid() };
  (void)ctx;
  if (!gpu) return no_driver();
  lm_gpu_result result = gpu->range((uintptr_t)at, &base, &size);
  if (result == LM_GPU_OK) result = gpu->ipc_export(base, found.handle);
  /* The driver makes no handle for memory that is mapped to reserved addresses, or that is in the
   * driver's own pool. */
  if (result == LM_GPU_FAILED)
    return lm_error(LOAM_EUNSUPPORTED,
                    "%p: the driver shares memory that it allocated by itself "
                    "alone, as for loam.device { pool = \"chunks\" }",
                    at);
  if (result != LM_GPU_OK) return lm_gpu_status(result);
  lm_assert((uintptr_t)at - base < size);
  found.offset = (uintptr_t)at - base;
  found.size = size - found.offset;
  *out = found;
  return LOAM_OK;
}

static loam_status open_ipc_handle(void *ctx, int device, const loam_ipc *handle, void **out) {
  const lm_gpu_ops *gpu = lm_gpu();
  lm_devptr at;
  (void)ctx;
  if (!gpu) return no_driver();
  lm_gpu_result result = gpu->ipc_open(device, handle->handle, &at);
  if (result == LM_GPU_OK) *out = (void *)(uintptr_t)(at + handle->offset);
  return lm_gpu_status(result);
}

/* The driver closes a handle in the current context, which may be of another device. */
static void close_ipc_handle(void *ctx, int device, void *at) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  lm_devptr base = (uintptr_t)at;
  size_t size;
  void *scope;
  (void)ctx;
  if (!gpu || gpu->push(device, &scope) != LM_GPU_OK) return;
  if (gpu->range((uintptr_t)at, &base, &size) == LM_GPU_OK) (void)gpu->ipc_close(base);
  gpu->pop(scope);
}

/* Returns the memory to the device that the driver's pools keep for reuse. */
static loam_status reset(void *ctx, int device) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  (void)ctx;
  return gpu ? lm_gpu_status(gpu->pool_trim(device, 0)) : LOAM_OK;
}

/* The driver itself defers nothing. */
static void defer(void *ctx) { (void)ctx; }

/* A threshold of SIZE_MAX: the driver's pool keeps all freed memory for reuse until loam trims it
 * (driver_pool.h). */
static loam_status memalloc_async(void *ctx, int device, size_t size, void *stream, void **out) {
  const lm_gpu_ops *gpu = lm_gpu();
  lm_devptr at = 0;
  (void)ctx;
  if (!gpu) return no_driver();
  lm_gpu_result result = gpu->pool_alloc(device, size, SIZE_MAX, stream, &at);
  if (result == LM_GPU_OK) lm_driver_pool_note_use(device);
  if (result == LM_GPU_OK) *out = (void *)(uintptr_t)at;
  return lm_gpu_status(result);
}

static void memfree_async(void *ctx, int device, void *at, size_t size, void *stream) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  (void)ctx;
  (void)size;
  if (gpu) (void)gpu->pool_free(device, (uintptr_t)at, stream);
  if (gpu) lm_driver_pool_note_free();
}

static loam_status memalloc_managed(void *ctx, int device, size_t size, void **out) {
  const lm_gpu_ops *gpu = lm_gpu();
  lm_devptr at = 0;
  (void)ctx;
  if (!gpu) return no_driver();
  lm_gpu_result result = gpu->managed_alloc(device, size, &at);
  if (result == LM_GPU_OK) *out = (void *)(uintptr_t)at;
  return lm_gpu_status(result);
}

const loam_manager lm_manager_driver = {
  .size = sizeof(loam_manager),
  .interface_version = LM_MANAGER_INTERFACE,
  .name = "driver",
  .initialize = initialize,
  .memalloc = memalloc,
  .memfree = memfree,
  .memhostalloc = memhostalloc,
  .memhostfree = memhostfree,
  .mempin = mempin,
  .memunpin = memunpin,
  .get_memory_info = get_memory_info,
  .get_ipc_handle = get_ipc_handle,
  .open_ipc_handle = open_ipc_handle,
  .close_ipc_handle = close_ipc_handle,
  .reset = reset,
  .defer_enter = defer,
  .defer_leave = defer,
  .memalloc_async = memalloc_async,
  .memfree_async = memfree_async,
  .memalloc_managed = memalloc_managed,
  .memfree_managed = memfree,
};
