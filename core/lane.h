/* lane.h - what a thread remembers of decisions: what engine.h's short ways do not find. */
#ifndef LM_LANE_H
#define LM_LANE_H

#include "site.h"

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

/* Opens the lane for what is asked of a site to be pinned, where all sizes of the class get it of
 * this twin, of which p is an object of the site. The thread is not active. */
void lm_lane_open_pinned(lm_thread *t, loam_site *site, const void *p, size_t size, unsigned flags,
                         lm_strategy *twin);

#endif
