/* device_pool_events.c - a pool finds out which work on streams has ended: events, contexts of
 * streams, and waits. device_pool.h has the law of batches. */
#include "device/device_pool_parts.h"
#include "os/decay.h"

/* ---- Events, with `slow` held */

/* Takes an event of the queue's context, which is current. Returns false if the driver has none. */
static bool take_event(lm_device_pool *pool, const lm_gpu_ops *gpu, const lm_stream_queue *q,
                       lm_gpu_event *out) {
  lm_assert(lm_lock_is_held(&pool->slow));
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

bool lm_device_pool_record(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q) {
  void *scope;
  if (gpu->push_context(pool->device, q->context, &scope) != LM_GPU_OK) return false;
  bool done = record_here(pool, gpu, q);
  gpu->pop(scope);
  return done;
}

/* Returns whether the part of the queue's law that concerns events holds. Under `slow`. */
static inline bool events_is_valid(const lm_stream_queue *q) {
  if (q->events > LM_QUEUE_EVENTS) return false;
  for (unsigned i = 1; i < q->events; i++)
    if (q->event[i - 1].batch >= q->event[i].batch) return false;
  return true;
}

void lm_device_pool_find_context(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q) {
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
  lm_assert(lm_lock_is_held(&pool->slow) && n > 0 && n <= q->events);
  uint64_t done = q->event[n - 1].batch;
  for (unsigned i = 0; i < n; i++) keep_event(pool, gpu, q, q->event[i].event);
  for (unsigned i = n; i < q->events; i++) q->event[i - n] = q->event[i];
  q->events -= n;
  lm_assert(events_is_valid(q));
  lm_lock_take(&pool->lock);
  if (done > q->done) q->done = done;
  lm_device_pool_reclaim_locked(pool, q);
  lm_lock_drop(&pool->lock);
}

enum { QUEUES = 256 }; /* next_queues returns so many queues at most */

/* A pass looks once at each queue of a pool that has memory, objects or events. next_queues copies
 * queues to `out` at which the pass `pass` has not looked yet, and returns how many; 0: the pass is
 * over. Without the lock the list of queues itself could not be walked, because its order changes
 * with each use. `slow` is held during the whole pass, so no queue ends. */
static unsigned next_queues(lm_device_pool *pool, uint64_t pass, lm_stream_queue *out[QUEUES]) {
  unsigned n = 0;
  lm_assert(lm_lock_is_held(&pool->slow) && pass == pool->passes);
  lm_lock_take(&pool->lock);
  for (lm_stream_queue *q = pool->queues; q && n < QUEUES; q = q->next) {
    if (q->pass == pass || (!q->events && !lm_device_pool_queue_has_locked(q))) continue;
    q->pass = pass;
    out[n++] = q;
  }
  lm_lock_drop(&pool->lock);
  return n;
}

void lm_device_pool_poll_queue(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q,
                               bool wait) {
  unsigned ended = 0;
  if (wait && q->events && gpu->event_wait(q->event[q->events - 1].event) == LM_GPU_OK)
    ended = q->events;
  while (ended < q->events && gpu->event_query(q->event[ended].event) == LM_GPU_OK) ended++;
  if (ended) complete_events(pool, gpu, q, ended);
}

void lm_device_pool_poll_queues(lm_device_pool *pool, const lm_gpu_ops *gpu, bool wait) {
  lm_stream_queue *queues[QUEUES];
  uint64_t pass = ++pool->passes;
  for (unsigned n; (n = next_queues(pool, pass, queues)) > 0;)
    for (unsigned i = 0; i < n; i++) lm_device_pool_poll_queue(pool, gpu, queues[i], wait);
}

/* Returns whether the queue belongs to a default stream, which always exists: an event can be
 * recorded on it at any time. The default stream of each thread does not count, because only its
 * thread can name it. */
static bool is_default_stream(const lm_stream_queue *q) { return !q->ref.stream && !q->thread; }

/* Makes all memory common of a queue of memory that no stream uses. */
static void reclaim_host_locked(lm_device_pool *pool, lm_stream_queue *q) {
  if (!lm_device_pool_is_host_queue(q)) return;
  q->done = q->batch++;
  lm_device_pool_reclaim_locked(pool, q);
}

/* Requests an event from a queue that has memory. Memory that no stream uses needs none. */
static void request_event(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q) {
  lm_lock_take(&pool->lock);
  reclaim_host_locked(pool, q);
  bool has = lm_device_pool_queue_has_locked(q);
  q->wanted = q->wanted || has;
  lm_lock_drop(&pool->lock);
  if (has && is_default_stream(q)) (void)lm_device_pool_record(pool, gpu, q);
}

void lm_device_pool_request_events(lm_device_pool *pool, const lm_gpu_ops *gpu,
                                   const lm_stream_queue *mine) {
  lm_stream_queue *queues[QUEUES];
  uint64_t pass = ++pool->passes;
  for (unsigned n; (n = next_queues(pool, pass, queues)) > 0;)
    for (unsigned i = 0; i < n; i++)
      if (queues[i] != mine) request_event(pool, gpu, queues[i]);
}

void lm_device_pool_poll(lm_device_pool *pool, lm_stream_ref ref) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  if (!gpu) return;
  lm_lock_suspended section = lm_lock_take_long(&pool->slow);
  lm_lock_take(&pool->lock);
  lm_stream_queue *q = lm_device_pool_queue_locked(pool, ref);
  bool wanted = q->wanted && q != &pool->unknown;
  lm_lock_drop(&pool->lock);
  lm_device_pool_find_context(pool, gpu, q);
  if (wanted) (void)lm_device_pool_record(pool, gpu, q);
  lm_lock_drop_long(&pool->slow, section);
  if (wanted) lm_decay_stir();
}

/* ---- The whole device */

/* Begins a new batch of a queue, and notes that a wait for the device ends the batch before. */
static void begin_wait_locked(lm_stream_queue *q) { q->waited = q->batch++; }

/* The wait for the device is over. A queue that was made during the wait has waited == 0. */
static void end_wait_locked(lm_device_pool *pool, lm_stream_queue *q) {
  lm_assert(q->waited < q->batch);
  if (q->waited > q->done) q->done = q->waited;
  lm_device_pool_reclaim_locked(pool, q);
}

bool lm_device_pool_synchronize(lm_device_pool *pool, const lm_gpu_ops *gpu) {
  lm_assert(lm_lock_is_held(&pool->slow));
  lm_lock_take(&pool->lock);
  for (lm_stream_queue *q = pool->queues; q; q = q->next) begin_wait_locked(q);
  begin_wait_locked(&pool->unknown);
  lm_lock_drop(&pool->lock);
  if (gpu->wait(pool->device) != LM_GPU_OK) return false;
  lm_lock_take(&pool->lock);
  for (lm_stream_queue *q = pool->queues; q; q = q->next) end_wait_locked(pool, q);
  end_wait_locked(pool, &pool->unknown);
  lm_lock_drop(&pool->lock);
  return true;
}

/* Destroys the pool's events in a context, and forgets that streams are in it; NULL: in all. */
static void forget_context(lm_device_pool *pool, const lm_gpu_ops *gpu, const void *context) {
  lm_device_pool_poll_queues(pool, gpu, false);
  for (unsigned i = pool->idle_count; i-- > 0;) {
    if (context && pool->idle_events[i].context != context) continue;
    (void)gpu->event_destroy(pool->idle_events[i].event);
    pool->idle_events[i] = pool->idle_events[--pool->idle_count];
  }
  lm_lock_take(&pool->lock);
  for (lm_stream_queue *q = pool->queues; q; q = q->next)
    if (!context || q->context == context) q->is_known = lm_device_pool_is_host_queue(q);
  lm_lock_drop(&pool->lock);
}

void lm_device_pool_detach(int device, const void *context) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  lm_device_pool *pool = gpu ? lm_device_pool_next(NULL, device) : NULL;
  for (; pool; pool = lm_device_pool_next(pool, device)) {
    lm_lock_suspended section = lm_lock_take_long(&pool->slow);
    forget_context(pool, gpu, context);
    lm_lock_drop_long(&pool->slow, section);
  }
  if (gpu && !context) gpu->untrack_contexts(device);
}

/* ---- Without a wait */

/* Finds out for one queue which work has ended. Returns whether it has events. */
static bool find_ended(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q) {
  lm_lock_take(&pool->lock);
  reclaim_host_locked(pool, q);
  bool has = lm_device_pool_queue_has_locked(q) && !q->events;
  if (has) q->wanted = true;
  lm_lock_drop(&pool->lock);
  if (has && is_default_stream(q)) (void)lm_device_pool_record(pool, gpu, q);
  return q->events > 0;
}

bool lm_device_pool_find_ended(lm_device_pool *pool, const lm_gpu_ops *gpu) {
  lm_stream_queue *queues[QUEUES];
  bool is_pending = false;
  lm_device_pool_poll_queues(pool, gpu, false);
  uint64_t pass = ++pool->passes;
  for (unsigned n; (n = next_queues(pool, pass, queues)) > 0;)
    for (unsigned i = 0; i < n; i++) is_pending |= find_ended(pool, gpu, queues[i]);
  lm_device_pool_poll_queues(pool, gpu, false);
  return is_pending;
}

bool lm_device_pool_has_waiting(lm_device_pool *pool) {
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
    if (!lm_device_pool_has_waiting(pool)) continue;
    lm_lock_suspended section = lm_lock_take_long(&pool->slow);
    lm_device_pool_request_events(pool, gpu, NULL);
    lm_device_pool_poll_queues(pool, gpu, false);
    lm_lock_drop_long(&pool->slow, section);
  }
}
