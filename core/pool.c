/* pool.c - one pool a strategy: which supply serves a request, thread bins, frees, the walk. */
#include "pool.h"

#include <string.h>

#include "bin.h"
#include "decay.h"

#define SMALL_ALIGN_MAX LM_PAGE
/* What one tick of decay gives back at most, in slots (512 MiB): the system takes some 50 ms to. */
enum { DECAY_MOST = 8192 };

/* Held, before `making`, by whoever ends a pool and by whoever goes through pools for long: none
 * ends under them. Fork does not wait for it. */
static lm_lock ending;
/* Keeps pools from being made and ended at the same time, and the places of their bins. */
static lm_lock making;
/* Held, before both, from the claims of a sweep until what was claimed is taken: a claim that
 * somebody else made since is not covered by this sweep's grace. Fork does not wait for it. */
static lm_lock sweeping;

/* Whose a place in the threads is; under `making`. */
static _Atomic(lm_strategy *) holder[LM_POOL_PLACES];

lm_pool *lm_pool_of(const lm_strategy *strategy) {
  /* Acquire pairs with the release in make_pool. */
  return strategy ? __atomic_load_n(&strategy->pool, __ATOMIC_ACQUIRE) : NULL;
}

static lm_pool *pool_at(uint32_t id) { return lm_pool_of(lm_strategy_at(id)); }

static uint32_t place_of(const lm_strategy *strategy) {
  return atomic_load_explicit(&strategy->place, memory_order_acquire);
}

lm_strategy *lm_pool_holder(uint32_t place) {
  return atomic_load_explicit(&holder[place], memory_order_acquire);
}

/* The least class that holds `size` bytes in multiples of `align`; LM_CLASSES: none does. */
static unsigned class_for(size_t size, size_t align) {
  if (size > LM_SMALL_MAX || align > SMALL_ALIGN_MAX) return LM_CLASSES;
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
  bool eager = desc->prefault || desc->lock || desc->huge == LM_HUGE_2MIB ||
               desc->huge == LM_HUGE_1GIB;
  return desc->kind == LM_KIND_HOST && !eager && !desc->limit && desc->align <= LM_SLOT;
}

uint32_t lm_pool_bin(lm_strategy *strategy, unsigned c) {
  const lm_desc *desc = &strategy->desc;
  if (!lm_kind_is_pooled(desc->kind) || desc->guard || desc->zero || !has_small(desc)) return 0;
  unsigned class_ = c < LM_CLASSES ? class_for(lm_class_size(c), align_of(strategy, 16)) : c;
  if (class_ == LM_CLASSES && c != LM_CLASSES) return 0;
  if (class_ >= LM_CLASSES && !has_large_bins(desc)) return 0;
  return lm_pool_reserve(strategy) ? lm_bin_offset(place_of(strategy), class_) : 0;
}

/* ---- Pools */

/* The file that a pool's memory is in; NULL: it is plain memory. */
static lm_backing *backing_of(lm_pool *pool) {
  const lm_desc *desc = &pool->strategy->desc;
  bool is_file = desc->kind == LM_KIND_FILE;
  if (!is_file && desc->kind != LM_KIND_SHARED) return NULL;
  lm_backing_init(&pool->backing, is_file ? desc->dir : NULL);
  return &pool->backing;
}

lm_prepare lm_pool_prepare(const lm_desc *desc) {
  lm_prepare how = { .prefault = desc->prefault, .lock = desc->lock };
  if (desc->placement.mode != LM_BIND_DEFAULT) how.placement = &desc->placement;
  if (desc->huge == LM_HUGE_2MIB) how.page = 2 * LM_MIB;
  if (desc->huge == LM_HUGE_1GIB) how.page = LM_GIB;
  if (desc->huge == LM_HUGE_THP) how.thp = 1;
  if (desc->huge == LM_HUGE_NEVER) how.thp = -1;
  return how;
}

static bool reserve_locked(lm_strategy *strategy) {
  if (place_of(strategy)) return true;
  for (uint32_t place = 1; place < LM_POOL_PLACES; place++) {
    if (lm_pool_holder(place)) continue;
    atomic_store_explicit(&holder[place], strategy, memory_order_release);
    atomic_store_explicit(&strategy->place, place, memory_order_release);
    return true;
  }
  return false;
}

bool lm_pool_reserve(lm_strategy *strategy) {
  if (lm_likely(place_of(strategy) != 0)) return true;
  lm_pool_start();
  lm_lock_take(&making);
  bool done = reserve_locked(strategy);
  lm_lock_drop(&making);
  return done;
}

static lm_pool *make_pool_locked(lm_strategy *strategy) {
  lm_pool *pool = lm_pool_of(strategy);
  if (pool || !reserve_locked(strategy)) return pool;
  pool = lm_own_alloc(sizeof *pool);
  if (!pool) return NULL;
  lm_prepare how = lm_pool_prepare(&strategy->desc);
  pool->strategy = strategy;
  how.backing = backing_of(pool);
  lm_regions_init(&pool->regions, &how);
  lm_large_init(&pool->large, &pool->regions, strategy->id);
  for (unsigned c = 0; c < LM_CLASSES; c++)
    lm_store_init(&pool->store[c], &pool->regions, strategy->id,
                  lm_bin_offset(place_of(strategy), c), c);
  __atomic_store_n(&strategy->pool, pool, __ATOMIC_RELEASE);
  return pool;
}

/* Retiring a pool (at the end of this file) goes through these. */
enum { OPEN, CLOSING, CLOSED };

/* Somebody asks a strategy that is being retired: that is off, or, once it is closed, over in a
 * moment, in which nobody waits for this thread to leave its operation. */
static void reopen(lm_strategy *strategy) {
  uint32_t closing = CLOSING;
  if (atomic_compare_exchange_strong(&strategy->retiring, &closing, OPEN)) return;
  while (atomic_load(&strategy->retiring) == CLOSED) lm_sys_yield();
}

/* The pool of a strategy, made if new; NULL: no memory. */
lm_pool *lm_pool_for(lm_strategy *strategy) {
  if (strategy && lm_unlikely(atomic_load_explicit(&strategy->retiring, memory_order_acquire)))
    reopen(strategy);
  lm_pool *pool = lm_pool_of(strategy);
  if (lm_likely(pool != NULL) || !strategy) return pool;
  lm_pool_start();
  lm_lock_take(&making);
  pool = make_pool_locked(strategy);
  lm_lock_drop(&making);
  return pool;
}

static void each_pool(void (*act)(lm_pool *pool)) {
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    if (pool_at(id)) act(pool_at(id));
}

/* ---- All bins of a thread */

/* Gives back all that a thread caches. Bins of a pool that has been retired are listed still, and
 * empty; under the lock, so that none is retired meanwhile. */
static void flush_thread(lm_thread *t) {
  lm_thread_bins *bins = lm_pool_bins_of(t);
  lm_lock_take(&making);
  while (bins->first) {
    uint32_t place = bins->first;
    bins->first = bins->pool[place].next;
    bins->pool[place].listed = false;
    if (lm_pool_holder(place) && lm_pool_of(lm_pool_holder(place)))
      lm_bin_flush(lm_pool_of(lm_pool_holder(place)), &bins->pool[place]);
  }
  lm_lock_drop(&making);
}

/* ---- Idle bins
 *
 * A thread is asked to give up the bins that it did not use since it was last asked, by
 * LM_WARY_CLAIMED. Its next operation takes that back, and does it; if after a grace it has not, it
 * is in no operation, and while LM_WARY_TAKING keeps it out of the next one, whoever asked does. */

enum { HAULS = 4096 };

/* While set, what is asked of threads is what they cache of stores with spans apart, only that. */
static _Atomic bool recalling;

typedef struct sweep {
  bool all; /* idle or not */
  bool recall;
  bool more; /* some were not idle */
  uint32_t n;
  struct {
    lm_haul what;
    lm_pool *pool;
    unsigned class_;
  } haul[HAULS];
} sweep;

static bool is_recalled(const lm_pool *pool, unsigned class_) {
  return class_ < LM_CLASSES &&
         atomic_load_explicit(&pool->store[class_].apart, memory_order_relaxed);
}

static bool is_idle(sweep *w, lm_bin *bin) {
  void **top = lm_bin_top(bin);
  bool idle = w->all || top == bin->seen;
  bin->seen = top;
  if (!idle && top > bin->low) w->more = true;
  return idle;
}

static void sweep_pool(sweep *w, lm_pool *pool, lm_pool_bins *bins) {
  for (unsigned c = 0; c < LM_CLASSES_ALL && w->n < HAULS; c++) {
    if (!bins->bin[c].low) continue;
    if (w->recall ? !is_recalled(pool, c) : !is_idle(w, &bins->bin[c])) continue;
    w->haul[w->n].pool = pool;
    w->haul[w->n].class_ = c;
    w->haul[w->n++].what = lm_bin_close(bins, c);
  }
}

static void sweep_thread(sweep *w, lm_thread *t) {
  lm_thread_bins *bins = lm_pool_bins_of(t);
  for (uint32_t place = bins->first; place; place = bins->pool[place].next) {
    lm_strategy *strategy = lm_pool_holder(place);
    if (strategy && lm_pool_of(strategy)) sweep_pool(w, lm_pool_of(strategy), &bins->pool[place]);
  }
}

static void stow_all(sweep *w) {
  for (uint32_t i = 0; i < w->n; i++)
    lm_bin_stow(w->haul[i].pool, w->haul[i].class_, &w->haul[i].what);
  w->n = 0;
}

static void claim(lm_thread *t, void *ctx) {
  (void)ctx;
  if (t != lm_self) lm_thread_make_wary(t, LM_WARY_CLAIMED);
}

static void take_claimed(lm_thread *t, void *ctx) {
  uint32_t wary = atomic_load_explicit(&t->wary, memory_order_relaxed);
  do {
    if (!(wary & LM_WARY_CLAIMED)) return;
  } while (!atomic_compare_exchange_weak_explicit(
      &t->wary, &wary, (wary & ~(uint32_t)LM_WARY_CLAIMED) | LM_WARY_TAKING, memory_order_acq_rel,
      memory_order_relaxed));
  sweep_thread(ctx, t);
  lm_thread_make_easy(t, LM_WARY_TAKING);
}

/* Made once: what a tick takes and gives back would itself be something to give back. */
static sweep *sweep_locked(bool all) {
  static sweep *kept;
  if (!kept && !(kept = lm_own_alloc(sizeof *kept))) return NULL;
  kept->n = 0;
  kept->all = all;
  kept->recall = atomic_load_explicit(&recalling, memory_order_relaxed);
  kept->more = false;
  return kept;
}

static bool sweep_threads_locked(bool all) {
  sweep *w = sweep_locked(all);
  if (!w) return false;
  lm_thread_each(claim, NULL);
  if (!lm_thread_grace()) return false;
  lm_lock_take(&making);
  lm_thread_each(take_claimed, w);
  if (lm_self) sweep_thread(w, lm_self);
  stow_all(w);
  lm_lock_drop(&making);
  return w->more;
}

/* True if there are bins in use. Not under `ending`, since it waits for who may wait for that. */
static bool sweep_threads(bool all, bool recall) {
  lm_lock_take(&sweeping);
  atomic_store_explicit(&recalling, recall, memory_order_relaxed);
  bool more = sweep_threads_locked(all);
  atomic_store_explicit(&recalling, false, memory_order_relaxed);
  lm_lock_drop(&sweeping);
  return more;
}

/* The thread's own: it was asked, and is at work. */
static void give_up_idle(lm_thread *t) {
  sweep *w = lm_own_alloc(sizeof *w);
  if (!w) return;
  w->recall = atomic_load_explicit(&recalling, memory_order_relaxed);
  lm_lock_take(&making);
  sweep_thread(w, t);
  stow_all(w);
  lm_lock_drop(&making);
  lm_own_free(w);
  lm_decay_stir();
}

void lm_pool_recall(void) { (void)sweep_threads(false, true); }

/* ---- Memory that nobody needs */

static void trim_pool(lm_pool *pool) {
  for (unsigned c = 0; c < LM_CLASSES; c++) lm_store_trim(&pool->store[c]);
  (void)lm_large_unpark(&pool->large);
  lm_regions_trim(&pool->regions);
}

size_t lm_pool_trim(void) {
  size_t before = lm_regions_released();
  if (lm_self) flush_thread(lm_self);
  (void)sweep_threads(true, false);
  lm_lock_take(&ending);
  each_pool(trim_pool);
  lm_marks_trim();
  lm_own_trim();
  lm_lock_drop(&ending);
  return lm_regions_released() - before;
}

static bool decay_pool(lm_pool *pool, uint32_t *most) {
  bool more = false;
  for (unsigned c = 0; c < LM_CLASSES; c++) more |= lm_store_decay(&pool->store[c]);
  more |= lm_large_unpark(&pool->large);
  return lm_regions_decay(&pool->regions, most) || more;
}

void lm_pool_decay(void) {
  uint32_t most = DECAY_MOST;
  lm_decay_begin();
  bool more = sweep_threads(false, false);
  lm_lock_take(&ending);
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    if (pool_at(id)) more |= decay_pool(pool_at(id), &most);
  more |= lm_marks_decay(&most);
  more |= lm_own_decay(&most);
  lm_lock_drop(&ending);
  lm_decay_end(more);
}

/* ---- Requests */

/* Whether this request is the one in N that a strategy guards. */
static bool is_guarded(lm_thread *t, const lm_strategy *strategy) {
  uint32_t every = strategy->desc.guard;
  if (every <= 1 || !t) return every != 0;
  uint32_t *left = &lm_pool_bins_of(t)->pool[place_of(strategy)].until_guard;
  bool guarded = *left == 0;
  *left = guarded ? every - 1 : *left - 1;
  return guarded;
}

static void *alloc_small(lm_thread *t, lm_pool *pool, unsigned class_, lm_token token) {
  if (!t) return lm_bin_take_one(NULL, pool, class_, token);
  uint8_t hint = lm_mark_hint(token);
  return lm_pool_take(t, lm_bin_offset(place_of(pool->strategy), class_), token, &hint);
}

/* Makes the mark of a live object a dead one. By compare and exchange, because it may be re-owned
 * at this moment; a mark that is dead already is somebody's double free. */
static bool kill(lm_place *place, const void *p) {
  while (lm_mark_is_live(place->mark)) {
    lm_mark was = place->mark;
    if (atomic_compare_exchange_strong_explicit(place->side, &was, lm_mark_dead(was),
                                                memory_order_acq_rel, memory_order_acquire))
      return true;
    if (!lm_map_find(p, place)) return false;
  }
  return false;
}

/* A block with slots of its own, of the limit as much as is usable of it. */
static void *limited(lm_pool *pool, void *p) {
  lm_place place;
  if (!p || !pool->strategy->desc.limit) return p;
  lm_require(lm_map_find(p, &place));
  if (lm_limit_take(pool->strategy, place.size)) return p;
  lm_require(kill(&place, p));
  lm_large_free(&pool->large, place.side);
  return NULL;
}

void *lm_pool_alloc(lm_thread *t, lm_strategy *strategy, size_t size, size_t align, lm_token token,
                    bool *zeroed) {
  *zeroed = false;
  if (lm_limit_left(strategy) < size && t) lm_bin_flush_strategy(strategy, t);
  if (size > LM_SIZE_MAX) return NULL;
  strategy = lm_strategy_here(strategy);
  lm_pool *pool = lm_pool_for(strategy);
  if (!pool && strategy->whole != strategy) pool = lm_pool_for(strategy = strategy->whole);
  if (!pool) return NULL;
  if (lm_limit_left(strategy) < size) return NULL;
  align = align_of(strategy, align);
  if (strategy->desc.guard && is_guarded(t, strategy) && lm_guard_has_room()) {
    *zeroed = true;
    return limited(pool, lm_guard_alloc(&pool->large, size, align, token));
  }
  unsigned class_ = class_for(size, align);
  if (!has_small(&strategy->desc)) class_ = LM_CLASSES;
  if (class_ < LM_CLASSES) return alloc_small(t, pool, class_, token);
  bool classed = t && size <= LM_LARGE_MAX && size > LM_SMALL_MAX && align <= LM_SLOT;
  if (!classed || !has_large_bins(&strategy->desc))
    return limited(pool, lm_large_alloc(&pool->large, size, align, token, zeroed));
  uint32_t offset = lm_bin_offset(place_of(strategy), lm_class_large(size));
  return lm_pool_take_class(t, offset, size, token, zeroed);
}

const char *lm_pool_why(const lm_strategy *strategy) {
  lm_pool *pool = lm_pool_of(strategy);
  bool is_backed = pool && pool->regions.how.backing;
  return is_backed ? lm_backing_why(&pool->backing) : "it has no memory";
}

/* ---- Frees */

static void tell(const lm_place *place, lm_object *out) {
  out->base = (void *)place->base;
  out->size = place->size;
  out->token = place->token;
  out->strategy = place->strategy;
}

/* The first slot of the extent that p, an address in the range, is in. */
static uint32_t extent_of(const void *p) {
  uint32_t slot = lm_map_first(), target = lm_map_slot(p);
  for (uint32_t next; (next = lm_map_next(slot)) <= target && next > slot;) slot = next;
  return slot;
}

/* What is wrong with an address in no object: nobody's, or behind the end of a large block, or in
 * slots that are free, so that an object must have been there. */
static lm_freed classify_miss(const void *p, lm_object *out) {
  *out = (lm_object){ .base = (void *)(uintptr_t)p };
  if (!lm_map_owns(p)) return LM_FREE_FOREIGN;
  uint32_t slot = extent_of(p), use = atomic_load(&lm_map_span(slot)->use);
  if (use == LM_USE_OWN) return LM_FREE_FOREIGN;
  lm_place place;
  bool found = lm_use_is_large(use) || use == LM_USE_GUARDED;
  if (!found || !lm_map_find(lm_map_address(slot), &place)) return LM_FREE_DOUBLE;
  tell(&place, out);
  return LM_FREE_INTERIOR;
}

/* An object of a span that is apart; whose that is may change meanwhile. */
static void put_home(const lm_place *place) {
  void *p = (void *)place->base;
  unsigned class_ = lm_bin_class(place->bin);
  lm_pool *pool;
  lm_poison(p, place->size);
  do {
    const lm_span *span = lm_map_span(lm_map_slot(p));
    pool = pool_at(atomic_load_explicit(&span->strategy, memory_order_acquire));
  } while (!lm_store_home(&pool->store[class_], p));
  lm_limit_give(pool->strategy, (int64_t)place->size);
}

static void put(lm_thread *t, const lm_place *place) {
  void *p = (void *)place->base;
  lm_pool *pool = pool_at(place->strategy);
  if (place->large && lm_large_hand_over(place->side)) return;
  if (!place->large && lm_bin_place(place->bin) == 0) {
    put_home(place);
    return;
  }
  if (place->large && (!t || !place->bin)) {
    lm_limit_give(pool->strategy, (int64_t)place->size);
    lm_large_free(&pool->large, place->side);
    return;
  }
  lm_poison(p, place->size);
  if (!t) {
    lm_bin_give_back(pool, lm_bin_class(place->bin), &p, 1);
    return;
  }
  lm_bin *bin = lm_pool_bin_at(t, place->bin);
  if (lm_bin_top(bin) == bin->high) lm_bin_overflow(t, place->bin, p);
  else lm_bin_put(bin, p);
}

lm_freed lm_pool_free(lm_thread *t, void *p, lm_object *out) {
  lm_place place;
  if (!lm_map_find(p, &place)) return classify_miss(p, out);
  bool start = place.base == (uintptr_t)p;
  bool killed = start && kill(&place, p);
  tell(&place, out);
  if (!killed) return start ? LM_FREE_DOUBLE : LM_FREE_INTERIOR;
  put(t, &place);
  return LM_FREED;
}

/* ---- Questions and changes */

static bool find_live(const void *p, lm_place *place) {
  return lm_map_find(p, place) && lm_mark_is_live(place->mark);
}

bool lm_pool_find(const void *p, lm_object *out) {
  lm_place place;
  if (!find_live(p, &place)) return false;
  tell(&place, out);
  return true;
}

bool lm_pool_resize(void *p, size_t size) {
  lm_place place;
  if (size > LM_SIZE_MAX || !find_live(p, &place) || place.base != (uintptr_t)p) return false;
  if (place.large) return lm_large_resize(&pool_at(place.strategy)->large, &place, size);
  return size <= place.size && (size > place.size / 2 || place.size <= 64);
}

void *lm_pool_move(lm_thread *t, void *p, size_t size) {
  (void)t;
  lm_place place;
  if (size > LM_SIZE_MAX || !find_live(p, &place) || place.base != (uintptr_t)p) return NULL;
  return place.large ? lm_large_move(&pool_at(place.strategy)->large, &place, size) : NULL;
}

bool lm_pool_retoken(void *p, lm_token old, lm_token new_token) {
  lm_place place;
  uint32_t strategy = UINT32_MAX;
  /* Again where it failed because the object went to another pool meanwhile. */
  while (find_live(p, &place) && place.token == old && place.strategy != strategy) {
    lm_pool *pool = pool_at(strategy = place.strategy);
    bool done = place.large
                    ? lm_large_retoken(&pool->large, p, old, new_token)
                    : lm_store_retoken(&pool->store[lm_bin_class(place.bin)], p, old, new_token);
    if (done) return true;
  }
  return false;
}

/* ---- The walk */

typedef void visit_fn(void *ctx, const lm_object *object);

/* A description that is not being changed at the moment; whoever changes one is done at once. */
static bool settled_view(const lm_span *span, lm_view *view, uint32_t *version) {
  for (int tries = 0; tries < LM_MAP_PATIENCE; tries++) {
    if (lm_map_view(span, view, version)) return true;
    if (!(*version & 1) && lm_map_is_same(span, *version)) return false;
    lm_sys_yield();
  }
  return false;
}

/* Whether two views are of one extent, which may be another strategy's since. */
static bool is_same_extent(const lm_view *a, const lm_view *b) {
  return a->start == b->start && a->side == b->side &&
         lm_map_is_large(a->reciprocal) == lm_map_is_large(b->reciprocal);
}

/* The live objects of the extent at `slot`; ends early if it becomes another extent meanwhile. */
static void visit_extent(uint32_t slot, visit_fn *visit, void *ctx) {
  const lm_span *span = lm_map_span(slot);
  lm_view view, now;
  uint32_t version;
  if (!settled_view(span, &view, &version)) return;
  bool large = lm_map_is_large(view.reciprocal);
  uint32_t count = large ? 1 : lm_span_count(lm_class_of(view.size));
  for (uint32_t i = 0; i < count;) {
    lm_mark mark = lm_map_mark(&view.side[i]);
    lm_token token = large ? atomic_load(&span->token) : lm_mark_token(view.side, i, mark);
    size_t size = large ? atomic_load(&span->size) : view.size;
    if (!lm_map_is_same(span, version)) {
      if (!settled_view(span, &now, &version) || !is_same_extent(&view, &now)) return;
      view = now;
      continue;
    }
    if (lm_mark_is_live(mark))
      visit(ctx, &(lm_object){ (void *)(view.start + i * size), size, token, view.strategy });
    i++;
  }
}

static bool holds_objects(uint32_t slot) {
  uint32_t use = atomic_load_explicit(&lm_map_span(slot)->use, memory_order_relaxed);
  return use == LM_USE_SMALL || use == LM_USE_GUARDED || lm_use_is_large(use);
}

void lm_pool_visit(uint32_t slot, visit_fn *visit, void *ctx) {
  if (holds_objects(slot)) visit_extent(slot, visit, ctx);
}

void lm_pool_each(visit_fn *visit, void *ctx) {
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_acquire);
  uint32_t end = (uint32_t)(top >> LM_SLOT_SHIFT);
  for (uint32_t slot = lm_map_first(); slot < end;) {
    /* The length is read before the objects: it is of the extent seen here or an older one. */
    uint32_t next = lm_map_next(slot);
    if (holds_objects(slot)) visit_extent(slot, visit, ctx);
    slot = next > slot ? next : slot + 1;
  }
}

void lm_pool_figures_get(lm_pool_figures *out) {
  out->reserved = lm_map.size;
  out->regions = lm_map_handed() - lm_own_taken() - lm_marks_taken();
  out->metadata = lm_own_held() + lm_marks_held() + lm_map_overhead();
}

/* ---- Retiring */

/* The bins of one pool in all threads, a thread at a time: the list of threads is locked below the
 * stores. Nobody is in an operation on the pool. */
typedef struct recall {
  uint32_t place, n;
  unsigned class_[LM_CLASSES_ALL];
  lm_haul haul[LM_CLASSES_ALL];
} recall;

static void take_bins(lm_thread *t, void *ctx) {
  recall *r = ctx;
  lm_pool_bins *bins = &lm_pool_bins_of(t)->pool[r->place];
  if (r->n || !bins->listed) return;
  for (unsigned c = 0; c < LM_CLASSES_ALL; c++) {
    if (!bins->bin[c].low) continue;
    r->class_[r->n] = c;
    r->haul[r->n++] = lm_bin_close(bins, c);
  }
}

static void flush_bins_of_all_locked(lm_pool *pool) {
  recall r = { .place = place_of(pool->strategy) };
  do {
    r.n = 0;
    lm_thread_each(take_bins, &r);
    for (uint32_t i = 0; i < r.n; i++) lm_bin_stow(pool, r.class_[i], &r.haul[i]);
  } while (r.n);
}

/* False if something of the pool is still about: an object that a thread took with it when it was
 * cancelled, or memory that the system does not take back. */
static bool drain_locked(lm_pool *pool) {
  bool drained = true;
  flush_bins_of_all_locked(pool);
  for (unsigned c = 0; c < LM_CLASSES; c++) drained = lm_store_drain(&pool->store[c]) && drained;
  lm_large_drain(&pool->large);
  return lm_regions_drain(&pool->regions) && drained;
}

static void end_locked(lm_strategy *strategy) {
  lm_pool *pool = pool_at(strategy->id);
  if (pool && !drain_locked(pool)) return;
  __atomic_store_n(&strategy->pool, NULL, __ATOMIC_RELEASE);
  if (pool && pool->regions.how.backing) lm_backing_finish(&pool->backing);
  lm_own_free(pool);
  atomic_store_explicit(&holder[place_of(strategy)], NULL, memory_order_release);
  atomic_store_explicit(&strategy->place, 0, memory_order_release);
}

/* Of the strategies that there were when it began, those that are to stay. */
typedef struct roll {
  uint32_t count;
  uint8_t *stays;
} roll;

/* A share stays while a policy names the whole. */
static void keep_shares(const roll *r) {
  for (uint32_t id = 0; id < r->count; id++)
    if (r->stays[lm_strategy_whole(id)]) r->stays[id] = 1;
}

static void mark_live(void *ctx, const lm_object *object) {
  roll *r = ctx;
  if (object->strategy < r->count) r->stays[object->strategy] = 1;
}

/* Begins to close those that need not stay; whether there are any. */
static bool close_idle(const roll *r) {
  bool any = false;
  for (uint32_t id = 1; id < r->count; id++) {
    if (r->stays[id] || !place_of(lm_strategy_at(id))) continue;
    atomic_store(&lm_strategy_at(id)->retiring, CLOSING);
    any = true;
  }
  return any;
}

static void end(lm_strategy *strategy) {
  lm_lock_take(&ending);
  lm_lock_take(&making);
  end_locked(strategy);
  lm_lock_drop(&making);
  lm_lock_drop(&ending);
  atomic_store(&strategy->retiring, OPEN);
}

/* Ends those that nobody asked meanwhile and that have no live block. */
static void end_closing(const roll *r) {
  for (uint32_t id = 1; id < r->count; id++) {
    lm_strategy *strategy = lm_strategy_at(id);
    uint32_t closing = CLOSING, next = r->stays[id] ? OPEN : CLOSED;
    if (atomic_compare_exchange_strong(&strategy->retiring, &closing, next) && next == CLOSED)
      end(strategy);
  }
}

/* Closed first, so that who asks from now on says so (reopen). After the grace nobody is amid an
 * operation on one that is still closing: what has no live block then gets none and frees none. */
void lm_pool_retire(const uint8_t *used, uint32_t n) {
  roll r = { .count = lm_strategy_count() };
  r.stays = lm_own_alloc(r.count);
  if (!r.stays) return;
  memcpy(r.stays, used, n < r.count ? n : r.count);
  keep_shares(&r);
  lm_pool_each(mark_live, &r);
  if (close_idle(&r)) {
    if (!lm_thread_grace()) memset(r.stays, 1, r.count);
    lm_pool_each(mark_live, &r);
    end_closing(&r);
  }
  lm_own_free(r.stays);
}

/* ---- Laws */

/* Spans of a store, counted by walking the range. */
typedef struct census {
  const lm_pool *pool;
  uint32_t slots;
  uint32_t spans[LM_CLASSES];
} census;

static void count_extents(census *c) {
  uint32_t end = (uint32_t)(atomic_load(&lm_map.top) >> LM_SLOT_SHIFT);
  for (uint32_t slot = lm_map_first(); slot < end; slot = lm_map_next(slot)) {
    const lm_span *span = lm_map_span(slot);
    uint32_t use = atomic_load(&span->use);
    if (use != LM_USE_SMALL && !lm_use_is_large(use)) continue;
    if (atomic_load(&span->strategy) != c->pool->strategy->id) continue;
    c->slots += atomic_load(&span->slots);
    if (use == LM_USE_SMALL) c->spans[lm_bin_class(atomic_load(&span->bin))]++;
  }
}

static bool is_pool_valid_locked(const lm_pool *pool) {
  census counted = { .pool = pool };
  const lm_regions *r = &pool->regions;
  count_extents(&counted);
  if (!lm_regions_is_valid(r)) return false;
  /* Less than held: what threads, or those that a forked child lost, had in hand. */
  if (counted.slots + r->clean.slots + r->dirty.slots > r->held) return false;
  for (unsigned c = 0; c < LM_CLASSES; c++)
    if (counted.spans[c] != pool->store[c].spans || !lm_store_is_valid(&pool->store[c]))
      return false;
  return true;
}

/* ---- All locks at once: for fork, and to see that the laws hold */

static void lock_pool(lm_pool *pool) {
  for (unsigned c = 0; c < LM_CLASSES; c++) lm_lock_take(&pool->store[c].lock);
  lm_lock_take(&pool->large.lock);
  lm_lock_take(&pool->regions.lock);
}

static void unlock_pool(lm_pool *pool) {
  lm_lock_drop(&pool->regions.lock);
  lm_lock_drop(&pool->large.lock);
  for (unsigned c = LM_CLASSES; c-- > 0;) lm_lock_drop(&pool->store[c].lock);
}

static void renew_pool(lm_pool *pool) {
  for (unsigned c = 0; c < LM_CLASSES; c++) lm_lock_renew(&pool->store[c].lock);
  lm_lock_renew(&pool->large.lock);
  lm_lock_renew(&pool->regions.lock);
}

static void lock_all(void) {
  lm_lock_take(&making);
  each_pool(lock_pool);
}

static void unlock_all(void) {
  each_pool(unlock_pool);
  lm_lock_drop(&making);
}

/* ---- What a forked child has of pools whose memory is a file's */

static lm_pool *backed_pool(const lm_span *span) {
  uint32_t use = atomic_load(&span->use);
  if (use != LM_USE_SMALL && use != LM_USE_LARGE) return NULL;
  lm_pool *pool = pool_at(atomic_load(&span->strategy));
  return pool && pool->regions.how.backing ? pool : NULL;
}

static void inherit(const lm_pool *pool, uint32_t from, uint32_t to) {
  size_t size = (size_t)(to - from) << LM_SLOT_SHIFT;
  if (pool) lm_backing_inherit(&pool->backing, lm_map_address(from), size);
}

/* The blocks stay, as a view of the parent's; neighbours of one pool at once. */
static void inherit_blocks(void) {
  lm_pool *pool = NULL;
  uint32_t slot = lm_map_first(), from = slot;
  uint32_t end = (uint32_t)(atomic_load(&lm_map.top) >> LM_SLOT_SHIFT);
  for (; slot < end; slot = lm_map_next(slot)) {
    lm_span *span = lm_map_span(slot);
    lm_pool *of = backed_pool(span);
    if (of && atomic_load(&span->use) == LM_USE_LARGE) atomic_store(&span->lent, LM_LENT_INHERITED);
    if (of == pool) continue;
    inherit(pool, from, slot);
    pool = of;
    from = slot;
  }
  inherit(pool, from, slot);
}

static bool has_backed_pools(void) {
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    if (pool_at(id) && pool_at(id)->regions.how.backing) return true;
  return false;
}

static void leave_pool(lm_pool *pool) {
  if (!pool->regions.how.backing) return;
  lm_large_leave(&pool->large);
  lm_regions_leave(&pool->regions);
}

static void renew_all(void) {
  each_pool(renew_pool);
  lm_lock_renew(&making);
  lm_lock_renew(&ending);
  lm_lock_renew(&sweeping);
  if (!has_backed_pools()) return;
  inherit_blocks();
  each_pool(leave_pool);
}

/* What is hooked first is locked last, and loam's own memory is below the pools. */
void lm_pool_start(void) {
  static _Atomic bool hooked;
  if (atomic_exchange_explicit(&hooked, true, memory_order_relaxed)) return;
  lm_own_start();
  lm_marks_start();
  lm_thread_hook(&(lm_thread_hooks){ flush_thread, lock_all, unlock_all, renew_all });
  lm_thread_on_claim(give_up_idle);
}

bool lm_pool_is_valid(void) {
  lock_all();
  bool valid = true;
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    valid = valid && (!pool_at(id) || is_pool_valid_locked(pool_at(id)));
  unlock_all();
  return valid && lm_marks_are_valid() && lm_own_is_valid() && lm_map_is_valid();
}
