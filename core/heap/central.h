/* central.h - the central list of one (pool, size class): the spans of small objects, and a depot.
 *
 * What is free in a span is known only from its states: objects are taken by looking for FREE ones,
 * from where the last one was found. In front of the spans is a depot: a stack of objects that
 * threads gave back, and that other threads take again by copying items. Their states stay CACHED
 * all the while (the depot of Bonwick and Adams, "Magazines and Vmem", 2001; tcmalloc's transfer
 * cache). While a program frees much and allocates nothing, the depot is given up, because one
 * object in it keeps a whole span.
 *
 * Draining. If a process has no service thread (os/decay.h), a list begins to drain when the
 * program has freed at least as many objects of the list as are left. While it frees them, it takes
 * no object of the list. Then the bins into which threads free hold at most a 16th of the objects
 * that are left, and none below 16. So the last objects reach their spans although no thread sweeps
 * the bins. Once few objects are left, the free pages between them go back to the system. A list
 * whose objects are taken again soon does not drain the next time.
 *
 * Threads take from up to LM_CENTRAL_CURRENT different spans, chosen by the thread's number. The
 * states of 64 objects share a cache line, and small objects share one too. Two threads that
 * allocate and free all the time should not write to the same lines.
 *
 * A span that goes to another pool while its objects live (migrate.c) is detached first. Its
 * entries then name a bin that no thread has, so every free of its objects takes the slow path and
 * gives the object back to the span, and nothing is taken from the span.
 *
 * Empty spans are kept for their class, until the pool would have to take untouched memory for
 * another class: then that class gets them. The central lists of a pool are one array, by class. */
#ifndef LM_CENTRAL_H
#define LM_CENTRAL_H

#include "heap/tcache.h"
#include "pages/class.h"
#include "pages/regions.h"

enum { LM_CENTRAL_CURRENT = 4 };
#define LM_CENTRAL_NONE UINT32_MAX /* a value of bin_most */

/* Law: a span that is not detached and has free objects is in exactly one place: in `current`, or
 * in one of three lists. `empty` has the spans whose objects are all free. `purged` has those whose
 * free pages went back to the system, until an object comes back to them. `partial` has the others.
 * `spans` counts all spans, detached ones too, and `empties` those in `empty`. The `spare` of the
 * regions is the sum of the slots of all empty spans of the pool. The objects in the depot are
 * CACHED. `out` counts the objects that are not FREE: live ones, those in bins and those in the
 * depot. lm_central_is_valid checks this. */
typedef struct lm_central {
  lm_lock lock;
  uint32_t current[LM_CENTRAL_CURRENT]; /* first slots of the spans that threads take from, or 0 */
  uint32_t partial, purged, empty;      /* first slots of the first spans in the lists, or 0 */
  uint32_t spans, empties;
  uint32_t stocked; /* objects in the depot */
  uint32_t surplus; /* objects pushed since one was last pulled; stops at UINT32_MAX */
  uint32_t out;
  /* 0, or the most objects that a bin should hold: then no depot is kept, and objects that come
   * back go to their spans. LM_CENTRAL_NONE: a bin should hold none. Relaxed. */
  _Atomic uint32_t bin_most;
  uint32_t purge_from; /* pages are given back while it drains once so few objects are left */
  /* The most objects that were live or in bins since the free pages of all spans went back, as seen
   * when objects come back. */
  uint32_t most_left;
  bool keeps; /* it does not drain: see `drained` */
  /* Objects that went back to their spans while the list drained, and objects that were pulled
   * since. If half as many are pulled within a second, the program takes and frees its set
   * periodically, and the list does not drain again until a tick finds it idle. */
  uint32_t drained, retaken;
  int64_t drained_ns;      /* when it last drained (lm_sys_clock_ns) */
  bool pulled;             /* objects were pulled since the last tick (decay.h) */
  _Atomic bool fed;        /* since then a bin ran over, so more objects may come. Relaxed */
  lm_cached_object *depot; /* NULL until first used */
  lm_regions *regions;     /* constant, as the next three */
  uint32_t strategy, bin;  /* id; offset of the threads' bins */
  unsigned class_;
  _Atomic uint32_t detached; /* detached spans; written under the lock, a hint for others */
} __attribute__((aligned(LM_CACHE_LINE))) lm_central;

/* The slots of a span of a class: enough for 16 objects, so less than a 16th of it is wasted. */
uint32_t lm_central_span_slots(unsigned class_);
/* The objects in a span of a class. */
uint32_t lm_central_span_count(unsigned class_);

/* `c` is zeroed memory. */
void lm_central_init(lm_central *c, lm_regions *regions, uint32_t strategy, uint32_t bin,
                     unsigned class_);
/* The laws; the caller holds the lock. */
bool lm_central_is_valid(const lm_central *c);

/* ---- Objects. These take the lock; any thread calls them. */

/* Takes at most `want` objects, which become CACHED: from the depot, or if it is empty from spans.
 * `who` is a number that tells threads apart. Returns how many; 0 only without memory. */
unsigned lm_central_pull(lm_central *c, unsigned who, lm_cached_object *items, unsigned want);
/* Like lm_central_pull for one object, but the list gets no new span. False: it has no object. */
bool lm_central_pull_present(lm_central *c, unsigned who, lm_cached_object *item);
/* Gives back objects that are CACHED. Others are passed over, because a forked child may inherit a
 * thread's bin at the moment when an object left it. */
void lm_central_push(lm_central *c, const lm_cached_object *items, unsigned n);
/* Like lm_central_push, for objects that were idle: they go to their spans, not to the depot. */
void lm_central_return(lm_central *c, const lm_cached_object *items, unsigned n);
/* Returns the most objects that a bin should hold while the list keeps no depot, because objects
 * come back and none are taken; LM_CENTRAL_NONE: none. 0: there is no such bound at present. */
LM_INLINE uint32_t lm_central_bin_most(const lm_central *c) {
  return atomic_load_explicit(&c->bin_most, memory_order_relaxed);
}
/* Exchanges the token of the live object at p. False: it is not of this list, its token is not
 * `old`, or there is no memory to note the new one. */
bool lm_central_retoken(lm_central *c, const void *p, lm_token old, lm_token new_token);

/* ---- Giving memory back. These take the lock. */

/* Gives back the depot and every empty span. True: no span is left. */
bool lm_central_drain(lm_central *c);
/* Gives back the depot, the empty spans, and the pages of other spans where nothing lives. */
void lm_central_trim(lm_central *c);
/* Like lm_central_trim, but stops when lm_sys_clock_ns passes end_ns, and passes over the list if
 * another thread holds its lock. Returns false if it stopped: the caller calls it again later. */
bool lm_central_trim_until(lm_central *c, int64_t end_ns);
/* A tick: does lm_central_trim, unless objects were pulled or a bin ran over since the last tick.
 * While a program frees much, most spans are about to become empty and then go back as wholes,
 * which costs less than page by page. True: there is something to give back at a later tick. */
bool lm_central_decay(lm_central *c);
/* Like lm_central_decay, but stops when lm_sys_clock_ns passes end_ns, and passes over the list if
 * another thread holds its lock. *more becomes true if there is something to give back at a later
 * tick. Returns false if it stopped: the caller calls it again later. */
bool lm_central_decay_until(lm_central *c, int64_t end_ns, bool *more);

/* ---- Spans */

/* Calls `look` for the states of the list's span at `slot`, which may be detached, with the lock
 * held. False: the list has no span there. */
typedef void lm_central_look_fn(void *ctx, lm_state_cell *states, uint32_t count);
bool lm_central_show_states(lm_central *c, uint32_t slot, lm_central_look_fn *look, void *ctx);

/* Detaches a span that has objects which are not free. `bin` says the class and is no thread's
 * bin. False: there is no such span of this list. Threads that were in an active section may still
 * free objects of it into their bins, until a grace has passed. */
bool lm_central_detach(lm_central *c, uint32_t slot, uint32_t bin);
/* Gives back an object of a detached span. False: the span is now another list's. */
bool lm_central_free_detached(lm_central *c, lm_cached_object item);
/* The objects of a detached span that are live, or on their way back to it. */
uint32_t lm_central_detached_count(lm_central *c, uint32_t slot);
/* Ends the detachment in one of three ways. Reattach: the span is used as before. */
void lm_central_reattach(lm_central *c, uint32_t slot);
/* Adopt: the span becomes one of another list, of the same class. Each live object gets the token
 * that `renew` returns, if there is memory to note it. Returns the objects that are not free. */
typedef lm_token lm_retoken_fn(lm_token old);
uint32_t lm_central_adopt(lm_central *to, lm_central *from, uint32_t slot, lm_retoken_fn *renew);
/* Abandon: the span stays detached. When its last object is freed, its slots go back to the
 * range. */
void lm_central_abandon(lm_central *c, uint32_t slot);
/* Tells whether the span at `slot` was abandoned. */
bool lm_central_has_abandoned(uint32_t slot);

#endif
