/* region.c - the slots of one pool. */
#include "pages/region.h"

#include <errno.h>

#include "os/available.h"
#include "os/decay.h"
#include "os/poison.h"
#include "os/thread.h"

/* Regions start at 4 MiB and grow with what the pool has; eager ones are a quarter of a MiB. */
enum { STEP_LEAST = 64, STEP_MOST = 1024, STEP_EAGER = 4, HUGE_SLOTS = 32 };
/* Slots (16 MiB) from which on a pool keeps what is small apart from what is large. */
enum { APART_FROM = 256 };
/* Dirty slots kept for reuse: a quarter of what is in use, or 96 MiB, or where an idle slot costs
 * more than plain memory 4 MiB. It is decay that brings them back in time; this is for bursts. */
enum { DIRTY_KEPT = 1536, DIRTY_KEPT_EAGER = 64 };
/* A clean run of this many slots (64 MiB) is worth giving back to the range. */
enum { WORTH_RETURNING = 1024 };
/* How long a refusal of the system counts as its answer. */
enum { REFUSAL_NS = 10000000 };

static _Atomic size_t released; /* slots, by all regions so far */

static const char none[] = "it has no memory", no_room[] = "its nodes have no room";

static size_t bytes_of(uint32_t slots) { return (size_t)slots << LM_SLOT_SHIFT; }

size_t lm_region_page_size(const lm_preparation *how) { return how->page ? how->page : LM_PAGE; }

const char *lm_regions_why(const lm_regions *r) {
  const char *why = atomic_load_explicit(&r->why, memory_order_relaxed);
  return why ? why : none;
}

bool lm_region_is_eager(const lm_preparation *how) {
  return how->page || how->prefault || how->lock || how->registered ||
         (how->backing && how->backing->reserves);
}

void lm_regions_init(lm_regions *r, const lm_preparation *how) {
  r->how = *how;
  lm_runs_init(&r->clean);
  lm_runs_init(&r->dirty);
}

/* Where there is one node only, a kernel or container that refuses mbind takes nothing away; nor
 * where memory is to be local, which it is by itself, to whoever touches it first. */
static const char *place(const lm_placement *placement, void *at, size_t size) {
  if (!placement || placement->mode == LM_BIND_DEFAULT) return NULL;
  int error = lm_numa_bind(at, size, placement);
  bool refused = error == EPERM || error == ENOSYS;
  bool needless = lm_is_pow2((size_t)lm_numa_nodes()) || placement->mode == LM_BIND_LOCAL;
  if (!error || (refused && needless)) return NULL;
  return refused           ? "placing memory (mbind) is refused here"
         : error == EINVAL ? "its nodes are not there"
                           : none;
}

/* Pages reserved but bound to a node that has none would fault with SIGBUS: touch them now. */
static bool must_fault_in(const lm_preparation *how) {
  return how->prefault || (how->page && how->placement);
}

static uint64_t bound_nodes(const lm_preparation *how) {
  return how->placement && how->placement->mode == LM_BIND_BIND ? how->placement->nodes : 0;
}

/* Whether the memory of a region is taken when it is made, of the system's own pages. */
static bool takes_all(const lm_preparation *how) {
  return (how->prefault || how->lock) && !how->page && !how->backing;
}

/* Memory that must be of certain nodes is taken when it is handed out: were there none left when it
 * is touched, the kernel would end the process. So now there is time for an or_else. */
static bool takes_handed(const lm_preparation *how) {
  return bound_nodes(how) && !lm_is_pow2((size_t)lm_numa_nodes()) && !takes_all(how) &&
         !how->page && !how->backing;
}

static const char *without_room(uint64_t nodes) {
  return nodes ? "its nodes or its control group have no room" : "its control group has no room";
}

const char *lm_region_populate(const lm_preparation *how, void *at, size_t size) {
  if (lm_likely(!how->placement) || !takes_handed(how)) return NULL;
  if (!lm_available_has(size, bound_nodes(how))) return without_room(bound_nodes(how));
  int error = lm_sys_prefault(at, size);
  /* Older kernels cannot, a container may not: then the look has to do. */
  return !error || error == EINVAL || error == EPERM || error == ENOSYS ? NULL : no_room;
}

static const char *without_page(const lm_preparation *how) {
  if (how->placement) return "its nodes have no such huge page free";
  return how->page == LM_GIB ? "no page of 1 GiB is free" : "no page of 2 MiB is free";
}

static const char *not_taken(const lm_preparation *how, int error) {
  if (error == EPERM || error == ENOSYS)
    return "taking memory beforehand (madvise) is refused here";
  if (error == EINVAL) return "this kernel cannot take memory beforehand";
  return how->page ? without_page(how) : bound_nodes(how) ? no_room : none;
}

static bool commit(const lm_preparation *how, void *at, size_t size) {
  if (how->backing) return lm_backing_map(how->backing, at, size);
  return !(how->page ? lm_sys_commit_huge(at, size, how->page) : lm_sys_commit(at, size));
}

const char *lm_region_prepare(const lm_preparation *how, void *at, size_t size) {
  if (takes_all(how) && !lm_available_has(size, bound_nodes(how)))
    return without_room(bound_nodes(how));
  if (!commit(how, at, size)) return how->page ? without_page(how) : none;
  /* Advice: a kernel without transparent huge pages serves small ones. */
  if (how->thp) (void)lm_sys_advise_huge(at, size, how->thp > 0);
  const char *why = place(how->placement, at, size);
  if (why) return why;
  if (how->backing && !lm_backing_reserve(how->backing, at, size)) return none;
  int error = must_fault_in(how) ? lm_sys_prefault(at, size) : 0;
  if (error) return not_taken(how, error);
  if (how->lock && lm_sys_mlock(at, size)) return "no more memory may be locked";
  return NULL;
}

static void note_why(lm_regions *r, const char *why) {
  atomic_store_explicit(&r->why, why, memory_order_relaxed);
}

/* The first of what undoes a preparation. */
static bool punch(const lm_preparation *how, uint32_t slot, uint32_t slots) {
  return !how->backing ||
         lm_backing_punch(how->backing, lm_map_address(slot), bytes_of(slots), how->lock);
}

/* Runs that the system did not take back. */
static struct {
  lm_lock lock;
  bool begun;
  lm_runs runs;
  _Atomic uint32_t slots; /* in them, to see from without */
} stranded;

static void strand(uint32_t slot, uint32_t slots) {
  lm_thread_add_fork_lock(&stranded.lock);
  lm_lock_take(&stranded.lock);
  if (!stranded.begun) lm_runs_init(&stranded.runs);
  stranded.begun = true;
  lm_map_extent(slot, slots, LM_USE_NONE);
  lm_runs_put(&stranded.runs, slot, slots);
  atomic_store_explicit(&stranded.slots, stranded.runs.slots, memory_order_relaxed);
  lm_lock_drop(&stranded.lock);
}

static uint32_t take_stranded(uint32_t *slots) {
  lm_lock_take(&stranded.lock);
  uint32_t slot = stranded.begun ? lm_runs_take_longest(&stranded.runs, slots) : 0;
  atomic_store_explicit(&stranded.slots, stranded.runs.slots, memory_order_relaxed);
  lm_lock_drop(&stranded.lock);
  return slot;
}

static bool return_or_strand(uint32_t slot, uint32_t slots) {
  bool done = !lm_sys_decommit(lm_map_address(slot), bytes_of(slots));
  if (done) lm_map_put(slot, slots);
  else strand(slot, slots);
  return done;
}

static void return_stranded(void) {
  uint32_t slot, slots;
  while (atomic_load_explicit(&stranded.slots, memory_order_relaxed) &&
         (slot = take_stranded(&slots)) != 0)
    if (!return_or_strand(slot, slots)) return;
}

void lm_regions_return(uint32_t slot, uint32_t slots) { (void)return_or_strand(slot, slots); }

/* A region of exactly these slots, from the range. */
static uint32_t take_region(lm_regions *r, uint32_t slots, size_t align) {
  uint32_t slot = lm_map_take(slots, align);
  if (!slot) return 0;
  const char *why = lm_region_prepare(&r->how, lm_map_address(slot), bytes_of(slots));
  if (why) {
    note_why(r, why);
    (void)punch(&r->how, slot, slots);
    lm_regions_return(slot, slots);
    return 0;
  }
  lm_poison(lm_map_address(slot), bytes_of(slots));
  r->held += slots;
  return slot;
}

/* Slots of the next region: a share of what the pool has already, at least what is asked for. */
static uint32_t region_step(const lm_regions *r, uint32_t slots) {
  if (lm_region_is_eager(&r->how)) return slots > STEP_EAGER ? slots : STEP_EAGER;
  uint32_t step = r->held / 4;
  if (step < STEP_LEAST) step = STEP_LEAST;
  if (step > STEP_MOST) step = STEP_MOST;
  return (uint32_t)lm_align_up(slots > step ? slots : step, HUGE_SLOTS);
}

/* Where the system has no pages of a kind, or lets no more be locked, it is not asked again for
 * each request: the next in the chain serves those, and should not cost two system calls more. */
static bool was_refused(const lm_regions *r, uint32_t slots) {
  return r->refused && slots >= r->refused && lm_sys_clock_ns() - r->refused_ns < REFUSAL_NS;
}

static void note_refusal(lm_regions *r, uint32_t slots) {
  if (!lm_region_is_eager(&r->how) && !takes_handed(&r->how)) return;
  r->refused = slots;
  r->refused_ns = lm_sys_clock_ns();
}

/* A new region; what the request does not need of it is free: clean, or dirty where it has its
 * memory already, so that it joins what comes back and they can go as one. */
static uint32_t grow_locked(lm_regions *r, uint32_t slots, size_t align) {
  uint32_t unit = (uint32_t)(lm_region_page_size(&r->how) >> LM_SLOT_SHIFT);
  size_t floor = bytes_of(unit ? unit : lm_region_is_eager(&r->how) ? 1 : HUGE_SLOTS);
  if (align < floor) align = floor;
  uint32_t least = unit ? (uint32_t)lm_align_up(slots, unit) : slots;
  if (was_refused(r, least)) return 0;
  uint32_t step = region_step(r, slots);
  if (unit) step = (uint32_t)lm_align_up(step, unit);
  uint32_t slot = take_region(r, step, align);
  if (!slot && least < step) slot = take_region(r, step = least, align);
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

/* After slots have left the dirty set. */
static void note_idle_locked(lm_regions *r) {
  if (r->idle > r->dirty.slots) r->idle = r->dirty.slots;
}

/* A program that takes and frees much over and over would have it zeroed and mapped each time: what
 * it misses so is kept next time, until a tick finds that it lay idle. */
static void miss_locked(lm_regions *r, uint32_t slots) {
  uint32_t missed = slots < r->gone ? slots : r->gone;
  r->gone -= missed;
  r->missed += missed;
}

/* A small span between two large blocks would keep them from being one run once they are freed, and
 * who asks for a larger one would have memory that the system has yet to zero. So in a pool that
 * has grown, what is small begins at the far end of what is clean. */
static uint32_t take_clean_locked(lm_regions *r, uint32_t slots, size_t align) {
  bool apart = slots < HUGE_SLOTS && align <= LM_SLOT && r->held >= APART_FROM;
  return apart ? lm_runs_take_spaced(&r->clean, slots, HUGE_SLOTS)
               : lm_runs_take(&r->clean, slots, align);
}

/* Zeroing warm memory again is cheaper than having the kernel zero and map fresh pages. */
static uint32_t take_locked(lm_regions *r, uint32_t slots, size_t align, bool *clean) {
  *clean = false;
  uint32_t slot = lm_runs_take(&r->dirty, slots, align);
  note_idle_locked(r);
  if (slot) return slot;
  *clean = true;
  miss_locked(r, slots);
  slot = take_clean_locked(r, slots, align);
  return slot || r->how.registered ? slot : grow_locked(r, slots, align);
}

/* Between two large blocks there may be slots that nobody has touched: under thp these begin at
 * huge pages, and a region is larger than the block that it was taken for. Such a gap goes with
 * what is freed beside it: else blocks that were freed one by one would never be one run, and who
 * asks for a larger one would get memory that the system has yet to zero. Not where what is clean
 * is not all had yet. */
static void join_gaps_locked(lm_regions *r, uint32_t *slot, uint32_t *slots) {
  bool is_plain = !r->how.backing && !r->how.registered && !lm_region_is_eager(&r->how);
  if (*slots < HUGE_SLOTS || !is_plain || takes_handed(&r->how)) return;
  uint32_t most = *slots / 2 < HUGE_SLOTS ? HUGE_SLOTS - 1 : *slots / 2;
  *slots += lm_runs_take_from(&r->clean, *slot + *slots, most);
  uint32_t before = lm_runs_take_until(&r->clean, *slot - 1, most);
  *slot -= before;
  *slots += before;
}

static void put_dirty(lm_regions *r, uint32_t slot, uint32_t slots) {
  lm_lock_take(&r->lock);
  lm_runs_put(&r->dirty, slot, slots);
  lm_lock_drop(&r->lock);
}

/* Strips a run of its preparation and gives it back to the range. What has lost its part of a file
 * cannot be used again before it is prepared again. */
static bool return_to_range(lm_regions *r, uint32_t slot, uint32_t slots) {
  if (!punch(&r->how, slot, slots)) return false;
  if (r->how.backing) {
    lm_regions_give_up(r, slot, slots);
    return true;
  }
  if (lm_sys_decommit(lm_map_address(slot), bytes_of(slots))) return false;
  lm_regions_forget(r, slot, slots);
  return true;
}

static void put_clean(lm_regions *r, uint32_t slot, uint32_t slots) {
  lm_lock_take(&r->lock);
  lm_runs_put(&r->clean, slot, slots);
  lm_lock_drop(&r->lock);
}

static bool purge_to_clean(lm_regions *r, uint32_t slot, uint32_t slots) {
  bool done = r->how.backing ? punch(&r->how, slot, slots)
                             : !lm_sys_purge(lm_map_address(slot), bytes_of(slots));
  if (done) put_clean(r, slot, slots);
  return done;
}

/* What cannot be emptied and still be what it was (exact pages, locked, faulted in) goes back to
 * the range, by whole pages; what is left at the ends stays dirty. The number of slots. */
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

/* Gives a free run's memory back to the system; if that cannot be, the run is dirty again. */
static bool release(lm_regions *r, uint32_t slot, uint32_t slots) {
  uint32_t done;
  if (lm_region_is_eager(&r->how)) done = return_pages(r, slot, slots);
  else if (slots >= WORTH_RETURNING && !r->how.stays)
    done = return_to_range(r, slot, slots) ? slots : 0;
  else done = purge_to_clean(r, slot, slots) ? slots : 0;
  if (!done) put_dirty(r, slot, slots);
  atomic_fetch_add_explicit(&released, done, memory_order_relaxed);
  return done > 0;
}

static uint32_t longest_beyond(lm_regions *r, uint32_t keep, uint32_t *slots) {
  lm_lock_take(&r->lock);
  uint32_t slot = r->dirty.slots > keep ? lm_runs_take_longest(&r->dirty, slots) : 0;
  note_idle_locked(r);
  lm_lock_drop(&r->lock);
  return slot;
}

/* Releases dirty runs, the longest first, until `keep` slots are left. The lock is not held while
 * the system works: it can take long. */
static uint32_t trim(lm_regions *r, uint32_t keep) {
  uint32_t slot, slots, done = 0;
  if (r->how.registered) return 0;
  while ((slot = longest_beyond(r, keep, &slots)) != 0 && release(r, slot, slots)) done += slots;
  return done;
}

/* What was released may be what is asked for next. */
void lm_regions_trim(lm_regions *r) {
  return_stranded();
  lm_lock_take(&r->lock);
  bool has_some = r->dirty.slots > 0;
  if (has_some) r->refused = 0;
  lm_lock_drop(&r->lock);
  if (has_some) (void)trim(r, 0);
}

size_t lm_regions_released(void) {
  return atomic_load_explicit(&released, memory_order_relaxed) << LM_SLOT_SHIFT;
}

/* At most `most` slots of the longest dirty run: its end, since takers begin at its start. */
static uint32_t cut_longest(lm_regions *r, uint32_t most, uint32_t *slots) {
  lm_lock_take(&r->lock);
  uint32_t slot = lm_runs_take_longest(&r->dirty, slots);
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

/* Which slots lay idle is not known, only how many; a program that takes and frees the same memory
 * over and over thereby keeps as much as it takes. What cannot be released is no reason to come
 * again. */
bool lm_regions_decay(lm_regions *r, uint32_t *most) {
  return_stranded();
  if (r->how.registered) return false;
  lm_lock_take(&r->lock);
  uint32_t idle = r->idle;
  bool more = r->dirty.slots > idle || idle > *most;
  r->idle = r->dirty.slots;
  r->gone = 0;
  r->missed -= idle < r->missed ? idle : r->missed;
  lm_lock_drop(&r->lock);
  if (idle > *most) idle = *most;
  uint32_t slot, slots;
  while (idle && (slot = cut_longest(r, idle, &slots)) != 0) {
    idle -= slots;
    *most -= slots;
    if (!release(r, slot, slots)) break;
  }
  return more;
}

static bool was_refused_now(lm_regions *r, uint32_t slots) {
  lm_lock_take(&r->lock);
  bool refused = was_refused(r, slots);
  lm_lock_drop(&r->lock);
  return refused;
}

/* A clean run that has no memory yet, handed out: whether it has it now. */
static bool have(lm_regions *r, uint32_t slot, uint32_t slots) {
  if (!was_refused_now(r, slots)) {
    const char *why = lm_region_populate(&r->how, lm_map_address(slot), bytes_of(slots));
    if (!why) return true;
    note_why(r, why);
  }
  lm_lock_take(&r->lock);
  if (!was_refused(r, slots)) note_refusal(r, slots);
  lm_lock_drop(&r->lock);
  /* Nobody has written to it, and were it dirty it would be taken for what has its memory. */
  if (!purge_to_clean(r, slot, slots)) put_clean(r, slot, slots);
  return false;
}

static uint32_t try_take(lm_regions *r, uint32_t slots, size_t align, bool *clean) {
  lm_lock_take(&r->lock);
  uint32_t slot = take_locked(r, slots, align, clean);
  lm_lock_drop(&r->lock);
  return slot && *clean && takes_handed(&r->how) && !have(r, slot, slots) ? 0 : slot;
}

uint32_t lm_regions_take(lm_regions *r, uint32_t slots, size_t align, bool *clean) {
  uint32_t slot = try_take(r, slots, align, clean);
  if (slot || r->how.registered) return slot;
  /* Dirty and clean neighbours may do together what neither does alone. */
  lm_regions_trim(r);
  return try_take(r, slots, align, clean);
}

static uint32_t dirty_to_keep_locked(const lm_regions *r) {
  uint32_t share = (r->held - r->clean.slots - r->dirty.slots) / 4;
  uint32_t least = lm_region_is_eager(&r->how) ? DIRTY_KEPT_EAGER : DIRTY_KEPT;
  return share > least ? share : least;
}

static void let_go_beyond(lm_regions *r, uint32_t keep) {
  uint32_t done = trim(r, keep);
  lm_lock_take(&r->lock);
  r->gone += done;
  lm_lock_drop(&r->lock);
}

void lm_regions_put(lm_regions *r, uint32_t slot, uint32_t slots) {
  lm_lock_take(&r->lock);
  lm_verify(lm_regions_is_valid(r));
  join_gaps_locked(r, &slot, &slots);
  lm_runs_put(&r->dirty, slot, slots);
  uint32_t keep = dirty_to_keep_locked(r);
  bool over = r->dirty.slots > keep, much = r->dirty.slots >= LM_DECAY_MIN_SLOTS;
  if (over && !lm_decay_is_served()) r->gone = r->missed = 0; /* no tick would end it */
  over = r->dirty.slots > keep + r->missed;
  keep = keep / 2 + r->missed;
  lm_lock_drop(&r->lock);
  if (much || r->how.registered) lm_decay_stir();
  /* To half, so that a program that frees and takes the same large block does not come here each
   * time: its block would be the longest. */
  if (over) let_go_beyond(r, keep);
}

bool lm_regions_extend(lm_regions *r, uint32_t slot, uint32_t slots) {
  lm_lock_take(&r->lock);
  bool clean = lm_runs_take_at(&r->clean, slot, slots);
  bool taken = clean || lm_runs_take_at(&r->dirty, slot, slots);
  note_idle_locked(r);
  lm_lock_drop(&r->lock);
  return taken && (!clean || !takes_handed(&r->how) || have(r, slot, slots));
}

bool lm_regions_has_dirty(lm_regions *r, uint32_t slots) {
  lm_lock_take(&r->lock);
  bool has = lm_runs_has(&r->dirty, slots);
  lm_lock_drop(&r->lock);
  return has;
}

static void hold_less(lm_regions *r, uint32_t slots) {
  lm_lock_take(&r->lock);
  r->held -= slots;
  lm_lock_drop(&r->lock);
}

void lm_regions_add_used(lm_regions *r, uint32_t slots) {
  lm_lock_take(&r->lock);
  r->held += slots;
  lm_lock_drop(&r->lock);
}

void lm_regions_remove_used(lm_regions *r, uint32_t slots) { hold_less(r, slots); }

void lm_regions_forget(lm_regions *r, uint32_t slot, uint32_t slots) {
  hold_less(r, slots);
  lm_map_put(slot, slots);
}

void lm_regions_give_up(lm_regions *r, uint32_t slot, uint32_t slots) {
  hold_less(r, slots);
  lm_regions_return(slot, slots);
}

/* ---- Registered memory */

void lm_regions_add(lm_regions *r, uint32_t slot, uint32_t slots) {
  lm_poison(lm_map_address(slot), bytes_of(slots));
  lm_lock_take(&r->lock);
  r->held += slots;
  lm_runs_put(&r->dirty, slot, slots);
  lm_lock_drop(&r->lock);
}

uint32_t lm_regions_take_idle(lm_regions *r, uint32_t *most, lm_runs_suits *suits, int ctx,
                              uint32_t *slots) {
  lm_lock_take(&r->lock);
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

static uint32_t longest_clean(lm_regions *r, uint32_t *slots) {
  lm_lock_take(&r->lock);
  uint32_t slot = lm_runs_take_longest(&r->clean, slots);
  lm_lock_drop(&r->lock);
  return slot;
}

bool lm_regions_drain(lm_regions *r) {
  uint32_t slot, slots;
  lm_regions_trim(r);
  while ((slot = longest_clean(r, &slots)) != 0) {
    if (return_to_range(r, slot, slots)) continue;
    put_dirty(r, slot, slots);
    return false;
  }
  return r->held == 0;
}

static void give_up_all(lm_regions *r, lm_runs *runs) {
  uint32_t slot, slots;
  while ((slot = lm_runs_take_longest(runs, &slots)) != 0) lm_regions_give_up(r, slot, slots);
}

void lm_regions_fork_child(lm_regions *r) {
  give_up_all(r, &r->clean);
  give_up_all(r, &r->dirty);
  r->idle = 0;
  r->refused = 0;
  lm_backing_fork_child(r->how.backing);
}

bool lm_regions_is_valid(const lm_regions *r) {
  return lm_runs_is_valid(&r->clean) && lm_runs_is_valid(&r->dirty) &&
         r->clean.slots + r->dirty.slots <= r->held && r->idle <= r->dirty.slots;
}
