/* size_table.c - fills the table of a plan: the sizes of a class walk down the tree together. */
#include "plan/size_table.h"

#include <math.h>

#include "heap/tcache_slow.h"
#include "plan/plan.h"

/* Sizes lo..hi on their way down the tree. A node that they answer differently is followed both
 * ways, which could double the work at each such node, so `fuel` bounds it. */
typedef struct walk {
  const lm_plan *plan;
  size_t lo, hi;
  unsigned fuel;
} walk;

/* FUEL: nodes visited for one class. DEPTH: nodes followed both ways that lead to each other. It
 * bounds the stack that a walk needs, because the plan of a new line may be made on any stack. */
enum { FUEL = 1 << 12, DEPTH = 24 };

/* What a walk returns: the id of the strategy that serves the leaf of every size in lo..hi; or
 * NODE + the index of a node that all of them pass; or NOWHERE: no member of the leaf's chain can
 * serve malloc's family. */
enum { NOWHERE = -1, NODE = LM_STRATEGIES_MAX };

/* Whether all of lo..hi answer a comparison of the size alike; *holds is that answer. */
static bool is_one_answer(const lm_node *node, size_t lo, size_t hi, bool *holds) {
  bool inside = node->cmp == LM_CMP_EQ && node->k >= (double)lo && node->k <= (double)hi;
  *holds = lm_plan_compare(node->cmp, (double)lo, node->k);
  return (!inside || lo == hi) && *holds == lm_plan_compare(node->cmp, (double)hi, node->k);
}

/* Whether requests with align 16 and zero 0 and one of the sizes all answer the node alike. */
static bool is_known(const walk *w, const lm_node *node, bool *holds) {
  if (node->code_n) return false;
  if (node->input == LM_IN_SIZE) return is_one_answer(node, w->lo, w->hi, holds);
  if (node->input == LM_IN_ALIGN) return is_one_answer(node, 16, 16, holds);
  return node->input == LM_IN_ZERO && is_one_answer(node, 0, 0, holds);
}

/* Both ways from a node agree only where both lead to one strategy. */
static int walk_from(walk *w, int32_t at, unsigned depth) {
  const lm_node *node = w->plan->node;
  for (bool holds; at >= 0 && w->fuel && is_known(w, &node[at], &holds); w->fuel--)
    at = holds ? node[at].yes : node[at].no;
  if (at < 0) return lm_plan_first(w->plan, (unsigned)~at);
  if (!w->fuel || !depth) return NODE + at;
  w->fuel--;
  int strategy = walk_from(w, node[at].yes, depth - 1);
  bool agree = strategy >= 0 && strategy < NODE && walk_from(w, node[at].no, depth - 1) == strategy;
  return agree ? strategy : NODE + at;
}

/* ---- Filling ------------------------------------------------------------------------------ */

lm_serve lm_size_table_find(lm_strategy *s, unsigned c) {
  uint32_t bin = lm_pool_bin(s, c);
  if (!bin) return (lm_serve){ LM_BIN_NONE };
  uint16_t units = c < LM_CLASSES ? (uint16_t)(lm_class_size(lm_tcache_bin_class(bin)) / 16) : 0;
  /* The share of a thread is known only when the thread asks. */
  return (lm_serve){ s->shares ? LM_BIN_HERE : bin, { { (uint16_t)s->id, units } } };
}

/* By strategy id: a row with an entry for each class, stored when a plan names the strategy. A row
 * is never freed. Its entries hold while a plan that names the strategy lives, because the loader
 * of the plan wrote them. Release at the store of a row, acquire at its load. The entries are
 * relaxed: a thread that reads them got the plan from the loader that wrote them. */
LM_SPARSE _Atomic(_Atomic(lm_serve) *) lm_size_table_noted[LM_STRATEGIES_MAX];

void lm_size_table_note(lm_strategy *s) {
  _Atomic(lm_serve) *row = atomic_load_explicit(&lm_size_table_noted[s->id], memory_order_acquire);
  _Atomic(lm_serve) *fresh = row ? row : lm_metadata_alloc(LM_CLASSES_ALL * sizeof *fresh);
  if (!fresh) return;
  for (unsigned c = 0; c < LM_CLASSES_ALL; c++)
    atomic_store_explicit(&fresh[c], lm_size_table_find(s, c), memory_order_relaxed);
  if (row) return;
  if (!atomic_compare_exchange_strong_explicit(&lm_size_table_noted[s->id], &row, fresh,
                                               memory_order_acq_rel, memory_order_acquire))
    lm_metadata_free(fresh); /* another loader was first; its entries are equal */
}

/* The least and the greatest size of a class. */
static void sizes_of(unsigned c, size_t *lo, size_t *hi) {
  if (c < LM_CLASSES) {
    *lo = lm_class_min_size(c);
    *hi = lm_class_max_size(c);
    return;
  }
  *lo = c == LM_CLASSES ? LM_SMALL_EAGER + 1 : ((size_t)lm_class_slots(c - 1) << LM_SLOT_SHIFT) + 1;
  *hi = (size_t)lm_class_slots(c) << LM_SLOT_SHIFT;
}

static lm_serve serve_of(const lm_plan *plan, unsigned c) {
  walk w = { .plan = plan, .fuel = FUEL };
  sizes_of(c, &w.lo, &w.hi);
  int id = walk_from(&w, plan->nodes ? 0 : ~0, DEPTH);
  if (id == NOWHERE) return (lm_serve){ LM_BIN_NONE };
  if (id >= NODE) return (lm_serve){ LM_BIN_ASKS, { .node = (uint32_t)(id - NODE) } };
  return lm_size_table_serve((uint32_t)id, c);
}

void lm_size_table_fill(lm_size_table *table, const lm_plan *plan) {
  for (unsigned c = 0; c < LM_CLASSES_ALL; c++)
    table->serve[c] = c == LM_CLASS_ALIGNED ? (lm_serve){ LM_BIN_NONE } : serve_of(plan, c);
  lm_verify(lm_size_table_is_valid(table, plan));
}

bool lm_size_table_is_valid(const lm_size_table *table, const lm_plan *plan) {
  for (unsigned c = 0; c < LM_CLASSES_ALL; c++) {
    const lm_serve *s = &table->serve[c];
    if (s->bin == LM_BIN_ASKS && s->node >= plan->nodes) return false;
    if (s->bin == LM_BIN_NONE || s->bin == LM_BIN_ASKS) continue;
    if (s->strategy >= LM_STRATEGIES_MAX || !s->units != (c >= LM_CLASSES)) return false;
    if (c < LM_CLASSES && s->units * (size_t)16 < lm_class_max_size(c)) return false;
  }
  return true;
}
