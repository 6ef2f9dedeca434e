/* aligned.c - for each argument in turn, waits until its blocks have that alignment, and prints
 * "obeys ALIGNMENT". Then it sleeps until it is killed. */
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "expect.h"

int main(int n, char **argument) {
  struct timespec nap = { 0, 20000000 };
  for (int i = 1; i < n; i++) {
    uintptr_t align = (uintptr_t)atol(argument[i]);
    for (bool obeys = false; !obeys; nanosleep(&nap, NULL)) {
      void *block[8]; /* several, because one block may be aligned by chance */
      obeys = true;
      for (int k = 0; k < 8; k++) obeys &= (uintptr_t)(block[k] = kept(malloc(200))) % align == 0;
      for (int k = 0; k < 8; k++) free(block[k]);
    }
    printf("obeys %s\n", argument[i]);
    fflush(stdout);
  }
  for (;;) pause();
}
