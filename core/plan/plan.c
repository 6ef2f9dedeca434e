/* plan.c - checks images, makes plans of them, and evaluates plans. */
#include "plan/plan.h"

#include <math.h>
#include <string.h>

#include "os/error.h"
#include "os/hash.h"

/* ---- Checking an image -------------------------------------------------------------------- */

static loam_status refuse(const char *what, unsigned index, long value) {
  return lm_error(LOAM_EINVAL, "plan image: %s %u: %ld is not valid", what, index, value);
}

/* Returns how many numbers an instruction takes from the stack. Each instruction pushes one. */
static int operands_of(unsigned op) {
  lm_assert(op < LM_OPS);
  if (op == LM_OP_CONST || op == LM_OP_INPUT) return 0;
  if (op == LM_OP_NEG || op == LM_OP_FLOOR || op == LM_OP_CEIL || op == LM_OP_ABS) return 1;
  return 2;
}

static loam_status check_code(const lm_plan *plan, const lm_node *node, unsigned index) {
  if (node->code > plan->codes || node->code_n > plan->codes - node->code)
    return refuse("code range of node", index, (long)node->code);
  int depth = 0;
  for (uint32_t i = node->code; i < node->code + node->code_n; i++) {
    const lm_code *c = &plan->code[i];
    if (c->op >= LM_OPS) return refuse("op of code", i, c->op);
    if (c->op == LM_OP_INPUT && c->input >= LM_INPUTS) return refuse("input of code", i, c->input);
    int takes = operands_of(c->op);
    if (depth < takes) return refuse("stack at code", i, depth);
    depth += 1 - takes;
    if (depth > LM_STACK) return refuse("stack at code", i, depth);
  }
  if (depth != 2) return refuse("stack after node", index, depth);
  return LOAM_OK;
}

/* Returns whether a node may go on to `to`: to a leaf, or to a node behind it. */
static bool is_target(const lm_plan *plan, uint32_t from, int32_t to) {
  if (to < 0) return (uint32_t)~to < plan->leaves;
  return (uint32_t)to > from && (uint32_t)to < plan->nodes;
}

static loam_status check_node(const lm_plan *plan, uint32_t i) {
  const lm_node *node = &plan->node[i];
  if (node->cmp > LM_CMP_EQ) return refuse("comparison of node", i, node->cmp);
  if (!is_target(plan, i, node->yes)) return refuse("yes of node", i, node->yes);
  if (!is_target(plan, i, node->no)) return refuse("no of node", i, node->no);
  if (node->code_n) return check_code(plan, node, i);
  if (node->input >= LM_INPUTS) return refuse("input of node", i, node->input);
  return LOAM_OK;
}

static loam_status check_leaf(const lm_plan *plan, uint32_t i) {
  const lm_leaf *leaf = &plan->leaf[i];
  if (leaf->n < 1 || leaf->n > LM_CHAIN_MAX) return refuse("length of leaf", i, (long)leaf->n);
  if (leaf->first > plan->chains || leaf->n > plan->chains - leaf->first)
    return refuse("chain of leaf", i, (long)leaf->first);
  return LOAM_OK;
}

/* Reserves a place for the bins of each strategy. So a policy with too many strategies fails when
 * it is loaded, not when memory is requested. */
static loam_status reserve_bins(const lm_plan *plan) {
  for (uint32_t i = 0; i < plan->chains; i++) {
    lm_strategy *s = lm_strategy_at(plan->chain[i]);
    if (lm_strategy_kind_is_pooled(s->desc.kind) && !lm_pool_reserve(s))
      return lm_error(
          LOAM_EBUDGET,
          "there are already %d strategies that hold memory or that the policy names, and no more "
          "are possible",
          LM_POOL_PLACES - 1);
  }
  return LOAM_OK;
}

static loam_status check(const lm_plan *plan) {
  loam_status status = LOAM_OK;
  if (!plan->leaves) return refuse("count of leaves", 0, 0);
  for (uint32_t i = 0; !status && i < plan->nodes; i++) status = check_node(plan, i);
  for (uint32_t i = 0; !status && i < plan->leaves; i++) status = check_leaf(plan, i);
  uint32_t strategies = lm_strategy_count();
  for (uint32_t i = 0; !status && i < plan->chains; i++)
    if (plan->chain[i] >= strategies) status = refuse("strategy in chain", i, plan->chain[i]);
  return status;
}

/* ---- Inputs that a plan reads ---------------------------------------------------------------- */

uint32_t lm_plan_node_reads(const lm_plan *plan, uint32_t index) {
  lm_assert(index < plan->nodes);
  const lm_node *node = &plan->node[index];
  if (!node->code_n) return 1u << node->input;
  uint32_t reads = 0;
  for (uint32_t i = node->code; i < node->code + node->code_n; i++)
    if (plan->code[i].op == LM_OP_INPUT) reads |= 1u << plan->code[i].input;
  return reads;
}

/* ---- Making ------------------------------------------------------------------------------- */

/* Sets the arrays of a plan: `body` is the part of the image behind its head. */
static void lay_out(lm_plan *plan, const lm_image *head, const char *body) {
  lm_assert((uintptr_t)body % _Alignof(lm_node) == 0);
  plan->nodes = head->nodes;
  plan->codes = head->codes;
  plan->leaves = head->leaves;
  plan->chains = head->chains;
  plan->node = (const lm_node *)body;
  plan->code = (const lm_code *)(plan->node + plan->nodes);
  plan->leaf = (const lm_leaf *)(plan->code + plan->codes);
  plan->chain = (const uint32_t *)(plan->leaf + plan->leaves);
}

/* Returns the size of an image by its head. */
static size_t size_of(const lm_image *head) {
  return sizeof *head + (size_t)head->nodes * sizeof(lm_node) +
         (size_t)head->codes * sizeof(lm_code) + (size_t)head->leaves * sizeof(lm_leaf) +
         (size_t)head->chains * sizeof(uint32_t);
}

_Atomic(lm_power_fn *) lm_plan_power;

/* Refuses a plan with powers while lm_plan_power is not set. */
static loam_status check_power(const lm_plan *plan) {
  for (uint32_t i = 0; i < plan->codes; i++)
    if (plan->code[i].op == LM_OP_POW && !atomic_load(&lm_plan_power))
      return lm_error(LOAM_EUNSUPPORTED, "plan image: code %u: powers need LuaJIT's pow", i);
  return LOAM_OK;
}

/* Returns the first strategy of a leaf's chain that may serve malloc, by id; -1 if there is
 * none. */
static int32_t first_host_of(const lm_plan *plan, const lm_leaf *leaf) {
  for (uint32_t i = leaf->first; i < leaf->first + leaf->n; i++)
    if (lm_strategy_at(plan->chain[i])->desc.kind != LM_KIND_DEVICE) return (int32_t)plan->chain[i];
  return -1;
}

/* Sets plan->first_host. `first` is memory that belongs to the plan, with an entry for each
 * leaf. */
static void find_first_hosts(lm_plan *plan, int32_t *first) {
  lm_assert((uintptr_t)first % _Alignof(int32_t) == 0);
  for (uint32_t i = 0; i < plan->leaves; i++) first[i] = first_host_of(plan, &plan->leaf[i]);
  plan->first_host = first;
}

loam_status lm_plan_make(const void *image, size_t size, lm_plan **out) {
  lm_image head;
  lm_assert(image && out);
  *out = NULL;
  if (size < sizeof head)
    return lm_error(LOAM_EINVAL, "plan image: it has %zu bytes; its head alone has %zu", size,
                    sizeof head);
  memcpy(&head, image, sizeof head);
  if (head.magic != LM_PLAN_MAGIC)
    return lm_error(LOAM_EINVAL, "plan image: it begins with %#x instead of %#x", head.magic,
                    (unsigned)LM_PLAN_MAGIC);
  if (size_of(&head) != size)
    return lm_error(LOAM_EINVAL, "plan image: it has %zu bytes, but its head says %zu", size,
                    size_of(&head));
  size_t more = head.leaves * sizeof(int32_t); /* for plan->first_host, behind the image */
  lm_plan *plan = lm_metadata_alloc(sizeof *plan + size + more);
  if (!plan) return lm_error(LOAM_ENOMEM, "plan image: no memory for %zu bytes", size);
  char *body = (char *)(plan + 1);
  memcpy(body, (const char *)image + sizeof head, size - sizeof head);
  lay_out(plan, &head, body);
  loam_status status = check(plan);
  if (!status) status = check_power(plan);
  if (!status) status = reserve_bins(plan);
  if (status) {
    lm_metadata_free(plan);
    return status;
  }
  for (uint32_t i = 0; i < plan->nodes; i++) plan->reads |= lm_plan_node_reads(plan, i);
  plan->hash = lm_hash_words(LM_HASH_NONE, image, size);
  find_first_hosts(plan, (int32_t *)(body + size - sizeof head));
  lm_size_table_fill(&plan->table, plan);
  lm_verify(lm_plan_is_valid(plan));
  *out = plan;
  return LOAM_OK;
}

static lm_image head_of(const lm_plan *plan) {
  return (lm_image){ LM_PLAN_MAGIC, plan->nodes, plan->codes, plan->leaves, plan->chains, 0 };
}

size_t lm_plan_image_size(const lm_plan *plan) {
  lm_image head = head_of(plan);
  return size_of(&head);
}

static char *put(char *out, const void *part, size_t size) {
  memcpy(out, part, size);
  return out + size;
}

uint32_t *lm_plan_write(const lm_plan *plan, void *image) {
  lm_image head = head_of(plan);
  char *out = put(image, &head, sizeof head);
  out = put(out, plan->node, plan->nodes * sizeof *plan->node);
  out = put(out, plan->code, plan->codes * sizeof *plan->code);
  out = put(out, plan->leaf, plan->leaves * sizeof *plan->leaf);
  put(out, plan->chain, plan->chains * sizeof *plan->chain);
  return (uint32_t *)(void *)out;
}

void lm_plan_destroy(lm_plan *plan) { lm_metadata_free(plan); }

bool lm_plan_is_valid(const lm_plan *plan) {
  if (check(plan)) return false;
  for (uint32_t i = 0; i < plan->leaves; i++)
    if (plan->first_host[i] != first_host_of(plan, &plan->leaf[i])) return false;
  return lm_size_table_is_valid(&plan->table, plan);
}

/* ---- Deciding ----------------------------------------------------------------------------- */

/* The numbers of the gauges of one evaluation. A gauge without an argument has the number of its
 * input. Behind these stand the free memory of each node, and the free memory of each device. */
enum {
  NODE_FREE = LM_INPUTS,
  DEVICE_FREE = NODE_FREE + LM_NODES_MAX,
  GAUGES = DEVICE_FREE + LM_NODES_MAX
};

/* The gauges that one evaluation has read. Each is read once (read_gauge has the exception), so
 * that all conditions of the plan see one value of it. `value` of a gauge whose bit in `known`
 * is not set is not initialised. */
typedef struct reading {
  const lm_inputs *request;
  uint64_t known[(GAUGES + 63) / 64]; /* bits of gauges */
  double value[GAUGES];
} reading;

/* Returns the fixed value of a gauge; 0 for a node or a device that the request has no value
 * for. */
static LM_NOINLINE double fixed(const lm_inputs *r, int input, unsigned arg) {
  lm_assert(input >= LM_IN_NODE && input < LM_INPUTS && input != LM_IN_LINE);
  if (input == LM_IN_NODE_FREE) return arg < r->node_free_n ? r->node_free[arg] : 0;
  if (input == LM_IN_DEVICE_FREE) return arg < r->device_free_n ? r->device_free[arg] : 0;
  return r->fixed[input];
}

LM_INLINE double gauge(const lm_inputs *r, int input, unsigned arg) {
  return lm_likely(r->gauge != NULL) ? r->gauge(r, input, arg) : fixed(r, input, arg);
}

/* Returns a gauge, which is read if it is not known yet. A node or device above the last one that
 * there can be is read each time. */
LM_INLINE double read_gauge(reading *g, unsigned input, unsigned arg) {
  unsigned at = input;
  if (input == LM_IN_NODE_FREE || input == LM_IN_DEVICE_FREE) {
    if (lm_unlikely(arg >= LM_NODES_MAX)) return gauge(g->request, (int)input, arg);
    at = arg + (input == LM_IN_NODE_FREE ? NODE_FREE : DEVICE_FREE);
  }
  uint64_t *known = &g->known[at / 64], bit = (uint64_t)1 << at % 64;
  if (!(*known & bit)) g->value[at] = gauge(g->request, (int)input, arg);
  *known |= bit;
  return g->value[at];
}

LM_INLINE double read_input(reading *g, unsigned input, unsigned arg) {
  const lm_inputs *r = g->request;
  lm_assert(input < LM_INPUTS);
  switch (input) {
    case LM_IN_SIZE: return (double)r->size;
    case LM_IN_ALIGN: return (double)r->align;
    case LM_IN_ZERO: return r->zero;
    case LM_IN_LINE: return (double)r->line;
    default: return read_gauge(g, input, arg);
  }
}

/* Returns a % b as LuaJIT does. `volatile` keeps the compiler from fusing the product with the
 * difference into one instruction, which rounds once instead of twice. */
static double modulo(double a, double b) {
  volatile double whole = floor(a / b) * b;
  return a - whole;
}

/* Like LuaJIT, min and max return the second operand if one operand is NaN. lm_plan_power is
 * read relaxed: it never changes after check_power has seen it set. */
static double binary(unsigned op, double a, double b) {
  switch (op) {
    case LM_OP_ADD: return a + b;
    case LM_OP_SUB: return a - b;
    case LM_OP_MUL: return a * b;
    case LM_OP_DIV: return a / b;
    case LM_OP_MOD: return modulo(a, b);
    case LM_OP_POW: return atomic_load_explicit(&lm_plan_power, memory_order_relaxed)(a, b);
    case LM_OP_MIN: return a < b ? a : b;
    default: return a > b ? a : b;
  }
}

static double unary(unsigned op, double a) {
  switch (op) {
    case LM_OP_NEG: return -a;
    case LM_OP_FLOOR: return floor(a);
    case LM_OP_CEIL: return ceil(a);
    default: return fabs(a);
  }
}

/* Runs the instructions of a node; returns whether its condition holds. */
LM_INLINE bool run_code(reading *g, const lm_plan *plan, const lm_node *node) {
  double stack[LM_STACK + 1];
  double *top = stack; /* one above the last number */
  const lm_code *end = plan->code + node->code + node->code_n;
  for (const lm_code *c = plan->code + node->code; c < end; c++) {
    if (c->op == LM_OP_CONST) {
      *top++ = c->k;
    } else if (c->op == LM_OP_INPUT) {
      *top++ = read_input(g, c->input, c->arg);
    } else if (operands_of(c->op) == 1) {
      top[-1] = unary(c->op, top[-1]);
    } else {
      top--;
      top[-1] = binary(c->op, top[-1], top[0]);
    }
  }
  lm_assert(top == stack + 2);
  return lm_plan_compare(node->cmp, stack[0], stack[1]);
}

/* Prepares a reading of a request: nothing is read so far. */
LM_INLINE void begin(reading *g, const lm_inputs *request) {
  g->request = request;
  memset(g->known, 0, sizeof g->known);
}

LM_INLINE bool holds_at(reading *g, const lm_plan *plan, const lm_node *node) {
  return node->code_n ? run_code(g, plan, node)
                      : lm_plan_compare(node->cmp, read_input(g, node->input, node->arg), node->k);
}

bool lm_plan_node_holds(const lm_plan *plan, uint32_t node, const lm_inputs *request) {
  reading g;
  lm_assert(node < plan->nodes);
  begin(&g, request);
  return holds_at(&g, plan, &plan->node[node]);
}

/* Follows the tree from a node (or ~leaf); returns the index of the leaf. */
static unsigned decide(const lm_plan *plan, int32_t at, const lm_inputs *request) {
  reading g;
  begin(&g, request);
  while (at >= 0) {
    const lm_node *node = &plan->node[at];
    bool holds = holds_at(&g, plan, node);
    lm_assert(is_target(plan, (uint32_t)at, holds ? node->yes : node->no));
    at = holds ? node->yes : node->no;
  }
  return (unsigned)~at;
}

unsigned lm_plan_decide(const lm_plan *plan, const lm_inputs *request) {
  return decide(plan, plan->nodes ? 0 : ~0, request);
}

unsigned lm_plan_decide_from(const lm_plan *plan, uint32_t node, const lm_inputs *request) {
  lm_assert(node < plan->nodes);
  return decide(plan, (int32_t)node, request);
}

/* ---- The built-in default ----------------------------------------------------------------- */

static const lm_leaf default_leaf = { .first = 0, .n = 1, .line = 0 };
static const uint32_t default_chain[1] = { 0 };
static const int32_t default_first_host[1] = { 0 };

#define DEFAULT_PLAN                                                         \
  {                                                                          \
    .leaves = 1, .chains = 1, .leaf = &default_leaf, .chain = default_chain, \
    .first_host = default_first_host                                         \
  }

const lm_plan lm_plan_bare = DEFAULT_PLAN;
static lm_plan served = DEFAULT_PLAN; /* the default plan with a filled size table */
static _Atomic(const lm_plan *) now = &lm_plan_bare;

/* Acquire pairs with the release of lm_plan_start: the size table is seen filled. */
const lm_plan *lm_plan_default(void) { return atomic_load_explicit(&now, memory_order_acquire); }

void lm_plan_start(void) {
  static _Atomic bool begun;
  if (atomic_exchange_explicit(&begun, true, memory_order_relaxed)) return;
  lm_size_table_fill(&served.table, &served);
  lm_verify(lm_plan_is_valid(&served));
  atomic_store_explicit(&now, &served, memory_order_release);
}
