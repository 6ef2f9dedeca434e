/* forked_read.c - see forked_read.h. The child writes a head and the answer into a pipe, and
 * ends. */
#include "cli/forked_read.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/write_file.h"
#include "os/error.h"
#include "os/sys.h"

enum {
  END_MS = 200,   /* to wait for the end of a child that was killed */
  END_NAP_MS = 2, /* between two looks whether it has ended */
  PIPE = 1 << 20  /* bytes that the pipe is to hold, so that the child seldom waits */
};

/* The head stands before the answer. */
typedef struct head {
  loam_status status;
  bool failed; /* the child had no memory for the answer */
  char result[LM_FORKED_READ_RESULT];
  char words[1024]; /* of the failure */
} head;

/* ---- The child ---- */

/* The child ends with the parent: it may be waiting in the kernel then. If the parent has ended,
 * the signal SIGPIPE or an error ends the writing. */
static _Noreturn void read_and_exit(lm_forked_read_fn *read, const void *ctx, pid_t parent,
                                    int fd) {
  head h = { .status = LOAM_OK };
  lm_json text = { 0 };
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  h.status = read(ctx, &text, h.result);
  h.failed = text.failed;
  if (h.status != LOAM_OK) snprintf(h.words, sizeof h.words, "%s", loam_error());
  (void)lm_write_all(fd, &h, sizeof h);
  if (h.status == LOAM_OK && !h.failed) (void)lm_write_all(fd, text.text, text.length);
  _exit(0);
}

/* ---- The command ---- */

/* Reads until the child has closed the pipe. Returns false when the time is over. The first bytes
 * are the head. */
static bool receive(int fd, int64_t deadline_ns, head *h, size_t *got, lm_json *out) {
  char buffer[65536];
  struct pollfd at = { .fd = fd, .events = POLLIN };
  for (;;) {
    int64_t left_ns = deadline_ns - lm_sys_clock_ns();
    if (left_ns <= 0) return false;
    if (poll(&at, 1, (int)(left_ns / 1000000) + 1) <= 0) continue;
    bool in_head = *got < sizeof *h;
    ssize_t n = in_head ? read(fd, (char *)h + *got, sizeof *h - *got)
                        : read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    *got += (size_t)n;
    if (!in_head) lm_json_raw(out, buffer, (size_t)n);
  }
}

/* Waits for the end of a child that has closed its pipe. Returns what wait(2) says. */
static int wait_for(pid_t child) {
  int how = 0;
  while (waitpid(child, &how, 0) < 0 && errno == EINTR) continue;
  return how;
}

/* Ends a child that may be waiting in the kernel, where it may not even hear SIGKILL. It is left
 * alone then. */
static void end(pid_t child) {
  kill(child, SIGKILL);
  for (int i = 0; i < END_MS / END_NAP_MS && !waitpid(child, NULL, WNOHANG); i++)
    lm_sys_sleep(END_NAP_MS * 1000000ll);
}

/* Takes the answer of a child. */
static loam_status take(pid_t child, int fd, int pid, int ms, lm_json *out, head *h) {
  size_t got = 0;
  if (!receive(fd, lm_sys_clock_ns() + ms * 1000000ll, h, &got, out)) {
    end(child);
    return lm_error(LOAM_EIO,
                    "process %d: it could not be read within %g s: some of its memory may be of a "
                    "file system that does not answer",
                    pid, ms / 1000.0);
  }
  int how = wait_for(child);
  if (WIFSIGNALED(how))
    return lm_error(LOAM_EIO, "process %d: reading it was ended by signal %d (%s)", pid,
                    WTERMSIG(how), strsignal(WTERMSIG(how)));
  if (got < sizeof *h) return lm_error(LOAM_EIO, "process %d: reading it gave no answer", pid);
  if (h->failed) out->failed = true;
  h->words[sizeof h->words - 1] = 0;
  return h->status == LOAM_OK ? LOAM_OK : lm_error(h->status, "%s", h->words);
}

loam_status lm_forked_read(lm_forked_read_fn *read, const void *ctx, int pid, int ms, lm_json *out,
                           void *result) {
  int ends[2];
  head h = { .status = LOAM_OK };
  pid_t self = getpid();
  if (pipe2(ends, O_CLOEXEC))
    return lm_error(LOAM_EIO, "no pipe to read process %d: %s", pid, strerrordesc_np(errno));
  (void)fcntl(ends[1], F_SETPIPE_SZ, PIPE);
  pid_t child = fork();
  if (!child) read_and_exit(read, ctx, self, ends[1]);
  int error = errno;
  close(ends[1]);
  loam_status status = child > 0 ? take(child, ends[0], pid, ms, out, &h)
                                 : lm_error(LOAM_EIO, "no child to read process %d: %s", pid,
                                            strerrordesc_np(error));
  close(ends[0]);
  if (status == LOAM_OK && result) memcpy(result, h.result, sizeof h.result);
  return status;
}

/* Returns the processor time that getrusage(2) tells of RUSAGE_SELF or RUSAGE_CHILDREN. */
static double cpu_ms_of(int whose) {
  struct rusage use;
  if (getrusage(whose, &use)) return 0;
  return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e3 +
         (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e3;
}

double lm_forked_read_cpu_ms(void) { return cpu_ms_of(RUSAGE_SELF) + cpu_ms_of(RUSAGE_CHILDREN); }
