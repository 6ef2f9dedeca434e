/* forks.c - several threads fork, and the first thread also calls vfork and posix_spawn, while
 * others allocate. No child may hang or fail. */
#include <pthread.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "expect.h"

enum { THREADS = 3, FORKS = 200, THREADS_FORKS = 100, CHILD_BLOCKS = 200 };

static int stop;
static char *inherited;
extern char **environ;

static void churn(unsigned seed, int blocks) {
  void *slot[64] = { NULL };
  for (int i = 0; i < blocks; i++) {
    seed = seed * 1103515245 + 12345;
    unsigned at = seed >> 26;
    size_t size = (seed >> 8) % (i % 50 ? 3000 : 300000);
    free(slot[at]);
    slot[at] = kept(malloc(size));
    expect(slot[at]);
    memset(slot[at], 0x5a, size);
  }
  for (int i = 0; i < 64; i++) free(slot[i]);
}

static void must_end_well(pid_t child) {
  int status;
  expect(child > 0);
  expect(waitpid(child, &status, 0) == child);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *allocate_once(void *ctx) {
  churn(7, CHILD_BLOCKS);
  return ctx;
}

static void forked(int i) {
  pid_t child = fork();
  if (!child) {
    churn((unsigned)i, CHILD_BLOCKS << i % 3); /* some get a service thread */
    inherited = realloc(inherited, 50000);
    expect(inherited && !strcmp(inherited, "inherited"));
    free(inherited);
    if (i % 10 == 0) { /* some children also start a thread and fork */
      pthread_t thread;
      expect(!pthread_create(&thread, NULL, allocate_once, NULL));
      expect(!pthread_join(thread, NULL));
      pid_t grandchild = fork();
      if (!grandchild) _exit(allocate_once(NULL) != NULL);
      must_end_well(grandchild);
    }
    _exit(0);
  }
  must_end_well(child);
}

static void *work(void *ctx) {
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) churn((unsigned)(size_t)ctx, 500);
  return NULL;
}

static void *work_and_fork(void *ctx) {
  for (int i = 0; i < THREADS_FORKS; i++) {
    churn((unsigned)(size_t)ctx, 100);
    forked(i);
  }
  return NULL;
}

static void vforked(void) {
  char *const arguments[] = { "true", NULL };
  pid_t child = vfork();
  if (!child) {
    execv("/bin/true", arguments);
    _exit(1);
  }
  must_end_well(child);
  expect(!posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ));
  must_end_well(child);
}

int main(void) {
  pthread_t thread[THREADS], forker[2];
  alarm(300); /* this process waits for each child, so it also hangs if a child does */
  inherited = strcpy(kept(malloc(10)), "inherited");
  for (size_t i = 0; i < THREADS; i++)
    expect(!pthread_create(&thread[i], NULL, work, (void *)(i + 1)));
  for (size_t i = 0; i < 2; i++)
    expect(!pthread_create(&forker[i], NULL, work_and_fork, (void *)(i + 9)));
  for (int i = 0; i < FORKS; i++) {
    forked(i);
    if (i % 15 == 0) vforked();
  }
  for (int i = 0; i < 2; i++) pthread_join(forker[i], NULL);
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  free(inherited);
  puts("forks: as it must be");
  return 0;
}
