/* last.c - keeps small, middle-sized and large blocks, writes "up", and then allocates and frees
 * 100 MiB every 10 ms, until it is killed. */
#include <string.h>
#include <time.h>

#include "expect.h"

enum { SMALL = 1000, MIDDLE = 100, LARGE = 3 };

static void hold(int n, size_t size) {
  for (int i = 0; i < n; i++) {
    char *p = kept(malloc(size));
    expect(p);
    memset(p, 1, size);
  }
}

int main(void) {
  struct timespec pause = { .tv_nsec = 10000000 };
  hold(SMALL, 100);
  hold(MIDDLE, 20000);
  hold(LARGE, 4 << 20);
  expect(write(1, "up\n", 3) == 3);
  for (;;) {
    free(kept(malloc(100 << 20))); /* too large for the thread's cache: it takes the slow path */
    nanosleep(&pause, NULL);
  }
}
