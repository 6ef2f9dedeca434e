/* heap.h - memory of one Lua state: small pieces by size, cut from chunks that go back together.
 *
 * A state makes and drops some thousand pieces while a policy loads, in one thread, and then all of
 * them: so none has a lock to take, or is cleared, and sizes share the chunks. */
#ifndef LM_HEAP_H
#define LM_HEAP_H

#include "os/base.h"

enum { LM_HEAP_UNIT = 16, LM_HEAP_SIZES = 32 };

typedef struct lm_heap_piece lm_heap_piece;
typedef struct lm_heap_chunk lm_heap_chunk;
typedef struct lm_heap_large lm_heap_large;

/* Zeroed, it is empty. Pieces of more than LM_HEAP_SIZES units have memory of their own. */
typedef struct lm_heap {
  lm_heap_piece *unused[LM_HEAP_SIZES]; /* by units, less one */
  lm_heap_chunk *chunks;                /* the first is cut from `at` to `end` */
  char *at, *end;
  lm_heap_large *large;
} lm_heap;

/* Sizes above 0, those of pieces as they were asked for. NULL: no memory, and nothing was done. */
void *lm_heap_take(lm_heap *h, size_t size);
void *lm_heap_resize(lm_heap *h, void *piece, size_t old, size_t size);
void lm_heap_put(lm_heap *h, void *piece, size_t size);
/* Of all pieces, at once. */
void lm_heap_end(lm_heap *h);

#endif
