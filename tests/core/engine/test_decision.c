/* test_decision.c - the laws of an entry of the decision cache and of the record of a block. They
 * hold for all that the engine makes, and the checks detect each wrong field. */
#include "engine_fixture.h"

/* Returns the place in this thread's decision cache of the entry for requests of `size` bytes at a
 * site. */
static lm_decision *entry_of(const loam_site *of, size_t size) {
  lm_thread *t = lm_thread_get();
  return lm_decision_at(t, lm_decision_key_of(of, size));
}

static void every_entry_is_valid_as_requests_fill_the_cache(void **state) {
  (void)state;
  lm_thread *t = lm_thread_get();
  for (int round = 0; round < 3; round++) {
    CHAIN(host(round % 2 ? "odd" : "even"));
    for (size_t size = 1; size < 1 << 20; size = size * 3 / 2 + 1)
      for (size_t align = 16; align <= 1024; align *= 4) put(alloc(site, size, align, false));
    for (int i = 0; i < LM_DECISIONS; i++) assert_true(lm_decision_is_valid(t, &t->decision[i]));
  }
}

static void a_request_with_a_usual_alignment_is_served_by_the_entry_of_malloc(void **state) {
  (void)state;
  CHAIN(host("plain"));
  loam_free(loam_malloc(site, 100));
  const lm_decision *d = entry_of(site, 100);
  uint32_t before = lm_thread_served(d);
  for (size_t align = 1; align <= 16; align *= 2) {
    loam_free(loam_aligned_alloc(site, align, 100));
    assert_int_equal(lm_thread_served(d), ++before);
  }
}

static void an_entry_by_code_is_valid(void **state) {
  (void)state;
  lm_thread *t = lm_thread_get();
  CHAIN(host("plain"));
  lm_request r = { .site = site, .size = 100, .align = 16, .by_code = true, .code = 0x401234 };
  put(lm_decision_make(t, &r));
  lm_decision *d = lm_decision_at(t, lm_decision_key_of_request(t, &r));
  assert_true(d->key && !(d->key & LM_SITE_KEY_BIT) && lm_decision_is_valid(t, d));
  d->key += 4; /* the entry for the next instruction belongs at another place */
  assert_false(lm_decision_is_valid(t, d));
  d->key -= 4;
}

static void an_entry_with_a_wrong_field_is_not_valid(void **state) {
  (void)state;
  lm_thread *t = lm_thread_get();
  CHAIN(host("plain"));
  put(get(100));
  lm_decision *d = entry_of(site, 100), good = *d;
  assert_true(d->key && lm_decision_is_valid(t, d));
#define BREAK(field, value)                 \
  d->field = (value);                       \
  assert_false(lm_decision_is_valid(t, d)); \
  d->field = good.field
  BREAK(key, good.key | LM_SCOPED);
  BREAK(key, good.key & ~LM_EPOCH_FAST);
  BREAK(key, good.key + LM_DECISION_STEP);
  BREAK(token, good.token | LM_TOKEN_COUNTED);
  BREAK(token, good.token + 1);
  BREAK(site, 0);
  BREAK(state, LM_STATE_COUNTED);
  BREAK(state, LM_STATE_LIVE);
  BREAK(bin, 0);
  BREAK(bin, lm_tcache_bin_offset(LM_POOL_PLACES - 1, 0)); /* a bin that no entry names */
#undef BREAK
  assert_true(lm_decision_is_valid(t, d));
  d->key = 0;
  assert_true(lm_decision_is_valid(t, d));
}

/* Two sizes of one class. The policies below send them to two strategies. */
enum { BELOW = 200, ABOVE = 203 };

static void *serve_by_plan(loam_site *of, size_t size) {
  return lm_decision_serve_by_plan(lm_thread_get(),
                                   &(lm_request){ .site = of, .size = size, .align = 16 });
}

/* The entries of the two strategies have one key. The ids are chosen so that they have one place
 * too. */
static void an_entry_by_plan_serves_one_strategy(void **state) {
  (void)state;
  char name[32];
  lm_strategy *one = host("one"), *other = NULL;
  for (int i = 0; !other || (other->id - one->id) % LM_DECISIONS; i++) {
    snprintf(name, sizeof name, "strategy.%d", i);
    other = host(name);
  }
  set_split_plan(LM_IN_SIZE, BELOW + 1, one, other);
  for (int i = 0; i < 10; i++) {
    void *p = loam_malloc(site, BELOW), *q = loam_malloc(site, ABOVE);
    assert_string_equal(owner(p).strategy, "one");
    assert_string_equal(owner(q).strategy, name);
    loam_free(p);
    loam_free(q);
  }
}

static void an_entry_by_plan_is_at_the_place_of_its_strategy(void **state) {
  (void)state;
  lm_thread *t = lm_thread_get();
  set_split_plan(LM_IN_SIZE, BELOW + 1, host("one"), host("two"));
  loam_free(loam_malloc(site, BELOW));
  int found = 0;
  for (int i = 0; i < LM_DECISIONS; i++) {
    lm_decision *d = &t->decision[i];
    assert_true(lm_decision_is_valid(t, d));
    if (d->site != site->index || !(d->key & LM_DECISION_BY_PLAN)) continue;
    found++;
    d->strategy++;
    assert_false(lm_decision_is_valid(t, d));
    d->strategy--;
  }
  assert_in_range(found, 1, LM_DECISIONS);
}

/* A tag begins to be counted. Its sites are marked before the threads forget their decisions. In
 * between, an entry with the old token must not serve. */
static void an_entry_by_plan_serves_no_token_but_its_own(void **state) {
  (void)state;
  loam_site *counted = tag("counted.later");
  set_split_plan(LM_IN_SIZE, BELOW + 1, host("one"), host("two"));
  loam_free(loam_malloc(counted, BELOW));
  void *p = serve_by_plan(counted, BELOW);
  assert_non_null(p);
  loam_free(p);
  lm_live_mark(counted);
  assert_null(serve_by_plan(counted, BELOW));
  lm_live_begin();
}

static void a_record_is_valid_as_it_is_found(void **state) {
  (void)state;
  lm_record b;
  CHAIN(host("plain"));
  char *first = get(1000), *p = get(1000), *q = get(1 << 20); /* p is not at the start of a slot */
  assert_true(lm_record_find(p + 1, &b) && lm_record_is_valid(&b));
  lm_record bad = b;
  bad.size = 0; /* only a guarded block at the start of a slot may be empty */
  assert_false(lm_record_is_valid(&bad));
  bad = b;
  bad.token = LM_TOKEN_NONE;
  assert_false(lm_record_is_valid(&bad));
  bad = b;
  bad.strategy = LM_STRATEGIES_MAX;
  assert_false(lm_record_is_valid(&bad));
  bad = b;
  bad.base = (char *)&bad; /* an address outside the memory of all pools */
  assert_false(lm_record_is_valid(&bad));
  /* The system's malloc may return any address, but no block of 0 bytes. */
  bad.maker = LM_PROVIDER_SYSTEM;
  assert_true(lm_record_is_valid(&bad));
  bad.size = 0;
  assert_false(lm_record_is_valid(&bad));
  assert_true(lm_record_find(q, &b) && lm_record_is_valid(&b));
  put(first);
  put(p);
  put(q);
}

static void the_record_of_a_handlers_block_is_valid(void **state) {
  (void)state;
  lm_record b;
  CHAIN(intern((lm_desc){ .kind = LM_KIND_SYSTEM }, "system"));
  char *p = get(1000);
  assert_true(lm_record_find(p, &b) && b.maker == LM_PROVIDER_SYSTEM && lm_record_is_valid(&b));
  b.maker = LM_PROVIDER_HEAP; /* and a block of a pool must be in the range of the pools */
  assert_false(lm_record_is_valid(&b));
  put(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_entry_is_valid_as_requests_fill_the_cache),
    cmocka_unit_test(a_request_with_a_usual_alignment_is_served_by_the_entry_of_malloc),
    cmocka_unit_test(an_entry_by_code_is_valid),
    cmocka_unit_test(an_entry_with_a_wrong_field_is_not_valid),
    cmocka_unit_test(an_entry_by_plan_serves_one_strategy),
    cmocka_unit_test(an_entry_by_plan_is_at_the_place_of_its_strategy),
    cmocka_unit_test(an_entry_by_plan_serves_no_token_but_its_own),
    cmocka_unit_test(a_record_is_valid_as_it_is_found),
    cmocka_unit_test(the_record_of_a_handlers_block_is_valid),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}
