/* decision.h - the thread's decision cache: what the policy decided for a site and a size class.
 *
 * A request that finds its entry takes an object from the thread cache that the entry names. That
 * is a whole allocation for most requests (lm_decision_serve). Any other request evaluates its
 * site's plan and fills an entry where it may (lm_decision_make).
 *
 * Law: an entry whose key has the thread's epoch holds for every request with that key. The policy
 * gives each of them an object of `bin`, and the object bears `token`. That was decided under the
 * generation that was live when the thread last took LM_SLOW_STALE back; every later swap raises
 * LM_SLOW_STALE again, and then the thread begins a new epoch. So decisions that depend on anything
 * that is not in the key are not kept: those that read a gauge, that part the sizes of one class,
 * and those of tags whose live bytes are counted.
 *
 * What an entry shows of this (lm_decision_is_valid): it is unused, or
 *   its key has LM_EPOCH_FAST and lacks LM_SCOPED, and the entry is at the place of its key;
 *   its token is not counted, and names the site that the entry counts;
 *   its `state` is a plain state;
 *   `bin` is the bin of a pool, and the bin has a sentinel. */
#ifndef LM_DECISION_H
#define LM_DECISION_H

#include "device/request.h"
#include "heap/strategy.h"
#include "heap/tcache_slow.h"
#include "plan/site.h"

/* Keys, from the lowest bit:
 *
 *   by site    class and index of the site (loam_site.key): bits 0 to 31
 *              size class of the request itself, where an alignment raised it: bits 33 to 45
 *              flags of a pinned request: bits 48 and 49; pinned: bit 50; aligned: bit 51
 *              LM_SITE_KEY_BIT: bit 55
 *   by code    return address: bits 0 to 46; class: bits 48 to 53
 *   both       epoch: bits 56 to 61; LM_SCOPED: bit 62; LM_EPOCH_FAST: bit 63
 *
 * No entry's key has LM_SCOPED, and each has LM_EPOCH_FAST. So a thread with a scope finds nothing
 * by a code address, and a thread on the slow path finds nothing at all. */
enum { LM_DECISION_CODE_BITS = 47, LM_DECISION_CODE_CLASS = 48, LM_DECISION_FLAGS = 48 };
#define LM_DECISION_PINNED ((uint64_t)1 << 50)
#define LM_DECISION_ALIGNED ((uint64_t)1 << 51)

_Static_assert(sizeof(lm_decision) == LM_DECISION_STEP, "a key of a site is also an entry's place");
_Static_assert(((uint64_t)1 << LM_SITE_BITS) * LM_DECISION_STRIDE < (uint64_t)1 << 32 &&
                   LM_CLASSES_ALL * LM_DECISION_STEP < 1 << 12 &&
                   LM_CLASSES <= 1 << (54 - LM_DECISION_CODE_CLASS) &&
                   LM_SITE_KEY_BIT == (uint64_t)1 << 55 && LM_EPOCH_FIRST == (uint64_t)1 << 56,
               "the parts of a key do not overlap");

/* Returns whether an entry of the calling thread's cache shows the law above. Constant time. */
bool lm_decision_is_valid(lm_thread *t, const lm_decision *d);

/* The site of the thread's scope, else the default site. */
LM_INLINE loam_site *lm_decision_scope(const lm_thread *t) {
  return t->site ? t->site : &lm_site_empty;
}

/* ---- The fast path ------------------------------------------------------------------------ */

/* How the decision cache knows a request: by the key of its entry, without the epoch, and by the
 * place of its entry. */
typedef struct lm_decision_key {
  uint64_t key;
  uint64_t place; /* bytes; the offset of the entry in the cache is this, modulo the cache's size */
} lm_decision_key;

/* Returns the size class of a small request, times LM_DECISION_STEP. lm_class_steps has it for each
 * multiple of 16 bytes. */
LM_INLINE unsigned lm_decision_step(size_t size) {
  lm_assert(size <= LM_SMALL_MAX);
  return lm_class_steps[(size + 15) / 16];
}

/* Returns the key of a malloc at a site: of `size` bytes, at most LM_SMALL_MAX, without an
 * alignment. loam_site.key has the bits that depend on the site alone. */
LM_INLINE lm_decision_key lm_decision_key_of(const loam_site *site, size_t size) {
  uint64_t key = site->key + lm_decision_step(size);
  return (lm_decision_key){ key, key };
}

/* Returns the entry at a key's place. The entry may be for another request. */
LM_INLINE lm_decision *lm_decision_at(lm_thread *t, lm_decision_key k) {
  lm_decision *d = (lm_decision *)((char *)t->decision + k.place % sizeof t->decision);
  lm_keep(d); /* else gcc computes the address again for each field */
  return d;
}

/* Serves most allocations, without a call: takes an object from the thread cache that the entry
 * names. The thread is not active: the section is entered here, and in it the generation of the
 * entry does not end. Returns NULL if there is no entry that holds (lm_decision_make makes a new
 * decision), or if there is one, *holds, but its bin is empty (lm_decision_refill). Works for a
 * thread without an area too, which finds nothing. */
LM_INLINE void *lm_decision_serve(lm_thread *t, lm_decision_key k, bool *holds) {
  uint64_t key = k.key + lm_thread_try_enter(t);
  lm_decision *d = lm_decision_at(t, k);
  void *p = NULL;
  *holds = lm_likely(d->key == key);
  if (lm_likely(*holds)) {
    lm_load_fence();
    p = lm_tcache_take_ready(t, d);
    if (lm_likely(p != NULL)) lm_add_relaxed(&d->blocks, 1);
  }
  lm_thread_leave(t);
  return p;
}

/* Serves a small request whose entry holds though lm_decision_serve got nothing: the bin is empty,
 * or the span of its next object does not know the token yet. NULL: the entry does not hold, or the
 * thread may have come to another NUMA node since then, and is to use that node's share. */
LM_INLINE void *lm_decision_refill(lm_thread *t, lm_decision_key k) {
  uint64_t key = k.key + lm_thread_try_enter(t);
  lm_decision *d = lm_decision_at(t, k);
  void *p = NULL;
  if (lm_likely(d->key == key && !lm_strategy_at(d->strategy)->shares)) {
    uint8_t hint = d->state % LM_STATE_IDS;
    p = lm_tcache_take(t, d->bin, d->token, &hint);
    d->state = LM_STATE_LIVE + hint;
    lm_assert(lm_decision_is_valid(t, d));
    if (lm_likely(p != NULL)) lm_add_relaxed(&d->blocks, 1);
  }
  lm_thread_leave(t);
  return p;
}

/* ---- Keys of other requests --------------------------------------------------------------- */

/* Bytes that are taken for a request: its size, rounded up to its alignment. An object of the least
 * class for a multiple of an alignment lies at a multiple of that alignment. */
LM_INLINE size_t lm_decision_bytes(const lm_request *r) {
  return r->align > 16 ? lm_align_up(r->size, r->align) : r->size;
}

/* Returns whether thread caches can serve a request of this size and alignment. */
LM_INLINE bool lm_decision_can(const lm_request *r) {
  if (r->align <= 16) return r->size <= LM_LARGE_MAX;
  return r->align <= LM_PAGE && lm_decision_bytes(r) - 1 < LM_SMALL_EVEN;
}

/* Returns the size class of so many bytes, small or large, times LM_DECISION_STEP. */
LM_INLINE unsigned lm_decision_step_any(size_t bytes) {
  return bytes <= LM_SMALL_MAX ? lm_decision_step(bytes) : lm_class_large(bytes) * LM_DECISION_STEP;
}

/* Returns the key of a malloc that is known by its return address `code`: of `size` bytes, at most
 * LM_SMALL_MAX, without an alignment. `t` is the calling thread. */
LM_INLINE lm_decision_key lm_decision_key_of_code(const lm_thread *t, uintptr_t code, size_t size) {
  uint64_t step = lm_decision_step(size);
  uint64_t class_ = step * (((uint64_t)1 << LM_DECISION_CODE_CLASS) / LM_DECISION_STEP);
  return (lm_decision_key){ class_ + code + t->scoped, (code + step) * LM_DECISION_STEP };
}

/* Returns the key of any request that thread caches can serve (lm_decision_can), by site or by
 * code. `t` is the calling thread. */
LM_INLINE lm_decision_key lm_decision_key_of_request(const lm_thread *t, const lm_request *r) {
  if (r->by_code) return lm_decision_key_of_code(t, r->code, r->size);
  uint64_t key = r->site->key + lm_decision_step_any(lm_decision_bytes(r));
  if (r->align > 16)
    key += LM_DECISION_ALIGNED + lm_decision_step_any(r->size) * (((uint64_t)1 << 28) + 37);
  if (r->want == LM_WANT_PINNED)
    key += LM_DECISION_PINNED + ((uint64_t)r->flags << LM_DECISION_FLAGS);
  return (lm_decision_key){ key, key };
}

/* ---- New decisions ------------------------------------------------------------------------- */

/* Like lm_decision_serve, for a request by site of more than LM_SMALL_MAX and at most LM_LARGE_MAX
 * bytes. NULL: no entry holds, or its bin is empty. */
void *lm_decision_serve_large(lm_thread *t, const lm_request *r);

/* Evaluates the plan of the request's site, takes an object from the thread cache that it leads to,
 * and remembers the decision if every request with this key is decided so. NULL: the thread caches
 * do not serve such a request; lm_engine_alloc does. The thread is not active, and r->site is not
 * NULL. */
void *lm_decision_make(lm_thread *t, const lm_request *r);

/* Like lm_decision_make, for a malloc: of `size` bytes, at most LM_SMALL_MAX, without an
 * alignment. */
void *lm_decision_make_small(lm_thread *t, loam_site *site, size_t size);

/* Whether the policy would now decide a request of the site for `size` bytes, at most LM_LARGE_MAX,
 * as it decided an object that bears this token and is of this strategy. Not while active. */
bool lm_decision_is(lm_thread *t, loam_site *site, size_t size, lm_token token, uint32_t strategy);

/* Remembers that pinned requests like this one get objects of `twin`, if the policy decides so for
 * all of the size class. p is an object that the request just got. Not while active. */
void lm_decision_keep_pinned(lm_thread *t, const lm_request *r, const void *p, lm_strategy *twin);

/* Returns the plan and token of a site under the live generation. While active. */
LM_INLINE lm_site_plan *lm_decision_now(loam_site *site) {
  /* Acquire pairs with the swap of generations: the writes to this half of the pair are seen. */
  return &site->now[atomic_load_explicit(&lm_site_generation, memory_order_acquire) & 1];
}

/* A gauge as it stands now, for lm_plan_decide. */
double lm_decision_gauge(const lm_inputs *inputs, int input, unsigned arg);

#endif
