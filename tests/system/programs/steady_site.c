/* steady_site.c - allocates 40 MiB in small blocks, all by one call. For half a second it then
 * allocates and frees more blocks by that call. Then it writes "grown" and waits. */
#include "expect.h"

enum { BLOCKS = 42000, MORE = 2000, SIZE = 1000, ROUNDS = 50 };

__attribute__((noinline)) static void *take(void) { return kept(malloc(SIZE)); }

int main(void) {
  static void *more[MORE];
  for (int i = 0; i < BLOCKS; i++) expect(take() != NULL);
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < MORE; i++) expect((more[i] = take()) != NULL);
    for (int i = 0; i < MORE; i++) free(more[i]);
    usleep(10000);
  }
  expect(write(1, "grown\n", 6) == 6); /* stdio would allocate by another call */
  pause();
  return 0;
}
