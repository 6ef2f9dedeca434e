/* prepares.c - handlers of pthread_atfork that allocate, and that wait for a thread that allocates.
 * Some are registered before the allocator's own handlers, some after them. */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

#include "expect.h"

enum { FORKS = 200, BATCH = 400 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int stop;

/* Allocates blocks of many sizes, more of each size than an allocator keeps for a thread, and frees
 * them. */
static void churn(size_t step) {
  static _Thread_local char *block[BATCH];
  for (size_t i = 0; i < BATCH; i++) {
    size_t size = 1 + i * step % 5000 + (i % 100 ? 0 : 300000);
    block[i] = malloc(size);
    expect(block[i]);
    memset(block[i], 1, size);
  }
  for (size_t i = 0; i < BATCH; i++) free(block[i]);
}

static void allocate(void) { churn(37); }

/* Acts as a library that takes, around fork, a lock that it also holds while it allocates. */
static void prepare_lock(void) {
  pthread_mutex_lock(&mutex);
  churn(41);
}
static void unlock(void) { pthread_mutex_unlock(&mutex); }

static void register_handlers(void) {
  expect(!pthread_atfork(allocate, allocate, allocate));
  expect(!pthread_atfork(prepare_lock, unlock, unlock));
}

/* The program's preinit_array runs before every constructor. */
__attribute__((section(".preinit_array"), used)) static void (*early)(void) = register_handlers;

static void *allocate_locked(void *ctx) {
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
    pthread_mutex_lock(&mutex);
    churn(43);
    pthread_mutex_unlock(&mutex);
    churn(47);
  }
  return ctx;
}

int main(void) {
  pthread_t thread;
  alarm(120);
  expect(!pthread_atfork(allocate, allocate, allocate));
  for (int i = 0; i < FORKS; i++) {
    if (i == FORKS / 2) expect(!pthread_create(&thread, NULL, allocate_locked, NULL));
    pid_t child = fork();
    expect(child >= 0);
    if (child == 0) {
      churn(53);
      _exit(0);
    }
    int status;
    expect(waitpid(child, &status, 0) == child);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  pthread_join(thread, NULL);
  puts("prepares: as it must be");
  return 0;
}
