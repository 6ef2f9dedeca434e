/* tails.c - work that shows how an allocator treats threads that end, large blocks, and short
 * phases, under whichever malloc the process has. tests/bench/tails runs it.
 *
 *   tails list        prints the scenes, one a line: name, tab, description
 *   tails SCENE       plays a scene; prints its processor time in ms
 *
 * With BENCH_TINY in the environment, each scene does a hundredth of its work. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define LM_COUNT(array) (sizeof(array) / sizeof *(array))

enum { BRIEF_BLOCKS = 20, BRIEF_MOST = 1000, AT_ONCE_MOST = 64 };

static int part = 1; /* a scene divides its work by this */

/* Random numbers of one thread (xorshift32). */
static uint32_t draw(uint32_t *seed, uint32_t n) {
  *seed ^= *seed << 13;
  *seed ^= *seed >> 17;
  *seed ^= *seed << 5;
  return (uint32_t)((uint64_t)*seed * n >> 32);
}

static char *touched(size_t size) {
  char *p = malloc(size);
  if (!p) abort();
  *p = 1;
  return p;
}

static pthread_t begun(void *(*run)(void *), void *argument) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, argument)) abort();
  return thread;
}

/* ---- Threads that end --------------------------------------------------------------------- */

static long rest_ns; /* how long a brief thread sleeps between taking and freeing its blocks */

static void *short_thread(void *seed) {
  char *block[BRIEF_BLOCKS];
  uint32_t random = (uint32_t)(uintptr_t)seed;
  for (int i = 0; i < BRIEF_BLOCKS; i++) block[i] = touched(16 + draw(&random, BRIEF_MOST));
  if (rest_ns) nanosleep(&(struct timespec){ .tv_nsec = rest_ns }, NULL);
  for (int i = 0; i < BRIEF_BLOCKS; i++) free(block[i]);
  return NULL;
}

/* Runs `n` brief threads, `at_once` at a time. */
static void play_brief(int n, int at_once) {
  pthread_t thread[AT_ONCE_MOST];
  for (int i = 0; i < n; i += at_once) {
    for (int k = 0; k < at_once; k++)
      thread[k] = begun(short_thread, (void *)(uintptr_t)(i + k + 1));
    for (int k = 0; k < at_once; k++) pthread_join(thread[k], NULL);
  }
}

static void play_sequence(void) { play_brief(10000 / part, 1); }
static void play_two(void) { play_brief(10000 / part, 2); }
static void play_brief_ms(int at_once) {
  rest_ns = 1000000;
  play_brief(4000 / part, at_once);
}
static void play_sixteen(void) { play_brief_ms(16); }
static void play_sixty_four(void) { play_brief_ms(64); }

/* The blocks of a server. A thread takes them over from the thread that ended before it. */
enum { SERVERS = 2, SERVED = 5000, SERVED_LEAST = 8, SERVED_MOST = 1000, EXCHANGES = 20000 };
typedef struct server {
  char *block[SERVED];
  uint32_t seed;
} server;

/* Frees and takes blocks at random places, then ends. */
static void *serve(void *ctx) {
  server *s = ctx;
  for (int i = 0; i < EXCHANGES; i++) {
    uint32_t at = draw(&s->seed, SERVED);
    free(s->block[at]);
    s->block[at] = touched(SERVED_LEAST + draw(&s->seed, SERVED_MOST - SERVED_LEAST));
  }
  return NULL;
}

static void play_successors(void) {
  enum { GENERATIONS = 300 };
  static server all[SERVERS];
  pthread_t thread[SERVERS];
  for (int i = 0; i < SERVERS; i++) all[i].seed = (uint32_t)i + 1;
  for (int n = 0; n < GENERATIONS / part; n++) {
    for (int i = 0; i < SERVERS; i++) thread[i] = begun(serve, &all[i]);
    for (int i = 0; i < SERVERS; i++) pthread_join(thread[i], NULL);
  }
}

/* ---- Large blocks ------------------------------------------------------------------------- */

static void play_large(void) {
  enum { SLOTS = 20, TURNS = 1000, LEAST = 5 << 20, MORE = 20 << 20 };
  char *slot[SLOTS] = { NULL };
  uint32_t seed = 42;
  for (int i = 0; i < TURNS / part; i++) {
    uint32_t at = draw(&seed, SLOTS);
    size_t size = LEAST + draw(&seed, MORE);
    free(slot[at]);
    slot[at] = memset(touched(size), 1, size);
  }
}

/* ---- Loops and phases --------------------------------------------------------------------- */

static void play_simple(void) {
  static const int counts[] = { 25, 100, 400, 1600 };
  enum { MOST = 1600, TURNS = 600, SIZE_MOST = 4096 };
  char *block[MOST];
  for (int turn = 0; turn < TURNS / part + 1; turn++) {
    for (size_t size = 16; size <= SIZE_MOST; size *= 2) {
      for (size_t c = 0; c < LM_COUNT(counts); c++) {
        for (int i = 0; i < counts[c]; i++) block[i] = touched(size);
        for (int i = 0; i < counts[c]; i++) free(block[i]);
      }
    }
  }
}

enum { PHASES = 50, PHASE_BLOCKS = 5000, PHASE_SHARED = 1000 };
static _Atomic(char *) shared[PHASE_SHARED];

/* Takes blocks of many sizes, gives some to the other thread, and frees the rest in another
 * order. */
static void *do_phase(void *ctx) {
  uint32_t seed = (uint32_t)(uintptr_t)ctx;
  static _Thread_local char *own[PHASE_BLOCKS];
  for (int i = 0; i < PHASE_BLOCKS; i++) {
    own[i] = touched(16 + draw(&seed, draw(&seed, 100) ? 256 : 8192));
    if (draw(&seed, 4)) continue;
    char *other = atomic_exchange(&shared[draw(&seed, PHASE_SHARED)], own[i]);
    own[i] = NULL;
    free(other);
  }
  for (int i = 0; i < PHASE_BLOCKS; i++) free(own[(i * 7919) % PHASE_BLOCKS]);
  return NULL;
}

static void play_phases(void) {
  enum { THREADS = 2, TURNS = 4 };
  pthread_t thread[THREADS];
  for (int n = 0; n < PHASES * TURNS / part; n++) {
    for (uintptr_t i = 0; i < THREADS; i++)
      thread[i] = begun(do_phase, (void *)(i + 1 + (uintptr_t)n * THREADS));
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  }
  for (int i = 0; i < PHASE_SHARED; i++) free(shared[i]);
}

/* ---- Scenes -------------------------------------------------------------------------------- */

static const struct {
  const char *name, *about;
  void (*play)(void);
} scenes[] = {
  { "sequence", "10,000 threads, one after the other", play_sequence },
  { "two", "10,000 threads, two at a time", play_two },
  { "sixteen", "4,000 threads of 1 ms, 16 at a time", play_sixteen },
  { "sixty-four", "4,000 threads of 1 ms, 64 at a time", play_sixty_four },
  { "successors", "threads that leave 5,000 blocks to a successor", play_successors },
  { "large", "blocks of 5 to 25 MiB, written to", play_large },
  { "simple", "25 to 1,600 blocks of 16 B to 4 KiB, over and over", play_simple },
  { "phases", "short phases on two threads", play_phases },
};

static double processor_ms(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 +
         (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e3;
}

int main(int argc, char **argv) {
  const char *name = argc == 2 ? argv[1] : "";
  if (getenv("BENCH_TINY")) part = 100;
  for (size_t i = 0; i < LM_COUNT(scenes); i++) {
    if (!strcmp(name, "list")) printf("%s\t%s\n", scenes[i].name, scenes[i].about);
    if (strcmp(name, scenes[i].name)) continue;
    double before = processor_ms();
    scenes[i].play();
    printf("%.1f\n", processor_ms() - before);
    return 0;
  }
  if (!strcmp(name, "list")) return 0;
  fprintf(stderr, "tails: \"%s\" is no scene; tails list names them\n", name);
  return 2;
}
