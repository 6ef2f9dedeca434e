/* missing.c - how the data of an option say that a value is missing: one value of each type. */
#include "array/missing.h"

#include <string.h>

#include "array/array.h"
#include "os/error.h"

static const int8_t no_int8 = INT8_MIN;
static const int16_t no_int16 = INT16_MIN;
static const int32_t no_int32 = INT32_MIN;
static const int64_t no_int64 = INT64_MIN;
static const uint8_t no_bool = 2, no_uint8 = UINT8_MAX;
static const uint16_t no_uint16 = UINT16_MAX;
static const uint32_t no_uint32 = UINT32_MAX;
static const uint64_t no_uint64 = UINT64_MAX;
static const lm_piece no_text = { NULL, 0 };
/* NaNs with 1954 in the lowest bits, as R's NA; a half has room for nine of them. */
static const uint16_t no_half = 0x7FA2;
static const uint32_t no_float[2] = { 0x7FC007A2, 0 };
static const uint64_t no_double[2] = { 0x7FF80000000007A2, 0 };

static const void *const missing[] = {
  [LOAM_TYPE_BOOL] = &no_bool,      [LOAM_TYPE_INT8] = &no_int8,
  [LOAM_TYPE_INT16] = &no_int16,    [LOAM_TYPE_INT32] = &no_int32,
  [LOAM_TYPE_INT64] = &no_int64,    [LOAM_TYPE_UINT8] = &no_uint8,
  [LOAM_TYPE_UINT16] = &no_uint16,  [LOAM_TYPE_UINT32] = &no_uint32,
  [LOAM_TYPE_UINT64] = &no_uint64,  [LOAM_TYPE_FLOAT16] = &no_half,
  [LOAM_TYPE_FLOAT32] = no_float,   [LOAM_TYPE_FLOAT64] = no_double,
  [LOAM_TYPE_COMPLEX64] = no_float, [LOAM_TYPE_COMPLEX128] = no_double,
  [LOAM_TYPE_STRING] = &no_text,    [LOAM_TYPE_BYTES] = &no_text,
};

void lm_missing_set(const loam_type *value, char *data) {
  memcpy(data, missing[value->kind], value->size);
}

#define HAS_BITS(type, mask, bits) ((*(const type *)data & (mask)) == (bits))

/* Arithmetic may change a NaN's sign, and makes it quiet; a complex number is missing when its real
 * part is. */
bool lm_missing_is(const loam_type *value, const char *data) {
  switch (value->kind) {
    case LOAM_TYPE_FLOAT16: return HAS_BITS(uint16_t, 0x7DFF, 0x7DA2);
    case LOAM_TYPE_FLOAT32:
    case LOAM_TYPE_COMPLEX64: return HAS_BITS(uint32_t, 0x7FBFFFFF, 0x7F8007A2);
    case LOAM_TYPE_FLOAT64:
    case LOAM_TYPE_COMPLEX128: return HAS_BITS(uint64_t, 0x7FF7FFFFFFFFFFFF, 0x7FF00000000007A2);
    case LOAM_TYPE_STRING:
    case LOAM_TYPE_BYTES: return !((const lm_piece *)data)->begin;
    default: return !memcmp(data, missing[value->kind], value->size);
  }
}

/* ---- loam.h */

static loam_status fail_option(const loam_array *array) {
  char words[LM_TYPE_WORDS];
  return lm_error(LOAM_EINVAL, "type %s: it is not an option", lm_type_words(words, array->type));
}

loam_status loam_array_omit(loam_array *array) {
  if (!array) return lm_error(LOAM_EINVAL, "array: it is NULL");
  if (array->type->kind != LOAM_TYPE_OPTION) return fail_option(array);
  loam_status status = lm_array_check_writable(array);
  if (status) return status;
  lm_layout_piece_free(array->type, array->meta, array->data);
  lm_missing_set(array->type->element, array->data);
  return LOAM_OK;
}

int loam_array_is_missing(const loam_array *array) {
  return array && array->type->kind == LOAM_TYPE_OPTION &&
         lm_missing_is(array->type->element, array->data);
}
