/* gpu_cuda_context.c - calls of CUDA's driver: how a call ended, and the context that it is made
 * in. The operations of gpu.h that concern contexts are here as well. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gpu/gpu_cuda.h"
#include "os/error.h"
#include "os/lock.h"

LM_SPARSE lm_gpu_cuda_functions lm_gpu_cuda;
int lm_gpu_cuda_count;
LM_SPARSE lm_gpu_cuda_device lm_gpu_cuda_of[LM_DEVICES_MAX];

bool lm_gpu_cuda_has_device(int device) {
  if (lm_likely(device >= 0 && device < lm_gpu_cuda_count)) return true;
  lm_gpu_refuse_device(device, lm_gpu_cuda_count);
  return false;
}

/* ---- How a call ended */

/* Returns whether the error is sticky: every later call in the context fails with it. */
static bool is_sticky(CUresult result) {
  switch ((int)result) {
    case 206: /* UNMAP_FAILED */
    case 214: /* ECC_UNCORRECTABLE */
    case 220: /* NVLINK_UNCORRECTABLE */
    case 700: /* ILLEGAL_ADDRESS */
    case 702: /* LAUNCH_TIMEOUT */
    case 710: /* ASSERT */
    case 714: /* HARDWARE_STACK_ERROR */
    case 715: /* ILLEGAL_INSTRUCTION */
    case 716: /* MISALIGNED_ADDRESS */
    case 717: /* INVALID_ADDRESS_SPACE */
    case 718: /* INVALID_PC */
    case 719: /* LAUNCH_FAILED */
    case 721: /* CONTAINED */
    case 999: /* UNKNOWN */ return true;
    default: return false;
  }
}

static lm_gpu_result classify(CUresult result) {
  switch ((int)result) {
    case CUDA_SUCCESS: return LM_GPU_OK;
    case CUDA_ERROR_OUT_OF_MEMORY: return LM_GPU_NO_MEMORY;
    case CUDA_ERROR_NOT_READY: return LM_GPU_BUSY;
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED: return LM_GPU_GONE;
    case CUDA_ERROR_NOT_SUPPORTED: return LM_GPU_UNSUPPORTED;
    default: return is_sticky(result) ? LM_GPU_BROKEN : LM_GPU_FAILED;
  }
}

const char *lm_gpu_cuda_name(CUresult result) {
  const char *name = NULL;
  return lm_gpu_cuda.GetErrorName && lm_gpu_cuda.GetErrorName(result, &name) == CUDA_SUCCESS && name
             ? name
             : "error";
}

const char *lm_gpu_cuda_error(CUresult result) {
  const char *words = NULL;
  return lm_gpu_cuda.GetErrorString && lm_gpu_cuda.GetErrorString(result, &words) == CUDA_SUCCESS &&
                 words
             ? words
             : "no words for it";
}

lm_gpu_result lm_gpu_cuda_report(CUresult result, const char *format, ...) {
  char call[160];
  va_list arguments;
  lm_gpu_result kind = classify(result);
  if (kind == LM_GPU_OK || kind == LM_GPU_BUSY) return kind;
  va_start(arguments, format);
  vsnprintf(call, sizeof call, format, arguments);
  va_end(arguments);
  lm_thread *self = lm_thread_inside_begin();
  lm_error(lm_gpu_status(kind), "%s: %s (%d), %s", call, lm_gpu_cuda_name(result), (int)result,
           lm_gpu_cuda_error(result));
  lm_thread_inside_end(self);
  return kind;
}

lm_gpu_result lm_gpu_cuda_report_free(CUresult result, const char *call, uint64_t at) {
  lm_gpu_result kind = lm_gpu_cuda_report(result, "%s(0x%llx)", call, (unsigned long long)at);
  bool unknown = result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CONTEXT ||
                 result == CUDA_ERROR_INVALID_HANDLE ||
                 result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  return unknown ? LM_GPU_GONE : kind;
}

/* ---- Contexts */

/* Two threads may do this for one device: that is harmless, because loam never releases the primary
 * context. */
static CUresult retain_primary(int device, CUcontext *out) {
  CUresult result = lm_gpu_cuda.DevicePrimaryCtxRetain(out, lm_gpu_cuda_of[device].handle);
  if (result == CUDA_SUCCESS)
    atomic_store_explicit(&lm_gpu_cuda_of[device].primary, *out, memory_order_release);
  return result;
}

/* Makes the primary context of a device current. The host may have reset that context since loam
 * retained it, or reset it and made another: then the known pointer does not work, and loam retains
 * the primary context again. */
static CUresult push_primary(int device, CUcontext *out) {
  unsigned flags;
  int active = 0;
  *out = atomic_load_explicit(&lm_gpu_cuda_of[device].primary, memory_order_acquire);
  if (*out)
    (void)lm_gpu_cuda.DevicePrimaryCtxGetState(lm_gpu_cuda_of[device].handle, &flags, &active);
  if (active && lm_gpu_cuda.CtxPushCurrent(*out) == CUDA_SUCCESS) return CUDA_SUCCESS;
  CUresult result = retain_primary(device, out);
  return result == CUDA_SUCCESS ? lm_gpu_cuda.CtxPushCurrent(*out) : result;
}

/* Returns the device of the current context; -1: none is current, or its device is beyond
 * LM_DEVICES_MAX. */
static int find_current(void) {
  CUdevice handle;
  lm_thread *self = lm_thread_inside_begin();
  CUresult result = lm_gpu_cuda.CtxGetDevice(&handle);
  lm_thread_inside_end(self);
  if (result != CUDA_SUCCESS) return -1;
  for (int i = 0; i < lm_gpu_cuda_count; i++)
    if (lm_gpu_cuda_of[i].handle == handle) return i;
  return -1;
}

int lm_gpu_cuda_swap_mode(int mode) {
  if (lm_gpu_cuda.ThreadExchangeStreamCaptureMode)
    (void)lm_gpu_cuda.ThreadExchangeStreamCaptureMode(&mode);
  return mode;
}

/* Makes a context of the device current until `leave_context`. Other results than LM_GPU_OK:
 * nothing was made current, and the error words are set. */
static lm_gpu_result enter_context(lm_gpu_cuda_scope *s, int device) {
  *s = (lm_gpu_cuda_scope){ .result = LM_GPU_OK, .mode = LM_GPU_CUDA_RELAXED };
  if (lm_gpu_is_barred()) return s->result = LM_GPU_FORKED;
  if (!lm_gpu_cuda_has_device(device)) return s->result = LM_GPU_FAILED;
  if (find_current() == device) return LM_GPU_OK;
  CUcontext primary;
  CUresult result = push_primary(device, &primary);
  if (result == CUDA_SUCCESS) s->pushed = primary;
  return s->result = lm_gpu_cuda_report(result, "the primary context of device %d", device);
}

/* cuCtxPopCurrent may return the error of earlier asynchronous work although it has popped the
 * context. So if it fails, this looks whether the context is still current before it pops again. */
static void leave_context(const lm_gpu_cuda_scope *s) {
  CUcontext ours;
  if (!s->pushed || lm_gpu_cuda.CtxPopCurrent(&ours) == CUDA_SUCCESS) return;
  if (lm_gpu_cuda.CtxGetCurrent(&ours) == CUDA_SUCCESS && ours == s->pushed)
    lm_gpu_cuda.CtxPopCurrent(&ours);
}

lm_gpu_result lm_gpu_cuda_enter(lm_gpu_cuda_scope *s, int device) {
  lm_thread *self = lm_thread_inside_begin();
  if (enter_context(s, device) == LM_GPU_OK) s->mode = lm_gpu_cuda_swap_mode(LM_GPU_CUDA_RELAXED);
  else lm_thread_inside_end(self);
  s->self = self;
  return s->result;
}

void lm_gpu_cuda_leave(const lm_gpu_cuda_scope *s) {
  lm_assert(s->result == LM_GPU_OK);
  (void)lm_gpu_cuda_swap_mode(s->mode);
  leave_context(s);
  lm_thread_inside_end(s->self);
}

bool lm_gpu_cuda_enter_some(lm_gpu_cuda_scope *s) {
  for (int i = 0; i < lm_gpu_cuda_count; i++)
    if (atomic_load_explicit(&lm_gpu_cuda_of[i].primary, memory_order_relaxed))
      return lm_gpu_cuda_enter(s, i) == LM_GPU_OK;
  return false;
}

/* ---- Operations */

int lm_gpu_cuda_current(void) { return lm_gpu_is_barred() ? -1 : find_current(); }

static CUcontext primary_of(int device) {
  return atomic_load_explicit(&lm_gpu_cuda_of[device].primary, memory_order_acquire);
}

void *lm_gpu_cuda_context(int device) {
  CUcontext now = NULL, primary = primary_of(device);
  if (lm_gpu_is_barred()) return primary;
  lm_thread *self = lm_thread_inside_begin();
  CUresult result = lm_gpu_cuda.CtxGetCurrent(&now);
  lm_thread_inside_end(self);
  if (result != CUDA_SUCCESS || !now || now == primary) return primary;
  return find_current() == device ? now : primary;
}

/* The host may have made the primary context current before loam has retained it. Then the context
 * is active, and retaining it makes none. */
void *lm_gpu_cuda_host_context(int device) {
  unsigned flags;
  int active = 0;
  CUcontext now = lm_gpu_cuda_context(device), primary = primary_of(device);
  if (now == primary) return NULL;
  if (primary || lm_gpu_is_barred()) return now;
  lm_thread *self = lm_thread_inside_begin();
  (void)lm_gpu_cuda.DevicePrimaryCtxGetState(lm_gpu_cuda_of[device].handle, &flags, &active);
  if (active) (void)retain_primary(device, &primary);
  lm_thread_inside_end(self);
  return now == primary ? NULL : now;
}

void *lm_gpu_cuda_stream_context(lm_stream stream) {
  CUcontext of = NULL;
  if (lm_gpu_is_barred()) return NULL;
  lm_thread *self = lm_thread_inside_begin();
  CUresult result = lm_gpu_cuda.StreamGetCtx(stream, &of);
  lm_thread_inside_end(self);
  return result == CUDA_SUCCESS ? of : NULL;
}

lm_gpu_result lm_gpu_cuda_push(int device, void **out) {
  lm_gpu_cuda_scope s;
  lm_assert(out);
  lm_thread *self = lm_thread_inside_begin();
  if (enter_context(&s, device) == LM_GPU_OK) *out = s.pushed;
  lm_thread_inside_end(self);
  return s.result;
}

lm_gpu_result lm_gpu_cuda_push_context(int device, void *context, void **out) {
  CUcontext now = NULL;
  if (!context) return lm_gpu_cuda_push(device, out);
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  *out = NULL;
  lm_thread *self = lm_thread_inside_begin();
  CUresult result = lm_gpu_cuda.CtxGetCurrent(&now);
  bool is_current = result == CUDA_SUCCESS && now == context;
  if (!is_current) result = lm_gpu_cuda.CtxPushCurrent(context);
  lm_thread_inside_end(self);
  if (!is_current && result == CUDA_SUCCESS) *out = context;
  return lm_gpu_cuda_report(result, "context %p of device %d", context, device);
}

void lm_gpu_cuda_pop(void *pushed) {
  lm_thread *self = lm_thread_inside_begin();
  leave_context(&(lm_gpu_cuda_scope){ .pushed = pushed });
  lm_thread_inside_end(self);
}

/* The contexts of each device, other than primary contexts, that `synchronize` waits for.
 *
 * Law: count[device] <= TRACKED_MAX. The first count[device] contexts are set and all different.
 *
 * A 65th context takes the place of the first: a host with that many contexts on one device has to
 * wait itself for the work in those that were replaced. */
enum { TRACKED_MAX = 64 };
static LM_SPARSE struct {
  lm_lock lock; /* guards the two arrays */
  unsigned count[LM_DEVICES_MAX];
  CUcontext of[LM_DEVICES_MAX][TRACKED_MAX];
} tracked;

static inline bool tracked_is_valid_locked(int device) {
  const CUcontext *of = tracked.of[device];
  if (tracked.count[device] > TRACKED_MAX) return false;
  for (unsigned i = 0; i < tracked.count[device]; i++) {
    if (!of[i]) return false;
    for (unsigned k = 0; k < i; k++)
      if (of[k] == of[i]) return false;
  }
  return true;
}

void lm_gpu_cuda_track_context(int device, void *context) {
  lm_assert(device >= 0 && device < lm_gpu_cuda_count);
  if (!context || context == primary_of(device)) return;
  lm_lock_take(&tracked.lock);
  CUcontext *of = tracked.of[device];
  unsigned n = tracked.count[device], i = 0;
  while (i < n && of[i] != context) i++;
  if (i == n && n < TRACKED_MAX) tracked.count[device]++;
  of[i < TRACKED_MAX ? i : 0] = context;
  lm_verify(tracked_is_valid_locked(device));
  lm_lock_drop(&tracked.lock);
}

void lm_gpu_cuda_untrack_contexts(int device) {
  lm_assert(device >= 0 && device < LM_DEVICES_MAX);
  lm_lock_take(&tracked.lock);
  tracked.count[device] = 0;
  lm_lock_drop(&tracked.lock);
}

/* Waits for all work in the current context. */
static lm_gpu_result wait_here(int device) {
  return lm_gpu_cuda_report(lm_gpu_cuda.CtxSynchronize(), "cuCtxSynchronize of device %d", device);
}

/* Fails if a blocking stream of the current context is captured for a graph: a wait for the context
 * would end the capture. The driver does not say whether a stream that was made with
 * CU_STREAM_NON_BLOCKING is captured. */
static lm_gpu_result check_here(int device) {
  int unused = 0;
  if (!lm_gpu_cuda.StreamIsCapturing ||
      lm_gpu_cuda.StreamIsCapturing(NULL, &unused) != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    return LM_GPU_OK;
  lm_error(LOAM_ESTATE, "device %d: loam cannot wait for it while a stream is captured for a graph",
           device);
  return LM_GPU_FAILED;
}

/* Calls `do_here` in a context. A context that was destroyed has no work: LM_GPU_OK. */
static lm_gpu_result do_in(int device, CUcontext context, lm_gpu_result (*do_here)(int device)) {
  if (lm_gpu_cuda.CtxPushCurrent(context) != CUDA_SUCCESS) return LM_GPU_OK;
  lm_gpu_result result = do_here(device);
  leave_context(&(lm_gpu_cuda_scope){ .pushed = context });
  return result == LM_GPU_GONE ? LM_GPU_OK : result;
}

/* Copies the tracked contexts of a device to `out`, of TRACKED_MAX entries, and returns how
 * many. */
static unsigned list_tracked(int device, CUcontext *out) {
  lm_lock_take(&tracked.lock);
  unsigned n = tracked.count[device];
  memcpy(out, tracked.of[device], n * sizeof *out);
  lm_lock_drop(&tracked.lock);
  return n;
}

/* Calls `do_here` in the contexts of a device other than `done`, until a call fails. */
static lm_gpu_result do_in_others(int device, CUcontext done,
                                  lm_gpu_result (*do_here)(int device)) {
  CUcontext of[TRACKED_MAX], primary = primary_of(device);
  unsigned flags, n = list_tracked(device, of);
  int active = 0;
  lm_gpu_result result = LM_GPU_OK;
  if (primary && primary != done)
    (void)lm_gpu_cuda.DevicePrimaryCtxGetState(lm_gpu_cuda_of[device].handle, &flags, &active);
  if (active) result = do_in(device, primary, do_here);
  for (unsigned i = 0; i < n && result == LM_GPU_OK; i++)
    if (of[i] != done) result = do_in(device, of[i], do_here);
  return result;
}

/* Calls `do_here` in each known context of a device, until a call fails. The thread is in relaxed
 * mode, and so the calls end no capture of another thread. */
static lm_gpu_result do_in_all(int device, lm_gpu_result (*do_here)(int device)) {
  CUcontext done = NULL;
  lm_gpu_cuda_scope s;
  if (lm_gpu_cuda_enter(&s, device) != LM_GPU_OK) return s.result;
  lm_gpu_result result = do_here(device);
  (void)lm_gpu_cuda.CtxGetCurrent(&done);
  if (result == LM_GPU_OK) result = do_in_others(device, done, do_here);
  lm_gpu_cuda_leave(&s);
  return result;
}

lm_gpu_result lm_gpu_cuda_synchronize(int device) { return do_in_all(device, wait_here); }

lm_gpu_result lm_gpu_cuda_wait(int device) {
  lm_gpu_result result = do_in_all(device, check_here);
  return result == LM_GPU_OK ? do_in_all(device, wait_here) : result;
}
