/* datashape.h - makes types from text in the datashape language. datashape.c has the grammar. */
#ifndef LM_DATASHAPE_H
#define LM_DATASHAPE_H

#include "array/type.h"

/* Parses a type; *out is a reference for the caller. Fails with LOAM_EINVAL and words that name the
 * column and the expected token, or with LOAM_ENOMEM. */
loam_status lm_datashape_parse(const char *text, loam_type **out);

#endif
