/* vmm.c - virtual memory management: address ranges, pieces of memory, their mapping to ranges, and
 * descriptors of pieces for other processes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "state.h"

typedef struct si_piece {
  struct si_piece *next;
  int device;
  size_t size;
  off_t offset;
  int fd; /* the file of another process that it is in, or -1 */
  bool exportable;
  unsigned handles, mappings; /* the piece ends when both are 0 */
} si_piece;

typedef struct si_range {
  struct si_range *next;
  uintptr_t at;
  size_t size;
} si_range;

static si_piece *pieces;
static si_range *ranges;

static bool is_even(size_t size) { return size && size % GRANULARITY == 0; }

static si_range *range_of(uintptr_t at, size_t size) {
  si_range *range = ranges;
  while (range && !(range->at <= at && at + size <= range->at + range->size)) range = range->next;
  return range;
}

bool si_is_unmapped(uintptr_t at, size_t size) {
  for (si_range *range = ranges; range; range = range->next)
    if (at < range->at + range->size && range->at < at + size) return !si_find(at, size);
  return false;
}

/* Reserves addresses without access and without memory. */
static void *hold_address(void *at, size_t size, int fixed) {
  return mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
}

API cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *properties,
                                  CUmemAllocationGranularity_flags option) {
  ENTER();
  (void)option;
  if (!out || !properties || si.lacks_vmm) LEAVE(CUDA_ERROR_INVALID_VALUE);
  *out = GRANULARITY;
  LEAVE(CUDA_SUCCESS);
}

API cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr hint,
                        unsigned long long flags) {
  ENTER();
  (void)hint;
  if (si.lacks_vmm) LEAVE(CUDA_ERROR_NOT_SUPPORTED);
  if (!out || !is_even(size) || flags || (alignment & (alignment - 1))) {
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  size_t align = alignment < GRANULARITY ? GRANULARITY : alignment;
  si_range *range = malloc(sizeof *range);
  char *map = hold_address(NULL, size + align, 0);
  if (!range || map == MAP_FAILED) {
    free(range);
    LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
  }
  uintptr_t at = ((uintptr_t)map + align - 1) / align * align;
  if (at > (uintptr_t)map) munmap(map, at - (uintptr_t)map);
  munmap((char *)at + size, (uintptr_t)map + align - at);
  *range = (struct si_range){ .next = ranges, .at = at, .size = size };
  ranges = range;
  si.handles++;
  *out = at;
  LEAVE(CUDA_SUCCESS);
}

API cuMemAddressFree(CUdeviceptr at, size_t size) {
  ENTER();
  si_range **link = &ranges;
  while (*link && (*link)->at != at) link = &(*link)->next;
  si_range *range = *link;
  if (!range || range->size != size) {
    si_violate("cuMemAddressFree of %zu bytes at %#llx, which is no range", size, at);
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  if (si_find(at, size)) {
    si_violate("cuMemAddressFree of a range at %#llx, where memory is mapped", at);
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  *link = range->next;
  munmap((void *)(uintptr_t)at, size);
  free(range);
  si.handles--;
  LEAVE(CUDA_SUCCESS);
}

/* ---- Pieces ---- */

static si_piece *piece_of(CUmemGenericAllocationHandle handle) {
  si_piece *piece = pieces;
  while (piece && (uintptr_t)piece != handle) piece = piece->next;
  return piece;
}

static void end_if_unused(si_piece *piece) {
  if (piece->handles || piece->mappings) return;
  struct si_piece **link = &pieces;
  while (*link != piece) link = &(*link)->next;
  *link = piece->next;
  if (piece->fd >= 0) { /* the other process gives the memory back */
    close(piece->fd);
    free(piece);
    return;
  }
  struct si_block block = { .device = piece->device, .size = piece->size, .offset = piece->offset };
  block.map = hold_address(NULL, PAGE, 0); /* si_unmap_memory unmaps a mapping */
  block.map_size = PAGE;
  fallocate(si.devices[piece->device].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, piece->offset,
            (off_t)piece->size);
  si_unmap_memory(&block);
  free(piece);
}

API cuMemCreate(CUmemGenericAllocationHandle *out, size_t size,
                const CUmemAllocationProp *properties, unsigned long long flags) {
  ENTER();
  if (si.lacks_vmm) LEAVE(CUDA_ERROR_NOT_SUPPORTED);
  if (!out || !properties || !is_even(size) || flags ||
      properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  bool exportable = properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (exportable ? si.lacks_exports : properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    LEAVE(CUDA_ERROR_NOT_SUPPORTED);
  }
  int device = properties->location.id;
  if (si_of_device(device)) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  si_piece *piece = calloc(1, sizeof *piece);
  struct si_block block = { 0 };
  CUresult result = si_map_memory(&block, device, size);
  if (!piece || result != CUDA_SUCCESS) {
    free(piece);
    LEAVE(result);
  }
  munmap(block.map, block.map_size);
  *piece = (si_piece){ .next = pieces,
                       .device = device,
                       .size = size,
                       .offset = block.offset,
                       .fd = -1,
                       .exportable = exportable,
                       .handles = 1 };
  pieces = piece;
  si.handles++;
  *out = (uintptr_t)piece;
  LEAVE(CUDA_SUCCESS);
}

API cuMemRelease(CUmemGenericAllocationHandle handle) {
  ENTER();
  si_piece *piece = piece_of(handle);
  if (!piece || piece->handles == 0) {
    si_violate("cuMemRelease of %#llx, which is no handle", handle);
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  piece->handles--;
  si.handles--;
  end_if_unused(piece);
  LEAVE(CUDA_SUCCESS);
}

API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *at) {
  ENTER();
  si_block *block = si_find((uintptr_t)at, 1);
  if (!out || !block || block->kind != MAPPED) LEAVE(CUDA_ERROR_INVALID_VALUE);
  block->piece->handles++;
  si.handles++;
  *out = (uintptr_t)block->piece;
  LEAVE(CUDA_SUCCESS);
}

/* ---- Pieces for other processes: a descriptor names the file of a piece, and the offset ---- */

typedef struct si_shared {
  uint64_t magic, offset, size;
  int process, fd, device;
} si_shared;

static const uint64_t MAGIC = 0x2f70616d646e6174;

API cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                 CUmemAllocationHandleType type, unsigned long long flags) {
  ENTER();
  si_piece *piece = piece_of(handle);
  if (!piece || piece->handles == 0) {
    si_violate("cuMemExportToShareableHandle of %#llx, which is no handle", handle);
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !piece->exportable) {
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  si_shared shared = { .magic = MAGIC,
                       .offset = (uint64_t)piece->offset,
                       .size = piece->size,
                       .process = (int)getpid(),
                       .fd = si.devices[piece->device].fd,
                       .device = piece->device };
  int fd = memfd_create("standin piece", MFD_CLOEXEC);
  if (fd < 0) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
  if (write(fd, &shared, sizeof shared) != sizeof shared) abort();
  *(int *)out = fd;
  LEAVE(CUDA_SUCCESS);
}

API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *given,
                                   CUmemAllocationHandleType type) {
  ENTER();
  si_shared shared;
  char path[64];
  int from = (int)(intptr_t)given;
  if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      pread(from, &shared, sizeof shared, 0) != sizeof shared || shared.magic != MAGIC) {
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  snprintf(path, sizeof path, "/proc/%d/fd/%d", shared.process, shared.fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  si_piece *piece = calloc(1, sizeof *piece);
  if (fd < 0 || !piece) {
    free(piece);
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  *piece = (si_piece){ .next = pieces,
                       .device = shared.device,
                       .size = shared.size,
                       .offset = (off_t)shared.offset,
                       .fd = fd,
                       .handles = 1 };
  pieces = piece;
  si.handles++;
  *out = (uintptr_t)piece;
  LEAVE(CUDA_SUCCESS);
}

/* ---- Mapping ---- */

API cuMemMap(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
  ENTER();
  si_piece *piece = piece_of(handle);
  if (!piece || piece->handles == 0) {
    si_violate("cuMemMap of %#llx, which is no handle", handle);
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  if (flags || offset || size != piece->size || at % GRANULARITY || !range_of(at, size)) {
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  si_block block = { .at = at,
                     .size = size,
                     .kind = MAPPED,
                     .device = piece->device,
                     .piece = piece },
           *made;
  CUresult result = si_block_new(&block, &made);
  if (result != CUDA_SUCCESS) {
    si_violate("cuMemMap of %zu bytes at %#llx, where memory is mapped", size, at);
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  piece->mappings++;
  LEAVE(CUDA_SUCCESS);
}

/* Calls `visit` for each mapping of a range. Returns false, and calls nothing, if the range does
 * not consist of whole mappings. */
static bool each_mapping(uintptr_t at, size_t size, void (*visit)(si_block *, int), int value) {
  for (int pass = 0; pass < 2; pass++) {
    for (uintptr_t here = at; here < at + size;) {
      si_block *block = si_find(here, 1);
      bool whole = block && block->kind == MAPPED && block->at == here &&
                   here + block->size <= at + size;
      if (!whole) return false;
      here += block->size;
      if (pass) visit(block, value);
    }
  }
  return true;
}

static void set_access(si_block *block, int protection) {
  void *at = (void *)block->at;
  int own = si.devices[block->device].fd, other = block->piece->fd;
  if (protection == PROT_NONE) {
    hold_address(at, block->size, MAP_FIXED);
  } else if (mmap(at, block->size, protection, MAP_SHARED | MAP_FIXED, other < 0 ? own : other,
                  block->piece->offset) == MAP_FAILED) {
    abort();
  }
  block->accessible = protection != PROT_NONE;
}

API cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc *access, size_t count) {
  ENTER();
  if (!access || count == 0 || size == 0) LEAVE(CUDA_ERROR_INVALID_VALUE);
  for (size_t i = 0; i < count; i++) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        si_of_device(access[i].location.id)) {
      LEAVE(CUDA_ERROR_INVALID_DEVICE);
    }
  }
  int protection = access->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE   ? PROT_NONE
                   : access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ
                                                                    : PROT_READ | PROT_WRITE;
  LEAVE(each_mapping(at, size, set_access, protection) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static void unmap(si_block *block, int unused) {
  (void)unused;
  set_access(block, PROT_NONE);
  si_piece *piece = block->piece;
  si_block_remove(block);
  piece->mappings--;
  end_if_unused(piece);
}

/* Does not wait for pending work, which would then lose its memory: that is a violation. */
API cuMemUnmap(CUdeviceptr at, size_t size) {
  ENTER();
  if (si_has_pending(at, size, true)) {
    si_violate("cuMemUnmap of %zu bytes at %#llx, which pending work uses", size, at);
    si_drain(NULL, -1);
  }
  if (size && each_mapping(at, size, unmap, 0)) LEAVE(CUDA_SUCCESS);
  si_violate("cuMemUnmap of %zu bytes at %#llx, which are not whole mappings", size, at);
  LEAVE(CUDA_ERROR_INVALID_VALUE);
}

void si_vmm_reset(void) {
  while (ranges) {
    si_range *range = ranges;
    ranges = range->next;
    munmap((void *)range->at, range->size);
    free(range);
  }
  while (pieces) {
    si_piece *piece = pieces;
    pieces = piece->next;
    if (piece->fd >= 0) close(piece->fd);
    free(piece);
  }
}
