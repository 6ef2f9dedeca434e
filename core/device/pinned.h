/* pinned.h - small objects of pinned memory: pools of host memory (pool.h) whose regions are
 * registered with the driver of devices. So they have threads' bins, marks and the map like any
 * other object. What is larger than a size class, is for a stream, or is not loam's to register
 * (write_combined, a manager of somebody's) is cut by the pools of devices (device_pool.h).
 *
 *   region   slots that are bound, faulted in and registered as one, by steps that grow with the
 *            pool; and it ends as one, because a driver knows registrations as wholes
 *   seal     the slot behind a region, without access: free runs do not join across it, so no block
 *            is in two registrations, of which a driver would not copy at once. Its entry says how
 *            long the region is and who registered it
 *
 * A driver is called while no lock but lm_pools_pinned_lock is held, by threads that are in no
 * operation; threads that allocate, or free, do not wait for one. So a pool of pinned memory does
 * not grow by itself, and gives nothing back by itself: who asks it in vain calls lm_pinned_grow,
 * and the service thread takes out what idle_count.
 *
 * What is freed without a stream is had again at once. What a stream may still use is held (marked
 * free, but nobody's) until an event on that stream says it is done: in a queue of device_pool.h.
 * */
#ifndef LM_PINNED_H
#define LM_PINNED_H

#include "gpu/gpu.h"
#include "heap/pool.h"

/* Whether requests of a strategy and size are served by such a pool, on this machine; and by which,
 * on the device: a twin of the strategy. `asked`: loam_pinned_alloc was called. */
bool lm_pinned_serves(const lm_strategy *whole, size_t size, size_t align);
lm_strategy *lm_pinned_twin(lm_strategy *whole, int device, bool asked);

/* Sees to it that the pool of a twin has memory for objects of a size. NULL, or why it has not;
 * lm_provider_words if that is in the thread's words. The thread is not active; `inside` is raised.
 * */
const char *lm_pinned_grow(lm_strategy *twin, int device, size_t size);

/* Whether p is in a live object of such a pool. */
bool lm_pinned_owns(const void *p);
/* The device that registered the memory of a live object. */
int lm_pinned_device(const void *p);
/* The object at p, which is held, is free once the work on the stream has ended. Likewise. */
void lm_pinned_free_after(void *p, lm_stream stream);
/* Each live object of a device. */
void lm_pinned_each(int device, void (*visit)(void *ctx, void *p), void *ctx);

/* After lm_retire_unused, with the same: ends the regions of such strategies that are free. Their
 * pools end with the next load. */
void lm_pinned_end_unused(const uint8_t *used, uint32_t n);
/* As those of device_pool.h. */
size_t lm_pinned_trim(int device);
bool lm_pinned_decay(void);

#endif
