/* missing.h - how the data of an option say that the value is missing. Each plain type has one
 * value that means "missing"; an option has no further data. */
#ifndef LM_MISSING_H
#define LM_MISSING_H

#include "array/type.h"

/* Returns whether the value at `data`, of the plain type `value`, means "missing". */
bool lm_missing_is(const loam_type *value, const char *data);

/* Writes the missing value of the plain type `value` to `data`. If `data` refers to text, the
 * caller frees the text before. */
void lm_missing_set(const loam_type *value, char *data);

#endif
