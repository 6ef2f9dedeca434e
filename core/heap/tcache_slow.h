/* tcache_slow.h - the slow path of the thread cache: how bins open, grow, are filled from the
 * central lists, run over and are emptied. tcache.h has the fast path and the law of a bin. */
#ifndef LM_TCACHE_SLOW_H
#define LM_TCACHE_SLOW_H

#include "heap/tcache.h"

struct lm_pool;
struct lm_strategy;

/* The offset, in each thread's area, of the bin of a class at a pool's place. */
LM_INLINE uint32_t lm_tcache_bin_offset(uint32_t place, unsigned class_) {
  return (uint32_t)(LM_THREAD_BINS + offsetof(lm_thread_bins, pool) + place * sizeof(lm_pool_bins) +
                    offsetof(lm_pool_bins, bin) + class_ * sizeof(lm_bin));
}
/* The place that a bin's offset belongs to; 0: no pool's. */
LM_INLINE uint32_t lm_tcache_bin_place(uint32_t offset) {
  return (uint32_t)((offset - lm_tcache_bin_offset(0, 0)) / sizeof(lm_pool_bins));
}
/* The class that a bin's offset belongs to. */
LM_INLINE unsigned lm_tcache_bin_class(uint32_t offset) {
  return (unsigned)((offset - lm_tcache_bin_offset(0, 0)) % sizeof(lm_pool_bins) / sizeof(lm_bin));
}

/* ---- Requests. The calling thread is active. */

/* Pops an object from the bin at this offset, which is filled first if it is empty, and makes it
 * live with `token`. *hint is the id of the token to try first, and becomes the id that the object
 * got (lm_states_assign). NULL: there is no memory, or none within the strategy's limit. */
void *lm_tcache_take(lm_thread *t, uint32_t offset, lm_token token, uint8_t *hint);
/* Pops a block for `size` bytes from the bin of a large class at this offset, or takes one from the
 * pool. *zeroed: whether all its bytes are known to be zero. NULL: there is no memory. */
void *lm_tcache_take_large(lm_thread *t, uint32_t offset, size_t size, lm_token token,
                           bool *zeroed);
/* Takes one object from the central list of the class, without a bin. `t` may be NULL. */
void *lm_tcache_take_one(lm_thread *t, struct lm_pool *pool, unsigned class_, lm_token token);
/* Like lm_tcache_take_one, but takes no new memory of the system for objects. */
void *lm_tcache_take_left(lm_thread *t, struct lm_pool *pool, unsigned class_, lm_token token);
/* Prepares a bin for the fast path before an entry of the decision cache names it: a bin that is
 * all zeros gets a sentinel. Returns false if the system has no memory for that. */
bool lm_tcache_name_bin(lm_thread *t, uint32_t offset);
/* Makes the bins of a place writable, which are zeros until then. False: the system refuses. Called
 * before a bin that may never have been used is written. */
bool lm_tcache_extend(lm_thread *t, uint32_t place);

/* ---- Frees. The calling thread is active. */

/* Frees a small object that the fast path refused because its bin is full or not open. False, and
 * nothing was done: there was another reason. That reason may be gone by now: the fast path refuses
 * an object while its span moves to another pool or its token changes. */
bool lm_tcache_give_full(lm_thread *t, void *p, lm_located refused);
/* Pushes a cached object into a bin that is neither full nor closed. */
void lm_tcache_put(lm_bin *bin, lm_cached_object item);
/* Puts a cached object where the bin at this offset is full or closed: into the bin, which becomes
 * wider or gives up its older half, or back to its pool. */
void lm_tcache_overflow(lm_thread *t, uint32_t offset, lm_cached_object item);
/* Gives n cached objects of a small class back to their central list, and their bytes to the
 * limit. */
void lm_tcache_give_back(struct lm_pool *pool, unsigned class_, const lm_cached_object *items,
                         uint32_t n);

/* ---- Emptying bins. By the bin's thread, or while that thread is kept out (sweep.c, retire.c). */

/* Tells whether the bin has an array for items. */
LM_INLINE bool lm_tcache_bin_is_open(const lm_bin *bin) { return bin->low != bin->high; }
/* The law of a bin: the order of its pointers, the sentinel, and that each item is cached. */
bool lm_bin_is_valid(const lm_bin *bin);
/* Returns whether the laws of a thread's bins and of the bins of each pool in its list hold. Called
 * by the thread itself. Looks at the bins of all places: for tests. */
bool lm_thread_bins_is_valid(const lm_thread_bins *bins);

/* The objects of a bin that was closed. Law: array is NULL and n is 0; or array[0] is the sentinel
 * and array[1] .. array[n] are the objects, which are cached until they are returned. */
typedef struct lm_tcache_batch {
  lm_cached_object *array;
  uint32_t n;
} lm_tcache_batch;

/* Returns whether the law of a batch holds that was not returned yet. */
bool lm_tcache_batch_is_valid(const lm_tcache_batch *batch);
/* Closes a bin and returns its objects. The caller passes them to lm_tcache_batch_return. */
lm_tcache_batch lm_tcache_bin_close(lm_pool_bins *bins, unsigned class_);
/* Gives the objects of a batch, which were idle, back to the pool, and frees the array. */
void lm_tcache_batch_return(struct lm_pool *pool, unsigned class_, const lm_tcache_batch *batch);
/* Closes all bins that a thread has of a pool, and gives their objects back. */
void lm_tcache_flush(struct lm_pool *pool, lm_pool_bins *bins);
/* Closes those bins of the calling thread, which is active, whose objects count against the
 * strategy's limit, and gives their objects back. */
void lm_tcache_flush_account(const struct lm_strategy *strategy, lm_thread *t);
/* Closes those bins of the calling thread, which is active, that it has not used since the last
 * such call, and gives their objects back. Begins a new interval. */
void lm_tcache_flush_idle(lm_thread *t);
/* Closes all bins of the calling thread, which is active, and gives their objects back. Unlike
 * lm_tcache_flush_thread it waits for no lock of pools. */
void lm_tcache_flush_own(lm_thread *t);
/* Closes all bins of a thread and gives their objects back. Takes lm_pools_make_lock. */
void lm_tcache_flush_thread(lm_thread *t);

#endif
