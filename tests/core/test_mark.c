/* test_mark - memory for marks: whose tables stand where, and what they are when they come back. */
#include "map.h"
#include "mark.h"
#include "span.h"
#include "test.h"

static lm_side *marks_of(unsigned class_) {
  lm_side *side = lm_marks_new(class_, lm_span_count(class_));
  assert_non_null(side);
  return side;
}

/* A program with a few objects of many sizes pays for few pages. First of all: the slot is new. */
static void the_first_tables_of_all_classes_are_neighbours(void **state) {
  lm_side *side[20];
  (void)state;
  for (unsigned c = 0; c < LM_COUNT(side); c++) {
    side[c] = marks_of(c);
    if (c) assert_in_range((char *)side[c] - (char *)side[c - 1], 1, 6000);
  }
  for (unsigned c = 0; c < LM_COUNT(side); c++) lm_marks_recycle(side[c]);
  assert_true(lm_marks_are_valid());
}

static void expect_unused(lm_side *side, unsigned class_) {
  const lm_palette *palette = lm_mark_palette(side);
  for (uint32_t i = 0; i <= lm_span_count(class_); i++)
    assert_int_equal(atomic_load(&side[i]), LM_MARK_FREE);
  for (int id = 0; id < LM_IDS; id++) assert_int_equal(atomic_load(&palette->owner[id]), LM_NOBODY);
  assert_null(atomic_load(&palette->wide));
}

/* By hundreds, so that they are of slots of their class as well. */
static void a_table_comes_back_as_its_classs_and_unused(void **state) {
  enum { N = 200, CLASSES = 6 };
  static lm_side *side[CLASSES][N];
  (void)state;
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < N; i++)
      for (unsigned c = 0; c < CLASSES; c++) {
        uint8_t hint = lm_mark_hint(7);
        lm_side *s = side[c][i] = marks_of(c);
        expect_unused(s, c);
        assert_int_equal(lm_mark_palette(s)->class_, c);
        atomic_store(&s[1], lm_mark_assign(s, 1, 7, &hint));
        atomic_store(&s[2], lm_mark_assign(s, 2, 7 | LM_TOKEN_SLOW, &hint));
      }
    for (int i = 0; i < N; i++)
      for (unsigned c = 0; c < CLASSES; c++) {
        lm_side *s = side[c][i];
        assert_int_equal(lm_mark_token(s, 1, atomic_load(&s[1])), 7);
        assert_int_equal(lm_mark_token(s, 2, atomic_load(&s[2])), 7 | LM_TOKEN_SLOW);
        lm_marks_recycle(s);
      }
    assert_true(lm_marks_are_valid());
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_first_tables_of_all_classes_are_neighbours),
    cmocka_unit_test(a_table_comes_back_as_its_classs_and_unused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
