/* missing.h - how the data of an option say that the value is missing. Each plain type, decimal and
 * categorical has one value that means "missing", and its option has no further data. A dimension,
 * a struct and a fixed string have a byte behind the value, which is not 0 if the value is
 * missing. */
#ifndef LM_MISSING_H
#define LM_MISSING_H

#include "array/type.h"

/* Returns whether the option at `data`, whose value has the type `value`, is missing. */
bool lm_missing_is(const loam_type *value, const char *data);

/* Makes the option at `data`, whose value has the type `value`, missing. If `data` refers to text
 * or rows, the caller frees them before. */
void lm_missing_set(const loam_type *value, char *data);

/* Makes the option at `data` present, if a byte says whether it is missing. */
void lm_missing_clear(const loam_type *value, char *data);

#endif
