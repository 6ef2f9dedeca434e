/* gate.c - makes gates of the nodes of a plan.
 *
 * Lua reckons with doubles, which are exact for whole numbers below 2^53. No number that is read is
 * above 2^47, which addresses are not either; so a sum of them, taken FACTORS times in all, and of
 * whole constants below WHOLE is the same in whole numbers, whatever the order. */
#include "plan/gate.h"

#include <math.h>
#include <string.h>

#include "plan/plan.h"

enum { FACTORS = 16 };
#define WHOLE 0x1p50
/* No number or sum reaches what is below this, or MOST; both are exact as doubles. */
#define LEAST (-0x1p62)
#define MOST 0x1p62

/* ---- Sums --------------------------------------------------------------------------------- */

/* Terms, by input and arg, and a constant. Law: with terms, the constant is whole. */
typedef struct sum {
  unsigned n;
  lm_term term[LM_GATE_TERMS];
  double k;
} sum;

static bool is_whole(double k) { return fabs(k) <= WHOLE && k == floor(k); }

static bool is_read_by(const lm_term *a, const lm_term *b) {
  return a->input == b->input && a->arg == b->arg;
}

static bool is_before(const lm_term *a, const lm_term *b) {
  return a->input != b->input ? a->input < b->input : a->arg < b->arg;
}

/* False: there is no room for it. */
static bool add_term(sum *s, const lm_term *more, int times) {
  unsigned i = 0;
  while (i < s->n && is_before(&s->term[i], more)) i++;
  bool is_there = i < s->n && is_read_by(&s->term[i], more);
  int factor = more->factor * times + (is_there ? s->term[i].factor : 0);
  if (factor < -FACTORS || factor > FACTORS || (!is_there && s->n == LM_GATE_TERMS)) return false;
  unsigned rest = s->n - i - is_there, put = factor != 0;
  memmove(&s->term[i + put], &s->term[i + is_there], rest * sizeof *s->term);
  s->n += put - is_there;
  if (put) s->term[i] = (lm_term){ more->input, more->arg, (int8_t)factor, 0 };
  return true;
}

static bool is_exact(const sum *s) {
  int factors = 0;
  for (unsigned i = 0; i < s->n; i++)
    factors += s->term[i].factor < 0 ? -s->term[i].factor : s->term[i].factor;
  return !s->n || (factors <= FACTORS && is_whole(s->k));
}

/* More of another, so many times, which is a small whole number. */
static bool add(sum *s, const sum *more, int times) {
  if ((s->n || more->n) && !(is_whole(s->k) && is_whole(more->k))) return false;
  for (unsigned i = 0; i < more->n; i++)
    if (!add_term(s, &more->term[i], times)) return false;
  s->k += times * more->k;
  return is_exact(s);
}

/* By a constant. */
static bool scale(sum *s, const sum *by) {
  if (by->n || !is_whole(by->k) || fabs(by->k) > FACTORS) return false;
  sum none = { .k = 0 };
  if (!add(&none, s, (int)by->k)) return false;
  *s = none;
  return true;
}

/* Of such requests the alignment is known, and whether they are to be zeroed. */
static sum input_of(unsigned input, unsigned arg) {
  if (input == LM_IN_ALIGN || input == LM_IN_ZERO)
    return (sum){ .k = input == LM_IN_ALIGN ? 16 : 0 };
  bool has_arg = input == LM_IN_NODE_FREE || input == LM_IN_DEVICE_FREE;
  return (sum){ .n = 1, .term = { { (uint8_t)input, has_arg ? (uint8_t)arg : 0, 1, 0 } } };
}

/* What an instruction makes of the last on the stack, *b, and of what is below it. */
static bool reckon(unsigned op, sum *a, sum *b) {
  if (op == LM_OP_ADD) return add(a, b, 1);
  if (op == LM_OP_SUB) return add(a, b, -1);
  if (op == LM_OP_NEG) return scale(b, &(sum){ .k = -1 });
  if (op != LM_OP_MUL) return false;
  if (b->n) {
    sum by = *a;
    *a = *b;
    *b = by;
  }
  return scale(a, b);
}

/* left - right of a node's comparison, and the constant it is then compared with. */
static bool sum_of(const lm_plan *plan, const lm_node *node, sum *out, double *bound) {
  sum stack[LM_STACK + 1] = { 0 };
  unsigned n = 0;
  for (uint32_t i = node->code; i < node->code + node->code_n; i++) {
    const lm_code *c = &plan->code[i];
    if (c->op == LM_OP_INPUT && c->arg >= LM_NODES_MAX) return false;
    if (c->op == LM_OP_CONST) stack[n++] = (sum){ .k = c->k };
    else if (c->op == LM_OP_INPUT) stack[n++] = input_of(c->input, c->arg);
    else if (!reckon(c->op, &stack[n > 1 ? n - 2 : 0], &stack[n - 1])) return false;
    else n -= c->op != LM_OP_NEG;
  }
  double left = stack[0].k, right = stack[1].k;
  if (left != 0 && right != 0 && !(is_whole(left) && is_whole(right))) return false;
  *bound = right - left;
  stack[0].k = stack[1].k = 0;
  *out = stack[0];
  return add(out, &stack[1], -1) && out->n;
}

/* ---- Numbers ------------------------------------------------------------------------------ */

/* What a tree reads, and the sums that it makes of that. */
typedef struct numbers {
  unsigned n;
  sum of[LM_GATE_NUMBERS];
} numbers;

static bool is_same(const sum *a, const sum *b) {
  bool same = a->n == b->n;
  for (unsigned i = 0; same && i < a->n; i++)
    same = is_read_by(&a->term[i], &b->term[i]) && a->term[i].factor == b->term[i].factor;
  return same;
}

/* LM_GATE_NUMBERS: there are too many. */
static uint8_t number_of(numbers *all, const sum *s) {
  for (unsigned i = 0; i < all->n; i++)
    if (is_same(&all->of[i], s)) return (uint8_t)i;
  if (all->n < LM_GATE_NUMBERS) all->of[all->n++] = *s;
  else return LM_GATE_NUMBERS;
  return (uint8_t)(all->n - 1);
}

static bool is_plain(const sum *s) { return s->n == 1 && s->term[0].factor == 1; }

static bool number_terms(numbers *all, sum *s) {
  bool all_have = true;
  for (unsigned i = 0; i < s->n; i++) {
    sum one = input_of(s->term[i].input, s->term[i].arg);
    if (s->term[i].input == LM_IN_SIZE) continue;
    s->term[i].number = number_of(all, &one);
    all_have = all_have && s->term[i].number < LM_GATE_NUMBERS;
  }
  return all_have;
}

/* ---- Gates -------------------------------------------------------------------------------- */

/* How many whole numbers from LEAST on are below a bound. */
static uint64_t span_below(double bound) {
  if (!(bound > LEAST)) return 0; /* not a number, too */
  return (uint64_t)(int64_t)(bound < MOST ? bound : MOST) - (uint64_t)(int64_t)LEAST;
}

static void set_range(lm_gate *gate, unsigned cmp, double k) {
  gate->from = (int64_t)LEAST;
  gate->span = 0;
  if (cmp == LM_CMP_LT) gate->span = span_below(ceil(k));
  if (cmp == LM_CMP_LE) gate->span = span_below(floor(k) + 1);
  if (cmp != LM_CMP_EQ || !(k >= LEAST && k < MOST)) return;
  gate->from = (int64_t)k;
  gate->span = (double)gate->from == k;
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

/* What it reads, and which of that leads to yes; LM_GATE_NUMBERS: nothing that a gate can. */
static uint8_t ask_of(lm_gate *gate, const lm_plan *plan, const lm_node *node, numbers *all) {
  double bound = node->k;
  sum s = input_of(node->input, node->arg);
  if (is_known(node) || (node->code_n && !sum_of(plan, node, &s, &bound))) return LM_GATE_NUMBERS;
  if (!node->code_n && node->arg >= LM_NODES_MAX) return LM_GATE_NUMBERS;
  if (!is_plain(&s) && !number_terms(all, &s)) return LM_GATE_NUMBERS;
  set_range(gate, node->cmp, bound);
  gate->input = is_plain(&s) ? s.term[0].input : LM_GATE_SUM;
  gate->arg = s.term[0].arg;
  bool has_size = s.term[0].input == LM_IN_SIZE; /* the first, where there is one */
  if (has_size) gate->sizes = s.term[0].factor;
  gate->terms = (uint8_t)(s.n - has_size);
  memcpy(gate->term, &s.term[has_size], gate->terms * sizeof *s.term);
  return number_of(all, &s);
}

static bool asks_live(const lm_gate *gate) {
  bool asks = false;
  for (unsigned i = 0; i < gate->terms; i++) asks = asks || gate->term[i].input == LM_IN_LIVE;
  return asks;
}

static void fill(lm_gate *gate, const lm_plan *plan, uint32_t i, numbers *all) {
  const lm_node *node = &plan->node[i];
  *gate = (lm_gate){ 0 };
  gate->number = ask_of(gate, plan, node, all);
  if (gate->number == LM_GATE_NUMBERS) gate->input = LM_GATE_SHUT;
  gate->yes = target(plan, i, node->yes);
  gate->no = target(plan, i, node->no);
  if (!asks_live(gate)) return;
  if (gate->yes < 0) gate->yes -= LM_GATE_COUNTED;
  if (gate->no < 0) gate->no -= LM_GATE_COUNTED;
}

/* What a gate reads itself, and whether none of it takes a call. */
static uint16_t own_of(const lm_gate *gate, bool *at_once) {
  uint32_t own = 0, quick = 1u << LM_IN_LIVE | 1u << LM_IN_NODE | 1u << LM_IN_NODE_FREE;
  *at_once = true;
  for (unsigned i = 0; i < gate->terms; i++) {
    unsigned input = gate->term[i].input;
    unsigned number = gate->input == LM_GATE_SUM ? gate->term[i].number : gate->number;
    *at_once = *at_once && quick >> input & 1;
    own |= 1u << number;
  }
  return (uint16_t)own;
}

/* Of a gate whose ways are known: from the last to the first, since each leads to later ones. */
static void look_behind(lm_gate *gate) {
  int64_t to[2] = { gate->yes, gate->no };
  bool at_once;
  uint16_t own = own_of(gate, &at_once);
  gate->ask = LM_GATE_FAR;
  if (gate->input == LM_GATE_SHUT) return;
  for (int k = 0; k < 2; k++) {
    const lm_gate *next = &gate[to[k] > 0 ? to[k] : 0];
    gate->behind |= next->number == gate->number ? next->behind : next->reads;
  }
  gate->reads = gate->behind | own;
  if (at_once && !(gate->behind & own)) gate->ask = gate->input;
}

lm_gate *lm_gates_make(const lm_plan *plan) {
  uint32_t others = 1u << LM_IN_SIZE | 1u << LM_IN_ALIGN | 1u << LM_IN_ZERO;
  numbers all = { .n = 0 };
  if (!(plan->reads & ~others)) return NULL;
  lm_gate *gates = lm_metadata_alloc(plan->nodes * sizeof *gates);
  for (uint32_t i = 0; gates && i < plan->nodes; i++) fill(&gates[i], plan, i, &all);
  for (uint32_t i = plan->nodes; gates && i-- > 0;) look_behind(&gates[i]);
  return gates;
}

void lm_gates_destroy(const lm_gate *gates) { lm_metadata_free((void *)(uintptr_t)gates); }
