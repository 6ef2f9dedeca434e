/* device_pool_parts.h - what the files device_pool*.c and device_export.c share.
 *
 * device_pool.c has the memory of a pool, without a call of the driver; device_pool_events.c finds
 * out which work has ended; device_pool_memory.c gets memory from the driver; device_pool_trim.c
 * returns it; device_pool_grow.c calls all of them. Each file calls only those named before it.
 *
 * The caller of a function that ends in _locked holds the pool's `lock`. The caller of a function
 * that takes the driver's operations `gpu` holds `slow` and not `lock`, except where the comment of
 * the function says otherwise, and is in no active section. */
#ifndef LM_DEVICE_POOL_PARTS_H
#define LM_DEVICE_POOL_PARTS_H

#include "device/device_pool.h"

LM_INLINE int lm_device_pool_zone(size_t size) {
  return size <= LM_DEVICE_POOL_SMALL ? LM_ZONE_SMALL : LM_ZONE_LARGE;
}

/* ---- device_pool.c */

/* Returns the pool of an address, locked, and its range in *out. NULL: no pool has the address. */
lm_device_pool *lm_device_pool_lock_of(uintptr_t at, lm_extent_range **out);

/* Takes an extent of at least `size` bytes from the queue's memory or from common memory. It is in
 * no set; its state is not changed. NULL: there is none. */
lm_extent *lm_device_pool_take_locked(lm_device_pool *pool, lm_stream_queue *q, size_t size);
/* Makes an extent that is in no set free memory of its queue, and joins it with its neighbours. */
void lm_device_pool_release_locked(lm_device_pool *pool, lm_extent *e);
/* Makes an extent that is in no set a hole, and joins it with its neighbours. */
void lm_device_pool_make_hole_locked(lm_device_pool *pool, lm_extent *e);
/* Returns whether `e` is FREE, and common or of the queue. `e` may be NULL. */
bool lm_device_pool_can_join(const lm_stream_queue *q, const lm_extent *e);
/* Makes an extent that is in no set free memory of the queue, and joins it with neighbours that are
 * common or the queue's. Common memory that it joins is the queue's from then on: other streams
 * have to wait for it. */
void lm_device_pool_adopt_locked(lm_device_pool *pool, lm_stream_queue *q, lm_extent *e);
/* Cuts `size` bytes from `at` on out of a free extent or a hole, which is in its set. The part is
 * in no set; the rest stays. NULL: there are no nodes to cut with. */
lm_extent *lm_device_pool_cut_locked(lm_device_pool *pool, lm_extent *e, uintptr_t at, size_t size);
/* Empties the front lists of a queue: their extents become FREE and join with neighbours. */
void lm_device_pool_join_fronts_locked(lm_device_pool *pool, lm_stream_queue *q);
/* Returns whether memory or objects wait in the queue. */
LM_INLINE bool lm_device_pool_queue_has_locked(const lm_stream_queue *q) {
  return q->bytes > 0 || q->waiting;
}
/* Makes the memory of batches up to q->done common, and the objects of those batches ready. */
void lm_device_pool_reclaim_locked(lm_device_pool *pool, lm_stream_queue *q);
/* Returns whether the queue has pinned memory that no stream uses. */
bool lm_device_pool_is_host_queue(const lm_stream_queue *q);
/* Returns the queue of a stream, or of memory that no stream uses, and makes it if need be;
 * &pool->unknown if there is no memory. */
lm_stream_queue *lm_device_pool_queue_locked(lm_device_pool *pool, lm_stream_ref ref);
/* Ends the queues that have no blocks, memory, objects and events: their streams may be destroyed,
 * and a search would pass them. `slow` is held. */
void lm_device_pool_end_queues(lm_device_pool *pool);
/* Makes sure that there are spare nodes for a few cuts. Returns false if there is no memory. */
bool lm_device_pool_add_nodes(lm_device_pool *pool);
bool lm_device_pool_add_nodes_locked(lm_device_pool *pool);
/* Takes a spare node; NULL: there is none. */
lm_extent *lm_device_pool_take_node_locked(lm_device_pool *pool);
/* Makes `e`, which is in no set and no range, a spare node. */
void lm_device_pool_free_node_locked(lm_device_pool *pool, lm_extent *e);
/* Like lm_device_pool_take_locked; the extent becomes BUSY. */
lm_extent *lm_device_pool_claim_locked(lm_device_pool *pool, lm_stream_queue *q, size_t size);

/* ---- device_pool_events.c */

/* Ends the batch of a queue by an event on its stream, which exists. Returns whether the event was
 * recorded: not while the stream is captured, nor if LM_QUEUE_EVENTS are still to happen. */
bool lm_device_pool_record(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q);
/* Asks the driver once for the context of a queue's stream, which exists. */
void lm_device_pool_find_context(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q);
/* Looks which events of a queue have happened, and makes the memory of their batches common.
 * `wait`: waits for all of its events first. */
void lm_device_pool_poll_queue(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q,
                               bool wait);
/* Calls lm_device_pool_poll_queue for all queues of the pool. */
void lm_device_pool_poll_queues(lm_device_pool *pool, const lm_gpu_ops *gpu, bool wait);
/* Requests an event from each queue other than `mine` that has memory. Default streams record it
 * now, other streams in the next call that names them. */
void lm_device_pool_request_events(lm_device_pool *pool, const lm_gpu_ops *gpu,
                                   const lm_stream_queue *mine);
/* Waits until the device has done all work, and makes the memory of all queues common. Memory that
 * is freed during the wait has a later batch and does not become common. Returns false if the
 * driver failed. */
bool lm_device_pool_synchronize(lm_device_pool *pool, const lm_gpu_ops *gpu);
/* Finds out which work has ended, without waiting. It records an event on default streams now, and
 * requests one in the next call on each other stream. Returns whether events are still to
 * happen. */
bool lm_device_pool_find_ended(lm_device_pool *pool, const lm_gpu_ops *gpu);
/* Returns whether objects of host pools wait for work on streams. Takes the lock. */
bool lm_device_pool_has_waiting(lm_device_pool *pool);

/* ---- device_pool_memory.c */

/* Maps no more memory to the pool's ranges from now on, because the driver cannot, or because a
 * manager is to allocate all memory. `slow` is held. */
LM_INLINE void lm_device_pool_end_mapping(lm_device_pool *pool) {
  atomic_store_explicit(&pool->uses_vmm, false, memory_order_relaxed);
}

/* Gets memory from the driver for a request of `size` bytes and takes it as a BUSY extent.
 * LM_GPU_OK and *out is NULL: the pool has grown, but other threads took the memory beside the new
 * memory. */
lm_gpu_result lm_device_pool_grow(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_stream_queue *q,
                                  size_t size, lm_extent **out);
/* Returns by how many bytes mapped memory would grow for a request. */
size_t lm_device_pool_growth_locked(lm_device_pool *pool, const lm_stream_queue *q, size_t size);
/* Takes a BUSY extent from the pool and unmaps its pieces. Returns true if the memory is an
 * allocation of a manager: the caller has to call lm_device_pool_free_chunk. */
bool lm_device_pool_return(lm_device_pool *pool, const lm_gpu_ops *gpu, lm_extent *e);
/* Allocates memory of the pool's kind from the manager, as a chunk that is no range of the pool. */
lm_gpu_result lm_device_pool_alloc_chunk(lm_device_pool *pool, size_t size, void **out);
/* Frees an allocation of a manager. The caller may hold `slow` and need not. */
void lm_device_pool_free_chunk(lm_device_pool *pool, void *at, size_t size);
/* Returns the entry of the device's granule at an address of a range; `slow` is held. */
LM_INLINE lm_device_piece *lm_device_pool_piece_at(const lm_extent_range *r, uintptr_t at) {
  lm_assert(r->piece && at - r->base < r->size && lm_is_pow2(r->pool->granularity));
  return &r->piece[(at - r->base) / r->pool->granularity];
}

/* ---- device_pool_trim.c */

/* Returns common memory to the driver: about `bytes`, if there is so much. Returns how much it
 * was. */
size_t lm_device_pool_give_back(lm_device_pool *pool, const lm_gpu_ops *gpu, size_t bytes);
/* Returns all free memory of the pool to the driver, after the device's work. The pool forgets its
 * peak, and with it the memory that it may keep. Returns the bytes. */
size_t lm_device_pool_trim_one(lm_device_pool *pool, const lm_gpu_ops *gpu);

#endif
