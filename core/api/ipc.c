/* ipc.c - loam_ipc_get, loam_ipc_open and so on: device memory that processes share.
 *
 * An allocation of another process is opened once in a context, however often loam_ipc_open is
 * called for memory in it; a count says how many opens have not been closed. */
#include "api/ipc.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "api/device_import.h"
#include "device/manager.h"
#include "heap/strategy.h"
#include "os/error.h"
#include "os/thread.h"
#include "pages/metadata.h"
#include "pages/provided.h"
#include "service/control.h"

/* An allocation of another process that is opened in this process.
 *
 * Law: count > 0 and handle.offset == 0. No two entries have one device, context, process and
 * handle, except entries that a reset has closed: those stay in the list, because loam_ipc_close is
 * still called for their opens. */
typedef struct opened {
  struct opened *next;
  loam_ipc handle;
  int device;               /* in this process */
  const void *context;      /* the device's context that opened it; NULL: not known */
  char *base;               /* its address in this process */
  size_t size;              /* bytes up to the end of the last memory that was opened in it */
  unsigned count;           /* opens that are not closed yet */
  lm_device_import *import; /* NULL: the manager opened it, and closes it */
  bool is_ended;            /* a reset has closed it */
} opened;

/* A long lock, which is also held while a manager opens or closes memory: otherwise two threads
 * that open one allocation together would make two entries. A manager, or the owner of the memory,
 * may take seconds. The list changes in guarded sections, so that a forked child has it whole. */
static struct {
  lm_lock lock;
  opened *first;
} list;

static lm_lock_suspended take_lock(void) {
  lm_thread_add_fork_lock(&list.lock);
  return lm_lock_take_long(&list.lock);
}

static void drop_lock(lm_lock_suspended section) { lm_lock_drop_long(&list.lock, section); }

/* Returns the manager of a device. NULL: there is none; *status is the reason, and the error words
 * are set. */
static const loam_manager *manager_of(int device, loam_status *status) {
  const loam_manager *m = lm_manager(device);
  if (m) return m;
  *status = lm_gpu_is_barred() ? LOAM_ESTATE : LOAM_EUNSUPPORTED;
  if (lm_gpu() && !lm_gpu_has(device)) *status = LOAM_EINVAL;
  return NULL;
}

/* Fills in a handle of loam for a block in mapped memory. */
static loam_status describe_mapped(const void *ptr, const lm_device_export *block, int device,
                                   loam_ipc *out) {
  if (!lm_control_is_open())
    return lm_error(LOAM_ESTATE,
                    "%p: this process has no control socket, through which other processes open "
                    "mapped device memory: start loam with `control` 1, or let the policy give "
                    "loam.device { pool = \"chunks\" }",
                    ptr);
  *out = (loam_ipc){ .offset = (uintptr_t)ptr - block->base, .device = device, .pid = getpid() };
  lm_device_import_write(block, out->handle);
  return LOAM_OK;
}

/* ---- Devices ------------------------------------------------------------------------------ */

/* Returns whether a handle names its device by a uuid. Without one it has zeros. */
static bool has_uuid(const loam_ipc *handle) {
  static const unsigned char none[sizeof handle->uuid];
  return memcmp(handle->uuid, none, sizeof none) != 0;
}

/* Fills in the uuid of a handle's device, unless a host's manager has done so. */
static void fill_uuid(int device, loam_ipc *out) {
  lm_gpu_info info;
  if (has_uuid(out)) return;
  if (lm_gpu()->info(device, &info) == LM_GPU_OK) memcpy(out->uuid, info.uuid, sizeof info.uuid);
}

int loam_ipc_device(const loam_ipc *handle) {
  lm_gpu_info info;
  int count = lm_gpu_count();
  if (!handle) return -1;
  if (!has_uuid(handle)) return handle->device >= 0 && handle->device < count ? handle->device : -1;
  for (int device = 0; device < count; device++)
    if (lm_gpu()->info(device, &info) == LM_GPU_OK &&
        !memcmp(info.uuid, handle->uuid, sizeof info.uuid))
      return device;
  return -1;
}

/* ---- Sharing ------------------------------------------------------------------------------ */

/* Pinned memory is memory of the host, although its owner information names a device. */
static bool is_of_host(const loam_owner_info *owner) {
  return owner->device < 0 || !strcmp(owner->kind, lm_strategy_kind_text(LM_KIND_PINNED));
}

loam_status loam_ipc_get(const void *ptr, loam_ipc *out) {
  loam_owner_info owner;
  lm_device_export block;
  lm_provided provided;
  if (!out) return lm_error_missing("out");
  loam_status status = loam_owner(ptr, &owner);
  if (status != LOAM_OK) return status;
  if (is_of_host(&owner))
    return lm_error(LOAM_EINVAL, "%p: it is memory of the host, not of a device", ptr);
  if (lm_provided_find(ptr, &provided) && provided.sleeper)
    return lm_error(LOAM_EUNSUPPORTED,
                    "%p: no other process can open memory that can sleep: let the policy give "
                    "loam.device { pool = \"chunks\" }",
                    ptr);
  /* A host's manager may fill in the bytes of the handle alone. */
  loam_ipc found = { .device = owner.device, .pid = getpid() };
  const loam_manager *m = manager_of(owner.device, &status);
  if (m && lm_device_export_key(ptr, &block, &status)) {
    if (status == LOAM_OK) status = describe_mapped(ptr, &block, owner.device, &found);
  } else if (m) status = m->get_ipc_handle(m->ctx, owner.device, (void *)ptr, &found);
  if (status != LOAM_OK) return status;
  fill_uuid(owner.device, &found);
  found.size = (uint64_t)((char *)owner.base + owner.size - (const char *)ptr);
  *out = found;
  return LOAM_OK;
}

int loam_ipc_is_plain(const loam_ipc *handle) {
  return handle && !lm_device_import_wrote(handle->handle);
}

/* Returns the entry of a handle's allocation in a context; NULL if it is not open there. */
static opened *find_locked(const loam_ipc *handle, int device, const void *context) {
  lm_assert(lm_lock_is_held(&list.lock));
  opened *o = list.first;
  while (o && (o->is_ended || o->device != device || o->context != context ||
               o->handle.pid != handle->pid ||
               memcmp(o->handle.handle, handle->handle, sizeof handle->handle) != 0))
    o = o->next;
  return o;
}

/* Opens the allocation of a handle, by its owner or by the manager. */
static loam_status open_foreign_locked(const loam_manager *m, opened *o, void **base) {
  return lm_device_import_wrote(o->handle.handle)
             ? lm_device_import_open(o->handle.handle, o->device, &o->import, base)
             : m->open_ipc_handle(m->ctx, o->device, &o->handle, base);
}

/* Opens the allocation of a handle, and makes an entry with the count 0, which is not listed. */
static loam_status open_locked(const loam_manager *m, const loam_ipc *handle, int device,
                               opened **out) {
  opened *o = lm_metadata_alloc(sizeof *o);
  void *base;
  if (!o)
    return lm_error(LOAM_ENOMEM, "handle of process %d: no memory for its entry", (int)handle->pid);
  *o = (opened){ .handle = *handle, .device = device };
  o->handle.offset = 0;
  loam_status status = open_foreign_locked(m, o, &base);
  if (status != LOAM_OK) {
    lm_metadata_free(o);
    return status;
  }
  o->base = base;
  o->context = lm_gpu_context(device); /* the call may have retained the primary context */
  *out = o;
  lm_assert(!o->count && !o->handle.offset);
  return LOAM_OK;
}

/* Checks that the memory of a handle lies in its allocation. A handle of a driver does not say how
 * large the allocation is; then any size is accepted that an allocation can have. */
static loam_status check_part(const loam_ipc *handle) {
  bool has_size = lm_device_import_wrote(handle->handle);
  uint64_t most = has_size ? lm_device_import_size(handle->handle) : LM_SIZE_MAX;
  if (handle->offset <= most && handle->size <= most - handle->offset) return LOAM_OK;
  return lm_error(LOAM_EINVAL,
                  "handle of process %d: %" PRIu64 " bytes at offset %" PRIu64
                  ": the allocation has at most %" PRIu64 " bytes",
                  (int)handle->pid, handle->size, handle->offset, most);
}

/* Opens the memory of a handle: finds or makes the entry of its allocation, and counts the open.
 * Memory of no bytes counts as one byte, so that close_locked finds its allocation. */
static loam_status use_locked(const loam_manager *m, const loam_ipc *handle, int device,
                              void **out) {
  opened *o = find_locked(handle, device, lm_gpu_context(device));
  loam_status status = o ? LOAM_OK : open_locked(m, handle, device, &o);
  if (status != LOAM_OK) return status;
  size_t end = handle->offset + (handle->size ? handle->size : 1);
  lm_lock_hold_cancel();
  if (!o->count) {
    o->next = list.first;
    list.first = o;
  }
  o->count++;
  if (end > o->size) o->size = end;
  lm_lock_allow_cancel();
  *out = o->base + handle->offset;
  return LOAM_OK;
}

loam_status loam_ipc_open(const loam_ipc *handle, int device, void **out) {
  loam_status status = LOAM_OK;
  if (!handle || !out) return lm_error_missing(handle ? "out" : "handle");
  const loam_manager *m = manager_of(device, &status);
  if (m) status = check_part(handle);
  if (!m || status) return status;
  lm_lock_suspended section = take_lock();
  status = use_locked(m, handle, device, out);
  drop_lock(section);
  return status;
}

/* Returns the link of the list that points to the entry of the allocation that contains `at`; if
 * there is none, the last link, which points to NULL. If a reset has closed an allocation and
 * another one is at its addresses now, the entry is the closed one's. So a late close never ends
 * the new one. */
static opened **link_of_locked(const char *at) {
  opened **found = NULL, **o = &list.first;
  for (; *o; o = &(*o)->next) {
    bool is_in = at >= (*o)->base && at < (*o)->base + (*o)->size;
    if (is_in && (!found || (*o)->is_ended)) found = o;
  }
  return found ? found : o;
}

/* Ends one open of the memory at `at`. If it was the last open of the allocation, takes the entry
 * off the list and returns it in *last. */
static loam_status close_locked(const void *at, opened **last) {
  opened **link = link_of_locked(at), *o = *link;
  if (!o) return lm_error(LOAM_EBADPTR, "%p: it is no memory of another process that is open", at);
  lm_assert(o->count);
  lm_lock_hold_cancel();
  if (--o->count == 0) {
    *link = o->next;
    *last = o;
  }
  lm_lock_allow_cancel();
  return LOAM_OK;
}

/* Closes an allocation, unless a reset has done so. In a forked child, which must not touch the
 * driver, there is no manager: then the entry is only marked as ended. */
static void end_locked(opened *o) {
  loam_status unused;
  const loam_manager *m = o->is_ended ? NULL : manager_of(o->device, &unused);
  if (o->import) lm_device_import_close(o->import);
  else if (m) m->close_ipc_handle(m->ctx, o->device, o->base);
  o->import = NULL;
  o->is_ended = true;
}

loam_status loam_ipc_close(void *at) {
  opened *last = NULL;
  lm_lock_suspended section = take_lock();
  loam_status status = close_locked(at, &last);
  lm_assert(!last || !last->count);
  if (last) end_locked(last);
  drop_lock(section);
  lm_metadata_free(last);
  return status;
}

void lm_ipc_reset(int device, const void *context) {
  lm_lock_suspended section = take_lock();
  for (opened *o = list.first; o; o = o->next)
    if (o->device == device && !o->is_ended && (!context || o->context == context)) end_locked(o);
  drop_lock(section);
}

bool lm_ipc_is_elsewhere(int device, const void *context) {
  bool found = false;
  lm_lock_suspended section = take_lock();
  for (const opened *o = list.first; o; o = o->next)
    found |= o->device == device && !o->is_ended && o->context && o->context != context;
  drop_lock(section);
  return found;
}

/* ---- Copies ------------------------------------------------------------------------------- */

/* Copies `size` bytes between devices and waits until they are there. The driver copies through the
 * host where one device cannot access the other. */
static loam_status copy_now(int device, void *to, const void *from, size_t size) {
  const lm_gpu_ops *gpu = lm_gpu();
  lm_gpu_result result = gpu->copy(device, (uintptr_t)to, (uintptr_t)from, size, NULL);
  if (result == LM_GPU_OK) result = gpu->wait(device);
  return lm_gpu_status(result);
}

/* Allocates the copy of memory that is opened at `there`, and fills it. The memory is loam's, so
 * that the policy decides about it. */
static loam_status copy_opened(const loam_ipc *handle, const void *there, int device, void **out) {
  const loam_manager *loam = loam_manager_get();
  void *made;
  loam_status status = loam->memalloc(loam->ctx, device, handle->size, &made);
  if (status != LOAM_OK) return status;
  status = copy_now(device, made, there, handle->size);
  if (status == LOAM_OK) *out = made;
  else loam_device_free(made, NULL);
  return status;
}

loam_status loam_ipc_open_staged(const loam_ipc *handle, int device, void **out) {
  void *there;
  if (!handle || !out) return lm_error_missing(handle ? "out" : "handle");
  int source = loam_ipc_device(handle); /* the device of the memory, in this process */
  if (source < 0 && lm_gpu())
    return lm_error(LOAM_EUNSUPPORTED,
                    "device %d of process %d: this process does not have it; CUDA_VISIBLE_DEVICES "
                    "may hide it",
                    (int)handle->device, (int)handle->pid);
  loam_status status = loam_ipc_open(handle, source < 0 ? 0 : source, &there);
  if (status != LOAM_OK) return status;
  status = copy_opened(handle, there, device, out);
  (void)loam_ipc_close(there);
  return status;
}

/* ---- Laws --------------------------------------------------------------------------------- */

static bool is_valid_locked(const opened *o) {
  if (!o->count || o->handle.offset) return false;
  if (!o->is_ended && find_locked(&o->handle, o->device, o->context) != o) return false;
  return !o->import || lm_device_import_is_valid(o->import);
}

bool lm_ipc_is_valid(void) {
  bool valid = true;
  lm_lock_suspended section = take_lock();
  for (const opened *o = list.first; o; o = o->next) valid = valid && is_valid_locked(o);
  drop_lock(section);
  return valid;
}
