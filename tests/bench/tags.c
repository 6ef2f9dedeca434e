/* tags.c - whether the cost depends on the number of tags: ns of a malloc and free at one site
 * among 10 to 100,000, and at all sites in turn, which for 100,000 sites no processor's cache
 * holds. The last columns are the costs of a look-up of a tag and of a reload. */
#include "bench.h"

enum { PAIRS = 2000000, REPEATS = 5 };

typedef struct set {
  loam_site **site;
  long n;
} set;

static void round_sites(void *ctx, long pairs) {
  set *s = ctx;
  for (long i = 0, k = 0; i < pairs; i++) {
    char *volatile p = loam_malloc(s->site[k], 64);
    *p = 1;
    loam_free(p);
    if (++k == s->n) k = 0;
  }
}

static void same_site(void *ctx, long pairs) {
  set *s = ctx;
  for (long i = 0; i < pairs; i++) {
    char *volatile p = loam_malloc(s->site[0], 64);
    *p = 1;
    loam_free(p);
  }
}

static void look_up(void *ctx, long n) {
  set *s = ctx;
  char tag[64];
  for (long i = 0, k = 0; i < n; i++) {
    snprintf(tag, sizeof tag, "service%ld.part%ld.item", k % 10, k);
    if (loam_site_get(tag) != s->site[k]) abort();
    if (++k == s->n) k = 0;
  }
}

int main(void) {
  char *text = bench_policy(8);
  printf("%10s%18s%18s%18s%14s\n", "tags", "one site, ns", "all in turn, ns", "look-up + print",
         "reload, ms");
  for (long n = 10; n <= bench_some(100000); n *= 10) {
    set s = { calloc((size_t)n, sizeof *s.site), n };
    char tag[64];
    for (long i = 0; i < n; i++) {
      snprintf(tag, sizeof tag, "service%ld.part%ld.item", i % 10, i);
      if (!(s.site[i] = loam_site_get(tag))) abort();
    }
    int64_t start = bench_now();
    bench_load("bench.lua", text);
    double reload = (double)(bench_now() - start) / 1e6;
    printf("%10ld%18.1f%18.1f%18.1f%14.1f\n", n, bench_best(same_site, &s, PAIRS, REPEATS),
           bench_best(round_sites, &s, PAIRS, REPEATS),
           bench_best(look_up, &s, PAIRS / 10, REPEATS), reload);
    free(s.site);
  }
  free(text);
  return 0;
}
