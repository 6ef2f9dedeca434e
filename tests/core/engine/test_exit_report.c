/* test_exit_report.c - a process that was asked for it reports its memory as it ends. The system
 * test exit_report.sh has the reports of whole programs. */
#include "engine/exit_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loam.h"
#include "test.h"

static int ends[2]; /* of a pipe to the parent */

static void send_event(void *ctx, const loam_event *event) {
  (void)ctx;
  dprintf(ends[1], "%d %s\n", (int)event->kind, event->message);
}

/* An object of C++ that the host made before the start is destroyed here. */
static void destroy(void) { dprintf(ends[1], "destroyed\n"); }

/* Forks a child that asks for a report, allocates and ends. Returns what the child's callback sends
 * until then. */
static const char *events_of_child(const char *where, void (*end)(int)) {
  static char text[4096];
  size_t length = 0;
  ssize_t n;
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    if (atexit(destroy)) _exit(1);
    loam_on_event(send_event, NULL);
    lm_exit_report_start(where);
    if (!loam_malloc(loam_site_get("report.kept"), 128 << 10)) _exit(1);
    for (int i = 0; i < 20; i++) {
      char tag[32];
      snprintf(tag, sizeof tag, "report.small.%d", i);
      loam_free(loam_malloc(loam_site_get(tag), 100));
    }
    end(0);
  }
  close(ends[1]);
  while ((n = read(ends[0], text + length, sizeof text - 1 - length)) > 0) length += (size_t)n;
  close(ends[0]);
  assert_int_equal(waitpid(child, NULL, 0), child);
  text[length] = 0;
  return text;
}

static void a_host_gets_each_line_as_an_event(void **state) {
  (void)state;
  const char *text = events_of_child("stderr", exit);
  assert_non_null(strstr(text, "16 at exit: 128 KiB live in 1 block; "));
  assert_non_null(strstr(text, "16 at exit: tag 'report.kept', strategy 'default': 128 KiB live in "
                               "1 block; 128 KiB in 1 block in all\n"));
  assert_non_null(strstr(text, "16 at exit: and 11 more tags and strategies with less\n"));
}

static void a_callback_may_use_what_was_made_before_the_start(void **state) {
  (void)state;
  const char *text = events_of_child("stderr", exit), *end = strstr(text, "destroyed\n");
  assert_non_null(end);
  assert_string_equal(end, "destroyed\n");
}

static void without_an_exit_there_is_no_report(void **state) {
  (void)state;
  assert_string_equal(events_of_child("stderr", _exit), "");
  assert_string_equal(events_of_child(NULL, exit), "destroyed\n");
  assert_string_equal(events_of_child("", exit), "destroyed\n");
}

static void a_wrong_value_is_told(void **state) {
  (void)state;
  assert_string_equal(events_of_child("stdout", exit),
                      "12 LOAM_REPORT=stdout: it is neither stderr nor an absolute path of at most "
                      "255 bytes, so there is no report at the end\ndestroyed\n");
}

int main(void) {
  static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_host_gets_each_line_as_an_event),
    cmocka_unit_test(a_callback_may_use_what_was_made_before_the_start),
    cmocka_unit_test(without_an_exit_there_is_no_report),
    cmocka_unit_test(a_wrong_value_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
