/* runtime_stream.c - streams and events of the runtime. Kernels can be registered but not
 * launched. */
#include "runtime.h"

EXPORT cudaError_t cudaStreamCreate(CUstream *out) { ANSWER(cuStreamCreate(out, 0)); }

EXPORT cudaError_t cudaStreamCreateWithFlags(CUstream *out, unsigned flags) {
  ANSWER(cuStreamCreate(out, flags));
}

EXPORT cudaError_t cudaStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
  ANSWER(cuStreamCreateWithPriority(out, flags, priority));
}

EXPORT cudaError_t cudaStreamDestroy(CUstream stream) { ANSWER(cuStreamDestroy_v2(stream)); }
EXPORT cudaError_t cudaStreamQuery(CUstream stream) { ANSWER(cuStreamQuery(stream)); }
EXPORT cudaError_t cudaStreamSynchronize(CUstream stream) { ANSWER(cuStreamSynchronize(stream)); }

EXPORT cudaError_t cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  ANSWER(cuStreamWaitEvent(stream, event, flags));
}

EXPORT cudaError_t cudaStreamGetFlags(CUstream stream, unsigned *out) {
  ANSWER(cuStreamGetFlags(stream, out));
}

/* All streams of the stand-in have the same priority. */
EXPORT cudaError_t cudaStreamGetPriority(CUstream stream, int *out) {
  unsigned flags;
  *out = 0;
  ANSWER(cuStreamGetFlags(stream, &flags));
}

EXPORT cudaError_t cudaLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
  ANSWER(cuLaunchHostFunc(stream, function, data));
}

EXPORT cudaError_t cudaStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data,
                                         unsigned flags) {
  ANSWER(cuStreamAddCallback(stream, callback, data, flags));
}

/* ---- Captures */

EXPORT cudaError_t cudaStreamIsCapturing(CUstream stream, int *out) {
  ANSWER(cuStreamIsCapturing(stream, out));
}

EXPORT cudaError_t cudaStreamBeginCapture(CUstream stream, int mode) {
  ANSWER(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)mode));
}

EXPORT cudaError_t cudaStreamEndCapture(CUstream stream, CUgraph *out) {
  ANSWER(cuStreamEndCapture(stream, out));
}

EXPORT cudaError_t cudaStreamGetCaptureInfo_v2(CUstream stream, int *status, unsigned long long *id,
                                               CUgraph *graph, const void **dependencies,
                                               size_t *count) {
  if (id) *id = (uintptr_t)stream;
  if (graph) *graph = NULL;
  if (dependencies) *dependencies = NULL;
  if (count) *count = 0;
  ANSWER(cuStreamIsCapturing(stream, status));
}

EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  ANSWER(cuThreadExchangeStreamCaptureMode(mode));
}

/* ---- Events */

EXPORT cudaError_t cudaEventCreate(CUevent *out) { ANSWER(cuEventCreate(out, 0)); }

EXPORT cudaError_t cudaEventCreateWithFlags(CUevent *out, unsigned flags) {
  ANSWER(cuEventCreate(out, flags));
}

EXPORT cudaError_t cudaEventDestroy(CUevent event) { ANSWER(cuEventDestroy_v2(event)); }
EXPORT cudaError_t cudaEventQuery(CUevent event) { ANSWER(cuEventQuery(event)); }
EXPORT cudaError_t cudaEventSynchronize(CUevent event) { ANSWER(cuEventSynchronize(event)); }

EXPORT cudaError_t cudaEventRecord(CUevent event, CUstream stream) {
  ANSWER(cuEventRecord(event, stream));
}

EXPORT cudaError_t cudaEventElapsedTime(float *out, CUevent start, CUevent stop) {
  ANSWER(cuEventElapsedTime(out, start, stop));
}

/* ---- Kernels: a library registers them when it is loaded, and every launch fails */

static void *nothing;

EXPORT void **__cudaRegisterFatBinary(void *binary) { return (void)binary, &nothing; }
EXPORT void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
EXPORT void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
EXPORT void __cudaRegisterFunction(void) {}
EXPORT void __cudaRegisterVar(void) {}
EXPORT unsigned __cudaPushCallConfiguration(void) { return 0; }
EXPORT cudaError_t __cudaPopCallConfiguration(void) { return rt_note(CUDA_ERROR_NOT_SUPPORTED); }
EXPORT cudaError_t cudaLaunchKernel(void) { return rt_note(CUDA_ERROR_NOT_SUPPORTED); }
EXPORT cudaError_t cudaLaunchKernelExC(void) { return rt_note(CUDA_ERROR_NOT_SUPPORTED); }

/* Functions of the driver that only fail, so that a program that is linked with them can start. */
#define ABSENT(name) \
  EXPORT CUresult name(void) { return CUDA_ERROR_NOT_SUPPORTED; }

ABSENT(cuModuleLoadData)
ABSENT(cuModuleLoadDataEx)
ABSENT(cuModuleGetFunction)
ABSENT(cuModuleUnload)
ABSENT(cuLinkCreate_v2)
ABSENT(cuLinkAddData_v2)
ABSENT(cuLinkComplete)
ABSENT(cuLaunchKernel)
ABSENT(cuLaunchCooperativeKernel)
ABSENT(cuFuncSetAttribute)
ABSENT(cuFuncGetAttribute)
ABSENT(cuOccupancyMaxActiveBlocksPerMultiprocessor)
ABSENT(cuTensorMapEncodeTiled)
