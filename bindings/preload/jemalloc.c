/* jemalloc.c - the functions with which jemalloc extends malloc: mallocx, dallocx and so on. Some
 * programs that are linked with jemalloc call them alone, as BIND does, and some pass them blocks
 * of malloc. So loam serves them too: jemalloc would take a block of loam's for one of its own.
 *
 * jemalloc keeps what only jemalloc can serve: a request for an arena that the program names,
 * because the program may have given this arena memory of its own, and each block that is not
 * loam's. mallctl and malloc_stats_print stay functions of jemalloc, and know nothing of loam. */
#include "preload.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define CALLER __builtin_return_address(0)

/* The parts of `flags`, as jemalloc.h builds them: the logarithm of the alignment, whether the
 * memory is to be zeroed, a thread's cache (ignored here), and the arena, where 0 stands for
 * any. */
enum { LG_ALIGNMENT = 63, ZERO = 64, ARENA_SHIFT = 20 };

/* jemalloc's own functions; NULL where no jemalloc is loaded. */
typedef struct functions {
  void *(*mallocx)(size_t, int);
  void *(*rallocx)(void *, size_t, int);
  size_t (*xallocx)(void *, size_t, size_t, int);
  size_t (*sallocx)(const void *, int);
  void (*dallocx)(void *, int);
} functions;

static functions found;

static void find_functions(void) {
  (void)next_find(&found.mallocx, "mallocx");
  (void)next_find(&found.rallocx, "rallocx");
  (void)next_find(&found.xallocx, "xallocx");
  (void)next_find(&found.sallocx, "sallocx");
  (void)next_find(&found.dallocx, "dallocx");
}

/* Looks the functions up at the first call, because most programs need none of them. */
static __attribute__((noinline)) const functions *jemalloc(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_functions);
  return &found;
}

static size_t alignment_of(int flags) { return (size_t)1 << (flags & LG_ALIGNMENT); }

/* Zeroes the usable bytes of a block from `from` on. */
static void zero_rest(char *block, size_t from) {
  size_t size = malloc_usable_size(block);
  if (from < size) memset(block + from, 0, size - from);
}

static void *serve_flags(const void *caller, size_t size, int flags) {
  if (!(flags & ZERO)) return serve_aligned(caller, alignment_of(flags), size);
  bool is_plain = alignment_of(flags) <= 16;
  char *block = is_plain ? serve_zeroed(caller, 1, size)
                         : serve_aligned(caller, alignment_of(flags), size);
  if (block) zero_rest(block, is_plain ? size : 0);
  return block;
}

/* loam_realloc promises no alignment above 16. So such a block is allocated and copied. */
static void *resize(const void *caller, void *ptr, size_t size, int flags) {
  if (alignment_of(flags) <= 16) return loam_realloc(NULL, ptr, size);
  size_t before = loam_live_size(ptr);
  void *moved = serve_aligned(caller, alignment_of(flags), size);
  if (!moved) return NULL;
  memcpy(moved, ptr, before < size ? before : size);
  loam_free(ptr);
  return moved;
}

PRELOAD_API void *mallocx(size_t size, int flags) {
  bool is_for_arena = (unsigned)flags >> ARENA_SHIFT;
  if (unlikely(is_for_arena || !host_is_awake(CALLER)) && jemalloc()->mallocx)
    return jemalloc()->mallocx(size, flags);
  return serve_flags(CALLER, size, flags);
}

PRELOAD_API void *rallocx(void *ptr, size_t size, int flags) {
  if (unlikely(!loam_owns(ptr)))
    return jemalloc()->rallocx ? jemalloc()->rallocx(ptr, size, flags) : stray_realloc(ptr, size);
  size_t before = loam_live_size(ptr);
  void *block = resize(CALLER, ptr, size, flags);
  if (block && flags & ZERO) zero_rest(block, before);
  return block;
}

/* Returns the usable size. A block of loam's keeps its size here: rallocx alone changes it. */
PRELOAD_API size_t xallocx(void *ptr, size_t size, size_t extra, int flags) {
  if (likely(loam_owns(ptr)) || !jemalloc()->xallocx) return malloc_usable_size(ptr);
  return jemalloc()->xallocx(ptr, size, extra, flags);
}

PRELOAD_API size_t sallocx(const void *ptr, int flags) {
  if (likely(loam_owns(ptr)) || !jemalloc()->sallocx) return malloc_usable_size((void *)ptr);
  return jemalloc()->sallocx(ptr, flags);
}

PRELOAD_API void dallocx(void *ptr, int flags) {
  if (likely(loam_owns(ptr)) || next_is_arena(ptr) || !jemalloc()->dallocx) return loam_free(ptr);
  jemalloc()->dallocx(ptr, flags);
}

/* The size may be any from the requested to the usable one, so it tells of no mistake. */
PRELOAD_API void sdallocx(void *ptr, size_t size, int flags) {
  (void)size;
  dallocx(ptr, flags);
}

/* The policy decides how much larger a block is than the request, so nothing is promised here. */
PRELOAD_API size_t nallocx(size_t size, int flags) {
  (void)flags;
  return size <= PTRDIFF_MAX ? size : 0;
}
