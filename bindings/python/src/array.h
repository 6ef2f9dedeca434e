/* array.h - loam.Array: loam's arrays as Python objects. */
#ifndef ARRAY_H
#define ARRAY_H

#include "binding.h"

/* Adds the type to the module; -1 with an exception set. */
int array_add(PyObject *module);

/* Whether rows may be resized now; what resizes asks it first. False with an exception set. */
typedef struct array_rows {
  int (*may_resize)(void *ctx);
  void *ctx;
} array_rows;

/* What an array holds: numbers, str, bytes and None, lists for dimensions, dicts for structs. */
PyObject *array_value(const loam_array *array);

/* The other way; rows get the length of their list. -1 with an exception set: what was assigned
 * before stays. */
int array_assign(loam_array *array, PyObject *value, const array_rows *rows);

/* Elements of the dimension that comes first; -1 with an exception set. */
Py_ssize_t array_length(const loam_array *array);

/* The kind of its type. */
loam_type_kind array_kind(const loam_array *array);

/* As struct and NumPy name it: "d", "<f8"; NULL for what is no scalar. An option of a float counts
 * as that float. */
const char *array_format(const loam_type *type);
const char *array_typestr(const loam_type *type);

#endif
