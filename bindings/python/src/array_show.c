/* array_show.c - a short text of an array's values, for repr(). Long dimensions are cut in their
 * middle, so that the text of an array of any size takes little time. */
#include <stdbool.h>

#include "array.h"

/* Elements at each end of a dimension, fields of a struct, and values of the whole text that are
 * shown; characters of one value. */
enum { ENDS = 3, FIELDS = 8, VALUES = 60, CHARACTERS = 60 };

/* The text so far, NULL after a failure, and how many values may still be shown. */
typedef struct shown {
  PyObject *text;
  int left;
} shown;

static void put(shown *s, PyObject *part) {
  if (s->text && part) PyUnicode_Append(&s->text, part);
  else Py_CLEAR(s->text);
  Py_XDECREF(part);
}

static void put_words(shown *s, const char *words) {
  if (s->text) put(s, PyUnicode_FromString(words));
}

static void show(shown *s, const loam_array *array);

/* Shows a part and releases it. A part that does not exist is a failure. */
static void show_part(shown *s, loam_status status, loam_array *part) {
  if (status) {
    binding_fail(status);
    Py_CLEAR(s->text);
    return;
  }
  show(s, part);
  loam_array_release(part);
}

static void show_row(shown *s, const loam_array *array) {
  Py_ssize_t n = array_length(array);
  if (n < 0) Py_CLEAR(s->text);
  put_words(s, "[");
  for (Py_ssize_t i = 0; i < n && s->text && s->left > 0; i++) {
    loam_array *element = NULL;
    bool is_cut = n > 2 * ENDS && i == ENDS;
    if (is_cut) put_words(s, ", ...");
    if (is_cut) i = n - ENDS;
    if (i) put_words(s, ", ");
    loam_status status = loam_array_index(array, 1, &LOAM_AT(i), &element);
    show_part(s, status, element);
  }
  put_words(s, s->left > 0 ? "]" : ", ...]");
}

static void show_struct(shown *s, const loam_array *array, size_t count) {
  put_words(s, "{");
  for (size_t i = 0; i < count && i < FIELDS && s->text; i++) {
    struct loam_type_field f;
    loam_array *field = NULL;
    if (loam_type_field(loam_array_type(array), i, &f)) break;
    put(s, PyUnicode_FromFormat(i ? ", %s: " : "%s: ", f.name));
    loam_status status = loam_array_field(array, f.name, &field);
    show_part(s, status, field);
  }
  put_words(s, count > FIELDS ? ", ...}" : "}");
}

static void show_target(shown *s, const loam_array *array) {
  loam_array *target = NULL;
  loam_status status = loam_array_follow(array, &target);
  if (status == LOAM_ESTATE) put_words(s, "None");
  else show_part(s, status, target);
}

static void show_value(shown *s, const loam_array *array) {
  PyObject *value = array_value(array), *text = value ? PyObject_Repr(value) : NULL;
  if (text && PyUnicode_GET_LENGTH(text) > CHARACTERS) {
    PyObject *begin = PyUnicode_Substring(text, 0, CHARACTERS);
    Py_DECREF(text);
    text = begin ? PyUnicode_FromFormat("%U...", begin) : NULL;
    Py_XDECREF(begin);
  }
  s->left--;
  put(s, text);
  Py_XDECREF(value);
}

static void show(shown *s, const loam_array *array) {
  struct loam_type_info info;
  if (!s->text || loam_type_info(loam_array_type(array), &info)) return;
  if (array_is_followed(array)) {
    show_target(s, array);
    return;
  }
  switch (info.kind) {
    case LOAM_TYPE_FIXED:
    case LOAM_TYPE_VAR: show_row(s, array); break;
    case LOAM_TYPE_STRUCT: show_struct(s, array, info.count); break;
    default: show_value(s, array);
  }
}

PyObject *array_show(const loam_array *array) {
  shown s = { PyUnicode_FromString(""), VALUES };
  show(&s, array);
  return s.text;
}
