/* control_client.c - asks a host over its control socket. */
#include "service/control_client.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/error.h"
#include "os/sys.h"
#include "os/text.h"
#include "os/thread.h"
#include "script/policy_file.h"

enum {
  JOIN_MS = 1000, /* lm_control_hosts waits that long for a connection to each host */
  RETRY_MS = 5,   /* between two attempts to connect to a host with too many waiting clients */
  LOCK_NAP_NS = 1000000, /* between two attempts to lock the folder of sockets */
};

/* Tells whether the path is a directory of the effective user. */
static bool is_own_directory(const char *path) {
  struct stat st;
  return !stat(path, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

loam_status lm_control_dir(const char *dir, char *buffer, size_t size) {
  size_t n;
  char full[PATH_MAX], number[LM_TEXT_NUMBER];
  const char *runtime = lm_sys_getenv("XDG_RUNTIME_DIR");
  if (!dir || !*dir) dir = lm_sys_getenv("LOAM_CONTROL_DIR");
  if (dir && *dir) /* made absolute, because a host may change its working directory */
    n = lm_text_put(buffer, size, lm_policy_file_absolute(dir, full, sizeof full), NULL);
  else if (runtime && *runtime == '/' && is_own_directory(runtime))
    n = lm_text_put(buffer, size, runtime, "/loam", NULL);
  else n = lm_text_put(buffer, size, "/tmp/loam-", lm_text_number(number, geteuid()), NULL);
  if (n >= size)
    return lm_error(LOAM_EIO, "the directory of control sockets has %zu bytes, at most %zu fit", n,
                    size - 1);
  return LOAM_OK;
}

/* The address of a process's socket in a directory. */
static loam_status address_in(const char *dir, int pid, struct sockaddr_un *out) {
  lm_assert(*dir);
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
    return lm_error(LOAM_EIO, "process %d cannot be asked by this user: nothing listens at %s", pid,
                    path);
  return lm_error(LOAM_EIO, "%s: %s", path, strerrordesc_np(errno));
}

bool lm_control_is_same_user(int fd) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  lm_assert(fd >= 0);
  return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == geteuid();
}

/* ---- one exchange ---- */

/* One request and its answer. */
typedef struct exchange {
  int fd; /* the socket; -1 before dial() */
  int pid;
  unsigned timeout_ms;
  int64_t deadline_ns; /* timeout_ms after the beginning */
} exchange;

static exchange begin(int pid, unsigned timeout_ms) {
  return (exchange){ .fd = -1,
                     .pid = pid,
                     .timeout_ms = timeout_ms,
                     .deadline_ns = lm_sys_clock_ns() + (int64_t)timeout_ms * 1000000 };
}

static loam_status fail_slow(const exchange *e) {
  return lm_error(LOAM_EIO, "host %d did not answer within %u ms", e->pid, e->timeout_ms);
}

/* Connects. A host with too many waiting clients is tried again after a pause, because poll(2)
 * cannot wait for such a socket. Another user's socket is refused: the directory may be one that
 * other users can write. */
static loam_status join(const exchange *e, const struct sockaddr_un *address) {
  while (connect(e->fd, (const struct sockaddr *)address, sizeof *address)) {
    if (errno != EAGAIN && errno != EINTR) return fail_connect(e->pid, address->sun_path);
    if (lm_sys_clock_ns() > e->deadline_ns) return fail_slow(e);
    poll(NULL, 0, RETRY_MS);
  }
  if (lm_control_is_same_user(e->fd)) return LOAM_OK;
  return lm_error(LOAM_EIO, "%s: belongs to another user", address->sun_path);
}

/* Opens the socket e->fd and connects it to the host. */
static loam_status dial(exchange *e) {
  lm_assert(e->fd < 0);
  struct sockaddr_un address;
  loam_status status = address_of(e->pid, &address);
  if (status != LOAM_OK) return status;
  e->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (e->fd < 0) return lm_error(LOAM_EIO, "no socket: %s", strerrordesc_np(errno));
  status = join(e, &address);
  if (status != LOAM_OK) close(e->fd);
  return status;
}

/* Waits until the socket is ready, up to the deadline. */
static loam_status wait_for(const exchange *e, short events) {
  lm_assert(e->fd >= 0);
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

/* Receives a part of the answer. A descriptor that comes with it is stored in *passed if `passed`
 * is not NULL and has none yet; else it is closed. */
static ssize_t receive(int from, char *buffer, size_t size, int *passed) {
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec part = { buffer, size };
  struct msghdr message = {
    .msg_iov = &part,
    .msg_iovlen = 1,
    .msg_control = &control,
    /* Room for one descriptor: CMSG_SPACE is larger, and a second descriptor would stay open. */
    .msg_controllen = CMSG_LEN(sizeof(int)),
  };
  ssize_t n = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
  const struct cmsghdr *head = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
  if (!head || head->cmsg_type != SCM_RIGHTS) return n;
  int fd;
  memcpy(&fd, CMSG_DATA(head), sizeof fd);
  lm_assert(fd >= 0);
  if (passed && *passed < 0) *passed = fd;
  else close(fd);
  return n;
}

static loam_status receive_all(const exchange *e, loam_write_fn write, void *ctx, int *passed) {
  char buffer[4096];
  bool is_empty = true;
  for (;;) {
    ssize_t n = receive(e->fd, buffer, sizeof buffer, passed);
    if (n == 0 && is_empty) return lm_error(LOAM_EIO, "host %d gave no answer", e->pid);
    if (n == 0) return LOAM_OK;
    if (lm_sys_clock_ns() > e->deadline_ns) return fail_slow(e);
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

static loam_status check_line(const char *line) {
  if (strchr(line, '\n')) return lm_error(LOAM_EINVAL, "a request is one line");
  if (strlen(line) >= LM_CONTROL_LINE)
    return lm_error(LOAM_EINVAL, "a request of %zu bytes: at most %d are possible", strlen(line),
                    LM_CONTROL_LINE - 1);
  return LOAM_OK;
}

/* Sends the request and receives the answer; `passed` as for receive(). */
static loam_status talk(const lm_control_request *request, loam_write_fn write, void *ctx,
                        int *passed) {
  exchange e = begin(request->pid, request->timeout_ms);
  loam_status status = dial(&e);
  if (status != LOAM_OK) return status;
  status = send_all(&e, request->line, strlen(request->line));
  if (status == LOAM_OK) status = send_all(&e, "\n", 1);
  if (status == LOAM_OK) status = receive_all(&e, write, ctx, passed);
  close(e.fd);
  return status;
}

/* Checks the request, and then works like `talk`. A thread that is cancelled completes it first:
 * otherwise the descriptors would stay open. */
static loam_status ask(const lm_control_request *request, loam_write_fn write, void *ctx,
                       int *passed) {
  loam_status status = check_line(request->line);
  if (status != LOAM_OK) return status;
  lm_sys_cancel_off();
  status = talk(request, write, ctx, passed);
  lm_sys_cancel_restore();
  return status;
}

loam_status lm_control_ask(const lm_control_request *request, loam_write_fn write, void *ctx) {
  lm_assert(request->line && write);
  return ask(request, write, ctx, NULL);
}

/* A buffer for an answer, cut off where the buffer ends.
 * Law: length < size. */
typedef struct room {
  char *text;
  size_t size, length;
} room;

LM_INLINE bool room_is_valid(const room *r) { return r->length < r->size; }

/* A loam_write_fn that appends to a room. */
static void add(void *ctx, const char *text, size_t length) {
  room *r = ctx;
  lm_assert(room_is_valid(r));
  size_t left = r->size - 1 - r->length;
  if (length > left) length = left;
  memcpy(r->text + r->length, text, length);
  r->length += length;
  lm_assert(room_is_valid(r));
}

loam_status lm_control_fetch(const lm_control_request *request, char *answer, size_t size,
                             int *fd) {
  int passed = -1;
  room r = { .text = answer, .size = size };
  lm_assert(request->line && size > 0);
  loam_status status = ask(request, add, &r, &passed);
  answer[r.length] = 0;
  if (status != LOAM_OK && passed >= 0) close(passed);
  if (status == LOAM_OK) *fd = passed;
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

/* Tells whether a host listens at the socket of this process id. A host that loads a policy, or
 * that is stopped, counts as well: the kernel accepts connections for it. */
static bool is_host(int pid) {
  exchange e = begin(pid, JOIN_MS);
  if (dial(&e) != LOAM_OK) return false;
  close(e.fd);
  return true;
}

int lm_control_lock(const char *dir, int wait_ms) {
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -1;
  for (int64_t end_ns = lm_sys_clock_ns() + wait_ms * 1000000ll; flock(fd, LOCK_EX | LOCK_NB);) {
    if (errno != EINTR && (errno != EWOULDBLOCK || lm_sys_clock_ns() >= end_ns)) {
      close(fd);
      return -1;
    }
    lm_sys_sleep(LOCK_NAP_NS);
  }
  return fd;
}

void lm_control_unlock(int folder) {
  if (folder < 0) return;
  (void)flock(folder, LOCK_UN); /* a child that was just forked may have a copy */
  close(folder);
}

static void remove_stale_locked(const struct sockaddr_un *address) {
  struct stat st;
  if (lstat(address->sun_path, &st) || !S_ISSOCK(st.st_mode)) return;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  if (connect(fd, (const struct sockaddr *)address, sizeof *address) && errno == ECONNREFUSED)
    unlink(address->sun_path);
  close(fd);
}

/* Removes the socket of a process that is gone. A file of another kind is left alone. So is every
 * socket while a host makes one: a socket to which nothing listens yet looks like a stale one. */
static void remove_stale(const char *dir, int pid) {
  lm_assert(pid > 0);
  struct sockaddr_un address;
  if (address_in(dir, pid, &address) != LOAM_OK) return;
  int folder = lm_control_lock(dir, 0);
  if (folder >= 0) remove_stale_locked(&address);
  lm_control_unlock(folder);
}

/* The number N in the name "N.sock"; 0 for any other name. */
static int pid_of(const char *name) {
  int pid = 0, end = 0;
  sscanf(name, "%9d.sock%n", &pid, &end);
  return end && !name[end] && pid > 0 ? pid : 0;
}

/* Calls `callback` for each host whose socket is in the folder `path`. Removes stale sockets. */
static loam_status list_hosts(const char *path, loam_pid_fn callback, void *ctx) {
  DIR *dir = opendir(path);
  if (!dir && errno == ENOENT) return LOAM_OK; /* no host was started yet */
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

/* A thread that is cancelled completes the list first: otherwise it could keep the lock of the
 * folder (lm_control_lock) as long as the process lives. */
loam_status lm_control_hosts(loam_pid_fn callback, void *ctx) {
  char path[LM_CONTROL_PATH];
  loam_status status = lm_control_dir(NULL, path, sizeof path);
  if (status != LOAM_OK) return status;
  lm_sys_cancel_off();
  status = list_hosts(path, callback, ctx);
  lm_sys_cancel_restore();
  return status;
}

/* kill(2) cannot see a process in another container, so remove_stale also checks whether a process
 * listens at the socket. The thread counts as inside loam, because opendir allocates memory. */
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
