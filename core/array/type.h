/* type.h - what the elements of an array are: immutable trees, counted by reference.
 *
 * A type knows its own text (the canonical datashape), the C layout of one value, and how many
 * bytes its metadata takes in an array (layout.h). Two types are equal when their texts are. */
#ifndef LM_TYPE_H
#define LM_TYPE_H

#include <stdatomic.h>

#include "loam.h"
#include "os/base.h"

enum { LM_TYPE_DEPTH = 64, LM_TYPE_TEXT = 65536, LM_TYPE_FIELDS = 4096 };

/* What stands in the data for a var dimension, a string and bytes. An option of the latter two is
 * missing where `begin` is NULL. */
typedef struct lm_piece {
  char *begin;
  size_t size; /* elements; bytes */
} lm_piece;

typedef struct lm_field {
  const char *name;
  loam_type *type;
  size_t offset; /* in a struct laid out as C does */
  size_t meta;   /* where its metadata begins in the struct's */
} lm_field;

struct loam_type {
  _Atomic uint32_t refs; /* 0 for those that are never freed: the scalars, string and bytes */
  loam_type_kind kind;
  uint32_t depth;
  uint32_t text_length;
  bool has_pieces;    /* some of a value stands elsewhere: var dimensions, pointers, text */
  size_t size, align; /* of one value, laid out as C does */
  size_t meta;        /* bytes of metadata */
  size_t count;       /* elements of a fixed dimension, fields of a struct */
  loam_type *element; /* of a dimension, a pointer, an option */
  lm_field *fields;
  const char *text;
};

/* These take over the references they are given, also when they fail. `out` may be where such a
 * reference stands. */
loam_status lm_type_fixed(size_t count, loam_type *element, loam_type **out);
loam_status lm_type_var(loam_type *element, loam_type **out);
loam_status lm_type_pointer(loam_type *target, loam_type **out);
loam_status lm_type_option(loam_type *value, loam_type **out);
/* `names` are copied. */
loam_status lm_type_struct(size_t count, const char *const *names, loam_type **types,
                           loam_type **out);

/* The one of a kind that has no parts. */
loam_type *lm_type_plain(loam_type_kind kind);

LM_INLINE bool lm_type_is_plain(loam_type_kind kind) { return kind <= LOAM_TYPE_BYTES; }
LM_INLINE bool lm_type_is_scalar(loam_type_kind kind) { return kind < LOAM_TYPE_STRING; }
/* A run of bytes, of which a lm_piece stands in the data. */
LM_INLINE bool lm_type_is_text(loam_type_kind kind) {
  return kind == LOAM_TYPE_STRING || kind == LOAM_TYPE_BYTES;
}

/* Of the memory of types. */
loam_site *lm_type_site(void);

/* One line for a message: the text, cut where it is long. */
enum { LM_TYPE_WORDS = 96 };
const char *lm_type_words(char out[LM_TYPE_WORDS], const loam_type *type);

/* Index of a field; -1 if there is none. */
long lm_type_find(const loam_type *type, const char *name);

bool lm_type_is_valid(const loam_type *type);

#endif
