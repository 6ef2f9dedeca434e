/* size_table.c - fills the table of a plan: the sizes of a class walk down the tree together. */
#include "plan/size_table.h"

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

/* Returns where a walk from a node (or ~leaf) ends, as an entry of the table says it, but without
 * looking for a bin: the id + 1 of the strategy that serves the leaf of every size in lo..hi; 0 if
 * no member of the leaf's chain can serve malloc's family; or ~ the index of a node that all of
 * them pass. Both ways from a node agree only where both lead to one strategy. */
static int32_t walk_from(walk *w, int32_t at, unsigned depth) {
  const lm_node *node = w->plan->node;
  for (bool holds; at >= 0 && w->fuel && is_known(w, &node[at], &holds); w->fuel--)
    at = holds ? node[at].yes : node[at].no;
  if (at < 0) return lm_plan_first_host(w->plan, (unsigned)~at) + 1;
  if (!w->fuel || !depth) return ~at;
  w->fuel--;
  int32_t way = walk_from(w, node[at].yes, depth - 1);
  return way > 0 && walk_from(w, node[at].no, depth - 1) == way ? way : ~at;
}

/* ---- Filling ------------------------------------------------------------------------------ */

static int32_t entry_of(const lm_plan *plan, unsigned c) {
  walk w = { plan, lm_class_counted_from(c), lm_class_counted_to(c), FUEL };
  int32_t way = walk_from(&w, plan->nodes ? 0 : ~0, DEPTH);
  return way <= 0 || lm_pool_bin(lm_strategy_at((uint32_t)way - 1), c) ? way : 0;
}

void lm_size_table_fill(lm_size_table *table, const lm_plan *plan) {
  for (unsigned c = 0; c < LM_CLASSES_ALL; c++)
    table->entry[c] = c == LM_CLASS_ALIGNED ? 0 : entry_of(plan, c);
  lm_verify(lm_size_table_is_valid(table, plan));
}

bool lm_size_table_is_valid(const lm_size_table *table, const lm_plan *plan) {
  for (unsigned c = 0; c < LM_CLASSES_ALL; c++) {
    int32_t entry = table->entry[c];
    if (entry < 0 && (uint32_t)~entry >= plan->nodes) return false;
    if (entry <= 0) continue;
    uint32_t id = (uint32_t)entry - 1;
    if (id >= lm_strategy_count() || !lm_pool_bin(lm_strategy_at(id), c)) return false;
  }
  return true;
}
