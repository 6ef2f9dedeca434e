/* first_thread_ends.c - the first thread ends before the other threads. The process ends with its
 * last thread, by exit and with its atexit handlers; so does a child that another thread forks. */
#include <pthread.h>
#include <sys/wait.h>

#include "expect.h"

static void say_goodbye(void) { puts("goodbye"); }

static void *work(void *ctx) {
  for (int i = 0; i < 100; i++) {
    usleep(2000);
    free(kept(malloc((size_t)i * 10000)));
  }
  puts("the last thread ends");
  return ctx;
}

static pthread_t first_thread;

/* Forks a child, whose only thread ends by pthread_exit. That must end the child with status 0.
 * It waits for the end of the first thread before: glibc's pthread_exit loads libgcc_s.so, and a
 * child that is forked during that load cannot call pthread_exit. */
static void *fork_and_work(void *ctx) {
  int status;
  expect(pthread_join(first_thread, NULL) == 0);
  pid_t child = fork();
  if (child == 0) {
    work(ctx);
    free(kept(malloc((size_t)64 << 20)));
    pthread_exit(NULL);
  }
  expect(waitpid(child, &status, 0) == child && status == 0);
  return work(ctx);
}

int main(void) {
  pthread_t thread;
  setvbuf(stdout, NULL, _IONBF, 0);
  atexit(say_goodbye);
  free(kept(malloc(100)));
  first_thread = pthread_self();
  expect(pthread_create(&thread, NULL, fork_and_work, NULL) == 0);
  pthread_exit(NULL);
}
