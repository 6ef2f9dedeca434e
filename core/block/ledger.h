/* ledger.h - how many blocks were made and ended, which are live, and the callback that hears of
 * each. */
#ifndef LM_LEDGER_H
#define LM_LEDGER_H

#include "block/block.h"
#include "engine/block_watch.h"

/* Calls the host's callback, and puts the block on the list of live blocks or takes it off. The
 * caller has seen lm_block_watch_is_on(). */
void lm_ledger_note(loam_block_verb verb, loam_block *block, size_t references);

#endif
