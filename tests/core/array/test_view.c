/* test_view.c - views by indices, ranges and fields: their values, and the memory that they
 * keep. */
#include "arrays.h"

/* Makes a matrix of 3 rows and 4 columns; an element is 10 * row + column. */
static loam_array *matrix(void) {
  loam_array *a = new_array("3 * 4 * int32");
  int32_t *data = loam_array_data(a);
  for (int i = 0; i < 12; i++) data[i] = i / 4 * 10 + i % 4;
  return a;
}

typedef struct sample {
  double x;
  int32_t y;
} sample;

/* Makes `rows` rows. Row i has lengths[i] elements; its element k is {x: i * 10 + k + 0.5, y: i *
 * 10 + k + 1}. */
static loam_array *samples(int rows, const int *lengths) {
  char text[64];
  snprintf(text, sizeof text, "%d * var * {x: float64, y: int32}", rows);
  loam_array *a = new_array(text);
  for (int i = 0; i < rows; i++) {
    loam_array *row = VIEW(a, LOAM_AT(i));
    for (int k = 0; k < lengths[i]; k++)
      assert_int_equal(loam_array_append(row, &(sample){ i * 10 + k + 0.5, i * 10 + k + 1 }), 0);
    loam_array_release(row);
  }
  return a;
}

static const loam_index backwards = { LOAM_OPEN, LOAM_OPEN, -1 };

static void an_index_removes_its_dimension(void **state) {
  (void)state;
  loam_array *a = matrix();
  expect_view(VIEW(a, LOAM_AT(1)), "4 * int32", "[10,11,12,13]");
  expect_view(VIEW(a, LOAM_AT(-1), LOAM_AT(0)), "int32", "20");
  expect_view(VIEW(a, LOAM_ALL, LOAM_AT(2)), "3 * int32", "[2,12,22]");
  expect_view(view_of(a, 0, NULL), "3 * 4 * int32", "[[0,1,2,3],[10,11,12,13],[20,21,22,23]]");
  loam_array_release(a);
}

static void a_transpose_reverses_the_dimensions(void **state) {
  (void)state;
  loam_array *a = matrix(), *t, *rows;
  assert_int_equal(loam_array_transpose(a, &t), LOAM_OK);
  assert_ptr_equal(loam_array_data(t), loam_array_data(a));
  loam_array_release(a);
  expect_view(VIEW(t, LOAM_AT(1)), "3 * int32", "[1,11,21]");
  expect_view(t, "4 * 3 * int32", "[[0,10,20],[1,11,21],[2,12,22],[3,13,23]]");
  a = new_array("2 * 1 * {x: int8, s: var * string}");
  assert_int_equal(loam_array_readonly(a, &rows), LOAM_OK);
  assert_int_equal(loam_array_transpose(rows, &t), LOAM_OK);
  struct loam_array_info info;
  assert_true(!loam_array_info(t, &info) && info.readonly);
  loam_array_release(rows);
  loam_array_release(a);
  expect_view(t, "1 * 2 * {x: int8, s: var * string}", "[[{\"x\":0,\"s\":[]},{\"x\":0,\"s\":[]}]]");
  a = new_array("var * int8");
  assert_int_equal(loam_array_transpose(a, &t), LOAM_OK);
  expect_view(t, "var * int8", "[]");
  loam_array_release(a);
  assert_int_equal(loam_array_transpose(NULL, &t), LOAM_EINVAL);
}

static void a_read_only_view_refuses_every_writer(void **state) {
  (void)state;
  loam_array *a = new_array("2 * var * string"), *constant, *row;
  struct loam_array_info info;
  assert_int_equal(loam_array_readonly(a, &constant), LOAM_OK);
  row = VIEW(constant, LOAM_AT(0));
  assert_true(!loam_array_info(row, &info) && info.readonly);
  assert_int_equal(loam_array_resize(row, 1), LOAM_ESTATE);
  loam_array_release(row);
  row = VIEW(a, LOAM_AT(0));
  assert_int_equal(loam_array_resize(row, 1), LOAM_OK);
  loam_array_release(row);
  expect_view(constant, "2 * var * string", "[[\"\"],[]]");
  assert_int_equal(loam_array_readonly(NULL, &constant), LOAM_EINVAL);
  assert_int_equal(loam_array_readonly(a, NULL), LOAM_EINVAL);
  loam_array_release(a);
}

static void a_range_is_like_pythons(void **state) {
  (void)state;
  loam_array *a = matrix();
  expect_view(VIEW(a, LOAM_RANGE(1, 3), LOAM_RANGE(-2, LOAM_OPEN)), "2 * 2 * int32",
              "[[12,13],[22,23]]");
  expect_view(VIEW(a, backwards, { LOAM_OPEN, LOAM_OPEN, 2 }), "3 * 2 * int32",
              "[[20,22],[10,12],[0,2]]");
  expect_view(VIEW(a, LOAM_AT(0), { 3, 0, -2 }), "2 * int32", "[3,1]");
  expect_view(VIEW(a, LOAM_AT(0), { 100, -100, -3 }), "2 * int32", "[3,0]");
  expect_view(VIEW(a, LOAM_AT(0), LOAM_RANGE(-100, 100)), "4 * int32", "[0,1,2,3]");
  expect_view(VIEW(a, LOAM_AT(0), LOAM_RANGE(3, 1)), "0 * int32", "[]");
  expect_view(VIEW(a, LOAM_AT(0), { 1, 2, INT64_MAX }), "1 * int32", "[1]");
  expect_view(VIEW(a, LOAM_RANGE(3, 9), LOAM_AT(1)), "0 * int32", "[]");
  loam_array *v = VIEW(a, LOAM_ALL, backwards);
  expect_view(VIEW(v, LOAM_AT(1), { 1, LOAM_OPEN, 2 }), "2 * int32", "[12,10]");
  loam_array_release(v);
  loam_array_release(a);
}

static void nothing_is_copied(void **state) {
  (void)state;
  loam_array *a = matrix();
  loam_array *v = VIEW(a, LOAM_AT(2), backwards);
  *(int32_t *)loam_array_data(v) = 99;
  expect_view(VIEW(a, LOAM_AT(2)), "4 * int32", "[20,21,22,99]");
  loam_array_release(v);
  loam_array_release(a);
}

static void elements_that_do_not_exist_are_refused_in_words(void **state) {
  (void)state;
  loam_array *a = matrix(), *out = (loam_array *)8;
  EXPECT_ERROR(loam_array_index(a, 1, &LOAM_AT(3), &out), LOAM_EINVAL,
               "index 1 is 3: there are 3 elements");
  EXPECT_ERROR(loam_array_index(a, 2, (loam_index[]){ LOAM_ALL, LOAM_AT(-5) }, &out), LOAM_EINVAL,
               "index 2 is -5: there are 4 elements");
  EXPECT_ERROR(loam_array_index(a, 3, (loam_index[]){ LOAM_ALL, LOAM_AT(0), LOAM_ALL }, &out),
               LOAM_EINVAL, "index 3: int32 has no dimension");
  EXPECT_ERROR(loam_array_index(a, 1, &(loam_index){ 0, 1, INT64_MIN }, &out), LOAM_EINVAL,
               "index 1: a step of -9223372036854775808");
  EXPECT_ERROR(loam_array_field(a, "x", &out), LOAM_EINVAL, "int32 has no fields");
  EXPECT_ERROR(loam_array_index(a, 65, (loam_index[65]){ { 0 } }, &out), LOAM_EINVAL,
               "65 indices: no array has as many dimensions");
  EXPECT_ERROR(loam_array_index(NULL, 0, NULL, &out), LOAM_EINVAL, "array: it is NULL");
  EXPECT_ERROR(loam_array_index(a, 1, NULL, &out), LOAM_EINVAL, "index: it is NULL");
  EXPECT_ERROR(loam_array_index(a, 0, NULL, NULL), LOAM_EINVAL, "out: it is NULL");
  assert_null(loam_array_at(a, 2, (int64_t[]){ 0, 4 }));
  assert_string_equal(loam_error(), "index 4: there are 4 elements");
  assert_null(loam_array_at(a, 3, (int64_t[]){ 0, 0, 0 }));
  assert_string_equal(loam_error(), "type int32: it has no dimension");
  assert_ptr_equal(out, (void *)8);
  loam_array_release(a);
}

/* ---- Rows ---- */

static void a_slice_of_a_row_is_fixed(void **state) {
  (void)state;
  loam_array *a = samples(2, (int[]){ 2, 3 });
  expect_view(VIEW(a, LOAM_AT(0)), "var * {x: float64, y: int32}",
              "[{\"x\":0.5,\"y\":1},{\"x\":1.5,\"y\":2}]");
  expect_view(VIEW(a, LOAM_AT(1), LOAM_RANGE(1, LOAM_OPEN)), "2 * {x: float64, y: int32}",
              "[{\"x\":11.5,\"y\":12},{\"x\":12.5,\"y\":13}]");
  loam_array *row = VIEW(a, LOAM_AT(1));
  expect_view(VIEW(row, LOAM_ALL), "3 * {x: float64, y: int32}",
              "[{\"x\":10.5,\"y\":11},{\"x\":11.5,\"y\":12},{\"x\":12.5,\"y\":13}]");
  expect_view(VIEW(row, LOAM_AT(-1)), "{x: float64, y: int32}", "{\"x\":12.5,\"y\":13}");
  loam_array_release(row);
  loam_array_release(a);
}

static void an_empty_row_has_slices(void **state) {
  (void)state;
  loam_array *a = samples(1, (int[]){ 0 }), *out;
  expect_view(VIEW(a, LOAM_AT(0), LOAM_ALL), "0 * {x: float64, y: int32}", "[]");
  EXPECT_ERROR(loam_array_index(a, 2, (loam_index[]){ LOAM_AT(0), LOAM_AT(0) }, &out), LOAM_EINVAL,
               "index 2 is 0: there are 0 elements");
  loam_array *y = field_of(a, "y"), *view = VIEW(y, LOAM_AT(0), LOAM_ALL);
  assert_null(loam_array_data(view)); /* without memory the data are NULL, not an offset */
  expect_view(view, "0 * int32", "[]");
  loam_array_release(y);
  view = VIEW(a, LOAM_AT(0), LOAM_ALL);
  y = field_of(view, "y");
  assert_null(loam_array_data(y));
  expect_view(y, "0 * int32", "[]");
  loam_array_release(view);
  loam_array_release(a);
}

static void elements_without_bytes_need_no_memory(void **state) {
  (void)state;
  loam_array *a = new_array("var * {x: 0 * int8, y: 0 * {z: int32, w: int64}}");
  assert_int_equal(loam_array_resize(a, 3), LOAM_OK);
  expect_json(a, "[{\"x\":[],\"y\":[]},{\"x\":[],\"y\":[]},{\"x\":[],\"y\":[]}]");
  loam_array *y = field_of(a, "y"), *last = VIEW(y, LOAM_AT(2)), *w = field_of(last, "w");
  assert_null(loam_array_data(w));
  expect_view(w, "0 * int64", "[]");
  loam_array_release(last);
  loam_array_release(y);
  loam_array_release(a);
}

static void rows_taken_whole_stay_rows(void **state) {
  (void)state;
  loam_array *a = samples(3, (int[]){ 1, 0, 2 });
  loam_array *x = field_of(a, "x");
  expect_view(VIEW(x, LOAM_ALL, LOAM_ALL), "3 * var * float64", "[[0.5],[],[20.5,21.5]]");
  expect_view(VIEW(x, backwards), "3 * var * float64", "[[20.5,21.5],[],[0.5]]");
  expect_view(VIEW(x, { LOAM_OPEN, LOAM_OPEN, 2 }, { 0, LOAM_OPEN, 1 }), "2 * var * float64",
              "[[0.5],[20.5,21.5]]");
  loam_array_release(x);
  loam_array_release(a);
}

static void one_index_for_all_rows_makes_pointers(void **state) {
  (void)state;
  loam_array *a = samples(2, (int[]){ 2, 3 });
  loam_array *y = field_of(a, "y");
  expect_view(VIEW(y, LOAM_ALL, LOAM_AT(1)), "2 * pointer[int32]", "[2,12]");
  expect_view(VIEW(y, LOAM_ALL, LOAM_RANGE(0, 2)), "2 * pointer[2 * int32]", "[[1,2],[11,12]]");
  expect_view(VIEW(y, LOAM_RANGE(1, 2), backwards), "1 * pointer[3 * int32]", "[[13,12,11]]");
  loam_array *pointers = VIEW(y, LOAM_ALL, LOAM_RANGE(0, 2));
  expect_view(VIEW(pointers, LOAM_AT(1)), "pointer[2 * int32]", "[11,12]");
  expect_view(VIEW(pointers, LOAM_AT(1), LOAM_AT(0)), "int32", "11");
  expect_view(VIEW(pointers, LOAM_ALL, LOAM_AT(-1)), "2 * pointer[int32]", "[2,12]");
  expect_view(VIEW(pointers, LOAM_AT(0), backwards), "2 * int32", "[2,1]");
  loam_array_release(pointers);
  loam_array *all = VIEW(a, LOAM_ALL, LOAM_AT(0));
  expect_view(field_of(all, "x"), "2 * pointer[float64]", "[0.5,10.5]");
  loam_array_release(all);
  loam_array_release(y);
  loam_array_release(a);
}

static void rows_that_differ_have_no_common_index(void **state) {
  (void)state;
  loam_array *a = samples(3, (int[]){ 2, 3, 1 }), *out;
  EXPECT_ERROR(loam_array_index(a, 2, (loam_index[]){ LOAM_ALL, LOAM_AT(1) }, &out), LOAM_EINVAL,
               "index 2 is 1: there is 1 element in row 2");
  EXPECT_ERROR(loam_array_index(a, 2, (loam_index[]){ LOAM_ALL, LOAM_AT(-1) }, &out), LOAM_EINVAL,
               "index 2 selects other elements of row 1, which has 3, than of row 0, which has 2; "
               "index each "
               "row by itself");
  EXPECT_ERROR(loam_array_index(a, 2, (loam_index[]){ LOAM_ALL, LOAM_RANGE(1, LOAM_OPEN) }, &out),
               LOAM_EINVAL,
               "index 2 selects other elements of row 1, which has 3, than of row 0, which has 2; "
               "index each "
               "row by itself");
  expect_view(VIEW(a, LOAM_RANGE(3, 3), LOAM_AT(7)), "0 * pointer[{x: float64, y: int32}]", "[]");
  loam_array_release(a);
}

static void rows_within_rows_are_checked(void **state) {
  (void)state;
  loam_array *a = new_array("2 * var * var * int16"), *out;
  static const int lengths[2][3] = { { 2, 3, 0 }, { 4, 0, 0 } };
  int next = 0;
  for (int64_t i = 0; i < 2; i++) {
    loam_array *row = VIEW(a, LOAM_AT(i));
    assert_int_equal(loam_array_resize(row, i ? 1 : 2), LOAM_OK);
    for (int64_t k = 0; k < (i ? 1 : 2); k++) {
      loam_array *inner = VIEW(row, LOAM_AT(k));
      for (int n = 0; n < lengths[i][k]; n++)
        loam_array_append(inner, &(int16_t){ (int16_t)next++ });
      loam_array_release(inner);
    }
    loam_array_release(row);
  }
  expect_json(a, "[[[0,1],[2,3,4]],[[5,6,7,8]]]");
  expect_view(VIEW(a, LOAM_ALL, LOAM_ALL, LOAM_AT(1)), "2 * var * pointer[int16]", "[[1,3],[6]]");
  expect_view(VIEW(a, LOAM_ALL, LOAM_AT(0), LOAM_RANGE(1, 2)), "2 * pointer[pointer[1 * int16]]",
              "[[1],[6]]");
  expect_view(VIEW(a, LOAM_AT(0), LOAM_ALL, LOAM_AT(0)), "2 * pointer[int16]", "[0,2]");
  expect_view(VIEW(a, LOAM_AT(0), LOAM_AT(1), LOAM_AT(2)), "int16", "4");
  EXPECT_ERROR(loam_array_index(a, 3, (loam_index[]){ LOAM_ALL, LOAM_ALL, LOAM_AT(2) }, &out),
               LOAM_EINVAL, "index 3 is 2: there are 2 elements in row 0");
  loam_array_release(a);
}

static void every_row_of_whole_rows_is_checked(void **state) {
  (void)state;
  loam_array *a = new_array("1 * var * var * int16"), *out;
  loam_array *row = VIEW(a, LOAM_AT(0));
  assert_int_equal(loam_array_resize(row, 2), LOAM_OK);
  loam_array *second = VIEW(row, LOAM_AT(1));
  assert_int_equal(loam_array_append(second, &(int16_t){ 5 }), LOAM_OK);
  EXPECT_ERROR(loam_array_index(a, 3, (loam_index[]){ LOAM_ALL, LOAM_ALL, backwards }, &out),
               LOAM_EINVAL,
               "index 3 selects other elements of row 1, which has 1, than of row 0, which has 0; "
               "index each "
               "row by itself");
  loam_array_release(second);
  loam_array_release(row);
  loam_array_release(a);
}

static void an_empty_range_of_an_empty_row_is_a_view(void **state) {
  (void)state;
  loam_array *a = samples(2, (int[]){ 0, 2 });
  loam_array *none = VIEW(a, LOAM_ALL, LOAM_RANGE(0, 0));
  expect_view(VIEW(none, LOAM_AT(0), LOAM_ALL), "0 * {x: float64, y: int32}", "[]");
  expect_view(none, "2 * pointer[0 * {x: float64, y: int32}]", "[[],[]]");
  loam_array_release(a);
}

/* ---- Fields ---- */

static void a_field_is_selected_through_dimensions(void **state) {
  (void)state;
  loam_array *a = samples(2, (int[]){ 2, 1 });
  expect_view(field_of(a, "x"), "2 * var * float64", "[[0.5,1.5],[10.5]]");
  expect_view(field_of(a, "y"), "2 * var * int32", "[[1,2],[11]]");
  loam_array *row = VIEW(a, LOAM_AT(0)), *rest = VIEW(a, LOAM_AT(0), LOAM_RANGE(1, 2));
  expect_view(field_of(row, "y"), "var * int32", "[1,2]");
  expect_view(field_of(rest, "y"), "1 * int32", "[2]");
  loam_array_release(row);
  loam_array_release(rest);
  loam_array_release(a);
}

static void some_fields_are_a_struct_of_them(void **state) {
  (void)state;
  loam_array *a = new_array("2 * {a: int8, b: 2 * float64, s: string, p: pointer[int16]}"), *out;
  loam_array *s = field_of(a, "s"), *s1 = VIEW(s, LOAM_AT(1)), *b = field_of(a, "b");
  assert_int_equal(loam_array_set_text(s1, "text", 4), LOAM_OK);
  *(double *)loam_array_at(b, 2, (int64_t[]){ 1, 1 }) = 2.5;
  assert_int_equal(loam_array_fields(a, 2, (const char *[]){ "s", "b" }, &out), LOAM_OK);
  assert_true(lm_array_is_valid(out));
  loam_array *again, *one;
  assert_int_equal(loam_array_fields(out, 1, (const char *[]){ "b" }, &one), LOAM_OK);
  expect_view(one, "2 * {b: 2 * float64}", "[{\"b\":[0,0]},{\"b\":[0,2.5]}]");
  again = field_of(out, "s");
  expect_view(again, "2 * string", "[\"\",\"text\"]");
  expect_view(out, "2 * {s: string, b: 2 * float64}",
              "[{\"s\":\"\",\"b\":[0,0]},{\"s\":\"text\",\"b\":[0,2.5]}]");
  EXPECT_ERROR(loam_array_fields(a, 2, (const char *[]){ "s", "t" }, &out), LOAM_EINVAL,
               "field \"t\": {a: int8, b: 2 * float64, s: string, p: pointer[int16]} has no field "
               "of that name");
  EXPECT_ERROR(loam_array_fields(a, 2, (const char *[]){ "s", "s" }, &out), LOAM_EINVAL,
               "the struct has two fields \"s\"");
  EXPECT_ERROR(loam_array_fields(a, 0, (const char *[]){ "s" }, &out), LOAM_EINVAL,
               "no field is named");
  loam_array_release(s);
  loam_array_release(s1);
  loam_array_release(b);
  loam_array_release(a);
}

static void fields_of_fields_are_selected_in_turn(void **state) {
  (void)state;
  loam_array *a = new_array("2 * {id: int8, at: 3 * {x: float32, y: float32}}");
  loam_array *at = field_of(a, "at"), *y = field_of(at, "y");
  *(float *)loam_array_at(y, 2, (int64_t[]){ 1, 2 }) = 7;
  expect_view(VIEW(y, LOAM_AT(1)), "3 * float32", "[0,0,7]");
  expect_view(VIEW(y, LOAM_ALL, LOAM_AT(2)), "2 * float32", "[0,7]");
  loam_array_release(y);
  loam_array_release(at);
  loam_array_release(a);
}

static void a_pointer_that_comes_first_is_followed(void **state) {
  (void)state;
  loam_array *a = new_array("pointer[3 * pointer[{x: int8, y: 2 * int16}]]"), *out;
  EXPECT_ERROR(loam_array_index(a, 1, &LOAM_AT(0), &out), LOAM_ESTATE,
               "pointer[3 * pointer[{x: int8, y: 2 * int16}]]: the pointer is NULL");
  assert_int_equal(loam_array_resize(a, 1), LOAM_OK);
  for (int64_t i = 0; i < 3; i++) {
    loam_array *element = VIEW(a, LOAM_AT(i));
    assert_int_equal(loam_array_resize(element, 1), LOAM_OK);
    loam_array *y = field_of(element, "y");
    assert_string_equal(loam_type_text(loam_array_type(y)), "2 * int16");
    ((int16_t *)loam_array_data(y))[1] = (int16_t)(i + 5);
    loam_array_release(y);
    loam_array_release(element);
  }
  loam_array *y = field_of(a, "y");
  expect_view(VIEW(y, LOAM_ALL, LOAM_AT(1)), "3 * pointer[int16]", "[5,6,7]");
  expect_view(VIEW(y, LOAM_AT(2), backwards), "2 * int16", "[7,0]");
  expect_view(y, "3 * pointer[2 * int16]", "[[0,5],[0,6],[0,7]]");
  loam_array_release(a);
}

/* Tries to make a target through a view of one element, whose type is `text`. This must fail. */
static void expect_no_target(loam_array *view, const char *text) {
  char words[200];
  loam_array *first = VIEW(view, LOAM_AT(0));
  assert_string_equal(loam_type_text(loam_array_type(first)), text);
  snprintf(words, sizeof words,
           "%s: the view shows a part of the target: make the target through the whole array",
           text);
  EXPECT_ERROR(loam_array_resize(first, 1), LOAM_ESTATE, words);
  loam_array_release(first);
  loam_array_release(view);
}

static void a_part_of_a_target_makes_no_target(void **state) {
  (void)state;
  const char *names[] = { "y" };
  loam_array *a = new_array("2 * pointer[{x: int64, y: int64}]"), *view, *turned;
  expect_no_target(field_of(a, "y"), "pointer[int64]");
  assert_int_equal(loam_array_fields(a, 1, names, &view), LOAM_OK);
  expect_no_target(view, "pointer[{y: int64}]");
  view = field_of(a, "x");
  assert_int_equal(loam_array_transpose(view, &turned), LOAM_OK);
  expect_no_target(turned, "pointer[int64]");
  expect_no_target(VIEW(view, LOAM_ALL), "pointer[int64]");
  loam_array *first = VIEW(a, LOAM_AT(0)), *part = VIEW(view, LOAM_AT(0));
  assert_int_equal(loam_array_resize(first, 1), LOAM_OK);
  assert_int_equal(loam_array_resize(part, 1), LOAM_OK);
  loam_array_release(first);
  loam_array_release(part);
  loam_array_release(view);
  loam_array_release(a);
  a = new_array("2 * pointer[2 * int64]");
  expect_no_target(VIEW(a, LOAM_ALL, LOAM_AT(0)), "pointer[int64]");
  view = VIEW(a, LOAM_ALL, ((loam_index){ LOAM_OPEN, LOAM_OPEN, -1 }));
  first = VIEW(view, LOAM_AT(0));
  assert_int_equal(loam_array_resize(first, 1), LOAM_OK);
  *(int64_t *)loam_array_at(a, 2, (int64_t[]){ 0, 1 }) = 5;
  expect_json(view, "[[5,0],null]");
  loam_array_release(first);
  loam_array_release(view);
  loam_array_release(a);
}

static void fill(loam_array *pointer) {
  assert_int_equal(loam_array_resize(pointer, 1), LOAM_OK);
  loam_array_release(pointer);
}

/* Several pointers lead to the shown part. Each pointer whose target is a whole value can be
 * filled. */
static void a_whole_target_behind_a_part_is_made(void **state) {
  (void)state;
  loam_array *a = new_array("1 * pointer[pointer[{x: pointer[int8], y: int64}]]"), *inner;
  loam_array *xs = field_of(a, "x"), *x;
  assert_string_equal(loam_type_text(loam_array_type(xs)), "1 * pointer[pointer[pointer[int8]]]");
  fill(VIEW(xs, LOAM_AT(0)));
  x = VIEW(xs, LOAM_AT(0));
  assert_int_equal(loam_array_follow(x, &inner), LOAM_OK);
  EXPECT_ERROR(loam_array_resize(inner, 1), LOAM_ESTATE,
               "pointer[pointer[int8]]: the view shows a part of the target: make the target "
               "through the whole array");
  loam_array_release(inner);
  loam_array_release(x);
  x = VIEW(a, LOAM_AT(0));
  assert_int_equal(loam_array_follow(x, &inner), LOAM_OK);
  fill(inner);
  loam_array_release(x);
  x = VIEW(xs, LOAM_AT(0));
  assert_int_equal(loam_array_follow(x, &inner), LOAM_OK);
  loam_array_release(x);
  assert_int_equal(loam_array_follow(inner, &x), LOAM_OK);
  loam_array_release(inner);
  fill(x);
  expect_json(a, "[{\"x\":0,\"y\":0}]");
  loam_array_release(xs);
  loam_array_release(a);
}

static void follow_returns_the_target_of_a_pointer(void **state) {
  (void)state;
  loam_array *a = new_array("pointer[string]"), *out;
  EXPECT_ERROR(loam_array_follow(a, &out), LOAM_ESTATE, "pointer[string]: the pointer is NULL");
  assert_int_equal(loam_array_resize(a, 1), LOAM_OK);
  assert_int_equal(loam_array_follow(a, &out), LOAM_OK);
  assert_int_equal(loam_array_set_text(out, "there", 5), LOAM_OK);
  expect_json(a, "\"there\"");
  loam_array_release(a);
  EXPECT_ERROR(loam_array_follow(out, &a), LOAM_EINVAL, "type string: it is not a pointer");
  expect_view(out, "string", "\"there\"");
}

/* ---- The memory that a view keeps ---- */

static void a_view_keeps_its_data_alive(void **state) {
  (void)state;
  loam_array *small = matrix(), *view = VIEW(small, LOAM_AT(1));
  loam_array_release(small);
  expect_view(view, "4 * int32", "[10,11,12,13]");
  loam_array *a = samples(2, (int[]){ 2, 3 });
  loam_array *row = VIEW(a, LOAM_AT(1)), *x = field_of(row, "x"), *part = VIEW(x, LOAM_RANGE(1, 3));
  loam_array_release(a);
  loam_array_release(row);
  loam_array_release(x);
  expect_view(part, "2 * float64", "[11.5,12.5]");
}

/* A slice of a row keeps the arena of the rows alive, and nothing else. */
static void a_view_keeps_nothing_else(void **state) {
  (void)state;
  loam_array *a = samples(2, (int[]){ 2, 3 });
  loam_block *data = (loam_block *)&a->block;
  loam_array *part = VIEW(a, LOAM_AT(1), LOAM_RANGE(0, 1)), *x = field_of(part, "x");
  assert_int_equal(loam_block_refcount(data), 1);
  assert_int_equal(loam_block_refcount(x->owner), 3); /* the array, the part and the field own it */
  loam_array_release(part);
  loam_array_release(a);
  assert_int_equal(loam_block_refcount(x->owner), 1);
  expect_view(x, "1 * float64", "[10.5]");
}

static void a_view_of_a_view_holds_the_data_not_the_view(void **state) {
  (void)state;
  loam_array *a = matrix(), *v = VIEW(a, LOAM_ALL), *w = VIEW(v, LOAM_ALL);
  assert_int_equal(loam_block_refcount(&a->block), 3);
  assert_int_equal(loam_block_refcount(&v->block), 1);
  loam_array_release(v);
  loam_array_release(w);
  loam_array_release(a);
}

#define CASE(name) cmocka_unit_test_teardown(name, nothing_is_left)

int main(void) {
  const struct CMUnitTest tests[] = {
    CASE(an_index_removes_its_dimension),
    CASE(a_transpose_reverses_the_dimensions),
    CASE(a_read_only_view_refuses_every_writer),
    CASE(a_range_is_like_pythons),
    CASE(nothing_is_copied),
    CASE(elements_that_do_not_exist_are_refused_in_words),
    CASE(a_slice_of_a_row_is_fixed),
    CASE(an_empty_row_has_slices),
    CASE(elements_without_bytes_need_no_memory),
    CASE(rows_taken_whole_stay_rows),
    CASE(one_index_for_all_rows_makes_pointers),
    CASE(rows_that_differ_have_no_common_index),
    CASE(rows_within_rows_are_checked),
    CASE(every_row_of_whole_rows_is_checked),
    CASE(an_empty_range_of_an_empty_row_is_a_view),
    CASE(a_field_is_selected_through_dimensions),
    CASE(some_fields_are_a_struct_of_them),
    CASE(fields_of_fields_are_selected_in_turn),
    CASE(a_pointer_that_comes_first_is_followed),
    CASE(a_part_of_a_target_makes_no_target),
    CASE(a_whole_target_behind_a_part_is_made),
    CASE(follow_returns_the_target_of_a_pointer),
    CASE(a_view_keeps_its_data_alive),
    CASE(a_view_keeps_nothing_else),
    CASE(a_view_of_a_view_holds_the_data_not_the_view),
  };
  return cmocka_run_group_tests_name("view", tests, NULL, NULL);
}
