/* provider.c - blocks of handlers, of the host's own allocator and of drivers: see provider.h. */
#include "device/provider.h"

#include <stdio.h>
#include <string.h>

#include "device/defer.h"
#include "device/device_pool.h"
#include "device/handler.h"
#include "device/manager.h"
#include "device/sleep.h"
#include "os/error.h"

const char lm_provider_words[] = "";

/* ---- Strategies and requests */

/* Returns whether the machine has no device; false in a fork of a process that used one. */
static bool has_no_device(void) { return !lm_gpu() && !lm_gpu_is_barred(); }

bool lm_provider_fits(const lm_request *request, const lm_strategy *s) {
  switch (s->desc.kind) {
    case LM_KIND_DENY: return true;
    case LM_KIND_DEVICE: return request->want == LM_WANT_DEVICE;
    case LM_KIND_MANAGED: return request->want != LM_WANT_PINNED;
    case LM_KIND_PINNED:
      return request->want == LM_WANT_HOST || request->want == LM_WANT_PINNED || s->desc.mapped;
    default: return request->want == LM_WANT_HOST || has_no_device();
  }
}

static void describe_pinned(lm_desc *desc, unsigned flags) {
  desc->mapped = flags & LM_GPU_MAPPED;
  desc->portable = flags & LM_GPU_PORTABLE;
  desc->write_combined = flags & LM_GPU_WRITE_COMBINED;
}

lm_strategy *lm_provider_of_handler(const loam_handler *handler) {
  /* The strategy of the last call: most calls are for one handler. Release and acquire as in
   * lm_provider_default. */
  static _Atomic(lm_strategy *) last;
  lm_strategy *s = atomic_load_explicit(&last, memory_order_acquire);
  if (s && !strcmp(s->desc.handler, handler->name)) return s;
  lm_desc desc = { .kind = LM_KIND_HANDLER };
  snprintf(desc.name, sizeof desc.name, "handler:%.55s", handler->name);
  strcpy(desc.handler, handler->name);
  if (lm_strategy_intern(&desc, &s)) return NULL;
  atomic_store_explicit(&last, s, memory_order_release);
  return s;
}

lm_strategy *lm_provider_default(const lm_request *request) {
  /* The strategies that were made, by kind of memory and flags. The release of the thread that
   * interned a strategy pairs with the acquire of a thread that reads it. */
  static LM_SPARSE _Atomic(lm_strategy *) known[LM_WANT_PINNED + 1][8];
  static const lm_kind kinds[] = { LM_KIND_HOST, LM_KIND_DEVICE, LM_KIND_MANAGED, LM_KIND_PINNED };
  lm_strategy *s;
  lm_assert((unsigned)request->want < LM_COUNT(known));
  if (request->want == LM_WANT_HOST) return lm_strategy_at(0);
  _Atomic(lm_strategy *) *place = &known[request->want][request->flags % LM_COUNT(known[0])];
  s = atomic_load_explicit(place, memory_order_acquire);
  if (s) return s;
  lm_desc desc = { .kind = kinds[request->want] };
  strcpy(desc.name, lm_strategy_kind_text(desc.kind));
  if (desc.kind == LM_KIND_PINNED) describe_pinned(&desc, request->flags);
  if (lm_strategy_intern(&desc, &s)) return NULL;
  atomic_store_explicit(place, s, memory_order_release);
  return s;
}

/* ---- The host's own allocator */

/* Returns the usable bytes of a block of a host's own allocator. */
static size_t system_size(const loam_system *system, void *p, size_t size) {
  size_t usable = system->usable_size(p);
  return usable > size ? usable : size;
}

/* Returns NULL if a block was made, else the reason why not. */
static const char *result_of(const lm_provided *out) {
  return out->made ? NULL : "it has no memory";
}

/* aligned_alloc takes a size that is a multiple of the alignment, and has no form that zeroes. */
static const char *alloc_system(const lm_request *w, lm_provided *out) {
  const loam_system *system = lm_handler_system();
  size_t size = w->size ? w->size : 1;
  if (w->align > 16) out->made = system->aligned_alloc(w->align, lm_align_up(size, w->align));
  else if (w->zero) out->made = system->calloc(1, size);
  else out->made = system->malloc(size);
  out->handler = system;
  out->base = out->made;
  out->size = out->made ? system_size(system, out->made, size) : 0;
  if (out->made && w->zero && w->align > 16) memset(out->made, 0, size);
  return result_of(out);
}

/* ---- Handlers */

/* Returns the handler that serves a request of a strategy: the one that the host has set, or else
 * the one that is registered under the strategy's name; NULL: none is. */
static const loam_handler *handler_for(const lm_request *r, const lm_strategy *s) {
  return r->handler ? r->handler : lm_handler_find(s->desc.handler);
}

/* A handler takes no alignment. So this requests as much more as the alignment may need, and `made`
 * is what the handler returned. */
static const char *alloc_handler(const lm_request *w, const lm_strategy *s, lm_provided *out) {
  const loam_handler *handler = handler_for(w, s);
  if (!handler) return "no handler of its name is registered";
  const loam_allocator *a = &handler->allocator;
  out->maker = LM_PROVIDER_HANDLER;
  out->handler = handler;
  out->size = w->size ? w->size : 1;
  out->asked = out->size + (w->align > 16 ? w->align - 1 : 0); /* a handler may align to less */
  /* As NumPy calls it: `count` elements of one byte. NEP 49's own sample relies on that. */
  out->made = w->zero ? a->calloc(a->ctx, out->asked, 1) : a->malloc(a->ctx, out->asked);
  out->base = (char *)lm_align_up((uintptr_t)out->made, w->align > 16 ? w->align : 1);
  return result_of(out);
}

static void free_handler(const lm_provided *b) {
  const loam_allocator *a = &((const loam_handler *)b->handler)->allocator;
  a->free(a->ctx, b->made, b->asked);
}

/* ---- Devices */

enum { DEVICE_ALIGN = 256 }; /* bytes; every driver aligns device memory to it */

int lm_provider_device(uint8_t device) {
  if (device) return device - 1;
  if (lm_gpu_count() == 1) return 0; /* it is the current device, too */
  int current = lm_gpu_current();
  return current < 0 ? 0 : current;
}

/* Takes memory from the manager. If that fails, the manager has set the error words. */
static const char *take_from_manager(lm_provided *out, lm_provider maker, lm_manager_kind kind) {
  out->maker = maker;
  lm_gpu_result result = lm_manager_alloc(kind, out->device, out->size, 0, &out->made);
  if (result == LM_GPU_NO_MEMORY && lm_sleep_make_room(out->device, out->stream))
    result = lm_manager_alloc(kind, out->device, out->size, 0, &out->made);
  if (result != LM_GPU_OK) out->made = NULL;
  out->base = out->made;
  return out->made ? NULL : lm_provider_words;
}

/* Takes memory from the driver's own pool, in the order of out->stream. */
static const char *take_in_stream_order(lm_provided *out) {
  const loam_manager *m = lm_manager(out->device);
  out->maker = LM_PROVIDER_STREAM;
  if (!m) return lm_provider_words;
  loam_status status = m->memalloc_async(m->ctx, out->device, out->size, out->stream, &out->made);
  if (status == LOAM_ENOMEM && lm_sleep_make_room(out->device, out->stream))
    status = m->memalloc_async(m->ctx, out->device, out->size, out->stream, &out->made);
  if (status != LOAM_OK) out->made = NULL;
  out->base = out->made;
  return out->made ? NULL : lm_provider_words;
}

/* Allocates a block that can sleep. Its memory outlives the context, and ends by a reset of it. */
static const char *take_sleeper(const lm_request *w, lm_provided *out) {
  lm_sleeper *s = lm_sleep_alloc(out->device, w->size, w->stream);
  if (!s) return lm_provider_words;
  out->maker = LM_PROVIDER_SLEEP;
  out->sleeper = s;
  out->base = out->made = (void *)(uintptr_t)s->at;
  out->size = s->size;
  return NULL;
}

static const char *alloc_device(const lm_request *w, const lm_strategy *s, lm_provided *out) {
  out->stream = w->stream;
  if (s->desc.supply == LM_DEVICE_POOL_DRIVER) return take_in_stream_order(out);
  if (s->desc.supply == LM_DEVICE_POOL_SLEEP) return take_sleeper(w, out);
  return take_from_manager(out, LM_PROVIDER_DEVICE, LM_MANAGER_DEVICE);
}

static const char *alloc_managed(const lm_request *w, const lm_strategy *s, lm_provided *out) {
  out->stream = w->stream;
  const char *why = take_from_manager(out, LM_PROVIDER_MANAGED, LM_MANAGER_MANAGED);
  /* A hint: it does not matter if the driver refuses it. */
  if (!why && s->desc.prefer)
    (void)lm_gpu()->managed_prefer((lm_devptr)(uintptr_t)out->made, out->size,
                                   lm_provider_device(s->desc.prefer - 1));
  return why;
}

static const char *alloc_on_device(const lm_request *w, const lm_strategy *s, lm_provided *out) {
  if (!lm_gpu()) return lm_gpu_why();
  if (w->align > DEVICE_ALIGN) return "memory of a driver is aligned to 256 bytes";
  out->device = lm_provider_device(s->desc.device);
  out->size = w->size ? w->size : 1;
  if (!lm_gpu_has(out->device)) return lm_provider_words;
  bool is_device = s->desc.kind == LM_KIND_DEVICE;
  const char *why = is_device ? alloc_device(w, s, out) : alloc_managed(w, s, out);
  if (why) return why;
  out->context = lm_gpu()->context(out->device);
  if (w->zero && !is_device) memset(out->base, 0, w->size);
  return NULL;
}

static void free_on_device(const lm_provided *b, const lm_stream *on) {
  static const lm_manager_kind kinds[] = {
    [LM_PROVIDER_DEVICE] = LM_MANAGER_DEVICE,
    [LM_PROVIDER_MANAGED] = LM_MANAGER_MANAGED,
  };
  lm_assert(b->device >= 0 && b->device < LM_DEVICES_MAX);
  if (b->maker == LM_PROVIDER_SLEEP) {
    lm_sleep_free(b->sleeper, on, b->stream);
    return;
  }
  if (b->maker != LM_PROVIDER_STREAM) {
    lm_manager_free(kinds[b->maker], b->device, b->made, b->size);
    return;
  }
  const loam_manager *m = lm_manager(b->device);
  if (m) m->memfree_async(m->ctx, b->device, b->made, b->size, on ? *on : b->stream);
}

bool lm_provider_is_pooled(const lm_strategy *s) {
  return s->desc.kind == LM_KIND_PINNED ||
         (s->desc.kind == LM_KIND_DEVICE && s->desc.supply <= LM_DEVICE_POOL_CHUNKS);
}

/* Returns whether the request needs memory that the driver's handles can name. */
static bool wants_chunks(const lm_request *request, const lm_strategy *s) {
  if (s->desc.supply == LM_DEVICE_POOL_AUTO) return request->by_handle;
  return s->desc.supply == LM_DEVICE_POOL_CHUNKS;
}

/* Returns the pool of device memory that serves a request. "cache" serves only memory that is
 * mapped to addresses, since any other memory belongs to a context. */
static lm_device_pool *device_pool(int device, bool in_chunks) {
  lm_device_pool *cache = in_chunks ? NULL : lm_device_pool_of(device, false);
  bool maps = cache && lm_device_pool_maps(cache) && !lm_manager_is_custom(LM_MANAGER_DEVICE);
  return maps ? cache : lm_device_pool_of(device, true);
}

lm_device_pool *lm_provider_pool(const lm_request *request, const lm_strategy *s,
                                 const char **why) {
  int count = lm_gpu_count();
  *why = lm_likely(count) ? lm_provider_words : lm_gpu_why();
  if (lm_unlikely(!count)) return NULL;
  int device = count == 1 && !s->desc.device ? 0 : lm_provider_device(s->desc.device);
  if (lm_unlikely(device >= count) && !lm_gpu_has(device)) return NULL;
  if (s->desc.kind == LM_KIND_DEVICE) return device_pool(device, wants_chunks(request, s));
  *why = "pinned memory is aligned to a page at most";
  if (request->align > LM_PAGE) return NULL;
  *why = lm_provider_words;
  lm_pinned_desc pinned = { .is_pinned = true, .placement = s->desc.placement };
  pinned.write_combined = s->desc.write_combined || request->flags & LM_GPU_WRITE_COMBINED;
  return lm_device_pool_of_pinned(device, lm_gpu()->host_context(device), &pinned);
}

/* Returns the block that can sleep; NULL: this one cannot. */
static const lm_sleeper *sleeper_of(const lm_provided *b) {
  return b->maker == LM_PROVIDER_SLEEP ? b->sleeper : NULL;
}

/* Another thread may put one of the two blocks to sleep: before the copy, which then fails, or
 * after it has begun, and the copy is work that loam_sleep waits for. */
bool lm_provider_copy(const lm_provided *from, const lm_provided *to, size_t size,
                      lm_stream stream) {
  lm_lock_suspended section;
  const lm_gpu_ops *gpu = lm_gpu_started();
  const lm_sleeper *first = sleeper_of(from), *second = sleeper_of(to);
  bool may_sleep = first || second;
  bool is_awake = !may_sleep || lm_sleep_begin_copy(first, second, &section);
  bool is_copied = is_awake && gpu &&
                   gpu->copy(from->device, (lm_devptr)(uintptr_t)to->base,
                             (lm_devptr)(uintptr_t)from->base, size, stream) == LM_GPU_OK;
  if (may_sleep) lm_sleep_end_copy(section);
  if (!is_awake) lm_error_null("the block is asleep, and loam_wake has to come first");
  return is_copied;
}

/* ---- All providers */

bool lm_provider_serves(lm_kind kind) {
  return !lm_strategy_kind_is_pooled(kind) && kind != LM_KIND_DENY;
}

const char *lm_provider_alloc(const lm_request *request, const lm_strategy *s, lm_provided *out) {
  lm_assert(lm_provider_serves(s->desc.kind) && lm_is_pow2(request->align));
  *out = (lm_provided){ .maker = LM_PROVIDER_SYSTEM, .device = -1 };
  out->want = (uint8_t)request->want;
  out->flags = (uint8_t)request->flags;
  if (s->desc.kind == LM_KIND_SYSTEM) return alloc_system(request, out);
  if (s->desc.kind == LM_KIND_HANDLER) return alloc_handler(request, s, out);
  return alloc_on_device(request, s, out);
}

bool lm_provider_find(const void *p, lm_provided *out) {
  return lm_device_pool_find(p, out) || lm_provided_find(p, out);
}

void lm_provider_each(void (*visit)(void *ctx, lm_provided *block), void *ctx) {
  lm_device_pool_each(visit, ctx);
  lm_provided_each(visit, ctx);
}

const char *lm_provider_name(const lm_provided *block) {
  if (block->maker == LM_PROVIDER_HANDLER) return ((const loam_handler *)block->handler)->name;
  if (block->maker == LM_PROVIDER_SYSTEM) return "system";
  return block->maker >= LM_PROVIDER_POOL ? "loam" : "driver";
}

unsigned lm_provider_version(const lm_provided *block) {
  if (block->maker != LM_PROVIDER_HANDLER) return 0;
  return ((const loam_handler *)block->handler)->version;
}

void lm_provider_free(const lm_provided *block, const lm_stream *on) {
  lm_assert(block->made && block->maker < LM_PROVIDER_POOL);
  if (block->maker == LM_PROVIDER_SYSTEM) ((const loam_system *)block->handler)->free(block->made);
  else if (block->maker == LM_PROVIDER_HANDLER) free_handler(block);
  else free_on_device(block, on);
}

bool lm_provider_end_collected(const lm_request *request, const lm_strategy *s) {
  lm_kind kind = s->desc.kind;
  const lm_gpu_ops *gpu = lm_gpu_started();
  char words[640];
  if (kind != LM_KIND_DEVICE && kind != LM_KIND_MANAGED && kind != LM_KIND_PINNED) return false;
  if (!gpu) return false;
  snprintf(words, sizeof words, "%s", loam_error());
  size_t bytes = 0;
  for (int device = 0; device < LM_DEVICES_MAX; device++) {
    bool is_wanted = kind == LM_KIND_PINNED || device == lm_provider_device(s->desc.device);
    if (is_wanted && lm_gpu_has(device) && gpu->may_record(device, request->stream))
      bytes += lm_defer_flush_in_use(device);
  }
  if (!bytes) (void)lm_error(LOAM_ENOMEM, "%s", words);
  return bytes > 0;
}

bool lm_provider_can_resize(const lm_provided *b, const lm_request *request, const lm_strategy *s) {
  if (b->made != b->base) return false;
  if (s->desc.kind == LM_KIND_SYSTEM)
    return b->maker == LM_PROVIDER_SYSTEM && b->handler == lm_handler_system();
  return s->desc.kind == LM_KIND_HANDLER && b->maker == LM_PROVIDER_HANDLER &&
         b->handler == handler_for(request, s);
}

void *lm_provider_resize(const lm_provided *b, size_t size) {
  lm_assert(b->made == b->base);
  lm_assert(b->maker == LM_PROVIDER_SYSTEM || b->maker == LM_PROVIDER_HANDLER);
  if (!size) size = 1;
  if (b->maker == LM_PROVIDER_SYSTEM)
    return ((const loam_system *)b->handler)->realloc(b->base, size);
  const loam_allocator *a = &((const loam_handler *)b->handler)->allocator;
  return a->realloc(a->ctx, b->base, size);
}

size_t lm_provider_size(const lm_provided *block, void *p, size_t size) {
  if (block->maker == LM_PROVIDER_SYSTEM) return system_size(block->handler, p, size);
  return size ? size : 1;
}
