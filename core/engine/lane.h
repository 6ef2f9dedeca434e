/* lane.h - what a thread remembers of decisions: what engine.h's short ways do not find. */
#ifndef LM_LANE_H
#define LM_LANE_H

#include "engine/engine.h"
#include "os/numa.h"

/* A gauge as it stands, for lm_plan_decide. */
double lm_lane_gauge(const lm_request *request, int input, unsigned arg);

/* What the table of a plan says of a size up to LM_LARGE_MAX; bin 0: it has to be decided. */
LM_INLINE lm_serve lm_lane_look_up(const lm_plan *plan, size_t size, bool zero) {
  if (zero && lm_unlikely(plan->reads & 1u << LM_IN_ZERO)) return (lm_serve){ 0 };
  if (lm_likely(size <= LM_TABLE_MAX)) return lm_table_at(&plan->table, size);
  unsigned class_ = size <= LM_SMALL_MAX ? lm_class_of(size) : lm_class_large(size);
  return plan->table.wide[class_ - LM_TABLE_CLASSES];
}

/* Where it says LM_BIN_ASKS: the strategy that such a request with align <= 16 comes to as gauges
 * are now, from the node that it names; -1: none of malloc's. While active. */
int lm_lane_ask(lm_thread *t, const lm_plan *plan, uint32_t node, loam_site *site, size_t size);

/* Whether a lane has the key but for this bit. */
LM_INLINE bool lm_lane_is_apart(const lm_lane *lane, uint64_t key, uint64_t bit) {
  uint64_t rest = (lane->key - key) ^ bit;
  lm_settle(rest); /* else gcc keeps a register for the bit */
  return !rest;
}

/* The open lane that has a key of where gates lead; NULL: there is none. */
LM_INLINE lm_lane *lm_lane_led(lm_thread *t, uint64_t key) {
  lm_lane *lane = lm_engine_lane(t, key);
  return lm_likely(lane->key == key) ? lane : NULL;
}

/* The same by the one that asks, which has the place where its gate led last: so that what is read
 * there need not wait for what the gate says. */
LM_INLINE lm_lane *lm_lane_led_again(lm_thread *t, lm_lane *asks, uint64_t key) {
  lm_lane *lane = lm_engine_lane(t, asks->led);
  if (lm_likely(lane->key == key)) return lane;
  asks->led = (uint16_t)(key % sizeof t->lane);
  return lm_lane_led(t, key);
}

/* A term of a sum, or what a gate asks that is none; below 0: it takes a call, or what lives is
 * asked of another tag than that of the thread's latest request. */
LM_INLINE int64_t lm_lane_number(lm_thread *t, uint32_t site, unsigned input, unsigned arg) {
  if (input == LM_IN_LIVE) return lm_live_is_near(t, site) ? lm_live_at(t->near) : -1;
  if (input == LM_IN_NODE_FREE) return lm_numa_free_fast(arg);
  return input == LM_IN_NODE ? lm_numa_here_fast() : -1;
}

LM_INLINE bool lm_lane_sum(lm_thread *t, uint32_t site, const lm_gate *gate, size_t size,
                           int64_t *sum) {
  const lm_term *term = gate->term, *end = term + gate->terms;
  *sum = gate->sizes * (int64_t)size;
  for (; term < end; term++) {
    int64_t number = lm_lane_number(t, site, term->input, term->arg);
    if (lm_unlikely(number < 0)) return false;
    *sum += term->factor * number;
  }
  return true;
}

/* Where gates lead a request with align <= 16 and zero = 0 of a site, by its index; 0: it takes
 * numbers remembered from gate to gate, or a call. */
LM_INLINE int64_t lm_lane_pass(lm_thread *t, uint32_t site, const lm_gate *gate, size_t size) {
  int64_t leads, number;
  do {
    number = lm_lane_number(t, site, gate->ask, gate->arg);
    if (lm_unlikely(number < 0)) {
      if (gate->ask == LM_IN_SIZE) number = (int64_t)size;
      else if (gate->ask != LM_GATE_SUM || !lm_lane_sum(t, site, gate, size, &number)) return 0;
    }
    leads = lm_gate_lead_past(&gate, (uint64_t)number);
  } while (lm_unlikely(leads >= 0));
  return leads;
}

/* The lane that a request with align <= 16 comes to as gauges are now, its key being that of the
 * site and class; NULL: it has to be decided. While active. */
lm_lane *lm_lane_by(lm_thread *t, uint32_t site, size_t size, uint64_t key);

/* Opens the lane for what is asked of a site to be pinned, where all sizes of the class get it of
 * this twin, of which p is an object of the site. The thread is not active. */
void lm_lane_open_pinned(lm_thread *t, loam_site *site, const void *p, size_t size, unsigned flags,
                         lm_strategy *twin);

#endif
