/* child_tests.h - tests that each run in a process of their own, on the stand-in for a GPU driver.
 * loam finds or chooses some things once in a process; such a test finds them for the first
 * time. */
#ifndef CHILD_TESTS_H
#define CHILD_TESTS_H

#include <string.h>

#include "loam.h"
#include "names.h"
#include "standin.h"
#include "test.h"

enum { MIB = 1 << 20, FAILED = 1 };

/* Checks a condition in a child process, and ends the child if it does not hold. A failed assertion
 * of cmocka would instead go on with the other tests in the child. */
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

/* Runs the body of a test in a child that has not used the driver yet. Checks that the stand-in has
 * seen no wrong call. */
static inline int run_test_body(void *body) {
  ((void (*)(void))body)();
  want(standin_violations() == 0);
  return 0;
}

#define TEST(name)                                                         \
  static void name##_body(void);                                           \
  static void name(void **state) {                                         \
    (void)state;                                                           \
    assert_int_equal(run_in_child(run_test_body, (void *)name##_body), 0); \
  }                                                                        \
  static void name##_body(void)

#endif
