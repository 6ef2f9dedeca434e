/* control_client.c - the client's side of the control socket. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/error.h"
#include "os/sys.h"
#include "os/thread.h"
#include "service/control.h"
#include "service/policy.h"

enum { JOIN_MS = 1000, RETRY_MS = 5 };

static bool is_own_directory(const char *path) {
  struct stat st;
  return !stat(path, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

loam_status lm_control_dir(const char *dir, char *buffer, size_t size) {
  int n;
  char full[PATH_MAX];
  const char *runtime = lm_sys_getenv("XDG_RUNTIME_DIR");
  if (!dir || !*dir) dir = lm_sys_getenv("LOAM_CONTROL_DIR");
  if (dir && *dir) /* absolute: a host may change its directory */
    n = snprintf(buffer, size, "%s", lm_policy_file_absolute(dir, full, sizeof full));
  else if (runtime && *runtime == '/' && is_own_directory(runtime))
    n = snprintf(buffer, size, "%s/loam", runtime);
  else n = snprintf(buffer, size, "/tmp/loam-%u", (unsigned)geteuid());
  if (n < 0 || (size_t)n >= size)
    return lm_error(LOAM_EIO, "the directory of control sockets has %d bytes, at most %zu fit", n,
                    size - 1);
  return LOAM_OK;
}

static loam_status address_in(const char *dir, int pid, struct sockaddr_un *out) {
  *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
  int n = snprintf(out->sun_path, sizeof out->sun_path, "%s/%d.sock", dir, pid);
  if (n < 0 || (size_t)n >= sizeof out->sun_path)
    return lm_error(LOAM_EIO, "%s: too long for a socket", dir);
  return LOAM_OK;
}

static loam_status address_of(int pid, struct sockaddr_un *out) {
  char dir[LM_CONTROL_PATH];
  loam_status status = lm_control_dir(NULL, dir, sizeof dir);
  return status == LOAM_OK ? address_in(dir, pid, out) : status;
}

static loam_status fail_connect(int pid, const char *path) {
  if (errno == ENOENT || errno == ECONNREFUSED)
    return lm_error(LOAM_EIO, "process %d is no loam host of this user: nothing listens at %s", pid,
                    path);
  return lm_error(LOAM_EIO, "%s: %s", path, strerrordesc_np(errno));
}

/* A directory that others could write to might hold somebody else's socket. */
static bool is_ours(int fd) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == geteuid();
}

/* ---- one exchange ---- */

typedef struct exchange {
  int fd, pid;
  unsigned timeout_ms;
  int64_t deadline_ns;
} exchange;

static loam_status fail_slow(const exchange *e) {
  return lm_error(LOAM_EIO, "host %d did not answer within %u ms", e->pid, e->timeout_ms);
}

/* A host that has many clients waiting is tried again: such a socket cannot be waited for. */
static loam_status join(const exchange *e, const struct sockaddr_un *address) {
  while (connect(e->fd, (const struct sockaddr *)address, sizeof *address)) {
    if (errno != EAGAIN && errno != EINTR) return fail_connect(e->pid, address->sun_path);
    if (lm_sys_clock_ns() > e->deadline_ns) return fail_slow(e);
    poll(NULL, 0, RETRY_MS);
  }
  if (is_ours(e->fd)) return LOAM_OK;
  return lm_error(LOAM_EIO, "%s: belongs to another user", address->sun_path);
}

static loam_status dial(exchange *e) {
  struct sockaddr_un address;
  loam_status status = address_of(e->pid, &address);
  if (status != LOAM_OK) return status;
  e->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (e->fd < 0) return lm_error(LOAM_EIO, "a socket: %s", strerrordesc_np(errno));
  status = join(e, &address);
  if (status != LOAM_OK) close(e->fd);
  return status;
}

static loam_status wait_for(const exchange *e, short events) {
  struct pollfd p = { .fd = e->fd, .events = events };
  for (;;) {
    int64_t left = (e->deadline_ns - lm_sys_clock_ns() + 999999) / 1000000;
    int n = left > 0 ? poll(&p, 1, (int)left) : 0;
    if (n > 0) return LOAM_OK;
    if (n < 0 && errno == EINTR) continue;
    return fail_slow(e);
  }
}

static loam_status fail_broken(const exchange *e) {
  return lm_error(LOAM_EIO, "host %d broke off: %s", e->pid, strerrordesc_np(errno));
}

static loam_status send_all(const exchange *e, const char *text, size_t length) {
  while (length) {
    ssize_t n = send(e->fd, text, length, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return fail_broken(e);
    if (n < 0) {
      loam_status status = wait_for(e, POLLOUT);
      if (status != LOAM_OK) return status;
      continue;
    }
    text += n;
    length -= (size_t)n;
  }
  return LOAM_OK;
}

/* Some of the answer. A descriptor that comes with it goes to *given, or is closed. */
static ssize_t receive(int from, char *buffer, size_t size, int *given) {
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec part = { buffer, size };
  struct msghdr message = {
    .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
  };
  ssize_t n = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
  const struct cmsghdr *head = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
  if (!head || head->cmsg_type != SCM_RIGHTS) return n;
  int fd;
  memcpy(&fd, CMSG_DATA(head), sizeof fd);
  if (given && *given < 0) *given = fd;
  else close(fd);
  return n;
}

static loam_status receive_all(const exchange *e, loam_write_fn write, void *ctx, int *given) {
  char buffer[4096];
  bool is_empty = true;
  for (;;) {
    ssize_t n = receive(e->fd, buffer, sizeof buffer, given);
    if (n == 0 && is_empty) return lm_error(LOAM_EIO, "host %d gave no answer", e->pid);
    if (n == 0) return LOAM_OK;
    if (n > 0) {
      is_empty = false;
      if (write) write(ctx, buffer, (size_t)n);
    } else if (errno == EAGAIN || errno == EINTR) {
      loam_status status = wait_for(e, POLLIN);
      if (status != LOAM_OK) return status;
    } else {
      return fail_broken(e);
    }
  }
}

static loam_status ask(int pid, const char *request, unsigned timeout_ms, loam_write_fn write,
                       void *ctx, int *given) {
  if (strchr(request, '\n')) return lm_error(LOAM_EINVAL, "a request is one line");
  if (strlen(request) >= LM_CONTROL_LINE)
    return lm_error(LOAM_EINVAL, "a request of %zu bytes: at most %d are possible", strlen(request),
                    LM_CONTROL_LINE - 1);
  exchange e = { .pid = pid,
                 .timeout_ms = timeout_ms,
                 .deadline_ns = lm_sys_clock_ns() + (int64_t)timeout_ms * 1000000 };
  loam_status status = dial(&e);
  if (status != LOAM_OK) return status;
  status = send_all(&e, request, strlen(request));
  if (status == LOAM_OK) status = send_all(&e, "\n", 1);
  if (status == LOAM_OK) status = receive_all(&e, write, ctx, given);
  close(e.fd);
  return status;
}

loam_status lm_control_ask(int pid, const char *request, unsigned timeout_ms, loam_write_fn write,
                           void *ctx) {
  return ask(pid, request, timeout_ms, write, ctx, NULL);
}

typedef struct room {
  char *text;
  size_t size, length;
} room;

static void add(void *ctx, const char *text, size_t length) {
  room *r = ctx;
  size_t left = r->size - 1 - r->length;
  if (length > left) length = left;
  memcpy(r->text + r->length, text, length);
  r->length += length;
}

loam_status lm_control_fetch(int pid, const char *request, unsigned timeout_ms, char *answer,
                             size_t size, int *fd) {
  int given = -1;
  room r = { .text = answer, .size = size };
  loam_status status = ask(pid, request, timeout_ms, add, &r, &given);
  answer[r.length] = 0;
  if (status != LOAM_OK && given >= 0) close(given);
  if (status == LOAM_OK) *fd = given;
  return status;
}

const char *lm_control_error_words(char *answer) {
  static const char before[] = "\"error\":\"";
  char *words = strstr(answer, before);
  if (!words) return NULL;
  words += sizeof before - 1;
  words[strcspn(words, "\"")] = 0;
  return words;
}

/* ---- all hosts ---- */

/* One that is in the midst of a load, or stopped, is a host too: it takes calls. */
static bool is_host(int pid) {
  exchange e = { .pid = pid,
                 .timeout_ms = JOIN_MS,
                 .deadline_ns = lm_sys_clock_ns() + (int64_t)JOIN_MS * 1000000 };
  if (dial(&e) != LOAM_OK) return false;
  close(e.fd);
  return true;
}

/* A socket whose process has gone stays behind. Files of other kinds are not ours. */
static void remove_stale(const char *dir, int pid) {
  struct sockaddr_un address;
  struct stat st;
  if (address_in(dir, pid, &address) != LOAM_OK) return;
  if (lstat(address.sun_path, &st) || !S_ISSOCK(st.st_mode)) return;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  if (connect(fd, (struct sockaddr *)&address, sizeof address) && errno == ECONNREFUSED)
    unlink(address.sun_path);
  close(fd);
}

/* The number in "N.sock", 0 for any other name. */
static int pid_of(const char *name) {
  int pid = 0, end = 0;
  sscanf(name, "%9d.sock%n", &pid, &end);
  return end && !name[end] && pid > 0 ? pid : 0;
}

loam_status lm_control_hosts(loam_pid_fn callback, void *ctx) {
  char path[LM_CONTROL_PATH];
  loam_status status = lm_control_dir(NULL, path, sizeof path);
  if (status != LOAM_OK) return status;
  DIR *dir = opendir(path);
  if (!dir && errno == ENOENT) return LOAM_OK; /* there never was a host */
  if (!dir) return lm_error(LOAM_EIO, "%s: %s", path, strerrordesc_np(errno));
  for (struct dirent *entry; (entry = readdir(dir));) {
    int pid = pid_of(entry->d_name);
    if (!pid) continue;
    if (is_host(pid)) callback(ctx, pid);
    else remove_stale(path, pid);
  }
  closedir(dir);
  return LOAM_OK;
}

/* One that lives in another container is gone only as far as we see: remove_stale knows. */
void lm_control_clean(const char *path) {
  lm_thread *self = lm_thread_inside_begin();
  DIR *dir = opendir(path);
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    int pid = pid_of(entry->d_name);
    if (pid && kill(pid, 0) && errno == ESRCH) remove_stale(path, pid);
  }
  if (dir) closedir(dir);
  lm_thread_inside_end(self);
}
