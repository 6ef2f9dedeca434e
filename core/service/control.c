/* control.c - the service thread of a host.
 *
 * One poll(2) waits for everything: clients, the policy file, and requests of other threads. The
 * service thread itself loads a policy, for a changed file as well as for a `reload`; its clients
 * wait during the load. A client has a few seconds to send its line and to take its answer.
 *
 * The socket pair, the listener and the sockets of clients are opened and closed under the service
 * lock, so that a forked child, in which the thread is gone, knows which ones to close. The
 * descriptors of a watch and of a shared block are opened without that lock, and noted under it.
 * The host may close descriptors or put its own in their place (descriptor.h). So each one is
 * checked before its use, and a lost one is opened again during an allocation of the host's own
 * thread. A private table of descriptors is no way out: the service thread calls code of the host
 * and of drivers (events, handlers, devices), which use the host's table; and a second thread with
 * a private table would make the start of a program a tenth longer. */
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
#include "os/published.h"
#include "os/sys.h"
#include "service/board.h"
#include "service/chores.h"
#include "service/clients.h"
#include "service/control_socket.h"
#include "service/policy.h"
#include "service/service_lock.h"
#include "service/watch.h"

enum {
  ASLEEP_MS = 100,     /* the service stays asleep for that long, or */
  ASLEEP_CALLS = 512,  /* for that many slow requests; a child that calls exec makes a tenth */
  LOST_POLL_MS = 50,   /* while a descriptor is lost, the thread looks that often for a new one */
  LOST_LATE_MS = 1000, /* a lost descriptor is opened by the thread itself after that time */
  FAILED_POLL_MS = 50, /* how long the thread waits after poll(2) has failed */
  COUNT_MS = 100,      /* how often threads are counted after the main thread has ended */
};

/* The thread sanitizer aborts a child whose thread takes the place of a thread of its parent. */
#ifdef __SANITIZE_THREAD__
enum { CAN_REVIVE = false };
#else
enum { CAN_REVIVE = true };
#endif

_Atomic bool lm_control_asleep; /* sequentially consistent, but for the relaxed load in control.h */
/* The main thread has ended by pthread_exit, so the process ends with its last thread. Set by the
 * main thread before it wakes the service thread. Sequentially consistent. */
static _Atomic bool is_main_ended;

/* The following are guarded by the service lock, which is taken before wakeup_lock. */

/* Law, under the lock: unless is_running, both ends of `wakeup` and the listener of
 * `control_socket` are none and has_lost is false. `incoming` is NULL unless has_incoming. */
static bool is_running, is_stopping, wants_socket;
static bool is_detached; /* no other thread joins the service thread */
/* A thread waits in lm_control_stop for the end of the service thread. Implies is_stopping. */
static bool is_awaited;
/* This process is a forked child. Such children often end by _exit and leave sockets behind. */
static bool is_forked;
static bool is_guest; /* the process did not ask for a service */
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

static lm_watch *watch; /* the service thread's own */

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

/* ---- the thread ---- */

/* Begins to use the watch that another thread has opened. */
static void take_incoming(void) {
  lm_assert(is_service);
  lm_service_lock();
  if (has_incoming) {
    lm_watch_replace(&watch, incoming);
    incoming = NULL;
    has_incoming = false;
    lm_policy_set_watched(watch != NULL);
  }
  lm_service_unlock();
}

/* Loads the policy file if it has changed. */
static void load_changed_file(void) {
  if (watch && lm_watch_ready(watch)) lm_policy_load_followed(lm_watch_path(watch), true);
}

/* The descriptors that wait_for_events waits for, in this order. */
enum { WAKEUP, LISTENER, WATCH, FIRST_CLIENT, WAITED = FIRST_CLIENT + LM_CLIENTS };

/* Collects what wait_for_events waits for; -1 stands for no descriptor. Unless `is_whole`,
 * descriptors are lost: then only connected clients are served, and nothing is opened. */
static void gather(struct pollfd *fds, int *timeout_ms, bool is_whole) {
  bool accepts = is_whole && lm_clients_have_room();
  lm_service_lock();
  fds[WAKEUP] = (struct pollfd){ .fd = wakeup[0].fd, .events = POLLIN };
  fds[LISTENER] = (struct pollfd){ .fd = accepts ? control_socket.listener.fd : -1,
                                   .events = POLLIN };
  lm_service_unlock();
  bool watches = is_whole && watch;
  fds[WATCH] = (struct pollfd){ .fd = watches ? lm_watch_fd(watch) : -1, .events = POLLIN };
  *timeout_ms = watches ? lm_watch_timeout_ms(watch) : is_whole ? -1 : LOST_POLL_MS;
  if (atomic_load(&is_main_ended)) *timeout_ms = lm_chores_earlier_ms(*timeout_ms, COUNT_MS);
  *timeout_ms = lm_chores_timeout_ms(*timeout_ms);
  lm_clients_gather(fds + FIRST_CLIENT, timeout_ms);
}

/* Waits until one of the descriptors has an event or the time is over, and notes the events in
 * `revents`. poll(2) fails if it gets more entries than the process may have descriptors, and it
 * counts entries of -1 too. So it gets only the entries that have a descriptor. If it fails, this
 * function waits a short time, so that the thread does not spin. */
static void wait_for_events(struct pollfd *fds, int timeout_ms) {
  struct pollfd open[WAITED];
  nfds_t n = 0;
  for (int i = 0; i < WAITED; i++)
    if (fds[i].fd >= 0) open[n++] = fds[i];
  int found = poll(open, n, timeout_ms);
  if (found < 0 && errno != EINTR) lm_sys_sleep(FAILED_POLL_MS * 1000000ll);
  n = 0;
  for (int i = 0; i < WAITED; i++)
    if (fds[i].fd >= 0) fds[i].revents = found > 0 ? open[n++].revents : 0;
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
  lm_service_lock();
  if (!has_lost && !is_stopping && (forget_lost_descriptors_locked() || is_lost))
    note_descriptor_lost_locked();
  bool is_whole = !has_lost;
  lm_service_unlock();
  if (is_whole) return true;
  int64_t asleep_ns = lm_sys_clock_ns() - atomic_load(&asleep_since_ns);
  if (asleep_ns >= LOST_LATE_MS * 1000000ll) resume_service();
  return false;
}

/* Tells whether lm_control_stop was called. */
static bool is_done(void) {
  lm_service_lock();
  bool done = is_stopping;
  lm_service_unlock();
  return done;
}

/* Tells whether the service thread has to end, because it is the last thread. A process whose main
 * thread has ended by pthread_exit ends with its last thread. That must not be the service thread,
 * which would run for ever and blocks every signal. If threads cannot be counted, the thread ends
 * as soon as the main thread has ended. */
static bool is_last(void) {
  /* An empty directory has two links. Each thread adds one, also the main thread that has ended. */
  enum { LINKS = 2 };
  struct stat tasks;
  return atomic_load(&is_main_ended) &&
         (stat("/proc/self/task", &tasks) || tasks.st_nlink <= LINKS + 2);
}

/* Gives up everything that the service has, at the end of the thread. */
static void shut_down(void) {
  lm_chores_end();
  lm_clients_end();
  lm_service_lock();
  lm_control_socket_close(&control_socket);
  lm_watch_close(watch);
  lm_watch_close(incoming);
  watch = incoming = NULL;
  has_incoming = false;
  *followed = 0;
  lm_policy_set_watched(false);
  close_wakeup_locked();
  is_running = has_lost = is_awaited = false;
  if (is_detached) pthread_detach(pthread_self());
  lm_service_unlock();
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
    wait_for_events(fds, timeout_ms);
    if (fds[WAKEUP].revents) drain_wakeup();
    if (fds[LISTENER].revents && lm_descriptor_is_ours(&control_socket.listener))
      lm_clients_accept(&control_socket);
    if (is_whole) load_changed_file();
    lm_chores_run();
    lm_board_refresh();
    lm_clients_serve(fds + FIRST_CLIENT, lm_control_watch);
  }
  shut_down();
  return NULL;
}

/* Starts the service thread if it does not run. Fails with LOAM_ESTATE if a thread waits for its
 * end: the wait would last as long as the process if the service thread went on. */
static loam_status start_thread_locked(void) {
  if (is_awaited) return lm_error(LOAM_ESTATE, "loam_stop has not ended yet");
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

/* Runs in each thread that ends. The number of the main thread is the process id. A forked child
 * also ends the areas of threads that it does not have: in a PID namespace of its own, the child
 * can have the number of one of them. */
static void on_thread_end(lm_thread *t) {
  if (t != lm_thread_self || t->tid != getpid()) return;
  atomic_store(&is_main_ended, true);
  (void)wake_service();
}

/* Gives up everything that the parent's service thread had, in a forked child. */
static void drop_service(void) {
  lm_assert(!is_service && is_running);
  lm_clients_fork_child();
  lm_watch_close(watch);
  lm_watch_close(incoming);
  watch = incoming = NULL;
  has_incoming = false;
  lm_control_socket_fork_child(&control_socket);
  close_wakeup_locked();
  is_running = has_lost = is_awaited = false;
  lm_chores_fork_child();
}

/* A child keeps the wishes (the socket, the followed file) and drops the service. If the parent had
 * a service, the child's service is asleep. */
static void fork_child(void) {
  lm_service_lock_renew();
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
  static const lm_thread_hooks hooks = { .exit = on_thread_end, .fork_child = fork_child };
  /* The first allocation registers the hooks of memory. They must come before these, so that a
   * child may free memory in fork_child. */
  lm_metadata_free(lm_metadata_alloc(1));
  lm_thread_add_hooks(&hooks);
  lm_thread_add_fork_lock(&wakeup_lock);
  lm_published_start();
  lm_decay_set_wake(wake_service);
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

/* Returns whether a policy file is followed, or will be once the thread takes the watch. */
static bool follows_locked(void) { return has_incoming ? incoming != NULL : watch != NULL; }

/* Opens the control socket if it is wanted, and starts the thread if there is work for it. */
static loam_status start_locked(void) {
  loam_status status = LOAM_OK;
  lm_assert(!wants_socket || *directory);
  if (is_running && !reopen_wakeup_locked()) return LOAM_OK;
  if (wants_socket && control_socket.listener.fd < 0)
    status = lm_control_socket_open(&control_socket, directory);
  bool is_listening = control_socket.listener.fd >= 0;
  bool wants_thread = is_listening || follows_locked() || lm_chores_has_applying();
  if (!wants_thread) return status;
  loam_status started = start_thread_locked();
  return started != LOAM_OK ? started : status;
}

loam_status lm_control_start(const char *dir, bool socket) {
  char path[LM_CONTROL_PATH];
  loam_status status = socket ? lm_control_dir(dir, path, sizeof path) : LOAM_OK;
  register_hooks_once();
  if (status == LOAM_OK) {
    lm_service_lock();
    wants_socket = socket;
    if (socket) memcpy(directory, path, sizeof path);
    status = start_locked();
    wake_service();
    lm_service_unlock();
  }
  if (socket && status == LOAM_OK) status = lm_board_start(path);
  return report_failure(status);
}

void lm_control_set_guest(bool guest) {
  lm_service_lock();
  is_guest = guest;
  lm_service_unlock();
}

/* Clears lm_control_asleep. False: the service was not asleep. */
static bool end_sleep_locked(void) {
  if (!atomic_exchange(&lm_control_asleep, false)) return false;
  lm_thread_clear_slow_all(LM_SLOW_UNSERVED);
  return true;
}

/* Ends the wishes now: a start may follow before the thread has ended, and the thread then goes
 * on. The thread itself may call this from an event, in the middle of a look at its watch, so it
 * closes the watch later (take_incoming). */
static void drop_wishes_locked(bool is_self) {
  wants_socket = false;
  if (is_self) lm_control_socket_close(&control_socket);
  lm_watch_replace(&incoming, NULL);
  has_incoming = is_running;
  *followed = 0;
  lm_policy_set_watched(false);
}

/* Does nothing while another call waits for the end of the thread. */
void lm_control_stop(void) {
  lm_service_lock();
  if (is_awaited) {
    lm_service_unlock();
    return;
  }
  end_sleep_locked();
  bool was_running = is_running;
  bool is_self = was_running && pthread_equal(thread, pthread_self());
  pthread_t ended = thread;
  drop_wishes_locked(is_self);
  is_stopping = true;
  /* If the service thread itself called this from an event, it ends after the callback. If it
   * cannot be woken, it ends with the process. Neither is joined. */
  bool is_woken = wake_service() || has_lost;
  is_detached = !is_woken || is_self;
  is_awaited = was_running && !is_detached;
  bool is_joined = is_awaited;
  lm_service_unlock();
  lm_assert(!is_joined || !is_service);
  if (is_joined) pthread_join(ended, NULL);
  lm_board_end();
}

/* Hands an opened watch to the service thread; NULL: no file is followed any more. Without a
 * service thread the file is not followed until a later call starts one (take_incoming). */
static loam_status change_watch_locked(lm_watch *opened) {
  lm_watch_replace(&incoming, opened);
  has_incoming = is_running || opened;
  loam_status status = start_locked();
  lm_policy_set_watched(opened && is_running);
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
  lm_service_lock();
  snprintf(followed, sizeof followed, "%s", path ? path : "");
  loam_status status = change_watch_locked(opened);
  lm_service_unlock();
  lm_board_write();
  return report_failure(status);
}

bool lm_control_is_valid(void) {
  lm_service_lock();
  bool has_none = wakeup[0].fd < 0 && wakeup[1].fd < 0 && control_socket.listener.fd < 0;
  bool is_valid = lm_control_socket_is_valid(&control_socket) && (has_incoming || !incoming) &&
                  (is_running || (has_none && !has_lost));
  lm_service_unlock();
  return is_valid;
}

bool lm_control_is_open(void) {
  lm_service_lock();
  bool is_open = is_running && lm_descriptor_is_ours(&control_socket.listener);
  lm_service_unlock();
  return is_open;
}

/* Called when a policy has become live. If live memory is to follow it, the service thread will
 * move the memory; it is started for that. A failure is reported as an event. A policy that becomes
 * live while a thread waits for the end of the service moves nothing. */
static void apply_live_policy(bool is_followed) {
  if (!is_followed) {
    lm_chores_end_applying();
    return;
  }
  register_hooks_once();
  lm_service_lock();
  if ((is_guest && !is_running) || is_awaited) {
    lm_service_unlock();
    return;
  }
  lm_chores_want_applying();
  loam_status status = start_locked();
  wake_service();
  lm_service_unlock();
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
  lm_service_lock();
  bool is_wanted = !is_stopping && !strcmp(path, followed);
  if (is_wanted) status = change_watch_locked(opened);
  lm_service_unlock();
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
  lm_service_lock();
  bool was_asleep = end_sleep_locked();
  if (was_asleep) status = start_locked();
  bool is_whole = was_asleep && !has_lost;
  memcpy(path, followed, sizeof path);
  lm_service_unlock();
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
