/* test_quota_file.c - the file with the shared limits of a user, and processes under policies with
 * shared limits: service/quota_file.h. */
#include "service/quota_file.h"

#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "control_fixture.h"
#include "heap/strategy.h"
#include "loam.h"
#include "service/board_owner.h"

/* Large blocks are counted one by one, so a block of 1 MB takes little more than 1 MB. */
enum { BLOCK = 1000000, BLOCKS = 4 };

static const char policy[] =
    "local kv = loam.host { name = 'kv', limit = 4 * loam.MiB, shared = 'kv' }\n"
    "local rest = loam.host { name = 'rest' }\n"
    "return loam.policy { name = 'shared', pick = function(req)\n"
    "  return req.tag:is('kv') and kv or rest\n"
    "end }\n";

static const char *table_path(void) {
  static char path[128];
  snprintf(path, sizeof path, "%s/" LM_QUOTA_FILE, folder);
  return path;
}

static struct stat table_stat(void) {
  struct stat st;
  assert_int_equal(lstat(table_path(), &st), 0);
  return st;
}

static bool is_good_table(void) {
  lm_quota_table *table = lm_quota_file_map(folder);
  lm_quota_file_unmap(table);
  return table != NULL;
}

/* ---- The file */

static void the_file_is_made_once_with_all_its_room(void **state) {
  (void)state;
  assert_null(lm_quota_file_map(folder));
  mode_t before = umask(0777);
  loam_status status = lm_quota_file_make(folder);
  umask(before);
  assert_int_equal(status, LOAM_OK);
  struct stat first = table_stat();
  assert_int_equal(first.st_mode, S_IFREG | 0600);
  assert_int_equal(first.st_size, sizeof(lm_quota_table));
  assert_true(first.st_blocks * 512 >= first.st_size);
  assert_int_equal(lm_quota_file_make(folder), LOAM_OK);
  assert_int_equal(table_stat().st_ino, first.st_ino);
}

/* Any user who may read a folder can lock it, and keep it locked. */
static void a_folder_that_stays_locked_holds_nobody_up(void **state) {
  (void)state;
  assert_int_equal(chmod(folder, 0755), 0);
  int locked = open(folder, O_RDONLY | O_DIRECTORY);
  assert_int_equal(flock(locked, LOCK_EX), 0);
  alarm(20); /* ends a test that waits for ever */
  assert_int_equal(lm_quota_file_make(folder), LOAM_EIO);
  alarm(0);
  assert_non_null(strstr(loam_error(), "another process keeps it locked"));
  assert_false(is_good_table());
  close(locked);
  assert_int_equal(lm_quota_file_make(folder), LOAM_OK);
  assert_true(is_good_table());
}

static void damage(off_t at) {
  int fd = open(table_path(), O_WRONLY);
  assert_int_equal(pwrite(fd, "?", 1, at), 1);
  close(fd);
}

static void what_is_no_table_is_replaced(void **state) {
  (void)state;
  assert_int_equal(lm_quota_file_make(folder), LOAM_OK);
  for (int way = 0; way < 5; way++) {
    if (way == 0) damage(offsetof(lm_quota_head, magic));
    if (way == 1) damage(offsetof(lm_quota_head, boot_id));
    if (way == 2) assert_int_equal(chmod(table_path(), 0644), 0);
    if (way == 3) assert_int_equal(truncate(table_path(), 4096), 0);
    if (way == 4) damage(offsetof(lm_quota_head, holders));
    assert_false(is_good_table());
    assert_int_equal(lm_quota_file_make(folder), LOAM_OK);
    assert_true(is_good_table());
    assert_int_equal(table_stat().st_mode, S_IFREG | 0600);
  }
}

static void a_link_is_replaced_and_not_followed(void **state) {
  (void)state;
  char target[128];
  struct stat st;
  assert_int_equal(lm_quota_file_make(folder), LOAM_OK);
  snprintf(target, sizeof target, "%s/target", folder);
  assert_int_equal(rename(table_path(), target), 0);
  assert_int_equal(symlink(target, table_path()), 0);
  assert_false(is_good_table()); /* although the link leads to a good table */
  assert_int_equal(lm_quota_file_make(folder), LOAM_OK);
  assert_int_equal(table_stat().st_mode, S_IFREG | 0600);
  assert_int_equal(stat(target, &st), 0);
  assert_int_not_equal(st.st_ino, table_stat().st_ino);
}

static void what_cannot_be_replaced_is_named(void **state) {
  (void)state;
  assert_int_equal(mkdir(table_path(), 0700), 0);
  assert_int_equal(lm_quota_file_make(folder), LOAM_EIO);
  assert_non_null(strstr(loam_error(), "shared limits: "));
  assert_non_null(strstr(loam_error(), LM_QUOTA_FILE ": Is a directory"));
}

/* A backup with cp -al makes such a link. */
static void a_table_with_a_second_name_stays(void **state) {
  (void)state;
  char name[128];
  assert_int_equal(lm_quota_file_make(folder), LOAM_OK);
  struct stat before = table_stat();
  snprintf(name, sizeof name, "%s/backup", folder);
  assert_int_equal(link(table_path(), name), 0);
  assert_int_equal(lm_quota_file_make(folder), LOAM_OK);
  assert_int_equal(table_stat().st_ino, before.st_ino);
}

/* A function that runs in a process of its own, which may give up rights. Returns 0 if all is
 * well. */
typedef int process(void);

static int status_of(pid_t pid) {
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static int in_a_process(process *body) {
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) _exit(body());
  return status_of(pid);
}

/* Makes the table as a user other than root, because root may open every file. */
static int makes_as_a_user(void) {
  enum { NOBODY = 65534 };
  if (!geteuid()) {
    if (chown(folder, NOBODY, NOBODY) || chown(table_path(), NOBODY, NOBODY)) return 1;
    if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY)) return 2;
  }
  if (lm_quota_file_make(folder) != LOAM_EIO) return 3;
  return strstr(loam_error(), LM_QUOTA_FILE ": Permission denied") ? 0 : 4;
}

static void a_table_that_cannot_be_opened_stays(void **state) {
  (void)state;
  assert_int_equal(lm_quota_file_make(folder), LOAM_OK);
  struct stat before = table_stat();
  assert_int_equal(chmod(table_path(), 0), 0);
  assert_int_equal(in_a_process(makes_as_a_user), 0);
  assert_int_equal(table_stat().st_ino, before.st_ino);
}

static bool has_no_locks;

/* Replaces the function of the C library, and can act like a file system that refuses locks. */
int flock(int fd, int operation) {
  if (!has_no_locks) return (int)syscall(SYS_flock, fd, operation);
  errno = ENOLCK;
  return -1;
}

static void no_table_is_made_without_locks(void **state) {
  (void)state;
  has_no_locks = true;
  loam_status status = lm_quota_file_make(folder);
  has_no_locks = false;
  assert_int_equal(status, LOAM_EIO);
  assert_non_null(strstr(loam_error(), "cannot be locked: No locks available"));
  assert_false(exists(table_path()));
}

/* Returns 77 if the system does not let this process hide /proc. */
static int makes_without_proc(void) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) || mount("none", "/proc", "tmpfs", 0, NULL)) return 77;
  if (lm_quota_file_make(folder) != LOAM_EIO) return 1;
  return strstr(loam_error(), "/boot_id cannot be read") ? 0 : 2;
}

static void a_process_without_proc_replaces_no_table(void **state) {
  (void)state;
  assert_int_equal(lm_quota_file_make(folder), LOAM_OK);
  struct stat before = table_stat();
  int result = in_a_process(makes_without_proc);
  if (result == 77) skip();
  assert_int_equal(result, 0);
  assert_int_equal(table_stat().st_ino, before.st_ino);
}

/* ---- Processes */

static char event_words[512];

static void note_event(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind == LOAM_EVENT_ENVIRONMENT)
    snprintf(event_words, sizeof event_words, "%s", event->message);
}

static void *take_block(void) { return loam_malloc(LOAM_SITE("kv"), BLOCK); }

/* Allocates at most `want` blocks, until a request fails. Returns their number. */
static int take_blocks(int want) {
  int n = 0;
  while (n < want && take_block()) n++;
  return n;
}

/* Starts a process that loads the policy first. A process keeps its table until it ends. */
static pid_t start(process *body) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid) return pid;
  loam_on_event(note_event, NULL);
  if (loam_policy_load_text("shared", policy)) _exit(99);
  _exit(body());
}

static void expect_all_is_well(process *body) { assert_int_equal(status_of(start(body)), 0); }

/* Forks a process that takes blocks, reports their number, and waits to be killed. */
static pid_t holder(int blocks) {
  int ready[2];
  char byte = 0;
  if (pipe(ready)) return -1;
  pid_t pid = fork();
  if (!pid) {
    byte = (char)take_blocks(blocks);
    if (write(ready[1], &byte, 1) == 1) pause();
    _exit(0);
  }
  if (read(ready[0], &byte, 1) != 1 || byte != blocks) return -1;
  close(ready[0]);
  close(ready[1]);
  return pid;
}

/* Tries until this process, which has `n` blocks, has BLOCKS blocks. Returns false after a
 * minute. */
static bool gets_all(int n) {
  int64_t deadline = lm_sys_clock_ns() + AN_HOUR / 60;
  while (n < BLOCKS && lm_sys_clock_ns() < deadline) n += take_blocks(BLOCKS - n);
  return n == BLOCKS && !take_block();
}

static int shares_with_a_child(void) {
  pid_t other = holder(3);
  if (other < 0 || take_blocks(BLOCKS) != 1) return 1;
  if (!strstr(loam_error(), "this would pass its limit, which 'kv' shares: ")) return 2;
  kill(other, SIGKILL);
  waitpid(other, NULL, 0);
  return gets_all(1) ? 0 : 3;
}

static void a_killed_process_gives_its_share_back(void **state) {
  (void)state;
  expect_all_is_well(shares_with_a_child);
}

/* This process is not a child of the one that shares with it. It has loaded the policy itself. */
static int takes_three_and_waits(void) { return take_blocks(3) == 3 ? pause() : 1; }

static uint64_t used_now(void) {
  lm_quota_table *table = lm_quota_file_map(folder);
  uint64_t used = 0;
  for (uint32_t q = 1; table && q <= LM_QUOTAS; q++) used += lm_quota_used_of(table, q);
  lm_quota_file_unmap(table);
  return used;
}

static bool waits_for_use(uint64_t least, uint64_t most) {
  int64_t deadline = lm_sys_clock_ns() + AN_HOUR / 60;
  while (lm_sys_clock_ns() < deadline) {
    uint64_t used = used_now();
    if (used >= least && used <= most) return true;
    lm_sys_sleep(1000000);
  }
  return false;
}

static int gets_one(void) { return take_blocks(BLOCKS) == 1 ? 0 : 1; }

static void processes_that_are_strangers_share(void **state) {
  (void)state;
  pid_t other = start(takes_three_and_waits);
  assert_true(waits_for_use(3 * BLOCK, 4 * LM_MIB));
  expect_all_is_well(gets_one);
  assert_true(waits_for_use(3 * BLOCK, 3 * BLOCK + LM_MIB)); /* the process has ended */
  kill(other, SIGKILL);
  waitpid(other, NULL, 0);
}

static int parent_of_a_child(void) {
  int status;
  if (take_blocks(2) != 2) return 1;
  pid_t child = fork();
  if (!child) _exit(take_blocks(BLOCKS) == 2 ? 0 : 1); /* inherited blocks count for the parent */
  waitpid(child, &status, 0);
  return status;
}

static void a_forked_child_counts_once(void **state) {
  (void)state;
  expect_all_is_well(parent_of_a_child);
}

/* ---- Ended processes that only /proc shows */

static int replaces_its_program(void) {
  if (take_blocks(3) != 3) return 1;
  return execl("/bin/sleep", "sleep", "1000", NULL);
}

static void remove_ended_processes(void) {
  lm_quota_table *table = lm_quota_file_map(folder);
  assert_non_null(table);
  lm_quota_file_bury(table);
  lm_quota_file_unmap(table);
}

/* Waits until a file of /proc contains `words`: for another program in the process, or for a
 * zombie. */
static void wait_for_file(const char *format, pid_t pid, const char *words) {
  char path[64], text[512];
  size_t length;
  int64_t deadline = lm_sys_clock_ns() + AN_HOUR / 60;
  snprintf(path, sizeof path, format, pid);
  while (lm_sys_clock_ns() < deadline) {
    if (!lm_sys_read_file(path, text, sizeof text, &length) && strstr(text, words)) return;
    lm_sys_sleep(1000000);
  }
  fail_msg("%s has no %s", path, words);
}

static void another_program_has_no_share(void **state) {
  (void)state;
  pid_t other = start(replaces_its_program);
  wait_for_file("/proc/%d/stat", other, "(sleep)");
  assert_true(used_now() >= 3 * BLOCK);
  remove_ended_processes();
  assert_int_equal(used_now(), 0);
  kill(other, SIGKILL);
  waitpid(other, NULL, 0);
}

static void a_zombie_process_has_no_share(void **state) {
  (void)state;
  pid_t other = start(takes_three_and_waits);
  assert_true(waits_for_use(3 * BLOCK, 4 * LM_MIB));
  remove_ended_processes();
  assert_true(used_now() >= 3 * BLOCK); /* the process is still alive */
  kill(other, SIGKILL);
  wait_for_file("/proc/%d/stat", other, ") Z ");
  remove_ended_processes();
  assert_int_equal(used_now(), 0);
  waitpid(other, NULL, 0);
}

/* In a host, the service thread looks for ended processes. */
static int lets_the_service_look(void) {
  pid_t other = holder(3);
  int n = take_blocks(BLOCKS);
  int64_t deadline = lm_sys_clock_ns() + AN_HOUR / 60;
  if (n != 1) return 1;
  kill(other, SIGKILL);
  wait_for_file("/proc/%d/stat", other, ") Z ");
  while (n < BLOCKS && lm_sys_clock_ns() < deadline) {
    lm_sys_sleep(1000000);
    n += take_blocks(BLOCKS - n);
  }
  return n == BLOCKS ? 0 : 2;
}

static void the_service_of_a_host_finds_the_dead(void **state) {
  (void)state;
  expect_all_is_well(lets_the_service_look);
}

/* ---- Without a table */

static int limits_itself(void) {
  if (!strstr(event_words, "a shared limit counts this process alone: ")) return 1;
  if (!strstr(event_words, "Is a directory")) return 2;
  return take_blocks(BLOCKS + 1) == BLOCKS ? 0 : 3;
}

static void without_a_table_each_process_has_the_limit(void **state) {
  (void)state;
  assert_int_equal(mkdir(table_path(), 0700), 0);
  pid_t other = start(limits_itself);
  expect_all_is_well(limits_itself);
  assert_int_equal(waitpid(other, NULL, 0), other);
}

/* If the folder that the host names cannot be used, loam does not use the usual folder instead. */
static int has_a_folder_that_is_too_long(void) {
  char path[LM_CONTROL_PATH + 50];
  memset(path, 'x', sizeof path);
  path[sizeof path - 1] = 0;
  path[0] = '/';
  loam_config config = { .size = sizeof config, .control = -1, .control_dir = path };
  if (loam_start(&config)) return 1;
  loam_on_event(note_event, NULL);
  if (loam_policy_load_text("shared", policy)) return 2;
  if (!strstr(event_words, "alone: the directory of control sockets has 157 bytes")) return 3;
  return exists(table_path()) ? 4 : 0;
}

static void a_folder_that_cannot_be_used_is_named(void **state) {
  (void)state;
  assert_int_equal(in_a_process(has_a_folder_that_is_too_long), 0);
}

static int is_allowed_no_file(void) {
  setenv("LOAM_CONTROL", "0", 1);
  loam_on_event(note_event, NULL);
  if (loam_policy_load_text("shared", policy)) return 1;
  if (!strstr(event_words, "alone: LOAM_CONTROL=0 allows no file")) return 2;
  return exists(table_path()) ? 3 : 0;
}

/* Follows a board in the folder. Returns whether the process has a table after that. */
static bool follows(void) {
  char path[sizeof folder + 20], boot_id[sizeof((lm_quota_head *)0)->boot_id];
  snprintf(path, sizeof path, "%s/1.board", folder);
  lm_board_boot_id(boot_id, sizeof boot_id);
  lm_policy_begin();
  lm_quota_file_follow(path, boot_id);
  lm_policy_end();
  return atomic_load(&lm_quota_mapped);
}

static int follows_and_is_allowed_no_file(void) {
  lm_quota_file_start(NULL, false);
  if (follows() || exists(table_path())) return 1;
  if (lm_quota_file_make(folder)) return 2; /* `loam run` does this */
  return follows() ? 0 : 3;
}

static void a_process_that_may_make_no_file_makes_none(void **state) {
  (void)state;
  assert_int_equal(in_a_process(is_allowed_no_file), 0);
  assert_int_equal(in_a_process(follows_and_is_allowed_no_file), 0);
}

int main(void) {
#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
  const struct CMUnitTest tests[] = {
    IN_FOLDER(the_file_is_made_once_with_all_its_room),
    IN_FOLDER(a_folder_that_stays_locked_holds_nobody_up),
    IN_FOLDER(what_is_no_table_is_replaced),
    IN_FOLDER(a_link_is_replaced_and_not_followed),
    IN_FOLDER(what_cannot_be_replaced_is_named),
    IN_FOLDER(a_table_with_a_second_name_stays),
    IN_FOLDER(a_table_that_cannot_be_opened_stays),
    IN_FOLDER(no_table_is_made_without_locks),
    IN_FOLDER(a_process_without_proc_replaces_no_table),
    IN_FOLDER(a_killed_process_gives_its_share_back),
    IN_FOLDER(processes_that_are_strangers_share),
    IN_FOLDER(a_forked_child_counts_once),
    IN_FOLDER(another_program_has_no_share),
    IN_FOLDER(a_zombie_process_has_no_share),
    IN_FOLDER(the_service_of_a_host_finds_the_dead),
    IN_FOLDER(without_a_table_each_process_has_the_limit),
    IN_FOLDER(a_folder_that_cannot_be_used_is_named),
    IN_FOLDER(a_process_that_may_make_no_file_makes_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
