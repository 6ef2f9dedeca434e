/* latency.c - how long single requests of a thread of real-time priority take while threads of
 * ordinary priority allocate on the same processor, under whichever malloc the process has:
 *
 *   LD_PRELOAD=LIBRARY latency [SECONDS]      needs the right to use SCHED_FIFO
 *
 * Every 0.1 ms the thread of priority 50 exchanges 32 of its 1,000 blocks. Four other threads take
 * 20,000 blocks each, free them, and sleep for 20 ms. All run on processor 0. So the figures have
 * little of other programs in them: what delays the thread is the allocator, the kernel, and
 * threads of lower priority that hold locks. The program prints a row for malloc and one for free,
 * in ns: p50, p99, p99.9, p99.99 and the longest.
 *
 * With BENCH_TINY in the environment it runs for 0.1 s, at ordinary priority if it must. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { OTHERS = 4, BLOCKS = 20000, KEPT = 1000, AT_ONCE = 32, PAUSE_NS = 100000, PRIORITY = 50 };
enum { SMALL = 2000, LARGE = 60000, MOST = 4000000 };

static atomic_bool is_over;
static int64_t length_ns = 5000000000;

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint32_t draw(uint32_t *seed, uint32_t n) {
  *seed ^= *seed << 13;
  *seed ^= *seed >> 17;
  *seed ^= *seed << 5;
  return (uint32_t)((uint64_t)*seed * n >> 32);
}

static void *disturb(void *number) {
  char **block = calloc(BLOCKS, sizeof *block);
  uint32_t seed = (uint32_t)(uintptr_t)number;
  while (block && !is_over) {
    for (int i = 0; i < BLOCKS; i++) {
      block[i] = malloc(1 + draw(&seed, 16u << draw(&seed, 12)));
      if (block[i]) *block[i] = 1;
    }
    for (int i = 0; i < BLOCKS; i++) free(block[i]);
    usleep(20000);
  }
  free(block);
  return NULL;
}

/* How long the calls took. The memory is touched before. */
typedef struct record {
  int64_t *ns;
  size_t n;
} record;

static int compare(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void print(const char *name, record *r) {
  qsort(r->ns, r->n, sizeof *r->ns, compare);
  printf("%-6s", name);
  for (int i = 2; i <= 10000; i = i == 2 ? 100 : 10 * i)
    printf(" %9lld", (long long)r->ns[r->n - 1 - r->n / (size_t)i]);
  printf(" %9lld\n", (long long)r->ns[r->n - 1]);
}

static record begin_record(void) {
  record r = { mmap(NULL, MOST * sizeof *r.ns, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0),
               0 };
  if (r.ns == MAP_FAILED) abort();
  return r;
}

static void *measure(void *unused) {
  static void *block[KEPT];
  record mallocs = begin_record(), frees = begin_record();
  uint32_t seed = 7;
  (void)unused;
  for (int64_t end = now_ns() + length_ns; now_ns() < end && mallocs.n + AT_ONCE < MOST;) {
    nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    for (int i = 0; i < AT_ONCE; i++) {
      uint32_t at = draw(&seed, KEPT);
      size_t size = 16 + draw(&seed, draw(&seed, 16) ? SMALL : LARGE);
      int64_t begun = now_ns();
      free(block[at]);
      int64_t freed = now_ns();
      block[at] = malloc(size);
      mallocs.ns[mallocs.n++] = now_ns() - freed;
      frees.ns[frees.n++] = freed - begun;
    }
  }
  is_over = true;
  print("malloc", &mallocs);
  print("free", &frees);
  return NULL;
}

static int begin_measuring(pthread_t *out) {
  pthread_attr_t urgent;
  struct sched_param priority = { .sched_priority = PRIORITY };
  pthread_attr_init(&urgent);
  pthread_attr_setinheritsched(&urgent, PTHREAD_EXPLICIT_SCHED);
  pthread_attr_setschedpolicy(&urgent, SCHED_FIFO);
  pthread_attr_setschedparam(&urgent, &priority);
  int error = pthread_create(out, &urgent, measure, NULL);
  if (error && getenv("BENCH_TINY")) return pthread_create(out, NULL, measure, NULL);
  if (error) fprintf(stderr, "latency: no SCHED_FIFO: %s\n", strerror(error));
  return error;
}

int main(int argc, char **argv) {
  pthread_t other[OTHERS], measuring;
  cpu_set_t first;
  CPU_ZERO(&first);
  CPU_SET(0, &first);
  sched_setaffinity(0, sizeof first, &first);
  if (argc > 1) length_ns = (int64_t)(atof(argv[1]) * 1e9);
  if (getenv("BENCH_TINY")) length_ns = 100000000;
  for (uintptr_t i = 0; i < OTHERS; i++)
    if (pthread_create(&other[i], NULL, disturb, (void *)(i + 1))) return 1;
  if (begin_measuring(&measuring)) return 1;
  pthread_join(measuring, NULL);
  for (int i = 0; i < OTHERS; i++) pthread_join(other[i], NULL);
  return 0;
}
