/* guest.c - programs that check that loam adds no thread, socket or descriptor to them. The first
 * argument selects one. It ends with status 0 if everything went as it does without loam. */
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "expect.h"

enum { SIZES = 24, CHILDREN = 20, HIGH = 1000, SLOW_CALLS = 2000 };

/* Allocates and frees blocks of all sizes up to 8 MiB. */
static void use_memory(void) {
  void *block[SIZES];
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < SIZES; i++) {
      block[i] = kept(malloc((size_t)1 << i));
      expect(block[i]);
      memset(block[i], 1, (size_t)1 << i);
    }
    for (int i = 0; i < SIZES; i++) free(block[i]);
  }
}

static void sleep_ms(long ms) {
  struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
  nanosleep(&time, NULL);
}

static int count(const char *folder) {
  int n = 0;
  DIR *dir = opendir(folder);
  expect(dir);
  for (struct dirent *entry; (entry = readdir(dir));) n += *entry->d_name != '.';
  closedir(dir);
  return n;
}

/* Waits for one child, or for any child (-1). It must have ended with status 0. */
static void join(pid_t child) {
  int status;
  expect(waitpid(child, &status, 0) > 0);
  expect(WIFEXITED(status) && !WEXITSTATUS(status));
}

/* Prints how many threads and descriptors the process has, and how many a child has 0.2 seconds
 * after the fork. */
static void tell(void) {
  use_memory();
  printf("%d %d\n", count("/proc/self/task"), count("/proc/self/fd"));
  fflush(stdout);
  pid_t child = fork();
  if (child) return join(child);
  sleep_ms(200);
  for (int i = 0; i < SLOW_CALLS; i++) free(kept(malloc(1 << 20)));
  use_memory();
  printf("%d %d\n", count("/proc/self/task"), count("/proc/self/fd"));
  fflush(stdout);
  _exit(0);
}

/* Closes all descriptors, and uses the first free number for a file of its own. */
static void close_all(void) {
  uint64_t value = 7;
  closefrom(3);
  int own = eventfd(0, EFD_NONBLOCK);
  expect(own == 3 && write(own, &value, sizeof value) == sizeof value);
  sleep_ms(200);
  use_memory();
  for (int i = 0; i < SLOW_CALLS; i++) free(kept(malloc(1 << 20)));
  value = 0;
  expect(read(own, &value, sizeof value) == sizeof value && value == 7);
  expect(count("/proc/self/fd") == 5); /* 0 to 3, and the one that `count` opens for the folder */
}

/* Children put their own file at all descriptor numbers, as a shell or a container's runtime
 * does. */
static void replace_all(void) {
  for (int i = 0; i < CHILDREN; i++) {
    pid_t child = fork();
    if (child) {
      join(child);
      continue;
    }
    int pair[2];
    expect(!pipe(pair));
    for (int fd = pair[1] + 1; fd < HIGH; fd++) expect(dup2(pair[1], fd) == fd);
    use_memory();
    for (int fd = pair[1] + 1; fd < HIGH; fd++) expect(write(fd, "x", 1) == 1);
    _exit(0);
  }
}

/* A child, which has only one thread, ends by the system call that ends a thread. */
static void end_thread(void) {
  pid_t child = fork();
  if (child) return join(child);
  sleep_ms(150);
  for (int i = 0; i < SLOW_CALLS; i++) free(kept(malloc(1 << 20)));
  syscall(SYS_exit, 0);
}

#define ALLOWS(call) \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Confines the process to system calls for memory, for writing, for sleeping and for its end. The
 * kernel kills it for any other call. */
static void confine(void) {
  struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOWS(SYS_mmap),
    ALLOWS(SYS_munmap),
    ALLOWS(SYS_mremap),
    ALLOWS(SYS_madvise),
    ALLOWS(SYS_mprotect),
    ALLOWS(SYS_mbind),
    ALLOWS(SYS_futex),
    ALLOWS(SYS_brk),
    ALLOWS(SYS_write),
    ALLOWS(SYS_clock_nanosleep),
    ALLOWS(SYS_exit_group),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
  expect(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  expect(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void confined(void) {
  free(kept(malloc(100))); /* glibc's first malloc reads random bytes, which is forbidden later */
  confine();
  use_memory();
  sleep_ms(600);
  use_memory();
  _exit(0);
}

/* Requests memory, confined, until the policy on the board gives blocks an alignment of 4096. It
 * takes several blocks at a time: malloc would return a single freed block again, which the old
 * policy placed. */
static void obey_confined(void) {
  expect(write(1, "up\n", 3) == 3);
  confine();
  for (int i = 0; i < 60000; i++) {
    void *block[8];
    bool is_new = true;
    for (int j = 0; j < 8; j++) block[j] = kept(malloc(200));
    for (int j = 0; j < 8; j++) is_new = is_new && !((uintptr_t)block[j] % 4096);
    for (int j = 0; j < 8; j++) free(block[j]);
    if (is_new) _exit(0);
    sleep_ms(1);
  }
  _exit(1);
}

/* Starts N processes that request memory all the time, until the policy gives an alignment of 4096.
 * Prints "up" when all run. If `are_doomed` is set, the test kills some of them. */
static void obey_in_tree(int n, bool are_doomed) {
  int ready[2];
  char byte;
  expect(!pipe(ready));
  for (int i = 0; i < n; i++) {
    pid_t child = fork();
    if (child) continue;
    for (int tries = 0; tries < 6000; tries++) {
      void *block = kept(malloc(200)), *other = kept(malloc(200));
      expect(block && other);
      if (!tries) expect(write(ready[1], "x", 1) == 1);
      bool is_new = !((uintptr_t)block % 4096) && !((uintptr_t)other % 4096);
      free(block);
      free(other);
      if (is_new) _exit(0);
      sleep_ms(20); /* hundreds of processes that wake more often would fill the machine */
    }
    _exit(1);
  }
  for (int i = 0; i < n; i++) expect(read(ready[0], &byte, 1) == 1);
  expect(write(1, "up\n", 3) == 3);
  for (int i = 0; i < n && !are_doomed; i++) join(-1);
  while (are_doomed && wait(NULL) > 0) continue;
}

/* Allocates and frees blocks of all sizes, and forks from time to time, until the process or its
 * parent is killed. */
static _Noreturn void be_prey(void) {
  expect(!prctl(PR_SET_PDEATHSIG, SIGKILL));
  for (;;) {
    use_memory();
    pid_t child = fork();
    if (!child) {
      use_memory();
      _exit(0);
    }
    if (child > 0) waitpid(child, NULL, 0);
  }
}

/* Keeps N processes alive that may be killed at any moment, until its input ends. */
static void keep_prey(int n) {
  struct pollfd in = { .fd = 0, .events = POLLIN };
  for (int living = 0; !poll(&in, 1, living < n ? 0 : 1);) {
    if (living < n) {
      pid_t child = fork();
      if (!child) be_prey();
      living += child > 0;
    }
    while (waitpid(-1, NULL, WNOHANG) > 0) living--;
  }
  signal(SIGTERM, SIG_IGN);
  kill(0, SIGTERM);
  while (wait(NULL) > 0) continue;
}

int main(int n, char **argument) {
  static const struct {
    const char *name;
    void (*act)(void);
  } deeds[] = {
    { "tell", tell },
    { "close_all", close_all },
    { "replace_all", replace_all },
    { "end_thread", end_thread },
    { "confined", confined },
    { "obey_confined", obey_confined },
  };
  expect(n >= 2);
  if (n == 3 && !strcmp(argument[1], "prey")) keep_prey(atoi(argument[2]));
  else if (n == 3) obey_in_tree(atoi(argument[2]), !strcmp(argument[1], "doomed"));
  for (size_t i = 0; n == 2 && i < sizeof deeds / sizeof *deeds; i++)
    if (!strcmp(argument[1], deeds[i].name)) deeds[i].act();
  return 0;
}
