/* emm.c - loam as an external memory manager: NBEP 7's table over the public functions; and the end
 * of all memory of a device. */
#include "api/memory.h"
#include "device/defer.h"
#include "device/device_pool.h"
#include "device/manager.h"
#include "device/pinned.h"
#include "device/provider.h"
#include "os/error.h"
#include "pages/metadata.h"

/* ---- Reset */

/* Blocks of a device, as many as there is room for. */
typedef struct found {
  int device;
  size_t n, room;
  void **at;
} found;

static void note(void *ctx, lm_provided *block) {
  found *f = ctx;
  if (block->device != f->device) return;
  if (f->n < f->room) f->at[f->n] = block->base;
  f->n++;
}

static void note_pinned(void *ctx, void *p) {
  found *f = ctx;
  if (f->n < f->room) f->at[f->n] = p;
  f->n++;
}

static void note_all(found *f) {
  f->n = 0;
  lm_provider_each(note, f);
  lm_pinned_each(f->device, note_pinned, f);
}

/* False if there is none left to free, or no memory to note them. */
static bool free_some(int device) {
  found f = { .device = device };
  note_all(&f);
  if (!f.n || !(f.at = lm_metadata_alloc(f.n * sizeof *f.at))) return false;
  f.room = f.n;
  note_all(&f);
  for (size_t i = 0; i < f.n && i < f.room; i++) loam_device_free(f.at[i], NULL);
  lm_metadata_free(f.at);
  return f.n > f.room;
}

/* ---- Frees without a stream: any work of the device may still use what is freed */

static void wait(int device) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  if (gpu) (void)gpu->synchronize(device);
}

static void end(int kind, int device, void *at, size_t size) {
  (void)kind;
  (void)device;
  (void)size;
  loam_device_free(at, NULL);
}

static lm_defer queue = { .before = wait, .end = end };

/* What is pending first, so that it is there to be given back. */
size_t loam_device_trim(int device) {
  (void)lm_defer_flush(&queue, device);
  size_t bytes = lm_device_pool_trim(device) + lm_pinned_trim(device);
  return bytes + lm_manager_flush(device);
}

loam_status loam_device_reset(int device) {
  if (!lm_gpu_has(device)) return lm_gpu() ? LOAM_EINVAL : LOAM_EUNSUPPORTED;
  wait(device);
  (void)lm_defer_drain(&queue, device);
  while (free_some(device)) {
  }
  (void)loam_device_trim(device);
  lm_device_pool_detach(device);
  lm_manager_reset(device);
  return LOAM_OK;
}

/* ---- The table */

/* Has `device` be what loam takes for the current one. */
static loam_status enter(int device, void **scope) {
  *scope = NULL;
  if (!lm_gpu_has(device)) return lm_gpu() ? LOAM_EINVAL : LOAM_EUNSUPPORTED;
  return lm_gpu_status(lm_gpu()->push(device, scope));
}

static void leave(void *scope) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  if (gpu) gpu->pop(scope);
}

typedef struct wish {
  size_t size;
  void *stream;
  unsigned flags;
  bool by_handle; /* the host passes the driver's handles on */
} wish;

static void *want_device(const wish *w) {
  return lm_memory_alloc(&(lm_request){
      .size = w->size, .want = LM_WANT_DEVICE, .stream = w->stream, .by_handle = w->by_handle });
}

static void *want_managed(const wish *w) { return loam_managed_alloc(NULL, w->size); }
static void *want_pinned(const wish *w) { return loam_pinned_alloc(NULL, w->size, w->flags); }

/* What is pending goes before there is none. Who refuses has set the words. */
static loam_status make(int device, void *(*want)(const wish *), const wish *w, void **out) {
  void *scope, *made;
  loam_status status = enter(device, &scope);
  if (status != LOAM_OK) return status;
  do made = want(w);
  while (!made && lm_defer_flush(&queue, device));
  leave(scope);
  if (!made) return LOAM_ENOMEM;
  *out = made;
  return LOAM_OK;
}

static loam_status initialize(void *ctx, int device) {
  (void)ctx;
  return lm_manager(device) ? LOAM_OK : LOAM_EUNSUPPORTED;
}

static loam_status memalloc(void *ctx, int device, size_t size, void **out) {
  (void)ctx;
  return make(device, want_device, &(wish){ .size = size, .by_handle = true }, out);
}

static void memfree(void *ctx, int device, void *ptr, size_t size) {
  (void)ctx;
  bool is_device = device >= 0 && device < LM_DEVICES_MAX;
  if (is_device && loam_owns(ptr)) lm_defer_free(&queue, 0, device, ptr, size);
}

static loam_status memalloc_async(void *ctx, int device, size_t size, void *stream, void **out) {
  (void)ctx;
  return make(device, want_device, &(wish){ .size = size, .stream = stream }, out);
}

static void memfree_async(void *ctx, int device, void *ptr, size_t size, void *stream) {
  (void)ctx;
  (void)device;
  (void)size;
  if (loam_owns(ptr)) loam_device_free(ptr, stream);
}

static loam_status memalloc_managed(void *ctx, int device, size_t size, void **out) {
  (void)ctx;
  return make(device, want_managed, &(wish){ .size = size }, out);
}

static loam_status memhostalloc(void *ctx, int device, size_t size, unsigned flags, void **out) {
  (void)ctx;
  return make(device, want_pinned, &(wish){ .size = size, .flags = flags }, out);
}

static loam_status mempin(void *ctx, int device, void *ptr, size_t size, unsigned flags) {
  void *scope;
  (void)ctx;
  loam_status status = enter(device, &scope);
  if (status == LOAM_OK) status = loam_pin(ptr, size, flags);
  leave(scope);
  return status;
}

static void memunpin(void *ctx, int device, void *ptr, size_t size) {
  (void)ctx;
  (void)device;
  (void)size;
  (void)loam_unpin(ptr);
}

static loam_status get_memory_info(void *ctx, int device, size_t *free, size_t *total) {
  (void)ctx;
  return loam_device_memory(device, free, total);
}

static loam_status get_ipc_handle(void *ctx, int device, void *ptr, loam_ipc *out) {
  (void)ctx;
  (void)device;
  return loam_ipc_get(ptr, out);
}

static loam_status open_ipc_handle(void *ctx, int device, const loam_ipc *handle, void **out) {
  (void)ctx;
  return loam_ipc_open(handle, device, out);
}

static void close_ipc_handle(void *ctx, int device, void *ptr) {
  (void)ctx;
  (void)device;
  (void)loam_ipc_close(ptr);
}

static loam_status reset(void *ctx, int device) {
  (void)ctx;
  return loam_device_reset(device);
}

static void defer_enter(void *ctx) {
  (void)ctx;
  loam_defer_enter();
}

static void defer_leave(void *ctx) {
  (void)ctx;
  (void)loam_defer_leave();
}

static const loam_manager table = {
  .size = sizeof(loam_manager),
  .interface_version = LM_MANAGER_INTERFACE,
  .name = "loam",
  .initialize = initialize,
  .memalloc = memalloc,
  .memfree = memfree,
  .memhostalloc = memhostalloc,
  .memhostfree = memfree,
  .mempin = mempin,
  .memunpin = memunpin,
  .get_memory_info = get_memory_info,
  .get_ipc_handle = get_ipc_handle,
  .open_ipc_handle = open_ipc_handle,
  .close_ipc_handle = close_ipc_handle,
  .reset = reset,
  .defer_enter = defer_enter,
  .defer_leave = defer_leave,
  .memalloc_async = memalloc_async,
  .memfree_async = memfree_async,
  .memalloc_managed = memalloc_managed,
  .memfree_managed = memfree,
};

const loam_manager *loam_manager_get(void) { return &table; }

loam_status loam_manager_set(const loam_manager *m) {
  if (m == &table)
    return lm_error(LOAM_EINVAL, "manager \"loam\" has its memory from the one that is set");
  return lm_manager_set(m);
}
