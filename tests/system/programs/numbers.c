/* numbers.c - a program that relies on descriptor numbers. It prints the number of the next file
 * that it opens; it closes all descriptors from 3 on, as daemons do, and puts a pipe at all these
 * numbers. After a second it prints what the pipe holds, and whether the process was idle. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"

enum { NUMBERS = 1024 };

static void nap(int ms) {
  struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
  nanosleep(&t, NULL);
}

/* EBUSY means that another thread is opening a file at this number now. */
static void put(int from, int at) {
  int is;
  while ((is = dup2(from, at)) < 0 && errno == EBUSY) nap(1);
  expect(is == at);
}

int main(void) {
  int next = open("/dev/null", O_RDONLY), ends[2];
  printf("the next number is %d\n", next);
  for (int fd = 3; fd < NUMBERS; fd++) close(fd);
  expect(!pipe(ends));
  for (int fd = 5; fd < NUMBERS; fd++) put(ends[fd & 1], fd);
  expect(write(ends[1], "untouched", 9) == 9);
  fflush(stdout);
  clock_t before = clock();
  nap(1000);
  double busy = (double)(clock() - before) / CLOCKS_PER_SEC;
  char text[20] = "";
  expect(!fcntl(ends[0], F_SETFL, O_NONBLOCK));
  printf("read %zd: %s\n", read(ends[0], text, sizeof text - 1), text);
  puts(busy < 0.5 ? "idle" : "busy");
  int open_ones = 0;
  for (int fd = 3; fd < NUMBERS; fd++) open_ones += fcntl(fd, F_GETFD) != -1;
  printf("%d are open\n", open_ones);
  free(kept(malloc(100000)));
  return 0;
}
