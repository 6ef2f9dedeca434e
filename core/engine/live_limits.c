/* live_limits.c - the limits that the live policy sets: live_limits.h. */
#include "engine/live_limits.h"

#include "engine/decision.h"
#include "os/thread.h"
#include "pages/metadata.h"

static void note_plan(lm_live_limits *out, const lm_plan *plan) {
  for (uint32_t i = 0; i < plan->chains; i++) {
    const lm_strategy *s = lm_strategy_at(plan->chain[i]);
    uint32_t family = s->family->id;
    if (s->desc.limit && family < out->n) out->member[family] = s->id + 1;
  }
}

/* The thread is active, so that no plan that it reads is freed. Most sites of a program have one
 * and the same plan; a plan is then read once for a row of such sites. */
static void note_sites(lm_live_limits *out) {
  const lm_plan *last = NULL;
  uint32_t end = LM_SITE_FIRST + lm_site_count();
  for (uint32_t i = LM_SITE_FIRST; i < end; i++) {
    loam_site *site = lm_site_at(i);
    /* Acquire pairs with the release of the loader: the plan is complete. */
    const lm_plan *plan = site ? atomic_load_explicit(&lm_decision_live_plan(site)->plan,
                                                      memory_order_acquire)
                               : NULL;
    if (plan && plan != last) note_plan(out, plan);
    last = plan;
  }
}

static bool is_member_valid(uint32_t member, uint32_t family) {
  if (!member) return true;
  if (member > lm_strategy_count()) return false;
  const lm_strategy *s = lm_strategy_at(member - 1);
  return s->desc.limit && s->family->id == family;
}

bool lm_live_limits_is_valid(const lm_live_limits *limits) {
  if (!limits->member != !limits->n) return false;
  for (uint32_t f = 0; f < limits->n; f++)
    if (!is_member_valid(limits->member[f], f)) return false;
  return true;
}

void lm_live_limits_read(lm_live_limits *out) {
  lm_thread *t = lm_thread_get();
  *out = (lm_live_limits){ .n = t ? lm_strategy_count() : 0 };
  out->member = t ? lm_metadata_alloc(out->n * sizeof *out->member) : NULL;
  if (!out->member) {
    out->n = 0;
    return;
  }
  lm_thread_enter(t);
  note_sites(out);
  lm_thread_leave(t);
  lm_verify(lm_live_limits_is_valid(out));
}

lm_limit_use lm_live_limits_of(const lm_live_limits *limits, uint32_t strategy) {
  uint32_t family = lm_strategy_at(strategy)->family->id;
  if (family >= limits->n || !limits->member[family]) return (lm_limit_use){ 0 };
  const lm_strategy *s = lm_strategy_at(limits->member[family] - 1);
  int64_t own = atomic_load_explicit(&s->account->used, memory_order_relaxed);
  uint64_t used = lm_strategy_limit_used(s);
  return (lm_limit_use){ .limit = s->desc.limit,
                         .used = used,
                         .own = own > 0 ? (uint64_t)own : 0,
                         .peak = lm_strategy_limit_peak(s, used),
                         .shared = s->desc.shared[0] ? s->desc.shared : NULL };
}

void lm_live_limits_finish(lm_live_limits *limits) { lm_metadata_free(limits->member); }
