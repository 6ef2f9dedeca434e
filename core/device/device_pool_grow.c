/* device_pool_grow.c - how a cache gets memory from a driver, and gives it back.
 *
 * Where memory can be mapped to addresses, a cache does not grow for want of a long enough run: as
 * long as what it has is more than it ever needed at once (and a 64th), pieces of memory that stand
 * free elsewhere are unmapped first. So fragments cost time, not memory; but where pieces are
 * mapped anew for more than one cut in 32, it may have up to a quarter more. */
#include "device/device_pool.h"
#include "device/manager.h"
#include "os/decay.h"
#include "os/error.h"
#include "os/thread.h"
#include "pages/metadata.h"

#define PIECE_MOST (16 * LM_MIB) /* a larger one is seldom free as a whole */
#define PATIENCE 512             /* pieces mapped anew that are no habit yet */
#define CHUNK_LEAST (2 * LM_MIB) /* without mapping */
#define CHUNK_LARGE (16 * LM_MIB)
#define PIN_MOST (64 * LM_MIB)

static const unsigned shifts[LM_ZONES] = { 9, 12 };

/* ---- Events; under `slow` ------------------------------------------------------------------- */

/* An event of the queue's context, which is current. */
static bool take_event(lm_device_pool *c, const lm_gpu_ops *gpu, const lm_stream_queue *q,
                       lm_gpu_event *out) {
  for (unsigned i = c->idles; i-- > 0;) {
    if (c->idle[i].context != q->context) continue;
    *out = c->idle[i].event;
    c->idle[i] = c->idle[--c->idles];
    return true;
  }
  return gpu->event_create(c->device, out) == LM_GPU_OK;
}

static void put_event(lm_device_pool *c, const lm_gpu_ops *gpu, const lm_stream_queue *q,
                      lm_gpu_event event) {
  if (c->idles == LM_COUNT(c->idle)) {
    (void)gpu->event_destroy(event);
    return;
  }
  c->idle[c->idles].context = q->context;
  c->idle[c->idles++].event = event;
}

/* Ends the queue's batch by an event on its stream, which has to exist. */
static bool record_here(lm_device_pool *c, const lm_gpu_ops *gpu, lm_stream_queue *q) {
  lm_gpu_event event;
  if (q->events == LM_QUEUE_EVENTS || !gpu->may_record(c->device, q->line.stream)) return false;
  if (!take_event(c, gpu, q, &event)) return false;
  /* What is freed from here on may be freed after the event. */
  lm_lock_take(&c->lock);
  uint64_t batch = q->batch++;
  q->wanted = false;
  lm_lock_drop(&c->lock);
  if (gpu->event_record(event, c->device, q->line.stream) != LM_GPU_OK) {
    put_event(c, gpu, q, event);
    return false;
  }
  q->event[q->events].event = event;
  q->event[q->events++].batch = batch;
  return true;
}

static bool record(lm_device_pool *c, const lm_gpu_ops *gpu, lm_stream_queue *q) {
  void *scope;
  if (gpu->push_context(c->device, q->context, &scope) != LM_GPU_OK) return false;
  bool done = record_here(c, gpu, q);
  gpu->pop(scope);
  return done;
}

/* Looks whose stream it is, which has to exist, the first time. */
static void know(lm_device_pool *c, const lm_gpu_ops *gpu, lm_stream_queue *q) {
  if (q->is_known || q == &c->lost) return;
  void *context = q->line.context ? q->line.context : gpu->context(c->device);
  if ((uintptr_t)q->line.stream > LM_STREAM_DEFAULT) context = gpu->stream_context(q->line.stream);
  gpu->track_context(c->device, context);
  lm_lock_take(&c->lock);
  q->context = context;
  q->is_known = true;
  lm_lock_drop(&c->lock);
}

/* The oldest `n` events of a queue have ended. */
static void pass(lm_device_pool *c, const lm_gpu_ops *gpu, lm_stream_queue *q, unsigned n) {
  uint64_t done = q->event[n - 1].batch;
  for (unsigned i = 0; i < n; i++) put_event(c, gpu, q, q->event[i].event);
  for (unsigned i = n; i < q->events; i++) q->event[i - n] = q->event[i];
  q->events -= n;
  lm_lock_take(&c->lock);
  if (done > q->done) q->done = done;
  lm_device_pool_reclaim_locked(c, q);
  lm_lock_drop(&c->lock);
}

/* The first queue, and the next one: the list's order changes, and it only grows at its front. */
static unsigned list_queues(lm_device_pool *c, lm_stream_queue **out, unsigned most) {
  unsigned n = 0;
  lm_lock_take(&c->lock);
  for (lm_stream_queue *q = c->queues; q && n < most; q = q->next) out[n++] = q;
  lm_lock_drop(&c->lock);
  return n;
}

enum { QUEUES = 256 }; /* looked at in one go */

/* Looks which events of a queue have ended, or waits for them. */
static void look(lm_device_pool *c, const lm_gpu_ops *gpu, lm_stream_queue *q, bool wait) {
  unsigned ended = 0;
  if (wait && q->events && gpu->event_wait(q->event[q->events - 1].event) == LM_GPU_OK)
    ended = q->events;
  while (ended < q->events && gpu->event_query(q->event[ended].event) == LM_GPU_OK) ended++;
  if (ended) pass(c, gpu, q, ended);
}

static void look_at_all(lm_device_pool *c, const lm_gpu_ops *gpu, bool wait) {
  lm_stream_queue *queues[QUEUES];
  unsigned n = list_queues(c, queues, QUEUES);
  for (unsigned i = 0; i < n; i++) look(c, gpu, queues[i], wait);
}

/* A default stream; not what is of no stream. */
static bool is_always_there(const lm_stream_queue *q) { return !q->line.stream && !q->thread; }

/* Asks the others for an event each. */
static void want(lm_device_pool *c, const lm_gpu_ops *gpu, const lm_stream_queue *mine) {
  lm_stream_queue *queues[QUEUES];
  unsigned n = list_queues(c, queues, QUEUES);
  for (unsigned i = 0; i < n; i++) {
    lm_stream_queue *q = queues[i];
    if (q == mine) continue;
    lm_lock_take(&c->lock);
    bool has = lm_device_pool_has_locked(q);
    q->wanted = q->wanted || has;
    lm_lock_drop(&c->lock);
    if (has && is_always_there(q)) (void)record(c, gpu, q);
  }
}

void lm_device_pool_poll(lm_device_pool *c, lm_stream_ref line) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  if (!gpu) return;
  lm_lock_take(&c->slow);
  lm_lock_take(&c->lock);
  lm_stream_queue *q = lm_device_pool_queue_locked(c, line);
  bool wanted = q->wanted && q != &c->lost;
  lm_lock_drop(&c->lock);
  know(c, gpu, q);
  if (wanted) (void)record(c, gpu, q);
  lm_lock_drop(&c->slow);
  if (wanted) lm_decay_stir();
}

/* After the device is done with all work, everything is common. What is freed meanwhile is not: it
 * has another batch. */
static bool synchronize(lm_device_pool *c, const lm_gpu_ops *gpu) {
  lm_stream_queue *queues[QUEUES];
  uint64_t batch[QUEUES];
  lm_lock_take(&c->lock);
  unsigned n = 0;
  for (lm_stream_queue *q = c->queues; q && n < QUEUES; q = q->next) {
    batch[n] = q->batch++;
    queues[n++] = q;
  }
  uint64_t lost = c->lost.batch++;
  lm_lock_drop(&c->lock);
  if (gpu->synchronize(c->device) != LM_GPU_OK) return false;
  lm_lock_take(&c->lock);
  for (unsigned i = 0; i < n; i++) {
    queues[i]->done = batch[i];
    lm_device_pool_reclaim_locked(c, queues[i]);
  }
  c->lost.done = lost;
  lm_device_pool_reclaim_locked(c, &c->lost);
  lm_lock_drop(&c->lock);
  return true;
}

/* What has its place in a context. */
static void part(lm_device_pool *c, const lm_gpu_ops *gpu) {
  look_at_all(c, gpu, false);
  while (c->idles) (void)gpu->event_destroy(c->idle[--c->idles].event);
  lm_lock_take(&c->lock);
  for (lm_stream_queue *q = c->queues; q; q = q->next) q->is_known = lm_device_pool_is_hosts(q);
  lm_lock_drop(&c->lock);
}

void lm_device_pool_detach(int device) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  lm_device_pool *c = gpu ? lm_device_pool_next(NULL, device) : NULL;
  for (; c; c = lm_device_pool_next(c, device)) {
    lm_lock_take(&c->slow);
    part(c, gpu);
    lm_lock_drop(&c->slow);
  }
  if (gpu) gpu->untrack_contexts(device);
}

/* ---- Ranges --------------------------------------------------------------------------------- */

static lm_extent_range *new_range(lm_device_pool *c) {
  lm_extent_range *r = c->spare;
  if (r) c->spare = r->next;
  else r = lm_metadata_alloc(sizeof *r);
  if (r) r->cache = c;
  return r;
}

/* A range that is one hole; NULL without memory for its index. Addresses are the caller's. */
static lm_extent_range *open_range(lm_device_pool *c, uintptr_t base, size_t size, int zone) {
  lm_extent *whole = NULL;
  lm_lock_take(&c->lock);
  lm_extent_range *r = c->spare_nodes || lm_device_pool_add_nodes_locked(c) ? new_range(c) : NULL;
  if (r) whole = lm_device_pool_take_node_locked(c);
  if (r && !lm_extent_range_init(r, base, size, shifts[zone], whole)) {
    lm_device_pool_free_node_locked(c, whole);
    r->next = c->spare;
    c->spare = r;
    r = NULL;
  }
  if (r) {
    whole->zone = (uint8_t)zone;
    r->next = c->ranges;
    c->ranges = r;
  }
  lm_lock_drop(&c->lock);
  return r;
}

/* Addresses for twice the device's memory, since what is unmapped leaves holes that may be too
 * short; small blocks seldom need much. */
static size_t reach_of(const lm_device_pool *c, int zone) {
  size_t most = zone == LM_ZONE_SMALL ? c->total / 4 : c->total * 2;
  if (zone == LM_ZONE_SMALL && most > 16 * LM_GIB) most = 16 * LM_GIB;
  return lm_align_up(most, c->granularity);
}

static bool has_range(lm_device_pool *c, int zone) {
  for (const lm_extent_range *r = c->ranges; r; r = r->next)
    if (r->shift == shifts[zone]) return true;
  return false;
}

/* The zone's addresses, reserved once; false where that is refused. */
static bool reserve(lm_device_pool *c, const lm_gpu_ops *gpu, int zone) {
  lm_devptr at;
  size_t size = reach_of(c, zone);
  if (has_range(c, zone)) return true;
  if (gpu->reserve(c->device, size, &at) != LM_GPU_OK) return false;
  lm_device_piece *pieces = NULL;
  void *mapped;
  size_t bytes = size / c->granularity * sizeof *pieces;
  if (!lm_sys_map(lm_align_up(bytes, LM_PAGE), &mapped)) pieces = mapped;
  lm_extent_range *r = pieces ? open_range(c, (uintptr_t)at, size, zone) : NULL;
  if (!r) {
    if (pieces) lm_sys_unmap(pieces, lm_align_up(bytes, LM_PAGE));
    (void)gpu->unreserve(at, size);
    return false;
  }
  lm_lock_take(&c->lock);
  r->piece = pieces;
  r->first->state = LM_EXTENT_BUSY;
  lm_device_pool_hole_locked(c, r->first);
  lm_lock_drop(&c->lock);
  return true;
}

static lm_device_piece *piece_at(const lm_extent_range *r, uintptr_t at) {
  return &r->piece[(at - r->base) / r->cache->granularity];
}

/* ---- Growing by mapping --------------------------------------------------------------------- */

/* False if the driver refuses one: what becomes of that only it knows, so it is not used again. */
static bool unmap_pieces(const lm_gpu_ops *gpu, const lm_extent_range *r, uintptr_t at,
                         size_t size) {
  bool ok = true;
  while (size) {
    lm_device_piece *p = piece_at(r, at);
    ok &= gpu->unmap(at, p->size, p->handle) == LM_GPU_OK;
    r->cache->unmapped++;
    at += p->size;
    size -= p->size;
    p->size = 0;
  }
  return ok;
}

static lm_gpu_result map_pieces(lm_device_pool *c, const lm_gpu_ops *gpu, const lm_extent *e) {
  size_t done = 0;
  while (done < e->size) {
    size_t size = e->size - done < PIECE_MOST ? e->size - done : PIECE_MOST;
    lm_device_piece *p = piece_at(e->range, e->at + done);
    lm_gpu_result result = gpu->map(c->device, e->at + done, size, &p->handle);
    if (result != LM_GPU_OK) {
      return unmap_pieces(gpu, e->range, e->at, done) ? result : LM_GPU_BROKEN;
    }
    p->size = size;
    done += size;
  }
  return LM_GPU_OK;
}

/* Where to map, and how much. */
typedef struct place {
  lm_extent *hole;
  uintptr_t at;
  size_t more;
} place;

/* The least of a hole that makes `size` bytes with what is free on its one side, or on both. */
static void measure_hole(const lm_device_pool *c, const lm_stream_queue *q, lm_extent *hole,
                         size_t size, place *best) {
  size_t below = lm_device_pool_can_join(q, hole->before) ? hole->before->size : 0;
  size_t above = lm_device_pool_can_join(q, hole->after) ? hole->after->size : 0;
  if (below + hole->size + above < size) return;
  size_t beside = below >= above ? below : above;
  size_t more = beside < size ? lm_align_up(size - beside, c->granularity) : c->granularity;
  if (more > hole->size) more = hole->size;
  if (best->hole && best->more <= more) return;
  *best = (place){ hole, below >= above ? hole->at : hole->at + hole->size - more, more };
}

enum { HOLES = 256 }; /* looked at */

/* Where `size` bytes can be had by mapping the least. */
static place choose_place(lm_device_pool *c, const lm_stream_queue *q, int zone, size_t size) {
  place best = { 0 };
  unsigned looked = 0;
  const lm_extents *holes = &c->holes[zone];
  for (unsigned list = LM_EXTENT_LISTS; list-- > 0 && looked < HOLES;)
    for (lm_extent *e = holes->head[list]; e && looked < HOLES; e = e->next, looked++)
      measure_hole(c, q, e, size, &best);
  return best;
}

static lm_extent *take_hole(lm_device_pool *c, lm_stream_queue *q, int zone, size_t size) {
  lm_lock_take(&c->lock);
  place p = choose_place(c, q, zone, size);
  lm_extent *e = p.hole ? lm_device_pool_cut_locked(c, p.hole, p.at, p.more) : NULL;
  if (e) {
    e->state = LM_EXTENT_BUSY;
    c->mapped += e->size;
  }
  lm_lock_drop(&c->lock);
  return e;
}

/* An extent for the request out of what the cache has by now. */
static lm_extent *find_locked(lm_device_pool *c, lm_stream_queue *q, size_t size) {
  lm_extent *e = lm_device_pool_take_locked(c, q, size);
  if (!e) return NULL;
  e->state = LM_EXTENT_BUSY;
  e->queue = q;
  return e;
}

/* In *out what was asked for; NULL: others have taken meanwhile what was free beside the hole. */
static lm_gpu_result grow_by_mapping(lm_device_pool *c, const lm_gpu_ops *gpu, lm_stream_queue *q,
                                     size_t size, lm_extent **out) {
  int zone = lm_device_pool_zone(size);
  if (!reserve(c, gpu, zone)) return LM_GPU_UNSUPPORTED;
  lm_extent *e = lm_device_pool_add_nodes(c) ? take_hole(c, q, zone, size) : NULL;
  if (!e) {
    lm_error(LOAM_ENOMEM, "device %d: no %zu addresses left", c->device, size);
    return LM_GPU_NO_MEMORY;
  }
  lm_gpu_result result = map_pieces(c, gpu, e);
  lm_lock_take(&c->lock);
  if (result == LM_GPU_OK) {
    if (e->size < size) lm_device_pool_adopt_locked(c, q, e);
    else lm_device_pool_release_locked(c, e);
    *out = find_locked(c, q, size);
  } else if (result != LM_GPU_BROKEN) {
    c->mapped -= e->size;
    lm_device_pool_hole_locked(c, e);
  }
  lm_lock_drop(&c->lock);
  return result;
}

/* ---- Growing by chunks ---------------------------------------------------------------------- */

enum { PIN_FLAGS = LM_GPU_MAPPED | LM_GPU_PORTABLE };

/* Whether pinned memory is loam's own, bound before it is pinned; else a manager's. */
static bool is_own(const lm_device_pool *c) {
  return !c->pinned.write_combined && !lm_manager_is_foreign(LM_MANAGER_HOST);
}

static void bind(const lm_device_pool *c, void *at, size_t size) {
  lm_placement near = { .mode = LM_BIND_PREFERRED };
  const lm_placement *placement = &c->pinned.placement;
  if (placement->mode == LM_BIND_DEFAULT && c->node >= 0 && lm_numa_has((unsigned)c->node)) {
    near.nodes = (uint64_t)1 << c->node;
    placement = &near;
  }
  if (placement->mode != LM_BIND_DEFAULT) (void)lm_numa_bind(at, size, placement);
}

/* Pages are bound and there before they are pinned, which then is short. */
static lm_gpu_result pin(lm_device_pool *c, size_t size, void **out) {
  const loam_manager *m = lm_manager(c->device);
  if (!m) return LM_GPU_FAILED;
  if (lm_sys_map(size, out)) {
    lm_error(LOAM_ENOMEM, "no memory for %zu bytes to pin", size);
    return LM_GPU_NO_MEMORY;
  }
  bind(c, *out, size);
  (void)lm_sys_prefault(*out, size);
  loam_status status = m->mempin(m->ctx, c->device, *out, size, PIN_FLAGS);
  if (status == LOAM_OK) return LM_GPU_OK;
  lm_sys_unmap(*out, size);
  return status == LOAM_ENOMEM ? LM_GPU_NO_MEMORY : LM_GPU_FAILED;
}

static lm_gpu_result make_chunk(lm_device_pool *c, size_t size, void **out) {
  unsigned flags = PIN_FLAGS | (c->pinned.write_combined ? LM_GPU_WRITE_COMBINED : 0u);
  if (!c->pinned.is_pinned) return lm_manager_alloc(LM_MANAGER_DEVICE, c->device, size, 0, out);
  if (!is_own(c)) return lm_manager_alloc(LM_MANAGER_HOST, c->device, size, flags, out);
  return pin(c, size, out);
}

static void end_chunk(lm_device_pool *c, void *at, size_t size) {
  if (!c->pinned.is_pinned) {
    lm_manager_free(LM_MANAGER_DEVICE, c->device, at, size);
  } else if (!is_own(c)) {
    lm_manager_free(LM_MANAGER_HOST, c->device, at, size);
  } else {
    const loam_manager *m = lm_manager(c->device);
    if (m) m->memunpin(m->ctx, c->device, at, size);
    lm_sys_unmap(at, size);
  }
}

static lm_gpu_result grow_by_chunk(lm_device_pool *c, lm_stream_queue *q, size_t fair, size_t asked,
                                   lm_extent **out) {
  void *at;
  size_t size = lm_align_up(fair, CHUNK_LEAST);
  lm_gpu_result result = make_chunk(c, size, &at);
  if (result != LM_GPU_OK) return result;
  lm_extent_range *r = open_range(c, (uintptr_t)at, size, lm_device_pool_zone(asked));
  if (!r) {
    end_chunk(c, at, size);
    lm_error(LOAM_ENOMEM, "no memory for an index of %zu bytes", size);
    return LM_GPU_NO_MEMORY;
  }
  lm_lock_take(&c->lock);
  r->piece = NULL;
  c->mapped += size;
  lm_device_pool_release_locked(c, r->first);
  *out = find_locked(c, q, asked);
  lm_lock_drop(&c->lock);
  return LM_GPU_OK;
}

/* Pinning takes time: a quarter of what there is, so that nobody waits for more than he uses. */
static size_t step_of(lm_device_pool *c) {
  lm_lock_take(&c->lock);
  size_t step = c->mapped / 4;
  lm_lock_drop(&c->lock);
  if (step < CHUNK_LEAST) step = CHUNK_LEAST;
  return step < PIN_MOST ? step : PIN_MOST;
}

static lm_gpu_result grow_by_chunks(lm_device_pool *c, lm_stream_queue *q, size_t size,
                                    lm_extent **out) {
  size_t least = lm_device_pool_zone(size) == LM_ZONE_LARGE ? CHUNK_LARGE : CHUNK_LEAST;
  if (c->pinned.is_pinned) least = step_of(c);
  size_t fair = size < least ? least : size;
  lm_gpu_result result = grow_by_chunk(c, q, fair, size, out);
  if (result == LM_GPU_NO_MEMORY && fair > size) result = grow_by_chunk(c, q, size, size, out);
  return result;
}

static lm_gpu_result grow(lm_device_pool *c, const lm_gpu_ops *gpu, lm_stream_queue *q, size_t size,
                          lm_extent **out) {
  lm_gpu_result result = LM_GPU_UNSUPPORTED;
  *out = NULL;
  if (c->maps) result = grow_by_mapping(c, gpu, q, size, out);
  if (result != LM_GPU_UNSUPPORTED) return result;
  c->maps = false;
  return grow_by_chunks(c, q, size, out);
}

/* ---- Giving back ---------------------------------------------------------------------------- */

/* The longest run of whole pieces in a free extent, of at most `most` bytes (but one at least). */
static size_t whole_pieces(const lm_device_pool *c, const lm_extent *e, size_t most,
                           uintptr_t *at) {
  uintptr_t end = e->at + e->size, from = e->range->base;
  from += lm_align_up(e->at - from, c->granularity);
  while (from < end && !piece_at(e->range, from)->size) from += c->granularity;
  size_t size = 0;
  *at = from;
  while (from + size < end) {
    size_t piece = piece_at(e->range, from + size)->size;
    if (!piece || from + size + piece > end || (size && size + piece > most)) break;
    size += piece;
  }
  return size;
}

/* Takes out a common extent, or a part of one, that can be given back. */
static lm_extent *take_idle_locked(lm_device_pool *c, size_t most) {
  for (int zone = LM_ZONES; zone-- > 0;)
    for (unsigned list = LM_EXTENT_LISTS; list-- > 0;)
      for (lm_extent *e = c->common[zone].head[list]; e; e = e->next) {
        uintptr_t at = e->at;
        size_t size = e->size;
        if (e->range->piece) size = whole_pieces(c, e, most, &at);
        else if (size != e->range->size || size > most) size = 0;
        if (!size) continue;
        lm_extent *part = lm_device_pool_cut_locked(c, e, at, size);
        if (part) part->state = LM_EXTENT_BUSY;
        return part;
      }
  return NULL;
}

static void close_range_locked(lm_device_pool *c, lm_extent_range *r, lm_extent *whole) {
  for (lm_extent_range **at = &c->ranges; *at; at = &(*at)->next)
    if (*at == r) {
      *at = r->next;
      break;
    }
  lm_extent_range_finish(r);
  lm_device_pool_free_node_locked(c, whole);
  r->next = c->spare;
  c->spare = r;
}

/* Whether a chunk of that size is left at its place, to be ended. */
static bool let_go(lm_device_pool *c, const lm_gpu_ops *gpu, lm_extent *e) {
  if (e->range->piece && !unmap_pieces(gpu, e->range, e->at, e->size)) return false;
  lm_lock_take(&c->lock);
  c->mapped -= e->size;
  bool is_chunk = !e->range->piece;
  if (is_chunk) close_range_locked(c, e->range, e);
  else lm_device_pool_hole_locked(c, e);
  lm_lock_drop(&c->lock);
  return is_chunk;
}

static void give_back_part(lm_device_pool *c, const lm_gpu_ops *gpu, lm_extent *e) {
  uintptr_t at = e->at;
  size_t size = e->size;
  if (let_go(c, gpu, e)) end_chunk(c, (void *)at, size);
}

/* Gives back what is common, `bytes` of it if there is as much. How much it was. */
static size_t give_back(lm_device_pool *c, const lm_gpu_ops *gpu, size_t bytes) {
  size_t given = 0;
  while (given < bytes && lm_device_pool_add_nodes(c)) {
    lm_lock_take(&c->lock);
    lm_extent *e = take_idle_locked(c, bytes - given);
    lm_lock_drop(&c->lock);
    if (!e) break;
    given += e->size;
    give_back_part(c, gpu, e);
  }
  return given;
}

/* What was learnt of the peak goes with what was kept for it. */
static size_t trim(lm_device_pool *c, const lm_gpu_ops *gpu) {
  lm_lock_take(&c->lock);
  c->peak = c->live;
  c->slack = c->cuts = c->remapped = 0;
  lm_lock_drop(&c->lock);
  return synchronize(c, gpu) ? give_back(c, gpu, SIZE_MAX) : 0;
}

static size_t trim_all(int device, bool is_pinned) {
  size_t bytes = 0;
  const lm_gpu_ops *gpu = lm_gpu_started();
  lm_device_pool *c = gpu ? lm_device_pool_next(NULL, device) : NULL;
  for (; c; c = lm_device_pool_next(c, device)) {
    if (is_pinned && !c->pinned.is_pinned) continue;
    lm_lock_take(&c->slow);
    bytes += trim(c, gpu);
    lm_lock_drop(&c->slow);
  }
  lm_verify(lm_device_pool_is_valid());
  return bytes;
}

size_t lm_device_pool_trim(int device) { return trim_all(device, false); }
size_t lm_device_pool_trim_pinned(void) { return trim_all(-1, true); }

/* ---- Giving back what is idle --------------------------------------------------------------- */

static _Atomic size_t kept; /* bytes of each cache; relaxed: a wish */

void loam_device_keep(size_t bytes) {
  atomic_store_explicit(&kept, bytes, memory_order_relaxed);
  lm_decay_stir();
}

size_t lm_device_pool_keep_bytes(void) { return atomic_load_explicit(&kept, memory_order_relaxed); }

/* Bytes that were free throughout the last interval. What was learnt of a peak goes with it. */
static size_t idle_bytes(lm_device_pool *c, bool *more) {
  size_t keeps = lm_device_pool_keep_bytes();
  lm_lock_take(&c->lock);
  size_t used = c->recent > c->before ? c->recent : c->before;
  *more = c->before > c->live || c->recent > c->live;
  c->before = c->recent;
  c->recent = c->live;
  if (used < keeps) used = keeps;
  if (c->peak > used) c->peak = used > c->live ? used : c->live;
  size_t idle = c->mapped > used ? c->mapped - used : 0;
  lm_lock_drop(&c->lock);
  return idle;
}

/* Sees which work has ended, without a wait: what was freed on a default stream, by an event on it
 * now; on others, by one in the next call on them. */
static bool look_for_ended(lm_device_pool *c, const lm_gpu_ops *gpu) {
  lm_stream_queue *queues[QUEUES];
  bool is_pending = false;
  unsigned n = list_queues(c, queues, QUEUES);
  look_at_all(c, gpu, false);
  for (unsigned i = 0; i < n; i++) {
    lm_stream_queue *q = queues[i];
    lm_lock_take(&c->lock);
    if (lm_device_pool_is_hosts(q)) q->done = q->batch++;
    if (lm_device_pool_is_hosts(q)) lm_device_pool_reclaim_locked(c, q);
    bool has = lm_device_pool_has_locked(q) && !q->events;
    if (has) q->wanted = true;
    lm_lock_drop(&c->lock);
    if (has && is_always_there(q)) (void)record(c, gpu, q);
    is_pending |= q->events > 0;
  }
  look_at_all(c, gpu, false);
  return is_pending;
}

/* Whether objects of host pools wait for work. */
static bool is_awaited(lm_device_pool *c) {
  bool is = false;
  lm_lock_take(&c->lock);
  for (const lm_stream_queue *q = c->queues; q && !is; q = q->next) is = q->away;
  is |= c->lost.away != NULL;
  lm_lock_drop(&c->lock);
  return is;
}

void lm_device_pool_poll_awaited(void) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  for (lm_device_pool *c = lm_device_pool_next(NULL, -1); gpu && c;
       c = lm_device_pool_next(c, -1)) {
    if (!is_awaited(c)) continue;
    lm_lock_take(&c->slow);
    want(c, gpu, NULL);
    look_at_all(c, gpu, false);
    lm_lock_drop(&c->slow);
  }
}

/* One extent, of `most` bytes at most; a chunk is ended with no lock held, as that may wait. */
static size_t give_back_one(lm_device_pool *c, const lm_gpu_ops *gpu, size_t most) {
  lm_lock_take(&c->slow);
  lm_extent *e = NULL;
  if (lm_device_pool_add_nodes(c)) {
    lm_lock_take(&c->lock);
    e = take_idle_locked(c, most);
    lm_lock_drop(&c->lock);
  }
  uintptr_t at = e ? e->at : 0;
  size_t size = e ? e->size : 0;
  bool is_chunk = e && let_go(c, gpu, e);
  lm_lock_drop(&c->slow);
  if (is_chunk) end_chunk(c, (void *)at, size);
  return size;
}

/* Whether there is something to do at a later tick. */
static bool decay(lm_device_pool *c, const lm_gpu_ops *gpu) {
  bool more;
  size_t given = 0, idle = idle_bytes(c, &more);
  if (!idle && !is_awaited(c)) return more;
  lm_lock_take(&c->slow);
  more |= look_for_ended(c, gpu);
  lm_lock_drop(&c->slow);
  while (given < idle) {
    size_t size = give_back_one(c, gpu, idle - given);
    if (!size) break;
    given += size;
  }
  return more || given;
}

bool lm_device_pool_decay(void) {
  bool more = false;
  lm_device_pool *c = lm_device_pool_next(NULL, -1);
  if (!c || !lm_gpu_begin()) return false;
  const lm_gpu_ops *gpu = lm_gpu_started();
  for (; gpu && c; c = lm_device_pool_next(c, -1)) more |= decay(c, gpu);
  if (!more) (void)lm_manager_flush(-1); /* chunks too few to go by themselves */
  lm_gpu_end();
  return more;
}

/* ---- Supplying ------------------------------------------------------------------------------ */

static lm_extent *find(lm_device_pool *c, lm_stream_queue *q, size_t size) {
  lm_lock_take(&c->lock);
  lm_extent *e = find_locked(c, q, size);
  lm_lock_drop(&c->lock);
  return e;
}

/* Bytes by which the cache would have more than it may for want of a run. */
static size_t excess(lm_device_pool *c, const lm_stream_queue *q, size_t size) {
  lm_lock_take(&c->lock);
  place p = choose_place(c, q, lm_device_pool_zone(size), size);
  size_t peak = c->live + size > c->peak ? c->live + size : c->peak;
  size_t may = peak + peak / 64 + c->slack + 2 * LM_ZONES * c->granularity;
  size_t has = c->mapped + (p.hole ? p.more : size);
  lm_lock_drop(&c->lock);
  return has > may ? has - may : 0;
}

/* Where more than a piece for 32 cuts is mapped anew, fragments may take memory after all. */
static void wear(lm_device_pool *c, size_t pieces) {
  lm_lock_take(&c->lock);
  c->remapped += pieces;
  if (c->remapped > PATIENCE + c->cuts / 32 && c->slack < c->peak / 4) c->slack += c->peak / 256;
  lm_lock_drop(&c->lock);
}

/* Before the cache grows: pieces that stand free elsewhere. This stream's are waited for. */
static void make_room(lm_device_pool *c, const lm_gpu_ops *gpu, lm_stream_queue *q, size_t size) {
  size_t over = c->maps ? excess(c, q, size) : 0;
  if (!over) return;
  size_t before = c->unmapped, given = give_back(c, gpu, over);
  if (given < over && q->bytes && record(c, gpu, q)) {
    look(c, gpu, q, true);
    (void)give_back(c, gpu, over - given);
  }
  wear(c, c->unmapped - before);
}

/* Where others take what it grew beside, it has grown all the same: so this ends. */
static lm_extent *grow_and_find(lm_device_pool *c, const lm_gpu_ops *gpu, lm_stream_queue *q,
                                size_t size, lm_gpu_result *result) {
  lm_extent *e;
  do *result = grow(c, gpu, q, size, &e);
  while (*result == LM_GPU_OK && !e);
  return e;
}

/* Not in a call on a stream that is captured for a graph: its work does not come to an end. */
static bool may_wait(const lm_device_pool *c, const lm_gpu_ops *gpu, const lm_stream_queue *q) {
  if (gpu->may_record(c->device, q->line.stream)) return true;
  lm_error(LOAM_ENOMEM, "device %d: no memory left, and stream %p is captured for a graph",
           c->device, q->line.stream);
  return false;
}

static lm_extent *supply(lm_device_pool *c, const lm_gpu_ops *gpu, lm_stream_queue *q, size_t size,
                         bool *is_short) {
  lm_gpu_result result;
  lm_extent *e = find(c, q, size);
  if (e) return e;
  look_at_all(c, gpu, false);
  if ((e = find(c, q, size))) return e;
  want(c, gpu, q);
  make_room(c, gpu, q, size);
  if ((e = find(c, q, size))) return e;
  if ((e = grow_and_find(c, gpu, q, size, &result))) return e;
  if (result == LM_GPU_GONE || result == LM_GPU_BROKEN) lm_device_pool_forget(c->device);
  if (result != LM_GPU_NO_MEMORY) return NULL;
  look_at_all(c, gpu, true);
  if ((e = find(c, q, size))) return e;
  if (!may_wait(c, gpu, q) || !synchronize(c, gpu)) return NULL;
  if ((e = find(c, q, size))) return e;
  bool more = give_back(c, gpu, SIZE_MAX) + lm_manager_flush(c->device);
  e = more ? grow_and_find(c, gpu, q, size, &result) : NULL;
  *is_short = !e && result == LM_GPU_NO_MEMORY;
  return e;
}

static lm_extent *supply_once(lm_device_pool *c, const lm_gpu_ops *gpu, size_t size,
                              lm_stream_ref line, bool *is_short) {
  lm_extent *e = NULL;
  lm_lock_take(&c->slow);
  if (lm_manager_is_foreign(LM_MANAGER_DEVICE)) c->maps = false;
  lm_lock_take(&c->lock);
  lm_stream_queue *q = lm_device_pool_queue_for_locked(c, line);
  lm_lock_drop(&c->lock);
  *is_short = false;
  know(c, gpu, q);
  if (q == &c->lost) lm_error(LOAM_ENOMEM, "no memory to know a stream by");
  else e = supply(c, gpu, q, size, is_short);
  lm_lock_drop(&c->slow);
  return e;
}

/* What the other pool of the device keeps. */
static bool trim_other(const lm_device_pool *c, const lm_gpu_ops *gpu) {
  size_t bytes = 0;
  lm_device_pool *other = lm_device_pool_next(NULL, c->device);
  for (; other; other = lm_device_pool_next(other, c->device)) {
    if (other == c || other->pinned.is_pinned || c->pinned.is_pinned) continue;
    lm_lock_take(&other->slow);
    bytes += trim(other, gpu);
    lm_lock_drop(&other->slow);
  }
  return bytes + lm_manager_flush(c->device);
}

void *lm_device_pool_take_slow(lm_device_pool *c, size_t size, lm_stream_ref line) {
  const lm_gpu_ops *gpu = lm_gpu();
  bool is_short;
  if (!gpu) return lm_error_null("%s", lm_gpu_why());
  if (!lm_manager(c->device)) return NULL;
  size = lm_device_pool_round(size);
  lm_extent *e = supply_once(c, gpu, size, line, &is_short);
  if (!e && is_short && trim_other(c, gpu)) e = supply_once(c, gpu, size, line, &is_short);
  lm_verify(lm_device_pool_is_valid());
  return e ? (void *)e->at : NULL;
}
