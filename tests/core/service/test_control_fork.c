/* test_control_fork.c - the service thread of a forked child: control.h. */
#include <dirent.h>
#include <sched.h>

#include "control_fixture.h"
#include "loam.h"

/* Counts the descriptors that are not files: sockets, and inotify. */
static int count_wakers(void) {
  char path[300], target[64];
  int n = 0;
  DIR *dir = opendir("/proc/self/fd");
  for (struct dirent *d; (d = readdir(dir));) {
    snprintf(path, sizeof path, "/proc/self/fd/%s", d->d_name);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    n += !strncmp(target, "socket:", 7) || !strncmp(target, "anon_inode:", 11) ||
         !strncmp(target, "pipe:", 5);
  }
  closedir(dir);
  return n;
}

/* Allocates and frees a small block many times. The thread's cache serves the block. */
static void use(int times) {
  for (int i = 0; i < times; i++) loam_free(loam_malloc(NULL, 64));
}

#ifdef __SANITIZE_THREAD__
enum { ARE_CHILDREN_SERVED = false };
#else
enum { ARE_CHILDREN_SERVED = true };
#endif

/* A child of a fork hangs if another thread of the parent is in the allocator of the address
 * sanitizer at that moment, as a thread that starts is. An answer shows that the service has
 * started. */
#ifdef __SANITIZE_ADDRESS__
enum { WAITS_FOR_SERVICE = true };
#else
enum { WAITS_FOR_SERVICE = false };
#endif

/* Starts the service with a socket and a watched policy. The parent allocates first, so that
 * everything which an allocation needs is ready before the fork. */
static void serve(void) {
  if (!ARE_CHILDREN_SERVED) {
    print_message("skipped: the thread sanitizer cannot have a forked child start threads\n");
    skip();
  }
  use(100);
  save(ALL_OF("parent"));
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  assert_int_equal(lm_policy_load_file(file), LOAM_OK);
  assert_int_equal(lm_control_watch(file), LOAM_OK);
  use(100);
  if (WAITS_FOR_SERVICE) assert_int_equal(ask(getpid(), "ping"), LOAM_OK);
}

enum { MUCH = 2000 };

/* Runs in a child: returns 0 if the service works there, else the number of the check that
 * failed. */
static int is_served(void) {
  if (!exists(socket_of(getpid()))) return 2;
  if (ask(getpid(), "ping")) return 3;
  char text[256];
  uint64_t before = generation();
  snprintf(text, sizeof text, ALL_OF("child %d"), getpid(), getpid());
  save(text);
  if (!reaches(before + 1)) return 4;
  lm_control_stop();
  return exists(socket_of(getpid())) ? 5 : 0;
}

static int allocates(void *argument) {
  if (exists(socket_of(getpid()))) return 1; /* too early for a service thread */
  use(*(int *)argument);
  return is_served();
}

static int rests_and_allocates(void *argument) {
  usleep(200000);
  return allocates(argument);
}

static int forks_and_allocates(void *argument) {
  if (run_in_child(allocates, argument)) return 9;
  return exists(socket_of(getpid())) ? 10 : allocates(argument);
}

static void *use_much(void *unused) {
  use(MUCH);
  return unused;
}

static int allocates_in_a_thread(void *argument) {
  (void)argument;
  pthread_join(start_thread(use_much, NULL), NULL);
  return is_served();
}

static void a_forked_child_that_allocates_much_is_served(void **state) {
  (void)state;
  int much = MUCH;
  serve();
  assert_int_equal(run_in_child(allocates, &much), 0);
  assert_int_equal(ask(getpid(), "ping"), LOAM_OK);
  assert_int_equal(run_in_child(allocates_in_a_thread, NULL), 0);
}

static void a_forked_child_is_served_once_it_is_no_longer_young(void **state) {
  (void)state;
  int once = 1;
  serve();
  assert_int_equal(run_in_child(rests_and_allocates, &once), 0);
}

static void a_child_of_a_child_is_served_too(void **state) {
  (void)state;
  int much = MUCH;
  serve();
  assert_int_equal(run_in_child(forks_and_allocates, &much), 0);
}

static int stops_and_allocates(void *argument) {
  (void)argument;
  lm_control_stop();
  use(MUCH);
  return exists(socket_of(getpid()));
}

static void a_forked_child_that_stopped_is_left_alone(void **state) {
  (void)state;
  serve();
  assert_int_equal(run_in_child(stops_and_allocates, NULL), 0);
}

static int leaves_its_socket(void *argument) {
  use(MUCH);
  *(int *)argument = getpid();
  return exists(socket_of(getpid())) ? 0 : 2;
}

static int waits_for_its_end(void *argument) {
  const int *pid = argument;
  if (!exists(socket_of(*pid))) return 1;
  use(MUCH);
  for (int naps = 0; exists(socket_of(*pid)) && be_patient(&naps);) continue;
  return exists(socket_of(*pid)) ? 2 : 0;
}

static void a_forked_child_removes_sockets_of_those_that_are_gone(void **state) {
  (void)state;
  serve();
  int *pid = mmap(NULL, LM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_int_equal(run_in_child(leaves_its_socket, pid), 0);
  assert_int_equal(run_in_child(waits_for_its_end, pid), 0);
  assert_int_equal(ask(getpid(), "ping"), LOAM_OK);
  munmap(pid, LM_PAGE);
}

static int check_wakers(void *most) { return count_wakers() <= *(int *)most ? 0 : 1; }

static int answers_again(void *argument) {
  (void)argument;
  lm_control_stop();
  if (lm_control_start(NULL, true)) return 1;
  return ask(getpid(), "ping") ? 2 : 0;
}

/* The test forks right after a request, when the parent's service thread is often still closing the
 * client. */
static void a_forked_child_begins_with_no_client(void **state) {
  (void)state;
  serve();
  for (int i = 0; i < 100; i++) {
    assert_int_equal(ask(getpid(), "ping"), LOAM_OK);
    assert_int_equal(run_in_child(answers_again, NULL), 0);
  }
}

static void a_forked_child_keeps_no_descriptor_of_ours(void **state) {
  (void)state;
  int before = count_wakers();
  save(ALL_OF("parent"));
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  assert_int_equal(lm_control_watch(file), LOAM_OK);
  assert_int_equal(ask(getpid(), "ping"), LOAM_OK);
  assert_true(count_wakers() >= before + 3); /* a listener, a pair of sockets, a watch */
  for (int i = 0; i < 20; i++) assert_int_equal(run_in_child(check_wakers, &before), 0);
}

enum { REFUSED = 77 }; /* the result where the system allows no such namespaces */

static int follows_an_edit(void *unused) {
  (void)unused;
  use(MUCH);
  uint64_t before = generation();
  save(ALL_OF("child"));
  return reaches(before + 1) ? 0 : 30;
}

static void *fork_into_a_namespace(void *result) {
  *(int *)result = unshare(CLONE_NEWPID) ? REFUSED : run_in_child(follows_an_edit, NULL);
  return NULL;
}

/* The child loses a thread of its parent whose number is the child's own. */
static int fork_beside_the_main_thread(void *unused) {
  (void)unused;
  int result;
  save(ALL_OF("parent"));
  if (lm_control_start(NULL, false) || lm_policy_load_file(file) || lm_control_watch(file))
    return 31;
  pthread_join(start_thread(fork_into_a_namespace, &result), NULL);
  return result;
}

/* Both are process 1 of a PID namespace. */
static int fork_with_one_id(void *unused) {
  (void)unused;
  if (unshare(CLONE_NEWUSER | CLONE_NEWPID)) return REFUSED;
  return run_in_child(fork_beside_the_main_thread, NULL);
}

static void a_child_with_its_parents_process_id_is_served_too(void **state) {
  (void)state;
  int result = ARE_CHILDREN_SERVED ? run_in_child(fork_with_one_id, NULL) : REFUSED;
  if (result == REFUSED) print_message("not tried: there can be no PID namespace, or service\n");
  if (result == REFUSED) skip();
  assert_int_equal(result, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(a_forked_child_that_allocates_much_is_served),
    TEST(a_forked_child_is_served_once_it_is_no_longer_young),
    TEST(a_child_of_a_child_is_served_too),
    TEST(a_forked_child_that_stopped_is_left_alone),
    TEST(a_forked_child_removes_sockets_of_those_that_are_gone),
    TEST(a_forked_child_begins_with_no_client),
    TEST(a_forked_child_keeps_no_descriptor_of_ours),
    TEST(a_child_with_its_parents_process_id_is_served_too),
  };
  setenv("LOAM_CONTROL", "0", 1); /* the first allocation must not start the socket */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
