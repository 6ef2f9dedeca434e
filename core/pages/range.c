/* range.c - the range: reserving it, and handing out its slots. */
#include "pages/range.h"

#include "os/thread.h"
#include "pages/run.h"

/* Where less address space can be reserved than LM_RANGE, the range has half of that, or a quarter,
 * and so on down to this many bytes. */
#define RANGE_LEAST ((size_t)1 << 22)
/* A sparse range begins in one of so many places below the host's mappings. */
enum { SPARSE_PLACES = 8 };
/* The array of entries becomes accessible in steps of this many bytes, because a system that does
 * not overcommit counts all that is accessible. One step describes 64 MiB of the range. */
#define ENTRIES_STEP ((size_t)1 << 16)
#define STEP_COVERS (ENTRIES_STEP / sizeof(lm_span) << LM_SLOT_SHIFT)

/* A range is sparse under a limit on the address space (RLIMIT_AS) below what a whole range needs,
 * from its beginning or since the limit was set. In a sparse range, only the slots that are taken
 * are reserved: the kernel counts reserved address space against the limit.
 *
 * Law, while the lock is free: taken + free.slots is the number of slots from LM_MAP_FIRST to the
 * top; top <= covered <= lm_map.size; covered == lm_map.size unless the range is sparse. */
static struct {
  lm_lock lock;
  lm_runs free;     /* runs that were given back */
  size_t most;      /* bytes that may be taken because of RLIMIT_AS; 0: no such limit */
  size_t committed; /* accessible bytes of the entries; of the times (lm_map.born), 1/16 of it */
  size_t covered;   /* bytes of the range whose entries and times are reserved */
  _Atomic size_t taken;   /* slots in use; written under the lock. Relaxed: to others a figure */
  _Atomic bool is_sparse; /* only becomes true; written under the lock; relaxed */
} range;

const _Atomic size_t *const lm_range_outside = &range.taken;

static size_t entry_bytes(size_t size) { return (size >> LM_SLOT_SHIFT) * sizeof(lm_span); }
/* Whole pages, because the entries follow the times. */
static size_t time_bytes(size_t size) {
  return lm_align_up((size >> LM_SLOT_SHIFT) * sizeof *lm_map.born, LM_PAGE);
}

/* The range begins at a multiple of 1 GiB if that costs little, so that blocks can have that
 * alignment. */
static size_t alignment_of(size_t size) { return size >= 16 * LM_GIB ? LM_GIB : 2 * LM_MIB; }

/* Makes all entries of a whole range readable, so that the fast path of free can look at the entry
 * of any address in the range. */
static void make_entries_readable(void) {
  if (lm_map.size < LM_RANGE) return;
  size_t bytes = entry_bytes(LM_RANGE);
  if (lm_sys_make_readable((char *)lm_map.base - bytes, bytes)) return;
  /* Release pairs with the loads of `reach` by threads: the entries are readable by then. */
  atomic_store_explicit(&lm_map.reach, lm_map.base, memory_order_release);
}

/* Sets where the range is. Before it stand its two arrays: the times, then the entries, which end
 * where the range begins. */
static void place(uintptr_t base, size_t size) {
  lm_assert(base % LM_SLOT == 0);
  lm_map.born = (_Atomic uint32_t *)(base - entry_bytes(size) - time_bytes(size));
  lm_map.size = size;
  lm_map.base = base;
}

/* Reserves the range and its arrays. Half as much address space again is reserved and given back:
 * so if address space is short, the host keeps at least a third of it. The rest that the alignment
 * leaves is given back too. */
static bool reserve(size_t size) {
  size_t arrays = entry_bytes(size) + time_bytes(size), align = alignment_of(size);
  size_t whole = arrays + align + size + size / 2;
  void *at;
  if (lm_sys_reserve(whole, &at)) return false;
  uintptr_t start = (uintptr_t)at, base = lm_align_up(start + arrays, align);
  lm_assert(base - arrays >= start && base + size <= start + whole);
  lm_sys_unmap((void *)(base + size), start + whole - base - size);
  lm_sys_unmap(at, base - arrays - start);
  place(base, size);
  range.covered = size;
  make_entries_readable();
  return true;
}

/* Returns the bytes of the range that the arrays must cover so that `bytes` can be taken. */
static size_t cover_of(size_t bytes) {
  if (bytes >= lm_map.size) return lm_map.size;
  size_t covered = lm_align_up(bytes, STEP_COVERS);
  return covered < lm_map.size ? covered : lm_map.size;
}

/* Reserves more of the arrays of a sparse range, so that they describe `bytes` bytes. If the limit
 * on address space does not allow it, the arrays do not change. */
static void cover_locked(size_t bytes) {
  size_t covered = cover_of(bytes), old = range.covered;
  if (covered <= old) return;
  void *entries = (char *)lm_map.base - entry_bytes(covered);
  size_t more = entry_bytes(covered) - entry_bytes(old);
  size_t times = time_bytes(covered) - time_bytes(old);
  if (lm_sys_reserve_at(entries, more)) return;
  if (lm_sys_reserve_at((char *)lm_map.born + time_bytes(old), times)) lm_sys_unmap(entries, more);
  else range.covered = covered;
}

/* Begins a sparse range, of which only the arrays are reserved, as far as `limit` needs them. It
 * lies below the place where the kernel puts a mapping now, since the kernel puts later mappings
 * close to earlier ones. If another mapping is where the arrays begin, the next place is tried. */
static bool begin_sparse_locked(size_t limit) {
  void *now;
  if (lm_sys_reserve(LM_PAGE, &now)) return false;
  lm_sys_unmap(now, LM_PAGE);
  uintptr_t base = (uintptr_t)now & ~(LM_RANGE - 1);
  for (int i = 0; i < SPARSE_PLACES && base > 2 * LM_RANGE && !range.covered; i++) {
    base -= LM_RANGE;
    place(base, LM_RANGE);
    cover_locked(limit);
  }
  if (!range.covered) lm_map.base = 0;
  atomic_store_explicit(&range.is_sparse, range.covered > 0, memory_order_relaxed);
  return range.covered > 0;
}

loam_status lm_range_check(void) {
  size_t page = lm_sys_page_size();
  if (page == LM_PAGE) return LOAM_OK;
  return lm_error(LOAM_EUNSUPPORTED, "loam needs a kernel with pages of %zu KiB: this one has %zu",
                  LM_PAGE / LM_KIB, page / LM_KIB);
}

static bool begin_locked(void) {
  if (lm_map.base) return true;
  if (lm_sys_page_size() != LM_PAGE) return false;
  bool begun = reserve(LM_RANGE);
  size_t limit = begun ? SIZE_MAX : lm_sys_address_limit();
  if (limit != SIZE_MAX) begun = begin_sparse_locked(limit);
  for (size_t size = LM_RANGE / 2; !begun && size >= RANGE_LEAST; size /= 2) begun = reserve(size);
  if (begun) lm_runs_init(&range.free);
  return begun;
}

bool lm_range_reserves(const void *p) {
  /* Acquire pairs with the release in take_from_top_locked: lm_map is filled in. */
  if (!atomic_load_explicit(&lm_map.top, memory_order_acquire)) return false;
  uintptr_t first = (uintptr_t)lm_map.born;
  size_t size = lm_range_is_sparse() ? atomic_load_explicit(&lm_map.top, memory_order_relaxed)
                                     : lm_map.size;
  return (uintptr_t)p - first < lm_map.base - first + size;
}

/* The entries grow downwards from the beginning of the range, the times upwards. */
static bool commit_entries(size_t need) {
  return !lm_sys_commit((char *)lm_map.base - need, need - range.committed);
}
static bool commit_times(size_t need) {
  size_t each = sizeof(lm_span) / sizeof *lm_map.born;
  return !lm_sys_commit((char *)lm_map.born + range.committed / each,
                        (need - range.committed) / each);
}

/* Makes the parts of both arrays accessible that describe the range up to `top` bytes. */
static bool commit_arrays_locked(size_t top) {
  size_t need = lm_align_up(entry_bytes(top), ENTRIES_STEP);
  if (need > entry_bytes(range.covered)) need = entry_bytes(range.covered);
  if (need <= range.committed) return true;
  if (!commit_entries(need) || !commit_times(need)) return false;
  range.committed = need;
  return true;
}

/* Reserves the address space of slots that are about to be taken, if the range is sparse. False:
 * the limit on address space does not allow it, or another mapping is there. */
static bool reserve_slots_locked(uint32_t slot, uint32_t slots) {
  if (!lm_range_is_sparse()) return true;
  return !lm_sys_reserve_at(lm_map_address(slot), (size_t)slots << LM_SLOT_SHIFT);
}

/* Takes slots that were never used before. If the alignment leaves a gap below them, the gap
 * becomes a free run. */
static uint32_t take_from_top_locked(uint32_t slots, size_t align) {
  size_t old = atomic_load_explicit(&lm_map.top, memory_order_relaxed);
  if (!old) old = (size_t)LM_MAP_FIRST << LM_SLOT_SHIFT;
  if (align < LM_SLOT) align = LM_SLOT;
  size_t at = lm_align_up(lm_map.base + old, align) - lm_map.base;
  size_t size = (size_t)slots << LM_SLOT_SHIFT;
  if (at > range.covered || range.covered - at < size || !commit_arrays_locked(at + size)) return 0;
  uint32_t slot = (uint32_t)(at >> LM_SLOT_SHIFT), first = (uint32_t)(old >> LM_SLOT_SHIFT);
  if (!reserve_slots_locked(slot, slots)) return 0;
  lm_map_extent(slot, slots, LM_USE_NONE);
  if (first < slot) lm_map_extent(first, slot - first, LM_USE_NONE);
  /* Release pairs with the acquire of lm_map_owns: the new extents are described. */
  atomic_store_explicit(&lm_map.top, at + size, memory_order_release);
  if (first < slot) lm_runs_put(&range.free, first, slot - first);
  return slot;
}

/* Returns whether the limit on address space allows so many slots more. */
static bool is_allowed_locked(uint32_t slots) {
  size_t taken = atomic_load_explicit(&range.taken, memory_order_relaxed);
  return !range.most || (taken + slots) << LM_SLOT_SHIFT <= range.most;
}

static uint32_t take_locked(uint32_t slots, size_t align) {
  if (!begin_locked() || !is_allowed_locked(slots)) return 0;
  uint32_t slot = lm_runs_take(&range.free, slots, align);
  if (lm_likely(slot && reserve_slots_locked(slot, slots))) return slot;
  if (slot) lm_runs_put(&range.free, slot, slots);
  return take_from_top_locked(slots, align);
}

uint32_t lm_range_take(uint32_t slots, size_t align) {
  lm_assert(slots > 0 && lm_is_pow2(align));
  lm_lock_take(&range.lock);
  uint32_t slot = take_locked(slots, align);
  if (slot) atomic_fetch_add_explicit(&range.taken, slots, memory_order_relaxed);
  lm_lock_drop(&range.lock);
  lm_assert(!slot || slot >= LM_MAP_FIRST);
  return slot;
}

bool lm_range_is_sparse(void) {
  return atomic_load_explicit(&range.is_sparse, memory_order_relaxed);
}

void lm_range_put(uint32_t slot, uint32_t slots) {
  lm_assert(slot >= LM_MAP_FIRST && slots > 0);
  lm_assert(lm_map_owns((const char *)lm_map_address(slot + slots) - 1));
  lm_lock_take(&range.lock);
  if (lm_range_is_sparse()) lm_sys_unmap(lm_map_address(slot), (size_t)slots << LM_SLOT_SHIFT);
  lm_runs_put(&range.free, slot, slots);
  size_t taken = atomic_fetch_sub_explicit(&range.taken, slots, memory_order_relaxed);
  lm_lock_drop(&range.lock);
  lm_assert(taken >= slots);
  (void)taken;
}

/* ---- Limits on the address space ---- */

static void forget_reach(lm_thread *t, void *unused) {
  (void)unused;
  atomic_store(&t->reach, LM_REACH_NONE);
}

/* Takes the value of lm_map.reach from all threads, so that no free reads an entry above the top
 * any more. The first grace finds out whether graces are possible. After the second grace, every
 * thread that had read lm_map.reach has stored it to its own `reach`. After the third grace, every
 * free that had read a thread's `reach` is over. Returns false where graces are not possible. */
static bool close_reach(void) {
  if (!lm_thread_grace()) return false;
  atomic_store(&lm_map.reach, 0);
  if (!lm_thread_grace()) return false;
  lm_thread_each(forget_reach, NULL);
  return lm_thread_grace();
}

/* Unmaps all of the range that is not taken, and the parts of the arrays that describe none of the
 * first `bytes` bytes. reserve_slots_locked and cover_locked reserve them again. */
static void make_sparse_locked(size_t bytes) {
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_relaxed);
  uint32_t slot, slots;
  lm_runs unmapped = { 0 };
  lm_runs_init(&unmapped);
  while ((slot = lm_runs_take_longest(&range.free, &slots)) != 0) {
    lm_sys_unmap(lm_map_address(slot), (size_t)slots << LM_SLOT_SHIFT);
    lm_runs_put(&unmapped, slot, slots);
  }
  range.free = unmapped;
  range.covered = cover_of(bytes > top ? bytes : top);
  char *times_end = (char *)lm_map.born + time_bytes(range.covered);
  char *entries = (char *)lm_map.base - entry_bytes(range.covered);
  lm_sys_unmap((void *)(lm_map.base + top), lm_map.size - top);
  lm_sys_unmap(times_end, (size_t)(entries - times_end));
  atomic_store_explicit(&range.is_sparse, true, memory_order_relaxed);
}

/* Returns `most` of `range` under this limit, for a range that is not sparse, while the address
 * space of the process has `used` bytes. A program that has set the limit to so much more than its
 * address space now means that much more. A limit below the reserved address space cannot include
 * the reservation, which takes no memory. So the reservation is left out of the sum then. */
static size_t most_under_limit_locked(size_t used, size_t limit) {
  size_t taken = atomic_load_explicit(&range.taken, memory_order_relaxed) << LM_SLOT_SHIFT;
  size_t reserved = lm_map.size + entry_bytes(lm_map.size) + time_bytes(lm_map.size);
  size_t others = used > reserved ? used - reserved : 0;
  if (!lm_map.base || limit == SIZE_MAX) return 0;
  size_t most = limit >= used ? taken + (limit - used) : limit > others ? limit - others : 0;
  return most < LM_SLOT ? LM_SLOT : most < lm_map.size ? most : 0;
}

/* Before the range is reserved, nothing is to be done: the range will begin under the limit. */
void lm_range_limit_changed(void) {
  size_t used, limit = lm_sys_address_limit();
  if (lm_sys_address_space(&used)) return;
  bool is_reserved = atomic_load_explicit(&lm_map.top, memory_order_acquire) != 0;
  bool is_closed = is_reserved && limit < used && close_reach();
  lm_lock_take(&range.lock);
  if (is_closed && !lm_range_is_sparse()) make_sparse_locked(limit);
  if (lm_range_is_sparse()) {
    cover_locked(limit);
    range.most = 0; /* the kernel itself applies the limit to a sparse range */
  } else {
    range.most = most_under_limit_locked(used, limit);
  }
  lm_lock_drop(&range.lock);
}

lm_lock *lm_range_lock(void) { return &range.lock; }
size_t lm_range_used(void) {
  return atomic_load_explicit(&range.taken, memory_order_relaxed) << LM_SLOT_SHIFT;
}
size_t lm_range_reserved(void) { return lm_range_is_sparse() ? lm_range_used() : lm_map.size; }
size_t lm_range_overhead(void) {
  return (atomic_load_explicit(&lm_map.top, memory_order_relaxed) >> LM_SLOT_SHIFT) *
         sizeof(lm_span);
}

/* Returns whether each slot below the top is either taken or free. */
static bool is_every_slot_counted_locked(void) {
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_relaxed) >> LM_SLOT_SHIFT;
  size_t counted = atomic_load_explicit(&range.taken, memory_order_relaxed) + range.free.slots;
  return counted == (top ? top - LM_MAP_FIRST : 0);
}

bool lm_range_is_valid(void) {
  lm_lock_take(&range.lock);
  bool valid = lm_map_is_valid() && lm_runs_is_valid(&range.free) && is_every_slot_counted_locked();
  lm_lock_drop(&range.lock);
  return valid;
}
