/* device_allocators.h - the allocators of device memory that a bench can use: loam, or PyTorch's
 * caching allocator from a library that is made of tests/gpu/torch_host.cc. */
#ifndef BENCH_DEVICE_ALLOCATORS_H
#define BENCH_DEVICE_ALLOCATORS_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>

#include "loam.h"

typedef struct device_allocator {
  void *(*alloc)(size_t size, void *stream);
  void (*free)(void *ptr, void *stream);
  void (*trim)(void);
} device_allocator;

static inline void *allocator_take(size_t size, void *on) {
  return loam_device_alloc(NULL, size, on);
}
static inline void allocator_give(void *ptr, void *on) { (void)loam_device_free(ptr, on); }
static inline void allocator_trim(void) { (void)loam_device_trim(-1); }
static const device_allocator allocator_loam = { allocator_take, allocator_give, allocator_trim };

/* Loads PyTorch's allocator from a library. Returns false, and says why, if that is not
 * possible. */
static inline bool allocator_torch(device_allocator *out, const char *path) {
  void *library = dlopen(path, RTLD_NOW);
  void (*start)(void) = NULL;
  if (library) {
    *(void **)&start = dlsym(library, "torch_start");
    *(void **)&out->alloc = dlsym(library, "torch_pair_alloc");
    *(void **)&out->free = dlsym(library, "torch_pair_free");
    *(void **)&out->trim = dlsym(library, "torch_trim");
  }
  if (!start || !out->alloc || !out->free || !out->trim) {
    fprintf(stderr, "%s: %s\n", path, dlerror());
    return false;
  }
  start();
  return true;
}

#endif
