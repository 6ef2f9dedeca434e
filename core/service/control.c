/* control.c - the service thread: follows the policy file, answers the control socket.
 *
 * Everything the thread waits for is in one poll(2). A load, whether the file changed or somebody
 * asked for it, is done by the thread itself; the others wait. A client has a few seconds to say
 * its line and to take its answer. While there is idle memory, the thread ticks (decay.h).
 *
 * Descriptors are opened and closed under the lock, so that a forked child, which has none of this,
 * knows which to close. The host may close them or put its own in their place (descriptor.h): they
 * are asked before each use, and opened anew amid an allocation of the host's. They have no table
 * of their own because the thread runs what is the host's and a driver's (events, handlers,
 * devices), which use that one; a second thread with such a table would make a program's start a
 * tenth longer. */
#include "service/control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "device/device_pool.h"
#include "device/pinned.h"
#include "heap/age.h"
#include "heap/pool.h"
#include "heap/sweep.h"
#include "move/rebalance.h"
#include "os/decay.h"
#include "os/descriptor.h"
#include "os/error.h"
#include "os/numa.h"
#include "os/sys.h"
#include "service/policy.h"
#include "service/watch.h"

enum {
  CLIENTS = 16,
  CLIENT_MS = 5000, /* without progress */
  NAP_MS = 100,     /* a forked child, or a host that has robbed us, is left alone that long, */
  NAP_CALLS = 512,  /* or for so many allocations and frees; who calls exec has made a tenth */
  TICK_MS = 250,    /* of decay: memory is gone three ticks after it was last needed */
  ROBBED_MS = 50,   /* then it is looked that often whether there are new descriptors */
  LATE_MS = 1000,   /* and where there are none by then, the thread opens them */
  COUNT_MS = 100,   /* of threads, in a process whose first has ended */
};

/* The thread sanitizer aborts a child whose thread has the place of one that its parent had. */
#ifdef __SANITIZE_THREAD__
enum { CAN_REVIVE = false };
#else
enum { CAN_REVIVE = true };
#endif

typedef struct client {
  bool is_here;
  lm_descriptor link;
  int64_t deadline_ns;
  size_t length; /* of its line */
  lm_json answer;
  size_t sent;
  lm_descriptor given; /* goes with the answer's first byte */
} client;

_Atomic bool lm_control_asleep;
static _Atomic bool is_watching;
static _Atomic bool is_headless; /* the first thread has ended by itself: the last one ends us */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_running, is_stopping, wants_socket;
static bool is_alone;  /* nobody will join the thread */
static bool is_forked; /* as such end by _exit, they leave sockets behind */
static bool is_robbed; /* descriptors are gone, and there are no new ones yet */
static pthread_t thread;
static lm_lock bell_lock; /* a leaf, inside the other: whoever frees may ring */
static lm_descriptor bell[2] = { { .fd = -1 }, { .fd = -1 } }; /* look at what is wanted */
static lm_descriptor listener = { .fd = -1 };
static pid_t owner;                  /* process that bound the socket */
static _Atomic int64_t alone_ns;     /* since when a forked child has no thread, or we are robbed */
static _Atomic uint32_t calls_alone; /* allocations and frees since then */
static _Thread_local bool is_service __attribute__((tls_model("initial-exec")));
static char directory[LM_CONTROL_PATH], socket_path[LM_CONTROL_PATH];
static LM_SPARSE char followed[PATH_MAX]; /* "" none */
static lm_watch *watch;                   /* the thread's */
static lm_watch *incoming;                /* for the thread to take */
static bool has_incoming;
static int64_t tick_ns;     /* the thread's: when the next tick may be */
static int64_t job_ns = -1; /* and the next step of moving memory; -1: there is none */
static int64_t gauge_ns;    /* and the next reading of gauges */
static int64_t round_ns;    /* and the next round of dating */
static _Atomic bool wants_applying, has_applied;
static client clients[CLIENTS]; /* the thread's, but for the link */
static LM_SPARSE char lines[CLIENTS][LM_CONTROL_LINE];

/* Inside, so that nothing done here asks for a new site, which could want this lock. */
static void enter(void) {
  (void)lm_thread_inside_begin();
  pthread_mutex_lock(&lock);
}

static void leave(void) {
  pthread_mutex_unlock(&lock);
  lm_thread_inside_end(lm_thread_self);
}

/* False if the thread cannot be told: there is none, or the host has closed the bell. */
static bool ring(void) {
  int before = errno;
  lm_lock_take(&bell_lock);
  lm_sys_cancel_off();
  bool told = lm_descriptor_is_ours(&bell[1]);
  if (told) (void)send(bell[1].fd, "", 1, MSG_NOSIGNAL); /* a full one rings as well */
  lm_sys_cancel_restore();
  lm_lock_drop(&bell_lock);
  errno = before;
  return told;
}

/* If it cannot, because the host has closed the bell, the thread wakes by that. */
static void ring_for_decay(void) { (void)ring(); }

/* Sockets: a pipe whose other end the host has closed would kill it. */
static int open_bell_locked(void) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends)) return errno;
  lm_lock_take(&bell_lock);
  for (int i = 0; i < 2; i++) bell[i] = lm_descriptor_keep(ends[i]);
  lm_lock_drop(&bell_lock);
  return 0;
}

static void close_bell_locked(void) {
  lm_lock_take(&bell_lock);
  for (int i = 0; i < 2; i++) lm_descriptor_close(&bell[i]);
  lm_lock_drop(&bell_lock);
}

/* ---- the socket ---- */

static loam_status fail_path(const char *path) {
  return lm_error(LOAM_EIO, "control socket: %s: %s", path, strerrordesc_np(errno));
}

/* Ours alone, or others could put sockets in our hosts' places. */
static loam_status make_directory(const char *dir) {
  struct stat st;
  if (!mkdir(dir, 0700)) {
    if (chmod(dir, 0700)) return fail_path(dir); /* whatever the umask is */
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

/* Whether nobody listens there any more. If not, it may be a process of the same number in another
 * container, which may have too many callers to take one more. */
static bool is_stale(const struct sockaddr_un *address) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
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
      return lm_error(LOAM_EIO, "control socket: %s: another host has it", path);
    if (unlink(path) || bind(fd, (const struct sockaddr *)address, sizeof *address))
      return fail_path(path);
  }
  /* Nobody can connect before the listen. */
  if (!chmod(path, 0600) && !listen(fd, CLIENTS)) return LOAM_OK;
  loam_status status = fail_path(path);
  unlink(path);
  return status;
}

static loam_status open_socket_locked(void) {
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  loam_status status = make_directory(directory);
  if (status != LOAM_OK) return status;
  int n = snprintf(address.sun_path, sizeof address.sun_path, "%s/%d.sock", directory, getpid());
  if (n < 0 || (size_t)n >= sizeof address.sun_path)
    return lm_error(LOAM_EIO, "control socket: %s: too long for a socket", directory);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fail_path(address.sun_path);
  status = bind_at(fd, &address);
  if (status != LOAM_OK) {
    close(fd);
    return status;
  }
  memcpy(socket_path, address.sun_path, sizeof socket_path);
  owner = getpid();
  listener = lm_descriptor_keep(fd);
  if (listener.fd >= 0) return LOAM_OK;
  unlink(socket_path);
  return fail_path(socket_path);
}

static void close_socket_locked(void) {
  if (listener.fd >= 0 && owner == getpid()) unlink(socket_path);
  lm_descriptor_close(&listener);
}

/* A host that ends without loam_stop leaves no socket behind, unless it is killed. */
__attribute__((destructor)) static void remove_socket(void) {
  if (listener.fd >= 0 && owner == getpid()) unlink(socket_path);
}

/* ---- clients ---- */

static void delay_deadline(client *c) {
  c->deadline_ns = lm_sys_clock_ns() + (int64_t)CLIENT_MS * 1000000;
}

static void hang_up(client *c) {
  enter();
  lm_descriptor_close(&c->link);
  lm_descriptor_close(&c->given);
  c->is_here = false;
  leave();
  lm_json_finish(&c->answer);
  c->length = c->sent = 0;
}

static bool is_same_user(int fd) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == geteuid();
}

static client *free_client(void) {
  for (int i = 0; i < CLIENTS; i++)
    if (!clients[i].is_here) return &clients[i];
  return NULL;
}

static void accept_client(void) {
  client *c = free_client();
  enter();
  int fd = accept4(listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  int error = fd < 0 ? errno : 0;
  if (fd >= 0 && c && is_same_user(fd)) {
    c->link = lm_descriptor_keep(fd);
    c->given = LM_DESCRIPTOR_NONE;
    c->is_here = c->link.fd >= 0;
    delay_deadline(c);
  } else if (fd >= 0) {
    close(fd);
  }
  leave();
  /* With no descriptor left the listener would stay readable. */
  if (error == EMFILE || error == ENFILE) poll(NULL, 0, 50);
}

static ssize_t send_with(int to, struct iovec *part, int given) {
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof given)];
  } control = { .head = { .cmsg_len = CMSG_LEN(sizeof given),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS } };
  struct msghdr message = { .msg_iov = part, .msg_iovlen = 1 };
  memcpy(CMSG_DATA(&control.head), &given, sizeof given);
  if (given >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
  }
  return sendmsg(to, &message, MSG_NOSIGNAL);
}

static void send_answer(client *c) {
  bool gives = lm_descriptor_is_ours(&c->given);
  struct iovec part = { c->answer.text + c->sent, c->answer.length - c->sent };
  ssize_t n = send_with(c->link.fd, &part, gives ? c->given.fd : -1);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) {
    c->sent += (size_t)n;
    lm_descriptor_close(&c->given);
    delay_deadline(c);
  }
  if (n < 0 || c->sent == c->answer.length) hang_up(c);
}

static char *line_of(const client *c) { return lines[c - clients]; }

static void answer_line(client *c, char *end) {
  *end = 0;
  if (end > line_of(c) && end[-1] == '\r') end[-1] = 0;
  int given = -1;
  lm_control_reply(line_of(c), &c->answer, &given);
  enter();
  c->given = lm_descriptor_keep(given);
  leave();
  delay_deadline(c);
  if (c->answer.failed || !c->answer.length) hang_up(c);
  else send_answer(c);
}

static void receive_line(client *c) {
  ssize_t n = recv(c->link.fd, line_of(c) + c->length, LM_CONTROL_LINE - c->length, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) c->length += (size_t)n;
  char *end = memchr(line_of(c), '\n', c->length);
  if (end) answer_line(c, end);
  else if (n <= 0 || c->length == LM_CONTROL_LINE) hang_up(c); /* gone, or no line of ours */
}

static bool is_answered(const client *c) { return c->answer.length > 0; }

static void serve(client *c, short events) {
  if (!lm_descriptor_is_ours(&c->link)) hang_up(c);
  else if (events && is_answered(c)) send_answer(c);
  else if (events) receive_line(c);
  else if (lm_sys_clock_ns() > c->deadline_ns) hang_up(c);
}

/* ---- what is done in between ---- */

/* A policy that live memory is to follow has become live. A job under way is ended first: it may
 * have passed over what is to move now. */
static void begin_applying(void) {
  lm_job_order order = { .applies = true };
  if (!atomic_exchange(&wants_applying, false)) return;
  atomic_store(&has_applied, true);
  if (lm_rebalance_begin(&order, LM_JOB_SERVICE) != LOAM_OK) {
    lm_rebalance_cancel();
    atomic_store(&wants_applying, true);
  } else if (!lm_policy_is_followed()) {
    lm_rebalance_cancel_applied(); /* another policy came in between */
  }
}

static void tell_moved(void) {
  loam_progress moved;
  uint64_t number;
  lm_rebalance_get(&moved, &number);
  lm_error_event(LOAM_EVENT_MOVED, atomic_load(&lm_site_generation), NULL,
                 "live memory: %llu bytes moved, %llu were right, %llu refused",
                 (unsigned long long)moved.moved, (unsigned long long)moved.right,
                 (unsigned long long)moved.refused);
}

/* A step of moving live memory; job_ns: when the next may be, -1: there is no job. */
static void move_memory(void) {
  if (job_ns < 0 || lm_sys_clock_ns() >= job_ns) {
    int64_t before = job_ns, wait;
    begin_applying();
    wait = lm_rebalance_step(LM_JOB_SERVICE);
    job_ns = wait < 0 ? -1 : lm_sys_clock_ns() + wait;
    if (before >= 0 && job_ns < 0) tell_moved();
  }
}

static void keep_gauges(void) {
  if (!lm_numa_free_is_wanted() || lm_sys_clock_ns() < gauge_ns) return;
  lm_numa_free_refresh();
  gauge_ns = lm_sys_clock_ns() + LM_NUMA_REFRESH_MS * 1000000ll;
}

/* Dates large blocks (age.h). */
static void date_blocks(void) {
  if (lm_age_is_idle() || lm_sys_clock_ns() < round_ns) return;
  lm_age_tick();
  round_ns = lm_sys_clock_ns() + LM_AGE_ROUND_MS * 1000000ll;
}

/* ---- the thread ---- */

static void take_incoming(void) {
  enter();
  if (has_incoming) {
    lm_watch_replace(&watch, incoming);
    incoming = NULL;
    has_incoming = false;
  }
  leave();
}

static void look_at_file(void) {
  if (watch && lm_watch_ready(watch)) lm_policy_load_followed(lm_watch_path(watch), true);
}

static int sooner(int a, int64_t b) { return a < 0 || b < a ? (int)(b < 0 ? 0 : b) : a; }

static void gather_clients(struct pollfd *fds, int *timeout_ms) {
  int64_t now = lm_sys_clock_ns();
  for (int i = 0; i < CLIENTS; i++) {
    const client *c = &clients[i];
    fds[i] = (struct pollfd){ .fd = c->is_here ? c->link.fd : -1,
                              .events = is_answered(c) ? POLLOUT : POLLIN };
    if (c->is_here) *timeout_ms = sooner(*timeout_ms, (c->deadline_ns - now) / 1000000 + 1);
  }
}

static void tick(void) {
  if (lm_decay_is_asleep() || lm_sys_clock_ns() < tick_ns) return;
  lm_sweep_decay();
  bool more = lm_policy_decay();
  more |= lm_device_pool_decay();
  more |= lm_pinned_decay();
  if (more) lm_decay_stir();
  tick_ns = lm_sys_clock_ns() + TICK_MS * 1000000ll;
}

static int until_tick_ms(int timeout_ms) {
  int64_t now = lm_sys_clock_ns();
  if (job_ns >= 0) timeout_ms = sooner(timeout_ms, (job_ns - now + 999999) / 1000000);
  if (!lm_age_is_idle()) timeout_ms = sooner(timeout_ms, (round_ns - now) / 1000000 + 1);
  if (lm_numa_free_is_wanted()) timeout_ms = sooner(timeout_ms, (gauge_ns - now) / 1000000 + 1);
  if (atomic_load(&wants_applying)) timeout_ms = sooner(timeout_ms, 1);
  if (atomic_load(&is_headless)) timeout_ms = sooner(timeout_ms, COUNT_MS);
  if (lm_decay_is_asleep()) return timeout_ms;
  return sooner(timeout_ms, (tick_ns - now) / 1000000 + 1);
}

/* What to wait for: bell, listener, watch, clients; -1 as a descriptor is ignored by poll. */
enum { BELL, LISTENER, WATCH, FIRST_CLIENT, WAITED = FIRST_CLIENT + CLIENTS };

/* While descriptors are gone only what is there is served, and nothing opened. */
static void gather(struct pollfd *fds, int *timeout_ms, bool is_whole) {
  bool takes = is_whole && free_client();
  enter();
  fds[BELL] = (struct pollfd){ .fd = bell[0].fd, .events = POLLIN };
  fds[LISTENER] = (struct pollfd){ .fd = takes ? listener.fd : -1, .events = POLLIN };
  leave();
  bool looks = is_whole && watch;
  fds[WATCH] = (struct pollfd){ .fd = looks ? lm_watch_fd(watch) : -1, .events = POLLIN };
  *timeout_ms = until_tick_ms(!is_whole ? ROBBED_MS : watch ? lm_watch_timeout_ms(watch) : -1);
  gather_clients(fds + FIRST_CLIENT, timeout_ms);
}

static void quiet_bell(void) {
  char rings[64]; /* recv: a pipe of the host's that is there since a moment ago loses nothing */
  while (lm_descriptor_is_ours(&bell[0]) && recv(bell[0].fd, rings, sizeof rings, 0) > 0) continue;
}

/* With no lock held. */
static loam_status tell_failure(loam_status status) {
  char words[512];
  if (status == LOAM_OK) return status;
  snprintf(words, sizeof words, "%s", loam_error());
  lm_error_event(LOAM_EVENT_CONTROL, 0, NULL, "%s", words);
  return lm_error(status, "%s", words);
}

/* From here on threads are wary, and so meet lm_control_wake_if_asleep, until the service is back.
 * */
static void fall_asleep(void) {
  atomic_store(&alone_ns, lm_sys_clock_ns());
  atomic_store_explicit(&calls_alone, 0, memory_order_relaxed);
  atomic_store(&lm_control_asleep, true);
  lm_thread_set_slow_all(LM_SLOW_UNSERVED);
}

static void be_robbed_locked(void) {
  is_robbed = true;
  fall_asleep();
}

/* Forgets what the host has closed, or put its own in the place of. Whether there is such. */
static bool lose_locked(void) {
  bool is_deaf = !lm_descriptor_is_ours(&bell[0]) || !lm_descriptor_is_ours(&bell[1]);
  bool is_hidden = listener.fd >= 0 && !lm_descriptor_is_ours(&listener);
  if (is_deaf) close_bell_locked();
  if (is_hidden && owner == getpid()) unlink(socket_path);
  if (is_hidden) listener = LM_DESCRIPTOR_NONE;
  return is_deaf || is_hidden;
}

static void wake(void);

/* What is opened has the lowest number for a moment, and who closes all puts its own there next. So
 * new ones are opened by whoever allocates, amid a call of its own (lm_control_wake); by the thread
 * only where nobody does for long. False: some are gone. */
static bool heal(void) {
  bool is_lost = watch && lm_watch_is_lost(watch);
  enter();
  if (!is_robbed && !is_stopping && (lose_locked() || is_lost)) be_robbed_locked();
  bool is_whole = !is_robbed;
  leave();
  if (!is_whole && lm_sys_clock_ns() - atomic_load(&alone_ns) >= LATE_MS * 1000000ll) wake();
  return is_whole;
}

static bool is_done(void) {
  enter();
  bool done = is_stopping;
  leave();
  return done;
}

/* A process whose first thread ends by pthread_exit ends with its last one: that must not be ours,
 * which blocks every signal. So it ends when it is alone (the first one's number stays), and where
 * that cannot be known, at once. */
static bool is_last(void) {
  enum { LINKS = 2 }; /* of an empty folder; and one for each thread */
  struct stat tasks;
  return atomic_load(&is_headless) &&
         (stat("/proc/self/task", &tasks) || tasks.st_nlink <= LINKS + 2);
}

/* What is half moved is brought back. */
static void end_moving(void) {
  lm_rebalance_cancel();
  while (lm_rebalance_step(LM_JOB_SERVICE) >= 0) continue;
  job_ns = -1;
}

static void shut_down(void) {
  if (job_ns >= 0) end_moving();
  lm_numa_free_pause();
  for (int i = 0; i < CLIENTS; i++)
    if (clients[i].is_here) hang_up(&clients[i]);
  enter();
  close_socket_locked();
  lm_watch_close(watch);
  lm_watch_close(incoming);
  watch = incoming = NULL;
  has_incoming = false;
  *followed = 0;
  atomic_store(&is_watching, false);
  close_bell_locked();
  is_running = is_robbed = false;
  if (is_alone) pthread_detach(pthread_self());
  leave();
}

static void *run(void *arg) {
  struct pollfd fds[WAITED];
  int timeout_ms;
  (void)arg;
  is_service = true;
  if (is_forked) lm_control_clean(directory);
  while (!is_done() && !is_last()) {
    take_incoming();
    bool is_whole = heal();
    gather(fds, &timeout_ms, is_whole);
    if (poll(fds, WAITED, timeout_ms) < 0) continue;
    if (fds[BELL].revents) quiet_bell();
    if (fds[LISTENER].revents && lm_descriptor_is_ours(&listener)) accept_client();
    if (is_whole) look_at_file();
    tick();
    keep_gauges();
    date_blocks();
    move_memory();
    for (int i = 0; i < CLIENTS; i++)
      if (fds[FIRST_CLIENT + i].fd >= 0) serve(&clients[i], fds[FIRST_CLIENT + i].revents);
  }
  shut_down();
  return NULL;
}

static loam_status start_thread_locked(void) {
  is_stopping = is_alone = false;
  if (is_running) return LOAM_OK;
  int error = open_bell_locked();
  if (!error) error = lm_thread_start(&thread, run);
  if (!error) {
    is_running = true;
    return LOAM_OK;
  }
  close_bell_locked();
  close_socket_locked();
  return lm_error(LOAM_EIO, "no service thread: %s", strerrordesc_np(error));
}

/* ---- fork ---- */

static void leave_thread(lm_thread *t) {
  if (t->number != getpid()) return;
  atomic_store(&is_headless, true);
  (void)ring();
}

static void fork_prepare(void) { pthread_mutex_lock(&lock); }
static void fork_parent(void) { pthread_mutex_unlock(&lock); }

/* The thread may have been amid anything that it does without the lock: so nothing of a client
 * stays, not even of one that had just been hung up. */
static void drop_clients(void) {
  for (int i = 0; i < CLIENTS; i++) {
    if (clients[i].is_here) {
      lm_descriptor_close(&clients[i].link);
      lm_descriptor_close(&clients[i].given);
    }
    clients[i] = (client){ 0 };
  }
}

static void drop_service(void) {
  drop_clients();
  lm_watch_close(watch);
  lm_watch_close(incoming);
  watch = incoming = NULL;
  has_incoming = false;
  lm_descriptor_close(&listener); /* the path is the parent's */
  close_bell_locked();
  is_running = is_robbed = false;
  job_ns = -1;
  lm_numa_free_pause();
}

/* The child keeps what is wanted and drops what served it. */
static void fork_child(void) {
  pthread_mutex_unlock(&lock); /* taken by this thread in fork_prepare */
  atomic_store(&is_headless, false);
  is_service = false;
  bool was_served = is_running && !is_stopping;
  if (is_running) drop_service();
  bool was_asleep = atomic_exchange(&lm_control_asleep, false);
  if (!CAN_REVIVE || !(was_served || was_asleep)) return;
  is_forked = true;
  fall_asleep();
}

static void hook(void) {
  static const lm_thread_hooks hooks = { leave_thread, fork_prepare, fork_parent, fork_child };
  lm_metadata_free(
      lm_metadata_alloc(1)); /* memory's hooks are registered by now, so a child may free */
  lm_thread_add_hooks(&hooks);
  lm_thread_add_fork_lock(&bell_lock);
  lm_decay_set_wake(ring_for_decay);
}

static void hook_once(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, hook);
}

/* ---- what is wanted ---- */

/* Of a thread that is there. Where no descriptor is to be had it is tried again. */
static bool mend_bell_locked(void) {
  (void)lose_locked();
  is_robbed = false;
  if (bell[0].fd < 0 && open_bell_locked()) be_robbed_locked();
  return !is_robbed;
}

/* Socket, if wanted, and thread, if there is anything for it to do. */
static loam_status start_locked(void) {
  loam_status status = LOAM_OK;
  if (is_running && !mend_bell_locked()) return LOAM_OK;
  if (wants_socket && listener.fd < 0) status = open_socket_locked();
  bool wants_thread = listener.fd >= 0 || has_incoming || watch || atomic_load(&wants_applying);
  if (!wants_thread) return status;
  loam_status started = start_thread_locked();
  return started != LOAM_OK ? started : status;
}

loam_status lm_control_start(const char *dir, bool socket) {
  char path[LM_CONTROL_PATH];
  loam_status status = socket ? lm_control_dir(dir, path, sizeof path) : LOAM_OK;
  hook_once();
  if (status == LOAM_OK) {
    enter();
    wants_socket = socket;
    if (socket) memcpy(directory, path, sizeof path);
    status = start_locked();
    ring();
    leave();
  }
  return tell_failure(status);
}

/* False: it was not asleep. */
static bool awake_locked(void) {
  if (!atomic_exchange(&lm_control_asleep, false)) return false;
  lm_thread_clear_slow_all(LM_SLOW_UNSERVED);
  return true;
}

void lm_control_stop(void) {
  enter();
  awake_locked();
  bool was_running = is_running;
  bool is_self = was_running && pthread_equal(thread, pthread_self());
  pthread_t ended = thread;
  wants_socket = false;
  is_stopping = true;
  /* Called back from an event, it ends once it is back; or it cannot be told, and ends with us. */
  bool is_told = ring() || is_robbed;
  is_alone = !is_told || is_self;
  bool is_joined = was_running && !is_alone;
  leave();
  if (is_joined) pthread_join(ended, NULL);
}

static loam_status change_watch_locked(lm_watch *opened) {
  lm_watch_replace(&incoming, opened);
  has_incoming = is_running || opened;
  atomic_store(&is_watching, opened != NULL);
  loam_status status = start_locked();
  ring();
  return status;
}

loam_status lm_control_watch(const char *path) {
  char buffer[PATH_MAX];
  lm_watch *opened = NULL;
  if (path && strlen(path) >= sizeof followed)
    return lm_error(LOAM_EINVAL, "a path of %zu bytes", strlen(path));
  if (path) {
    path = lm_policy_file_absolute(path, buffer, sizeof buffer);
    loam_status status = lm_watch_open(path, &opened);
    if (status != LOAM_OK) return status;
  }
  hook_once();
  enter();
  snprintf(followed, sizeof followed, "%s", path ? path : "");
  loam_status status = change_watch_locked(opened);
  leave();
  return tell_failure(status);
}

bool lm_control_is_open(void) {
  enter();
  bool is_open = is_running && lm_descriptor_is_ours(&listener);
  leave();
  return is_open;
}

void lm_control_apply(bool wanted) {
  if (!wanted) {
    atomic_store(&wants_applying, false);
    if (atomic_load(&has_applied)) lm_rebalance_cancel_applied();
    return;
  }
  hook_once();
  enter();
  atomic_store(&wants_applying, true);
  loam_status status = start_locked();
  ring();
  leave();
  tell_failure(status);
}

bool lm_control_watching(void) { return atomic_load(&is_watching); }

/* Unless it is not to be followed any more. */
static void watch_again(const char *path) {
  lm_watch *opened = NULL;
  loam_status status = LOAM_OK;
  if (lm_watch_open(path, &opened) != LOAM_OK) return;
  enter();
  bool is_wanted = !is_stopping && !strcmp(path, followed);
  if (is_wanted) status = change_watch_locked(opened);
  leave();
  if (!is_wanted) lm_watch_close(opened);
  tell_failure(status);
}

/* Whether the process has been left alone for long enough. */
static bool is_rested(void) {
  return atomic_fetch_add_explicit(&calls_alone, 1, memory_order_relaxed) >= NAP_CALLS ||
         lm_sys_clock_ns() - atomic_load(&alone_ns) >= NAP_MS * 1000000ll;
}

static void wake(void) {
  char path[PATH_MAX];
  loam_status status = LOAM_OK;
  enter();
  bool is_woken = awake_locked();
  if (is_woken) status = start_locked();
  bool is_whole = is_woken && !is_robbed;
  memcpy(path, followed, sizeof path);
  leave();
  tell_failure(status);
  if (is_whole && *path) watch_again(path);
}

void lm_control_wake(void) {
  int before = errno;
  const lm_thread *self = lm_thread_get();
  if (self && !self->inside && !self->dying && !is_service && is_rested()) {
    lm_sys_cancel_off();
    wake();
    lm_sys_cancel_restore();
  }
  errno = before;
}
