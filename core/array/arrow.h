/* arrow.h - the structures of Arrow's C data interface, and what both ways through it share. */
#ifndef LM_ARROW_H
#define LM_ARROW_H

#include "array/array.h"

enum { ARROW_NULLABLE = 2 };

struct ArrowSchema {
  const char *format; /* the type, in Arrow's letters */
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *self); /* NULL: it was released, or moved */
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count; /* -1: not counted */
  int64_t offset;     /* elements of the buffers that are not the array's */
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *self);
  void *private_data;
};

/* The letter of a scalar; 0 for those that Arrow has not. */
LM_INLINE char lm_arrow_letter(loam_type_kind kind) {
  static const char letters[] = "bcsilCSILefg"; /* in the order of the kinds */
  return (size_t)kind < sizeof letters - 1 ? letters[kind] : 0;
}

#endif
