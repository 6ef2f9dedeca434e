/* ipc.c - memory of a device in two processes. A handle names the process and the file that the
 * memory is in, and its place in the file. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "state.h"

typedef struct si_handle {
  uint64_t magic;
  int process, fd, device;
  unsigned shift; /* the block's offset in its mapping */
  uint64_t offset, size, map_size;
} si_handle;

static const uint64_t MAGIC = 0x2f6e692d646e6174;

_Static_assert(sizeof(si_handle) <= CU_IPC_HANDLE_SIZE, "a handle is 64 bytes");

API cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr at) {
  ENTER();
  si_block *block = si_find(at, 1);
  if (!out || !block || block->kind != DEVICE) LEAVE(CUDA_ERROR_INVALID_VALUE);
  si_handle handle = { .magic = MAGIC,
                       .process = (int)getpid(),
                       .fd = si.devices[block->device].fd,
                       .device = si.devices[block->device].number,
                       .shift = (unsigned)(block->at - (uintptr_t)block->map),
                       .offset = (uint64_t)block->offset,
                       .size = block->size,
                       .map_size = block->map_size };
  memset(out, 0, sizeof *out);
  memcpy(out, &handle, sizeof handle);
  LEAVE(CUDA_SUCCESS);
}

static CUresult map(const si_handle *handle, CUcontext context, si_block *block) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->process, handle->fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_MAP_FAILED;
  char *at = mmap(NULL, handle->map_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                  (off_t)handle->offset);
  close(fd);
  if (at == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  *block = (si_block){ .at = (uintptr_t)at + handle->shift,
                       .size = handle->size,
                       .kind = OPENED,
                       .device = context->device,
                       .context = context,
                       .map = at,
                       .map_size = handle->map_size,
                       .offset = (off_t)handle->offset,
                       .opened = 1 };
  return CUDA_SUCCESS;
}

API cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle bytes, unsigned flags) {
  ENTER();
  CUcontext context;
  CUresult result = si_current(&context);
  if (result != CUDA_SUCCESS) LEAVE(result);
  si_handle handle;
  memcpy(&handle, &bytes, sizeof handle);
  if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || handle.magic != MAGIC) {
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  if (si.lacks_peers && handle.device != si.devices[context->device].number) {
    LEAVE(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  }
  /* The process that made a handle cannot open it. */
  if (handle.process == (int)getpid()) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  si_block block, *made;
  result = map(&handle, context, &block);
  if (result == CUDA_SUCCESS) result = si_block_new(&block, &made);
  if (result == CUDA_SUCCESS) *out = made->at;
  LEAVE(result);
}

API cuIpcCloseMemHandle(CUdeviceptr at) {
  ENTER();
  si_block *block = si_find(at, 1);
  if (!block || block->kind != OPENED || block->at != at) {
    si_violate("cuIpcCloseMemHandle of %#llx, which was not opened", at);
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  CUcontext context = si_current_or_null();
  if (!context || context->device != block->device) {
    si_violate("cuIpcCloseMemHandle of %#llx without a context of its device", at);
  }
  if (si_has_pending(at, block->size, true)) {
    si_violate("cuIpcCloseMemHandle of %#llx, which pending work uses", at);
  }
  munmap(block->map, block->map_size);
  si_block_remove(block);
  LEAVE(CUDA_SUCCESS);
}
