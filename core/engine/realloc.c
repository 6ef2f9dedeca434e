/* realloc.c - gives a block another size, and asks the policy again for it. */
#include "engine/bad_free.h"
#include "engine/chain.h"
#include "engine/engine.h"
#include "os/error.h"

/* Returns whether the object is a fair place for the new size, if the policy decides as before. */
static bool may_stay(const lm_map_object *place, size_t size) {
  return place->large ? lm_align_up(size, LM_PAGE) == place->size
                      : lm_class_fits(place->size, size);
}

lm_realloc_way lm_engine_realloc_way(lm_thread *t, void *ptr, size_t size, loam_site **site,
                                     size_t *from) {
  lm_map_object place;
  lm_assert(t == lm_thread_self && size <= LM_LARGE_MAX && !lm_thread_is_active());
  if (t->inside || lm_record_is_nested(ptr)) return LM_REALLOC_ASKS;
  if (!lm_map_find_fast(ptr, &place) || place.base != (uintptr_t)ptr) return LM_REALLOC_ASKS;
  if (!*site) *site = lm_site_of(place.token);
  *from = place.size;
  if (may_stay(&place, size)) {
    bool stays = lm_decision_is_current(t, *site, size, place.token, place.strategy);
    return stays ? LM_REALLOC_STAYS : LM_REALLOC_ASKS;
  }
  bool is_pinned = lm_strategy_at(place.strategy)->desc.asked; /* and stays pinned */
  return place.large || size > LM_SMALL_MAX || is_pinned ? LM_REALLOC_ASKS : LM_REALLOC_MOVES;
}

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
