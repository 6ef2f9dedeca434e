/* decision.c - evaluates plans for the thread's decision cache, and fills its entries. */
#include "engine/decision.h"

#include <string.h>

#include "device/provider.h"
#include "engine/live_bytes.h"
#include "engine/sample.h"
#include "os/numa.h"
#include "os/pressure.h"

/* ---- Evaluating a plan -------------------------------------------------------------------- */

/* Reads a gauge without a lock and without a call of the system. Below 0: that is not possible. */
LM_INLINE double quick_gauge(const lm_inputs *inputs, int input, unsigned arg) {
  if (input == LM_IN_NODE) return lm_numa_here_fast();
  if (input == LM_IN_NODE_FREE) return arg < LM_NODES_MAX ? (double)lm_numa_free_fast(arg) : -1;
  if (input == LM_IN_LIVE) return (double)lm_live_of(lm_thread_self, inputs->site);
  if (input == LM_IN_PRESSURE) return lm_pressure_now_fast();
  return input == LM_IN_DEVICE_FREE ? (double)lm_gpu_free(arg) : -1;
}

/* Reads a gauge that quick_gauge could not read. May take a lock or make a system call. */
static LM_NOINLINE double slow_gauge(int input, unsigned arg) {
  if (input == LM_IN_NODE) return lm_numa_here();
  if (input == LM_IN_NODE_FREE) return (double)(int64_t)lm_numa_free_slow(arg);
  return input == LM_IN_PRESSURE ? (double)lm_pressure_now_slow() : lm_gpu_current();
}

double lm_decision_gauge(const lm_inputs *inputs, int input, unsigned arg) {
  lm_assert(input >= LM_IN_NODE && input < LM_INPUTS);
  double value = quick_gauge(inputs, input, arg);
  if (lm_likely(value >= 0)) return value;
  if (!inputs->needs_lock) return slow_gauge(input, arg);
  *inputs->needs_lock = true;
  return 0;
}

/* The decision of a plan for one request. */
typedef struct choice {
  lm_serve serve; /* .bin is a bin, or LM_BIN_NONE */
  lm_token token;
  uint8_t id;    /* probably the id of the token in the state bytes of objects: lm_state_hint */
  bool is_kept;  /* an entry may keep the decision: it depends on the key alone */
  uint8_t large; /* the class of a large request; set for `fill` alone */
} choice;

LM_INLINE unsigned class_of(size_t bytes) { return lm_decision_step_any(bytes) / LM_DECISION_STEP; }

/* Follows comparisons of the size from a node on. Returns the first node that compares something
 * else, or ~leaf. */
LM_INLINE int32_t pass_sizes(const lm_plan *plan, int32_t at, size_t size) {
  while (at >= 0 && plan->node[at].input == LM_IN_SIZE && !plan->node[at].code_n) {
    const lm_node *node = &plan->node[at];
    at = lm_plan_compare(node->cmp, (double)size, node->k) ? node->yes : node->no;
  }
  return at;
}

/* Returns the leaf that a request reaches from a node. */
LM_INLINE unsigned leaf_from(const lm_plan *plan, uint32_t node, const lm_request *r,
                             bool *needs_lock) {
  int32_t at = pass_sizes(plan, (int32_t)node, r->size);
  if (at < 0) return (unsigned)~at;
  lm_inputs inputs;
  lm_decision_inputs(r, &inputs);
  inputs.needs_lock = needs_lock;
  return lm_plan_decide_from(plan, (uint32_t)at, &inputs);
}

/* Returns the bin that serves a request which reaches the node. */
LM_INLINE lm_serve serve_from(const lm_plan *plan, uint32_t node, const lm_request *r,
                              unsigned class_, bool *needs_lock) {
  int first = lm_plan_first(plan, leaf_from(plan, node, r, needs_lock));
  if (first < 0) return (lm_serve){ LM_BIN_NONE };
  return lm_size_table_serve((uint32_t)first, class_);
}

/* Decides a request. The plan's table has the decision for each class of sizes, for requests that
 * have align <= 16 and need no zeroed memory. The tree is evaluated where the table refers to it,
 * and for other requests if the plan reads what sets them apart. If needs_lock is not NULL, no lock
 * is taken; where a gauge needs one, *needs_lock is set and the choice is of no use. */
LM_INLINE choice choose(const lm_request *r, bool *needs_lock) {
  /* The plan may read these inputs of the request, but no key contains them. */
  uint32_t unkeyed = 1u << LM_IN_ZERO | (r->align > 16 ? 1u << LM_IN_ALIGN : 0);
  lm_site_plan *now = lm_decision_now(r->site);
  lm_token token = atomic_load_explicit(&now->token, memory_order_relaxed);
  const lm_plan *plan = atomic_load_explicit(&now->plan, memory_order_acquire);
  unsigned own = class_of(r->size);
  unsigned taken = r->align > 16 ? class_of(lm_decision_bytes(r)) : own;
  choice c = { .serve = plan->table.serve[own], .token = lm_site_token_now(r->site, token) };
  bool is_unkeyed = plan->reads & unkeyed;
  if ((r->align > 16 || r->zero) && is_unkeyed) c.serve = (lm_serve){ LM_BIN_ASKS, { .node = 0 } };
  c.id = lm_state_hint(c.token);
  c.is_kept = c.serve.bin != LM_BIN_ASKS && !is_unkeyed && !(c.token & LM_TOKEN_COUNTED);
  if (c.serve.bin == LM_BIN_ASKS) c.serve = serve_from(plan, c.serve.node, r, taken, needs_lock);
  else if (r->align > 16 && c.serve.bin) c.serve = lm_size_table_serve(c.serve.strategy, taken);
  if (c.serve.bin == LM_BIN_HERE)
    c.serve.bin = lm_pool_bin(lm_strategy_here(lm_strategy_at(c.serve.strategy)), taken);
  return c;
}

/* ---- Filling entries ---------------------------------------------------------------------- */

/* Returns the place (lm_decision_key.place) of a complete key. */
static uint64_t place_of(uint64_t key) {
  uint64_t code = key & (((uint64_t)1 << LM_DECISION_CODE_BITS) - 1);
  uint64_t class_ = key >> LM_DECISION_CODE_CLASS & 63;
  if (key & LM_SITE_KEY_BIT) return key;
  return lm_decision_place_of_code(code, class_ * LM_DECISION_STEP);
}

bool lm_decision_is_valid(lm_thread *t, const lm_decision *d) {
  uint32_t site = atomic_load_explicit(&d->site, memory_order_relaxed);
  uint32_t pool = lm_tcache_bin_place(d->bin);
  if (!d->key) return true;
  if (!(d->key & LM_EPOCH_FAST) || d->key & LM_SCOPED) return false;
  if (place_of(d->key) % sizeof t->decision / sizeof *d != (size_t)(d - t->decision)) return false;
  if (d->token & LM_TOKEN_COUNTED || lm_site_token_index(d->token) != site) return false;
  if (site < LM_SITE_FIRST || !lm_state_is_plain(d->state)) return false;
  if (d->left < 0 || d->left > d->start) return false;
  return pool > 0 && pool < LM_POOL_PLACES && lm_tcache_bin_top(lm_tcache_bin_at(t, d->bin));
}

/* Makes the entry of a key keep a decision. Returns whether the request is to be sampled. */
static LM_NOINLINE bool fill(lm_thread *t, lm_decision_key k, const loam_site *site,
                             const choice *c) {
  unsigned units = c->serve.units;
  unsigned class_ = units ? lm_class_of_usable(units * (size_t)16) : c->large;
  /* With LM_EPOCH_FAST a thread that is on the slow path finds the entry once it has left it. */
  uint64_t epoch = atomic_load_explicit(&t->epoch, memory_order_relaxed);
  uint64_t obeyed = atomic_load_explicit(&lm_published_obeyed.word, memory_order_relaxed);
  uint64_t key = k.key + (epoch | LM_EPOCH_FAST) + obeyed;
  lm_decision *d = lm_decision_at(t, k);
  if (!lm_tcache_name_bin(t, c->serve.bin)) return false;
  bool due = lm_decision_is_due(d, key);
  int32_t stock = lm_sample_stock(t, units * (size_t)16);
  lm_stats_reuse(t, d,
                 (lm_stats_subject){ site->index, c->serve.strategy, (uint8_t)class_, stock });
  d->bin = c->serve.bin;
  d->token = c->token;
  d->state = LM_STATE_LIVE + c->id;
  d->key = key;
  lm_assert(lm_decision_is_valid(t, d));
  return due;
}

LM_NOINLINE void *lm_decision_make(lm_thread *t, const lm_request *r) {
  bool is_zeroed = false, due = false;
  lm_assert(t == lm_thread_self && r->site && !lm_thread_is_active());
  if (t->inside || !lm_decision_can_serve(r)) return NULL;
  lm_thread_enter(t);
  choice c = choose(r, NULL);
  size_t bytes = lm_decision_bytes(r);
  void *p = NULL;
  bool is_small = bytes <= LM_SMALL_MAX;
  if (c.serve.bin && is_small) p = lm_tcache_take(t, c.serve.bin, c.token, &c.id);
  else if (c.serve.bin) p = lm_tcache_take_large(t, c.serve.bin, bytes, c.token, &is_zeroed);
  size_t usable = is_small ? c.serve.units * (size_t)16 : lm_align_up(r->size, LM_PAGE);
  if (p && c.is_kept) {
    if (!is_small) c.large = (uint8_t)lm_class_large(bytes);
    due = fill(t, lm_decision_key_of_request(t, r), r->site, &c);
  }
  if (p && c.token & LM_TOKEN_COUNTED) lm_live_count(t, r->site, (int64_t)usable);
  lm_thread_leave(t);
  if (!p) return NULL;
  unsigned counted = is_small ? lm_class_counted_units(c.serve.units) : lm_class_counted(usable);
  lm_stats_note(t, lm_stats_key(r->site->index, c.serve.strategy, counted), 1, usable);
  if (lm_sample_is_on() && (due || lm_sample_wants(t, usable)))
    lm_sample_take(t, r->site, c.serve.strategy, p, usable);
  return r->zero && !is_zeroed ? memset(p, 0, r->size) : p;
}

/* Takes an object from the chosen bin if the bin has one and the object can bear the token now. */
LM_INLINE void *take_ready(lm_thread *t, const choice *c) {
  lm_decision d = { .bin = c->serve.bin, .token = c->token, .state = LM_STATE_LIVE + c->id };
  if (!lm_tcache_bin_top(lm_tcache_bin_at(t, d.bin))) return NULL; /* never used: all zeros */
  return d.token & LM_TOKEN_COUNTED ? lm_tcache_take_counted(t, d.bin, d.token)
                                    : lm_tcache_take_ready(t, &d);
}

/* A choice that may be kept is left to lm_decision_make, which keeps it. */
void *lm_decision_serve_unkept(lm_thread *t, const lm_request *r) {
  if (r->size > LM_SMALL_MAX || !lm_decision_can_serve(r)) return NULL;
  bool needs_lock = !(lm_thread_try_enter(t) & LM_EPOCH_FAST);
  lm_load_fence();
  choice c = { .serve = { LM_BIN_NONE } };
  void *p = NULL;
  size_t usable = 0;
  if (lm_likely(!needs_lock && !t->inside && !lm_published_is_new())) c = choose(r, &needs_lock);
  if (lm_likely(!needs_lock && !c.is_kept && c.serve.bin)) {
    unsigned counted = lm_class_counted_units(c.serve.units);
    uint64_t counts = lm_stats_key(r->site->index, c.serve.strategy, counted);
    lm_tally *tally = lm_stats_entry(t, counts);
    usable = c.serve.units * (size_t)16;
    if (lm_likely(lm_stats_is_of(tally, counts))) p = take_ready(t, &c);
    if (p) lm_stats_count(tally, 1, usable);
    if (p && c.token & LM_TOKEN_COUNTED) lm_live_count(t, r->site, (int64_t)usable);
  }
  lm_thread_leave(t);
  lm_sample_maybe(t, r->site, c.serve.strategy, p, usable);
  return p && r->zero ? memset(p, 0, r->size) : p;
}

bool lm_decision_is_current(lm_thread *t, loam_site *site, size_t size, lm_token token,
                            uint32_t strategy) {
  lm_request r = { .site = site, .size = size, .align = 16 };
  lm_assert(site && lm_decision_can_serve(&r) && !lm_thread_is_active());
  lm_thread_enter(t);
  choice c = choose(&r, NULL);
  lm_thread_leave(t);
  return c.serve.bin && c.token == token && c.serve.strategy == lm_strategy_whole(strategy);
}

/* ---- Large blocks ------------------------------------------------------------------------- */

void *lm_decision_serve_large(lm_thread *t, const lm_request *r) {
  lm_decision_key k = lm_decision_key_of_request(t, r);
  uint64_t key = lm_decision_enter(t, k);
  const lm_decision *d = lm_decision_at(t, k);
  uint32_t strategy = 0;
  void *p = NULL;
  lm_assert(r->size > LM_SMALL_MAX && !r->by_code);
  if (lm_likely(d->key == key)) {
    uint32_t site = atomic_load_explicit(&d->site, memory_order_relaxed);
    strategy = d->strategy;
    lm_load_fence();
    uint64_t counts = lm_stats_key(site, d->strategy, d->class_);
    /* Only a tally that counts another key needs a lock, which may wait for a fork. */
    lm_tally *tally = lm_stats_entry(t, counts);
    bool is_ready = lm_stats_is_of(tally, counts);
    if (lm_likely(is_ready) || lm_lock_try_hold_now()) {
      p = lm_tcache_take_large_ready(t, d, r->size);
      if (p) lm_stats_note(t, counts, 1, lm_align_up(r->size, LM_PAGE));
      if (!is_ready) lm_lock_allow_cancel();
    }
  }
  lm_thread_leave(t);
  lm_sample_maybe(t, r->site, strategy, p, lm_align_up(r->size, LM_PAGE));
  return p;
}

/* ---- Pinned requests ---------------------------------------------------------------------- */

/* Returns the strategy that serves every pinned request of the size class: the strategy that the
 * table names, if it has twins (other strategies do not make pinned memory in pools); or, in a plan
 * of a single leaf, the first member that can serve the request. NULL: it depends on more than the
 * class. */
static const lm_strategy *pinned_strategy(const lm_plan *plan, const lm_request *r) {
  lm_serve serve = plan->table.serve[class_of(r->size)];
  bool is_named = serve.bin != LM_BIN_NONE && serve.bin != LM_BIN_ASKS;
  if (is_named && lm_strategy_at(serve.strategy)->twins) return lm_strategy_at(serve.strategy);
  if (plan->nodes) return NULL;
  for (uint32_t i = 0; i < plan->leaf[0].n; i++) {
    lm_strategy *s = lm_strategy_at(plan->chain[plan->leaf[0].first + i]);
    if (lm_provider_fits(r, s)) return s;
  }
  return lm_provider_default(r);
}

void lm_decision_remember_pinned(lm_thread *t, const lm_request *r, lm_strategy *twin) {
  lm_assert(twin->whole != twin && !lm_thread_is_active());
  if (t->inside || lm_gpu_is_spread()) return;
  lm_thread_enter(t);
  lm_site_plan *now = lm_decision_now(r->site);
  lm_token token = atomic_load_explicit(&now->token, memory_order_relaxed);
  choice c = { .token = lm_site_token_now(r->site, token) };
  const lm_plan *plan = atomic_load_explicit(&now->plan, memory_order_acquire);
  if (!(c.token & LM_TOKEN_COUNTED) && pinned_strategy(plan, r) == twin->whole)
    c.serve = lm_size_table_serve(twin->id, class_of(r->size));
  c.serve.strategy = (uint16_t)twin->whole->id;
  if (c.serve.bin && !c.serve.units) c.large = (uint8_t)lm_class_large(r->size);
  c.id = lm_state_hint(c.token);
  if (c.serve.bin) (void)fill(t, lm_decision_key_of_request(t, r), r->site, &c);
  lm_thread_leave(t);
}
