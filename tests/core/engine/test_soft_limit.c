/* test_soft_limit.c - soft limits: the host is called back once when memory grows past one, again
 * only after the memory has shrunk, for small and large blocks, in every call that allocates, and
 * while the callback itself frees. */
#include "engine/soft_limit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "heap/pool.h"
#include "loam.h"
#include "test.h"

enum { LIMIT = 4 << 20, SOFT = 2 << 20, LARGE = 100 << 10, MOST = 4096 };

static const char policy[] =
    "local cache = loam.host { name = 'cache', limit = 4 * loam.MiB, soft = 2 * loam.MiB }\n"
    "local other = loam.host { name = 'other', limit = 4 * loam.MiB }\n"
    "return loam.policy { name = 'soft', pick = function(req)\n"
    "  if req.tag:is('other') then return other end\n"
    "  return cache\n"
    "end }\n";

static void *kept[MOST];
static int n, events;
static char words[256];
static bool empties; /* the callback frees all blocks */

static void keep(void *p) {
  assert_non_null(p);
  assert_true(n < MOST);
  kept[n++] = p;
}

static void empty(void) {
  while (n > 0) loam_free(kept[--n]);
  loam_trim(); /* gives back what threads cache, so that `used` is exact */
}

static void on_event(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind != LOAM_EVENT_SOFT_LIMIT) return;
  events++;
  snprintf(words, sizeof words, "%s", event->message);
  errno = EBADF;
  if (empties) empty();
}

static int set_up(void **state) {
  (void)state;
  events = 0;
  empties = false;
  loam_on_event(on_event, NULL);
  return loam_policy_load_text("soft", policy);
}

static int tear_down(void **state) {
  (void)state;
  empty();
  loam_on_event(NULL, NULL);
  return lm_pool_is_valid() ? 0 : -1;
}

static void it_is_reported_in_the_call_that_passes_it(void **state) {
  (void)state;
  errno = 0;
  for (size_t used = 0; used + LARGE <= SOFT; used += LARGE) keep(loam_malloc(NULL, LARGE));
  assert_int_equal(events, 0);
  keep(loam_malloc(NULL, LARGE));
  assert_int_equal(events, 1);
  assert_int_equal(errno, 0);
  assert_non_null(strstr(words, "strategy 'cache' has passed its soft limit of 2097152 bytes: "));
  assert_non_null(strstr(words, " of 4194304 bytes are used"));
  for (int i = 0; i < 5; i++) keep(loam_malloc(NULL, LARGE));
  assert_int_equal(events, 1);
}

static void it_is_reported_again_only_after_memory_has_shrunk(void **state) {
  (void)state;
  while (!events) keep(loam_malloc(NULL, LARGE));
  loam_free(kept[--n]); /* a little below the soft limit, and above it again */
  loam_free(kept[--n]);
  keep(loam_malloc(NULL, LARGE));
  keep(loam_malloc(NULL, LARGE));
  assert_int_equal(events, 1);
  empty();
  while (n * (size_t)LARGE <= SOFT) keep(loam_malloc(NULL, LARGE));
  assert_int_equal(events, 2);
  empty();
  keep(loam_malloc(NULL, SOFT + LARGE)); /* one block alone */
  assert_int_equal(events, 3);
}

static void small_blocks_pass_it_too(void **state) {
  (void)state;
  for (size_t used = 0; used < SOFT + SOFT / 4; used += 1024) keep(loam_malloc(NULL, 1024));
  assert_int_equal(events, 1);
}

static void every_call_that_allocates_reports(void **state) {
  (void)state;
  for (int call = 0; call < 3; call++) {
    empty();
    while (n * (size_t)LARGE < SOFT - LARGE) keep(loam_malloc(NULL, LARGE));
    assert_int_equal(events, call);
    if (call == 0) keep(loam_calloc(NULL, 3, LARGE));
    if (call == 1) keep(loam_aligned_alloc(NULL, 4096, 3 * LARGE));
    if (call == 2) keep(loam_realloc(NULL, kept[--n], 4 * LARGE));
    assert_int_equal(events, call + 1);
  }
}

static void the_callback_may_free_everything(void **state) {
  (void)state;
  empties = true;
  for (int i = 0; i < 200; i++) keep(loam_malloc(NULL, LARGE)); /* 20 MB of a limit of 4 */
  assert_in_range(events, 5, 15);
}

static void other_strategies_report_nothing(void **state) {
  loam_site *site = loam_site_get("other");
  (void)state;
  for (int i = 0; i < 30; i++) keep(loam_malloc(site, LARGE));
  assert_int_equal(events, 0);
}

static void an_edit_keeps_what_is_used(void **state) {
  char edited[sizeof policy];
  (void)state;
  for (int i = 0; i < 12; i++) keep(loam_malloc(NULL, LARGE));
  memcpy(edited, policy, sizeof policy);
  memcpy(strstr(edited, "soft = 2"), "soft = 1", 8);
  assert_int_equal(loam_policy_load_text("soft", edited), LOAM_OK);
  assert_int_equal(events, 0);
  keep(loam_malloc(NULL, LARGE));
  assert_int_equal(events, 1);
  assert_non_null(strstr(words, "soft limit of 1048576 bytes: "));
}

/* Frees a block from before the edit. At that time more is used than the old soft limit, but less
 * than the new one, so no event is sent. */
static void a_free_passes_no_soft_limit_of_before_an_edit(void **state) {
  char edited[sizeof policy];
  (void)state;
  for (int i = 0; i < 4; i++) keep(loam_malloc(NULL, LARGE));
  memcpy(edited, policy, sizeof policy);
  memcpy(strstr(edited, "limit = 4"), "limit = 9", 9);
  memcpy(strstr(edited, "soft = 2"), "soft = 8", 8);
  assert_int_equal(loam_policy_load_text("soft", edited), LOAM_OK);
  for (int i = 0; i < 40; i++) keep(loam_malloc(NULL, LARGE));
  void *old = kept[0];
  kept[0] = kept[--n];
  loam_free(old);
  keep(loam_malloc(NULL, LARGE + 8192));
  keep(loam_malloc(NULL, 1 << 20));
  assert_int_equal(events, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
    TEST(it_is_reported_in_the_call_that_passes_it),
    TEST(it_is_reported_again_only_after_memory_has_shrunk),
    TEST(small_blocks_pass_it_too),
    TEST(every_call_that_allocates_reports),
    TEST(the_callback_may_free_everything),
    TEST(other_strategies_report_nothing),
    TEST(an_edit_keeps_what_is_used),
    TEST(a_free_passes_no_soft_limit_of_before_an_edit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
