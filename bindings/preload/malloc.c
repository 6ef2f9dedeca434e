/* malloc.c - the C library's malloc family over loam.h, with glibc's answers where the standard
 * leaves a choice: realloc(p, 0) frees, memalign rounds its alignment up, success keeps errno. */
#include "preload.h"

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define CALLER __builtin_return_address(0)

/* loam's own functions keep errno; the lookup of a caller may change it, so it is restored. */
void *serve_new(size_t size, const void *caller) {
  int before = errno;
  if (unlikely(!host_is_awake(caller))) return next_malloc(size);
  loam_site *site = caller_site(caller);
  errno = before;
  return loam_code_learn(size, caller, site);
}

void *serve_aligned(const void *caller, size_t alignment, size_t size) {
  if (alignment <= 16) return serve(caller, size); /* every block has this alignment */
  int before = errno;
  if (unlikely(!host_is_awake(caller))) return next_aligned_alloc(alignment, size);
  loam_site *site = site_of(caller);
  errno = before;
  return loam_aligned_alloc(site, alignment, size);
}

static void *serve_new_zeroed(size_t size, const void *caller) {
  int before = errno;
  if (unlikely(!host_is_awake(caller))) return next_calloc(1, size);
  loam_site *site = caller_site(caller);
  errno = before;
  return loam_code_learn_zeroed(size, caller, site);
}

void *serve_zeroed(const void *caller, size_t count, size_t size) {
  size_t bytes;
  if (unlikely(__builtin_mul_overflow(count, size, &bytes))) return loam_calloc(NULL, count, size);
  return loam_code_calloc(bytes, caller, serve_new_zeroed);
}

/* The block keeps its tag: the code that grows a buffer is often a helper, not the code that the
 * buffer is for. */
static void *serve_again(const void *caller, void *ptr, size_t size) {
  if (!ptr) return serve(caller, size);
  if (!size) {
    loam_free(ptr);
    return NULL;
  }
  if (unlikely(!loam_owns(ptr))) return stray_realloc(ptr, size);
  return loam_realloc(NULL, ptr, size);
}

/* glibc's memalign rounds an alignment up to a power of two. */
static void *serve_rounded(const void *caller, size_t alignment, size_t size) {
  if (alignment > SIZE_MAX / 2 + 1) {
    errno = EINVAL;
    return NULL;
  }
  size_t rounded = 16;
  while (rounded < alignment) rounded *= 2;
  return serve_aligned(caller, rounded, size);
}

PRELOAD_API void *malloc(size_t size) { return serve(CALLER, size); }

PRELOAD_API void *calloc(size_t count, size_t size) { return serve_zeroed(CALLER, count, size); }

PRELOAD_API void *realloc(void *ptr, size_t size) { return serve_again(CALLER, ptr, size); }

PRELOAD_API void *reallocarray(void *ptr, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  return serve_again(CALLER, ptr, bytes);
}

/* C23. CMakeLists.txt defines free and free_sized. */
PRELOAD_API void free_aligned_sized(void *ptr, size_t alignment, size_t size);
PRELOAD_API void free_aligned_sized(void *ptr, size_t alignment, size_t size) {
  (void)alignment;
  loam_free_claimed(ptr, size);
}

PRELOAD_API void *memalign(size_t alignment, size_t size) {
  return serve_rounded(CALLER, alignment, size);
}

PRELOAD_API void *aligned_alloc(size_t alignment, size_t size) {
  return serve_rounded(CALLER, alignment, size);
}

PRELOAD_API int posix_memalign(void **out, size_t alignment, size_t size) {
  if (alignment % sizeof(void *) || !alignment || alignment & (alignment - 1)) return EINVAL;
  int before = errno;
  void *block = serve_aligned(CALLER, alignment, size);
  errno = block ? before : ENOMEM; /* some programs read errno, because glibc sets it */
  if (!block) return ENOMEM;
  *out = block;
  return 0;
}

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

PRELOAD_API void *valloc(size_t size) { return serve_aligned(CALLER, page_size(), size); }

PRELOAD_API void *pvalloc(size_t size) {
  size_t page = page_size(), rounded;
  if (__builtin_add_overflow(size, page - 1, &rounded)) {
    errno = ENOMEM;
    return NULL;
  }
  return serve_aligned(CALLER, page, rounded & ~(page - 1));
}

static __attribute__((noinline)) size_t size_of_other(void *ptr) {
  return loam_owns(ptr) ? 0 : next_usable_size(ptr);
}

/* This has to be fast: some programs call it for every block that they allocate and free. */
PRELOAD_API size_t malloc_usable_size(void *ptr) {
  size_t size = loam_live_size(ptr);
  return likely(size != 0) ? size : size_of_other(ptr);
}
