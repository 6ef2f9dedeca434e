/* grows.c - obeys the letters of its standard input: 'g' allocates 1 MiB and keeps it, if there is
 * memory; 'q' ends the program. */
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
