/* reload.c - what a reload costs: its own latency with 1,000 known tags, and what a thread that
 * allocates all the time sees of 100 of them: p50, p99.9 and the longest operation, beside the
 * same time without reloads. On a machine of few cores the longest is the scheduler's. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "bench.h"

enum { TAGS = 1000, RELOADS = 100, SAMPLES = 1 << 22 };

static atomic_int stop;
static uint32_t *sample;
static long samples;

static void *allocate(void *arg) {
  loam_site *site = arg;
  samples = 0;
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    int64_t start = bench_now();
    char *p = loam_malloc(site, 4096 + (size_t)(samples & 63) * 256);
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
  printf("%-24s%10ld operations   p50 %5u ns   p99.9 %6u ns   max %8.3f ms\n", what, samples,
         sample[n / 2], sample[(long)((double)n * 0.999)], sample[n - 1] / 1e6);
}

int main(void) {
  char tag[64];
  for (int i = 0; i < TAGS; i++) {
    snprintf(tag, sizeof tag, "service%d.part%d.item", i % 10, i);
    loam_site_get(tag);
  }
  sample = malloc(SAMPLES * sizeof *sample);
  memset(sample, 0, SAMPLES * sizeof *sample);
  char *text[2] = { bench_policy(100), bench_policy(99) };
  bench_load("bench.lua", text[0]);

  pthread_t thread;
  double latency[RELOADS], worst = 0, sum = 0;
  int64_t begin = bench_now();
  pthread_create(&thread, NULL, allocate, loam_site_get("service1.part1.item"));
  for (int i = 0; i < RELOADS; i++) {
    int64_t start = bench_now();
    bench_load("bench.lua", text[(i + 1) % 2]);
    latency[i] = (double)(bench_now() - start) / 1e6;
    sum += latency[i];
    if (latency[i] > worst) worst = latency[i];
  }
  int64_t took = bench_now() - begin;
  atomic_store(&stop, 1);
  pthread_join(thread, NULL);
  printf("%d tags, plans of 100 leaves, %d reloads: mean %.1f ms, longest %.1f ms\n", TAGS, RELOADS,
         sum / RELOADS, worst);
  tell("during reloads");

  atomic_store(&stop, 0);
  pthread_create(&thread, NULL, allocate, loam_site_get("service1.part1.item"));
  struct timespec quiet = { took / 1000000000, took % 1000000000 };
  nanosleep(&quiet, NULL);
  atomic_store(&stop, 1);
  pthread_join(thread, NULL);
  tell("quiet, as long");
  free(text[0]);
  free(text[1]);
  free(sample);
  return 0;
}
