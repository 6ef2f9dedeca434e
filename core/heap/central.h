/* central.h - the central store of small objects of one (pool, class): spans, and a depot.
 *
 * A span's only record of what is free is its marks; objects are drawn by looking for FREE ones
 * from where the last one was found. In front of the spans stands a depot, a stack of
 * objects that threads gave back and others take again by copying items, their marks CACHED
 * all the while (the depot of Bonwick and Adams, "Magazines and Vmem", 2001; tcmalloc's transfer
 * cache). While much is freed and nothing is taken, the depot is given up, because one object in it
 * keeps a whole span.
 *
 * Threads draw from spans of their own as far as LM_CENTRAL_CURRENT goes, because the marks of 64
 * objects share a cache line, and their memory may: what two threads keep freeing and taking should
 * not.
 *
 * A span that goes to another pool while its objects live (migrate.c) is set apart first: its entry
 * then names a bin that no thread has, so that frees take the long way and each object comes home
 * by itself, and nothing is drawn from it.
 *
 * Empty spans are kept for their class until memory that nobody touched would be taken for another
 * one of the pool: then that has them. A pool's stores stand in one array, by class.
 *
 * Law: every span of the store with free > 0 that is not apart is in one place: in `drawing`, or
 * else in the list `empty` if free == count, and if not in `purged` from when the pages of its free
 * objects went back until an object of it comes back, before and after in `partial`; `spans` counts
 * all. `spare` of the regions is the sum of the slots of all empty ones of the pool's stores. */
#ifndef LM_CENTRAL_H
#define LM_CENTRAL_H

#include "pages/class.h"
#include "pages/regions.h"

enum { LM_CENTRAL_CURRENT = 4 };

typedef struct lm_central {
  lm_lock lock;
  uint32_t drawing[LM_CENTRAL_CURRENT]; /* first slots of the spans that threads draw from, or 0 */
  uint32_t partial, purged, empty;      /* first slots of listed spans, 0 for none */
  uint32_t spans, empties;
  uint32_t stocked;        /* objects in the depot */
  uint32_t surplus;        /* objects pushed since one was last pulled */
  _Atomic bool sheds;      /* there is no depot: so many that what comes goes to its spans */
  bool drawn;              /* some were pulled since the last tick (decay.h) */
  _Atomic bool fed;        /* some came from a bin that ran over since then: more may come */
  lm_cached_object *depot; /* NULL until first used */
  lm_regions *regions;     /* these four are constant */
  uint32_t strategy, bin;
  unsigned class_;
  _Atomic uint32_t apart; /* spans that are being moved; written under the lock */
} __attribute__((aligned(LM_CACHE_LINE))) lm_central;

/* Slots of a span of a class: enough for 16 objects, and for at most an eighth wasted. */
uint32_t lm_central_span_slots(unsigned class_);
/* Objects in it. */
uint32_t lm_central_span_count(unsigned class_);

/* `s` is zeroed memory. */
void lm_central_init(lm_central *s, lm_regions *regions, uint32_t strategy, uint32_t bin,
                     unsigned class_);
/* Takes at most `want` objects, CACHED: of those in the depot, or where it is empty, of spans. 0
 * only when there is no memory. `who` tells threads apart. */
unsigned lm_central_pull(lm_central *s, unsigned who, lm_cached_object *items, unsigned want);
/* Gives back objects that are CACHED; others are passed over (a forked child may inherit a
 * thread's bin at the moment an object left it). */
void lm_central_push(lm_central *s, const lm_cached_object *items, unsigned n);
/* The same of what nobody wanted for a while: past the depot. */
void lm_central_return(lm_central *s, const lm_cached_object *items, unsigned n);
/* Whether what is given back is likely to be wanted no more. */
LM_INLINE bool lm_central_is_shedding(const lm_central *s) {
  return atomic_load_explicit(&s->sheds, memory_order_relaxed);
}
/* Gives back the depot and every empty span; true if that leaves nothing. */
bool lm_central_drain(lm_central *s);
/* Gives up the depot and the empty spans. */
void lm_central_trim(lm_central *s);
/* A tick: the same if nothing was pulled since the last one, and no bin ran over: while a program
 * frees what it has, most spans are about to be empty, and cost nothing page by page. True if there
 * is something to give up at a later one. */
bool lm_central_decay(lm_central *s);
/* Shows the marks of its span at `slot`, which may be apart, under the lock; false: it has none. */
typedef void lm_central_look_fn(void *ctx, lm_state_cell *side, uint32_t count);
bool lm_central_show_states(lm_central *s, uint32_t slot, lm_central_look_fn *look, void *ctx);
/* Exchanges the token of the object at p under the lock that keeps its span. */
bool lm_central_retoken(lm_central *s, const void *p, lm_token old, lm_token new_token);

/* Sets a span apart that has live objects; `bin` says its class and is nobody's. False if it is not
 * a span of this store with such. Threads may still free objects of it into their bins until a
 * grace has passed. */
bool lm_central_detach(lm_central *s, uint32_t slot, uint32_t bin);
/* Takes back an object that no bin takes; false if its span is another store's by now. */
bool lm_central_free_detached(lm_central *s, lm_cached_object item);
/* Objects of a span that is apart, live or on their way home. */
uint32_t lm_central_detached_count(lm_central *s, uint32_t slot);
/* Ends its being apart: as before; as a span of another store, of the same class, its live objects
 * with the token that `renew` says (the number of objects held comes back); or for good, until its
 * last object is freed: its memory then goes back to the range. */
void lm_central_reattach(lm_central *s, uint32_t slot);
typedef lm_token lm_retoken_fn(void *ctx, lm_token old);
uint32_t lm_central_adopt(lm_central *to, lm_central *from, uint32_t slot, lm_retoken_fn *renew,
                          void *ctx);
void lm_central_abandon(lm_central *s, uint32_t slot);
bool lm_central_has_abandoned(uint32_t slot); /* a span's */
/* The laws; the lock held. */
bool lm_central_is_valid(const lm_central *s);

#endif
