/* engine.c - a request in, a pointer out. */
#include "engine/engine.h"

#include "engine/chain.h"
#include "engine/live_bytes.h"
#include "engine/outside.h"
#include "os/error.h"

void *lm_engine_alloc(const lm_request *r) {
  lm_assert(!lm_thread_is_active());
  if (r->size > LM_SIZE_MAX)
    return lm_error_null("size %zu: it is above the address space, %zu", r->size, LM_SIZE_MAX);
  if (r->align > LM_SIZE_MAX)
    return lm_error_null("alignment %zu: it is above the address space, %zu", r->align,
                         LM_SIZE_MAX);
  lm_thread *t = lm_thread_get();
  if (!t) return lm_error_null("size %zu: no memory for the thread's own data", r->size);
  lm_order o = { .t = t, .r = *r, .why = "" };
  o.r.site = lm_decision_site(t, r->site);
  if (o.r.align < 16) o.r.align = 16;
  void *p = o.r.want == LM_WANT_HOST && !o.r.handler ? lm_decision_make(t, &o.r) : NULL;
  return p ? p : lm_chain_serve(&o, NULL);
}

void lm_engine_start(void) {
  static _Atomic bool begun;
  if (atomic_exchange_explicit(&begun, true, memory_order_relaxed)) return;
  lm_outside_start();
  lm_provided_start();
  lm_pool_start();
  lm_site_start();
  lm_stats_start();
  lm_live_start();
  lm_sample_start();
}
