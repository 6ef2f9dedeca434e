/* tcache.c - the bins of a thread: how they open, widen, fill, run over and are emptied. */
#include "heap/tcache.h"

#include <string.h>

#include "heap/pools.h"
#include "os/decay.h"
#include "pages/states.h"

/* With nobody's, whose place is before them, items of a bin are a power of two. */
enum { CAPACITY_MOST = 1023 };
/* The same at most while much is freed and nothing allocated. */
enum { NARROW = 255 };
/* A bin holds at most this part of the strategy's limit: a thread at most a twenty-fifth. */
enum { LIMIT_SHARE = 1024 };
/* Bytes of one at most where objects only come in: other threads take them, by way of the depot. */
#define PASSING ((size_t)32 << 10)
/* Objects that an empty bin takes at most: they are to be handed out while their items are near. */
enum { TAKEN_AT_ONCE = 128 };
/* Bytes in a bin that are worth waking somebody for. */
#define STIRRING ((size_t)256 << 10)
/* Slots (2 MiB) of large blocks that a thread caches of a pool at most. */
enum { LARGE_KEPT = 32 };

/* Items of a bin when it is opened, and at most: a MiB of them, of large blocks two, or one. */
static uint32_t capacity_least(unsigned class_) {
  return class_ >= LM_CLASSES ? 1 : lm_class_size(class_) <= LM_KIB ? 15 : 3;
}

/* What threads cache is taken of a limit: little of it, and of a low one nothing. */
static uint32_t capacity_most(const lm_strategy *strategy, unsigned class_) {
  if (class_ >= LM_CLASSES) return 1 + 15 / lm_class_slots(class_);
  size_t bytes = LM_MIB, limit = strategy->desc.limit;
  if (limit && limit / LIMIT_SHARE < bytes) bytes = limit / LIMIT_SHARE;
  size_t n = bytes / lm_class_size(class_);
  return n < CAPACITY_MOST ? (uint32_t)n : CAPACITY_MOST;
}

/* Bin by bin as it is needed: an area with bins that nobody listed is not flushed. */
static void list_bins(lm_thread *t, uint32_t place) {
  lm_thread_bins *bins = lm_pool_bins_of(t);
  if (bins->pool[place].listed) return;
  bins->pool[place].listed = true;
  bins->pool[place].next = bins->first;
  bins->first = place;
}

static uint32_t count_of(const lm_bin *bin) {
  lm_cached_object *top = lm_pool_bin_top(bin);
  return top ? (uint32_t)(top - bin->low) : 0;
}

static uint32_t capacity_of(const lm_bin *bin) { return (uint32_t)(bin->high - bin->low); }

/* What its items are in, and nobody's before them; NULL: it is not open, or nobody knows. */
static lm_cached_object *array_of(const lm_bin *bin) {
  return lm_pool_bin_top(bin) && lm_tcache_bin_is_open(bin) ? bin->low - 1 : NULL;
}

/* Before its items are moved about: a forked child that lost its thread in the midst of that, and
 * flushes it, sees none. Nothing that follows is done before. */
static void unset_top(lm_bin *bin) {
  atomic_store_explicit(&bin->top, NULL, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
}

static void shut(lm_pool_bins *bins, lm_bin *bin) {
  unset_top(bin);
  bins->none = lm_pool_bin_sentinel();
  bin->low = bin->high = &bins->none + 1;
  bin->seen = NULL;
  lm_pool_bin_set_top(bin, bin->low);
}

void lm_tcache_name_bin(lm_thread *t, uint32_t offset) {
  lm_bin *bin = lm_pool_bin_at(t, offset);
  if (!lm_pool_bin_top(bin)) shut(&lm_pool_bins_of(t)->pool[lm_tcache_bin_place(offset)], bin);
}

/* Gives the bin room for `capacity` items; it stays as it is where there is no memory for them. */
static void grow_bin(lm_bin *bin, uint32_t capacity) {
  size_t room = lm_align_up((1 + capacity) * sizeof(lm_cached_object), LM_CACHE_LINE);
  lm_cached_object *old = array_of(bin), *items = lm_metadata_take(room);
  if (!items) return;
  uint32_t n = count_of(bin);
  unset_top(bin);
  items[0] = lm_pool_bin_sentinel();
  if (n) memcpy(items + 1, old + 1, n * sizeof *items);
  bin->low = items + 1;
  bin->high = bin->low + capacity;
  lm_pool_bin_set_top(bin, bin->low + n);
  lm_metadata_free(old);
}

static bool is_closed_at(uint32_t place) {
  const lm_pool *pool = lm_pool_of(lm_pool_holder(place));
  return pool && lm_tcache_pool_is_closed(pool);
}

/* Opens the bin, or doubles its room: threads that allocate much, or free much, go to the store
 * less and less often (as tcmalloc's lists do, "slow start"). */
static void widen(lm_thread *t, lm_bin *bin, uint32_t offset) {
  unsigned class_ = lm_tcache_bin_class(offset);
  uint32_t now = capacity_of(bin),
           most = capacity_most(lm_pool_holder(lm_tcache_bin_place(offset)), class_);
  uint32_t next = !now ? capacity_least(class_) : class_ < LM_CLASSES ? now * 2 + 1 : now * 2;
  if (next > most) next = most;
  if (t->dying || now >= most || is_closed_at(lm_tcache_bin_place(offset))) return;
  lm_pool_bins *bins = &lm_pool_bins_of(t)->pool[lm_tcache_bin_place(offset)];
  uint32_t slots = class_ < LM_CLASSES ? 0 : (next - now) * lm_class_slots(class_);
  if (slots > LARGE_KEPT - bins->large) return;
  if (!now) list_bins(t, lm_tcache_bin_place(offset));
  grow_bin(bin, next);
  if (capacity_of(bin) > now) bins->large += slots;
}

/* Makes a cached object `token`'s; false when there is no memory to note that. */
static bool stamp(const lm_cached_object *item, lm_token token, uint8_t *hint) {
  lm_assert(token != LM_TOKEN_NONE);
  lm_state mark = lm_states_assign_at(item->p, item->mark, token, hint);
  if (!mark) return false;
  lm_pool_set_state(item->mark, mark);
  lm_pool_unpoison(item->p);
  return true;
}

void lm_tcache_give_back(lm_pool *pool, unsigned class_, const lm_cached_object *items,
                         uint32_t n) {
  lm_central_push(&pool->store[class_], items, n);
  lm_strategy_limit_give(pool->strategy, (int64_t)(n * lm_class_size(class_)));
}

/* Takes objects from their store, as far as the limit goes; how many. */
static uint32_t draw(lm_thread *t, lm_pool *pool, unsigned class_, lm_cached_object *items,
                     uint32_t want) {
  size_t size = lm_class_size(class_);
  uint32_t n = lm_tcache_pool_is_closed(pool)
                   ? 0
                   : lm_strategy_limit_take_some(pool->strategy, size, want);
  if (!n) return 0;
  uint32_t got = lm_central_pull(&pool->store[class_], t ? (unsigned)t->tid : 0, items, n);
  lm_strategy_limit_give(pool->strategy, (int64_t)((n - got) * size));
  return got;
}

void *lm_tcache_take_one(lm_thread *t, lm_pool *pool, unsigned class_, lm_token token) {
  lm_cached_object item;
  uint8_t hint = lm_state_hint(token);
  if (!draw(t, pool, class_, &item, 1)) return NULL;
  if (stamp(&item, token, &hint)) return item.p;
  lm_tcache_give_back(pool, class_, &item, 1);
  return NULL;
}

/* A bin that may hold as much is worth a look, once it is idle; of registered memory, any is. */
static void stir(const lm_pool *pool, const lm_bin *bin, uint32_t offset) {
  if (pool->regions.how.registered ||
      capacity_of(bin) * lm_class_size(lm_tcache_bin_class(offset)) >= STIRRING)
    lm_decay_stir();
}

/* What the thread caches of other classes may be what the limit lacks. */
static bool fill(lm_thread *t, lm_bin *bin, uint32_t offset, lm_pool *pool) {
  unsigned class_ = lm_tcache_bin_class(offset);
  widen(t, bin, offset);
  if (!lm_tcache_bin_is_open(bin)) return false;
  uint32_t want = (capacity_of(bin) + 1) / 2;
  if (want > TAKEN_AT_ONCE) want = TAKEN_AT_ONCE;
  uint32_t n = draw(t, pool, class_, bin->low, want);
  if (!n && pool->strategy->desc.limit) {
    lm_tcache_flush_account(pool->strategy, t);
    widen(t, bin, offset);
    n = lm_tcache_bin_is_open(bin) ? draw(t, pool, class_, bin->low, 1) : 0;
  }
  lm_pool_bin_set_top(bin, bin->low + n);
  lm_pool_bins_of(t)->pool[lm_tcache_bin_place(offset)].drawn |= (uint64_t)1 << class_;
  stir(pool, bin, offset);
  lm_pool_set_reach(t);
  return n;
}

/* Fills an empty bin; false when there is no memory for a bin, or for an object. Nobody is
 * cancelled in the midst of it, here and below: what is in no bin would be in none for good. */
static bool refill(lm_thread *t, lm_bin *bin, uint32_t offset, lm_pool *pool) {
  lm_lock_hold_cancel();
  bool filled = fill(t, bin, offset, pool);
  lm_lock_allow_cancel();
  return filled;
}

LM_NOINLINE void *lm_tcache_take(lm_thread *t, uint32_t offset, lm_token token, uint8_t *hint) {
  lm_bin *bin = lm_pool_bin_at(t, offset);
  if (lm_pool_bin_top(bin) == bin->low) {
    lm_pool *pool = lm_pool_for(lm_pool_holder(lm_tcache_bin_place(offset)));
    if (!pool) return NULL;
    if (!refill(t, bin, offset, pool))
      return lm_tcache_bin_is_open(bin)
                 ? NULL
                 : lm_tcache_take_one(t, pool, lm_tcache_bin_class(offset), token);
  }
  lm_cached_object *top = lm_pool_bin_top(bin) - 1, item = *top;
  lm_pool_bin_set_top(bin, top);
  if (stamp(&item, token, hint)) return item.p;
  lm_pool_bin_set_top(bin, top + 1);
  return NULL;
}

void *lm_tcache_take_large(lm_thread *t, uint32_t offset, size_t size, lm_token token,
                           bool *zeroed) {
  lm_decision d = { .bin = offset, .token = token };
  void *p = lm_pool_take_large_as(t, &d, size, lm_state_of_large(token));
  *zeroed = false;
  if (p) return p;
  lm_pool *pool = lm_pool_for(lm_pool_holder(lm_tcache_bin_place(offset)));
  if (!pool) return NULL;
  return lm_large_alloc_class(&pool->large, lm_tcache_bin_class(offset), offset, size, token,
                              zeroed);
}

void lm_tcache_put(lm_bin *bin, lm_cached_object item) {
  lm_cached_object *top = lm_pool_bin_top(bin);
  *top = item;
  lm_pool_bin_set_top(bin, top + 1);
}

/* The older half goes: what was freed last is warm. While the store sheds what it gets, no more
 * stays than the nearest cache has the marks of. From where it is: while there is no top, nobody
 * looks. */
static void halve(lm_bin *bin, lm_pool *pool, unsigned class_, bool sheds) {
  uint32_t n = count_of(bin), keep = n - n / 2;
  bool narrow = sheds && capacity_of(bin) > NARROW;
  if (narrow) keep = NARROW / 2;
  unset_top(bin);
  atomic_store_explicit(&pool->store[class_].fed, true, memory_order_relaxed);
  lm_tcache_give_back(pool, class_, bin->low, n - keep);
  memmove(bin->low, bin->low + n - keep, keep * sizeof *bin->low);
  if (narrow) bin->high = bin->low + NARROW;
  lm_pool_bin_set_top(bin, bin->low + keep);
}

/* Whether a bin becomes wider by running over. */
static bool may_widen(lm_pool_bins *bins, unsigned class_, bool sheds) {
  uint64_t bit = (uint64_t)1 << class_;
  bool gives = bins->drawn & bit;
  /* One that is closed opens, whatever the size. */
  uint32_t most = sheds ? NARROW : CAPACITY_MOST, passing = 1 + PASSING / lm_class_size(class_);
  if (!gives && passing < most) most = passing;
  bins->drawn &= ~bit;
  return 2 * capacity_of(&bins->bin[class_]) < most;
}

/* For a full bin, or one not open: makes room and puts the object. */
static void overflow_small(lm_thread *t, uint32_t offset, lm_cached_object item) {
  lm_pool *pool = lm_pool_of(lm_pool_holder(lm_tcache_bin_place(offset)));
  unsigned class_ = lm_tcache_bin_class(offset);
  lm_bin *bin = lm_pool_bin_at(t, offset);
  bool sheds = lm_central_is_shedding(&pool->store[class_]);
  if (may_widen(&lm_pool_bins_of(t)->pool[lm_tcache_bin_place(offset)], class_, sheds))
    widen(t, bin, offset);
  if (capacity_of(bin) < 2 && lm_pool_bin_top(bin) == bin->high) {
    lm_tcache_give_back(pool, class_, &item, 1);
    return;
  }
  if (lm_pool_bin_top(bin) == bin->high) halve(bin, pool, class_, sheds);
  lm_tcache_put(bin, item);
  stir(pool, bin, offset);
}

static void overflow_large(lm_thread *t, uint32_t offset, lm_cached_object item) {
  lm_large *large = &lm_pool_of(lm_pool_holder(lm_tcache_bin_place(offset)))->large;
  lm_bin *bin = lm_pool_bin_at(t, offset);
  widen(t, bin, offset);
  if (lm_pool_bin_top(bin) < bin->high) {
    lm_tcache_put(bin, item);
    if (lm_pool_bins_of(t)->pool[lm_tcache_bin_place(offset)].large >= LM_DECAY_MIN_SLOTS)
      lm_decay_stir();
    return;
  }
  lm_large_free(large, item.mark);
}

void lm_tcache_overflow(lm_thread *t, uint32_t offset, lm_cached_object item) {
  lm_lock_hold_cancel();
  if (lm_tcache_bin_class(offset) < LM_CLASSES) overflow_small(t, offset, item);
  else overflow_large(t, offset, item);
  lm_lock_allow_cancel();
}

lm_tcache_batch lm_tcache_bin_close(lm_pool_bins *bins, unsigned class_) {
  lm_bin *bin = &bins->bin[class_];
  lm_tcache_batch h = { array_of(bin), count_of(bin) };
  if (class_ >= LM_CLASSES) bins->large -= capacity_of(bin) * lm_class_slots(class_);
  shut(bins, bin);
  return h;
}

void lm_tcache_batch_return(lm_pool *pool, unsigned class_, const lm_tcache_batch *h) {
  if (h->n && class_ < LM_CLASSES) {
    lm_central_return(&pool->store[class_], h->array + 1, h->n);
    lm_strategy_limit_give(pool->strategy, (int64_t)(h->n * lm_class_size(class_)));
  }
  for (uint32_t i = 1; i <= h->n && class_ >= LM_CLASSES; i++)
    lm_large_free(&pool->large, h->array[i].mark);
  lm_metadata_free(h->array);
}

void lm_tcache_flush(lm_pool *pool, lm_pool_bins *bins) {
  lm_lock_hold_cancel();
  for (unsigned c = 0; c < LM_CLASSES_ALL; c++) {
    lm_tcache_batch h = lm_tcache_bin_close(bins, c);
    if (h.n && c < LM_CLASSES) lm_tcache_give_back(pool, c, h.array + 1, h.n);
    if (c < LM_CLASSES) h.n = 0;
    lm_tcache_batch_return(pool, c, &h);
  }
  lm_lock_allow_cancel();
}

/* Of a strategy that is being retired, somebody else may be at our bins. If it is not by now, he
 * waits until the operation that we are in has ended. */
static bool is_ours(const lm_strategy *s) {
  return s && atomic_load_explicit(&s->retiring, memory_order_acquire) == LM_POOL_OPEN;
}

void lm_tcache_flush_account(const lm_strategy *strategy, lm_thread *t) {
  lm_thread_bins *bins = lm_pool_bins_of(t);
  for (uint32_t place = bins->first; place; place = bins->pool[place].next) {
    lm_strategy *s = lm_pool_holder(place);
    lm_pool *pool = is_ours(s) && lm_strategy_limit_is_shared(s, strategy) ? lm_pool_of(s) : NULL;
    if (pool) lm_tcache_flush(pool, &bins->pool[place]);
  }
}
