/* test_image_text.c - a policy image is written as text and read back. Invalid texts are
 * refused. */
#include "policy_bytes.h"

#include "os/error.h"
#include "plan/image_text.h"
#include "test.h"

static lm_plan *plan[BYTES_PLANS];
static char *good, text[LM_IMAGE_TEXT_SIZE];
static size_t size;

static int make_image(void **state) {
  (void)state;
  bytes_plans(plan);
  good = bytes_write(plan, &size);
  return good && lm_image_text_write(good, size, text) ? 0 : -1;
}

static int free_image(void **state) {
  (void)state;
  lm_metadata_free(good);
  for (int i = 0; i < BYTES_PLANS; i++) lm_plan_destroy(plan[i]);
  return 0;
}

static void an_image_comes_back_as_it_was(void **state) {
  (void)state;
  size_t back_size;
  char *back = lm_image_text_read(text, bytes_text, sizeof bytes_text - 1, &back_size);
  assert_non_null(back);
  assert_int_equal(back_size, size);
  assert_memory_equal(back, good, size);
  assert_null(strstr(text, "72657475726e")); /* "return": the text of the policy is left out */
  lm_metadata_free(back);
}

static void an_image_that_is_too_large_is_not_written(void **state) {
  (void)state;
  size_t large = 20000;
  char *bytes = lm_metadata_alloc(large);
  memset(bytes, 1, large);
  ((lm_policy_image_frame *)(void *)bytes)->text.at = large;
  assert_false(lm_image_text_write(bytes, large, text));
  lm_metadata_free(bytes);
  assert_true(lm_image_text_write(good, size, text));
}

/* Returns whether a damaged text still gives an image that can be opened. */
static bool try(const char *damaged) {
  size_t n;
  lm_policy_image *policy;
  void *bytes = lm_image_text_read(damaged, "other", 5, &n);
  if (!bytes) return false;
  bool is_open = lm_policy_image_open(bytes, n, true, &policy) == LOAM_OK;
  if (is_open) lm_policy_image_close(policy);
  else lm_metadata_free(bytes);
  return is_open;
}

/* The text comes from the environment, so any program may have written it. */
static void damaged_text_does_no_harm(void **state) {
  (void)state;
  size_t length = strlen(text);
  assert_true(try(text));
  for (size_t i = 0; i < length; i++) {
    char was = text[i];
    text[i] = 0;
    assert_false(try(text));
    for (const char *c = "0179afgz -"; *c; c++) {
      text[i] = *c;
      (void)try(text);
    }
    text[i] = was;
  }
  assert_true(try(text));
  for (size_t i = 0; i < sizeof text - 1; i++) text[i] = "zff"[i % 3];
  assert_false(try(text));
  memset(text, 'f', sizeof text - 1);
  assert_false(try(text));
  assert_false(try(""));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_image_comes_back_as_it_was),
    cmocka_unit_test(an_image_that_is_too_large_is_not_written),
    cmocka_unit_test(damaged_text_does_no_harm),
  };
  return cmocka_run_group_tests(tests, make_image, free_image);
}
