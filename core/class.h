/* class.h - size classes: 16-byte steps to 128, then four to a doubling, to 32 KiB. Beyond, classes
 * of large blocks: steps of a slot (64 KiB) to eight, then four to a doubling, to 32 MiB. */
#ifndef LM_CLASS_H
#define LM_CLASS_H

#include "base.h"

enum { LM_CLASSES = 40, LM_CLASSES_LARGE = 32, LM_CLASSES_ALL = LM_CLASSES + LM_CLASSES_LARGE };
#define LM_SMALL_MAX ((size_t)32 << 10)
#define LM_LARGE_MAX ((size_t)32 << 20)

/* A site has a lane of a thread (thread.h) for each class: so many keys lie between two sites'. */
enum { LM_LANE_STRIDE = LM_CLASSES_ALL + 1 };

/* By 16-byte units of a size, rounded up. */
extern const uint8_t lm_class_of_units[LM_SMALL_MAX / 16 + 1] __attribute__((visibility("hidden")));

/* The least class that holds `size` bytes, which are at most LM_SMALL_MAX. */
LM_INLINE unsigned lm_class_of(size_t size) { return lm_class_of_units[(size + 15) / 16]; }

/* Bytes of an object of a class. */
LM_INLINE size_t lm_class_size(unsigned class_) {
  if (class_ < 8) return 16 * (size_t)(class_ + 1);
  return (size_t)(5 + class_ % 4) << (class_ / 4 + 3);
}

/* Slots that a block of a large class has. */
LM_INLINE uint32_t lm_class_slots(unsigned class_) {
  unsigned c = class_ - LM_CLASSES;
  return c < 8 ? c + 1 : (5 + c % 4) << (c / 4 - 1);
}

/* The class of large blocks of `size` bytes, above LM_SMALL_MAX and at most LM_LARGE_MAX. */
LM_INLINE unsigned lm_class_large(size_t size) {
  unsigned last = (unsigned)((size - 1) >> 16); /* slot of the last byte */
  if (last < 8) return LM_CLASSES + last;
  unsigned shift = 29 - (unsigned)__builtin_clz(last);
  return LM_CLASSES + 4 * shift + (last >> shift);
}

#endif
