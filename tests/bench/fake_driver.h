/* fake_driver.h - a driver without a device, for bench/device: it hands out addresses and does
 * nothing else. The file also has the functions of a CUDA runtime that PyTorch's caching allocator
 * calls. The dynamic linker finds these functions of the program before the functions of a
 * library. */
#ifndef BENCH_FAKE_DRIVER_H
#define BENCH_FAKE_DRIVER_H

#include <stdlib.h>

#include "bench.h"
#include "device/device_pool.h"

enum { GRANULE = 2 << 20 };
static uint64_t next_address = (uint64_t)1 << 44;
static size_t mapped, peak_mapped, calls;

static int current(void) { return 0; }

static lm_gpu_result info(int device, lm_gpu_info *out) {
  (void)device;
  *out = (lm_gpu_info){ .name = "paper", .total = 80 * LM_GIB, .has_vmm = true };
  out->granularity = GRANULE;
  return LM_GPU_OK;
}

static lm_gpu_result reserve(int device, size_t size, lm_devptr *out) {
  (void)device;
  *out = next_address;
  next_address += lm_align_up(size, LM_GIB);
  return LM_GPU_OK;
}

static lm_gpu_result unreserve(lm_devptr at, size_t size) {
  (void)at, (void)size;
  return LM_GPU_OK;
}

static lm_gpu_result map(int device, lm_devptr at, size_t size, uint64_t *handle) {
  (void)device, (void)at;
  *handle = ++calls;
  mapped += size;
  if (mapped > peak_mapped) peak_mapped = mapped;
  return LM_GPU_OK;
}

static lm_gpu_result unmap(lm_devptr at, size_t size, uint64_t handle) {
  (void)at, (void)handle;
  calls++;
  mapped -= size;
  return LM_GPU_OK;
}

static lm_gpu_result host_alloc(int device, size_t size, unsigned flags, void **out) {
  (void)device, (void)flags;
  return (*out = aligned_alloc(LM_PAGE, size)) ? LM_GPU_OK : LM_GPU_NO_MEMORY;
}

static lm_gpu_result host_free(void *at) {
  free(at);
  return LM_GPU_OK;
}

static lm_gpu_result host_register(int device, void *at, size_t size, unsigned flags) {
  (void)device, (void)at, (void)size, (void)flags;
  calls++;
  return LM_GPU_OK;
}

static lm_gpu_result host_unregister(void *at) {
  (void)at;
  calls++;
  return LM_GPU_OK;
}

static lm_gpu_result synchronize(int device) {
  (void)device;
  return LM_GPU_OK;
}

static void *context(int device) {
  (void)device;
  return NULL;
}

static void *host_context(int device) {
  (void)device;
  return NULL;
}

static void *stream_context(lm_stream stream) {
  (void)stream;
  return NULL;
}

static void track_context(int device, void *context) { (void)device, (void)context; }

static lm_gpu_result push_context(int device, void *context, void **scope) {
  (void)device, (void)context;
  *scope = NULL;
  return LM_GPU_OK;
}

static void pop(void *scope) { (void)scope; }

static bool may_record(int device, lm_stream stream) {
  (void)device, (void)stream;
  return true;
}

static lm_gpu_result event_create(int device, lm_gpu_event *out) {
  (void)device;
  *out = &calls;
  return LM_GPU_OK;
}

static lm_gpu_result event_record(lm_gpu_event event, int device, lm_stream stream) {
  (void)event, (void)device, (void)stream;
  return LM_GPU_OK;
}

static lm_gpu_result event_ended(lm_gpu_event event) {
  (void)event;
  return LM_GPU_OK;
}

static const lm_gpu_ops ops = {
  .name = "paper",
  .current = current,
  .info = info,
  .synchronize = synchronize,
  .wait = synchronize,
  .context = context,
  .host_context = host_context,
  .stream_context = stream_context,
  .track_context = track_context,
  .push_context = push_context,
  .pop = pop,
  .may_record = may_record,
  .event_create = event_create,
  .event_record = event_record,
  .event_query = event_ended,
  .event_wait = event_ended,
  .event_destroy = event_ended,
  .reserve = reserve,
  .unreserve = unreserve,
  .host_alloc = host_alloc,
  .host_free = host_free,
  .host_register = host_register,
  .host_unregister = host_unregister,
  .map = map,
  .unmap = unmap,
};

void lm_gpu_cuda_find(lm_gpu_machine *out) {
  out->ops = &ops;
  out->count = 1;
}

/* ---- The runtime */

#define PAPER(type) __attribute__((visibility("default"), used)) type

PAPER(int) cudaGetDevice(int *out);
PAPER(int) cudaGetDeviceCount(int *out);
PAPER(int) cudaSetDevice(int device);
PAPER(int) cudaStreamIsCapturing(void *stream, int *out);
PAPER(int) cudaMalloc(void **out, size_t size);
PAPER(int) cudaFree(void *at);
PAPER(int) cudaDeviceSynchronize(void);
PAPER(int) cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
PAPER(int) cudaGetLastError(void);
PAPER(int) cudaThreadExchangeStreamCaptureMode(int *mode);

int cudaGetDevice(int *out) { return *out = 0; }
int cudaSetDevice(int device) { return device; }
int cudaDeviceSynchronize(void) { return 0; }
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { return *least = *greatest = 0; }
int cudaGetLastError(void) { return 0; }
int cudaThreadExchangeStreamCaptureMode(int *mode) { return (void)mode, 0; }
int cudaStreamIsCapturing(void *stream, int *out) { return (void)stream, *out = 0; }

int cudaGetDeviceCount(int *out) {
  *out = 1;
  return 0;
}

/* The live blocks of cudaMalloc. Each takes whole granules. */
static struct {
  void *at;
  size_t size;
} taken[1 << 16];
static size_t taken_count;

int cudaMalloc(void **out, size_t size) {
  lm_devptr at;
  uint64_t handle;
  size = lm_align_up(size, GRANULE);
  if (taken_count == sizeof taken / sizeof *taken) return LM_GPU_NO_MEMORY;
  reserve(0, size + GRANULE, &at);
  map(0, at, size, &handle);
  *out = taken[taken_count].at = (void *)at;
  taken[taken_count++].size = size;
  return 0;
}

int cudaFree(void *at) {
  size_t i = 0;
  while (i < taken_count && taken[i].at != at) i++;
  if (i == taken_count) return 1;
  unmap((lm_devptr)at, taken[i].size, 0);
  taken[i] = taken[--taken_count];
  return 0;
}

#endif
