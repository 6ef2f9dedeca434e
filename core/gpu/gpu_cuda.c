/* gpu_cuda.c - the operations of gpu.h by CUDA's driver. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu_cuda.h"
#include "os/error.h"
#include "os/lock.h"
#include "os/sys.h"
#include "os/thread.h"
#include "pages/metadata.h"

enum { ATTRIBUTE_NUMA = 134 }; /* CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, since CUDA 12.2 */

lm_gpu_cuda_functions lm_gpu_cuda;
int lm_gpu_cuda_count;
LM_SPARSE lm_gpu_cuda_device lm_gpu_cuda_of[LM_DEVICES_MAX];

bool lm_gpu_cuda_is_valid(const lm_gpu_cuda_device *device) {
  return !device->has_vmm || lm_is_pow2(device->granularity);
}

/* A thread that calls the driver is marked as inside loam until the call returns. The driver may
 * allocate while it holds locks of its own. Where loam is also the driver's malloc, a policy could
 * give such an allocation pinned memory, and loam would call the driver again from inside it. The
 * mark gives the allocation plain memory. */

static bool has_device(int device) {
  if (lm_likely(device >= 0 && device < lm_gpu_cuda_count)) return true;
  lm_gpu_refuse_device(device, lm_gpu_cuda_count);
  return false;
}

/* ---- How a call ended */

/* Returns whether the error is sticky: every later call in the context fails with it. */
static bool is_sticky(CUresult result) {
  switch ((int)result) {
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

/* Returns how a call ended. If it failed, sets the error words; `format` names the call, as in
 * "cuMemAlloc of 4096 bytes on device 0: CUDA_ERROR_OUT_OF_MEMORY (2), out of memory". */
static lm_gpu_result report(CUresult result, const char *format, ...) LM_PRINTF(2, 3);

static lm_gpu_result report(CUresult result, const char *format, ...) {
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

/* Returns how a call ended that frees the object at `at`, and sets the error words. An object that
 * the driver does not know was destroyed with its context: LM_GPU_GONE. */
static lm_gpu_result report_free(CUresult result, const char *call, uint64_t at) {
  lm_gpu_result kind = report(result, "%s(0x%llx)", call, (unsigned long long)at);
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

/* A stretch of calls in a context of a device: from `enter` to `leave`. */
typedef struct scope {
  lm_gpu_result result;
  CUcontext pushed; /* the context that `enter` made current; NULL: it already was */
  int mode;         /* the thread's capture mode before */
  lm_thread *self;  /* marked as inside loam; NULL: it has no record */
} scope;

enum { RELAXED = 2 }; /* CU_STREAM_CAPTURE_MODE_RELAXED */

/* Sets the capture mode of this thread and returns the mode before. In relaxed mode this thread's
 * calls do not affect a graph that is being captured. In other modes a call that may wait
 * implicitly makes the capture fail. */
static int swap_mode(int mode) {
  if (lm_gpu_cuda.ThreadExchangeStreamCaptureMode)
    (void)lm_gpu_cuda.ThreadExchangeStreamCaptureMode(&mode);
  return mode;
}

/* Makes a context of the device current until `leave_context`. Other results than LM_GPU_OK:
 * nothing was made current, and the error words are set. */
static lm_gpu_result enter_context(scope *s, int device) {
  *s = (scope){ .result = LM_GPU_OK, .mode = RELAXED };
  if (lm_gpu_is_barred()) return s->result = LM_GPU_FORKED;
  if (!has_device(device)) return s->result = LM_GPU_FAILED;
  if (find_current() == device) return LM_GPU_OK;
  CUcontext primary;
  CUresult result = push_primary(device, &primary);
  if (result == CUDA_SUCCESS) s->pushed = primary;
  return s->result = report(result, "the primary context of device %d", device);
}

/* cuCtxPopCurrent may return the error of earlier asynchronous work although it has popped the
 * context. So if it fails, this looks whether the context is still current before it pops again. */
static void leave_context(const scope *s) {
  CUcontext ours;
  if (!s->pushed || lm_gpu_cuda.CtxPopCurrent(&ours) == CUDA_SUCCESS) return;
  if (lm_gpu_cuda.CtxGetCurrent(&ours) == CUDA_SUCCESS && ours == s->pushed)
    lm_gpu_cuda.CtxPopCurrent(&ours);
}

/* Like enter_context, until `leave`. In between, calls do not affect graph capture, and the thread
 * is marked as inside loam. */
static lm_gpu_result enter(scope *s, int device) {
  lm_thread *self = lm_thread_inside_begin();
  if (enter_context(s, device) == LM_GPU_OK) s->mode = swap_mode(RELAXED);
  else lm_thread_inside_end(self);
  s->self = self;
  return s->result;
}

static void leave(const scope *s) {
  lm_assert(s->result == LM_GPU_OK);
  (void)swap_mode(s->mode);
  leave_context(s);
  lm_thread_inside_end(s->self);
}

static lm_gpu_result push(int device, void **out) {
  scope s;
  lm_assert(out);
  lm_thread *self = lm_thread_inside_begin();
  if (enter_context(&s, device) == LM_GPU_OK) *out = s.pushed;
  lm_thread_inside_end(self);
  return s.result;
}

static lm_gpu_result push_context(int device, void *context, void **out) {
  CUcontext now = NULL;
  if (!context) return push(device, out);
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  *out = NULL;
  lm_thread *self = lm_thread_inside_begin();
  CUresult result = lm_gpu_cuda.CtxGetCurrent(&now);
  bool is_current = result == CUDA_SUCCESS && now == context;
  if (!is_current) result = lm_gpu_cuda.CtxPushCurrent(context);
  lm_thread_inside_end(self);
  if (!is_current && result == CUDA_SUCCESS) *out = context;
  return report(result, "context %p of device %d", context, device);
}

static void pop(void *pushed) {
  lm_thread *self = lm_thread_inside_begin();
  leave_context(&(scope){ .pushed = pushed });
  lm_thread_inside_end(self);
}

/* Makes a call in a context of the device and returns its result from the function. The arguments
 * after `call` name the call for the error words. */
#define IN_DEVICE(device, call, ...)                         \
  do {                                                       \
    scope s_;                                                \
    if (enter(&s_, (device)) != LM_GPU_OK) return s_.result; \
    CUresult result_ = (call);                               \
    leave(&s_);                                              \
    return report(result_, __VA_ARGS__);                     \
  } while (0)

/* Most drivers free objects without a current context. Where a driver wants one, any context works:
 * this enters the primary context of some device. Returns false if loam has retained none. */
static bool enter_some(scope *s) {
  for (int i = 0; i < lm_gpu_cuda_count; i++)
    if (atomic_load_explicit(&lm_gpu_cuda_of[i].primary, memory_order_relaxed))
      return enter(s, i) == LM_GPU_OK;
  return false;
}

/* Makes a call that needs no particular context, and puts how it ended into `result`. */
#define ANYWHERE(result, call)                                       \
  do {                                                               \
    scope s_;                                                        \
    lm_thread *self_ = lm_thread_inside_begin();                     \
    int mode_ = swap_mode(RELAXED);                                  \
    (result) = (call);                                               \
    if ((result) == CUDA_ERROR_INVALID_CONTEXT && enter_some(&s_)) { \
      (result) = (call);                                             \
      leave(&s_);                                                    \
    }                                                                \
    (void)swap_mode(mode_);                                          \
    lm_thread_inside_end(self_);                                     \
  } while (0)

static int current(void) { return lm_gpu_is_barred() ? -1 : find_current(); }

static CUcontext primary_of(int device) {
  return atomic_load_explicit(&lm_gpu_cuda_of[device].primary, memory_order_acquire);
}

static void *context(int device) {
  CUcontext now = NULL, primary = primary_of(device);
  if (lm_gpu_is_barred()) return primary;
  lm_thread *self = lm_thread_inside_begin();
  CUresult result = lm_gpu_cuda.CtxGetCurrent(&now);
  lm_thread_inside_end(self);
  if (result != CUDA_SUCCESS || !now || now == primary) return primary;
  return find_current() == device ? now : primary;
}

static void *stream_context(lm_stream stream) {
  CUcontext of = NULL;
  if (lm_gpu_is_barred()) return NULL;
  lm_thread *self = lm_thread_inside_begin();
  CUresult result = lm_gpu_cuda.StreamGetCtx(stream, &of);
  lm_thread_inside_end(self);
  return result == CUDA_SUCCESS ? of : NULL;
}

/* The contexts of each device, other than primary contexts, that `synchronize` waits for.
 *
 * Law: count[device] <= TRACKED_MAX.
 *
 * A 65th context takes the place of the first: a host with that many contexts on one device has to
 * wait itself for the work in those that were replaced. */
enum { TRACKED_MAX = 64 };
static LM_SPARSE struct {
  lm_lock lock; /* guards the two arrays */
  unsigned count[LM_DEVICES_MAX];
  CUcontext of[LM_DEVICES_MAX][TRACKED_MAX];
} tracked;

static void track_context(int device, void *context) {
  lm_assert(device >= 0 && device < lm_gpu_cuda_count);
  if (!context || context == primary_of(device)) return;
  lm_lock_take(&tracked.lock);
  CUcontext *of = tracked.of[device];
  unsigned n = tracked.count[device], i = 0;
  while (i < n && of[i] != context) i++;
  lm_assert(n <= TRACKED_MAX);
  if (i == n && n < TRACKED_MAX) tracked.count[device]++;
  of[i < TRACKED_MAX ? i : 0] = context;
  lm_lock_drop(&tracked.lock);
}

static void untrack_contexts(int device) {
  lm_assert(device >= 0 && device < LM_DEVICES_MAX);
  lm_lock_take(&tracked.lock);
  tracked.count[device] = 0;
  lm_lock_drop(&tracked.lock);
}

/* ---- Properties of a device */

int lm_gpu_cuda_attribute(int device, int which, int otherwise) {
  int value;
  lm_assert(device >= 0 && device < LM_DEVICES_MAX);
  CUresult result = lm_gpu_cuda.DeviceGetAttribute(&value, which, lm_gpu_cuda_of[device].handle);
  return result == CUDA_SUCCESS ? value : otherwise;
}

/* Returns the NUMA node of a device: as the kernel knows it from the device's PCI slot, else as the
 * driver says. */
static int find_node(int device) {
  char bus[32], path[80], text[32];
  size_t length;
  if (lm_gpu_cuda.DeviceGetPCIBusId &&
      lm_gpu_cuda.DeviceGetPCIBusId(bus, sizeof bus, lm_gpu_cuda_of[device].handle) ==
          CUDA_SUCCESS) {
    for (char *c = bus; *c; c++)
      if (*c >= 'A' && *c <= 'F') *c += 'a' - 'A';
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus);
    if (lm_sys_read_file(path, text, sizeof text, &length) == 0 && *text != '-') return atoi(text);
  }
  return lm_gpu_cuda_attribute(device, ATTRIBUTE_NUMA, -1);
}

static lm_gpu_result find_info(int device, lm_gpu_info *out) {
  lm_gpu_info found = { .has_vmm = lm_gpu_cuda_of[device].has_vmm,
                        .has_pools = lm_gpu_cuda_of[device].has_pools,
                        .has_exports = lm_gpu_cuda_of[device].has_exports,
                        .granularity = lm_gpu_cuda_of[device].granularity };
  CUdevice handle = lm_gpu_cuda_of[device].handle;
  CUresult result = lm_gpu_cuda.DeviceTotalMem(&found.total, handle);
  if (result != CUDA_SUCCESS) return report(result, "cuDeviceTotalMem of device %d", device);
  if (lm_gpu_cuda.DeviceGetName(found.name, sizeof found.name, handle) != CUDA_SUCCESS)
    *found.name = 0;
  found.node = find_node(device);
  found.has_managed = lm_gpu_cuda_attribute(device, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0);
  *out = found;
  return LM_GPU_OK;
}

static lm_gpu_result info(int device, lm_gpu_info *out) {
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  if (!has_device(device)) return LM_GPU_FAILED;
  lm_assert(out);
  lm_thread *self = lm_thread_inside_begin();
  lm_gpu_result result = find_info(device, out);
  lm_thread_inside_end(self);
  return result;
}

static lm_gpu_result memory(int device, size_t *free, size_t *total) {
  IN_DEVICE(device, lm_gpu_cuda.MemGetInfo(free, total), "cuMemGetInfo of device %d", device);
}

/* Waits for all work in a context. A context that was destroyed has no work: LM_GPU_OK. */
static lm_gpu_result synchronize_context(int device, CUcontext context) {
  if (lm_gpu_cuda.CtxPushCurrent(context) != CUDA_SUCCESS) return LM_GPU_OK;
  lm_gpu_result result = report(lm_gpu_cuda.CtxSynchronize(), "cuCtxSynchronize of device %d",
                                device);
  leave_context(&(scope){ .pushed = context });
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

/* Waits for the contexts of a device other than `done`. */
static lm_gpu_result synchronize_others(int device, CUcontext done) {
  CUcontext of[TRACKED_MAX], primary = primary_of(device);
  unsigned flags, n = list_tracked(device, of);
  int active = 0;
  lm_gpu_result result = LM_GPU_OK;
  if (primary && primary != done)
    (void)lm_gpu_cuda.DevicePrimaryCtxGetState(lm_gpu_cuda_of[device].handle, &flags, &active);
  if (active) result = synchronize_context(device, primary);
  for (unsigned i = 0; i < n && result == LM_GPU_OK; i++)
    if (of[i] != done) result = synchronize_context(device, of[i]);
  return result;
}

static lm_gpu_result synchronize(int device) {
  CUcontext done = NULL;
  scope s;
  if (enter(&s, device) != LM_GPU_OK) return s.result;
  lm_gpu_result result = report(lm_gpu_cuda.CtxSynchronize(), "cuCtxSynchronize of device %d",
                                device);
  (void)lm_gpu_cuda.CtxGetCurrent(&done);
  leave(&s);
  if (result != LM_GPU_OK) return result;
  lm_thread *self = lm_thread_inside_begin();
  result = synchronize_others(device, done);
  lm_thread_inside_end(self);
  return result;
}

/* ---- Memory */

static lm_gpu_result alloc(int device, size_t size, lm_devptr *out) {
  CUdeviceptr at;
  scope s;
  lm_assert(out);
  if (enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda.MemAlloc(&at, size);
  leave(&s);
  if (result == CUDA_SUCCESS) *out = at;
  return report(result, "cuMemAlloc of %zu bytes on device %d", size, device);
}

static lm_gpu_result release(int device, lm_devptr at) {
  CUresult result;
  (void)device;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  ANYWHERE(result, lm_gpu_cuda.MemFree(at));
  return report_free(result, "cuMemFree", at);
}

static lm_gpu_result managed_alloc(int device, size_t size, lm_devptr *out) {
  CUdeviceptr at;
  scope s;
  lm_assert(out);
  if (enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda.MemAllocManaged(&at, size, CU_MEM_ATTACH_GLOBAL);
  leave(&s);
  if (result == CUDA_SUCCESS) *out = at;
  return report(result, "cuMemAllocManaged of %zu bytes on device %d", size, device);
}

static lm_gpu_result managed_prefer(lm_devptr at, size_t size, int device) {
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  if (device >= 0 && !has_device(device)) return LM_GPU_FAILED;
  CUdevice where = device < 0 ? CU_DEVICE_CPU : lm_gpu_cuda_of[device].handle;
  CUresult result;
  ANYWHERE(result, lm_gpu_cuda.MemAdvise(at, size, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, where));
  return report(result, "cuMemAdvise of %zu bytes to device %d", size, device);
}

static lm_gpu_result host_alloc(int device, size_t size, unsigned flags, void **out) {
  void *at;
  scope s;
  unsigned wanted = (flags & LM_GPU_PORTABLE ? CU_MEMHOSTALLOC_PORTABLE : 0) |
                    (flags & LM_GPU_MAPPED ? CU_MEMHOSTALLOC_DEVICEMAP : 0) |
                    (flags & LM_GPU_WRITE_COMBINED ? CU_MEMHOSTALLOC_WRITECOMBINED : 0);
  lm_assert(out);
  if (enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda.MemHostAlloc(&at, size, wanted);
  leave(&s);
  if (result == CUDA_SUCCESS) *out = at;
  return report(result, "cuMemHostAlloc of %zu bytes", size);
}

static lm_gpu_result host_free(void *at) {
  CUresult result;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  ANYWHERE(result, lm_gpu_cuda.MemFreeHost(at));
  return report_free(result, "cuMemFreeHost", (uintptr_t)at);
}

static lm_gpu_result host_register(int device, void *at, size_t size, unsigned flags) {
  unsigned wanted = (flags & LM_GPU_PORTABLE ? CU_MEMHOSTREGISTER_PORTABLE : 0) |
                    (flags & LM_GPU_MAPPED ? CU_MEMHOSTREGISTER_DEVICEMAP : 0);
  IN_DEVICE(device, lm_gpu_cuda.MemHostRegister(at, size, wanted),
            "cuMemHostRegister of %zu bytes at %p", size, at);
}

static lm_gpu_result host_unregister(void *at) {
  CUresult result;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  ANYWHERE(result, lm_gpu_cuda.MemHostUnregister(at));
  return report_free(result, "cuMemHostUnregister", (uintptr_t)at);
}

static lm_gpu_result host_address(int device, void *at, lm_devptr *out) {
  CUdeviceptr there;
  scope s;
  lm_assert(out);
  if (enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda.MemHostGetDevicePointer(&there, at, 0);
  leave(&s);
  if (result == CUDA_SUCCESS) *out = there;
  return report(result, "cuMemHostGetDevicePointer of %p on device %d", at, device);
}

static lm_gpu_result fill(int device, lm_devptr at, int byte, size_t size, lm_stream stream) {
  IN_DEVICE(device, lm_gpu_cuda.MemsetD8Async(at, (unsigned char)byte, size, stream),
            "cuMemsetD8Async of %zu bytes at 0x%llx", size, (unsigned long long)at);
}

static lm_gpu_result copy(int device, lm_devptr to, lm_devptr from, size_t size, lm_stream stream) {
  IN_DEVICE(device, lm_gpu_cuda.MemcpyAsync(to, from, size, stream),
            "cuMemcpyAsync of %zu bytes from 0x%llx to 0x%llx", size, (unsigned long long)from,
            (unsigned long long)to);
}

/* ---- Order */

static lm_gpu_result event_create(int device, lm_gpu_event *out) {
  CUevent event;
  scope s;
  lm_assert(out);
  if (enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda.EventCreate(&event, CU_EVENT_DISABLE_TIMING);
  leave(&s);
  if (result == CUDA_SUCCESS) *out = event;
  return report(result, "cuEventCreate on device %d", device);
}

/* cuStreamIsCapturing also fails for a default stream that would wait for a captured stream. Unlike
 * an event on that stream, it does not make the capture fail. */
static bool may_record(int device, lm_stream stream) {
  int status = 0;
  scope s;
  if (!lm_gpu_cuda.StreamIsCapturing) return true;
  if (enter(&s, device) != LM_GPU_OK) return false;
  CUresult result = lm_gpu_cuda.StreamIsCapturing(stream, &status);
  leave(&s);
  return result == CUDA_SUCCESS && !status;
}

static lm_gpu_result event_record(lm_gpu_event event, int device, lm_stream stream) {
  IN_DEVICE(device, lm_gpu_cuda.EventRecord(event, stream),
            "cuEventRecord on stream %p of device %d", stream, device);
}

static lm_gpu_result event_query(lm_gpu_event event) {
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  CUresult result;
  ANYWHERE(result, lm_gpu_cuda.EventQuery(event));
  return report(result, "cuEventQuery(%p)", event);
}

static lm_gpu_result event_wait(lm_gpu_event event) {
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  CUresult result;
  ANYWHERE(result, lm_gpu_cuda.EventSynchronize(event));
  return report(result, "cuEventSynchronize(%p)", event);
}

static lm_gpu_result stream_wait(int device, lm_stream stream, lm_gpu_event event) {
  IN_DEVICE(device, lm_gpu_cuda.StreamWaitEvent(stream, event, 0),
            "cuStreamWaitEvent on stream %p of device %d", stream, device);
}

static lm_gpu_result event_destroy(lm_gpu_event event) {
  CUresult result;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  ANYWHERE(result, lm_gpu_cuda.EventDestroy(event));
  return report_free(result, "cuEventDestroy", (uintptr_t)event);
}

static lm_gpu_result stream_query(int device, lm_stream stream) {
  IN_DEVICE(device, lm_gpu_cuda.StreamQuery(stream), "cuStreamQuery of stream %p of device %d",
            stream, device);
}

/* ---- The driver's own pools */

/* Returns the pool with this threshold; NULL: none was made yet. */
static lm_gpu_cuda_pool *search_pool(int device, size_t threshold) {
  lm_gpu_cuda_pool *p = atomic_load_explicit(&lm_gpu_cuda_of[device].pools, memory_order_acquire);
  while (p && p->threshold != threshold) p = p->next;
  return p;
}

static CUresult create_pool(int device, size_t threshold, CUmemoryPool *out) {
  CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                           .location = { CU_MEM_LOCATION_TYPE_DEVICE,
                                         lm_gpu_cuda_of[device].handle } };
  cuuint64_t kept = threshold;
  CUresult result = lm_gpu_cuda.MemPoolCreate(out, &props);
  if (result != CUDA_SUCCESS) return result;
  result = lm_gpu_cuda.MemPoolSetAttribute(*out, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept);
  if (result != CUDA_SUCCESS) lm_gpu_cuda.MemPoolDestroy(*out);
  return result;
}

/* Two threads may each make a pool of one threshold at the same time. Both pools stay in the list,
 * and searches use the newer. */
static lm_gpu_result make_pool(int device, size_t threshold, lm_gpu_cuda_pool **out) {
  lm_gpu_cuda_pool *p = lm_metadata_alloc(sizeof *p);
  if (!p) {
    lm_error(LOAM_ENOMEM, "device %d: no memory to describe a pool of the driver", device);
    return LM_GPU_NO_MEMORY;
  }
  CUresult result = create_pool(device, threshold, &p->pool);
  if (result != CUDA_SUCCESS) {
    lm_metadata_free(p);
    return report(result, "cuMemPoolCreate on device %d", device);
  }
  lm_assert(p->pool);
  p->threshold = threshold;
  p->next = atomic_load_explicit(&lm_gpu_cuda_of[device].pools, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&lm_gpu_cuda_of[device].pools, &p->next, p,
                                                memory_order_release, memory_order_relaxed)) {
  }
  *out = p;
  return LM_GPU_OK;
}

static lm_gpu_result has_no_pools(int device) {
  lm_error(LOAM_EUNSUPPORTED, "device %d: its driver has no stream-ordered allocation", device);
  return LM_GPU_UNSUPPORTED;
}

static lm_gpu_result pool_alloc(int device, size_t size, size_t threshold, lm_stream stream,
                                lm_devptr *out) {
  CUdeviceptr at;
  scope s;
  lm_assert(out);
  if (enter(&s, device) != LM_GPU_OK) return s.result;
  lm_gpu_cuda_pool *pool = search_pool(device, threshold);
  lm_gpu_result made = LM_GPU_OK;
  CUresult result = CUDA_SUCCESS;
  if (!lm_gpu_cuda_of[device].has_pools) made = has_no_pools(device);
  else if (!pool) made = make_pool(device, threshold, &pool);
  if (made == LM_GPU_OK) result = lm_gpu_cuda.MemAllocFromPoolAsync(&at, size, pool->pool, stream);
  leave(&s);
  if (made != LM_GPU_OK) return made;
  if (result == CUDA_SUCCESS) *out = at;
  return report(result, "cuMemAllocFromPoolAsync of %zu bytes on device %d", size, device);
}

static lm_gpu_result pool_free(int device, lm_devptr at, lm_stream stream) {
  scope s;
  if (enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda.MemFreeAsync(at, stream);
  leave(&s);
  return report_free(result, "cuMemFreeAsync", at);
}

static lm_gpu_result pool_trim(int device, size_t keep) {
  CUresult result = CUDA_SUCCESS;
  scope s;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  if (!has_device(device)) return LM_GPU_FAILED;
  lm_gpu_cuda_pool *p = atomic_load_explicit(&lm_gpu_cuda_of[device].pools, memory_order_acquire);
  if (!p) return LM_GPU_OK;
  if (enter(&s, device) != LM_GPU_OK) return s.result;
  for (; p && result == CUDA_SUCCESS; p = p->next)
    result = lm_gpu_cuda.MemPoolTrimTo(p->pool, keep);
  leave(&s);
  return report(result, "cuMemPoolTrimTo on device %d", device);
}

/* ---- Address ranges */

/* Returns whether an address or a size can be mapped on the device. */
static bool is_granular(int device, uint64_t n) {
  return device >= 0 && device < lm_gpu_cuda_count &&
         (n & (lm_gpu_cuda_of[device].granularity - 1)) == 0;
}

CUmemAllocationProp lm_gpu_cuda_prop(int device) {
  lm_assert(device >= 0 && device < LM_DEVICES_MAX);
  CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = { CU_MEM_LOCATION_TYPE_DEVICE,
                                             lm_gpu_cuda_of[device].handle } };
  if (lm_gpu_cuda_of[device].has_exports)
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

static lm_gpu_result reserve(int device, size_t size, lm_devptr *out) {
  CUdeviceptr at;
  scope s;
  lm_assert(out);
  if (enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda_of[device].has_vmm
                        ? lm_gpu_cuda.MemAddressReserve(&at, size, 0, 0, 0)
                        : CUDA_ERROR_NOT_SUPPORTED;
  leave(&s);
  if (result == CUDA_SUCCESS) *out = at;
  return report(result, "cuMemAddressReserve of %zu bytes on device %d", size, device);
}

static lm_gpu_result unreserve(lm_devptr at, size_t size) {
  CUresult result;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  ANYWHERE(result, lm_gpu_cuda.MemAddressFree(at, size));
  return report_free(result, "cuMemAddressFree", at);
}

/* Maps memory to addresses and lets the device read and write it. On failure nothing is mapped. */
static CUresult map_memory(int device, lm_devptr at, size_t size,
                           CUmemGenericAllocationHandle memory) {
  CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, lm_gpu_cuda_of[device].handle },
                             CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
  lm_assert(is_granular(device, at) && is_granular(device, size) && size > 0);
  CUresult result = lm_gpu_cuda.MemMap(at, size, 0, memory, 0);
  if (result != CUDA_SUCCESS) return result;
  result = lm_gpu_cuda.MemSetAccess(at, size, &access, 1);
  if (result != CUDA_SUCCESS) lm_gpu_cuda.MemUnmap(at, size);
  return result;
}

/* Makes memory that can be mapped. Some systems refuse exportable memory although the device says
 * that it can export: then the memory is made without that, and so is all later memory. */
static CUresult create_memory(int device, size_t size, CUmemGenericAllocationHandle *out) {
  CUmemAllocationProp prop = lm_gpu_cuda_prop(device);
  CUresult result = lm_gpu_cuda.MemCreate(out, size, &prop, 0);
  bool refused = result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED ||
                 result == CUDA_ERROR_INVALID_VALUE;
  if (!refused || !lm_gpu_cuda_of[device].has_exports) return result;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  result = lm_gpu_cuda.MemCreate(out, size, &prop, 0);
  if (result == CUDA_SUCCESS) lm_gpu_cuda_of[device].has_exports = false;
  return result;
}

/* Maps memory, which it takes over: on failure it is released. */
static CUresult map_or_release(int device, lm_devptr at, size_t size,
                               CUmemGenericAllocationHandle memory, uint64_t *handle) {
  CUresult result = map_memory(device, at, size, memory);
  if (result == CUDA_SUCCESS) *handle = memory;
  else lm_gpu_cuda.MemRelease(memory);
  return result;
}

static CUresult create_and_map(int device, lm_devptr at, size_t size, uint64_t *handle) {
  CUmemGenericAllocationHandle memory;
  CUresult result = create_memory(device, size, &memory);
  return result == CUDA_SUCCESS ? map_or_release(device, at, size, memory, handle) : result;
}

static CUresult import_and_map(int device, lm_devptr at, size_t size, int fd, uint64_t *handle) {
  CUmemGenericAllocationHandle memory;
  CUresult result = lm_gpu_cuda.MemImportFromShareableHandle(
      &memory, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  return result == CUDA_SUCCESS ? map_or_release(device, at, size, memory, handle) : result;
}

static lm_gpu_result map(int device, lm_devptr at, size_t size, uint64_t *handle) {
  IN_DEVICE(device, create_and_map(device, at, size, handle),
            "cuMemCreate of %zu bytes on device %d", size, device);
}

static lm_gpu_result unmap(lm_devptr at, size_t size, uint64_t handle) {
  CUresult result;
  lm_assert(size > 0);
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  ANYWHERE(result, lm_gpu_cuda.MemUnmap(at, size));
  if (result != CUDA_SUCCESS) return report_free(result, "cuMemUnmap", at);
  ANYWHERE(result, lm_gpu_cuda.MemRelease(handle));
  return report_free(result, "cuMemRelease", handle);
}

/* ---- Memory shared with other processes */

static lm_gpu_result has_no_exports(void) {
  lm_error(LOAM_EUNSUPPORTED,
           "this driver cannot share memory that is mapped to reserved addresses");
  return LM_GPU_UNSUPPORTED;
}

static lm_gpu_result map_export(uint64_t handle, int *fd) {
  lm_assert(fd);
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  if (!lm_gpu_cuda.MemExportToShareableHandle) return has_no_exports();
  CUresult result;
  ANYWHERE(result, lm_gpu_cuda.MemExportToShareableHandle(
                       fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return report(result, "cuMemExportToShareableHandle");
}

static lm_gpu_result map_import(int device, lm_devptr at, size_t size, int fd, uint64_t *handle) {
  lm_assert(handle && fd >= 0);
  if (!lm_gpu_cuda.MemImportFromShareableHandle) return has_no_exports();
  IN_DEVICE(device, import_and_map(device, at, size, fd, handle),
            "cuMemImportFromShareableHandle of %zu bytes on device %d", size, device);
}

static lm_gpu_result range(lm_devptr at, lm_devptr *base, size_t *size) {
  CUdeviceptr from;
  lm_assert(base && size);
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  CUresult result;
  ANYWHERE(result, lm_gpu_cuda.MemGetAddressRange(&from, size, at));
  if (result == CUDA_SUCCESS) *base = from;
  return report(result, "cuMemGetAddressRange of 0x%llx", (unsigned long long)at);
}

static lm_gpu_result ipc_export(lm_devptr base, unsigned char handle[LM_GPU_IPC_SIZE]) {
  CUipcMemHandle exported;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  CUresult result;
  ANYWHERE(result, lm_gpu_cuda.IpcGetMemHandle(&exported, base));
  if (result == CUDA_SUCCESS) memcpy(handle, &exported, LM_GPU_IPC_SIZE);
  return report(result, "cuIpcGetMemHandle of 0x%llx", (unsigned long long)base);
}

static lm_gpu_result ipc_open(int device, const unsigned char handle[LM_GPU_IPC_SIZE],
                              lm_devptr *out) {
  CUipcMemHandle imported;
  CUdeviceptr at;
  scope s;
  _Static_assert(sizeof imported == LM_GPU_IPC_SIZE, "gpu.h has the size of a CUipcMemHandle");
  lm_assert(out);
  memcpy(&imported, handle, LM_GPU_IPC_SIZE);
  if (enter(&s, device) != LM_GPU_OK) return s.result;
  CUresult result = lm_gpu_cuda.IpcOpenMemHandle(&at, imported, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  leave(&s);
  if (result == CUDA_SUCCESS) *out = at;
  return report(result, "cuIpcOpenMemHandle on device %d", device);
}

static lm_gpu_result ipc_close(lm_devptr at) {
  CUresult result;
  if (lm_gpu_is_barred()) return LM_GPU_FORKED;
  ANYWHERE(result, lm_gpu_cuda.IpcCloseMemHandle(at));
  return report_free(result, "cuIpcCloseMemHandle", at);
}

const lm_gpu_ops lm_gpu_cuda_ops = {
  .name = "cuda",
  .current = current,
  .info = info,
  .memory = memory,
  .synchronize = synchronize,
  .context = context,
  .stream_context = stream_context,
  .track_context = track_context,
  .untrack_contexts = untrack_contexts,
  .push = push,
  .push_context = push_context,
  .pop = pop,
  .alloc = alloc,
  .release = release,
  .managed_alloc = managed_alloc,
  .managed_prefer = managed_prefer,
  .host_alloc = host_alloc,
  .host_free = host_free,
  .host_register = host_register,
  .host_unregister = host_unregister,
  .host_address = host_address,
  .fill = fill,
  .copy = copy,
  .may_record = may_record,
  .event_create = event_create,
  .event_record = event_record,
  .event_query = event_query,
  .event_wait = event_wait,
  .stream_wait = stream_wait,
  .event_destroy = event_destroy,
  .stream_query = stream_query,
  .pool_alloc = pool_alloc,
  .pool_free = pool_free,
  .pool_trim = pool_trim,
  .reserve = reserve,
  .unreserve = unreserve,
  .map = map,
  .unmap = unmap,
  .map_export = map_export,
  .map_import = map_import,
  .range = range,
  .ipc_export = ipc_export,
  .ipc_open = ipc_open,
  .ipc_close = ipc_close,
};
