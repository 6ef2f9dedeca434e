/* test_swap.c - tests that cold memory goes to swap on request, and that other memory stays. The
 * machine with four nodes has a disk for swap, which is in use only while this program runs. */
#include <fcntl.h>
#include <sys/swap.h>

#include "pages.h"

enum { EACH = 8 << 20, OBJECTS = 4000, SMALL = 500 };
static const char disk[] = "/dev/nvme0n1", control[] = "/tmp/swap.control";

static int swap_on(void **state) {
  (void)state;
  char command[80];
  snprintf(command, sizeof command, "mkswap %s > /dev/null 2>&1", disk);
  return system(command) ? -1 : swapon(disk, 0);
}

static int swap_off(void **state) {
  (void)state;
  return swapoff(disk);
}

/* Returns how many pages of a range are in swap, by /proc/self/pagemap. */
static long swapped(const void *at, size_t size) {
  enum { BATCH = 512 };
  uint64_t entry[BATCH];
  long found = 0;
  int file = open("/proc/self/pagemap", O_RDONLY);
  assert_true(file >= 0);
  for (uintptr_t page = (uintptr_t)at / PAGE, end = ((uintptr_t)at + size + PAGE - 1) / PAGE;
       page < end;) {
    size_t n = end - page < BATCH ? end - page : BATCH;
    ssize_t length = pread(file, entry, n * sizeof *entry, (off_t)(page * sizeof *entry));
    assert_int_equal(length, n * sizeof *entry);
    for (size_t i = 0; i < n; i++) found += entry[i] >> 62 & 1;
    page += n;
  }
  close(file);
  return found;
}

/* Returns how many kB of the whole process are in swap. */
static long in_swap(void) {
  char line[200];
  long found = -1;
  FILE *file = fopen("/proc/self/status", "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file))
    if (!strncmp(line, "VmSwap:", 7)) found = atol(line + 7);
  fclose(file);
  return found;
}

static uint64_t moved, refused;
static char why[128];

static void note(void *ctx, const loam_placed *row) {
  (void)ctx;
  assert_true(!strncmp(row->tag, "cold", 4));
  if (!strcmp(row->what, "moved")) moved += row->bytes;
  if (!strcmp(row->what, "refused")) {
    refused += row->bytes;
    snprintf(why, sizeof why, "%s", row->why);
  }
}

static void demote(unsigned older_s) {
  loam_demote_options options = { .size = sizeof options,
                                  .tag = "cold",
                                  .to = LOAM_TO_PAGEOUT,
                                  .rate = UINT64_MAX,
                                  .older_s = older_s };
  moved = refused = 0;
  *why = 0;
  if (loam_demote(&options, NULL, note, NULL) != LOAM_OK) fail_msg("%s", loam_error());
}

/* The kernel skips a page that it is working on, so three quarters of the pages are enough. */
static void is_mostly_out(const void *p, size_t size) {
  long pages = (long)(size / PAGE);
  assert_in_range(swapped(p, size), pages * 3 / 4, pages);
}

static void the_tag_goes_to_swap_and_no_other(void **state) {
  (void)state;
  load_policy("local s = loam.host { name = 's' }\n"
              "return loam.policy { name = 'p', pick = function() return s end }\n");
  char *cold = filled("cold.data", EACH), *hot = filled("hot.data", EACH);
  char *cool = filled("coldest", EACH); /* another tag, whose name also begins with "cold" */
  long before = in_swap();
  demote(0);
  assert_int_equal(moved, EACH);
  assert_int_equal(refused, 0);
  is_mostly_out(cold, EACH);
  assert_int_equal(swapped(hot, EACH), 0);
  assert_int_equal(swapped(cool, EACH), 0);
  assert_in_range(in_swap() - before, EACH / 1024 * 3 / 4, EACH / 1024 + 64);
  assert_in_range(smaps(cold, EACH, "Swap"), EACH / 1024 * 3 / 4, 1 << 20);
  is_filled(cold, EACH);
  is_filled(hot, EACH);
  assert_int_equal(swapped(cold, EACH), 0);
  loam_free(cold);
  loam_free(hot);
  loam_free(cool);
}

static void small_objects_go_by_the_page(void **state) {
  (void)state;
  static char *cold[OBJECTS], *hot[OBJECTS];
  for (int i = 0; i < OBJECTS; i++) cold[i] = filled("cold.small", SMALL);
  for (int i = 0; i < OBJECTS; i++) hot[i] = filled("hot.small", SMALL);
  demote(0);
  assert_int_equal(moved + refused, (uint64_t)OBJECTS * loam_usable_size(cold[0]));
  assert_true(moved > refused);
  long out = 0;
  for (int i = 0; i < OBJECTS; i++) out += swapped(cold[i], 1);
  assert_in_range(out, OBJECTS / 2, OBJECTS);
  /* A span with objects of both tags stays in memory. */
  for (int i = 0; i < OBJECTS; i++) assert_int_equal(swapped(hot[i], SMALL), 0);
  for (int i = 0; i < OBJECTS; i++) {
    is_filled(cold[i], SMALL);
    loam_free(cold[i]);
    loam_free(hot[i]);
  }
}

static void pages_of_every_placement_go(void **state) {
  (void)state;
  static const char *const form[] = { "numa = 1", "numa = 'interleave'", "huge = 'thp'",
                                      "prefault = true" };
  for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
    char text[200];
    snprintf(text, sizeof text,
             "local s = loam.host { name = 's', %s }\n"
             "return loam.policy { name = 'p', pick = function() return s end }\n",
             form[i]);
    load_policy(text);
    char *p = filled("cold", EACH);
    demote(0);
    assert_int_equal(moved, EACH);
    is_mostly_out(p, EACH);
    is_filled(p, EACH);
    loam_free(p);
  }
}

static void what_cannot_go_is_reported_with_the_reason(void **state) {
  (void)state;
  load_policy("local s = loam.host { name = 's', lock = true }\n"
              "local plain = loam.host { name = 'plain' }\n"
              "return loam.policy { name = 'p', pick = function(req)\n"
              "  if req.tag:is('cold.locked') then return s end return plain end }\n");
  char *p = filled("cold.locked", EACH / 2);
  demote(0);
  assert_int_equal(moved, 0);
  assert_int_equal(refused, EACH / 2);
  assert_string_equal(why, "its pages are locked");
  assert_int_equal(swapped(p, EACH / 2), 0);
  loam_free(p);
  p = filled("cold.young", EACH);
  demote(3600);
  assert_int_equal(refused, EACH);
  assert_string_equal(why, "it is younger");
  assert_int_equal(swapped(p, EACH), 0);
  assert_int_equal(swap_off(NULL), 0);
  demote(0);
  assert_int_equal(moved, 0);
  assert_int_equal(refused, EACH);
  assert_string_equal(why, "the kernel kept it: is there swap?");
  assert_int_equal(swap_on(NULL), 0);
  is_filled(p, EACH);
  loam_free(p);
}

/* Runs `loam demote` for this process. Copies its output to `answer`, and returns its wait
 * status. */
static int run_demote(char *answer, size_t room) {
  char command[200];
  snprintf(command, sizeof command, "%s demote %d --tag cold --to pageout 2>&1", getenv("LOAM"),
           (int)getpid());
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  size_t length = fread(answer, 1, room - 1, pipe);
  answer[length] = 0;
  return pclose(pipe);
}

/* An operator demotes memory with the loam command. The job ends when no command has asked about it
 * for three seconds. A slow machine can hold the command up for longer, so the command has three
 * tries. */
static void an_operator_sends_it_out(void **state) {
  (void)state;
  char answer[2000];
  char *p = filled("cold.cache", EACH), *q = filled("warm.cache", EACH);
  int status = 0;
  *answer = 0;
  for (int tries = 0; tries < 3 && !strstr(answer, "8 MiB moved, 0 B in place"); tries++) {
    is_filled(p, EACH); /* reads the block, which brings it back from swap */
    status = run_demote(answer, sizeof answer);
  }
  if (status || !strstr(answer, "cold.cache  moved"))
    fail_msg("loam demote ended with %d and said: %s", status, answer);
  is_mostly_out(p, EACH);
  assert_int_equal(swapped(q, EACH), 0);
  is_filled(p, EACH);
  loam_free(p);
  loam_free(q);
}

int main(void) {
  int naps = 0;
  only_with_nodes(NODES);
  while (access(disk, R_OK) && be_patient(&naps)) continue;
  if (access(disk, R_OK)) {
    print_message("this kernel does not see the disk to swap to\n");
    return 77;
  }
  setenv("LOAM_CONTROL_DIR", control, 1);
  loam_start(&(loam_config){ .size = sizeof(loam_config), .control = 1, .step_ms = 60000 });
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_tag_goes_to_swap_and_no_other),
    cmocka_unit_test(small_objects_go_by_the_page),
    cmocka_unit_test(pages_of_every_placement_go),
    cmocka_unit_test(what_cannot_go_is_reported_with_the_reason),
    cmocka_unit_test(an_operator_sends_it_out),
  };
  return cmocka_run_group_tests(tests, swap_on, swap_off);
}
