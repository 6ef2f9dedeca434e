/* limited.c - limits its own address space after it has allocated memory. The limit of a child of
 * vfork is not its parent's. */
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "expect.h"

enum { MIB = 1 << 20, MOST = 512 };

/* The pages of this process's address space. */
static long address_space(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  expect(file && fscanf(file, "%ld", &pages) == 1);
  fclose(file);
  return pages;
}

/* Returns how many blocks of 1 MiB there are, at most MOST. */
static int fill(void) {
  static void *block[MOST];
  int n = 0;
  while (n < MOST && (block[n] = malloc(MIB)) != NULL) n++;
  for (int i = 0; i < n; i++) free(block[i]);
  return n;
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
  expect(setrlimit(RLIMIT_AS, (struct rlimit *)8) == -1);
  return 0;
}
