/* watcher.c - the process that follows the policy file for a program tree, and keeps the free
 * memory of NUMA nodes and memory pressure on the board of the tree.
 *
 * The watcher waits with poll(2) for a change of the file (service/watch.h) and for the end of one
 * process of the tree (a pidfd); when that process has ended, it looks for another living one on
 * the board. A policy is compiled in a child of the watcher, which opens LuaJIT and ends after it.
 * So the watcher stays small, and a compiler that crashes or hangs does no harm to it.
 *
 * While the live policy reads the free memory of nodes, the watcher wakes every LM_NUMA_REFRESH_MS
 * and writes the figures on the board, also while it waits for a compiler. So no process of the
 * tree reads them. Otherwise it withdraws the figures and sleeps.
 *
 * While the live policy shares limits, the watcher looks every LM_QUOTA_LOOK_MS whether a process
 * found a quota full since. If so, it looks with /proc for holders that have ended
 * (service/quota_file.h).
 * It looks at memory pressure (os/pressure.h) all the time, at intervals from 50 ms to two seconds:
 * the more memory the control group has left, the more seldom.
 *
 * How it is made. The caller will become the program. An orphan goes to process 1 of the PID
 * namespace, or to a subreaper, so the caller makes a child that makes the watcher and ends. Where
 * the caller itself is such a process, an orphan would become a child of the program, and wait(2)
 * would return it. There the watcher is made by clone(2) with no exit signal: wait(2) does not see
 * such a child (unless it asks with __WALL), as long as the child does not call exec. */
#include "cli/watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/publisher.h"
#include "os/error.h"
#include "os/numa.h"
#include "os/pressure.h"
#include "os/sys.h"
#include "pages/metadata.h"
#include "script/policy_file.h"
#include "script/policy_open.h"
#include "service/board_owner.h"
#include "service/board_read.h"
#include "service/policy.h"
#include "service/quota_file.h"
#include "service/watch.h"

enum {
  LOOK_MS = 250,      /* between two looks for living processes, where no pidfd tells */
  EMPTY_LOOKS = 2,    /* so many looks must find no living process before the watcher ends */
  COMPILE_MS = 60000, /* a compiler that runs longer is ended, and the policy is refused */
  NAP_MS = 1,         /* between two looks whether the compiler has ended */
  IDLE_MS = 2000,     /* between two looks for a policy that another publisher has published */
  NODES_LOOKS = 40,   /* the list of nodes is read again after so many refreshes of the figures */
  PIDFD = 3,          /* the number to which the pidfd of the program is moved */
};

/* Milliseconds until a text that could not be published is tried again: the first time, and at
 * most. Each wait is twice as long as the one before. */
enum { RETRY_MS = 5000, RETRY_MOST_MS = 320000 };

/* All that a watcher knows. It lives in a process of its own, which has one thread. */
static struct {
  char board[PATH_MAX],
      policy[PATH_MAX]; /* absolute paths; `policy` is the file that is followed, "": none is */
  uint64_t
      refused_hash; /* of the text, or of the reading's error, that was refused last; 0: none */
  bool was_killed;  /* the compiler of that text was killed */
  int retry_ms;     /* from one try to publish the text to the next; 0: none is needed */
  int64_t retry_ns; /* lm_sys_clock_ns of the next try, if retry_ms is not 0 */
  struct timespec changed; /* when the policy file was changed last, at the last look */
  bool is_as_before;       /* the file has not changed since the look before that */
  int program; /* the process that `loam run` became; 0: `loam reload` has started the watcher */
  int pidfd;   /* of a process of the tree; -1: none is known */
  int member;  /* the id of that process, whose control group counts; 0: none is known */
  struct stat errors;     /* the file of descriptor 2 as `loam run` began; zero: it was closed */
  uint64_t number;        /* of the publication that was seen last */
  bool keeps_nodes;       /* the figures on the board are kept now */
  unsigned refreshes;     /* of the figures, so far */
  int64_t refresh_ns;     /* lm_sys_clock_ns of the next refresh */
  int64_t look_ns;        /* lm_sys_clock_ns of the next look at memory pressure */
  lm_pressure pressure;   /* the latest look */
  bool has_alarm;         /* an alarm has been raised that is not published yet */
  lm_quota_table *quotas; /* NULL: not mapped */
  uint32_t refusals;      /* of lm_quota_file_look */
  lm_publisher to;
  lm_watch *watch; /* NULL: no file is followed */
} self;

/* ---- The free memory of nodes ---- */

/* Writes the figures on the board if that is due. Withdraws them if the live policy no longer reads
 * the free memory of nodes. */
static void keep_nodes(void) {
  lm_published_gauges *to = &self.to.news->published.gauges;
  bool was_kept = self.keeps_nodes;
  self.keeps_nodes = lm_publisher_reads_nodes(lm_publisher_latest(&self.to)->reads);
  if (was_kept && !self.keeps_nodes) lm_numa_free_withdraw(to);
  if (!self.keeps_nodes || (was_kept && lm_sys_clock_ns() < self.refresh_ns)) return;
  if (++self.refreshes % NODES_LOOKS == 0) lm_numa_refresh();
  lm_numa_free_publish(to);
  self.refresh_ns = lm_sys_clock_ns() + LM_NUMA_REFRESH_MS * 1000000ll;
}

/* ---- Memory pressure ---- */

/* Looks at the control group of the tree if that is due, and raises an alarm on the board. */
static void keep_pressure(void) {
  char path[32];
  int64_t now = lm_sys_clock_ns();
  if (now < self.look_ns) return;
  snprintf(path, sizeof path, "/proc/%d/cgroup", self.member);
  bool is_raised = lm_pressure_look(&self.pressure, self.member ? path : NULL, now);
  lm_pressure_publish(&self.pressure, &self.to.news->published.gauges);
  self.has_alarm |= is_raised;
  if (self.has_alarm && lm_publisher_alarm(&self.to)) self.has_alarm = false;
  int wait_ms = lm_pressure_wait_ms(&self.pressure);
  bool is_read = lm_publisher_reads_pressure(lm_publisher_latest(&self.to)->reads);
  if (is_read && wait_ms > LM_PRESSURE_REFRESH_MS) wait_ms = LM_PRESSURE_REFRESH_MS;
  self.look_ns = now + wait_ms * 1000000ll;
}

/* ---- Shared limits ---- */

static bool shares_limits(void) { return lm_publisher_latest(&self.to)->shares; }

/* Maps the table of quotas, which is in the folder of the board. */
static void map_quotas(void) {
  char dir[PATH_MAX];
  snprintf(dir, sizeof dir, "%s", self.board);
  char *end = strrchr(dir, '/');
  if (end) *end = 0;
  if (end) self.quotas = lm_quota_file_map(dir);
}

/* Gives back what dead processes have drawn, if a process has found a quota full since the last
 * look. */
static void keep_quotas(void) {
  if (!shares_limits()) return;
  if (!self.quotas) map_quotas();
  if (self.quotas) lm_quota_file_look(self.quotas, &self.refusals);
}

/* ---- All three ---- */

/* Does the regular work of the watcher that is due now. */
static void keep(void) {
  keep_nodes();
  keep_pressure();
  keep_quotas();
}

/* Returns the milliseconds until the next work is due, but at most `timeout_ms`, where -1 stands
 * for no end. */
static int until_due_ms(int timeout_ms) {
  int64_t due_ms = (self.look_ns - lm_sys_clock_ns()) / 1000000 + 1;
  if (due_ms < 0) due_ms = 0;
  if (self.keeps_nodes && due_ms > LM_NUMA_REFRESH_MS) due_ms = LM_NUMA_REFRESH_MS;
  if (shares_limits() && due_ms > LM_QUOTA_LOOK_MS) due_ms = LM_QUOTA_LOOK_MS;
  return timeout_ms < 0 || due_ms < timeout_ms ? (int)due_ms : timeout_ms;
}

/* ---- Telling the user of the program ---- */

/* Tells whether the process has opened its descriptor 2 for append. */
static bool appends(int pid) {
  char path[64], text[256];
  size_t length;
  snprintf(path, sizeof path, "/proc/%d/fdinfo/2", pid);
  if (lm_sys_read_file(path, text, sizeof text, &length)) return false;
  const char *flags = strstr(text, "flags:");
  return flags && strtoul(flags + strlen("flags:"), NULL, 8) & O_APPEND;
}

/* Tells whether a file is the one that was the program's descriptor 2 as `loam run` began. */
static bool is_errors(const struct stat *st) {
  return self.errors.st_mode && st->st_dev == self.errors.st_dev &&
         st->st_ino == self.errors.st_ino;
}

/* Returns a copy of the program's descriptor 2; -1: the kernel does not allow that. A copy shares
 * the offset in the file, so lines of the program and of the watcher stand one after the other. */
static int copy_errors(void) {
  int process, copy = -1;
  if (lm_sys_process_open(self.program, &process)) return -1;
  (void)lm_sys_process_copy(process, STDERR_FILENO, &copy);
  close(process);
  return copy;
}

/* Returns a descriptor by which a line may be added to the program's standard error; -1: there is
 * none, or the program has another file by now. The function opens a terminal, a pipe, or a file
 * for append again, and does not wait: so a full pipe refuses a line. A socket, such as the
 * journal's, and any other file need a copy. */
static int open_errors(void) {
  char path[64];
  struct stat now;
  snprintf(path, sizeof path, "/proc/%d/fd/2", self.program);
  if (stat(path, &now) || !is_errors(&now)) return -1;
  bool needs_copy = S_ISSOCK(now.st_mode) || (S_ISREG(now.st_mode) && !appends(self.program));
  if (S_ISDIR(now.st_mode) || S_ISBLK(now.st_mode)) return -1;
  int fd = needs_copy ? copy_errors()
                      : open(path, O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 || (!fstat(fd, &now) && is_errors(&now))) return fd;
  close(fd);
  return -1;
}

/* Tells the program's user the first line of some words, behind a title, unless LOAM_EVENTS is
 * "none". The descriptor is open for a moment alone. A pipe that is full gets nothing. */
static void tell(const char *title, const char *words) {
  char line[1024];
  const char *events = lm_sys_getenv("LOAM_EVENTS");
  int fd = events && !strcmp(events, "none") ? -1 : open_errors();
  if (fd < 0) return;
  int n = snprintf(line, sizeof line, "loam: %s: %.*s\n", title, (int)strcspn(words, "\n"), words);
  size_t length = n < (int)sizeof line ? (size_t)n : sizeof line - 1;
  line[length - 1] = '\n';
  /* Only a socket is sent to; this never waits for its reader. */
  if (send(fd, line, length, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == ENOTSOCK)
    (void)!write(fd, line, length);
  close(fd);
}

/* Notes a refusal. Tells of it, unless the board has it already and the file has not changed:
 * without inotify, a file is read again and again that cannot be published because the board is
 * full. `text_hash` is the one for lm_publisher_refuse. */
static void refuse(uint64_t text_hash, const char *words) {
  bool is_told = self.is_as_before && lm_publisher_has_refused(&self.to, text_hash, words);
  lm_publisher_refuse(&self.to, text_hash, words);
  if (!is_told) tell("policy refused, the last good one stays", words);
}

/* Tells the user what the new policy wants and the process that `loam run` became cannot do. */
static void tell_shortcomings(void) {
  char words[256];
  if (!self.program) return;
  snprintf(words, sizeof words, LM_PUBLISHER_UNREPORTED, self.program);
  if (lm_publisher_lacks_report(&self.to, self.program)) tell("note", words);
  if (lm_publisher_lacks_mover(&self.to)) tell("note", LM_PUBLISHER_UNMOVED);
}

/* ---- Compiling ---- */

/* The exit statuses of a compiler. */
enum { PUBLISHED, REFUSED, FAILED };

/* Opens the board again in a compiler. The lock of publishers belongs to a descriptor and its
 * copies, so an alarm of the watcher would give up the lock of a compiler that had a copy. The path
 * of the board helps only where /proc is missing: a program that cleans the folder may have removed
 * the file, and the processes of the tree still follow it. */
static loam_status open_again(void) {
  if (lm_publisher_reopen(&self.to) == LOAM_OK) return LOAM_OK;
  lm_publisher_close(&self.to);
  return lm_publisher_open(self.board, &self.to);
}

/* Compiles and publishes a policy's text, in a process of its own. */
static _Noreturn void compile_and_exit(const char *text, size_t length, uint64_t hash) {
  uint64_t number;
  if (open_again() != LOAM_OK) {
    tell("policy refused, the last good one stays", loam_error());
    _exit(FAILED);
  }
  lm_script_source source = { self.policy, text, length, lm_policy_limits(), .is_host = false };
  loam_status status = lm_publisher_publish(&self.to, &source, &number);
  if (status != LOAM_OK) refuse(hash, loam_error());
  else tell_shortcomings();
  _exit(status == LOAM_OK ? PUBLISHED : lm_policy_open_is_verdict(status) ? REFUSED : FAILED);
}

/* Waits for the compiler of a text. `text_hash` is the hash of the text. Returns whether the text
 * need not be compiled again until the file changes. A compiler that was killed says nothing
 * about the text: the kernel kills it if the control group has no memory left. */
static bool wait_for(pid_t compiler, uint64_t text_hash) {
  char words[160];
  int status = 0;
  int64_t end_ns = lm_sys_clock_ns() + COMPILE_MS * 1000000ll;
  while (!waitpid(compiler, &status, WNOHANG)) {
    if (lm_sys_clock_ns() > end_ns) kill(compiler, SIGKILL);
    keep();
    lm_sys_sleep(NAP_MS * 1000000ll);
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status) == REFUSED;
  snprintf(words, sizeof words, "%.100s: its compiler was ended by signal %d", self.policy,
           WTERMSIG(status));
  refuse(text_hash, words);
  self.was_killed = WTERMSIG(status) == SIGKILL;
  return true;
}

/* Compiles a policy's text, which has the hash `hash`, and publishes it. Returns whether it was
 * refused and need not be compiled again until the file changes. */
static bool publish(const char *text, size_t length, uint64_t hash) {
  pid_t compiler = fork();
  if (!compiler) compile_and_exit(text, length, hash);
  if (compiler > 0) return wait_for(compiler, hash);
  refuse(hash, "no process could be made to compile the policy");
  return false;
}

/* Looks whether the file was saved or touched since the last look. */
static void look_at_file(void) {
  struct stat st;
  if (stat(self.policy, &st)) st = (struct stat){ 0 };
  self.is_as_before = st.st_ctim.tv_sec == self.changed.tv_sec &&
                      st.st_ctim.tv_nsec == self.changed.tv_nsec;
  self.changed = st.st_ctim;
}

/* Plans the next try to publish a text, unless the text is published or refused. Otherwise the disk
 * was full, memory was missing, or the board was locked, which may pass while the file stays as it
 * is. The tries become rare, because a policy that is too large for the board fails each time. */
static void plan_retry(bool is_settled) {
  int next_ms = self.retry_ms && self.is_as_before ? 2 * self.retry_ms : RETRY_MS;
  if (next_ms > RETRY_MOST_MS) next_ms = RETRY_MOST_MS;
  self.retry_ms = is_settled ? 0 : next_ms;
  self.retry_ns = lm_sys_clock_ns() + next_ms * 1000000ll;
}

/* Reads the policy file, and publishes its text if that is new. */
static void load_changed_file(void) {
  char *text = NULL;
  size_t length = 0;
  look_at_file();
  if (self.was_killed && !self.is_as_before) self.refused_hash = 0;
  loam_status status = lm_policy_file_read(self.policy, LM_READ_TO_FOLLOW, &text, &length);
  bool is_read = status == LOAM_OK;
  uint64_t hash = is_read ? lm_policy_open_hash(text, length)
                          : lm_policy_file_hash(loam_error(), strlen(loam_error()));
  if (hash != self.refused_hash) {
    self.was_killed = false;
    bool is_live = is_read && hash == lm_publisher_latest(&self.to)->text_hash;
    if (is_live) lm_publisher_forget_refusal(&self.to);
    else if (!is_read) refuse(0, loam_error());
    bool is_refused = !is_live && (!is_read || publish(text, length, hash));
    self.refused_hash = is_refused ? hash : 0;
    bool is_settled = is_refused || hash == lm_publisher_latest(&self.to)->text_hash;
    plan_retry(is_settled);
  }
  lm_metadata_free(text);
}

/* Tells whether the text is to be tried again. The watcher wakes at least every two seconds, for
 * memory pressure. */
static bool is_retry_due(void) { return self.retry_ms && lm_sys_clock_ns() >= self.retry_ns; }

/* `loam reload` may have published another file: that one is followed from now on. */
static void follow_published(void) {
  const lm_board_news *news = self.to.news;
  lm_watch *opened;
  uint64_t number = atomic_load(&news->published.now.number);
  if (!self.watch || number == self.number) return;
  self.number = number;
  const char *path = news->image[number & 1].path;
  if (*path != '/' || !strcmp(path, self.policy)) return;
  char copy[sizeof news->image[0].path];
  snprintf(copy, sizeof copy, "%s", path);
  if (lm_watch_open(copy, &opened) != LOAM_OK) return;
  lm_watch_replace(&self.watch, opened);
  snprintf(self.policy, sizeof self.policy, "%s", copy);
}

/* ---- The tree ---- */

/* Returns a pidfd; -1 where there is none. */
static int open_pidfd(int pid) {
  int fd = -1;
  (void)lm_sys_process_open(pid, &fd);
  return fd;
}

/* Tells whether another process has the board open or mapped: only then the kernel refuses a lease
 * for writing. True where the filesystem has no leases. On overlayfs the kernel gives a lease also
 * while the board is mapped (is_unused in service/board_read.c): a tree that lives on only in
 * another PID namespace then counts as ended. */
static bool is_board_used(void) {
  if (fcntl(self.to.fd, F_SETLEASE, F_WRLCK)) return true;
  (void)fcntl(self.to.fd, F_SETLEASE, F_UNLCK);
  return false;
}

/* Looks for a living process of the tree, and sets self.pidfd to one if it can be waited for.
 * Returns whether there is one. The id of a process in another PID namespace does not
 * say whether the process lives. */
static bool is_tree_alive(void) {
  int pid = lm_board_find_living(self.to.fd);
  self.member = pid > 0 ? pid : 0;
  if (pid > 0) self.pidfd = open_pidfd(pid);
  return pid > 0 || (pid < 0 && is_board_used());
}

/* Waits for the next thing to do. Returns false when the tree has ended. */
static bool wait_for_work(void) {
  struct pollfd fds[2] = { { .fd = self.watch ? lm_watch_fd(self.watch) : -1, .events = POLLIN },
                           { .fd = self.pidfd, .events = POLLIN } };
  int timeout_ms = self.watch ? lm_watch_timeout_ms(self.watch) : IDLE_MS;
  if (self.pidfd < 0 && timeout_ms > LOOK_MS) timeout_ms = LOOK_MS;
  bool is_refused = poll(fds, 2, until_due_ms(timeout_ms)) < 0 && errno != EINTR;
  if (is_refused) lm_sys_sleep(LOOK_MS * 1000000ll); /* a low limit on descriptors refuses poll */
  if (self.pidfd >= 0 && !fds[1].revents && !is_refused) return true;
  if (self.pidfd >= 0) close(self.pidfd);
  self.pidfd = -1;
  for (int i = 0; i < EMPTY_LOOKS; i++) {
    keep();
    if (i) lm_sys_sleep(LOOK_MS * 1000000ll);
    if (is_tree_alive()) return true;
  }
  return false;
}

/* ---- The process ---- */

/* Makes the kernel's list of processes show what this process is: it has the words of `loam run`,
 * and whoever looks for the program by its words would find it. The words lie where argv[0] is. */
static void rename_self(void) {
  char text[4096];
  size_t length;
  prctl(PR_SET_NAME, "loam-watcher");
  char *words = program_invocation_name;
  size_t end = 0;
  if (lm_sys_read_part("/proc/self/cmdline", 0, text, sizeof text - 1, &length)) return;
  text[length] = 0;
  if (length < 2 || strcmp(words, text)) return;
  while (length) {
    memset(words + end, 0, length);
    end += length;
    if (lm_sys_read_part("/proc/self/cmdline", end, text, sizeof text, &length)) break;
  }
  snprintf(words, end, "loam-watcher %s", *self.policy ? self.policy : self.board);
}

/* Gives up everything that the process has of the program, except the pidfd. */
static void detach(void) {
  setsid();
  if (self.pidfd >= 0 && dup2(self.pidfd, PIDFD) == PIDFD) self.pidfd = PIDFD;
  else self.pidfd = -1;
  for (int fd = 0; fd < PIDFD; fd++) close(fd);
  lm_sys_process_close_from(self.pidfd < 0 ? PIDFD : PIDFD + 1);
  int null = open("/dev/null", O_RDWR);
  for (int fd = 1; null == 0 && fd < PIDFD; fd++) (void)dup2(null, fd);
  (void)!chdir("/");
  struct sigaction usual = { .sa_handler = SIG_DFL };
  sigset_t none;
  sigemptyset(&none);
  for (int i = 1; i < NSIG; i++) (void)sigaction(i, &usual, NULL);
  (void)sigprocmask(SIG_SETMASK, &none, NULL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGIO, SIG_IGN); /* of a lease that another process wants to break */
}

/* Tells whether the tree has ended before the watcher could begin: its last process removes the
 * board. */
static bool is_board_removed(void) { return access(self.board, F_OK) && errno == ENOENT; }

static _Noreturn void run(void) {
  detach();
  rename_self();
  lm_sys_end_real_time();
  if (lm_publisher_open(self.board, &self.to) != LOAM_OK ||
      (*self.policy && lm_watch_open(self.policy, &self.watch) != LOAM_OK)) {
    if (is_board_removed()) _exit(0);
    close(self.pidfd); /* tell needs a descriptor, and there may be no other */
    tell("warning: nothing follows the policy file", loam_error());
    _exit(1);
  }
  if (self.watch) atomic_store(&self.to.news->watcher, lm_board_owner_now(getpid()));
  lm_publisher_keep(&self.to);
  /* Alarms are counted over all publishers of a board. */
  self.pressure.alarms = atomic_load(&self.to.news->published.gauges.alarm) / 2;
  /* The control group of `loam reload` is another one than the control group of the tree. */
  if (!self.program) (void)is_tree_alive();
  do {
    keep();
    follow_published();
    if (self.watch && (lm_watch_ready(self.watch) || is_retry_due())) load_changed_file();
  } while (wait_for_work());
  _exit(0);
}

/* Tells whether an orphan of this process's children would become its own child. */
static bool takes_orphans(void) {
  int is_subreaper = 0;
  return getpid() == 1 || (!prctl(PR_GET_CHILD_SUBREAPER, &is_subreaper) && is_subreaper);
}

/* Makes the watcher a child that wait(2) does not see, without the hooks of fork: where `loam run`
 * runs under another `loam run`, the watcher takes no place on the outer board. Returns 0 or an
 * errno. */
static int start_hidden(void) {
  int pid = -1, error = lm_sys_process_hidden(&pid);
  if (!pid) run();
  return error;
}

/* Makes the watcher an orphan. Returns 0 or an errno. The process between lives for the moment of
 * one fork. It is made by vfork, since a copy of the page tables would take 0.2 ms. */
static int start_orphan(void) {
  int status = 0;
  pid_t between = vfork();
  if (between < 0) return errno;
  if (!between) _exit(start_hidden() ? 1 : 0);
  while (waitpid(between, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : EAGAIN;
}

/* Writes memory pressure on the board, before a program starts that reads it: else the program
 * would take the pressure for 0 until the watcher has looked. */
static void publish_pressure(const char *board) {
  lm_publisher to;
  lm_pressure pressure = { 0 };
  if (lm_publisher_open(board, &to) != LOAM_OK) return;
  if (lm_publisher_reads_pressure(lm_publisher_latest(&to)->reads)) {
    (void)lm_pressure_look(&pressure, NULL, lm_sys_clock_ns());
    lm_pressure_publish(&pressure, &to.news->published.gauges);
  }
  lm_publisher_close(&to);
}

static void set_up(const lm_watcher_task *task) {
  snprintf(self.board, sizeof self.board, "%s", task->board);
  snprintf(self.policy, sizeof self.policy, "%s", task->policy ? task->policy : "");
  self.program = self.member = task->is_of_caller ? getpid() : 0;
  self.pidfd = self.program ? open_pidfd(self.program) : -1;
  if (!self.program || fstat(STDERR_FILENO, &self.errors)) self.errors = (struct stat){ 0 };
}

loam_status lm_watcher_start(const lm_watcher_task *task) {
  set_up(task);
  if (task->is_of_caller) publish_pressure(task->board);
  int error = takes_orphans() ? start_hidden() : start_orphan();
  if (self.pidfd >= 0) close(self.pidfd);
  if (!error) return LOAM_OK;
  return lm_error(LOAM_EIO, "no process to watch %s: %s", *self.policy ? self.policy : self.board,
                  strerrordesc_np(error));
}
