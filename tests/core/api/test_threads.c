/* test_threads.c - many threads use the public functions: frees of blocks that other threads
 * allocated, thousands of threads, destructors that free, forks from any thread, and cancellation
 * at any instruction. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "loam.h"
#include "test.h"

#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
enum { SCALE = 10 };
#else
enum { SCALE = 1 };
#endif

static const char policy[] =
    "local small = loam.host { name = 'small' }\n"
    "local capped = loam.host { name = 'capped', limit = 64 * loam.MiB }\n"
    "local guarded = loam.host { name = 'guarded', guard = 100 }\n"
    "return loam.policy { name = 'threads%d', pick = function(req)\n"
    "  if req.tag:is 'threads.capped' then return capped:or_else(small) end\n"
    "  if req.size >= 1000 and req.size < 1200 then return guarded end\n"
    "  return small\n"
    "end }\n";

static void load(int version) {
  char text[1000];
  snprintf(text, sizeof text, policy, version);
  if (loam_policy_load_text("threads.lua", text)) fail_msg("%s", loam_error());
}

static loam_site *tags[3];

static int set_up(void **state) {
  (void)state;
  tags[0] = loam_site_get("threads.plain");
  tags[1] = loam_site_get("threads.capped");
  tags[2] = loam_site_get("threads.other");
  load(0);
  return 0;
}

static void add_live(void *ctx, const loam_stats_row *row) {
  if (!strncmp(row->tag, "threads.", 8)) *(uint64_t *)ctx += row->live_blocks;
}

static uint64_t live_blocks(void) {
  uint64_t n = 0;
  assert_int_equal(loam_stats_by(LOAM_BY_TAG, add_live, &n), LOAM_OK);
  return n;
}

static struct loam_stats stats(void) {
  struct loam_stats now;
  assert_int_equal(loam_stats(&now), LOAM_OK);
  return now;
}

/* ---- A shelf: threads leave blocks there, and other threads free them */

enum { SHELF = 512 };
static uint32_t *_Atomic shelf[SHELF];
static _Atomic uint32_t wrong;

static uint32_t roll(uint32_t *seed, uint32_t n) {
  *seed = *seed * 1664525 + 1013904223;
  return (uint32_t)((uint64_t)*seed * n >> 32);
}

/* Makes a block of n words, each of which is n. */
static uint32_t *make(uint32_t *seed) {
  uint32_t n = 1 + roll(seed, roll(seed, 100) ? 800 : 60000);
  loam_site *tag = tags[roll(seed, 3)];
  uint32_t *p = n % 7 ? loam_malloc(tag, n * 4) : loam_aligned_alloc(tag, 256, n * 4);
  for (uint32_t i = 0; p && i < n; i++) p[i] = n;
  wrong += !p;
  return p;
}

static uint32_t *check(uint32_t *p) {
  for (uint32_t i = 0; p && i < p[0]; i++) wrong += p[i] != p[0];
  return p;
}

static void exchange(uint32_t *seed, int times) {
  while (times-- > 0) {
    uint32_t *p = make(seed);
    loam_free(check(atomic_exchange(&shelf[roll(seed, SHELF)], p)));
  }
}

static void clear_shelf(void) {
  for (int i = 0; i < SHELF; i++) loam_free(check(atomic_exchange(&shelf[i], NULL)));
}

static void nothing_is_lost(uint64_t bad_frees) {
  clear_shelf();
  assert_int_equal(wrong, 0);
  assert_int_equal(live_blocks(), 0);
  assert_int_equal(stats().bad_frees, bad_frees);
}

/* ---- 1 to 64 threads together */

enum { MOST = 64, EXCHANGES = 48000 / SCALE };
static int at_a_time;

static void *exchange_some(void *n) {
  uint32_t seed = (uint32_t)(uintptr_t)n * 77 + 5;
  exchange(&seed, EXCHANGES / at_a_time);
  return NULL;
}

static void any_number_of_threads_free_each_others_blocks(void **state) {
  (void)state;
  pthread_t thread[MOST];
  uint64_t bad_frees = stats().bad_frees;
  for (at_a_time = 1; at_a_time <= MOST; at_a_time *= 2) {
    for (int i = 0; i < at_a_time; i++)
      thread[i] = start_thread(exchange_some, (void *)(uintptr_t)i);
    load(at_a_time);
    for (int i = 0; i < at_a_time; i++) pthread_join(thread[i], NULL);
  }
  nothing_is_lost(bad_frees);
}

/* ---- Threads begin and end */

enum { GENERATIONS = 160 / SCALE, BROOD = 16 };

static void *live_shortly(void *n) {
  uint32_t seed = (uint32_t)(uintptr_t)n;
  exchange(&seed, 20);
  return NULL;
}

static void bear(int generations) {
  pthread_t thread[BROOD];
  for (int g = 0; g < generations; g++) {
    for (uintptr_t i = 0; i < BROOD; i++)
      thread[i] = start_thread(live_shortly, (void *)(g * 100 + i));
    for (int i = 0; i < BROOD; i++) pthread_join(thread[i], NULL);
  }
}

static void thousands_of_threads_leave_nothing_behind(void **state) {
  (void)state;
  uint64_t bad_frees = stats().bad_frees;
  bear(GENERATIONS / 4);
  clear_shelf();
  struct loam_stats before = stats();
  bear(GENERATIONS);
  clear_shelf();
  struct loam_stats after = stats();
  assert_int_equal(after.threads, before.threads);
  assert_true(after.region_bytes <= before.region_bytes + ((uint64_t)32 << 20));
  assert_true(after.metadata_bytes <= before.metadata_bytes + ((uint64_t)4 << 20));
  nothing_is_lost(bad_frees);
}

/* ---- Page faults of short threads */

static void *allocate_a_few(void *unused) {
  (void)unused;
  void *p[20];
  for (size_t i = 0; i < 20; i++) assert_non_null(p[i] = loam_malloc(tags[0], 16 + 37 * i));
  for (size_t i = 0; i < 20; i++) loam_free(p[i]);
  return NULL;
}

static long page_faults(void) {
  struct rusage usage;
  assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
  return usage.ru_minflt;
}

static void a_short_thread_finds_memory_that_is_mapped(void **state) {
  (void)state;
  enum { SHORT = 400 };
  for (int i = 0; i < 20; i++) pthread_join(start_thread(allocate_a_few, NULL), NULL);
  long before = page_faults();
  for (int i = 0; i < SHORT; i++) pthread_join(start_thread(allocate_a_few, NULL), NULL);
  /* A tick of the decay may unmap the area that the threads use in turn, a few times a second. */
  assert_true(SCALE > 1 || page_faults() - before < 5 * SHORT);
}

/* ---- Destructors of thread-local data */

enum { KEYS = 3, ROUNDS = SANITIZED ? 3 : 4, ENDS = 200 / SCALE };

static pthread_key_t keys[KEYS];
static _Atomic int destroyed;

/* Frees the value of the thread and allocates a new one. The destructor runs before loam's own one
 * and after it. */
static void destroy(void *value) {
  int left = *(int *)value / 10 - 1, key = *(int *)value % 10;
  loam_free(value);
  destroyed++;
  if (!left) return;
  int *next = loam_malloc(tags[0], sizeof *next);
  *next = left * 10 + key;
  pthread_setspecific(keys[key], next);
}

static void *end_with_data(void *unused) {
  for (int key = 0; key < KEYS; key++) {
    int *value = loam_malloc(tags[0], sizeof *value);
    *value = ROUNDS * 10 + key;
    pthread_setspecific(keys[key], value);
  }
  return live_shortly(unused);
}

static void destructors_of_thread_local_data_may_free(void **state) {
  (void)state;
  uint64_t bad_frees = stats().bad_frees;
  for (int key = 0; key < KEYS; key++) assert_int_equal(pthread_key_create(&keys[key], destroy), 0);
  for (uintptr_t i = 0; i < ENDS; i++) pthread_join(start_thread(end_with_data, (void *)i), NULL);
  assert_int_equal(destroyed, ENDS * KEYS * ROUNDS);
  nothing_is_lost(bad_frees);
}

/* ---- Forks */

enum { FORKERS = 4, FORKS = 400 / SCALE };

static char *inherited;

/* Runs in a child: allocates. Some children also start a thread, load a policy, or fork. */
static void be_child(uint32_t n) {
  uint32_t seed = n, before = wrong;
  alarm(PATIENCE_S);
  exchange(&seed, 100);
  inherited = loam_realloc(NULL, inherited, 50000);
  wrong += !inherited || strcmp(inherited, "inherited") != 0;
  loam_free(inherited);
  if (n % 10 == 0) load((int)n);
  if (n % 10 == 1 && !SANITIZED) bear(1);
  if (n % 10 == 2 && fork() == 0) exchange(&seed, 100);
  _exit(wrong != before);
}

static void *fork_some(void *number) {
  uint32_t seed = (uint32_t)(uintptr_t)number;
  for (uint32_t i = 0; i < FORKS / FORKERS; i++) {
    int status = -1;
    exchange(&seed, 20);
    pid_t child = fork();
    if (!child) be_child(i * FORKERS + seed % FORKERS);
    if (waitpid(child, &status, 0) != child || status) wrong++;
  }
  return NULL;
}

static _Atomic bool stop;
static void *exchange_on(void *number) {
  uint32_t seed = (uint32_t)(uintptr_t)number;
  while (!stop) exchange(&seed, 50);
  return NULL;
}

static void any_thread_may_fork_at_any_moment(void **state) {
  (void)state;
  pthread_t forker[FORKERS], other = start_thread(exchange_on, (void *)99);
  uint64_t bad_frees = stats().bad_frees;
  inherited = strcpy(loam_malloc(tags[0], 10), "inherited");
  for (uintptr_t i = 0; i < FORKERS; i++) forker[i] = start_thread(fork_some, (void *)i);
  for (int i = 0; i < 20; i++) load(i);
  for (int i = 0; i < FORKERS; i++) pthread_join(forker[i], NULL);
  stop = true;
  pthread_join(other, NULL);
  loam_free(inherited);
  nothing_is_lost(bad_frees);
}

/* ---- Cancellation at any instruction */

enum { CANCELLED = 500 };

/* The blocks of a cancelled thread are never freed, so they have a tag that no test checks. */
static void *allocate_until_cancelled(void *begun) {
  char text[32];
  void *held[16] = { NULL };
  uint32_t seed = (uint32_t)(uintptr_t)begun;
  loam_site *tag = loam_site_get("cancelled");
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  *(_Atomic bool *)begun = true;
  for (uint32_t i = 0; tag; i++) {
    void **p = &held[roll(&seed, 16)];
    size_t size = roll(&seed, 50) ? roll(&seed, 4000) : roll(&seed, 300000);
    if (i % 3 == 0) *p = loam_realloc(tag, *p, size);
    else loam_free(*p), *p = loam_malloc(i % 7 ? tag : NULL, size);
    snprintf(text, sizeof text, "cancelled.%u", roll(&seed, 1000));
    if (i % 100 == 50) tag = loam_site_get(text);
  }
  return NULL;
}

static void cancelled_threads_hold_no_other_thread_up(void **state) {
  (void)state;
  if (SANITIZED) {
    print_message("a sanitizer's own calls are not made for cancellation at any instruction\n");
    skip();
  }
  uint64_t bad_frees = stats().bad_frees;
  uint32_t seed = 1;
  alarm(2 * PATIENCE_S);
  for (int i = 0; i < CANCELLED; i++) {
    _Atomic bool begun = false;
    pthread_t thread = start_thread(allocate_until_cancelled, &begun);
    while (!begun) sched_yield();
    nanosleep(&(struct timespec){ 0, roll(&seed, 100000) }, NULL);
    assert_int_equal(pthread_cancel(thread), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    exchange(&seed, 10);
    if (i % 100 == 0) load(i);
  }
  alarm(0);
  bear(4);
  nothing_is_lost(bad_frees);
}

/* ---- Cancellation in foreign code */

static void hear_memory(void *ctx, void *from, void *to, size_t size) {
  (void)ctx, (void)from, (void)to, (void)size;
  pthread_testcancel();
}

static void hear_block(void *ctx, loam_block_verb verb, const loam_block *b, size_t references) {
  (void)ctx, (void)verb, (void)b, (void)references;
  pthread_testcancel();
}

static void *handler_malloc(void *ctx, size_t size) {
  (void)ctx;
  pthread_testcancel();
  return malloc(size);
}

static void *handler_calloc(void *ctx, size_t count, size_t size) {
  (void)ctx;
  return calloc(count, size);
}

static void *handler_realloc(void *ctx, void *ptr, size_t size) {
  (void)ctx;
  pthread_testcancel();
  return realloc(ptr, size);
}

static void handler_free(void *ctx, void *ptr, size_t size) {
  (void)ctx, (void)size;
  pthread_testcancel();
  free(ptr);
}

/* The thread is cancelled at its beginning. Each step is an allocation or a free. These are no
 * cancellation points, so the thread does all steps. */
static void *go_on_when_cancelled(void *steps) {
  static const loam_handler handler = {
    "points", 1, { NULL, handler_malloc, handler_calloc, handler_realloc, handler_free }
  };
  _Atomic int *step = steps;
  pthread_cancel(pthread_self());
  void *p = loam_malloc(tags[0], 10);
  *step = 1;
  loam_free(p);
  *step = 2;
  loam_handler_set(&handler);
  loam_block *b = loam_block_new(tags[0], 100), *a = loam_arena_new(tags[0], 0, 0);
  *step = 3;
  p = loam_arena_resize(a, loam_arena_alloc(a, 16, 5000), 90000);
  *step = 4;
  loam_handler_set(NULL);
  loam_block_release(b);
  loam_block_release(a);
  *step = 5;
  pthread_testcancel();
  *step = 6;
  return NULL;
}

static void foreign_code_is_not_cancelled_in_a_call(void **state) {
  (void)state;
  _Atomic int step = 0;
  void *result = NULL;
  uint64_t bad_frees = stats().bad_frees;
  loam_on_memory(hear_memory, NULL);
  loam_on_block(hear_block, NULL);
  assert_int_equal(pthread_join(start_thread(go_on_when_cancelled, &step), &result), 0);
  loam_on_memory(NULL, NULL);
  loam_on_block(NULL, NULL);
  assert_int_equal(step, 5);
  assert_ptr_equal(result, PTHREAD_CANCELED);
  nothing_is_lost(bad_frees);
}

int main(void) {
  setenv("LOAM_CONTROL", "0", 1);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_number_of_threads_free_each_others_blocks),
    cmocka_unit_test(thousands_of_threads_leave_nothing_behind),
    cmocka_unit_test(a_short_thread_finds_memory_that_is_mapped),
    cmocka_unit_test(destructors_of_thread_local_data_may_free),
    cmocka_unit_test(any_thread_may_fork_at_any_moment),
    cmocka_unit_test(cancelled_threads_hold_no_other_thread_up),
    cmocka_unit_test(foreign_code_is_not_cancelled_in_a_call),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}
