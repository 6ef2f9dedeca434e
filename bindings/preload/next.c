/* next.c - the allocator that would serve without loam, found by dlsym(RTLD_NEXT). */
#define _GNU_SOURCE 1
#include "preload.h"

#include <dlfcn.h>
#include <string.h>

#define ARENA_SIZE ((size_t)32 << 10)

/* Blocks of the arena are never freed; each has its size in the 16 bytes before it. */
static PRELOAD_SPARSE _Alignas(16) unsigned char arena[ARENA_SIZE];
static _Atomic size_t arena_used;

static loam_system next;
static bool reads_before;      /* see next_reads_before */
static _Atomic int next_state; /* 0: not looked up, 1: a thread is doing it, 2: done */

bool next_is_arena(const void *ptr) { return (uintptr_t)ptr - (uintptr_t)arena < ARENA_SIZE; }

static size_t arena_size(const void *ptr) {
  size_t size;
  memcpy(&size, (const unsigned char *)ptr - 16, sizeof size);
  return size;
}

static void *arena_alloc(size_t size) {
  if (size > ARENA_SIZE) return NULL;
  size_t whole = 16 + ((size + 15) & ~(size_t)15);
  size_t at = atomic_fetch_add_explicit(&arena_used, whole, memory_order_relaxed);
  if (at + whole > ARENA_SIZE) return NULL;
  memcpy(arena + at, &size, sizeof size);
  return arena + at + 16;
}

/* ISO C has no conversion from dlsym's object pointer to a function's; POSIX promises it works. */
bool next_find(void *function, const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  memcpy(function, &found, sizeof found);
  return found;
}

/* Returns whether the next free is in the file that has getpid, which is the C library. */
static bool is_of_the_c_library(void) {
  struct dl_find_object one, two;
  return !_dl_find_object(dlsym(RTLD_NEXT, "free"), &one) &&
         !_dl_find_object(dlsym(RTLD_NEXT, "getpid"), &two) &&
         one.dlfo_link_map == two.dlfo_link_map;
}

/* False while the functions are being looked up: dlsym may allocate. */
static bool is_known(void) {
  /* Pairs with the release below. */
  int state = atomic_load_explicit(&next_state, memory_order_acquire);
  if (likely(state == 2)) return true;
  if (state || !atomic_compare_exchange_strong(&next_state, &state, 1)) return false;
  (void)next_find(&next.malloc, "malloc");
  (void)next_find(&next.calloc, "calloc");
  (void)next_find(&next.realloc, "realloc");
  (void)next_find(&next.free, "free");
  (void)next_find(&next.aligned_alloc, "memalign");
  (void)next_find(&next.usable_size, "malloc_usable_size");
  reads_before = is_of_the_c_library();
  atomic_store_explicit(&next_state, 2, memory_order_release);
  return true;
}

void *next_malloc(size_t size) { return is_known() ? next.malloc(size) : arena_alloc(size); }

void *next_calloc(size_t count, size_t size) {
  if (is_known()) return next.calloc(count, size);
  size_t bytes; /* the arena is all zero, and no part of it is given out twice */
  return __builtin_mul_overflow(count, size, &bytes) ? NULL : arena_alloc(bytes);
}

void *next_aligned_alloc(size_t alignment, size_t size) {
  if (is_known()) return next.aligned_alloc(alignment, size);
  return alignment <= 16 ? arena_alloc(size) : NULL;
}

void *next_realloc(void *ptr, size_t size) {
  if (!next_is_arena(ptr)) return is_known() ? next.realloc(ptr, size) : arena_alloc(size);
  void *moved = next_malloc(size);
  size_t old = arena_size(ptr);
  return moved ? memcpy(moved, ptr, old < size ? old : size) : NULL;
}

void next_free(void *ptr) {
  if (ptr && !next_is_arena(ptr) && is_known()) next.free(ptr);
}

size_t next_usable_size(void *ptr) {
  if (!ptr) return 0;
  if (next_is_arena(ptr)) return arena_size(ptr);
  return is_known() ? next.usable_size(ptr) : 0;
}

bool next_reads_before(void) { return is_known() && reads_before; }
