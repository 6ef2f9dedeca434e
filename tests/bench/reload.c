/* reload.c - what a reload costs: its own latency with 1,000 known tags, and the times of a thread
 * that allocates during 100 reloads (p50, p99, p99.9 and the longest operation), and for as long
 * without reloads. On a machine with few cores, the longest time comes from the scheduler. */
#include "background_thread.h"

enum { TAGS = 1000, RELOADS = 100 };

int main(void) {
  char tag[64];
  int tags = (int)bench_some(TAGS), reloads = (int)bench_some(RELOADS);
  for (int i = 0; i < tags; i++) {
    snprintf(tag, sizeof tag, "service%d.part%d.item", i % 10, i);
    loam_site_get(tag);
  }
  background_thread background;
  background_init(&background, "service1.part1.item", 4096, 256);
  char *text[2] = { bench_policy(100), bench_policy(99) };
  bench_load("bench.lua", text[0]);

  double latency[RELOADS], worst = 0, sum = 0;
  int64_t begin = bench_now();
  background_start(&background);
  for (int i = 0; i < reloads; i++) {
    int64_t start = bench_now();
    bench_load("bench.lua", text[(i + 1) % 2]);
    latency[i] = (double)(bench_now() - start) / 1e6;
    sum += latency[i];
    if (latency[i] > worst) worst = latency[i];
  }
  int64_t took = bench_now() - begin;
  printf("%d tags, plans of 100 leaves, %d reloads: mean %.1f ms, longest %.1f ms\n", tags, reloads,
         sum / reloads, worst);
  background_end(&background, "during reloads");
  background_alone(&background, took);
  free(text[0]);
  free(text[1]);
  return 0;
}
