/* class.h - size classes: 16-byte steps to 128, then four to a doubling, to 64 KiB. Beyond, classes
 * of large blocks: steps of a slot (64 KiB) to eight, then four to a doubling, to 32 MiB.
 *
 * The cores of a machine find the first bytes of objects that lie 64 KiB apart in one and the same
 * place of their caches, which has room for few. So those of the class for 64 KiB lie a cache line
 * further apart; and since then they are at no multiple of anything larger, there is one more class
 * for those that have to be. */
#ifndef LM_CLASS_H
#define LM_CLASS_H

#include "os/base.h"

enum {
  LM_CLASSES = 45,
  LM_CLASS_SKEWED = LM_CLASSES - 2,
  LM_CLASS_ALIGNED = LM_CLASSES - 1, /* of no size by itself */
  LM_CLASSES_LARGE = 32,
  LM_CLASSES_ALL = LM_CLASSES + LM_CLASSES_LARGE
};
#define LM_SMALL_MAX ((size_t)64 << 10)
/* Up to here the bytes of a class's objects are the most that it is asked for. */
#define LM_SMALL_EVEN ((size_t)56 << 10)
/* Where memory costs more than what is touched of it, spans are of smaller objects only. */
#define LM_SMALL_EAGER ((size_t)32 << 10)
#define LM_LARGE_MAX ((size_t)32 << 20)

/* A site has a lane of a thread (thread.h) for each class. Keys of lanes lie as far apart as lanes
 * do, in bytes, so that a key says at once where its lane is: so far those of two sites. */
enum { LM_DECISION_STEP = 32, LM_DECISION_STRIDE = (LM_CLASSES_ALL + 1) * LM_DECISION_STEP };

/* Classes in such steps, by 16-byte units of a size, rounded up. */
extern const uint16_t lm_class_steps[LM_SMALL_MAX / 16 + 1] __attribute__((visibility("hidden")));

/* The least class that holds `size` bytes, which are at most LM_SMALL_MAX; and in steps. */
LM_INLINE unsigned lm_class_step(size_t size) { return lm_class_steps[(size + 15) / 16]; }
LM_INLINE unsigned lm_class_of(size_t size) { return lm_class_step(size) / LM_DECISION_STEP; }

/* Bytes of an object of a class. */
LM_INLINE size_t lm_class_size(unsigned class_) {
  if (class_ < 8) return 16 * (size_t)(class_ + 1);
  if (class_ >= LM_CLASS_SKEWED)
    return LM_SMALL_MAX + (class_ == LM_CLASS_SKEWED ? LM_CACHE_LINE : LM_PAGE);
  return (size_t)(5 + class_ % 4) << (class_ / 4 + 3);
}

/* The sizes that it is for, but for what alignment adds. */
LM_INLINE size_t lm_class_max_size(unsigned class_) {
  return class_ < LM_CLASS_SKEWED ? lm_class_size(class_) : LM_SMALL_MAX;
}
LM_INLINE size_t lm_class_min_size(unsigned class_) {
  if (class_ >= LM_CLASS_SKEWED) return LM_SMALL_EVEN + 1;
  return class_ ? lm_class_size(class_ - 1) + 1 : 0;
}

/* The class whose objects have so many bytes. */
LM_INLINE unsigned lm_class_of_usable(size_t usable) {
  if (lm_likely(usable <= LM_SMALL_EVEN)) return lm_class_of(usable);
  return usable == lm_class_size(LM_CLASS_SKEWED) ? LM_CLASS_SKEWED : LM_CLASS_ALIGNED;
}

/* Whether an object with so many usable bytes is a fair place for `size` bytes. An object that is
 * twice as large as needed is not, unless it is small. */
LM_INLINE bool lm_class_fits(size_t usable, size_t size) {
  return size <= usable && (size > usable / 2 || usable <= 64);
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
