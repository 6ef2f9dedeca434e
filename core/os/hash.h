/* hash.h - two hash functions: FNV-1a for bytes (http://www.isthe.com/chongo/tech/comp/fnv/), and
 * multiples of the golden ratio for small numbers. */
#ifndef LM_HASH_H
#define LM_HASH_H

#include <string.h>

#include "os/base.h"

/* The hash of no bytes. */
#define LM_HASH_NONE ((uint64_t)0xcbf29ce484222325u)

/* Returns the hash of the bytes behind those whose hash is `h`. */
LM_INLINE uint64_t lm_hash_more(uint64_t h, const void *bytes, size_t size) {
  for (size_t i = 0; i < size; i++) h = (h ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
  return h;
}

LM_INLINE uint64_t lm_hash_bytes(const void *bytes, size_t size) {
  return lm_hash_more(LM_HASH_NONE, bytes, size);
}

/* Like lm_hash_more, but takes eight bytes at a time, in the machine's order, and so an eighth of
 * the time. Zeros fill the last eight, so bytes that differ only in zeros at their end have equal
 * hashes. A multiplication carries bits upward only. So the upper half is added to the lower one
 * after it. */
LM_INLINE uint64_t lm_hash_words(uint64_t h, const void *bytes, size_t size) {
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    uint64_t word = 0, left = size - at;
    if (lm_likely(left >= sizeof word)) memcpy(&word, (const char *)bytes + at, sizeof word);
    else memcpy(&word, (const char *)bytes + at, left);
    h = (h ^ word) * 0x100000001b3u;
    h ^= h >> 32;
  }
  return h;
}

/* Returns a number below `most`. The results for consecutive n are evenly spread and follow no
 * period: they are the upper bits of multiples of the golden ratio (Knuth, The Art of Computer
 * Programming, 6.4). */
LM_INLINE uint64_t lm_hash_below(uint64_t n, uint32_t most) {
  return ((n * 0x9e3779b97f4a7c15u >> 32) * most) >> 32;
}

#endif
