/* counting_handler.h - a handler for the interface fuzzer. It counts its live bytes. */
#ifndef COUNTING_HANDLER_H
#define COUNTING_HANDLER_H

#include "model.h"

static _Atomic int64_t handler_live;

static void *handler_malloc(void *ctx, size_t size) {
  char *p = malloc(size + 16);
  (void)ctx;
  if (!p) return NULL;
  memcpy(p, &size, sizeof size);
  handler_live += (int64_t)size;
  return p + 16;
}

static void *handler_calloc(void *ctx, size_t count, size_t size) {
  void *p = handler_malloc(ctx, count * size);
  return p ? memset(p, 0, count * size) : NULL;
}

static void handler_free(void *ctx, void *p, size_t size) {
  size_t real;
  (void)ctx;
  memcpy(&real, (char *)p - 16, sizeof real);
  must(size <= real, "a handler's free of %zu bytes: told %zu", real,
       size); /* an alignment may take some bytes */
  handler_live -= (int64_t)real;
  free((char *)p - 16);
}

static void *handler_realloc(void *ctx, void *p, size_t size) {
  size_t real;
  memcpy(&real, (char *)p - 16, sizeof real);
  void *q = handler_malloc(ctx, size);
  if (!q) return NULL;
  memcpy(q, p, real < size ? real : size);
  handler_free(ctx, p, real);
  return q;
}

static const loam_handler handler = {
  "fuzz", 1, { NULL, handler_malloc, handler_calloc, handler_realloc, handler_free }
};

#endif
