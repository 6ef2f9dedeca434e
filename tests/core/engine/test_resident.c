/* test_resident.c - how much of the process is in memory: resident.h. The figures by PAGEMAP_SCAN
 * equal those of /proc/PID/smaps. */
#include "engine/resident.h"
#include "engine_fixture.h"

enum { NEAR = 64 << 10 }; /* bytes that the test itself may touch between two readings */

static char *map(size_t size, int access) {
  char *at = mmap(NULL, size, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(at, MAP_FAILED);
  return at;
}

static void assert_near(uint64_t a, uint64_t b) {
  if ((a > b ? a - b : b - a) > NEAR) fail_msg("%zu and %zu", (size_t)a, (size_t)b);
}

/* The second call of the operating system opens the page table. Without it smaps is read. */
static lm_resident by_smaps(void) {
  lm_sys_refuse(2);
  lm_resident found = lm_resident_read();
  lm_sys_refuse(0);
  return found;
}

static void both_ways_tell_one_story(void **state) {
  (void)state;
  skip_if_sanitized();
  enum { CODE = 32 * LM_PAGE, STACK = 16 * LM_PAGE, REST = 128 * LM_PAGE };
  lm_resident before = lm_resident_read();
  char *own = memset(get(3 << 20), 1, 3 << 20);
  char *code = memset(map(CODE, PROT_READ | PROT_WRITE), 1, CODE);
  assert_int_equal(mprotect(code, CODE, PROT_READ | PROT_EXEC), 0);
  char *stack = map(LM_PAGE + STACK, PROT_READ | PROT_WRITE);
  assert_int_equal(mprotect(stack, LM_PAGE, PROT_NONE), 0);
  memset(stack + LM_PAGE, 1, STACK);
  char *rest = memset(map(REST, PROT_READ | PROT_WRITE), 1, REST);
  lm_resident scanned = lm_resident_read(), told = by_smaps();
  assert_near(scanned.all, told.all);
  assert_near(scanned.own, told.own);
  assert_near(scanned.files, told.files);
  assert_near(scanned.stacks, told.stacks);
  assert_int_equal(scanned.code, told.code);
  assert_int_equal(scanned.code - before.code, CODE);
  assert_true(scanned.own - before.own >= 3 << 20);
  assert_true(scanned.all - before.all >= (3 << 20) + CODE + STACK + REST);
  assert_true(scanned.all >= scanned.own + scanned.files + scanned.stacks + scanned.code);
  munmap(code, CODE);
  munmap(stack, LM_PAGE + STACK);
  munmap(rest, REST);
  put(own);
}

static void a_process_that_is_gone_has_no_figures(void **state) {
  (void)state;
  pid_t child = fork();
  if (!child) _exit(0);
  assert_int_equal(waitpid(child, NULL, 0), child);
  lm_resident found = lm_resident_of(child, 0, 1);
  assert_true(!found.all && !found.own);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(both_ways_tell_one_story),
    cmocka_unit_test(a_process_that_is_gone_has_no_figures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
