/* type.h - the types of arrays and their elements: immutable trees with counted references.
 *
 * A type has its text (the canonical datashape), the C layout of one value, and the number of bytes
 * that its metadata take in an array (layout.h). Two types are equal if their texts are equal. */
#ifndef LM_TYPE_H
#define LM_TYPE_H

#include <stdatomic.h>

#include "loam.h"
#include "os/base.h"

/* Limits of every type: its depth, the bytes of its text, the fields of a struct. */
enum { LM_TYPE_DEPTH = 64, LM_TYPE_TEXT = 65536, LM_TYPE_FIELDS = 4096 };

/* The data of a var dimension, a string or bytes: where its elements or bytes begin, and how many
 * there are. An option of string or bytes is missing if `begin` is NULL. */
typedef struct lm_piece {
  char *begin;
  size_t size; /* elements of a var dimension; bytes of text */
} lm_piece;

/* A field of a struct type. */
typedef struct lm_field {
  const char *name;
  loam_type *type;
  size_t offset; /* in a struct laid out as C does */
  size_t meta;   /* offset of the field's metadata in the metadata of the struct, in bytes */
} lm_field;

/* Law: plain types (scalars, string, bytes) are static, and their `refs` is not used. Any other
 * type has at least one reference and holds one to each of its parts; it never changes. `depth` is
 * 1 more than the greatest depth of a part. `text` has text_length bytes before its terminator.
 * `align` is a power of two and divides the offset of each field and the size of a struct. */
struct loam_type {
  _Atomic uint32_t refs; /* changed with the orderings that type.c describes */
  loam_type_kind kind;
  uint32_t depth;
  uint32_t text_length;
  bool has_pieces;    /* parts of a value stand outside it: in var dimensions, pointers, text */
  bool is_symbolic;   /* it has a `fixed *` dimension, so that no array can have this type */
  size_t size, align; /* of one value, laid out as C does */
  size_t meta;        /* bytes of metadata; a multiple of a word */
  size_t count;       /* elements of a fixed dimension, fields of a struct, bytes of string[n] */
  loam_type *element; /* the element of a dimension, target of a pointer, or value of an option */
  lm_field *fields;   /* of a struct */
  const char *text;
};

/* Each of the next seven functions makes a type from its parts; *out is a reference for the caller.
 * It takes over the references to the parts, on failure too. `out` may point to one of these
 * references. Each fails with LOAM_EINVAL if a limit is exceeded, and with LOAM_ENOMEM. */

/* Makes `count * element`. Fails with LOAM_EINVAL if a value exceeds the address space. */
loam_status lm_type_fixed(size_t count, loam_type *element, loam_type **out);

/* Makes `fixed * element`, a dimension of any size. Its count is LOAM_ANY and its size is 0. */
loam_status lm_type_symbolic(loam_type *element, loam_type **out);

/* Makes `var * element`. */
loam_status lm_type_var(loam_type *element, loam_type **out);

/* Makes `string[count]`; count is not 0. */
loam_status lm_type_fixed_string(size_t count, loam_type **out);

/* Makes `pointer[target]`. */
loam_status lm_type_pointer(loam_type *target, loam_type **out);

/* Makes `?value`. Fails with LOAM_EINVAL if `value` is not a plain type. */
loam_status lm_type_option(loam_type *value, loam_type **out);

/* Makes a struct of `count` fields with copies of the names. Fails with LOAM_EINVAL if two names
 * are equal or `count` is 0. */
loam_status lm_type_struct(size_t count, const char *const *names, loam_type **types,
                           loam_type **out);

/* Returns the static type of a plain kind: a scalar, string or bytes. */
loam_type *lm_type_plain(loam_type_kind kind);

/* Return whether a kind is plain, a number, a scalar, or text. The data of text are an lm_piece. */

LM_INLINE bool lm_type_is_plain(loam_type_kind kind) { return kind <= LOAM_TYPE_BYTES; }
/* A number is a scalar that is no date or time. */
LM_INLINE bool lm_type_is_number(loam_type_kind kind) { return kind <= LOAM_TYPE_COMPLEX128; }
LM_INLINE bool lm_type_is_scalar(loam_type_kind kind) { return kind < LOAM_TYPE_STRING; }
LM_INLINE bool lm_type_is_text(loam_type_kind kind) {
  return kind == LOAM_TYPE_STRING || kind == LOAM_TYPE_BYTES;
}

/* Fails with LOAM_EINVAL if a type is symbolic. */
loam_status lm_type_check_sized(const loam_type *type);

/* Returns the site of the memory of types, with the tag "loam.type". */
loam_site *lm_type_site(void);

/* The bytes of a buffer for lm_type_words, with the terminator. */
enum { LM_TYPE_WORDS = 96 };

/* Writes the text of a type to `out` for a message, cut if it is long, and returns `out`. */
const char *lm_type_words(char out[LM_TYPE_WORDS], const loam_type *type);

/* Returns the index of the field with a name in a struct, or -1. */
long lm_type_find(const loam_type *type, const char *name);

/* Returns whether the law of loam_type holds for the whole tree: for lm_verify and tests. */
bool lm_type_is_valid(const loam_type *type);

#endif
