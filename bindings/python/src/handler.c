/* handler.c - handlers for NumPy that allocate from loam.
 *
 * When one array begins where another ends, NumPy thinks that they overlap. It then computes exp,
 * log, sin and similar functions without vector instructions: several times slower, and with
 * another last bit. Other allocators separate arrays by their headers. loam's arrays fill whole
 * blocks, so one byte more separates them. Blocks are multiples of 16 bytes, so other sizes leave a
 * byte anyway. */
#include "handler.h"

#include <stdint.h>
#include <stdlib.h>

#include "sites.h"

typedef struct maker {
  loam_handler handler; /* its ctx is this struct */
  loam_site *site;
  const sites *sites; /* NULL: all allocations have `site` */
  size_t apart;       /* bytes to separate arrays: 1 or 0 */
} maker;

static size_t wanted(const maker *m, size_t size) {
  return size % 16 || size > SIZE_MAX - 1 ? size : size + m->apart;
}

static loam_site *site_of(const maker *m) {
  loam_site *here = m->sites ? sites_here(m->sites) : NULL;
  return here ? here : m->site;
}

static void *make(void *ctx, size_t size) {
  const maker *m = ctx;
  return loam_malloc(site_of(m), wanted(m, size));
}

static void *make_zeroed(void *ctx, size_t count, size_t size) {
  const maker *m = ctx;
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
  return loam_calloc(site_of(m), 1, wanted(m, bytes));
}

/* An existing block keeps its site. */
static void *make_again(void *ctx, void *ptr, size_t size) {
  return ptr ? loam_realloc(NULL, ptr, wanted(ctx, size)) : make(ctx, size);
}

/* NumPy's size is a guess: it may be the size of an array that shares the memory. */
static void unmake(void *ctx, void *ptr, size_t size) {
  (void)ctx;
  (void)size;
  loam_free(ptr);
}

const loam_handler *handler_make(const char *tag, int flags) {
  loam_site *site = loam_site_get(tag ? tag : "numpy.data");
  if (!site) {
    binding_fail(LOAM_EINVAL);
    return NULL;
  }
  const sites *named = flags & HANDLER_SITES ? sites_make(tag ? tag : "", site) : NULL;
  maker *m = flags & HANDLER_SITES && !named ? NULL : calloc(1, sizeof *m);
  if (!m) {
    PyErr_NoMemory();
    return NULL;
  }
  *m = (maker){ { "loam", 1, { m, make, make_zeroed, make_again, unmake } },
                site,
                named,
                !(flags & HANDLER_TOUCH) };
  return &m->handler;
}

int handler_is_ours(const loam_handler *handler) { return handler->allocator.free == unmake; }
