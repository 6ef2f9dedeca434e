/* live.h - how much lives under a tag that is counted, as its plans read it.
 *
 * A thread that added to the tag's counter at each allocation would write a line that all write. So
 * it keeps what it added and took, and tells that when it would be more than LM_LIVE_UNTOLD, or
 * when its place is wanted for another tag, and when it ends. What it reads itself is the counter
 * and what it has not told: so req.live is exact but for what each other thread has not told. */
#ifndef LM_LIVE_H
#define LM_LIVE_H

#include "plan/site.h"

/* Bytes, either way. */
enum { LM_LIVE_UNTOLD = 128 << 10 };

LM_INLINE lm_live_pending *lm_live_untold(lm_thread *t, const loam_site *site) {
  return &t->untold[site->tag_index % LM_LIVE_PLACES];
}

/* So many bytes more, or, below 0, less. While active, as lm_site_add_live. */
LM_INLINE void lm_live_add(lm_live_pending *u, int64_t bytes) {
  u->bytes += (uint64_t)bytes;
  if (lm_likely(u->bytes <= 2 * LM_LIVE_UNTOLD)) return;
  atomic_fetch_add_explicit(u->live, (int64_t)u->bytes - LM_LIVE_UNTOLD, memory_order_relaxed);
  u->bytes = LM_LIVE_UNTOLD;
}

/* The same under a site's tag by this thread, whose place is near from then on. */
void lm_live_count(lm_thread *t, const loam_site *site, int64_t bytes);

/* Whether the thread's latest was the site's. Law: then `near` is the place of its tag. */
LM_INLINE bool lm_live_is_near(const lm_thread *t, uint32_t site) { return t->near_site == site; }

/* Bytes that live under the tag of a place, as its thread knows them; below 0 for a moment while
 * the tag begins to be counted, or where another thread freed what is not told yet. */
LM_INLINE int64_t lm_live_at(const lm_live_pending *u) {
  return atomic_load_explicit(u->live, memory_order_relaxed) + (int64_t)u->bytes - LM_LIVE_UNTOLD;
}

/* The same of a site's tag, not below 0. */
LM_INLINE int64_t lm_live_of(lm_thread *t, const loam_site *site) {
  const lm_live_pending *u = lm_live_untold(t, site);
  int64_t live = u->live == site->live ? lm_live_at(u)
                                       : atomic_load_explicit(site->live, memory_order_relaxed);
  return live > 0 ? live : 0;
}

/* The same by the site's index, which most often was the thread's latest. */
LM_INLINE void lm_live_count_at(lm_thread *t, uint32_t site, int64_t bytes) {
  if (lm_likely(lm_live_is_near(t, site))) lm_live_add(t->near, bytes);
  else lm_live_count(t, lm_site_of(site), bytes);
}

/* Tells all that a thread has not told: it ends. */
void lm_live_leave(lm_thread *t);

#endif
