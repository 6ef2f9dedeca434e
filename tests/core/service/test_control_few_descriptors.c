/* test_control_few_descriptors.c - a service in a process with few descriptors: control.h. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "control_fixture.h"
#include "os/sys.h"

/* Sets the soft limit of descriptors. Returns the earlier limit. */
static rlim_t limit_descriptors(rlim_t most) {
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlim_t before = limit.rlim_cur;
  limit.rlim_cur = most;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  return before;
}

/* poll(2) fails with more entries than this limit. The service has places for 16 clients. */
static void a_service_answers_with_sixteen_descriptors(void **state) {
  (void)state;
  rlim_t before = limit_descriptors(16);
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  loam_status status = lm_control_ask(&(lm_control_request){ getpid(), "ping", 1500 }, gather,
                                      NULL);
  limit_descriptors(before);
  assert_int_equal(status, LOAM_OK);
}

static int64_t cpu_ms(void) {
  struct timespec used;
  assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
  return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

/* The host has set the limit below the number of open descriptors. */
static void a_service_that_cannot_wait_does_not_spin(void **state) {
  (void)state;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  assert_int_equal(ask(getpid(), "ping"), LOAM_OK);
  rlim_t before = limit_descriptors(0);
  assert_int_equal(lm_control_watch(NULL), LOAM_OK); /* wakes the service */
  int64_t used = cpu_ms();
  lm_sys_sleep(500000000);
  used = cpu_ms() - used;
  limit_descriptors(before);
  assert_in_range(used, 0, 200);
  assert_int_equal(ask(getpid(), "ping"), LOAM_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(a_service_answers_with_sixteen_descriptors),
    TEST(a_service_that_cannot_wait_does_not_spin),
  };
  setenv("LOAM_CONTROL", "0", 1); /* the first allocation must not start the service */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
