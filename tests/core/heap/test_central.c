/* test_central.c - the central lists: how objects are taken and given back, and the pages that a
 * new span touches. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "chance.h"
#include "heap/pool.h"
#include "heap/pools.h"
#include "heap/tcache_slow.h"
#include "os/decay.h"
#include "os/sys.h"
#include "pages/map.h"
#include "test.h"

enum { TOKEN = 2, SPANS = 40, PAGES = LM_SLOT / LM_PAGE };

static uint64_t seed = 3;

static lm_strategy *strategy_called(const char *name) {
  lm_strategy *s;
  lm_desc desc = { 0 };
  snprintf(desc.name, sizeof desc.name, "%s", name);
  assert_int_equal(lm_strategy_intern(&desc, &s), LOAM_OK);
  return s;
}

static lm_pool *pool_called(const char *name) {
  lm_pool *pool = lm_pool_for(strategy_called(name));
  assert_non_null(pool);
  return pool;
}

/* ---- Taking objects and giving them back ---- */

/* Takes n objects, by as many calls as that needs. */
static void pull(lm_central *list, lm_cached_object *item, uint32_t n) {
  for (uint32_t got = 0, more; got < n; got += more) {
    more = lm_central_pull(list, 0, item + got, n - got);
    assert_in_range(more, 1, n - got);
  }
}

/* Returns whether object i stays taken. The patterns make words of eight states that are all free
 * or all used, and mixed words. */
static bool stays_taken(int pattern, uint32_t i) {
  switch (pattern) {
    case 0: return i % 2;
    case 1: return i / 8 % 2;
    case 2: return i % 17 == 3;
    default: return chance(&seed, 3);
  }
}

static void draws_all_that_is_free_in_the_spans_there_are(void **state) {
  (void)state;
  lm_pool *pool = pool_called("partly free");
  for (int pattern = 0; pattern < 4; pattern++) {
    unsigned class_ = lm_class_of(16 + 48 * (size_t)pattern);
    uint32_t n = 2 * lm_central_span_count(class_), kept = 0, rest;
    lm_central *list = &pool->central[class_];
    lm_cached_object *item = malloc(n * sizeof *item);
    assert_non_null(item);
    pull(list, item, n);
    for (uint32_t i = 0; i < n; i++)
      if (stays_taken(pattern, i)) item[kept++] = item[i];
      else lm_central_push(list, &item[i], 1);
    lm_central_trim(list);
    assert_int_equal(list->spans, 2);
    for (rest = n - kept; rest > 0; rest -= rest < 5 ? rest : 5)
      pull(list, &item[n - rest], rest < 5 ? rest : 5);
    assert_int_equal(list->spans, 2);
    lm_central_push(list, item, n);
    assert_true(lm_central_drain(list));
    free(item);
  }
}

/* Takes `n` objects of a class from its central list, and gives them back as idle ones. */
static void pull_and_return(lm_central *list, uint32_t n) {
  lm_cached_object *item = malloc(n * sizeof *item);
  assert_non_null(item);
  pull(list, item, n);
  lm_central_return(list, item, n);
  free(item);
}

static void what_one_class_has_left_another_has_before_fresh_memory(void **state) {
  (void)state;
  enum { FEW = 4 };
  lm_pool *pool = pool_called("left by others");
  unsigned from = lm_class_of(64), to = lm_class_of(96);
  pull_and_return(&pool->central[from], FEW * lm_central_span_count(from));
  assert_int_equal(pool->central[from].empties, FEW);
  uint32_t fresh = pool->regions.clean.slots;
  pull_and_return(&pool->central[to], FEW * lm_central_span_count(to));
  assert_int_equal(pool->regions.clean.slots, fresh);
  assert_int_equal(pool->central[from].empties, 0);
  assert_int_equal(pool->central[to].empties, FEW);
}

/* The slots of the span return to the range. The remaining spans and slots are still counted
 * correctly. */
static void an_abandoned_span_ends_with_its_last_object(void **state) {
  (void)state;
  lm_pool *pool = pool_called("abandoned");
  unsigned class_ = lm_class_of(1024);
  uint32_t n = lm_central_span_count(class_), slots = lm_central_span_slots(class_);
  lm_central *list = &pool->central[class_];
  lm_cached_object *item = malloc(n * sizeof *item);
  assert_non_null(item);
  pull(list, item, n);
  uint32_t slot = lm_map_slot(item[0].p), held = pool->regions.held, spare = pool->regions.spare;
  lm_central_return(list, item, 1);
  assert_true(lm_central_detach(list, slot, lm_tcache_bin_offset(0, class_)));
  lm_central_abandon(list, slot);
  assert_true(lm_central_has_abandoned(slot));
  assert_false(lm_central_drain(list));
  assert_int_equal(list->detached, 0);
  for (uint32_t i = 1; i < n; i++) {
    assert_int_equal(list->spans, 1);
    assert_int_equal(pool->regions.held, held);
    assert_true(lm_central_free_detached(list, item[i]));
  }
  assert_int_equal(list->spans, 0);
  assert_int_equal(list->empties, 0);
  assert_int_equal(pool->regions.held, held - slots);
  assert_int_equal(pool->regions.spare, spare);
  free(item);
}

static void keeps_what_others_have_left_while_touched_memory_is_free(void **state) {
  (void)state;
  lm_pool *pool = pool_called("kept from others");
  unsigned keeps = lm_class_of(64), takes = lm_class_of(96);
  uint32_t slots = lm_central_span_slots(takes);
  pull_and_return(&pool->central[keeps], lm_central_span_count(keeps));
  bool clean;
  uint32_t slot = lm_regions_take(&pool->regions, slots, LM_SLOT, &clean);
  assert_true(slot);
  lm_regions_put(&pool->regions, slot, slots);
  pull_and_return(&pool->central[takes], lm_central_span_count(takes));
  assert_int_equal(pool->central[keeps].empties, 1);
}

static void objects_in_no_demand_go_past_the_depot(void **state) {
  (void)state;
  lm_pool *pool = pool_called("past the depot");
  lm_central *list = &pool->central[lm_class_of(80)];
  pull_and_return(list, 10);
  assert_null(list->depot);
  assert_int_equal(list->stocked, 0);
}

/* Of large objects only a few are taken at a time, because other threads cannot use the objects
 * that one thread has taken. */
static void few_large_objects_are_drawn_from_spans_at_once(void **state) {
  (void)state;
  lm_central *list = &pool_called("drawn")->central[lm_class_of(4096)];
  lm_cached_object item[32];
  assert_int_equal(lm_central_pull(list, 0, item, 32), 16);
  assert_int_equal(lm_central_pull(list, 0, item + 16, 16), 16);
  lm_central_push(list, item, 32);
  assert_int_equal(list->stocked, 32);
  assert_int_equal(lm_central_pull(list, 0, item, 20), 20);
  assert_int_equal(lm_central_pull(list, 0, item + 20, 20), 12);
  lm_central_push(list, item, 32);
  assert_true(lm_central_drain(list));
}

/* The law of draining (central.h), in a process without a service thread: a bin holds at most a
 * 16th of the objects that were outside the list before the latest ones came back, and no span
 * waits for threads that take objects. Otherwise bins and such spans would keep the memory of a
 * thread that sleeps. */
static void bins_get_narrower_while_a_list_drains(void **state) {
  enum { N = 2000, BATCH = 50 };
  static lm_cached_object item[N];
  (void)state;
  lm_decay_note_unserved();
  lm_central *list = &pool_called("narrower")->central[lm_class_of(1024)];
  pull(list, item, N);
  assert_int_equal(lm_central_bin_most(list), 0);
  uint32_t back = 0;
  for (; back < N - 100; back += BATCH) lm_central_push(list, item + back, BATCH);
  assert_int_equal(lm_central_bin_most(list), (100 + BATCH) / 16);
  lm_central_push(list, item + back, 90);
  assert_int_equal(lm_central_bin_most(list), 100 / 16);
  lm_central_push(list, item + back + 90, 10);
  assert_int_equal(lm_central_bin_most(list), LM_CENTRAL_NONE);
  for (int i = 0; i < LM_CENTRAL_CURRENT; i++) assert_int_equal(list->current[i], 0);
  pull(list, item, 1);
  assert_int_equal(lm_central_bin_most(list), 0);
  lm_central_return(list, item, 1);
  assert_true(lm_central_drain(list));
  lm_decay_note_served(lm_sys_clock_ns() + AN_HOUR);
}

/* A program that takes a drained list's objects again soon does so periodically: the list does not
 * drain the next time, until a tick finds it idle. */
static void a_list_that_is_taken_again_does_not_drain(void **state) {
  enum { N = 2000, BATCH = 50 };
  static lm_cached_object item[N];
  (void)state;
  lm_decay_note_unserved();
  lm_central *list = &pool_called("periodic")->central[lm_class_of(1024)];
  for (int round = 0; round < 3; round++) {
    pull(list, item, N);
    assert_int_equal(list->keeps, round > 0);
    for (uint32_t i = 0; i < N; i += BATCH) lm_central_push(list, item + i, BATCH);
    bool drains = lm_central_bin_most(list) == BATCH / 16;
    assert_int_equal(drains, round == 0);
  }
  while (lm_central_decay(list)) continue;
  assert_false(list->keeps);
  assert_true(lm_central_drain(list));
  lm_decay_note_served(lm_sys_clock_ns() + AN_HOUR);
}

/* ---- The place of a new span, and the pages that it touches ---- */

/* Returns the number of resident pages in the span of an object. */
static int touched_pages(const void *p) {
  unsigned char in[PAGES];
  int n = 0;
  if (lm_sys_resident((void *)lm_align_down((uintptr_t)p, LM_SLOT), LM_SLOT, in)) return -1;
  for (int i = 0; i < PAGES; i++) n += in[i] & 1;
  return n;
}

/* Takes objects until they have begun `slots` new slots (spans, if the objects are small). Returns
 * the last object. */
static void *begin_slots(lm_strategy *s, size_t size, int slots) {
  lm_thread *t = lm_thread_get();
  uintptr_t latest = 0;
  void *p = NULL;
  for (int begun = 0; begun < slots;) {
    bool zeroed;
    p = lm_pool_alloc(t, s, &(lm_pool_request){ size, 16, TOKEN }, &zeroed);
    assert_non_null(p);
    uintptr_t slot = (uintptr_t)p / LM_SLOT;
    begun += slot != latest;
    latest = slot;
  }
  return p;
}

static char *large(lm_strategy *s, size_t size) {
  bool zeroed;
  char *p = lm_pool_alloc(lm_thread_get(), s, &(lm_pool_request){ size, 16, TOKEN }, &zeroed);
  assert_non_null(p);
  return p;
}

/* When large blocks that are neighbours are freed, they become one run. So no span may stand
 * between them. */
static void no_span_is_between_large_blocks(void **state) {
  (void)state;
  enum { MANY = 100 << 20, SOME = 4 << 20 };
  lm_strategy *s = strategy_called("between");
  lm_object object;
  char *all[4] = { large(s, MANY) };
  for (int i = 1; i < 4; i++) {
    all[i] = large(s, SOME);
    begin_slots(s, 1024, 3);
  }
  assert_ptr_equal(all[2], all[1] + SOME);
  assert_ptr_equal(all[3], all[2] + SOME);
  for (int i = 0; i < 4; i++) lm_pool_free(lm_thread_get(), all[i], &object);
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

/* A program may never touch most pages of such objects, so they are not faulted in ahead. */
static void objects_of_many_pages_have_those_that_are_touched(void **state) {
  (void)state;
  assert_in_range(touched_pages(begin_slots(strategy_called("sparse"), 32768, 8 * SPANS)), 0, 1);
}

static int check_laws(void **state) {
  (void)state;
  return lm_pool_is_valid() ? 0 : -1;
}

#define TEST(name) cmocka_unit_test_teardown(name, check_laws)

/* Notes a service thread. Then lists do not drain, so a test knows their objects. */
static int serve(void **state) {
  (void)state;
  lm_decay_note_served(lm_sys_clock_ns() + AN_HOUR);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(draws_all_that_is_free_in_the_spans_there_are),
    TEST(what_one_class_has_left_another_has_before_fresh_memory),
    TEST(an_abandoned_span_ends_with_its_last_object),
    TEST(keeps_what_others_have_left_while_touched_memory_is_free),
    TEST(objects_in_no_demand_go_past_the_depot),
    TEST(few_large_objects_are_drawn_from_spans_at_once),
    TEST(bins_get_narrower_while_a_list_drains),
    TEST(a_list_that_is_taken_again_does_not_drain),
    TEST(no_span_is_between_large_blocks),
    TEST(a_class_that_has_grown_has_the_pages_of_a_span_at_once),
    TEST(a_class_that_is_small_has_them_one_by_one),
    TEST(objects_of_many_pages_have_those_that_are_touched),
  };
  return cmocka_run_group_tests_name("span", tests, serve, NULL);
}
