/* peaks.c - workers that take turns to need much memory, and need little afterwards. Each worker
 * keeps its free memory for reuse.
 *
 *   peaks WORKERS MIB
 *
 * Each worker is a process. It takes and frees MIB MiB several times, and then answers small
 * requests until all workers have had their turn. The last worker takes its memory slowly: before
 * each MiB it waits until the watcher has read the memory pressure again. If a signal ends a
 * worker, the program fails and prints how many were ended. */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "expect.h"
#include "service/board_layout.h"

enum { MIB = 1 << 20, BLOCK = 4096, ROUNDS = 4, BLOCKS_MAX = 256 * (MIB / BLOCK), ANY_MS = 60000 };

static char *block[BLOCKS_MAX];
static const lm_published_gauges *gauges;

static void nap(void) { nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL); }

/* Maps the gauges of the board of this process tree. */
static void find_gauges(void) {
  const char *path = getenv("LOAM_BOARD");
  expect(path);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  expect(fd >= 0);
  const lm_board *board = mmap(NULL, sizeof *board, PROT_READ, MAP_SHARED, fd, 0);
  expect(board != MAP_FAILED && board->head.version == LM_BOARD_VERSION);
  gauges = &board->news.published.gauges;
  close(fd);
}

/* Waits until the watcher has read the memory pressure again. */
static void await_look(void) {
  int64_t before = atomic_load(&gauges->stalled_at);
  for (int ms = 0; atomic_load(&gauges->stalled_at) == before; ms++, nap()) expect(ms < ANY_MS);
}

static void take_peak(int mib, int is_slow) {
  int n = mib * (MIB / BLOCK);
  for (int i = 0; i < n; i++) {
    if (is_slow && i % (MIB / BLOCK) == 0) await_look();
    block[i] = malloc(BLOCK);
    expect(block[i]);
    memset(block[i], 1, BLOCK);
  }
  for (int i = 0; i < n; i++) free(block[i]);
}

/* Serves small requests until the other end of the pipe is closed. The thread's cache serves them
 * all, so the worker never takes a slow path by itself. */
static void serve(int in) {
  struct pollfd end = { .fd = in, .events = POLLIN };
  while (!poll(&end, 1, 1)) free(kept(malloc(100)));
}

static void work(int mib, int is_last, int in, int out) {
  for (int round = 0; round < ROUNDS; round++) take_peak(mib, is_last && !round);
  expect(write(out, "!", 1) == 1);
  serve(in);
  _exit(0);
}

/* Starts a worker and waits until it has had its turn. Returns whether it is still alive. */
static int turn(int mib, int is_last, const int all[2]) {
  int end[2];
  char byte;
  expect(!pipe(end));
  pid_t worker = fork();
  expect(worker >= 0);
  if (!worker) {
    close(end[0]);
    close(all[1]);
    work(mib, is_last, all[0], end[1]);
  }
  close(end[1]);
  int lives = read(end[0], &byte, 1) == 1;
  close(end[0]);
  return lives;
}

/* Waits for all workers. Returns how many of them were ended by a signal. */
static int count_killed(void) {
  int status, killed = 0;
  while (wait(&status) > 0) killed += WIFSIGNALED(status);
  return killed;
}

int main(int n, char **argument) {
  int end[2], lives = 1;
  expect(n == 3 && atoi(argument[2]) <= 256 && !pipe2(end, O_CLOEXEC));
  int workers = atoi(argument[1]);
  find_gauges();
  for (int i = 0; i < workers && lives; i++) lives = turn(atoi(argument[2]), i == workers - 1, end);
  close(end[1]);
  int killed = count_killed();
  printf("killed: %d\n", killed);
  return killed != 0 || !lives;
}
