/* token_ids.h - places of common tokens (state.h) that are nobody's any more. */
#ifndef LM_TOKEN_IDS_H
#define LM_TOKEN_IDS_H

#include "pages/state.h"

/* Makes those vacant whose token no live object has, and is not wanted: nobody decides on such any
 * more. Only where fewer than half of all are to be had, since it looks at every mark. Not inside
 * an operation; one at a time. */
void lm_token_ids_reclaim(lm_state_wanted_fn *is_wanted);

#endif
