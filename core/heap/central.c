/* central.c - the central store of small objects of one (pool, class). */
#include "heap/central.h"

#include <string.h>

#include "os/decay.h"
#include "pages/metadata.h"
#include "pages/states.h"

enum { OBJECTS_LEAST = 16 };
/* A depot holds at most this many objects and about this many bytes. */
enum { DEPOT_MOST = 1024 };
#define DEPOT_BYTES ((size_t)16 << 20)
/* After this many frees without an allocation there is no depot. */
enum { SURPLUS_MOST = 8 * DEPOT_MOST };
/* Bytes drawn from spans at once, at most, but for the first eight objects: what a thread drew and
 * does not use, no other can. */
#define DRAWN_AT_ONCE ((size_t)64 << 10)
/* Empty spans a store keeps: an eighth of all, or two, or a MiB. */
enum { EMPTIES_KEPT = 2, EMPTY_SLOTS_KEPT = 16 };
enum { RETIRED_AT_ONCE = 32, PURGED_AT_ONCE = 8 };

uint32_t lm_central_span_slots(unsigned class_) {
  return lm_map_slots(lm_class_size(class_) * OBJECTS_LEAST);
}

uint32_t lm_central_span_count(unsigned class_) {
  return (uint32_t)(((size_t)lm_central_span_slots(class_) << LM_SLOT_SHIFT) /
                    lm_class_size(class_));
}

void lm_central_init(lm_central *s, lm_regions *regions, uint32_t strategy, uint32_t bin,
                     unsigned class_) {
  s->regions = regions;
  s->strategy = strategy;
  s->bin = bin;
  s->class_ = class_;
}

/* Of a span of the store, whose lock is held. */
static lm_palette *palette_of(const lm_span *span) {
  return lm_state_palette(atomic_load_explicit(&span->side, memory_order_relaxed));
}

static uint32_t free_of(const lm_span *span) { return palette_of(span)->free; }

static void set_free(lm_span *span, uint32_t n) { palette_of(span)->free = n; }

static lm_state mark_at(const lm_state_cell *side, size_t i) {
  return atomic_load_explicit(&side[i], memory_order_relaxed);
}

/* Relaxed: nobody else changes a mark that is not live but under this lock. */
static void set_mark(lm_state_cell *side, size_t i, int mark) {
  atomic_store_explicit(&side[i], (lm_state)mark, memory_order_relaxed);
}

static uint32_t count_free(const lm_state_cell *side, uint32_t count) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < count; i++) n += lm_state_is_free(mark_at(side, i));
  return n;
}

/* Marks, eight at a time, and what is the same for each of them. */
enum { EIGHT = 8 };
typedef uint64_t __attribute__((may_alias)) eight;
#define EACH(byte) (UINT64_MAX / 255 * (byte))
_Static_assert(LM_STATE_LIVE == 0x40 && LM_STATE_CACHED == 0x80,
               "a mark's state is its upper bits");

/* What a span's own mark says: the list it is in, or that it stays apart for good. */
enum { UNNOTED, PURGED, ABANDONED };

static uint32_t note_of(const lm_span *span) {
  return atomic_load_explicit(&span->mark, memory_order_relaxed);
}

static void set_note(lm_span *span, uint32_t note) {
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

/* So many empty spans more, or less. Relaxed: others ask only whether it is worth a look. */
static void count_empty(lm_central *s, int more) {
  s->empties += (uint32_t)more;
  atomic_fetch_add_explicit(&s->regions->spare, (uint32_t)more * lm_central_span_slots(s->class_),
                            memory_order_relaxed);
}

/* Gives a span of the empty list back to its region. */
static void retire_locked(lm_central *s, uint32_t slot) {
  lm_state_cell *side = atomic_load_explicit(&lm_map_span(slot)->side, memory_order_relaxed);
  uint32_t slots = lm_central_span_slots(s->class_);
  lm_assert(free_of(lm_map_span(slot)) == lm_central_span_count(s->class_));
  lm_verify(count_free(side, lm_central_span_count(s->class_)) == lm_central_span_count(s->class_));
  unlink_span(&s->empty, slot);
  s->spans--;
  count_empty(s, -1);
  lm_map_forget_small(slot, slots);
  lm_map_extent(slot, slots, LM_USE_NONE);
  lm_states_free(side);
  lm_regions_put(s->regions, slot, slots);
}

/* Whether memory would be taken that nobody touched, while other classes keep empty spans. */
static bool needs_spare(const lm_central *s, uint32_t slots) {
  return atomic_load_explicit(&s->regions->spare, memory_order_relaxed) >= slots &&
         !lm_regions_has_dirty(s->regions, slots);
}

/* Has the pool's other stores give up empty spans until there is a run of `slots`. Those whose lock
 * is held are passed over: who holds it may be doing the same. */
static void retire_spare_locked(lm_central *s, uint32_t slots) {
  lm_central *first = s - s->class_;
  for (lm_central *other = first; other < first + LM_CLASSES; other++) {
    if (other == s || !lm_lock_try(&other->lock)) continue;
    bool had = other->empty;
    while (other->empty) retire_locked(other, other->empty);
    lm_lock_drop(&other->lock);
    if (had && lm_regions_has_dirty(s->regions, slots)) return;
  }
}

/* Of a class that has grown, the pages of a new span are had in one call, where each will be
 * touched. That takes less than a fault each; and pages that lie together in memory share an entry
 * of the TLB, with processors that look (Zen: 4 pages of 4 KiB). A kernel before 5.14 refuses, and
 * has each fault. */
static void fault_ahead(const lm_central *s, uint32_t slot, uint32_t slots) {
  enum { SPANS = 32 };
  const lm_preparation *how = &s->regions->how;
  bool is_dense = s->spans >= SPANS && lm_class_size(s->class_) <= LM_PAGE;
  if (!is_dense || how->backing || how->registered || lm_region_is_eager(how)) return;
  (void)lm_sys_prefault(lm_map_address(slot), (size_t)slots << LM_SLOT_SHIFT);
}

/* A new span, in the list of empty ones; false when there is no memory. */
static bool grow_locked(lm_central *s) {
  uint32_t slots = lm_central_span_slots(s->class_), count = lm_central_span_count(s->class_);
  size_t size = lm_class_size(s->class_);
  lm_state_cell *side = lm_states_alloc(s->class_, count);
  if (!side) return false;
  lm_verify(count_free(side, count + 1) == count + 1);
  if (needs_spare(s, slots)) retire_spare_locked(s, slots);
  bool clean;
  uint32_t slot = lm_regions_take(s->regions, slots, LM_SLOT, &clean);
  if (!slot) {
    lm_states_free(side);
    return false;
  }
  if (clean) fault_ahead(s, slot, slots);
  lm_span *span = lm_map_span(slot);
  lm_state_palette(side)->free = count;
  set_note(span, UNNOTED);
  lm_span_info view = {
    (uintptr_t)lm_map_address(slot), lm_map_key(size, s->bin), side, s->bin, s->strategy, size
  };
  lm_map_describe_small(slot, slots, &view);
  lm_map_extent(slot, slots, LM_USE_SMALL);
  link_span(&s->empty, slot);
  s->spans++;
  count_empty(s, 1);
  return true;
}

/* Takes a span with both live and free objects off its list. */
static void unlink_used(lm_central *s, uint32_t slot) {
  lm_span *span = lm_map_span(slot);
  unlink_span(note_of(span) == PURGED ? &s->purged : &s->partial, slot);
  set_note(span, UNNOTED);
}

/* Takes a span with a free object off its list; 0: there is none. */
static uint32_t unlisted_locked(lm_central *s) {
  uint32_t slot = s->partial ? s->partial : s->purged;
  if (slot) {
    unlink_used(s, slot);
    return slot;
  }
  if (!s->empty && !grow_locked(s)) return 0;
  slot = s->empty;
  unlink_span(&s->empty, slot);
  count_empty(s, -1);
  return slot;
}

/* Sees to it that a thread has a span to draw from; false: no memory. */
static bool usable_locked(lm_central *s, uint32_t *drawing) {
  if (!*drawing) *drawing = unlisted_locked(s);
  return *drawing;
}

static bool is_drawing(const lm_central *s, uint32_t slot) {
  for (int i = 0; i < LM_CENTRAL_CURRENT; i++)
    if (s->drawing[i] == slot) return true;
  return false;
}

static void list_locked(lm_central *s, uint32_t slot, bool empty) {
  link_span(empty ? &s->empty : &s->partial, slot);
  if (empty) count_empty(s, 1);
}

/* Nobody draws from a span of his own any more. */
static void undraw_locked(lm_central *s) {
  for (int i = 0; i < LM_CENTRAL_CURRENT; i++) {
    uint32_t slot = s->drawing[i];
    s->drawing[i] = 0;
    if (slot) list_locked(s, slot, free_of(lm_map_span(slot)) == lm_central_span_count(s->class_));
  }
}

/* Of eight marks, from one at a multiple of eight on: 0x80 for each that is not FREE. Those may be
 * changed meanwhile, but to nothing that is. */
static uint64_t used_of_eight(const lm_state_cell *side) {
  uint64_t marks = __atomic_load_n((const eight *)side, __ATOMIC_RELAXED);
  return (marks | marks << 1) & EACH(0x80);
}

/* All eight are FREE. They come to stand before `end`; how many. */
static unsigned draw_eight(lm_state_cell *side, char *p, size_t size, lm_cached_object *end) {
  eight *marks = (eight *)side;
  __atomic_store_n(marks, *marks + EACH(LM_STATE_CACHED), __ATOMIC_RELAXED);
#pragma GCC unroll 8
  for (unsigned i = 0; i < EIGHT; i++) *--end = (lm_cached_object){ p + i * size, side + i };
  return EIGHT;
}

static unsigned draw_one(lm_state_cell *side, char *p, lm_cached_object *end) {
  lm_state mark = mark_at(side, 0);
  if (!lm_state_is_free(mark)) return 0;
  set_mark(side, 0, mark + LM_STATE_CACHED);
  end[-1] = (lm_cached_object){ p, side };
  return 1;
}

/* Of a page that is read first the system shows one of zeros, and makes its own at the first write:
 * two faults. So what is about to be read and written is written, as it is. */
static void touch(lm_state_cell *at) {
  lm_state same = LM_STATE_FREE;
  (void)atomic_compare_exchange_strong_explicit(at, &same, LM_STATE_FREE, memory_order_relaxed,
                                                memory_order_relaxed);
}

/* Draws objects from a span in `drawing`, and takes it out when it has no more. They come to stand
 * before `end`, the first of them last: so that a bin, which is emptied from its end, gives rising
 * addresses. */
static unsigned draw_locked(lm_central *s, uint32_t *drawing, lm_cached_object *end,
                            unsigned want) {
  uint32_t slot = *drawing;
  lm_span *span = lm_map_span(slot);
  lm_state_cell *side = atomic_load_explicit(&span->side, memory_order_relaxed);
  char *start = lm_map_address(slot);
  size_t size = lm_class_size(s->class_);
  uint32_t count = lm_central_span_count(s->class_), free = free_of(span);
  uint32_t at = palette_of(span)->hint;
  unsigned most = want < free ? want : free;
  if (at == count) at = 0;
  touch(&side[at]);
  touch(&side[at + most < count ? at + most : count - 1]);
  for (unsigned left = most; left > 0;) {
    if (at == count) at = 0;
    bool whole = at % EIGHT == 0 && count - at >= EIGHT;
    uint64_t used = whole ? used_of_eight(&side[at]) : 1;
    if (used == EACH(0x80)) {
      at += EIGHT;
      continue;
    }
    unsigned n = !used && left >= EIGHT ? draw_eight(&side[at], start + at * size, size, end)
                                        : draw_one(&side[at], start + at * size, end);
    at += n > 1 ? n : 1;
    end -= n;
    left -= n;
  }
  palette_of(span)->hint = at;
  set_free(span, free - most);
  if (free == most) *drawing = 0;
  return most;
}

/* As many of `want` as there is memory for. */
static unsigned draw_all_locked(lm_central *s, uint32_t *drawing, lm_cached_object *items,
                                unsigned want) {
  unsigned left = want;
  while (left > 0 && usable_locked(s, drawing)) left -= draw_locked(s, drawing, items + left, left);
  if (lm_unlikely(left > 0)) memmove(items, items + left, (want - left) * sizeof *items);
  return want - left;
}

/* Relaxed: a hint for whose bins run over. */
static void set_sheds(lm_central *s, bool sheds) {
  atomic_store_explicit(&s->sheds, sheds, memory_order_relaxed);
}

static unsigned draw_most(unsigned class_) {
  size_t n = DRAWN_AT_ONCE / lm_class_size(class_);
  return n > EIGHT ? (unsigned)n : EIGHT;
}

unsigned lm_central_pull(lm_central *s, unsigned who, lm_cached_object *items, unsigned want) {
  lm_lock_take(&s->lock);
  s->surplus = 0;
  s->drawn = true;
  set_sheds(s, false);
  unsigned most = s->stocked ? s->stocked : draw_most(s->class_), got = want < most ? want : most;
  if (s->stocked) memcpy(items, s->depot + (s->stocked -= got), got * sizeof *items);
  else got = draw_all_locked(s, &s->drawing[who % LM_CENTRAL_CURRENT], items, got);
  lm_lock_drop(&s->lock);
  return got;
}

static unsigned depot_room(unsigned class_) {
  size_t n = DEPOT_BYTES / lm_class_size(class_);
  return n < DEPOT_MOST ? (unsigned)n : DEPOT_MOST;
}

/* Stocks what there is room for; the number of objects taken. */
static unsigned stock_locked(lm_central *s, const lm_cached_object *items, unsigned n) {
  unsigned room = depot_room(s->class_);
  if (!s->depot && !(s->depot = lm_metadata_take(room * sizeof *s->depot))) return 0;
  if (n > room - s->stocked) n = room - s->stocked;
  if (n) memcpy(s->depot + s->stocked, items, n * sizeof *items);
  s->stocked += n;
  return n;
}

static bool has_too_many_empties(const lm_central *s) {
  return s->empties > EMPTIES_KEPT && s->empties > s->spans / 8 &&
         s->empties * lm_central_span_slots(s->class_) > EMPTY_SLOTS_KEPT;
}

static bool is_apart(const lm_central *s, const lm_span *span) {
  return atomic_load_explicit(&span->bin, memory_order_relaxed) != s->bin;
}

/* Of a span, so many objects are FREE now, and were before: moves it between the lists. */
static LM_NOINLINE void relist_locked(lm_central *s, uint32_t slot, uint32_t was, uint32_t free) {
  const lm_span *span = lm_map_span(slot);
  bool empty = free == lm_central_span_count(s->class_);
  if (is_apart(s, span) || is_drawing(s, slot)) return;
  if (was > 0) unlink_used(s, slot);
  list_locked(s, slot, empty);
  while (has_too_many_empties(s)) retire_locked(s, s->empty);
}

/* Puts back those at the front that are of one span, as neighbours often are; the one after. */
static const lm_cached_object *put_some_back_locked(lm_central *s, const lm_cached_object *item,
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
  bool listed = was > 0 && free < count && note_of(lm_map_span_of((void *)start)) != PURGED;
  if (lm_unlikely(!listed) && free > was) relist_locked(s, lm_map_slot((void *)start), was, free);
  return item;
}

static void put_all_back_locked(lm_central *s, const lm_cached_object *items, unsigned n) {
  uint32_t count = lm_central_span_count(s->class_);
  size_t whole = (size_t)lm_central_span_slots(s->class_) << LM_SLOT_SHIFT;
  for (const lm_cached_object *item = items, *end = items + n; item < end;)
    item = put_some_back_locked(s, item, end, count, whole);
}

static void empty_depot_locked(lm_central *s) {
  put_all_back_locked(s, s->depot, s->stocked);
  s->stocked = 0;
}

static void end_depot_locked(lm_central *s) {
  empty_depot_locked(s);
  lm_metadata_free(s->depot);
  s->depot = NULL;
}

/* The number of objects that the depot took: all, some or none. */
static unsigned absorb_locked(lm_central *s, const lm_cached_object *items, unsigned n) {
  if (atomic_load_explicit(&s->apart, memory_order_relaxed)) return 0;
  if (s->surplus <= SURPLUS_MOST) {
    s->surplus += n;
    return stock_locked(s, items, n);
  }
  set_sheds(s, true);
  empty_depot_locked(s);
  return 0;
}

static void put_back(lm_central *s, const lm_cached_object *items, unsigned n, bool wanted) {
  lm_lock_take(&s->lock);
  unsigned done = wanted ? absorb_locked(s, items, n) : 0;
  put_all_back_locked(s, items + done, n - done);
  bool much = s->empties * lm_central_span_slots(s->class_) >= LM_DECAY_MIN_SLOTS;
  lm_lock_drop(&s->lock);
  if (much) lm_decay_stir();
}

void lm_central_push(lm_central *s, const lm_cached_object *items, unsigned n) {
  put_back(s, items, n, true);
}

void lm_central_return(lm_central *s, const lm_cached_object *items, unsigned n) {
  put_back(s, items, n, false);
}

/* A few, since others wait for the lock; whether there are more. */
static bool retire_some(lm_central *s) {
  lm_lock_take(&s->lock);
  for (int i = 0; s->empty && i < RETIRED_AT_ONCE; i++) retire_locked(s, s->empty);
  bool more = s->empty != 0;
  lm_lock_drop(&s->lock);
  return more;
}

/* ---- Pages of spans that live on */

static bool can_purge(const lm_central *s) { return !lm_region_is_eager(&s->regions->how); }

static void purge_range(uintptr_t from, uintptr_t to) {
  from = lm_align_up(from, LM_PAGE);
  to = lm_align_down(to, LM_PAGE);
  if (from < to) (void)lm_sys_purge((void *)from, to - from);
}

/* Gives back the pages that only free objects are on. */
static void purge_span(lm_central *s, const lm_span *span) {
  const lm_state_cell *side = atomic_load_explicit(&span->side, memory_order_relaxed);
  uintptr_t start = atomic_load_explicit(&span->start, memory_order_relaxed);
  size_t size = lm_class_size(s->class_), run = 0;
  uint32_t count = lm_central_span_count(s->class_);
  for (size_t i = 0; i <= count; i++) {
    if (i < count && lm_state_is_free(mark_at(side, i))) {
      run++;
      continue;
    }
    if (run) purge_range(start + (i - run) * size, start + i * size);
    run = 0;
  }
}

/* Of a few spans, since others wait for the lock; whether there are more. */
static bool purge_some(lm_central *s) {
  lm_lock_take(&s->lock);
  for (int i = 0; s->partial && i < PURGED_AT_ONCE; i++) {
    uint32_t slot = s->partial;
    unlink_span(&s->partial, slot);
    link_span(&s->purged, slot);
    set_note(lm_map_span(slot), PURGED);
    purge_span(s, lm_map_span(slot));
  }
  bool more = s->partial != 0;
  lm_lock_drop(&s->lock);
  return more;
}

void lm_central_trim(lm_central *s) {
  lm_lock_take(&s->lock);
  undraw_locked(s);
  end_depot_locked(s);
  lm_lock_drop(&s->lock);
  while (retire_some(s)) continue;
  while (can_purge(s) && purge_some(s)) continue;
}

static bool has_idle_drawing(const lm_central *s) {
  for (int i = 0; i < LM_CENTRAL_CURRENT; i++)
    if (s->drawing[i] && free_of(lm_map_span(s->drawing[i])) == lm_central_span_count(s->class_))
      return true;
  return false;
}

bool lm_central_decay(lm_central *s) {
  lm_lock_take(&s->lock);
  bool has_some = s->depot || s->empties || s->partial || has_idle_drawing(s);
  bool fed = atomic_exchange_explicit(&s->fed, false, memory_order_relaxed);
  bool later = s->drawn || fed;
  s->drawn = false;
  lm_lock_drop(&s->lock);
  if (has_some && !later) lm_central_trim(s);
  return has_some && later;
}

bool lm_central_drain(lm_central *s) {
  lm_lock_take(&s->lock);
  undraw_locked(s);
  end_depot_locked(s);
  while (s->empty) retire_locked(s, s->empty);
  bool done = s->spans == 0;
  lm_lock_drop(&s->lock);
  return done;
}

/* In a span of the store, which may be apart. */
static bool is_of(const lm_central *s, const lm_map_object *place) {
  return !place->large && place->strategy == s->strategy && place->size == lm_class_size(s->class_);
}

bool lm_central_show_states(lm_central *s, uint32_t slot, lm_central_look_fn *look, void *ctx) {
  lm_span_info view;
  uint32_t version;
  lm_lock_take(&s->lock);
  const lm_span *span = lm_map_span(slot);
  bool is_its = lm_map_read(span, &view, &version) && view.strategy == s->strategy &&
                view.start == (uintptr_t)lm_map_address(slot) &&
                view.size == lm_class_size(s->class_) && !lm_map_is_large(view.key);
  if (is_its) look(ctx, view.side, lm_central_span_count(s->class_));
  lm_lock_drop(&s->lock);
  return is_its;
}

bool lm_central_retoken(lm_central *s, const void *p, lm_token old, lm_token new_token) {
  lm_map_object place;
  lm_lock_take(&s->lock);
  bool done = lm_map_find(p, &place) && is_of(s, &place) && place.base == (uintptr_t)p &&
              place.token == old && lm_state_is_live(place.mark) &&
              atomic_compare_exchange_strong_explicit(place.side, &place.mark, LM_STATE_BUSY,
                                                      memory_order_acq_rel, memory_order_relaxed);
  if (done) {
    uint8_t hint = lm_state_hint(new_token);
    lm_state mark = lm_states_assign_at(p, place.side, new_token, &hint);
    done = mark != 0;
    atomic_store_explicit(place.side, done ? mark : place.mark, memory_order_release);
  }
  lm_lock_drop(&s->lock);
  return done;
}

/* ---- Spans that are apart */

static void describe(uint32_t slot, uint32_t strategy, uint32_t bin) {
  lm_span_info view;
  uint32_t version;
  const lm_span *span = lm_map_span(slot);
  lm_require(lm_map_read(span, &view, &version));
  view.strategy = strategy;
  view.bin = bin;
  view.key = lm_map_key(view.size, bin);
  lm_map_describe_small(slot, atomic_load_explicit(&span->slots, memory_order_relaxed), &view);
}

static void list_again_locked(lm_central *s, uint32_t slot) {
  uint32_t free = free_of(lm_map_span(slot));
  set_note(lm_map_span(slot), UNNOTED);
  if (free) list_locked(s, slot, free == lm_central_span_count(s->class_));
}

static void unlist_locked(lm_central *s, uint32_t slot) {
  for (int i = 0; i < LM_CENTRAL_CURRENT; i++)
    if (s->drawing[i] == slot) {
      s->drawing[i] = 0;
      return;
    }
  if (free_of(lm_map_span(slot))) unlink_used(s, slot);
}

/* A span at `slot`, listed or full, in which something lives or is cached. */
static bool is_ours_locked(const lm_central *s, uint32_t slot) {
  lm_span_info view;
  uint32_t version;
  const lm_span *span = lm_map_span(slot);
  return atomic_load_explicit(&span->use, memory_order_relaxed) == LM_USE_SMALL &&
         lm_map_read(span, &view, &version) && view.start == (uintptr_t)lm_map_address(slot) &&
         view.strategy == s->strategy && view.bin == s->bin &&
         free_of(span) < lm_central_span_count(s->class_);
}

bool lm_central_detach(lm_central *s, uint32_t slot, uint32_t bin) {
  lm_lock_take(&s->lock);
  empty_depot_locked(s);
  bool done = is_ours_locked(s, slot);
  if (done) {
    unlist_locked(s, slot);
    describe(slot, s->strategy, bin);
    atomic_fetch_add_explicit(&s->apart, 1, memory_order_relaxed);
  }
  lm_lock_drop(&s->lock);
  return done;
}

/* An abandoned span whose last object is home. */
static void end_locked(lm_central *s, uint32_t slot, uint32_t slots) {
  lm_state_cell *side = atomic_load_explicit(&lm_map_span(slot)->side, memory_order_relaxed);
  lm_map_forget_small(slot, slots);
  lm_map_extent(slot, slots, LM_USE_NONE);
  lm_states_free(side);
  s->spans--;
}

static bool is_over_locked(const lm_central *s, uint32_t slot) {
  const lm_span *span = lm_map_span(slot);
  return note_of(span) == ABANDONED && is_apart(s, span) &&
         free_of(span) == lm_central_span_count(s->class_);
}

bool lm_central_free_detached(lm_central *s, lm_cached_object item) {
  uint32_t slots = lm_central_span_slots(s->class_), over = 0;
  lm_lock_take(&s->lock);
  const lm_span *span = lm_map_span(lm_map_slot(item.p));
  bool ours = atomic_load_explicit(&span->strategy, memory_order_relaxed) == s->strategy;
  if (ours) {
    uint32_t slot = lm_map_slot((void *)atomic_load_explicit(&span->start, memory_order_relaxed));
    put_all_back_locked(s, &item, 1);
    if (is_over_locked(s, slot)) end_locked(s, over = slot, slots);
  }
  lm_lock_drop(&s->lock);
  if (over) lm_regions_give_up(s->regions, over, slots);
  return ours;
}

uint32_t lm_central_detached_count(lm_central *s, uint32_t slot) {
  lm_lock_take(&s->lock);
  uint32_t n = lm_central_span_count(s->class_) - free_of(lm_map_span(slot));
  lm_lock_drop(&s->lock);
  return n;
}

void lm_central_reattach(lm_central *s, uint32_t slot) {
  lm_lock_take(&s->lock);
  describe(slot, s->strategy, s->bin);
  atomic_fetch_sub_explicit(&s->apart, 1, memory_order_relaxed);
  list_again_locked(s, slot);
  lm_lock_drop(&s->lock);
}

/* Without memory for the new token an object keeps the old one. */
static void renew_locked(uint32_t slot, unsigned class_, lm_retoken_fn *renew, void *ctx) {
  lm_state_cell *side = atomic_load_explicit(&lm_map_span(slot)->side, memory_order_relaxed);
  const char *start = lm_map_address(slot);
  size_t size = lm_class_size(class_);
  uint32_t count = lm_central_span_count(class_);
  for (uint32_t i = 0; i < count; i++) {
    lm_state mark = lm_map_object_state(&side[i]);
    lm_token old = lm_state_is_live(mark) ? lm_state_token(side, i, mark) : LM_TOKEN_NONE;
    lm_token now = old == LM_TOKEN_NONE ? old : renew(ctx, old);
    uint8_t hint = lm_state_hint(now);
    if (now == old ||
        !atomic_compare_exchange_strong_explicit(&side[i], &mark, LM_STATE_BUSY,
                                                 memory_order_acq_rel, memory_order_relaxed))
      continue;
    lm_state next = lm_states_assign_at(start + i * size, &side[i], now, &hint);
    atomic_store_explicit(&side[i], next ? next : mark, memory_order_release);
  }
}

uint32_t lm_central_adopt(lm_central *to, lm_central *from, uint32_t slot, lm_retoken_fn *renew,
                          void *ctx) {
  lm_central *first = from->strategy < to->strategy ? from : to,
             *second = first == from ? to : from;
  lm_assert(from != to && from->class_ == to->class_);
  lm_lock_take(&first->lock); /* in the order of fork's */
  lm_lock_take(&second->lock);
  uint32_t held = lm_central_span_count(from->class_) - free_of(lm_map_span(slot));
  renew_locked(slot, from->class_, renew, ctx);
  describe(slot, to->strategy, to->bin);
  atomic_fetch_sub_explicit(&from->apart, 1, memory_order_relaxed);
  from->spans--;
  to->spans++;
  list_again_locked(to, slot);
  lm_lock_drop(&second->lock);
  lm_lock_drop(&first->lock);
  return held;
}

bool lm_central_has_abandoned(uint32_t slot) { return note_of(lm_map_span(slot)) == ABANDONED; }

void lm_central_abandon(lm_central *s, uint32_t slot) {
  uint32_t slots = lm_central_span_slots(s->class_);
  lm_lock_take(&s->lock);
  atomic_fetch_sub_explicit(&s->apart, 1, memory_order_relaxed);
  set_note(lm_map_span(slot), ABANDONED);
  bool over = is_over_locked(s, slot);
  if (over) end_locked(s, slot, slots);
  lm_lock_drop(&s->lock);
  if (over) lm_regions_give_up(s->regions, slot, slots);
}

/* Whether each slot says nothing of the span's counted token, or the truth; this where an object
 * has it. */
static bool is_counted_told(const lm_central *s, uint32_t slot, lm_state_cell *side) {
  bool fair = true;
  const char *start = lm_map_address(slot);
  for (uint32_t at = slot; at < lm_map_next(slot); at++) {
    lm_token told = atomic_load(&lm_map_span(at)->token);
    fair = fair && (told == LM_TOKEN_NONE || told == lm_state_token(side, 0, LM_STATE_COUNTED));
  }
  for (uint32_t i = 0; i < lm_central_span_count(s->class_); i++) {
    const lm_span *span = lm_map_span_of(start + i * lm_class_size(s->class_));
    fair = fair &&
           (mark_at(side, i) != LM_STATE_COUNTED || atomic_load(&span->token) & LM_TOKEN_COUNTED);
  }
  return fair;
}

static bool is_open(const lm_state_cell *side, uint32_t count) {
  uint64_t ids = 0;
  for (uint32_t i = 0; i < count; i++) ids |= (uint64_t)1 << mark_at(side, i) % LM_STATE_IDS;
  return !(ids & lm_state_vacant_ids());
}

/* Spans listed from `slot` on, or UINT32_MAX if one of them breaks the law. */
static uint32_t check_list(const lm_central *s, uint32_t slot, bool empty, uint32_t note) {
  uint32_t n = 0, count = lm_central_span_count(s->class_);
  for (uint32_t prev = 0; slot; prev = slot, slot = lm_map_span(slot)->next, n++) {
    const lm_span *span = lm_map_span(slot);
    lm_state_cell *side = atomic_load(&span->side);
    uint32_t free = free_of(span);
    bool fair = atomic_load(&span->use) == LM_USE_SMALL && atomic_load(&span->bin) == s->bin &&
                span->prev == prev && free > 0 && (free == count) == empty &&
                lm_state_is_free(mark_at(side, count)) && count_free(side, count) == free &&
                note_of(span) == note && is_counted_told(s, slot, side) && is_open(side, count);
    if (!fair) return UINT32_MAX;
  }
  return n;
}

static bool is_depot_valid(const lm_central *s) {
  for (unsigned i = 0; i < s->stocked; i++) {
    lm_map_object place;
    const lm_cached_object *item = &s->depot[i];
    if (!lm_map_find(item->p, &place) || place.bin != s->bin) return false;
    if (place.base != (uintptr_t)item->p || place.side != item->mark) return false;
    if (!lm_state_is_cached(place.mark)) return false;
  }
  return true;
}

bool lm_central_is_valid(const lm_central *s) {
  uint32_t partial = check_list(s, s->partial, false, UNNOTED);
  uint32_t purged = check_list(s, s->purged, false, PURGED);
  uint32_t empties = check_list(s, s->empty, true, UNNOTED);
  bool fair = partial <= s->spans && purged <= s->spans && empties == s->empties;
  return fair && partial + purged + empties <= s->spans && is_depot_valid(s);
}
