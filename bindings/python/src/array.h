/* array.h - loam.Array: loam's arrays as Python objects. Everything here needs the interpreter's
 * lock. */
#ifndef ARRAY_H
#define ARRAY_H

#include "binding.h"

/* Adds the type to the module. Returns -1 with an exception set. */
int array_add(PyObject *module);

/* A check that is called before a row is resized: `may_resize` returns 0, with an exception set, if
 * rows must stay in place. */
typedef struct array_rows {
  int (*may_resize)(void *ctx);
  void *ctx;
} array_rows;

/* Returns the contents of an array: numbers, str, bytes and None, lists for dimensions, dicts for
 * structs. Returns NULL with an exception set. */
PyObject *array_value(const loam_array *array);

/* Assigns a value to an array; rows get the length of their list. Returns -1 with an exception set;
 * the elements that were assigned before the failure keep their new values. */
int array_assign(loam_array *array, PyObject *value, const array_rows *rows);

/* Returns the number of elements of the first dimension; -1 with an exception set. */
Py_ssize_t array_length(const loam_array *array);

/* Returns the kind of the array's type. */
loam_type_kind array_kind(const loam_array *array);

/* Return the name of a scalar type in Python's struct module ("d") and in NumPy ("<f8"); NULL for a
 * type that is not a scalar. An option of a float counts as that float. */
const char *array_format(const loam_type *type);
const char *array_typestr(const loam_type *type);

#endif
