/* arena.h - many small pieces from one pooled block, freed together. */
#ifndef LM_ARENA_H
#define LM_ARENA_H

#include "block/block.h"

/* When its last owner has released it: gives back what its pieces stood in. */
void lm_arena_finish(loam_block *arena);

/* Ends a live piece of a resizable arena: what it stood in is for others. */
void lm_arena_drop(loam_block *arena, void *piece);

bool lm_arena_is_valid(const loam_block *arena); /* the laws of arena.c; for tests */

#endif
