/* hash.h - FNV-1a, a hash of bytes: http://www.isthe.com/chongo/tech/comp/fnv/ */
#ifndef LM_HASH_H
#define LM_HASH_H

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

#endif
