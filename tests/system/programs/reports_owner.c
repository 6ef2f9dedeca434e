/* reports_owner.c - allocates a block for each line of its input, and prints the strategy and the
 * policy generation that decided the block. It fills all blocks, and checks their contents before
 * it frees them at the end. */
#include <string.h>

#include "expect.h"
#include "loam.h"

enum { BLOCKS = 10000, SIZE = 5000 };

static char *block[BLOCKS];

int main(void) {
  char line[100];
  int count = 0;
  while (count < BLOCKS && fgets(line, sizeof line, stdin)) {
    loam_owner_info owner;
    block[count] = kept(malloc(SIZE));
    expect(block[count]);
    memset(block[count], count & 0x7f, SIZE);
    expect(loam_owner(block[count], &owner) == LOAM_OK);
    printf("%s %llu\n", owner.strategy, (unsigned long long)owner.generation);
    fflush(stdout);
    count++;
  }
  for (int i = 0; i < count; i++) {
    for (int at = 0; at < SIZE; at++) expect(block[i][at] == (i & 0x7f));
    free(block[i]);
  }
  puts("all freed");
  return 0;
}
