/* live.c - when a thread tells what it counted. */
#include "plan/live.h"

static void tell(lm_live_pending *u) {
  int64_t bytes = (int64_t)u->bytes - LM_LIVE_UNTOLD;
  if (u->live && bytes) atomic_fetch_add_explicit(u->live, bytes, memory_order_relaxed);
  u->bytes = LM_LIVE_UNTOLD;
}

void lm_live_count(lm_thread *t, const loam_site *site, int64_t bytes) {
  lm_live_pending *u = lm_live_untold(t, site);
  if (u->live != site->live) tell(u);
  u->live = site->live;
  t->near = u;
  t->near_site = site->index;
  lm_live_add(u, bytes);
}

void lm_live_leave(lm_thread *t) {
  for (int i = 0; i < LM_LIVE_PLACES; i++) tell(&t->untold[i]);
}
