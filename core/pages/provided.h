/* provided.h - an ordered map of the blocks that loam decided about but did not cut itself: those
 * of handlers, of the system, and of the drivers of devices.
 *
 * Loam does not choose their addresses, so they have no entries in the page map. They are in a
 * treap under one lock, ordered by start address, and found from any pointer into them. This path
 * need not be fast. */
#ifndef LM_PROVIDED_H
#define LM_PROVIDED_H

#include "os/changes.h"
#include "os/lock.h"

/* Who provides the memory of a block. */
typedef enum lm_provider {
  LM_PROVIDER_SYSTEM,
  LM_PROVIDER_HANDLER,
  LM_PROVIDER_DEVICE,  /* the driver of a device: memory of the device */
  LM_PROVIDER_STREAM,  /* the driver's own pool, in the order of a stream */
  LM_PROVIDER_MANAGED, /* the driver: managed memory, which moves between host and device */
  LM_PROVIDER_SLEEP,   /* loam maps memory of the driver for this block alone: device/sleep.h */
  LM_PROVIDER_POOL,    /* loam's pool of device memory: only in a record; device/device_pool.h */
  LM_PROVIDER_HEAP     /* loam's pools of host memory: only in a record (engine/record.h) */
} lm_provider;

/* A block. Law, once it is in the map: size >= 1, and made <= base. */
typedef struct lm_provided {
  void *base;        /* where the block begins: the key */
  void *made;        /* what the provider returned: `base`, or an address below it if `base` had to
                          be aligned */
  size_t size;       /* usable bytes */
  size_t asked;      /* bytes that loam asked a handler for; the handler's free gets this size */
  uint32_t token;    /* plan/site.h */
  uint32_t strategy; /* id */
  const void *handler; /* what made the block: of LM_PROVIDER_HANDLER a const loam_handler *, of
                          LM_PROVIDER_SYSTEM a const loam_system *; else NULL */
  struct lm_sleeper *sleeper; /* of LM_PROVIDER_SLEEP; else NULL */
  void *stream;               /* the stream of the allocation; of a device's block */
  void *context; /* the device's context that the block was made for; NULL: not known */
  lm_provider maker;
  int device;          /* number of the device; -1: none */
  uint8_t want, flags; /* what the request asked for: device/provider.h */
  bool is_asleep;      /* of LM_PROVIDER_SLEEP: no memory is at its addresses now */
} lm_provided;

/* The treap, which another process may read while this one runs (engine/outside.h). */
typedef struct lm_provided_node {
  lm_provided block;
  uint64_t rank; /* the order of the heap */
  struct lm_provided_node *left, *right;
} lm_provided_node;

/* `changes` is odd while nodes are added or removed, or a block falls asleep or wakes
 * (os/changes.h). Changes of tokens do not count. */
typedef struct lm_provided_tree {
  lm_lock lock; /* guards all nodes */
  lm_changes changes;
  lm_provided_node *root;
} lm_provided_tree;

/* The tree of this process. */
extern lm_provided_tree *const lm_provided_outside __attribute__((visibility("hidden")));

/* Registers with threads, once; before anything else here is called. */
void lm_provided_start(void);
/* Adds a copy of *block. If a block with this start is there already, its provider has freed it
 * without loam: the new one replaces it, and *stale is the old one; else stale->size is 0. `node`
 * is one that lm_provided_take kept, and then this cannot fail; NULL: memory is allocated. False:
 * no memory, and nothing has changed. */
bool lm_provided_put(const lm_provided *block, lm_provided_node *node, lm_provided *stale);
/* Copies the block that holds the byte at `p` to *out. False: there is none. */
bool lm_provided_find(const void *p, lm_provided *out);
/* Removes the block that begins at `p`, and copies it to *out. Its node is freed, or goes to *node
 * if that is not NULL: then the caller gives it to lm_provided_put. False: there is none, and *out
 * and *node have not changed. */
bool lm_provided_take(const void *p, lm_provided *out, lm_provided_node **node);
/* Notes whether the block that begins at `p` is asleep. Does nothing if no block begins there. */
void lm_provided_set_asleep(const void *p, bool is_asleep);
/* Calls `visit` for each block, in the order of addresses, with the lock held: `visit` must not
 * allocate, free, or call a function that takes this lock. It may change the block's token, and
 * nothing else. */
void lm_provided_each(void (*visit)(void *ctx, lm_provided *block), void *ctx);
/* Returns whether the law of each block and the law of the treap (provided.c) hold. Takes the
 * lock. */
bool lm_provided_is_valid(void);

#endif
