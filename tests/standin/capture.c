/* capture.c - streams whose work is captured for a graph, and what nobody may call meanwhile.
 *
 * A captured stream runs nothing: what is put there would be the graph's, and is dropped. To wait
 * for such a stream, for its context, or for an event recorded on it is an error that spoils the
 * capture. So is, for a thread that is not in relaxed mode, each call that may wait in secret
 * (memory, queries), while any thread captures in global mode, or this one does in its own. */
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

/* Of the default stream, while one that it waits for is captured, it is an error without harm. */
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
