/* misuse.c - does one thing wrong, named by its argument. */
#include <string.h>

#include "expect.h"

static void twice(size_t size) {
  char *p = kept(malloc(size));
  free(p);
  free(kept(p));
}

static void twice_later(void) {
  char *p[100];
  for (int i = 0; i < 100; i++) p[i] = kept(malloc(48));
  for (int i = 0; i < 100; i++) free(p[i]);
  free(kept(p[50]));
}

static void inside(size_t size) {
  char *p = kept(malloc(size));
  free(kept(p + 16));
}

static void realloc_dead(void) {
  char *p = kept(malloc(100));
  free(p);
  p = realloc(kept(p), 200);
  kept(p);
}

int main(int argc, char **argv) {
  expect(argc == 2);
  const char *what = argv[1];
  if (!strcmp(what, "double")) twice(100);
  else if (!strcmp(what, "double-guarded")) twice(1500);
  else if (!strcmp(what, "double-large")) twice(5 << 20);
  else if (!strcmp(what, "double-late")) twice_later();
  else if (!strcmp(what, "interior")) inside(100);
  else if (!strcmp(what, "interior-large")) inside(5 << 20);
  else if (!strcmp(what, "realloc-dead")) realloc_dead();
  else expect(!"a misuse that is known");
  puts("went on");
  return 0;
}
