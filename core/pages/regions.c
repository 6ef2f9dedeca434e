/* regions.c - the slots of one pool. */
#include "pages/regions.h"

#include "os/decay.h"
#include "os/poison.h"
#include "os/pressure.h"
#include "os/thread.h"

/* Slots of a new region: a quarter of the pool's slots, within 4 and 64 MiB; if preparing costs
 * memory, 256 KiB. HUGE_SLOTS is a huge page of 2 MiB. */
enum { STEP_LEAST = 64, STEP_MOST = 1024, STEP_EAGER = 4, HUGE_SLOTS = 32 };
/* A pool of this many slots (16 MiB) or more takes small requests at the far ends of clean runs. */
enum { APART_FROM = 256 };
/* Dirty slots that are kept for reuse: a quarter of the slots in use, but at least 96 MiB; 4 MiB
 * where a free slot costs more than plain memory. This bound is for bursts: in the long run, decay
 * gives back the slots that are not needed. */
enum { DIRTY_KEPT = 1536, DIRTY_KEPT_EAGER = 64 };
/* In a process that is not served (os/decay.h): an eighth of the slots in use, but at least 4 MiB.
 * A call that gives slots back beyond the bound gives back 8 MiB, which takes less than a
 * millisecond, or twice what the program put. */
enum { DIRTY_KEPT_ALONE = 64, SHED_MOST_ALONE = 128 };
/* Slots that were given back are taken again soon within this time for each slot, and within these
 * bounds: regions.h. */
#define SOON_NS_SLOT 500000
#define SOON_NS_LEAST 250000000
#define SOON_NS_MOST 10000000000
/* A run of this many slots (64 MiB) or more that becomes clean goes back to the range. */
enum { WORTH_RETURNING = 1024 };
/* The ticks that an interval of decay has at most. A tick is a quarter of a second. */
enum { WINDOW_MOST = 8 };
/* After the system has refused a region, no other is tried for this time. */
enum { REFUSAL_NS = 10000000 };

static _Atomic size_t released; /* slots, by all regions so far; relaxed: a figure */

static size_t bytes_of(uint32_t slots) { return (size_t)slots << LM_SLOT_SHIFT; }

const char *lm_regions_why(const lm_regions *r) {
  const char *why = atomic_load_explicit(&r->why, memory_order_relaxed);
  return why ? why : lm_region_no_memory;
}

void lm_regions_init(lm_regions *r, const lm_preparation *how) {
  lm_assert(!how->page || how->page == 2 * LM_MIB || how->page == LM_GIB);
  r->how = *how;
  r->window = 1;
  lm_runs_init(&r->clean);
  lm_runs_init(&r->dirty);
}

static void note_why(lm_regions *r, const char *why) {
  atomic_store_explicit(&r->why, why, memory_order_relaxed);
}

static bool punch(const lm_regions *r, uint32_t slot, uint32_t slots) {
  return lm_region_punch(&r->how, lm_map_address(slot), bytes_of(slots));
}

/* ---- Giving slots back to the range --------------------------------------------------------- */

/* Runs that belong to no pool and that the system refused to decommit. Law: when the lock is
 * free, slots == runs.slots; until `begun`, both are 0. */
static struct {
  lm_lock lock;
  bool begun;
  lm_runs runs;
  _Atomic uint32_t slots; /* copy of runs.slots, to be read without the lock; relaxed: a hint */
} unreturned;

static inline bool unreturned_is_valid_locked(void) {
  uint32_t slots = atomic_load_explicit(&unreturned.slots, memory_order_relaxed);
  if (slots != unreturned.runs.slots) return false;
  return unreturned.begun ? lm_runs_is_valid(&unreturned.runs) : !slots;
}

static void queue_unreturned(uint32_t slot, uint32_t slots) {
  lm_thread_add_fork_lock(&unreturned.lock);
  lm_lock_take(&unreturned.lock);
  if (!unreturned.begun) lm_runs_init(&unreturned.runs);
  unreturned.begun = true;
  lm_map_extent(slot, slots, LM_USE_NONE);
  lm_runs_put(&unreturned.runs, slot, slots);
  atomic_store_explicit(&unreturned.slots, unreturned.runs.slots, memory_order_relaxed);
  lm_verify(unreturned_is_valid_locked());
  lm_lock_drop(&unreturned.lock);
}

static uint32_t take_unreturned(uint32_t *slots) {
  lm_lock_take(&unreturned.lock);
  uint32_t slot = unreturned.begun ? lm_runs_take_longest(&unreturned.runs, slots) : 0;
  atomic_store_explicit(&unreturned.slots, unreturned.runs.slots, memory_order_relaxed);
  lm_verify(unreturned_is_valid_locked());
  lm_lock_drop(&unreturned.lock);
  return slot;
}

/* Takes memory and access from slots that go back to the range. A sparse range unmaps them itself.
 * While the address space is above its limit, the kernel allows that and refuses to decommit.
 * Returns false if the system refuses. */
static bool decommit(uint32_t slot, uint32_t slots) {
  return lm_range_is_sparse() || !lm_sys_decommit(lm_map_address(slot), bytes_of(slots));
}

/* Decommits slots and gives them to the range; if the system refuses, queues them. Returns whether
 * the range has them. */
static bool return_or_queue(uint32_t slot, uint32_t slots) {
  lm_assert(slot >= LM_MAP_FIRST && slots > 0);
  bool done = decommit(slot, slots);
  if (done) lm_range_put(slot, slots);
  else queue_unreturned(slot, slots);
  return done;
}

static void return_queued(void) {
  uint32_t slot, slots;
  while (atomic_load_explicit(&unreturned.slots, memory_order_relaxed) &&
         (slot = take_unreturned(&slots)) != 0)
    if (!return_or_queue(slot, slots)) return;
}

void lm_regions_return(uint32_t slot, uint32_t slots) { (void)return_or_queue(slot, slots); }

static void subtract_held(lm_regions *r, uint32_t slots) {
  lm_lock_take(&r->lock);
  lm_assert(r->held >= slots);
  r->held -= slots;
  lm_lock_drop(&r->lock);
}

void lm_regions_add_used(lm_regions *r, uint32_t slots) {
  lm_lock_take(&r->lock);
  r->held += slots;
  lm_lock_drop(&r->lock);
}

void lm_regions_remove_used(lm_regions *r, uint32_t slots) { subtract_held(r, slots); }

void lm_regions_forget(lm_regions *r, uint32_t slot, uint32_t slots) {
  subtract_held(r, slots);
  lm_range_put(slot, slots);
}

void lm_regions_give_up(lm_regions *r, uint32_t slot, uint32_t slots) {
  subtract_held(r, slots);
  lm_regions_return(slot, slots);
}

/* ---- Taking --------------------------------------------------------------------------------- */

/* Takes a region of exactly these slots from the range; 0: there is none. */
static uint32_t take_region(lm_regions *r, uint32_t slots, size_t align) {
  lm_assert(lm_lock_is_held(&r->lock));
  uint32_t slot = lm_range_take(slots, align);
  if (!slot) return 0;
  const char *why = lm_region_prepare(&r->how, lm_map_address(slot), bytes_of(slots));
  if (why) {
    note_why(r, why);
    (void)punch(r, slot, slots);
    lm_regions_return(slot, slots);
    return 0;
  }
  lm_poison(lm_map_address(slot), bytes_of(slots));
  r->held += slots;
  return slot;
}

/* Returns the slots of the next region: at least `slots`, which the request needs. */
static uint32_t region_step(const lm_regions *r, uint32_t slots) {
  if (lm_region_is_eager(&r->how)) return slots > STEP_EAGER ? slots : STEP_EAGER;
  uint32_t step = r->held / 4;
  if (step < STEP_LEAST) step = STEP_LEAST;
  if (step > STEP_MOST) step = STEP_MOST;
  return (uint32_t)lm_align_up(slots > step ? slots : step, HUGE_SLOTS);
}

/* Returns whether the system refused such a region a moment ago. A request then goes on to the next
 * strategy of its chain without two system calls that would fail again. */
static bool was_refused(const lm_regions *r, uint32_t slots) {
  return r->refused && slots >= r->refused && lm_sys_clock_ns() - r->refused_ns < REFUSAL_NS;
}

static void note_refusal(lm_regions *r, uint32_t slots) {
  if (!lm_region_is_eager(&r->how) && !lm_region_populates(&r->how)) return;
  r->refused = slots;
  r->refused_ns = lm_sys_clock_ns();
}

/* Takes a region of `step` slots or, if there is none, of the `least` slots. In a small range no
 * such slots may begin at a huge page. Memory that needs no huge page then begins at a multiple of
 * `align` alone. *taken becomes the slots of the region. */
static uint32_t take_region_of(lm_regions *r, uint32_t step, uint32_t least, size_t align,
                               uint32_t *taken) {
  uint32_t unit = (uint32_t)(lm_region_page_size(&r->how) >> LM_SLOT_SHIFT);
  size_t floor = bytes_of(unit ? unit : lm_region_is_eager(&r->how) ? 1 : HUGE_SLOTS);
  size_t aligned = align > floor ? align : floor;
  uint32_t slot = take_region(r, *taken = step, aligned);
  if (!slot && least < step) slot = take_region(r, *taken = least, aligned);
  if (!slot && !unit && align < floor) slot = take_region(r, *taken = least, align);
  return slot;
}

/* Takes a new region and returns the first slot of the request, 0 if there is none. The slots that
 * the request does not need become free: clean, or dirty where they have their memory already, so
 * that they join slots that are put there later, and the system can take both back together. */
static uint32_t grow_locked(lm_regions *r, uint32_t slots, size_t align) {
  uint32_t unit = (uint32_t)(lm_region_page_size(&r->how) >> LM_SLOT_SHIFT);
  uint32_t least = unit ? (uint32_t)lm_align_up(slots, unit) : slots;
  if (was_refused(r, least)) return 0;
  uint32_t step = region_step(r, slots);
  if (unit) step = (uint32_t)lm_align_up(step, unit);
  uint32_t slot = take_region_of(r, step, least, align, &step);
  if (!slot) {
    note_refusal(r, least);
    return 0;
  }
  if (slots < step) {
    lm_map_extent(slot + slots, step - slots, LM_USE_NONE);
    lm_map_extent(slot, slots, LM_USE_NONE);
    lm_runs_put(lm_region_is_eager(&r->how) ? &r->dirty : &r->clean, slot + slots, step - slots);
  }
  return slot;
}

/* To be called after slots have left the dirty set. */
static void note_idle_locked(lm_regions *r) {
  lm_assert(lm_lock_is_held(&r->lock));
  if (r->idle > r->dirty.slots) r->idle = r->dirty.slots;
}

/* Forgets the slots if they were not given back a short time ago. */
static void forget_old(lm_given_back *g) {
  if (!g->slots) return;
  int64_t soon = (int64_t)g->slots * SOON_NS_SLOT;
  if (soon < SOON_NS_LEAST) soon = SOON_NS_LEAST;
  if (soon > SOON_NS_MOST) soon = SOON_NS_MOST;
  if (lm_sys_clock_ns() - g->at_ns > soon) g->slots = 0;
}

static void note_given_back(lm_given_back *g, uint32_t slots) {
  if (!slots) return;
  forget_old(g);
  g->slots += slots;
  g->at_ns = lm_sys_clock_ns();
}

/* Notes that slots are taken which are not dirty. Returns how many slots were given back a short
 * time ago, at most as many as are taken. */
static uint32_t take_again(lm_given_back *g, uint32_t slots) {
  forget_old(g);
  uint32_t retaken = slots < g->slots ? slots : g->slots;
  g->slots -= retaken;
  return retaken;
}

/* By how many slots the bound is raised for each slot that was given back too early, and lowered
 * for each slot that lay idle. */
enum { RAISE = 2 };

/* Slots are taken that are not dirty. If as many were given back a short time ago, that was too
 * early. Slots beyond the bound raise the bound, by twice their number, until a tick finds that
 * they lay idle: blocks of many sizes are freed at random, and a bound that rises twice as fast is
 * high enough sooner. Slots of decay make the interval longer. Otherwise a program that takes and
 * frees much memory again and again would have it zeroed and mapped each time. */
static void learn_locked(lm_regions *r, uint32_t slots) {
  r->extra += RAISE * take_again(&r->trimmed, slots);
  if (!take_again(&r->decayed, slots) || r->window == WINDOW_MOST) return;
  r->waits += r->window;
  r->window *= 2;
  r->decayed.slots = 0; /* they have had their effect */
}

/* A small span between two large blocks keeps their slots from joining once both are freed. A
 * larger request would then get memory that the system has yet to zero. So in a large pool, small
 * requests are served at the far ends of clean runs. */
static uint32_t take_clean_locked(lm_regions *r, uint32_t slots, size_t align) {
  bool is_apart = slots < HUGE_SLOTS && align <= LM_SLOT && r->held >= APART_FROM;
  return is_apart ? lm_runs_take_last(&r->clean, slots) : lm_runs_take(&r->clean, slots, align);
}

/* Dirty runs come first: to zero memory that is in the caches costs less than to have the kernel
 * zero and map fresh pages. */
static uint32_t take_locked(lm_regions *r, uint32_t slots, size_t align, bool *clean) {
  *clean = false;
  uint32_t slot = lm_runs_take(&r->dirty, slots, align);
  note_idle_locked(r);
  if (slot) return slot;
  *clean = true;
  learn_locked(r, slots);
  slot = take_clean_locked(r, slots, align);
  return slot || r->how.registered ? slot : grow_locked(r, slots, align);
}

/* Adds the clean runs beside freed slots to them, if these are long and the runs are short. Between
 * two large blocks there can be clean slots, because with transparent huge pages a block begins at
 * a huge page, and because a region is larger than the block that it was taken for. Without this,
 * blocks that are freed one by one would never become one run, and a larger request would get
 * memory that the system has yet to zero. Done only for memory of which a dirty slot may lack a
 * part. */
static void join_gaps_locked(lm_regions *r, uint32_t *slot, uint32_t *slots) {
  bool is_plain = !r->how.backing && !r->how.registered && !lm_region_is_eager(&r->how);
  if (*slots < HUGE_SLOTS || !is_plain || lm_region_populates(&r->how)) return;
  uint32_t most = *slots / 2 < HUGE_SLOTS ? HUGE_SLOTS - 1 : *slots / 2;
  *slots += lm_runs_take_from(&r->clean, *slot + *slots, most);
  uint32_t before = lm_runs_take_until(&r->clean, *slot - 1, most);
  *slot -= before;
  *slots += before;
}

/* ---- Giving memory back to the system ------------------------------------------------------- */

static void put_dirty(lm_regions *r, uint32_t slot, uint32_t slots) {
  lm_lock_take(&r->lock);
  lm_runs_put(&r->dirty, slot, slots);
  lm_lock_drop(&r->lock);
}

/* Removes all preparation from a run and gives it to the range. Returns false if the system
 * refuses: then nothing has changed. But a run that is out of its file cannot be used again without
 * preparation, so it leaves `r` whether it can be decommitted or not. */
static bool return_to_range(lm_regions *r, uint32_t slot, uint32_t slots) {
  if (!punch(r, slot, slots)) return false;
  if (r->how.backing) {
    lm_regions_give_up(r, slot, slots);
    return true;
  }
  if (!decommit(slot, slots)) return false;
  lm_regions_forget(r, slot, slots);
  return true;
}

static void put_clean(lm_regions *r, uint32_t slot, uint32_t slots) {
  lm_lock_take(&r->lock);
  lm_runs_put(&r->clean, slot, slots);
  lm_lock_drop(&r->lock);
}

void lm_regions_renew(lm_regions *r, uint32_t slot, uint32_t slots) {
  void *at = lm_map_address(slot);
  bool is_done = slots < WORTH_RETURNING && lm_region_is_plain(&r->how) &&
                 !lm_sys_decommit(at, bytes_of(slots)) &&
                 !lm_region_prepare(&r->how, at, bytes_of(slots));
  if (!is_done) {
    lm_regions_give_up(r, slot, slots);
    return;
  }
  lm_poison(at, bytes_of(slots)); /* the sanitizer's mmap(2) has removed the poison */
  put_clean(r, slot, slots);
}

/* Gives the memory of a run back and makes it clean. False: the system refuses. */
static bool purge_to_clean(lm_regions *r, uint32_t slot, uint32_t slots) {
  bool done = r->how.backing ? punch(r, slot, slots)
                             : !lm_sys_purge(lm_map_address(slot), bytes_of(slots));
  if (done) put_clean(r, slot, slots);
  return done;
}

/* Gives the whole pages of a run back to the range, and puts the rest at both ends back as dirty.
 * For memory that cannot be given back and stay prepared: huge pages, locked or prefaulted memory.
 * Returns the slots given back; 0: none, and the run belongs to the caller as before. */
static uint32_t return_pages(lm_regions *r, uint32_t slot, uint32_t slots) {
  uintptr_t at = (uintptr_t)lm_map_address(slot), end = at + bytes_of(slots);
  size_t page = lm_region_page_size(&r->how) > LM_SLOT ? lm_region_page_size(&r->how) : LM_SLOT;
  uintptr_t from = lm_align_up(at, page), to = lm_align_down(end, page);
  if (from >= to) return 0;
  uint32_t before = (uint32_t)((from - at) >> LM_SLOT_SHIFT);
  uint32_t whole = (uint32_t)((to - from) >> LM_SLOT_SHIFT), after = slots - before - whole;
  if (after) lm_map_extent(slot + before + whole, after, LM_USE_NONE);
  lm_map_extent(slot + before, whole, LM_USE_NONE);
  if (before) lm_map_extent(slot, before, LM_USE_NONE);
  if (!return_to_range(r, slot + before, whole)) {
    lm_map_extent(slot, slots, LM_USE_NONE);
    return 0;
  }
  if (after) put_dirty(r, slot + before + whole, after);
  if (before) put_dirty(r, slot, before);
  return whole;
}

/* Gives the memory of a run, taken from the dirty set, back to the system. Returns the slots given
 * back; 0: the system refuses, and the run is dirty again. */
static uint32_t release(lm_regions *r, uint32_t slot, uint32_t slots) {
  lm_assert(slots > 0 && !r->how.registered);
  uint32_t done;
  if (lm_region_is_eager(&r->how)) done = return_pages(r, slot, slots);
  else if (slots >= WORTH_RETURNING && !r->how.stays)
    done = return_to_range(r, slot, slots) ? slots : 0;
  else done = purge_to_clean(r, slot, slots) ? slots : 0;
  if (!done) put_dirty(r, slot, slots);
  atomic_fetch_add_explicit(&released, done, memory_order_relaxed);
  return done;
}

/* The least number of slots that are given back together. No part of a huge page goes back, and a
 * run of two pages surely has a whole one. */
static uint32_t least_of(const lm_regions *r) {
  size_t page = lm_region_page_size(&r->how);
  return page > LM_SLOT ? 2 * (uint32_t)(page >> LM_SLOT_SHIFT) : 1;
}

/* Returns whether a run has a whole page of so many slots. */
static bool has_whole_page(uint32_t slot, uint32_t slots, int page_slots) {
  uintptr_t page = (uintptr_t)page_slots << LM_SLOT_SHIFT, at = (uintptr_t)lm_map_address(slot);
  return lm_align_up(at, page) + page <= at + bytes_of(slots);
}

/* Takes a long dirty run that can be given back; 0: there is none. */
static uint32_t take_long_locked(lm_regions *r, uint32_t *slots) {
  uint32_t least = least_of(r);
  if (least == 1) return lm_runs_take_longest(&r->dirty, slots);
  return lm_runs_take_suitable(&r->dirty, UINT32_MAX, has_whole_page, (int)least / 2, slots);
}

/* Takes at most `most` slots, or at most two huge pages if that is more, of a long dirty run.
 * Returns 0 if at most `keep` slots are dirty. The slots are cut at the end of the run, since
 * requests take from the beginning. */
static uint32_t cut_longest(lm_regions *r, uint32_t keep, uint32_t most, uint32_t *slots) {
  lm_lock_take(&r->lock);
  uint32_t slot = r->dirty.slots > keep ? take_long_locked(r, slots) : 0;
  if (most < least_of(r)) most = least_of(r);
  if (slot && *slots > most) {
    uint32_t rest = *slots - most;
    lm_map_extent(slot + rest, most, LM_USE_NONE);
    lm_map_extent(slot, rest, LM_USE_NONE);
    lm_runs_put(&r->dirty, slot, rest);
    slot += rest;
    *slots = most;
  }
  note_idle_locked(r);
  lm_lock_drop(&r->lock);
  return slot;
}

/* Gives back dirty runs, the longest first, until `keep` slots are left or runs of about `most`
 * slots were cut. Returns the slots given back: of huge pages, the ends of a run stay. The lock is
 * not held during the system calls, which can take long. */
static uint32_t trim(lm_regions *r, uint32_t keep, uint32_t most) {
  uint32_t slot, slots, some = 1, done = 0;
  if (r->how.registered) return 0;
  while (some && most && (slot = cut_longest(r, keep, most, &slots)) != 0) {
    most -= slots < most ? slots : most;
    some = release(r, slot, slots);
    done += some;
  }
  return done;
}

/* Like trim, and notes in *g what was given back: the system may refuse some. */
static uint32_t trim_noting(lm_regions *r, lm_given_back *g, uint32_t keep, uint32_t most) {
  uint32_t done = trim(r, keep, most);
  lm_lock_take(&r->lock);
  note_given_back(g, done);
  lm_lock_drop(&r->lock);
  return done;
}

void lm_regions_trim(lm_regions *r) {
  return_queued();
  lm_lock_take(&r->lock);
  bool has_some = r->dirty.slots > 0;
  if (has_some) r->refused = 0; /* the slots given back here may serve it */
  lm_lock_drop(&r->lock);
  if (has_some) (void)trim(r, 0, UINT32_MAX);
}

size_t lm_regions_released(void) {
  return atomic_load_explicit(&released, memory_order_relaxed) << LM_SLOT_SHIFT;
}

/* Begins the next interval of decay, a shorter one: only slots that are taken again soon make it
 * longer. */
static void begin_interval_locked(lm_regions *r) {
  r->idle = r->dirty.slots;
  r->window = r->window > 1 ? r->window / 2 : 1;
  r->waits = r->window - 1;
}

/* It is known how many slots lay idle, but not which. So a program that takes and frees the same
 * memory again and again keeps as much as it takes. Memory that the system refuses to take back is
 * no reason for another tick. */
bool lm_regions_decay(lm_regions *r, uint32_t *most) {
  return_queued();
  if (r->how.registered) return false;
  lm_lock_take(&r->lock);
  if (lm_pressure_is_short()) r->waits = 0;
  uint32_t idle = r->waits ? 0 : r->idle;
  uint32_t bound = *most > least_of(r) ? *most : least_of(r);
  bool more = r->dirty.slots > idle || idle > bound;
  r->extra -= idle < r->extra / RAISE ? RAISE * idle : r->extra;
  if (idle > bound) {
    idle = bound;
    r->idle -= idle;
  } else if (r->waits) {
    r->waits--;
  } else {
    begin_interval_locked(r);
  }
  lm_lock_drop(&r->lock);
  uint32_t done = trim_noting(r, &r->decayed, 0, idle);
  *most -= done < *most ? done : *most;
  return more;
}

/* ---- Requests ------------------------------------------------------------------------------- */

static bool was_refused_unlocked(lm_regions *r, uint32_t slots) {
  lm_lock_take(&r->lock);
  bool refused = was_refused(r, slots);
  lm_lock_drop(&r->lock);
  return refused;
}

/* Gives memory to slots taken from a clean run. False: there is none, and they are clean again. */
static bool populate_run(lm_regions *r, uint32_t slot, uint32_t slots) {
  if (!was_refused_unlocked(r, slots)) {
    const char *why = lm_region_populate(&r->how, lm_map_address(slot), bytes_of(slots));
    if (!why) return true;
    note_why(r, why);
  }
  lm_lock_take(&r->lock);
  if (!was_refused(r, slots)) note_refusal(r, slots);
  lm_lock_drop(&r->lock);
  /* They are not put into the dirty set: dirty slots have their memory, and these lack it. */
  if (!purge_to_clean(r, slot, slots)) put_clean(r, slot, slots);
  return false;
}

static uint32_t try_take(lm_regions *r, uint32_t slots, size_t align, bool *clean) {
  lm_lock_take(&r->lock);
  uint32_t slot = take_locked(r, slots, align, clean);
  lm_lock_drop(&r->lock);
  return slot && *clean && lm_region_populates(&r->how) && !populate_run(r, slot, slots) ? 0 : slot;
}

uint32_t lm_regions_take(lm_regions *r, uint32_t slots, size_t align, bool *clean) {
  lm_assert(slots > 0 && lm_is_pow2(align));
  uint32_t slot = try_take(r, slots, align, clean);
  if (slot || r->how.registered) return slot;
  /* Dirty and clean neighbours may be long enough together: trimmed, they join. */
  lm_regions_trim(r);
  return try_take(r, slots, align, clean);
}

/* Returns the bound of dirty slots without `extra`. `served`: a service thread ticks. While memory
 * is short, the bound does not grow with the pool. */
static uint32_t dirty_to_keep_locked(const lm_regions *r, bool served) {
  uint32_t used = r->held - r->clean.slots - r->dirty.slots;
  if (lm_pressure_is_short()) return DIRTY_KEPT_ALONE;
  uint32_t share = served ? used / 4 : used / 8;
  uint32_t least = lm_region_is_eager(&r->how) ? DIRTY_KEPT_EAGER
                   : served                    ? DIRTY_KEPT
                                               : DIRTY_KEPT_ALONE;
  return share > least ? share : least;
}

void lm_regions_put_only(lm_regions *r, uint32_t slot, uint32_t slots) {
  lm_assert(slot >= LM_MAP_FIRST && slots > 0);
  lm_lock_take(&r->lock);
  lm_verify(lm_regions_is_valid(r));
  join_gaps_locked(r, &slot, &slots);
  lm_runs_put(&r->dirty, slot, slots);
  lm_assert(r->clean.slots + r->dirty.slots <= r->held);
  bool much = r->dirty.slots >= LM_DECAY_MIN_SLOTS;
  lm_lock_drop(&r->lock);
  if (r->how.registered) lm_decay_stir_devices();
  else if (much) lm_decay_stir();
}

/* Down to half of the bound. Otherwise a program that frees and takes one large block over and over
 * would get here each time, with its block as the longest run. */
void lm_regions_shed(lm_regions *r, uint32_t slots) {
  if (lm_decay_keeps_all()) return;
  lm_lock_take(&r->lock);
  bool served = r->dirty.slots <= DIRTY_KEPT_ALONE || lm_decay_is_served();
  uint32_t keep = dirty_to_keep_locked(r, served), dirty = r->dirty.slots;
  uint32_t extra = lm_pressure_is_short() ? 0 : r->extra, least = keep / 2 + extra;
  lm_lock_drop(&r->lock);
  if (dirty <= keep + extra) return;
  /* A run that a large block left goes back as a whole: the next such block then finds one run. */
  uint32_t most = dirty - least < SHED_MOST_ALONE ? dirty - least : SHED_MOST_ALONE;
  if (slots > DIRTY_KEPT_ALONE) most = 2 * slots;
  (void)trim_noting(r, &r->trimmed, least, served ? UINT32_MAX : most);
}

void lm_regions_put(lm_regions *r, uint32_t slot, uint32_t slots) {
  lm_regions_put_only(r, slot, slots);
  lm_regions_shed(r, slots);
}

bool lm_regions_extend(lm_regions *r, uint32_t slot, uint32_t slots) {
  lm_assert(slot > LM_MAP_FIRST && slots > 0);
  lm_lock_take(&r->lock);
  bool clean = lm_runs_take_at(&r->clean, slot, slots);
  bool taken = clean || lm_runs_take_at(&r->dirty, slot, slots);
  note_idle_locked(r);
  lm_lock_drop(&r->lock);
  return taken && (!clean || !lm_region_populates(&r->how) || populate_run(r, slot, slots));
}

size_t lm_regions_size(lm_regions *r) {
  lm_lock_take(&r->lock);
  uint32_t slots = r->held;
  lm_lock_drop(&r->lock);
  return bytes_of(slots);
}

size_t lm_regions_memory(lm_regions *r) {
  lm_lock_take(&r->lock);
  uint32_t slots = r->held - r->clean.slots;
  lm_lock_drop(&r->lock);
  return bytes_of(slots);
}

uint32_t lm_regions_used(lm_regions *r) {
  lm_lock_take(&r->lock);
  uint32_t slots = r->held - r->clean.slots - r->dirty.slots;
  lm_lock_drop(&r->lock);
  return slots;
}

bool lm_regions_has_dirty(lm_regions *r, uint32_t slots) {
  lm_lock_take(&r->lock);
  bool has = lm_runs_has(&r->dirty, slots);
  lm_lock_drop(&r->lock);
  return has;
}

/* ---- Registered memory -------------------------------------------------------------------- */

void lm_regions_add(lm_regions *r, uint32_t slot, uint32_t slots) {
  lm_assert(r->how.registered && slots > 0);
  lm_poison(lm_map_address(slot), bytes_of(slots));
  lm_lock_take(&r->lock);
  r->held += slots;
  lm_runs_put(&r->dirty, slot, slots);
  lm_lock_drop(&r->lock);
}

uint32_t lm_regions_take_idle(lm_regions *r, uint32_t *most, lm_runs_suits *suits, int ctx,
                              uint32_t *slots) {
  lm_lock_take(&r->lock);
  lm_assert(r->how.registered);
  uint32_t slot = lm_runs_take_suitable(&r->dirty, *most, suits, ctx, slots);
  if (slot) r->held -= *slots;
  if (slot) *most -= *slots;
  note_idle_locked(r);
  lm_lock_drop(&r->lock);
  if (slot) atomic_fetch_add_explicit(&released, *slots, memory_order_relaxed);
  return slot;
}

uint32_t lm_regions_idle_slots(lm_regions *r, uint32_t *held, bool *more) {
  lm_lock_take(&r->lock);
  uint32_t idle = r->idle;
  *held = r->held;
  *more = r->dirty.slots > idle;
  r->idle = r->dirty.slots;
  lm_lock_drop(&r->lock);
  return idle;
}

static uint32_t take_longest_clean(lm_regions *r, uint32_t *slots) {
  lm_lock_take(&r->lock);
  uint32_t slot = lm_runs_take_longest(&r->clean, slots);
  lm_lock_drop(&r->lock);
  return slot;
}

bool lm_regions_drain(lm_regions *r) {
  uint32_t slot, slots;
  lm_regions_trim(r);
  while ((slot = take_longest_clean(r, &slots)) != 0) {
    if (return_to_range(r, slot, slots)) continue;
    put_dirty(r, slot, slots);
    return false;
  }
  lm_lock_take(&r->lock);
  bool is_empty = r->held == 0;
  lm_lock_drop(&r->lock);
  return is_empty;
}

static void give_up_runs(lm_regions *r, lm_runs *runs) {
  uint32_t slot, slots;
  while ((slot = lm_runs_take_longest(runs, &slots)) != 0) lm_regions_give_up(r, slot, slots);
}

void lm_regions_fork_child(lm_regions *r) {
  lm_assert(r->how.backing);
  give_up_runs(r, &r->clean);
  give_up_runs(r, &r->dirty);
  r->idle = 0;
  r->refused = 0;
  lm_backing_fork_child(r->how.backing);
}

bool lm_regions_is_valid(const lm_regions *r) {
  lm_assert(lm_lock_is_held(&r->lock));
  return lm_runs_is_valid(&r->clean) && lm_runs_is_valid(&r->dirty) &&
         r->clean.slots + r->dirty.slots <= r->held && r->idle <= r->dirty.slots &&
         r->waits < r->window && r->window <= WINDOW_MOST;
}
