/* test_provided.c - the map of provided blocks, which loam did not cut from its own memory. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "pages/provided.h"

/* The block that the latest put of this thread has replaced. Its size is 0 if no block was
 * replaced. */
static _Thread_local lm_provided old;

static void *at(uintptr_t address) { return (void *)address; }

static void put(uintptr_t base, size_t size, uint32_t token) {
  assert_true(lm_provided_put(&(lm_provided){ .base = at(base), .size = size, .token = token },
                              NULL, &old));
}

static uint32_t count;
static uintptr_t previous;

static void see_in_order(void *ctx, lm_provided *block) {
  (void)ctx;
  assert_true((uintptr_t)block->base > previous);
  previous = (uintptr_t)block->base;
  count++;
}

static uint32_t count_blocks(void) {
  count = 0;
  previous = 0;
  lm_provided_each(see_in_order, NULL);
  return count;
}

static void a_block_is_found_from_any_pointer_into_it(void **state) {
  (void)state;
  static const int handler;
  lm_provided block = {
    .base = at(0x1000), .size = 0x100, .token = 7, .strategy = 3, .handler = &handler
  };
  lm_provided seen;
  assert_true(lm_provided_put(&block, NULL, &old));
  assert_true(lm_provided_find(at(0x1000), &seen));
  assert_memory_equal(&seen, &block, sizeof seen);
  assert_true(lm_provided_find(at(0x10ff), &seen));
  assert_ptr_equal(seen.base, at(0x1000));
  assert_false(lm_provided_find(at(0x1100), &seen));
  assert_false(lm_provided_find(at(0xfff), &seen));
  assert_false(lm_provided_find(NULL, &seen));
  assert_true(lm_provided_take(at(0x1000), &seen, NULL));
  assert_memory_equal(&seen, &block, sizeof seen);
}

static void become(void *ctx, lm_provided *block) { *block = *(const lm_provided *)ctx; }

static void a_block_without_bytes_or_made_above_its_base_is_not_valid(void **state) {
  (void)state;
  lm_provided taken, good = { .base = at(0x1000), .made = at(0x1000), .size = 1 };
  lm_provided empty = good, above = good;
  empty.size = 0;
  above.made = at(0x1010);
  assert_true(lm_provided_put(&good, NULL, &old) && lm_provided_is_valid());
  lm_provided_each(become, &empty);
  assert_false(lm_provided_is_valid());
  lm_provided_each(become, &above);
  assert_false(lm_provided_is_valid());
  lm_provided_each(become, &good);
  assert_true(lm_provided_is_valid() && lm_provided_take(at(0x1000), &taken, NULL));
}

static void only_a_start_is_taken_and_once(void **state) {
  (void)state;
  lm_provided taken = { .token = 99 };
  put(0x1000, 0x100, 7);
  assert_false(lm_provided_take(at(0x1001), &taken, NULL));
  assert_int_equal(taken.token, 99);
  assert_true(lm_provided_take(at(0x1000), &taken, NULL));
  assert_false(lm_provided_take(at(0x1000), &taken, NULL));
  assert_false(lm_provided_find(at(0x1000), &taken));
  assert_int_equal(count_blocks(), 0);
}

static void a_block_at_the_same_start_replaces_the_stale_one(void **state) {
  (void)state;
  lm_provided seen;
  put(0x1000, 0x100, 7);
  put(0x1000, 0x200, 8);
  assert_int_equal(count_blocks(), 1);
  assert_true(lm_provided_take(at(0x1000), &seen, NULL));
  assert_int_equal(seen.token, 8);
  assert_int_equal(seen.size, 0x200);
}

static void add_one(void *ctx, lm_provided *block) { block->token += *(uint32_t *)ctx; }

static void a_walk_may_rewrite_tokens(void **state) {
  (void)state;
  lm_provided seen;
  uint32_t one = 1;
  put(0x1000, 1, 7);
  put(0x2000, 1, 8);
  lm_provided_each(add_one, &one);
  assert_true(lm_provided_take(at(0x1000), &seen, NULL));
  assert_int_equal(seen.token, 8);
  assert_true(lm_provided_take(at(0x2000), &seen, NULL));
  assert_int_equal(seen.token, 9);
}

/* ---- Comparison with an array: slot i may have a block at (i + 1) * 0x100, of size[i] bytes. */

enum { SLOTS = 500, STEPS = 40000 };
static size_t size[SLOTS];

static uintptr_t start_of(size_t slot) { return (slot + 1) * 0x100; }

static void change_slot(size_t slot, size_t new_size) {
  lm_provided taken;
  if (!size[slot]) {
    put(start_of(slot), new_size, (uint32_t)slot);
    size[slot] = new_size;
    return;
  }
  assert_true(lm_provided_take(at(start_of(slot)), &taken, NULL));
  assert_int_equal(taken.size, size[slot]);
  assert_int_equal(taken.token, slot);
  size[slot] = 0;
}

static void look_into_slot(size_t slot, size_t offset) {
  lm_provided seen;
  bool found = lm_provided_find(at(start_of(slot) + offset), &seen);
  assert_int_equal(found, offset < size[slot]);
  if (found) assert_int_equal(seen.token, slot);
}

static void agrees_with_an_array_over_many_random_changes(void **state) {
  (void)state;
  srand(1);
  for (int i = 0; i < STEPS; i++) {
    change_slot((size_t)rand() % SLOTS, (size_t)rand() % 0x100 + 1);
    look_into_slot((size_t)rand() % SLOTS, (size_t)rand() % 0x100);
    if (i % 500 == 0) assert_true(lm_provided_is_valid());
  }
  uint32_t expected = 0;
  for (size_t slot = 0; slot < SLOTS; slot++) expected += size[slot] > 0;
  assert_int_equal(count_blocks(), expected);
  for (size_t slot = 0; slot < SLOTS; slot++)
    if (size[slot]) change_slot(slot, 0);
  assert_int_equal(count_blocks(), 0);
}

static void blocks_that_come_in_order_make_no_list(void **state) {
  (void)state;
  enum { MANY = 200000 };
  int64_t before = lm_sys_clock_ns();
  for (uintptr_t i = 1; i <= MANY; i++) put(i * 16, 16, 2);
  assert_int_equal(count_blocks(),
                   MANY); /* recursive: with a list for a tree, the stack would overflow */
  lm_provided taken;
  for (uintptr_t i = 1; i <= MANY; i++) assert_true(lm_provided_take(at(i * 16), &taken, NULL));
  print_message("%d blocks in and out: %.0f ns each\n", MANY,
                (double)(lm_sys_clock_ns() - before) / MANY);
}

/* ---- Refusals, threads, fork */

static void put_and_take(bool refused) {
  lm_provided block = { .base = at(0x1000), .size = 16 }, taken;
  bool done = lm_provided_put(&block, NULL, &old);
  assert_true(done || refused);
  assert_int_equal(lm_provided_take(at(0x1000), &taken, NULL), done);
}

static void without_memory_a_block_is_refused_and_nothing_changes(void **state) {
  (void)state;
  refuse_each(put_and_take);
  assert_int_equal(count_blocks(), 0);
}

static _Atomic bool stop;

static void *change_own_blocks(void *first) {
  uintptr_t base = (uintptr_t)first;
  lm_provided seen;
  while (!stop) {
    for (uintptr_t i = 0; i < 100; i++)
      if (!lm_provided_put(&(lm_provided){ .base = at(base + i * 64), .size = 64 }, NULL, &old))
        return at(1);
    for (uintptr_t i = 0; i < 100; i++) {
      if (!lm_provided_find(at(base + i * 64 + 63), &seen)) return at(1);
      if (!lm_provided_take(at(base + i * 64), &seen, NULL)) return at(1);
    }
  }
  return NULL;
}

static int use_map(void *unused) {
  (void)unused;
  lm_provided seen;
  lm_provided block = { .base = at(0x10), .size = 16 };
  return lm_provided_put(&block, NULL, &old) && lm_provided_find(at(0x11), &seen) ? 0 : 1;
}

static void children_of_busy_threads_can_use_it(void **state) {
  (void)state;
  pthread_t one = start_thread(change_own_blocks, at(0x100000));
  pthread_t two = start_thread(change_own_blocks, at(0x200000));
  for (int i = 0; i < 50; i++) assert_int_equal(run_in_child(use_map, NULL), 0);
  stop = true;
  void *wrong;
  pthread_join(one, &wrong);
  assert_null(wrong);
  pthread_join(two, &wrong);
  assert_null(wrong);
  assert_int_equal(count_blocks(), 0);
}

static int set_up(void **state) {
  (void)state;
  lm_provided_start();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_block_is_found_from_any_pointer_into_it),
    cmocka_unit_test(a_block_without_bytes_or_made_above_its_base_is_not_valid),
    cmocka_unit_test(only_a_start_is_taken_and_once),
    cmocka_unit_test(a_block_at_the_same_start_replaces_the_stale_one),
    cmocka_unit_test(a_walk_may_rewrite_tokens),
    cmocka_unit_test(agrees_with_an_array_over_many_random_changes),
    cmocka_unit_test(blocks_that_come_in_order_make_no_list),
    cmocka_unit_test(without_memory_a_block_is_refused_and_nothing_changes),
    cmocka_unit_test(children_of_busy_threads_can_use_it),
  };
  return cmocka_run_group_tests_name("provided", tests, set_up, NULL);
}
