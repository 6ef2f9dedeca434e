/* gpu_none.c - a build without the header of a GPU's driver: no devices, and why. */
#include <string.h>

#include "gpu/gpu.h"

void lm_gpu_cuda_find(lm_gpu_machine *out) {
  strcpy(out->why, "this build has no GPU support: it was made without a CUDA Toolkit");
}
