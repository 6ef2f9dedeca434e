/* scale.c - a process with very many blocks, sites, threads, strategies and leaves of a policy.
 *
 *   scale STEP=COUNT...
 *
 * The steps are those below, in their order; each may be left out. Makes COUNT things of each step,
 * and keeps the things of earlier steps. Prints one line for each step, and one for the free of all
 * blocks at the end, with tabs: step, count, processor seconds, bytes that the program requested,
 * growth of resident memory, growth of loam's bookkeeping. After each step it compares loam's
 * figures with its own count. Exits with 1 if a figure is wrong or an operation fails, and with 2
 * if it cannot do its work.
 *
 *   strategies  a policy with COUNT strategies, chosen by the first part of the tag
 *   sites       sites, each with its own tag
 *   blocks      live blocks of 16 to 512 bytes, of all sites in turn
 *   threads     threads that live one after another
 *   at_once     threads that live at the same time
 *   tags        a policy with COUNT tags of 100 leaves each, loaded and replaced while threads
 *               allocate
 *   policy      the policy of `tags`, loaded once while no other thread works */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "figures.h"

enum {
  LEAVES = 100,    /* of each tag of the step `tags` */
  LEAF_STEP = 328, /* bytes between two thresholds; 100 steps end at 32,800 bytes */
  EACH = 64,       /* blocks that a thread of `threads` and `at_once` makes */
  LOADERS = 2,     /* threads that allocate while a policy is loaded */
  MOST_STRATEGIES = 1000
};

/* The sites, strategies and live blocks that the program has made, by its own count. Only the main
 * thread writes here. */
static struct {
  long sites, blocks, strategies;
  loam_site **site;
  void **block;
  uint64_t *count, *bytes; /* live blocks and usable bytes under each site */
  uint64_t strategy_count[MOST_STRATEGIES];
} made;

static uint64_t strange_events; /* several threads may write it at a time */

static void on_event(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind == LOAM_EVENT_POLICY_LIVE || event->kind == LOAM_EVENT_CONTROL) return;
  __atomic_fetch_add(&strange_events, 1, __ATOMIC_RELAXED);
  fault("event %d: %s", (int)event->kind, event->message);
}

static loam_site *site_of(long i) { return made.sites ? made.site[i % made.sites] : NULL; }

/* Returns the size of a block. Half of the blocks have at most 64 bytes, and a fifth more than
 * 256. */
static size_t size_of(uint64_t i) {
  uint64_t r = scatter(i), part = r % 10;
  r >>= 8;
  if (part < 5) return 16 + r % 49;
  return part < 8 ? 65 + r % 192 : 257 + r % 256;
}

__attribute__((noinline)) static void *allocate(loam_site *site, size_t size) {
  void *p = loam_malloc(site, size);
  if (!p) fault("loam_malloc of %zu bytes: %s", size, loam_error());
  return p;
}

/* ---- Sites ---- */

static void tag_of(long i, char *tag, size_t room) {
  snprintf(tag, room, "site%ld.part%ld", made.strategies ? i % made.strategies : 0, i);
}

static void make_sites(long n) {
  char tag[64];
  uint64_t before = figures().sites;
  for (long i = 0; i < n; i++) {
    tag_of(i, tag, sizeof tag);
    made.site[i] = loam_site_get(tag);
    if (!made.site[i]) fault("site '%s': %s", tag, loam_error());
  }
  made.sites = n;
  expect("sites", figures().sites - before, (uint64_t)n);
  for (long i = 0; i < n; i += n / 1000 + 1) {
    tag_of(i, tag, sizeof tag);
    if (loam_site_get(tag) != made.site[i]) fault("site '%s' has another address", tag);
  }
}

/* ---- Strategies ---- */

/* Writes the strategies s0, s1 and so on. Their limits are far away. */
static void write_strategies(FILE *f, long n) {
  fprintf(f,
          "local s, part = {}, {}\n"
          "for i = 0, %ld do\n"
          "  s[i] = loam.host { name = 's' .. i, limit = (100 + i) * loam.GiB }\n"
          "  part['site' .. i] = i\n"
          "end\n",
          n - 1);
}

__attribute__((noinline)) static void load(const char *name, char *text) {
  if (loam_policy_load_text(name, text) != LOAM_OK) fault("%s: %s", name, loam_error());
  free(text);
}

static void expect_strategy(const void *block, long strategy) {
  char name[32];
  loam_owner_info owner;
  snprintf(name, sizeof name, "s%ld", strategy);
  if (loam_owner(block, &owner) != LOAM_OK) fault("loam_owner: %s", loam_error());
  else if (strcmp(owner.strategy, name))
    fault("strategy '%s', expected '%s'", owner.strategy, name);
}

static void make_strategies(long n) {
  char *text, tag[64];
  size_t length;
  uint64_t before = figures().strategies;
  FILE *f = open_memstream(&text, &length);
  write_strategies(f, n);
  fputs("return loam.policy { name = 'strategies', pick = function(req)\n"
        "  return s[part[req.tag:part(1)] or 0]\nend }\n",
        f);
  fclose(f);
  load("strategies", text);
  expect("strategies", figures().strategies - before, (uint64_t)n);
  made.strategies = n;
  for (long i = 0; i < n; i++) {
    snprintf(tag, sizeof tag, "site%ld", i);
    void *p = allocate(loam_site_get(tag), 100);
    expect_strategy(p, i);
    loam_free(p);
  }
}

/* ---- Blocks ---- */

static void see_tag(void *ctx, const loam_stats_row *row) {
  long i;
  if (sscanf(row->tag, "site%*d.part%ld", &i) != 1) return;
  expect(row->tag, row->live_blocks, made.count[i]);
  expect(row->tag, row->live_bytes, made.bytes[i]);
  *(uint64_t *)ctx += row->live_blocks;
}

static void see_strategy(void *ctx, const loam_stats_row *row) {
  long i;
  if (sscanf(row->strategy, "s%ld", &i) != 1) return;
  expect(row->strategy, row->live_blocks, made.strategy_count[i]);
  *(uint64_t *)ctx += row->live_blocks;
}

/* Compares the rows of loam_stats_by with the program's count: each site, and each strategy. */
static void check_rows(void) {
  uint64_t by_tag = 0, by_strategy = 0;
  if (loam_stats_by(LOAM_BY_TAG, see_tag, &by_tag) != LOAM_OK) fault("by tag: %s", loam_error());
  if (loam_stats_by(LOAM_BY_STRATEGY, see_strategy, &by_strategy) != LOAM_OK)
    fault("by strategy: %s", loam_error());
  if (made.sites) expect("blocks in the rows of tags", by_tag, (uint64_t)made.blocks);
  if (made.strategies && made.sites)
    expect("blocks in the rows of strategies", by_strategy, (uint64_t)made.blocks);
}

static void check_owner(long i) {
  if (!made.block[i]) return;
  char tag[64] = "";
  loam_owner_info owner;
  char *inside = (char *)made.block[i] + size_of((uint64_t)i) - 1;
  if (made.sites) tag_of(i % made.sites, tag, sizeof tag);
  if (loam_owner(inside, &owner) != LOAM_OK) fault("loam_owner: %s", loam_error());
  else if (owner.base != made.block[i]) fault("loam_owner: another base");
  else if (strcmp(owner.tag, tag)) fault("tag '%s', expected '%s'", owner.tag, tag);
  if (made.sites && made.strategies) expect_strategy(inside, i % made.sites % made.strategies);
}

static uint64_t make_blocks(long n) {
  struct loam_stats before = figures();
  uint64_t asked = 0, usable = 0;
  for (long i = 0; i < n; i++) {
    size_t size = size_of((uint64_t)i);
    char *p = made.block[i] = allocate(site_of(i), size);
    if (!p) continue;
    memset(p, (int)(i & 0xff), size);
    uint64_t bytes = loam_usable_size(p);
    asked += size;
    usable += bytes;
    if (made.sites) made.count[i % made.sites]++, made.bytes[i % made.sites] += bytes;
    if (made.sites && made.strategies) made.strategy_count[i % made.sites % made.strategies]++;
  }
  made.blocks = n;
  struct loam_stats now = figures();
  expect("live blocks", now.live_blocks - before.live_blocks, (uint64_t)n);
  expect("live bytes", now.live_bytes - before.live_bytes, usable);
  expect("blocks ever", now.total_blocks - before.total_blocks, (uint64_t)n);
  for (long i = 0; i < n; i += n / 10000 + 1) check_owner(i);
  check_rows();
  return asked;
}

static void free_blocks(void) {
  for (long i = 0; i < made.blocks; i++) {
    unsigned char *p = made.block[i];
    if (!p) continue; /* a fault was reported */
    size_t size = size_of((uint64_t)i);
    if (p[0] != (i & 0xff) || p[size - 1] != (i & 0xff)) fault("block %ld has other content", i);
    loam_free(p);
  }
  made.blocks = 0;
}

/* ---- Threads ---- */

/* One thread of the steps `threads` and `at_once`. */
typedef struct worker {
  pthread_t id;
  long number;
  pthread_barrier_t *wait; /* NULL: the thread ends without waiting */
  void *kept[EACH];
} worker;

static void *work(void *argument) {
  worker *w = argument;
  for (int i = 0; i < EACH; i++)
    w->kept[i] = allocate(site_of(w->number * EACH + i), size_of((uint64_t)i));
  if (w->wait) {
    pthread_barrier_wait(w->wait); /* every thread has its blocks */
    pthread_barrier_wait(w->wait); /* the main thread has read the figures */
  }
  for (int i = 0; i < EACH / 2; i++) loam_free(w->kept[i]);
  return NULL;
}

static void begin(worker *w, const pthread_attr_t *attributes) {
  errno = pthread_create(&w->id, attributes, work, w);
  if (errno) give_up("pthread_create");
}

/* Waits for a thread, and frees the blocks that it has left. */
static void end(worker *w) {
  pthread_join(w->id, NULL);
  for (int i = EACH / 2; i < EACH; i++) loam_free(w->kept[i]);
}

static void expect_as_before(struct loam_stats before, uint64_t blocks) {
  struct loam_stats now = figures();
  expect("live blocks after threads", now.live_blocks, before.live_blocks);
  expect("live bytes after threads", now.live_bytes, before.live_bytes);
  expect("blocks ever, after threads", now.total_blocks - before.total_blocks, blocks);
}

static void run_threads(long n) {
  struct loam_stats before = figures();
  worker w = { 0 };
  for (w.number = 0; w.number < n; w.number++) {
    begin(&w, NULL);
    end(&w);
  }
  expect_as_before(before, (uint64_t)n * EACH);
}

/* Fills `grown` and `resident_then` with the figures at a moment when all threads live. */
static void run_at_once(long n, struct loam_stats *grown, int64_t *resident_then) {
  struct loam_stats before = figures();
  worker *all = notes((size_t)n * sizeof *all);
  pthread_barrier_t wait;
  pthread_attr_t small;
  pthread_barrier_init(&wait, NULL, (unsigned)n + 1);
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 64 << 10);
  for (long i = 0; i < n; i++) {
    all[i] = (worker){ .number = i, .wait = &wait };
    begin(&all[i], &small);
  }
  pthread_barrier_wait(&wait);
  *grown = figures();
  *resident_then = resident();
  expect("blocks of all threads", grown->live_blocks - before.live_blocks, (uint64_t)n * EACH);
  expect("threads", grown->threads - before.threads, (uint64_t)n);
  pthread_barrier_wait(&wait);
  for (long i = 0; i < n; i++) end(&all[i]);
  pthread_barrier_destroy(&wait);
  pthread_attr_destroy(&small);
  munmap(all, (size_t)n * sizeof *all);
  expect_as_before(before, (uint64_t)n * EACH);
}

/* ---- A policy of many leaves ---- */

static atomic_bool loading;
static atomic_ullong allocated_while_loading;

static void *allocate_while_loading(void *argument) {
  uint64_t seed = (uint64_t)(uintptr_t)argument, count = 0;
  void *held[256] = { 0 };
  char tag[64];
  while (atomic_load_explicit(&loading, memory_order_relaxed)) {
    uint64_t r = scatter(seed + count++);
    void **place = &held[r % 256];
    snprintf(tag, sizeof tag, "wide.item%llu", (unsigned long long)(r >> 8) % 1000);
    loam_free(*place);
    *place = allocate(loam_site_get(tag), 1 + (r >> 20) % 40000);
  }
  for (int i = 0; i < 256; i++) loam_free(held[i]);
  atomic_fetch_add(&allocated_while_loading, count);
  return NULL;
}

/* Returns the text of a policy whose tags have different thresholds and strategies. With two
 * strategies, 328 of the plans are different; with 200, all of 1,000. */
static char *wide_policy(long tags, long strategies, int version) {
  char *text;
  size_t length;
  FILE *f = open_memstream(&text, &length);
  write_strategies(f, strategies);
  fprintf(f,
          "local number = {}\n"
          "for k = 0, %ld do number['wide.item' .. k] = k end\n"
          "return loam.policy { name = 'wide%d', pick = function(req)\n"
          "  local k = number[req.tag]\n"
          "  if not k then return s[part[req.tag:part(1)] or 0] end\n"
          "  for i = 1, %d do\n"
          "    if req.size < i * %d + k %% 328 then return s[(i + k + %d) %% %ld] end\n"
          "  end\n"
          "  return s[k %% %ld]\n"
          "end }\n",
          tags - 1, version, LEAVES - 1, LEAF_STEP, version, strategies, strategies);
  fclose(f);
  return text;
}

/* Compares the strategies of blocks with the policy, which it evaluates itself: 10 sizes of each
 * tag. */
static void check_wide(long tags, long strategies, int version) {
  char tag[64];
  for (long k = 0; k < tags; k++) {
    snprintf(tag, sizeof tag, "wide.item%ld", k);
    loam_site *site = loam_site_get(tag);
    for (int j = 0; j < 10; j++) {
      long leaf = 1 + (long)(scatter((uint64_t)(k * 10 + j)) % (LEAVES - 1));
      long size = leaf * LEAF_STEP + k % LEAF_STEP - (j % 2 ? 1 : LEAF_STEP);
      void *p = allocate(site, (size_t)size);
      expect_strategy(p, (leaf + k + version) % strategies);
      loam_free(p);
    }
  }
}

static void load_tags(long n) {
  long strategies = made.strategies ? made.strategies : 2;
  pthread_t thread[LOADERS];
  uint64_t generation = figures().generation;
  atomic_store(&loading, true);
  for (long i = 0; i < LOADERS; i++) {
    errno = pthread_create(&thread[i], NULL, allocate_while_loading, (void *)(uintptr_t)(i << 32));
    if (errno) give_up("pthread_create");
  }
  enum { VERSIONS = 3 };
  for (int version = 0; version < VERSIONS; version++) {
    load("wide", wide_policy(n, strategies, version));
    check_wide(n, strategies, version);
  }
  atomic_store(&loading, false);
  for (int i = 0; i < LOADERS; i++) pthread_join(thread[i], NULL);
  expect("generations", figures().generation - generation, VERSIONS);
}

/* Loads a policy once. Two strategies serve all leaves, so nearly all growth comes from the
 * plans. */
static void load_once(long n) {
  enum { STRATEGIES = 2 };
  load("wide", wide_policy(n, STRATEGIES, 0));
}

/* ---- The steps ---- */

static void print_row(const char *step, long n, double seconds, uint64_t asked,
                      int64_t resident_more, struct loam_stats before, struct loam_stats now) {
  printf("%s\t%ld\t%.6f\t%llu\t%lld\t%lld\n", step, n, seconds, (unsigned long long)asked,
         (long long)resident_more, (long long)(now.metadata_bytes - before.metadata_bytes));
  fflush(stdout);
}

static void run_step(const char *step, long n) {
  struct loam_stats before = figures(), then = { 0 };
  int64_t resident_before = resident(), resident_then = 0;
  /* In the step `tags` other threads allocate as fast as they can. */
  clockid_t clock = strcmp(step, "tags") ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_THREAD_CPUTIME_ID;
  double start = processor_time(clock);
  uint64_t asked = 0;
  if (!strcmp(step, "sites")) make_sites(n);
  else if (!strcmp(step, "strategies")) make_strategies(n);
  else if (!strcmp(step, "blocks")) asked = make_blocks(n);
  else if (!strcmp(step, "threads")) run_threads(n);
  else if (!strcmp(step, "at_once")) run_at_once(n, &then, &resident_then);
  else if (!strcmp(step, "tags")) load_tags(n);
  else load_once(n);
  double seconds = processor_time(clock) - start;
  if (!resident_then) then = figures(), resident_then = resident();
  print_row(step, n, seconds, asked, resident_then - resident_before, before, then);
}

/* Frees all blocks after the last step, and checks that nothing has failed. */
static void finish(struct loam_stats before, int64_t resident_before) {
  double start = processor_time(CLOCK_PROCESS_CPUTIME_ID);
  long blocks = made.blocks;
  free_blocks();
  loam_trim();
  struct loam_stats now = figures();
  double seconds = processor_time(CLOCK_PROCESS_CPUTIME_ID) - start;
  print_row("freed", blocks, seconds, 0, resident() - resident_before, before, now);
  expect("live blocks at the end", now.live_blocks, before.live_blocks);
  expect("live bytes at the end", now.live_bytes, before.live_bytes);
  expect("failed requests", now.failed, 0);
  expect("denied requests", now.denied, 0);
  expect("fallbacks", now.fallbacks, 0);
  expect("wrong frees", now.bad_frees, 0);
  expect("strange events", strange_events, 0);
}

/* The steps in their order. */
static const char steps[] = " strategies sites blocks threads at_once tags policy ";

/* Reads STEP=COUNT. Ends the program if the argument has another form. */
static long count_of(const char *argument, char *step, size_t room) {
  const char *sign = strchr(argument, '=');
  char padded[64], *rest = NULL;
  long n = sign ? strtol(sign + 1, &rest, 10) : 0;
  snprintf(step, room, "%.*s", sign ? (int)(sign - argument) : 0, argument);
  snprintf(padded, sizeof padded, " %s ", step);
  bool known = *step && strstr(steps, padded);
  if (known && n > 0 && rest > sign && !*rest &&
      !(n > MOST_STRATEGIES && !strcmp(step, "strategies")))
    return n;
  fprintf(stderr, "scale: '%s': expected one of%sand =COUNT (of strategies at most %d)\n", argument,
          steps, MOST_STRATEGIES);
  exit(2);
}

/* Ends the program if the steps are not in the order of `steps`, or if a step occurs twice: later
 * steps use the counts of earlier ones. */
static void check_order(int argc, char **argv) {
  const char *before = steps;
  char padded[64], step[32];
  for (int i = 1; i < argc; i++) {
    (void)count_of(argv[i], step, sizeof step);
    snprintf(padded, sizeof padded, " %s ", step);
    before = strstr(before, padded);
    if (!before) {
      fprintf(stderr, "scale: '%s': the steps have the order%sand each stands once\n", argv[i],
              steps);
      exit(2);
    }
    before++;
  }
}

int main(int argc, char **argv) {
  char step[32];
  long sites = 1, blocks = 1;
  check_order(argc, argv);
  for (int i = 1; i < argc; i++) {
    long n = count_of(argv[i], step, sizeof step);
    if (!strcmp(step, "sites")) sites = n;
    if (!strcmp(step, "blocks")) blocks = n;
  }
  made.site = notes((size_t)sites * sizeof *made.site);
  made.count = notes((size_t)sites * sizeof *made.count);
  made.bytes = notes((size_t)sites * sizeof *made.bytes);
  made.block = notes((size_t)blocks * sizeof *made.block);

  /* A policy of 1,000 tags with 100,000 leaves needs more than the 4 MiB that a step may have. */
  loam_config config = { .size = sizeof config, .step_ms = 60000, .step_bytes = 256 << 20 };
  loam_on_event(on_event, NULL);
  if (loam_start(&config) != LOAM_OK) {
    fprintf(stderr, "scale: %s\n", loam_error());
    return 2;
  }
  struct loam_stats before = figures();
  int64_t resident_before = resident();
  for (int i = 1; i < argc; i++) {
    long n = count_of(argv[i], step, sizeof step);
    run_step(step, n);
  }
  finish(before, resident_before);
  loam_stop();
  return atomic_load(&faults) ? 1 : 0;
}
