/* memory.h - the slow ends of the allocating functions, for the other files of the api. */
#ifndef LM_MEMORY_H
#define LM_MEMORY_H

#include "device/request.h"

/* Serves any request: starts loam if need be, asks the engine, calls the host's hook. On success
 * errno is unchanged; on failure it is ENOMEM. */
void *lm_memory_alloc(const lm_request *r);

/* Frees a block of any kind. `size`, `on`: as in lm_engine_free. `caller` is the return address
 * to name if the free is wrong. */
void lm_memory_free(void *ptr, size_t size, const lm_stream *on, const void *caller);

#endif
