/* extent.c - the index of a range, cutting and joining, sets by size, and the table of ranges. */
#include "device/extent.h"

#include "os/thread.h"

/* ---- The table of ranges ------------------------------------------------------------------- */

enum { RANGES_MAX = 4096 };

/* Sorted by address. Written under the lock, with `version` odd meanwhile; read without one, again
 * when it was written. The structs behind are not freed (device_pool.c keeps them for reuse). */
static LM_SPARSE struct {
  lm_lock lock;
  _Atomic uint32_t version, n;
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

/* Release pairs with the acquire in lm_extent_range_of; the fence keeps what is written after the
 * odd version. */
static void begin_locked(void) {
  atomic_fetch_add_explicit(&table.version, 1, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
}

static void end_locked(void) { atomic_fetch_add_explicit(&table.version, 1, memory_order_release); }

static void remove_locked(uint32_t i) {
  uint32_t n = atomic_load(&table.n);
  begin_locked();
  for (; i + 1 < n; i++) copy_row(i, i + 1);
  atomic_store_explicit(&table.n, n - 1, memory_order_relaxed);
  end_locked();
}

/* A driver gives addresses again only when what was there is gone, with its context. */
static void remove_below_locked(const lm_extent_range *r) {
  for (uint32_t i = atomic_load(&table.n); i-- > 0;)
    if (atomic_load(&table.at[i].base) < r->base + r->size &&
        atomic_load(&table.at[i].end) > r->base)
      remove_locked(i);
}

static bool insert_range(lm_extent_range *r) {
  lm_lock_take(&table.lock);
  remove_below_locked(r);
  uint32_t n = atomic_load(&table.n), i = n;
  if (n < RANGES_MAX) {
    begin_locked();
    for (; i > 0 && atomic_load(&table.at[i - 1].base) > r->base; i--) copy_row(i, i - 1);
    atomic_store_explicit(&table.at[i].base, r->base, memory_order_relaxed);
    atomic_store_explicit(&table.at[i].end, r->base + r->size, memory_order_relaxed);
    atomic_store_explicit(&table.at[i].range, r, memory_order_relaxed);
    atomic_store_explicit(&table.n, n + 1, memory_order_relaxed);
    end_locked();
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

/* Index of the last that begins at or below. */
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

lm_extent_range *lm_extent_range_of(uintptr_t at) {
  for (;;) {
    uint32_t before = atomic_load_explicit(&table.version, memory_order_acquire);
    lm_extent_range *found = search(at);
    atomic_thread_fence(memory_order_acquire);
    if (!(before & 1) && atomic_load_explicit(&table.version, memory_order_relaxed) == before)
      return found;
  }
}

/* ---- The index ------------------------------------------------------------------------------ */

static size_t granule_of(const lm_extent_range *r, uintptr_t at) {
  return (at - r->base) >> r->shift;
}

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

static bool map_index(lm_extent_range *r) {
  void *start, *begins;
  if (lm_sys_map(start_bytes(r), &start)) return false;
  r->start = start;
  if (lm_sys_map(begins_bytes(r), &begins)) {
    lm_sys_unmap(start, start_bytes(r));
    return false;
  }
  r->begins = begins;
  return true;
}

static void unmap_index(lm_extent_range *r) {
  lm_sys_unmap(r->start, start_bytes(r));
  lm_sys_unmap(r->begins, begins_bytes(r));
}

bool lm_extent_range_init(lm_extent_range *r, uintptr_t base, size_t size, unsigned shift,
                          lm_extent *whole) {
  lm_thread_add_fork_lock(&table.lock);
  r->base = base;
  r->size = size;
  r->shift = shift;
  if (!map_index(r)) return false;
  *whole = (lm_extent){ .at = base, .size = size, .range = r, .state = LM_EXTENT_HOLE };
  r->first = whole;
  index_start(r, base, whole);
  if (insert_range(r)) return true;
  unmap_index(r);
  return false;
}

void lm_extent_range_finish(lm_extent_range *r) {
  remove_range(r);
  unmap_index(r);
  r->start = NULL;
}

lm_extent *lm_extent_range_start(const lm_extent_range *r, uintptr_t at) {
  if ((at - r->base) & (((size_t)1 << r->shift) - 1)) return NULL;
  return r->start[granule_of(r, at)];
}

/* The first granule of a range is always one. */
lm_extent *lm_extent_range_find(const lm_extent_range *r, uintptr_t at) {
  size_t g = granule_of(r, at), word = g / 64;
  uint64_t bits = r->begins[word] & (~(uint64_t)0 >> (63 - g % 64));
  while (!bits) bits = r->begins[--word];
  return r->start[word * 64 + 63 - (size_t)__builtin_clzll(bits)];
}

void lm_extent_split(lm_extent *e, size_t size, lm_extent *rest) {
  lm_assert(size < e->size);
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
  lm_assert(e->at + e->size == gone->at);
  index_start(e->range, gone->at, NULL);
  e->size += gone->size;
  e->after = gone->after;
  if (e->after) e->after->before = e;
  gone->state = LM_EXTENT_NODE;
  return gone;
}

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

/* ---- Sets ----------------------------------------------------------------------------------- */

/* The list of a size: 8 to a doubling, from 512 bytes. */
static unsigned list_of(size_t size) {
  size >>= 9;
  if (size < 8) return (unsigned)size;
  unsigned top = 63 - (unsigned)__builtin_clzll(size);
  unsigned list = (top - 2) * 8 + (unsigned)(size >> (top - 3) & 7);
  return list < LM_EXTENT_LISTS ? list : LM_EXTENT_LISTS - 1;
}

void lm_extents_put(lm_extents *set, lm_extent *e) {
  unsigned list = list_of(e->size);
  e->previous = NULL;
  e->next = set->head[list];
  if (e->next) e->next->previous = e;
  set->head[list] = e;
  set->filled[list / 64] |= (uint64_t)1 << list % 64;
  set->bytes += e->size;
}

void lm_extents_remove(lm_extents *set, lm_extent *e) {
  unsigned list = list_of(e->size);
  if (e->next) e->next->previous = e->previous;
  if (e->previous) e->previous->next = e->next;
  else set->head[list] = e->next;
  if (!set->head[list]) set->filled[list / 64] &= ~((uint64_t)1 << list % 64);
  set->bytes -= e->size;
}

/* How many of a list are looked at. */
enum { LOOK_MOST = 64 };

/* Of equal ones the lowest, so that what is free stays together. */
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

lm_extent *lm_extents_largest(const lm_extents *set) {
  unsigned word = LM_COUNT(set->filled);
  while (word-- > 0)
    if (set->filled[word])
      return set->head[word * 64 + 63 - (unsigned)__builtin_clzll(set->filled[word])];
  return NULL;
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
