/* expect.h - expect() and kept(), which the test programs share. expect(E) ends the program with a
 * message if E is false. */
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

/* Returns `p`. Keeps the compiler from removing an allocation whose result is not used. */
static inline void *kept(void *p) {
  __asm__ volatile("" : "+r"(p) : : "memory");
  return p;
}

#endif
