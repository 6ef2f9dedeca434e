/* gpu_none.c - stands in for the drivers in a build without CUDA's header: finds no device. */
#include <string.h>

#include "gpu/gpu.h"

void lm_gpu_cuda_find(lm_gpu_machine *out) {
  strcpy(out->why, "this build has no GPU support: it was made without a CUDA Toolkit");
}
