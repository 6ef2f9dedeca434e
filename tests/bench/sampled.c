/* sampled - what samples of stacks (`loam profile --stacks`) cost a loop of loam_malloc and
 * loam_free. Nanoseconds a pair, without samples and with one in 512 KiB; the two of a row take
 * turns, and each is the minimum of its rounds.
 *
 *   sampled              the table, by size
 *   sampled WHAT SIZE N  N pairs of one of them (off, on), for a tool that counts instructions:
 *                        valgrind --tool=callgrind --toggle-collect=sampled_pairs sampled on 8 N */
#include <string.h>

#include "engine/sample.h"
#include "pairs.h"

enum { ROUNDS = 30, PAIRS = 1000000, SAMPLES = 2000 }; /* of a round, at most */

__attribute__((noinline)) void sampled_pairs(void *ctx, long n);
void sampled_pairs(void *ctx, long n) { pairs_run(ctx, n); }

static void set(uint64_t interval) {
  if (lm_sample_set(interval) == LOAM_OK) return;
  fprintf(stderr, "sampled: %s\n", loam_error());
  exit(1);
}

/* Returns the nanoseconds of a pair. The first pairs of a round, which make decisions for the new
 * interval, are not counted. */
static double round_of(pairs_kind *k, uint64_t interval) {
  double most = SAMPLES * (double)LM_SAMPLE_INTERVAL / (double)k->size;
  set(interval);
  pairs_run(k, 100);
  return bench_once(sampled_pairs, k, most < PAIRS ? (long)most : PAIRS);
}

static void row(size_t size) {
  pairs_kind k = { loam_site_get("sampled"), size };
  double least[2] = { 1e300, 1e300 };
  for (int i = 0; i < 2 * ROUNDS; i++) {
    double ns = round_of(&k, i % 2 ? LM_SAMPLE_INTERVAL : 0);
    if (ns < least[i % 2]) least[i % 2] = ns;
  }
  double more = least[1] - least[0];
  double pairs = (double)LM_SAMPLE_INTERVAL / (double)size; /* between two samples */
  printf("%8zu %8.2f %8.2f %8.1f %8.0f %8.0f\n", size, least[0], least[1], 100 * more / least[0],
         pairs, more * pairs);
}

int main(int argc, char **argv) {
  if (argc == 4) {
    pairs_kind k = { loam_site_get("sampled"), (size_t)atol(argv[2]) };
    set(strcmp(argv[1], "on") ? 0 : LM_SAMPLE_INTERVAL);
    pairs_run(&k, 10000);
    sampled_pairs(&k, atol(argv[3]));
    return 0;
  }
  printf("%8s %8s %8s %8s %8s %8s\n", "size", "off", "on", "more, %", "pairs", "ns each");
  for (size_t size = 16; size <= 16384; size *= 4) row(size);
  return 0;
}
