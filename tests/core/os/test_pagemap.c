/* test_pagemap.c - which pages of a process have memory: pagemap.h. */
#include "test.h"

#include "os/pagemap.h"

enum { PAGES = 16 };

static char *area;

static void note(void *ctx, const lm_pagemap_run *run) {
  char *seen = ctx;
  assert_true(run->from >= (uintptr_t)area && run->to <= (uintptr_t)area + PAGES * LM_PAGE);
  for (uintptr_t at = run->from; at < run->to; at += LM_PAGE)
    seen[(at - (uintptr_t)area) / LM_PAGE] = lm_pagemap_is_resident(run) ? 'r' : '0';
}

/* Writes a letter for each page of the area: r if it has memory, 0 if it is a page of zeros, and -
 * if it is not there. Returns what lm_pagemap_scan returns. */
static int scan(int pid, char seen[PAGES + 1]) {
  uintptr_t from = (uintptr_t)area;
  memset(seen, '-', PAGES);
  seen[PAGES] = 0;
  lm_descriptor pagemap = lm_pagemap_open(pid);
  int error = pagemap.fd < 0 ? errno
                             : lm_pagemap_scan(&pagemap, from, from + PAGES * LM_PAGE, note, seen);
  lm_descriptor_close(&pagemap);
  return error;
}

static void skip_if_unknown(int error) {
  if (error != ENOTTY && error != EINVAL) return;
  print_message("the kernel is older than Linux 6.7\n");
  skip();
}

/* A page that is only read is the kernel's page of zeros, if the area has no huge page. */
static int make_area(void **state) {
  (void)state;
  area = mmap(NULL, PAGES * LM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) return 1;
  (void)madvise(area, PAGES * LM_PAGE, MADV_NOHUGEPAGE);
  area[2 * LM_PAGE] = area[3 * LM_PAGE] = area[15 * LM_PAGE] = 1;
  return *(volatile char *)&area[7 * LM_PAGE];
}

static int remove_area(void **state) {
  (void)state;
  return munmap(area, PAGES * LM_PAGE);
}

static void pages_are_told_apart(void **state) {
  (void)state;
  char seen[PAGES + 1];
  int error = scan(0, seen);
  skip_if_unknown(error);
  assert_int_equal(error, 0);
  assert_string_equal(seen, "--rr---0-------r");
}

/* Runs in the child: touches a page, says so, and waits for its end. */
static void be_scanned(int said) {
  area[5 * LM_PAGE] = 1;
  if (write(said, "!", 1) == 1) pause();
  _exit(1);
}

static void another_process_is_scanned(void **state) {
  (void)state;
  char seen[PAGES + 1], byte;
  int told[2];
  assert_int_equal(pipe(told), 0);
  pid_t child = fork();
  if (!child) be_scanned(told[1]);
  close(told[1]);
  assert_true(child > 0);
  bool is_ready = read(told[0], &byte, 1) == 1;
  int error = is_ready ? scan(child, seen) : EIO;
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  close(told[0]);
  skip_if_unknown(error);
  assert_int_equal(error, 0);
  assert_string_equal(seen, "--rr-r-0-------r");
}

static void a_process_that_has_ended_is_not_scanned(void **state) {
  (void)state;
  char seen[PAGES + 1];
  siginfo_t ended;
  pid_t child = fork();
  if (!child) _exit(0);
  assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
  int error = scan(child, seen);
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_int_equal(error, ESRCH);
}

static void a_number_that_the_host_has_taken_is_not_scanned(void **state) {
  (void)state;
  lm_descriptor pagemap = lm_pagemap_open(0);
  assert_true(pagemap.fd >= 0);
  assert_int_equal(dup2(STDERR_FILENO, pagemap.fd), pagemap.fd);
  uintptr_t from = (uintptr_t)area;
  assert_int_equal(lm_pagemap_scan(&pagemap, from, from + LM_PAGE, note, NULL), EBADF);
  close(pagemap.fd);
}

/* More runs than one call of the kernel returns. */
static void count_run(void *ctx, const lm_pagemap_run *run) {
  *(size_t *)ctx += (run->to - run->from) / LM_PAGE;
}

static void many_runs_are_all_told(void **state) {
  (void)state;
  enum { MANY = 4096 };
  char *at = mmap(NULL, MANY * LM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(at, MAP_FAILED);
  (void)madvise(at, MANY * LM_PAGE, MADV_NOHUGEPAGE);
  for (size_t i = 0; i < MANY; i += 2) at[i * LM_PAGE] = 1;
  size_t pages = 0;
  lm_descriptor pagemap = lm_pagemap_open(0);
  int error = lm_pagemap_scan(&pagemap, (uintptr_t)at, (uintptr_t)at + MANY * LM_PAGE, count_run,
                              &pages);
  lm_descriptor_close(&pagemap);
  munmap(at, MANY * LM_PAGE);
  skip_if_unknown(error);
  assert_int_equal(error, 0);
  assert_int_equal(pages, MANY / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(pages_are_told_apart),
    cmocka_unit_test(another_process_is_scanned),
    cmocka_unit_test(a_process_that_has_ended_is_not_scanned),
    cmocka_unit_test(a_number_that_the_host_has_taken_is_not_scanned),
    cmocka_unit_test(many_runs_are_all_told),
  };
  return cmocka_run_group_tests(tests, make_area, remove_area);
}
