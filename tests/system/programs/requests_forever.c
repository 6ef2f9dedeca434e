/* requests_forever.c - `requests_forever N`: N processes that request memory all the time, until
 * the test kills the first one. */
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#include "expect.h"

/* Requests memory of all small sizes, writes a byte to `ready`, and then requests a block every 50
 * ms. */
static void request_for_good(int ready) {
  struct timespec nap = { 0, 50000000 };
  for (size_t size = 8; size < 4096; size *= 2) free(kept(malloc(size)));
  expect(write(ready, "x", 1) == 1);
  for (;;) {
    free(kept(malloc(200)));
    nanosleep(&nap, NULL);
  }
}

int main(int n, char **argument) {
  int ready[2], processes = n == 2 ? atoi(argument[1]) : 1;
  char byte;
  expect(!pipe(ready));
  for (int i = 1; i < processes; i++) {
    if (fork()) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    request_for_good(ready[1]);
  }
  for (int i = 1; i < processes; i++) expect(read(ready[0], &byte, 1) == 1);
  expect(write(1, "up\n", 3) == 3);
  request_for_good(ready[1]);
}
