/* holds.c - allocates 1000 blocks of 48 bytes, prints "ready", and waits until it is killed. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BLOCKS = 1000 };

int main(void) {
  static char *block[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    block[i] = malloc(48);
    if (!block[i]) return 1;
    *block[i] = 1;
  }
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
