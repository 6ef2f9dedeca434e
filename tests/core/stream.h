/* stream.h - a CUDA stream for tests on the stand-in. */
#ifndef STREAM_H
#define STREAM_H

#include <stdlib.h>

#include "cuda.h"

/* Returns a new stream of device 0's primary context, and makes that context current. */
static inline CUstream new_stream(void) {
  CUstream stream;
  CUcontext context;
  if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
      cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
    abort();
  return stream;
}

#endif
