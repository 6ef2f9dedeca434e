/* stats.h - figures: totals that threads tally, live bytes read off the memory. */
#ifndef LM_STATS_H
#define LM_STATS_H

#include "site.h"

/* One block allocated; on the allocation path, so inline and thread-local: a direct-mapped table
 * keyed by (site, strategy), told to the totals when an entry is needed for another key. */
void lm_stats_flush(lm_thread *t, lm_tally *entry);
LM_INLINE void lm_stats_note(lm_thread *t, uint32_t site, uint32_t strategy, size_t bytes) {
  lm_tally *e = &t->tally[(site + strategy * 37) & (LM_TALLIES - 1)];
  if (lm_unlikely(e->site != site || e->strategy != strategy || e->blocks == UINT32_MAX)) {
    lm_stats_flush(t, e);
    e->site = site;
    e->strategy = strategy;
  }
  e->blocks++;
  e->bytes += bytes;
}

extern _Atomic uint64_t lm_stats_denied, lm_stats_fallbacks, lm_stats_failed, lm_stats_bad_frees;

#endif
