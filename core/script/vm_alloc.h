/* vm_alloc.h - the memory of one Lua state: small pieces, sorted by size, that are cut from chunks.
 *
 * While a policy loads, its Lua state allocates and frees some thousand pieces, all in one thread,
 * and later gives back all of them together. So this allocator takes no lock, clears no memory, and
 * cuts pieces of different sizes from one chunk. A piece that is freed is reused for its own size
 * only; chunks go back together, in lm_vm_alloc_end. */
#ifndef LM_VM_ALLOC_H
#define LM_VM_ALLOC_H

#include "os/base.h"

enum { LM_VM_ALLOC_UNIT = 16, LM_VM_ALLOC_SIZES = 32 };

typedef struct lm_vm_alloc_piece lm_vm_alloc_piece;
typedef struct lm_vm_alloc_chunk lm_vm_alloc_chunk;
typedef struct lm_vm_alloc_large lm_vm_alloc_large;

/* A zeroed lm_vm_alloc is empty and ready for use. A piece of more than LM_VM_ALLOC_SIZES units of
 * LM_VM_ALLOC_UNIT bytes is a large piece: it has a block of metadata memory of its own.
 * Law: unused[i] lists free pieces of i + 1 units, or of more if they got smaller without memory.
 *      [at, end) is the part of the first chunk that was not cut yet; both are NULL while there is
 *      no chunk. `large` lists all large pieces, also those that got small. There is a reserve if
 *      is_short is set. */
typedef struct lm_vm_alloc {
  lm_vm_alloc_piece *unused[LM_VM_ALLOC_SIZES];
  lm_vm_alloc_chunk *chunks;
  char *at, *end;
  lm_vm_alloc_large *large;
  char *reserve; /* serves lua_newstate once memory is short; NULL before and after */
  size_t reserve_left;
  bool is_short; /* a piece came from the reserve, or would not fit: nothing is freed any more */
} lm_vm_alloc;

/* LuaJIT reads through NULL in lua_newstate if it is refused a piece after the first piece. So a
 * caller takes a reserve before lua_newstate, and gives it back after that. lm_vm_alloc_reserve
 * returns false if there is no memory for the reserve. lm_vm_alloc_end_reserve returns false if the
 * reserve was needed: then the state must not be used, nor closed, and lm_vm_alloc_end gives back
 * its memory. */
bool lm_vm_alloc_reserve(lm_vm_alloc *h);
bool lm_vm_alloc_end_reserve(lm_vm_alloc *h);

/* Sizes are above 0. The caller gives the size of a piece again when it resizes or frees the piece:
 * the size that it asked for. lm_vm_alloc_take and lm_vm_alloc_resize return NULL if there is no
 * memory; the old piece is then unchanged. A piece can always get smaller: without memory for
 * another one it stays where it is, and is a piece of the new size from then on. */
void *lm_vm_alloc_take(lm_vm_alloc *h, size_t size);
void *lm_vm_alloc_resize(lm_vm_alloc *h, void *piece, size_t old, size_t size);
void lm_vm_alloc_put(lm_vm_alloc *h, void *piece, size_t size);
/* Gives back the memory of all pieces together; *h is empty afterwards. */
void lm_vm_alloc_end(lm_vm_alloc *h);

/* Checks the law of lm_vm_alloc, in time proportional to the pieces. */
bool lm_vm_alloc_is_valid(const lm_vm_alloc *h);

#endif
