/* callers.c - a program that allocates at 10,000 places. loam may look up each place only once. The
 * program counts the look-ups: it defines readlink and _dl_find_object itself, and each definition
 * counts a call before it passes it on. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "expect.h"

static volatile int links, objects;

ssize_t readlink(const char *restrict path, char *restrict buffer, size_t size) {
  links += !strcmp(path, "/proc/self/exe");
  return syscall(SYS_readlink, path, buffer, size);
}

int _dl_find_object(void *address, struct dl_find_object *out) {
  static int (*next)(void *, struct dl_find_object *);
  objects++;
  if (!next) *(void **)&next = dlsym(RTLD_NEXT, "_dl_find_object");
  return next(address, out);
}

#define TIMES_10(x) x x x x x x x x x x
#define PLACES 10000

static void go_round(void) { TIMES_10(TIMES_10(TIMES_10(TIMES_10(free(kept(malloc(24)));)))) }

int main(void) {
  go_round();
  expect(links <= 2);
  objects = 0;
  for (int i = 0; i < 5; i++) go_round();
  expect(objects < PLACES);
  puts("callers: as they must be");
  return 0;
}
