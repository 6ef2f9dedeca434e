/* redecide.c - which strategy a live block would get if it were requested now: it evaluates the
 * plan of the block's site for every request that may have led to the block. */
#include "move/redecide.h"

#include "engine/live_bytes.h"
#include "os/pressure.h"
#include "pages/provided.h"

/* A request that may have led to the block. The NUMA node of the block is looked up once. */
typedef struct guess {
  lm_inputs request; /* the first field, so that read_gauge can find the others */
  const void *base;  /* start of the block */
  int node;          /* NODE_UNREAD before the look-up; -1: the kernel does not tell the node */
} guess;

const char lm_redecide_keeps_handler[] = "a block keeps its handler";
const char lm_redecide_keeps_kind[] = "memory of its kind stays what it is";

/* SIZES, ALIGNS and ZEROS: how many values of each are tried. */
enum { NODE_UNREAD = -2, SIZES = 2, ALIGNS = 2, ZEROS = 2 };

bool lm_redecision_is_valid(const lm_redecision *r) {
  if (r->kind == LM_REDECIDE_REFUSED) return !r->strategy && r->why;
  return r->kind <= LM_REDECIDE_REFUSED && r->strategy && !r->why;
}

static unsigned node_of(guess *g) {
  if (g->node == NODE_UNREAD) g->node = lm_numa_of(g->base);
  return g->node < 0 ? lm_numa_here() : (unsigned)g->node;
}

/* The gauge of a guess: a host block has no device. */
static double read_gauge(const lm_inputs *request, int input, unsigned arg) {
  if (input == LM_IN_NODE) return node_of((guess *)request);
  if (input == LM_IN_DEVICE) return -1;
  if (input == LM_IN_NODE_FREE) return (double)lm_numa_free(arg);
  if (input == LM_IN_PRESSURE) return lm_pressure_now();
  if (input == LM_IN_DEVICE_FREE) return 0;
  lm_thread *t = lm_thread_get();
  return t ? (double)lm_live_of(t, request->site) : 0;
}

static lm_redecision refused(const char *why) {
  return (lm_redecision){ LM_REDECIDE_REFUSED, NULL, why };
}

/* Tries the members of a leaf's chain in order, like lm_chain_serve. */
static lm_redecision try_chain(const lm_plan *plan, const lm_leaf *leaf, const lm_object *object) {
  const char *why = "the policy has no strategy for it";
  lm_assert(leaf->first + leaf->n <= plan->chains);
  for (uint32_t i = 0; i < leaf->n; i++) {
    lm_strategy *s = lm_strategy_at(plan->chain[leaf->first + i]);
    if (s->id == lm_strategy_whole(object->strategy))
      return (lm_redecision){ LM_REDECIDE_RIGHT, s, NULL };
    if (s->desc.kind == LM_KIND_DENY) return refused("the policy denies it now");
    if (s->desc.kind != LM_KIND_HOST)
      return refused("the policy now gives it memory of another kind");
    if (lm_strategy_limit_left(s) >= object->size ||
        lm_strategy_limit_is_shared(s, lm_strategy_at(object->strategy)))
      return (lm_redecision){ LM_REDECIDE_OTHER, s, NULL };
    why = "the strategy is at its limit";
  }
  return refused(why);
}

static bool is_equal(const lm_redecision *a, const lm_redecision *b) {
  return a->kind == b->kind && a->strategy == b->strategy && a->why == b->why;
}

/* The least size of a request that gets such an object. */
static size_t least_of(const lm_object *object) {
  if (object->large && object->size > LM_SMALL_EVEN) return object->size - LM_PAGE + 1;
  return lm_class_min_size(lm_class_of_usable(object->size));
}

/* The greatest size of a request that gets such an object. */
static size_t most_of(const lm_object *object) {
  if (object->large || object->size <= LM_SMALL_MAX) return object->size;
  return LM_SMALL_MAX;
}

/* The alignment of an address, at most a huge page. */
static size_t alignment_of(const void *base) {
  lm_assert(base);
  size_t align = (size_t)((uintptr_t)base & -(uintptr_t)base);
  return align < 2 * LM_MIB ? align : 2 * LM_MIB;
}

/* Evaluates the plan for every request that may have led to the object. The alignment and the wish
 * for zeros are varied only if the plan reads them. */
static lm_redecision decide_all(const lm_plan *plan, loam_site *site, const lm_object *object) {
  size_t size[SIZES] = { most_of(object), least_of(object) };
  size_t align[ALIGNS] = { 16, alignment_of(object->base) };
  int aligns = plan->reads & 1u << LM_IN_ALIGN ? ALIGNS : 1;
  int zeros = plan->reads & 1u << LM_IN_ZERO ? ZEROS : 1;
  guess g = { .request = { .gauge = read_gauge, .site = site },
              .base = object->base,
              .node = NODE_UNREAD };
  lm_redecision first = { 0 };
  bool differ = false;
  for (int i = 0; i < SIZES * aligns * zeros; i++) {
    g.request.size = size[i % SIZES];
    g.request.align = align[i / SIZES % aligns];
    g.request.zero = i / SIZES / aligns;
    lm_redecision w = try_chain(plan, &plan->leaf[lm_plan_decide(plan, &g.request)], object);
    if (w.kind == LM_REDECIDE_RIGHT) return w;
    if (i == 0) first = w;
    differ = differ || !is_equal(&first, &w);
  }
  lm_assert(lm_redecision_is_valid(&first));
  return differ ? refused("the policy reads a part of the request that loam does not keep") : first;
}

bool lm_redecide_is_nested(const lm_object *object) {
  lm_provided f;
  return object->token & LM_TOKEN_COUNTED && lm_provided_find(object->base, &f);
}

lm_redecision lm_redecide(const lm_object *object) {
  lm_assert(lm_thread_self && lm_thread_self->active);
  loam_site *site = lm_site_at(lm_site_token_index(object->token));
  if (!site) return refused("it has no tag");
  /* Acquire pairs with the release of lm_site_start. Plans of policies are published by the swap of
   * generations, with which lm_decision_live_plan pairs. */
  lm_redecision w = decide_all(
      atomic_load_explicit(&lm_decision_live_plan(site)->plan, memory_order_acquire), site, object);
  if (w.kind == LM_REDECIDE_RIGHT) return w;
  lm_kind kind = lm_strategy_at(object->strategy)->desc.kind;
  if (kind == LM_KIND_SYSTEM) return refused("a block of the system's malloc cannot be moved");
  if (kind == LM_KIND_HANDLER) return refused(lm_redecide_keeps_handler);
  if (kind != LM_KIND_HOST) return refused(lm_redecide_keeps_kind);
  return lm_redecide_is_nested(object) ? refused(lm_redecide_keeps_handler) : w;
}
