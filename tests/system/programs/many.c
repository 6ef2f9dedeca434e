/* many.c - has more live blocks than a process may have mappings. The program's own calls that need
 * mappings (a thread, mmap, mprotect) must still succeed. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "expect.h"

enum { BLOCKS = 100000, SIZE = 100 };

static char *block[BLOCKS];

static void *work(void *ctx) { return memset(kept(malloc(SIZE)), 1, SIZE) == ctx ? ctx : NULL; }

int main(void) {
  pthread_t thread;
  for (int i = 0; i < BLOCKS; i++) {
    block[i] = malloc(SIZE);
    expect(block[i]);
    memset(block[i], i & 0x7f, SIZE);
  }
  expect(!pthread_create(&thread, NULL, work, NULL));
  expect(!pthread_join(thread, NULL));
  void *own = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(own != MAP_FAILED);
  expect(!mprotect(own, 4096, PROT_NONE));
  for (int i = 0; i < BLOCKS; i++) {
    for (int at = 0; at < SIZE; at++) expect(block[i][at] == (i & 0x7f));
    free(block[i]);
  }
  puts("many: as it must be");
  return 0;
}
