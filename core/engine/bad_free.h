/* bad_free.h - tells the host of a free or realloc that is wrong: which block it was, and whose. */
#ifndef LM_BAD_FREE_H
#define LM_BAD_FREE_H

#include "heap/pool.h"

/* Each counts one bad free and tells the host's callback in one line. The calling thread is not
 * active. */

/* `what` ("free", "realloc") was called with p, which is not the start of a live block. */
void lm_bad_free_wrong(const char *what, const void *p);
/* p was freed again. *object is what lm_pool_free found there. */
void lm_bad_free_double(const void *p, lm_object *object);
/* The edges of the guarded block at p, which lm_pool_free has freed, were written to. */
void lm_bad_free_damaged(const void *p, const lm_object *object);
/* Tells if `size` cannot be the size of the live block at p, as the caller of a sized free said. */
void lm_bad_free_check_size(const void *p, size_t size);

#endif
