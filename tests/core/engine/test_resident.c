/* test_resident.c - how much of the process is in memory: resident.h and smaps.h. The figures by
 * PAGEMAP_SCAN equal those of /proc/PID/smaps. */
#include "engine/resident.h"
#include "engine/smaps.h"
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
  assert_true(lm_resident_is_valid(&scanned) && lm_resident_is_valid(&told));
  scanned.own += scanned.all;
  assert_false(lm_resident_is_valid(&scanned));
  munmap(code, CODE);
  munmap(stack, LM_PAGE + STACK);
  munmap(rest, REST);
  put(own);
}

/* Returns whether the list is valid after the place has another value. */
static bool is_valid_with(const lm_smaps *maps, uint64_t *place, uint64_t value) {
  uint64_t before = *place;
  *place = value;
  bool is_valid = lm_smaps_is_valid(maps);
  *place = before;
  return is_valid;
}

static void the_mappings_of_smaps_obey_their_laws(void **state) {
  (void)state;
  lm_smaps maps = { 0 };
  char *own = memset(get(3 << 20), 1, 3 << 20);
  assert_true(lm_smaps_is_valid(&maps));
  assert_true(lm_smaps_read(&maps, 0, 1, UINTPTR_MAX));
  assert_true(lm_smaps_is_valid(&maps) && maps.n > 2);
  const lm_smaps_mapping *of_own = lm_smaps_behind(&maps, (uintptr_t)own);
  assert_true(of_own < lm_smaps_end(&maps) && of_own->from <= (uintptr_t)own);
  lm_smaps_mapping *first = maps.mapping, *second = first + 1;
  assert_true(is_valid_with(&maps, &first->huge, first->resident));
  assert_false(is_valid_with(&maps, &first->huge, first->resident + 1));
  assert_false(is_valid_with(&maps, &first->to, first->from));
  assert_false(is_valid_with(&maps, &first->to, second->from + 1));
  assert_false(is_valid_with(&maps, &maps.n, maps.room + 1));
  lm_smaps_finish(&maps);
  assert_true(lm_smaps_is_valid(&maps));
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

/* A second reading begins before the end of the first one, as a piece of the file does when
 * mappings were joined that the piece before has shown. */
static void mappings_that_the_kernel_shows_again_are_kept_once(void **state) {
  (void)state;
  lm_smaps maps = { 0 };
  assert_true(lm_smaps_read(&maps, 0, 1, UINTPTR_MAX));
  uintptr_t third = maps.mapping[2].from;
  assert_true(lm_smaps_read(&maps, 0, third, UINTPTR_MAX));
  assert_true(lm_smaps_is_valid(&maps) && maps.mapping[2].from == third);
  lm_smaps_finish(&maps);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(both_ways_tell_one_story),
    cmocka_unit_test(the_mappings_of_smaps_obey_their_laws),
    cmocka_unit_test(mappings_that_the_kernel_shows_again_are_kept_once),
    cmocka_unit_test(a_process_that_is_gone_has_no_figures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
