/* device_api.c - loam_device_* and loam_managed_alloc: memory of devices, and figures of a
 * device. */
#include <string.h>

#include "api/memory.h"
#include "device/device_pool.h"
#include "device/driver_pool.h"
#include "device/manager.h"
#include "os/error.h"

_Static_assert((int)LOAM_PINNED_MAPPED == LM_GPU_MAPPED &&
                   (int)LOAM_PINNED_PORTABLE == LM_GPU_PORTABLE &&
                   (int)LOAM_PINNED_WRITE_COMBINED == LM_GPU_WRITE_COMBINED,
               "the flags of loam.h and of gpu.h are equal");

int loam_device_count(void) {
  int count = lm_gpu_count();
  if (!count) lm_error(LOAM_EUNSUPPORTED, "%s", lm_gpu_why());
  return count;
}

/* Returns LOAM_OK if loam can use a device: LOAM_EINVAL if this machine has no such device, and
 * LOAM_EUNSUPPORTED if it has no driver. lm_gpu_has sets the error words. */
static loam_status check_device(int device) {
  if (lm_gpu_has(device)) return LOAM_OK;
  return lm_gpu() ? LOAM_EINVAL : LOAM_EUNSUPPORTED;
}

/* The memory of a device in blocks that its driver has made, or mapped, for each alone. */
typedef struct own_blocks {
  int device;
  size_t bytes; /* without blocks that sleep: their memory is free on the device */
} own_blocks;

static void add_own_block(void *ctx, lm_provided *block) {
  own_blocks *own = ctx;
  bool is_own = block->maker == LM_PROVIDER_DEVICE || block->maker == LM_PROVIDER_SLEEP;
  if (is_own && block->device == own->device && !block->is_asleep) own->bytes += block->size;
}

loam_status loam_device_info(int device, struct loam_device_info *out) {
  lm_gpu_info info;
  lm_device_figures pools;
  size_t reserved, used;
  own_blocks own = { .device = device };
  if (!out) return lm_error_missing("out");
  loam_status status = check_device(device);
  if (!status) status = lm_gpu_status(lm_gpu()->info(device, &info));
  if (status) return status;
  *out = (struct loam_device_info){
    .total = info.total,
    .node = info.node,
    .has_ranges = info.has_vmm,
    .has_pools = info.has_pools,
    .has_managed = info.has_managed,
  };
  lm_device_pool_figures(device, &pools);
  lm_driver_pool_figures(device, &reserved, &used);
  lm_provided_each(add_own_block, &own);
  out->reserved = pools.reserved + reserved + own.bytes;
  out->used = pools.used + used + own.bytes;
  lm_assert(memchr(info.name, 0, sizeof info.name));
  memcpy(out->name, info.name, sizeof out->name);
  return LOAM_OK;
}

loam_status loam_device_memory(int device, size_t *free, size_t *total) {
  size_t free_bytes, total_bytes;
  loam_status status = check_device(device);
  if (!status) status = lm_manager_memory(device, &free_bytes, &total_bytes);
  if (status) return status;
  if (free) *free = free_bytes;
  if (total) *total = total_bytes;
  return LOAM_OK;
}

void *loam_device_alloc(loam_site *site, size_t size, void *stream) {
  return lm_memory_alloc(
      &(lm_request){ .site = site, .size = size, .want = LM_WANT_DEVICE, .stream = stream });
}

void *loam_managed_alloc(loam_site *site, size_t size) {
  return lm_memory_alloc(&(lm_request){ .site = site, .size = size, .want = LM_WANT_MANAGED });
}

void loam_device_free(void *ptr, void *stream) {
  lm_memory_free(ptr, SIZE_MAX, &stream, __builtin_return_address(0));
}
