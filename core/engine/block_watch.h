/* block_watch.h - whether the host wants to hear of memory blocks, or have them listed.
 *
 * The start of loam sets what is wanted and blocks look at it, so it stands below both. */
#ifndef LM_BLOCK_WATCH_H
#define LM_BLOCK_WATCH_H

#include <stdatomic.h>

#include "os/base.h"

/* Bits of lm_block_watched: the host has a callback; live blocks are kept in a list. Retains and
 * releases read it. A block that is made or ended on the short path does not: while a bit is set,
 * threads are wary (LM_SLOW_LISTING) and leave that path. Relaxed: a call that runs while the bit
 * changes may miss it. */
enum { LM_BLOCK_WATCH_TELL = 1, LM_BLOCK_WATCH_LIST = 2 };
extern _Atomic uint32_t lm_block_watched;

LM_INLINE bool lm_block_watch_is_on(void) {
  return atomic_load_explicit(&lm_block_watched, memory_order_relaxed) != 0;
}

/* Sets or clears one of the bits. Any thread may call it. */
void lm_block_watch_want(uint32_t bit, bool wanted);

#endif
