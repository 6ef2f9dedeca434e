/* test_pressure.c - checks of the memory pressure, alarms, and the figure that policies read, with
 * made-up files: pressure.h. */
#include "os/pressure.h"

#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "folder.h"
#include "os/available.h"
#include "os/sys.h"

static char self[64], groups[64];
static lm_pressure p;

#define S INT64_C(1000000000)
#define GB UINT64_C(1000000000)

static void write_number(const char *name, uint64_t number) {
  char text[32];
  snprintf(text, sizeof text, "%llu\n", (unsigned long long)number);
  write_file(name, text);
}

static void write_stalls(const char *percents) {
  char text[128];
  snprintf(text, sizeof text, "some avg10=%s avg60=1.00 avg300=0.10 total=12\n", percents);
  write_file("groups/g/memory.pressure", text);
}

static int make_group(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return 1;
  snprintf(self, sizeof self, "%s/self", folder);
  snprintf(groups, sizeof groups, "%s/groups", folder);
  make_folder("groups");
  make_folder("groups/g");
  write_file("self", "0::/g\n");
  lm_available_pretend(self, groups, "/proc/meminfo");
  return 0;
}

static int remove_group(void **state) {
  lm_available_pretend("/proc/self/cgroup", "/sys/fs/cgroup", "/proc/meminfo");
  return remove_folder(state);
}

/* Writes the files of a control group of 1 GB that uses 100 MB and has no stalls. */
static int be_calm(void **state) {
  (void)state;
  p = (lm_pressure){ 0 };
  write_number("groups/g/memory.high", GB);
  write_number("groups/g/memory.current", GB / 10);
  write_stalls("0.00");
  return 0;
}

static bool look(int64_t now_s) {
  bool is_raised = lm_pressure_look(&p, NULL, now_s * S);
  assert_true(lm_pressure_is_valid(&p));
  return is_raised;
}

static void a_calm_group_raises_no_alarm(void **state) {
  (void)state;
  assert_false(look(1));
  assert_false(p.is_short);
  assert_int_equal(p.limit, GB);
  assert_int_equal(p.left, GB * 9 / 10);
  assert_int_equal(p.stalled, 0);
}

static void an_alarm_is_raised_near_the_limit_and_ends_with_more_room(void **state) {
  (void)state;
  write_number("groups/g/memory.current", GB * 87 / 100);
  assert_false(look(1));
  write_number("groups/g/memory.current", GB * 88 / 100);
  assert_true(look(2));
  assert_true(p.is_short);
  write_number("groups/g/memory.current", GB * 76 / 100);
  (void)look(3);
  assert_true(p.is_short);
  write_number("groups/g/memory.current", GB * 74 / 100);
  assert_false(look(4));
  assert_false(p.is_short);
  assert_int_equal(p.alarms, 2); /* the alarm was repeated when it had lasted a second */
}

/* Cached files, which the kernel can drop, do not count as used memory. */
static void cached_files_raise_no_alarm(void **state) {
  (void)state;
  write_number("groups/g/memory.current", GB - 1);
  write_file("groups/g/memory.stat", "anon 9\ninactive_file 450000000\nactive_file 450000000\n");
  assert_false(look(1));
  write_file("groups/g/memory.stat", "anon 9\ninactive_file 0\n");
  assert_true(look(2));
}

static void an_alarm_is_raised_by_stalls(void **state) {
  (void)state;
  write_stalls("9.99");
  assert_false(look(1));
  write_stalls("10.00");
  assert_true(look(2));
  write_stalls("5.00");
  (void)look(3);
  assert_true(p.is_short);
  write_stalls("4.99");
  assert_false(look(4));
  assert_false(p.is_short);
}

static void an_alarm_that_lasts_is_raised_again_ever_more_seldom(void **state) {
  (void)state;
  static const int64_t raised_s[] = { 10, 11, 13, 17, 25, 41, 73, 137, 201, 265 };
  write_number("groups/g/memory.current", GB);
  size_t next = 0;
  for (int64_t now_s = 10; now_s <= 270; now_s++) {
    bool is_due = next < LM_COUNT(raised_s) && now_s == raised_s[next];
    assert_int_equal(look(now_s), is_due);
    next += is_due;
  }
  assert_int_equal(next, LM_COUNT(raised_s));
  assert_int_equal(p.alarms, LM_COUNT(raised_s));
  write_number("groups/g/memory.current", 0);
  assert_false(look(300));
  write_number("groups/g/memory.current", GB);
  assert_true(look(301)); /* a new alarm is raised immediately */
}

/* The next look comes so soon that a program which allocates 4 GiB per second cannot use up the
 * rest before. */
static void a_group_with_little_left_is_looked_at_soon(void **state) {
  (void)state;
  (void)look(1);
  assert_in_range(lm_pressure_wait_ms(&p), 150, 200);
  write_number("groups/g/memory.current", GB * 85 / 100);
  (void)look(2);
  assert_int_equal(lm_pressure_wait_ms(&p), LM_PRESSURE_SOON_MS);
  write_number("groups/g/memory.high", 100 * GB);
  (void)look(3);
  assert_int_equal(lm_pressure_wait_ms(&p), LM_PRESSURE_CALM_MS);
  write_file("groups/g/memory.high", "max\n");
  (void)look(4);
  assert_int_equal(p.limit, UINT64_MAX);
  assert_int_equal(lm_pressure_wait_ms(&p), LM_PRESSURE_CALM_MS);
  assert_false(p.is_short);
}

static void a_limit_is_seen(void **state) {
  (void)state;
  assert_true(lm_pressure_has_limit());
  write_file("groups/g/memory.high", "max\n");
  assert_false(lm_pressure_has_limit());
}

/* Polls, because the figure may be up to LM_PRESSURE_REFRESH_MS old. */
static bool becomes(unsigned percents) {
  for (int ms = 0; ms < 60000 && lm_pressure_now() != percents; ms += 10) lm_sys_sleep(10000000);
  return lm_pressure_now() == percents;
}

static void policies_get_the_stalls_in_percent(void **state) {
  (void)state;
  lm_pressure_pretend(false);
  write_stalls("17.80");
  assert_int_equal(lm_pressure_now(), 17);
  write_stalls("63.00");
  assert_true(becomes(63));
  long before = lm_sys_calls();
  for (int i = 0; i < 1000; i++) (void)lm_pressure_now();
  assert_true(lm_sys_calls() - before < 100); /* the file is not read each time */
  lm_pressure_pretend(false);
  lm_pressure_set_guest(true);
  before = lm_sys_calls();
  assert_int_equal(lm_pressure_now(), 0); /* a guest without a board reads no file */
  assert_int_equal(lm_sys_calls(), before);
  lm_pressure_set_guest(false);
}

static void any_file_may_be_unreadable(void **state) {
  (void)state;
  for (long nth = 1; nth < 12; nth++) {
    lm_sys_refuse(nth);
    assert_false(look(nth));
    lm_sys_refuse(0);
  }
  write_file("self", "");
  (void)look(20);
  assert_int_equal(p.limit, UINT64_MAX);
  assert_false(lm_pressure_look(&p, "/no/such/file", 21 * S));
  write_file("self", "0::/g\n");
}

static void a_look_is_published(void **state) {
  (void)state;
  static lm_published_gauges to;
  write_stalls("12.00");
  assert_true(look(1));
  lm_pressure_publish(&p, &to);
  assert_int_equal(atomic_load(&to.stalled), 13);
  assert_int_equal(atomic_load(&to.alarm), 3);
  assert_false(lm_pressure_is_valid(&(lm_pressure){ .is_short = true }));
  assert_true(atomic_load(&to.stalled_at) > 0);
  write_stalls("0.00");
  assert_false(look(2));
  lm_pressure_publish(&p, &to);
  assert_int_equal(atomic_load(&to.alarm), 2);
}

#define calm_test(f) cmocka_unit_test_setup(f, be_calm)

/* A thread may begin a look before the process follows a board, and end it afterwards. At the end
 * the page belongs to the board, and the process cannot write to it. */
static void a_page_of_a_board_is_not_written(void **state) {
  (void)state;
  static const char zeros[sizeof lm_published];
  lm_pressure raised = { .is_short = true, .alarms = 1 };
  int fd = memfd_create("page", MFD_CLOEXEC);
  assert_int_equal(write(fd, zeros, sizeof zeros), sizeof zeros);
  assert_int_equal(lm_published_map(fd, 0), 0);
  assert_false(lm_published_begin_write());
  lm_pressure_set_alarm(&raised);
  assert_false(lm_pressure_is_short());
  lm_published_unmap();
  close(fd);
  lm_pressure_set_alarm(&raised);
  assert_true(lm_pressure_is_short());
  lm_pressure_pretend(false);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    calm_test(a_page_of_a_board_is_not_written),
    calm_test(a_calm_group_raises_no_alarm),
    calm_test(an_alarm_is_raised_near_the_limit_and_ends_with_more_room),
    calm_test(cached_files_raise_no_alarm),
    calm_test(an_alarm_is_raised_by_stalls),
    calm_test(an_alarm_that_lasts_is_raised_again_ever_more_seldom),
    calm_test(a_group_with_little_left_is_looked_at_soon),
    calm_test(a_limit_is_seen),
    calm_test(policies_get_the_stalls_in_percent),
    calm_test(any_file_may_be_unreadable),
    calm_test(a_look_is_published),
  };
  return cmocka_run_group_tests_name("pressure", tests, make_group, remove_group);
}
