/* pin.c - memory that was there before and is pinned for devices, counted by range. */
#include "device/manager.h"
#include "os/error.h"
#include "os/thread.h"
#include "pages/metadata.h"

typedef struct pin {
  struct pin *next;
  char *at;
  size_t size;
  unsigned flags, count;
  int device;
} pin;

/* Held while the manager is called: pinning one range twice at once must not be two pins of it. */
static struct {
  lm_lock lock;
  pin *first;
} pins;

static pin **find_locked(const void *at) {
  pin **p = &pins.first;
  while (*p && (*p)->at != at) p = &(*p)->next;
  return p;
}

static loam_status again_locked(pin *p, size_t size, unsigned flags) {
  if (p->size != size)
    return lm_error(LOAM_EINVAL, "%zu bytes at %p: they are pinned as %zu bytes", size,
                    (void *)p->at, p->size);
  if (flags & ~p->flags)
    return lm_error(LOAM_EINVAL, "%zu bytes at %p: they are pinned without LOAM_PINNED_%s", size,
                    (void *)p->at, flags & ~p->flags & LM_GPU_MAPPED ? "MAPPED" : "PORTABLE");
  p->count++;
  return LOAM_OK;
}

static loam_status pin_locked(const loam_manager *m, int device, void *at, size_t size,
                              unsigned flags) {
  pin *p = *find_locked(at);
  if (p) return again_locked(p, size, flags);
  p = lm_metadata_alloc(sizeof *p);
  if (!p) return lm_error(LOAM_ENOMEM, "no memory to note what is pinned");
  loam_status status = m->mempin(m->ctx, device, at, size, flags);
  if (status != LOAM_OK) {
    lm_metadata_free(p);
    return status;
  }
  *p = (pin){ pins.first, at, size, flags, 1, device };
  pins.first = p;
  return LOAM_OK;
}

loam_status loam_pin(void *at, size_t size, unsigned flags) {
  int current = lm_gpu_current(), device = current < 0 ? 0 : current;
  if (!at || !size)
    return lm_error(LOAM_EINVAL, "%zu bytes at %p: there is nothing to pin", size, at);
  if (flags & ~(unsigned)(LM_GPU_MAPPED | LM_GPU_PORTABLE))
    return lm_error(LOAM_EINVAL, "flags %u: they are a sum of LOAM_PINNED_MAPPED and _PORTABLE",
                    flags);
  const loam_manager *m = lm_manager(device);
  if (!m) return lm_gpu_is_barred() ? LOAM_ESTATE : LOAM_EUNSUPPORTED;
  lm_thread_add_fork_lock(&pins.lock);
  lm_lock_take(&pins.lock);
  loam_status status = pin_locked(m, device, at, size, flags);
  lm_lock_drop(&pins.lock);
  return status;
}

/* Taken off the list if that was the last of its pins. */
static loam_status unpin_locked(const void *at, pin **last) {
  pin **place = find_locked(at), *p = *place;
  if (!p) return lm_error(LOAM_EBADPTR, "%p is not where a pinned range begins", at);
  if (--p->count) return LOAM_OK;
  *place = p->next;
  *last = p;
  return LOAM_OK;
}

/* The lock is held on: who pins the range again has to find it unpinned. */
loam_status loam_unpin(void *at) {
  pin *last = NULL;
  lm_lock_take(&pins.lock);
  loam_status status = unpin_locked(at, &last);
  const loam_manager *m = last && !lm_gpu_is_barred() ? lm_manager(last->device) : NULL;
  if (m) m->memunpin(m->ctx, last->device, last->at, last->size);
  lm_lock_drop(&pins.lock);
  lm_metadata_free(last);
  return status;
}
