/* pinned.h - small objects of pinned memory: pools of host memory (pool.h) whose regions are
 * registered with the driver of devices. Such objects have thread caches, states and the page map
 * like all small objects. The pools of device_pool.h serve other pinned memory: blocks above
 * LM_SMALL_EAGER, blocks for a stream, and memory that loam must not register itself
 * (write-combined memory, or where the manager is not the driver).
 *
 * Contexts. A driver unregisters memory when the context ends that registered it. So these pools
 * grow in the primary context of a device only. All contexts can use their memory. If another
 * context is current and a pool has to grow, device_pool.h serves the request instead.
 *
 *   region      slots that are bound to a NUMA node, faulted in and registered together. The length
 *               of new regions grows with the pool. A region also ends as a whole, because a driver
 *               unregisters exactly the memory that one call registered
 *   guard slot  the slot behind a region. It cannot be accessed, and free runs do not join across
 *               it, so no block stands in two regions: a driver cannot copy across two
 *               registrations in one call. The page map's entry of the guard slot has the length of
 *               the region and the device that registered it
 *
 * Law: each slot of a registered pool is in a region. The slot behind each region is the guard slot
 * of that region.
 *
 * Locks. Loam calls a driver only in threads that are not in an active section and hold no lock but
 * lm_pools_pinned_lock. Threads that allocate or free never wait for that lock. So a pool of pinned
 * memory neither grows nor shrinks by itself: a thread whose allocation failed calls
 * lm_pinned_grow, and the service thread ends regions that nothing uses. Without a service thread,
 * the threads that free memory end them (device_idle.h).
 *
 * An object that is freed without a stream can be used again immediately. An object that work on a
 * stream may still use is held: its state is free, but no thread can allocate it until an event
 * says that the work has ended. It waits in a queue of device_pool.h. */
#ifndef LM_PINNED_H
#define LM_PINNED_H

#include "gpu/gpu.h"
#include "heap/pool.h"

/* Returns whether a pool of pinned memory serves requests of this strategy, size and alignment on
 * this machine. May start the driver. */
bool lm_pinned_serves(const lm_strategy *whole, size_t size, size_t align);
/* Returns the twin of a strategy whose pool serves requests for a device. `asked`: the request came
 * from loam_pinned_alloc. */
lm_strategy *lm_pinned_twin(lm_strategy *whole, int device, bool asked);

/* The reason for which lm_pinned_grow fails if another context than the primary one is current. It
 * is compared by address. */
extern const char lm_pinned_elsewhere[];
/* Makes sure that the pool of a twin has free memory for an object of `size` bytes; another thread
 * may take it first. Returns NULL if the pool has free memory, else a reason: lm_pinned_elsewhere,
 * then device_pool.h has to serve the request; or lm_provider_words, then the thread's error words
 * say why. The thread is not in an active section, and is marked as inside loam. */
const char *lm_pinned_grow(lm_strategy *twin, int device, size_t size);

/* Returns whether `p` is in a live object of such a pool. */
bool lm_pinned_owns(const void *p);
/* Returns the device that registered the memory of a live object of such a pool. */
int lm_pinned_device(const void *p);
/* Frees the object at `p`, which is held, once the work on the stream has ended. The stream exists.
 * The thread is not in an active section, and is marked as inside loam. */
void lm_pinned_free_after(void *p, lm_stream stream);
/* Calls `visit` for each live object of a device. */
void lm_pinned_each(int device, void (*visit)(void *ctx, void *p), void *ctx);

/* Ends the free regions of the strategies that no live policy names: used[id] is 0 for them, or
 * their id is `n` or more. Called after lm_retire_unused with the same arguments; the pools
 * themselves end at the next load of a policy. */
void lm_pinned_end_unused(const uint8_t *used, uint32_t n);
/* Ends the free regions of a device (-1: of all devices). Returns their bytes. */
size_t lm_pinned_trim(int device);
/* For a request for pinned memory that found none: ends the free regions of all devices, and gives
 * the free memory of the other pools of pinned memory back (device_pool.h). Waits for the work of
 * the devices. Returns whether there was any. The thread is not in an active section. */
bool lm_pinned_make_room(void);
/* A tick of decay, by a thread of loam's own: ends regions that were free since the last tick.
 * Returns whether there is more to do at a later tick. */
bool lm_pinned_decay(void);
/* For a process without a service thread, after a free: ends free regions under the rules that
 * lm_device_pool_shed (device_pool.h) has for device memory. */
void lm_pinned_shed(void);

/* Returns whether the law at the head of this file holds. Takes lm_pools_pinned_lock. For tests: no
 * other thread allocates or frees during the call. */
bool lm_pinned_is_valid(void);

#endif
