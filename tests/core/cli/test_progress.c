/* test_progress.c - a line on the terminal while a policy is compiled: cli/progress.h. */
#include "test.h"

#include "cli/progress.h"

#define SECOND INT64_C(1000000000)

static void there_is_no_line_in_the_first_two_seconds(void **state) {
  (void)state;
  char line[80] = "";
  assert_false(lm_progress_line(line, sizeof line, "p.lua", "running the file", 2 * SECOND - 1));
  assert_string_equal(line, "");
  assert_true(lm_progress_line(line, sizeof line, "p.lua", "running the file", 2 * SECOND));
  assert_string_equal(line, "p.lua: 2 s so far, running the file");
}

static void a_line_has_one_row_and_no_control_characters(void **state) {
  (void)state;
  char line[32];
  assert_true(
      lm_progress_line(line, sizeof line, "p\033.lua", "tracing tag 'a\nb\303\251'", 61 * SECOND));
  assert_string_equal(line, "p?.lua: 61 s so far, tracing ta");
  assert_true(lm_progress_line(line, sizeof line, "p", "tag 'a\nb\303\251'", 3 * SECOND));
  assert_string_equal(line, "p: 3 s so far, tag 'a?b?\?'");
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(there_is_no_line_in_the_first_two_seconds),
    cmocka_unit_test(a_line_has_one_row_and_no_control_characters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
