/* test_realloc.c - realloc evaluates the plan again. It keeps a block where it is if it can, and
 * moves the block if the decision differs. A handler, or the system's malloc, resizes its own
 * blocks. */
#include "engine_fixture.h"

static bool stays_in_place(loam_site *whose, void *p, size_t size) {
  size_t from = 0;
  if (size > LM_LARGE_MAX) return false;
  bool found = lm_engine_realloc_stays(lm_thread_get(), p, size, &whose, &from);
  if (from) assert_int_equal(from, lm_record_usable(p));
  if (from) assert_non_null(whose);
  return found;
}

/* Resizes a block like loam_realloc, except that loam_realloc itself moves an object to another
 * size class. */
static void *reallocate(loam_site *whose, void *p, size_t size) {
  return stays_in_place(whose, p, size) ? p : engine_realloc(whose, p, size);
}

/* ---- realloc ---- */

enum { EACH = SANITIZED ? 2 : 1 };

/* Resizes blocks from every size to every size, and from one strategy to another. Checks their
 * contents and owner, and that the strategies have no used bytes at the end. */
static void matrix(lm_strategy *from, lm_strategy *to) {
  static const size_t sizes[] = { 0, 1, 16, 17, 100, 4096, 32768, 32769, 100000, 1 << 20, 5 << 20 };
  for (size_t i = 0; i < LM_COUNT(sizes); i += EACH)
    for (size_t k = 0; k < LM_COUNT(sizes); k += EACH) {
      size_t was = sizes[i], is = sizes[k];
      CHAIN(from);
      char *p = get(was);
      assert_non_null(p);
      fill(p, was);
      CHAIN(to);
      char *q = reallocate(NULL, p, is);
      assert_non_null(q);
      expect_contents(q, was, was < is ? was : is);
      assert_true(lm_record_usable(q) >= is);
      assert_string_equal(owner(q).strategy, to->desc.name);
      assert_int_equal(owner(q).generation, lm_site_generation);
      put(q);
      assert_int_equal(used(from), 0);
      assert_int_equal(used(to), 0);
    }
}

static void realloc_moves_when_the_answer_differs(void **state) {
  (void)state;
  lm_strategy *all[] = { host("one"),
                         limited_strategy("two", 64 << 20),
                         counting_strategy(),
                         intern((lm_desc){ .kind = LM_KIND_SYSTEM }, "libc"),
                         intern((lm_desc){ .guard = 1 }, "guarded"),
                         intern((lm_desc){ .kind = LM_KIND_SYSTEM, .limit = 64 << 20 }, "libc2") };
  for (size_t i = 0; i < LM_COUNT(all); i++)
    for (size_t k = 0; k < LM_COUNT(all); k++) matrix(all[i], all[k]);
  assert_int_equal(handler_live, 0);
}

static void realloc_asks_the_plan_for_the_new_size(void **state) {
  (void)state;
  set_split_plan(LM_IN_SIZE, 1000, host("small"), host("big"));
  char *p = get(10);
  fill(p, 10);
  assert_string_equal(owner(p).strategy, "small");
  p = reallocate(NULL, p, 5000);
  assert_string_equal(owner(p).strategy, "big");
  expect_contents(p, 10, 10);
  p = reallocate(NULL, p, 20);
  assert_string_equal(owner(p).strategy, "small");
  put(p);
}

static void realloc_stays_where_it_fits(void **state) {
  (void)state;
  CHAIN(host("plain"));
  char *p = get(100);
  assert_ptr_equal(reallocate(NULL, p, 112), p);
  assert_ptr_equal(reallocate(NULL, p, 90), p);
  put(p);
  p = get(100000);
  assert_ptr_equal(reallocate(NULL, p, 100001), p);
  put(p);
}

/* Many programs grow a large block by a few bytes at a time. */
static void a_large_block_stays_at_once_within_its_last_page(void **state) {
  (void)state;
  CHAIN(host("plain"));
  char *p = get(100000);
  size_t end = lm_record_usable(p);
  assert_true(stays_in_place(NULL, p, 100001));
  assert_true(stays_in_place(site, p, end));
  assert_true(stays_in_place(NULL, p, end - LM_PAGE + 1));
  assert_false(stays_in_place(NULL, p, end - LM_PAGE));
  assert_false(stays_in_place(NULL, p, end + 1));
  assert_false(stays_in_place(NULL, p, 100));
  assert_false(stays_in_place(NULL, p + 16, end));
  assert_false(stays_in_place(tag("realloc.else"), p, end));
  assert_int_equal(lm_record_usable(p), end);
  CHAIN(host("other"));
  assert_false(stays_in_place(NULL, p, end));
  put(p);
  set_split_plan(LM_IN_SIZE, 100001, host("plain"), host("other"));
  p = get(100000);
  assert_false(stays_in_place(NULL, p, 100001));
  put(p);
  CHAIN(limited_strategy("two", 64 << 20));
  p = get(100000);
  assert_ptr_equal(reallocate(NULL, p, end), p);
  assert_int_equal(used(limited_strategy("two", 64 << 20)), (int64_t)end);
  put(p);
}

static void realloc_keeps_the_site_unless_it_is_given_another(void **state) {
  (void)state;
  CHAIN(host("plain"));
  loam_site *other = tag("engine.other");
  char *p = get(100);
  lm_thread *t = lm_thread_get();
  t->site = other;
  p = reallocate(NULL, p, 5000);
  assert_string_equal(owner(p).tag, "engine.test");
  t->site = NULL;
  p = reallocate(other, p, 5001);
  assert_string_equal(owner(p).tag, "engine.other");
  put(p);
}

static void a_failed_realloc_leaves_the_block_as_it_was(void **state) {
  (void)state;
  lm_strategy *s = limited_strategy("tight", 200000);
  static const size_t sizes[] = { 100, 50000 };
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    CHAIN(s);
    char *p = get(sizes[i]);
    fill(p, sizes[i]);
    loam_owner_info before = owner(p);
    int64_t held = used(s);
    assert_null(reallocate(NULL, p, 300000));
    assert_null(reallocate(NULL, p, LM_SIZE_MAX));
    CHAIN(intern((lm_desc){ .kind = LM_KIND_DENY }, "never"));
    assert_null(reallocate(NULL, p, 10));
    loam_owner_info after = owner(p);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(used(s), held);
    expect_contents(p, sizes[i], sizes[i]);
    put(p);
    assert_int_equal(used(s), 0);
  }
}

/* Grows a block by all that is left of the limit. The allocator may round the size up, and that
 * must not pass the limit either. */
static void realloc_passes_no_limit(void **state) {
  (void)state;
  enum { LIMIT = 1000 };
  lm_strategy *s = intern((lm_desc){ .kind = LM_KIND_SYSTEM, .limit = LIMIT }, "strict");
  CHAIN(s);
  for (size_t size = 600; size < 880; size++) {
    char *p = get(100), *q = get(size);
    assert_non_null(p);
    assert_non_null(q);
    char *r = reallocate(NULL, p, lm_record_usable(p) + (size_t)(LIMIT - used(s)));
    assert_in_range(used(s), 0, LIMIT);
    put(r ? r : p);
    put(q);
    assert_int_equal(used(s), 0);
  }
}

static void a_handler_reallocates_its_own_blocks(void **state) {
  (void)state;
  CHAIN(counting_strategy());
  char *p = get(100);
  fill(p, 100);
  assert_string_equal(owner(p).handler, "counting");
  assert_int_equal(owner(p).handler_version, 1);
  handler_reallocs = 0;
  p = reallocate(NULL, p, 3000);
  assert_int_equal(handler_reallocs, 1);
  assert_int_equal(handler_live, 3000);
  expect_contents(p, 100, 100);
  CHAIN(host("plain"));
  p = reallocate(NULL, p, 200);
  assert_int_equal(handler_reallocs, 1);
  assert_int_equal(handler_live, 0);
  assert_string_equal(owner(p).handler, "loam");
  assert_int_equal(owner(p).handler_version, 0);
  put(p);
}

static void *fail_realloc(void *ctx, void *p, size_t size) {
  (void)ctx, (void)p, (void)size;
  return NULL;
}

static void a_handler_that_cannot_reallocate_keeps_the_block(void **state) {
  (void)state;
  static loam_handler stubborn;
  stubborn = counting;
  strcpy(stubborn.name, "stubborn");
  stubborn.allocator.realloc = fail_realloc;
  loam_handler_register(&stubborn);
  lm_desc desc = { .kind = LM_KIND_HANDLER, .limit = 1000, .handler = "stubborn" };
  lm_strategy *s = intern(desc, "stubborn");
  CHAIN(s);
  char *p = get(600);
  fill(p, 600);
  assert_null(reallocate(NULL, p, 700)); /* the limit has no room for a second block either */
  expect_contents(p, 600, 600);
  assert_int_equal(used(s), 600);
  assert_int_equal(owner(p).size, 600);
  put(p);
  assert_int_equal(used(s), 0);
}

/* Returns one address for every request, although the block at that address is live. */
static void *serve_again(void *ctx, size_t size) {
  static _Alignas(16) char memory[1000];
  (void)ctx;
  return size <= sizeof memory ? memory : NULL;
}
static void free_nothing(void *ctx, void *p, size_t size) { (void)ctx, (void)p, (void)size; }

static void a_block_that_its_handler_has_replaced_counts_no_more(void **state) {
  (void)state;
  static loam_handler forgetful;
  forgetful = counting;
  strcpy(forgetful.name, "forgetful");
  forgetful.allocator.malloc = serve_again;
  forgetful.allocator.free = free_nothing;
  loam_handler_register(&forgetful);
  lm_desc desc = { .kind = LM_KIND_HANDLER, .limit = 1000, .handler = "forgetful" };
  lm_strategy *s = intern(desc, "forgetful");
  CHAIN(s);
  char *p = get(300);
  for (int i = 0; i < 5; i++) assert_ptr_equal(get(400), p);
  assert_int_equal(used(s), 400);
  put(p);
  assert_int_equal(used(s), 0);
}

/* Resizes the block. Then takes all free metadata memory, and makes the system refuse more, so that
 * loam has no memory for the entry of the resized block. */
static void *taken;
static void *realloc_and_take_all(void *ctx, void *p, size_t size) {
  void *q = counting.allocator.realloc(ctx, p, size);
  lm_sys_refuse_from(1);
  for (void **n; (n = lm_metadata_alloc(sizeof(lm_provided_node))); taken = n) *n = taken;
  return q;
}

static void no_memory_loses_no_block_that_its_handler_has_resized(void **state) {
  (void)state;
  static loam_handler hungry;
  hungry = counting;
  strcpy(hungry.name, "hungry");
  hungry.allocator.realloc = realloc_and_take_all;
  loam_handler_register(&hungry);
  lm_strategy *s = intern((lm_desc){ .kind = LM_KIND_HANDLER, .handler = "hungry" }, "hungry");
  CHAIN(s);
  char *p = get(600);
  fill(p, 600);
  p = reallocate(NULL, p, 700);
  assert_non_null(p);
  lm_sys_refuse_from(0);
  assert_non_null(taken);
  for (void **next; taken; taken = next) {
    next = *(void **)taken;
    lm_metadata_free(taken);
  }
  expect_contents(p, 600, 600);
  assert_int_equal(owner(p).size, 700);
  put(p);
  assert_int_equal(handler_live, 0);
}

/* ---- handlers and the system ---- */

static void provided_blocks_are_known_like_others(void **state) {
  (void)state;
  lm_strategy *both[] = { counting_strategy(),
                          intern((lm_desc){ .kind = LM_KIND_SYSTEM }, "libc") };
  for (int i = 0; i < 2; i++) {
    CHAIN(both[i]);
    for (size_t align = 16; align <= 4096; align *= 4) {
      char *p = alloc(site, 1000, align, true);
      assert_non_null(p);
      assert_int_equal((uintptr_t)p % align, 0);
      for (int k = 0; k < 1000; k++) assert_int_equal(p[k], 0);
      assert_ptr_equal(owner(p + 999).base, p);
      assert_string_equal(owner(p).handler, i ? "system" : "counting");
      assert_string_equal(owner(p).kind, i ? "system" : "handler");
      expect_bad_free(put, p + 8, "8 bytes into a block");
      p = reallocate(NULL, p, 2000);
      for (int k = 0; k < 1000; k++) assert_int_equal(p[k], 0);
      put(p);
      expect_bad_free(put, p, "which loam did not allocate");
    }
  }
  assert_int_equal(handler_live, 0);
}

static const loam_handler *asked_in_handler;
static void *ask_loam(void *ctx, size_t size) {
  (void)ctx;
  asked_in_handler = loam_handler_get();
  return alloc(NULL, size, 16, false);
}
static void *ask_loam_zeroed(void *ctx, size_t n, size_t size) {
  (void)ctx;
  return alloc(NULL, n * size, 16, true);
}
static void *ask_loam_again(void *ctx, void *p, size_t size) {
  (void)ctx;
  return reallocate(NULL, p, size);
}
static int given_back;
static void give_loam(void *ctx, void *p, size_t size) {
  (void)ctx, (void)size;
  given_back++;
  put(p);
}
static const loam_handler nesting = {
  "nesting", 1, { NULL, ask_loam, ask_loam_zeroed, ask_loam_again, give_loam }
};

static void a_handler_may_be_built_on_loam_itself(void **state) {
  (void)state;
  assert_int_equal(loam_handler_register(&nesting), LOAM_OK);
  lm_desc desc = { .kind = LM_KIND_HANDLER, .limit = 100000, .handler = "nesting" };
  lm_strategy *s = intern(desc, "nesting");
  CHAIN(s);
  given_back = 0;
  char *p = get(100), *q = get(50000), *r = alloc(site, 100, 256, false);
  fill(p, 100);
  assert_string_equal(owner(p).handler, "nesting");
  assert_string_equal(owner(p).tag, "engine.test");
  assert_int_equal((uintptr_t)r % 256, 0);
  p = reallocate(NULL, p, 3000);
  expect_contents(p, 100, 100);
  assert_int_equal(used(s), 3000 + 50000 + 100);
  put(p);
  put(q);
  put(r);
  assert_int_equal(given_back, 3);
  assert_int_equal(used(s), 0);
  expect_bad_free(put, q, "free of ");
}

static void *loams_aligned(size_t align, size_t size) { return alloc(NULL, size, align, false); }
static void *loams_malloc(size_t size) { return ask_loam(NULL, size); }
static void *loams_calloc(size_t n, size_t size) { return ask_loam_zeroed(NULL, n, size); }
static void *loams_realloc(void *p, size_t size) { return ask_loam_again(NULL, p, size); }
static size_t loams_usable(void *p) { return lm_record_usable(p); }

static void the_hosts_malloc_may_be_loam(void **state) {
  (void)state;
  static const loam_system system = { loams_malloc, loams_calloc,  loams_realloc,
                                      put,          loams_aligned, loams_usable };
  lm_handler_set_system(&system);
  CHAIN(intern((lm_desc){ .kind = LM_KIND_SYSTEM }, "libc"));
  char *p = get(100), *z = alloc(site, 100, 512, true);
  fill(p, 100);
  assert_string_equal(owner(p).kind, "system");
  p = reallocate(NULL, p, 90000);
  expect_contents(p, 100, 100);
  put(p);
  put(z);
  lm_handler_set_system(NULL);
}

/* An empty guarded block has no byte that can be read or written. So realloc must copy nothing from
 * it, and must replace it. */
static void an_empty_guarded_block_is_replaced(void **state) {
  (void)state;
  CHAIN(intern((lm_desc){ .guard = 1 }, "guarded"));
  char *p = get(0);
  assert_non_null(p);
  assert_int_equal(lm_record_usable(p), 0);
  for (size_t size = 0; size < 3; size++) {
    p = engine_realloc(NULL, p, size);
    assert_non_null(p);
    memset(p, 1, size);
    p = engine_realloc(NULL, p, 0);
    assert_int_equal(lm_record_usable(p), 0);
  }
  put(p);
  CHAIN(host("plain"));
  p = get(0);
  CHAIN(intern((lm_desc){ .guard = 1 }, "guarded"));
  p = engine_realloc(NULL, p, 100);
  memset(p, 1, 100);
  put(p);
}

/* The entry of the decision cache counts the block, and not a tally. */
static void realloc_of_null_is_served_from_the_decision_cache(void **state) {
  (void)state;
  lm_strategy *s = host("plain");
  CHAIN(s);
  loam_free(loam_malloc(site, 100));
  uint64_t key = lm_stats_key(site->index, s->id, lm_class_of(100));
  const lm_tally *tally = lm_stats_entry(lm_thread_get(), key);
  uint64_t before = tally->blocks;
  assert_int_equal(tally->key, key);
  char *p = loam_realloc(site, NULL, 100);
  assert_string_equal(owner(p).tag, "engine.test");
  assert_int_equal(tally->blocks, before);
  loam_free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(realloc_moves_when_the_answer_differs),
    cmocka_unit_test(realloc_asks_the_plan_for_the_new_size),
    cmocka_unit_test(realloc_stays_where_it_fits),
    cmocka_unit_test(a_large_block_stays_at_once_within_its_last_page),
    cmocka_unit_test(realloc_keeps_the_site_unless_it_is_given_another),
    cmocka_unit_test(a_failed_realloc_leaves_the_block_as_it_was),
    cmocka_unit_test(realloc_passes_no_limit),
    cmocka_unit_test(a_handler_reallocates_its_own_blocks),
    cmocka_unit_test(a_handler_that_cannot_reallocate_keeps_the_block),
    cmocka_unit_test(a_block_that_its_handler_has_replaced_counts_no_more),
    cmocka_unit_test(no_memory_loses_no_block_that_its_handler_has_resized),
    cmocka_unit_test(provided_blocks_are_known_like_others),
    cmocka_unit_test(a_handler_may_be_built_on_loam_itself),
    cmocka_unit_test(the_hosts_malloc_may_be_loam),
    cmocka_unit_test(an_empty_guarded_block_is_replaced),
    cmocka_unit_test(realloc_of_null_is_served_from_the_decision_cache),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}
