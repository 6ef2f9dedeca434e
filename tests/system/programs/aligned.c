/* aligned.c - waits until its memory has each alignment of its arguments, one after the other, and
 * says so; then goes on until it is killed. */
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "expect.h"

int main(int n, char **argument) {
  struct timespec nap = { 0, 20000000 };
  for (int i = 1; i < n; i++) {
    uintptr_t align = (uintptr_t)atol(argument[i]);
    for (bool obeys = false; !obeys; nanosleep(&nap, NULL)) {
      void *block[8]; /* some blocks of any alignment are aligned by chance */
      obeys = true;
      for (int k = 0; k < 8; k++) obeys &= (uintptr_t)(block[k] = kept(malloc(200))) % align == 0;
      for (int k = 0; k < 8; k++) free(block[k]);
    }
    printf("obeys %s\n", argument[i]);
    fflush(stdout);
  }
  for (;;) pause();
}
