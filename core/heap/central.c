/* central.c - the central list of one size class in one pool: the spans that hold the class's
 * objects, and a depot of objects that threads gave back. central.h describes both, and
 * central_detach.c has the spans that are detached. */
#include "heap/central_parts.h"

#include <string.h>

#include "os/decay.h"
#include "pages/metadata.h"
#include "pages/states.h"

/* A span is made large enough for at least this many objects. */
enum { OBJECTS_MIN = 16 };
/* A depot holds at most this many objects, which together have at most DEPOT_BYTES bytes. */
enum { DEPOT_MAX = 1024 };
#define DEPOT_BYTES ((size_t)16 << 20)
/* When more objects than this have come back since a thread last took one, the depot is given up:
 * its objects go back to their spans. Then a bin should hold at most BIN_SHEDDING objects. In a
 * process that is not served (os/decay.h) it should hold at most BIN_SHEDDING_ALONE: each object
 * may keep a page, and a thread that sleeps after its last free keeps its bin. */
enum { SURPLUS_MAX = 8 * DEPOT_MAX, BIN_SHEDDING = 255, BIN_SHEDDING_ALONE = 63 };
/* A list that drains: see central.h. Objects of DRAIN_BYTES have come back, a bin holds at most one
 * in BIN_SHARE of the objects that are left, and pages go back when one page in PURGE_SHARE is
 * used. DRAINED_NS is the second of lm_central.drained. */
enum { BIN_SHARE = 16, PURGE_SHARE = 4 };
#define DRAIN_BYTES ((size_t)64 << 10)
#define DRAINED_NS 1000000000
/* The slots of empty spans (2 MiB) that a pool keeps in a process that is not served. */
enum { SPARE_ALONE = 32 };
/* One call of lm_central_pull takes objects of at most this many bytes from spans, but always may
 * take eight objects. What a thread takes and does not use is lost to other threads, because it
 * stays in the thread's bin. */
#define TAKE_BYTES ((size_t)64 << 10)
/* A list keeps empty spans for later use as long as one of these is true: they are at most two
 * spans, they are at most 16 slots (a MiB), or they are at most an eighth of the list's spans. */
enum { EMPTIES_KEPT = 2, EMPTY_SLOTS_KEPT = 16 };
/* lm_central_trim gives back so many empty spans, or the pages of so many other spans. Then it
 * drops the lock and takes it again, so that threads which wait for the lock can go on. */
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
  c->purge_from = UINT32_MAX;
}

/* ---- Spans and their states --------------------------------------------------------------- */

static void set_free(lm_span *span, uint32_t n) { lm_central_palette(span)->free = n; }

/* Returns the state of object `i` of a span. Relaxed: a state leaves FREE, or becomes FREE, only
 * under the lock of the span's list, and the caller holds this lock. */
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

/* An `eight` is a word with eight states. EACH(byte) is a word with this byte in all eight
 * places. */
enum { EIGHT = 8 };
typedef uint64_t __attribute__((may_alias)) eight;
#define EACH(byte) (UINT64_MAX / 255 * (byte))
_Static_assert(LM_STATE_LIVE == 0x40 && LM_STATE_CACHED == 0x80,
               "the two upper bits of a state byte say free, live or cached");

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

/* Adds `more`, which may be negative, to the number of empty spans, and their slots to the `spare`
 * of the pool's regions. Relaxed: the other lists of the pool read `spare` as a hint. */
static void add_empties(lm_central *c, int more) {
  c->empties += (uint32_t)more;
  lm_assert(c->empties <= c->spans);
  atomic_fetch_add_explicit(&c->regions->spare, (uint32_t)more * lm_central_span_slots(c->class_),
                            memory_order_relaxed);
}

/* ---- Making and ending spans -------------------------------------------------------------- */

/* Gives a span of the list `empty` back to the regions. The caller drops the lock, and then calls
 * lm_regions_shed unless it takes or drains slots right after. */
static void retire_locked(lm_central *c, uint32_t slot) {
  lm_state_cell *states = atomic_load_explicit(&lm_map_span(slot)->cells, memory_order_relaxed);
  uint32_t slots = lm_central_span_slots(c->class_);
  lm_assert(lm_lock_is_held(&c->lock) && c->spans > 0 && c->empties > 0);
  lm_assert(lm_central_free_of(lm_map_span(slot)) == lm_central_span_count(c->class_));
  lm_verify(count_free(states, lm_central_span_count(c->class_)) ==
            lm_central_span_count(c->class_));
  unlink_span(&c->empty, slot);
  add_empties(c, -1);
  c->spans--;
  lm_map_forget_small(slot, slots);
  lm_map_extent(slot, slots, LM_USE_NONE);
  lm_states_free(states);
  lm_regions_put_only(c->regions, slot, slots);
}

/* Tells whether it is better to take slots from the empty spans of other classes than to take new
 * ones: these classes keep at least `slots` slots, and the pool has no run of dirty slots that is
 * as long, so a new span would get memory that was never touched. */
static bool needs_spare(const lm_central *c, uint32_t slots) {
  return atomic_load_explicit(&c->regions->spare, memory_order_relaxed) >= slots &&
         !lm_regions_has_dirty(c->regions, slots);
}

/* Makes the other lists of the pool give up their empty spans, one list after the other, until the
 * pool has a run of `slots` dirty slots. Skips a list whose lock another thread holds: that thread
 * may also be in this function, and if each of the two waited for the lock of the other, neither
 * would go on. */
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

/* Asks the kernel for all pages of a new span in one call, if the class has many spans and its
 * objects are at most a page large, so each page will be touched. One call takes less time than a
 * page fault for each page. The kernel can then also choose pages that are neighbours in physical
 * memory, and some processors (Zen) keep 4 such pages of 4 KiB in one TLB entry. Before Linux 5.14
 * the kernel refuses the call; then each page faults when it is first touched. */
static void fault_ahead(const lm_central *c, uint32_t slot, uint32_t slots) {
  enum { SPANS = 32 };
  const lm_preparation *how = &c->regions->how;
  bool is_dense = c->spans >= SPANS && lm_class_size(c->class_) <= LM_PAGE;
  if (!is_dense || how->backing || how->registered || lm_region_is_eager(how)) return;
  (void)lm_sys_prefault(lm_map_address(slot), (size_t)slots << LM_SLOT_SHIFT);
}

/* Makes a span and puts it into the list `empty`. Returns false if there is no memory. */
static bool grow_locked(lm_central *c) {
  lm_assert(lm_lock_is_held(&c->lock) && !c->empty);
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
  lm_central_set_note(span, LM_CENTRAL_NOTE_NONE);
  lm_span_info view = {
    (uintptr_t)lm_map_address(slot), lm_map_key(size, c->bin), states, c->bin, c->strategy, size
  };
  lm_map_describe_small(slot, slots, &view);
  lm_map_extent(slot, slots, LM_USE_SMALL);
  link_span(&c->empty, slot);
  c->spans++;
  add_empties(c, 1);
  lm_assert(lm_central_free_of(span) == count);
  return true;
}

/* ---- Lists of spans ----------------------------------------------------------------------- */

void lm_central_unlink_locked(lm_central *c, uint32_t slot) {
  lm_span *span = lm_map_span(slot);
  lm_assert(lm_lock_is_held(&c->lock) && lm_central_note(span) != LM_CENTRAL_NOTE_ABANDONED);
  unlink_span(lm_central_note(span) == LM_CENTRAL_NOTE_PURGED ? &c->purged : &c->partial, slot);
  lm_central_set_note(span, LM_CENTRAL_NOTE_NONE);
}

/* Takes a span that has a free object out of its list, and returns its first slot. If all lists are
 * without a span, makes one. Returns 0 if there is no memory. */
static uint32_t take_listed_locked(lm_central *c) {
  uint32_t slot = c->partial ? c->partial : c->purged;
  if (slot) {
    lm_central_unlink_locked(c, slot);
    return slot;
  }
  if (!c->empty && !grow_locked(c)) return 0;
  slot = c->empty;
  unlink_span(&c->empty, slot);
  add_empties(c, -1);
  return slot;
}

/* Makes sure that *current is a span with a free object. Returns false if there is no memory. */
static bool find_current_locked(lm_central *c, uint32_t *current) {
  if (!*current) *current = take_listed_locked(c);
  return *current;
}

/* Tells whether threads take objects from the span at `slot` at present. */
static bool is_current(const lm_central *c, uint32_t slot) {
  for (int i = 0; i < LM_CENTRAL_CURRENT; i++)
    if (c->current[i] == slot) return true;
  return false;
}

void lm_central_list_locked(lm_central *c, uint32_t slot, bool empty) {
  lm_assert(lm_lock_is_held(&c->lock) && lm_central_free_of(lm_map_span(slot)) > 0);
  link_span(empty ? &c->empty : &c->partial, slot);
  if (empty) add_empties(c, 1);
}

/* Puts each span in `current` back into a list, so that threads take from no span at present. */
static void release_current_locked(lm_central *c) {
  for (int i = 0; i < LM_CENTRAL_CURRENT; i++) {
    uint32_t slot = c->current[i];
    c->current[i] = 0;
    if (slot)
      lm_central_list_locked(
          c, slot, lm_central_free_of(lm_map_span(slot)) == lm_central_span_count(c->class_));
  }
}

/* ---- Taking objects ----------------------------------------------------------------------- */

/* Reads the states of eight objects, whose numbers begin at a multiple of eight. In the result, the
 * byte of a FREE state is 0, and the byte of any other state is 0x80. Other threads may change
 * states that are not FREE during the call, but no state becomes FREE or leaves FREE, because the
 * caller holds the lock. */
static uint64_t used_of_eight(const lm_state_cell *states) {
  uint64_t word = __atomic_load_n((const eight *)states, __ATOMIC_RELAXED);
  return (word | word << 1) & EACH(0x80);
}

/* Takes eight FREE objects, which begin at p: their states become CACHED. Writes them to the eight
 * items before `end`, the object with the highest address first. Returns 8. */
static unsigned take_eight(lm_state_cell *states, char *p, size_t size, lm_cached_object *end) {
  eight *word = (eight *)states;
  lm_assert(!used_of_eight(states));
  __atomic_store_n(word, *word + EACH(LM_STATE_CACHED), __ATOMIC_RELAXED);
#pragma GCC unroll 8
  for (unsigned i = 0; i < EIGHT; i++) *--end = (lm_cached_object){ p + i * size, states + i };
  return EIGHT;
}

/* Takes the object at p if it is FREE: its state becomes CACHED, and it is written to the item
 * before `end`. Returns how many objects it took: 1 or 0. */
static unsigned take_one(lm_state_cell *states, char *p, lm_cached_object *end) {
  lm_state state = state_at(states, 0);
  if (!lm_state_is_free(state)) return 0;
  set_state(states, 0, state + LM_STATE_CACHED);
  end[-1] = (lm_cached_object){ p, states };
  return 1;
}

/* Writes to a state without changing it, because take_locked is about to read states and then write
 * them. If a page that was never touched is first read and then written, the process has two page
 * faults: at the read the kernel maps the shared page of zeros, and at the write a page of the
 * process's own. */
static void touch_states(lm_state_cell *at) {
  lm_state same = LM_STATE_FREE;
  (void)atomic_compare_exchange_strong_explicit(at, &same, LM_STATE_FREE, memory_order_relaxed,
                                                memory_order_relaxed);
}

/* Takes FREE objects of the span *current, at most `want` of them, and returns how many. If the
 * span has no FREE object left, *current becomes 0. The objects are written to the items before
 * `end`, and the last object taken is furthest from `end`. A bin takes from the end of its items,
 * so it gives out rising addresses. */
static unsigned take_locked(lm_central *c, uint32_t *current, lm_cached_object *end,
                            unsigned want) {
  uint32_t slot = *current;
  lm_span *span = lm_map_span(slot);
  lm_state_cell *states = atomic_load_explicit(&span->cells, memory_order_relaxed);
  char *start = lm_map_address(slot);
  size_t size = lm_class_size(c->class_);
  uint32_t count = lm_central_span_count(c->class_), free = lm_central_free_of(span);
  uint32_t at = lm_central_palette(span)->hint;
  unsigned most = want < free ? want : free;
  lm_assert(lm_lock_is_held(&c->lock) && free > 0 && free <= count && at <= count);
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
  lm_central_palette(span)->hint = at;
  set_free(span, free - most);
  if (free == most) *current = 0;
  return most;
}

/* Takes `want` objects from spans, or fewer if there is no memory for more, and returns how many.
 * They are in items[0] and the items after it. */
static unsigned take_all_locked(lm_central *c, uint32_t *current, lm_cached_object *items,
                                unsigned want) {
  unsigned left = want;
  while (left > 0 && find_current_locked(c, current))
    left -= take_locked(c, current, items + left, left);
  if (lm_unlikely(left > 0)) memmove(items, items + left, (want - left) * sizeof *items);
  c->out += want - left;
  return want - left;
}

/* Sets how many objects a bin should hold. Relaxed: a thread whose bin runs over reads it as a
 * hint. */
static void set_bin_most(lm_central *c, uint32_t most) {
  atomic_store_explicit(&c->bin_most, most, memory_order_relaxed);
}

/* A thread took objects from a list that has drained: see lm_central.drained. */
static void note_retaken_locked(lm_central *c, uint32_t n) {
  lm_assert(lm_lock_is_held(&c->lock));
  c->retaken += n;
  if (c->retaken < c->drained / 2) return;
  c->keeps = lm_sys_clock_ns() - c->drained_ns < DRAINED_NS;
  c->drained = c->retaken = 0;
  c->purge_from = UINT32_MAX;
}

/* Returns the most objects that one call of lm_central_pull takes from spans. */
static unsigned take_max(unsigned class_) {
  size_t n = TAKE_BYTES / lm_class_size(class_);
  return n > EIGHT ? (unsigned)n : EIGHT;
}

static unsigned pull_locked(lm_central *c, unsigned who, lm_cached_object *items, unsigned want) {
  lm_assert(lm_lock_is_held(&c->lock) && want > 0);
  c->surplus = 0;
  c->pulled = true;
  set_bin_most(c, 0);
  unsigned most = c->stocked ? c->stocked : take_max(c->class_), got = want < most ? want : most;
  if (c->stocked) lm_tcache_items_copy(items, c->depot + (c->stocked -= got), got);
  else got = take_all_locked(c, &c->current[who % LM_CENTRAL_CURRENT], items, got);
  if (c->drained) note_retaken_locked(c, got);
  return got;
}

unsigned lm_central_pull(lm_central *c, unsigned who, lm_cached_object *items, unsigned want) {
  lm_lock_take(&c->lock);
  unsigned got = pull_locked(c, who, items, want);
  lm_lock_drop(&c->lock);
  return got;
}

bool lm_central_pull_present(lm_central *c, unsigned who, lm_cached_object *item) {
  lm_lock_take(&c->lock);
  release_current_locked(c);
  bool is_there = c->stocked || c->partial || c->purged || c->empty;
  if (is_there) is_there = pull_locked(c, who, item, 1);
  lm_lock_drop(&c->lock);
  return is_there;
}

/* ---- Pages of spans that are not empty ---------------------------------------------------- */

/* Tells whether the list gives back single pages. It does not if the strategy gets memory before it
 * is touched, for example locked or prefaulted memory, memory that is registered with a driver, or
 * memory in a file on a disk: the pages would have to be prepared again. Nor does it if a touch of
 * new memory could end the process, because the memory must be on certain nodes. Shared memory,
 * which is in a file too, has no small objects (has_small in heap/pool.c). */
static bool can_purge(const lm_central *c) {
  const lm_preparation *how = &c->regions->how;
  return !lm_region_is_eager(how) && !lm_region_populates(how);
}

static void purge_range(uintptr_t from, uintptr_t to) {
  from = lm_align_up(from, LM_PAGE);
  to = lm_align_down(to, LM_PAGE);
  if (from < to) (void)lm_sys_purge((void *)from, to - from);
}

/* Gives back the pages of a span on which all objects are FREE. */
static void purge_span(lm_central *c, const lm_span *span) {
  lm_assert(!c->regions->how.backing && !c->regions->how.registered);
  const lm_state_cell *states = atomic_load_explicit(&span->cells, memory_order_relaxed);
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

/* Returns how many objects are live or in bins. */
static uint32_t count_left(const lm_central *c) { return c->out - c->stocked; }

/* Gives back pages of some spans in `partial` and moves these spans to `purged`: only PURGE_AT_ONCE
 * of them, because other threads may be waiting for the lock. Returns true if there are more. */
static bool purge_some(lm_central *c) {
  lm_lock_take(&c->lock);
  for (int i = 0; c->partial && i < PURGE_AT_ONCE; i++) {
    uint32_t slot = c->partial;
    unlink_span(&c->partial, slot);
    link_span(&c->purged, slot);
    lm_central_set_note(lm_map_span(slot), LM_CENTRAL_NOTE_PURGED);
    purge_span(c, lm_map_span(slot));
  }
  bool more = c->partial != 0;
  if (!more) c->most_left = count_left(c);
  lm_lock_drop(&c->lock);
  return more;
}

/* Returns about how many bytes the pages have that `n` objects of the class are on, if no two of
 * them share a page. */
static uint64_t page_bytes_of(const lm_central *c, uint32_t n) {
  return (uint64_t)n * (LM_PAGE + lm_class_size(c->class_));
}

/* Tells whether pages of spans are to be given back because the list drains: few objects are left,
 * and they use at most one in PURGE_SHARE of the pages of the spans. A round of purging then gives
 * back most of the pages. The next round follows when an eighth of those objects is left. */
static bool has_pages_to_purge_locked(lm_central *c) {
  uint32_t most = lm_central_bin_most(c), left = count_left(c);
  if (!most || c->keeps || !c->partial || !can_purge(c) || left > c->purge_from) return false;
  uint64_t slots = (uint64_t)(c->spans - c->empties) * lm_central_span_slots(c->class_);
  return page_bytes_of(c, left) * PURGE_SHARE <= slots << LM_SLOT_SHIFT && !lm_decay_is_served();
}

/* Tells whether empty spans, or the free pages of other spans, are worth a tick of the decay. Pages
 * are not if they went back already: so a MiB of objects has to be free that was not then. */
static bool has_much_to_give_locked(lm_central *c) {
  uint64_t slots = (uint64_t)c->spans * lm_central_span_slots(c->class_), left = count_left(c);
  uint64_t least = (uint64_t)LM_DECAY_MIN_SLOTS << LM_SLOT_SHIFT;
  if (left > c->most_left) c->most_left = (uint32_t)left;
  if (c->empties * lm_central_span_slots(c->class_) >= LM_DECAY_MIN_SLOTS) return true;
  if (!c->partial || !can_purge(c)) return false;
  if ((c->most_left - left) * lm_class_size(c->class_) < least) return false;
  return slots << LM_SLOT_SHIFT >= page_bytes_of(c, (uint32_t)left) + least;
}

/* Purges some spans of a list that drains: few, because the caller is a free, but one more for each
 * SPANS_SHARE spans, so that the last frees of a large set reach all of its spans. */
static void purge_while_draining(lm_central *c) {
  enum { CALLS = 4, SPANS_SHARE = 512 };
  bool more = true;
  lm_lock_take(&c->lock);
  uint32_t calls = CALLS + c->spans / SPANS_SHARE;
  lm_lock_drop(&c->lock);
  for (uint32_t i = 0; more && i < calls; i++) more = purge_some(c);
  lm_lock_take(&c->lock);
  if (!more && lm_central_bin_most(c)) c->purge_from = count_left(c) / 8 + 1;
  lm_lock_drop(&c->lock);
}

/* ---- Giving objects back ------------------------------------------------------------------ */

/* Returns the number of items in a depot. */
static unsigned depot_room(unsigned class_) {
  size_t n = DEPOT_BYTES / lm_class_size(class_);
  return n < DEPOT_MAX ? (unsigned)n : DEPOT_MAX;
}

/* Puts objects into the depot until it is full. Returns how many of the `n` items it took: none, if
 * there is no memory for a depot. */
static unsigned stock_locked(lm_central *c, const lm_cached_object *items, unsigned n) {
  unsigned room = depot_room(c->class_);
  if (!c->depot && !(c->depot = lm_metadata_take(room * sizeof *c->depot))) return 0;
  lm_assert(lm_lock_is_held(&c->lock) && c->stocked <= room);
  if (n > room - c->stocked) n = room - c->stocked;
  lm_tcache_items_copy(c->depot + c->stocked, items, n);
  c->stocked += n;
  return n;
}

/* Tells whether the list has more empty spans than it keeps: see EMPTIES_KEPT and SPARE_ALONE. */
static bool has_too_many_empties(const lm_central *c) {
  if (c->empties <= c->spans / 8) return false;
  if (c->empties > EMPTIES_KEPT && c->empties * lm_central_span_slots(c->class_) > EMPTY_SLOTS_KEPT)
    return true;
  return !c->keeps &&
         atomic_load_explicit(&c->regions->spare, memory_order_relaxed) > SPARE_ALONE &&
         !lm_decay_is_served();
}

/* Objects of a span became FREE: `was` of its objects were FREE before, and `free` are FREE now.
 * Moves the span to the list in which it belongs now, and gives back empty spans if there are too
 * many. A span that is detached or in `current` stays in no list. */
static LM_NOINLINE void move_between_lists_locked(lm_central *c, uint32_t slot, uint32_t was,
                                                  uint32_t free) {
  const lm_span *span = lm_map_span(slot);
  lm_assert(lm_lock_is_held(&c->lock) && free > was);
  bool empty = free == lm_central_span_count(c->class_);
  if (lm_central_is_detached(c, span) || is_current(c, slot)) return;
  if (was > 0) lm_central_unlink_locked(c, slot);
  lm_central_list_locked(c, slot, empty);
  while (has_too_many_empties(c)) retire_locked(c, c->empty);
}

/* Puts objects back into their span: `item` and all items after it that are in the same span. Items
 * that follow each other often are in one span, so the span is looked up once for all of them.
 * Skips items that are not CACHED (see lm_central_push). Returns the first item of another span, or
 * `end`. `count` is the number of objects in a span, and `whole` the number of bytes. */
static const lm_cached_object *put_back_locked(lm_central *c, const lm_cached_object *item,
                                               const lm_cached_object *end, uint32_t count,
                                               size_t whole) {
  const lm_span *span = lm_map_span_of(item->p);
  uintptr_t start = atomic_load_explicit(&span->start, memory_order_relaxed);
  const lm_cached_object *first = item;
  uint32_t passed = 0;
  do {
    if (lm_likely(lm_state_is_cached_at(item->cell))) lm_state_end_cached(item->cell);
    else passed++;
  } while (++item < end && (uintptr_t)item->p - start < whole);
  lm_palette *palette = lm_central_palette(span);
  uint32_t was = palette->free, free = was + (uint32_t)(item - first) - passed;
  lm_assert(free <= count && c->out >= free - was);
  palette->free = free;
  c->out -= free - was;
  bool listed = was > 0 && free < count &&
                lm_central_note(lm_map_span_of((void *)start)) != LM_CENTRAL_NOTE_PURGED;
  if (lm_unlikely(!listed) && free > was)
    move_between_lists_locked(c, lm_map_slot((void *)start), was, free);
  return item;
}

void lm_central_put_all_locked(lm_central *c, const lm_cached_object *items, unsigned n) {
  uint32_t count = lm_central_span_count(c->class_);
  size_t whole = (size_t)lm_central_span_slots(c->class_) << LM_SLOT_SHIFT;
  for (const lm_cached_object *item = items, *end = items + n; item < end;)
    item = put_back_locked(c, item, end, count, whole);
}

void lm_central_empty_depot_locked(lm_central *c) {
  if (c->stocked) lm_central_put_all_locked(c, c->depot, c->stocked); /* C has no sum NULL + 0 */
  c->stocked = 0;
}

static void end_depot_locked(lm_central *c) {
  lm_central_empty_depot_locked(c);
  lm_metadata_free(c->depot);
  c->depot = NULL;
}

/* Tells whether the list drains: see central.h. */
static bool is_draining_locked(const lm_central *c) {
  return !c->keeps && c->surplus >= count_left(c) &&
         c->surplus * lm_class_size(c->class_) >= DRAIN_BYTES && !lm_decay_is_served();
}

/* Sets how many objects a bin should hold while the list keeps no depot. */
static void narrow_bins_locked(lm_central *c, bool drains) {
  uint32_t share = count_left(c) / BIN_SHARE;
  uint32_t most = drains || (!c->keeps && !lm_decay_is_served()) ? BIN_SHEDDING_ALONE
                                                                 : BIN_SHEDDING;
  if (drains && share < most) most = share > 0 ? share : LM_CENTRAL_NONE;
  set_bin_most(c, most);
}

/* Begins to keep no depot, and no span that threads take from. */
static void begin_shedding_locked(lm_central *c, bool drains) {
  lm_central_empty_depot_locked(c);
  if (drains) release_current_locked(c);
}

static void note_drained_locked(lm_central *c, uint32_t n) {
  c->drained = c->drained < UINT32_MAX - n ? c->drained + n : UINT32_MAX;
  c->retaken = 0;
  c->drained_ns = lm_sys_clock_ns();
}

/* Puts objects that a thread gave back into the depot, and returns how many. The depot takes fewer
 * than `n` if it is full or there is no memory for it. It takes none if a span of the list is
 * detached. It also takes none, and is emptied, if the program has freed more than SURPLUS_MAX
 * objects since it last took one, or the list drains. */
static unsigned absorb_locked(lm_central *c, const lm_cached_object *items, unsigned n) {
  if (atomic_load_explicit(&c->detached, memory_order_relaxed)) return 0;
  bool was_over = c->surplus > SURPLUS_MAX;
  c->surplus = c->surplus < UINT32_MAX - n ? c->surplus + n : UINT32_MAX;
  bool drains = is_draining_locked(c);
  if (!was_over && !drains) return stock_locked(c, items, n);
  if (!lm_central_bin_most(c) || c->stocked) begin_shedding_locked(c, drains);
  narrow_bins_locked(c, drains);
  if (drains) note_drained_locked(c, n);
  return 0;
}

/* Gives objects back. If `wanted`, a thread is likely to take them again soon: then the depot gets
 * as many as it takes. The others go back to their spans. */
static void give_back(lm_central *c, const lm_cached_object *items, unsigned n, bool wanted) {
  lm_lock_take(&c->lock);
  uint32_t spans = c->spans;
  unsigned done = wanted ? absorb_locked(c, items, n) : 0;
  lm_central_put_all_locked(c, items + done, n - done);
  bool much = has_much_to_give_locked(c), purges = has_pages_to_purge_locked(c);
  spans -= c->spans;
  lm_lock_drop(&c->lock);
  if (much) lm_decay_stir();
  if (purges) purge_while_draining(c);
  if (spans) lm_regions_shed(c->regions, spans * lm_central_span_slots(c->class_));
}

void lm_central_push(lm_central *c, const lm_cached_object *items, unsigned n) {
  give_back(c, items, n, true);
}

void lm_central_return(lm_central *c, const lm_cached_object *items, unsigned n) {
  give_back(c, items, n, false);
}

/* Gives back some empty spans: only RETIRE_AT_ONCE of them, because other threads may be waiting
 * for the lock. Returns true if there are more. */
static bool retire_some(lm_central *c) {
  lm_lock_take(&c->lock);
  uint32_t spans = c->spans;
  for (int i = 0; c->empty && i < RETIRE_AT_ONCE; i++) retire_locked(c, c->empty);
  bool more = c->empty != 0;
  spans -= c->spans;
  lm_lock_drop(&c->lock);
  if (spans) lm_regions_shed(c->regions, spans * lm_central_span_slots(c->class_));
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

/* Gives empty spans and free pages back until a time. Returns whether there is nothing left. */
static bool release_until(lm_central *c, int64_t end_ns) {
  bool more = true;
  while (more && lm_sys_clock_ns() < end_ns)
    more = retire_some(c) || (can_purge(c) && purge_some(c));
  return !more;
}

bool lm_central_trim_until(lm_central *c, int64_t end_ns) {
  if (!lm_lock_try(&c->lock)) return true;
  release_current_locked(c);
  end_depot_locked(c);
  lm_lock_drop(&c->lock);
  return release_until(c, end_ns);
}

static bool has_empty_current(const lm_central *c) {
  for (int i = 0; i < LM_CENTRAL_CURRENT; i++)
    if (c->current[i] &&
        lm_central_free_of(lm_map_span(c->current[i])) == lm_central_span_count(c->class_))
      return true;
  return false;
}

/* Tells whether the list has something to give back and was idle since the last tick. If it was in
 * use, *more becomes true. Begins the next interval. */
static bool end_interval_locked(lm_central *c, bool *more) {
  bool has_some = c->depot || c->empties || c->partial || has_empty_current(c);
  bool fed = atomic_exchange_explicit(&c->fed, false, memory_order_relaxed);
  bool later = c->pulled || fed;
  c->pulled = false;
  if (has_some && later) *more = true;
  if (!later) c->keeps = false;
  return has_some && !later;
}

bool lm_central_decay(lm_central *c) {
  bool more = false;
  lm_lock_take(&c->lock);
  bool is_idle = end_interval_locked(c, &more);
  lm_lock_drop(&c->lock);
  if (is_idle) lm_central_trim(c);
  return more;
}

bool lm_central_decay_until(lm_central *c, int64_t end_ns, bool *more) {
  if (!lm_lock_try(&c->lock)) {
    *more = true;
    return true;
  }
  bool is_idle = end_interval_locked(c, more);
  if (is_idle) {
    release_current_locked(c);
    end_depot_locked(c);
  }
  lm_lock_drop(&c->lock);
  return !is_idle || release_until(c, end_ns);
}

bool lm_central_drain(lm_central *c) {
  lm_lock_take(&c->lock);
  release_current_locked(c);
  end_depot_locked(c);
  while (c->empty) retire_locked(c, c->empty);
  bool done = c->spans == 0;
  lm_lock_drop(&c->lock);
  return done; /* the caller gives back all that the regions have */
}

/* Tells whether an object is in a span of this list. The span may be detached. */
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
  if (is_its) look(ctx, view.cells, lm_central_span_count(c->class_));
  lm_lock_drop(&c->lock);
  return is_its;
}

/* While the token changes, the state of the object is BUSY, so that no thread can free the object.
 * The release store of the new state pairs with the acquire loads of the state (map.h): a thread
 * that reads the new state also reads the new token. */
bool lm_central_retoken(lm_central *c, const void *p, lm_token old, lm_token new_token) {
  lm_map_object place;
  lm_lock_take(&c->lock);
  bool done = lm_map_find(p, &place) && is_in(c, &place) && place.base == (uintptr_t)p &&
              place.token == old && lm_state_is_live(place.state) &&
              atomic_compare_exchange_strong_explicit(place.cell, &place.state, LM_STATE_BUSY,
                                                      memory_order_acq_rel, memory_order_relaxed);
  if (done) {
    uint8_t hint = lm_state_hint(new_token);
    lm_state state = lm_states_assign_at(p, place.cell, new_token, &hint);
    done = state != 0;
    state = done ? lm_state_keep_sampled(place.state, state) : place.state;
    atomic_store_explicit(place.cell, state, memory_order_release);
  }
  lm_lock_drop(&c->lock);
  return done;
}

/* ---- Laws --------------------------------------------------------------------------------- */

/* Checks the law of lm_span.token (map.h) for a span. In the entry of each slot, `token` is
 * LM_TOKEN_NONE or the counted token of the span. In the entry of a slot where a COUNTED object
 * begins, it is the counted token. */
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

/* Checks the law of the common table (state.h) for a span: no state has the id of a vacant
 * place. */
static bool has_no_vacant_id(const lm_state_cell *states, uint32_t count) {
  uint64_t ids = 0;
  for (uint32_t i = 0; i < count; i++) ids |= (uint64_t)1 << state_at(states, i) % LM_STATE_IDS;
  return !(ids & lm_state_vacant_ids());
}

/* Checks the spans of the list that begins at `slot`. `empty` tells whether all objects of each
 * span must be FREE, and each span must have this `note`. Returns the number of spans, or
 * UINT32_MAX if one of them breaks the law. */
static uint32_t check_list(const lm_central *c, uint32_t slot, bool empty, uint32_t note) {
  uint32_t n = 0, count = lm_central_span_count(c->class_);
  for (uint32_t prev = 0; slot; prev = slot, slot = lm_map_span(slot)->next, n++) {
    const lm_span *span = lm_map_span(slot);
    lm_state_cell *states = atomic_load(&span->cells);
    uint32_t free = lm_central_free_of(span);
    bool fair = atomic_load(&span->use) == LM_USE_SMALL && atomic_load(&span->bin) == c->bin &&
                span->prev == prev && free > 0 && (free == count) == empty &&
                lm_state_is_free(state_at(states, count)) && count_free(states, count) == free &&
                lm_central_note(span) == note && are_counted_tokens_valid(c, slot, states) &&
                has_no_vacant_id(states, count);
    if (!fair) return UINT32_MAX;
  }
  return n;
}

/* Checks that each item in the depot is a CACHED object of this list, with the right cell. */
static bool is_depot_valid(const lm_central *c) {
  for (unsigned i = 0; i < c->stocked; i++) {
    lm_map_object place;
    const lm_cached_object *item = &c->depot[i];
    if (!lm_map_find(item->p, &place) || place.bin != c->bin) return false;
    if (place.base != (uintptr_t)item->p || place.cell != item->cell) return false;
    if (!lm_state_is_cached(place.state)) return false;
  }
  return true;
}

bool lm_central_is_valid(const lm_central *c) {
  uint32_t partial = check_list(c, c->partial, false, LM_CENTRAL_NOTE_NONE);
  uint32_t purged = check_list(c, c->purged, false, LM_CENTRAL_NOTE_PURGED);
  uint32_t empties = check_list(c, c->empty, true, LM_CENTRAL_NOTE_NONE);
  bool fair = partial <= c->spans && purged <= c->spans && empties == c->empties;
  uint64_t objects = (uint64_t)c->spans * lm_central_span_count(c->class_);
  fair = fair && c->stocked <= c->out && c->out <= objects;
  return fair && partial + purged + empties <= c->spans && is_depot_valid(c);
}
