/* realloc.c - gives a block another size, and asks the policy again for it. */
#include <string.h>

#include "engine/bad_free.h"
#include "engine/chain.h"
#include "engine/engine.h"
#include "engine/sampled.h"
#include "os/error.h"
#include "os/published.h"
#include "os/spare.h"

/* ---- Most objects of pools ---------------------------------------------------------------- */

/* While a fork lasts, the free is noted: the fork may wait for something that the caller holds. */
static LM_NOINLINE void give_back_slowly(void *ptr) {
  if (!lm_lock_try_hold()) {
    if (lm_spare_note_free(ptr)) return;
    lm_lock_hold_cancel();
  }
  lm_engine_free(ptr, SIZE_MAX, NULL);
  lm_lock_allow_cancel();
}

static void give_back(lm_thread *t, void *ptr) {
  lm_located met = { 0 };
  lm_assert(ptr);
  lm_thread_begin(t);
  bool done = lm_tcache_give_or_locate(t, ptr, &met) ||
              (met.cell && (lm_engine_free_counted(t, ptr, met) || lm_sampled_free(t, ptr, met)));
  lm_thread_leave(t);
  if (!done) give_back_slowly(ptr);
}

/* Returns whether the object is a fair place for the new size, if the policy decides as before. */
static bool may_stay(const lm_map_object *place, size_t size) {
  return place->large ? lm_align_up(size, LM_PAGE) == place->size
                      : lm_class_fits(place->size, size);
}

/* Returns an object for a request that lm_decision_serve did not serve. NULL: the engine has to
 * serve the request, or a policy was published, which only loam_realloc can obey. */
static void *serve_slowly(lm_thread *t, const lm_request *r, bool holds) {
  void *p = holds ? NULL : lm_decision_serve_unkept(t, r);
  if (p) return p;
  if (lm_unlikely(lm_published_is_new()) || lm_unlikely(!lm_lock_try_hold())) return NULL;
  p = holds ? lm_sampled_or_refill(t, lm_decision_key_of(r->site, r->size)) : NULL;
  if (!p) p = lm_decision_make(t, r);
  lm_lock_allow_cancel();
  return p;
}

void *lm_engine_realloc_quick(lm_thread *t, loam_site *site, void *ptr, size_t size) {
  lm_map_object place;
  lm_assert(t == lm_thread_self && size <= LM_LARGE_MAX && !lm_thread_is_active());
  if (t->inside || lm_record_is_nested(ptr)) return NULL;
  if (!lm_map_find_fast(ptr, &place) || place.base != (uintptr_t)ptr) return NULL;
  lm_request r = { .site = site ? site : lm_site_of(place.token), .size = size, .align = 16 };
  if (may_stay(&place, size))
    return lm_decision_is_current(t, r.site, size, place.token, place.strategy) ? ptr : NULL;
  if (place.large || size > LM_SMALL_MAX) return NULL;
  if (lm_strategy_at(place.strategy)->desc.asked) return NULL; /* pinned memory stays pinned */
  bool holds;
  lm_decision_key k = lm_decision_key_of(r.site, size);
  void *p = lm_decision_serve(t, k, &holds);
  if (!p) p = serve_slowly(t, &r, holds);
  if (!p) return NULL;
  memcpy(p, ptr, place.size < size ? place.size : size);
  give_back(t, ptr);
  return p;
}

/* ---- Any block ---------------------------------------------------------------------------- */

void *lm_engine_realloc(loam_site *site, void *ptr, size_t size) {
  return lm_engine_realloc_by(NULL, site, ptr, size);
}

void *lm_engine_realloc_by(const loam_handler *handler, loam_site *site, void *ptr, size_t size) {
  lm_record b;
  if (!ptr)
    return lm_engine_alloc(
        &(lm_request){ .site = site, .size = size, .align = 16, .handler = handler });
  if (size > LM_SIZE_MAX)
    return lm_error_null("size %zu: it is above the address space, %zu", size, LM_SIZE_MAX);
  lm_thread *t = lm_thread_get();
  if (!t) return lm_error_null("size %zu: no memory for the thread's own data", size);
  if (!lm_record_find(ptr, &b) || b.base != ptr) {
    lm_bad_free_wrong("realloc", ptr);
    lm_error(LOAM_EBADPTR, "realloc of %p: it is not the start of a live block", ptr);
    return NULL;
  }
  lm_order o = { .t = t, .why = "" };
  o.r = (lm_request){ .site = site ? site : lm_site_of(b.token), .size = size, .align = 16 };
  o.r.handler = handler;
  if (b.maker != LM_PROVIDER_HEAP) {
    o.r.want = (lm_want)b.want;
    o.r.flags = b.flags;
    o.r.stream = b.stream;
  } else if (lm_strategy_at(b.strategy)->desc.asked) {
    o.r.want = LM_WANT_PINNED;
  }
  return lm_chain_serve(&o, &b);
}
