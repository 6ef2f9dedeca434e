/* test_watch.c - the ways in which programs save a file, and the watch that notices them:
 * watch.h. */
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "os/error.h"
#include "service/watch.h"

static char folder[64];
static lm_watch *watch;
static bool heard; /* an event arrived, so the poll did not find the change */

static const char *in_folder(const char *name) {
  static char path[16][160];
  static int turn;
  char *p = path[turn++ & 15];
  snprintf(p, sizeof path[0], "%s/%s", folder, name);
  return p;
}

static void run(const char *format, ...) {
  char command[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(command, sizeof command, format, arguments);
  va_end(arguments);
  if (system(command)) fail_msg("%s", command);
}

static int make_folder(void **state) {
  (void)state;
  strcpy(folder, "/tmp/loam-test-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
  (void)state;
  lm_watch_close(watch);
  watch = NULL;
  run("rm -rf %s", folder);
  return 0;
}

static void save(const char *path, const char *text) {
  int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), strlen(text));
  close(fd);
}

static void read_text(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY);
  ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);
  text[n < 0 ? 0 : n] = 0;
  if (fd >= 0) close(fd);
}

/* Waits like the service thread, for at most `limit_ms`. Returns whether the watch became ready. */
static bool looks_within(int limit_ms) {
  int64_t end = lm_sys_clock_ns() + limit_ms * 1000000ll;
  for (;;) {
    int64_t left = (end - lm_sys_clock_ns()) / 1000000;
    if (left <= 0) return false;
    int wait = lm_watch_timeout_ms(watch);
    struct pollfd fd = { .fd = lm_watch_fd(watch), .events = POLLIN };
    heard |= poll(&fd, 1, wait < left ? wait : (int)left) > 0;
    if (lm_watch_ready(watch)) return true;
  }
}

/* Opens the watch, and waits until it is ready for the first time. */
static void open_watch(const char *path) {
  assert_int_equal(lm_watch_open(path, &watch), LOAM_OK);
  assert_true(looks_within(PATIENCE_S * 1000));
}

/* Reads the file each time the watch is ready. Checks that `text` is found in the end. */
static void sees(const char *path, const char *text) {
  char found[64] = "";
  heard = false;
  while (strcmp(found, text)) {
    if (!looks_within(PATIENCE_S * 1000)) fail_msg("%s was not seen in %s", text, path);
    read_text(path, found, sizeof found);
    assert_true(lm_watch_is_valid(watch));
  }
  assert_true(heard);
}

static void a_save_in_place_is_seen(void **state) {
  (void)state;
  const char *path = in_folder("p.lua");
  save(path, "one");
  open_watch(path);
  for (int i = 0; i < 3; i++) {
    save(path, i & 1 ? "two" : "three");
    sees(path, i & 1 ? "two" : "three");
  }
}

static void a_save_in_pieces_is_seen_when_it_is_whole(void **state) {
  (void)state;
  const char *path = in_folder("p.lua");
  save(path, "one");
  open_watch(path);
  run("(: > %s; sleep 0.05; printf tw > %s; sleep 0.05; printf o >> %s) &", path, path, path);
  sees(path, "two");
}

static void a_rename_over_it_is_seen_again_and_again(void **state) {
  (void)state;
  const char *path = in_folder("p.lua"), *other = in_folder("p.lua.new");
  char text[16];
  save(path, "one");
  open_watch(path);
  for (int i = 0; i < 3; i++) {
    snprintf(text, sizeof text, "new %d", i);
    save(other, text);
    assert_int_equal(rename(other, path), 0);
    sees(path, text);
  }
  save(path, "in place, after a rename");
  sees(path, "in place, after a rename");
}

static void a_rename_away_and_a_new_file_are_seen(void **state) {
  (void)state;
  const char *path = in_folder("p.lua"), *backup = in_folder("p.lua~");
  save(path, "one");
  open_watch(path);
  assert_int_equal(rename(path, backup), 0);
  save(path, "two");
  sees(path, "two");
}

static void what_takes_the_place_of_a_folder_is_seen(void **state) {
  (void)state;
  const char *path = in_folder("p.lua");
  assert_int_equal(mkdir(path, 0700), 0);
  open_watch(path);
  assert_int_equal(rmdir(path), 0);
  save(path, "one");
  sees(path, "one");
}

static void a_file_that_goes_and_comes_back_is_seen(void **state) {
  (void)state;
  const char *path = in_folder("p.lua");
  save(path, "one");
  open_watch(path);
  unlink(path);
  assert_true(looks_within(PATIENCE_S * 1000));
  save(path, "back");
  sees(path, "back");
}

static void a_file_that_is_not_there_yet_is_seen(void **state) {
  (void)state;
  const char *path = in_folder("p.lua");
  open_watch(path);
  save(path, "born");
  sees(path, "born");
}

static void directories_that_are_not_there_yet_are_seen(void **state) {
  (void)state;
  const char *path = in_folder("a/b/p.lua");
  open_watch(path);
  run("mkdir %s", in_folder("a"));
  assert_true(looks_within(PATIENCE_S * 1000));
  run("mkdir %s", in_folder("a/b"));
  assert_true(looks_within(PATIENCE_S * 1000));
  save(path, "deep");
  sees(path, "deep");
}

static void a_swapped_link_is_seen(void **state) {
  (void)state;
  const char *path = in_folder("p.lua");
  save(in_folder("v1"), "one");
  save(in_folder("v2"), "two");
  run("ln -s v1 %s", path);
  open_watch(path);
  run("ln -sfn v2 %s", path);
  sees(path, "two");
}

static void an_edit_behind_links_is_seen(void **state) {
  (void)state;
  const char *path = in_folder("p.lua");
  run("mkdir %s %s", in_folder("far"), in_folder("near"));
  save(in_folder("far/target"), "one");
  run("ln -s %s %s", in_folder("far/target"), in_folder("near/link"));
  run("ln -s near/link %s", path);
  open_watch(path);
  save(in_folder("far/target"), "two");
  sees(path, "two");
  run("ln -sfn /dev/null %s", in_folder("near/link"));
  assert_true(looks_within(PATIENCE_S * 1000));
}

/* The files of a ConfigMap: p.lua -> ..data/p.lua, ..data -> ..1. A rename replaces only ..data. */
static void a_kubernetes_swap_is_seen(void **state) {
  (void)state;
  const char *path = in_folder("p.lua");
  run("cd %s && mkdir ..1 ..2 ..3 && printf one > ..1/p.lua && printf two > ..2/p.lua && "
      "printf three > ..3/p.lua && ln -s ..1 ..data && ln -s ..data/p.lua p.lua",
      folder);
  open_watch(path);
  run("cd %s && ln -s ..2 ..data_tmp && mv -T ..data_tmp ..data && rm -r ..1", folder);
  sees(path, "two");
  run("cd %s && ln -s ..3 ..data_tmp && mv -T ..data_tmp ..data && rm -r ..2", folder);
  sees(path, "three");
}

static void a_directory_link_on_the_way_is_seen(void **state) {
  (void)state;
  const char *path = in_folder("current/p.lua");
  run("cd %s && mkdir r1 r2 && printf one > r1/p.lua && printf two > r2/p.lua && "
      "ln -s r1 current",
      folder);
  open_watch(path);
  run("cd %s && ln -sfn r2 current", folder);
  sees(path, "two");
  save(in_folder("r2/p.lua"), "in place");
  sees(path, "in place");
}

static void links_in_a_circle_do_no_harm(void **state) {
  (void)state;
  const char *path = in_folder("p.lua");
  run("cd %s && ln -s q.lua p.lua && ln -s p.lua q.lua", folder);
  open_watch(path);
  run("rm %s", path);
  save(path, "straight");
  assert_true(looks_within(PATIENCE_S * 1000));
}

static void other_files_of_the_directory_are_ignored(void **state) {
  (void)state;
  const char *path = in_folder("p.lua");
  save(path, "one");
  open_watch(path);
  save(in_folder("other"), "x");
  unlink(in_folder("other"));
  assert_false(looks_within(400));
}

static void it_waits_for_quiet(void **state) {
  (void)state;
  const char *path = in_folder("p.lua");
  save(path, "one");
  open_watch(path);
  save(path, "two");
  struct pollfd fd = { .fd = lm_watch_fd(watch), .events = POLLIN };
  assert_int_equal(poll(&fd, 1, PATIENCE_S * 1000), 1);
  assert_false(lm_watch_ready(watch));
  assert_in_range(lm_watch_timeout_ms(watch), 0, 101); /* 0 if this test was delayed */
}

static _Atomic bool is_over;

static void *write_for_ever(void *path) {
  while (!is_over) {
    save(path, "restless");
    usleep(20000);
  }
  return NULL;
}

static void a_file_that_is_never_quiet_is_looked_at_all_the_same(void **state) {
  (void)state;
  const char *path = in_folder("p.lua");
  save(path, "one");
  open_watch(path);
  is_over = false;
  pthread_t writer = start_thread(write_for_ever, (void *)path);
  assert_true(looks_within(PATIENCE_S * 1000));
  is_over = true;
  pthread_join(writer, NULL);
}

/* Without inotify, the poll finds the edit. */
static int looks_without_inotify(void *path) {
  lm_watch_close(watch);
  for (int fd = 3; fd < 1024; fd++) close(fd);
  if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 3, 3 })) return 1;
  if (lm_watch_open(path, &watch) != LOAM_OK) return 2;
  if (lm_watch_fd(watch) != -1) return 3;
  if (!looks_within(PATIENCE_S * 1000)) return 4;
  return looks_within(PATIENCE_S * 1000) ? 0 : 5;
}

static void without_inotify_it_polls(void **state) {
  (void)state;
  const char *path = in_folder("p.lua");
  save(path, "one");
  assert_int_equal(run_in_child(looks_without_inotify, (void *)path), 0);
}

static void one_that_the_host_has_closed_is_replaced(void **state) {
  (void)state;
  const char *path = in_folder("p.lua");
  save(path, "one");
  open_watch(path);
  int fd = lm_watch_fd(watch);
  assert_false(lm_watch_is_lost(watch));
  close(fd);
  assert_true(lm_watch_is_lost(watch));
  assert_int_equal(lm_watch_fd(watch), -1);
  assert_false(lm_watch_ready(watch));
  lm_watch *by;
  assert_int_equal(lm_watch_open(path, &by), LOAM_OK);
  assert_int_equal(lm_watch_fd(by), fd); /* the new watch has the old number */
  lm_watch_replace(&watch, by);
  assert_ptr_equal(watch, by);
  assert_int_equal(lm_watch_fd(watch), fd);
  assert_true(looks_within(PATIENCE_S * 1000));
}

static void a_path_that_is_too_long_is_refused(void **state) {
  (void)state;
  char path[5000];
  memset(path, 'x', sizeof path);
  path[0] = '/';
  path[sizeof path - 1] = 0;
  assert_int_equal(lm_watch_open(path, &watch), LOAM_EINVAL);
  assert_null(watch);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(a_save_in_place_is_seen),
    TEST(a_save_in_pieces_is_seen_when_it_is_whole),
    TEST(a_rename_over_it_is_seen_again_and_again),
    TEST(a_rename_away_and_a_new_file_are_seen),
    TEST(what_takes_the_place_of_a_folder_is_seen),
    TEST(a_file_that_goes_and_comes_back_is_seen),
    TEST(a_file_that_is_not_there_yet_is_seen),
    TEST(directories_that_are_not_there_yet_are_seen),
    TEST(a_swapped_link_is_seen),
    TEST(an_edit_behind_links_is_seen),
    TEST(a_kubernetes_swap_is_seen),
    TEST(a_directory_link_on_the_way_is_seen),
    TEST(links_in_a_circle_do_no_harm),
    TEST(other_files_of_the_directory_are_ignored),
    TEST(it_waits_for_quiet),
    TEST(a_file_that_is_never_quiet_is_looked_at_all_the_same),
    TEST(without_inotify_it_polls),
    TEST(one_that_the_host_has_closed_is_replaced),
    TEST(a_path_that_is_too_long_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
