/* large.h - blocks that have slots of their own: large ones and guarded ones.
 *
 * A large block is a run of slots of its pool's regions. Its usable size is what was asked for,
 * rounded up to pages, so that figures are honest; the rest of its slots is room to grow. Up to
 * LM_LARGE_MAX it has the slots of a class, so that a thread which freed it can have it again.
 *
 * A guarded block ends where an inaccessible page begins, so that the first byte beyond it faults
 * (up to its alignment). Its slots come from the range and go back to it. Freed, it is made
 * inaccessible and waits in a quarantine, so that a use after free faults and a double free is
 * known for what it is. It takes two of the mappings that the kernel allows a process
 * (vm.max_map_count); without any left the program itself, and loam, would have no more memory. So
 * at most a quarter of that number are guarded at a time, by all strategies together; further
 * blocks are not.
 *
 * A block whose memory is a file's (backing.h) may have been lent to other processes (share.h) by
 * way of its span's `lent`: the key that they know it by. Freed while one of them has it, its slots
 * are parked until none does, so that what they see stays as it was. In a forked child the blocks
 * of its parent are INHERITED: when they are freed there, their slots are not used again. */
#ifndef LM_LARGE_H
#define LM_LARGE_H

#include "pages/regions.h"

typedef struct lm_large {
  lm_lock lock;             /* of the quarantine; also keeps descriptions for lm_large_retoken */
  uint32_t *ring;           /* first slots of the blocks in quarantine; NULL until first used */
  uint32_t oldest, waiting; /* index of the first, number of them */
  uint32_t slots;           /* of them all */
  uint32_t parked;          /* first slot of the first parked run, linked by `next`; 0: none */
  lm_regions *regions;      /* these two are constant */
  uint32_t strategy;
} lm_large;

enum { LM_LARGE_LENT_NEVER = 0, LM_LARGE_LENT_INHERITED = 1 };

/* `l` is zeroed memory. */
void lm_large_init(lm_large *l, lm_regions *regions, uint32_t strategy);
/* *clean: whether it is all zero. */
void *lm_large_alloc(lm_large *l, size_t size, size_t align, lm_token token, bool *clean);
/* One that threads may cache in their bins at this offset; it has the slots of its class. */
void *lm_large_alloc_class(lm_large *l, unsigned class_, uint32_t bin, size_t size, lm_token token,
                           bool *clean);
bool lm_large_guard_has_room(void);
/* The number of guarded blocks that may be; also of mappings that moving memory may make more. */
uint32_t lm_large_guard_max(void);
void *lm_large_guard_alloc(lm_large *l, size_t size, size_t align, lm_token token);
/* Of a block whose mark is CACHED. */
void lm_large_free(lm_large *l, lm_state_cell *mark);
/* Lets go of what was parked and nobody has any more; whether there is more. */
bool lm_large_unpark(lm_large *l);
/* In a forked child: gives up what was parked. */
void lm_large_fork_child(lm_large *l);
/* Ends the quarantine of every block that is in it. */
void lm_large_drain(lm_large *l);
/* Zeros, of plain memory from the start of a page on. What was never touched is not, so that a
 * table of which little is used costs no more the next time. */
void lm_large_zero(void *p, size_t size);
/* As lm_pool_resize. */
bool lm_large_resize(lm_large *l, const lm_map_object *place, size_t size);
/* As lm_pool_move. */
void *lm_large_move(lm_large *l, const lm_map_object *place, size_t size);

/* A large block that goes to another pool while it lives (migrate.c). Claimed, it is MOVING: once a
 * grace has passed, no thread frees it into a bin, none resizes it, and a free leaves it to whoever
 * claimed it. False: there is no such live block of this pool at `slot`. */
bool lm_large_claim(lm_large *l, uint32_t slot);
/* After that grace: whether it lives and is claimed still; if not, there is no claim. *freed: as
 * lm_large_release. */
bool lm_large_confirm(lm_large *l, uint32_t slot, size_t *freed);
/* Whether a block that is dead now is left to whoever claimed it. */
bool lm_large_hand_over(lm_state_cell *mark);
/* Makes a claimed block another pool's, one that threads may cache at the offset `bin`; `token` its
 * token if that was `old`. Then again a grace, and lm_large_release. */
void lm_large_adopt(lm_large *to, lm_large *from, uint32_t slot, uint32_t bin, lm_token old,
                    lm_token token);
/* Ends the claim; `stray`: its memory is not what its pool asks for. If the block was freed
 * meanwhile, its memory is given back: the usable bytes, still to be given back to the limit. */
size_t lm_large_release(lm_large *l, uint32_t slot, bool stray);
bool lm_large_retoken(lm_large *l, const void *p, lm_token old, lm_token new_token);
#endif
