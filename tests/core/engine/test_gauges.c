/* test_gauges.c - decisions that read gauges. The strategy of each block is compared with the one
 * that the policy demands at that moment, through reloads, forks and threads. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/live_bytes.h"
#include "folder.h"
#include "heap/pool.h"
#include "loam.h"
#include "os/numa.h"

#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
enum { SCALE = 10 };
#else
enum { SCALE = 1 };
#endif

/* ---- A machine of one node, whose free memory is stated in a file ---- */

static void set_free(int mib) {
  char text[128];
  snprintf(text, sizeof text, "Node 0 MemTotal: 8388608 kB\nNode 0 MemFree: %d kB\n", mib * 1024);
  write_file("node0/meminfo", text);
}

static void make_machine(void) {
  assert_non_null(mkdtemp(folder));
  make_folder("node0");
  write_file("online", "0\n");
  write_file("has_memory", "0\n");
  write_file("has_cpu", "0\n");
  set_free(2048);
  lm_numa_pretend(folder, UINT64_MAX);
}

/* `low_mark` and `high_mark` are thresholds for the live bytes of a tag. */
static const char policy[] =
    "local a = loam.host { name = 'a' }\n"
    "local b = loam.host { name = 'b' }\n"
    "local c = loam.host { name = 'c', align = 64 }\n"
    "local low_mark, high_mark = %d, %d\n"
    "return loam.policy { name = 'gauge%d', pick = function(req)\n"
    "  if req.tag:is 'gauge.steps' then\n"
    "    if req.live < low_mark then return a end\n"
    "    if req.live < high_mark then return b else return c end\n"
    "  end\n"
    "  if req.tag:is 'gauge.sizes' then\n"
    "    if req.size < 100 then return a end\n"
    "    if req.node ~= 0 or req.live >= high_mark then return c end\n"
    "    if req.size < 203 then return b else return a end\n"
    "  end\n"
    "  if req.tag:is 'gauge.sums' then\n"
    "    if 2 * req.live - req.node + 3 * req.size < 2 * high_mark then return b end\n"
    "  end\n"
    "  if req.tag:is 'gauge.rooms' then\n"
    "    local left = loam.node(0).free - 2 * loam.GiB - 2 * req.size\n"
    "    if left > -300 then return a end\n"
    "    if req.live - left < high_mark then return b else return c end\n"
    "  end\n"
    "  if req.tag:is 'gauge.node' then\n"
    "    if req.size < 50 then\n"
    "      if req.live < high_mark then return a else return c end\n"
    "    end\n"
    "    if req.node ~= 0 then return c end\n"
    "    if req.size < 5000 then return b else return a end\n"
    "  end\n"
    "  if req.tag:is 'gauge.free' then\n"
    "    if loam.node(0).free > loam.GiB then return b else return a end\n"
    "  end\n"
    "  if req.tag:is 'gauge.plain' then\n"
    "    if req.size < 300 then return b elseif req.size > 65536 then return c end\n"
    "  end\n"
    "  if req.tag:under 'gauge.many' then\n"
    "    if req.live < low_mark then return a else return b end\n"
    "  end\n"
    "  return a\n"
    "end }\n";

static int low_mark = 2000, high_mark = 6000;

static void load(int version) {
  char text[3000];
  snprintf(text, sizeof text, policy, low_mark, high_mark, version);
  if (loam_policy_load_text("gauge.lua", text)) fail_msg("%s", loam_error());
}

/* ---- What the test expects ---- */

enum { STEPS, SIZES, SUMS, ROOMS, NODE, FREE, PLAIN, MANY, MANY_N = 200, TAGS = MANY + MANY_N };
typedef struct tag {
  loam_site *site, *other_site; /* two sites of the tag */
  int64_t live;
} tag;
static tag tags[TAGS];

static int set_up(void **state) {
  (void)state;
  char text[32];
  static const char *const names[] = { "gauge.steps", "gauge.sizes", "gauge.sums", "gauge.rooms",
                                       "gauge.node",  "gauge.free",  "gauge.plain" };
  for (int i = 0; i < TAGS; i++) {
    snprintf(text, sizeof text, "gauge.many.%d", i);
    loam_where at = { i < MANY ? names[i] : text, "here.c", "f", "", 7 };
    tags[i].site = loam_site_get(at.tag);
    tags[i].other_site = loam_site_at(&at);
  }
  make_machine();
  load(0);
  return 0;
}

static const char *expected(int i, size_t size) {
  int64_t live = tags[i].live;
  if (i == STEPS) return live < low_mark ? "a" : live < high_mark ? "b" : "c";
  if (i == SIZES && size >= 100 && (lm_numa_here() != 0 || live >= high_mark)) return "c";
  if (i == SIZES) return size >= 100 && size < 203 ? "b" : "a";
  if (i == SUMS) return 2 * live + 3 * (int64_t)size < 2 * high_mark ? "b" : "a";
  if (i == ROOMS && 2 * size < 300) return "a";
  if (i == ROOMS) return live + 2 * (int64_t)size < high_mark ? "b" : "c";
  if (i == NODE && size < 50) return live < high_mark ? "a" : "c";
  if (i == NODE) return lm_numa_here() ? "c" : size < 5000 ? "b" : "a";
  if (i == FREE) return "b";
  if (i == PLAIN) return size < 300 ? "b" : size > 65536 ? "c" : "a";
  return live < low_mark ? "a" : "b";
}

static uint32_t roll(uint32_t *seed, uint32_t n) {
  *seed = *seed * 1664525 + 1013904223;
  return (uint32_t)((uint64_t)*seed * n >> 32);
}

typedef struct held {
  char *p;
  int tag;
  const loam_site *site;
  char with; /* the byte that fills the block */
} held;

static void fill(held *h, uint32_t *seed) {
  h->with = (char)roll(seed, 128);
  memset(h->p, h->with, loam_usable_size(h->p));
}

static bool is_filled(const held *h, size_t size) {
  size_t i = 0;
  while (i < size && h->p[i] == h->with) i++;
  return i == size;
}

static void drop(held *h) {
  if (!h->p) return;
  size_t size = loam_usable_size(h->p);
  memset(h->p, 0xa5, size); /* so that calloc has something to clear */
  tags[h->tag].live -= (int64_t)size;
  loam_free(h->p);
  h->p = NULL;
}

static int64_t live_of(int i) { return lm_live_of(lm_thread_get(), tags[i].site); }

static _Thread_local loam_site *missing;
static void *missed(size_t size, const void *code) { return loam_code_learn(size, code, missing); }

/* The ways to allocate. CODE passes the address of the site as the code address. */
enum { MALLOC, CODE, CALLOC, ALIGNED, WAYS };
static char *allocate_by(uint32_t way, loam_site *site, size_t size, size_t align) {
  missing = site;
  if (way == CODE) return loam_code_malloc(size, site, missed);
  if (way == CALLOC) return loam_calloc(site, 1, size);
  return way == ALIGNED ? loam_aligned_alloc(site, align, size) : loam_malloc(site, size);
}

static bool is_zero(const char *p, size_t size) {
  size_t i = 0;
  while (i < size && !p[i]) i++;
  return i == size;
}

/* Checks the strategy, the tag and the line that loam_owner reports for a block of `size` bytes
 * which was just allocated or resized. `want` is the strategy that the policy demands. */
static bool is_as_expected(held *h, size_t size, const char *want) {
  loam_owner_info owner;
  tag *t = &tags[h->tag];
  if (!h->p || loam_owner(h->p, &owner)) return false;
  bool is_right = !strcmp(owner.strategy, want) && !strcmp(owner.tag, h->site->where.tag) &&
                  owner.line == h->site->where.line;
  if (!is_right)
    print_message("%zu bytes of %s, of which %ld live: %s, not %s\n", size, owner.tag,
                  (long)t->live, owner.strategy, want);
  return is_right;
}

/* Returns whether loam knows the live bytes of tag number i exactly, if its policy reads them. This
 * thread allocated all live blocks, so no other thread has bytes that it has not added yet. */
static bool is_counted(int i) {
  if (i > NODE || live_of(i) == tags[i].live) return true;
  print_message("%ld bytes live, not %ld\n", (long)live_of(i), (long)tags[i].live);
  return false;
}

/* Returns a size. Many of the sizes are near a threshold of the policy. */
static size_t some_size(uint32_t *seed) {
  if (roll(seed, 3) == 0) return (roll(seed, 2) ? 98u : 201u) + roll(seed, 4);
  return roll(seed, 30) ? roll(seed, 300) : roll(seed, 300000);
}

static bool is_served_as_expected(held *h, uint32_t *seed) {
  size_t size = some_size(seed);
  h->tag = roll(seed, 4) ? (int)roll(seed, MANY) : MANY + (int)roll(seed, MANY_N);
  tag *t = &tags[h->tag];
  loam_site *site = roll(seed, 3) ? t->site : t->other_site;
  const char *want = expected(h->tag, size);
  uint32_t way = roll(seed, WAYS + 3) % WAYS; /* MALLOC, CODE and CALLOC are chosen more often */
  size_t align = (size_t)32 << roll(seed, 5);
  h->p = allocate_by(way, site, size, align);
  h->site = site;
  if (way == ALIGNED && (uintptr_t)h->p % align) return false;
  if (way == CALLOC && h->p && !is_zero(h->p, size)) return false;
  bool is_right = is_as_expected(h, size, want);
  t->live += h->p ? (int64_t)loam_usable_size(h->p) : 0;
  if (h->p) fill(h, seed);
  return is_right && is_counted(h->tag);
}

/* Reallocates a block to another size, sometimes under another site or tag. The plan decides while
 * the block still counts as live. If the decision and the site are unchanged, and the new size uses
 * more than half of the block, the block must stay at its address. */
static bool is_resized_as_expected(held *h, uint32_t *seed) {
  loam_owner_info owner;
  size_t was = loam_usable_size(h->p);
  size_t size = roll(seed, 2) ? was - was / 8 + roll(seed, 20) : 1 + roll(seed, 600);
  if (roll(seed, 10) == 0) size = 1 + roll(seed, 200000);
  int to = roll(seed, 4) ? h->tag : (int)roll(seed, MANY);
  loam_site *site = roll(seed, 2) ? tags[to].site : tags[to].other_site;
  if (roll(seed, 2)) site = NULL;
  if (!site) to = h->tag;
  const char *want = expected(to, size);
  bool same = (!site || site == h->site) && size <= was && size > was / 2 &&
              !loam_owner(h->p, &owner) && !strcmp(owner.strategy, want) &&
              owner.generation == lm_site_generation;
  void *from = h->p, *p = loam_realloc(site, from, size);
  if (!p) return false;
  tags[h->tag].live -= (int64_t)was;
  *h = (held){ p, to, site ? site : h->site, h->with };
  bool is_right = is_as_expected(h, size, want) && is_filled(h, was < size ? was : size);
  if (same && p != from) print_message("%zu bytes for %zu were moved\n", size, was);
  if (same) is_right = is_right && p == from;
  tags[to].live += (int64_t)loam_usable_size(p);
  fill(h, seed);
  return is_right && is_counted(to);
}

enum { HELD = 100 };
static held kept[HELD];

/* Allocates, resizes and frees blocks, `times` times. Returns how many were not as expected. */
static int go_on(int times, uint32_t *seed) {
  int wrong = 0;
  while (times-- > 0) {
    held *h = &kept[roll(seed, HELD)];
    if (h->p && roll(seed, 3) == 0) wrong += !is_resized_as_expected(h, seed);
    else if (h->p) drop(h);
    else wrong += !is_served_as_expected(h, seed);
  }
  return wrong;
}

static void drop_all(void) {
  for (int i = 0; i < HELD; i++) drop(&kept[i]);
  for (int i = 0; i < TAGS; i++) assert_int_equal(tags[i].live, 0);
}

static void every_block_is_where_the_moment_puts_it(void **state) {
  (void)state;
  uint32_t seed = 1;
  assert_int_equal(go_on(20000 / SCALE, &seed), 0);
  drop_all();
}

/* Allocates many blocks in a row, so that entries of the decision cache serve them. */
static void a_threshold_is_met_to_the_byte(void **state) {
  (void)state;
  loam_owner_info owner;
  void *p[64];
  for (int round = 0; round < 50; round++) {
    for (int i = 0; i < 64; i++) {
      p[i] = loam_malloc(tags[STEPS].site, 112);
      assert_int_equal(loam_owner(p[i], &owner), LOAM_OK);
      int64_t live = 0;
      for (int k = 0; k < i; k++) live += (int64_t)loam_usable_size(p[k]);
      const char *want = live < low_mark ? "a" : live < high_mark ? "b" : "c";
      assert_string_equal(owner.strategy, want);
    }
    for (int i = 0; i < 64; i++) loam_free(p[i]);
  }
}

/* Returns how many blocks of a site were served by entries of the thread's decision cache and are
 * not yet added to the totals. `by_plan` selects the entries for a key and a strategy; else those
 * for a key alone are counted. */
static uint64_t served_by_cache(const loam_site *site, bool by_plan) {
  uint64_t blocks = 0;
  for (int i = 0; i < LM_DECISIONS; i++) {
    const lm_decision *d = &lm_thread_self->decision[i];
    bool is_by_plan = d->key & LM_SITE_KEY_BIT && d->key & LM_DECISION_BY_PLAN;
    if (d->site == site->index && is_by_plan == by_plan) blocks += lm_thread_served(d);
  }
  return blocks;
}

static void assert_served(uint64_t blocks, bool by_them) {
  assert_in_range(blocks, by_them ? 900 : 0, by_them ? 1001 : 0);
}

static void no_entry_for_a_key_alone_serves_what_a_gauge_decides(void **state) {
  (void)state;
  for (int i = STEPS; i <= PLAIN; i++) {
    loam_site *site = tags[i].site;
    for (uint32_t way = 0; way < WAYS; way++) {
      bool is_plain = i == PLAIN, is_keyed = is_plain && way != ALIGNED;
      uint64_t keyed = served_by_cache(site, false), by_plan = served_by_cache(site, true);
      for (int k = 0; k < 1000; k++) loam_free(allocate_by(way, site, 200, 128));
      assert_served(served_by_cache(site, false) - keyed, is_keyed);
      if (is_plain) assert_served(served_by_cache(site, true) - by_plan, !is_keyed);
    }
    uint64_t keyed = served_by_cache(site, false), by_plan = served_by_cache(site, true);
    void *p = loam_malloc(site, 200);
    for (int k = 0; k < 1000; k++) p = loam_realloc(NULL, p, k % 2 ? 200 : 500);
    loam_free(p);
    assert_served(served_by_cache(site, false) - keyed, i == PLAIN);
    if (i == PLAIN) assert_int_equal(served_by_cache(site, true), by_plan);
  }
}

static void *serve_by_plan(int i, size_t size) {
  lm_request r = { .site = tags[i].site, .size = size, .align = 16 };
  return lm_decision_serve_by_plan(lm_thread_self, &r);
}

/* This test runs first. After other tests, objects of several counted tags may share a span, and
 * such a span needs the slow path. */
static void only_what_a_gauge_decides_is_served_by_plan(void **state) {
  (void)state;
  int each[] = { NODE, PLAIN, FREE };
  for (int i = 0; i < 3; i++) loam_free(loam_malloc(tags[each[i]].site, 200));
  void *p = serve_by_plan(NODE, 200);
  assert_non_null(p);
  loam_free(p);
  for (int k = 0; k < 1000; k++) loam_free(loam_malloc(tags[NODE].site, 200));
  assert_served(served_by_cache(tags[NODE].site, true), true);
  lm_thread_self->inside++; /* like while loam calls foreign code */
  assert_null(serve_by_plan(NODE, 200));
  lm_thread_self->inside--;
  assert_null(serve_by_plan(NODE, 100000)); /* there is no entry for it yet */
  loam_free(loam_malloc(tags[NODE].site, 100000));
  p = serve_by_plan(NODE, 100000);
  assert_non_null(p);
  assert_int_equal(live_of(NODE), loam_usable_size(p));
  assert_null(serve_by_plan(NODE, 100000)); /* the bin is empty */
  loam_free(p);
  assert_null(serve_by_plan(PLAIN, 200));
  assert_null(serve_by_plan(FREE, 200)); /* without a board the gauge reads a file */
}

static const loam_site *summed;
static void add_row(void *ctx, const loam_stats_row *row) {
  if (!strcmp(row->tag, summed->where.tag)) *(uint64_t *)ctx += row->total_bytes;
}

/* Returns how many bytes were ever allocated under tag number n. */
static uint64_t bytes_of(int n) {
  uint64_t bytes = 0;
  summed = tags[n].site;
  assert_int_equal(loam_stats_each(add_row, &bytes), LOAM_OK);
  return bytes;
}

static uint32_t strategy_of(loam_site *site, size_t size) {
  lm_object object;
  void *p = loam_malloc(site, size);
  assert_true(lm_pool_find(p, &object));
  loam_free(p);
  return object.strategy;
}

/* Returns the number of another tag whose large blocks a thread counts at the place in its tallies
 * that tag number n uses. */
static int tallied_with(int n) {
  uint32_t at = tags[n].site->index + strategy_of(tags[n].site, 100000) * 37;
  for (int i = MANY; i < TAGS; i++) {
    uint32_t strategy = strategy_of(tags[i].site, 100000);
    if ((tags[i].site->index + strategy * 37 - at) % LM_TALLIES == 0) return i;
  }
  fail_msg("no other tag is tallied at the place of tag %d", n);
  return 0;
}

/* Allocates large blocks of one tag, or of two tags in turn. They are counted to the byte, and the
 * decision cache serves only those for which the plan reads no gauge. */
static void large_blocks_are_counted_exactly(void **state) {
  (void)state;
  enum { USABLE = 102400, TIMES = 400 };
  int pairs[][2] = { { STEPS, STEPS }, { STEPS, MANY },  { SUMS, ROOMS },
                     { NODE, STEPS },  { PLAIN, PLAIN }, { PLAIN, tallied_with(PLAIN) } };
  for (size_t i = 0; i < LM_COUNT(pairs); i++) {
    int cached = 0;
    uint64_t before = bytes_of(pairs[i][0]);
    for (int k = 0; k < TIMES; k++) {
      int n = pairs[i][k % 2];
      loam_site *site = tags[n].site;
      lm_request r = { .site = site, .size = 100000, .align = 16 };
      void *p = lm_decision_serve_large(lm_thread_get(), &r);
      cached += p != NULL;
      if (!p) p = loam_malloc(site, 100000);
      assert_int_equal(loam_usable_size(p), USABLE);
      if (n <= NODE || n >= MANY) assert_int_equal(live_of(n), USABLE);
      loam_free(p);
      assert_int_equal(live_of(n), 0);
    }
    bool is_plain = pairs[i][0] == PLAIN;
    assert_in_range(cached, is_plain ? TIMES / 2 - 1 : 0, is_plain ? TIMES : 0);
    int times = pairs[i][0] == pairs[i][1] ? TIMES : TIMES / 2;
    assert_int_equal(bytes_of(pairs[i][0]) - before, (uint64_t)times * USABLE);
  }
}

static void a_large_block_that_shrinks_stays_where_it_is(void **state) {
  (void)state;
  int stayed = 0;
  for (int n = STEPS; n <= MANY; n++) {
    loam_free(loam_malloc(tags[n].site, 60000));
    const char *first = expected(n, 100000);
    char *p = loam_malloc(tags[n].site, 100000);
    tags[n].live = (int64_t)loam_usable_size(p);
    bool stays = !strcmp(first, expected(n, 60000));
    char *q = loam_realloc(NULL, p, 60000);
    tags[n].live = (int64_t)loam_usable_size(q);
    assert_true(!stays || (q == p && tags[n].live == 61440));
    assert_true(is_counted(n));
    stayed += stays;
    loam_free(q);
    tags[n].live = 0;
  }
  assert_in_range(stayed, 4, MANY);
}

/* Moves blocks from each tag to each other one, and between two sites of one tag, often enough for
 * the decision cache to serve them. */
static void a_block_can_become_another_sites(void **state) {
  (void)state;
  uint32_t seed = 5;
  for (int from = STEPS; from <= MANY; from++)
    for (int to = STEPS; to <= MANY; to++)
      for (int i = 0; i < 40; i++) {
        size_t size = i % 4 ? 500 : 60;
        held h = { loam_malloc(tags[from].site, 60), from, tags[from].site, 0 };
        fill(&h, &seed);
        tags[from].live += 64;
        const char *want = expected(to, size);
        h = (held){ loam_realloc(tags[to].other_site, h.p, size), to, tags[to].other_site, h.with };
        assert_true(is_as_expected(&h, size, want) && is_filled(&h, 60));
        tags[from].live -= 64;
        tags[to].live += (int64_t)loam_usable_size(h.p);
        assert_true(is_counted(from) && is_counted(to));
        drop(&h);
      }
}

/* The resized blocks return more objects of their old class than a bin holds, before any such
 * object is taken again. */
static void blocks_that_are_resized_one_after_the_other_are_counted(void **state) {
  (void)state;
  enum { BLOCKS = 3000 };
  static held all[BLOCKS];
  uint32_t seed = 4;
  for (int n = 0; n <= MANY; n++) {
    for (int i = 0; i < BLOCKS; i++) {
      all[i] = (held){ loam_malloc(tags[n].site, 60), n, tags[n].site, 0 };
      fill(&all[i], &seed);
    }
    tags[n].live = BLOCKS * 64;
    for (int i = 0; i < BLOCKS; i++) {
      size_t size = i % 3 ? 500 : 200;
      const char *want = expected(n, size);
      all[i].p = loam_realloc(NULL, all[i].p, size);
      assert_true(is_as_expected(&all[i], size, want) && is_filled(&all[i], 64));
      tags[n].live += (int64_t)loam_usable_size(all[i].p) - 64;
      assert_true(is_counted(n));
    }
    for (int i = 0; i < BLOCKS; i++) drop(&all[i]);
    assert_true(is_counted(n));
    assert_int_equal(tags[n].live, 0);
  }
}

static void a_reload_moves_the_thresholds_at_once(void **state) {
  (void)state;
  uint32_t seed = 2;
  for (int i = 0; i < 20 / SCALE + 2; i++) {
    low_mark = 500 + (int)roll(&seed, 3000);
    high_mark = low_mark + (int)roll(&seed, 5000);
    load(i);
    assert_int_equal(go_on(300, &seed), 0);
  }
  drop_all();
}

static void a_forked_child_knows_what_lives(void **state) {
  (void)state;
  uint32_t seed = 3;
  for (int i = 0; i < 10; i++) {
    int status = -1;
    assert_int_equal(go_on(200, &seed), 0);
    pid_t child = fork();
    if (!child) _exit(go_on(500, &seed) != 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
  }
  drop_all();
}

/* ---- Other threads ---- */

static pthread_barrier_t meeting;
enum { MADE = 4000, EACH = 128 };

static void *make_and_wait(void *made) {
  void **p = made;
  for (int i = 0; i < MADE; i++) p[i] = loam_malloc(tags[STEPS].site, EACH);
  pthread_barrier_wait(&meeting);
  pthread_barrier_wait(&meeting);
  return NULL;
}

static void unreported_bytes_of_another_thread_are_bounded_and_reported_at_its_end(void **state) {
  (void)state;
  static void *made[MADE];
  pthread_barrier_init(&meeting, NULL, 2);
  pthread_t thread = start_thread(make_and_wait, made);
  pthread_barrier_wait(&meeting);
  assert_in_range(live_of(STEPS), MADE * EACH - LM_LIVE_PENDING_MAX, MADE * EACH);
  pthread_barrier_wait(&meeting);
  pthread_join(thread, NULL);
  assert_int_equal(live_of(STEPS), MADE * EACH);
  for (int i = 0; i < MADE; i++) loam_free(made[i]);
  assert_int_equal(live_of(STEPS), 0);
  pthread_barrier_destroy(&meeting);
}

enum { SHELF = 256, THREADS = 4 };
static void *_Atomic shelf[SHELF];
static _Atomic bool stop;

static void *exchange_on(void *number) {
  uint32_t seed = (uint32_t)(uintptr_t)number;
  while (!stop) {
    int i = roll(&seed, 3) ? (int)roll(&seed, MANY) : MANY + (int)roll(&seed, MANY_N);
    size_t size = roll(&seed, 50) ? roll(&seed, 400) : roll(&seed, 100000);
    void *p = allocate_by(roll(&seed, WAYS), tags[i].site, size, 64);
    if (roll(&seed, 4) == 0) p = loam_realloc(NULL, p, 1 + roll(&seed, 500));
    loam_free(atomic_exchange(&shelf[roll(&seed, SHELF)], p));
  }
  return NULL;
}

static uint64_t bad_frees(void) {
  struct loam_stats stats;
  assert_int_equal(loam_stats(&stats), LOAM_OK);
  return stats.bad_frees;
}

static void nothing_is_miscounted_while_threads_free_each_others_blocks(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  uint64_t before = bad_frees();
  for (uintptr_t i = 0; i < THREADS; i++) thread[i] = start_thread(exchange_on, (void *)(i + 1));
  for (int i = 0; i < 20; i++) {
    high_mark = 3000 + i * 100;
    load(i);
    usleep(2000);
  }
  stop = true;
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < SHELF; i++) loam_free(atomic_exchange(&shelf[i], NULL));
  for (int i = 0; i < TAGS; i++) assert_int_equal(live_of(i), 0);
  assert_int_equal(bad_frees(), before);
}

/* ---- Blocks of several tags in the same spans, some of them counted ---- */

static const char mixture[] = "local all = loam.host { name = 'mixed-%d' }\n"
                              "return loam.policy { pick = function(req)\n"
                              "  local mixed = req.tag:under 'mixed.counted'\n"
                              "  if mixed and req.live > 2 ^ 50 then return all end\n"
                              "  return all\n"
                              "end }\n";
static const char *const mixed[] = { "mixed.counted.a", "mixed.counted.b", "mixed.plain",
                                     "mixed.counted.c", "mixed.plain.too" };
enum { MIXED = sizeof mixed / sizeof *mixed, MIXES = 1500 };
static _Atomic uint32_t misnamed;

static void free_mixed(char *p) {
  loam_owner_info owner;
  if (p && (loam_owner(p, &owner) || strcmp(owner.tag, mixed[(int)*p]))) misnamed++;
  loam_free(p);
}

static void *mix(void *number) {
  uint32_t seed = (uint32_t)(uintptr_t)number;
  for (int n = 0; !stop || n < MIXES; n++) {
    int i = (int)roll(&seed, MIXED);
    uint32_t way = roll(&seed, WAYS);
    char *p = allocate_by(way, loam_site_get(mixed[i]), 160, 32);
    *p = (char)i;
    if (roll(&seed, 4) == 0) p = loam_realloc(NULL, p, 150 + roll(&seed, 100));
    free_mixed(atomic_exchange(&shelf[roll(&seed, SHELF)], p));
  }
  return NULL;
}

static void ignore(void *ctx, const loam_placed *row) {
  (void)ctx;
  (void)row;
}

static void add_mixed(void *ctx, const loam_stats_row *row) {
  if (!strncmp(row->tag, "mixed.", 6)) *(uint64_t *)ctx += row->live_blocks;
}

static void blocks_in_one_span_are_counted_by_tag(void **state) {
  (void)state;
  char text[1000];
  uint64_t live = 0;
  pthread_t thread[THREADS];
  stop = false;
  for (uintptr_t i = 0; i < THREADS; i++) thread[i] = start_thread(mix, (void *)(i + 1));
  for (int i = 0; i < 30 / SCALE; i++) {
    snprintf(text, sizeof text, mixture, i % 3);
    if (loam_policy_load_text("mixture.lua", text)) fail_msg("%s", loam_error());
    loam_rebalance_options options = { .size = sizeof options, .rate = UINT64_MAX };
    if (loam_rebalance(&options, NULL, ignore, NULL)) fail_msg("%s", loam_error());
    assert_int_equal(misnamed, 0);
  }
  stop = true;
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < SHELF; i++) free_mixed(atomic_exchange(&shelf[i], NULL));
  assert_int_equal(misnamed, 0);
  assert_int_equal(loam_stats_each(add_mixed, &live), LOAM_OK);
  assert_int_equal(live, 0);
  for (int i = 0; i < MIXED; i++)
    assert_int_equal(lm_live_of(lm_thread_get(), loam_site_get(mixed[i])), 0);
  assert_true(lm_pool_is_valid());
  load(0);
}

static void a_double_free_of_a_counted_block_is_reported(void **state) {
  (void)state;
  skip_if_poisoned();
  uint64_t before = bad_frees();
  char *p = loam_malloc(tags[STEPS].site, 100);
  loam_free(p);
  loam_free(p);
  loam_free(p + 16);
  assert_int_equal(bad_frees(), before + 2);
  assert_int_equal(live_of(STEPS), 0);
}

/* ---- Free memory ---- */

static const char pressure[] = "local a = loam.host { name = 'much' }\n"
                               "local b = loam.host { name = 'little' }\n"
                               "return loam.policy { name = 'pressure', pick = function(req)\n"
                               "  if loam.node(0).free > loam.GiB then return a end\n"
                               "  return b\n"
                               "end }\n";

static bool is_of(void *p, const char *want) {
  loam_owner_info owner;
  assert_int_equal(loam_owner(p, &owner), LOAM_OK);
  return !strcmp(owner.strategy, want);
}

/* Waits until the policy gives blocks to the strategy `want`. The gauge is read again after 100 ms,
 * or later on a busy machine. After that, requests of every kind must get that strategy. */
static void comes_to(const char *want) {
  bool done = false;
  for (int naps = 0; !done && be_patient(&naps);) {
    void *p = loam_malloc(tags[PLAIN].site, 100);
    done = is_of(p, want);
    loam_free(p);
  }
  assert_true(done);
  for (int i = 0; i < 10; i++) {
    for (uint32_t way = 0; way < WAYS; way++) {
      void *p = allocate_by(way, tags[PLAIN].site, 100, 64);
      assert_true(is_of(p, want));
      p = loam_realloc(NULL, p, 500);
      assert_true(is_of(p, want));
      p = loam_realloc(NULL, p, 100000);
      assert_true(is_of(p, want));
      loam_free(p);
    }
    void *p = loam_malloc(tags[PLAIN].site, 100000);
    assert_true(is_of(p, want));
    loam_free(p);
  }
}

static void free_memory_decides_as_it_changes(void **state) {
  (void)state;
  if (loam_policy_load_text("pressure.lua", pressure)) fail_msg("%s", loam_error());
  for (int i = 0; i < 3; i++) {
    comes_to("much");
    set_free(512);
    comes_to("little");
    set_free(2048);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(only_what_a_gauge_decides_is_served_by_plan),
    cmocka_unit_test(every_block_is_where_the_moment_puts_it),
    cmocka_unit_test(a_threshold_is_met_to_the_byte),
    cmocka_unit_test(no_entry_for_a_key_alone_serves_what_a_gauge_decides),
    cmocka_unit_test(large_blocks_are_counted_exactly),
    cmocka_unit_test(a_large_block_that_shrinks_stays_where_it_is),
    cmocka_unit_test(a_block_can_become_another_sites),
    cmocka_unit_test(blocks_that_are_resized_one_after_the_other_are_counted),
    cmocka_unit_test(a_reload_moves_the_thresholds_at_once),
    cmocka_unit_test(a_forked_child_knows_what_lives),
    cmocka_unit_test(unreported_bytes_of_another_thread_are_bounded_and_reported_at_its_end),
    cmocka_unit_test(nothing_is_miscounted_while_threads_free_each_others_blocks),
    cmocka_unit_test(blocks_in_one_span_are_counted_by_tag),
    cmocka_unit_test(a_double_free_of_a_counted_block_is_reported),
    cmocka_unit_test(free_memory_decides_as_it_changes),
  };
  return cmocka_run_group_tests(tests, set_up, remove_folder);
}
