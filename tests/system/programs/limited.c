/* limited.c - limits its own address space after it has allocated memory. Under the limit, the
 * program's own mappings and threads must still get memory. A limit that a child of vfork sets must
 * not change what its parent may use. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "expect.h"

enum { MIB = 1 << 20, MOST = 512 };

/* Returns the size of this process's address space, in pages. */
static long address_space(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  expect(file && fscanf(file, "%ld", &pages) == 1);
  fclose(file);
  return pages;
}

/* Returns how many blocks of 1 MiB malloc can give, at most MOST. */
static int fill(void) {
  static void *block[MOST];
  int n = 0;
  while (n < MOST && (block[n] = malloc(MIB)) != NULL) n++;
  for (int i = 0; i < n; i++) free(block[i]);
  return n;
}

static void *allocate(void *unused) {
  for (int i = 0; i < 1000; i++) free(kept(malloc((size_t)i * 100)));
  return unused;
}

/* Runs under a limit that is far below the address space that an allocator may have reserved. Twice
 * starts threads, maps memory and allocates until there is no more. Returns whether all of that
 * succeeded. */
static bool live_under_limit(void) {
  enum { THREADS = 4 };
  int got[2];
  for (int i = 0; i < 2; i++) {
    pthread_t thread[THREADS];
    void *p = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    for (int n = 0; n < THREADS; n++)
      if (pthread_create(&thread[n], NULL, allocate, NULL)) return false;
    for (int n = 0; n < THREADS; n++) pthread_join(thread[n], NULL);
    got[i] = fill();
    if (munmap(p, 16 * MIB)) return false;
  }
  return got[0] >= 64 && got[0] < 256 && got[1] >= got[0] / 2;
}

int main(void) {
  free(kept(malloc(100)));
  struct rlimit64 before, limit;
  expect(!prlimit64(0, RLIMIT_AS, NULL, &before));
  limit = before;
  limit.rlim_cur = (rlim_t)address_space() * 4096 + 64 * MIB;
  pid_t child = vfork();
  if (!child) {
    prlimit64(0, RLIMIT_AS, &limit, NULL);
    _exit(0);
  }
  expect(waitpid(child, NULL, 0) == child);
  printf("after vfork: %s\n", fill() == MOST ? "all" : "some");
  expect(!setrlimit64(RLIMIT_AS, &limit));
  int n = fill();
  printf("limited: %s\n", n >= 32 && n <= 160 ? "as it must be" : "wrong");
  expect(!setrlimit(RLIMIT_AS, (struct rlimit *)&before));
  printf("unlimited: %s\n", fill() == MOST ? "all" : "some");
  limit.rlim_cur = 256 * MIB;
  expect(!setrlimit64(RLIMIT_AS, &limit));
  printf("limited to little: %s\n", live_under_limit() ? "as it must be" : "wrong");
  expect(!setrlimit(RLIMIT_AS, (struct rlimit *)&before));
  printf("unlimited again: %s\n", fill() == MOST ? "all" : "some");
  expect(setrlimit(RLIMIT_AS, (struct rlimit *)8) == -1);
  return 0;
}
