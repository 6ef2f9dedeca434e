/* array.h - loam.Array: loam's arrays as Python objects. Everything here needs the interpreter's
 * lock. */
#ifndef ARRAY_H
#define ARRAY_H

#include <stdbool.h>

#include "binding.h"

/* All Arrays that are derived from one Array. `inside` counts the members whose data stand in rows,
 * the memory of rows that other libraries use, and the operations that hold addresses in rows. */
typedef struct array_family {
  Py_ssize_t members, inside;
} array_family;

typedef struct Array {
  PyObject_HEAD loam_array *array;
  array_family *family;
  PyObject *base; /* whose memory it shows; NULL: it has memory of its own */
  bool is_inside; /* the data stand in a row */
  bool is_view;   /* of another Array: `base` is an Array too */
  PyObject *weak; /* weak references to this object */
} Array;

/* The most dimensions of an array, and the most fields of a key. */
enum { ARRAY_MOST = 64 };

/* Adds the type to the module. Returns -1 with an exception set. */
int array_add(PyObject *module);

/* Keeps the rows of an Array and of its family in place until array_release_rows: to resize a row
 * raises BufferError. An operation calls it before it takes the address of an element, if Python
 * code may run before it has used that address. Calls may nest. */
void array_hold_rows(PyObject *self);
void array_release_rows(PyObject *self);

/* A check that is called before a row is resized: `may_resize` returns 0, with an exception set, if
 * rows must stay in place. */
typedef struct array_rows {
  int (*may_resize)(void *ctx);
  void *ctx;
} array_rows;

/* Returns whether an element of this array is presented as a value of Python, not as a view: a
 * scalar, text or a decimal, and an option of one. */
bool array_is_value(const loam_array *array);

/* Returns whether loam_array_follow leads to what the array shows: a pointer, or an option of a
 * value with parts. */
bool array_is_followed(const loam_array *array);

/* Returns the contents of an array: numbers, str, bytes and None, lists for dimensions, dicts for
 * structs. Returns NULL with an exception set. */
PyObject *array_value(const loam_array *array);

/* Returns a short text of the contents; NULL with an exception set. */
PyObject *array_show(const loam_array *array);

/* Assigns a value to an array; rows get the length of their list. Returns -1 with an exception set;
 * the elements that were assigned before the failure keep their new values. */
int array_assign(loam_array *array, PyObject *value, const array_rows *rows);

/* Returns the number of elements of the first dimension; -1 with an exception set. */
Py_ssize_t array_length(const loam_array *array);

/* Returns how many dimensions of any size (`fixed *`) a type has, not counting those in structs. */
int array_patterns(const loam_type *type);

/* Gives these dimensions their sizes. Takes the reference to the type and gives one to the new
 * type. False: an exception is set, and the type is as before. */
bool array_give_sizes(loam_type **type, size_t count, const size_t *shape);

/* Returns the kind of the array's type. */
loam_type_kind array_kind(const loam_array *array);

/* Return the name of a scalar type in Python's struct module ("d") and in NumPy ("<f8"); NULL for a
 * type that is not a scalar. An option of a float counts as that float. */
const char *array_format(const loam_type *type);
const char *array_typestr(const loam_type *type);

/* Makes an Array with a family of its own, which takes the reference to `array`. `base` is the
 * object whose memory it shows, or NULL. Returns NULL with an exception set. */
PyObject *array_wrap(loam_array *array, PyObject *base);

/* Tells tracemalloc of the memory of an Array of array_wrap that has a base: the copies that were
 * made for it. */
void array_trace_copies(PyObject *self);

/* Returns 1 if the data of an array stand in an arena, as rows do, otherwise 0. */
int array_stands_in_row(const loam_array *array);

/* Returns 1 if the memory of an array must not be written, otherwise 0. */
int array_is_readonly(const loam_array *array);

/* Return tuples of numbers; NULL with an exception set. */
PyObject *array_tuple(const int64_t *numbers, int n);
PyObject *array_shape(const size_t *shape, int n);

/* The values of an array as other libraries describe them: scalars, and structs of scalars. */
typedef struct array_values {
  size_t size;      /* bytes from the first byte of a value to behind its last */
  PyObject *format; /* a str, as Python's struct module writes it; NULL: no format can say it */
  PyObject *descr;  /* for NumPy: a str for a scalar, for a struct a list of tuples or a dict */
} array_values;

/* Describes the values of an array behind its first `ndim` dimensions; array_values_end drops the
 * references. Returns -1 with TypeError set for values that other libraries cannot describe. */
int array_describe(const loam_array *array, int ndim, array_values *out);
void array_values_end(array_values *values);

/* Methods of Array that give its memory to other libraries: array_export.c. */
int array_getbuffer(PyObject *self, Py_buffer *view, int flags);
void array_releasebuffer(PyObject *self, Py_buffer *view);
PyObject *array_interface(PyObject *self, void *none);
PyObject *array_dlpack(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *array_dlpack_device(PyObject *self, PyObject *none);
PyObject *array_to_arrow(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *array_arrow(PyObject *self, PyObject *arguments, PyObject *keywords);

/* Methods of the class that make arrays over memory of other libraries: array_import.c. */
PyObject *array_from_dlpack(PyObject *type, PyObject *of);
PyObject *array_from_buffer(PyObject *type, PyObject *arguments, PyObject *keywords);
PyObject *array_from_arrow(PyObject *type, PyObject *arguments, PyObject *keywords);

#endif
