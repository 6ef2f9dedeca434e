/* test_pages.c - tests the options huge, prefault and lock: /proc/self/smaps and move_pages(2) say
 * which pages a block has. */
#include "pages.h"

enum { LARGE = 8 << 20 };

#define POLICY(options)                              \
  "local s = loam.host { name = 's', " options "}\n" \
  "return loam.policy { name = 'p', pick = function() return s end }\n"

static const char thp[] = "/sys/kernel/mm/transparent_hugepage/enabled";

static char *take(const char *text, size_t size) {
  load_policy(text);
  char *p = loam_malloc(NULL, size);
  assert_non_null(p);
  return p;
}

/* Returns the kB of huge pages in the mappings of a block. A mapping may also contain other memory
 * of its strategy. */
static long huge_of(const void *p, size_t size) { return smaps(p, size, "AnonHugePages"); }

static void thp_is_used_on_request(void **state) {
  (void)state;
  char *p = take(POLICY("huge = 'thp'"), LARGE);
  memset(p, 1, LARGE);
  assert_int_equal((uintptr_t)p % (2 << 20), 0);
  assert_in_range(huge_of(p, LARGE), LARGE / 1024, 1 << 20);
  p = loam_realloc(NULL, p, 3 * LARGE);
  memset(p, 1, 3 * LARGE);
  assert_in_range(huge_of(p, 3 * LARGE), 3 * LARGE / 1024, 1 << 20);
  loam_free(p);
  p = take(POLICY("align = 32"), LARGE); /* the machine's mode is madvise */
  memset(p, 1, LARGE);
  assert_int_equal(huge_of(p, LARGE), 0);
  loam_free(p);
  loam_trim();
}

static void thp_is_kept_out_where_it_is_refused(void **state) {
  (void)state;
  set(thp, "always");
  char *p = take(POLICY("huge = false"), LARGE);
  memset(p, 1, LARGE);
  assert_int_equal(huge_of(p, LARGE), 0);
  loam_free(p);
  p = take(POLICY("align = 128"), LARGE); /* without the option `huge`, the kernel's mode decides */
  memset(p, 1, LARGE);
  assert_in_range(huge_of(p, LARGE), 1024, 1 << 20);
  loam_free(p);
  set(thp, "madvise");
  loam_trim();
}

static void pages_of_2_mib_are_exactly_that(void **state) {
  (void)state;
  if (nodes() != 4) skip();
  char *p = take(POLICY("huge = '2MiB'"), LARGE);
  memset(p, 1, LARGE);
  assert_int_equal(smaps(p, 1, "KernelPageSize"), 2048);
  assert_in_range(smaps(p, LARGE / 2, "Private_Hugetlb"), LARGE / 1024, 1 << 20);
  loam_free(p);
  loam_trim();
  for (unsigned node = 0; node < NODES; node++) {
    char text[200];
    snprintf(text, sizeof text, POLICY("huge = '2MiB', numa = %u"), node);
    p = take(text, LARGE);
    memset(p, 1, LARGE);
    assert_int_equal(smaps(p, 1, "KernelPageSize"), 2048);
    assert_on(p, LARGE, 1u << node);
    loam_free(p);
    loam_trim();
  }
}

static void pages_of_1_gib_are_refused_where_there_are_none(void **state) {
  (void)state;
  const char *text = "local a = loam.host { name = 'a', huge = '1GiB' }\n"
                     "local b = loam.host { name = 'b' }\n"
                     "return loam.policy { name = 'p', pick = function()\n"
                     "  return a:or_else(b) end }\n";
  char *p = take(text, LARGE);
  loam_owner_info owner;
  assert_int_equal(loam_owner(p, &owner), LOAM_OK);
  assert_string_equal(owner.strategy, "b");
  loam_free(p);
}

/* Prefaulted pages have memory before the program touches them. */
static void prefaulted_memory_is_there_at_once(void **state) {
  (void)state;
  char *p = take(POLICY("prefault = true"), LARGE);
  assert_int_equal(where_is(p, LARGE).other, 0);
  p = loam_realloc(NULL, p, 2 * LARGE);
  assert_int_equal(where_is(p, 2 * LARGE).other, 0);
  loam_free(p);
  p = take(POLICY("numa = 0, prefault = true"), LARGE);
  assert_on(p, LARGE, 1 << 0);
  loam_free(p);
  for (int i = 0; i < 200; i++) {
    p = loam_malloc(NULL, 5000);
    assert_on(p, 5000, 1 << 0);
    loam_free(p);
  }
  p = take(POLICY("align = 64"), LARGE);
  assert_in_range(where_is(p, LARGE).other, LARGE / PAGE - 2, LARGE / PAGE);
  loam_free(p);
  loam_trim();
}

static void locked_memory_is_locked_until_it_is_freed(void **state) {
  (void)state;
  char *p = take(POLICY("lock = true"), LARGE / 2);
  assert_int_equal(where_is(p, LARGE / 2).other, 0);
  assert_in_range(smaps(p, LARGE / 2, "Locked"), LARGE / 2048, 1 << 20);
  loam_free(p);
  char *small = loam_malloc(NULL, 100);
  assert_in_range(smaps(small, 100, "Locked"), 4, 1 << 20);
  loam_free(small);
  load_policy(POLICY("align = 256"));
  loam_trim();
  /* Memory that was locked serves another strategy, and is not locked any more. */
  p = loam_malloc(NULL, LARGE);
  memset(p, 1, LARGE);
  assert_int_equal(smaps(p, LARGE / 2, "Locked"), 0);
  loam_free(p);
}

int main(void) {
  begin();
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(thp_is_used_on_request),
    cmocka_unit_test(thp_is_kept_out_where_it_is_refused),
    cmocka_unit_test(pages_of_2_mib_are_exactly_that),
    cmocka_unit_test(pages_of_1_gib_are_refused_where_there_are_none),
    cmocka_unit_test(prefaulted_memory_is_there_at_once),
    cmocka_unit_test(locked_memory_is_locked_until_it_is_freed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
