/* plan_set.h - a set of plans, in which equal plans are one plan. */
#ifndef LM_PLAN_SET_H
#define LM_PLAN_SET_H

#include "plan/plan.h"

/* A hash table of plans. One thread at a time may use it. Zeroed, it is empty. Law: `slots` is 0,
 * or a power of two and at least 2 * count. Each of the `count` plans is found by linear probing
 * from its hash. No two plans of a set have equal images. */
typedef struct lm_plan_set {
  lm_plan **place;
  uint32_t count, slots;
} lm_plan_set;

/* Adds a plan, which the set frees from then on. Returns the plan; or, if the set holds an equal
 * plan, frees `plan` and returns the equal one. NULL, with error words, if there is no memory: then
 * `plan` is freed too. */
const lm_plan *lm_plan_set_add(lm_plan_set *set, lm_plan *plan);
/* Returns whether the set holds this plan. */
bool lm_plan_set_has(const lm_plan_set *set, const lm_plan *plan);
/* Sets used[id] to 1 for each strategy id below `n` that a plan of the set names. */
void lm_plan_set_mark_used(const lm_plan_set *set, uint8_t *used, uint32_t n);
/* Frees the plans, which no thread may evaluate any more, and empties the set. */
void lm_plan_set_clear(lm_plan_set *set);
/* Returns whether the set and its plans obey their laws. */
bool lm_plan_set_is_valid(const lm_plan_set *set);

#endif
