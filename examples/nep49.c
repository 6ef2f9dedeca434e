/* nep49.c - the sample of NumPy's NEP 49 under loam: a handler that writes the size of each block
 * into a header of 64 bytes and reports frees with a different size. A policy chooses the handler
 * by its name. */
#include <loam.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The handler's context, as in the sample, and a counter of blocks. */
typedef struct allocator {
  void *(*malloc)(size_t);
  void *(*calloc)(size_t, size_t);
  void *(*realloc)(void *, size_t);
  void (*free)(void *);
  int live, mismatches;
} allocator;

static void *shift_alloc(void *context, size_t sz) {
  allocator *ctx = context;
  char *real = (char *)ctx->malloc(sz + 64);
  if (real == NULL) return NULL;
  snprintf(real, 64, "originally allocated %lu", (unsigned long)sz);
  ctx->live++;
  return (void *)(real + 64);
}

/* The sample calls the number of bytes `sz`: NumPy, and loam too, passes it first, and then 1. */
static void *shift_zero(void *context, size_t sz, size_t cnt) {
  allocator *ctx = context;
  char *real = (char *)ctx->calloc(sz + 64, cnt);
  if (real == NULL) return NULL;
  snprintf(real, 64, "originally allocated %lu via zero", (unsigned long)sz);
  ctx->live++;
  return (void *)(real + 64);
}

static void shift_free(void *context, void *p, size_t sz) {
  allocator *ctx = context;
  if (p == NULL) return;
  char *real = (char *)p - 64;
  size_t i = (size_t)atoi(real + 20);
  if (i != sz) {
    printf("uh-oh, unmatched shift_free(ptr, %ld) but allocated %ld\n", (long)sz, (long)i);
    ctx->mismatches++;
  }
  ctx->live--;
  ctx->free(real);
}

/* The sample leaves the old size in the header. Here the header gets the new size. */
static void *shift_realloc(void *context, void *p, size_t sz) {
  allocator *ctx = context;
  char *real = (char *)ctx->realloc(p ? (char *)p - 64 : NULL, sz + 64);
  if (real == NULL) return NULL;
  snprintf(real, 64, "originally allocated %lu via realloc", (unsigned long)sz);
  ctx->live += p == NULL;
  return (void *)(real + 64);
}

static allocator counts = { malloc, calloc, realloc, free, 0, 0 };
static const loam_handler handler = {
  "secret_data_allocator", 1, { &counts, shift_alloc, shift_zero, shift_realloc, shift_free }
};

static const char policy[] = "local shift = loam.handler 'secret_data_allocator'\n"
                             "local plain = loam.host { name = 'plain', align = 64 }\n"
                             "return loam.policy { name = 'nep49', pick = function(req)\n"
                             "  if req.tag:under('array') then return shift:or_else(plain) end\n"
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

/* As NumPy does: the handler that is set makes the data of new arrays, and each array keeps it. */
static void as_numpy_does(void) {
  loam_type *type;
  loam_array *array;
  const loam_handler *before = loam_handler_set(&handler);
  printf("current handler: %s, before it: %s\n", loam_handler_get()->name, before->name);
  if (loam_type_parse("100 * float64", &type) ||
      loam_array_new(loam_site_get("array.data"), type, &array))
    exit(1);
  loam_handler_set(NULL);
  printf("current handler: %s\n", loam_handler_get()->name);
  show("an array of the set handler", loam_array_data(array));
  loam_array_release(array);
  loam_type_release(type);
}

int main(void) {
  loam_handler broken = handler;
  broken.allocator.realloc = NULL;
  if (loam_handler_register(&broken) != LOAM_OK) printf("refused: %s\n", loam_error());
  if (loam_handler_register(&handler) != LOAM_OK || !load(policy)) return 1;

  loam_site *array = loam_site_get("array.data");
  char *a = loam_calloc(array, 125, 8), *log = loam_malloc(loam_site_get("log"), 1000);
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
