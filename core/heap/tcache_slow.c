/* tcache_slow.c - the slow path of the thread cache: bins open, grow, are filled, run over and are
 * emptied.
 *
 * A bin starts small and doubles each time it was empty or full, so threads that allocate or free
 * much go to the central lists less and less often ("slow start" of tcmalloc's thread lists). In a
 * process of many threads the bins of a young thread stay small for longer: YOUNG_BYTES. */
#include "heap/tcache_slow.h"

#include <string.h>

#include "heap/pools.h"
#include "heap/sweep.h"
#include "os/decay.h"
#include "os/pressure.h"
#include "pages/metadata.h"
#include "pages/states.h"

/* The greatest number of items in a bin. With the sentinel before them, the array has a power of
 * two of items. */
enum { CAPACITY_MAX = 1023 };
/* A bin holds at most 1/1024 of its strategy's limit, so a thread holds at most about a 25th. */
enum { LIMIT_SHARE = 1024 };
/* The greatest number of bytes in a bin into which objects are only freed: other threads allocate
 * them, by way of the depot of the central list. */
#define PASSING_BYTES ((size_t)32 << 10)
/* The greatest number of objects that an empty bin takes at a time. They should be handed out while
 * their items are still in the processor's cache. */
enum { FILL_MAX = 128 };
/* An idle bin is worth waking the service thread for from this many bytes on. */
#define NOTIFY_BYTES ((size_t)256 << 10)
/* The greatest number of slots (2 MiB) of large blocks that a thread caches of one pool. */
enum { LARGE_SLOTS_MAX = 32 };
/* The greatest number (256 KiB) if the thread takes no large blocks, in a process that is not
 * served (os/decay.h): many such threads may free a peak. */
enum { LARGE_SLOTS_PASSING = 4 };
/* The greatest number of bytes in a bin while memory is short (os/pressure.h). */
#define SHORT_BYTES ((size_t)64 << 10)
/* The greatest number of bytes in a bin of a young thread, while the process has many threads
 * (lm_thread_are_many): YOUNG_BYTES, and twice as many after each YOUNG_CALLS slow calls of the
 * thread. Where there are many threads, most of them do little and then wait, and what a waiting
 * thread caches serves no other thread. After ten doublings there is no such bound any more. */
#define YOUNG_BYTES ((size_t)1 << 9)
enum { YOUNG_CALLS = 256, YOUNG_DOUBLINGS = 10 };

static uint32_t capacity_first(unsigned class_) {
  return class_ >= LM_CLASSES ? 1 : lm_class_size(class_) <= LM_KIB ? 15 : 3;
}

/* Returns the greatest number of bytes in a bin of this thread for objects of `size` bytes: it is
 * at least `size`. */
static size_t bytes_max(lm_thread *t, size_t size) {
  size_t bytes = lm_pressure_is_short() ? SHORT_BYTES : LM_MIB;
  const lm_thread_bins *bins = lm_tcache_of(t);
  uint32_t doublings = (bins->slow_calls - bins->born) / YOUNG_CALLS;
  if (doublings < YOUNG_DOUBLINGS && lm_thread_are_many()) {
    size_t young = YOUNG_BYTES << doublings;
    if (young < bytes) bytes = young;
  }
  return bytes < size ? size : bytes;
}

/* Returns the greatest capacity of a bin. Objects of a small class may have bytes_max together.
 * Large blocks may have about a MiB together, and one block is always allowed. Cached objects count
 * against the strategy's limit, so a bin takes little of a limit, and nothing of a low limit. */
static uint32_t capacity_max(lm_thread *t, const lm_strategy *strategy, unsigned class_) {
  if (class_ >= LM_CLASSES) return 1 + 15 / lm_class_slots(class_);
  size_t bytes = bytes_max(t, lm_class_size(class_)), limit = strategy->desc.limit;
  if (limit && limit / LIMIT_SHARE < bytes) bytes = limit / LIMIT_SHARE;
  size_t n = bytes / lm_class_size(class_);
  return n < CAPACITY_MAX ? (uint32_t)n : CAPACITY_MAX;
}

static lm_pool_bins *bins_at(lm_thread *t, uint32_t offset) {
  uint32_t place = lm_tcache_bin_place(offset);
  lm_assert(place > 0 && place < LM_POOL_PLACES);
  return &lm_tcache_of(t)->pool[place];
}

bool lm_tcache_extend(lm_thread *t, uint32_t place) {
  return lm_thread_extend(t, lm_tcache_bin_offset(place + 1, 0));
}

/* Puts a pool's bins into the thread's list, by which they are emptied. Called when a bin
 * opens. */
static void list_bins(lm_thread *t, uint32_t place) {
  lm_thread_bins *bins = lm_tcache_of(t);
  if (bins->pool[place].listed) return;
  bins->pool[place].listed = true;
  bins->pool[place].next = bins->first;
  bins->first = place;
}

/* The number of items in a bin; 0 also while they are moved. */
static uint32_t count_of(const lm_bin *bin) {
  lm_cached_object *top = lm_tcache_bin_top(bin);
  return top ? (uint32_t)(top - bin->low) : 0;
}

static uint32_t capacity_of(const lm_bin *bin) { return (uint32_t)(bin->high - bin->low); }

/* The array of the sentinel and the items. NULL: the bin is not open, or its items are being moved,
 * so that a forked child cannot tell where the array is. */
static lm_cached_object *array_of(const lm_bin *bin) {
  return lm_tcache_bin_top(bin) && lm_tcache_bin_is_open(bin) ? bin->low - 1 : NULL;
}

/* Hides the items before they are moved: a forked child that lost the thread amid the move, and
 * empties the bin, then finds none. The fence keeps every later store behind this one. */
static void unset_top(lm_bin *bin) {
  atomic_store_explicit(&bin->top, NULL, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
}

/* Makes a bin one that is not open. The caller has taken over its items. */
static void reset_bin(lm_pool_bins *bins, lm_bin *bin) {
  unset_top(bin);
  bins->none = lm_tcache_sentinel();
  bin->low = bin->high = &bins->none + 1;
  bin->seen = NULL;
  lm_tcache_bin_set_top(bin, bin->low);
}

bool lm_tcache_name_bin(lm_thread *t, uint32_t offset) {
  lm_bin *bin = lm_tcache_bin_at(t, offset);
  if (lm_tcache_bin_top(bin)) return true;
  if (!lm_tcache_extend(t, lm_tcache_bin_place(offset))) return false;
  reset_bin(bins_at(t, offset), bin);
  return true;
}

/* Returns whether all items from `item` up to `end` are cached objects. */
static bool are_cached(const lm_cached_object *item, const lm_cached_object *end) {
  for (; item < end; item++)
    if (!item->p || !item->cell || !lm_state_is_cached_at(item->cell)) return false;
  return true;
}

bool lm_bin_is_valid(const lm_bin *bin) {
  lm_cached_object *top = lm_tcache_bin_top(bin);
  if (!top) return !bin->low && !bin->high;
  if (top < bin->low || top > bin->high || !lm_tcache_is_sentinel(bin->low - 1)) return false;
  return are_cached(bin->low, top);
}

static bool is_pool_valid(const lm_pool_bins *bins) {
  uint32_t slots = 0;
  for (unsigned c = 0; c < LM_CLASSES_ALL; c++) {
    if (!lm_bin_is_valid(&bins->bin[c])) return false;
    if (c >= LM_CLASSES) slots += capacity_of(&bins->bin[c]) * lm_class_slots(c);
  }
  return slots == bins->large;
}

bool lm_thread_bins_is_valid(const lm_thread_bins *bins) {
  uint32_t n = 0;
  for (uint32_t place = 0; place < LM_POOL_PLACES; place++) n += bins->pool[place].listed;
  for (uint32_t place = bins->first; place; place = bins->pool[place].next, n--)
    if (!n || !bins->pool[place].listed || !is_pool_valid(&bins->pool[place])) return false;
  return n == 0;
}

bool lm_tcache_batch_is_valid(const lm_tcache_batch *batch) {
  const lm_cached_object *first = batch->array + 1;
  if (!batch->array) return !batch->n;
  return lm_tcache_is_sentinel(batch->array) && are_cached(first, first + batch->n);
}

/* ---- Growing ------------------------------------------------------------------------------ */

/* Gives the bin an array for `capacity` items. Without memory for that the bin does not change. */
static void grow_bin(lm_bin *bin, uint32_t capacity) {
  size_t room = lm_align_up((1 + capacity) * sizeof(lm_cached_object), LM_CACHE_LINE);
  lm_cached_object *old = array_of(bin), *items = lm_metadata_take(room);
  lm_assert(capacity > capacity_of(bin));
  if (!items) return;
  uint32_t n = count_of(bin);
  unset_top(bin);
  items[0] = lm_tcache_sentinel();
  if (n) memcpy(items + 1, old + 1, n * sizeof *items);
  bin->low = items + 1;
  bin->high = bin->low + capacity;
  lm_tcache_bin_set_top(bin, bin->low + n);
  lm_metadata_free(old);
}

/* Relaxed: whoever closes a pool then makes threads give up its bins. */
static bool is_closed(const lm_pool *pool) {
  return pool && lm_unlikely(atomic_load_explicit(&pool->closed, memory_order_relaxed));
}

static uint32_t large_slots_max(const lm_pool_bins *bins) {
  if (lm_unlikely(lm_pressure_is_short())) return LARGE_SLOTS_PASSING;
  return bins->takes_large || lm_decay_is_served() ? LARGE_SLOTS_MAX : LARGE_SLOTS_PASSING;
}

/* Opens the bin, or doubles its capacity, as far as it may grow. */
static void widen(lm_thread *t, lm_bin *bin, uint32_t offset) {
  uint32_t place = lm_tcache_bin_place(offset), now = capacity_of(bin);
  unsigned class_ = lm_tcache_bin_class(offset);
  lm_strategy *strategy = lm_pool_holder(place);
  uint32_t most = capacity_max(t, strategy, class_);
  uint32_t next = !now ? capacity_first(class_) : class_ < LM_CLASSES ? now * 2 + 1 : now * 2;
  if (next > most) next = most;
  if (t->dying || now >= most || is_closed(lm_pool_of(strategy))) return;
  if (!lm_tcache_extend(t, place)) return;
  lm_pool_bins *bins = bins_at(t, offset);
  uint32_t slots = class_ < LM_CLASSES ? 0 : (next - now) * lm_class_slots(class_);
  if (slots && bins->large + slots > large_slots_max(bins)) return;
  if (!now) list_bins(t, place);
  if (!now && lm_thread_are_many()) lm_decay_stir();
  grow_bin(bin, next);
  if (capacity_of(bin) > now) bins->large += slots;
}

/* ---- Taking ------------------------------------------------------------------------------- */

/* Makes a cached object live with this token. False: there is no memory to note the token. */
static bool set_token(const lm_cached_object *item, lm_token token, uint8_t *hint) {
  lm_assert(token != LM_TOKEN_NONE);
  lm_state state = lm_states_assign_at(item->p, item->cell, token, hint);
  if (!state) return false;
  lm_tcache_set_state(item->cell, state);
  lm_tcache_unpoison(item->p);
  return true;
}

void lm_tcache_give_back(lm_pool *pool, unsigned class_, const lm_cached_object *items,
                         uint32_t n) {
  lm_assert(class_ < LM_CLASSES);
  lm_central_push(&pool->central[class_], items, n);
  lm_strategy_limit_give(pool->strategy, (int64_t)(n * lm_class_size(class_)));
}

/* Takes at most `want` objects from their central list, as far as the limit goes. Returns how
 * many. `t` may be NULL. */
static uint32_t take_from_central(lm_thread *t, lm_pool *pool, unsigned class_,
                                  lm_cached_object *items, uint32_t want) {
  size_t size = lm_class_size(class_);
  lm_assert(class_ < LM_CLASSES && want > 0);
  uint32_t n = is_closed(pool) ? 0 : lm_strategy_limit_take_some(pool->strategy, size, want);
  if (!n) return 0;
  uint32_t got = lm_central_pull(&pool->central[class_], t ? (unsigned)t->tid : 0, items, n);
  lm_assert(got <= n);
  lm_strategy_limit_give(pool->strategy, (int64_t)((n - got) * size));
  return got;
}

/* Makes a cached object live that is in no bin. NULL: there is no memory to note the token, and the
 * object went back. */
static void *make_live(lm_pool *pool, unsigned class_, lm_cached_object *item, lm_token token) {
  uint8_t hint = lm_state_hint(token);
  if (set_token(item, token, &hint)) return item->p;
  lm_tcache_give_back(pool, class_, item, 1);
  return NULL;
}

void *lm_tcache_take_one(lm_thread *t, lm_pool *pool, unsigned class_, lm_token token) {
  lm_cached_object item;
  if (!take_from_central(t, pool, class_, &item, 1)) return NULL;
  return make_live(pool, class_, &item, token);
}

void *lm_tcache_take_left(lm_thread *t, lm_pool *pool, unsigned class_, lm_token token) {
  lm_cached_object item;
  size_t size = lm_class_size(class_);
  if (is_closed(pool) || !lm_strategy_limit_take(pool->strategy, size)) return NULL;
  if (lm_central_pull_present(&pool->central[class_], t ? (unsigned)t->tid : 0, &item))
    return make_live(pool, class_, &item, token);
  lm_strategy_limit_give(pool->strategy, (int64_t)size);
  return NULL;
}

/* Wakes the service thread if the bin may hold enough to be worth a look when it is idle. Bins of
 * registered memory always are. */
static void notify_decay_if_large(const lm_pool *pool, const lm_bin *bin, uint32_t offset) {
  size_t bytes = capacity_of(bin) * lm_class_size(lm_tcache_bin_class(offset));
  if (pool->regions.how.registered || bytes >= NOTIFY_BYTES) lm_decay_stir();
}

/* Fills an empty bin. If the limit leaves nothing, objects of other classes that the thread caches
 * may use it up: they are given back, and one object is tried. */
static bool fill(lm_thread *t, lm_bin *bin, uint32_t offset, lm_pool *pool) {
  unsigned class_ = lm_tcache_bin_class(offset);
  widen(t, bin, offset);
  if (!lm_tcache_bin_is_open(bin)) return false;
  uint32_t want = (capacity_of(bin) + 2) / 2;
  if (want > FILL_MAX) want = FILL_MAX;
  uint32_t n = take_from_central(t, pool, class_, bin->low, want);
  if (!n && pool->strategy->desc.limit) {
    lm_tcache_flush_account(pool->strategy, t);
    widen(t, bin, offset);
    n = lm_tcache_bin_is_open(bin) ? take_from_central(t, pool, class_, bin->low, 1) : 0;
  }
  lm_tcache_bin_set_top(bin, bin->low + n);
  bins_at(t, offset)->drawn |= (uint64_t)1 << class_;
  lm_verify(lm_bin_is_valid(bin));
  notify_decay_if_large(pool, bin, offset);
  lm_tcache_update_reach(t);
  return n;
}

/* Fills an empty bin. False: there is no memory for the bin, or for an object. The thread cannot be
 * cancelled here, because objects on their way between list and bin would be lost. */
static bool refill(lm_thread *t, lm_bin *bin, uint32_t offset, lm_pool *pool) {
  lm_lock_hold_cancel();
  bool filled = fill(t, bin, offset, pool);
  lm_lock_allow_cancel();
  return filled;
}

LM_NOINLINE void *lm_tcache_take(lm_thread *t, uint32_t offset, lm_token token, uint8_t *hint) {
  lm_bin *bin = lm_tcache_bin_at(t, offset);
  lm_assert(lm_tcache_bin_class(offset) < LM_CLASSES);
  if (lm_tcache_bin_top(bin) == bin->low) {
    lm_sweep_poll(t); /* not later: it may close bins */
    lm_pool *pool = lm_pools_make(lm_pool_holder(lm_tcache_bin_place(offset)));
    if (!pool) return NULL;
    if (!refill(t, bin, offset, pool))
      return lm_tcache_bin_is_open(bin)
                 ? NULL
                 : lm_tcache_take_one(t, pool, lm_tcache_bin_class(offset), token);
  }
  lm_cached_object *top = lm_tcache_bin_top(bin) - 1, item = *top;
  lm_assert(top >= bin->low);
  lm_tcache_bin_set_top(bin, top);
  if (set_token(&item, token, hint)) return item.p;
  lm_tcache_bin_set_top(bin, top + 1);
  return NULL;
}

void *lm_tcache_take_large(lm_thread *t, uint32_t offset, size_t size, lm_token token,
                           bool *zeroed) {
  lm_decision d = { .bin = offset, .token = token };
  lm_assert(token != LM_TOKEN_NONE);
  lm_assert(lm_tcache_bin_class(offset) == lm_class_large(size));
  void *p = lm_tcache_take_large_ready(t, &d, size, token & LM_TOKEN_COUNTED);
  *zeroed = false;
  if (p) return p;
  lm_sweep_poll(t);
  if (lm_tcache_extend(t, lm_tcache_bin_place(offset))) bins_at(t, offset)->takes_large = true;
  lm_pool *pool = lm_pools_make(lm_pool_holder(lm_tcache_bin_place(offset)));
  return pool ? lm_large_alloc_class(&pool->large, size, offset, token, zeroed) : NULL;
}

/* ---- Giving back -------------------------------------------------------------------------- */

/* Tells whether a bin has no room for another object: it is full, closed or unused. */
static bool has_no_room(const lm_bin *bin) { return lm_tcache_bin_top(bin) == bin->high; }

bool lm_tcache_give_full(lm_thread *t, void *p, lm_located refused) {
  uint32_t bin = lm_load(uint32_t, &refused.span->bin);
  lm_state state = lm_load(lm_state, refused.cell);
  if (!lm_state_is_plain(state) || !lm_tcache_bin_place(bin) ||
      lm_tcache_bin_class(bin) >= LM_CLASSES || !has_no_room(lm_tcache_bin_at(t, bin)))
    return false;
  if (lm_unlikely(!lm_lock_try_hold_now())) return false;
  atomic_store_explicit(refused.cell, lm_state_when_freed(state), memory_order_relaxed);
  lm_poison(p, lm_load(size_t, &refused.span->size));
  lm_tcache_overflow(t, bin, (lm_cached_object){ p, refused.cell });
  lm_lock_allow_cancel();
  return true;
}

void lm_tcache_put(lm_bin *bin, lm_cached_object item) {
  lm_cached_object *top = lm_tcache_bin_top(bin);
  lm_assert(top >= bin->low && top < bin->high);
  lm_assert(item.p && lm_state_is_cached_at(item.cell));
  *top = item;
  lm_tcache_bin_set_top(bin, top + 1);
}

/* Gives the older half of a full bin back: the objects that were freed last are still in the
 * processor's cache. While the central list sheds its objects, the bin becomes as narrow as the
 * list wants it (`most`; 0: as it is). The items are given back from where they are, because a bin
 * whose top is unset has no other reader. */
static void halve(lm_bin *bin, lm_pool *pool, unsigned class_, uint32_t most) {
  uint32_t n = count_of(bin), keep = n - n / 2;
  bool narrow = most && capacity_of(bin) > most;
  if (narrow) keep = most / 2;
  lm_assert(keep <= n);
  unset_top(bin);
  atomic_store_explicit(&pool->central[class_].fed, true, memory_order_relaxed);
  lm_tcache_give_back(pool, class_, bin->low, n - keep);
  lm_tcache_items_copy(bin->low, bin->low + n - keep, keep);
  if (narrow) bin->high = bin->low + most;
  lm_tcache_bin_set_top(bin, bin->low + keep);
  lm_verify(lm_bin_is_valid(bin));
}

/* Tells whether a full bin becomes wider. `shedding` is 0, or the most objects that the central
 * list wants in a bin. Forgets that the bin was filled since it last ran over. A bin that is closed
 * opens for objects of any size. */
static bool may_widen(lm_pool_bins *bins, unsigned class_, uint32_t shedding) {
  uint64_t bit = (uint64_t)1 << class_;
  bool was_filled = bins->drawn & bit;
  uint32_t most = shedding ? shedding : CAPACITY_MAX;
  uint32_t passing = 1 + PASSING_BYTES / lm_class_size(class_);
  if (!was_filled && passing < most) most = passing;
  bins->drawn &= ~bit;
  return 2 * capacity_of(&bins->bin[class_]) < most;
}

/* Gives an object back, with all that its full bin holds, and closes the bin. */
static void give_all_back(lm_pool_bins *bins, lm_pool *pool, unsigned class_,
                          lm_cached_object item) {
  lm_tcache_batch batch = lm_tcache_bin_close(bins, class_);
  atomic_store_explicit(&pool->central[class_].fed, true, memory_order_relaxed);
  if (batch.n) lm_tcache_give_back(pool, class_, batch.array + 1, batch.n);
  lm_metadata_free(batch.array);
  lm_tcache_give_back(pool, class_, &item, 1);
}

static void overflow_small(lm_thread *t, uint32_t offset, lm_cached_object item) {
  uint32_t place = lm_tcache_bin_place(offset);
  lm_pool *pool = lm_pool_of(lm_pool_holder(place));
  unsigned class_ = lm_tcache_bin_class(offset);
  lm_bin *bin = lm_tcache_bin_at(t, offset);
  lm_assert(pool); /* it cannot end while one of its objects is neither live nor in a bin */
  if (!lm_tcache_extend(t, place)) {
    lm_tcache_give_back(pool, class_, &item, 1);
    return;
  }
  uint32_t most = lm_central_bin_most(&pool->central[class_]);
  if (most == LM_CENTRAL_NONE) {
    give_all_back(bins_at(t, offset), pool, class_, item);
    return;
  }
  if (may_widen(bins_at(t, offset), class_, most)) widen(t, bin, offset);
  if (capacity_of(bin) < 2 && has_no_room(bin)) {
    lm_tcache_give_back(pool, class_, &item, 1);
    return;
  }
  if (has_no_room(bin)) halve(bin, pool, class_, most);
  lm_tcache_put(bin, item);
  notify_decay_if_large(pool, bin, offset);
}

static void overflow_large(lm_thread *t, uint32_t offset, lm_cached_object item) {
  lm_large *large = &lm_pool_of(lm_pool_holder(lm_tcache_bin_place(offset)))->large;
  lm_bin *bin = lm_tcache_bin_at(t, offset);
  widen(t, bin, offset);
  if (lm_tcache_bin_top(bin) < bin->high) {
    lm_tcache_put(bin, item);
    if (bins_at(t, offset)->large >= LM_DECAY_MIN_SLOTS) lm_decay_stir();
    return;
  }
  lm_large_free(large, item.cell);
}

void lm_tcache_overflow(lm_thread *t, uint32_t offset, lm_cached_object item) {
  lm_assert(lm_state_is_cached_at(item.cell));
  lm_assert(has_no_room(lm_tcache_bin_at(t, offset)));
  lm_lock_hold_cancel();
  if (lm_tcache_bin_class(offset) < LM_CLASSES) overflow_small(t, offset, item);
  else overflow_large(t, offset, item);
  lm_lock_allow_cancel();
  lm_sweep_poll(t);
}

/* ---- Emptying ----------------------------------------------------------------------------- */

lm_tcache_batch lm_tcache_bin_close(lm_pool_bins *bins, unsigned class_) {
  lm_assert(class_ < LM_CLASSES_ALL);
  lm_bin *bin = &bins->bin[class_];
  lm_tcache_batch batch = { array_of(bin), count_of(bin) };
  lm_verify(lm_tcache_batch_is_valid(&batch));
  if (class_ >= LM_CLASSES) bins->large -= capacity_of(bin) * lm_class_slots(class_);
  reset_bin(bins, bin);
  return batch;
}

void lm_tcache_batch_return(lm_pool *pool, unsigned class_, const lm_tcache_batch *batch) {
  lm_verify(lm_tcache_batch_is_valid(batch));
  if (batch->n && class_ < LM_CLASSES) {
    lm_central_return(&pool->central[class_], batch->array + 1, batch->n);
    lm_strategy_limit_give(pool->strategy, (int64_t)(batch->n * lm_class_size(class_)));
  }
  for (uint32_t i = 1; i <= batch->n && class_ >= LM_CLASSES; i++)
    lm_large_free(&pool->large, batch->array[i].cell);
  lm_metadata_free(batch->array);
}

void lm_tcache_flush(lm_pool *pool, lm_pool_bins *bins) {
  lm_lock_hold_cancel();
  for (unsigned c = 0; c < LM_CLASSES_ALL; c++) {
    if (!lm_tcache_bin_is_open(&bins->bin[c])) continue;
    lm_tcache_batch batch = lm_tcache_bin_close(bins, c);
    if (batch.n && c < LM_CLASSES) lm_tcache_give_back(pool, c, batch.array + 1, batch.n);
    if (c < LM_CLASSES) batch.n = 0;
    lm_tcache_batch_return(pool, c, &batch);
  }
  lm_lock_allow_cancel();
}

/* Tells whether the calling thread may touch its bins of a strategy. While the strategy is being
 * retired, another thread may be emptying them. If the strategy is open now, a retirement that
 * begins later waits until the calling thread has left its active section. */
static bool is_open(const lm_strategy *s) {
  return s && atomic_load_explicit(&s->retiring, memory_order_acquire) == LM_POOL_OPEN;
}

void lm_tcache_flush_account(const lm_strategy *strategy, lm_thread *t) {
  lm_thread_bins *bins = lm_tcache_of(t);
  for (uint32_t place = bins->first; place; place = bins->pool[place].next) {
    lm_strategy *s = lm_pool_holder(place);
    lm_pool *pool = is_open(s) && lm_strategy_limit_is_shared(s, strategy) ? lm_pool_of(s) : NULL;
    if (pool) lm_tcache_flush(pool, &bins->pool[place]);
  }
}

/* Closes the bins of a pool that are idle, or all of them, and begins a new interval. */
static void flush_bins_of(lm_pool *pool, lm_pool_bins *bins, bool all) {
  bins->takes_large = false;
  for (unsigned c = 0; c < LM_CLASSES_ALL; c++) {
    lm_bin *bin = &bins->bin[c];
    lm_cached_object *top = lm_tcache_bin_top(bin);
    bool is_idle = all || top == bin->seen;
    bin->seen = top;
    if (!is_idle || !lm_tcache_bin_is_open(bin)) continue;
    lm_tcache_batch batch = lm_tcache_bin_close(bins, c);
    lm_tcache_batch_return(pool, c, &batch);
  }
}

static void flush_bins(lm_thread *t, bool all) {
  lm_thread_bins *bins = lm_tcache_of(t);
  lm_lock_hold_cancel();
  for (uint32_t place = bins->first; place; place = bins->pool[place].next) {
    lm_strategy *s = lm_pool_holder(place);
    lm_pool *pool = is_open(s) ? lm_pool_of(s) : NULL;
    if (pool) flush_bins_of(pool, &bins->pool[place], all);
  }
  lm_lock_allow_cancel();
}

void lm_tcache_flush_idle(lm_thread *t) { flush_bins(t, false); }
void lm_tcache_flush_own(lm_thread *t) { flush_bins(t, true); }

/* Bins of a pool that was retired are still in the list, and empty. The lock keeps pools from being
 * retired during this. */
void lm_tcache_flush_thread(lm_thread *t) {
  lm_thread_bins *bins = lm_tcache_of(t);
  lm_lock_take(&lm_pools_make_lock);
  while (bins->first) {
    uint32_t place = bins->first;
    bins->first = bins->pool[place].next;
    bins->pool[place].listed = false;
    lm_pool *pool = lm_pool_of(lm_pool_holder(place));
    if (pool) lm_tcache_flush(pool, &bins->pool[place]);
  }
  bins->born = bins->slow_calls;
  lm_lock_drop(&lm_pools_make_lock);
}
