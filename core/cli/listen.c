/* listen.c - opens sockets that listen, and waits for their clients. */
#include "cli/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/error.h"

enum {
  BACKLOG = 64, /* clients that may wait to be accepted */
  SOCKET_TYPE = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK
};

/* ---- TCP ---- */

/* Returns a socket that listens on one address; -1 and errno if the address cannot be used. */
static int listen_on(const struct addrinfo *at) {
  const int one = 1;
  int fd = socket(at->ai_family, SOCKET_TYPE, at->ai_protocol);
  if (fd < 0) return -1;
  if (!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) &&
      !bind(fd, at->ai_addr, at->ai_addrlen) && !listen(fd, BACKLOG))
    return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

/* Returns the port of a socket that listens; 0 if the kernel does not tell. */
static int port_of(int fd) {
  union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
  } at = { 0 };
  socklen_t size = sizeof at;
  if (getsockname(fd, &at.any, &size)) return 0;
  return ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port);
}

/* A name may have several addresses. They are tried in order, until a socket listens on one. */
loam_status lm_listen_tcp(const char *host, const char *port, int *descriptor, int *port_out) {
  struct addrinfo *found = NULL,
                  wanted = { .ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM };
  int fd = -1, failed = getaddrinfo(*host ? host : NULL, port, &wanted, &found);
  if (failed)
    return lm_error(LOAM_EIO, "cannot listen on %s:%s: %s", host, port, gai_strerror(failed));
  for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next) fd = listen_on(at);
  int error = errno;
  freeaddrinfo(found);
  if (fd < 0) return lm_error(LOAM_EIO, "cannot listen on %s:%s: %s", host, port, strerror(error));
  *port_out = port_of(fd);
  *descriptor = fd;
  return LOAM_OK;
}

/* ---- Unix sockets ---- */

static loam_status fail_unix(const char *path, const char *why) {
  return lm_error(LOAM_EIO, "cannot listen on %s: %s", path, why);
}

/* Tries to connect to a socket file. Returns 0, or an errno value: ECONNREFUSED means that no
 * program listens there. */
static int try_to_connect(const struct sockaddr_un *at) {
  int fd = socket(AF_UNIX, SOCKET_TYPE, 0);
  if (fd < 0) return errno;
  int error = connect(fd, (const struct sockaddr *)at, sizeof *at) ? errno : 0;
  close(fd);
  return error;
}

/* Fails because a socket file is there to which a connection has failed with `error`, or has not
 * failed. EAGAIN means that too many clients are waiting for the program that listens. */
static loam_status fail_used(const char *path, int error) {
  if (!error || error == EAGAIN) return fail_unix(path, "another program listens there");
  return lm_error(LOAM_EIO, "cannot listen on %s: a socket is there that may be in use: %s", path,
                  strerror(error));
}

/* Removes what an earlier program left at the path, if it is a socket on which no program listens,
 * and `may_replace` is true. Other files stay, and the error words name the obstacle. */
static loam_status remove_abandoned(const struct sockaddr_un *at, bool may_replace) {
  struct stat st;
  const char *path = at->sun_path;
  if (lstat(path, &st)) return fail_unix(path, strerror(errno));
  if (!S_ISSOCK(st.st_mode)) return fail_unix(path, "it exists and is no socket");
  int error = try_to_connect(at);
  if (error != ECONNREFUSED) return fail_used(path, error);
  if (!may_replace)
    return fail_unix(path, "an abandoned socket is there, and another program keeps its folder "
                           "locked; remove the socket");
  return unlink(path) ? fail_unix(path, strerror(errno)) : LOAM_OK;
}

/* The time to wait for the lock of a folder: half a second. */
enum { LOCK_TRIES = 50, LOCK_NAP_US = 10000 };

/* Locks the folder of a socket file, so that of several programs that find one abandoned file, one
 * replaces it and the others find that this program listens. The lock is on the folder itself, and
 * leaves no file behind. Sets *folder to a descriptor that the caller closes, or to -1 if the
 * folder cannot be opened. Returns whether an abandoned file may be replaced: false if another
 * program has held the lock for half a second, but true if this folder cannot be locked at all. */
static bool lock_folder(const char *path, int *folder) {
  char name[sizeof((struct sockaddr_un *)0)->sun_path];
  const char *slash = strrchr(path, '/');
  size_t length = slash ? (size_t)(slash - path) + (slash == path) : 1;
  memcpy(name, slash ? path : ".", length);
  name[length] = 0;
  *folder = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int i = 0; *folder >= 0 && i < LOCK_TRIES; i++) {
    if (!flock(*folder, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK) return true;
    usleep(LOCK_NAP_US);
  }
  return *folder < 0;
}

/* Binds a socket to a path, and replaces an abandoned socket there if that is allowed. */
static loam_status bind_unix(int fd, const struct sockaddr_un *at, bool may_replace) {
  const struct sockaddr *any = (const struct sockaddr *)at;
  if (!bind(fd, any, sizeof *at)) return LOAM_OK;
  if (errno != EADDRINUSE) return fail_unix(at->sun_path, strerror(errno));
  loam_status status = remove_abandoned(at, may_replace);
  if (status != LOAM_OK) return status;
  return bind(fd, any, sizeof *at) ? fail_unix(at->sun_path, strerror(errno)) : LOAM_OK;
}

/* Binds a socket to a path, and listens. Between bind and listen a socket looks abandoned, so both
 * are done under the lock. Any user may lock a folder such as /tmp for ever. Then a socket is made
 * without the lock, but none is replaced. */
static loam_status listen_unix(int fd, const struct sockaddr_un *at) {
  int folder;
  bool may_replace = lock_folder(at->sun_path, &folder);
  loam_status status = bind_unix(fd, at, may_replace);
  if (status == LOAM_OK && listen(fd, BACKLOG)) status = fail_unix(at->sun_path, strerror(errno));
  if (folder >= 0) close(folder);
  return status;
}

loam_status lm_listen_unix(const char *path, int *descriptor) {
  struct sockaddr_un at = { .sun_family = AF_UNIX };
  if (strlen(path) >= sizeof at.sun_path)
    return lm_error(LOAM_EINVAL,
                    "cannot listen on %s: the path has %zu bytes; at most %zu are "
                    "possible",
                    path, strlen(path), sizeof at.sun_path - 1);
  memcpy(at.sun_path, path, strlen(path) + 1);
  int fd = socket(AF_UNIX, SOCKET_TYPE, 0);
  if (fd < 0) return fail_unix(path, strerror(errno));
  loam_status status = listen_unix(fd, &at);
  if (status != LOAM_OK) close(fd);
  else *descriptor = fd;
  return status;
}

/* ---- Waiting ---- */

void lm_listen_ending_signals(sigset_t *set) {
  struct sigaction hangup;
  sigemptyset(set);
  sigaddset(set, SIGINT);
  sigaddset(set, SIGTERM);
  if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN) sigaddset(set, SIGHUP);
}

/* Returns a descriptor from which these signals are read. It stays open until the process ends. */
static int signals(void) {
  static int fd = -1;
  sigset_t set;
  if (fd >= 0) return fd;
  lm_listen_ending_signals(&set);
  fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd >= 0) sigprocmask(SIG_BLOCK, &set, NULL); /* else they end the process, as usual */
  return fd;
}

bool lm_listen_wait(int descriptor, int ms) {
  struct signalfd_siginfo info;
  struct pollfd at[] = { { .fd = signals(), .events = POLLIN },
                         { .fd = descriptor, .events = POLLIN } };
  (void)poll(at, LM_COUNT(at), ms);
  return read(at[0].fd, &info, sizeof info) == sizeof info;
}
