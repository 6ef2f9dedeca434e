/* emm.c - loam as an external memory manager: the table of NBEP 7 (loam_manager_get), on top of the
 * public functions; and loam_device_trim and loam_device_reset. */
#include "api/ipc.h"
#include "api/memory.h"
#include "api/pin.h"
#include "device/defer.h"
#include "device/device_pool.h"
#include "device/driver_pool.h"
#include "device/manager.h"
#include "device/pinned.h"
#include "device/provider.h"
#include "device/sleep.h"
#include "os/error.h"
#include "pages/metadata.h"

/* ---- Reset */

/* The live blocks of a device, or of one of its contexts. Law: the first min(n, room) entries of
 * `at` are set. */
typedef struct block_list {
  int device;
  const void *context; /* NULL: all blocks of the device */
  size_t n;            /* blocks that were found */
  size_t room;         /* entries of `at`; 0: blocks are only counted */
  void **at;
} block_list;

static inline bool block_list_is_valid(const block_list *list) {
  if (!list->room != !list->at) return false;
  for (size_t i = 0; i < list->n && i < list->room; i++)
    if (!list->at[i]) return false;
  return true;
}

/* Adds a block to the list, or only counts it where there is no room. */
static void add_block(block_list *list, void *at) {
  lm_assert(!list->room || list->at);
  if (list->n < list->room) list->at[list->n] = at;
  list->n++;
}

static void add_provided(void *ctx, lm_provided *block) {
  block_list *list = ctx;
  bool is_in = !list->context || block->context == list->context;
  if (block->device == list->device && is_in) add_block(list, block->base);
}

static void add_pinned(void *ctx, void *p) { add_block(ctx, p); }

/* Walks all live blocks that belong in a list. Pinned memory of pools belongs to no context. */
static void collect(block_list *list) {
  list->n = 0;
  lm_provider_each(add_provided, list);
  if (!list->context) lm_pinned_each(list->device, add_pinned, list);
  lm_verify(block_list_is_valid(list));
}

/* Frees the live blocks of a list, and sets *has_more if other threads have allocated more blocks
 * since the list was counted. The walks hold locks: blocks are collected first, and freed then. */
static loam_status free_listed(block_list *list, bool *has_more) {
  *has_more = false;
  collect(list);
  if (!list->n) return LOAM_OK;
  if (!(list->at = lm_metadata_alloc(list->n * sizeof *list->at)))
    return lm_error(LOAM_ENOMEM, "device %d: no memory for a list of its %zu blocks", list->device,
                    list->n);
  list->room = list->n;
  collect(list);
  for (size_t i = 0; i < list->n && i < list->room; i++) loam_device_free(list->at[i], NULL);
  lm_metadata_free(list->at);
  *has_more = list->n > list->room;
  return LOAM_OK;
}

/* Frees the live blocks of a device, or of one of its contexts. Fails, with all or some of the
 * blocks left, if there is no memory for a list of them. */
static loam_status free_blocks(int device, const void *context) {
  loam_status status;
  bool has_more;
  do status = free_listed(&(block_list){ .device = device, .context = context }, &has_more);
  while (has_more);
  return status;
}

/* ---- Frees without a stream
 *
 * Any work of the device may still use memory that is freed without a stream. So such frees are
 * collected in a queue (defer.h), and ended together after one wait for the device. */

/* Waits until all work of a device has ended. In a context that is destroyed or broken, no work
 * runs any more. Another failure, such as a stream that is captured for a graph, is returned: work
 * may still use the memory then. */
static loam_status wait_for_device(int device) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  lm_gpu_result result = gpu ? gpu->wait(device) : LM_GPU_OK;
  bool has_ended = result == LM_GPU_OK || result == LM_GPU_GONE || result == LM_GPU_BROKEN;
  return has_ended ? LOAM_OK : LOAM_ESTATE;
}

static bool may_end_frees(int device) { return wait_for_device(device) == LOAM_OK; }

/* Ends one collected free: the memory goes back to its pool. */
static void end_free(int kind, int device, void *at, size_t size) {
  (void)kind;
  (void)device;
  (void)size;
  lm_assert(at);
  loam_device_free(at, NULL);
}

static lm_defer queue = { .before = may_end_frees, .end = end_free };

/* The collected frees are ended first, so that the pools can give back their memory too. */
size_t loam_device_trim(int device) {
  (void)lm_defer_flush(&queue, device);
  size_t bytes = lm_device_pool_trim(device) + lm_pinned_trim(device);
  bytes += lm_sleep_trim(device) + lm_manager_flush(device);
  return bytes + lm_driver_pool_trim(device);
}

/* Frees all blocks of the device, and ends its pins and opened handles. Then frees all memory that
 * pools and managers keep of it. */
loam_status loam_device_reset(int device) {
  if (!lm_gpu_has(device)) return lm_gpu() ? LOAM_EINVAL : LOAM_EUNSUPPORTED;
  loam_status status = wait_for_device(device);
  if (status != LOAM_OK) return status;
  (void)lm_defer_drain(&queue, device);
  if ((status = free_blocks(device, NULL)) != LOAM_OK) return status;
  lm_ipc_reset(device, NULL);
  lm_pin_reset(device, NULL);
  (void)loam_device_trim(device);
  lm_device_pool_detach(device, NULL);
  lm_manager_reset(device);
  return LOAM_OK;
}

/* Counts the blocks of the device that are known to belong to another context. */
static void count_other(void *ctx, lm_provided *block) {
  block_list *list = ctx;
  bool is_other = block->context && block->context != list->context;
  if (block->device == list->device && is_other) list->n++;
}

/* Ends the memory of the context that a call on the device would use now, while memory of other
 * contexts lives: frees its blocks, ends its pins and opened handles, and returns free memory to
 * the driver. */
static loam_status reset_context(int device, const void *context) {
  loam_status status = wait_for_device(device);
  if (status != LOAM_OK) return status;
  (void)lm_defer_drain(&queue, device);
  if ((status = free_blocks(device, context)) != LOAM_OK) return status;
  lm_ipc_reset(device, context);
  lm_pin_reset(device, context);
  (void)loam_device_trim(device);
  lm_device_pool_detach(device, context);
  return LOAM_OK;
}

/* ---- The table */

/* Makes `device` the current device of the thread until leave_device(*scope). */
static loam_status enter_device(int device, void **scope) {
  *scope = NULL;
  if (!lm_gpu_has(device)) return lm_gpu() ? LOAM_EINVAL : LOAM_EUNSUPPORTED;
  return lm_gpu_status(lm_gpu()->push(device, scope));
}

/* Makes the device current that was current before enter_device; also after that failed. */
static void leave_device(void *scope) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  if (gpu) gpu->pop(scope);
}

/* Allocates on a device. On failure the function that refused has set the error words. */
static loam_status allocate(int device, const lm_request *r, void **out) {
  void *scope;
  loam_status status = enter_device(device, &scope);
  if (status != LOAM_OK) return status;
  void *made = r->want == LM_WANT_PINNED ? loam_pinned_alloc(NULL, r->size, r->flags)
                                         : lm_memory_alloc(r);
  leave_device(scope);
  if (!made) return LOAM_ENOMEM;
  *out = made;
  return LOAM_OK;
}

/* The entries of the table. They do what loam.h says of loam_manager. */

static loam_status initialize(void *ctx, int device) {
  (void)ctx;
  return lm_manager(device) ? LOAM_OK : LOAM_EUNSUPPORTED;
}

static loam_status memalloc(void *ctx, int device, size_t size, void **out) {
  (void)ctx;
  lm_request r = { .size = size, .want = LM_WANT_DEVICE, .by_handle = true };
  return allocate(device, &r, out);
}

/* A pointer that loam does not own any more was ended by a reset: the free is ignored. */
static void memfree(void *ctx, int device, void *ptr, size_t size) {
  (void)ctx;
  bool is_device = device >= 0 && device < LM_DEVICES_MAX;
  if (is_device && loam_owns(ptr)) lm_defer_free(&queue, 0, device, ptr, size);
}

static loam_status memalloc_async(void *ctx, int device, size_t size, void *stream, void **out) {
  (void)ctx;
  lm_request r = { .size = size, .want = LM_WANT_DEVICE, .stream = stream };
  return allocate(device, &r, out);
}

/* Only work on the stream may still use the memory, so this free need not be collected. */
static void memfree_async(void *ctx, int device, void *ptr, size_t size, void *stream) {
  (void)ctx;
  (void)device;
  (void)size;
  if (loam_owns(ptr)) loam_device_free(ptr, stream);
}

static loam_status memalloc_managed(void *ctx, int device, size_t size, void **out) {
  (void)ctx;
  return allocate(device, &(lm_request){ .size = size, .want = LM_WANT_MANAGED }, out);
}

static loam_status memhostalloc(void *ctx, int device, size_t size, unsigned flags, void **out) {
  (void)ctx;
  lm_request r = { .size = size, .want = LM_WANT_PINNED, .flags = flags };
  return allocate(device, &r, out);
}

static loam_status mempin(void *ctx, int device, void *ptr, size_t size, unsigned flags) {
  void *scope;
  (void)ctx;
  loam_status status = enter_device(device, &scope);
  if (status == LOAM_OK) status = loam_pin(ptr, size, flags);
  leave_device(scope);
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

/* A reset concerns the current context. If no other context is known to have blocks, pins or opened
 * handles, what the manager below keeps goes too. Pinned objects (device/pinned.h) are of the
 * primary context, which may know nothing of them, so only its own reset ends them. */
static loam_status reset(void *ctx, int device) {
  (void)ctx;
  if (!lm_gpu_has(device)) return loam_device_reset(device);
  const void *context = lm_gpu()->context(device);
  block_list others = { .device = device, .context = context };
  lm_provider_each(count_other, &others);
  bool is_last = !others.n && !lm_pin_is_elsewhere(device, context) &&
                 !lm_ipc_is_elsewhere(device, context);
  if (!context || (is_last && !lm_gpu()->host_context(device))) return loam_device_reset(device);
  loam_status status = reset_context(device, context);
  if (status == LOAM_OK && is_last) lm_manager_reset(device);
  return status;
}

static void defer_enter(void *ctx) {
  (void)ctx;
  loam_defer_enter();
}

static void defer_leave(void *ctx) {
  (void)ctx;
  (void)loam_defer_leave();
}

/* NBEP 7 has one function to free each kind of memory; memfree finds out the kind by itself. */
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
    return lm_error(LOAM_EINVAL, "manager \"loam\": it has its memory from the one that is set");
  return lm_manager_set(m);
}
