/* pool.c - requests, frees and questions: which store or large block serves them. */
#include "heap/pool.h"

#include "gpu/gpu.h"
#include "heap/pools.h"
#include "heap/tcache.h"

#define SMALL_ALIGN_MAX LM_PAGE

/* Whether memory costs more than what is touched of it. */
static bool is_eager(const lm_desc *desc) {
  return desc->kind != LM_KIND_HOST || desc->prefault || desc->lock || desc->huge == LM_HUGE_2MIB ||
         desc->huge == LM_HUGE_1GIB;
}

/* The least class that holds `size` bytes in multiples of `align`; LM_CLASSES: none does. */
static unsigned class_for(const lm_desc *desc, size_t size, size_t align) {
  size_t most = is_eager(desc) ? LM_SMALL_EAGER : LM_SMALL_MAX;
  if (size > most || align > SMALL_ALIGN_MAX) return LM_CLASSES;
  unsigned c = lm_class_of(size);
  while (lm_class_size(c) & (align - 1)) c++;
  return c;
}

static size_t align_of(const lm_strategy *strategy, size_t align) {
  if (align < strategy->desc.align) align = strategy->desc.align;
  return align < 16 ? 16 : align;
}

/* A block of shared memory has slots of its own: who is shown it is shown nothing else. */
static bool has_small(const lm_desc *desc) { return desc->kind != LM_KIND_SHARED; }

/* Their blocks have slots to spare, which cost nothing until they are touched; of a limit each is
 * taken by itself; and of a file's memory each comes back by itself. */
static bool has_large_bins(const lm_desc *desc) {
  return !is_eager(desc) && !desc->limit && desc->align <= LM_SLOT;
}

/* Where there are devices. Pinned memory that is to be near its device is of one pool only where
 * all devices are near it. */
static bool has_pinned(const lm_strategy *s) {
  bool is_one = s->desc.placement.mode != LM_BIND_DEFAULT || !lm_gpu_is_spread();
  return s->whole->twins && is_one && lm_gpu_is_found();
}

static bool has_pool(const lm_strategy *strategy) {
  return lm_strategy_kind_is_pooled(strategy->desc.kind) || has_pinned(strategy);
}

uint32_t lm_pool_bin(lm_strategy *strategy, unsigned c) {
  const lm_desc *desc = &strategy->desc;
  if (!has_pool(strategy) || desc->guard || desc->zero || !has_small(desc)) return 0;
  unsigned class_ = c < LM_CLASSES ? class_for(desc, lm_class_max_size(c), align_of(strategy, 16))
                                   : c;
  if (class_ == LM_CLASSES && c != LM_CLASSES) return 0;
  if (class_ >= LM_CLASSES && !has_large_bins(desc)) return 0;
  return lm_pool_reserve(strategy) ? lm_tcache_bin_offset(lm_pools_place(strategy), class_) : 0;
}

/* ---- Requests */

/* Whether this request is the one in N that a strategy guards. */
static bool is_guarded(lm_thread *t, const lm_strategy *strategy) {
  uint32_t every = strategy->desc.guard;
  if (every <= 1 || !t) return every != 0;
  uint32_t *left = &lm_pool_bins_of(t)->pool[lm_pools_place(strategy)].until_guard;
  bool guarded = *left == 0;
  *left = guarded ? every - 1 : *left - 1;
  return guarded;
}

static void *alloc_small(lm_thread *t, lm_pool *pool, unsigned class_, lm_token token) {
  if (!t) return lm_tcache_take_one(NULL, pool, class_, token);
  uint8_t hint = lm_state_hint(token);
  return lm_tcache_take(t, lm_tcache_bin_offset(lm_pools_place(pool->strategy), class_), token,
                        &hint);
}

/* Makes the mark of a live object a dead one. By compare and exchange, because it may be re-owned
 * at this moment; a mark that is dead already is somebody's double free. */
static bool kill(lm_map_object *place, const void *p) {
  while (lm_state_is_live(place->mark)) {
    lm_state was = place->mark;
    if (atomic_compare_exchange_strong_explicit(place->side, &was, lm_state_when_freed(was),
                                                memory_order_acq_rel, memory_order_acquire))
      return true;
    if (!lm_map_find(p, place)) return false;
  }
  return false;
}

/* A block with slots of its own, of the limit as much as is usable of it. */
static void *limited(lm_pool *pool, void *p) {
  lm_map_object place;
  if (!p || !pool->strategy->desc.limit) return p;
  lm_require(lm_map_find(p, &place));
  if (lm_strategy_limit_take(pool->strategy, place.size)) return p;
  lm_require(kill(&place, p));
  lm_large_free(&pool->large, place.side);
  return NULL;
}

void *lm_pool_alloc(lm_thread *t, lm_strategy *strategy, size_t size, size_t align, lm_token token,
                    bool *zeroed) {
  *zeroed = false;
  if (lm_strategy_limit_left(strategy) < size && t) lm_tcache_flush_account(strategy, t);
  if (size > LM_SIZE_MAX) return NULL;
  strategy = lm_strategy_here(strategy);
  lm_pool *pool = lm_pool_for(strategy);
  if (!pool && strategy->whole != strategy) pool = lm_pool_for(strategy = strategy->whole);
  if (!pool) return NULL;
  if (lm_strategy_limit_left(strategy) < size) return NULL;
  align = align_of(strategy, align);
  if (strategy->desc.guard && is_guarded(t, strategy) && lm_large_guard_has_room()) {
    *zeroed = true;
    return limited(pool, lm_large_guard_alloc(&pool->large, size, align, token));
  }
  unsigned class_ = class_for(&strategy->desc, size, align);
  if (!has_small(&strategy->desc)) class_ = LM_CLASSES;
  if (class_ < LM_CLASSES) return alloc_small(t, pool, class_, token);
  bool classed = t && size <= LM_LARGE_MAX && size > LM_SMALL_EAGER && align <= LM_SLOT;
  if (!classed || !has_large_bins(&strategy->desc))
    return limited(pool, lm_large_alloc(&pool->large, size, align, token, zeroed));
  uint32_t offset = lm_tcache_bin_offset(lm_pools_place(strategy), lm_class_large(size));
  return lm_tcache_take_large(t, offset, size, token, zeroed);
}

const char *lm_pool_why(lm_strategy *strategy) {
  lm_pool *pool = lm_pool_of(lm_strategy_here(strategy));
  if (!pool) return "it has no memory";
  return pool->regions.how.backing ? lm_backing_why(&pool->backing)
                                   : lm_regions_why(&pool->regions);
}

/* ---- Frees */

static void tell(const lm_map_object *place, lm_object *out) {
  out->base = (void *)place->base;
  out->size = place->size;
  out->token = place->token;
  out->strategy = place->strategy;
  out->large = place->large;
}

/* The first slot of the extent that p, an address in the range, is in. */
static uint32_t extent_of(const void *p) {
  uint32_t slot = lm_map_first(), target = lm_map_slot(p);
  for (uint32_t next; (next = lm_map_next(slot)) <= target && next > slot;) slot = next;
  return slot;
}

/* What is wrong with an address in no object: nobody's, or behind the end of a large block, or in
 * slots that are free, so that an object must have been there. */
static lm_free_result classify_miss(const void *p, lm_object *out) {
  *out = (lm_object){ .base = (void *)(uintptr_t)p };
  if (!lm_map_owns(p)) return LM_FREE_FOREIGN;
  uint32_t slot = extent_of(p), use = atomic_load(&lm_map_span(slot)->use);
  if (use == LM_USE_METADATA) return LM_FREE_FOREIGN;
  lm_map_object place;
  bool found = lm_map_use_is_large(use) || use == LM_USE_GUARDED;
  if (!found || !lm_map_find(lm_map_address(slot), &place)) return LM_FREE_DOUBLE;
  tell(&place, out);
  return LM_FREE_INTERIOR;
}

/* An object of a span that is apart; whose that is may change meanwhile. */
static void put_home(const lm_map_object *place) {
  void *p = (void *)place->base;
  unsigned class_ = lm_tcache_bin_class(place->bin);
  lm_pool *pool;
  lm_poison(p, place->size);
  do {
    const lm_span *span = lm_map_span(lm_map_slot(p));
    pool = lm_pools_at(atomic_load_explicit(&span->strategy, memory_order_acquire));
  } while (!lm_central_free_detached(&pool->store[class_], (lm_cached_object){ p, place->side }));
  lm_strategy_limit_give(pool->strategy, (int64_t)place->size);
}

static void put(lm_thread *t, const lm_map_object *place) {
  lm_cached_object item = { (void *)place->base, place->side };
  lm_pool *pool = lm_pools_at(place->strategy);
  if (place->large && lm_large_hand_over(place->side)) return;
  if (!place->large && lm_tcache_bin_place(place->bin) == 0) {
    put_home(place);
    return;
  }
  if (place->large && (!t || !place->bin)) {
    lm_strategy_limit_give(pool->strategy, (int64_t)place->size);
    lm_large_free(&pool->large, place->side);
    return;
  }
  lm_poison(item.p, place->size);
  if (!t) {
    lm_tcache_give_back(pool, lm_tcache_bin_class(place->bin), &item, 1);
    return;
  }
  lm_bin *bin = lm_pool_bin_at(t, place->bin);
  if (lm_pool_bin_top(bin) == bin->high) lm_tcache_overflow(t, place->bin, item);
  else lm_tcache_put(bin, item);
}

bool lm_pool_give_full(lm_thread *t, void *p, lm_located refused) {
  uint32_t bin = lm_load(uint32_t, &refused.span->bin);
  lm_state mark = lm_load(lm_state, refused.mark);
  if (!lm_state_is_plain(mark) || !lm_tcache_bin_place(bin) ||
      lm_tcache_bin_class(bin) >= LM_CLASSES)
    return false;
  atomic_store_explicit(refused.mark, lm_state_when_freed(mark), memory_order_relaxed);
  lm_poison(p, lm_load(size_t, &refused.span->size));
  lm_tcache_overflow(t, bin, (lm_cached_object){ p, refused.mark });
  return true;
}

lm_free_result lm_pool_free(lm_thread *t, void *p, lm_object *out) {
  lm_map_object place;
  lm_pool_set_reach(t); /* for the next free of what is there */
  if (!lm_map_find(p, &place)) return classify_miss(p, out);
  bool start = place.base == (uintptr_t)p;
  bool killed = start && kill(&place, p);
  tell(&place, out);
  if (!killed) return start ? LM_FREE_DOUBLE : LM_FREE_INTERIOR;
  put(t, &place);
  return LM_FREE_DONE;
}

lm_free_result lm_pool_hold(void *p, lm_object *out) {
  lm_map_object place;
  if (!lm_map_find(p, &place)) return classify_miss(p, out);
  bool start = place.base == (uintptr_t)p;
  bool killed = start && kill(&place, p);
  tell(&place, out);
  return killed ? LM_FREE_DONE : start ? LM_FREE_DOUBLE : LM_FREE_INTERIOR;
}

void lm_pool_release(void *p) {
  lm_map_object place;
  if (lm_map_find(p, &place)) put(NULL, &place);
}

/* ---- Questions and changes */

static bool find_live(const void *p, lm_map_object *place) {
  return lm_map_find(p, place) && lm_state_is_live(place->mark);
}

bool lm_pool_find(const void *p, lm_object *out) {
  lm_map_object place;
  if (!find_live(p, &place)) return false;
  tell(&place, out);
  return true;
}

bool lm_pool_resize(void *p, size_t size) {
  lm_map_object place;
  if (size > LM_SIZE_MAX || !find_live(p, &place) || place.base != (uintptr_t)p) return false;
  if (place.large) return lm_large_resize(&lm_pools_at(place.strategy)->large, &place, size);
  return lm_class_fits(place.size, size);
}

_Atomic bool lm_pool_has_oversized;

bool lm_pool_fits_request(const lm_object *object, size_t size) {
  size_t align = align_of(lm_strategy_at(object->strategy), object->large ? LM_PAGE : 16);
  if (size > object->size) return false;
  return object->size <= 64 || lm_align_up(size, align) > object->size / 2 ||
         atomic_load_explicit(&lm_pool_has_oversized, memory_order_relaxed);
}

void *lm_pool_move(lm_thread *t, void *p, size_t size) {
  (void)t;
  lm_map_object place;
  if (size > LM_SIZE_MAX || !find_live(p, &place) || place.base != (uintptr_t)p) return NULL;
  return place.large ? lm_large_move(&lm_pools_at(place.strategy)->large, &place, size) : NULL;
}

bool lm_pool_retoken(void *p, lm_token old, lm_token new_token) {
  lm_map_object place;
  uint32_t strategy = UINT32_MAX;
  /* Again where it failed because the object went to another pool meanwhile. */
  while (find_live(p, &place) && place.token == old && place.strategy != strategy) {
    lm_pool *pool = lm_pools_at(strategy = place.strategy);
    bool done = place.large ? lm_large_retoken(&pool->large, p, old, new_token)
                            : lm_central_retoken(&pool->store[lm_tcache_bin_class(place.bin)], p,
                                                 old, new_token);
    if (done) return true;
  }
  return false;
}
