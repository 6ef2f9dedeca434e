/* test_quota.c - quotas that processes share: heap/quota.h. The other processes are children of
 * this one, or holders that the test writes into the table. */
#include "heap/quota.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "heap/strategy.h"
#include "os/thread.h"
#include "test.h"

enum { LIMIT = 1000, CHILDREN = 4, PID_NAMESPACE = 77 };

static lm_quota_table *table;

static uint64_t word_of(int pid) {
  static uint64_t ms = 1000;
  return ms++ << LM_QUOTA_MS_SHIFT | (uint64_t)pid;
}

static lm_quota_self self_now(void) {
  return (lm_quota_self){ .owner = word_of(getpid()), .pid_namespace = PID_NAMESPACE };
}

static int make_table(void **state) {
  (void)state;
  lm_quota_self self = self_now();
  table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (table == MAP_FAILED) return -1;
  lm_quota_attach(table, &self);
  return 0;
}

static int drop_table(void **state) {
  (void)state;
  lm_quota_detach();
  return munmap(table, sizeof *table);
}

static uint32_t find(const char *name) {
  lm_quota_id id = { .kind = 0 };
  snprintf(id.name, sizeof id.name, "%s", name);
  return lm_quota_find(&id);
}

/* Writes a holder into the table. */
static void add_holder(uint32_t place, uint64_t owner, uint64_t pid_namespace, uint32_t quota,
                       int64_t share) {
  table->holder[place].owner = owner;
  table->holder[place].pid_namespace = pid_namespace;
  table->drawn[place][quota - 1] = share;
  if (table->head.taken <= place) table->head.taken = place + 1;
}

/* Takes at most `want` single bytes. Returns how many it got. */
static int64_t take(uint32_t quota, uint32_t want) {
  uint64_t used;
  return lm_quota_take(quota, LIMIT, 1, want, &used);
}

/* Takes all bytes of the limit. It may need several tries, because a process looks for ended
 * processes only once in a tick of the clock. */
static void take_all(uint32_t quota) {
  int64_t deadline = lm_sys_clock_ns() + AN_HOUR / 60, got = 0;
  while (got < LIMIT && lm_sys_clock_ns() < deadline) got += take(quota, LIMIT);
  assert_int_equal(got, LIMIT);
  assert_int_equal(lm_quota_used(quota), LIMIT);
}

static void bytes_of_other_processes_count(void **state) {
  (void)state;
  uint64_t used;
  uint32_t quota = find("cache");
  add_holder(300, word_of(getppid()), PID_NAMESPACE, quota, 600);
  assert_int_equal(lm_quota_used(quota), 600);
  assert_int_equal(lm_quota_take(quota, LIMIT, 150, 5, &used), 2);
  assert_int_equal(used, 900);
  assert_int_equal(lm_quota_take(quota, LIMIT, 150, 5, &used), 0);
  assert_int_equal(take(quota, LIMIT), 100);
  assert_int_equal(lm_quota_take(quota, 2 * LIMIT, LIMIT, 1, &used), 1); /* another limit now */
  lm_quota_give(quota, LIMIT + 300);
  assert_int_equal(lm_quota_used(quota), 700);
  table->drawn[300][quota - 1] = 0;
  assert_int_equal(take(quota, LIMIT), 900);
}

/* Bytes that were taken although the limit has no room, as after a move of live memory. */
static void the_peak_counts_all_processes(void **state) {
  (void)state;
  lm_desc desc = { .align = 64, .name = "peak", .shared = "peak", .limit = LIMIT };
  lm_strategy *s = NULL;
  assert_int_equal(lm_strategy_intern(&desc, &s), LOAM_OK);
  assert_null(lm_strategy_bind_quotas());
  uint32_t quota = find("peak");
  add_holder(300, word_of(getppid()), PID_NAMESPACE, quota, 600);
  lm_strategy_limit_give(s, -150);
  assert_int_equal(lm_strategy_limit_used(s), 750);
  table->drawn[300][quota - 1] = 0;
  assert_int_equal(lm_strategy_limit_peak(s, 0), 750);
  lm_strategy_limit_give(s, 150);
}

static void names_and_memories_have_quotas_of_their_own(void **state) {
  (void)state;
  uint32_t quota = find("a");
  lm_quota_id other = { .name = "a", .device = 1 };
  assert_int_equal(find("a"), quota);
  assert_int_not_equal(find("b"), quota);
  assert_int_not_equal(lm_quota_find(&other), quota);
  assert_int_equal(take(quota, LIMIT), LIMIT);
  assert_int_equal(take(find("b"), LIMIT), LIMIT);
}

static void a_process_gives_back_no_more_than_it_has(void **state) {
  (void)state;
  uint32_t quota = find("a");
  assert_int_equal(take(quota, 10), 10);
  lm_quota_give(quota, 50);
  assert_int_equal(lm_quota_used(quota), 0);
  assert_int_equal(take(quota, 10), 10);
  lm_quota_give(quota, -5); /* takes 5 bytes, whatever is left */
  assert_int_equal(lm_quota_used(quota), 15);
}

/* ---- Processes that end */

/* Makes a child that takes bytes and then waits. The child calls the fork hook of quotas itself. */
static pid_t child_that_takes(uint32_t quota, uint32_t bytes) {
  int ready[2];
  char byte;
  assert_int_equal(pipe(ready), 0);
  pid_t pid = fork();
  if (!pid) {
    lm_quota_self self = self_now();
    lm_quota_fork_child(&self);
    byte = take(quota, bytes) == bytes;
    if (write(ready[1], &byte, 1) == 1) pause();
    _exit(0);
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  assert_int_equal(byte, 1);
  close(ready[0]);
  close(ready[1]);
  return pid;
}

static void end_child(pid_t pid) {
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void what_a_killed_process_had_comes_back(void **state) {
  (void)state;
  uint32_t quota = find("a");
  pid_t first = child_that_takes(quota, 600), second = child_that_takes(quota, 300);
  assert_int_equal(take(quota, LIMIT), 100);
  assert_int_equal(take(quota, LIMIT), 0);
  end_child(first);
  lm_quota_give(quota, 100);
  end_child(second);
  take_all(quota);
}

static void a_place_is_used_again(void **state) {
  (void)state;
  uint32_t quota = find("a");
  for (int i = 0; i < 5; i++) {
    end_child(child_that_takes(quota, LIMIT));
    take_all(quota);
    lm_quota_give(quota, LIMIT);
  }
  assert_true(table->head.taken <= 3);
}

static void a_process_of_another_namespace_is_not_judged(void **state) {
  (void)state;
  uint32_t quota = find("a");
  pid_t gone = child_that_takes(quota, 0);
  end_child(gone);
  add_holder(300, word_of(gone), PID_NAMESPACE + 1, quota, 600);
  for (int i = 0; i < 5; i++) {
    assert_true(take(quota, LIMIT) <= 400);
    lm_sys_sleep(5000000);
  }
  assert_int_equal(lm_quota_used(quota), LIMIT);
  lm_quota_bury(table, 300, table->holder[300].owner); /* a process that sees that namespace may */
  assert_int_equal(lm_quota_used(quota), 400);
}

static void exec_ends_the_earlier_program(void **state) {
  (void)state;
  uint32_t quota = find("a");
  lm_quota_self self = self_now();
  add_holder(300, word_of(getpid()), PID_NAMESPACE + 1, quota, 1);
  assert_int_equal(take(quota, 100), 100);
  atomic_store(&lm_quota_mapped, NULL); /* a new program does not know the place of the old one */
  lm_quota_attach(table, &self);
  assert_false(lm_quota_is_holder());
  assert_int_equal(lm_quota_used(quota), 1);
  assert_int_equal(find("a"), quota);
  assert_true(lm_quota_is_holder());
}

/* Two processes without /proc do not know their namespaces, and both may have the process id 1. So
 * a process does not judge whether another one has ended. */
static void a_process_of_an_unknown_namespace_is_not_judged(void **state) {
  (void)state;
  uint32_t quota = find("a");
  lm_quota_self self = self_now();
  self.pid_namespace = 0;
  add_holder(300, word_of(getpid()), 0, quota, 600);
  atomic_store(&lm_quota_mapped, NULL);
  lm_quota_attach(table, &self);
  assert_int_equal(lm_quota_used(quota), 600);
}

/* A process looks for ended processes once in a tick of the coarse clock, for each quota alone. */
static void a_look_for_one_quota_does_not_hinder_another(void **state) {
  (void)state;
  uint32_t first = find("a"), second = find("b");
  int64_t tick, deadline = lm_sys_clock_ns() + AN_HOUR / 60;
  bool is_same_tick = false;
  pid_t gone = child_that_takes(first, 0);
  end_child(gone);
  assert_int_equal(take(first, LIMIT), LIMIT);
  while (!is_same_tick && lm_sys_clock_ns() < deadline) {
    add_holder(300, word_of(gone), PID_NAMESPACE, second, LIMIT);
    for (tick = lm_sys_coarse_ns(); tick == lm_sys_coarse_ns();) continue; /* until the next tick */
    tick = lm_sys_coarse_ns();
    assert_int_equal(take(first, 1), 0);
    int64_t got = take(second, 1);
    is_same_tick = tick == lm_sys_coarse_ns();
    assert_true(got == 1 || !is_same_tick);
    lm_quota_give(second, got);
  }
  assert_true(is_same_tick);
}

/* ---- Fork */

static int inherits(uint32_t quota) {
  lm_quota_self self = self_now();
  lm_quota_fork_child(&self);
  bool starts_with_nothing = lm_quota_is_holder() && lm_quota_used(quota) == 700 &&
                             table->head.taken == 1; /* a child takes no place at first */
  lm_quota_give(quota, 500);                         /* inherited bytes count for the parent */
  bool gave_nothing = lm_quota_used(quota) == 700;
  return starts_with_nothing && gave_nothing && take(quota, LIMIT) == 300 ? 0 : 1;
}

static void a_forked_child_counts_what_it_takes_itself(void **state) {
  (void)state;
  int status;
  uint32_t quota = find("a");
  assert_int_equal(take(quota, 700), 700);
  pid_t pid = fork();
  if (!pid) _exit(inherits(quota));
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  lm_quota_give(quota, 700);
  take_all(quota);
}

static void a_child_without_fork_hooks_has_no_share(void **state) {
  (void)state;
  int status;
  uint32_t quota = find("a");
  assert_int_equal(take(quota, 700), 700);
  pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  if (!pid) {
    lm_quota_give(quota, 500);
    _exit(take(quota, 1) == LM_QUOTA_NO_HOLDER ? 0 : 1);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_int_equal(lm_quota_used(quota), 700);
}

static int ends_as_by_exit(void *nothing) {
  (void)nothing;
  lm_quota_end();
  return 0;
}

/* A child of clone(CLONE_VM) has the memory of its parent. If it calls exit, it runs the
 * destructors. */
static void a_child_with_the_memory_of_its_parent_does_not_end_its_place(void **state) {
  (void)state;
  static _Alignas(16) char stack[65536];
  uint32_t quota = find("a");
  assert_int_equal(take(quota, 700), 700);
  pid_t pid = clone(ends_as_by_exit, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  assert_true(lm_quota_is_holder());
  assert_int_equal(lm_quota_used(quota), 700);
}

/* ---- Full and broken tables */

static void a_table_full_of_processes_shares_nothing(void **state) {
  (void)state;
  for (uint32_t i = 0; i < LM_QUOTA_HOLDERS; i++)
    add_holder(i, word_of(getppid()), PID_NAMESPACE, 1, 0);
  assert_int_equal(find("a"), 0);
  assert_int_equal(take(1, 1), LM_QUOTA_NO_HOLDER);
  pid_t gone = fork();
  if (!gone) _exit(0);
  assert_int_equal(waitpid(gone, NULL, 0), gone);
  add_holder(40, word_of(gone), PID_NAMESPACE, 1, 0);
  assert_int_not_equal(find("a"), 0); /* in the place of the ended process */
  assert_int_equal(table->holder[40].owner & LM_QUOTA_PID, getpid());
}

static void a_table_full_of_quotas_has_no_other(void **state) {
  char name[16];
  (void)state;
  for (int i = 0; i < LM_QUOTAS; i++) {
    snprintf(name, sizeof name, "q%d", i);
    assert_int_not_equal(find(name), 0);
  }
  assert_int_equal(find("one more"), 0);
  assert_int_not_equal(find("q7"), 0);
}

static void a_broken_table_does_no_harm(void **state) {
  (void)state;
  uint32_t quota = find("a");
  lm_quota_table *copy = malloc(sizeof *copy);
  assert_non_null(copy);
  add_holder(300, word_of(getppid()), PID_NAMESPACE, quota, -5);
  assert_int_equal(take(quota, 10), 10);
  add_holder(301, word_of(getppid()), PID_NAMESPACE, quota, INT64_MAX);
  add_holder(302, word_of(getppid()), PID_NAMESPACE, quota, INT64_MAX);
  assert_int_equal(take(quota, 10), 0);
  assert_true(lm_quota_used(quota) >= LM_SIZE_MAX);
  memset(copy, 0xff, sizeof *copy);
  assert_int_equal(lm_quota_used_of(copy, quota), 0);
  assert_int_equal(lm_quota_used_of(copy, LM_QUOTAS + 1), 0);
  assert_false(lm_quota_is_sound(&copy->head));
  memset((void *)table, 0xff, sizeof *table);
  assert_int_equal(take(quota, 10), LM_QUOTA_NO_HOLDER);
  lm_quota_give(quota, 10);
  assert_int_equal(find("b"), 0);
  free(copy);
}

/* ---- Many processes */

/* The bytes that the children hold, as they count them themselves. */
typedef struct children {
  _Atomic int64_t has[CHILDREN];
  _Atomic bool is_out[CHILDREN]; /* this child is being killed, so its bytes do not count */
  _Atomic uint64_t exceeded, steps, takes;
  _Atomic bool ends;
} children;

/* Adds the bytes of all children. A child may give bytes back after this function has added them.
 * They count twice only if another child then takes them before its own bytes are added. `takes`
 * detects that. */
static void check_sum(children *all) {
  int64_t sum = 0;
  uint64_t takes = all->takes;
  for (int i = 0; i < CHILDREN; i++)
    if (!all->is_out[i]) sum += all->has[i];
  if (sum > LIMIT && takes == all->takes) all->exceeded++;
}

/* Takes and gives back bytes. A byte is counted after it was taken, and is no longer counted before
 * it is given back. */
static _Noreturn void take_and_give(children *all, int own, uint32_t quota) {
  unsigned seed = (unsigned)own;
  lm_quota_self self = self_now();
  lm_quota_fork_child(&self);
  while (!all->ends) {
    int64_t n = take(quota, (uint32_t)rand_r(&seed) % LIMIT);
    all->takes++;
    all->has[own] += n;
    check_sum(all);
    int64_t back = all->has[own] ? rand_r(&seed) % (all->has[own] + 1) : 0;
    all->has[own] -= back;
    lm_quota_give(quota, back);
    all->steps++;
  }
  all->has[own] = 0; /* others may take these bytes once the parent has waited for this child */
  _exit(0);
}

static void wait_for_steps(children *all, uint64_t n) {
  int64_t deadline = lm_sys_clock_ns() + AN_HOUR / 60;
  while (all->steps < n && lm_sys_clock_ns() < deadline) lm_sys_sleep(100000);
  assert_true(all->steps >= n);
}

static void the_limit_holds_among_processes_that_are_killed(void **state) {
  (void)state;
  pid_t pid[CHILDREN];
  uint32_t quota = find("a");
  children *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                       0);
  assert_ptr_not_equal(all, MAP_FAILED);
  for (int i = 0; i < CHILDREN; i++)
    if (!(pid[i] = fork())) take_and_give(all, i, quota);
  for (int round = 1; round <= 40; round++) {
    int i = round % CHILDREN;
    wait_for_steps(all, (uint64_t)round * 300);
    all->is_out[i] = true;
    end_child(pid[i]);
    all->has[i] = 0;
    /* The share of the ended child must end before a new child counts at its place here. */
    for (uint32_t m = 0; m < table->head.taken; m++)
      if ((table->holder[m].owner & LM_QUOTA_PID) == (uint64_t)pid[i])
        lm_quota_bury(table, m, table->holder[m].owner);
    all->is_out[i] = false;
    if (!(pid[i] = fork())) take_and_give(all, i, quota);
  }
  all->ends = true;
  for (int i = 0; i < CHILDREN; i++) assert_int_equal(waitpid(pid[i], NULL, 0), pid[i]);
  assert_int_equal(all->exceeded, 0);
  take_all(quota);
  munmap(all, sizeof *all);
}

int main(void) {
#define WITH_TABLE(f) cmocka_unit_test_setup_teardown(f, make_table, drop_table)
  const struct CMUnitTest tests[] = {
    WITH_TABLE(bytes_of_other_processes_count),
    WITH_TABLE(the_peak_counts_all_processes),
    WITH_TABLE(names_and_memories_have_quotas_of_their_own),
    WITH_TABLE(a_process_gives_back_no_more_than_it_has),
    WITH_TABLE(what_a_killed_process_had_comes_back),
    WITH_TABLE(a_place_is_used_again),
    WITH_TABLE(a_process_of_another_namespace_is_not_judged),
    WITH_TABLE(exec_ends_the_earlier_program),
    WITH_TABLE(a_process_of_an_unknown_namespace_is_not_judged),
    WITH_TABLE(a_look_for_one_quota_does_not_hinder_another),
    WITH_TABLE(a_forked_child_counts_what_it_takes_itself),
    WITH_TABLE(a_child_without_fork_hooks_has_no_share),
    WITH_TABLE(a_child_with_the_memory_of_its_parent_does_not_end_its_place),
    WITH_TABLE(a_table_full_of_processes_shares_nothing),
    WITH_TABLE(a_table_full_of_quotas_has_no_other),
    WITH_TABLE(a_broken_table_does_no_harm),
    WITH_TABLE(the_limit_holds_among_processes_that_are_killed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
