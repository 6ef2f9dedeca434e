/* sampled.c - what samples of stacks (`loam profile --stacks`) cost a loop of loam_malloc and
 * loam_free. Nanoseconds a pair, without samples and with one in 512 KiB. Both figures of a row
 * take turns, and each is the minimum of its rounds. The last row, of size 0, has random sizes of
 * 16 to 1,039 bytes: the loop by which Bun's profiler (oven-sh/bun, pull request 42626) is judged.
 *
 *   sampled              the table, by size
 *   sampled WHAT SIZE N  N pairs, with WHAT on or off, for a tool that counts instructions:
 *                        valgrind --tool=callgrind --toggle-collect=sampled_pairs sampled on 8 N */
#include <string.h>

#include "engine/sample.h"
#include "pairs.h"

enum { ROUNDS = 30, PAIRS = 1000000, SAMPLES = 2000 }; /* PAIRS, SAMPLES: of a round, at most */
enum { INTERVAL = 512 << 10 }; /* bytes between samples, as of `loam profile --stacks` */
enum { MIXED_LEAST = 16, MIXED_STEPS = 1024, MIXED_SIZES = 1 << 16 };

static uint16_t mixed_size[MIXED_SIZES];

/* Fills in the random sizes. A processor cannot learn a sequence of that length. */
static void draw_sizes(void) {
  uint64_t x = 1;
  for (int i = 0; i < MIXED_SIZES; i++) {
    x = x * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    mixed_size[i] = (uint16_t)(MIXED_LEAST + (x >> 33) % MIXED_STEPS);
  }
}

static void mixed_run(loam_site *site, long n) {
  for (; n > 0; n--) {
    char *volatile p = loam_malloc(site, mixed_size[n % MIXED_SIZES]);
    *p = 1;
    loam_free(p);
  }
}

/* Runs n pairs of one kind. The size 0 stands for random sizes. */
static void run(pairs_kind *k, long n) {
  if (k->size) pairs_run(k, n);
  else mixed_run(k->site, n);
}

__attribute__((noinline)) void sampled_pairs(void *ctx, long n);
void sampled_pairs(void *ctx, long n) { run(ctx, n); }

static void set(uint64_t interval) {
  if (lm_sample_set(interval) == LOAM_OK) return;
  fprintf(stderr, "sampled: %s\n", loam_error());
  exit(1);
}

/* Returns how many pairs there are between two samples, on average. */
static double pairs_between(size_t size) {
  double mean = size ? (double)size : MIXED_LEAST + (MIXED_STEPS - 1) / 2.0;
  return (double)INTERVAL / mean;
}

/* Returns the nanoseconds of a pair. The first pairs of a round, which make decisions for the new
 * interval, are not counted. */
static double round_of(pairs_kind *k, uint64_t interval) {
  double most = SAMPLES * pairs_between(k->size);
  set(interval);
  run(k, k->size ? 100 : MIXED_SIZES);
  return bench_once(sampled_pairs, k, most < PAIRS ? (long)most : PAIRS);
}

static void row(size_t size) {
  pairs_kind k = { loam_site_get("sampled"), size };
  double least[2] = { 1e300, 1e300 };
  for (int i = 0; i < 2 * ROUNDS; i++) {
    double ns = round_of(&k, i % 2 ? INTERVAL : 0);
    if (ns < least[i % 2]) least[i % 2] = ns;
  }
  double more = least[1] - least[0];
  double pairs = pairs_between(size);
  printf("%8zu %8.2f %8.2f %8.1f %8.0f %8.0f\n", size, least[0], least[1], 100 * more / least[0],
         pairs, more * pairs);
}

int main(int argc, char **argv) {
  draw_sizes();
  if (argc == 4) {
    pairs_kind k = { loam_site_get("sampled"), (size_t)atol(argv[2]) };
    set(strcmp(argv[1], "on") ? 0 : INTERVAL);
    run(&k, MIXED_SIZES);
    sampled_pairs(&k, atol(argv[3]));
    return 0;
  }
  printf("%8s %8s %8s %8s %8s %8s\n", "size", "off", "on", "more, %", "pairs", "ns each");
  for (size_t size = 16; size <= 16384; size *= 4) row(size);
  row(0);
  return 0;
}
