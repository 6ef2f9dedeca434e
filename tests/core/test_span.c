/* test_span - what a new span of a store touches. */
#include <stdint.h>
#include <stdio.h>

#include "map.h"
#include "pool.h"
#include "sys.h"
#include "test.h"

enum { TOKEN = 2, SPANS = 40, PAGES = LM_SLOT / LM_PAGE };

static lm_strategy *strategy_called(const char *name) {
  lm_strategy *s;
  lm_desc desc = { 0 };
  snprintf(desc.name, sizeof desc.name, "%s", name);
  assert_int_equal(lm_strategy_intern(&desc, &s), LOAM_OK);
  return s;
}

/* How many pages of the span of an object have memory. */
static int touched_pages(const void *p) {
  unsigned char in[PAGES];
  int n = 0;
  if (lm_sys_touched((void *)lm_align_down((uintptr_t)p, LM_SLOT), LM_SLOT, in)) return -1;
  for (int i = 0; i < PAGES; i++) n += in[i] & 1;
  return n;
}

/* Takes objects until so many slots have been begun, which are spans if the objects are small. The
 * latest object. */
static void *begin_slots(lm_strategy *s, size_t size, int slots) {
  lm_thread *t = lm_thread_get();
  uintptr_t latest = 0;
  void *p = NULL;
  for (int begun = 0; begun < slots;) {
    bool zeroed;
    p = lm_pool_alloc(t, s, size, 16, TOKEN, &zeroed);
    assert_non_null(p);
    uintptr_t slot = (uintptr_t)p / LM_SLOT;
    begun += slot != latest;
    latest = slot;
  }
  return p;
}

static bool can_fault_ahead(void) {
  static char page[2 * LM_PAGE];
  return !lm_sys_prefault((void *)lm_align_up((uintptr_t)page, LM_PAGE), LM_PAGE);
}

static void a_class_that_has_grown_has_the_pages_of_a_span_at_once(void **state) {
  (void)state;
  if (!can_fault_ahead()) {
    print_message("skipped: the kernel has no MADV_POPULATE_WRITE\n");
    skip();
  }
  void *p = begin_slots(strategy_called("dense"), 1024, SPANS);
  assert_int_equal(touched_pages(p), PAGES);
}

static void a_class_that_is_small_has_them_one_by_one(void **state) {
  (void)state;
  assert_in_range(touched_pages(begin_slots(strategy_called("few"), 1024, 1)), 0, PAGES / 2);
}

/* Of which most pages may never be touched. */
static void objects_of_many_pages_have_those_that_are_touched(void **state) {
  (void)state;
  assert_in_range(touched_pages(begin_slots(strategy_called("sparse"), 32768, 8 * SPANS)), 0, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_class_that_has_grown_has_the_pages_of_a_span_at_once),
    cmocka_unit_test(a_class_that_is_small_has_them_one_by_one),
    cmocka_unit_test(objects_of_many_pages_have_those_that_are_touched),
  };
  return cmocka_run_group_tests_name("span", tests, NULL, NULL);
}
