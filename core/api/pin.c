/* pin.c - loam_pin and loam_unpin: pins existing memory for devices.
 *
 * A range is pinned once, however often loam_pin is called for it; a count says how many pins have
 * not been ended. */
#include "api/pin.h"

#include "device/manager.h"
#include "device/pinned.h"
#include "os/error.h"
#include "os/thread.h"
#include "pages/metadata.h"

/* A range that is pinned.
 *
 * Law: count > 0 and size > 0. No two ranges begin at one address. A range that a reset of the
 * device has unpinned stays in the list, because loam_unpin is still called for its pins. */
typedef struct pin {
  struct pin *next;
  char *at;
  size_t size;
  unsigned flags;      /* LM_GPU_* */
  unsigned count;      /* pins that are not ended yet */
  int device;          /* the device whose manager pinned the range */
  const void *context; /* the context that pinned it; NULL: not known */
  bool is_ended;       /* a reset has unpinned the range */
} pin;

/* A long lock, which is also held while a manager pins or unpins: otherwise two threads that pin
 * one range together would pin it twice. To pin a large range takes seconds. The list changes in
 * guarded sections, so that a forked child has it whole. */
static struct {
  lm_lock lock;
  pin *first;
} pins;

static lm_lock_suspended take_lock(void) {
  lm_thread_add_fork_lock(&pins.lock);
  return lm_lock_take_long(&pins.lock);
}

static void drop_lock(lm_lock_suspended section) { lm_lock_drop_long(&pins.lock, section); }

/* Returns the link to the range that begins at `at`, or to NULL. */
static pin **link_of_locked(const void *at) {
  lm_assert(lm_lock_is_held(&pins.lock));
  pin **p = &pins.first;
  while (*p && (*p)->at != at) p = &(*p)->next;
  return p;
}

/* Pins a range that is pinned already. */
static loam_status pin_more_locked(pin *p, size_t size, unsigned flags) {
  lm_assert(p->count);
  if (p->size != size)
    return lm_error(LOAM_EINVAL, "%zu bytes at %p: they are pinned as %zu bytes", size,
                    (void *)p->at, p->size);
  if (flags & ~p->flags)
    return lm_error(LOAM_EINVAL, "%zu bytes at %p: they are pinned without LOAM_PINNED_%s", size,
                    (void *)p->at, flags & ~p->flags & LM_GPU_MAPPED ? "MAPPED" : "PORTABLE");
  p->count++;
  return LOAM_OK;
}

/* Pins a range by the manager. If there is no memory for it, gives back what loam's own pools of
 * pinned memory keep free, and tries again. */
static loam_status pin_by(const loam_manager *m, int device, void *at, size_t size,
                          unsigned flags) {
  loam_status status = m->mempin(m->ctx, device, at, size, flags);
  if (status != LOAM_ENOMEM || !lm_pinned_make_room()) return status;
  return m->mempin(m->ctx, device, at, size, flags);
}

/* Pins a range again that a reset has unpinned. */
static loam_status pin_again_locked(const loam_manager *m, int device, pin *p, size_t size,
                                    unsigned flags) {
  loam_status status = pin_by(m, device, p->at, size, flags);
  if (status != LOAM_OK) return status;
  const void *context = lm_gpu_context(device);
  lm_lock_hold_cancel();
  *p = (pin){ p->next, p->at, size, flags, p->count + 1, device, context, false };
  lm_lock_allow_cancel();
  return LOAM_OK;
}

/* Pins a range, or adds a pin to it. */
static loam_status pin_locked(const loam_manager *m, int device, void *at, size_t size,
                              unsigned flags) {
  pin *p = *link_of_locked(at);
  if (p && p->is_ended) return pin_again_locked(m, device, p, size, flags);
  if (p) return pin_more_locked(p, size, flags);
  p = lm_metadata_alloc(sizeof *p);
  if (!p)
    return lm_error(LOAM_ENOMEM, "%zu bytes at %p: no memory for the entry of the pin", size, at);
  lm_assert(at && size);
  loam_status status = pin_by(m, device, at, size, flags);
  if (status != LOAM_OK) {
    lm_metadata_free(p);
    return status;
  }
  const void *context = lm_gpu_context(device);
  lm_lock_hold_cancel();
  *p = (pin){ pins.first, at, size, flags, 1, device, context, false };
  pins.first = p;
  lm_lock_allow_cancel();
  return LOAM_OK;
}

loam_status loam_pin(void *at, size_t size, unsigned flags) {
  int current = lm_gpu() ? lm_gpu_current() : -1, device = current < 0 ? 0 : current;
  if (!at || !size)
    return lm_error(LOAM_EINVAL, "%zu bytes at %p: it is no range that can be pinned", size, at);
  if (flags & ~(unsigned)(LM_GPU_MAPPED | LM_GPU_PORTABLE))
    return lm_error(
        LOAM_EINVAL,
        "flags %u: only a sum of LOAM_PINNED_MAPPED and LOAM_PINNED_PORTABLE is possible", flags);
  const loam_manager *m = lm_manager(device);
  if (!m) return lm_gpu_is_barred() ? LOAM_ESTATE : LOAM_EUNSUPPORTED;
  lm_lock_suspended section = take_lock();
  loam_status status = pin_locked(m, device, at, size, flags);
  drop_lock(section);
  return status;
}

/* Ends one pin of the range at `at`. If it was the last pin, takes the range off the list and
 * returns it in *last. */
static loam_status unpin_locked(const void *at, pin **last) {
  pin **link = link_of_locked(at), *p = *link;
  if (!p) return lm_error(LOAM_EBADPTR, "%p: it is not where a pinned range begins", at);
  lm_assert(p->count);
  lm_lock_hold_cancel();
  if (--p->count == 0) {
    *link = p->next;
    *last = p;
  }
  lm_lock_allow_cancel();
  return LOAM_OK;
}

/* The lock is held until the manager has unpinned the range: another thread that pins the range
 * again must find it unpinned. */
loam_status loam_unpin(void *at) {
  pin *last = NULL;
  lm_lock_suspended section = take_lock();
  loam_status status = unpin_locked(at, &last);
  lm_assert(!last || !last->count);
  bool is_pinned = last && !last->is_ended && !lm_gpu_is_barred();
  const loam_manager *m = is_pinned ? lm_manager(last->device) : NULL;
  if (m) m->memunpin(m->ctx, last->device, last->at, last->size);
  drop_lock(section);
  lm_metadata_free(last);
  return status;
}

void lm_pin_reset(int device, const void *context) {
  lm_lock_suspended section = take_lock();
  for (pin *p = pins.first; p; p = p->next) {
    bool is_in = p->device == device && !p->is_ended && (!context || p->context == context);
    const loam_manager *m = is_in ? lm_manager(device) : NULL;
    if (!m) continue;
    m->memunpin(m->ctx, p->device, p->at, p->size);
    p->is_ended = true;
  }
  drop_lock(section);
}

bool lm_pin_is_elsewhere(int device, const void *context) {
  bool found = false;
  lm_lock_suspended section = take_lock();
  for (const pin *p = pins.first; p; p = p->next)
    found |= p->device == device && !p->is_ended && p->context && p->context != context;
  drop_lock(section);
  return found;
}

bool lm_pin_is_valid(void) {
  bool valid = true;
  lm_lock_suspended section = take_lock();
  for (const pin *p = pins.first; p; p = p->next)
    valid = valid && p->count && p->size && *link_of_locked(p->at) == p;
  drop_lock(section);
  return valid;
}
