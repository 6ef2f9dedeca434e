/* device_pool.c - the memory that a pool has: blocks are allocated, freed and found without a call
 * of the driver. device_pool_grow.c gets the memory from the driver. device_pool.h has the laws. */
#include "device/device_pool_parts.h"

#include <string.h>

#include "os/decay.h"
#include "os/error.h"
#include "os/thread.h"
#include "pages/metadata.h"

static LM_SPARSE struct {
  lm_lock making; /* held by the thread that makes a pool or forgets one */
  /* "cache" of each device, and the "chunks" that was used last. The release of the thread that
   * made a pool pairs with the acquire of a thread that reads the pointer. */
  _Atomic(lm_device_pool *) of[2][LM_DEVICES_MAX];
  /* The list of all pools, by `older`. It also has those whose context is gone. The release of the
   * thread that made a pool pairs with the acquire of a thread that walks the list. */
  _Atomic(lm_device_pool *) first;
} pools;

const _Atomic(lm_device_pool *) *const lm_device_pool_outside = &pools.first;

/* ---- Making a pool */

static lm_device_pool *pool_at(int device, bool in_chunks) {
  lm_assert(device >= 0 && device < LM_DEVICES_MAX);
  return atomic_load_explicit(&pools.of[in_chunks][device], memory_order_acquire);
}

static void visit_each(void (*visit)(lm_device_pool *pool)) {
  for (lm_device_pool *pool = atomic_load_explicit(&pools.first, memory_order_acquire); pool;
       pool = pool->older)
    visit(pool);
}

static void renew_locks(lm_device_pool *pool) {
  lm_lock_renew(&pool->slow);
  lm_lock_renew(&pool->lock);
}

/* A child makes no call of the driver, and so it uses nothing that `slow` guards. */
static void fork_child(void) {
  visit_each(renew_locks);
  lm_lock_renew(&pools.making);
}

/* Which pool: `context` is for "chunks" and pinned memory, `pinned` for pinned memory. */
typedef struct pool_key {
  int device;
  bool in_chunks;
  void *context;
  const lm_pinned_desc *pinned;
} pool_key;

static lm_device_pool *make_locked(const pool_key *key) {
  int device = key->device;
  static bool has_hooks;
  lm_gpu_info info;
  lm_device_pool *pool = lm_metadata_alloc(sizeof *pool);
  if (!pool) return lm_error_null("device %d: no memory to describe a pool", device);
  if (!has_hooks) lm_thread_add_hooks(&(lm_thread_hooks){ .fork_child = fork_child });
  has_hooks = true;
  pool->device = device;
  pool->in_chunks = key->in_chunks;
  pool->context = key->context;
  if (key->pinned) pool->pinned = *key->pinned;
  pool->unknown.batch = 1;
  pool->node = -1;
  const lm_gpu_ops *gpu = lm_gpu_started();
  if (gpu && gpu->info(device, &info) == LM_GPU_OK) {
    pool->total = info.total;
    bool can_map = info.has_vmm && info.granularity && !key->pinned && !key->in_chunks;
    atomic_store_explicit(&pool->uses_vmm, can_map, memory_order_relaxed);
    pool->node = info.node;
    pool->granularity = info.granularity;
    lm_assert(!can_map || lm_is_pow2(pool->granularity));
  }
  pool->older = atomic_load_explicit(&pools.first, memory_order_relaxed);
  atomic_store_explicit(&pools.first, pool, memory_order_release);
  return pool;
}

/* Returns whether the pool is the one for pinned memory of this kind. */
static bool is_pinned_pool(const lm_device_pool *pool, const pool_key *key) {
  const lm_pinned_desc *p = key->pinned;
  return pool->device == key->device && pool->context == key->context && pool->pinned.is_pinned &&
         pool->pinned.write_combined == p->write_combined &&
         !memcmp(&pool->pinned.placement, &p->placement, sizeof p->placement);
}

lm_device_pool *lm_device_pool_next(const lm_device_pool *pool, int device) {
  pool = pool ? pool->older : atomic_load_explicit(&pools.first, memory_order_acquire);
  while (pool && (pool->gone || (device >= 0 && pool->device != device))) pool = pool->older;
  return (lm_device_pool *)(uintptr_t)pool;
}

static lm_device_pool *find_pinned(const pool_key *key) {
  lm_device_pool *pool = lm_device_pool_next(NULL, key->device);
  while (pool && !is_pinned_pool(pool, key)) pool = lm_device_pool_next(pool, key->device);
  return pool;
}

lm_device_pool *lm_device_pool_of_pinned(int device, void *context, const lm_pinned_desc *pinned) {
  pool_key key = { .device = device, .context = context, .pinned = pinned };
  lm_assert(pinned->is_pinned && device >= 0 && device < LM_DEVICES_MAX);
  lm_device_pool *pool = find_pinned(&key);
  if (lm_likely(pool != NULL)) return pool;
  lm_lock_take(&pools.making);
  pool = find_pinned(&key);
  if (!pool) pool = make_locked(&key);
  lm_lock_drop(&pools.making);
  return pool;
}

/* Returns the context that a driver call on the device would use now. If that is the primary
 * context and loam has not retained it yet, it is retained now, so that it has a name. */
static void *context_of(int device) {
  void *scope;
  const lm_gpu_ops *gpu = lm_gpu_started();
  void *context = gpu ? gpu->context(device) : NULL;
  if (!gpu || context || gpu->push_context(device, NULL, &scope) != LM_GPU_OK) return context;
  context = gpu->context(device);
  gpu->pop(scope);
  return context;
}

static bool is_pool_of(const lm_device_pool *pool, const pool_key *key) {
  return !pool->pinned.is_pinned && pool->in_chunks == key->in_chunks &&
         pool->context == key->context;
}

static lm_device_pool *find_locked(const pool_key *key) {
  lm_device_pool *pool = lm_device_pool_next(NULL, key->device);
  while (pool && !is_pool_of(pool, key)) pool = lm_device_pool_next(pool, key->device);
  return pool;
}

lm_device_pool *lm_device_pool_of(int device, bool in_chunks) {
  pool_key key = { .device = device, .in_chunks = in_chunks };
  if (in_chunks) key.context = context_of(device);
  lm_device_pool *pool = pool_at(device, in_chunks);
  if (lm_likely(pool != NULL) && pool->context == key.context) return pool;
  lm_lock_take(&pools.making);
  pool = find_locked(&key);
  if (!pool) pool = make_locked(&key);
  if (pool) atomic_store_explicit(&pools.of[in_chunks][device], pool, memory_order_release);
  lm_lock_drop(&pools.making);
  return pool;
}

/* ---- Nodes */

/* Nodes are made NODES at a time, when fewer than NODES_LEAST are left: a cut takes two at most. */
enum { NODES = 32, NODES_LEAST = 4 };

lm_extent *lm_device_pool_take_node_locked(lm_device_pool *pool) {
  lm_extent *e = pool->nodes;
  lm_assert(lm_lock_is_held(&pool->lock));
  lm_assert(!e == !pool->spare_nodes && (!e || e->state == LM_EXTENT_NODE));
  if (e) pool->nodes = e->next;
  if (e) pool->spare_nodes--;
  return e;
}

void lm_device_pool_free_node_locked(lm_device_pool *pool, lm_extent *e) {
  lm_assert(lm_lock_is_held(&pool->lock));
  e->state = LM_EXTENT_NODE;
  e->next = pool->nodes;
  pool->nodes = e;
  pool->spare_nodes++;
}

bool lm_device_pool_add_nodes_locked(lm_device_pool *pool) {
  if (lm_likely(pool->spare_nodes >= NODES_LEAST)) return true;
  lm_extent *more = lm_metadata_alloc(NODES * sizeof *more);
  for (int i = 0; more && i < NODES; i++) lm_device_pool_free_node_locked(pool, &more[i]);
  return more;
}

bool lm_device_pool_add_nodes(lm_device_pool *pool) {
  lm_lock_take(&pool->lock);
  bool ok = lm_device_pool_add_nodes_locked(pool);
  lm_lock_drop(&pool->lock);
  return ok;
}

/* ---- Sets */

/* Returns the set that a FREE extent or a hole belongs in. */
static lm_extents *set_of(lm_device_pool *pool, const lm_extent *e) {
  lm_assert(e->state == LM_EXTENT_FREE || e->state == LM_EXTENT_HOLE);
  lm_assert(e->zone < LM_ZONES && e->range->pool == pool);
  if (e->state == LM_EXTENT_HOLE) return &pool->holes[e->zone];
  return e->queue ? &e->queue->set[e->zone] : &pool->common[e->zone];
}

static void put_in_own_set(lm_device_pool *pool, lm_extent *e) {
  if (e->state == LM_EXTENT_FREE && e->queue) e->queue->bytes += e->size;
  lm_extents_put(set_of(pool, e), e);
}

static void take_from_own_set(lm_device_pool *pool, lm_extent *e) {
  if (e->state == LM_EXTENT_FREE && e->queue) e->queue->bytes -= e->size;
  lm_extents_remove(set_of(pool, e), e);
}

/* Joins `e` with its neighbour behind, which is in no set either. The joined extent has the later
 * batch of the two: its memory is free only when the work of both has ended. */
static void absorb_after(lm_device_pool *pool, lm_extent *e) {
  if (e->after->batch > e->batch) e->batch = e->after->batch;
  lm_device_pool_free_node_locked(pool, lm_extent_join(e));
}

/* Joins `e` with its neighbour in front, which becomes what `e` was. Returns it. */
static lm_extent *absorb_before(lm_device_pool *pool, lm_extent *e) {
  lm_extent *front = e->before;
  if (front->batch > e->batch) e->batch = front->batch;
  front->batch = e->batch;
  front->queue = e->queue;
  front->state = e->state;
  lm_device_pool_free_node_locked(pool, lm_extent_join(front));
  return front;
}

/* Returns whether `e`, of which the state is set, may join with a neighbour. While only one stream
 * uses the pool, its memory also joins with common memory: no other stream has to wait for that. */
static bool can_join(const lm_device_pool *pool, const lm_extent *e, const lm_extent *with) {
  if (!with || with->state != e->state) return false;
  if (e->state == LM_EXTENT_HOLE || with->queue == e->queue) return true;
  return !with->queue && pool->queues && !pool->queues->next && e->queue == pool->queues;
}

/* Joins an extent, which is in no set, with its neighbours, and puts it in its set. */
static void join(lm_device_pool *pool, lm_extent *e) {
  lm_assert(lm_lock_is_held(&pool->lock));
  while (can_join(pool, e, e->after)) {
    take_from_own_set(pool, e->after);
    absorb_after(pool, e);
  }
  while (can_join(pool, e, e->before)) {
    take_from_own_set(pool, e->before);
    e = absorb_before(pool, e);
  }
  put_in_own_set(pool, e);
}

void lm_device_pool_release_locked(lm_device_pool *pool, lm_extent *e) {
  e->state = LM_EXTENT_FREE;
  join(pool, e);
}

void lm_device_pool_make_hole_locked(lm_device_pool *pool, lm_extent *e) {
  e->state = LM_EXTENT_HOLE;
  e->queue = NULL;
  e->batch = 0;
  join(pool, e);
}

static lm_extent *cut_rest(lm_device_pool *pool, lm_extent *e, size_t size) {
  lm_extent *rest = lm_device_pool_take_node_locked(pool);
  lm_extent_split(e, size, rest);
  return rest;
}

lm_extent *lm_device_pool_cut_locked(lm_device_pool *pool, lm_extent *e, uintptr_t at,
                                     size_t size) {
  lm_assert(at >= e->at && at - e->at < e->size && size <= e->size - (at - e->at));
  if (pool->spare_nodes < 2) return NULL;
  take_from_own_set(pool, e);
  if (at > e->at) {
    lm_extent *front = e;
    e = cut_rest(pool, e, at - e->at);
    put_in_own_set(pool, front);
  }
  if (e->size > size) put_in_own_set(pool, cut_rest(pool, e, size));
  return e;
}

/* ---- Queues */

enum { HOST_THREAD = -1 }; /* the `thread` of a queue of memory that no stream uses */

static const lm_stream per_thread = (lm_stream)2; /* CU_STREAM_PER_THREAD */

/* Returns whether the stream is a default stream: each context has its own. */
static bool is_default(lm_stream stream) { return (uintptr_t)stream <= LM_STREAM_DEFAULT; }

/* Names a stream. A default stream belongs to the context that a driver call would use now. */
static lm_stream_ref make_ref(int device, lm_stream stream) {
  const lm_gpu_ops *gpu = is_default(stream) ? lm_gpu_started() : NULL;
  return (lm_stream_ref){ .stream = stream, .context = gpu ? gpu->context(device) : NULL };
}

lm_stream_ref lm_device_pool_stream(const lm_device_pool *pool, lm_want want, lm_stream stream) {
  if (pool->pinned.is_pinned && want != LM_WANT_DEVICE) return (lm_stream_ref){ .is_none = true };
  return (lm_stream_ref){ .stream = stream,
                          .context = is_default(stream) ? context_of(pool->device) : NULL };
}

lm_stream_ref lm_device_pool_stream_on(const lm_device_pool *pool, lm_stream stream) {
  return make_ref(pool->device, stream);
}

lm_stream_ref lm_device_pool_stream_at(const void *p, lm_stream stream) {
  const lm_extent_range *r = is_default(stream) ? lm_extent_range_of((uintptr_t)p) : NULL;
  return r ? make_ref(r->pool->device, stream) : (lm_stream_ref){ .stream = stream };
}

static bool is_queue_of(const lm_stream_queue *q, lm_stream_ref ref, int thread) {
  return q->ref.stream == ref.stream && q->ref.context == ref.context && q->thread == thread;
}

bool lm_device_pool_is_host_queue(const lm_stream_queue *q) { return q->thread == HOST_THREAD; }

/* Makes a queue; &pool->unknown if there is no memory. */
static lm_stream_queue *make_queue(lm_device_pool *pool, lm_stream_ref ref, int thread) {
  lm_stream_queue *q = lm_metadata_alloc(sizeof *q);
  if (!q) return &pool->unknown;
  q->ref = ref;
  q->thread = thread;
  q->context = ref.context;
  q->is_known = lm_device_pool_is_host_queue(q);
  q->batch = 1;
  q->next = pool->queues;
  return pool->queues = q;
}

/* Returns the queue of a stream, which moves to the front of the list; makes it if need be. */
static lm_stream_queue *find_queue_locked(lm_device_pool *pool, lm_stream_ref ref, int thread) {
  lm_stream_queue *q = pool->queues;
  lm_assert(lm_lock_is_held(&pool->lock));
  if (lm_likely(q && is_queue_of(q, ref, thread))) return q;
  for (lm_stream_queue **at = &pool->queues; (q = *at); at = &q->next) {
    if (!is_queue_of(q, ref, thread)) continue;
    *at = q->next;
    q->next = pool->queues;
    return pool->queues = q;
  }
  return make_queue(pool, ref, thread);
}

lm_stream_queue *lm_device_pool_queue_locked(lm_device_pool *pool, lm_stream_ref ref) {
  int thread = ref.stream == per_thread && lm_thread_self ? lm_thread_self->tid : 0;
  lm_assert(!ref.is_none || (pool->pinned.is_pinned && !ref.stream && !ref.context));
  return find_queue_locked(pool, ref, ref.is_none ? HOST_THREAD : thread);
}

/* A queue that is made again for the stream asks the driver for the stream's context again. */
void lm_device_pool_end_queues(lm_device_pool *pool) {
  lm_assert(lm_lock_is_held(&pool->slow));
  lm_lock_take(&pool->lock);
  for (lm_stream_queue **at = &pool->queues, *q; (q = *at);) {
    if (q->blocks || q->events || lm_device_pool_queue_has_locked(q)) {
      at = &q->next;
      continue;
    }
    *at = q->next;
    lm_metadata_free(q);
  }
  lm_lock_drop(&pool->lock);
}

/* ---- Front lists */

/* Returns the front list of a size: by a hash of the size in units of 512 bytes. */
static lm_extent **front_list(lm_stream_queue *q, size_t size) {
  uint64_t units = size >> 9;
  return &q->front[(units ^ units >> 6 ^ units >> 12) & (LM_QUEUE_FRONT - 1)];
}

/* Makes the extents of a front list FREE and joins them with their neighbours. */
static void empty_front_list(lm_device_pool *pool, lm_stream_queue *q, lm_extent **front) {
  while (*front) {
    lm_extent *e = *front;
    lm_assert(e->state == LM_EXTENT_KEPT && e->queue == q && q->bytes >= e->size);
    *front = e->next;
    q->bytes -= e->size;
    lm_device_pool_release_locked(pool, e);
  }
}

void lm_device_pool_join_fronts_locked(lm_device_pool *pool, lm_stream_queue *q) {
  for (int i = 0; i < LM_QUEUE_FRONT; i++) empty_front_list(pool, q, &q->front[i]);
}

/* Puts a freed block in the front list of its size. A list of another size with an equal hash is
 * emptied first. */
static void push_to_front_list(lm_device_pool *pool, lm_stream_queue *q, lm_extent *e) {
  lm_extent **front = front_list(q, e->size);
  lm_assert(e->state == LM_EXTENT_LIVE && e->size > 0);
  if (*front && (*front)->size != e->size) empty_front_list(pool, q, front);
  e->state = LM_EXTENT_KEPT;
  e->queue = q;
  e->batch = q->batch;
  e->next = *front;
  *front = e;
  q->bytes += e->size;
}

static lm_extent *take_from_front_list(lm_stream_queue *q, size_t size) {
  lm_extent **front = front_list(q, size), *e = *front;
  if (!e || e->size != size) return NULL;
  *front = e->next;
  q->bytes -= e->size;
  return e;
}

/* ---- Allocation */

enum { SMALL_SHIFT = 9, LARGE_SHIFT = 12 };

size_t lm_device_pool_round(size_t size) {
  size_t step = (size_t)1 << (size <= LM_DEVICE_POOL_SMALL ? SMALL_SHIFT : LARGE_SHIFT);
  return size ? lm_align_up(size, step) : step;
}

size_t lm_device_pool_round_aligned(size_t size, size_t align) {
  bool is_large = align > (size_t)1 << SMALL_SHIFT && size <= LM_DEVICE_POOL_SMALL;
  return lm_device_pool_round(is_large ? LM_DEVICE_POOL_SMALL + 1 : size);
}

/* Takes `size` bytes out of a set; the whole extent if there is no node to cut it with. NULL: the
 * set has no extent that is large enough. */
static lm_extent *take_from_set(lm_device_pool *pool, const lm_extents *set, size_t size) {
  lm_extent *e = lm_extents_fit(set, size);
  if (!e) return NULL;
  if (!lm_device_pool_add_nodes_locked(pool)) {
    take_from_own_set(pool, e);
    return e;
  }
  return lm_device_pool_cut_locked(pool, e, e->at, size);
}

bool lm_device_pool_can_join(const lm_stream_queue *q, const lm_extent *e) {
  return e && e->state == LM_EXTENT_FREE && (!e->queue || e->queue == q);
}

void lm_device_pool_adopt_locked(lm_device_pool *pool, lm_stream_queue *q, lm_extent *e) {
  lm_assert(lm_lock_is_held(&pool->lock));
  e->state = LM_EXTENT_FREE;
  e->queue = q;
  while (lm_device_pool_can_join(q, e->after)) {
    take_from_own_set(pool, e->after);
    absorb_after(pool, e);
  }
  while (lm_device_pool_can_join(q, e->before)) {
    take_from_own_set(pool, e->before);
    e = absorb_before(pool, e);
  }
  put_in_own_set(pool, e);
}

enum { RUNS = 256 }; /* a search looks at so many extents at most */

/* Looks for free memory of the queue that makes `size` bytes together with the common memory beside
 * it, and joins that. Returns whether there was any. */
static bool join_a_run(lm_device_pool *pool, lm_stream_queue *q, int zone, size_t size) {
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
      take_from_own_set(pool, e);
      lm_device_pool_adopt_locked(pool, q, e);
      return true;
    }
  return false;
}

lm_extent *lm_device_pool_take_locked(lm_device_pool *pool, lm_stream_queue *q, size_t size) {
  int zone = lm_device_pool_zone(size);
  lm_assert(lm_lock_is_held(&pool->lock) && size == lm_device_pool_round(size));
  lm_extent *e = take_from_front_list(q, size);
  if (lm_likely(e != NULL)) return e;
  pool->front_misses++;
  e = zone == LM_ZONE_LARGE ? NULL : take_from_set(pool, &q->set[zone], size);
  if (e) return e;
  lm_device_pool_join_fronts_locked(pool, q);
  e = take_from_set(pool, &q->set[zone], size);
  if (!e) e = take_from_set(pool, &pool->common[zone], size);
  if (!e && join_a_run(pool, q, zone, size)) e = take_from_set(pool, &q->set[zone], size);
  return e;
}

lm_extent *lm_device_pool_claim_locked(lm_device_pool *pool, lm_stream_queue *q, size_t size) {
  lm_extent *e = lm_device_pool_take_locked(pool, q, size);
  if (!e) return NULL;
  e->state = LM_EXTENT_BUSY;
  e->queue = q;
  q->blocks++;
  return e;
}

static void describe(const lm_device_pool *pool, const lm_extent *e, lm_provided *out) {
  *out = (lm_provided){
    .base = (void *)e->at,
    .made = (void *)e->at,
    .size = e->size,
    .token = e->token,
    .strategy = e->strategy,
    .stream = e->queue->ref.stream,
    .context = pool->context ? pool->context : e->queue->context,
    .maker = LM_PROVIDER_POOL,
    .device = pool->device,
    .want = e->want,
    .flags = e->flags,
  };
}

/* Makes an extent that is in no set a live block. */
static void make_live(lm_device_pool *pool, lm_extent *e, lm_stream_queue *q,
                      const lm_device_owner *owner) {
  lm_assert(e->state != LM_EXTENT_LIVE && e->state != LM_EXTENT_HOLE && e->state != LM_EXTENT_NODE);
  lm_assert(owner->strategy <= UINT16_MAX);
  if (e->state != LM_EXTENT_BUSY) q->blocks++;
  e->queue = q;
  e->token = owner->token;
  e->strategy = (uint16_t)owner->strategy;
  e->want = owner->want;
  e->flags = owner->flags;
  e->key = 0;
  e->state = LM_EXTENT_LIVE;
  pool->live += e->size;
  if (pool->live > pool->recent_peak) pool->recent_peak = pool->live;
  if (pool->live > pool->peak) pool->peak = pool->live;
}

bool lm_device_pool_take(lm_device_pool *pool, size_t size, lm_stream_ref ref,
                         const lm_device_owner *owner, lm_provided *out) {
  lm_lock_take(&pool->lock);
  lm_stream_queue *q = lm_device_pool_queue_locked(pool, ref);
  lm_extent *e = lm_unlikely(!q->is_known)
                     ? NULL
                     : lm_device_pool_take_locked(pool, q, lm_device_pool_round(size));
  if (e) {
    make_live(pool, e, q, owner);
    describe(pool, e, out);
  }
  lm_lock_drop(&pool->lock);
  return e;
}

void lm_device_pool_set_owner(lm_device_pool *pool, void *at, const lm_device_owner *owner,
                              lm_provided *out) {
  lm_lock_take(&pool->lock);
  lm_extent *e = lm_extent_range_start(lm_extent_range_of((uintptr_t)at), (uintptr_t)at);
  lm_assert(e && e->state == LM_EXTENT_BUSY && e->queue);
  make_live(pool, e, e->queue, owner);
  describe(pool, e, out);
  lm_lock_drop(&pool->lock);
}

/* ---- Free */

lm_device_pool *lm_device_pool_lock_of(uintptr_t at, lm_extent_range **out) {
  lm_extent_range *r = lm_extent_range_of(at);
  if (!r) return NULL;
  lm_device_pool *pool = r->pool;
  lm_lock_take(&pool->lock);
  *out = r;
  if (r->start && at - r->base < r->size) return pool;
  lm_lock_drop(&pool->lock);
  return NULL;
}

bool lm_device_pool_free(const void *p, const lm_stream_ref *on, lm_provided *out,
                         lm_device_pool **attend) {
  lm_extent_range *r;
  lm_device_pool *pool = lm_device_pool_lock_of((uintptr_t)p, &r);
  if (!pool) return false;
  lm_extent *e = lm_extent_range_start(r, (uintptr_t)p);
  bool is_live = e && e->state == LM_EXTENT_LIVE;
  *attend = NULL;
  if (is_live) {
    describe(pool, e, out);
    lm_stream_queue *q = on ? lm_device_pool_queue_locked(pool, *on) : e->queue;
    lm_assert(pool->live >= e->size && e->queue->blocks > 0);
    e->queue->blocks--;
    pool->live -= e->size;
    push_to_front_list(pool, q, e);
    if (on) out->stream = on->stream;
    if (lm_unlikely(q->wanted || !q->is_known) && on) *attend = pool;
  }
  lm_lock_drop(&pool->lock);
  if (is_live) lm_decay_stir_devices();
  return is_live;
}

/* Makes the extents of a queue's set common whose work has ended. */
static void move_ended_to_common(lm_device_pool *pool, lm_stream_queue *q, lm_extents *set) {
  for (unsigned list = 0; list < LM_EXTENT_LISTS; list++) {
    lm_extent *next;
    for (lm_extent *e = set->head[list]; e; e = next) {
      next = e->next;
      if (e->batch > q->done) continue;
      take_from_own_set(pool, e);
      e->queue = NULL;
      e->batch = 0;
      lm_device_pool_release_locked(pool, e);
    }
  }
}

/* Makes the objects ready whose work has ended. They are the end of the list, because batches only
 * rise. */
static void reclaim_waiting(lm_device_pool *pool, lm_stream_queue *q) {
  lm_extent **at = &q->waiting;
  while (*at && (*at)->batch > q->done) at = &(*at)->next;
  lm_extent *e = *at;
  *at = NULL;
  for (lm_extent *next; e; e = next) {
    next = e->next;
    e->next = pool->ready;
    pool->ready = e;
  }
}

bool lm_device_pool_await(lm_device_pool *pool, void *p, lm_stream_ref ref, bool *attend) {
  lm_lock_take(&pool->lock);
  lm_extent *e = lm_device_pool_add_nodes_locked(pool) ? lm_device_pool_take_node_locked(pool)
                                                       : NULL;
  if (e) {
    lm_stream_queue *q = lm_device_pool_queue_locked(pool, ref);
    e->at = (uintptr_t)p;
    e->batch = q->batch;
    e->next = q->waiting;
    q->waiting = e;
    *attend = q->wanted || !q->is_known;
  }
  lm_lock_drop(&pool->lock);
  return e;
}

void *lm_device_pool_awaited(lm_device_pool *pool) {
  lm_lock_take(&pool->lock);
  lm_extent *e = pool->ready;
  void *p = e ? (void *)e->at : NULL;
  if (e) pool->ready = e->next;
  if (e) lm_device_pool_free_node_locked(pool, e);
  lm_lock_drop(&pool->lock);
  return p;
}

void lm_device_pool_reclaim_locked(lm_device_pool *pool, lm_stream_queue *q) {
  lm_assert(lm_lock_is_held(&pool->lock) && q->done < q->batch);
  if (q->waiting) reclaim_waiting(pool, q);
  if (!q->bytes) return;
  lm_device_pool_join_fronts_locked(pool, q);
  for (int zone = 0; zone < LM_ZONES; zone++) move_ended_to_common(pool, q, &q->set[zone]);
}

/* ---- Search */

bool lm_device_pool_find(const void *p, lm_provided *out) {
  lm_extent_range *r;
  lm_device_pool *pool = lm_device_pool_lock_of((uintptr_t)p, &r);
  if (!pool) return false;
  lm_extent *e = lm_extent_range_find(r, (uintptr_t)p);
  lm_assert(e && (uintptr_t)p - e->at < e->size);
  bool is_live = e->state == LM_EXTENT_LIVE;
  if (is_live) describe(pool, e, out);
  lm_lock_drop(&pool->lock);
  return is_live;
}

static void visit_range(const lm_device_pool *pool, const lm_extent_range *r,
                        void (*visit)(void *ctx, lm_provided *block), void *ctx) {
  lm_provided block;
  for (lm_extent *e = r->first; e; e = e->after) {
    if (e->state != LM_EXTENT_LIVE) continue;
    describe(pool, e, &block);
    visit(ctx, &block);
    e->token = block.token;
  }
}

void lm_device_pool_each(void (*visit)(void *ctx, lm_provided *block), void *ctx) {
  lm_device_pool *pool = atomic_load_explicit(&pools.first, memory_order_acquire);
  for (; pool; pool = pool->older) {
    lm_lock_take(&pool->lock);
    for (const lm_extent_range *r = pool->ranges; r; r = r->next) visit_range(pool, r, visit, ctx);
    lm_lock_drop(&pool->lock);
  }
}

void lm_device_pool_figures(int device, lm_device_figures *out) {
  *out = (lm_device_figures){ 0 };
  for (lm_device_pool *pool = lm_device_pool_next(NULL, device); pool;
       pool = lm_device_pool_next(pool, device)) {
    lm_lock_take(&pool->lock);
    lm_device_figures_add(out, pool->pinned.is_pinned, pool->mapped, pool->live);
    lm_lock_drop(&pool->lock);
  }
}

/* ---- The end of a context */

static void forget_locked(lm_device_pool *pool) {
  if (pool_at(pool->device, pool->in_chunks) == pool)
    atomic_store_explicit(&pools.of[pool->in_chunks][pool->device], NULL, memory_order_release);
  pool->gone = true;
}

void lm_device_pool_forget(lm_device_pool *pool) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  pool_key chunks = { .device = pool->device, .in_chunks = true };
  if (gpu) chunks.context = gpu->context(pool->device);
  lm_lock_take(&pools.making);
  lm_device_pool *other = pool->in_chunks ? NULL : find_locked(&chunks);
  if (!pool->pinned.is_pinned) forget_locked(pool);
  if (other) forget_locked(other);
  lm_lock_drop(&pools.making);
}

/* ---- Validity */

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
  return bytes == q->bytes && q->done < q->batch && q->waited < q->batch;
}

static bool is_valid_locked(const lm_device_pool *pool) {
  size_t has = pool->live + pool->unknown.bytes, mapped = 0;
  size_t blocks = pool->unknown.blocks, taken = 0;
  if (!is_valid_queue(&pool->unknown)) return false;
  for (int zone = 0; zone < LM_ZONES; zone++) {
    if (!is_set_of(&pool->common[zone], LM_EXTENT_FREE, NULL, zone)) return false;
    if (!is_set_of(&pool->holes[zone], LM_EXTENT_HOLE, NULL, zone)) return false;
    has += pool->common[zone].bytes;
  }
  for (const lm_stream_queue *q = pool->queues; q; has += q->bytes, q = q->next) {
    if (!is_valid_queue(q)) return false;
    blocks += q->blocks;
  }
  for (const lm_extent_range *r = pool->ranges; r; r = r->next) {
    if (!lm_extent_range_is_valid(r)) return false;
    for (const lm_extent *e = r->first; e; e = e->after) {
      if (e->state == LM_EXTENT_BUSY) has += e->size;
      taken += e->state == LM_EXTENT_LIVE || (e->state == LM_EXTENT_BUSY && e->queue);
      if (e->state != LM_EXTENT_HOLE) mapped += e->size;
    }
  }
  return has == mapped && mapped == pool->mapped && pool->live <= pool->peak && taken == blocks;
}

bool lm_device_pool_is_valid(void) {
  bool valid = lm_extent_table_is_valid();
  lm_device_pool *pool = atomic_load_explicit(&pools.first, memory_order_acquire);
  for (; pool; pool = pool->older) {
    lm_lock_take(&pool->lock);
    valid = valid && is_valid_locked(pool);
    lm_lock_drop(&pool->lock);
  }
  return valid;
}
