/* policy_bytes.h - a small policy image that a test writes. It contains every part that an image
 * can have. */
#ifndef POLICY_BYTES_H
#define POLICY_BYTES_H

#include "image.h"
#include "plan/policy_image.h"
#include "tree.h"

enum { BYTES_PLANS = 4 };
static const char bytes_text[] = "return loam.policy{ ... }\n";

/* Makes the strategies of the plans, and stores their ids in `id`. */
static inline void bytes_strategies(uint32_t id[3]) {
  lm_strategy *s[3];
  lm_desc wide = { .name = "wide",
                   .align = 64,
                   .limit = LM_GIB,
                   .guard = 7,
                   .huge = LM_HUGE_THP,
                   .prefault = true,
                   .placement = { .mode = LM_BIND_BIND, .nodes = lm_numa_nodes() } };
  lm_desc shared = { .name = "shares", .zero = true, .lock = true };
  unsigned node = (unsigned)__builtin_ctzll(lm_numa_nodes());
  shared.placement.mode = LM_BIND_WEIGHTED;
  shared.placement.weight[node] = 3;
  lm_desc deny = { .name = "none", .kind = LM_KIND_DENY };
  lm_require(!lm_strategy_intern(&wide, &s[0]) && !lm_strategy_intern(&shared, &s[1]) &&
             !lm_strategy_intern(&deny, &s[2]));
  for (int i = 0; i < 3; i++) id[i] = s[i]->id;
}

/* Makes four plans: plan 0 is a single leaf; plan 1 tests the size; plan 2 tests the line, and
 * compares a value computed from size and line; plan 3 tests the free memory of a node. */
static inline void bytes_plans(lm_plan *plan[BYTES_PLANS]) {
  uint32_t id[3];
  bytes_strategies(id);
  for (int i = 0; i < BYTES_PLANS; i++) {
    static image m;
    m = (image){ 0 };
    int32_t a = image_leaf(&m, 2, (uint32_t[]){ id[i % 2], id[2] });
    int32_t b = image_leaf(&m, 1, (uint32_t[]){ i == 3 ? 0 : id[2] });
    static const unsigned input[] = { 0, LM_IN_SIZE, LM_IN_LINE, LM_IN_NODE_FREE };
    if (i) image_node(&m, input[i], LM_CMP_LT, 100, a, i == 2 ? 1 : b);
    if (i == 2) {
      lm_node *node = image_node(&m, LM_IN_SIZE, LM_CMP_LT, 0, a, b);
      image_code(&m, LM_OP_INPUT, LM_IN_SIZE, 0);
      image_code(&m, LM_OP_INPUT, LM_IN_LINE, 0);
      node->code_n = 2;
    }
    lm_require(!image_make(&m, &plan[i]));
  }
}

/* Writes the tree: tag "one" plan 0, under "two" plan 1, file *.py plan 2, module key "m" plan 3,
 * else plan 4, which is plan 0 again. Returns its size. */
static inline size_t bytes_tree(char *out) {
  static tree t;
  t = (tree){ .plans = BYTES_PLANS + 1 };
  tree_node(&t, LM_ASK_IS, LM_FIELD_TAG, 0, "one", ~0, 1);
  tree_node(&t, LM_ASK_UNDER, LM_FIELD_TAG, 0, "two", ~1, 2);
  tree_node(&t, LM_ASK_GLOB, LM_FIELD_FILE, 0, "*.py", ~2, 3);
  tree_node(&t, LM_ASK_KEY, LM_FIELD_MODULE, 1, "", 0, ~4);
  tree_key(&t, "m", ~3);
  tree_key(&t, "n", ~2);
  return tree_write(&t, out);
}

/* Writes the image into lm_metadata memory. `plan` belongs to the caller. */
static inline char *bytes_write(lm_plan *const *plan, size_t *size) {
  static _Alignas(8) char tree_bytes[TREE_BYTES];
  const lm_plan *by_index[BYTES_PLANS + 1] = { plan[0], plan[1], plan[2], plan[3], plan[0] };
  lm_policy_image_source source = { .plan = by_index,
                                    .plans = BYTES_PLANS + 1,
                                    .tree = tree_bytes,
                                    .tree_size = bytes_tree(tree_bytes),
                                    .name = "small",
                                    .applies_live = true,
                                    .text = bytes_text,
                                    .length = sizeof bytes_text - 1,
                                    .nodes = lm_numa_nodes(),
                                    .devices = -1 };
  void *bytes;
  if (lm_policy_image_write(&source, &bytes, size)) return NULL;
  return bytes;
}

/* Stores the correct checksum in a changed image. */
static inline void bytes_seal(char *bytes, size_t size) {
  if (size < sizeof(lm_policy_image_frame)) return;
  lm_policy_image_frame *frame = (lm_policy_image_frame *)(void *)bytes;
  frame->checksum = lm_policy_image_checksum(bytes, size);
}

/* Returns a copy of the bytes in lm_metadata memory, which a policy image can own. */
static inline char *bytes_copy(const char *bytes, size_t size) {
  char *copy = lm_metadata_alloc(size + 1);
  lm_require(copy != NULL);
  return memcpy(copy, bytes, size);
}

#endif
