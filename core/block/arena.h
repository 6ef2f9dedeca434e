/* arena.h - many small pieces from one pooled block, freed together. loam.h declares the functions
 * that hosts call; this header declares what other files of the core call. */
#ifndef LM_ARENA_H
#define LM_ARENA_H

#include "block/block.h"

/* Frees a live piece of a resizable arena; later pieces can use its memory. Aborts if `piece` is
 * not a live piece. One thread at a time may call the functions of an arena. */
void lm_arena_drop(loam_block *arena, void *piece);

/* Returns whether the laws in arena.c hold for an arena. Walks all its pieces: for tests. */
bool lm_arena_is_valid(const loam_block *arena);

#endif
