/* test_rebalance.c - live memory follows the policy: which blocks move, which are refused, and that
 * a program can use and free the memory all the time. The tests need only one NUMA node; tests/vm
 * tests moves between nodes. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "chance.h"
#include "heap/pool.h"
#include "heap/tails.h"
#include "heap/walk.h"
#include "plan/site.h"
#include "rebalance_fixture.h"

/* ---- the kernel's view: kB of a field in /proc/self/smaps, over the mappings of a range ---- */

static size_t mapped(const char *field, const void *at, size_t size) {
  char line[512];
  unsigned long from, to;
  size_t sum = 0, length = strlen(field);
  bool ours = false;
  FILE *f = fopen("/proc/self/smaps", "r");
  assert_non_null(f);
  while (fgets(line, sizeof line, f)) {
    if (sscanf(line, "%lx-%lx ", &from, &to) == 2 && strchr(line, '-') < strchr(line, ' '))
      ours = from < (uintptr_t)at + size && to > (uintptr_t)at;
    else if (ours && !strncmp(line, field, length)) sum += strtoul(line + length, NULL, 10);
  }
  fclose(f);
  return sum;
}

/* ---- moves ---- */

static void huge_pages_are_made_of_live_ones_and_split_again(void **state) {
  (void)state;
  load(PLAIN);
  char *p = filled("huge", 16 * MiB);
  assert_int_equal(mapped("AnonHugePages:", p, 16 * MiB), 0);
  load("loam.host { name = 'thp', huge = 'thp' }");
  rebalance_tag("huge");
  assert_string_equal(strategy_of(p), "thp");
  is_filled(p, 16 * MiB);
  size_t huge_kib = mapped("AnonHugePages:", p, 16 * MiB);
  if (huge_kib < 14 << 10) { /* a full machine may have no free huge page */
    print_message("this kernel made %zu KiB huge of 16 MiB of live pages\n", huge_kib);
    loam_free(p);
    skip();
  }
  assert_in_range(huge_kib, 14 << 10, 16 << 10);
  load(PLAIN);
  rebalance_tag("huge");
  assert_string_equal(strategy_of(p), "plain");
  assert_int_equal(mapped("AnonHugePages:", p, 16 * MiB), 0);
  is_filled(p, 16 * MiB);
  loam_free(p);
}

static void pages_are_locked_and_let_go(void **state) {
  (void)state;
  if (!is_lockable(4 * MiB)) {
    print_message("not tried: 4 MiB cannot be locked here\n");
    skip();
  }
  load(PLAIN);
  char *p = filled("lock", 3 * MiB);
  load("loam.host { name = 'locked', lock = true }");
  rebalance_tag("lock");
  assert_string_equal(strategy_of(p), "locked");
  /* Sanitizers replace mlock by a function that does nothing. */
  if (!SANITIZED) assert_in_range(mapped("Locked:", p, 3 * MiB), 3 << 10, 4 << 10);
  load(PLAIN);
  rebalance_tag("lock");
  assert_string_equal(strategy_of(p), "plain");
  assert_int_equal(mapped("Locked:", p, 3 * MiB), 0);
  is_filled(p, 3 * MiB);
  loam_free(p);
}

enum { OBJECTS = 3000 };

static void small_objects_move_where_all_of_their_span_want_it(void **state) {
  (void)state;
  static char *p[OBJECTS];
  load("loam.host { name = 'small-before' }");
  for (int i = 0; i < OBJECTS; i++) p[i] = filled("small.of", 700);
  load("loam.host { name = 'small-after', huge = 'thp' }");
  rebalance_tag("small");
  assert_int_equal(report.moved, OBJECTS * 768);
  assert_int_equal(report.refused, 0);
  load(PLAIN);
  for (int i = 0; i < OBJECTS; i++) {
    assert_string_equal(strategy_of(p[i]), "small-after");
    assert_string_equal(strategy_of(p[i] + 699), "small-after");
    is_filled(p[i], 700);
    loam_free(p[i]);
  }
  assert_true(lm_pool_is_valid());
}

/* The objects of one span have more tags than a survey of the span keeps answers for. */
static void objects_of_many_tags_in_one_span_are_all_asked_about(void **state) {
  (void)state;
  enum { TAGS = 40 };
  static char *p[TAGS];
  load("loam.host { name = 'many-before' }");
  for (int i = 0; i < TAGS; i++) {
    char tag[32];
    snprintf(tag, sizeof tag, "many.%d", i);
    p[i] = filled(tag, 900);
  }
  load("loam.host { name = 'many-after', huge = 'thp' }");
  rebalance_tag("many");
  assert_int_equal(report.moved, TAGS * loam_usable_size(p[0]));
  for (int i = 0; i < TAGS; i++) {
    assert_string_equal(strategy_of(p[i]), "many-after");
    loam_free(p[i]);
  }
}

static void freed_objects_serve_the_new_strategy(void **state) {
  (void)state;
  static char *p[OBJECTS];
  static const char after[] = "loam.host { name = 'reused-after', huge = 'thp' }";
  load("loam.host { name = 'reused-before' }");
  for (int i = 0; i < OBJECTS; i++) p[i] = filled("reused", 200);
  load(after);
  rebalance_tag("reused");
  uintptr_t low = UINTPTR_MAX, high = 0;
  for (int i = 0; i < OBJECTS; i++) {
    if ((uintptr_t)p[i] < low) low = (uintptr_t)p[i];
    if ((uintptr_t)p[i] > high) high = (uintptr_t)p[i];
    loam_free(p[i]);
  }
  int reused = 0;
  for (int i = 0; i < OBJECTS; i++) {
    p[i] = filled("reused", 200);
    assert_string_equal(strategy_of(p[i]), "reused-after");
    reused += (uintptr_t)p[i] >= low && (uintptr_t)p[i] <= high;
  }
  assert_in_range(reused, OBJECTS / 2, OBJECTS);
  for (int i = 0; i < OBJECTS; i++) loam_free(p[i]);
  assert_true(lm_pool_is_valid());
}

static void a_freed_large_block_serves_the_new_strategy(void **state) {
  (void)state;
  load("loam.host { name = 'large-before' }");
  char *p = filled("large", 300000);
  load("loam.host { name = 'large-after', huge = 'thp' }");
  rebalance_tag("large");
  loam_free(p);
  char *q = filled("large", 300000);
  assert_ptr_equal(p, q); /* the thread's bin gives the block again */
  assert_string_equal(strategy_of(q), "large-after");
  loam_free(q);
  assert_true(lm_pool_is_valid());
}

static uint64_t generation_of(const void *p) {
  loam_owner_info owner;
  assert_int_equal(loam_owner(p, &owner), LOAM_OK);
  return owner.generation;
}

static void the_generation_is_the_one_that_decided_last(void **state) {
  (void)state;
  load("loam.host { name = 'g1' }");
  char *p = filled("generation", 100000), *q = filled("generation", 100);
  uint64_t before = generation_of(p);
  load("loam.host { name = 'g2' }");
  rebalance_tag("generation");
  assert_int_equal(generation_of(p), before + 1);
  assert_int_equal(generation_of(q), before + 1);
  loam_free(p);
  loam_free(q);
}

static int64_t used_of(const char *name) {
  for (uint32_t id = 0; id < lm_strategy_count(); id++)
    if (!strcmp(lm_strategy_at(id)->desc.name, name)) return lm_strategy_at(id)->used;
  return -1;
}

static void limits_follow(void **state) {
  (void)state;
  load("loam.host { name = 'limit-before', limit = 64 * loam.MiB }");
  char *p = filled("limits", 5 * MiB), *q = filled("limits", 1000);
  load("loam.host { name = 'limit-after', limit = 32 * loam.MiB }");
  rebalance_tag("limits");
  loam_trim();
  assert_int_equal(used_of("limit-before"), 0);
  assert_int_equal(used_of("limit-after"), 5 * MiB + 1024);
  loam_free(p);
  loam_free(q);
  loam_trim();
  assert_int_equal(used_of("limit-after"), 0);
}

static void what_is_right_is_left_alone(void **state) {
  (void)state;
  load("loam.host { name = 'same' }");
  char *p = filled("same", 100000), *q = filled("same", 100);
  rebalance_tag("same");
  assert_int_equal(report.moved, 0);
  assert_int_equal(report.right, loam_usable_size(p) + loam_usable_size(q));
  loam_free(p);
  loam_free(q);
}

/* ---- refusals ---- */

static void a_page_shared_with_others_stays(void **state) {
  (void)state;
  load(PLAIN);
  char *p = filled("shared", 100), *q = filled("stays.here", 100);
  load("loam.host { name = 'elsewhere' }");
  rebalance_tag("shared");
  assert_string_equal(strategy_of(p), "plain");
  refused_as("shares its pages");
  loam_free(p);
  loam_free(q);
}

static void a_strategy_at_its_limit_takes_no_more(void **state) {
  (void)state;
  load(PLAIN);
  char *p = filled("full", 2 * MiB), *q = filled("full", 2 * MiB);
  load("loam.host { name = 'full', limit = 3 * loam.MiB }");
  rebalance_tag("full");
  assert_int_equal(report.moved, 2 * MiB);
  assert_int_equal(report.refused, 2 * MiB);
  refused_as("limit");
  loam_free(p);
  loam_free(q);
  loam_trim();
  assert_int_equal(used_of("full"), 0);
}

static void a_member_further_on_is_where_the_chain_would_put_it(void **state) {
  (void)state;
  load(PLAIN);
  char *p = filled("chain", 2 * MiB);
  load("loam.host { name = 'tight', limit = loam.MiB }:or_else(plain)");
  rebalance_tag("chain");
  assert_int_equal(report.right, 2 * MiB);
  load("loam.host { name = 'roomy', limit = 4 * loam.MiB }:or_else(plain)");
  rebalance_tag("chain");
  assert_int_equal(report.moved, 2 * MiB);
  loam_free(p);
}

static void *pass_malloc(void *ctx, size_t size) {
  (void)ctx;
  return malloc(size);
}
static void *pass_calloc(void *ctx, size_t n, size_t size) {
  (void)ctx;
  return calloc(n, size);
}
static void *pass_realloc(void *ctx, void *p, size_t size) {
  (void)ctx;
  return realloc(p, size);
}
static void pass_free(void *ctx, void *p, size_t size) {
  (void)ctx;
  (void)size;
  free(p);
}

static void blocks_keep_their_handler(void **state) {
  (void)state;
  static const loam_handler pass = { "pass",
                                     1,
                                     { NULL, pass_malloc, pass_calloc, pass_realloc, pass_free } };
  assert_int_equal(loam_handler_register(&pass), LOAM_OK);
  load("loam.handler 'pass'");
  char *p = filled("handled", 100000);
  load("loam.system {}");
  char *q = filled("handled", 100000);
  load("loam.host { name = 'ours' }");
  rebalance_tag("handled");
  assert_int_equal(report.moved, 0);
  assert_true(report.refused >= 200000);
  loam_free(p);
  loam_free(q);
  load(PLAIN);
  p = filled("handled", 100000);
  load("loam.handler 'pass'");
  rebalance_tag("handled");
  refused_as("another kind");
  loam_free(p);
}

static void guards_alignment_and_denial_are_reported(void **state) {
  (void)state;
  load(PLAIN);
  char *p = filled("odd", 70000);
  load("loam.host { name = 'guarded', guard = true }");
  rebalance_tag("odd");
  refused_as("guard page");
  load("loam.host { name = 'far-aligned', align = loam.GiB }");
  rebalance_tag("odd");
  refused_as("aligned");
  load("loam.deny {}");
  rebalance_tag("odd");
  refused_as("denies");
  loam_free(p);
  load("loam.host { name = 'guarded', guard = true }");
  p = filled("odd", 70000);
  load(PLAIN);
  rebalance_tag("odd");
  refused_as("guarded block");
  loam_free(p);
}

static void unknown_properties_of_a_request_are_not_guessed(void **state) {
  (void)state;
  load_text("local a, b = loam.host{name='a'}, loam.host{name='b'}\n"
            "return loam.policy{pick=function(r) if r.zero then return a end return b end}\n");
  char *p = filled("unknown", 100000);
  char *z = loam_calloc(loam_site_get("unknown"), 1, 100000);
  rebalance_tag("unknown");
  assert_int_equal(report.right, 2 * loam_usable_size(p));
  load_text("local a, c = loam.host{name='a'}, loam.host{name='c'}\n"
            "return loam.policy{pick=function(r) if r.zero then return a end return c end}\n");
  rebalance_tag("unknown");
  assert_string_equal(strategy_of(p), "b");
  assert_string_equal(strategy_of(z), "a");
  refused_as("does not keep");
  loam_free(p);
  loam_free(z);
}

/* ---- while the program runs ---- */

enum { THREADS = 3, SLOTS = 96, ROUNDS = SANITIZED ? 8 : 40 };
static _Atomic bool stop;

static size_t some_size(uint64_t *seed) {
  switch (chance(seed, 4)) {
    case 0: return 1 + chance(seed, 400000);
    case 1: return 1 + chance(seed, 4000);
    default: return 1 + chance(seed, 600);
  }
}

static void mark(char *p, size_t size) { p[0] = p[size - 1] = (char)size; }
static void is_marked(const char *p, size_t size) {
  if (p[0] != (char)size || (size > 1 && p[size - 1] != (char)size)) abort();
}

static void *churn(void *arg) {
  uint64_t seed = (uintptr_t)arg + 77;
  loam_site *site[2] = { loam_site_get("churn.one"), loam_site_get("stays.churn") };
  char *p[SLOTS] = { 0 };
  size_t size[SLOTS] = { 0 };
  while (!stop) {
    uint32_t i = chance(&seed, SLOTS);
    loam_site *s = site[chance(&seed, 8) == 0];
    size_t next = some_size(&seed);
    if (p[i]) is_marked(p[i], size[i]);
    if (p[i] && chance(&seed, 4)) {
      loam_free(p[i]);
      p[i] = NULL;
      continue;
    }
    char *q = p[i] ? loam_realloc(NULL, p[i], next) : loam_malloc(s, next);
    if (!q) abort();
    if (p[i] && q[0] != (char)size[i]) abort();
    mark(p[i] = q, size[i] = next);
  }
  for (int i = 0; i < SLOTS; i++) {
    if (p[i]) is_marked(p[i], size[i]);
    loam_free(p[i]);
  }
  return NULL;
}

static const char *const places[] = {
  "loam.host { name = 'churn-0' }",
  "loam.host { name = 'churn-1', huge = 'thp' }",
  "loam.host { name = 'churn-2', limit = 512 * loam.MiB }",
  "loam.host { name = 'churn-3', huge = false, align = 64 }",
};

static const char *const place_names[] = { "churn-0", "churn-1", "churn-2", "churn-3" };

static void add_live(void *ctx, const loam_stats_row *row) {
  uint64_t *sum = ctx;
  if (!strncmp(row->tag, "churn", 5)) *sum += row->live_blocks;
}
static uint64_t live_of(const char *tag) {
  uint64_t sum = 0;
  (void)tag;
  assert_int_equal(loam_stats_each(add_live, &sum), LOAM_OK);
  return sum;
}

/* Every round must move the block `still`, which is not freed. The blocks of the threads may be
 * freed before a round can move them. */
static void threads_use_and_free_what_is_moved(void **state) {
  (void)state;
  enum { STILL = 300000 };
  pthread_t thread[THREADS];
  load(places[3]);
  char *still = filled("churn.still", STILL);
  stop = false;
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, churn, (void *)i);
  for (int round = 0; round < ROUNDS; round++) {
    load(places[round % 4]);
    rebalance();
    assert_true(report.moved >= STILL);
    assert_string_equal(strategy_of(still), place_names[round % 4]);
  }
  stop = true;
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  is_filled(still, STILL);
  loam_free(still);
  assert_true(lm_pool_is_valid());
  assert_int_equal(live_of("churn"), 0);
  loam_trim();
  assert_int_equal(used_of("churn-2"), 0);
}

/* The live bytes of a tag whose policy reads req.live stay exact while its blocks are moved. */
static void counted_tags_stay_exact(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  static const char counted[] = "local a = loam.host { name = 'counted-%d' }\n"
                                "return loam.policy { pick = function(req)\n"
                                "  if req.tag:under('churn') and req.live > 2 ^ 50 then return a "
                                "end return a end }\n";
  char text[512];
  stop = false;
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, churn, (void *)i);
  for (int round = 0; round < (SANITIZED ? 4 : 20); round++) {
    snprintf(text, sizeof text, counted, round % 3);
    load_text(text);
    rebalance();
  }
  stop = true;
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  assert_int_equal(*loam_site_get("churn.one")->live, 0);
  assert_true(lm_pool_is_valid());
}

/* A walk visits every live block, even while the block moves to another strategy. */
static void a_walk_passes_over_nothing_that_is_moved(void **state) {
  (void)state;
  enum { BLOCKS = 64 };
  char *p[BLOCKS];
  load(places[0]);
  for (int i = 0; i < BLOCKS; i++) p[i] = filled("churn.walked", i % 2 ? 300 : 100000);
  lm_job_order order = { .rate = UINT64_MAX };
  for (int round = 1; round < 12; round++) {
    load(places[round % 4]);
    assert_int_equal(lm_rebalance_begin(&order, LM_JOB_SERVICE), LOAM_OK);
    while (lm_rebalance_step(LM_JOB_SERVICE) >= 0) {
      assert_int_equal(live_of("churn"), BLOCKS);
      assert_true(lm_rebalance_is_valid());
    }
  }
  for (int i = 0; i < BLOCKS; i++) loam_free(p[i]);
}

enum { WALKED = 3000 };

/* The objects that a walk visits, each of which contains its number. */
static struct {
  uint32_t *p[WALKED];
  unsigned visits[WALKED], n;
} walked;

static void *moves_all(void *unused) {
  (void)unused;
  load(places[1 + walked.n / (WALKED / 2) % 2]);
  rebalance();
  return NULL;
}

/* After one third of the walk, and after two thirds, all blocks move to another strategy. */
static void note_walked(void *ctx, const lm_object *object) {
  const uint32_t *p = object->base;
  pthread_t thread;
  (void)ctx;
  if (*p >= WALKED || walked.p[*p] != p) return;
  walked.visits[*p]++;
  walked.n++;
  if (walked.n != WALKED / 3 && walked.n != WALKED * 2 / 3) return;
  assert_int_equal(pthread_create(&thread, NULL, moves_all, NULL), 0);
  pthread_join(thread, NULL);
  assert_true(report.moved >= WALKED * 100);
}

static void a_walk_goes_on_in_what_becomes_another_strategys(void **state) {
  (void)state;
  load(places[0]);
  for (uint32_t i = 0; i < WALKED; i++) {
    walked.p[i] = (void *)filled("walked", i % 100 ? 100 : 100000);
    *walked.p[i] = i;
  }
  walked.n = 0;
  lm_walk_each(note_walked, NULL);
  for (int i = 0; i < WALKED; i++) {
    assert_int_equal(walked.visits[i], 1);
    assert_string_equal(strategy_of((void *)walked.p[i]), "churn-2");
    loam_free(walked.p[i]);
  }
  assert_true(lm_pool_is_valid());
}

static void what_is_freed_amid_a_move_is_given_back(void **state) {
  (void)state;
  lm_job_order order = { .rate = UINT64_MAX };
  load("loam.host { name = 'amid-before', limit = 64 * loam.MiB }");
  char *p = filled("amid", 9 * MiB), *q = filled("amid", 9 * MiB), *small = filled("amid", 500);
  load("loam.host { name = 'amid-after', limit = 64 * loam.MiB }");
  assert_int_equal(lm_rebalance_begin(&order, LM_JOB_SERVICE), LOAM_OK);
  for (int i = 0; i < 2; i++) assert_true(lm_rebalance_step(LM_JOB_SERVICE) >= 0);
  assert_int_equal(lm_rebalance_begin(&order, LM_JOB_SERVICE), LOAM_ESTATE);
  loam_free(p); /* the two steps have already claimed this block */
  loam_free(small);
  q = loam_realloc(NULL, q, 10 * MiB);
  is_filled(q, 9 * MiB);
  assert_string_equal(strategy_of(q), "amid-after");
  while (lm_rebalance_step(LM_JOB_SERVICE) >= 0) continue;
  loam_trim();
  assert_int_equal(used_of("amid-before"), 0);
  assert_int_equal(used_of("amid-after"), 10 * MiB);
  loam_free(q);
  assert_true(lm_pool_is_valid());
}

static void *rebalance_claimed(void *unused) {
  rebalance_tag("claimed");
  return unused;
}

static _Atomic int cutter; /* the id of the thread that cuts tails */

static void *cut_tails(void *unused) {
  (void)lm_thread_get();
  cutter = lm_sys_thread_id();
  lm_tails_cut();
  return unused;
}

static bool is_asleep(int tid) {
  char path[64], text[512];
  size_t length;
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
  return tid && !lm_sys_read_file(path, text, sizeof text, &length) && strstr(text, ") S ");
}

/* This thread was about to resize the block as the job claimed it, and so undoes the claim. Then
 * tails are cut, which claims the block too. */
static void the_job_takes_no_claim_of_another_for_its_own(void **state) {
  (void)state;
  struct rlimit before, limit = { RLIM_INFINITY - 1, RLIM_INFINITY }; /* sanitizers map much */
  lm_thread *t = lm_thread_get();
  load("loam.host { name = 'claimed-before' }");
  char *p = filled("claimed", 100000); /* a tail of 28 KiB */
  load("loam.host { name = 'claimed-after', huge = false }");
  lm_span *head = lm_map_span(lm_map_slot(p));
  assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
  limit.rlim_max = before.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
  lm_tails_learn();
  lm_thread_enter(t);
  pthread_t job = start_thread(rebalance_claimed, NULL);
  while (head->use != LM_USE_MOVING) sched_yield();
  lm_map_extent(lm_map_slot(p), head->slots, LM_USE_LARGE);
  pthread_t tails = start_thread(cut_tails, NULL);
  while (!is_asleep(cutter)) sched_yield();
  lm_thread_leave(t);
  pthread_join(job, NULL);
  pthread_join(tails, NULL);
  assert_int_equal(report.moved, 0);
  refused_as("it was just being freed or resized");
  assert_string_equal(strategy_of(p), "claimed-before");
  assert_int_equal(head->use, LM_USE_UNPREPARED); /* its tail was cut */
  is_filled(p, 100000);
  assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
  lm_tails_learn();
  loam_free(p);
  assert_true(lm_pool_is_valid());
}

/* ---- a job ends early ---- */

static int stop_after_one(void *ctx, const loam_progress *now) {
  (void)ctx;
  return now->moved > 0 || now->done > 0;
}

static int stop_at_once(void *ctx, const loam_progress *now) {
  ++*(int *)ctx;
  (void)now;
  return *(int *)ctx == 2;
}

static void it_can_be_ended_at_any_moment(void **state) {
  (void)state;
  char *p[24];
  int calls = 0;
  load("loam.host { name = 'ended-before' }");
  for (int i = 0; i < 24; i++) p[i] = filled("ended", 6 * MiB);
  load("loam.host { name = 'ended-after', huge = 'thp' }");
  loam_rebalance_options options = { .size = sizeof options, .rate = UINT64_MAX };
  assert_int_equal(loam_rebalance(&options, stop_at_once, NULL, &calls), LOAM_OK);
  assert_string_equal(strategy_of(p[23]), "ended-before");
  assert_int_equal(loam_rebalance(&options, stop_after_one, NULL, NULL), LOAM_OK);
  assert_true(lm_pool_is_valid());
  rebalance_tag("ended");
  for (int i = 0; i < 24; i++) {
    assert_string_equal(strategy_of(p[i]), "ended-after");
    is_filled(p[i], 6 * MiB);
    loam_free(p[i]);
  }
  assert_true(lm_pool_is_valid());
}

static int pass_a_cancellation_point(void *ctx, const loam_progress *now) {
  (void)now;
  ++*(int *)ctx;
  pthread_testcancel();
  return 0;
}

static void *be_cancelled_in_progress(void *calls) {
  pthread_cancel(pthread_self());
  (void)loam_rebalance(NULL, pass_a_cancellation_point, NULL, calls);
  pthread_testcancel();
  return NULL;
}

/* The thread is cancelled but completes its job, so that the next job can begin. */
static void a_thread_that_is_cancelled_completes_its_job(void **state) {
  (void)state;
  pthread_t thread;
  int calls = 0;
  void *end = NULL;
  load("loam.host { name = 'cancelled-before' }");
  char *p = filled("cancelled", 6 * MiB);
  load("loam.host { name = 'cancelled-after', huge = 'thp' }");
  assert_int_equal(pthread_create(&thread, NULL, be_cancelled_in_progress, &calls), 0);
  pthread_join(thread, &end);
  assert_ptr_equal(end, PTHREAD_CANCELED);
  assert_true(calls > 0);
  assert_string_equal(strategy_of(p), "cancelled-after");
  assert_int_equal(loam_rebalance(NULL, NULL, NULL, NULL), LOAM_OK);
  loam_free(p);
}

/* Begins a job in a thread that gets no memory for its area. */
static void *begin_without_an_area(void *status) {
  lm_sys_refuse_from(1);
  *(loam_status *)status = loam_rebalance(NULL, NULL, NULL, NULL);
  lm_sys_refuse_from(0);
  return NULL;
}

static void a_thread_that_cannot_do_a_job_begins_none(void **state) {
  (void)state;
  pthread_t thread;
  loam_status status = LOAM_OK;
  lm_thread_trim_vacant(); /* else the thread gets the area of a thread that has ended */
  assert_int_equal(pthread_create(&thread, NULL, begin_without_an_area, &status), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(status, LOAM_ENOMEM);
  assert_int_equal(loam_rebalance(NULL, NULL, NULL, NULL), LOAM_OK);
}

static void a_forked_child_has_its_memory_to_itself(void **state) {
  (void)state;
  lm_job_order order = { .rate = UINT64_MAX };
  load("loam.host { name = 'fork-before' }");
  char *p[8], *small = filled("forked", 300);
  for (int i = 0; i < 8; i++) p[i] = filled("forked", 6 * MiB);
  load("loam.host { name = 'fork-after' }");
  assert_int_equal(lm_rebalance_begin(&order, LM_JOB_SERVICE), LOAM_OK);
  for (int i = 0; i < 4; i++) assert_true(lm_rebalance_step(LM_JOB_SERVICE) >= 0);
  loam_free(p[7]);
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 7; i++) {
      is_filled(p[i], 6 * MiB);
      loam_free(p[i]);
    }
    loam_free(small);
    rebalance();
    char *q = filled("forked", 6 * MiB);
    loam_free(q);
    _exit(lm_pool_is_valid() ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  while (lm_rebalance_step(LM_JOB_SERVICE) >= 0) continue;
  for (int i = 0; i < 7; i++) {
    assert_string_equal(strategy_of(p[i]), "fork-after");
    loam_free(p[i]);
  }
  loam_free(small);
  assert_true(lm_pool_is_valid());
}

/* ---- forks during a job of another thread: fork takes all locks in one order ---- */

static void *move_to_and_fro(void *unused) {
  (void)unused;
  for (int i = 0; !stop; i++) {
    load(places[i % 4]);
    rebalance_tag("churn");
  }
  return NULL;
}

/* Runs in the child: uses, frees and moves inherited memory, and loads a policy. */
static int go_on_alone(void *kept) {
  char *const *p = kept;
  for (int i = 0; i < 4; i++) {
    is_filled(p[i], 300000);
    loam_free(p[i]);
  }
  char *q = filled("churn.child", 300000);
  load("loam.host { name = 'churn-child' }");
  rebalance_tag("churn.child");
  if (strcmp(strategy_of(q), "churn-child") != 0) return 1;
  loam_free(q);
  return lm_pool_is_valid() ? 0 : 2;
}

static void any_moment_of_a_job_may_be_forked(void **state) {
  (void)state;
  char *p[4];
  load(places[0]);
  for (int i = 0; i < 4; i++) p[i] = filled("churn.forked", 300000);
  stop = false;
  alarm(4 * PATIENCE_S);
  pthread_t mover = start_thread(move_to_and_fro, NULL), user = start_thread(churn, NULL);
  for (int i = 0; i < (SANITIZED ? 15 : 100); i++)
    assert_int_equal(run_in_child(go_on_alone, p), 0);
  stop = true;
  pthread_join(mover, NULL);
  pthread_join(user, NULL);
  alarm(0);
  for (int i = 0; i < 4; i++) {
    is_filled(p[i], 300000);
    loam_free(p[i]);
  }
  assert_true(lm_pool_is_valid());
}

static void try_refused(const char *before, const char *after, long nth) {
  load(before);
  char *p = filled("refused", 5 * MiB), *q = filled("refused", 70000), *s = filled("refused", 90);
  load(after);
  loam_rebalance_options options = { .size = sizeof options, .rate = UINT64_MAX, .tag = "refused" };
  lm_sys_refuse(nth);
  loam_status status = loam_rebalance(&options, NULL, NULL, NULL);
  lm_sys_refuse(0);
  assert_true(status == LOAM_OK || status == LOAM_ENOMEM);
  is_filled(p, 5 * MiB);
  is_filled(q, 70000);
  is_filled(s, 90);
  assert_true(lm_pool_is_valid());
  loam_free(p);
  loam_free(q);
  loam_free(s);
  assert_true(lm_pool_is_valid());
}

static void no_refusal_of_the_system_loses_anything(void **state) {
  (void)state;
  bool lock = is_lockable(64 * MiB);
  const char *const pairs[][2] = {
    { "loam.host { name = 'nth', huge = false }",
      "loam.host { name = 'nth', huge = 'thp', lock = true, limit = loam.GiB }" },
    { lock ? "loam.host { name = 'nth', numa = 'local', lock = true, limit = loam.GiB }"
           : "loam.host { name = 'nth', numa = 'local', limit = loam.GiB }",
      "loam.host { name = 'nth', numa = 'interleave', prefault = true }" },
  };
  if (!lock) print_message("not tried with memory that is locked: 64 MiB cannot be\n");
  for (int i = 0; i < 2; i++) {
    lm_sys_refuse(0);
    long calls = 0;
    for (long nth = 1; nth <= calls || nth == 1; nth++) {
      long before = lm_sys_calls();
      try_refused(pairs[i][0], pairs[i][1], nth);
      if (nth == 1) calls = lm_sys_calls() - before;
      if (calls > 60) calls = 60;
    }
  }
  loam_trim();
  assert_int_equal(used_of("nth"), 0);
}

/* ---- nodes that do not exist ---- */

static void a_node_that_refuses_leaves_all_as_it_was(void **state) {
  (void)state;
  char folder[] = "/tmp/loam-rebalance-XXXXXX", command[256];
  if (lm_numa_nodes() != 1) skip();
  assert_non_null(mkdtemp(folder));
  snprintf(command, sizeof command,
           "cd %s && echo 0-1 >online && echo 0-1 >has_memory && echo 0 >has_cpu && mkdir node0 "
           "node1 && "
           "echo 'Node 0 MemTotal: 1000 kB' | tee node0/meminfo >node1/meminfo",
           folder);
  assert_int_equal(system(command), 0);
  load("loam.host { name = 'node-before' }");
  char *p = filled("pretended", 3 * MiB), *q = filled("pretended", 100);
  lm_numa_pretend(folder, 3);
  load("loam.host { name = 'node-after', numa = 1 }");
  rebalance_tag("pretended");
  assert_string_equal(strategy_of(p), "node-before");
  assert_string_equal(strategy_of(q), "node-before");
  assert_int_equal(report.moved, 0);
  lm_numa_pretend(NULL, 1);
  is_filled(p, 3 * MiB);
  loam_free(p);
  loam_free(q);
  assert_true(lm_pool_is_valid());
  snprintf(command, sizeof command, "rm -r %s", folder);
  assert_int_equal(system(command), 0);
}

static void bad_arguments_are_refused(void **state) {
  (void)state;
  loam_rebalance_options options = { .size = 3 };
  assert_int_equal(loam_rebalance(&options, NULL, NULL, NULL), LOAM_EINVAL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(huge_pages_are_made_of_live_ones_and_split_again),
    cmocka_unit_test(pages_are_locked_and_let_go),
    cmocka_unit_test(small_objects_move_where_all_of_their_span_want_it),
    cmocka_unit_test(objects_of_many_tags_in_one_span_are_all_asked_about),
    cmocka_unit_test(freed_objects_serve_the_new_strategy),
    cmocka_unit_test(a_freed_large_block_serves_the_new_strategy),
    cmocka_unit_test(the_generation_is_the_one_that_decided_last),
    cmocka_unit_test(limits_follow),
    cmocka_unit_test(what_is_right_is_left_alone),
    cmocka_unit_test(a_page_shared_with_others_stays),
    cmocka_unit_test(a_strategy_at_its_limit_takes_no_more),
    cmocka_unit_test(a_member_further_on_is_where_the_chain_would_put_it),
    cmocka_unit_test(blocks_keep_their_handler),
    cmocka_unit_test(guards_alignment_and_denial_are_reported),
    cmocka_unit_test(unknown_properties_of_a_request_are_not_guessed),
    cmocka_unit_test(threads_use_and_free_what_is_moved),
    cmocka_unit_test(counted_tags_stay_exact),
    cmocka_unit_test(a_walk_passes_over_nothing_that_is_moved),
    cmocka_unit_test(a_walk_goes_on_in_what_becomes_another_strategys),
    cmocka_unit_test(what_is_freed_amid_a_move_is_given_back),
    cmocka_unit_test(the_job_takes_no_claim_of_another_for_its_own),
    cmocka_unit_test(it_can_be_ended_at_any_moment),
    cmocka_unit_test(a_thread_that_is_cancelled_completes_its_job),
    cmocka_unit_test(a_thread_that_cannot_do_a_job_begins_none),
    cmocka_unit_test(a_forked_child_has_its_memory_to_itself),
    cmocka_unit_test(any_moment_of_a_job_may_be_forked),
    cmocka_unit_test(no_refusal_of_the_system_loses_anything),
    cmocka_unit_test(a_node_that_refuses_leaves_all_as_it_was),
    cmocka_unit_test(bad_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, start_without_service, NULL);
}
