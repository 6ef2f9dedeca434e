/* test_start.c - a start in which a system call fails. Either it succeeds, or it says why and can
 * be tried again. Each call is refused in a process of its own, which has not started yet. */
#include "loam.h"

#include <string.h>
#include <unistd.h>

#include "folder.h"

static const char policy[] =
    "local h = loam.host { name = 'h' }\n"
    "return loam.policy { name = 'started', pick = function(req) return h end }\n";

static loam_config config;
static _Atomic int shortcomings; /* events that tell what a start could not do */

static void note(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind == LOAM_EVENT_CONTROL || event->kind == LOAM_EVENT_WATCH) shortcomings++;
}

static void keep_answer(void *ctx, const char *text, size_t length) {
  *(bool *)ctx = length && strstr(text, "\"name\":\"started\"");
}

static bool is_live(void) {
  struct loam_policy_info info;
  return loam_policy_info(&info) == LOAM_OK && !strcmp(info.name, "started");
}

static bool answers(void) {
  bool is_right = false;
  return loam_ask(getpid(), "status", 10000, keep_answer, &is_right) == LOAM_OK && is_right;
}

enum { MORE = 42 };
static bool all_later; /* the calls after that one are refused too */

/* Returns MORE if a start makes more calls than *nth. */
static int start_without_a_call(void *nth) {
  loam_on_event(note, NULL);
  if (all_later) lm_sys_refuse_from(*(long *)nth);
  else lm_sys_refuse(*(long *)nth);
  loam_status status = loam_start(&config);
  bool has_words = *loam_error();
  void *p = status == LOAM_OK ? loam_malloc(NULL, 100) : NULL; /* it could start loam by itself */
  lm_sys_refuse(0);
  bool was_last = lm_sys_calls() < *(long *)nth;
  loam_free(p);
  if (status != LOAM_OK) {
    CHECK_IN_CHILD(has_words);
    CHECK_IN_CHILD(loam_start(&config) == LOAM_OK);
  }
  CHECK_IN_CHILD(is_live());
  CHECK_IN_CHILD(config.guest || shortcomings || answers());
  CHECK_IN_CHILD((p = loam_malloc(NULL, 100)));
  loam_free(p);
  loam_stop();
  return was_last ? 0 : MORE;
}

static void expect_starts(bool without_later_calls) {
  int status = MORE;
  long nth = 1;
  all_later = without_later_calls;
  for (; status == MORE && nth < 1000; nth++) status = run_in_child(start_without_a_call, &nth);
  if (status) fail_msg("call number %ld: status %d", nth - 1, status);
  assert_true(nth > 10);
}

static void a_host_with_a_service_starts_or_says_why(void **state) {
  (void)state;
  config.watch = config.control = 1;
  expect_starts(false);
  expect_starts(true);
}

static void a_guest_with_a_board_starts_or_says_why(void **state) {
  (void)state;
  config.watch = config.control = 0;
  config.guest = 1;
  expect_starts(false);
  expect_starts(true);
}

static int make_file(void **state) {
  static char path[64];
  (void)state;
  if (!mkdtemp(folder)) return 1;
  write_file("policy.lua", policy);
  snprintf(path, sizeof path, "%s/policy.lua", folder);
  config = (loam_config){ .size = sizeof config, .policy = path, .control_dir = folder };
  setenv("LOAM_CONTROL_DIR", folder, 1);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_host_with_a_service_starts_or_says_why),
    cmocka_unit_test(a_guest_with_a_board_starts_or_says_why),
  };
  return cmocka_run_group_tests(tests, make_file, remove_folder);
}
