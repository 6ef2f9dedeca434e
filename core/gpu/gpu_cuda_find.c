/* gpu_cuda_find.c - finds CUDA's driver at run time. The library is libcuda.so.1, or the one that
 * the environment variable LOAM_CUDA_DRIVER names. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gpu/gpu_cuda.h"
#include "os/sys.h"

#define LIBRARY "libcuda.so.1"

/* CUDA 11.2 is the first version with all functions that loam uses. loam also asks cuGetProcAddress
 * for the forms of functions that this version has. cuDeviceGetUuid is an exception: its form of
 * CUDA 11.4 tells the parts of a device from each other (MIG), the older form does not. */
enum { LEAST_DRIVER = 11020 };

typedef CUresult (*get_address)(const char *name, void **out, int version, cuuint64_t flags,
                                void *status);

/* The oldest form of cuGetProcAddress has four arguments: it ignores the fifth, which the calling
 * convention passes in a register. */
static void *find_function(void *library, get_address get, const char *name, const char *symbol) {
  void *found = NULL;
  if (strcmp(name, "cuDeviceGetUuid") == 0 && (found = dlsym(library, symbol))) return found;
  if (get && get(name, &found, LEAST_DRIVER, 0, NULL) == CUDA_SUCCESS && found) return found;
  return dlsym(library, symbol);
}

static bool refuse(lm_gpu_machine *out, const char *format, ...) LM_PRINTF(2, 3);

/* Says in out->why why there is no driver. Returns false. */
static bool refuse(lm_gpu_machine *out, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(out->why, sizeof out->why, format, arguments);
  va_end(arguments);
  return false;
}

static bool find_functions(void *library, lm_gpu_machine *out) {
  get_address get = (get_address)dlsym(library, "cuGetProcAddress_v2");
  if (!get) get = (get_address)dlsym(library, "cuGetProcAddress");
#define FIND(name, suffix, ...)                                                            \
  lm_gpu_cuda.name = (__typeof__(lm_gpu_cuda.name))find_function(library, get, "cu" #name, \
                                                                 "cu" #name suffix);
#define DEMAND(name, suffix, ...) \
  FIND(name, suffix) if (!lm_gpu_cuda.name) return refuse(out, "%s has no cu" #name, out->library);
  LM_GPU_CUDA_OPTIONAL(FIND)
  LM_GPU_CUDA_REQUIRED(DEMAND)
#undef DEMAND
#undef FIND
  return true;
}

static const char *version_text(int version, char buffer[16]) {
  snprintf(buffer, 16, "%d.%d", version / 1000 % 1000, version % 1000 / 10);
  return buffer;
}

/* cuDriverGetVersion works before cuInit, and in drivers that are too old for loam. */
static bool check_version(void *library, lm_gpu_machine *out) {
  char driver[16], least[16], built[16];
  CUresult (*version)(int *) = (CUresult(*)(int *))dlsym(library, "cuDriverGetVersion");
  if (!version || version(&out->driver) != CUDA_SUCCESS)
    return refuse(out, "%s does not tell its version", out->library);
  if (out->driver >= LEAST_DRIVER) return true;
  return refuse(out,
                "%s is a driver of CUDA %s: loam, built with the toolkit of %s, needs %s or "
                "newer",
                out->library, version_text(out->driver, driver), version_text(CUDA_VERSION, built),
                version_text(LEAST_DRIVER, least));
}

/* cuInit gives CUDA_ERROR_NOT_INITIALIZED (3) in a fork of a process in which the host itself
 * started the driver, and loam did not. */
static bool start(void *library, lm_gpu_machine *out) {
  CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(library, "cuInit");
  CUresult result = init ? init(0) : CUDA_ERROR_NOT_FOUND;
  if (result == CUDA_SUCCESS) return true;
  if (result == CUDA_ERROR_NO_DEVICE)
    return refuse(out, "%s finds no device: %s", out->library, lm_gpu_cuda_error(result));
  return refuse(out, "%s does not start: %s (%d), %s%s", out->library, lm_gpu_cuda_name(result),
                (int)result, lm_gpu_cuda_error(result),
                result == CUDA_ERROR_NOT_INITIALIZED
                    ? "; in a fork of a process that used the GPU it never does"
                    : "");
}

/* Fills in what a device can do. */
static void examine(int device) {
  lm_assert(device >= 0 && device < LM_DEVICES_MAX);
  bool vmm = lm_gpu_cuda.MemAddressReserve && lm_gpu_cuda.MemAddressFree && lm_gpu_cuda.MemCreate &&
             lm_gpu_cuda.MemRelease && lm_gpu_cuda.MemMap && lm_gpu_cuda.MemUnmap &&
             lm_gpu_cuda.MemSetAccess && lm_gpu_cuda.MemGetAllocationGranularity;
  bool pools = lm_gpu_cuda.MemPoolCreate && lm_gpu_cuda.MemPoolDestroy &&
               lm_gpu_cuda.MemPoolSetAttribute && lm_gpu_cuda.MemPoolGetAttribute &&
               lm_gpu_cuda.MemPoolTrimTo && lm_gpu_cuda.MemAllocFromPoolAsync &&
               lm_gpu_cuda.MemFreeAsync;
  lm_gpu_cuda_of[device].has_exports =
      lm_gpu_cuda.MemExportToShareableHandle && lm_gpu_cuda.MemImportFromShareableHandle &&
      lm_gpu_cuda_attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                            0);
  CUmemAllocationProp prop = lm_gpu_cuda_prop(device);
  size_t *granularity = &lm_gpu_cuda_of[device].granularity;
  lm_gpu_cuda_of[device].has_pools =
      pools && lm_gpu_cuda_attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0);
  lm_gpu_cuda_of[device].has_vmm =
      vmm &&
      lm_gpu_cuda_attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED, 0) &&
      lm_gpu_cuda.MemGetAllocationGranularity(granularity, &prop,
                                              CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS;
  if (!lm_gpu_cuda_is_valid(&lm_gpu_cuda_of[device])) lm_gpu_cuda_of[device].has_vmm = false;
}

static bool find_devices(lm_gpu_machine *out) {
  CUresult result = lm_gpu_cuda.DeviceGetCount(&lm_gpu_cuda_count);
  if (result != CUDA_SUCCESS || lm_gpu_cuda_count < 1) {
    lm_gpu_cuda_count = 0;
    return refuse(out, "%s finds no device", out->library);
  }
  if (lm_gpu_cuda_count > LM_DEVICES_MAX) lm_gpu_cuda_count = LM_DEVICES_MAX;
  for (int i = 0; i < lm_gpu_cuda_count; i++) {
    if (lm_gpu_cuda.DeviceGet(&lm_gpu_cuda_of[i].handle, i) != CUDA_SUCCESS)
      return refuse(out, "%s has no device %d", out->library, i);
    examine(i);
  }
  return true;
}

void lm_gpu_cuda_find(lm_gpu_machine *out) {
  lm_assert(!out->ops && !out->count);
  const char *named = lm_sys_getenv("LOAM_CUDA_DRIVER");
  snprintf(out->library, sizeof out->library, "%s", named && *named ? named : LIBRARY);
  out->toolkit = CUDA_VERSION;
  void *library = dlopen(out->library, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    refuse(out, "there is no driver: %s", dlerror());
    return;
  }
  if (!check_version(library, out) || !find_functions(library, out) || !start(library, out) ||
      !find_devices(out))
    return;
  out->count = lm_gpu_cuda_count;
  out->ops = &lm_gpu_cuda_ops;
}
