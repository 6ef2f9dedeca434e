/* grows.c - does what its standard input says, a letter at a time: 'g' takes a MiB and keeps it, if
 * it can; 'q' ends by itself. */
#include <string.h>

#include "expect.h"

__attribute__((noinline)) static void grow(void) {
  void *p = kept(malloc(1 << 20));
  if (p) memset(p, 1, 1 << 20);
}

int main(void) {
  char letter;
  puts("ready");
  fflush(stdout);
  while (read(0, &letter, 1) == 1 && letter != 'q')
    if (letter == 'g') grow();
  return 0;
}
