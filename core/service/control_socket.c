/* control_socket.c - the listening socket of a host. */
#include "service/control_socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/error.h"

enum { BACKLOG = 16 }; /* clients that may wait to be accepted */

bool lm_control_socket_is_valid(const lm_control_socket *s) {
  return s->listener.fd < 0 || (s->path[0] && s->owner > 0);
}

static loam_status fail_path(const char *path) {
  return lm_error(LOAM_EIO, "control socket: %s: %s", path, strerrordesc_np(errno));
}

loam_status lm_control_socket_folder(const char *dir) {
  struct stat st;
  if (!mkdir(dir, 0700)) {
    if (chmod(dir, 0700)) return fail_path(dir); /* the umask may have removed a bit */
  } else if (errno != EEXIST) {
    return fail_path(dir);
  }
  if (lstat(dir, &st)) return fail_path(dir);
  if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 022)
    return lm_error(LOAM_EIO, "control socket: %s: is not a directory that only user %u can write",
                    dir, (unsigned)geteuid());
  return LOAM_OK;
}

static bool is_socket(const char *path) {
  struct stat st;
  return !lstat(path, &st) && S_ISSOCK(st.st_mode);
}

static int make_socket(void) {
  return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Tells whether no process listens at the address any more. Otherwise a process with the same id in
 * another container may listen there. EAGAIN means that it has too many clients waiting. */
static bool is_stale(const struct sockaddr_un *address) {
  int fd = make_socket();
  bool stale = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) &&
               errno == ECONNREFUSED;
  if (fd >= 0) close(fd);
  return stale;
}

static loam_status bind_at(int fd, const struct sockaddr_un *address) {
  const char *path = address->sun_path;
  if (bind(fd, (const struct sockaddr *)address, sizeof *address)) {
    if (errno != EADDRINUSE) return fail_path(path);
    if (!is_socket(path)) return lm_error(LOAM_EIO, "control socket: %s: is no socket", path);
    if (!is_stale(address))
      return lm_error(LOAM_EIO, "control socket: %s: another process listens there", path);
    if (unlink(path) || bind(fd, (const struct sockaddr *)address, sizeof *address))
      return fail_path(path);
  }
  /* No client can connect before listen(), so the mode is right for all of them. */
  if (!chmod(path, 0600) && !listen(fd, BACKLOG)) return LOAM_OK;
  loam_status status = fail_path(path);
  unlink(path);
  return status;
}

loam_status lm_control_socket_open(lm_control_socket *s, const char *directory) {
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  lm_assert(s->listener.fd < 0 && *directory);
  loam_status status = lm_control_socket_folder(directory);
  if (status != LOAM_OK) return status;
  int n = snprintf(address.sun_path, sizeof address.sun_path, "%s/%d.sock", directory, getpid());
  if (n < 0 || (size_t)n >= sizeof address.sun_path)
    return lm_error(LOAM_EIO, "control socket: %s: too long for a socket", directory);
  int fd = make_socket();
  if (fd < 0) return fail_path(address.sun_path);
  status = bind_at(fd, &address);
  if (status != LOAM_OK) {
    close(fd);
    return status;
  }
  memcpy(s->path, address.sun_path, sizeof s->path);
  s->owner = getpid();
  s->listener = lm_descriptor_keep(fd);
  lm_assert(lm_control_socket_is_valid(s));
  if (s->listener.fd >= 0) return LOAM_OK;
  unlink(s->path);
  return fail_path(s->path);
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
