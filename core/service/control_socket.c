/* control_socket.c - the socket on which a host waits for requests of `loam` commands:
 * DIR/PID.sock. */
#include "service/control_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/error.h"

enum {
  BACKLOG = 16, /* clients that may wait to be accepted */
  LOCK_MS = 100 /* to wait for the lock of the folder; then the socket is made without it */
};

/* Messages about the folder begin so: it holds the boards too, also where no socket is wanted. */
#define FOLDER "folder of boards and sockets: "

bool lm_control_socket_is_valid(const lm_control_socket *s) {
  return s->listener.fd < 0 || (s->path[0] && s->owner > 0);
}

static loam_status fail_path(const char *path) {
  return lm_error(LOAM_EIO, "control socket: %s: %s", path, strerrordesc_np(errno));
}

/* Fails because a system call on the folder has failed with errno. */
static loam_status fail_folder(const char *dir) {
  return lm_error(LOAM_EIO, FOLDER "%s: %s", dir, strerrordesc_np(errno));
}

static loam_status fail_foreign(const char *dir) {
  return lm_error(LOAM_EIO, FOLDER "%s: is not a directory that only user %u can write", dir,
                  (unsigned)geteuid());
}

/* Fails because the folder is none, or is not followed because it is a symbolic link. */
static loam_status fail_no_folder(const char *dir) {
  struct stat st;
  if (lstat(dir, &st) || !S_ISLNK(st.st_mode)) return fail_foreign(dir);
  return lm_error(LOAM_EIO, FOLDER "%s: is a symbolic link; name the folder to which it leads",
                  dir);
}

/* Checks the open folder `fd`. A folder that was just made gets its mode here, because the umask
 * may clear bits of mkdir's mode. If another user has put a folder of their own in its place since,
 * that folder is refused and keeps its mode. */
static loam_status check_folder(const char *dir, int fd, bool is_new) {
  struct stat st;
  if (fstat(fd, &st)) return fail_folder(dir);
  if (st.st_uid != geteuid()) return fail_foreign(dir);
  if (is_new) return fchmod(fd, 0700) ? fail_folder(dir) : LOAM_OK;
  return st.st_mode & 022 ? fail_foreign(dir) : LOAM_OK;
}

/* Returns whether the path is a symbolic link that neither the effective user nor root has made. */
static bool is_foreign_link(const char *path) {
  struct stat st;
  return !lstat(path, &st) && S_ISLNK(st.st_mode) && st.st_uid && st.st_uid != geteuid();
}

/* Checks the names of the path but the last. A user who can make a link there could lead root to
 * any folder of root's. The kernel refuses some of these links (fs.protected_symlinks). */
static loam_status check_links(const char *dir) {
  char part[LM_CONTROL_PATH];
  for (const char *end = strchr(dir, '/'); end; end = strchr(end + 1, '/')) {
    snprintf(part, sizeof part, "%.*s", (int)(end - dir), dir);
    if (is_foreign_link(part))
      return lm_error(LOAM_EIO, FOLDER "%s: is a symbolic link of another user", part);
  }
  return LOAM_OK;
}

/* O_NOFOLLOW: a symbolic link at the last name of the path is refused. */
loam_status lm_control_socket_folder(const char *dir) {
  loam_status safe = check_links(dir);
  if (safe != LOAM_OK) return safe;
  bool is_new = !mkdir(dir, 0700);
  if (!is_new && errno != EEXIST) return fail_folder(dir);
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return errno == ENOTDIR || errno == ELOOP ? fail_no_folder(dir) : fail_folder(dir);
  loam_status status = check_folder(dir, fd, is_new);
  close(fd);
  return status;
}

static bool is_socket(const char *path) {
  struct stat st;
  return !lstat(path, &st) && S_ISSOCK(st.st_mode);
}

static int make_socket(void) {
  return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Returns whether this process listens at the other end of `fd`. It does where another copy of loam
 * is in the process, for example in a plugin that contains the static library. */
static bool is_own(int fd) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.pid == getpid();
}

/* Removes the socket at `address` if it is left over from a process that has ended. Fails if
 * another process listens there, for example a process of another container whose id is equal to
 * ours; and if it cannot be found out. The result of connect(2) tells: ECONNREFUSED means that no
 * process listens, ENOENT that the socket has been removed already, and EAGAIN that a process
 * listens, but too many clients are waiting for it. */
static loam_status remove_stale(const struct sockaddr_un *address) {
  const char *path = address->sun_path;
  int fd = make_socket();
  if (fd < 0) return fail_path(path);
  int failure = connect(fd, (const struct sockaddr *)address, sizeof *address) ? errno : 0;
  const char *who = !failure && is_own(fd) ? "another copy of loam in this process"
                                           : "another process";
  close(fd);
  if (!failure || failure == EAGAIN)
    return lm_error(LOAM_EIO, "control socket: %s: %s listens there", path, who);
  errno = failure;
  bool is_gone = failure == ENOENT || (failure == ECONNREFUSED && !unlink(path));
  return is_gone ? LOAM_OK : fail_path(path);
}

/* Binds `fd` to `address` and listens. Replaces a socket that is left over from a process that has
 * ended. Fails with LOAM_EIO if something else is at the address. */
static loam_status bind_and_listen(int fd, const struct sockaddr_un *address) {
  const char *path = address->sun_path;
  if (bind(fd, (const struct sockaddr *)address, sizeof *address)) {
    if (errno != EADDRINUSE) return fail_path(path);
    if (!is_socket(path)) return lm_error(LOAM_EIO, "control socket: %s: is no socket", path);
    loam_status status = remove_stale(address);
    if (status != LOAM_OK) return status;
    if (bind(fd, (const struct sockaddr *)address, sizeof *address)) return fail_path(path);
  }
  /* chmod comes before listen, and no client can connect before listen. So no client of another
   * user can connect. */
  if (!chmod(path, 0600) && !listen(fd, BACKLOG)) return LOAM_OK;
  loam_status status = fail_path(path);
  unlink(path);
  return status;
}

loam_status lm_control_socket_open(lm_control_socket *s, const char *dir) {
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  lm_assert(s->listener.fd < 0 && *dir);
  loam_status status = lm_control_socket_folder(dir);
  if (status != LOAM_OK) return status;
  int n = snprintf(address.sun_path, sizeof address.sun_path, "%s/%d.sock", dir, getpid());
  if (n < 0 || (size_t)n >= sizeof address.sun_path)
    return lm_error(LOAM_EIO, "control socket: %s: too long for a socket", dir);
  int fd = make_socket();
  if (fd < 0) return fail_path(address.sun_path);
  int folder = lm_control_lock(dir, LOCK_MS);
  status = bind_and_listen(fd, &address);
  lm_control_unlock(folder);
  if (status != LOAM_OK) {
    close(fd);
    return status;
  }
  memcpy(s->path, address.sun_path, sizeof s->path);
  s->owner = getpid();
  s->listener = lm_descriptor_keep(fd);
  lm_assert(lm_control_socket_is_valid(s));
  if (s->listener.fd >= 0) return LOAM_OK;
  status = fail_path(s->path); /* before unlink, which may change errno */
  unlink(s->path);
  return status;
}

void lm_control_socket_unlink(const lm_control_socket *s) {
  if (s->listener.fd >= 0 && s->owner == getpid()) unlink(s->path);
}

void lm_control_socket_close(lm_control_socket *s) {
  lm_assert(lm_control_socket_is_valid(s));
  lm_control_socket_unlink(s);
  lm_descriptor_close(&s->listener);
}

void lm_control_socket_fork_child(lm_control_socket *s) { lm_descriptor_close(&s->listener); }

bool lm_control_socket_forget_lost(lm_control_socket *s) {
  if (s->listener.fd < 0 || lm_descriptor_is_ours(&s->listener)) return false;
  lm_control_socket_unlink(s);
  s->listener = LM_DESCRIPTOR_NONE;
  return true;
}

int lm_control_socket_accept(const lm_control_socket *s) {
  return accept4(s->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}
