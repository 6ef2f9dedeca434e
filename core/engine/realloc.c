/* realloc.c - how a realloc gives a block its new size. */
#include "engine/engine.h"

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
