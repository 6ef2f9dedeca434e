/* test_script.c - scripts are opened, compiled to images, limited by budgets, and inspected:
 * script.h. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/handler.h"
#include "heap/pool.h"
#include "heap/strategy.h"
#include "os/error.h"
#include "plan/policy_image.h"
#include "script/core_module.h"
#include "script/script.h"
#include "script/vm.h"

static const lm_script_limits limits = { .max_leaves = 100,
                                         .step_ms = 200,
                                         .step_bytes = 4 * LM_MIB };

static const char *const two = "local s = loam.host { name = 'small' }\n"
                               "local l = loam.host { name = 'large', align = 64 }\n"
                               "return loam.policy {\n"
                               "  name = 'two',\n"
                               "  pick = function(req)\n"
                               "    if req.size >= 4096 then return l:or_else(s) end\n"
                               "    return s\n"
                               "  end,\n"
                               "  tests = { { tag = 'x', size = 4096, expect = l } },\n"
                               "}\n";

static lm_script *script;
static lm_policy_image *policy;

static lm_script_source source_of(const char *text) {
  return (lm_script_source){ "test.lua", text, strlen(text), &limits, .is_host = true };
}

static loam_status open_text(const char *text) {
  lm_script_source source = source_of(text);
  return lm_script_open(&source, &script);
}

static loam_status open_within(const char *text, const lm_script_limits *own) {
  lm_script_source source = source_of(text);
  source.limits = own;
  return lm_script_open(&source, &script);
}

static int close_script(void **state) {
  (void)state;
  lm_script_close(script);
  lm_policy_image_close(policy);
  script = NULL;
  policy = NULL;
  return 0;
}

/* Writes the image of the open script and opens it. */
static loam_status compile(void) {
  void *bytes;
  size_t size;
  loam_status status = lm_script_image(script, &bytes, &size);
  assert_true((status == LOAM_OK) == (bytes != NULL));
  if (status != LOAM_OK) return status;
  status = lm_policy_image_open(bytes, size, true, &policy);
  if (status != LOAM_OK) lm_metadata_free(bytes);
  return status;
}

static void open_image(const char *text) {
  if (open_text(text) || compile()) fail_msg("%s", loam_error());
}

static void a_script_that_breaks_a_law_is_not_valid(void **state) {
  (void)state;
  assert_int_equal(open_text(two), LOAM_OK);
  assert_true(lm_script_is_valid(script) && lm_vm_is_valid(&script->vm));
  script->length--;
  assert_false(lm_script_is_valid(script));
  script->length++;
  size_t cap = script->vm.cap;
  script->vm.cap = script->vm.used - 1;
  assert_false(lm_vm_is_valid(&script->vm) || lm_script_is_valid(script));
  script->vm.cap = cap;
  assert_true(lm_script_is_valid(script));
}

static const lm_plan *plan_of(const char *tag) {
  const lm_plan *plan;
  loam_where where = { .tag = tag };
  if (lm_policy_image_find(policy, &where, &plan)) fail_msg("%s: %s", tag, loam_error());
  return plan;
}

/* Returns the name of the first strategy in the leaf that a request of this size reaches. */
static const char *picked(const lm_plan *plan, size_t size) {
  double fixed[LM_INPUTS] = { 0 };
  lm_inputs request = { .size = size, .align = 16, .fixed = fixed };
  const lm_leaf *leaf = &plan->leaf[lm_plan_decide(plan, &request)];
  return lm_strategy_at(plan->chain[leaf->first])->desc.name;
}

static void words_have(const char *text) {
  if (!strstr(loam_error(), text)) fail_msg("expected \"%s\" in: %s", text, loam_error());
}

/* ---- plans */

static void a_policy_becomes_a_plan(void **state) {
  (void)state;
  open_image(two);
  assert_string_equal(lm_policy_image_name(policy), "two");
  assert_false(lm_policy_image_applies_live(policy));
  const lm_plan *plan = plan_of("any");
  assert_true(lm_plan_is_valid(plan));
  assert_string_equal(picked(plan, 4095), "small");
  assert_string_equal(picked(plan, 4096), "large");
  assert_int_equal(lm_script_vet(script), LOAM_OK);
}

static void tags_that_are_distinguished_have_their_own_plans(void **state) {
  (void)state;
  open_image("local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
             "return loam.policy { pick = function(req)\n"
             "  return req.tag:under('x') and a or b\nend }\n");
  assert_ptr_equal(plan_of("x"), plan_of("x.y"));
  assert_ptr_not_equal(plan_of("x"), plan_of("y"));
  assert_int_equal(lm_policy_image_plans(policy), 2);
}

static void an_image_needs_its_script_no_more(void **state) {
  (void)state;
  open_image("local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
             "return loam.policy { pick = function(req)\n"
             "  return req.tag:under('x') and a or b\nend }\n");
  lm_script_close(script);
  script = NULL;
  assert_string_equal(picked(plan_of("x.y"), 1), "a");
  assert_string_equal(picked(plan_of("y"), 1), "b");
}

static void compiling_is_all_steps_in_one(void **state) {
  (void)state;
  void *bytes;
  size_t size;
  lm_script_source source = source_of(two);
  assert_int_equal(lm_script_compile(&source, false, &bytes, &size), LOAM_OK);
  assert_int_equal(lm_policy_image_open(bytes, size, true, &policy), LOAM_OK);
  assert_string_equal(picked(plan_of("any"), 4096), "large");
  source = source_of("local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
                     "return loam.policy { pick = function(req) return a end,\n"
                     "  tests = { { size = 1, expect = b } } }\n");
  bytes = &source;
  assert_int_equal(lm_script_compile(&source, false, &bytes, &size), LOAM_EPOLICY);
  assert_null(bytes);
  assert_int_equal(lm_script_compile(&source, true, &bytes, &size), LOAM_OK);
  lm_metadata_free(bytes);
}

static void a_site_is_its_file_function_module_and_line_too(void **state) {
  (void)state;
  const lm_plan *plan;
  open_image("local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
             "return loam.policy { pick = function(req)\n"
             "  if req.file == 'f.c' and req.func == 'g' and req.module == 'm'\n"
             "    and req.line == 7 then return a end\n"
             "  return b\nend }\n");
  loam_where where = { "t", "f.c", "g", "m", 7 };
  assert_int_equal(lm_policy_image_find(policy, &where, &plan), LOAM_OK);
  assert_string_equal(picked(plan, 1), "a");
  where.line = 8;
  assert_int_equal(lm_policy_image_find(policy, &where, &plan), LOAM_OK);
  assert_string_equal(picked(plan, 1), "b");
}

static void a_tag_may_hold_any_bytes(void **state) {
  (void)state;
  char tag[256];
  open_image(two);
  for (int i = 0; i < 255; i++) tag[i] = (char)(i + 1);
  tag[255] = 0;
  assert_ptr_equal(plan_of(tag), plan_of(""));
}

static void two_images_do_not_know_each_other(void **state) {
  (void)state;
  void *bytes;
  size_t size;
  lm_policy_image *other;
  lm_script_source source = source_of(two);
  open_image(two);
  assert_int_equal(lm_script_compile(&source, false, &bytes, &size), LOAM_OK);
  assert_int_equal(lm_policy_image_open(bytes, size, true, &other), LOAM_OK);
  loam_where where = { .tag = "t" };
  const lm_plan *plan;
  assert_int_equal(lm_policy_image_find(other, &where, &plan), LOAM_OK);
  assert_ptr_not_equal(plan, plan_of("t"));
  lm_policy_image_close(other);
  assert_true(lm_plan_is_valid(plan_of("t")));
}

static void *no_malloc(void *ctx, size_t size) {
  (void)ctx, (void)size;
  return NULL;
}
static void *no_calloc(void *ctx, size_t count, size_t size) {
  (void)ctx, (void)count, (void)size;
  return NULL;
}
static void *no_realloc(void *ctx, void *p, size_t size) {
  (void)ctx, (void)p, (void)size;
  return NULL;
}
static void no_free(void *ctx, void *p, size_t size) { (void)ctx, (void)p, (void)size; }

/* The policy keeps 2 MiB, of the 4 MiB that it may use, and produces 5 MiB of garbage. */
static void garbage_is_no_part_of_what_a_policy_may_hold(void **state) {
  static const lm_script_limits slow = { .max_leaves = 100,
                                         .step_ms = 60000,
                                         .step_bytes = 4 * LM_MIB };
  const char *text = "local t, n = {}, 0\n"
                     "for i = 1, 15000 do t[i] = ('x'):rep(100) .. i end\n"
                     "for i = 1, 20000 do n = n + #('y' .. i .. ('x'):rep(200)) end\n"
                     "local s = loam.host { name = 's' }\n"
                     "return loam.policy { pick = function(req) return s end }\n";
  (void)state;
  loam_status status = open_within(text, &slow);
  if (status != LOAM_OK) fail_msg("%s", loam_error());
}

static void a_handler_has_to_be_registered(void **state) {
  (void)state;
  static const loam_handler handler = {
    .name = "script.test",
    .version = 1,
    .allocator = { NULL, no_malloc, no_calloc, no_realloc, no_free },
  };
  const char *text = "local h = loam.handler 'script.test'\n"
                     "return loam.policy { pick = function(req) return h end }\n";
  assert_int_equal(open_text(text), LOAM_OK);
  assert_int_equal(compile(), LOAM_ESTATE);
  words_have("no handler \"script.test\"");
  close_script(NULL);
  assert_int_equal(loam_handler_register(&handler), LOAM_OK);
  open_image(text);
  assert_int_equal(lm_strategy_at(plan_of("t")->chain[0])->desc.kind, LM_KIND_HANDLER);
}

/* A member of a chain that this process cannot use is an error only at the end of the chain. */
static void a_member_with_a_fallback_need_not_be_usable(void **state) {
  (void)state;
  open_image("local h, f = loam.host { name = 'h' }, loam.file { name = 'f', dir = '/nosuch' }\n"
             "local a = loam.handler 'nosuch'\n"
             "return loam.policy { pick = function(req)\n"
             "  if req.size > 100 then return f:or_else(h) end\n"
             "  return a:or_else(f):or_else(h)\n"
             "end }\n");
  close_script(NULL);
  assert_int_equal(open_text("local h = loam.host { name = 'h' }\n"
                             "local a = loam.handler 'nosuch'\n"
                             "return loam.policy { pick = function(req)\n"
                             "  return h:or_else(a)\n"
                             "end }\n"),
                   LOAM_OK);
  assert_int_equal(compile(), LOAM_ESTATE);
  words_have("no handler \"nosuch\"");
}

#define FULL                                                                           \
  "local h = loam.host { name = 'full', align = 4096, limit = 2 ^ 30, numa = { 0 },\n" \
  "  huge = 'thp', zero = true, prefault = true }\n"

static void options_reach_the_strategy(void **state) {
  (void)state;
  open_image(FULL "local g = loam.host { name = 'guarded', guard = 7,\n"
                  "  numa = { weights = { [0] = 3 } } }\n"
                  "return loam.policy { pick = function(req)\n"
                  "  return h:or_else(g)\nend }\n");
  const lm_plan *plan = plan_of("t");
  const lm_desc *full = &lm_strategy_at(plan->chain[0])->desc;
  const lm_desc *guarded = &lm_strategy_at(plan->chain[1])->desc;
  assert_string_equal(full->name, "full");
  assert_int_equal(full->kind, LM_KIND_HOST);
  assert_int_equal(full->align, 4096);
  assert_int_equal(full->limit, LM_GIB);
  assert_int_equal(full->placement.mode, LM_BIND_BIND);
  assert_int_equal(full->placement.nodes, 1);
  assert_int_equal(full->huge, LM_HUGE_THP);
  assert_true(full->zero && full->prefault && !full->lock);
  assert_int_equal(guarded->guard, 7);
  assert_int_equal(guarded->placement.mode, LM_BIND_WEIGHTED);
  assert_int_equal(guarded->placement.weight[0], 3);
}

/* ---- refusals */

static void a_refusal_names_file_line_and_source(void **state) {
  (void)state;
  assert_int_equal(open_text("local h = loam.hots { }\n"), LOAM_EPOLICY);
  assert_null(script);
  words_have("test.lua:1: ");
  words_have("loam.hots");
  words_have("'host'");
}

static void the_budget_is_for_each_step(void **state) {
  (void)state;
  lm_script_limits tight = limits;
  tight.step_ms = 150;
  const char *text = "local h = loam.host {}\n"
                     "return loam.policy { pick = function(req)\n"
                     "  for i = 1, 3e9 do local x = i * i end\n"
                     "  return h\nend }\n";
  assert_int_equal(open_within(text, &tight), LOAM_OK);
  assert_int_equal(compile(), LOAM_EBUDGET);
  words_have("test.lua:3: budget: ");
  words_have("150 ms");
  words_have("for i = 1, 3e9");
}

static void too_many_leaves_are_refused(void **state) {
  (void)state;
  assert_int_equal(open_text("local h, g = loam.host { name = 'h' }, loam.host { name = 'g' }\n"
                             "return loam.policy { pick = function(req)\n"
                             "  for i = 1, 200 do\n"
                             "    if req.size == i * 16 then return i % 2 == 0 and h or g end\n"
                             "  end\n"
                             "  return h\nend }\n"),
                   LOAM_OK);
  assert_int_equal(compile(), LOAM_EPOLICY);
  words_have("100");
  words_have("4");
}

/* ---- questions */

static char answer[65536];
static size_t answered;

static void gather(void *ctx, const char *text, size_t length) {
  (void)ctx;
  assert_true(answered + length < sizeof answer);
  memcpy(answer + answered, text, length);
  answered += length;
  answer[answered] = 0;
}

static loam_status ask(const char *text, const char *query) {
  answered = 0;
  answer[0] = 0;
  lm_script_source source = source_of(text);
  source.is_host = false;
  return lm_script_inspect(&source, query, gather, NULL);
}

static void expect_words(const char *text) {
  if (!strstr(answer, text)) fail_msg("expected %s in %s", text, answer);
}

static void questions_are_answered_in_json(void **state) {
  (void)state;
  assert_int_equal(ask(two, "verb check"), LOAM_OK);
  expect_words("\"ok\":true");
  assert_int_equal(ask(two, "verb explain\ntag t\nsize 5000"), LOAM_OK);
  expect_words("\"name\":\"large\"");
  expect_words("\"line\":6");
  assert_int_equal(ask(two, "verb test"), LOAM_OK);
  expect_words("\"ok\":true");
  assert_int_equal(ask(two, "verb plan\ntag t"), LOAM_OK);
  expect_words("\"rows\":[");
}

static void a_refused_policy_is_an_answer(void **state) {
  (void)state;
  assert_int_equal(ask("local x = nothing\n", "verb check"), LOAM_OK);
  expect_words("\"ok\":false");
  expect_words("\"errors\":[{");
}

static void a_runaway_is_an_answer_too(void **state) {
  (void)state;
  assert_int_equal(ask("while true do end\n", "verb test"), LOAM_OK);
  expect_words(
      "{\"verb\":\"test\",\"version\":1,\"policy\":\"test.lua\",\"ok\":false,\"errors\":[{");
  expect_words("\"file\":\"test.lua\",\"line\":1,");
  expect_words("\"class\":\"budget\"");
  expect_words("\"source\":\"while true do end\"");
}

/* ---- memory */

static void attempt_open(bool refused) {
  loam_status status = open_text(two);
  if (status == LOAM_OK) assert_non_null(script);
  else assert_null(script);
  if (status == LOAM_OK) status = compile();
  if (!refused) assert_int_equal(status, LOAM_OK);
  assert_true((status == LOAM_OK) == (policy != NULL));
  close_script(NULL);
}

static void it_opens_or_fails_cleanly_when_the_system_refuses(void **state) {
  (void)state;
  refuse_each(attempt_open);
}

static void closing_gives_all_memory_back(void **state) {
  (void)state;
  lm_pool_figures before, after;
  for (int i = 0; i < 200; i++) {
    if (i == 50) lm_pool_figures_get(&before);
    open_image(two);
    plan_of("a");
    close_script(NULL);
  }
  lm_pool_figures_get(&after);
  assert_in_range(after.metadata, 0, before.metadata + LM_MIB / 4);
}

static loam_status raise_words(lua_State *L, void *words) {
  return (loam_status)luaL_error(L, "%s", (const char *)words);
}

/* Code that catches an error may raise it again, with other words in front of it. */
static void an_error_about_memory_is_one_behind_other_words_too(void **state) {
  (void)state;
  static lm_vm vm;
  static char wrapped[] = "module a: not enough memory", other[] = "not enough memory for a",
              shorter[] = "memory";
  assert_int_equal(lm_vm_open(&vm, "test.lua", "", &limits), LOAM_OK);
  assert_int_equal(lm_vm_call(&vm, "trying", raise_words, wrapped), LOAM_ENOMEM);
  assert_string_equal(loam_error(), "test.lua: no memory left for trying");
  assert_int_equal(lm_vm_call(&vm, "trying", raise_words, other), LOAM_EPOLICY);
  assert_int_equal(lm_vm_call(&vm, "trying", raise_words, shorter), LOAM_EPOLICY);
  lm_vm_close(&vm);
}

#define TEST(name) cmocka_unit_test_teardown(name, close_script)

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(a_policy_becomes_a_plan),
    TEST(a_script_that_breaks_a_law_is_not_valid),
    TEST(tags_that_are_distinguished_have_their_own_plans),
    TEST(an_image_needs_its_script_no_more),
    TEST(compiling_is_all_steps_in_one),
    TEST(a_site_is_its_file_function_module_and_line_too),
    TEST(a_tag_may_hold_any_bytes),
    TEST(two_images_do_not_know_each_other),
    TEST(garbage_is_no_part_of_what_a_policy_may_hold),
    TEST(a_handler_has_to_be_registered),
    TEST(a_member_with_a_fallback_need_not_be_usable),
    TEST(options_reach_the_strategy),
    TEST(a_refusal_names_file_line_and_source),
    TEST(the_budget_is_for_each_step),
    TEST(too_many_leaves_are_refused),
    TEST(questions_are_answered_in_json),
    TEST(a_refused_policy_is_an_answer),
    TEST(a_runaway_is_an_answer_too),
    TEST(it_opens_or_fails_cleanly_when_the_system_refuses),
    TEST(closing_gives_all_memory_back),
    TEST(an_error_about_memory_is_one_behind_other_words_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
