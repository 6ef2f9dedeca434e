/* test_misuse.c - mistakes of a host are found and reported, and do no harm: frees of pointers that
 * are no live block, and other mistakes that break allocators. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loam.h"
#include "test.h"

static const char policy[] =
    "local a = loam.host { name = 'a' }\n"
    "local b = loam.host { name = 'b', align = 64 }\n"
    "local capped = loam.host { name = 'capped', limit = 256 * loam.MiB }\n"
    "local guarded = loam.host { name = 'guarded', guard = true }\n"
    "local system = loam.system {}\n"
    "return loam.policy { pick = function(req)\n"
    "  if req.tag:under 'b' then return b end\n"
    "  if req.tag:under 'capped' then return capped end\n"
    "  if req.tag:under 'guarded' then return guarded end\n"
    "  if req.tag:under 'system' then return system end\n"
    "  return a\n"
    "end }\n";

static const char *const kinds[] = { "a.x", "b.x", "capped.x", "guarded.x", "system.x" };
static const size_t sizes[] = { 1, 16, 100, 1000, 5000, 40000, 200000, 1 << 20, 8 << 20 };

static void load(const char *text) {
  if (loam_policy_load_text("misuse.lua", text)) fail_msg("%s", loam_error());
}

/* ---- Reports */

static int event_count;
static char event_words[1000];
static const void *event_pointer;
static uint64_t event_generation;
static const void *event_caller;

static void on_event(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind != LOAM_EVENT_BAD_FREE) return;
  event_count++;
  event_pointer = event->pointer;
  event_generation = event->generation;
  event_caller = event->caller;
  snprintf(event_words, sizeof event_words, "%s", event->message);
}

static int set_up(void **state) {
  (void)state;
  loam_on_event(on_event, NULL);
  load(policy);
  return 0;
}

static uint64_t bad_frees(void) {
  struct loam_stats now;
  assert_int_equal(loam_stats(&now), LOAM_OK);
  return now.bad_frees;
}

/* Checks that `act` on p sends one event, that it is counted once, and that it says `words`. */
static __attribute__((noinline)) void expect_bad_free(void (*act)(void *p), void *p,
                                                      const char *words) {
  uint64_t before = bad_frees();
  event_count = 0;
  act(p);
  assert_int_equal(event_count, 1);
  assert_int_equal(bad_frees(), before + 1);
  assert_ptr_equal(event_pointer, p);
  if (!strstr(event_words, words)) fail_msg("\"%s\" is not in: %s", words, event_words);
}

static uint64_t generation(void) {
  struct loam_policy_info info;
  assert_int_equal(loam_policy_info(&info), LOAM_OK);
  return info.generation;
}

/* ---- Blocks that must not change */

static void fill(char *p, size_t size, int byte) {
  memset(p, byte, size < 64 ? size : 64);
  p[size - 1] = (char)byte;
}

static void is_filled(const char *p, size_t size, int byte) {
  for (size_t i = 0; i < size && i < 64; i++) assert_int_equal(p[i], byte);
  assert_int_equal(p[size - 1], byte);
}

enum { ROW = 7 };

static void make_row(loam_site *tag, size_t size, char *row[ROW]) {
  for (int i = 0; i < ROW; i++) {
    row[i] = loam_malloc(tag, size);
    assert_non_null(row[i]);
    fill(row[i], size, i + 1);
  }
}

static void add_blocks(void *ctx, const loam_stats_row *row) {
  *(uint64_t *)ctx += row->live_blocks;
}

static uint64_t live_blocks(void) {
  uint64_t n = 0;
  assert_int_equal(loam_stats_each(add_blocks, &n), LOAM_OK);
  return n;
}

static const char *strategy_of(const void *p) {
  loam_owner_info owner;
  assert_int_equal(loam_owner(p, &owner), LOAM_OK);
  return owner.strategy;
}

/* ---- Frees of pointers that are no live block */

/* Checks that the last message names the tag, the strategy and the generation of the block. */
static void names(const char *tag, const char *strategy) {
  char expected[200];
  snprintf(expected, sizeof expected, " of tag '%s' and strategy '%s', decided by generation %llu",
           tag, strategy, (unsigned long long)generation());
  if (!strstr(event_words, expected)) fail_msg("\"%s\" is not in: %s", expected, event_words);
  assert_int_equal(event_generation, generation());
}

static void a_double_free_leaves_the_live_neighbours(void **state) {
  (void)state;
  /* The last kind is left out, because the system's malloc checks its blocks itself. */
  for (size_t k = 0; k < LM_COUNT(kinds) - 1; k++)
    for (size_t s = 0; s < LM_COUNT(sizes); s++) {
      char *row[ROW], *after[ROW];
      loam_site *tag = loam_site_get(kinds[k]);
      uint64_t before = live_blocks();
      make_row(tag, sizes[s], row);
      const char *strategy = strategy_of(row[3]);
      loam_free(row[3]);
      expect_bad_free(loam_free, row[3], "double free of ");
      names(kinds[k], strategy);
      assert_int_equal(live_blocks(), before + ROW - 1);
      make_row(tag, sizes[s], after);
      for (int i = 0; i < ROW; i++) {
        if (i != 3) is_filled(row[i], sizes[s], i + 1);
        is_filled(after[i], sizes[s], i + 1);
        if (i != 3) loam_free(row[i]);
        loam_free(after[i]);
      }
      assert_int_equal(live_blocks(), before);
    }
}

static void *free_there(void *p) {
  loam_free(p);
  return NULL;
}
static void free_in_thread(void *p) { pthread_join(start_thread(free_there, p), NULL); }

static void double_frees_are_found_whoever_frees(void **state) {
  (void)state;
  for (size_t s = 0; s < LM_COUNT(sizes); s++) {
    loam_site *tag = loam_site_get("a.x");
    char *p = loam_malloc(tag, sizes[s]), *q = loam_malloc(tag, sizes[s]);
    loam_free(q);
    expect_bad_free(free_in_thread, q, "double free of ");
    names("a.x", "a");
    free_in_thread(p);
    expect_bad_free(
        loam_free, p,
        "double free of "); /* the message names the owner only while its thread or span exists */
  }
}

static void interior_pointers_are_found_and_say_whose(void **state) {
  (void)state;
  char expected[200];
  for (size_t k = 0; k < LM_COUNT(kinds); k++)
    for (size_t s = 2; s < LM_COUNT(sizes); s++) {
      char *p = loam_malloc(loam_site_get(kinds[k]), sizes[s]);
      size_t at[] = { 1, 16, sizes[s] / 2, sizes[s] - 1 };
      fill(p, sizes[s], 9);
      for (size_t i = 0; i < LM_COUNT(at); i++) {
        snprintf(expected, sizeof expected, "free of %p, %zu byte%s into a block of ",
                 (void *)(p + at[i]), at[i], at[i] == 1 ? "" : "s");
        expect_bad_free(loam_free, p + at[i], expected);
        names(kinds[k], strategy_of(p));
      }
      is_filled(p, sizes[s], 9);
      loam_free(p);
    }
}

static void foreign_pointers_are_found(void **state) {
  (void)state;
  static char zeros[64], data[64] = { 1 };
  char here[64];
  char *libcs = malloc(100);
  void *const pointers[] = { here,        here + 16,
                             zeros,       data + 8,
                             libcs,       (void *)16,
                             (void *)-64, (void *)(uintptr_t)foreign_pointers_are_found };
  for (size_t i = 0; i < LM_COUNT(pointers); i++)
    expect_bad_free(loam_free, pointers[i], ", which loam did not allocate");
  free(libcs);
}

static void *reallocated;
static void reallocate(void *p) { reallocated = loam_realloc(NULL, p, 5000); }

static void realloc_of_what_is_no_block_is_null(void **state) {
  (void)state;
  char here[16], *p = loam_malloc(loam_site_get("a.x"), 1000);
  expect_bad_free(reallocate, p + 16, "realloc of ");
  assert_null(reallocated);
  expect_bad_free(reallocate, here, ", which loam did not allocate");
  assert_null(reallocated);
  loam_free(p);
  expect_bad_free(reallocate, p, ", a freed block of ");
  names("a.x", "a");
  assert_null(reallocated);
  assert_non_null(strstr(loam_error(), "not the start of a live block"));
}

/* When a block grows by moving its pages, its old address counts as freed. */
static void pointers_into_freed_blocks_say_whose(void **state) {
  (void)state;
  loam_site *tag = loam_site_get("a.x");
  for (size_t s = 2; s < LM_COUNT(sizes); s++) {
    char *p = loam_malloc(tag, sizes[s]), *behind = loam_malloc(tag, sizes[s]);
    char *q = loam_realloc(NULL, p, sizes[s] * 3);
    loam_free(behind);
    expect_bad_free(loam_free, behind + 16, ", 16 bytes into a freed block of ");
    names("a.x", "a");
    loam_free(q);
    expect_bad_free(loam_free, q, "double free of ");
    if (p != q) expect_bad_free(loam_free, p, "free of ");
    if (p != q) names("a.x", "a");
  }
}

static size_t claimed;
static void free_claimed(void *p) { loam_free_sized(p, claimed); }

static void an_impossible_size_is_reported_and_the_block_freed(void **state) {
  (void)state;
  for (size_t s = 1; s < LM_COUNT(sizes); s++) {
    uint64_t before = live_blocks();
    char *p = loam_malloc(loam_site_get("a.x"), sizes[s]);
    char expected[100];
    claimed = loam_usable_size(p) + 1;
    snprintf(expected, sizeof expected, "with size %zu: the block has %zu bytes", claimed,
             claimed - 1);
    expect_bad_free(free_claimed, p, expected);
    names("a.x", "a");
    assert_int_equal(live_blocks(), before);
    p = loam_malloc(loam_site_get("a.x"), sizes[s]);
    event_count = 0;
    loam_free_sized(p, sizes[s]);
    assert_int_equal(event_count, 0);
    expect_bad_free(loam_free, p, "free of ");
  }
}

static void free_wrongly(void *p) { loam_free_claimed(p, claimed); }

/* Programs that delete an object through a pointer to its base claim sizes that are too small. This
 * test must run before a test that requests an alignment. */
static void a_wrong_claimed_size_is_reported_only_for_a_guarded_block(void **state) {
  (void)state;
  char expected[100];
  char *p = loam_malloc(loam_site_get("guarded.x"), 1000);
  claimed = 300;
  snprintf(expected, sizeof expected, "with size %zu: the block has 1000 bytes", claimed);
  expect_bad_free(free_wrongly, p, expected);
  p = loam_malloc(loam_site_get("guarded.x"), 1000);
  event_count = 0;
  loam_free_claimed(p, 1000);
  for (size_t s = 2; s < LM_COUNT(sizes); s++) {
    uint64_t before = live_blocks();
    p = loam_malloc(loam_site_get("a.x"), sizes[s]);
    loam_free_claimed(p, sizes[s] / 3);
    assert_int_equal(live_blocks(), before);
  }
  /* Thread caches do not hold blocks of this size. */
  loam_free_claimed(loam_malloc(loam_site_get("a.x"), 64 << 20), 20 << 20);
  loam_free_claimed(loam_malloc(loam_site_get("system.x"), 1000), 5000);
  assert_int_equal(event_count, 0);
}

/* This test must run before a test that requests an alignment. */
static void a_size_that_is_too_small_is_reported(void **state) {
  (void)state;
  loam_site *tag = loam_site_get("a.x");
  for (size_t s = 2; s < LM_COUNT(sizes); s++) {
    char expected[100], *p = loam_malloc(tag, sizes[s]);
    size_t has = loam_usable_size(p);
    claimed = has / 3;
    snprintf(expected, sizeof expected, "with size %zu: the block has %zu bytes", claimed, has);
    expect_bad_free(free_claimed, p, expected);
    expect_bad_free(loam_free, p, "free of ");
  }
  load("local a = loam.host { name = 'a', align = 512 }\n"
       "return loam.policy { pick = function() return a end }\n");
  char *p = loam_malloc(tag, 1025);
  event_count = 0;
  loam_free_sized(p, 600);
  assert_int_equal(event_count, 0);
  p = loam_malloc(tag, 1025);
  claimed = 512;
  expect_bad_free(free_claimed, p, "with size 512: the block has ");
  load(policy);
  p = loam_aligned_alloc(tag, 4096, 100);
  assert_true(loam_usable_size(p) > 200);
  event_count = 0;
  loam_free_sized(p, 100);
  assert_int_equal(event_count, 0);
}

static void the_tag_and_caller_of_a_bad_free_are_reported(void **state) {
  (void)state;
  char *p = loam_malloc(loam_site_get("a.x"), 100);
  expect_bad_free(loam_free, p + 8, "decided by generation ");
  assert_null(strstr(event_words, "freed under"));
  uintptr_t here = (uintptr_t)expect_bad_free;
  assert_true((uintptr_t)event_caller - here < 1000);
  loam_scope_enter(loam_site_get("who.frees"));
  expect_bad_free(loam_free, p + 8, "; freed under tag 'who.frees'");
  expect_bad_free(reallocate, p + 8, "; freed under tag 'who.frees'");
  here = (uintptr_t)reallocate;
  assert_true((uintptr_t)event_caller - here < 1000);
  loam_scope_leave();
  loam_free(p);
}

/* ---- Mistakes that broke other allocators */

static void a_product_that_overflows_is_null(void **state) {
  (void)state;
  const size_t half = SIZE_MAX / 2 + 1;
  for (size_t k = 0; k < LM_COUNT(kinds); k++) {
    loam_site *tag = loam_site_get(kinds[k]);
    assert_null(loam_calloc(tag, 2, half));
    assert_null(loam_calloc(tag, half, 2));
    assert_null(loam_calloc(tag, half + 1, 2)); /* the product would be 2 if it wrapped */
    assert_null(loam_calloc(tag, (size_t)1 << 33, (size_t)1 << 31));
    assert_null(loam_calloc(tag, SIZE_MAX, SIZE_MAX)); /* the product would be 1 */
  }
}

/* A block returns to its pool under any policy and in any scope. */
static void a_block_goes_back_to_the_pool_that_made_it(void **state) {
  (void)state;
  loam_site *tag = loam_site_get("b.back");
  char *row[ROW], *others[ROW];
  uint64_t before = live_blocks();
  make_row(tag, 1000, row);
  load("local a = loam.host { name = 'a' }\n"
       "return loam.policy { pick = function(req) return a end }\n");
  make_row(tag, 1000, others);
  for (int i = 0; i < ROW; i++) {
    assert_string_equal(strategy_of(row[i]), "b");
    assert_string_equal(strategy_of(others[i]), "a");
  }
  event_count = 0;
  loam_scope_enter(loam_site_get("capped.other"));
  for (int i = 0; i < ROW; i += 2) loam_free(row[i]);
  loam_scope_leave();
  for (int i = 0; i < ROW; i++) is_filled(others[i], 1000, i + 1);
  for (int i = 1; i < ROW; i += 2) is_filled(row[i], 1000, i + 1);
  for (int i = 1; i < ROW; i += 2) loam_free(row[i]);
  for (int i = 0; i < ROW; i++) loam_free(others[i]);
  load(policy);
  assert_int_equal(event_count, 0);
  assert_int_equal(live_blocks(), before);
}

static void aligned_blocks_grow_shrink_and_leave_nothing(void **state) {
  (void)state;
  uint64_t before = live_blocks();
  event_count = 0;
  for (size_t k = 0; k < LM_COUNT(kinds); k++)
    for (size_t align = 16; align <= (size_t)2 << 20; align *= 8)
      for (size_t s = 0; s < LM_COUNT(sizes) - 1; s++) {
        char *p = loam_aligned_alloc(loam_site_get(kinds[k]), align, sizes[s]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % align, 0);
        fill(p, sizes[s], 5);
        char *q = loam_realloc(NULL, p, sizes[s] * 3);
        assert_non_null(q);
        for (size_t i = 0; i < sizes[s] && i < 64; i++) assert_int_equal(q[i], 5);
        assert_int_equal(q[sizes[s] - 1], 5);
        q = loam_realloc(NULL, q, 1);
        assert_int_equal(q[0], 5);
        loam_free(q);
      }
  assert_int_equal(event_count, 0);
  assert_int_equal(live_blocks(), before);
}

int main(void) {
  setenv("LOAM_CONTROL", "0", 1);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_double_free_leaves_the_live_neighbours),
    cmocka_unit_test(double_frees_are_found_whoever_frees),
    cmocka_unit_test(interior_pointers_are_found_and_say_whose),
    cmocka_unit_test(foreign_pointers_are_found),
    cmocka_unit_test(realloc_of_what_is_no_block_is_null),
    cmocka_unit_test(pointers_into_freed_blocks_say_whose),
    cmocka_unit_test(an_impossible_size_is_reported_and_the_block_freed),
    cmocka_unit_test(a_wrong_claimed_size_is_reported_only_for_a_guarded_block),
    cmocka_unit_test(a_size_that_is_too_small_is_reported),
    cmocka_unit_test(the_tag_and_caller_of_a_bad_free_are_reported),
    cmocka_unit_test(a_product_that_overflows_is_null),
    cmocka_unit_test(a_block_goes_back_to_the_pool_that_made_it),
    cmocka_unit_test(aligned_blocks_grow_shrink_and_leave_nothing),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}
