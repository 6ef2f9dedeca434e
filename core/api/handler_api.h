/* handler_api.h - the handler that allocates the data of blocks, arenas and arrays: the thread has
 * set it by loam_handler_set. */
#ifndef LM_HANDLER_API_H
#define LM_HANDLER_API_H

#include "loam.h"
#include "os/base.h"

/* Returns the handler from which the calling thread takes the data of a new block; NULL: the policy
 * decides. That is so while no handler is set and while a handler runs in this thread. It is so
 * too for a handler of loam_handler_of: then *site becomes the handler's site, if it has one. */
const loam_handler *lm_handler_api_for_data(loam_site **site);

/* Gives the block at `ptr` a new size by `handler`, and calls the host's hook. Keeps the contents
 * up to the smaller size, and an alignment of 16. NULL: the block is unchanged; errno is ENOMEM. */
void *lm_handler_api_realloc(const loam_handler *handler, loam_site *site, void *ptr, size_t size);

#endif
