/* board_use.h - the memory of strategies and tags, as a process writes it on its board. */
#ifndef LM_BOARD_USE_H
#define LM_BOARD_USE_H

#include "service/board_layout.h"

/* Fills `use` and `tag` of an entry, and their counts, from counters: visits no object. Takes locks
 * of pools, each for a moment. The caller holds the lock of board.c, and no lock of memory. */
void lm_board_use_fill(lm_board_entry *entry);

#endif
