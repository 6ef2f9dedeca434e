/* test_board_owner.c - which boards a cleaner keeps because their owners may still live:
 * board_read.h and board_owner.h. */
#include "test.h"

#include <sched.h>
#include <sys/stat.h>

#include "control_fixture.h"
#include "service/board.h"
#include "service/board_file.h"
#include "service/board_owner.h"
#include "service/board_read.h"

enum { OLD_S = 3600 }; /* the age of a file that no process has written for long */

static char path[PATH_MAX];

static pid_t idle_child(void) {
  pid_t pid = fork();
  while (!pid) pause();
  return pid;
}

static void end_child(pid_t pid) {
  int status;
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void put(int fd, const void *bytes, size_t size, size_t at) {
  assert_int_equal(pwrite(fd, bytes, size, (off_t)at), size);
}

/* Makes a board of this boot with `maker` as the process that made it, and opens the file. */
static int board_of(uint64_t maker) {
  if (lm_board_make(folder, "", path) != LOAM_OK) fail_msg("%s", loam_error());
  int fd = open(path, O_RDWR);
  assert_true(fd >= 0);
  put(fd, &maker, sizeof maker, offsetof(lm_board_head, maker));
  return fd;
}

/* Returns the owner word of a process that has ended. */
static uint64_t ended_owner(void) {
  pid_t pid = idle_child();
  uint64_t owner = lm_board_owner_now(pid);
  end_child(pid);
  return owner;
}

/* A process that takes the place of an ended process is preempted before it writes its own entry.
 * The entry still names the program of the ended process. */
static void an_entry_of_an_earlier_owner_does_not_end_the_present_one(void **state) {
  (void)state;
  static lm_board_entry entry;
  uint64_t ended = ended_owner();
  int fd = board_of(ended);
  pid_t child = idle_child();
  lm_board_place place = { .owner = lm_board_owner_now(child), .seq = 1 };
  entry.figures.owner = ended;
  entry.figures.pid_namespace = lm_board_own_namespace();
  entry.figures.exe_inode = 1;
  put(fd, &entry, sizeof entry, offsetof(lm_board, slot) + sizeof entry);
  put(fd, &place, sizeof place, offsetof(lm_board, place));
  assert_int_equal(lm_board_find_living(fd), child);
  lm_board_clean(folder);
  assert_true(exists(path));
  end_child(child);
  assert_int_equal(lm_board_find_living(fd), 0);
  lm_board_clean(folder);
  assert_false(exists(path));
  close(fd);
}

static void age(int fd, int64_t by_s) {
  struct timespec then[2] = { { .tv_sec = time(NULL) - by_s }, { .tv_sec = time(NULL) - by_s } };
  assert_int_equal(futimens(fd, then), 0);
}

/* A process that cannot read the boot id makes boards with an empty one. */
static void a_board_without_a_boot_id_is_kept_until_the_next_boot(void **state) {
  (void)state;
  char none[sizeof((lm_board_head *)0)->boot_id] = "";
  int64_t up_s = lm_sys_boot_ns() / 1000000000;
  int fd = board_of(lm_board_owner_now(getpid()));
  put(fd, none, sizeof none, offsetof(lm_board_head, boot_id));
  age(fd, up_s < 2 * OLD_S ? up_s / 2 : OLD_S);
  lm_board_clean(folder);
  assert_true(exists(path));
  age(fd, up_s + OLD_S);
  lm_board_clean(folder);
  assert_false(exists(path));
  close(fd);
}

/* Another boot id means that the machine has been started again since then. */
static void a_board_of_an_earlier_boot_is_removed(void **state) {
  (void)state;
  int fd = board_of(lm_board_owner_now(getpid()));
  put(fd, "x", 1, offsetof(lm_board_head, boot_id));
  age(fd, OLD_S);
  lm_board_clean(folder);
  assert_false(exists(path));
  close(fd);
}

static void a_policy_whose_path_is_too_long_gets_no_board(void **state) {
  (void)state;
  char policy[2000] = "/";
  memset(policy + 1, 'p', sizeof policy - 2);
  policy[sizeof policy - 1] = 0;
  assert_int_equal(lm_board_make(folder, policy, path), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), "more than 1023 bytes"));
}

/* Forks a child in a time namespace with a later boot time offset. Returns its process id, or -1 if
 * the kernel or the rights of this process do not allow that. Later children of this process are in
 * its own namespace again: Linux 6.1 lets no process call system(3) while they are in another. */
static pid_t child_of_later_time(void) {
  int own = open("/proc/self/ns/time", O_RDONLY | O_CLOEXEC);
  if (own < 0 || unshare(CLONE_NEWTIME)) return -1;
  FILE *offsets = fopen("/proc/self/timens_offsets", "w");
  bool is_set = offsets && fprintf(offsets, "boottime 100000 0\n") > 0;
  if (offsets && fclose(offsets)) is_set = false;
  pid_t child = is_set ? idle_child() : -1;
  assert_int_equal(setns(own, CLONE_NEWTIME), 0);
  close(own);
  return child;
}

static void an_owner_that_counts_time_differently_is_not_taken_for_an_ended_one(void **state) {
  (void)state;
  const uint64_t early = (uint64_t)1 << LM_BOARD_MS_SHIFT; /* one ms after the boot */
  uint64_t pid_namespace = lm_board_own_namespace();
  pid_t plain = idle_child(), child = child_of_later_time();
  lm_board_state of_plain = lm_board_look(early | (uint64_t)plain, pid_namespace, NULL).state;
  end_child(plain);
  assert_int_equal(of_plain, LM_BOARD_GONE);
  if (child < 0) skip();
  lm_board_state of_child = lm_board_look(early | (uint64_t)child, pid_namespace, NULL).state;
  end_child(child);
  assert_int_equal(of_child, LM_BOARD_RUNNING);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(an_entry_of_an_earlier_owner_does_not_end_the_present_one),
    TEST(a_board_without_a_boot_id_is_kept_until_the_next_boot),
    TEST(a_board_of_an_earlier_boot_is_removed),
    TEST(a_policy_whose_path_is_too_long_gets_no_board),
    TEST(an_owner_that_counts_time_differently_is_not_taken_for_an_ended_one),
  };
  setenv("LOAM_CONTROL", "0", 1); /* the first allocation must not start the service */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
