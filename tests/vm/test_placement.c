/* test_placement - each form of `numa`, as the kernel tells it page by page. */
#include "pages.h"

#define POLICY(options)                              \
  "local s = loam.host { name = 's', " options "}\n" \
  "return loam.policy { name = 'p', pick = function() return s end }\n"

enum { LARGE = 4 << 20 };

/* Of a block that was made and filled by the calling thread. */
static void large_is_on(unsigned mask) {
  char *p = loam_malloc(NULL, LARGE);
  assert_non_null(p);
  memset(p, 1, LARGE);
  assert_on(p, LARGE, mask);
  loam_free(p);
}

static void a_number_is_that_node(void **state) {
  (void)state;
  skip_unless_nodes(4);
  run_on_node(0);
  policy(POLICY("numa = 2"));
  large_is_on(1 << 2);
  policy(POLICY("numa = 3"));
  large_is_on(1 << 3);
}

int main(void) {
  (void)nodes();
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_number_is_that_node),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
