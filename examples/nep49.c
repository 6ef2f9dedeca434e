/* nep49.c - the example of NumPy's NEP 49: a handler that writes the size of each block into a
 * header of 64 bytes and reports frees with a different size. A policy chooses the handler by its
 * name. */
#include <loam.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 64 }; /* a cache line, so the block is aligned like malloc's */

/* The handler's context: its counters. */
typedef struct shim {
  int live, mismatches;
} shim;

static void *begin(shim *s, char *whole, size_t size) {
  if (!whole) return NULL;
  snprintf(whole, HEADER, "shim: %zu bytes", size);
  s->live++;
  return whole + HEADER;
}

static void *shim_malloc(void *ctx, size_t size) {
  if (size > SIZE_MAX - HEADER) return NULL;
  return begin(ctx, malloc(size + HEADER), size);
}

static void *shim_calloc(void *ctx, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - HEADER) return NULL;
  return begin(ctx, calloc(1, bytes + HEADER), bytes);
}

/* `size` is a best guess, so it is only compared. */
static void shim_free(void *ctx, void *ptr, size_t size) {
  if (!ptr) return;
  shim *s = ctx;
  char expected[HEADER], *whole = (char *)ptr - HEADER;
  snprintf(expected, HEADER, "shim: %zu bytes", size);
  if (strcmp(whole, expected) != 0) {
    s->mismatches++;
    printf("mismatch: freed as \"%s\", made as \"%s\"\n", expected, whole);
  }
  s->live--;
  free(whole);
}

static void *shim_realloc(void *ctx, void *ptr, size_t size) {
  if (!ptr) return shim_malloc(ctx, size);
  if (size > SIZE_MAX - HEADER) return NULL;
  char *whole = realloc((char *)ptr - HEADER, size + HEADER);
  if (whole) snprintf(whole, HEADER, "shim: %zu bytes", size);
  return whole ? whole + HEADER : NULL;
}

static shim counts;
static const loam_handler handler = {
  "shim", 1, { &counts, shim_malloc, shim_calloc, shim_realloc, shim_free }
};

static const char policy[] = "local shim  = loam.handler 'shim'\n"
                             "local plain = loam.host { name = 'plain', align = 64 }\n"
                             "return loam.policy { name = 'nep49', pick = function(req)\n"
                             "  if req.tag:under('array') then return shim:or_else(plain) end\n"
                             "  return plain\n"
                             "end }\n";
static const char without[] = "local plain = loam.host { name = 'plain' }\n"
                              "return loam.policy { name = 'without',\n"
                              "  pick = function(req) return plain end }\n";

static void show(const char *what, const void *ptr) {
  loam_owner_info o;
  if (loam_owner(ptr, &o) != LOAM_OK) exit(1);
  printf("%s: tag %s, strategy kind %s, handler %s\n", what, o.tag, o.kind, o.handler);
}

static int load(const char *text) {
  if (loam_policy_load_text("nep49.lua", text) == LOAM_OK) return 1;
  fprintf(stderr, "%s\n", loam_error());
  return 0;
}

/* An array library under NEP 49: it allocates with the current handler, and each array keeps the
 * handler that made it. */
static void as_numpy_does(void) {
  const loam_handler *before = loam_handler_set(&handler);
  const loam_handler *mine = loam_handler_get();
  printf("current handler: %s, before it: %s\n", mine->name, before->name);
  void *array = mine->allocator.malloc(mine->allocator.ctx, 800);
  loam_handler_set(NULL);
  printf("current handler: %s, the array's: %s\n", loam_handler_get()->name, mine->name);
  mine->allocator.free(mine->allocator.ctx, array, 80);
}

int main(void) {
  loam_handler broken = handler;
  broken.allocator.realloc = NULL;
  if (loam_handler_register(&broken) != LOAM_OK) printf("refused: %s\n", loam_error());
  if (loam_handler_register(&handler) != LOAM_OK || !load(policy)) return 1;

  loam_site *array = loam_site_get("array.data");
  char *a = loam_malloc(array, 1000), *log = loam_malloc(loam_site_get("log"), 1000);
  show("an array", a);
  show("a log line", log);
  if (!load(without)) return 1;
  char *b = loam_malloc(array, 1000);
  show("an array under a policy without the handler", b);
  show("the first one, made before", a);
  loam_free(a); /* the handler that made the block frees it */
  loam_free(b);
  loam_free(log);

  as_numpy_does();
  printf("live in the handler: %d, mismatches: %d\n", counts.live, counts.mismatches);
  return 0;
}
