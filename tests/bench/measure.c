/* measure.c - runs a command, and adds a line about it to a file: seconds on the wall, seconds of
 * processor time in the program and in the kernel, the resident KiB of its largest process at the
 * peak, and page faults. Processes that the command started and waited for are included.
 *
 *   measure FILE COMMAND [ARGUMENT]...
 *
 * Exits with the status of the command, with 128 and the signal's number if a signal ended it, or
 * with 127 if it could not be run. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

static double seconds_of(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

static int add_line(const char *path, double wall, const struct rusage *used) {
  FILE *file = fopen(path, "a");
  if (!file) {
    fprintf(stderr, "measure: %s: %s\n", path, strerror(errno));
    return 1;
  }
  fprintf(file, "%.4f %.4f %.4f %ld %ld\n", wall, seconds_of(used->ru_utime),
          seconds_of(used->ru_stime), used->ru_maxrss, used->ru_minflt + used->ru_majflt);
  return fclose(file) != 0;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: measure FILE COMMAND [ARGUMENT]...\n");
    return 2;
  }
  int64_t start = bench_now();
  pid_t child = fork();
  if (child == 0) {
    execvp(argv[2], argv + 2);
    fprintf(stderr, "measure: %s: %s\n", argv[2], strerror(errno));
    _exit(127);
  }
  struct rusage used;
  int status;
  pid_t ended;
  while ((ended = wait4(child, &status, 0, &used)) < 0 && errno == EINTR) continue;
  double wall = (double)(bench_now() - start) / 1e9;
  if (child < 0 || ended < 0) {
    fprintf(stderr, "measure: %s: %s\n", argv[2], strerror(errno));
    return 1;
  }
  if (add_line(argv[1], wall, &used)) return 1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
