/* test_fork_gate.c - guarded sections, the gate that a fork closes, and spare memory. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/handler_api.h"
#include "api/memory.h"
#include "engine_fixture.h"
#include "os/fork_gate.h"
#include "os/lock.h"
#include "os/spare.h"
#include "os/thread.h"
#include "test.h"

static _Atomic bool may_end, is_begun, is_ended;
static _Atomic int holder; /* the id of the thread that holds a section */

/* How a thread holds a section: whether it has an area, and whether it suspends the section. */
typedef struct how {
  bool has_area, suspends;
} how;

static void *hold_section(void *ctx) {
  const how *h = ctx;
  lm_lock_suspended section = { 0 };
  if (h->has_area) lm_thread_get();
  lm_lock_hold_cancel();
  if (h->suspends) section = lm_lock_suspend();
  holder = lm_sys_thread_id();
  is_begun = true;
  while (!may_end) sched_yield();
  if (h->suspends) lm_lock_resume(section);
  lm_lock_allow_cancel();
  is_ended = true;
  return NULL;
}

static pthread_t begin_section(const how *h) {
  pthread_t thread;
  may_end = is_begun = is_ended = false;
  assert_int_equal(pthread_create(&thread, NULL, hold_section, (void *)h), 0);
  while (!is_begun) sched_yield();
  return thread;
}

static void *end_soon(void *ctx) {
  lm_sys_sleep(20000000);
  may_end = true;
  return ctx;
}

/* Returns whether a fork waited until a section had ended. */
static bool waits_for_section(const how *h) {
  pthread_t helper, thread = begin_section(h);
  assert_int_equal(pthread_create(&helper, NULL, end_soon, NULL), 0);
  lm_fork_gate_close(false);
  bool has_waited = may_end && !lm_fork_gate_has_given_up();
  lm_fork_gate_open();
  pthread_join(helper, NULL);
  pthread_join(thread, NULL);
  return has_waited;
}

static void a_fork_waits_for_guarded_sections(void **state) {
  (void)state;
  assert_true(waits_for_section(&(how){ .has_area = true }));
  assert_true(waits_for_section(&(how){ .has_area = false }));
}

/* A thread that has suspended its section for foreign code may still hold a lock that the fork
 * needs. On a busy machine the section may last longer than a fork waits for such code. */
static void a_fork_waits_for_foreign_code_in_a_section(void **state) {
  enum { TRIES = 20 };
  int tries = 0;
  (void)state;
  while (tries < TRIES && !waits_for_section(&(how){ .has_area = true, .suspends = true })) tries++;
  assert_true(tries < TRIES);
}

static void *allocate_in_foreign_code(void *ctx) {
  lm_thread_get();
  lm_lock_hold_cancel();
  lm_lock_suspended section = lm_lock_suspend();
  is_begun = true;
  while (atomic_load(&lm_fork_gate_phase) == LM_GATE_OPEN) sched_yield();
  bool has_begun = lm_lock_try_hold();
  if (has_begun) lm_lock_allow_cancel();
  lm_lock_resume(section);
  lm_lock_allow_cancel();
  return has_begun ? ctx : NULL;
}

/* Returns whether foreign code of another thread passed the gate while this thread closed it. */
static bool passes_in_foreign_code(void) {
  pthread_t thread;
  void *result;
  is_begun = false;
  assert_int_equal(pthread_create(&thread, NULL, allocate_in_foreign_code, &is_begun), 0);
  while (!is_begun) sched_yield();
  lm_fork_gate_close(false);
  lm_fork_gate_open();
  pthread_join(thread, &result);
  return result;
}

/* If foreign code stopped at a closing gate, the fork and the foreign code would wait for each
 * other. On a busy machine the forking thread may lose its processor in the moment in which nobody
 * passes, for longer than foreign code waits. */
static void foreign_code_passes_a_closing_gate(void **state) {
  enum { TRIES = 20 };
  int tries = 0;
  (void)state;
  while (tries < TRIES && !passes_in_foreign_code()) tries++;
  assert_true(tries < TRIES);
}

/* Tells whether the thread that holds a section sleeps. Until it may end, it only yields. */
static bool is_holder_asleep(void) {
  char path[64], text[512];
  size_t length;
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", holder);
  return !lm_sys_read_file(path, text, sizeof text, &length) && strstr(text, ") S ");
}

static void a_fork_does_not_wait_for_long_foreign_code(void **state) {
  (void)state;
  pthread_t thread = begin_section(&(how){ .has_area = true, .suspends = true });
  lm_fork_gate_close(false);
  assert_false(lm_fork_gate_has_given_up());
  may_end = true;
  while (!is_ended && !is_holder_asleep()) sched_yield();
  assert_false(is_ended); /* the section of the other thread goes on after the fork */
  lm_fork_gate_open();
  pthread_join(thread, NULL);
  assert_true(is_ended);
}

static void *make_area(void *ctx) {
  lm_lock_hold_cancel();
  lm_thread_get();
  bool is_adopted = lm_thread_self->guarded && lm_fork_gate_is_valid();
  lm_lock_allow_cancel();
  return is_adopted && lm_fork_gate_is_valid() ? ctx : NULL;
}

static void a_section_goes_on_in_a_new_area(void **state) {
  pthread_t thread;
  void *result;
  assert_int_equal(pthread_create(&thread, NULL, make_area, state), 0);
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_non_null(result);
  lm_fork_gate_close(false); /* the fork does not wait for a section of a thread that has ended */
  lm_fork_gate_open();
}

static void *take_a_lock_while_active(void *ctx) {
  static lm_lock lock;
  lm_thread *t = lm_thread_get();
  is_begun = true;
  while (!may_end) sched_yield();
  lm_thread_begin(t);
  is_begun = false;
  lm_lock_take(&lock); /* waits while the gate is closed */
  lm_lock_drop(&lock);
  lm_thread_leave(t);
  return ctx;
}

/* A handler of pthread_atfork may run out of memory and then ask for a grace. The grace would wait
 * for a thread that waits for the fork. */
static void the_forking_thread_waits_for_no_grace(void **state) {
  pthread_t thread;
  may_end = is_begun = false;
  lm_thread_get();
  assert_int_equal(pthread_create(&thread, NULL, take_a_lock_while_active, state), 0);
  while (!is_begun) sched_yield();
  lm_fork_gate_close(false);
  may_end = true;
  while (is_begun) sched_yield();
  alarm(PATIENCE_S);
  assert_false(lm_thread_grace());
  alarm(0);
  lm_fork_gate_open();
  pthread_join(thread, NULL);
}

static void *try_section(void *ctx) {
  bool has_begun = lm_lock_try_hold();
  assert_int_equal(has_begun, lm_lock_cancel_holds > 0);
  assert_true(lm_fork_gate_is_valid());
  if (has_begun) lm_lock_allow_cancel();
  assert_true(lm_fork_gate_is_valid());
  return has_begun ? ctx : NULL;
}

static bool can_another_begin(void) {
  pthread_t thread;
  void *result;
  assert_int_equal(pthread_create(&thread, NULL, try_section, &may_end), 0);
  assert_int_equal(pthread_join(thread, &result), 0);
  return result;
}

static void the_forking_thread_alone_passes_the_gate(void **state) {
  (void)state;
  assert_true(can_another_begin());
  lm_fork_gate_close(false);
  assert_false(can_another_begin());
  assert_true(lm_lock_try_hold());
  lm_lock_allow_cancel();
  lm_fork_gate_close(true); /* a signal handler forks while this thread forks */
  lm_fork_gate_open();
  assert_false(can_another_begin());
  lm_fork_gate_open();
  assert_true(can_another_begin());
}

/* Without membarrier(2), each section needs a fence from then on, until the process ends. */
static void a_fork_works_without_membarrier(void **state) {
  (void)state;
  if (!LOAM_CHECKS) skip();
  pthread_t thread = begin_section(&(how){ .has_area = true, .suspends = true });
  assert_int_equal(lm_fork_gate_phase, LM_GATE_OPEN);
  lm_sys_refuse_from(1);
  lm_fork_gate_close(false);
  lm_sys_refuse_from(0);
  assert_false(can_another_begin());
  lm_fork_gate_open();
  assert_int_equal(lm_fork_gate_phase, LM_GATE_FENCED);
  assert_true(can_another_begin());
  may_end = true;
  pthread_join(thread, NULL);
  assert_true(waits_for_section(&(how){ .has_area = true }));
}

/* A fork in the middle of a section leaves work for the child. The child does it when the section
 * ends. */
static void an_interrupted_section_ends_in_the_child(void **state) {
  (void)state;
  int status;
  lm_thread_get();
  lm_lock_hold_cancel();
  pid_t child = fork();
  if (!child) {
    bool owed = lm_thread_owes_child;
    lm_lock_allow_cancel();
    _exit(owed && !lm_thread_owes_child && can_another_begin() ? 0 : 1);
  }
  lm_lock_allow_cancel();
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void spare_blocks_are_known_by_their_address(void **state) {
  (void)state;
  for (size_t align = 16; align <= 1 << 16; align *= 2) {
    char *p = lm_spare_alloc(5000, align);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % align, 0);
    assert_true(lm_spare_usable(p) >= 5000);
    p[0] = p[lm_spare_usable(p) - 1] = 1;
    assert_int_equal(lm_spare_usable(p + 16), 0);
    assert_true(lm_spare_free(p));
    assert_false(lm_spare_free(p));
  }
  assert_null(lm_spare_alloc(SIZE_MAX, 16));
}

static void noted_frees_are_found_again(void **state) {
  (void)state;
  int a, b;
  assert_true(lm_spare_note_free(&a) && lm_spare_note_free(&b));
  assert_int_equal(lm_spare_uses, 2);
  assert_ptr_equal(lm_spare_next_noted(), &a);
  assert_ptr_equal(lm_spare_next_noted(), &b);
  assert_null(lm_spare_next_noted());
  assert_int_equal(lm_spare_uses, 0);
}

static void a_slow_request_does_the_frees_that_were_noted(void **state) {
  (void)state;
  void *noted = loam_malloc(NULL, 100);
  assert_true(noted && lm_spare_note_free(noted));
  assert_true(loam_usable_size(noted) >= 100);
  void *large = loam_malloc(NULL, 64 << 20);
  assert_non_null(large);
  assert_int_equal(lm_spare_uses, 0);
  assert_int_equal(loam_usable_size(noted), 0);
  loam_free(large);
}

static void *plain_malloc(void *ctx, size_t size) {
  ++*(_Atomic int *)ctx;
  return malloc(size);
}
static void *plain_calloc(void *ctx, size_t count, size_t size) {
  (void)ctx;
  return calloc(count, size);
}
static void *plain_realloc(void *ctx, void *ptr, size_t size) {
  (void)ctx;
  return realloc(ptr, size);
}
static void plain_free(void *ctx, void *ptr, size_t size) {
  (void)ctx, (void)size;
  free(ptr);
}

static _Atomic int blocks_made;
static const loam_handler plain = {
  "plain", 1, { &blocks_made, plain_malloc, plain_calloc, plain_realloc, plain_free }
};

static void *grow_by_handler(void *ctx) {
  char *p = lm_memory_alloc(
      &(lm_request){ .site = loam_site_get(""), .size = 100, .align = 16, .handler = &plain });
  p = p ? lm_handler_api_realloc(&plain, loam_site_get(""), p, 1000) : NULL;
  loam_free(p);
  return p ? ctx : NULL;
}

/* The fork lasts long enough that any request which can use spare memory gets it. */
static void a_handler_makes_its_blocks_while_a_fork_lasts(void **state) {
  pthread_t thread;
  void *result;
  loam_free(loam_malloc(NULL, 1)); /* starts loam */
  lm_fork_gate_close(false);
  assert_int_equal(pthread_create(&thread, NULL, grow_by_handler, state), 0);
  lm_sys_sleep(200000000);
  lm_fork_gate_open();
  pthread_join(thread, &result);
  assert_non_null(result);
  assert_int_equal(blocks_made, 1);
}

static _Atomic bool has_grown;
static void *grow(void *ctx) {
  void **p = ctx;
  *p = loam_realloc(NULL, *p, 3000);
  has_grown = true;
  return *p;
}

/* The objects of pools are small, large, or guarded ones of size 0, which have no memory. */
static void a_realloc_of_an_object_does_not_wait_for_a_fork(void **state) {
  loam_free(loam_malloc(NULL, 1)); /* starts loam */
  assert_int_equal(set_up(state), 0);
  CHAIN(intern((lm_desc){ .guard = 1 }, "guarded"));
  void *p[] = { NULL, loam_malloc(site, 0), loam_malloc(site, 100), NULL, NULL };
  CHAIN(host("plain"));
  p[3] = loam_malloc(site, 100);
  p[4] = loam_malloc(site, 100000);
  for (size_t i = 1; i < LM_COUNT(p); i++) assert_non_null(p[i]);
  for (size_t i = 0; i < LM_COUNT(p); i++) {
    pthread_t thread;
    int64_t end = lm_sys_clock_ns() + 5000000000;
    has_grown = false;
    lm_fork_gate_close(false);
    assert_int_equal(pthread_create(&thread, NULL, grow, &p[i]), 0);
    while (!has_grown && lm_sys_clock_ns() < end) lm_sys_sleep(1000000);
    lm_fork_gate_open();
    pthread_join(thread, NULL);
    if (lm_spare_usable(p[i]) < 3000) fail_msg("object %zu has waited", i);
    CHAIN(intern((lm_desc){ .kind = LM_KIND_DENY }, "deny"));
    assert_ptr_equal(loam_realloc(site, p[i], 50), p[i]); /* a block that shrinks needs no memory */
    assert_null(loam_realloc(site, p[i], 5000));
    CHAIN(host("plain"));
    loam_free(p[i]);
  }
}

static void *use_spare_memory(void *ctx) {
  int noted;
  while (!may_end) {
    void *p = lm_spare_alloc(100, 16);
    if (p) (void)lm_spare_free(p);
    if (lm_spare_note_free(&noted)) (void)lm_spare_next_noted();
  }
  return ctx;
}

/* The system suspends the thread in the middle of lm_spare_alloc while it copies the process. */
static void a_child_has_no_spare_memory_that_a_lost_thread_was_making(void **state) {
  (void)state;
  pthread_t thread;
  may_end = false;
  void *kept = lm_spare_alloc(5000, 16);
  assert_int_equal(pthread_create(&thread, NULL, use_spare_memory, NULL), 0);
  for (int i = 0; i < 200; i++) {
    int status;
    pid_t child = fork();
    if (!child) {
      bool is_right = lm_spare_is_valid() && lm_spare_usable(kept) && lm_spare_free(kept);
      _exit(is_right ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
  }
  may_end = true;
  pthread_join(thread, NULL);
  assert_true(lm_spare_free(kept) && lm_spare_is_valid());
}

static void a_mark_without_a_section_is_not_valid(void **state) {
  (void)state;
  lm_thread *t = lm_thread_get();
  assert_true(lm_fork_gate_is_valid());
  atomic_store(&t->guarded, true);
  assert_false(lm_fork_gate_is_valid());
  atomic_store(&t->guarded, false);
  assert_true(lm_fork_gate_is_valid());
}

static void spare_memory_that_is_miscounted_is_not_valid(void **state) {
  (void)state;
  void *p = lm_spare_alloc(100, 16);
  assert_true(lm_spare_is_valid());
  atomic_fetch_add(&lm_spare_uses, 1);
  assert_false(lm_spare_is_valid());
  atomic_fetch_sub(&lm_spare_uses, 1);
  assert_true(lm_spare_free(p) && lm_spare_is_valid());
}

/* ---- Areas that are in neither list */

/* Counts a line of /proc/self/maps if it is the end of an area, to which the thread never wrote.
 * Each area has such a part. */
static void count_tail(void *tails, const char *line) {
  uintptr_t from, to;
  char access[5];
  if (sscanf(line, "%lx-%lx %4s", &from, &to, access) != 3) return;
  size_t end = LM_THREAD_SIZE - LM_THREAD_BINS - LM_FIRST_BINS;
  *(uint32_t *)tails += to - from == end && !strcmp(access, "r--p");
}

static void count_area(lm_thread *t, void *areas) {
  (void)t;
  ++*(uint32_t *)areas;
}

/* Returns how many areas are mapped but are in neither list. Only areas whose end was never written
 * to are found. If areas in the lists are used up to their end, the result is too small by their
 * number. */
static int count_lost_areas(void) {
  uint32_t tails = 0, areas = 0;
  assert_int_equal(lm_sys_each_line("/proc/self/maps", count_tail, &tails), 0);
  lm_thread_each(count_area, &areas);
  return (int)(tails - areas - lm_thread_count_vacant());
}

static int has_lost_areas(void *before) { return count_lost_areas() != *(int *)before; }

static _Atomic bool has_made_enough;

static void *live_shortly(void *unused) {
  (void)lm_thread_get();
  return unused;
}

static void *make_areas(void *unused) {
  while (!has_made_enough) pthread_join(start_thread(live_shortly, NULL), NULL);
  return unused;
}

/* Threads without an area make one, or take a vacant one, while another thread forks. */
static void a_child_inherits_no_area_that_is_in_neither_list(void **state) {
  (void)state;
  skip_if_sanitized();
  int lost = 0;
  lm_thread_get();
  lm_thread_trim_vacant();
  int before = count_lost_areas();
  pthread_t making = start_thread(make_areas, NULL);
  for (int i = 0; i < 300; i++) {
    if (i % 8 == 0) lm_thread_trim_vacant();
    lost += run_in_child(has_lost_areas, &before);
  }
  has_made_enough = true;
  pthread_join(making, NULL);
  assert_int_equal(lost, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_fork_waits_for_guarded_sections),
    cmocka_unit_test(a_fork_waits_for_foreign_code_in_a_section),
    cmocka_unit_test(foreign_code_passes_a_closing_gate),
    cmocka_unit_test(a_fork_does_not_wait_for_long_foreign_code),
    cmocka_unit_test(a_section_goes_on_in_a_new_area),
    cmocka_unit_test(the_forking_thread_alone_passes_the_gate),
    cmocka_unit_test(the_forking_thread_waits_for_no_grace),
    cmocka_unit_test(an_interrupted_section_ends_in_the_child),
    cmocka_unit_test(spare_blocks_are_known_by_their_address),
    cmocka_unit_test(noted_frees_are_found_again),
    cmocka_unit_test(a_slow_request_does_the_frees_that_were_noted),
    cmocka_unit_test(a_handler_makes_its_blocks_while_a_fork_lasts),
    cmocka_unit_test(a_realloc_of_an_object_does_not_wait_for_a_fork),
    cmocka_unit_test(a_child_has_no_spare_memory_that_a_lost_thread_was_making),
    cmocka_unit_test(a_child_inherits_no_area_that_is_in_neither_list),
    cmocka_unit_test(
        a_fork_works_without_membarrier), /* the last test, because it changes the process */
    cmocka_unit_test(a_mark_without_a_section_is_not_valid),
    cmocka_unit_test(spare_memory_that_is_miscounted_is_not_valid),
  };
  return cmocka_run_group_tests_name("fork_gate", tests, NULL, NULL);
}
