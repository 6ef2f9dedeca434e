/* metadata.c - memory for loam's own structures.
 *
 * Small sizes: a slab for each size class; but the first pieces of all classes are cut from one
 * slot, since most processes have few of many. Larger ones: runs of slots. */
#include "pages/metadata.h"

#include <string.h>

#include "os/poison.h"
#include "os/thread.h"
#include "pages/class.h"
#include "pages/slab.h"

enum { OWN_CLASSES = 36 }; /* to 16 KiB */
#define OWN_SMALL_MAX ((size_t)16 << 10)

typedef struct own_class {
  lm_lock lock;
  lm_slab slab;
} own_class;

static own_class classes[OWN_CLASSES];
static lm_regions regions;

enum { UNIT = LM_CACHE_LINE, UNITS = LM_SLOT / UNIT };

/* The first slot: pieces of whole units, cut up to `at`. Its entry in the map says 0 bytes. */
static struct {
  lm_lock lock;
  bool begun;
  _Atomic(char *) base; /* where it begins; NULL: there is none, or not yet */
  char *at;
  /* By class, pieces that came back, each with the next in its first word. Read without lock. */
  _Atomic(char *) unused[OWN_CLASSES];
  _Atomic bool full; /* relaxed: nothing is cut any more */
  uint8_t *class_of; /* of the piece that begins at a unit: at the beginning of the slot */
} first;
static lm_lock starting;
static _Atomic bool started;

static void lock_all(void);
static void unlock_all(void);
static void renew_all(void);

/* Registered before the first lock is taken, and first of all modules: locked last at a fork. */
static void hook(void) {
  static _Atomic bool hooked;
  if (atomic_exchange_explicit(&hooked, true, memory_order_relaxed)) return;
  (void)lm_thread_get(); /* the first one asks the C library to be told of forks */
  lm_thread_add_hooks(&(lm_thread_hooks){ NULL, lock_all, unlock_all, renew_all });
}

void lm_metadata_start(void) {
  hook();
  lm_lock_take(&starting);
  if (!atomic_load_explicit(&started, memory_order_relaxed)) {
    lm_regions_init(&regions, &(lm_preparation){ 0 });
    atomic_store_explicit(&started, true, memory_order_release);
  }
  lm_lock_drop(&starting);
}

static void *take_slots(uint32_t slots, bool *clean) {
  uint32_t slot = lm_regions_take(&regions, slots, LM_SLOT, clean);
  if (!slot) return NULL;
  lm_map_extent(slot, slots, LM_USE_METADATA);
  atomic_store_explicit(&lm_map_span(slot)->size, (size_t)slots << LM_SLOT_SHIFT,
                        memory_order_relaxed);
  lm_unpoison(lm_map_address(slot), (size_t)slots << LM_SLOT_SHIFT);
  return lm_map_address(slot);
}

static lm_span *span_of(const void *p) {
  lm_require(lm_map_owns(p));
  lm_span *span = lm_map_span(lm_map_slot(p));
  lm_require(atomic_load_explicit(&span->use, memory_order_relaxed) == LM_USE_METADATA);
  return span;
}

/* ---- The first slot */

/* Once; without memory there is none. */
static void begin_first_locked(void) {
  bool clean;
  char *base = first.begun ? NULL : take_slots(1, &clean);
  first.begun = true;
  if (!base) return;
  if (!clean) memset(base, 0, LM_SLOT);
  atomic_store_explicit(&lm_map_span(lm_map_slot(base))->size, 0, memory_order_relaxed);
  first.class_of = (uint8_t *)base;
  first.at = base + UNITS;
  /* Release pairs with the acquire of unit_of. */
  atomic_store_explicit(&first.base, base, memory_order_release);
}

static char *cut_locked(unsigned i) {
  char *base = atomic_load_explicit(&first.base, memory_order_relaxed), *piece = first.at;
  size_t room = lm_align_up(lm_class_size(i), UNIT);
  if (!base || (size_t)(base + LM_SLOT - piece) < room) {
    atomic_store_explicit(&first.full, true, memory_order_relaxed);
    return NULL;
  }
  first.class_of[(piece - base) / UNIT] = (uint8_t)i;
  first.at += room;
  return piece;
}

/* NULL: there is none left. */
static void *take_first(unsigned i) {
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

static void put_first(unsigned i, void *piece) {
  lm_lock_take(&first.lock);
  *(char **)piece = atomic_load_explicit(&first.unused[i], memory_order_relaxed);
  atomic_store_explicit(&first.unused[i], piece, memory_order_relaxed);
  lm_lock_drop(&first.lock);
}

/* Where its class stands; NULL: it is no piece of the first slot. */
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
  void *early = take_first(i);
  if (early) return early;
  own_class *c = &classes[i];
  lm_lock_take(&c->lock);
  bool clean;
  void *p = lm_slab_take(&c->slab, &regions, lm_class_size(i), &clean);
  lm_lock_drop(&c->lock);
  return p && zero && !clean ? memset(p, 0, lm_class_size(i)) : p;
}

/* Of large tables little is used: pages of zeros cost less than zeroing pages. */
static void *zeroed(void *p, size_t size) { return lm_sys_purge(p, size) ? memset(p, 0, size) : p; }

static void *alloc_large(size_t size, bool zero) {
  if (size > LM_SIZE_MAX) return NULL;
  uint32_t slots = lm_map_slots(size);
  size_t room = (size_t)slots << LM_SLOT_SHIFT;
  bool clean;
  void *p = take_slots(slots, &clean);
  return p && zero && !clean ? zeroed(p, room) : p;
}

static void *alloc(size_t size, bool zero) {
  if (lm_unlikely(!atomic_load_explicit(&started, memory_order_acquire))) lm_metadata_start();
  return size <= OWN_SMALL_MAX ? alloc_small(size, zero) : alloc_large(size, zero);
}

void *lm_metadata_alloc(size_t size) { return alloc(size, true); }
void *lm_metadata_take(size_t size) { return alloc(size, false); }

static void free_small(void *p, size_t size) {
  own_class *c = &classes[lm_class_of_usable(size)];
  lm_lock_take(&c->lock);
  lm_slab_put(&c->slab, &regions, p);
  lm_lock_drop(&c->lock);
}

void lm_metadata_free(void *p) {
  if (!p) return;
  lm_span *span = span_of(p);
  size_t size = atomic_load_explicit(&span->size, memory_order_relaxed);
  if (!size) {
    put_first(*unit_of(p), p);
    return;
  }
  if (size <= OWN_SMALL_MAX) {
    free_small(p, size);
    return;
  }
  uint32_t slot = lm_map_slot(p), slots = lm_map_slots(size);
  atomic_store_explicit(&span->use, LM_USE_NONE, memory_order_relaxed);
  lm_regions_put(&regions, slot, slots);
}

/* Whether a block with this much room is a fair home for `size` bytes. */
static bool fits(size_t room, size_t size) {
  return size <= room && (size >= room / 2 || room <= 64);
}

/* A large block that can have the slots behind it. */
static bool grow_in_place(void *p, size_t room, size_t size) {
  if (room <= OWN_SMALL_MAX || size <= room || size > LM_SIZE_MAX) return false;
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

size_t lm_metadata_held(void) {
  lm_lock_take(&regions.lock);
  size_t slots = regions.held - regions.clean.slots;
  lm_lock_drop(&regions.lock);
  return slots << LM_SLOT_SHIFT;
}

size_t lm_metadata_taken(void) {
  lm_lock_take(&regions.lock);
  size_t slots = regions.held;
  lm_lock_drop(&regions.lock);
  return slots << LM_SLOT_SHIFT;
}

void lm_metadata_trim(void) {
  if (atomic_load_explicit(&started, memory_order_acquire)) lm_regions_trim(&regions);
}

bool lm_metadata_decay(uint32_t *most) {
  return atomic_load_explicit(&started, memory_order_acquire) && lm_regions_decay(&regions, most);
}

static void lock_all(void) {
  lm_lock_take(&first.lock);
  for (int i = 0; i < OWN_CLASSES; i++) lm_lock_take(&classes[i].lock);
  lm_lock_take(&starting);
  lm_lock_take(&regions.lock);
  lm_lock_take(lm_map_lock());
}

static void unlock_all(void) {
  lm_lock_drop(lm_map_lock());
  lm_lock_drop(&regions.lock);
  lm_lock_drop(&starting);
  for (int i = OWN_CLASSES; i-- > 0;) lm_lock_drop(&classes[i].lock);
  lm_lock_drop(&first.lock);
}

static void renew_all(void) {
  lm_lock_renew(lm_map_lock());
  lm_lock_renew(&regions.lock);
  lm_lock_renew(&starting);
  for (int i = 0; i < OWN_CLASSES; i++) lm_lock_renew(&classes[i].lock);
  lm_lock_renew(&first.lock);
}

static bool is_class_valid(own_class *c) {
  lm_lock_take(&c->lock);
  bool valid = lm_slab_is_valid(&c->slab);
  lm_lock_drop(&c->lock);
  return valid;
}

/* What came back is of its class, and not there twice. */
static bool is_first_valid(void) {
  bool valid = true;
  size_t left = UNITS;
  lm_lock_take(&first.lock);
  for (unsigned i = 0; i < OWN_CLASSES; i++) {
    const char *piece = atomic_load_explicit(&first.unused[i], memory_order_relaxed);
    for (; valid && piece; piece = *(char *const *)(const void *)piece)
      valid = left-- > 0 && piece < first.at && *unit_of(piece) == i;
  }
  lm_lock_drop(&first.lock);
  return valid;
}

bool lm_metadata_is_valid(void) {
  if (!is_first_valid()) return false;
  for (int i = 0; i < OWN_CLASSES; i++)
    if (!is_class_valid(&classes[i])) return false;
  lm_lock_take(&regions.lock);
  bool valid = lm_regions_is_valid(&regions);
  lm_lock_drop(&regions.lock);
  return valid;
}
