/* ipc.c - device memory of other processes: what is opened of each of their allocations, once, with
 * a count of those who use it. */
#include <string.h>
#include <unistd.h>

#include "api/device_import.h"
#include "device/manager.h"
#include "os/error.h"
#include "os/thread.h"
#include "pages/metadata.h"
#include "service/control.h"

/* An allocation of another process. */
typedef struct opened {
  struct opened *next;
  loam_ipc handle; /* its offset is 0 */
  int device;
  char *base;
  size_t size; /* as far as it was asked for */
  unsigned count;
  lm_device_import *import; /* NULL: it is the manager's to close */
} opened;

/* Held while the manager is called: to open one thing twice at once must not be two of it. */
static struct {
  lm_lock lock;
  opened *first;
} list;

static const loam_manager *manager_of(int device, loam_status *status) {
  const loam_manager *m = lm_manager(device);
  if (!m) *status = lm_gpu_is_barred() ? LOAM_ESTATE : LOAM_EUNSUPPORTED;
  return m;
}

/* Of a block that stands in mapped memory. */
static loam_status show(const void *ptr, const lm_device_export *block, int device, loam_ipc *out) {
  if (!lm_control_is_open())
    return lm_error(LOAM_ESTATE,
                    "%p: this process has no control socket, by which others would open what a "
                    "range of addresses was cut into: start it with `control` 1, or have "
                    "loam.device { pool = \"chunks\" }",
                    ptr);
  *out = (loam_ipc){ .offset = (uintptr_t)ptr - block->base, .device = device, .pid = getpid() };
  lm_device_import_write(block, out->handle);
  return LOAM_OK;
}

loam_status loam_ipc_get(const void *ptr, loam_ipc *out) {
  loam_owner_info owner;
  loam_ipc found;
  lm_device_export block;
  if (!out) return lm_error(LOAM_EINVAL, "out: it is NULL");
  loam_status status = loam_owner(ptr, &owner);
  if (status != LOAM_OK) return status;
  if (owner.device < 0)
    return lm_error(LOAM_EINVAL, "%p: it is memory of the host, not of a device", ptr);
  const loam_manager *m = manager_of(owner.device, &status);
  if (m && lm_device_export_key(ptr, &block, &status)) {
    if (status == LOAM_OK) status = show(ptr, &block, owner.device, &found);
  } else if (m) status = m->get_ipc_handle(m->ctx, owner.device, (void *)ptr, &found);
  if (status != LOAM_OK) return status;
  found.size = (uint64_t)((char *)owner.base + owner.size - (const char *)ptr);
  *out = found;
  return LOAM_OK;
}

static opened *search_locked(const loam_ipc *handle, int device) {
  opened *o = list.first;
  while (o && (o->device != device || o->handle.pid != handle->pid ||
               memcmp(o->handle.handle, handle->handle, sizeof handle->handle) != 0))
    o = o->next;
  return o;
}

static loam_status open_locked(const loam_manager *m, const loam_ipc *handle, int device,
                               opened **out) {
  opened *o = lm_metadata_alloc(sizeof *o);
  void *base;
  if (!o) return lm_error(LOAM_ENOMEM, "no memory to note what is opened");
  *o = (opened){ .next = list.first, .handle = *handle, .device = device };
  o->handle.offset = 0;
  loam_status status = lm_device_import_is(handle->handle)
                           ? lm_device_import_open(handle->handle, device, &o->import, &base)
                           : m->open_ipc_handle(m->ctx, device, &o->handle, &base);
  if (status != LOAM_OK) {
    lm_metadata_free(o);
    return status;
  }
  o->base = base;
  *out = list.first = o;
  return LOAM_OK;
}

static loam_status use_locked(const loam_manager *m, const loam_ipc *handle, int device,
                              void **out) {
  opened *o = search_locked(handle, device);
  loam_status status = o ? LOAM_OK : open_locked(m, handle, device, &o);
  if (status != LOAM_OK) return status;
  size_t end = handle->offset + handle->size;
  if (end > o->size) o->size = end;
  o->count++;
  *out = o->base + handle->offset;
  return LOAM_OK;
}

loam_status loam_ipc_open(const loam_ipc *handle, int device, void **out) {
  loam_status status = LOAM_OK;
  if (!handle || !out) return lm_error(LOAM_EINVAL, "%s: it is NULL", handle ? "out" : "handle");
  const loam_manager *m = manager_of(device, &status);
  if (!m) return status;
  lm_thread_add_fork_lock(&list.lock);
  lm_lock_take(&list.lock);
  status = use_locked(m, handle, device, out);
  lm_lock_drop(&list.lock);
  return status;
}

static opened **holder_locked(const char *at) {
  opened **o = &list.first;
  while (*o && !(at >= (*o)->base && at < (*o)->base + (*o)->size)) o = &(*o)->next;
  return o;
}

/* Taken off the list if that was its last user. */
static loam_status leave_locked(const void *at, opened **last) {
  opened **place = holder_locked(at), *o = *place;
  if (!o) return lm_error(LOAM_EBADPTR, "%p: it is no memory of another process", at);
  if (--o->count) return LOAM_OK;
  *place = o->next;
  *last = o;
  return LOAM_OK;
}

loam_status loam_ipc_close(void *at) {
  opened *last = NULL;
  loam_status unused;
  lm_lock_take(&list.lock);
  loam_status status = leave_locked(at, &last);
  const loam_manager *m = last ? manager_of(last->device, &unused) : NULL;
  if (last && last->import) lm_device_import_close(last->import);
  else if (m) m->close_ipc_handle(m->ctx, last->device, last->base);
  lm_lock_drop(&list.lock);
  lm_metadata_free(last);
  return status;
}
