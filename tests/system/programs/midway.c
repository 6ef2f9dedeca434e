/* midway.c - a thread forks while other threads are in slow calls, because they allocate and free
 * more objects than a thread cache holds. Each child allocates objects of these sizes too. */
#include <pthread.h>
#include <sys/wait.h>

#include "expect.h"

enum { THREADS = 3, FORKS = 100, OBJECTS = 24, LONGEST_S = 100 };

static _Atomic int is_over;

static void take_and_give(void) {
  static const size_t sizes[] = { 3000, 9000, 30000, 60000 };
  void *p[OBJECTS];
  for (unsigned k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    for (int i = 0; i < OBJECTS; i++) expect((p[i] = kept(malloc(sizes[k]))));
    for (int i = 0; i < OBJECTS; i++) free(p[i]);
  }
}

static void *work(void *arg) {
  while (!is_over) take_and_give();
  return arg;
}

int main(void) {
  pthread_t thread[THREADS];
  alarm(LONGEST_S);
  for (int i = 0; i < THREADS; i++) expect(!pthread_create(&thread[i], NULL, work, NULL));
  for (int i = 0; i < FORKS; i++) {
    int status;
    pid_t child = fork();
    expect(child >= 0);
    if (!child) {
      alarm(LONGEST_S);
      take_and_give();
      _exit(0);
    }
    expect(waitpid(child, &status, 0) == child);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  is_over = 1;
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  puts("midway: as it must be");
  return 0;
}
