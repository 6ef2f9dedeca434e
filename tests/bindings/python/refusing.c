/* refusing.c - a handler for test_refuse.py, which calls the C library and refuses its nth
 * request. */
#include <stdint.h>
#include <stdlib.h>

#include "loam.h"

/* `asked` counts requests. The request that makes it equal to `nth` is refused. `live` counts
 * blocks. */
typedef struct refusals {
  long asked, nth, live;
} refusals;

static _Bool is_refused(refusals *r) {
  return __atomic_add_fetch(&r->asked, 1, __ATOMIC_RELAXED) == r->nth;
}

static void *given(refusals *r, void *block) {
  if (block) __atomic_add_fetch(&r->live, 1, __ATOMIC_RELAXED);
  return block;
}

static void *refusing_malloc(void *ctx, size_t size) {
  return is_refused(ctx) ? NULL : given(ctx, malloc(size));
}
static void *refusing_calloc(void *ctx, size_t count, size_t size) {
  return is_refused(ctx) ? NULL : given(ctx, calloc(count, size));
}
static void *refusing_realloc(void *ctx, void *ptr, size_t size) {
  if (is_refused(ctx)) return NULL;
  return ptr ? realloc(ptr, size) : given(ctx, malloc(size));
}
static void refusing_free(void *ctx, void *ptr, size_t size) {
  (void)size;
  if (!ptr) return;
  __atomic_sub_fetch(&((refusals *)ctx)->live, 1, __ATOMIC_RELAXED);
  free(ptr);
}

extern refusals counts;
extern const loam_handler refusing;
refusals counts;
const loam_handler refusing = {
  "refusing", 1, { &counts, refusing_malloc, refusing_calloc, refusing_realloc, refusing_free }
};
