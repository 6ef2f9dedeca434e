/* type.h - the types of arrays and their elements: immutable trees with counted references.
 *
 * A type knows three things about its values: its text, which is the canonical datashape; the size
 * and the alignment that C gives to one value; and how many bytes of metadata (layout.h) an array
 * of this type has. Two types are equal if their texts are equal. */
#ifndef LM_TYPE_H
#define LM_TYPE_H

#include <stdatomic.h>

#include "loam.h"
#include "os/base.h"

/* The greatest depth of a type, the most bytes of its text, the most fields of a struct, and the
 * most digits of a decimal: 16 bytes hold each integer of 38 digits. */
enum { LM_TYPE_DEPTH = 64, LM_TYPE_TEXT = 65536, LM_TYPE_FIELDS = 4096, LM_DECIMAL_DIGITS = 38 };

/* What a var dimension, a string or bytes stores in the data of an array: the address and the
 * number of its elements or bytes, which lie outside this struct. Optional text (`?string` or
 * `?bytes`) is missing if `begin` is NULL. */
typedef struct lm_piece {
  char *begin;
  size_t size; /* number of elements of a var dimension, or number of bytes of text */
} lm_piece;

/* A field of a struct type. */
typedef struct lm_field {
  const char *name;
  loam_type *type;
  size_t offset; /* in bytes, where C puts the field in the struct */
  size_t meta;   /* offset of the field's metadata in the metadata of the struct, in bytes */
} lm_field;

/* A category of a categorical type. The first one has the code 0, the next one 1, and so on. */
typedef struct lm_category {
  const char *name;
  uint32_t code;
} lm_category;

/* A type never changes after it was made, except for `refs`.
 *
 * Law: plain types (scalars, string, bytes) are static, live for ever, and do not use `refs`. Any
 * other type exists only while it has at least one reference, and it holds a reference to each of
 * its parts. `depth` of a plain type is 1. `depth` of any other type is 1 more than the greatest
 * depth of its parts. `text` has text_length bytes and then a NUL. `align` is a power of two. In a
 * struct, the alignment of each field divides the offset of that field, and the alignment of the
 * struct divides the size of the struct. In a categorical type, `ranked` has the same categories as
 * `categories`, in the order of strcmp, and no two of them have one name. */
struct loam_type {
  _Atomic uint32_t refs; /* changed with the orderings that type.c describes */
  loam_type_kind kind;
  uint32_t depth;
  uint32_t text_length;
  bool has_pieces;    /* a value has data outside itself: a var dimension, a pointer or text */
  bool is_symbolic;   /* it has a `fixed *` dimension, so that no array can have this type */
  bool is_ordered;    /* a categorical whose categories stand in an order that has a meaning */
  size_t size, align; /* size and alignment that C gives to one value */
  size_t meta;        /* bytes of its metadata; a multiple of sizeof(size_t) */
  size_t count;       /* elements of a fixed dimension, fields of a struct, bytes of string[n],
                       * digits of a decimal, categories of a categorical */
  size_t scale;       /* digits of a decimal behind its point; 0 in other types */
  loam_type *element; /* the element of a dimension, target of a pointer, or value of an option */
  lm_field *fields;   /* the fields of a struct; NULL in other types */
  const char **categories; /* the names of a categorical's categories; NULL in other types */
  lm_category *ranked;     /* these categories in the order of their names; NULL in other types */
  const char *text;        /* the canonical datashape */
};

/* Each of the next nine functions makes a type from its parts and sets *out to it; the caller owns
 * this reference. The function takes over the caller's references to the parts, and if it fails, it
 * releases them. `out` may be the address of the variable from which the caller passes a part. Each
 * function fails with LOAM_EINVAL if the type would exceed a limit, and with LOAM_ENOMEM. */

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

/* Makes `decimal[digits, scale]`. Fails with LOAM_EINVAL if `digits` is not from 1 to
 * LM_DECIMAL_DIGITS, or `scale` exceeds `digits`. */
loam_status lm_type_decimal(size_t digits, size_t scale, loam_type **out);

/* Makes `categorical[[names], ordered=True]` with copies of the `count` names. A value is the code
 * of a category, which is the number of its name: a uint8 if there are at most 256 categories, and
 * else a uint16, which is enough for all categories whose names fit in LM_TYPE_TEXT bytes. Fails
 * with LOAM_EINVAL if `count` is 0, or if a name stands twice. *repeated is then the number of the
 * first name that is equal to an earlier one; it is `count` after any other result. */
loam_status lm_type_categorical(size_t count, const char *const *names, bool is_ordered,
                                size_t *repeated, loam_type **out);

/* Makes `?value`. Fails with LOAM_EINVAL if `value` is a pointer, which may be NULL already, an
 * option, a symbolic type, or a categorical type whose categories need all codes. */
loam_status lm_type_option(loam_type *value, loam_type **out);

/* Makes a struct of `count` fields with copies of the names. Fails with LOAM_EINVAL if two names
 * are equal or `count` is 0. */
loam_status lm_type_struct(size_t count, const char *const *names, loam_type **types,
                           loam_type **out);

/* Returns the static type of a plain kind: a scalar, string or bytes. */
loam_type *lm_type_plain(loam_type_kind kind);

/* Returns whether a type of this kind is plain, which means that it has no parts: a scalar, a
 * string or bytes. */
LM_INLINE bool lm_type_is_plain(loam_type_kind kind) { return kind <= LOAM_TYPE_BYTES; }
/* Returns whether a type of this kind is a number: a scalar that is no date or time. */
LM_INLINE bool lm_type_is_number(loam_type_kind kind) { return kind <= LOAM_TYPE_COMPLEX128; }
/* Returns whether a type of this kind is a scalar: a bool, an integer, a float, a complex number, a
 * date or a time. */
LM_INLINE bool lm_type_is_scalar(loam_type_kind kind) { return kind < LOAM_TYPE_STRING; }
/* Returns whether a type of this kind is text: a string or bytes. Its value is an lm_piece. */
LM_INLINE bool lm_type_is_text(loam_type_kind kind) {
  return kind == LOAM_TYPE_STRING || kind == LOAM_TYPE_BYTES;
}

/* Returns whether a type of this kind has parts that can be indexed or named. If such a value is
 * optional, a byte behind the value says whether it is missing, and a view leads to the value. */
LM_INLINE bool lm_type_is_compound(loam_type_kind kind) {
  return kind == LOAM_TYPE_FIXED || kind == LOAM_TYPE_VAR || kind == LOAM_TYPE_STRUCT;
}
/* Returns whether an option of this kind of value has a byte that says whether it is missing. The
 * other kinds have one value that means "missing". */
LM_INLINE bool lm_type_has_flag(loam_type_kind kind) {
  return lm_type_is_compound(kind) || kind == LOAM_TYPE_FIXED_STRING;
}
/* Returns whether a value of this type stands for another one: a pointer, or an option of a value
 * with parts. */
LM_INLINE bool lm_type_is_followed(const loam_type *type) {
  if (type->kind == LOAM_TYPE_OPTION) return lm_type_is_compound(type->element->kind);
  return type->kind == LOAM_TYPE_POINTER;
}

/* Fails with LOAM_EINVAL if a type is symbolic. */
loam_status lm_type_check_sized(const loam_type *type);

/* Returns the call site under which types are allocated; its tag is "loam.type". */
loam_site *lm_type_site(void);

/* The size in bytes of a buffer for lm_type_words, with room for the NUL. */
enum { LM_TYPE_WORDS = 96 };

/* Writes the text of a type to `out`, for an error message, and returns `out`. If the text does not
 * fit, the end is cut off and replaced by "...". */
const char *lm_type_words(char out[LM_TYPE_WORDS], const loam_type *type);

/* Returns the index of the field called `name` in a struct type, or -1 if it has no such field. */
long lm_type_find(const loam_type *type, const char *name);

/* Returns the code that is stored at `data`, a value of a categorical type. It may be any number
 * that fits in the value: nothing keeps a host from storing a code that no category has. */
LM_INLINE uint32_t lm_type_code(const loam_type *type, const char *data) {
  lm_assert(type->kind == LOAM_TYPE_CATEGORICAL);
  return type->size == 1 ? *(const uint8_t *)data : *(const uint16_t *)data;
}

/* Stores the code of a category at `data`, a value of a categorical type. */
LM_INLINE void lm_type_put_code(const loam_type *type, char *data, uint32_t code) {
  lm_assert(type->kind == LOAM_TYPE_CATEGORICAL && code < type->count);
  if (type->size == 1) *(uint8_t *)data = (uint8_t)code;
  else *(uint16_t *)data = (uint16_t)code;
}

/* Returns the name of the category at `data`, a value of a categorical type. Returns NULL if no
 * category has the code that is stored there. */
LM_INLINE const char *lm_type_category(const loam_type *type, const char *data) {
  uint32_t code = lm_type_code(type, data);
  return code < type->count ? type->categories[code] : NULL;
}

/* Finds the category of a categorical type whose name is the `length` bytes at `name`, which need
 * no NUL behind them. Sets *code and returns true; returns false if there is no such category. */
bool lm_type_find_category(const loam_type *type, const char *name, size_t length, uint32_t *code);

/* Returns whether the law of loam_type holds for a type and all of its parts. lm_verify and tests
 * call it. */
bool lm_type_is_valid(const loam_type *type);

#endif
