/* lane.h - what a thread remembers of decisions: what engine.h's short ways do not find. */
#ifndef LM_LANE_H
#define LM_LANE_H

#include "site.h"

/* A gauge as it stands, for lm_plan_decide. */
double lm_lane_gauge(const lm_request *request, int input, unsigned arg);

/* What the table of the site's plan says of a size up to LM_LARGE_MAX; bin 0: it has to be decided.
 * While active. */
lm_serve lm_lane_look_up(const lm_plan *plan, const loam_site *site, size_t size, bool zero);

/* Opens the lane for what is asked of a site to be pinned, where all sizes of the class get it of
 * this twin, of which p is an object of the site. The thread is not active. */
void lm_lane_open_pinned(lm_thread *t, loam_site *site, const void *p, size_t size, unsigned flags,
                         lm_strategy *twin);

#endif
