/* pool.c - stream-ordered allocation, from pools that keep freed memory. */
#include <stdlib.h>

#include "state.h"

/* Pools are never freed, so that the use of a destroyed pool can be detected. */
static struct CUmemPoolHandle_st **pools;
static unsigned pool_count;

static CUmemoryPool pool_new(int device, bool built_in) {
  CUmemoryPool pool = calloc(1, sizeof *pool);
  CUmemoryPool *all = realloc(pools, (pool_count + 1) * sizeof *all);
  if (!pool || !all) abort();
  pools = all;
  all[pool_count++] = pool;
  pool->live = true;
  pool->built_in = built_in;
  pool->device = device;
  return pool;
}

static CUmemoryPool default_pool(int device) {
  struct si_gpu *of = &si.devices[device];
  if (!of->pool) of->pool = pool_new(device, true);
  return of->pool;
}

static CUresult check_pool(CUmemoryPool pool) {
  for (unsigned i = 0; i < pool_count; i++) {
    if (pools[i] == pool && pool->live) return CUDA_SUCCESS;
  }
  si_violate("%p is no pool, or no longer", (void *)pool);
  return CUDA_ERROR_INVALID_VALUE;
}

/* Gives a block back to the device. The next user of its addresses need not wait for work that used
 * the block, so that work is forgotten. */
static void release(CUmemoryPool pool, si_block *block) {
  si_has_pending(block->at, block->size, true);
  pool->reserved -= block->size;
  si_unmap_memory(block);
  si_block_remove(block);
}

static void shrink(CUmemoryPool pool, uint64_t keep) {
  si_block **link = &pool->cached;
  while (*link && pool->reserved > keep) {
    si_block *block = *link;
    if (!si_is_done(&block->free_at)) {
      link = &block->next;
      continue;
    }
    *link = block->next;
    release(pool, block);
  }
}

void si_pool_shrink(int device, bool all) {
  for (unsigned i = 0; i < pool_count; i++) {
    CUmemoryPool pool = pools[i];
    if (pool->live && pool->device == device) shrink(pool, all ? 0 : pool->threshold);
  }
}

/* ---- Pools ---- */

API cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device) {
  ENTER();
  if (!out || si_of_device(device)) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (si.lacks_pools) LEAVE(CUDA_ERROR_NOT_SUPPORTED);
  *out = default_pool(device);
  LEAVE(CUDA_SUCCESS);
}

API cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device) {
  ENTER();
  if (!out || si_of_device(device)) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (si.lacks_pools) LEAVE(CUDA_ERROR_NOT_SUPPORTED);
  CUmemoryPool current = si.devices[device].current_pool;
  *out = current && current->live ? current : default_pool(device);
  LEAVE(CUDA_SUCCESS);
}

API cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  ENTER();
  CUresult result = si_of_device(device) ? CUDA_ERROR_INVALID_VALUE : check_pool(pool);
  if (result == CUDA_SUCCESS) si.devices[device].current_pool = pool;
  LEAVE(result);
}

API cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *properties) {
  ENTER();
  if (si.lacks_pools) LEAVE(CUDA_ERROR_NOT_SUPPORTED);
  if (!out || !properties || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      si_of_device(properties->location.id)) {
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  *out = pool_new(properties->location.id, false);
  si.handles++;
  LEAVE(CUDA_SUCCESS);
}

API cuMemPoolDestroy(CUmemoryPool pool) {
  ENTER();
  CUresult result = check_pool(pool);
  if (result != CUDA_SUCCESS || pool->built_in) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (pool->used)
    si_violate("a pool is destroyed with %llu bytes in use", (unsigned long long)pool->used);
  si_drain(NULL, pool->device);
  shrink(pool, 0);
  pool->live = false;
  si.handles--;
  LEAVE(CUDA_SUCCESS);
}

static uint64_t *attribute_of(CUmemoryPool pool, int attribute) {
  static uint64_t any;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return &pool->used_high;
    default: return &any;
  }
}

static bool is_flag(int attribute) { return attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD; }

API cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  ENTER();
  CUresult result = check_pool(pool);
  if (result != CUDA_SUCCESS || !value || attribute < 1 || attribute > 8) {
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  if (!is_flag((int)attribute)) *attribute_of(pool, (int)attribute) = *(uint64_t *)value;
  LEAVE(CUDA_SUCCESS);
}

API cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  ENTER();
  CUresult result = check_pool(pool);
  if (result != CUDA_SUCCESS || !value || attribute < 1 || attribute > 8) {
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  if (is_flag((int)attribute)) *(int *)value = 1;
  else *(uint64_t *)value = *attribute_of(pool, (int)attribute);
  LEAVE(CUDA_SUCCESS);
}

API cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  ENTER();
  CUresult result = check_pool(pool);
  if (result == CUDA_SUCCESS) shrink(pool, keep);
  LEAVE(result);
}

/* ---- Allocation ---- */

static bool comes_before(const si_moment *moment, CUstream stream) {
  for (int i = 0; i < SLOTS; i++) {
    if (moment->at[i] > stream->known.at[i] && moment->at[i] > si.done.at[i]) return false;
  }
  return true;
}

static si_block *take_cached(CUmemoryPool pool, size_t size, CUstream stream) {
  for (si_block **link = &pool->cached; *link; link = &(*link)->next) {
    si_block *block = *link;
    if (block->size != size || !comes_before(&block->free_at, stream)) continue;
    *link = block->next;
    block->freed = false;
    /* The pool has put the old and the new users in order, so the old ones are forgotten. */
    si_has_pending(block->at, block->size, true);
    return block;
  }
  return NULL;
}

static CUresult take_new(CUmemoryPool pool, size_t size, si_block **out) {
  si_block block = { .kind = POOLED, .pool = pool };
  CUresult result = si_map_memory(&block, pool->device, size);
  if (result == CUDA_SUCCESS) result = si_block_new(&block, out);
  if (result != CUDA_SUCCESS) return result;
  pool->reserved += size;
  if (pool->reserved_high < pool->reserved) pool->reserved_high = pool->reserved;
  return CUDA_SUCCESS;
}

static CUresult take(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream handle) {
  CUstream stream;
  CUresult result = si_stream_of(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (si.lacks_pools) return CUDA_ERROR_NOT_SUPPORTED;
  if (!pool) pool = si.devices[stream->context->device].current_pool;
  if (!pool) pool = default_pool(stream->context->device);
  result = check_pool(pool);
  if (result != CUDA_SUCCESS || !out || size == 0) return CUDA_ERROR_INVALID_VALUE;
  size = (size + 511) / 512 * 512;
  si_block *block = take_cached(pool, size, stream);
  if (!block) result = take_new(pool, size, &block);
  if (result != CUDA_SUCCESS) return result;
  pool->used += size;
  if (pool->used_high < pool->used) pool->used_high = pool->used;
  *out = block->at;
  return CUDA_SUCCESS;
}

API cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream) {
  ENTER();
  LEAVE(pool ? take(out, size, pool, stream) : CUDA_ERROR_INVALID_VALUE);
}

API cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream) {
  ENTER();
  LEAVE(take(out, size, NULL, stream));
}

static void keep(si_block *block) {
  CUmemoryPool pool = block->pool;
  pool->used -= block->size;
  block->freed = true;
  block->next = pool->cached;
  pool->cached = block;
}

void si_pool_free(si_block *block) {
  memset(&block->free_at, 0, sizeof block->free_at);
  keep(block);
  shrink(block->pool, block->pool->threshold);
}

API cuMemFreeAsync(CUdeviceptr at, CUstream handle) {
  ENTER();
  CUstream stream;
  CUresult result = si_stream_of(handle, &stream);
  if (result != CUDA_SUCCESS) LEAVE(result);
  si_block *block = si_find(at, 1);
  if (!block || block->kind != POOLED || block->freed || block->at != at) {
    si_violate("cuMemFreeAsync of %#llx, which is no live block of a pool", at);
    LEAVE(CUDA_ERROR_INVALID_VALUE);
  }
  si_work *work = si_work_new(NULL);
  work->to = at;
  work->size = block->size;
  result = si_put(stream, work);
  if (result != CUDA_SUCCESS) LEAVE(result);
  block->free_at = stream->known;
  keep(block);
  LEAVE(CUDA_SUCCESS);
}

void si_pool_reset(void) {
  for (unsigned i = 0; i < pool_count; i++) pools[i]->live = false;
}
