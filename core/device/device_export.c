/* device_export.c - makes descriptors of device memory for other processes: see device_export.h. */
#include "device/device_export.h"

#include <inttypes.h>

#include "device/device_pool_parts.h"
#include "os/error.h"

bool lm_device_export_piece_is_valid(const lm_device_export_piece *p) {
  return p->begin <= p->at && p->size > 0 && p->at < p->end && p->size <= p->end - p->at;
}

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

/* ---- Requests of other processes. Their values are checked and not asserted. */

/* A block, and an address in it. */
typedef struct place {
  uintptr_t base;
  uint32_t key;
  uint64_t at;
} place;

/* Returns the pool of the live block that begins at p->base and has the key, locked, and the block
 * in *out. NULL: no such block. */
static lm_device_pool *find(const place *p, lm_extent **out) {
  lm_extent_range *r;
  lm_device_pool *pool = lm_device_pool_lock_of(p->base, &r);
  if (!pool) return NULL;
  *out = lm_extent_range_start(r, p->base);
  bool has_key = *out && (*out)->state == LM_EXTENT_LIVE && p->key && (*out)->key == p->key;
  if (has_key && r->piece) return pool;
  lm_lock_drop(&pool->lock);
  return NULL;
}

/* Returns the start of the device's granule that an address is in. */
static uint64_t first_of(const lm_extent_range *r, uintptr_t at) {
  return r->base + (at - r->base) / r->pool->granularity * r->pool->granularity;
}

/* Returns the piece that an address is in, and its start. `slow` is held. */
static lm_device_piece *piece_of(const lm_extent_range *r, uintptr_t at, uint64_t *begin) {
  lm_assert(r->piece && at - r->base < r->size && lm_lock_is_held(&r->pool->slow));
  for (*begin = first_of(r, at);; *begin -= r->pool->granularity) {
    lm_device_piece *piece = &r->piece[(*begin - r->base) / r->pool->granularity];
    if (piece->size) return piece;
    lm_assert(*begin > r->base);
  }
}

/* Fills in the piece at an address of a block. `slow` is held, so no piece is unmapped even if the
 * host frees the block now. */
static loam_status open_slow(const lm_gpu_ops *gpu, lm_extent *e, uint64_t at,
                             lm_device_export_piece *out, int *fd) {
  uint64_t last;
  const lm_device_piece *end = piece_of(e->range, e->at + e->size - 1, &last);
  (void)piece_of(e->range, e->at, &out->begin);
  out->end = last + end->size;
  if (at < out->begin || at >= out->end)
    return lm_error(LOAM_EINVAL, "0x%" PRIx64 " is not in the block at 0x%" PRIx64, at,
                    (uint64_t)e->at);
  const lm_device_piece *piece = piece_of(e->range, at, &out->at);
  out->size = piece->size;
  lm_assert(lm_device_export_piece_is_valid(out));
  return lm_gpu_status(gpu->map_export(piece->handle, fd));
}

static loam_status gone(uint64_t base) {
  return lm_error(LOAM_EBADPTR,
                  "0x%" PRIx64 ": the block is not there any more: its owner has freed it", base);
}

/* `slow` is held. */
static loam_status open_in(lm_device_pool *pool, const lm_gpu_ops *gpu, const place *p,
                           lm_device_export_piece *out, int *fd) {
  lm_extent *e;
  if (!find(p, &e)) return gone(p->base);
  lm_extent block = *e; /* a copy: its range and its pieces stay as long as `slow` is held */
  lm_lock_drop(&pool->lock);
  return open_slow(gpu, &block, p->at, out, fd);
}

loam_status lm_device_export_open(uint64_t base, uint32_t key, uint64_t at,
                                  lm_device_export_piece *out, int *fd) {
  lm_extent *e;
  place p = { .base = base, .key = key, .at = at };
  const lm_gpu_ops *gpu = lm_gpu_started();
  lm_device_pool *pool = gpu ? find(&p, &e) : NULL;
  if (!pool) return gone(base);
  lm_lock_drop(&pool->lock);
  if (!lm_gpu_begin()) return lm_error(LOAM_ESTATE, "the process that owns the block is ending");
  lm_lock_suspended section = lm_lock_take_long(&pool->slow);
  loam_status status = open_in(pool, gpu, &p, out, fd);
  lm_lock_drop_long(&pool->slow, section);
  lm_gpu_end();
  return status;
}
