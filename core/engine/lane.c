/* lane.c - what a thread remembers of decisions: when lanes open, and those that are not found at
 * once. */
#include "engine/lane.h"

#include <string.h>

#include "gpu/gpu.h"

/* ---- Gauges ------------------------------------------------------------------------------- */

LM_INLINE int64_t read_number(lm_thread *t, const loam_site *site, int input, unsigned arg) {
  if (input == LM_IN_NODE) return lm_numa_here();
  if (input == LM_IN_NODE_FREE) return (int64_t)lm_numa_free(arg);
  if (input == LM_IN_LIVE) return lm_live_of(t, site);
  return input == LM_IN_DEVICE ? lm_gpu_current() : (int64_t)lm_gpu_free(arg);
}

double lm_lane_gauge(const lm_request *request, int input, unsigned arg) {
  return (double)read_number(lm_thread_self, request->site, input, arg);
}

/* What a gate's number, or sum, is by way of numbers that were read before. */
typedef struct reading {
  lm_thread *t;
  const loam_site *site;
  size_t size;
  uint32_t known;
  int64_t number[LM_GATE_NUMBERS];
} reading;

static int64_t recall(reading *r, unsigned number, int input, unsigned arg) {
  if (input == LM_IN_SIZE) return (int64_t)r->size;
  if (!(r->known >> number & 1)) r->number[number] = read_number(r->t, r->site, input, arg);
  r->known |= 1u << number;
  return r->number[number];
}

static int64_t recall_sum(reading *r, const lm_gate *gate) {
  int64_t sum = gate->sizes * (int64_t)r->size;
  for (unsigned i = 0; i < gate->terms; i++) {
    const lm_term *term = &gate->term[i];
    sum += term->factor * recall(r, term->number, term->input, term->arg);
  }
  return sum;
}

/* Where gates lead a request with align <= 16 and zero = 0; or where none is. Any gates. */
static LM_NOINLINE int64_t pass_far(lm_thread *t, const loam_site *site, const lm_gate *gate,
                                    size_t size) {
  reading r;
  r.t = t;
  r.site = site;
  r.size = size;
  r.known = 0;
  while (gate->input != LM_GATE_SHUT) {
    int64_t number = gate->input == LM_GATE_SUM ? recall_sum(&r, gate)
                                                : recall(&r, gate->number, gate->input, gate->arg);
    int64_t leads = lm_gate_lead_past(&gate, (uint64_t)number);
    if (leads < 0) return leads;
  }
  return lm_gate_to(LM_STRATEGIES_MAX);
}

/* The same; most need nothing remembered, nor a call. */
static LM_JUMPED int64_t pass(lm_thread *t, uint32_t site, const lm_gate *gate, size_t size) {
  int64_t leads = lm_lane_pass(t, site, gate, size);
  return lm_likely(leads < 0) ? leads : pass_far(t, lm_site_of(site), gate, size);
}

/* ---- Deciding, and opening lanes ---------------------------------------------------------- */

/* What is taken, and what the lane of its class needs to know. */
typedef struct taking {
  lm_serve serve;
  lm_token token;
  size_t usable;
  uint8_t hint;
  bool zeroed;
} taking;

static unsigned class_of(size_t size) {
  return size <= LM_SMALL_MAX ? lm_class_of(size) : lm_class_large(size);
}

/* By the tree, from a node on. */
static LM_NOINLINE int decide(const lm_plan *plan, uint32_t node, loam_site *site, size_t size) {
  lm_request request = { .size = size, .align = 16, .gauge = lm_lane_gauge, .site = site };
  return lm_plan_first(plan, lm_plan_decide_from(plan, node, &request));
}

int lm_lane_ask(lm_thread *t, const lm_plan *plan, uint32_t node, loam_site *site, size_t size) {
  uint32_t to = LM_STRATEGIES_MAX;
  if (plan->gate) to = lm_gate_strategy(pass(t, site->index, &plan->gate[node], size));
  return to < LM_STRATEGIES_MAX ? (int)to : decide(plan, node, site, size);
}

/* While active, after a decision of the same section: a swap since then makes the thread forget. */
static void open_lane(lm_thread *t, lm_lane *lane, uint64_t key, const loam_site *site,
                      const taking *k) {
  lm_stats_reuse(t, lane, site->index, &k->serve);
  lm_tcache_name_bin(t, k->serve.bin);
  lane->bin = k->serve.bin;
  lane->token = k->token;
  lane->key = key;
}

static void open_gate(lm_thread *t, lm_lane *lane, uint64_t key, const loam_site *site,
                      const lm_gate *gate) {
  lm_stats_reuse(t, lane, site->index, &(lm_serve){ 0 });
  lane->gate = gate;
  lane->key = key;
}

/* What a key has more if the token is counted. */
static uint64_t counted_part(uint64_t key, lm_token token) {
  uint64_t part = key & LM_LANE_OF_SITE ? LM_LANE_COUNTED : LM_LANE_CODE_COUNTED;
  return token & LM_TOKEN_COUNTED ? part : 0;
}

/* Whether all sizes of a class are decided alike. */
static bool is_even(const lm_plan *plan, unsigned class_) {
  return class_ >= LM_TABLE_CLASSES || plan->table.even >> class_ & 1;
}

/* The lane for requests that are decided as this one, and its key; NULL: none is. */
static lm_lane *lane_for(lm_thread *t, const lm_plan *plan, const loam_site *site, size_t size,
                         uintptr_t code, uint64_t *key) {
  uint64_t epoch = atomic_load(&t->epoch) | LM_EPOCH_FAST, unit = (size + 15) / 16;
  if (plan->reads & 1u << LM_IN_ZERO) return NULL;
  unsigned class_ = class_of(size);
  bool even = is_even(plan, class_);
  if (even && code && class_ < LM_CLASSES) {
    *key = lm_engine_code_part(class_ * LM_LANE_STEP) + code + epoch;
    return lm_engine_code_lane(t, code, class_ * LM_LANE_STEP);
  }
  if (even) {
    *key = site->lane + class_ * LM_LANE_STEP + epoch;
    return lm_engine_lane(t, *key);
  }
  if (plan->table.entry[plan->table.at[unit]].cut != UINT32_MAX) {
    *key = LM_LANE_BYTES + size + epoch;
    return lm_engine_byte_lane(t, site->lane, size);
  }
  *key = LM_LANE_UNITS + unit + epoch;
  return lm_engine_unit_lane(t, site->lane, size);
}

static bool is_lane_of(const lm_lane *lane, uint64_t key, uint32_t site) {
  return lane && lane->key == key &&
         atomic_load_explicit(&lane->site, memory_order_relaxed) == site;
}

static void *take(lm_thread *t, size_t size, taking *k) {
  if (size > LM_SMALL_MAX) return lm_tcache_take_large(t, k->serve.bin, size, k->token, &k->zeroed);
  return lm_tcache_take(t, k->serve.bin, k->token, &k->hint);
}

/* For what a strategy serves by node: the bin of the thread's share. A thread that came from
 * another node has the lane of its share there, until the bin of that is empty; then it is here.
 * NULL where the strategy has no bins just now. */
static LM_NOINLINE void *take_here(lm_thread *t, size_t size, taking *k, lm_lane *lane) {
  lm_strategy *s = lm_strategy_here(lm_strategy_at(k->serve.strategy));
  k->serve.bin = lm_pool_bin(s, class_of(size));
  if (!k->serve.bin) return NULL;
  if (lane) lm_tcache_name_bin(t, lane->bin = k->serve.bin);
  return take(t, size, k);
}

/* The site's plan, and the token that goes with it. While active. */
static const lm_plan *plan_of(loam_site *site, taking *k) {
  const lm_decision *d = lm_engine_decision(site);
  k->token = lm_site_token_now(site, atomic_load_explicit(&d->token, memory_order_relaxed));
  return atomic_load_explicit(&d->plan, memory_order_acquire);
}

/* Who serves what is asked to be pinned, if the plan decides nothing, or one of pinned memory for
 * all of the class: then nobody's gauge has a say. NULL: that is not so. */
static const lm_strategy *pinned_of(const lm_plan *plan, size_t size, const lm_wish *wish) {
  lm_serve serve = lm_lane_look_up(plan, size, false);
  bool even = plan->table.even >> lm_class_of(size) & 1 && serve.bin > LM_BIN_ASKS;
  if (even && lm_strategy_at(serve.strategy)->twins) return lm_strategy_at(serve.strategy);
  if (plan->nodes) return NULL;
  for (uint32_t i = 0; i < plan->leaf[0].n; i++) {
    lm_strategy *s = lm_strategy_at(plan->chain[plan->leaf[0].first + i]);
    if (lm_provider_fits(wish, s)) return s;
  }
  return lm_provider_default(wish);
}

/* Where an object's token is, as far as its mark tells. */
static uint8_t id_of(const void *p, lm_token token) {
  lm_state mark = atomic_load_explicit(lm_pool_state_of(p), memory_order_relaxed);
  bool says = lm_state_is_plain(mark) && mark != LM_STATE_LIVE + LM_ID_WIDE;
  if (says && mark <= LM_STATE_COMMON_LAST)
    says = lm_load(lm_token, lm_state_plain_token(NULL, mark)) == token;
  return says ? mark - LM_STATE_LIVE : lm_state_hint(token);
}

void lm_lane_open_pinned(lm_thread *t, loam_site *site, const void *p, size_t size, unsigned flags,
                         lm_strategy *twin) {
  lm_wish wish = { .size = size, .align = 16, .want = LM_WANT_PINNED, .flags = flags };
  taking k = { .zeroed = false };
  if (t->inside || lm_gpu_is_spread()) return;
  lm_thread_enter(t);
  const lm_plan *plan = plan_of(site, &k);
  if (!(k.token & LM_TOKEN_COUNTED) && pinned_of(plan, size, &wish) == twin->whole) {
    k.serve = lm_table_serve(twin, lm_class_of(size));
    k.serve.strategy = (uint16_t)twin->whole->id;
    uint64_t epoch = atomic_load(&t->epoch) | LM_EPOCH_FAST;
    uint64_t key = lm_engine_pinned_key(site->lane + lm_class_step(size) + epoch, flags);
    lm_lane *lane = lm_engine_lane(t, key);
    if (k.serve.bin && !is_lane_of(lane, key, site->index)) open_lane(t, lane, key, site, &k);
    if (k.serve.bin) lane->mark = LM_STATE_LIVE + id_of(p, k.token);
  }
  lm_thread_leave(t);
}

/* From the pool; and the lane, if there is to be one, is open for the next. */
LM_INLINE void *take_new(lm_thread *t, loam_site *site, size_t size, taking *k, lm_lane *lane,
                         uint64_t key) {
  void *p = NULL;
  bool is_open = is_lane_of(lane, key, site->index);
  k->hint = is_open ? lane->mark % LM_STATE_IDS : lm_state_hint(k->token);
  if (lm_likely(k->serve.bin > LM_BIN_HERE)) p = take(t, size, k);
  else if (k->serve.bin) p = take_here(t, size, k, is_open ? lane : NULL);
  if (!p) return NULL;
  if (lane && !is_open) open_lane(t, lane, key, site, k);
  if (lane) lane->mark = LM_STATE_LIVE + k->hint;
  k->usable = k->serve.units ? k->serve.units * (size_t)16 : lm_align_up(size, LM_PAGE);
  if (k->token & LM_TOKEN_COUNTED) lm_live_count(t, site, (int64_t)k->usable);
  return p;
}

/* Whose requests it is for. */
LM_INLINE uint32_t site_of(const lm_lane *lane) {
  return atomic_load_explicit(&lane->site, memory_order_relaxed);
}

static void *take_counted(lm_thread *t, const lm_lane *lane) {
  size_t size;
  void *p = lm_pool_take_slow(t, lane, &size);
  if (!p) p = lm_pool_take_slow_wide(t, lane, &size);
  if (p) lm_live_count_at(t, site_of(lane), (int64_t)size);
  return p;
}

/* From an empty bin, or a span that does not know the token yet. Not where the thread may have come
 * from another node: take_here. */
static void *take_filled(lm_thread *t, lm_lane *lane) {
  if (t->dying || lm_strategy_at(lane->strategy)->shares) return NULL;
  uint8_t hint = lane->mark % LM_STATE_IDS;
  void *p = lm_tcache_take(t, lane->bin, lane->token, &hint);
  lane->mark = LM_STATE_LIVE + hint;
  return p;
}

/* From a lane that is the request's. */
static LM_NOINLINE void *take_by(lm_thread *t, lm_lane *lane) {
  bool counted = lane->token & LM_TOKEN_COUNTED;
  void *p = counted ? take_counted(t, lane) : lm_pool_take_wide(t, lane);
  if (!p && !counted) p = take_filled(t, lane);
  if (lm_likely(p != NULL)) lm_add_relaxed(&lane->blocks, 1);
  return p;
}

LM_INLINE void *take_large(lm_thread *t, const lm_lane *lane, size_t size) {
  size_t usable = lm_align_up(size, LM_PAGE);
  bool counted = lane->token & LM_TOKEN_COUNTED;
  void *p = lm_pool_take_large_as(t, lane, size, lm_state_of_large(lane->token));
  if (!p) return NULL;
  if (counted) lm_live_count_at(t, site_of(lane), (int64_t)usable);
  lm_stats_note(t, site_of(lane), lane->strategy, 1, usable);
  return p;
}

/* Where the table has gauges asked, from the lane for objects of a class that they lead to. If that
 * has nothing, *lane is where it belongs, and k->serve what it is for. */
static LM_NOINLINE void *take_gated(lm_thread *t, const lm_plan *plan, loam_site *site, size_t size,
                                    unsigned class_, taking *k, lm_lane **lane, uint64_t *key) {
  uint32_t node = k->serve.node;
  if (plan->gate && *lane && !is_lane_of(*lane, *key + LM_LANE_ASKS, site->index))
    open_gate(t, *lane, *key + LM_LANE_ASKS, site, &plan->gate[node]);
  int strategy = lm_lane_ask(t, plan, node, site, size);
  *lane = NULL;
  k->serve = (lm_serve){ 0 };
  if (strategy < 0) return NULL;
  *key = site->lane + class_ * LM_LANE_STEP + (atomic_load(&t->epoch) | LM_EPOCH_FAST);
  *key = lm_engine_gated_key(*key, lm_gate_to((uint32_t)strategy)) +
         counted_part(LM_LANE_OF_SITE, k->token);
  *lane = lm_engine_lane(t, *key);
  void *p = NULL;
  if ((*lane)->key == *key)
    p = class_ < LM_CLASSES ? take_by(t, *lane) : take_large(t, *lane, size);
  if (!p) k->serve = lm_table_serve(lm_strategy_at((uint32_t)strategy), class_);
  return p;
}

/* As lm_engine_take, but asks the table, fills an empty bin and finds a place in the palette. */
LM_NOINLINE void *lm_engine_decided(lm_thread *t, loam_site *site, size_t size, bool zero,
                                    uintptr_t code) {
  void *p = NULL;
  uint64_t key = 0;
  taking k = { .zeroed = false };
  if (size > LM_LARGE_MAX || t->inside) return NULL;
  lm_thread_enter(t);
  const lm_plan *plan = plan_of(site, &k);
  k.serve = lm_lane_look_up(plan, size, zero);
  lm_lane *lane = lane_for(t, plan, site, size, code, &key);
  if (lm_unlikely(k.serve.bin == LM_BIN_ASKS))
    p = take_gated(t, plan, site, size, class_of(size), &k, &lane, &key);
  else if (lm_unlikely(k.token & LM_TOKEN_COUNTED)) key += counted_part(key, k.token);
  bool is_new = !p;
  if (is_new) p = take_new(t, site, size, &k, lane, key);
  lm_thread_leave(t);
  if (!p) return NULL;
  if (is_new) lm_stats_note(t, site->index, k.serve.strategy, 1, k.usable);
  return zero && !k.zeroed ? memset(p, 0, size) : p;
}

/* The least class for a multiple of an alignment has objects at multiples of it. So this is a plain
 * request for that multiple, decided as one for the size is, where the plan asks for no alignment.
 */
void *lm_engine_aligned(lm_thread *t, loam_site *site, size_t size, size_t align) {
  void *p = NULL;
  lm_lane *lane = NULL;
  taking k = { .zeroed = false };
  size_t whole = lm_align_up(size, align);
  if (!lm_engine_can_align(align, whole) || t->inside) return NULL;
  unsigned class_ = lm_class_of(whole);
  lm_thread_enter(t);
  const lm_plan *plan = plan_of(site, &k);
  uint64_t epoch = atomic_load(&t->epoch) | LM_EPOCH_FAST;
  uint64_t key = site->lane + lm_class_step(whole) + lm_engine_aligned_part(size) + epoch;
  if (!(plan->reads & 1u << LM_IN_ALIGN)) k.serve = lm_lane_look_up(plan, size, false);
  if (is_even(plan, lm_class_of(size))) lane = lm_engine_lane(t, key);
  if (k.serve.bin == LM_BIN_ASKS) {
    p = take_gated(t, plan, site, size, class_, &k, &lane, &key);
  } else if (k.serve.bin) {
    k.serve = lm_table_serve(lm_strategy_at(k.serve.strategy), class_);
    key += counted_part(key, k.token);
  }
  bool is_new = !p;
  if (is_new) p = take_new(t, site, whole, &k, lane, key);
  lm_thread_leave(t);
  if (p && is_new) lm_stats_note(t, site->index, k.serve.strategy, 1, k.usable);
  return p;
}

/* ---- Lanes that are not found at once ----------------------------------------------------- */

LM_INLINE void *taken(lm_thread *t, lm_lane *lane, void *p) {
  lm_add_relaxed(&lane->blocks, 1);
  lm_thread_leave(t);
  return p;
}

LM_INLINE void *else_slow(uint32_t site, size_t size, lm_thread *t, lm_engine_slow *slow) {
  lm_thread_leave(t);
  return slow(lm_site_of(site), size, 0);
}

/* The open lane that has a key of where gates lead, whether its token is counted or not. */
static lm_lane *led_either(lm_thread *t, uint64_t key) {
  lm_lane *lane = lm_lane_led(t, key & ~LM_LANE_COUNTED);
  return lane ? lane : lm_lane_led(t, key | LM_LANE_COUNTED);
}

/* What a lane's key has more than one; of another site's lane, what none has. */
static uint64_t apart_of(const lm_lane *lane, uint64_t key, uint32_t site) {
  return site_of(lane) == site ? lane->key - key : LM_LANE_UNITS;
}

/* Whether one that is so far apart is the request's. */
static bool is_its(uint64_t apart) {
  return !apart || apart == LM_LANE_COUNTED || apart == LM_LANE_ASKS;
}

lm_lane *lm_lane_by(lm_thread *t, uint32_t site, size_t size, uint64_t key) {
  uint64_t epoch = key & ~(LM_EPOCH_FIRST - 1);
  lm_lane *lane = lm_engine_lane(t, key);
  uint64_t apart = apart_of(lane, key, site);
  if (!is_its(apart)) {
    lane = lm_engine_unit_lane(t, LM_LANE_OF(site), size);
    apart = apart_of(lane, LM_LANE_UNITS + (size + 15) / 16 + epoch, site);
  }
  if (!is_its(apart)) {
    lane = lm_engine_byte_lane(t, LM_LANE_OF(site), size);
    apart = apart_of(lane, LM_LANE_BYTES + size + epoch, site);
  }
  if (apart == LM_LANE_ASKS)
    return led_either(t, lm_engine_gated_key(key, pass(t, site, lane->gate, size)));
  return !apart || apart == LM_LANE_COUNTED ? lane : NULL;
}

/* What follows needs no call. `key` is of the site and the class. */

/* Where gates led, whatever the token of the lane there and the span of its next object are. */
static LM_JUMPED void *take_led(uint32_t site, size_t size, lm_thread *t, uint64_t key,
                                lm_engine_slow *slow) {
  lm_lane *lane = led_either(t, key);
  void *p = lane ? take_by(t, lane) : NULL;
  if (!p) return else_slow(site, size, t, slow);
  lm_thread_leave(t);
  return p;
}

/* By any gates. */
static LM_JUMPED void *take_far(uint32_t site, size_t size, lm_thread *t, const lm_gate *gate,
                                uint64_t key, lm_engine_slow *slow) {
  key = lm_engine_gated_key(key, pass(t, site, gate, size));
  return take_led(site, size, t, key, slow);
}

/* From a lane that is the request's. */
static LM_JUMPED void *take_open(uint32_t site, size_t size, lm_thread *t, lm_lane *lane,
                                 lm_engine_slow *slow) {
  void *p = take_by(t, lane);
  if (!p) return else_slow(site, size, t, slow);
  lm_thread_leave(t);
  return p;
}

/* The same, its token being counted, in the place of the thread's latest. */
LM_INLINE void *take_near(uint32_t site, size_t size, lm_thread *t, lm_lane *lane,
                          lm_engine_slow *slow) {
  size_t usable;
  void *p = lm_pool_take_slow(t, lane, &usable);
  if (lm_unlikely(!p)) return take_open(site, size, t, lane, slow);
  lm_live_add(t->near, (int64_t)usable);
  return taken(t, lane, p);
}

/* The same, whatever its token. */
LM_INLINE void *take_either(uint32_t site, size_t size, lm_thread *t, lm_lane *lane,
                            lm_engine_slow *slow) {
  if (lane->token & LM_TOKEN_COUNTED)
    return lm_live_is_near(t, site) ? take_near(site, size, t, lane, slow)
                                    : take_open(site, size, t, lane, slow);
  void *p = lm_pool_take_ready(t, lane);
  return lm_likely(p != NULL) ? taken(t, lane, p) : take_open(site, size, t, lane, slow);
}

/* By what comes after the first gate. */
static LM_JUMPED void *take_further(uint32_t site, size_t size, lm_thread *t, const lm_gate *gate,
                                    uint64_t key, lm_engine_slow *slow) {
  int64_t leads = lm_lane_pass(t, site, gate, size);
  if (lm_unlikely(leads >= 0)) return take_far(site, size, t, gate, key, slow);
  key = lm_engine_gated_key(key, leads);
  lm_lane *lane = lm_lane_led(t, key);
  if (lm_unlikely(!lane)) return take_led(site, size, t, key, slow);
  return take_either(site, size, t, lane, slow);
}

/* By a lane whose gate asks what lives, as the thread's latest request did. */
static LM_JUMPED void *take_live(uint32_t site, size_t size, lm_thread *t, lm_lane *asks,
                                 uint64_t key, lm_engine_slow *slow) {
  const lm_gate *gate = asks->gate;
  int64_t live = lm_lane_number(t, site, LM_IN_LIVE, 0);
  if (lm_unlikely(live < 0)) return take_far(site, size, t, gate, key, slow);
  int64_t leads = lm_gate_leads(gate, (uint64_t)live);
  if (lm_unlikely(leads >= 0)) return take_further(site, size, t, gate + leads, key, slow);
  lm_lane *lane = lm_lane_led_again(t, asks, lm_engine_gated_key(key, leads));
  if (lm_unlikely(!lane)) return else_slow(site, size, t, slow);
  return take_near(site, size, t, lane, slow);
}

/* For another number, which was read. */
LM_INLINE void *take_number(uint32_t site, size_t size, lm_thread *t, lm_lane *asks, uint64_t key,
                            lm_engine_slow *slow, int64_t number) {
  const lm_gate *gate = asks->gate;
  if (lm_unlikely(number < 0)) return take_far(site, size, t, gate, key, slow);
  int64_t leads = lm_gate_leads(gate, (uint64_t)number);
  if (lm_unlikely(leads >= 0)) return take_further(site, size, t, gate + leads, key, slow);
  key = lm_engine_gated_key(key, leads);
  lm_lane *lane = lm_lane_led_again(t, asks, key);
  void *p = lm_likely(lane != NULL) ? lm_pool_take_ready(t, lane) : NULL;
  return lm_likely(p != NULL) ? taken(t, lane, p) : take_led(site, size, t, key, slow);
}

static LM_JUMPED void *take_node(uint32_t site, size_t size, lm_thread *t, lm_lane *asks,
                                 uint64_t key, lm_engine_slow *slow) {
  return take_number(site, size, t, asks, key, slow, lm_numa_here_fast());
}

static LM_JUMPED void *take_free(uint32_t site, size_t size, lm_thread *t, lm_lane *asks,
                                 uint64_t key, lm_engine_slow *slow) {
  return take_number(site, size, t, asks, key, slow, lm_numa_free_fast(asks->gate->arg));
}

static LM_JUMPED void *take_sized(uint32_t site, size_t size, lm_thread *t, lm_lane *asks,
                                  uint64_t key, lm_engine_slow *slow) {
  return take_number(site, size, t, asks, key, slow, (int64_t)size);
}

/* For a sum. */
static LM_JUMPED void *take_sum(uint32_t site, size_t size, lm_thread *t, lm_lane *asks,
                                uint64_t key, lm_engine_slow *slow) {
  int64_t sum;
  const lm_gate *gate = asks->gate;
  if (lm_unlikely(!lm_lane_sum(t, site, gate, size, &sum)))
    return take_far(site, size, t, gate, key, slow);
  int64_t leads = lm_gate_leads(gate, (uint64_t)sum);
  if (lm_unlikely(leads >= 0)) return take_further(site, size, t, gate + leads, key, slow);
  key = lm_engine_gated_key(key, leads);
  lm_lane *lane = lm_lane_led_again(t, asks, key);
  if (lm_unlikely(!lane)) return take_led(site, size, t, key, slow);
  return take_either(site, size, t, lane, slow);
}

LM_INLINE void *take_by_gate(uint32_t site, size_t size, lm_thread *t, lm_lane *asks, uint64_t key,
                             lm_engine_slow *slow) {
  unsigned ask = asks->gate->ask;
  if (ask == LM_IN_LIVE) return take_live(site, size, t, asks, key, slow);
  if (ask == LM_IN_NODE) return take_node(site, size, t, asks, key, slow);
  if (ask == LM_IN_NODE_FREE) return take_free(site, size, t, asks, key, slow);
  if (ask == LM_IN_SIZE) return take_sized(site, size, t, asks, key, slow);
  if (ask == LM_GATE_SUM) return take_sum(site, size, t, asks, key, slow);
  return take_far(site, size, t, asks->gate, key, slow);
}

static LM_JUMPED void *take_asked(uint32_t site, size_t size, lm_thread *t, lm_lane *asks,
                                  uint64_t key, lm_engine_slow *slow) {
  return take_by_gate(site, size, t, asks, key, slow);
}

typedef void *take_fn(loam_site *site, size_t size, lm_thread *t, lm_lane *lane, uint64_t key,
                      lm_engine_slow *slow);

/* By a lane that is so far apart; else what `other` has. */
LM_INLINE void *take_apart(uint64_t apart, loam_site *site, size_t size, lm_thread *t,
                           lm_lane *lane, uint64_t of_site, lm_engine_slow *slow, take_fn *other) {
  if (lm_likely(!apart)) {
    void *p = lm_pool_take_ready(t, lane);
    if (lm_likely(p != NULL)) return taken(t, lane, p);
  }
  if (apart == LM_LANE_ASKS) return take_asked(site->index, size, t, lane, of_site, slow);
  if (!apart || apart == LM_LANE_COUNTED) return take_open(site->index, size, t, lane, slow);
  return other(site, size, t, lane, of_site, slow);
}

static void *take_slow(loam_site *site, size_t size, lm_thread *t, lm_lane *lane, uint64_t of_site,
                       lm_engine_slow *slow) {
  (void)lane;
  (void)of_site;
  lm_thread_leave(t);
  return slow(site, size, 0);
}

/* Of one size. */
static LM_JUMPED void *take_byte(loam_site *site, size_t size, lm_thread *t, lm_lane *lane,
                                 uint64_t of_site, lm_engine_slow *slow) {
  lane = lm_engine_byte_lane(t, site->lane, size);
  uint64_t key = LM_LANE_BYTES + size + (of_site & ~(LM_EPOCH_FIRST - 1));
  return take_apart(apart_of(lane, key, site->index), site, size, t, lane, of_site, slow,
                    take_slow);
}

/* Of sizes in 16 bytes. */
static LM_JUMPED void *take_unit(loam_site *site, size_t size, lm_thread *t, lm_lane *lane,
                                 uint64_t of_site, lm_engine_slow *slow) {
  lane = lm_engine_unit_lane(t, site->lane, size);
  uint64_t key = LM_LANE_UNITS + (size + 15) / 16 + (of_site & ~(LM_EPOCH_FIRST - 1));
  return take_apart(apart_of(lane, key, site->index), site, size, t, lane, of_site, slow,
                    take_byte);
}

/* Of what is counted, and those. */
static LM_JUMPED void *take_other(loam_site *site, size_t size, lm_thread *t, lm_lane *lane,
                                  uint64_t key, lm_engine_slow *slow) {
  if (lane->key == key + LM_LANE_COUNTED) return take_open(site->index, size, t, lane, slow);
  return take_unit(site, size, t, lane, key, slow);
}

void *lm_engine_missed(loam_site *site, size_t size, lm_thread *t, lm_lane *lane, uint64_t key,
                       lm_engine_slow *slow) {
  lm_load_fence();
  if (lm_likely(lm_lane_is_apart(lane, key, LM_LANE_ASKS)))
    return take_by_gate(site->index, size, t, lane, key, slow);
  return take_other(site, size, t, lane, key, slow);
}

/* By any gate, if all is as it most often is; NULL: nothing was done. */
LM_INLINE void *take_at_once(uint32_t site, size_t size, lm_thread *t, lm_lane *asks,
                             uint64_t key) {
  size_t usable = 0;
  lm_lane *lane = NULL;
  int64_t leads = lm_lane_pass(t, site, asks->gate, size);
  if (lm_likely(leads < 0)) lane = lm_lane_led_again(t, asks, lm_engine_gated_key(key, leads));
  if (lm_unlikely(!lane)) return NULL;
  if (!(lane->token & LM_TOKEN_COUNTED)) {
    void *p = lm_pool_take_ready(t, lane);
    return lm_likely(p != NULL) ? taken(t, lane, p) : NULL;
  }
  bool is_near = lm_live_is_near(t, site);
  void *p = lm_likely(is_near) ? lm_pool_take_slow(t, lane, &usable) : NULL;
  if (lm_unlikely(!p)) return NULL;
  lm_live_add(t->near, (int64_t)usable);
  return taken(t, lane, p);
}

static void *nothing(loam_site *site, size_t size, uintptr_t code) {
  (void)site;
  (void)size;
  (void)code;
  return NULL;
}

/* What there is by any other way, zeroed. */
static LM_JUMPED void *missed_zeroed(loam_site *site, size_t size, lm_thread *t, lm_lane *lane,
                                     uint64_t key, lm_engine_slow *slow) {
  void *p = lm_engine_missed(site, size, t, lane, key, nothing);
  return p ? memset(p, 0, size) : slow(site, size, 0);
}

/* As take_live, zeroed. */
static LM_JUMPED void *live_zeroed(loam_site *site, size_t size, lm_thread *t, lm_lane *lane,
                                   uint64_t key, lm_engine_slow *slow) {
  size_t usable;
  bool is_near = lm_live_is_near(t, site->index);
  int64_t live = lm_likely(is_near) ? lm_live_at(t->near) : -1;
  int64_t leads = lm_likely(live >= 0) ? lm_gate_leads(lane->gate, (uint64_t)live) : 0;
  if (lm_unlikely(leads >= 0)) return missed_zeroed(site, size, t, lane, key, slow);
  lane = lm_lane_led_again(t, lane, lm_engine_gated_key(key, leads));
  void *p = lm_likely(lane != NULL) ? lm_pool_take_slow(t, lane, &usable) : NULL;
  if (lm_unlikely(!p)) return take_slow(site, size, t, lane, key, slow);
  lm_live_add(t->near, (int64_t)usable);
  return memset(taken(t, lane, p), 0, size);
}

void *lm_engine_missed_zeroed(loam_site *site, size_t size, lm_thread *t, lm_lane *lane,
                              uint64_t key, lm_engine_slow *slow) {
  lm_load_fence();
  bool asks = lm_lane_is_apart(lane, key, LM_LANE_ASKS);
  if (asks && lane->gate->ask == LM_IN_LIVE) return live_zeroed(site, size, t, lane, key, slow);
  void *p = lm_likely(asks) ? take_at_once(site->index, size, t, lane, key) : NULL;
  return lm_likely(p != NULL) ? memset(p, 0, size) : missed_zeroed(site, size, t, lane, key, slow);
}

void *lm_engine_asked(loam_site *site, size_t size, lm_thread *t, lm_lane *asks, uint64_t key,
                      lm_engine_slow *slow) {
  return take_by_gate(site->index, size, t, asks, key, slow);
}

void *lm_engine_opened(loam_site *site, size_t size, lm_thread *t, lm_lane *lane,
                       lm_engine_slow *slow) {
  return take_open(site->index, size, t, lane, slow);
}

void *lm_engine_emptied(loam_site *site, size_t size, lm_thread *t, lm_engine_slow *slow) {
  if (!site) site = lm_engine_scope(t);
  uint64_t key = lm_engine_key(t, site, size);
  lm_lane *lane = lm_engine_lane(t, key);
  void *p = lane->key == key ? take_by(t, lane) : NULL;
  lm_thread_leave(t);
  return p ? p : slow(site, size, 0);
}

void *lm_engine_other(lm_thread *t, lm_lane *lane, uint64_t key, loam_site *site, size_t size) {
  if (lane->key != key) return lm_engine_missed(site, size, t, lane, key, nothing);
  void *p = take_by(t, lane);
  lm_thread_leave(t);
  return p;
}

/* ---- Lanes of code ------------------------------------------------------------------------ */

static void *code_slow(loam_site *site, size_t size, uintptr_t code) {
  const lm_thread *t = lm_thread_self_or_empty;
  (void)site;
  (void)code;
  return t->missed(size, t->asking);
}

/* Of what is counted, which is all that is left. */
static LM_JUMPED void *take_code_other(size_t size, const void *code, loam_code_fn miss,
                                       lm_thread *t, lm_lane *lane, uint64_t key) {
  void *p = lane->key == key + LM_LANE_CODE_COUNTED ? take_by(t, lane) : NULL;
  lm_thread_leave(t);
  return p ? p : miss(size, code);
}

void *lm_engine_code_missed(const void *code, size_t size, lm_thread *t, lm_lane *lane,
                            uint64_t key, loam_code_fn miss) {
  lm_load_fence();
  if (lm_unlikely(!lm_lane_is_apart(lane, key, LM_LANE_ASKS)))
    return take_code_other(size, code, miss, t, lane, key);
  uint32_t site = site_of(lane);
  t->missed = miss;
  t->asking = code;
  key = lm_class_step(size) + LM_LANE_OF(site) +
        atomic_load_explicit(&t->epoch, memory_order_relaxed);
  return take_by_gate(site, size, t, lane, key, code_slow);
}

void *lm_engine_code_emptied(size_t size, const void *code, loam_code_fn miss, lm_thread *t) {
  unsigned step = lm_class_step(size);
  uint64_t key = lm_engine_code_key(t, (uintptr_t)code, step);
  lm_lane *lane = lm_engine_code_lane(t, (uintptr_t)code, step);
  if (lane->key != key) return lm_engine_code_missed(code, size, t, lane, key, miss);
  lm_load_fence();
  void *p = take_by(t, lane);
  lm_thread_leave(t);
  return p ? p : miss(size, code);
}

/* ---- Lanes of large blocks ---------------------------------------------------------------- */

void *lm_engine_noted(void *p, lm_thread *t, const lm_lane *lane, size_t bytes) {
  lm_stats_note(t, site_of(lane), lane->strategy, 1, bytes);
  lm_thread_leave(t);
  return p;
}

/* By any lane. */
static LM_JUMPED void *large_by_any(uint32_t site, size_t size, lm_thread *t, uint64_t key,
                                    lm_engine_slow *slow) {
  lm_lane *lane = lm_lane_by(t, site, size, key);
  void *p = lane ? take_large(t, lane, size) : NULL;
  if (!p) return else_slow(site, size, t, slow);
  lm_thread_leave(t);
  return p;
}

/* By one that gates led to at once, its token not being counted; or counted, as the thread's
 * latest. */
static LM_JUMPED void *large_plain(uint32_t site, size_t size, lm_thread *t, lm_lane *lane,
                                   lm_engine_slow *slow) {
  void *p = lm_pool_take_large(t, lane, size);
  if (lm_unlikely(!p)) return else_slow(site, size, t, slow);
  return lm_engine_note_large(p, t, lane, size);
}

static LM_JUMPED void *large_near(uint32_t site, size_t size, lm_thread *t, lm_lane *lane,
                                  lm_engine_slow *slow) {
  void *p = lm_pool_take_large_as(t, lane, size, LM_STATE_COUNTED);
  if (lm_unlikely(!p)) return else_slow(site, size, t, slow);
  lm_live_add(t->near, (int64_t)lm_align_up(size, LM_PAGE));
  return lm_engine_note_large(p, t, lane, size);
}

LM_INLINE void *large_led(uint32_t site, size_t size, lm_thread *t, lm_lane *asks, uint64_t key,
                          int64_t leads, lm_engine_slow *slow) {
  lm_lane *lane = lm_lane_led_again(t, asks, lm_engine_gated_key(key, leads));
  if (lm_unlikely(!lane)) return large_by_any(site, size, t, key, slow);
  if (!(lane->token & LM_TOKEN_COUNTED)) return large_plain(site, size, t, lane, slow);
  lm_assert(lm_live_is_near(t, site)); /* else what lives was not read at once */
  return large_near(site, size, t, lane, slow);
}

void *lm_engine_large_missed(loam_site *site, size_t size, lm_thread *t, lm_lane *lane,
                             uint64_t key, lm_engine_slow *slow) {
  lm_load_fence();
  bool asks = lm_lane_is_apart(lane, key, LM_LANE_ASKS);
  int64_t leads = lm_likely(asks) ? lm_lane_pass(t, site->index, lane->gate, size) : 0;
  if (lm_unlikely(leads >= 0)) return large_by_any(site->index, size, t, key, slow);
  return large_led(site->index, size, t, lane, key, leads, slow);
}
