/* test_stop.c - what loam_stop ends, also where something is begun after it. */
#include "loam.h"

#include <stdlib.h>

#include "test.h"

#define NAMED(name)                      \
  "local h = loam.host { name = 'h' }\n" \
  "return loam.policy { name = '" name "', pick = function(req) return h end }\n"

/* Replaces the followed file and waits until it can have been loaded. */
static void edit(const char *path, const char *text) {
  char made[160];
  snprintf(made, sizeof made, "%s.new", path);
  FILE *f = fopen(made, "w");
  if (!f || fputs(text, f) < 0 || fclose(f) || rename(made, path)) abort();
  lm_sys_sleep(300000000);
}

static bool is_live(const char *name, bool is_watching) {
  struct loam_policy_info info;
  return !loam_policy_info(&info) && !strcmp(info.name, name) && info.watching == is_watching;
}

/* In the service thread: stops, and starts again without a file. */
static void restart_at_the_second(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind != LOAM_EVENT_POLICY_LIVE || event->generation != 2) return;
  loam_stop();
  (void)loam_start(&(loam_config){ .size = sizeof(loam_config), .control = -1 });
}

static int stop_in_an_event(void *path) {
  loam_config config = { .size = sizeof config, .control = -1, .policy = path, .watch = 1 };
  loam_on_event(restart_at_the_second, NULL);
  CHECK_IN_CHILD(loam_start(&config) == LOAM_OK);
  edit(path, NAMED("second"));
  CHECK_IN_CHILD(is_live("second", false));
  edit(path, NAMED("third"));
  CHECK_IN_CHILD(is_live("second", false));
  loam_stop();
  return 0;
}

static int watch_after_a_stop(void *path) {
  CHECK_IN_CHILD(loam_start(&(loam_config){ .size = sizeof(loam_config), .control = -1 }) ==
                 LOAM_OK);
  loam_stop();
  CHECK_IN_CHILD(loam_policy_watch(path) == LOAM_OK);
  edit(path, NAMED("second"));
  CHECK_IN_CHILD(is_live("second", true));
  loam_stop();
  edit(path, NAMED("third"));
  CHECK_IN_CHILD(is_live("second", false));
  return 0;
}

static int stop_in_a_child(void *unused) {
  (void)unused;
  loam_stop();
  CHECK_IN_CHILD(is_live("one", false));
  return 0;
}

static int fork_and_stop(void *path) {
  loam_config config = { .size = sizeof config, .control = -1, .policy = path, .watch = 1 };
  CHECK_IN_CHILD(loam_start(&config) == LOAM_OK);
  CHECK_IN_CHILD(is_live("one", true));
  return run_in_child(stop_in_a_child, NULL);
}

static void run_with_file(int (*body)(void *)) {
  static char path[128];
  snprintf(path, sizeof path, "/tmp/loam-test-%d.lua", getpid());
  edit(path, NAMED("one"));
  assert_int_equal(run_in_child(body, path), 0);
  unlink(path);
}

static void a_stop_in_an_event_ends_the_watch(void **state) {
  (void)state;
  run_with_file(stop_in_an_event);
}

static void a_second_stop_ends_a_watch_that_began_after_the_first(void **state) {
  (void)state;
  run_with_file(watch_after_a_stop);
}

static void a_child_that_stops_follows_nothing(void **state) {
  (void)state;
  run_with_file(fork_and_stop);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_stop_in_an_event_ends_the_watch),
    cmocka_unit_test(a_second_stop_ends_a_watch_that_began_after_the_first),
    cmocka_unit_test(a_child_that_stops_follows_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
