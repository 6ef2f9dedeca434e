/* test_array.c - making, filling and printing arrays; arrays over existing blocks. */
#include <math.h>
#include <stdlib.h>

#include "arrays.h"
#include "block/arena.h"
#include "refuse_allocations.h"

static struct loam_array_info info_of(const loam_array *array) {
  struct loam_array_info info;
  assert_int_equal(loam_array_info(array, &info), LOAM_OK);
  return info;
}

/* ---- How arrays are made ---- */

static void new_data_are_zero(void **state) {
  (void)state;
  loam_array *a = new_array("2 * {x: float64, y: ?int32, s: string, r: var * int8, "
                            "p: pointer[int8], b: bool}");
  expect_json(a, "[{\"x\":0,\"y\":0,\"s\":\"\",\"r\":[],\"p\":null,\"b\":false},"
                 "{\"x\":0,\"y\":0,\"s\":\"\",\"r\":[],\"p\":null,\"b\":false}]");
  loam_array_release(a);
}

static void small_data_stand_in_the_array_itself(void **state) {
  (void)state;
  loam_array *a = new_array("100 * int64");
  struct loam_array_info info = info_of(a);
  assert_true(info.embedded);
  assert_ptr_equal(info.block, &a->block);
  assert_ptr_equal(loam_block_data(info.block), info.data);
  assert_int_equal(loam_block_size(info.block), 800);
  assert_int_equal(info.references, 1);
  loam_owner_info whose;
  assert_int_equal(loam_owner(info.data, &whose), LOAM_OK);
  assert_string_equal(whose.tag, "test.array");
  assert_true((char *)info.data + 800 <= (char *)whose.base + whose.size);
  memset(info.data, 7, 800);
  loam_array_release(a);
}

static void bytes_are_those_in_place_and_in_arenas(void **state) {
  (void)state;
  loam_array *a = new_array("2 * {x: ?int32, rows: var * string}"), *row, *text;
  size_t none = loam_array_bytes(a);
  assert_int_equal(none, 2 * 24);
  assert_int_equal(loam_array_field(a, "rows", &text), LOAM_OK);
  assert_int_equal(loam_array_index(text, 1, &LOAM_AT(1), &row), LOAM_OK);
  assert_int_equal(loam_array_resize(row, 1000), LOAM_OK);
  assert_in_range(loam_array_bytes(a), none + 16000, none + 2 * 16384);
  assert_int_equal(loam_array_bytes(NULL), 0);
  loam_array_release(row);
  loam_array_release(text);
  loam_array_release(a);
}

static void large_data_have_a_block_of_their_own(void **state) {
  (void)state;
  loam_array *a = new_array("1000 * 1000 * float32");
  struct loam_array_info info = info_of(a);
  assert_false(info.embedded);
  assert_int_equal(loam_block_kind_of(info.block), LOAM_BLOCK_OWNED);
  assert_int_equal(loam_block_size(info.block), 4000000);
  memset(info.data, 7, 4000000);
  loam_array_release(a);
}

static void an_array_may_have_no_elements(void **state) {
  (void)state;
  loam_array *a = new_array("0 * 3 * float64");
  expect_json(a, "[]");
  expect_view(VIEW(a, LOAM_ALL, LOAM_AT(2)), "0 * float64", "[]");
  loam_array_release(a);
}

static void a_row_of_elements_without_size_is_resized(void **state) {
  (void)state;
  loam_array *a = new_array("var * 1 * 0 * string");
  assert_int_equal(loam_array_resize(a, (size_t)1 << 40), LOAM_OK);
  assert_int_equal(loam_array_resize(a, 1), LOAM_OK);
  expect_json(a, "[[[]]]");
  loam_array_release(a);
}

static void bounds_hold_the_first_element_or_nothing(void **state) {
  (void)state;
  loam_array *a = new_array("3 * 4 * int32"), *none = new_array("3 * 0 * int32");
  lm_array_bounds bounds;
  assert_int_equal(lm_array_bounds_of(loam_array_type(a), (int64_t[]){ -16, 4 }, &bounds), LOAM_OK);
  assert_true(lm_array_bounds_is_valid(&bounds) && !bounds.is_empty);
  assert_int_equal(bounds.low, -32);
  assert_int_equal(bounds.high, 16);
  bounds.low = 4;
  assert_false(lm_array_bounds_is_valid(&bounds));
  bounds = (lm_array_bounds){ .low = -4, .high = -1 };
  assert_false(lm_array_bounds_is_valid(&bounds));
  assert_int_equal(lm_array_bounds_of(loam_array_type(none), NULL, &bounds), LOAM_OK);
  assert_true(lm_array_bounds_is_valid(&bounds) && bounds.is_empty);
  bounds.high = 4;
  assert_false(lm_array_bounds_is_valid(&bounds));
  loam_array_release(a);
  loam_array_release(none);
}

static void a_broken_array_breaks_its_laws(void **state) {
  (void)state;
  loam_array *a = new_array("3 * {x: int32, y: string}");
  lm_fixed_layout *m = (lm_fixed_layout *)a->meta;
  m->size++;
  assert_false(lm_layout_is_valid(a->meta, a->type));
  assert_false(lm_array_is_valid(a));
  m->size--;
  a->data += 16; /* embedded data do not begin there */
  assert_false(lm_array_is_valid(a));
  a->data -= 16;
  a->type->depth++;
  assert_false(lm_type_is_valid(a->type));
  a->type->depth--;
  assert_true(lm_array_is_valid(a));
  loam_array_release(a);
}

static void dims_are_sizes_and_strides(void **state) {
  (void)state;
  size_t shape[3] = { 9, 9, 9 };
  int64_t strides[3] = { 9, 9, 9 };
  loam_array *a = new_array("3 * 4 * {x: int8, y: 5 * int16}");
  assert_int_equal(loam_array_dims(a, 3, shape, strides), 2);
  assert_int_equal(shape[0], 3);
  assert_int_equal(shape[1], 4);
  assert_int_equal(shape[2], 9);
  assert_int_equal(strides[0], 48);
  assert_int_equal(strides[1], 12);
  assert_int_equal(loam_array_dims(a, 1, shape, NULL), 2);
  assert_int_equal(loam_array_dims(NULL, 0, NULL, NULL), 0);
  loam_array_release(a);
}

/* ---- How arrays are filled ---- */

static void fill_row(loam_array *rows, int64_t i, int count, double first) {
  loam_array *row = VIEW(rows, LOAM_AT(i));
  for (int k = 0; k < count; k++) {
    double x = first + k;
    assert_int_equal(loam_array_append(row, &x), LOAM_OK);
  }
  loam_array_release(row);
}

static void rows_are_filled_element_by_element(void **state) {
  (void)state;
  loam_array *rows = new_array("3 * var * float64");
  fill_row(rows, 0, 2, 1);
  fill_row(rows, 2, 4, 10);
  expect_json(rows, "[[1,2],[],[10,11,12,13]]");
  fill_row(rows, 0, 1, 3);
  fill_row(rows, 1, 1, 0.5);
  expect_json(rows, "[[1,2,3],[0.5],[10,11,12,13]]");
  int64_t last[] = { -1, -1 };
  assert_float_equal(*(double *)loam_array_at(rows, 2, last), 13, 0);
  loam_array_release(rows);
}

static void a_row_can_append_one_of_its_own_elements(void **state) {
  (void)state;
  loam_array *rows = new_array("1 * var * int64");
  loam_array *row = VIEW(rows, LOAM_AT(0));
  assert_int_equal(loam_array_append(row, &(int64_t){ 7 }), LOAM_OK);
  for (int i = 0; i < 5000; i++)
    assert_int_equal(loam_array_append(row, loam_array_at(row, 1, (int64_t[]){ -1 })), LOAM_OK);
  for (int i = 0; i <= 5000; i++)
    assert_int_equal(*(int64_t *)loam_array_at(row, 1, (int64_t[]){ i }), 7);
  loam_array_release(row);
  loam_array_release(rows);
}

static void elements_without_bytes_take_no_time(void **state) {
  (void)state;
  size_t many = (size_t)1 << 46;
  loam_array *row = new_array("var * 0 * string");
  assert_int_equal(loam_array_resize(row, many), LOAM_OK);
  assert_int_equal(loam_array_resize(row, SIZE_MAX), LOAM_ENOMEM);
  assert_int_equal(loam_array_resize(row, 0), LOAM_OK);
  loam_array_release(row);
  row = new_array("var * {none: 70368744177664 * 0 * string, one: int8}");
  assert_int_equal(loam_array_resize(row, 3), LOAM_OK);
  assert_int_equal(loam_array_resize(row, 0), LOAM_OK);
  loam_array_release(row);
}

static void a_row_that_grows_keeps_its_values_and_gets_zeros(void **state) {
  (void)state;
  loam_array *rows = new_array("2 * var * var * int32");
  loam_array *outer = VIEW(rows, LOAM_AT(0));
  assert_int_equal(loam_array_resize(outer, 2), LOAM_OK);
  loam_array *inner = VIEW(outer, LOAM_AT(1));
  assert_string_equal(loam_type_text(loam_array_type(inner)), "var * int32");
  loam_array_append(inner, &(int32_t){ 7 });
  loam_array_release(inner);
  assert_int_equal(loam_array_resize(outer, 1000), LOAM_OK);
  assert_int_equal(loam_array_resize(outer, 3), LOAM_OK);
  expect_json(outer, "[[],[7],[]]");
  assert_int_equal(loam_array_resize(outer, 1), LOAM_OK);
  assert_int_equal(loam_array_resize(outer, 3), LOAM_OK);
  expect_json(rows, "[[[],[],[]],[]]");
  assert_int_equal(loam_array_resize(outer, 0), LOAM_OK);
  expect_json(rows, "[[],[]]");
  loam_array_release(outer);
  loam_array_release(rows);
}

static size_t arena_size(const loam_array *rows) {
  return loam_block_size(lm_layout_var(lm_layout_fixed(rows->meta)->element)->block);
}

static void resizing_again_and_again_leaks_nothing(void **state) {
  (void)state;
  loam_array *rows = new_array("4 * var * {name: string, tags: var * bytes}");
  struct loam_stats before = { 0 }, after;
  for (int round = 0; round < 300; round++) {
    for (int64_t i = 0; i < 4; i++) {
      loam_array *row = VIEW(rows, LOAM_AT(i));
      assert_int_equal(loam_array_resize(row, (size_t)(round * 7 + i * 3) % 20), LOAM_OK);
      loam_array *names = field_of(row, "name"), *tags = field_of(row, "tags");
      for (int64_t k = 0; k < (round * 7 + i * 3) % 20; k++) {
        loam_array *name = VIEW(names, LOAM_AT(k)), *tag = VIEW(tags, LOAM_AT(k));
        char text[200];
        memset(text, 'x', sizeof text);
        assert_int_equal(loam_array_set_text(name, text, (size_t)(round * 13 + k) % 200), LOAM_OK);
        assert_int_equal(loam_array_resize(tag, (size_t)(round + k) % 5), LOAM_OK);
        loam_array_release(name);
        loam_array_release(tag);
      }
      loam_array_release(names);
      loam_array_release(tags);
      loam_array_release(row);
    }
    if (round == 150) assert_int_equal(loam_stats(&before), LOAM_OK);
  }
  assert_int_equal(loam_stats(&after), LOAM_OK);
  assert_true(after.live_bytes <= before.live_bytes + before.live_bytes / 10);
  for (int64_t i = 0; i < 4; i++) {
    loam_array *row = VIEW(rows, LOAM_AT(i));
    assert_int_equal(loam_array_resize(row, 0), LOAM_OK);
    loam_array_release(row);
  }
  assert_int_equal(arena_size(rows), 0);
  loam_array_release(rows);
}

static void text_is_set_and_set_again(void **state) {
  (void)state;
  loam_array *a = new_array("{s: string, b: bytes, o: ?string}");
  loam_array *s = field_of(a, "s"), *b = field_of(a, "b"), *o = field_of(a, "o");
  assert_true(loam_array_is_missing(o));
  assert_int_equal(loam_array_set_text(s, "short", 5), LOAM_OK);
  assert_int_equal(loam_array_set_text(s, "much longer than before", 23), LOAM_OK);
  assert_int_equal(loam_array_set_text(b, "\0\xff", 2), LOAM_OK);
  assert_int_equal(loam_array_set_text(o, "", 0), LOAM_OK);
  assert_false(loam_array_is_missing(o));
  expect_json(a, "{\"s\":\"much longer than before\",\"b\":\"\\u0000\\u00ff\",\"o\":\"\"}");
  assert_int_equal(loam_array_set_text(o, "there", 5), LOAM_OK);
  assert_int_equal(loam_array_set_text(s, NULL, 0), LOAM_OK);
  expect_json(a, "{\"s\":\"\",\"b\":\"\\u0000\\u00ff\",\"o\":\"there\"}");
  loam_block *texts = lm_layout_text(o->meta)->block;
  assert_int_equal(loam_block_size(texts), 5);
  assert_int_equal(loam_array_omit(o), LOAM_OK);
  assert_int_equal(loam_block_size(texts), 0);
  assert_true(loam_array_is_missing(o));
  expect_json(a, "{\"s\":\"\",\"b\":\"\\u0000\\u00ff\",\"o\":null}");
  loam_array_release(s);
  loam_array_release(b);
  loam_array_release(o);
  loam_array_release(a);
}

static void a_fixed_string_stands_in_its_place(void **state) {
  (void)state;
  loam_array *a = new_array("{x: int8, s: string[4]}"), *s;
  assert_int_equal(loam_array_field(a, "s", &s), LOAM_OK);
  assert_ptr_equal(loam_array_data(s), (char *)loam_array_data(a) + 1);
  assert_int_equal(loam_array_set_text(s, "abcd", 4), LOAM_OK);
  expect_json(a, "{\"x\":0,\"s\":\"abcd\"}");
  assert_int_equal(loam_array_set_text(s, "e", 1), LOAM_OK);
  assert_memory_equal(loam_array_data(s), "e\0\0\0", 4);
  EXPECT_ERROR(loam_array_set_text(s, "abcde", 5), LOAM_EINVAL,
               "text of 5 bytes: string[4] has no room for it");
  expect_json(a, "{\"x\":0,\"s\":\"e\"}");
  loam_array_release(s);
  loam_array_release(a);
  loam_type *type;
  EXPECT_ERROR(loam_type_parse("string[0]", &type), LOAM_EINVAL,
               "type \"string[0]\": column 1: string[0]: a fixed string has 1 byte or more");
  assert_int_equal(loam_type_parse("string[10", &type), LOAM_EINVAL);
}

static void any_scalar_can_be_missing(void **state) {
  (void)state;
#define EXPECT_MISSING(kind, name, size, align)                          \
  {                                                                      \
    loam_array *a = new_array("?" name);                                 \
    assert_int_equal(loam_array_omit(a), LOAM_OK);                       \
    assert_true(loam_array_is_missing(a));                               \
    expect_json(a, "null");                                              \
    memset(loam_array_data(a), 0, size);                                 \
    if (kind < LOAM_TYPE_STRING) assert_false(loam_array_is_missing(a)); \
    loam_array_release(a);                                               \
  }
  LOAM_TYPE_LIST(EXPECT_MISSING)
  loam_array *a = new_array("2 * ?float64"), *b = new_array("float64");
  double *x = loam_array_data(a);
  loam_array *second = VIEW(a, LOAM_AT(1));
  assert_int_equal(loam_array_omit(second), LOAM_OK);
  x[0] = __builtin_nan("");
  x[1] = -x[1] + 1; /* arithmetic keeps the payload of a NaN */
  expect_json(a, "[NaN,null]");
  assert_int_equal(((uint32_t *)x)[2], 1954);
  assert_false(loam_array_is_missing(b));
  EXPECT_ERROR(loam_array_omit(b), LOAM_EINVAL, "type float64: it is not an option");
  loam_array_release(second);
  loam_array_release(a);
  loam_array_release(b);
}

static void a_pointer_gets_a_target(void **state) {
  (void)state;
  loam_array *a = new_array("2 * pointer[3 * int32]");
  expect_json(a, "[null,null]");
  loam_array *first = VIEW(a, LOAM_AT(0));
  assert_null(loam_array_at(a, 2, (int64_t[]){ 0, 1 }));
  assert_string_equal(loam_error(), "pointer[3 * int32]: the pointer is NULL");
  EXPECT_ERROR(loam_array_resize(first, 2), LOAM_EINVAL, "2 elements: a pointer has one target");
  assert_int_equal(loam_array_resize(first, 1), LOAM_OK);
  *(int32_t *)loam_array_at(a, 2, (int64_t[]){ 0, 1 }) = 5;
  assert_int_equal(loam_array_resize(first, 1), LOAM_OK);
  expect_json(a, "[[0,5,0],null]");
  loam_array_release(first);
  loam_array_release(a);
}

static void arrays_that_cannot_be_filled_are_refused_in_words(void **state) {
  (void)state;
  loam_array *a = new_array("2 * var * {x: int32, s: string, y: float64}");
  loam_array *row = VIEW(a, LOAM_AT(0)), *xs = field_of(a, "x"), *x_row = VIEW(xs, LOAM_AT(0));
  EXPECT_ERROR(loam_array_resize(a, 1), LOAM_EINVAL,
               "type 2 * var * {x: int32, s: string, y: "
               "float64}: only a row of a var dimension can "
               "be resized");
  EXPECT_ERROR(loam_array_append(a, ""), LOAM_EINVAL,
               "type 2 * var * {x: int32, s: string, y: "
               "float64}: it is not a row of a var "
               "dimension");
  EXPECT_ERROR(loam_array_append(row, ""), LOAM_EINVAL,
               "{x: int32, s: string, y: float64}: resize "
               "the row and fill the new element in its "
               "place");
  EXPECT_ERROR(loam_array_resize(x_row, 1), LOAM_ESTATE,
               "a row of selected fields: resize the row of the whole array");
  EXPECT_ERROR(loam_array_set_text(xs, "", 0), LOAM_EINVAL,
               "type 2 * var * int32: it is not a string or bytes");
  EXPECT_ERROR(loam_array_resize(row, SIZE_MAX / 8), LOAM_ENOMEM,
               "2305843009213693951 elements of 32 bytes: no address space is that large");
  EXPECT_ERROR(loam_array_resize(NULL, 1), LOAM_EINVAL, "array: it is NULL");
  expect_json(a, "[[],[]]");
  loam_array_release(a);
  loam_array_release(row);
  loam_array_release(xs);
  loam_array_release(x_row);
}

/* ---- Arrays over existing blocks ---- */

static void a_block_is_wrapped_as_an_array(void **state) {
  (void)state;
  loam_block *block = loam_block_new(arrays_site(), 48);
  for (int i = 0; i < 6; i++) ((double *)loam_block_data(block))[i] = i;
  loam_type *type = type_of("2 * 3 * float64"), *scalar = type_of("float64");
  loam_array *whole, *turned, *last;
  assert_int_equal(loam_array_wrap(block, 0, type, NULL, &whole), LOAM_OK);
  assert_int_equal(loam_array_wrap(block, 40, type, (int64_t[]){ -8, -16 }, &turned), LOAM_OK);
  assert_int_equal(loam_array_wrap(block, 40, scalar, NULL, &last), LOAM_OK);
  assert_int_equal(loam_block_refcount(block), 4);
  loam_block_release(block);
  expect_view(whole, "2 * 3 * float64", "[[0,1,2],[3,4,5]]");
  expect_view(turned, "2 * 3 * float64", "[[5,3,1],[4,2,0]]");
  expect_view(last, "float64", "5");
  loam_type_release(type);
  loam_type_release(scalar);
}

static void expect_no_wrap(loam_block *block, size_t offset, const char *text,
                           const int64_t *strides, const char *words) {
  loam_type *type = type_of(text);
  loam_array *out = (loam_array *)8;
  size_t refs = loam_block_refcount(block);
  EXPECT_ERROR(loam_array_wrap(block, offset, type, strides, &out), LOAM_EINVAL, words);
  assert_ptr_equal(out, (void *)8);
  assert_int_equal(loam_block_refcount(block), refs);
  loam_type_release(type);
}

static void no_array_reaches_beyond_its_block(void **state) {
  (void)state;
  loam_block *block = loam_block_new(arrays_site(), 48);
  expect_no_wrap(block, 8, "6 * float64", NULL,
                 "the array reaches from 8 to 56: the block has 48 bytes");
  expect_no_wrap(block, 0, "2 * 3 * float64", (int64_t[]){ 8, -8 },
                 "the array reaches from -16 to 16: the block has 48 bytes");
  expect_no_wrap(block, 56, "0 * float64", NULL,
                 "the array reaches from 56 to 56: the block has 48 bytes");
  expect_no_wrap(block, 0, "3 * int8", (int64_t[]){ INT64_MAX },
                 "strides: the array reaches beyond all addresses");
  expect_no_wrap(block, 4, "2 * float64", NULL,
                 "2 * float64: not all elements would stand at multiples of 8");
  expect_no_wrap(block, 0, "2 * float64", (int64_t[]){ 12 },
                 "2 * float64: not all elements would stand at multiples of 8");
  expect_no_wrap(block, 0, "2 * string", NULL,
                 "type 2 * string: only values that stand in the block itself can be wrapped");
  loam_block *arena = loam_arena_new(arrays_site(), 0, 0);
  expect_no_wrap(arena, 0, "2 * int8", NULL, "the block is an arena: it has pieces, no data");
  loam_block_release(arena);
  loam_type *type = type_of("0 * float64");
  loam_array *none;
  assert_int_equal(loam_array_wrap(block, 48, type, NULL, &none), LOAM_OK);
  loam_array_release(none);
  loam_type_release(type);
  loam_block_release(block);
}

/* ---- How arrays are printed ---- */

static void json_writes_every_type(void **state) {
  (void)state;
  loam_array *a = new_array(
      "{b: bool, i: int8, j: int64, u: uint8, v: uint64, h: float16, "
      "f: float32, d: float64, c: complex64, z: complex128, 'a \"b\"': int16, "
      "k: int32, w: uint16, x: uint32}");
  struct {
    uint8_t b;
    int8_t i;
    int64_t j;
    uint8_t u;
    uint64_t v;
    uint16_t h;
    float f;
    double d;
    float c[2];
    double z[2];
    int16_t a;
    int32_t k;
    uint16_t w;
    uint32_t x;
  } *v = loam_array_data(a);
  v->b = 1;
  v->i = -128;
  v->j = INT64_MIN;
  v->u = 255;
  v->v = UINT64_MAX;
  v->h = 0x3555; /* about one third */
  v->f = 0.1f;
  v->d = 0.1;
  v->c[0] = 1.5f;
  v->c[1] = -0.0f;
  v->z[0] = 1e300;
  v->z[1] = -__builtin_inf();
  v->a = -5;
  v->k = INT32_MAX;
  v->w = 65535;
  v->x = UINT32_MAX;
  expect_json(a, "{\"b\":true,\"i\":-128,\"j\":-9223372036854775808,\"u\":255,"
                 "\"v\":18446744073709551615,\"h\":0.3333,\"f\":0.1,\"d\":0.1,\"c\":[1.5,-0],"
                 "\"z\":[1e+300,-Infinity],\"a \\\"b\\\"\":-5,\"k\":2147483647,\"w\":65535,"
                 "\"x\":4294967295}");
  v->d = 0.1 + 0.2;
  v->f = 16777216.0f;
  v->h = 0x0001;
  v->z[1] = 5e-324;
  expect_json(a, "{\"b\":true,\"i\":-128,\"j\":-9223372036854775808,\"u\":255,"
                 "\"v\":18446744073709551615,\"h\":6e-08,\"f\":16777216,"
                 "\"d\":0.30000000000000004,\"c\":[1.5,-0],\"z\":[1e+300,5e-324],"
                 "\"a \\\"b\\\"\":-5,\"k\":2147483647,\"w\":65535,\"x\":4294967295}");
  loam_array_release(a);
}

static void the_shortest_text_is_found_for_numbers_of_few_digits(void **state) {
  (void)state;
  loam_array *a = new_array("{h: 5 * float16, f: 3 * float32, d: 3 * float64}");
  struct {
    uint16_t h[5];
    float f[3];
    double d[3];
  } *v = loam_array_data(a);
  memcpy(v->h, (uint16_t[]){ 0x2e66, 0x3c01, 0x7bff, 0x03ff, 0x8002 }, sizeof v->h);
  memcpy(v->f, (float[]){ 1e-45f, 1.17549435e-38f, -7e-45f }, sizeof v->f);
  memcpy(v->d, (double[]){ 1e-323, 2.2250738585072014e-308, 1.2e-310 }, sizeof v->d);
  expect_json(a, "{\"h\":[0.1,1.001,6.55e+04,6.1e-05,-1e-07],"
                 "\"f\":[1e-45,1.1754944e-38,-7e-45],"
                 "\"d\":[1e-323,2.2250738585072014e-308,1.2e-310]}");
  loam_array_release(a);
}

enum { HALVES = 0x7c00 }; /* the halves from 0 on that are finite */

static void append_text(void *ctx, const char *text, size_t length) { strncat(ctx, text, length); }

/* Returns the value of a half, by the definition of binary16. */
static double value_of_half(unsigned h) {
  return h < 1024 ? ldexp(h, -24) : ldexp(1024 + h % 1024, (int)(h / 1024) - 25);
}

/* The text of each half must be nearer to that half than to its neighbours, or halfway if the half
 * is even. Then it reads back as that half. */
static void the_text_of_every_half_reads_back(void **state) {
  (void)state;
  loam_array *a = new_array("31744 * float16");
  char *text = calloc(HALVES, 16), *at = text;
  for (unsigned h = 0; h < HALVES; h++) ((uint16_t *)loam_array_data(a))[h] = (uint16_t)h;
  assert_int_equal(loam_array_json(a, append_text, text), LOAM_OK);
  for (unsigned h = 0; h < HALVES; h++) {
    double value = value_of_half(h), read = strtod(at + 1, &at);
    double up = (value_of_half(h + 1) - value) / 2;
    double down = h ? (value - value_of_half(h - 1)) / 2 : 0;
    bool is_even = h % 2 == 0;
    assert_true(is_even ? read <= value + up : read < value + up);
    assert_true(!h || (is_even ? read >= value - down : read > value - down));
  }
  assert_string_equal(at, "]");
  free(text);
  loam_array_release(a);
}

static void count_bytes(void *ctx, const char *text, size_t length) {
  (void)text;
  size_t *parts = ctx;
  parts[0]++;
  parts[1] += length;
}

static void long_text_comes_in_pieces(void **state) {
  (void)state;
  loam_array *a = new_array("100000 * int8");
  size_t parts[2] = { 0, 0 };
  assert_int_equal(loam_array_json(a, count_bytes, parts), LOAM_OK);
  assert_int_equal(parts[1], 200001);
  assert_true(parts[0] > 3);
  loam_array_release(a);
}

/* Replaces each address by a star. */
static void hide_addresses(char *text) {
  char *to = text;
  for (char *from = text; *from;) {
    if (!strncmp(from, "0x", 2)) {
      from += 2 + strspn(from + 2, "0123456789abcdef");
      *to++ = '*';
    } else {
      *to++ = *from++;
    }
  }
  *to = 0;
}

static void expect_repr(const loam_array *array, const char *text) {
  printed p = { .length = 0 };
  assert_int_equal(loam_array_repr(array, print_on, &p), LOAM_OK);
  hide_addresses(p.text);
  assert_string_equal(p.text, text);
}

static void repr_shows_type_metadata_data_and_blocks(void **state) {
  (void)state;
  loam_array *a = new_array("3 * var * {x: float64, y: ?int32, s: string}");
  loam_array *row = VIEW(a, LOAM_AT(1));
  assert_int_equal(loam_array_resize(row, 2), LOAM_OK);
  loam_array_release(row);
  expect_repr(a, "array at *, 1 reference\n"
                 "  type: 3 * var * {x: float64, y: ?int32, s: string}\n"
                 "    at *, 1 reference\n"
                 "  access: read, write\n"
                 "  metadata: 72 bytes\n"
                 "    fixed: 3 elements, stride 16\n"
                 "      var: stride 32, offset 0\n"
                 "        block: pooled at *, 64 bytes, 1 reference, tag \"test.array\"\n"
                 "        struct: 3 fields\n"
                 "          field \"x\": offset 0\n"
                 "            float64\n"
                 "          field \"y\": offset 8\n"
                 "            option\n"
                 "              int32\n"
                 "          field \"s\": offset 16\n"
                 "            string\n"
                 "              block: pooled at *, 0 bytes, 1 reference, tag \"test.array\"\n"
                 "  data: *, in the array itself\n");
  loam_array *ys = field_of(a, "y"), *y = VIEW(ys, LOAM_AT(1), LOAM_RANGE(0, 1));
  loam_array_release(ys);
  expect_repr(y, "array at *, 1 reference\n"
                 "  type: 1 * ?int32\n"
                 "    at *, 1 reference\n"
                 "  access: read, write\n"
                 "  metadata: 16 bytes\n"
                 "    fixed: 1 element, stride 32\n"
                 "      option\n"
                 "        int32\n"
                 "  data: *\n"
                 "    block: pooled at *, 64 bytes, 2 references, tag \"test.array\"\n");
  loam_array_release(y);
  y = VIEW(a, LOAM_RANGE(1, 2), LOAM_AT(1));
  expect_repr(y, "array at *, 1 reference\n"
                 "  type: 1 * pointer[{x: float64, y: ?int32, s: string}]\n"
                 "    at *, 1 reference\n"
                 "  access: read, write\n"
                 "  metadata: 64 bytes\n"
                 "    fixed: 1 element, stride 16\n"
                 "      pointer: offset 32\n"
                 "        block: pooled at *, 64 bytes, 2 references, tag \"test.array\"\n"
                 "        struct: 3 fields\n"
                 "          field \"x\": offset 0\n"
                 "            float64\n"
                 "          field \"y\": offset 8\n"
                 "            option\n"
                 "              int32\n"
                 "          field \"s\": offset 16\n"
                 "            string\n"
                 "              block: pooled at *, 0 bytes, 2 references, tag \"test.array\"\n"
                 "  data: *\n"
                 "    block: array at *, 48 bytes, 2 references, tag \"test.array\"\n");
  loam_array_release(y);
  loam_array_release(a);
}

/* The example in "How DyND Views Memory" has these strides and offsets too. */
static void repr_of_nested_structs_has_their_offsets(void **state) {
  (void)state;
  loam_array *a = new_array("10 * {A: 3 * float64, B: 3 * {X: float64, Y: 4 * float64}, "
                            "C: 2 * float64}");
  expect_repr(a, "array at *, 1 reference\n"
                 "  type: 10 * {A: 3 * float64, B: 3 * {X: float64, Y: 4 * float64}, "
                 "C: 2 * float64}\n"
                 "    at *, 1 reference\n"
                 "  access: read, write\n"
                 "  metadata: 120 bytes\n"
                 "    fixed: 10 elements, stride 160\n"
                 "      struct: 3 fields\n"
                 "        field \"A\": offset 0\n"
                 "          fixed: 3 elements, stride 8\n"
                 "            float64\n"
                 "        field \"B\": offset 24\n"
                 "          fixed: 3 elements, stride 40\n"
                 "            struct: 2 fields\n"
                 "              field \"X\": offset 0\n"
                 "                float64\n"
                 "              field \"Y\": offset 8\n"
                 "                fixed: 4 elements, stride 8\n"
                 "                  float64\n"
                 "        field \"C\": offset 144\n"
                 "          fixed: 2 elements, stride 8\n"
                 "            float64\n"
                 "  data: *\n"
                 "    block: owned at *, 1600 bytes, 1 reference, tag \"test.array\"\n");
  loam_array_release(a);
}

/* ---- Plain arenas */

static loam_array *new_array_in(const char *text, int arenas) {
  loam_type *type = type_of(text);
  loam_array *array = NULL;
  if (loam_array_new_in(arrays_site(), type, arenas, &array)) fail_msg("%s", loam_error());
  loam_type_release(type);
  return array;
}

static void fill_texts(loam_array *a, size_t count) {
  for (size_t i = 0; i < count; i++) {
    loam_array *one = VIEW(a, LOAM_AT((int64_t)i));
    assert_int_equal(loam_array_set_text(one, "nine byte", 9), LOAM_OK);
    loam_array_release(one);
  }
}

static void plain_arenas_take_no_more_than_the_text(void **state) {
  (void)state;
  loam_array *plain = new_array_in("100 * string", 0), *resizable = new_array("100 * string");
  fill_texts(plain, 100);
  fill_texts(resizable, 100);
  assert_int_equal(loam_array_bytes(plain), loam_array_bytes(resizable));
  const lm_piece *text = loam_array_data(plain);
  for (int i = 1; i < 100; i++) assert_ptr_equal(text[i].begin, text[i - 1].begin + 9);
  text = loam_array_data(resizable);
  assert_true(text[1].begin - text[0].begin >= 17);
  loam_array *one = VIEW(plain, LOAM_AT(0));
  assert_int_equal(loam_array_set_text(one, "a longer text", 13), LOAM_ESTATE);
  if (!strstr(loam_error(), "only the one that was made last")) fail_msg("%s", loam_error());
  expect_json(one, "\"nine byte\"");
  assert_int_equal(loam_array_set_text(one, "short", 5), LOAM_OK);
  expect_json(one, "\"short\"");
  loam_array_release(one);
  one = VIEW(plain, LOAM_AT(99));
  assert_int_equal(loam_array_set_text(one, "a longer text", 13), LOAM_OK);
  expect_json(one, "\"a longer text\"");
  loam_array_release(one);
  loam_array_release(plain);
  loam_array_release(resizable);
}

static void rows_of_plain_arenas_grow_while_they_are_the_last(void **state) {
  (void)state;
  loam_array *a = new_array_in("2 * var * int64", 0);
  loam_array *first = VIEW(a, LOAM_AT(0)), *second = VIEW(a, LOAM_AT(1));
  for (int64_t i = 0; i < 1000; i++) assert_int_equal(loam_array_append(first, &i), LOAM_OK);
  for (int64_t i = 0; i < 1000; i++) assert_int_equal(loam_array_append(second, &i), LOAM_OK);
  assert_int_equal(loam_array_append(first, &(int64_t){ 7 }), LOAM_ESTATE);
  assert_int_equal(loam_array_resize(first, 10), LOAM_OK);
  for (int64_t i = 0; i < 1000; i++) assert_int_equal(*(int64_t *)loam_array_at(second, 1, &i), i);
  expect_json(first, "[0,1,2,3,4,5,6,7,8,9]");
  assert_int_equal(loam_array_resize(first, 0), LOAM_OK);
  assert_int_equal(loam_array_resize(second, 0), LOAM_OK);
  assert_true(lm_array_is_valid(a));
  loam_array_release(first);
  loam_array_release(second);
  loam_array_release(a);
}

static void what_is_not_zeroed_refers_to_nothing(void **state) {
  (void)state;
  loam_array *a = new_array_in("var * {name: string, row: var * int8, next: pointer[int8]}", 0);
  lm_piece *row = loam_array_data(a);
  assert_int_equal(loam_array_resize(a, 100), LOAM_OK);
  memset(row->begin, 0xee, 100 * a->type->element->size);
  row->size = 0; /* so the next resize finds bytes that are not zero */
  assert_int_equal(loam_array_resize(a, 100), LOAM_OK);
  loam_array *one = VIEW(a, LOAM_AT(99));
  expect_json(one, "{\"name\":\"\",\"row\":[],\"next\":null}");
  loam_array_release(one);
  loam_array_release(a);
  loam_type *type = type_of("string");
  assert_int_equal(loam_array_new_in(NULL, type, 4, &a), LOAM_EINVAL);
  loam_type_release(type);
}

static void repr_shows_access_and_static_types(void **state) {
  (void)state;
  loam_array *a = new_array("int32"), *view;
  assert_int_equal(loam_array_readonly(a, &view), LOAM_OK);
  expect_repr(view, "array at *, 1 reference\n"
                    "  type: int32\n"
                    "    at *, static\n"
                    "  access: read\n"
                    "  metadata: 0 bytes\n"
                    "    int32\n"
                    "  data: *\n"
                    "    block: array at *, 4 bytes, 2 references, tag \"test.array\"\n");
  loam_array_release(view);
  loam_array_release(a);
}

static void null_arguments_are_refused(void **state) {
  (void)state;
  loam_array *out;
  assert_int_equal(loam_array_new(NULL, NULL, &out), LOAM_EINVAL);
  assert_int_equal(loam_array_json(NULL, print_on, NULL), LOAM_EINVAL);
  assert_int_equal(loam_array_repr(NULL, print_on, NULL), LOAM_EINVAL);
  assert_int_equal(loam_array_info(NULL, NULL), LOAM_EINVAL);
  assert_null(loam_array_type(NULL));
  assert_null(loam_array_data(NULL));
  assert_null(loam_array_retain(NULL));
  assert_null(loam_array_at(NULL, 0, NULL));
  assert_false(loam_array_is_missing(NULL));
  loam_array_release(NULL);
}

/* ---- No memory ---- */

static loam_status fill_all_sorts(loam_array *a) {
  loam_array *row, *name;
  loam_status status = loam_array_index(a, 1, &LOAM_AT(1), &row);
  if (status) return status;
  status = loam_array_resize(row, 3);
  if (!status) status = loam_array_resize(row, 300);
  if (!status) status = loam_array_index(row, 1, &LOAM_AT(299), &name);
  loam_array_release(row);
  if (status) return status;
  status = loam_array_field(name, "name", &row);
  if (!status) {
    status = loam_array_set_text(row, "named", 5);
    loam_array_release(row);
  }
  loam_array_release(name);
  return status;
}

static loam_status make_all_sorts(void) {
  loam_type *type;
  loam_array *a, *x;
  loam_status status = loam_type_parse(
      "100 * var * {name: string, id: int32, more: pointer[var * bytes]}", &type);
  if (status) return status;
  status = loam_array_new(arrays_site(), type, &a);
  loam_type_release(type);
  if (status) return status;
  status = fill_all_sorts(a);
  if (!status) status = loam_array_fields(a, 2, (const char *[]){ "more", "name" }, &x);
  if (!status) loam_array_release(x);
  if (!status) status = loam_array_field(a, "id", &x);
  if (!status) loam_array_release(x);
  loam_array_release(a);
  return status;
}

static void without_memory_calls_fail_and_leak_nothing(void **state) {
  (void)state;
  assert_true(refuse_each_block(make_all_sorts) > 30);
}

/* ---- Threads ---- */

static void *look_at_it(void *array) {
  for (int i = 0; i < 500; i++) {
    loam_array *row = VIEW(array, LOAM_AT(i % 3)), *xs = field_of(array, "x");
    loam_array *part = VIEW(row, LOAM_RANGE(0, 2)), *again = loam_array_retain(part);
    loam_array_release(row);
    loam_array_release(part);
    if (*(double *)loam_array_at(xs, 2, (int64_t[]){ i % 3, 1 }) != 2.0) return (void *)1;
    loam_array_release(again);
    loam_array_release(xs);
  }
  loam_array_release(array);
  return NULL;
}

static void threads_share_an_array_and_its_views(void **state) {
  (void)state;
  enum { THREADS = 8 };
  pthread_t thread[THREADS];
  loam_array *a = new_array("3 * var * {x: float64, y: int32}");
  struct {
    double x;
    int32_t y;
  } sample[2] = { { 1.0, 1 }, { 2.0, 2 } };
  for (int64_t i = 0; i < 3; i++) {
    loam_array *row = VIEW(a, LOAM_AT(i));
    for (int k = 0; k < 2; k++) assert_int_equal(loam_array_append(row, &sample[k]), LOAM_OK);
    loam_array_release(row);
  }
  for (int i = 0; i < THREADS; i++) thread[i] = start_thread(look_at_it, loam_array_retain(a));
  loam_array_release(a);
  for (int i = 0; i < THREADS; i++) {
    void *wrong;
    pthread_join(thread[i], &wrong);
    assert_null(wrong);
  }
}

#define CASE(name) cmocka_unit_test_teardown(name, nothing_is_left)

int main(void) {
  const struct CMUnitTest tests[] = {
    CASE(new_data_are_zero),
    CASE(small_data_stand_in_the_array_itself),
    CASE(bytes_are_those_in_place_and_in_arenas),
    CASE(large_data_have_a_block_of_their_own),
    CASE(an_array_may_have_no_elements),
    CASE(a_row_of_elements_without_size_is_resized),
    CASE(bounds_hold_the_first_element_or_nothing),
    CASE(a_broken_array_breaks_its_laws),
    CASE(dims_are_sizes_and_strides),
    CASE(rows_are_filled_element_by_element),
    CASE(a_row_can_append_one_of_its_own_elements),
    CASE(elements_without_bytes_take_no_time),
    CASE(a_row_that_grows_keeps_its_values_and_gets_zeros),
    CASE(resizing_again_and_again_leaks_nothing),
    CASE(text_is_set_and_set_again),
    CASE(a_fixed_string_stands_in_its_place),
    CASE(any_scalar_can_be_missing),
    CASE(a_pointer_gets_a_target),
    CASE(arrays_that_cannot_be_filled_are_refused_in_words),
    CASE(a_block_is_wrapped_as_an_array),
    CASE(no_array_reaches_beyond_its_block),
    CASE(json_writes_every_type),
    CASE(the_shortest_text_is_found_for_numbers_of_few_digits),
    CASE(the_text_of_every_half_reads_back),
    CASE(long_text_comes_in_pieces),
    CASE(repr_shows_type_metadata_data_and_blocks),
    CASE(repr_shows_access_and_static_types),
    CASE(repr_of_nested_structs_has_their_offsets),
    CASE(plain_arenas_take_no_more_than_the_text),
    CASE(rows_of_plain_arenas_grow_while_they_are_the_last),
    CASE(what_is_not_zeroed_refers_to_nothing),
    CASE(null_arguments_are_refused),
    CASE(without_memory_calls_fail_and_leak_nothing),
    CASE(threads_share_an_array_and_its_views),
  };
  return cmocka_run_group_tests_name("array", tests, NULL, NULL);
}
