/* test_plan.c - every index of an image is checked, plans compute like Lua, and the size table
 * agrees with the tree for every size. */
#include "chance.h"
#include "image.h"

#include <math.h>
#include <stdio.h>

#include "heap/tcache_slow.h"
#include "os/error.h"
#include "plan/plan_set.h"
#include "test.h"

static const double none[LM_INPUTS];

static uint32_t strategy(const char *name, size_t align, size_t limit) {
  lm_desc desc = { .kind = LM_KIND_HOST, .align = align, .limit = limit };
  snprintf(desc.name, sizeof desc.name, "%s", name);
  lm_strategy *s;
  assert_int_equal(lm_strategy_intern(&desc, &s), LOAM_OK);
  return s->id;
}

static unsigned decide(const lm_plan *plan, size_t size) {
  lm_inputs r = { .size = size, .align = 16, .fixed = none };
  return lm_plan_decide(plan, &r);
}

static uint32_t first_of(const lm_plan *plan, size_t size) {
  return plan->chain[plan->leaf[decide(plan, size)].first];
}

static void refuses(const image *m, const char *words) {
  lm_plan *plan = (lm_plan *)1;
  assert_int_equal(image_make(m, &plan), LOAM_EINVAL);
  assert_null(plan);
  if (!strstr(loam_error(), words)) fail_msg("\"%s\" is not in: %s", words, loam_error());
}

/* Returns an image with two leaves and a node that chooses between them. */
static image small_image(void) {
  image m = { 0 };
  int32_t a = image_leaf(&m, 1, (uint32_t[]){ 0 }), b = image_leaf(&m, 1, (uint32_t[]){ 0 });
  image_node(&m, LM_IN_SIZE, LM_CMP_LT, 100, a, b);
  return m;
}

static void refuses_an_image_of_another_size_than_its_head_says(void **state) {
  (void)state;
  image m = small_image();
  static char bytes[IMAGE_BYTES];
  size_t size = image_write(&m, bytes);
  lm_plan *plan;
  for (size_t n = 0; n < size; n++) assert_int_equal(lm_plan_make(bytes, n, &plan), LOAM_EINVAL);
  assert_int_equal(lm_plan_make(bytes, size + 1, &plan), LOAM_EINVAL);
  bytes[0]++;
  assert_int_equal(lm_plan_make(bytes, size, &plan), LOAM_EINVAL);
  lm_image huge = { LM_PLAN_MAGIC, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, 0 };
  assert_int_equal(lm_plan_make(&huge, sizeof huge, &plan), LOAM_EINVAL);
}

static void refuses_a_target_that_does_not_go_up(void **state) {
  (void)state;
  image m = small_image();
  m.node[0].yes = 0;
  refuses(&m, "yes of node 0: 0");
  m.node[0].yes = 1;
  refuses(&m, "yes of node 0: 1");
  m = small_image();
  m.node[0].no = ~2;
  refuses(&m, "no of node 0");
}

static void refuses_what_is_out_of_range(void **state) {
  (void)state;
  image m = small_image();
  m.node[0].cmp = 3;
  refuses(&m, "comparison of node 0: 3");
  m = small_image();
  m.node[0].input = LM_INPUTS;
  refuses(&m, "input of node 0: 10");
  m = small_image();
  m.leaf[1].n = 0;
  refuses(&m, "length of leaf 1: 0");
  m.leaf[1].n = LM_CHAIN_MAX + 1;
  refuses(&m, "length of leaf 1: 17");
  m.leaf[1].n = 2;
  refuses(&m, "chain of leaf 1");
  m = small_image();
  m.chain[0] = lm_strategy_count();
  refuses(&m, "strategy in chain 0");
  m = (image){ 0 };
  refuses(&m, "count of leaves");
}

static void refuses_code_that_breaks_the_stack(void **state) {
  (void)state;
  image m = small_image();
  m.node[0].code_n = 1;
  refuses(&m, "code range of node 0");
  image_code(&m, LM_OP_CONST, 0, 1);
  refuses(&m, "stack after node 0: 1");
  m.code[0].op = LM_OP_ADD;
  refuses(&m, "stack at code 0");
  m.code[0].op = LM_OPS;
  refuses(&m, "op of code 0");
  m.code[0] = (lm_code){ .op = LM_OP_INPUT, .input = LM_INPUTS };
  refuses(&m, "input of code 0");
  m.codes = 0;
  for (int i = 0; i < LM_STACK + 1; i++) image_code(&m, LM_OP_CONST, 0, 1);
  m.node[0].code_n = m.codes;
  refuses(&m, "stack at code 32: 33");
}

static void uses_the_stack_to_its_end(void **state) {
  (void)state;
  image m = small_image();
  for (int i = 0; i < LM_STACK; i++) image_code(&m, LM_OP_CONST, 0, 1);
  for (int i = 0; i < LM_STACK - 2; i++) image_code(&m, LM_OP_ADD, 0, 0);
  m.node[0].code_n = m.codes;
  m.node[0].cmp = LM_CMP_LT; /* 1 < 31 */
  lm_plan *plan;
  assert_int_equal(image_make(&m, &plan), LOAM_OK);
  assert_int_equal(decide(plan, 1), 0);
  lm_plan_destroy(plan);
}

/* Returns whether a plan finds that `left op right == want`. */
static bool computes(unsigned op, double left, double right, double want) {
  image m = small_image();
  image_code(&m, LM_OP_CONST, 0, left);
  if (op != LM_OP_NEG && op != LM_OP_FLOOR && op != LM_OP_CEIL && op != LM_OP_ABS)
    image_code(&m, LM_OP_CONST, 0, right);
  image_code(&m, op, 0, 0);
  image_code(&m, LM_OP_CONST, 0, want);
  m.node[0].code_n = m.codes;
  m.node[0].cmp = LM_CMP_EQ;
  lm_plan *plan;
  assert_int_equal(image_make(&m, &plan), LOAM_OK);
  bool holds = decide(plan, 0) == 0;
  lm_plan_destroy(plan);
  return holds;
}

static void computes_as_lua_does(void **state) {
  (void)state;
  double nan = NAN;
  assert_true(computes(LM_OP_ADD, 0.1, 0.2, 0.1 + 0.2));
  assert_true(computes(LM_OP_SUB, 1, 3, -2));
  assert_true(computes(LM_OP_MUL, 3, 0.5, 1.5));
  assert_true(computes(LM_OP_DIV, 1, 3, 1.0 / 3));
  assert_true(computes(LM_OP_DIV, 1, 0, INFINITY));
  assert_true(computes(LM_OP_MOD, 5, -3, -1));
  assert_true(computes(LM_OP_MOD, -5, 3, 1));
  assert_true(computes(LM_OP_MOD, 5.5, 2, 1.5));
  assert_false(computes(LM_OP_MOD, 5, INFINITY, 5)); /* LuaJIT gives nan */
  assert_false(computes(LM_OP_MOD, 5, 0, 0));
  assert_true(computes(LM_OP_POW, 2, 10, 1024));
  assert_true(computes(LM_OP_POW, 2, 0.5, sqrt(2)));
  assert_true(computes(LM_OP_NEG, 3, 0, -3));
  assert_true(computes(LM_OP_FLOOR, -1.5, 0, -2));
  assert_true(computes(LM_OP_CEIL, -1.5, 0, -1));
  assert_true(computes(LM_OP_ABS, -1.5, 0, 1.5));
  assert_true(computes(LM_OP_MIN, nan, 1, 1)); /* LuaJIT returns the second operand */
  assert_false(computes(LM_OP_MIN, 1, nan, 1));
  assert_true(computes(LM_OP_MAX, nan, 1, 1));
  assert_true(computes(LM_OP_MAX, 1, 2, 2));
}

static double counted_gauge(const lm_inputs *r, int input, unsigned arg) {
  (void)r;
  static int asked;
  return ++asked * 1000 + input * 10 + (int)arg;
}

static void reads_each_gauge_once_for_a_decision(void **state) {
  (void)state;
  image m = small_image();
  static const unsigned gauges[] = { LM_IN_NODE, LM_IN_LIVE, LM_IN_NODE_FREE, LM_IN_DEVICE_FREE,
                                     LM_IN_PRESSURE };
  for (size_t i = 0; i < LM_COUNT(gauges);
       i++) { /* x - x == 0, although the gauge changes at each reading */
    m.codes = 0;
    image_code(&m, LM_OP_INPUT, gauges[i], 0);
    image_code(&m, LM_OP_INPUT, gauges[i], 0);
    image_code(&m, LM_OP_SUB, 0, 0);
    image_code(&m, LM_OP_CONST, 0, 0);
    m.node[0].code_n = m.codes;
    m.node[0].cmp = LM_CMP_EQ;
    lm_plan *plan;
    assert_int_equal(image_make(&m, &plan), LOAM_OK);
    lm_inputs r = { .size = 1, .align = 16, .gauge = counted_gauge };
    assert_int_equal(lm_plan_decide(plan, &r), 0);
    assert_true(plan->reads & 1u << gauges[i]);
    lm_plan_destroy(plan);
  }
}

static void reads_every_input(void **state) {
  (void)state;
  double fixed[LM_INPUTS] = {
    [LM_IN_NODE] = 3, [LM_IN_DEVICE] = -1, [LM_IN_LIVE] = 5, [LM_IN_PRESSURE] = 42
  };
  double free_of[2] = { 7, 8 };
  lm_inputs r = { .size = 1,
                  .align = 64,
                  .zero = true,
                  .line = 77,
                  .fixed = fixed,
                  .node_free = free_of,
                  .device_free = free_of,
                  .node_free_n = 2,
                  .device_free_n = 2 };
  double want[LM_INPUTS] = { 1, 64, 1, 3, -1, 5, 8, 8, 77, 42 };
  for (unsigned input = 0; input < LM_INPUTS; input++) {
    image m = small_image();
    m.node[0].input = (uint8_t)input;
    m.node[0].cmp = LM_CMP_EQ;
    m.node[0].arg = 1;
    m.node[0].k = want[input];
    lm_plan *plan;
    assert_int_equal(image_make(&m, &plan), LOAM_OK);
    assert_int_equal(lm_plan_decide(plan, &r), 0);
    lm_plan_destroy(plan);
  }
}

static uint64_t seed = 1;

static double some_threshold(void) {
  static const double odd[] = { 0, -1, -0.0, 0.5, 1, 16, 17, 32768, 32769, 1e18, -1e18 };
  switch (chance(&seed, 8)) {
    case 0: return odd[chance(&seed, LM_COUNT(odd))];
    case 1: return NAN;
    case 2: return chance(&seed, 2) ? INFINITY : -INFINITY;
    case 3: return chance(&seed, 40000) + 0.25;
    case 4: return (double)lm_class_size(chance(&seed, LM_CLASSES)) + chance(&seed, 3) - 1;
    default: return chance(&seed, 2) ? chance(&seed, 300) : chance(&seed, 33000);
  }
}

/* Returns a random tree. Most of its conditions read the size. The chains of its leaves have one
 * strategy of three. */
static image random_image(bool size_only, const uint32_t *ids) {
  image m = { 0 };
  uint32_t nodes = chance(&seed, 24), leaves = 1 + chance(&seed, 6);
  for (uint32_t i = 0; i < leaves; i++) image_leaf(&m, 1, &ids[chance(&seed, 3)]);
  for (uint32_t i = 0; i < nodes; i++) {
    int32_t to[2];
    for (int k = 0; k < 2; k++)
      to[k] = i + 1 < nodes && chance(&seed, 3) ? (int32_t)(i + 1 + chance(&seed, nodes - i - 1))
                                                : ~(int32_t)chance(&seed, leaves);
    unsigned input = size_only || chance(&seed, 4) ? LM_IN_SIZE : chance(&seed, LM_IN_LIVE);
    image_node(&m, input, chance(&seed, 3), some_threshold(), to[0], to[1]);
  }
  return m;
}

static int32_t entry_of(const lm_plan *plan, size_t size) {
  return plan->table.entry[size <= LM_SMALL_MAX ? lm_class_of(size) : lm_class_large(size)];
}

/* Checks that the table agrees with the tree for one size under these gauges. Either both give one
 * strategy, or the tree reaches one leaf from its root and from the node in the table. */
static void agree(const lm_plan *plan, size_t size, const double *fixed) {
  unsigned c = size <= LM_SMALL_MAX ? lm_class_of(size) : lm_class_large(size);
  int32_t entry = entry_of(plan, size);
  lm_inputs r = { .size = size, .align = 16, .fixed = fixed };
  if (entry < 0) {
    assert_int_equal(lm_plan_decide_from(plan, (uint32_t)~entry, &r), lm_plan_decide(plan, &r));
    return;
  }
  uint32_t id = plan->chain[plan->leaf[lm_plan_decide(plan, &r)].first];
  uint32_t bin = lm_pool_bin(lm_strategy_at(id), c);
  assert_int_equal(entry, bin ? id + 1 : 0);
  if (bin && c < LM_CLASSES) assert_true(lm_class_size(lm_tcache_bin_class(bin)) >= size);
}

static void the_table_agrees_with_the_tree_at_every_size(void **state) {
  (void)state;
  uint32_t ids[3] = { 0, strategy("wide", 64, 0), strategy("limited", 0, 1000) };
  enum { PLANS = THREAD_SANITIZED ? 40 : 400 };
  size_t served = 0;
  for (int i = 0; i < PLANS; i++) {
    image m = random_image(i % 2, ids);
    lm_plan *plan;
    assert_int_equal(image_make(&m, &plan), LOAM_OK);
    assert_true(lm_plan_is_valid(plan));
    for (int k = 0; k < 4; k++) {
      double fixed[LM_INPUTS] = { [LM_IN_NODE] = chance(&seed, 3),
                                  [LM_IN_DEVICE] = chance(&seed, 3) - 1.0,
                                  [LM_IN_LIVE] = chance(&seed, 100000) };
      for (size_t size = 0; size <= LM_SMALL_MAX; size += k ? 1 + chance(&seed, 64) : 1)
        agree(plan, size, fixed);
    }
    for (unsigned c = 0; c < LM_CLASS_ALIGNED; c++) served += plan->table.entry[c] > 0;
    lm_plan_destroy(plan);
  }
  /* The table is not empty. */
  assert_in_range(served, PLANS * LM_CLASSES / 4, PLANS * LM_CLASSES);
}

static void a_plan_of_100_sizes_asks_only_within_classes(void **state) {
  (void)state;
  image m = { 0 };
  uint32_t wide = strategy("wide", 64, 0);
  int32_t a = image_leaf(&m, 1, (uint32_t[]){ 0 }), b = image_leaf(&m, 1, &wide);
  for (int i = 1; i < 100; i++)
    image_node(&m, LM_IN_SIZE, LM_CMP_LT, i * 328, i % 2 ? a : b, i == 99 ? b : i);
  lm_plan *plan;
  assert_int_equal(image_make(&m, &plan), LOAM_OK);
  for (size_t size = 0; size <= 32 * LM_KIB; size++) {
    unsigned c = lm_class_of(size);
    bool is_parted = lm_class_min_size(c) / 328 != lm_class_max_size(c) / 328;
    assert_int_equal(first_of(plan, size), size / 328 % 2 ? wide : 0);
    assert_int_not_equal(entry_of(plan, size), 0);
    if (!is_parted) assert_true(entry_of(plan, size) > 0);
    agree(plan, size, (double[LM_INPUTS]){ 0 });
  }
  lm_plan_destroy(plan);
}

/* Each pair of nodes doubles the number of paths through the tree. The work for the table must have
 * a bound. */
static void a_tree_that_joins_again_is_filled_in_bounded_time(void **state) {
  (void)state;
  image m = { 0 };
  uint32_t wide = strategy("wide", 64, 0);
  int32_t a = image_leaf(&m, 1, (uint32_t[]){ 0 }), b = image_leaf(&m, 1, &wide);
  for (int i = 0; i < 100; i += 2) { /* node i goes to i+1 or i+2, node i+1 to i+2 */
    int32_t next = i + 2 < 100 ? i + 2 : a;
    image_node(&m, LM_IN_NODE, LM_CMP_EQ, i, i + 1, next);
    image_node(&m, LM_IN_DEVICE, LM_CMP_EQ, i, next, i + 2 < 100 ? next : b);
  }
  lm_plan *plan;
  assert_int_equal(image_make(&m, &plan), LOAM_OK);
  assert_true(lm_plan_is_valid(plan));
  lm_plan_destroy(plan);
}

/* Requests below 1,000 bytes get strategy 0, larger ones are decided by a gauge. The size class
 * that contains 1,000 has to evaluate the tree from its root. */
static void sizes_that_ask_a_gauge_begin_where_it_is_asked(void **state) {
  (void)state;
  image m = { 0 };
  uint32_t wide = strategy("wide", 64, 0);
  int32_t a = image_leaf(&m, 1, (uint32_t[]){ 0 }), b = image_leaf(&m, 1, &wide);
  image_node(&m, LM_IN_SIZE, LM_CMP_LT, 1000, a, 1);
  image_node(&m, LM_IN_LIVE, LM_CMP_LT, 5, a, b);
  lm_plan *plan;
  assert_int_equal(image_make(&m, &plan), LOAM_OK);
  for (size_t size = 0; size <= LM_SMALL_MAX; size++) {
    int32_t entry = entry_of(plan, size);
    bool is_parted = lm_class_of(size) == lm_class_of(1000);
    if (entry < 0) assert_int_equal(~entry, !is_parted);
    assert_int_equal(entry < 0, is_parted || size >= 1000);
  }
  lm_plan_destroy(plan);
}

static void equal_images_have_equal_hashes(void **state) {
  (void)state;
  image m = small_image();
  lm_plan *one, *same, *other;
  assert_int_equal(image_make(&m, &one), LOAM_OK);
  assert_int_equal(image_make(&m, &same), LOAM_OK);
  m.node[0].k = 101;
  assert_int_equal(image_make(&m, &other), LOAM_OK);
  assert_true(one->hash == same->hash && one->hash != other->hash);
  lm_plan_destroy(one);
  lm_plan_destroy(same);
  lm_plan_destroy(other);
}

/* ---- Plans for one line */

/* Returns a random tree that reads the line, alone and in expressions with other inputs. */
static image random_image_of_lines(void) {
  image m = { 0 };
  uint32_t nodes = 1 + chance(&seed, 24), leaves = 1 + chance(&seed, 6);
  for (uint32_t i = 0; i < leaves; i++) image_leaf(&m, 1 + i % 3, (uint32_t[]){ 0, 0, 0 });
  for (uint32_t i = 0; i < nodes; i++) {
    int32_t to[2];
    for (int k = 0; k < 2; k++)
      to[k] = i + 1 < nodes && chance(&seed, 3) ? (int32_t)(i + 1 + chance(&seed, nodes - i - 1))
                                                : ~(int32_t)chance(&seed, leaves);
    unsigned input = !i || chance(&seed, 2) ? LM_IN_LINE : chance(&seed, LM_INPUTS);
    lm_node *node = image_node(&m, input, chance(&seed, 3), chance(&seed, 6), to[0], to[1]);
    if (chance(&seed, 3)) continue;
    node->code = m.codes;
    image_code(&m, LM_OP_INPUT, LM_IN_LINE, 0);
    image_code(&m, LM_OP_INPUT, chance(&seed, 2) ? LM_IN_LINE : LM_IN_SIZE, 0);
    image_code(&m, chance(&seed, 2) ? LM_OP_ADD : LM_OP_MUL, 0, 0);
    image_code(&m, LM_OP_CONST, 0, chance(&seed, 30));
    node->code_n = m.codes - node->code;
  }
  return m;
}

/* Checks that the plan and the plan that was derived for `line` lead a random request on that line
 * to one leaf. `lm_leaf.line` tells the leaves of a plan apart. */
static void decide_alike(const lm_plan *plan, const lm_plan *derived, long line) {
  double free_of[1] = { chance(&seed, 8) };
  double fixed[LM_INPUTS] = { [LM_IN_NODE] = chance(&seed, 6),
                              [LM_IN_DEVICE] = chance(&seed, 6) - 1.0,
                              [LM_IN_LIVE] = chance(&seed, 6) };
  lm_inputs r = { .size = chance(&seed, 10),
                  .align = chance(&seed, 8),
                  .zero = chance(&seed, 2),
                  .fixed = fixed,
                  .node_free = free_of,
                  .device_free = free_of,
                  .node_free_n = 1,
                  .device_free_n = 1 };
  unsigned leaf = lm_plan_decide(derived, &r);
  r.line = line;
  assert_int_equal(derived->leaf[leaf].line, plan->leaf[lm_plan_decide(plan, &r)].line);
  assert_int_equal(derived->leaf[leaf].n, plan->leaf[lm_plan_decide(plan, &r)].n);
}

static void a_plan_at_a_line_decides_as_the_plan_does_there(void **state) {
  (void)state;
  unsigned single = 0, shorter = 0;
  for (int i = 0; i < 3000; i++) {
    image m = random_image_of_lines();
    lm_plan *plan, *derived;
    assert_int_equal(image_make(&m, &plan), LOAM_OK);
    for (long line = -1; line < 7; line++) {
      if (lm_plan_at_line(plan, line, &derived)) fail_msg("%s", loam_error());
      assert_true(lm_plan_is_valid(derived));
      assert_false(derived->reads & 1u << LM_IN_LINE);
      assert_false(derived->reads & ~plan->reads);
      single += derived->leaves == 1 && plan->leaves > 1;
      shorter += derived->nodes && derived->nodes < plan->nodes;
      for (int k = 0; k < 10; k++) decide_alike(plan, derived, line);
      lm_plan_destroy(derived);
    }
    lm_plan_destroy(plan);
  }
  assert_true(single > 1000);
  assert_true(shorter > 1000);
}

/* The conditions on a gauge follow each other, so a recursive walk through them would need a deep
 * stack. */
static void *make_deep_plan(void *result) {
  static image m;
  lm_plan *plan, *derived = NULL;
  m = (image){ 0 };
  int32_t a = image_leaf(&m, 1, (uint32_t[]){ 0 });
  for (int i = 0; i < IMAGE_NODES; i++)
    image_node(&m, i ? LM_IN_LIVE : LM_IN_LINE, LM_CMP_LT, i + 1, i + 1 < IMAGE_NODES ? i + 1 : a,
               a);
  *(loam_status *)result = image_make(&m, &plan);
  if (*(loam_status *)result == LOAM_OK)
    *(loam_status *)result = lm_plan_at_line(plan, 0, &derived);
  lm_plan_destroy(derived);
  lm_plan_destroy(plan);
  return NULL;
}

static void a_deep_plan_needs_little_stack(void **state) {
  (void)state;
  skip_if_sanitized();
  pthread_t thread;
  pthread_attr_t attributes;
  loam_status status = LOAM_EINVAL;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN));
  assert_int_equal(pthread_create(&thread, &attributes, make_deep_plan, &status), 0);
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
  assert_int_equal(status, LOAM_OK);
}

static lm_plan *of_lines;

static void make_at_line(bool refused) {
  lm_plan *derived;
  loam_status status = lm_plan_at_line(of_lines, 5, &derived);
  if (status == LOAM_OK) lm_plan_destroy(derived);
  else assert_true(refused && status == LOAM_ENOMEM && !derived);
}

static void make_one(bool refused) {
  static image m;
  m = small_image();
  lm_plan *plan;
  loam_status status = image_make(&m, &plan);
  if (status == LOAM_OK) lm_plan_destroy(plan);
  else assert_true(refused && status == LOAM_ENOMEM);
}

static void survives_each_refusal_of_memory(void **state) {
  (void)state;
  image m = small_image();
  m.node[0].input = LM_IN_LINE;
  assert_int_equal(image_make(&m, &of_lines), LOAM_OK);
  refuse_each(make_one);
  refuse_each(make_at_line);
  lm_plan_destroy(of_lines);
}

static void a_size_table_that_names_what_is_not_there_is_not_valid(void **state) {
  (void)state;
  image m = small_image();
  lm_plan *plan;
  assert_int_equal(image_make(&m, &plan), LOAM_OK);
  assert_true(lm_size_table_is_valid(&plan->table, plan) && lm_plan_is_valid(plan));
  int32_t before = plan->table.entry[0];
  int32_t wrong[] = { ~(int32_t)plan->nodes, (int32_t)lm_strategy_count() + 1 };
  for (int i = 0; i < 2; i++) {
    plan->table.entry[0] = wrong[i];
    assert_false(lm_size_table_is_valid(&plan->table, plan));
    assert_false(lm_plan_is_valid(plan));
  }
  plan->table.entry[0] = before;
  lm_plan_destroy(plan);
}

static void a_set_that_miscounts_its_plans_is_not_valid(void **state) {
  (void)state;
  image m = small_image();
  lm_plan *plan;
  lm_plan_set set = { 0 };
  assert_true(lm_plan_set_is_valid(&set));
  assert_int_equal(image_make(&m, &plan), LOAM_OK);
  assert_ptr_equal(lm_plan_set_add(&set, plan), plan);
  assert_true(lm_plan_set_is_valid(&set));
  set.count++;
  assert_false(lm_plan_set_is_valid(&set));
  set.count--;
  lm_plan_set_clear(&set);
  assert_true(lm_plan_set_is_valid(&set));
}

static void the_default_is_one_leaf_of_strategy_0(void **state) {
  (void)state;
  assert_ptr_equal(lm_plan_default(), &lm_plan_bare);
  assert_int_equal(first_of(lm_plan_default(), 1 << 20), 0);
  lm_plan_start();
  assert_ptr_not_equal(lm_plan_default(), &lm_plan_bare);
  assert_true(lm_plan_is_valid(lm_plan_default()));
  for (size_t size = 0; size <= LM_SMALL_MAX; size++)
    assert_int_equal(entry_of(lm_plan_default(), size), 1);
}

int main(void) {
  atomic_store(&lm_plan_power, pow);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(refuses_an_image_of_another_size_than_its_head_says),
    cmocka_unit_test(refuses_a_target_that_does_not_go_up),
    cmocka_unit_test(refuses_what_is_out_of_range),
    cmocka_unit_test(refuses_code_that_breaks_the_stack),
    cmocka_unit_test(uses_the_stack_to_its_end),
    cmocka_unit_test(computes_as_lua_does),
    cmocka_unit_test(reads_each_gauge_once_for_a_decision),
    cmocka_unit_test(reads_every_input),
    cmocka_unit_test(the_table_agrees_with_the_tree_at_every_size),
    cmocka_unit_test(a_plan_of_100_sizes_asks_only_within_classes),
    cmocka_unit_test(a_tree_that_joins_again_is_filled_in_bounded_time),
    cmocka_unit_test(sizes_that_ask_a_gauge_begin_where_it_is_asked),
    cmocka_unit_test(equal_images_have_equal_hashes),
    cmocka_unit_test(a_plan_at_a_line_decides_as_the_plan_does_there),
    cmocka_unit_test(a_deep_plan_needs_little_stack),
    cmocka_unit_test(survives_each_refusal_of_memory),
    cmocka_unit_test(a_size_table_that_names_what_is_not_there_is_not_valid),
    cmocka_unit_test(a_set_that_miscounts_its_plans_is_not_valid),
    cmocka_unit_test(the_default_is_one_leaf_of_strategy_0),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
