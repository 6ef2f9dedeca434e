/* engine.c - a request in, a pointer out. */
#include "engine/engine.h"

#include "engine/bad_free.h"
#include "engine/chain.h"
#include "engine/live_bytes.h"
#include "engine/outside.h"
#include "os/error.h"

/* Finds the block at `ptr`, to which the request gives another size. The request takes from it the
 * kind of its memory and, if it has none, its site. Returns false if no live block begins there, or
 * if the block is asleep and is to grow. */
static bool find_block(lm_request *r, void *ptr, lm_record *was) {
  if (!lm_record_find(ptr, was) || was->base != ptr) {
    lm_bad_free_wrong("realloc", ptr);
    lm_error(LOAM_EBADPTR, "realloc of %p: it is not the start of a live block", ptr);
    return false;
  }
  /* Before memory is taken for its contents, which no copy can have now. */
  if (was->is_asleep && r->size > was->size) {
    lm_error(LOAM_ESTATE, "realloc of %p: the block is asleep, and loam_wake has to come first",
             ptr);
    return false;
  }
  if (!r->site) r->site = lm_site_of(was->token);
  if (was->maker != LM_PROVIDER_HEAP) {
    r->want = (lm_want)was->want;
    r->flags = was->flags;
    r->stream = was->stream;
  } else if (lm_strategy_at(was->strategy)->desc.asked) {
    r->want = LM_WANT_PINNED;
  }
  return true;
}

void *lm_engine_serve(const lm_request *r, void *ptr) {
  lm_record was;
  void *p = NULL;
  lm_assert(!lm_thread_is_active());
  if (r->size > LM_SIZE_MAX)
    return lm_error_null("size %zu: it is above the address space, %zu", r->size, LM_SIZE_MAX);
  if (r->align > LM_SIZE_MAX)
    return lm_error_null("alignment %zu: it is above the address space, %zu", r->align,
                         LM_SIZE_MAX);
  lm_thread *t = lm_thread_get();
  if (!t) return lm_error_null("size %zu: no memory for the thread's own data", r->size);
  lm_order o = { .t = t, .r = *r, .why = "" };
  if (ptr && !find_block(&o.r, ptr, &was)) return NULL;
  o.r.site = lm_decision_site(t, o.r.site);
  if (o.r.align < 16) o.r.align = 16;
  if (!ptr && o.r.want == LM_WANT_HOST && !o.r.handler) p = lm_decision_make(t, &o.r);
  return p ? p : lm_chain_serve(&o, ptr ? &was : NULL);
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
