/* test_namespaces.c - finds processes of other PID namespaces for the boards that name them. */
#include "cli/namespaces.h"

#include <dirent.h>
#include <dlfcn.h>

#include "control_fixture.h"
#include "os/sys.h"
#include "service/board_file.h"
#include "service/board_owner.h"

static size_t rows, readings;

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
  char path[PATH_MAX];
  lm_board *board;
  assert_int_equal(lm_board_file_make(folder, path, &board), LOAM_OK);
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

/* A list reads /proc again for a process that may have started since, but not for each process of a
 * full board. Only the first PID namespace of a machine shows that a process has ended. */
static void proc_is_not_read_for_each_process_that_has_ended(void **state) {
  enum { FIRST_PID_NAMESPACE = (int)0xeffffffc };
  (void)state;
  if ((int)lm_board_own_namespace() != FIRST_PID_NAMESPACE) skip();
  make_foreign_places();
  assert_int_equal(lm_namespaces_boards(count_row, NULL), 0);
  assert_int_equal(rows, LM_BOARD_PLACES);
  assert_in_range(readings, 2, 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(proc_is_not_read_for_each_process_that_has_ended, set_up,
                                    tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
