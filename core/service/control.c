/* control.c - the service thread of a host.
 *
 * One poll(2) waits for everything: clients, the policy file, and requests of other threads. The
 * service thread itself loads a policy, for a changed file as well as for a `reload`; its clients
 * wait during the load. A client has a few seconds to send its line and to take its answer.
 *
 * Descriptors are opened and closed under `lock`, so that a forked child, in which the thread is
 * gone, knows which ones to close. The host may close them or put its own in their place
 * (descriptor.h). So each one is checked before its use, and a lost one is opened again during an
 * allocation of the host's own thread. A private table of descriptors is no way out: the service
 * thread calls code of the host and of drivers (events, handlers, devices), which use the host's
 * table; and a second thread with a private table would make the start of a program a
 * tenth longer. */
#include "service/control.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "heap/pool.h"
#include "os/decay.h"
#include "os/descriptor.h"
#include "os/error.h"
#include "os/sys.h"
#include "service/chores.h"
#include "service/control_reply.h"
#include "service/control_socket.h"
#include "service/policy.h"
#include "service/watch.h"

enum {
  CLIENTS = 16,
  CLIENT_MS = 5000,    /* a client that makes no progress for that long is hung up */
  ASLEEP_MS = 100,     /* the service stays asleep for that long, or */
  ASLEEP_CALLS = 512,  /* for that many slow requests; a child that calls exec makes a tenth */
  LOST_POLL_MS = 50,   /* while a descriptor is lost, the thread looks that often for a new one */
  LOST_LATE_MS = 1000, /* a lost descriptor is opened by the thread itself after that time */
  COUNT_MS = 100,      /* how often threads are counted after the main thread has ended */
};

/* The thread sanitizer aborts a child whose thread takes the place of a thread of its parent. */
#ifdef __SANITIZE_THREAD__
enum { CAN_REVIVE = false };
#else
enum { CAN_REVIVE = true };
#endif

/* A client of the control socket.
 * Law: length <= LM_CONTROL_LINE, and sent <= answer.length. Unless is_connected, the answer is
 *      empty and the descriptors have no meaning. */
typedef struct client {
  bool is_connected;
  lm_descriptor socket;
  int64_t deadline_ns;
  size_t length;        /* of the part of the request's line that came so far */
  lm_json answer;       /* empty until the line is complete */
  size_t sent;          /* bytes of the answer */
  lm_descriptor passed; /* is sent with the answer's first byte; or none */
} client;

_Atomic bool lm_control_asleep; /* sequentially consistent, but for the relaxed load in control.h */
/* The main thread has ended by pthread_exit, so the process ends with its last thread. Set by the
 * main thread before it wakes the service thread. Sequentially consistent. */
static _Atomic bool is_main_ended;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* taken before wakeup_lock */
/* Law, under the lock: unless is_running, both ends of `wakeup` and the listener of
 * `control_socket` are none and has_lost is false. `incoming` is NULL unless has_incoming. */
static bool is_running, is_stopping, wants_socket;
static bool is_detached; /* no other thread joins the service thread */
/* This process is a forked child. Such children often end by _exit and leave sockets behind. */
static bool is_forked;
static bool has_lost; /* descriptors are lost, and were not opened again yet */
static pthread_t thread;
/* A leaf lock, because any thread that frees memory may wake the service. Guards `wakeup`. */
static lm_lock wakeup_lock;
/* A pair of sockets: a byte written to wakeup[1] wakes the service thread, which
 * reads wakeup[0]. */
static lm_descriptor wakeup[2] = { { .fd = -1 }, { .fd = -1 } };
static lm_control_socket control_socket = { .listener = { .fd = -1 } };
static char directory[LM_CONTROL_PATH];
static LM_SPARSE char followed[PATH_MAX]; /* the followed policy file; "" none */
static lm_watch *incoming;                /* replaces `watch` as soon as the thread takes it */
static bool has_incoming;

/* Since when the service is asleep, and how many requests came since then. */
static _Atomic int64_t asleep_since_ns;
static _Atomic uint32_t asleep_calls;

static _Thread_local bool is_service __attribute__((tls_model("initial-exec")));

/* The service thread's own. `lock` is held where a client's descriptors change. */
static lm_watch *watch;
static client clients[CLIENTS];
static LM_SPARSE char lines[CLIENTS][LM_CONTROL_LINE];

/* Takes `lock`. The thread counts as inside loam, so that nothing it does here makes a new site,
 * which could want the lock again. */
static void enter(void) {
  (void)lm_thread_inside_begin();
  pthread_mutex_lock(&lock);
}

static void leave(void) {
  pthread_mutex_unlock(&lock);
  lm_thread_inside_end(lm_thread_self);
}

/* Wakes the service thread. False: that is not possible, because there is no thread or the host has
 * closed a socket of the pair. Keeps errno. */
static bool wake_service(void) {
  int before = errno;
  lm_lock_take(&wakeup_lock);
  lm_sys_cancel_off();
  bool is_open = lm_descriptor_is_ours(&wakeup[1]);
  /* If the socket's buffer is full, the thread wakes as well. */
  if (is_open) (void)send(wakeup[1].fd, "", 1, MSG_NOSIGNAL);
  lm_sys_cancel_restore();
  lm_lock_drop(&wakeup_lock);
  errno = before;
  return is_open;
}

/* If the host has closed a socket of the pair, the closing has woken the thread. */
static void wake_for_decay(void) { (void)wake_service(); }

/* The pair are sockets, because writing to a pipe whose other end the host has closed would kill
 * the process by SIGPIPE. Returns 0 or an errno. */
static int open_wakeup_locked(void) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends)) return errno;
  lm_lock_take(&wakeup_lock);
  for (int i = 0; i < 2; i++) wakeup[i] = lm_descriptor_keep(ends[i]);
  lm_lock_drop(&wakeup_lock);
  return 0;
}

static void close_wakeup_locked(void) {
  lm_lock_take(&wakeup_lock);
  for (int i = 0; i < 2; i++) lm_descriptor_close(&wakeup[i]);
  lm_lock_drop(&wakeup_lock);
}

/* A host that ends without loam_stop leaves no socket behind, unless a signal kills it. */
__attribute__((destructor)) static void remove_socket(void) {
  lm_control_socket_unlink(&control_socket);
}

/* ---- clients ---- */

LM_INLINE bool is_client_valid(const client *c) {
  if (!c->is_connected) return !c->answer.length;
  return c->length <= LM_CONTROL_LINE && c->sent <= c->answer.length;
}

/* Gives the client CLIENT_MS more. */
static void delay_deadline(client *c) {
  c->deadline_ns = lm_sys_clock_ns() + (int64_t)CLIENT_MS * 1000000;
}

/* Ends the connection to a client. */
static void hang_up(client *c) {
  lm_assert(is_service && c->is_connected);
  enter();
  lm_descriptor_close(&c->socket);
  lm_descriptor_close(&c->passed);
  c->is_connected = false;
  leave();
  lm_json_finish(&c->answer);
  c->length = c->sent = 0;
}

/* A client that is not connected; NULL: there are CLIENTS of them. */
static client *free_client(void) {
  for (int i = 0; i < CLIENTS; i++)
    if (!clients[i].is_connected) return &clients[i];
  return NULL;
}

/* Accepts a client. One that comes too many, or is another user's, is closed. */
static void accept_client(void) {
  lm_assert(is_service);
  client *c = free_client();
  enter();
  int fd = lm_control_socket_accept(&control_socket);
  int error = fd < 0 ? errno : 0;
  if (fd >= 0 && c && lm_control_is_same_user(fd)) {
    lm_assert(is_client_valid(c) && !c->length);
    c->socket = lm_descriptor_keep(fd);
    c->passed = LM_DESCRIPTOR_NONE;
    c->is_connected = c->socket.fd >= 0;
    delay_deadline(c);
  } else if (fd >= 0) {
    close(fd);
  }
  leave();
  /* With no descriptor left, the listener stays readable: wait, so that the thread does
   * not spin. */
  if (error == EMFILE || error == ENFILE) poll(NULL, 0, 50);
}

/* Sends bytes, with a descriptor unless `passed` is -1. */
static ssize_t send_with(int to, struct iovec *part, int passed) {
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof passed)];
  } control = { .head = { .cmsg_len = CMSG_LEN(sizeof passed),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS } };
  struct msghdr message = { .msg_iov = part, .msg_iovlen = 1 };
  memcpy(CMSG_DATA(&control.head), &passed, sizeof passed);
  if (passed >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
  }
  return sendmsg(to, &message, MSG_NOSIGNAL);
}

/* Sends as much of the answer as the socket takes; hangs up after the last byte. */
static void send_answer(client *c) {
  lm_assert(is_client_valid(c) && c->sent < c->answer.length);
  bool has_passed = lm_descriptor_is_ours(&c->passed);
  struct iovec part = { c->answer.text + c->sent, c->answer.length - c->sent };
  ssize_t n = send_with(c->socket.fd, &part, has_passed ? c->passed.fd : -1);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) {
    c->sent += (size_t)n;
    lm_descriptor_close(&c->passed);
    delay_deadline(c);
  }
  if (n < 0 || c->sent == c->answer.length) hang_up(c);
}

static char *line_of(const client *c) { return lines[c - clients]; }

/* Answers the client's line, which ends at `end`. */
static void answer_line(client *c, char *end) {
  lm_assert(end >= line_of(c) && end < line_of(c) + LM_CONTROL_LINE);
  *end = 0;
  if (end > line_of(c) && end[-1] == '\r') end[-1] = 0;
  int passed = -1;
  lm_control_reply(line_of(c), lm_control_watch, &c->answer, &passed);
  enter();
  c->passed = lm_descriptor_keep(passed);
  leave();
  delay_deadline(c);
  if (c->answer.failed || !c->answer.length) hang_up(c);
  else send_answer(c);
}

/* Receives more of the client's line, and answers when the line is complete. */
static void receive_line(client *c) {
  lm_assert(is_client_valid(c) && c->length < LM_CONTROL_LINE);
  ssize_t n = recv(c->socket.fd, line_of(c) + c->length, LM_CONTROL_LINE - c->length, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) c->length += (size_t)n;
  char *end = memchr(line_of(c), '\n', c->length);
  if (end) answer_line(c, end);
  else if (n <= 0 || c->length == LM_CONTROL_LINE) hang_up(c); /* gone, or the line is too long */
}

static bool is_answered(const client *c) { return c->answer.length > 0; }

/* Serves a client for which poll(2) has reported `events`; 0: nothing came from it. */
static void serve(client *c, short events) {
  if (!lm_descriptor_is_ours(&c->socket)) hang_up(c);
  else if (events && is_answered(c)) send_answer(c);
  else if (events) receive_line(c);
  else if (lm_sys_clock_ns() > c->deadline_ns) hang_up(c);
}

/* ---- the thread ---- */

/* Begins to use the watch that another thread has opened. */
static void take_incoming(void) {
  lm_assert(is_service);
  enter();
  if (has_incoming) {
    lm_watch_replace(&watch, incoming);
    incoming = NULL;
    has_incoming = false;
  }
  leave();
}

/* Loads the policy file if it has changed. */
static void load_changed_file(void) {
  if (watch && lm_watch_ready(watch)) lm_policy_load_followed(lm_watch_path(watch), true);
}

/* Adds the clients to what poll(2) waits for, and their deadlines to its timeout. */
static void gather_clients(struct pollfd *fds, int *timeout_ms) {
  int64_t now = lm_sys_clock_ns();
  for (int i = 0; i < CLIENTS; i++) {
    const client *c = &clients[i];
    fds[i] = (struct pollfd){ .fd = c->is_connected ? c->socket.fd : -1,
                              .events = is_answered(c) ? POLLOUT : POLLIN };
    int64_t left_ms = (c->deadline_ns - now) / 1000000 + 1;
    if (c->is_connected) *timeout_ms = lm_chores_earlier_ms(*timeout_ms, left_ms);
  }
}

/* The descriptors that poll(2) waits for, in this order. poll ignores a descriptor of -1. */
enum { WAKEUP, LISTENER, WATCH, FIRST_CLIENT, WAITED = FIRST_CLIENT + CLIENTS };

/* Collects what poll(2) waits for. Unless `is_whole`, descriptors are lost: then only connected
 * clients are served, and nothing is opened. */
static void gather(struct pollfd *fds, int *timeout_ms, bool is_whole) {
  bool accepts = is_whole && free_client();
  enter();
  fds[WAKEUP] = (struct pollfd){ .fd = wakeup[0].fd, .events = POLLIN };
  fds[LISTENER] = (struct pollfd){ .fd = accepts ? control_socket.listener.fd : -1,
                                   .events = POLLIN };
  leave();
  bool watches = is_whole && watch;
  fds[WATCH] = (struct pollfd){ .fd = watches ? lm_watch_fd(watch) : -1, .events = POLLIN };
  *timeout_ms = watches ? lm_watch_timeout_ms(watch) : is_whole ? -1 : LOST_POLL_MS;
  if (atomic_load(&is_main_ended)) *timeout_ms = lm_chores_earlier_ms(*timeout_ms, COUNT_MS);
  *timeout_ms = lm_chores_timeout_ms(*timeout_ms);
  gather_clients(fds + FIRST_CLIENT, timeout_ms);
}

/* Reads the bytes that have woken the thread. recv does not read from a pipe, so if the host has
 * just put a pipe of its own in this place, the pipe loses nothing. */
static void drain_wakeup(void) {
  char bytes[64];
  while (lm_descriptor_is_ours(&wakeup[0]) && recv(wakeup[0].fd, bytes, sizeof bytes, 0) > 0)
    continue;
}

/* Reports a failure as an event and returns it, with its words. With no lock held, because the
 * event calls the host. */
static loam_status report_failure(loam_status status) {
  char words[512];
  if (status == LOAM_OK) return status;
  snprintf(words, sizeof words, "%s", loam_error());
  lm_error_event(LOAM_EVENT_CONTROL, 0, NULL, "%s", words);
  return lm_error(status, "%s", words);
}

/* Sets lm_control_asleep. From now on each request takes the slow path, which calls
 * lm_control_wake_if_asleep, until the service is back. */
static void fall_asleep(void) {
  atomic_store(&asleep_since_ns, lm_sys_clock_ns());
  atomic_store_explicit(&asleep_calls, 0, memory_order_relaxed); /* orders nothing */
  atomic_store(&lm_control_asleep, true);
  lm_thread_set_slow_all(LM_SLOW_UNSERVED);
}

static void note_descriptor_lost_locked(void) {
  has_lost = true;
  fall_asleep();
}

/* Forgets descriptors that the host has closed or replaced. Returns whether there were any. */
static bool forget_lost_descriptors_locked(void) {
  bool is_deaf = !lm_descriptor_is_ours(&wakeup[0]) || !lm_descriptor_is_ours(&wakeup[1]);
  if (is_deaf) close_wakeup_locked();
  return lm_control_socket_forget_lost(&control_socket) || is_deaf;
}

static void resume_service(void);

/* Called by the service thread before each use of its descriptors. A new descriptor has the lowest
 * free number for a moment, and a host that closes all descriptors opens its own there next. So a
 * request of the host's own thread opens lost descriptors (lm_control_wake); the service thread
 * does it only if no request comes for long. Returns false if descriptors are lost. */
static bool reopen_lost_descriptors(void) {
  bool is_lost = watch && lm_watch_is_lost(watch);
  enter();
  if (!has_lost && !is_stopping && (forget_lost_descriptors_locked() || is_lost))
    note_descriptor_lost_locked();
  bool is_whole = !has_lost;
  leave();
  if (is_whole) return true;
  int64_t asleep_ns = lm_sys_clock_ns() - atomic_load(&asleep_since_ns);
  if (asleep_ns >= LOST_LATE_MS * 1000000ll) resume_service();
  return false;
}

/* Tells whether lm_control_stop was called. */
static bool is_done(void) {
  enter();
  bool done = is_stopping;
  leave();
  return done;
}

/* Tells whether the service thread has to end, because it is the last thread. A process whose main
 * thread has ended by pthread_exit ends with its last thread. That must not be the service thread,
 * which would run for ever and blocks every signal. If threads cannot be counted, the thread ends
 * as soon as the main thread has ended. */
static bool is_last(void) {
  /* An empty directory has two links, and each thread adds one. So does the ended main thread. */
  enum { LINKS = 2 };
  struct stat tasks;
  return atomic_load(&is_main_ended) &&
         (stat("/proc/self/task", &tasks) || tasks.st_nlink <= LINKS + 2);
}

/* Gives up everything that the service has, at the end of the thread. */
static void shut_down(void) {
  lm_chores_end();
  for (int i = 0; i < CLIENTS; i++)
    if (clients[i].is_connected) hang_up(&clients[i]);
  enter();
  lm_control_socket_close(&control_socket);
  lm_watch_close(watch);
  lm_watch_close(incoming);
  watch = incoming = NULL;
  has_incoming = false;
  *followed = 0;
  lm_policy_set_watched(false);
  close_wakeup_locked();
  is_running = has_lost = false;
  if (is_detached) pthread_detach(pthread_self());
  leave();
}

/* The service thread. */
static void *run(void *arg) {
  struct pollfd fds[WAITED];
  int timeout_ms;
  (void)arg;
  is_service = true;
  if (is_forked) lm_control_clean(directory);
  while (!is_done() && !is_last()) {
    take_incoming();
    bool is_whole = reopen_lost_descriptors();
    gather(fds, &timeout_ms, is_whole);
    if (poll(fds, WAITED, timeout_ms) < 0) continue;
    if (fds[WAKEUP].revents) drain_wakeup();
    if (fds[LISTENER].revents && lm_descriptor_is_ours(&control_socket.listener)) accept_client();
    if (is_whole) load_changed_file();
    lm_chores_run();
    for (int i = 0; i < CLIENTS; i++)
      if (fds[FIRST_CLIENT + i].fd >= 0) serve(&clients[i], fds[FIRST_CLIENT + i].revents);
  }
  shut_down();
  return NULL;
}

/* Starts the service thread if it does not run. */
static loam_status start_thread_locked(void) {
  is_stopping = is_detached = false;
  if (is_running) return LOAM_OK;
  int error = open_wakeup_locked();
  if (!error) error = lm_thread_start(&thread, run);
  if (!error) {
    is_running = true;
    return LOAM_OK;
  }
  close_wakeup_locked();
  lm_control_socket_close(&control_socket);
  return lm_error(LOAM_EIO, "no service thread: %s", strerrordesc_np(error));
}

/* ---- fork and the end of threads ---- */

/* Runs in each thread that ends. The number of the main thread is the process id. */
static void on_thread_end(lm_thread *t) {
  if (t->number != getpid()) return;
  atomic_store(&is_main_ended, true);
  (void)wake_service();
}

static void fork_prepare(void) { pthread_mutex_lock(&lock); }
static void fork_parent(void) { pthread_mutex_unlock(&lock); }

/* Forgets all clients, in a forked child. The fork may have come at any moment of what the service
 * thread does without the lock. So even a client that is not connected is cleared. */
static void drop_clients(void) {
  for (int i = 0; i < CLIENTS; i++) {
    if (clients[i].is_connected) {
      lm_descriptor_close(&clients[i].socket);
      lm_descriptor_close(&clients[i].passed);
    }
    clients[i] = (client){ 0 };
  }
}

/* Gives up everything that the parent's service thread had, in a forked child. */
static void drop_service(void) {
  lm_assert(!is_service && is_running);
  drop_clients();
  lm_watch_close(watch);
  lm_watch_close(incoming);
  watch = incoming = NULL;
  has_incoming = false;
  lm_control_socket_fork_child(&control_socket);
  close_wakeup_locked();
  is_running = has_lost = false;
  lm_chores_fork_child();
}

/* A child keeps the wishes (the socket, the followed file) and drops the service. If the parent had
 * a service, the child's service is asleep. */
static void fork_child(void) {
  pthread_mutex_unlock(&lock); /* taken by this thread in fork_prepare */
  atomic_store(&is_main_ended, false);
  is_service = false;
  bool was_served = is_running && !is_stopping;
  if (is_running) drop_service();
  bool was_asleep = atomic_exchange(&lm_control_asleep, false);
  if (!CAN_REVIVE || !(was_served || was_asleep)) return;
  is_forked = true;
  fall_asleep();
}

static void register_hooks(void) {
  static const lm_thread_hooks hooks = { on_thread_end, fork_prepare, fork_parent, fork_child };
  /* The first allocation registers the hooks of memory. They must come before these, so that a
   * child may free memory in fork_child. */
  lm_metadata_free(lm_metadata_alloc(1));
  lm_thread_add_hooks(&hooks);
  lm_thread_add_fork_lock(&wakeup_lock);
  lm_decay_set_wake(wake_for_decay);
}

static void register_hooks_once(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_hooks);
}

/* ---- start, stop, follow ---- */

/* Opens the pair of sockets of a running service thread again, if the host has closed it. False: no
 * descriptor is left, and it will be tried again later. */
static bool reopen_wakeup_locked(void) {
  (void)forget_lost_descriptors_locked();
  has_lost = false;
  if (wakeup[0].fd < 0 && open_wakeup_locked()) note_descriptor_lost_locked();
  return !has_lost;
}

/* Opens the control socket if it is wanted, and starts the thread if there is work for it. */
static loam_status start_locked(void) {
  loam_status status = LOAM_OK;
  lm_assert(!wants_socket || *directory);
  if (is_running && !reopen_wakeup_locked()) return LOAM_OK;
  if (wants_socket && control_socket.listener.fd < 0)
    status = lm_control_socket_open(&control_socket, directory);
  bool is_listening = control_socket.listener.fd >= 0;
  bool wants_thread = is_listening || has_incoming || watch || lm_chores_has_applying();
  if (!wants_thread) return status;
  loam_status started = start_thread_locked();
  return started != LOAM_OK ? started : status;
}

loam_status lm_control_start(const char *dir, bool socket) {
  char path[LM_CONTROL_PATH];
  loam_status status = socket ? lm_control_dir(dir, path, sizeof path) : LOAM_OK;
  register_hooks_once();
  if (status == LOAM_OK) {
    enter();
    wants_socket = socket;
    if (socket) memcpy(directory, path, sizeof path);
    status = start_locked();
    wake_service();
    leave();
  }
  return report_failure(status);
}

/* Clears lm_control_asleep. False: the service was not asleep. */
static bool end_sleep_locked(void) {
  if (!atomic_exchange(&lm_control_asleep, false)) return false;
  lm_thread_clear_slow_all(LM_SLOW_UNSERVED);
  return true;
}

void lm_control_stop(void) {
  enter();
  end_sleep_locked();
  bool was_running = is_running;
  bool is_self = was_running && pthread_equal(thread, pthread_self());
  pthread_t ended = thread;
  wants_socket = false;
  is_stopping = true;
  /* If the service thread itself called this from an event, it ends after the callback. If it
   * cannot be woken, it ends with the process. Neither is joined. */
  bool is_woken = wake_service() || has_lost;
  is_detached = !is_woken || is_self;
  bool is_joined = was_running && !is_detached;
  leave();
  lm_assert(!is_joined || !is_service);
  if (is_joined) pthread_join(ended, NULL);
}

/* Hands an opened watch to the service thread; NULL: no file is followed any more. */
static loam_status change_watch_locked(lm_watch *opened) {
  lm_watch_replace(&incoming, opened);
  has_incoming = is_running || opened;
  lm_policy_set_watched(opened != NULL);
  loam_status status = start_locked();
  wake_service();
  return status;
}

loam_status lm_control_watch(const char *path) {
  char buffer[PATH_MAX];
  lm_watch *opened = NULL;
  if (path && strlen(path) >= sizeof followed)
    return lm_error(LOAM_EINVAL, "%.40s...: a path of %zu bytes, at most %d are possible", path,
                    strlen(path), PATH_MAX - 1);
  if (path) {
    path = lm_policy_file_absolute(path, buffer, sizeof buffer);
    if (*path != '/')
      return lm_error(LOAM_EIO, "%s: the working directory is not known, or its path is too long",
                      path);
    loam_status status = lm_watch_open(path, &opened);
    if (status != LOAM_OK) return status;
  }
  register_hooks_once();
  enter();
  snprintf(followed, sizeof followed, "%s", path ? path : "");
  loam_status status = change_watch_locked(opened);
  leave();
  return report_failure(status);
}

bool lm_control_is_valid(void) {
  enter();
  bool has_none = wakeup[0].fd < 0 && wakeup[1].fd < 0 && control_socket.listener.fd < 0;
  bool is_valid = lm_control_socket_is_valid(&control_socket) && (has_incoming || !incoming) &&
                  (is_running || (has_none && !has_lost));
  leave();
  return is_valid;
}

bool lm_control_is_open(void) {
  enter();
  bool is_open = is_running && lm_descriptor_is_ours(&control_socket.listener);
  leave();
  return is_open;
}

/* Called when a policy has become live. If live memory is to follow it, the service thread will
 * move the memory; it is started for that. A failure is reported as an event. */
static void apply_live_policy(bool is_followed) {
  if (!is_followed) {
    lm_chores_end_applying();
    return;
  }
  register_hooks_once();
  enter();
  lm_chores_want_applying();
  loam_status status = start_locked();
  wake_service();
  leave();
  report_failure(status);
}

__attribute__((constructor)) static void register_policy_hook(void) {
  lm_policy_on_live(apply_live_policy);
}

/* Opens the watch of a followed file again, unless the file is no longer followed. */
static void watch_again(const char *path) {
  lm_watch *opened = NULL;
  loam_status status = LOAM_OK;
  if (lm_watch_open(path, &opened) != LOAM_OK) return;
  enter();
  bool is_wanted = !is_stopping && !strcmp(path, followed);
  if (is_wanted) status = change_watch_locked(opened);
  leave();
  if (!is_wanted) lm_watch_close(opened);
  report_failure(status);
}

/* Tells whether the service has been asleep for long enough. Counts a request; the count is
 * relaxed, because it orders nothing. */
static bool has_slept_enough(void) {
  return atomic_fetch_add_explicit(&asleep_calls, 1, memory_order_relaxed) >= ASLEEP_CALLS ||
         lm_sys_clock_ns() - atomic_load(&asleep_since_ns) >= ASLEEP_MS * 1000000ll;
}

/* Starts the service again, or opens its lost descriptors. With no lock held. */
static void resume_service(void) {
  char path[PATH_MAX];
  loam_status status = LOAM_OK;
  enter();
  bool was_asleep = end_sleep_locked();
  if (was_asleep) status = start_locked();
  bool is_whole = was_asleep && !has_lost;
  memcpy(path, followed, sizeof path);
  leave();
  report_failure(status);
  if (is_whole && *path) watch_again(path);
}

void lm_control_wake(void) {
  int before = errno;
  const lm_thread *self = lm_thread_get();
  if (self && !self->inside && !self->dying && !is_service && has_slept_enough()) {
    lm_sys_cancel_off();
    resume_service();
    lm_sys_cancel_restore();
  }
  errno = before;
}
