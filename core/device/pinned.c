/* pinned.c - small objects of pinned memory. */
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

/* Slots of the first region (half a MiB: registering it takes no time that is noticed), of the
 * largest, and of a pool until when it doubles. */
enum { STEP_FIRST = 8, STEP_MOST = 256, DOUBLES_UNTIL = 64 };
enum { ANY = -1 }; /* device */
/* How long a refusal counts as the driver's answer. */
enum { REFUSAL_NS = 10000000 };
enum { FLAGS = LM_GPU_MAPPED | LM_GPU_PORTABLE };

static size_t bytes_of(uint32_t slots) { return (size_t)slots << LM_SLOT_SHIFT; }

bool lm_pinned_serves(const lm_strategy *whole, size_t size, size_t align) {
  return whole->twins && size <= LM_SMALL_EAGER && align <= LM_PAGE && lm_gpu() &&
         !lm_manager_is_custom(LM_MANAGER_HOST);
}

/* Asked first, so that it is known by then whether devices are on several nodes. */
lm_strategy *lm_pinned_twin(lm_strategy *whole, int device, bool asked) {
  int node = lm_gpu_node(device);
  bool by_node = whole->desc.placement.mode == LM_BIND_DEFAULT && lm_gpu_is_spread();
  return lm_strategy_twin(whole, by_node ? node : -1, asked);
}

/* ---- Pools at hand ------------------------------------------------------------------------- */

/* The pool of a strategy, which does not end until it is let go: retire.c looks for users after a
 * grace, and this is an operation. */
static lm_pool *hold(lm_strategy *s, bool make) {
  lm_thread *t = lm_thread_get();
  if (!t) return NULL;
  lm_thread_enter(t);
  lm_pool *pool = make || lm_pool_of(s) ? lm_pool_for(s) : NULL;
  if (pool && !pool->regions.how.registered) pool = NULL;
  if (pool) atomic_fetch_add(&pool->users, 1);
  lm_thread_leave(t);
  return pool;
}

static void let_go(lm_pool *pool) { atomic_fetch_sub(&pool->users, 1); }

static void each_pool(void (*act)(lm_pool *pool, void *ctx), void *ctx) {
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++) {
    lm_strategy *s = lm_strategy_at(id);
    lm_pool *pool = s->whole->twins ? hold(s, false) : NULL;
    if (!pool) continue;
    act(pool, ctx);
    let_go(pool);
  }
}

/* ---- Regions ------------------------------------------------------------------------------- */

/* Of a seal: the region's slots, and the device. Constant until the region ends. */
static void seal(uint32_t slot, uint32_t slots, int device) {
  lm_span *span = lm_map_span(slot + slots);
  span->next = (uint32_t)device;
  span->prev = slots;
  lm_map_extent(slot + slots, 1, LM_USE_SEAL);
  lm_map_extent(slot, slots, LM_USE_NONE);
}

static bool is_seal(uint32_t slot) {
  return atomic_load_explicit(&lm_map_span(slot)->use, memory_order_relaxed) == LM_USE_SEAL;
}

/* Whether a free run is a region of a device, whole. There is a seal behind it, if it is. */
static bool is_region(uint32_t slot, uint32_t slots, int device) {
  const lm_span *span = lm_map_span(slot + slots);
  return is_seal(slot + slots) && span->prev == slots &&
         (device == ANY || span->next == (uint32_t)device);
}

int lm_pinned_device(const void *p) {
  const lm_span *span = lm_map_span(lm_map_slot(p));
  uint32_t slot = lm_map_slot((void *)atomic_load_explicit(&span->start, memory_order_relaxed));
  while (lm_map_owns(lm_map_address(slot)) && !is_seal(slot)) {
    uint32_t next = lm_map_next(slot);
    slot = next > slot ? next : slot + 1; /* it is being split */
  }
  return lm_map_owns(lm_map_address(slot)) ? (int)lm_map_span(slot)->next : -1;
}

bool lm_pinned_owns(const void *p) {
  lm_object object;
  return lm_pool_find(p, &object) && lm_strategy_at(object.strategy)->whole->twins;
}

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

/* Pages are bound and there before they are registered, which then is short. */
static loam_status make_ready(const lm_strategy *s, int device, void *at, size_t size) {
  const lm_placement *p = &s->desc.placement;
  const loam_manager *m = lm_manager(device);
  if (!m) return LOAM_EUNSUPPORTED;
  if (!lm_available_has(size, p->mode == LM_BIND_BIND ? p->nodes : 0) || lm_sys_commit(at, size))
    return lm_error(LOAM_ENOMEM, "no memory for %zu bytes to pin", size);
  bind(s, device, at, size);
  (void)lm_sys_prefault(at, size);
  loam_status status = m->mempin(m->ctx, device, at, size, FLAGS);
  if (status != LOAM_OK && m->mempin != lm_manager_driver.mempin)
    lm_error(status, "manager \"%s\": mempin of %zu bytes on device %d: %s", m->name, size, device,
             loam_status_text(status));
  return status;
}

static loam_status grow(lm_pool *pool, int device, uint32_t slots) {
  uint32_t slot = lm_map_take(slots + 1, LM_SLOT);
  if (!slot) return lm_error(LOAM_ENOMEM, "no address space for %zu bytes to pin", bytes_of(slots));
  loam_status status = make_ready(pool->strategy, device, lm_map_address(slot), bytes_of(slots));
  if (status != LOAM_OK) {
    lm_regions_return(slot, slots + 1);
    return status;
  }
  seal(slot, slots, device);
  lm_regions_add(&pool->regions, slot, slots);
  return LOAM_OK;
}

/* False: it is the driver's still. What went with its context, or its process, is not. */
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

/* A region that was taken out. What cannot be unregistered is nobody's from then on. */
static void end_region(uint32_t slot, uint32_t slots) {
  int device = (int)lm_map_span(slot + slots)->next;
  bool done = unregister(lm_map_address(slot), bytes_of(slots), device);
  lm_map_extent(slot + slots, 1, LM_USE_NONE);
  lm_map_extent(slot, slots + 1, LM_USE_NONE);
  if (done) lm_regions_return(slot, slots + 1);
}

/* Ends regions that are free as wholes, of at most `most` slots. How many slots. */
static uint32_t end_regions(lm_pool *pool, uint32_t most, int device) {
  uint32_t slot, slots, before = most;
  lm_lock_take(&lm_pools_pinned_lock);
  while ((slot = lm_regions_take_idle(&pool->regions, &most, is_region, device, &slots)) != 0)
    end_region(slot, slots);
  lm_lock_drop(&lm_pools_pinned_lock);
  return before - most;
}

/* ---- What a stream may still use ----------------------------------------------------------- */

static lm_device_pool *queues_of(int device) {
  lm_pinned_desc pinned = { .is_pinned = true };
  return lm_device_pool_of_pinned(device, &pinned);
}

static void release(void *p) {
  lm_thread *t = lm_thread_get();
  if (!t) return;
  lm_thread_enter(t);
  lm_pool_release(p);
  lm_thread_leave(t);
}

/* Whether there were any. */
static bool release_ended(void) {
  void *p, *any = NULL;
  for (lm_device_pool *c = lm_device_pool_next(NULL, ANY); c; c = lm_device_pool_next(c, ANY))
    while ((p = lm_device_pool_awaited(c)) != NULL) release(any = p);
  return any;
}

/* Without memory to note it by, the device is waited for. */
void lm_pinned_free_after(void *p, lm_stream stream) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  int device = gpu ? lm_pinned_device(p) : 0;
  lm_device_pool *c = gpu ? queues_of(device) : NULL;
  bool attend = false;
  lm_stream_ref ref = c ? lm_device_pool_stream_on(c, stream) : (lm_stream_ref){ 0 };
  if (c && lm_device_pool_await(c, p, ref, &attend)) {
    if (attend) lm_device_pool_poll(c, ref);
    lm_decay_stir();
    return;
  }
  if (gpu) (void)gpu->synchronize(device);
  release(p);
}

/* ---- Growing ------------------------------------------------------------------------------- */

/* The last refusal; under lm_pools_pinned_lock. */
static LM_SPARSE struct {
  const lm_pool *pool;
  int64_t at_ns;
  char words[LM_ERROR_SIZE / 2];
} refusal;

static uint32_t step_of(const lm_regions *r, uint32_t slots) {
  uint32_t step = r->held < DOUBLES_UNTIL ? r->held : DOUBLES_UNTIL;
  if (step < r->held / 4) step = r->held / 4;
  if (step < STEP_FIRST) step = STEP_FIRST;
  if (step > STEP_MOST) step = STEP_MOST;
  return step < slots ? slots : step;
}

static void end_idle(lm_pool *pool, void *ended) {
  uint32_t most = UINT32_MAX, slot, slots;
  while ((slot = lm_regions_take_idle(&pool->regions, &most, is_region, ANY, &slots)) != 0) {
    end_region(slot, slots);
    *(bool *)ended = true;
  }
}

/* Less, where there is not as much; then with what other pools do not use. */
static loam_status grow_somehow_locked(lm_pool *pool, int device, uint32_t slots) {
  uint32_t step = step_of(&pool->regions, slots);
  bool ended = false;
  loam_status status = grow(pool, device, step);
  if (status == LOAM_ENOMEM && step > slots) status = grow(pool, device, slots);
  if (status != LOAM_ENOMEM) return status;
  each_pool(end_idle, &ended);
  return lm_device_pool_trim_pinned() || ended ? grow(pool, device, slots) : status;
}

static const char *supply_locked(lm_pool *pool, int device, uint32_t slots) {
  if (lm_regions_has_dirty(&pool->regions, slots)) return NULL;
  if (refusal.pool == pool && lm_sys_clock_ns() - refusal.at_ns < REFUSAL_NS) {
    lm_error(LOAM_ENOMEM, "%s", refusal.words);
    return lm_provider_words;
  }
  if (grow_somehow_locked(pool, device, slots) == LOAM_OK) {
    refusal.pool = NULL;
    return NULL;
  }
  refusal.pool = pool;
  refusal.at_ns = lm_sys_clock_ns();
  snprintf(refusal.words, sizeof refusal.words, "%s", loam_error());
  return lm_provider_words;
}

const char *lm_pinned_grow(lm_strategy *twin, int device, size_t size) {
  lm_device_pool_poll_awaited();
  if (release_ended()) return NULL;
  lm_pool *pool = hold(twin, true);
  if (!pool) return "loam has no memory to keep it by";
  lm_lock_take(&lm_pools_pinned_lock);
  const char *why = supply_locked(pool, device, lm_central_span_slots(lm_class_of(size)));
  lm_lock_drop(&lm_pools_pinned_lock);
  let_go(pool);
  return why;
}

/* ---- Giving back ---------------------------------------------------------------------------- */

static void recall(lm_pool *pool, void *is_on) {
  atomic_store_explicit(&pool->recalled, *(bool *)is_on, memory_order_relaxed);
}

typedef struct trimming {
  int device;
  uint32_t slots;
} trimming;

static void trim_pool(lm_pool *pool, void *ctx) {
  trimming *t = ctx;
  for (unsigned c = 0; c < LM_CLASSES; c++) lm_central_trim(&pool->store[c]);
  t->slots += end_regions(pool, UINT32_MAX, t->device);
}

size_t lm_pinned_trim(int device) {
  trimming t = { .device = device };
  if (!lm_gpu_started()) return 0;
  (void)release_ended();
  each_pool(recall, &(bool){ true });
  lm_sweep_recall();
  each_pool(recall, &(bool){ false });
  each_pool(trim_pool, &t);
  return bytes_of(t.slots);
}

static void decay_pool(lm_pool *pool, void *more) {
  bool later;
  uint32_t held, idle = lm_regions_idle_slots(&pool->regions, &held, &later);
  size_t keeps = lm_device_pool_keep_bytes() >> LM_SLOT_SHIFT;
  uint32_t most = held > keeps ? held - (uint32_t)keeps : 0;
  if (most > idle) most = idle;
  if (most && end_regions(pool, most, ANY)) later = true;
  if (later) *(bool *)more = true;
}

bool lm_pinned_decay(void) {
  if (!lm_gpu_begin()) return false;
  bool more = release_ended();
  each_pool(decay_pool, &more);
  lm_gpu_end();
  return more;
}

typedef struct roll {
  const uint8_t *used;
  uint32_t n;
} roll;

static void end_unused(lm_pool *pool, void *ctx) {
  const roll *r = ctx;
  uint32_t id = lm_strategy_whole(pool->strategy->id);
  if (id < r->n && !r->used[id]) (void)end_regions(pool, UINT32_MAX, ANY);
}

void lm_pinned_end_unused(const uint8_t *used, uint32_t n) {
  if (!lm_gpu_begin()) return;
  each_pool(end_unused, &(roll){ used, n });
  lm_gpu_end();
}

/* ---- All of a device ----------------------------------------------------------------------- */

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
