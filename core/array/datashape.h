/* datashape.h - types from text. */
#ifndef LM_DATASHAPE_H
#define LM_DATASHAPE_H

#include "array/type.h"

/* Where it fails, the words name the column and what was expected there. */
loam_status lm_datashape_parse(const char *text, loam_type **out);

#endif
