/* pool.h - objects of a size class, cut from spans, cached by thread; and the address map.
 *
 *   range   one reserved piece of address space (1 TiB, less where that is refused). All pool memory is in it, so "is
 *           it ours" is one subtraction and "which span" one shift.
 *   slot    64 KiB of the range; has one lm_span entry in a dense array beside it.
 *   region  a run of slots a pool took from the range, prepared by its strategy (bound, advised,
 *           committed, locked), cut into spans.
 *   span    one or more slots that hold objects of one class, or one large block.
 *   object  what a caller gets. Nothing of loam's stands in it or before it.
 *   token   4 bytes a object in the span's side table: whose it is. LM_FREE: in the span.
 *           LM_CACHED: in a thread's bin. Else live, and the token says site and generation (site.h).
 *   bin     a thread's stack of pointers to cached objects of one (pool, class).
 *
 * Law of a span of small objects: count objects = free (token LM_FREE) + cached + live; `free`
 * equals the number of LM_FREE tokens; a span with free == count goes back to its region.
 * A pool belongs to one strategy, so a page never serves another strategy's placement. */
#ifndef LM_POOL_H
#define LM_POOL_H

#include "strategy.h"
#include "thread.h"

/* Size classes: 16-byte steps to 128, then four to a doubling, to 32 KiB. */
enum { LM_CLASSES = 40, LM_SLOT_SHIFT = 16, LM_BIN_ITEMS = 64 };
#define LM_SLOT ((size_t)1 << LM_SLOT_SHIFT)
#define LM_SMALL_MAX ((size_t)32 << 10)

typedef uint32_t lm_token;
enum { LM_FREE = 0, LM_CACHED = 1 };
#define LM_TOKEN_SLOW 0x80000000u /* frees of it are counted by the engine: not on the fast path */

/* An object as the map knows it. */
typedef struct lm_object {
  void *base;
  size_t size;       /* usable */
  lm_token token;
  uint32_t strategy; /* id */
} lm_object;

typedef enum lm_freed { LM_FREED, LM_FREE_FOREIGN, LM_FREE_INTERIOR, LM_FREE_DOUBLE } lm_freed;

unsigned lm_class_of(size_t size);     /* size <= LM_SMALL_MAX */
size_t lm_class_size(unsigned class_); /* bytes */

/* Offset in the thread of the bin that serves class `c` sizes under a strategy (whose align may
 * raise the class); 0 if such requests cannot be served from bins (limit, guard, too large, not a
 * host strategy, zero asked). Constant for the life of the process. */
uint32_t lm_pool_bin(lm_strategy *strategy, unsigned c);

/* The fast path: pops an object of the bin and gives it `token`. NULL: bin empty, then
 * lm_pool_refill fills it and pops, NULL only when there is no memory. Caller is between
 * lm_thread_enter and _leave. (Defined inline below or in pool_inline part.) */
void *lm_pool_refill(lm_thread *t, uint32_t bin, lm_token token);

/* Any request of a host strategy: small, large, aligned, guarded. *zeroed says whether the memory
 * is known to be all zero. NULL when it cannot be had; no limit is looked at here. */
void *lm_pool_alloc(lm_thread *t, lm_strategy *strategy, size_t size, size_t align, lm_token token,
                    bool *zeroed);

/* The slow and complete free: checks, and tells what it was. *out is what the object was, for
 * LM_FREED and LM_FREE_DOUBLE/INTERIOR (then the object hit, token LM_FREE/LM_CACHED if dead). */
lm_freed lm_pool_free(lm_thread *t, void *p, lm_object *out);

/* The live object that holds p (interior pointers too); lock-free. */
bool lm_pool_find(const void *p, lm_object *out);
/* Whether an address is in the range at all. */
bool lm_pool_owns(const void *p);

/* Grows or shrinks where it is; true if `size` bytes can now be used at p. */
bool lm_pool_resize(void *p, size_t size);
/* The same bytes in a larger block, moved by pages where that is cheaper than a copy; NULL: the
 * caller allocates, copies and frees. p must be a live large object of the same strategy. */
void *lm_pool_move(lm_thread *t, void *p, size_t size);

/* Replaces the token of the live object at p if it still is `old`; for re-owning and counting. */
bool lm_pool_retoken(void *p, lm_token old, lm_token new_token);
/* While careful > 0, frees take tokens by an atomic exchange, so that retoken cannot be lost;
 * set it, then lm_thread_grace(), then walk. */
extern _Atomic uint32_t lm_pool_careful;

/* Each live object. Lock-free against alloc and free: each is seen as it was at some moment;
 * `visit` may call lm_pool_retoken and nothing else of the pool. */
void lm_pool_each(void (*visit)(void *ctx, const lm_object *object), void *ctx);

typedef struct lm_pool_figures { uint64_t reserved, regions, metadata; } lm_pool_figures;
void lm_pool_figures_get(lm_pool_figures *out);
bool lm_pool_is_valid(void); /* all laws above, everything locked; for LOAM_CHECKS=2 and tests */

/* Memory for loam's own structures, from the same range, never from malloc. Thread-safe, usable
 * before anything else and inside allocation. Counted as metadata. */
void *lm_own_alloc(size_t size);       /* zeroed, aligned to 16 */
void *lm_own_realloc(void *p, size_t size);
void lm_own_free(void *p);
size_t lm_own_size(const void *p);

#endif
