/* test_keep.c - with LOAM_KEEP=1 a process keeps the memory that it frees, until it asks loam to
 * give it back, or memory is short. */
#include <stdlib.h>

#include "folder.h"
#include "heap/pools.h"
#include "heap/sweep.h"
#include "os/available.h"
#include "os/decay.h"
#include "pages/regions.h"
#include "service/control.h"
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

/* The control group is made of files. */
static void what_is_freed_goes_back_when_the_group_is_full(void **state) {
  (void)state;
  char self[96];
  assert_non_null(mkdtemp(folder));
  snprintf(self, sizeof self, "%s/self", folder);
  write_file("self", "0::/\n");
  write_file("memory.high", "100000000\n");
  write_file("memory.current", "95000000\n");
  lm_available_pretend(self, folder, "/proc/meminfo");
  rise_and_fall(sizes[KINDS - 1]);
  size_t released = lm_regions_released();
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  for (int naps = 0; lm_regions_released() < released + PEAK / 2 && be_patient(&naps);) continue;
  assert_true(lm_regions_released() >= released + PEAK / 2);
  lm_control_stop();
}

int main(void) {
  setenv("LOAM_KEEP", "1", 1);
  setenv("LOAM_CONTROL", "0", 1); /* the first allocation must not start the service thread */
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_freed_stays_until_a_trim),
    cmocka_unit_test(what_is_freed_goes_back_when_the_group_is_full),
  };
  return cmocka_run_group_tests(tests, NULL, remove_folder);
}
