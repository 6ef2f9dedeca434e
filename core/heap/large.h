/* large.h - blocks that have slots of their own: large blocks and guarded blocks.
 *
 * A large block is a run of slots from its pool's regions. Its usable size is the requested size,
 * rounded up to pages, so that figures are honest; a block can grow into the rest of its slots. A
 * block of up to LM_LARGE_MAX bytes has as many slots as its size class says, so that the thread
 * that frees it can keep it in a bin for the next request of that class.
 *
 * A guarded block of size 0 has no memory: it is a slot without access. The page map notes its size
 * as 1, so that its address is found (lm_large_is_empty); an lm_object has size 0.
 *
 * A guarded block ends where an inaccessible page begins, or less than its alignment before, so a
 * byte beyond that faults. The bytes of its first and last page that are not its own, its edges,
 * are filled with one value. A free finds the edge that was written to. Its slots come from the
 * range and go back to the range. When it is freed, it becomes inaccessible and waits in a
 * quarantine, so that a use after free faults and a double free is recognized. It takes two of the
 * mappings that the kernel allows a process (vm.max_map_count). Without any left, neither the
 * program nor loam would get memory. So at most a quarter of that number are guarded at a time,
 * over all strategies; further blocks are not guarded.
 *
 * A block that grows by a move of its pages has mappings of its own from then on. They would stay
 * apart for ever in memory that is used again, and in the end the process could map nothing more.
 * So when the block is freed, its slots get new mappings, which join those beside them, but have no
 * memory. Mappings of 1 MiB or more on average stay, with their memory: a pool has room for some
 * thousands of them. The `moves` of the block's span counts the moves. All live blocks together
 * were moved at most 16,382 times: a quarter of the mappings that the kernel allows by default.
 *
 * A block whose memory is in a file (backing.h) may have been lent to other processes
 * (share_export.h). Its span's `lent` then holds the key that they know it by. If it is freed while
 * another process maps it, its slots are parked until none does, so that those processes see the
 * same memory as before. In a forked child the blocks of the parent are LM_LARGE_LENT_INHERITED:
 * when the child frees one, its slots are not used again. */
#ifndef LM_LARGE_H
#define LM_LARGE_H

#include "pages/regions.h"

/* The blocks of one pool, as far as something is to be remembered of them.
 *
 * Law: ring[oldest], ring[oldest + 1], ... (modulo its length) are the first slots of the `waiting`
 * blocks in quarantine, and `slots` is the sum of their slots; without a ring, `waiting` is 0. Each
 * parked run is an extent of no use. */
typedef struct lm_large {
  lm_lock lock;             /* of all but the last two; a thread that holds it may also trust the
                               entries of blocks (lm_large_retoken) */
  uint32_t *ring;           /* NULL until the first block enters the quarantine */
  uint32_t oldest, waiting; /* index of the oldest block; number of blocks */
  uint32_t slots;
  uint32_t parked;     /* first slot of the first parked run, linked by `next`; 0: none */
  lm_regions *regions; /* constant */
  uint32_t strategy;   /* id; constant */
} lm_large;

enum { LM_LARGE_LENT_NEVER = 0, LM_LARGE_LENT_INHERITED = 1 };

/* `l` is zeroed memory. */
void lm_large_init(lm_large *l, lm_regions *regions, uint32_t strategy);
/* The law; the caller holds the lock. */
bool lm_large_is_valid(const lm_large *l);

/* ---- Allocating and freeing: any thread, with no lock held that these take. */

/* A live block of `size` bytes at a multiple of `align`, a power of two. *clean: whether it is all
 * zero. NULL: there is no memory. */
void *lm_large_alloc(lm_large *l, size_t size, size_t align, lm_token token, bool *clean);
/* Like lm_large_alloc, for a block of a large size class, which threads may cache in their bins at
 * the offset `bin`. */
void *lm_large_alloc_class(lm_large *l, size_t size, uint32_t bin, lm_token token, bool *clean);
/* A live guarded block, all zero. NULL: there is no memory. */
void *lm_large_guard_alloc(lm_large *l, size_t size, size_t align, lm_token token);
/* Tells whether the block of a pool with this start and this size is a guarded block of size 0. No
 * byte of it can be touched. No other block has 1 byte at the start of a slot. */
LM_INLINE bool lm_large_is_empty(const void *base, size_t size) {
  return size == 1 && !((uintptr_t)base & (LM_SLOT - 1));
}
/* The usable bytes of a block of a pool that the page map notes with this start and this size. */
LM_INLINE size_t lm_large_usable(const void *base, size_t size) {
  return lm_large_is_empty(base, size) ? 0 : size;
}
/* Tells whether a live large block is a guarded one. While active. */
bool lm_large_is_guarded(const lm_map_object *place);
/* Tells whether the memory of a large block is as its pool asks for, so that a later request can
 * get the block. While active. */
bool lm_large_is_prepared(const lm_map_object *place);
/* Returns the first byte behind a guarded block, or else the last byte before it, that was written
 * to in its edges; NULL: none was, or the block is not guarded. Before the block is freed. */
const void *lm_large_damage(const lm_map_object *place);
/* Tells whether there may be one more guarded block. */
bool lm_large_guard_has_room(void);
/* The greatest number of guarded blocks; also of the mappings that moving memory to other nodes may
 * add. */
uint32_t lm_large_guard_max(void);
/* Frees a block whose state, in this cell, is cached: its slots go back, or wait. */
void lm_large_free(lm_large *l, lm_state_cell *state);
/* Gives back the parked runs that no process maps any more. True: some remain. */
bool lm_large_unpark(lm_large *l);
/* In a forked child: gives up the parked runs, which are the parent's. */
void lm_large_fork_child(lm_large *l);
/* Ends the quarantine of every block in it, and frees the ring. */
void lm_large_drain(lm_large *l);
/* Zeroes `size` bytes of plain memory from p on, which is the start of a page. Pages that were
 * never touched stay untouched, so a table of which little is used costs no more the next time. */
void lm_large_zero(void *p, size_t size);
/* lm_pool_resize for the block that `place` describes. */
bool lm_large_resize(lm_large *l, const lm_map_object *place, size_t size);
/* lm_pool_move for the block that `place` describes. */
void *lm_large_move(lm_large *l, const lm_map_object *place, size_t size);
/* lm_pool_retoken for a block of this pool. */
bool lm_large_retoken(lm_large *l, const void *p, lm_token old, lm_token new_token);

/* ---- Moving a live block to another pool: migrate.c, in this order. */

/* Held from before a claim until that claim is confirmed or has ended. A thread that was about to
 * resize or free a block may undo its claim, before the grace is over. If another thread claimed
 * blocks at that time, the first one could take the other's claim for its own. */
extern lm_lock lm_large_claiming __attribute__((visibility("hidden")));

/* Claims the live large block at `slot`: it is LM_USE_MOVING. Once a grace has passed, no thread
 * frees it into a bin, none resizes it, and a free leaves it to whoever claimed it. False: there is
 * no such live block of this pool at `slot`. */
bool lm_large_claim(lm_large *l, uint32_t slot);
/* After that grace: whether the block lives and is still claimed. False: there is no claim any
 * more, and *freed is what lm_large_release returned. */
bool lm_large_confirm(lm_large *l, uint32_t slot, size_t *freed);
/* Called by a free for a block that is dead now: whether the block is left to whoever claimed
 * it. */
bool lm_large_hand_over(lm_state_cell *state);
/* The changes to a block that goes to another pool. */
typedef struct lm_large_adoption {
  uint32_t slot;
  uint32_t bin;        /* threads may cache the block in their bins at this offset; 0: not */
  lm_token old, token; /* the block gets `token` if its token is still `old` */
} lm_large_adoption;
/* Makes a claimed block one of another pool. A second grace and lm_large_release follow. */
void lm_large_adopt(lm_large *to, lm_large *from, const lm_large_adoption *as);
/* Ends the claim. `stray`: the memory of the block is not what its pool asks for, so it will not be
 * used again. If the block was freed since the claim, its memory is given back here. Returns the
 * usable bytes that are then to be given back to the limit; 0: the block lives. */
size_t lm_large_release(lm_large *l, uint32_t slot, bool stray);

#endif
