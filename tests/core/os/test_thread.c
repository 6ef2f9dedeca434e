/* test_thread.c - areas of threads, the grace period, fork: thread.h. */
#include "duel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/error.h"
#include "os/thread.h"

/* A test's thread returns this if it has found something wrong. */
#define WRONG ((void *)1)

enum { SOMEWHERE = 65536 };

/* Sanitizers keep memory of their own for each thread. ThreadSanitizer frees it before the last
 * round of destructors, so instrumented code must end one round earlier. ThreadSanitizer also
 * writes shadow memory for all memory that is mapped. */
#if defined(__SANITIZE_THREAD__)
enum { CAN_MEASURE = false, ROUNDS_OF_DESTRUCTORS = 3, MANY_THREADS = 200 };
#elif defined(__SANITIZE_ADDRESS__)
enum { CAN_MEASURE = false, ROUNDS_OF_DESTRUCTORS = 4, MANY_THREADS = 2000 };
#else
enum { CAN_MEASURE = true, ROUNDS_OF_DESTRUCTORS = 4, MANY_THREADS = 2000 };
#endif

static void count_area(lm_thread *t, void *n) {
  (void)t;
  ++*(uint32_t *)n;
}
static int count_areas(void) {
  uint32_t n = 0;
  lm_thread_each(count_area, &n);
  return (int)n;
}

static void *get_area(void *unused) {
  (void)unused;
  return lm_thread_get();
}

/* ---- Areas */

static void a_thread_keeps_one_zeroed_area(void **state) {
  (void)state;
  lm_thread *t = lm_thread_get();
  assert_non_null(t);
  assert_ptr_equal(lm_thread_get(), t);
  assert_ptr_equal(lm_thread_make(), t);
  assert_int_equal((uintptr_t)t % LM_PAGE, 0);
  assert_int_equal(t->active, 0);
  assert_int_equal(t->depth, 0);
  const char *last = (char *)t + LM_THREAD_SIZE - 1;
  assert_int_equal(*last, 0);
}

static void an_area_goes_with_its_thread(void **state) {
  (void)state;
  lm_thread_get();
  uint32_t before = lm_thread_count();
  void *other;
  pthread_join(start_thread(get_area, NULL), &other);
  assert_ptr_not_equal(other, lm_thread_get());
  assert_int_equal(lm_thread_count(), before);
}

static long resident_pages(void) {
  char text[128];
  size_t length;
  assert_int_equal(lm_sys_read_file("/proc/self/statm", text, sizeof text, &length), 0);
  return strtol(strchr(text, ' '), NULL, 10);
}

static void *touch_area(void *unused) {
  (void)unused;
  lm_error(LOAM_EINVAL, "words");
  lm_thread *t = lm_thread_get();
  for (size_t at = LM_THREAD_BINS; at < LM_THREAD_BINS + LM_FIRST_BINS; at += LM_PAGE)
    ((volatile char *)t)[at] = 0; /* the page gets memory, and the bins stay all zeros */
  return NULL;
}

static void run_threads(int n, void *(*run)(void *)) {
  enum { AT_ONCE = 10 };
  pthread_t thread[AT_ONCE];
  for (int done = 0; done < n; done += AT_ONCE) {
    for (int i = 0; i < AT_ONCE; i++) thread[i] = start_thread(run, NULL);
    for (int i = 0; i < AT_ONCE; i++) pthread_join(thread[i], NULL);
  }
}

static void thousands_of_threads_leave_nothing(void **state) {
  (void)state;
  run_threads(20, touch_area); /* the C library keeps stacks of ended threads */
  int areas = count_areas();
  long pages = resident_pages();
  run_threads(MANY_THREADS, touch_area);
  assert_int_equal(count_areas(), areas);
  /* An area that was not unmapped would have 20 resident pages. */
  assert_true(!CAN_MEASURE || resident_pages() - pages < 1000);
}

/* ---- Vacant areas */

/* Writes values to its area that a thread may leave there. Returns the area. */
static void *leave_traces(void *unused) {
  (void)unused;
  lm_thread *t = lm_thread_get();
  t->depth = 3;
  t->site = t->scope[0] = (loam_site *)t;
  t->handler = (const loam_handler *)t;
  t->freed_count = 1;
  t->freed[0].base = (uintptr_t)t;
  lm_error(LOAM_EINVAL, "words");
  lm_thread_set_slow(t, LM_SLOW_STALE);
  return t;
}

/* Returns the area, or NULL if values of an ended thread are still in it. */
static void *find_no_traces(void *unused) {
  (void)unused;
  lm_thread *t = lm_thread_get();
  bool is_clear = !t->depth && !t->site && !t->handler && !t->freed_count && !t->freed[0].base;
  return is_clear && !t->error[0] && !t->slow_reasons && lm_thread_is_valid(t) ? t : NULL;
}

static void a_thread_gets_the_area_of_an_ended_one_and_nothing_that_it_left(void **state) {
  (void)state;
  void *first, *second;
  lm_thread_trim_vacant();
  pthread_join(start_thread(leave_traces, NULL), &first);
  assert_int_equal(lm_thread_count_vacant(), 1);
  pthread_join(start_thread(find_no_traces, NULL), &second);
  assert_ptr_equal(second, first);
  assert_int_equal(lm_thread_count_vacant(), 1);
  assert_true(lm_thread_list_is_valid());
}

static pthread_barrier_t all_begun;

static void *wait_for_all(void *unused) {
  (void)unused;
  lm_thread_get();
  pthread_barrier_wait(&all_begun);
  return NULL;
}

static void *stay_with_an_area(void *unused) {
  wait_for_all(unused);
  pthread_barrier_wait(&all_begun);
  return NULL;
}

static void run_together(int n) {
  pthread_t thread[3 * LM_VACANT_MAX];
  assert_true(n <= 3 * LM_VACANT_MAX);
  pthread_barrier_init(&all_begun, NULL, (unsigned)n);
  for (int i = 0; i < n; i++) thread[i] = start_thread(wait_for_all, NULL);
  for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
  pthread_barrier_destroy(&all_begun);
}

static void a_process_keeps_few_vacant_areas_and_only_those_that_are_needed(void **state) {
  (void)state;
  run_together(3 * LM_VACANT_MAX);
  assert_int_equal(lm_thread_count_vacant(), LM_VACANT_MAX);
  (void)lm_thread_decay_vacant();
  run_together(3 * LM_VACANT_MAX); /* takes all vacant areas */
  (void)lm_thread_decay_vacant();  /* begins an interval in which three areas are needed */
  run_together(3);
  assert_int_equal(lm_thread_count_vacant(), LM_VACANT_MAX);
  assert_true(lm_thread_decay_vacant());
  assert_int_equal(lm_thread_count_vacant(), 3);
  assert_false(lm_thread_decay_vacant());
  assert_int_equal(lm_thread_count_vacant(), 0);
  assert_true(lm_thread_list_is_valid());
}

static void *use_many_bins(void *unused) {
  (void)unused;
  lm_thread *t = lm_thread_get();
  return lm_thread_extend(t, LM_THREAD_BINS + LM_VACANT_BINS + 1) ? NULL : WRONG;
}

/* The thread ends in an active section, like a thread that is cancelled there. */
static void *end_amid_a_section(void *unused) {
  (void)unused;
  lm_thread_begin(lm_thread_get());
  return NULL;
}

/* Returns the bytes that the kernel counts against RLIMIT_DATA: private memory that can be
 * written. */
static size_t counted_data(void) {
  char text[4096];
  size_t length;
  assert_int_equal(lm_sys_read_file("/proc/self/status", text, sizeof text, &length), 0);
  const char *line = strstr(text, "VmData:");
  return line ? (size_t)atol(line + strlen("VmData:")) * LM_KIB : 0;
}

/* The kernel counts private memory that can be written against RLIMIT_DATA, used or not, and also
 * against the memory of a system that does not overcommit. Most of an area must not count. */
static void most_of_an_area_counts_against_no_limit_on_memory(void **state) {
  (void)state;
  skip_if_sanitized();
  enum { THREADS = 2 * LM_VACANT_MAX };
  size_t before = 0, with_areas = 0;
  pthread_t thread[THREADS];
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, LM_MIB / 4);
  lm_thread_trim_vacant();
  pthread_barrier_init(&all_begun, NULL, THREADS + 1);
  before = counted_data();
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&thread[i], &small, stay_with_an_area, NULL), 0);
  pthread_barrier_wait(&all_begun);
  with_areas = counted_data();
  pthread_barrier_wait(&all_begun);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  pthread_barrier_destroy(&all_begun);
  pthread_attr_destroy(&small);
  assert_true(before > 0 && with_areas - before < THREADS * LM_MIB / 2);
}

static void *extend_step_by_step(void *unused) {
  (void)unused;
  lm_thread *t = lm_thread_get();
  lm_sys_refuse_from(1); /* the first bins are writable already */
  if (!lm_thread_extend(t, LM_THREAD_BINS + LM_FIRST_BINS)) return WRONG;
  lm_sys_refuse_from(0);
  for (uint32_t end = LM_THREAD_BINS; end <= LM_THREAD_SIZE; end += LM_PAGE) {
    uint32_t was = t->bins_end;
    lm_sys_refuse(2); /* first the advice on huge pages fails, which does no harm */
    if (!lm_thread_extend(t, end) && (t->bins_end != was || !lm_thread_extend(t, end)))
      return WRONG;
    lm_sys_refuse(0);
    ((volatile char *)t)[end - 1] = 0;
  }
  return t->bins_end == LM_THREAD_SIZE ? NULL : WRONG;
}

static void an_area_becomes_writable_as_far_as_it_is_used(void **state) {
  (void)state;
  void *result;
  pthread_join(start_thread(extend_step_by_step, NULL), &result);
  assert_null(result);
}

static void an_area_that_is_large_or_was_amid_an_operation_is_unmapped(void **state) {
  (void)state;
  lm_thread_trim_vacant();
  int areas = count_areas();
  pthread_join(start_thread(use_many_bins, NULL), NULL);
  pthread_join(start_thread(end_amid_a_section, NULL), NULL);
  assert_int_equal(lm_thread_count_vacant(), 0);
  assert_int_equal(count_areas(), areas);
}

/* ---- When there is no memory */

static void refused_memory_is_no_area_and_then_one(bool refused) {
  bool none = !lm_thread_get();
  if (none) assert_true(refused);
  assert_non_null(none ? lm_thread_get() : lm_thread_self);
}

static void *meet_refusals(void *calls) {
  lm_thread_trim_vacant();
  lm_sys_refuse_from(1);
  if (lm_thread_get() || lm_thread_self) return WRONG;
  lm_sys_refuse_from(0);
  *(long *)calls = refuse_each(refused_memory_is_no_area_and_then_one);
  return NULL;
}

static void *use_a_copied_area(void *unused) {
  (void)unused;
  lm_thread_trim_vacant();
  /* The kernel refuses a mapping, as it may in a process that has called mlockall(MCL_FUTURE). */
  lm_sys_refuse(1);
  lm_thread *t = lm_thread_get();
  if (!t || strcmp(lm_sys_refused(), "lm_sys_map_readable") != 0) return WRONG;
  volatile char *bytes = (char *)t;
  if (bytes[LM_THREAD_SIZE - 1] || !lm_thread_extend(t, LM_THREAD_SIZE)) return WRONG;
  for (size_t at = LM_THREAD_BINS; at < LM_THREAD_SIZE; at += LM_PAGE) {
    if (bytes[at]) return WRONG;
    bytes[at] = 0;
  }
  return lm_thread_is_valid(t) ? NULL : WRONG;
}

static void a_refused_mapping_is_made_from_another_area(void **state) {
  (void)state;
  void *result;
  pthread_join(start_thread(use_a_copied_area, NULL), &result);
  assert_null(result);
}

static void *use_the_empty_area(void *unused) {
  (void)unused;
  lm_thread *empty_one = lm_thread_self_or_empty;
  bool is_slow = !(lm_thread_try_enter(empty_one) & LM_EPOCH_FAST), empty = true;
  lm_thread_leave(empty_one);
  for (int i = 0; i < LM_DECISIONS; i++) empty = empty && !empty_one->decision[i].key;
  lm_thread *t = lm_thread_get();
  return is_slow && empty && t != empty_one && lm_thread_self_or_empty == t ? NULL : WRONG;
}

static void a_thread_without_an_area_finds_nothing_in_the_empty_one(void **state) {
  (void)state;
  void *result;
  pthread_join(start_thread(use_the_empty_area, NULL), &result);
  assert_null(result);
}

static void want_of_memory_is_no_area(void **state) {
  (void)state;
  long calls = -1;
  void *result;
  pthread_join(start_thread(meet_refusals, &calls), &result);
  assert_null(result);
  assert_true(calls >= 0);
}

/* ---- The end of a thread */

static pthread_key_t last_key;
static _Atomic int late_ones, dying_ones, ends;

/* A destructor that uses loam in each round, also after the area of the thread has ended. */
static void use_loam_again(void *rounds) {
  lm_thread *t = lm_thread_get();
  assert_non_null(t);
  late_ones += t->late;
  dying_ones += t->dying;
  assert_true(t->dying == t->late);
  lm_thread_enter(t);
  lm_thread_leave(t);
  if (rounds) pthread_setspecific(last_key, (char *)rounds - 1);
}

static void *end_late(void *unused) {
  (void)unused;
  lm_thread_get();
  pthread_setspecific(last_key, (void *)(intptr_t)ROUNDS_OF_DESTRUCTORS);
  return NULL;
}

static void late_areas_are_taken_back(void **state) {
  (void)state;
  lm_thread_get();
  assert_int_equal(pthread_key_create(&last_key, use_loam_again), 0);
  int areas = count_areas();
  uint32_t threads = lm_thread_count();
  run_threads(MANY_THREADS / 4, end_late);
  assert_true(late_ones >= MANY_THREADS / 4);
  assert_int_equal(lm_thread_count(), threads);
  /* The areas of the latest threads may still exist, because the kernel may not have ended these
   * threads yet. */
  for (int naps = 0; count_areas() - areas > 30 && be_patient(&naps);) run_threads(10, end_late);
  assert_true(count_areas() - areas <= 30);
  pthread_key_delete(last_key);
}

static void count_end(lm_thread *t) {
  assert_non_null(t);
  assert_true(t->dying);
  ends++;
}

static int order[4], ordered;
static lm_thread *_Atomic watched;
static void note_exit(lm_thread *t, int which) {
  if (t == watched) order[ordered++] = which;
}
static void first_exit(lm_thread *t) { note_exit(t, 1); }
static void second_exit(lm_thread *t) { note_exit(t, 2); }

static void *watch_me(void *unused) {
  (void)unused;
  watched = lm_thread_get();
  return NULL;
}

static void exit_hooks_run_once_last_registered_first(void **state) {
  (void)state;
  lm_thread_add_hooks(&(lm_thread_hooks){ .exit = first_exit });
  lm_thread_add_hooks(&(lm_thread_hooks){ .exit = second_exit });
  pthread_join(start_thread(watch_me, NULL), NULL);
  watched = NULL;
  assert_int_equal(ordered, 2);
  assert_int_equal(order[0], 2);
  assert_int_equal(order[1], 1);
}

/* ---- Grace */

enum { MAGIC = 0x600d, READERS = 3, ROUNDS = 100 };
typedef struct thing {
  int magic;
} thing;

static _Atomic(thing *) current;
static _Atomic bool stop;

static void *read_things(void *unused) {
  (void)unused;
  lm_thread *t = lm_thread_get();
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    lm_thread_enter(t);
    thing *seen = atomic_load_explicit(&current, memory_order_acquire);
    int magic = seen->magic;
    lm_thread_leave(t);
    if (magic != MAGIC) return WRONG;
  }
  return NULL;
}

static void publish_thing(thing *made) {
  made->magic = MAGIC;
  thing *old = atomic_exchange_explicit(&current, made, memory_order_acq_rel);
  if (!old) return;
  assert_true(lm_thread_grace());
  old->magic = 0xbad;
  free(old);
}

static void no_reader_sees_what_was_reclaimed(void **state) {
  (void)state;
  if (!lm_thread_grace()) skip(); /* a kernel without membarrier(2) */
  publish_thing(malloc(sizeof(thing)));
  pthread_t reader[READERS];
  for (int i = 0; i < READERS; i++) reader[i] = start_thread(read_things, NULL);
  for (int i = 0; i < ROUNDS; i++) publish_thing(malloc(sizeof(thing)));
  stop = true;
  for (int i = 0; i < READERS; i++) {
    void *result;
    pthread_join(reader[i], &result);
    assert_null(result);
  }
  free(current);
}

static _Atomic bool is_inside, may_leave, has_grace;

static void *stay_inside(void *unused) {
  (void)unused;
  lm_thread *t = lm_thread_get();
  lm_thread_enter(t);
  is_inside = true;
  while (!may_leave) sched_yield();
  lm_thread_leave(t);
  return NULL;
}

/* The thread has no area, and lm_thread_grace makes none for it. */
static void *ask_for_grace(void *unused) {
  (void)unused;
  bool done = lm_thread_grace();
  has_grace = true;
  return done && !lm_thread_self ? NULL : WRONG;
}

static void a_grace_waits_for_whoever_is_inside(void **state) {
  (void)state;
  is_inside = may_leave = has_grace = false;
  pthread_t inside = start_thread(stay_inside, NULL);
  while (!is_inside) sched_yield();
  pthread_t asking = start_thread(ask_for_grace, NULL);
  lm_sys_sleep(50000000);
  assert_false(has_grace);
  may_leave = true;
  void *result;
  pthread_join(asking, &result);
  assert_null(result);
  pthread_join(inside, NULL);
}

static void read_passed(lm_thread *t, void *number) {
  if (t == lm_thread_self) *(uint32_t *)number = t->passed_grace;
}
/* Returns the number of the last grace that need not wait for the calling thread. */
static uint32_t passed_grace(void) {
  uint32_t number = 0;
  lm_thread_each(read_passed, &number);
  return number;
}

/* A grace and a calm grace may last at one time. The grace must not note that threads have passed
 * the calm grace, which waits longer so that the stores of each thread become visible. */
static void a_grace_notes_nothing_for_a_calm_one_that_began_later(void **state) {
  (void)state;
  lm_thread_get();
  if (!lm_thread_grace()) skip(); /* a kernel without membarrier(2) */
  is_inside = may_leave = has_grace = false;
  pthread_t inside = start_thread(stay_inside, NULL);
  while (!is_inside) sched_yield();
  uint32_t before = passed_grace();
  pthread_t asking = start_thread(ask_for_grace, NULL);
  while (passed_grace() == before) sched_yield(); /* the grace waits for the other thread now */
  uint32_t passed = passed_grace();
  lm_thread_calm_begin();
  lm_sys_sleep(50000000); /* the grace looks at the threads many times */
  assert_int_equal(passed_grace(), passed);
  may_leave = true;
  pthread_join(inside, NULL);
  pthread_join(asking, NULL);
  while (!lm_thread_calm_is_over()) sched_yield();
}

/* ---- Reach */

static _Atomic unsigned reached;
static _Atomic unsigned raised; /* odd while the threads have a reason for the slow path */

static void *reach_on(void *unused) {
  (void)unused;
  lm_thread *t = lm_thread_get();
  bool wrong = false;
  for (is_inside = true; !may_leave; reached++) {
    unsigned before = raised;
    lm_thread_set_reach(t, SOMEWHERE);
    uintptr_t reach = t->reach;
    if (before % 2 && before == raised && reach != LM_REACH_NONE) wrong = true;
  }
  lm_thread_set_reach(t, SOMEWHERE); /* no thread has a reason for the slow path any more */
  return !wrong && t->reach == SOMEWHERE ? NULL : WRONG;
}

/* The thread has no area at first. Then it gets an area, and has not seen the range yet. */
static void *begin_without_reach(void *unused) {
  (void)unused;
  if (lm_thread_self || lm_thread_self_or_empty->reach != LM_REACH_NONE) return WRONG;
  return lm_thread_get()->reach == LM_REACH_NONE ? NULL : WRONG;
}

static void a_new_thread_reaches_nothing(void **state) {
  (void)state;
  void *result;
  pthread_join(start_thread(begin_without_reach, NULL), &result);
  assert_null(result);
}

static void a_thread_on_the_slow_path_reaches_nothing(void **state) {
  (void)state;
  lm_thread *t = lm_thread_get();
  lm_thread_set_reach(t, SOMEWHERE);
  assert_int_equal(t->reach, SOMEWHERE);
  lm_thread_set_slow(t, LM_SLOW_HOOKED);
  assert_int_equal(t->reach, LM_REACH_NONE);
  lm_thread_set_reach(t, SOMEWHERE);
  assert_int_equal(t->reach, LM_REACH_NONE);
  lm_thread_clear_slow(t, LM_SLOW_HOOKED);
  lm_thread_set_reach(t, SOMEWHERE);
  assert_int_equal(t->reach, SOMEWHERE);
  lm_thread_set_reach(t, LM_REACH_NONE);
}

/* Another thread sets a reason for the slow path while this thread sets its `reach`. */
static void a_reason_that_arrives_amid_set_reach_wins(void **state) {
  (void)state;
  is_inside = may_leave = false;
  pthread_t other = start_thread(reach_on, NULL);
  while (!is_inside) sched_yield();
  for (int i = 0; i < 300; i++) {
    lm_thread_set_slow_all(LM_SLOW_HOOKED);
    raised++;
    for (unsigned before = reached; reached - before < 2;) sched_yield();
    raised++;
    lm_thread_clear_slow_all(LM_SLOW_HOOKED);
  }
  may_leave = true;
  void *result;
  pthread_join(other, &result);
  assert_null(result);
}

static void *born_and_dying(void *unused) {
  (void)unused;
  while (!stop) run_threads(10, get_area);
  return NULL;
}

static void *graces(void *unused) {
  (void)unused;
  for (int i = 0; i < 200; i++)
    if (!lm_thread_grace()) return WRONG;
  return NULL;
}

static void graces_of_several_threads_end_while_threads_come_and_go(void **state) {
  (void)state;
  stop = false;
  pthread_t life = start_thread(born_and_dying, NULL);
  pthread_t one = start_thread(graces, NULL), two = start_thread(graces, NULL);
  void *result;
  pthread_join(one, &result);
  assert_null(result);
  pthread_join(two, &result);
  assert_null(result);
  stop = true;
  pthread_join(life, NULL);
}

static void a_refused_barrier_is_no_grace(void **state) {
  (void)state;
  lm_sys_refuse(1);
  assert_false(lm_thread_grace());
  lm_sys_refuse(0);
  assert_true(lm_thread_grace());
}

/* ---- Laws */

static void reasons_close_the_fast_path_and_open_it_again(void **state) {
  (void)state;
  lm_thread *t = lm_thread_get();
  assert_true(lm_thread_is_valid(t) && t->epoch & LM_EPOCH_FAST);
  lm_thread_set_slow(t, LM_SLOW_HOOKED | LM_SLOW_LISTING);
  assert_true(lm_thread_is_valid(t) && !(t->epoch & LM_EPOCH_FAST));
  lm_thread_clear_slow(t, LM_SLOW_HOOKED);
  assert_true(lm_thread_is_valid(t) && !(t->epoch & LM_EPOCH_FAST));
  lm_thread_clear_slow(t, LM_SLOW_LISTING);
  assert_true(lm_thread_is_valid(t) && t->epoch & LM_EPOCH_FAST);
}

/* A thread handles its own reasons while another thread removes a reason of all threads. */
static void set_reasons(void) { lm_thread_set_slow_all(LM_SLOW_HOOKED | LM_SLOW_STALE); }
static void handle_own(void) { lm_thread_handle_slow(lm_thread_self); }
static void end_reason_of_all(void) { lm_thread_clear_slow_all(LM_SLOW_HOOKED); }

static bool has_opened(void) {
  bool is_open = !lm_thread_self->slow_reasons && lm_thread_is_valid(lm_thread_self);
  set_reasons(); /* for the next round */
  return is_open;
}

static void the_fast_path_opens_when_reasons_end_at_one_time(void **state) {
  (void)state;
  lm_thread_get();
  set_reasons();
  assert_int_equal(duel_count_wrong(100000, handle_own, end_reason_of_all, has_opened), 0);
  end_reason_of_all();
  handle_own();
}

static void old_decisions_never_match_a_later_epoch(void **state) {
  (void)state;
  lm_thread *t = lm_thread_get();
  uint64_t epochs = LM_SCOPED / LM_EPOCH_FIRST;
  t->used_decisions |= 1; /* the cache does this before it fills an entry of the first part */
  for (uint64_t i = 0; i < 2 * epochs; i++) {
    t->decision[3].key = t->epoch + 7;
    lm_thread_set_slow(t, LM_SLOW_STALE);
    lm_thread_handle_slow(t);
    assert_true(lm_thread_is_valid(t));
    assert_int_not_equal(t->decision[3].key, t->epoch + 7);
  }
  t->decision[3].key = 0;
}

static void an_area_that_breaks_a_law_is_not_valid(void **state) {
  (void)state;
  lm_thread *t = calloc(1, sizeof *t);
  assert_false(lm_thread_is_valid(t)); /* it has no thread id and no epoch */
  t->tid = 1;
  t->epoch = LM_EPOCH_FIRST | LM_EPOCH_FAST;
  assert_true(lm_thread_is_valid(t));
  t->slow_reasons = LM_SLOW_STALE; /* the epoch still has LM_EPOCH_FAST */
  assert_false(lm_thread_is_valid(t));
  t->epoch = LM_EPOCH_FIRST;
  assert_false(lm_thread_is_valid(t)); /* the reach must be LM_REACH_NONE too */
  t->reach = LM_REACH_NONE;
  assert_true(lm_thread_is_valid(t));
  t->scoped = LM_SCOPED; /* LM_SCOPED without a scope */
  assert_false(lm_thread_is_valid(t));
  free(t);
}

static void *check_list(void *unused) {
  (void)unused;
  lm_thread_get();
  return lm_thread_list_is_valid() && lm_thread_is_valid(lm_thread_self) ? NULL : WRONG;
}

static void the_list_of_areas_is_whole_while_threads_come_and_go(void **state) {
  (void)state;
  stop = false;
  pthread_t life = start_thread(born_and_dying, NULL);
  for (int i = 0; i < 200; i++) {
    void *result;
    pthread_join(start_thread(check_list, NULL), &result);
    assert_null(result);
  }
  stop = true;
  pthread_join(life, NULL);
  assert_true(lm_thread_list_is_valid());
}

/* ---- Fork */

static _Atomic int in_child, busy;
static lm_lock hook_lock = { 0 }, leaf = { 0 };
static bool was_held;

/* The child must not inherit a lock that another thread of the parent holds. */
static void child(void) {
  in_child++;
  was_held = lm_lock_is_held(&hook_lock) || lm_lock_is_held(&leaf);
  lm_lock_renew(&hook_lock);
}

static void *be_busy(void *unused) {
  (void)unused;
  lm_thread *t = lm_thread_get();
  busy++;
  while (!stop) {
    lm_lock_take(&hook_lock);
    lm_lock_take(&leaf);
    lm_thread_enter(t);
    lm_lock_drop(&leaf);
    lm_lock_drop(&hook_lock);
    lm_thread_leave(t);
    pthread_join(start_thread(get_area, NULL), NULL);
  }
  return NULL;
}

enum {
  CHILD_FINE,
  CHILD_NO_HOOK,
  CHILD_THREADS,
  CHILD_FAREWELLS,
  CHILD_GRACE,
  CHILD_AREA,
  CHILD_LOCK
};

static int look_around(void *ends_before) {
  if (in_child != 1) return CHILD_NO_HOOK;
  if (was_held) return CHILD_LOCK;
  if (lm_thread_count() != 1) return CHILD_THREADS;
  if (ends < *(int *)ends_before + 2) return CHILD_FAREWELLS;
  lm_lock_take(&hook_lock);
  lm_lock_take(&leaf);
  if (!lm_thread_grace()) return CHILD_GRACE;
  return lm_thread_get()->active ? CHILD_AREA : CHILD_FINE;
}

static void a_child_of_a_busy_process_is_whole(void **state) {
  (void)state;
  lm_thread_get();
  lm_thread_add_hooks(&(lm_thread_hooks){ .exit = count_end, .fork_child = child });
  lm_thread_add_fork_lock(&leaf);
  lm_thread_add_fork_lock(&leaf);
  stop = false;
  pthread_t one = start_thread(be_busy, NULL), two = start_thread(be_busy, NULL);
  while (busy < 2) sched_yield();
  for (int i = 0; i < 100; i++) {
    int seen = ends;
    assert_int_equal(run_in_child(look_around, &seen), CHILD_FINE);
  }
  stop = true;
  pthread_join(one, NULL);
  pthread_join(two, NULL);
}

static void a_grace_does_not_wait_for_a_thread_that_is_lost(void **state) {
  (void)state;
  is_inside = may_leave = false;
  pthread_t inside = start_thread(stay_inside, NULL);
  while (!is_inside) sched_yield();
  pid_t pid = _Fork(); /* _Fork runs no fork handlers, so the child still lists the other thread */
  if (pid == 0) {
    alarm(PATIENCE_S);
    _exit(lm_thread_grace() ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  may_leave = true;
  pthread_join(inside, NULL);
}

/* The marks of threads decide whether a fork may begin, so a thread that lives counts. */
static void *look_for_a_section(void *found) {
  lm_thread_get();
  *(bool *)found = lm_thread_are_others_guarded(true, false);
  return NULL;
}

static void threads_of_a_bare_child_know_that_its_first_thread_lives(void **state) {
  (void)state;
  lm_thread_get();
  pid_t pid = _Fork();
  if (pid == 0) {
    bool found = false;
    alarm(PATIENCE_S);
    lm_lock_hold_cancel();
    pthread_join(start_thread(look_for_a_section, &found), NULL);
    _exit(found ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int fork_again(void *depth) {
  intptr_t left = (intptr_t)depth;
  if (lm_thread_count() != 1) return 100;
  return left ? run_in_child(fork_again, (void *)(left - 1)) : 42;
}

static void children_have_children(void **state) {
  (void)state;
  lm_thread_get();
  assert_int_equal(run_in_child(fork_again, (void *)5), 42);
}

/* The area of the calling thread is in the list, so a wrong field of the area makes the list
 * wrong. */
static void a_list_with_a_wrong_area_is_not_valid(void **state) {
  (void)state;
  lm_thread *t = lm_thread_get(), *previous = t->previous;
  int tid = t->tid;
  t->previous = t;
  assert_false(lm_thread_list_is_valid());
  t->previous = previous;
  t->tid = 0;
  assert_false(lm_thread_list_is_valid());
  t->tid = tid;
  assert_true(lm_thread_list_is_valid());
}

/* There is no memory for the area when work of loam begins. There is memory before the work
 * ends. */
static void *work_inside(void *passes_area) {
  lm_sys_refuse_from(1);
  lm_thread *self = lm_thread_inside_begin();
  assert_null(lm_thread_inside_begin());
  lm_thread_inside_end(NULL);
  lm_sys_refuse_from(0);
  assert_null(self);
  lm_thread *made = lm_thread_get();
  assert_non_null(made);
  assert_int_equal(made->inside, 1);
  lm_thread_inside_end(passes_area ? lm_thread_self : self);
  assert_int_equal(made->inside, 0);
  return NULL;
}

static void an_area_that_is_made_inside_loam_is_inside(void **state) {
  (void)state;
  static bool passes = true;
  lm_thread_trim_vacant();
  assert_int_equal(pthread_join(start_thread(work_inside, NULL), NULL), 0);
  lm_thread_trim_vacant();
  assert_int_equal(pthread_join(start_thread(work_inside, &passes), NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_thread_keeps_one_zeroed_area),
    cmocka_unit_test(an_area_goes_with_its_thread),
    cmocka_unit_test(thousands_of_threads_leave_nothing),
    cmocka_unit_test(a_thread_gets_the_area_of_an_ended_one_and_nothing_that_it_left),
    cmocka_unit_test(a_process_keeps_few_vacant_areas_and_only_those_that_are_needed),
    cmocka_unit_test(most_of_an_area_counts_against_no_limit_on_memory),
    cmocka_unit_test(an_area_becomes_writable_as_far_as_it_is_used),
    cmocka_unit_test(an_area_that_is_large_or_was_amid_an_operation_is_unmapped),
    cmocka_unit_test(a_thread_without_an_area_finds_nothing_in_the_empty_one),
    cmocka_unit_test(want_of_memory_is_no_area),
    cmocka_unit_test(a_refused_mapping_is_made_from_another_area),
    cmocka_unit_test(late_areas_are_taken_back),
    cmocka_unit_test(exit_hooks_run_once_last_registered_first),
    cmocka_unit_test(no_reader_sees_what_was_reclaimed),
    cmocka_unit_test(a_grace_waits_for_whoever_is_inside),
    cmocka_unit_test(a_grace_notes_nothing_for_a_calm_one_that_began_later),
    cmocka_unit_test(a_new_thread_reaches_nothing),
    cmocka_unit_test(a_thread_on_the_slow_path_reaches_nothing),
    cmocka_unit_test(a_reason_that_arrives_amid_set_reach_wins),
    cmocka_unit_test(graces_of_several_threads_end_while_threads_come_and_go),
    cmocka_unit_test(a_refused_barrier_is_no_grace),
    cmocka_unit_test(reasons_close_the_fast_path_and_open_it_again),
    cmocka_unit_test(the_fast_path_opens_when_reasons_end_at_one_time),
    cmocka_unit_test(old_decisions_never_match_a_later_epoch),
    cmocka_unit_test(an_area_that_breaks_a_law_is_not_valid),
    cmocka_unit_test(the_list_of_areas_is_whole_while_threads_come_and_go),
    cmocka_unit_test(a_child_of_a_busy_process_is_whole),
    cmocka_unit_test(a_grace_does_not_wait_for_a_thread_that_is_lost),
    cmocka_unit_test(threads_of_a_bare_child_know_that_its_first_thread_lives),
    cmocka_unit_test(children_have_children),
    cmocka_unit_test(a_list_with_a_wrong_area_is_not_valid),
    cmocka_unit_test(an_area_that_is_made_inside_loam_is_inside),
  };
  return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
