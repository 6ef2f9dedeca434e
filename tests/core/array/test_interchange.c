/* test_interchange.c - export to and import from other libraries: DLPack and Arrow. */
#include <stdlib.h>

#include "array/arrow.h"
#include "array/dlpack.h"
#include "arrays.h"
#include "refuse.h"

/* ---- DLPack ---- */

static DLManagedTensor *tensor_of(const loam_array *array) {
  DLManagedTensor *tensor = NULL;
  if (loam_array_to_dlpack(array, &tensor)) fail_msg("%s", loam_error());
  assert_int_equal(tensor->dl_tensor.device.device_type, DL_CPU);
  assert_int_equal(tensor->dl_tensor.byte_offset, 0);
  assert_int_equal(tensor->dl_tensor.dtype.lanes, 1);
  return tensor;
}

static void expect_dims(const DLTensor *t, int ndim, const int64_t *shape, const int64_t *strides) {
  assert_int_equal(t->ndim, ndim);
  for (int i = 0; i < ndim; i++) {
    assert_int_equal(t->shape[i], shape[i]);
    assert_int_equal(t->strides[i], strides[i]);
  }
}

static void a_tensor_shares_the_data_of_the_array(void **state) {
  (void)state;
  loam_array *a = new_array("3 * 4 * float32");
  loam_array *v = VIEW(a, { LOAM_OPEN, LOAM_OPEN, -1 }, { 1, LOAM_OPEN, 2 });
  DLManagedTensor *t = tensor_of(v);
  expect_dims(&t->dl_tensor, 2, (int64_t[]){ 3, 2 }, (int64_t[]){ -4, 2 });
  assert_int_equal(t->dl_tensor.dtype.code, DL_FLOAT);
  assert_int_equal(t->dl_tensor.dtype.bits, 32);
  ((float *)t->dl_tensor.data)[2] = 7;
  expect_json(a, "[[0,0,0,0],[0,0,0,0],[0,0,0,7]]");
  t->deleter(t);
  loam_array_release(v);
  loam_array_release(a);
}

static void a_tensor_keeps_its_memory_alive(void **state) {
  (void)state;
  loam_array *a = new_array("2 * var * {x: int16, y: int16}");
  loam_array *row = VIEW(a, LOAM_AT(1));
  assert_int_equal(loam_array_append(row, (int16_t[]){ 1, 2 }), LOAM_OK);
  assert_int_equal(loam_array_append(row, (int16_t[]){ 3, 4 }), LOAM_OK);
  loam_array *y = field_of(row, "y");
  loam_block *rows = lm_layout_var(y->meta)->block;
  size_t owners = loam_block_refcount(rows);
  DLManagedTensor *t = tensor_of(y); /* a row of a var dimension is a dimension of the tensor */
  assert_int_equal(loam_block_refcount(rows), owners + 1);
  loam_array_release(a);
  loam_array_release(row);
  loam_array_release(y);
  expect_dims(&t->dl_tensor, 1, (int64_t[]){ 2 }, (int64_t[]){ 2 });
  assert_int_equal(((int16_t *)t->dl_tensor.data)[2], 4);
  t->deleter(t);
}

static void every_scalar_survives_export_and_import(void **state) {
  (void)state;
#define EXPECT_BACK(kind, name, size, align)                                         \
  if (lm_type_is_number(kind)) {                                                     \
    loam_array *a = new_array("2 * 0 * 3 * " name), *back;                           \
    assert_int_equal(loam_array_from_dlpack(tensor_of(a), &back), 0);                \
    assert_string_equal(loam_type_text(loam_array_type(back)), "2 * 0 * 3 * " name); \
    loam_array_release(back);                                                        \
    loam_array_release(a);                                                           \
  }
  LOAM_TYPE_LIST(EXPECT_BACK)
  loam_array *a = new_array("?float64"), *back;
  *(double *)loam_array_data(a) = 2.5;
  assert_int_equal(loam_array_from_dlpack(tensor_of(a), &back), LOAM_OK);
  loam_array_release(a);
  expect_view(back, "float64", "2.5");
}

static void expect_no_tensor(const char *text, const char *words) {
  loam_array *a = new_array(text);
  DLManagedTensor *out = (DLManagedTensor *)8;
  EXPECT_ERROR(loam_array_to_dlpack(a, &out), LOAM_EUNSUPPORTED, words);
  assert_ptr_equal(out, (void *)8);
  loam_array_release(a);
}

static void types_that_a_tensor_cannot_express_are_refused(void **state) {
  (void)state;
  expect_no_tensor("2 * date", "date: a tensor has numbers at equal distances");
  expect_no_tensor("2 * var * int8", "var * int8: a tensor has numbers at equal distances");
  expect_no_tensor("2 * {x: int8}", "{x: int8}: a tensor has numbers at equal distances");
  expect_no_tensor("string", "string: a tensor has numbers at equal distances");
  expect_no_tensor("2 * ?int8", "?int8: a tensor has no missing values");
  loam_array *a = new_array("2 * {x: 3 * int32, y: int8}");
  loam_array *x = field_of(a, "x");
  DLManagedTensor *t = tensor_of(x);
  expect_dims(&t->dl_tensor, 2, (int64_t[]){ 2, 3 }, (int64_t[]){ 4, 1 });
  t->deleter(t);
  loam_array_release(x);
  loam_array_release(a);
  a = new_array("2 * {x: 2 * int32, y: 3 * int32, z: 1 * int16}");
  x = field_of(a, "x");
  t = tensor_of(x);
  expect_dims(&t->dl_tensor, 2, (int64_t[]){ 2, 2 }, (int64_t[]){ 6, 1 });
  t->deleter(t);
  loam_array_release(x);
  loam_array_release(a);
  a = new_array("2 * {x: complex64, y: int32}");
  x = field_of(a, "x");
  EXPECT_ERROR(loam_array_to_dlpack(x, &t), LOAM_EUNSUPPORTED,
               "dimension 1 has elements of 8 bytes 12 bytes apart: a tensor's are whole elements "
               "apart");
  x->is_readonly = true;
  EXPECT_ERROR(loam_array_to_dlpack(x, &t), LOAM_EUNSUPPORTED,
               "the array is read-only, which DLPack cannot express");
  loam_array_release(x);
  loam_array_release(a);
}

/* A tensor that another library has made. */
typedef struct foreign {
  DLManagedTensor tensor;
  int64_t shape[3], strides[3];
  double data[24];
  int ended;
} foreign;

static void end_foreign(DLManagedTensor *t) { ((foreign *)t->manager_ctx)->ended++; }

static void begin_foreign(foreign *f) {
  *f = (foreign){ .shape = { 2, 3, 4 }, .strides = { 12, 4, 1 } };
  for (int i = 0; i < 24; i++) f->data[i] = i;
  f->tensor = (DLManagedTensor){ .dl_tensor = { .data = f->data,
                                                .device = { DL_CPU, 0 },
                                                .ndim = 3,
                                                .dtype = { DL_FLOAT, 64, 1 },
                                                .shape = f->shape,
                                                .strides = f->strides },
                                 .manager_ctx = f,
                                 .deleter = end_foreign };
}

static void an_imported_tensor_ends_with_its_last_view(void **state) {
  (void)state;
  foreign f;
  begin_foreign(&f);
  loam_array *a;
  assert_int_equal(loam_array_from_dlpack(&f.tensor, &a), LOAM_OK);
  loam_array *v = VIEW(a, LOAM_AT(1), LOAM_ALL, LOAM_AT(-1));
  loam_array_release(a);
  assert_int_equal(f.ended, 0);
  expect_view(v, "3 * float64", "[15,19,23]");
  assert_int_equal(f.ended, 1);
}

static void strides_and_offset_of_an_imported_tensor_are_kept(void **state) {
  (void)state;
  foreign f;
  loam_array *a;
  begin_foreign(&f);
  f.tensor.dl_tensor.strides = NULL;
  f.tensor.dl_tensor.ndim = 1;
  f.tensor.dl_tensor.byte_offset = 80;
  f.tensor.deleter = NULL;
  assert_int_equal(loam_array_from_dlpack(&f.tensor, &a), LOAM_OK);
  expect_view(a, "2 * float64", "[10,11]");
  begin_foreign(&f);
  f.strides[0] = -12;
  f.strides[1] = 0;
  f.strides[2] = -2;
  f.tensor.dl_tensor.byte_offset = 23 * 8;
  assert_int_equal(loam_array_from_dlpack(&f.tensor, &a), LOAM_OK);
  expect_view(a, "2 * 3 * 4 * float64",
              "[[[23,21,19,17],[23,21,19,17],[23,21,19,17]],"
              "[[11,9,7,5],[11,9,7,5],[11,9,7,5]]]");
  assert_int_equal(f.ended, 1);
}

/* DLPack: the data of a tensor without elements may be NULL. */
static void a_tensor_without_elements_needs_no_memory(void **state) {
  (void)state;
  foreign f;
  loam_array *a;
  begin_foreign(&f);
  f.shape[1] = 0;
  f.tensor.dl_tensor.data = NULL;
  f.tensor.dl_tensor.byte_offset = 8;
  assert_int_equal(loam_array_from_dlpack(&f.tensor, &a), LOAM_OK);
  loam_array *row = VIEW(a, LOAM_AT(1));
  assert_null(loam_array_data(row));
  expect_view(row, "0 * 4 * float64", "[]");
  expect_view(a, "2 * 0 * 4 * float64", "[[],[]]");
  assert_int_equal(f.ended, 1);
}

static void expect_no_array(foreign *f, loam_status status, const char *words) {
  loam_array *out = (loam_array *)8;
  EXPECT_ERROR(loam_array_from_dlpack(&f->tensor, &out), status, words);
  assert_ptr_equal(out, (void *)8);
  assert_int_equal(f->ended, 0);
  begin_foreign(f);
}

static void a_tensor_that_is_refused_stays_the_callers(void **state) {
  (void)state;
  foreign f;
  begin_foreign(&f);
  f.tensor.dl_tensor.device.device_type = 2;
  expect_no_array(&f, LOAM_EUNSUPPORTED, "the tensor is on a device of type 2, not in host memory");
  f.tensor.dl_tensor.dtype = (DLDataType){ 4, 16, 1 };
  expect_no_array(&f, LOAM_EUNSUPPORTED, "the tensor's elements are of code 4, 16 bits, 1 lanes");
  f.tensor.dl_tensor.dtype.lanes = 4;
  expect_no_array(&f, LOAM_EUNSUPPORTED, "the tensor's elements are of code 2, 64 bits, 4 lanes");
  f.shape[1] = -3;
  expect_no_array(&f, LOAM_EINVAL, "dimension 2 of the tensor has -3 elements");
  f.tensor.dl_tensor.ndim = 64;
  expect_no_array(&f, LOAM_EINVAL, "the tensor has 64 dimensions");
  f.strides[1] = INT64_MAX / 4;
  expect_no_array(&f, LOAM_EINVAL,
                  "dimension 2 of the tensor has a stride of 2305843009213693951 elements");
  f.tensor.dl_tensor.byte_offset = 4;
  expect_no_array(&f, LOAM_EINVAL,
                  "2 * 3 * 4 * float64: not all elements would stand at multiples of 8");
  f.shape[0] = INT64_MAX;
  expect_no_array(&f, LOAM_EINVAL,
                  "9223372036854775807 elements of 96 bytes: no address space is that large");
}

/* ---- Arrow ---- */

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

static void a_missing_value_has_bit_0(void **state) {
  (void)state;
  loam_array *a = new_array("10 * ?int8");
  int8_t *data = loam_array_data(a);
  data[3] = data[9] = INT8_MIN;
  shipped s = ship(a, 0);
  expect_node(&s.schema, &s.array, "c", "", 10, 2);
  assert_int_equal(s.schema.flags, ARROW_NULLABLE);
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
               "field \"y\" has 3 elements, \"x\" has 2: the columns of a table have as many");
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

/* The interface allows this: a consumer may move a child out and release the rest. */
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
  expect_no_export("2 * complex64", "complex64: Arrow has no such numbers");
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

/* An Arrow array that another library has made. */
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

static void expect_no_import(arrow_of_others *o, loam_status status, const char *words) {
  loam_array *out = (loam_array *)8;
  EXPECT_ERROR(loam_array_from_arrow(&o->s.schema, &o->s.array, 1, &out), status, words);
  assert_ptr_equal(out, (void *)8);
  assert_int_equal(o->ended, 0);
}

/* The list is its own child, so the schema is deeper than any stack. */
static void an_imported_schema_must_not_be_too_deep(void **state) {
  (void)state;
  arrow_of_others list;
  begin_others(&list, "+w:1", 1, 1);
  list.s.array.n_children = list.s.schema.n_children = 1;
  list.s.array.children = (struct ArrowArray *[]){ &list.s.array };
  list.s.schema.children = (struct ArrowSchema *[]){ &list.s.schema };
  expect_no_import(&list, LOAM_EINVAL, "the Arrow schema is more than 64 levels deep");
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

/* Arrow: a buffer may be NULL if it would have no bytes. */
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

/* The elements of the child that no row has do not matter: neither a missing one, nor one with the
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
  expect_no_import(&o, LOAM_EUNSUPPORTED, "Arrow format \"c\": loam has no dictionaries");
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

/* ---- Want of memory ---- */

static loam_status there_and_back(void) {
  loam_type *type;
  loam_array *a, *back;
  DLManagedTensor *tensor;
  loam_status status = loam_type_parse("3 * int32", &type);
  if (status) return status;
  status = loam_array_new(arrays_site(), type, &a);
  loam_type_release(type);
  if (status) return status;
  status = loam_array_to_dlpack(a, &tensor);
  loam_array_release(a);
  if (status) return status;
  status = loam_array_from_dlpack(tensor, &back);
  if (status) tensor->deleter(tensor);
  else loam_array_release(back);
  return status;
}

static loam_status through_arrow(const char *text) {
  loam_type *type;
  loam_array *a, *back;
  shipped s;
  loam_status status = loam_type_parse(text, &type);
  if (status) return status;
  status = loam_array_new(arrays_site(), type, &a);
  loam_type_release(type);
  if (status) return status;
  status = loam_array_to_arrow(a, 1, &s.schema, &s.array);
  loam_array_release(a);
  if (status) return status;
  status = loam_array_from_arrow(&s.schema, &s.array, 1, &back);
  if (status) end_shipped(&s);
  else loam_array_release(back);
  return status;
}

static loam_status a_table_through_arrow(void) {
  return through_arrow("{a: 2 * ?string, b: 2 * var * bool, c: 2 * 2 * var * bytes, d: 2 * int8}");
}

static void without_memory_calls_fail_and_leak_nothing(void **state) {
  (void)state;
  assert_true(refuse_each_block(there_and_back) > 4);
  assert_true(refuse_each_block(a_table_through_arrow) > 50);
}

#define CASE(name) cmocka_unit_test_teardown(name, nothing_is_left)

int main(void) {
  const struct CMUnitTest tests[] = {
    CASE(a_tensor_shares_the_data_of_the_array),
    CASE(a_tensor_keeps_its_memory_alive),
    CASE(every_scalar_survives_export_and_import),
    CASE(types_that_a_tensor_cannot_express_are_refused),
    CASE(an_imported_tensor_ends_with_its_last_view),
    CASE(strides_and_offset_of_an_imported_tensor_are_kept),
    CASE(a_tensor_without_elements_needs_no_memory),
    CASE(a_tensor_that_is_refused_stays_the_callers),
    CASE(contiguous_numbers_are_shared),
    CASE(dimensions_are_lists),
    CASE(a_missing_value_has_bit_0),
    CASE(decimals_and_durations_go_to_arrow_and_back),
    CASE(other_decimals_are_refused),
    CASE(rows_and_structs_that_are_missing_have_bit_0),
    CASE(a_struct_of_columns_is_a_table),
    CASE(rows_of_structs_need_a_copy),
    CASE(a_child_that_was_moved_out_lives_on),
    CASE(types_that_arrow_lacks_are_refused),
    CASE(imported_numbers_are_not_copied),
    CASE(text_and_bools_are_imported),
    CASE(an_imported_schema_must_not_be_too_deep),
    CASE(an_imported_list_must_not_reach_beyond_its_child),
    CASE(numbers_that_are_not_aligned_are_copied),
    CASE(offsets_that_are_not_aligned_are_read),
    CASE(arrays_without_elements_may_lack_buffers),
    CASE(a_list_takes_the_elements_of_its_rows_alone),
    CASE(an_arrow_array_that_is_refused_stays_the_callers),
    CASE(without_memory_calls_fail_and_leak_nothing),
  };
  return cmocka_run_group_tests_name("interchange", tests, NULL, NULL);
}
