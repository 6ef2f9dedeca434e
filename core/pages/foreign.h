/* foreign.h - blocks that loam decided but did not cut itself: of handlers, of the system, of the
 * drivers of devices.
 *
 * Their addresses are nobody's to choose, so they stand in an ordered map (a treap under one
 * lock), keyed by start, found from any interior pointer. This is not the path that must be
 * fast. */
#ifndef LM_FOREIGN_H
#define LM_FOREIGN_H

#include "os/base.h"

/* Who made a block. */
typedef enum lm_maker {
  LM_MADE_SYSTEM,
  LM_MADE_HANDLER,
  LM_MADE_DEVICE,  /* the device's driver, of its memory */
  LM_MADE_ORDERED, /* the driver's pool, in the order of a stream */
  LM_MADE_MANAGED,
  LM_MADE_CACHED /* loam, of what it has of a device: cache.h */
} lm_maker;

typedef struct lm_foreign {
  void *base;
  void *made;     /* what its allocator gave: base, or below it for alignment's sake */
  size_t size;    /* usable bytes, at least 1 */
  uint32_t token; /* as a pool object's */
  uint32_t strategy;
  const void *handler; /* const loam_handler *, of LM_MADE_HANDLER */
  void *stream;        /* where it was allocated, of a device's */
  lm_maker maker;
  int device;          /* -1: none */
  uint8_t want, flags; /* what was asked for: make.h */
} lm_foreign;

/* False when there is no memory for the entry. */
bool lm_foreign_put(const lm_foreign *block);
/* The block that holds `p` (start or interior). */
bool lm_foreign_find(const void *p, lm_foreign *out);
/* Takes out the block that starts at `p`. */
bool lm_foreign_take(const void *p, lm_foreign *out);
/* Each block, the map locked: `visit` must not call into loam. May rewrite *token. */
void lm_foreign_each(void (*visit)(void *ctx, lm_foreign *block), void *ctx);
bool lm_foreign_is_valid(void);

#endif
