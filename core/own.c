/* own.c - memory for loam's own structures.
 *
 * Small sizes: a slab for each size class. Larger ones: runs of slots. */
#include "own.h"

#include <string.h>

#include "class.h"
#include "poison.h"
#include "slab.h"
#include "thread.h"

enum { OWN_CLASSES = 36 }; /* to 16 KiB */
#define OWN_SMALL_MAX ((size_t)16 << 10)

typedef struct own_class {
  lm_lock lock;
  lm_slab slab;
} own_class;

static own_class classes[OWN_CLASSES];
static lm_regions regions;
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
  lm_thread_hook(&(lm_thread_hooks){ NULL, lock_all, unlock_all, renew_all });
}

void lm_own_start(void) {
  hook();
  lm_lock_take(&starting);
  if (!atomic_load_explicit(&started, memory_order_relaxed)) {
    lm_regions_init(&regions, &(lm_prepare){ 0 });
    atomic_store_explicit(&started, true, memory_order_release);
  }
  lm_lock_drop(&starting);
}

static void *take_slots(uint32_t slots, bool *clean) {
  uint32_t slot = lm_regions_take(&regions, slots, LM_SLOT, clean);
  if (!slot) return NULL;
  lm_map_extent(slot, slots, LM_USE_OWN);
  atomic_store_explicit(&lm_map_span(slot)->size, (size_t)slots << LM_SLOT_SHIFT,
                        memory_order_relaxed);
  lm_unpoison(lm_map_address(slot), (size_t)slots << LM_SLOT_SHIFT);
  return lm_map_address(slot);
}

static lm_span *span_of(const void *p) {
  lm_require(lm_map_owns(p));
  lm_span *span = lm_map_span(lm_map_slot(p));
  lm_require(atomic_load_explicit(&span->use, memory_order_relaxed) == LM_USE_OWN);
  return span;
}

size_t lm_own_size(const void *p) {
  return p ? atomic_load_explicit(&span_of(p)->size, memory_order_relaxed) : 0;
}

static void *alloc_small(size_t size) {
  unsigned i = lm_class_of(size);
  own_class *c = &classes[i];
  lm_lock_take(&c->lock);
  bool clean;
  void *p = lm_slab_take(&c->slab, &regions, lm_class_size(i), &clean);
  lm_lock_drop(&c->lock);
  return p && !clean ? memset(p, 0, lm_class_size(i)) : p;
}

/* Of large tables little is used: pages of zeros cost less than zeroing pages. */
static void *zeroed(void *p, size_t size) { return lm_sys_purge(p, size) ? memset(p, 0, size) : p; }

static void *alloc_large(size_t size) {
  if (size > LM_SIZE_MAX) return NULL;
  uint32_t slots = lm_map_slots(size);
  size_t room = (size_t)slots << LM_SLOT_SHIFT;
  bool clean;
  void *p = take_slots(slots, &clean);
  return p && !clean ? zeroed(p, room) : p;
}

void *lm_own_alloc(size_t size) {
  if (lm_unlikely(!atomic_load_explicit(&started, memory_order_acquire))) lm_own_start();
  return size <= OWN_SMALL_MAX ? alloc_small(size) : alloc_large(size);
}

static void free_small(void *p, size_t size) {
  own_class *c = &classes[lm_class_with(size)];
  lm_lock_take(&c->lock);
  lm_slab_put(&c->slab, &regions, p);
  lm_lock_drop(&c->lock);
}

void lm_own_free(void *p) {
  if (!p) return;
  lm_span *span = span_of(p);
  size_t size = atomic_load_explicit(&span->size, memory_order_relaxed);
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
  lm_map_extent(slot, slots + more, LM_USE_OWN);
  lm_unpoison(p, (size_t)(slots + more) << LM_SLOT_SHIFT);
  return true;
}

void *lm_own_realloc(void *p, size_t size) {
  if (!p) return lm_own_alloc(size);
  size_t room = lm_own_size(p);
  if (fits(room, size) || grow_in_place(p, room, size)) return p;
  void *q = lm_own_alloc(size);
  if (!q) return size <= room ? p : NULL;
  memcpy(q, p, room < size ? room : size);
  lm_own_free(p);
  return q;
}

size_t lm_own_held(void) {
  lm_lock_take(&regions.lock);
  size_t slots = regions.held - regions.clean.slots;
  lm_lock_drop(&regions.lock);
  return slots << LM_SLOT_SHIFT;
}

size_t lm_own_taken(void) {
  lm_lock_take(&regions.lock);
  size_t slots = regions.held;
  lm_lock_drop(&regions.lock);
  return slots << LM_SLOT_SHIFT;
}

void lm_own_trim(void) {
  if (atomic_load_explicit(&started, memory_order_acquire)) lm_regions_trim(&regions);
}

bool lm_own_decay(uint32_t *most) {
  return atomic_load_explicit(&started, memory_order_acquire) && lm_regions_decay(&regions, most);
}

static void lock_all(void) {
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
}

static void renew_all(void) {
  lm_lock_renew(lm_map_lock());
  lm_lock_renew(&regions.lock);
  lm_lock_renew(&starting);
  for (int i = 0; i < OWN_CLASSES; i++) lm_lock_renew(&classes[i].lock);
}

static bool is_class_valid(own_class *c) {
  lm_lock_take(&c->lock);
  bool valid = lm_slab_is_valid(&c->slab);
  lm_lock_drop(&c->lock);
  return valid;
}

bool lm_own_is_valid(void) {
  for (int i = 0; i < OWN_CLASSES; i++)
    if (!is_class_valid(&classes[i])) return false;
  lm_lock_take(&regions.lock);
  bool valid = lm_regions_is_valid(&regions);
  lm_lock_drop(&regions.lock);
  return valid;
}
