/* test_forked_read.c - the command goes on when its reading of another process hangs or crashes:
 * forked_read.h. */
#include "test.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>

#include "cli/forked_read.h"
#include "cli/look.h"
#include "os/error.h"

enum { LONG_MS = 60000, SHORT_MS = 300, MANY = 3000000 };

static void expect_words(const char *words) {
  if (!strstr(loam_error(), words)) fail_msg("no '%s' in: %s", words, loam_error());
}

static loam_status write_much(const void *ctx, lm_json *out, void *result) {
  for (int i = 0; i < *(const int *)ctx; i++) lm_json_raw(out, "x", 1);
  memcpy(result, "of the child", 13);
  return LOAM_OK;
}

static void an_answer_comes_whole(void **state) {
  (void)state;
  const int lengths[] = { 0, 1, MANY };
  for (size_t i = 0; i < LM_COUNT(lengths); i++) {
    lm_json out = { 0 };
    char result[LM_FORKED_READ_RESULT] = "";
    assert_int_equal(lm_forked_read(write_much, &lengths[i], 1, LONG_MS, &out, result), LOAM_OK);
    assert_int_equal(out.length, lengths[i]);
    assert_string_equal(result, "of the child");
    lm_json_finish(&out);
  }
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

static loam_status refuse(const void *ctx, lm_json *out, void *result) {
  (void)out;
  (void)result;
  return lm_error(LOAM_ESTATE, "refused: %s", (const char *)ctx);
}

static void the_words_of_a_failure_come_too(void **state) {
  (void)state;
  lm_json out = { 0 };
  assert_int_equal(lm_forked_read(refuse, "why", 1, LONG_MS, &out, NULL), LOAM_ESTATE);
  assert_string_equal(loam_error(), "refused: why");
  assert_int_equal(out.length, 0);
}

static loam_status hang(const void *ctx, lm_json *out, void *result) {
  (void)ctx;
  (void)result;
  lm_json_raw(out, "x", 1);
  for (bool goes_on = true; goes_on;) pause();
  return LOAM_OK;
}

static void a_reading_that_hangs_is_ended(void **state) {
  (void)state;
  lm_json out = { 0 };
  int64_t began_ns = lm_sys_clock_ns();
  assert_int_equal(lm_forked_read(hang, NULL, 42, SHORT_MS, &out, NULL), LOAM_EIO);
  expect_words("process 42: it could not be read within 0.3 s");
  assert_true(lm_sys_clock_ns() - began_ns < 30 * 1000000000ll);
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  lm_json_finish(&out);
}

static loam_status crash(const void *ctx, lm_json *out, void *result) {
  (void)ctx;
  (void)out;
  (void)result;
  raise(SIGKILL);
  return LOAM_OK;
}

static void a_reading_that_crashes_is_reported(void **state) {
  (void)state;
  lm_json out = { 0 };
  assert_int_equal(lm_forked_read(crash, NULL, 42, LONG_MS, &out, NULL), LOAM_EIO);
  expect_words("process 42: reading it was ended by signal 9 (Killed)");
}

static loam_status work(const void *ctx, lm_json *out, void *result) {
  volatile uint64_t n = 0;
  (void)ctx;
  (void)out;
  (void)result;
  while (clock() < CLOCKS_PER_SEC / 20) n++;
  return LOAM_OK;
}

/* `loam top` reads a process less often if that takes much processor time. */
static void the_processor_time_of_a_reading_counts(void **state) {
  (void)state;
  lm_json out = { 0 };
  double before = lm_forked_read_cpu_ms();
  assert_int_equal(lm_forked_read(work, NULL, 1, LONG_MS, &out, NULL), LOAM_OK);
  assert_true(lm_forked_read_cpu_ms() - before >= 40);
}

/* ---- Memory whose contents never come */

/* Maps a page of a file in memory that the process must fill by userfaultfd(2), but never fills.
 * Returns 0 if the kernel allows that. */
static int map_silent_page(void) {
  int file = memfd_create("silent", MFD_CLOEXEC), fault = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
  struct uffdio_api api = { .api = UFFD_API };
  if (file < 0 || fault < 0 || ftruncate(file, LM_PAGE) || ioctl(fault, UFFDIO_API, &api)) return 1;
  void *at = mmap(NULL, LM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  struct uffdio_register range = { .range = { (uintptr_t)at, LM_PAGE },
                                   .mode = UFFDIO_REGISTER_MODE_MISSING };
  return at == MAP_FAILED || ioctl(fault, UFFDIO_REGISTER, &range);
}

/* Forks a process that maps such a page and waits. Returns its id, or -1 if the kernel does not
 * allow that. */
static pid_t silent_process(void) {
  int ends[2];
  char failed = 1;
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  if (!child) {
    failed = (char)map_silent_page();
    (void)!write(ends[1], &failed, 1);
    while (!failed) pause();
    _exit(0);
  }
  assert_int_equal(read(ends[0], &failed, 1), 1);
  close(ends[0]);
  close(ends[1]);
  if (!failed) return child;
  assert_int_equal(waitpid(child, NULL, 0), child);
  return -1;
}

static loam_status read_stats(const void *ctx, lm_json *out, void *result) {
  (void)result;
  return lm_look_stats(*(const int *)ctx, out);
}

/* The search for loam in a process reads the first page of each mapped file. */
static void a_process_whose_memory_never_comes_is_given_up(void **state) {
  (void)state;
  lm_json out = { 0 };
  int pid = silent_process();
  if (pid < 0) {
    print_message("the kernel allows no userfaultfd\n");
    skip();
  }
  loam_status status = lm_forked_read(read_stats, &pid, pid, SHORT_MS, &out, NULL);
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  assert_int_equal(status, LOAM_EIO);
  expect_words("it could not be read within 0.3 s");
  lm_json_finish(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_answer_comes_whole),
    cmocka_unit_test(the_words_of_a_failure_come_too),
    cmocka_unit_test(a_reading_that_hangs_is_ended),
    cmocka_unit_test(a_reading_that_crashes_is_reported),
    cmocka_unit_test(the_processor_time_of_a_reading_counts),
    cmocka_unit_test(a_process_whose_memory_never_comes_is_given_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
