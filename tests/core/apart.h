/* apart.h - tests that are a process each, on the stand-in for a GPU's driver: what is found or
 * chosen once in a process is found anew. */
#ifndef APART_H
#define APART_H

#include <string.h>

#include "loam.h"
#include "names.h"
#include "standin.h"
#include "test.h"

enum { MIB = 1 << 20, FAILED = 1 };

/* In a child, where cmocka's own would go on with the other tests. */
#define want(condition)                                                                       \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      print_message("%s:%d: not true: %s (\"%s\", \"%s\")\n", __FILE__, __LINE__, #condition, \
                    loam_error(), standin_violation());                                       \
      _exit(FAILED);                                                                          \
    }                                                                                         \
  } while (0)

#define ok(call) want((call) == LOAM_OK)

static inline bool says(const char *words) { return strstr(loam_error(), words); }

/* Runs a test's body in a process that has not touched the driver; nothing may be violated. */
static inline int whole(void *body) {
  ((void (*)(void))body)();
  want(standin_violations() == 0);
  return 0;
}

#define TEST(name)                                                 \
  static void name##_body(void);                                   \
  static void name(void **state) {                                 \
    (void)state;                                                   \
    assert_int_equal(run_in_child(whole, (void *)name##_body), 0); \
  }                                                                \
  static void name##_body(void)

#endif
