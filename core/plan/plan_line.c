/* plan_line.c - makes the plan of one line from a plan that reads the line of the call site.
 *
 * Conditions that read nothing but the line are decided, and their nodes left out. Instructions
 * that read the line push the number instead. What no request on the line can reach is left out,
 * except for leaves: a leaf keeps its index, unless it is the only one that is left. */
#include <string.h>

#include "os/error.h"
#include "plan/plan.h"

/* The work on one plan. Both arrays have an entry for each node of the plan.
 * Law: way[i] is the node, or ~leaf, to which requests on the line go on from node i if its
 *      condition is decided; else way[i] is i. That node is higher than i, and not decided.
 *      number[i] is 0 if node i is left out, REACHED if node i is reached and has no index in the
 *      new plan yet, and 1 + that index afterwards. */
typedef struct work {
  const lm_plan *plan;
  lm_inputs request; /* a request on the line */
  int32_t *way, *number;
  lm_image head; /* of the new image */
} work;

enum { REACHED = -1 };

/* Returns whether the law holds for node i, once all nodes have their numbers. */
static inline bool node_is_valid(const work *w, uint32_t i) {
  int32_t way = w->way[i], number = w->number[i];
  if (number < 0 || (uint32_t)number > w->head.nodes) return false;
  if (way == (int32_t)i) return true;
  if (way < 0) return !number && (uint32_t)~way < w->plan->leaves;
  return !number && (uint32_t)way > i && (uint32_t)way < w->plan->nodes && w->way[way] == way;
}

/* Returns whether the law holds once all nodes have their numbers: 1 to head.nodes, in order. */
static inline bool work_is_valid(const work *w) {
  uint32_t numbers = 0;
  for (uint32_t i = 0; i < w->plan->nodes; i++)
    if (!node_is_valid(w, i) || (w->number[i] && (uint32_t)w->number[i] != ++numbers)) return false;
  return numbers == w->head.nodes;
}

/* Returns the node, or ~leaf, to which requests go on from a target of a node. */
static int32_t way_from(const work *w, int32_t to) { return to < 0 ? to : w->way[to]; }

/* Fills `way`. A node leads to higher nodes only, so the last node comes first. */
static void decide_nodes(work *w) {
  for (uint32_t i = w->plan->nodes; i-- > 0;) {
    const lm_node *node = &w->plan->node[i];
    bool is_decided = !(lm_plan_node_reads(w->plan, i) & ~(1u << LM_IN_LINE));
    w->way[i] = (int32_t)i;
    if (!is_decided) continue;
    bool holds = lm_plan_node_holds(w->plan, i, &w->request);
    w->way[i] = way_from(w, holds ? node->yes : node->no);
  }
}

static void reach(const work *w, int32_t to) {
  int32_t at = way_from(w, to);
  if (at >= 0) w->number[at] = REACHED;
}

/* Fills `number`, which is all 0 before, and sets head.nodes. */
static void number_nodes(work *w) {
  reach(w, 0);
  for (uint32_t i = 0; i < w->plan->nodes; i++) {
    if (w->number[i] != REACHED) continue;
    reach(w, w->plan->node[i].yes);
    reach(w, w->plan->node[i].no);
    w->number[i] = (int32_t)++w->head.nodes;
  }
}

/* ---- Writing the image -------------------------------------------------------------------- */

/* Returns the new form of a node's target. */
static int32_t target_of(const work *w, int32_t to) {
  int32_t at = way_from(w, to);
  lm_assert(at < 0 || w->number[at] > 0);
  return at < 0 ? at : w->number[at] - 1;
}

static char *put(char *out, const void *part, size_t size) {
  memcpy(out, part, size);
  return out + size;
}

static char *put_nodes(const work *w, char *out) {
  for (uint32_t i = 0; i < w->plan->nodes; i++) {
    lm_node node = w->plan->node[i];
    if (!w->number[i]) continue;
    node.yes = target_of(w, node.yes);
    node.no = target_of(w, node.no);
    out = put(out, &node, sizeof node);
  }
  return out;
}

static char *put_codes(const work *w, char *out) {
  for (uint32_t i = 0; i < w->plan->codes; i++) {
    lm_code code = w->plan->code[i];
    if (code.op == LM_OP_INPUT && code.input == LM_IN_LINE)
      code = (lm_code){ .op = LM_OP_CONST, .k = (double)w->request.line };
    out = put(out, &code, sizeof code);
  }
  return out;
}

/* Writes a plan with nodes: all leaves stay. Returns the end of the image. */
static char *put_tree(work *w, char *image) {
  const lm_plan *plan = w->plan;
  w->head.codes = plan->codes;
  w->head.leaves = plan->leaves;
  w->head.chains = plan->chains;
  char *out = put_codes(w, put_nodes(w, put(image, &w->head, sizeof w->head)));
  out = put(out, plan->leaf, plan->leaves * sizeof *plan->leaf);
  return put(out, plan->chain, plan->chains * sizeof *plan->chain);
}

/* Writes a plan that gives every request one leaf of the old plan. Returns the end of the image. */
static char *put_leaf(work *w, char *image, uint32_t index) {
  lm_leaf leaf = w->plan->leaf[index];
  const uint32_t *chain = &w->plan->chain[leaf.first];
  leaf.first = 0;
  w->head.leaves = 1;
  w->head.chains = leaf.n;
  char *out = put(image, &w->head, sizeof w->head);
  return put(put(out, &leaf, sizeof leaf), chain, leaf.n * sizeof *chain);
}

/* Makes the plan, with the memory of `image`, which has room for an image as large as the old. */
static loam_status make(work *w, char *image, lm_plan **out) {
  decide_nodes(w);
  number_nodes(w);
  lm_verify(work_is_valid(w));
  int32_t root = way_from(w, 0);
  char *end = root < 0 ? put_leaf(w, image, (uint32_t)~root) : put_tree(w, image);
  loam_status status = lm_plan_make(image, (size_t)(end - image), out);
  lm_assert(status || !((*out)->reads & 1u << LM_IN_LINE));
  return status;
}

loam_status lm_plan_at_line(const lm_plan *plan, long line, lm_plan **out) {
  static const double none[LM_INPUTS];
  lm_assert(plan->reads & 1u << LM_IN_LINE);
  *out = NULL;
  work w = { .plan = plan, .request = { .line = line, .fixed = none } };
  w.head.magic = LM_PLAN_MAGIC;
  char *image = lm_metadata_alloc(lm_plan_image_size(plan));
  w.way = lm_metadata_alloc(plan->nodes * 2 * sizeof *w.way);
  if (w.way) w.number = w.way + plan->nodes;
  loam_status status = image && w.way
                           ? make(&w, image, out)
                           : lm_error(LOAM_ENOMEM, "no memory for the plan of line %ld", line);
  lm_metadata_free(image);
  lm_metadata_free(w.way);
  return status;
}
