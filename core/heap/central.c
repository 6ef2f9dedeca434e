/* central.c - the central list of one (pool, size class): spans of small objects, and a depot. */
#include "heap/central.h"

#include <string.h>

#include "os/decay.h"
#include "pages/metadata.h"
#include "pages/states.h"

/* The fewest objects of a span. */
enum { OBJECTS_MIN = 16 };
/* The greatest number of objects in a depot, and about the greatest number of bytes. */
enum { DEPOT_MAX = 1024 };
#define DEPOT_BYTES ((size_t)16 << 20)
/* After this many frees without an allocation there is no depot. */
enum { SURPLUS_MAX = 8 * DEPOT_MAX };
/* The greatest number of bytes that one call takes from spans, beyond the first eight objects. No
 * other thread can use what a thread took and does not need. */
#define TAKE_BYTES ((size_t)64 << 10)
/* The empty spans that a list keeps: two, or a MiB, or an eighth of all its spans. */
enum { EMPTIES_KEPT = 2, EMPTY_SLOTS_KEPT = 16 };
/* Spans that are given back before the lock is released for others. */
enum { RETIRE_AT_ONCE = 32, PURGE_AT_ONCE = 8 };

uint32_t lm_central_span_slots(unsigned class_) {
  return lm_map_slots(lm_class_size(class_) * OBJECTS_MIN);
}

uint32_t lm_central_span_count(unsigned class_) {
  return (uint32_t)(((size_t)lm_central_span_slots(class_) << LM_SLOT_SHIFT) /
                    lm_class_size(class_));
}

void lm_central_init(lm_central *c, lm_regions *regions, uint32_t strategy, uint32_t bin,
                     unsigned class_) {
  c->regions = regions;
  c->strategy = strategy;
  c->bin = bin;
  c->class_ = class_;
}

/* Tells whether a thread holds the lock; assertions use it. */
LM_INLINE bool is_locked(const lm_central *c) { return lm_load(uint32_t, &c->lock.state) != 0; }

/* ---- Spans and their states --------------------------------------------------------------- */

/* The palette of a span of a list whose lock is held. */
static lm_palette *palette_of(const lm_span *span) {
  return lm_state_palette(atomic_load_explicit(&span->side, memory_order_relaxed));
}

static uint32_t free_of(const lm_span *span) { return palette_of(span)->free; }

static void set_free(lm_span *span, uint32_t n) { palette_of(span)->free = n; }

/* Relaxed: while a state is not live, only a thread that holds the lock changes it. */
static lm_state state_at(const lm_state_cell *states, size_t i) {
  return atomic_load_explicit(&states[i], memory_order_relaxed);
}

static void set_state(lm_state_cell *states, size_t i, int state) {
  atomic_store_explicit(&states[i], (lm_state)state, memory_order_relaxed);
}

static uint32_t count_free(const lm_state_cell *states, uint32_t count) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < count; i++) n += lm_state_is_free(state_at(states, i));
  return n;
}

/* Eight states in one word; EACH is a word that repeats a byte eight times. */
enum { EIGHT = 8 };
typedef uint64_t __attribute__((may_alias)) eight;
#define EACH(byte) (UINT64_MAX / 255 * (byte))
_Static_assert(LM_STATE_LIVE == 0x40 && LM_STATE_CACHED == 0x80,
               "the two upper bits of a state byte say free, live or cached");

/* What the state byte of a span's own entry means: the span is in the list `purged`, or it was
 * abandoned. Written under the lock. */
enum { NOTE_NONE, NOTE_PURGED, NOTE_ABANDONED };

static uint32_t span_note(const lm_span *span) {
  return atomic_load_explicit(&span->mark, memory_order_relaxed);
}

static void set_span_note(lm_span *span, uint32_t note) {
  atomic_store_explicit(&span->mark, note, memory_order_relaxed);
}

static void link_span(uint32_t *list, uint32_t slot) {
  lm_span *span = lm_map_span(slot);
  span->prev = 0;
  span->next = *list;
  if (span->next) lm_map_span(span->next)->prev = slot;
  *list = slot;
}

static void unlink_span(uint32_t *list, uint32_t slot) {
  lm_span *span = lm_map_span(slot);
  if (span->next) lm_map_span(span->next)->prev = span->prev;
  if (span->prev) lm_map_span(span->prev)->next = span->next;
  else *list = span->next;
}

/* Counts more empty spans, or fewer. Relaxed: other lists read `spare` as a hint. */
static void add_empties(lm_central *c, int more) {
  c->empties += (uint32_t)more;
  lm_assert(c->empties <= c->spans);
  atomic_fetch_add_explicit(&c->regions->spare, (uint32_t)more * lm_central_span_slots(c->class_),
                            memory_order_relaxed);
}

/* ---- Making and ending spans -------------------------------------------------------------- */

/* Gives a span of the list `empty` back to the regions. */
static void retire_locked(lm_central *c, uint32_t slot) {
  lm_state_cell *states = atomic_load_explicit(&lm_map_span(slot)->side, memory_order_relaxed);
  uint32_t slots = lm_central_span_slots(c->class_);
  lm_assert(is_locked(c) && c->spans > 0 && c->empties > 0);
  lm_assert(free_of(lm_map_span(slot)) == lm_central_span_count(c->class_));
  lm_verify(count_free(states, lm_central_span_count(c->class_)) ==
            lm_central_span_count(c->class_));
  unlink_span(&c->empty, slot);
  add_empties(c, -1);
  c->spans--;
  lm_map_forget_small(slot, slots);
  lm_map_extent(slot, slots, LM_USE_NONE);
  lm_states_free(states);
  lm_regions_put(c->regions, slot, slots);
}

/* Tells whether a new span would be of untouched memory, although other classes keep empty
 * spans. */
static bool needs_spare(const lm_central *c, uint32_t slots) {
  return atomic_load_explicit(&c->regions->spare, memory_order_relaxed) >= slots &&
         !lm_regions_has_dirty(c->regions, slots);
}

/* Makes the pool's other lists give up empty spans until there is a run of `slots` slots. Lists
 * whose lock is held are passed over: the thread that holds it may be doing the same here. */
static void retire_spare_locked(lm_central *c, uint32_t slots) {
  lm_central *first = c - c->class_;
  for (lm_central *other = first; other < first + LM_CLASSES; other++) {
    if (other == c || !lm_lock_try(&other->lock)) continue;
    bool had = other->empty;
    while (other->empty) retire_locked(other, other->empty);
    lm_lock_drop(&other->lock);
    if (had && lm_regions_has_dirty(c->regions, slots)) return;
  }
}

/* Gets all pages of a new span in one call, if the class has many spans and each page will be
 * touched. That takes less time than a page fault for each. Pages that are neighbours in physical
 * memory also share a TLB entry in processors that look for that (Zen: 4 pages of 4 KiB). A kernel
 * before 5.14 refuses the call, and the pages fault one by one. */
static void fault_ahead(const lm_central *c, uint32_t slot, uint32_t slots) {
  enum { SPANS = 32 };
  const lm_preparation *how = &c->regions->how;
  bool is_dense = c->spans >= SPANS && lm_class_size(c->class_) <= LM_PAGE;
  if (!is_dense || how->backing || how->registered || lm_region_is_eager(how)) return;
  (void)lm_sys_prefault(lm_map_address(slot), (size_t)slots << LM_SLOT_SHIFT);
}

/* Makes a span and puts it into the list `empty`. False: there is no memory. */
static bool grow_locked(lm_central *c) {
  lm_assert(is_locked(c) && !c->empty);
  uint32_t slots = lm_central_span_slots(c->class_), count = lm_central_span_count(c->class_);
  size_t size = lm_class_size(c->class_);
  lm_state_cell *states = lm_states_alloc(c->class_, count);
  if (!states) return false;
  lm_verify(count_free(states, count + 1) == count + 1);
  if (needs_spare(c, slots)) retire_spare_locked(c, slots);
  bool clean;
  uint32_t slot = lm_regions_take(c->regions, slots, LM_SLOT, &clean);
  if (!slot) {
    lm_states_free(states);
    return false;
  }
  if (clean) fault_ahead(c, slot, slots);
  lm_span *span = lm_map_span(slot);
  lm_state_palette(states)->free = count;
  set_span_note(span, NOTE_NONE);
  lm_span_info view = {
    (uintptr_t)lm_map_address(slot), lm_map_key(size, c->bin), states, c->bin, c->strategy, size
  };
  lm_map_describe_small(slot, slots, &view);
  lm_map_extent(slot, slots, LM_USE_SMALL);
  link_span(&c->empty, slot);
  c->spans++;
  add_empties(c, 1);
  lm_assert(free_of(span) == count);
  return true;
}

/* ---- Lists of spans ----------------------------------------------------------------------- */

/* Takes a span with free objects, but not only such, out of `partial` or `purged`. */
static void unlink_used(lm_central *c, uint32_t slot) {
  lm_span *span = lm_map_span(slot);
  lm_assert(is_locked(c) && span_note(span) != NOTE_ABANDONED);
  unlink_span(span_note(span) == NOTE_PURGED ? &c->purged : &c->partial, slot);
  set_span_note(span, NOTE_NONE);
}

/* Takes a span with a free object out of its list, or makes one. 0: there is no memory. */
static uint32_t take_listed_locked(lm_central *c) {
  uint32_t slot = c->partial ? c->partial : c->purged;
  if (slot) {
    unlink_used(c, slot);
    return slot;
  }
  if (!c->empty && !grow_locked(c)) return 0;
  slot = c->empty;
  unlink_span(&c->empty, slot);
  add_empties(c, -1);
  return slot;
}

/* Makes sure that there is a span to take objects from. False: there is no memory. */
static bool find_current_locked(lm_central *c, uint32_t *current) {
  if (!*current) *current = take_listed_locked(c);
  return *current;
}

static bool is_current(const lm_central *c, uint32_t slot) {
  for (int i = 0; i < LM_CENTRAL_CURRENT; i++)
    if (c->current[i] == slot) return true;
  return false;
}

/* Puts a span that is in no list into `empty` or `partial`. */
static void list_locked(lm_central *c, uint32_t slot, bool empty) {
  lm_assert(is_locked(c) && free_of(lm_map_span(slot)) > 0);
  link_span(empty ? &c->empty : &c->partial, slot);
  if (empty) add_empties(c, 1);
}

/* Puts the spans that threads take from back into the lists. */
static void release_current_locked(lm_central *c) {
  for (int i = 0; i < LM_CENTRAL_CURRENT; i++) {
    uint32_t slot = c->current[i];
    c->current[i] = 0;
    if (slot) list_locked(c, slot, free_of(lm_map_span(slot)) == lm_central_span_count(c->class_));
  }
}

/* ---- Taking objects ----------------------------------------------------------------------- */

/* Looks at eight states, from a multiple of eight on: the result has 0x80 for each that is not
 * FREE. Other threads may change those, but none of them to FREE. */
static uint64_t used_of_eight(const lm_state_cell *states) {
  uint64_t word = __atomic_load_n((const eight *)states, __ATOMIC_RELAXED);
  return (word | word << 1) & EACH(0x80);
}

/* Takes eight objects from p on, which are all FREE. Their items are written before `end`. */
static unsigned take_eight(lm_state_cell *states, char *p, size_t size, lm_cached_object *end) {
  eight *word = (eight *)states;
  lm_assert(!used_of_eight(states));
  __atomic_store_n(word, *word + EACH(LM_STATE_CACHED), __ATOMIC_RELAXED);
#pragma GCC unroll 8
  for (unsigned i = 0; i < EIGHT; i++) *--end = (lm_cached_object){ p + i * size, states + i };
  return EIGHT;
}

/* Takes the object at p if it is FREE, and writes its item before `end`. Returns 1 or 0. */
static unsigned take_one(lm_state_cell *states, char *p, lm_cached_object *end) {
  lm_state state = state_at(states, 0);
  if (!lm_state_is_free(state)) return 0;
  set_state(states, 0, state + LM_STATE_CACHED);
  end[-1] = (lm_cached_object){ p, states };
  return 1;
}

/* Writes a state without changing it. If an untouched page is read before it is written, it costs
 * two faults: the kernel maps the page of zeros first, and a page of its own at the write. The
 * states here are about to be read, and then written. */
static void touch_states(lm_state_cell *at) {
  lm_state same = LM_STATE_FREE;
  (void)atomic_compare_exchange_strong_explicit(at, &same, LM_STATE_FREE, memory_order_relaxed,
                                                memory_order_relaxed);
}

/* Takes at most `want` objects from the span *current, which becomes 0 when the span has no more.
 * The items are written before `end`, the lowest address last: a bin, which pops from its end, then
 * gives rising addresses. */
static unsigned take_locked(lm_central *c, uint32_t *current, lm_cached_object *end,
                            unsigned want) {
  uint32_t slot = *current;
  lm_span *span = lm_map_span(slot);
  lm_state_cell *states = atomic_load_explicit(&span->side, memory_order_relaxed);
  char *start = lm_map_address(slot);
  size_t size = lm_class_size(c->class_);
  uint32_t count = lm_central_span_count(c->class_), free = free_of(span);
  uint32_t at = palette_of(span)->hint;
  unsigned most = want < free ? want : free;
  lm_assert(is_locked(c) && free > 0 && free <= count && at <= count);
  lm_verify(count_free(states, count) == free);
  if (at == count) at = 0;
  touch_states(&states[at]);
  touch_states(&states[at + most < count ? at + most : count - 1]);
  for (unsigned left = most; left > 0;) {
    if (at == count) at = 0;
    bool whole = at % EIGHT == 0 && count - at >= EIGHT;
    uint64_t used = whole ? used_of_eight(&states[at]) : 1;
    if (used == EACH(0x80)) {
      at += EIGHT;
      continue;
    }
    unsigned n = !used && left >= EIGHT ? take_eight(&states[at], start + at * size, size, end)
                                        : take_one(&states[at], start + at * size, end);
    at += n > 1 ? n : 1;
    end -= n;
    left -= n;
  }
  palette_of(span)->hint = at;
  set_free(span, free - most);
  if (free == most) *current = 0;
  return most;
}

/* Takes `want` objects, or as many as there is memory for. Returns how many. */
static unsigned take_all_locked(lm_central *c, uint32_t *current, lm_cached_object *items,
                                unsigned want) {
  unsigned left = want;
  while (left > 0 && find_current_locked(c, current))
    left -= take_locked(c, current, items + left, left);
  if (lm_unlikely(left > 0)) memmove(items, items + left, (want - left) * sizeof *items);
  return want - left;
}

/* Relaxed: a hint for threads whose bins run over. */
static void set_sheds(lm_central *c, bool sheds) {
  atomic_store_explicit(&c->sheds, sheds, memory_order_relaxed);
}

static unsigned take_max(unsigned class_) {
  size_t n = TAKE_BYTES / lm_class_size(class_);
  return n > EIGHT ? (unsigned)n : EIGHT;
}

unsigned lm_central_pull(lm_central *c, unsigned who, lm_cached_object *items, unsigned want) {
  lm_assert(want > 0);
  lm_lock_take(&c->lock);
  c->surplus = 0;
  c->pulled = true;
  set_sheds(c, false);
  unsigned most = c->stocked ? c->stocked : take_max(c->class_), got = want < most ? want : most;
  if (c->stocked) memcpy(items, c->depot + (c->stocked -= got), got * sizeof *items);
  else got = take_all_locked(c, &c->current[who % LM_CENTRAL_CURRENT], items, got);
  lm_lock_drop(&c->lock);
  return got;
}

/* ---- Giving objects back ------------------------------------------------------------------ */

/* The number of items that a depot has room for. */
static unsigned depot_room(unsigned class_) {
  size_t n = DEPOT_BYTES / lm_class_size(class_);
  return n < DEPOT_MAX ? (unsigned)n : DEPOT_MAX;
}

/* Puts objects into the depot, as far as there is room. Returns how many. */
static unsigned stock_locked(lm_central *c, const lm_cached_object *items, unsigned n) {
  unsigned room = depot_room(c->class_);
  if (!c->depot && !(c->depot = lm_metadata_take(room * sizeof *c->depot))) return 0;
  lm_assert(is_locked(c) && c->stocked <= room);
  if (n > room - c->stocked) n = room - c->stocked;
  if (n) memcpy(c->depot + c->stocked, items, n * sizeof *items);
  c->stocked += n;
  return n;
}

static bool has_too_many_empties(const lm_central *c) {
  return c->empties > EMPTIES_KEPT && c->empties > c->spans / 8 &&
         c->empties * lm_central_span_slots(c->class_) > EMPTY_SLOTS_KEPT;
}

/* Tells whether the entry of a span of this list says that the span is detached. */
static bool is_detached(const lm_central *c, const lm_span *span) {
  return atomic_load_explicit(&span->bin, memory_order_relaxed) != c->bin;
}

/* Moves a span to the list that suits it, when `was` of its objects were FREE and `free` are. */
static LM_NOINLINE void move_between_lists_locked(lm_central *c, uint32_t slot, uint32_t was,
                                                  uint32_t free) {
  const lm_span *span = lm_map_span(slot);
  lm_assert(is_locked(c) && free > was);
  bool empty = free == lm_central_span_count(c->class_);
  if (is_detached(c, span) || is_current(c, slot)) return;
  if (was > 0) unlink_used(c, slot);
  list_locked(c, slot, empty);
  while (has_too_many_empties(c)) retire_locked(c, c->empty);
}

/* Puts back the first items that are of one span, as neighbours often are. Returns the item after
 * them. `count` and `whole` are the objects and the bytes of a span. */
static const lm_cached_object *put_back_locked(lm_central *c, const lm_cached_object *item,
                                               const lm_cached_object *end, uint32_t count,
                                               size_t whole) {
  const lm_span *span = lm_map_span_of(item->p);
  uintptr_t start = atomic_load_explicit(&span->start, memory_order_relaxed);
  const lm_cached_object *first = item;
  uint32_t passed = 0;
  do {
    if (lm_likely(lm_state_is_cached_at(item->mark))) lm_state_end_cached(item->mark);
    else passed++;
  } while (++item < end && (uintptr_t)item->p - start < whole);
  lm_palette *palette = palette_of(span);
  uint32_t was = palette->free, free = was + (uint32_t)(item - first) - passed;
  lm_assert(free <= count);
  palette->free = free;
  bool listed = was > 0 && free < count && span_note(lm_map_span_of((void *)start)) != NOTE_PURGED;
  if (lm_unlikely(!listed) && free > was)
    move_between_lists_locked(c, lm_map_slot((void *)start), was, free);
  return item;
}

static void put_all_back_locked(lm_central *c, const lm_cached_object *items, unsigned n) {
  uint32_t count = lm_central_span_count(c->class_);
  size_t whole = (size_t)lm_central_span_slots(c->class_) << LM_SLOT_SHIFT;
  for (const lm_cached_object *item = items, *end = items + n; item < end;)
    item = put_back_locked(c, item, end, count, whole);
}

static void empty_depot_locked(lm_central *c) {
  if (c->stocked) put_all_back_locked(c, c->depot, c->stocked); /* C has no sum NULL + 0 */
  c->stocked = 0;
}

static void end_depot_locked(lm_central *c) {
  empty_depot_locked(c);
  lm_metadata_free(c->depot);
  c->depot = NULL;
}

/* Puts objects into the depot, unless it is to be given up. Returns how many: all, some or none. */
static unsigned absorb_locked(lm_central *c, const lm_cached_object *items, unsigned n) {
  if (atomic_load_explicit(&c->detached, memory_order_relaxed)) return 0;
  if (c->surplus <= SURPLUS_MAX) {
    c->surplus += n;
    return stock_locked(c, items, n);
  }
  set_sheds(c, true);
  empty_depot_locked(c);
  return 0;
}

/* Gives objects back: first to the depot, if they are likely to be `wanted` soon. */
static void give_back(lm_central *c, const lm_cached_object *items, unsigned n, bool wanted) {
  lm_lock_take(&c->lock);
  unsigned done = wanted ? absorb_locked(c, items, n) : 0;
  put_all_back_locked(c, items + done, n - done);
  bool much = c->empties * lm_central_span_slots(c->class_) >= LM_DECAY_MIN_SLOTS;
  lm_lock_drop(&c->lock);
  if (much) lm_decay_stir();
}

void lm_central_push(lm_central *c, const lm_cached_object *items, unsigned n) {
  give_back(c, items, n, true);
}

void lm_central_return(lm_central *c, const lm_cached_object *items, unsigned n) {
  give_back(c, items, n, false);
}

/* Gives back a few empty spans, because others wait for the lock. True: there are more. */
static bool retire_some(lm_central *c) {
  lm_lock_take(&c->lock);
  for (int i = 0; c->empty && i < RETIRE_AT_ONCE; i++) retire_locked(c, c->empty);
  bool more = c->empty != 0;
  lm_lock_drop(&c->lock);
  return more;
}

/* ---- Pages of spans that are not empty ---------------------------------------------------- */

/* Tells whether pages may be given back: not where the strategy pays for them in advance. That
 * includes memory that is registered with a driver, and memory in a file on a disk. Shared memory,
 * which is in a file too, has no small objects (has_small in heap/pool.c). */
static bool can_purge(const lm_central *c) { return !lm_region_is_eager(&c->regions->how); }

static void purge_range(uintptr_t from, uintptr_t to) {
  from = lm_align_up(from, LM_PAGE);
  to = lm_align_down(to, LM_PAGE);
  if (from < to) (void)lm_sys_purge((void *)from, to - from);
}

/* Gives back the pages on which all objects are free. */
static void purge_span(lm_central *c, const lm_span *span) {
  lm_assert(!c->regions->how.backing && !c->regions->how.registered);
  const lm_state_cell *states = atomic_load_explicit(&span->side, memory_order_relaxed);
  uintptr_t start = atomic_load_explicit(&span->start, memory_order_relaxed);
  size_t size = lm_class_size(c->class_), run = 0;
  uint32_t count = lm_central_span_count(c->class_);
  for (size_t i = 0; i <= count; i++) {
    if (i < count && lm_state_is_free(state_at(states, i))) {
      run++;
      continue;
    }
    if (run) purge_range(start + (i - run) * size, start + i * size);
    run = 0;
  }
}

/* Gives back pages of a few spans, because others wait for the lock. True: there are more. */
static bool purge_some(lm_central *c) {
  lm_lock_take(&c->lock);
  for (int i = 0; c->partial && i < PURGE_AT_ONCE; i++) {
    uint32_t slot = c->partial;
    unlink_span(&c->partial, slot);
    link_span(&c->purged, slot);
    set_span_note(lm_map_span(slot), NOTE_PURGED);
    purge_span(c, lm_map_span(slot));
  }
  bool more = c->partial != 0;
  lm_lock_drop(&c->lock);
  return more;
}

/* ---- The whole list ----------------------------------------------------------------------- */

void lm_central_trim(lm_central *c) {
  lm_lock_take(&c->lock);
  release_current_locked(c);
  end_depot_locked(c);
  lm_lock_drop(&c->lock);
  while (retire_some(c)) continue;
  while (can_purge(c) && purge_some(c)) continue;
}

static bool has_empty_current(const lm_central *c) {
  for (int i = 0; i < LM_CENTRAL_CURRENT; i++)
    if (c->current[i] && free_of(lm_map_span(c->current[i])) == lm_central_span_count(c->class_))
      return true;
  return false;
}

bool lm_central_decay(lm_central *c) {
  lm_lock_take(&c->lock);
  bool has_some = c->depot || c->empties || c->partial || has_empty_current(c);
  bool fed = atomic_exchange_explicit(&c->fed, false, memory_order_relaxed);
  bool later = c->pulled || fed;
  c->pulled = false;
  lm_lock_drop(&c->lock);
  if (has_some && !later) lm_central_trim(c);
  return has_some && later;
}

bool lm_central_drain(lm_central *c) {
  lm_lock_take(&c->lock);
  release_current_locked(c);
  end_depot_locked(c);
  while (c->empty) retire_locked(c, c->empty);
  bool done = c->spans == 0;
  lm_lock_drop(&c->lock);
  return done;
}

/* Tells whether the object is in a span of the list, which may be detached. */
static bool is_in(const lm_central *c, const lm_map_object *place) {
  return !place->large && place->strategy == c->strategy && place->size == lm_class_size(c->class_);
}

bool lm_central_show_states(lm_central *c, uint32_t slot, lm_central_look_fn *look, void *ctx) {
  lm_span_info view;
  uint32_t version;
  lm_lock_take(&c->lock);
  const lm_span *span = lm_map_span(slot);
  bool is_its = lm_map_read(span, &view, &version) && view.strategy == c->strategy &&
                view.start == (uintptr_t)lm_map_address(slot) &&
                view.size == lm_class_size(c->class_) && !lm_map_is_large(view.key);
  if (is_its) look(ctx, view.side, lm_central_span_count(c->class_));
  lm_lock_drop(&c->lock);
  return is_its;
}

/* BUSY keeps the object from being freed while its token changes. Release pairs with the acquire of
 * whoever reads the state: the new token is seen with it. */
bool lm_central_retoken(lm_central *c, const void *p, lm_token old, lm_token new_token) {
  lm_map_object place;
  lm_lock_take(&c->lock);
  bool done = lm_map_find(p, &place) && is_in(c, &place) && place.base == (uintptr_t)p &&
              place.token == old && lm_state_is_live(place.mark) &&
              atomic_compare_exchange_strong_explicit(place.side, &place.mark, LM_STATE_BUSY,
                                                      memory_order_acq_rel, memory_order_relaxed);
  if (done) {
    uint8_t hint = lm_state_hint(new_token);
    lm_state state = lm_states_assign_at(p, place.side, new_token, &hint);
    done = state != 0;
    atomic_store_explicit(place.side, done ? state : place.mark, memory_order_release);
  }
  lm_lock_drop(&c->lock);
  return done;
}

/* ---- Detached spans ----------------------------------------------------------------------- */

/* Changes the strategy and the bin that the entries of a span name. */
static void describe_span(uint32_t slot, uint32_t strategy, uint32_t bin) {
  lm_span_info view;
  uint32_t version;
  const lm_span *span = lm_map_span(slot);
  lm_require(lm_map_read(span, &view, &version));
  view.strategy = strategy;
  view.bin = bin;
  view.key = lm_map_key(view.size, bin);
  lm_map_describe_small(slot, atomic_load_explicit(&span->slots, memory_order_relaxed), &view);
}

/* Puts a span that is not detached any more into a list, unless it is full. */
static void list_again_locked(lm_central *c, uint32_t slot) {
  uint32_t free = free_of(lm_map_span(slot));
  set_span_note(lm_map_span(slot), NOTE_NONE);
  if (free) list_locked(c, slot, free == lm_central_span_count(c->class_));
}

/* Takes a span out of `current` or its list. */
static void take_off_list_locked(lm_central *c, uint32_t slot) {
  for (int i = 0; i < LM_CENTRAL_CURRENT; i++)
    if (c->current[i] == slot) {
      c->current[i] = 0;
      return;
    }
  if (free_of(lm_map_span(slot))) unlink_used(c, slot);
}

/* Tells whether a span of this list begins at `slot`, is not detached, and has an object that is
 * not free. */
static bool is_ours_locked(const lm_central *c, uint32_t slot) {
  lm_span_info view;
  uint32_t version;
  const lm_span *span = lm_map_span(slot);
  return atomic_load_explicit(&span->use, memory_order_relaxed) == LM_USE_SMALL &&
         lm_map_read(span, &view, &version) && view.start == (uintptr_t)lm_map_address(slot) &&
         view.strategy == c->strategy && view.bin == c->bin &&
         free_of(span) < lm_central_span_count(c->class_);
}

bool lm_central_detach(lm_central *c, uint32_t slot, uint32_t bin) {
  lm_assert(slot && bin != c->bin);
  lm_lock_take(&c->lock);
  empty_depot_locked(c);
  bool done = is_ours_locked(c, slot);
  if (done) {
    take_off_list_locked(c, slot);
    describe_span(slot, c->strategy, bin);
    atomic_fetch_add_explicit(&c->detached, 1, memory_order_relaxed);
  }
  lm_lock_drop(&c->lock);
  return done;
}

/* Ends an abandoned span whose objects are all free. The caller gives its slots up. */
static void end_abandoned_locked(lm_central *c, uint32_t slot, uint32_t slots) {
  lm_assert(is_locked(c) && c->spans > 0);
  lm_state_cell *states = atomic_load_explicit(&lm_map_span(slot)->side, memory_order_relaxed);
  lm_map_forget_small(slot, slots);
  lm_map_extent(slot, slots, LM_USE_NONE);
  lm_states_free(states);
  c->spans--;
}

/* Tells whether a span was abandoned and its objects are all free. */
static bool is_over_locked(const lm_central *c, uint32_t slot) {
  const lm_span *span = lm_map_span(slot);
  return span_note(span) == NOTE_ABANDONED && is_detached(c, span) &&
         free_of(span) == lm_central_span_count(c->class_);
}

bool lm_central_free_detached(lm_central *c, lm_cached_object item) {
  uint32_t slots = lm_central_span_slots(c->class_), over = 0;
  lm_lock_take(&c->lock);
  const lm_span *span = lm_map_span(lm_map_slot(item.p));
  bool ours = atomic_load_explicit(&span->strategy, memory_order_relaxed) == c->strategy;
  if (ours) {
    uint32_t slot = lm_map_slot((void *)atomic_load_explicit(&span->start, memory_order_relaxed));
    put_all_back_locked(c, &item, 1);
    if (is_over_locked(c, slot)) end_abandoned_locked(c, over = slot, slots);
  }
  lm_lock_drop(&c->lock);
  if (over) lm_regions_give_up(c->regions, over, slots);
  return ours;
}

uint32_t lm_central_detached_count(lm_central *c, uint32_t slot) {
  lm_lock_take(&c->lock);
  uint32_t n = lm_central_span_count(c->class_) - free_of(lm_map_span(slot));
  lm_lock_drop(&c->lock);
  return n;
}

void lm_central_reattach(lm_central *c, uint32_t slot) {
  lm_lock_take(&c->lock);
  lm_assert(is_detached(c, lm_map_span(slot)) && lm_load(uint32_t, &c->detached));
  describe_span(slot, c->strategy, c->bin);
  atomic_fetch_sub_explicit(&c->detached, 1, memory_order_relaxed);
  list_again_locked(c, slot);
  lm_lock_drop(&c->lock);
}

/* Gives the live objects of a span their new tokens. Without memory to note a new token, an object
 * keeps the old one. */
static void retoken_all_locked(uint32_t slot, unsigned class_, lm_retoken_fn *renew, void *ctx) {
  lm_state_cell *states = atomic_load_explicit(&lm_map_span(slot)->side, memory_order_relaxed);
  const char *start = lm_map_address(slot);
  size_t size = lm_class_size(class_);
  uint32_t count = lm_central_span_count(class_);
  for (uint32_t i = 0; i < count; i++) {
    lm_state state = lm_map_object_state(&states[i]);
    lm_token old = lm_state_is_live(state) ? lm_state_token(states, i, state) : LM_TOKEN_NONE;
    lm_token now = old == LM_TOKEN_NONE ? old : renew(ctx, old);
    uint8_t hint = lm_state_hint(now);
    if (now == old ||
        !atomic_compare_exchange_strong_explicit(&states[i], &state, LM_STATE_BUSY,
                                                 memory_order_acq_rel, memory_order_relaxed))
      continue;
    lm_state next = lm_states_assign_at(start + i * size, &states[i], now, &hint);
    atomic_store_explicit(&states[i], next ? next : state, memory_order_release);
  }
}

uint32_t lm_central_adopt(lm_central *to, lm_central *from, uint32_t slot, lm_retoken_fn *renew,
                          void *ctx) {
  lm_central *first = from->strategy < to->strategy ? from : to,
             *second = first == from ? to : from;
  lm_assert(from != to && from->class_ == to->class_);
  lm_lock_take(&first->lock); /* in the order in which fork takes them */
  lm_lock_take(&second->lock);
  lm_assert(is_detached(from, lm_map_span(slot)) && lm_load(uint32_t, &from->detached));
  uint32_t held = lm_central_span_count(from->class_) - free_of(lm_map_span(slot));
  retoken_all_locked(slot, from->class_, renew, ctx);
  describe_span(slot, to->strategy, to->bin);
  atomic_fetch_sub_explicit(&from->detached, 1, memory_order_relaxed);
  from->spans--;
  to->spans++;
  list_again_locked(to, slot);
  lm_lock_drop(&second->lock);
  lm_lock_drop(&first->lock);
  return held;
}

bool lm_central_has_abandoned(uint32_t slot) {
  return span_note(lm_map_span(slot)) == NOTE_ABANDONED;
}

void lm_central_abandon(lm_central *c, uint32_t slot) {
  uint32_t slots = lm_central_span_slots(c->class_);
  lm_lock_take(&c->lock);
  lm_assert(is_detached(c, lm_map_span(slot)) && lm_load(uint32_t, &c->detached));
  atomic_fetch_sub_explicit(&c->detached, 1, memory_order_relaxed);
  set_span_note(lm_map_span(slot), NOTE_ABANDONED);
  bool over = is_over_locked(c, slot);
  if (over) end_abandoned_locked(c, slot, slots);
  lm_lock_drop(&c->lock);
  if (over) lm_regions_give_up(c->regions, slot, slots);
}

/* ---- Laws --------------------------------------------------------------------------------- */

/* The law of `token` in the entries of a span (map.h): each is LM_TOKEN_NONE or the counted token
 * of the span, and the latter in a slot where an object with that token begins. */
static bool are_counted_tokens_valid(const lm_central *c, uint32_t slot, lm_state_cell *states) {
  bool fair = true;
  const char *start = lm_map_address(slot);
  for (uint32_t at = slot; at < lm_map_next(slot); at++) {
    lm_token token = atomic_load(&lm_map_span(at)->token);
    fair = fair && (token == LM_TOKEN_NONE || token == lm_state_token(states, 0, LM_STATE_COUNTED));
  }
  for (uint32_t i = 0; i < lm_central_span_count(c->class_); i++) {
    const lm_span *span = lm_map_span_of(start + i * lm_class_size(c->class_));
    fair = fair && (state_at(states, i) != LM_STATE_COUNTED ||
                    atomic_load(&span->token) & LM_TOKEN_COUNTED);
  }
  return fair;
}

/* The law of vacant ids (state.h): no state has one. */
static bool has_no_vacant_id(const lm_state_cell *states, uint32_t count) {
  uint64_t ids = 0;
  for (uint32_t i = 0; i < count; i++) ids |= (uint64_t)1 << state_at(states, i) % LM_STATE_IDS;
  return !(ids & lm_state_vacant_ids());
}

/* The number of spans in the list that begins at `slot`; UINT32_MAX: one of them breaks the law. */
static uint32_t check_list(const lm_central *c, uint32_t slot, bool empty, uint32_t note) {
  uint32_t n = 0, count = lm_central_span_count(c->class_);
  for (uint32_t prev = 0; slot; prev = slot, slot = lm_map_span(slot)->next, n++) {
    const lm_span *span = lm_map_span(slot);
    lm_state_cell *states = atomic_load(&span->side);
    uint32_t free = free_of(span);
    bool fair = atomic_load(&span->use) == LM_USE_SMALL && atomic_load(&span->bin) == c->bin &&
                span->prev == prev && free > 0 && (free == count) == empty &&
                lm_state_is_free(state_at(states, count)) && count_free(states, count) == free &&
                span_note(span) == note && are_counted_tokens_valid(c, slot, states) &&
                has_no_vacant_id(states, count);
    if (!fair) return UINT32_MAX;
  }
  return n;
}

static bool is_depot_valid(const lm_central *c) {
  for (unsigned i = 0; i < c->stocked; i++) {
    lm_map_object place;
    const lm_cached_object *item = &c->depot[i];
    if (!lm_map_find(item->p, &place) || place.bin != c->bin) return false;
    if (place.base != (uintptr_t)item->p || place.side != item->mark) return false;
    if (!lm_state_is_cached(place.mark)) return false;
  }
  return true;
}

bool lm_central_is_valid(const lm_central *c) {
  uint32_t partial = check_list(c, c->partial, false, NOTE_NONE);
  uint32_t purged = check_list(c, c->purged, false, NOTE_PURGED);
  uint32_t empties = check_list(c, c->empty, true, NOTE_NONE);
  bool fair = partial <= c->spans && purged <= c->spans && empties == c->empties;
  return fair && partial + purged + empties <= c->spans && is_depot_valid(c);
}
