/* token_ids.h - takes back ids of common tokens (state.h) that no live object needs. */
#ifndef LM_TOKEN_IDS_H
#define LM_TOKEN_IDS_H

#include "pages/state.h"

/* Makes the ids vacant whose token is not wanted and belongs to no live object. A token is not
 * wanted when no thread can decide for it any more. The function looks at the state of every small
 * object, so it does nothing while at least half of the ids are available. Not inside an operation;
 * one call at a time. */
void lm_token_ids_reclaim(lm_state_wanted_fn *is_wanted);

#endif
