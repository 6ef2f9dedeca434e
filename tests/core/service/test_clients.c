/* test_clients.c - clients of the control socket and hosts that misbehave: clients.h and
 * control_client.h. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control_fixture.h"
#include "os/error.h"
#include "os/sys.h"
#include "service/control.h"

static void a_silent_client_does_not_keep_others_waiting(void **state) {
  (void)state;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  int silent = dial();
  assert_int_equal(send(silent, "sta", 3, MSG_NOSIGNAL), 3);
  assert_int_equal(ask(getpid(), "ping"), LOAM_OK);
  close(silent);
}

/* The service has places for 16 clients. A silent client keeps its place for 5 seconds, but not
 * while other clients wait. */
static void many_silent_clients_do_not_keep_others_waiting_long(void **state) {
  (void)state;
  int silent[16];
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  for (int i = 0; i < 16; i++) silent[i] = dial();
  for (int i = 0; i < 16; i++) assert_int_equal(send(silent[i], "sta", 3, MSG_NOSIGNAL), 3);
  int64_t before = lm_sys_clock_ns();
  assert_int_equal(ask(getpid(), "ping"), LOAM_OK);
  assert_in_range((lm_sys_clock_ns() - before) / 1000000, 0, 4000);
  for (int i = 0; i < 16; i++) close(silent[i]);
}

/* The thread of a listener that sends bytes without end, with two descriptors for each byte. */
static void *send_without_end(void *ctx) {
  int to = accept(*(int *)ctx, NULL, NULL), pair[2] = { dup(0), dup(0) };
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof pair)];
  } control = { .head = { CMSG_LEN(sizeof pair), SOL_SOCKET, SCM_RIGHTS } };
  memcpy(CMSG_DATA(&control.head), pair, sizeof pair);
  char byte = 0;
  struct iovec part = { &byte, 1 };
  struct msghdr message = {
    .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
  };
  while (sendmsg(to, &message, MSG_NOSIGNAL) == 1) {
  }
  close(to);
  close(pair[0]);
  close(pair[1]);
  return NULL;
}

static int count_descriptors(void) {
  int n = 0;
  for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
  return n;
}

/* Takes so long for a part of an answer that the next part is already there afterwards. */
static void read_slowly(void *ctx, const char *text, size_t length) {
  (void)ctx, (void)text, (void)length;
  nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
}

static void a_host_that_answers_without_end_is_left_at_the_deadline(void **state) {
  (void)state;
  pthread_t host;
  int listener = bound_elsewhere(), before = count_descriptors();
  assert_int_equal(listen(listener, 1), 0);
  assert_int_equal(pthread_create(&host, NULL, send_without_end, &listener), 0);
  alarm(PATIENCE_S);
  assert_int_equal(
      lm_control_ask(&(lm_control_request){ getpid(), "ping", 200 }, read_slowly, NULL), LOAM_EIO);
  alarm(0);
  assert_non_null(strstr(loam_error(), "did not answer within 200 ms"));
  pthread_join(host, NULL);
  assert_int_equal(count_descriptors(), before);
  close(listener);
  unlink(own_address().sun_path);
}

static void a_client_that_leaves_does_no_harm(void **state) {
  (void)state;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  for (int i = 0; i < 20; i++) {
    int fd = dial();
    if (i & 1) assert_int_equal(send(fd, "stats\n", 6, MSG_NOSIGNAL), 6);
    close(fd);
  }
  assert_int_equal(ask(getpid(), "ping"), LOAM_OK);
}

static void an_endless_line_is_hung_up_on(void **state) {
  (void)state;
  char text[8192];
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  int fd = dial();
  memset(text, 'x', sizeof text);
  ssize_t n = send(fd, text, sizeof text, MSG_NOSIGNAL);
  assert_true(n > 0 || errno == EPIPE);
  assert_true(recv(fd, text, sizeof text, 0) <= 0);
  close(fd);
  assert_int_equal(ask(getpid(), "ping"), LOAM_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(a_silent_client_does_not_keep_others_waiting),
    TEST(many_silent_clients_do_not_keep_others_waiting_long),
    TEST(a_host_that_answers_without_end_is_left_at_the_deadline),
    TEST(a_client_that_leaves_does_no_harm),
    TEST(an_endless_line_is_hung_up_on),
  };
  setenv("LOAM_CONTROL", "0", 1); /* the first allocation must not start the socket */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
