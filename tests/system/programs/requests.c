/* requests.c - allocates and frees as the lines of its standard input say. Each line is a command:
 *
 *   take N SIZE    allocates and keeps N blocks of SIZE bytes; prints how many it got
 *   tag TEXT       allocates 100 bytes under a tag, in which \n and \xHH stand for bytes
 *   drop           frees all blocks */
#include <stdint.h>
#include <string.h>

#include "expect.h"
#include "loam.h"

enum { MOST = 4096 };

static void *block[MOST];
static int blocks;

/* The preload library defines these functions; without it the program has none. */
__attribute__((weak)) loam_site *loam_site_get(const char *tag);
__attribute__((weak)) void *loam_malloc(loam_site *site, size_t size);

static void keep(void *p) {
  expect(blocks < MOST);
  if (p) block[blocks++] = memset(p, 1, 1);
}

static void take(int n, size_t size) {
  int before = blocks;
  for (int i = 0; i < n; i++) keep(kept(malloc(size)));
  printf("%d\n", blocks - before);
}

/* Replaces \n and \xHH by the bytes that they stand for. */
static void unescape(char *text) {
  char *to = text;
  for (char *at = text; *at; at++) {
    unsigned byte;
    if (at[0] == '\\' && at[1] == 'n') {
      *to++ = '\n';
      at++;
    } else if (at[0] == '\\' && sscanf(at, "\\x%2x", &byte) == 1) {
      *to++ = (char)byte;
      at += 3;
    } else {
      *to++ = *at;
    }
  }
  *to = 0;
}

static void drop(void) {
  while (blocks) free(block[--blocks]);
}

int main(void) {
  char line[1024];
  int n;
  size_t size;
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    if (sscanf(line, "take %d %zu", &n, &size) == 2) {
      take(n, size);
    } else if (!strncmp(line, "tag ", 4) && loam_malloc) {
      unescape(line + 4);
      keep(loam_malloc(loam_site_get(line + 4), 100));
      puts("tagged");
    } else if (!strcmp(line, "drop")) {
      drop();
      puts("dropped");
    }
    fflush(stdout);
  }
  return 0;
}
