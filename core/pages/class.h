/* class.h - the size classes: which object size serves a request of a given size.
 *
 * Small objects (up to 64 KiB) have 45 classes: steps of 16 bytes up to 128 bytes, then four
 * classes for each doubling. Large blocks (above 64 KiB, up to 32 MiB) have 32 classes: steps of
 * one slot (64 KiB) up to eight slots, then four classes for each doubling.
 *
 * Objects of exactly 64 KiB would all begin at one set of the CPU's caches, and a set holds only a
 * few cache lines. So each object of the class for 64 KiB (LM_CLASS_SKEWED) is one cache line
 * longer than 64 KiB, and consecutive objects begin at different sets. Such objects are not aligned
 * to more than a cache line. One more class (LM_CLASS_ALIGNED) therefore serves the requests of
 * this size that ask for an alignment of up to a page. */
#ifndef LM_CLASS_H
#define LM_CLASS_H

#include "os/base.h"

enum {
  LM_CLASSES = 45,                   /* small classes: 0 to LM_CLASSES - 1 */
  LM_CLASS_SKEWED = LM_CLASSES - 2,  /* objects of 64 KiB and a cache line */
  LM_CLASS_ALIGNED = LM_CLASSES - 1, /* objects of 64 KiB and a page; no size alone selects it */
  LM_CLASSES_LARGE = 32,             /* large classes: LM_CLASSES to LM_CLASSES_ALL - 1 */
  LM_CLASSES_ALL = LM_CLASSES + LM_CLASSES_LARGE
};
#define LM_SMALL_MAX ((size_t)64 << 10) /* bytes of the largest small request */
/* Up to 56 KiB, the largest request that a class serves is exactly as long as its objects. */
#define LM_SMALL_EVEN ((size_t)56 << 10)
/* Bytes of the largest small object in a pool whose memory is paid for before it is touched
 * (lm_region_is_eager). Larger requests get a large block there, so that less memory is unused. */
#define LM_SMALL_EAGER ((size_t)32 << 10)
#define LM_LARGE_MAX ((size_t)32 << 20) /* bytes of the largest block that has a class */

/* A thread's decision cache has an entry of LM_DECISION_STEP bytes for each class of a site. The
 * low bits of an entry's key are the byte offset of the entry, so a key gives the place of its
 * entry without a multiplication. The keys of two neighbouring sites differ by LM_DECISION_STRIDE:
 * one step for each class, and one more. */
enum { LM_DECISION_STEP = 32, LM_DECISION_STRIDE = (LM_CLASSES_ALL + 1) * LM_DECISION_STEP };

/* Entry i: the class of requests of 16 * (i - 1) + 1 to 16 * i bytes, times LM_DECISION_STEP. */
extern const uint16_t lm_class_steps[LM_SMALL_MAX / 16 + 1] __attribute__((visibility("hidden")));

/* Returns the least class whose objects hold `size` bytes. `size` is at most LM_SMALL_MAX. */
LM_INLINE unsigned lm_class_of(size_t size) {
  lm_assert(size <= LM_SMALL_MAX);
  return lm_class_steps[(size + 15) / 16] / LM_DECISION_STEP;
}

/* Returns the bytes of an object of a small class. */
LM_INLINE size_t lm_class_size(unsigned class_) {
  lm_assert(class_ < LM_CLASSES);
  if (class_ < 8) return 16 * (size_t)(class_ + 1);
  if (class_ >= LM_CLASS_SKEWED)
    return LM_SMALL_MAX + (class_ == LM_CLASS_SKEWED ? LM_CACHE_LINE : LM_PAGE);
  return (size_t)(5 + class_ % 4) << (class_ / 4 + 3);
}

/* Returns the largest request, in bytes, that a small class serves. */
LM_INLINE size_t lm_class_max_size(unsigned class_) {
  return class_ < LM_CLASS_SKEWED ? lm_class_size(class_) : LM_SMALL_MAX;
}
/* Returns the smallest request, in bytes, that a small class serves. A request with an alignment
 * may be smaller: it is rounded up to a multiple of its alignment before its class is chosen. */
LM_INLINE size_t lm_class_min_size(unsigned class_) {
  if (class_ >= LM_CLASS_SKEWED) return LM_SMALL_EVEN + 1;
  return class_ ? lm_class_size(class_ - 1) + 1 : 0;
}

/* Returns the small class whose objects have exactly `usable` bytes. */
LM_INLINE unsigned lm_class_of_usable(size_t usable) {
  if (lm_likely(usable <= LM_SMALL_EVEN)) return lm_class_of(usable);
  return usable == lm_class_size(LM_CLASS_SKEWED) ? LM_CLASS_SKEWED : LM_CLASS_ALIGNED;
}

/* Returns whether an object with `usable` bytes is a good place for `size` bytes: the bytes fit,
 * and they need more than half of the object, or the object is small (at most 64 bytes). */
LM_INLINE bool lm_class_fits(size_t usable, size_t size) {
  return size <= usable && (size > usable / 2 || usable <= 64);
}

/* Returns the number of slots of a block of a large class. */
LM_INLINE uint32_t lm_class_slots(unsigned class_) {
  lm_assert(class_ >= LM_CLASSES && class_ < LM_CLASSES_ALL);
  unsigned c = class_ - LM_CLASSES;
  return c < 8 ? c + 1 : (5 + c % 4) << (c / 4 - 1);
}

/* Returns the least large class whose blocks hold `size` bytes: at least 1, at most LM_LARGE_MAX. A
 * size below LM_SMALL_MAX is allowed, since pools with paid memory have blocks of one slot for it.
 */
LM_INLINE unsigned lm_class_large(size_t size) {
  lm_assert(size > 0 && size <= LM_LARGE_MAX);
  unsigned last = (unsigned)((size - 1) >> 16); /* index of the slot of the last byte */
  if (last < 8) return LM_CLASSES + last;
  unsigned shift = 29 - (unsigned)__builtin_clz(last);
  return LM_CLASSES + 4 * shift + (last >> shift);
}

/* ---- Classes of figures ------------------------------------------------------------------- */

/* Statistics group blocks of every size by class: the small and large classes above, and beyond
 * LM_LARGE_MAX four classes for each doubling, up to 128 TiB. Figures never name LM_CLASS_ALIGNED:
 * its objects are grouped by their bytes, with the blocks of up to two slots. */
enum {
  LM_CLASSES_COUNTED = LM_CLASSES + 120, /* of figures: 0 to LM_CLASSES_COUNTED - 1 */
  LM_CLASS_UNKNOWN = 255                 /* of figures that are not grouped by class */
};

/* Returns the class of figures for a block of `size` usable bytes that no pool made. A block above
 * LM_SIZE_MAX gets the last class. */
LM_INLINE unsigned lm_class_counted(size_t size) {
  if (size <= LM_SMALL_MAX) return lm_class_of(size);
  if (size > LM_SIZE_MAX) return LM_CLASSES_COUNTED - 1;
  size_t last = (size - 1) >> 16;
  if (last < 8) return LM_CLASSES + (unsigned)last;
  unsigned shift = 61 - (unsigned)__builtin_clzll(last);
  return LM_CLASSES + 4 * shift + (unsigned)(last >> shift);
}

/* Like lm_class_counted, for a block of a pool: the objects of LM_CLASS_SKEWED, and no other blocks
 * of a pool, have a cache line more than 64 KiB. */
LM_INLINE unsigned lm_class_counted_object(size_t usable) {
  if (usable == LM_SMALL_MAX + LM_CACHE_LINE) return LM_CLASS_SKEWED;
  return lm_class_counted(usable);
}

/* Returns the class of figures for the objects of a small or large class. */
LM_INLINE unsigned lm_class_counted_as(unsigned class_) {
  lm_assert(class_ < LM_CLASSES_ALL);
  return class_ == LM_CLASS_ALIGNED ? LM_CLASSES + 1 : class_;
}

/* Returns the smallest and the largest request, in bytes, of a class of figures. All sizes belong
 * to LM_CLASS_UNKNOWN. */
size_t lm_class_counted_from(unsigned class_);
size_t lm_class_counted_to(unsigned class_);

#endif
