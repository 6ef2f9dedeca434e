/* soak.c - a process that uses most mechanisms of loam for a given time, and checks itself.
 *
 *   soak MINUTES FOLDER    writes its policy file to FOLDER and edits it there
 *
 * The program works in rounds. In a round, threads begin, allocate, resize and free blocks of many
 * kinds, and end; every third second the policy file is replaced. Blocks live on from round to
 * round, so most of them are freed by another thread. After each round no thread allocates: then
 * the figures of loam have to be exactly the program's own count, in total and for each tag.
 *
 * Prints a line for each sample of resident memory: one a minute, or 20 in a shorter run. Exits
 * with 1 if a figure is wrong, an operation fails, or resident memory grows; with 2 if it cannot do
 * its work. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

#include "figures.h"

enum {
  WORKERS = 4,
  PLACES = 3000, /* of blocks, for each worker; about half of them hold one */
  ROUND_MS = 1000,
  EDIT_MS = 3000,
  VERSIONS = 6,       /* of the policy */
  EARLY_LEAST_S = 25, /* every version was live by then, so every strategy has been made */
  EARLY_SAMPLES = 5,  /* at least: a single sample may be low by chance */
  /* Resident memory may exceed the highest sample of the early time by these. */
  KEPT_PERCENT = 30,   /* with the free memory that loam keeps */
  BEYOND_PERCENT = 10, /* after a trim, without the live bytes */
  MARGIN_MIB = 8       /* added to both */
};

/* The kinds of blocks that a place can hold. */
typedef enum kind { NONE, PLAIN, OWNER, DEVICE, PINNED } kind;

/* A place for one block. A worker has its places for itself during a round. */
typedef struct place {
  kind kind;
  int tag;
  void *block; /* of the kind OWNER a loam_block, otherwise memory */
  size_t size; /* the requested size */
} place;

static const char *const tags[] = {
  "plain.a",     "plain.b",   "cache.pages", "cache.rows",  "parse.tree", "parse.text",
  "wide.vector", "zeroed.a",  "huge.area",   "host.system", "host.lib",   "lent.frame",
  "spread.a",    "counted.a", "gpu.a",       "gpu.b",       "loam.block",
};
enum { TAGS = sizeof tags / sizeof *tags, GPU_TAG = TAGS - 3, HEADER_TAG = TAGS - 1 };

static loam_site *site[TAGS];
static place places[WORKERS][PLACES];
static bool has_device;
static atomic_bool round_ends;
static atomic_ullong operations, threads_made, events[16];
static char policy_path[512];
static uint64_t edits;

static void on_event(void *ctx, const loam_event *event) {
  static const unsigned expected = 1u << LOAM_EVENT_POLICY_LIVE | 1u << LOAM_EVENT_MOVED |
                                   1u << LOAM_EVENT_SHORTFALL | 1u << LOAM_EVENT_SOFT_LIMIT;
  (void)ctx;
  if (event->kind < 16) atomic_fetch_add(&events[event->kind], 1);
  if (!(expected >> event->kind & 1)) fault("event %d: %s", (int)event->kind, event->message);
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- The policy and its edits ---- */

/* The versions differ in a limit, the share of guarded blocks, an alignment, the place of a
 * threshold, huge pages, and in whether a reload moves live memory. A changed option other than a
 * limit makes another strategy, so the versions repeat: the process has a bounded number of
 * strategies. */
static const char policy_text[] =
    "local MiB, KiB, version = loam.MiB, loam.KiB, %d\n"
    "local plain = loam.host { name = 'plain' }\n"
    "local cache = loam.host { name = 'cache', limit = (2 + version) * MiB, soft = 1 * MiB }\n"
    "local second = loam.host { name = 'second', align = 64, limit = 1 * MiB }\n"
    "local guarded = loam.host { name = 'guarded', guard = version %% 2 == 0 and 50 or 80 }\n"
    "local wide = loam.host { name = 'wide', align = version < 3 and 64 or 256 }\n"
    "local zeroed = loam.host { name = 'zeroed', zero = true }\n"
    "local huge = loam.host { name = 'huge', huge = 'thp' }\n"
    "local never = loam.host { name = 'never', huge = false }\n"
    "local spread = loam.host { name = 'spread', numa = 'interleave', align = 4 * KiB }\n"
    "local system = loam.system { name = 'system' }\n"
    "local lib = loam.handler 'soak'\n"
    "local lent = loam.shared { name = 'lent', limit = 64 * MiB }\n"
    "local gpu = loam.device { name = 'gpu' }\n"
    "return loam.policy { name = 'soak' .. version, apply = '%s', pick = function(req)\n"
    "  local tag = req.tag\n"
    "  if tag:under 'cache' then return cache:or_else(second):or_else(plain) end\n"
    "  if tag:under 'parse' then return guarded:or_else(plain) end\n"
    "  if tag:under 'wide' then return req.size < 1000 + version and wide or plain end\n"
    "  if tag:under 'zeroed' then return zeroed end\n"
    "  if tag:under 'huge' then return version %% 2 == 0 and huge or never end\n"
    "  if tag:under 'spread' then return spread:or_else(plain) end\n"
    "  if tag:is 'host.system' then return system end\n"
    "  if tag:is 'host.lib' then return lib:or_else(plain) end\n"
    "  if tag:under 'lent' then return req.size > 64 * KiB and lent:or_else(plain) or plain end\n"
    "  if tag:under 'counted' then\n"
    "    if req.live > 1 * MiB then return wide end\n"
    "    return loam.node(0).free < 0 and huge or never\n"
    "  end\n"
    "  if tag:under 'gpu' then return gpu:or_else(plain) end\n"
    "  return plain\n"
    "end }\n";

/* Replaces the policy file by a rename, as an editor does. */
static void edit(void) {
  char next[600];
  int version = (int)(edits++ % VERSIONS);
  snprintf(next, sizeof next, "%s.next", policy_path);
  FILE *f = fopen(next, "we");
  if (!f) give_up(next);
  fprintf(f, policy_text, version, version % 3 == 2 ? "live" : "new");
  if (fclose(f) || rename(next, policy_path)) give_up(policy_path);
}

/* ---- The host's own allocator, as a handler ---- */

static void *lib_malloc(void *ctx, size_t size) { return (void)ctx, malloc(size); }
static void *lib_calloc(void *ctx, size_t n, size_t size) { return (void)ctx, calloc(n, size); }
static void *lib_realloc(void *ctx, void *p, size_t size) { return (void)ctx, realloc(p, size); }
static void lib_free(void *ctx, void *p, size_t size) {
  (void)ctx, (void)size;
  free(p);
}
static const loam_handler lib = { "soak",
                                  1,
                                  { NULL, lib_malloc, lib_calloc, lib_realloc, lib_free } };

/* ---- Operations ---- */

/* Returns a random size. Nine of ten are at most 1 KiB, one in a hundred is up to 256 KiB, and few
 * are up to 4 MiB. */
static size_t draw_size(uint64_t r) {
  uint64_t part = r % 1000;
  r >>= 16;
  if (part < 900) return r % 1024;
  if (part < 990) return r % (16 << 10);
  return part < 999 ? r % (256 << 10) : r % (4 << 20);
}

/* Returns the byte that a block is filled with. It depends on the block's size and tag, not its
 * address. */
static unsigned char mark_of(const place *p) { return (unsigned char)(0xa5 ^ p->size ^ p->tag); }

static bool has_content(const place *p) { return p->kind != DEVICE && p->size > 0; }

static unsigned char *content_of(const place *p) {
  return p->kind == OWNER ? loam_block_data(p->block) : p->block;
}

static void fill(const place *p) {
  if (has_content(p)) memset(content_of(p), mark_of(p), p->size);
}

static void check_content(const place *p, size_t size) {
  if (!has_content(p) || !size) return;
  const unsigned char *c = content_of(p), mark = mark_of(p);
  if (c[0] != mark || c[size - 1] != mark || c[size / 2] != mark)
    fault("a block of '%s' with %zu bytes has other content", tags[p->tag], p->size);
}

static void *get_plain(loam_site *s, size_t size, uint64_t r) {
  if (r % 4 == 0) {
    unsigned char *p = loam_calloc(s, 1, size);
    if (p && size && (p[0] || p[size - 1])) fault("loam_calloc: %zu bytes are not zero", size);
    return p;
  }
  if (r % 4 == 1) {
    size_t alignment = (size_t)16 << r / 4 % 8;
    void *p = loam_aligned_alloc(s, alignment, size);
    if ((uintptr_t)p % alignment) fault("%p is not aligned to %zu", p, alignment);
    return p;
  }
  return loam_malloc(s, size);
}

static void give_back(place *p) {
  check_content(p, p->size);
  if (p->kind == OWNER) loam_block_release(p->block);
  else if (p->kind == DEVICE || p->kind == PINNED) loam_device_free(p->block, NULL);
  else loam_free(p->block);
  p->kind = NONE;
}

static void get(place *p, uint64_t r, bool with_device) {
  p->tag = (int)(r % (uint64_t)(with_device ? HEADER_TAG : GPU_TAG));
  p->size = draw_size(r >> 8);
  r = scatter(r);
  loam_site *s = site[p->tag];
  if (p->tag >= GPU_TAG) {
    p->kind = r % 4 ? DEVICE : PINNED;
    p->block = r % 4 ? loam_device_alloc(s, p->size, NULL) : loam_pinned_alloc(s, p->size, 0);
  } else if (r % 16 == 0) {
    p->kind = OWNER;
    p->block = r & 16 ? loam_block_new(s, p->size) : loam_block_aligned(s, 256, p->size);
  } else {
    p->kind = PLAIN;
    p->block = get_plain(s, p->size, r >> 8);
  }
  if (p->block) {
    fill(p);
    return;
  }
  fault("'%s', kind %d, %zu bytes: %s", tags[p->tag], (int)p->kind, p->size, loam_error());
  p->kind = NONE;
}

static void resize(place *p, uint64_t r) {
  size_t size = draw_size(r) + 1;
  void *block = loam_realloc(NULL, p->block, size);
  if (!block) {
    fault("loam_realloc of '%s' to %zu bytes: %s", tags[p->tag], size, loam_error());
    return;
  }
  p->block = block;
  check_content(p, size < p->size ? size : p->size);
  p->size = size;
  fill(p);
}

/* Makes an arena and a slice, which live only during this call. */
static void use_arena(uint64_t r) {
  loam_block *arena = loam_arena_new(site[r % GPU_TAG], LOAM_ARENA_RESIZABLE, 0);
  char *piece = NULL;
  for (size_t i = 1; arena && i < 40; i++) {
    piece = loam_arena_resize(arena, i % 3 ? piece : NULL, i * 37);
    if (!piece) fault("loam_arena_resize: %s", loam_error());
    else memset(piece, (int)i, i * 37);
  }
  if (!arena) fault("loam_arena_new: %s", loam_error());
  loam_block_release(arena);
  loam_block *whole = loam_block_zeroed(site[0], 4096);
  loam_block *part = loam_block_slice(whole, 100, 200);
  if (!part) fault("loam_block_slice: %s", loam_error());
  loam_block_release(whole);
  loam_block_release(part);
}

static void operate(place *all, uint64_t r, bool with_device) {
  place *p = &all[r % PLACES];
  r = scatter(r);
  if (r % 512 == 0) use_arena(r >> 9);
  if (p->kind == NONE) get(p, r, with_device);
  else if (p->kind == PLAIN && r % 3 == 0) resize(p, r >> 8);
  else if (with_device || (p->kind != DEVICE && p->kind != PINNED)) give_back(p);
}

/* ---- Rounds ---- */

/* One thread; it works on the places of one worker. */
typedef struct worker {
  pthread_t id;
  place *all;
  uint64_t seed;
  long most; /* operations of a thread that lives for a moment; 0: until the round ends */
} worker;

static void *work(void *argument);

static void begin(worker *w) {
  errno = pthread_create(&w->id, NULL, work, w);
  if (errno) give_up("pthread_create");
}

static void *work(void *argument) {
  worker *w = argument;
  uint64_t i = 0;
  loam_scope_enter(site[0]);
  while (w->most ? i < (uint64_t)w->most : !atomic_load(&round_ends)) {
    operate(w->all, scatter(w->seed + i), has_device);
    if (++i % 4096 || w->most) continue;
    /* Starts a short-lived thread. This thread waits for it, so only one of them uses the
     * places. */
    worker brief = { .all = w->all, .seed = ~w->seed + i, .most = 200 };
    begin(&brief);
    pthread_join(brief.id, NULL);
  }
  loam_scope_leave();
  atomic_fetch_add(&operations, i);
  atomic_fetch_add(&threads_made, 1);
  return NULL;
}

static void run_round(uint64_t number) {
  worker all[WORKERS];
  struct timespec length = { ROUND_MS / 1000, ROUND_MS % 1000 * 1000000L };
  atomic_store(&round_ends, false);
  for (uint64_t i = 0; i < WORKERS; i++) {
    all[i] = (worker){ .all = places[i], .seed = (number * WORKERS + i) << 32 };
    begin(&all[i]);
  }
  nanosleep(&length, NULL);
  atomic_store(&round_ends, true);
  for (int i = 0; i < WORKERS; i++) pthread_join(all[i].id, NULL);
}

/* Forks a child, which changes the blocks of its parent in its own copy of the memory. */
static void run_child(uint64_t number) {
  int before = atomic_load(&faults);
  pid_t pid = fork();
  if (pid < 0) give_up("fork");
  if (pid == 0) {
    for (uint64_t i = 0; i < 2000; i++) operate(places[0], scatter(number << 20 | i), false);
    _exit(atomic_load(&faults) > before);
  }
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || status) fault("a forked child ended with %d", status);
}

/* ---- Figures at a quiet point ---- */

static struct sums { uint64_t blocks[TAGS], bytes[TAGS]; } held;

static void add(struct sums *s, int tag, const void *address) {
  loam_owner_info owner;
  if (loam_owner(address, &owner) != LOAM_OK) {
    fault("loam_owner of a block of '%s': %s", tags[tag], loam_error());
    return;
  }
  if (strcmp(owner.tag, tags[tag])) fault("tag '%s', expected '%s'", owner.tag, tags[tag]);
  s->blocks[tag]++;
  s->bytes[tag] += owner.size;
}

/* Adds a loam_block to the sums. Its data follow the header in one block of their tag, or are a
 * separate block. In the latter case the header has the tag "loam.block". */
static void add_owner(struct sums *s, const place *p) {
  loam_owner_info header;
  if (loam_owner(p->block, &header) != LOAM_OK) fault("loam_owner of a header: %s", loam_error());
  else if (strcmp(header.tag, tags[HEADER_TAG])) add(s, p->tag, p->block);
  else {
    add(s, HEADER_TAG, p->block);
    add(s, p->tag, loam_block_data(p->block));
  }
}

static void count_held(void) {
  memset(&held, 0, sizeof held);
  for (int w = 0; w < WORKERS; w++)
    for (int i = 0; i < PLACES; i++) {
      const place *p = &places[w][i];
      if (p->kind == OWNER) add_owner(&held, p);
      else if (p->kind != NONE) add(&held, p->tag, p->block);
    }
}

static void see_tag(void *ctx, const loam_stats_row *row) {
  struct sums *seen = ctx;
  for (int i = 0; i < TAGS; i++)
    if (!strcmp(row->tag, tags[i]))
      seen->blocks[i] = row->live_blocks, seen->bytes[i] = row->live_bytes;
}

static void check_figures(struct loam_stats first) {
  struct sums seen = { 0 };
  uint64_t blocks = 0, bytes = 0;
  count_held();
  struct loam_stats now = figures();
  if (loam_stats_by(LOAM_BY_TAG, see_tag, &seen) != LOAM_OK) fault("by tag: %s", loam_error());
  for (int i = 0; i < TAGS; i++) {
    expect(tags[i], seen.blocks[i], held.blocks[i]);
    expect(tags[i], seen.bytes[i], held.bytes[i]);
    blocks += held.blocks[i];
    bytes += held.bytes[i];
  }
  expect("live blocks", now.live_blocks - first.live_blocks, blocks);
  expect("live bytes", now.live_bytes - first.live_bytes, bytes);
  expect("failed requests", now.failed, 0);
  expect("denied requests", now.denied, 0);
  expect("wrong frees", now.bad_frees, 0);
}

static void see_got(void *ctx, const loam_got *got) { *(uint64_t *)ctx += got->checked_bytes; }

/* ---- The whole run ---- */

/* Resident memory, in bytes. */
typedef struct memory {
  int64_t kept;   /* with the free memory that is kept for reuse */
  int64_t beyond; /* after that memory was given back, less the live bytes: these vary at random */
} memory;

static memory latest, /* `kept` is the lowest of the quiet points since the last sample */
    highest_early; /* of the early samples: the first tenth, or EARLY_LEAST_S, or EARLY_SAMPLES */

static double mib(int64_t bytes) { return (double)bytes / 1048576; }

static void check_growth(const char *what, int64_t now, int64_t early, int percent) {
  if (now > early + early * percent / 100 + ((int64_t)MARGIN_MIB << 20))
    fault("resident memory, %s, is %.1f MiB; early it was at most %.1f", what, mib(now),
          mib(early));
}

/* Prints a sample of memory, and compares it with the early samples. The free memory
 * of the C library goes back too: the blocks of loam.system{} and of the handler lie there. */
static void sample(double elapsed, bool is_early) {
  loam_trim();
  loam_device_trim(-1);
  malloc_trim(0);
  struct loam_stats s = figures();
  int64_t trimmed = resident();
  latest.beyond = trimmed - (int64_t)s.live_bytes;
  printf("%7.1f %9.1f %9.1f %9.1f %9.1f %8u %10llu %8llu %11llu %10llu\n", elapsed / 60,
         mib(latest.kept), mib(trimmed), mib((int64_t)s.live_bytes), mib((int64_t)s.metadata_bytes),
         s.strategies, (unsigned long long)s.generation,
         (unsigned long long)atomic_load(&threads_made),
         (unsigned long long)atomic_load(&operations), (unsigned long long)s.fallbacks);
  fflush(stdout);
  if (!is_early) {
    check_growth("with what is kept for reuse", latest.kept, highest_early.kept, KEPT_PERCENT);
    check_growth("trimmed, beyond the live bytes", latest.beyond, highest_early.beyond,
                 BEYOND_PERCENT);
  } else {
    if (latest.kept > highest_early.kept) highest_early.kept = latest.kept;
    if (latest.beyond > highest_early.beyond) highest_early.beyond = latest.beyond;
  }
  latest.kept = INT64_MAX;
}

/* Checks the figures between two rounds. Each eighth time also forks a child, and each eighth time
 * compares the placement of all blocks with the policy. */
static void quiet_point(struct loam_stats first, uint64_t number) {
  uint64_t checked = 0;
  check_figures(first);
  if (number % 8 == 3) run_child(number);
  if (number % 8 == 5 && loam_got_each(see_got, &checked) != LOAM_OK)
    fault("loam_got_each: %s", loam_error());
  int64_t r = resident();
  if (r < latest.kept) latest.kept = r;
}

static void run(double seconds, struct loam_stats first) {
  double start = now_s(), edited = start, sampled = start;
  double pause = seconds / 20 < 60 ? seconds / 20 : 60;
  double early = seconds / 10 < EARLY_LEAST_S ? EARLY_LEAST_S : seconds / 10;
  int samples = 0;
  latest.kept = INT64_MAX;
  printf("%7s %9s %9s %9s %9s %8s %10s %8s %11s %10s\n", "minute", "resident", "trimmed", "live",
         "own, MiB", "strateg.", "generation", "threads", "operations", "fallbacks");
  for (uint64_t number = 0; now_s() - start < seconds; number++) {
    run_round(number);
    quiet_point(first, number);
    double now = now_s();
    if (now - edited >= EDIT_MS / 1000.0) edit(), edited = now;
    if (now - sampled < pause) continue;
    sample(now - start, now - start <= early || samples < EARLY_SAMPLES);
    sampled = now;
    samples++;
  }
}

static void free_all(struct loam_stats first) {
  for (int w = 0; w < WORKERS; w++)
    for (int i = 0; i < PLACES; i++)
      if (places[w][i].kind != NONE) give_back(&places[w][i]);
  check_figures(first);
}

/* Checks that edits, fallbacks, soft limits and moves have happened. Otherwise the run proves
 * nothing about them. */
static void expect_all_used(struct loam_stats end, double seconds) {
  struct loam_policy_info info;
  loam_policy_info(&info);
  expect("refused policies", info.refused, 0);
  if (info.generation < edits / 2)
    fault("%llu edits, but generation %llu", (unsigned long long)edits,
          (unsigned long long)info.generation);
  if (seconds < 60) return;
  if (!end.fallbacks) fault("no request was served by a fallback");
  if (!atomic_load(&events[LOAM_EVENT_SOFT_LIMIT])) fault("no soft limit was passed");
  if (!atomic_load(&events[LOAM_EVENT_MOVED])) fault("no live memory was moved");
  printf("%llu edits; events: %llu policies live, %llu moves, %llu soft limits, %llu shortfalls; "
         "%s device memory\n",
         (unsigned long long)edits, (unsigned long long)events[LOAM_EVENT_POLICY_LIVE],
         (unsigned long long)events[LOAM_EVENT_MOVED],
         (unsigned long long)events[LOAM_EVENT_SOFT_LIMIT],
         (unsigned long long)events[LOAM_EVENT_SHORTFALL], has_device ? "with" : "without");
}

int main(int argc, char **argv) {
  double minutes = argc == 3 ? atof(argv[1]) : 0;
  if (minutes < 1) {
    fprintf(stderr, "usage: soak MINUTES FOLDER, one minute at least\n");
    return 2;
  }
  if (snprintf(policy_path, sizeof policy_path, "%s/soak.lua", argv[2]) >=
      (int)sizeof policy_path) {
    fprintf(stderr, "soak: the path of the folder is too long: %s\n", argv[2]);
    return 2;
  }
  edit();
  loam_on_event(on_event, NULL);
  if (loam_handler_register(&lib) != LOAM_OK) fault("handler: %s", loam_error());
  loam_config config = {
    .size = sizeof config, .policy = policy_path, .watch = 1, .guard_report = 1
  };
  if (loam_start(&config) != LOAM_OK) {
    fprintf(stderr, "soak: %s\n", loam_error());
    return 2;
  }
  for (int i = 0; i < TAGS; i++)
    if (!(site[i] = loam_site_get(tags[i]))) fault("site '%s': %s", tags[i], loam_error());
  has_device = loam_device_count() > 0;
  struct loam_stats first = figures();
  run(minutes * 60, first);
  free_all(first);
  expect_all_used(figures(), minutes * 60);
  loam_stop();
  return atomic_load(&faults) ? 1 : 0;
}
