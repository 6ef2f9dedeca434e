/* test_retire.c - strategies that the policy no longer names give their memory back. */
#include "test.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "heap/pool.h"
#include "loam.h"

enum { BLOCKS = 200, LARGE = 3 << 20, EDITS = SANITIZED ? 150 : 600, WARM = 20 };

/* Loads a policy that has only new strategies. */
static void edit(int n) {
  char text[512];
  snprintf(text, sizeof text,
           "local a = loam.host { name = 'a%d', huge = false }\n"
           "local b = loam.host { name = 'b%d', align = 64, limit = %d }\n"
           "local g = loam.host { name = 'g%d', guard = true }\n"
           "return loam.policy { name = 'edit', pick = function(req)\n"
           "  if req.tag:is('guarded') then return g end\n"
           "  if req.size < 512 then return a end\n"
           "  return b\nend }\n",
           n, n, 1 << 30, n);
  if (loam_policy_load_text("edit.lua", text) != LOAM_OK) fail_msg("%s", loam_error());
}

static void use(const char *tag) {
  static _Thread_local char *block[BLOCKS];
  loam_site *site = loam_site_get(tag);
  for (int i = 0; i < BLOCKS; i++) {
    size_t size = i ? 16 + (size_t)i * 40 : LARGE;
    block[i] = loam_malloc(site, size);
    assert_non_null(block[i]);
    memset(block[i], i, size);
  }
  for (int i = 0; i < BLOCKS; i++) loam_free(block[i]);
}

static uint64_t held(void) {
  lm_pool_figures now;
  lm_pool_figures_get(&now);
  return now.regions;
}

static void memory_is_steady_over_edits_of_every_strategy(void **state) {
  (void)state;
  for (int i = 0; i < WARM; i++) {
    edit(i);
    use("work");
  }
  uint64_t before = held();
  for (int i = WARM; i < EDITS; i++) {
    edit(i);
    use("work");
    if (i % 50 == 0) assert_true(lm_pool_is_valid());
  }
  assert_in_range(held(), 0, before + (4 << 20));
}

static void what_lives_is_kept(void **state) {
  (void)state;
  edit(EDITS);
  char *kept = loam_malloc(loam_site_get("kept"), 100), *large = loam_malloc(NULL, LARGE);
  memset(kept, 7, 100);
  memset(large, 8, LARGE);
  for (int i = 1; i < 10; i++) {
    edit(EDITS + i);
    use("work");
  }
  for (int i = 0; i < 100; i++) assert_int_equal(kept[i], 7);
  for (int i = 0; i < LARGE; i++) assert_int_equal(large[i], 8);
  char name[32];
  loam_owner_info owner;
  snprintf(name, sizeof name, "a%d", EDITS);
  assert_int_equal(loam_owner(kept, &owner), LOAM_OK);
  assert_string_equal(owner.strategy, name);
  uint64_t before = held();
  loam_free(kept);
  loam_free(large);
  edit(EDITS + 10);
  assert_true(held() < before);
  assert_true(lm_pool_is_valid());
}

static void guarded_blocks_leave_their_quarantine(void **state) {
  (void)state;
  for (int i = 0; i < 5; i++) {
    edit(EDITS + 20 + i);
    for (int k = 0; k < 20; k++) loam_free(loam_malloc(loam_site_get("guarded"), 100));
  }
  uint64_t before = held();
  for (int i = 0; i < 20; i++) {
    edit(EDITS + 30 + i);
    for (int k = 0; k < 20; k++) loam_free(loam_malloc(loam_site_get("guarded"), 100));
  }
  assert_in_range(held(), 0, before + (8 << 20));
}

static atomic_bool over;

static void *work(void *tag) {
  while (!atomic_load(&over)) use(tag);
  return NULL;
}

static void threads_go_on_while_strategies_come_and_go(void **state) {
  (void)state;
  pthread_t thread[3];
  static const char *const tag[3] = { "one", "two", "guarded" };
  for (int i = 0; i < 3; i++) thread[i] = start_thread(work, (void *)(uintptr_t)tag[i]);
  for (int i = 0; i < (SANITIZED ? 50 : 150); i++) edit(EDITS + 100 + i);
  atomic_store(&over, true);
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
  edit(EDITS + 300);
  edit(EDITS + 301);
  assert_true(lm_pool_is_valid());
  struct loam_stats stats;
  assert_int_equal(loam_stats(&stats), LOAM_OK);
  assert_int_equal(stats.live_blocks, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(memory_is_steady_over_edits_of_every_strategy),
    cmocka_unit_test(what_lives_is_kept),
    cmocka_unit_test(guarded_blocks_leave_their_quarantine),
    cmocka_unit_test(threads_go_on_while_strategies_come_and_go),
  };
  setenv("LOAM_CONTROL", "0", 1); /* no service thread, so that no other thread sweeps */
  return cmocka_run_group_tests_name("retire", tests, NULL, NULL);
}
