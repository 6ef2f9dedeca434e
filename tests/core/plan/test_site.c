/* test_site.c - sites are interned, found without a lock, and passed to a loader or to the hook.
 * Generation slots are used again when no live block has them. */
#include "plan/site.h"

#include <stdio.h>
#include <string.h>

#include "os/error.h"
#include "pages/provided.h"
#include "test.h"

static loam_site *tag(const char *text) {
  return lm_site_get(&(loam_where){ text, "", "", "", 0 });
}

static void the_same_tag_is_the_same_site(void **state) {
  (void)state;
  char copy[] = "tensor.weights";
  loam_site *s = tag("tensor.weights");
  assert_non_null(s);
  assert_ptr_equal(s, tag(copy));
  assert_ptr_not_equal(s, tag("tensor.weight"));
  assert_string_equal(s->where.tag, "tensor.weights");
  assert_ptr_equal(lm_site_at(s->index), s);
}

static void sites_that_differ_in_one_part_are_different(void **state) {
  (void)state;
  static const loam_where where[] = {
    { "t", "", "", "", 0 },  { "t", "f", "", "", 0 }, { "t", "", "f", "", 0 },
    { "t", "", "", "f", 0 }, { "t", "", "", "", 1 },  { "t", "f", "f", "f", 1 },
    { "", "t", "", "", 0 },
  };
  for (size_t i = 0; i < LM_COUNT(where); i++)
    for (size_t k = 0; k < LM_COUNT(where); k++) {
      loam_site *a = lm_site_get(&where[i]), *b = lm_site_get(&where[k]);
      assert_true((a == b) == (i == k));
      bool same_tag = !strcmp(where[i].tag, where[k].tag);
      assert_true((a->tag_index == b->tag_index) == same_tag && (a->live == b->live) == same_tag);
    }
}

static void the_empty_tag_is_the_default_site(void **state) {
  (void)state;
  assert_ptr_equal(tag(""), &lm_site_empty);
  assert_ptr_equal(lm_site_at(2), &lm_site_empty);
  assert_null(lm_site_at(0));
  assert_null(lm_site_at(1));
  assert_null(lm_site_at(lm_site_count() + 2));
}

static void takes_tags_of_255_bytes_and_no_longer(void **state) {
  (void)state;
  static char text[10001];
  memset(text, 'x', sizeof text - 1);
  assert_null(tag(text));
  assert_non_null(strstr(loam_error(), "255"));
  text[256] = 0;
  assert_null(tag(text));
  text[255] = 0;
  assert_ptr_equal(tag(text), tag(text));
  assert_non_null(tag(text));
}

static void takes_any_bytes(void **state) {
  (void)state;
  char text[2] = { 0 };
  loam_site *seen[256] = { 0 };
  for (int c = 1; c < 256; c++) {
    text[0] = (char)c;
    seen[c] = tag(text);
    assert_non_null(seen[c]);
    assert_string_equal(seen[c]->where.tag, text);
    for (int k = 1; k < c; k++) assert_ptr_not_equal(seen[k], seen[c]);
  }
}

static void holds_100000_tags(void **state) {
  (void)state;
  char text[32];
  uint32_t tags = lm_site_tag_count();
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < 100000; i++) {
      snprintf(text, sizeof text, "many.%d", i);
      loam_site *s = tag(text);
      assert_non_null(s);
      assert_string_equal(s->where.tag, text);
    }
  assert_int_equal(lm_site_tag_count(), tags + 100000);
  assert_true(lm_site_is_valid());
}

/* ---- the hook ---- */

static loam_site *hooked;
static bool was_findable;

static void on_new(loam_site *s) {
  hooked = s;
  /* The site can be found by its index now, but by its tag only after the hook has returned. */
  was_findable = lm_site_at(s->index) == s;
}

static void the_hook_sees_a_site_before_anybody_finds_it(void **state) {
  (void)state;
  lm_site_on_new = on_new;
  loam_site *s = tag("hook.one");
  assert_ptr_equal(hooked, s);
  assert_true(was_findable);
  hooked = NULL;
  assert_ptr_equal(tag("hook.one"), s);
  assert_null(hooked);
  lm_site_on_new = NULL;
}

static void ask_again(loam_site *s) {
  static int depth;
  if (depth++ == 0) assert_non_null(tag(s->where.tag));
  depth--;
}

static void the_hook_may_ask_for_the_same_tag(void **state) {
  (void)state;
  lm_site_on_new = ask_again;
  loam_site *s = tag("hook.again");
  lm_site_on_new = NULL;
  assert_ptr_equal(tag("hook.again"), s);
}

static void a_thread_inside_loam_makes_no_site(void **state) {
  (void)state;
  loam_site *known = tag("inside.known");
  lm_thread_get()->inside++;
  assert_ptr_equal(tag("inside.known"), known);
  assert_null(tag("inside.new"));
  lm_thread_get()->inside--;
  assert_non_null(tag("inside.new"));
}

enum { THREADS = 4, RACED = 3000 };
static loam_site *got[THREADS][RACED];
static _Atomic uint32_t compiled;

static void compile(loam_site *s) {
  (void)s;
  atomic_fetch_add(&compiled, 1);
}

static void *race(void *arg) {
  uintptr_t me = (uintptr_t)arg;
  char text[32];
  for (int i = 0; i < RACED; i++) {
    snprintf(text, sizeof text, "race.%d", i);
    got[me][i] = tag(text);
  }
  return NULL;
}

static void threads_that_race_get_one_site(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  lm_site_on_new = compile;
  for (uintptr_t i = 0; i < THREADS; i++) thread[i] = start_thread(race, (void *)i);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  lm_site_on_new = NULL;
  for (int i = 0; i < RACED; i++)
    for (int k = 0; k < THREADS; k++) {
      assert_non_null(got[k][i]);
      assert_ptr_equal(got[k][i], got[0][i]);
    }
  assert_true(compiled >= RACED);
  assert_true(lm_site_is_valid());
}

/* A loader like the one of policy.c: it walks all sites and swaps generations under a lock. The
 * hook takes this lock too. */
static pthread_mutex_t live = PTHREAD_MUTEX_INITIALIZER;
static uint32_t version_of[200000];
static uint32_t version;

static void settle(loam_site *s) {
  pthread_mutex_lock(&live);
  version_of[s->index] = version;
  pthread_mutex_unlock(&live);
}

static void *make_many(void *arg) {
  char text[48];
  for (int i = 0; i < 2000; i++) {
    snprintf(text, sizeof text, "loader.%p.%d", arg, i);
    (void)tag(text);
  }
  return NULL;
}

static void every_site_is_seen_by_the_loader_or_by_the_hook(void **state) {
  (void)state;
  pthread_t thread[2];
  uint32_t from = lm_site_count() + 2;
  lm_site_on_new = settle;
  for (int i = 0; i < 2; i++) thread[i] = start_thread(make_many, &thread[i]);
  for (int load = 0; load < 50; load++) {
    pthread_mutex_lock(&live);
    uint32_t sites = lm_site_count();
    version++;
    for (uint32_t i = from; i < sites + 2; i++) version_of[lm_site_at(i)->index] = version;
    pthread_mutex_unlock(&live);
    usleep(200);
  }
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
  lm_site_on_new = NULL;
  for (uint32_t i = from; i < lm_site_count() + 2; i++) assert_true(version_of[i] == version);
}

/* ---- counting ---- */

static void counting_a_tag_marks_its_sites_and_those_to_come(void **state) {
  (void)state;
  loam_site *a = tag("counted"), *b = lm_site_get(&(loam_where){ "counted", "f", "", "", 1 });
  loam_site *other = tag("counted.not");
  assert_true(lm_site_begin_counting(b));
  assert_false(lm_site_begin_counting(a));
  loam_site *c = lm_site_get(&(loam_where){ "counted", "f", "", "", 2 });
  assert_true(a->counted && b->counted && c->counted && !other->counted);
  assert_true(lm_site_token(c, 0) & LM_TOKEN_COUNTED);
  assert_false(lm_site_token(other, 0) & LM_TOKEN_COUNTED);
  assert_true(lm_site_is_valid());
}

static bool new_was_used;
static void count_new(loam_site *s) { new_was_used = lm_site_begin_counting(s); }

static void a_new_tag_needs_no_walk(void **state) {
  (void)state;
  lm_site_on_new = count_new;
  new_was_used = true;
  loam_site *s = tag("counted.fresh");
  lm_site_on_new = NULL;
  assert_true(s->counted && !new_was_used);
}

/* ---- generations ---- */

static void a_token_names_its_site_and_generation(void **state) {
  (void)state;
  loam_site *s = tag("token");
  uint32_t slot = lm_site_generation_slot(7);
  lm_token t = lm_site_token(s, slot);
  assert_int_equal(lm_site_token_index(t), s->index);
  assert_int_equal(lm_site_token_slot(t), slot);
  assert_int_equal(lm_site_generation_of(slot), 7);
  assert_int_equal(lm_site_generation_slot(7), slot);
  assert_int_equal(lm_site_generation_of(lm_site_generation_slot(0)), 0);
}

static void *block_of(lm_token token) {
  bool zeroed;
  lm_thread *t = lm_thread_get();
  lm_thread_enter(t);
  void *p = lm_pool_alloc(t, lm_strategy_at(0), &(lm_pool_request){ 100, 16, token }, &zeroed);
  lm_thread_leave(t);
  return p;
}

static void a_slot_comes_back_once_no_block_carries_it(void **state) {
  (void)state;
  loam_site *s = tag("generations");
  uint32_t kept = lm_site_generation_slot(100);
  lm_object object;
  void *p = block_of(lm_site_token(s, kept));
  for (uint64_t g = 101; g < 101 + 3 * LM_GENERATION_SLOTS; g++) {
    lm_site_generation = g - 1;
    uint32_t live_slot = lm_site_generation_slot(g - 1), slot = lm_site_generation_slot(g);
    assert_int_equal(lm_site_generation_of(slot), g);
    assert_int_not_equal(slot, kept);
    assert_int_equal(lm_site_generation_slot(g - 1), live_slot);
  }
  assert_int_equal(lm_site_generation_of(kept), 100);
  assert_int_equal(lm_pool_free(lm_thread_get(), p, &object), LM_FREE_DONE);
}

static void a_slot_stays_while_a_handlers_block_carries_it(void **state) {
  (void)state;
  uint32_t kept = lm_site_generation_slot(200);
  lm_provided stale, block = { .base = &block, .made = &block, .size = 1, .device = -1 };
  block.maker = LM_PROVIDER_HANDLER;
  block.token = lm_site_token(tag("generations"), kept);
  assert_true(lm_provided_put(&block, NULL, &stale));
  for (uint64_t g = 201; g < 201 + 3 * LM_GENERATION_SLOTS; g++)
    assert_int_not_equal(lm_site_generation_slot(g), kept);
  assert_int_equal(lm_site_generation_of(kept), 200);
  assert_true(lm_provided_take(&block, &stale, NULL));
}

static void more_generations_with_live_blocks_than_slots_are_reported_together(void **state) {
  (void)state;
  enum { MORE = LM_GENERATION_SLOTS + 10 };
  static void *p[MORE];
  loam_site *s = tag("generations");
  for (uint64_t i = 0; i < MORE; i++) {
    uint32_t slot = lm_site_generation_slot(100000 + i);
    assert_int_equal(lm_site_generation_of(slot), 100000 + i);
    p[i] = block_of(lm_site_token(s, slot));
    lm_site_generation = 100000 + i;
  }
  lm_object object;
  for (uint64_t i = 0; i < MORE; i++)
    assert_int_equal(lm_pool_free(lm_thread_get(), p[i], &object), LM_FREE_DONE);
  lm_site_generation = 0;
}

/* ---- failure and fork ---- */

static void make_one(bool refused) {
  static int n;
  char text[240];
  snprintf(text, sizeof text, "refused.%d.%0200d", n++, 0);
  loam_site *s = tag(text);
  if (s) assert_ptr_equal(tag(text), s);
  else assert_true(refused);
}

static void make_many_refused(bool refused) {
  for (int i = 0; i < 2000; i++) make_one(refused);
}

static void survives_each_refusal_of_memory(void **state) {
  (void)state;
  refuse_each(make_many_refused);
  assert_true(lm_site_is_valid());
}

static int make_in_child(void *argument) {
  (void)argument;
  return tag("child.own") && tag("token") ? 0 : 1;
}

static _Atomic bool stop;

static void *make_until_stopped(void *arg) {
  char text[48];
  for (int i = 0; !stop; i++) {
    snprintf(text, sizeof text, "until.%p.%d", arg, i % 20000);
    (void)tag(text);
  }
  return NULL;
}

static void a_forked_child_makes_sites_at_once(void **state) {
  (void)state;
  pthread_t thread[2];
  lm_site_start();
  for (int i = 0; i < 2; i++) thread[i] = start_thread(make_until_stopped, &version_of[i]);
  for (int i = 0; i < 20; i++) assert_int_equal(run_in_child(make_in_child, NULL), 0);
  stop = true;
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
}

static void a_site_that_breaks_its_law_is_found(void **state) {
  (void)state;
  loam_site *s = tag("broken");
  s->index++;
  assert_false(lm_site_is_valid());
  s->index--;
  s->counted = 1;
  assert_false(lm_site_is_valid());
  s->counted = 0;
  assert_true(lm_site_is_valid());
}

static void start_gives_sites_the_plan_with_bins(void **state) {
  (void)state;
  lm_site_start();
  for (uint32_t i = 2; i < lm_site_count() + 2; i++)
    assert_ptr_equal(lm_site_at(i)->now[0].plan, lm_plan_default());
  assert_ptr_equal(tag("after.start")->now[1].plan, lm_plan_default());
  assert_ptr_not_equal(lm_plan_default(), &lm_plan_bare);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_same_tag_is_the_same_site),
    cmocka_unit_test(sites_that_differ_in_one_part_are_different),
    cmocka_unit_test(the_empty_tag_is_the_default_site),
    cmocka_unit_test(takes_tags_of_255_bytes_and_no_longer),
    cmocka_unit_test(takes_any_bytes),
    cmocka_unit_test(holds_100000_tags),
    cmocka_unit_test(the_hook_sees_a_site_before_anybody_finds_it),
    cmocka_unit_test(the_hook_may_ask_for_the_same_tag),
    cmocka_unit_test(a_thread_inside_loam_makes_no_site),
    cmocka_unit_test(threads_that_race_get_one_site),
    cmocka_unit_test(every_site_is_seen_by_the_loader_or_by_the_hook),
    cmocka_unit_test(counting_a_tag_marks_its_sites_and_those_to_come),
    cmocka_unit_test(a_new_tag_needs_no_walk),
    cmocka_unit_test(a_token_names_its_site_and_generation),
    cmocka_unit_test(a_slot_comes_back_once_no_block_carries_it),
    cmocka_unit_test(a_slot_stays_while_a_handlers_block_carries_it),
    cmocka_unit_test(more_generations_with_live_blocks_than_slots_are_reported_together),
    cmocka_unit_test(survives_each_refusal_of_memory),
    cmocka_unit_test(a_forked_child_makes_sites_at_once),
    cmocka_unit_test(a_site_that_breaks_its_law_is_found),
    cmocka_unit_test(start_gives_sites_the_plan_with_bins),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
