/* test_stats_classes.c - counts by tag, strategy and size class are exact, live and total: for
 * every function that allocates, on threads that come and go, and in forked children. */
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "engine/stats.h"
#include "loam.h"
#include "os/error.h"

static const char *const policy =
    "local plain = loam.host { name = 'plain' }\n"
    "local wide = loam.host { name = 'wide', align = 256 }\n"
    "local guarded = loam.host { name = 'guarded', guard = true }\n"
    "local few = loam.host { name = 'few', limit = 1 * loam.MiB }\n"
    "local system = loam.system { name = 'libc' }\n"
    "return loam.policy { name = 'classes', pick = function(req)\n"
    "  if req.tag:is('c.libc') then return system end\n"
    "  if req.tag:is('c.guard') and req.size > 70000 then return guarded end\n"
    "  if req.tag:is('c.few') then return few:or_else(plain) end\n"
    "  if req.tag:is('c.live') and req.live > 100000 then return wide end\n"
    "  if req.tag:is('c.gauge') and loam.node(0).free > 2 ^ 50 then return wide end\n"
    "  if req.tag:is('c.split') and req.size > 1000 then return wide end\n"
    "  return plain\n"
    "end }\n";
static const char *const tags[] = { "c.plain", "c.live", "c.gauge", "c.split",
                                    "c.few",   "c.libc", "c.guard" };
static const char *const strategies[] = { "plain", "wide", "guarded", "few", "libc" };
enum { TAGS = LM_COUNT(tags), STRATEGIES = LM_COUNT(strategies), SYSTEM = 5 };

/* ---- What the test expects ---- */

typedef struct figures {
  int64_t live_bytes, live_blocks, total_bytes, total_blocks;
} figures;

/* A model has the figures of the blocks of one thread. Models of several threads are added up. */
typedef struct model {
  figures of[TAGS][STRATEGIES][LM_CLASSES_COUNTED];
} model;

static unsigned index_of(const char *name, const char *const *names, unsigned n) {
  for (unsigned i = 0; i < n; i++)
    if (!strcmp(names[i], name)) return i;
  fail_msg("no name '%s'", name);
  return 0;
}

/* Returns the size class of a block. Does not use the functions with which loam counts. */
static unsigned class_of(size_t usable) {
  if (usable == LM_SMALL_MAX + LM_CACHE_LINE) usable = LM_SMALL_MAX; /* objects of 64 KiB */
  for (unsigned c = 0; c < LM_CLASSES_COUNTED; c++)
    if (c != LM_CLASS_ALIGNED && c != LM_CLASSES && usable >= lm_class_counted_from(c) &&
        usable <= lm_class_counted_to(c))
      return c;
  fail_msg("no class for %zu", usable);
  return 0;
}

static figures *figures_of(model *m, const loam_owner_info *block) {
  unsigned tag = index_of(block->tag, tags, TAGS);
  unsigned strategy = index_of(block->strategy, strategies, STRATEGIES);
  return &m->of[tag][strategy][class_of(block->size)];
}

static loam_owner_info owner_of(void *p) {
  loam_owner_info info;
  assert_non_null(p);
  assert_int_equal(loam_owner(p, &info), LOAM_OK);
  return info;
}

static void note_made(model *m, void *p) {
  loam_owner_info info = owner_of(p);
  figures *f = figures_of(m, &info);
  f->live_blocks++;
  f->total_blocks++;
  f->live_bytes += (int64_t)info.size;
  f->total_bytes += (int64_t)info.size;
}

static void note_gone(model *m, const loam_owner_info *info) {
  figures *f = figures_of(m, info);
  f->live_blocks--;
  f->live_bytes -= (int64_t)info->size;
}

static void add_model(model *to, const model *from) {
  const int64_t *more = (const int64_t *)from;
  int64_t *sum = (int64_t *)to;
  for (size_t i = 0; i < sizeof *to / sizeof *sum; i++) sum[i] += more[i];
}

/* ---- What loam reports ---- */

static void add_row(void *ctx, const loam_stats_row *row, const lm_limit_use *use,
                    const lm_sums_table *classes, uint64_t key) {
  (void)use;
  model *m = ctx;
  lm_sums all = { 0 };
  for (unsigned c = 0; c <= LM_CLASS_UNKNOWN; c++) {
    const lm_sums *sums = lm_sums_find(classes, lm_sums_with_class(key, c));
    if (sums) lm_sums_add(&all, sums);
    if (!sums || strncmp(row->tag, "c.", 2)) continue;
    assert_true(c < LM_CLASSES_COUNTED);
    m->of[index_of(row->tag, tags, TAGS)][index_of(row->strategy, strategies, STRATEGIES)][c] =
        (figures){ (int64_t)sums->live_bytes, (int64_t)sums->live_blocks,
                   (int64_t)sums->total_bytes, (int64_t)sums->total_blocks };
  }
  assert_int_equal(all.live_bytes, row->live_bytes);
  assert_int_equal(all.live_blocks, row->live_blocks);
  assert_int_equal(all.total_bytes, row->total_bytes);
  assert_int_equal(all.total_blocks, row->total_blocks);
}

static bool is_equal(const figures *a, const figures *b) {
  return a->live_bytes == b->live_bytes && a->live_blocks == b->live_blocks &&
         a->total_bytes == b->total_bytes && a->total_blocks == b->total_blocks;
}

/* Returns whether loam reports the figures that the test wants. Prints the first difference. */
static bool agrees(const model *wanted) {
  static model said;
  said = (model){ 0 };
  if (lm_stats_each_row(add_row, &said) != LOAM_OK) return false;
  for (unsigned t = 0; t < TAGS; t++)
    for (unsigned s = 0; s < STRATEGIES; s++)
      for (unsigned c = 0; c < LM_CLASSES_COUNTED; c++) {
        const figures *a = &wanted->of[t][s][c], *b = &said.of[t][s][c];
        if (is_equal(a, b)) continue;
        print_error("%s, %s, to %zu: expected live %ld in %ld, ever %ld in %ld; said %ld in %ld, "
                    "%ld in %ld\n",
                    tags[t], strategies[s], lm_class_counted_to(c), a->live_bytes, a->live_blocks,
                    a->total_bytes, a->total_blocks, b->live_bytes, b->live_blocks, b->total_bytes,
                    b->total_blocks);
        return false;
      }
  return true;
}

/* ---- Threads that allocate ---- */

enum { KEPT = 300, STEPS = 6000, THREADS = 4 };

typedef struct worker {
  model m;
  uint64_t seed;
  void *kept[KEPT];
} worker;

static size_t roll(worker *w, size_t n) {
  w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
  return (size_t)(w->seed >> 33) % n;
}

/* Returns a size of any kind of class; most sizes are small. */
static size_t some_size(worker *w) {
  switch (roll(w, 12)) {
    case 0: return roll(w, 3);
    case 1: return 57345 + roll(w, 8192);
    case 2: return 65536 + roll(w, 200000);
    case 3: return roll(w, 20) ? 4096 : (size_t)(33 << 20) + roll(w, 1 << 20);
    case 4: return roll(w, 60000);
    default: return roll(w, 2000);
  }
}

/* The site that learn() passes on, for a request by code. */
static _Thread_local loam_site *missed;
static void *learn(size_t size, const void *code) { return loam_code_learn(size, code, missed); }

static const void *code_at(uintptr_t at) { return (const void *)(0x10000 + at); }

static void *some_block(worker *w, loam_site *site) {
  size_t size = some_size(w);
  missed = site;
  switch (roll(w, 5)) {
    case 0: return loam_calloc(site, 1, size);
    case 2: return loam_code_malloc(size, code_at(site->index * 64 + roll(w, 64)), learn);
    case 1: return loam_aligned_alloc(site, (size_t)16 << roll(w, 9), size);
    default: return loam_malloc(site, size);
  }
}

static void drop(worker *w, size_t i) {
  if (!w->kept[i]) return;
  loam_owner_info was = owner_of(w->kept[i]);
  loam_free(w->kept[i]);
  note_gone(&w->m, &was);
  w->kept[i] = NULL;
}

/* Resizes a small block to a small size: it stays, or its contents are copied to a new block. The
 * test makes no block with an alignment above a page, since such a block is never a small one. */
static void resize(worker *w, size_t i) {
  loam_owner_info was = owner_of(w->kept[i]);
  if (was.size > 20000 || !strcmp(was.strategy, "libc")) return;
  void *p = loam_realloc(NULL, was.base, 1 + roll(w, 20000));
  if (p == was.base && owner_of(p).size == was.size && !strcmp(owner_of(p).strategy, was.strategy))
    return;
  note_gone(&w->m, &was);
  note_made(&w->m, p);
  w->kept[i] = p;
}

static void *work(void *arg) {
  worker *w = arg;
  for (int step = 0; step < STEPS; step++) {
    size_t i = roll(w, KEPT), tag = roll(w, TAGS);
    if (w->kept[i] && roll(w, 3) == 0) {
      resize(w, i);
      continue;
    }
    drop(w, i);
    w->kept[i] = some_block(w, loam_site_get(tags[tag]));
    note_made(&w->m, w->kept[i]);
  }
  return NULL;
}

static model all; /* the sum of the models of all workers that were settled */

static void start_policy(void) {
  if (loam_policy_load_text("classes", policy) != LOAM_OK) fail_msg("%s", loam_error());
}

/* Adds what a worker has done to `all`. */
static void settle(worker *w) {
  add_model(&all, &w->m);
  w->m = (model){ 0 };
}

static void each_count_is_exact(void **state) {
  (void)state;
  static worker w[THREADS];
  pthread_t thread[THREADS];
  start_policy();
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < THREADS; i++) {
      w[i].seed = (uint64_t)(round * THREADS + i + 1);
      assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
      pthread_join(thread[i], NULL);
      settle(&w[i]);
    }
    assert_true(agrees(&all));
    if (round == 1) start_policy(); /* a reload forgets every decision */
  }
  for (int i = 0; i < THREADS; i++) {
    for (size_t k = 0; k < KEPT; k++) drop(&w[i], k);
    settle(&w[i]);
  }
  assert_true(agrees(&all));
}

/* The test's process has two threads that allocate all the time, and forks: a child has the counts
 * of the moment and goes on from there. The thread that forks allocates under tags of its own. */
static _Atomic bool stop;

static void *churn(void *arg) {
  (void)arg;
  loam_site *site = loam_site_get("other.churn");
  for (size_t size = 1; !stop; size = size % 9000 + 7) loam_free(loam_malloc(site, size));
  return NULL;
}

/* Runs in a child. Returns the exit status of the child. */
static int go_on(void) {
  static worker w;
  w.seed = 77;
  work(&w);
  settle(&w);
  if (!agrees(&all)) return 1;
  for (size_t k = 0; k < KEPT; k++) drop(&w, k);
  settle(&w);
  return agrees(&all) ? 0 : 2;
}

static void each_count_is_exact_after_a_fork(void **state) {
  (void)state;
  static worker w;
  pthread_t thread[2];
  start_policy();
  for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, churn, NULL), 0);
  for (int i = 0; i < 5; i++) {
    int status;
    w.seed = (uint64_t)i + 100;
    work(&w);
    settle(&w);
    pid_t child = fork();
    if (!child) _exit(go_on());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(agrees(&all));
  }
  stop = true;
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
  for (size_t k = 0; k < KEPT; k++) drop(&w, k);
  settle(&w);
  assert_true(agrees(&all));
}

static uint64_t blocks_ever(void) {
  struct loam_stats stats;
  assert_int_equal(loam_stats(&stats), LOAM_OK);
  return stats.total_blocks;
}

/* A large block that is resized without a copy stays where it was counted. The bytes by which it
 * grew count in its new class. */
static void a_resized_block_is_counted_where_it_was_allocated(void **state) {
  (void)state;
  start_policy();
  const char *const of[] = { "c.plain", "c.libc", "c.live" };
  for (size_t i = 0; i < LM_COUNT(of); i++) {
    void *p = loam_malloc(loam_site_get(of[i]), 3 << 20);
    note_made(&all, p);
    for (size_t size = 3 << 20; size < 200 << 20; size = size * 3 / 2) {
      loam_owner_info was = owner_of(p), is;
      uint64_t before = blocks_ever();
      p = loam_realloc(NULL, p, size);
      is = owner_of(p);
      note_gone(&all, &was);
      figures *f = figures_of(&all, &is);
      f->live_blocks++;
      f->live_bytes += (int64_t)is.size;
      bool is_new = blocks_ever() > before;
      f->total_blocks += is_new;
      f->total_bytes += is_new               ? (int64_t)is.size
                        : is.size > was.size ? (int64_t)(is.size - was.size)
                                             : 0;
      assert_true(agrees(&all));
    }
    loam_owner_info last = owner_of(p);
    loam_free(p);
    note_gone(&all, &last);
  }
  assert_true(agrees(&all));
}

/* ---- More classes than the totals keep ---- */

enum { MANY = 20000, SIZES = 8 };

static void sum_unknown(void *ctx, const loam_stats_row *row, const lm_limit_use *use,
                        const lm_sums_table *classes, uint64_t key) {
  (void)use;
  uint64_t *blocks = ctx, known = 0;
  if (strncmp(row->tag, "many.", 5)) return;
  for (unsigned c = 0; c < LM_CLASSES_COUNTED; c++) {
    const lm_sums *sums = lm_sums_find(classes, lm_sums_with_class(key, c));
    if (sums) known += sums->total_blocks;
  }
  const lm_sums *rest = lm_sums_find(classes, lm_sums_with_class(key, LM_CLASS_UNKNOWN));
  blocks[0] += known;
  if (rest) blocks[1] += rest->total_blocks;
  assert_int_equal(row->total_blocks, SIZES);
  assert_int_equal(row->total_bytes, 16 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8));
}

/* The blocks need 160,000 rows, and the table has 65,536. The sums of each tag are exact
 * nevertheless. */
static void what_has_no_row_is_counted_without_its_class(void **state) {
  (void)state;
  uint64_t blocks[2] = { 0 };
  start_policy();
  for (int i = 0; i < MANY; i++) {
    char tag[32];
    snprintf(tag, sizeof tag, "many.%d", i);
    loam_site *site = loam_site_get(tag);
    for (size_t k = 1; k <= SIZES; k++) loam_free(loam_malloc(site, k * 16));
  }
  assert_int_equal(lm_stats_each_row(sum_unknown, blocks), LOAM_OK);
  assert_int_equal(blocks[0] + blocks[1], MANY * SIZES);
  assert_in_range(blocks[0], LM_STATS_CLASS_ROWS / 2,
                  LM_STATS_CLASS_ROWS + LM_TALLIES + LM_DECISIONS);
  assert_true(agrees(&all));
  assert_true(lm_stats_is_valid());
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_count_is_exact),
    cmocka_unit_test(each_count_is_exact_after_a_fork),
    cmocka_unit_test(a_resized_block_is_counted_where_it_was_allocated),
    cmocka_unit_test(what_has_no_row_is_counted_without_its_class),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
