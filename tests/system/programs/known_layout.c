/* known_layout.c - allocates memory in a known pattern, prints "ready", and waits until it is
 * killed. The pattern: 2,000 blocks of 20 KiB, of which every second one is freed; one block of 64
 * MiB, of which the first half is touched; and N untouched blocks of 1 GiB, where N is the first
 * argument. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 2000, SIZE = 20 << 10 };
#define LARGE ((size_t)64 << 20)

static char *block[BLOCKS], *large;
static void *untouched[128];

int main(int n, char **word) {
  for (int i = 0; i < BLOCKS; i++) {
    block[i] = malloc(SIZE);
    if (!block[i]) return 1;
    memset(block[i], 1, SIZE);
  }
  for (int i = 0; i < BLOCKS; i += 2) free(block[i]);
  large = malloc(LARGE);
  if (!large) return 1;
  memset(large, 1, LARGE / 2);
  for (int i = 0; n > 1 && i < atoi(word[1]) && i < 128; i++) {
    untouched[i] = malloc((size_t)1 << 30);
    if (!untouched[i]) return 1;
  }
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
