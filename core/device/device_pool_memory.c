/* device_pool_memory.c - a pool gets memory from a driver, and returns an extent to it. Either
 * memory is mapped to reserved addresses piece by piece, or the manager allocates a range. */
#include "device/device_pool_parts.h"
#include "device/manager.h"
#include "os/available.h"
#include "os/error.h"
#include "pages/metadata.h"

#define PIECE_MOST (16 * LM_MIB) /* a larger piece is seldom free as a whole */
#define CHUNK_LEAST (2 * LM_MIB) /* allocations of a manager, where nothing is mapped */
#define CHUNK_LARGE (16 * LM_MIB)
#define PIN_MOST (64 * LM_MIB) /* the longest step by which pinned memory grows */

static const unsigned shifts[LM_ZONES] = { 9, 12 }; /* of granules: 512 bytes and a page */

/* ---- Ranges */

/* Returns the struct of a range that was closed, or a new one; NULL: there is no memory. */
static lm_extent_range *new_range(lm_device_pool *pool) {
  lm_extent_range *r = pool->spare_ranges;
  if (r) pool->spare_ranges = r->next;
  else r = lm_metadata_alloc(sizeof *r);
  if (r) r->pool = pool;
  return r;
}

/* Makes a range of the pool that is one hole. NULL: there is no memory for its index. The caller
 * has reserved the addresses, and keeps them on failure. */
static lm_extent_range *open_range(lm_device_pool *pool, uintptr_t base, size_t size, int zone) {
  lm_assert(zone >= 0 && zone < LM_ZONES && size > 0);
  lm_extent *whole = NULL;
  lm_lock_take(&pool->lock);
  lm_extent_range *r = pool->spare_nodes || lm_device_pool_add_nodes_locked(pool) ? new_range(pool)
                                                                                  : NULL;
  if (r) whole = lm_device_pool_take_node_locked(pool);
  if (r && !lm_extent_range_init(r, base, size, shifts[zone], whole)) {
    lm_device_pool_free_node_locked(pool, whole);
    r->next = pool->spare_ranges;
    pool->spare_ranges = r;
    r = NULL;
  }
  if (r) {
    whole->zone = (uint8_t)zone;
    r->next = pool->ranges;
    pool->ranges = r;
  }
  lm_lock_drop(&pool->lock);
  return r;
}

/* Ends a range of which `whole` is the only extent. Its structs are kept for use again. */
static void close_range_locked(lm_device_pool *pool, lm_extent_range *r, lm_extent *whole) {
  lm_assert(lm_lock_is_held(&pool->lock) && whole == r->first && !whole->after);
  for (lm_extent_range **at = &pool->ranges; *at; at = &(*at)->next)
    if (*at == r) {
      *at = r->next;
      break;
    }
  lm_extent_range_finish(r);
  lm_device_pool_free_node_locked(pool, whole);
  r->next = pool->spare_ranges;
  pool->spare_ranges = r;
}

/* Returns how many bytes of addresses a zone reserves. Large blocks get twice the device's memory,
 * because unmapped pieces leave holes that may be too short to be used. Small blocks seldom need
 * much. */
static size_t zone_bytes(const lm_device_pool *pool, int zone) {
  size_t most = zone == LM_ZONE_SMALL ? pool->total / 4 : pool->total * 2;
  if (zone == LM_ZONE_SMALL && most > 16 * LM_GIB) most = 16 * LM_GIB;
  return lm_align_up(most, pool->granularity);
}

static bool has_range(lm_device_pool *pool, int zone) {
  for (const lm_extent_range *r = pool->ranges; r; r = r->next)
    if (r->shift == shifts[zone]) return true;
  return false;
}

/* Reserves the addresses of a zone, once. LM_GPU_UNSUPPORTED: the driver refuses.
 * LM_GPU_NO_MEMORY: the host has no memory for the index of the addresses now. */
static lm_gpu_result reserve(lm_device_pool *pool, const lm_gpu_ops *gpu, int zone) {
  lm_devptr at;
  size_t size = zone_bytes(pool, zone);
  if (has_range(pool, zone)) return LM_GPU_OK;
  if (gpu->reserve(pool->device, size, &at) != LM_GPU_OK) return LM_GPU_UNSUPPORTED;
  lm_device_piece *pieces = NULL;
  void *mapped;
  size_t bytes = size / pool->granularity * sizeof *pieces;
  if (!lm_sys_map(lm_align_up(bytes, LM_PAGE), &mapped)) pieces = mapped;
  lm_extent_range *r = pieces ? open_range(pool, (uintptr_t)at, size, zone) : NULL;
  if (!r) {
    if (pieces) lm_sys_unmap(pieces, lm_align_up(bytes, LM_PAGE));
    (void)gpu->unreserve(at, size);
    lm_error(LOAM_ENOMEM, "device %d: the host has no memory to list its addresses", pool->device);
    return LM_GPU_NO_MEMORY;
  }
  lm_lock_take(&pool->lock);
  r->piece = pieces;
  r->first->state = LM_EXTENT_BUSY;
  lm_device_pool_make_hole_locked(pool, r->first);
  lm_lock_drop(&pool->lock);
  return LM_GPU_OK;
}

/* ---- Memory that is mapped */

/* Unmaps the pieces that stand in `size` bytes from `at` on. Returns false if the driver failed for
 * one: then the state of that memory is not known, and its addresses are never used again. */
static bool unmap_pieces(const lm_gpu_ops *gpu, const lm_extent_range *r, uintptr_t at,
                         size_t size) {
  bool ok = true;
  while (size) {
    lm_device_piece *p = lm_device_pool_piece_at(r, at);
    lm_assert(p->size > 0 && p->size <= size);
    ok &= gpu->unmap(at, p->size, p->handle) == LM_GPU_OK;
    r->pool->pieces_unmapped++;
    at += p->size;
    size -= p->size;
    p->size = 0;
  }
  return ok;
}

/* Maps new memory to a whole extent, in pieces. On failure nothing stays mapped; LM_GPU_BROKEN:
 * that failed as well. */
static lm_gpu_result map_pieces(lm_device_pool *pool, const lm_gpu_ops *gpu, const lm_extent *e) {
  size_t done = 0;
  lm_assert(e->state == LM_EXTENT_BUSY && e->size % pool->granularity == 0);
  while (done < e->size) {
    size_t size = e->size - done < PIECE_MOST ? e->size - done : PIECE_MOST;
    lm_device_piece *p = lm_device_pool_piece_at(e->range, e->at + done);
    lm_gpu_result result = gpu->map(pool->device, e->at + done, size, &p->handle);
    if (result != LM_GPU_OK) {
      return unmap_pieces(gpu, e->range, e->at, done) ? result : LM_GPU_BROKEN;
    }
    p->size = size;
    done += size;
  }
  return LM_GPU_OK;
}

/* Where to map memory: `more` bytes from `at` on, in a hole. */
typedef struct place {
  lm_extent *hole; /* NULL: no place was found */
  uintptr_t at;
  size_t more;
} place;

/* Computes the smallest part of a hole that makes `size` free bytes together with the free memory
 * beside it, and puts it in *best if it is smaller than the best so far. */
static void measure_hole(const lm_device_pool *pool, const lm_stream_queue *q, lm_extent *hole,
                         size_t size, place *best) {
  size_t below = lm_device_pool_can_join(q, hole->before) ? hole->before->size : 0;
  size_t above = lm_device_pool_can_join(q, hole->after) ? hole->after->size : 0;
  if (below + hole->size + above < size) return;
  size_t beside = below >= above ? below : above;
  size_t more = beside < size ? lm_align_up(size - beside, pool->granularity) : pool->granularity;
  if (more > hole->size) more = hole->size;
  if (best->hole && best->more <= more) return;
  *best = (place){ hole, below >= above ? hole->at : hole->at + hole->size - more, more };
}

enum { HOLES = 256 }; /* a search looks at so many holes at most */

/* Returns the place where the least new memory makes a run of `size` free bytes. */
static place choose_place_locked(lm_device_pool *pool, const lm_stream_queue *q, int zone,
                                 size_t size) {
  place best = { 0 };
  lm_assert(lm_lock_is_held(&pool->lock));
  unsigned looked = 0;
  const lm_extents *holes = &pool->holes[zone];
  for (unsigned list = LM_EXTENT_LISTS; list-- > 0 && looked < HOLES;)
    for (lm_extent *e = holes->head[list]; e && looked < HOLES; e = e->next, looked++)
      measure_hole(pool, q, e, size, &best);
  return best;
}

size_t lm_device_pool_growth_locked(lm_device_pool *pool, const lm_stream_queue *q, size_t size) {
  place p = choose_place_locked(pool, q, lm_device_pool_zone(size), size);
  return p.hole ? p.more : size;
}

/* Takes a part of a hole, to map memory there for `size` bytes. NULL: no hole is long enough. */
static lm_extent *take_hole(lm_device_pool *pool, lm_stream_queue *q, int zone, size_t size) {
  lm_lock_take(&pool->lock);
  place p = choose_place_locked(pool, q, zone, size);
  lm_extent *e = p.hole ? lm_device_pool_cut_locked(pool, p.hole, p.at, p.more) : NULL;
  if (e) {
    e->state = LM_EXTENT_BUSY;
    pool->mapped += e->size;
  }
  lm_lock_drop(&pool->lock);
  return e;
}

/* Maps memory so that there are `size` free bytes in a run, and takes them. LM_GPU_OK and *out is
 * NULL: memory was mapped, but other threads took the free memory beside it. */
static lm_gpu_result grow_by_mapping(lm_device_pool *pool, const lm_gpu_ops *gpu,
                                     lm_stream_queue *q, size_t size, lm_extent **out) {
  int zone = lm_device_pool_zone(size);
  lm_extent *e = lm_device_pool_add_nodes(pool) ? take_hole(pool, q, zone, size) : NULL;
  if (!e) {
    lm_error(LOAM_ENOMEM, "device %d: no %zu bytes of address space left", pool->device, size);
    return LM_GPU_NO_MEMORY;
  }
  lm_gpu_result result = map_pieces(pool, gpu, e);
  lm_lock_take(&pool->lock);
  if (result == LM_GPU_OK) {
    if (e->size < size) lm_device_pool_adopt_locked(pool, q, e);
    else lm_device_pool_release_locked(pool, e);
    *out = lm_device_pool_claim_locked(pool, q, size);
  } else if (result != LM_GPU_BROKEN) {
    pool->mapped -= e->size;
    lm_device_pool_make_hole_locked(pool, e);
  }
  lm_lock_drop(&pool->lock);
  return result;
}

/* ---- Memory that a manager allocates */

enum { PIN_FLAGS = LM_GPU_MAPPED | LM_GPU_PORTABLE };

/* Returns whether loam maps and pins the memory of a pinned pool itself. Else the manager allocates
 * pinned memory: write-combined memory, and where the manager is not the driver. */
static bool pins_itself(const lm_device_pool *pool) {
  return !pool->pinned.write_combined && !lm_manager_is_custom(LM_MANAGER_HOST);
}

/* Binds pages to the NUMA nodes of the pool's placement, before they exist. */
static void bind(const lm_device_pool *pool, void *at, size_t size) {
  lm_placement near = { .mode = LM_BIND_PREFERRED };
  const lm_placement *placement = &pool->pinned.placement;
  if (placement->mode == LM_BIND_DEFAULT && pool->node >= 0 && lm_numa_has((unsigned)pool->node)) {
    near.nodes = (uint64_t)1 << pool->node;
    placement = &near;
  }
  if (placement->mode != LM_BIND_DEFAULT) (void)lm_numa_bind(at, size, placement);
}

/* Maps pinned host memory, if the process can take so much. Pages are bound to their node and
 * faulted in before they are pinned: the driver then pins them quickly. */
static lm_gpu_result pin(lm_device_pool *pool, size_t size, void **out) {
  const lm_placement *p = &pool->pinned.placement;
  const loam_manager *m = lm_manager(pool->device);
  if (!m) return LM_GPU_FAILED;
  if (!lm_available_has(size, p->mode == LM_BIND_BIND ? p->nodes : 0) || lm_sys_map(size, out)) {
    lm_error(LOAM_ENOMEM, "no memory for %zu bytes of pinned memory", size);
    return LM_GPU_NO_MEMORY;
  }
  bind(pool, *out, size);
  (void)lm_sys_prefault(*out, size);
  loam_status status = m->mempin(m->ctx, pool->device, *out, size, PIN_FLAGS);
  if (status == LOAM_OK) return LM_GPU_OK;
  lm_sys_unmap(*out, size);
  return status == LOAM_ENOMEM ? LM_GPU_NO_MEMORY : LM_GPU_FAILED;
}

lm_gpu_result lm_device_pool_alloc_chunk(lm_device_pool *pool, size_t size, void **out) {
  unsigned flags = PIN_FLAGS | (pool->pinned.write_combined ? LM_GPU_WRITE_COMBINED : 0u);
  if (!pool->pinned.is_pinned)
    return lm_manager_alloc(LM_MANAGER_DEVICE, pool->device, size, 0, out);
  if (!pins_itself(pool)) return lm_manager_alloc(LM_MANAGER_HOST, pool->device, size, flags, out);
  return pin(pool, size, out);
}

/* Ends the pinning of memory. Returns false if the driver refuses: it would go on to use the pages,
 * and would refuse to pin other memory at these addresses, so they stay mapped. */
static bool unpin(const lm_device_pool *pool, void *at, size_t size) {
  const loam_manager *m = lm_manager(pool->device);
  if (!m) return true;
  if (m->memunpin == lm_manager_driver.memunpin) {
    lm_gpu_result result = lm_gpu_started()->host_unregister(at);
    return result == LM_GPU_OK || result == LM_GPU_GONE || result == LM_GPU_FORKED;
  }
  m->memunpin(m->ctx, pool->device, at, size);
  return true;
}

void lm_device_pool_free_chunk(lm_device_pool *pool, void *at, size_t size) {
  if (!pool->pinned.is_pinned) {
    lm_manager_free(LM_MANAGER_DEVICE, pool->device, at, size);
  } else if (!pins_itself(pool)) {
    lm_manager_free(LM_MANAGER_HOST, pool->device, at, size);
  } else if (unpin(pool, at, size)) {
    lm_sys_unmap(at, size);
  }
}

/* Allocates a range of at least `fair` bytes and takes `asked` bytes of it. */
static lm_gpu_result grow_by_chunk(lm_device_pool *pool, lm_stream_queue *q, size_t fair,
                                   size_t asked, lm_extent **out) {
  void *at;
  size_t size = lm_align_up(fair, CHUNK_LEAST);
  lm_gpu_result result = lm_device_pool_alloc_chunk(pool, size, &at);
  if (result != LM_GPU_OK) return result;
  lm_extent_range *r = open_range(pool, (uintptr_t)at, size, lm_device_pool_zone(asked));
  if (!r) {
    lm_device_pool_free_chunk(pool, at, size);
    lm_error(LOAM_ENOMEM, "device %d: no memory for the index of a range of %zu bytes",
             pool->device, size);
    return LM_GPU_NO_MEMORY;
  }
  lm_lock_take(&pool->lock);
  r->piece = NULL;
  pool->mapped += size;
  lm_device_pool_release_locked(pool, r->first);
  *out = lm_device_pool_claim_locked(pool, q, asked);
  lm_lock_drop(&pool->lock);
  return LM_GPU_OK;
}

/* Returns by how much a pinned pool grows. Pinning takes time in proportion to the size, so the
 * step is a quarter of the pool's memory: no thread waits for much more than the program uses. */
static size_t pin_step(lm_device_pool *pool) {
  lm_lock_take(&pool->lock);
  size_t step = pool->mapped / 4;
  lm_lock_drop(&pool->lock);
  if (step < CHUNK_LEAST) step = CHUNK_LEAST;
  return step < PIN_MOST ? step : PIN_MOST;
}

static lm_gpu_result grow_by_chunks(lm_device_pool *pool, lm_stream_queue *q, size_t size,
                                    lm_extent **out) {
  size_t least = lm_device_pool_zone(size) == LM_ZONE_LARGE ? CHUNK_LARGE : CHUNK_LEAST;
  if (pool->pinned.is_pinned) least = pin_step(pool);
  size_t fair = size < least ? least : size;
  lm_gpu_result result = grow_by_chunk(pool, q, fair, size, out);
  if (result == LM_GPU_NO_MEMORY && fair > size) result = grow_by_chunk(pool, q, size, size, out);
  return result;
}

/* ---- Both */

lm_gpu_result lm_device_pool_grow(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q,
                                  size_t size, lm_extent **out) {
  lm_gpu_result result = LM_GPU_UNSUPPORTED;
  *out = NULL;
  if (lm_device_pool_maps(pool)) result = reserve(pool, gpu, lm_device_pool_zone(size));
  if (result == LM_GPU_OK) result = grow_by_mapping(pool, gpu, q, size, out);
  if (result != LM_GPU_UNSUPPORTED) return result;
  lm_device_pool_end_mapping(pool);
  return grow_by_chunks(pool, q, size, out);
}

bool lm_device_pool_return(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_extent *e) {
  lm_assert(e->state == LM_EXTENT_BUSY && pool->mapped >= e->size);
  if (e->range->piece && !unmap_pieces(gpu, e->range, e->at, e->size)) return false;
  lm_lock_take(&pool->lock);
  pool->mapped -= e->size;
  bool is_chunk = !e->range->piece;
  if (is_chunk) close_range_locked(pool, e->range, e);
  else lm_device_pool_make_hole_locked(pool, e);
  lm_lock_drop(&pool->lock);
  return is_chunk;
}
