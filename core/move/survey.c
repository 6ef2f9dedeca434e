/* survey.c - decides for the live blocks of an extent whether a job moves them: survey.h. */
#include "move/survey.h"

#include <stdio.h>
#include <string.h>

#include "device/device_pool.h"
#include "heap/age.h"
#include "heap/walk.h"
#include "move/redecide.h"
#include "pages/metadata.h"
#include "pages/provided.h"

enum { TOKENS = 8 }; /* of one span, whose answers are remembered */

const char lm_survey_refused_before[] = "the kernel refused to move it before";

bool lm_survey_is_valid(const lm_survey *s) {
  return s->objects == s->movers + s->others && s->right <= s->others && !s->to == !s->movers &&
         !s->kept == !s->right && (!s->differ || s->movers > 1);
}

/* Returns whether the job is for blocks of this tag: the tag of the order, or a tag under it. */
static bool is_wanted(const lm_job_order *order, const lm_object *object) {
  if (!order->has_tag) return true;
  const loam_site *site = lm_site_at(lm_site_token_index(object->token));
  size_t length = strlen(order->tag);
  if (!site || strncmp(site->where.tag, order->tag, length) != 0) return false;
  return !length || !site->where.tag[length] || site->where.tag[length] == '.';
}

/* ---- Demotion ------------------------------------------------------------------------------ */

static lm_redecision refusal(const char *why) {
  return (lm_redecision){ LM_REDECIDE_REFUSED, NULL, why };
}

/* Returns the strategy for demoted memory of a strategy: an equal one that prefers the slower node.
 * NULL if there are too many strategies. */
static lm_strategy *demoted(const lm_strategy *from, unsigned node) {
  lm_strategy *to;
  lm_desc desc = from->desc;
  lm_assert(node < LM_NODES_MAX);
  snprintf(desc.name, sizeof desc.name, "%.48s@node%u", from->desc.name, node);
  desc.limit = desc.soft = 0;
  memset(desc.shared, 0, sizeof desc.shared);
  desc.guard = 0;
  desc.prefault = false;
  desc.placement = (lm_placement){ .mode = LM_BIND_PREFERRED, .nodes = 1ull << node };
  return lm_strategy_intern(&desc, &to) == LOAM_OK ? to : NULL;
}

static bool is_on_node(const lm_strategy *s, unsigned node) {
  const lm_placement *p = &s->desc.placement;
  return p->nodes == 1ull << node && (p->mode == LM_BIND_PREFERRED || p->mode == LM_BIND_BIND);
}

/* Like lm_redecide, for a job that demotes. With advice instead of a node, a block that gets the
 * advice keeps its strategy. */
static lm_redecision decide_demotion(const lm_job_order *order, const lm_object *object) {
  lm_strategy *from = lm_strategy_at(object->strategy);
  if (lm_redecide_is_nested(object)) return refusal(lm_redecide_keeps_handler);
  if (from->desc.kind != LM_KIND_HOST) return refusal(lm_redecide_keeps_kind);
  if (order->older_s && !object->large) return refusal("small objects have no age");
  if (order->older_s && lm_age_of(lm_map_slot(object->base)) < order->older_s)
    return refusal("it is younger");
  if (order->to != LOAM_TO_NODE) return (lm_redecision){ LM_REDECIDE_OTHER, from, NULL };
  if (is_on_node(from, (unsigned)order->node))
    return (lm_redecision){ LM_REDECIDE_RIGHT, from, NULL };
  lm_strategy *to = demoted(from, (unsigned)order->node);
  return to ? (lm_redecision){ LM_REDECIDE_OTHER, to, NULL }
            : refusal("there are too many strategies");
}

/* ---- Objects of an extent ------------------------------------------------------------------ */

/* A walk over one extent. Its objects have one size and one strategy, so the answer for an object
 * depends on its token alone: the first TOKENS answers are remembered. Law: known <= TOKENS. */
typedef struct scan {
  const lm_job_order *order;
  uint32_t slot;
  lm_move_report *report; /* NULL: only count */
  const char *instead;    /* the reason by which movers are reported; NULL: not reported */
  lm_survey sum;
  uint32_t known;
  lm_token token[TOKENS];
  lm_redecision answer[TOKENS];
} scan;

LM_INLINE bool scan_is_valid(const scan *s) { return s->known <= TOKENS; }

/* The answer for an object, remembered if possible. An object whose token is counted may be nested
 * (lm_redecide_is_nested), so its answer depends on its address too. */
static lm_redecision answer_for(scan *s, const lm_object *object) {
  lm_assert(scan_is_valid(s));
  for (uint32_t i = 0; i < s->known; i++)
    if (s->token[i] == object->token) return s->answer[i];
  lm_redecision r = s->order->demotes ? decide_demotion(s->order, object) : lm_redecide(object);
  lm_assert(lm_redecision_is_valid(&r));
  if (object->large || s->known == TOKENS || object->token & LM_TOKEN_COUNTED) return r;
  s->token[s->known] = object->token;
  s->answer[s->known++] = r;
  lm_assert(scan_is_valid(s));
  return r;
}

/* Adds an object that is right or refused to a report. */
static void report_stay(lm_move_report *report, const lm_object *object, const lm_redecision *r) {
  bool right = r->kind == LM_REDECIDE_RIGHT;
  lm_move_report_add(report, object->token, right ? lm_move_report_right : lm_move_report_refused,
                     right ? "" : r->why, object->size);
}

static void note_mover(scan *s, const lm_object *object, const lm_redecision *r) {
  s->sum.movers++;
  s->sum.differ = s->sum.differ || (s->sum.to && s->sum.to != r->strategy);
  s->sum.to = r->strategy;
  if (s->report && s->instead)
    lm_move_report_add(s->report, object->token, lm_move_report_refused, s->instead, object->size);
}

static void note_stay(scan *s, const lm_object *object, const lm_redecision *r) {
  bool right = r->kind == LM_REDECIDE_RIGHT;
  s->sum.others++;
  s->sum.right += right;
  if (right) s->sum.kept = lm_strategy_at(object->strategy);
  if (s->report) report_stay(s->report, object, r);
}

static void scan_object(void *ctx, const lm_object *object) {
  scan *s = ctx;
  s->sum.objects++;
  if (!is_wanted(s->order, object)) {
    s->sum.others++;
    return;
  }
  uint32_t use = atomic_load_explicit(&lm_map_span(s->slot)->use, memory_order_relaxed);
  lm_redecision r;
  if (use == LM_USE_GUARDED) r = refusal("a guarded block stays where it is");
  else if (use == LM_USE_UNPREPARED) r = refusal(lm_survey_refused_before);
  else r = answer_for(s, object);
  if (r.kind == LM_REDECIDE_OTHER) note_mover(s, object, &r);
  else note_stay(s, object, &r);
}

lm_survey lm_survey_extent(const lm_job_order *order, uint32_t slot) {
  scan s = { .order = order, .slot = slot };
  lm_walk_extent(slot, scan_object, &s);
  lm_assert(lm_survey_is_valid(&s.sum));
  return s.sum;
}

void lm_survey_report(const lm_job_order *order, uint32_t slot, const char *instead,
                      lm_move_report *report) {
  scan s = { .order = order, .slot = slot, .report = report, .instead = instead };
  lm_assert(report);
  lm_walk_extent(slot, scan_object, &s);
}

/* ---- Blocks of handlers, of the system, of devices ------------------------------------------ */

/* Blocks that are walked, and the report that they go to. */
typedef struct inventory {
  const lm_job_order *order;
  lm_move_report *report;
  lm_object *object; /* copies; NULL: blocks are only counted */
  size_t n, room;    /* blocks found; room for copies */
} inventory;

/* Decides for a provided block; never LM_REDECIDE_OTHER. */
static lm_redecision decide_provided(const lm_job_order *order, const lm_object *object) {
  if (!order->demotes) return lm_redecide(object);
  lm_kind kind = lm_strategy_at(object->strategy)->desc.kind;
  bool is_handlers = kind == LM_KIND_SYSTEM || kind == LM_KIND_HANDLER;
  lm_assert(kind != LM_KIND_HOST); /* such blocks are objects of pools */
  return refusal(is_handlers ? lm_redecide_keeps_handler : lm_redecide_keeps_kind);
}

static void report_object(const inventory *v, const lm_object *object) {
  if (!is_wanted(v->order, object)) return;
  lm_redecision r = decide_provided(v->order, object);
  lm_assert(r.kind != LM_REDECIDE_OTHER); /* lm_redecide moves host memory only */
  report_stay(v->report, object, &r);
}

static lm_object object_of(const lm_provided *block) {
  bool large = block->size > LM_SMALL_MAX;
  return (lm_object){ block->base, block->size, block->token, block->strategy, large, NULL };
}

static void report_provided(void *ctx, lm_provided *block) {
  lm_object object = object_of(block);
  report_object(ctx, &object);
}

static void copy_block(void *ctx, lm_provided *block) {
  inventory *v = ctx;
  if (v->n < v->room) v->object[v->n] = object_of(block);
  v->n++;
}

/* Blocks of device pools are copied first, because a plan must not be evaluated under the lock of a
 * pool. Blocks that are allocated between the two walks may be missed. */
static void report_device_pools(inventory *v) {
  lm_device_pool_each(copy_block, v);
  if (!v->n) return;
  v->room = v->n + v->n / 8; /* other threads allocate between the walks */
  v->n = 0;
  v->object = lm_metadata_alloc(v->room * sizeof *v->object);
  if (!v->object) return;
  lm_device_pool_each(copy_block, v);
  for (size_t i = 0; i < v->n && i < v->room; i++) report_object(v, &v->object[i]);
  lm_metadata_free(v->object);
}

void lm_survey_provided(const lm_job_order *order, lm_move_report *report) {
  inventory v = { .order = order, .report = report };
  lm_assert(report);
  lm_provided_each(report_provided, &v);
  report_device_pools(&v);
}
