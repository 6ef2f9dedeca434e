/* flushes.c - a thread forks while a second thread calls fflush(NULL) and other threads call
 * getline, which allocates while it holds the lock of its file. For a fork, the C library takes the
 * lock of its list of files; fflush(NULL) holds that lock while it waits for the lock of a file. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "expect.h"

enum { FORKS = 300, LINES = 30, LINE = 90000, LENGTH = 4 * LINE };

static int stop;

static int is_stopped(void) { return __atomic_load_n(&stop, __ATOMIC_RELAXED); }

/* Reads long lines, each into a block that grows to a large block. Large blocks come from a pool
 * that all threads share. */
static void *read_lines(void *text) {
  static _Thread_local char *line[LINES];
  while (!is_stopped()) {
    FILE *file = fmemopen(text, LENGTH, "r");
    expect(file);
    for (int i = 0; i < LINES; i++) {
      size_t room = 0;
      line[i] = NULL;
      if (getline(&line[i], &room, file) < 0) rewind(file);
    }
    for (int i = 0; i < LINES; i++) free(line[i]);
    fclose(file);
  }
  return NULL;
}

static void *flush(void *ctx) {
  while (!is_stopped()) fflush(NULL);
  return ctx;
}

int main(void) {
  static char text[LENGTH];
  pthread_t reader[2], flusher;
  alarm(120);
  for (int i = 0; i < LENGTH; i++) text[i] = i % LINE == LINE - 1 ? '\n' : 'x';
  for (int i = 0; i < 2; i++) expect(!pthread_create(&reader[i], NULL, read_lines, text));
  expect(!pthread_create(&flusher, NULL, flush, NULL));
  for (int i = 0; i < FORKS; i++) {
    pid_t child = fork();
    expect(child >= 0);
    if (child == 0) {
      free(kept(malloc(100000)));
      _exit(0);
    }
    int status;
    expect(waitpid(child, &status, 0) == child);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < 2; i++) pthread_join(reader[i], NULL);
  pthread_join(flusher, NULL);
  puts("flushes: as it must be");
  return 0;
}
