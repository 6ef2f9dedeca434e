/* gauge.c - figures of free memory on a board.
 *
 *   gauge set BOARD BYTES   writes, in place of a publisher, that each node has BYTES free
 *   gauge follow            says "aligned" or "plain" whenever the policy begins to give its blocks
 *                           that kind of memory, until its input ends */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "expect.h"
#include "service/board_layout.h"

enum { BLOCKS = 8, ALIGNED = 4096 };

static void set(const char *path, int64_t bytes) {
  struct timespec now;
  int fd = open(path, O_RDWR | O_CLOEXEC);
  expect(fd >= 0);
  lm_board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  expect(board != MAP_FAILED && board->head.version == LM_BOARD_VERSION);
  lm_published_gauges *to = &board->news.published.gauges;
  for (int i = 0; i < LM_PUBLISHED_NODES; i++)
    if (atomic_load(&to->nodes) >> i & 1) atomic_store(&to->node_free[i], bytes + 1);
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  atomic_store(&to->refreshed_at, now.tv_sec * INT64_C(1000000000) + now.tv_nsec);
}

/* A block that is freed comes back to the next request, so each round keeps a few. */
static bool is_aligned(void) {
  void *block[BLOCKS];
  bool all = true;
  for (int i = 0; i < BLOCKS; i++) block[i] = kept(malloc(200));
  for (int i = 0; i < BLOCKS; i++) all = all && !((uintptr_t)block[i] % ALIGNED);
  for (int i = 0; i < BLOCKS; i++) free(block[i]);
  return all;
}

static void follow(void) {
  int last = -1;
  struct pollfd in = { .fd = 0, .events = POLLIN };
  while (!poll(&in, 1, 5)) {
    int now = is_aligned();
    const char *words = now ? "aligned\n" : "plain\n";
    if (now != last) expect(write(1, words, strlen(words)) > 0);
    last = now;
  }
}

int main(int n, char **argument) {
  if (n == 4) set(argument[2], atoll(argument[3]));
  else follow();
  return 0;
}
