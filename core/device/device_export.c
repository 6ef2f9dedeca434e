/* device_export.c - blocks of mapped memory that other processes may map: see device_export.h. */
#include "device/device_export.h"

#include <inttypes.h>

#include "device/device_pool.h"
#include "os/error.h"

static uint32_t make_key(void) {
  uint32_t key;
  do key = (uint32_t)lm_sys_random();
  while (!key);
  return key;
}

bool lm_device_export_key(const void *p, lm_device_export *out, loam_status *status) {
  lm_extent_range *r;
  lm_gpu_info info;
  lm_device_pool *pool = lm_device_pool_lock_of((uintptr_t)p, &r);
  if (!pool) return false;
  lm_extent *e = lm_extent_range_find(r, (uintptr_t)p);
  bool is_mapped = r->piece && !pool->gone && e->state == LM_EXTENT_LIVE;
  if (is_mapped && !e->key) e->key = make_key();
  if (is_mapped) *out = (lm_device_export){ .base = e->at, .size = e->size, .key = e->key };
  int device = pool->device;
  lm_lock_drop(&pool->lock);
  const lm_gpu_ops *gpu = is_mapped ? lm_gpu_started() : NULL;
  if (!gpu) return false;
  *status = lm_gpu_status(gpu->info(device, &info));
  if (*status == LOAM_OK && !info.has_exports)
    *status = lm_error(LOAM_EUNSUPPORTED,
                       "%p: the driver of device %d cannot share memory that is mapped to "
                       "addresses; what loam.device { pool = \"chunks\" } gives, it can",
                       p, device);
  return true;
}

/* ---- Who comes with a key */

/* The cache, locked, and the block; NULL: none has the key. */
static lm_device_pool *find(uintptr_t base, uint32_t key, lm_extent **out) {
  lm_extent_range *r;
  lm_device_pool *pool = lm_device_pool_lock_of(base, &r);
  if (!pool) return NULL;
  *out = lm_extent_range_start(r, base);
  if (*out && (*out)->state == LM_EXTENT_LIVE && r->piece && key && (*out)->key == key) return pool;
  lm_lock_drop(&pool->lock);
  return NULL;
}

static uint64_t first_of(const lm_extent_range *r, uintptr_t at) {
  return r->base + (at - r->base) / r->pool->granularity * r->pool->granularity;
}

/* The piece that an address is in. Under `slow`. */
static lm_device_piece *piece_of(const lm_extent_range *r, uintptr_t at, uint64_t *begin) {
  for (*begin = first_of(r, at);; *begin -= r->pool->granularity) {
    lm_device_piece *piece = &r->piece[(*begin - r->base) / r->pool->granularity];
    if (piece->size) return piece;
  }
}

/* The block is not ended meanwhile as far as its pieces go: that takes `slow`. */
static loam_status open_slow(const lm_gpu_ops *gpu, lm_extent *e, uint64_t at,
                             lm_device_export_piece *out, int *fd) {
  uint64_t last;
  const lm_device_piece *end = piece_of(e->range, e->at + e->size - 1, &last);
  (void)piece_of(e->range, e->at, &out->begin);
  out->end = last + end->size;
  if (at < out->begin || at >= out->end)
    return lm_error(LOAM_EINVAL, "0x%" PRIx64 " is not of the block", at);
  const lm_device_piece *piece = piece_of(e->range, at, &out->at);
  out->size = piece->size;
  return lm_gpu_status(gpu->map_export(piece->handle, fd));
}

static loam_status gone(void) {
  return lm_error(LOAM_EBADPTR, "the block is not there any more: its owner has freed it");
}

static loam_status open_in(lm_device_pool *pool, const lm_gpu_ops *gpu, uintptr_t base,
                           uint32_t key, uint64_t at, lm_device_export_piece *out, int *fd) {
  lm_extent *e;
  if (!find(base, key, &e)) return gone();
  lm_extent block = *e; /* a live one; its range and pieces stay as long as `slow` is held */
  lm_lock_drop(&pool->lock);
  return open_slow(gpu, &block, at, out, fd);
}

loam_status lm_device_export_open(uint64_t base, uint32_t key, uint64_t at,
                                  lm_device_export_piece *out, int *fd) {
  lm_extent *e;
  const lm_gpu_ops *gpu = lm_gpu_started();
  lm_device_pool *pool = gpu ? find(base, key, &e) : NULL;
  if (!pool) return gone();
  lm_lock_drop(&pool->lock);
  if (!lm_gpu_begin()) return lm_error(LOAM_ESTATE, "the block's owner is about to end");
  lm_lock_take(&pool->slow);
  loam_status status = open_in(pool, gpu, base, key, at, out, fd);
  lm_lock_drop(&pool->slow);
  lm_gpu_end();
  return status;
}
