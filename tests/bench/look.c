/* look.c - what `loam stats` costs. The command reads a process with ten million live objects from
 * outside and, for comparison, asks the process over its socket.
 *
 *   look [OBJECTS]     a row for each size of the objects: milliseconds of processor time in the
 *                      reader, microseconds in the process that is read, and milliseconds in the
 *                      process when it answers over its socket. Each is the least of several. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "cli/look.h"
#include "service/control.h"
#include "service/control_client.h"

enum { ROUNDS = 7 };

static void refuse(const char *what) {
  fprintf(stderr, "look: %s: %s\n", what, loam_error());
  exit(1);
}

/* Runs in the child: allocates the objects, writes a byte to `said`, and waits until a signal ends
 * it. */
static void hold(long objects, size_t size, int said) {
  for (long i = 0; i < objects; i++) {
    char *p = loam_malloc(NULL, size);
    if (!p) refuse("hold");
    *p = 1;
  }
  if (lm_control_start(NULL, true) != LOAM_OK) refuse("socket");
  if (write(said, "!", 1) != 1) exit(1);
  for (;;) pause();
}

static int64_t time_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void drop(void *ctx, const char *text, size_t length) {
  (void)ctx;
  (void)text;
  (void)length;
}

typedef struct cost {
  int64_t reader, host;
} cost;

static void keep_least(cost *least, cost now) {
  if (now.reader < least->reader) least->reader = now.reader;
  if (now.host < least->host) least->host = now.host;
}

/* Returns the processor time of one look from outside, or of one question over the socket. */
static cost measured(int pid, clockid_t of_host, bool from_outside) {
  lm_json out = { 0 };
  lm_control_request request = { .pid = pid, .line = "stats", .timeout_ms = 60000 };
  cost before = { time_of(CLOCK_PROCESS_CPUTIME_ID), time_of(of_host) };
  loam_status status = from_outside ? lm_look_stats(pid, &out)
                                    : lm_control_ask(&request, drop, NULL);
  if (status != LOAM_OK) refuse("stats");
  cost after = { time_of(CLOCK_PROCESS_CPUTIME_ID), time_of(of_host) };
  lm_json_finish(&out);
  return (cost){ after.reader - before.reader, after.host - before.host };
}

static void row(long objects, size_t size) {
  int said[2];
  char byte;
  clockid_t of_host;
  cost outside = { INT64_MAX, INT64_MAX }, socket = outside;
  if (pipe(said)) exit(1);
  pid_t child = fork();
  if (!child) hold(objects, size, said[1]);
  if (read(said[0], &byte, 1) != 1 || clock_getcpuclockid(child, &of_host)) exit(1);
  /* All looks come first, because a host that has answered still works for a moment. */
  for (int i = 0; i < bench_some(ROUNDS); i++) keep_least(&outside, measured(child, of_host, true));
  for (int i = 0; i < bench_some(ROUNDS); i++) keep_least(&socket, measured(child, of_host, false));
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  close(said[0]);
  close(said[1]);
  printf("%8zu %12ld %10.1f %10.1f %10.1f\n", size, objects, (double)outside.reader / 1e6,
         (double)outside.host / 1e3, (double)socket.host / 1e6);
}

int main(int argc, char **argv) {
  static const size_t sizes[] = { 16, 64, 256 };
  char folder[] = "/tmp/loam-look-XXXXXX", command[64];
  long objects = bench_some(argc == 2 ? atol(argv[1]) : 10000000);
  if (!mkdtemp(folder) || setenv("LOAM_CONTROL_DIR", folder, 1)) return 1;
  printf("%8s %12s %10s %10s %10s\n", "size", "objects", "reader ms", "host us", "socket ms");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) row(objects, sizes[i]);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}
