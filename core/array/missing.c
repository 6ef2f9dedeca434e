/* missing.c - how the data of an option say that a value is missing.
 *
 * A signed integer, a decimal, a date or a time is missing if it is the least value of its bytes,
 * an unsigned integer or the code of a category if it is the greatest, and a bool if it is 2. A
 * float is missing if it is a certain NaN, and a complex number if its real part is that NaN. Text
 * is missing if it begins at NULL. Other values have a byte of their own that says whether they are
 * missing. */
#include "array/missing.h"

#include <string.h>

#include "array/array.h"
#include "os/error.h"

static const int8_t missing_int8 = INT8_MIN;
static const int16_t missing_int16 = INT16_MIN;
static const int32_t missing_int32 = INT32_MIN;
static const int64_t missing_int64 = INT64_MIN;
static const uint8_t missing_bool = 2, missing_uint8 = UINT8_MAX;
static const uint16_t missing_uint16 = UINT16_MAX;
static const uint32_t missing_uint32 = UINT32_MAX;
static const uint64_t missing_uint64 = UINT64_MAX;
static const lm_piece missing_text = { NULL, 0 };
/* NaNs with 1954 (0x7A2) in the lowest bits, like NA of the language R. Below its
 * quiet bit, a half has room for nine of these bits. */
static const uint16_t missing_half = 0x7FA2;
static const uint32_t missing_float[2] = { 0x7FC007A2, 0 };
/* The least integer of 128 bits, the low half first. */
static const uint64_t missing_decimal[2] = { 0, 1ull << 63 };
static const uint64_t missing_double[2] = { 0x7FF80000000007A2, 0 };

/* The missing value of each plain type, of decimals and of categoricals. Codes of categories have
 * one or two bytes, and all bits of a missing one are set: so codes of one byte take the first byte
 * of missing_uint16. */
static const void *const missing_values[] = {
  [LOAM_TYPE_BOOL] = &missing_bool,          [LOAM_TYPE_INT8] = &missing_int8,
  [LOAM_TYPE_INT16] = &missing_int16,        [LOAM_TYPE_INT32] = &missing_int32,
  [LOAM_TYPE_INT64] = &missing_int64,        [LOAM_TYPE_UINT8] = &missing_uint8,
  [LOAM_TYPE_UINT16] = &missing_uint16,      [LOAM_TYPE_UINT32] = &missing_uint32,
  [LOAM_TYPE_UINT64] = &missing_uint64,      [LOAM_TYPE_FLOAT16] = &missing_half,
  [LOAM_TYPE_FLOAT32] = missing_float,       [LOAM_TYPE_FLOAT64] = missing_double,
  [LOAM_TYPE_COMPLEX64] = missing_float,     [LOAM_TYPE_COMPLEX128] = missing_double,
  [LOAM_TYPE_DATE] = &missing_int32,         [LOAM_TYPE_TIME] = &missing_int64,
  [LOAM_TYPE_DATETIME] = &missing_int64,     [LOAM_TYPE_DATETIME_S] = &missing_int64,
  [LOAM_TYPE_DATETIME_MS] = &missing_int64,  [LOAM_TYPE_DATETIME_NS] = &missing_int64,
  [LOAM_TYPE_TIMEDELTA] = &missing_int64,    [LOAM_TYPE_TIMEDELTA_S] = &missing_int64,
  [LOAM_TYPE_TIMEDELTA_MS] = &missing_int64, [LOAM_TYPE_TIMEDELTA_NS] = &missing_int64,
  [LOAM_TYPE_STRING] = &missing_text,        [LOAM_TYPE_BYTES] = &missing_text,
  [LOAM_TYPE_DECIMAL] = missing_decimal,     [LOAM_TYPE_CATEGORICAL] = &missing_uint16,
};

void lm_missing_set(const loam_type *value, char *data) {
  if (lm_type_has_flag(value->kind)) {
    memset(data, 0, value->size);
    data[value->size] = 1;
    return;
  }
  lm_assert(missing_values[value->kind]);
  memcpy(data, missing_values[value->kind], value->size);
}

void lm_missing_clear(const loam_type *value, char *data) {
  if (lm_type_has_flag(value->kind)) data[value->size] = 0;
}

/* True if the bits of `mask` in the value at `data` equal `bits`. */
#define HAS_BITS(type, mask, bits) ((*(const type *)data & (mask)) == (bits))

/* The masks leave out the sign of a NaN and the bit that makes it quiet: arithmetic on a missing
 * value may change the sign, and sets the quiet bit. The result is still missing. */
bool lm_missing_is(const loam_type *value, const char *data) {
  if (lm_type_has_flag(value->kind)) return data[value->size] != 0;
  lm_assert(missing_values[value->kind]);
  switch (value->kind) {
    case LOAM_TYPE_FLOAT16: return HAS_BITS(uint16_t, 0x7DFF, 0x7DA2);
    case LOAM_TYPE_FLOAT32:
    case LOAM_TYPE_COMPLEX64: return HAS_BITS(uint32_t, 0x7FBFFFFF, 0x7F8007A2);
    case LOAM_TYPE_FLOAT64:
    case LOAM_TYPE_COMPLEX128: return HAS_BITS(uint64_t, 0x7FF7FFFFFFFFFFFF, 0x7FF00000000007A2);
    case LOAM_TYPE_STRING:
    case LOAM_TYPE_BYTES: return !((const lm_piece *)data)->begin;
    default: return !memcmp(data, missing_values[value->kind], value->size);
  }
}

/* ---- The functions of loam.h */

static loam_status fail_not_option(const loam_array *array) {
  char words[LM_TYPE_WORDS];
  return lm_error(LOAM_EINVAL, "type %s: it is not an option", lm_type_words(words, array->type));
}

loam_status loam_array_omit(loam_array *array) {
  if (!array) return lm_error_missing("array");
  if (array->type->kind != LOAM_TYPE_OPTION) return fail_not_option(array);
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
