/* block_watch.h - whether the host wants to hear of memory blocks, or to list them.
 *
 * api/start.c and block/ledger.c set this, and the code in block/ reads it. The variable is in the
 * engine, because the engine is below both folders. */
#ifndef LM_BLOCK_WATCH_H
#define LM_BLOCK_WATCH_H

#include <stdatomic.h>

#include "os/base.h"

/* Bits of lm_block_watched. */
enum {
  LM_BLOCK_WATCH_TELL = 1, /* the host has a callback for retains, releases and ends of blocks */
  LM_BLOCK_WATCH_LIST = 2  /* live blocks are kept in a list, for a report of leaks */
};

/* The bits that are set now. Each retain and release of a block reads them. The fast path that
 * makes and ends a block does not: while any bit is set, every thread has LM_SLOW_LISTING and does
 * not take that path. All accesses are relaxed, so a call that runs while a bit changes may miss
 * the change. */
extern _Atomic uint32_t lm_block_watched;

/* Returns whether any bit is set. */
LM_INLINE bool lm_block_watch_is_on(void) {
  return atomic_load_explicit(&lm_block_watched, memory_order_relaxed) != 0;
}

/* Sets (wanted) or clears one of the bits, and sets or clears LM_SLOW_LISTING of all threads. Any
 * thread may call it, outside an active section. */
void lm_block_watch_want(uint32_t bit, bool wanted);

#endif
