/* test_state.c - states and their tokens: the tables of spans, the palettes, the common table. */
#include "heap/central.h"
#include "pages/states.h"
#include "test.h"

static lm_state_cell *cells_of(unsigned class_) {
  lm_state_cell *cells = lm_states_alloc(class_, lm_central_span_count(class_));
  assert_non_null(cells);
  return cells;
}

/* The first tables of all classes are neighbours. So a program with a few objects of many sizes
 * uses few pages. This test runs first, because it needs a new first slot. */
static void the_first_tables_of_all_classes_are_neighbours(void **state) {
  lm_state_cell *cells[20];
  (void)state;
  for (unsigned c = 0; c < LM_COUNT(cells); c++) {
    cells[c] = cells_of(c);
    if (c) assert_in_range((char *)cells[c] - (char *)cells[c - 1], 1, 6000);
  }
  for (unsigned c = 0; c < LM_COUNT(cells); c++) lm_states_free(cells[c]);
  assert_true(lm_states_is_valid());
}

static void expect_unused(lm_state_cell *cells, unsigned class_) {
  const lm_palette *palette = lm_state_palette(cells);
  for (uint32_t i = 0; i <= lm_central_span_count(class_); i++)
    assert_int_equal(atomic_load(&cells[i]), LM_STATE_FREE);
  for (int i = 0; i < LM_PALETTE_TOKENS; i++)
    assert_int_equal(atomic_load(&palette->owner[i]), LM_TOKEN_NONE);
  assert_null(atomic_load(&palette->wide));
}

/* There are hundreds of tables, so that not all of them are cut from the first slot. */
static void a_freed_table_is_taken_again_unused_and_by_its_class(void **state) {
  enum { N = 200, CLASSES = 6 };
  static lm_state_cell *cells[CLASSES][N];
  (void)state;
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < N; i++)
      for (unsigned c = 0; c < CLASSES; c++) {
        uint8_t hint = lm_state_hint(7);
        lm_state_cell *s = cells[c][i] = cells_of(c);
        expect_unused(s, c);
        assert_int_equal(lm_state_palette(s)->class_, c);
        atomic_store(&s[1], lm_states_assign(s, 1, 7, &hint));
        atomic_store(&s[2], lm_states_assign(s, 2, 7 | LM_TOKEN_COUNTED, &hint));
      }
    for (int i = 0; i < N; i++)
      for (unsigned c = 0; c < CLASSES; c++) {
        lm_state_cell *s = cells[c][i];
        assert_int_equal(lm_state_token(s, 1, atomic_load(&s[1])), 7);
        assert_int_equal(lm_state_token(s, 2, atomic_load(&s[2])), 7 | LM_TOKEN_COUNTED);
        lm_states_free(s);
      }
    assert_true(lm_states_is_valid());
  }
}

static lm_state assigned(lm_state_cell *cells, lm_token token) {
  uint8_t hint = lm_state_hint(token);
  lm_state given = lm_states_assign(cells, 1, token, &hint);
  assert_int_equal(lm_state_token(cells, 1, given), token);
  if (given != LM_STATE_LIVE + LM_ID_WIDE) assert_int_equal(given, LM_STATE_LIVE + hint);
  return given;
}

/* There are more tokens than places in the common table and a palette. */
static void the_first_tokens_are_common_to_all_tables(void **state) {
  enum { FROM = 100, MANY = LM_COMMON_TOKENS + LM_PALETTE_TOKENS + 1 };
  (void)state;
  lm_state_cell *one = cells_of(3), *other = cells_of(4);
  int common = 0, in_palette = 0;
  for (lm_token token = FROM; token < FROM + MANY; token++) {
    lm_state given = assigned(one, token);
    if (given <= LM_STATE_COMMON_LAST) {
      assert_int_equal(assigned(other, token), given);
      common++;
    } else if (given < LM_STATE_LIVE + LM_ID_WIDE) {
      assert_int_equal(atomic_load(lm_state_palette_token(other, given)), LM_TOKEN_NONE);
      in_palette++;
    }
  }
  assert_in_range(common, LM_COMMON_TOKENS - 1, LM_COMMON_TOKENS); /* an earlier test took one */
  assert_in_range(in_palette, LM_PALETTE_TOKENS / 2, LM_PALETTE_TOKENS);
  assert_non_null(atomic_load(&lm_state_palette(one)->wide));
  for (lm_token token = FROM; token < FROM + MANY; token++) assigned(one, token);
  assert_null(atomic_load(&lm_state_palette(other)->wide));
  lm_states_free(one);
  lm_states_free(other);
}

static bool is_odd(lm_token token) { return token % 2; }

static unsigned id_of(lm_state_cell *cells, lm_token token) {
  return assigned(cells, token) % LM_STATE_IDS;
}

/* The test first fills all places of the common table. */
static void a_vacant_common_place_takes_another_token(void **state) {
  enum { NEW = 20000 };
  (void)state;
  lm_state_cell *cells = cells_of(3);
  for (lm_token token = 1; token < 4 * LM_COMMON_TOKENS; token++) assigned(cells, token);
  lm_token old[LM_COMMON_TOKENS + 1];
  for (int id = 1; id <= LM_COMMON_TOKENS; id++) old[id] = atomic_load(&lm_state_common[id]);
  uint64_t idle = lm_state_idle_ids(is_odd);
  for (unsigned id = 1; id <= LM_COMMON_TOKENS; id++) {
    assert_int_equal(idle >> id & 1, !is_odd(old[id]));
    assert_int_equal(id_of(cells, old[id]), id);
  }
  lm_state_close_ids(idle);
  assert_true(lm_state_common_is_valid());
  for (unsigned id = 1; id <= LM_COMMON_TOKENS; id++)
    assert_true(id_of(cells, old[id]) == id ? is_odd(old[id]) : !is_odd(old[id]));
  assert_true(id_of(cells, NEW) > LM_COMMON_TOKENS);
  lm_token token = NEW;
  uint64_t first = (uint64_t)1 << lm_state_common_first(token);
  while (!(idle & first)) first = (uint64_t)1 << lm_state_common_first(++token);
  lm_state_vacate_ids(first);
  assert_int_equal(lm_state_vacant_ids(), first);
  assert_true(lm_state_common_is_valid());
  for (unsigned id = 1; id <= LM_COMMON_TOKENS; id++)
    if (!(first >> id & 1)) assert_int_equal(id_of(cells, old[id]), id);
  for (int i = 0; i < 2; i++) assert_int_equal((uint64_t)1 << id_of(cells, token), first);
  assert_int_equal(lm_state_vacant_ids(), 0);
  assert_true(lm_state_common_is_valid());
  assert_true(id_of(cells, token + 1) > LM_COMMON_TOKENS);
  lm_states_free(cells);
}

/* The first counted token of a span has a place in the palette and needs no wide table. It keeps
 * the place when the span gets a wide table for a later token. */
static void the_first_counted_token_has_a_place_in_the_palette(void **state) {
  enum { TOKEN = 7, OTHER = 8 };
  const lm_token counted = TOKEN | LM_TOKEN_COUNTED, later = OTHER | LM_TOKEN_COUNTED;
  (void)state;
  lm_state_cell *s = cells_of(3);
  const lm_palette *palette = lm_state_palette(s);
  uint8_t hint = lm_state_hint(counted);
  assert_true(lm_state_is_plain(lm_states_assign(s, 2, TOKEN, &hint)));
  assert_int_equal(lm_states_assign(s, 1, counted, &hint), LM_STATE_COUNTED);
  assert_true(lm_state_is_live(LM_STATE_COUNTED) && !lm_state_is_plain(LM_STATE_COUNTED));
  assert_int_equal(lm_state_token(s, 1, LM_STATE_COUNTED), counted);
  assert_int_equal(lm_state_token(s, 1, lm_state_when_freed(LM_STATE_COUNTED)), counted);
  assert_null(atomic_load(&palette->wide));
  assert_int_equal(lm_states_assign(s, 1, later, &hint), LM_STATE_COUNTED_WIDE);
  assert_true(lm_state_is_live(LM_STATE_COUNTED_WIDE) && !lm_state_is_plain(LM_STATE_COUNTED_WIDE));
  assert_int_equal(lm_state_token(s, 1, LM_STATE_COUNTED_WIDE), later);
  assert_int_equal(lm_state_token(s, 1, lm_state_when_freed(LM_STATE_COUNTED_WIDE)), later);
  assert_int_equal(lm_states_assign(s, 1, counted, &hint), LM_STATE_COUNTED);
  assert_int_equal(lm_state_token(s, 1, LM_STATE_COUNTED), counted);
  lm_states_free(s);
}

static void a_sampled_state_names_the_token_of_its_id(void **state) {
  enum { TOKEN = 9 };
  (void)state;
  lm_state_cell *s = cells_of(3);
  uint8_t hint = lm_state_hint(TOKEN);
  lm_state plain = lm_states_assign(s, 1, TOKEN, &hint);
  lm_state sampled = LM_STATE_SAMPLED + plain % LM_STATE_IDS;
  assert_true(lm_state_is_sampled(sampled) && lm_state_is_live(sampled));
  assert_false(lm_state_is_plain(sampled) || lm_state_is_counted(sampled));
  assert_int_equal(lm_state_token(s, 1, sampled), TOKEN);
  assert_int_equal(lm_state_when_freed(sampled), lm_state_when_freed(plain));
  assert_int_equal(lm_state_keep_sampled(sampled, plain), sampled);
  assert_int_equal(lm_state_keep_sampled(plain, plain), plain);
  assert_int_equal(lm_state_keep_sampled(sampled, LM_STATE_COUNTED), LM_STATE_COUNTED);
  atomic_store(&s[1], sampled);
  assert_true(lm_states_span_is_valid(s));
  atomic_store(&s[1], LM_STATE_FREE);
  for (int m = 0; m <= UINT8_MAX; m++) {
    int kinds = lm_state_is_free((lm_state)m) + lm_state_is_cached((lm_state)m) +
                lm_state_is_live((lm_state)m);
    assert_int_equal(kinds, 1);
  }
  lm_states_free(s);
}

static void a_state_that_names_no_token_breaks_the_law(void **state) {
  enum { TOKEN = 9 };
  (void)state;
  lm_state_cell *s = cells_of(3);
  uint8_t hint = lm_state_hint(TOKEN);
  assert_true(lm_states_span_is_valid(s));
  atomic_store(&s[1], lm_states_assign(s, 1, TOKEN, &hint));
  atomic_store(&s[2], lm_states_assign(s, 2, TOKEN | LM_TOKEN_COUNTED, &hint));
  atomic_store(&s[3], lm_state_when_freed(atomic_load(&s[1])));
  assert_true(lm_states_span_is_valid(s));
  const lm_state broken[] = { LM_STATE_BUSY,
                              LM_STATE_LIVE + LM_ID_WIDE,
                              LM_STATE_COUNTED_WIDE,
                              LM_STATE_SAMPLED + LM_ID_WIDE,
                              LM_STATE_SAMPLED + LM_ID_COUNTED - 1,
                              LM_STATE_LIVE + LM_ID_COUNTED - 1 };
  for (size_t i = 0; i < LM_COUNT(broken); i++) {
    atomic_store(&s[4], broken[i]);
    assert_false(lm_states_span_is_valid(s));
  }
  atomic_store(&s[4], LM_STATE_FREE);
  uint32_t count = lm_state_palette(s)->count;
  atomic_store(&s[count], LM_STATE_CACHED);
  assert_false(lm_states_span_is_valid(s));
  atomic_store(&s[count], LM_STATE_FREE);
  lm_states_free(s);
}

/* Breaks each part of the law of the common table in turn. */
static void a_common_table_that_breaks_its_law_is_not_valid(void **state) {
  (void)state;
  lm_state_cell *cells = cells_of(3);
  for (lm_token token = 1; token < 4 * LM_COMMON_TOKENS; token++) assigned(cells, token);
  assert_true(lm_state_common_is_valid());
  lm_token token = atomic_exchange(&lm_state_common[0], 5);
  assert_false(lm_state_common_is_valid());
  atomic_store(&lm_state_common[0], token);
  token = atomic_exchange(&lm_state_common[1], 5 | LM_TOKEN_COUNTED);
  assert_false(lm_state_common_is_valid());
  uint64_t closed = atomic_load(&lm_state_closed_ids);
  atomic_store(&lm_state_common[1], LM_TOKEN_NONE);
  atomic_store(&lm_state_closed_ids, closed | 1 << 1);
  assert_false(lm_state_common_is_valid()); /* a closed place is empty */
  atomic_store(&lm_state_common[1], token);
  atomic_store(&lm_state_closed_ids, closed | 1);
  assert_false(lm_state_common_is_valid()); /* place 0 does not exist */
  atomic_store(&lm_state_closed_ids, closed);
  assert_true(lm_state_common_is_valid());
  lm_states_free(cells);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_first_tables_of_all_classes_are_neighbours),
    cmocka_unit_test(a_freed_table_is_taken_again_unused_and_by_its_class),
    cmocka_unit_test(the_first_tokens_are_common_to_all_tables),
    cmocka_unit_test(a_vacant_common_place_takes_another_token),
    cmocka_unit_test(the_first_counted_token_has_a_place_in_the_palette),
    cmocka_unit_test(a_sampled_state_names_the_token_of_its_id),
    cmocka_unit_test(a_state_that_names_no_token_breaks_the_law),
    cmocka_unit_test(a_common_table_that_breaks_its_law_is_not_valid),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
