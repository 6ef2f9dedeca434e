/* test_run.c - sets of free runs, compared with an array that says which slots are free. */
#include <string.h>

#include "chance.h"
#include "pages/range.h"
#include "pages/run.h"
#include "test.h"

enum { ROOM = 4096 };

static struct {
  lm_runs runs;
  uint32_t first;
  bool free[ROOM];
  uint32_t n_free;
} world;

static uint64_t seed = 7;

static void set_free(uint32_t slot, uint32_t slots, bool free) {
  for (uint32_t i = slot - world.first; i < slot - world.first + slots; i++) {
    assert_int_not_equal(world.free[i], free);
    world.free[i] = free;
  }
  world.n_free += free ? slots : -slots;
  assert_int_equal(world.runs.slots, world.n_free);
}

static int begin(void **state) {
  (void)state;
  memset(&world, 0, sizeof world);
  world.first = lm_range_take(ROOM, 2 * LM_MIB);
  lm_runs_init(&world.runs);
  return world.first ? 0 : -1;
}

static void put(uint32_t slot, uint32_t slots) {
  lm_runs_put(&world.runs, slot, slots);
  set_free(slot, slots, true);
}

static void joins_neighbours_whatever_the_order(void **state) {
  (void)state;
  uint32_t at = world.first;
  put(at, 10);
  put(at + 20, 10);
  put(at + 10, 10);
  assert_true(lm_runs_is_valid(&world.runs));
  assert_int_equal(lm_runs_take(&world.runs, 30, LM_SLOT), at);
  assert_int_equal(lm_runs_take(&world.runs, 1, LM_SLOT), 0);
}

static void does_not_join_across_sets(void **state) {
  (void)state;
  lm_runs other = { 0 };
  lm_runs_init(&other);
  lm_runs_put(&world.runs, world.first, 10);
  lm_runs_put(&other, world.first + 10, 10);
  assert_int_equal(lm_runs_take(&world.runs, 11, LM_SLOT), 0);
  assert_int_equal(lm_runs_take(&other, 11, LM_SLOT), 0);
  assert_true(lm_runs_is_valid(&world.runs) && lm_runs_is_valid(&other));
}

static void takes_exactly_what_follows(void **state) {
  (void)state;
  put(world.first + 10, 20);
  assert_false(lm_runs_take_at(&world.runs, world.first + 11, 1)); /* a slot inside the run */
  assert_false(lm_runs_take_at(&world.runs, world.first + 29, 1)); /* the last slot of the run */
  assert_false(lm_runs_take_at(&world.runs, world.first + 10, 21));
  assert_true(lm_runs_take_at(&world.runs, world.first + 10, 5));
  assert_true(lm_runs_take_at(&world.runs, world.first + 15, 15));
  assert_false(lm_runs_take_at(&world.runs, world.first + 30, 1));
}

static void honours_alignment_and_keeps_the_rest(void **state) {
  (void)state;
  put(world.first + 1, ROOM - 1);
  for (size_t align = LM_SLOT; align <= 64 * LM_MIB; align *= 2) {
    uint32_t slot = lm_runs_take(&world.runs, 3, align);
    assert_int_not_equal(slot, 0);
    assert_int_equal((uintptr_t)lm_map_address(slot) % align, 0);
    assert_true(lm_runs_is_valid(&world.runs));
    set_free(slot, 3, false);
  }
}

static void takes_few_from_the_far_end_of_many(void **state) {
  (void)state;
  enum { LENGTH = 129 };
  uint32_t end = world.first + 1 + LENGTH;
  put(world.first + 1, LENGTH);
  for (uint32_t i = 1; i <= 5; i++) /* no slot is left between the runs */
    assert_int_equal(lm_runs_take_last(&world.runs, 17), end - 17 * i);
  assert_true(lm_runs_is_valid(&world.runs));
  assert_int_equal(lm_runs_take(&world.runs, LENGTH - 5 * 17 - 1, LM_SLOT), world.first + 1);
  assert_int_equal(lm_runs_take_last(&world.runs, 1), end - 5 * 17 - 1);
  assert_int_equal(lm_runs_take_last(&world.runs, 1), 0);
  assert_true(lm_runs_is_valid(&world.runs));
}

static void takes_the_longest(void **state) {
  (void)state;
  put(world.first, 5);
  put(world.first + 10, 500);
  put(world.first + 600, 50);
  uint32_t slots;
  assert_int_equal(lm_runs_take_longest(&world.runs, &slots), world.first + 10);
  assert_int_equal(slots, 500);
}

typedef struct piece {
  uint32_t slot, slots;
} piece;

static void agrees_with_the_picture_over_many_steps(void **state) {
  (void)state;
  enum { PIECES = 200 };
  static piece held[PIECES];
  memset(held, 0, sizeof held);
  put(world.first, ROOM);
  for (int step = 0; step < 100000; step++) {
    piece *p = &held[chance(&seed, PIECES)];
    if (p->slots) {
      put(p->slot, p->slots);
      p->slots = 0;
    } else {
      uint32_t want = 1 + (chance(&seed, 4) ? chance(&seed, 8) : chance(&seed, 300));
      size_t align = LM_SLOT << chance(&seed, 6);
      p->slot = lm_runs_take(&world.runs, want, align);
      if (want < 16 && align == LM_SLOT && chance(&seed, 2) && p->slot) {
        lm_runs_put(&world.runs, p->slot, want);
        p->slot = lm_runs_take_last(&world.runs, want);
      }
      if (!p->slot) continue;
      assert_int_equal((uintptr_t)lm_map_address(p->slot) % align, 0);
      p->slots = want;
      set_free(p->slot, want, false);
    }
    if (step % 1000 == 0) assert_true(lm_runs_is_valid(&world.runs));
  }
  for (int i = 0; i < PIECES; i++)
    if (held[i].slots) put(held[i].slot, held[i].slots);
  assert_int_equal(lm_runs_take(&world.runs, ROOM, LM_SLOT), world.first);
}

static void a_broken_tag_breaks_the_law(void **state) {
  (void)state;
  put(world.first + 10, 20);
  lm_span *last = lm_map_span(world.first + 29);
  uint32_t use = atomic_load(&last->use);
  assert_true(lm_runs_is_valid(&world.runs));
  atomic_store(&last->use, LM_USE_NONE);
  assert_false(lm_runs_is_valid(&world.runs));
  atomic_store(&last->use, use);
  world.runs.slots++;
  assert_false(lm_runs_is_valid(&world.runs));
  world.runs.slots--;
  assert_true(lm_runs_is_valid(&world.runs));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(joins_neighbours_whatever_the_order, begin),
    cmocka_unit_test_setup(does_not_join_across_sets, begin),
    cmocka_unit_test_setup(takes_exactly_what_follows, begin),
    cmocka_unit_test_setup(honours_alignment_and_keeps_the_rest, begin),
    cmocka_unit_test_setup(takes_few_from_the_far_end_of_many, begin),
    cmocka_unit_test_setup(takes_the_longest, begin),
    cmocka_unit_test_setup(a_broken_tag_breaks_the_law, begin),
    cmocka_unit_test_setup(agrees_with_the_picture_over_many_steps, begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
