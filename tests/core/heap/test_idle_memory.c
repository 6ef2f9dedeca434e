/* test_idle_memory.c - memory that is not needed goes back to the system: by loam_trim, by ticks,
 * and by time. */
#include "chance.h"
#include "os/decay.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "heap/pool.h"
#include "heap/sweep.h"
#include "loam.h"
#include "service/control.h"
#include "test.h"

/* A peak of 200 MiB: one half is small objects of many sizes, the other half is large blocks.
 * Sanitized builds do not measure it and use a quarter. */
enum { SMALL = SANITIZED ? 25000 : 100000, SMALL_SIZE = 2048, LARGE = SANITIZED ? 25 : 100 };
#define LARGE_SIZE LM_MIB
#define NEAR (8 * LM_MIB)

static char *small[SMALL], *large[LARGE];

static uint64_t seed = 5;

static char *touched(size_t size) {
  char *p = loam_malloc(NULL, size);
  assert_non_null(p);
  return memset(p, 1, size);
}

static void rise(void) {
  for (int i = 0; i < SMALL; i++) small[i] = touched(1 + chance(&seed, SMALL_SIZE));
  for (int i = 0; i < LARGE; i++) large[i] = touched(LARGE_SIZE);
}

static void shuffle(void) {
  for (int i = 0; i < SMALL; i++) {
    uint32_t other = chance(&seed, SMALL);
    char *p = small[other];
    small[other] = small[i];
    small[i] = p;
  }
}

static void fall(void) {
  for (int i = 0; i < SMALL; i++) loam_free(small[i]);
  for (int i = 0; i < LARGE; i++) loam_free(large[i]);
}

/* Returns the resident bytes before a peak. They contain the metadata that a peak leaves behind. */
static size_t baseline(void) {
  rise();
  fall();
  loam_trim();
  return resident();
}

static int check_laws(void **state) {
  (void)state;
  return lm_pool_is_valid() ? 0 : -1;
}

static void trim_gives_back_all_at_once(void **state) {
  (void)state;
  size_t before = baseline();
  rise();
  size_t peak = resident();
  shuffle();
  fall();
  size_t kept = resident(), bytes = loam_trim();
  assert_int_not_equal(bytes, 0);
  if (!SANITIZED) {
    assert_true(peak > before + 150 * LM_MIB);
    assert_true(bytes >= kept - resident() && resident() < before + NEAR);
  }
  assert_int_equal(loam_trim(), 0);
}

static void trim_keeps_every_live_block(void **state) {
  (void)state;
  rise();
  for (int i = 0; i < SMALL; i += 2) loam_free(small[i]);
  for (int i = 0; i < LARGE; i += 2) loam_free(large[i]);
  loam_trim();
  for (int i = 1; i < SMALL; i += 2) {
    assert_int_equal(small[i][0], 1);
    loam_free(small[i]);
  }
  for (int i = 1; i < LARGE; i += 2) {
    assert_int_equal(large[i][LARGE_SIZE - 1], 1);
    loam_free(large[i]);
  }
}

/* The objects have pages of their own: pages between live objects go back, and the live ones keep
 * their bytes. */
static void ticks_give_back_the_pages_between_survivors(void **state) {
  (void)state;
  enum { BLOCKS = 4000, SIZE = 16384 };
  size_t before = baseline();
  for (int i = 0; i < BLOCKS; i++) small[i] = touched(SIZE);
  for (int i = 0; i < BLOCKS; i++)
    if (i % 10) loam_free(small[i]);
  for (int i = 0; i < 4; i++) lm_sweep_decay();
  if (!SANITIZED) assert_true(resident() < before + BLOCKS / 10 * SIZE + NEAR);
  for (int i = 0; i < BLOCKS; i += 10) {
    for (int at = 0; at < SIZE; at += SANITIZED ? 64 : 1) assert_int_equal(small[i][at], 1);
    loam_free(small[i]);
  }
}

/* No span becomes empty here, and the service thread has to hear of the free pages all the same. */
static void free_pages_between_survivors_are_worth_a_tick(void **state) {
  (void)state;
  enum { BLOCKS = SMALL, SIZE = 200 };
  size_t before = baseline();
  for (int i = 0; i < 10 && !lm_decay_is_asleep(); i++) lm_sweep_decay();
  assert_true(lm_decay_is_asleep());
  lm_decay_note_served(lm_sys_clock_ns() + AN_HOUR);
  for (int i = 0; i < BLOCKS; i++) small[i] = touched(SIZE);
  for (int i = 0; i < BLOCKS; i++)
    if (i % 50) loam_free(small[i]);
  assert_false(lm_decay_is_asleep());
  for (int i = 0; i < 10 && !lm_decay_is_asleep(); i++) lm_sweep_decay();
  assert_true(lm_decay_is_asleep());
  if (!SANITIZED) assert_true(resident() < before + BLOCKS / 50 * LM_PAGE + NEAR);
  for (int i = 0; i < BLOCKS; i += 50) loam_free(small[i]);
}

/* Pages that went back already are worth no other tick: only what is freed later counts. */
static void pages_that_went_back_wake_no_tick_again(void **state) {
  (void)state;
  enum { BLOCKS = SMALL, SIZE = 200, FEW = 4000 };
  static char *few[FEW];
  (void)baseline();
  lm_decay_note_served(lm_sys_clock_ns() + AN_HOUR);
  for (int i = 0; i < BLOCKS; i++) small[i] = touched(SIZE);
  for (int i = 0; i < BLOCKS; i++)
    if (i % 50) loam_free(small[i]);
  for (int i = 0; i < 10 && !lm_decay_is_asleep(); i++) lm_sweep_decay();
  assert_true(lm_decay_is_asleep());
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < FEW; i++) few[i] = touched(SIZE);
    for (int i = 0; i < FEW; i++) loam_free(few[i]);
    assert_true(lm_decay_is_asleep());
  }
  for (int i = 0; i < BLOCKS; i += 50) loam_free(small[i]);
}

/* During frees, most spans are about to become empty, and then go back as a whole. So ticks leave
 * their pages. */
static void ticks_leave_the_pages_of_what_is_being_freed(void **state) {
  (void)state;
  skip_if_sanitized();
  enum { BLOCKS = 4000, SIZE = 16384, A_TICK = 100 };
  size_t before = baseline();
  for (int i = 0; i < BLOCKS; i++) small[i] = touched(SIZE);
  size_t full = resident();
  for (int i = 0; i < BLOCKS / 2; i++) {
    if (i % 10) loam_free(small[i]);
    if (i % A_TICK == 0) lm_sweep_decay();
  }
  assert_true(resident() + NEAR > full);
  for (int i = 0; i < BLOCKS; i++)
    if (i >= BLOCKS / 2 || i % 10 == 0) loam_free(small[i]);
  for (int i = 0; i < 3; i++) lm_sweep_decay();
  assert_true(resident() < before + NEAR);
}

static void three_ticks_give_back_a_peak_and_then_none_is_wanted(void **state) {
  (void)state;
  size_t before = baseline();
  rise();
  fall();
  assert_false(lm_decay_is_asleep());
  for (int i = 0; i < 3; i++) lm_sweep_decay();
  if (!SANITIZED) assert_true(resident() < before + NEAR);
  lm_sweep_decay();
  assert_true(lm_decay_is_asleep());
}

static void ticks_leave_what_is_taken_over_and_over(void **state) {
  (void)state;
  size_t size = 32 * LM_MIB;
  loam_trim();
  char *first = touched(size);
  loam_free(first);
  for (int i = 0; i < 5; i++) {
    lm_sweep_decay();
    char *p = loam_malloc(NULL, size);
    assert_ptr_equal(p, first);
    assert_int_equal(p[size / 2], 1);
    loam_free(p);
  }
  lm_sweep_decay();
  lm_sweep_decay();
  first = loam_malloc(NULL, size);
  assert_int_equal(first[size / 2], 0);
  loam_free(first);
}

enum { TALL = 8 };

/* Returns the bytes that go back during a peak of 320 MiB, in blocks that no thread caches. */
static size_t released_by_a_peak(void) {
  static char *p[TALL];
  size_t before = lm_regions_released();
  for (int i = 0; i < TALL; i++) {
    p[i] = loam_malloc(NULL, 40 * LM_MIB);
    assert_non_null(p[i]);
    for (size_t at = 0; at < 40 * LM_MIB; at += LM_MIB / 4) p[i][at] = 1;
  }
  for (int i = 0; i < TALL; i++) loam_free(p[i]);
  return lm_regions_released() - before;
}

/* This test runs first. Other tests can teach the pool to keep more of a peak, and how much more
 * depends on the time that they take. */
static void a_peak_that_comes_again_and_again_is_kept_until_it_is_idle(void **state) {
  (void)state;
  loam_trim();
  size_t before = resident();
  lm_sweep_decay();
  size_t gone = released_by_a_peak();
  assert_true(gone > 100 * LM_MIB);
  for (int i = 0; i < 50 && gone; i++) { /* on a slow machine the last tick may be long ago */
    lm_sweep_decay();
    (void)released_by_a_peak();
    gone = released_by_a_peak();
  }
  assert_int_equal(gone, 0);
  for (int i = 0; i < 4; i++) lm_sweep_decay();
  if (!SANITIZED) assert_true(resident() < before + NEAR);
  assert_true(released_by_a_peak() > 100 * LM_MIB);
  loam_trim();
}

/* Idle metadata goes back too. A few pages of it are too little to wake the service thread. */
static void ticks_give_back_what_loam_itself_used(void **state) {
  (void)state;
  loam_trim();
  lm_decay_note_served(lm_sys_clock_ns() + AN_HOUR);
  size_t before = lm_metadata_held();
  lm_metadata_free(memset(lm_metadata_alloc(20 * LM_MIB), 1, 20 * LM_MIB));
  assert_true(lm_metadata_held() >= before + 20 * LM_MIB);
  assert_false(lm_decay_is_asleep());
  for (int i = 0; i < 10 && !lm_decay_is_asleep(); i++) lm_sweep_decay();
  assert_true(lm_decay_is_asleep());
  assert_true(lm_metadata_held() <= before + LM_MIB);
}

static void few_freed_bytes_start_no_decay(void **state) {
  (void)state;
  loam_trim();
  for (int i = 0; i < 4 && !lm_decay_is_asleep(); i++) lm_sweep_decay();
  for (int i = 0; i < 10; i++) loam_free(touched(100000));
  assert_true(lm_decay_is_asleep());
  loam_free(touched(2 * LM_MIB));
  assert_false(lm_decay_is_asleep());
}

static _Atomic bool churning;

static void *churn(void *argument) {
  (void)argument;
  char *held[64] = { 0 };
  for (uint32_t i = 1; atomic_load(&churning); i++) {
    uint32_t at = i * 2654435761u >> 26;
    loam_free(held[at]);
    held[at] = loam_malloc(NULL, i % 97 ? 16 + i % 3000 : 70000 + i % 500000);
    held[at][0] = 1;
  }
  for (size_t i = 0; i < LM_COUNT(held); i++) loam_free(held[i]);
  return NULL;
}

static void *trim_often(void *argument) {
  (void)argument;
  while (atomic_load(&churning)) loam_trim();
  return NULL;
}

/* A sweep must not take bins that only another sweep has claimed. */
static void trims_and_ticks_beside_threads_that_allocate(void **state) {
  (void)state;
  enum { ROUNDS = 200, FEWEST = 20 }; /* on a busy machine a round may take seconds */
  pthread_t threads[4];
  int64_t end = lm_sys_clock_ns() + 10000000000;
  atomic_store(&churning, true);
  for (int i = 0; i < 4; i++) threads[i] = start_thread(i < 2 ? churn : trim_often, NULL);
  for (int i = 0; i < ROUNDS && (i < FEWEST || lm_sys_clock_ns() < end); i++) {
    lm_sweep_decay();
    if (i % 4 == 0) loam_trim();
    usleep(1000);
  }
  atomic_store(&churning, false);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

/* ---- The service thread */

static char folder[64];

static int serve(void **state) {
  (void)state;
  strcpy(folder, "/tmp/loam-test-XXXXXX");
  return mkdtemp(folder) && !lm_control_start(folder, true) ? 0 : -1;
}

static int stop_serving(void **state) {
  lm_control_stop();
  char command[96]; /* a killed child may have left its socket */
  snprintf(command, sizeof command, "rm -r %s", folder);
  if (system(command)) return -1;
  return check_laws(state);
}

/* Returns the processor time of the service thread in nanoseconds, or -1 if the kernel does not
 * state it. */
static long busy_ns(void) {
  char path[64], text[2048];
  size_t length;
  long n = -1;
  DIR *dir = opendir("/proc/self/task");
  for (struct dirent *d; (d = readdir(dir));) {
    snprintf(path, sizeof path, "/proc/self/task/%.20s/status", d->d_name);
    if (lm_sys_read_file(path, text, sizeof text, &length)) continue;
    if (strncmp(text, "Name:\tloam\n", 11)) continue;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/schedstat", d->d_name);
    if (!lm_sys_read_file(path, text, sizeof text, &length)) n = strtol(text, NULL, 10);
  }
  closedir(dir);
  return n;
}

/* Waits until there is nothing to release. The test fails only for a service thread that does not
 * tick at all, not for a late one. */
static void wait_for_sleep(void) {
  for (int naps = 0; !lm_decay_is_asleep() && be_patient(&naps);) continue;
  assert_true(lm_decay_is_asleep());
}

static void time_gives_back_a_peak(void **state) {
  (void)state;
  size_t before = baseline();
  rise();
  fall();
  wait_for_sleep();
  if (!SANITIZED) assert_true(resident() < before + NEAR);
}

static void *rise_and_fall(void *argument) {
  rise();
  shuffle();
  fall();
  return argument;
}

/* An object in a bin keeps its span. So if a peak that was freed in random order goes back, this
 * shows that the bins ended with their thread. */
static void time_gives_back_a_peak_of_a_thread_that_ended(void **state) {
  (void)state;
  size_t before = baseline();
  pthread_join(start_thread(rise_and_fall, NULL), NULL);
  wait_for_sleep();
  if (!SANITIZED) assert_true(resident() < before + NEAR);
}

/* Waits for three ticks. A service thread that ticks or spins runs during that time. One that does
 * not may still be on its way to sleep, so the caller tries again. */
static bool is_quiet_for_a_while(void) {
  long before = busy_ns();
  assert_true(before > 0);
  usleep(800000);
  return busy_ns() == before;
}

static void an_idle_host_does_not_tick(void **state) {
  (void)state;
  if (access("/proc/self/schedstat", R_OK)) {
    print_message("this kernel does not tell how long a thread ran\n");
    skip();
  }
  rise();
  fall();
  wait_for_sleep();
  bool is_quiet = false;
  for (int i = 0; i < 50 && !is_quiet; i++) is_quiet = is_quiet_for_a_while();
  assert_true(is_quiet);
}

static void it_ticks_again_after_it_slept(void **state) {
  an_idle_host_does_not_tick(state);
  time_gives_back_a_peak(state);
}

static int peak_in_child(void *argument) {
  (void)argument;
  size_t before = resident();
  fall();
  for (int naps = 0; resident() + 100 * LM_MIB > before && be_patient(&naps);) continue;
  return resident() + 100 * LM_MIB > before;
}

static void a_forked_child_gives_back_its_own(void **state) {
  (void)state;
  skip_if_sanitized();
  rise();
  assert_int_equal(run_in_child(peak_in_child, NULL), 0);
  fall();
}

int main(void) {
#define TEST(name) cmocka_unit_test_teardown(name, check_laws)
#define SERVED(name) cmocka_unit_test_setup_teardown(name, serve, stop_serving)
  const struct CMUnitTest tests[] = {
    TEST(a_peak_that_comes_again_and_again_is_kept_until_it_is_idle),
    TEST(trim_gives_back_all_at_once),
    TEST(trim_keeps_every_live_block),
    TEST(ticks_give_back_the_pages_between_survivors),
    TEST(free_pages_between_survivors_are_worth_a_tick),
    TEST(pages_that_went_back_wake_no_tick_again),
    TEST(ticks_leave_the_pages_of_what_is_being_freed),
    TEST(three_ticks_give_back_a_peak_and_then_none_is_wanted),
    TEST(ticks_leave_what_is_taken_over_and_over),
    TEST(ticks_give_back_what_loam_itself_used),
    TEST(few_freed_bytes_start_no_decay),
    TEST(trims_and_ticks_beside_threads_that_allocate),
    SERVED(time_gives_back_a_peak),
    SERVED(time_gives_back_a_peak_of_a_thread_that_ended),
    SERVED(an_idle_host_does_not_tick),
    SERVED(it_ticks_again_after_it_slept),
    SERVED(a_forked_child_gives_back_its_own),
  };
  setenv("LOAM_CONTROL", "0",
         1); /* so that the first allocation does not start the service thread */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
