/* arrow.h - the structures of Arrow's C data interface, as its specification defines them, and the
 * formats of its scalars. arrow_export.c and arrow_import.c use them. */
#ifndef LM_ARROW_H
#define LM_ARROW_H

#include "array/array.h"

/* Flags of a schema: the order of the values of its dictionary has a meaning; values may be
 * missing. */
enum { ARROW_DICTIONARY_ORDERED = 1, ARROW_NULLABLE = 2 };

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

/* Returns Arrow's format for a scalar kind, or "" for kinds that Arrow does not have. A date counts
 * days, a time of day microseconds; a timestamp has a unit, and ends in a colon: no time zone.
 * A duration has a unit. */
LM_INLINE const char *lm_arrow_format(loam_type_kind kind) {
  /* In the order of the kinds. */
  static const char *const formats[] = {
    "b", "c", "s",   "i",   "l",    "C",    "S",    "I",    "L",   "e",   "f",   "g",
    "",  "",  "tdD", "ttu", "tsu:", "tss:", "tsm:", "tsn:", "tDu", "tDs", "tDm", "tDn"
  };
  return (size_t)kind < LM_COUNT(formats) ? formats[kind] : "";
}

#endif
