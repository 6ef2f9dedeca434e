/* ten_lines.c - a host of ten lines: a policy, a site, a block, its owner, and live figures. */
#include <loam.h>
#include <stdio.h>

int main(void) {
  loam_config config = { .size = sizeof config, .policy = "ten_lines.lua", .control = -1 };
  if (loam_start(&config) != LOAM_OK) return fprintf(stderr, "%s\n", loam_error()), 1;
  float *weights = loam_malloc(LOAM_SITE("tensor.weights"), 8 << 20);
  loam_owner_info whose;
  if (loam_owner(weights + 1000, &whose) != LOAM_OK) return 1;
  printf("%zu bytes for %s, from %s\n", whose.size, whose.tag, whose.strategy);
  struct loam_stats stats;
  if (loam_stats(&stats) == LOAM_OK) printf("%d block live\n", (int)stats.live_blocks);
  loam_free(weights);
}
