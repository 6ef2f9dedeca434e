/* capture.c - streams that are captured into a graph, and the calls that are forbidden during a
 * capture.
 *
 * A captured stream runs nothing. Its work would belong to the graph, and is dropped. A wait for
 * such a stream, for its context, or for an event recorded on it is an error that spoils the
 * capture. A call that may wait implicitly (memory, queries) is also such an error while any thread
 * captures in global mode, or while the calling thread captures in its own mode. A thread in
 * relaxed mode may make these calls. */
#include <stdlib.h>

#include "state.h"

static _Thread_local int thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static CUstream capturing[SLOTS];
static unsigned count;

static CUresult spoil(CUstream stream, const char *function) {
  si_violate("%s spoils the capture of stream %p", function, (void *)stream);
  stream->capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static bool is_unsafe(const char *name) {
  static const char *const unsafe[] = {
    "cuMemAlloc",          "cuMemAllocManaged",   "cuMemFree",
    "cuMemHostAlloc",      "cuMemFreeHost",       "cuMemHostRegister",
    "cuMemCreate",         "cuMemHostUnregister", "cuMemMap",
    "cuMemUnmap",          "cuMemRelease",        "cuMemSetAccess",
    "cuMemAddressReserve", "cuMemAddressFree",    "cuEventQuery",
    "cuEventSynchronize",
  };
  for (size_t i = 0; i < sizeof unsafe / sizeof *unsafe; i++)
    if (strcmp(unsafe[i], name) == 0) return true;
  return false;
}

CUresult si_capture_check(const char *name) {
  if (!count || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED || !is_unsafe(name))
    return CUDA_SUCCESS;
  for (unsigned i = 0; i < count; i++) {
    CUstream stream = capturing[i];
    bool mine = pthread_equal(stream->capturer, pthread_self());
    if (stream->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL ||
        (mine && stream->capture_mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
      return spoil(stream, name);
  }
  return CUDA_SUCCESS;
}

CUresult si_capture_of(CUcontext context, CUstream but, const char *function) {
  for (unsigned i = 0; i < count; i++) {
    CUstream stream = capturing[i];
    if (stream == but || stream->context != context) continue;
    if (but && (stream->flags & CU_STREAM_NON_BLOCKING)) continue;
    return spoil(stream, function);
  }
  return CUDA_SUCCESS;
}

API cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  ENTER();
  CUstream stream;
  CUresult result = si_stream_of(handle, &stream);
  if (result != CUDA_SUCCESS) LEAVE(result);
  if (stream->hidden || stream->capture || count == SLOTS) LEAVE(CUDA_ERROR_INVALID_VALUE);
  stream->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  stream->capture_mode = mode;
  stream->capturer = pthread_self();
  capturing[count++] = stream;
  LEAVE(CUDA_SUCCESS);
}

API cuStreamEndCapture(CUstream handle, CUgraph *out) {
  ENTER();
  CUstream stream;
  CUresult result = si_stream_of(handle, &stream);
  if (result != CUDA_SUCCESS) LEAVE(result);
  int was = stream->capture;
  unsigned i = 0;
  while (i < count && capturing[i] != stream) i++;
  if (i < count) capturing[i] = capturing[--count];
  stream->capture = CU_STREAM_CAPTURE_STATUS_NONE;
  *out = NULL;
  if (was == CU_STREAM_CAPTURE_STATUS_INVALIDATED) LEAVE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  LEAVE(was ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

/* If the default stream waits for a captured stream, this function returns an error and does not
 * spoil the capture. */
API cuStreamIsCapturing(CUstream handle, int *out) {
  ENTER();
  CUstream stream;
  CUresult result = si_stream_of(handle, &stream);
  if (result != CUDA_SUCCESS) LEAVE(result);
  *out = stream->capture;
  for (unsigned i = 0; stream == stream->context->legacy && i < count; i++)
    if (capturing[i]->context == stream->context && !(capturing[i]->flags & CU_STREAM_NON_BLOCKING))
      LEAVE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  LEAVE(CUDA_SUCCESS);
}

API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  ENTER();
  if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) LEAVE(CUDA_ERROR_INVALID_VALUE);
  int before = thread_mode;
  thread_mode = (int)*mode;
  *mode = (CUstreamCaptureMode)before;
  LEAVE(CUDA_SUCCESS);
}

void si_capture_reset(void) { count = 0; }
