/* test_namespaces - finds processes of other PID namespaces for the boards that name them. */
#include "cli/namespaces.h"

#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "control_fixture.h"
#include "os/sys.h"
#include "service/board_file.h"
#include "service/board_owner.h"

static size_t rows, readings;
static char board_path[PATH_MAX];

/* Counts how often /proc is read. */
DIR *opendir(const char *path) {
  union {
    void *symbol;
    DIR *(*f)(const char *);
  } next = { dlsym(RTLD_NEXT, "opendir") };
  readings += !strcmp(path, "/proc");
  return next.f(path);
}

static void count_row(void *ctx, const char *text, size_t length) {
  (void)ctx;
  (void)length;
  if (strstr(text, folder)) rows++;
}

/* Fills a board with processes that have ended, each in a PID namespace that no process has. */
static void make_foreign_places(void) {
  lm_board *board;
  assert_int_equal(lm_board_file_make(folder, board_path, &board), LOAM_OK);
  uint64_t owner = lm_board_owner_now(7) - (UINT64_C(1000) << LM_BOARD_MS_SHIFT);
  for (uint32_t i = 0; i < LM_BOARD_PLACES; i++) {
    lm_board_figures *f = &board->slot[i].entry[0].figures;
    f->owner = owner;
    f->pid_namespace = lm_board_own_namespace() + 100000 + i;
    f->updated_at = lm_sys_unix_ns();
    atomic_store(&board->place[i].seq, 2);
    atomic_store(&board->place[i].owner, owner);
  }
  lm_board_file_unmap(board);
}

/* A list reads /proc once, and once more for a process that may have started since. */
static void proc_is_not_read_for_each_process_that_has_ended(void **state) {
  (void)state;
  make_foreign_places();
  rows = readings = 0;
  assert_int_equal(lm_namespaces_boards(count_row, NULL), 0);
  assert_true(rows == 0 || rows == LM_BOARD_PLACES);
  assert_in_range(readings, 1, 2);
}

static void map_file(const char *path) {
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || mmap(NULL, LM_PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED) _exit(1);
  close(fd);
}

/* Maps a file in each of `count` folders, whose names look like those of boards. */
static void map_many(int count) {
  char path[128];
  for (int i = 0; i < count; i++) {
    snprintf(path, sizeof path, "%s/%d", folder, i);
    if (mkdir(path, 0700)) _exit(1);
    strcat(path, "/1.board");
    map_file(path);
  }
}

/* Forks a process of user `uid` that maps the board, or else a file in each of `count` folders, and
 * waits. Returns when it has done that. */
static pid_t fork_mapper(unsigned uid, int count) {
  int ends[2];
  char done;
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  if (!child) {
    if (count) map_many(count);
    else map_file(board_path);
    if (setuid(uid) || write(ends[1], "", 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(ends[1]);
  assert_int_equal(read(ends[0], &done, 1), 1);
  close(ends[0]);
  return child;
}

/* A user whose process has boards in many folders. */
static void no_user_can_hide_the_boards_of_others(void **state) {
  (void)state;
  enum { MANY = 300, USER = 65534, OTHER = 65533 };
  if (geteuid()) skip();
  make_foreign_places();
  assert_int_equal(unsetenv("LOAM_CONTROL_DIR"), 0);
  pid_t hider = fork_mapper(USER, MANY);
  pid_t other = fork_mapper(OTHER, 0);
  rows = 0;
  assert_int_equal(lm_namespaces_boards(count_row, NULL), 0);
  kill(hider, SIGKILL);
  kill(other, SIGKILL);
  waitpid(hider, NULL, 0);
  waitpid(other, NULL, 0);
  assert_int_equal(rows, LM_BOARD_PLACES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(no_user_can_hide_the_boards_of_others, set_up, tear_down),
    cmocka_unit_test_setup_teardown(proc_is_not_read_for_each_process_that_has_ended, set_up,
                                    tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
