/* test_keep - with LOAM_KEEP=1 a process keeps the memory that it frees, until it asks loam to give
 * it back. */
#include <stdlib.h>

#include "heap/pools.h"
#include "heap/sweep.h"
#include "os/decay.h"
#include "pages/regions.h"
#include "test.h"

#define PEAK (128 * LM_MIB)
enum { KINDS = 4, SLOW_CALLS = 100 * LM_DECAY_CALLS };
static const size_t sizes[KINDS] = { 100, 3000, 50000, 3 << 20 };

static void *block[PEAK / 100];

static void rise_and_fall(size_t size) {
  size_t n = PEAK / size;
  for (size_t i = 0; i < n; i++) {
    block[i] = loam_malloc(NULL, size);
    assert_non_null(block[i]);
    memset(block[i], 1, size);
  }
  for (size_t i = 0; i < n; i++) {
    lm_decay_note_unserved();
    loam_free(block[i]);
  }
}

/* Without LOAM_KEEP, a tick would be due at each call. */
static void poll_for_ticks(void) {
  for (int i = 0; i < SLOW_CALLS; i++) {
    lm_decay_note_unserved();
    lm_decay_wait(0);
    lm_sweep_poll(lm_thread_self);
  }
}

static void what_is_freed_stays_until_a_trim(void **state) {
  (void)state;
  for (int i = 0; i < KINDS; i++) rise_and_fall(sizes[i]);
  poll_for_ticks();
  assert_int_equal(lm_regions_released(), 0);
  if (!SANITIZED) assert_true(resident() > PEAK);
  assert_true(loam_trim() > PEAK / 2);
  assert_true(lm_regions_released() > PEAK / 2);
}

int main(void) {
  setenv("LOAM_KEEP", "1", 1);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_freed_stays_until_a_trim),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
