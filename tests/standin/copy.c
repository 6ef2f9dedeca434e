/* copy.c - copies and fills, asynchronous and synchronous. */
#include <stdlib.h>

#include "state.h"

static void copy_bytes(si_work *work) {
  void *to = work->into ? work->into : (void *)work->to;
  memmove(to, work->staged ? work->staged : (void *)work->from, work->size);
}

static void fill_bytes(si_work *work) {
  char *to = (char *)work->to;
  for (size_t i = 0; i < work->size; i += work->width) memcpy(to + i, &work->byte, work->width);
}

/* Checks that memory is mapped at reserved addresses. They are no memory of the host, so a copy
 * from or to them without a mapping is an error of the program. */
static CUresult check_mapped(uintptr_t at, size_t size) {
  if (!si_is_unmapped(at, size)) return CUDA_SUCCESS;
  si_violate("a copy of %zu bytes at %#lx, where no memory is mapped", size, (unsigned long)at);
  return CUDA_ERROR_INVALID_VALUE;
}

/* Copies on a stream. Memory that the driver does not know is the host's. It is read or written
 * before the call ends, so that the program may change or free it right after. */
static CUresult copy(CUstream handle, uintptr_t to, uintptr_t from, size_t size, bool at_once) {
  CUstream stream;
  CUresult result = si_stream_of(handle, &stream);
  if (result != CUDA_SUCCESS || size == 0) return result;
  if (check_mapped(to, size) || check_mapped(from, size)) return CUDA_ERROR_INVALID_VALUE;
  bool host_to = !si_find(to, size), host_from = !si_find(from, size);
  si_work *work = si_work_new(copy_bytes);
  work->size = size;
  if (!host_to) work->to = to;
  else work->into = (char *)to;
  if (!host_from) work->from = from;
  else if ((work->staged = malloc(size))) memcpy(work->staged, (void *)from, size);
  result = si_put(stream, work);
  if (result == CUDA_SUCCESS && (at_once || host_to)) {
    si_moment target = stream->known;
    si_wait(&target);
  }
  return result;
}

/* Checks that live blocks cover a range. */
static CUresult check_device(const char *function, uintptr_t at, size_t size) {
  if (size == 0 || si_is_covered(at, size)) return CUDA_SUCCESS;
  si_violate("%s of %zu bytes at %#lx, which are not all allocated", function, size,
             (unsigned long)at);
  return CUDA_ERROR_INVALID_VALUE;
}

API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
  ENTER();
  CUresult result = check_device("cuMemcpyHtoDAsync", to, size);
  LEAVE(result ? result : copy(stream, to, (uintptr_t)from, size, false));
}

API cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) {
  ENTER();
  CUresult result = check_device("cuMemcpyDtoHAsync", from, size);
  LEAVE(result ? result : copy(stream, (uintptr_t)to, from, size, false));
}

API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  ENTER();
  CUresult result = check_device("cuMemcpyDtoDAsync", to, size);
  if (result == CUDA_SUCCESS) result = check_device("cuMemcpyDtoDAsync", from, size);
  LEAVE(result ? result : copy(stream, to, from, size, false));
}

API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  ENTER();
  LEAVE(copy(stream, to, from, size, false));
}

API cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
  ENTER();
  CUresult result = check_device("cuMemcpyHtoD", to, size);
  LEAVE(result ? result : copy(NULL, to, (uintptr_t)from, size, true));
}

API cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
  ENTER();
  CUresult result = check_device("cuMemcpyDtoH", from, size);
  LEAVE(result ? result : copy(NULL, (uintptr_t)to, from, size, true));
}

API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) {
  ENTER();
  CUresult result = check_device("cuMemcpyDtoD", to, size);
  if (result == CUDA_SUCCESS) result = check_device("cuMemcpyDtoD", from, size);
  LEAVE(result ? result : copy(NULL, to, from, size, true));
}

API cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
  ENTER();
  LEAVE(copy(NULL, to, from, size, true));
}

static CUresult fill(CUstream handle, uintptr_t at, unsigned value, unsigned width, size_t count,
                     bool at_once) {
  CUstream stream;
  CUresult result = check_device("cuMemset", at, count * width);
  if (result == CUDA_SUCCESS) result = si_stream_of(handle, &stream);
  if (result != CUDA_SUCCESS || count == 0) return result;
  if (at % width) return CUDA_ERROR_INVALID_VALUE;
  si_work *work = si_work_new(fill_bytes);
  work->to = at;
  work->size = count * width;
  work->byte = value;
  work->width = width;
  result = si_put(stream, work);
  if (result == CUDA_SUCCESS && at_once) {
    si_moment target = stream->known;
    si_wait(&target);
  }
  return result;
}

API cuMemsetD8_v2(CUdeviceptr at, unsigned char value, size_t count) {
  ENTER();
  LEAVE(fill(NULL, at, value, 1, count, true));
}

API cuMemsetD32_v2(CUdeviceptr at, unsigned value, size_t count) {
  ENTER();
  LEAVE(fill(NULL, at, value, 4, count, true));
}

API cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t count, CUstream stream) {
  ENTER();
  LEAVE(fill(stream, at, value, 1, count, false));
}

API cuMemsetD32Async(CUdeviceptr at, unsigned value, size_t count, CUstream stream) {
  ENTER();
  LEAVE(fill(stream, at, value, 4, count, false));
}

/* Writes a word of memory, which may be a flag that a device waits for. */
API cuStreamWriteValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  ENTER();
  LEAVE(flags ? CUDA_ERROR_NOT_SUPPORTED : fill(stream, at, value, 4, 1, false));
}
