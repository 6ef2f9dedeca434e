/* test_gate - the gates of a plan agree with its tree, whatever the numbers are. */
#include "plan/gate.h"

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

/* What a condition may reckon with. Most of it comes to a sum. */
static void random_code(image *m, int depth) {
  static const uint8_t ops[] = { LM_OP_ADD, LM_OP_ADD, LM_OP_SUB, LM_OP_SUB,
                                 LM_OP_MUL, LM_OP_NEG, LM_OP_DIV, LM_OP_MAX };
  unsigned op = ops[roll(roll(20) ? 6 : LM_COUNT(ops))];
  if (depth == 0 || roll(4) == 0) {
    op = roll(3) ? LM_OP_INPUT : LM_OP_CONST;
    image_code(m, op, roll(LM_INPUTS), roll(20) ? roll(8) - 3.0 : some_threshold());
    m->code[m->codes - 1].arg = (uint16_t)roll(roll(50) ? 4 : 100);
    return;
  }
  if (op == LM_OP_MUL && roll(4)) image_code(m, LM_OP_CONST, 0, roll(20) - 8.0);
  else if (op != LM_OP_NEG) random_code(m, depth - 1);
  random_code(m, depth - 1);
  image_code(m, op, 0, 0);
}

static void make_reckon(image *m, lm_node *node) {
  if (m->codes > IMAGE_CODES - 32) return;
  node->code = m->codes;
  random_code(m, 2);
  random_code(m, roll(2) ? 0 : 1);
  node->code_n = m->codes - node->code;
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
    if (roll(3) == 0) make_reckon(&m, node);
  }
  return m;
}

enum { KINDS = 4 };
static double fixed[LM_INPUTS], node_free[KINDS], device_free[KINDS];

/* Few bytes, or all that there can be, less so many. */
static double some_bytes(void) { return roll(8) ? roll(8) : 0x1p47 - roll(8); }

static void some_numbers(void) {
  fixed[LM_IN_NODE] = roll(4);
  fixed[LM_IN_DEVICE] = roll(4) - 1.0;
  fixed[LM_IN_LIVE] = some_bytes();
  for (int i = 0; i < KINDS; i++) {
    node_free[i] = some_bytes();
    device_free[i] = some_bytes();
  }
}

static int64_t read_one(unsigned input, unsigned arg, size_t size) {
  if (input == LM_IN_SIZE) return (int64_t)size;
  if (input == LM_IN_NODE_FREE) return arg < KINDS ? (int64_t)node_free[arg] : 0;
  if (input == LM_IN_DEVICE_FREE) return arg < KINDS ? (int64_t)device_free[arg] : 0;
  return (int64_t)fixed[input];
}

static uint64_t number_of(const lm_gate *gate, size_t size) {
  if (gate->input != LM_GATE_SUM) return (uint64_t)read_one(gate->input, gate->arg, size);
  int64_t sum = gate->sizes * (int64_t)size;
  for (unsigned i = 0; i < gate->terms; i++)
    sum += gate->term[i].factor * read_one(gate->term[i].input, gate->term[i].arg, size);
  return (uint64_t)sum;
}

static bool reads_live(const lm_gate *gate) {
  for (unsigned i = 0; i < gate->terms; i++)
    if (gate->term[i].input == LM_IN_LIVE) return true;
  return gate->input == LM_IN_LIVE;
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
    if (reads_live(gate)) leads += LM_GATE_COUNTED;
    assert_true(leads == lm_gate_to((uint32_t)first));
    assert_int_equal((uint32_t)first % LM_STRATEGIES_MAX,
                     lm_gate_strategy(leads - LM_GATE_COUNTED) % LM_STRATEGIES_MAX);
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

static void most_that_reckons_comes_to_a_sum(void **state) {
  (void)state;
  int sums = 0, reckons = 0;
  for (int i = 0; i < 500; i++) {
    image m = random_image();
    lm_plan *plan;
    assert_int_equal(image_make(&m, &plan), LOAM_OK);
    for (uint32_t k = 0; plan->gate && k < plan->nodes; k++) {
      reckons += plan->node[k].code_n > 0;
      sums += plan->gate[k].input == LM_GATE_SUM;
    }
    lm_plan_destroy(plan);
  }
  assert_in_range(sums, reckons / 3, reckons);
}

/* What a gate reads, by number, but for the size. */
static uint32_t reads_of(const lm_gate *gate) {
  uint32_t reads = 0;
  if (gate->input != LM_GATE_SUM) return gate->input == LM_IN_SIZE ? 0 : 1u << gate->number;
  for (unsigned i = 0; i < gate->terms; i++) reads |= 1u << gate->term[i].number;
  return reads;
}

/* From a gate on by chance: whether any of its numbers is read once more, after others. */
static bool reads_again(const lm_gate *gate) {
  const lm_gate *first = gate;
  bool left = false;
  while (gate->input != LM_GATE_SHUT) {
    int64_t leads = roll(2) ? gate->yes : gate->no;
    if (leads < 0) return false;
    gate += leads;
    left = left || gate->number != first->number;
    if (left && gate->input != LM_GATE_SHUT && reads_of(gate) & reads_of(first)) return true;
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
      for (int way = 0; way < 20; way++) assert_false(reads_again(gate));
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
  node->code_n = 3;
  image_code(&m, LM_OP_INPUT, LM_IN_LIVE, 0);
  image_code(&m, LM_OP_ABS, 0, 0);
  image_code(&m, LM_OP_CONST, 0, 5);
  for (int i = 0; i <= LM_GATE_NUMBERS; i++)
    image_node(&m, LM_IN_NODE_FREE, LM_CMP_LT, 5, a, b)->arg = (uint16_t)i;
  assert_int_equal(image_make(&m, &plan), LOAM_OK);
  assert_int_equal(plan->gate[0].input, LM_GATE_SHUT);
  for (int i = 1; i <= LM_GATE_NUMBERS; i++) assert_int_equal(plan->gate[i].input, LM_IN_NODE_FREE);
  assert_int_equal(plan->gate[LM_GATE_NUMBERS + 1].input, LM_GATE_SHUT);
  lm_plan_destroy(plan);
}

/* Of the gate for a condition of this code, which is all of it. */
static unsigned input_for(const lm_code *code, uint32_t n, lm_gate *out) {
  image m = { 0 };
  lm_plan *plan;
  int32_t a = image_leaf(&m, 1, ids), b = image_leaf(&m, 1, &ids[1]);
  image_node(&m, 0, LM_CMP_LT, 0, a, b)->code_n = n;
  memcpy(m.code, code, n * sizeof *code);
  m.codes = n;
  assert_int_equal(image_make(&m, &plan), LOAM_OK);
  *out = plan->gate[0];
  lm_plan_destroy(plan);
  return out->input;
}

#define INPUT(which, of) \
  { .op = LM_OP_INPUT, .input = which, .arg = of }
#define CONST(number) \
  { .op = LM_OP_CONST, .k = number }
#define OP(which) \
  { .op = LM_OP_##which }

static void a_sum_is_read_as_it_is_written(void **state) {
  (void)state;
  lm_gate gate;
  static const lm_code room[] = { CONST(0), INPUT(LM_IN_NODE_FREE, 1),
                                  OP(ADD),  CONST(3),
                                  OP(MUL),  INPUT(LM_IN_SIZE, 0),
                                  OP(SUB),  CONST(100),
                                  OP(ADD),  CONST(5000) };
  assert_int_equal(input_for(room, LM_COUNT(room), &gate), LM_GATE_SUM);
  assert_int_equal(gate.terms, 1);
  assert_int_equal(gate.term[0].input, LM_IN_NODE_FREE);
  assert_int_equal(gate.term[0].arg, 1);
  assert_int_equal(gate.term[0].factor, 3);
  assert_int_equal(gate.sizes, -1);
  assert_true(lm_gate_leads(&gate, 4899) == gate.yes && lm_gate_leads(&gate, 4900) == gate.no);
  /* One number is itself, whatever stands around it, and on whichever side. */
  static const lm_code one[] = {
    CONST(2), CONST(0), INPUT(LM_IN_LIVE, 0), OP(ADD), INPUT(LM_IN_ALIGN, 0), OP(SUB), OP(NEG)
  };
  assert_int_equal(input_for(one, LM_COUNT(one), &gate), LM_IN_LIVE);
  assert_true(lm_gate_leads(&gate, 13) == gate.yes && lm_gate_leads(&gate, 14) == gate.no);
}

static void what_is_not_exact_in_whole_numbers_is_no_sum(void **state) {
  (void)state;
  lm_gate gate;
  static const lm_code codes[][6] = {
    { INPUT(LM_IN_LIVE, 0), CONST(0.5), OP(ADD), CONST(5000) },
    { INPUT(LM_IN_LIVE, 0), CONST(0x1p53), OP(ADD), CONST(0x1p53) },
    { INPUT(LM_IN_LIVE, 0), CONST(17), OP(MUL), CONST(5000) },
    { INPUT(LM_IN_LIVE, 0), INPUT(LM_IN_LIVE, 0), OP(MUL), CONST(9) },
    { INPUT(LM_IN_LIVE, 0), CONST(1), OP(ADD), CONST(2.5) },
    { INPUT(LM_IN_LIVE, 0), CONST(0x1p50), OP(ADD), CONST(16), OP(MUL), CONST(0) },
    { INPUT(LM_IN_DEVICE, 0), CONST(1), OP(ADD), CONST(1e-30), OP(ADD), CONST(0) },
  };
  for (size_t i = 0; i < LM_COUNT(codes); i++) {
    uint32_t n = codes[i][4].k || codes[i][4].op ? 6 : 4;
    assert_int_equal(input_for(codes[i], n, &gate), LM_GATE_SHUT);
  }
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
    cmocka_unit_test(most_that_reckons_comes_to_a_sum),
    cmocka_unit_test(nothing_is_forgotten_that_is_read_again),
    cmocka_unit_test(equal_numbers_are_one_and_others_are_not),
    cmocka_unit_test(what_only_the_tree_can_tell_is_shut),
    cmocka_unit_test(a_sum_is_read_as_it_is_written),
    cmocka_unit_test(what_is_not_exact_in_whole_numbers_is_no_sum),
    cmocka_unit_test(a_plan_without_gauges_has_none),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}
