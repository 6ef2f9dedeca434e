/* locked.c - locks its memory with mlockall: untouched pages get memory, and so do the pages of
 * later mappings.
 *
 *   locked           without a limit
 *   locked refused   the kernel's mlockall refuses MCL_CURRENT, as it does where loam's reserved
 *                    address space exceeds RLIMIT_MEMLOCK
 *   locked limited   under a limit of 8 MiB; then a thread allocates
 *   locked kept      under a limit of 64 KiB, which is too low: earlier locks stay */
#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "expect.h"

/* Returns a figure of /proc/self/status, in KiB. */
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

enum { SIZE = 1 << 20, PAGE = 4096 };

/* Returns whether all pages of a block have memory. */
static bool is_resident(const char *block, size_t size) {
  unsigned char in[SIZE / PAGE + 1];
  uintptr_t from = (uintptr_t)block & ~(uintptr_t)(PAGE - 1), pages;
  pages = ((uintptr_t)block + size - from + PAGE - 1) / PAGE;
  expect(pages <= sizeof in && !mincore((void *)from, pages * PAGE, in));
  for (size_t i = 0; i < pages; i++)
    if (!(in[i] & 1)) return false;
  return true;
}

static void map_later(void) {
  char *later = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(later != MAP_FAILED && is_resident(later, SIZE));
}

/* Limits locked memory to `bytes`. It also drops all capabilities, because the limit does not count
 * for root. */
static void limit_to(rlim_t bytes) {
  struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
  struct __user_cap_data_struct none[2] = { 0 };
  expect(!setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){ bytes, bytes }));
  expect(!syscall(SYS_capset, &header, none));
}

static void *allocate(void *unused) {
  void *small = kept(malloc(100)), *large = kept(malloc(1000000));
  expect(small && large);
  memset(large, 1, 1000000);
  free(small);
  free(large);
  return unused;
}

/* The thread's stack is a static array, because the kernel would refuse to map one. */
static void allocate_in_a_thread(void) {
  static char stack[1 << 18] __attribute__((aligned(4096)));
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  expect(!pthread_attr_setstack(&attributes, stack, sizeof stack));
  expect(!pthread_create(&thread, &attributes, allocate, NULL));
  expect(!pthread_join(thread, NULL));
  pthread_attr_destroy(&attributes);
}

static void keep_locks_under_a_low_limit(void) {
  static char secret[4 * PAGE] __attribute__((aligned(4096)));
  limit_to(64 << 10);
  expect(!mlock(secret, sizeof secret));
  expect(status_of("VmLck:") == sizeof secret / 1024);
  for (int flags = MCL_CURRENT; flags <= (MCL_CURRENT | MCL_FUTURE); flags += MCL_FUTURE) {
    errno = 0;
    expect(mlockall(flags) == -1 && errno == ENOMEM);
    expect(status_of("VmLck:") == sizeof secret / 1024);
  }
}

int main(int argc, char **argv) {
  char *block = kept(malloc(100000)), *untouched = kept(malloc(SIZE));
  memset(block, 1, 100000);
  expect(untouched && !is_resident(untouched, SIZE));
  if (argc > 1 && !strcmp(argv[1], "kept")) {
    keep_locks_under_a_low_limit();
    puts("locked: as it must be");
    return 0;
  }
  bool limited = argc > 1 && !strcmp(argv[1], "limited");
  if (limited) limit_to(8 << 20);
  else if (argc > 1) refuse_mlockall();
  errno = 0;
  expect(!mlockall(MCL_CURRENT | MCL_FUTURE) && errno == 0);
  expect(status_of("VmLck:") > 1000);
  expect(status_of("VmPTE:") < 1024);
  expect(limited || (is_resident(block, 100000) && is_resident(untouched, SIZE)));
  if (limited) allocate_in_a_thread();
  else map_later();
  expect(munlockall() == 0 && status_of("VmLck:") == 0);
  free(block);
  free(untouched);
  puts("locked: as it must be");
  return 0;
}
