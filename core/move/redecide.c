/* redecide.c - what a live block would get if it were asked for now. */
#include "move/redecide.h"

#include "engine/live_bytes.h"
#include "pages/provided.h"

/* The numbers of a request that is put together, and the node, asked for once. */
typedef struct guess {
  lm_inputs request; /* first: its gauge finds the rest */
  const void *base;
  int node; /* UNASKED; -1: nobody knows */
} guess;

const char lm_redecide_keeps_handler[] = "a block keeps its handler";
const char lm_redecide_keeps_kind[] = "memory of its kind stays what it is";

enum { UNASKED = -2, SIZES = 2, ALIGNS = 2, ZEROS = 2 };

static unsigned node_of(guess *g) {
  if (g->node == UNASKED) g->node = lm_numa_of(g->base);
  return g->node < 0 ? lm_numa_here() : (unsigned)g->node;
}

static double read_gauge(const lm_inputs *request, int input, unsigned arg) {
  if (input == LM_IN_NODE) return node_of((guess *)request);
  if (input == LM_IN_DEVICE) return -1;
  if (input == LM_IN_NODE_FREE) return (double)lm_numa_free(arg);
  if (input == LM_IN_DEVICE_FREE) return 0;
  lm_thread *t = lm_thread_get();
  return t ? (double)lm_live_of(t, request->site) : 0;
}

static lm_redecision refused(const char *why) {
  return (lm_redecision){ LM_REDECIDE_REFUSED, NULL, why };
}

/* The chain's answer, as lm_engine_alloc goes along it. */
static lm_redecision along(const lm_plan *plan, const lm_leaf *leaf, const lm_object *object) {
  const char *why = "the plan has nothing for it";
  for (uint32_t i = 0; i < leaf->n; i++) {
    lm_strategy *s = lm_strategy_at(plan->chain[leaf->first + i]);
    if (s->id == lm_strategy_whole(object->strategy))
      return (lm_redecision){ LM_REDECIDE_RIGHT, s, NULL };
    if (s->desc.kind == LM_KIND_DENY) return refused("the policy denies it now");
    if (s->desc.kind != LM_KIND_HOST) return refused("the plan says memory of another kind now");
    if (lm_strategy_limit_left(s) >= object->size ||
        lm_strategy_limit_is_shared(s, lm_strategy_at(object->strategy)))
      return (lm_redecision){ LM_REDECIDE_OTHER, s, NULL };
    why = "the strategy is at its limit";
  }
  return refused(why);
}

static bool is_same(const lm_redecision *a, const lm_redecision *b) {
  return a->kind == b->kind && a->strategy == b->strategy && a->why == b->why;
}

/* The least size of a request that is served with such an object, and the most. */
static size_t least_of(const lm_object *object) {
  if (object->large && object->size > LM_SMALL_EVEN) return object->size - LM_PAGE + 1;
  return lm_class_min_size(lm_class_of_usable(object->size));
}

static size_t most_of(const lm_object *object) {
  if (object->large || object->size <= LM_SMALL_MAX) return object->size;
  return LM_SMALL_MAX;
}

static size_t alignment_of(const void *base) {
  size_t align = (size_t)((uintptr_t)base & -(uintptr_t)base);
  return align < 2 * LM_MIB ? align : 2 * LM_MIB;
}

/* Every request that may have been, of which the plan tells one from another. */
static lm_redecision ask(const lm_plan *plan, loam_site *site, const lm_object *object) {
  size_t size[SIZES] = { most_of(object), least_of(object) };
  size_t align[ALIGNS] = { 16, alignment_of(object->base) };
  int aligns = plan->reads & 1u << LM_IN_ALIGN ? ALIGNS : 1;
  int zeros = plan->reads & 1u << LM_IN_ZERO ? ZEROS : 1;
  guess g = { .request = { .gauge = read_gauge, .site = site },
              .base = object->base,
              .node = UNASKED };
  lm_redecision first = { 0 };
  bool differ = false;
  for (int i = 0; i < SIZES * aligns * zeros; i++) {
    g.request.size = size[i % SIZES];
    g.request.align = align[i / SIZES % aligns];
    g.request.zero = i / SIZES / aligns;
    lm_redecision w = along(plan, &plan->leaf[lm_plan_decide(plan, &g.request)], object);
    if (w.kind == LM_REDECIDE_RIGHT) return w;
    if (i == 0) first = w;
    differ = differ || !is_same(&first, &w);
  }
  return differ ? refused("the policy asks for what is not kept of a request") : first;
}

bool lm_redecide_is_nested(const lm_object *object) {
  lm_provided f;
  return object->token & LM_TOKEN_COUNTED && lm_provided_find(object->base, &f);
}

lm_redecision lm_redecide(const lm_object *object) {
  loam_site *site = lm_site_at(lm_site_token_index(object->token));
  if (!site) return refused("it is nobody's");
  lm_redecision w = ask(atomic_load_explicit(&lm_decision_now(site)->plan, memory_order_acquire),
                        site, object);
  if (w.kind == LM_REDECIDE_RIGHT) return w;
  lm_kind kind = lm_strategy_at(object->strategy)->desc.kind;
  if (kind == LM_KIND_SYSTEM) return refused("a block of the system's stays the system's");
  if (kind == LM_KIND_HANDLER) return refused(lm_redecide_keeps_handler);
  if (kind != LM_KIND_HOST) return refused(lm_redecide_keeps_kind);
  return lm_redecide_is_nested(object) ? refused(lm_redecide_keeps_handler) : w;
}
