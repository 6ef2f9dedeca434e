/* filled.h - blocks with a pattern, which a move of memory must keep. */
#ifndef FILLED_H
#define FILLED_H

#include "test.h"

/* Allocates a block of a tag and writes a pattern to it. */
static inline char *filled(const char *tag, size_t size) {
  char *p = loam_malloc(loam_site_get(tag), size);
  assert_non_null(p);
  for (size_t i = 0; i < size; i += 61) p[i] = (char)(i * 7);
  return p;
}

/* Checks that a block still has the pattern of `filled`. */
static inline void is_filled(const char *p, size_t size) {
  for (size_t i = 0; i < size; i += 61) assert_int_equal(p[i], (char)(i * 7));
}

#endif
