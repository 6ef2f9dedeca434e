/* fake_gpu.h - two devices whose memory is malloc's, for tests of the code that uses lm_gpu_ops.
 * Work on a device ends immediately. The devices count their live blocks and bytes. A test that
 * includes this file has these devices in place of the driver's. */
#ifndef FAKE_GPU_H
#define FAKE_GPU_H

#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "os/error.h"

enum { FAKE_DEVICES = 2 };

static struct {
  _Atomic int live;                    /* live blocks of both devices, and registered host memory */
  _Atomic size_t bytes[FAKE_DEVICES];  /* device memory in use */
  size_t limit;                        /* bytes that each device has; 0: no limit */
  int current;                         /* the device of the current context; -1: no context */
  int synchronized, waited, preferred; /* numbers of calls */
  lm_stream last;                      /* the stream of the last call that has one */
  unsigned flags;                      /* the flags of the last host_alloc or host_register */
  bool gone;                           /* calls that make or release memory fail */
  bool copy_fails;                     /* every copy fails */
} fake = { .current = -1 };

typedef struct fake_block {
  size_t size;
  int device;
  char pad[256 - sizeof(size_t) - sizeof(int)];
  char at[];
} fake_block;

static inline fake_block *fake_of(lm_devptr at) {
  return (fake_block *)(uintptr_t)(at - offsetof(fake_block, at));
}

static inline lm_gpu_result fake_alloc(int device, size_t size, lm_devptr *out) {
  if (fake.gone) return LM_GPU_GONE;
  if (fake.limit && fake.bytes[device] + size > fake.limit) {
    lm_error(LOAM_ENOMEM, "device %d: no %zu bytes of memory left", device, size);
    return LM_GPU_NO_MEMORY;
  }
  fake_block *b = aligned_alloc(256, lm_align_up(sizeof *b + size, 256));
  b->size = size;
  b->device = device;
  fake.live++;
  fake.bytes[device] += size;
  *out = (lm_devptr)(uintptr_t)b->at;
  return LM_GPU_OK;
}

static inline lm_gpu_result fake_release(int device, lm_devptr at) {
  fake_block *b = fake_of(at);
  if (fake.gone) return LM_GPU_GONE;
  if (b->device != device) abort();
  fake.live--;
  fake.bytes[device] -= b->size;
  free(b);
  return LM_GPU_OK;
}

static inline lm_gpu_result fake_prefer(lm_devptr at, size_t size, int device) {
  (void)at, (void)size, (void)device;
  fake.preferred++;
  return LM_GPU_OK;
}

static inline lm_gpu_result fake_host_alloc(int device, size_t size, unsigned flags, void **out) {
  lm_devptr at;
  lm_gpu_result result = fake_alloc(device, size, &at);
  fake.flags = flags;
  if (result == LM_GPU_OK) *out = (void *)(uintptr_t)at;
  return result;
}

static inline lm_gpu_result fake_host_free(void *at) {
  return fake_release(fake_of((uintptr_t)at)->device, (uintptr_t)at);
}

static inline lm_gpu_result fake_register(int device, void *at, size_t size, unsigned flags) {
  (void)device, (void)at, (void)size;
  if (fake.gone) return LM_GPU_GONE;
  fake.flags = flags;
  fake.live++;
  return LM_GPU_OK;
}

static inline lm_gpu_result fake_unregister(void *at) {
  (void)at;
  fake.live--;
  return LM_GPU_OK;
}

static inline lm_gpu_result fake_pool_alloc(int device, size_t size, size_t threshold,
                                            lm_stream stream, lm_devptr *out) {
  (void)threshold;
  fake.last = stream;
  return fake_alloc(device, size, out);
}

static inline lm_gpu_result fake_pool_free(int device, lm_devptr at, lm_stream stream) {
  fake.last = stream;
  return fake_release(device, at);
}

/* The fake pools keep no memory, so there is nothing to trim. */
static inline lm_gpu_result fake_pool_trim(int device, size_t keep) {
  (void)device;
  (void)keep;
  return LM_GPU_OK;
}

static inline lm_gpu_result fake_pool_figures(int device, bool begins, lm_gpu_pool_figures *out) {
  (void)device;
  (void)begins;
  *out = (lm_gpu_pool_figures){ 0 };
  return LM_GPU_OK;
}

static inline lm_gpu_result fake_copy(int device, lm_devptr to, lm_devptr from, size_t size,
                                      lm_stream stream) {
  fake.last = stream;
  if (fake.copy_fails) {
    lm_error(LOAM_EINTERNAL, "device %d: the copy failed", device);
    return LM_GPU_FAILED;
  }
  memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
  return LM_GPU_OK;
}

static inline int fake_current(void) { return fake.current; }

static inline lm_gpu_result fake_info(int device, lm_gpu_info *out) {
  *out = (lm_gpu_info){ .total = LM_GIB, .node = 0, .has_pools = true, .has_managed = true };
  snprintf(out->name, sizeof out->name, "fake %d", device);
  return LM_GPU_OK;
}

static inline lm_gpu_result fake_memory(int device, size_t *free, size_t *total) {
  *total = LM_GIB;
  *free = LM_GIB - fake.bytes[device];
  return LM_GPU_OK;
}

static inline lm_gpu_result fake_synchronize(int device) {
  (void)device;
  fake.synchronized++;
  return LM_GPU_OK;
}

static inline void *fake_context(int device) {
  (void)device;
  return NULL;
}

static inline void *fake_host_context(int device) {
  (void)device;
  return NULL;
}

static inline void *fake_stream_context(lm_stream stream) {
  (void)stream;
  return NULL;
}

static inline void fake_track_context(int device, void *context) { (void)device, (void)context; }
static inline void fake_untrack_contexts(int device) { (void)device; }

static inline lm_gpu_result fake_push_context(int device, void *context, void **out) {
  (void)device, (void)context;
  *out = NULL;
  return LM_GPU_OK;
}

static inline void fake_pop(void *scope) { (void)scope; }

static inline bool fake_may_record(int device, lm_stream stream) {
  (void)device, (void)stream;
  return true;
}

static inline lm_gpu_result fake_event_create(int device, lm_gpu_event *out) {
  static char event;
  (void)device;
  *out = &event;
  return LM_GPU_OK;
}

static inline lm_gpu_result fake_event_record(lm_gpu_event event, int device, lm_stream stream) {
  (void)event, (void)device;
  fake.last = stream;
  return LM_GPU_OK;
}

static inline lm_gpu_result fake_event_wait(lm_gpu_event event) {
  (void)event;
  fake.waited++;
  return LM_GPU_OK;
}

static inline lm_gpu_result fake_event_query(lm_gpu_event event) {
  (void)event;
  return LM_GPU_OK;
}

static inline lm_gpu_result fake_event_destroy(lm_gpu_event event) {
  (void)event;
  return LM_GPU_OK;
}

static const lm_gpu_ops fake_ops = {
  .name = "fake",
  .current = fake_current,
  .info = fake_info,
  .memory = fake_memory,
  .synchronize = fake_synchronize,
  .wait = fake_synchronize,
  .context = fake_context,
  .host_context = fake_host_context,
  .stream_context = fake_stream_context,
  .track_context = fake_track_context,
  .untrack_contexts = fake_untrack_contexts,
  .push_context = fake_push_context,
  .pop = fake_pop,
  .may_record = fake_may_record,
  .alloc = fake_alloc,
  .release = fake_release,
  .managed_alloc = fake_alloc,
  .managed_prefer = fake_prefer,
  .host_alloc = fake_host_alloc,
  .host_free = fake_host_free,
  .host_register = fake_register,
  .host_unregister = fake_unregister,
  .copy = fake_copy,
  .event_create = fake_event_create,
  .event_record = fake_event_record,
  .event_query = fake_event_query,
  .event_wait = fake_event_wait,
  .event_destroy = fake_event_destroy,
  .pool_alloc = fake_pool_alloc,
  .pool_free = fake_pool_free,
  .pool_trim = fake_pool_trim,
  .pool_figures = fake_pool_figures,
};

/* Replaces the search for the CUDA driver. */
void lm_gpu_cuda_find(lm_gpu_machine *out) {
  out->ops = &fake_ops;
  out->count = FAKE_DEVICES;
}

#endif
