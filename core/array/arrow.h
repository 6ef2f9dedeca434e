/* arrow.h - the structures of Arrow's C data interface, as its specification defines them, and the
 * formats of its scalars. arrow_export.c and arrow_import.c use them. */
#ifndef LM_ARROW_H
#define LM_ARROW_H

#include "array/array.h"

/* Flags of a schema, with the names that the specification has. */
enum {
  ARROW_FLAG_DICTIONARY_ORDERED = 1, /* the order of the values of the dictionary has a meaning */
  ARROW_FLAG_NULLABLE = 2            /* values may be missing */
};

struct ArrowSchema {
  const char *format; /* the type, as a string in Arrow's format language */
  const char *name;
  const char *metadata;
  int64_t flags; /* ARROW_FLAG_* */
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
 * days, a time of day microseconds. The formats of timestamps and durations name their unit by a
 * letter. The format of a timestamp also ends in a colon, because loam's have no time zone. */
LM_INLINE const char *lm_arrow_format(loam_type_kind kind) {
  static const char *const formats[] = {
    [LOAM_TYPE_BOOL] = "b",           [LOAM_TYPE_INT8] = "c",
    [LOAM_TYPE_INT16] = "s",          [LOAM_TYPE_INT32] = "i",
    [LOAM_TYPE_INT64] = "l",          [LOAM_TYPE_UINT8] = "C",
    [LOAM_TYPE_UINT16] = "S",         [LOAM_TYPE_UINT32] = "I",
    [LOAM_TYPE_UINT64] = "L",         [LOAM_TYPE_FLOAT16] = "e",
    [LOAM_TYPE_FLOAT32] = "f",        [LOAM_TYPE_FLOAT64] = "g",
    [LOAM_TYPE_DATE] = "tdD",         [LOAM_TYPE_TIME] = "ttu",
    [LOAM_TYPE_DATETIME] = "tsu:",    [LOAM_TYPE_DATETIME_S] = "tss:",
    [LOAM_TYPE_DATETIME_MS] = "tsm:", [LOAM_TYPE_DATETIME_NS] = "tsn:",
    [LOAM_TYPE_TIMEDELTA] = "tDu",    [LOAM_TYPE_TIMEDELTA_S] = "tDs",
    [LOAM_TYPE_TIMEDELTA_MS] = "tDm", [LOAM_TYPE_TIMEDELTA_NS] = "tDn"
  };
  return (size_t)kind < LM_COUNT(formats) && formats[kind] ? formats[kind] : "";
}

#endif
