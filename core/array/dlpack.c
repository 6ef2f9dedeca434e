/* dlpack.c - exports arrays as tensors of DLPack, and imports tensors as arrays. */
#include "array/dlpack.h"

#include "array/array.h"
#include "os/error.h"

/* ---- Types -------------------------------------------------------------------------------- */

/* The element type of a tensor for each scalar kind. */
static const DLDataType dtypes[] = {
  [LOAM_TYPE_BOOL] = { DL_BOOL, 8, 1 },          [LOAM_TYPE_INT8] = { DL_INT, 8, 1 },
  [LOAM_TYPE_INT16] = { DL_INT, 16, 1 },         [LOAM_TYPE_INT32] = { DL_INT, 32, 1 },
  [LOAM_TYPE_INT64] = { DL_INT, 64, 1 },         [LOAM_TYPE_UINT8] = { DL_UINT, 8, 1 },
  [LOAM_TYPE_UINT16] = { DL_UINT, 16, 1 },       [LOAM_TYPE_UINT32] = { DL_UINT, 32, 1 },
  [LOAM_TYPE_UINT64] = { DL_UINT, 64, 1 },       [LOAM_TYPE_FLOAT16] = { DL_FLOAT, 16, 1 },
  [LOAM_TYPE_FLOAT32] = { DL_FLOAT, 32, 1 },     [LOAM_TYPE_FLOAT64] = { DL_FLOAT, 64, 1 },
  [LOAM_TYPE_COMPLEX64] = { DL_COMPLEX, 64, 1 }, [LOAM_TYPE_COMPLEX128] = { DL_COMPLEX, 128, 1 },
};

/* Finds the scalar kind of an element type. Returns false if there is none. */
static bool find_kind(DLDataType t, loam_type_kind *out) {
  for (size_t i = 0; i < LM_COUNT(dtypes); i++) {
    if (dtypes[i].code != t.code || dtypes[i].bits != t.bits || t.lanes != 1) continue;
    *out = (loam_type_kind)i;
    return true;
  }
  return false;
}

/* ---- Export ------------------------------------------------------------------------------- */

/* A tensor that loam exports.
 *
 * Law: tensor.manager_ctx points to this struct; the shape is the first half of `dims` and the
 * strides are the second half. */
typedef struct exported {
  DLManagedTensor tensor;
  loam_block *owner; /* a reference to the block that owns the data */
  int64_t dims[];
} exported;

/* Returns whether the law holds for a tensor that no importing library has changed. */
LM_INLINE bool exported_is_valid(const exported *e) {
  const DLTensor *t = &e->tensor.dl_tensor;
  return e->tensor.manager_ctx == e && t->shape == e->dims && t->strides == e->dims + t->ndim;
}

/* The deleter of exported tensors. The importing library may call it in any thread. */
static void delete_exported(DLManagedTensor *tensor) {
  exported *e = tensor->manager_ctx;
  lm_assert(&e->tensor == tensor);
  loam_block_release(e->owner);
  loam_free(e);
}

static loam_status refuse(const loam_type *type, const char *why) {
  char words[LM_TYPE_WORDS];
  return lm_error(LOAM_EUNSUPPORTED, "%s: %s", lm_type_words(words, type), why);
}

/* Returns whether a scalar kind has NaNs. A missing value of such a kind is a NaN, so it needs no
 * mark that other libraries would have to know. */
static bool has_nan(loam_type_kind kind) {
  return kind >= LOAM_TYPE_FLOAT16 && kind <= LOAM_TYPE_COMPLEX128;
}

/* Checks that a tensor can have elements of this type. */
static loam_status check_element(const loam_type *type) {
  if (type->kind == LOAM_TYPE_OPTION) {
    if (has_nan(type->element->kind)) return LOAM_OK;
    return refuse(type, "a tensor has no missing values");
  }
  return lm_type_is_number(type->kind) ? LOAM_OK
                                       : refuse(type, "a tensor has numbers at equal distances");
}

static const loam_type *scalar_type(const loam_type *type) {
  return type->kind == LOAM_TYPE_OPTION ? type->element : type;
}

/* Returns the number of fixed dimensions at the front of a type; *element is the type behind
 * them. */
static size_t count_dims(const loam_type *type, const loam_type **element) {
  size_t n = 0;
  for (; type->kind == LOAM_TYPE_FIXED; type = type->element) n++;
  *element = type;
  return n;
}

/* Sets dimension `i` of a tensor whose elements have `each` bytes. `stride` is in bytes. It has to
 * be a multiple of `each`, unless the dimension has fewer than two elements and so no distance. */
static loam_status set_dim(DLTensor *t, int i, size_t count, ptrdiff_t stride, size_t each) {
  lm_assert(i >= 0 && i < t->ndim && each);
  t->shape[i] = (int64_t)count;
  t->strides[i] = stride / (ptrdiff_t)each;
  if (count < 2 || stride % (ptrdiff_t)each == 0) return LOAM_OK;
  return lm_error(LOAM_EUNSUPPORTED,
                  "dimension %d has elements of %zu bytes that are %td bytes apart: in a tensor, "
                  "the distance is a multiple of the element's size",
                  i + 1, each, stride);
}

/* Sets all dimensions of a tensor whose elements have `each` bytes. Dimension 0 is `row`, which may
 * be of a var dimension. The other dimensions are the fixed dimensions of the row's elements. */
static loam_status set_dims(DLTensor *t, const lm_array_row *row, size_t each) {
  if (!t->ndim) return LOAM_OK;
  loam_status status = set_dim(t, 0, row->count, row->stride, each);
  const size_t *meta = row->first.meta;
  for (int i = 1; i < t->ndim && !status; i++) {
    const lm_fixed_layout *m = lm_layout_fixed(meta);
    status = set_dim(t, i, m->size, m->stride, each);
    meta = m->element;
  }
  return status;
}

/* Fills in the tensor of an exported row; `element` is the type of the tensor's elements. */
static loam_status fill_tensor(const lm_array_row *row, size_t ndim, const loam_type *element,
                               exported *e) {
  const loam_type *scalar = scalar_type(element);
  e->tensor.dl_tensor = (DLTensor){ .data = row->first.data,
                                    .device = { DL_CPU, 0 },
                                    .ndim = (int32_t)ndim,
                                    .dtype = dtypes[scalar->kind],
                                    .shape = e->dims,
                                    .strides = e->dims + ndim };
  lm_assert(exported_is_valid(e));
  return set_dims(&e->tensor.dl_tensor, row, scalar->size);
}

/* Exports a row. If `has_row` is false, the array has no dimension: the row is one scalar. */
static loam_status make_exported(const loam_array *array, const lm_array_row *row, bool has_row,
                                 DLManagedTensor **out) {
  const loam_type *element;
  size_t ndim = count_dims(row->first.type, &element) + has_row;
  loam_status status = check_element(element);
  if (status) return status;
  exported *e = loam_malloc(array->block.site, sizeof *e + 2 * ndim * sizeof *e->dims);
  if (!e) return LOAM_ENOMEM;
  *e = (exported){ .tensor = { .manager_ctx = e, .deleter = delete_exported } };
  status = fill_tensor(row, ndim, element, e);
  if (status) {
    loam_free(e);
    return status;
  }
  e->owner = loam_block_retain(row->first.owner);
  lm_assert(exported_is_valid(e));
  *out = &e->tensor;
  return LOAM_OK;
}

loam_status loam_array_to_dlpack(const loam_array *array, DLManagedTensor **out) {
  if (!array || !out) return lm_error_missing(array ? "out" : "array");
  if (array->is_readonly)
    return lm_error(LOAM_EUNSUPPORTED, "the array is read-only, which DLPack cannot express");
  lm_array_cursor spot = lm_array_start(array);
  loam_status status = lm_array_follow_all(&spot);
  if (status) return status;
  bool has_row = spot.type->kind == LOAM_TYPE_VAR || spot.type->kind == LOAM_TYPE_FIXED;
  lm_array_row row = { .count = 1, .first = spot };
  if (has_row) status = lm_array_dimension(spot, &row);
  return status ? status : make_exported(array, &row, has_row, out);
}

/* ---- Import ------------------------------------------------------------------------------- */

/* Checks the host's tensor, and finds the kind of its elements. */
static loam_status check_tensor(const DLTensor *t, loam_type_kind *kind) {
  int32_t device = t->device.device_type;
  if (device != DL_CPU && device != DL_CUDA_HOST && device != DL_ROCM_HOST &&
      device != DL_CUDA_MANAGED)
    return lm_error(LOAM_EUNSUPPORTED, "the tensor is on a device of type %d, not in host memory",
                    device);
  if (!find_kind(t->dtype, kind))
    return lm_error(LOAM_EUNSUPPORTED, "the tensor's elements are of code %d, %d bits, %d lanes",
                    t->dtype.code, t->dtype.bits, t->dtype.lanes);
  if (t->ndim < 0 || t->ndim >= LM_TYPE_DEPTH || (t->ndim && !t->shape))
    return lm_error(LOAM_EINVAL, "the tensor has %d dimensions", t->ndim);
  for (int i = 0; i < t->ndim; i++)
    if (t->shape[i] < 0)
      return lm_error(LOAM_EINVAL, "dimension %d of the tensor has %lld elements", i + 1,
                      (long long)t->shape[i]);
  if (t->byte_offset > LM_SIZE_MAX)
    return lm_error(LOAM_EINVAL, "the tensor begins %llu bytes into its memory",
                    (unsigned long long)t->byte_offset);
  return LOAM_OK;
}

/* Makes the array type of a tensor; *out is a reference for the caller. */
static loam_status type_of(const DLTensor *t, loam_type_kind kind, loam_type **out) {
  lm_assert(lm_type_is_scalar(kind) && t->ndim >= 0 && t->ndim < LM_TYPE_DEPTH);
  loam_type *type = lm_type_plain(kind);
  loam_status status = LOAM_OK;
  for (int i = t->ndim; i-- > 0 && !status;)
    status = lm_type_fixed((size_t)t->shape[i], type, &type);
  if (!status) *out = type;
  return status;
}

/* Computes the strides of a tensor in bytes. */
static loam_status strides_of(const DLTensor *t, size_t each, int64_t *strides) {
  lm_assert(each && t->ndim < LM_TYPE_DEPTH);
  for (int i = 0; i < t->ndim; i++)
    if (__builtin_mul_overflow(t->strides[i], (int64_t)each, &strides[i]))
      return lm_error(LOAM_EINVAL, "dimension %d of the tensor has a stride of %lld elements",
                      i + 1, (long long)t->strides[i]);
  return LOAM_OK;
}

/* The destructor of the block over an imported tensor. */
static void delete_imported(void *ptr, size_t size, void *ctx) {
  (void)ptr;
  (void)size;
  DLManagedTensor *tensor = ctx;
  if (tensor->deleter) tensor->deleter(tensor);
}

/* Makes an array over a tensor. The block gets its destructor last: if anything fails before, the
 * tensor stays the caller's. */
static loam_status wrap_tensor(DLManagedTensor *tensor, const loam_type *type,
                               const int64_t *strides, loam_array **out) {
  const DLTensor *t = &tensor->dl_tensor;
  lm_array_bounds r;
  loam_status status = lm_array_bounds_of(type, strides, &r);
  if (status) return status;
  lm_assert(lm_array_bounds_is_valid(&r));
  char *low = lm_layout_move(t->data, (ptrdiff_t)t->byte_offset + r.low);
  loam_block *block = loam_block_wrap(NULL, low, (size_t)(r.high - r.low), NULL, NULL);
  if (!block) return LOAM_ENOMEM;
  lm_assert(!block->dtor);
  status = loam_array_wrap(block, (size_t)-r.low, type, strides, out);
  if (!status) {
    block->dtor = delete_imported;
    block->ctx = tensor;
  }
  loam_block_release(block);
  return status;
}

loam_status loam_array_from_dlpack(DLManagedTensor *tensor, loam_array **out) {
  if (!tensor || !out) return lm_error_missing(tensor ? "out" : "tensor");
  const DLTensor *t = &tensor->dl_tensor;
  int64_t strides[LM_TYPE_DEPTH];
  loam_type_kind kind = LOAM_TYPE_BOOL;
  loam_type *type = NULL;
  loam_status status = check_tensor(t, &kind);
  if (!status) status = type_of(t, kind, &type);
  if (status) return status;
  if (t->strides) status = strides_of(t, lm_type_plain(kind)->size, strides);
  if (!status) status = wrap_tensor(tensor, type, t->strides ? strides : NULL, out);
  loam_type_release(type);
  return status;
}
