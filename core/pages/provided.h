/* provided.h - blocks that loam decided but did not cut itself: of handlers, of the system, of the
 * drivers of devices.
 *
 * Their addresses are nobody's to choose, so they stand in an ordered map (a treap under one
 * lock), keyed by start, found from any interior pointer. This is not the path that must be
 * fast. */
#ifndef LM_PROVIDED_H
#define LM_PROVIDED_H

#include "os/base.h"

/* Who made a block. */
typedef enum lm_provider {
  LM_PROVIDER_SYSTEM,
  LM_PROVIDER_HANDLER,
  LM_PROVIDER_DEVICE, /* the device's driver, of its memory */
  LM_PROVIDER_STREAM, /* the driver's pool, in the order of a stream */
  LM_PROVIDER_MANAGED,
  LM_PROVIDER_POOL /* loam, of what it has of a device: device_pool.h */
} lm_provider;

typedef struct lm_provided {
  void *base;
  void *made;     /* what its allocator gave: base, or below it for alignment's sake */
  size_t size;    /* usable bytes, at least 1 */
  uint32_t token; /* as a pool object's */
  uint32_t strategy;
  const void *handler; /* const loam_handler *, of LM_PROVIDER_HANDLER */
  void *stream;        /* where it was allocated, of a device's */
  lm_provider maker;
  int device;          /* -1: none */
  uint8_t want, flags; /* what was asked for: provider.h */
} lm_provided;

/* False when there is no memory for the entry. */
bool lm_provided_put(const lm_provided *block);
/* The block that holds `p` (start or interior). */
bool lm_provided_find(const void *p, lm_provided *out);
/* Takes out the block that starts at `p`. */
bool lm_provided_take(const void *p, lm_provided *out);
/* Each block, the map locked: `visit` must not call into loam. May rewrite *token. */
void lm_provided_each(void (*visit)(void *ctx, lm_provided *block), void *ctx);
bool lm_provided_is_valid(void);

#endif
