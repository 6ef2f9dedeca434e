/* test_board_use.c - the memory of strategies that a process writes on its board: board_use.h. */
#include "service/board_use.h"

#include <stdio.h>
#include <string.h>

#include "loam.h"
#include "test.h"

enum { BLOCKS = 100, SIZE = 20000 };

static void load(int limit_mib) {
  char text[256];
  snprintf(text, sizeof text,
           "local cache = loam.host { name = 'cache', limit = %d * loam.MiB }\n"
           "return loam.policy { name = 'use', pick = function(req) return cache end }\n",
           limit_mib);
  assert_int_equal(loam_policy_load_text("use", text), LOAM_OK);
}

/* Returns the live bytes of the strategy 'cache' in an entry of the board. */
static uint64_t live_bytes(void) {
  static lm_board_entry entry;
  lm_board_use_fill(&entry);
  for (uint32_t i = 0; i < entry.figures.uses; i++)
    if (!strcmp(entry.use[i].strategy, "cache")) return entry.use[i].live_bytes;
  fail_msg("the entry does not have the strategy");
  return 0;
}

/* The strategy with the new limit has no pool before its first request, and counts the memory of
 * the one before it. */
static void memory_counts_once_after_an_edit_of_its_limit(void **state) {
  (void)state;
  void *block[BLOCKS];
  load(64);
  for (int i = 0; i < BLOCKS; i++) assert_non_null(block[i] = loam_malloc(NULL, SIZE));
  uint64_t before = live_bytes();
  assert_in_range(before, BLOCKS * SIZE, BLOCKS * SIZE * 3 / 2);
  load(32);
  assert_int_equal(live_bytes(), before);
  load(16);
  assert_int_equal(live_bytes(), before);
  for (int i = 0; i < BLOCKS; i++) loam_free(block[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(memory_counts_once_after_an_edit_of_its_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
