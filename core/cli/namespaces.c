/* namespaces.c - finds the processes of other mount and PID namespaces in /proc. */
#include "cli/namespaces.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/sys.h"
#include "service/board_read.h"

/* MOUNTS: further mount namespaces are not looked into. PROCESSES: further processes of other PID
 * namespaces are shown as `unknown`. */
enum { MOUNTS = 4096, PROCESSES = 16384 };

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
} found;

/* Returns the inode number of a namespace of a process; 0: it cannot be seen. */
static uint64_t namespace_of(const char *pid, const char *kind) {
  char path[64];
  struct stat st;
  snprintf(path, sizeof path, "/proc/%.16s/ns/%s", pid, kind);
  return stat(path, &st) ? 0 : st.st_ino;
}

static void note_mount(const char *pid) {
  uint64_t mount = namespace_of(pid, "mnt");
  if (!mount || found.mounts == MOUNTS) return;
  for (unsigned i = 0; i < found.mounts; i++)
    if (found.mount[i] == mount) return;
  found.mount_pid[found.mounts] = (int)strtol(pid, NULL, 10);
  found.mount[found.mounts++] = mount;
}

/* The last number of a line of the process's status is the id that it has in its own namespace. */
int lm_namespaces_inner_pid(int pid) {
  char path[64], text[4096];
  size_t length;
  snprintf(path, sizeof path, "/proc/%d/status", pid);
  if (lm_sys_read_file(path, text, sizeof text, &length)) return 0;
  char *line = strstr(text, "\nNSpid:");
  if (!line) return 0;
  line[1 + strcspn(line + 1, "\n")] = 0;
  const char *last = strrchr(line, '\t');
  return last ? (int)strtol(last, NULL, 10) : 0;
}

static void note_process(const char *pid, uint64_t own) {
  uint64_t pid_namespace = namespace_of(pid, "pid");
  if (!pid_namespace || pid_namespace == own || found.processes == PROCESSES) return;
  int outer = (int)strtol(pid, NULL, 10), inner = lm_namespaces_inner_pid(outer);
  if (!inner) return;
  found.process[found.processes].pid_namespace = pid_namespace;
  found.process[found.processes].inner = inner;
  found.process[found.processes++].outer = outer;
}

static void look_at_proc(void) {
  uint64_t own = namespace_of("self", "pid");
  DIR *proc = opendir("/proc");
  found.mounts = found.processes = 0;
  note_mount("self");
  for (struct dirent *entry; proc && (entry = readdir(proc));) {
    if (!isdigit((unsigned char)*entry->d_name)) continue;
    note_mount(entry->d_name);
    note_process(entry->d_name, own);
  }
  if (proc) closedir(proc);
}

/* lm_board_reader.find_pid. */
static int find_pid(uint64_t pid_namespace, int pid) {
  for (unsigned i = 0; i < found.processes; i++)
    if (found.process[i].inner == pid && found.process[i].pid_namespace == pid_namespace)
      return found.process[i].outer;
  return 0;
}

void lm_namespaces_boards(loam_write_fn write, void *ctx) {
  lm_board_reader reader = { write, ctx, find_pid };
  look_at_proc();
  lm_board_each(&reader);
  for (unsigned i = 1; !geteuid() && i < found.mounts; i++)
    lm_board_each_below(&reader, found.mount_pid[i]);
}
