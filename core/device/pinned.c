/* pinned.c - small objects of pinned memory: see pinned.h. */
#include "device/pinned.h"

#include <stdio.h>
#include <string.h>

#include "device/device_pool.h"
#include "device/manager.h"
#include "device/provider.h"
#include "heap/pools.h"
#include "heap/sweep.h"
#include "heap/walk.h"
#include "os/available.h"
#include "os/decay.h"
#include "os/error.h"
#include "pages/range.h"

/* Lengths of regions, in slots. The first region has half a MiB: the driver registers that in
 * unnoticeable time. A pool doubles until it has DOUBLES_UNTIL slots; after that it grows by an
 * eighth, so that few objects which threads cache keep little of a freed peak registered. */
enum { STEP_FIRST = 8, STEP_MOST = 256, DOUBLES_UNTIL = 64 };
enum { ANY_DEVICE = -1 };
/* So long after a failure, requests fail without asking the driver again. */
enum { REFUSAL_NS = 10000000 };
enum { FLAGS = LM_GPU_MAPPED | LM_GPU_PORTABLE };

static size_t bytes_of(uint32_t slots) { return (size_t)slots << LM_SLOT_SHIFT; }

bool lm_pinned_serves(const lm_strategy *whole, size_t size, size_t align) {
  return whole->twins && size <= LM_SMALL_EAGER && align <= LM_PAGE && lm_gpu() &&
         !lm_manager_is_custom(LM_MANAGER_HOST);
}

/* lm_gpu_node is called first: only then does lm_gpu_is_spread know whether devices are on several
 * NUMA nodes. */
lm_strategy *lm_pinned_twin(lm_strategy *whole, int device, bool asked) {
  int node = lm_gpu_node(device);
  bool by_node = whole->desc.placement.mode == LM_BIND_DEFAULT && lm_gpu_is_spread();
  return lm_strategy_twin(whole, by_node ? node : -1, asked);
}

/* ---- Pools in use */

/* Returns the registered pool of a strategy, which does not end until release_pool. `make`: makes
 * it if need be. NULL: there is none. The active section covers the time before `users` counts:
 * retire.c waits for active sections and then looks for users. */
static lm_pool *acquire_pool(lm_strategy *s, bool make) {
  lm_thread *t = lm_thread_get();
  if (!t) return NULL;
  lm_thread_enter(t);
  lm_pool *pool = make || lm_pool_of(s) ? lm_pool_for(s) : NULL;
  if (pool && !pool->regions.how.registered) pool = NULL;
  if (pool) atomic_fetch_add(&pool->users, 1); /* pairs with release_pool and retire.c */
  lm_thread_leave(t);
  return pool;
}

static void release_pool(lm_pool *pool) {
  lm_assert(atomic_load(&pool->users) > 0);
  atomic_fetch_sub(&pool->users, 1);
}

/* Calls `act` for each registered pool. */
static void each_pool(void (*act)(lm_pool *pool, void *ctx), void *ctx) {
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++) {
    lm_strategy *s = lm_strategy_at(id);
    lm_pool *pool = s->whole->twins ? acquire_pool(s, false) : NULL;
    if (!pool) continue;
    act(pool, ctx);
    release_pool(pool);
  }
}

/* ---- Regions */

/* Describes the guard slot behind a region in the page map: it has the region's length and device,
 * which are constant until the region ends. */
static void describe_guard_slot(uint32_t slot, uint32_t slots, int device) {
  lm_span *span = lm_map_span(slot + slots);
  lm_assert(slot && slots && device >= 0 && device < LM_DEVICES_MAX);
  span->next = (uint32_t)device;
  span->prev = slots;
  lm_map_extent(slot + slots, 1, LM_USE_SEAL);
  lm_map_extent(slot, slots, LM_USE_NONE);
}

static bool is_guard_slot(uint32_t slot) {
  return atomic_load_explicit(&lm_map_span(slot)->use, memory_order_relaxed) == LM_USE_SEAL;
}

/* Returns whether a free run is a whole region of a device: then its guard slot is behind it. */
static bool is_region(uint32_t slot, uint32_t slots, int device) {
  const lm_span *span = lm_map_span(slot + slots);
  return is_guard_slot(slot + slots) && span->prev == slots &&
         (device == ANY_DEVICE || span->next == (uint32_t)device);
}

int lm_pinned_device(const void *p) {
  const lm_span *span = lm_map_span(lm_map_slot(p));
  uint32_t slot = lm_map_slot((void *)atomic_load_explicit(&span->start, memory_order_relaxed));
  while (lm_map_owns(lm_map_address(slot)) && !is_guard_slot(slot)) {
    uint32_t next = lm_map_next(slot);
    /* While another thread splits an extent, its length may read as 0. */
    slot = next > slot ? next : slot + 1;
  }
  return lm_map_owns(lm_map_address(slot)) ? (int)lm_map_span(slot)->next : -1;
}

bool lm_pinned_owns(const void *p) {
  lm_object object;
  return lm_pool_find(p, &object) && lm_strategy_at(object.strategy)->whole->twins;
}

/* Binds pages to the strategy's NUMA nodes; by default to the node of the device. */
static void bind(const lm_strategy *s, int device, void *at, size_t size) {
  lm_placement near = { .mode = LM_BIND_PREFERRED };
  const lm_placement *placement = &s->desc.placement;
  int node = lm_gpu_node(device);
  if (placement->mode == LM_BIND_DEFAULT && node >= 0) {
    near.nodes = (uint64_t)1 << node;
    placement = &near;
  }
  if (placement->mode != LM_BIND_DEFAULT) (void)lm_numa_bind(at, size, placement);
}

/* Commits, binds and faults in the pages of a region before it registers them: the driver then
 * registers them quickly. */
static loam_status make_ready(const lm_strategy *s, int device, void *at, size_t size) {
  const lm_placement *p = &s->desc.placement;
  const loam_manager *m = lm_manager(device);
  if (!m) return LOAM_EUNSUPPORTED;
  if (!lm_available_has(size, p->mode == LM_BIND_BIND ? p->nodes : 0) || lm_sys_commit(at, size))
    return lm_error(LOAM_ENOMEM, "no memory for %zu bytes of pinned memory", size);
  bind(s, device, at, size);
  (void)lm_sys_prefault(at, size);
  loam_status status = m->mempin(m->ctx, device, at, size, FLAGS);
  if (status != LOAM_OK && m->mempin != lm_manager_driver.mempin)
    lm_error(status, "manager \"%s\": mempin of %zu bytes on device %d: %s", m->name, size, device,
             loam_status_text(status));
  return status;
}

/* Adds a region to a pool. Fails, with error words, if there is no memory or the driver refuses. */
static loam_status grow(lm_pool *pool, int device, uint32_t slots) {
  uint32_t slot = lm_range_take(slots + 1, LM_SLOT);
  if (!slot)
    return lm_error(LOAM_ENOMEM, "no address space for %zu bytes of pinned memory",
                    bytes_of(slots));
  loam_status status = make_ready(pool->strategy, device, lm_map_address(slot), bytes_of(slots));
  if (status != LOAM_OK) {
    lm_regions_return(slot, slots + 1);
    return status;
  }
  lm_lock_hold_cancel(); /* so that a child has the guard slot and the region, or neither */
  describe_guard_slot(slot, slots, device);
  lm_assert(is_region(slot, slots, device));
  lm_regions_add(&pool->regions, slot, slots);
  lm_lock_allow_cancel();
  return LOAM_OK;
}

/* Unregisters memory. Returns false if the driver still has it registered. Memory that went with
 * its context, or with the parent process, is not registered any more. */
static bool unregister(void *at, size_t size, int device) {
  const loam_manager *m = lm_manager(device);
  if (!m) return true;
  if (m->memunpin != lm_manager_driver.memunpin) {
    m->memunpin(m->ctx, device, at, size);
    return true;
  }
  lm_gpu_result result = lm_gpu()->host_unregister(at);
  return result == LM_GPU_OK || result == LM_GPU_GONE;
}

/* Ends a region that was taken out of its pool. If it cannot be unregistered, its addresses are
 * never used again. */
static void end_region(uint32_t slot, uint32_t slots) {
  lm_assert(is_region(slot, slots, ANY_DEVICE));
  int device = (int)lm_map_span(slot + slots)->next;
  bool done = unregister(lm_map_address(slot), bytes_of(slots), device);
  lm_lock_hold_cancel(); /* so that a child has no page map that is half changed */
  lm_map_extent(slot + slots, 1, LM_USE_NONE);
  lm_map_extent(slot, slots + 1, LM_USE_NONE);
  if (done) lm_regions_return(slot, slots + 1);
  lm_lock_allow_cancel();
}

/* Ends whole free regions of a device, of at most `most` slots together. Returns how many slots. */
static uint32_t end_regions(lm_pool *pool, uint32_t most, int device) {
  uint32_t slot, slots, before = most;
  lm_lock_suspended section = lm_lock_take_long(&lm_pools_pinned_lock);
  while ((slot = lm_regions_take_idle(&pool->regions, &most, is_region, device, &slots)) != 0)
    end_region(slot, slots);
  lm_lock_drop_long(&lm_pools_pinned_lock, section);
  return before - most;
}

/* ---- Objects that a stream may still use */

/* Returns the device pool in whose queues such objects wait; NULL: there is no memory for it. */
static lm_device_pool *pool_of_queues(int device) {
  lm_pinned_desc pinned = { .is_pinned = true };
  return lm_device_pool_of_pinned(device, NULL, &pinned);
}

static void free_object(void *p) {
  lm_thread *t = lm_thread_get();
  if (!t) return;
  lm_thread_enter(t);
  lm_pool_release(p);
  lm_thread_leave(t);
}

/* Frees the objects whose work has ended. Returns whether there were any. */
static bool free_ready_objects(void) {
  void *p, *any = NULL;
  for (lm_device_pool *queues = lm_device_pool_next(NULL, ANY_DEVICE); queues;
       queues = lm_device_pool_next(queues, ANY_DEVICE))
    while ((p = lm_device_pool_awaited(queues)) != NULL) free_object(any = p);
  return any;
}

/* If there is no memory to note the object, this waits for the device. If the wait fails too, work
 * may still use the object, and it is never freed. */
void lm_pinned_free_after(void *p, lm_stream stream) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  int device = gpu ? lm_pinned_device(p) : 0;
  lm_device_pool *queues = gpu ? pool_of_queues(device) : NULL;
  bool attend = false;
  lm_stream_ref ref = queues ? lm_device_pool_stream_on(queues, stream) : (lm_stream_ref){ 0 };
  if (queues && lm_device_pool_await(queues, p, ref, &attend)) {
    if (attend) lm_device_pool_poll(queues, ref);
    lm_decay_stir();
    return;
  }
  if (gpu && gpu->wait(device) == LM_GPU_FAILED) return;
  free_object(p);
}

/* ---- Growth */

/* Slots that lm_pinned_shed leaves free, because they were needed within SOON_NS after it ended
 * regions. Guarded by lm_pools_pinned_lock. */
static uint32_t keeps_free;
/* The time when lm_pinned_shed ended regions last; 0: never. Guarded by lm_pools_pinned_lock. */
static int64_t shed_ns;
#define SOON_NS 1000000000

/* The last failure to grow; guarded by lm_pools_pinned_lock. */
static LM_SPARSE struct {
  const lm_pool *pool;
  int64_t at_ns;
  char words[LM_ERROR_SIZE / 2];
} refusal;

/* Returns the length of the next region, at least `slots`. */
static uint32_t step_of(const lm_regions *r, uint32_t slots) {
  uint32_t step = r->held < DOUBLES_UNTIL ? r->held : DOUBLES_UNTIL;
  if (step < r->held / 8) step = r->held / 8;
  if (step < STEP_FIRST) step = STEP_FIRST;
  if (step > STEP_MOST) step = STEP_MOST;
  return step < slots ? slots : step;
}

/* Ends all free regions of a pool; sets *ended if there were any. */
static void end_idle(lm_pool *pool, void *ended) {
  uint32_t most = UINT32_MAX, slot, slots;
  while ((slot = lm_regions_take_idle(&pool->regions, &most, is_region, ANY_DEVICE, &slots)) != 0) {
    end_region(slot, slots);
    *(bool *)ended = true;
  }
}

/* Adds a region to the pool: of a whole step; if there is no memory, of `slots`; and then again
 * after the free memory of all pinned pools was returned. */
static loam_status grow_or_reclaim_locked(lm_pool *pool, int device, uint32_t slots) {
  uint32_t step = step_of(&pool->regions, slots);
  bool ended = false;
  if (shed_ns && lm_sys_clock_ns() - shed_ns < SOON_NS) keeps_free += step;
  loam_status status = grow(pool, device, step);
  if (status == LOAM_ENOMEM && step > slots) status = grow(pool, device, slots);
  if (status != LOAM_ENOMEM) return status;
  each_pool(end_idle, &ended);
  return lm_device_pool_trim_pinned() || ended ? grow(pool, device, slots) : status;
}

/* Grows the pool unless it has a free run by now. Returns NULL, or the reason why it could not
 * grow. */
static const char *make_room_locked(lm_pool *pool, int device, uint32_t slots) {
  lm_assert(slots > 0);
  if (lm_regions_has_dirty(&pool->regions, slots)) return NULL;
  if (refusal.pool == pool && lm_sys_clock_ns() - refusal.at_ns < REFUSAL_NS) {
    lm_error(LOAM_ENOMEM, "%s", refusal.words);
    return lm_provider_words;
  }
  if (grow_or_reclaim_locked(pool, device, slots) == LOAM_OK) {
    refusal.pool = NULL;
    return NULL;
  }
  refusal.pool = pool;
  refusal.at_ns = lm_sys_clock_ns();
  snprintf(refusal.words, sizeof refusal.words, "%s", loam_error());
  return lm_provider_words;
}

const char lm_pinned_elsewhere[] = "another context than the primary one is current";

const char *lm_pinned_grow(lm_strategy *twin, int device, size_t size) {
  lm_device_pool_poll_awaited();
  if (free_ready_objects()) return NULL;
  if (lm_gpu()->host_context(device)) return lm_pinned_elsewhere;
  lm_pool *pool = acquire_pool(twin, true);
  if (!pool) return "loam has no memory to describe the pool";
  lm_lock_suspended section = lm_lock_take_long(&lm_pools_pinned_lock);
  const char *why = make_room_locked(pool, device, lm_central_span_slots(lm_class_of(size)));
  lm_lock_drop_long(&lm_pools_pinned_lock, section);
  release_pool(pool);
  return why;
}

/* ---- Giving back */

/* Makes thread caches return the objects of the pool (lm_sweep_recall), or ends that. Relaxed: a
 * thread that sees it later keeps objects a little longer. */
static void set_recalled(lm_pool *pool, void *is_on) {
  atomic_store_explicit(&pool->recalled, *(bool *)is_on, memory_order_relaxed);
}

typedef struct trimming {
  int device;
  uint32_t slots;
} trimming;

static void trim_pool(lm_pool *pool, void *ctx) {
  trimming *t = ctx;
  for (unsigned c = 0; c < LM_CLASSES; c++) lm_central_trim(&pool->central[c]);
  t->slots += end_regions(pool, UINT32_MAX, t->device);
}

size_t lm_pinned_trim(int device) {
  trimming t = { .device = device };
  if (!lm_gpu_started()) return 0;
  (void)free_ready_objects();
  each_pool(set_recalled, &(bool){ true });
  lm_sweep_recall();
  each_pool(set_recalled, &(bool){ false });
  each_pool(trim_pool, &t);
  return bytes_of(t.slots);
}

bool lm_pinned_make_room(void) {
  size_t bytes = lm_pinned_trim(ANY_DEVICE);
  return bytes + lm_device_pool_trim_pinned() > 0;
}

static void forget_keeps_free(void) {
  lm_lock_suspended section = lm_lock_take_long(&lm_pools_pinned_lock);
  keeps_free = 0;
  lm_lock_drop_long(&lm_pools_pinned_lock, section);
}

static void note_shed(void) {
  lm_lock_suspended section = lm_lock_take_long(&lm_pools_pinned_lock);
  shed_ns = lm_sys_clock_ns();
  lm_lock_drop_long(&lm_pools_pinned_lock, section);
}

static void decay_pool(lm_pool *pool, void *more) {
  bool later;
  uint32_t held, idle = lm_regions_idle_slots(&pool->regions, &held, &later);
  size_t keeps = lm_device_pool_keep_bytes() >> LM_SLOT_SHIFT;
  uint32_t most = held > keeps ? held - (uint32_t)keeps : 0;
  if (most > idle) most = idle;
  if (most && end_regions(pool, most, ANY_DEVICE)) {
    later = true;
    forget_keeps_free();
  }
  if (later) *(bool *)more = true;
}

/* Down to half of the bound, so that few frees come here. */
static void shed_pool(lm_pool *pool, void *ctx) {
  enum { KEPT = 64 };
  uint32_t used = lm_regions_used(&pool->regions), extra = *(uint32_t *)ctx;
  size_t all = lm_regions_size(&pool->regions) >> LM_SLOT_SHIFT;
  size_t least = lm_device_pool_keep_bytes() >> LM_SLOT_SHIFT;
  size_t keep = used / 8 > KEPT ? used / 8 : KEPT;
  if (keep < least) keep = least;
  if (least < keep / 2) least = keep / 2;
  if (all <= used + keep + extra) return;
  if (end_regions(pool, (uint32_t)(all - used - least - extra), ANY_DEVICE)) note_shed();
}

void lm_pinned_shed(void) {
  if (!lm_gpu_begin()) return;
  (void)free_ready_objects();
  lm_lock_suspended section = lm_lock_take_long(&lm_pools_pinned_lock);
  uint32_t extra = keeps_free;
  lm_lock_drop_long(&lm_pools_pinned_lock, section);
  each_pool(shed_pool, &extra);
  lm_gpu_end();
}

bool lm_pinned_decay(void) {
  if (!lm_gpu_begin()) return false;
  bool more = free_ready_objects();
  each_pool(decay_pool, &more);
  lm_gpu_end();
  return more;
}

typedef struct used_strategies {
  const uint8_t *used;
  uint32_t n;
} used_strategies;

static void end_unused(lm_pool *pool, void *ctx) {
  const used_strategies *r = ctx;
  uint32_t id = lm_strategy_whole(pool->strategy->id);
  if (id < r->n && !r->used[id]) (void)end_regions(pool, UINT32_MAX, ANY_DEVICE);
}

void lm_pinned_end_unused(const uint8_t *used, uint32_t n) {
  if (!lm_gpu_begin()) return;
  each_pool(end_unused, &(used_strategies){ used, n });
  lm_gpu_end();
}

/* ---- All of a device */

typedef struct visiting {
  int device;
  void (*visit)(void *ctx, void *p);
  void *ctx;
} visiting;

static void visit_one(void *ctx, const lm_object *object) {
  const visiting *v = ctx;
  if (lm_strategy_at(object->strategy)->whole->twins && lm_pinned_device(object->base) == v->device)
    v->visit(v->ctx, object->base);
}

void lm_pinned_each(int device, void (*visit)(void *ctx, void *p), void *ctx) {
  lm_walk_each(visit_one, &(visiting){ device, visit, ctx });
}

/* ---- The law */

/* The findings of a walk over the page map.
 *
 * Law: `begin` is 0, or the first slot of an object of a registered pool behind the last guard
 * slot. */
typedef struct review {
  uint32_t regions; /* slots of all regions, without their guard slots */
  uint32_t least;   /* the slot behind the last guard slot: the next region begins there or later */
  uint32_t begin;
  bool is_valid;
} review;

/* Returns whether an object of a registered pool begins at the slot. */
static bool has_registered_object(uint32_t slot) {
  const lm_span *span = lm_map_span(slot);
  uint32_t use = atomic_load_explicit(&span->use, memory_order_relaxed);
  if (use != LM_USE_SMALL && !lm_map_use_is_large(use)) return false;
  lm_pool *pool = lm_pools_at(atomic_load_explicit(&span->strategy, memory_order_relaxed));
  return pool && pool->regions.how.registered;
}

/* Reviews a guard slot: all objects since the last guard slot are in the region before it. */
static void review_guard_slot(review *r, uint32_t slot) {
  const lm_span *span = lm_map_span(slot);
  bool has_room = span->prev > 0 && span->prev <= slot - r->least;
  bool has_all = !r->begin || r->begin >= slot - span->prev;
  r->is_valid = r->is_valid && has_room && has_all && span->next < LM_DEVICES_MAX;
  r->regions += span->prev;
  r->least = slot + 1;
  r->begin = 0;
}

static void subtract_slots(lm_pool *pool, void *regions) {
  *(uint32_t *)regions -= pool->regions.held;
}

/* The slots of all regions are the slots of all registered pools: so free runs are in regions too,
 * and no region is in two pools. */
bool lm_pinned_is_valid(void) {
  review r = { .least = LM_MAP_FIRST, .is_valid = true };
  lm_lock_suspended section = lm_lock_take_long(&lm_pools_pinned_lock);
  uint32_t end = lm_map_end();
  for (uint32_t slot = r.least; slot < end; slot = lm_map_next(slot)) {
    if (is_guard_slot(slot)) review_guard_slot(&r, slot);
    else if (!r.begin && has_registered_object(slot)) r.begin = slot;
  }
  each_pool(subtract_slots, &r.regions);
  lm_lock_drop_long(&lm_pools_pinned_lock, section);
  return r.is_valid && !r.begin && !r.regions;
}
