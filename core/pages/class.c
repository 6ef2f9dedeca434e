/* class.c - the table that gives the class of each size up to 64 KiB. */
#include "pages/class.h"

#define X2(c) c, c
#define X4(c) X2(c), X2(c)
#define X8(c) X4(c), X4(c)
#define X16(c) X8(c), X8(c)
#define X32(c) X16(c), X16(c)
#define X64(c) X32(c), X32(c)
#define X128(c) X64(c), X64(c)
#define X256(c) X128(c), X128(c)
#define X512(c) X256(c), X256(c)
/* The four classes of one doubling, from class c on. Macro x says how many entries of the table,
 * which stand for 16 bytes each, a class has. */
#define FOUR(x, c) x(S(c)), x(S(c + 1)), x(S(c + 2)), x(S(c + 3))
#define S(c) ((c)*LM_DECISION_STEP)
#define ONE(c) c

/* clang-format off */
const uint16_t lm_class_steps[LM_SMALL_MAX / 16 + 1] = {
  0, FOUR(ONE, 0), FOUR(ONE, 4), FOUR(X2, 8), FOUR(X4, 12), FOUR(X8, 16), FOUR(X16, 20),
  FOUR(X32, 24), FOUR(X64, 28), FOUR(X128, 32), FOUR(X256, 36), FOUR(X512, 40),
};

/* Returns the bytes of the largest block of a class above the small ones. */
static size_t large_bytes(unsigned class_) {
  unsigned c = class_ - LM_CLASSES;
  size_t slots = c < 8 ? c + 1 : (size_t)(5 + c % 4) << (c / 4 - 1);
  return slots * LM_SMALL_MAX;
}

size_t lm_class_counted_from(unsigned class_) {
  if (class_ == LM_CLASS_UNKNOWN) return 0;
  lm_assert(class_ < LM_CLASSES_COUNTED);
  if (class_ < LM_CLASSES) return lm_class_min_size(class_);
  return class_ == LM_CLASSES ? 1 : large_bytes(class_ - 1) + 1;
}

size_t lm_class_counted_to(unsigned class_) {
  if (class_ == LM_CLASS_UNKNOWN) return LM_SIZE_MAX;
  lm_assert(class_ < LM_CLASSES_COUNTED);
  return class_ < LM_CLASSES ? lm_class_max_size(class_) : large_bytes(class_);
}
