/* test_dlpack.c - tensors: exchange of arrays with other libraries through DLPack. */
#include "array/dlpack.h"

#include "arrays.h"
#include "refuse_allocations.h"

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
  expect_no_tensor("2 * categorical[['a']]",
                   "categorical[['a']]: a tensor has numbers at equal distances");
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
               "dimension 1 has elements of 8 bytes that are 12 bytes apart: in a tensor, the "
               "distance is a multiple of the element's size");
  x->is_readonly = true;
  EXPECT_ERROR(loam_array_to_dlpack(x, &t), LOAM_EUNSUPPORTED,
               "the array is read-only, which DLPack cannot express");
  loam_array_release(x);
  loam_array_release(a);
}

/* A tensor made by another library. */
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

/* DLPack allows that the data of a tensor without elements are NULL. */
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
  f.tensor.dl_tensor.data = NULL;
  expect_no_array(&f, LOAM_EINVAL, "the array has elements from 0 to 192: the block has no memory");
  f.tensor.dl_tensor.byte_offset = UINT64_MAX - 7;
  expect_no_array(&f, LOAM_EINVAL, "the tensor begins 18446744073709551608 bytes into its memory");
  f.tensor.dl_tensor.data = NULL;
  f.tensor.dl_tensor.byte_offset = (uint64_t)1 << 63;
  expect_no_array(&f, LOAM_EINVAL, "the tensor begins 9223372036854775808 bytes into its memory");
  f.shape[0] = INT64_MAX;
  expect_no_array(&f, LOAM_EINVAL,
                  "9223372036854775807 elements of 96 bytes: no address space is that large");
}

/* ---- No memory ---- */

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

static void without_memory_calls_fail_and_leak_nothing(void **state) {
  (void)state;
  assert_true(refuse_each_block(there_and_back) > 4);
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
    CASE(without_memory_calls_fail_and_leak_nothing),
  };
  return cmocka_run_group_tests_name("dlpack", tests, NULL, NULL);
}
