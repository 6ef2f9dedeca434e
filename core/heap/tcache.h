/* tcache.h - the thread cache: the fast path of malloc and of free.
 *
 * A thread has one bin for each pool and size class: a stack of cached objects. A malloc pops an
 * object from a bin, a free pushes one. Neither takes a lock, calls a function or uses an atomic
 * read-modify-write instruction.
 *
 *   malloc   engine/decision.h finds what the policy decided for the request: a bin, and the state
 *            byte of a live object with the request's token. lm_tcache_take_ready pops the object.
 *   free     lm_tcache_locate_fast finds, from the address and the page map (map.h), the state
 *            byte of the object and its bin. lm_tcache_give_to makes the object cached and pushes
 *            it.
 *
 * Each function here does nothing and says so if the bin is empty or full, or if the object needs
 * more than a push. tcache_slow.h then opens, fills and empties bins. The thread is in an active
 * section (lm_thread_enter) during all of this, except where a comment says otherwise.
 *
 * The state of an object is one byte in its state cell. Its two high bits say whether the object is
 * FREE (0), LIVE (64) or CACHED (128). Its six low bits are an id that leads to the object's token.
 * A free changes LIVE + id to CACHED + id. "Plain" states are LIVE + id with an id above 0: as
 * signed bytes, they are the greatest, so one comparison (lm_state_is_plain) refuses all others:
 * FREE and CACHED ones, and live ones whose token is counted or just changes. The states from
 * LM_STATE_LIVE + 1 to LM_STATE_COMMON_LAST mean one token in all spans. pages/state.h has the
 * rest. */
#ifndef LM_TCACHE_H
#define LM_TCACHE_H

#include "os/poison.h"
#include "os/thread.h"
#include "pages/class.h"
#include "pages/map.h"

/* ---- Bins --------------------------------------------------------------------------------- */

enum { LM_POOL_PLACES = 1024 };

/* A cached object and the cell of its state. The cell's address is kept with the object because
 * computing it at an allocation would delay the loads that come after the store to the cell. */
typedef struct lm_cached_object {
  void *p;
  lm_state_cell *cell;
} lm_cached_object;

/* A stack of cached objects of one pool and one size class.
 *
 * Law: low <= top <= high, and low .. top - 1 are the items; low == high: the bin is not open, it
 * has no array. The item before `low` is a sentinel without a state cell, so a pop may read
 * top[-1] before it knows whether the bin is empty. Only a bin that no entry of a decision cache
 * names may be all zeros instead. No other bin has items in the cache lines of this bin's items,
 * because another thread would write to them.
 *
 * Only the bin's thread uses a bin, except as thread.h (LM_SLOW_TAKING) and retire.c describe. A
 * forked child inherits the bins of the threads that it lost, perhaps in the middle of an
 * operation, and empties them. So an object leaves a bin before anything else is done with it, and
 * enters a bin last. At worst the child loses the one object that was between. */
typedef struct lm_bin {
  _Atomic(lm_cached_object *) top; /* NULL also while the items are moved to another place */
  lm_cached_object *low, *high;
  lm_cached_object *seen; /* `top` at the last sweep: a bin where it has not moved is idle */
} __attribute__((aligned(LM_CACHE_LINE / 2))) lm_bin;

/* The bins of one pool in one thread. A pool's bins are at the same place in every thread, so a
 * decision names a bin by one number: its offset in the thread's area. Place 0 is unused. */
typedef struct lm_pool_bins {
  uint32_t next; /* place of the next pool in the list of lm_thread_bins; 0: none */
  bool listed;
  uint32_t until_guard;  /* requests until the next guarded block, where a strategy samples them */
  uint32_t large;        /* slots that the open bins of large classes have room for */
  uint64_t drawn;        /* a bit for each class: the bin was filled since it last ran over */
  lm_cached_object none; /* the sentinel of those bins that are not open */
  lm_bin bin[LM_CLASSES_ALL];
} lm_pool_bins;

/* All bins of a thread, at LM_THREAD_BINS in the thread's area. */
typedef struct lm_thread_bins {
  uint32_t first; /* head of the list of pools that have had open bins here; 0: none */
  lm_pool_bins pool[LM_POOL_PLACES];
} lm_thread_bins;

_Static_assert(LM_THREAD_BINS + sizeof(lm_thread_bins) <= LM_THREAD_SIZE,
               "a thread's area has room for the bins of every pool");
_Static_assert(LM_THREAD_SIZE <= LM_MAP_KEY_LOW, "a span's key has room for the offset of a bin");

/* The bins of a thread. */
LM_INLINE lm_thread_bins *lm_tcache_of(lm_thread *t) {
  return (lm_thread_bins *)((char *)t + LM_THREAD_BINS);
}
/* The bin at this offset in the thread's area. */
LM_INLINE lm_bin *lm_tcache_bin_at(lm_thread *t, size_t offset) {
  return (lm_bin *)((char *)t + offset);
}

/* Relaxed: only the thread itself writes `top`, or a thread that waited until it is at rest. */
LM_INLINE lm_cached_object *lm_tcache_bin_top(const lm_bin *bin) {
  return atomic_load_explicit(&bin->top, memory_order_relaxed);
}
/* Release: an item is written before `top` includes it. That order matters to a forked child, which
 * inherits both from a thread that it lost. */
LM_INLINE void lm_tcache_bin_set_top(lm_bin *bin, lm_cached_object *top) {
  atomic_store_explicit(&bin->top, top, memory_order_release);
}

/* Writes an item. The fence keeps gcc from building one vector of both words first. */
LM_INLINE void lm_tcache_item_write(lm_cached_object *item, void *p, lm_state_cell *cell) {
  item->p = p;
  atomic_signal_fence(memory_order_release);
  item->cell = cell;
}

/* The sentinel: its address is the begin of the range, where no object ever is, and it has no state
 * cell. */
LM_INLINE lm_cached_object lm_tcache_sentinel(void) {
  return (lm_cached_object){ (void *)lm_map.base, NULL };
}
LM_INLINE bool lm_tcache_is_sentinel(const lm_cached_object *item) { return !item->cell; }

/* ---- Taking: malloc ----------------------------------------------------------------------- */

/* The state bytes of the span of a cached object. The span cannot end while
 * one of its objects is cached. */
LM_INLINE lm_state_cell *lm_tcache_states_of(const lm_cached_object *item) {
  return lm_load(lm_state_cell *, &lm_map_span_of(item->p)->cells);
}

/* Tells the address sanitizer that the caller may use the small object at p. */
LM_INLINE void lm_tcache_unpoison(void *p) {
  lm_unpoison(p, lm_load(size_t, &lm_map_span(lm_map_slot(p))->size));
}

/* Makes a cached object live. Release pairs with the acquire of whoever finds the object by an
 * address (lm_map_find): its token was noted before. */
LM_INLINE void lm_tcache_set_state(lm_state_cell *cell, lm_state state) {
  lm_assert(lm_state_is_cached(atomic_load_explicit(cell, memory_order_relaxed)));
  lm_assert(lm_state_is_live(state));
  atomic_store_explicit(cell, state, memory_order_release);
}

/* Tells whether the palette of the item's span has the decision's token where the decision says.
 * The fences make gcc load everything again that was loaded before: no register is free for it. */
LM_INLINE bool lm_tcache_palette_has(const lm_cached_object *item, const lm_decision *d) {
  atomic_signal_fence(memory_order_seq_cst);
  lm_state_cell *states = lm_tcache_states_of(item);
  bool has = lm_load(lm_token, lm_state_palette_token(states, d->state)) == d->token;
  atomic_signal_fence(memory_order_seq_cst);
  return has;
}

/* Pops the last object of a bin, which is p with this state cell, and makes it live. */
LM_INLINE void *lm_tcache_take_last(lm_bin *bin, void *p, lm_state_cell *cell, lm_state state) {
  lm_assert(lm_tcache_bin_top(bin) > bin->low);
  lm_add_release(lm_cached_object *, &bin->top, -1);
  lm_tcache_set_state(cell, state);
  lm_tcache_unpoison(p);
  if (!p) __builtin_unreachable();
  return p;
}

/* The whole of a malloc that finds its decision: pops an object from the decision's bin and makes
 * it live with the decision's token, which is not a counted one. NULL, and nothing was done: the
 * bin is empty, or the object's span has not noted the token yet. Tokens that are common to all
 * spans need no such note.
 *
 * It calls nothing, so it fits into the registers that need not be saved. lm_keep makes gcc hold
 * the offset of the bin, and add it to the thread in each instruction, instead of a pointer. */
LM_INLINE void *lm_tcache_take_ready(lm_thread *t, const lm_decision *d) {
  size_t bin = d->bin;
  const lm_cached_object *top = lm_tcache_bin_top(lm_tcache_bin_at(t, bin));
  lm_keep(bin);
  lm_state_cell *cell = top[-1].cell;
  if (lm_unlikely(!cell)) return NULL;
  lm_state state = d->state;
  lm_assert(!(d->token & LM_TOKEN_COUNTED));
  lm_keep(bin);
  if (lm_likely(state <= LM_STATE_COMMON_LAST))
    return lm_tcache_take_last(lm_tcache_bin_at(t, bin), top[-1].p, cell, state);
  if (!lm_tcache_palette_has(&top[-1], d)) return NULL;
  return lm_tcache_take_last(lm_tcache_bin_at(t, bin), top[-1].p, top[-1].cell, d->state);
}

/* Pops an object from a bin that is not all zeros, and makes it live with a counted token. NULL,
 * and nothing was done: the bin is empty, or the span of its last object has noted no counted
 * token, or another one. */
LM_INLINE void *lm_tcache_take_counted(lm_thread *t, size_t bin, lm_token token) {
  const lm_cached_object *top = lm_tcache_bin_top(lm_tcache_bin_at(t, bin));
  lm_assert(top && token & LM_TOKEN_COUNTED);
  if (lm_unlikely(lm_tcache_is_sentinel(&top[-1]))) return NULL;
  if (lm_load_first(lm_token, &lm_map_span_of(top[-1].p)->token) != token) return NULL;
  lm_load_fence(); /* pairs with the release of lm_map_note_counted: the palette has the token */
  return lm_tcache_take_last(lm_tcache_bin_at(t, bin), top[-1].p, top[-1].cell, LM_STATE_COUNTED);
}

/* Like lm_tcache_take_large_ready, but the block gets this state, which suits the token. */
LM_INLINE void *lm_tcache_take_large_as(lm_thread *t, const lm_decision *d, size_t size,
                                        lm_state state) {
  lm_bin *bin = lm_tcache_bin_at(t, d->bin);
  lm_cached_object *top = lm_tcache_bin_top(bin);
  if (lm_unlikely(top == bin->low)) return NULL;
  void *p = top[-1].p;
  lm_span *head = lm_map_span_of_state(top[-1].cell);
  lm_tcache_bin_set_top(bin, top - 1);
  lm_assert(size && lm_map_slots(size) <= lm_load(uint32_t, &head->slots));
  /* Both are read by whoever found the block by an address, and trusted only if the state is live
   * and the entry unchanged. */
  atomic_store_explicit(&head->token, d->token, memory_order_relaxed);
  atomic_store_explicit(&head->size, lm_align_up(size, LM_PAGE), memory_order_relaxed);
  lm_tcache_set_state(&head->cell, state);
  lm_unpoison(p, lm_align_up(size, LM_PAGE));
  if (!p) __builtin_unreachable();
  return p;
}
/* Pops a block for `size` bytes from the bin of a decision for a large class, whose token is not
 * counted. The token of a large block stands beside its state. NULL: the bin is empty. */
LM_INLINE void *lm_tcache_take_large_ready(lm_thread *t, const lm_decision *d, size_t size) {
  return lm_tcache_take_large_as(t, d, size, LM_STATE_LIVE + LM_ID_WIDE);
}

/* ---- Giving back: free -------------------------------------------------------------------- */

/* Where an object was found: its state cell, and the entry of a slot that it is in. */
typedef struct lm_located {
  lm_state_cell *cell;
  const lm_span *span;
} lm_located;

/* Finds the state cell and the bin's offset of the object that begins at p, live or not; p is in a
 * slot of this entry. False: no object that threads cache begins there. Each field is read once: a
 * program that waits for memory here goes on only as far as the processor can queue loads. */
LM_INLINE bool lm_tcache_locate_in(const lm_span *s, const void *p, lm_located *out, size_t *bin) {
  uint64_t offset = (uintptr_t)p - lm_load(uintptr_t, &s->start);
  uint64_t key = lm_load(uint64_t, &s->key);
  lm_keep(key);
  unsigned __int128 product = (unsigned __int128)offset * key;
  if (lm_unlikely((uint64_t)product >= key)) return false;
  *bin = lm_map_key_bin(key);
  *out = (lm_located){ lm_load(lm_state_cell *, &s->cells) + (size_t)(product >> 64), s };
  return true;
}
/* Like lm_tcache_locate_in, for any address, by the bounds of the range. */
LM_INLINE bool lm_tcache_locate(const void *p, lm_located *out) {
  uintptr_t place = (uintptr_t)p - lm_map.base;
  size_t bin;
  if (lm_unlikely(place >= lm_load_first(size_t, &lm_map.top))) return false;
  lm_load_fence();
  return lm_tcache_locate_in(lm_map_span(place >> LM_SLOT_SHIFT), p, out, &bin);
}
/* Like lm_tcache_locate, by the thread's `reach`. It finds nothing while the thread has a reason to
 * take the slow path, and before the thread has seen the whole range. */
LM_INLINE bool lm_tcache_locate_fast(lm_thread *t, const void *p, lm_located *out, size_t *bin) {
  uintptr_t reach = lm_load_first(uintptr_t, &t->reach);
  const lm_span *s;
  lm_keep(reach);
  if (!lm_map_span_in(reach, p, &s)) return false;
  lm_load_fence();
  return lm_tcache_locate_in(s, p, out, bin);
}

/* Lets the calling thread's frees use lm_tcache_locate_fast, if the range is whole and the thread
 * has no reason to take the slow path. Acquire pairs with the store of lm_map.reach. */
LM_INLINE void lm_tcache_set_reach(lm_thread *t) {
  uintptr_t reach = atomic_load_explicit(&lm_map.reach, memory_order_acquire);
  if (reach && lm_load(uintptr_t, &t->reach) != reach && !lm_load(uint32_t, &t->slow_reasons))
    lm_thread_set_reach(t, reach);
}

/* Makes a located object cached and pushes it into the thread's bin at this offset. False, and
 * nothing was done: the bin is full, or the object is not live with a plain token. One signed
 * comparison refuses objects that are free, that are cached (a double free), or that the engine
 * counts.
 * Relaxed: the caller of free has the address from the caller of malloc, by whatever
 * synchronization the program used. */
LM_INLINE bool lm_tcache_give_to(lm_thread *t, void *p, lm_located met, size_t bin) {
  lm_state state = lm_load(lm_state, met.cell);
  if (lm_unlikely(!lm_state_is_plain(state))) return false;
  lm_cached_object *top = lm_tcache_bin_top(lm_tcache_bin_at(t, bin));
  lm_keep(bin);
  if (lm_unlikely(top == lm_tcache_bin_at(t, bin)->high)) return false;
  lm_keep(bin);
  atomic_store_explicit(met.cell, (lm_state)(state + LM_STATE_IDS), memory_order_relaxed);
  /* The next owner writes to the object, and would wait then for its cache line. */
  __builtin_prefetch(p, 1);
  lm_poison(p, lm_load(size_t, &met.span->size));
  lm_tcache_item_write(top, p, met.cell);
  lm_tcache_bin_set_top(lm_tcache_bin_at(t, bin), top + 1);
  return true;
}
/* Frees a located object that lm_tcache_give_to refused because its token is counted; *token is
 * that token. False, and nothing was done: there was another reason, or the bin is full. Relaxed,
 * as in lm_tcache_give_to. */
LM_INLINE bool lm_tcache_give_counted(lm_thread *t, void *p, lm_located refused, lm_token *token) {
  const lm_span *s = refused.span;
  lm_state state = lm_load(lm_state, refused.cell);
  size_t bin = lm_load(uint32_t, &s->bin);
  lm_cached_object *top = lm_tcache_bin_top(lm_tcache_bin_at(t, bin));
  if (!lm_state_is_counted(state) || top == lm_tcache_bin_at(t, bin)->high) return false;
  *token = lm_load(lm_token, &s->token);
  if (lm_unlikely(state != LM_STATE_COUNTED)) {
    lm_state_cell *states = lm_load(lm_state_cell *, &s->cells);
    *token = lm_state_token(states, (size_t)(refused.cell - states), state);
  }
  lm_assert(*token & LM_TOKEN_COUNTED);
  atomic_store_explicit(refused.cell, lm_state_when_freed(state), memory_order_relaxed);
  lm_poison(p, lm_load(size_t, &s->size));
  lm_tcache_item_write(top, p, refused.cell);
  lm_tcache_bin_set_top(lm_tcache_bin_at(t, bin), top + 1);
  return true;
}
/* Like lm_tcache_give_to, with the bin that the object's span names. */
LM_INLINE bool lm_tcache_give_located(lm_thread *t, void *p, lm_located met) {
  return lm_tcache_give_to(t, p, met, lm_load(uint32_t, &met.span->bin));
}

/* Locates the object that begins at p and gives it back. False: nothing was done. If an object was
 * found but lm_tcache_give_to refused it, *refused says where it is; else *refused keeps its
 * value. */
LM_INLINE bool lm_tcache_give_or(lm_thread *t, void *p, lm_located *refused) {
  lm_located met;
  size_t bin;
  if (lm_unlikely(!lm_tcache_locate_fast(t, p, &met, &bin))) return false;
  if (lm_likely(lm_tcache_give_to(t, p, met, bin))) return true;
  *refused = met;
  return false;
}

/* The fast free: true if a live object of a size class began at p, and it is in a bin now. False:
 * nothing was done, and lm_pool_free knows what to do. Under LM_SLOW_COUNTING it always refuses,
 * because lm_pool_free then changes states by compare and exchange, so that no lm_pool_retoken is
 * lost. */
LM_INLINE bool lm_tcache_give(lm_thread *t, void *p) {
  lm_located refused;
  return lm_tcache_give_or(t, p, &refused);
}
/* Like lm_tcache_give, in an active section of its own. */
LM_INLINE bool lm_tcache_give_quick(lm_thread *t, void *p) {
  lm_thread_begin(t);
  bool done = lm_tcache_give(t, p);
  lm_thread_leave(t);
  return done;
}

#endif
