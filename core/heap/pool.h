/* pool.h - requests to the pools of host memory: allocate, free, find, resize.
 *
 *   range    one reserved piece of address space (1 TiB, less where that is refused) that holds all
 *            memory of pools. One subtraction tells whether an address is in it, and one shift in
 *            which slot.
 *   slot     64 KiB of the range, with one lm_span entry in a dense array beside it (map.h)
 *   region   a run of slots that a pool took from the range and prepared as its strategy asks:
 *            bound, advised, committed, locked (region.h)
 *   span     slots of a region that hold objects of one size class (central.h)
 *   object   the memory that a caller gets. loam writes nothing in it or before it.
 *   block    an object with slots of its own: a large or a guarded one (large.h)
 *   state    one byte for each object, beside its span: free, cached or live, and the place of its
 *            token, which says the site and the generation (state.h)
 *   bin      a thread's stack of cached objects of one pool and size class (tcache.h)
 *   central list   the spans of one pool and size class (central.h)
 *
 * Law of a span of small objects: count of objects = free + cached + live; the span's `free` is the
 * number of FREE states; a span whose objects are all free goes back to its region sooner or later.
 * A pool belongs to one strategy, so a page never holds objects of two placements.
 *
 * A malloc that hits and most frees need only tcache.h. Other files on pools: pools.h (the table of
 * pools), sweep.h (idle memory goes back), retire.h (a pool ends), walk.h (each live object). */
#ifndef LM_POOL_H
#define LM_POOL_H

#include "heap/strategy.h"
#include "heap/tcache.h"
#include "pages/metadata.h"
#include "pages/regions.h"

/* An object as the page map describes it. */
typedef struct lm_object {
  void *base;
  size_t size;        /* usable bytes */
  lm_token token;     /* LM_TOKEN_NONE: not known */
  uint32_t strategy;  /* id */
  bool large;         /* it has slots of its own */
  const void *damage; /* set by lm_pool_free: lm_large_damage of the block */
} lm_object;

typedef enum lm_free_result {
  LM_FREE_DONE,     /* a live object began there, and is free now */
  LM_FREE_FOREIGN,  /* the address is in no memory of a pool */
  LM_FREE_INTERIOR, /* the address is in a span or block, but no object begins there */
  LM_FREE_DOUBLE    /* an object began there, and has been freed already */
} lm_free_result;

/* Registers what pools do when a thread ends and around fork. Does that once, however often it is
 * called. To be called before any module that takes memory of pools, or has it given back, under a
 * lock of its own: that module's locks are then renewed later in a child. */
void lm_pool_start(void);
/* Gives the strategy's bins a place in every thread, which its pool needs. False: LM_POOL_PLACES
 * pools have one. Any thread. */
bool lm_pool_reserve(lm_strategy *strategy);
/* The offset, in each thread, of the bin that serves sizes of class `c` under a strategy, whose
 * alignment may call for a greater class. 0: bins serve no such requests. That is so if the
 * strategy is not of a pool, zeroes memory or guards blocks; for large classes also if it has a
 * limit or its memory costs more than the touched part of it; and if no place is left. The result
 * stays true until the strategy is retired. */
uint32_t lm_pool_bin(lm_strategy *strategy, unsigned c);

/* A request to a pool. */
typedef struct lm_pool_request {
  size_t size, align; /* bytes; `align` is 0 or a power of two */
  lm_token token;     /* not LM_TOKEN_NONE */
} lm_pool_request;

/* Serves any request that a strategy with a pool can serve: small, large, aligned, guarded. The
 * strategy's share for the calling thread's NUMA node serves it, where it has shares. *zeroed:
 * whether all bytes are known to be zero. NULL: there is no memory, or the strategy's limit leaves
 * too little (lm_pool_why). `t`, which may be NULL, is the calling thread, and active. */
void *lm_pool_alloc(lm_thread *t, lm_strategy *strategy, const lm_pool_request *r, bool *zeroed);
/* Serves a small request that lm_pool_alloc could not serve: by a free object that is larger than
 * needed, in memory that the strategy's pool has. The bytes are not known to be zero. NULL: there
 * is no such object. `t` is as for lm_pool_alloc. */
void *lm_pool_alloc_larger(lm_thread *t, lm_strategy *strategy, const lm_pool_request *r);
/* Returns in words why the strategy's pool last had no memory. The text is static. */
const char *lm_pool_why(lm_strategy *strategy);

/* The complete free, which checks everything. *out describes the object, also one that was dead or
 * that p points into; its token is the last one, or LM_TOKEN_NONE. `t` is the calling thread, and
 * active. */
lm_free_result lm_pool_free(lm_thread *t, void *p, lm_object *out);
/* The two halves of lm_pool_free. lm_pool_hold makes the object dead, and its memory stays
 * untouched, because a device may still read it. lm_pool_release then gives the memory to its
 * pool. */
lm_free_result lm_pool_hold(void *p, lm_object *out);
void lm_pool_release(void *p);

/* Tells whether a live guarded block begins at p. */
bool lm_pool_is_guarded(const void *p);
/* Describes the live object that p points at or into. False: there is none. Takes no lock. */
bool lm_pool_find(const void *p, lm_object *out);
/* Describes the live block with slots of its own in whose slots p is, before the block or behind
 * its usable bytes. False: there is none. Walks the page map, so it takes long. */
bool lm_pool_find_beside(const void *p, lm_object *out);
/* Tells whether the address is in the range of the pools, below the highest extent. */
LM_INLINE bool lm_pool_owns(const void *p) { return lm_map_owns(p); }

/* The usable bytes of the live object that begins at p, if the fast path of free would take it; 0:
 * else. */
LM_INLINE size_t lm_pool_usable(const void *p) {
  lm_located met;
  if (!lm_tcache_locate(p, &met) || !lm_state_is_plain(lm_load(lm_state, met.cell))) return 0;
  return lm_load(size_t, &met.span->size);
}
/* The usable bytes of the object of a size class that begins at p, which the caller knows to be
 * live; 0: no such object begins at p. The state is prefetched and not read: a program that asks
 * for the size before each free reads it there. */
LM_INLINE size_t lm_pool_live_size(const void *p) {
  lm_located met;
  if (!lm_tcache_locate(p, &met)) return 0;
  __builtin_prefetch(met.cell, 1);
  return lm_load(size_t, &met.span->size);
}

/* Makes `size` bytes usable at p without moving the object. False: that is not possible, no live
 * object begins at p, or half the memory would be enough. */
bool lm_pool_resize(void *p, size_t size);
/* Moves the live block at p to a larger one of the same pool by moving its pages, where that is
 * cheaper than copying bytes. Returns the new address. NULL: nothing was done, and the caller
 * allocates, copies and frees. */
void *lm_pool_move(void *p, size_t size);

/* Tells whether a live object can be one that was requested with `size` bytes; the pools do not
 * remember the requested size. Law, while lm_pool_has_oversized is false: an object of more than 64
 * bytes has less than twice the requested bytes, rounded up to the alignment of its strategy and,
 * for a block, to pages. */
bool lm_pool_fits_request(const lm_object *object, size_t size);
/* Tells whether some request was served with more room than that law allows. Relaxed: the program
 * orders an allocation before questions about its size. */
extern _Atomic bool lm_pool_has_oversized;
/* To be called where `size` bytes are served at a multiple of `room`, or in a block of `room`
 * bytes, before the program has the block. */
LM_INLINE void lm_pool_note_oversized(size_t size, size_t room) {
  if (lm_unlikely(room > 64 && size <= room / 2))
    atomic_store_explicit(&lm_pool_has_oversized, true, memory_order_relaxed);
}

/* Replaces the token of the live object at p if that is still `old`. False: it is not, or there is
 * no memory to note the new token. */
bool lm_pool_retoken(void *p, lm_token old, lm_token new_token);
/* How memory of a strategy is made ready; the file is left out (region.h). */
lm_preparation lm_pool_prepare(const lm_desc *desc);

/* Bytes of the range, all pools together. */
typedef struct lm_pool_figures {
  uint64_t reserved; /* address space */
  uint64_t regions;  /* in regions of pools */
  uint64_t metadata; /* memory of loam's own structures */
} lm_pool_figures;
void lm_pool_figures_get(lm_pool_figures *out);
/* Checks the laws of all pools, of the page map and of metadata, with every lock of a pool held.
 * Tests call it. */
bool lm_pool_is_valid(void);

#endif
