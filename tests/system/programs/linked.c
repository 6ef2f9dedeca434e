/* linked.c - a program that is linked with loam. Its function `asks` makes blocks of each kind that
 * a different function of loam serves. Then it waits for the end of its input. */
#include <loam.h>
#include <stdio.h>

__attribute__((noinline)) static void asks(void) {
  loam_site *site = LOAM_SITE("linked");
  void *p = NULL;
  for (int i = 0; i < 2000; i++) {
    loam_malloc(site, 1000);
    loam_calloc(site, 1, 2000);
    loam_aligned_alloc(site, 256, 1000);
  }
  for (int i = 0; i < 20; i++) {
    loam_malloc(site, 200000);
    loam_aligned_alloc(site, 1 << 16, 1000);
    p = loam_realloc(site, loam_realloc(site, p, 500), 5000);
    p = loam_realloc(site, loam_realloc(site, p, 40 << 20), 50 << 20);
  }
  __asm__ volatile("" : : : "memory"); /* the last call must not become a jump */
}

int main(void) {
  loam_config config = { .size = sizeof config, .control = -1 };
  if (loam_start(&config)) return 1;
  asks();
  puts("ready");
  fflush(stdout);
  return getchar() != EOF;
}
