/* arrays.h - functions that the tests of arrays share: making and printing arrays, and a check that
 * no array is left. */
#ifndef ARRAYS_H
#define ARRAYS_H

#include <stdio.h>
#include <string.h>

#include "array/array.h"
#include "test.h"

static inline loam_site *arrays_site(void) { return loam_site_get("test.array"); }

static inline loam_type *type_of(const char *text) {
  loam_type *type = NULL;
  if (loam_type_parse(text, &type)) fail_msg("%s", loam_error());
  return type;
}

static inline loam_array *new_array(const char *text) {
  loam_type *type = type_of(text);
  loam_array *array = NULL;
  if (loam_array_new(arrays_site(), type, &array)) fail_msg("%s", loam_error());
  loam_type_release(type);
  assert_true(lm_array_is_valid(array));
  return array;
}

/* ---- Views */

static inline loam_array *view_of(const loam_array *array, size_t count, const loam_index *index) {
  loam_array *view = NULL;
  if (loam_array_index(array, count, index, &view)) fail_msg("%s", loam_error());
  assert_true(lm_array_is_valid(view));
  return view;
}

#define VIEW(array, ...)                                                     \
  view_of(array, sizeof((loam_index[]){ __VA_ARGS__ }) / sizeof(loam_index), \
          (loam_index[]){ __VA_ARGS__ })

static inline loam_array *field_of(const loam_array *array, const char *name) {
  loam_array *view = NULL;
  if (loam_array_field(array, name, &view)) fail_msg("%s", loam_error());
  assert_true(lm_array_is_valid(view));
  return view;
}

/* ---- Text */

typedef struct printed {
  char text[16384];
  size_t length;
} printed;

static inline void print_on(void *ctx, const char *text, size_t length) {
  printed *p = ctx;
  assert_true(p->length + length < sizeof p->text);
  memcpy(p->text + p->length, text, length);
  p->length += length;
  p->text[p->length] = 0;
}

static inline void expect_json(const loam_array *array, const char *json) {
  printed p = { .length = 0 };
  assert_int_equal(loam_array_json(array, print_on, &p), LOAM_OK);
  assert_string_equal(p.text, json);
}

/* Compares the type and the values of a view, and releases the view. */
static inline void expect_view(loam_array *view, const char *type, const char *json) {
  assert_string_equal(loam_type_text(loam_array_type(view)), type);
  expect_json(view, json);
  loam_array_release(view);
}

#define EXPECT_ERROR(call, status, words)     \
  do {                                        \
    assert_int_equal(call, status);           \
    assert_string_equal(loam_error(), words); \
  } while (0)

/* ---- Leaks */

static inline void add_live(void *sum, const loam_stats_row *row) {
  if (!strncmp(row->tag, "test.array", 10) || !strncmp(row->tag, "loam.", 5))
    *(uint64_t *)sum += row->live_blocks;
}

static inline void expect_nothing_live(void) {
  uint64_t live = 0;
  assert_int_equal(loam_stats_by(LOAM_BY_TAG, add_live, &live), LOAM_OK);
  assert_int_equal(live, 0);
}

static inline int nothing_is_left(void **state) {
  (void)state;
  expect_nothing_live();
  return 0;
}

#endif
