/* moving.c - what moving live memory costs: GB/s of large blocks and of small objects, and what a
 * thread that allocates and frees all the time sees meanwhile: p50, p99, p99.9 and the longest
 * operation, beside the same time without. Where there is one node, memory goes onto huge pages and
 * off them again; with several, also from node to node. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "bench.h"

enum { SAMPLES = 1 << 22, ROUNDS = 4 };
#define LARGE ((size_t)256 << 20)
#define BLOCK ((size_t)64 << 20)
enum { OBJECTS = 100000, OBJECT = 640 };

static atomic_int stop;
static uint32_t *sample;
static long samples;

static void *allocate(void *arg) {
  samples = 0;
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    int64_t start = bench_now();
    char *p = loam_malloc(arg, 64 + (size_t)(samples & 63) * 200);
    *p = 1;
    loam_free(p);
    sample[samples++ & (SAMPLES - 1)] = (uint32_t)(bench_now() - start);
  }
  return NULL;
}

static int by_value(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static void tell(const char *what) {
  long n = samples < SAMPLES ? samples : SAMPLES;
  qsort(sample, (size_t)n, sizeof *sample, by_value);
  printf("%-14s%10ld operations   p50 %4u ns   p99 %5u ns   p99.9 %6u ns   max %8.3f ms\n", what,
         samples, sample[n / 2], sample[(long)((double)n * 0.99)],
         sample[(long)((double)n * 0.999)], sample[n - 1] / 1e6);
}

static void load(const char *strategy) {
  char text[512];
  snprintf(text, sizeof text,
           "local s = loam.host { %s }\n"
           "return loam.policy { pick = function(req) return s end }\n",
           strategy);
  bench_load("moving.lua", text);
}

static uint64_t moved;
static void note(void *ctx, const loam_placed *row) {
  (void)ctx;
  if (!strcmp(row->what, "moved")) moved += row->bytes;
}

/* Seconds. */
static double rebalance(const char *tag) {
  loam_rebalance_options options = { .size = sizeof options, .tag = tag, .rate = UINT64_MAX };
  int64_t start = bench_now();
  moved = 0;
  if (loam_rebalance(&options, NULL, note, NULL) != LOAM_OK) {
    fprintf(stderr, "%s\n", loam_error());
    exit(1);
  }
  return (double)(bench_now() - start) / 1e9;
}

/* There and back again; what was there before is as `back` says. */
static void move(const char *what, const char *tag, const char *there, const char *back) {
  double seconds[2] = { 0, 0 }, bytes[2] = { 0, 0 };
  for (int i = 0; i < ROUNDS; i++) {
    load(i % 2 ? back : there);
    seconds[i % 2] += rebalance(tag);
    bytes[i % 2] += (double)moved;
  }
  printf("%-40s%6.0f MiB, %6.2f GB/s; back %6.2f GB/s\n", what, bytes[0] / 1048576,
         bytes[0] / seconds[0] / 1e9, bytes[1] / seconds[1] / 1e9);
}

static void make(void) {
  loam_site *large = loam_site_get("large"), *small = loam_site_get("small");
  for (size_t i = 0; i < LARGE / BLOCK; i++) memset(loam_malloc(large, BLOCK), 1, BLOCK);
  for (int i = 0; i < OBJECTS; i++) memset(loam_malloc(small, OBJECT), 1, OBJECT);
}

static int nodes(void) {
  FILE *f = fopen("/sys/devices/system/node/node1/meminfo", "r");
  if (f) fclose(f);
  return f ? 2 : 1;
}

static void *move_all(void *arg) {
  (void)arg;
  move("large blocks, onto huge pages", "large", "huge = 'thp'", "huge = false");
  move("small objects, the same", "small", "huge = 'thp'", "huge = false");
  if (nodes() == 1) return NULL;
  move("large blocks, from node 0 to node 1", "large", "numa = 1", "numa = 0");
  move("small objects, the same", "small", "numa = 1", "numa = 0");
  return NULL;
}

int main(void) {
  pthread_t thread;
  sample = malloc(SAMPLES * sizeof *sample);
  memset(sample, 0, SAMPLES * sizeof *sample);
  load("huge = false");
  make();
  int64_t start = bench_now();
  pthread_create(&thread, NULL, allocate, loam_site_get("busy"));
  move_all(NULL);
  int64_t took = bench_now() - start;
  atomic_store(&stop, 1);
  pthread_join(thread, NULL);
  tell("meanwhile");
  atomic_store(&stop, 0);
  pthread_create(&thread, NULL, allocate, loam_site_get("busy"));
  struct timespec quiet = { took / 1000000000, took % 1000000000 };
  nanosleep(&quiet, NULL);
  atomic_store(&stop, 1);
  pthread_join(thread, NULL);
  tell("quiet, as long");
  free(sample);
  return 0;
}
