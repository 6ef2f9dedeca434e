/* locked.c - locks its memory: pages that it never touched get memory, and so do those of later
 * mappings. With an argument, the kernel's mlockall refuses MCL_CURRENT, as it does where loam's
 * reserved address space exceeds RLIMIT_MEMLOCK. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "expect.h"

enum { SIZE = 1 << 20, PAGE = 4096 };

/* A figure of /proc/self/status, in KiB. */
static long status_of(const char *name) {
  char line[256];
  long kib = -1;
  FILE *file = fopen("/proc/self/status", "r");
  expect(file);
  while (fgets(line, sizeof line, file))
    if (!strncmp(line, name, strlen(name))) kib = atol(line + strlen(name));
  fclose(file);
  return kib;
}

static void refuse_mlockall(void) {
  struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mlockall, 0, 3),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MCL_CURRENT, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = { .len = sizeof filter / sizeof *filter, .filter = filter };
  expect(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  expect(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

/* Tells whether all pages of a block have memory. */
static bool is_resident(const char *block, size_t size) {
  unsigned char in[SIZE / PAGE + 1];
  uintptr_t from = (uintptr_t)block & ~(uintptr_t)(PAGE - 1), pages;
  pages = ((uintptr_t)block + size - from + PAGE - 1) / PAGE;
  expect(pages <= sizeof in && !mincore((void *)from, pages * PAGE, in));
  for (size_t i = 0; i < pages; i++)
    if (!(in[i] & 1)) return false;
  return true;
}

int main(int argc, char **argv) {
  (void)argv;
  char *block = kept(malloc(100000)), *untouched = kept(malloc(SIZE));
  memset(block, 1, 100000);
  expect(untouched && !is_resident(untouched, SIZE));
  if (argc > 1) refuse_mlockall();
  expect(!mlockall(MCL_CURRENT | MCL_FUTURE));
  expect(status_of("VmLck:") > 1000);
  expect(status_of("VmPTE:") < 1024);
  expect(is_resident(block, 100000) && is_resident(untouched, SIZE));
  char *later = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(later != MAP_FAILED && is_resident(later, SIZE));
  expect(munlockall() == 0 && status_of("VmLck:") == 0);
  free(block);
  free(untouched);
  puts("locked: as it must be");
  return 0;
}
