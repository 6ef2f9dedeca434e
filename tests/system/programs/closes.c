/* closes.c - `closes ROUNDS [idle]`: closes all descriptors from 3 on, opens its own at these
 * numbers, and allocates, ROUNDS times. The program's own files must stay at their numbers. At the
 * end it closes all descriptors again, and waits for the end of its input; it allocates while it
 * waits, except with `idle`. */
#include <errno.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expect.h"

enum { NUMBERS = 1024, PUT = 700, BLOCKS = 32 };

static void close_all(void) {
  for (int fd = 3; fd < NUMBERS; fd++) close(fd);
}

static ino_t inode_of(int fd) {
  struct stat st;
  expect(!fstat(fd, &st));
  return st.st_ino;
}

/* Opens a pipe, which must get the lowest free numbers, 3 and 4, and copies it to all other
 * numbers. */
static void put_all(int ends[2]) {
  expect(!pipe(ends));
  expect(ends[0] == 3 && ends[1] == 4);
  for (int fd = 5; fd < PUT; fd++) expect(dup2(ends[fd & 1], fd) == fd);
}

static void allocate(void) {
  for (int i = 0; i < BLOCKS; i++) free(kept(malloc(64)));
}

int main(int argc, char **argv) {
  long rounds = strtol(argv[1], NULL, 10);
  int ends[2];
  for (long i = 0; i < rounds; i++) {
    close_all();
    put_all(ends);
    ino_t own = inode_of(ends[0]);
    allocate();
    for (int fd = 3; fd < PUT; fd++) expect(inode_of(fd) == own);
  }
  printf("%ld rounds\n", rounds);
  fflush(stdout);
  close_all();
  struct pollfd input = { .fd = 0, .events = POLLIN };
  while (!poll(&input, 1, argc > 2 ? -1 : 20)) allocate();
  return 0;
}
