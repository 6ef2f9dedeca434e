/* gauge.c - writes gauges (free memory, memory pressure) to a board, or shows how a policy reads
 * them.
 *
 *   gauge set BOARD BYTES   writes, in place of a publisher, that each node has BYTES free
 *   gauge stall BOARD P     writes, in place of a publisher, that the group waits for memory for P
 *                           percent of the time
 *   gauge follow            prints "aligned" or "plain" whenever the blocks that the policy gives
 *                           change to that kind of memory, until its input ends */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "expect.h"
#include "service/board_layout.h"

enum { BLOCKS = 8, ALIGNED = 4096 };

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static lm_published_gauges *gauges_of(const char *path) {
  int fd = open(path, O_RDWR | O_CLOEXEC);
  expect(fd >= 0);
  lm_board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  expect(board != MAP_FAILED && board->head.version == LM_BOARD_VERSION);
  return &board->news.published.gauges;
}

static void set(const char *path, int64_t bytes) {
  lm_published_gauges *to = gauges_of(path);
  for (int i = 0; i < LM_PUBLISHED_NODES; i++)
    if (atomic_load(&to->nodes) >> i & 1) atomic_store(&to->node_free[i], bytes + 1);
  atomic_store(&to->refreshed_at, now_ns());
}

/* The time of the gauge is in the future, so that the gauge stays fresh for a minute. */
static void stall(const char *path, int percents) {
  lm_published_gauges *to = gauges_of(path);
  atomic_store(&to->stalled, (uint32_t)percents + 1);
  atomic_store(&to->stalled_at, now_ns() + INT64_C(60000000000));
}

/* Returns whether all of a few blocks are aligned. It takes several at a time: malloc would return
 * a single freed block again, which an earlier policy may have placed. */
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
  if (n == 4 && !strcmp(argument[1], "stall")) stall(argument[2], atoi(argument[3]));
  else if (n == 4) set(argument[2], atoll(argument[3]));
  else follow();
  return 0;
}
