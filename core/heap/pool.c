/* pool.c - requests to pools: which central list, bin or large block serves an allocation; frees;
 * and questions about an object. */
#include "heap/pool.h"

#include "gpu/gpu.h"
#include "heap/large.h"
#include "heap/pools.h"
#include "heap/sweep.h"
#include "heap/tcache_slow.h"

/* ---- Which bin serves a strategy ---------------------------------------------------------- */

#define SMALL_ALIGN_MAX LM_PAGE
/* Each object is at a multiple of this, at least. */
enum { ALIGN_MIN = 16 };

/* Tells whether memory of the strategy costs more than the touched part of it. */
static bool is_eager(const lm_desc *desc) {
  return desc->kind != LM_KIND_HOST || desc->prefault || desc->lock || desc->huge == LM_HUGE_2MIB ||
         desc->huge == LM_HUGE_1GIB;
}

/* The smallest class for `size` bytes whose objects are at multiples of `align`; LM_CLASSES: there
 * is none. */
static unsigned class_for(const lm_desc *desc, size_t size, size_t align) {
  lm_assert(lm_is_pow2(align));
  size_t most = is_eager(desc) ? LM_SMALL_EAGER : LM_SMALL_MAX;
  if (size > most || align > SMALL_ALIGN_MAX) return LM_CLASSES;
  unsigned c = lm_class_of(size);
  while (lm_class_size(c) & (align - 1)) c++;
  lm_assert(c < LM_CLASSES && lm_class_size(c) >= size);
  return c;
}

static size_t align_of(const lm_strategy *strategy, size_t align) {
  if (align < strategy->desc.align) align = strategy->desc.align;
  return align < ALIGN_MIN ? ALIGN_MIN : align;
}

/* Tells whether the strategy has spans of small objects. A block of shared memory always has slots
 * of its own, so that a process to which it is lent sees no other object. */
static bool has_small(const lm_desc *desc) { return desc->kind != LM_KIND_SHARED; }

/* Tells whether threads cache large blocks of the strategy. The spare slots of such blocks must
 * cost nothing until they are touched. Under a limit each block counts by itself, and in a file
 * each block is given back by itself. */
static bool has_large_bins(const lm_desc *desc) {
  return !is_eager(desc) && !desc->limit && desc->align <= LM_SLOT;
}

/* Tells whether pinned memory of the strategy comes from one pool. Where devices are near different
 * NUMA nodes, memory that shall be near its device comes from several. */
static bool has_pinned(const lm_strategy *s) {
  bool is_one = s->desc.placement.mode != LM_BIND_DEFAULT || !lm_gpu_is_spread();
  return s->whole->twins && is_one && lm_gpu_is_found();
}

static bool has_pool(const lm_strategy *strategy) {
  return lm_strategy_kind_is_pooled(strategy->desc.kind) || has_pinned(strategy);
}

bool lm_pool_reserve(lm_strategy *strategy) {
  if (lm_likely(lm_pools_place(strategy) != 0)) return true;
  lm_pool_start();
  return lm_pools_reserve(strategy);
}

lm_pool *lm_pool_for(lm_strategy *strategy) {
  if (!lm_pool_of(strategy)) lm_pool_start();
  return lm_pools_make(strategy);
}

uint32_t lm_pool_bin(lm_strategy *strategy, unsigned c) {
  const lm_desc *desc = &strategy->desc;
  lm_assert(c < LM_CLASSES_ALL);
  if (!has_pool(strategy) || desc->guard || desc->zero || !has_small(desc)) return 0;
  unsigned class_ = c < LM_CLASSES
                        ? class_for(desc, lm_class_max_size(c), align_of(strategy, ALIGN_MIN))
                        : c;
  if (class_ == LM_CLASSES && c != LM_CLASSES) return 0;
  if (class_ >= LM_CLASSES && !has_large_bins(desc)) return 0;
  return lm_pool_reserve(strategy) ? lm_tcache_bin_offset(lm_pools_place(strategy), class_) : 0;
}

/* ---- Requests ----------------------------------------------------------------------------- */

/* Tells whether this request is the one in N that the strategy guards. Without a thread every
 * request is, because there is nothing to count in. */
static bool is_guarded(lm_thread *t, const lm_strategy *strategy) {
  uint32_t every = strategy->desc.guard, place = lm_pools_place(strategy);
  if (every <= 1 || !t || !lm_tcache_extend(t, place)) return every != 0;
  uint32_t *left = &lm_tcache_of(t)->pool[place].until_guard;
  bool guarded = *left == 0;
  *left = guarded ? every - 1 : *left - 1;
  return guarded;
}

static void *alloc_small(lm_thread *t, lm_pool *pool, unsigned class_, lm_token token) {
  if (!t) return lm_tcache_take_one(NULL, pool, class_, token);
  uint8_t hint = lm_state_hint(token);
  uint32_t place = lm_pools_place(pool->strategy);
  return lm_tcache_take(t, lm_tcache_bin_offset(place, class_), token, &hint);
}

/* Makes the live object that `place` describes a cached one. Compare and exchange, because its
 * token may be replaced at this moment. False: it is not live, so it was freed before. Release
 * pairs with the acquire of a retoken: it finds the object dead. */
static bool mark_freed(lm_map_object *place, const void *p) {
  while (lm_state_is_live(place->state)) {
    lm_state was = place->state;
    if (atomic_compare_exchange_strong_explicit(place->cell, &was, lm_state_when_freed(was),
                                                memory_order_acq_rel, memory_order_acquire))
      return true;
    if (!lm_map_find(p, place)) return false;
  }
  return false;
}

/* Takes a block's usable bytes of the strategy's limit. NULL, and the block was freed: the limit
 * leaves too little. p may be NULL. */
static void *within_limit(lm_pool *pool, void *p) {
  lm_map_object place;
  if (!p || !pool->strategy->desc.limit) return p;
  lm_require(lm_map_find(p, &place));
  if (lm_strategy_limit_take(pool->strategy, place.size)) return p;
  lm_require(mark_freed(&place, p));
  lm_large_free(&pool->large, place.cell);
  return NULL;
}

/* Serves a request that bins of small objects do not serve. */
static void *alloc_large(lm_thread *t, lm_pool *pool, const lm_pool_request *r, bool *zeroed) {
  const lm_desc *desc = &pool->strategy->desc;
  bool has_class = t && r->size <= LM_LARGE_MAX && r->size > LM_SMALL_EAGER && r->align <= LM_SLOT;
  if (!has_class || !has_large_bins(desc))
    return within_limit(pool, lm_large_alloc(&pool->large, r->size, r->align, r->token, zeroed));
  uint32_t place = lm_pools_place(pool->strategy);
  uint32_t offset = lm_tcache_bin_offset(place, lm_class_large(r->size));
  return lm_tcache_take_large(t, offset, r->size, r->token, zeroed);
}

static void *alloc_from(lm_thread *t, lm_pool *pool, const lm_pool_request *r, bool *zeroed) {
  const lm_desc *desc = &pool->strategy->desc;
  if (desc->guard && is_guarded(t, pool->strategy) && lm_large_guard_has_room()) {
    *zeroed = true;
    return within_limit(pool, lm_large_guard_alloc(&pool->large, r->size, r->align, r->token));
  }
  unsigned class_ = has_small(desc) ? class_for(desc, r->size, r->align) : LM_CLASSES;
  if (class_ < LM_CLASSES) return alloc_small(t, pool, class_, r->token);
  return alloc_large(t, pool, r, zeroed);
}

/* Returns the pool that serves requests of the strategy for the calling thread's node. NULL: there
 * is none, or the limit leaves too little for `size` bytes. */
static lm_pool *pool_with_room(lm_thread *t, lm_strategy *strategy, size_t size) {
  /* Objects that the thread caches may be what the limit lacks. */
  if (lm_strategy_limit_left(strategy) < size && t) lm_tcache_flush_account(strategy, t);
  if (size > LM_SIZE_MAX) return NULL;
  strategy = lm_strategy_here(strategy);
  lm_pool *pool = lm_pool_for(strategy);
  if (!pool && strategy->whole != strategy) pool = lm_pool_for(strategy = strategy->whole);
  return pool && lm_strategy_limit_has(strategy, size) ? pool : NULL;
}

void *lm_pool_alloc(lm_thread *t, lm_strategy *strategy, const lm_pool_request *r, bool *zeroed) {
  lm_assert(r->token != LM_TOKEN_NONE && (!r->align || lm_is_pow2(r->align)));
  *zeroed = false;
  lm_pool *pool = pool_with_room(t, strategy, r->size);
  if (!pool) return NULL;
  lm_pool_request aligned = { r->size, align_of(pool->strategy, r->align), r->token };
  return alloc_from(t, pool, &aligned, zeroed);
}

void *lm_pool_alloc_larger(lm_thread *t, lm_strategy *strategy, const lm_pool_request *r) {
  lm_pool *pool = pool_with_room(t, strategy, r->size);
  const lm_desc *desc = &strategy->desc;
  if (!pool || !has_small(desc)) return NULL;
  size_t align = align_of(strategy, r->align);
  for (unsigned c = class_for(desc, r->size, align) + 1; c < LM_CLASSES; c++) {
    size_t size = lm_class_size(c);
    void *p = size & (align - 1) ? NULL : lm_tcache_take_left(t, pool, c, r->token);
    if (!p) continue;
    lm_pool_note_oversized(r->size, size);
    return p;
  }
  return NULL;
}

const char *lm_pool_why(lm_strategy *strategy) {
  lm_pool *pool = lm_pool_of(lm_strategy_here(strategy));
  if (!pool) return "it has no memory";
  return pool->regions.how.backing ? lm_backing_why(&pool->backing)
                                   : lm_regions_why(&pool->regions);
}

/* ---- Frees -------------------------------------------------------------------------------- */

static void describe(const lm_map_object *place, lm_object *out) {
  out->base = (void *)place->base;
  out->size = lm_large_usable(out->base, place->size);
  out->token = place->token;
  out->strategy = place->strategy;
  out->large = place->large;
  out->damage = NULL;
}

bool lm_pool_find_beside(const void *p, lm_object *out) {
  lm_map_object place;
  if (!lm_map_owns(p)) return false;
  const lm_span *span = lm_map_span(lm_map_extent_of(p));
  uint32_t use = atomic_load(&span->use);
  if (!lm_map_use_is_large(use) && use != LM_USE_GUARDED) return false;
  if (!lm_map_find((void *)atomic_load(&span->start), &place)) return false;
  if (!lm_state_is_live(place.state) || (uintptr_t)p - place.base < place.size) return false;
  describe(&place, out);
  return true;
}

/* What is wrong with the address of a free that is in no object: it is foreign; or it is beside the
 * usable bytes of a live block; or it is in free slots, so an object must have been there. */
static lm_free_result classify_miss(const void *p, lm_object *out) {
  *out = (lm_object){ .base = (void *)(uintptr_t)p };
  if (!lm_map_owns(p)) return LM_FREE_FOREIGN;
  if (atomic_load(&lm_map_span(lm_map_extent_of(p))->use) == LM_USE_METADATA)
    return LM_FREE_FOREIGN;
  return lm_pool_find_beside(p, out) ? LM_FREE_INTERIOR : LM_FREE_DOUBLE;
}

/* Gives back an object of a detached span. The span may go to another pool at this moment, so its
 * strategy is read again each time. Acquire pairs with the description of the span. */
static void free_detached(const lm_map_object *place) {
  void *p = (void *)place->base;
  unsigned class_ = lm_tcache_bin_class(place->bin);
  lm_pool *pool;
  lm_poison(p, place->size);
  do {
    const lm_span *span = lm_map_span(lm_map_slot(p));
    pool = lm_pools_at(atomic_load_explicit(&span->strategy, memory_order_acquire));
  } while (!lm_central_free_detached(&pool->central[class_], (lm_cached_object){ p, place->cell }));
  lm_strategy_limit_give(pool->strategy, (int64_t)place->size);
}

/* Gives the memory of a freed object to a bin of the thread, or to its pool. `t` may be NULL. */
static void put(lm_thread *t, const lm_map_object *place) {
  lm_cached_object item = { (void *)place->base, place->cell };
  lm_pool *pool = lm_pools_at(place->strategy);
  if (place->large && lm_large_hand_over(place->cell)) return;
  if (!place->large && lm_tcache_bin_place(place->bin) == 0) {
    free_detached(place);
    return;
  }
  lm_assert(pool); /* it does not end while this object is not free in its span */
  if (place->large && (!t || !place->bin || !lm_large_is_prepared(place))) {
    lm_strategy_limit_give(pool->strategy, (int64_t)place->size);
    lm_large_free(&pool->large, place->cell);
    if (t) lm_sweep_poll(t);
    return;
  }
  lm_poison(item.p, place->size);
  if (!t) {
    lm_tcache_give_back(pool, lm_tcache_bin_class(place->bin), &item, 1);
    return;
  }
  lm_bin *bin = lm_tcache_bin_at(t, place->bin);
  if (lm_tcache_bin_top(bin) == bin->high) lm_tcache_overflow(t, place->bin, item);
  else lm_tcache_put(bin, item);
}

lm_free_result lm_pool_hold(void *p, lm_object *out) {
  lm_map_object place;
  if (!lm_map_find(p, &place)) return classify_miss(p, out);
  bool is_start = place.base == (uintptr_t)p;
  bool is_freed = is_start && mark_freed(&place, p);
  describe(&place, out);
  return is_freed ? LM_FREE_DONE : is_start ? LM_FREE_DOUBLE : LM_FREE_INTERIOR;
}

lm_free_result lm_pool_free(lm_thread *t, void *p, lm_object *out) {
  lm_map_object place;
  lm_tcache_update_reach(t); /* the next free may then take the fast path */
  if (!lm_map_find(p, &place)) return classify_miss(p, out);
  bool is_start = place.base == (uintptr_t)p;
  bool is_freed = is_start && mark_freed(&place, p);
  describe(&place, out);
  if (!is_freed) return is_start ? LM_FREE_DOUBLE : LM_FREE_INTERIOR;
  if (place.large) out->damage = lm_large_damage(&place);
  put(t, &place);
  return LM_FREE_DONE;
}

void lm_pool_release(void *p) {
  lm_map_object place;
  if (lm_map_find(p, &place)) put(NULL, &place);
}

/* ---- Questions and changes ---------------------------------------------------------------- */

static bool find_live(const void *p, lm_map_object *place) {
  return lm_map_find(p, place) && lm_state_is_live(place->state);
}

bool lm_pool_find(const void *p, lm_object *out) {
  lm_map_object place;
  if (!find_live(p, &place)) return false;
  lm_assert((uintptr_t)p - place.base < place.size);
  describe(&place, out);
  return true;
}

bool lm_pool_resize(void *p, size_t size) {
  lm_map_object place;
  if (size > LM_SIZE_MAX || !find_live(p, &place) || place.base != (uintptr_t)p) return false;
  if (place.large) return lm_large_resize(&lm_pools_at(place.strategy)->large, &place, size);
  return lm_class_fits(place.size, size);
}

_Atomic bool lm_pool_has_oversized;

bool lm_pool_is_guarded(const void *p) {
  lm_map_object place;
  return find_live(p, &place) && place.base == (uintptr_t)p && place.large &&
         lm_large_is_guarded(&place);
}

/* The page map notes the size of the request of a guarded block; 2 for some blocks of 1 byte. */
static bool fits_guarded(const lm_object *object, size_t size) {
  return size == object->size || (size == 1 && object->size == 2);
}

bool lm_pool_fits_request(const lm_object *object, size_t size) {
  size_t align = align_of(lm_strategy_at(object->strategy), object->large ? LM_PAGE : 16);
  if (size > object->size) return false;
  if (object->large && lm_pool_is_guarded(object->base)) return fits_guarded(object, size);
  return object->size <= 64 || lm_align_up(size, align) > object->size / 2 ||
         atomic_load_explicit(&lm_pool_has_oversized, memory_order_relaxed);
}

void *lm_pool_move(void *p, size_t size) {
  lm_map_object place;
  if (size > LM_SIZE_MAX || !find_live(p, &place) || place.base != (uintptr_t)p) return NULL;
  return place.large ? lm_large_move(&lm_pools_at(place.strategy)->large, &place, size) : NULL;
}

bool lm_pool_retoken(void *p, lm_token old, lm_token new_token) {
  lm_map_object place;
  uint32_t strategy = UINT32_MAX;
  lm_assert(old != LM_TOKEN_NONE && new_token != LM_TOKEN_NONE);
  /* It is tried again if it failed because the object went to another pool at that moment. */
  while (find_live(p, &place) && place.token == old && place.strategy != strategy) {
    lm_pool *pool = lm_pools_at(strategy = place.strategy);
    bool done = place.large ? lm_large_retoken(&pool->large, p, old, new_token)
                            : lm_central_retoken(&pool->central[lm_tcache_bin_class(place.bin)], p,
                                                 old, new_token);
    if (done) return true;
  }
  return false;
}
