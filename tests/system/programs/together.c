/* together.c - threads allocate, resize and free; the program forks, and its children do that too,
 * until a file exists. together.sh runs it, and edits the policy and reads loam's tables while it
 * runs. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "expect.h"

enum { THREADS = 3, SLOTS = 128, ROUNDS = 2000, LEAST_FORKS = 40, LONGEST_S = 300 };

static _Atomic int is_over;

/* A block for a slot. Its first and last bytes are the number of the slot. */
typedef struct slot {
  char *p;
  size_t size;
} slot;

static void check(const slot *s, char mark) {
  if (s->p) expect(s->p[0] == mark && s->p[s->size - 1] == mark);
}

static void churn(slot *slots, unsigned *seed, int rounds) {
  for (int i = 0; i < rounds && !is_over; i++) {
    *seed = *seed * 1103515245 + 12345;
    slot *s = &slots[*seed >> 25];
    char mark = (char)(s - slots);
    size_t size = 1 + ((*seed >> 8) % 50 ? (*seed >> 8) % 5000 : (*seed >> 8) % 1500000);
    check(s, mark);
    if (*seed >> 12 & 1) {
      free(s->p);
      s->p = NULL;
    }
    s->p = realloc(s->p, size);
    expect(s->p);
    s->size = size;
    s->p[0] = s->p[size - 1] = mark;
  }
}

static void drop(slot *slots) {
  for (int i = 0; i < SLOTS; i++) free(slots[i].p);
}

static void *work(void *arg) {
  slot slots[SLOTS] = { 0 };
  unsigned seed = (unsigned)(uintptr_t)arg;
  while (!is_over) churn(slots, &seed, ROUNDS);
  drop(slots);
  return NULL;
}

/* A handler of pthread_atfork. It runs while no other thread may change memory. */
static void allocate_here(void) { free(kept(malloc(300))); }

/* Runs in a child: allocates in this thread and in one more thread. Every third child limits its
 * data segment to 256 MiB. */
static void be_child(slot *slots, unsigned seed) {
  pthread_t thread;
  alarm(LONGEST_S);
  struct rlimit limit = { 256 << 20, 256 << 20 };
  if (seed % 3 == 0) setrlimit(RLIMIT_DATA, &limit);
  expect(!pthread_create(&thread, NULL, work, (void *)(uintptr_t)seed));
  churn(slots, &seed, ROUNDS);
  is_over = 1;
  pthread_join(thread, NULL);
  drop(slots);
  _exit(0);
}

static void fork_one(slot *slots, unsigned seed) {
  int status;
  pid_t child = fork();
  expect(child >= 0);
  if (!child) be_child(slots, seed);
  churn(slots, &seed, ROUNDS);
  expect(waitpid(child, &status, 0) == child);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
  pthread_t thread[THREADS];
  static slot slots[SLOTS];
  expect(argc == 2);
  alarm(LONGEST_S);
  expect(!pthread_atfork(allocate_here, allocate_here, allocate_here));
  for (uintptr_t i = 0; i < THREADS; i++)
    expect(!pthread_create(&thread[i], NULL, work, (void *)(i + 1)));
  puts("up");
  fflush(stdout);
  for (unsigned i = 1; i < LEAST_FORKS || access(argv[1], F_OK); i++) fork_one(slots, i * 77777);
  is_over = 1;
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  drop(slots);
  puts("together: as it must be");
  return 0;
}
