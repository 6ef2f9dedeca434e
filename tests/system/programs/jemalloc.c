/* jemalloc.c - a program that is linked with jemalloc and calls its own functions beside malloc and
 * free: mallocx, dallocx and so on. Each kind of block may be passed to each kind of function. With
 * the argument "twice" it frees a block twice. */
#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "expect.h"

void *mallocx(size_t size, int flags);
void *rallocx(void *ptr, size_t size, int flags);
size_t xallocx(void *ptr, size_t size, size_t extra, int flags);
size_t sallocx(const void *ptr, int flags);
void dallocx(void *ptr, int flags);
void sdallocx(void *ptr, size_t size, int flags);
size_t nallocx(size_t size, int flags);
int mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size);

enum { ZERO = 0x40, NO_CACHE = 1 << 8 };
static int arena_flags(unsigned arena) { return (int)(arena + 1) << 20 | NO_CACHE; }

static int (*owns)(const void *);

/* Whether the block is loam's, if this runs under loam. */
static bool is_served(const void *p) { return !owns || owns(p); }

static bool has_bytes(const char *p, char byte, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (p[i] != byte) return false;
  return true;
}

/* A block of each size, from malloc or from mallocx. */
static void each_function_takes_each_block(size_t size, bool extended) {
#define BLOCK (extended ? mallocx(size, 0) : malloc(size))
  char *p = kept(BLOCK);
  expect(p && is_served(p) && sallocx(p, 0) >= size && sallocx(p, 0) == malloc_usable_size(p));
  expect(xallocx(p, size, 0, 0) >= size);
  memset(p, 5, size);
  p = rallocx(p, size * 3, 0);
  expect(p && is_served(p) && has_bytes(p, 5, size) && sallocx(p, 0) >= size * 3);
  p = rallocx(p, size * 4, 12); /* 12: at a multiple of 4096 */
  expect(p && is_served(p) && has_bytes(p, 5, size) && (uintptr_t)p % 4096 == 0);
  free(p);
  dallocx(kept(BLOCK), 0);
  sdallocx(kept(BLOCK), size, 0);
  p = kept(BLOCK);
  sdallocx(p, sallocx(p, 0), 0);
  free(realloc(kept(BLOCK), size * 2));
#undef BLOCK
}

static void aligns_and_zeroes(void) {
  for (int round = 0; round < 50; round++)
    for (int log = 0; log <= 16; log++) {
      size_t size = (size_t)100 + (size_t)round * 97;
      char *p = mallocx(size, log | ZERO);
      expect(p && is_served(p) && (uintptr_t)p % ((size_t)1 << log) == 0);
      expect(has_bytes(p, 0, sallocx(p, 0)));
      size_t before = sallocx(p, 0);
      memset(p, 7, before);
      p = rallocx(p, before * 2, log | ZERO);
      expect(p && (uintptr_t)p % ((size_t)1 << log) == 0 && has_bytes(p, 7, before));
      expect(has_bytes(p + before, 0, sallocx(p, 0) - before));
      memset(p, 7, sallocx(p, 0));
      dallocx(p, log);
    }
}

static void promises_no_more_than_a_block_has(void) {
  for (size_t size = 1; size < (size_t)1 << 22; size += 1 + size / 3) {
    void *p = mallocx(size, 0);
    expect(nallocx(size, 0) >= size && sallocx(p, 0) >= nallocx(size, 0));
    sdallocx(p, nallocx(size, 0), 0);
  }
}

/* The program's own arena stays with jemalloc, whose statistics show its memory. */
static void leaves_an_arena_of_the_program_to_jemalloc(void) {
  unsigned arena;
  size_t length = sizeof arena;
  expect(mallctl("arenas.create", &arena, &length, NULL, 0) == 0);
  char *p = mallocx(1000, arena_flags(arena));
  expect(p && !(owns && owns(p)));
  memset(p, 9, 1000);
  expect(sallocx(p, 0) >= 1000 && xallocx(p, 1000, 0, arena_flags(arena)) >= 1000);
  p = rallocx(p, 100000, arena_flags(arena));
  expect(p && has_bytes(p, 9, 1000) && !(owns && owns(p)));
  dallocx(p, NO_CACHE);
  p = mallocx(1000, arena_flags(arena));
  sdallocx(p, 1000, NO_CACHE);
  free(mallocx(1000, arena_flags(arena)));
}

int main(int count, char **argument) {
  void *found = dlsym(RTLD_DEFAULT, "loam_owns");
  memcpy(&owns, &found, sizeof found);
  if (count > 1 && !strcmp(argument[1], "twice")) {
    void *p = kept(malloc(100));
    dallocx(p, 0);
    dallocx(p, 0);
  }
  for (size_t size = 1; size < (size_t)1 << 20; size += 1 + size / 2) {
    each_function_takes_each_block(size, false);
    each_function_takes_each_block(size, true);
  }
  aligns_and_zeroes();
  promises_no_more_than_a_block_has();
  leaves_an_arena_of_the_program_to_jemalloc();
  puts("jemalloc: as it must be");
}
