/* host.c - makes a host of a program that does not know loam. The engine is started from the
 * environment, at the program's first allocation or at our constructor, whichever comes first. This
 * file also writes the messages for people.
 *
 *   LOAM_POLICY, LOAM_LENIENT=1, LOAM_SERVICE=1   the options of `loam run`
 *   LOAM_WATCH=1         a service thread of this process follows the policy file. `loam run
 *                        --watch` follows it from outside instead, unless it has --service
 *   LOAM_RUN=PID         the process that `loam run` became. With a service thread it reports
 *                        policies that are refused later
 *   LOAM_VETTED          `loam run` has accepted the policy: a bad edit after that stops no program
 *   LOAM_BAD_FREE=abort|report|ignore           what a bad free does; the default is abort
 *   LOAM_EVENTS=stderr   write all events there; by default loam adds to the output only what
 *                        tell_by_default says
 *   LOAM_GUARD_REPORT=0  do not report a fault in guarded memory, and do not handle SIGSEGV;
 *                        by default see guard_report in loam.h
 *
 * Any other value is reported once in a process, and the default is used. A program that has more
 * rights than the user who starts it (AT_SECURE in getauxval(3)) takes none of these. Into
 * such a program the dynamic linker preloads only libraries of its own folders. */
#define _GNU_SOURCE 1
#include "preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Atomic int host_state;

/* Where this library begins; the linker defines it. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));

typedef enum bad_free { BAD_FREE_ABORT, BAD_FREE_REPORT, BAD_FREE_IGNORE } bad_free;
typedef enum telling { TELL_ERRORS, TELL_NONE, TELL_ALL } telling;

static bad_free on_bad_free;
static telling events;
static bool strict, is_told, follow, service, guard_report;
static bool is_first; /* this process is run_pid, or the first process of a preloaded tree */
static long run_pid;  /* the process that `loam run` became; 0: none */
/* The name by which the program was started. It is a copy, because a program may write over its
 * arguments. */
static char program[32];
static struct stat stderr_first; /* the file of descriptor 2 at the start; zeroed: it was closed */

/* A line with its newline is formatted into SHORT_LINE bytes of the stack, because a thread with a
 * small stack may come here. A longer line is formatted again, by a function with a larger
 * frame. */
enum { SHORT_LINE = 640, LONG_LINE = 4608 };

/* Tells whether lines for people may be written to descriptor 2: it is the file that it was at the
 * start, or a terminal, or a file that is opened for append, such as the log of a daemon. Anything
 * else may be data of the program. Signal handlers may call this. */
static bool has_stderr(void) {
  struct stat now;
  if (fstat(STDERR_FILENO, &now)) return false;
  if (S_ISCHR(now.st_mode)) return true;
  if (S_ISREG(now.st_mode) && fcntl(STDERR_FILENO, F_GETFL) & O_APPEND) return true;
  return stderr_first.st_mode && now.st_dev == stderr_first.st_dev &&
         now.st_ino == stderr_first.st_ino && now.st_rdev == stderr_first.st_rdev;
}

/* The name of a file may have a newline, or characters that change what a terminal shows. */
static void replace_controls(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < ' ' || *text == 0x7f) *text = '?';
}

/* A long name is not cut inside a character of UTF-8. */
static void read_name(void) {
  const char *from = program_invocation_short_name;
  size_t length = strnlen(from, sizeof program - 1);
  while (from[length] && length && (from[length] & 0xc0) == 0x80) length--;
  memcpy(program, from, length);
  program[length] = 0;
  replace_controls(program);
}

enum { DIGITS = 10, TITLE = 64 }; /* the most digits of a process id, and bytes of a title */
_Static_assert(sizeof "loam: []: " + sizeof program + DIGITS <= TITLE, "a title fits");

/* Writes the beginning of each line, "loam: NAME[PID]: ", without a NUL. Returns its length. Signal
 * handlers may call this. A filter of system calls may make getpid return -1. */
static size_t write_title(char line[TITLE]) {
  char digits[DIGITS];
  size_t n = 0, length = stpcpy(stpcpy(stpcpy(line, "loam: "), program), "[") - line;
  for (uint32_t pid = (uint32_t)getpid(); pid || !n; pid /= 10)
    digits[n++] = (char)('0' + pid % 10);
  while (n) line[length++] = digits[--n];
  memcpy(line + length, "]: ", 3);
  return length + 3;
}

/* Writes a whole line to descriptor 2, if that is possible. A pipe whose reader has gone, and a
 * file that may not become longer (RLIMIT_FSIZE), would end the program by a signal, though the
 * program itself may never write there. So the two signals are blocked, and the one that the write
 * has sent is taken back. If the program blocks it anyway, it waits as after a write of the
 * program's own. Signal handlers may call this. */
static void write_out(const char *line, size_t length) {
  static const struct timespec now;
  sigset_t sent, before;
  sigemptyset(&sent);
  sigaddset(&sent, SIGPIPE);
  sigaddset(&sent, SIGXFSZ);
  if (pthread_sigmask(SIG_BLOCK, &sent, &before)) return;
  bool has_failed = write(STDERR_FILENO, line, length) < 0;
  int number = errno == EPIPE ? SIGPIPE : SIGXFSZ;
  if (has_failed && (errno == EPIPE || errno == EFBIG) && !sigismember(&before, number)) {
    sigemptyset(&sent);
    sigaddset(&sent, number);
    (void)sigtimedwait(&sent, NULL, &now);
  }
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Writes a line with one write(2) and without stdio: this may run inside any malloc, and the
 * streams belong to the program. `line` has room for `size` bytes. With `cuts` a line that is
 * longer is cut. Without it such a line is not written, and the function returns false. */
static bool write_line(char *line, size_t size, bool cuts, const char *format, va_list arguments) {
  if (!has_stderr()) return true;
  size_t before = write_title(line), room = size - before - 1;
  int length = vsnprintf(line + before, room, format, arguments);
  if (length < 0) return true;
  if ((size_t)length >= room && !cuts) return false;
  size_t all = before + ((size_t)length < room ? (size_t)length : room - 1);
  if (line[all - 1] != '\n') line[all++] = '\n';
  write_out(line, all); /* there is no other place to report to */
  return true;
}

__attribute__((noinline)) static void tell_long(const char *format, va_list arguments) {
  char line[LONG_LINE];
  (void)write_line(line, sizeof line, true, format, arguments);
}

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...) {
  char line[SHORT_LINE];
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  if (!write_line(line, sizeof line, false, format, arguments)) tell_long(format, again);
  va_end(again);
  va_end(arguments);
}

/* Adds to core's message what only the preload library knows: where a stray pointer points, and the
 * code that freed it. */
static void tell_bad_free(const loam_event *event) {
  char by[640];
  const char *place = loam_owns(event->pointer) ? NULL : stray_place(event->pointer);
  bool known = !loam_scope_get() && caller_describe(event->caller, by, sizeof by);
  if (known) replace_controls(by);
  tell("%s%s%s%s%s", event->message, place ? ": it is " : "", place ? place : "",
       known ? "; freed under " : "", known ? by : "");
}

/* Runs in a signal handler, so it may not use printf. */
static void tell_fault(const char *words) {
  char line[1200];
  if (!has_stderr()) return;
  size_t before = write_title(line), length = strnlen(words, sizeof line - before - 1);
  memcpy(line + before, words, length);
  line[before + length] = '\n';
  write_out(line, before + length + 1);
}

/* Returns whether this process reports a refused policy. Only the process that `loam run` became
 * does so, and only if it has a service thread. Without one, the watcher reports the refusal and
 * notes it on the board. The caller may be inside malloc of a program that has given up the right
 * to make system calls. */
static bool tells_refusals(void) { return (service || follow) && run_pid == (long)getpid(); }

/* Adds bytes to a hash (FNV-1a). */
static uint64_t hash_add(uint64_t hash, const void *bytes, size_t length) {
  const unsigned char *byte = bytes;
  for (size_t i = 0; i < length; i++) hash = (hash ^ byte[i]) * 1099511628211u;
  return hash;
}

/* Returns a hash of the generation and the words of an event. */
static uint64_t hash_of(const loam_event *event) {
  uint64_t hash = hash_add(14695981039346656037u, &event->generation, sizeof event->generation);
  return hash_add(hash, event->message, strlen(event->message));
}

/* Tells whether the event is a SHORTFALL whose words were printed with an UNSERVED. The core tells
 * a host first that a request got no memory, and then, in equal words, that a strategy could not
 * serve it. A generation has one UNSERVED, so one hash is enough. Threads race for it without harm:
 * a line may be printed twice. */
static bool is_printed(const loam_event *event) {
  static _Atomic uint64_t printed;
  if (event->kind == LOAM_EVENT_UNSERVED)
    atomic_store_explicit(&printed, hash_of(event), memory_order_relaxed);
  return event->kind == LOAM_EVENT_SHORTFALL &&
         hash_of(event) == atomic_load_explicit(&printed, memory_order_relaxed);
}

/* Writes what a person has to know who did not set LOAM_EVENTS: a limit, a denial or a lack of
 * memory that may end the program, and a policy that was refused while the program runs. A policy
 * is refused in all processes that follow the file: only the one that `loam run` became says so, in
 * one line. */
static void tell_by_default(const loam_event *event) {
  bool is_refusal = event->kind == LOAM_EVENT_POLICY_REFUSED && tells_refusals();
  bool is_end = event->kind == LOAM_EVENT_UNSERVED || event->kind == LOAM_EVENT_LAST_WORDS;
  if (!is_refusal && !is_end) return;
  if (!is_refusal) tell("%s", event->message);
  else
    tell("policy refused, the last good one stays: %.*s", (int)strcspn(event->message, "\n"),
         event->message);
}

/* Says at the start why the service of this process does not work as asked. Only the process that
 * `loam run` became does so, in one line. Without a board, `loam run` itself has printed why
 * commands cannot ask the program. A start has at most one event for the file and one for the
 * socket; if there is no thread, both have the same reason. */
static void tell_unserved(const char *why) {
  static bool has_told;
  bool is_unasked = service && secure_getenv("LOAM_BOARD");
  bool is_unfollowed = follow && strstr(why, "no service thread");
  if (has_told || run_pid != (long)getpid() || (!is_unasked && !is_unfollowed)) return;
  has_told = true;
  if (is_unfollowed) tell("warning: no edit of the policy file reaches the program: %s", why);
  else
    tell("warning: the program cannot be asked: %s; so `loam reload`, `sleep`, `wake`, `demote` "
         "and `rebalance` do not reach it (LOAM_CONTROL_DIR=FOLDER names another folder, "
         "LOAM_EVENTS=none hides this line)",
         why);
}

/* Prints a line of the report at exit. A shell has many children, so of the programs of `loam run`
 * only the process that it became prints its report. A file has the reports of all. */
static void tell_report(const char *words) {
  if (!run_pid || run_pid == (long)getpid()) tell("%s", words);
}

static void on_event(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind == LOAM_EVENT_FAULT) return tell_fault(event->message);
  if (event->kind == LOAM_EVENT_ENVIRONMENT) return tell("warning: %s", event->message);
  if (event->kind == LOAM_EVENT_REPORT) return tell_report(event->message);
  if (event->kind == LOAM_EVENT_BAD_FREE) {
    if (on_bad_free != BAD_FREE_IGNORE || events == TELL_ALL) tell_bad_free(event);
    if (on_bad_free == BAD_FREE_ABORT) abort();
    return;
  }
  bool starting = atomic_load_explicit(&host_state, memory_order_relaxed) == HOST_WAKING;
  if (events == TELL_NONE) return;
  if (events == TELL_ALL && is_printed(event)) return;
  if (events == TELL_ALL) tell("%s", event->message);
  else if (!starting) tell_by_default(event);
  else if (event->kind == LOAM_EVENT_CONTROL) tell_unserved(event->message);
  else if (event->kind == LOAM_EVENT_POLICY_REFUSED && !strict && !is_told)
    tell("warning: policy refused, the built-in default is used: %s", event->message);
}

/* Returns the index of a variable's value in the words "one|two|three"; 0 if it is unset or empty.
 * Any other value is reported, because it is probably a spelling mistake, and counts as the first
 * word. */
static int read_word(const char *name, const char *words) {
  const char *value = secure_getenv(name), *word = words;
  if (!value || !*value) return 0;
  for (int i = 0;; i++, word += strcspn(word, "|") + 1) {
    size_t length = strcspn(word, "|");
    if (strlen(value) == length && !memcmp(value, word, length)) return i;
    if (!word[length]) break;
  }
  tell("warning: %s=%.100s: it may be %s; taken as %.*s", name, value, words,
       (int)strcspn(words, "|"), words);
  return 0;
}

/* Returns whether the program starts although its policy is refused. If `loam run` has accepted the
 * policy (LOAM_VETTED), the file was edited after that. A bad edit must not end a program, also not
 * one that becomes another program by exec. */
static bool is_lenient(void) {
  return read_word("LOAM_LENIENT", "0|1") || secure_getenv("LOAM_VETTED") ||
         (run_pid && run_pid != (long)getpid());
}

/* Tells whether `loam run --lenient` has shown the errors of the policy before it became this
 * process. It sets LOAM_VETTED only for a policy without errors. */
static bool is_refusal_told(void) {
  return run_pid == (long)getpid() && !secure_getenv("LOAM_VETTED");
}

static void read_environment(void) {
  const char *run = secure_getenv("LOAM_RUN");
  run_pid = run ? atol(run) : 0;
  read_name();
  if (fstat(STDERR_FILENO, &stderr_first)) stderr_first = (struct stat){ 0 };
  on_bad_free = (bad_free)read_word("LOAM_BAD_FREE", "abort|report|ignore");
  events = (telling)read_word("LOAM_EVENTS", "errors|none|stderr");
  is_first = run_pid ? run_pid == (long)getpid() : !secure_getenv("LOAM_BOARD");
  strict = !is_lenient();
  is_told = is_refusal_told();
  follow = read_word("LOAM_WATCH", "0|1");
  service = read_word("LOAM_SERVICE", "0|1");
  guard_report = !read_word("LOAM_GUARD_REPORT", "1|0");
}

static void start(void) {
  static const loam_system next = { next_malloc, next_calloc,        next_realloc,
                                    next_free,   next_aligned_alloc, next_usable_size };
  const char *policy = secure_getenv("LOAM_POLICY");
  loam_config config = {
    .size = sizeof config,
    .policy = policy && *policy ? policy : NULL,
    .watch = follow,
    .lenient = !strict,
    .guard_report = guard_report,
    .system = &next,
    .guest = !service,
  };
  caller_start();
  loam_on_event(on_event, NULL);
  loam_status status = loam_start(&config);
  if (status == LOAM_OK || status == LOAM_ESTATE) return;
  if (!strict && status != LOAM_EUNSUPPORTED)
    return tell("warning: loam did not start as configured: %s", loam_error());
  tell("the program is not started: %s", loam_error());
  _exit(2);
}

bool host_wake(const void *caller) {
  /* The dynamic loader allocates in the middle of its work. Starting loads LuaJIT, which would
   * enter the loader again. Without an environment, the C library is not initialised yet. */
  int state = atomic_load_explicit(&host_state, memory_order_acquire);
  if (state == HOST_AWAKE) return true;
  loam_on_foreign(stray_free); /* also for blocks that the next allocator serves until then */
  if (state != HOST_ASLEEP || !environ || caller_is_loader(caller)) return false;
  if (!atomic_compare_exchange_strong(&host_state, &state, HOST_WAKING)) return false;
  int before = errno; /* programs find 0 in errno when main begins */
  read_environment();
  start();
  errno = before;
  atomic_store_explicit(&host_state, HOST_AWAKE, memory_order_release);
  return true;
}

/* Returns the file whose malloc the program calls if it is another than this library; else NULL. A
 * program that is no PIE may have an entry of its own that leads to malloc, whose symbol is not
 * defined there. Then the file of another function of the family is returned. */
static const char *file_before_loam(void) {
  static const char *const family[] = { "malloc", "calloc", "realloc", "malloc_usable_size" };
  for (size_t i = 0; i < sizeof family / sizeof *family; i++) {
    Dl_info info;
    void *symbol = NULL, *found = dlsym(RTLD_DEFAULT, family[i]);
    if (!found || !dladdr1(found, &info, &symbol, RTLD_DL_SYMENT) || !symbol) continue;
    if (((const ElfW(Sym) *)symbol)->st_shndx == SHN_UNDEF) continue;
    return info.dli_fbase == (const void *)__ehdr_start ? NULL : info.dli_fname;
  }
  return NULL;
}

/* The program may have a malloc of its own, and LD_PRELOAD may name another allocator before loam.
 * Then loam is loaded and obeys the policy, but few requests or none come to it. */
static void tell_if_another_is_first(void) {
  const char *file = file_before_loam();
  if (file) tell("note: malloc of %s comes before loam's; loam governs what it passes on", file);
}

__attribute__((constructor)) static void begin(void) {
  int before = errno;
  host_wake(&host_state);
  if (is_first && events != TELL_NONE && secure_getenv("LOAM_POLICY")) tell_if_another_is_first();
  errno = before;
}
