/* test_listen.c - sockets that listen: addresses and paths that are in use are refused in words, an
 * abandoned socket file is replaced, and a signal ends the wait. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/listen.h"
#include "loam.h"

static char folder[] = "/tmp/loam-listen-XXXXXX";

static int make_folder(void **state) {
  (void)state;
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
  (void)state;
  return rmdir(folder);
}

static const char *path_of(const char *name) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void expect_words(const char *words) {
  if (!strstr(loam_error(), words)) fail_msg("no '%s' in: %s", words, loam_error());
}

/* Returns a connection to a port of the loopback interface; -1: no program listens there. */
static int connect_to(int port) {
  struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (!connect(fd, (struct sockaddr *)&at, sizeof at)) return fd;
  close(fd);
  return -1;
}

static void a_port_in_use_is_refused(void **state) {
  (void)state;
  int first, second, port, other;
  char text[8];
  assert_int_equal(lm_listen_tcp("127.0.0.1", "0", &first, &port), LOAM_OK);
  assert_true(port > 0);
  snprintf(text, sizeof text, "%d", port);
  assert_int_equal(lm_listen_tcp("127.0.0.1", text, &second, &other), LOAM_EIO);
  expect_words(text);
  expect_words("Address already in use");
  int client = connect_to(port);
  assert_true(client >= 0);
  close(client);
  close(first);
}

static void an_address_of_another_machine_is_refused(void **state) {
  (void)state;
  int fd, port;
  assert_int_equal(lm_listen_tcp("192.0.2.1", "0", &fd, &port), LOAM_EIO);
  expect_words("cannot listen on 192.0.2.1:0: ");
}

static void without_a_host_all_addresses_are_meant(void **state) {
  (void)state;
  int fd, port;
  assert_int_equal(lm_listen_tcp("", "0", &fd, &port), LOAM_OK);
  int client = connect_to(port);
  assert_true(client >= 0);
  close(client);
  close(fd);
}

static void an_abandoned_socket_is_replaced(void **state) {
  (void)state;
  int first, second;
  const char *path = path_of("socket");
  assert_int_equal(lm_listen_unix(path, &first), LOAM_OK);
  assert_int_equal(lm_listen_unix(path, &second), LOAM_EIO);
  expect_words("another program listens there");
  close(first);
  assert_int_equal(lm_listen_unix(path, &second), LOAM_OK);
  close(second);
  assert_int_equal(unlink(path), 0);
}

/* Any user can lock a folder such as /tmp. */
static void a_locked_folder_does_not_keep_a_program_from_listening(void **state) {
  (void)state;
  int fd, locked = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const char *path = path_of("socket");
  assert_int_equal(flock(locked, LOCK_EX), 0);
  assert_int_equal(lm_listen_unix(path, &fd), LOAM_OK);
  close(fd);
  assert_int_equal(lm_listen_unix(path, &fd), LOAM_EIO);
  expect_words("an abandoned socket is there");
  expect_words("locked");
  close(locked);
  assert_int_equal(lm_listen_unix(path, &fd), LOAM_OK);
  close(fd);
  assert_int_equal(unlink(path), 0);
}

enum { RIVALS = 8, RACES = 100 };
static pthread_barrier_t start;
static _Atomic int winners;

/* Tries to listen at a path while other threads try. Returns 1 plus the descriptor if it listens,
 * else NULL. */
static void *compete(void *path) {
  int fd;
  pthread_barrier_wait(&start);
  if (lm_listen_unix(path, &fd) != LOAM_OK) return NULL;
  atomic_fetch_add(&winners, 1);
  return (void *)(intptr_t)(fd + 1);
}

static void of_those_that_replace_one_socket_at_a_time_one_listens(void **state) {
  pthread_t rival[RIVALS];
  int dead;
  char *path = strdup(path_of("contested"));
  (void)state;
  pthread_barrier_init(&start, NULL, RIVALS);
  assert_int_equal(lm_listen_unix(path, &dead), LOAM_OK);
  close(dead);
  for (int race = 0; race < RACES; race++) {
    void *won[RIVALS];
    winners = 0;
    for (int i = 0; i < RIVALS; i++)
      assert_int_equal(pthread_create(&rival[i], NULL, compete, path), 0);
    for (int i = 0; i < RIVALS; i++) pthread_join(rival[i], &won[i]);
    for (int i = 0; i < RIVALS; i++)
      if (won[i]) close((int)(intptr_t)won[i] - 1);
    assert_int_equal(winners, 1);
  }
  pthread_barrier_destroy(&start);
  assert_int_equal(unlink(path), 0);
  free(path);
}

static void a_file_is_not_replaced(void **state) {
  (void)state;
  int fd, file = open(path_of("file"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  assert_true(file >= 0);
  close(file);
  assert_int_equal(lm_listen_unix(path_of("file"), &fd), LOAM_EIO);
  expect_words("it exists and is no socket");
  assert_int_equal(unlink(path_of("file")), 0);
  assert_int_equal(lm_listen_unix(path_of("none/socket"), &fd), LOAM_EIO);
  expect_words("No such file or directory");
}

static void a_long_path_is_refused(void **state) {
  (void)state;
  int fd;
  char path[200];
  memset(path, 'x', sizeof path - 1);
  path[sizeof path - 1] = 0;
  assert_int_equal(lm_listen_unix(path, &fd), LOAM_EINVAL);
  expect_words("the path has 199 bytes; at most 107 are possible");
}

static void a_signal_or_data_end_the_waiting(void **state) {
  (void)state;
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  assert_false(lm_listen_wait(ends[0], 0));
  assert_int_equal(write(ends[1], "x", 1), 1);
  assert_false(lm_listen_wait(ends[0], 600000));
  char byte;
  assert_int_equal(read(ends[0], &byte, 1), 1);
  for (const int *s = (const int[]){ SIGINT, SIGTERM, SIGHUP, 0 }; *s; s++) {
    kill(getpid(), *s);
    assert_true(lm_listen_wait(ends[0], 600000));
    assert_false(lm_listen_wait(ends[0], 0));
  }
  close(ends[0]);
  close(ends[1]);
}

/* Runs first, because the descriptor of signals stays open. */
static void without_a_descriptor_signals_end_the_process(void **state) {
  (void)state;
  int status;
  pid_t child = fork();
  if (!child) {
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 0, 0 });
    (void)lm_listen_wait(-1, 0);
    raise(SIGTERM);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

static void a_command_that_ignores_a_closed_terminal_goes_on(void **state) {
  (void)state;
  sigset_t set;
  lm_listen_ending_signals(&set);
  assert_true(sigismember(&set, SIGHUP));
  signal(SIGHUP, SIG_IGN);
  lm_listen_ending_signals(&set);
  assert_false(sigismember(&set, SIGHUP));
  assert_true(sigismember(&set, SIGINT));
  signal(SIGHUP, SIG_DFL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(without_a_descriptor_signals_end_the_process),
    cmocka_unit_test(a_port_in_use_is_refused),
    cmocka_unit_test(an_address_of_another_machine_is_refused),
    cmocka_unit_test(without_a_host_all_addresses_are_meant),
    cmocka_unit_test(an_abandoned_socket_is_replaced),
    cmocka_unit_test(a_locked_folder_does_not_keep_a_program_from_listening),
    cmocka_unit_test(of_those_that_replace_one_socket_at_a_time_one_listens),
    cmocka_unit_test(a_file_is_not_replaced),
    cmocka_unit_test(a_long_path_is_refused),
    cmocka_unit_test(a_signal_or_data_end_the_waiting),
    cmocka_unit_test(a_command_that_ignores_a_closed_terminal_goes_on),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
