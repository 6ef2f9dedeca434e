/* test_gate - the gates of a plan agree with its tree, whatever the numbers are. */
#include "gate.h"

#include <math.h>
#include <stdio.h>

#include "image.h"
#include "test.h"

static uint64_t seed = 20;

static uint32_t roll(uint32_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % n;
}

static uint32_t ids[4];

static int set_up(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    lm_strategy *s;
    lm_desc desc = { .limit = (size_t)i << 20 };
    snprintf(desc.name, sizeof desc.name, "gate-%d", i);
    if (lm_strategy_intern(&desc, &s)) return 1;
    ids[i] = s->id;
  }
  return 0;
}

static const double odd[] = { 0,    -0.0, 1,        -1,        -2,     0.5,    -0.5,
                              1e18, -1e9, INFINITY, -INFINITY, 0x1p62, 0x1p63, 3.0 };

static double some_threshold(void) {
  if (roll(8) == 0) return NAN;
  return roll(2) ? odd[roll(LM_COUNT(odd))] : roll(8) + roll(3) * 0.25 - 2;
}

/* All kinds of numbers, of a few nodes and devices. */
static image random_image(void) {
  image m = { 0 };
  uint32_t nodes = 1 + roll(20), leaves = 1 + roll(6);
  for (uint32_t i = 0; i < leaves; i++) image_leaf(&m, 1, &ids[roll(4)]);
  for (uint32_t i = 0; i < nodes; i++) {
    int32_t to[2];
    for (int k = 0; k < 2; k++)
      to[k] = i + 1 < nodes && roll(4) ? (int32_t)(i + 1 + roll(nodes - i - 1))
                                       : ~(int32_t)roll(leaves);
    lm_node *node = image_node(&m, roll(LM_INPUTS), roll(3), some_threshold(), to[0], to[1]);
    node->arg = (uint16_t)roll(4);
  }
  return m;
}

enum { KINDS = 4 };
static double fixed[LM_INPUTS], node_free[KINDS], device_free[KINDS];

static void some_numbers(void) {
  fixed[LM_IN_NODE] = roll(4);
  fixed[LM_IN_DEVICE] = roll(4) - 1.0;
  fixed[LM_IN_LIVE] = roll(8);
  for (int i = 0; i < KINDS; i++) {
    node_free[i] = roll(8);
    device_free[i] = roll(8);
  }
}

static uint64_t number_of(const lm_gate *gate, size_t size) {
  if (gate->input == LM_IN_SIZE) return size;
  if (gate->input == LM_IN_NODE_FREE) return (uint64_t)node_free[gate->arg];
  if (gate->input == LM_IN_DEVICE_FREE) return (uint64_t)device_free[gate->arg];
  return (uint64_t)(int64_t)fixed[gate->input];
}

/* How many got as far as a strategy. */
static int go_through(const lm_plan *plan, size_t size) {
  lm_request r = { .size = size,
                   .align = 16,
                   .fixed = fixed,
                   .node_free = node_free,
                   .device_free = device_free,
                   .node_free_n = KINDS,
                   .device_free_n = KINDS };
  const lm_gate *gate = plan->gate;
  for (int64_t leads; gate->input != LM_GATE_SHUT; gate += leads) {
    leads = lm_gate_leads(gate, number_of(gate, size));
    if (leads >= 0) continue;
    int first = lm_plan_first(plan, lm_plan_decide(plan, &r));
    assert_true(leads == lm_gate_to((uint32_t)first));
    return 1;
  }
  return 0;
}

static void gates_agree_with_the_tree(void **state) {
  (void)state;
  int went = 0, tried = 0;
  for (int i = 0; i < 2000; i++) {
    image m = random_image();
    lm_plan *plan;
    assert_int_equal(image_make(&m, &plan), LOAM_OK);
    for (int k = 0; plan->gate && k < 20; k++, tried++) {
      some_numbers();
      went += go_through(plan, roll(8));
    }
    lm_plan_destroy(plan);
  }
  assert_in_range(went, tried / 2, tried); /* most can tell */
}

/* From a gate on by chance: whether its number is read once more, after others. */
static bool reads_again(const lm_gate *gate) {
  unsigned own = gate->number;
  bool left = false;
  while (gate->input != LM_GATE_SHUT) {
    int64_t leads = roll(2) ? gate->yes : gate->no;
    if (leads < 0) return false;
    gate += leads;
    left = left || gate->number != own;
    if (left && gate->number == own) return true;
  }
  return false;
}

static void nothing_is_forgotten_that_is_read_again(void **state) {
  (void)state;
  int forgotten = 0;
  for (int i = 0; i < 2000; i++) {
    image m = random_image();
    lm_plan *plan;
    assert_int_equal(image_make(&m, &plan), LOAM_OK);
    for (uint32_t k = 0; plan->gate && k < plan->nodes; k++) {
      const lm_gate *gate = &plan->gate[k];
      if (gate->ask == LM_GATE_FAR) continue;
      assert_int_equal(gate->ask, gate->input);
      for (int way = 0; way < 20; way++) assert_false(gate->ask != LM_IN_SIZE && reads_again(gate));
      forgotten++;
    }
    lm_plan_destroy(plan);
  }
  assert_in_range(forgotten, 1000, INT32_MAX); /* of most */
}

static void equal_numbers_are_one_and_others_are_not(void **state) {
  (void)state;
  image m = { 0 };
  lm_plan *plan;
  int32_t a = image_leaf(&m, 1, ids);
  static const uint8_t inputs[] = { LM_IN_NODE, LM_IN_LIVE,      LM_IN_NODE_FREE,
                                    LM_IN_NODE, LM_IN_NODE_FREE, LM_IN_NODE_FREE };
  static const uint16_t args[] = { 0, 0, 1, 9, 1, 2 };
  enum { N = LM_COUNT(inputs) };
  for (int i = 0; i < N; i++)
    image_node(&m, inputs[i], LM_CMP_LT, 5, i + 1 < N ? i + 1 : a, a)->arg = args[i];
  assert_int_equal(image_make(&m, &plan), LOAM_OK);
  const lm_gate *g = plan->gate;
  assert_int_equal(g[0].number, g[3].number); /* of which node is asked says nothing here */
  assert_int_equal(g[2].number, g[4].number);
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < i; k++) assert_int_not_equal(g[i].number, g[k].number);
  assert_int_not_equal(g[5].number, g[4].number);
  lm_plan_destroy(plan);
}

static void what_only_the_tree_can_tell_is_shut(void **state) {
  (void)state;
  image m = { 0 };
  lm_plan *plan;
  int32_t a = image_leaf(&m, 1, ids), b = image_leaf(&m, 1, &ids[1]);
  lm_node *node = image_node(&m, 0, LM_CMP_LT, 0, a, b);
  node->code_n = 2;
  image_code(&m, LM_OP_INPUT, LM_IN_LIVE, 0);
  image_code(&m, LM_OP_CONST, 0, 5);
  for (int i = 0; i <= LM_GATE_NUMBERS; i++)
    image_node(&m, LM_IN_NODE_FREE, LM_CMP_LT, 5, a, b)->arg = (uint16_t)i;
  assert_int_equal(image_make(&m, &plan), LOAM_OK);
  assert_int_equal(plan->gate[0].input, LM_GATE_SHUT);
  for (int i = 1; i <= LM_GATE_NUMBERS; i++) assert_int_equal(plan->gate[i].input, LM_IN_NODE_FREE);
  assert_int_equal(plan->gate[LM_GATE_NUMBERS + 1].input, LM_GATE_SHUT);
  lm_plan_destroy(plan);
}

static void a_plan_without_gauges_has_none(void **state) {
  (void)state;
  image m = { 0 };
  lm_plan *plan;
  int32_t a = image_leaf(&m, 1, ids), b = image_leaf(&m, 1, &ids[1]);
  image_node(&m, LM_IN_SIZE, LM_CMP_LT, 100, a, b);
  assert_int_equal(image_make(&m, &plan), LOAM_OK);
  assert_null(plan->gate);
  lm_plan_destroy(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(gates_agree_with_the_tree),
    cmocka_unit_test(nothing_is_forgotten_that_is_read_again),
    cmocka_unit_test(equal_numbers_are_one_and_others_are_not),
    cmocka_unit_test(what_only_the_tree_can_tell_is_shut),
    cmocka_unit_test(a_plan_without_gauges_has_none),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}
