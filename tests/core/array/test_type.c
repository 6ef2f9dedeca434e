/* test_type.c - types: parsing datashapes, error words, and the layout of values. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array/type.h"
#include "refuse_allocations.h"

static loam_type *parse(const char *text) {
  loam_type *type = NULL;
  if (loam_type_parse(text, &type)) fail_msg("%s", loam_error());
  assert_true(lm_type_is_valid(type));
  return type;
}

static void expect_text(const char *text, const char *canonical) {
  loam_type *type = parse(text);
  assert_string_equal(loam_type_text(type), canonical);
  loam_type *again = parse(canonical);
  assert_true(loam_type_equal(type, again));
  loam_type_release(type);
  loam_type_release(again);
}

static void the_text_of_a_type_is_its_datashape(void **state) {
  (void)state;
#define EXPECT_ITSELF(kind, name, size, align) expect_text(name, name);
  LOAM_TYPE_LIST(EXPECT_ITSELF)
  expect_text("3 * var * {x: float64, y: ?int32}", "3 * var * {x: float64, y: ?int32}");
  expect_text(" 3*var\n*{ x :float64 ,y:? int32, }# so", "3 * var * {x: float64, y: ?int32}");
  expect_text("pointer[2 * pointer[string]]", "pointer[2 * pointer[string]]");
  expect_text("option[int]", "?int32");
  expect_text("fixed[4] * real", "4 * float64");
  expect_text("2 * string[ 10 ]", "2 * string[10]");
  expect_text("string[10, 'utf8']", "string[10]");
  expect_text("var * string['U8']", "var * string");
  expect_text("complex[float32]", "complex64");
  expect_text("datetime['us']", "datetime");
  expect_text("2 * ?datetime[ \"ns\" ]", "2 * ?datetime['ns']");
  expect_text("(datetime['s'], datetime['ms'])", "{'0': datetime['s'], '1': datetime['ms']}");
  expect_text("?complex[ float64 ]", "?complex128");
  expect_text("timedelta[unit='us']", "timedelta");
  expect_text("3 * ?timedelta[\"ns\"]", "3 * ?timedelta['ns']");
  expect_text("decimal[18]", "decimal[18, 0]");
  expect_text("?decimal[precision=38, scale=2]", "?decimal[38, 2]");
  expect_text("2 * ?{x: int8, y: ?3 * ?string[4]}", "2 * ?{x: int8, y: ?3 * ?string[4]}");
  expect_text("var * ?var * option[(int8,)]", "var * ?var * ?{'0': int8}");
  expect_text("fixed*2 * fixed * intptr", "fixed * 2 * fixed * int64");
  expect_text("(int8, ?uintptr, (string,),)", "{'0': int8, '1': ?uint64, '2': {'0': string}}");
  expect_text("007 * complex", "7 * complex128");
  expect_text("{'a b': bytes, \"it's\": bool, c: {d: {e: int8}}}",
              "{'a b': bytes, 'it\\'s': bool, c: {d: {e: int8}}}");
  expect_text("{'plain': int8, 'back\\\\slash': int8}", "{plain: int8, 'back\\\\slash': int8}");
  expect_text("{'größe': int8}", "{'größe': int8}");
}

static void a_categorical_may_be_written_as_in_blaze_and_dynd(void **state) {
  (void)state;
  expect_text("categorical[['low', 'high']]", "categorical[['low', 'high']]");
  expect_text("categorical[['low', 'mid', 'high'], type=string, ordered=True]",
              "categorical[['low', 'mid', 'high'], ordered=True]");
  expect_text("categorical[ordered=False, type = string, values=['b', 'a',]]",
              "categorical[['b', 'a']]");
  expect_text("2 * ?categorical[string, [\"it's\", 'back\\\\slash', '']]",
              "2 * ?categorical[['it\\'s', 'back\\\\slash', '']]");
  expect_text("categorical[categories=['a']]", "categorical[['a']]");
  expect_text("{c: categorical[['größe']]}", "{c: categorical[['größe']]}");
  loam_type *a = parse("categorical[['a', 'b']]"), *b = parse("categorical[['b', 'a']]");
  loam_type *c = parse("categorical[['a', 'b'], ordered=True]");
  assert_false(loam_type_equal(a, b));
  assert_false(loam_type_equal(a, c));
  loam_type_release(a);
  loam_type_release(b);
  loam_type_release(c);
}

static void expect_refused(const char *text, const char *words) {
  loam_type *untouched = (loam_type *)8, *type = untouched;
  assert_int_equal(loam_type_parse(text, &type), LOAM_EINVAL);
  assert_string_equal(loam_error(), words);
  assert_ptr_equal(type, untouched);
}

static void expect_sized(const char *text, size_t count, const char *sized) {
  static const size_t shape[] = { 5, 6, 7, 8 };
  loam_type *type = parse(text), *made = NULL;
  loam_status status = loam_type_sized(type, count, shape, &made);
  assert_int_equal(status, sized ? LOAM_OK : LOAM_EINVAL);
  if (sized) assert_string_equal(loam_type_text(made), sized);
  else assert_null(made);
  loam_type_release(made);
  loam_type_release(type);
}

static void dimensions_of_any_size_get_their_sizes(void **state) {
  (void)state;
  loam_array *a = NULL;
  loam_type *type = parse("fixed * int8");
  assert_int_equal(loam_array_new(NULL, type, &a), LOAM_EINVAL);
  assert_null(a);
  struct loam_type_info info;
  assert_int_equal(loam_type_info(type, &info), LOAM_OK);
  assert_true(info.count == LOAM_ANY && info.size == 0);
  loam_type_release(type);
  expect_sized("fixed * 3 * fixed * int8", 2, "5 * 3 * 6 * int8");
  expect_sized("fixed * var * pointer[fixed * string]", 2, "5 * var * pointer[6 * string]");
  expect_sized("2 * int8", 0, "2 * int8");
  expect_sized("fixed * int8", 0, NULL);
  expect_sized("fixed * int8", 2, NULL);
  assert_string_equal(loam_error(), "type fixed * int8: the number of sizes must be 1, not 2");
  expect_sized("fixed * var * fixed * int8", 1, NULL);
  assert_string_equal(loam_error(),
                      "type fixed * var * fixed * int8: the number of sizes must be 2, not 1");
  expect_sized("fixed * {x: fixed * int8}", 1, NULL);
  assert_int_equal(loam_type_sized(NULL, 0, NULL, &type), LOAM_EINVAL);
}

static void a_refusal_names_the_column_and_what_was_expected(void **state) {
  (void)state;
  expect_refused("", "type \"\": column 1: expected a type, found the end");
  expect_refused("3 * ", "type \"3 * \": column 5: expected a type, found the end");
  expect_refused("3", "type \"3\": column 2: expected \"*\" after a dimension, found the end");
  expect_refused("3 int8",
                 "type \"3 int8\": column 3: expected \"*\" after a dimension, found \"int8\"");
  expect_refused("{x float64}", "type \"{x float64}\": column 4: expected \":\" after the field's "
                                "name, found \"float64\"");
  expect_refused("{x: int8; y: int8}", "type \"{x: int8; y: int8}\": column 9: expected \",\" or "
                                       "\"}\" after a field, found \";\"");
  expect_refused("{}", "type \"{}\": column 2: expected a field's name after \"{\", found \"}\"");
  expect_refused("{x: int8,,}",
                 "type \"{x: int8,,}\": column 10: expected a field's name, found \",\"");
  expect_refused("pointer int8", "type \"pointer int8\": column 9: expected \"[\", found \"int8\"");
  expect_refused("pointer[int8", "type \"pointer[int8\": column 13: expected \"]\", found the end");
  expect_refused("fixed[] * int8",
                 "type \"fixed[] * int8\": column 7: expected a number of elements, found \"]\"");
  expect_refused("3x * int8",
                 "type \"3x * int8\": column 1: expected a number of elements, found \"3x\"");
  expect_refused("int8 int8",
                 "type \"int8 int8\": column 6: expected the end of the type, found \"int8\"");
  expect_refused("int8 * int8",
                 "type \"int8 * int8\": column 6: expected the end; a dimension is a "
                 "number or \"var\", found \"*\"");
  expect_refused("{a: int8,\n b: §}", "type \"{a: int8,\\x0A b: \\xC2\\xA7}\": line 2, column 5: "
                                      "expected a type, found \"\\xC2\\xA7\"");
  expect_refused("{'a: int8}", "type \"{'a: int8}\": column 2: this quote has no end");
  expect_refused("{'a\\': int8}", "type \"{'a\\\\': int8}\": column 2: this quote has no end");
}

/* Each name is compared with all earlier names, which takes long. So the parser must stop at the
 * first field beyond the limit: it must not read the word after it, which is no type. */
static void a_struct_of_too_many_fields_is_refused_soon(void **state) {
  (void)state;
  static char text[LM_TYPE_FIELDS * 12 + 12] = "{";
  size_t length = 1;
  for (int i = 0; i < LM_TYPE_FIELDS; i++)
    length += (size_t)snprintf(text + length, sizeof text - length, "n%04d:bool,", i);
  snprintf(text + length, sizeof text - length, "last:no}");
  loam_type *type;
  assert_int_equal(loam_type_parse(text, &type), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), "column 45058: a struct has at most 4096 fields"));
}

static void a_misspelt_word_is_answered_with_the_right_one(void **state) {
  (void)state;
  expect_refused("3 * vr * int32",
                 "type \"3 * vr * int32\": column 5: no type is called \"vr\"; is "
                 "\"var\" meant?");
  expect_refused("flaot64", "type \"flaot64\": column 1: no type is called \"flaot64\"; is "
                            "\"float64\" meant?");
  expect_refused("string['ascii']", "type \"string['ascii']\": column 8: expected the encoding "
                                    "'utf8', found \"'ascii'\"");
  expect_refused("string[3, 4]", "type \"string[3, 4]\": column 11: expected the encoding 'utf8', "
                                 "found \"4\"");
  expect_refused("datetime['D']", "type \"datetime['D']\": column 10: expected the unit 's', 'ms', "
                                  "'us' or 'ns', found \"'D'\"");
  expect_refused("string['utf8", "type \"string['utf8\": column 8: this quote has no end");
  expect_refused("complex[int8]", "type \"complex[int8]\": column 9: expected float32 or float64, "
                                  "found \"int8\"");
  expect_refused("str", "type \"str\": column 1: no type is called \"str\"");
  expect_refused("N * T",
                 "type \"N * T\": column 1: \"N\" is a part of datashape that loam leaves "
                 "out: write a number, fixed or var for a dimension, or the name of a type");
  expect_refused("timedelta['D']", "type \"timedelta['D']\": column 11: expected the unit 's', "
                                   "'ms', 'us' or 'ns', found \"'D'\"");
  expect_refused("decimal", "type \"decimal\": column 8: expected \"[\" and the number of digits, "
                            "found the end");
  expect_refused("2 * decimal[39, 2]",
                 "type \"2 * decimal[39, 2]\": column 5: a decimal of 39 digits: it has 1 to 38");
  expect_refused("decimal[2, 3]", "type \"decimal[2, 3]\": column 1: a decimal of 2 digits, 3 of "
                                  "them behind the point");
  expect_refused("decimal[size=2]", "type \"decimal[size=2]\": column 9: expected a number of "
                                    "elements, found \"size\"");
  expect_refused("categoricl[['a']]", "type \"categoricl[['a']]\": column 1: no type is called "
                                      "\"categoricl\"; is \"categorical\" meant?");
  expect_refused("... * int8", "type \"... * int8\": column 1: \"...\" is a part of datashape that "
                               "loam leaves out: write fixed or var for each dimension");
  expect_refused("2 * bytes[4]",
                 "type \"2 * bytes[4]\": column 5: \"bytes[\" is a part of datashape "
                 "that loam leaves out: write 4 * uint8");
  expect_refused("bytes[ 127 ]",
                 "type \"bytes[ 127 ]\": column 1: \"bytes[\" is a part of datashape "
                 "that loam leaves out: write 127 * uint8");
  expect_refused("bytes[x]", "type \"bytes[x]\": column 1: \"bytes[\" is a part of datashape "
                             "that loam leaves out: write 4 * uint8");
  expect_refused("datetime[tz='UTC']",
                 "type \"datetime[tz='UTC']\": column 10: \"tz\" is a part of datashape that loam "
                 "leaves out: write the datetimes in UTC, and keep the zone elsewhere");
  expect_refused("char",
                 "type \"char\": column 1: \"char\" is a part of datashape that loam leaves "
                 "out: write string[1]");
}

static void a_categorical_without_a_list_of_names_is_refused(void **state) {
  (void)state;
  expect_refused("categorical", "type \"categorical\": column 12: expected \"[\" and the list of "
                                "categories, found the end");
  expect_refused("categorical[]", "type \"categorical[]\": column 13: expected the list of "
                                  "categories, type=string or ordered=True, found \"]\"");
  expect_refused("categorical[string]", "type \"categorical[string]\": column 19: expected \",\" "
                                        "and the list of categories, found \"]\"");
  expect_refused("categorical[[]]", "type \"categorical[[]]\": column 14: expected a category in "
                                    "quotes, found \"]\"");
  expect_refused("categorical[['a' 'b']]", "type \"categorical[['a' 'b']]\": column 18: expected "
                                           "\",\" or \"]\" after a category, found \"'b'\"");
  expect_refused("categorical[['a', 2]]", "type \"categorical[['a', 2]]\": column 19: expected a "
                                          "category in quotes, found \"2\"");
  expect_refused("categorical[[low]]",
                 "type \"categorical[[low]]\": column 14: expected a category "
                 "in quotes, found \"low\"");
  expect_refused("categorical[['a", "type \"categorical[['a\": column 14: this quote has no end");
  expect_refused("categorical[['a']", "type \"categorical[['a']\": column 18: expected \",\" or "
                                      "\"]\" in a categorical, found the end");
  expect_refused("categorical[['b', 'a', 'b', 'a']]",
                 "type \"categorical[['b', 'a', 'b', 'a']]\": column 24: the categorical has a "
                 "category \"b\" already");
  expect_refused("categorical[['a'], type=int8]",
                 "type \"categorical[['a'], type=int8]\": column 25: expected string, the type of "
                 "all categories, found \"int8\"");
  expect_refused("categorical[['a'], ordered=yes]",
                 "type \"categorical[['a'], ordered=yes]\": column 28: expected True or False, "
                 "found \"yes\"");
  expect_refused("categorical[['a'], ['b']]",
                 "type \"categorical[['a'], ['b']]\": column 20: expected type=string or "
                 "ordered=True, each once, found \"[\"");
  expect_refused("categorical[['a'], ordered=True, ordered=True]",
                 "type \"categorical[['a'], ordered=True, ordered=True]\": column 34: expected "
                 "type=string or ordered=True, each once, found \"ordered\"");
}

/* Makes a categorical type of `count` categories, "0" and so on. */
static loam_type *numbered(int count) {
  static char text[LM_TYPE_TEXT];
  size_t length = (size_t)sprintf(text, "categorical[[");
  for (int i = 0; i < count; i++)
    length += (size_t)sprintf(text + length, i ? ", '%d'" : "'%d'", i);
  strcpy(text + length, "]]");
  return parse(text);
}

static void codes_have_as_few_bytes_as_the_categories_need(void **state) {
  (void)state;
  static const int count[] = { 1, 256, 257, 8000 };
  for (size_t i = 0; i < LM_COUNT(count); i++) {
    loam_type *type = numbered(count[i]);
    struct loam_type_info info;
    struct loam_type_field last;
    char name[16];
    sprintf(name, "%d", count[i] - 1);
    assert_int_equal(loam_type_info(type, &info), LOAM_OK);
    assert_int_equal(info.kind, LOAM_TYPE_CATEGORICAL);
    assert_true(info.count == (size_t)count[i] && !info.element);
    assert_int_equal(info.size, count[i] <= 256 ? 1 : 2);
    assert_int_equal(info.align, info.size);
    assert_int_equal(loam_type_field(type, info.count - 1, &last), LOAM_OK);
    assert_string_equal(last.name, name);
    assert_string_equal(loam_type_text(last.type), "string");
    assert_int_equal(loam_type_field(type, info.count, &last), LOAM_EINVAL);
    for (uint32_t k = 0, code = 0; k < info.count; k++) {
      sprintf(name, "%u|", k);
      assert_true(lm_type_find_category(type, name, strlen(name) - 1, &code) && code == k);
      assert_false(lm_type_find_category(type, name, strlen(name), &code));
    }
    loam_type_release(type);
  }
}

static void an_invalid_type_is_refused_with_its_column(void **state) {
  (void)state;
  expect_refused("{a: int8, a: int8}",
                 "type \"{a: int8, a: int8}\": column 11: the struct has a field \"a\" already");
  expect_refused("{'': int8}", "type \"{'': int8}\": column 2: a field's name is empty");
  expect_refused("2 * ?fixed * int8", "type \"2 * ?fixed * int8\": column 5: ?fixed * int8: a "
                                      "dimension of any size cannot be missing");
  expect_refused("?pointer[int8]", "type \"?pointer[int8]\": column 1: ?pointer[int8]: a pointer "
                                   "may be NULL, so it needs no \"?\"");
  expect_refused("??int8", "type \"?\?int8\": column 1: ??int8: one \"?\" says that the value may "
                           "be missing");
  expect_refused("140737488355329 * int8", "type \"140737488355329 * int8\": column 1: "
                                           "140737488355329 elements of 1 bytes: no address space "
                                           "is that large");
  expect_refused("99999999999999999999 * int8",
                 "type \"99999999999999999999 * int8\": column 1: no "
                 "address space has as many elements");
  assert_int_equal(loam_type_parse(NULL, NULL), LOAM_EINVAL);
  assert_string_equal(loam_error(), "text: it is NULL");
  assert_int_equal(loam_type_parse("int8", NULL), LOAM_EINVAL);
  assert_string_equal(loam_error(), "out: it is NULL");
}

static void depth_and_length_are_limited(void **state) {
  (void)state;
  char text[LM_TYPE_DEPTH * 4 + 16] = "";
  for (int i = 0; i < LM_TYPE_DEPTH - 1; i++) strcat(text, "1 * ");
  strcat(text, "int8");
  loam_type_release(parse(text));
  memmove(text + 4, text, strlen(text) + 1);
  memcpy(text, "1 * ", 4);
  loam_type *type;
  assert_int_equal(loam_type_parse(text, &type), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), ": the type is more than 64 levels deep"));

  char *long_name = malloc(LM_TYPE_TEXT + 16);
  strcpy(long_name, "{");
  memset(long_name + 1, 'x', LM_TYPE_TEXT);
  strcpy(long_name + 1 + LM_TYPE_TEXT, ": int8}");
  assert_int_equal(loam_type_parse(long_name, &type), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), "column 1: the type's text is longer than 65536 bytes"));
  strcpy(long_name, "2 * categorical[['");
  memset(long_name + 18, 'x', LM_TYPE_TEXT - 16);
  strcpy(long_name + 18 + LM_TYPE_TEXT - 16, "']]");
  assert_int_equal(loam_type_parse(long_name, &type), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), "column 5: the type's text is longer than 65536 bytes"));
  free(long_name);
}

/* ---- Layout */

static void expect_layout(const char *text, size_t size, size_t align) {
  loam_type *type = parse(text);
  struct loam_type_info info;
  assert_int_equal(loam_type_info(type, &info), LOAM_OK);
  assert_int_equal(info.size, size);
  assert_int_equal(info.align, align);
  loam_type_release(type);
}

static void a_value_is_laid_out_as_c_does(void **state) {
  (void)state;
  struct mixed {
    int8_t a;
    int32_t b[3];
    int16_t c;
    double d;
    char e;
  };
  expect_layout("{a: int8, b: 3 * int32, c: int16, d: float64, e: bool}", sizeof(struct mixed),
                _Alignof(struct mixed));
  expect_layout("5 * {a: int8, b: int16}", 20, 2);
  expect_layout("0 * float64", 0, 8);
  expect_layout("{a: bool, s: ?string}", 24, 8);
  expect_layout("{a: bool, c: complex64}", 12, 4);
  expect_layout("var * complex128", 16, 8);
  expect_layout("pointer[100 * int8]", 8, 8);
  expect_layout("?uint16", 2, 2);

  loam_type *type = parse("{a: int8, b: 3 * int32, c: int16, d: float64, e: bool}");
  static const size_t offset[] = { 0, offsetof(struct mixed, b), offsetof(struct mixed, c),
                                   offsetof(struct mixed, d), offsetof(struct mixed, e) };
  for (size_t i = 0; i < LM_COUNT(offset); i++) {
    struct loam_type_field f;
    assert_int_equal(loam_type_field(type, i, &f), LOAM_OK);
    assert_int_equal(f.offset, offset[i]);
    assert_int_equal(f.name[0], 'a' + (char)i);
  }
  loam_type_release(type);
}

static void info_describes_the_parts(void **state) {
  (void)state;
  loam_type *type = parse("3 * var * {x: float64, y: ?int32}");
  struct loam_type_info info;
  struct loam_type_field field;
  assert_int_equal(loam_type_info(type, &info), LOAM_OK);
  assert_int_equal(info.kind, LOAM_TYPE_FIXED);
  assert_int_equal(info.count, 3);
  assert_int_equal(loam_type_info(info.element, &info), LOAM_OK);
  assert_int_equal(info.kind, LOAM_TYPE_VAR);
  const loam_type *record = info.element;
  assert_int_equal(loam_type_info(record, &info), LOAM_OK);
  assert_int_equal(info.kind, LOAM_TYPE_STRUCT);
  assert_int_equal(info.count, 2);
  assert_null(info.element);
  assert_int_equal(loam_type_field(record, 1, &field), LOAM_OK);
  assert_string_equal(field.name, "y");
  assert_string_equal(loam_type_text(field.type), "?int32");
  assert_int_equal(loam_type_field(record, 2, &field), LOAM_EINVAL);
  assert_string_equal(loam_error(), "field 2: the struct has 2");
  assert_int_equal(loam_type_field(type, 0, &field), LOAM_EINVAL);
  assert_string_equal(loam_error(), "type 3 * var * {x: float64, y: ?int32}: it is not a struct");
  assert_int_equal(loam_type_info(NULL, &info), LOAM_EINVAL);
  loam_type_release(type);
}

static void types_with_equal_text_are_equal(void **state) {
  (void)state;
  loam_type *a = parse("2 * {x: int}"), *b = parse("2*{x:int32}"), *c = parse("2 * {y: int}");
  assert_true(loam_type_equal(a, b));
  assert_false(loam_type_equal(a, c));
  assert_false(loam_type_equal(a, NULL));
  assert_true(loam_type_equal(NULL, NULL));
  assert_string_equal(loam_type_text(NULL), "");
  loam_type_release(a);
  loam_type_release(b);
  loam_type_release(c);
}

static void a_long_type_is_cut_in_a_message(void **state) {
  (void)state;
  char words[LM_TYPE_WORDS];
  loam_type *type = parse(
      "{a: 3 * 3 * 3 * float64, b: 3 * 3 * 3 * float64, c: 3 * 3 * 3 * float64, "
      "d: 3 * 3 * 3 * float64}");
  assert_string_equal(lm_type_words(words, type),
                      "{a: 3 * 3 * 3 * float64, b: 3 * 3 * 3 * float64, c: 3 * 3 * 3 * float64, "
                      "d: 3 * 3 * 3 * floa...");
  assert_int_equal(strlen(words), LM_TYPE_WORDS - 1);
  loam_type_release(type);
}

/* ---- The lifetime of a type */

static void a_part_lives_as_long_as_its_references(void **state) {
  (void)state;
  loam_type *type = parse("3 * {x: var * int8}");
  loam_type *record = loam_type_retain(type->element);
  loam_type_release(type);
  assert_string_equal(loam_type_text(record), "{x: var * int8}");
  assert_true(lm_type_is_valid(record));
  loam_type_release(record);
  loam_type_release(NULL);
  assert_null(loam_type_retain(NULL));
}

static void *retain_and_release(void *type) {
  for (int i = 0; i < 20000; i++) loam_type_release(loam_type_retain(type));
  loam_type_release(type);
  return NULL;
}

static void threads_count_one_type_together(void **state) {
  (void)state;
  enum { THREADS = 8 };
  pthread_t thread[THREADS];
  loam_type *type = parse("3 * {x: var * int8}");
  for (int i = 0; i < THREADS; i++)
    thread[i] = start_thread(retain_and_release, loam_type_retain(type));
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  assert_int_equal(type->refs, 1);
  loam_type_release(type);
}

static loam_status parse_all_sorts(void) {
  loam_type *type = NULL;
  loam_status status = loam_type_parse("3 * {a: 5 * var * ?int8, b: pointer[string], c: {d: int8, "
                                       "e: int8, f: int8, g: int8, h: int8, i: int8, j: int8, "
                                       "k: int8, l: int8}, m: var * {n: bytes}}",
                                       &type);
  assert_true(!type == !!status);
  loam_type_release(type);
  return status;
}

static loam_status parse_categories(void) {
  loam_type *type = NULL;
  loam_status status = loam_type_parse("2 * ?categorical[['c', 'b', 'a']]", &type);
  assert_true(!type == !!status);
  loam_type_release(type);
  return status;
}

static loam_status size_all_sorts(void) {
  loam_type *type = NULL, *sized = NULL;
  loam_status status = loam_type_parse("fixed * 2 * var * fixed * (string[4], ?date, (int8,))",
                                       &type);
  if (!status) status = loam_type_sized(type, 2, (size_t[]){ 3, 4 }, &sized);
  assert_true(!sized == !!status);
  loam_type_release(type);
  loam_type_release(sized);
  return status;
}

static void without_memory_calls_fail_and_leak_nothing(void **state) {
  (void)state;
  assert_true(refuse_each_block(parse_all_sorts) > 20);
  assert_int_equal(refuse_each_block(parse_categories), 4);
  assert_true(refuse_each_block(size_all_sorts) > 10);
}

static void add_row(void *sum, const loam_stats_row *row) {
  if (!strcmp(row->tag, "loam.type")) *(uint64_t *)sum += row->live_blocks;
}

/* Runs after all other tests. No type may be live. */
static void the_tests_leave_no_type(void **state) {
  (void)state;
  uint64_t live = 0;
  assert_int_equal(loam_stats_by(LOAM_BY_TAG, add_row, &live), LOAM_OK);
  assert_int_equal(live, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_text_of_a_type_is_its_datashape),
    cmocka_unit_test(a_categorical_may_be_written_as_in_blaze_and_dynd),
    cmocka_unit_test(a_categorical_without_a_list_of_names_is_refused),
    cmocka_unit_test(codes_have_as_few_bytes_as_the_categories_need),
    cmocka_unit_test(dimensions_of_any_size_get_their_sizes),
    cmocka_unit_test(a_refusal_names_the_column_and_what_was_expected),
    cmocka_unit_test(a_struct_of_too_many_fields_is_refused_soon),
    cmocka_unit_test(a_misspelt_word_is_answered_with_the_right_one),
    cmocka_unit_test(an_invalid_type_is_refused_with_its_column),
    cmocka_unit_test(depth_and_length_are_limited),
    cmocka_unit_test(a_value_is_laid_out_as_c_does),
    cmocka_unit_test(info_describes_the_parts),
    cmocka_unit_test(types_with_equal_text_are_equal),
    cmocka_unit_test(a_long_type_is_cut_in_a_message),
    cmocka_unit_test(a_part_lives_as_long_as_its_references),
    cmocka_unit_test(threads_count_one_type_together),
    cmocka_unit_test(without_memory_calls_fail_and_leak_nothing),
    cmocka_unit_test(the_tests_leave_no_type),
  };
  return cmocka_run_group_tests_name("type", tests, NULL, NULL);
}
