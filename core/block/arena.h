/* arena.h - many small pieces from one pooled block, freed together. loam.h declares the functions
 * that hosts call; this header declares what other files of the core call. */
#ifndef LM_ARENA_H
#define LM_ARENA_H

#include "block/block.h"

/* Frees a live piece of an arena. Later pieces can use its memory, except in a plain arena if the
 * piece is not the last one: that memory is lost until the arena ends. It aborts if `piece` is not
 * a live piece of a resizable arena. One thread at a time may call the functions of an arena. */
void lm_arena_drop(loam_block *arena, void *piece);

/* Returns whether a live piece of an arena can be resized: in a plain arena, only the last one. */
bool lm_arena_can_resize(const loam_block *arena, const void *piece);

/* Returns whether the pieces of an arena are zero when they are allocated. */
bool lm_arena_is_zeroed(const loam_block *arena);

/* Returns whether the laws in arena.c hold for an arena. Walks all its pieces: for tests. */
bool lm_arena_is_valid(const loam_block *arena);

#endif
