/* range.c - the range: reserving it, and handing out its slots. */
#include "pages/range.h"

#include "pages/run.h"

/* A limit on the address space makes the range smaller than LM_RANGE, down to this many bytes. */
#define RANGE_LEAST ((size_t)1 << 22)
/* The array of entries becomes accessible in steps of this many bytes, because a system that does
 * not overcommit counts all that is accessible. One step describes 64 MiB of the range. */
#define ENTRIES_STEP ((size_t)1 << 16)

/* Law, while the lock is free: taken + free.slots is the number of slots from LM_MAP_FIRST to the
 * top. */
static struct {
  lm_lock lock;
  lm_runs free;     /* runs that were given back */
  size_t most;      /* bytes that may be taken because of RLIMIT_AS; 0: no such limit */
  size_t committed; /* accessible bytes of the entries; of the times (lm_map.born), 1/16 of it */
  _Atomic size_t taken; /* slots in use; written under the lock. Relaxed: to others a figure */
} range;

const _Atomic size_t *const lm_range_outside = &range.taken;

static size_t entry_bytes(size_t size) { return (size >> LM_SLOT_SHIFT) * sizeof(lm_span); }
/* Whole pages, because the entries follow the times. */
static size_t time_bytes(size_t size) {
  return lm_align_up((size >> LM_SLOT_SHIFT) * sizeof *lm_map.born, LM_PAGE);
}

/* The whole range begins at a multiple of its own size (see lm_map_span_in). A smaller one begins
 * at a multiple of 1 GiB if that costs little, so that blocks can have that alignment. */
static size_t alignment_of(size_t size) {
  if (size == LM_RANGE) return LM_RANGE;
  return size >= 16 * LM_GIB ? LM_GIB : 2 * LM_MIB;
}

/* Makes all entries of a whole range readable, so that the fast path of free can look at the entry
 * of any address in the range. lm_map_span_in compares the address bits above LM_RANGE, so `reach`
 * must have those of `base`: true where addresses have 47 bits. */
static void make_entries_readable(void) {
  uintptr_t reach = lm_map.span_of_0;
  if (lm_map.size < LM_RANGE || (reach ^ lm_map.base) >> LM_RANGE_SHIFT) return;
  size_t bytes = entry_bytes(LM_RANGE);
  if (lm_sys_make_readable((char *)lm_map.base - bytes, bytes)) return;
  /* Release pairs with the loads of `reach` by threads: the entries are readable by then. */
  atomic_store_explicit(&lm_map.reach, reach, memory_order_release);
}

/* Reserves the range and, before it, its two arrays: the times, then the entries, which end where
 * the range begins. Half as much address space again is reserved and given back: so if address
 * space is limited, the host keeps at least a third of it. The rest that the alignment leaves is
 * given back too. */
static bool reserve(size_t size) {
  size_t arrays = entry_bytes(size) + time_bytes(size), align = alignment_of(size);
  size_t whole = arrays + align + size + size / 2;
  void *at;
  if (lm_sys_reserve(whole, LM_PAGE, &at)) return false;
  uintptr_t start = (uintptr_t)at, base = lm_align_up(start + arrays, align);
  lm_assert(base - arrays >= start && base + size <= start + whole);
  lm_sys_unmap((void *)(base + size), start + whole - base - size);
  lm_sys_unmap(at, base - arrays - start);
  lm_map.born = (_Atomic uint32_t *)(base - arrays);
  lm_map.span_of_0 = base + ((base >> LM_SLOT_SHIFT) - 1) * sizeof(lm_span);
  lm_map.size = size;
  lm_map.base = base;
  lm_assert(lm_map_span_of((void *)base) == lm_map_span(0));
  make_entries_readable();
  return true;
}

static bool begin_locked(void) {
  if (lm_map.base) return true;
  for (size_t size = LM_RANGE; size >= RANGE_LEAST; size /= 2)
    if (reserve(size)) {
      lm_runs_init(&range.free);
      return true;
    }
  return false;
}

bool lm_range_reserves(const void *p) {
  /* Acquire pairs with the release in take_from_top_locked: lm_map is filled in. */
  if (!atomic_load_explicit(&lm_map.top, memory_order_acquire)) return false;
  uintptr_t first = (uintptr_t)lm_map.born;
  return (uintptr_t)p - first < lm_map.base - first + lm_map.size;
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
  if (need > entry_bytes(lm_map.size)) need = entry_bytes(lm_map.size);
  if (need <= range.committed) return true;
  if (!commit_entries(need) || !commit_times(need)) return false;
  range.committed = need;
  return true;
}

/* Takes slots that were never used before. If the alignment leaves a gap below them, the gap
 * becomes a free run. */
static uint32_t take_from_top_locked(uint32_t slots, size_t align) {
  size_t old = atomic_load_explicit(&lm_map.top, memory_order_relaxed);
  if (!old) old = (size_t)LM_MAP_FIRST << LM_SLOT_SHIFT;
  if (align < LM_SLOT) align = LM_SLOT;
  size_t at = lm_align_up(lm_map.base + old, align) - lm_map.base;
  size_t size = (size_t)slots << LM_SLOT_SHIFT;
  if (at > lm_map.size || lm_map.size - at < size || !commit_arrays_locked(at + size)) return 0;
  uint32_t slot = (uint32_t)(at >> LM_SLOT_SHIFT), first = (uint32_t)(old >> LM_SLOT_SHIFT);
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
  return slot ? slot : take_from_top_locked(slots, align);
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

void lm_range_put(uint32_t slot, uint32_t slots) {
  lm_assert(slot >= LM_MAP_FIRST && slots > 0);
  lm_assert(lm_map_owns((const char *)lm_map_address(slot + slots) - 1));
  lm_lock_take(&range.lock);
  lm_runs_put(&range.free, slot, slots);
  size_t taken = atomic_fetch_sub_explicit(&range.taken, slots, memory_order_relaxed);
  lm_lock_drop(&range.lock);
  lm_assert(taken >= slots);
  (void)taken;
}

/* Returns how many bytes may be taken from the range under this limit, while the address space has
 * `used` bytes. A program that has set the limit to so much more than its address space now means
 * that much more. A limit below the reserved address space cannot include the reservation, which
 * takes no memory. So the reservation is left out of the sum then. */
static size_t most_under_limit_locked(size_t used, size_t limit) {
  size_t taken = atomic_load_explicit(&range.taken, memory_order_relaxed) << LM_SLOT_SHIFT;
  if (limit >= used) return taken + (limit - used);
  size_t reserved = lm_map.size + entry_bytes(lm_map.size) + time_bytes(lm_map.size);
  size_t others = used > reserved ? used - reserved : 0;
  return limit > others ? limit - others : 0;
}

/* Before the range is reserved, nothing is to be done: its size will obey the limit. */
void lm_range_limit_changed(void) {
  size_t used, limit;
  if (lm_sys_address_space(&used, &limit)) return;
  lm_lock_take(&range.lock);
  size_t most = lm_map.base && limit < SIZE_MAX ? most_under_limit_locked(used, limit) : SIZE_MAX;
  range.most = most < LM_SLOT ? LM_SLOT : most < lm_map.size ? most : 0;
  lm_lock_drop(&range.lock);
}

lm_lock *lm_range_lock(void) { return &range.lock; }
size_t lm_range_used(void) {
  return atomic_load_explicit(&range.taken, memory_order_relaxed) << LM_SLOT_SHIFT;
}
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
