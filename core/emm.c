/* emm.c - loam as an external memory manager: NBEP 7's table over the public functions; and the end
 * of all memory of a device. */
#include "error.h"
#include "make.h"
#include "manager.h"
#include "own.h"

/* ---- Reset */

/* Blocks of a device, as many as there is room for. */
typedef struct found {
  int device;
  size_t n, room;
  void **at;
} found;

static void note(void *ctx, lm_foreign *block) {
  found *f = ctx;
  if (block->device != f->device) return;
  if (f->n < f->room) f->at[f->n] = block->base;
  f->n++;
}

/* False if there is none left to free, or no memory to note them. */
static bool free_some(int device) {
  found f = { .device = device };
  lm_make_each(note, &f);
  if (!f.n || !(f.at = lm_own_alloc(f.n * sizeof *f.at))) return false;
  f.room = f.n;
  f.n = 0;
  lm_make_each(note, &f);
  for (size_t i = 0; i < f.n && i < f.room; i++) loam_device_free(f.at[i], NULL);
  lm_own_free(f.at);
  return f.n > f.room;
}

loam_status loam_device_reset(int device) {
  if (!lm_gpu_has(device)) return lm_gpu() ? LOAM_EINVAL : LOAM_EUNSUPPORTED;
  (void)lm_gpu()->synchronize(device);
  while (free_some(device)) {
  }
  (void)loam_device_trim(device);
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

static loam_status leave(void *scope, void *made, void **out) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  if (gpu) gpu->pop(scope);
  if (!made) return LOAM_ENOMEM; /* whoever said why has set the words */
  *out = made;
  return LOAM_OK;
}

static loam_status initialize(void *ctx, int device) {
  (void)ctx;
  return lm_manager(device) ? LOAM_OK : LOAM_EUNSUPPORTED;
}

static loam_status memalloc_async(void *ctx, int device, size_t size, void *stream, void **out) {
  void *scope;
  (void)ctx;
  loam_status status = enter(device, &scope);
  return status ? status : leave(scope, loam_device_alloc(NULL, size, stream), out);
}

static void memfree_async(void *ctx, int device, void *ptr, size_t size, void *stream) {
  (void)ctx;
  (void)device;
  (void)size;
  if (loam_owns(ptr)) loam_device_free(ptr, stream);
}

static loam_status memalloc(void *ctx, int device, size_t size, void **out) {
  return memalloc_async(ctx, device, size, NULL, out);
}

static void memfree(void *ctx, int device, void *ptr, size_t size) {
  memfree_async(ctx, device, ptr, size, NULL);
}

static loam_status memalloc_managed(void *ctx, int device, size_t size, void **out) {
  void *scope;
  (void)ctx;
  loam_status status = enter(device, &scope);
  return status ? status : leave(scope, loam_managed_alloc(NULL, size), out);
}

static loam_status memhostalloc(void *ctx, int device, size_t size, unsigned flags, void **out) {
  void *scope;
  (void)ctx;
  loam_status status = enter(device, &scope);
  return status ? status : leave(scope, loam_pinned_alloc(NULL, size, flags), out);
}

static loam_status mempin(void *ctx, int device, void *ptr, size_t size, unsigned flags) {
  void *scope;
  (void)ctx;
  loam_status status = enter(device, &scope);
  if (status == LOAM_OK) status = loam_pin(ptr, size, flags);
  if (scope) lm_gpu()->pop(scope);
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
    return lm_fail(LOAM_EINVAL, "manager \"loam\" has its memory from the one that is set");
  return lm_manager_give(m);
}
