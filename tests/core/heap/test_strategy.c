/* test_strategy.c - interned descriptions of memory (strategy.h). */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "heap/strategy.h"
#include "os/error.h"

static lm_strategy *intern(const lm_desc *desc) {
  lm_strategy *s = NULL;
  assert_int_equal(lm_strategy_intern(desc, &s), LOAM_OK);
  assert_non_null(s);
  return s;
}

static lm_desc named(const char *name) {
  lm_desc desc = { .align = 64 };
  snprintf(desc.name, sizeof desc.name, "%s", name);
  return desc;
}

static void strategy_0_is_there_before_anything(void **state) {
  (void)state;
  assert_int_equal(lm_strategy_count(), 1);
  lm_strategy *s = lm_strategy_at(0);
  assert_int_equal(s->id, 0);
  assert_string_equal(s->desc.name, "default");
  assert_int_equal(s->desc.kind, LM_KIND_HOST);
  lm_desc desc = { .name = "default" };
  assert_ptr_equal(intern(&desc), s);
}

static void equal_descriptions_are_one_strategy(void **state) {
  (void)state;
  lm_desc a = named("scratch"), b;
  memset(&b, 0xff, sizeof b); /* also the padding and the bytes after the name */
  strcpy(b.name, "scratch");
  b.kind = LM_KIND_HOST;
  b.align = 64;
  b.limit = b.soft = 0;
  b.placement.mode = LM_BIND_DEFAULT; /* this mode uses neither nodes nor weights */
  b.huge = LM_HUGE_DEFAULT;
  b.zero = b.prefault = b.lock = false;
  b.guard = 0;
  b.handler[126] = 0;
  b.shared[0] = 0;
  lm_strategy *s = intern(&a);
  assert_ptr_equal(intern(&b), s);
  assert_ptr_equal(lm_strategy_at(s->id), s);
  assert_string_equal(s->desc.handler, "");
  assert_int_equal(s->desc.placement.nodes, 0);
}

static void any_difference_makes_another(void **state) {
  (void)state;
  lm_desc base = named("base");
  base.placement.mode = LM_BIND_BIND;
  base.placement.nodes = 1;
  lm_desc other[15];
  for (size_t i = 0; i < LM_COUNT(other); i++) other[i] = base;
  other[0].kind = LM_KIND_SYSTEM;
  other[1].align = 128;
  other[2].limit = 1;
  other[3].placement.mode = LM_BIND_INTERLEAVE;
  other[4].placement.nodes = 3;
  other[5].huge = LM_HUGE_THP;
  other[6].zero = true;
  other[7].prefault = true;
  other[8].lock = true;
  other[9].guard = 1;
  other[10].name[0] = 'c';
  other[11].placement = (lm_placement){ .mode = LM_BIND_WEIGHTED, .weight = { 1 } };
  other[12].limit = 2;
  other[12].soft = 1;
  other[13].limit = other[14].limit = 1;
  strcpy(other[13].shared, "one");
  strcpy(other[14].shared, "two");
  uint32_t before = lm_strategy_count();
  intern(&base);
  for (size_t i = 0; i < LM_COUNT(other); i++) intern(&other[i]);
  assert_int_equal(lm_strategy_count(), before + 1 + LM_COUNT(other));
}

static void handlers_are_distinguished_by_name(void **state) {
  (void)state;
  lm_desc a = { .kind = LM_KIND_HANDLER, .handler = "one" }, b = a;
  strcpy(b.handler, "two");
  assert_ptr_not_equal(intern(&a), intern(&b));
  assert_ptr_equal(intern(&a), intern(&a));
}

static void files_are_distinguished_by_folder(void **state) {
  (void)state;
  lm_desc a = { .kind = LM_KIND_FILE, .dir = "/one" }, b = a;
  strcpy(b.dir, "/two");
  assert_ptr_not_equal(intern(&a), intern(&b));
  strcpy(b.dir, "/one");
  assert_ptr_equal(intern(&a), intern(&b));
}

static void an_edited_limit_stays_shared_and_another_name_has_its_own(void **state) {
  (void)state;
  lm_desc a = named("shared"), b, c;
  a.limit = 4096;
  strcpy(a.shared, "one");
  b = c = a;
  b.limit = 8192;
  strcpy(c.shared, "two");
  assert_ptr_equal(intern(&b)->account, intern(&a)->account);
  assert_ptr_not_equal(intern(&c)->account, intern(&a)->account);
  assert_true(lm_strategy_lacks_quota());
  assert_non_null(lm_strategy_bind_quotas()); /* there is no table: each process has its limit */
  assert_true(lm_strategy_limit_take(intern(&a), 4096));
  assert_false(lm_strategy_limit_take(intern(&a), 1));
  assert_int_equal(lm_strategy_limit_used(intern(&b)), 4096);
  lm_strategy_limit_give(intern(&b), 4096);
}

static void a_limit_keeps_its_peak(void **state) {
  (void)state;
  lm_desc a = named("peak"), b = a;
  a.limit = 4096;
  b.limit = 8192;
  lm_strategy *s = intern(&a);
  assert_int_equal(lm_strategy_limit_peak(s, 0), 0);
  assert_true(lm_strategy_limit_take(s, 3000));
  assert_false(lm_strategy_limit_take(s, 1097)); /* what is refused does not count */
  lm_strategy_limit_give(s, 2000);
  assert_int_equal(lm_strategy_limit_take_some(s, 500, 2), 2);
  assert_int_equal(lm_strategy_limit_peak(s, 0), 3000);
  lm_strategy_limit_give(s, -3000); /* taken, although the limit has no room */
  assert_int_equal(lm_strategy_limit_peak(s, 0), 5000);
  lm_strategy_limit_give(s, 5000);
  assert_int_equal(lm_strategy_limit_peak(s, 6000), 6000); /* other processes share the limit */
  assert_int_equal(lm_strategy_limit_peak(intern(&b), 0), 5000); /* after an edit of the limit */
}

static void weights_make_the_mask(void **state) {
  (void)state;
  lm_desc desc = named("weighted");
  desc.placement = (lm_placement){ .mode = LM_BIND_WEIGHTED, .weight = { 3, 0, 1 } };
  assert_int_equal(intern(&desc)->desc.placement.nodes, 5);
}

static void expect_refused(const lm_desc *desc, const char *words) {
  lm_strategy *none = NULL;
  uint32_t before = lm_strategy_count();
  assert_int_equal(lm_strategy_intern(desc, &none), LOAM_EINVAL);
  assert_null(none);
  assert_string_equal(loam_error(), words);
  assert_int_equal(lm_strategy_count(), before);
}

static void what_makes_no_sense_is_refused_in_words(void **state) {
  (void)state;
  enum { DEVICES = 32 };
  lm_desc desc = named("bad");
  desc.align = 48;
  expect_refused(&desc, "align 48: a power of two up to 1 GiB is possible");
  desc.align = 2 * LM_GIB;
  expect_refused(&desc, "align 2147483648: a power of two up to 1 GiB is possible");
  desc.align = LM_GIB;
  desc.limit = 4096;
  desc.soft = 4097;
  expect_refused(&desc, "soft limit 4097: it is above the limit, 4096");
  desc.soft = 4096;
  memset(desc.shared, 'x', sizeof desc.shared);
  expect_refused(&desc, "the name of a shared limit is longer than 63 bytes");
  strcpy(desc.shared, "kv");
  desc.limit = desc.soft = 0;
  expect_refused(&desc, "shared \"kv\": there is no limit to share");
  desc.shared[0] = 0;
  desc.kind = (lm_kind)9;
  expect_refused(&desc, "strategy kind 9: there are kinds 0-8");
  desc.kind = LM_KIND_FILE;
  strcpy(desc.dir, "spill");
  expect_refused(&desc, "dir \"spill\": a file strategy has the absolute path of a folder");
  memset(desc.dir, '/', sizeof desc.dir);
  expect_refused(&desc, "a folder's path is longer than 255 bytes");
  desc = named("bad");
  desc.kind = LM_KIND_DEVICE;
  desc.supply = (lm_device_pool_kind)LM_DEVICE_POOL_KINDS;
  expect_refused(&desc, "pool 6: there are pools 0-5");
  desc.supply = 0;
  desc.device = DEVICES + 1;
  expect_refused(&desc, "device 32: devices are 0-31");
  desc.device = DEVICES;
  desc.kind = LM_KIND_MANAGED;
  desc.prefer = DEVICES + 2;
  expect_refused(&desc, "prefer 32: devices are 0-31");
  desc = named("bad");
  desc.kind = LM_KIND_HANDLER;
  expect_refused(&desc, "a handler strategy without the handler's name");
  memset(desc.handler, 'x', sizeof desc.handler);
  expect_refused(&desc, "a handler's name is longer than 126 bytes");
  memset(desc.name, 'x', sizeof desc.name);
  expect_refused(&desc, "a strategy's name is longer than 63 bytes");
}

static void intern_a_new_one(bool refused) {
  static int n;
  char name[32];
  snprintf(name, sizeof name, "refused-%d", n++);
  lm_desc desc = named(name);
  lm_strategy *s = NULL;
  uint32_t before = lm_strategy_count();
  loam_status status = lm_strategy_intern(&desc, &s);
  if (status == LOAM_OK) {
    assert_ptr_equal(lm_strategy_at(s->id), s);
    return;
  }
  assert_true(refused);
  assert_int_equal(status, LOAM_ENOMEM);
  assert_null(s);
  assert_int_equal(lm_strategy_count(), before);
}

static void want_of_memory_is_refused_and_changes_nothing(void **state) {
  (void)state;
  refuse_each(intern_a_new_one);
}

/* All threads intern one set of names, and must get one set of strategies. */
enum { THREADS = 4, NAMES = 100 };
static pthread_barrier_t together;

static void *intern_names(void *out) {
  lm_strategy **given = out;
  for (int i = 0; i < NAMES; i++) {
    char name[32];
    snprintf(name, sizeof name, "shared-%d", i);
    lm_desc desc = named(name);
    pthread_barrier_wait(&together);
    if (lm_strategy_intern(&desc, &given[i])) return (void *)1;
    if (lm_strategy_at(given[i]->id) != given[i]) return (void *)1;
    for (uint32_t id = 0; id < lm_strategy_count(); id++)
      if (!lm_strategy_at(id) || lm_strategy_at(id)->id != id) return (void *)1;
  }
  return NULL;
}

static void threads_that_intern_at_once_agree(void **state) {
  (void)state;
  static lm_strategy *given[THREADS][NAMES];
  pthread_t thread[THREADS];
  uint32_t before = lm_strategy_count();
  pthread_barrier_init(&together, NULL, THREADS);
  for (int i = 0; i < THREADS; i++) thread[i] = start_thread(intern_names, given[i]);
  for (int i = 0; i < THREADS; i++) {
    void *wrong;
    pthread_join(thread[i], &wrong);
    assert_null(wrong);
    assert_memory_equal(given[i], given[0], sizeof given[0]);
  }
  assert_int_equal(lm_strategy_count(), before + NAMES);
  pthread_barrier_destroy(&together);
}

static void a_full_table_is_a_budget(void **state) {
  (void)state;
  lm_strategy *s = NULL;
  loam_status status = LOAM_OK;
  for (int i = 0; i <= LM_STRATEGIES_MAX && !status; i++) {
    char name[32];
    snprintf(name, sizeof name, "many-%d", i);
    lm_desc desc = named(name);
    status = lm_strategy_intern(&desc, &s);
  }
  assert_int_equal(status, LOAM_EBUDGET);
  assert_non_null(strstr(loam_error(), "at most 16384 strategies"));
  assert_int_equal(lm_strategy_count(), LM_STRATEGIES_MAX);
  lm_desc known = named("scratch");
  assert_string_equal(intern(&known)->desc.name, "scratch");
}

static void kinds_have_names(void **state) {
  (void)state;
  assert_string_equal(lm_strategy_kind_text(LM_KIND_HOST), "host");
  assert_string_equal(lm_strategy_kind_text(LM_KIND_MANAGED), "managed");
  assert_string_equal(lm_strategy_kind_text(LM_KINDS), "?");
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(strategy_0_is_there_before_anything),
    cmocka_unit_test(equal_descriptions_are_one_strategy),
    cmocka_unit_test(any_difference_makes_another),
    cmocka_unit_test(handlers_are_distinguished_by_name),
    cmocka_unit_test(files_are_distinguished_by_folder),
    cmocka_unit_test(an_edited_limit_stays_shared_and_another_name_has_its_own),
    cmocka_unit_test(a_limit_keeps_its_peak),
    cmocka_unit_test(weights_make_the_mask),
    cmocka_unit_test(what_makes_no_sense_is_refused_in_words),
    cmocka_unit_test(want_of_memory_is_refused_and_changes_nothing),
    cmocka_unit_test(threads_that_intern_at_once_agree),
    cmocka_unit_test(a_full_table_is_a_budget),
    cmocka_unit_test(kinds_have_names),
  };
  return cmocka_run_group_tests_name("strategy", tests, NULL, NULL);
}
