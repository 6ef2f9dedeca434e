/* arrow.h - the structures of Arrow's C data interface, as its specification defines them, and the
 * letters of its scalar formats. arrow_export.c and arrow_import.c use them. */
#ifndef LM_ARROW_H
#define LM_ARROW_H

#include "array/array.h"

/* A flag of a schema: values may be missing. */
enum { ARROW_NULLABLE = 2 };

struct ArrowSchema {
  const char *format; /* the type, as a string in Arrow's format language */
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *self); /* NULL: the struct was released or moved */
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count; /* -1: not counted */
  int64_t offset;     /* leading elements of the buffers that are not part of the array */
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *self);
  void *private_data;
};

/* Returns Arrow's letter for a scalar kind, or 0 for kinds that Arrow does not have. */
LM_INLINE char lm_arrow_letter(loam_type_kind kind) {
  static const char letters[] = "bcsilCSILefg"; /* in the order of the kinds */
  return (size_t)kind < sizeof letters - 1 ? letters[kind] : 0;
}

#endif
