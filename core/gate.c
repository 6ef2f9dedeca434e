/* gate.c - makes gates of the nodes of a plan. */
#include "gate.h"

#include <math.h>

#include "plan.h"

/* Numbers are whole and at least this; -1 is a device. */
enum { LEAST = -1 };
/* What no number reaches; exact as a double. */
#define MOST 0x1p62

/* The numbers that a tree reads. */
typedef struct numbers {
  unsigned n;
  struct {
    uint8_t input;
    uint16_t arg;
  } of[LM_GATE_NUMBERS];
} numbers;

/* Which of them a node reads; LM_GATE_NUMBERS: there are too many. */
static unsigned number_of(numbers *all, const lm_node *node) {
  bool has_arg = node->input == LM_IN_NODE_FREE || node->input == LM_IN_DEVICE_FREE;
  uint16_t arg = has_arg ? node->arg : 0;
  for (unsigned i = 0; i < all->n; i++)
    if (all->of[i].input == node->input && all->of[i].arg == arg) return i;
  if (all->n == LM_GATE_NUMBERS) return LM_GATE_NUMBERS;
  all->of[all->n].input = node->input;
  all->of[all->n].arg = arg;
  return all->n++;
}

/* How many whole numbers from LEAST on are below a bound. */
static uint64_t span_below(double bound) {
  if (!(bound > LEAST)) return 0; /* not a number, too */
  return bound < MOST ? (uint64_t)((int64_t)bound - LEAST) : (uint64_t)MOST;
}

static void set_range(lm_gate *gate, const lm_node *node) {
  gate->from = LEAST;
  if (node->cmp == LM_CMP_LT) gate->span = span_below(ceil(node->k));
  if (node->cmp == LM_CMP_LE) gate->span = span_below(floor(node->k) + 1);
  if (node->cmp != LM_CMP_EQ || !(node->k >= LEAST && node->k < MOST)) return;
  gate->from = (int64_t)node->k;
  gate->span = (double)gate->from == node->k;
}

static bool is_known(const lm_node *node) {
  return !node->code_n && (node->input == LM_IN_ALIGN || node->input == LM_IN_ZERO);
}

/* Where a way leads from node `from`, as yes and no say it. */
static int64_t target(const lm_plan *plan, uint32_t from, int32_t to) {
  while (to >= 0 && is_known(&plan->node[to])) {
    const lm_node *node = &plan->node[to];
    double value = node->input == LM_IN_ALIGN ? 16 : 0;
    to = lm_plan_compare(node->cmp, value, node->k) ? node->yes : node->no;
  }
  if (to >= 0) return to - (int64_t)from;
  int first = lm_plan_first(plan, (unsigned)~to);
  return lm_gate_to(first < 0 ? (uint32_t)LM_STRATEGIES_MAX : (uint32_t)first);
}

static void fill(lm_gate *gate, const lm_plan *plan, uint32_t i, numbers *all) {
  const lm_node *node = &plan->node[i];
  bool is_number = !node->code_n && !is_known(node);
  unsigned number = is_number ? number_of(all, node) : LM_GATE_NUMBERS;
  gate->input = number < LM_GATE_NUMBERS ? node->input : LM_GATE_SHUT;
  gate->number = (uint8_t)number;
  gate->arg = node->arg;
  gate->reads = gate->behind = 0;
  gate->yes = target(plan, i, node->yes);
  gate->no = target(plan, i, node->no);
  set_range(gate, node);
}

static bool is_at_once(unsigned input) {
  return input == LM_IN_SIZE || input == LM_IN_LIVE || input == LM_IN_NODE ||
         input == LM_IN_NODE_FREE;
}

/* Of a gate whose ways are known: from the last to the first, since each leads to later ones. */
static void look_behind(lm_gate *gate) {
  int64_t to[2] = { gate->yes, gate->no };
  uint8_t own = gate->input == LM_IN_SIZE ? 0 : (uint8_t)(1u << gate->number);
  gate->ask = LM_GATE_FAR;
  if (gate->input == LM_GATE_SHUT) return;
  for (int k = 0; k < 2; k++) {
    const lm_gate *next = &gate[to[k] > 0 ? to[k] : 0];
    gate->behind |= next->number == gate->number ? next->behind : next->reads;
  }
  gate->reads = gate->behind | own;
  if (is_at_once(gate->input) && !(gate->behind & own)) gate->ask = gate->input;
}

lm_gate *lm_gates_make(const lm_plan *plan) {
  uint32_t others = 1u << LM_IN_SIZE | 1u << LM_IN_ALIGN | 1u << LM_IN_ZERO;
  numbers all = { .n = 0 };
  if (!(plan->reads & ~others)) return NULL;
  lm_gate *gates = lm_own_alloc(plan->nodes * sizeof *gates);
  for (uint32_t i = 0; gates && i < plan->nodes; i++) fill(&gates[i], plan, i, &all);
  for (uint32_t i = plan->nodes; gates && i-- > 0;) look_behind(&gates[i]);
  return gates;
}

void lm_gates_destroy(const lm_gate *gates) { lm_own_free((void *)(uintptr_t)gates); }
