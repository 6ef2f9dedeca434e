/* missing.h - how the data of an option say that a value is missing. */
#ifndef LM_MISSING_H
#define LM_MISSING_H

#include "array/type.h"

/* Whether the value of a plain type at `data` is the one that stands for none. */
bool lm_missing_is(const loam_type *value, const char *data);
/* Makes it so; of text, its piece is the caller's to end. */
void lm_missing_set(const loam_type *value, char *data);

#endif
