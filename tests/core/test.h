/* test.h - helpers for the tests of single modules. */
#ifndef TEST_H
#define TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loam.h"
#include "os/sys.h"

#define AN_HOUR 3600000000000ll /* in nanoseconds */

/* Returns the resident bytes of the process. */
static inline size_t resident(void) {
  char text[100];
  size_t length, total, pages;
  assert_int_equal(lm_sys_read_file("/proc/self/statm", text, sizeof text, &length), 0);
  assert_int_equal(sscanf(text, "%zu %zu", &total, &pages), 2);
  return pages * LM_PAGE;
}

/* Some tests measure or limit the memory of the process. They do not work with a sanitizer, which
 * uses much memory itself. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* A test of one thread has nothing to find for the thread sanitizer, under which a program takes
 * ten times as long. Such a test does fewer rounds there. */
#ifdef __SANITIZE_THREAD__
enum { THREAD_SANITIZED = 1 };
#else
enum { THREAD_SANITIZED = 0 };
#endif

#ifdef __SANITIZE_ADDRESS__
enum { POISONED = 1 };
#else
enum { POISONED = 0 };
#endif

static inline void skip_if_poisoned(void) {
  if (!POISONED) return;
  print_message("the address sanitizer tells of it first (poison.h)\n");
  skip();
}

static inline void skip_if_sanitized(void) {
  if (!SANITIZED) return;
  print_message("a sanitizer's own memory is in the way\n");
  skip();
}

/* Skips a test if the system calls that place memory are refused, as in some containers. */
static inline void skip_if_none_is_placed(void) {
  if (!syscall(SYS_get_mempolicy, NULL, NULL, 0, NULL, 0)) return;
  print_message("not tried: memory cannot be placed here (%s)\n", strerror(errno));
  skip();
}

static inline bool is_lockable(size_t size) {
  void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  bool is_locked = at != MAP_FAILED && !mlock(at, size);
  if (at != MAP_FAILED) munmap(at, size);
  return is_locked;
}

/* Calls `attempt` with its first system call refused, then with its second, until no call is left
 * to refuse. `attempt` checks by itself that it succeeds or fails cleanly. Returns the number of
 * its calls. */
static inline long refuse_each(void (*attempt)(bool refused)) {
  for (long nth = 1;; nth++) {
    long before = lm_sys_calls();
    lm_sys_refuse(nth);
    attempt(true);
    lm_sys_refuse(0);
    if (lm_sys_calls() - before < nth) return nth - 1;
  }
}

/* How long a test waits for an event that is certain to come, even on a slow and busy machine.
 * ctest's own time limit is longer. */
enum { PATIENCE_S = 300 };

/* Sleeps for 10 ms between two checks of a condition that the caller waits for. Returns false after
 * about half of PATIENCE_S, so before an alarm that was set for PATIENCE_S. */
static inline bool be_patient(int *naps) {
  usleep(10000);
  return ++*naps < PATIENCE_S * 50;
}

static inline pthread_t start_thread(void *(*run)(void *), void *argument) {
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, run, argument), 0);
  return thread;
}

/* Runs `body` in a child process. Returns its exit status, or minus the number of the signal that
 * ended it. A signal may be the purpose of a test, so the child writes no core file. */
static inline int run_in_child(int (*body)(void *), void *argument) {
  pid_t pid = fork();
  if (pid == 0) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
    alarm(PATIENCE_S);
    _exit(body(argument));
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* In the body of run_in_child: if `e` is not true, prints that with the last error of loam, and
 * returns 1 from the body. */
#define CHECK_IN_CHILD(e)                                                       \
  do {                                                                          \
    if (!(e)) {                                                                 \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #e, loam_error()); \
      return 1;                                                                 \
    }                                                                           \
  } while (0)

#endif
