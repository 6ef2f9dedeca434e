/* plan_text_write.c - writes a plan as text for the environment: two hexadecimal digits for each
 * byte, and `z` with two digits for a run of that many zeros. plan/plan_text.c reads it. */
#include "cli/plan_text_write.h"

#include <stdio.h>
#include <string.h>

enum { RUN_MAX = 255 }; /* zeros that two digits can count */

/* The bytes to be written as text.
 * Law: size <= sizeof bytes. */
typedef struct writer {
  size_t size;
  bool failed;
  _Alignas(8) unsigned char bytes[LM_PLAN_TEXT_BYTES];
} writer;

/* Appends bytes; sets `failed` if there is no room. */
static void put(writer *w, const void *data, size_t size) {
  lm_assert(w->size <= sizeof w->bytes);
  w->failed = w->failed || size > sizeof w->bytes - w->size;
  if (w->failed || !size) return;
  memcpy(w->bytes + w->size, data, size);
  w->size += size;
}

/* Tells whether every machine can serve the strategy: it asks nothing that a machine may lack. */
static bool is_carried(const lm_desc *d) {
  return lm_plan_text_has_kind(d->kind) && d->placement.mode == LM_BIND_DEFAULT && !d->lock &&
         d->huge <= LM_HUGE_THP;
}

static lm_plan_text_member member_of(const lm_desc *d) {
  lm_plan_text_member m = { .align = d->align,
                            .limit = d->limit,
                            .guard = d->guard,
                            .kind = (uint8_t)d->kind,
                            .huge = (uint8_t)d->huge,
                            .zero = d->zero,
                            .prefault = d->prefault };
  snprintf(m.name, sizeof m.name, "%s", d->name);
  return m;
}

/* Writes the bytes as text. False: the text would be too long. */
static bool write_text(const writer *w, char text[LM_PLAN_TEXT_SIZE]) {
  size_t at = 0;
  for (size_t i = 0; i < w->size;) {
    unsigned run = 0;
    while (i + run < w->size && run < RUN_MAX && !w->bytes[i + run]) run++;
    if (at + 4 > LM_PLAN_TEXT_SIZE) return false;
    if (run > 1) at += (size_t)sprintf(text + at, "z%02x", run);
    else at += (size_t)sprintf(text + at, "%02x", w->bytes[i]);
    i += run > 1 ? run : 1;
  }
  return true;
}

/* Numbers the plan's strategies in the order in which its chains name them: ids[i] is the id of
 * strategy i, and chain[k] is the number of the plan's chain[k]. Returns how many strategies there
 * are; 0: there are too many, or one of them cannot be carried. */
static uint32_t number_members(const lm_plan *plan, uint32_t *chain,
                               uint32_t ids[LM_PLAN_TEXT_MEMBERS]) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < plan->chains; i++) {
    uint32_t at = 0;
    while (at < n && ids[at] != plan->chain[i]) at++;
    if (at == LM_PLAN_TEXT_MEMBERS || !is_carried(&lm_strategy_at(plan->chain[i])->desc)) return 0;
    if (at == n) ids[n++] = plan->chain[i];
    chain[i] = at;
  }
  return n;
}

bool lm_plan_text_write(const lm_plan *plan, const char *policy, bool applies_live,
                        char text[LM_PLAN_TEXT_SIZE]) {
  enum { CHAINS = LM_PLAN_TEXT_BYTES / 4 };
  uint32_t ids[LM_PLAN_TEXT_MEMBERS], chain[CHAINS];
  uint32_t of_request = 1u << LM_IN_SIZE | 1u << LM_IN_ALIGN | 1u << LM_IN_ZERO | 1u << LM_IN_LIVE;
  lm_assert(plan && policy);
  writer w = { .size = 0 };
  lm_plan_text_head h = { .magic = LM_PLAN_TEXT_MAGIC, .applies_live = applies_live };
  if (plan->reads & ~of_request || plan->chains > CHAINS) return false;
  h.members = number_members(plan, chain, ids);
  if (!h.members) return false;
  snprintf(h.policy, sizeof h.policy, "%s", policy);
  put(&w, &h, sizeof h);
  for (uint32_t i = 0; i < h.members; i++) {
    lm_plan_text_member m = member_of(&lm_strategy_at(ids[i])->desc);
    put(&w, &m, sizeof m);
  }
  lm_image image = { LM_PLAN_MAGIC, plan->nodes, plan->codes, plan->leaves, plan->chains, 0 };
  put(&w, &image, sizeof image);
  put(&w, plan->node, plan->nodes * sizeof *plan->node);
  put(&w, plan->code, plan->codes * sizeof *plan->code);
  put(&w, plan->leaf, plan->leaves * sizeof *plan->leaf);
  put(&w, chain, plan->chains * sizeof *chain);
  return !w.failed && write_text(&w, text);
}
