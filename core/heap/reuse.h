/* reuse.h - places of common tokens (mark.h) that are nobody's any more. */
#ifndef LM_REUSE_H
#define LM_REUSE_H

#include "pages/mark.h"

/* Makes those vacant whose token no live object has, and is not wanted: nobody decides on such any
 * more. Only where fewer than half of all are to be had, since it looks at every mark. Not inside
 * an operation; one at a time. */
void lm_reuse_ids(lm_marks_wanted *is_wanted);

#endif
