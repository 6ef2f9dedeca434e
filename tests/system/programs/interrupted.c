/* interrupted.c - a program with one thread forks in signal handlers that interrupt its
 * allocations. A child ends in the handler, or returns from it and completes the interrupted
 * call. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "expect.h"

enum { FORKS = 600, SLOTS = 512, CHILD_BLOCKS = 1000, MOST_NS = 200000 };

static timer_t timer;
static volatile sig_atomic_t forks, is_child;

static void fork_here(int signal) {
  (void)signal;
  pid_t child = fork();
  expect(child >= 0);
  if (child == 0) {
    if (forks % 2) _exit(0);
    is_child = 1;
    return;
  }
  int status;
  expect(waitpid(child, &status, 0) == child);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  forks++;
}

static char *slot[SLOTS];

/* Empties and fills thread caches, and allocates and frees large blocks, so that many signals
 * arrive while loam holds a lock. */
static void churn(unsigned *seed) {
  *seed = *seed * 1103515245 + 12345;
  unsigned at = *seed >> 23;
  size_t size = (*seed >> 8) % 9 ? (*seed >> 8) % 4000 : (*seed >> 8) % 600000;
  free(slot[at]);
  slot[at] = malloc(size + 1);
  expect(slot[at]);
  slot[at][0] = slot[at][size] = 1;
}

/* Starts a timer for one signal, which comes soon. No signal comes without this call, so that a
 * slow machine does not spend all its time in forks. */
static void ask_for_signal(unsigned seed) {
  struct itimerspec once = { .it_value = { 0, 1 + seed % MOST_NS } };
  expect(!timer_settime(timer, 0, &once, NULL));
}

static void prepare_signals(void) {
  struct sigevent how = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
  struct sigaction action = { .sa_handler = fork_here, .sa_flags = SA_RESTART };
  expect(!sigaction(SIGUSR1, &action, NULL));
  expect(!timer_create(CLOCK_MONOTONIC, &how, &timer));
}

int main(void) {
  unsigned seed = 1;
  sig_atomic_t asked = -1;
  alarm(120);
  prepare_signals();
  while (forks < FORKS) {
    sig_atomic_t now = forks;
    if (asked != now) {
      asked = now;
      ask_for_signal(seed >> 7);
    }
    churn(&seed);
    if (!is_child) continue;
    for (int i = 0; i < CHILD_BLOCKS; i++) churn(&seed);
    _exit(0);
  }
  puts("interrupted: as it must be");
  return 0;
}
