/* strategy.h - interned descriptions of memory.
 *
 * A strategy is immutable once interned: equal descriptions are one strategy, with one id and one
 * pool, through all generations. Its counters are the only part that changes.
 *
 * Memory that is local has a node, and is freed by threads of any: so that what a thread of one
 * node gave back does not become the local memory of another's, `numa = "local"` on a machine of
 * several nodes has a share for each node that threads ask from: a strategy with a pool and bins of
 * its own, which prefers that node. Policies, names, limits and figures know the whole alone.
 *
 * Pinned memory that the CPU may cache has twins in the same way: one for what the host asked to be
 * pinned, which stays so when it is reallocated, and, where devices are on several nodes, of both
 * one for each node. */
#ifndef LM_STRATEGY_H
#define LM_STRATEGY_H

#include <stdatomic.h>

#include "loam.h"
#include "os/numa.h"

/* Descriptions are small and never go away; what they hold of memory does (lm_retire_unused). */
enum {
  LM_STRATEGY_BITS = 14,
  LM_STRATEGIES_MAX = 1 << LM_STRATEGY_BITS,
  LM_STRATEGY_NAME = 64,
  LM_STRATEGY_DIR = 256
};

typedef enum lm_kind {
  LM_KIND_HOST,
  LM_KIND_SYSTEM,
  LM_KIND_HANDLER,
  LM_KIND_DENY,
  LM_KIND_PINNED,
  LM_KIND_DEVICE,
  LM_KIND_MANAGED,
  LM_KIND_SHARED,
  LM_KIND_FILE,
  LM_KINDS
} lm_kind;

typedef enum lm_huge {
  LM_HUGE_DEFAULT,
  LM_HUGE_NEVER,
  LM_HUGE_THP,
  LM_HUGE_2MIB,
  LM_HUGE_1GIB
} lm_huge;

/* Where device memory comes from. */
typedef enum lm_device_pool_kind {
  LM_DEVICE_POOL_AUTO, /* loam's own: CHUNKS for who needs the driver's handles of it, else CACHE */
  LM_DEVICE_POOL_CACHE,
  LM_DEVICE_POOL_CHUNKS,
  LM_DEVICE_POOL_DRIVER,
  LM_DEVICE_POOL_NONE,
  LM_DEVICE_POOL_KINDS
} lm_device_pool_kind;

/* What a strategy is. Zeroed, it is the built-in default: host memory, nothing asked. */
typedef struct lm_desc {
  char name[LM_STRATEGY_NAME]; /* terminated; "" where the policy gave none */
  lm_kind kind;
  size_t align; /* 0: none asked; else a power of two, at most 1 GiB */
  size_t limit; /* 0: none */
  lm_placement placement;
  lm_huge huge;
  bool zero, prefault, lock;
  uint32_t guard;            /* 0 none, 1 every block, N one block in N */
  char handler[127];         /* LM_KIND_HANDLER: its name */
  char dir[LM_STRATEGY_DIR]; /* LM_KIND_FILE: the folder of its file */
  uint8_t device;            /* of a device or managed: 0 the current one, else its ordinal + 1 */
  uint8_t prefer; /* of managed: 0 none, 1 the current one, else the device's ordinal + 2 */
  lm_device_pool_kind supply;            /* LM_KIND_DEVICE */
  bool mapped, portable, write_combined; /* LM_KIND_PINNED */
  bool asked;                            /* likewise: lm_strategy_twin */
} lm_desc;

typedef struct lm_strategy {
  uint32_t id;
  uint32_t hash; /* of desc, the limit aside */
  lm_desc desc;
  struct lm_strategy *whole;    /* itself, or what it is a share of */
  struct lm_shares *shares;     /* NULL: it is not shared out by node. Constant, as is `whole` */
  struct lm_twins *twins;       /* NULL: it has none. Constant */
  struct lm_strategy *account;  /* whose `used` its bytes are in. Constant */
  _Atomic int64_t used;         /* of an account: bytes taken of the limit, where there is one */
  _Atomic uint64_t served_late; /* requests it served as a later member of a chain */
  _Atomic uint64_t failed;      /* requests it could not serve */
  struct lm_pool *pool;         /* NULL until the first block; see pool.h */
  _Atomic uint32_t place;       /* of its bins in every thread; 0: none. Also pool.h's */
  _Atomic uint32_t retiring;
  _Atomic uint64_t told_failed, told_elsewhere, told_huge; /* lm_site_generation_first */
  struct lm_strategy *older; /* of those found by the same hash; constant once it is found */
} lm_strategy;

/* The strategy of a description, made if new. LOAM_EBUDGET when LM_STRATEGIES_MAX exist. */
loam_status lm_strategy_intern(const lm_desc *desc, lm_strategy **out);
/* By id, which is valid once interned; no lock. Strategy 0 is the built-in default, "default". An
 * id is known only from lm_strategy_intern, or from data that was published after it, so the
 * pointer is there; acquire pairs with the release of whoever entered it. */
extern _Atomic(lm_strategy *) lm_strategy_table[] __attribute__((visibility("hidden")));
extern lm_strategy lm_strategy_builtin __attribute__((visibility("hidden"))); /* in no table */
uint32_t lm_strategy_count(void);
LM_INLINE lm_strategy *lm_strategy_at(uint32_t id) {
  lm_assert(id < lm_strategy_count());
  lm_strategy *s = atomic_load_explicit(&lm_strategy_table[id], memory_order_acquire);
  return lm_likely(s != NULL) ? s : &lm_strategy_builtin;
}
extern const char *const lm_strategy_kind_texts[] __attribute__((visibility("hidden")));
LM_INLINE const char *lm_strategy_kind_text(lm_kind kind) {
  return (unsigned)kind < LM_KINDS ? lm_strategy_kind_texts[kind] : "?";
}
/* Whether its memory is that of a pool of host memory (pool.h). */
LM_INLINE bool lm_strategy_kind_is_pooled(lm_kind kind) {
  return kind == LM_KIND_HOST || kind == LM_KIND_SHARED || kind == LM_KIND_FILE;
}

/* By node; made when a thread of the node first asks. Acquire pairs with the release in
 * lm_strategy_share: what it points to is there. */
typedef struct lm_shares {
  _Atomic(lm_strategy *) of[LM_NODES_MAX];
} lm_shares;

/* The share of the nearest node with memory to the calling CPU; the whole, where there is no memory
 * for a share. */
lm_strategy *lm_strategy_share(lm_strategy *whole);
/* That of a node; of a strategy that is not shared out, itself. */
lm_strategy *lm_strategy_on_node(lm_strategy *s, unsigned node);
/* What serves the calling thread now. */
LM_INLINE lm_strategy *lm_strategy_here(lm_strategy *s) {
  return lm_likely(!s->shares) ? s : lm_strategy_share(s);
}
/* By node + 1, and by whether pinned memory was what was asked. */
typedef struct lm_twins {
  _Atomic(lm_strategy *) of[LM_NODES_MAX + 1][2];
} lm_twins;

/* The twin that prefers a node (-1: its memory is where its device is); the whole, where there is
 * no memory for a twin. */
lm_strategy *lm_strategy_twin(lm_strategy *whole, int node, bool asked);
/* The id under which a block of this strategy is told. */
LM_INLINE uint32_t lm_strategy_whole(uint32_t id) {
  const lm_strategy *s = lm_strategy_at(id);
  return s->whole->id;
}

/* The limit of a strategy that has one; of others nothing is counted. Those that differ in their
 * limits alone have one account, that of the first, so that what lives counts when a limit is
 * edited. Law: used is the bytes of their live blocks, and of small objects that threads cache
 * (pool.c): so it is never passed by what is allocated, and what is refused too early is at most
 * what the other threads cache. */
bool lm_strategy_limit_take(lm_strategy *s, size_t bytes);
/* Whether what one has taken is the other's too. */
LM_INLINE bool lm_strategy_limit_is_shared(const lm_strategy *a, const lm_strategy *b) {
  return a->account == b->account;
}
/* As many times `size` as are left, at most `want`. */
uint32_t lm_strategy_limit_take_some(lm_strategy *s, size_t size, uint32_t want);
void lm_strategy_limit_give(lm_strategy *s, int64_t bytes);
/* Bytes left; SIZE_MAX without a limit. */
size_t lm_strategy_limit_left(const lm_strategy *s);

#endif
