/* plan.h - a plan: the policy, compiled for one site. Evaluating it needs no Lua, takes no
 * lock and allocates nothing.
 *
 * A plan is a decision tree whose leaves are chains of strategies. The compiler in Lua writes it as
 * an image, in the format below (lua/loam/compiler/emit.lua); lm_plan_make checks every index in
 * the image and copies it. LuaJIT's ffi.cdef reads the first part of this file
 * (LOAM_CDEF). */
#ifndef LM_PLAN_H
#define LM_PLAN_H

#ifndef LOAM_CDEF
#include "loam.h"
#include "os/base.h"
#endif

/* The inputs: the numbers that a condition may read. Those from LM_IN_NODE to LM_IN_DEVICE_FREE,
 * and LM_IN_PRESSURE, are gauges: two requests that are equal otherwise may find other values of
 * them. */
enum {
  LM_IN_SIZE = 0,        /* bytes requested */
  LM_IN_ALIGN = 1,       /* alignment requested, in bytes; 16 if none was */
  LM_IN_ZERO = 2,        /* 1: the memory has to be zero; else 0 */
  LM_IN_NODE = 3,        /* NUMA node of the calling CPU */
  LM_IN_DEVICE = 4,      /* current device, -1 if none */
  LM_IN_LIVE = 5,        /* live bytes of the tag */
  LM_IN_NODE_FREE = 6,   /* bytes free on node `arg` */
  LM_IN_DEVICE_FREE = 7, /* bytes free on device `arg` */
  LM_IN_LINE = 8,        /* line of the call site; 0 if it is not known */
  LM_IN_PRESSURE = 9,    /* percent of time that tasks waited for memory, from 0 to 100 */
  LM_INPUTS = 10
};

/* Comparisons of two doubles, which are Lua's numbers. */
enum { LM_CMP_LT = 0, LM_CMP_LE = 1, LM_CMP_EQ = 2 };

/* Instructions for a condition that is more than `input cmp constant`. They work on a stack of at
 * most LM_STACK doubles: they take their operands from its top and push the result, which is
 * exactly the result of Lua. */
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
enum {
  LM_STACK = 32,             /* doubles; conditions that need more are refused */
  LM_CHAIN_MAX = 16,         /* strategies; longer chains are refused */
  LM_PLAN_MAGIC = 0x6c706c31 /* "lpl1" as a number; the first word of an image */
};

typedef struct lm_code {
  uint8_t op;    /* LM_OP_* */
  uint8_t input; /* LM_OP_INPUT: LM_IN_* */
  uint16_t arg;  /* LM_OP_INPUT: the argument of the input */
  uint32_t unused;
  double k; /* LM_OP_CONST: the number */
} lm_code;

/* A node of the tree: the condition `left cmp right`. If code_n is 0, left is the input with its
 * argument, and right is `k`. Otherwise the instructions from `code` on leave left and right on the
 * stack, right on top. If the condition holds, the way goes to `yes`, else to `no`. Both are the
 * index of a node, higher than this node's, or ~index of a leaf. */
typedef struct lm_node {
  uint8_t cmp, input;
  uint16_t arg;
  int32_t yes, no;
  uint32_t code, code_n;
  double k;
  int32_t line; /* in the policy file, for messages */
  uint32_t unused;
} lm_node;

/* A leaf: a chain of n strategies that are tried in order; n is at least 1. To deny a request is a
 * strategy too. */
typedef struct lm_leaf {
  uint32_t first, n; /* in the array of strategy ids */
  int32_t line;      /* of the return statement in the policy file, for messages */
} lm_leaf;

/* The head of an image. The arrays follow it, in this order: nodes, instructions, leaves, and the
 * strategy ids (uint32_t) of the chains. Without nodes, the plan is leaf 0. */
typedef struct lm_image {
  uint32_t magic;
  uint32_t nodes, codes, leaves, chains; /* lengths of the arrays */
  uint32_t unused;
} lm_image;

#ifndef LOAM_CDEF

#include "plan/size_table.h"

typedef struct lm_plan lm_plan;

/* A plan; constant once it is made.
 *
 * Law: every index in the nodes, instructions, leaves and chains is in range.
 *      `yes` and `no` of a node are leaves or nodes with a higher index, so evaluating ends.
 *      The instructions of a node leave two numbers, and never need more than LM_STACK.
 *      The table agrees with the tree (size_table.h).
 *      first_host[leaf] is the id of the first strategy of the leaf's chain whose kind is not
 *      LM_KIND_DEVICE; -1 if there is none. */
struct lm_plan {
  lm_size_table table;
  uint32_t reads;                        /* a bit for each LM_IN_* that any node reads */
  uint32_t nodes, codes, leaves, chains; /* lengths of the four arrays */
  const lm_node *node;
  const lm_code *code;
  const lm_leaf *leaf;
  const uint32_t *chain;
  const int32_t *first_host; /* by leaf: the result of lm_plan_first_host */
  uint64_t hash;             /* of the image, to find equal plans */
};

/* The function for LM_OP_POW: the C library's pow, set by the file that opens LuaJIT. core does not
 * link libm, because that would add half a MiB to every process. NULL: plans with powers are
 * refused. Set once, before any plan that has powers is made. */
typedef double lm_power_fn(double a, double b);
extern _Atomic(lm_power_fn *) lm_plan_power;

/* Makes a plan of an image of `size` bytes, which it checks and copies. On failure *out is NULL,
 * and the error words name the wrong value: LOAM_EINVAL for an image that is not valid,
 * LOAM_EUNSUPPORTED for powers without lm_plan_power, LOAM_EBUDGET if its strategies are too many
 * to have bins, and LOAM_ENOMEM. */
loam_status lm_plan_make(const void *image, size_t size, lm_plan **out);
/* Returns the size of the image of a plan that lm_plan_make has made. */
size_t lm_plan_image_size(const lm_plan *plan);
/* Writes the image of such a plan to memory of that size, aligned to 8 bytes. Returns where its
 * plan->chains strategy ids stand. */
uint32_t *lm_plan_write(const lm_plan *plan, void *image);
/* Makes the plan of the sites on one line, from a plan that reads LM_IN_LINE. It decides every
 * request as `plan` does for that line, and does not read LM_IN_LINE. Sites get only such plans.
 * On failure *out is NULL: LOAM_ENOMEM. */
loam_status lm_plan_at_line(const lm_plan *plan, long line, lm_plan **out);
/* Frees a plan that no thread evaluates any more; NULL does nothing. */
void lm_plan_destroy(lm_plan *plan);
/* Returns whether the plan obeys the law above. */
bool lm_plan_is_valid(const lm_plan *plan);
/* Returns whether `left cmp right` holds, for an LM_CMP_*. */
LM_INLINE bool lm_plan_compare(unsigned cmp, double left, double right) {
  if (cmp == LM_CMP_LT) return left < right;
  return cmp == LM_CMP_LE ? left <= right : left == right;
}

/* The inputs of one request. A gauge is read by a call of `gauge`, and only if a condition needs
 * it. If `gauge` is NULL, gauges have the fixed values below: tests and `loam explain` give
 * these. */
typedef struct lm_inputs lm_inputs;
struct lm_inputs {
  size_t size, align;
  bool zero;
  long line; /* only for a plan that reads LM_IN_LINE; the plan of a site does not */
  double (*gauge)(const lm_inputs *request, int input, unsigned arg);
  bool *needs_lock; /* `gauge` sets it instead of taking a lock; NULL: `gauge` may take locks */
  loam_site *site;
  const double *fixed;       /* by input: the gauges, except the two of free memory */
  const double *node_free;   /* LM_IN_NODE_FREE of the nodes below node_free_n; of others 0 */
  const double *device_free; /* LM_IN_DEVICE_FREE of the devices below device_free_n */
  unsigned node_free_n, device_free_n;
};

/* Evaluates a plan for a request: returns the index of the leaf that the request reaches. */
unsigned lm_plan_decide(const lm_plan *plan, const lm_inputs *request);
/* Like lm_plan_decide, but begins at a node that the request is known to pass. */
unsigned lm_plan_decide_from(const lm_plan *plan, uint32_t node, const lm_inputs *request);
/* Returns whether the condition of one node holds for a request. */
bool lm_plan_node_holds(const lm_plan *plan, uint32_t node, const lm_inputs *request);
/* Returns a bit for each LM_IN_* that a node reads. */
uint32_t lm_plan_node_reads(const lm_plan *plan, uint32_t node);

/* Returns the id of the first strategy of a leaf's chain that may serve malloc and its relatives;
 * -1 if there is none. Device memory may not (device/provider.h). */
LM_INLINE int lm_plan_first_host(const lm_plan *plan, unsigned leaf) {
  lm_assert(leaf < plan->leaves);
  return plan->first_host[leaf];
}

/* Returns the built-in default plan: one leaf, with strategy 0. It is never destroyed. Before
 * lm_plan_start it is lm_plan_bare. */
const lm_plan *lm_plan_default(void);
/* The default plan with an empty size table: thread caches serve none of its requests. It needs no
 * pools, so it can serve before pools are started. */
extern const lm_plan lm_plan_bare;
/* Fills the size table of the default plan, once; call after lm_pool_start. */
void lm_plan_start(void);

#endif
#endif
