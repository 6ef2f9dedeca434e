/* test_missing.c - dates, durations, decimals and categories as text; structs and rows that may be
 * missing. */
#include "arrays.h"

static void expect_moment(const char *text, int64_t value, const char *json) {
  loam_array *a = new_array(text);
  memcpy(loam_array_data(a), &value, strcmp(text, "date") ? 8 : 4);
  expect_json(a, json);
  loam_array_release(a);
}

static void dates_and_times_are_written_as_iso_8601(void **state) {
  (void)state;
  expect_moment("date", 0, "\"1970-01-01\"");
  expect_moment("date", 19782, "\"2024-02-29\"");
  expect_moment("date", -719528, "\"0000-01-01\"");
  expect_moment("date", 2932896, "\"9999-12-31\"");
  expect_moment("time", 0, "\"00:00:00\"");
  expect_moment("time", 86399999999, "\"23:59:59.999999\"");
  expect_moment("time", -1500000, "\"-00:00:01.500000\"");
  expect_moment("time", 90000000000, "\"25:00:00\"");
  expect_moment("datetime", -1, "\"1969-12-31T23:59:59.999999\"");
  expect_moment("datetime", 1709164800000000, "\"2024-02-29T00:00:00\"");
  expect_moment("datetime['s']", 1709164801, "\"2024-02-29T00:00:01\"");
  expect_moment("datetime['s']", INT64_MIN, "\"-292277022657-01-27T08:29:52\"");
  expect_moment("datetime['ms']", -1, "\"1969-12-31T23:59:59.999\"");
  expect_moment("datetime['ns']", -1, "\"1969-12-31T23:59:59.999999999\"");
  expect_moment("datetime['ns']", INT64_MIN, "\"1677-09-21T00:12:43.145224192\"");
  expect_moment("datetime", INT64_MIN, "\"-290308-12-21T19:59:05.224192\"");
}

static void a_duration_is_written_as_iso_8601(void **state) {
  (void)state;
  expect_moment("timedelta", 0, "\"PT0S\"");
  expect_moment("timedelta", -1500000, "\"-PT1.500000S\"");
  expect_moment("timedelta['s']", 86400, "\"PT86400S\"");
  expect_moment("timedelta['ms']", 1, "\"PT0.001S\"");
  expect_moment("timedelta['ns']", INT64_MIN, "\"-PT9223372036.854775808S\"");
}

static void expect_decimal(const char *text, uint64_t high, uint64_t low, const char *json) {
  loam_array *a = new_array(text);
  const uint64_t value[2] = { low, high };
  memcpy(loam_array_data(a), value, sizeof value);
  expect_json(a, json);
  loam_array_release(a);
}

static void a_decimal_is_written_with_all_its_digits(void **state) {
  (void)state;
  expect_decimal("decimal[5, 2]", 0, 12345, "\"123.45\"");
  expect_decimal("decimal[5, 2]", UINT64_MAX, (uint64_t)-5, "\"-0.05\"");
  expect_decimal("decimal[5, 2]", 0, 0, "\"0.00\"");
  expect_decimal("decimal[5]", UINT64_MAX, (uint64_t)-12345, "\"-12345\"");
  expect_decimal("decimal[38, 38]", 0x4b3b4ca85a86c47a, 0x098a223fffffffff,
                 "\"0.99999999999999999999999999999999999999\"");
  expect_decimal("decimal[20]", UINT64_MAX, 0, "\"-18446744073709551616\"");
  expect_decimal("?decimal[20]", 1ull << 63, 0, "null");
  struct loam_type_info info;
  loam_array *a = new_array("decimal[9, 4]");
  assert_int_equal(loam_type_info(loam_array_type(a), &info), LOAM_OK);
  assert_true(info.kind == LOAM_TYPE_DECIMAL && info.size == 16 && info.align == 8);
  assert_true(info.count == 9 && info.scale == 4);
  loam_array_release(a);
}

/* A zeroed option of a struct or row is present, like a zeroed option of an integer. */
static void structs_and_rows_can_be_missing(void **state) {
  (void)state;
  loam_array *a = new_array("2 * ?{x: int32, name: ?string, row: ?var * int16}");
  struct loam_type_info info;
  assert_int_equal(loam_type_info(loam_array_type(a), &info), LOAM_OK);
  assert_int_equal(info.size, 2 * (8 + 16 + 24 + 8)); /* a byte is added for each such `?` */
  loam_array *first = VIEW(a, LOAM_AT(0)), *value = NULL, *row = NULL, *none = NULL;
  assert_int_equal(loam_array_follow(first, &value), LOAM_OK);
  assert_string_equal(loam_type_text(loam_array_type(value)),
                      "{x: int32, name: ?string, row: ?var * int16}");
  assert_int_equal(loam_array_field(first, "row", &row), LOAM_OK);
  assert_int_equal(loam_array_follow(row, &none), LOAM_OK);
  assert_int_equal(loam_array_resize(none, 3), LOAM_OK);
  expect_json(a, "[{\"x\":0,\"name\":null,\"row\":[0,0,0]},{\"x\":0,\"name\":null,\"row\":[]}]");
  loam_array_release(none);
  assert_int_equal(loam_array_omit(row), LOAM_OK); /* frees its three elements */
  EXPECT_ERROR(loam_array_follow(row, &none), LOAM_ESTATE, "?var * int16: the value is missing");
  assert_int_equal(loam_array_omit(first), LOAM_OK);
  expect_json(a, "[null,{\"x\":0,\"name\":null,\"row\":[]}]");
  EXPECT_ERROR(loam_array_field(first, "x", &none), LOAM_ESTATE,
               "?{x: int32, name: ?string, row: ?var * int16}: the value is missing");
  EXPECT_ERROR(loam_array_field(a, "x", &none), LOAM_EINVAL,
               "?{x: int32, name: ?string, row: ?var * int16}: some may be missing; take one of "
               "them first");
  EXPECT_ERROR(loam_array_resize(first, 2), LOAM_EINVAL, "2 elements: an option has one value");
  assert_int_equal(loam_array_resize(first, 1), LOAM_OK);
  expect_json(first, "{\"x\":0,\"name\":null,\"row\":[]}");
  loam_array_release(row);
  loam_array_release(value);
  loam_array_release(first);
  loam_array_release(a);
}

static void an_index_leads_into_a_row_that_is_not_missing(void **state) {
  (void)state;
  loam_array *a = new_array("2 * ?3 * ?string[4]");
  loam_array *text = VIEW(a, LOAM_AT(1), LOAM_AT(2)), *row = VIEW(a, LOAM_AT(0));
  assert_int_equal(loam_array_set_text(text, "four", 4), LOAM_OK);
  assert_int_equal(loam_array_omit(row), LOAM_OK);
  expect_json(a, "[null,[\"\",\"\",\"four\"]]");
  assert_int_equal(loam_array_omit(text), LOAM_OK);
  expect_json(a, "[null,[\"\",\"\",null]]");
  assert_int_equal(loam_array_set_text(text, "f", 1), LOAM_OK);
  expect_json(a, "[null,[\"\",\"\",\"f\"]]");
  int64_t at[] = { 1, 2 }, missing[] = { 0, 2 };
  assert_ptr_equal(loam_array_at(a, 2, at), loam_array_data(text));
  assert_null(loam_array_at(a, 2, missing));
  loam_array_release(text);
  loam_array_release(row);
  loam_array_release(a);
  a = new_array("?2 * var * int8");
  row = VIEW(a, LOAM_AT(1));
  assert_int_equal(loam_array_resize(row, 2), LOAM_OK);
  loam_array_release(row);
  row = VIEW(a, LOAM_ALL, LOAM_ALL); /* the rows are checked through the option */
  expect_json(row, "[[],[0,0]]");
  loam_array_release(row);
  loam_array_release(a);
}

static void a_category_is_read_and_written_by_its_name(void **state) {
  (void)state;
  loam_array *a = new_array("3 * categorical[['low', 'mid', 'high'], ordered=True]");
  uint8_t *codes = loam_array_data(a);
  expect_json(a, "[\"low\",\"low\",\"low\"]");
  loam_array *last = VIEW(a, LOAM_AT(2)), *shown = NULL;
  assert_int_equal(loam_array_set_text(last, "high|", 4), LOAM_OK);
  assert_int_equal(codes[2], 2);
  EXPECT_ERROR(loam_array_set_text(last, "higher", 6), LOAM_EINVAL,
               "text \"higher\": categorical[['low', 'mid', 'high'], ordered=True] has no such "
               "category");
  EXPECT_ERROR(loam_array_set_text(last, NULL, 0), LOAM_EINVAL,
               "text \"\": categorical[['low', 'mid', 'high'], ordered=True] has no such category");
  assert_int_equal(loam_array_readonly(last, &shown), LOAM_OK);
  EXPECT_ERROR(loam_array_set_text(shown, "mid", 3), LOAM_ESTATE,
               "the array is read-only: its memory must not be written");
  EXPECT_ERROR(loam_array_omit(last), LOAM_EINVAL,
               "type categorical[['low', 'mid', 'high'], ordered=True]: it is not an option");
  codes[0] = 1;
  codes[1] = 3; /* no category has this code */
  expect_json(a, "[\"mid\",3,\"high\"]");
  codes[1] = UINT8_MAX;
  expect_json(a, "[\"mid\",255,\"high\"]");
  loam_array_release(shown);
  loam_array_release(last);
  loam_array_release(a);
}

static void a_category_may_be_missing(void **state) {
  (void)state;
  loam_array *a = new_array("3 * ?categorical[['no', 'yes']]");
  uint8_t *codes = loam_array_data(a);
  loam_array *first = VIEW(a, LOAM_AT(0));
  assert_int_equal(loam_array_omit(first), LOAM_OK);
  assert_int_equal(codes[0], UINT8_MAX);
  assert_true(loam_array_is_missing(first));
  codes[1] = 254;
  expect_json(a, "[null,254,\"no\"]");
  assert_int_equal(loam_array_set_text(first, "yes", 3), LOAM_OK);
  expect_json(a, "[\"yes\",254,\"no\"]");
  loam_array_release(first);
  loam_array_release(a);
}

/* 256 categories use all codes of one byte. 257 categories have codes of two bytes. */
static void the_code_of_a_missing_category_is_no_category(void **state) {
  (void)state;
  char text[4096] = "2 * ?categorical[[";
  for (int i = 0; i < 256; i++) sprintf(text + strlen(text), "'%d', ", i);
  size_t length = strlen(text);
  strcpy(text + length, "]]");
  loam_type *type = NULL;
  assert_int_equal(loam_type_parse(text, &type), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), "column 5: ?categorical[['0', '1', "));
  assert_non_null(strstr(loam_error(), "256 categories take all codes of a byte, so none is left "
                                       "for a missing value"));
  strcpy(text + length, "'last']]");
  loam_array *a = new_array(text);
  uint16_t *codes = loam_array_data(a);
  codes[0] = UINT16_MAX;
  codes[1] = 256;
  expect_json(a, "[null,\"last\"]");
  loam_array_release(a);
}

#define CASE(name) cmocka_unit_test_teardown(name, nothing_is_left)

int main(void) {
  const struct CMUnitTest tests[] = {
    CASE(dates_and_times_are_written_as_iso_8601),
    CASE(a_duration_is_written_as_iso_8601),
    CASE(a_decimal_is_written_with_all_its_digits),
    CASE(structs_and_rows_can_be_missing),
    CASE(an_index_leads_into_a_row_that_is_not_missing),
    CASE(a_category_is_read_and_written_by_its_name),
    CASE(a_category_may_be_missing),
    CASE(the_code_of_a_missing_category_is_no_category),
  };
  return cmocka_run_group_tests_name("missing", tests, NULL, NULL);
}
