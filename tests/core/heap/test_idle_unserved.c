/* test_idle_unserved.c - in a process without a service thread, the threads that free memory give
 * it back to the system.
 *
 * A pool learns from each peak for the next one, so each peak rises in a child process of its
 * own. */
#include <stdlib.h>
#include <string.h>

#include "chance.h"
#include "heap/pool.h"
#include "heap/pools.h"
#include "heap/sweep.h"
#include "heap/tcache_slow.h"
#include "loam.h"
#include "os/decay.h"
#include "os/pressure.h"
#include "test.h"

#define PEAK (64 * LM_MIB)
enum { THREADS = 4, BLOCKS_MAX = PEAK / 16 };

static void **block;
static size_t blocks;

static uint64_t seed = 5;

/* ---- Peaks -------------------------------------------------------------------------------- */

enum { FORWARD, BACKWARD, RANDOM };

/* A peak: how large its blocks are and how they are freed. `size` is 0 for blocks of many sizes.
 * Each size class keeps some memory. That is little compared with a peak of one class, but not of
 * fifty classes, so a peak of many sizes is twice as high. */
typedef struct peak {
  size_t size;
  int order;       /* FORWARD, BACKWARD or RANDOM */
  bool by_other;   /* another thread allocates them */
  bool by_threads; /* several threads free them */
} peak;

static size_t size_of(const peak *p) {
  uint32_t kind = chance(&seed, 10);
  return p->size    ? p->size
         : kind < 9 ? 1 + chance(&seed, 1u << (4 + kind))
                    : 1 + chance(&seed, 200000);
}

static size_t height_of(const peak *p) { return p->size ? PEAK : 2 * PEAK; }

static void *rise(void *argument) {
  size_t total = 0, height = height_of(argument);
  blocks = 0;
  while (total < height) {
    size_t size = size_of(argument);
    char *p = loam_malloc(NULL, size);
    if (!p) abort();
    for (size_t at = 0; at < size; at += LM_PAGE) p[at] = 1;
    p[size - 1] = 1;
    block[blocks++] = p;
    total += size;
  }
  return NULL;
}

static void swap(size_t a, size_t b) {
  void *p = block[a];
  block[a] = block[b];
  block[b] = p;
}

static void arrange(int order) {
  for (size_t i = 0; order == BACKWARD && i < blocks / 2; i++) swap(i, blocks - 1 - i);
  for (size_t i = 1; order == RANDOM && i < blocks; i++) swap(i, chance(&seed, (uint32_t)i + 1));
}

static pthread_barrier_t all_have_freed;

/* Frees a part of the blocks, and then sleeps like a thread of an idle program. */
static void *free_part(void *argument) {
  size_t part = (size_t)(uintptr_t)argument;
  for (size_t i = blocks * part / THREADS; i < blocks * (part + 1) / THREADS; i++)
    loam_free(block[i]);
  pthread_barrier_wait(&all_have_freed);
  pause();
  return NULL;
}

static void fall_by_threads(void) {
  pthread_barrier_init(&all_have_freed, NULL, THREADS + 1);
  for (uintptr_t i = 0; i < THREADS; i++) (void)start_thread(free_part, (void *)i);
  pthread_barrier_wait(&all_have_freed);
}

static void fall(const peak *p) {
  if (p->by_threads) fall_by_threads();
  else
    for (size_t i = 0; i < blocks; i++) loam_free(block[i]);
}

static void *rise_and_wait(void *argument) {
  (void)rise(argument);
  pthread_barrier_wait(&all_have_freed);
  pause();
  return NULL;
}

static void rise_in_other(peak *p) {
  pthread_barrier_init(&all_have_freed, NULL, 2);
  (void)start_thread(rise_and_wait, p);
  pthread_barrier_wait(&all_have_freed);
}

/* Returns 0 if at most a quarter of the peak stays resident, else the MiB that stay. */
static int rise_and_fall(void *argument) {
  peak *p = argument;
  loam_free(loam_malloc(NULL, 1));
  size_t before = resident();
  if (p->by_other) rise_in_other(p);
  else (void)rise(p);
  size_t high = resident();
  if (high < before + height_of(p) * 3 / 4) return 255;
  arrange(p->order);
  fall(p);
  size_t kept = resident() - before;
  return resident() <= before || kept <= (high - before) / 4 ? 0 : (int)(kept / LM_MIB);
}

static void goes_back(peak p) {
  skip_if_sanitized();
  for (p.order = FORWARD; p.order <= RANDOM; p.order++) {
    int kept = run_in_child(rise_and_fall, &p);
    if (kept) print_message("%d MiB of blocks of %zu stay\n", kept, p.size);
    assert_int_equal(kept, 0);
  }
}

static const size_t sizes[] = { 16, 64, 1024, 32768, LM_MIB, 0 };

static void a_peak_goes_back_while_it_is_freed(void **state) {
  (void)state;
  for (size_t i = 0; i < LM_COUNT(sizes); i++) goes_back((peak){ .size = sizes[i] });
}

static void a_peak_goes_back_that_several_threads_free(void **state) {
  (void)state;
  for (size_t i = 0; i < LM_COUNT(sizes); i++)
    goes_back((peak){ .size = sizes[i], .by_threads = true });
}

static void a_peak_goes_back_that_another_thread_allocated(void **state) {
  (void)state;
  for (size_t i = 0; i < LM_COUNT(sizes); i++)
    goes_back((peak){ .size = sizes[i], .by_other = true });
}

/* ---- Peaks that return, and the clock ---------------------------------------------------- */

/* Returns the bytes that go back while a peak of large blocks falls. */
static size_t released_by_a_fall(void) {
  size_t before = lm_regions_released();
  (void)rise(&(peak){ .size = LM_MIB });
  fall(&(peak){ .size = LM_MIB });
  return lm_regions_released() - before;
}

/* Repeats a peak until loam keeps its memory. On a slow machine the peak may not return soon
 * enough, so there are several tries. */
static bool peak_is_kept(void) {
  for (int i = 0; i < 50; i++)
    if (!released_by_a_fall()) return true;
  return false;
}

/* Allocates n blocks of a MiB, writes to them and frees them. Returns the bytes that go back. */
static size_t released_by(size_t n) {
  size_t before = lm_regions_released();
  for (size_t i = 0; i < n; i++) block[i] = memset(loam_malloc(NULL, LM_MIB), 1, LM_MIB);
  for (size_t i = 0; i < n; i++) loam_free(block[i]);
  return lm_regions_released() - before;
}

/* The memory of the first peak goes back. A second peak, half as high again, comes soon after it,
 * and its memory is kept. */
static int learn_double(void *argument) {
  enum { LOW = PEAK / LM_MIB, HIGH = LOW * 3 / 2 };
  (void)argument;
  if (released_by(LOW) < PEAK / 2) return 1;
  return released_by(HIGH) < PEAK / 8 ? 0 : 2;
}

/* On a slow machine the second peak may come too late, so there are several tries. */
static void a_higher_peak_is_kept_than_the_one_that_came_again(void **state) {
  (void)state;
  skip_if_sanitized();
  int status = 1;
  for (int i = 0; status && i < 20; i++) status = run_in_child(learn_double, NULL);
  assert_int_equal(status, 0);
}

/* Takes slow paths of malloc and free, and makes a step of a tick due each time. */
static void take_slow_paths(void) {
  for (int i = 0; i < 20; i++) {
    lm_decay_wait(0);
    for (int call = 0; call < LM_DECAY_CALLS; call++) loam_free(loam_malloc(NULL, 5 * LM_MIB));
  }
}

static int learn_and_forget(void *argument) {
  (void)argument;
  if (released_by_a_fall() < PEAK / 2) return 1;
  if (!peak_is_kept()) return 2;
  size_t kept = resident();
  for (int i = 0; i < 50 && resident() + PEAK * 3 / 4 > kept; i++) take_slow_paths();
  if (resident() + PEAK * 3 / 4 > kept) return 3;
  return lm_pool_is_valid() ? 0 : 4;
}

static void a_peak_that_comes_again_is_kept_until_a_slow_path_finds_it_idle(void **state) {
  (void)state;
  skip_if_sanitized();
  assert_int_equal(run_in_child(learn_and_forget, NULL), 0);
}

/* The idle bins of this thread are given up, and then their spans. */
static int leave_small_objects(void *argument) {
  enum { MANY = 2000 };
  (void)argument;
  static void *small[MANY];
  for (int i = 0; i < MANY; i++) small[i] = loam_malloc(NULL, 700);
  for (int i = 0; i < MANY; i++) loam_free(small[i]);
  lm_central *list = &lm_pool_of(lm_strategy_at(0))->central[lm_class_of(700)];
  lm_decay_stir();
  for (int i = 0; i < 50 && list->spans; i++) take_slow_paths();
  return list->spans != 0;
}

static void slow_paths_give_up_idle_bins(void **state) {
  (void)state;
  assert_int_equal(run_in_child(leave_small_objects, NULL), 0);
}

static int fall_served(void *argument) {
  (void)argument;
  lm_decay_note_served(lm_sys_clock_ns() + AN_HOUR);
  size_t released = released_by_a_fall();
  lm_decay_wait(0);
  if (lm_decay_is_due()) return 1;
  return released == 0 ? 0 : 2;
}

static void a_service_thread_is_left_to_do_it(void **state) {
  (void)state;
  assert_int_equal(run_in_child(fall_served, NULL), 0);
}

/* ---- Many threads ------------------------------------------------------------------------- */

/* SITTERS threads use some blocks and then sit still. The last of them does so inside an active
 * section. */
enum { SITTERS = LM_THREADS_FEW + 4, USED = 25, USED_SIZE = 1000 };

static pthread_barrier_t all_have_begun, all_sit, one_leaves, all_rise;
static _Atomic size_t held; /* objects in the bin of the last thread */

static lm_central *list_of_used(void) {
  return &lm_pool_of(lm_strategy_at(0))->central[lm_class_of(USED_SIZE)];
}

/* Returns how many objects of USED_SIZE are live or in bins. */
static uint32_t count_out(void) {
  lm_central *list = list_of_used();
  lm_lock_take(&list->lock);
  uint32_t out = list->out - list->stocked;
  lm_lock_drop(&list->lock);
  return out;
}

static const lm_bin *own_bin(void) {
  uint32_t offset = lm_tcache_bin_offset(lm_strategy_at(0)->place, lm_class_of(USED_SIZE));
  return lm_tcache_bin_at(lm_thread_get(), offset);
}

static size_t count_cached(void) {
  const lm_bin *bin = own_bin();
  return (size_t)(lm_tcache_bin_top(bin) - bin->low);
}

static void use(int n) {
  void *used[4 * USED];
  for (int i = 0; i < n; i++) used[i] = loam_malloc(NULL, USED_SIZE);
  for (int i = 0; i < n; i++) loam_free(used[i]);
}

static void *use_and_sit(void *is_last) {
  lm_thread *t = lm_thread_get();
  pthread_barrier_wait(&all_have_begun);
  use(USED);
  if (is_last) held = count_cached();
  if (is_last) lm_thread_enter(t);
  pthread_barrier_wait(&all_sit);
  if (is_last) pthread_barrier_wait(&one_leaves);
  if (is_last) lm_thread_leave(t);
  pthread_barrier_wait(&all_rise);
  use(USED);
  return NULL;
}

static void start_sitters(pthread_t *sitter) {
  pthread_barrier_init(&all_have_begun, NULL, SITTERS);
  pthread_barrier_init(&all_sit, NULL, SITTERS + 1);
  pthread_barrier_init(&one_leaves, NULL, 2);
  pthread_barrier_init(&all_rise, NULL, SITTERS + 1);
  for (uintptr_t i = 0; i < SITTERS; i++)
    sitter[i] = start_thread(use_and_sit, (void *)(i / (SITTERS - 1)));
  pthread_barrier_wait(&all_sit);
}

static void end_sitters(const pthread_t *sitter) {
  pthread_barrier_wait(&all_rise);
  for (int i = 0; i < SITTERS; i++) pthread_join(sitter[i], NULL);
}

/* Takes slow paths until at most `most` objects are live or in bins. Returns false when patience
 * ends before. */
static bool work_until_out(size_t most) {
  for (int naps = 0; count_out() > most; take_slow_paths())
    if (!be_patient(&naps)) return false;
  return true;
}

static int sit_still(void *argument) {
  (void)argument;
  pthread_t sitter[SITTERS];
  lm_decay_begin();
  lm_decay_end(false);
  start_sitters(sitter);
  if (lm_decay_is_asleep() || !held || count_out() <= held) return 1;
  if (!work_until_out(held) || count_out() != held) return 2;
  for (int i = 0, naps = 0; i < 10 && be_patient(&naps); i++) take_slow_paths();
  if (count_out() != held) return 3;
  pthread_barrier_wait(&one_leaves);
  if (!work_until_out(0)) return 4;
  end_sitters(sitter);
  return lm_pool_is_valid() && lm_thread_list_is_valid() ? 0 : 5;
}

/* Threads that sit still lose their bins. A thread in an active section keeps its bins until it
 * leaves the section. */
static void threads_that_sit_still_lose_their_bins(void **state) {
  (void)state;
  assert_int_equal(run_in_child(sit_still, NULL), 0);
}

/* Returns whether the bin of this thread becomes wide enough for 4 * USED objects. */
static bool becomes_wide(void) {
  enum { TRIES = 2000 };
  for (int i = 0; i < TRIES && count_cached() < 4 * USED; i++) use(4 * USED);
  return count_cached() >= 4 * USED;
}

static int cache_little(void *argument) {
  (void)argument;
  pthread_t sitter[SITTERS];
  use(USED);
  if (count_cached() < USED) return 1; /* while the process has few threads */
  uint32_t before = count_out();
  start_sitters(sitter);
  if (count_out() - before > 2 * SITTERS) return 2;
  if (!becomes_wide()) return 3;
  pthread_barrier_wait(&one_leaves);
  end_sitters(sitter);
  return lm_pool_is_valid() ? 0 : 4;
}

static void a_young_thread_of_many_caches_little(void **state) {
  (void)state;
  assert_int_equal(run_in_child(cache_little, NULL), 0);
}

/* ---- Memory is short ---------------------------------------------------------------------- */

/* While memory is short, the next slow path gives back the memory that is kept for a peak, and a
 * peak that returns is not kept. Later a peak is kept again. */
static int learn_and_be_alarmed(void *argument) {
  (void)argument;
  if (released_by_a_fall() < PEAK / 2 || !peak_is_kept()) return 1;
  size_t kept = resident();
  lm_pressure_pretend(true);
  for (int i = 0; i < 50; i++) loam_free(loam_malloc(NULL, 5 * LM_MIB));
  if (resident() + PEAK * 3 / 4 > kept) return 2;
  if (released_by_a_fall() < PEAK / 2) return 3;
  lm_pressure_pretend(false);
  return peak_is_kept() && lm_pool_is_valid() ? 0 : 4;
}

static void an_alarm_gives_a_kept_peak_back(void **state) {
  (void)state;
  skip_if_sanitized();
  assert_int_equal(run_in_child(learn_and_be_alarmed, NULL), 0);
}

/* Returns the bytes of objects for which the bin of this thread has room, after it has allocated
 * many of them and before it has freed them. */
static size_t room_for(size_t size) {
  enum { MANY = 4096 };
  static void *small[MANY];
  loam_free(loam_malloc(NULL, size)); /* gives the strategy a place in the bins */
  uint32_t bin = lm_tcache_bin_offset(lm_strategy_at(0)->place, lm_class_of(size));
  const lm_bin *of = lm_tcache_bin_at(lm_thread_get(), bin);
  for (int i = 0; i < MANY; i++) small[i] = loam_malloc(NULL, size);
  size_t room = (size_t)(of->high - of->low) * size;
  for (int i = 0; i < MANY; i++) loam_free(small[i]);
  return room;
}

static int fill_narrow_bins(void *argument) {
  (void)argument;
  size_t wide = room_for(1024);
  lm_central *list = &lm_pool_of(lm_strategy_at(0))->central[lm_class_of(1024)];
  lm_pressure_pretend(true);
  for (int i = 0; i < 50 && list->spans; i++) loam_free(loam_malloc(NULL, 5 * LM_MIB));
  if (list->spans) return 1;
  size_t narrow = room_for(1024);
  return narrow > 0 && narrow <= 64 * LM_KIB && wide > 4 * narrow ? 0 : 2;
}

static void while_memory_is_short_bins_are_narrow(void **state) {
  (void)state;
  assert_int_equal(run_in_child(fill_narrow_bins, NULL), 0);
}

static void *obey_in_thread(void *argument) {
  lm_thread *t = lm_thread_get();
  bool *is_obeyed = argument;
  lm_thread_enter(t);
  *is_obeyed = lm_sweep_is_alarmed(t);
  for (int i = 0; i < 1000 && lm_sweep_is_alarmed(t); i++) lm_sweep_obey_alarm(t);
  *is_obeyed = *is_obeyed && !lm_sweep_is_alarmed(t);
  lm_thread_leave(t);
  return NULL;
}

/* Each thread obeys an alarm once. A thread that finds the lock taken tries again later. */
static int be_alarmed_by_threads(void *argument) {
  (void)argument;
  bool is_obeyed = false;
  lm_thread *t = lm_thread_get();
  loam_free(loam_malloc(NULL, 100));
  if (lm_sweep_is_alarmed(t)) return 1;
  lm_pressure_pretend(true);
  lm_lock_take(&lm_pools_end_lock);
  lm_thread_enter(t);
  lm_sweep_obey_alarm(t);
  bool is_left = lm_sweep_is_alarmed(t);
  lm_thread_leave(t);
  lm_lock_drop(&lm_pools_end_lock);
  if (!is_left) return 2;
  pthread_join(start_thread(obey_in_thread, &is_obeyed), NULL);
  if (!is_obeyed || lm_sweep_is_alarmed(t)) return 3;
  lm_pressure_pretend(false);
  lm_pressure_pretend(true);
  pthread_join(start_thread(obey_in_thread, &is_obeyed), NULL);
  if (!lm_sweep_is_alarmed(t)) return 4; /* this thread has its own bins and has not obeyed yet */
  loam_free(loam_malloc(NULL, 5 * LM_MIB));
  if (lm_sweep_is_alarmed(t)) return 5;
  lm_pressure_pretend(false);
  lm_pressure_pretend(true);
  return lm_sweep_is_alarmed(t) ? 0 : 6;
}

static void each_thread_obeys_an_alarm_once(void **state) {
  (void)state;
  assert_int_equal(run_in_child(be_alarmed_by_threads, NULL), 0);
}

/* ---- Locks -------------------------------------------------------------------------------- */

static void do_a_step(void) {
  lm_thread *t = lm_thread_get();
  lm_decay_stir();
  lm_decay_wait(0);
  lm_thread_enter(t);
  for (int i = 0; i < LM_DECAY_CALLS; i++) lm_sweep_poll(t);
  lm_thread_leave(t);
}

/* Does a step of a tick while the thread holds a lock that a tick takes. If the step waited for the
 * lock, the thread would wait for itself. */
static int step_while_locked(void *argument) {
  (void)argument;
  loam_free(loam_malloc(NULL, 100));
  lm_lock_take(&lm_pools_end_lock);
  do_a_step();
  lm_lock_drop(&lm_pools_end_lock);
  lm_pool *pool = lm_pool_of(lm_strategy_at(0));
  for (unsigned c = 0; c < LM_CLASSES; c++) lm_lock_take(&pool->central[c].lock);
  do_a_step();
  for (unsigned c = 0; c < LM_CLASSES; c++) lm_lock_drop(&pool->central[c].lock);
  return lm_pool_is_valid() ? 0 : 1;
}

static void a_step_waits_for_no_lock_of_a_tick(void **state) {
  (void)state;
  assert_int_equal(run_in_child(step_while_locked, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_peak_goes_back_while_it_is_freed),
    cmocka_unit_test(a_peak_goes_back_that_several_threads_free),
    cmocka_unit_test(a_peak_goes_back_that_another_thread_allocated),
    cmocka_unit_test(a_peak_that_comes_again_is_kept_until_a_slow_path_finds_it_idle),
    cmocka_unit_test(a_higher_peak_is_kept_than_the_one_that_came_again),
    cmocka_unit_test(slow_paths_give_up_idle_bins),
    cmocka_unit_test(a_service_thread_is_left_to_do_it),
    cmocka_unit_test(threads_that_sit_still_lose_their_bins),
    cmocka_unit_test(a_young_thread_of_many_caches_little),
    cmocka_unit_test(an_alarm_gives_a_kept_peak_back),
    cmocka_unit_test(while_memory_is_short_bins_are_narrow),
    cmocka_unit_test(each_thread_obeys_an_alarm_once),
    cmocka_unit_test(a_step_waits_for_no_lock_of_a_tick),
  };
  block = mmap(NULL, BLOCKS_MAX * sizeof *block, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  setenv("LOAM_CONTROL", "0", 1); /* so that no service thread starts */
  return block == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
