/* test_plan_text.c - a plan is written as text and read back; plans that depend on the machine are
 * not written, and texts that are not valid are refused. */
#include "test.h"

#include "cli/plan_text_write.h"
#include "heap/strategy.h"
#include "image.h"
#include "plan/plan_text.h"

static lm_strategy *intern(lm_desc desc, const char *name) {
  lm_strategy *s;
  snprintf(desc.name, sizeof desc.name, "%s", name);
  assert_int_equal(lm_strategy_intern(&desc, &s), LOAM_OK);
  return s;
}

/* A plan: `input < 1000` gets the chain one, other; all else gets the chain other. */
static lm_plan *plan_of(unsigned input, lm_strategy *one, lm_strategy *other) {
  image m = { 0 };
  lm_plan *plan;
  int32_t a = image_leaf(&m, 2, (uint32_t[]){ one->id, other->id });
  int32_t b = image_leaf(&m, 1, &other->id);
  image_node(&m, input, LM_CMP_LT, 1000, a, b);
  if (image_make(&m, &plan)) fail_msg("%s", loam_error());
  return plan;
}

static char text[LM_PLAN_TEXT_SIZE];

static void a_plan_comes_back_as_it_was(void **state) {
  (void)state;
  lm_plan_text carried;
  lm_plan *back;
  lm_desc all = { .align = 64,
                  .limit = LM_SIZE_MAX,
                  .huge = LM_HUGE_THP,
                  .zero = true,
                  .prefault = true,
                  .guard = 77 };
  lm_desc none = { .kind = LM_KIND_DENY };
  lm_plan *plan = plan_of(LM_IN_SIZE, intern(all, "all"), intern(none, ""));
  assert_true(lm_plan_text_write(plan, "the name", true, text));
  assert_true(lm_plan_text_read(text, &carried));
  assert_string_equal(carried.policy, "the name");
  assert_true(carried.applies_live);
  assert_int_equal(lm_plan_make(carried.image, carried.size, &back), LOAM_OK);
  assert_true(back->hash == plan->hash);
  assert_memory_equal(back->chain, plan->chain, plan->chains * sizeof *plan->chain);
  lm_plan_destroy(back);
  lm_plan_destroy(plan);
}

static void what_asks_the_machine_is_not_carried(void **state) {
  (void)state;
  lm_strategy *plain = intern((lm_desc){ 0 }, "plain");
  lm_desc not [] = { { .lock = true },
                     { .huge = LM_HUGE_2MIB },
                     { .placement.mode = LM_BIND_LOCAL },
                     { .kind = LM_KIND_PINNED },
                     { .kind = LM_KIND_DEVICE },
                     { .kind = LM_KIND_HANDLER, .handler = "h" },
                     { .kind = LM_KIND_FILE, .dir = "/" } };
  unsigned inputs[] = { LM_IN_NODE, LM_IN_DEVICE, LM_IN_NODE_FREE, LM_IN_DEVICE_FREE };
  for (size_t i = 0; i < LM_COUNT(not ); i++) {
    lm_plan *plan = plan_of(LM_IN_SIZE, plain, intern(not [i], "asks"));
    assert_false(lm_plan_text_write(plan, "", false, text));
    lm_plan_destroy(plan);
  }
  for (size_t i = 0; i < LM_COUNT(inputs); i++) {
    lm_plan *plan = plan_of(inputs[i], plain, intern((lm_desc){ .zero = true }, "other"));
    assert_false(lm_plan_text_write(plan, "", false, text));
    lm_plan_destroy(plan);
  }
}

static void try(const char *damaged) {
  lm_plan_text carried;
  lm_plan *plan;
  if (lm_plan_text_read(damaged, &carried) && !lm_plan_make(carried.image, carried.size, &plan))
    lm_plan_destroy(plan);
}

/* It is the environment's: anybody may have written it. */
static void damaged_text_does_no_harm(void **state) {
  (void)state;
  lm_plan_text carried;
  lm_plan *plan = plan_of(LM_IN_SIZE, intern((lm_desc){ .align = 64 }, "a"),
                          intern((lm_desc){ .limit = 1 << 20 }, "b"));
  assert_true(lm_plan_text_write(plan, "", false, text));
  lm_plan_destroy(plan);
  size_t length = strlen(text);
  for (size_t i = 0; i < length; i++) {
    char was = text[i];
    text[i] = 0;
    assert_false(lm_plan_text_read(text, &carried) && carried.size > 0 &&
                 !lm_plan_make(carried.image, carried.size, &plan));
    for (const char *c = "01479afgz -"; *c; c++) {
      text[i] = *c;
      try(text);
    }
    text[i] = was;
  }
  for (size_t i = 0; i < sizeof text - 1; i++) text[i] = "zff"[i % 3];
  assert_false(lm_plan_text_read(text, &carried));
  memset(text, 'f', sizeof text - 1);
  assert_false(lm_plan_text_read(text, &carried));
  assert_false(lm_plan_text_read("", &carried));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_plan_comes_back_as_it_was),
    cmocka_unit_test(what_asks_the_machine_is_not_carried),
    cmocka_unit_test(damaged_text_does_no_harm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
