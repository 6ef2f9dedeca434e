/* test_descriptor.c - descriptors of loam in the host's table of file descriptors: descriptor.h. */
#include <fcntl.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "os/descriptor.h"
#include "test.h"

#include <errno.h>
#include <sys/stat.h>

static lm_descriptor keep_pipe_end(int *other) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  *other = ends[1];
  return lm_descriptor_keep(ends[0]);
}

static void leaves_the_low_numbers_to_the_host(void **state) {
  (void)state;
  int other, next = dup(0);
  close(next);
  lm_descriptor d = keep_pipe_end(&other);
  assert_true(d.fd > 64);
  assert_true(fcntl(d.fd, F_GETFD) & FD_CLOEXEC);
  assert_int_equal(dup(0), next);
  close(next);
  close(other);
  lm_descriptor_close(&d);
}

static void is_ours_until_the_host_closes_it(void **state) {
  (void)state;
  int other;
  lm_descriptor d = keep_pipe_end(&other);
  assert_true(lm_descriptor_is_ours(&d));
  close(d.fd);
  errno = 0;
  assert_false(lm_descriptor_is_ours(&d));
  assert_int_equal(errno, 0);
  lm_descriptor_close(&d);
  assert_int_equal(d.fd, -1);
  close(other);
}

static void does_not_close_what_the_host_put_in_its_place(void **state) {
  (void)state;
  int other, ends[2];
  lm_descriptor d = keep_pipe_end(&other);
  assert_int_equal(pipe(ends), 0);
  int at = dup2(ends[0], d.fd);
  assert_int_equal(at, d.fd);
  assert_false(lm_descriptor_is_ours(&d));
  lm_descriptor_close(&d);
  assert_true(fcntl(at, F_GETFD) >= 0);
  close(at);
  close(ends[0]);
  close(ends[1]);
  close(other);
}

/* Acts like another thread of the host while loam copies a descriptor. Puts a descriptor of the
 * host at the number, before the copy or after it. */
static int hosts = -1;
static bool is_before;

int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  long argument = va_arg(rest, long);
  va_end(rest);
  bool robs = hosts >= 0 && command == F_DUPFD_CLOEXEC;
  if (robs && is_before) dup2(hosts, fd);
  int result = (int)syscall(SYS_fcntl, fd, command, argument);
  if (robs && !is_before) dup2(hosts, fd);
  return result;
}

static void the_host_may_take_the_number_meanwhile(void **state) {
  (void)state;
  for (int before = 0; before < 2; before++) {
    int ends[2], other, low = dup(0), next;
    assert_int_equal(pipe(ends), 0);
    close(low);
    assert_int_equal(write(ends[1], "kept", 4), 4);
    hosts = ends[0];
    is_before = before;
    errno = 0;
    lm_descriptor d = keep_pipe_end(&other);
    hosts = -1;
    assert_int_equal(d.fd >= 0, !before);
    assert_int_equal(lm_descriptor_is_ours(&d), !before);
    assert_int_equal(errno, before ? EBADF : 0);
    struct stat theirs, there;
    assert_int_equal(fstat(ends[0], &theirs), 0);
    assert_int_equal(fstat(low, &there), 0);
    assert_int_equal(there.st_ino, theirs.st_ino);
    lm_descriptor_close(&d);
    close(low);
    close(other);
    assert_int_equal(read(ends[0], (char[8]){ 0 }, 8), 4);
    close(ends[0]);
    close(ends[1]);
    next = open("/dev/null", O_RDONLY); /* loam left no copy at a low number */
    assert_int_equal(next, low);
    close(next);
  }
}

static void none_belongs_to_no_one(void **state) {
  (void)state;
  lm_descriptor d = lm_descriptor_keep(-1);
  assert_int_equal(d.fd, -1);
  assert_false(lm_descriptor_is_ours(&d));
  lm_descriptor_close(&d);
}

static void a_descriptor_below_none_is_not_valid(void **state) {
  (void)state;
  int other;
  lm_descriptor kept = keep_pipe_end(&other), none = LM_DESCRIPTOR_NONE;
  assert_true(lm_descriptor_is_valid(&kept) && lm_descriptor_is_valid(&none));
  assert_false(lm_descriptor_is_valid(&(lm_descriptor){ .fd = -2 }));
  lm_descriptor_close(&kept);
  assert_true(lm_descriptor_is_valid(&kept));
  close(other);
}

static void knows_inotify_from_a_file(void **state) {
  (void)state;
  lm_descriptor d = lm_descriptor_keep(inotify_init1(IN_CLOEXEC));
  assert_true(lm_descriptor_is_ours(&d));
  int file = open("/dev/null", O_RDONLY);
  assert_int_equal(dup2(file, d.fd), d.fd);
  assert_false(lm_descriptor_is_ours(&d));
  close(file);
  close(d.fd);
}

static void is_not_ours(const lm_descriptor *kept, int hosts_own) {
  assert_true(hosts_own >= 0);
  assert_true(lm_descriptor_is_ours(kept));
  int ours = dup(kept->fd);
  assert_int_equal(dup2(hosts_own, kept->fd), kept->fd);
  assert_false(lm_descriptor_is_ours(kept));
  assert_int_equal(dup2(ours, kept->fd), kept->fd);
  close(ours);
  close(hosts_own);
}

/* All these descriptors have one inode. */
static void knows_its_inotify_from_an_eventfd_and_from_another_inotify(void **state) {
  (void)state;
  lm_descriptor d = lm_descriptor_keep(inotify_init1(IN_CLOEXEC));
  is_not_ours(&d, eventfd(1, 0));
  is_not_ours(&d, timerfd_create(CLOCK_MONOTONIC, 0));
  is_not_ours(&d, epoll_create1(0));
  is_not_ours(&d, inotify_init1(0));
  lm_descriptor_close(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(leaves_the_low_numbers_to_the_host),
    cmocka_unit_test(is_ours_until_the_host_closes_it),
    cmocka_unit_test(does_not_close_what_the_host_put_in_its_place),
    cmocka_unit_test(the_host_may_take_the_number_meanwhile),
    cmocka_unit_test(none_belongs_to_no_one),
    cmocka_unit_test(a_descriptor_below_none_is_not_valid),
    cmocka_unit_test(knows_inotify_from_a_file),
    cmocka_unit_test(knows_its_inotify_from_an_eventfd_and_from_another_inotify),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
