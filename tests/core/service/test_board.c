/* test_board.c - places on a board, and what a reader reports about processes that run, are
 * stopped, or were killed: board.h and board_read.h. */
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "control_fixture.h"
#include "pages/metadata.h"
#include "service/board.h"
#include "service/board_file.h"
#include "service/board_owner.h"
#include "service/board_read.h"

enum { ROWS = 1200 };

static char *row[ROWS];
static size_t rows;

static int read_error;

/* Keeps the rows of boards in this test's folder. The reader also finds other programs of the
 * user. */
static void keep_row(void *ctx, const char *text, size_t length) {
  (void)ctx;
  assert_true(rows < ROWS);
  row[rows] = strndup(text, length);
  if (strstr(row[rows], folder)) rows++;
  else free(row[rows]);
}

/* Reads all boards of this user. */
static void look(void) {
  while (rows) free(row[--rows]);
  lm_board_each(&(lm_board_reader){ .write = keep_row, .error = &read_error });
}

/* Returns the row of a process from the last look, or NULL if it has none. */
static const char *row_of(int pid) {
  char begin[32];
  snprintf(begin, sizeof begin, "{\"pid\":%d,", pid);
  for (size_t i = 0; i < rows; i++)
    if (!strncmp(row[i], begin, strlen(begin))) return row[i];
  return NULL;
}

static void shows(int pid, const char *text) {
  assert_true(lm_board_is_valid());
  look();
  const char *found = row_of(pid);
  if (!found || !strstr(found, text)) fail_msg("expected %s in %s", text, found ? found : "no row");
}

static unsigned long long number_in(const char *text, const char *key) {
  const char *at = strstr(text, key);
  assert_non_null(at);
  return strtoull(at + strlen(key), NULL, 10);
}

/* Returns the path of the only board in the folder, or "" if there is none. */
static const char *only_board(void) {
  static char path[sizeof folder + 300];
  int boards = 0;
  DIR *dir = opendir(folder);
  *path = 0;
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (!strstr(entry->d_name, ".board")) continue;
    boards++;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
  }
  closedir(dir);
  assert_true(boards <= 1);
  return path;
}

/* Forks a child that waits to be killed. The child also ends if a test fails. It has written a byte
 * when this function returns. */
static pid_t idle_child(void) {
  int ends[2];
  char byte;
  assert_int_equal(pipe(ends), 0);
  pid_t pid = fork();
  if (!pid) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || write(ends[1], "", 1) != 1) _exit(1);
    for (;;) pause();
  }
  assert_int_equal(read(ends[0], &byte, 1), 1);
  close(ends[0]);
  close(ends[1]);
  return pid;
}

static void end_child(pid_t pid) {
  int status;
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* Runs `run` in a child that starts loam's service first, and returns its exit status. */
static int in_host(void (*run)(void)) {
  int status;
  pid_t pid = fork();
  if (!pid) {
    assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
    run();
    lm_control_stop();
    _exit(0);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

/* ---- what a row says */

static void a_host_is_on_a_board(void **state) {
  (void)state;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  assert_int_equal(lm_policy_load("told.lua", ALL_OF("told"), strlen(ALL_OF("told"))), LOAM_OK);
  shows(getpid(), "\"name\":\"told\"");
  shows(getpid(), "\"program\":\"test_board\"");
  shows(getpid(), "\"state\":\"running\"");
  shows(getpid(), "\"last\":{\"ok\":true,");
}

static void a_refusal_is_reported_in_full(void **state) {
  (void)state;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  assert_int_not_equal(lm_policy_load("odd.lua", "return 1\n", 9), LOAM_OK);
  shows(getpid(), "odd.lua");
  shows(getpid(), "does not return a policy");
  shows(getpid(), "\"last\":{\"ok\":false,");
}

static void limits_show_how_full_they_are(void **state) {
  (void)state;
  static const char text[] = "local h = loam.host { name = 'cup', limit = 4 * loam.MiB }\n"
                             "return loam.policy { pick = function(req) return h end }\n";
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  assert_int_equal(lm_policy_load("cup.lua", text, strlen(text)), LOAM_OK);
  void *p = loam_malloc(loam_site_get("board.cup"), 1 << 20);
  assert_non_null(p);
  loam_free(loam_malloc(loam_site_get("board.cup"), 2 << 20));
  lm_board_write();
  look();
  const char *found = row_of(getpid());
  assert_non_null(found);
  const char *limit = strstr(found, "{\"strategy\":\"cup\"");
  assert_non_null(limit);
  assert_int_equal(number_in(limit, "\"limit_bytes\":"), 4 << 20);
  assert_in_range(number_in(limit, "\"used_bytes\":"), 1 << 20, 2 << 20);
  assert_in_range(number_in(limit, "\"peak_bytes\":"), 3 << 20, 4 << 20);
  loam_free(p);
}

static void an_edit_that_takes_a_limit_away_leaves_none(void **state) {
  (void)state;
  static const char limited[] = "local h = loam.host { name = 'gone', limit = 4 * loam.MiB }\n"
                                "return loam.policy { pick = function(req) return h end }\n";
  static const char edited[] = "local h = loam.host { name = 'gone' }\n"
                               "return loam.policy { pick = function(req) return h end }\n";
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  assert_int_equal(lm_policy_load("gone.lua", limited, strlen(limited)), LOAM_OK);
  void *p = loam_malloc(loam_site_get("board.gone"), 3 << 20);
  assert_non_null(p);
  shows(getpid(), "\"limits\":[{\"strategy\":\"gone\"");
  assert_int_equal(lm_policy_load("gone.lua", edited, strlen(edited)), LOAM_OK);
  shows(getpid(), "\"limits\":[],\"limits_left_out\":0");
  assert_int_equal(lm_policy_load("gone.lua", limited, strlen(limited)), LOAM_OK);
  shows(getpid(), "\"limits\":[{\"strategy\":\"gone\"");
  loam_free(p);
}

static int descriptors(void) {
  int n = 0;
  DIR *dir = opendir("/proc/self/fd");
  while (readdir(dir)) n++;
  closedir(dir);
  return n;
}

static void no_descriptor_stays_open(void **state) {
  (void)state;
  int before = descriptors();
  assert_int_equal(lm_board_start(folder), LOAM_OK);
  assert_int_equal(descriptors(), before);
  look();
  assert_non_null(row_of(getpid()));
  assert_int_equal(descriptors(), before);
}

/* ---- processes of a tree */

static void a_forked_child_has_a_place_at_once(void **state) {
  (void)state;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  pid_t child = idle_child();
  shows(child, "\"state\":\"running\"");
  assert_non_null(row_of(getpid()));
  only_board();
  end_child(child);
}

static void a_stopped_child_shows_as_stopped(void **state) {
  (void)state;
  int status;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  pid_t child = idle_child();
  kill(child, SIGSTOP);
  assert_int_equal(waitpid(child, &status, WUNTRACED), child);
  shows(child, "\"state\":\"stopped\"");
  end_child(child);
}

static void a_killed_child_leaves_its_last_words(void **state) {
  (void)state;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  assert_int_not_equal(lm_policy_load("last.lua", "return 1\n", 9), LOAM_OK);
  pid_t child = idle_child();
  end_child(child);
  shows(child, "\"state\":\"ended\"");
  shows(child, "\"announced\":false");
  shows(child, "last.lua");
  assert_true(number_in(row_of(child), "\"ended_at\":") > 0);
}

static void a_program_that_took_the_id_is_no_host(void **state) {
  (void)state;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  pid_t child = idle_child(), other;
  lm_board_figures figures = { .exe_inode = 0 };
  uint64_t owner = lm_board_owner_now(child), here = lm_board_own_namespace();
  assert_int_equal(lm_board_look(owner, here, &figures).state, LM_BOARD_RUNNING);
  assert_int_equal(lm_board_look(owner, here + 1, &figures).state, LM_BOARD_UNKNOWN);
  uint64_t half = (uint64_t)lm_board_since_ms(owner) / 2; /* the machine may have just started */
  uint64_t earlier = owner - (half << LM_BOARD_MS_SHIFT);
  assert_int_equal(lm_board_look(earlier, here, &figures).state, LM_BOARD_GONE);
  figures.exe_inode = 1; /* the child runs another program */
  assert_int_equal(lm_board_look(owner, here, &figures).state, LM_BOARD_GONE);
  end_child(child);
  other = idle_child(); /* takes the free place or another one, never the parent's */
  shows(other, "\"state\":\"running\"");
  assert_non_null(row_of(getpid()));
  end_child(other);
}

/* Gives the maker of the only board another PID namespace, and names this process as the watcher.
 * Returns a descriptor of the board. */
static int move_maker_away(void) {
  uint64_t elsewhere = lm_board_own_namespace() + 1, watcher = lm_board_owner_now(getpid());
  int fd = open(only_board(), O_RDWR);
  assert_true(fd >= 0);
  off_t at = (off_t)offsetof(lm_board_head, pid_namespace);
  assert_int_equal(pwrite(fd, &elsewhere, sizeof elsewhere, at), sizeof elsewhere);
  at = (off_t)(offsetof(lm_board, news) + offsetof(lm_board_news, watcher));
  assert_int_equal(pwrite(fd, &watcher, sizeof watcher, at), sizeof watcher);
  return fd;
}

static void the_id_of_a_maker_elsewhere_means_no_process_here(void **state) {
  (void)state;
  uint64_t none = 0;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  int fd = move_maker_away();
  assert_int_equal(lm_board_find_living(fd), getpid()); /* finds the process by its place */
  pwrite(fd, &none, sizeof none, (off_t)offsetof(lm_board, place));
  assert_int_equal(lm_board_find_living(fd), -1);
  close(fd);
}

static int find_self(uint64_t pid_namespace, int pid) {
  return pid_namespace == lm_board_own_namespace() + 1 ? pid : 0;
}

/* Tells whether the row of this process has these words, if its entries say that it follows the
 * board. Looks again where the service has written a new entry in between. */
static bool follower_shows(int fd, int (*find_pid)(uint64_t, int), const char *words) {
  static const uint32_t follows = 1;
  for (int tries = 0; tries < 1000; tries++) {
    for (size_t i = 0; i < 2; i++) {
      size_t entry = offsetof(lm_board, slot) + i * sizeof(lm_board_entry);
      pwrite(fd, &follows, sizeof follows, (off_t)(entry + offsetof(lm_board_figures, follows)));
    }
    while (rows) free(row[--rows]);
    lm_board_each(
        &(lm_board_reader){ .write = keep_row, .find_pid = find_pid, .error = &read_error });
    if (strstr(row_of(getpid()), "\"published\":")) break;
  }
  return strstr(row_of(getpid()), words);
}

static void a_watcher_elsewhere_is_found_by_the_id_it_has_here(void **state) {
  (void)state;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  int fd = move_maker_away();
  assert_true(follower_shows(fd, NULL, "\"watching\":false"));
  assert_true(follower_shows(fd, find_self, "\"watching\":true"));
  close(fd);
}

static void a_folder_with_several_paths_is_visited_once(void **state) {
  (void)state;
  static lm_board_visited visited;
  char again[sizeof folder + 8];
  snprintf(again, sizeof again, "/tmp/../%s", folder);
  const char *const folders[] = { folder, again };
  lm_board_reader reader = { .write = keep_row,
                             .folders = folders,
                             .folder_count = LM_COUNT(folders),
                             .visited = &visited,
                             .error = &read_error };
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  while (rows) free(row[--rows]);
  lm_board_each(&reader);
  assert_int_equal(rows, 1);
  reader.visited = NULL;
  while (rows) free(row[--rows]);
  lm_board_each(&reader);
  assert_int_equal(rows, 3);
}

/* ---- the file */

/* Holds a lease on a board until the kernel asks to end it, as the watcher does for a moment.
 * Writes a byte to `result_fd`: 1 if the filesystem grants leases. */
static void hold_lease(const char *path, int result_fd) {
  int number;
  sigset_t of_lease;
  sigemptyset(&of_lease);
  sigaddset(&of_lease, SIGIO);
  sigprocmask(SIG_BLOCK, &of_lease, NULL);
  int fd = open(path, O_RDWR);
  char is_held = !fcntl(fd, F_SETLEASE, F_WRLCK);
  if (write(result_fd, &is_held, 1) != 1) _exit(1);
  sigwait(&of_lease, &number);
  fcntl(fd, F_SETLEASE, F_UNLCK);
  _exit(0);
}

/* Makes a board, and a process that holds a lease on it, which it returns. */
static pid_t make_leased(char path[PATH_MAX], char *is_held) {
  int ends[2];
  lm_board *board;
  assert_int_equal(lm_board_file_make(folder, path, &board), LOAM_OK);
  lm_board_file_unmap(board);
  assert_int_equal(pipe(ends), 0);
  pid_t holder = fork();
  if (!holder) hold_lease(path, ends[1]);
  assert_int_equal(read(ends[0], is_held, 1), 1);
  close(ends[0]);
  close(ends[1]);
  return holder;
}

static void a_board_under_a_lease_is_opened_a_moment_later(void **state) {
  (void)state;
  char path[PATH_MAX], is_held = 0;
  pid_t holder = make_leased(path, &is_held);
  lm_board *board = lm_board_file_map(path);
  if (is_held) assert_non_null(board);
  lm_board_file_unmap(board);
  end_child(holder);
  unlink(path);
}

static void an_image_is_read_a_moment_after_a_lease(void **state) {
  (void)state;
  char path[PATH_MAX], is_held = 0;
  void *bytes;
  size_t size;
  pid_t holder = make_leased(path, &is_held);
  assert_int_equal(lm_board_read_image(path, 7, &bytes, &size), LOAM_EIO);
  assert_non_null(strstr(loam_error(), "the board has no image"));
  end_child(holder);
  unlink(path);
}

static void nothing(void) {}

static void the_last_of_a_tree_removes_the_file(void **state) {
  (void)state;
  assert_int_equal(in_host(nothing), 0);
  assert_string_equal(only_board(), "");
}

static void leave_a_killed_child(void) { end_child(idle_child()); }

static void a_board_of_last_words_is_kept_for_a_time(void **state) {
  (void)state;
  assert_int_equal(in_host(leave_a_killed_child), 0);
  const char *path = only_board();
  assert_true(*path);
  lm_board_clean(folder); /* records the end of the process */
  assert_true(exists(path));
  lm_board_place place;
  int64_t old = 1;
  int fd = open(path, O_RDWR);
  for (int i = 0; i < 2; i++) {
    off_t at = (off_t)(offsetof(lm_board, place) + (size_t)i * sizeof place);
    assert_int_equal(pread(fd, &place, sizeof place, at), sizeof place);
    off_t entry = (off_t)(offsetof(lm_board, slot) + (size_t)i * sizeof(lm_board_slot));
    for (int j = 0; j < 2; j++) {
      off_t updated = entry + j * (off_t)sizeof(lm_board_entry) +
                      (off_t)offsetof(lm_board_figures, updated_at);
      assert_int_equal(pwrite(fd, &old, sizeof old, updated), sizeof old);
    }
    off_t missed = at + (off_t)offsetof(lm_board_place, ended_at);
    assert_int_equal(pwrite(fd, &old, sizeof old, missed), sizeof old);
  }
  off_t ended = (off_t)offsetof(lm_board_head, ended_at);
  assert_int_equal(pwrite(fd, &old, sizeof old, ended), sizeof old);
  close(fd);
  lm_board_clean(folder);
  assert_false(exists(path));
}

/* Writes a file of the folder that begins like a board of a version, `age_s` seconds ago. */
static void make_other(const char *path, const char *magic, uint32_t version, int64_t age_s) {
  struct {
    char magic[16];
    uint32_t version;
  } head = { .version = version };
  strncpy(head.magic, magic, sizeof head.magic - 1);
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  assert_int_equal(write(fd, &head, sizeof head), sizeof head);
  struct timespec made[2] = { { .tv_sec = time(NULL) - age_s }, { .tv_sec = time(NULL) - age_s } };
  assert_int_equal(futimens(fd, made), 0);
  close(fd);
}

/* Tells whether the kernel says that no process has a file open: overlayfs gives a lease also while
 * the file is mapped, so the reader asks for none there. */
static bool has_leases(const char *path) {
  struct statfs fs;
  int fd = open(path, O_RDONLY);
  assert_int_equal(fstatfs(fd, &fs), 0);
  bool has = fs.f_type != OVERLAYFS_SUPER_MAGIC && !fcntl(fd, F_SETLEASE, F_WRLCK);
  close(fd);
  return has;
}

static void a_board_of_another_version_is_reported_and_kept(void **state) {
  (void)state;
  char path[sizeof folder + 40];
  snprintf(path, sizeof path, "%s/77-1-1.board", folder);
  int64_t up_s = lm_sys_boot_ns() / 1000000000;
  make_other(path, LM_BOARD_MAGIC, LM_BOARD_VERSION + 1, up_s / 2);
  int fd = open(path, O_RDONLY); /* as a program of that version has it */
  lm_board_clean(folder);
  assert_true(exists(path));
  look();
  assert_int_equal(rows, 1);
  assert_non_null(strstr(row[0], "\"other_version\":\"77-1-1.board\""));
  close(fd);
  look();
  if (has_leases(path)) assert_int_equal(rows, 0);
  assert_true(exists(path));
  make_other(path, LM_BOARD_MAGIC, LM_BOARD_VERSION + 1, up_s + 3600); /* older than the boot */
  lm_board_clean(folder);
  assert_false(exists(path));
  make_other(path, "", LM_BOARD_VERSION + 1, 3600); /* no magic: its maker has died */
  lm_board_clean(folder);
  assert_false(exists(path));
}

static void a_full_board_counts_who_is_left_out(void **state) {
  (void)state;
  lm_board_head head;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  int fd = open(only_board(), O_RDWR);
  assert_true(fd >= 0);
  uint64_t owner = lm_board_owner_now(getppid()), none = 0;
  for (uint32_t i = 1; i < LM_BOARD_PLACES; i++)
    pwrite(fd, &owner, 8, (off_t)(offsetof(lm_board, place) + i * sizeof(lm_board_place)));
  pid_t child = idle_child();
  assert_int_equal(pread(fd, &head, sizeof head, 0), sizeof head);
  assert_int_equal(atomic_load(&head.left_out), 1);
  look();
  assert_null(row_of(child));
  end_child(child);
  for (uint32_t i = 1; i < LM_BOARD_PLACES; i++)
    pwrite(fd, &none, 8, (off_t)(offsetof(lm_board, place) + i * sizeof(lm_board_place)));
  close(fd);
}

static void a_refused_call_leaves_a_whole_process(void **state) {
  (void)state;
  for (long nth = 1; nth <= 12; nth++) {
    pid_t pid = fork();
    int status;
    if (!pid) {
      lm_sys_refuse(nth);
      (void)lm_board_start(folder);
      lm_sys_refuse(0);
      lm_board_write();
      lm_board_end();
      _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
  }
}

/* A process that takes the place of an ended one, and finds no room to write, gives it back. */
static void a_place_without_room_keeps_its_ended_process(void **state) {
  (void)state;
  int status;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  pid_t ended = fork();
  if (!ended) {
    lm_board_end();
    _exit(0);
  }
  assert_int_equal(waitpid(ended, &status, 0), ended);
  shows(ended, "\"announced\":true");
  unsigned long long ended_at = number_in(row_of(ended), "\"ended_at\":");
  assert_true(ended_at > 0);
  lm_sys_refuse_from(1);
  pid_t refused = fork();
  if (!refused) _exit(0);
  lm_sys_refuse_from(0);
  assert_int_equal(waitpid(refused, &status, 0), refused);
  shows(ended, "\"announced\":true");
  assert_null(row_of(refused));
  assert_true(number_in(row_of(ended), "\"ended_at\":") == ended_at);
}

/* ---- writers that are killed, boards of any bytes */

/* Loads policies that are refused, until the parent ends. The name of each policy contains the
 * number of the load. */
static void write_for_ever(void) {
  char name[32];
  struct loam_policy_info info;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) {
    lm_policy_info_get(&info);
    snprintf(name, sizeof name, "n%llu.lua", (unsigned long long)info.loads + 1);
    (void)lm_policy_load(name, "return 1\n", 9);
    for (int i = 0; i < 100; i++) lm_board_write();
  }
}

/* Each row states the number of loads twice: as a number, and in the words of the last error. Both
 * must agree. */
static void all_rows_are_whole(void) {
  look();
  for (size_t i = 0; i < rows; i++) {
    char name[40];
    unsigned long long loads = number_in(row[i], "\"loads\":");
    snprintf(name, sizeof name, "n%llu.lua", loads);
    if (loads && !strstr(row[i], name)) fail_msg("%s is not in %s", name, row[i]);
  }
}

static void writers_killed_at_any_moment_harm_no_reader(void **state) {
  (void)state;
  enum { KILLS = SANITIZED ? 200 : 1000, AT_A_TIME = 4 }; /* tests/long/kills kills 10,000 times */
  pid_t writer[AT_A_TIME] = { 0 };
  unsigned seed = 1;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  struct loam_policy_info info;
  lm_policy_info_get(&info);
  char name[32];
  snprintf(name, sizeof name, "n%llu.lua", (unsigned long long)info.loads + 1);
  (void)lm_policy_load(name, "return 1\n", 9);
  for (int i = 0; i < KILLS; i++) {
    pid_t *one = &writer[i % AT_A_TIME];
    if (*one) end_child(*one);
    *one = fork();
    if (!*one) write_for_ever();
    seed = seed * 1103515245 + 12345;
    lm_sys_sleep(seed / 65536 % 1500 * 1000);
    if (i % 8 == 0) all_rows_are_whole();
  }
  for (int i = 0; i < AT_A_TIME; i++) end_child(writer[i]);
  all_rows_are_whole();
  assert_non_null(row_of(getpid()));
  assert_true(rows < 100); /* places of ended processes are used again */
}

static void a_writer_stopped_in_a_write_is_readable(void **state) {
  (void)state;
  int status;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  pid_t writer = fork();
  if (!writer) write_for_ever();
  for (look(); !row_of(writer); look()) lm_sys_sleep(1000000); /* the writer may not run at first */
  for (int i = 0; i < 200; i++) {
    lm_sys_sleep(1000000);
    kill(writer, SIGSTOP);
    assert_int_equal(waitpid(writer, &status, WUNTRACED), writer);
    shows(writer, "\"state\":\"stopped\"");
    kill(writer, SIGCONT);
  }
  end_child(writer);
}

static void a_board_of_any_bytes_is_read_without_harm(void **state) {
  (void)state;
  enum { ROUNDS = SANITIZED ? 100 : 1000, BYTES = 200 };
  unsigned seed = 7;
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  pid_t child = idle_child();
  int fd = open(only_board(), O_RDWR);
  assert_true(fd >= 0);
  for (int i = 0; i < ROUNDS; i++) {
    for (int j = 0; j < BYTES; j++) {
      seed = seed * 1103515245 + 12345;
      /* Not in the head, because a damaged magic would hide the rest. Mostly in the first
       * places. */
      size_t span = j % 2 ? sizeof(lm_board_place) * 4 : LM_BOARD_INDEX + 32768;
      unsigned char byte = (unsigned char)(seed >> 24);
      off_t at = (off_t)(LM_BOARD_PAGE + seed / 256 % span);
      assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    look();
  }
  close(fd);
  end_child(child);
}

static void an_entry_whose_texts_do_not_end_is_not_valid(void **state) {
  (void)state;
  static lm_board_entry e;
  assert_true(lm_board_entry_is_valid(&e));
  memset(e.figures.path, 'x', sizeof e.figures.path);
  assert_false(lm_board_entry_is_valid(&e));
  e.figures.path[0] = 0;
  e.figures.limits = LM_BOARD_LIMITS;
  assert_true(lm_board_entry_is_valid(&e));
  e.figures.limits++;
  assert_false(lm_board_entry_is_valid(&e));
  e.figures.limits--;
  lm_board_limit *last = &e.figures.limit[LM_BOARD_LIMITS - 1];
  memset(last->strategy, 'x', sizeof last->strategy);
  assert_false(lm_board_entry_is_valid(&e));
  e.figures.limits--;
  memset(e.last_error, 'x', sizeof e.last_error);
  e.figures.error_bytes = 1;
  assert_false(lm_board_entry_is_valid(&e));
  e.last_error[0] = 0;
  assert_true(lm_board_entry_is_valid(&e));
  e.figures.error_bytes = LM_BOARD_PAGE + 1;
  assert_false(lm_board_entry_is_valid(&e));
  e.figures.error_bytes = 0;
  e.figures.classes = 1;
  assert_false(lm_board_entry_is_valid(&e)); /* a class without its strategy */
  e.figures.uses = 1;
  assert_true(lm_board_entry_is_valid(&e));
  e.figures.classes = LM_BOARD_CLASSES + 1;
  assert_false(lm_board_entry_is_valid(&e));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(a_host_is_on_a_board),
    TEST(an_entry_whose_texts_do_not_end_is_not_valid),
    TEST(a_refusal_is_reported_in_full),
    TEST(limits_show_how_full_they_are),
    TEST(an_edit_that_takes_a_limit_away_leaves_none),
    TEST(no_descriptor_stays_open),
    TEST(a_forked_child_has_a_place_at_once),
    TEST(a_stopped_child_shows_as_stopped),
    TEST(a_killed_child_leaves_its_last_words),
    TEST(a_program_that_took_the_id_is_no_host),
    TEST(the_id_of_a_maker_elsewhere_means_no_process_here),
    TEST(a_watcher_elsewhere_is_found_by_the_id_it_has_here),
    TEST(a_folder_with_several_paths_is_visited_once),
    TEST(a_board_under_a_lease_is_opened_a_moment_later),
    TEST(an_image_is_read_a_moment_after_a_lease),
    TEST(the_last_of_a_tree_removes_the_file),
    TEST(a_board_of_last_words_is_kept_for_a_time),
    TEST(a_board_of_another_version_is_reported_and_kept),
    TEST(a_full_board_counts_who_is_left_out),
    TEST(a_refused_call_leaves_a_whole_process),
    TEST(a_place_without_room_keeps_its_ended_process),
    TEST(writers_killed_at_any_moment_harm_no_reader),
    TEST(a_writer_stopped_in_a_write_is_readable),
    TEST(a_board_of_any_bytes_is_read_without_harm),
  };
  setenv("LOAM_CONTROL", "0", 1); /* the first allocation must not start the service */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
