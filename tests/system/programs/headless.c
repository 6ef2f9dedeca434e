/* headless.c - a first thread that ends before the others: the process, and what it forks, ends
 * with the last of them, by exit and with its handlers. */
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

/* The only one of a child is its first and its last. */
static void *fork_and_work(void *ctx) {
  int status;
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
  expect(pthread_create(&thread, NULL, fork_and_work, NULL) == 0);
  pthread_exit(NULL);
}
