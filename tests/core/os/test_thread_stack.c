/* test_thread_stack.c - the stacks of loam's own threads, in a program that has much thread-local
 * data: thread.h. */
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

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_thread_has_a_stack_beside_its_thread_local_data),
  };
  return cmocka_run_group_tests_name("thread_stack", tests, NULL, NULL);
}
