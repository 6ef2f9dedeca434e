/* vm_alloc.h - memory of one Lua state: small pieces by size, cut from chunks that go back
 * together.
 *
 * A state makes and drops some thousand pieces while a policy loads, in one thread, and then all of
 * them: so none has a lock to take, or is cleared, and sizes share the chunks. */
#ifndef LM_VM_ALLOC_H
#define LM_VM_ALLOC_H

#include "os/base.h"

enum { LM_VM_ALLOC_UNIT = 16, LM_VM_ALLOC_SIZES = 32 };

typedef struct lm_vm_alloc_piece lm_vm_alloc_piece;
typedef struct lm_vm_alloc_chunk lm_vm_alloc_chunk;
typedef struct lm_vm_alloc_large lm_vm_alloc_large;

/* Zeroed, it is empty. Pieces of more than LM_VM_ALLOC_SIZES units have memory of their own. */
typedef struct lm_vm_alloc {
  lm_vm_alloc_piece *unused[LM_VM_ALLOC_SIZES]; /* by units, less one */
  lm_vm_alloc_chunk *chunks;                    /* the first is cut from `at` to `end` */
  char *at, *end;
  lm_vm_alloc_large *large;
} lm_vm_alloc;

/* Sizes above 0, those of pieces as they were asked for. NULL: no memory, and nothing was done. */
void *lm_vm_alloc_take(lm_vm_alloc *h, size_t size);
void *lm_vm_alloc_resize(lm_vm_alloc *h, void *piece, size_t old, size_t size);
void lm_vm_alloc_put(lm_vm_alloc *h, void *piece, size_t size);
/* Of all pieces, at once. */
void lm_vm_alloc_end(lm_vm_alloc *h);

#endif
