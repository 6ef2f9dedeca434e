/* decision.h - the thread's decision cache: what the policy decided for a site and a size class.
 *
 * A request that finds its entry takes an object from the thread cache (heap/tcache.h) that the
 * entry names. That is a whole allocation for most requests (lm_decision_serve). Any other request
 * evaluates the plan of its site and, where the law below allows, fills an entry with the decision
 * (lm_decision_make).
 *
 * Law: an entry whose key contains the thread's present epoch holds for every request with that
 * key. The policy gives each such request an object of the bin `bin`, and the object bears the
 * token `token`. A new policy sets LM_SLOW_STALE in every thread (os/thread.h). A thread that
 * clears LM_SLOW_STALE begins a new epoch, so it never uses a decision of an older policy. The key
 * also contains the published word (os/published.h), so no entry holds once another process has
 * published a policy.
 *
 * So lm_decision_serve may use a decision only if it depends on nothing but the key. It depends on
 * more if
 *   - the plan reads a gauge for the request;
 *   - the plan treats sizes of the request's class in different ways;
 *   - the plan reads req.zero, or the request has an alignment above 16;
 *   - the live bytes of the tag are counted (engine/live_bytes.h), which lm_decision_serve does not
 *     do.
 * In these cases the plan is evaluated for each request (lm_decision_serve_by_plan). An entry is
 * then for a key and a strategy: its key has LM_DECISION_BY_PLAN, and it serves the requests with
 * that key to which the plan gives that strategy.
 *
 * One exception: the decision for a strategy with one share for each NUMA node is kept, and names
 * the bin of the node where the thread decided. The thread may run on another node later. It
 * decides again when that bin is empty (lm_decision_refill).
 *
 * lm_decision_is_valid checks what a single entry shows of the law. The entry is unused, or
 *   its key has LM_EPOCH_FAST and lacks LM_SCOPED, and the entry is at the place of its key;
 *   its token names the site for which the entry counts blocks, and is counted only if the key has
 *     LM_DECISION_BY_PLAN;
 *   it has served no more blocks than it may: 0 <= left <= start;
 *   its `state` is a plain state (heap/tcache.h);
 *   `bin` is the bin of a pool, and the bin has a sentinel. */
#ifndef LM_DECISION_H
#define LM_DECISION_H

#include "device/request.h"
#include "engine/sample.h"
#include "heap/strategy.h"
#include "heap/tcache_slow.h"
#include "os/published.h"
#include "plan/site.h"

/* A key identifies the requests that one entry can serve. Its bits, from the lowest:
 *
 *   by site    index of the site times LM_DECISION_STRIDE, plus class times LM_DECISION_STEP: bits
 *              0 to 31
 *              flags of a pinned request: bits 48 to 50; pinned: bit 51
 *              LM_DECISION_BY_PLAN: bit 53; LM_SITE_KEY_BIT: bit 55
 *   by code    return address: bits 0 to 46, on AArch64 bits 2 to 47; class: bits 48 to 53
 *   both       the published word (os/published.h): bits 47 (on AArch64 0), 54 and 56 to 58;
 *              epoch: bits 59 to 61; LM_SCOPED: bit 62; LM_EPOCH_FAST: bit 63
 *
 * LM_DECISION_STEP is the bytes of an entry. So the low bits of a key by site are the byte offset
 * of its entry; with LM_DECISION_BY_PLAN the strategy adds to that offset. LM_DECISION_STRIDE has a
 * step for each class, so the entries of one site stand side by side. All these offsets are taken
 * modulo the size of the cache; of two requests whose entries have one place, the later one
 * replaces the entry.
 *
 * No entry's key has LM_SCOPED, and each has LM_EPOCH_FAST. So a thread with a scope finds nothing
 * by a code address, and a thread on the slow path finds nothing at all. The number of an epoch is
 * never 0, so no request has the key 0 of an unused entry. */
enum { LM_DECISION_CODE_CLASS = 48, LM_DECISION_FLAGS = 48 };
/* The bits that a return address may have. */
#ifdef __aarch64__
#define LM_DECISION_CODE (((uint64_t)1 << 48) - 4)
#else
#define LM_DECISION_CODE (((uint64_t)1 << 47) - 1)
#endif
#define LM_DECISION_PINNED ((uint64_t)1 << 51)
#define LM_DECISION_BY_PLAN ((uint64_t)1 << 53)

_Static_assert(sizeof(lm_decision) == LM_DECISION_STEP, "a key of a site is also an entry's place");
_Static_assert(((uint64_t)1 << LM_SITE_BITS) * LM_DECISION_STRIDE < (uint64_t)1 << 32 &&
                   LM_CLASSES_ALL * LM_DECISION_STEP < 1 << 12 &&
                   LM_CLASSES <= 1 << (54 - LM_DECISION_CODE_CLASS) &&
                   (uint64_t)LM_GPU_PINNED_FLAGS << LM_DECISION_FLAGS < LM_DECISION_PINNED &&
                   !(LM_DECISION_CODE & (uint64_t)1 << LM_PUBLISHED_LOW) &&
                   LM_SITE_KEY_BIT == (uint64_t)1 << 55 && LM_EPOCH_FIRST == (uint64_t)1 << 59,
               "the parts of a key do not overlap");

/* Returns whether an entry of the cache of `t`, the calling thread, obeys the law above as far as
 * the entry shows it. Constant time. */
bool lm_decision_is_valid(lm_thread *t, const lm_decision *d);

/* Returns the site of a call. If `site` is NULL, it is the site of the innermost scope of `t`, else
 * the default site. `t` is the calling thread, or the empty area. */
LM_INLINE loam_site *lm_decision_site(const lm_thread *t, loam_site *site) {
  if (!site) site = t->site ? t->site : &lm_site_empty;
  return site;
}

/* ---- The fast path ------------------------------------------------------------------------ */

/* The key of a request, and the place where its entry stands. */
typedef struct lm_decision_key {
  uint64_t key; /* the key of the entry, without the epoch, LM_EPOCH_FAST and the published word */
  uint64_t place; /* modulo the bytes of the cache, this is the entry's byte offset in the cache */
} lm_decision_key;

/* Returns the size class of a small request (at most LM_SMALL_MAX, 64 KiB), times LM_DECISION_STEP.
 * Entry i of lm_class_steps holds this product for requests of 16 * (i - 1) + 1 to 16 * i bytes. */
LM_INLINE unsigned lm_decision_step(size_t size) {
  lm_assert(size <= LM_SMALL_MAX);
  return lm_class_steps[(size + 15) / 16];
}

/* Returns the key of a malloc of `size` bytes, at most LM_SMALL_MAX, at a site. loam_site.key has
 * the bits that depend on the site alone: LM_SITE_KEY_BIT, and the site's index times
 * LM_DECISION_STRIDE. So one addition completes the key, and the key is also the place. */
LM_INLINE lm_decision_key lm_decision_key_of(const loam_site *site, size_t size) {
  uint64_t key = site->key + lm_decision_step(size);
  return (lm_decision_key){ key, key };
}

/* Begins an active section of the calling thread. Returns the key that the request's entry has if
 * it holds. The word is loaded without order: a thread that sees a new word late serves a few more
 * requests under the policy that it obeys. */
LM_INLINE uint64_t lm_decision_enter(lm_thread *t, lm_decision_key k) {
  uint64_t key = k.key + lm_thread_try_enter(t);
  lm_keep(key); /* else gcc adds the epoch to the word first, which takes one instruction more */
  return key + lm_load(uint64_t, &lm_published.now.word);
}

/* Returns the entry at a key's place. The entry may be for another request, so the caller compares
 * its key. */
LM_INLINE lm_decision *lm_decision_at(lm_thread *t, lm_decision_key k) {
  lm_decision *d = (lm_decision *)((char *)t->decision + k.place % sizeof t->decision);
  lm_keep(d); /* keeps the address in a register; else gcc computes it again for each field */
  return d;
}

/* Serves most allocations, without a call: takes an object from the bin that the request's entry
 * names. Sets *holds to whether an entry holds for the request. Returns NULL, and has done nothing,
 *   - if no entry holds. Then lm_decision_make serves the request;
 *   - if the entry has served all blocks that it may serve. Then lm_sampled_serve takes a sample
 *     (engine/sampled.h), or lm_decision_make serves the request;
 *   - if the entry's bin is empty, or the palette of the last object's span lacks the entry's token
 *     (heap/tcache.h). Then lm_decision_refill serves the request.
 * The thread is not active. This function enters a section, and loam waits for the end of such
 * sections before it reclaims what a replaced policy used. `t` may be the empty area
 * (lm_thread_self_or_empty); no entry of that area holds. */
LM_INLINE void *lm_decision_serve(lm_thread *t, lm_decision_key k, bool *holds) {
  lm_decision *d = lm_decision_at(t, k);
  uint64_t key = lm_decision_enter(t, k);
  void *p = NULL;
  *holds = false; /* set on each branch: else gcc keeps both keys for the slow path */
  if (lm_likely(d->key == key)) {
    *holds = true;
    /* With the load of the epoch by lm_thread_try_enter, the fence is an acquire load. */
    lm_load_fence();
    if (lm_likely(!lm_count_down(&d->left))) p = lm_tcache_take_ready(t, d);
    if (lm_unlikely(!p)) lm_add_relaxed(&d->left, 1);
  }
  lm_thread_leave(t);
  return p;
}

/* Serves a small request for which lm_decision_serve returned NULL and set *holds: fills the bin if
 * it is empty, and notes the entry's token in the object's span. Returns NULL if there is no memory
 * (or none within the strategy's limit), if the entry does not hold any more or has served all
 * blocks that it may serve, or if the strategy has a share for each NUMA node. In the last case
 * lm_decision_make decides again, for the node on which the thread runs now. The thread is not
 * active. */
LM_INLINE void *lm_decision_refill(lm_thread *t, lm_decision_key k) {
  uint64_t key = lm_decision_enter(t, k);
  lm_decision *d = lm_decision_at(t, k);
  void *p = NULL;
  lm_load_fence(); /* see lm_decision_serve */
  if (lm_likely(d->key == key && d->left > 0 && !lm_strategy_at(d->strategy)->shares)) {
    uint8_t hint = d->state % LM_STATE_IDS; /* where to look for the token; then where it is */
    p = lm_tcache_take(t, d->bin, d->token, &hint);
    d->state = LM_STATE_LIVE + hint;
    lm_assert(lm_decision_is_valid(t, d));
    if (lm_likely(p != NULL)) lm_add_relaxed(&d->left, -1);
  }
  lm_thread_leave(t);
  return p;
}

/* Returns whether an entry has served all blocks of the count that it drew, so that the next
 * request is to be sampled. */
LM_INLINE bool lm_decision_is_due(const lm_decision *d, uint64_t key) {
  return d->key == key && !d->left && d->start != LM_STATS_STOCK && lm_sample_is_on();
}

/* ---- Keys of other requests --------------------------------------------------------------- */

/* Returns the bytes that decide the class of a request: its size, rounded up to its alignment if
 * that is above 16. The objects of the class then have the alignment too, if it is at most a page
 * and the bytes are at most LM_SMALL_EVEN. */
LM_INLINE size_t lm_decision_bytes(const lm_request *r) {
  return r->align > 16 ? lm_align_up(r->size, r->align) : r->size;
}

/* Returns whether thread caches can serve a request of this size and alignment. */
LM_INLINE bool lm_decision_can_serve(const lm_request *r) {
  if (r->align <= 16) return r->size <= LM_LARGE_MAX;
  /* The subtraction also refuses 0 bytes: a size of 0, and a size that wrapped to 0 when it was
   * rounded up. */
  return r->align <= LM_PAGE && lm_decision_bytes(r) - 1 < LM_SMALL_EVEN;
}

/* Returns the small or large size class of `bytes`, times LM_DECISION_STEP. */
LM_INLINE unsigned lm_decision_step_any(size_t bytes) {
  return bytes <= LM_SMALL_MAX ? lm_decision_step(bytes) : lm_class_large(bytes) * LM_DECISION_STEP;
}

/* Returns the place (lm_decision_key.place) of the entry for a return address and a class, which is
 * given as lm_decision_step gives it. Neighbouring classes of one address are CLASS_STRIDE entries
 * apart, so a thread that does little touches few pages of its cache. The entries of two
 * calls share a place only if their addresses are CLASS_STRIDE times as far apart as their
 * classes. */
LM_INLINE uint64_t lm_decision_place_of_code(uint64_t code, uint64_t step) {
  enum { CLASS_STRIDE = 4 }; /* with 4, gcc needs two instructions */
  return (code * (LM_DECISION_STEP / CLASS_STRIDE) + step) * CLASS_STRIDE;
}

/* Returns the key of a malloc of `size` bytes, at most LM_SMALL_MAX, that is identified by its
 * return address `code`. `t` is the calling thread; its `scoped` makes the key match no entry while
 * the thread has a scope. */
LM_INLINE lm_decision_key lm_decision_key_of_code(const lm_thread *t, uintptr_t code, size_t size) {
  uint64_t step = lm_decision_step(size);
  uint64_t class_ = step * (((uint64_t)1 << LM_DECISION_CODE_CLASS) / LM_DECISION_STEP);
  return (lm_decision_key){ class_ + code + t->scoped, lm_decision_place_of_code(code, step) };
}

/* Returns the key, by site or by code, of a request with align <= 16 that thread caches can serve
 * (lm_decision_can_serve). `t` is the calling thread. */
LM_INLINE lm_decision_key lm_decision_key_of_request(const lm_thread *t, const lm_request *r) {
  if (r->by_code) return lm_decision_key_of_code(t, r->code, r->size);
  uint64_t key = r->site->key + lm_decision_step_any(r->size);
  if (r->want == LM_WANT_PINNED)
    key += LM_DECISION_PINNED + ((uint64_t)r->flags << LM_DECISION_FLAGS);
  return (lm_decision_key){ key, key };
}

/* ---- New decisions ------------------------------------------------------------------------- */

/* Like lm_decision_serve, for a request by site of more than LM_SMALL_MAX and at most
 * LM_LARGE_MAX bytes. Counts the block in a tally (engine/stats.h) and not in the entry, because
 * the blocks of a large class have different sizes. Returns NULL if no entry holds, if its bin
 * is empty, or if a lock is needed that may wait for a fork. */
void *lm_decision_serve_large(lm_thread *t, const lm_request *r);

/* Evaluates the plan of the request's site. If the decision depends on more than the key, takes an
 * object by the entry for the key and the strategy. Makes no system call, and takes no lock that
 * may wait for a fork, so the caller need not be in a guarded section. Returns NULL, and has done
 * nothing, for a decision that depends on the key alone, and where no object can be taken so;
 * lm_decision_make then serves the request. The thread is not active. `t` may be the empty area.
 * r->site is not NULL. */
void *lm_decision_serve_by_plan(lm_thread *t, const lm_request *r);

/* Evaluates the plan of the request's site, and takes an object from the thread cache that the
 * plan leads to. Keeps the decision in an entry, if the bin can have a name. Returns NULL if thread
 * caches cannot serve the request; lm_engine_serve may. The thread is not active, and r->site is
 * not NULL. */
void *lm_decision_make(lm_thread *t, const lm_request *r);

/* Returns whether the policy now decides a request of the site for `size` bytes, at most
 * LM_LARGE_MAX, in the same way as it decided for an object with this token and strategy id. The
 * thread is not active. */
bool lm_decision_is_current(lm_thread *t, loam_site *site, size_t size, lm_token token,
                            uint32_t strategy);

/* Keeps a decision for pinned requests with the key of *r: objects of `twin` serve them from now
 * on. Keeps nothing if the policy may decide otherwise for another size of the class, or for some
 * other reason that the key does not contain. `twin` has just served *r. The thread is not
 * active. */
void lm_decision_remember_pinned(lm_thread *t, const lm_request *r, lm_strategy *twin);

/* Returns the plan and the token that a site has under the live policy. A site has two pairs of
 * plan and token: of the live policy, and of the policy before or after it. The thread is
 * active. */
LM_INLINE lm_site_plan *lm_decision_live_plan(loam_site *site) {
  /* Acquire pairs with the release that makes a new policy live: its plan and token are written. */
  return &site->now[atomic_load_explicit(&lm_site_generation, memory_order_acquire) & 1];
}

/* Reads a gauge: the function that lm_plan_decide calls for an input that changes with time. If the
 * gauge can be read only with a lock or a system call, and inputs->needs_lock is not NULL, it sets
 * *inputs->needs_lock instead. */
double lm_decision_gauge(const lm_inputs *inputs, int input, unsigned arg);

/* Fills in what a plan may read of a request. Does not set the fields for fixed values of gauges:
 * they are not read, because `gauge` is set. `needs_lock` is for lm_decision_gauge; NULL: a gauge
 * may take a lock. */
LM_INLINE void lm_decision_inputs(const lm_request *r, bool *needs_lock, lm_inputs *out) {
  out->size = r->size;
  out->align = r->align;
  out->zero = r->zero;
  out->gauge = lm_decision_gauge;
  out->needs_lock = needs_lock;
  out->site = r->site;
}

#endif
