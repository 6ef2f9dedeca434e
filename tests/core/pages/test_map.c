/* test_map.c - the page map: from addresses to slots, entries and objects, and back. */
#include "chance.h"
#include "heap/central.h"
#include "heap/pool.h"
#include "pages/range.h"
#include "pages/states.h"
#include "test.h"

static uint64_t seed = 1;

static void check_key(unsigned c, uint32_t bin) {
  size_t size = lm_class_size(c), bytes = (size_t)lm_central_span_slots(c) << LM_SLOT_SHIFT;
  uint64_t key = lm_map_key(size, bin);
  assert_int_equal(lm_map_key_bin(key), bin);
  assert_false(lm_map_is_large(key));
  for (size_t offset = 0; offset < bytes; offset++) {
    unsigned __int128 product = (unsigned __int128)offset * key;
    bool exact = (uint64_t)product < key;
    if ((size_t)(product >> 64) != offset / size || exact != (offset % size == 0))
      fail_msg("class %u, bin %u, offset %zu", c, bin, offset);
  }
}

static void multiplies_to_exact_indices_at_every_offset(void **state) {
  (void)state;
  for (unsigned c = 0; c < LM_CLASSES; c++) {
    check_key(c, 0);
    check_key(c, LM_MAP_KEY_LOW - 1);
  }
}

static void an_address_gives_its_entry_and_an_entry_its_slot(void **state) {
  (void)state;
  uint32_t slot = lm_range_take(3, LM_SLOT);
  for (uint32_t at = slot; at < slot + 3; at++) {
    const char *last = (const char *)lm_map_address(at) + LM_SLOT - 1;
    assert_ptr_equal(lm_map_span_of(last), lm_map_span(at));
    assert_ptr_equal(lm_map_span_of(lm_map_address(at)), lm_map_span(at));
    assert_int_equal(lm_map_slot_of(lm_map_span(at)), at);
    assert_int_equal(lm_map_slot(last), at);
  }
  lm_range_put(slot, 3);
}

/* Every address of the range has an entry. So the fast path of free need not know how far the range
 * is described. */
static void every_address_of_a_whole_range_has_an_entry(void **state) {
  (void)state;
  uint32_t slot = lm_range_take(1, LM_SLOT);
  const char *first = (const char *)lm_map.base, *end = first + LM_RANGE, *handed;
  const lm_span *s;
  if (!lm_map.reach) skip(); /* the address space is short */
  handed = lm_map_address(slot);
  assert_int_equal(lm_map.size, LM_RANGE);
  const char *inside[] = { first, first + LM_SLOT - 1, handed, end - LM_SLOT, end - 1 };
  for (size_t i = 0; i < LM_COUNT(inside); i++) {
    assert_true(lm_map_span_in(lm_map.reach, inside[i], &s));
    assert_ptr_equal(s, lm_map_span_of(inside[i]));
  }
  assert_int_equal(lm_map_span_of(end - 1)->key, 0);
  const void *outside[] = { NULL, first - 1, end, &slot, (void *)UINTPTR_MAX, (void *)4096 };
  for (size_t i = 0; i < LM_COUNT(outside); i++) {
    assert_false(lm_map_span_in(lm_map.reach, outside[i], &s));
    assert_false(lm_map_span_in(LM_REACH_NONE, outside[i], &s));
  }
  for (size_t i = 0; i < LM_COUNT(inside); i++)
    assert_false(lm_map_span_in(LM_REACH_NONE, inside[i], &s));
  lm_range_put(slot, 1);
}

/* Checks that each slot with a byte of a large block leads to the block, and that no other slot
 * does. */
static void check_large(uint32_t slot, uint32_t slots, size_t size) {
  lm_map_object place;
  char *base = lm_map_address(slot);
  for (uint32_t i = 0; i < slots; i++) {
    char *p = base + ((size_t)i << LM_SLOT_SHIFT) + chance(&seed, LM_SLOT);
    bool inside = (size_t)(p - base) < size;
    assert_int_equal(lm_map_find(p, &place), inside);
    if (!inside) continue;
    assert_ptr_equal(place.base, base);
    assert_int_equal(place.size, size);
    assert_int_equal(place.token, 77);
    assert_ptr_equal(lm_map_span_of_state(place.cell), lm_map_span(slot));
  }
}

static void describe(uint32_t slot, uint32_t slots, size_t size) {
  lm_span *head = lm_map_span(slot);
  head->token = 77;
  head->cell = LM_STATE_LIVE + LM_ID_WIDE;
  lm_span_info view = { (uintptr_t)lm_map_address(slot), 0, &head->cell, 0, 5, size };
  lm_map_describe_large(slot, slots, &view);
}

static void finds_a_large_block_from_any_byte(void **state) {
  (void)state;
  uint32_t room = 1200, first = lm_range_take(room, LM_SLOT);
  for (int i = 0; i < 500; i++) {
    uint32_t at = first + chance(&seed, 200), slots = 1 + chance(&seed, 900);
    size_t size = ((size_t)slots << LM_SLOT_SHIFT) - chance(&seed, LM_SLOT);
    describe(at, slots, size);
    check_large(at, slots, size);
    uint32_t other = 1 + chance(&seed, 900);
    size_t other_size = ((size_t)other << LM_SLOT_SHIFT) - chance(&seed, LM_SLOT);
    lm_map_resize_large(at, slots, other, other_size);
    check_large(at, other, other_size);
    lm_map_forget_large(at, other);
    lm_map_object place;
    for (uint32_t s = first; s < first + room; s++)
      assert_false(lm_map_find(lm_map_address(s), &place));
  }
  lm_range_put(first, room);
}

/* The fast path of free takes an address as the start of a block if its entry has a key. So only
 * the start of a large block may have one. */
static void only_the_start_of_a_large_block_has_a_key(void **state) {
  (void)state;
  enum { SLOTS = 37, BIN = 4096 };
  uint32_t slot = lm_range_take(SLOTS, LM_SLOT);
  lm_span *head = lm_map_span(slot);
  size_t size = SLOTS * LM_SLOT;
  lm_span_info view = { (uintptr_t)lm_map_address(slot), BIN, &head->cell, BIN, 5, size };
  lm_map_describe_large(slot, SLOTS, &view);
  assert_int_equal(head->key, BIN);
  assert_true(lm_map_is_large(head->key));
  for (uint32_t i = 1; i < SLOTS; i++) assert_int_equal(lm_map_span(slot + i)->key, 0);
  lm_map_resize_large(slot, SLOTS, SLOTS - 1, size - LM_SLOT);
  for (uint32_t i = 0; i < SLOTS; i++) assert_int_equal(lm_map_span(slot + i)->key, 0);
  lm_map_forget_large(slot, SLOTS - 1);
  lm_range_put(slot, SLOTS);
}

static void finds_each_of_two_neighbours(void **state) {
  (void)state;
  uint32_t first = lm_range_take(64, LM_SLOT);
  for (uint32_t cut = 1; cut < 64; cut++) {
    size_t left = (size_t)cut << LM_SLOT_SHIFT, right = (size_t)(64 - cut) << LM_SLOT_SHIFT;
    describe(first, cut, left);
    describe(first + cut, 64 - cut, right);
    check_large(first, cut, left);
    check_large(first + cut, 64 - cut, right);
    lm_map_forget_large(first, cut);
    lm_map_forget_large(first + cut, 64 - cut);
  }
  lm_range_put(first, 64);
}

static void knows_nothing_of_other_addresses(void **state) {
  (void)state;
  lm_map_object place;
  int local;
  assert_false(lm_map_find(NULL, &place));
  assert_false(lm_map_find(&local, &place));
  assert_false(lm_map_find((void *)(lm_map.base - 1), &place));
  assert_false(lm_map_find((void *)(lm_map.base + lm_map.size - 1), &place));
  assert_false(lm_map_find((void *)UINTPTR_MAX, &place));
}

/* A thread that reads a span while the span ends may read states of another span. Here it finds a
 * state which looks as if a token were being replaced, and a wide table that does not exist. If the
 * thread trusted them, it would wait for ever or follow a wild pointer. */
static void states_of_a_span_that_ended_are_not_followed(void **state) {
  (void)state;
  static struct {
    lm_palette palette;
    lm_state_cell cells[64];
  } states;
  static lm_span span;
  static _Atomic(lm_token) table[64];
  lm_token token = 0;
  table[2] = 77;
  atomic_store(&span.version, 4);
  atomic_store(&states.cells[1], LM_STATE_BUSY);
  atomic_store(&states.cells[2], LM_STATE_COUNTED_WIDE);
  atomic_store(&states.palette.wide, table);
  assert_int_equal(lm_map_object_state_in(&span, 4, states.cells, 2, &token),
                   LM_STATE_COUNTED_WIDE);
  assert_int_equal(token, 77);
  atomic_store(&states.palette.wide, (void *)(uintptr_t)64);
  for (unsigned i = 1; i <= 2; i++) {
    (void)lm_map_object_state_in(&span, 2, states.cells, i, &token);
    assert_int_equal(token, LM_TOKEN_NONE);
  }
}

static void an_extent_without_a_length_breaks_the_law(void **state) {
  (void)state;
  uint32_t slot = lm_range_take(4, LM_SLOT);
  lm_span *head = lm_map_span(slot);
  assert_true(lm_map_is_valid());
  atomic_store(&head->slots, 0);
  assert_false(lm_map_is_valid());
  atomic_store(&head->slots, (uint32_t)(lm_map.size >> LM_SLOT_SHIFT));
  assert_false(lm_map_is_valid());
  atomic_store(&head->slots, 4);
  assert_true(lm_map_is_valid());
  lm_range_put(slot, 4);
}

static void a_reach_that_is_not_the_base_breaks_the_law(void **state) {
  (void)state;
  uintptr_t reach = lm_map.reach;
  assert_true(lm_map_is_valid());
  lm_map.reach = lm_map.base + LM_SLOT;
  assert_false(lm_map_is_valid());
  lm_map.reach = reach;
  assert_true(lm_map_is_valid());
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(multiplies_to_exact_indices_at_every_offset),
    cmocka_unit_test(an_address_gives_its_entry_and_an_entry_its_slot),
    cmocka_unit_test(every_address_of_a_whole_range_has_an_entry),
    cmocka_unit_test(finds_a_large_block_from_any_byte),
    cmocka_unit_test(only_the_start_of_a_large_block_has_a_key),
    cmocka_unit_test(finds_each_of_two_neighbours),
    cmocka_unit_test(knows_nothing_of_other_addresses),
    cmocka_unit_test(states_of_a_span_that_ended_are_not_followed),
    cmocka_unit_test(an_extent_without_a_length_breaks_the_law),
    cmocka_unit_test(a_reach_that_is_not_the_base_breaks_the_law),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
