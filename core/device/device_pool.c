/* device_pool.c - what a cache has: taking, freeing, finding. device_pool_grow.c gets it. */
#include "device/device_pool.h"

#include <string.h>

#include "os/decay.h"
#include "os/error.h"
#include "os/thread.h"
#include "pages/metadata.h"

static struct {
  lm_lock making;
  _Atomic(lm_device_pool *) of[2][LM_DEVICES_MAX]; /* mapped, in chunks */
  _Atomic(lm_device_pool *) first;                 /* of all, those that are gone too */
} caches;

/* ---- Making -------------------------------------------------------------------------------- */

static lm_device_pool *cache_at(int device, bool in_chunks) {
  /* Acquire pairs with the release in make_locked: the cache is seen made. */
  return atomic_load_explicit(&caches.of[in_chunks][device], memory_order_acquire);
}

static void visit_each(void (*visit)(lm_device_pool *c)) {
  for (lm_device_pool *c = atomic_load_explicit(&caches.first, memory_order_acquire); c;
       c = c->older)
    visit(c);
}

static void take_lock(lm_device_pool *c) { lm_lock_take(&c->lock); }
static void drop_lock(lm_device_pool *c) { lm_lock_drop(&c->lock); }

static void renew_locks(lm_device_pool *c) {
  lm_lock_renew(&c->slow);
  lm_lock_renew(&c->lock);
}

/* `slow` is not taken around a fork: a driver may fork itself, and a child asks none of it. */
static void fork_prepare(void) {
  lm_lock_take(&caches.making);
  visit_each(take_lock);
}

static void fork_parent(void) {
  visit_each(drop_lock);
  lm_lock_drop(&caches.making);
}

static void fork_child(void) {
  visit_each(renew_locks);
  lm_lock_renew(&caches.making);
}

static lm_device_pool *make_locked(int device, bool in_chunks, const lm_pinned_desc *pinned) {
  static bool hooked;
  lm_gpu_info info;
  lm_device_pool *c = lm_metadata_alloc(sizeof *c);
  if (!c) return lm_error_null("device %d: no memory for what loam keeps of it", device);
  if (!hooked)
    lm_thread_add_hooks(&(lm_thread_hooks){ NULL, fork_prepare, fork_parent, fork_child });
  hooked = true;
  c->device = device;
  c->in_chunks = in_chunks;
  if (pinned) c->pinned = *pinned;
  c->lost.batch = 1;
  const lm_gpu_ops *gpu = lm_gpu_started();
  if (gpu && gpu->info(device, &info) == LM_GPU_OK) {
    c->total = info.total;
    c->maps = info.has_vmm && info.granularity && !pinned && !in_chunks;
    c->node = info.node;
    c->granularity = info.granularity;
  }
  c->older = atomic_load_explicit(&caches.first, memory_order_relaxed);
  atomic_store_explicit(&caches.first, c, memory_order_release);
  if (!pinned) atomic_store_explicit(&caches.of[in_chunks][device], c, memory_order_release);
  return c;
}

static bool is_cache_of(const lm_device_pool *c, int device, const lm_pinned_desc *p) {
  return c->device == device && c->pinned.is_pinned &&
         c->pinned.write_combined == p->write_combined &&
         !memcmp(&c->pinned.placement, &p->placement, sizeof p->placement);
}

lm_device_pool *lm_device_pool_next(const lm_device_pool *c, int device) {
  c = c ? c->older : atomic_load_explicit(&caches.first, memory_order_acquire);
  while (c && (c->gone || (device >= 0 && c->device != device))) c = c->older;
  return (lm_device_pool *)(uintptr_t)c;
}

static lm_device_pool *find_pinned(int device, const lm_pinned_desc *pinned) {
  lm_device_pool *c = lm_device_pool_next(NULL, device);
  while (c && !is_cache_of(c, device, pinned)) c = lm_device_pool_next(c, device);
  return c;
}

lm_device_pool *lm_device_pool_of_pinned(int device, const lm_pinned_desc *pinned) {
  lm_device_pool *c = find_pinned(device, pinned);
  if (lm_likely(c != NULL)) return c;
  lm_lock_take(&caches.making);
  c = find_pinned(device, pinned);
  if (!c) c = make_locked(device, false, pinned);
  lm_lock_drop(&caches.making);
  return c;
}

lm_device_pool *lm_device_pool_of(int device, bool in_chunks) {
  lm_device_pool *c = cache_at(device, in_chunks);
  if (lm_likely(c != NULL)) return c;
  lm_lock_take(&caches.making);
  c = cache_at(device, in_chunks);
  if (!c) c = make_locked(device, in_chunks, NULL);
  lm_lock_drop(&caches.making);
  return c;
}

/* ---- Nodes --------------------------------------------------------------------------------- */

enum { NODES = 32, NODES_LEAST = 4 };

lm_extent *lm_device_pool_take_node_locked(lm_device_pool *c) {
  lm_extent *e = c->nodes;
  if (e) c->nodes = e->next;
  if (e) c->spare_nodes--;
  return e;
}

void lm_device_pool_free_node_locked(lm_device_pool *c, lm_extent *e) {
  e->state = LM_EXTENT_NODE;
  e->next = c->nodes;
  c->nodes = e;
  c->spare_nodes++;
}

bool lm_device_pool_add_nodes_locked(lm_device_pool *c) {
  if (lm_likely(c->spare_nodes >= NODES_LEAST)) return true;
  lm_extent *more = lm_metadata_alloc(NODES * sizeof *more);
  for (int i = 0; more && i < NODES; i++) lm_device_pool_free_node_locked(c, &more[i]);
  return more;
}

bool lm_device_pool_add_nodes(lm_device_pool *c) {
  lm_lock_take(&c->lock);
  bool ok = lm_device_pool_add_nodes_locked(c);
  lm_lock_drop(&c->lock);
  return ok;
}

/* ---- Sets ---------------------------------------------------------------------------------- */

static lm_extents *set_of(lm_device_pool *c, const lm_extent *e) {
  if (e->state == LM_EXTENT_HOLE) return &c->holes[e->zone];
  return e->queue ? &e->queue->set[e->zone] : &c->common[e->zone];
}

static void put(lm_device_pool *c, lm_extent *e) {
  if (e->state == LM_EXTENT_FREE && e->queue) e->queue->bytes += e->size;
  lm_extents_put(set_of(c, e), e);
}

static void take_out(lm_device_pool *c, lm_extent *e) {
  if (e->state == LM_EXTENT_FREE && e->queue) e->queue->bytes -= e->size;
  lm_extents_remove(set_of(c, e), e);
}

/* Makes one of two neighbours that are in no set; `e` goes on to be. */
static void absorb_after(lm_device_pool *c, lm_extent *e) {
  if (e->after->batch > e->batch) e->batch = e->after->batch;
  lm_device_pool_free_node_locked(c, lm_extent_join(e));
}

static lm_extent *absorb_before(lm_device_pool *c, lm_extent *e) {
  lm_extent *front = e->before;
  if (front->batch > e->batch) e->batch = front->batch;
  front->batch = e->batch;
  front->queue = e->queue;
  front->state = e->state;
  lm_device_pool_free_node_locked(c, lm_extent_join(front));
  return front;
}

/* While one stream uses the cache, what is common may as well be its own. */
static bool can_join(const lm_device_pool *c, const lm_extent *e, const lm_extent *with) {
  if (!with || with->state != e->state) return false;
  if (e->state == LM_EXTENT_HOLE || with->queue == e->queue) return true;
  return !with->queue && c->queues && !c->queues->next && e->queue == c->queues;
}

static void join(lm_device_pool *c, lm_extent *e) {
  while (can_join(c, e, e->after)) {
    take_out(c, e->after);
    absorb_after(c, e);
  }
  while (can_join(c, e, e->before)) {
    take_out(c, e->before);
    e = absorb_before(c, e);
  }
  put(c, e);
}

void lm_device_pool_release_locked(lm_device_pool *c, lm_extent *e) {
  e->state = LM_EXTENT_FREE;
  join(c, e);
}

void lm_device_pool_hole_locked(lm_device_pool *c, lm_extent *e) {
  e->state = LM_EXTENT_HOLE;
  e->queue = NULL;
  e->batch = 0;
  join(c, e);
}

static lm_extent *cut_rest(lm_device_pool *c, lm_extent *e, size_t size) {
  lm_extent *rest = lm_device_pool_take_node_locked(c);
  lm_extent_split(e, size, rest);
  return rest;
}

lm_extent *lm_device_pool_cut_locked(lm_device_pool *c, lm_extent *e, uintptr_t at, size_t size) {
  if (c->spare_nodes < 2) return NULL;
  take_out(c, e);
  if (at > e->at) {
    lm_extent *front = e;
    e = cut_rest(c, e, at - e->at);
    put(c, front);
  }
  if (e->size > size) put(c, cut_rest(c, e, size));
  return e;
}

/* ---- Queues -------------------------------------------------------------------------------- */

enum { HOST = -1 }; /* in place of a thread: of no stream */

static const lm_stream per_thread = (lm_stream)2; /* CU_STREAM_PER_THREAD */

/* Streams up to it are default ones, of every context. */
static bool is_default(lm_stream stream) { return (uintptr_t)stream <= LM_STREAM_DEFAULT; }

static lm_stream_ref line_on(int device, lm_stream stream) {
  const lm_gpu_ops *gpu = is_default(stream) ? lm_gpu_started() : NULL;
  return (lm_stream_ref){ stream, gpu ? gpu->context(device) : NULL };
}

/* What is freed for reuse by the host needs no order. */
lm_stream_ref lm_device_pool_stream(const lm_device_pool *c, lm_stream stream) {
  return c->pinned.is_pinned ? (lm_stream_ref){ 0 } : line_on(c->device, stream);
}

lm_stream_ref lm_device_pool_stream_on(const lm_device_pool *c, lm_stream stream) {
  return line_on(c->device, stream);
}

lm_stream_ref lm_device_pool_stream_at(const void *p, lm_stream stream) {
  const lm_extent_range *r = is_default(stream) ? lm_extent_range_of((uintptr_t)p) : NULL;
  return r ? line_on(r->cache->device, stream) : (lm_stream_ref){ .stream = stream };
}

static bool is_queue_of(const lm_stream_queue *q, lm_stream_ref line, int thread) {
  return q->line.stream == line.stream && q->line.context == line.context && q->thread == thread;
}

bool lm_device_pool_is_hosts(const lm_stream_queue *q) { return q->thread == HOST; }

static lm_stream_queue *make_queue(lm_device_pool *c, lm_stream_ref line, int thread) {
  lm_stream_queue *q = lm_metadata_alloc(sizeof *q);
  if (!q) return &c->lost;
  q->line = line;
  q->thread = thread;
  q->context = line.context;
  q->is_known = lm_device_pool_is_hosts(q);
  q->batch = 1;
  q->next = c->queues;
  return c->queues = q;
}

static lm_stream_queue *find_queue_locked(lm_device_pool *c, lm_stream_ref line, int thread) {
  lm_stream_queue *q = c->queues;
  if (lm_likely(q && is_queue_of(q, line, thread))) return q;
  for (lm_stream_queue **at = &c->queues; (q = *at); at = &q->next) {
    if (!is_queue_of(q, line, thread)) continue;
    *at = q->next;
    q->next = c->queues;
    return c->queues = q;
  }
  return make_queue(c, line, thread);
}

lm_stream_queue *lm_device_pool_queue_locked(lm_device_pool *c, lm_stream_ref line) {
  int thread = line.stream == per_thread && lm_thread_self ? lm_thread_self->number : 0;
  return find_queue_locked(c, line, thread);
}

lm_stream_queue *lm_device_pool_queue_for_locked(lm_device_pool *c, lm_stream_ref line) {
  return c->pinned.is_pinned ? find_queue_locked(c, (lm_stream_ref){ 0 }, HOST)
                             : lm_device_pool_queue_locked(c, line);
}

/* ---- The front ----------------------------------------------------------------------------- */

static lm_extent **front_of(lm_stream_queue *q, size_t size) {
  uint64_t units = size >> 9;
  return &q->front[(units ^ units >> 6 ^ units >> 12) & (LM_QUEUE_FRONT - 1)];
}

static void join_front(lm_device_pool *c, lm_stream_queue *q, lm_extent **front) {
  while (*front) {
    lm_extent *e = *front;
    *front = e->next;
    q->bytes -= e->size;
    lm_device_pool_release_locked(c, e);
  }
}

void lm_device_pool_join_fronts_locked(lm_device_pool *c, lm_stream_queue *q) {
  for (int i = 0; i < LM_QUEUE_FRONT; i++) join_front(c, q, &q->front[i]);
}

static void keep(lm_device_pool *c, lm_stream_queue *q, lm_extent *e) {
  lm_extent **front = front_of(q, e->size);
  if (*front && (*front)->size != e->size) join_front(c, q, front);
  e->state = LM_EXTENT_KEPT;
  e->queue = q;
  e->batch = q->batch;
  e->next = *front;
  *front = e;
  q->bytes += e->size;
}

static lm_extent *take_front(lm_stream_queue *q, size_t size) {
  lm_extent **front = front_of(q, size), *e = *front;
  if (!e || e->size != size) return NULL;
  *front = e->next;
  q->bytes -= e->size;
  return e;
}

/* ---- Taking -------------------------------------------------------------------------------- */

enum { SMALL_SHIFT = 9, LARGE_SHIFT = 12 };

size_t lm_device_pool_round(size_t size) {
  size_t step = (size_t)1 << (size <= LM_DEVICE_POOL_SMALL ? SMALL_SHIFT : LARGE_SHIFT);
  return size ? lm_align_up(size, step) : step;
}

size_t lm_device_pool_round_aligned(size_t size, size_t align) {
  bool is_large = align > (size_t)1 << SMALL_SHIFT && size <= LM_DEVICE_POOL_SMALL;
  return lm_device_pool_round(is_large ? LM_DEVICE_POOL_SMALL + 1 : size);
}

static lm_extent *fit(lm_device_pool *c, const lm_extents *set, size_t size) {
  lm_extent *e = lm_extents_fit(set, size);
  if (!e) return NULL;
  if (!lm_device_pool_add_nodes_locked(c)) { /* whole, then */
    take_out(c, e);
    return e;
  }
  return lm_device_pool_cut_locked(c, e, e->at, size);
}

bool lm_device_pool_can_join(const lm_stream_queue *q, const lm_extent *e) {
  return e && e->state == LM_EXTENT_FREE && (!e->queue || e->queue == q);
}

void lm_device_pool_adopt_locked(lm_device_pool *c, lm_stream_queue *q, lm_extent *e) {
  e->state = LM_EXTENT_FREE;
  e->queue = q;
  while (lm_device_pool_can_join(q, e->after)) {
    take_out(c, e->after);
    absorb_after(c, e);
  }
  while (lm_device_pool_can_join(q, e->before)) {
    take_out(c, e->before);
    e = absorb_before(c, e);
  }
  put(c, e);
}

enum { RUNS = 256 }; /* looked at */

/* Makes one of the queue's own and what is common beside it, where that is enough. */
static bool gather(lm_device_pool *c, lm_stream_queue *q, int zone, size_t size) {
  unsigned looked = 0;
  const lm_extents *set = &q->set[zone];
  for (unsigned list = LM_EXTENT_LISTS; list-- > 0 && looked < RUNS;)
    for (lm_extent *e = set->head[list]; e && looked < RUNS; e = e->next, looked++) {
      size_t has = e->size;
      for (const lm_extent *b = e->before; lm_device_pool_can_join(q, b); b = b->before)
        has += b->size;
      for (const lm_extent *a = e->after; lm_device_pool_can_join(q, a); a = a->after)
        has += a->size;
      if (has < size) continue;
      take_out(c, e);
      lm_device_pool_adopt_locked(c, q, e);
      return true;
    }
  return false;
}

lm_extent *lm_device_pool_take_locked(lm_device_pool *c, lm_stream_queue *q, size_t size) {
  int zone = lm_device_pool_zone(size);
  lm_extent *e = take_front(q, size);
  if (lm_likely(e != NULL)) return e;
  c->cuts++;
  e = zone == LM_ZONE_LARGE ? NULL : fit(c, &q->set[zone], size);
  if (e) return e;
  lm_device_pool_join_fronts_locked(c, q);
  e = fit(c, &q->set[zone], size);
  if (!e) e = fit(c, &c->common[zone], size);
  if (!e && gather(c, q, zone, size)) e = fit(c, &q->set[zone], size);
  return e;
}

static void describe(const lm_device_pool *c, const lm_extent *e, lm_provided *out) {
  *out = (lm_provided){
    .base = (void *)e->at,
    .made = (void *)e->at,
    .size = e->size,
    .token = e->token,
    .strategy = e->strategy,
    .stream = e->queue->line.stream,
    .maker = LM_PROVIDER_POOL,
    .device = c->device,
    .want = e->want,
  };
}

static void settle_on(lm_device_pool *c, lm_extent *e, lm_stream_queue *q,
                      const lm_device_owner *owner) {
  e->queue = q;
  e->token = owner->token;
  e->strategy = (uint16_t)owner->strategy;
  e->want = owner->want;
  e->key = 0;
  e->state = LM_EXTENT_LIVE;
  c->live += e->size;
  if (c->live > c->recent) c->recent = c->live;
  if (c->live > c->peak) c->peak = c->live;
}

bool lm_device_pool_take(lm_device_pool *c, size_t size, lm_stream_ref line,
                         const lm_device_owner *owner, lm_provided *out) {
  lm_lock_take(&c->lock);
  lm_stream_queue *q = lm_device_pool_queue_for_locked(c, line);
  lm_extent *e = lm_unlikely(!q->is_known)
                     ? NULL
                     : lm_device_pool_take_locked(c, q, lm_device_pool_round(size));
  if (e) {
    settle_on(c, e, q, owner);
    describe(c, e, out);
  }
  lm_lock_drop(&c->lock);
  return e;
}

void lm_device_pool_set_owner(lm_device_pool *c, void *at, const lm_device_owner *owner,
                              lm_provided *out) {
  lm_lock_take(&c->lock);
  lm_extent *e = lm_extent_range_start(lm_extent_range_of((uintptr_t)at), (uintptr_t)at);
  settle_on(c, e, e->queue, owner);
  describe(c, e, out);
  lm_lock_drop(&c->lock);
}

/* ---- Freeing ------------------------------------------------------------------------------- */

lm_device_pool *lm_device_pool_lock_of(uintptr_t at, lm_extent_range **out) {
  lm_extent_range *r = lm_extent_range_of(at);
  if (!r) return NULL;
  lm_device_pool *c = r->cache;
  lm_lock_take(&c->lock);
  *out = r;
  if (r->start && at - r->base < r->size) return c;
  lm_lock_drop(&c->lock);
  return NULL;
}

bool lm_device_pool_free(const void *p, const lm_stream_ref *on, lm_provided *out,
                         lm_device_pool **attend) {
  lm_extent_range *r;
  lm_device_pool *c = lm_device_pool_lock_of((uintptr_t)p, &r);
  if (!c) return false;
  lm_extent *e = lm_extent_range_start(r, (uintptr_t)p);
  bool is_live = e && e->state == LM_EXTENT_LIVE;
  *attend = NULL;
  if (is_live) {
    describe(c, e, out);
    lm_stream_queue *q = on ? lm_device_pool_queue_locked(c, *on) : e->queue;
    c->live -= e->size;
    keep(c, q, e);
    if (on) out->stream = on->stream;
    if (lm_unlikely(q->wanted || !q->is_known) && on) *attend = c;
  }
  lm_lock_drop(&c->lock);
  if (is_live) lm_decay_stir();
  return is_live;
}

static void move_done(lm_device_pool *c, lm_stream_queue *q, lm_extents *set) {
  for (unsigned list = 0; list < LM_EXTENT_LISTS; list++) {
    lm_extent *next;
    for (lm_extent *e = set->head[list]; e; e = next) {
      next = e->next;
      if (e->batch > q->done) continue;
      take_out(c, e);
      e->queue = NULL;
      e->batch = 0;
      lm_device_pool_release_locked(c, e);
    }
  }
}

/* Batches only rise. */
static void come_home(lm_device_pool *c, lm_stream_queue *q) {
  lm_extent **at = &q->away;
  while (*at && (*at)->batch > q->done) at = &(*at)->next;
  lm_extent *e = *at;
  *at = NULL;
  for (lm_extent *next; e; e = next) {
    next = e->next;
    e->next = c->home;
    c->home = e;
  }
}

bool lm_device_pool_await(lm_device_pool *c, void *p, lm_stream_ref line, bool *attend) {
  lm_lock_take(&c->lock);
  lm_extent *e = lm_device_pool_add_nodes_locked(c) ? lm_device_pool_take_node_locked(c) : NULL;
  if (e) {
    lm_stream_queue *q = lm_device_pool_queue_locked(c, line);
    e->at = (uintptr_t)p;
    e->batch = q->batch;
    e->next = q->away;
    q->away = e;
    *attend = q->wanted || !q->is_known;
  }
  lm_lock_drop(&c->lock);
  return e;
}

void *lm_device_pool_awaited(lm_device_pool *c) {
  lm_lock_take(&c->lock);
  lm_extent *e = c->home;
  void *p = e ? (void *)e->at : NULL;
  if (e) c->home = e->next;
  if (e) lm_device_pool_free_node_locked(c, e);
  lm_lock_drop(&c->lock);
  return p;
}

void lm_device_pool_reclaim_locked(lm_device_pool *c, lm_stream_queue *q) {
  if (q->away) come_home(c, q);
  if (!q->bytes) return;
  lm_device_pool_join_fronts_locked(c, q);
  for (int zone = 0; zone < LM_ZONES; zone++) move_done(c, q, &q->set[zone]);
}

/* ---- Finding ------------------------------------------------------------------------------- */

bool lm_device_pool_find(const void *p, lm_provided *out) {
  lm_extent_range *r;
  lm_device_pool *c = lm_device_pool_lock_of((uintptr_t)p, &r);
  if (!c) return false;
  lm_extent *e = lm_extent_range_find(r, (uintptr_t)p);
  bool is_live = e->state == LM_EXTENT_LIVE;
  if (is_live) describe(c, e, out);
  lm_lock_drop(&c->lock);
  return is_live;
}

static void visit_range(const lm_device_pool *c, const lm_extent_range *r,
                        void (*visit)(void *ctx, lm_provided *block), void *ctx) {
  lm_provided block;
  for (lm_extent *e = r->first; e; e = e->after) {
    if (e->state != LM_EXTENT_LIVE) continue;
    describe(c, e, &block);
    visit(ctx, &block);
    e->token = block.token;
  }
}

void lm_device_pool_each(void (*visit)(void *ctx, lm_provided *block), void *ctx) {
  lm_device_pool *c = atomic_load_explicit(&caches.first, memory_order_acquire);
  for (; c; c = c->older) {
    lm_lock_take(&c->lock);
    for (const lm_extent_range *r = c->ranges; r; r = r->next) visit_range(c, r, visit, ctx);
    lm_lock_drop(&c->lock);
  }
}

void lm_device_pool_figures(int device, size_t *mapped, size_t *live) {
  *mapped = *live = 0;
  for (lm_device_pool *c = lm_device_pool_next(NULL, device); c;
       c = lm_device_pool_next(c, device)) {
    if (c->pinned.is_pinned) continue;
    lm_lock_take(&c->lock);
    *mapped += c->mapped;
    *live += c->live;
    lm_lock_drop(&c->lock);
  }
}

/* ---- The end of a context ------------------------------------------------------------------ */

void lm_device_pool_forget(int device) {
  lm_lock_take(&caches.making);
  for (int in_chunks = 0; in_chunks < 2; in_chunks++) {
    lm_device_pool *c = cache_at(device, in_chunks);
    if (!c) continue;
    atomic_store_explicit(&caches.of[in_chunks][device], NULL, memory_order_release);
    c->gone = true;
  }
  lm_lock_drop(&caches.making);
}

/* ---- Validity ------------------------------------------------------------------------------ */

static bool is_set_of(const lm_extents *set, lm_extent_state state, const lm_stream_queue *q,
                      int zone) {
  for (unsigned list = 0; list < LM_EXTENT_LISTS; list++)
    for (const lm_extent *e = set->head[list]; e; e = e->next)
      if (e->state != state || e->queue != q || e->zone != zone) return false;
  return lm_extents_is_valid(set);
}

static bool is_valid_queue(const lm_stream_queue *q) {
  size_t bytes = 0;
  for (int zone = 0; zone < LM_ZONES; zone++) {
    if (!is_set_of(&q->set[zone], LM_EXTENT_FREE, q, zone)) return false;
    bytes += q->set[zone].bytes;
  }
  for (int i = 0; i < LM_QUEUE_FRONT; i++)
    for (const lm_extent *e = q->front[i]; e; bytes += e->size, e = e->next)
      if (e->state != LM_EXTENT_KEPT || e->queue != q || e->size != q->front[i]->size) return false;
  return bytes == q->bytes && q->done < q->batch;
}

static bool is_valid_locked(const lm_device_pool *c) {
  size_t has = c->live + c->lost.bytes, mapped = 0;
  for (int zone = 0; zone < LM_ZONES; zone++) {
    if (!is_set_of(&c->common[zone], LM_EXTENT_FREE, NULL, zone)) return false;
    if (!is_set_of(&c->holes[zone], LM_EXTENT_HOLE, NULL, zone)) return false;
    has += c->common[zone].bytes;
  }
  for (const lm_stream_queue *q = c->queues; q; has += q->bytes, q = q->next)
    if (!is_valid_queue(q)) return false;
  for (const lm_extent_range *r = c->ranges; r; r = r->next) {
    if (!lm_extent_range_is_valid(r)) return false;
    for (const lm_extent *e = r->first; e; e = e->after) {
      if (e->state == LM_EXTENT_BUSY) has += e->size;
      if (e->state != LM_EXTENT_HOLE) mapped += e->size;
    }
  }
  return has == mapped && mapped == c->mapped;
}

bool lm_device_pool_is_valid(void) {
  bool valid = true;
  lm_device_pool *c = atomic_load_explicit(&caches.first, memory_order_acquire);
  for (; c; c = c->older) {
    lm_lock_take(&c->lock);
    valid = valid && is_valid_locked(c);
    lm_lock_drop(&c->lock);
  }
  return valid;
}
