/* ledger.h - counts blocks, lists live blocks for leak reports, and calls the host's callback. */
#ifndef LM_LEDGER_H
#define LM_LEDGER_H

#include "block/block.h"
#include "engine/block_watch.h"

/* Calls the host's callback with an event of a block. If live blocks are listed, adds a block that
 * was made to the list; removes a listed block that ends. `references` is the count after the
 * event. Call it only while lm_block_watch_is_on(). Any thread may call it, without a lock. */
void lm_ledger_note(loam_block_verb verb, loam_block *block, size_t references);

/* Returns whether the laws in ledger.c hold, as far as one look shows them: the list is whole, and
 * no more blocks have ended than were made. Walks the whole list. For tests: no other thread makes
 * or ends blocks during the call. */
bool lm_ledger_is_valid(void);

#endif
