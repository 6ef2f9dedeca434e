/* ledger.h - how many blocks were made and ended, which are live, and who is told of each. */
#ifndef LM_LEDGER_H
#define LM_LEDGER_H

#include "block/block.h"
#include "os/thread.h"

/* A sum of what is wanted. Retains and releases look at it; blocks that are made and ended by the
 * short way find their thread wary. Relaxed: a call that begins beside the wish may be missed. */
enum { LM_LEDGER_TELL = 1, LM_LEDGER_LIST = 2 };
extern _Atomic uint32_t lm_ledger_wanted;

LM_INLINE bool lm_ledger_is_wanted(void) {
  return atomic_load_explicit(&lm_ledger_wanted, memory_order_relaxed) != 0;
}

/* While wanted: tells the host's callback, and keeps the list of live blocks. */
void lm_ledger_note(loam_block_verb verb, loam_block *block, size_t references);

/* Registers with threads, once; with `leaks`, lists blocks from now on and tells at the end of the
 * process which are left. */
void lm_ledger_start(bool leaks);

#endif
