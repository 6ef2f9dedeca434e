/* pool.h - objects of a size class, cut from spans, cached by thread.
 *
 *   range   one reserved piece of address space (1 TiB, less where that is refused). All pool
 *           memory is in it, so "is it ours" is one subtraction and "which span" one shift.
 *   slot    64 KiB of the range; has one lm_span entry in a dense array beside it (map.h).
 *   region  a run of slots a pool took from the range, prepared by its strategy (bound, advised,
 *           committed, locked), cut into spans (region.h).
 *   span    one or more slots that hold objects of one class (central.h), or one block (large.h).
 *   object  what a caller gets. Nothing of loam's stands in it or before it.
 *   mark    a byte an object, beside the span: free in it, cached by a thread or its class's
 *           depot, or live; and whose, by way of a token that says site and generation (state.h).
 *   bin     a thread's stack of cached objects of one (pool, class), each with its mark's address.
 *
 * Law of a span of small objects: count objects = free + cached + live; `free` equals the number
 * of FREE marks; a span with free == count goes back to its region.
 * A pool belongs to one strategy, so a page never serves another strategy's placement.
 *
 * Beside this file: pools.h (all pools at once), sweep.h (what idles goes back), retire.h (a pool
 * ends), walk.h (each live object). */
#ifndef LM_POOL_H
#define LM_POOL_H

#include "heap/strategy.h"
#include "os/poison.h"
#include "os/thread.h"
#include "pages/class.h"
#include "pages/map.h"
#include "pages/metadata.h"
#include "pages/regions.h"

/* An object as the map knows it. */
typedef struct lm_object {
  void *base;
  size_t size; /* usable */
  lm_token token;
  uint32_t strategy; /* id */
  bool large;        /* it has slots of its own */
} lm_object;

typedef enum lm_free_result {
  LM_FREE_DONE,
  LM_FREE_FOREIGN,
  LM_FREE_INTERIOR,
  LM_FREE_DOUBLE
} lm_free_result;

/* Has pools told of forks and of threads' ends, once: before any module that takes memory of them,
 * or has it given back, under a lock of its own. */
void lm_pool_start(void);
/* A place for a strategy's bins in every thread, which its pool needs; false when LM_POOL_PLACES
 * pools have theirs. */
bool lm_pool_reserve(lm_strategy *strategy);
/* Offset in the thread of the bin that serves class `c` sizes under a strategy (whose align may
 * raise the class); 0 if such requests cannot be served from bins (limit, guard, not a host
 * strategy, zero asked; large classes where memory costs more than what is touched of it). Constant
 * until the strategy is retired. */
uint32_t lm_pool_bin(lm_strategy *strategy, unsigned c);

/* An object of the bin at this offset, now `token`'s; NULL only when there is no memory. The caller
 * is between lm_thread_enter and _leave. *hint: as lm_states_assign's. */
void *lm_tcache_take(lm_thread *t, uint32_t offset, lm_token token, uint8_t *hint);
/* A lane of the thread is going to name this bin, from which something has been taken. */
void lm_tcache_name_bin(lm_thread *t, uint32_t offset);
/* The same for a large class, for `size` bytes; *zeroed as lm_pool_alloc's. */
void *lm_tcache_take_large(lm_thread *t, uint32_t offset, size_t size, lm_token token,
                           bool *zeroed);
/* The fast free: true if `p` was a live object of a size class, and is free now. False: nothing was
 * done, lm_pool_free knows what to do. So it is for a wary thread: under LM_SLOW_COUNTING
 * lm_pool_free changes marks by an atomic exchange, so that lm_pool_retoken cannot be lost. */
LM_INLINE bool lm_pool_give(lm_thread *t, void *p);

/* Any request of a host strategy, or of its share here: small, large, aligned, guarded. *zeroed
 * says whether the memory is known to be all zero. NULL when it cannot be had; no limit is looked
 * at here. */
void *lm_pool_alloc(lm_thread *t, lm_strategy *strategy, size_t size, size_t align, lm_token token,
                    bool *zeroed);

/* Why such a request was last not served, in words. Static. */
const char *lm_pool_why(lm_strategy *strategy);

/* The slow and complete free: checks, and tells what it was. *out is what the object was, for
 * LM_FREE_DONE and LM_FREE_DOUBLE/INTERIOR; token: its last, LM_TOKEN_NONE where that is not known.
 * */
lm_free_result lm_pool_free(lm_thread *t, void *p, lm_object *out);

/* The same in two steps, of an object of a size class: between them it is nobody's, and its memory
 * is left alone: a device may be reading it. */
lm_free_result lm_pool_hold(void *p, lm_object *out);
void lm_pool_release(void *p);

/* The live object that holds p (interior pointers too); lock-free. */
bool lm_pool_find(const void *p, lm_object *out);
/* Whether an address is in the range at all. */
LM_INLINE bool lm_pool_owns(const void *p) { return lm_map_owns(p); }

/* Grows or shrinks where it is; true if `size` bytes can now be used at p, and p is a fair place
 * for them: false also when a block half as large would do. */
bool lm_pool_resize(void *p, size_t size);
/* Whether a live block can be what was asked for with a size, which is not remembered. Law: while
 * lm_pool_has_oversized is false, each that has more than 64 bytes is less than twice as large as
 * what was asked for, in multiples of its strategy's alignment and, where it has slots of its own,
 * pages. */
bool lm_pool_fits_request(const lm_object *object, size_t size);
extern _Atomic bool lm_pool_has_oversized;
/* So many bytes are to be, or to stay, where there is room for more: at a multiple of `room`, or in
 * a block of that. */
LM_INLINE void lm_pool_note_oversized(size_t size, size_t room) {
  if (lm_unlikely(room > 64 && size <= room / 2))
    atomic_store_explicit(&lm_pool_has_oversized, true, memory_order_relaxed);
}
/* The same bytes in a larger block, moved by pages where that is cheaper than a copy; NULL: the
 * caller allocates, copies and frees. p must be a live large object of the same strategy. */
void *lm_pool_move(lm_thread *t, void *p, size_t size);

/* Replaces the token of the live object at p if it still is `old`; for re-owning and counting. */
bool lm_pool_retoken(void *p, lm_token old, lm_token new_token);
/* How memory of a strategy is made ready. */
lm_preparation lm_pool_prepare(const lm_desc *desc);

typedef struct lm_pool_figures {
  uint64_t reserved, regions, metadata;
} lm_pool_figures;
void lm_pool_figures_get(lm_pool_figures *out);
bool lm_pool_is_valid(void); /* all laws above, everything locked; for LOAM_CHECKS=2 and tests */

/* The rest is the fast path. */

enum { LM_POOL_PLACES = 1024 };

/* Law: low <= top <= high; low .. top - 1 are its items; low == high: not open. A thread that ends
 * opens none. The item before `low` is nobody's: no token is the first of its span, so who takes
 * from a bin need not ask first whether it is empty. A bin that no lane names yet may be all NULL.
 * The cache lines of its items are no other bin's: another thread's would write there.
 * Only its thread touches a bin, save where thread.h and retire.c say how another may. But a
 * forked child inherits the bins of threads that it lost in the midst of things, and flushes them:
 * so an object leaves a bin before anything else is done with it and enters it last. At worst the
 * child loses what was on its way. */
typedef struct lm_bin {
  _Atomic(lm_cached_object *) top; /* NULL also while the items are moved about */
  lm_cached_object *low, *high;
  lm_cached_object *seen; /* top at the last tick: a bin where it has not moved is idle */
} __attribute__((aligned(LM_CACHE_LINE / 2))) lm_bin;

/* A pool's bins in a thread, at the same place in each, so that a decision table can hold "where in
 * the thread" as one number. Place 0 is nobody's. */
typedef struct lm_pool_bins {
  uint32_t next; /* place of the next pool with open bins in this thread, 0: none */
  bool listed;
  uint32_t until_guard;  /* requests until the next guarded block, of strategies that sample */
  uint32_t large;        /* slots that the open bins of large classes have room for */
  uint64_t drawn;        /* bit by class: the bin was filled since it last ran over */
  lm_cached_object none; /* before the items of bins that are not open, once a lane may name them */
  lm_bin bin[LM_CLASSES_ALL];
} lm_pool_bins;

typedef struct lm_thread_bins {
  uint32_t first; /* place of a pool with open bins, 0: none */
  lm_pool_bins pool[LM_POOL_PLACES];
} lm_thread_bins;

_Static_assert(LM_THREAD_BINS + sizeof(lm_thread_bins) <= LM_THREAD_SIZE,
               "a thread's area has room for the bins of every pool");
_Static_assert(LM_THREAD_SIZE <= LM_MAP_KEY_LOW, "a key has room for where a bin is");

LM_INLINE lm_thread_bins *lm_pool_bins_of(lm_thread *t) {
  return (lm_thread_bins *)((char *)t + LM_THREAD_BINS);
}
LM_INLINE lm_bin *lm_pool_bin_at(lm_thread *t, size_t offset) {
  return (lm_bin *)((char *)t + offset);
}

LM_INLINE lm_cached_object *lm_pool_bin_top(const lm_bin *bin) {
  return atomic_load_explicit(&bin->top, memory_order_relaxed);
}
/* Release: the items are there before they count, and are not touched while they do. */
LM_INLINE void lm_pool_bin_set_top(lm_bin *bin, lm_cached_object *top) {
  atomic_store_explicit(&bin->top, top, memory_order_release);
}

/* Not as one vector, which gcc would first have to make. */
LM_INLINE void lm_pool_bin_write(lm_cached_object *item, void *p, lm_state_cell *mark) {
  item->p = p;
  atomic_signal_fence(memory_order_release);
  item->mark = mark;
}

/* What stands before the items of a bin: in the range, where nothing ever is. */
LM_INLINE lm_cached_object lm_pool_bin_sentinel(void) {
  return (lm_cached_object){ (void *)lm_map.base, NULL };
}
LM_INLINE bool lm_pool_bin_is_sentinel(const lm_cached_object *item) { return !item->mark; }

/* The mark of a small object, live or cached. */
LM_INLINE lm_state_cell *lm_pool_state_of(const void *p) {
  const lm_span *s = lm_map_span_of(p);
  uint64_t offset = (uintptr_t)p - lm_load(uintptr_t, &s->start);
  uint64_t key = lm_load(uint64_t, &s->key);
  return lm_load(lm_state_cell *, &s->side) + (size_t)(((unsigned __int128)offset * key) >> 64);
}

/* The marks of the span of a cached object, which so stays as it is. */
LM_INLINE lm_state_cell *lm_pool_states_of(const lm_cached_object *item) {
  return lm_load(lm_state_cell *, &lm_map_span_of(item->p)->side);
}

/* For the address sanitizer: the object may be used. */
LM_INLINE void lm_pool_unpoison(void *p) {
  lm_unpoison(p, lm_load(size_t, &lm_map_span(lm_map_slot(p))->size));
}

LM_INLINE void lm_pool_set_state(lm_state_cell *at, lm_state mark) {
  lm_assert(lm_state_is_cached(atomic_load_explicit(at, memory_order_relaxed)));
  atomic_store_explicit(at, mark, memory_order_release);
}

/* Whether a lane's token stands in the palette of an item's span where the lane has it. What was
 * read before, or is read here, is read again: no register is left for it. */
LM_INLINE bool lm_pool_palette_has(const lm_cached_object *item, const lm_decision *d) {
  atomic_signal_fence(memory_order_seq_cst);
  lm_state_cell *side = lm_pool_states_of(item);
  bool known = lm_load(lm_token, lm_state_palette_token(side, d->mark)) == d->token;
  atomic_signal_fence(memory_order_seq_cst);
  return known;
}

/* Takes the last object of a bin, which is p, and its mark at `at`. */
LM_INLINE void *lm_pool_take_last(lm_bin *bin, void *p, lm_state_cell *at, lm_state mark) {
  lm_add_release(lm_cached_object *, &bin->top, -1);
  lm_pool_set_state(at, mark);
  lm_pool_unpoison(p);
  if (!p) __builtin_unreachable();
  return p;
}

/* From the bin of a lane whose token is not counted, if that is not empty and the token is known:
 * where it is common, it is. NULL: nothing was done. Without a call, so that all of it fits the
 * registers that need not be saved. What gcc keeps of a bin is its offset, which each instruction
 * adds to the thread by itself. */
LM_INLINE void *lm_pool_take_ready(lm_thread *t, const lm_decision *d) {
  size_t bin = d->bin;
  const lm_cached_object *top = lm_pool_bin_top(lm_pool_bin_at(t, bin));
  lm_keep(bin);
  lm_state_cell *at = top[-1].mark;
  if (lm_unlikely(!at)) return NULL;
  lm_state mark = d->mark;
  lm_assert(!(d->token & LM_TOKEN_COUNTED));
  lm_keep(bin);
  if (lm_likely(mark <= LM_STATE_COMMON_LAST))
    return lm_pool_take_last(lm_pool_bin_at(t, bin), top[-1].p, at, mark);
  if (!lm_pool_palette_has(&top[-1], d)) return NULL;
  return lm_pool_take_last(lm_pool_bin_at(t, bin), top[-1].p, top[-1].mark, d->mark);
}

/* Takes an object from a bin whose items have been laid out, for a token that is counted. NULL: the
 * bin is empty, or the span of its next object has another counted token, or none yet. */
LM_INLINE void *lm_pool_take_counted(lm_thread *t, size_t bin, lm_token token) {
  const lm_cached_object *top = lm_pool_bin_top(lm_pool_bin_at(t, bin));
  if (lm_unlikely(lm_pool_bin_is_sentinel(&top[-1]))) return NULL;
  if (lm_load_first(lm_token, &lm_map_span_of(top[-1].p)->token) != token) return NULL;
  lm_load_fence(); /* pairs with the release of lm_map_note_counted: the palette has the token */
  return lm_pool_take_last(lm_pool_bin_at(t, bin), top[-1].p, top[-1].mark, LM_STATE_COUNTED);
}

/* Takes the last block of the bin of an entry for a large class, for `size` bytes. NULL: the bin is
 * empty. The token of a large block stands beside its mark. */
LM_INLINE void *lm_pool_take_large_as(lm_thread *t, const lm_decision *d, size_t size,
                                      lm_state mark) {
  lm_bin *bin = lm_pool_bin_at(t, d->bin);
  lm_cached_object *top = lm_pool_bin_top(bin);
  if (lm_unlikely(top == bin->low)) return NULL;
  void *p = top[-1].p;
  lm_span *head = lm_map_span_of_state(top[-1].mark);
  lm_pool_bin_set_top(bin, top - 1);
  atomic_store_explicit(&head->token, d->token, memory_order_relaxed);
  atomic_store_explicit(&head->size, lm_align_up(size, LM_PAGE), memory_order_relaxed);
  lm_assert(lm_state_is_cached(atomic_load_explicit(&head->mark, memory_order_relaxed)));
  atomic_store_explicit(&head->mark, mark, memory_order_release);
  lm_unpoison(p, lm_align_up(size, LM_PAGE));
  if (!p) __builtin_unreachable();
  return p;
}
LM_INLINE void *lm_pool_take_large(lm_thread *t, const lm_decision *d, size_t size) {
  return lm_pool_take_large_as(t, d, size, LM_STATE_LIVE + LM_ID_WIDE);
}

/* What the fast free did not take because of its mark, or since its bin is full; mark NULL: there
 * was another reason. */
typedef struct lm_located {
  lm_state_cell *mark;
  const lm_span *span;
} lm_located;

/* The mark and the bin of the object of a bin that begins at p, which is in a slot of this entry,
 * live or not; false: none begins there. While active. Each field is read once: where a program
 * waits for memory, what it does next is under way only as far as the processor has room to keep
 * loads. */
LM_INLINE bool lm_pool_locate_in(const lm_span *s, const void *p, lm_located *out, size_t *bin) {
  uint64_t offset = (uintptr_t)p - lm_load(uintptr_t, &s->start);
  uint64_t key = lm_load(uint64_t, &s->key);
  lm_keep(key);
  unsigned __int128 product = (unsigned __int128)offset * key;
  if (lm_unlikely((uint64_t)product >= key)) return false;
  *bin = lm_map_key_bin(key);
  *out = (lm_located){ lm_load(lm_state_cell *, &s->side) + (size_t)(product >> 64), s };
  return true;
}
LM_INLINE bool lm_pool_locate(const void *p, lm_located *out) {
  uintptr_t place = (uintptr_t)p - lm_map.base;
  size_t bin;
  if (lm_unlikely(place >= lm_load_first(size_t, &lm_map.top))) return false;
  lm_load_fence();
  return lm_pool_locate_in(lm_map_span(place >> LM_SLOT_SHIFT), p, out, &bin);
}
/* The same, of a thread that looks without a second thought. */
LM_INLINE bool lm_pool_locate_fast(lm_thread *t, const void *p, lm_located *out, size_t *bin) {
  uintptr_t reach = lm_load_first(uintptr_t, &t->reach);
  const lm_span *s;
  lm_keep(reach);
  if (!lm_map_span_in(reach, p, &s)) return false;
  lm_load_fence();
  return lm_pool_locate_in(s, p, out, bin);
}

/* Lets the calling thread's frees look so, once there is a whole range. */
LM_INLINE void lm_pool_set_reach(lm_thread *t) {
  uintptr_t reach = atomic_load_explicit(&lm_map.reach, memory_order_acquire);
  if (reach && lm_load(uintptr_t, &t->reach) != reach && !lm_load(uint32_t, &t->slow_reasons))
    lm_thread_set_reach(t, reach);
}

/* Makes a live object that was met a dead one in the thread's bin. False: nothing was done, because
 * of its mark, or since its bin is full. One signed comparison refuses what is free, what is cached
 * (a double free) and what the engine counts. Relaxed, because whoever frees p has it from whoever
 * allocated it. */
LM_INLINE bool lm_pool_give_to(lm_thread *t, void *p, lm_located met, size_t bin) {
  lm_state mark = lm_load(lm_state, met.mark);
  if (lm_unlikely(!lm_state_is_plain(mark))) return false;
  lm_cached_object *top = lm_pool_bin_top(lm_pool_bin_at(t, bin));
  lm_keep(bin);
  if (lm_unlikely(top == lm_pool_bin_at(t, bin)->high)) return false;
  lm_keep(bin);
  atomic_store_explicit(met.mark, (lm_state)(mark + LM_STATE_IDS), memory_order_relaxed);
  /* Whoever gets it next writes to it, and would wait there for its line. */
  __builtin_prefetch(p, 1);
  lm_poison(p, lm_load(size_t, &met.span->size));
  lm_pool_bin_write(top, p, met.mark);
  lm_pool_bin_set_top(lm_pool_bin_at(t, bin), top + 1);
  return true;
}
LM_INLINE bool lm_pool_give_located(lm_thread *t, void *p, lm_located met) {
  return lm_pool_give_to(t, p, met, lm_load(uint32_t, &met.span->bin));
}

/* Both; *refused is left alone but where the second refuses. */
LM_INLINE bool lm_pool_give_or(lm_thread *t, void *p, lm_located *refused) {
  lm_located met;
  size_t bin;
  if (lm_unlikely(!lm_pool_locate_fast(t, p, &met, &bin))) return false;
  if (lm_likely(lm_pool_give_to(t, p, met, bin))) return true;
  *refused = met;
  return false;
}

/* The same for a small object that was refused because its bin is full, or not open. */
bool lm_pool_give_full(lm_thread *t, void *p, lm_located refused);
/* Frees an object that was refused because its token is counted; *token is that. False: nothing was
 * done, because of another reason or since the bin is full. While active. */
LM_INLINE bool lm_pool_give_counted(lm_thread *t, void *p, lm_located refused, lm_token *token) {
  const lm_span *s = refused.span;
  lm_state mark = lm_load(lm_state, refused.mark);
  size_t bin = lm_load(uint32_t, &s->bin);
  lm_cached_object *top = lm_pool_bin_top(lm_pool_bin_at(t, bin));
  if (!lm_state_is_counted(mark) || top == lm_pool_bin_at(t, bin)->high) return false;
  *token = lm_load(lm_token, &s->token);
  if (lm_unlikely(mark != LM_STATE_COUNTED)) {
    lm_state_cell *side = lm_load(lm_state_cell *, &s->side);
    *token = lm_state_token(side, (size_t)(refused.mark - side), mark);
  }
  lm_assert(*token & LM_TOKEN_COUNTED);
  atomic_store_explicit(refused.mark, lm_state_when_freed(mark), memory_order_relaxed);
  lm_poison(p, lm_load(size_t, &s->size));
  lm_pool_bin_write(top, p, refused.mark);
  lm_pool_bin_set_top(lm_pool_bin_at(t, bin), top + 1);
  return true;
}

LM_INLINE bool lm_pool_give(lm_thread *t, void *p) {
  lm_located refused;
  return lm_pool_give_or(t, p, &refused);
}
/* The same in an active section of its own. */
LM_INLINE bool lm_pool_give_quick(lm_thread *t, void *p) {
  lm_thread_begin(t);
  bool done = lm_pool_give(t, p);
  lm_thread_leave(t);
  return done;
}

/* Usable bytes of the live object at p that the fast path of free would take; 0: of none such. */
LM_INLINE size_t lm_pool_usable(const void *p) {
  lm_located met;
  if (!lm_pool_locate(p, &met) || !lm_state_is_plain(lm_load(lm_state, met.mark))) return 0;
  return lm_load(size_t, &met.span->size);
}

/* The same of one that lives for certain, whatever its mark, which is not waited for: only a free,
 * of those who ask before each, will want it. */
LM_INLINE size_t lm_pool_live_size(const void *p) {
  lm_located met;
  if (!lm_pool_locate(p, &met)) return 0;
  __builtin_prefetch(met.mark, 1);
  return lm_load(size_t, &met.span->size);
}

#endif
