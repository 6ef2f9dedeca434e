/* names.c - finds functions by name and version, and has the words for errors. */
#include "names.h"
#include "state.h"

#define ENTRY(name, since, function, arguments) { #name, since, (void (*)(void))function },

static const struct {
  const char *name;
  int since;
  void (*function)(void);
} table[] = { STANDIN_FUNCTIONS(ENTRY) };

/* Returns the newest form of a function that a program of this version knows and this driver has,
 * or NULL. Sets *is_known to whether the function has any form. */
static void *look_up(const char *name, int version, bool *is_known) {
  int best = 0;
  void *found = NULL;
  *is_known = false;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (strcmp(table[i].name, name) != 0) continue;
    *is_known = true;
    if (table[i].since > version || table[i].since > si.version || table[i].since < best) continue;
    best = table[i].since;
    found = (void *)table[i].function;
  }
  return found;
}

static CUresult get(const char *name, void **out, int version,
                    CUdriverProcAddressQueryResult *status) {
  if (!name || !out) return CUDA_ERROR_INVALID_VALUE;
  if (!si.version) si_read_environment();
  bool is_known;
  *out = look_up(name, version, &is_known);
  if (status) {
    *status = *out       ? CU_GET_PROC_ADDRESS_SUCCESS
              : is_known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                         : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return *out || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API cuGetProcAddress(const char *name, void **out, int version, cuuint64_t flags) {
  ENTER();
  LEAVE(flags > 2 ? CUDA_ERROR_INVALID_VALUE : get(name, out, version, NULL));
}

API cuGetProcAddress_v2(const char *name, void **out, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *status) {
  ENTER();
  LEAVE(flags > 2 ? CUDA_ERROR_INVALID_VALUE : get(name, out, version, status));
}

static const struct {
  CUresult error;
  const char *name, *words;
} errors[] = {
  { CUDA_SUCCESS, "CUDA_SUCCESS", "no error" },
  { CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
  { CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
  { CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
  { CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down" },
  { CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
  { CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
    "peer access is not supported between these two devices" },
  { CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
  { CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
  { CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
  { CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
  { CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready" },
  { CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
    "an illegal memory access was encountered" },
  { CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed" },
  { CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure" },
  { CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
  { CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    "system has unsupported display driver / cuda driver combination" },
  { CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error" },
};

static CUresult name_error(CUresult error, const char **out, bool in_words) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (errors[i].error != error) continue;
    *out = in_words ? errors[i].words : errors[i].name;
    return CUDA_SUCCESS;
  }
  *out = NULL;
  return CUDA_ERROR_INVALID_VALUE;
}

API cuGetErrorName(CUresult error, const char **out) {
  ENTER();
  LEAVE(name_error(error, out, false));
}

API cuGetErrorString(CUresult error, const char **out) {
  ENTER();
  LEAVE(name_error(error, out, true));
}
