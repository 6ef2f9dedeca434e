/* device_pool_trim.c - a pool returns free memory to the driver: when the host trims it, when the
 * pool is at its limit, and when the memory is idle. */
#include "device/device_pool_parts.h"
#include "device/driver_pool.h"
#include "device/manager.h"
#include "os/decay.h"

/* Returns the size of the first run of whole pieces in a free extent, and its start in *at. The run
 * has one piece at least, and further ones up to `most` bytes in all. 0: no whole piece is
 * inside. */
static size_t whole_pieces(const lm_device_pool *pool, const lm_extent *e, size_t most,
                           uintptr_t *at) {
  uintptr_t end = e->at + e->size, from = e->range->base;
  from += lm_align_up(e->at - from, pool->granularity);
  while (from < end && !lm_device_pool_piece_at(e->range, from)->size) from += pool->granularity;
  size_t size = 0;
  *at = from;
  while (from + size < end) {
    size_t piece = lm_device_pool_piece_at(e->range, from + size)->size;
    if (!piece || from + size + piece > end || (size && size + piece > most)) break;
    size += piece;
  }
  return size;
}

/* Takes a common extent, or a part of one, that can be returned to the driver: whole pieces, or a
 * whole range. It becomes BUSY. NULL: there is none of at most `most` bytes (or one piece). */
static lm_extent *take_idle_locked(lm_device_pool *pool, size_t most) {
  for (int zone = LM_ZONES; zone-- > 0;)
    for (unsigned list = LM_EXTENT_LISTS; list-- > 0;)
      for (lm_extent *e = pool->common[zone].head[list]; e; e = e->next) {
        uintptr_t at = e->at;
        size_t size = e->size;
        if (e->range->piece) size = whole_pieces(pool, e, most, &at);
        else if (size != e->range->size || size > most) size = 0;
        if (!size) continue;
        lm_extent *part = lm_device_pool_cut_locked(pool, e, at, size);
        if (part) part->state = LM_EXTENT_BUSY;
        return part;
      }
  return NULL;
}

static void give_back_extent(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_extent *e) {
  uintptr_t at = e->at;
  size_t size = e->size;
  if (lm_device_pool_return(pool, gpu, e)) lm_device_pool_free_chunk(pool, (void *)at, size);
}

size_t lm_device_pool_give_back(lm_device_pool *pool, const lm_gpu_ops *gpu, size_t bytes) {
  size_t given = 0;
  while (given < bytes && lm_device_pool_add_nodes(pool)) {
    lm_lock_take(&pool->lock);
    lm_extent *e = take_idle_locked(pool, bytes - given);
    lm_lock_drop(&pool->lock);
    if (!e) break;
    given += e->size;
    give_back_extent(pool, gpu, e);
  }
  return given;
}

size_t lm_device_pool_trim_one(lm_device_pool *pool, const lm_gpu_ops *gpu) {
  lm_assert(lm_lock_is_held(&pool->slow));
  lm_lock_take(&pool->lock);
  pool->peak = pool->live;
  pool->slack = pool->front_misses = pool->pieces_remapped = 0;
  lm_lock_drop(&pool->lock);
  if (!lm_device_pool_synchronize(pool, gpu)) return 0;
  lm_device_pool_poll_queues(pool, gpu, false);
  lm_device_pool_end_queues(pool);
  return lm_device_pool_give_back(pool, gpu, SIZE_MAX);
}

static size_t trim_all(int device, bool is_pinned) {
  size_t bytes = 0;
  const lm_gpu_ops *gpu = lm_gpu_started();
  lm_device_pool *pool = gpu ? lm_device_pool_next(NULL, device) : NULL;
  for (; pool; pool = lm_device_pool_next(pool, device)) {
    if (is_pinned && !pool->pinned.is_pinned) continue;
    lm_lock_suspended section = lm_lock_take_long(&pool->slow);
    bytes += lm_device_pool_trim_one(pool, gpu);
    lm_lock_drop_long(&pool->slow, section);
  }
  lm_verify(lm_device_pool_is_valid());
  return bytes;
}

size_t lm_device_pool_trim(int device) { return trim_all(device, false); }
size_t lm_device_pool_trim_pinned(void) { return trim_all(-1, true); }

/* A pool may defer the frees of memory that it gives back, so the flush comes after the trim. */
size_t lm_device_pool_make_room(int device) {
  size_t bytes = lm_device_pool_trim(device);
  bytes += lm_manager_flush(device);
  return bytes + lm_driver_pool_make_room(device);
}

/* ---- Idle memory */

static _Atomic size_t kept; /* bytes that each pool keeps; relaxed: a setting that orders nothing */

void loam_device_keep(size_t bytes) {
  atomic_store_explicit(&kept, bytes, memory_order_relaxed);
  lm_decay_stir();
}

size_t lm_device_pool_keep_bytes(void) { return atomic_load_explicit(&kept, memory_order_relaxed); }

/* Returns the bytes that were free throughout the last two intervals, and ends an interval. Lowers
 * the peak to the memory that was used. *more: a later tick may find more. */
static size_t idle_bytes(lm_device_pool *pool, bool *more) {
  size_t keeps = lm_device_pool_keep_bytes();
  lm_lock_take(&pool->lock);
  size_t used = pool->recent_peak > pool->previous_peak ? pool->recent_peak : pool->previous_peak;
  *more = pool->previous_peak > pool->live || pool->recent_peak > pool->live;
  pool->previous_peak = pool->recent_peak;
  pool->recent_peak = pool->live;
  if (used < keeps) used = keeps;
  if (pool->peak > used) pool->peak = used > pool->live ? used : pool->live;
  if (pool->learned > used) pool->learned = used;
  size_t idle = pool->mapped > used ? pool->mapped - used : 0;
  lm_lock_drop(&pool->lock);
  return idle;
}

/* Returns one extent of about `most` bytes to the driver; returns its size, 0 if there is none. An
 * allocation of a manager is freed without a lock, because the driver may wait. */
static size_t give_back_one(lm_device_pool *pool, const lm_gpu_ops *gpu, size_t most) {
  lm_lock_suspended section = lm_lock_take_long(&pool->slow);
  lm_extent *e = NULL;
  if (lm_device_pool_add_nodes(pool)) {
    lm_lock_take(&pool->lock);
    e = take_idle_locked(pool, most);
    lm_lock_drop(&pool->lock);
  }
  uintptr_t at = e ? e->at : 0;
  size_t size = e ? e->size : 0;
  bool is_chunk = e && lm_device_pool_return(pool, gpu, e);
  lm_lock_drop_long(&pool->slow, section);
  if (is_chunk) lm_device_pool_free_chunk(pool, (void *)at, size);
  return size;
}

/* A tick for one pool. Returns whether there is something to do at a later tick. */
static bool decay(lm_device_pool *pool, const lm_gpu_ops *gpu) {
  bool more;
  size_t given = 0, idle = idle_bytes(pool, &more);
  if (!idle && !lm_device_pool_has_waiting(pool)) return more;
  lm_lock_suspended section = lm_lock_take_long(&pool->slow);
  more |= lm_device_pool_find_ended(pool, gpu);
  lm_device_pool_end_queues(pool);
  lm_lock_drop_long(&pool->slow, section);
  while (given < idle) {
    size_t size = give_back_one(pool, gpu, idle - given);
    if (!size) break;
    given += size;
  }
  return more || given;
}

/* ---- In frees */

/* A driver needs a millisecond for an allocation. So a pool keeps memory that it needs again. */
#define SOON_NS 1000000000
/* Between two attempts, if work that is under way uses the memory. */
#define PAUSE_NS 10000000
/* After an attempt that returned nothing, this part of the pool has to become free before the next
 * one, or all of it. An attempt goes through all free extents. */
enum { PART = 16 };
enum { KEPT = 4 * LM_MIB };

size_t lm_device_pool_mapped(lm_device_pool *pool) {
  lm_lock_take(&pool->lock);
  size_t bytes = pool->mapped;
  lm_lock_drop(&pool->lock);
  return bytes;
}

void lm_device_pool_learn(lm_device_pool *pool, size_t before) {
  lm_lock_take(&pool->lock);
  bool is_soon = pool->shed_ns && lm_sys_clock_ns() - pool->shed_ns < SOON_NS;
  if (is_soon && pool->mapped > before) pool->learned += pool->mapped - before;
  lm_lock_drop(&pool->lock);
}

/* Returns how many bytes the pool is to return to the driver now. The pool then keeps half of the
 * free memory that it may keep, so that few frees come here. */
static size_t excess_of(lm_device_pool *pool) {
  size_t keep = lm_device_pool_keep_bytes();
  lm_lock_take(&pool->lock);
  size_t free = pool->mapped > pool->live ? pool->mapped - pool->live : 0;
  if (keep < pool->live / 8) keep = pool->live / 8;
  if (keep < KEPT) keep = KEPT;
  size_t least = keep / 2 > lm_device_pool_keep_bytes() ? keep / 2 : lm_device_pool_keep_bytes();
  size_t learned = pool->learned;
  bool is_early = pool->live && pool->refused_free &&
                  free < pool->refused_free + pool->mapped / PART;
  bool is_paused = is_early || lm_sys_clock_ns() < pool->pause_ns;
  lm_lock_drop(&pool->lock);
  return !is_paused && free > keep && free - keep > learned ? free - least - learned : 0;
}

static void shed(lm_device_pool *pool, const lm_gpu_ops *gpu) {
  size_t given = 0, size, excess = excess_of(pool);
  if (!excess) return;
  lm_lock_suspended section = lm_lock_take_long(&pool->slow);
  bool is_pending = lm_device_pool_find_ended(pool, gpu);
  lm_lock_drop_long(&pool->slow, section);
  while (given < excess && (size = give_back_one(pool, gpu, excess - given)) > 0) given += size;
  lm_lock_take(&pool->lock);
  pool->refused_free = given ? 0 : pool->mapped - pool->live;
  if (given) pool->shed_ns = lm_sys_clock_ns();
  if (!given && is_pending) pool->pause_ns = lm_sys_clock_ns() + PAUSE_NS;
  lm_lock_drop(&pool->lock);
}

void lm_device_pool_shed(void) {
  lm_device_pool *pool = lm_device_pool_next(NULL, -1);
  if (!pool || !lm_gpu_begin()) return;
  const lm_gpu_ops *gpu = lm_gpu_started();
  for (; gpu && pool; pool = lm_device_pool_next(pool, -1)) shed(pool, gpu);
  lm_gpu_end();
}

bool lm_device_pool_decay(void) {
  bool more = false;
  if (!lm_gpu_begin()) return false;
  lm_device_pool *pool = lm_device_pool_next(NULL, -1);
  const lm_gpu_ops *gpu = lm_gpu_started();
  for (; gpu && pool; pool = lm_device_pool_next(pool, -1)) more |= decay(pool, gpu);
  more |= lm_driver_pool_decay();
  if (!more) (void)lm_manager_flush(-1); /* frees that are deferred and too few to end otherwise */
  lm_gpu_end();
  return more;
}
