/* plan.h - a compiled policy for one tag; no Lua, no lock, no allocation to run it.
 *
 * A plan is a decision tree whose leaves are chains of strategies. Lua and core meet in one
 * format, the image below: lua/loam/compiler/emit.lua writes it, lm_plan_make checks every index in
 * it and copies it. The first part of this file is given to ffi.cdef as it is (LOAM_CDEF). */
#ifndef LM_PLAN_H
#define LM_PLAN_H

#ifndef LOAM_CDEF
#include "loam.h"
#include "os/base.h"
#endif

/* The numbers that a condition may read. */
enum {
  LM_IN_SIZE = 0,        /* bytes asked for */
  LM_IN_ALIGN = 1,       /* bytes required by the caller; 16 where nothing was said */
  LM_IN_ZERO = 2,        /* 1 or 0 */
  LM_IN_NODE = 3,        /* NUMA node of the calling CPU */
  LM_IN_DEVICE = 4,      /* current device, -1 if none */
  LM_IN_LIVE = 5,        /* bytes live under the tag */
  LM_IN_NODE_FREE = 6,   /* bytes free on node `arg` */
  LM_IN_DEVICE_FREE = 7, /* bytes free on device `arg` */
  LM_INPUTS = 8
};

/* Comparisons, of Lua's numbers (doubles). */
enum { LM_CMP_LT = 0, LM_CMP_LE = 1, LM_CMP_EQ = 2 };

/* Instructions of a condition that is more than `input cmp constant`: postfix on a stack of
 * doubles at most LM_STACK deep, with exactly Lua's results. */
enum {
  LM_OP_CONST,
  LM_OP_INPUT,
  LM_OP_ADD,
  LM_OP_SUB,
  LM_OP_MUL,
  LM_OP_DIV,
  LM_OP_MOD,
  LM_OP_POW,
  LM_OP_NEG,
  LM_OP_FLOOR,
  LM_OP_CEIL,
  LM_OP_ABS,
  LM_OP_MIN,
  LM_OP_MAX,
  LM_OPS
};
enum { LM_STACK = 32, LM_CHAIN_MAX = 16, LM_PLAN_MAGIC = 0x6c706c31 };

typedef struct lm_code {
  uint8_t op, input;
  uint16_t arg;
  uint32_t unused;
  double k;
} lm_code;

/* `left cmp right`: if code_n is 0, left is `input` (with `arg`) and right is `k`; else the code
 * leaves left and right on the stack, right on top. Goes to `yes` or `no`: a node with a higher
 * index than this one, or ~leaf. */
typedef struct lm_node {
  uint8_t cmp, input;
  uint16_t arg;
  int32_t yes, no;
  uint32_t code, code_n;
  double k;
  int32_t line; /* of the policy, for people */
  uint32_t unused;
} lm_node;

/* A chain: strategies tried in order. n == 0 is never emitted; deny is a strategy. */
typedef struct lm_leaf {
  uint32_t first, n; /* in the chain array */
  int32_t line;      /* of the return */
} lm_leaf;

/* The image: this head, then nodes, code, leaves, chain (uint32_t strategy ids). No nodes: the plan
 * is leaf 0. */
typedef struct lm_image {
  uint32_t magic;
  uint32_t nodes, codes, leaves, chain;
  uint32_t unused;
} lm_image;

#ifndef LOAM_CDEF

#include "plan/size_table.h"

typedef struct lm_plan lm_plan;

/* Law: every index of every node, leaf and chain is in range, yes and no go up, so that deciding
 *      ends; the table agrees with the tree (table.h). */
struct lm_plan {
  lm_size_table table;
  uint32_t reads; /* a bit for each LM_IN_* that any node reads */
  uint32_t nodes, codes, leaves, chains;
  const lm_node *node;
  const lm_code *code;
  const lm_leaf *leaf;
  const uint32_t *chain;
  const int32_t
      *first;    /* by leaf: the strategy that serves malloc's family, as lm_plan_first says */
  uint64_t hash; /* of the image: equal images are one plan */
};

/* How powers are made: by the C library's pow, of which whoever opens LuaJIT tells. Linked, libm
 * would be half a MiB of every process. NULL: plans with powers are refused. */
typedef double lm_power_fn(double a, double b);
extern _Atomic(lm_power_fn *) lm_plan_power;

/* Checks and copies an image. On refusal the words name what was wrong; *out is NULL. */
loam_status lm_plan_make(const void *image, size_t size, lm_plan **out);
void lm_plan_destroy(lm_plan *plan);
bool lm_plan_is_valid(const lm_plan *plan);
/* Whether `left cmp right` holds, for an LM_CMP_*. */
LM_INLINE bool lm_plan_compare(unsigned cmp, double left, double right) {
  if (cmp == LM_CMP_LT) return left < right;
  return cmp == LM_CMP_LE ? left <= right : left == right;
}

/* The numbers of one request. Gauges are read through `gauge` only when a node asks; NULL: from
 * `fixed`, which is how tests and `loam explain` give them. */
typedef struct lm_inputs lm_inputs;
struct lm_inputs {
  size_t size, align;
  bool zero;
  double (*gauge)(const lm_inputs *request, int input, unsigned arg);
  loam_site *site;
  const double *fixed;     /* [LM_IN_NODE], [LM_IN_DEVICE], [LM_IN_LIVE] */
  const double *node_free; /* by node, node_free_n of them; more are 0 */
  const double *device_free;
  unsigned node_free_n, device_free_n;
};

/* The leaf that the request reaches; from a node that it passes. */
unsigned lm_plan_decide(const lm_plan *plan, const lm_inputs *request);
unsigned lm_plan_decide_from(const lm_plan *plan, uint32_t node, const lm_inputs *request);

/* The id of the first member of a leaf's chain that malloc's family may use (device memory it may
 * not: provider.h), or -1. */
LM_INLINE int lm_plan_first(const lm_plan *plan, unsigned leaf) { return plan->first[leaf]; }

/* The built-in default: one leaf, strategy 0. Never destroyed. */
const lm_plan *lm_plan_default(void);
/* What lm_plan_default is until the pools can be asked: the same, with every request decided. */
extern const lm_plan lm_plan_bare;
/* Asks the pools, once. */
void lm_plan_start(void);

#endif
#endif
