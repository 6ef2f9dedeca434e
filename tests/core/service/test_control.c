/* test_control.c - the service thread, its socket, and its effects on a process: control.h. */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "control_fixture.h"
#include "move/rebalance.h"
#include "os/available.h"
#include "os/error.h"
#include "os/numa.h"
#include "os/pressure.h"
#include "os/sys.h"
#include "pages/regions.h"
#include "service/control.h"
#include "service/control_socket.h"
#include "service/policy.h"

static void a_listener_without_a_path_or_an_owner_is_not_valid(void **state) {
  (void)state;
  lm_control_socket s = { .listener = { .fd = -1 } };
  assert_true(lm_control_socket_is_valid(&s));
  assert_int_equal(lm_control_socket_open(&s, folder), LOAM_OK);
  assert_true(lm_control_socket_is_valid(&s));
  lm_control_socket broken = s;
  broken.path[0] = 0;
  assert_false(lm_control_socket_is_valid(&broken));
  broken = s;
  broken.owner = 0;
  assert_false(lm_control_socket_is_valid(&broken));
  lm_control_socket_close(&s);
  assert_true(lm_control_socket_is_valid(&s));
}

/* Makes a socket on which no process listens, like the socket of a process that has ended. Returns
 * its path. */
static const char *leave_socket(void) {
  static struct sockaddr_un at;
  at.sun_family = AF_UNIX;
  snprintf(at.sun_path, sizeof at.sun_path, "%s/999999999.sock", folder);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
  close(fd);
  return at.sun_path;
}

static void no_pid(void *ctx, int pid) {
  (void)ctx;
  (void)pid;
}

/* Between bind and listen, a new socket looks like an abandoned one. */
static void no_socket_is_removed_while_a_host_makes_one(void **state) {
  (void)state;
  int folder_of_host = lm_control_lock(folder, 0);
  assert_true(folder_of_host >= 0);
  const char *path = leave_socket();
  lm_control_clean(folder);
  assert_int_equal(lm_control_hosts(no_pid, NULL), LOAM_OK);
  assert_int_equal(access(path, F_OK), 0);
  lm_control_unlock(folder_of_host);
  lm_control_clean(folder);
  assert_int_equal(access(path, F_OK), -1);
}

static void a_socket_is_made_although_the_folder_stays_locked(void **state) {
  (void)state;
  lm_control_socket s = { .listener = { .fd = -1 } };
  int kept = lm_control_lock(folder, 0);
  assert_int_equal(lm_control_lock(folder, 0), -1);
  int64_t began_ns = lm_sys_clock_ns();
  assert_int_equal(lm_control_socket_open(&s, folder), LOAM_OK);
  assert_true(lm_sys_clock_ns() - began_ns >= 50000000); /* the call waited for the lock */
  lm_control_socket_close(&s);
  lm_control_unlock(kept);
}

/* ---- answers */

static void it_answers_status(void **state) {
  (void)state;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  assert_int_equal(lm_policy_load("told.lua", ALL_OF("told"), strlen(ALL_OF("told"))), LOAM_OK);
  assert_int_equal(ask(getpid(), "status"), LOAM_OK);
  expect_words("\"name\":\"told\"");
  expect_words("\"program\":\"test_control\"");
  expect_words("\"watching\":false");
  expect_words("\"last\":{\"ok\":true,");
  assert_int_equal(answer[answered - 1], '\n');
}

static void it_answers_stats(void **state) {
  (void)state;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  void *p = loam_malloc(loam_site_get("control.test"), 1000);
  assert_int_equal(ask(getpid(), "stats"), LOAM_OK);
  expect_words("\"live_bytes\":");
  expect_words("\"rows\":[{");
  expect_words("\"tag\":\"control.test\"");
  loam_free(p);
}

static void an_answer_is_cut_off_where_the_buffer_ends(void **state) {
  (void)state;
  char small[8];
  int fd = -1;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  lm_control_request request = { getpid(), "status", 5000 };
  assert_int_equal(lm_control_fetch(&request, small, sizeof small, &fd), LOAM_OK);
  assert_string_equal(small, "{\"pid\":");
}

static void it_reloads_and_reports_the_whole_error(void **state) {
  (void)state;
  char request[128];
  save(ALL_OF("asked"));
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  snprintf(request, sizeof request, "reload %s", file);
  assert_int_equal(ask(getpid(), request), LOAM_OK);
  expect_words("{\"ok\":true");
  uint64_t before = generation();
  save("return 1\n");
  assert_int_equal(ask(getpid(), "reload"), LOAM_OK);
  expect_words("{\"ok\":false");
  expect_words("policy.lua");
  expect_words("does not return a policy");
  assert_int_equal(generation(), before);
  assert_int_equal(ask(getpid(), "status"), LOAM_OK);
  expect_words("\"last\":{\"ok\":false");
  expect_words("\"name\":\"asked\"");
}

static void unknown_requests_are_answered_with_the_known(void **state) {
  (void)state;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  assert_int_equal(ask(getpid(), "explode \x01\xff"), LOAM_OK);
  expect_words("\"ok\":false");
  expect_words("status, stats, reload");
  assert_int_equal(ask(getpid(), ""), LOAM_OK);
  expect_words("\"ok\":false");
  assert_int_equal(ask(getpid(), "two\nlines"), LOAM_EINVAL);
}

static void it_answers_many_at_once(void **state) {
  (void)state;
  int fds[40];
  char text[64];
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  for (int i = 0; i < 16; i++) fds[i] = dial();
  for (int i = 0; i < 16; i++) assert_int_equal(send(fds[i], "ping\n", 5, MSG_NOSIGNAL), 5);
  for (int i = 0; i < 16; i++) {
    assert_true(recv(fds[i], text, sizeof text, 0) > 0);
    close(fds[i]);
  }
}

/* ---- the socket's place */

static void the_socket_is_its_owners_alone_whatever_the_umask(void **state) {
  (void)state;
  struct stat st;
  char deeper[80];
  snprintf(deeper, sizeof deeper, "%s/new", folder);
  setenv("LOAM_CONTROL_DIR", deeper, 1);
  mode_t before = umask(0);
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  umask(before);
  assert_int_equal(stat(deeper, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0700);
  strcat(deeper, "/");
  sprintf(deeper + strlen(deeper), "%d.sock", getpid());
  assert_int_equal(stat(deeper, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0600);
}

static loam_event_kind last_event;

static void note_event(void *ctx, const loam_event *event) {
  (void)ctx;
  last_event = event->kind;
}

static void fails_in_words(const char *dir, const char *words) {
  last_event = 0;
  loam_on_event(note_event, NULL);
  assert_int_equal(lm_control_start(dir, true), LOAM_EIO);
  loam_on_event(NULL, NULL);
  assert_int_equal(last_event, LOAM_EVENT_CONTROL);
  if (!strstr(loam_error(), words)) fail_msg("expected %s in %s", words, loam_error());
  void *p = loam_malloc(NULL, 10);
  assert_non_null(p);
  loam_free(p);
}

static void a_place_that_cannot_be_is_an_event_and_no_more(void **state) {
  (void)state;
  char path[300], longer[128];
  fails_in_words("/proc/nothing", "/proc/nothing");
  fails_in_words("/nonexistent/below", "No such file");
  snprintf(path, sizeof path, "%s/file", folder);
  close(open(path, O_CREAT | O_WRONLY, 0600));
  fails_in_words(path, "not a directory");
  snprintf(path, sizeof path, "%s/open", folder);
  assert_int_equal(mkdir(path, 0700), 0);
  assert_int_equal(chmod(path, 0777), 0);
  fails_in_words(path, "only user");
  memset(longer, 'x', sizeof longer);
  longer[0] = '/';
  longer[105] = 0;
  fails_in_words(longer, "/xxx");
  longer[105] = 'x';
  longer[sizeof longer - 1] = 0;
  fails_in_words(longer, "at most");
}

/* Otherwise another user could direct root to any folder. */
static void a_link_of_another_user_is_not_followed(void **state) {
  (void)state;
  enum { NOBODY = 65534 };
  char link[80], below[96], target[80];
  snprintf(target, sizeof target, "%s/target", folder);
  snprintf(link, sizeof link, "%s/link", folder);
  snprintf(below, sizeof below, "%s/below", link);
  assert_int_equal(mkdir(target, 0700), 0);
  assert_int_equal(symlink(target, link), 0);
  if (lchown(link, NOBODY, NOBODY)) skip(); /* only root can give a link away */
  fails_in_words(below, "link: is a symbolic link of another user");
  assert_false(exists(below));
  assert_int_equal(lchown(link, geteuid(), getegid()), 0);
  assert_int_equal(lm_control_start(below, true), LOAM_OK);
  assert_true(exists(below));
}

static void a_stale_socket_is_replaced(void **state) {
  (void)state;
  close(bound_elsewhere());
  assert_true(exists(socket_of(getpid())));
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  assert_int_equal(ask(getpid(), "ping"), LOAM_OK);
}

static int listen_at(void *fd) { return listen(*(int *)fd, 4); }

/* A socket belongs to the process that calls listen(2). */
static void a_socket_of_another_host_is_left_alone(void **state) {
  (void)state;
  int fd = bound_elsewhere();
  assert_int_equal(run_in_child(listen_at, &fd), 0);
  fails_in_words(folder, "another process listens");
  assert_int_equal(listen_at(&fd), 0);
  fails_in_words(folder, "another copy of loam in this process listens");
  assert_true(exists(socket_of(getpid())));
  close(fd);
}

/* A datagram socket refuses a stream connection, so loam cannot find out whether a process uses
 * it. */
static void a_socket_that_cannot_be_asked_is_left_alone(void **state) {
  (void)state;
  struct sockaddr_un address = own_address();
  int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
  fails_in_words(folder, "Protocol wrong type for socket");
  assert_true(exists(address.sun_path));
  close(fd);
}

/* Each round allows one more descriptor than the round before, until the start succeeds. */
static int start_with_few_descriptors(void *argument) {
  (void)argument;
  struct rlimit few;
  int next = dup(0);
  close(next);
  close(bound_elsewhere());
  if (getrlimit(RLIMIT_NOFILE, &few)) return 1;
  for (few.rlim_cur = (rlim_t)next;; few.rlim_cur++) {
    if (setrlimit(RLIMIT_NOFILE, &few)) return 2;
    if (lm_control_start(NULL, true) == LOAM_OK) return 0;
    if (!strstr(loam_error(), "Too many open files")) return 3;
  }
}

static void no_descriptor_to_ask_a_socket_is_said_in_words(void **state) {
  (void)state;
  assert_int_equal(run_in_child(start_with_few_descriptors, NULL), 0);
}

static int fill_disk(void *argument) {
  (void)argument;
  struct rlimit none = { 0, 0 };
  if (setrlimit(RLIMIT_NOFILE, &none)) return 1;
  if (lm_control_start(NULL, true) != LOAM_EIO) return 2;
  void *p = loam_malloc(NULL, 100000);
  return p ? 0 : 3;
}

static void no_descriptors_left_harm_no_request(void **state) {
  (void)state;
  assert_int_equal(run_in_child(fill_disk, NULL), 0);
}

/* ---- stopping */

static int count_fds(void) {
  int n = 0;
  DIR *dir = opendir("/proc/self/fd");
  while (readdir(dir)) n++;
  closedir(dir);
  return n;
}

static int count_threads(void) {
  int n = 0;
  DIR *dir = opendir("/proc/self/task");
  while (readdir(dir)) n++;
  closedir(dir);
  return n;
}

static void stopping_leaves_nothing_behind(void **state) {
  (void)state;
  int fds = count_fds(), threads = count_threads();
  save(ALL_OF("stopped"));
  for (int i = 0; i < 20; i++) {
    assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
    assert_int_equal(lm_control_watch(file), LOAM_OK);
    assert_true(lm_policy_is_watched());
    assert_true(exists(socket_of(getpid())));
    lm_control_stop();
    assert_false(lm_policy_is_watched());
    assert_false(exists(socket_of(getpid())));
  }
  lm_control_stop();
  assert_int_equal(count_fds(), fds);
  /* The kernel still lists a thread for a moment after it was joined. */
  for (int naps = 0; count_threads() > threads && be_patient(&naps);) continue;
  assert_in_range(count_threads(), 1, threads);
}

static void stop_from_callback(void *ctx, const loam_event *event) {
  (void)event;
  lm_control_stop();
  *(_Atomic int *)ctx = 1;
}

static void it_can_be_stopped_by_its_own_callback(void **state) {
  (void)state;
  _Atomic int stopped = 0;
  save("return 1\n");
  loam_on_event(stop_from_callback, (void *)&stopped);
  assert_int_equal(lm_control_watch(file), LOAM_OK);
  for (int naps = 0; !stopped && be_patient(&naps);) continue;
  assert_int_equal(stopped, 1);
  loam_on_event(NULL, NULL);
  for (int naps = 0; lm_policy_is_watched() && be_patient(&naps);) continue;
  save(ALL_OF("again"));
  uint64_t before = generation();
  assert_int_equal(lm_control_watch(file), LOAM_OK);
  assert_true(reaches(before + 1));
}

/* Closes the descriptors of the service, and all others above 63. The system call is made directly,
 * because the thread sanitizer would report close() as a race. */
static void close_ours(void) {
  for (int fd = 64; fd < 4096; fd++) syscall(SYS_close, fd);
}

static bool is_asleep(void) { return atomic_load(&lm_control_asleep); }

static void wait_until_robbed(void) {
  for (int naps = 0; !is_asleep() && be_patient(&naps);) continue;
  assert_true(is_asleep());
}

static void use(int times) {
  for (int i = 0; i < times; i++) loam_free(loam_malloc(NULL, 64));
}

static void serve(void) {
  use(1);
  save(ALL_OF("robbed"));
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  assert_int_equal(lm_policy_load_file(file), LOAM_OK);
  assert_int_equal(lm_control_watch(file), LOAM_OK);
}

static void is_served(void) {
  char text[256];
  uint64_t before = generation();
  snprintf(text, sizeof text, ALL_OF("served %d"), (int)before, (int)before);
  assert_true(lm_control_is_open());
  assert_int_equal(ask(getpid(), "ping"), LOAM_OK);
  save_whole(text);
  assert_true(reaches(before + 1));
}

static void what_the_host_closes_is_opened_amid_its_allocations(void **state) {
  (void)state;
  close_ours();
  int fds = count_fds();
  serve();
  int served = count_fds();
  for (int i = 0; i < 5; i++) {
    close_ours();
    wait_until_robbed();
    assert_in_range(count_fds(), fds, served - 1);
    use(600);
    assert_true(exists(socket_of(getpid())));
    assert_false(is_asleep());
    is_served();
  }
  assert_in_range(count_fds(), fds, served + 1); /* a client may still be connected */
}

static void what_a_host_that_allocates_nothing_closes_is_opened_too(void **state) {
  (void)state;
  serve();
  close_ours();
  wait_until_robbed();
  for (int naps = 0; is_asleep() && be_patient(&naps);) continue;
  for (int naps = 0; !lm_control_is_open() && be_patient(&naps);) continue;
  is_served();
}

static void a_robbed_service_can_be_stopped(void **state) {
  (void)state;
  int threads = count_threads();
  for (int i = 0; i < 5; i++) {
    serve();
    close_ours();
    if (i & 1) wait_until_robbed();
    lm_control_stop();
    assert_false(is_asleep());
    assert_false(lm_control_is_open());
    for (int naps = 0; count_threads() > threads && be_patient(&naps);) continue;
    use(600);
    assert_false(exists(socket_of(getpid())));
  }
  serve();
  is_served();
}

static void where_no_descriptor_is_left_it_is_tried_again(void **state) {
  (void)state;
  struct rlimit before, none;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  none = (struct rlimit){ 3, before.rlim_max };
  loam_on_event(note_event, NULL);
  serve();
  last_event = 0;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  close_ours();
  wait_until_robbed();
  use(2000);
  bool open = lm_control_is_open();
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  assert_false(open);
  assert_true(is_asleep());
  assert_int_equal(last_event, 0);
  loam_on_event(NULL, NULL);
  use(600);
  is_served();
}

static int exit_as_host(void *argument) {
  (void)argument;
  if (lm_control_start(NULL, true)) return 1;
  exit(0);
}

static void a_host_that_exits_removes_its_socket(void **state) {
  (void)state;
  pid_t pid = fork();
  if (!pid) _exit(exit_as_host(NULL));
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_false(exists(socket_of(pid)));
}

/* ---- following a file */

static void an_edit_goes_live(void **state) {
  (void)state;
  save(ALL_OF("one"));
  assert_int_equal(lm_policy_load_file(file), LOAM_OK);
  uint64_t before = generation();
  assert_int_equal(lm_control_watch(file), LOAM_OK);
  save(ALL_OF("two"));
  assert_true(reaches(before + 1));
  struct loam_policy_info info;
  lm_policy_info_get(&info);
  assert_string_equal(info.name, "two");
  assert_int_equal(info.watching, 1);
}

static void wait_for_refusals(uint64_t wanted, struct loam_policy_info *info) {
  for (int naps = 0; info->refused < wanted && be_patient(&naps);) lm_policy_info_get(info);
}

static void a_broken_edit_keeps_the_last_good(void **state) {
  (void)state;
  struct loam_policy_info info;
  save(ALL_OF("good"));
  assert_int_equal(lm_policy_load_file(file), LOAM_OK);
  lm_policy_info_get(&info);
  uint64_t before = info.generation, refused = info.refused;
  assert_int_equal(lm_control_watch(file), LOAM_OK);
  save("");
  wait_for_refusals(refused + 1, &info);
  assert_int_equal(info.generation, before);
  assert_non_null(strstr(info.last_error, "empty"));
  unlink(file);
  wait_for_refusals(refused + 2, &info);
  assert_non_null(strstr(info.last_error, "No such file"));
  assert_int_equal(info.generation, before);
  save_whole(ALL_OF("mended"));
  assert_true(reaches(before + 1));
  lm_policy_info_get(&info);
  assert_int_equal(info.refused, refused + 2);
}

static void reloading_another_file_follows_that_one(void **state) {
  (void)state;
  char other[128], request[160];
  save(ALL_OF("first"));
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  assert_int_equal(lm_policy_load_file(file), LOAM_OK);
  assert_int_equal(lm_control_watch(file), LOAM_OK);
  snprintf(other, sizeof other, "%s.other", file);
  snprintf(request, sizeof request, "reload %s", other);
  assert_int_equal(rename(file, other), 0);
  assert_int_equal(ask(getpid(), request), LOAM_OK);
  expect_words("{\"ok\":true");
  uint64_t before = generation();
  strcpy(file, other);
  save(ALL_OF("second"));
  assert_true(reaches(before + 1));
}

/* ---- the client ---- */

static void asking_an_unknown_process_fails_in_words(void **state) {
  (void)state;
  assert_int_equal(ask(1, "status"), LOAM_EIO);
  assert_non_null(strstr(loam_error(), "process 1 cannot be asked"));
}

static void a_host_that_does_not_answer_is_given_up(void **state) {
  (void)state;
  int fd = bound_elsewhere();
  assert_int_equal(listen(fd, 4), 0);
  assert_int_equal(lm_control_ask(&(lm_control_request){ getpid(), "status", 50 }, gather, NULL),
                   LOAM_EIO);
  assert_non_null(strstr(loam_error(), "did not answer within 50 ms"));
  close(fd);
}

static int hosts, own_pid_found;

static void note_host(void *ctx, int pid) {
  (void)ctx;
  hosts++;
  if (pid == getpid()) own_pid_found++;
}

static void hosts_are_listed_and_stale_sockets_removed(void **state) {
  (void)state;
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_of(999999));
  assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
  close(fd);
  save(ALL_OF("not a socket"));
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  hosts = own_pid_found = 0;
  assert_int_equal(lm_control_hosts(note_host, NULL), LOAM_OK);
  assert_int_equal(hosts, 1);
  assert_int_equal(own_pid_found, 1);
  assert_false(exists(socket_of(999999)));
  assert_true(exists(file));
}

/* A host that loads a policy does not answer, for example. */
static void a_host_that_does_not_answer_is_listed(void **state) {
  (void)state;
  int fd = bound_elsewhere();
  assert_int_equal(listen(fd, 4), 0);
  hosts = own_pid_found = 0;
  assert_int_equal(lm_control_hosts(note_host, NULL), LOAM_OK);
  assert_int_equal(own_pid_found, 1);
  assert_true(exists(socket_of(getpid())));
  close(fd);
}

static void no_words(void *ctx, const char *text, size_t length) {
  (void)ctx, (void)text, (void)length;
}

/* Static, because the address sanitizer does not see that a cancelled thread leaves a frame. */
static lm_control_request for_status = { .line = "status", .timeout_ms = 5000 };

static void *look_when_cancelled(void *was_over) {
  pthread_cancel(pthread_self());
  *(bool *)was_over = lm_control_ask(&for_status, no_words, NULL) == LOAM_OK &&
                      lm_control_hosts(no_pid, NULL) == LOAM_OK;
  pthread_testcancel();
  return NULL;
}

static void a_cancelled_thread_leaves_no_descriptor_and_no_lock(void **state) {
  (void)state;
  bool was_over = false;
  void *end;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  int before = count_fds();
  (void)leave_socket();
  for_status.pid = getpid();
  assert_int_equal(pthread_join(start_thread(look_when_cancelled, &was_over), &end), 0);
  assert_true(was_over && end == PTHREAD_CANCELED);
  while (count_fds() > before) lm_sys_sleep(1000000); /* the service also closes its end */
  int folder_of_host = lm_control_lock(folder, 0);
  assert_true(folder_of_host >= 0);
  lm_control_unlock(folder_of_host);
}

static void no_directory_means_no_hosts(void **state) {
  (void)state;
  setenv("LOAM_CONTROL_DIR", "/nonexistent/nowhere", 1);
  hosts = 0;
  assert_int_equal(lm_control_hosts(note_host, NULL), LOAM_OK);
  assert_int_equal(hosts, 0);
}

/* Reads from /proc which signals the service thread has blocked. Returns false if no thread has the
 * name of the service thread yet. */
static bool find_blocked(uint64_t *out) {
  char path[64], text[2048];
  size_t length;
  bool found = false;
  DIR *dir = opendir("/proc/self/task");
  for (struct dirent *d; !found && (d = readdir(dir));) {
    snprintf(path, sizeof path, "/proc/self/task/%.20s/status", d->d_name);
    if (lm_sys_read_file(path, text, sizeof text, &length)) continue;
    const char *blocked = strstr(text, "SigBlk:\t");
    found = blocked && !strncmp(text, "Name:\tloam\n", 11);
    if (found) *out = strtoull(blocked + 8, NULL, 16);
  }
  closedir(dir);
  return found;
}

static void its_thread_takes_no_signals(void **state) {
  (void)state;
  static const int signals[] = { SIGINT, SIGTERM, SIGCHLD, SIGALRM, SIGUSR1, SIGPIPE, SIGSEGV };
  uint64_t blocked = 0;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  for (int naps = 0; !find_blocked(&blocked) && be_patient(&naps);) continue;
  for (size_t i = 0; i < LM_COUNT(signals); i++) assert_true(blocked >> (signals[i] - 1) & 1);
}

/* ---- gauges ---- */

static void a_gauge_is_kept_while_it_is_read(void **state) {
  (void)state;
  unsigned node = (unsigned)__builtin_ctzll(lm_numa_nodes());
  bool is_kept = false;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  for (int naps = 0;
       !is_kept && be_patient(&naps);) { /* until the service thread keeps the gauge */
    long before = lm_sys_calls();
    for (int i = 0; i < 1000; i++) (void)lm_numa_free(node);
    is_kept = lm_numa_free_is_wanted() && lm_sys_calls() == before && naps > 20;
  }
  assert_true(is_kept);
  for (int naps = 0; lm_numa_free_is_wanted() && be_patient(&naps);) continue;
  assert_false(
      lm_numa_free_is_wanted()); /* the gauge is not read, so the thread does not wake for it */
}

/* ---- memory pressure ---- */

static void write_in_folder(const char *name, const char *text) {
  char path[160];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *to = fopen(path, "w");
  assert_non_null(to);
  fputs(text, to);
  fclose(to);
}

/* Allocates and frees a peak. While memory is not short, the memory of a repeated peak is kept for
 * reuse. */
static void rise_and_fall(void) {
  enum { BLOCKS = 64 };
  char *block[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    block[i] = loam_malloc(NULL, LM_MIB);
    memset(block[i], 1, LM_MIB);
  }
  for (int i = 0; i < BLOCKS; i++) loam_free(block[i]);
}

/* The control group is made of files. The service thread reads its usage while there is memory to
 * give back. */
static void the_service_thread_gives_memory_back_when_the_group_is_full(void **state) {
  (void)state;
  char self[96];
  snprintf(self, sizeof self, "%s/self", folder);
  write_in_folder("self", "0::/\n");
  write_in_folder("memory.high", "100000000\n");
  write_in_folder("memory.current", "95000000\n");
  lm_available_pretend(self, folder, "/proc/meminfo");
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  for (int naps = 0; !lm_pressure_is_short() && be_patient(&naps);) rise_and_fall();
  assert_true(lm_pressure_is_short());
  size_t released = lm_regions_released();
  for (int naps = 0; lm_regions_released() < released + 32 * LM_MIB && be_patient(&naps);)
    rise_and_fall();
  assert_true(lm_regions_released() >= released + 32 * LM_MIB);
  write_in_folder("memory.current", "10000000\n");
  for (int naps = 0; lm_pressure_is_short() && be_patient(&naps);) continue;
  assert_false(lm_pressure_is_short()); /* the service thread reads until the alarm has ended */
  lm_control_stop();
  lm_available_pretend("/proc/self/cgroup", "/sys/fs/cgroup", "/proc/meminfo");
}

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(it_answers_status),
    TEST(it_answers_stats),
    TEST(an_answer_is_cut_off_where_the_buffer_ends),
    TEST(it_reloads_and_reports_the_whole_error),
    TEST(unknown_requests_are_answered_with_the_known),
    TEST(it_answers_many_at_once),
    TEST(the_socket_is_its_owners_alone_whatever_the_umask),
    TEST(a_place_that_cannot_be_is_an_event_and_no_more),
    TEST(a_link_of_another_user_is_not_followed),
    TEST(a_stale_socket_is_replaced),
    TEST(a_socket_of_another_host_is_left_alone),
    TEST(a_socket_that_cannot_be_asked_is_left_alone),
    TEST(no_descriptor_to_ask_a_socket_is_said_in_words),
    TEST(no_descriptors_left_harm_no_request),
    TEST(stopping_leaves_nothing_behind),
    TEST(it_can_be_stopped_by_its_own_callback),
    TEST(what_the_host_closes_is_opened_amid_its_allocations),
    TEST(what_a_host_that_allocates_nothing_closes_is_opened_too),
    TEST(a_robbed_service_can_be_stopped),
    TEST(where_no_descriptor_is_left_it_is_tried_again),
    TEST(a_host_that_exits_removes_its_socket),
    TEST(a_listener_without_a_path_or_an_owner_is_not_valid),
    TEST(no_socket_is_removed_while_a_host_makes_one),
    TEST(a_socket_is_made_although_the_folder_stays_locked),
    TEST(an_edit_goes_live),
    TEST(a_broken_edit_keeps_the_last_good),
    TEST(reloading_another_file_follows_that_one),
    TEST(asking_an_unknown_process_fails_in_words),
    TEST(a_host_that_does_not_answer_is_given_up),
    TEST(hosts_are_listed_and_stale_sockets_removed),
    TEST(a_host_that_does_not_answer_is_listed),
    TEST(a_cancelled_thread_leaves_no_descriptor_and_no_lock),
    TEST(no_directory_means_no_hosts),
    TEST(its_thread_takes_no_signals),
    TEST(a_gauge_is_kept_while_it_is_read),
    TEST(the_service_thread_gives_memory_back_when_the_group_is_full),
  };
  setenv("LOAM_CONTROL", "0", 1); /* the first allocation must not start the socket */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
