/* block_watch.c - whether the host wants to hear of memory blocks, or to list them. */
#include "engine/block_watch.h"

#include "os/thread.h"

_Atomic uint32_t lm_block_watched;

static lm_lock changing; /* guards changes of the bits, and of the threads' reasons with them */

void lm_block_watch_want(uint32_t bit, bool wanted) {
  lm_assert(bit == LM_BLOCK_WATCH_TELL || bit == LM_BLOCK_WATCH_LIST);
  lm_thread_add_fork_lock(&changing);
  lm_lock_take(&changing);
  if (wanted) atomic_fetch_or_explicit(&lm_block_watched, bit, memory_order_relaxed);
  else atomic_fetch_and_explicit(&lm_block_watched, ~bit, memory_order_relaxed);
  if (lm_block_watch_is_on()) lm_thread_set_slow_all(LM_SLOW_LISTING);
  else lm_thread_clear_slow_all(LM_SLOW_LISTING);
  lm_lock_drop(&changing);
}
