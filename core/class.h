/* class.h - size classes: 16-byte steps to 128, then four to a doubling, to 32 KiB. */
#ifndef LM_CLASS_H
#define LM_CLASS_H

#include "base.h"

enum { LM_CLASSES = 40 };
#define LM_SMALL_MAX ((size_t)32 << 10)

/* A site has a lane of a thread (thread.h) for each class: so many keys lie between two sites'. */
enum { LM_LANE_STRIDE = 73 };

/* By 16-byte units of a size, rounded up. */
extern const uint8_t lm_class_of_units[LM_SMALL_MAX / 16 + 1];

/* The least class that holds `size` bytes, which are at most LM_SMALL_MAX. */
LM_INLINE unsigned lm_class_of(size_t size) { return lm_class_of_units[(size + 15) / 16]; }

/* Bytes of an object of a class. */
LM_INLINE size_t lm_class_size(unsigned class_) {
  if (class_ < 8) return 16 * (size_t)(class_ + 1);
  return (size_t)(5 + class_ % 4) << (class_ / 4 + 3);
}

#endif
