/* test_class_tree.c - every index of a class tree is checked, and questions have the answers that
 * lua/loam/symbolic/tag.lua gives. */
#include "chance.h"
#include "tree.h"

#include "os/error.h"
#include "test.h"

static _Alignas(8) char bytes[TREE_BYTES];

static loam_status check(const tree *t, lm_class_tree *out) {
  return lm_class_tree_check(bytes, tree_write(t, bytes), out);
}

static void refuses(const tree *t, const char *words) {
  lm_class_tree out;
  assert_int_equal(check(t, &out), LOAM_EINVAL);
  if (!strstr(loam_error(), words)) fail_msg("\"%s\" is not in: %s", words, loam_error());
}

static uint32_t find(const tree *t, const loam_where *where) {
  lm_class_tree out;
  if (check(t, &out)) fail_msg("%s", loam_error());
  return lm_class_tree_find(&out, where);
}

/* Returns whether a question about one field holds. */
static bool holds(unsigned ask, unsigned part, const char *literal, const char *name) {
  static tree t;
  t = (tree){ .plans = 2 };
  if (ask == LM_ASK_KEY) {
    tree_node(&t, ask, LM_FIELD_FUNC, part, "", 0, ~0);
    tree_key(&t, literal, ~1);
  } else {
    tree_node(&t, ask, LM_FIELD_FUNC, part, literal, ~1, ~0);
  }
  return find(&t, &(loam_where){ .tag = "other", .func = name });
}

/* ---- Checking */

static tree small_tree(void) {
  tree t = { .plans = 3 };
  tree_node(&t, LM_ASK_UNDER, LM_FIELD_TAG, 0, "tensor", 1, ~0);
  tree_node(&t, LM_ASK_KEY, LM_FIELD_TAG, 2, "", 0, ~1);
  tree_key(&t, "grad", ~2);
  tree_key(&t, "weights", ~0);
  return t;
}

static void refuses_a_tree_of_another_size_than_its_head_says(void **state) {
  (void)state;
  tree t = small_tree();
  lm_class_tree out;
  size_t size = tree_write(&t, bytes);
  for (size_t n = 0; n < size; n++)
    assert_int_equal(lm_class_tree_check(bytes, n, &out), LOAM_EINVAL);
  assert_int_equal(lm_class_tree_check(bytes, size + 1, &out), LOAM_EINVAL);
  assert_int_equal(lm_class_tree_check(bytes, size, &out), LOAM_OK);
  bytes[0]++;
  assert_int_equal(lm_class_tree_check(bytes, size, &out), LOAM_EINVAL);
  lm_class_head huge = { LM_CLASS_MAGIC, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, 0 };
  assert_int_equal(lm_class_tree_check(&huge, sizeof huge, &out), LOAM_EINVAL);
}

static void a_checked_tree_whose_bytes_change_is_not_valid(void **state) {
  (void)state;
  tree t = small_tree();
  lm_class_tree out;
  assert_int_equal(check(&t, &out), LOAM_OK);
  assert_true(lm_class_tree_is_valid(&out));
  lm_class_node *node = (lm_class_node *)out.node;
  node[1].no = 0; /* a cycle: a search would not end */
  assert_false(lm_class_tree_is_valid(&out));
  node[1].no = ~1;
  assert_true(lm_class_tree_is_valid(&out));
  out.head.plans = 0;
  assert_false(lm_class_tree_is_valid(&out));
}

static void refuses_a_target_that_does_not_go_up(void **state) {
  (void)state;
  tree t = small_tree();
  t.node[0].yes = 0;
  refuses(&t, "yes of node 0: 0");
  t.node[0].yes = 2;
  refuses(&t, "yes of node 0: 2");
  t = small_tree();
  t.node[1].no = ~3;
  refuses(&t, "no of node 1: -4");
  t = small_tree();
  t.key[1].next = 1;
  refuses(&t, "next of key 1: 1");
  t = small_tree();
  t.plans = 2;
  refuses(&t, "next of key 0: -3");
}

static void refuses_what_is_out_of_range(void **state) {
  (void)state;
  tree t = small_tree();
  t.plans = 0;
  refuses(&t, "count of plans");
  t = small_tree();
  t.node[0].ask = LM_ASKS;
  refuses(&t, "question of node 0: 5");
  t = small_tree();
  t.node[0].field = LM_FIELDS;
  refuses(&t, "field of node 0: 4");
  t = small_tree();
  t.node[0].ask = LM_ASK_PART;
  refuses(&t, "part of node 0: 0");
  t = small_tree();
  t.node[0].text = t.strings - t.node[0].length + 1;
  refuses(&t, "text of node 0");
  t.node[0].text = UINT32_MAX;
  refuses(&t, "text of node 0");
  t = small_tree();
  t.node[0].length = UINT32_MAX;
  refuses(&t, "text of node 0");
  t = small_tree();
  t.key[0].length = t.strings;
  refuses(&t, "text of key 0");
  t = small_tree();
  t.node[1].text = 1;
  refuses(&t, "keys of node 1: 1");
  t.node[1].text = 3;
  refuses(&t, "keys of node 1: 3");
}

static void refuses_keys_that_are_not_sorted(void **state) {
  (void)state;
  tree t = small_tree();
  t.key[1] = t.key[0];
  refuses(&t, "order of key 1");
  t = small_tree();
  t.key[0].text = t.key[1].text;
  t.key[0].length = t.key[1].length;
  refuses(&t, "order of key 1");
  t.key[0].length--; /* "weight" comes before "weights" */
  lm_class_tree out;
  assert_int_equal(check(&t, &out), LOAM_OK);
  t.key[0].length++;
  t.key[1].length--;
  refuses(&t, "order of key 1");
}

/* If nodes shared keys, the time of the check would not be proportional to the bytes. */
static void refuses_keys_of_several_nodes(void **state) {
  (void)state;
  tree t = small_tree();
  t.node[0].ask = LM_ASK_KEY;
  t.node[0].text = 0;
  t.node[0].length = 1;
  refuses(&t, "number of keys of node 1: 2");
}

static void refuses_a_literal_that_is_too_long(void **state) {
  (void)state;
  static char text[LM_CLASS_TEXT_MAX + 2];
  memset(text, 'a', LM_CLASS_TEXT_MAX + 1);
  tree t = { .plans = 2 };
  tree_node(&t, LM_ASK_IS, LM_FIELD_FILE, 0, text, ~1, ~0);
  refuses(&t, "text of node 0");
  t.node[0].length--;
  text[LM_CLASS_TEXT_MAX] = 0;
  assert_int_equal(find(&t, &(loam_where){ .file = text }), 1);
}

/* ---- Finding */

static void a_tree_without_nodes_gives_plan_0(void **state) {
  (void)state;
  tree t = { .plans = 1 };
  assert_int_equal(find(&t, &(loam_where){ .tag = "any" }), 0);
  assert_int_equal(find(&t, &(loam_where){ 0 }), 0);
}

static void asks_each_field(void **state) {
  (void)state;
  for (unsigned field = 0; field < LM_FIELDS; field++) {
    tree t = { .plans = 2 };
    tree_node(&t, LM_ASK_IS, field, 0, "x", ~1, ~0);
    const char *of[LM_FIELDS] = { "a", "a", "a", "a" };
    assert_int_equal(find(&t, &(loam_where){ of[0], of[1], of[2], of[3], 1 }), 0);
    of[field] = "x";
    assert_int_equal(find(&t, &(loam_where){ of[0], of[1], of[2], of[3], 1 }), 1);
    of[field] = NULL;
    assert_int_equal(find(&t, &(loam_where){ of[0], of[1], of[2], of[3], 1 }), 0);
  }
}

static void follows_several_questions(void **state) {
  (void)state;
  tree t = small_tree();
  assert_int_equal(find(&t, &(loam_where){ .tag = "io" }), 0);
  assert_int_equal(find(&t, &(loam_where){ .tag = "tensor" }), 1);
  assert_int_equal(find(&t, &(loam_where){ .tag = "tensor.other.grad" }), 1);
  assert_int_equal(find(&t, &(loam_where){ .tag = "tensor.grad.x" }), 2);
  assert_int_equal(find(&t, &(loam_where){ .tag = "tensor.weights" }), 0);
}

static void finds_every_key(void **state) {
  (void)state;
  static const char *const keys[] = { "", "A", "a", "a.b", "aa", "ab", "b", "\xc3\xa9" };
  for (unsigned n = 0; n <= LM_COUNT(keys); n++) {
    tree t = { .plans = LM_COUNT(keys) + 1 };
    tree_node(&t, LM_ASK_KEY, LM_FIELD_TAG, 0, "", 0, ~(int32_t)LM_COUNT(keys));
    for (unsigned i = 0; i < n; i++) tree_key(&t, keys[i], ~(int32_t)i);
    for (unsigned i = 0; i < LM_COUNT(keys); i++)
      assert_int_equal(find(&t, &(loam_where){ .tag = keys[i] }), i < n ? i : LM_COUNT(keys));
    assert_int_equal(find(&t, &(loam_where){ .tag = "a." }), LM_COUNT(keys));
  }
}

static void answers_no_about_a_part_that_does_not_exist(void **state) {
  (void)state;
  for (unsigned ask = 0; ask < LM_ASKS; ask++) {
    assert_false(holds(ask, 1, "", ""));
    assert_false(holds(ask, 3, "", "a.b"));
    assert_true(holds(ask, 3, "", "a.b."));
    assert_true(holds(ask, 1, "", ".a"));
  }
  assert_false(holds(LM_ASK_GLOB, 2, "*", "a"));
  assert_true(holds(LM_ASK_GLOB, 2, "*", "a."));
  assert_false(holds(LM_ASK_PART, 65535, "", "a.b"));
}

/* ---- The answers of tag.lua, computed again in the simplest way. */

static bool plain_under(const char *name, const char *prefix) {
  size_t n = strlen(prefix);
  return !n || !strcmp(name, prefix) || (!strncmp(name, prefix, n) && name[n] == '.');
}

static bool plain_glob(const char *name, const char *pattern) {
  if (*pattern == '*')
    return plain_glob(name, pattern + 1) || (*name && plain_glob(name + 1, pattern));
  if (!*name || !*pattern) return *name == *pattern;
  return (*pattern == '?' || *pattern == *name) && plain_glob(name + 1, pattern + 1);
}

/* Copies a part of a name. Returns false if the part does not exist. */
static bool plain_part(const char *name, unsigned index, char *out) {
  if (!index) return strcpy(out, name) != NULL;
  if (!*name) return false;
  for (; index > 1; index--) {
    name = strchr(name, '.');
    if (!name) return false;
    name++;
  }
  size_t n = strcspn(name, ".");
  memcpy(out, name, n);
  out[n] = 0;
  return true;
}

static bool plain_holds(unsigned ask, unsigned index, const char *literal, const char *name) {
  char part[64];
  if (!plain_part(name, index, part)) return false;
  switch (ask) {
    case LM_ASK_UNDER: return plain_under(part, literal);
    case LM_ASK_GLOB: return plain_glob(part, literal);
    case LM_ASK_PART: return true;
    default: return !strcmp(part, literal);
  }
}

static uint64_t seed = 1;

/* Writes a string of few letters, so that the answer to many questions is yes. */
static void some_text(char *out, const char *letters) {
  size_t n = chance(&seed, 8);
  for (size_t i = 0; i < n; i++) out[i] = letters[chance(&seed, (uint32_t)strlen(letters))];
  out[n] = 0;
}

static void answers_as_the_language_does(void **state) {
  (void)state;
  long count[LM_ASKS][2] = { 0 };
  for (int i = 0; i < 200000; i++) {
    char literal[16], name[16];
    unsigned ask = chance(&seed, LM_ASKS), part = chance(&seed, 4);
    if (ask == LM_ASK_PART && !part) part = 1;
    some_text(literal, ask == LM_ASK_GLOB ? "a.*?" : "ab.");
    some_text(name, "ab.*"); /* a star in a name is a plain letter */
    if (!chance(&seed, 4)) strcpy(literal, name);
    bool want = plain_holds(ask, part, literal, name);
    if (holds(ask, part, literal, name) != want)
      fail_msg("question %u, part %u, literal \"%s\", name \"%s\"", ask, part, literal, name);
    count[ask][want]++;
  }
  for (unsigned ask = 0; ask < LM_ASKS; ask++) {
    assert_true(count[ask][0] > 1000);
    assert_true(count[ask][1] > 1000);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(refuses_a_tree_of_another_size_than_its_head_says),
    cmocka_unit_test(a_checked_tree_whose_bytes_change_is_not_valid),
    cmocka_unit_test(refuses_a_target_that_does_not_go_up),
    cmocka_unit_test(refuses_what_is_out_of_range),
    cmocka_unit_test(refuses_keys_that_are_not_sorted),
    cmocka_unit_test(refuses_keys_of_several_nodes),
    cmocka_unit_test(refuses_a_literal_that_is_too_long),
    cmocka_unit_test(a_tree_without_nodes_gives_plan_0),
    cmocka_unit_test(asks_each_field),
    cmocka_unit_test(follows_several_questions),
    cmocka_unit_test(finds_every_key),
    cmocka_unit_test(answers_no_about_a_part_that_does_not_exist),
    cmocka_unit_test(answers_as_the_language_does),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
