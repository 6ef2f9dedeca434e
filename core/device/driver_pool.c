/* driver_pool.c - gives back the memory that the driver's own pools keep: see driver_pool.h. */
#include "device/driver_pool.h"

#include "device/device_pool.h"
#include "os/decay.h"

/* A bit for each device of which a pool of the driver had memory. Relaxed: bits are only added, and
 * a thread that sees one late gives the memory back late. */
static _Atomic uint32_t devices;

void lm_driver_pool_note_use(int device) {
  lm_assert(device >= 0 && device < LM_DEVICES_MAX);
  atomic_fetch_or_explicit(&devices, 1u << device, memory_order_relaxed);
}

void lm_driver_pool_note_free(void) { lm_decay_stir_devices(); }

/* Fills in the figures of a device. Returns false, with figures of 0, if there are none. */
static bool figures_of(const lm_gpu_ops *gpu, int device, bool begins, lm_gpu_pool_figures *out) {
  uint32_t known = atomic_load_explicit(&devices, memory_order_relaxed);
  bool is_used = device >= 0 && device < LM_DEVICES_MAX && known >> device & 1;
  *out = (lm_gpu_pool_figures){ 0 };
  return gpu && is_used && gpu->pool_figures(device, begins, out) == LM_GPU_OK;
}

void lm_driver_pool_figures(int device, size_t *reserved, size_t *used) {
  lm_gpu_pool_figures now;
  (void)figures_of(lm_gpu_started(), device, false, &now);
  *reserved = now.reserved;
  *used = now.used;
}

/* Returns free memory of a device's pools until they have `keep` bytes. Returns the bytes. */
static size_t give_back(const lm_gpu_ops *gpu, int device, size_t keep) {
  lm_gpu_pool_figures before, after;
  if (!figures_of(gpu, device, false, &before) || before.reserved <= keep) return 0;
  if (gpu->pool_trim(device, keep) != LM_GPU_OK) return 0;
  if (!figures_of(gpu, device, false, &after)) return 0;
  return before.reserved > after.reserved ? before.reserved - after.reserved : 0;
}

static size_t give_back_all(int device, bool waits) {
  size_t bytes = 0;
  const lm_gpu_ops *gpu = lm_gpu_started();
  uint32_t left = gpu ? atomic_load_explicit(&devices, memory_order_relaxed) : 0;
  for (; left; left &= left - 1) {
    int i = __builtin_ctz(left);
    if (device >= 0 && device != i) continue;
    if (!waits || gpu->wait(i) == LM_GPU_OK) bytes += give_back(gpu, i, 0);
  }
  return bytes;
}

size_t lm_driver_pool_trim(int device) { return give_back_all(device, true); }
size_t lm_driver_pool_make_room(int device) { return give_back_all(device, false); }

/* The most bytes that were in use in the last interval; by device. Only the thread that makes the
 * tick uses it: lm_gpu_begin lets one thread in. */
static LM_SPARSE size_t previous_high[LM_DEVICES_MAX];

static bool decay(const lm_gpu_ops *gpu, int device) {
  lm_gpu_pool_figures now;
  if (!figures_of(gpu, device, true, &now)) return false;
  size_t high = now.used_high > now.used ? now.used_high : now.used;
  size_t keep = high > previous_high[device] ? high : previous_high[device];
  bool more = keep > now.used && now.reserved > now.used;
  previous_high[device] = high;
  if (keep < lm_device_pool_keep_bytes()) keep = lm_device_pool_keep_bytes();
  return give_back(gpu, device, keep) || more;
}

bool lm_driver_pool_decay(void) {
  bool more = false;
  const lm_gpu_ops *gpu = lm_gpu_started();
  uint32_t left = gpu ? atomic_load_explicit(&devices, memory_order_relaxed) : 0;
  for (; left; left &= left - 1) more |= decay(gpu, __builtin_ctz(left));
  return more;
}
