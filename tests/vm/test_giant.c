/* test_giant.c - tests pages of 1 GiB. The machine with two nodes reserves one such page, on node
 * 1. */
#include "pages.h"

#define GIB ((size_t)1 << 30)
#define PIECE (GIB / 64)
#define CHAIN(options)                                   \
  "local a = loam.host { name = 'first', " options "}\n" \
  "local b = loam.host { name = 'second' }\n"            \
  "return loam.policy { name = 'p', pick = function() return a:or_else(b) end }\n"

static const char free_file[] = "/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages";

static void is_giant(const void *p, size_t size) {
  assert_string_equal(strategy_of(p), "first");
  assert_int_equal(smaps(p, size, "KernelPageSize"), 1048576);
  assert_on(p, size, 1 << 1);
}

static void is_second(void *p) {
  assert_non_null(p);
  assert_string_equal(strategy_of(p), "second");
  assert_int_equal(smaps(p, 1, "KernelPageSize"), 4);
  loam_free(p);
}

static void is_given_back(void) {
  loam_trim();
  assert_int_equal(number_in(free_file), 1);
}

static uint64_t failed, served_late;

static void add_got(void *ctx, const loam_got *got) {
  (void)ctx;
  if (!strcmp(got->strategy, "first")) failed = got->failed;
  if (!strcmp(got->strategy, "second")) served_late = got->served_late;
}

static void look(void) {
  failed = served_late = 0;
  assert_int_equal(loam_got_each(add_got, NULL), LOAM_OK);
}

/* One block takes the machine's only page of 1 GiB. The next strategy of the chain serves the next
 * request, and loam counts the failure and the fallback. */
static void a_second_block_falls_back(void **state) {
  (void)state;
  assert_int_equal(number_in(free_file), 1);
  load_policy(CHAIN("huge = '1GiB'"));
  struct loam_stats before, after;
  char *p = loam_malloc(NULL, GIB);
  assert_non_null(p);
  assert_int_equal((uintptr_t)p % GIB, 0);
  for (size_t i = 0; i < GIB; i += PIECE) p[i] = (char)(i / PIECE);
  is_giant(p, GIB);
  long shared = smaps(p, GIB, "Shared_Hugetlb"), alone = smaps(p, GIB, "Private_Hugetlb");
  if (shared + alone != 1048576) fail_msg("of 1 GiB, %ld kB shared and %ld private", shared, alone);
  assert_int_equal(number_in(free_file), 0);
  look();
  uint64_t failed_before = failed, late_before = served_late;
  assert_int_equal(loam_stats(&before), LOAM_OK);
  is_second(loam_malloc(NULL, 4 << 20));
  assert_int_equal(loam_stats(&after), LOAM_OK);
  assert_int_equal(after.fallbacks, before.fallbacks + 1);
  look();
  assert_int_equal(failed, failed_before + 1);
  assert_int_equal(served_late, late_before + 1);
  for (size_t i = 0; i < GIB; i += PIECE) assert_int_equal(p[i], (char)(i / PIECE));
  loam_free(p);
  is_given_back();
}

static void small_and_large_blocks_share_one(void **state) {
  (void)state;
  enum { OBJECTS = 1000, LARGE = 24 << 20 };
  static char *object[OBJECTS];
  load_policy(CHAIN("huge = '1GiB'"));
  for (int i = 0; i < OBJECTS; i++) {
    object[i] = loam_malloc(NULL, 100);
    assert_non_null(object[i]);
    memset(object[i], i, 100);
  }
  char *large = loam_malloc(NULL, LARGE);
  memset(large, 1, LARGE);
  large = loam_realloc(NULL, large, 2 * LARGE);
  is_giant(large, 2 * LARGE);
  for (int i = 0; i < OBJECTS; i++) {
    assert_string_equal(strategy_of(object[i]), "first");
    assert_int_equal((uintptr_t)object[i] / GIB, (uintptr_t)large / GIB);
    assert_int_equal(object[i][99], (char)i);
    loam_free(object[i]);
  }
  loam_free(large);
  is_given_back();
}

/* A block of more than 1 GiB needs two pages, but the machine has one. */
static void a_block_of_two_giant_pages_falls_back(void **state) {
  (void)state;
  load_policy(CHAIN("huge = '1GiB'"));
  is_second(loam_malloc(NULL, GIB + 1));
  assert_int_equal(number_in(free_file), 1);
  load_policy("local a = loam.host { name = 'first', huge = '1GiB' }\n"
              "return loam.policy { name = 'p', pick = function() return a end }\n");
  usleep(50000); /* for 10 ms after a refusal, loam does not ask the kernel again */
  char *p = loam_malloc(NULL, 100);
  assert_non_null(p);
  assert_null(loam_malloc(NULL, GIB));
  assert_non_null(strstr(loam_error(), "first"));
  loam_free(p);
  is_given_back();
}

/* The machine's page of 1 GiB is on node 1. */
static void giant_pages_follow_numa(void **state) {
  (void)state;
  static const char *const there[] = { CHAIN("huge = '1GiB', numa = 1"),
                                       CHAIN("huge = '1GiB', numa = { 0, 1 }") };
  for (int i = 0; i < 2; i++) {
    load_policy(there[i]);
    char *p = loam_malloc(NULL, 6 << 20);
    assert_non_null(p);
    assert_int_equal(where_is(p, 6 << 20).other, 0);
    memset(p, 1, 6 << 20);
    is_giant(p, 6 << 20);
    loam_free(p);
    is_given_back();
  }
  load_policy(CHAIN("huge = '1GiB', numa = 0"));
  is_second(loam_malloc(NULL, 6 << 20));
  is_second(loam_malloc(NULL, 100));
  assert_int_equal(number_in(free_file), 1);
}

int main(void) {
  begin();
  only_with_nodes(2);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_second_block_falls_back),
    cmocka_unit_test(small_and_large_blocks_share_one),
    cmocka_unit_test(a_block_of_two_giant_pages_falls_back),
    cmocka_unit_test(giant_pages_follow_numa),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
