/* test_text.c - texts that are put together without printf: text.h. */
#include <string.h>

#include "os/text.h"
#include "test.h"

static void puts_strings_one_behind_the_other(void **state) {
  (void)state;
  char out[16];
  assert_int_equal(lm_text_put(out, sizeof out, "a", "", "bc", "/d", NULL), 5);
  assert_string_equal(out, "abc/d");
  assert_int_equal(lm_text_put(out, sizeof out, NULL), 0);
  assert_string_equal(out, "");
}

static void cuts_off_what_does_not_fit_and_says_so(void **state) {
  (void)state;
  char out[8];
  memset(out, 'x', sizeof out);
  assert_int_equal(lm_text_put(out, 4, "abc", NULL), 3); /* exactly full */
  assert_string_equal(out, "abc");
  assert_int_equal(lm_text_put(out, 4, "ab", "cd", NULL), 4);
  assert_string_equal(out, "abc");
  assert_int_equal(lm_text_put(out, 4, "abcdef", "ghi", NULL), 9);
  assert_string_equal(out, "abc");
  assert_int_equal(lm_text_put(out, 1, "a", NULL), 1);
  assert_string_equal(out, "");
  assert_memory_equal(out + 4, "xxxx", 4);
}

static void writes_numbers_in_decimal(void **state) {
  (void)state;
  char room[LM_TEXT_NUMBER];
  assert_string_equal(lm_text_number(room, 0), "0");
  assert_string_equal(lm_text_number(room, 10), "10");
  assert_string_equal(lm_text_number(room, 4294967297), "4294967297");
  assert_string_equal(lm_text_number(room, UINT64_MAX), "18446744073709551615");
}

static void a_line_has_no_control_characters(void **state) {
  (void)state;
  char text[] = "a\nb\x1b[1m\x7f, gr\xc3\xbc\xc3\x9f, tab\t";
  lm_text_make_line(text);
  assert_string_equal(text, "a?b?[1m?, gr\xc3\xbc\xc3\x9f, tab?");
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(puts_strings_one_behind_the_other),
    cmocka_unit_test(cuts_off_what_does_not_fit_and_says_so),
    cmocka_unit_test(writes_numbers_in_decimal),
    cmocka_unit_test(a_line_has_no_control_characters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
