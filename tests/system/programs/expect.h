/* expect.h - how the small programs say that something is not as it must be. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define expect(e)                                                       \
  do {                                                                  \
    if (!(e)) {                                                         \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #e); \
      _exit(1);                                                         \
    }                                                                   \
  } while (0)

/* Keeps the compiler from taking away an allocation that nothing reads. */
static inline void *kept(void *p) {
  __asm__ volatile("" : "+r"(p) : : "memory");
  return p;
}

#endif
