/* test_handler_of.c - a site as a NEP 49 handler, and the handler of a thread. */
#include <stdlib.h>

#include "loam.h"
#include "os/fork_gate.h"
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
static _Thread_local int depth, deepest; /* of calls of the handler's free inside each other */

static void back_to_loam(void *ctx, void *ptr, size_t size) {
  (void)ctx;
  (void)size;
  if (++depth > deepest) deepest = depth;
  loam_free(ptr);
  depth--;
}

static void load_plain(void) {
  static const char plain[] = "local plain = loam.host { name = 'plain' }\n"
                              "return loam.policy { pick = function() return plain end }\n";
  if (loam_policy_load_text("plain.lua", plain)) fail_msg("%s", loam_error());
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
  load_plain();
}

enum { NOTED = 100 };

static void *free_all(void *blocks) {
  for (int i = 0; i < NOTED; i++) loam_free(((void **)blocks)[i]);
  return NULL;
}

/* While a thread forks for long, other threads note their frees, and a later call does them. The
 * handler's free itself calls loam. It must not do the next noted free: a thread with a small stack
 * may have to do thousands. */
static void noted_frees_are_not_done_inside_each_other(void **state) {
  (void)state;
  static loam_handler h = { .name = "noted", .version = 1 };
  static const char policy[] = "local own = loam.handler 'noted'\n"
                               "return loam.policy { pick = function() return own end }\n";
  void *block[NOTED];
  h.allocator = (loam_allocator){ NULL, from_loam, zeroed_from_loam, resized_by_loam,
                                  back_to_loam };
  assert_int_equal(loam_handler_register(&h), LOAM_OK);
  if (loam_policy_load_text("noted.lua", policy)) fail_msg("%s", loam_error());
  for (int i = 0; i < NOTED; i++) assert_non_null(block[i] = loam_malloc(NULL, 500));
  lm_fork_gate_close(false);
  pthread_join(start_thread(free_all, block), NULL);
  assert_string_equal(strategy_of(block[NOTED - 1]), "handler:noted");
  lm_fork_gate_open();
  deepest = 0;
  loam_free(loam_malloc(NULL, 500));
  assert_int_equal(deepest, 1);
  loam_owner_info o;
  for (int i = 0; i < NOTED; i++) assert_int_equal(loam_owner(block[i], &o), LOAM_EBADPTR);
  load_plain();
}

/* ---- The sample of NEP 49
 *
 * The handler of that sample writes the size of each block into a header of 64 bytes. Its calloc
 * has the number of bytes as its first argument, because NumPy calls it like that. */

static struct {
  size_t bytes; /* bytes of the latest request to the C library */
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

/* A handler whose memory begins 8 bytes after a multiple of 16. */
static char *eight_end; /* end of the memory that the handler returned last */

static void *eight_alloc(void *ctx, size_t size) {
  (void)ctx;
  char *real = malloc(size + 8);
  eight_end = real + 8 + size;
  return real + 8;
}
static void *eight_zero(void *ctx, size_t count, size_t size) {
  return memset(eight_alloc(ctx, count * size), 0, count * size);
}
static void *eight_realloc(void *ctx, void *p, size_t size) {
  (void)ctx;
  return (char *)realloc((char *)p - 8, size + 8) + 8;
}
static void eight_free(void *ctx, void *p, size_t size) {
  (void)ctx;
  (void)size;
  free((char *)p - 8);
}

static void aligned_memory_of_a_handler_ends_within_what_it_gave(void **state) {
  (void)state;
  static const loam_handler h = { "eight",
                                  1,
                                  { NULL, eight_alloc, eight_zero, eight_realloc, eight_free } };
  static const char policy[] = "local eight = loam.handler 'eight'\n"
                               "return loam.policy { pick = function() return eight end }\n";
  assert_int_equal(loam_handler_register(&h), LOAM_OK);
  if (loam_policy_load_text("eight.lua", policy)) fail_msg("%s", loam_error());
  for (size_t align = 32; align <= 4096; align *= 2)
    for (size_t size = 1; size < 400; size += 13) {
      char *p = loam_aligned_alloc(loam_site_get("array"), align, size);
      assert_int_equal((uintptr_t)p % align, 0);
      assert_true(p + size <= eight_end);
      loam_free(p);
    }
  static const char plain[] = "local h = loam.host { name = 'plain' }\n"
                              "return loam.policy { pick = function() return h end }\n";
  assert_int_equal(loam_policy_load_text("plain.lua", plain), LOAM_OK);
}

/* ---- The handler that a thread has set
 *
 * This handler counts its calls and passes them to the C library. */

static struct {
  int mallocs, callocs, reallocs, frees, live;
  size_t size; /* size of the latest request */
  size_t held; /* the sizes of all live blocks; 0 at the end if frees have the sizes of requests */
} counted;

static size_t grown; /* the size of the one block that a test reallocates */

static void *note(void *p, size_t size) {
  counted.live++;
  counted.size = size;
  counted.held += size;
  return p;
}
static void *count_malloc(void *ctx, size_t size) {
  (void)ctx;
  counted.mallocs++;
  return note(malloc(size), size);
}
static void *count_calloc(void *ctx, size_t count, size_t size) {
  (void)ctx;
  counted.callocs++;
  return note(calloc(count, size), count * size);
}
static void *count_realloc(void *ctx, void *p, size_t size) {
  (void)ctx;
  counted.reallocs++;
  counted.held += size - grown;
  grown = size;
  return realloc(p, size);
}
static void count_free(void *ctx, void *p, size_t size) {
  (void)ctx;
  counted.frees++;
  counted.live--;
  counted.held -= size;
  free(p);
}

static const loam_handler counting = {
  "counting", 1, { NULL, count_malloc, count_calloc, count_realloc, count_free }
};

static const loam_handler *set_counting(void) {
  memset(&counted, 0, sizeof counted);
  return loam_handler_set(&counting);
}

/* blocks that loam_on_memory reported as made, minus those reported as freed */
static int reported_live;
static void count_reported(void *ctx, void *from, void *to, size_t size) {
  (void)ctx;
  (void)size;
  reported_live += !from;
  reported_live -= !to;
}

static void the_set_handler_makes_the_data_of_blocks(void **state) {
  (void)state;
  loam_site *site = loam_site_get("handler.blocks");
  loam_on_memory(count_reported, NULL);
  reported_live = 0;
  set_counting();
  loam_block *small = loam_block_new(site, 100), *zeroed = loam_block_zeroed(site, 50000);
  loam_block *aligned = loam_block_aligned(site, 4096, 1000);
  loam_handler_set(NULL);
  assert_int_equal(reported_live, 6); /* three headers, three times data */
  assert_int_equal(counted.mallocs, 2);
  assert_int_equal(counted.callocs, 1);
  assert_int_equal((uintptr_t)loam_block_data(aligned) % 4096, 0);
  for (int i = 0; i < 50000; i++) assert_int_equal(((char *)loam_block_data(zeroed))[i], 0);
  loam_owner_info o;
  assert_int_equal(loam_owner((char *)loam_block_data(small) + 99, &o), LOAM_OK);
  assert_string_equal(o.tag, "handler.blocks");
  assert_string_equal(o.handler, "counting");
  assert_string_equal(o.strategy, "handler:counting");
  assert_string_equal(o.kind, "handler");
  assert_int_equal(o.handler_version, 1);
  assert_int_equal(o.size, 100);
  loam_block_release(small);
  loam_block_release(zeroed);
  loam_block_release(aligned);
  loam_on_memory(NULL, NULL);
  assert_int_equal(reported_live, 0);
  assert_int_equal(counted.live, 0);
  assert_int_equal(counted.held, 0);
}

static void the_set_handler_makes_the_data_of_arrays(void **state) {
  (void)state;
  loam_type *type;
  loam_array *array, *row;
  assert_int_equal(loam_type_parse("3 * var * int64", &type), LOAM_OK);
  set_counting();
  assert_int_equal(loam_array_new(loam_site_get("handler.arrays"), type, &array), LOAM_OK);
  loam_handler_set(NULL);
  assert_int_equal(counted.callocs, 1);
  assert_int_equal(counted.size, 48);
  assert_string_equal(tag_of(loam_array_data(array)), "handler.arrays");
  /* The array keeps its handler: rows that are filled later come from it. */
  assert_int_equal(loam_array_index(array, 1, (loam_index[]){ LOAM_AT(0) }, &row), LOAM_OK);
  assert_int_equal(loam_array_resize(row, 10), LOAM_OK);
  assert_int_equal(counted.mallocs, 1);
  assert_int_equal(loam_array_resize(row, 10000), LOAM_OK);
  grown = counted.size;
  for (int64_t i = 0; i < 100; i++) {
    int64_t *first = loam_array_at(row, 1, &(int64_t){ 0 });
    *first = i;
    assert_int_equal(loam_array_resize(row, (size_t)(20000 + i * 5000)), LOAM_OK);
    assert_int_equal(*(int64_t *)loam_array_at(row, 1, &(int64_t){ 0 }), i);
  }
  assert_true(counted.reallocs > 0);
  loam_array_release(row);
  loam_array_release(array);
  loam_type_release(type);
  assert_int_equal(counted.live, 0);
  assert_int_equal(counted.held, 0);
}

static void the_set_handler_leaves_malloc_to_the_policy(void **state) {
  (void)state;
  loam_site *site = loam_site_get("handler.malloc");
  set_counting();
  void *p = loam_malloc(site, 100), *q = loam_malloc(site, 1 << 20);
  assert_int_equal(counted.mallocs, 0);
  assert_string_equal(strategy_of(p), strategy_of(q));
  loam_free(p);
  loam_free(q);
  loam_handler_set(NULL);
  loam_block *b = loam_block_new(site, 100);
  assert_int_equal(counted.mallocs, 0);
  loam_block_release(b);
}

static void a_set_handler_of_a_site_gives_its_memory_to_the_policy(void **state) {
  (void)state;
  loam_site *other = loam_site_get("handler.other");
  loam_handler_set(loam_handler_of(other));
  loam_block *b[] = { loam_block_new(loam_site_get("handler.mine"), 100),
                      loam_block_new(NULL, 5000), loam_arena_new(NULL, 0, 0) };
  for (int i = 0; i < 3; i++) assert_string_equal(loam_block_tag(b[i]), "handler.other");
  assert_string_equal(tag_of(loam_block_data(b[0])), "handler.other");
  assert_string_equal(tag_of(loam_arena_alloc(b[2], 16, 10)), "handler.other");
  loam_handler_set(loam_handler_of(NULL));
  loam_block *mine = loam_block_new(loam_site_get("handler.mine"), 100);
  assert_string_equal(loam_block_tag(mine), "handler.mine");
  for (int i = 0; i < 3; i++) loam_block_release(b[i]);
  loam_block_release(mine);
  loam_handler_set(NULL);
}

/* Makes a block for each request. loam must not ask the handler for the data of that block. */
static void *from_blocks(void *ctx, size_t size) {
  loam_block *b = loam_block_new(ctx, size + sizeof b);
  char *data = loam_block_data(b);
  memcpy(data, &b, sizeof b);
  return data + sizeof b;
}
static void back_to_blocks(void *ctx, void *p, size_t size) {
  loam_block *b;
  (void)ctx;
  (void)size;
  memcpy(&b, (char *)p - sizeof b, sizeof b);
  loam_block_release(b);
}

static void a_set_handler_may_use_loam_itself(void **state) {
  (void)state;
  static loam_handler h[2] = { { .name = "on malloc", .version = 1 },
                               { .name = "on blocks", .version = 1 } };
  loam_site *site = loam_site_get("handler.on");
  struct loam_stats before, after;
  h[0].allocator = (loam_allocator){ site, from_loam, zeroed_from_loam, resized_by_loam,
                                     back_to_loam };
  h[1].allocator = (loam_allocator){ site, from_blocks, zeroed_from_loam, resized_by_loam,
                                     back_to_blocks };
  loam_block_release(loam_block_new(site, 5000));
  assert_int_equal(loam_stats(&before), LOAM_OK);
  for (int i = 0; i < 2; i++) {
    loam_handler_set(&h[i]);
    loam_block *b = loam_block_new(loam_site_get("handler.upper"), 5000);
    loam_handler_set(NULL);
    loam_owner_info o;
    assert_int_equal(loam_owner(loam_block_data(b), &o), LOAM_OK);
    assert_string_equal(o.handler, h[i].name);
    assert_string_equal(o.tag, "handler.upper");
    memset(loam_block_data(b), 1, 5000);
    loam_block_release(b);
  }
  assert_int_equal(loam_stats(&after), LOAM_OK);
  assert_int_equal(after.live_blocks, before.live_blocks);
  assert_int_equal(after.bad_frees, 0);
}

static void *no_memory(void *ctx, size_t size) {
  (void)ctx;
  (void)size;
  return NULL;
}
static void *no_zeroed(void *ctx, size_t count, size_t size) {
  (void)ctx;
  (void)count;
  (void)size;
  return NULL;
}

static void without_memory_of_the_set_handler_there_is_no_block(void **state) {
  (void)state;
  static const loam_handler empty = { "empty",
                                      1,
                                      { NULL, no_memory, no_zeroed, count_realloc, count_free } };
  loam_type *type;
  loam_array *array = NULL;
  assert_int_equal(loam_type_parse("3 * string", &type), LOAM_OK);
  loam_handler_set(&empty);
  assert_null(loam_block_new(loam_site_get("handler.empty"), 100));
  assert_string_equal(loam_error(), "size 100 under tag 'handler.empty': strategy 'handler:empty' "
                                    "cannot serve it: it has no memory");
  assert_null(loam_block_zeroed(NULL, 5000));
  assert_null(loam_block_aligned(NULL, 64, 5000));
  loam_block *arena = loam_arena_new(NULL, 0, 0);
  assert_null(loam_arena_alloc(arena, 16, 16));
  assert_int_equal(loam_array_new(NULL, type, &array), LOAM_ENOMEM);
  assert_null(array);
  loam_handler_set(NULL);
  loam_block_release(arena);
  loam_type_release(type);
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
    cmocka_unit_test(noted_frees_are_not_done_inside_each_other),
    cmocka_unit_test(handlers_are_called_as_numpy_calls_them),
    cmocka_unit_test(aligned_memory_of_a_handler_ends_within_what_it_gave),
    cmocka_unit_test(the_set_handler_makes_the_data_of_blocks),
    cmocka_unit_test(the_set_handler_makes_the_data_of_arrays),
    cmocka_unit_test(the_set_handler_leaves_malloc_to_the_policy),
    cmocka_unit_test(a_set_handler_of_a_site_gives_its_memory_to_the_policy),
    cmocka_unit_test(a_set_handler_may_use_loam_itself),
    cmocka_unit_test(without_memory_of_the_set_handler_there_is_no_block),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
