/* extent.c - ranges cut into extents: the table of all ranges, the index of a range, and sets of
 * extents by size. extent.h has the laws. */
#include "device/extent.h"

#include "os/thread.h"

/* ---- The table of ranges */

/* 256 GiB in the smallest allocations of a manager, of 2 MiB each (CHUNK_LEAST). The table takes
 * memory only as far as it is used. */
enum { RANGES_MAX = 1 << 17 };

/* All ranges. A reader takes no lock: it searches again when `version` was odd or has changed (a
 * sequence lock). The structs of ranges are never freed (device_pool_grow.c reuses them), so a
 * reader may look at one that was removed.
 *
 * Law: n <= RANGES_MAX; while no thread writes, the rows 0 to n - 1 are sorted by address and do
 * not overlap.
 *
 * Rows and `n` are stored and loaded relaxed: `version` orders them. A writer makes it odd and then
 * has a release fence before it changes rows, which pairs with the acquire fence of a reader; it
 * makes it even with a release, which pairs with a reader's acquire. */
static LM_SPARSE struct {
  lm_lock lock;             /* held by the thread that writes */
  _Atomic uint32_t version; /* odd: a thread is writing */
  _Atomic uint32_t n;       /* rows in use */
  struct {
    _Atomic uintptr_t base, end;
    _Atomic(lm_extent_range *) range;
  } at[RANGES_MAX];
} table;

static void copy_row(uint32_t to, uint32_t from) {
  atomic_store_explicit(&table.at[to].base, atomic_load(&table.at[from].base),
                        memory_order_relaxed);
  atomic_store_explicit(&table.at[to].end, atomic_load(&table.at[from].end), memory_order_relaxed);
  atomic_store_explicit(&table.at[to].range, atomic_load(&table.at[from].range),
                        memory_order_relaxed);
}

/* Begins a change of the table: the fence keeps changes of rows behind the odd version. */
static void begin_write_locked(void) {
  lm_assert(!(atomic_load(&table.version) & 1));
  atomic_fetch_add_explicit(&table.version, 1, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
}

/* Ends a change: the release pairs with the acquire in lm_extent_range_of. */
static void end_write_locked(void) {
  lm_assert(atomic_load(&table.version) & 1);
  atomic_fetch_add_explicit(&table.version, 1, memory_order_release);
}

static void remove_locked(uint32_t i) {
  uint32_t n = atomic_load(&table.n);
  lm_assert(i < n && n <= RANGES_MAX);
  begin_write_locked();
  for (; i + 1 < n; i++) copy_row(i, i + 1);
  atomic_store_explicit(&table.n, n - 1, memory_order_relaxed);
  end_write_locked();
}

/* Removes ranges that overlap with `r`. A driver returns addresses that it has returned before only
 * after their memory went, together with its context. */
static void remove_overlapping_locked(const lm_extent_range *r) {
  for (uint32_t i = atomic_load(&table.n); i-- > 0;)
    if (atomic_load(&table.at[i].base) < r->base + r->size &&
        atomic_load(&table.at[i].end) > r->base)
      remove_locked(i);
}

/* Adds a range to the table. Returns false if the table is full. */
static bool insert_range(lm_extent_range *r) {
  lm_lock_take(&table.lock);
  remove_overlapping_locked(r);
  uint32_t n = atomic_load(&table.n), i = n;
  if (n < RANGES_MAX) {
    begin_write_locked();
    for (; i > 0 && atomic_load(&table.at[i - 1].base) > r->base; i--) copy_row(i, i - 1);
    atomic_store_explicit(&table.at[i].base, r->base, memory_order_relaxed);
    atomic_store_explicit(&table.at[i].end, r->base + r->size, memory_order_relaxed);
    atomic_store_explicit(&table.at[i].range, r, memory_order_relaxed);
    atomic_store_explicit(&table.n, n + 1, memory_order_relaxed);
    end_write_locked();
  }
  lm_lock_drop(&table.lock);
  return n < RANGES_MAX;
}

static void remove_range(const lm_extent_range *r) {
  lm_lock_take(&table.lock);
  uint32_t n = atomic_load(&table.n), i = 0;
  while (i < n && atomic_load(&table.at[i].range) != r) i++;
  if (i < n) remove_locked(i);
  lm_lock_drop(&table.lock);
}

/* Returns the range that an address is in, by binary search; NULL: none. The result counts only if
 * no thread has written in the meantime. */
static lm_extent_range *search(uintptr_t at) {
  uint32_t low = 0, high = atomic_load_explicit(&table.n, memory_order_relaxed);
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (atomic_load_explicit(&table.at[middle].base, memory_order_relaxed) <= at) low = middle + 1;
    else high = middle;
  }
  if (!low || at >= atomic_load_explicit(&table.at[low - 1].end, memory_order_relaxed)) return NULL;
  return atomic_load_explicit(&table.at[low - 1].range, memory_order_relaxed);
}

bool lm_extent_table_is_valid(void) {
  bool valid = true;
  lm_lock_take(&table.lock);
  uint32_t n = atomic_load(&table.n);
  for (uint32_t i = 0; i < n && i < RANGES_MAX; i++) {
    valid = valid && atomic_load(&table.at[i].base) < atomic_load(&table.at[i].end);
    if (i) valid = valid && atomic_load(&table.at[i - 1].end) <= atomic_load(&table.at[i].base);
  }
  lm_lock_drop(&table.lock);
  return valid && n <= RANGES_MAX;
}

lm_extent_range *lm_extent_range_of(uintptr_t at) {
  for (;;) {
    uint32_t before = atomic_load_explicit(&table.version, memory_order_acquire);
    lm_extent_range *found = search(at);
    atomic_thread_fence(memory_order_acquire);
    if (!(before & 1) && atomic_load_explicit(&table.version, memory_order_relaxed) == before)
      return found;
  }
}

/* ---- The index */

static size_t granule_of(const lm_extent_range *r, uintptr_t at) {
  lm_assert(at - r->base < r->size);
  return (at - r->base) >> r->shift;
}

/* Sets the index entry of the granule at `at`: `e` begins there; NULL: no extent does. */
static void index_start(lm_extent_range *r, uintptr_t at, lm_extent *e) {
  size_t g = granule_of(r, at);
  r->start[g] = e;
  if (e) r->begins[g / 64] |= (uint64_t)1 << g % 64;
  else r->begins[g / 64] &= ~((uint64_t)1 << g % 64);
}

static size_t start_bytes(const lm_extent_range *r) {
  return lm_align_up((r->size >> r->shift) * sizeof *r->start, LM_PAGE);
}

static size_t begins_bytes(const lm_extent_range *r) {
  return lm_align_up(((r->size >> r->shift) + 63) / 8, LM_PAGE);
}

/* Maps zeroed memory for the index. Returns false where there is none. */
static bool map_index(lm_extent_range *r) {
  void *start, *begins;
  if (lm_sys_map(start_bytes(r), &start)) return false;
  if (lm_sys_map(begins_bytes(r), &begins)) {
    lm_sys_unmap(start, start_bytes(r));
    return false;
  }
  r->start = start;
  r->begins = begins;
  return true;
}

static void unmap_index(lm_extent_range *r) {
  lm_sys_unmap(r->start, start_bytes(r));
  lm_sys_unmap(r->begins, begins_bytes(r));
  r->start = NULL;
}

bool lm_extent_range_init(lm_extent_range *r, uintptr_t base, size_t size, unsigned shift,
                          lm_extent *whole) {
  lm_assert(size > 0 && shift < 64 && size % ((size_t)1 << shift) == 0);
  lm_thread_add_fork_lock(&table.lock);
  r->base = base;
  r->size = size;
  r->shift = shift;
  if (!map_index(r)) return false;
  *whole = (lm_extent){ .at = base, .size = size, .range = r, .state = LM_EXTENT_HOLE };
  r->first = whole;
  index_start(r, base, whole);
  if (insert_range(r)) {
    lm_verify(lm_extent_table_is_valid());
    return true;
  }
  unmap_index(r);
  return false;
}

void lm_extent_range_finish(lm_extent_range *r) {
  lm_assert(r->start && r->begins);
  remove_range(r);
  unmap_index(r);
}

lm_extent *lm_extent_range_start(const lm_extent_range *r, uintptr_t at) {
  if ((at - r->base) & (((size_t)1 << r->shift) - 1)) return NULL;
  return r->start[granule_of(r, at)];
}

/* The search backwards ends: an extent always begins at the first granule of a range. */
lm_extent *lm_extent_range_find(const lm_extent_range *r, uintptr_t at) {
  size_t g = granule_of(r, at), word = g / 64;
  uint64_t bits = r->begins[word] & (~(uint64_t)0 >> (63 - g % 64));
  while (!bits) bits = r->begins[--word];
  return r->start[word * 64 + 63 - (size_t)__builtin_clzll(bits)];
}

void lm_extent_split(lm_extent *e, size_t size, lm_extent *rest) {
  lm_assert(size > 0 && size < e->size && size % ((size_t)1 << e->range->shift) == 0);
  lm_assert(rest != e);
  *rest = *e;
  rest->at = e->at + size;
  rest->size = e->size - size;
  rest->before = e;
  rest->next = rest->previous = NULL;
  if (rest->after) rest->after->before = rest;
  e->after = rest;
  e->size = size;
  index_start(e->range, rest->at, rest);
}

lm_extent *lm_extent_join(lm_extent *e) {
  lm_extent *gone = e->after;
  lm_assert(gone && gone->range == e->range && e->at + e->size == gone->at);
  index_start(e->range, gone->at, NULL);
  e->size += gone->size;
  e->after = gone->after;
  if (e->after) e->after->before = e;
  gone->state = LM_EXTENT_NODE;
  return gone;
}

/* Returns whether two neighbours may be separate extents, by the law. */
static bool is_separate(const lm_extent *e, const lm_extent *after) {
  if (e->state != after->state) return true;
  return e->state != LM_EXTENT_HOLE && (e->state != LM_EXTENT_FREE || e->queue != after->queue);
}

bool lm_extent_range_is_valid(const lm_extent_range *r) {
  uintptr_t at = r->base;
  size_t step = (size_t)1 << r->shift;
  for (const lm_extent *e = r->first; e; at += e->size, e = e->after) {
    if (e->at != at || e->range != r || !e->size || e->size % step != 0) return false;
    if (lm_extent_range_start(r, at) != e || lm_extent_range_find(r, at + e->size - 1) != e)
      return false;
    if (e->state == LM_EXTENT_NODE || (e->after && e->after->before != e)) return false;
    if (e->after && !is_separate(e, e->after)) return false;
  }
  return at == r->base + r->size;
}

/* ---- Sets */

/* Returns the number of the list for a size: eight lists to a doubling, from 512 bytes on; the last
 * list has all that is larger. */
static unsigned list_of(size_t size) {
  size >>= 9;
  if (size < 8) return (unsigned)size;
  unsigned top = 63 - (unsigned)__builtin_clzll(size);
  unsigned list = (top - 2) * 8 + (unsigned)(size >> (top - 3) & 7);
  return list < LM_EXTENT_LISTS ? list : LM_EXTENT_LISTS - 1;
}

void lm_extents_put(lm_extents *set, lm_extent *e) {
  unsigned list = list_of(e->size);
  lm_assert(e->state == LM_EXTENT_FREE || e->state == LM_EXTENT_HOLE);
  lm_assert(e->size > 0);
  e->previous = NULL;
  e->next = set->head[list];
  if (e->next) e->next->previous = e;
  set->head[list] = e;
  set->filled[list / 64] |= (uint64_t)1 << list % 64;
  set->bytes += e->size;
}

void lm_extents_remove(lm_extents *set, lm_extent *e) {
  unsigned list = list_of(e->size);
  lm_assert(set->head[list] && set->bytes >= e->size);
  lm_assert(e->previous ? e->previous->next == e : set->head[list] == e);
  if (e->next) e->next->previous = e->previous;
  if (e->previous) e->previous->next = e->next;
  else set->head[list] = e->next;
  if (!set->head[list]) set->filled[list / 64] &= ~((uint64_t)1 << list % 64);
  set->bytes -= e->size;
}

/* A search looks at so many extents of a list at most. */
enum { LOOK_MOST = 64 };

/* Returns whether `e` suits a request better: it is smaller, or of equal size and lower. The lowest
 * is preferred so that free memory stays together. */
static bool is_better(const lm_extent *e, const lm_extent *best) {
  return !best || e->size < best->size || (e->size == best->size && e->at < best->at);
}

static lm_extent *fit_in(lm_extent *e, size_t size) {
  lm_extent *best = NULL;
  for (unsigned i = 0; e && i < LOOK_MOST; i++, e = e->next)
    if (e->size >= size && is_better(e, best)) best = e;
  return best;
}

lm_extent *lm_extents_fit(const lm_extents *set, size_t size) {
  lm_assert(size > 0);
  unsigned list = list_of(size), word = list / 64;
  uint64_t bits = set->filled[word] & ~(uint64_t)0 << list % 64;
  for (;;) {
    for (; bits; bits &= bits - 1) {
      lm_extent *e = fit_in(set->head[word * 64 + (unsigned)__builtin_ctzll(bits)], size);
      if (e) return e;
    }
    if (++word == LM_COUNT(set->filled)) return NULL;
    bits = set->filled[word];
  }
}

bool lm_extents_is_valid(const lm_extents *set) {
  size_t bytes = 0;
  for (unsigned list = 0; list < LM_EXTENT_LISTS; list++) {
    if (!set->head[list] != !(set->filled[list / 64] >> list % 64 & 1)) return false;
    for (const lm_extent *e = set->head[list]; e; bytes += e->size, e = e->next)
      if (list_of(e->size) != list || (e->next && e->next->previous != e)) return false;
  }
  return bytes == set->bytes;
}
