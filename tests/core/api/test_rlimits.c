/* test_rlimits.c - limits of the kernel on a process's memory (setrlimit): memory that is free in
 * loam serves any other request, and loam obeys a limit that is set late. Each test is a process of
 * its own. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "loam.h"
#include "os/base.h"
#include "os/sys.h"
#include "pages/class.h"
#include "pages/map.h"
#include "test.h"

enum { MOST = 1 << 23, DONE = 0, NO_LIMIT = 1, LITTLE = 2, NO_HALF = 10, MUCH = 20 };
#define ROOM (300 * LM_MIB)

/* The bytes that the kernel counts against RLIMIT_DATA. Takes no memory. */
static size_t counted_data(void) {
  static char text[8192];
  int fd = open("/proc/self/status", O_RDONLY);
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  text[n > 0 ? n : 0] = 0;
  const char *line = strstr(text, "VmData:");
  return line ? (size_t)atol(line + strlen("VmData:")) * 1024 : 0;
}

/* Allocates blocks of one size until there are no more, and frees all of them. Returns how many
 * bytes there were, with what rounding adds: blocks of more than 64 KiB are multiples of that. */
static size_t fill_and_free(size_t size) {
  static void *block[MOST];
  size_t n = 0;
  while (n < MOST && (block[n] = loam_malloc(NULL, size)) != NULL) n++;
  for (size_t i = 0; i < n; i++) loam_free(block[i]);
  return n * (size > LM_SMALL_MAX ? lm_align_up(size, LM_SLOT) : size);
}

static int use_all_in_many_sizes(void *unused) {
  static const size_t sizes[] = { 64, 1000, 5000, 70000, 300000, 5 * LM_MIB };
  (void)unused;
  loam_free(loam_malloc(NULL, 1));
  size_t before = counted_data();
  struct rlimit limit = { before + ROOM, before + ROOM };
  if (!before || setrlimit(RLIMIT_DATA, &limit)) return NO_LIMIT;
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    if (fill_and_free(sizes[i]) < ROOM / 10 * 9) return LITTLE + (int)i;
    void *half = loam_malloc(NULL, ROOM / 2);
    if (!half) return NO_HALF + (int)i;
    loam_free(half);
  }
  return DONE;
}

static void freed_memory_of_every_size_serves_every_other_under_a_limit_on_data(void **state) {
  (void)state;
  skip_if_sanitized();
  setenv("LOAM_CONTROL", "0", 1);
  assert_int_equal(run_in_child(use_all_in_many_sizes, NULL), DONE);
}

/* Allocates until there is no more memory, at most `most` bytes, and frees all of it. */
static size_t fill_up_to(size_t most) {
  enum { BLOCKS = 4096 };
  static void *block[BLOCKS];
  size_t size = LM_MIB, n = 0;
  while (n < BLOCKS && n * size < most && (block[n] = loam_malloc(NULL, size)) != NULL) n++;
  for (size_t i = 0; i < n; i++) loam_free(block[i]);
  return n * size;
}

static bool set_address_space(rlim_t bytes) {
  bool done = !setrlimit(RLIMIT_AS, &(struct rlimit){ bytes, RLIM_INFINITY });
  loam_limits_changed();
  return done;
}

static int obey_late_limits(void *unused) {
  (void)unused;
  size_t used, limit;
  loam_free(loam_malloc(NULL, 1));
  if (lm_sys_address_space(&used, &limit) || !set_address_space(used + 64 * LM_MIB))
    return NO_LIMIT;
  size_t got = fill_up_to(2 * LM_GIB);
  if (got < 48 * LM_MIB) return LITTLE;
  if (got > 128 * LM_MIB) return MUCH;
  if (!set_address_space(LM_GIB)) return NO_LIMIT;
  got = fill_up_to(2 * LM_GIB);
  if (got < LM_GIB / 2) return LITTLE + 1;
  if (got > LM_GIB) return MUCH + 1;
  if (!set_address_space(RLIM_INFINITY)) return NO_LIMIT;
  return fill_up_to(2 * LM_GIB) < 2 * LM_GIB ? LITTLE + 2 : DONE;
}

static void a_limit_on_address_space_holds_after_the_start(void **state) {
  (void)state;
  skip_if_sanitized();
  setenv("LOAM_CONTROL", "0", 1);
  assert_int_equal(run_in_child(obey_late_limits, NULL), DONE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(freed_memory_of_every_size_serves_every_other_under_a_limit_on_data),
    cmocka_unit_test(a_limit_on_address_space_holds_after_the_start),
  };
  return cmocka_run_group_tests_name("rlimits", tests, NULL, NULL);
}
