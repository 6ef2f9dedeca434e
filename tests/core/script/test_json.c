/* test_json.c - text that grows, and JSON written into it: json.h. */
#include "test.h"

#include <string.h>

#include "os/sys.h"
#include "script/json.h"

static void values_get_keys_and_commas(void **state) {
  lm_json out = { 0 };
  (void)state;
  assert_true(lm_json_is_valid(&out));
  lm_json_open(&out, NULL, '{');
  lm_json_int(&out, "least", INT64_MIN);
  lm_json_uint(&out, "most", UINT64_MAX);
  lm_json_open(&out, "list", '[');
  lm_json_bool(&out, NULL, true);
  lm_json_text(&out, NULL, NULL);
  lm_json_close(&out, ']');
  lm_json_close(&out, '}');
  assert_true(lm_json_is_valid(&out));
  assert_string_equal(out.text, "{\"least\":-9223372036854775808,\"most\":18446744073709551615,"
                                "\"list\":[true,null]}");
  assert_int_equal(out.length, strlen(out.text));
  lm_json_finish(&out);
  assert_true(lm_json_is_valid(&out));
}

static void a_byte_that_is_not_utf8_is_written_as_latin1(void **state) {
  lm_json out = { 0 };
  (void)state;
  lm_json_text_n(&out, NULL, "a\0\n\"\\\x7f\xe9\xc3\xa9", 9);
  assert_string_equal(out.text, "\"a\\u0000\\n\\\"\\\\\\u007f\\u00e9\xc3\xa9\"");
  lm_json_finish(&out);
  assert_true(lm_json_is_utf8("\xc3\xa9", 2));
  assert_true(lm_json_is_utf8("", 0));
  assert_false(lm_json_is_utf8("\xe9", 1));
  assert_false(lm_json_is_utf8("\xc0\x80", 2));
  assert_false(lm_json_is_utf8("\xed\xa0\x80", 3));
  assert_false(lm_json_is_utf8("\xf4\x90\x80\x80", 4));
}

/* Terminals obey the control characters U+0080 to U+009F. */
static void control_characters_above_ascii_are_escaped(void **state) {
  lm_json out = { 0 };
  (void)state;
  lm_json_text(&out, NULL, "\xc2\x80\xc2\x9b\xc2\xa0\xc3\x9b");
  assert_string_equal(out.text, "\"\\u0080\\u009b\xc2\xa0\xc3\x9b\"");
  lm_json_finish(&out);
}

/* When the system has no memory, the text keeps what fitted, and later calls do nothing. */
static void without_memory_it_fails_and_stays_valid(void **state) {
  lm_json out = { 0 };
  (void)state;
  lm_json_text(&out, NULL, "first");
  lm_sys_refuse_from(1);
  while (!out.failed) lm_json_text(&out, NULL, "more and more and more and more and more");
  lm_sys_refuse_from(0);
  size_t length = out.length;
  lm_json_text(&out, NULL, "later");
  assert_int_equal(out.length, length);
  assert_true(lm_json_is_valid(&out));
  assert_memory_equal(out.text, "\"first\"", 7);
  lm_json_finish(&out);
}

/* Breaks each part of the law of lm_json. */
static void a_wrong_length_is_not_valid(void **state) {
  (void)state;
  lm_json out = { .length = 1 };
  assert_false(lm_json_is_valid(&out));
  out = (lm_json){ .capacity = 1 };
  assert_false(lm_json_is_valid(&out));
  out = (lm_json){ 0 };
  lm_json_text(&out, NULL, "text");
  lm_json broken = out;
  broken.length--;
  assert_false(lm_json_is_valid(&broken));
  broken.length = broken.capacity;
  assert_false(lm_json_is_valid(&broken));
  lm_json_finish(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(values_get_keys_and_commas),
    cmocka_unit_test(a_byte_that_is_not_utf8_is_written_as_latin1),
    cmocka_unit_test(control_characters_above_ascii_are_escaped),
    cmocka_unit_test(without_memory_it_fails_and_stays_valid),
    cmocka_unit_test(a_wrong_length_is_not_valid),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
