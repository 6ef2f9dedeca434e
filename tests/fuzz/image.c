/* image.c - makes random bytes and damaged images of plans. loam refuses such an image, or makes a
 * plan from it that obeys its laws and can decide. Arguments: the number of images (20000), and a
 * seed. */
#include "../core/image.h"
#include "chance.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t seed = 7;

static int32_t some_target(uint32_t from, uint32_t nodes, uint32_t leaves) {
  if (from + 1 < nodes && chance(&seed, 2))
    return (int32_t)(from + 1 + chance(&seed, nodes - from - 1));
  return ~(int32_t)chance(&seed, leaves);
}

static void add_code(image *m, lm_node *node) {
  node->code = m->codes;
  image_code(m, LM_OP_INPUT, chance(&seed, LM_INPUTS), 0);
  image_code(m, LM_OP_CONST, 0, chance(&seed, 5000));
  image_code(m, LM_OP_ADD + chance(&seed, 6), 0, 0);
  image_code(m, LM_OP_CONST, 0, chance(&seed, 5000));
  node->code_n = m->codes - node->code;
}

static size_t good_image(char *out) {
  static image m;
  m = (image){ 0 };
  uint32_t nodes = chance(&seed, 30), leaves = 1 + chance(&seed, 8);
  for (uint32_t i = 0; i < leaves; i++)
    image_leaf(&m, 1 + chance(&seed, 3), (uint32_t[]){ 0, 0, 0 });
  for (uint32_t i = 0; i < nodes; i++) {
    int32_t yes = some_target(i, nodes, leaves), no = some_target(i, nodes, leaves);
    lm_node *node = image_node(&m, chance(&seed, LM_INPUTS), chance(&seed, 3), chance(&seed, 50000),
                               yes, no);
    if (chance(&seed, 4) == 0) add_code(&m, node);
  }
  return image_write(&m, out);
}

static size_t random_bytes(char *out) {
  size_t size = chance(&seed, 400);
  for (size_t i = 0; i < size; i++) out[i] = (char)chance(&seed, 256);
  lm_image head = { LM_PLAN_MAGIC,    chance(&seed, 3), chance(&seed, 3),
                    chance(&seed, 3), chance(&seed, 3), 0 };
  if (chance(&seed, 2) && size >= sizeof head) memcpy(out, &head, sizeof head);
  return size;
}

static void damage(char *bytes, size_t size) {
  static const uint32_t words[] = { 0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 31, 32, 33 };
  for (uint32_t n = chance(&seed, 4); n > 0 && size >= 4; n--) {
    size_t at = chance(&seed, (uint32_t)size - 3);
    if (chance(&seed, 2)) bytes[at] = (char)chance(&seed, 256);
    else memcpy(bytes + (at & ~(size_t)3), &words[chance(&seed, LM_COUNT(words))], 4);
  }
}

static void decide_some(const lm_plan *plan) {
  double fixed[LM_INPUTS], free_of[2] = { 1e9, 0 };
  for (int i = 0; i < 20; i++) {
    for (int k = 0; k < LM_INPUTS; k++) fixed[k] = chance(&seed, 10000);
    lm_inputs r = { .size = chance(&seed, 60000),
                    .align = 16,
                    .zero = chance(&seed, 2),
                    .fixed = fixed,
                    .node_free = free_of,
                    .device_free = free_of,
                    .node_free_n = 2,
                    .device_free_n = 2 };
    lm_require(lm_plan_decide(plan, &r) < plan->leaves);
  }
}

int main(int argc, char **argv) {
  static char bytes[IMAGE_BYTES];
  long count = argc > 1 ? atol(argv[1]) : 20000, made = 0;
  if (argc > 2) seed = strtoull(argv[2], NULL, 10);
  for (long i = 0; i < count; i++) {
    size_t size = chance(&seed, 4) ? good_image(bytes) : random_bytes(bytes);
    damage(bytes, size);
    lm_plan *plan;
    if (lm_plan_make(bytes, size, &plan)) continue;
    lm_require(lm_plan_is_valid(plan));
    decide_some(plan);
    lm_plan_destroy(plan);
    made++;
  }
  printf("%ld images, %ld of them plans\n", count, made);
  return made > count / 20 ? 0 : 1;
}
