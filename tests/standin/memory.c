/* memory.c - blocks of memory: of a device, managed, pinned and registered. Attributes of an
 * address. */
#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "state.h"

enum { ALIGNMENT = 256, POISON = 0xa5, ENDED_WITH_CONTEXT = 4096 };

static void *tree;        /* of blocks by address; none overlap */
static size_t registered; /* the sum of a walk through the tree */
static unsigned block_count;
static uint64_t serial;

/* The addresses of blocks that ended with their context. A new one overwrites the oldest. */
static uintptr_t ended_with_context[ENDED_WITH_CONTEXT];
static unsigned ended_with_context_count;

/* ---- The tree ---- */

static int compare(const void *left, const void *right) {
  const si_block *a = left, *b = right;
  if (a->at + a->size <= b->at) return -1;
  return b->at + b->size <= a->at ? 1 : 0;
}

si_block *si_find(uintptr_t at, size_t size) {
  si_block key = { .at = at, .size = size ? size : 1 };
  void *node = tfind(&key, &tree, compare);
  return node ? *(si_block **)node : NULL;
}

/* Returns whether a range reaches beyond the end of a registration. The driver does not copy from
 * or to such a range. */
static bool is_registered_apart(uintptr_t at, size_t size) {
  const si_block *block = si_find(at, 1);
  return block && block->kind == REGISTERED && at + size > block->at + block->size;
}

bool si_is_covered(uintptr_t at, size_t size) {
  uintptr_t end = at + size;
  if (is_registered_apart(at, size)) return false;
  while (at < end) {
    si_block *block = si_find(at, 1);
    if (!block || block->freed || (block->kind == MAPPED && !block->accessible)) return false;
    at = block->at + block->size;
  }
  return true;
}

CUresult si_block_new(si_block *from, si_block **out) {
  if (si_find(from->at, from->size)) return CUDA_ERROR_ALREADY_MAPPED;
  si_block *made = malloc(sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = *from;
  made->serial = ++serial;
  if (!tsearch(made, &tree, compare)) abort();
  block_count++;
  *out = made;
  return CUDA_SUCCESS;
}

void si_block_remove(si_block *block) {
  tdelete(block, &tree, compare);
  block_count--;
  free(block);
}

CONTROL unsigned standin_blocks(void) { return block_count; }

/* ---- Memory of a device ---- */

static size_t up(size_t size, size_t to) { return (size + to - 1) / to * to; }

static CUresult charge(int device, size_t size) {
  struct si_gpu *of = &si.devices[device];
  if (of->used + size > of->total) si_pool_shrink(device, true);
  if (of->used + size > of->total || size > of->total) return CUDA_ERROR_OUT_OF_MEMORY;
  of->used += size;
  return CUDA_SUCCESS;
}

/* Returns the file that is a device's memory. It is sparse: a page exists once it is written. */
static int file_of(int device) {
  struct si_gpu *of = &si.devices[device];
  if (of->fd > 0) return of->fd;
  int fd = memfd_create("standin", MFD_CLOEXEC);
  of->fd = fcntl(fd, F_DUPFD_CLOEXEC, 500); /* a high number: programs may count on low ones */
  close(fd);
  if (of->fd < 0 || ftruncate(of->fd, (off_t)1 << 45) != 0) abort();
  return of->fd;
}

/* Gives a block memory of a device. Its address is aligned to 256 bytes and to no more, so that a
 * program cannot count on more. */
CUresult si_map_memory(si_block *block, int device, size_t size) {
  CUresult result = charge(device, up(size, 2 * ALIGNMENT));
  if (result != CUDA_SUCCESS) return result;
  struct si_gpu *of = &si.devices[device];
  size_t map_size = up(size + ALIGNMENT, PAGE);
  int fd = file_of(device);
  char *map = mmap(NULL, map_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, of->end);
  if (map == MAP_FAILED) {
    of->used -= up(size, 2 * ALIGNMENT);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memset(map, POISON, map_size < PAGE ? map_size : PAGE);
  block->at = (uintptr_t)map + ALIGNMENT;
  block->size = size;
  block->device = device;
  block->map = map;
  block->map_size = map_size;
  block->offset = of->end;
  of->end += (off_t)map_size;
  return CUDA_SUCCESS;
}

void si_unmap_memory(si_block *block) {
  struct si_gpu *of = &si.devices[block->device];
  of->used -= up(block->size, 2 * ALIGNMENT);
  fallocate(of->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, block->offset,
            (off_t)block->map_size);
  munmap(block->map, block->map_size);
}

static CUresult back_by_host(si_block *block, size_t size) {
  size_t map_size = up(size, PAGE);
  char *map = mmap(NULL, map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  memset(map, POISON, PAGE);
  block->at = (uintptr_t)map;
  block->size = size;
  block->map = map;
  block->map_size = map_size;
  return CUDA_SUCCESS;
}

static CUresult make(si_kind kind, size_t size, unsigned flags, uintptr_t *out) {
  CUcontext context;
  CUresult result = si_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  si_block block = { .kind = kind, .flags = flags, .context = context, .device = context->device },
           *made;
  result = kind == DEVICE ? si_map_memory(&block, context->device, size)
                          : back_by_host(&block, size);
  if (result == CUDA_SUCCESS) result = si_block_new(&block, &made);
  if (result == CUDA_SUCCESS) *out = made->at;
  return result;
}

API cuMemAlloc_v2(CUdeviceptr *out, size_t size) {
  ENTER();
  uintptr_t at;
  CUresult result = out ? make(DEVICE, size, 0, &at) : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) *out = at;
  LEAVE(result);
}

API cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags) {
  ENTER();
  uintptr_t at;
  if (!out || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  if (si.lacks_managed) LEAVE(CUDA_ERROR_NOT_SUPPORTED);
  CUresult result = make(MANAGED, size, flags, &at);
  if (result == CUDA_SUCCESS) *out = at;
  LEAVE(result);
}

API cuMemHostAlloc(void **out, size_t size, unsigned flags) {
  ENTER();
  uintptr_t at;
  if (!out || flags > 7) LEAVE(CUDA_ERROR_INVALID_VALUE);
  CUresult result = make(HOST, size, flags, &at);
  if (result == CUDA_SUCCESS) *out = (void *)at;
  LEAVE(result);
}

API cuMemAllocHost_v2(void **out, size_t size) { return cuMemHostAlloc(out, size, 0); }

/* ---- Frees: they need no current context, and wait for the device ---- */

static void take_back(si_block *block) {
  if (block->kind == DEVICE) si_unmap_memory(block);
  else if (block->map) {
    munmap(block->map, block->map_size);
  }
  si_block_remove(block);
}

static bool went_with_context(uintptr_t at) {
  for (unsigned i = 0; i < ENDED_WITH_CONTEXT && i < ended_with_context_count; i++) {
    if (ended_with_context[i] == at) return true;
  }
  return false;
}

/* Finds the block that a free function is called for, and waits for the device. The block begins at
 * `at` and is of one of `kinds`; anything else is a violation. */
static CUresult block_to_free(const char *function, uintptr_t at, unsigned kinds, si_block **out) {
  si_block *block = si_find(at, 1);
  if (!block && went_with_context(at)) return CUDA_ERROR_INVALID_VALUE;
  if (!block || block->freed) {
    si_violate("%s of %#lx, which is not allocated", function, (unsigned long)at);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (block->at != at || !(kinds & (1u << block->kind))) {
    si_violate("%s of %#lx, %s", function, (unsigned long)at,
               block->at != at ? "which is inside a block" : "which is memory of another kind");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (si_has_pending(at, block->size, true)) {
    si.late_frees++;
    if (si.strict || block->kind == REGISTERED) {
      si_violate("%s of %#lx, which pending work uses", function, (unsigned long)at);
    }
  }
  if (si.devices[block->device].broken) return si.devices[block->device].broken;
  si_drain(NULL, block->device);
  *out = block;
  return CUDA_SUCCESS;
}

API cuMemFree_v2(CUdeviceptr at) {
  ENTER();
  if (!at) LEAVE(CUDA_SUCCESS);
  si_block *block;
  CUresult result = block_to_free("cuMemFree", at, 1u << DEVICE | 1u << MANAGED | 1u << POOLED,
                                  &block);
  if (result != CUDA_SUCCESS) LEAVE(result);
  if (block->kind == POOLED) si_pool_free(block);
  else take_back(block);
  LEAVE(CUDA_SUCCESS);
}

API cuMemFreeHost(void *at) {
  ENTER();
  if (!at) LEAVE(CUDA_SUCCESS);
  si_block *block;
  CUresult result = block_to_free("cuMemFreeHost", (uintptr_t)at, 1u << HOST, &block);
  if (result == CUDA_SUCCESS) take_back(block);
  LEAVE(result);
}

/* ---- Registered memory ---- */

static bool is_readable(uintptr_t at) {
  char byte;
  struct iovec here = { &byte, 1 }, there = { (void *)at, 1 };
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

/* Returns whether a range is mapped, and readable at both ends. */
static bool is_mapped(uintptr_t at, size_t size) {
  uintptr_t low = at / PAGE * PAGE;
  return msync((void *)low, up(at + size - low, PAGE), MS_ASYNC) == 0 && is_readable(at) &&
         is_readable(at + size - 1);
}

static void look_at_registered(const void *node, VISIT visit, int depth) {
  const si_block *block = *(si_block *const *)node;
  (void)depth;
  if (visit != preorder && visit != leaf) return;
  if (block->kind == REGISTERED && !is_mapped(block->at, block->size)) {
    si_violate("%zu bytes at %p were unmapped while they were registered", block->size,
               (void *)block->at);
  }
}

void si_memory_end(void) { twalk(tree, look_at_registered); }

static void add_registered(const void *node, VISIT visit, int depth) {
  const si_block *block = *(si_block *const *)node;
  (void)depth;
  if ((visit == preorder || visit == leaf) && block->kind == REGISTERED) registered += block->size;
}

CONTROL size_t standin_registered(void) {
  pthread_mutex_lock(&si_lock);
  registered = 0;
  twalk(tree, add_registered);
  size_t bytes = registered;
  pthread_mutex_unlock(&si_lock);
  return bytes;
}

/* Returns whether a registration of `size` bytes would exceed the limit on locked memory. */
static bool is_locked_out(size_t size) {
  registered = 0;
  twalk(tree, add_registered);
  return si.lockable && registered + size > si.lockable;
}

API cuMemHostRegister_v2(void *at, size_t size, unsigned flags) {
  ENTER();
  CUcontext context;
  CUresult result = si_current(&context);
  if (result != CUDA_SUCCESS) LEAVE(result);
  if (!at || size == 0 || flags > 15) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (!is_mapped((uintptr_t)at, size)) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (is_locked_out(size)) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
  si_block block = { .at = (uintptr_t)at,
                     .size = size,
                     .kind = REGISTERED,
                     .flags = flags,
                     .context = context,
                     .device = context->device },
           *made;
  result = si_block_new(&block, &made);
  LEAVE(result == CUDA_ERROR_ALREADY_MAPPED ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : result);
}

API cuMemHostUnregister(void *at) {
  ENTER();
  si_block *block = si_find((uintptr_t)at, 1);
  if (!block && went_with_context((uintptr_t)at)) LEAVE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  if (!block || block->kind != REGISTERED || block->at != (uintptr_t)at) {
    si_violate("cuMemHostUnregister of %p, where nothing is registered", at);
    LEAVE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  }
  if (!is_mapped(block->at, block->size)) {
    si_violate("%zu bytes at %p were unmapped while they were registered", block->size, at);
  }
  CUresult result = block_to_free("cuMemHostUnregister", block->at, 1u << REGISTERED, &block);
  if (result == CUDA_SUCCESS) take_back(block);
  LEAVE(result);
}

API cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *at, unsigned flags) {
  ENTER();
  CUcontext context;
  CUresult result = si_current(&context);
  if (result != CUDA_SUCCESS) LEAVE(result);
  si_block *block = si_find((uintptr_t)at, 1);
  if (!out || flags || !block) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (block->kind != HOST && block->kind != REGISTERED) LEAVE(CUDA_ERROR_INVALID_VALUE);
  *out = (uintptr_t)at;
  LEAVE(CUDA_SUCCESS);
}

API cuMemHostGetFlags(unsigned *out, void *at) {
  ENTER();
  si_block *block = si_find((uintptr_t)at, 1);
  if (!out || !block || block->kind != HOST) LEAVE(CUDA_ERROR_INVALID_VALUE);
  *out = block->flags;
  LEAVE(CUDA_SUCCESS);
}

/* ---- Attributes of memory ---- */

API cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  ENTER();
  CUcontext context;
  CUresult result = si_current(&context);
  if (!free_bytes || !total) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (result != CUDA_SUCCESS) LEAVE(result);
  const struct si_gpu *of = &si.devices[context->device];
  *total = of->total;
  *free_bytes = of->used < of->total ? of->total - of->used : 0;
  LEAVE(CUDA_SUCCESS);
}

API cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr at) {
  ENTER();
  si_block *block = si_find(at, 1);
  if (!block || block->freed) LEAVE(CUDA_ERROR_NOT_FOUND);
  if (base) *base = block->at;
  if (size) *size = block->size;
  LEAVE(CUDA_SUCCESS);
}

static bool is_of_host(const si_block *block) {
  return block->kind == HOST || block->kind == REGISTERED;
}

static CUresult attribute_of(void *out, int attribute, uintptr_t at, const si_block *block) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)out = block->context; break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *(unsigned *)out = is_of_host(block) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)out = at; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!is_of_host(block) && block->kind != MANAGED) return CUDA_ERROR_INVALID_VALUE;
      *(void **)out = (void *)at;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)out = block->serial; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(bool *)out = block->kind == MANAGED; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)out = block->device; break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *(bool *)out = block->kind == DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)out = block->at; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)out = block->size; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(bool *)out = true; break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *(CUmemoryPool *)out = block->pool; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

API cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr at) {
  ENTER();
  si_block *block = si_find(at, 1);
  if (!out || !block || block->freed) LEAVE(CUDA_ERROR_INVALID_VALUE);
  LEAVE(attribute_of(out, (int)attribute, at, block));
}

static size_t attribute_size(int attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return sizeof(int);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED: return sizeof(bool);
    default: return sizeof(void *);
  }
}

/* If the driver does not know the address, every attribute is zero, the device is -2, and there is
 * no error. */
API cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **out,
                           CUdeviceptr at) {
  ENTER();
  if (!count || !attributes || !out) LEAVE(CUDA_ERROR_INVALID_VALUE);
  si_block *block = si_find(at, 1);
  for (unsigned i = 0; i < count; i++) {
    memset(out[i], 0, attribute_size((int)attributes[i]));
    if (block && !block->freed) attribute_of(out[i], (int)attributes[i], at, block);
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *(int *)out[i] = -2;
  }
  LEAVE(CUDA_SUCCESS);
}

static CUresult advise(CUdeviceptr at, size_t size, int advice) {
  si_block *block = si_find(at, 1);
  if (!block || block->kind != MANAGED || at + size > block->at + block->size || size == 0 ||
      advice < 1 || advice > 6) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

API cuMemAdvise(CUdeviceptr at, size_t size, CUmem_advise advice, CUdevice device) {
  ENTER();
  if (device != CU_DEVICE_CPU && si_of_device(device)) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  LEAVE(advise(at, size, (int)advice));
}

API cuMemAdvise_v2(CUdeviceptr at, size_t size, CUmem_advise advice, CUmemLocation location) {
  ENTER();
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && si_of_device(location.id)) {
    LEAVE(CUDA_ERROR_INVALID_DEVICE);
  }
  LEAVE(advise(at, size, (int)advice));
}

API cuMemPrefetchAsync(CUdeviceptr at, size_t size, CUdevice device, CUstream handle) {
  ENTER();
  CUstream stream;
  CUresult result = si_stream_of(handle, &stream);
  if (device != CU_DEVICE_CPU && si_of_device(device)) LEAVE(CUDA_ERROR_INVALID_DEVICE);
  LEAVE(result == CUDA_SUCCESS ? advise(at, size, CU_MEM_ADVISE_SET_READ_MOSTLY) : result);
}

/* ---- The end of a context ---- */

static CUcontext ending;
static si_block *ends;

static void collect(const void *node, VISIT visit, int depth) {
  (void)depth;
  si_block *block = *(struct si_block *const *)node;
  if (visit != postorder && visit != leaf) return;
  if (ending && block->context != ending) return;
  block->next = ends;
  ends = block;
}

/* Frees the blocks of a context, or all blocks if it is NULL. Memory of pools belongs to no
 * context. */
static void end_blocks(CUcontext context) {
  ending = context;
  ends = NULL;
  twalk(tree, collect);
  while (ends) {
    si_block *block = ends;
    ends = block->next;
    ended_with_context[ended_with_context_count++ % ENDED_WITH_CONTEXT] = block->at;
    take_back(block);
  }
}

void si_blocks_end(CUcontext context) { end_blocks(context); }

void si_memory_reset(void) {
  end_blocks(NULL);
  ended_with_context_count = 0;
}
