/* defer.h - what is freed is collected by device and ended together, because to end it makes a
 * driver wait for all work.
 *
 * Pending in a queue are at most so many pieces of a device and such a share of its memory as
 * loam_defer_limit says; while cleanup is deferred, any number. No lock is held while something is
 * ended. */
#ifndef LM_DEFER_H
#define LM_DEFER_H

#include <stdatomic.h>

#include "gpu/gpu.h"
#include "os/lock.h"

typedef struct lm_defer {
  void (*before)(int device); /* once, before some are ended; NULL: nothing */
  void (*end)(int kind, int device, void *at, size_t size);
  lm_lock lock;
  struct {
    struct lm_pending *first;
    size_t count, bytes;
  } of[LM_DEVICES_MAX];
  _Atomic bool listed;
  struct lm_defer *next; /* of all that were ever used */
} lm_defer;

/* `kind` is passed on. Without memory for a note it is ended at once: late would be never. */
void lm_defer_free(lm_defer *queue, int kind, int device, void *at, size_t size);
/* Ends what is pending; -1: of all devices. The bytes; 0 while cleanup is deferred. */
size_t lm_defer_flush(lm_defer *queue, int device);
/* The same of one device, deferred or not. */
size_t lm_defer_drain(lm_defer *queue, int device);

/* Bytes of a device, from which a share is reckoned. */
void lm_defer_total(int device, uint64_t bytes);
/* Told of each loam_defer_enter and _leave. */
extern void (*_Atomic lm_defer_on_change)(bool begins);

#endif
