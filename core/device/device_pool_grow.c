/* device_pool_grow.c - a pool allocates a block by all means that a driver has.
 *
 * Fragmentation. Where memory is mapped to addresses, a pool does not grow just because its free
 * memory is not in one run. Its limit is the most memory that was live together, and a 64th more.
 * Above the limit, pieces of memory that are free elsewhere are unmapped before new memory is
 * mapped. So fragments cost time and not memory. But when more than one in 32 of the requests that
 * no front list serves make a piece move, the limit rises step by step, by up to a quarter of the
 * peak (`slack`). */
#include "device/device_pool_parts.h"
#include "device/driver_pool.h"
#include "device/manager.h"
#include "device/pinned.h"
#include "device/sleep.h"
#include "os/error.h"

#define REMAPS_FREE 512 /* so many pieces may move before the limit rises */

static lm_extent *find_and_take(lm_device_pool *pool, lm_stream_queue *q, size_t size) {
  lm_lock_take(&pool->lock);
  lm_extent *e = lm_device_pool_claim_locked(pool, q, size);
  lm_lock_drop(&pool->lock);
  return e;
}

/* Returns by how many bytes the pool would be above its limit (see the head of this file) if it
 * grew for a request; 0: it may grow. */
static size_t bytes_over_limit(lm_device_pool *pool, const lm_stream_queue *q, size_t size) {
  lm_lock_take(&pool->lock);
  size_t peak = pool->live + size > pool->peak ? pool->live + size : pool->peak;
  size_t may = peak + peak / 64 + pool->slack + 2 * LM_ZONES * pool->granularity;
  size_t has = pool->mapped + lm_device_pool_growth_locked(pool, q, size);
  lm_lock_drop(&pool->lock);
  return has > may ? has - may : 0;
}

/* Counts pieces that moved, and raises the limit if they are too many. */
static void allow_more_slack(lm_device_pool *pool, size_t pieces) {
  lm_lock_take(&pool->lock);
  pool->pieces_remapped += pieces;
  if (pool->pieces_remapped > REMAPS_FREE + pool->front_misses / 32 && pool->slack < pool->peak / 4)
    pool->slack += pool->peak / 256;
  lm_lock_drop(&pool->lock);
}

/* Before the pool grows beyond its limit: returns pieces that are free elsewhere to the driver. If
 * that is not enough, waits for the work of this stream and returns the stream's pieces. */
static void make_room(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q,
                      size_t size) {
  size_t over = lm_device_pool_maps(pool) ? bytes_over_limit(pool, q, size) : 0;
  if (!over) return;
  size_t before = pool->pieces_unmapped, given = lm_device_pool_give_back(pool, gpu, over);
  if (given < over && q->bytes && lm_device_pool_record(pool, gpu, q)) {
    lm_device_pool_poll_queue(pool, gpu, q, true);
    (void)lm_device_pool_give_back(pool, gpu, over - given);
  }
  allow_more_slack(pool, pool->pieces_unmapped - before);
}

/* Grows until the request can be served. When other threads take the free memory that the pool grew
 * beside, the pool has still grown: so this ends. */
static lm_extent *grow_and_find(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q,
                                size_t size, lm_gpu_result *result) {
  lm_extent *e;
  size_t before = lm_device_pool_mapped(pool);
  do *result = lm_device_pool_grow(pool, gpu, q, size, &e);
  while (*result == LM_GPU_OK && !e);
  lm_device_pool_learn(pool, before);
  return e;
}

/* Returns whether this thread may wait for the device. It must not wait in a call on a stream that
 * is captured for a graph: that work does not run before the capture ends. */
static bool may_wait(const lm_device_pool *pool, const lm_gpu_ops *gpu, const lm_stream_queue *q) {
  if (gpu->may_record(pool->device, q->ref.stream)) return true;
  lm_error(LOAM_ENOMEM, "device %d: no memory left, and stream %p is captured for a graph",
           pool->device, q->ref.stream);
  return false;
}

/* Takes an extent for a request by all means, in the order that lm_device_pool_take_slow names.
 * *is_short: the driver has no memory left. */
static lm_extent *supply(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q,
                         size_t size, bool *is_short) {
  lm_gpu_result result;
  lm_assert(lm_lock_is_held(&pool->slow));
  lm_extent *e = find_and_take(pool, q, size);
  if (e) return e;
  lm_device_pool_poll_queues(pool, gpu, false);
  if ((e = find_and_take(pool, q, size))) return e;
  lm_device_pool_request_events(pool, gpu, q);
  make_room(pool, gpu, q, size);
  if ((e = find_and_take(pool, q, size))) return e;
  if ((e = grow_and_find(pool, gpu, q, size, &result))) return e;
  if (result == LM_GPU_GONE || result == LM_GPU_BROKEN) lm_device_pool_forget(pool);
  if (result != LM_GPU_NO_MEMORY) return NULL;
  lm_device_pool_poll_queues(pool, gpu, true);
  if ((e = find_and_take(pool, q, size))) return e;
  if (!may_wait(pool, gpu, q) || !lm_device_pool_synchronize(pool, gpu)) return NULL;
  if ((e = find_and_take(pool, q, size))) return e;
  bool more = lm_device_pool_give_back(pool, gpu, SIZE_MAX) + lm_manager_flush(pool->device) +
              lm_driver_pool_make_room(pool->device);
  e = more ? grow_and_find(pool, gpu, q, size, &result) : NULL;
  *is_short = !e && result == LM_GPU_NO_MEMORY;
  return e;
}

/* Takes an extent for a request; *is_short: the driver has no memory left. */
static lm_extent *supply_once(lm_device_pool *pool, const lm_gpu_ops *gpu, size_t size,
                              lm_stream_ref ref, bool *is_short) {
  lm_extent *e = NULL;
  lm_lock_suspended section = lm_lock_take_long(&pool->slow);
  if (lm_manager_is_custom(LM_MANAGER_DEVICE)) lm_device_pool_end_mapping(pool);
  lm_lock_take(&pool->lock);
  lm_stream_queue *q = lm_device_pool_queue_locked(pool, ref);
  lm_lock_drop(&pool->lock);
  *is_short = false;
  lm_device_pool_find_context(pool, gpu, q);
  if (q == &pool->unknown)
    lm_error(LOAM_ENOMEM, "device %d: no memory to note stream %p", pool->device, ref.stream);
  else e = supply(pool, gpu, q, size, is_short);
  lm_lock_drop_long(&pool->slow, section);
  return e;
}

/* Returns the free memory of the device's other pool to the driver, and memory of freed blocks that
 * was kept (sleep.h). Returns whether there was any. */
static bool trim_other(const lm_device_pool *pool, const lm_gpu_ops *gpu) {
  size_t bytes = lm_sleep_trim(pool->device);
  lm_device_pool *other = lm_device_pool_next(NULL, pool->device);
  for (; other; other = lm_device_pool_next(other, pool->device)) {
    if (other == pool || other->pinned.is_pinned) continue;
    lm_lock_suspended section = lm_lock_take_long(&other->slow);
    bytes += lm_device_pool_trim_one(other, gpu);
    lm_lock_drop_long(&other->slow, section);
  }
  return bytes + lm_manager_flush(pool->device);
}

/* Returns the free memory of other pools of this kind to the driver. Returns whether there was
 * any. */
static bool make_room_elsewhere(const lm_device_pool *pool, const lm_gpu_ops *gpu) {
  return pool->pinned.is_pinned ? lm_pinned_make_room() : trim_other(pool, gpu);
}

void *lm_device_pool_take_slow(lm_device_pool *pool, size_t size, lm_stream_ref ref) {
  const lm_gpu_ops *gpu = lm_gpu();
  bool is_short;
  if (!gpu) return lm_error_null("%s", lm_gpu_why());
  if (!lm_manager(pool->device)) return NULL;
  size = lm_device_pool_round(size);
  lm_extent *e = supply_once(pool, gpu, size, ref, &is_short);
  if (!e && is_short && make_room_elsewhere(pool, gpu))
    e = supply_once(pool, gpu, size, ref, &is_short);
  lm_verify(lm_device_pool_is_valid());
  return e ? (void *)e->at : NULL;
}
