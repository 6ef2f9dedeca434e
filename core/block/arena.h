/* arena.h - many small pieces from one pooled block, freed together. */
#ifndef LM_ARENA_H
#define LM_ARENA_H

#include "block/block.h"

/* Ends a live piece of a resizable arena: what it stood in is for others. */
void lm_arena_drop(loam_block *arena, void *piece);

bool lm_arena_is_valid(const loam_block *arena); /* the laws of arena.c; for tests */

#endif
