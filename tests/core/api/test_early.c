/* test_early.c - requests that come before every constructor of the process. */
#include <errno.h>

#include "loam.h"
#include "test.h"

/* A low address is outside every range of loam, and no memory is there that loam could read. The
 * free comes first: an allocation would prepare the thread. */
static bool served_early;
static int errno_after;
static void allocate_early(void) {
  if (SANITIZED) return; /* the sanitizer itself is not ready */
  loam_free((void *)0x12345670);
  errno = E2BIG;
  void *block = loam_malloc(NULL, 10);
  errno_after = errno;
  served_early = block && loam_owns(block);
  loam_free(block);
}
__attribute__((section(".preinit_array"), used)) static void (*const early)(void) = allocate_early;

static void serves_before_any_constructor(void **state) {
  (void)state;
  skip_if_sanitized();
  assert_true(served_early);
}

/* The first request starts loam, which makes system calls that fail. */
static void the_first_request_keeps_errno(void **state) {
  (void)state;
  skip_if_sanitized();
  assert_int_equal(errno_after, E2BIG);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(serves_before_any_constructor),
    cmocka_unit_test(the_first_request_keeps_errno),
  };
  return cmocka_run_group_tests_name("early", tests, NULL, NULL);
}
