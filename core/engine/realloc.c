/* realloc.c - how a realloc gives a block its new size. */
#include "engine/engine.h"

/* Returns whether the object is a fair place for the new size, if the policy decides as before. */
static bool may_stay(const lm_map_object *place, size_t size) {
  return place->large ? lm_align_up(size, LM_PAGE) == place->size
                      : lm_class_fits(place->size, size);
}

bool lm_engine_realloc_stays(lm_thread *t, void *ptr, size_t size, loam_site **site, size_t *from) {
  lm_map_object place;
  lm_assert(t == lm_thread_self && size <= LM_LARGE_MAX && !lm_thread_is_active());
  *from = 0;
  if (t->inside || lm_record_is_nested(ptr)) return false;
  if (!lm_map_find_fast(ptr, &place) || place.base != (uintptr_t)ptr) return false;
  if (!*site) *site = lm_site_of(place.token);
  if (may_stay(&place, size))
    return lm_decision_is_current(t, *site, size, place.token, place.strategy);
  bool is_pinned = lm_strategy_at(place.strategy)->desc.asked; /* and stays pinned */
  if (!place.large && size <= LM_SMALL_MAX && !is_pinned) *from = place.size;
  return false;
}
