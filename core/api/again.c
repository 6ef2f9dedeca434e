/* again.c - loam_realloc. Most are of small objects, to small ones: decided as malloc decides, by a
 * lane; and where that is another object, it is taken, copied to, and the old one given back, all
 * in one section. What is here jumps from one to the next; whoever has an answer leaves. */
#include <string.h>

#include "api/front.h"
#include "engine/lane.h"

/* A shrink to less than half of the object is worth a move (lm_pool_resize says the same). */
LM_INLINE bool fits(size_t size, lm_located met) {
  size_t usable = lm_load(size_t, &met.span->size);
  return size <= usable && (size > usable / 2 || usable <= 64);
}

/* The key of the lane of a site, by its index. */
LM_INLINE uint64_t key_of(lm_thread *t, uint32_t site, size_t size) {
  return lm_class_step(size) + lm_load(uint64_t, &t->epoch) + LM_LANE_OF(site);
}

/* The site that was asked for, else that of the object. */
LM_INLINE uint32_t site_of(const loam_site *site, lm_token token) {
  return site ? site->index : lm_site_token_index(token);
}

/* What was asked to be pinned stays so, which no lane of malloc's knows. */
LM_INLINE bool may_go(const lm_lane *lane, lm_located met) {
  uint16_t strategy = lm_load(uint16_t, &met.span->strategy);
  return lm_likely(lane->strategy == strategy) || !lm_strategy_at(strategy)->desc.asked;
}

LM_INLINE void *answer(lm_thread *t, void *p) {
  lm_thread_leave(t);
  return p;
}

static LM_NOINLINE void *slow(void *ptr, size_t size, lm_thread *t) {
  lm_thread_leave(t);
  return lm_front_realloc(t->again, ptr, size, t->caller);
}

/* What could not be given, as its bin is full. */
static LM_NOINLINE void *end(lm_thread *t, void *ptr, void *p) {
  lm_thread_leave(t);
  lm_engine_free(ptr, SIZE_MAX);
  return p;
}

LM_INLINE void *copy(void *to, const void *from, size_t size, size_t usable) {
  return memcpy(to, from, size < usable ? size : usable);
}

/* Of a plain object whose token does not stand in the span's table. */
LM_INLINE lm_token token_of_plain(lm_located met) {
  lm_state_cell *side = lm_load(lm_state_cell *, &met.span->side);
  return lm_load(lm_token, lm_state_plain_token(side, lm_load(lm_state, met.mark)));
}

/* Of a live small object; LM_TOKEN_NONE: of others, and where it stands in the span's table. */
LM_INLINE lm_token token_of(lm_located met) {
  lm_state mark = lm_load(lm_state, met.mark);
  if (mark == LM_STATE_COUNTED) return lm_load(lm_token, &met.span->token);
  bool stands = lm_state_is_plain(mark) && mark != LM_STATE_LIVE + LM_ID_WIDE;
  return stands ? token_of_plain(met) : LM_TOKEN_NONE;
}

/* The object itself, if it is what a lane would give, but for its class. */
LM_INLINE void *stay(const lm_lane *lane, void *ptr, size_t size, lm_thread *t, lm_located met,
                     lm_token token) {
  bool is_same = lane->bin == lm_load(uint32_t, &met.span->bin) ||
                 lane->strategy == lm_load(uint16_t, &met.span->strategy);
  return lm_likely(is_same && lane->token == token) ? answer(t, ptr) : slow(ptr, size, t);
}

/* ---- By a lane ---------------------------------------------------------------------------- */

static LM_JUMPED void *move_plain(lm_lane *lane, void *ptr, size_t size, lm_thread *t,
                                  lm_state_cell *mark, const lm_span *span) {
  lm_located met = { mark, span };
  size_t usable = lm_load(size_t, &met.span->size);
  void *p = may_go(lane, met) ? lm_pool_take_ready(t, lane) : NULL;
  if (lm_unlikely(!p)) return slow(ptr, size, t);
  lm_add_relaxed(&lane->blocks, 1);
  p = copy(p, ptr, size, usable);
  return lm_likely(lm_pool_give_located(t, ptr, met)) ? answer(t, p) : end(t, ptr, p);
}

/* Of a plain object, by a lane whose token is not counted. */
LM_INLINE void *by_plain(lm_lane *lane, void *ptr, size_t size, lm_thread *t, lm_located met) {
  if (!fits(size, met)) return move_plain(lane, ptr, size, t, met.mark, met.span);
  return stay(lane, ptr, size, t, met, token_of_plain(met));
}

static bool count_before(lm_thread *t, lm_token token, const lm_span *span) {
  (void)t;
  (void)token;
  (void)span;
  return true;
}

LM_INLINE bool give_counted(lm_thread *t, void *ptr, lm_located met) {
  return lm_pool_give_slow(t, ptr, met, LM_STATE_COUNTED, count_before);
}

/* What comes and what goes are counted as one. */
static LM_JUMPED void *move_near(lm_lane *lane, void *ptr, size_t size, lm_thread *t,
                                 lm_state_cell *mark, const lm_span *span) {
  lm_located met = { mark, span };
  size_t usable = lm_load(size_t, &met.span->size), more;
  void *p = may_go(lane, met) ? lm_pool_take_slow(t, lane, &more) : NULL;
  if (lm_unlikely(!p)) return slow(ptr, size, t);
  lm_live_add(t->near, (int64_t)(more - usable));
  lm_add_relaxed(&lane->blocks, 1);
  p = copy(p, ptr, size, usable);
  if (lm_likely(give_counted(t, ptr, met))) return answer(t, p);
  lm_live_add(t->near, (int64_t)usable);
  return end(t, ptr, p);
}

/* Of a counted object, by a lane whose token is counted, both being of the thread's latest. */
LM_INLINE void *by_near(lm_lane *lane, void *ptr, size_t size, lm_thread *t, lm_located met) {
  if (!fits(size, met)) return move_near(lane, ptr, size, t, met.mark, met.span);
  return stay(lane, ptr, size, t, met, lm_load(lm_token, &met.span->token));
}

static void *move_any(lm_lane *lane, void *ptr, size_t size, lm_thread *t, lm_located met,
                      lm_token token) {
  size_t usable = lm_load(size_t, &met.span->size), more = 0;
  bool takes = lane->token & LM_TOKEN_COUNTED, gives = token & LM_TOKEN_COUNTED;
  void *p = NULL;
  if (may_go(lane, met))
    p = takes ? lm_pool_take_slow(t, lane, &more) : lm_pool_take_ready(t, lane);
  if (!p) return slow(ptr, size, t);
  lm_add_relaxed(&lane->blocks, 1);
  p = copy(p, ptr, size, usable);
  if (takes) lm_live_count_at(t, lm_site_token_index(lane->token), (int64_t)more);
  if (!(gives ? give_counted(t, ptr, met) : lm_pool_give_located(t, ptr, met)))
    return end(t, ptr, p);
  if (gives) lm_live_count_at(t, lm_site_token_index(token), -(int64_t)usable);
  return answer(t, p);
}

/* ---- By what lane ------------------------------------------------------------------------- */

/* Of any object, by any lane. */
static LM_JUMPED void *by_any(void *ptr, size_t size, lm_thread *t, lm_state_cell *mark,
                              const lm_span *span) {
  lm_located met = { mark, span };
  lm_token token = token_of(met);
  uint32_t site = site_of(t->again, token);
  if (token == LM_TOKEN_NONE) return slow(ptr, size, t);
  lm_lane *lane = lm_lane_by(t, site, size, key_of(t, site, size));
  if (!lane) return slow(ptr, size, t);
  if (!fits(size, met)) return move_any(lane, ptr, size, t, met, token);
  return stay(lane, ptr, size, t, met, token);
}

/* The lane that gates led to, if the object and it are both counted, as the thread's latest, or
 * both are not. */
LM_INLINE void *by_led(lm_lane *asks, uint64_t key, void *ptr, size_t size, lm_thread *t,
                       lm_located met, int64_t leads, bool counted) {
  lm_lane *lane = lm_lane_led_again(t, asks, lm_engine_gated_key(key, leads));
  bool is_alike = lane && counted == !!(lane->token & LM_TOKEN_COUNTED);
  if (lm_unlikely(!is_alike)) return by_any(ptr, size, t, met.mark, met.span);
  return counted ? by_near(lane, ptr, size, t, met) : by_plain(lane, ptr, size, t, met);
}

/* By any gates, if there are such; what is counted is the site's, and the thread's latest. */
static LM_JUMPED void *by_gates(uint64_t key, void *ptr, size_t size, lm_thread *t,
                                lm_state_cell *mark, const lm_span *span) {
  lm_located met = { mark, span };
  lm_lane *lane = lm_engine_lane(t, key);
  int64_t leads = 0;
  uint32_t site = atomic_load_explicit(&lane->site, memory_order_relaxed);
  if (lm_lane_is_apart(lane, key, LM_LANE_ASKS)) leads = lm_lane_pass(t, site, lane->gate, size);
  if (lm_unlikely(leads >= 0)) return by_any(ptr, size, t, mark, span);
  if (lm_load(lm_state, mark) != LM_STATE_COUNTED)
    return by_led(lane, key, ptr, size, t, met, leads, false);
  return by_led(lane, key, ptr, size, t, met, leads, true);
}

/* Of a plain object, by one that asks for the node or what is free there. */
static LM_JUMPED void *by_gate(uint64_t key, void *ptr, size_t size, lm_thread *t,
                               lm_state_cell *mark, const lm_span *span) {
  lm_lane *lane = lm_engine_lane(t, key);
  if (lm_likely(lm_lane_is_apart(lane, key, LM_LANE_ASKS))) {
    const lm_gate *gate = lane->gate;
    int64_t number = -1;
    if (gate->ask == LM_IN_NODE) number = lm_numa_here_fast();
    else if (gate->ask == LM_IN_NODE_FREE) number = lm_numa_free_fast(gate->arg);
    int64_t leads = lm_likely(number >= 0) ? lm_gate_leads(gate, (uint64_t)number) : 0;
    if (lm_likely(leads < 0))
      return by_led(lane, key, ptr, size, t, (lm_located){ mark, span }, leads, false);
  }
  return by_gates(key, ptr, size, t, mark, span);
}

/* Of a counted object, by one that asks what lives. */
static LM_JUMPED void *by_live(loam_site *site, void *ptr, size_t size, lm_thread *t,
                               lm_state_cell *mark, const lm_span *span) {
  /* Of the latest, which is known before the object is. */
  uint64_t key = key_of(t, t->near_site, size);
  lm_settle(key);
  uint32_t index = lm_site_token_index(lm_load(lm_token, &span->token));
  bool is_its = !site || site->index == index;
  if (lm_unlikely(!is_its || !lm_live_is_near(t, index))) return by_any(ptr, size, t, mark, span);
  lm_lane *lane = lm_engine_lane(t, key);
  if (lm_likely(lm_lane_is_apart(lane, key, LM_LANE_ASKS) && lane->gate->ask == LM_IN_LIVE)) {
    int64_t live = lm_live_at(t->near);
    int64_t leads = lm_likely(live >= 0) ? lm_gate_leads(lane->gate, (uint64_t)live) : 0;
    if (lm_likely(leads < 0))
      return by_led(lane, key, ptr, size, t, (lm_located){ mark, span }, leads, true);
  }
  return by_gates(key, ptr, size, t, mark, span);
}

/* Of a token that is not common. */
static LM_JUMPED void *by_own(loam_site *site, void *ptr, size_t size, lm_thread *t,
                              lm_state_cell *mark, const lm_span *span) {
  lm_located met = { mark, span };
  lm_state is = lm_load(lm_state, mark);
  if (!lm_state_is_plain(is) || is == LM_STATE_LIVE + LM_ID_WIDE) return slow(ptr, size, t);
  uint64_t key = key_of(t, site_of(site, token_of_plain(met)), size);
  lm_lane *lane = lm_engine_lane(t, key);
  return lm_likely(lane->key == key) ? by_plain(lane, ptr, size, t, met)
                                     : by_gate(key, ptr, size, t, mark, span);
}

LM_HOT void *loam_realloc(loam_site *site, void *ptr, size_t size) {
  lm_located met;
  lm_thread *t = lm_thread_self_or_empty;
  bool is_easy = lm_thread_try_enter(t) & LM_EPOCH_FAST;
  if (lm_unlikely(size > LM_SMALL_MAX || !is_easy || !lm_pool_locate(ptr, &met))) {
    lm_thread_leave(t);
    return lm_front_realloc(site, ptr, size, __builtin_return_address(0));
  }
  t->caller = __builtin_return_address(0);
  t->again = site;
  /* Asked of the span: a large block that was dated has another mark than one just made (age.c). */
  bool is_large = lm_map_is_large(lm_load(uint64_t, &met.span->key));
  if (lm_unlikely(is_large || lm_load(uint64_t, &lm_engine_nested))) return slow(ptr, size, t);
  unsigned mark = lm_load(lm_state, met.mark), id = mark - LM_STATE_LIVE;
  if (mark == LM_STATE_COUNTED) return by_live(site, ptr, size, t, met.mark, met.span);
  if (lm_unlikely(id - 1 >= LM_COMMON_TOKENS))
    return by_own(site, ptr, size, t, met.mark, met.span);
  lm_token token = lm_load(lm_token, &lm_state_common[id]);
  uint64_t key = key_of(t, site_of(site, token), size);
  lm_lane *lane = lm_engine_lane(t, key);
  return lm_likely(lane->key == key) ? by_plain(lane, ptr, size, t, met)
                                     : by_gate(key, ptr, size, t, met.mark, met.span);
}
