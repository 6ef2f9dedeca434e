/* measure.c - timed loops of allocation and free for tests/gpu/measure.py. Each contender is a pair
 * of functions, so that the same loop calls all of them. */
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "driver.h"
#include "loam.h"

typedef void *(*alloc_fn)(size_t size, void *stream);
typedef void (*free_fn)(void *ptr, void *stream);

static driver cu;
static loam_site *site;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* ---- Contenders */

void *loam_pair_alloc(size_t size, void *stream);
void loam_pair_free(void *ptr, void *stream);
void *driver_alloc(size_t size, void *stream);
void driver_free(void *ptr, void *stream);
void *async_alloc(size_t size, void *stream);
void async_free(void *ptr, void *stream);
void *host_alloc(size_t size, void *stream);
void host_free(void *ptr, void *stream);
void *pinned_alloc(size_t size, void *stream);
void pinned_free(void *ptr, void *stream);

void *loam_pair_alloc(size_t size, void *stream) { return loam_device_alloc(site, size, stream); }
void loam_pair_free(void *ptr, void *stream) { loam_device_free(ptr, stream); }

void *driver_alloc(size_t size, void *stream) {
  CUdeviceptr at;
  (void)stream;
  return cu.MemAlloc(&at, size) ? NULL : (void *)(uintptr_t)at;
}

void driver_free(void *ptr, void *stream) {
  (void)stream;
  cu.MemFree((uintptr_t)ptr);
}

void *async_alloc(size_t size, void *stream) {
  CUdeviceptr at;
  return cu.MemAllocAsync(&at, size, stream) ? NULL : (void *)(uintptr_t)at;
}

void async_free(void *ptr, void *stream) { cu.MemFreeAsync((uintptr_t)ptr, stream); }

void *host_alloc(size_t size, void *stream) {
  void *at;
  (void)stream;
  return cu.MemHostAlloc(&at, size, 0) ? NULL : at;
}

void host_free(void *ptr, void *stream) {
  (void)stream;
  cu.MemFreeHost(ptr);
}

void *pinned_alloc(size_t size, void *stream) {
  (void)stream;
  return loam_pinned_alloc(site, size, 0);
}

void pinned_free(void *ptr, void *stream) {
  (void)stream;
  loam_free(ptr);
}

/* ---- Loops: they return -1 if there was no memory */

int measure_open(void);
void *measure_stream(void);
void measure_device(char *name, size_t size, int *version);
double measure_pairs(alloc_fn alloc, free_fn release, size_t size, unsigned count, void *stream);
double measure_random(alloc_fn alloc, free_fn release, size_t largest, size_t most, unsigned count,
                      void *stream);
double measure_replay(alloc_fn alloc, free_fn release, const int64_t *trace, size_t events,
                      void **blocks, void **streams);
size_t measure_loam_reserved(const int64_t *trace, size_t events, void **blocks, void **streams);
size_t measure_async_reserved(int reset);
size_t measure_used(void);

/* Opens the driver, and makes the primary context of device 0 current. Returns 0. */
int measure_open(void) {
  uint64_t keep = UINT64_MAX;
  CUmemoryPool pool;
  driver_open(&cu, NULL);
  site = loam_site_get("measure");
  MUST(cu.DefaultMemPool(&pool, 0));
  MUST(cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  return 0;
}

void *measure_stream(void) {
  CUstream stream;
  MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

void measure_device(char *name, size_t size, int *version) {
  MUST(cu.DeviceGetName(name, (int)size, 0));
  MUST(cu.DriverGetVersion(version));
}

/* Returns the nanoseconds of an allocation and its free, on one stream. Does not count the first
 * pair. */
double measure_pairs(alloc_fn alloc, free_fn release, size_t size, unsigned count, void *stream) {
  void *first = alloc(size, stream);
  if (!first) return -1;
  release(first, stream);
  double start = now();
  for (unsigned i = 0; i < count; i++) {
    void *ptr = alloc(size, stream);
    if (!ptr) return -1;
    release(ptr, stream);
  }
  return (now() - start) / count;
}

static uint64_t next(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  return *state ^= *state << 17;
}

/* Returns the nanoseconds of a step of a random mix. A step allocates a block of random size or
 * frees a random live block, with equal chances; it frees if more than `most` bytes would be
 * live. */
double measure_random(alloc_fn alloc, free_fn release, size_t largest, size_t most, unsigned count,
                      void *stream) {
  uint64_t random = 88172645463325252u;
  struct {
    void *at;
    size_t size;
  } *live = calloc(count, sizeof *live);
  size_t lives = 0, bytes = 0;
  bool is_out = !live;
  double start = now();
  for (unsigned i = 0; i < count && !is_out; i++) {
    size_t size = 1 + next(&random) % largest;
    if (lives == 0 || (next(&random) % 2 && bytes + size <= most)) {
      live[lives].at = alloc(live[lives].size = size, stream);
      is_out = !live[lives].at;
      if (!is_out) bytes += live[lives++].size;
    } else {
      size_t which = next(&random) % lives;
      release(live[which].at, stream);
      bytes -= live[which].size;
      live[which] = live[--lives];
    }
  }
  double time = (now() - start) / count;
  while (lives) release(live[--lives].at, stream);
  free(live);
  return is_out ? -1 : time;
}

/* Replays a trace. Its events are triples (block, size, stream): an allocation, or a free if the
 * size is -1. The trace itself frees the blocks that are live at its end. Returns the nanoseconds
 * of an event. */
double measure_replay(alloc_fn alloc, free_fn release, const int64_t *trace, size_t events,
                      void **blocks, void **streams) {
  bool is_out = false;
  double start = now();
  for (size_t i = 0; i < events && !is_out; i++) {
    int64_t block = trace[3 * i], size = trace[3 * i + 1];
    void *stream = streams[trace[3 * i + 2]];
    if (size >= 0) {
      blocks[block] = alloc((size_t)size, stream);
      is_out = !blocks[block];
    } else if (blocks[block]) {
      release(blocks[block], stream);
      blocks[block] = NULL;
    }
  }
  return is_out ? -1 : (now() - start) / (double)events;
}

/* Returns the most bytes of the device that loam reserves during a trace, read after each event. */
size_t measure_loam_reserved(const int64_t *trace, size_t events, void **blocks, void **streams) {
  size_t most = 0;
  for (size_t i = 0; i < events; i++) {
    struct loam_device_info info;
    if (measure_replay(loam_pair_alloc, loam_pair_free, trace + 3 * i, 1, blocks, streams) < 0)
      return 0;
    if (loam_device_info(0, &info) == LOAM_OK && info.reserved > most) most = info.reserved;
  }
  return most;
}

/* Returns the most bytes that the driver's own pool has reserved since the last call with
 * `reset`. */
size_t measure_async_reserved(int reset) {
  CUmemoryPool pool;
  uint64_t high = 0;
  MUST(cu.DefaultMemPool(&pool, 0));
  if (reset) {
    MUST(cu.CtxSynchronize());
    MUST(cu.MemPoolTrimTo(pool, 0));
    MUST(cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &high));
  }
  MUST(cu.MemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &high));
  return high;
}

/* Returns the bytes of the device that are not free, by all programs. */
size_t measure_used(void) {
  size_t left, total;
  MUST(cu.MemGetInfo(&left, &total));
  return total - left;
}
