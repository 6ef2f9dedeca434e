/* mallinfo.c - mallinfo, mallinfo2 and malloc_info report loam's memory, and malloc_trim gives its
 * free memory back. (The test runs it without a service thread, which would give memory back by
 * itself.) */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "expect.h"

enum { BLOCKS = 40000, SIZE = 1000, KEPT = 400 };

static char *block[BLOCKS];

static size_t in_use(void) {
  struct mallinfo2 now = mallinfo2();
  expect(now.arena >= now.uordblks && now.fordblks <= now.arena);
  return now.uordblks + now.hblkhd;
}

static long resident_pages(void) {
  long total, pages;
  FILE *file = fopen("/proc/self/statm", "r");
  expect(file && fscanf(file, "%ld %ld", &total, &pages) == 2);
  fclose(file);
  return pages;
}

/* A program that calls malloc_trim often does not pay for it with page faults: loam leaves it most
 * of the pages. The C library gives all pages back each time. */
static void trim_often(void) {
  enum { TIMES = 500, PAGES = 100 };
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  for (int i = 0; i < TIMES; i++) {
    for (int k = 0; k < PAGES; k++) {
      block[k] = kept(malloc(4096));
      expect(block[k]);
      memset(block[k], i, 4096);
    }
    for (int k = 0; k < PAGES; k++) free(block[k]);
    malloc_trim(0);
  }
  getrusage(RUSAGE_SELF, &after);
  expect(!getenv("LOAM_POLICY") || after.ru_minflt - before.ru_minflt < TIMES * PAGES / 4);
}

int main(void) {
  char *text;
  size_t length;
  size_t before = in_use();
  for (int i = 0; i < BLOCKS; i++) {
    block[i] = kept(malloc(SIZE));
    expect(block[i]);
    memset(block[i], i, SIZE);
  }
  size_t more = in_use() - before;
  expect(more >= (size_t)BLOCKS * SIZE && more < (size_t)BLOCKS * SIZE * 3 / 2);
  expect(mallinfo().uordblks + mallinfo().hblkhd >= BLOCKS * SIZE);
  long held = resident_pages();
  for (int i = 0; i < BLOCKS; i++)
    if (i % KEPT) free(block[i]);
  expect(in_use() - before < more / 10);
  expect(malloc_trim(0) == 1);
  expect(held - resident_pages() > (long)BLOCKS * SIZE / 4096 / 2);
  FILE *file = open_memstream(&text, &length);
  expect(file && malloc_info(0, file) == 0 && fclose(file) == 0);
  expect(strstr(text, "<malloc version=\"1\">") && strstr(text, "<system type=\"current\""));
  expect(malloc_info(1, stdout) != 0);
  free(text);
  trim_often();
  puts("mallinfo: as they must be");
  return 0;
}
