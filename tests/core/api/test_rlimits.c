/* test_rlimits.c - limits of the kernel on the memory of a process (setrlimit). Memory that is free
 * in loam serves any other request, and loam obeys a limit that is set late. Each test runs in a
 * process of its own. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "heap/strategy.h"
#include "heap/tails.h"
#include "loam.h"
#include "os/base.h"
#include "os/sys.h"
#include "os/thread.h"
#include "pages/class.h"
#include "pages/map.h"
#include "test.h"

enum { MOST = 1 << 23, DONE = 0, NO_LIMIT = 1, LITTLE = 2, NO_HALF = 10, MUCH = 20 };
#define ROOM (300 * LM_MIB)

/* Returns the bytes that the kernel counts against RLIMIT_DATA. Allocates no memory itself. */
static size_t counted_data(void) {
  static char text[8192];
  int fd = open("/proc/self/status", O_RDONLY);
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  text[n > 0 ? n : 0] = 0;
  const char *line = strstr(text, "VmData:");
  return line ? (size_t)atol(line + strlen("VmData:")) * 1024 : 0;
}

/* Allocates blocks of one size until there is no memory, and frees all of them. Returns their
 * bytes, where blocks of more than 64 KiB count as whole pages. */
static size_t fill_and_free(size_t size) {
  static void *block[MOST];
  size_t n = 0;
  while (n < MOST && (block[n] = loam_malloc(NULL, size)) != NULL) n++;
  for (size_t i = 0; i < n; i++) loam_free(block[i]);
  return n * (size > LM_SMALL_MAX ? lm_align_up(size, LM_PAGE) : size);
}

static int use_all_in_many_sizes(void *unused) {
  static const size_t sizes[] = { 64, 1000, 5000, 70000, 300000, 5 * LM_MIB };
  (void)unused;
  loam_free(loam_malloc(NULL, 1));
  size_t before = counted_data();
  struct rlimit limit = { before + ROOM, before + ROOM };
  if (!before || setrlimit(RLIMIT_DATA, &limit)) return NO_LIMIT;
  loam_limits_changed();
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

/* A thread that runs `crowd` allocates, resizes and frees blocks of 64 to 512 KiB. Most of the time
 * it wants more of them than the limit on data allows. */
enum { CROWD = 1200, CROWD_STEPS = 6000 };
typedef struct crowd_block {
  unsigned char *p;
  size_t size;
  unsigned char value;
} crowd_block;
static _Atomic int crowd_wrong, crowd_refused;

static void check_block(const crowd_block *b) {
  if (!b->size) return;
  for (size_t i = 0; i < b->size; i += 509) crowd_wrong += b->p[i] != b->value;
  crowd_wrong += b->p[b->size - 1] != b->value;
}

static void resize_block(crowd_block *b, size_t size) {
  unsigned char *p = b->p ? loam_realloc(NULL, b->p, size) : loam_malloc(NULL, size);
  crowd_refused += !p;
  if (!p) return;
  if (b->p && size < b->size) b->size = size;
  b->p = p;
  check_block(b);
  b->size = loam_usable_size(p); /* all usable bytes can be written */
  memset(p, b->value, b->size);
}

static void *crowd(void *seed) {
  crowd_block *block = calloc(CROWD, sizeof *block);
  unsigned random = (unsigned)(uintptr_t)seed;
  if (!block) return (void *)1;
  for (int i = 0; i < CROWD_STEPS; i++) {
    random = random * 1103515245 + 12345;
    crowd_block *b = &block[(random >> 8) % CROWD];
    check_block(b);
    b->value = b->p ? b->value : (unsigned char)random;
    if (b->p && random >> 29 == 0) {
      loam_free(b->p);
      *b = (crowd_block){ 0 };
    } else {
      resize_block(b, 65537 + (random >> 4) % (random % 8 ? 90000 : 400000));
    }
  }
  for (int i = 0; i < CROWD; i++) {
    check_block(&block[i]);
    loam_free(block[i].p);
  }
  free(block);
  return NULL;
}

static int crowd_under_limit(void *unused) {
  enum { THREADS = 2, WRONG = 3, NONE_REFUSED };
  pthread_t thread[THREADS];
  (void)unused;
  loam_free(loam_malloc(NULL, 1));
  struct rlimit limit = { counted_data() + ROOM / 3, RLIM_INFINITY };
  if (setrlimit(RLIMIT_DATA, &limit)) return NO_LIMIT;
  loam_limits_changed();
  for (uintptr_t i = 0; i < THREADS; i++)
    if (pthread_create(&thread[i], NULL, crowd, (void *)(i + 1))) return NO_LIMIT;
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  if (!crowd_refused) return NONE_REFUSED;
  return crowd_wrong ? WRONG : loam_malloc(NULL, ROOM / 5) ? DONE : NO_HALF;
}

static void blocks_keep_their_contents_when_their_tails_are_cut(void **state) {
  (void)state;
  skip_if_sanitized();
  setenv("LOAM_CONTROL", "0", 1);
  assert_int_equal(run_in_child(crowd_under_limit, NULL), DONE);
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
  size_t used;
  loam_free(loam_malloc(NULL, 1));
  if (lm_sys_address_space(&used) || !set_address_space(used + 64 * LM_MIB)) return NO_LIMIT;
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

/* The threads of stay_sound_when_limited allocate until `is_over`. `rounds` counts the rounds that
 * all of them have done. */
static _Atomic bool is_over;
static _Atomic int rounds;

static void *allocate_always(void *unused) {
  enum { BLOCKS = 64 };
  static _Thread_local void *block[BLOCKS];
  for (unsigned i = 0; !is_over; i = (i + 7) % 1000, rounds++)
    for (unsigned n = 0; n < BLOCKS; n++) {
      loam_free(block[n]);
      block[n] = loam_malloc(NULL, i * n * 3);
      if (block[n]) memset(block[n], 1, i * n * 3);
    }
  for (unsigned n = 0; n < BLOCKS; n++) loam_free(block[n]);
  return unused;
}

/* Waits until the threads have done `n` more rounds. */
static bool wait_for_rounds(int n) {
  int end = rounds + n, naps = 0;
  while (rounds < end)
    if (!be_patient(&naps)) return false;
  return true;
}

static int stay_sound_when_limited(void *unused) {
  enum { THREADS = 2, ROUNDS = 100, NO_THREAD = 3, STUCK, CANNOT_MAP };
  pthread_t thread[THREADS];
  (void)unused;
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&thread[i], NULL, allocate_always, NULL)) return NO_THREAD;
  loam_free(loam_malloc(NULL, 1));
  if (!wait_for_rounds(ROUNDS)) return STUCK;
  if (!set_address_space(LM_GIB) || !wait_for_rounds(ROUNDS)) return STUCK;
  /* No entry of the page map describes these addresses any more. */
  for (size_t at = LM_RANGE / 2; at < LM_RANGE; at += LM_RANGE / 8)
    loam_free((char *)lm_map.base + at);
  void *other = mmap(NULL, LM_GIB / 4, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (other == MAP_FAILED) return CANNOT_MAP;
  for (int i = 0; i < 3; i++)
    if (!set_address_space(i ? RLIM_INFINITY : LM_GIB / 2) || !wait_for_rounds(ROUNDS))
      return STUCK;
  is_over = true;
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  return fill_up_to(LM_GIB) < LM_GIB ? LITTLE : DONE;
}

static void threads_allocate_while_the_address_space_is_limited(void **state) {
  (void)state;
  skip_if_sanitized();
  setenv("LOAM_CONTROL", "0", 1);
  assert_int_equal(run_in_child(stay_sound_when_limited, NULL), DONE);
}

/* Resizes blocks whose pages move, frees them and allocates new ones, until `is_over`. */
static void *resize_always(void *seed) {
  enum { BLOCKS = 8 };
  unsigned char *block[BLOCKS] = { 0 };
  unsigned random = (unsigned)(uintptr_t)seed;
  void *wrong = NULL;
  while (!is_over && !wrong) {
    random = random * 1103515245 + 12345;
    unsigned char **b = &block[random >> 8 & (BLOCKS - 1)];
    if (*b && **b != 1) wrong = (void *)1;
    if (!(random >> 30)) {
      loam_free(*b);
      *b = NULL;
    }
    *b = loam_realloc(NULL, *b, LM_MIB + (random >> 12) % (8 * LM_MIB));
    if (!*b) return (void *)1;
    **b = 1;
  }
  for (int i = 0; i < BLOCKS; i++) loam_free(block[i]);
  return wrong;
}

/* Cuts tails repeatedly while two threads resize blocks, for 20 seconds at most. */
static int cut_tails(void *unused) {
  enum { THREADS = 2, CUTS = 8000, NO_THREAD = 3, WRONG };
  pthread_t thread[THREADS];
  (void)unused;
  loam_free(loam_malloc(NULL, 1));
  if (setrlimit(RLIMIT_DATA, &(struct rlimit){ 64 * LM_GIB, RLIM_INFINITY })) return NO_LIMIT;
  loam_limits_changed();
  for (uintptr_t i = 0; i < THREADS; i++)
    if (pthread_create(&thread[i], NULL, resize_always, (void *)(i + 1))) return NO_THREAD;
  int64_t end_ns = lm_sys_clock_ns() + 20000000000;
  for (int i = 0; i < CUTS && lm_sys_clock_ns() < end_ns; i++) lm_tails_cut();
  is_over = true;
  void *wrong[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], &wrong[i]);
  return wrong[0] || wrong[1] ? WRONG : DONE;
}

static void tails_are_cut_while_blocks_move(void **state) {
  (void)state;
  skip_if_sanitized();
  setenv("LOAM_CONTROL", "0", 1);
  assert_int_equal(run_in_child(cut_tails, NULL), DONE);
}

/* Like cut_tails, on a kernel that refuses membarrier(2). */
static int cut_tails_without_graces(void *unused) {
  enum { NO_POLICY = 5, STILL_USED };
  if (loam_policy_load_text("limit", "local all = loam.host { name = 'all', limit = 4 * loam.GiB } "
                                     "return loam.policy { pick = function() return all end }\n"))
    return NO_POLICY;
  lm_thread_refuse_graces();
  int result = cut_tails(unused);
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    if (lm_strategy_limit_used(lm_strategy_at(id))) return STILL_USED;
  return result;
}

static void a_limit_gets_back_what_is_freed_while_a_tail_cannot_be_cut(void **state) {
  (void)state;
  skip_if_sanitized();
  setenv("LOAM_CONTROL", "0", 1);
  assert_int_equal(run_in_child(cut_tails_without_graces, NULL), DONE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(freed_memory_of_every_size_serves_every_other_under_a_limit_on_data),
    cmocka_unit_test(blocks_keep_their_contents_when_their_tails_are_cut),
    cmocka_unit_test(a_limit_on_address_space_holds_after_the_start),
    cmocka_unit_test(threads_allocate_while_the_address_space_is_limited),
    cmocka_unit_test(tails_are_cut_while_blocks_move),
    cmocka_unit_test(a_limit_gets_back_what_is_freed_while_a_tail_cannot_be_cut),
  };
  return cmocka_run_group_tests_name("rlimits", tests, NULL, NULL);
}
