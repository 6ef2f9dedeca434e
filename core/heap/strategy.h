/* strategy.h - strategies: interned descriptions of memory.
 *
 * A strategy does not change once it is interned: equal descriptions are one strategy, with one id
 * and one pool, in all generations of the policy. Only its counters change.
 *
 * Shares. Memory of `numa = "local"` belongs to the NUMA node of the thread that asked for it, but
 * any thread may free it. Memory that a thread of one node freed shall not become the "local"
 * memory of a thread of another node. So on a machine of several nodes such a strategy has a share
 * for each node: a strategy with its own pool and bins, which prefers that node. Policies, names,
 * limits and figures know only the whole strategy.
 *
 * Twins. Pinned memory that the CPU may cache is divided in the same way. One twin holds what the
 * host explicitly requested as pinned, which stays pinned when it is reallocated. Where devices are
 * near several NUMA nodes, there is one twin of each of the two kinds for each node. */
#ifndef LM_STRATEGY_H
#define LM_STRATEGY_H

#include <stdatomic.h>

#include "loam.h"
#include "os/numa.h"

/* Descriptions are small and stay for the life of the process. The memory of a strategy that no
 * policy names goes back (lm_retire_unused). */
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

/* The sources of device memory. AUTO is loam's own pool: chunks for programs that need the
 * driver's handles of them, else the cache. SLEEP is device/sleep.h. */
typedef enum lm_device_pool_kind {
  LM_DEVICE_POOL_AUTO,
  LM_DEVICE_POOL_CACHE,
  LM_DEVICE_POOL_CHUNKS,
  LM_DEVICE_POOL_DRIVER,
  LM_DEVICE_POOL_NONE,
  LM_DEVICE_POOL_SLEEP,
  LM_DEVICE_POOL_KINDS
} lm_device_pool_kind;

/* The description of a strategy. Zeroed, it is the built-in default: host memory, with no wishes.
 * A field that the kind does not use is ignored (lm_strategy_intern). */
typedef struct lm_desc {
  char name[LM_STRATEGY_NAME]; /* terminated; "" where the policy gave none */
  lm_kind kind;
  size_t align; /* 0: as the request says; else a power of two, at most 1 GiB */
  size_t limit; /* bytes; 0: none */
  size_t soft;  /* the soft limit, bytes; 0: none; at most `limit` */
  lm_placement placement;
  lm_huge huge;
  bool zero, prefault, lock;
  uint32_t guard;            /* blocks that are guarded: 0 none, 1 each, N one in N */
  char handler[127];         /* LM_KIND_HANDLER: its name */
  char dir[LM_STRATEGY_DIR]; /* LM_KIND_FILE: the folder of its file */
  /* The name under which processes share the limit, terminated; "": the limit is of one process. */
  char shared[LM_STRATEGY_NAME];
  /* LM_KIND_DEVICE and LM_KIND_MANAGED: 0 the current device, else the device's ordinal + 1 */
  uint8_t device;
  /* LM_KIND_MANAGED: 0 none, 1 the current device, else the device's ordinal + 2 */
  uint8_t prefer;
  lm_device_pool_kind supply;            /* LM_KIND_DEVICE */
  bool mapped, portable, write_combined; /* LM_KIND_PINNED */
  bool asked; /* LM_KIND_PINNED: the host requested pinned memory; of twins only */
} lm_desc;

/* Law: a strategy that is a part has another strategy as its `whole`; the `whole` of a whole is the
 * whole itself. The `account` of a part is the account of its whole. Wholes that have limits and
 * differ only in the values of the limits have one account, the oldest of them. The account of any
 * other whole is the whole itself. The `family` of a whole is the oldest whole that differs from it
 * at most in the limits; the family of a part is the family of its whole. Equal descriptions have
 * equal ids. lm_strategy_is_valid checks all strategies. */
typedef struct lm_strategy {
  uint32_t id;
  uint32_t hash; /* of desc without the limits */
  lm_desc desc;
  struct lm_strategy *whole;    /* the strategy itself, or the one that it is a part of; constant */
  struct lm_shares *shares;     /* NULL: it has no shares; constant */
  struct lm_twins *twins;       /* NULL: it has no twins; constant */
  struct lm_strategy *account;  /* the strategy whose `used` counts its bytes; constant */
  struct lm_strategy *family;   /* figures of strategies with one family are joined; constant */
  _Atomic int64_t used;         /* of an account: bytes taken of the limit, if there is one */
  _Atomic int64_t peak;         /* of an account: see lm_strategy_limit_peak */
  _Atomic uint32_t quota;       /* of an account: the number of its quota (quota.h), or 0 */
  _Atomic uint64_t served_late; /* requests that it served as a later member of a chain */
  _Atomic uint64_t failed;      /* requests that it could not serve */
  _Atomic uint64_t at_limit;    /* the part of `failed` because of its limit */
  struct lm_pool *pool;         /* NULL until the first block; see pools.h */
  _Atomic uint32_t place;       /* of its bins in every thread; 0: none; see pools.h */
  _Atomic uint32_t retiring;    /* LM_POOL_OPEN, ...; see pools.h */
  _Atomic uint32_t soft_state;  /* of a whole: LM_SOFT_BELOW, ... */
  _Atomic uint64_t told_failed, told_elsewhere, told_huge; /* lm_site_generation_first */
  struct lm_strategy *older; /* the next one in the chain of its hash; constant once it is there */
} lm_strategy;

/* The strategy with this description, which is made if it is new. LOAM_EINVAL: the description
 * makes no sense; LOAM_EBUDGET: there are LM_STRATEGIES_MAX; LOAM_ENOMEM. Any thread, in an active
 * section too: it takes locks, but no thread waits for a grace while it holds one of them. */
loam_status lm_strategy_intern(const lm_desc *desc, lm_strategy **out);
/* The strategies by id, which lm_strategy_at reads; all others go through functions. */
extern _Atomic(lm_strategy *) lm_strategy_table[] __attribute__((visibility("hidden")));
extern lm_strategy lm_strategy_builtin __attribute__((visibility("hidden"))); /* in no table */
/* The number of strategies: ids below it are valid. */
uint32_t lm_strategy_count(void);
/* The strategy with an id. Strategy 0 is the built-in default, "default". Takes no lock: an id
 * comes from lm_strategy_intern, or from data that was published after it, so the pointer is there.
 * Acquire pairs with the release in add_locked: the strategy is complete. */
LM_INLINE lm_strategy *lm_strategy_at(uint32_t id) {
  lm_assert(id < lm_strategy_count());
  lm_strategy *s = atomic_load_explicit(&lm_strategy_table[id], memory_order_acquire);
  return lm_likely(s != NULL) ? s : &lm_strategy_builtin;
}
/* Checks the law of every strategy. Any thread. */
bool lm_strategy_is_valid(void);

extern const char *const lm_strategy_kind_texts[] __attribute__((visibility("hidden")));
/* A kind's name in policies; "?" if there is no such kind. */
LM_INLINE const char *lm_strategy_kind_text(lm_kind kind) {
  return (unsigned)kind < LM_KINDS ? lm_strategy_kind_texts[kind] : "?";
}
/* Tells whether memory of the kind always comes from a pool of host memory (pool.h). */
LM_INLINE bool lm_strategy_kind_is_pooled(lm_kind kind) {
  return kind == LM_KIND_HOST || kind == LM_KIND_SHARED || kind == LM_KIND_FILE;
}

/* ---- Shares and twins --------------------------------------------------------------------- */

/* The shares by node. Each is made when a thread of the node first needs it. Acquire pairs with the
 * release in share_of: the share is complete. */
typedef struct lm_shares {
  _Atomic(lm_strategy *) of[LM_NODES_MAX];
} lm_shares;

/* The share of the node with memory that is nearest to the calling CPU. Without memory for a share,
 * the whole. `whole` has shares. */
lm_strategy *lm_strategy_share(lm_strategy *whole);
/* The share of a node; the strategy itself if it has no shares. */
lm_strategy *lm_strategy_on_node(lm_strategy *s, unsigned node);
/* The strategy that serves the calling thread now: a share, or the strategy itself. */
LM_INLINE lm_strategy *lm_strategy_here(lm_strategy *s) {
  return lm_likely(!s->shares) ? s : lm_strategy_share(s);
}
/* The twins, by node + 1, and by whether the host requested pinned memory. Ordered like shares. */
typedef struct lm_twins {
  _Atomic(lm_strategy *) of[LM_NODES_MAX + 1][2];
} lm_twins;

/* The twin that prefers a node; -1: its memory is near its device. The whole, if it has no twins or
 * there is no memory for one. */
lm_strategy *lm_strategy_twin(lm_strategy *whole, int node, bool asked);
/* The id that figures and events give for a block of this strategy: the id of the whole. */
LM_INLINE uint32_t lm_strategy_whole(uint32_t id) {
  const lm_strategy *s = lm_strategy_at(id);
  return s->whole->id;
}

/* ---- Limits ------------------------------------------------------------------------------- */

/* Strategies that differ only in their limits share the account of the oldest one, so that live
 * memory counts when a limit is edited. Without a limit nothing is counted.
 *
 * Law: an account's `used` is the bytes of live blocks, plus the bytes of small objects that
 * threads cache or are about to allocate. So live memory never exceeds the limit, and a request
 * is refused too early by at most the bytes that other threads cache. Relaxed, because nothing else
 * is ordered by it. */

/* Shared limits. An account whose limit is shared has a quota, from which the processes of a user
 * draw together (quota.h). The bytes of an account are then counted twice: in `used`, which says
 * what this process has, and in the quota, which decides. An account without a quota decides by
 * `used`: the process has no table of quotas, or the table is full. */

/* Gives every account whose limit is shared its quota. Returns a strategy that has none after this;
 * NULL: there is no such strategy. Under the load lock of service/policy.c. */
const lm_strategy *lm_strategy_bind_quotas(void);
/* Returns whether a strategy has a shared limit and no quota yet. */
bool lm_strategy_lacks_quota(void);

/* Takes bytes of the limit. False: too few are left. */
bool lm_strategy_limit_take(lm_strategy *s, size_t bytes);
/* Takes `size` bytes as often as possible, at most `want` times. Returns how often. Both functions
 * set lm_thread.is_at_limit if the strategy has a limit: whether the limit refused. */
uint32_t lm_strategy_limit_take_some(lm_strategy *s, size_t size, uint32_t want);
/* Gives bytes back to the limit; negative ones are taken, even if too few are left. */
void lm_strategy_limit_give(lm_strategy *s, int64_t bytes);
/* The bytes of the limit that are used: by all processes if the limit is shared, else by this one.
 * 0 without a limit. */
uint64_t lm_strategy_limit_used(const lm_strategy *s);
/* The most bytes of the limit that were ever used, under earlier values of the limit too. If the
 * limit is shared: the most that all processes used whenever this process took some, and now.
 * `used` are the bytes that are used now; the peak is never less. */
uint64_t lm_strategy_limit_peak(const lm_strategy *s, uint64_t used);
/* The bytes that are left; SIZE_MAX without a limit. */
size_t lm_strategy_limit_left(const lm_strategy *s);
/* Returns whether so many bytes are left. If they are not, and the limit is shared, the function
 * gives back what dead processes had of it, and looks again. */
bool lm_strategy_limit_has(const lm_strategy *s, size_t bytes);

/* How the bytes that count against a limit stand to the soft limit. From TOLD the state returns to
 * BELOW when the bytes fall below 7/8 of the soft limit, so that a program which stays near its
 * soft limit is not told again and again. */
enum { LM_SOFT_BELOW, LM_SOFT_PASSED, LM_SOFT_TOLD };

/* Not 0 if a strategy may have the state LM_SOFT_PASSED. Release at the increment, acquire in
 * engine/soft_limit.c. */
extern _Atomic uint32_t lm_strategy_soft_passed __attribute__((visibility("hidden")));

/* Tells whether both count against one account. */
LM_INLINE bool lm_strategy_limit_is_shared(const lm_strategy *a, const lm_strategy *b) {
  return a->account == b->account;
}
/* Tells whether a live block of one may stay where it is as a block of the other: they differ at
 * most in their limits, as after an edit of a limit, and count against one account. */
LM_INLINE bool lm_strategy_is_kin(const lm_strategy *a, const lm_strategy *b) {
  return a->family == b->family && lm_strategy_limit_is_shared(a, b);
}

#endif
