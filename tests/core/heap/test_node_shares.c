/* test_node_shares.c - the shares of local memory by NUMA node (strategy.h), on a made-up machine
 * of two nodes. tests/vm tests real nodes. */
#include "engine_fixture.h"
#include "folder.h"
#include "heap/retire.h"

static int make_machine(void **state) {
  if (!mkdtemp(folder)) return 1;
  write_two_nodes();
  lm_numa_pretend(folder, UINT64_MAX);
  return set_up(state);
}

static lm_strategy *local(const char *name, size_t limit) {
  lm_desc desc = { .limit = limit };
  desc.placement.mode = LM_BIND_LOCAL;
  return intern(desc, name);
}

static void a_share_is_served_and_the_whole_is_reported(void **state) {
  (void)state;
  lm_strategy *whole = local("share.told", 0);
  assert_non_null(whole->shares);
  CHAIN(whole);
  for (size_t size = 10; size < 3000000; size *= 5) {
    char *p = get(size);
    lm_object object;
    assert_non_null(p);
    assert_true(lm_pool_find(p, &object));
    assert_int_not_equal(object.strategy, whole->id);
    assert_int_equal(lm_strategy_whole(object.strategy), whole->id);
    assert_string_equal(owner(p).strategy, "share.told");
    fill(p, size);
    p = engine_realloc(NULL, p, size * 3);
    expect_contents(p, size, size);
    put(p);
  }
  assert_ptr_equal(local("share.told", 0), whole); /* an equal description is one strategy */
}

static void every_share_counts_against_the_limit(void **state) {
  (void)state;
  lm_strategy *whole = local("share.limited", 2 << 20);
  CHAIN(whole);
  char *p = get(1 << 20);
  assert_int_equal(used(whole), 1 << 20);
  assert_null(get(2 << 20));
  for (int i = 0; i < 1000; i++) put(get(1000));
  char *q = get((1 << 20) - 8192);
  assert_non_null(q);
  put(p);
  put(q);
  assert_int_equal(used(whole), 0);
}

static void a_share_ends_with_its_whole(void **state) {
  (void)state;
  lm_strategy *whole = local("share.ended", 0);
  CHAIN(whole);
  char *p = get(100);
  lm_strategy *share = lm_strategy_here(whole);
  assert_true(share != whole && share->pool);
  put(p);
  uint8_t stays[LM_STRATEGIES_MAX] = { 0 };
  stays[whole->id] = 1;
  lm_retire_unused(stays, lm_strategy_count());
  assert_non_null(share->pool); /* the policy names `whole`, so its share keeps its pool */
  CHAIN(host("share.other"));
  stays[whole->id] = 0;
  lm_retire_unused(stays, lm_strategy_count());
  assert_null(share->pool);
  CHAIN(whole);
  p = get(100);
  assert_ptr_equal(lm_strategy_here(whole), share);
  assert_non_null(share->pool);
  put(p);
}

static void threads_share_by_node(void **state) {
  (void)state;
  CHAIN(local("share.threads", 0));
  for (int i = 0; i < TAGS; i++) racing[i] = tag("share.racing");
  pthread_t thread[THREADS];
  stop = false;
  for (uintptr_t i = 0; i < THREADS; i++) thread[i] = start_thread(churn, (void *)i);
  for (int i = 0; i < 40 / SCALE + 1; i++) {
    CHAIN(local(i & 1 ? "share.threads" : "share.others", 0));
    lm_sys_sleep(2000000);
  }
  stop = true;
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  assert_true(lm_pool_is_valid());
}

static void attempt(bool refused) {
  static int n;
  char name[32];
  snprintf(name, sizeof name, "share.refused.%d", n++);
  lm_desc desc = { .placement = { .mode = LM_BIND_LOCAL } };
  strcpy(desc.name, name);
  lm_strategy *s;
  if (lm_strategy_intern(&desc, &s) != LOAM_OK) {
    assert_true(refused);
    return;
  }
  CHAIN(s);
  char *p = get(100);
  assert_true(p || refused);
  put(p);
}

static void any_call_may_be_refused(void **state) {
  (void)state;
  (void)refuse_each(attempt);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_share_is_served_and_the_whole_is_reported),
    cmocka_unit_test(every_share_counts_against_the_limit),
    cmocka_unit_test(a_share_ends_with_its_whole),
    cmocka_unit_test(threads_share_by_node),
    cmocka_unit_test(any_call_may_be_refused),
  };
  return cmocka_run_group_tests_name("share", tests, make_machine, remove_folder);
}
