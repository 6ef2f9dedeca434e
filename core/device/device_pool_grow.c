/* device_pool_grow.c - a pool gets memory from a driver, and returns it.
 *
 * Fragmentation. Where memory is mapped to addresses, a pool does not grow just because its free
 * memory is not in one run. Its limit is the most memory that was live together, and a 64th more.
 * Above the limit, pieces of memory that are free elsewhere are unmapped before new memory is mapped.
 * So fragments cost time and not memory. But when more than one in 32 of the requests that no front
 * list serves make a piece move, the limit rises step by step, by up to a quarter of the peak
 * (`slack`). */
#include "device/device_pool.h"
#include "device/manager.h"
#include "os/decay.h"
#include "os/error.h"
#include "os/thread.h"
#include "pages/metadata.h"

#define PIECE_MOST (16 * LM_MIB) /* a larger piece is seldom free as a whole */
#define REMAPS_FREE 512          /* so many pieces may move before the limit rises */
#define CHUNK_LEAST (2 * LM_MIB) /* allocations of a manager, where nothing is mapped */
#define CHUNK_LARGE (16 * LM_MIB)
#define PIN_MOST (64 * LM_MIB) /* the longest step by which pinned memory grows */

static const unsigned shifts[LM_ZONES] = { 9, 12 }; /* of granules: 512 bytes and a page */

/* ---- Events, with `slow` held ------------------------------------------------------------------- */

/* Takes an event of the queue's context, which is current. Returns false if the driver has none. */
static bool take_event(lm_device_pool *pool, const lm_gpu_ops *gpu, const lm_stream_queue *q,
                       lm_gpu_event *out) {
  lm_assert(lm_device_pool_is_slow_locked(pool));
  for (unsigned i = pool->idle_count; i-- > 0;) {
    if (pool->idle_events[i].context != q->context) continue;
    *out = pool->idle_events[i].event;
    pool->idle_events[i] = pool->idle_events[--pool->idle_count];
    return true;
  }
  return gpu->event_create(pool->device, out) == LM_GPU_OK;
}

/* Keeps an event for use again, or destroys it if enough are kept. */
static void keep_event(lm_device_pool *pool, const lm_gpu_ops *gpu, const lm_stream_queue *q,
                       lm_gpu_event event) {
  if (pool->idle_count == LM_COUNT(pool->idle_events)) {
    (void)gpu->event_destroy(event);
    return;
  }
  pool->idle_events[pool->idle_count].context = q->context;
  pool->idle_events[pool->idle_count++].event = event;
}

/* Ends the queue's batch by an event on its stream, which exists. Returns whether the event was
 * recorded. The queue's context is current. */
static bool record_here(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q) {
  lm_gpu_event event;
  if (q->events == LM_QUEUE_EVENTS || !gpu->may_record(pool->device, q->ref.stream)) return false;
  if (!take_event(pool, gpu, q, &event)) return false;
  /* The new batch begins before the event is recorded: memory that is freed between the two is
   * counted to the later batch, which is safe. */
  lm_lock_take(&pool->lock);
  uint64_t batch = q->batch++;
  q->wanted = false;
  lm_lock_drop(&pool->lock);
  if (gpu->event_record(event, pool->device, q->ref.stream) != LM_GPU_OK) {
    keep_event(pool, gpu, q, event);
    return false;
  }
  lm_assert(!q->events || q->event[q->events - 1].batch < batch);
  q->event[q->events].event = event;
  q->event[q->events++].batch = batch;
  return true;
}

/* Like record_here; makes the queue's context current for the call. */
static bool record(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q) {
  void *scope;
  if (gpu->push_context(pool->device, q->context, &scope) != LM_GPU_OK) return false;
  bool done = record_here(pool, gpu, q);
  gpu->pop(scope);
  return done;
}

/* Asks the driver once for the context of a queue's stream, which exists. */
static void find_stream_context(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q) {
  if (q->is_known || q == &pool->unknown) return;
  void *context = q->ref.context ? q->ref.context : gpu->context(pool->device);
  if ((uintptr_t)q->ref.stream > LM_STREAM_DEFAULT) context = gpu->stream_context(q->ref.stream);
  gpu->track_context(pool->device, context);
  lm_lock_take(&pool->lock);
  q->context = context;
  q->is_known = true;
  lm_lock_drop(&pool->lock);
}

/* The oldest `n` events of a queue have happened: makes the memory of their batches common. */
static void complete_events(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q,
                            unsigned n) {
  lm_assert(lm_device_pool_is_slow_locked(pool) && n > 0 && n <= q->events);
  uint64_t done = q->event[n - 1].batch;
  for (unsigned i = 0; i < n; i++) keep_event(pool, gpu, q, q->event[i].event);
  for (unsigned i = n; i < q->events; i++) q->event[i - n] = q->event[i];
  q->events -= n;
  lm_lock_take(&pool->lock);
  if (done > q->done) q->done = done;
  lm_device_pool_reclaim_locked(pool, q);
  lm_lock_drop(&pool->lock);
}

/* Copies up to `most` queues of the pool to `out` and returns how many. Without the lock the list
 * itself could not be walked, because its order changes with each use. Queues are never freed. */
static unsigned list_queues(lm_device_pool *pool, lm_stream_queue **out, unsigned most) {
  unsigned n = 0;
  lm_lock_take(&pool->lock);
  for (lm_stream_queue *q = pool->queues; q && n < most; q = q->next) out[n++] = q;
  lm_lock_drop(&pool->lock);
  return n;
}

enum { QUEUES = 256 }; /* a pass looks at so many queues at most */

/* Looks which events of a queue have happened; `wait`: waits for all of them first. */
static void poll_events(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q,
                        bool wait) {
  unsigned ended = 0;
  if (wait && q->events && gpu->event_wait(q->event[q->events - 1].event) == LM_GPU_OK)
    ended = q->events;
  while (ended < q->events && gpu->event_query(q->event[ended].event) == LM_GPU_OK) ended++;
  if (ended) complete_events(pool, gpu, q, ended);
}

/* Looks which events of all queues have happened; `wait`: waits for them. */
static void poll_all_events(lm_device_pool *pool, const lm_gpu_ops *gpu, bool wait) {
  lm_stream_queue *queues[QUEUES];
  unsigned n = list_queues(pool, queues, QUEUES);
  for (unsigned i = 0; i < n; i++) poll_events(pool, gpu, queues[i], wait);
}

/* Returns whether the queue belongs to a default stream, which always exists: an event can be recorded
 * on it at any time. The default stream of each thread does not count, because only its thread can
 * name it. */
static bool is_default_stream(const lm_stream_queue *q) { return !q->ref.stream && !q->thread; }

/* Requests an event from each queue other than `mine` that has memory. Default streams record it
 * now, other streams in the next call that names them. */
static void request_events(lm_device_pool *pool, const lm_gpu_ops *gpu,
                           const lm_stream_queue *mine) {
  lm_stream_queue *queues[QUEUES];
  unsigned n = list_queues(pool, queues, QUEUES);
  for (unsigned i = 0; i < n; i++) {
    lm_stream_queue *q = queues[i];
    if (q == mine) continue;
    lm_lock_take(&pool->lock);
    bool has = lm_device_pool_queue_has_locked(q);
    q->wanted = q->wanted || has;
    lm_lock_drop(&pool->lock);
    if (has && is_default_stream(q)) (void)record(pool, gpu, q);
  }
}

void lm_device_pool_poll(lm_device_pool *pool, lm_stream_ref ref) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  if (!gpu) return;
  lm_lock_take(&pool->slow);
  lm_lock_take(&pool->lock);
  lm_stream_queue *q = lm_device_pool_queue_locked(pool, ref);
  bool wanted = q->wanted && q != &pool->unknown;
  lm_lock_drop(&pool->lock);
  find_stream_context(pool, gpu, q);
  if (wanted) (void)record(pool, gpu, q);
  lm_lock_drop(&pool->slow);
  if (wanted) lm_decay_stir();
}

/* Waits until the device has done all work, and makes the memory of all queues common. Memory that is
 * freed during the wait has a later batch and does not become common. Returns false if the driver
 * failed. */
static bool synchronize(lm_device_pool *pool, const lm_gpu_ops *gpu) {
  lm_stream_queue *queues[QUEUES];
  uint64_t batch[QUEUES];
  lm_lock_take(&pool->lock);
  unsigned n = 0;
  for (lm_stream_queue *q = pool->queues; q && n < QUEUES; q = q->next) {
    batch[n] = q->batch++;
    queues[n++] = q;
  }
  uint64_t unknown = pool->unknown.batch++;
  lm_lock_drop(&pool->lock);
  if (gpu->synchronize(pool->device) != LM_GPU_OK) return false;
  lm_lock_take(&pool->lock);
  for (unsigned i = 0; i < n; i++) {
    queues[i]->done = batch[i];
    lm_device_pool_reclaim_locked(pool, queues[i]);
  }
  pool->unknown.done = unknown;
  lm_device_pool_reclaim_locked(pool, &pool->unknown);
  lm_lock_drop(&pool->lock);
  return true;
}

/* Destroys the pool's events, and forgets the contexts of its streams. */
static void forget_contexts(lm_device_pool *pool, const lm_gpu_ops *gpu) {
  poll_all_events(pool, gpu, false);
  while (pool->idle_count) (void)gpu->event_destroy(pool->idle_events[--pool->idle_count].event);
  lm_lock_take(&pool->lock);
  for (lm_stream_queue *q = pool->queues; q; q = q->next)
    q->is_known = lm_device_pool_is_host_queue(q);
  lm_lock_drop(&pool->lock);
}

void lm_device_pool_detach(int device) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  lm_device_pool *pool = gpu ? lm_device_pool_next(NULL, device) : NULL;
  for (; pool; pool = lm_device_pool_next(pool, device)) {
    lm_lock_take(&pool->slow);
    forget_contexts(pool, gpu);
    lm_lock_drop(&pool->slow);
  }
  if (gpu) gpu->untrack_contexts(device);
}

/* ---- Ranges --------------------------------------------------------------------------------- */

/* Returns the struct of a range that was closed, or a new one; NULL: there is no memory. */
static lm_extent_range *new_range(lm_device_pool *pool) {
  lm_extent_range *r = pool->spare_ranges;
  if (r) pool->spare_ranges = r->next;
  else r = lm_metadata_alloc(sizeof *r);
  if (r) r->pool = pool;
  return r;
}

/* Makes a range of the pool that is one hole. NULL: there is no memory for its index. The caller has
 * reserved the addresses, and keeps them on failure. */
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

/* Reserves the addresses of a zone, once. Returns false if the driver refuses. */
static bool reserve(lm_device_pool *pool, const lm_gpu_ops *gpu, int zone) {
  lm_devptr at;
  size_t size = zone_bytes(pool, zone);
  if (has_range(pool, zone)) return true;
  if (gpu->reserve(pool->device, size, &at) != LM_GPU_OK) return false;
  lm_device_piece *pieces = NULL;
  void *mapped;
  size_t bytes = size / pool->granularity * sizeof *pieces;
  if (!lm_sys_map(lm_align_up(bytes, LM_PAGE), &mapped)) pieces = mapped;
  lm_extent_range *r = pieces ? open_range(pool, (uintptr_t)at, size, zone) : NULL;
  if (!r) {
    if (pieces) lm_sys_unmap(pieces, lm_align_up(bytes, LM_PAGE));
    (void)gpu->unreserve(at, size);
    return false;
  }
  lm_lock_take(&pool->lock);
  r->piece = pieces;
  r->first->state = LM_EXTENT_BUSY;
  lm_device_pool_make_hole_locked(pool, r->first);
  lm_lock_drop(&pool->lock);
  return true;
}

/* Returns the entry of the device's granule at an address of the range. */
static lm_device_piece *piece_at(const lm_extent_range *r, uintptr_t at) {
  lm_assert(r->piece && at - r->base < r->size && lm_is_pow2(r->pool->granularity));
  return &r->piece[(at - r->base) / r->pool->granularity];
}

/* ---- Growing by mapping --------------------------------------------------------------------- */

/* Unmaps the pieces that stand in `size` bytes from `at` on. Returns false if the driver failed for
 * one: then the state of that memory is not known, and its addresses are never used again. */
static bool unmap_pieces(const lm_gpu_ops *gpu, const lm_extent_range *r, uintptr_t at,
                         size_t size) {
  bool ok = true;
  while (size) {
    lm_device_piece *p = piece_at(r, at);
    lm_assert(p->size > 0 && p->size <= size);
    ok &= gpu->unmap(at, p->size, p->handle) == LM_GPU_OK;
    r->pool->pieces_unmapped++;
    at += p->size;
    size -= p->size;
    p->size = 0;
  }
  return ok;
}

/* Maps new memory to a whole extent, in pieces. On failure nothing stays mapped; LM_GPU_BROKEN: that
 * failed as well. */
static lm_gpu_result map_pieces(lm_device_pool *pool, const lm_gpu_ops *gpu, const lm_extent *e) {
  size_t done = 0;
  lm_assert(e->state == LM_EXTENT_BUSY && e->size % pool->granularity == 0);
  while (done < e->size) {
    size_t size = e->size - done < PIECE_MOST ? e->size - done : PIECE_MOST;
    lm_device_piece *p = piece_at(e->range, e->at + done);
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
  lm_assert(lm_device_pool_is_locked(pool));
  unsigned looked = 0;
  const lm_extents *holes = &pool->holes[zone];
  for (unsigned list = LM_EXTENT_LISTS; list-- > 0 && looked < HOLES;)
    for (lm_extent *e = holes->head[list]; e && looked < HOLES; e = e->next, looked++)
      measure_hole(pool, q, e, size, &best);
  return best;
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

/* Takes an extent of at least `size` bytes from the free memory of the pool; NULL: there is none. */
static lm_extent *find_and_take_locked(lm_device_pool *pool, lm_stream_queue *q, size_t size) {
  lm_extent *e = lm_device_pool_take_locked(pool, q, size);
  if (!e) return NULL;
  e->state = LM_EXTENT_BUSY;
  e->queue = q;
  return e;
}

/* Maps memory so that there are `size` free bytes in a run, and takes them. LM_GPU_OK and *out is
 * NULL: memory was mapped, but other threads took the free memory beside it. */
static lm_gpu_result grow_by_mapping(lm_device_pool *pool, const lm_gpu_ops *gpu,
                                     lm_stream_queue *q, size_t size, lm_extent **out) {
  int zone = lm_device_pool_zone(size);
  if (!reserve(pool, gpu, zone)) return LM_GPU_UNSUPPORTED;
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
    *out = find_and_take_locked(pool, q, size);
  } else if (result != LM_GPU_BROKEN) {
    pool->mapped -= e->size;
    lm_device_pool_make_hole_locked(pool, e);
  }
  lm_lock_drop(&pool->lock);
  return result;
}

/* ---- Growing by allocations of a manager ---------------------------------------------------------------------- */

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

/* Maps pinned host memory. Pages are bound to their node and faulted in before they are pinned: the
 * driver then pins them quickly. */
static lm_gpu_result pin(lm_device_pool *pool, size_t size, void **out) {
  const loam_manager *m = lm_manager(pool->device);
  if (!m) return LM_GPU_FAILED;
  if (lm_sys_map(size, out)) {
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

/* Allocates memory that becomes a range of the pool. */
static lm_gpu_result alloc_chunk(lm_device_pool *pool, size_t size, void **out) {
  unsigned flags = PIN_FLAGS | (pool->pinned.write_combined ? LM_GPU_WRITE_COMBINED : 0u);
  if (!pool->pinned.is_pinned)
    return lm_manager_alloc(LM_MANAGER_DEVICE, pool->device, size, 0, out);
  if (!pins_itself(pool)) return lm_manager_alloc(LM_MANAGER_HOST, pool->device, size, flags, out);
  return pin(pool, size, out);
}

/* Frees such memory. No lock is held, or `slow` alone. */
static void free_chunk(lm_device_pool *pool, void *at, size_t size) {
  if (!pool->pinned.is_pinned) {
    lm_manager_free(LM_MANAGER_DEVICE, pool->device, at, size);
  } else if (!pins_itself(pool)) {
    lm_manager_free(LM_MANAGER_HOST, pool->device, at, size);
  } else {
    const loam_manager *m = lm_manager(pool->device);
    if (m) m->memunpin(m->ctx, pool->device, at, size);
    lm_sys_unmap(at, size);
  }
}

/* Allocates a range of at least `fair` bytes and takes `asked` bytes of it. */
static lm_gpu_result grow_by_chunk(lm_device_pool *pool, lm_stream_queue *q, size_t fair,
                                   size_t asked, lm_extent **out) {
  void *at;
  size_t size = lm_align_up(fair, CHUNK_LEAST);
  lm_gpu_result result = alloc_chunk(pool, size, &at);
  if (result != LM_GPU_OK) return result;
  lm_extent_range *r = open_range(pool, (uintptr_t)at, size, lm_device_pool_zone(asked));
  if (!r) {
    free_chunk(pool, at, size);
    lm_error(LOAM_ENOMEM, "device %d: no memory for the index of a range of %zu bytes",
             pool->device, size);
    return LM_GPU_NO_MEMORY;
  }
  lm_lock_take(&pool->lock);
  r->piece = NULL;
  pool->mapped += size;
  lm_device_pool_release_locked(pool, r->first);
  *out = find_and_take_locked(pool, q, asked);
  lm_lock_drop(&pool->lock);
  return LM_GPU_OK;
}

/* Returns by how much a pinned pool grows. Pinning takes time in proportion to the size, so the step
 * is a quarter of the pool's memory: no thread waits for much more than the program uses. */
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

static lm_gpu_result grow(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q,
                          size_t size, lm_extent **out) {
  lm_gpu_result result = LM_GPU_UNSUPPORTED;
  *out = NULL;
  if (pool->uses_vmm) result = grow_by_mapping(pool, gpu, q, size, out);
  if (result != LM_GPU_UNSUPPORTED) return result;
  pool->uses_vmm = false;
  return grow_by_chunks(pool, q, size, out);
}

/* ---- Giving back ---------------------------------------------------------------------------- */

/* Returns the size of the first run of whole pieces in a free extent, and its start in *at. The run has
 * one piece at least, and further ones up to `most` bytes in all. 0: no whole piece is inside. */
static size_t whole_pieces(const lm_device_pool *pool, const lm_extent *e, size_t most,
                           uintptr_t *at) {
  uintptr_t end = e->at + e->size, from = e->range->base;
  from += lm_align_up(e->at - from, pool->granularity);
  while (from < end && !piece_at(e->range, from)->size) from += pool->granularity;
  size_t size = 0;
  *at = from;
  while (from + size < end) {
    size_t piece = piece_at(e->range, from + size)->size;
    if (!piece || from + size + piece > end || (size && size + piece > most)) break;
    size += piece;
  }
  return size;
}

/* Takes a common extent, or a part of one, that can be returned to the driver: whole pieces, or a whole
 * range. It becomes BUSY. NULL: there is none of at most `most` bytes (or one piece). */
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

/* Ends a range of which `whole` is the only extent. Its structs are kept for use again. */
static void close_range_locked(lm_device_pool *pool, lm_extent_range *r, lm_extent *whole) {
  lm_assert(lm_device_pool_is_locked(pool) && whole == r->first && !whole->after);
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

/* Takes a BUSY extent from the pool and unmaps its pieces. Returns true if the memory is an allocation
 * of a manager, which the caller has to free. */
static bool return_to_driver(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_extent *e) {
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

static void give_back_extent(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_extent *e) {
  uintptr_t at = e->at;
  size_t size = e->size;
  if (return_to_driver(pool, gpu, e)) free_chunk(pool, (void *)at, size);
}

/* Returns common memory to the driver: about `bytes`, if there is so much. Returns how much it was. */
static size_t give_back(lm_device_pool *pool, const lm_gpu_ops *gpu, size_t bytes) {
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

/* Returns all free memory of the pool to the driver, after the device's work. The pool forgets its peak,
 * and with it the memory that it may keep. Returns the bytes. */
static size_t trim(lm_device_pool *pool, const lm_gpu_ops *gpu) {
  lm_assert(lm_device_pool_is_slow_locked(pool));
  lm_lock_take(&pool->lock);
  pool->peak = pool->live;
  pool->slack = pool->front_misses = pool->pieces_remapped = 0;
  lm_lock_drop(&pool->lock);
  return synchronize(pool, gpu) ? give_back(pool, gpu, SIZE_MAX) : 0;
}

static size_t trim_all(int device, bool is_pinned) {
  size_t bytes = 0;
  const lm_gpu_ops *gpu = lm_gpu_started();
  lm_device_pool *pool = gpu ? lm_device_pool_next(NULL, device) : NULL;
  for (; pool; pool = lm_device_pool_next(pool, device)) {
    if (is_pinned && !pool->pinned.is_pinned) continue;
    lm_lock_take(&pool->slow);
    bytes += trim(pool, gpu);
    lm_lock_drop(&pool->slow);
  }
  lm_verify(lm_device_pool_is_valid());
  return bytes;
}

size_t lm_device_pool_trim(int device) { return trim_all(device, false); }
size_t lm_device_pool_trim_pinned(void) { return trim_all(-1, true); }

/* ---- Giving back idle memory ---------------------------------------------------------------- */

static _Atomic size_t kept; /* bytes that each pool keeps; relaxed: a setting that orders nothing */

void loam_device_keep(size_t bytes) {
  atomic_store_explicit(&kept, bytes, memory_order_relaxed);
  lm_decay_stir();
}

size_t lm_device_pool_keep_bytes(void) { return atomic_load_explicit(&kept, memory_order_relaxed); }

/* Returns the bytes that were free throughout the last two intervals, and ends an interval. Lowers the
 * peak to the memory that was used. *more: a later tick may find more. */
static size_t idle_bytes(lm_device_pool *pool, bool *more) {
  size_t keeps = lm_device_pool_keep_bytes();
  lm_lock_take(&pool->lock);
  size_t used = pool->recent_peak > pool->previous_peak ? pool->recent_peak : pool->previous_peak;
  *more = pool->previous_peak > pool->live || pool->recent_peak > pool->live;
  pool->previous_peak = pool->recent_peak;
  pool->recent_peak = pool->live;
  if (used < keeps) used = keeps;
  if (pool->peak > used) pool->peak = used > pool->live ? used : pool->live;
  size_t idle = pool->mapped > used ? pool->mapped - used : 0;
  lm_lock_drop(&pool->lock);
  return idle;
}

/* Finds out which work has ended, without waiting. It records an event on default streams now, and asks
 * for an event in the next call on each other stream. Returns whether events are still to happen. */
static bool find_ended_work(lm_device_pool *pool, const lm_gpu_ops *gpu) {
  lm_stream_queue *queues[QUEUES];
  bool is_pending = false;
  unsigned n = list_queues(pool, queues, QUEUES);
  poll_all_events(pool, gpu, false);
  for (unsigned i = 0; i < n; i++) {
    lm_stream_queue *q = queues[i];
    lm_lock_take(&pool->lock);
    if (lm_device_pool_is_host_queue(q)) q->done = q->batch++;
    if (lm_device_pool_is_host_queue(q)) lm_device_pool_reclaim_locked(pool, q);
    bool has = lm_device_pool_queue_has_locked(q) && !q->events;
    if (has) q->wanted = true;
    lm_lock_drop(&pool->lock);
    if (has && is_default_stream(q)) (void)record(pool, gpu, q);
    is_pending |= q->events > 0;
  }
  poll_all_events(pool, gpu, false);
  return is_pending;
}

/* Returns whether objects of host pools wait for work on streams. */
static bool is_awaited(lm_device_pool *pool) {
  bool is = false;
  lm_lock_take(&pool->lock);
  for (const lm_stream_queue *q = pool->queues; q && !is; q = q->next) is = q->waiting;
  is |= pool->unknown.waiting != NULL;
  lm_lock_drop(&pool->lock);
  return is;
}

void lm_device_pool_poll_awaited(void) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  for (lm_device_pool *pool = lm_device_pool_next(NULL, -1); gpu && pool;
       pool = lm_device_pool_next(pool, -1)) {
    if (!is_awaited(pool)) continue;
    lm_lock_take(&pool->slow);
    request_events(pool, gpu, NULL);
    poll_all_events(pool, gpu, false);
    lm_lock_drop(&pool->slow);
  }
}

/* Returns one extent of about `most` bytes to the driver; returns its size, 0 if there is none. An
 * allocation of a manager is freed without a lock, because the driver may wait. */
static size_t give_back_one(lm_device_pool *pool, const lm_gpu_ops *gpu, size_t most) {
  lm_lock_take(&pool->slow);
  lm_extent *e = NULL;
  if (lm_device_pool_add_nodes(pool)) {
    lm_lock_take(&pool->lock);
    e = take_idle_locked(pool, most);
    lm_lock_drop(&pool->lock);
  }
  uintptr_t at = e ? e->at : 0;
  size_t size = e ? e->size : 0;
  bool is_chunk = e && return_to_driver(pool, gpu, e);
  lm_lock_drop(&pool->slow);
  if (is_chunk) free_chunk(pool, (void *)at, size);
  return size;
}

/* A tick for one pool. Returns whether there is something to do at a later tick. */
static bool decay(lm_device_pool *pool, const lm_gpu_ops *gpu) {
  bool more;
  size_t given = 0, idle = idle_bytes(pool, &more);
  if (!idle && !is_awaited(pool)) return more;
  lm_lock_take(&pool->slow);
  more |= find_ended_work(pool, gpu);
  lm_lock_drop(&pool->slow);
  while (given < idle) {
    size_t size = give_back_one(pool, gpu, idle - given);
    if (!size) break;
    given += size;
  }
  return more || given;
}

bool lm_device_pool_decay(void) {
  bool more = false;
  lm_device_pool *pool = lm_device_pool_next(NULL, -1);
  if (!pool || !lm_gpu_begin()) return false;
  const lm_gpu_ops *gpu = lm_gpu_started();
  for (; gpu && pool; pool = lm_device_pool_next(pool, -1)) more |= decay(pool, gpu);
  if (!more) (void)lm_manager_flush(-1); /* frees that are deferred and too few to end otherwise */
  lm_gpu_end();
  return more;
}

/* ---- Allocation ------------------------------------------------------------------------------ */

static lm_extent *find_and_take(lm_device_pool *pool, lm_stream_queue *q, size_t size) {
  lm_lock_take(&pool->lock);
  lm_extent *e = find_and_take_locked(pool, q, size);
  lm_lock_drop(&pool->lock);
  return e;
}

/* Returns by how many bytes the pool would be above its limit (see the head of this file) if it grew
 * for a request; 0: it may grow. */
static size_t bytes_over_limit(lm_device_pool *pool, const lm_stream_queue *q, size_t size) {
  lm_lock_take(&pool->lock);
  place p = choose_place_locked(pool, q, lm_device_pool_zone(size), size);
  size_t peak = pool->live + size > pool->peak ? pool->live + size : pool->peak;
  size_t may = peak + peak / 64 + pool->slack + 2 * LM_ZONES * pool->granularity;
  size_t has = pool->mapped + (p.hole ? p.more : size);
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

/* Before the pool grows beyond its limit: returns pieces that are free elsewhere to the driver. If that
 * is not enough, waits for the work of this stream and returns the stream's pieces. */
static void make_room(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q,
                      size_t size) {
  size_t over = pool->uses_vmm ? bytes_over_limit(pool, q, size) : 0;
  if (!over) return;
  size_t before = pool->pieces_unmapped, given = give_back(pool, gpu, over);
  if (given < over && q->bytes && record(pool, gpu, q)) {
    poll_events(pool, gpu, q, true);
    (void)give_back(pool, gpu, over - given);
  }
  allow_more_slack(pool, pool->pieces_unmapped - before);
}

/* Grows until the request can be served. When other threads take the free memory that the pool grew
 * beside, the pool has still grown: so this ends. */
static lm_extent *grow_and_find(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q,
                                size_t size, lm_gpu_result *result) {
  lm_extent *e;
  do *result = grow(pool, gpu, q, size, &e);
  while (*result == LM_GPU_OK && !e);
  return e;
}

/* Returns whether this thread may wait for the device. It must not wait in a call on a stream that is
 * captured for a graph: that work does not run before the capture ends. */
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
  lm_assert(lm_device_pool_is_slow_locked(pool));
  lm_extent *e = find_and_take(pool, q, size);
  if (e) return e;
  poll_all_events(pool, gpu, false);
  if ((e = find_and_take(pool, q, size))) return e;
  request_events(pool, gpu, q);
  make_room(pool, gpu, q, size);
  if ((e = find_and_take(pool, q, size))) return e;
  if ((e = grow_and_find(pool, gpu, q, size, &result))) return e;
  if (result == LM_GPU_GONE || result == LM_GPU_BROKEN) lm_device_pool_forget(pool->device);
  if (result != LM_GPU_NO_MEMORY) return NULL;
  poll_all_events(pool, gpu, true);
  if ((e = find_and_take(pool, q, size))) return e;
  if (!may_wait(pool, gpu, q) || !synchronize(pool, gpu)) return NULL;
  if ((e = find_and_take(pool, q, size))) return e;
  bool more = give_back(pool, gpu, SIZE_MAX) + lm_manager_flush(pool->device);
  e = more ? grow_and_find(pool, gpu, q, size, &result) : NULL;
  *is_short = !e && result == LM_GPU_NO_MEMORY;
  return e;
}

/* Takes an extent for a request; *is_short: the driver has no memory left. */
static lm_extent *supply_once(lm_device_pool *pool, const lm_gpu_ops *gpu, size_t size,
                              lm_stream_ref ref, bool *is_short) {
  lm_extent *e = NULL;
  lm_lock_take(&pool->slow);
  if (lm_manager_is_custom(LM_MANAGER_DEVICE)) pool->uses_vmm = false;
  lm_lock_take(&pool->lock);
  lm_stream_queue *q = lm_device_pool_queue_for_locked(pool, ref);
  lm_lock_drop(&pool->lock);
  *is_short = false;
  find_stream_context(pool, gpu, q);
  if (q == &pool->unknown)
    lm_error(LOAM_ENOMEM, "device %d: no memory to note stream %p", pool->device, ref.stream);
  else e = supply(pool, gpu, q, size, is_short);
  lm_lock_drop(&pool->slow);
  return e;
}

/* Returns the free memory of the device's other pool to the driver. Returns whether there was any. */
static bool trim_other(const lm_device_pool *pool, const lm_gpu_ops *gpu) {
  size_t bytes = 0;
  lm_device_pool *other = lm_device_pool_next(NULL, pool->device);
  for (; other; other = lm_device_pool_next(other, pool->device)) {
    if (other == pool || other->pinned.is_pinned || pool->pinned.is_pinned) continue;
    lm_lock_take(&other->slow);
    bytes += trim(other, gpu);
    lm_lock_drop(&other->slow);
  }
  return bytes + lm_manager_flush(pool->device);
}

void *lm_device_pool_take_slow(lm_device_pool *pool, size_t size, lm_stream_ref ref) {
  const lm_gpu_ops *gpu = lm_gpu();
  bool is_short;
  if (!gpu) return lm_error_null("%s", lm_gpu_why());
  if (!lm_manager(pool->device)) return NULL;
  size = lm_device_pool_round(size);
  lm_extent *e = supply_once(pool, gpu, size, ref, &is_short);
  if (!e && is_short && trim_other(pool, gpu)) e = supply_once(pool, gpu, size, ref, &is_short);
  lm_verify(lm_device_pool_is_valid());
  return e ? (void *)e->at : NULL;
}
