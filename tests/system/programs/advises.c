/* advises.c - calls madvise(MADV_HUGEPAGE) in three cases: for a block of 64 MiB, as NumPy does;
 * for a range that begins before such a block; and for a mapping of its own. For each it prints
 * whether the kernel may make huge pages, which it may if VmFlags in /proc/self/smaps has "hg". */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SIZE = 64 << 20, HUGE_PAGE = 2 << 20 };

static int may_be_huge(const void *at) {
  char line[512];
  unsigned long from, to;
  int is_here = 0, found = -1;
  FILE *smaps = fopen("/proc/self/smaps", "r");
  while (smaps && fgets(line, sizeof line, smaps)) {
    if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
      is_here = (uintptr_t)at >= from && (uintptr_t)at < to;
    if (is_here && !strncmp(line, "VmFlags:", 8)) found = strstr(line, " hg") != NULL;
  }
  if (smaps) fclose(smaps);
  return found;
}

static void ask(const char *name, char *p) {
  char *at = (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
  int status = madvise(at, SIZE / 2, MADV_HUGEPAGE);
  memset(p, 1, SIZE);
  printf("%s: status %d, huge %d\n", name, status, may_be_huge(at));
}

static void ask_from_before(char *p) {
  char *at = (char *)((uintptr_t)p & ~(uintptr_t)(HUGE_PAGE - 1));
  (void)madvise(at - HUGE_PAGE, SIZE / 2, MADV_HUGEPAGE); /* may fail: no memory there */
  memset(p, 1, SIZE);
  printf("from before: huge %d\n", may_be_huge(at + 2 * HUGE_PAGE));
}

int main(void) {
  ask("block", malloc(SIZE));
  ask_from_before(malloc(SIZE));
  ask("mapping", mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  return 0;
}
