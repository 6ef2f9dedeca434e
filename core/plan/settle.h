/* settle.h - how a tag begins to be counted: what lives under it. */
#ifndef LM_SETTLE_H
#define LM_SETTLE_H

#include "plan/site.h"

/* Keeping `live` exactly for the tags whose plans read it (policy.c, before a swap): mark each tag,
 * then settle once, which walks live memory if any tag is new; blocks of marked tags are counted
 * from then on. The caller is not inside an operation. */
void lm_settle_mark(loam_site *site);
void lm_settle_all(void);
/* Both. */
void lm_settle_tag(loam_site *site);

/* Once. */
void lm_settle_start(void);

#endif
