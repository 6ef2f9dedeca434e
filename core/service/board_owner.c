/* board_owner.c - the state of a process that has a place on a board. */
#include "service/board_owner.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/sys.h"
#include "pages/map.h"

/* Fields of /proc/PID/stat (proc(5)), counted from the state, which follows the name. The size of
 * the address space follows the start. */
enum { STATE_FIELD = 3, START_FIELD = 22 };

/* A process, as /proc/PID/stat describes it. */
typedef struct process {
  char state;
  int64_t start_ms;  /* since boot */
  uint64_t reserved; /* bytes of address space */
} process;

uint64_t lm_board_owner_now(int pid) {
  lm_assert(pid > 0 && (uint64_t)pid <= LM_BOARD_PID);
  uint64_t ms = (uint64_t)lm_sys_boot_ns() / 1000000;
  return ms << LM_BOARD_MS_SHIFT | (uint64_t)pid;
}

uint64_t lm_board_own_namespace(void) {
  struct stat st;
  int before = errno;
  uint64_t found = stat("/proc/self/ns/pid", &st) ? 0 : st.st_ino;
  errno = before;
  return found;
}

void lm_board_boot_id(char *buffer, size_t size) {
  size_t length = 0;
  lm_assert(size > 0);
  if (lm_sys_read_file("/proc/sys/kernel/random/boot_id", buffer, size, &length)) length = 0;
  while (length && buffer[length - 1] == '\n') length--;
  buffer[length] = 0;
}

/* Reads /proc/PID/stat. The name of the program stands in brackets and may contain brackets and
 * spaces, so the last bracket counts. */
static bool read_stat(int pid, process *out) {
  char path[40], text[1024];
  size_t length;
  unsigned long long ticks = 0, reserved = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  if (lm_sys_read_file(path, text, sizeof text, &length)) return false;
  const char *at = strrchr(text, ')');
  if (!at || sscanf(at + 1, " %c", &out->state) != 1) return false;
  for (int field = STATE_FIELD - 1; at && field < START_FIELD; field++) at = strchr(at + 1, ' ');
  if (!at || sscanf(at, "%llu %llu", &ticks, &reserved) != 2) return false;
  out->start_ms = (int64_t)(ticks * 1000 / (unsigned long long)sysconf(_SC_CLK_TCK));
  out->reserved = reserved;
  return true;
}

static bool is_dead(const process *p) { return strchr("ZXx", p->state) != NULL; }

bool lm_board_owner_has_ended(int pid) {
  process p;
  return read_stat(pid, &p) && is_dead(&p);
}

/* Reads the users of a process. A process that is not dumpable still tells them in this file. */
static void read_users(int pid, lm_board_life *life) {
  char text[LM_SYS_STATUS];
  const char *users = lm_sys_process_field(pid, "\nUid:", text);
  life->has_uid = users && sscanf(users, "%u %u", &life->real_uid, &life->uid) == 2;
}

/* Tells whether the process has replaced its program by another one than its entry names. If the
 * file of its program cannot be seen, the answer is no. */
static bool has_other_program(int pid, const lm_board_figures *figures) {
  char path[40];
  struct stat st;
  if (!figures || !figures->exe_inode) return false;
  snprintf(path, sizeof path, "/proc/%d/exe", pid);
  return !stat(path, &st) && (st.st_dev != figures->exe_device || st.st_ino != figures->exe_inode);
}

/* The mappings that /proc/PID/maps names: whether there are any, and one that only loam makes. */
typedef struct mappings {
  bool has_any, has_loam;
} mappings;

static void note_mapping(void *ctx, const char *line) {
  mappings *m = ctx;
  m->has_any = true;
  m->has_loam |= strchr(line, '/') && (strstr(line, ".board") || strstr(line, "/quotas."));
}

/* Tells whether the process has replaced its program by one without loam, which may be the file
 * that its entry names: nginx starts its successor without LD_PRELOAD. A process with a place has
 * the board among its mappings, and one with a shared limit has the table of quotas there. Both
 * also reserve LM_RANGE, unless RLIMIT_AS forbids that, so that their mappings need not be read. If
 * the mappings cannot be seen, the answer is no. */
static bool has_lost_loam(int pid, const process *p, const lm_board_figures *figures) {
  char path[40];
  mappings m = { 0 };
  if (!figures || p->reserved >= LM_RANGE) return false;
  snprintf(path, sizeof path, "/proc/%d/maps", pid);
  return !lm_sys_each_line(path, note_mapping, &m) && m.has_any && !m.has_loam;
}

/* Tells whether the process counts the time since boot as this process does. In another time
 * namespace that time has an offset. If the namespaces cannot be seen, the answer is yes. */
static bool has_own_time(int pid) {
  char path[40];
  struct stat own, theirs;
  snprintf(path, sizeof path, "/proc/%d/ns/time", pid);
  return stat("/proc/self/ns/time", &own) || stat(path, &theirs) || own.st_ino == theirs.st_ino;
}

/* Tells whether a process that started at `start_ms` is another one than the owner, with its id. */
static bool is_younger(int pid, int64_t start_ms, uint64_t owner) {
  return start_ms > lm_board_since_ms(owner) && has_own_time(pid);
}

/* Where /proc does not show the process: whether it exists. */
static lm_board_state probe(int pid) {
  return kill(pid, 0) && errno == ESRCH ? LM_BOARD_GONE : LM_BOARD_RUNNING;
}

lm_board_life lm_board_look(uint64_t owner, uint64_t pid_namespace,
                            const lm_board_figures *figures) {
  lm_board_life life = { .state = LM_BOARD_UNKNOWN };
  process p = { 0 };
  int pid = lm_board_pid(owner);
  if (!pid || !pid_namespace || pid_namespace != lm_board_own_namespace()) return life;
  if (!read_stat(pid, &p)) {
    life.state = probe(pid);
    return life;
  }
  bool is_other = is_younger(pid, p.start_ms, owner) || has_other_program(pid, figures) ||
                  has_lost_loam(pid, &p, figures);
  if (is_other || is_dead(&p)) life.state = LM_BOARD_GONE;
  else life.state = strchr("Tt", p.state) ? LM_BOARD_STOPPED : LM_BOARD_RUNNING;
  if (life.state != LM_BOARD_GONE) read_users(pid, &life);
  return life;
}
