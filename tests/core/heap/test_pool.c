/* test_pool.c - objects and large blocks of pools, from one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cell_of.h"
#include "chance.h"
#include "heap/central.h"
#include "heap/pool.h"
#include "heap/pools.h"
#include "heap/sweep.h"
#include "heap/tcache_slow.h"
#include "heap/walk.h"
#include "os/decay.h"
#include "pool_fixture.h"
#include "test.h"

enum { OTHER = 12345 };

static uint8_t hint = 1;

static uint64_t seed = 3;

static void serves_any_size_at_any_alignment(void **state) {
  (void)state;
  static const size_t sizes[] = { 0,    1,     15,    16,    17,      100,       4095,
                                  4097, 32768, 32769, 65536, 1000000, 5 * LM_MIB };
  for (size_t align = 1; align <= LM_GIB; align *= 2)
    for (size_t i = 0; i < LM_COUNT(sizes); i++) {
      char *p = take(lm_strategy_at(0), sizes[i], align);
      assert_non_null(p);
      assert_int_equal((uintptr_t)p % (align < 16 ? 16 : align), 0);
      lm_object o;
      assert_true(lm_pool_find(p, &o));
      assert_true(o.base == p && o.size >= sizes[i] && o.token == TOKEN && o.strategy == 0);
      memset(p, 0xff, o.size);
      assert_int_equal(release(p), LM_FREE_DONE);
    }
}

/* After the reach of a thread is reset, its first free takes the slow path and sets the reach.
 * Later frees are fast. */
static void a_long_free_lets_the_next_reach_the_range(void **state) {
  (void)state;
  if (!lm_map.reach) skip(); /* the address space is short */
  void *two[] = { take(lm_strategy_at(0), 100, 16), take(lm_strategy_at(0), 100, 16) };
  lm_thread_set_reach(t, LM_REACH_NONE);
  assert_false(lm_tcache_give(t, two[0]));
  assert_int_equal(release(two[0]), LM_FREE_DONE);
  assert_int_equal(t->reach, lm_map.reach);
  assert_true(lm_tcache_give(t, two[1]));
  assert_false(lm_tcache_give(t, two[0]) || lm_tcache_give(t, two[1]));
}

/* Filling a bin sets the reach of the thread, so already the first free is a fast one. */
static void what_a_bin_is_filled_with_is_reached(void **state) {
  (void)state;
  if (!lm_map.reach) skip();
  lm_strategy *s = intern((lm_desc){ .name = "reached at once" });
  assert_true(lm_pool_reserve(s));
  lm_thread_set_reach(t, LM_REACH_NONE);
  uint8_t id = hint;
  void *p = lm_tcache_take(t, lm_pool_bin(s, lm_class_of(200)), TOKEN, &id);
  assert_int_equal(t->reach, lm_map.reach);
  assert_true(lm_tcache_give(t, p));
}

static void rounds_a_large_block_to_pages_only(void **state) {
  (void)state;
  lm_object o;
  char *p = take(lm_strategy_at(0), 100001, 16);
  assert_true(lm_pool_find(p + 100000, &o));
  assert_int_equal(o.size, lm_align_up(100001, LM_PAGE));
  assert_false(lm_pool_find(p + o.size, &o));
  release(p);
}

static void a_strategy_raises_the_alignment(void **state) {
  (void)state;
  for (size_t align = 32; align <= LM_PAGE; align *= 2) {
    lm_strategy *s = intern((lm_desc){ .align = align });
    for (unsigned c = 0; c < LM_CLASSES; c++) {
      uint32_t bin = lm_pool_bin(s, c);
      assert_int_not_equal(bin, 0);
      void *p = lm_tcache_take(t, bin, TOKEN, &hint), *q = take(s, lm_class_max_size(c), 16);
      assert_int_equal((uintptr_t)p % align | (uintptr_t)q % align, 0);
      lm_object o;
      assert_true(lm_pool_find(p, &o) && o.size >= lm_class_max_size(c) && o.strategy == s->id);
      release(p);
      release(q);
    }
  }
}

static void *take_by_decision(uint32_t bin, lm_token token, uint8_t mark) {
  lm_decision d = { .bin = bin, .token = token, .state = mark };
  return lm_tcache_take_ready(t, &d);
}

static void expect_owner(void *p, lm_token token) {
  lm_object o;
  assert_true(p && lm_pool_find(p, &o) && o.token == token);
  assert_int_equal(release(p), LM_FREE_DONE);
}

/* Uses new tokens until one is not common any more. Returns that token and sets *id to its id. */
static lm_token uncommon(uint32_t bin, uint8_t *id) {
  lm_token token = 1000;
  do {
    *id = lm_state_hint(++token);
    release(lm_tcache_take(t, bin, token, id));
  } while (*id <= LM_COMMON_TOKENS);
  return token;
}

static void a_decision_meets_common_tokens_and_those_of_a_span(void **state) {
  (void)state;
  lm_strategy *s = intern((lm_desc){ .name = "common and others" });
  uint8_t id = lm_state_hint(TOKEN), other;
  uint32_t bin = lm_pool_bin(s, LM_CLASSES - 1);
  expect_owner(lm_tcache_take(t, bin, TOKEN, &id), TOKEN);
  lm_token own = uncommon(bin, &other);
  expect_owner(take_by_decision(bin, TOKEN, LM_STATE_LIVE + id), TOKEN);
  expect_owner(take_by_decision(bin, own, LM_STATE_LIVE + other), own);
  assert_null(take_by_decision(bin, own + 1, LM_STATE_LIVE + other));
  void *p = lm_tcache_take(t, bin, TOKEN | LM_TOKEN_COUNTED, &other);
  assert_true(other > LM_COMMON_TOKENS);
  expect_owner(p, TOKEN | LM_TOKEN_COUNTED);
}

static void expect_token(const void *p, lm_token token) {
  lm_map_object glance, place;
  assert_true(lm_map_find_fast(p, &glance) && lm_map_find(p, &place));
  assert_true(glance.token == token && place.token == token);
}

static void *take_counted(uint32_t bin, lm_token token) {
  uint8_t id = lm_state_hint(token);
  return lm_tcache_take(t, bin, token, &id);
}

/* Frees an object whose token is counted. Returns false if its state was not `state`. */
static bool give_counted(void *p, lm_state state) {
  lm_token token;
  lm_located refused;
  assert_false(lm_tcache_give(t, p));
  assert_true(lm_tcache_locate(p, &refused));
  if (*refused.cell != state) return false;
  return lm_tcache_give_counted(t, p, refused, &token) && token & LM_TOKEN_COUNTED;
}

/* The first counted token of a span needs no table of tokens; further counted tokens do.
 * lm_pool_retoken moves objects between the two forms. */
static void a_span_with_a_counted_token_gets_another(void **state) {
  const lm_token counted = TOKEN | LM_TOKEN_COUNTED, next = OTHER | LM_TOKEN_COUNTED;
  (void)state;
  lm_strategy *s = intern((lm_desc){ .name = "counted and others" });
  uint8_t id = lm_state_hint(counted), other = lm_state_hint(OTHER);
  uint32_t bin = lm_pool_bin(s, LM_CLASSES - 1);
  void *p = lm_tcache_take(t, bin, counted, &id), *first = take_counted(bin, counted);
  const lm_palette *palette = lm_state_palette(lm_map_span_of(p)->cells);
  uint32_t slot = lm_map_slot((void *)lm_map_span_of(p)->start);
  for (uint32_t i = 0; i < lm_central_span_slots(lm_tcache_bin_class(bin)); i++)
    assert_int_equal(lm_map_span(slot + i)->token, counted);
  void *plain = lm_tcache_take(t, bin, OTHER, &other);
  assert_null(palette->wide);
  void *later = lm_tcache_take(t, bin, next, &id), *again = take_counted(bin, next);
  assert_non_null(palette->wide);
  expect_token(p, counted);
  expect_token(first, counted);
  expect_token(plain, OTHER);
  expect_token(later, next);
  assert_true(lm_pool_retoken(later, next, counted));
  assert_true(lm_pool_retoken(first, counted, next));
  assert_true(lm_pool_retoken(plain, OTHER, counted));
  expect_token(first, next);
  expect_token(later, counted);
  expect_token(plain, counted);
  lm_central *store = &lm_pool_of(s)->central[lm_tcache_bin_class(bin)];
  assert_true(lm_central_detach(store, slot, lm_tcache_bin_offset(0, lm_tcache_bin_class(bin))));
  lm_central_reattach(store, slot);
  assert_true(lm_pool_is_valid());
  assert_true(give_counted(later, LM_STATE_COUNTED) && give_counted(plain, LM_STATE_COUNTED));
  assert_false(give_counted(plain, LM_STATE_COUNTED) || give_counted(plain, LM_STATE_COUNTED_WIDE));
  assert_false(give_counted(first, LM_STATE_COUNTED));
  assert_true(give_counted(first, LM_STATE_COUNTED_WIDE));
  expect_owner(again, next);
  expect_owner(p, counted);
  void *anew = take_counted(bin, counted);
  assert_int_equal(*cell_of(anew), LM_STATE_COUNTED);
  expect_owner(anew, counted);
}

/* The counted token of a span ends with the span. */
static void forgets_the_counted_token_with_the_span(void **state) {
  (void)state;
  lm_strategy *s = intern((lm_desc){ .name = "counted, again" });
  uint32_t bin = lm_pool_bin(s, LM_CLASSES - 1);
  for (lm_token i = 0; i < 3; i++) {
    const lm_token token = (TOKEN + i) | LM_TOKEN_COUNTED;
    uint8_t id = lm_state_hint(token);
    void *p = lm_tcache_take(t, bin, TOKEN, &id);
    assert_int_equal(lm_map_span_of(p)->token, LM_TOKEN_NONE);
    void *q = lm_tcache_take(t, bin, token, &id);
    assert_int_equal(lm_map_span_of(q)->token, token);
    expect_owner(p, TOKEN);
    expect_owner(q, token);
    lm_sweep_trim();
  }
}

/* If the items of two bins were on one cache line, two threads could write that line at every
 * malloc and free. */
static void keeps_the_items_of_each_bin_on_lines_of_their_own(void **state) {
  (void)state;
  for (unsigned c = 0; c < LM_CLASSES_ALL; c++) {
    size_t size = c < LM_CLASSES ? lm_class_size(c) : lm_class_slots(c) * LM_SLOT;
    const lm_bin *bin = lm_tcache_bin_at(t, lm_pool_bin(lm_strategy_at(0), c));
    void *p[40];
    int n = c < LM_CLASSES ? (int)LM_COUNT(p) : 4;
    for (int i = 0; i < n; i++) p[i] = take(lm_strategy_at(0), size, 16);
    for (int i = 0; i < n; i++) {
      release(p[i]);
      if (!lm_tcache_bin_is_open(bin) && c >= LM_CLASS_SKEWED) continue;
      assert_true(lm_tcache_is_sentinel(bin->low - 1));
      assert_int_equal((uintptr_t)(bin->low - 1) % LM_CACHE_LINE, 0);
      assert_int_equal(lm_metadata_size(bin->low - 1) % LM_CACHE_LINE, 0);
    }
  }
}

/* Guarded and zeroed memory, and memory of other kinds, takes the slow path. */
static void has_no_bins_for_what_must_be_looked_at(void **state) {
  (void)state;
  assert_int_equal(lm_pool_bin(intern((lm_desc){ .guard = 1 }), 0), 0);
  assert_int_equal(lm_pool_bin(intern((lm_desc){ .zero = true }), 0), 0);
  assert_int_equal(lm_pool_bin(intern((lm_desc){ .kind = LM_KIND_SYSTEM }), 0), 0);
  assert_int_equal(lm_pool_bin(intern((lm_desc){ .align = 8192 }), 0), 0);
}

static void gives_each_object_to_one_caller(void **state) {
  (void)state;
  enum { N = 20000 };
  static unsigned *held[N];
  static size_t size[N];
  for (int step = 0; step < 400000; step++) {
    unsigned i = chance(&seed, N);
    if (held[i]) {
      size_t last = size[i] / sizeof(unsigned) - 1;
      assert_true(held[i][0] == i && held[i][last] == i);
      if (chance(&seed, 2))
        assert_true(lm_tcache_give(t, held[i]) || release(held[i]) == LM_FREE_DONE);
      else assert_int_equal(release(held[i]), LM_FREE_DONE);
      held[i] = NULL;
      continue;
    }
    size[i] = chance(&seed, 100) ? 4 + chance(&seed, 2000) : 30000 + chance(&seed, 200000);
    held[i] = take(lm_strategy_at(0), size[i], 16);
    held[i][size[i] / sizeof(unsigned) - 1] = i;
    held[i][0] = i;
  }
  assert_true(lm_pool_is_valid());
  for (int i = 0; i < N; i++)
    if (held[i]) assert_int_equal(release(held[i]), LM_FREE_DONE);
}

static ptrdiff_t room_of(uint32_t offset) {
  const lm_bin *bin = lm_tcache_bin_at(t, offset);
  return bin->high - bin->low;
}

static void a_bin_is_narrow_while_all_is_freed(void **state) {
  (void)state;
  enum { MANY = 40000 };
  lm_strategy *s = intern((lm_desc){ .name = "all freed" });
  uint32_t bin = lm_pool_bin(s, lm_class_of(48));
  void **p = malloc(MANY * sizeof *p);
  assert_non_null(p);
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < MANY; i++) assert_non_null(p[i] = lm_tcache_take(t, bin, TOKEN, &hint));
    ptrdiff_t wide = room_of(bin);
    for (int i = 0; i < MANY; i++) assert_int_equal(release(p[i]), LM_FREE_DONE);
    assert_true(room_of(bin) > 0 && room_of(bin) < wide);
    assert_true(lm_pool_is_valid());
  }
  free(p);
}

/* A bin stays narrow where a thread only frees objects that others allocated, and becomes wider
 * where it allocates too. */
static void a_bin_is_narrow_where_objects_only_come_in(void **state) {
  (void)state;
  enum { MANY = 2000 };
  static void *p[MANY];
  lm_strategy *s = intern((lm_desc){ .name = "only in" });
  lm_pool *pool = lm_pool_for(s);
  uint32_t bin = lm_pool_bin(s, lm_class_of(1024));
  for (int i = 0; i < MANY; i++) assert_non_null(p[i] = lm_tcache_take(t, bin, TOKEN, &hint));
  lm_tcache_flush(pool, &lm_tcache_of(t)->pool[lm_tcache_bin_place(bin)]);
  for (int i = 0; i < MANY / 2; i++) assert_int_equal(release(p[i]), LM_FREE_DONE);
  assert_in_range(room_of(bin), 15, 31);
  lm_tcache_flush(pool, &lm_tcache_of(t)->pool[lm_tcache_bin_place(bin)]);
  for (int i = 0; i < 20; i++) assert_non_null(p[i] = lm_tcache_take(t, bin, TOKEN, &hint));
  assert_int_equal(room_of(bin), 31);
  for (int i = 0; i < 20; i++) assert_int_equal(release(p[i]), LM_FREE_DONE);
  for (int i = MANY / 2; i < MANY; i++) assert_int_equal(release(p[i]), LM_FREE_DONE);
  assert_int_equal(room_of(bin), 63);
  assert_true(lm_pool_is_valid());
}

static void a_closed_bin_opens_for_what_is_freed_whatever_its_size(void **state) {
  (void)state;
  static const size_t sizes[] = { 16, 1024, 32768, LM_SMALL_MAX };
  lm_strategy *s = intern((lm_desc){ .name = "opens" });
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    uint32_t bin = lm_pool_bin(s, lm_class_of(sizes[i]));
    void *p = lm_tcache_take(t, bin, TOKEN, &hint);
    assert_non_null(p);
    lm_tcache_flush(lm_pool_for(s), &lm_tcache_of(t)->pool[lm_tcache_bin_place(bin)]);
    lm_tcache_of(t)->pool[lm_tcache_bin_place(bin)].drawn = 0;
    assert_int_equal(room_of(bin), 0);
    assert_int_equal(release(p), LM_FREE_DONE);
    assert_true(room_of(bin) > 0);
  }
}

static void distinguishes_bad_frees(void **state) {
  (void)state;
  static const size_t sizes[] = { 16, 48, 1000, 32768, 40000, 3 * LM_MIB };
  lm_object o;
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    char *p = take(lm_strategy_at(0), sizes[i], 16);
    for (size_t offset = 1; offset < sizes[i]; offset += 1 + sizes[i] / 97) {
      assert_false(lm_tcache_give(t, p + offset));
      assert_int_equal(lm_pool_free(t, p + offset, &o), LM_FREE_INTERIOR);
      assert_true(o.base == p && o.token == TOKEN);
    }
    assert_true(lm_pool_find(p, &o));
    assert_int_equal(release(p), LM_FREE_DONE);
    assert_false(lm_tcache_give(t, p));
    assert_int_equal(release(p), LM_FREE_DOUBLE);
    assert_false(lm_pool_find(p, &o));
  }
  int local;
  assert_false(lm_tcache_give(t, &local));
  assert_int_equal(release(&local), LM_FREE_FOREIGN);
  assert_int_equal(release((void *)8), LM_FREE_FOREIGN);
  assert_int_equal(release((void *)UINTPTR_MAX), LM_FREE_FOREIGN);
  void *own = lm_metadata_alloc(100);
  assert_false(lm_tcache_give(t, own));
  assert_int_equal(release(own), LM_FREE_FOREIGN);
  lm_metadata_free(own);
}

static void knows_a_double_free_after_the_span_is_gone(void **state) {
  (void)state;
  enum { N = 3000 };
  static void *p[N];
  for (int i = 0; i < N; i++) p[i] = take(lm_strategy_at(0), 9000, 16);
  for (int i = 0; i < N; i++) assert_int_equal(release(p[i]), LM_FREE_DONE);
  for (int i = 0; i < N; i++) {
    assert_false(lm_tcache_give(t, p[i]));
    assert_int_equal(release(p[i]), LM_FREE_DOUBLE);
  }
}

/* A bad free is refused also when the bin is full. An object whose bin has room is left alone: the
 * fast path may have refused it because its span was moving to another pool. */
static void gives_to_a_full_bin_what_lives_and_nothing_else(void **state) {
  (void)state;
  enum { N = 5000 };
  static void *p[N];
  int full = 0;
  for (int i = 0; i < N; i++) p[i] = take(lm_strategy_at(0), 48, 16);
  lm_located met;
  assert_int_equal(release(p[0]), LM_FREE_DONE);
  assert_true(lm_tcache_locate(p[1], &met));
  assert_false(lm_tcache_give_full(t, p[1], met));
  for (int i = 1; i < N; i++) {
    lm_located refused;
    if (lm_tcache_give(t, p[i])) continue;
    assert_true(lm_tcache_locate(p[i], &refused));
    assert_true(lm_tcache_give_full(t, p[i], refused));
    assert_false(lm_tcache_give_full(t, p[i], refused));
    full++;
  }
  assert_in_range(full, 1, N / 2);
  for (int i = 0; i < N; i++) assert_int_equal(release(p[i]), LM_FREE_DOUBLE);
}

static void leaves_counted_tokens_to_the_slow_path(void **state) {
  (void)state;
  uint32_t bin = lm_pool_bin(lm_strategy_at(0), 0);
  void *p = lm_tcache_take(t, bin, TOKEN | LM_TOKEN_COUNTED, &hint);
  assert_false(lm_tcache_give(t, p));
  lm_object o;
  assert_int_equal(lm_pool_free(t, p, &o), LM_FREE_DONE);
  assert_int_equal(o.token, TOKEN | LM_TOKEN_COUNTED);
}

static void changes_the_owner_of_a_live_object_only(void **state) {
  (void)state;
  static const size_t sizes[] = { 100, 100000 };
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    void *p = take(lm_strategy_at(0), sizes[i], 16);
    lm_object o;
    assert_false(lm_pool_retoken(p, OTHER, TOKEN));
    assert_true(lm_pool_retoken(p, TOKEN, OTHER));
    assert_true(lm_pool_find(p, &o) && o.token == OTHER);
    release(p);
    assert_false(lm_pool_retoken(p, OTHER, TOKEN));
  }
}

typedef struct tally {
  size_t blocks, bytes;
} tally;

static void count(void *ctx, const lm_object *o) {
  tally *sum = ctx;
  if (o->token != OTHER) return;
  sum->blocks++;
  sum->bytes += o->size;
}

static void walks_exactly_what_is_live(void **state) {
  (void)state;
  enum { N = 3000 };
  static void *p[N];
  lm_strategy *guarded = intern((lm_desc){ .guard = 7 });
  tally want = { 0 }, got = { 0 };
  bool zeroed;
  for (int i = 0; i < N; i++) {
    size_t size = i % 50 ? chance(&seed, 5000) : chance(&seed, 500000);
    p[i] = lm_pool_alloc(t, i % 3 ? lm_strategy_at(0) : guarded,
                         &(lm_pool_request){ size, 16, OTHER }, &zeroed);
  }
  for (int i = 0; i < N; i += 2) release(p[i]);
  for (int i = 1; i < N; i += 2) {
    lm_object o;
    assert_true(lm_pool_find(p[i], &o));
    want.blocks++;
    want.bytes += o.size;
  }
  lm_walk_each(count, &got);
  assert_int_equal(got.blocks, want.blocks);
  assert_int_equal(got.bytes, want.bytes);
  for (int i = 1; i < N; i += 2) release(p[i]);
  got = (tally){ 0 };
  lm_walk_each(count, &got);
  assert_int_equal(got.blocks, 0);
}

static void grows_and_shrinks_a_large_block_where_it_is(void **state) {
  (void)state;
  lm_object o;
  char *p = take(lm_strategy_at(0), 4 * LM_MIB, 16), *after = take(lm_strategy_at(0), 40000, 16);
  memset(p, 7, 4 * LM_MIB);
  assert_true(lm_pool_resize(p, 100000));
  assert_true(lm_pool_find(p, &o) && o.size == lm_align_up(100000, LM_PAGE));
  assert_true(lm_pool_resize(p, 3 * LM_MIB)); /* into slots that the block gave back before */
  assert_true(lm_pool_find(p + 3 * LM_MIB - 1, &o) && o.base == p && o.size == 3 * LM_MIB);
  for (size_t i = 0; i < 100000; i++) assert_int_equal(p[i], 7);
  assert_false(lm_pool_resize(p, LM_GIB)); /* another block follows, or the region ends */
  assert_false(lm_pool_resize(p, 100));    /* a small object is large enough for 100 bytes */
  assert_false(lm_pool_resize(p + 1, 2 * LM_MIB));
  assert_true(lm_pool_find(p, &o) && o.size == 3 * LM_MIB);
  assert_int_equal(release(p), LM_FREE_DONE);
  assert_false(lm_pool_resize(p, 100));
  release(after);
}

static void resizes_a_small_object_within_its_class(void **state) {
  (void)state;
  void *p = take(lm_strategy_at(0), 1000, 16);
  assert_true(lm_pool_resize(p, 1024));
  assert_true(lm_pool_resize(p, 600));
  assert_false(lm_pool_resize(p, 1025));
  assert_false(lm_pool_resize(p, 512));
  release(p);
}

/* Each block begins at a huge page, so there is a gap after each block. The gaps join the free run
 * too. */
static void blocks_that_were_freed_one_by_one_are_room_for_a_larger_one(void **state) {
  (void)state;
  lm_strategy *s = intern((lm_desc){ .name = "one by one", .huge = LM_HUGE_THP });
  char *p[6];
  int at = 0;
  for (int i = 0; i < 6; i++) p[i] = take(s, 5 * LM_MIB, 16);
  while (at < 4 && (p[at + 1] - p[at] != 6 * LM_MIB || p[at + 2] - p[at + 1] != 6 * LM_MIB)) at++;
  assert_true(at < 4);
  release(p[at]);
  release(p[at + 1]);
  char *larger = take(s, 11 * LM_MIB, 16);
  assert_ptr_equal(larger, p[at]);
  for (int i = 0; i < 6; i++) release(i == at ? larger : i == at + 1 ? NULL : p[i]);
}

/* The region of each block is larger than the block. The spare parts of the regions join the free
 * run too. */
static void blocks_of_regions_with_room_to_spare_are_too(void **state) {
  (void)state;
  enum { N = 8, SIZE = 12 << 20, LARGER = 2 * SIZE };
  lm_strategy *s = intern((lm_desc){ .name = "spare" });
  char *grown = take(s, 64 * LM_MIB, 16), *p[N];
  int at = 0;
  for (int i = 0; i < N; i++) p[i] = take(s, SIZE, 16);
  while (at < N - 1 && (p[at + 1] <= p[at] + SIZE || p[at + 1] > p[at] + SIZE * 3 / 2)) at++;
  assert_true(at < N - 1);
  release(p[at]);
  release(p[at + 1]);
  char *larger = take(s, LARGER, 16);
  assert_ptr_equal(larger, p[at]);
  release(grown);
  for (int i = 0; i < N; i++) release(i == at ? larger : i == at + 1 ? NULL : p[i]);
}

static void gives_back_memory_after_a_peak(void **state) {
  (void)state;
  skip_if_sanitized();
  enum { N = 40 };
  char *p[N];
  size_t before = resident(), size = 8 * LM_MIB;
  for (int i = 0; i < N; i++) memset(p[i] = take(lm_strategy_at(0), size, 16), 1, size);
  assert_true(resident() > before + N * size / 2);
  for (int i = 0; i < N; i++) release(p[i]);
  for (int i = 0; i < 3; i++) lm_sweep_decay();
  assert_true(resident() < before + 100 * LM_MIB);
}

static void gives_back_memory_of_small_objects_after_a_peak(void **state) {
  (void)state;
  skip_if_sanitized();
  enum { N = 1000000, SIZE = 320 };
  static char *p[N];
  size_t before = resident();
  for (int i = 0; i < N; i++) *(p[i] = take(lm_strategy_at(0), SIZE, 16)) = 1;
  assert_true(resident() > before + N * SIZE / 2);
  for (int i = 0; i < N; i++) {
    uint32_t other = chance(&seed, N);
    char *swapped = p[other];
    p[other] = p[i];
    p[i] = swapped;
  }
  for (int i = 0; i < N; i++) assert_true(lm_tcache_give(t, p[i]) || release(p[i]) == LM_FREE_DONE);
  for (int i = 0; i < 3; i++) lm_sweep_decay();
  assert_true(resident() < before + 60 * LM_MIB);
}

/* Runs in a child process, because the limit on the address space is set for a whole process. */
static int exhaust(void *arg) {
  enum { N = 40000 };
  static const size_t sizes[] = { 32768, 100000, 3 * LM_MIB };
  static void *p[N];
  struct rlimit limit = { LM_GIB, LM_GIB };
  (void)arg;
  t = lm_thread_get();
  if (!t || setrlimit(RLIMIT_AS, &limit)) return 1;
  for (int round = 0; round < 6; round++) {
    int n = 0;
    bool zeroed;
    size_t size = sizes[round % LM_COUNT(sizes)];
    while (n < N && (p[n] = lm_pool_alloc(t, lm_strategy_at(0),
                                          &(lm_pool_request){ size, 16, TOKEN }, &zeroed)))
      n++;
    if (n == N || (size_t)n * size < 700 * LM_MIB) return 2;
    while (n-- > 0)
      if (release(p[n]) != LM_FREE_DONE) return 3;
    if (!lm_pool_is_valid()) return 4;
  }
  return 0;
}

static void serves_again_after_running_out(void **state) {
  (void)state;
  skip_if_sanitized();
  assert_int_equal(run_in_child(exhaust, NULL), 0);
}

/* The free pages of spans that have live objects go back once, not again at each tick. */
static void gives_back_free_pages_of_a_span_once(void **state) {
  (void)state;
  enum { N = 8192, EACH = 16 };
  static void *p[N];
  lm_strategy *s = intern((lm_desc){ .kind = LM_KIND_HOST, .align = 16, .name = "once" });
  for (int i = 0; i < N; i++) p[i] = take(s, 1024, 16);
  for (int i = 0; i < N; i++)
    if (i % EACH) release(p[i]);
  lm_sweep_trim();
  assert_true(lm_pool_is_valid());
  long before = lm_sys_calls();
  lm_sweep_trim();
  long again = lm_sys_calls() - before;
  assert_true(again < 16);
  for (int i = 0; i < N; i++)
    if (i % EACH == 0 && i % (2 * EACH)) release(p[i]);
  before = lm_sys_calls();
  lm_sweep_trim();
  assert_true(lm_sys_calls() - before >= N / (2 * EACH)); /* at least one for each freed object */
  for (int i = 0; i < N; i++)
    if (i % (2 * EACH)) assert_non_null(p[i] = take(s, 1024, 16));
  assert_true(lm_pool_is_valid());
  for (int i = 0; i < N; i++) assert_int_equal(release(p[i]), LM_FREE_DONE);
  lm_sweep_trim();
}

static void reports_fresh_memory_as_zero(void **state) {
  (void)state;
  lm_strategy *s = intern((lm_desc){ .name = "fresh" });
  bool zeroed;
  unsigned char *p = lm_pool_alloc(t, s, &(lm_pool_request){ LM_MIB, 16, TOKEN }, &zeroed);
  assert_true(zeroed);
  memset(p, 1, LM_MIB);
  release(p);
  p = lm_pool_alloc(t, s, &(lm_pool_request){ LM_MIB, 16, TOKEN }, &zeroed);
  assert_false(zeroed);
  release(p);
}

static void stays_small_with_many_strategies(void **state) {
  (void)state;
  skip_if_sanitized();
  enum { STRATEGIES = 300, SIZES = 20 };
  size_t before = resident();
  for (int i = 0; i < STRATEGIES; i++) {
    lm_desc desc = { 0 };
    snprintf(desc.name, sizeof desc.name, "idle %d", i);
    lm_strategy *s = intern(desc);
    for (unsigned c = 0; c < SIZES; c++) assert_non_null(take(s, lm_class_size(c), 16));
  }
  /* The bound is half of the pages that each object, its states and its bin would take if they
   * shared no pages. */
  size_t each = (resident() - before) / STRATEGIES;
  print_message("%zu KiB for each strategy with %d small objects\n", each / 1024, SIZES);
  assert_true(each < SIZES * 10 * LM_KIB);
}

/* Allocates and frees a small object, a large block, and an object of a strategy that may be
 * sampled for guards. Returns how many of the three there was memory for. */
static int take_and_free(lm_strategy *s, lm_strategy *sampled) {
  void *p[] = { take(s, 100, 16), take(s, 200000, 16), take(sampled, 100, 16) };
  int n = 0;
  for (size_t i = 0; i < LM_COUNT(p); i++) {
    if (p[i]) assert_int_equal(release(p[i]), LM_FREE_DONE);
    n += p[i] != NULL;
  }
  return n;
}

static lm_strategy *far_plain, *far_sampled;

/* The area of this thread cannot grow, so the thread has no bins of these strategies. Requests are
 * served nevertheless. */
static void *do_without_bins(void *unused) {
  (void)unused;
  lm_thread *mine = t;
  t = lm_thread_get();
  uint32_t used = t->bins_end;
  /* The kernel ignores a limit of 0, as an exception for Valgrind. */
  setrlimit(RLIMIT_DATA, &(struct rlimit){ LM_PAGE, RLIM_INFINITY });
  bool served = take_and_free(far_plain, far_sampled) > 0 && t->bins_end == used;
  setrlimit(RLIMIT_DATA, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY });
  served = served && take_and_free(far_plain, far_sampled) == 3 && t->bins_end > used;
  t = mine;
  return served ? NULL : (void *)1;
}

static void a_thread_is_served_without_memory_for_further_bins(void **state) {
  (void)state;
  skip_if_sanitized();
  enum { PLACES = 40 }; /* they need more bins than can be written at first */
  void *result;
  for (int i = 0; i < PLACES; i++) {
    lm_desc desc = { 0 };
    snprintf(desc.name, sizeof desc.name, "far %d", i);
    far_plain = intern(desc);
    assert_int_equal(take_and_free(far_plain, far_plain), 3);
  }
  far_sampled = intern((lm_desc){ .name = "far, sampled", .guard = 2 });
  assert_int_equal(take_and_free(far_sampled, far_sampled), 3);
  pthread_join(start_thread(do_without_bins, NULL), &result);
  assert_null(result);
}

static void serves_prepared_memory_or_nothing(void **state) {
  (void)state;
  static const lm_desc descs[] = {
    { .huge = LM_HUGE_THP },
    { .huge = LM_HUGE_NEVER },
    { .huge = LM_HUGE_2MIB },
    { .huge = LM_HUGE_1GIB },
    { .prefault = true },
    { .lock = true },
    { .huge = LM_HUGE_2MIB, .guard = 1 },
    { .lock = true, .guard = 1 },
    { .placement = { .mode = LM_BIND_BIND, .nodes = 1 } },
    { .placement = { .mode = LM_BIND_LOCAL } },
  };
  static const size_t sizes[] = { 100, 50000, 3 * LM_MIB };
  for (size_t d = 0; d < LM_COUNT(descs); d++)
    for (size_t i = 0; i < LM_COUNT(sizes); i++) {
      char *p = take(intern(descs[d]), sizes[i], 16);
      if (!p) continue;
      memset(p, 1, sizes[i]);
      assert_int_equal(release(p), LM_FREE_DONE);
    }
}

static size_t in_regions(void) {
  lm_pool_figures figures;
  lm_pool_figures_get(&figures);
  return figures.regions;
}

static void gives_prepared_memory_back_to_the_range(void **state) {
  (void)state;
  enum { N = 20 };
  char *p[N];
  lm_strategy *s = intern((lm_desc){ .prefault = true, .name = "back" });
  size_t before = in_regions();
  for (int i = 0; i < N; i++) p[i] = take(s, LM_MIB, 16);
  assert_int_equal(in_regions(), before + N * LM_MIB);
  for (int i = 0; i < N; i++) assert_int_equal(release(p[i]), LM_FREE_DONE);
  assert_true(in_regions() <= before + 4 * LM_MIB);
}

static void refuses_locked_memory_beyond_the_limit(void **state) {
  (void)state;
  struct rlimit old, none = { 0, 0 };
  if (getuid() == 0) {
    print_message("root may lock without limit\n");
    skip();
  }
  getrlimit(RLIMIT_MEMLOCK, &old);
  none.rlim_max = old.rlim_max;
  setrlimit(RLIMIT_MEMLOCK, &none);
  assert_null(take(intern((lm_desc){ .lock = true, .name = "too much" }), 100, 16));
  setrlimit(RLIMIT_MEMLOCK, &old);
}

static void refuses_what_no_address_space_holds(void **state) {
  (void)state;
  assert_null(take(lm_strategy_at(0), LM_SIZE_MAX, 16));
  assert_null(take(lm_strategy_at(0), LM_SIZE_MAX + 1, 16));
  assert_null(take(lm_strategy_at(0), SIZE_MAX, 16));
  assert_null(take(lm_strategy_at(0), (size_t)2 << 40, 16));
}

static void work(lm_strategy *s) {
  enum { N = 15 };
  static const size_t sizes[] = { 16, 900, 32768, 70000, 2 * LM_MIB };
  char *p[N];
  for (int i = 0; i < N; i++) {
    p[i] = take(s, sizes[i % LM_COUNT(sizes)], i % 7 ? 16 : 65536 * 4);
    if (p[i]) p[i][0] = 1;
    char *q = p[i] ? lm_pool_move(p[i], 3 * sizes[i % LM_COUNT(sizes)]) : NULL;
    if (q) p[i] = q;
  }
  for (int i = 0; i < N; i++)
    if (p[i]) assert_int_equal(release(p[i]), LM_FREE_DONE);
}

static void stays_whole_when_any_system_call_is_refused(void **state) {
  (void)state;
  static const lm_desc kinds[] = {
    { .align = 0 }, { .guard = 1 }, { .huge = LM_HUGE_THP }, { .prefault = true }
  };
  for (size_t k = 0; k < LM_COUNT(kinds); k++) {
    long calls = 1;
    for (long nth = 1; nth <= calls + 2; nth++) {
      lm_desc desc = kinds[k];
      snprintf(desc.name, sizeof desc.name, "refused %ld", nth % 8);
      long before = lm_sys_calls();
      lm_sys_refuse(nth);
      work(intern(desc));
      lm_sys_refuse(0);
      calls = lm_sys_calls() - before;
      assert_true(lm_pool_is_valid());
    }
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, check_laws)
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(serves_again_after_running_out), /* first, while the process has no range */
    TEST(stays_small_with_many_strategies), /* early, before other tests leave free memory */
    TEST(serves_any_size_at_any_alignment),
    TEST(a_long_free_lets_the_next_reach_the_range),
    TEST(what_a_bin_is_filled_with_is_reached),
    TEST(rounds_a_large_block_to_pages_only),
    TEST(a_strategy_raises_the_alignment),
    TEST(a_decision_meets_common_tokens_and_those_of_a_span),
    TEST(a_span_with_a_counted_token_gets_another),
    TEST(forgets_the_counted_token_with_the_span),
    TEST(keeps_the_items_of_each_bin_on_lines_of_their_own),
    TEST(has_no_bins_for_what_must_be_looked_at),
    TEST(gives_each_object_to_one_caller),
    TEST(a_bin_is_narrow_while_all_is_freed),
    TEST(a_bin_is_narrow_where_objects_only_come_in),
    TEST(a_closed_bin_opens_for_what_is_freed_whatever_its_size),
    TEST(distinguishes_bad_frees),
    TEST(knows_a_double_free_after_the_span_is_gone),
    TEST(gives_to_a_full_bin_what_lives_and_nothing_else),
    TEST(leaves_counted_tokens_to_the_slow_path),
    TEST(changes_the_owner_of_a_live_object_only),
    TEST(walks_exactly_what_is_live),
    TEST(grows_and_shrinks_a_large_block_where_it_is),
    TEST(resizes_a_small_object_within_its_class),
    TEST(blocks_that_were_freed_one_by_one_are_room_for_a_larger_one),
    TEST(blocks_of_regions_with_room_to_spare_are_too),
    TEST(gives_back_memory_after_a_peak),
    TEST(gives_back_memory_of_small_objects_after_a_peak),
    TEST(gives_back_free_pages_of_a_span_once),
    TEST(reports_fresh_memory_as_zero),
    TEST(a_thread_is_served_without_memory_for_further_bins),
    TEST(serves_prepared_memory_or_nothing),
    TEST(gives_prepared_memory_back_to_the_range),
    TEST(refuses_locked_memory_beyond_the_limit),
    TEST(refuses_what_no_address_space_holds),
    TEST(stays_whole_when_any_system_call_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
