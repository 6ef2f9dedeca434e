/* test_interchange.c - exchange of arrays with other libraries through Arrow. */
#include <stdlib.h>

#include "array/arrow.h"
#include "arrays.h"
#include "refuse_allocations.h"

/* An exported array and its schema. */
typedef struct shipped {
  struct ArrowSchema schema;
  struct ArrowArray array;
} shipped;

static shipped ship(const loam_array *array, int may_copy) {
  shipped s;
  if (loam_array_to_arrow(array, may_copy, &s.schema, &s.array)) fail_msg("%s", loam_error());
  return s;
}

static void end_shipped(shipped *s) {
  if (s->schema.release) s->schema.release(&s->schema);
  if (s->array.release) s->array.release(&s->array);
  assert_null(s->schema.release);
  assert_null(s->array.release);
}

static void expect_node(const struct ArrowSchema *schema, const struct ArrowArray *array,
                        const char *format, const char *name, int64_t length, int64_t nulls) {
  assert_string_equal(schema->format, format);
  assert_string_equal(schema->name, name);
  assert_int_equal(array->length, length);
  assert_int_equal(array->null_count, nulls);
  assert_int_equal(array->offset, 0);
  assert_int_equal(schema->n_children, array->n_children);
}

static void contiguous_numbers_are_shared(void **state) {
  (void)state;
  loam_array *a = new_array("3 * float64");
  ((double *)loam_array_data(a))[2] = 2.5;
  shipped s = ship(a, 0);
  expect_node(&s.schema, &s.array, "g", "", 3, 0);
  assert_int_equal(s.schema.flags, 0);
  assert_int_equal(s.array.n_buffers, 2);
  assert_null(s.array.buffers[0]);
  assert_ptr_equal(s.array.buffers[1], loam_array_data(a));
  assert_int_equal(loam_block_refcount(&a->block), 2);
  loam_array_release(a); /* the export keeps the array alive */
  assert_float_equal(((const double *)s.array.buffers[1])[2], 2.5, 0);
  end_shipped(&s);
}

static void dimensions_are_lists(void **state) {
  (void)state;
  loam_array *a = new_array("2 * 3 * int16");
  for (int i = 0; i < 6; i++) ((int16_t *)loam_array_data(a))[i] = (int16_t)i;
  shipped s = ship(a, 0);
  expect_node(&s.schema, &s.array, "+w:3", "", 2, 0);
  expect_node(s.schema.children[0], s.array.children[0], "s", "item", 6, 0);
  assert_ptr_equal(s.array.children[0]->buffers[1], loam_array_data(a));
  end_shipped(&s);
  loam_array_release(a);

  a = new_array("3 * var * int32");
  for (int64_t i = 0; i < 3; i++) {
    loam_array *row = VIEW(a, LOAM_AT(i));
    for (int k = 0; k < 2 - i % 2 * 2; k++)
      loam_array_append(row, &(int32_t){ (int32_t)i * 10 + k });
    loam_array_release(row);
  }
  expect_json(a, "[[0,1],[],[20,21]]");
  EXPECT_ERROR(loam_array_to_arrow(a, 0, &s.schema, &s.array), LOAM_EUNSUPPORTED,
               "int32: values do not follow one another, which needs a copy");
  s = ship(a, 1);
  expect_node(&s.schema, &s.array, "+l", "", 3, 0);
  const int32_t *offsets = s.array.buffers[1], *values = s.array.children[0]->buffers[1];
  for (int i = 0; i < 4; i++) assert_int_equal(offsets[i], ((int[]){ 0, 2, 2, 4 })[i]);
  for (int i = 0; i < 4; i++) assert_int_equal(values[i], ((int[]){ 0, 1, 20, 21 })[i]);
  end_shipped(&s);
  loam_array_release(a);
}

/* Values without bytes may have no address, but each of them counts. */
static void values_without_bytes_are_counted(void **state) {
  (void)state;
  loam_array *a = new_array("2 * var * 2 * 0 * int32"), *row = VIEW(a, LOAM_AT(1)), *back;
  assert_int_equal(loam_array_resize(row, 3), LOAM_OK);
  loam_array_release(row);
  expect_json(a, "[[],[[[],[]],[[],[]],[[],[]]]]");
  shipped s = ship(a, 0);
  expect_node(&s.schema, &s.array, "+l", "", 2, 0);
  const struct ArrowSchema *schema = s.schema.children[0];
  const struct ArrowArray *array = s.array.children[0];
  expect_node(schema, array, "+w:2", "item", 3, 0);
  schema = schema->children[0];
  array = array->children[0];
  expect_node(schema, array, "+w:0", "item", 6, 0);
  expect_node(schema->children[0], array->children[0], "i", "item", 0, 0);
  assert_int_equal(loam_array_from_arrow(&s.schema, &s.array, 0, &back), LOAM_OK);
  s = ship(back, 0);
  expect_node(s.schema.children[0]->children[0], s.array.children[0]->children[0], "+w:0", "item",
              6, 0);
  end_shipped(&s);
  expect_view(back, "2 * var * 2 * 0 * int32", "[[],[[[],[]],[[],[]],[[],[]]]]");
  loam_array_release(a);
  a = new_array("var * {x: 0 * int32}");
  assert_int_equal(loam_array_resize(a, 2), LOAM_OK);
  s = ship(a, 0);
  expect_node(&s.schema, &s.array, "+s", "", 2, 0);
  expect_node(s.schema.children[0], s.array.children[0], "+w:0", "x", 2, 0);
  end_shipped(&s);
  loam_array_release(a);
}

static void a_missing_value_has_bit_0(void **state) {
  (void)state;
  loam_array *a = new_array("10 * ?int8");
  int8_t *data = loam_array_data(a);
  data[3] = data[9] = INT8_MIN;
  shipped s = ship(a, 0);
  expect_node(&s.schema, &s.array, "c", "", 10, 2);
  assert_int_equal(s.schema.flags, ARROW_FLAG_NULLABLE);
  const uint8_t *bits = s.array.buffers[0];
  assert_int_equal(bits[0], 0xF7);
  assert_int_equal(bits[1], 0x01);
  assert_ptr_equal(s.array.buffers[1], data);
  loam_array *back;
  EXPECT_ERROR(loam_array_from_arrow(&s.schema, &s.array, 0, &back), LOAM_EUNSUPPORTED,
               "Arrow format \"c\": missing values are special values in loam, which needs a copy");
  assert_int_equal(loam_array_from_arrow(&s.schema, &s.array, 1, &back), LOAM_OK);
  loam_array_release(a);
  expect_view(back, "10 * ?int8", "[0,0,0,null,0,0,0,0,0,null]");
}

static void decimals_and_durations_go_to_arrow_and_back(void **state) {
  (void)state;
  loam_array *a = new_array("2 * decimal[5, 2]"), *back;
  int64_t *data = loam_array_data(a);
  data[0] = 12345;
  data[2] = data[3] = -1;
  shipped s = ship(a, 0);
  expect_node(&s.schema, &s.array, "d:5,2", "", 2, 0);
  assert_ptr_equal(s.array.buffers[1], data);
  assert_int_equal(loam_array_from_arrow(&s.schema, &s.array, 0, &back), LOAM_OK);
  loam_array_release(a);
  expect_view(back, "2 * decimal[5, 2]", "[\"123.45\",\"-0.01\"]");
  a = new_array("1 * ?timedelta['ms']");
  s = ship(a, 0);
  expect_node(&s.schema, &s.array, "tDm", "", 1, 0);
  assert_int_equal(loam_array_from_arrow(&s.schema, &s.array, 0, &back), LOAM_OK);
  loam_array_release(a);
  expect_view(back, "1 * timedelta['ms']", "[\"PT0S\"]");
}

static void rows_and_structs_that_are_missing_have_bit_0(void **state) {
  (void)state;
  loam_array *a = new_array("3 * ?var * ?int16"), *back;
  loam_array *row = VIEW(a, LOAM_AT(0)), *last = VIEW(a, LOAM_AT(2)), *there;
  assert_int_equal(loam_array_follow(last, &there), LOAM_OK);
  assert_int_equal(loam_array_resize(there, 2), LOAM_OK);
  assert_int_equal(loam_array_omit(row), LOAM_OK);
  shipped s = ship(a, 1);
  expect_node(&s.schema, &s.array, "+l", "", 3, 1);
  assert_int_equal(*(const uint8_t *)s.array.buffers[0], 6);
  assert_int_equal(loam_array_from_arrow(&s.schema, &s.array, 1, &back), LOAM_OK);
  expect_view(back, "3 * ?var * int16", "[null,[],[0,0]]");
  loam_array_release(there);
  loam_array_release(last);
  loam_array_release(row);
  loam_array_release(a);
  a = new_array("2 * ?{x: int8, y: ?2 * int8}");
  row = VIEW(a, LOAM_AT(1));
  assert_int_equal(loam_array_omit(row), LOAM_OK);
  s = ship(a, 1);
  expect_node(&s.schema, &s.array, "+s", "", 2, 1);
  assert_int_equal(*(const uint8_t *)s.array.buffers[0], 1);
  expect_node(s.schema.children[1], s.array.children[1], "+w:2", "y", 2, 0);
  end_shipped(&s);
  loam_array_release(row);
  loam_array_release(a);
}

static void a_struct_of_columns_is_a_table(void **state) {
  (void)state;
  loam_array *a = new_array("{id: 2 * int64, name: pointer[2 * ?string], ok: 2 * bool}"), *back;
  loam_array *ids = field_of(a, "id"), *names = field_of(a, "name"), *oks = field_of(a, "ok");
  ((int64_t *)loam_array_data(ids))[1] = 7;
  ((uint8_t *)loam_array_data(oks))[0] = 1;
  assert_int_equal(loam_array_resize(names, 1), LOAM_OK);
  loam_array *name = VIEW(names, LOAM_AT(1));
  assert_int_equal(loam_array_set_text(name, "größe", 7), LOAM_OK);
  loam_array_release(name);
  shipped s = ship(a, 1);
  expect_node(&s.schema, &s.array, "+s", "", 2, 0);
  expect_node(s.schema.children[0], s.array.children[0], "l", "id", 2, 0);
  expect_node(s.schema.children[1], s.array.children[1], "u", "name", 2, 1);
  expect_node(s.schema.children[2], s.array.children[2], "b", "ok", 2, 0);
  assert_int_equal(*(const uint8_t *)s.array.children[2]->buffers[1], 1);
  assert_int_equal(loam_array_from_arrow(&s.schema, &s.array, 1, &back), LOAM_OK);
  assert_null(s.schema.release);
  assert_null(s.array.release);
  loam_array_release(a);
  loam_array_release(ids);
  loam_array_release(names);
  loam_array_release(oks);
  expect_view(field_of(back, "name"), "pointer[2 * ?string]", "[null,\"größe\"]");
  expect_view(back, "{id: pointer[2 * int64], name: pointer[2 * ?string], ok: pointer[2 * bool]}",
              "{\"id\":[0,7],\"name\":[null,\"größe\"],\"ok\":[true,false]}");
  a = new_array("{x: 2 * int8, y: 3 * int8}");
  EXPECT_ERROR(loam_array_to_arrow(a, 1, &s.schema, &s.array), LOAM_EUNSUPPORTED,
               "field \"y\" has 3 elements, \"x\" has 2: the columns of a table have one length");
  loam_array_release(a);
}

static void rows_of_structs_need_a_copy(void **state) {
  (void)state;
  loam_array *a = new_array("2 * {x: float64, y: int32}");
  *(double *)loam_array_data(a) = 1.5;
  shipped s;
  EXPECT_ERROR(loam_array_to_arrow(a, 0, &s.schema, &s.array), LOAM_EUNSUPPORTED,
               "float64: values do not follow one another, which needs a copy");
  s = ship(a, 1);
  expect_node(&s.schema, &s.array, "+s", "", 2, 0);
  assert_float_equal(*(const double *)s.array.children[0]->buffers[1], 1.5, 0);
  end_shipped(&s);
  loam_array_release(a);
}

static void categories_are_a_dictionary(void **state) {
  (void)state;
  loam_array *a = new_array("4 * ?categorical[['low', '', 'größe'], ordered=True]"), *back;
  uint8_t *codes = loam_array_data(a);
  codes[1] = 2;
  codes[2] = UINT8_MAX;
  shipped s = ship(a, 0);
  expect_node(&s.schema, &s.array, "C", "", 4, 1);
  assert_int_equal(s.schema.flags, ARROW_FLAG_NULLABLE | ARROW_FLAG_DICTIONARY_ORDERED);
  assert_ptr_equal(s.array.buffers[1], codes);
  expect_node(s.schema.dictionary, s.array.dictionary, "u", "", 3, 0);
  assert_int_equal(s.schema.dictionary->flags, 0);
  const int32_t *offsets = s.array.dictionary->buffers[1];
  for (int i = 0; i < 4; i++) assert_int_equal(offsets[i], ((int[]){ 0, 3, 3, 10 })[i]);
  assert_memory_equal(s.array.dictionary->buffers[2], "lowgröße", 10);
  EXPECT_ERROR(loam_array_from_arrow(&s.schema, &s.array, 0, &back), LOAM_EUNSUPPORTED,
               "Arrow format \"C\": missing values are special values in loam, which needs a copy");
  assert_int_equal(loam_array_from_arrow(&s.schema, &s.array, 1, &back), LOAM_OK);
  loam_array_release(a);
  expect_view(back, "4 * ?categorical[['low', '', 'größe'], ordered=True]",
              "[\"low\",\"größe\",null,\"low\"]");
}

static void codes_are_shared_both_ways(void **state) {
  (void)state;
  loam_array *a = new_array("2 * categorical[['no', 'yes']]"), *back;
  uint8_t *codes = loam_array_data(a);
  codes[1] = 1;
  shipped s = ship(a, 0);
  assert_int_equal(s.schema.flags, 0);
  assert_int_equal(loam_array_from_arrow(&s.schema, &s.array, 0, &back), LOAM_OK);
  assert_ptr_equal(loam_array_data(back), codes);
  loam_array_release(a);
  expect_view(back, "2 * categorical[['no', 'yes']]", "[\"no\",\"yes\"]");
  a = new_array("2 * {c: categorical[['no', 'yes']], row: var * ?categorical[['x']]}");
  loam_array *first = VIEW(a, LOAM_AT(0)), *row = field_of(first, "row");
  assert_int_equal(loam_array_append(row, "\377"), LOAM_OK);
  assert_int_equal(loam_array_append(row, "\0"), LOAM_OK);
  loam_array_release(row);
  loam_array_release(first);
  s = ship(a, 1);
  assert_string_equal(s.schema.children[1]->children[0]->dictionary->format, "u");
  assert_int_equal(loam_array_from_arrow(&s.schema, &s.array, 1, &back), LOAM_OK);
  loam_array_release(a);
  expect_view(back,
              "{c: pointer[2 * categorical[['no', 'yes']]], "
              "row: pointer[2 * var * ?categorical[['x']]]}",
              "{\"c\":[\"no\",\"no\"],\"row\":[[null,\"x\"],[]]}");
}

static void a_code_without_a_category_is_not_exported(void **state) {
  (void)state;
  loam_array *a = new_array("3 * categorical[['no', 'yes']]");
  uint8_t *codes = loam_array_data(a);
  shipped s;
  codes[2] = 2;
  EXPECT_ERROR(loam_array_to_arrow(a, 1, &s.schema, &s.array), LOAM_EUNSUPPORTED,
               "categorical[['no', 'yes']]: value 2 has the code 2, which no category has");
  codes[2] = UINT8_MAX; /* means "missing" only in an option */
  EXPECT_ERROR(loam_array_to_arrow(a, 1, &s.schema, &s.array), LOAM_EUNSUPPORTED,
               "categorical[['no', 'yes']]: value 2 has the code 255, which no category has");
  loam_array_release(a);
  a = new_array("1 * categorical[['\xff']]");
  EXPECT_ERROR(loam_array_to_arrow(a, 1, &s.schema, &s.array), LOAM_EUNSUPPORTED,
               "categorical[['\xff']]: not all categories are UTF-8, which Arrow requires");
  loam_array_release(a);
}

/* The Arrow interface allows a consumer to move a dictionary out and release the rest. */
static void a_dictionary_that_was_moved_out_lives_on(void **state) {
  (void)state;
  loam_array *a = new_array("2 * categorical[['abc', 'd']]");
  shipped s = ship(a, 0);
  loam_array_release(a);
  struct ArrowArray dictionary = *s.array.dictionary;
  struct ArrowSchema schema = *s.schema.dictionary;
  s.array.dictionary->release = NULL;
  s.schema.dictionary->release = NULL;
  end_shipped(&s);
  assert_memory_equal(dictionary.buffers[2], "abcd", 4);
  assert_string_equal(schema.format, "u");
  dictionary.release(&dictionary);
  schema.release(&schema);
}

/* The Arrow interface allows a consumer to move a child out and release the rest. */
static void a_child_that_was_moved_out_lives_on(void **state) {
  (void)state;
  loam_array *a = new_array("2 * 2 * int8");
  memcpy(loam_array_data(a), "abcd", 4);
  shipped s = ship(a, 0);
  loam_array_release(a);
  struct ArrowArray child = *s.array.children[0];
  s.array.children[0]->release = NULL;
  end_shipped(&s);
  assert_memory_equal(child.buffers[1], "abcd", 4);
  child.release(&child);
}

static void expect_no_export(const char *text, const char *words) {
  loam_array *a = new_array(text);
  shipped s;
  EXPECT_ERROR(loam_array_to_arrow(a, 1, &s.schema, &s.array), LOAM_EUNSUPPORTED, words);
  loam_array_release(a);
}

static void types_that_arrow_lacks_are_refused(void **state) {
  (void)state;
  expect_no_export("2 * complex64", "complex64: Arrow has no such values");
  expect_no_export("2 * pointer[int8]", "pointer[int8]: a pointer is NULL");
  loam_array *a = new_array("int8"), *text = new_array("1 * string");
  shipped s;
  EXPECT_ERROR(loam_array_to_arrow(a, 1, &s.schema, &s.array), LOAM_EINVAL,
               "type int8: it has no dimension");
  loam_array *first = VIEW(text, LOAM_AT(0));
  assert_int_equal(loam_array_set_text(first, "\xff", 1), LOAM_OK);
  EXPECT_ERROR(loam_array_to_arrow(text, 1, &s.schema, &s.array), LOAM_EUNSUPPORTED,
               "string: not all of the text is UTF-8; as bytes it could be exported");
  loam_array_release(first);
  loam_array_release(text);
  loam_array_release(a);
}

/* An Arrow array made by another library. */
typedef struct arrow_of_others {
  shipped s;
  const void *buffer[3];
  int ended;
} arrow_of_others;

static void end_others_schema(struct ArrowSchema *s) { s->release = NULL; }
static void end_others_array(struct ArrowArray *a) {
  ((arrow_of_others *)a->private_data)->ended++;
  a->release = NULL;
}

static void begin_others(arrow_of_others *o, const char *format, int64_t length, int buffers) {
  *o = (arrow_of_others){ .s = { .schema = { .format = format, .release = end_others_schema },
                                 .array = { .length = length,
                                            .n_buffers = buffers,
                                            .release = end_others_array,
                                            .private_data = o } } };
  o->s.array.buffers = o->buffer;
}

static void imported_numbers_are_not_copied(void **state) {
  (void)state;
  static const int32_t numbers[] = { 1, 2, 3, 4 };
  arrow_of_others o;
  loam_array *a;
  begin_others(&o, "i", 2, 2);
  o.s.array.offset = 1;
  o.buffer[1] = numbers;
  assert_int_equal(loam_array_from_arrow(&o.s.schema, &o.s.array, 0, &a), LOAM_OK);
  assert_ptr_equal(loam_array_data(a), &numbers[1]);
  struct loam_array_info info;
  assert_int_equal(loam_array_info(a, &info), LOAM_OK);
  assert_true(info.readonly);
  loam_array *view = VIEW(a, LOAM_RANGE(1, 2));
  loam_array_release(a);
  assert_int_equal(o.ended, 0);
  expect_view(view, "1 * int32", "[3]");
  assert_int_equal(o.ended, 1);
}

static void other_decimals_are_refused(void **state) {
  (void)state;
  static const char *const formats[] = { "d:5,2,256", "d:5,-2", "d:5", "d:0,0", "d:5,2,128x" };
  static const int64_t value[4];
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    arrow_of_others o;
    loam_array *a;
    begin_others(&o, formats[i], 2, 1);
    o.buffer[1] = value;
    assert_int_equal(loam_array_from_arrow(&o.s.schema, &o.s.array, 1, &a), LOAM_EUNSUPPORTED);
    assert_non_null(strstr(loam_error(), "decimals of 128 bits"));
    end_shipped(&o.s);
  }
}

static void text_and_bools_are_imported(void **state) {
  (void)state;
  static const int32_t offsets[] = { 0, 2, 2, 5 };
  arrow_of_others o;
  loam_array *a;
  begin_others(&o, "u", 3, 3);
  o.buffer[0] = "\5"; /* element 1 is missing */
  o.buffer[1] = offsets;
  o.buffer[2] = "abcde";
  o.s.array.null_count = -1;
  assert_int_equal(loam_array_from_arrow(&o.s.schema, &o.s.array, 0, &a), LOAM_OK);
  loam_array *first = VIEW(a, LOAM_RANGE(0, 1));
  EXPECT_ERROR(loam_array_omit(first), LOAM_EINVAL, "type 1 * ?string: it is not an option");
  expect_view(first, "1 * ?string", "[\"ab\"]");
  expect_view(a, "3 * ?string", "[\"ab\",null,\"cde\"]");
  assert_int_equal(o.ended, 1);
  begin_others(&o, "b", 3, 2);
  o.buffer[0] = "\1"; /* not read, because null_count is 0 */
  o.buffer[1] = "\12";
  o.s.array.offset = 1;
  assert_int_equal(loam_array_from_arrow(&o.s.schema, &o.s.array, 1, &a), LOAM_OK);
  expect_view(a, "3 * bool", "[true,false,true]");
  static const int32_t days[] = { 0, 19782 };
  begin_others(&o, "tdD", 2, 2);
  o.buffer[1] = days;
  assert_int_equal(loam_array_from_arrow(&o.s.schema, &o.s.array, 0, &a), LOAM_OK);
  assert_ptr_equal(loam_array_data(a), days);
  expect_view(a, "2 * date", "[\"1970-01-01\",\"2024-02-29\"]");
}

/* An Arrow array made by another library: indices into a dictionary of strings. */
typedef struct indices_of_others {
  arrow_of_others o, words;
} indices_of_others;

static void begin_indices(indices_of_others *x, const char *format, int64_t length,
                          const void *indices) {
  static const int32_t offsets[] = { 0, 1, 4, 6, 6 };
  begin_others(&x->o, format, length, 2);
  begin_others(&x->words, "u", 3, 3);
  x->words.s.array.offset = 1; /* "bcd", "ef", "" */
  x->words.buffer[1] = offsets;
  x->words.buffer[2] = "abcdef";
  x->o.buffer[1] = indices;
  x->o.s.schema.dictionary = &x->words.s.schema;
  x->o.s.array.dictionary = &x->words.s.array;
}

static void indices_of_any_integer_type_are_imported(void **state) {
  (void)state;
  static const char *const format[] = { "c", "C", "s", "S", "i", "I", "l", "L" };
  static const uint8_t one[] = { 9, 2, 0, 1 };
  static const uint16_t two[] = { 9, 2, 0, 1 };
  static const uint32_t four[] = { 9, 2, 0, 1 };
  static const uint64_t eight[] = { 9, 2, 0, 1 };
  static const void *const indices[] = { one, two, four, eight };
  for (size_t i = 0; i < LM_COUNT(format); i++) {
    indices_of_others x;
    loam_array *a = NULL;
    begin_indices(&x, format[i], 3, indices[i / 2]);
    x.o.s.array.offset = 1;
    bool is_code = i < 2; /* a code of three categories has one byte */
    assert_int_equal(loam_array_from_arrow(&x.o.s.schema, &x.o.s.array, 0, &a),
                     is_code ? LOAM_OK : LOAM_EUNSUPPORTED);
    if (is_code) assert_ptr_equal(loam_array_data(a), &one[1]);
    else assert_non_null(strstr(loam_error(), "its indices have another size than codes in loam"));
    if (!is_code && loam_array_from_arrow(&x.o.s.schema, &x.o.s.array, 1, &a))
      fail_msg("%s", loam_error());
    assert_int_equal(x.words.ended, 0);
    expect_view(a, "3 * categorical[['bcd', 'ef', '']]", "[\"\",\"bcd\",\"ef\"]");
    assert_int_equal(x.o.ended, 1);
  }
}

/* In Arrow, the index of a missing element may be any number. */
static void indices_of_missing_elements_are_not_read(void **state) {
  (void)state;
  static const int16_t codes[] = { 1, -1, 1000 };
  indices_of_others x;
  loam_array *a;
  begin_indices(&x, "s", 3, codes);
  x.o.buffer[0] = "\1";
  x.o.s.array.null_count = 2;
  x.o.s.schema.flags = ARROW_FLAG_DICTIONARY_ORDERED;
  assert_int_equal(loam_array_from_arrow(&x.o.s.schema, &x.o.s.array, 1, &a), LOAM_OK);
  expect_view(a, "3 * ?categorical[['bcd', 'ef', ''], ordered=True]", "[\"ef\",null,null]");
  begin_indices(&x, "c", 0, NULL);
  assert_int_equal(loam_array_from_arrow(&x.o.s.schema, &x.o.s.array, 0, &a), LOAM_OK);
  expect_view(a, "0 * categorical[['bcd', 'ef', '']]", "[]");
}

static void expect_no_import(arrow_of_others *o, loam_status status, const char *words) {
  loam_array *out = (loam_array *)8;
  EXPECT_ERROR(loam_array_from_arrow(&o->s.schema, &o->s.array, 1, &out), status, words);
  assert_ptr_equal(out, (void *)8);
  assert_int_equal(o->ended, 0);
}

static void indices_beyond_their_dictionary_are_refused(void **state) {
  (void)state;
  static const int8_t codes[] = { 0, 3, -1 };
  indices_of_others x;
  begin_indices(&x, "c", 2, codes);
  expect_no_import(&x.o, LOAM_EINVAL, "element 1 has the index 3, and the dictionary 3 values");
  x.o.s.array.offset = 2;
  x.o.s.array.length = 1;
  expect_no_import(&x.o, LOAM_EINVAL, "element 0 has the index -1, and the dictionary 3 values");
  begin_indices(&x, "g", 1, codes);
  expect_no_import(&x.o, LOAM_EUNSUPPORTED,
                   "Arrow format \"g\": the indices into a dictionary are integers");
  begin_indices(&x, "+s", 1, NULL);
  x.o.s.array.n_buffers = 1;
  expect_no_import(&x.o, LOAM_EUNSUPPORTED,
                   "Arrow format \"+s\": the indices into a dictionary are integers");
  begin_indices(&x, "c", 1, NULL);
  expect_no_import(&x.o, LOAM_EINVAL, "Arrow format \"c\": 1 elements and no buffer for them");
  begin_indices(&x, "c", 1, codes);
  x.o.s.array.dictionary = NULL;
  expect_no_import(&x.o, LOAM_EINVAL, "the Arrow array lacks the dictionary of its schema");
}

/* Checks that an array with the dictionary of `x` is refused. */
static void expect_no_dictionary(indices_of_others *x, loam_status status, const char *words) {
  static const int8_t codes[] = { 0 };
  x->o.buffer[1] = codes;
  expect_no_import(&x->o, status, words);
  assert_int_equal(x->words.ended, 0);
  begin_indices(x, "c", 1, codes);
}

static void dictionaries_that_are_no_categories_are_refused(void **state) {
  (void)state;
  static const int32_t offsets[] = { 0, 2, 4, 2 };
  static const int64_t far[] = { 0, (int64_t)1 << 50 };
  indices_of_others x;
  begin_indices(&x, "c", 1, NULL);
  x.words.s.schema.format = "z";
  expect_no_dictionary(&x, LOAM_EUNSUPPORTED,
                       "Arrow format \"z\": loam imports dictionaries of strings");
  x.words.s.schema.dictionary = &x.words.s.schema;
  expect_no_dictionary(&x, LOAM_EUNSUPPORTED,
                       "Arrow format \"u\": loam imports dictionaries of strings");
  x.words.buffer[0] = "\3";
  x.words.s.array.null_count = -1;
  expect_no_dictionary(&x, LOAM_EUNSUPPORTED,
                       "Arrow format \"u\": a value of its dictionary is missing");
  x.words.buffer[2] = "ab\0def";
  expect_no_dictionary(&x, LOAM_EUNSUPPORTED,
                       "Arrow format \"u\": a value of its dictionary has a NUL byte");
  x.words.s.array.offset = 0;
  x.words.s.array.length = 2;
  x.words.buffer[1] = offsets;
  x.words.buffer[2] = "abab";
  expect_no_dictionary(&x, LOAM_EUNSUPPORTED,
                       "Arrow format \"u\": the categorical has a category \"ab\" already");
  x.words.s.array.offset = 0;
  x.words.buffer[1] = offsets;
  expect_no_dictionary(&x, LOAM_EINVAL, "value 2 of an Arrow dictionary ends before it begins");
  x.words.buffer[2] = NULL;
  expect_no_dictionary(&x, LOAM_EINVAL, "an Arrow dictionary has no text up to byte 6");
  x.words.s.array.length = 0;
  expect_no_dictionary(&x, LOAM_EUNSUPPORTED,
                       "Arrow format \"u\": a categorical without categories");
  x.words.s.schema.format = "U";
  x.words.s.array.offset = 0;
  x.words.s.array.length = 1;
  x.words.buffer[1] = far;
  expect_no_dictionary(&x, LOAM_EINVAL,
                       "an Arrow dictionary has no text up to byte 1125899906842624");
  x.words.s.array.length = -1;
  expect_no_dictionary(&x, LOAM_EINVAL, "an Arrow array of -1 elements from 1 on");
  x.words.s.array.n_buffers = 2;
  expect_no_dictionary(&x, LOAM_EINVAL, "Arrow format \"u\" with 2 buffers and 0 children");
}

/* The dictionary has 256 strings: 255 strings of one letter, and "". */
static void a_dictionary_has_room_in_a_type(void **state) {
  (void)state;
  static int32_t offsets[257], two_words[] = { 0, 65536, 65537 };
  static char letters[65537];
  static const uint8_t codes[] = { 254, 255 };
  for (int i = 0; i < 256; i++) letters[i] = (char)(i + 1);
  for (int i = 0; i < 257; i++) offsets[i] = i < 256 ? i : 255;
  memset(letters + 255, 'x', sizeof letters - 255);
  indices_of_others x;
  loam_array *a;
  begin_indices(&x, "C", 2, codes);
  x.words.s.array.offset = 0;
  x.words.s.array.length = 256;
  x.words.buffer[1] = offsets;
  x.words.buffer[2] = letters;
  x.o.buffer[0] = "\1";
  x.o.s.array.null_count = 1;
  loam_array *out = (loam_array *)8;
  assert_int_equal(loam_array_from_arrow(&x.o.s.schema, &x.o.s.array, 1, &out), LOAM_EUNSUPPORTED);
  assert_non_null(strstr(loam_error(), "256 categories take all codes of a byte"));
  x.o.s.array.null_count = 0;
  assert_int_equal(loam_array_from_arrow(&x.o.s.schema, &x.o.s.array, 0, &a), LOAM_OK);
  assert_int_equal(*(uint8_t *)loam_array_data(a), 254);
  expect_json(a, "[\"\\u00ff\",\"\"]");
  loam_array_release(a);
  begin_indices(&x, "C", 1, codes);
  x.words.s.array.offset = 0;
  x.words.s.array.length = 2;
  x.words.buffer[1] = two_words;
  x.words.buffer[2] = letters;
  expect_no_dictionary(&x, LOAM_EUNSUPPORTED,
                       "Arrow format \"u\": its dictionary is longer than the 65536 bytes of a "
                       "type's text");
}

/* The list contains itself as its child, so its schema has no end. */
static void an_imported_schema_must_not_be_too_deep(void **state) {
  (void)state;
  arrow_of_others list;
  begin_others(&list, "+w:1", 1, 1);
  list.s.array.n_children = list.s.schema.n_children = 1;
  list.s.array.children = (struct ArrowArray *[]){ &list.s.array };
  list.s.schema.children = (struct ArrowSchema *[]){ &list.s.schema };
  expect_no_import(&list, LOAM_EINVAL, "the Arrow schema is more than 64 levels deep");
}

static void a_node_of_others_must_not_lack_its_pointers(void **state) {
  (void)state;
  static const int32_t numbers[] = { 1, 2, 3 };
  arrow_of_others list, item;
  struct ArrowArray *no_array = NULL;
  begin_others(&list, "+w:1", 3, 1);
  begin_others(&item, "i", 3, 2);
  item.buffer[1] = numbers;
  list.s.array.n_children = list.s.schema.n_children = 1;
  list.s.schema.children = (struct ArrowSchema *[]){ &item.s.schema };
  expect_no_import(&list, LOAM_EINVAL, "an Arrow node has NULL for its children");
  list.s.array.children = &no_array;
  expect_no_import(&list, LOAM_EINVAL, "an Arrow child is NULL");
  list.s.array.children = (struct ArrowArray *[]){ &item.s.array };
  item.s.schema.format = NULL;
  expect_no_import(&list, LOAM_EINVAL, "an Arrow node has NULL for its format");
  item.s.schema.format = "i";
  item.s.array.buffers = NULL;
  expect_no_import(&list, LOAM_EINVAL, "an Arrow node has NULL for its buffers");
  item.s.array.buffers = item.buffer;
  list.s.schema.children = NULL;
  expect_no_import(&list, LOAM_EINVAL, "an Arrow node has NULL for its schema's children");
}

static void an_imported_list_must_not_reach_beyond_its_child(void **state) {
  (void)state;
  static const int32_t numbers[] = { 1, 2, 3 }, offsets[] = { 0, 1, 4 };
  arrow_of_others list, item;
  begin_others(&list, "+l", 2, 2);
  begin_others(&item, "i", 3, 2);
  list.buffer[1] = offsets;
  item.buffer[1] = numbers;
  list.s.array.n_children = list.s.schema.n_children = 1;
  list.s.array.children = (struct ArrowArray *[]){ &item.s.array };
  list.s.schema.children = (struct ArrowSchema *[]){ &item.s.schema };
  expect_no_import(&list, LOAM_EINVAL, "an Arrow list reaches beyond its child");
  list.s.schema.format = "+w:2";
  list.s.array.n_buffers = 1;
  expect_no_import(&list, LOAM_EINVAL, "an Arrow list reaches beyond its child");
  list.s.schema.format = "+w:4294967295"; /* the end of the list overflows 64 bits */
  list.s.array.offset = (int64_t)1 << 32;
  item.s.array.length = (int64_t)1 << 33;
  expect_no_import(&list, LOAM_EINVAL, "an Arrow list reaches beyond its child");
  list.s.schema.format = "+w:2";
  list.s.array.length = 1;
  list.s.array.offset = 0;
  item.s.array.offset = 1;
  item.s.array.length = 2;
  loam_array *a;
  assert_int_equal(loam_array_from_arrow(&list.s.schema, &list.s.array, 0, &a), LOAM_OK);
  expect_view(a, "1 * 2 * int32", "[[2,3]]");
}

static void a_table_with_two_columns_of_one_name_is_refused(void **state) {
  (void)state;
  arrow_of_others table, column;
  begin_others(&table, "+s", 0, 1);
  begin_others(&column, "i", 0, 2);
  column.s.schema.name = "x";
  table.s.array.n_children = table.s.schema.n_children = 2;
  table.s.array.children = (struct ArrowArray *[]){ &column.s.array, &column.s.array };
  table.s.schema.children = (struct ArrowSchema *[]){ &column.s.schema, &column.s.schema };
  expect_no_import(&table, LOAM_EUNSUPPORTED,
                   "Arrow format \"+s\": the struct has two fields \"x\"");
}

/* Arrow's specification recommends aligned buffers, but does not require them. */
static void numbers_that_are_not_aligned_are_copied(void **state) {
  (void)state;
  static const char bytes[] = "\0\0\1\0\0\0\2\0\0"; /* two int32 from the second byte on */
  arrow_of_others o;
  loam_array *a = NULL;
  begin_others(&o, "i", 1, 2);
  o.s.array.offset = 1;
  o.buffer[1] = bytes + 1;
  EXPECT_ERROR(loam_array_from_arrow(&o.s.schema, &o.s.array, 0, &a), LOAM_EUNSUPPORTED,
               "Arrow format \"i\": its buffer is not aligned, which needs a copy");
  assert_int_equal(loam_array_from_arrow(&o.s.schema, &o.s.array, 1, &a), LOAM_OK);
  expect_view(a, "1 * int32", "[512]");
}

static void offsets_that_are_not_aligned_are_read(void **state) {
  (void)state;
  static const char offsets[] = "\0\0\0\0\0\2\0\0\0\3\0\0"; /* 0, 2, 3 from the second byte on */
  arrow_of_others o;
  loam_array *a;
  begin_others(&o, "u", 2, 3);
  o.buffer[1] = offsets + 1;
  o.buffer[2] = "abc";
  assert_int_equal(loam_array_from_arrow(&o.s.schema, &o.s.array, 0, &a), LOAM_OK);
  expect_view(a, "2 * string", "[\"ab\",\"c\"]");
}

/* In Arrow, a buffer without bytes may be NULL. */
static void arrays_without_elements_may_lack_buffers(void **state) {
  (void)state;
  static const char *const format[] = { "i", "b", "u", "Z" };
  arrow_of_others o, item;
  loam_array *a;
  for (size_t i = 0; i < 4; i++) {
    begin_others(&o, format[i], 0, i < 2 ? 2 : 3);
    assert_int_equal(loam_array_from_arrow(&o.s.schema, &o.s.array, 1, &a), LOAM_OK);
    expect_json(a, "[]");
    loam_array_release(a);
    assert_int_equal(o.ended, 1);
  }
  for (int is_fixed = 0; is_fixed < 2; is_fixed++) {
    begin_others(&o, is_fixed ? "+w:0" : "+L", is_fixed ? 2 : 0, is_fixed ? 1 : 2);
    begin_others(&item, "i", 0, 2);
    o.s.array.n_children = o.s.schema.n_children = 1;
    o.s.array.children = (struct ArrowArray *[]){ &item.s.array };
    o.s.schema.children = (struct ArrowSchema *[]){ &item.s.schema };
    assert_int_equal(loam_array_from_arrow(&o.s.schema, &o.s.array, 0, &a), LOAM_OK);
    expect_view(a, is_fixed ? "2 * 0 * int32" : "0 * var * int32", is_fixed ? "[[],[]]" : "[]");
  }
}

/* Two elements of the child belong to no row, and must not matter: one is missing, and one has the
 * value that marks a missing int8. */
static void a_list_takes_the_elements_of_its_rows_alone(void **state) {
  (void)state;
  static const int8_t numbers[] = { -128, 7, 10, 11, 12 };
  static const int32_t offsets[] = { 0, 2, 3, 3, 5 };
  arrow_of_others list, item;
  loam_array *a = NULL;
  begin_others(&list, "+l", 3, 2);
  begin_others(&item, "c", 5, 2);
  list.buffer[1] = offsets;
  list.s.array.offset = 1;
  item.buffer[0] = "\35"; /* element 1 is missing */
  item.buffer[1] = numbers;
  item.s.array.null_count = -1;
  list.s.array.n_children = list.s.schema.n_children = 1;
  list.s.array.children = (struct ArrowArray *[]){ &item.s.array };
  list.s.schema.children = (struct ArrowSchema *[]){ &item.s.schema };
  if (loam_array_from_arrow(&list.s.schema, &list.s.array, 0, &a)) fail_msg("%s", loam_error());
  loam_array *row = VIEW(a, LOAM_AT(2), LOAM_ALL);
  assert_ptr_equal(loam_array_data(row), &numbers[3]);
  loam_array_release(row);
  expect_view(a, "3 * var * int8", "[[10],[],[11,12]]");
  assert_int_equal(list.ended, 1);
}

static void an_arrow_array_that_is_refused_stays_the_callers(void **state) {
  (void)state;
  static const int8_t numbers[] = { 1, -128 };
  static const int32_t offsets[] = { 0, 5, 2 };
  arrow_of_others o;
  begin_others(&o, "tdm", 2, 2);
  expect_no_import(&o, LOAM_EUNSUPPORTED,
                   "Arrow format \"tdm\": loam imports numbers, bools, text, lists, and tables "
                   "of these");
  begin_others(&o, "c", 2, 2);
  o.s.schema.dictionary = &o.s.schema;
  expect_no_import(&o, LOAM_EINVAL, "the Arrow array lacks the dictionary of its schema");
  begin_others(&o, "c", 2, 3);
  expect_no_import(&o, LOAM_EINVAL, "Arrow format \"c\" with 3 buffers and 0 children");
  begin_others(&o, "c", -2, 2);
  expect_no_import(&o, LOAM_EINVAL, "an Arrow array of -2 elements from 0 on");
  begin_others(&o, "c", 3, 2);
  o.buffer[0] = "\3";
  o.buffer[1] = numbers;
  o.s.array.null_count = 1;
  expect_no_import(&o, LOAM_EUNSUPPORTED, "element 1 has the value that marks a missing int8");
  begin_others(&o, "u", 2, 3);
  o.buffer[1] = offsets;
  o.buffer[2] = "abcde";
  expect_no_import(&o, LOAM_EINVAL, "element 1 of an Arrow array ends before it begins");
  o.s.array.offset = 1;
  o.s.array.length = 1;
  expect_no_import(&o, LOAM_EINVAL, "Arrow text from byte 5 to byte 2");
  begin_others(&o, "i", 1, 2);
  expect_no_import(&o, LOAM_EINVAL, "Arrow format \"i\": 1 elements and no buffer for them");
  begin_others(&o, "u", 1, 3);
  expect_no_import(&o, LOAM_EINVAL, "Arrow format \"u\": 1 elements and no buffer for them");
  begin_others(&o, "u", 1, 3);
  o.buffer[1] = offsets;
  expect_no_import(&o, LOAM_EINVAL, "Arrow format \"u\": text and no buffer for it");
  end_shipped(&o.s);
  assert_int_equal(o.ended, 1);
  loam_array *out;
  EXPECT_ERROR(loam_array_from_arrow(&o.s.schema, &o.s.array, 1, &out), LOAM_EINVAL,
               "the Arrow schema was released");
}

/* ---- No memory ---- */

/* Exports a new array and imports the result. The first byte of the data is `first_byte`; all
 * others are zero. */
static loam_status through_arrow(const char *text, uint8_t first_byte) {
  loam_type *type;
  loam_array *a, *back;
  shipped s;
  loam_status status = loam_type_parse(text, &type);
  if (status) return status;
  status = loam_array_new(arrays_site(), type, &a);
  loam_type_release(type);
  if (status) return status;
  *(uint8_t *)loam_array_data(a) = first_byte;
  status = loam_array_to_arrow(a, 1, &s.schema, &s.array);
  loam_array_release(a);
  if (status) return status;
  status = loam_array_from_arrow(&s.schema, &s.array, 1, &back);
  if (status) end_shipped(&s);
  else loam_array_release(back);
  return status;
}

static loam_status a_table_through_arrow(void) {
  return through_arrow("{a: 2 * ?string, b: 2 * var * bool, c: 2 * 2 * var * bytes, d: 2 * int8}",
                       0);
}

static loam_status categories_through_arrow(void) {
  return through_arrow("{a: 2 * categorical[['no', 'yes']], b: 2 * 2 * categorical[['x']]}", 0);
}

static loam_status a_missing_category_through_arrow(void) {
  return through_arrow("1 * ?categorical[['no', 'yes']]", UINT8_MAX);
}

static void without_memory_calls_fail_and_leak_nothing(void **state) {
  (void)state;
  assert_true(refuse_each_block(a_table_through_arrow) > 50);
  assert_true(refuse_each_block(categories_through_arrow) > 30);
  assert_true(refuse_each_block(a_missing_category_through_arrow) > 20);
}

#define CASE(name) cmocka_unit_test_teardown(name, nothing_is_left)

int main(void) {
  const struct CMUnitTest tests[] = {
    CASE(contiguous_numbers_are_shared),
    CASE(dimensions_are_lists),
    CASE(values_without_bytes_are_counted),
    CASE(a_missing_value_has_bit_0),
    CASE(decimals_and_durations_go_to_arrow_and_back),
    CASE(other_decimals_are_refused),
    CASE(rows_and_structs_that_are_missing_have_bit_0),
    CASE(a_struct_of_columns_is_a_table),
    CASE(rows_of_structs_need_a_copy),
    CASE(categories_are_a_dictionary),
    CASE(codes_are_shared_both_ways),
    CASE(a_code_without_a_category_is_not_exported),
    CASE(a_dictionary_that_was_moved_out_lives_on),
    CASE(a_child_that_was_moved_out_lives_on),
    CASE(types_that_arrow_lacks_are_refused),
    CASE(imported_numbers_are_not_copied),
    CASE(text_and_bools_are_imported),
    CASE(indices_of_any_integer_type_are_imported),
    CASE(indices_of_missing_elements_are_not_read),
    CASE(indices_beyond_their_dictionary_are_refused),
    CASE(dictionaries_that_are_no_categories_are_refused),
    CASE(a_dictionary_has_room_in_a_type),
    CASE(an_imported_schema_must_not_be_too_deep),
    CASE(a_node_of_others_must_not_lack_its_pointers),
    CASE(an_imported_list_must_not_reach_beyond_its_child),
    CASE(a_table_with_two_columns_of_one_name_is_refused),
    CASE(numbers_that_are_not_aligned_are_copied),
    CASE(offsets_that_are_not_aligned_are_read),
    CASE(arrays_without_elements_may_lack_buffers),
    CASE(a_list_takes_the_elements_of_its_rows_alone),
    CASE(an_arrow_array_that_is_refused_stays_the_callers),
    CASE(without_memory_calls_fail_and_leak_nothing),
  };
  return cmocka_run_group_tests_name("interchange", tests, NULL, NULL);
}
