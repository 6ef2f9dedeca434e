/* bench.h - functions that the bench programs share: a clock, the best of several runs, and a
 * policy of N leaves. Figures are the minimum of repeats, because the machine's noise only adds to
 * a time.
 *
 * If BENCH_TINY is set, the programs do a thousandth of their work and print all their rows.
 * tests/system/bench.sh tests in this way that they work. Such figures say nothing. */
#ifndef BENCH_H
#define BENCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "loam.h"

static inline int64_t bench_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline long bench_some(long n) {
  static int tiny = -1;
  if (tiny < 0) tiny = getenv("BENCH_TINY") != NULL;
  return tiny ? n / 1000 + 1 : n;
}

/* Returns the nanoseconds of one of `n` steps of `run(ctx, n)`. */
static inline double bench_once(void (*run)(void *ctx, long n), void *ctx, long n) {
  n = bench_some(n);
  int64_t start = bench_now();
  run(ctx, n);
  return (double)(bench_now() - start) / (double)n;
}

/* Returns the least result of several calls of bench_once. */
static inline double bench_best(void (*run)(void *ctx, long n), void *ctx, long n, int repeats) {
  double best = 1e300;
  repeats = (int)bench_some(repeats);
  for (int i = 0; i < repeats; i++) {
    double each = bench_once(run, ctx, n);
    if (each < best) best = each;
  }
  return best;
}

/* Returns the text of a policy with `leaves` leaves that reads nothing but the size. The thresholds
 * are BENCH_STEP bytes apart, and two strategies take turns. So 100 leaves divide the size classes
 * up to 32 KiB in every possible way. The caller frees the text. */
enum { BENCH_STEP = 328 };

static inline char *bench_policy(int leaves) {
  size_t room = 4096 + (size_t)leaves * 96, used = 0;
  char *text = malloc(room);
  if (!text) abort();
#define ADD(...) (used += (size_t)snprintf(text + used, room - used, __VA_ARGS__))
  ADD("local a = loam.host { name = 'a' }\nlocal b = loam.host { name = 'b', align = 64 }\n"
      "return loam.policy { name = 'bench-%d', pick = function(req)\n",
      leaves);
  for (int i = 1; i < leaves; i++)
    ADD("  if req.size < %d then return %s end\n", i * BENCH_STEP, i % 2 ? "a" : "b");
  ADD("  return %s\nend }\n", leaves % 2 ? "a" : "b");
#undef ADD
  return text;
}

static inline void bench_load(const char *name, const char *text) {
  if (loam_policy_load_text(name, text) != LOAM_OK) {
    fprintf(stderr, "%s: %s\n", name, loam_error());
    exit(1);
  }
}

#endif
