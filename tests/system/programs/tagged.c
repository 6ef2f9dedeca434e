/* tagged.c - allocates and frees memory under the tags that its standard input names.
 *
 * Each line is a command: `take TAG SIZE COUNT` allocates COUNT blocks; `free TAG` frees all blocks
 * of the tag; `many COUNT` allocates a block of 64 bytes under each of COUNT tags. TAG is written
 * in hexadecimal. After each command the program prints "done". */
#include <string.h>

#include "expect.h"
#include "loam.h"

enum { BLOCKS = 4096 };

static struct {
  loam_site *site;
  void *block;
} held[BLOCKS];

static loam_site *site_of(const char *hex) {
  char tag[256];
  size_t n = strlen(hex) / 2;
  expect(n < sizeof tag);
  for (size_t i = 0; i < n; i++)
    expect(sscanf(hex + 2 * i, "%2hhx", (unsigned char *)&tag[i]) == 1);
  tag[n] = 0;
  loam_site *site = loam_site_get(tag);
  expect(site);
  return site;
}

static void take(loam_site *site, size_t size, int count) {
  for (int i = 0; i < BLOCKS && count > 0; i++) {
    if (held[i].block) continue;
    held[i].site = site;
    held[i].block = loam_malloc(site, size);
    expect(held[i].block);
    count--;
  }
  expect(!count);
}

static void release(const loam_site *site) {
  for (int i = 0; i < BLOCKS; i++) {
    if (!held[i].block || held[i].site != site) continue;
    loam_free(held[i].block);
    held[i].block = NULL;
  }
}

static void take_many(int count) {
  char tag[64];
  for (int i = 0; i < count; i++) {
    snprintf(tag, sizeof tag, "many.part%d.number%d", i % 100, i);
    expect(kept(loam_malloc(loam_site_get(tag), 64)));
  }
}

int main(void) {
  char line[1024], hex[512];
  unsigned long size;
  int count;
  setvbuf(stdout, NULL, _IOLBF, 0);
  puts("done");
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "take %511s %lu %d", hex, &size, &count) == 3) take(site_of(hex), size, count);
    else if (sscanf(line, "free %511s", hex) == 1) release(site_of(hex));
    else if (sscanf(line, "many %d", &count) == 1) take_many(count);
    else expect(!"a command");
    puts("done");
  }
  return 0;
}
