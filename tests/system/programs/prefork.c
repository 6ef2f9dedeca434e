/* prefork.c - a server that forks three workers before it serves, and prints their process ids.
 * Each worker but the first has a peak of 64 MiB. Then each worker has one small block at a time,
 * until standard input ends. */
#include <poll.h>
#include <string.h>
#include <sys/wait.h>

#include "expect.h"

enum { WORKERS = 3, BLOCKS = 4096, BLOCK = 8192, LARGE = 32 << 20 };

static char *block[BLOCKS];

static void peak(void) {
  char *large = kept(malloc(LARGE));
  expect(large);
  memset(large, 1, LARGE);
  for (int i = 0; i < BLOCKS; i++) {
    block[i] = malloc(BLOCK);
    expect(block[i]);
    memset(block[i], 1, BLOCK);
  }
  for (int i = 0; i < BLOCKS; i++) free(block[i]);
  free(large);
}

static void serve(void) {
  struct pollfd input = { .fd = 0, .events = POLLIN };
  while (poll(&input, 1, 10) == 0) free(kept(malloc(100)));
}

int main(void) {
  pid_t worker[WORKERS];
  free(kept(malloc(100)));
  for (int i = 0; i < WORKERS; i++) {
    worker[i] = fork();
    expect(worker[i] >= 0);
    if (worker[i] > 0) continue;
    if (i > 0) peak(); /* the first worker allocates only small blocks */
    serve();
    return 0;
  }
  for (int i = 0; i < WORKERS; i++) printf("%d%c", (int)worker[i], i + 1 < WORKERS ? ' ' : '\n');
  fflush(stdout);
  for (int i = 0; i < WORKERS; i++) {
    int status;
    expect(waitpid(worker[i], &status, 0) == worker[i]);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  return 0;
}
