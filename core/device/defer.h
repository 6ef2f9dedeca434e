/* defer.h - deferred frees: memory that is to be freed is collected by device, and many pieces are
 * freed together, because each such free makes a driver wait for all work of the device.
 *
 * loam_defer_limit sets how many pieces, and what share of a device's memory, may be pending in a
 * queue. Between loam_defer_enter and loam_defer_leave any number may be pending. The lock of the
 * queue is not held while memory is freed. Any thread may call these functions. In a forked child,
 * which must not call the driver, lm_defer_free and lm_defer_flush do nothing. */
#ifndef LM_DEFER_H
#define LM_DEFER_H

#include <stdatomic.h>

#include "gpu/gpu.h"
#include "os/lock.h"

/* A queue of pending frees. Its owner sets `before` and `end` and zeroes the rest. It lives as long
 * as the process.
 *
 * Law, for each device: count = the length of the list; bytes = the sum of its sizes. */
typedef struct lm_defer {
  /* Called once before some memory is freed. False: the memory cannot be freed yet, and stays in
   * the queue. NULL: nothing is called. */
  bool (*before)(int device);
  void (*end)(int kind, int device, void *at, size_t size); /* frees one piece */
  lm_lock lock;                                             /* guards `of` */
  struct {
    struct lm_pending *first;
    size_t count, bytes;
  } of[LM_DEVICES_MAX];
  _Atomic bool listed;   /* in the list of all queues. Relaxed: the exchange alone decides */
  struct lm_defer *next; /* in that list; constant once listed */
} lm_defer;

/* Frees `size` bytes at `at` later; NULL: nothing. `kind` is passed on to queue->end. If there is
 * no memory for a note, the piece is freed now. If queue->before then refuses, the piece is never
 * freed. */
void lm_defer_free(lm_defer *queue, int kind, int device, void *at, size_t size);
/* Frees all pending memory of a device; -1: of all devices. Returns the bytes. Does nothing and
 * returns 0 while cleanup is deferred, and for a device that does not exist. */
size_t lm_defer_flush(lm_defer *queue, int device);
/* Calls lm_defer_flush for a device (-1: for all devices) and each queue whose memory work may
 * still use (queue->before), so that a request may get that memory. Returns the bytes. */
size_t lm_defer_flush_in_use(int device);
/* Frees all pending memory of one device, whether cleanup is deferred or not, without a call of
 * queue->before: the caller has waited for the device itself. Returns the bytes. */
size_t lm_defer_drain(lm_defer *queue, int device);
/* Returns whether the law holds. */
bool lm_defer_is_valid(lm_defer *queue);

/* Sets how many bytes of memory a device has: the share that may be pending is a part of it. */
void lm_defer_total(int device, uint64_t bytes);
/* A function that each loam_defer_enter (true) and loam_defer_leave (false) calls; NULL: none. The
 * release of the thread that stores it pairs with the acquire of a thread that calls it. */
extern void (*_Atomic lm_defer_on_change)(bool begins);

#endif
