/* driver.h - CUDA's driver for the programs of tests/gpu. It is opened by name. The kernels, or the
 * stand-in in their place, write and check memory. */
#ifndef GPU_DRIVER_H
#define GPU_DRIVER_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "../standin/cuda.h"

#define DRIVER_CALLS(X)                                                                   \
  X(Init, "cuInit", unsigned)                                                             \
  X(DriverGetVersion, "cuDriverGetVersion", int *)                                        \
  X(DeviceGetCount, "cuDeviceGetCount", int *)                                            \
  X(DeviceGetName, "cuDeviceGetName", char *, int, CUdevice)                              \
  X(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", CUcontext *, CUdevice)                  \
  X(CtxSetCurrent, "cuCtxSetCurrent", CUcontext)                                          \
  X(CtxSynchronize, "cuCtxSynchronize", void)                                             \
  X(MemGetInfo, "cuMemGetInfo_v2", size_t *, size_t *)                                    \
  X(MemAlloc, "cuMemAlloc_v2", CUdeviceptr *, size_t)                                     \
  X(MemFree, "cuMemFree_v2", CUdeviceptr)                                                 \
  X(MemHostAlloc, "cuMemHostAlloc", void **, size_t, unsigned)                            \
  X(MemFreeHost, "cuMemFreeHost", void *)                                                 \
  X(MemAllocAsync, "cuMemAllocAsync", CUdeviceptr *, size_t, CUstream)                    \
  X(MemFreeAsync, "cuMemFreeAsync", CUdeviceptr, CUstream)                                \
  X(DefaultMemPool, "cuDeviceGetDefaultMemPool", CUmemoryPool *, CUdevice)                \
  X(MemPoolSetAttribute, "cuMemPoolSetAttribute", CUmemoryPool, int, void *)              \
  X(MemPoolGetAttribute, "cuMemPoolGetAttribute", CUmemoryPool, int, void *)              \
  X(MemPoolTrimTo, "cuMemPoolTrimTo", CUmemoryPool, size_t)                               \
  X(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", CUdeviceptr, const void *, size_t, CUstream) \
  X(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", void *, CUdeviceptr, size_t, CUstream)       \
  X(MemsetD8, "cuMemsetD8_v2", CUdeviceptr, unsigned char, size_t)                        \
  X(StreamCreate, "cuStreamCreate", CUstream *, unsigned)                                 \
  X(StreamSynchronize, "cuStreamSynchronize", CUstream)                                   \
  X(StreamWaitEvent, "cuStreamWaitEvent", CUstream, CUevent, unsigned)                    \
  X(EventCreate, "cuEventCreate", CUevent *, unsigned)                                    \
  X(EventRecord, "cuEventRecord", CUevent, CUstream)                                      \
  X(EventDestroy, "cuEventDestroy_v2", CUevent)

typedef struct driver {
#define DRIVER_DECLARE(name, symbol, ...) CUresult (*name)(__VA_ARGS__);
  DRIVER_CALLS(DRIVER_DECLARE)
#undef DRIVER_DECLARE
  /* functions of the stand-in; NULL with a real driver */
  CUresult (*stand_in_write)(CUstream, CUdeviceptr, int, size_t);
  CUresult (*stand_in_check)(CUstream, CUdeviceptr, int, size_t);
  unsigned (*stand_in_violations)(void);
  CUresult (*ModuleLoad)(void **, const char *);
  CUresult (*ModuleGetFunction)(void **, void *, const char *);
  CUresult (*LaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, CUstream, void **, void **);
  void *write_kernel, *check_kernel;
  CUdeviceptr wrong; /* address of an 8-byte count of the bytes that the kernels found wrong */
  CUcontext context;
} driver;

static inline void driver_must(CUresult result, const char *what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s failed with %d\n", what, (int)result);
  exit(1);
}

#define MUST(call) driver_must((call), #call)

static inline void *driver_symbol(void *library, const char *name, bool is_needed) {
  void *symbol = dlsym(library, name);
  if (symbol || !is_needed) return symbol;
  fprintf(stderr, "the driver has no %s\n", name);
  exit(1);
}

static inline void driver_load_kernels(driver *cu, const char *path) {
  void *module;
  MUST(cu->ModuleLoad(&module, path));
  MUST(cu->ModuleGetFunction(&cu->write_kernel, module, "write_bytes"));
  MUST(cu->ModuleGetFunction(&cu->check_kernel, module, "check_bytes"));
  MUST(cu->MemAlloc(&cu->wrong, 8));
  MUST(cu->MemsetD8(cu->wrong, 0, 8));
}

/* Opens the driver, and makes the primary context of device 0 current. `kernels` is a file that
 * nvcc made from kernels.cu, or NULL if no kernels are needed. */
static inline void driver_open(driver *cu, const char *kernels) {
  const char *name = getenv("LOAM_CUDA_DRIVER");
  void *library = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(77);
  }
#define DRIVER_FIND(name, symbol, ...) *(void **)&cu->name = driver_symbol(library, symbol, true);
  DRIVER_CALLS(DRIVER_FIND)
#undef DRIVER_FIND
  *(void **)&cu->stand_in_write = driver_symbol(library, "standin_write", false);
  *(void **)&cu->stand_in_check = driver_symbol(library, "standin_check", false);
  *(void **)&cu->stand_in_violations = driver_symbol(library, "standin_violations", false);
  MUST(cu->Init(0));
  MUST(cu->PrimaryCtxRetain(&cu->context, 0));
  MUST(cu->CtxSetCurrent(cu->context));
  if (cu->stand_in_write || !kernels) return;
  *(void **)&cu->ModuleLoad = driver_symbol(library, "cuModuleLoad", true);
  *(void **)&cu->ModuleGetFunction = driver_symbol(library, "cuModuleGetFunction", true);
  *(void **)&cu->LaunchKernel = driver_symbol(library, "cuLaunchKernel", true);
  driver_load_kernels(cu, kernels);
}

static inline void driver_write(const driver *cu, CUstream stream, void *at, int byte,
                                size_t size) {
  CUdeviceptr to = (uintptr_t)at;
  if (cu->stand_in_write) {
    MUST(cu->stand_in_write(stream, to, byte, size));
    return;
  }
  void *arguments[] = { &to, &size, &byte };
  unsigned blocks = size / 4096 < 1024 ? (unsigned)(size / 4096) + 1 : 1024;
  MUST(cu->LaunchKernel(cu->write_kernel, blocks, 1, 1, 256, 1, 1, 0, stream, arguments, NULL));
}

/* Queues a check on a stream. driver_wrong returns the number of wrong bytes. */
static inline void driver_check(const driver *cu, CUstream stream, void *at, int byte,
                                size_t size) {
  CUdeviceptr from = (uintptr_t)at, wrong = cu->wrong;
  if (cu->stand_in_check) {
    MUST(cu->stand_in_check(stream, from, byte, size));
    return;
  }
  void *arguments[] = { &from, &size, &byte, &wrong };
  unsigned blocks = size / 4096 < 1024 ? (unsigned)(size / 4096) + 1 : 1024;
  MUST(cu->LaunchKernel(cu->check_kernel, blocks, 1, 1, 256, 1, 1, 0, stream, arguments, NULL));
}

/* Waits until all work is done. Returns the number of wrong bytes, or the stand-in's violations. */
static inline unsigned long long driver_wrong(const driver *cu) {
  unsigned long long wrong = 0;
  MUST(cu->CtxSynchronize());
  if (cu->stand_in_violations) return cu->stand_in_violations();
  MUST(cu->MemcpyDtoHAsync(&wrong, cu->wrong, sizeof wrong, NULL));
  MUST(cu->CtxSynchronize());
  return wrong;
}

#endif
