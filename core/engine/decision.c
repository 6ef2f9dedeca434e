/* decision.c - evaluates plans for the thread's decision cache, and fills its entries. */
#include "engine/decision.h"

#include <string.h>

#include "device/provider.h"
#include "engine/live_bytes.h"
#include "engine/sample.h"
#include "os/numa.h"
#include "os/pressure.h"

/* ---- Evaluating a plan -------------------------------------------------------------------- */

/* Reads a gauge that lm_decision_gauge does not read itself. The free memory of a device is a
 * figure that is kept. The others need a lock or a system call: if the caller cannot wait, they
 * are not read, and *needs_lock is set. */
static LM_NOINLINE double slow_gauge(const lm_inputs *inputs, int input, unsigned arg) {
  if (input == LM_IN_DEVICE_FREE) return (double)lm_gpu_free(arg);
  if (inputs->needs_lock) {
    *inputs->needs_lock = true;
    return 0;
  }
  if (input == LM_IN_NODE) return lm_numa_here();
  if (input == LM_IN_NODE_FREE) return (double)(int64_t)lm_numa_free_slow(arg);
  return input == LM_IN_PRESSURE ? (double)lm_pressure_now_slow() : lm_gpu_current();
}

double lm_decision_gauge(const lm_inputs *inputs, int input, unsigned arg) {
  int64_t value = -1; /* below 0: slow_gauge has to read it */
  lm_assert(input >= LM_IN_NODE && input < LM_INPUTS);
  if (input == LM_IN_NODE) value = lm_numa_here_fast();
  else if (input == LM_IN_LIVE) value = lm_live_of(lm_thread_self, inputs->site);
  else if (input == LM_IN_NODE_FREE && arg < LM_NODES_MAX) value = lm_numa_free_fast(arg);
  else if (input == LM_IN_PRESSURE) value = lm_pressure_now_fast();
  return lm_likely(value >= 0) ? (double)value : slow_gauge(inputs, input, arg);
}

/* The decision of a plan for one request. */
typedef struct choice {
  unsigned step; /* lm_decision_step_any of the bytes that decide the class */
  lm_token token;
  int32_t strategy; /* id; below 0: no thread cache serves the request */
  bool is_keyed;    /* the decision depends on the key of the request alone */
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
LM_INLINE unsigned leaf_from(const lm_plan *plan, int32_t node, const lm_request *r,
                             bool *needs_lock) {
  int32_t at = pass_sizes(plan, node, r->size);
  if (at < 0) return (unsigned)~at;
  lm_inputs inputs;
  lm_decision_inputs(r, needs_lock, &inputs);
  return lm_plan_decide_from(plan, (uint32_t)at, &inputs);
}

/* Decides a request. The plan's table has the decision for each class of sizes, for requests that
 * have align <= 16 and need no zeroed memory. The tree is evaluated where the table refers to it,
 * and for other requests if the plan reads what sets them apart. If needs_lock is not NULL, no lock
 * is taken; where a gauge needs one, *needs_lock is set and the choice is of no use. */
LM_INLINE choice choose(const lm_request *r, bool *needs_lock) {
  lm_site_plan *now = lm_decision_live_plan(r->site);
  lm_token token = atomic_load_explicit(&now->token, memory_order_relaxed);
  const lm_plan *plan = atomic_load_explicit(&now->plan, memory_order_acquire);
  unsigned step = lm_decision_step_any(r->size);
  int32_t entry = plan->table.entry[step / LM_DECISION_STEP];
  bool is_aligned = r->align > 16;
  uint32_t apart = (uint32_t)r->zero << LM_IN_ZERO | (uint32_t)is_aligned << LM_IN_ALIGN;
  if (plan->reads & apart) entry = ~0; /* the whole tree */
  if (lm_unlikely(is_aligned)) step = lm_decision_step_any(lm_decision_bytes(r));
  choice c = { .step = step, .token = lm_site_token_now(r->site, token), .strategy = entry - 1 };
  c.is_keyed = entry >= 0 && !is_aligned && !(c.token & LM_TOKEN_COUNTED) &&
               !(plan->reads & 1u << LM_IN_ZERO);
  if (entry < 0) c.strategy = lm_plan_first_host(plan, leaf_from(plan, ~entry, r, needs_lock));
  return c;
}

/* Returns the bin that serves requests with this choice; 0: there is none. */
static uint32_t bin_for(const choice *c) {
  if (c->strategy < 0) return 0;
  lm_strategy *s = lm_strategy_here(lm_strategy_at((uint32_t)c->strategy));
  return lm_pool_bin(s, c->step / LM_DECISION_STEP);
}

/* Returns what the strategy adds to the place of an entry with LM_DECISION_BY_PLAN. 37 gives
 * strategies different places, as any odd number does. */
LM_INLINE uint64_t place_by_strategy(uint32_t strategy) {
  return (uint64_t)strategy * 37 * LM_DECISION_STEP;
}

/* Returns the key of the entry that serves a request with this choice. */
LM_INLINE lm_decision_key key_for(const lm_thread *t, const lm_request *r, const choice *c) {
  if (c->is_keyed) return lm_decision_key_of_request(t, r);
  uint64_t key = r->site->key + c->step + LM_DECISION_BY_PLAN;
  return (lm_decision_key){ key, key + place_by_strategy((uint32_t)c->strategy) };
}

/* ---- Filling entries ---------------------------------------------------------------------- */

/* Returns whether an entry is one of LM_DECISION_BY_PLAN. */
static bool is_by_plan(const lm_decision *d) {
  return d->key & LM_SITE_KEY_BIT && d->key & LM_DECISION_BY_PLAN;
}

/* Returns the place (lm_decision_key.place) of an entry by its key. */
static uint64_t place_of(const lm_decision *d) {
  uint64_t code = d->key & LM_DECISION_CODE;
  uint64_t class_ = d->key >> LM_DECISION_CODE_CLASS & 63;
  if (is_by_plan(d)) return d->key + place_by_strategy(d->strategy);
  if (d->key & LM_SITE_KEY_BIT) return d->key;
  return lm_decision_place_of_code(code, class_ * LM_DECISION_STEP);
}

bool lm_decision_is_valid(lm_thread *t, const lm_decision *d) {
  uint32_t site = atomic_load_explicit(&d->site, memory_order_relaxed);
  uint32_t pool = lm_tcache_bin_place(d->bin);
  if (!d->key) return true;
  if (!(d->key & LM_EPOCH_FAST) || d->key & LM_SCOPED) return false;
  if (place_of(d) % sizeof t->decision / sizeof *d != (size_t)(d - t->decision)) return false;
  if (d->token & LM_TOKEN_COUNTED && !is_by_plan(d)) return false;
  if (site < LM_SITE_FIRST || lm_site_token_index(d->token) != site) return false;
  if (!lm_state_is_plain(d->state) || d->left < 0 || d->left > d->start) return false;
  return pool > 0 && pool < LM_POOL_PLACES && lm_tcache_bin_top(lm_tcache_bin_at(t, d->bin));
}

/* Returns an entry for objects of a bin, without its key and its counts. `bytes` decides the
 * class. */
static lm_decision made_of(uint32_t bin, lm_token token, uint32_t strategy, size_t bytes) {
  unsigned class_ = bytes <= LM_SMALL_MAX ? lm_tcache_bin_class(bin) : lm_class_large(bytes);
  return (lm_decision){ .bin = bin,
                        .token = token,
                        .strategy = (uint16_t)strategy,
                        .state = LM_STATE_LIVE + lm_state_hint(token),
                        .class_ = (uint8_t)class_ };
}

/* What an entry has drawn for the next request (lm_sample_stock). */
enum draw {
  DRAW_NONE,   /* the entry did not hold, or counts no blocks */
  DRAW_SAMPLE, /* the request is to be sampled */
  DRAW_NO_SAMPLE,
};

static enum draw draw_of(const lm_decision *d, uint64_t key, const lm_decision *made) {
  if (d->key != key || d->strategy != made->strategy || made->class_ >= LM_CLASSES)
    return DRAW_NONE;
  if (lm_decision_is_due(d, key)) return DRAW_SAMPLE;
  return d->left ? DRAW_NO_SAMPLE : DRAW_NONE;
}

/* Makes the entry of a key keep a decision. Returns what the entry had drawn for the request. */
static LM_NOINLINE enum draw fill(lm_thread *t, lm_decision_key k, const loam_site *site,
                                  const lm_decision *made) {
  /* With LM_EPOCH_FAST a thread that is on the slow path finds the entry once it has left it. */
  uint64_t epoch = atomic_load_explicit(&t->epoch, memory_order_relaxed);
  uint64_t obeyed = atomic_load_explicit(&lm_published_obeyed.word, memory_order_relaxed);
  uint64_t key = k.key + (epoch | LM_EPOCH_FAST) + obeyed;
  lm_decision *d = lm_decision_at(t, k);
  if (!lm_tcache_name_bin(t, made->bin)) return DRAW_NONE;
  enum draw draw = draw_of(d, key, made);
  size_t counted = made->class_ < LM_CLASSES ? lm_class_size(made->class_) : 0;
  int32_t stock = lm_sample_stock(t, counted);
  lm_stats_reuse(t, d, (lm_stats_subject){ site->index, made->strategy, made->class_, stock });
  d->bin = made->bin;
  d->token = made->token;
  d->state = made->state;
  d->key = key;
  lm_assert(lm_decision_is_valid(t, d));
  return draw;
}

/* ---- Large blocks ------------------------------------------------------------------------- */

/* Takes a large block from the bin of an entry for the request, and counts it; `is_counted` says
 * whether the entry's token is counted. Returns NULL, and has done nothing, if the bin is empty, or
 * if a lock is needed that may wait for a fork. */
LM_INLINE void *take_large(lm_thread *t, const lm_request *r, const lm_decision *d,
                           bool is_counted) {
  uint64_t counts = lm_stats_key(r->site->index, d->strategy, d->class_);
  /* Only a tally that counts another key needs the lock. */
  bool is_ready = lm_stats_is_of(lm_stats_entry(t, counts), counts);
  if (lm_unlikely(!is_ready) && !lm_lock_try_hold_now()) return NULL;
  void *p = lm_tcache_take_large_ready(t, d, r->size, is_counted);
  size_t usable = lm_align_up(r->size, LM_PAGE);
  if (p) lm_stats_note(t, counts, 1, usable);
  if (p && is_counted) lm_live_count(t, r->site, (int64_t)usable);
  if (!is_ready) lm_lock_allow_cancel();
  return p;
}

void *lm_decision_serve_large(lm_thread *t, const lm_request *r) {
  lm_decision_key k = lm_decision_key_of_request(t, r);
  uint64_t key = lm_decision_enter(t, k);
  const lm_decision *d = lm_decision_at(t, k);
  void *p = NULL;
  lm_assert(r->size > LM_SMALL_MAX && !r->by_code);
  lm_load_fence();
  if (lm_likely(d->key == key)) p = take_large(t, r, d, false);
  lm_thread_leave(t);
  lm_sample_maybe(t, r->site, d->strategy, p, lm_align_up(r->size, LM_PAGE));
  return p;
}

/* ---- Making ------------------------------------------------------------------------------- */

LM_NOINLINE void *lm_decision_make(lm_thread *t, const lm_request *r) {
  bool is_zeroed = false;
  enum draw draw = DRAW_NONE;
  lm_assert(t == lm_thread_self && r->site && !lm_thread_is_active());
  if (t->inside || !lm_decision_can_serve(r)) return NULL;
  lm_thread_enter(t);
  choice c = choose(r, NULL);
  lm_decision made = { .bin = bin_for(&c) };
  size_t bytes = lm_decision_bytes(r), usable = lm_align_up(r->size, LM_PAGE);
  bool is_small = bytes <= LM_SMALL_MAX;
  void *p = NULL;
  if (made.bin) {
    made = made_of(made.bin, c.token, (uint32_t)c.strategy, bytes);
    uint8_t id = made.state % LM_STATE_IDS; /* where to look for the token; then where it is */
    p = is_small ? lm_tcache_take(t, made.bin, c.token, &id)
                 : lm_tcache_take_large(t, made.bin, bytes, c.token, &is_zeroed);
    made.state = LM_STATE_LIVE + id;
    if (is_small) usable = lm_class_size(made.class_);
  }
  if (p) draw = fill(t, key_for(t, r, &c), r->site, &made);
  if (p && c.token & LM_TOKEN_COUNTED) lm_live_count(t, r->site, (int64_t)usable);
  lm_thread_leave(t);
  if (!p) return NULL;
  unsigned counted = is_small ? lm_class_counted_as(made.class_) : lm_class_counted(usable);
  lm_stats_note(t, lm_stats_key(r->site->index, made.strategy, counted), 1, usable);
  bool has_drawn = draw != DRAW_NONE;
  if (lm_sample_is_on() && (has_drawn ? draw == DRAW_SAMPLE : lm_sample_wants(t, usable)))
    lm_sample_take(t, r->site, made.strategy, p, usable);
  return r->zero && !is_zeroed ? memset(p, 0, r->size) : p;
}

/* Takes an object by the entry for this choice. The choice is not keyed. Returns NULL, and has
 * done nothing, if the entry does not hold or its bin has no object that can bear the token now. */
LM_INLINE void *serve_chosen(lm_thread *t, const lm_request *r, uint64_t epoch, const choice *c) {
  lm_decision_key k = key_for(t, r, c);
  lm_decision *d = lm_decision_at(t, k);
  uint64_t key = k.key + epoch + lm_load(uint64_t, &lm_published.now.word);
  bool is_counted = c->token & LM_TOKEN_COUNTED;
  void *p = NULL;
  /* While a policy goes live, or a tag begins to be counted, the entry may have the old token and
   * the choice the new one. */
  if (lm_unlikely(d->key != key || d->strategy != c->strategy || d->token != c->token)) return NULL;
  if (lm_unlikely(r->size > LM_SMALL_MAX)) return take_large(t, r, d, is_counted);
  if (lm_likely(!lm_count_down(&d->left)))
    p = is_counted ? lm_tcache_take_counted(t, d->bin, d->token) : lm_tcache_take_ready(t, d);
  if (lm_unlikely(!p)) lm_add_relaxed(&d->left, 1);
  else if (is_counted) lm_live_count(t, r->site, (int64_t)lm_class_size(d->class_));
  return p;
}

/* A keyed choice is left to lm_decision_make, which keeps it under the plain key. */
LM_HOT void *lm_decision_serve_by_plan(lm_thread *t, const lm_request *r) {
  if (!lm_decision_can_serve(r)) return NULL;
  uint64_t epoch = lm_thread_try_enter(t);
  bool needs_lock = false;
  choice c = { .strategy = 0 };
  void *p = NULL;
  lm_load_fence();
  if (lm_likely(epoch & LM_EPOCH_FAST && !t->inside)) {
    c = choose(r, &needs_lock);
    if (lm_likely(!needs_lock && !c.is_keyed)) p = serve_chosen(t, r, epoch, &c);
  }
  lm_thread_leave(t);
  if (lm_unlikely(r->size > LM_SMALL_MAX))
    lm_sample_maybe(t, r->site, (uint32_t)c.strategy, p, lm_align_up(r->size, LM_PAGE));
  return p && r->zero ? memset(p, 0, r->size) : p;
}

bool lm_decision_is_current(lm_thread *t, loam_site *site, size_t size, lm_token token,
                            uint32_t strategy) {
  lm_request r = { .site = site, .size = size, .align = 16 };
  lm_assert(site && lm_decision_can_serve(&r) && !lm_thread_is_active());
  lm_thread_enter(t);
  choice c = choose(&r, NULL);
  lm_thread_leave(t);
  return c.token == token && c.strategy == (int32_t)lm_strategy_whole(strategy);
}

/* ---- Pinned requests ---------------------------------------------------------------------- */

/* Returns the strategy that serves every pinned request of the size class: the strategy that the
 * table names, if it has twins (other strategies do not make pinned memory in pools); or, in a plan
 * of a single leaf, the first member that can serve the request. NULL: it depends on more than the
 * class. */
static const lm_strategy *pinned_strategy(const lm_plan *plan, const lm_request *r) {
  int32_t entry = plan->table.entry[class_of(r->size)];
  lm_strategy *named = entry > 0 ? lm_strategy_at((uint32_t)entry - 1) : NULL;
  if (named && named->twins) return named;
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
  lm_site_plan *now = lm_decision_live_plan(r->site);
  lm_token token = atomic_load_explicit(&now->token, memory_order_relaxed);
  const lm_plan *plan = atomic_load_explicit(&now->plan, memory_order_acquire);
  token = lm_site_token_now(r->site, token);
  uint32_t bin = 0;
  if (!(token & LM_TOKEN_COUNTED) && pinned_strategy(plan, r) == twin->whole)
    bin = lm_pool_bin(twin, class_of(r->size));
  if (bin) {
    lm_decision made = made_of(bin, token, twin->whole->id, r->size);
    (void)fill(t, lm_decision_key_of_request(t, r), r->site, &made);
  }
  lm_thread_leave(t);
}
