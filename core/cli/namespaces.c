/* namespaces.c - finds in /proc the folders of boards that are not in a usual place, and the
 * processes of other mount and PID namespaces. */
#include "cli/namespaces.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/sys.h"
#include "service/board_read.h"
#include "service/control_client.h"

/* MOUNTS: further mount namespaces are not looked into. PROCESSES: further processes of other PID
 * namespaces are shown as `unknown`. FOLDERS: further folders are not looked into. READINGS: /proc
 * is read at most that often for one list of boards, since any user can write a board with a
 * thousand processes that have ended. */
enum { MOUNTS = 4096, PROCESSES = 16384, FOLDERS = 1024, READINGS = 16 };

/* The namespaces that one reading of /proc found. No lock guards them: the command has one
 * thread. */
static struct {
  uint64_t mount[MOUNTS]; /* inode numbers of mount namespaces; [0] is of this process */
  int mount_pid[MOUNTS];  /* a process of each */
  unsigned mounts;
  struct {
    uint64_t pid_namespace; /* inode number; not the own one */
    int inner, outer;       /* the id of the process there and here */
  } process[PROCESSES];
  unsigned processes;
  bool is_whole;     /* it has all processes of the machine that are in other PID namespaces */
  unsigned readings; /* of /proc for the present list */
} found;

/* The unusual folders in which living processes have their boards. */
static struct {
  struct {
    uint64_t mount; /* the mount namespace that the path belongs to */
    char *path;
  } folder[FOLDERS];
  unsigned count;
  int64_t read_ns; /* when they were last looked for; 0: never */
} elsewhere;

/* The folders that were visited for the present list of boards. */
static lm_board_visited visited;

/* The maps of all processes are read at most that often: `loam top` looks each second, and the maps
 * of a large program have thousands of lines. */
static const int64_t MAPS_NS = 10000000000;

/* The inode number of the first PID namespace of a machine, a constant of Linux. A process in that
 * namespace sees all processes. */
static const uint64_t FIRST_PID_NAMESPACE = 0xeffffffc;

/* Returns the inode number of a namespace of a process; 0: it cannot be seen. */
static uint64_t namespace_of(const char *pid, const char *kind) {
  char path[64];
  struct stat st;
  snprintf(path, sizeof path, "/proc/%.16s/ns/%s", pid, kind);
  return stat(path, &st) ? 0 : st.st_ino;
}

static void note_mount(const char *pid, uint64_t mount) {
  if (!mount || found.mounts == MOUNTS) return;
  for (unsigned i = 0; i < found.mounts; i++)
    if (found.mount[i] == mount) return;
  found.mount_pid[found.mounts] = (int)strtol(pid, NULL, 10);
  found.mount[found.mounts++] = mount;
}

/* Reads the ids of a process in this PID namespace and in those below it, up to its own one.
 * Returns how many there are, and sets *inner to the last; 0: /proc does not show the process. */
static int read_ids(int pid, int *inner) {
  char text[LM_SYS_STATUS], *ids = lm_sys_process_field(pid, "\nNSpid:", text);
  int n = 0;
  if (!ids) return 0;
  ids[strcspn(ids, "\n")] = 0;
  for (const char *at = strchr(ids, '\t'); at; at = strchr(at + 1, '\t'), n++)
    *inner = (int)strtol(at, NULL, 10);
  return n;
}

int lm_namespaces_inner_pid(int pid) {
  int inner;
  return read_ids(pid, &inner) ? inner : 0;
}

static void note_process(const char *pid, uint64_t own) {
  uint64_t pid_namespace = namespace_of(pid, "pid");
  int outer = (int)strtol(pid, NULL, 10), inner;
  if (pid_namespace == own || read_ids(outer, &inner) < 2) return; /* it has one id, or has ended */
  if (!pid_namespace || found.processes == PROCESSES) {
    found.is_whole = false;
    return;
  }
  found.process[found.processes].pid_namespace = pid_namespace;
  found.process[found.processes].inner = inner;
  found.process[found.processes++].outer = outer;
}

/* Tells whether a folder is one of those in which lm_board_each looks by itself. */
static bool is_usual(const char *folder) {
  char own[LM_CONTROL_PATH];
  unsigned uid;
  int end = 0;
  if (sscanf(folder, "/tmp/loam-%u%n", &uid, &end) == 1 && !folder[end]) return true;
  if (sscanf(folder, "/run/user/%u/loam%n", &uid, &end) == 1 && end && !folder[end]) return true;
  return lm_control_dir(NULL, own, sizeof own) == LOAM_OK && !strcmp(folder, own);
}

static void note_folder(uint64_t mount, const char *folder) {
  if (is_usual(folder) || elsewhere.count == FOLDERS) return;
  for (unsigned i = 0; i < elsewhere.count; i++)
    if (elsewhere.folder[i].mount == mount && !strcmp(elsewhere.folder[i].path, folder)) return;
  char *path = strdup(folder);
  if (!path) return;
  elsewhere.folder[elsewhere.count].mount = mount;
  elsewhere.folder[elsewhere.count++].path = path;
}

/* Notes the folder of the board, if this line of /proc/PID/maps names one. */
static void note_line(void *ctx, const char *line) {
  static const char ending[] = ".board";
  const char *path = strchr(line, '/');
  size_t n = path ? strlen(path) : 0;
  char folder[PATH_MAX];
  if (n < sizeof ending || n >= sizeof folder || strcmp(path + n - (sizeof ending - 1), ending))
    return;
  memcpy(folder, path, n + 1);
  *strrchr(folder, '/') = 0;
  if (*folder) note_folder(*(const uint64_t *)ctx, folder);
}

static void note_folders(const char *pid, uint64_t mount) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%.16s/maps", pid);
  if (mount) (void)lm_sys_each_line(path, note_line, &mount);
}

/* Forgets the folders, whose programs may have ended. */
static void forget_folders(void) {
  while (elsewhere.count) free(elsewhere.folder[--elsewhere.count].path);
}

/* Reads the processes in /proc. The first reading for a list of boards also finds the mount
 * namespaces and the folders, which the list then goes through. */
static void look_at_proc(void) {
  uint64_t own = namespace_of("self", "pid");
  const char *named = lm_sys_getenv("LOAM_CONTROL_DIR");
  int64_t now_ns = lm_sys_clock_ns();
  bool is_first = !found.readings++, may_be_elsewhere = !named || !*named,
       is_due = is_first && (!elsewhere.read_ns || now_ns - elsewhere.read_ns > MAPS_NS);
  DIR *proc = opendir("/proc");
  found.processes = 0;
  found.is_whole = proc && own == FIRST_PID_NAMESPACE;
  if (is_due) forget_folders();
  if (is_first) found.mounts = 0;
  if (is_first) note_mount("self", namespace_of("self", "mnt"));
  for (struct dirent *entry; proc && (entry = readdir(proc));) {
    if (!isdigit((unsigned char)*entry->d_name)) continue;
    uint64_t mount = is_first ? namespace_of(entry->d_name, "mnt") : 0;
    if (is_first) note_mount(entry->d_name, mount);
    note_process(entry->d_name, own);
    if (may_be_elsewhere && is_due) note_folders(entry->d_name, mount);
  }
  if (is_due) elsewhere.read_ns = now_ns;
  if (proc) closedir(proc);
}

static int find_noted(uint64_t pid_namespace, int pid) {
  for (unsigned i = 0; i < found.processes; i++)
    if (found.process[i].inner == pid && found.process[i].pid_namespace == pid_namespace)
      return found.process[i].outer;
  return 0;
}

/* lm_board_reader.find_pid. A process may have started since /proc was read, so it is read again
 * before a process counts as ended. */
static int find_pid(uint64_t pid_namespace, int pid) {
  int outer = find_noted(pid_namespace, pid);
  if (outer || !pid_namespace || !found.is_whole) return outer;
  if (found.readings == READINGS) return -1;
  look_at_proc();
  outer = find_noted(pid_namespace, pid);
  return outer || !found.is_whole ? outer : -1;
}

/* Makes `reader` look into the unusual folders of a mount namespace too. */
static void set_folders(lm_board_reader *reader, uint64_t mount, const char *folder[FOLDERS]) {
  reader->folders = folder;
  reader->folder_count = 0;
  for (unsigned i = 0; i < elsewhere.count; i++)
    if (elsewhere.folder[i].mount == mount)
      folder[reader->folder_count++] = elsewhere.folder[i].path;
}

int lm_namespaces_boards(loam_write_fn write, void *ctx) {
  const char *folder[FOLDERS];
  int error = 0;
  lm_board_reader reader = {
    .write = write, .ctx = ctx, .find_pid = find_pid, .visited = &visited, .error = &error
  };
  visited.count = 0;
  found.readings = 0;
  look_at_proc();
  set_folders(&reader, found.mount[0], folder);
  lm_board_each(&reader);
  for (unsigned i = 1; !geteuid() && i < found.mounts; i++) {
    set_folders(&reader, found.mount[i], folder);
    lm_board_each_below(&reader, found.mount_pid[i]);
  }
  return error;
}
