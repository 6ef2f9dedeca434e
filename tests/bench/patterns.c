/* patterns.c - patterns in which programs use memory, through whichever malloc and free the process
 * has. So tests/bench/allocators compares allocators by running one program under several
 * LD_PRELOAD. Built with PATTERNS_DIRECT, the program is `patterns_direct`, which calls loam_malloc
 * with a site.
 *
 *   patterns                     prints the rows, one a line: pattern, size
 *   patterns serves              prints the file that has the malloc of this process
 *   patterns ROW MILLISECONDS    runs a row (from 0) for this time; prints ns of a pair
 *   patterns ROW memory          does about 33,000 pairs of a row, or one run if the row is about
 *                                pages; prints the resident KiB at the peak, when all is freed, and
 *                                a second later, separated by tabs
 *   patterns count               runs each row that is not about pages in a process of its own, in
 *                                which callgrind counts the function `counted`; prints the row, the
 *                                process id and the number of pairs
 *
 * A time is the minimum over stretches of some milliseconds, each of whole runs of the pattern. The
 * sizes of a mix are drawn once, and used in turn. Slots are drawn for each run, so a minimum over
 * few runs of a long pattern can be a lucky one. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum {
  PAGE = 4096,
  BATCH = 512,
  CYCLE = 4096, /* sizes drawn for a mix; eight of them are NumPy's arrays */
  SLOTS = 10000,
  RING = 1024,
  GROWTHS = 76, /* from 16 B to 256 MiB, a quarter larger each time */
  STRETCH_NS = 3000000,
  STRETCHES = 5,       /* at most, until one is short enough */
  LONG_NS = 400000000, /* after a stretch longer than this, no other is tried */
  COUNTED = 4096,      /* pairs of a row, about */
};

static const size_t KiB = 1024, MiB = 1048576;
#define SEED 2463534242

/* The state of a thread's random numbers. A loop uses a copy, which is in registers. A variable in
 * memory costs some ns a pair if its address and a block's address have equal last twelve bits. */
typedef struct random_state {
  uint32_t seed;
  int at; /* the next of the sizes */
  int pairs, slots;
} random_state;

/* The blocks that a thread holds, and its random numbers. */
typedef struct worker {
  char *slot[SLOTS];
  random_state random_state;
} worker;

typedef struct range {
  size_t least, most;
} range;

typedef struct pattern {
  const char *name;
  void (*run)(worker *w); /* `pairs` of malloc and free; writes the first byte of each block */
  void (*second_thread)(worker *w); /* runs at the same time in a second thread, or NULL */
  int pairs;
  int slots;   /* the blocks that each thread holds; they are made before the clock runs */
  int threads; /* threads that do `pairs` each */
  range size[8];
} pattern;

static const pattern *chosen;
static worker first = { .random_state = { .seed = SEED } },
              second = { .random_state = { .seed = 88675123 } };
static size_t sizes[CYCLE];

/* The calls for memory. */

#ifdef PATTERNS_DIRECT
static loam_site *site;
static void begin(void) { site = loam_site_get("bench.patterns"); }
static inline void *get(size_t size) { return loam_malloc(site, size); }
static inline void *resize(void *p, size_t size) { return loam_realloc(site, p, size); }
static inline void give(void *p) { loam_free(p); }
#define SERVER loam_malloc
#else
static void begin(void) {}
static inline void *get(size_t size) { return malloc(size); }
static inline void *resize(void *p, size_t size) { return realloc(p, size); }
static inline void give(void *p) { free(p); }
#define SERVER malloc
#endif

/* The patterns. */

/* Allocates a block and writes its first byte. The compiler must believe that the byte is read:
 * else it removes the store, and then the pair. */
static inline char *take(size_t size) {
  char *p = get(size);
  *p = 1;
  __asm__ volatile("" : : "r"(p) : "memory");
  return p;
}

static void touch_pages(char *p, size_t from, size_t to) {
  for (; from < to; from += PAGE) p[from] = 1;
  __asm__ volatile("" : : "r"(p) : "memory");
}

static inline uint32_t draw(random_state *c) {
  c->seed ^= c->seed << 13;
  c->seed ^= c->seed >> 17;
  return c->seed ^= c->seed << 5;
}

static inline size_t next_size(random_state *c) {
  size_t size = sizes[c->at];
  if (++c->at == c->pairs) c->at = 0;
  return size;
}

static inline size_t any_slot(random_state *c) {
  return (uint64_t)draw(c) * (uint64_t)c->slots >> 32;
}

static void last_in_first_out(worker *w) {
  size_t size = sizes[0];
  (void)w;
  for (int i = 0; i < BATCH; i++) give(take(size));
}

static void batch(worker *w) {
  size_t size = sizes[0];
  for (int i = 0; i < BATCH; i++) w->slot[i] = take(size);
  for (int i = 0; i < BATCH; i++) give(w->slot[i]);
}

static void random_lives(worker *w) {
  random_state c = w->random_state;
  for (int i = c.pairs; i > 0; i--) {
    char **slot = &w->slot[any_slot(&c)];
    give(*slot);
    *slot = take(next_size(&c));
  }
  w->random_state = c;
}

/* Like random_lives, but writes to every page of a block. */
static void random_lives_touched(worker *w) {
  random_state c = w->random_state;
  for (int i = c.pairs; i > 0; i--) {
    char **slot = &w->slot[any_slot(&c)];
    size_t size = next_size(&c);
    give(*slot);
    *slot = take(size);
    touch_pages(*slot, 0, size);
  }
  w->random_state = c;
}

static void growth(worker *w) {
  size_t size = 16, before = 0;
  char *p = NULL;
  (void)w;
  for (int i = 0; i < GROWTHS; i++) {
    if (i == GROWTHS - 1) size = 256 * MiB;
    p = resize(p, size);
    touch_pages(p, before, size);
    before = size;
    size += size / 4;
  }
  give(p);
}

/* A ring with one writer and one reader. Each thread publishes its own count with release. It reads
 * the other thread's count with acquire, and only if the count that it read last is not enough. */
static struct {
  _Alignas(64) atomic_ulong put;
  unsigned long put_seen;
  _Alignas(64) atomic_ulong got;
  unsigned long got_seen;
  _Alignas(64) char *p[RING];
} ring;

#if defined(__x86_64__) || defined(__i386__)
#define RELAX "pause"
#elif defined(__aarch64__)
#define RELAX "yield"
#else
#define RELAX ""
#endif

/* Spins until the value is not `seen`, and returns it. Yields now and then, because the other
 * thread may need this processor. */
static unsigned long load_changed(atomic_ulong *from, unsigned long seen) {
  unsigned long now;
  for (int spins = 1; (now = atomic_load_explicit(from, memory_order_acquire)) == seen; spins++) {
    if (spins % 1024 == 0) sched_yield();
    __asm__ volatile(RELAX : : : "memory");
  }
  return now;
}

static void produce(worker *w) {
  unsigned long put = atomic_load_explicit(&ring.put, memory_order_relaxed);
  (void)w;
  for (int i = 0; i < BATCH; i++) {
    char *p = take(sizes[0]);
    if (put - ring.got_seen == RING) ring.got_seen = load_changed(&ring.got, ring.got_seen);
    ring.p[put % RING] = p;
    atomic_store_explicit(&ring.put, ++put, memory_order_release);
  }
}

static void consume(worker *w) {
  unsigned long got = atomic_load_explicit(&ring.got, memory_order_relaxed);
  (void)w;
  for (int i = 0; i < BATCH; i++) {
    if (got == ring.put_seen) ring.put_seen = load_changed(&ring.put, ring.put_seen);
    give(ring.p[got % RING]);
    atomic_store_explicit(&ring.got, ++got, memory_order_release);
  }
}

/* The rows. */

#define SMALL                                                                               \
  {                                                                                         \
    { 16, 16 }, { 64, 64 }, { 256, 256 }, { 1024, 1024 }, { 4096, 4096 }, { 16384, 16384 }, \
        { 32768, 32768 },                                                                   \
  }
#define FEW \
  { { 16, 16 }, { 256, 256 }, { 4096, 4096 }, { 32768, 32768 }, }

static const pattern patterns[] = {
  { "LIFO", last_in_first_out, NULL, BATCH, 0, 1, SMALL },
  { "LIFO, 2 threads", last_in_first_out, last_in_first_out, BATCH, 0, 2, FEW },
  { "batch of 512", batch, NULL, BATCH, 0, 1, SMALL },
  { "batch, 2 threads", batch, batch, BATCH, 0, 2, FEW },
  { "random, 10,000 live", random_lives, NULL, CYCLE, SLOTS, 1, SMALL },
  { "random, 10,000 live", random_lives, NULL, CYCLE, SLOTS, 1, { { 16, 1024 }, { 16, 32768 } } },
  { "random, 2 threads", random_lives, random_lives, CYCLE, SLOTS, 2, FEW },
  { "random, 2 threads",
    random_lives,
    random_lives,
    CYCLE,
    SLOTS,
    2,
    { { 16, 1024 }, { 16, 32768 } } },
  { "producer, consumer", produce, consume, BATCH, 0, 1, { { 16, 16 }, { 1024, 1024 } } },
  { "NumPy-like mix", random_lives_touched, NULL, CYCLE, 1000, 1, { { 16, 4194304 } } },
  { "pages touched, 8 live",
    random_lives_touched,
    NULL,
    64,
    8,
    1,
    { { 65536, 65536 },
      { 262144, 262144 },
      { 1048576, 1048576 },
      { 4194304, 4194304 },
      { 16777216, 16777216 } } },
  { "pages touched, 8 live", random_lives_touched, NULL, BATCH, 8, 1, { { 65536, 16777216 } } },
  { "realloc, growing", growth, NULL, GROWTHS, 0, 1, { { 16, 268435456 } } },
};

/* Returns the pattern of a row, and sets *size to its sizes. Returns NULL after the last row. */
static const pattern *row_at(long row, range *size) {
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
    for (int k = 0; k < 8 && patterns[i].size[k].most; k++)
      if (row-- == 0) {
        *size = patterns[i].size[k];
        return &patterns[i];
      }
  return NULL;
}

static void print_size(size_t size) {
  if (size >= MiB) printf("%zu MiB", size / MiB);
  else if (size >= KiB) printf("%zu KiB", size / KiB);
  else printf("%zu B", size);
}

static void print_row(const pattern *p, range size) {
  printf("%s\t", p->name);
  print_size(size.least);
  if (size.least < size.most) {
    printf(" - ");
    print_size(size.most);
  }
}

/* Draws a size. Each doubling is equally likely, so that small sizes are the common ones. */
static size_t draw_between(range size) {
  int doublings = 0;
  while (size.least << (doublings + 1) <= size.most) doublings++;
  if (!doublings) return size.least;
  size_t low = size.least << draw(&first.random_state) % (unsigned)doublings;
  return low + draw(&first.random_state) % low;
}

static void draw_sizes(range size) {
  int is_numpy = chosen->run == random_lives_touched && size.least < PAGE;
  range objects = { 16, 1024 }, arrays = { MiB, size.most };
  for (int i = 0; i < CYCLE; i++) {
    if (!is_numpy) sizes[i] = draw_between(size);
    else sizes[i] = draw_between(i % 512 == 511 ? arrays : objects);
  }
}

/* The measurements. */

/* `runs_wanted` is how many runs the second thread must have done; ULONG_MAX ends the thread.
 * `runs_done` is how many it has done. A thread stores its own with release, and loads the other
 * with acquire. */
static atomic_ulong runs_wanted, runs_done;

/* callgrind finds this function by its name, and counts its instructions. */
__attribute__((noinline)) static void counted(void (*run)(worker *w), worker *w) { run(w); }

static int is_counting; /* written before `runs_wanted` is stored */

static void perform(void (*run)(worker *w), worker *w) {
  if (is_counting) counted(run, w);
  else run(w);
}

static void *run_second_thread(void *unused) {
  unsigned long done = 0, target;
  while ((target = load_changed(&runs_wanted, done)) != ~0UL) {
    for (; done < target; done++) perform(chosen->second_thread, &second);
    atomic_store_explicit(&runs_done, done, memory_order_release);
  }
  return unused;
}

static int64_t stretch(unsigned long runs) {
  int64_t start = bench_now();
  unsigned long before = atomic_load_explicit(&runs_done, memory_order_relaxed);
  if (chosen->second_thread)
    atomic_store_explicit(&runs_wanted, before + runs, memory_order_release);
  for (unsigned long i = 0; i < runs; i++) perform(chosen->run, &first);
  if (chosen->second_thread) load_changed(&runs_done, before);
  return bench_now() - start;
}

/* Returns the shortest of a few stretches of `runs` runs, or the first that is short enough. One
 * stretch does not show how long the runs take, because a thread may begin or wait for a processor
 * in it. */
static int64_t shortest(unsigned long runs) {
  int64_t best = INT64_MAX, took = 0;
  for (int i = 0; i < STRETCHES && best >= STRETCH_NS && took <= LONG_NS; i++) {
    took = stretch(runs);
    if (took < best) best = took;
  }
  return best;
}

/* Returns the nanoseconds of a pair in the best stretch. The search for the number of runs in a
 * stretch also warms up. */
static double best_of(long milliseconds) {
  int64_t end = bench_now() + milliseconds * 1000000, took, best;
  unsigned long runs = 1;
  while ((best = shortest(runs)) < STRETCH_NS) runs *= 2;
  while (bench_now() < end) {
    took = stretch(runs);
    if (took < best) best = took;
  }
  return (double)best / (double)runs / chosen->pairs / chosen->threads;
}

/* Runs the two threads one after the other, so that neither waits while it is counted. */
static void run_in_turn(int runs) {
  for (int i = 0; i < runs; i++) {
    unsigned long before = atomic_load_explicit(&runs_done, memory_order_relaxed);
    perform(chosen->run, &first);
    if (!chosen->second_thread) continue;
    atomic_store_explicit(&runs_wanted, before + 1, memory_order_release);
    load_changed(&runs_done, before);
  }
}

static void fill(worker *w) {
  w->random_state.pairs = chosen->pairs;
  w->random_state.slots = chosen->slots;
  for (int i = 0; i < chosen->slots; i++) w->slot[i] = take(next_size(&w->random_state));
}

static void empty(worker *w) {
  for (int i = 0; i < chosen->slots; i++) give(w->slot[i]);
}

static pthread_t second_thread;

static void start_row(range size) {
  draw_sizes(size);
  fill(&first);
  if (chosen->threads == 2) fill(&second);
  if (chosen->second_thread && pthread_create(&second_thread, NULL, run_second_thread, NULL))
    abort();
}

static void end_row(void) {
  if (chosen->second_thread) {
    atomic_store_explicit(&runs_wanted, ~0UL, memory_order_release);
    pthread_join(second_thread, NULL);
  }
  empty(&first);
  if (chosen->threads == 2) empty(&second);
}

/* Returns a figure in KiB from a file of /proc, or -1. getrusage could give the shell's memory from
 * before exec, if that was more. */
static long resident(const char *path, const char *what) {
  char line[256];
  long figure = -1;
  FILE *file = fopen(path, "r");
  if (!file) return -1;
  while (figure < 0 && fgets(line, sizeof line, file))
    if (!strncmp(line, what, strlen(what))) figure = strtol(line + strlen(what), NULL, 10);
  fclose(file);
  return figure;
}

/* Returns the resident KiB. This file is exact; /proc/self/status is not. */
static long resident_now(void) { return resident("/proc/self/smaps_rollup", "Rss:"); }

static int print_rows(void) {
  range size;
  for (long row = 0; (chosen = row_at(row, &size)); row++) {
    print_row(chosen, size);
    putchar('\n');
  }
  return 0;
}

static int print_server(void) {
  Dl_info whose;
  if (!dladdr((void *)SERVER, &whose)) return 1;
  puts(whose.dli_fname);
  return 0;
}

/* Returns whether the cost of a row is mostly that of pages. The system does that work, so
 * callgrind does not see it. */
static int is_about_pages(range size) { return size.most > 32 * KiB && chosen->pairs < CYCLE; }

/* Returns whether it takes a while until the row uses freed memory again, because its blocks have
 * very different sizes. */
static int needs_longer_run(range size) {
  return is_about_pages(size) && chosen->slots && size.least < size.most;
}

/* Binds a thread to the n-th of the processors that this process may use, if there are so many. */
static void stay_on(pthread_t thread, int n) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all)) abort();
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &all) || n-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(thread, sizeof one, &one);
    return;
  }
}

/* Gives each of the two threads of a row a processor of its own. If both ran on one processor, a
 * stretch would measure how long they wait for each other: a producer and a consumer then take 50
 * to 60 ns a pair under every allocator. */
static void part_threads(void) {
  if (!chosen->second_thread) return;
  stay_on(second_thread, 1);
  stay_on(pthread_self(), 0);
}

static int print_time(range size, long milliseconds) {
  if (needs_longer_run(size)) milliseconds += 600;
  start_row(size);
  part_threads();
  printf("%.2f\n", best_of(milliseconds));
  end_row();
  return 0;
}

static int print_memory(range size) {
  start_row(size);
  run_in_turn(is_about_pages(size) ? 1 : 8 * COUNTED / chosen->pairs);
  end_row();
  long peak = resident("/proc/self/status", "VmHWM:"), left = resident_now();
  usleep(1100000);
  printf("%ld\t%ld\t%ld\n", peak, left, resident_now());
  return 0;
}

static void count_row(long row, range size) {
  int runs = COUNTED / chosen->pairs;
  start_row(size);
  run_in_turn(runs);
  is_counting = 1;
  run_in_turn(runs);
  is_counting = 0;
  end_row();
  printf("%ld\t%ld\t%d\n", row, (long)getpid(), runs * chosen->pairs * chosen->threads);
}

/* Counts each row in a process of its own, so that no row finds memory that another row left. */
static int count_rows(void) {
  range size;
  for (long row = 0; (chosen = row_at(row, &size)); row++) {
    if (is_about_pages(size)) continue;
    pid_t child = fork();
    if (child == 0) {
      count_row(row, size);
      exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) < 0 || status) return 1;
  }
  return 0;
}

int main(int argc, char **argv) {
  range size;
  begin();
  if (argc == 1) return print_rows();
  if (argc == 2 && !strcmp(argv[1], "serves")) return print_server();
  if (argc == 2 && !strcmp(argv[1], "count")) return count_rows();
  if (argc != 3 || !(chosen = row_at(strtol(argv[1], NULL, 10), &size))) {
    fprintf(stderr, "usage: %s [serves | count | ROW MILLISECONDS | ROW memory]\n", argv[0]);
    return 2;
  }
  if (!strcmp(argv[2], "memory")) return print_memory(size);
  return print_time(size, strtol(argv[2], NULL, 10));
}
