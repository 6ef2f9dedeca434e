/* gpu_check.c - checks that gpu.c and the drivers share; none of them calls a driver. */
#include <stdatomic.h>
#include <stdio.h>

#include "gpu/gpu.h"
#include "os/error.h"
#include "os/numa.h"

/* Relaxed: a child process sets it before the child has a second thread. */
static _Atomic bool forked;

bool lm_gpu_is_forked(void) { return atomic_load_explicit(&forked, memory_order_relaxed); }

void lm_gpu_set_forked(void) { atomic_store_explicit(&forked, true, memory_order_relaxed); }

const char *lm_gpu_forked_text(void) {
  return "a fork cannot use the GPU that a parent process started: start the "
         "process anew (exec, or the spawn method of multiprocessing)";
}

bool lm_gpu_is_barred(void) {
  if (lm_likely(!lm_gpu_is_forked())) return false;
  lm_error(LOAM_ESTATE, "%s", lm_gpu_forked_text());
  return true;
}

loam_status lm_gpu_status(lm_gpu_result result) {
  switch (result) {
    case LM_GPU_OK: return LOAM_OK;
    case LM_GPU_NO_MEMORY: return LOAM_ENOMEM;
    case LM_GPU_UNSUPPORTED: return LOAM_EUNSUPPORTED;
    case LM_GPU_FAILED: return LOAM_EINVAL;
    default: return LOAM_ESTATE;
  }
}

const char *lm_gpu_count_text(int count, char *buffer, size_t size) {
  char numbers[64];
  lm_assert(count >= 0 && count <= LM_DEVICES_MAX);
  lm_assert(buffer && size > 0);
  snprintf(buffer, size, "%s %s", count == 1 ? "device" : "devices",
           lm_numa_text(((uint64_t)1 << count) - 1, numbers, sizeof numbers));
  return buffer;
}

void lm_gpu_refuse_device(int device, int count) {
  char text[80];
  lm_assert(device < 0 || device >= count);
  lm_error(LOAM_EINVAL, "device %d: this machine has %s", device,
           lm_gpu_count_text(count, text, sizeof text));
}

bool lm_gpu_machine_is_valid(const lm_gpu_machine *machine) {
  if (!machine->ops) return machine->count == 0;
  return machine->count >= 1 && machine->count <= LM_DEVICES_MAX;
}
