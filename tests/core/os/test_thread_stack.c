/* test_thread_stack.c - loam's own threads: their stacks, in a program that has much thread-local
 * data, and their priority: thread.h. */
#include "os/thread.h"

#include "test.h"

/* The C library takes the thread-local data of a program from the stack of each thread. */
static _Thread_local volatile char large[1040 << 10];

static void *use_stack(void *unused) {
  volatile char data[800 << 10];
  (void)unused;
  for (size_t i = 0; i < sizeof data; i += LM_PAGE) data[i] = 1;
  large[0] = data[0];
  return NULL;
}

static void a_thread_has_a_stack_beside_its_thread_local_data(void **state) {
  (void)state;
  pthread_t thread;
  assert_int_equal(lm_thread_start(&thread, use_stack), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
}

static _Atomic int policy_seen;

static void *see_policy(void *unused) {
  (void)unused;
  policy_seen = sched_getscheduler(0);
  return NULL;
}

static void a_thread_of_loam_has_an_ordinary_priority(void **state) {
  (void)state;
  pthread_t thread;
  struct sched_param urgent = { .sched_priority = 1 }, usual = { 0 };
  int error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &urgent);
  if (error) {
    print_message("not tried: no real-time priority here (%s)\n", strerror(error));
    skip();
  }
  assert_int_equal(lm_thread_start(&thread, see_policy), 0);
  pthread_join(thread, NULL);
  assert_int_equal(policy_seen, SCHED_OTHER);
  assert_int_equal(sched_getscheduler(0), SCHED_FIFO);
  assert_int_equal(pthread_setschedparam(pthread_self(), SCHED_OTHER, &usual), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_thread_has_a_stack_beside_its_thread_local_data),
    cmocka_unit_test(a_thread_of_loam_has_an_ordinary_priority),
  };
  return cmocka_run_group_tests_name("thread_stack", tests, NULL, NULL);
}
