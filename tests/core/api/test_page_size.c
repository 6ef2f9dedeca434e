/* test_page_size.c - on a kernel with larger pages loam says so, and gives no memory. */
#include <errno.h>
#include <sys/auxv.h>

#include "loam.h"
#include "test.h"

/* Takes the place of the C library's function, as far as loam asks it. */
unsigned long getauxval(unsigned long type) { return type == AT_PAGESZ ? 64 << 10 : 0; }

static void a_start_fails_and_names_the_pages(void **state) {
  (void)state;
  assert_int_equal(loam_start(NULL), LOAM_EUNSUPPORTED);
  assert_string_equal(loam_error(), "loam needs a kernel with pages of 4 KiB: this one has 64");
}

static void a_request_without_a_start_gets_no_memory(void **state) {
  (void)state;
  errno = 0;
  assert_null(loam_malloc(NULL, 10));
  assert_int_equal(errno, ENOMEM);
  assert_null(loam_calloc(NULL, 10, 1 << 20));
  loam_free(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_start_fails_and_names_the_pages),
    cmocka_unit_test(a_request_without_a_start_gets_no_memory),
  };
  return cmocka_run_group_tests_name("page_size", tests, NULL, NULL);
}
