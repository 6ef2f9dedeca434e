/* metadata.c - memory for loam's own structures.
 *
 * Small sizes have a slab for each size class. But the first pieces of all classes are cut from one
 * slot, since most processes have few pieces of many classes. Larger sizes are runs of slots. */
#include "pages/metadata.h"

#include <string.h>

#include "os/poison.h"
#include "os/thread.h"
#include "pages/class.h"
#include "pages/slab.h"

enum { SMALL_CLASSES = 36 }; /* size classes of small pieces: up to 16 KiB */
#define SMALL_MAX ((size_t)16 << 10)

typedef struct small_class {
  lm_lock lock; /* guards `slab` */
  lm_slab slab;
} small_class;

static small_class classes[SMALL_CLASSES];
static lm_regions regions;
const lm_regions *const lm_metadata_outside = &regions;

enum { UNIT = LM_CACHE_LINE, UNITS = LM_SLOT / UNIT };

/* The first slot: a byte for each of its units, then pieces of whole units. Its entry in the page
 * map has size 0.
 *
 * Law: pieces are cut from `base` + UNITS up to `at`. Byte number i of the slot is the class of the
 * piece that begins at unit i. A piece is in the list `unused` of its class, once, or taken. */
static struct {
  lm_lock lock; /* guards all fields that are not atomic, and writing those */
  bool begun;
  /* Where the slot begins; NULL: there is none, or not yet. The release that sets it pairs with the
   * acquire of unit_of. */
  _Atomic(char *) base;
  char *at; /* where the next piece is cut */
  /* By class: freed pieces; the first word of each points at the next. Relaxed: a read without the
   * lock only asks whether there is one. */
  _Atomic(char *) unused[SMALL_CLASSES];
  _Atomic bool full; /* no piece is cut any more; relaxed, a hint */
  uint8_t *class_of; /* the bytes of the units */
} first;

static lm_lock starting; /* guards writing `started` */
/* The release that sets it pairs with the acquires of its readers: `regions` is initialised. */
static _Atomic bool started;

static void renew_all(void);

/* Registers the fork hook of this module before all other modules do so: a child renews these locks
 * first. */
static void register_fork_hook(void) {
  static _Atomic bool hooked;
  if (atomic_exchange_explicit(&hooked, true, memory_order_relaxed)) return;
  (void)lm_thread_get(); /* the first thread area made also registers with pthread_atfork */
  lm_thread_add_hooks(&(lm_thread_hooks){ .fork_child = renew_all });
}

void lm_metadata_start(void) {
  register_fork_hook();
  lm_lock_take(&starting);
  if (!atomic_load_explicit(&started, memory_order_relaxed)) {
    lm_regions_init(&regions, &(lm_preparation){ 0 });
    atomic_store_explicit(&started, true, memory_order_release);
  }
  lm_lock_drop(&starting);
}

/* Takes slots from the regions and describes them. NULL: no memory. */
static void *take_slots(uint32_t slots, bool *clean) {
  uint32_t slot = lm_regions_take(&regions, slots, LM_SLOT, clean);
  if (!slot) return NULL;
  lm_map_extent(slot, slots, LM_USE_METADATA);
  atomic_store_explicit(&lm_map_span(slot)->size, (size_t)slots << LM_SLOT_SHIFT,
                        memory_order_relaxed);
  lm_unpoison(lm_map_address(slot), (size_t)slots << LM_SLOT_SHIFT);
  return lm_map_address(slot);
}

/* Returns the entry of a piece or of a run of slots. Aborts if p is not memory of this module. */
static lm_span *span_of(const void *p) {
  lm_require(lm_map_owns(p));
  lm_span *span = lm_map_span(lm_map_slot(p));
  lm_require(atomic_load_explicit(&span->use, memory_order_relaxed) == LM_USE_METADATA);
  return span;
}

/* ---- The first slot */

/* Takes the first slot, on the first call. If there is no memory then, there is never a
 * first slot, and slabs serve all sizes. */
static void begin_first_locked(void) {
  bool clean;
  char *base = first.begun ? NULL : take_slots(1, &clean);
  first.begun = true;
  if (!base) return;
  if (!clean) memset(base, 0, LM_SLOT);
  atomic_store_explicit(&lm_map_span(lm_map_slot(base))->size, 0, memory_order_relaxed);
  first.class_of = (uint8_t *)base;
  first.at = base + UNITS;
  /* Release pairs with the acquire of unit_of: the slot is described and zeroed. */
  atomic_store_explicit(&first.base, base, memory_order_release);
}

/* Cuts a piece of class i from the first slot; NULL: it does not fit. */
static char *cut_locked(unsigned i) {
  char *base = atomic_load_explicit(&first.base, memory_order_relaxed), *piece = first.at;
  size_t room = lm_align_up(lm_class_size(i), UNIT);
  if (!base || (size_t)(base + LM_SLOT - piece) < room) {
    atomic_store_explicit(&first.full, true, memory_order_relaxed);
    return NULL;
  }
  lm_assert((piece - base) % UNIT == 0 && piece >= base + UNITS);
  first.class_of[(piece - base) / UNIT] = (uint8_t)i;
  first.at += room;
  return piece;
}

/* Returns a zeroed piece of class i of the first slot; NULL: there is none left. */
static void *take_from_first_slot(unsigned i) {
  lm_assert(i < SMALL_CLASSES);
  if (atomic_load_explicit(&first.full, memory_order_relaxed) &&
      !atomic_load_explicit(&first.unused[i], memory_order_relaxed))
    return NULL;
  lm_lock_take(&first.lock);
  begin_first_locked();
  char *piece = atomic_load_explicit(&first.unused[i], memory_order_relaxed);
  bool clean = !piece;
  if (piece) atomic_store_explicit(&first.unused[i], *(char **)(void *)piece, memory_order_relaxed);
  else piece = cut_locked(i);
  lm_lock_drop(&first.lock);
  return piece && !clean ? memset(piece, 0, lm_class_size(i)) : piece;
}

static void put_in_first_slot(unsigned i, void *piece) {
  lm_assert(i < SMALL_CLASSES && (uintptr_t)piece % UNIT == 0);
  lm_lock_take(&first.lock);
  *(char **)piece = atomic_load_explicit(&first.unused[i], memory_order_relaxed);
  atomic_store_explicit(&first.unused[i], piece, memory_order_relaxed);
  lm_lock_drop(&first.lock);
}

/* Returns the byte that has the class of the piece at p; NULL: p is not in the first slot. */
static const uint8_t *unit_of(const void *p) {
  char *base = atomic_load_explicit(&first.base, memory_order_acquire);
  size_t offset = (size_t)((const char *)p - base);
  return base && offset < LM_SLOT ? &first.class_of[offset / UNIT] : NULL;
}

/* ---- All sizes */

size_t lm_metadata_size(const void *p) {
  if (!p) return 0;
  size_t size = atomic_load_explicit(&span_of(p)->size, memory_order_relaxed);
  return size ? size : lm_class_size(*unit_of(p));
}

static void *alloc_small(size_t size, bool zero) {
  unsigned i = lm_class_of(size);
  void *early = take_from_first_slot(i);
  if (early) return early;
  small_class *c = &classes[i];
  lm_lock_take(&c->lock);
  bool clean;
  void *p = lm_slab_take(&c->slab, &regions, lm_class_size(i), &clean);
  lm_lock_drop(&c->lock);
  return p && zero && !clean ? memset(p, 0, lm_class_size(i)) : p;
}

/* Makes large memory zero by giving its pages back to the system. Of a large table often only a
 * part is used, and then that costs less than to write zeros. */
static void *make_zero(void *p, size_t size) {
  return lm_sys_purge(p, size) ? memset(p, 0, size) : p;
}

static void *alloc_large(size_t size, bool zero) {
  if (size > LM_SIZE_MAX) return NULL;
  uint32_t slots = lm_map_slots(size);
  size_t room = (size_t)slots << LM_SLOT_SHIFT;
  bool clean;
  void *p = take_slots(slots, &clean);
  return p && zero && !clean ? make_zero(p, room) : p;
}

static void *alloc(size_t size, bool zero) {
  if (lm_unlikely(!atomic_load_explicit(&started, memory_order_acquire))) lm_metadata_start();
  return size <= SMALL_MAX ? alloc_small(size, zero) : alloc_large(size, zero);
}

void *lm_metadata_alloc(size_t size) { return alloc(size, true); }
void *lm_metadata_take(size_t size) { return alloc(size, false); }

static void free_small(void *p, size_t size) {
  lm_assert(lm_class_of_usable(size) < SMALL_CLASSES);
  small_class *c = &classes[lm_class_of_usable(size)];
  lm_lock_take(&c->lock);
  lm_slab_put(&c->slab, &regions, p);
  lm_lock_drop(&c->lock);
}

void lm_metadata_free(void *p) {
  if (!p) return;
  lm_span *span = span_of(p);
  lm_assert((uintptr_t)p % 16 == 0);
  size_t size = atomic_load_explicit(&span->size, memory_order_relaxed);
  if (!size) {
    put_in_first_slot(*unit_of(p), p);
    return;
  }
  if (size <= SMALL_MAX) {
    free_small(p, size);
    return;
  }
  uint32_t slot = lm_map_slot(p), slots = lm_map_slots(size);
  atomic_store_explicit(&span->use, LM_USE_NONE, memory_order_relaxed);
  lm_regions_put(&regions, slot, slots);
}

/* Returns whether memory of `room` bytes is a good place for `size` bytes: they fit, and need at
 * least half of it, or it is small. */
static bool fits(size_t room, size_t size) {
  return size <= room && (size >= room / 2 || room <= 64);
}

/* Lengthens a run of slots to hold `size` bytes if the slots behind it are free. */
static bool grow_in_place(void *p, size_t room, size_t size) {
  if (room <= SMALL_MAX || size <= room || size > LM_SIZE_MAX) return false;
  uint32_t slot = lm_map_slot(p), slots = lm_map_slots(room), more = lm_map_slots(size) - slots;
  if (!lm_regions_extend(&regions, slot + slots, more)) return false;
  atomic_store_explicit(&lm_map_span(slot)->size, (size_t)(slots + more) << LM_SLOT_SHIFT,
                        memory_order_relaxed);
  lm_map_extent(slot, slots + more, LM_USE_METADATA);
  lm_unpoison(p, (size_t)(slots + more) << LM_SLOT_SHIFT);
  return true;
}

void *lm_metadata_realloc(void *p, size_t size) {
  if (!p) return lm_metadata_alloc(size);
  size_t room = lm_metadata_size(p);
  if (fits(room, size) || grow_in_place(p, room, size)) return p;
  void *q = lm_metadata_alloc(size);
  if (!q) return size <= room ? p : NULL;
  memcpy(q, p, room < size ? room : size);
  lm_metadata_free(p);
  return q;
}

size_t lm_metadata_held(void) { return lm_regions_memory(&regions); }
size_t lm_metadata_taken(void) { return lm_regions_size(&regions); }

void lm_metadata_trim(void) {
  if (atomic_load_explicit(&started, memory_order_acquire)) lm_regions_trim(&regions);
}

bool lm_metadata_decay(uint32_t *most) {
  return atomic_load_explicit(&started, memory_order_acquire) && lm_regions_decay(&regions, most);
}

/* ---- Fork */

static void renew_all(void) {
  lm_lock_renew(lm_range_lock());
  lm_lock_renew(&regions.lock);
  lm_lock_renew(&starting);
  for (int i = 0; i < SMALL_CLASSES; i++) lm_lock_renew(&classes[i].lock);
  lm_lock_renew(&first.lock);
}

/* ---- Laws */

static bool is_class_valid(small_class *c) {
  lm_lock_take(&c->lock);
  bool valid = lm_slab_is_valid(&c->slab);
  lm_lock_drop(&c->lock);
  return valid;
}

/* Every freed piece is in the list of its class. No list is circular: there are at most as many
 * pieces as units. */
static bool is_first_valid(void) {
  size_t left = UNITS;
  lm_lock_take(&first.lock);
  const char *base = atomic_load_explicit(&first.base, memory_order_relaxed);
  bool valid = base ? first.at >= base + UNITS && first.at <= base + LM_SLOT : !first.at;
  for (unsigned i = 0; i < SMALL_CLASSES; i++) {
    const char *piece = atomic_load_explicit(&first.unused[i], memory_order_relaxed);
    for (; valid && piece; piece = *(char *const *)(const void *)piece)
      valid = left-- > 0 && piece < first.at && *unit_of(piece) == i;
  }
  lm_lock_drop(&first.lock);
  return valid;
}

bool lm_metadata_is_valid(void) {
  if (!is_first_valid()) return false;
  for (int i = 0; i < SMALL_CLASSES; i++)
    if (!is_class_valid(&classes[i])) return false;
  if (!atomic_load_explicit(&started, memory_order_acquire)) return true;
  lm_lock_take(&regions.lock);
  bool valid = lm_regions_is_valid(&regions);
  lm_lock_drop(&regions.lock);
  return valid;
}
