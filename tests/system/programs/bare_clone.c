/* bare_clone.c - a bare clone(2) makes a process in a PID namespace of its own, as bwrap does. That
 * process and a child of it allocate until standard input ends. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

static void allocate(void) {
  for (int i = 0; i < 100000; i++) free(malloc(i % 5000));
}

int main(void) {
  long made = syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
  char byte;
  allocate();
  if (made < 0) return 77;
  if (made) return waitpid((pid_t)made, NULL, 0) != made;
  pid_t child = fork();
  allocate();
  if (child) return waitpid(child, NULL, 0) != child;
  puts("ready");
  fflush(stdout);
  return read(0, &byte, 1) != 0;
}
