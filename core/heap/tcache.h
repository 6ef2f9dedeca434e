/* tcache.h - the thread cache: the fast path of malloc and of free.
 *
 * A thread has one bin for each pool and size class: a stack of cached objects. A malloc pops an
 * object from a bin, a free pushes one. Neither takes a lock, calls a function or uses an atomic
 * read-modify-write instruction.
 *
 * The token of an object is a number that names the site that requested the object and the policy
 * that decided (plan/site.h). The state of an object is one byte in the object's state cell: a kind
 * plus an id, from 0 to 63, that leads to the token.
 *
 *   0 + id     FREE      unused, in no bin
 *   64 + id    LIVE      the host uses the object; 64 + 0 (BUSY): its token is being replaced
 *   128 + id   CACHED    in a bin, or in another store of freed objects (heap/central.h)
 *   192, more            the host uses the object, and a free of it does more than a push:
 *              COUNTED   its token is counted (engine/live_bytes.h)
 *              SAMPLED   + id: the profiler may know it (engine/sample.h)
 *
 * The plain states are LIVE + id with an id above 0: 65 to 127. As signed bytes they are the
 * greatest, because CACHED and COUNTED are below 0. So one comparison (lm_state_is_plain) refuses
 * every object that free must not push: free, cached, busy, counted and sampled ones. A free of a
 * plain object adds 64 (LM_STATE_IDS), so LIVE + id becomes CACHED + id.
 *
 * Ids up to LM_COMMON_TOKENS (states up to LM_STATE_COMMON_LAST) mean one token in all spans. A
 * span is a run of memory that is cut into objects of one class. A malloc with such an id stores
 * the state and is done. Greater ids mean a token in the palette of the span, a small table in
 * front of the span's state cells. So a malloc with such an id first checks that the palette has
 * the token. The last id, LM_ID_WIDE, means a larger table of the span. An object can have that
 * id; the state in a decision never has it.
 * pages/state.h has the rest.
 *
 *   malloc   engine/decision.h finds what the policy decided for the request: a bin, and the state
 *            of a live object with the request's token. lm_tcache_take_ready pops the object.
 *   free     lm_tcache_locate_fast finds, from the address and the page map (pages/map.h), the
 *            state cell of the object and its bin. lm_tcache_give_to makes the object cached and
 *            pushes it.
 *
 * The functions of free, which others than loam_free use too:
 *
 *   lm_tcache_locate_fast        finds an object by the thread's `reach`; not on the slow path
 *   lm_tcache_locate             finds an object by the bounds of the range; on the slow path too
 *   lm_tcache_locate_in          finds an object in a slot that is known: a step of both
 *   lm_tcache_give_to            frees a located object whose bin is known
 *   lm_tcache_give_located       frees a located object: reads its bin from the page map
 *   lm_tcache_give_counted       frees a located object whose token is counted
 *   lm_tcache_give               locates and frees an object
 *   lm_tcache_give_in_section    lm_tcache_give for a thread that is not active
 *
 * Each function here does nothing and says so if the bin is empty or full, or if the object needs
 * more than a push. tcache_slow.h then opens, fills and empties bins. The thread is in an active
 * section (lm_thread_enter) during all of this, except where a comment says otherwise.
 *
 * lm_load (os/base.h) is a relaxed load, written as a plain one, because gcc makes better code of
 * that. lm_keep(x) makes gcc hold x in a register. lm_poison and lm_unpoison call the address
 * sanitizer, and do nothing in builds without it. */
#ifndef LM_TCACHE_H
#define LM_TCACHE_H

#include <string.h>

#include "heap/age.h"
#include "os/poison.h"
#include "os/thread.h"
#include "pages/class.h"
#include "pages/map.h"

/* ---- Bins --------------------------------------------------------------------------------- */

enum { LM_POOL_PLACES = 1024 }; /* of the bins of pools; place 0 is no pool's: lm_pool_bins */

/* A cached object and the cell of its state. The cell's address is kept with the object: an
 * allocation that had to compute it would store to the cell later, and later loads would wait. */
typedef struct lm_cached_object {
  void *p;
  lm_state_cell *cell;
} lm_cached_object;

/* A stack of cached objects of one pool and one size class.
 *
 * Law: low <= top <= high, and low .. top - 1 are the items. A bin with low == high is not open: it
 * has no array. The item before `low` is a sentinel without a state cell, so a pop may read top[-1]
 * before it knows whether the bin is empty. A bin that was never used is all zeros instead, and has
 * no sentinel; no entry of a decision cache names such a bin. The items of two bins are never in
 * one cache line, because different threads may write them.
 *
 * Only the bin's thread uses a bin, except as thread.h (LM_SLOW_TAKING) and retire.c describe. A
 * forked child inherits the bins of threads that do not exist in the child, perhaps in the middle
 * of an operation, and empties these bins. So a pop first takes the object off the bin and then
 * changes the object; a push first changes the object and then puts it on the bin. At worst the
 * child loses the one object of an operation that was under way. */
typedef struct lm_bin {
  _Atomic(lm_cached_object *) top; /* NULL: the bin is all zeros, or its items are being moved */
  lm_cached_object *low, *high;
  lm_cached_object *seen; /* `top` at the last sweep (sweep.c): an unchanged bin is idle */
} __attribute__((aligned(LM_CACHE_LINE / 2))) lm_bin;

/* The bins of one pool in one thread. A pool's bins are at the same place in every thread, so a
 * decision names a bin by one number: its offset in the thread's area. No pool has place 0, so 0
 * can mean "no pool".
 *
 * Law: `large` is the sum, over the bins of large classes, of the items that the bin has room for
 * times the slots of a block of the class. */
typedef struct lm_pool_bins {
  uint32_t next;         /* place of the next pool in the list of lm_thread_bins; 0: none */
  bool listed;           /* the pool is in that list */
  bool takes_large;      /* the thread has taken large blocks since it last gave up idle bins */
  uint32_t until_guard;  /* requests until the next guarded block (lm_desc.guard) */
  uint32_t large;        /* slots (64 KiB) of the large blocks that the bins have room for */
  uint64_t drawn;        /* a bit for each class: the bin was filled since it last was full */
  lm_cached_object none; /* the sentinel of all bins that are not open */
  lm_bin bin[LM_CLASSES_ALL];
} lm_pool_bins;

/* All bins of a thread, at LM_THREAD_BINS in the thread's area.
 *
 * Law: the list that begins with `first` has each pool whose bins are `listed` once, and no other
 * pool. */
typedef struct lm_thread_bins {
  uint32_t first;      /* head of the list of pools that have had open bins here; 0: none */
  uint32_t slow_calls; /* calls of lm_sweep_poll by the threads that have had this area */
  uint32_t born;       /* `slow_calls` when this thread began */
  /* The number of ticks when the thread last gave up its idle bins by itself (sweep.c). Relaxed:
   * the thread that ticks reads it as a hint. */
  _Atomic uint32_t swept;
  uint32_t alarm; /* lm_pressure_word of the last alarm that the thread has obeyed; 0: none */
  lm_pool_bins pool[LM_POOL_PLACES];
} lm_thread_bins;

_Static_assert(LM_THREAD_BINS + sizeof(lm_thread_bins) <= LM_THREAD_SIZE,
               "a thread's area has room for the bins of every pool");
_Static_assert(LM_THREAD_SIZE <= LM_MAP_KEY_LOW, "a span's key has room for the offset of a bin");

/* Returns the bins of a thread. */
LM_INLINE lm_thread_bins *lm_tcache_of(lm_thread *t) {
  return (lm_thread_bins *)((char *)t + LM_THREAD_BINS);
}
/* Returns the bin at this offset in the thread's area. */
LM_INLINE lm_bin *lm_tcache_bin_at(lm_thread *t, size_t offset) {
  return (lm_bin *)((char *)t + offset);
}

/* Returns the `top` of a bin. Relaxed: only the bin's thread writes it, or a thread that has waited
 * until the bin's thread uses no bin. */
LM_INLINE lm_cached_object *lm_tcache_bin_top(const lm_bin *bin) {
  return atomic_load_explicit(&bin->top, memory_order_relaxed);
}
/* Sets the `top` of a bin. Release: an item is written before `top` includes it, so a forked child
 * that empties the bin finds no item that is half written. */
LM_INLINE void lm_tcache_bin_set_top(lm_bin *bin, lm_cached_object *top) {
  atomic_store_explicit(&bin->top, top, memory_order_release);
}

/* Writes an item. The fence makes gcc store the two words one by one; else gcc would first join
 * them in a vector register, which is slower. */
LM_INLINE void lm_tcache_item_write(lm_cached_object *item, void *p, lm_state_cell *cell) {
  item->p = p;
  atomic_signal_fence(memory_order_release);
  item->cell = cell;
}

/* Copies `n` items in the order of their addresses: `to` may be in the same array, before `from`.
 * Copies some at a time, because the C library copies more than 4 KiB by a string instruction. That
 * instruction takes several times as long where the items were written a short time ago. */
LM_INLINE void lm_tcache_items_copy(lm_cached_object *to, const lm_cached_object *from,
                                    uint32_t n) {
  enum { AT_ONCE = 128 };
  for (; n > AT_ONCE; n -= AT_ONCE, to += AT_ONCE, from += AT_ONCE)
    memmove(to, from, AT_ONCE * sizeof *to);
  memmove(to, from, n * sizeof *to);
}

/* Returns a sentinel: an item without a state cell. Its address is the start of the range
 * (pages/map.h), where no object ever is. */
LM_INLINE lm_cached_object lm_tcache_sentinel(void) {
  return (lm_cached_object){ (void *)lm_map.base, NULL };
}
LM_INLINE bool lm_tcache_is_sentinel(const lm_cached_object *item) { return !item->cell; }

/* ---- Taking: malloc ----------------------------------------------------------------------- */

/* Returns the state cells of the span of a cached object, from the entry of the page map for the
 * object's address. The span exists as long as one of its objects is cached. */
LM_INLINE lm_state_cell *lm_tcache_states_of(const lm_cached_object *item) {
  return lm_load(lm_state_cell *, &lm_map_span_of(item->p)->cells);
}

/* Tells the address sanitizer that the caller may use the small object at p. */
LM_INLINE void lm_tcache_unpoison(void *p) {
  lm_unpoison(p, lm_load(size_t, &lm_map_span(lm_map_slot(p))->size));
}

/* Makes a cached object live. Release pairs with the acquire of a thread that finds the object by
 * an address (lm_map_find): the place that the id names has the token. */
LM_INLINE void lm_tcache_set_state(lm_state_cell *cell, lm_state state) {
  lm_assert(lm_state_is_cached(atomic_load_explicit(cell, memory_order_relaxed)));
  lm_assert(lm_state_is_live(state));
  atomic_store_explicit(cell, state, memory_order_release);
}

/* Returns whether the palette of the item's span has the decision's token at the place that the
 * decision's state names. gcc has no free register to keep what the caller loaded before. So the
 * fences make gcc load those values again afterwards, instead of saving them on the stack. */
LM_INLINE bool lm_tcache_palette_has(const lm_cached_object *item, const lm_decision *d) {
  atomic_signal_fence(memory_order_seq_cst);
  lm_state_cell *states = lm_tcache_states_of(item);
  bool has = lm_load(lm_token, lm_state_palette_token(states, d->state)) == d->token;
  atomic_signal_fence(memory_order_seq_cst);
  return has;
}

/* Pops the last item of a bin, makes its object live with this state, and returns the object. `p`
 * and `cell` are the two words of that item, which the caller has read. lm_add_release lowers `top`
 * by one instruction and releases, like lm_tcache_bin_set_top. __builtin_unreachable tells gcc
 * that p is not NULL, so gcc removes tests of the result. */
LM_INLINE void *lm_tcache_take_last(lm_bin *bin, void *p, lm_state_cell *cell, lm_state state) {
  lm_assert(lm_tcache_bin_top(bin) > bin->low);
  lm_add_release(lm_cached_object *, &bin->top, -1);
  lm_tcache_set_state(cell, state);
  lm_tcache_unpoison(p);
  if (!p) __builtin_unreachable();
  return p;
}

/* All that a malloc does once it has found its decision: pops an object from the decision's bin and
 * makes it live with the decision's state. The decision's token is not a counted one. Returns NULL,
 * and has done nothing, if the bin is empty, or if the id is one of a palette and the palette of
 * the object's span does not have the token there yet.
 *
 * This function calls nothing, so gcc needs only registers that a function need not save. The
 * offset of the bin is kept apart, so that the object can be read into the register in which malloc
 * returns it. lm_keep(bin) makes gcc add the offset to `t` in each instruction, so that no second
 * register is needed for a pointer. */
LM_INLINE void *lm_tcache_take_ready(lm_thread *t, const lm_decision *d) {
  size_t bin = d->bin;
  lm_keep_apart(bin);
  const lm_cached_object *top = lm_tcache_bin_top(lm_tcache_bin_at(t, bin));
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

/* Pops an object from a bin and makes it live with a counted token. The bin is not all zeros.
 * Returns NULL, and has done nothing, if the bin is empty, or if the entry of the page map for the
 * last object does not have this counted token (lm_span.token). */
LM_INLINE void *lm_tcache_take_counted(lm_thread *t, size_t bin, lm_token token) {
  const lm_cached_object *top = lm_tcache_bin_top(lm_tcache_bin_at(t, bin));
  lm_assert(top && token & LM_TOKEN_COUNTED);
  if (lm_unlikely(lm_tcache_is_sentinel(&top[-1]))) return NULL;
  if (lm_load_first(lm_token, &lm_map_span_of(top[-1].p)->token) != token) return NULL;
  lm_load_fence(); /* pairs with the release of lm_map_note_counted: the palette has the token */
  return lm_tcache_take_last(lm_tcache_bin_at(t, bin), top[-1].p, top[-1].cell, LM_STATE_COUNTED);
}

/* Pops a block for `size` bytes from the bin of a decision for a large class, and makes it live
 * with the decision's token; `is_counted` says whether that token is counted. Returns NULL if the
 * bin is empty. The token of a large block stands in the block's entry of the page map, beside its
 * state cell. */
LM_INLINE void *lm_tcache_take_large_ready(lm_thread *t, const lm_decision *d, size_t size,
                                           bool is_counted) {
  lm_bin *bin = lm_tcache_bin_at(t, d->bin);
  lm_cached_object *top = lm_tcache_bin_top(bin);
  if (lm_unlikely(top == bin->low)) return NULL;
  void *p = top[-1].p;
  lm_span *head = lm_map_span_of_state(top[-1].cell);
  lm_tcache_bin_set_top(bin, top - 1);
  lm_assert(size && lm_map_slots(size) <= lm_load(uint32_t, &head->slots));
  /* Relaxed: a thread that finds the block by an address may read the token and the size here. It
   * uses them only if the state is live and the entry is unchanged. */
  atomic_store_explicit(&head->token, d->token, memory_order_relaxed);
  atomic_store_explicit(&head->size, lm_align_up(size, LM_PAGE), memory_order_relaxed);
  lm_tcache_set_state(&head->cell, is_counted ? LM_STATE_COUNTED : LM_STATE_LIVE + LM_ID_WIDE);
  if (is_counted) lm_age_reset(lm_map_slot(p)); /* see age.h */
  lm_unpoison(p, lm_align_up(size, LM_PAGE));
  if (!p) __builtin_unreachable();
  return p;
}

/* ---- Giving back: free -------------------------------------------------------------------- */

/* The state and the page map's entry of an object that begins at a given address. */
typedef struct lm_located {
  lm_state_cell *cell; /* the cell of its state */
  const lm_span *span; /* the entry of the page map for the slot where the object begins */
} lm_located;

/* Finds the object, live or not, that begins at p. `s` is the entry of the slot that p is in. Sets
 * *out, and *bin to the offset of the object's bin. Returns false if no object of a size class
 * begins at p. pages/map.h explains the multiplication: the high half of the product is the index
 * of the object, and p is an object's start if and only if the low half is below `key`. Each field
 * is read once, because a processor that waits for memory has room for few more loads. */
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
/* Finds the object that begins at any address p, by the bounds of the range. Works on the slow path
 * too, and for a range that is not whole. The thread need not be active if it knows that a live
 * object begins at p. The acquire of lm_map.top (lm_load_first with lm_load_fence) pairs with the
 * release in range.c that raises `top`: the base is set, and the entries below it are readable. */
LM_INLINE bool lm_tcache_locate(const void *p, lm_located *out) {
  size_t bin, top = lm_load_first(size_t, &lm_map.top);
  lm_load_fence();
  uintptr_t place = (uintptr_t)p - lm_map.base;
  if (lm_unlikely(place >= top)) return false;
  return lm_tcache_locate_in(lm_map_span(place >> LM_SLOT_SHIFT), p, out, &bin);
}
/* Finds the object that begins at any address p, by the thread's `reach`. Finds nothing while
 * `reach` is LM_REACH_NONE: while the thread has a reason for the slow path, and until the thread
 * has copied lm_map.reach. lm_load_first and lm_load_fence together are an acquire load: the entry
 * is read after `reach`. */
LM_INLINE bool lm_tcache_locate_fast(lm_thread *t, const void *p, lm_located *out, size_t *bin) {
  uintptr_t reach = lm_load_first(uintptr_t, &t->reach);
  const lm_span *s;
  lm_keep_apart(reach);
  if (!lm_map_span_in(reach, p, &s)) return false;
  lm_load_fence();
  return lm_tcache_locate_in(s, p, out, bin);
}

/* Copies lm_map.reach to the calling thread, so that its frees can use lm_tcache_locate_fast. Does
 * nothing if the range is not whole, or if the thread has a reason for the slow path. Acquire pairs
 * with the store of lm_map.reach. */
LM_INLINE void lm_tcache_update_reach(lm_thread *t) {
  uintptr_t reach = atomic_load_explicit(&lm_map.reach, memory_order_acquire);
  if (reach && lm_load(uintptr_t, &t->reach) != reach && !lm_load(uint32_t, &t->slow_reasons))
    lm_thread_set_reach(t, reach);
}

/* Frees a located object: makes it cached and pushes it into the thread's bin at this offset.
 * Returns false, and has done nothing, if the bin is full or not open, or if the state of the
 * object is not plain: the object is free, cached (a double free), busy, counted or sampled. The
 * state is read and written relaxed: a program that passes an address from one thread to another
 * orders the malloc before the free by its own means. */
LM_INLINE bool lm_tcache_give_to(lm_thread *t, void *p, lm_located met, size_t bin) {
  lm_state state = lm_load(lm_state, met.cell);
  if (lm_unlikely(!lm_state_is_plain(state))) return false;
  lm_cached_object *top = lm_tcache_bin_top(lm_tcache_bin_at(t, bin));
  lm_keep(bin);
  if (lm_unlikely(top == lm_tcache_bin_at(t, bin)->high)) return false;
  lm_keep(bin);
  atomic_store_explicit(met.cell, (lm_state)(state + LM_STATE_IDS), memory_order_relaxed);
  /* The program will probably get this object from its next malloc and write to it. The prefetch
   * spares it the wait for the cache line then. */
  __builtin_prefetch(p, 1);
  lm_poison(p, lm_load(size_t, &met.span->size));
  lm_tcache_item_write(top, p, met.cell);
  lm_add_release(lm_cached_object *, &lm_tcache_bin_at(t, bin)->top, 1);
  return true;
}
/* Frees an object that lm_tcache_give_to refused because its token is counted; *token becomes that
 * token. The caller subtracts the object's bytes from the live bytes of the tag. Returns false, and
 * has done nothing, if the token is not counted, or if the bin is full or not open. Relaxed, for
 * the reason that lm_tcache_give_to gives. */
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
/* lm_tcache_give_to with the bin that the page map names for the object. */
LM_INLINE bool lm_tcache_give_located(lm_thread *t, void *p, lm_located met) {
  return lm_tcache_give_to(t, p, met, lm_load(uint32_t, &met.span->bin));
}

/* Frees the object that begins at p by the fast path. Returns false, and has done nothing, if the
 * fast path refuses; lm_pool_free then frees the object. It always refuses while the thread has
 * LM_SLOW_COUNTING, since `reach` is LM_REACH_NONE then. lm_pool_free changes states by compare and
 * exchange during that time, so that no lm_pool_retoken of another thread is lost. */
LM_INLINE bool lm_tcache_give(lm_thread *t, void *p) {
  lm_located met;
  size_t bin;
  return lm_likely(lm_tcache_locate_fast(t, p, &met, &bin)) && lm_tcache_give_to(t, p, met, bin);
}
/* Enters an active section, calls lm_tcache_give and leaves the section. */
LM_INLINE bool lm_tcache_give_in_section(lm_thread *t, void *p) {
  lm_thread_begin(t);
  bool done = lm_tcache_give(t, p);
  lm_thread_leave(t);
  return done;
}

#endif
