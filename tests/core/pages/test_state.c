/* test_state - memory for marks: whose tables stand where, and what they are when they come back.
 * */
#include "heap/central.h"
#include "pages/states.h"
#include "test.h"

static lm_state_cell *marks_of(unsigned class_) {
  lm_state_cell *side = lm_states_alloc(class_, lm_central_span_count(class_));
  assert_non_null(side);
  return side;
}

/* A program with a few objects of many sizes pays for few pages. First of all: the slot is new. */
static void the_first_tables_of_all_classes_are_neighbours(void **state) {
  lm_state_cell *side[20];
  (void)state;
  for (unsigned c = 0; c < LM_COUNT(side); c++) {
    side[c] = marks_of(c);
    if (c) assert_in_range((char *)side[c] - (char *)side[c - 1], 1, 6000);
  }
  for (unsigned c = 0; c < LM_COUNT(side); c++) lm_states_free(side[c]);
  assert_true(lm_states_are_valid());
}

static void expect_unused(lm_state_cell *side, unsigned class_) {
  const lm_palette *palette = lm_state_palette(side);
  for (uint32_t i = 0; i <= lm_central_span_count(class_); i++)
    assert_int_equal(atomic_load(&side[i]), LM_STATE_FREE);
  for (int i = 0; i < LM_PALETTE_TOKENS; i++)
    assert_int_equal(atomic_load(&palette->owner[i]), LM_TOKEN_NONE);
  assert_null(atomic_load(&palette->wide));
}

/* By hundreds, so that they are of slots of their class as well. */
static void a_table_comes_back_as_its_classs_and_unused(void **state) {
  enum { N = 200, CLASSES = 6 };
  static lm_state_cell *side[CLASSES][N];
  (void)state;
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < N; i++)
      for (unsigned c = 0; c < CLASSES; c++) {
        uint8_t hint = lm_state_hint(7);
        lm_state_cell *s = side[c][i] = marks_of(c);
        expect_unused(s, c);
        assert_int_equal(lm_state_palette(s)->class_, c);
        atomic_store(&s[1], lm_states_assign(s, 1, 7, &hint));
        atomic_store(&s[2], lm_states_assign(s, 2, 7 | LM_TOKEN_COUNTED, &hint));
      }
    for (int i = 0; i < N; i++)
      for (unsigned c = 0; c < CLASSES; c++) {
        lm_state_cell *s = side[c][i];
        assert_int_equal(lm_state_token(s, 1, atomic_load(&s[1])), 7);
        assert_int_equal(lm_state_token(s, 2, atomic_load(&s[2])), 7 | LM_TOKEN_COUNTED);
        lm_states_free(s);
      }
    assert_true(lm_states_are_valid());
  }
}

static lm_state assigned(lm_state_cell *side, lm_token token) {
  uint8_t hint = lm_state_hint(token);
  lm_state mark = lm_states_assign(side, 1, token, &hint);
  assert_int_equal(lm_state_token(side, 1, mark), token);
  if (mark != LM_STATE_LIVE + LM_ID_WIDE) assert_int_equal(mark, LM_STATE_LIVE + hint);
  return mark;
}

/* More tokens than are common, and more than a palette holds. */
static void the_first_tokens_are_common_to_all_tables(void **state) {
  enum { FROM = 100, MANY = LM_COMMON_TOKENS + LM_PALETTE_TOKENS + 1 };
  (void)state;
  lm_state_cell *one = marks_of(3), *other = marks_of(4);
  int common = 0, own = 0;
  for (lm_token token = FROM; token < FROM + MANY; token++) {
    lm_state mark = assigned(one, token);
    if (mark <= LM_STATE_COMMON_LAST) {
      assert_int_equal(assigned(other, token), mark);
      common++;
    } else if (mark < LM_STATE_LIVE + LM_ID_WIDE) {
      assert_int_equal(atomic_load(lm_state_palette_token(other, mark)), LM_TOKEN_NONE);
      own++;
    }
  }
  assert_in_range(common, LM_COMMON_TOKENS - 1, LM_COMMON_TOKENS); /* another test has one */
  assert_in_range(own, LM_PALETTE_TOKENS / 2, LM_PALETTE_TOKENS);
  assert_non_null(atomic_load(&lm_state_palette(one)->wide));
  for (lm_token token = FROM; token < FROM + MANY; token++) assigned(one, token);
  assert_null(atomic_load(&lm_state_palette(other)->wide));
  lm_states_free(one);
  lm_states_free(other);
}

static bool is_odd(lm_token token) { return token % 2; }

static unsigned id_of(lm_state_cell *side, lm_token token) {
  return assigned(side, token) % LM_STATE_IDS;
}

/* While the places of common tokens are all taken, as above. */
static void a_common_place_is_anothers_once_it_is_vacant(void **state) {
  enum { NEW = 20000 };
  (void)state;
  lm_state_cell *side = marks_of(3);
  for (lm_token token = 1; token < 4 * LM_COMMON_TOKENS; token++) assigned(side, token);
  lm_token old[LM_COMMON_TOKENS + 1];
  for (int id = 1; id <= LM_COMMON_TOKENS; id++) old[id] = atomic_load(&lm_state_common[id]);
  uint64_t idle = lm_state_idle_ids(is_odd);
  for (unsigned id = 1; id <= LM_COMMON_TOKENS; id++) {
    assert_int_equal(idle >> id & 1, !is_odd(old[id]));
    assert_int_equal(id_of(side, old[id]), id);
  }
  lm_state_close_ids(idle);
  for (unsigned id = 1; id <= LM_COMMON_TOKENS; id++)
    assert_true(id_of(side, old[id]) == id ? is_odd(old[id]) : !is_odd(old[id]));
  assert_true(id_of(side, NEW) > LM_COMMON_TOKENS);
  lm_token token = NEW;
  uint64_t first = (uint64_t)1 << lm_state_common_first(token);
  while (!(idle & first)) first = (uint64_t)1 << lm_state_common_first(++token);
  lm_state_vacate_ids(first);
  assert_int_equal(lm_state_vacant_ids(), first);
  for (unsigned id = 1; id <= LM_COMMON_TOKENS; id++)
    if (!(first >> id & 1)) assert_int_equal(id_of(side, old[id]), id);
  for (int i = 0; i < 2; i++) assert_int_equal((uint64_t)1 << id_of(side, token), first);
  assert_int_equal(lm_state_vacant_ids(), 0);
  assert_true(id_of(side, token + 1) > LM_COMMON_TOKENS);
  lm_states_free(side);
}

/* Neither a table nor another place is needed for it, also once the span has a table. */
static void the_first_counted_token_has_a_place_in_the_palette(void **state) {
  enum { TOKEN = 7, OTHER = 8 };
  const lm_token counted = TOKEN | LM_TOKEN_COUNTED, later = OTHER | LM_TOKEN_COUNTED;
  (void)state;
  lm_state_cell *s = marks_of(3);
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

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_first_tables_of_all_classes_are_neighbours),
    cmocka_unit_test(a_table_comes_back_as_its_classs_and_unused),
    cmocka_unit_test(the_first_tokens_are_common_to_all_tables),
    cmocka_unit_test(a_common_place_is_anothers_once_it_is_vacant),
    cmocka_unit_test(the_first_counted_token_has_a_place_in_the_palette),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
