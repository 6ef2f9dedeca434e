/* test_sample.c - samples represent all blocks. The sums over samples have the right expectation,
 * no matter which thread allocates, frees or resizes, and a freed sample is forgotten. The random
 * draws have a fixed seed. */
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/sample.h"
#include "engine_fixture.h"

enum { SEED = 20, SIGMAS = 5 };

/* ---- sums ---- */

/* Sums of all rows, or of the rows of one site. */
typedef struct figures {
  double samples, blocks, bytes;
} figures;

static figures sum(const loam_site *of, bool live) {
  figures f = { 0 };
  lm_stacks *stacks = &lm_sample_all.stacks;
  for (uint32_t i = 0; i < stacks->count; i++) {
    const lm_stack_sums *s = live ? &stacks->row[i].live : &stacks->row[i].total;
    if (of && stacks->row[i].site != of->index) continue;
    f.samples += (double)s->samples;
    f.blocks += (double)s->blocks / (1 << LM_SAMPLE_SHIFT);
    f.bytes += (double)s->bytes;
  }
  return f;
}

static figures live_of(const loam_site *of) { return sum(of, true); }
static figures total_of(const loam_site *of) { return sum(of, false); }

/* Exact figures, and the variance of the estimates by samples. */
typedef struct truth {
  double blocks, bytes, samples;
  double blocks_variance, bytes_variance, samples_variance;
} truth;

/* Adds n blocks of `size` usable bytes (`sign` is 1), or takes them away. A block is a sample with
 * the probability p, and counts 1/p then. */
static void add_to(truth *of, double n, size_t size, uint64_t interval, int sign) {
  double p = -expm1(-(double)size / (double)interval), s = (double)size;
  of->blocks += sign * n;
  of->bytes += sign * n * s;
  of->samples += sign * n * p;
  of->blocks_variance += sign * n * (1 - p) / p;
  of->bytes_variance += sign * n * s * s * (1 - p) / p;
  of->samples_variance += sign * n * p * (1 - p);
}

static void assert_near(double got, double want, double variance) {
  double off = fabs(got - want), most = SIGMAS * sqrt(fabs(variance)) + want * 1e-4 + 1;
  if (off > most) fail_msg("%g, and not %g: %g off, %g allowed", got, want, off, most);
}

static void assert_like(figures got, const truth *want) {
  assert_near(got.samples, want->samples, want->samples_variance);
  assert_near(got.blocks, want->blocks, want->blocks_variance);
  assert_near(got.bytes, want->bytes, want->bytes_variance);
}

static void begin(uint64_t interval) {
  assert_int_equal(lm_sample_set(interval), LOAM_OK);
  lm_sample_seed(lm_thread_get(), SEED);
}
static void end(void) {
  assert_int_equal(lm_sample_set(0), LOAM_OK);
  assert_true(lm_sample_is_valid());
}

static void *take(loam_site *of, size_t size) {
  void *p = loam_malloc(of, size);
  assert_non_null(p);
  return p;
}

/* ---- tests ---- */

static void nothing_is_sampled_until_it_is_switched_on(void **state) {
  (void)state;
  CHAIN(host("plain"));
  for (int i = 0; i < 1000; i++) put(take(site, 100000));
  assert_null(lm_sample_all.head);
  assert_int_equal(lm_sample_all.stacks.count, 0);
  assert_int_equal(lm_sample_stock(lm_thread_get(), 16), LM_STATS_STOCK);
}

static void an_interval_is_read_from_a_text(void **state) {
  uint64_t interval = 0;
  (void)state;
  assert_true(lm_sample_parse("512KiB", &interval) && interval == (512 << 10));
  assert_true(lm_sample_parse("1024GiB", &interval) && interval == LM_SAMPLE_INTERVAL_MAX);
  assert_false(lm_sample_parse("1025GiB", &interval));
  assert_false(lm_sample_parse("17179869185GiB", &interval)); /* 2^34 + 1: 1 GiB if it wrapped */
  assert_false(lm_sample_parse("99999999999999999999", &interval));
  assert_false(lm_sample_parse("", &interval) || lm_sample_parse("-1", &interval));
  assert_true(lm_sample_parse("4k", &interval) && interval == 4096);
  assert_true(lm_sample_parse("5kib", &interval) && interval == 5 << 10);
  assert_true(lm_sample_parse("7B", &interval) && interval == 7);
  assert_true(lm_sample_parse("3MB", &interval) && interval == 3 << 20);
  assert_false(lm_sample_parse("5ib", &interval) || lm_sample_parse("5kk", &interval));
}

static void the_weight_is_one_over_the_probability(void **state) {
  (void)state;
  for (size_t size = 16; size < (size_t)1 << 44; size *= 3)
    for (uint64_t interval = 1; interval <= LM_SAMPLE_INTERVAL_MAX; interval *= 1024) {
      double want = (1 << LM_SAMPLE_SHIFT) / -expm1(-(double)size / (double)interval);
      double got = (double)lm_sample_weight(size, interval);
      if (fabs(got - want) > 0.5 + want * 1e-9) fail_msg("%zu: %g, and not %g", size, got, want);
    }
}

static void pairs_of_malloc_and_free_are_sampled_in_proportion(void **state) {
  enum { PAIRS = 200000, INTERVAL = 16384 };
  const size_t size[] = { 16, 64, 1008, 100000 };
  (void)state;
  CHAIN(host("plain"));
  begin(INTERVAL);
  for (size_t i = 0; i < LM_COUNT(size); i++) {
    char text[32];
    truth want = { 0 };
    int pairs = size[i] > 1000 ? PAIRS / 100 : PAIRS;
    snprintf(text, sizeof text, "pairs.%zu", size[i]);
    loam_site *of = tag(text);
    void *p = take(of, size[i]);
    add_to(&want, pairs + 1, lm_record_usable(p), INTERVAL, 1);
    put(p);
    for (int n = 0; n < pairs; n++) loam_free(take(of, size[i]));
    assert_like(total_of(of), &want);
    assert_true(live_of(of).samples == 0 && live_of(of).bytes == 0);
  }
  end();
}

static void live_samples_stand_for_live_memory(void **state) {
  enum { SAMPLES = THREAD_SANITIZED ? 100000 : 1000000 };
  enum { BLOCKS = 4000, STEPS = SAMPLES / 2 * 9, INTERVAL = 4096 };
  static void *p[BLOCKS];
  truth want = { 0 };
  uint64_t seed = 3;
  (void)state;
  CHAIN(host("plain"));
  loam_site *of = tag("sample.live");
  begin(INTERVAL);
  for (int i = 0; i < STEPS; i++) {
    void **at = &p[chance(&seed, BLOCKS)];
    if (*at) add_to(&want, 1, lm_record_usable(*at), INTERVAL, -1);
    loam_free(*at);
    *at = take(of, 1 + chance(&seed, chance(&seed, 50) ? 2000 : 400000));
    add_to(&want, 1, lm_record_usable(*at), INTERVAL, 1);
  }
  assert_true(live_of(of).samples > BLOCKS / 20 && total_of(of).samples > SAMPLES);
  assert_like(live_of(of), &want);
  assert_true(lm_sample_is_valid());
  for (int i = 0; i < BLOCKS; i++) loam_free(p[i]);
  assert_true(live_of(of).samples == 0 && live_of(of).bytes == 0 && live_of(of).blocks == 0);
  end();
}

static void a_sampled_block_stays_what_it_is(void **state) {
  enum { EACH = 1 }; /* every block is sampled */
  (void)state;
  loam_site *of = tag("sample.owner");
  CHAIN(host("plain"));
  begin(EACH);
  for (size_t size = 1; size < 4 << 20; size = size * 3 / 2 + 1) {
    char *p = take(of, size);
    assert_true(lm_sample_may_have(p) && live_of(of).samples == 1);
    assert_string_equal(owner(p).tag, "sample.owner");
    assert_string_equal(owner(p).strategy, "plain");
    assert_true(lm_record_usable(p) >= size && lm_record_usable(p) == owner(p).size);
    memset(p, 1, size);
    p = loam_realloc(NULL, p, size * 2); /* the larger block is a sample too */
    assert_true(p && live_of(of).samples == 1 && live_of(of).bytes == (double)lm_record_usable(p));
    p = loam_realloc(NULL, p, size);
    assert_true(p && live_of(of).samples == 1 && live_of(of).bytes == (double)lm_record_usable(p));
    loam_free(p);
    assert_int_equal(live_of(of).samples, 0);
  }
  end();
}

static void other_ways_to_a_block_are_sampled(void **state) {
  enum { EACH = 1 };
  (void)state;
  CHAIN(host("plain"));
  loam_site *of = tag("sample.ways");
  begin(EACH);
  void *p[] = { loam_calloc(of, 10, 10),         loam_aligned_alloc(of, 64, 100),
                loam_aligned_alloc(of, 8192, 1), loam_calloc(of, 1, 300000),
                loam_realloc(of, NULL, 50),      loam_malloc(of, 40 << 20) };
  loam_block *b = loam_block_new(of, 100);
  assert_int_equal(live_of(of).samples, LM_COUNT(p) + 1);
  assert_true(((char *)p[0])[99] == 0 && ((char *)p[3])[299999] == 0);
  for (size_t i = 0; i < LM_COUNT(p); i++) loam_free(p[i]);
  loam_block_release(b);
  assert_int_equal(live_of(of).samples, 0);
  end();
}

static void blocks_of_handlers_and_counted_tags_are_sampled(void **state) {
  enum { EACH = 1, BLOCKS = 500 }; /* a block of 30 bytes is surely a sample */
  static void *p[BLOCKS];
  (void)state;
  for (int counted = 0; counted < 2; counted++) {
    loam_site *of = tag(counted ? "sample.counted" : "sample.handler");
    if (counted) set_split_plan(LM_IN_LIVE, 1e9, host("plain"), host("other"));
    else CHAIN(counting_strategy());
    begin(EACH);
    for (int i = 0; i < BLOCKS; i++) p[i] = take(of, 30 + (size_t)i * 100);
    assert_int_equal(live_of(of).samples, BLOCKS);
    if (counted) assert_int_equal(lm_live_of(lm_thread_get(), of), live_of(of).bytes);
    for (int i = 0; i < BLOCKS; i += 2) p[i] = loam_realloc(NULL, p[i], 30 + (size_t)i * 150);
    assert_int_equal(live_of(of).samples, BLOCKS);
    for (int i = 0; i < BLOCKS; i++) loam_free(p[i]);
    assert_int_equal(live_of(of).samples, 0);
    if (counted) assert_int_equal(lm_live_of(lm_thread_get(), of), 0);
    end();
  }
}

/* Near a limit the thread's cache gets one object at a time, so most requests find an entry that
 * has drawn for them, and no object. */
static void blocks_near_a_limit_are_drawn_for_once(void **state) {
  enum { BLOCKS = 600, SIZE = 3000, INTERVAL = 16 << 10 };
  static void *p[BLOCKS];
  truth want = { 0 };
  (void)state;
  loam_site *of = tag("sample.near");
  set_split_plan(LM_IN_SIZE, SIZE + 1, limited_strategy("near", 2 * LM_MIB), host("plain"));
  begin(INTERVAL);
  for (int i = 0; i < BLOCKS; i++) p[i] = take(of, SIZE);
  add_to(&want, BLOCKS, lm_record_usable(p[0]), INTERVAL, 1);
  assert_like(live_of(of), &want);
  for (int i = 0; i < BLOCKS; i++) loam_free(p[i]);
  end();
}

static void samples_outlive_the_end_of_sampling_and_a_new_policy(void **state) {
  enum { EACH = 1, BLOCKS = 300 };
  static void *p[BLOCKS];
  (void)state;
  CHAIN(host("plain"));
  loam_site *of = tag("sample.outlive");
  begin(EACH);
  for (int i = 0; i < BLOCKS; i++) p[i] = take(of, 1 + (size_t)i * 300);
  end();
  void *late = take(of, 100);
  assert_int_equal(total_of(of).samples, BLOCKS);
  /* gives every block another token */
  set_split_plan(LM_IN_LIVE, 1e9, host("plain"), host("other"));
  assert_int_equal(live_of(of).samples, BLOCKS);
  for (int i = 0; i < BLOCKS; i++) loam_free(p[i]);
  loam_free(late);
  assert_int_equal(live_of(of).samples, 0);
  assert_true(lm_sample_is_valid());
}

/* Takes and frees blocks of both kinds: those that an entry counts, and those that draw from the
 * bytes that the thread has left. */
static void pass(loam_site *of, int small, int large) {
  for (int i = 0; i < small; i++) loam_free(take(of, 64));
  for (int i = 0; i < large; i++) loam_free(take(of, 100000));
}

/* Changes the interval, directly or with a time between in which nothing is sampled. */
static void change(uint64_t interval, bool is_off_between) {
  if (is_off_between) end();
  assert_int_equal(lm_sample_set(interval), LOAM_OK);
}

static void a_new_interval_holds_at_once(void **state) {
  enum { SMALL = 50000, LARGE = 1000 };
  const uint64_t RARE = (uint64_t)16 << 30, OFTEN = 1 << 20;
  (void)state;
  CHAIN(host("plain"));
  for (int is_off_between = 0; is_off_between < 2; is_off_between++) {
    loam_site *rare = tag(is_off_between ? "sample.rare_later" : "sample.rare");
    loam_site *often = tag(is_off_between ? "sample.often_later" : "sample.often");
    truth want = { 0 };
    add_to(&want, SMALL, 64, OFTEN, 1);
    add_to(&want, LARGE, lm_align_up(100000, LM_PAGE), OFTEN, 1);
    begin(OFTEN);
    pass(rare, 1, 3); /* draws by the short interval */
    change(RARE, is_off_between);
    double before = total_of(rare).samples;
    pass(rare, SMALL, LARGE); /* 100 MB, of which no byte bears a point of this sequence */
    assert_true(total_of(rare).samples == before);
    begin(RARE);
    pass(often, 1, 3);
    change(OFTEN, is_off_between);
    pass(often, SMALL, LARGE);
    assert_like(total_of(often), &want);
    end();
  }
}

static void a_session_has_no_sample_of_an_earlier_one(void **state) {
  enum { EACH = 1, BLOCKS = 100, KEPT = 40 };
  void *p[BLOCKS];
  (void)state;
  CHAIN(host("plain"));
  loam_site *of = tag("sample.session");
  begin(EACH);
  for (int i = 0; i < BLOCKS; i++) p[i] = take(of, 100 + (size_t)i * 1000);
  end();
  assert_int_equal(total_of(of).blocks, BLOCKS); /* a session can be read after its end */
  begin(EACH);
  assert_true(lm_sample_is_valid());
  assert_int_equal(total_of(NULL).samples, 0);
  assert_int_equal(total_of(NULL).bytes, 0);
  assert_int_equal(live_of(NULL).bytes, 0);
  for (int i = KEPT; i < BLOCKS; i++) loam_free(p[i]); /* blocks of the earlier session */
  p[0] = loam_realloc(NULL, p[0], 300000);             /* a new block, of this session */
  assert_true(live_of(of).blocks == 1 && live_of(of).bytes == (double)lm_record_usable(p[0]));
  void *late = take(of, 5000);
  assert_int_equal(lm_sample_set(2), LOAM_OK); /* the session goes on with another interval */
  assert_int_equal(total_of(of).blocks, 2);
  loam_free(late);
  for (int i = 0; i < KEPT; i++) loam_free(p[i]);
  assert_int_equal(total_of(of).blocks, 2);
  assert_true(live_of(of).samples == 0 && live_of(of).blocks == 0 && live_of(of).bytes == 0);
  end();
}

static uint64_t bookkeeping(void) {
  struct loam_stats now;
  assert_int_equal(loam_stats(&now), LOAM_OK);
  return now.metadata_bytes;
}

static void tables_count_as_far_as_they_are_filled(void **state) {
  enum { EACH = 1, BLOCKS = 60000 };
  static void *p[BLOCKS];
  (void)state;
  CHAIN(host("plain"));
  loam_site *of = tag("sample.tables");
  begin(EACH);
  loam_trim(); /* else what earlier tests left idle may go back during this one */
  uint64_t before = bookkeeping();
  assert_true(before < 8 * LM_MIB);   /* the tables could have 23 MiB */
  uint32_t used = lm_sample_all.used; /* those that earlier tests have used are used again */
  for (int i = 0; i < BLOCKS; i++) p[i] = take(of, 32);
  assert_true(lm_sample_all.used > used && lm_sample_all.used >= BLOCKS / 2);
  uint64_t filled = (lm_sample_all.used - used) * sizeof(lm_sample_live);
  assert_in_range(bookkeeping() - before, filled / 2, filled + 2 * LM_MIB);
  for (int i = 0; i < BLOCKS; i++) loam_free(p[i]);
  end();
}

/* ---- threads ---- */

enum { HANDS = 4, ROUNDS = 3000, SLOTS = 64 };
static void *_Atomic shared[SLOTS];
static loam_site *churned;

/* Takes blocks and puts them where any thread may free them. */
static void *churn_shared(void *arg) {
  uint64_t seed = (uintptr_t)arg;
  lm_sample_seed(lm_thread_get(), seed);
  for (int i = 0; i < ROUNDS; i++) {
    void *p = take(churned, 1 + chance(&seed, 3000));
    loam_free(atomic_exchange(&shared[chance(&seed, SLOTS)], p));
  }
  return NULL;
}

static void blocks_that_any_thread_frees_leave_no_sample(void **state) {
  pthread_t thread[HANDS];
  (void)state;
  CHAIN(host("plain"));
  churned = tag("sample.churn_shared");
  begin(2000);
  for (uintptr_t i = 0; i < HANDS; i++) thread[i] = start_thread(churn_shared, (void *)(i + 1));
  for (int i = 0; i < 20; i++) { /* both sampling and the policy change while the threads run */
    assert_int_equal(lm_sample_set(i % 3 ? 1000 : 0), LOAM_OK);
    if (i % 2) CHAIN(host("plain"));
    else CHAIN(host("spare"));
    usleep(1000);
  }
  for (int i = 0; i < HANDS; i++) pthread_join(thread[i], NULL);
  assert_true(lm_sample_is_valid());
  for (int i = 0; i < SLOTS; i++) loam_free(atomic_exchange(&shared[i], NULL));
  assert_int_equal(live_of(churned).samples, 0);
  end();
}

static void a_forked_child_has_samples_of_its_own(void **state) {
  (void)state;
  CHAIN(host("plain"));
  loam_site *of = tag("sample.fork");
  begin(1);
  void *p = take(of, 100);
  pid_t child = fork();
  if (!child) {
    bool ok = live_of(of).samples == 1;
    loam_free(p);
    ok = ok && live_of(of).samples == 0;
    void *q = loam_malloc(of, 5000);
    ok = ok && live_of(of).samples == 1 && lm_sample_is_valid();
    loam_free(q);
    _exit(ok ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(live_of(of).samples, 1);
  loam_free(p);
  end();
}

/* ---- stacks ---- */

static LM_NOINLINE void *at_one_place(loam_site *of) {
  void *p = take(of, 100);
  __asm__ volatile("" : : "r"(p) : "memory"); /* no tail call */
  return p;
}
static LM_NOINLINE void *at_another_place(loam_site *of) {
  void *p = at_one_place(of);
  __asm__ volatile("" : : "r"(p) : "memory");
  return p;
}

static const lm_stack *row_of(const loam_site *of, uint32_t n) {
  const lm_stacks *stacks = &lm_sample_all.stacks;
  for (uint32_t i = 0; i < stacks->count; i++)
    if (stacks->row[i].site == of->index && !n--) return &stacks->row[i];
  return NULL;
}

/* Returns whether an address is within 200 bytes of the function's start. The length of the
 * function is not known. */
static bool is_in(uint64_t address, void *(*function)(loam_site *)) {
  return address - (uintptr_t)function < 200;
}

static void a_stack_has_the_callers(void **state) {
  (void)state;
  CHAIN(host("plain"));
  loam_site *of = tag("sample.stack");
  begin(1);
  for (int i = 0; i < 3; i++) loam_free(at_one_place(of)), loam_free(at_another_place(of));
  const lm_stack *first = row_of(of, 0);
  bool one = false, another = false, mine = false;
  assert_non_null(first);
  for (uint32_t n = 0; row_of(of, n); n++)
    for (uint32_t i = 0; i < row_of(of, n)->frames; i++) {
      uint64_t at = row_of(of, n)->frame[i];
      one |= is_in(at, at_one_place);
      another |= is_in(at, at_another_place);
      mine |= at > (uintptr_t)a_stack_has_the_callers;
    }
  assert_true(one && another && mine);
  end();
}

static void stacks_without_a_row_are_counted_together(void **state) {
  lm_stacks stacks = { 0 };
  lm_stack like = { .site = LM_SITE_FIRST, .frames = 1 };
  (void)state;
  assert_true(lm_stacks_make(&stacks) && lm_stacks_is_valid(&stacks));
  for (uint32_t i = 1; i < LM_STACKS; i++) {
    like.hash = i / 3; /* so that three rows have one place each */
    like.frame[0] = i;
    assert_int_equal(lm_stacks_get(&stacks, &like), i);
    assert_int_equal(lm_stacks_get(&stacks, &like), i);
  }
  like.frame[0] = 0;
  assert_int_equal(lm_stacks_get(&stacks, &like), 0);
  assert_int_equal(stacks.unfit, 1);
  assert_true(lm_stacks_is_valid(&stacks));
  lm_stacks_free(&stacks);
}

static void a_block_that_cannot_be_resized_stays_a_sample(void **state) {
  (void)state;
  CHAIN(intern((lm_desc){ .limit = 4 * LM_MIB }, "limited"));
  begin(1); /* every block */
  static const size_t sizes[] = { 100, 100000 };
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    void *p = take(site, sizes[i]);
    figures before = live_of(site);
    assert_true(before.samples == 1);
    assert_null(loam_realloc(NULL, p, 8 * LM_MIB));
    figures after = live_of(site);
    assert_true(after.samples == before.samples && after.bytes == before.bytes);
    assert_true(lm_sample_is_valid());
    loam_free(p);
    assert_true(live_of(site).samples == 0);
  }
  end();
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_sampled_until_it_is_switched_on),
    cmocka_unit_test(an_interval_is_read_from_a_text),
    cmocka_unit_test(the_weight_is_one_over_the_probability),
    cmocka_unit_test(pairs_of_malloc_and_free_are_sampled_in_proportion),
    cmocka_unit_test(live_samples_stand_for_live_memory),
    cmocka_unit_test(a_sampled_block_stays_what_it_is),
    cmocka_unit_test(other_ways_to_a_block_are_sampled),
    cmocka_unit_test(blocks_of_handlers_and_counted_tags_are_sampled),
    cmocka_unit_test(blocks_near_a_limit_are_drawn_for_once),
    cmocka_unit_test(a_block_that_cannot_be_resized_stays_a_sample),
    cmocka_unit_test(samples_outlive_the_end_of_sampling_and_a_new_policy),
    cmocka_unit_test(a_new_interval_holds_at_once),
    cmocka_unit_test(a_session_has_no_sample_of_an_earlier_one),
    cmocka_unit_test(tables_count_as_far_as_they_are_filled),
    cmocka_unit_test(blocks_that_any_thread_frees_leave_no_sample),
    cmocka_unit_test(a_forked_child_has_samples_of_its_own),
    cmocka_unit_test(a_stack_has_the_callers),
    cmocka_unit_test(stacks_without_a_row_are_counted_together),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}
