/* test_live_bytes.c - the live bytes that a plan reads for a tag are exact, no matter when loam
 * begins to count them. */
#include "engine/live_bytes.h"
#include "engine_fixture.h"
#include "heap/walk.h"

static int64_t live_of(const loam_site *s) { return lm_live_of(lm_thread_get(), s); }

/* ---- live ---- */

static void live_is_the_bytes_of_the_tag(void **state) {
  (void)state;
  loam_site *s = tag("live.one");
  lm_strategy *in_limit = limited_strategy("live.limited", 64 << 20);
  CHAIN(host("plain"));
  char *before = alloc(s, 1000, 16, false);
  CHAIN(in_limit);
  char *held = alloc(s, 1000, 16, false);
  CHAIN(counting_strategy());
  char *provided = alloc(s, 1000, 16, false);
  set_split_plan(LM_IN_LIVE, 1e9, host("plain"), host("other"));
  int64_t want = (int64_t)(lm_record_usable(before) + lm_record_usable(held) + 1000);
  assert_int_equal(live_of(s), want);
  char *more = alloc(s, 70000, 16, false);
  assert_int_equal(live_of(s), want + (int64_t)lm_record_usable(more));
  put(before);
  put(held);
  put(provided);
  more = engine_realloc(NULL, more, 200000);
  assert_int_equal(live_of(s), lm_record_usable(more));
  more = engine_realloc(site, more, 200001); /* the tag of `site` is counted too */
  assert_int_equal(live_of(s), 0);
  put(more);
}

static void live_decides(void **state) {
  (void)state;
  loam_site *s = tag("live.decides");
  set_split_plan(LM_IN_LIVE, 1000, host("below"), host("above"));
  char *a = alloc(s, 512, 16, false), *b = alloc(s, 512, 16, false);
  char *c = alloc(s, 16, 16, false);
  assert_string_equal(owner(b).strategy, "below");
  assert_string_equal(owner(c).strategy, "above");
  put(a);
  char *d = alloc(s, 16, 16, false);
  assert_string_equal(owner(d).strategy, "below");
  put(b);
  put(c);
  put(d);
}

static int64_t walked[TAGS];
static void add_walked(void *ctx, const lm_object *object) {
  (void)ctx;
  for (int i = 0; i < TAGS; i++)
    if (lm_site_token_index(object->token) == racing[i]->index) walked[i] += (int64_t)object->size;
}

static void counting_begins_exactly_while_threads_allocate(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  char text[32];
  CHAIN(host("plain"), host("spare"));
  for (int i = 0; i < TAGS; i++) {
    snprintf(text, sizeof text, "racing.%d", i);
    racing[i] = tag(text);
  }
  CHAIN(host("plain"), host("spare"));
  for (uintptr_t i = 0; i < THREADS; i++) thread[i] = start_thread(churn, (void *)i);
  char *held[TAGS];
  for (int i = 0; i < TAGS; i++) {
    usleep(3000);
    held[i] = alloc(racing[i], 100, 16, false);
    begin_counting(racing[i]);
  }
  stop = true;
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  lm_walk_each(add_walked, NULL);
  for (int i = 0; i < TAGS; i++) {
    assert_int_equal(live_of(racing[i]), walked[i]);
    assert_int_equal(walked[i], 112);
    put(held[i]);
    assert_int_equal(live_of(racing[i]), 0);
  }
  assert_int_equal(lm_thread_get()->slow_reasons & LM_SLOW_COUNTING, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(live_is_the_bytes_of_the_tag),
    cmocka_unit_test(live_decides),
    cmocka_unit_test(counting_begins_exactly_while_threads_allocate),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}
