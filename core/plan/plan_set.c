/* plan_set.c - a set of plans: an open-addressed hash table. */
#include "plan/plan_set.h"

#include <string.h>

#include "os/error.h"

/* Returns whether two plans have equal images. */
static bool is_equal(const lm_plan *a, const lm_plan *b) {
  return a->hash == b->hash && a->nodes == b->nodes && a->codes == b->codes &&
         a->leaves == b->leaves && a->chains == b->chains &&
         !memcmp(a->node, b->node, a->nodes * sizeof *a->node) &&
         !memcmp(a->code, b->code, a->codes * sizeof *a->code) &&
         !memcmp(a->leaf, b->leaf, a->leaves * sizeof *a->leaf) &&
         !memcmp(a->chain, b->chain, a->chains * sizeof *a->chain);
}

/* Returns the place of the table that holds an equal plan, or else the free place where `plan`
 * belongs. The table has a free place. */
static lm_plan **place_of(lm_plan **table, uint32_t slots, const lm_plan *plan) {
  uint32_t i = (uint32_t)plan->hash;
  lm_assert(lm_is_pow2(slots));
  for (;; i++) {
    lm_plan **place = &table[i & (slots - 1)];
    if (!*place || is_equal(*place, plan)) return place;
  }
}

/* Makes sure that the table has room for one more plan: at most half of its places are used.
 * Returns false if there is no memory. */
static bool make_room(lm_plan_set *set) {
  if (set->count * 2 < set->slots) return true;
  uint32_t slots = set->slots ? set->slots * 2 : 16;
  lm_plan **table = lm_metadata_alloc(slots * sizeof(lm_plan *));
  if (!table) return false;
  for (uint32_t i = 0; i < set->slots; i++)
    if (set->place[i]) *place_of(table, slots, set->place[i]) = set->place[i];
  lm_metadata_free(set->place);
  set->place = table;
  set->slots = slots;
  return true;
}

const lm_plan *lm_plan_set_add(lm_plan_set *set, lm_plan *plan) {
  lm_assert(plan);
  if (!make_room(set)) {
    lm_plan_destroy(plan);
    lm_error(LOAM_ENOMEM, "no memory for a plan");
    return NULL;
  }
  lm_plan **place = place_of(set->place, set->slots, plan);
  if (*place) {
    lm_plan_destroy(plan);
  } else {
    *place = plan;
    set->count++;
  }
  lm_assert(set->count < set->slots);
  return *place;
}

bool lm_plan_set_has(const lm_plan_set *set, const lm_plan *plan) {
  return set->slots && *place_of(set->place, set->slots, plan) == plan;
}

void lm_plan_set_mark_used(const lm_plan_set *set, uint8_t *used, uint32_t n) {
  for (uint32_t i = 0; i < set->slots; i++) {
    const lm_plan *plan = set->place[i];
    for (uint32_t k = 0; plan && k < plan->chains; k++)
      if (plan->chain[k] < n) used[plan->chain[k]] = 1;
  }
}

void lm_plan_set_clear(lm_plan_set *set) {
  for (uint32_t i = 0; i < set->slots; i++) lm_plan_destroy(set->place[i]);
  lm_metadata_free(set->place);
  *set = (lm_plan_set){ 0 };
}

bool lm_plan_set_is_valid(const lm_plan_set *set) {
  uint32_t found = 0;
  if (!set->slots) return !set->place && !set->count;
  if (!lm_is_pow2(set->slots) || set->count * 2 > set->slots) return false;
  for (uint32_t i = 0; i < set->slots; i++) {
    const lm_plan *plan = set->place[i];
    if (!plan) continue;
    if (!lm_plan_set_has(set, plan) || !lm_plan_is_valid(plan)) return false;
    found++;
  }
  return found == set->count;
}
