/* test_stats.c - live figures are read from the memory itself and are exact. Totals only grow and
 * lose nothing. */
#include <sys/mman.h>

#include "engine/live_limits.h"
#include "engine/stats.h"
#include "engine_fixture.h"
#include "heap/walk.h"

typedef struct rows {
  int n;
  loam_stats_row row[4096];
} rows;

static void keep_row(void *ctx, const loam_stats_row *row) {
  rows *r = ctx;
  assert_in_range(r->n, 0, 4095);
  r->row[r->n++] = *row;
}

static rows *by(int keys) {
  static rows r;
  r.n = 0;
  assert_int_equal(lm_stats_by(keys, keep_row, &r), LOAM_OK);
  return &r;
}

/* Returns the row of a tag, or of a tag and a strategy if `strategy` is not NULL. */
static loam_stats_row row_of(int keys, const char *of_tag, const char *strategy) {
  rows *r = by(keys);
  loam_stats_row found = { 0 };
  int n = 0;
  for (int i = 0; i < r->n; i++)
    if (!strcmp(r->row[i].tag, of_tag) && (!strategy || !strcmp(r->row[i].strategy, strategy))) {
      found = r->row[i];
      n++;
    }
  assert_true(n <= 1);
  return found;
}

enum { BOTH = LOAM_BY_TAG | LOAM_BY_STRATEGY };

static void reports_bytes_and_blocks_by_tag_and_strategy(void **state) {
  (void)state;
  loam_site *s = tag("stats.one"),
            *there = lm_site_get(&(loam_where){ "stats.one", "f", "", "", 1 });
  CHAIN(host("first"));
  char *a = alloc(s, 100, 16, false), *b = alloc(there, 100, 16, false);
  CHAIN(host("second"));
  char *c = alloc(s, 40000, 16, false);
  loam_stats_row one = row_of(BOTH, "stats.one", "first"),
                 two = row_of(BOTH, "stats.one", "second");
  assert_int_equal(one.live_blocks, 2);
  assert_int_equal(one.live_bytes, 224);
  assert_int_equal(one.total_blocks, 2);
  assert_int_equal(one.total_bytes, 224);
  assert_string_equal(one.kind, "host");
  assert_int_equal(two.live_blocks, 1);
  assert_int_equal(two.live_bytes, 40960);
  put(a);
  put(b);
  one = row_of(BOTH, "stats.one", "first");
  assert_int_equal(one.live_blocks, 0);
  assert_int_equal(one.total_blocks, 2);
  put(c);
}

static void groups_by_what_is_asked_for(void **state) {
  (void)state;
  loam_site *s = tag("stats.group");
  CHAIN(host("first"));
  char *a = alloc(s, 100, 16, false);
  CHAIN(host("second"));
  char *b = alloc(s, 100, 16, false);
  assert_int_equal(row_of(LOAM_BY_TAG, "stats.group", NULL).live_blocks, 2);
  assert_int_equal(row_of(LOAM_BY_STRATEGY, "", "first").live_blocks, 1);
  rows *r = by(LOAM_BY_TAG | LOAM_BY_GENERATION);
  int generations = 0;
  for (int i = 0; i < r->n; i++)
    if (!strcmp(r->row[i].tag, "stats.group")) {
      assert_in_range(r->row[i].generation, lm_site_generation - 1, lm_site_generation);
      assert_int_equal(r->row[i].live_bytes, 112);
      assert_int_equal(r->row[i].total_bytes, 0);
      generations++;
    }
  assert_int_equal(generations, 2);
  assert_int_equal(by(0)->n, 1);
  put(a);
  put(b);
}

static void limits_of_another_family_or_of_none_are_not_valid(void **state) {
  (void)state;
  lm_live_limits limits;
  lm_strategy *with = limited_strategy("stats.with", 1 << 20), *without = host("stats.without");
  (void)tag("stats.family");
  CHAIN(with, without);
  lm_live_limits_read(&limits);
  uint32_t family = with->family->id;
  assert_true(lm_live_limits_is_valid(&limits));
  assert_int_equal(limits.member[family], with->id + 1);
  assert_int_equal(lm_live_limits_of(&limits, with->id).limit, 1 << 20);
  limits.member[without->family->id] = with->id + 1;
  assert_false(lm_live_limits_is_valid(&limits));
  limits.member[without->family->id] = without->id + 1;
  assert_false(lm_live_limits_is_valid(&limits));
  limits.member[without->family->id] = 0;
  limits.member[family] = lm_strategy_count() + 1;
  assert_false(lm_live_limits_is_valid(&limits));
  limits.member[family] = 0;
  assert_true(lm_live_limits_is_valid(&limits));
  lm_live_limits_finish(&limits);
}

static void an_edited_limit_makes_no_new_row(void **state) {
  (void)state;
  loam_site *s = tag("stats.limit");
  CHAIN(host("edited"));
  char *a = alloc(s, 1000, 16, false);
  assert_int_equal(row_of(BOTH, "stats.limit", "edited").limit, 0);
  CHAIN(limited_strategy("edited", 1 << 20));
  char *b = alloc(s, 1000, 16, false);
  CHAIN(limited_strategy("edited", 2 << 20), host("stats.rest"));
  char *c = alloc(s, 200000, 16, false);
  loam_stats_row row = row_of(BOTH, "stats.limit", "edited");
  assert_int_equal(row.live_blocks, 3);
  assert_int_equal(row.total_blocks, 3);
  assert_int_equal(row.limit, 2 << 20);
  assert_in_range(row.limit_used, 200000 + 1000, 300000);
  CHAIN(limited_strategy("edited", 1 << 20));
  row = row_of(LOAM_BY_STRATEGY, "", "edited");
  assert_int_equal(row.live_blocks, 3);
  assert_int_equal(row.limit, 1 << 20);
  CHAIN(host("stats.rest"));
  assert_int_equal(row_of(BOTH, "stats.limit", "edited").limit, 0);
  assert_int_equal(row_of(LOAM_BY_TAG, "stats.limit", NULL).limit, 0);
  assert_true(lm_strategy_is_valid());
  put(a);
  put(b);
  put(c);
}

static void rows_come_largest_first(void **state) {
  (void)state;
  static char *p[300];
  char text[32];
  CHAIN(host("plain"));
  for (int i = 0; i < 300; i++) {
    snprintf(text, sizeof text, "stats.sorted.%d", i);
    p[i] = alloc(tag(text), (size_t)(i * 7919 % 300) * 100, 16, false);
  }
  rows *r = by(BOTH);
  assert_true(r->n >= 300);
  for (int i = 1; i < r->n; i++) assert_true(r->row[i - 1].live_bytes >= r->row[i].live_bytes);
  for (int i = 0; i < 300; i++) put(p[i]);
}

static void counts_blocks_of_handlers_and_the_system(void **state) {
  (void)state;
  loam_site *s = tag("stats.provided");
  CHAIN(counting_strategy());
  char *a = alloc(s, 100, 16, false);
  loam_stats_row row = row_of(BOTH, "stats.provided", "counting");
  assert_int_equal(row.live_bytes, 100);
  assert_string_equal(row.kind, "handler");
  put(a);
  assert_int_equal(row_of(BOTH, "stats.provided", "counting").live_bytes, 0);
}

static void a_block_that_grows_in_place_is_one_block(void **state) {
  (void)state;
  loam_site *s = tag("stats.grows");
  CHAIN(host("plain"));
  char *p = alloc(s, 3 << 20, 16, false);
  char *q = engine_realloc(NULL, p, (3 << 20) + 40000);
  assert_ptr_equal(p, q);
  loam_stats_row row = row_of(BOTH, "stats.grows", "plain");
  assert_int_equal(row.total_blocks, 1);
  assert_int_equal(row.total_bytes, row.live_bytes);
  put(q);
}

/* Several threads allocate under more tags than a thread has tallies, and end. Their counts must
 * move to the totals. */
enum { PAIRS = LM_TALLIES + 500, ROUNDS = 5 };

static void *allocate_under_many(void *arg) {
  (void)arg;
  char text[32];
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < PAIRS; i++) {
      snprintf(text, sizeof text, "stats.many.%d", i);
      put(alloc(tag(text), 48, 16, false));
    }
  return NULL;
}

static void totals_lose_nothing_when_threads_end(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  CHAIN(host("plain"));
  for (int i = 0; i < THREADS; i++) thread[i] = start_thread(allocate_under_many, NULL);
  for (int i = 0; i < 50; i++) { /* the totals only grow while the threads allocate */
    static uint64_t last;
    struct loam_stats stats;
    assert_int_equal(lm_stats_get(&stats), LOAM_OK);
    assert_true(stats.total_blocks >= last);
    last = stats.total_blocks;
  }
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  rows *r = by(BOTH);
  int seen = 0;
  for (int i = 0; i < r->n; i++)
    if (!strncmp(r->row[i].tag, "stats.many.", 11)) {
      assert_int_equal(r->row[i].total_blocks, THREADS * ROUNDS);
      assert_int_equal(r->row[i].total_bytes, THREADS * ROUNDS * 48);
      seen++;
    }
  assert_int_equal(seen, PAIRS);
}

/* Allocates under 10 tags. Returns the thread's area, or NULL if an entry was in use before. */
static void *allocate_from_zero(void *unused) {
  (void)unused;
  char text[32];
  lm_thread *t = lm_thread_get();
  int used = t->used_tallies || t->used_decisions;
  for (int i = 0; i < LM_TALLIES; i++) used += t->tally[i].key || t->tally[i].blocks;
  for (int i = 0; i < LM_DECISIONS; i++)
    used += t->decision[i].key || lm_thread_served(&t->decision[i]);
  for (int i = 0; i < 10; i++) {
    snprintf(text, sizeof text, "stats.later.%d", i);
    for (int n = 0; n < 5; n++) put(alloc(tag(text), 48, 16, false));
  }
  return used ? NULL : t;
}

static void a_thread_in_the_area_of_an_ended_one_counts_from_zero(void **state) {
  (void)state;
  void *first, *later;
  CHAIN(host("plain"));
  pthread_join(start_thread(allocate_from_zero, NULL), &first);
  assert_non_null(first);
  for (int i = 0; i < 9; i++) {
    assert_true(lm_thread_count_vacant() > 0);
    pthread_join(start_thread(allocate_from_zero, NULL), &later);
    assert_ptr_equal(later, first);
  }
  rows *r = by(BOTH);
  for (int i = 0; i < r->n; i++)
    if (!strncmp(r->row[i].tag, "stats.later.", 12))
      assert_int_equal(r->row[i].total_blocks, 10 * 5);
}

static void the_sum_agrees_with_the_rows(void **state) {
  (void)state;
  struct loam_stats stats;
  CHAIN(host("plain"));
  char *p = get(100), *q = get(100000);
  assert_int_equal(lm_stats_get(&stats), LOAM_OK);
  uint64_t live = 0, blocks = 0, total = 0;
  rows *r = by(BOTH);
  for (int i = 0; i < r->n; i++) {
    live += r->row[i].live_bytes;
    blocks += r->row[i].live_blocks;
    total += r->row[i].total_bytes;
  }
  assert_int_equal(stats.live_bytes, live);
  assert_int_equal(stats.live_blocks, blocks);
  assert_int_equal(stats.total_bytes, total);
  assert_int_equal(stats.generation, lm_site_generation);
  assert_true(stats.region_bytes >= live && stats.reserved_bytes >= stats.region_bytes);
  assert_int_equal(stats.sites, lm_site_count());
  put(p);
  put(q);
}

typedef struct herd {
  uint64_t blocks, bytes;
} herd;

static void add_each(void *ctx, const lm_object *object) {
  herd *all = ctx;
  all->blocks++;
  all->bytes += object->size;
}

static void add_count(void *ctx, uint32_t strategy, size_t size, uint32_t n) {
  herd *all = ctx;
  assert_true(n > 0 && strategy < lm_strategy_count());
  all->blocks += n;
  all->bytes += n * size;
}

/* Counts the live objects of spans with states of every kind: live with a common token, a token in
 * the palette, a token in the wide table, or a counted token; in a bin; and free. */
static void what_is_counted_at_once_is_what_lives(void **state) {
  (void)state;
  enum { BLOCKS = 3000 };
  static void *p[BLOCKS];
  loam_site *of[150];
  char text[32];
  uint64_t seed = 7;
  for (int i = 0; i < 150; i++) {
    snprintf(text, sizeof text, "stats.herd.%d", i);
    of[i] = tag(text);
  }
  set_split_plan(LM_IN_LIVE, 1e6, host("plain"), host("other"));
  for (int counted = 0; counted < 2; counted++) {
    for (int i = 0; i < BLOCKS; i++) {
      p[i] = alloc(of[i % 150], i % 50 ? 1 + chance(&seed, 200) : some_size(&seed), 16, 0);
      if (chance(&seed, 2)) put(p[i]), p[i] = NULL;
    }
    herd each = { 0 }, counts = { 0 };
    lm_walk_each(add_each, &each);
    lm_walk_counts(add_count, &counts);
    assert_int_equal(counts.blocks, each.blocks);
    assert_int_equal(counts.bytes, each.bytes);
    for (int i = 0; i < BLOCKS; i++) put(p[i]);
    CHAIN(host("plain"));
  }
}

static void allocate_in_callback(void *ctx, const loam_stats_row *row) {
  char *p = get(row->live_blocks % 1000 + 10);
  put(p);
  if (*(int *)ctx == 0) {
    *(int *)ctx = 1;
    (void)by(LOAM_BY_TAG);
  }
}

static void the_callback_may_allocate_and_ask(void **state) {
  (void)state;
  int asked = 0;
  CHAIN(host("plain"));
  char *p = get(10); /* so that there is a row */
  assert_int_equal(lm_stats_by(BOTH, allocate_in_callback, &asked), LOAM_OK);
  assert_int_equal(asked, 1);
  put(p);
}

static void what_threads_hold_is_seen_while_they_allocate(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  struct loam_stats stats;
  loam_site *of_mine = tag("stats.mine");
  for (int i = 0; i < TAGS; i++) {
    char text[32];
    snprintf(text, sizeof text, "racing.%d", i);
    racing[i] = tag(text);
  }
  CHAIN(host("plain"));
  char *mine = alloc(of_mine, 1000, 16, false);
  for (uintptr_t i = 0; i < THREADS; i++) thread[i] = start_thread(churn, (void *)i);
  for (int i = 0; i < 200 / SCALE; i++) {
    assert_int_equal(row_of(BOTH, "stats.mine", "plain").live_blocks, 1);
    assert_int_equal(lm_stats_get(&stats), LOAM_OK);
  }
  stop = true;
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < TAGS; i++)
    assert_int_equal(row_of(LOAM_BY_TAG, racing[i]->where.tag, NULL).live_blocks, 0);
  put(mine);
}

static void ask(bool refused) {
  static rows r;
  struct loam_stats stats;
  r.n = 0;
  loam_status status = lm_stats_by(BOTH | LOAM_BY_GENERATION, keep_row, &r);
  assert_true(status == LOAM_OK || (refused && status == LOAM_ENOMEM));
  assert_int_equal(lm_stats_get(&stats), LOAM_OK);
}

/* Adds to *pages the number of resident pages of the thread's tallies and decisions. */
static void count_pages(lm_thread *t, void *pages) {
  unsigned char in[sizeof(lm_thread) / LM_PAGE + 1] = { 0 };
  uintptr_t from = lm_align_down((uintptr_t)t->tally, LM_PAGE);
  uintptr_t end = lm_align_up((uintptr_t)(t + 1), LM_PAGE);
  assert_int_equal(mincore((void *)from, end - from, in), 0);
  for (size_t i = 0; i < (end - from) / LM_PAGE; i++) *(_Atomic int *)pages += in[i] & 1;
}

static _Atomic int pages_left;
static void count_at_end(lm_thread *t) { count_pages(t, &pages_left); }

static void *allocate_and_ask(void *pages) {
  put(get(100));
  (void)by(BOTH);
  count_pages(lm_thread_self, pages);
  return NULL;
}

/* A read of an unused page is a page fault, for each thread that begins and ends, and in each
 * forked child. So loam must read only pages that the thread has used. */
static void what_a_thread_never_used_is_not_looked_at(void **state) {
  (void)state;
  _Atomic int pages = 0;
  CHAIN(host("plain"));
  pages_left = 0;
  lm_thread_trim_vacant(); /* so that the thread gets a new area */
  pthread_join(start_thread(allocate_and_ask, &pages), NULL);
  assert_in_range(pages, 1, 8);
  assert_in_range(pages_left, 1, 8);
}

static int set_up_and_watch_ends(void **state) {
  lm_thread_add_hooks(&(lm_thread_hooks){ .exit = count_at_end }); /* runs after all other hooks */
  return set_up(state);
}

/* A fork may happen in the middle of a change, if it has waited too long for another thread. The
 * child must not keep the odd count that such a change leaves. */
static void a_child_does_not_inherit_a_change_without_an_end(void **state) {
  (void)state;
  int status;
  lm_changes_begin(&lm_stats_outside[1].changes);
  pid_t child = fork();
  if (!child) _exit(atomic_load(&lm_stats_outside[1].changes) & 1);
  lm_changes_end(&lm_stats_outside[1].changes);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

/* Returns the sum of the figures of requests that failed or that a fallback served. */
static uint64_t failures(const lm_strategy *small, const lm_strategy *rest) {
  return lm_stats_denied + lm_stats_fallbacks + lm_stats_failed + lm_stats_bad_frees +
         small->failed + small->at_limit + rest->served_late;
}

/* A process that is forked after a failure must not be reported for it. */
static void a_child_counts_its_own_failures(void **state) {
  (void)state;
  int status;
  lm_strategy *small = limited_strategy("own_small", 100), *rest = host("own_rest");
  CHAIN(small, rest);
  put(get(1000)); /* served by the fallback */
  uint64_t before = failures(small, rest);
  assert_in_range(before, 4, UINT64_MAX);
  CHAIN(small);
  pid_t child = fork();
  if (!child) {
    bool is_new = failures(small, rest) == 0;
    _exit(is_new && !get(1000) && failures(small, rest) == 3 ? 0 : 1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(failures(small, rest), before);
}

static void pass_over(void *ctx, const loam_stats_row *row) { (void)ctx, (void)row; }
static void pass_over_got(void *ctx, const loam_got *got) { (void)ctx, (void)got; }

/* Reads the figures in a thread that has no area, while every system call from number *from on
 * fails. */
static void *ask_without_an_area(void *from) {
  const long *nth = from;
  struct loam_stats stats;
  lm_sys_refuse_from(*nth);
  loam_status status = loam_stats_by(LOAM_BY_STRATEGY | LOAM_BY_TAG, pass_over, NULL);
  loam_status other = loam_stats(&stats), got = loam_got_each(pass_over_got, NULL);
  lm_sys_refuse_from(0);
  assert_true(status == LOAM_OK || status == LOAM_ENOMEM);
  assert_true(got == LOAM_OK || got == LOAM_ENOMEM);
  assert_int_equal(other, LOAM_OK);
  return NULL;
}

static void a_thread_without_an_area_may_ask(void **state) {
  (void)state;
  for (long nth = 1; nth < 12; nth++) {
    lm_thread_trim_vacant(); /* else the thread gets the area of a thread that has ended */
    assert_int_equal(pthread_join(start_thread(ask_without_an_area, &nth), NULL), 0);
  }
}

static void survives_each_refusal_of_memory(void **state) {
  (void)state;
  refuse_each(ask);
}

static int totals_are_valid(void **state) {
  (void)state;
  return lm_stats_is_valid() ? 0 : -1;
}

/* Counts under 64 tags. When the thread ends, its counts move to the totals. */
static void *count_under_many_tags(void *unused) {
  for (int i = 0; i < 64; i++) {
    char name[32];
    snprintf(name, sizeof name, "stripe.t%d", i);
    loam_free(loam_malloc(loam_site_get(name), 100));
  }
  return unused;
}

/* Each row of the totals belongs in the stripe that its key selects. */
static void totals_in_a_wrong_stripe_are_not_valid(void **state) {
  pthread_t thread;
  (void)state;
  assert_int_equal(pthread_create(&thread, NULL, count_under_many_tags, NULL), 0);
  pthread_join(thread, NULL);
  lm_stats_stripe *a = &lm_stats_outside[0], *b = &lm_stats_outside[1];
  lm_sums_table table = a->table;
  assert_true(lm_stats_is_valid());
  a->table = b->table;
  b->table = table;
  assert_false(lm_stats_is_valid());
  b->table = a->table;
  a->table = table;
  assert_true(lm_stats_is_valid());
}

#define TEST(name) cmocka_unit_test_teardown(name, totals_are_valid)

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(reports_bytes_and_blocks_by_tag_and_strategy),
    TEST(groups_by_what_is_asked_for),
    TEST(limits_of_another_family_or_of_none_are_not_valid),
    TEST(an_edited_limit_makes_no_new_row),
    TEST(rows_come_largest_first),
    TEST(counts_blocks_of_handlers_and_the_system),
    TEST(a_block_that_grows_in_place_is_one_block),
    TEST(totals_lose_nothing_when_threads_end),
    TEST(a_thread_in_the_area_of_an_ended_one_counts_from_zero),
    TEST(the_sum_agrees_with_the_rows),
    TEST(what_is_counted_at_once_is_what_lives),
    TEST(the_callback_may_allocate_and_ask),
    TEST(what_threads_hold_is_seen_while_they_allocate),
    TEST(what_a_thread_never_used_is_not_looked_at),
    TEST(a_child_does_not_inherit_a_change_without_an_end),
    TEST(a_child_counts_its_own_failures),
    TEST(survives_each_refusal_of_memory),
    TEST(a_thread_without_an_area_may_ask),
    TEST(totals_in_a_wrong_stripe_are_not_valid),
  };
  return cmocka_run_group_tests(tests, set_up_and_watch_ends, NULL);
}
