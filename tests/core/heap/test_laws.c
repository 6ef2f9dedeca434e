/* test_laws.c - the laws of bins, blocks and strategies hold through their life, and the checks
 * find a broken law. */
#include "cell_of.h"
#include "heap/pool.h"
#include "heap/pools.h"
#include "heap/tcache_slow.h"
#include "test.h"

enum { TOKEN = 2, MANY = 500 };

static lm_thread *t;

static int begin(void **state) {
  (void)state;
  t = lm_thread_get();
  return t ? 0 : -1;
}

static lm_strategy *intern(lm_desc desc) {
  lm_strategy *s;
  assert_int_equal(lm_strategy_intern(&desc, &s), LOAM_OK);
  return s;
}

static void release(void *p) {
  lm_object object;
  assert_int_equal(lm_pool_free(t, p, &object), LM_FREE_DONE);
}

/* ---- Bins */

static uint32_t fill_a_bin(const char *name, void **p, uint32_t n) {
  lm_desc desc = { 0 };
  uint8_t hint = 1;
  for (size_t i = 0; name[i]; i++) desc.name[i] = name[i];
  uint32_t offset = lm_pool_bin(intern(desc), lm_class_of(48));
  for (uint32_t i = 0; i < n; i++) assert_non_null(p[i] = lm_tcache_take(t, offset, TOKEN, &hint));
  return offset;
}

static void a_bin_is_valid_as_it_opens_fills_runs_over_and_closes(void **state) {
  (void)state;
  static void *p[MANY];
  uint32_t offset = fill_a_bin("a valid bin", p, MANY);
  const lm_bin *bin = lm_tcache_bin_at(t, offset);
  assert_true(lm_bin_is_valid(bin) && lm_tcache_bin_is_open(bin));
  for (uint32_t i = 0; i < MANY; i++) {
    release(p[i]);
    assert_true(lm_bin_is_valid(bin));
  }
  lm_pool *pool = lm_pool_of(lm_pool_holder(lm_tcache_bin_place(offset)));
  lm_tcache_flush(pool, &lm_tcache_of(t)->pool[lm_tcache_bin_place(offset)]);
  assert_true(lm_bin_is_valid(bin) && !lm_tcache_bin_is_open(bin));
  assert_true(lm_pool_is_valid());
}

static void a_bin_that_no_decision_names_is_valid(void **state) {
  (void)state;
  lm_bin bin = { .low = NULL };
  assert_true(lm_bin_is_valid(&bin));
}

static void a_bin_with_a_live_object_or_no_sentinel_is_not_valid(void **state) {
  (void)state;
  void *p[1];
  lm_bin *bin = lm_tcache_bin_at(t, fill_a_bin("a broken bin", p, 1));
  lm_cached_object before = bin->low[-1];
  bin->low[-1] = (lm_cached_object){ p[0], cell_of(p[0]) };
  assert_false(lm_bin_is_valid(bin));
  bin->low[-1] = before;
  assert_true(lm_bin_is_valid(bin));
  lm_cached_object *top = lm_tcache_bin_top(bin);
  *top = (lm_cached_object){ p[0], cell_of(p[0]) };
  lm_tcache_bin_set_top(bin, top + 1);
  assert_false(lm_bin_is_valid(bin));
  lm_tcache_bin_set_top(bin, top);
  release(p[0]);
}

static void a_batch_with_a_live_object_or_no_sentinel_is_not_valid(void **state) {
  (void)state;
  static void *p[MANY];
  uint32_t offset = fill_a_bin("a batch", p, MANY), place = lm_tcache_bin_place(offset);
  for (uint32_t i = 0; i < MANY; i++) release(p[i]);
  lm_pool_bins *bins = &lm_tcache_of(t)->pool[place];
  unsigned class_ = lm_tcache_bin_class(offset);
  lm_tcache_batch batch = lm_tcache_bin_close(bins, class_), empty = { NULL, 0 };
  assert_true(batch.n > 0 && lm_tcache_batch_is_valid(&batch) && lm_tcache_batch_is_valid(&empty));
  empty.n = 1;
  assert_false(lm_tcache_batch_is_valid(&empty));
  lm_state_cell live = 0, *cell = batch.array[1].cell;
  assert_false(lm_state_is_cached_at(&live));
  batch.array[1].cell = &live;
  assert_false(lm_tcache_batch_is_valid(&batch));
  batch.array[1].cell = cell;
  batch.array[0].cell = cell;
  assert_false(lm_tcache_batch_is_valid(&batch));
  batch.array[0].cell = NULL;
  assert_true(lm_tcache_batch_is_valid(&batch));
  lm_tcache_batch_return(lm_pool_of(lm_pool_holder(place)), class_, &batch);
  assert_true(lm_pool_is_valid());
}

static void the_bins_of_a_thread_are_in_its_list_once(void **state) {
  (void)state;
  void *p[1];
  uint32_t place = lm_tcache_bin_place(fill_a_bin("a list", p, 1));
  lm_thread_bins *bins = lm_tcache_of(t);
  lm_pool_bins *pool = &bins->pool[place];
  assert_true(pool->listed && lm_thread_bins_is_valid(bins));
  pool->listed = false;
  assert_false(lm_thread_bins_is_valid(bins));
  pool->listed = true;
  uint32_t next = pool->next;
  pool->next = place; /* a cycle in the list */
  assert_false(lm_thread_bins_is_valid(bins));
  pool->next = next;
  pool->large++;
  assert_false(lm_thread_bins_is_valid(bins));
  pool->large--;
  assert_true(lm_thread_bins_is_valid(bins));
  release(p[0]);
}

static void large_blocks_that_come_and_go_leave_the_bins_valid(void **state) {
  (void)state;
  enum { BLOCKS = 40 };
  static void *p[BLOCKS];
  lm_strategy *s = intern((lm_desc){ .name = "large blocks" });
  bool zeroed;
  for (size_t round = 1; round <= 4; round++) {
    for (size_t i = 0; i < BLOCKS; i++) {
      lm_pool_request r = { LM_SMALL_MAX + (i % 4 + round) * LM_SLOT, 16, TOKEN };
      assert_non_null(p[i] = lm_pool_alloc(t, s, &r, &zeroed));
    }
    for (size_t i = 0; i < BLOCKS; i++) release(p[i]);
    assert_true(lm_thread_bins_is_valid(lm_tcache_of(t)));
  }
  lm_tcache_flush_thread(t);
  assert_true(lm_thread_bins_is_valid(lm_tcache_of(t)) && lm_pool_is_valid());
}

/* Returns whether the bins of the calling thread are closed, and leaves an open bin. */
static void *find_closed_bins(void *offset) {
  void *p[20];
  uint8_t hint = 1;
  lm_thread *self = lm_thread_get();
  bool is_closed = !lm_tcache_of(self)->first && lm_thread_bins_is_valid(lm_tcache_of(self)) &&
                   !lm_tcache_bin_is_open(lm_tcache_bin_at(self, *(uint32_t *)offset));
  for (int i = 0; i < 20; i++) p[i] = lm_tcache_take(self, *(uint32_t *)offset, TOKEN, &hint);
  for (int i = 0; i < 20; i++) (void)lm_pool_free(self, p[i], &(lm_object){ 0 });
  bool is_open = lm_tcache_bin_is_open(lm_tcache_bin_at(self, *(uint32_t *)offset));
  return is_closed && is_open && lm_thread_bins_is_valid(lm_tcache_of(self)) ? self : NULL;
}

static void a_thread_finds_the_bins_of_an_ended_one_closed(void **state) {
  (void)state;
  static void *p[1];
  void *first, *second;
  uint32_t offset = fill_a_bin("bins of threads", p, 1);
  release(p[0]);
  pthread_join(start_thread(find_closed_bins, &offset), &first);
  pthread_join(start_thread(find_closed_bins, &offset), &second);
  assert_non_null(first);
  assert_ptr_equal(second, first);
  assert_true(lm_pool_is_valid());
}

/* ---- Central lists */

static void a_central_list_that_miscounts_its_spans_is_not_valid(void **state) {
  (void)state;
  void *p[1];
  uint32_t offset = fill_a_bin("a miscounted list", p, 1);
  lm_pool *pool = lm_pool_of(lm_pool_holder(lm_tcache_bin_place(offset)));
  lm_central *central = &pool->central[lm_tcache_bin_class(offset)];
  assert_true(lm_central_is_valid(central) && lm_pool_is_valid());
  central->empties++;
  assert_false(lm_central_is_valid(central));
  assert_false(lm_pool_is_valid());
  central->empties--;
  assert_true(lm_central_is_valid(central));
  release(p[0]);
}

static void an_offset_says_the_place_and_the_class_of_its_bin(void **state) {
  (void)state;
  for (uint32_t place = 1; place < LM_POOL_PLACES; place += 93)
    for (unsigned c = 0; c < LM_CLASSES_ALL; c++) {
      uint32_t offset = lm_tcache_bin_offset(place, c);
      assert_int_equal(lm_tcache_bin_place(offset), place);
      assert_int_equal(lm_tcache_bin_class(offset), c);
      assert_ptr_equal(lm_tcache_bin_at(t, offset), &lm_tcache_of(t)->pool[place].bin[c]);
    }
}

/* ---- Blocks */

static void the_quarantine_is_valid_as_it_fills_turns_over_and_drains(void **state) {
  (void)state;
  lm_strategy *s = intern((lm_desc){ .name = "guards", .guard = 1 });
  lm_large *large = &lm_pool_for(s)->large;
  bool zeroed;
  for (uint32_t i = 0; i < 3 * MANY; i++) {
    size_t size = 1 + i % 7 * LM_SLOT;
    void *p = lm_pool_alloc(t, s, &(lm_pool_request){ size, 16, TOKEN }, &zeroed);
    assert_true(p && zeroed);
    release(p);
    assert_true(lm_large_is_valid(large));
  }
  assert_true(large->waiting > 0 && large->oldest > 0);
  large->slots++;
  assert_false(lm_large_is_valid(large));
  large->slots--;
  lm_large_drain(large);
  assert_true(lm_large_is_valid(large) && !large->ring && !large->waiting && !large->slots);
}

/* ---- Strategies */

static void strategies_are_valid_whatever_parts_and_limits_they_have(void **state) {
  (void)state;
  lm_strategy *plain = intern((lm_desc){ .name = "limited" });
  lm_strategy *one = intern((lm_desc){ .name = "limited", .limit = LM_MIB });
  lm_strategy *two = intern((lm_desc){ .name = "limited", .limit = 2 * LM_MIB });
  lm_strategy *pinned = intern((lm_desc){ .name = "twins", .kind = LM_KIND_PINNED });
  lm_strategy *twin = lm_strategy_twin(pinned, 0, true);
  assert_true(lm_strategy_is_valid());
  assert_ptr_equal(two->account, one);
  assert_ptr_equal(plain->account, plain);
  assert_ptr_equal(twin->whole, pinned);
  two->account = plain;
  plain->account = one;
  assert_false(lm_strategy_is_valid());
  two->account = one;
  plain->account = plain;
  assert_true(lm_strategy_is_valid());
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_bin_is_valid_as_it_opens_fills_runs_over_and_closes),
    cmocka_unit_test(a_bin_that_no_decision_names_is_valid),
    cmocka_unit_test(a_bin_with_a_live_object_or_no_sentinel_is_not_valid),
    cmocka_unit_test(a_batch_with_a_live_object_or_no_sentinel_is_not_valid),
    cmocka_unit_test(the_bins_of_a_thread_are_in_its_list_once),
    cmocka_unit_test(a_thread_finds_the_bins_of_an_ended_one_closed),
    cmocka_unit_test(large_blocks_that_come_and_go_leave_the_bins_valid),
    cmocka_unit_test(a_central_list_that_miscounts_its_spans_is_not_valid),
    cmocka_unit_test(an_offset_says_the_place_and_the_class_of_its_bin),
    cmocka_unit_test(the_quarantine_is_valid_as_it_fills_turns_over_and_drains),
    cmocka_unit_test(strategies_are_valid_whatever_parts_and_limits_they_have),
  };
  return cmocka_run_group_tests_name("laws", tests, begin, NULL);
}
