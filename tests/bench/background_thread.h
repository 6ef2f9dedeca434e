/* background_thread.h - a thread that allocates and frees without pause, and the times of its
 * operations: while something else happens, and for as long without it. */
#ifndef BACKGROUND_THREAD_H
#define BACKGROUND_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "bench.h"

enum { BUSY_SAMPLES = 1 << 22 };

/* The thread allocates blocks of 64 sizes in turn: least, least + step, ... */
typedef struct background_thread {
  loam_site *site;
  size_t least, step;
  pthread_t thread;
  atomic_int stop;
  uint32_t *sample; /* the times of the latest operations, in nanoseconds */
  long samples;
} background_thread;

static inline void *background_allocate(void *arg) {
  background_thread *b = arg;
  loam_site *site = b->site;
  b->samples = 0;
  while (!atomic_load_explicit(&b->stop, memory_order_relaxed)) {
    int64_t start = bench_now();
    char *p = loam_malloc(site, b->least + (size_t)(b->samples & 63) * b->step);
    *p = 1;
    loam_free(p);
    b->sample[b->samples++ & (BUSY_SAMPLES - 1)] = (uint32_t)(bench_now() - start);
  }
  return NULL;
}

static inline void background_init(background_thread *b, const char *tag, size_t least,
                                   size_t step) {
  *b = (background_thread){ .site = loam_site_get(tag), .least = least, .step = step };
  b->sample = malloc(BUSY_SAMPLES * sizeof *b->sample);
  if (!b->sample) abort();
  memset(b->sample, 0, BUSY_SAMPLES * sizeof *b->sample);
}

static inline void background_start(background_thread *b) {
  atomic_store(&b->stop, 0);
  if (pthread_create(&b->thread, NULL, background_allocate, b)) abort();
}

static inline int background_by_value(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static inline void background_end(background_thread *b, const char *what) {
  atomic_store(&b->stop, 1);
  pthread_join(b->thread, NULL);
  long n = b->samples < BUSY_SAMPLES ? b->samples : BUSY_SAMPLES;
  qsort(b->sample, (size_t)n, sizeof *b->sample, background_by_value);
  printf("%-16s%10ld operations   p50 %4u ns   p99 %5u ns   p99.9 %6u ns   max %8.3f ms\n", what,
         b->samples, b->sample[n / 2], b->sample[(long)((double)n * 0.99)],
         b->sample[(long)((double)n * 0.999)], b->sample[n - 1] / 1e6);
}

/* Runs the thread for `ns` nanoseconds while nothing else happens, and frees its samples. */
static inline void background_alone(background_thread *b, int64_t ns) {
  background_start(b);
  nanosleep(&(struct timespec){ ns / 1000000000, ns % 1000000000 }, NULL);
  background_end(b, "quiet, as long");
  free(b->sample);
}

#endif
