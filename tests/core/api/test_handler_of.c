/* test_handler_of.c - a site as a NEP 49 handler, and the handler of a thread. */
#include <stdlib.h>

#include "loam.h"
#include "test.h"

static const char *tag_of(const void *p) {
  loam_owner_info o;
  assert_int_equal(loam_owner(p, &o), LOAM_OK);
  return o.tag;
}

static void the_same_site_has_the_same_handler(void **state) {
  (void)state;
  loam_site *s = loam_site_get("handler.one");
  const loam_handler *h = loam_handler_of(s);
  assert_ptr_equal(h, loam_handler_of(s));
  assert_ptr_not_equal(h, loam_handler_of(loam_site_get("handler.two")));
  assert_ptr_equal(loam_handler_of(NULL), loam_handler_of(NULL));
  assert_ptr_not_equal(h, loam_handler_of(NULL));
  assert_int_equal(h->version, 1);
  assert_string_equal(h->name, "loam");
  assert_int_equal(sizeof *h, 168); /* the size of NumPy's PyDataMem_Handler */
}

static void what_a_handler_makes_is_its_sites(void **state) {
  (void)state;
  const loam_allocator *a = &loam_handler_of(loam_site_get("handler.made"))->allocator;
  char *p = a->malloc(a->ctx, 100), *z = a->calloc(a->ctx, 10, 10);
  assert_string_equal(tag_of(p), "handler.made");
  for (int i = 0; i < 100; i++) assert_int_equal(z[i], 0);
  p[99] = 7;
  p = a->realloc(a->ctx, p, 100000);
  assert_int_equal(p[99], 7);
  assert_string_equal(tag_of(p), "handler.made");
  assert_null(a->calloc(a->ctx, SIZE_MAX, 2));
  a->free(a->ctx, p, 1); /* NumPy may pass a wrong size */
  a->free(a->ctx, z, 100);
  a->free(a->ctx, NULL, 0);
  struct loam_stats stats;
  loam_stats(&stats);
  assert_int_equal(stats.bad_frees, 0);
}

static void the_default_handler_follows_the_scope(void **state) {
  (void)state;
  const loam_allocator *a = &loam_handler_get()->allocator;
  char *p = a->malloc(a->ctx, 10);
  assert_string_equal(tag_of(p), "");
  loam_scope_enter(loam_site_get("handler.scope"));
  char *q = a->malloc(a->ctx, 10);
  loam_scope_leave();
  assert_string_equal(tag_of(q), "handler.scope");
  loam_free(p);
  loam_free(q);
}

static void setting_returns_the_previous_one(void **state) {
  (void)state;
  const loam_handler *h = loam_handler_of(loam_site_get("handler.set"));
  assert_ptr_equal(loam_handler_get(), loam_handler_of(NULL));
  assert_ptr_equal(loam_handler_set(h), loam_handler_of(NULL));
  assert_ptr_equal(loam_handler_get(), h);
  assert_ptr_equal(loam_handler_set(NULL), h);
  assert_ptr_equal(loam_handler_get(), loam_handler_of(NULL));
}

static void what_cannot_be_called_is_not_set(void **state) {
  (void)state;
  const loam_handler *h = loam_handler_of(loam_site_get("handler.set"));
  loam_handler broken = *h;
  broken.allocator.calloc = NULL;
  assert_ptr_equal(loam_handler_set(h), loam_handler_of(NULL));
  assert_null(loam_handler_set(&broken));
  assert_string_equal(loam_error(), "handler \"loam\": its calloc is NULL");
  assert_ptr_equal(loam_handler_set(NULL), h);
}

static void *look(void *arg) {
  *(const loam_handler **)arg = loam_handler_get();
  return NULL;
}

static void each_thread_has_its_own(void **state) {
  (void)state;
  const loam_handler *seen = NULL;
  loam_handler_set(loam_handler_of(loam_site_get("handler.mine")));
  pthread_join(start_thread(look, &seen), NULL);
  assert_ptr_equal(seen, loam_handler_of(NULL));
  loam_handler_set(NULL);
}

enum { THREADS = 4 };
static void *intern(void *arg) {
  *(const loam_handler **)arg = loam_handler_of(loam_site_get("handler.raced"));
  return NULL;
}

static void threads_that_race_get_one(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  const loam_handler *got[THREADS];
  for (int i = 0; i < THREADS; i++) thread[i] = start_thread(intern, &got[i]);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  for (int i = 1; i < THREADS; i++) assert_ptr_equal(got[i], got[0]);
}

/* ---- A handler that takes its own memory from loam */

static const char *strategy_of(const void *p) {
  loam_owner_info o;
  assert_int_equal(loam_owner(p, &o), LOAM_OK);
  return o.strategy;
}

static const char *inner; /* the strategy of the memory that the handler last took */

static void *from_loam(void *ctx, size_t size) {
  void *p = loam_malloc(ctx, size);
  inner = strategy_of(p);
  return p;
}
static void *zeroed_from_loam(void *ctx, size_t count, size_t size) {
  return loam_calloc(ctx, count, size);
}
static void *resized_by_loam(void *ctx, void *ptr, size_t size) {
  return loam_realloc(ctx, ptr, size);
}
static void back_to_loam(void *ctx, void *ptr, size_t size) {
  (void)ctx;
  (void)size;
  loam_free(ptr);
}

/* The policy gives "upper" and "under" to this handler, so the handler's own requests would call it
 * for ever if the policy decided them. "kept" goes to a pool of loam. */
static void a_handler_that_uses_loam_is_not_called_for_its_own_memory(void **state) {
  (void)state;
  static loam_handler h = { .name = "nested", .version = 1 };
  static const char policy[] =
      "local own, kept = loam.handler 'nested', loam.host { name = 'kept' }\n"
      "return loam.policy { pick = function(req)\n"
      "  return req.tag:under('kept') and kept or own end }\n";
  loam_site *site[] = { loam_site_get("under"), loam_site_get("kept") };
  h.allocator = (loam_allocator){ NULL, from_loam, zeroed_from_loam, resized_by_loam,
                                  back_to_loam };
  assert_int_equal(loam_handler_register(&h), LOAM_OK);
  if (loam_policy_load_text("nested.lua", policy)) fail_msg("%s", loam_error());
  for (int i = 0; i < 2; i++) {
    h.allocator.ctx = site[i];
    void *p = loam_malloc(loam_site_get("upper"), 500);
    assert_string_equal(strategy_of(p), "handler:nested");
    assert_string_equal(inner, "default");
    loam_free(p);
  }
  /* A decision that the thread has kept serves the handler's request too: it names a pool. */
  loam_free(loam_malloc(site[1], 500));
  void *p = loam_malloc(site[1], 500), *q = loam_malloc(loam_site_get("upper"), 500);
  assert_string_equal(strategy_of(p), "kept");
  assert_string_equal(strategy_of(q), "handler:nested");
  assert_string_equal(inner, "kept");
  p = loam_realloc(site[1], p, 100000);
  assert_non_null(p);
  loam_free(q);
  loam_free(p);
  static const char plain[] = "local plain = loam.host { name = 'plain' }\n"
                              "return loam.policy { pick = function() return plain end }\n";
  if (loam_policy_load_text("plain.lua", plain)) fail_msg("%s", loam_error());
}

/* ---- The sample of NEP 49
 *
 * Its handler writes the size of each block into a header of 64 bytes. Like the sample, it has the
 * first argument of calloc as the number of bytes, which is how NumPy calls it. */

static struct {
  size_t bytes; /* that the C library was asked for, last */
  int live, mismatches;
} shifted;

static void *shift(void *real, size_t size) {
  if (!real) return NULL;
  snprintf(real, 64, "originally allocated %zu", size);
  shifted.live++;
  return (char *)real + 64;
}

static void *shift_alloc(void *ctx, size_t size) {
  (void)ctx;
  shifted.bytes = size + 64;
  return shift(malloc(size + 64), size);
}
static void *shift_zero(void *ctx, size_t size, size_t count) {
  (void)ctx;
  shifted.bytes = (size + 64) * count;
  return shift(calloc(size + 64, count), size);
}
static void shift_free(void *ctx, void *p, size_t size) {
  (void)ctx;
  char *real = (char *)p - 64;
  shifted.live--;
  shifted.mismatches += strtoul(real + 20, NULL, 10) != size;
  free(real);
}
static void *shift_realloc(void *ctx, void *p, size_t size) {
  (void)ctx;
  shifted.live--;
  return shift(realloc((char *)p - 64, size + 64), size);
}

static void handlers_are_called_as_numpy_calls_them(void **state) {
  (void)state;
  static const loam_handler h = { "shift",
                                  1,
                                  { NULL, shift_alloc, shift_zero, shift_realloc, shift_free } };
  static const char policy[] = "local shift = loam.handler 'shift'\n"
                               "return loam.policy { pick = function() return shift end }\n";
  loam_site *s = loam_site_get("array");
  assert_int_equal(loam_handler_register(&h), LOAM_OK);
  if (loam_policy_load_text("shift.lua", policy)) fail_msg("%s", loam_error());
  char *zeroed = loam_calloc(s, 1000, 8);
  assert_int_equal(shifted.bytes, 8064);
  for (int i = 0; i < 8000; i++) assert_int_equal(zeroed[i], 0);
  loam_free(zeroed);
  for (size_t align = 16; align <= 4096; align *= 2) {
    char *p = loam_aligned_alloc(s, align, 1000);
    assert_int_equal((uintptr_t)p % align, 0);
    memset(p, 1, 1000);
    if (align == 64) p = loam_realloc(s, p, 5000);
    loam_free(p);
  }
  void *none = loam_malloc(s, 0), *grown = loam_realloc(s, loam_malloc(s, 100), 20000);
  loam_free(none);
  loam_free_sized(grown, 20000);
  assert_int_equal(shifted.mismatches, 0);
  assert_int_equal(shifted.live, 0);
}

int main(void) {
  setenv("LOAM_CONTROL", "0", 1);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_same_site_has_the_same_handler),
    cmocka_unit_test(what_a_handler_makes_is_its_sites),
    cmocka_unit_test(the_default_handler_follows_the_scope),
    cmocka_unit_test(setting_returns_the_previous_one),
    cmocka_unit_test(what_cannot_be_called_is_not_set),
    cmocka_unit_test(each_thread_has_its_own),
    cmocka_unit_test(threads_that_race_get_one),
    cmocka_unit_test(a_handler_that_uses_loam_is_not_called_for_its_own_memory),
    cmocka_unit_test(handlers_are_called_as_numpy_calls_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
