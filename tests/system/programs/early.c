/* early.c - allocates before main: in preinit_array, which runs before the constructors of all
 * libraries, and in the program's first constructor. As C demands, errno is 0 when main begins. */
#include <errno.h>
#include <string.h>

#include "expect.h"

static char *before_all, *first;

static void preinit(void) { before_all = strcpy(kept(malloc(100)), "before all"); }
__attribute__((section(".preinit_array"), used)) static void (*const run_preinit)(void) = preinit;

__attribute__((constructor(101))) static void construct(void) {
  first = strcpy(kept(calloc(1, 100)), "first");
  before_all = realloc(before_all, 5000);
}

int main(void) {
  expect(errno == 0);
  expect(before_all && !strcmp(before_all, "before all"));
  expect(first && !strcmp(first, "first"));
  first = realloc(first, 100000);
  expect(first && !strcmp(first, "first"));
  free(before_all);
  free(first);
  puts("early: as it must be");
  return 0;
}
